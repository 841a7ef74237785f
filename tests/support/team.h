/* Members of a communicator of this process, a thread each, for tests of collectives with Criterion. Each
 * test owns a team; each member's thread owns its `struct member`. */
#ifndef EXO_TEST_TEAM_H
#define EXO_TEST_TEAM_H

#include <pthread.h>

#include <exogym/comm.h>

enum {
    MAX_MEMBERS = 7
};

/* A member and its thread's work. `x` is its own array of `count` elements. */
struct member {
    exo_group *group;
    uint32_t rank;
    exo_status (*act)(struct member *m);
    size_t count;
    float *x;
    uint32_t arg;
    exo_status status;
    exo_err err;
};

struct team {
    exo_comm *comm;
    exo_clock_manual clock;
    uint32_t size;
    struct member m[MAX_MEMBERS];
    pthread_t threads[MAX_MEMBERS];
};

/* Element i of the array that a member begins with. */
float element(uint32_t rank, size_t i);

void team_init(struct team *t, uint32_t size, size_t count);
void team_release(struct team *t);
/* One member acts; the caller joins its thread. */
void team_start(struct team *t, uint32_t r, exo_status (*act)(struct member *m));
/* All act, and all have ended. */
void team_run(struct team *t, exo_status (*act)(struct member *m));
/* None has failed, or written behind its array. */
void team_expect_ok(const struct team *t, size_t count);

#endif
