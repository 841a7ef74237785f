/* The record that the nodes of one run share in one process: the model, the data, the settings,
 * tapes, and the network between the nodes.
 *
 * A node finds the record by its runtime and the run's name. In a worker the first node of a run
 * makes it from the document that the node is started with; the others wait until it is made. If
 * the nodes live in the trainer's process, the trainer makes it, because its model and data may be
 * objects that no document can name, and puts it under the run's name before it makes the nodes. If
 * all nodes are in this process, the record also has the clock, the emulated network and the
 * communicators; else each node has its own communicators.
 *
 * References are counted: the nodes and the trainer hold it. Read next: replica.h, a node's part.
 *
 * The document that a node is started with, in YAML:
 *     {run: NAME, rank: 0, strategy: {name: ...},
 *      nodes: 4, model: {name: ...}, data: {...}, plugins: [...], max_steps: 150,
 *      batch_size: 256, minibatch_size: 256, shuffle: true, autocast: none, seed: 42,
 *      validate: true, val_size: 1024, timeout_ms: 600000, device: cpu, engine: NAME,
 *      engine_suspends: true, collectives: WAY, any_bits: false, measure_links: false, links: TEXT,
 *      resume_from: PATH, elapsed_ns: 0, graph: TEXT, elastic: false, verify: false, tensor: 1,
 *      sequence: false, context: 1, pipeline: 1, position: 0, samples: 1024, data_digest: TEXT,
 *      val_samples: 256, val_digest: TEXT, save_to: PATH}
 * `graph` is the job's graph with its hosts, links and edges. With `measure_links` the nodes measure
 * their links when they are set up; `links` has measured ones as JSON (fit_links.h). `position` is
 * the node's first batch of its data, where that is not its step (elastic runs). The host is checked
 * for the entries from `samples` on (fit_check.h). The entries from `nodes` on describe the record.
 * Only the node that makes it reads them, so they are not needed in the trainer's own process. */
#ifndef EXO_FIT_H
#define EXO_FIT_H

#include <exogym/engine.h>
#include <exogym/parallel.h>
#include <exogym/trainer.h>

#include "actors/checkpoint.h"
#include "actors/outages.h"
#include "actors/tape_pool.h"
#include "base/pace.h"
#include "base/shared.h"
#include "comm/edge.h"
#include "comm/ways.h"
#include "graph/spec.h"
#include "link/link.h"

/* The nodes only read it, except for the pools, the links and the communicators, which any thread
 * may use, and except for each node's own pace. */
typedef struct exo_fit {
    exo_shared shared; /* must be first */
    bool made;         /* guarded by `making` of `shared` */
    uint32_t num_nodes;
    uint64_t max_steps, seed;
    size_t batch_size, minibatch_size;
    bool shuffle;
    exo_autocast autocast;
    bool elastic, verify; /* exo_elastic of the options */
    bool rehearses;       /* time passes, and nothing is computed or sent (exo_fit_rehearse) */
    exo_time step_cost;   /* of a rehearsed step on a host of speed 1, ns */
    /* The nodes that share a copy of the model, tensor x context x stages consecutive ranks, each with a
     * part of the layers (tensor), a part of the tokens of a sequence (context), and some of the layers
     * (stages); 1: the copy is not divided so. */
    uint32_t tensor, stages, context;
    bool sequence;   /* parts with sequence parallelism */
    char device[32]; /* name of the device that each node opens (exo_device_open) */
    exo_time timeout;

    exo_model *model;    /* the whole one */
    exo_model **parts;   /* (tensor stages) NULL: the nodes have the whole model */
    exo_dataset **train; /* (num_nodes) the data set of each node */
    bool shared_data;    /* all nodes have the same data set, and each takes its share */
    exo_dataset *val;
    size_t *val_order; /* (val_count) indices of the samples that are evaluated */
    size_t val_count;
    exo_tape_pool train_tapes, eval_tapes;
    char resume_from[EXO_CHECKPOINT_PATH]; /* folder of a checkpoint; "": none */

    /* The job's graph, which the trainer keeps current; NULL: the real clock, nothing is
     * emulated. */
    const exo_graph_spec *graph;
    exo_graph_spec *own_graph;      /* the same graph, if it was made from a document */
    const exo_engine_class *engine; /* the engine that the job names, or NULL */
    exo_way way;                    /* of the messages of the strategy's collectives */
    bool any_bits;                  /* `way` may sum in any order */
    bool engine_suspends;           /* between two exchanges */
    bool measures;                  /* the nodes measure their links when they are set up */
    /* (num_nodes, num_nodes) links that `way` follows, measured or given; NULL: the declared ones.
     * The first node that has measured them sets it, under `making` of `shared`. */
    exo_link_figure *figures;
    exo_links *links; /* NULL: nothing is emulated */
    exo_sim *sim;     /* NULL: the real clock */
    exo_time origin;  /* start of the run on its clock, as far as this process knows it */
    exo_pace *paces;  /* (num_nodes) NULL: each node makes its own on the real clock */
    /* (num_nodes) NULL: no host fails. The trainer's between two segments; within them a node
     * follows its own, if nodes do not wait for each other (apart). */
    exo_outages *outages;
    bool apart;
    /* On the virtual clock, of nodes that are apart: the time at which the last of them has ended
     * the last segment, and all begin the next one; else 0. Written between segments. */
    exo_time begins;
    /* comm: the strategy's; side: for set-up, averages and correlations. NULL: each node makes its
     * own. */
    exo_comm *comm, *side;
} exo_fit;

/* Makes a record for the caller to fill in. No node finds it before exo_fit_put. NOMEM. */
exo_status exo_fit_new(exo_fit **out, uint32_t num_nodes, exo_err *err);
/* Publishes a filled record to the actors of a runtime. No other run of that runtime has the name
 * `run`. NOMEM. */
exo_status exo_fit_put(exo_fit *fit, exo_runtime *runtime, const char *run, exo_err *err);
/* Holds the record of the run that the document names, and makes it if there is none. If making it
 * fails, the next caller tries again. INVAL: the document is wrong; NOT_FOUND: it names a model,
 * data or an engine that this process does not have; NOMEM. Blocks while another node makes the
 * record. */
exo_status exo_fit_open(exo_fit **out, exo_runtime *runtime, exo_config *document, exo_err *err);
/* Drops *fit and sets it to NULL; accepts NULL in it. */
void exo_fit_drop(exo_fit **fit);
/* The run's name, under which the record was put or made. */
const char *exo_fit_name(const exo_fit *fit);

/* Makes the parts of the model for groups of `tensor` nodes, as fit->sequence says, its stages for
 * groups of `stages`, or its members for groups of fit->context; 0 and 1: none. INVAL, UNSUPPORTED: the model cannot be cut so; NOMEM. */
exo_status exo_fit_make_parts(exo_fit *fit, uint32_t tensor, uint32_t stages, exo_err *err);
/* The model that a node has: the whole one, or its part. */
exo_model *exo_fit_model_of(const exo_fit *fit, uint32_t rank);
/* What a node has of a copy that several nodes share: which part of the layers, which tokens, which stage. */
typedef struct exo_fit_place {
    uint32_t part, member, stage;
} exo_fit_place;
/* The place of a rank: rank % exo_fit_sharing() = (stage x context + member) x tensor + part. */
exo_fit_place exo_fit_place_of(const exo_fit *fit, uint32_t rank);
/* The share of the model that it has there, of a run whose nodes share copies. */
exo_share exo_fit_share_of(const exo_fit *fit, uint32_t rank);
/* The nodes that share a copy of the model: those with the same rank / exo_fit_sharing(). The number of
 * copies. */
uint32_t exo_fit_sharing(const exo_fit *fit);
uint32_t exo_fit_copies(const exo_fit *fit);
/* Whether the node has the losses of its copy: with stages, the last one. The first such rank. */
bool exo_fit_has_loss(const exo_fit *fit, uint32_t rank);
uint32_t exo_fit_first_with_loss(const exo_fit *fit);

/* Chooses the samples of all evaluations: the first `most` of a seeded order of `val`; 0: all.
 * INVAL: `val` is empty. NOMEM. */
exo_status exo_fit_plan_evaluation(exo_fit *fit, size_t most, exo_err *err);
/* Writes the strategy's edge, and the way of its collectives, in the form that a communicator takes;
 * false: there is neither. */
bool exo_fit_comm_edge(const exo_fit *fit, exo_comm_edge *out);
/* Changes the links, and the codec of `comm`, to those of the graph `next`, which
 * exo_graph_check_job_change has admitted. No member of `comm` may be in a call. INVAL,
 * UNSUPPORTED: the graph's links or codec cannot be used; NOMEM. */
exo_status exo_fit_change(exo_fit *fit, exo_comm *comm, const exo_graph_spec *next, exo_err *err);

/* Reads an entry of the form NAME or {name: NAME, ...}. *options is the mapping, or NULL for the
 * first form. INVAL: there is no name; the message says that it is the name of `what`. */
exo_status exo_fit_read_named(exo_config *document, const char *key, const char *what,
                              const char **name, exo_config **options, exo_err *err);

/* The nodes in a job's graph, whose only actor they are. `graph` may be NULL, except where stated:
 * the job then has no graph. */

/* The index of the node's host among the graph's hosts. `graph` must not be NULL. */
uint32_t exo_fit_host(const exo_graph_spec *graph, uint32_t rank);
/* The relative speed of the node's host; 1 without a graph. */
double exo_fit_speed(const exo_graph_spec *graph, uint32_t rank);
/* The declared cost of a step on a host of speed 1, in ns; -1: the time is measured. */
exo_time exo_fit_step_cost(const exo_graph_spec *graph);
/* The strategy's edge; NULL: there is no graph, or the strategy sends nothing. */
const exo_edge_spec *exo_fit_edge(const exo_graph_spec *graph);
/* The codec of the strategy's edge; NULL: none. A selection that the strategy makes itself does not
 * count. */
const char *exo_fit_edge_codec(const exo_graph_spec *graph);

#endif
