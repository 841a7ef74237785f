/* A communicator as an edge of a graph: the codec of its data, and the links of its messages.
 *
 * On an edge with links a call takes as long as its messages. These are the messages of the direct
 * exchange (far.c), whichever engine moves the data. On the real clock the members wait until then;
 * on the virtual clock they are woken then. */
#ifndef EXO_COMM_EDGE_H
#define EXO_COMM_EDGE_H

#include <stdbool.h>

#include <exogym/codec.h>
#include <exogym/comm.h>

#include "base/sim.h"
#include "link/link.h"

typedef struct exo_comm_edge {
    const char *name;      /* a literal, or valid as long as the communicator */
    exo_links *links;      /* NULL: messages take no time */
    const uint32_t *hosts; /* (size) host of each member; copied; NULL without links */
    uint32_t flow;         /* distinguishes its connections from those of other edges */
    exo_sim *sim;          /* NULL: the real clock */
    exo_time origin;       /* start of the run, on the clock */
    /* for fp32 data that is reduced or gathered; must be stateless and have a fixed size; NULL:
     * raw */
    const char *codec;
    const char *way; /* of messages (ways.h); NULL: direct */
    bool any_bits;   /* the choice `auto` may sum in another order than that of ranks */
    /* (size, size) what `way` follows in place of `links`; valid as long as the communicator; NULL:
     * nothing was measured */
    const struct exo_link_figure *figures;
} exo_comm_edge;

/* Makes a communicator among threads of this process (exo_comm_local) on an edge. Errors: those of
 * exo_comm_local; INVAL: the codec is wrong, has state, or has no fixed size; or the way is none. */
exo_status exo_comm_local_on(exo_comm **out, uint32_t size, const exo_clock *clock,
                             const exo_comm_edge *edge, exo_err *err);
/* Sets the start of the run, on the real clock, of a communicator that was made before it. Before
 * the first call. Does nothing with another engine. */
void exo_comm_local_begin(exo_comm *comm, exo_time origin);

/* Sets the ways of a new communicator of `size` from its edge. Errors: INVAL, NOMEM; UNSUPPORTED:
 * there are figures of too many members. */
exo_status exo_comm_set_ways(exo_comm *comm, uint32_t size, const exo_comm_edge *edge,
                             exo_err *err);
/* Lets the ways of a communicator follow measured links (exo_comm_ways_measured), on each member
 * before its first call; without ways it does nothing. */
exo_status exo_comm_follow(exo_comm *comm, const struct exo_link_figure *figures, exo_err *err);
/* Changes the codec, while no member is in a call; NULL: raw. After an error the codec is the same
 * as before. Errors: INVAL as above; UNSUPPORTED: the engine has no codecs; NOMEM. */
exo_status exo_comm_recode(exo_comm *comm, const char *codec, exo_err *err);

/* The number of codecs that the communicator's groups have made: one for each opened group, and one
 * for each after a change; calls make none. Any thread. */
uint64_t exo_comm_codecs_made(const exo_comm *comm);

/* Begins an all_reduce without data, which takes the time of `count` elements and is counted like
 * it. For communicators among threads of one process. Otherwise as exo_comm_begin_all_reduce;
 * UNSUPPORTED: the engine has no rehearsals. */
exo_status exo_comm_begin_rehearsal(exo_request **out, exo_group *group, size_t count,
                                    exo_dtype dtype, exo_err *err);

/* From now on each call of the communicator is a rehearsal: it takes the time of its messages, and the
 * data stays as it is. Before the first call. The calls fail with UNSUPPORTED if the engine has no
 * rehearsals. */
void exo_comm_rehearse(exo_comm *comm);

/* The wait of a member in its present call. */
typedef struct exo_comm_look {
    /* it needs a message of each missing member, and none of these has come */
    bool waits;
    /* members that it waits for */
    uint32_t num_missing;
    /* the members exchange messages, which are counted */
    bool counts;
    /* all others are missing, because this process does not know who has come: the counts say it */
    bool unsure;
    /* its own message, or one for it, is on one of the edge's links */
    bool passing;
    bool inside;           /* it is in a call; then the members below are set */
    const char *operation; /* such as "all_reduce" */
    uint64_t number;       /* number of the member's calls, from 1 */
    exo_time since;        /* start of the call, on the communicator's clock */
} exo_comm_look;

/* Looks at member `rank`. missing (size of the communicator) gets the ranks of the members that it
 * waits for; between processes at most one at a time, unless it is unsure. counts (2 * size) then gets
 * the number of messages sent to each member, and after these the number received from each; steps in
 * memory that members share count like messages. A member
 * that is unsure counts the calls that it has begun instead, and after these the calls of others that
 * do not end its wait: it waits for those that have begun no more. Any thread. */
void exo_comm_look_at(exo_comm *comm, uint32_t rank, exo_comm_look *look, uint32_t *missing,
                      uint64_t *counts);

/* Records a member's exchange beside the run, as in an evaluation: it uses the edge's connections
 * and leaves them warm. Call it for member `rank` after an all_reduce of `count` fp32 elements.
 * Without links it does nothing. */
void exo_comm_warm(exo_comm *comm, uint32_t rank, size_t count);

#endif
