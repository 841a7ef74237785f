/* Calls of a collective whose members are all on this host and connected by ipc: they move data
 * through memory that they share, and send no messages.
 *
 * Each member has a board: a segment that it alone can write, and that the others map for reading
 * (store/segment.h). A board has, for each other member, a step: a count that says how far the
 * member is in their calls. A member waits for a step by spinning for a moment, and then sleeps.
 * Because a word has one writer, a member can damage no words but its own. Each member also has a
 * bell: a count, in a segment that all may write, on which it sleeps by a futex. It reads the count,
 * says on its board that it sleeps, and then looks at all that it waits for; whoever changes any of
 * that looks at the board, and counts before it wakes. So no wake is lost between a look and the
 * sleep. A member that rings without need only wakes the other.
 *
 * The first call among a set of members exchanges, by messages, where their boards are, and then
 * whether each could map all of them. If one could not, the set stays with messages. So all members
 * of a call go the same way, without asking again. Calls with a codec or on emulated links always
 * go by messages.
 *
 * The ways of a call:
 *   small   up to EXO_NEAR_SMALL bytes: each member copies its data to its board, and sums what is
 *           on the boards of all. One wait.
 *   direct  every member's buffer is in a region (store/region.h), which the others have mapped.
 *           An all_reduce is cut into one part for each member, which sums that part of all buffers
 *           and writes it to all buffers. Other operations read from the buffers of others and
 *           write to their own. Two waits.
 *   staged  pieces of EXO_NEAR_PIECE bytes go over the boards.
 * All sum in rank order, or in that of the call's way, with the same kernels: to the bits of every
 * other engine.
 *
 * A failed call: in an all_reduce a living member may still write to the others' buffers, for
 * example when it was stopped after it had seen all arrive, and goes on later. So before a member
 * returns from a failed direct call it replaces the pages of its buffer (exo_region_disown), unless
 * all others have said that they are done. Only whole pages inside a buffer are written by others;
 * the elements before and after them go over the boards. */
#ifndef EXO_COMM_NEAR_H
#define EXO_COMM_NEAR_H

#include "comm/far_impl.h"

enum {
    EXO_NEAR_MEMBERS = 64,       /* the most members of a call */
    EXO_NEAR_SMALL = 8 * 1024,   /* bytes */
    EXO_NEAR_PIECE = 256 * 1024, /* bytes */
    EXO_NEAR_EDGE = 4096,        /* bytes: of a page */
    EXO_NEAR_DIRECT = 8 * 1024,  /* the least bytes that are reduced in place: two edges */
};

/* Makes the call through shared memory if its members can; *done says so. Else nothing has been
 * touched, and the call goes by messages. The first call of a set waits for the other members'
 * messages. Owner: the thread that makes the call. Errors: those of a collective; f->broken has the
 * reason. */
exo_status exo_near_run(exo_far *far, const exo_collective_args *args, exo_time deadline,
                        bool *done, exo_err *err);
/* Wakes the member's thread, which looks at the state of `far` again. Under the lock of `far`. */
void exo_near_wake(exo_near *near);
/* Completes a look at the member (exo_comm_look_at): the steps of others count like messages, and a
 * member whose step has come waits no more, though its thread may not have run yet. Accepts NULL.
 * Under the lock of `far`. */
void exo_near_look(const exo_near *near, exo_comm_look *look, uint64_t *counts);
/* Unmaps and frees all; accepts NULL. */
void exo_near_free(exo_near *near);

#endif
