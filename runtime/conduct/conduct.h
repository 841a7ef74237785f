/* The conductor of a cast: of actors that one thread makes, asks for things all together, and ends.
 * The runner of graphs (graph/run.c) and the trainer of jobs (actors/fit_ask.c) are built on it;
 * what is theirs alone they add as hooks.
 *
 * The life of a request to actor i:
 *
 *             exo_cast_ask                    exo_cast_await takes the answer
 *     (none) --------------> futures[i] is set ------------------------------> replies[i] is set
 *        ^                        | exo_cast_drop, or the next exo_cast_ask         |
 *        +------------------------+-------------------------------------------------+
 *
 * 1. An actor has one request at a time, besides those of exo_cast_round.
 * 2. When one fails, others fail because of it. `root` is the error that says most: an actor's own
 *    error, then its death, then a deadline or a cancellation, then what it heard of another one's
 *    death; nothing, if it was told to end (`told`) and says that it did. Of two that say equally
 *    much the first counts.
 * 3. The conductor ends the others (the hook `answered`), and grants them `patience`.
 *
 * Owner: the conductor's thread. */
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
    int weight; /* EXO_CAST_HEARD: it only heard of another's death */
} exo_cast_root;

enum {
    EXO_CAST_HEARD = 1
};

typedef struct exo_cast {
    /* The owner's, who sets them before the calls that need them. */
    uint32_t count;
    exo_runtime *runtime;
    bool joined;       /* the runtime is a cluster's, and others' too */
    const char *space; /* namespace of the actors; NULL: none */
    const void *context;
    void (*name)(const void *context, uint32_t actor, char out[EXO_CAST_NAME]);
    /* errors of an actor may begin with its name, which then is not said twice */
    bool names_itself;
    /* Writes why the actor of that name is dead, "" if that is not known; may be NULL. */
    void (*explain)(void *context, const char *space, const char *name, char *out, size_t size);
    void *explain_context;
    bool told;         /* all were told to end */
    exo_time patience; /* exo_cast_await ends then, on the real clock; INT64_MAX: never */
    /* The cast's. */
    exo_ref *actors;                 /* (count) of id 0: not made */
    exo_future **futures, **replies; /* (count) */
    exo_cast_root root;              /* of the last exo_cast_await */
} exo_cast;

/* Makes room for `count` actors; nobody is patient yet. NOMEM. */
exo_status exo_cast_open(exo_cast *cast, exo_err *err);
/* Makes actor `i` of a class, under its name, with what `opts` says besides; takes opts->args. An
 * actor that is there under the name is it: nobody else has the name, so the head was lost before
 * it could say that it had made it. */
exo_status exo_cast_spawn(exo_cast *cast, uint32_t i, const char *class_name, exo_spawn_opts *opts,
                          exo_time deadline, exo_err *err);
/* Ends the actors: those of a cluster are told to stop, a runtime of this cast alone is closed. Its
 * error: actors that do not stop, and still use what they use. */
exo_status exo_cast_end(exo_cast *cast, exo_time grace, exo_err *err);
/* Frees what exo_cast_open made. */
void exo_cast_close(exo_cast *cast);

/* Grants everybody so long from now. */
void exo_cast_be_patient(exo_cast *cast, exo_time time);
/* An error of actor `i` with its name; of one that is dead, also why, as far as that can be learnt.
 * Gives `status`. */
exo_status exo_cast_blame(const exo_cast *cast, uint32_t i, exo_status status, const char *reason,
                          exo_err *err);

/* Sends actor `i` a request without a deadline, and forgets the one before; `args` moves. An error
 * has the actor's name. */
exo_status exo_cast_ask(exo_cast *cast, uint32_t i, const char *method, exo_payload args,
                        exo_err *err);

typedef struct exo_cast_hooks {
    void *context;
    void (*look)(void *context); /* now and then, before each wait; may be NULL */
    void (*idle)(void *context); /* nobody has answered for a moment */
    /* Actor `i` has answered, after `root` was chosen. */
    void (*answered)(void *context, uint32_t i, exo_status status, const exo_err *err);
    /* Of two errors that say equally much: when each was, so that their order does not depend on
     * threads. May be NULL. */
    exo_time (*when)(const void *context, uint32_t i);
} exo_cast_hooks;

/* Waits for the requests in progress and chooses `root`, until all are answered or the patience is
 * over. Gives how many are not. */
uint32_t exo_cast_await(exo_cast *cast, const exo_cast_hooks *hooks);
/* The reply of actor `i` that ended well; NULL: there is none. */
const exo_payload *exo_cast_reply(const exo_cast *cast, uint32_t i);
/* The first that has not answered; the last one, if all have. */
uint32_t exo_cast_late(const exo_cast *cast);
/* Forgets requests and replies. */
void exo_cast_drop(exo_cast *cast);

/* A round: asks many at once, and takes their answers in the order of the cast. It leaves requests
 * in progress alone. */
typedef struct exo_cast_round {
    const exo_cast *cast;
    exo_future **futures; /* (count) */
    exo_time deadline;
    uint32_t next;
    uint32_t actor;           /* that the latest answer is of */
    exo_status status;        /* of that answer */
    const exo_payload *reply; /* NULL after an error */
    exo_err reason;
} exo_cast_round;

/* NOMEM; then the round is closed. */
exo_status exo_cast_round_open(exo_cast_round *round, const exo_cast *cast, exo_time timeout,
                               exo_err *err);
/* `args` moves. An error has the actor's name. */
exo_status exo_cast_round_ask(exo_cast_round *round, uint32_t i, const char *method,
                              exo_payload args, exo_err *err);
/* Waits for the next answer; false: there is no other. */
bool exo_cast_round_next(exo_cast_round *round);
void exo_cast_round_close(exo_cast_round *round);

#endif
