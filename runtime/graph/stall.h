/* Stalls: actors that wait for each other, of which none can ever go on, found in what all actors
 * of a graph say of their waits.
 *
 * Each actor says what it waits for, and how far each of its channels has come (look.c makes such a
 * record, the runner gathers them). A record alone proves nothing: what an actor waits for may be
 * on its way. So a wait counts only together with the record of the other end:
 *
 *     to send      the receiver is stuck, and has granted no credit that an item did not use
 *     to receive   every sender is stuck, holds nothing for it, and all that left has come
 *     in a collective   one of those that it waits for is stuck, and none of its messages is on its way
 *     at its end   an item that has not left is for one that is stuck, as in sending
 *
 * Stuck are those that remain when, one after another, everybody who can go on was taken away, and
 * whoever waits for them. Among them is at least one cycle, which is what is told.
 *
 * Records of one moment come from whoever holds the baton of the virtual clock. On the real one
 * they are gathered twice: those that are the same in both gatherings were true at every moment
 * between them, as `moves` counts all that happens to an actor's waits.
 *
 * Records belong to whoever gathered them; no state. Read next: look.c, watch.h. */
#ifndef EXO_GRAPH_STALL_H
#define EXO_GRAPH_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/actor.h>
#include <exogym/clock.h>

#include "graph/spec.h"

typedef enum exo_wait_kind {
    EXO_WAIT_NONE, /* it computes, or has ended */
    EXO_WAIT_SEND,
    EXO_WAIT_RECEIVE,
    EXO_WAIT_COLLECTIVE,
    EXO_WAIT_FINISH, /* its run is over, and what it sent last has not left */
} exo_wait_kind;

/* One end of a channel, or, of a collective in several processes, what goes to another member or
 * comes from it. Actors are numbered in the order of the spec. */
typedef struct exo_wait_end {
    uint32_t edge, peer; /* the edge as messages number it; the actor at the other end */
    /* of the item after the last one that left or came; of a collective: messages */
    uint64_t number;
    /* sending: items that wait to leave; receiving: credits that no item has come for */
    uint32_t amount;
    bool output;
    bool awaited; /* what the actor waits for now */
    bool over;    /* sending: END was sent, or nobody takes it; receiving: END has come */
    bool gone;    /* receiving: GONE was said */
    bool busy;    /* sending: an item is being encoded, or passes an emulated link */
    /* it does pass one; receiving, if awaited: the next item has still some way on it */
    bool passing;
    bool returning;      /* sending: a credit is on its way back over such a link */
    uint8_t reserved[5]; /* 0: records are compared byte by byte */
} exo_wait_end;

_Static_assert(sizeof(exo_wait_end) == 32, "nothing of an end is padding");

enum {
    EXO_WAIT_EDGE = 128
};

/* A record: this, then its ends (sorted by output, edge, peer), and the numbers of the actors that
 * it waits for in a collective. Between processes of one version it goes as it lies. */
typedef struct exo_wait_record {
    exo_time waited; /* so long; the only member that time changes */
    exo_time since;
    uint64_t moves;
    uint32_t kind;
    uint32_t goes_on; /* it needs nobody for that */
    uint32_t edge;    /* of the collective */
    uint32_t num_ends, num_missing;
    char edge_name[EXO_WAIT_EDGE]; /* that it waits at; cut if it is longer */
    uint32_t on_link;              /* in the collective: something passes an emulated link */
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
    exo_stall_wait *cycle; /* beginning with the actor of the lowest number */
    size_t length;         /* 0: nobody is stuck */
    size_t num_stuck;      /* those of the cycle, and who waits for them */
} exo_stall;

/* A long wait of an actor that is not known to be stuck. */
typedef struct exo_slow_wait {
    char actor[96];
    exo_wait_kind kind;
    exo_time waited;
    char edge[EXO_WAIT_EDGE];
    /* the link that something for it is on, "home_0 -> dc (20 Mbit/s)"; else who it waits for; "":
     * not known */
    char on[160];
    bool link;
} exo_slow_wait;

/* Is it a record, of a graph of `count` actors? */
bool exo_wait_record_is_whole(const exo_payload *record, uint32_t count);
/* Looks for a stall in the records (count) of all actors, empty for those that do not wait. stuck
 * (count) is written. NOMEM. The caller releases *out. */
exo_status exo_stall_find(exo_stall *out, const exo_payload *records, uint32_t count, bool *stuck,
                          exo_err *err);
void exo_stall_release(exo_stall *stall);
/* Do both say the same of all those that are stuck? */
bool exo_stall_is_same(const exo_payload *before, const exo_payload *after, const bool *stuck,
                       uint32_t count);

/* "maker_1" */
void exo_stall_name(const exo_graph_spec *spec, uint32_t actor, char *out, size_t size);
/* "maker_0 waits to send on 'maker>trainer:experience' to trainer_1, whose buffer is full, since
 * 12.3 s"; now: the run's time of the records. */
void exo_stall_wait_text(const exo_graph_spec *spec, const exo_stall_wait *wait, exo_time now,
                         char *out, size_t size);
/* The whole as one line, which begins with "the graph stalls: ". Gives FAILED. */
exo_status exo_stall_text(const exo_graph_spec *spec, const exo_stall *stall, exo_time now,
                          exo_err *out);
/* The longest waits of at least `longer_than`, the longest first, at most `room`; gives how many.
 * `spec`: the graph as it is now. */
size_t exo_stall_slow(const exo_graph_spec *spec, const exo_payload *records, uint32_t count,
                      exo_time longer_than, exo_slow_wait *out, size_t room);

#endif
