/* Lives of a graph's actors. An actor whose process dies, or whose run fails, gets another life if
 * its restart rule gives one (docs/graph.md, decision 40). This is the part of the runner, for actors
 * in workers; in one process an actor begins its next life by itself (rebirth.h).
 *
 * A unit is what lives and dies together: the members of a collective, or a single actor.
 *
 *            exo_lives_take: a member's        exo_lives_take: all members'
 *            run has failed                    runs are answered
 *     RUNS ---------------------------> ENDS ------------------------------> WAITS
 *      ^                                                                      |
 *      | exo_lives_tend: all members are made, connected and asked to run     |
 *      +----------------------------------------------------------------------+
 *
 * 1. In ENDS the other members are told to end their lives. Members that had already ended well are
 *    made again, too.
 * 2. A unit leaves WAITS when its backoff is over and its earlier lives have ended, also those that
 *    only this process has lost; an end that nobody confirms is awaited for EXO_LIFE_PARTING. If a
 *    member cannot be made or connected, the unit stays, and tries again for EXO_LIFE_PATIENCE after
 *    the failure.
 * 3. The next lives are connected first, then all other actors are told of them (`relink`), and only
 *    then do they run: nobody gets a message of a life that it does not know.
 * 4. An actor whose run has ended well gets no other life, and is not told of lives. A new life is told
 *    of it: when it begins, or as soon as the runner knows that the actor has ended. If its process is
 *    gone when the graph changes, all others are told of it, as nobody ends its new channels.
 *
 * Owner: the runner's thread. Read next: lives.c, relink.c. */
#ifndef EXO_GRAPH_LIVES_H
#define EXO_GRAPH_LIVES_H

#include "conduct/conduct.h"
#include "graph/spec.h"

/* the longest time from a failure to the next life, besides the rule's backoff */
#define EXO_LIFE_PATIENCE (60 * EXO_SECOND)
/* the longest wait for the end of an earlier life, as at a worker that is stopped */
#define EXO_LIFE_PARTING (10 * EXO_SECOND)

enum {
    EXO_LIFE_NAME = 128,
    EXO_SAME_FAILURES = 10
};

/* Writes the name of an actor in one of its lives: "maker_0", then "maker_0.1". */
void exo_life_name(const char *actor, uint32_t index, uint32_t life, char out[EXO_LIFE_NAME]);

/* The failures of a unit so far. Zeroed: none. */
typedef struct exo_births {
    uint32_t failures, quick;
    uint32_t same;  /* in a row with the same words */
    uint64_t words; /* of the last failure: a hash of its status and text */
    exo_time first_failure, began;
} exo_births;

/* A failure of the actor of that name, without the name: members of a collective fail in turn where the
 * reason is the same for all, as on a full disk. */
exo_err exo_births_failure(const char *name, exo_status status, const exo_err *reason);
/* Counts a failure at time `now`, with its reason. Whether the rule gives another life; *wait: the
 * time until then. A rule without `max` gives none after EXO_SAME_FAILURES in a row with the same
 * words, between which nothing changes; deaths of processes and losses of peers leave their count.
 * The first restart waits for the rule's backoff; the wait doubles with each further life that is
 * shorter than 10 s, from 10 ms at least to 30 s at most. */
bool exo_births_next(exo_births *births, const exo_restart_rule *rule, const exo_err *reason,
                     exo_time now, exo_time *wait);
/* Adds to a failure, after which the rule gave no further life, which limit is reached; nothing if the
 * rule has none. The failure's own text is cut for that if need be. */
void exo_births_explain(const exo_births *births, const exo_restart_rule *rule, exo_err *reason);
/* True: the error of a life is one after which there can be another one. */
bool exo_births_count(exo_status status);

/* True: what a request to an actor says if it is dead, or its run is over. */
bool exo_lives_is_loss(exo_status status);

typedef enum exo_unit_state {
    EXO_UNIT_RUNS,
    EXO_UNIT_ENDS,
    EXO_UNIT_WAITS,
} exo_unit_state;

typedef struct exo_life_unit {
    uint32_t actor;        /* index in the spec */
    uint32_t index;        /* of its first member among those of the actor's name */
    uint32_t first, count; /* its members in the cast */
    exo_births births;
    exo_unit_state state;
    exo_time failed, due;
    exo_time parts;   /* since when the ends of its earlier lives are awaited; 0: they are not */
    uint64_t put_off; /* a hash of the last reason for which it could not begin; 0: none */
    uint32_t culprit; /* the member whose failure ended the life */
} exo_life_unit;

/* The end of an actor's earlier life. */
typedef struct exo_parting {
    bool lingers;    /* it may be alive */
    bool is_lost;    /* it cannot be reached */
    exo_future *end; /* the head's answer; NULL: there is no request */
} exo_parting;

typedef struct exo_lives {
    /* Set by the owner. */
    const exo_graph_spec *spec;
    exo_cast *cast;
    void *context;
    /* Makes actor `i` in its life lives[i]. */
    exo_status (*make)(void *context, uint32_t i, exo_err *err);
    /* Asks for the end of actor `i` in its life lives[i], wherever it is; *out: as that of
     * exo_cluster_end_actor. is_lost: it cannot be reached from here. NULL: a stop is enough. */
    exo_status (*end)(void *context, uint32_t i, bool is_lost, exo_future **out, exo_err *err);
    /* Says why no actor can be made any more; NULL: it may be possible later. May be NULL. */
    const char *(*forlorn)(void *context);
    /* A member of a unit has failed, for the reason in `why`, and gets another life. May be NULL. */
    void (*tell)(void *context, uint32_t i, const char *why);
    /* Set by exo_lives_open. */
    uint32_t *lives; /* (count) of each actor */
    exo_life_unit *units;
    uint32_t num_units;
    uint32_t *unit_of;     /* (count) */
    bool *batch;           /* (count) actors that are being made */
    uint32_t batches;      /* so far */
    exo_parting *partings; /* (count) of the latest lives */
    uint32_t
        *born; /* (count) the batch that an actor's present life began with; 0: the first life */
    /* (count) the first batch that an actor was not told of, as it was dead or over; 0: none */
    uint32_t *since;
    uint32_t *ended; /* (count) exo_lives_ended */
    bool *missed;    /* (count) the actor was dead when the graph changed: exo_lives_miss */
    bool misses;     /* there was such an actor */
    bool news; /* such an actor has ended well: later lives are to be told; with `misses`, all */
} exo_lives;

/* Allocates; the owner has set the members above. The caller closes it, also after NOMEM. */
exo_status exo_lives_open(exo_lives *lives, exo_err *err);
void exo_lives_close(exo_lives *lives);
/* Takes the answer of an actor to `run`. True: it does not count, as the actor gets another life. False:
 * if that is for a limit of its rule, the reason names it. */
bool exo_lives_take(exo_lives *lives, uint32_t i, exo_status status, exo_err *reason);
/* Ends the life of an actor that runs, with PEER_LOST and this reason, if it gets another one. False: it
 * does not, and nothing was done but that the reason names the limit of the rule. */
bool exo_lives_end(exo_lives *lives, uint32_t i, exo_err *reason);
/* The number of actors that are to be asked to run again. */
uint32_t exo_lives_owed(const exo_lives *lives);
/* Lists the numbers of the actors whose run has ended well, in lives->ended. Returns how many there
 * are. */
uint32_t exo_lives_ended(exo_lives *lives);
/* The graph has changed without these actors, as they are dead. Those that have ended well get no other
 * life, so they end no channel of the change: exo_lives_tend tells the others. */
void exo_lives_miss(exo_lives *lives, const bool *dead);
/* Whether some unit does not run. */
bool exo_lives_pend(const exo_lives *lives);
/* Whether actor `i` is to get another life. */
bool exo_lives_is_due(const exo_lives *lives, uint32_t i);
/* Asks all actors to run, in their first life, but for those that are to get another one; one that has died
 * since it was connected gets another. An error ends the run; *culprit is the actor. */
exo_status exo_lives_begin(exo_lives *lives, uint32_t *culprit, exo_err *err);
/* Begins the lives that are due. Blocks for as long as it takes to make and connect them. An error
 * ends the run; *culprit is the actor. */
exo_status exo_lives_tend(exo_lives *lives, uint32_t *culprit, exo_err *err);

#endif
