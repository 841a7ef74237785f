/* The conductor of a cast. A cast is a set of actors. One thread, the conductor, makes them, sends
 * requests to all of them, waits for the answers, and ends them. The runner of graphs (graph/run.c)
 * and the trainer of jobs (actors/fit_ask.c) are built on it and add their own work as hooks.
 *
 * The life of a request to actor i:
 *
 *             exo_cast_ask                    exo_cast_await takes the answer
 *     (none) --------------> futures[i] is set ------------------------------> replies[i] is set
 *        ^                        | exo_cast_drop, or the next exo_cast_ask         |
 *        +------------------------+-------------------------------------------------+
 *
 * 1. An actor has one request at a time. The requests of exo_cast_round are additional.
 * 2. When one actor fails, others fail as a consequence. `root` is the error closest to the cause,
 *    in this order: an actor's own error; the death of the actor; a deadline or a cancellation; the
 *    death of another actor, as this one reports it. Once all actors were told to end (`told`), a
 *    cancellation or another's death is no error. Of two errors of one rank the first counts,
 *    unless the hook `when` decides.
 * 3. The conductor ends the other actors (the hook `answered`) and sets the limit of its own wait
 *    (`patience`).
 *
 * Owner: the conductor's thread. Read next: conduct.c, decision 27. */
#ifndef EXO_CONDUCT_H
#define EXO_CONDUCT_H

#include <exogym/actor.h>

enum {
    EXO_CAST_NAME = 128 /* bytes of an actor's name */
};

typedef struct exo_cast_root {
    exo_status status; /* OK: there is none */
    exo_err err;
    uint32_t actor;
    int weight; /* rank of the error; EXO_CAST_HEARD: the actor reports the death of another one */
} exo_cast_root;

enum {
    EXO_CAST_HEARD = 1,
    EXO_CAST_OWN = 4 /* an actor's own error */
};

typedef struct exo_cast {
    /* Set by the owner, before the calls that read them. */
    uint32_t count;
    exo_runtime *runtime;
    bool joined;       /* the runtime belongs to a cluster, and has other actors too */
    const char *space; /* namespace of the actors; NULL: none */
    const void *context;
    void (*name)(const void *context, uint32_t actor, char out[EXO_CAST_NAME]);
    /* errors of an actor may begin with its name; the name is then not added again */
    bool names_itself;
    /* Writes why the actor of that name died, "" if the cause is not known; may be NULL. */
    void (*explain)(void *context, const char *space, const char *name, char *out, size_t size);
    void *explain_context;
    bool told; /* all actors were told to end */
    /* not 0: no further actor of a cluster is made; NULL: never */
    const EXO_ATOMIC(int) * stop;
    exo_time patience; /* limit of exo_cast_await, on the real clock; INT64_MAX: none */
    /* Set by the cast. */
    exo_ref *actors;                 /* (count) id 0: not made */
    exo_future **futures, **replies; /* (count) */
    exo_cast_root root;              /* result of the last exo_cast_await */
} exo_cast;

/* Allocates the arrays for `count` actors and sets no limit of patience. The caller closes the
 * cast, also after an error. Errors: NOMEM. */
exo_status exo_cast_open(exo_cast *cast, exo_err *err);
/* Makes actor `i` of a class, under its name, with the other fields of `opts`; takes opts->args. An
 * existing actor of that name is used: names of a cast are unique, so an earlier request made it
 * and the head was lost before its answer. Blocks until `deadline` at most, and in a cluster until
 * two seconds after `stop` was set. Errors: those of exo_spawn_class; CANCELLED: `stop`. */
exo_status exo_cast_spawn(exo_cast *cast, uint32_t i, const char *class_name, exo_spawn_opts *opts,
                          exo_time deadline, exo_err *err);
/* Drops all requests and ends the actors: sends a stop to actors in a cluster, without waiting, or
 * closes the runtime that belongs to this cast alone, within `grace`. Errors: TIMEOUT of
 * exo_runtime_close; these actors still use their memory. */
exo_status exo_cast_end(exo_cast *cast, exo_time grace, exo_err *err);
/* Drops all requests and frees the arrays of exo_cast_open. */
void exo_cast_close(exo_cast *cast);

/* Sets the patience to `time` from now. */
void exo_cast_be_patient(exo_cast *cast, exo_time time);
/* Writes an error of actor `i` with its name and returns `status`. For a dead actor the text has
 * the cause of its death, if `explain` knows it, instead of `reason`. */
exo_status exo_cast_blame(const exo_cast *cast, uint32_t i, exo_status status, const char *reason,
                          exo_err *err);

/* Sends actor `i` a request without a deadline and drops its previous request. `args` is moved,
 * also on failure. Errors: those of exo_call, with the actor's name. */
exo_status exo_cast_ask(exo_cast *cast, uint32_t i, const char *method, exo_payload args,
                        exo_err *err);

typedef struct exo_cast_hooks {
    void *context;
    void (*look)(void *context); /* called before each wait; may be NULL */
    void (*idle)(void *context); /* called after 50 ms without an answer */
    /* Actor `i` has answered; `root` already takes the answer into account. The hook may send it its
     * next request, which is then waited for, too. */
    void (*answered)(void *context, uint32_t i, exo_status status, const exo_err *err);
    /* Whether the answer of actor `i` does not count, because the owner asks it again later; then
     * `answered` is not called, and the reply is dropped. May be NULL. */
    bool (*forgives)(void *context, uint32_t i, exo_status status, exo_err *err);
    /* The number of actors that the owner will ask again. May be NULL. */
    uint32_t (*owed)(void *context);
    /* The time of actor i's error, to order errors of one rank by their own time instead of by
     * threads. May be NULL. */
    exo_time (*when)(const void *context, uint32_t i);
} exo_cast_hooks;

/* Waits for the requests in progress, and for those that the hook `owed` counts, until all are
 * answered or the patience is over, and chooses `root`. A hook may set `root` by itself. Returns the number of actors that have not answered. */
uint32_t exo_cast_await(exo_cast *cast, const exo_cast_hooks *hooks);
/* The reply of actor `i`; NULL: no reply yet, or an error. The cast owns it. */
const exo_payload *exo_cast_reply(const exo_cast *cast, uint32_t i);
/* The first actor that has not answered; the last actor if all have answered. */
uint32_t exo_cast_late(const exo_cast *cast);
/* Drops all requests and replies. */
void exo_cast_drop(exo_cast *cast);

/* A round sends a request to each of many actors and takes the answers in the order of the cast. It
 * leaves the requests of exo_cast_ask alone. */
typedef struct exo_cast_round {
    const exo_cast *cast;
    exo_future **futures; /* (count) */
    exo_time deadline;
    uint32_t next;
    uint32_t actor;           /* actor of the latest answer */
    exo_status status;        /* status of that answer */
    const exo_payload *reply; /* its payload, owned by the future; NULL after an error */
    exo_err reason;
} exo_cast_round;

/* Opens a round; all its requests share one deadline, `timeout` from now. After NOMEM nothing is
 * open. */
exo_status exo_cast_round_open(exo_cast_round *round, const exo_cast *cast, exo_time timeout,
                               exo_err *err);
/* Sends a request. `args` is moved, also on failure. Errors: those of exo_call, with the actor's
 * name. */
exo_status exo_cast_round_ask(exo_cast_round *round, uint32_t i, const char *method,
                              exo_payload args, exo_err *err);
/* Waits for the next answer and writes it into actor, status, reply and reason; false: all were
 * taken. An actor that has not answered at the deadline gives TIMEOUT. */
bool exo_cast_round_next(exo_cast_round *round);
void exo_cast_round_close(exo_cast_round *round);

#endif
