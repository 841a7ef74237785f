/* The graph class "train_node": an actor of a graph is one of the nodes that train a model
 * together.
 *
 * Its config has keys of a job: model, data, train and strategy. Like the actor of a job, it makes
 * a replica (replica.h) from a document with the same keys, so that the nodes of a process share
 * the model and the data. The replica uses the actor's time. Its strategy communicates over the
 * graph's edges, and declares which edges it uses and how much it sends (exo_strategy_edges). Of
 * two edges, the first is for the traffic within islands of nodes.
 *
 * Owner of the state: the actor's thread, and before it the reader of the config (init). Read next:
 * replica.c, strategies/islands.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/graph.h>
#include <exogym/memory.h>
#include <exogym/state.h>
#include <exogym/strategy.h>
#include <exogym/trainer.h>

#include "actors/autocast.h"
#include "actors/builtin_classes.h"
#include "actors/graph_train_node.h"
#include "actors/replica.h"
#include "base/c_locale.h"
#include "base/config_edit.h"
#include "base/file.h"
#include "base/grow_text.h"
#include "base/parallel.h"
#include "graph/place.h"
#include "nn/host_params.h"
#include "nn/optim_groups.h"

enum {
    MAX_PATH = 4096
};

enum {
    STEP,
    TRAIN_LOSS,
    VAL_LOSS,
    FINGERPRINT,
    NUM_METERS
};

static const exo_meter_class meter_classes[NUM_METERS] = {
    [STEP] = {.name = "step", .unit = "steps", .help = "steps that the node has done"},
    [TRAIN_LOSS] = {.name = "train_loss",
                    .unit = "1",
                    .help = "training loss of the node at its last step",
                    .kind = EXO_GAUGE},
    [VAL_LOSS] = {.name = "val_loss",
                  .unit = "1",
                  .help = "loss of the node's own copy over the samples of the validation",
                  .kind = EXO_GAUGE},
    [FINGERPRINT] = {.name = "fingerprint",
                     .unit = "1",
                     .help = "the first 48 bits of the SHA-256 of the node's parameters at the end",
                     .kind = EXO_GAUGE},
};

struct train_node {
    exo_text document;   /* the part that all nodes have in common, without its end */
    exo_fit_opts train;  /* the settings of `train` */
    const char *refused; /* a setting of `train` that only a job supports; NULL: none */
    bool automatic;      /* it is `minibatch_size: auto` */
    const char *device;  /* its name, in the config */
    bool awaits_units;   /* the strategy awaits units */
    exo_replica *replica;
    exo_meter *meters[NUM_METERS];
    double loss, val_loss; /* the latest; NaN: none yet */
};

/* --- The config ------------------------------------------------------------------------------- */

/* Copies an entry of the form NAME or {name: NAME, ...} into the document. */
static exo_status
read_named(struct train_node *n, exo_config *config, const char *key, exo_config **map,
           exo_err *err)
{
    const char *name = NULL;
    char *text = NULL;
    exo_config *node = exo_config_get(config, key);
    *map = NULL;
    if (!node)
        return exo_config_fail(config, err, "the key '%s' is missing", key);
    exo_status st = EXO_OK;
    if (exo_config_is_map(node)) {
        *map = node;
        st = exo_config_string(node, "name", NULL, &name, err);
        if (st == EXO_OK && !name)
            st = exo_config_fail(node, err, "%s: the key 'name' is missing", key);
    } else {
        st = exo_config_string(config, key, NULL, &name, err);
    }
    if (st == EXO_OK)
        st = exo_config_text(node, &text, err);
    if (st == EXO_OK)
        exo_text_add(&n->document, "\"%s\": %s, ", key, text);
    exo_free(text);
    return st;
}

static exo_status
read_strategy(struct train_node *n, exo_config *config, exo_err *err)
{
    const char *name = NULL;
    exo_config *map = NULL;
    exo_strategy *strategy = NULL;
    exo_status st = read_named(n, config, "strategy", &map, err);
    if (st == EXO_OK)
        st = exo_config_string(map ? map : config, map ? "name" : "strategy", NULL, &name, err);
    if (st != EXO_OK)
        return st;
    st = exo_strategy_new(&strategy, name, map, err);
    n->awaits_units = st == EXO_OK && exo_strategy_awaits_units(strategy);
    exo_strategy_free(&strategy);
    if (st == EXO_NOT_FOUND && err)
        err->code = EXO_INVAL; /* the name is wrong */
    return st == EXO_OK || st == EXO_NOMEM
               ? st
               : exo_config_add_place(exo_config_get(config, "strategy"), err);
}

/* Checks the device, and copies its name, which has no characters that JSON escapes, into the document. */
static exo_status
read_device(struct train_node *n, exo_config *config, exo_err *err)
{
    const char *name = NULL;
    exo_err reason = {0};
    exo_status st = exo_config_string(config, "device", "cpu", &name, err);
    if (st == EXO_OK && exo_device_check(name, &reason) != EXO_OK)
        st = exo_config_fail(exo_config_get(config, "device"), err, "%s", reason.text);
    n->device = name;
    if (st == EXO_OK)
        exo_text_add(&n->document, "\"device\": \"%s\", ", name);
    return st;
}

static bool
is_word(exo_config *map, const char *key, const char *word)
{
    const char *own = exo_config_scalar(exo_config_get(map, key));
    return own && strcmp(own, word) == 0;
}

/* Reads the keys of a job as a whole. The first are refused where the node will run, like a
 * minibatch_size that depends on the free memory; the others have no effect in a graph. */
static void
read_rest(struct train_node *n, exo_config *train)
{
    static const char *const refused[] = {"num_epochs", "checkpoint_interval", "elastic",
                                          "correlation_interval"};
    static const char *const of_jobs[] = {"timeout", "save_dir", "final_checkpoint"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (exo_config_get(train, refused[i]))
            n->refused = refused[i];
    if (is_word(train, "minibatch_size", "auto"))
        n->refused = "minibatch_size", n->automatic = true;
    for (size_t i = 0; i < sizeof of_jobs / sizeof *of_jobs; i++)
        exo_config_get(train, of_jobs[i]);
}

static exo_status
read_train(struct train_node *n, exo_config *config, exo_err *err)
{
    exo_fit_opts *o = &n->train;
    exo_config *train = NULL;
    uint64_t batch = 0, mini = 0, val = 0;
    *o = exo_fit_opts_init();
    exo_status st = exo_config_map(config, "train", &train, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "max_steps", 0, 1, INT64_MAX, &o->max_steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "batch_size", o->batch_size, 1, UINT32_MAX, &batch, err);
    if (st == EXO_OK && !is_word(train, "minibatch_size", "auto"))
        st = exo_config_u64(train, "minibatch_size", 0, 1, UINT32_MAX, &mini, err);
    if (st == EXO_OK)
        st = exo_config_bool(train, "shuffle", o->shuffle, &o->shuffle, err);
    if (st == EXO_OK && is_word(train, "val_size", "none"))
        o->val_size = EXO_VAL_NONE;
    else if (st == EXO_OK)
        st = exo_config_u64(train, "val_size", o->val_size, 0, UINT32_MAX, &val, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "val_interval", o->val_interval, 0, INT64_MAX, &o->val_interval,
                            err);
    if (st == EXO_OK)
        st = exo_fit_read_autocast(train, &o->autocast, err);
    o->batch_size = (size_t)batch;
    o->minibatch_size = (size_t)mini;
    if (st == EXO_OK)
        st = exo_fit_check_autocast(o->autocast,
                                    exo_config_scalar(exo_config_get(config, "device")), err);
    if (st != EXO_OK)
        return st;
    read_rest(n, train);
    bool validates = o->val_size != EXO_VAL_NONE;
    exo_text_add(&n->document,
                 "\"max_steps\": %llu, \"batch_size\": %llu, \"minibatch_size\": %llu, "
                 "\"shuffle\": %s, \"autocast\": \"%s\", \"validate\": %s, \"val_size\": %llu, ",
                 (unsigned long long)(o->max_steps ? o->max_steps : 1), (unsigned long long)batch,
                 (unsigned long long)(mini ? mini : batch), o->shuffle ? "true" : "false",
                 exo_fit_autocast_name(o->autocast), validates ? "true" : "false",
                 (unsigned long long)val);
    return exo_config_finish(train, err);
}

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    struct train_node *n = self;
    exo_config *map = NULL;
    n->loss = n->val_loss = NAN;
    exo_text_add(&n->document, "{");
    exo_status st = read_named(n, config, "model", &map, err);
    if (st == EXO_OK)
        st = read_named(n, config, "data", &map, err);
    if (st == EXO_OK)
        st = read_device(n, config, err);
    if (st == EXO_OK)
        st = read_train(n, config, err);
    if (st == EXO_OK)
        st = read_strategy(n, config, err);
    if (st == EXO_OK)
        st = exo_optim_check_misplaced(config, "strategy.optimizer.", err);
    return st == EXO_OK && n->document.failed
               ? exo_fail(err, EXO_NOMEM, "no memory to describe a node")
               : st;
}

/* A job has these settings, and stands for a graph, but its nodes are not of this class. */
static exo_status
check_runs(const struct train_node *n, exo_err *err)
{
    if (n->refused)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "train.%s%s: a node of a graph does not support this setting: remove it, "
                        "or run a job with exogym run JOB.yaml",
                        n->refused, n->automatic ? ": auto" : "");
    if (n->awaits_units)
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "strategy: units are gathered by all nodes together, but each node of a graph "
            "evaluates alone: run a job with exogym run JOB.yaml");
    return n->train.max_steps > 0
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "train.max_steps is missing: a node of a graph needs it");
}

static void release(void *self);

exo_status
exo_train_node_check(exo_fit_opts *train, exo_config *config, exo_err *err)
{
    struct train_node n = {0};
    exo_config *map = exo_config_get(config, "train"), *place = map ? map : config;
    exo_status st = init(&n, config, err);
    *train = n.train;
    if (st == EXO_OK && (st = check_runs(&n, err)) != EXO_OK) {
        exo_config *key = n.refused        ? exo_config_get(map, n.refused)
                          : n.awaits_units ? exo_config_get(config, "strategy")
                                           : NULL;
        exo_config_add_place(key ? key : place, err);
        st = EXO_INVAL;
        if (err)
            err->code = st;
    }
    release(&n);
    return st;
}

/* --- A node ----------------------------------------------------------------------------------- */

static exo_time
step_cost(const exo_place *p)
{
    for (size_t i = 0; i < p->spec->num_compute; i++)
        if (strcmp(p->spec->compute[i].phase, "step") == 0)
            return p->spec->compute[i].cost;
    return -1;
}

static exo_status
open_replica(struct train_node *n, exo_graph_actor *actor, exo_err *err)
{
    exo_place *p = (exo_place *)actor; /* its first member */
    const exo_replica_place place = {.runtime = p->runtime,
                                     .self = p->self,
                                     .pace = &p->pace,
                                     .step_cost = step_cost(p),
                                     .meters = exo_graph_meters(actor)};
    exo_status st = check_runs(n, err);
    if (st != EXO_OK)
        return st;
    exo_text_add(&n->document,
                 "\"run\": \"graph %p %s\", \"rank\": %u, \"nodes\": %u, \"seed\": %llu}",
                 (void *)actor->site, p->spec->name, exo_graph_index(actor), exo_graph_count(actor),
                 (unsigned long long)exo_graph_seed(actor));
    if (n->document.failed)
        return exo_fail(err, EXO_NOMEM, "no memory to describe a node");
    return exo_replica_open(&n->replica, &place, n->document.data, err);
}

/* Makes a group of all nodes on the edge that carries `carries`. The replica owns and closes it. */
static exo_status
join(exo_graph_actor *actor, const char *carries, exo_group **out, exo_err *err)
{
    exo_group *group = exo_graph_group(actor, carries);
    uint32_t count = exo_graph_count(actor);
    if (!group)
        return exo_fail(
            err, EXO_INVAL,
            "the strategy sends %s, but no edge from these nodes to themselves carries that",
            carries);
    uint32_t *ranks = exo_calloc(count, sizeof *ranks);
    if (!ranks)
        return exo_fail(err, EXO_NOMEM, "no memory for a group of %u nodes", count);
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = i;
    exo_status st = exo_group_among(out, group, ranks, count, err);
    exo_free(ranks);
    return st;
}

static exo_status
join_all(exo_replica *r, exo_graph_actor *actor, exo_err *err)
{
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES] = {{.carries = "exchange"}};
    size_t count = 1;
    exo_strategy_edges(r->strategy, r->node.infos, r->node.num_infos, r->node.numel,
                       r->node.num_nodes, edges, &count);
    if (count == 0 || count > 2)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "the strategy uses %zu edges, but a node of a graph supports one or two",
                        count);
    exo_status st = join(actor, edges[count - 1].carries, &r->group, err);
    if (st == EXO_OK && count == 2)
        st = join(actor, edges[0].carries, &r->inside, err);
    r->node.group = r->group;
    r->node.inside = r->inside;
    return st;
}

static exo_status
evaluate(struct train_node *n, exo_err *err)
{
    exo_replica *r = n->replica;
    exo_replica_figures figures = {0};
    uint64_t interval = n->train.val_interval, step = r->node.step;
    bool due = step == r->fit->max_steps || (interval && step % interval == 0);
    if (!due || r->fit->val_count == 0)
        return EXO_OK;
    exo_status st = exo_replica_evaluate(r, false, &figures, NULL, err);
    n->val_loss = figures.loss;
    if (st == EXO_OK)
        exo_meter_set(n->meters[VAL_LOSS], figures.loss);
    return st;
}

static exo_status
train(struct train_node *n, exo_graph_actor *actor, exo_err *err)
{
    exo_replica *r = n->replica;
    exo_status st = EXO_OK;
    exo_compute_enter();
    while (st == EXO_OK && r->node.step < r->fit->max_steps) {
        float loss = 0;
        st = exo_graph_cancelled(actor) ? exo_fail(err, EXO_CANCELLED, "the run ends")
                                        : exo_replica_step(r, &loss, err);
        if (st != EXO_OK)
            break;
        n->loss = (double)loss;
        exo_meter_set(n->meters[TRAIN_LOSS], n->loss);
        exo_meter_count(n->meters[STEP], r->node.step);
        st = evaluate(n, err);
    }
    exo_compute_leave();
    return st;
}

/* --- The result ------------------------------------------------------------------------------- */

/* JSON has finite numbers only: other values become null. */
static const char *
write_figure(char out[32], double value)
{
    if (isfinite(value))
        exo_c_snprintf(out, 32, "%.9g", value);
    else
        snprintf(out, 32, "null");
    return out;
}

/* params: in host memory. */
static exo_status
write_result(const struct train_node *n, const exo_graph_actor *actor, exo_params *params,
             const char *sha256, exo_err *err)
{
    const exo_replica *r = n->replica;
    const char *folder = exo_graph_folder(actor), *name = exo_graph_name(actor);
    char path[MAX_PATH], text[512], loss[32], val_loss[32];
    if (!folder)
        return EXO_OK;
    if (strlen(folder) > MAX_PATH - 200)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", folder);
    snprintf(path, sizeof path, "%s/final_%s.json", folder, name);
    int size =
        snprintf(text, sizeof text,
                 "{\"steps\": %llu, \"train_loss\": %s, \"val_loss\": %s, \"bytes_sent\": %llu, "
                 "\"sha256\": \"%s\"}\n",
                 (unsigned long long)r->node.step, write_figure(loss, n->loss),
                 write_figure(val_loss, n->val_loss),
                 (unsigned long long)(exo_group_stats(r->group).bytes_sent +
                                      (r->inside ? exo_group_stats(r->inside).bytes_sent : 0)),
                 sha256);
    exo_status st = exo_file_write_atomic(path, text, (size_t)size, err);
    snprintf(path, sizeof path, "%s/model_%s.safetensors", folder, name);
    return st == EXO_OK && r->node.rank == 0
               ? exo_checkpoint_save_model(r->fit->model, params, exo_strategy_name(r->strategy),
                                           sha256, path, err)
               : st;
}

/* Sets the meter "fingerprint", by which two copies of a model are compared. It is a hash of the
 * parameters, short enough to be exact in a double. It also serves nodes on workers, which write no
 * files. */
static exo_status
tell_result(struct train_node *n, const exo_graph_actor *actor, exo_err *err)
{
    const exo_replica *r = n->replica;
    char sha256[65];
    unsigned long long first = 0;
    exo_params *params = NULL;
    exo_status st = exo_host_params_take(&params, r->fit->model, r->params, err);
    if (st != EXO_OK)
        return st;
    exo_sha256(exo_params_values(params), r->node.numel * sizeof(float), sha256);
    sscanf(sha256, "%12llx", &first);
    exo_meter_set(n->meters[FINGERPRINT], (double)first);
    st = write_result(n, actor, params, sha256, err);
    exo_host_params_give_back(&params, r->params);
    return st;
}

static exo_status
run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct train_node *n = self;
    uint64_t elapsed = 0;
    exo_status st =
        exo_meter_declare_all(n->meters, exo_graph_meters(actor), meter_classes, NUM_METERS, err);
    if (st == EXO_OK)
        st = open_replica(n, actor, err);
    if (st == EXO_OK)
        st = exo_graph_set_device(actor, n->replica->device, err);
    if (st == EXO_OK)
        st = join_all(n->replica, actor, err);
    if (st == EXO_OK)
        st = exo_replica_set_up(n->replica, &elapsed, err);
    if (st == EXO_OK)
        st = train(n, actor, err);
    if (st == EXO_OK)
        st = tell_result(n, actor, err);
    exo_replica_close(&n->replica); /* before the actor's groups end */
    return st;
}

static void
release(void *self)
{
    struct train_node *n = self;
    exo_free(n->document.data);
}

static void
write_device(const void *self, char *out, size_t size)
{
    snprintf(out, size, "%s", ((const struct train_node *)self)->device);
}

static const exo_graph_port ports[] = {
    {.name = "gradients", .type = "gradients", .direction = EXO_PORT_COLLECTIVE},
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_COLLECTIVE},
    {.name = "exchange",
     .type = "what a strategy sends that does not say",
     .direction = EXO_PORT_COLLECTIVE},
};

static const char *const phases[] = {"step", NULL};

const exo_graph_class exo_train_node_graph_class = {
    .name = "train_node",
    .help = "one of the nodes that train a model under a strategy; config model, data, train, "
            "strategy, device as in a job",
    .ports = ports,
    .num_ports = sizeof ports / sizeof *ports,
    .phases = phases,
    .state_size = sizeof(struct train_node),
    .init = init,
    .run = run,
    .release = release,
    .write_device = write_device,
    .order = "*(reduce gradients; reduce parameters; reduce exchange)",
};
