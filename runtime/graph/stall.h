/* Stalls: sets of actors that wait for each other and can never continue. They are found in records
 * of the waits of all actors of a graph.
 *
 * A record has an actor's wait, and the state of each of its channels (look.c writes it, the runner
 * gathers all of them). A single record proves nothing, because the awaited item may be on its way.
 * So a wait is in vain only if the record of the other end confirms it:
 *
 *     to send           the receiver is stuck, and every credit that it granted was used by an item
 *     to receive        every sender is stuck and holds nothing for it, and all that left has come
 *     in a collective   a member that it waits for is stuck, and none of its messages is on its way
 *     at its end        an item that has not left is for an actor that is stuck, as in sending
 *
 * Actors that can continue are removed, and then, repeatedly, actors whose waits the removed ones
 * can end. The remaining actors are stuck. They contain at least one cycle of waits, which is
 * reported.
 *
 * On the virtual clock the holder of the baton takes all records at one moment. On the real clock
 * all records are gathered twice. A record that is the same in both gatherings was true at every
 * moment between them, because `moves` counts all events of an actor's waits.
 *
 * Owner of records: the caller that gathered them. No other state. Read next: look.c, watch.h. */
#ifndef EXO_GRAPH_STALL_H
#define EXO_GRAPH_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/actor.h>
#include <exogym/clock.h>

#include "graph/spec.h"

typedef enum exo_wait_kind {
    EXO_WAIT_NONE, /* the actor computes, or has ended */
    EXO_WAIT_SEND,
    EXO_WAIT_RECEIVE,
    EXO_WAIT_COLLECTIVE,
    EXO_WAIT_FINISH, /* its run is over, and its last items have not left */
} exo_wait_kind;

/* One end of a channel; or, for a collective in several processes, the messages to or from another
 * member. Actors are numbered in the order of the spec. */
typedef struct exo_wait_end {
    uint32_t edge, peer; /* the edge's number in messages; the actor at the other end */
    /* number after the last item that left or came; of a collective: messages so far */
    uint64_t number;
    /* sending: items that wait to leave; receiving: credits not yet used by an item */
    uint32_t amount;
    bool output;
    bool awaited; /* the actor waits for this end */
    bool over;    /* sending: END was sent, or nobody receives it; receiving: END has come */
    bool gone;    /* receiving: GONE was sent */
    bool busy;    /* sending: an item is being encoded, or is on an emulated link */
    /* sending: an item is on an emulated link; receiving, if awaited: the next item is on one */
    bool passing;
    bool returning; /* sending: a credit is on its way back over an emulated link */
    /* the process at the other end is lost to this one, or its actor has died */
    bool lost;
    uint8_t reserved[4]; /* 0, because records are compared byte by byte */
} exo_wait_end;

_Static_assert(sizeof(exo_wait_end) == 32, "nothing of an end is padding");

enum {
    EXO_WAIT_EDGE = 128
};

/* A record is this header, the ends (sorted by output, edge, peer), and the numbers of the actors
 * that the actor waits for in a collective. It is sent as it is in memory: all processes of a run
 * have the same version. */
typedef struct exo_wait_record {
    exo_time waited; /* duration of the wait; must be first: time alone changes it */
    exo_time since;
    uint64_t moves;
    uint32_t kind;
    uint32_t goes_on; /* the actor continues without others */
    uint32_t edge;    /* of the collective */
    uint32_t num_ends, num_missing;
    char edge_name[EXO_WAIT_EDGE]; /* edge of the wait; cut if longer */
    uint32_t on_link;              /* in a collective: a message is on an emulated link */
} exo_wait_record;

_Static_assert(sizeof(exo_wait_record) == 48 + EXO_WAIT_EDGE, "nothing of a record is padding");

/* One wait of a cycle: `actor` waits for the next one, `peer`. */
typedef struct exo_stall_wait {
    uint32_t actor, peer;
    exo_wait_kind kind;
    exo_time waited;
    char edge[EXO_WAIT_EDGE];
} exo_stall_wait;

typedef struct exo_stall {
    exo_stall_wait *cycle; /* begins with the actor of the lowest number */
    size_t length;         /* 0: nobody is stuck */
    size_t num_stuck;      /* actors of the cycle, and actors that wait for them */
} exo_stall;

/* A long wait that is not known to be a stall. */
typedef struct exo_slow_wait {
    char actor[96];
    exo_wait_kind kind;
    exo_time waited;
    char edge[EXO_WAIT_EDGE];
    /* the link with the awaited message, such as "home_0 -> dc (20 Mbit/s)"; else the awaited
     * actor; "": not known */
    char on[160];
    bool link;
} exo_slow_wait;

/* True: the bytes are a complete record of a graph of `count` actors, or empty. */
bool exo_wait_record_is_whole(const exo_payload *record, uint32_t count);
/* Searches for a stall in the records (count) of all actors; records of actors that do not wait are
 * empty. stuck (count) is written. The caller releases *out. Errors: NOMEM. */
exo_status exo_stall_find(exo_stall *out, const exo_payload *records, uint32_t count, bool *stuck,
                          exo_err *err);
void exo_stall_release(exo_stall *stall);
/* True: the records of all stuck actors are the same in both gatherings. */
bool exo_stall_is_same(const exo_payload *before, const exo_payload *after, const bool *stuck,
                       uint32_t count);

/* Writes an actor's name, such as "maker_1". */
void exo_stall_name(const exo_graph_spec *spec, uint32_t actor, char *out, size_t size);
/* "maker_0 waits to send on 'maker>trainer:experience' to trainer_1, whose buffer is full, since
 * 12.30 s into the run"; now: the run's time of the records. */
void exo_stall_wait_text(const exo_graph_spec *spec, const exo_stall_wait *wait, exo_time now,
                         char *out, size_t size);
/* Writes the stall as one line, which begins with "the graph stalls: ". Returns FAILED. */
exo_status exo_stall_text(const exo_graph_spec *spec, const exo_stall *stall, exo_time now,
                          exo_err *out);
/* Writes the longest waits of at least `longer_than`, the longest first, at most `room`; returns
 * their number. spec: the present graph. */
size_t exo_stall_slow(const exo_graph_spec *spec, const exo_payload *records, uint32_t count,
                      exo_time longer_than, exo_slow_wait *out, size_t room);

#endif
