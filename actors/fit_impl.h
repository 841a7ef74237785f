/* One fit, shared by the files that implement it:
 *
 *     fit_run.c      a fit from beginning to end
 *     fit_prepare.c  the work before the first step
 *     fit_spawn.c    making the nodes
 *     fit_ask.c      requests to the nodes
 *     fit_watch.c    detection of stalls
 *     fit_elastic.c  members of an elastic run that come and go
 *     fit_failures.c failures of hosts on the virtual clock
 *     fit_events.c   training, and the events between two segments
 *     fit_steps.c    steps of the nodes, and their replies
 *     fit_apart.c    training of nodes that do not wait for each other
 *     fit_save.c     checkpoints
 *     fit_network.c  the emulated network
 *     fit_links.c    the links that collectives follow
 *     fit_clock.c    the clock
 *     fit_figures.c  the counts and times in a checkpoint
 *     fit_meters.c   the tree of meters
 *
 * Everything in struct run belongs to the caller's thread. Training proceeds in segments. A segment
 * ends at an event (evaluation, correlation, checkpoint, change of the graph, the end), or after
 * about 0.2 s (2 s with nodes on workers), so that a request to stop is obeyed soon. Between two
 * segments all nodes are idle. If the strategy's nodes are apart, a segment ends at an evaluation, a
 * correlation, a change of the graph or the end only; checkpoints are no events (fit_apart.c). */
#ifndef EXO_FIT_IMPL_H
#define EXO_FIT_IMPL_H

#include <jansson.h>

#include "actors/fit.h"
#include "actors/fit_check.h"
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
    EXO_FIT_METERS = 4,        /* meters of the run itself, at the root of the tree */
    EXO_FIT_MEMBER_METERS = 5, /* meters of an elastic run */
    EXO_FIT_FAILURE_METERS = 3 /* meters of a run whose hosts fail */
};

/* The copy of the model that was evaluated: node 0's, or the average of all nodes. */
typedef enum exo_fit_copy {
    EXO_FIT_LOCAL,
    EXO_FIT_GLOBAL
} exo_fit_copy;

struct exo_fit_node_meters {
    exo_meters *scope;
    exo_meter *loss;
};

struct run {
    /* Held. Nodes in this process share it; with nodes on workers it has the trainer's data
     * only. */
    exo_fit *fit;
    const exo_fit_opts *opts;
    const exo_fit_far *far;   /* NULL: the nodes are in this process */
    const exo_fit_live *live; /* NULL: the graph does not change */
    const char *strategy_name;
    /* The nodes gather units of the model from each other. A request that one node could serve then
     * goes to all nodes. */
    bool together;
    bool apart;             /* nodes do not wait for each other within a segment */
    bool is_set_up;         /* the nodes are ready for a step */
    const exo_clock *clock; /* the real clock, for deadlines */

    exo_cast cast; /* the nodes, by rank; its runtime is theirs */
    struct exo_fit_watch *watch;
    struct exo_fit_elastic *elastic;   /* NULL: the run is not elastic, or not set up yet */
    struct exo_fit_failures *failures; /* NULL: no host fails */
    /* (num_nodes) Traffic over the strategy's edge as last reported, over all parts of a resumed
     * run. */
    exo_traffic *traffic;

    exo_fit_digests digests;          /* of the data here, for nodes on workers */
    char folder[EXO_CHECKPOINT_PATH]; /* "" without files */
    int lock;                         /* descriptor, or -1 */
    exo_metrics *metrics;
    exo_config_doc *whole; /* {options: the strategy's, with every default} */
    char *options_text;    /* the same options as text */
    /* The strategy in the nodes' documents: its options as they were written, and its name. */
    char *strategy_text;
    char *settings; /* exo_fit_settings_json */

    /* The figures of the parts before a resume; all 0 if there are none, or if their checkpoint has
     * no figures. */
    struct {
        bool known;                /* the checkpoint has figures */
        exo_time now, wall;        /* times of the run's clock and of the real clock */
        exo_traffic *traffic;      /* (num_nodes) */
        exo_link_stats *up, *down; /* (num_nodes) */
        json_t *figures;           /* figures.json; owns the names of spans and totals */
    } before;

    struct {
        exo_meters *tree, *before; /* before: the nodes' meters before a resume */
        exo_meter *members[EXO_FIT_MEMBER_METERS];
        exo_meter *failures[EXO_FIT_FAILURE_METERS];
        exo_meter *own[EXO_FIT_METERS], *train_loss, *train_lr, *copy_loss[2],
            *traffic[EXO_TRAFFIC_COLUMNS];
        exo_meters *copies[2];             /* by exo_fit_copy */
        struct exo_fit_node_meters *nodes; /* (num_nodes) */
        bool warned;                       /* of a meter that could not be added */
    } meters;

    uint64_t step;
    exo_time started;        /* start of this process's part, on the real clock */
    exo_time trained;        /* ns spent in the steps after `steps_before` */
    uint64_t elapsed_before; /* ns of the parts before a resume */
    uint64_t steps_before;   /* number of steps that `trained` does not include */
    uint64_t samples;        /* of all nodes, at the end of the last segment */
    uint64_t bytes_sent;     /* by the strategy, mean over the nodes */
    float train_loss, lr;    /* node 0's last step */
    double rate;             /* samples/s of all nodes over the last segments, smoothed */
    exo_time step_time;      /* real time of a step of the last segment, in ns */
    bool evaluated;          /* eval has the figures of `step` */
    exo_progress eval;
    bool stopped; /* on request, before the last step */
};

/* --- fit_links.c: the links that collectives follow ------------------------------------------- */

/* Decides whether the nodes will measure them, or reads them from the file of the options. INVAL:
 * they cannot be had. */
exo_status exo_fit_choose_links(struct run *run, exo_err *err);
/* Takes what the nodes have measured from the first one's reply. */
exo_status exo_fit_take_links(struct run *run, const Exo__Train__NodeReady *ready, exo_err *err);
/* Tells the user, and writes links.json into the run's folder, if the run has such links. */
exo_status exo_fit_show_links(struct run *run, exo_err *err);

/* --- fit_ask.c: requests to the nodes --------------------------------------------------------- */

/* Sends a request to one node. args: its message; NULL: none. NOMEM. */
exo_status exo_fit_ask(struct run *run, uint32_t rank, const char *method,
                       const ProtobufCMessage *args, exo_err *err);
/* Sends the same request to all present nodes and waits for them as exo_fit_await_all does. */
exo_status exo_fit_have_all(struct run *run, const char *method, const ProtobufCMessage *args,
                            exo_err *err);
/* Waits for every request in progress. `asked` is the status of sending them; it is returned if it
 * is an error. The error of the run is a node's own error or a node's death; another node's report
 * of it does not count. When a node fails, the collectives that wait for it are ended at once.
 * FAILED: the nodes stall; TIMEOUT: a node does not answer. */
exo_status exo_fit_await_all(struct run *run, exo_status asked, exo_err *err);
/* What the trainer does with a node's answer, which is no error: it may make the node's next request,
 * and fails only with a text. */
typedef struct exo_fit_next {
    void *context;
    exo_status (*take)(void *context, uint32_t rank, exo_err *err);
    void (*idle)(void *context); /* called after a while without an answer, before an error */
} exo_fit_next;
/* Waits as exo_fit_await_all does, and takes each answer when it comes, up to the first error. An
 * error of `next` is the run's. */
exo_status exo_fit_await_each(struct run *run, exo_status asked, const exo_fit_next *next,
                              exo_err *err);
/* Reads a node's reply to the finished request as a message; the caller frees it with
 * exo_args_free. INVAL: the reply is not a message of that kind. */
exo_status exo_fit_reply(struct run *run, uint32_t rank, const ProtobufCMessageDescriptor *of,
                         ProtobufCMessage **out, exo_err *err);
/* Reads a reply of raw bytes. *out is borrowed until the cast's next request or exo_cast_drop.
 * INVAL: the reply does not have `size` bytes. */
exo_status exo_fit_raw_reply(struct run *run, uint32_t rank, size_t size, const void **out,
                             exo_err *err);

/* Ends the collectives that wait for node `rank`. */
void exo_fit_end_collectives(struct run *run, uint32_t rank, const char *cause);

/* Tells the owner that the run is stopped before its first step (exo_fit_live.unbegun). fit_spawn.c. */
void exo_fit_note_unbegun(const struct run *run);

/* --- fit_watch.c ------------------------------------------------------------------------------ */

/* Makes run->watch. NOMEM. */
exo_status exo_fit_watch_open(struct run *run, exo_err *err);
/* Begins to watch a request; call it after sending the request. */
void exo_fit_watch_begin(struct run *run);
/* Looks at all nodes, if a look is due, while some of them work on a request. FAILED: the nodes
 * stall; the message names the waiting nodes, the nodes that they wait for, their calls and times.
 * If a node does not answer, the call blocks for some tenths of a second, and it logs a warning. */
exo_status exo_fit_watch_look(struct run *run, exo_err *err);
/* How long the node has not answered looks; 0: it answers. */
exo_time exo_fit_silence(const struct run *run, uint32_t rank);
/* Whether the node has not answered looks for a while. */
bool exo_fit_is_silent(const struct run *run, uint32_t rank);

/* --- fit_prepare.c ---------------------------------------------------------------------------- */

/* Prepares a fit: afterwards the nodes are ready for the first step, or for the first step after
 * the checkpoint. */
exo_status exo_fit_prepare(struct run *run, exo_dataset *train, exo_dataset *val,
                           exo_config *options, exo_err *err);

/* --- fit_spawn.c ------------------------------------------------------------------------------ */

/* Allocates the cast of the nodes. NOMEM. */
exo_status exo_fit_open_cast(struct run *run, exo_err *err);
/* Writes the arguments of a node's start. elapsed: time of the run so far, for schedules of links.
 * NOMEM. */
exo_status exo_fit_describe_node(const struct run *run, uint32_t rank, exo_time elapsed,
                                 exo_payload *out, exo_err *err);
/* Makes the nodes, in this process or on workers. All of them have the run's `timeout`, or a minute if
 * that is longer. CANCELLED: opts->stop. */
exo_status exo_fit_make_nodes(struct run *run, exo_err *err);

/* --- fit_elastic.c (more in fit_elastic.h) ---------------------------------------------------- */

/* Whether the node of a rank is present; the number of present nodes; the rank of the present node
 * with the place `place` among them, or num_nodes. Without an elastic run all are present. */
bool exo_fit_is_member(const struct run *run, uint32_t rank);
uint32_t exo_fit_num_members(const struct run *run);
uint32_t exo_fit_member_at(const struct run *run, uint32_t place);

/* --- fit_steps.c ------------------------------------------------------------------------------ */

/* Tells the listener of the options how far the run is. */
void exo_fit_report(struct run *run, bool evaluated);
/* The step of the next event with that interval after `step`, at most `limit`; 0: never. */
uint64_t exo_fit_next_due(uint64_t step, uint64_t interval, uint64_t limit);
/* The steps of the next stretch between two looks at a request to stop. */
uint64_t exo_fit_stretch(const struct run *run);
/* Reads a node's reply about its `steps` steps, its traffic and its meters. *out: exo_args_free. */
exo_status exo_fit_read_trained(struct run *run, uint32_t rank, size_t steps,
                                ProtobufCMessage **out, exo_err *err);
/* Records `steps` steps, for which the last ones in the reply of one node stand (NULL: there is none).
 * They took this time on the run's clock, and here. */
exo_status exo_fit_record_steps(struct run *run, const Exo__Train__Trained *first, size_t steps,
                                exo_time took, exo_time took_here, exo_err *err);

/* --- fit_events.c ----------------------------------------------------------------------------- */

/* Trains to the last step, or until opts->stop requests the end. */
exo_status exo_fit_train(struct run *run, exo_err *err);

/* --- fit_apart.c ------------------------------------------------------------------------------ */

/* Trains all nodes to the step `end`, without a wait for each other before. Writes the checkpoints on
 * the way. An earlier request to stop ends it at an earlier step. */
exo_status exo_fit_train_apart(struct run *run, uint64_t end, exo_err *err);

/* --- fit_clock.c ------------------------------------------------------------------------------ */

/* The time on the run's clock, which continues at the time of the checkpoint in a resumed run. */
exo_time exo_fit_now(const struct run *run);
/* The duration of the run over all parts, in ns of the real clock. */
exo_time exo_fit_wall(const struct run *run);
/* The duration of training over all parts of a resumed run, in ns on the run's clock. */
uint64_t exo_fit_elapsed(const struct run *run);
/* On the virtual clock, call it before that many nodes are told to train: no node computes before
 * all of them have begun. */
void exo_fit_expect_nodes(struct run *run, uint32_t nodes);
/* Ends that wait, because a node cannot go on. */
void exo_fit_expect_no_more(struct run *run);
/* The traffic of a node's host over emulated links, over all parts; false: this process has no
 * emulated links. */
bool exo_fit_link_stats(const struct run *run, uint32_t rank, exo_link_stats *up,
                        exo_link_stats *down);
/* The mean over the nodes of a sum of bytes, rounded to the nearest. */
uint64_t exo_fit_mean_bytes(const struct run *run, uint64_t all);

/* --- fit_network.c ---------------------------------------------------------------------------- */

/* Opens the clock, the links and every node's pace, as the run's graph describes them. UNSUPPORTED:
 * the graph has more than one edge, or a virtual clock and nodes on workers. */
exo_status exo_fit_open_network(struct run *run, exo_err *err);
/* Finds the engine that the job names, and checks that it suits the place of the nodes, their links
 * and their codec. */
exo_status exo_fit_choose_engine(struct run *run, exo_err *err);
/* Opens the communicators of nodes in this process. */
exo_status exo_fit_open_comms(struct run *run, exo_err *err);
/* The name of the strategy's edge in reports. */
const char *exo_fit_edge_name(const struct run *run);
/* Writes ledger.csv, network.json and, on the virtual clock, timeline.json into the run's folder,
 * and the traffic and times into *result. It is called at the end, also of a stopped run, when all
 * nodes are idle. */
exo_status exo_fit_report_network(struct run *run, exo_fit_result *result, exo_err *err);

/* --- fit_figures.c ---------------------------------------------------------------------------- */

/* The figures of a checkpoint without those of its nodes; NULL: no memory. The caller drops them. */
json_t *exo_fit_begin_figures(const struct run *run, uint64_t elapsed);
/* Adds those of a node, which is idle after `step` steps. */
void exo_fit_add_figures(const struct run *run, uint32_t rank, uint64_t step, json_t *figures);
/* Writes figures.json into the folder of a checkpoint. */
exo_status exo_fit_write_figures(const json_t *figures, const char *folder, exo_err *err);
/* Makes run->before. If the run resumes, it is read from the checkpoint. INVAL: the checkpoint's
 * figures are damaged. */
exo_status exo_fit_load_figures(struct run *run, exo_err *err);
/* Sets a new pace to its state in the checkpoint. */
void exo_fit_restore_pace(struct run *run, uint32_t rank);
/* Sets the links to their state in the checkpoint: congestion windows, bytes that wait for a rate
 * limit, numbers of messages. INVAL: figures.json is damaged. */
exo_status exo_fit_restore_links(struct run *run, exo_err *err);
void exo_fit_release_figures(struct run *run);

/* --- fit_meters.c ----------------------------------------------------------------------------- */

/* Makes the tree of meters; that of a resumed run begins with the figures of figures.json. Call it
 * after exo_fit_load_figures. */
exo_status exo_fit_open_meters(struct run *run, exo_err *err);
/* Takes over the meters in a node's reply; INVAL: the reply is damaged. */
exo_status exo_fit_take_trained(struct run *run, uint32_t rank, const Exo__Train__Trained *reply,
                                exo_err *err);
exo_status exo_fit_take_figures(struct run *run, exo_fit_copy copy,
                                const Exo__Train__Figures *reply, exo_err *err);
/* Updates the run's own meters and returns the tree. */
const exo_meters *exo_fit_meters(struct run *run);
void exo_fit_close_meters(struct run *run);

#endif
