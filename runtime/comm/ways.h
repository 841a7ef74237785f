/* The ways of a collective among processes and hosts: which messages a call consists of.
 *
 * A way is a list of moves, which every member computes for itself. A move is a message of one
 * member to another: some elements, which the receiver takes or adds to its own. From the same list
 * come what `net` sends (far_moves.c), what `local` adds up (local_call.c), the time on links
 * (timing.c) and the bytes in the ledger (counted.c), so all of them agree.
 *
 *   direct        each member sends to each other one. It has no list of moves, except for the
 *                 choice: the engines do it themselves
 *   tree          few steps: all_gather and barrier in log2 N steps of doubling, broadcast down a
 *                 binomial tree; a reduction gathers all data and sums it everywhere
 *   ring          N - 1 steps to the next member around a ring, twice for an all_reduce
 *   halving       an all_reduce by recursive halving and doubling
 *   hierarchical  an all_reduce within islands of members with fast links, among the first members
 *                 of these, and back
 *
 * direct and tree sum in rank order, ((x0 + x1) + x2) + .... ring, halving and hierarchical do not:
 * their sums of fp32 have other bits, which are the same on all members and in `local` and `net`.
 * An operation that a way does not have goes directly. docs/collectives.md has the closed forms of
 * bytes and steps. */
#ifndef EXO_COMM_WAYS_H
#define EXO_COMM_WAYS_H

#include <exogym/engine.h>

#include "link/link.h"

enum {
    EXO_WAYS_MEMBERS = 64 /* the most members of a call that does not go directly */
};

typedef enum exo_way {
    EXO_WAY_DIRECT,
    EXO_WAY_TREE,
    EXO_WAY_RING,
    EXO_WAY_HALVING,
    EXO_WAY_HIERARCHICAL,
    EXO_WAY_AUTO, /* the one of the least time, by the estimate, with equal bits if asked for */
} exo_way;

typedef struct exo_comm_move {
    /* the moves of a member in one step pass at the same time, after those of the step before */
    uint32_t step;
    uint32_t number;      /* among all moves of the call */
    uint32_t from, to;    /* places */
    size_t first, length; /* elements; of a tree's reduction in the gathered data, (size, count) */
    bool adds;            /* the receiver adds them to its own, else takes them */
} exo_comm_move;

/* What was measured of the way from one member to another. */
typedef struct exo_link_figure {
    double rate;    /* bit/s, of one large message */
    double latency; /* s, of a small message */
} exo_link_figure;

/* The ways of a communicator. It does not change after its first call. */
typedef struct exo_comm_ways {
    exo_way way;
    bool equal_bits;
    uint32_t size;
    double cost; /* of a message, in s of a processor */
    /* (size, size) from, to; declared or measured; NULL: a local network */
    exo_link_speed *speeds;
    uint32_t *order;   /* (size) the ranks around a ring, from 0 on */
    uint32_t *islands; /* (size) the island of each rank */
} exo_comm_ways;

/* The way of a name. INVAL: there is none; the text has all of them. NULL: direct. */
exo_status exo_way_parse(const char *name, exo_way *out, exo_err *err);
const char *exo_way_name(exo_way way);

/* Makes the ways of a communicator. links, hosts (size): what is declared of the links of the
 * members, which decides the order of rings, the islands and the choice; links NULL: all alike, as
 * in a local network. equal_bits: the choice sums in rank order. Errors: NOMEM. */
exo_status exo_comm_ways_new(exo_comm_ways **out, exo_way way, bool equal_bits, uint32_t size,
                             exo_links *links, const uint32_t *hosts, exo_err *err);
void exo_comm_ways_free(exo_comm_ways **ways);
/* Replaces what is declared by what was measured: figures (size, size), from one member to another;
 * those from a member to itself are not read. A member's rates up and down are those of its best
 * links. The same figures give the same order and islands on every member. Before the first call.
 * Errors: NOMEM; UNSUPPORTED: more than EXO_WAYS_MEMBERS members. */
exo_status exo_comm_ways_measured(exo_comm_ways *ways, const exo_link_figure *figures,
                                  exo_err *err);
/* The way of a call, whose other arguments are set. NULL: direct. */
exo_way exo_comm_ways_choose(const exo_comm_ways *ways, const exo_collective_args *args);
/* The estimated time of a call by a way: see ways.c. */
double exo_comm_ways_estimate(const exo_comm_ways *ways, const exo_collective_args *args,
                              exo_way way);
/* Whether the call's reduction is not in rank order. */
bool exo_comm_ways_reorders(const exo_collective_args *args);
/* Calls visit for each move of the call, in the order of steps. args->ways decides the order of a
 * ring and the islands. Allocates nothing. ways_moves.c. */
typedef void exo_comm_visit(void *context, const exo_comm_move *move);
void exo_comm_moves(const exo_collective_args *args, exo_comm_visit *visit, void *context);

#endif
