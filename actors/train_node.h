/* TrainNode: the actor that trains one replica (replica.h), together with the other nodes of its run, which may be anywhere.
 *
 * Its blocking lane "compute" runs what computes, one after the other; the trainer (trainer.c) tells all nodes what to do in the same order,
 * so that their collectives meet. Between two calls a node is idle and its state is whole: there the trainer evaluates, saves and stops. Its
 * light lane "mail" is always served.
 *
 * Methods, whose arguments and replies are messages of proto/train.proto (exo_train_node_protocol):
 *     setup     agree on node 0's numbers, start the strategy, go on from a checkpoint if there is one
 *     train     steps until a given one
 *     average   the mean of all copies into a second one, on every node
 *     evaluate  loss and accuracy of the own copy or of the average
 *     result    the average's numbers, a unit at a time, then the buffers, fp32
 *     correlate mean Pearson correlation between the copies; `average` anew before the next `result`
 *     save      one file of a checkpoint, and its SHA-256
 *     change    goes over to another graph
 *     deliver   a message of a collective, from a node in another process (mail)
 *     abandon   the run is over for a reason; ends its collectives (mail)
 *     waits     which call of a collective it is in, and who is missing there (node_look.h; mail)
 *
 * A strategy that awaits units (exo_strategy_awaits_units) makes collectives of evaluate, save and, if it keeps units, result: all nodes are asked.
 *
 * A message that is wrong, or comes before its time, gets INVAL, and changes nothing.
 */
#ifndef EXO_TRAIN_NODE_H
#define EXO_TRAIN_NODE_H

#include <exogym/actor.h>

#include "protocol/protocol.h"

/* What the methods take. */
extern const exo_protocol exo_train_node_protocol;
/* Started with the document that fit.h describes, in the trainer's process and in workers. */
extern const exo_actor_class exo_train_node_class;

#endif
