/* LunarLander with all chance given by the caller: what lunar_lander.c and its tests share.
 *
 * Owner of an episode: its caller, one thread at a time. */
#ifndef EXO_ENVIRONMENTS_BOX2D_LANDER_H
#define EXO_ENVIRONMENTS_BOX2D_LANDER_H

#include <exogym/environment.h>

#include "environments/box2d/world.h"

enum {
    LANDER_OBSERVATION = 8,
    LANDER_HEIGHTS = LANDER_POINTS + 1
};

/* The chance of an episode's beginning. */
typedef struct lander_start {
    double heights[LANDER_HEIGHTS]; /* of the landscape before it is smoothed, m */
    double force[2];                /* on the lander in the first step, N */
    double wind[2];                 /* phases of the wind and of the turbulence, whole numbers */
} lander_start;

/* The options of the environment. */
typedef struct lander_options {
    bool continuous, wind;
    double gravity, wind_power, turbulence_power;
} lander_options;

/* An episode. */
typedef struct lander_episode {
    lander_world *world; /* NULL: none has begun */
    double wind[2];      /* phases */
    double shaping;      /* the potential whose differences are rewards */
    double observation[LANDER_OBSERVATION];
    bool begun; /* a step has been made */
} lander_episode;

/* Begins an episode, after which *e needs lander_end. `noise` (2) in +-1 m/30 is that of the
 * engines in the first step, which has no action. */
void lander_begin(lander_episode *e, const lander_options *options, const lander_start *start,
                  const double *noise);
/* Makes a step; `reward` is written. noise: as above. */
exo_episode lander_step(lander_episode *e, const lander_options *options, exo_action action,
                        const double *noise, double *reward);
/* Frees the world; accepts an episode that never began. */
void lander_end(lander_episode *e);

#endif
