/* The tree of meters of a run: its own figures, and those of its nodes. See fit_impl.h and
 * docs/decisions/0021-meters.md.
 *
 *     step, samples, samples_per_second, bytes_sent
 *     train.loss, train.lr
 *     validation.local.loss, ...       and the model's other figures; the same for `global`
 *     communication.messages, ...      of the strategy, all nodes together
 *     members.present, ...             of an elastic run
 *     failures.count, ...              of a run whose hosts fail on the virtual clock
 *     node_0.loss
 *     node_0.strategy..., node_0.model...    as the node has them
 *
 * The counts before a resume are in a tree of their own, which comes from figures.json. They are
 * added to the counts that the nodes report since. */
#include "actors/fit_failures.h"

#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "actors/node_meters.h"
#include "base/traffic.h"
#include "report/meter_json.h"

enum {
    STEP,
    SAMPLES,
    RATE,
    BYTES_SENT
};

static const exo_meter_class own[EXO_FIT_METERS] = {
    [STEP] = {.name = "step", .unit = "steps", .help = "steps that every node has done"},
    [SAMPLES] = {.name = "samples",
                 .unit = "samples",
                 .help = "samples that all nodes have trained on"},
    [RATE] = {.name = "samples_per_second",
              .unit = "samples/s",
              .help = "samples of all nodes in a second, over the last steps",
              .kind = EXO_GAUGE},
    [BYTES_SENT] = {.name = "bytes_sent",
                    .unit = "bytes",
                    .help = "bytes that the strategy sent, mean over the nodes"},
};
static const exo_meter_class members[EXO_FIT_MEMBER_METERS] = {
    {.name = "present", .unit = "nodes", .help = "nodes that train now", .kind = EXO_GAUGE},
    {.name = "left",
     .unit = "nodes",
     .help = "nodes that died, or were left out for their silence"},
    {.name = "joined", .unit = "nodes", .help = "nodes that came back"},
    {.name = "epochs", .unit = "epochs", .help = "changes of the members"},
    {.name = "paused", .unit = "ns", .help = "time without training, for changes of the members"},
};
static const exo_meter_class failures[EXO_FIT_FAILURE_METERS] = {
    {.name = "count", .unit = "failures", .help = "failures of hosts that have cost time"},
    {.name = "lost", .unit = "ns", .help = "time that led to nothing, mean over the nodes"},
    {.name = "goodput",
     .unit = "1",
     .help = "useful samples a second, as a part of those without failures",
     .kind = EXO_GAUGE},
};
static const exo_meter_class train_loss = {.name = "loss",
                                           .unit = "1",
                                           .help = "training loss of node 0 at its last step",
                                           .kind = EXO_GAUGE};
static const exo_meter_class train_lr = {
    .name = "lr", .unit = "1", .help = "learning rate of the last step", .kind = EXO_GAUGE};
static const exo_meter_class node_loss = {.name = "loss",
                                          .unit = "1",
                                          .help = "training loss of the node at its last step",
                                          .kind = EXO_GAUGE};
static const exo_meter_class copy_loss = {
    .name = "loss",
    .unit = "1",
    .help = "loss of the model, mean over the samples of the validation",
    .kind = EXO_GAUGE};
_Static_assert(BYTES_SENT + 1 == EXO_FIT_METERS, "each has its place");

/* A full tree or a duplicate name costs a meter, not the run. */
static exo_status
forgive(struct run *run, exo_status st, const exo_err *reason)
{
    if (st != EXO_FULL && st != EXO_EXISTS)
        return st;
    if (!run->meters.warned)
        EXO_LOG(WARN, TRAIN, "reason='%s' this meter, and perhaps others, will not be shown",
                reason->text);
    run->meters.warned = true;
    return EXO_OK;
}

static exo_status
declare(struct run *run, exo_meter **out, exo_meters *scope, const exo_meter_class *c, exo_err *err)
{
    exo_err reason = {0};
    exo_status st = exo_meter_declare(out, scope, c, &reason);
    st = forgive(run, st, &reason);
    return st == EXO_OK ? st : exo_fail(err, st, "%s", reason.text);
}

static exo_status
scope_in(struct run *run, exo_meters **out, exo_meters *parent, const char *name, exo_err *err)
{
    exo_err reason = {0};
    exo_status st = exo_meters_scope(out, parent, name, &reason);
    st = forgive(run, st, &reason);
    return st == EXO_OK ? st : exo_fail(err, st, "%s", reason.text);
}

static exo_status
open_run(struct run *run, exo_err *err)
{
    exo_meters *tree = run->meters.tree, *train = NULL, *validation = NULL, *communication = NULL,
               *present = NULL;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < EXO_FIT_METERS; i++)
        st = declare(run, &run->meters.own[i], tree, &own[i], err);
    if (st == EXO_OK)
        st = scope_in(run, &train, tree, "train", err);
    if (st == EXO_OK)
        st = declare(run, &run->meters.train_loss, train, &train_loss, err);
    if (st == EXO_OK)
        st = declare(run, &run->meters.train_lr, train, &train_lr, err);
    if (st == EXO_OK)
        st = scope_in(run, &validation, tree, "validation", err);
    for (size_t i = 0; st == EXO_OK && i < 2; i++) {
        st = scope_in(run, &run->meters.copies[i], validation,
                      i == EXO_FIT_LOCAL ? "local" : "global", err);
        if (st == EXO_OK)
            st = declare(run, &run->meters.copy_loss[i], run->meters.copies[i], &copy_loss, err);
    }
    if (st == EXO_OK)
        st = scope_in(run, &communication, tree, "communication", err);
    if (st == EXO_OK && run->fit->elastic)
        st = scope_in(run, &present, tree, "members", err);
    for (size_t i = 0; st == EXO_OK && run->fit->elastic && i < EXO_FIT_MEMBER_METERS; i++)
        st = declare(run, &run->meters.members[i], present, &members[i], err);
    if (st == EXO_OK && run->opts->failures.mean_time_between > 0)
        st = scope_in(run, &present, tree, "failures", err);
    for (size_t i = 0;
         st == EXO_OK && run->opts->failures.mean_time_between > 0 && i < EXO_FIT_FAILURE_METERS;
         i++)
        st = declare(run, &run->meters.failures[i], present, &failures[i], err);
    for (size_t i = 0; st == EXO_OK && i < EXO_TRAFFIC_COLUMNS; i++)
        st = declare(run, &run->meters.traffic[i], communication, &exo_traffic_columns[i], err);
    return st;
}

static exo_status
open_node(struct run *run, uint32_t rank, exo_err *err)
{
    struct exo_fit_node_meters *node = &run->meters.nodes[rank];
    char name[EXO_NODE_NAME];
    snprintf(name, sizeof name, "node_%u", rank);
    exo_status st = scope_in(run, &node->scope, run->meters.tree, name, err);
    if (st == EXO_OK)
        st = declare(run, &node->loss, node->scope, &node_loss, err);
    return st;
}

static void
put_before(void *tree, const exo_meter_sample *s)
{
    exo_meters_put(tree, s, NULL);
}

exo_status
exo_fit_open_meters(struct run *run, exo_err *err)
{
    run->meters.nodes = exo_calloc(run->fit->num_nodes, sizeof *run->meters.nodes);
    exo_status st =
        run->meters.nodes
            ? exo_meters_new(&run->meters.tree, err)
            : exo_fail(err, EXO_NOMEM, "no memory for the meters of %u nodes", run->fit->num_nodes);
    if (st == EXO_OK)
        st = exo_meters_new(&run->meters.before, err);
    if (st == EXO_OK)
        st = open_run(run, err);
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++)
        st = open_node(run, r, err);
    if (st != EXO_OK)
        return st;
    exo_meters_of_json(run->meters.before, json_object_get(run->before.figures, "meters"));
    return exo_meters_walk(run->meters.before, put_before, run->meters.tree, err);
}

void
exo_fit_close_meters(struct run *run)
{
    exo_meters_free(&run->meters.tree);
    exo_meters_free(&run->meters.before);
    exo_free(run->meters.nodes);
    run->meters.nodes = NULL;
}

/* --- The nodes' reports ----------------------------------------------------------------------- */

/* Takes over a node's meters. To each sample, the sample in `before` with the same path in the tree
 * is added; that path begins with `scope`. NULL: nothing is added. */
static exo_status
take(struct run *run, exo_meters *to, const char *scope, const exo_meters *before,
     Exo__Train__Meter *const *messages, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        char path[EXO_METER_PATH];
        exo_meter_class c;
        exo_meter_sample s, was;
        exo_err reason = {0};
        st = exo_meter_of_message(messages[i], &c, &s, &reason);
        if (st == EXO_OK &&
            snprintf(path, sizeof path, "%s.%s", scope, messages[i]->path) >= EXO_METER_PATH)
            st = exo_fail(&reason, EXO_FULL, "the path '%.80s...' is too long", path);
        if (st == EXO_OK && before && exo_meters_get(before, path, &was))
            exo_meter_sample_add(&s, &was);
        if (st == EXO_OK && to)
            st = exo_meters_put(to, &s, &reason);
        st = forgive(run, st, &reason);
        if (st != EXO_OK)
            exo_fail(err, st, "%s: %s", scope, reason.text);
    }
    return st;
}

exo_status
exo_fit_take_trained(struct run *run, uint32_t rank, const Exo__Train__Trained *reply, exo_err *err)
{
    struct exo_fit_node_meters *node = &run->meters.nodes[rank];
    char name[EXO_NODE_NAME];
    snprintf(name, sizeof name, "node_%u", rank);
    if (reply->n_loss > 0 && exo_fit_has_loss(run->fit, rank))
        exo_meter_set(node->loss, (double)reply->loss[reply->n_loss - 1]);
    return take(run, node->scope, name, run->meters.before, reply->meters, reply->n_meters, err);
}

exo_status
exo_fit_take_figures(struct run *run, exo_fit_copy copy, const Exo__Train__Figures *reply,
                     exo_err *err)
{
    exo_meter_set(run->meters.copy_loss[copy], reply->loss);
    return take(run, run->meters.copies[copy],
                copy == EXO_FIT_LOCAL ? "validation.local" : "validation.global", NULL,
                reply->meters, reply->n_meters, err);
}

/* --- The tree --------------------------------------------------------------------------------- */

const exo_meters *
exo_fit_meters(struct run *run)
{
    exo_traffic all = {0};
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        exo_traffic_add(&all, &run->traffic[r]);
    for (size_t i = 0; i < EXO_TRAFFIC_COLUMNS; i++)
        exo_meter_count(run->meters.traffic[i], exo_traffic_get(&all, i));
    exo_meter_count(run->meters.own[STEP], run->step);
    exo_meter_count(run->meters.own[SAMPLES], exo_fit_samples(run));
    if (run->elastic)
        exo_fit_elastic_count(run, run->meters.members);
    exo_fit_failures_count(run, run->meters.failures);
    if (run->rate > 0)
        exo_meter_set(run->meters.own[RATE], run->rate);
    exo_meter_count(run->meters.own[BYTES_SENT], run->bytes_sent);
    exo_meter_set(run->meters.train_loss, (double)run->train_loss);
    if (run->step > 0)
        exo_meter_set(run->meters.train_lr, (double)run->lr);
    return run->meters.tree;
}
