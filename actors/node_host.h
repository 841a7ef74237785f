/* What a node elsewhere needs beside what the trainer of one process gives it: the model, the data and the strategy made anew from their
 * names and options, and collectives that reach other processes. Nodes of one run in one process share the model and the data.
 *
 * The document that a node is started with, YAML:
 *     {run: NAMESPACE, rank: 0, nodes: 4, model: {name: ...}, data: {...}, strategy: {...}, plugins: [...], max_steps: 150,
 *      batch_size: 256, minibatch_size: 256, shuffle: true, autocast: false, seed: 42, val_size: 1024, timeout_ms: 600000,
 *      engine: NAME, resume_from: PATH, graph: TEXT}, the last one the job's graph with its hosts, links and edges
 */
#ifndef EXO_NODE_HOST_H
#define EXO_NODE_HOST_H

#include "actors/train_node.h"

typedef struct exo_node_host exo_node_host;

/* Makes all that the document names, and fills in `spec`, whose pointers the host owns. Called by the node's start. INVAL, NOT_FOUND: the
 * document, or what it names is not here. */
exo_status exo_node_host_open(exo_node_host **out, exo_call_context *call, const char *document, exo_node_spec *spec,
                              exo_err *err);
void exo_node_host_close(exo_node_host **host);
/* Finds the other nodes: all of them have started by now. */
exo_status exo_node_host_meet(exo_node_host *host, exo_err *err);
/* Goes over to the graph of that text: its links and its edge's codec. Between two steps. */
exo_status exo_node_host_change(exo_node_host *host, const char *graph, exo_err *err);
/* Takes a message of a collective, as exo_comm_far_deliver. Any thread. */
exo_status exo_node_host_deliver(exo_node_host *host, exo_payload *payload, uint64_t from, exo_err *err);

#endif
