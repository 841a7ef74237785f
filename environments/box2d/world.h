/* The bodies of LunarLander: a lander with two legs over a landscape, in a world of Box2D. Lengths
 * are in m. lunar_lander.c has the rules of the task.
 *
 * Owner of a world: its caller, one thread at a time; several worlds may live in several threads
 * after lander_world_prepare. */
#ifndef EXO_ENVIRONMENTS_BOX2D_WORLD_H
#define EXO_ENVIRONMENTS_BOX2D_WORLD_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LANDER_POINTS = 11 /* of the landscape, from the left edge to the right one */
};

typedef struct lander_world lander_world;

/* What can be seen of the lander. */
typedef struct lander_reading {
    float x, y, speed_x, speed_y; /* of the lander's center, m and m/s */
    float angle, turn;            /* rad, rad/s */
    bool legs[2];                 /* the left and the right leg touch the ground */
    bool touched;                 /* the hull has touched the ground */
    bool asleep;                  /* it rests */
} lander_reading;

/* Initializes what Box2D shares between worlds. Once, before the first world. */
void lander_world_prepare(void);
/* Makes a world with a landscape of these heights (LANDER_POINTS), and the lander above its middle.
 * The caller frees it. Like Box2D, it ends the process when memory is exhausted. */
lander_world *lander_world_new(const float *heights, float gravity);
/* Frees it; accepts NULL. */
void lander_world_free(lander_world *world);
/* Applies a force (N) and a torque (N m) to the lander's center during the next step. */
void lander_world_push(lander_world *world, float x, float y, float torque);
/* Applies an impulse (N s) to the lander at a point. */
void lander_world_kick(lander_world *world, float x, float y, float at_x, float at_y);
/* Lets 1/50 s pass. */
void lander_world_step(lander_world *world);
/* Writes what can be seen now. */
void lander_world_read(const lander_world *world, lander_reading *out);

#ifdef __cplusplus
}
#endif

#endif
