/* The actor class train_node: an actor trains one replica (replica.h), together with the other
 * nodes of its run, wherever they are.
 *
 * Its blocking lane "compute" runs the computing methods one after the other. The trainer sends the
 * same requests to all nodes in the same order, so that their collectives match. Between two
 * requests a node is idle and its state is complete; the trainer then evaluates, saves and stops.
 * Its light lane "mail" is always served.
 *
 * The methods; their arguments and replies are messages of proto/train.proto
 * (exo_train_node_protocol):
 *     setup     distributes node 0's parameters, starts the strategy, loads the checkpoint, if any
 *     train     takes steps until a given one
 *     average   computes the mean of all copies into a second copy, on every node
 *     evaluate  loss and accuracy of the node's own copy or of the average
 *     result    the values of the average as fp32, a unit at a time, then the buffers
 *     correlate mean Pearson correlation between the copies; then `result` needs a new `average`
 *     save      writes one file of a checkpoint; the reply has its SHA-256
 *     change    changes the links and the codec to those of another graph
 *     deliver   takes a message of a collective, from a node in another process (mail)
 *     abandon   ends the node's collectives, because the run is over; has the reason (mail)
 *     waits     the current call of a collective, and its missing members (node_look.h; mail)
 *
 * and of nodes of an elastic run among processes (docs/elastic.md):
 *     report    the node's steps, and whether the next one is in doubt
 *     regroup   begins an epoch with other members, and ends the doubt
 *     give      its state as bytes, with their SHA-256
 *     join      takes over the state of another node, instead of setup
 *
 * If the strategy awaits units (exo_strategy_awaits_units), evaluate and save are collectives, and
 * result is one if it keeps units: then all nodes get the request.
 *
 * A wrong or premature message fails with INVAL and changes nothing.
 *
 * Read next: train_node.c, fit_impl.h (the trainer's side).
 */
#ifndef EXO_TRAIN_NODE_H
#define EXO_TRAIN_NODE_H

#include <exogym/actor.h>

#include "protocol/protocol.h"

/* The arguments of the methods. */
extern const exo_protocol exo_train_node_protocol;
/* The class; an actor is started with the document that fit.h describes, in the trainer's process
 * and in workers. */
extern const exo_actor_class exo_train_node_class;

#endif
