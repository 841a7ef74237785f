/* Collectives: operations that every member of a group takes part in.
 *
 * A communicator has N members, ranks 0..N-1. Each member has a group handle, which belongs to one
 * thread at a time. All members call the same operations in the same order with equal counts and
 * types; a mismatch is an error for all of them. Some of them may call together without the others
 * (exo_group_among). Every call ends: with its result, at its deadline (now + the group's timeout),
 * or with PEER_LOST and the name and cause of the member that died. After an error the communicator
 * is broken, and further calls fail with the same reason.
 *
 * Reductions sum in rank order, ((x0 + x1) + x2) + ..., so results are the same to the bit on every
 * member, on every engine that promises this order (engine.h; those of the library do) and with any
 * number of threads. fp32 is rounded at each addition; bf16 and fp16 are summed in fp32, divided in
 * fp32 for a mean, and rounded once, to nearest, ties to even; int32, int8 and int64 wrap, modulo
 * 2^32, 2^8 and 2^64.
 *
 * Counted bytes: what a member sends in a direct exchange, in which each other member gets the part
 * of its shard to reduce, and then each member's reduced shard: whichever engine moves the data.
 * Summed over the members it is what the bandwidth-optimal ring sends, the figure of the
 * literature's closed forms: all_reduce 2 (N - 1) n, reduce_scatter and all_gather (N - 1) n of the
 * whole buffer, broadcast (N - 1) n; barrier 0; n in bytes.
 */
#ifndef EXOGYM_COMM_H
#define EXOGYM_COMM_H

#include <exogym/clock.h>
#include <exogym/device.h>
#include <exogym/status.h>
#include <exogym/traffic.h>

EXO_DECLS_BEGIN

/* the communicator, shared by its members; counted references */
typedef struct exo_comm exo_comm;
typedef struct exo_group exo_group; /* one member's handle */

/* How elements of all members become one. */
typedef enum exo_reduce {
    EXO_SUM,
    EXO_MEAN, /* the sum divided by N. Integers: UNSUPPORTED */
} exo_reduce;

/* A communicator among `size` threads of this process (1 to 65,536). `clock` must outlive it. */
EXO_API exo_status exo_comm_local(exo_comm **out, uint32_t size, const exo_clock *clock,
                                  exo_err *err);

/* Counts one more reference and returns `comm`; gives one back and sets *comm to NULL, where it
 * accepts NULL. Any thread. */
EXO_API exo_comm *exo_comm_hold(exo_comm *comm);
EXO_API void exo_comm_drop(exo_comm **comm);

/* Takes the place of `rank`; the caller closes the group, which is leaving: members that still wait
 * for this one then get PEER_LOST. `name` (copied) is how errors call it. EXISTS if the place is
 * taken. */
EXO_API exo_status exo_group_open(exo_group **out, exo_comm *comm, uint32_t rank, const char *name,
                                  exo_err *err);
/* Leaves, frees the handle and sets *group to NULL; accepts NULL in it. Its thread, outside of
 * calls. Requests under way are cancelled, and freed. */
EXO_API void exo_group_close(exo_group **group);
/* Says that member `rank` died and why; ends every call in progress. Any thread. */
EXO_API void exo_comm_fail(exo_comm *comm, uint32_t rank, const char *cause);

/* A group of some of a group's members: `ranks` (size), ascending, this one's among them; in the
 * new group their ranks are their places in this list. It takes no message and no waiting: each of
 * these members makes it by itself, with the same list, and calls together with them; others may
 * meanwhile do so elsewhere. All members of a call must get to it: where one is in several groups,
 * they are called in one order by all. What it sends is counted by both groups. It belongs to the
 * thread of `parent`, has its timeout of now, and is closed before it; to close it is not to leave.
 * Errors: INVAL, NOMEM. Blocks: never. */
EXO_API exo_status exo_group_among(exo_group **out, exo_group *parent, const uint32_t *ranks,
                                   uint32_t size, exo_err *err);

/* This member's rank, and how many members there are. Any thread. */
EXO_API uint32_t exo_group_rank(const exo_group *group);
EXO_API uint32_t exo_group_size(const exo_group *group);

/* How long a call may wait for the others; 60 s unless set. */
EXO_API void exo_group_set_timeout(exo_group *group, exo_time timeout);

/* The arrays of a call lie on any device, each member's on its own; those that the host cannot
 * reach are copied to it and back.
 *
 * data, in place, of all members. F32, I32. */
EXO_API exo_status exo_all_reduce(exo_group *group, exo_array data, exo_reduce op, exo_err *err);
/* The elements that `rank` owns of a buffer of `count`: shards differ by at most one element,
 * longer ones first. */
EXO_API void exo_shard(size_t count, uint32_t size, uint32_t rank, size_t *first, size_t *length);
/* data, in place: afterwards this member's shard holds the reduction, the rest is undefined. Types
 * as above. */
EXO_API exo_status exo_reduce_scatter(exo_group *group, exo_array data, exo_reduce op,
                                      exo_err *err);
/* data, in place: each member brings its shard, afterwards all hold all shards. Any type. */
EXO_API exo_status exo_all_gather(exo_group *group, exo_array data, exo_err *err);
/* data of `root` to all. Any type. */
EXO_API exo_status exo_broadcast(exo_group *group, exo_array data, uint32_t root, exo_err *err);
/* Returns when all members have called it. Nothing is counted. */
EXO_API exo_status exo_barrier(exo_group *group, exo_err *err);

/* --- Collectives while the caller goes on
 * ---------------------------------------------------------------------------------------------
 *
 * A call in two halves: begin gives a request and returns at once, and the request is ended by
 * exo_request_wait, by exo_request_test when it says done, or by exo_request_cancel. The calls
 * above are a begin and a wait.
 *
 * Several requests may be under way, and be waited for in any order. The order in which members
 * *begin* is the match: the k-th call that a member begins, of either kind, meets the k-th of each
 * other one. Whether data moves before somebody waits is the engine's business
 * (EXO_ENGINE_PROGRESS); over emulated links the time passes from begin on, one call of a member
 * after the other.
 *
 * The elements belong to the request until it has ended: nobody reads or writes them. A request
 * belongs to the thread of its group. A death, a deadline or a cancelled request ends all requests
 * whose data is not complete yet with the cause. The deadline is that of begin + the group's
 * timeout, so no wait is without one.
 */
typedef struct exo_request exo_request; /* a call under way */

/* Begins exo_all_reduce. As all of these: errors are those of the call, which may come at once, and
 * NOMEM; *out is NULL then. Blocks: not for other members. */
EXO_API exo_status exo_comm_begin_all_reduce(exo_request **out, exo_group *group, exo_array data,
                                             exo_reduce op, exo_err *err);
/* Begins exo_reduce_scatter. */
EXO_API exo_status exo_comm_begin_reduce_scatter(exo_request **out, exo_group *group,
                                                 exo_array data, exo_reduce op, exo_err *err);
/* Begins exo_all_gather. */
EXO_API exo_status exo_comm_begin_all_gather(exo_request **out, exo_group *group, exo_array data,
                                             exo_err *err);
/* Begins exo_broadcast. */
EXO_API exo_status exo_comm_begin_broadcast(exo_request **out, exo_group *group, exo_array data,
                                            uint32_t root, exo_err *err);
/* Begins exo_barrier. */
EXO_API exo_status exo_comm_begin_barrier(exo_request **out, exo_group *group, exo_err *err);
/* Whether it is over, without waiting for others: if so, or after an error, the request is freed
 * and *request is NULL. Errors: as wait. */
EXO_API exo_status exo_request_test(exo_request **request, bool *done, exo_err *err);
/* Waits until it is over, frees it and sets *request to NULL; NULL in it is over. Errors: those of
 * the call. */
EXO_API exo_status exo_request_wait(exo_request **request, exo_err *err);
/* Ends it, frees it and sets *request to NULL; accepts NULL in it. If it is not over, the
 * communicator is broken: this member's other requests and everybody's next call end with CANCELLED
 * and the name of this member. Afterwards nobody touches its elements, whose values are undefined.
 * Blocks: no longer than data is just being moved. */
EXO_API void exo_request_cancel(exo_request **request);

/* What this member has done since it was opened. */
typedef struct exo_comm_stats {
    uint64_t calls;      /* of collectives, those of exo_group_among included */
    uint64_t bytes_sent; /* as counted above, before a codec */
    exo_time waited;     /* in calls, waiting for others, on the communicator's clock */
} exo_comm_stats;

/* Any thread, also while a call runs. */
EXO_API exo_comm_stats exo_group_stats(const exo_group *group);
/* The same in full, as its edge's row of the ledger has it: items are calls. */
EXO_API exo_traffic exo_group_traffic(const exo_group *group);

EXO_DECLS_END

#endif
