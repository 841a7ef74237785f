/* One fit, shared by the files that do it: fit_run.c (from beginning to end), fit_prepare.c (what there is before the first step), fit_spawn.c
 * (nodes), fit_ask.c (requests to them), fit_watch.c (stalls), fit_events.c (training, and what happens between two segments),
 * fit_network.c (its emulated network), fit_clock.c (its clock), fit_figures.c (what a checkpoint keeps of what was counted),
 * fit_meters.c (its tree of meters).
 *
 * Everything in struct run belongs to the caller's thread. The nodes run free between two events (evaluation, correlation,
 * checkpoint, the end, or about a fifth of a second, so that a stop is heeded soon); at an event all of them are idle. */
#ifndef EXO_FIT_IMPL_H
#define EXO_FIT_IMPL_H

#include <jansson.h>

#include "actors/fit.h"
#include "actors/fit_run.h"
#include "base/meter.h"
#include "base/traffic.h"
#include "conduct/conduct.h"
#include "protocol/protocol.h"
#include "report/ledger.h"
#include "report/metrics.h"

#define EXO_FIT_CLOSE_GRACE (30 * EXO_SECOND)

enum {
    EXO_NODE_NAME = 32,
    EXO_FIT_METERS = 4 /* of the run itself */
};

/* Which copy of the model was evaluated. */
typedef enum exo_fit_copy {
    EXO_FIT_LOCAL,
    EXO_FIT_GLOBAL
} exo_fit_copy;

struct exo_fit_node_meters {
    exo_meters *scope;
    exo_meter *loss;
};

struct run {
    exo_fit *
        fit; /* held; the nodes' own where they are in this process, else what is the trainer's of it */
    const exo_fit_opts *opts;
    const exo_fit_far *far;   /* NULL: the nodes are in this process */
    const exo_fit_live *live; /* NULL: nothing changes */
    const char *strategy_name;
    bool together;          /* its nodes gather units: all are asked where otherwise one would do */
    const exo_clock *clock; /* real: for deadlines */

    exo_cast cast;               /* the nodes, by rank; its runtime is theirs */
    struct exo_fit_watch *watch; /* fit_watch.c                            */
    exo_traffic *
        traffic; /* (num_nodes) of the strategy's edge, over all parts of a resumed run, as the nodes said last */

    char folder[EXO_CHECKPOINT_PATH]; /* "" without files */
    int lock;                         /* descriptor, or -1 */
    exo_metrics *metrics;
    exo_config_doc *whole; /* {options: the strategy's, with every default} */
    char *options_text;    /* the same                                      */
    char *
        strategy_text; /* what the nodes make theirs of: its options as they were written, with its name */
    char *settings;

    /* Of the parts before a resume; all 0 where there are none, or their checkpoint has no figures. */
    struct {
        bool known;
        exo_time now, wall;        /* where the run's clock and the real one stood */
        exo_traffic *traffic;      /* (num_nodes) */
        exo_link_stats *up, *down; /* (num_nodes) */
        json_t *figures;           /* has the names of spans and totals */
    } before;

    struct {
        exo_meters *tree, *before; /* before: a resume; what the nodes' meters were */
        exo_meter *own[EXO_FIT_METERS], *train_loss, *train_lr, *copy_loss[2],
            *traffic[EXO_TRAFFIC_COLUMNS];
        exo_meters *copies[2];             /* by exo_fit_copy */
        struct exo_fit_node_meters *nodes; /* (num_nodes)     */
        bool warned;
    } meters;

    uint64_t step;
    exo_time started;        /* of this process's part, on the real clock        */
    exo_time trained;        /* ns in steps since `steps_before`                 */
    uint64_t elapsed_before; /* ns of the parts before a resume                  */
    uint64_t steps_before;   /* steps that `trained` does not count              */
    uint64_t bytes_sent;
    float train_loss, lr;
    double rate;        /* samples/s of the last segments, smoothed         */
    exo_time step_time; /* of the last segment, for the length of the next  */
    bool evaluated;     /* at `step`: eval holds the figures                */
    exo_progress eval;
    bool stopped;
};

/* --- fit_ask.c: requests to the nodes --------------------------------------------------------- */

/* Sends a request to one node. args: its message, NULL: none. */
exo_status exo_fit_ask(struct run *run, uint32_t rank, const char *method,
                       const ProtobufCMessage *args, exo_err *err);
/* Has all nodes do something, and waits for them. */
exo_status exo_fit_have_all(struct run *run, const char *method, const ProtobufCMessage *args,
                            exo_err *err);
/* Waits for every request in progress; an error in asking (`asked`) is given on. The first error that is a node's own, or its death, rather than what it heard of another, is the
 * run's; the other nodes are told at once, so that nobody waits for the dead. */
exo_status exo_fit_await_all(struct run *run, exo_status asked, exo_err *err);
/* A node's reply to the request in progress, which is over: the message, freed with exo_args_free. INVAL: it is none of that kind. */
exo_status exo_fit_reply(struct run *run, uint32_t rank, const ProtobufCMessageDescriptor *of,
                         ProtobufCMessage **out, exo_err *err);
/* The same of one that is bytes as they lie; INVAL: other than `size` of them. */
exo_status exo_fit_raw_reply(struct run *run, uint32_t rank, size_t size, const void **out,
                             exo_err *err);

/* --- fit_watch.c ------------------------------------------------------------------------------ */

exo_status exo_fit_watch_open(struct run *run, exo_err *err);
/* All nodes were asked for something. */
void exo_fit_watch_begin(struct run *run);
/* Looks at all nodes, if it is time, while some have not done what they were asked. FAILED: the nodes stall, with who
 * waits for whom in which call since when. Blocks for some tenths of a second if a node does not answer, about which it warns. */
exo_status exo_fit_watch_look(struct run *run, exo_err *err);
/* Has the node not answered for a while? */
bool exo_fit_is_silent(const struct run *run, uint32_t rank);

/* --- fit_prepare.c ---------------------------------------------------------------------------- */

/* Everything up to nodes that are ready for their first step, or for that after the checkpoint. */
exo_status exo_fit_prepare(struct run *run, exo_dataset *train, exo_dataset *val,
                           exo_config *options, exo_err *err);

/* --- fit_spawn.c ------------------------------------------------------------------------------ */

/* Room for the nodes. NOMEM. */
exo_status exo_fit_open_cast(struct run *run, exo_err *err);
/* Makes the nodes, in this process or on workers. */
exo_status exo_fit_make_nodes(struct run *run, exo_err *err);

/* --- fit_events.c ----------------------------------------------------------------------------- */

/* Trains to the last step, or until it is stopped. */
exo_status exo_fit_train(struct run *run, exo_err *err);

/* --- fit_clock.c ------------------------------------------------------------------------------ */

/* Now on the run's clock, which goes on where the checkpoint of a resumed run was made. */
exo_time exo_fit_now(const struct run *run);
/* How long the run has taken here, over all parts, in ns of the real clock. */
exo_time exo_fit_wall(const struct run *run);
/* Training time so far, over all parts of a resumed run, in ns on the run's clock. */
uint64_t exo_fit_elapsed(const struct run *run);
/* Before the nodes are told to train, on the virtual clock: none of them runs ahead. */
void exo_fit_expect_nodes(struct run *run);
/* Nobody is waited for any more: a node cannot go on. */
void exo_fit_expect_no_more(struct run *run);
/* What a node's host has sent and received over emulated links, over all parts; false: there are none here. */
bool exo_fit_link_stats(const struct run *run, uint32_t rank, exo_link_stats *up,
                        exo_link_stats *down);
/* Of what all nodes sent together, one node's part, rounded. */
uint64_t exo_fit_mean_bytes(const struct run *run, uint64_t all);

/* --- fit_network.c ---------------------------------------------------------------------------- */

/* The clock, the links and every node's pace, by the run's graph. */
exo_status exo_fit_open_network(struct run *run, exo_err *err);
/* The engine that the job names, or NULL; checked for where the nodes are and what is between them. */
exo_status exo_fit_choose_engine(struct run *run, exo_err *err);
/* The communicators of nodes in this process. */
exo_status exo_fit_open_comms(struct run *run, exo_err *err);
/* What the edge is called in reports. */
const char *exo_fit_edge_name(const struct run *run);
/* ledger.csv, network.json and, on the virtual clock, timeline.json, into the run's folder: at the end, and of a run that was stopped. All
 * nodes are idle. */
exo_status exo_fit_report_network(struct run *run, exo_fit_result *result, exo_err *err);

/* --- fit_figures.c ---------------------------------------------------------------------------- */

/* Into the folder of a checkpoint, when all nodes are idle. */
exo_status exo_fit_save_figures(const struct run *run, const char *folder, uint64_t elapsed,
                                exo_err *err);
/* Makes run->before, and fills it from the checkpoint that the run goes on from, if there is one. INVAL: it is damaged. */
exo_status exo_fit_load_figures(struct run *run, exo_err *err);
/* A new pace goes on where that of the checkpoint stood. */
void exo_fit_restore_pace(struct run *run, uint32_t rank);
/* Links go on where they were, too: windows of connections, what waits for a rate, numbers of messages. INVAL: figures.json is damaged. */
exo_status exo_fit_restore_links(struct run *run, exo_err *err);
void exo_fit_release_figures(struct run *run);

/* --- fit_meters.c ----------------------------------------------------------------------------- */

/* The tree, with what figures.json of a resumed run had. After exo_fit_load_figures. */
exo_status exo_fit_open_meters(struct run *run, exo_err *err);
/* Takes over what a node says of its meters; INVAL: what it says is damaged. */
exo_status exo_fit_take_trained(struct run *run, uint32_t rank, const Exo__Train__Trained *reply,
                                exo_err *err);
exo_status exo_fit_take_figures(struct run *run, exo_fit_copy copy,
                                const Exo__Train__Figures *reply, exo_err *err);
/* The tree with the run's own figures as they are now. */
const exo_meters *exo_fit_meters(struct run *run);
void exo_fit_close_meters(struct run *run);

#endif
