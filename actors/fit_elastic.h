/* The members of an elastic run, on the trainer's side: see docs/elastic.md. The trainer leaves out
 * nodes that died or are silent, agrees with the others how far they are, has new nodes made in the
 * place of the lost ones, and takes these in between two segments.
 *
 * Owner: the trainer's thread. Read next: fit_elastic.c, replica_elastic.c (the nodes' side). */
#ifndef EXO_FIT_ELASTIC_H
#define EXO_FIT_ELASTIC_H

#include "actors/fit_members.h"

/* Makes run->elastic for an elastic run whose nodes are set up; else does nothing. UNSUPPORTED,
 * NOMEM. */
exo_status exo_fit_elastic_open(struct run *run, exo_err *err);
/* Ends the search for nodes. Before the cast ends. */
void exo_fit_elastic_close(struct run *run);

/* After a request that failed with PEER_LOST: leaves out the lost nodes, and brings the others into
 * a new epoch, in which they can repeat the request. Waits for nodes if there are too few. Without
 * an elastic run it returns `st`. PEER_LOST: too few nodes are left. */
exo_status exo_fit_recover(struct run *run, exo_status st, exo_err *err);
/* Takes in the nodes that are ready. Between two segments. */
exo_status exo_fit_admit(struct run *run, exo_err *err);
/* The two parts of these, which wait for no quorum: brings the living members into a new epoch;
 * takes in the nodes whose seats are `ready`. */
exo_status exo_fit_settle(struct run *run, exo_err *err);
exo_status exo_fit_take_in(struct run *run, exo_err *err);
/* For nodes that are apart, while they train: has nodes made in the place of absent ones, which take over
 * the state of the first member between two of its requests. True: one has it, and the members may
 * begin an epoch with it (exo_fit_recover_apart). */
bool exo_fit_join_apart(struct run *run);
/* As exo_fit_recover, and takes these nodes in. */
exo_status exo_fit_recover_apart(struct run *run, exo_status st, exo_err *err);
/* Brings the present nodes of a run that ends to one step, which becomes run->step, so that they
 * can write a checkpoint. If they are at several steps, only the first of them stays, or, if they are
 * apart, the one with the server. */
exo_status exo_fit_agree_on_step(struct run *run, exo_err *err);

#endif
