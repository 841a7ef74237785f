/* Collectives: operations that all members of a group take part in.
 *
 * A communicator has N members, ranks 0..N-1. Each member has a group handle, which belongs to one
 * thread at a time. All members call the same operations in the same order with equal counts and
 * types; a mismatch is an error for all of them. A subset of the members may call together without
 * the others (exo_group_among). Every call ends: with its result, at its deadline (now + the
 * group's timeout), or with PEER_LOST and the name and cause of the member that died. After an
 * error the communicator is broken, and further calls fail with the same reason. Arguments that are
 * wrong by themselves, such as the root 7 of three members or the mean of integers, are an error of
 * their caller alone, who has not called then: the others wait until it calls, or until their
 * deadline.
 *
 * Reductions sum in rank order, ((x0 + x1) + x2) + .... So the result is the same to the bit on
 * every member, with any number of threads, and on every engine that promises this order
 * (engine.h); the library's engines do. fp32 is rounded at each addition. bf16 and fp16 are summed
 * in fp32, divided in fp32 for a mean, and rounded once, to nearest, ties to even. int32, int8 and
 * int64 wrap, modulo 2^32, 2^8 and 2^64.
 *
 * Counted bytes: the bytes that a member sends in a direct exchange, whichever engine moves the
 * data. In a direct exchange a member sends to each other member the shard which that member
 * reduces, and afterwards its own reduced shard. The sum over the members equals that of the
 * bandwidth-optimal ring, the figure of the literature's closed forms. With n the bytes of the
 * whole buffer it is 2 (N - 1) n for all_reduce, (N - 1) n for reduce_scatter, all_gather,
 * broadcast and all_to_all, 2 n for swap, N n for shift, and 0 for barrier.
 *
 * docs/collectives.md explains the operations; engine.h is the contract of the engines that move
 * the data.
 */
#ifndef EXOGYM_COMM_H
#define EXOGYM_COMM_H

#include <exogym/clock.h>
#include <exogym/device.h>
#include <exogym/status.h>
#include <exogym/traffic.h>

EXO_DECLS_BEGIN

/* A communicator, shared by its members; counted references. */
typedef struct exo_comm exo_comm;
typedef struct exo_group exo_group; /* the handle of one member */

/* How the elements of all members are combined. */
typedef enum exo_reduce {
    EXO_SUM,
    EXO_MEAN, /* the sum divided by N. Integers: UNSUPPORTED */
} exo_reduce;

/* Makes a communicator among `size` threads of this process (1 to 65,536). `clock` must outlive it.
 * The caller drops it. */
EXO_API exo_status exo_comm_local(exo_comm **out, uint32_t size, const exo_clock *clock,
                                  exo_err *err);

/* exo_comm_hold counts one more reference and returns `comm`. exo_comm_drop gives one back and sets
 * *comm to NULL; it accepts NULL in it. Any thread. */
EXO_API exo_comm *exo_comm_hold(exo_comm *comm);
EXO_API void exo_comm_drop(exo_comm **comm);

/* Takes the place of `rank`. The caller closes the group. `name` is copied and stands in error
 * texts. EXISTS: the place is taken. */
EXO_API exo_status exo_group_open(exo_group **out, exo_comm *comm, uint32_t rank, const char *name,
                                  exo_err *err);
/* Leaves the communicator, frees the handle and sets *group to NULL; accepts NULL in it. Members
 * that still wait for this one get PEER_LOST. Requests under way are cancelled and freed. On the
 * thread of the group, outside of its calls. */
EXO_API void exo_group_close(exo_group **group);
/* Declares that member `rank` died of `cause`; ends every call in progress. Any thread. */
EXO_API void exo_comm_fail(exo_comm *comm, uint32_t rank, const char *cause);

/* Makes a group of a subset of a group's members. `ranks` (size) are ascending and contain this
 * member's rank; in the new group a member's rank is its index in `ranks`. Making it takes no
 * message and no waiting: each of these members makes it by itself, with the same list. Members
 * outside the subset may make other calls meanwhile. Bytes that it sends count in both groups.
 *
 * A member of several groups makes its calls one after the other, in the order of their begins, also
 * requests in the background. So all members need one order of the groups, or they wait for each
 * other: among nodes in one process such calls may still pass, on workers they stall. A message in
 * one direction is a broadcast among two members; where each member of a ring sends to the next one,
 * it is exo_shift.
 *
 * The new group belongs to the thread of `parent`, begins with the timeout of `parent`, and is closed
 * before `parent`; closing it does not leave the communicator. Errors: INVAL, NOMEM. Blocks: never. */
EXO_API exo_status exo_group_among(exo_group **out, exo_group *parent, const uint32_t *ranks,
                                   uint32_t size, exo_err *err);

/* This member's rank; the number of members. Any thread. */
EXO_API uint32_t exo_group_rank(const exo_group *group);
EXO_API uint32_t exo_group_size(const exo_group *group);

/* Sets how long a call may wait for the other members; the default is 60 s. */
EXO_API void exo_group_set_timeout(exo_group *group, exo_time timeout);
/* Names the device on which this member has its arrays, before its first call. Only an engine that moves
 * data from GPU to GPU needs it (`nccl`), and only if data in host memory comes first. The device
 * outlives the member's calls. UNSUPPORTED: the engine does not reach it. */
EXO_API exo_status exo_group_set_device(exo_group *group, exo_device *device, exo_err *err);

/* All collectives: the array of a member may lie on any device. If the engine cannot reach the
 * device, the data is copied to the host and back.
 *
 * Reduces data of all members, in place: all members get the result. Types: fp32, bf16, fp16,
 * int32, int8, int64, of which the engine may lack some (UNSUPPORTED). */
EXO_API exo_status exo_all_reduce(exo_group *group, exo_array data, exo_reduce op, exo_err *err);
/* The shard of `rank` in a buffer of `count` elements. The lengths of shards differ by at most one;
 * longer ones come first. */
EXO_API void exo_shard(size_t count, uint32_t size, uint32_t rank, size_t *first, size_t *length);
/* Reduces data, in place: afterwards this member's shard holds the result, and the rest is
 * undefined. Types as exo_all_reduce. */
EXO_API exo_status exo_reduce_scatter(exo_group *group, exo_array data, exo_reduce op,
                                      exo_err *err);
/* Gathers data, in place: each member brings its own shard; afterwards all members hold all shards.
 * Any type. */
EXO_API exo_status exo_all_gather(exo_group *group, exo_array data, exo_err *err);
/* Copies the data of `root` to all members. Any type. */
EXO_API exo_status exo_broadcast(exo_group *group, exo_array data, uint32_t root, exo_err *err);
/* Exchanges blocks, in place. The data is cut into one block for each member, all of the same length;
 * block j of member i becomes block i of member j. Any type. INVAL: the count is no multiple of the
 * number of members. */
EXO_API exo_status exo_all_to_all(exo_group *group, exo_array data, exo_err *err);
/* Swaps data with the member `partner` of the group, which calls it with this member's rank: each
 * gets what the other had. The other members of the group take no part and may make other calls.
 * Any type. INVAL: the partner is this member, or is not in the group. */
EXO_API exo_status exo_swap(exo_group *group, exo_array data, uint32_t partner, exo_err *err);
/* Shifts data around the ring of the members, in place: that of member r becomes that of member
 * (r + by) mod N. All members send at the same time, and a call ends when the member's data has left
 * and that of its source has come: it may end before others have called. `by` is equal on all members;
 * where members exchange messages, one may learn only by its deadline that others have another `by`.
 * If `by` is a multiple of N, nothing moves. Any type. UNSUPPORTED: the engine has no shift. */
EXO_API exo_status exo_shift(exo_group *group, exo_array data, uint32_t by, exo_err *err);
/* Returns when all members have called it. Counts no bytes. */
EXO_API exo_status exo_barrier(exo_group *group, exo_err *err);
/* Gives back the memory of devices that the engine holds for the calls of this group, for a time in which
 * it makes none and others need the memory. Its next call takes it again. All members call it at the same
 * place among their calls, with no request under way. Engines that hold no such memory return OK at
 * once. Errors: also INVAL (a request is under way) and UNSUPPORTED (the engine cannot, and the group
 * goes on). */
EXO_API exo_status exo_group_suspend(exo_group *group, exo_err *err);

/* --- Collectives in the background ------------------------------------------------------------
 *
 * A call in two halves: begin returns a request at once. A request is ended by exo_request_wait, by
 * exo_request_test when it says done, or by exo_request_cancel. The calls above are a begin and a
 * wait.
 *
 * Several requests may be under way, and may be waited for in any order. Requests match by the
 * order in which members *begin* them: the k-th call that a member begins, of either kind, meets
 * the k-th call of each other member. Whether data moves before a member waits depends on the
 * engine (EXO_ENGINE_PROGRESS). Over emulated links the time of a call runs from its begin; the
 * calls of one member follow one after the other.
 *
 * Until its request has ended, nobody reads or writes the elements of a call. A request belongs to
 * the thread of its group. Its deadline is the time of begin + the group's timeout, so no wait is
 * without one. A death, a deadline or a cancelled request ends all requests whose data is not
 * complete, with the cause.
 */
typedef struct exo_request exo_request; /* a call under way */

/* Begins exo_all_reduce. All begin functions: after an error *out is NULL; the errors are NOMEM and
 * those of the call, which may come at once. Blocks: not for other members. */
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
/* Begins exo_all_to_all. */
EXO_API exo_status exo_comm_begin_all_to_all(exo_request **out, exo_group *group, exo_array data,
                                             exo_err *err);
/* Begins exo_swap. */
EXO_API exo_status exo_comm_begin_swap(exo_request **out, exo_group *group, exo_array data,
                                       uint32_t partner, exo_err *err);
/* Begins exo_shift. */
EXO_API exo_status exo_comm_begin_shift(exo_request **out, exo_group *group, exo_array data,
                                        uint32_t by, exo_err *err);
/* Begins exo_barrier. */
EXO_API exo_status exo_comm_begin_barrier(exo_request **out, exo_group *group, exo_err *err);
/* Says in *done whether the request has ended, without waiting for other members. If it has, or
 * after an error, the request is freed and *request is NULL. Errors: those of exo_request_wait. */
EXO_API exo_status exo_request_test(exo_request **request, bool *done, exo_err *err);
/* Waits until the request has ended, frees it and sets *request to NULL; with NULL in it returns OK
 * at once. Errors: those of the call. */
EXO_API exo_status exo_request_wait(exo_request **request, exo_err *err);
/* Ends the request, frees it and sets *request to NULL; accepts NULL in it. A request that is not
 * complete breaks the communicator: this member's other requests and the next call of every member
 * fail with CANCELLED and the name of this member. Afterwards the library does not touch the
 * request's elements, whose values are undefined. Blocks: only while data is being moved. */
EXO_API void exo_request_cancel(exo_request **request);

/* --- Memory in common -------------------------------------------------------------------------
 *
 * What every member of a round gets, such as the messages of all and their mean, is the same on all
 * of them. Members in one process can have it once. A round is
 *
 *     exo_commons_take(c, group)            before the member's own part is written
 *     write the own part of exo_commons_parts(c); exo_all_gather(group, exo_commons_parts(c))
 *     exo_commons_compute(c, to, function)  of all parts, which nobody writes any more
 *     exo_commons_leave(c)
 *
 * The parts may be gathered in several pieces, and in the background. The members of a group take in
 * the same order, as with calls. What they get, send and count is as with memory of their own. Members
 * of the engine `local` share memory of the CPU; all others have memory of their own.
 *
 * An exo_commons belongs to the thread of the group. */
typedef struct exo_commons exo_commons; /* a member's handle */

/* Makes a member's handle of rounds with `count` elements of parts and `results` fp32 elements of a
 * result, and takes memory for one round. group: NULL for a member alone. The caller frees it. Errors:
 * NOMEM, or the device's. Blocks: never. */
EXO_API exo_status exo_commons_new(exo_commons **out, const exo_group *group, exo_device *device,
                                   exo_dtype dtype, size_t count, size_t results, exo_err *err);
/* Leaves the round, if any, frees the handle and sets *commons to NULL; accepts NULL in it. */
EXO_API void exo_commons_free(exo_commons **commons);
/* Begins a round. The parts have any values. Errors: INVAL (the others' round has another shape),
 * NOMEM. Blocks: never. */
EXO_API exo_status exo_commons_take(exo_commons *commons, exo_group *group, exo_err *err);
/* The parts of all members, from take to leave; the handle owns them. Until the parts are gathered a
 * member reads and writes its own shard only, and afterwards it only reads. */
EXO_API exo_array exo_commons_parts(const exo_commons *commons);
/* Computes the result from the parts, into `out`. It depends on nothing else, and waits for nobody.
 * Errors: any. */
typedef exo_status exo_commons_function(void *context, exo_array out, exo_err *err);
/* Gives this member the result in `to`, of as many fp32 elements: one of the members that share the
 * memory calls `function`, and the others copy what it computed, or fail like it. After the gather.
 * Errors: those of the function. Blocks: while another member computes. */
EXO_API exo_status exo_commons_compute(exo_commons *commons, exo_array to,
                                       exo_commons_function *function, void *context, exo_err *err);
/* Ends the member's round; does nothing without one. */
EXO_API void exo_commons_leave(exo_commons *commons);

/* The figures of one member since it opened its group. */
typedef struct exo_comm_stats {
    uint64_t calls;      /* collectives, those of exo_group_among included */
    uint64_t bytes_sent; /* as counted above, before a codec */
    exo_time waited;     /* waiting for other members in calls, on the communicator's clock */
} exo_comm_stats;

/* The figures of this member. Any thread, also while a call runs. */
EXO_API exo_comm_stats exo_group_stats(const exo_group *group);
/* The member's traffic, as in its edge's row of the ledger: items are calls. */
EXO_API exo_traffic exo_group_traffic(const exo_group *group);

EXO_DECLS_END

#endif
