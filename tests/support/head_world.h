/* A head and its surroundings for tests with Criterion: a worker that only records the requests of
 * the head, whose replies the test sends, and a clock that the test advances. The head runs in a
 * runtime of this process; the test's thread owns the rest. */
#ifndef EXO_TEST_HEAD_WORLD_H
#define EXO_TEST_HEAD_WORLD_H

#include <stdatomic.h>

#include <exogym/clock.h>

#include "cluster/directory.h"
#include "cluster/head.h"
#include "cluster/messages.h"

enum {
    WORLD_NODE = 1, /* of the worker that world_open registers, with 2 `places` */
    WORLD_MOST = 1024
};

/* A spawn that the head requested from the worker. */
struct world_asked {
    char name[64];
    uint64_t key, incarnation, id, asker, gpus;
    exo_future *answer; /* NULL: the reply was sent */
};

typedef struct head_world {
    exo_clock_manual manual;
    exo_runtime *runtime;
    exo_ref head, worker;
    _Atomic exo_time due;
    atomic_bool held;
    struct world_asked spawns[WORLD_MOST];
    struct exo_head_kill kills[WORLD_MOST];
    _Atomic size_t num_spawns, num_kills; /* the worker counts */
    uint64_t last_id;
    _Atomic uint64_t unheard; /* bit n: nothing is heard of node n */
    char text[2048];
    /* key of calls in the name of other processes, which are then drivers; NULL: they are processes
     * of this host */
    const char *driver_key;
} head_world;

/* An actor to spawn, with its restart rule. */
struct world_member {
    Exo__Cluster__Spawn spec;
    Exo__Cluster__RestartRule rule;
};

/* Opens a head and registers its worker. `state`: the head's file; NULL: none. */
void world_open(head_world *w, const char *state);
/* The same with other quotas, which must outlive the head. */
void world_open_with(head_world *w, const char *state, const exo_quotas *quotas);
void world_close(head_world *w);

/* --- Calls to the head ------------------------------------------------------------------------ */

exo_future *world_begin(head_world *w, exo_ref actor, const char *method,
                        const ProtobufCMessage *message, exo_time deadline);
/* The same, in the name of another process. */
exo_future *world_begin_as(head_world *w, uint64_t peer, const char *method,
                           const ProtobufCMessage *message);
exo_future *world_begin_bytes_as(head_world *w, uint64_t peer, const char *method, const void *data,
                                 size_t size);
exo_status world_ask_as(head_world *w, uint64_t peer, const char *method,
                        const ProtobufCMessage *message, exo_err *err);
/* Calls the head and waits. When it returns, the worker has received all earlier requests of the
 * head. */
exo_status world_ask(head_world *w, const char *method, const ProtobufCMessage *message,
                     exo_err *err);
/* Blocks head and worker until world_release. Calls queue up meanwhile, in order. */
void world_hold(head_world *w);
void world_release(head_world *w);
/* Advances the clock; the head then does what is due. */
void world_tick(head_world *w, exo_time after);
/* Advances the clock until the worker is asked for a spawn. Returns the time that this took. */
exo_time world_until_asked(head_world *w);
/* The output of `exogym why` for an actor. Valid until the next call. */
const char *world_why(head_world *w, const char *name);
bool world_is(head_world *w, const char *name, const char *state, uint64_t life);
/* The caller releases it with EXO_RELEASE. */
Exo__Cluster__Listing *world_list(head_world *w);

/* --- Nodes ------------------------------------------------------------------------------------ */

void world_register(head_world *w, uint64_t node, const char *kind, const char *name,
                    const char *job);
void world_lose(head_world *w, uint64_t node, const char *cause);
/* These are about the worker that world_open registers. */
void world_register_worker(head_world *w);
void world_lose_worker(head_world *w, const char *cause);

/* --- Actors ----------------------------------------------------------------------------------- */

void world_describe(struct world_member *m, const char *name, uint32_t max,
                    exo_group_rule group_rule);
/* Requests one spawn, or several together. When it returns, the worker has received the
 * requests. */
exo_future *world_begin_spawn(head_world *w, struct world_member *members, size_t count);
/* Spawns the actors: requests them and replies for the worker. */
void world_spawn(head_world *w, struct world_member *members, size_t count);
void world_spawn_one(head_world *w, const char *name, uint32_t max);
/* Sends the worker's reply to the i-th spawn, and waits until the head has used it. */
void world_answer(head_world *w, size_t i, exo_status status, const char *reason);
/* Sends success as the reply to the i-th spawn. The head may receive it later. */
void world_answer_soon(head_world *w, size_t i);
/* The worker reports the end of the life that the i-th spawn began. */
void world_dies(head_world *w, size_t i, const char *cause);

#endif
