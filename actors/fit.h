/* What the nodes of one run share in one process: the model, the data, the numbers, tapes, and what is between the nodes.
 *
 * A node finds it by its runtime and the run's name. In a worker the first node of a run makes it from the document that it is started with, and
 * the others wait for that. A trainer whose nodes live in its own process makes it itself, since its model and data may be
 * objects that no document names, and puts it under the run's name before it makes the nodes. The clock, the emulated network and the
 * communicators are in it where all nodes are in this process; else each node has its own communicators.
 *
 * Counted: its users are the nodes and the trainer.
 *
 * The document that a node is started with, in YAML:
 *     {run: NAME, rank: 0, strategy: {name: ...},
 *      nodes: 4, model: {name: ...}, data: {...}, plugins: [...], max_steps: 150, batch_size: 256, minibatch_size: 256, shuffle: true,
 *      autocast: false, seed: 42, validate: true, val_size: 1024, timeout_ms: 600000, device: cpu, engine: NAME, resume_from: PATH, elapsed_ns: 0,
 *      graph: TEXT}, the last one the job's graph with its hosts, links and edges
 * The second part says what the nodes of the run share. It is read where nobody has made that yet: not in the trainer's own process. */
#ifndef EXO_FIT_H
#define EXO_FIT_H

#include <exogym/engine.h>
#include <exogym/trainer.h>

#include "actors/checkpoint.h"
#include "actors/tape_pool.h"
#include "base/pace.h"
#include "base/shared.h"
#include "comm/edge.h"
#include "graph/spec.h"
#include "link/link.h"

/* Read-only to the nodes, but for the pools, the links and the communicators, which are safe from any thread, and a node's own pace. */
typedef struct exo_fit {
    exo_shared shared; /* first                          */
    bool made;         /* guarded by `making` of `shared` */
    uint32_t num_nodes;
    uint64_t max_steps, seed;
    size_t batch_size, minibatch_size;
    bool shuffle, autocast;
    char device[32]; /* what each node opens for itself (exo_device_open) */
    exo_time timeout;

    exo_model *model;
    exo_dataset **train; /* (num_nodes) what each node sees                       */
    bool shared_data;    /* they see one data set, of which each takes its share  */
    exo_dataset *val;
    size_t *val_order; /* (val_count) which samples are evaluated               */
    size_t val_count;
    exo_tape_pool train_tapes, eval_tapes;
    char resume_from[EXO_CHECKPOINT_PATH]; /* folder of a checkpoint; "": none          */

    const exo_graph_spec
        *graph; /* of the job, as it is now; NULL: the real clock, and nothing emulated */
    exo_graph_spec *own_graph;      /* the same, where it was made from a document */
    const exo_engine_class *engine; /* that the job names, or NULL                 */
    exo_links *links;               /* NULL: nothing is emulated                   */
    exo_sim *sim;                   /* NULL: the real clock                        */
    exo_time origin;                /* of the run, on its clock, as far as this process knows */
    exo_pace *paces; /* (num_nodes) NULL: each node makes its own on the real clock */
    exo_comm *comm,
        *side; /* the strategy's; set-up, averages, correlations. NULL: each node makes its own */
} exo_fit;

/* One that nobody finds yet; to be filled in. NOMEM. */
exo_status exo_fit_new(exo_fit **out, uint32_t num_nodes, exo_err *err);
/* Makes it known to the actors of a runtime under a name that no other run of that runtime has: it is made. NOMEM. */
exo_status exo_fit_put(exo_fit *fit, exo_runtime *runtime, const char *run, exo_err *err);
/* That of the run that the document names, held; made, if there is none yet. One whose making failed is made anew by the next. INVAL,
 * NOT_FOUND: the document, or what it names is not here; NOMEM. */
exo_status exo_fit_open(exo_fit **out, exo_runtime *runtime, exo_config *document, exo_err *err);
void exo_fit_drop(exo_fit **fit);
/* The run's name, under which it was put or made. */
const char *exo_fit_name(const exo_fit *fit);

/* The samples of every evaluation: the first `most` of a seeded order of `val`; 0: all. NOMEM. */
exo_status exo_fit_plan_evaluation(exo_fit *fit, size_t most, exo_err *err);
/* The strategy's edge as a communicator has it; false: there is none. */
bool exo_fit_comm_edge(const exo_fit *fit, exo_comm_edge *out);
/* Sets the links, and the codec of `comm`, to those of a graph to which exo_graph_check_job_change lets the run go over. No member of
 * `comm` is in a call. INVAL, UNSUPPORTED: its codec cannot be; NOMEM. */
exo_status exo_fit_change(exo_fit *fit, exo_comm *comm, const exo_graph_spec *next, exo_err *err);

/* "name" or {name: ...}: the options are the mapping, or NULL; INVAL: there is no name, that of `what`. */
exo_status exo_fit_read_named(exo_config *document, const char *key, const char *what,
                              const char **name, exo_config **options, exo_err *err);

/* What a job's graph says of its nodes, which are its only actor; NULL: no graph. */

/* The node's host, among the graph's; of a graph that is there. */
uint32_t exo_fit_host(const exo_graph_spec *graph, uint32_t rank);
/* Its speed; 1 without a graph. */
double exo_fit_speed(const exo_graph_spec *graph, uint32_t rank);
/* What a step costs by declaration on a host of speed 1; -1: it is measured. */
exo_time exo_fit_step_cost(const exo_graph_spec *graph);
/* The strategy's edge; NULL: it sends nothing. */
const exo_edge_spec *exo_fit_edge(const exo_graph_spec *graph);
/* The codec that the edge was given besides what the strategy does itself; NULL: none. */
const char *exo_fit_edge_codec(const exo_graph_spec *graph);

#endif
