/* A head and what is around it, for tests with Criterion: a worker that only notes what it is asked
 * for, whose answers the test gives, and a clock that the test moves. The head runs in a runtime of
 * this process; the test's thread owns the rest. */
#ifndef EXO_TEST_HEAD_WORLD_H
#define EXO_TEST_HEAD_WORLD_H

#include <stdatomic.h>

#include <exogym/clock.h>

#include "cluster/directory.h"
#include "cluster/head.h"
#include "cluster/messages.h"

enum {
    WORLD_NODE = 1, /* of the worker that is there from the beginning, with 2 `places` */
    WORLD_MOST = 1024
};

/* What the worker was asked for. */
struct world_asked {
    char name[64];
    uint64_t key, incarnation, id, asker;
    exo_future *answer; /* NULL: given */
};

typedef struct head_world {
    exo_clock_manual manual;
    exo_runtime *runtime;
    exo_ref head, worker;
    _Atomic exo_time due;
    atomic_bool held;
    struct world_asked spawns[WORLD_MOST];
    struct exo_head_kill kills[WORLD_MOST];
    size_t num_spawns, num_kills;
    uint64_t last_id;
    char text[2048];
    const char *
        /* whoever asks as another process is a driver with it; NULL: it is of this host */
        driver_key;
} head_world;

/* An actor to be made, with its restart rule. */
struct world_member {
    Exo__Cluster__Spawn spec;
    Exo__Cluster__RestartRule rule;
};

/* `state`: the head's file; NULL: it has none. */
void world_open(head_world *w, const char *state);
/* With other quotas than the default ones, which must outlive it. */
void world_open_with(head_world *w, const char *state, const exo_quotas *quotas);
void world_close(head_world *w);

/* --- Asking the head -------------------------------------------------------------------------- */

exo_future *world_begin(head_world *w, exo_ref actor, const char *method,
                        const ProtobufCMessage *message, exo_time deadline);
/* The same in the name of another process. */
exo_future *world_begin_as(head_world *w, uint64_t peer, const char *method,
                           const ProtobufCMessage *message);
exo_future *world_begin_bytes_as(head_world *w, uint64_t peer, const char *method, const void *data,
                                 size_t size);
exo_status world_ask_as(head_world *w, uint64_t peer, const char *method,
                        const ProtobufCMessage *message, exo_err *err);
/* When it returns, the worker has got what the head asked of it before. */
exo_status world_ask(head_world *w, const char *method, const ProtobufCMessage *message,
                     exo_err *err);
/* Until the release neither head nor worker does anything: calls gather, in their order. */
void world_hold(head_world *w);
void world_release(head_world *w);
/* What is due by then happens. */
void world_tick(head_world *w, exo_time after);
/* Lets time pass until the worker is asked for a life; gives that time. */
exo_time world_until_asked(head_world *w);
/* What `exogym why` prints of an actor; until the next one is asked for. */
const char *world_why(head_world *w, const char *name);
bool world_is(head_world *w, const char *name, const char *state, uint64_t life);
/* Released with EXO_RELEASE. */
Exo__Cluster__Listing *world_list(head_world *w);

/* --- Nodes ------------------------------------------------------------------------------------ */

void world_register(head_world *w, uint64_t node, const char *kind, const char *name,
                    const char *job);
void world_lose(head_world *w, uint64_t node, const char *cause);
/* The one that is there from the beginning. */
void world_register_worker(head_world *w);
void world_lose_worker(head_world *w, const char *cause);

/* --- Actors ----------------------------------------------------------------------------------- */

void world_describe(struct world_member *m, const char *name, uint32_t max,
                    exo_group_rule group_rule);
/* Asks for one, or several together; the worker has been asked for them when it returns. */
exo_future *world_begin_spawn(head_world *w, struct world_member *members, size_t count);
/* Makes them. */
void world_spawn(head_world *w, struct world_member *members, size_t count);
void world_spawn_one(head_world *w, const char *name, uint32_t max);
/* The worker's answer to the i-th thing that it was asked for. */
void world_answer(head_world *w, size_t i, exo_status status, const char *reason);
/* That it was made; the head may hear of it later. */
void world_answer_soon(head_world *w, size_t i);
/* The worker tells of the end of a life that it was asked for. */
void world_dies(head_world *w, size_t i, const char *cause);

#endif
