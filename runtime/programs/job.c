/* Reads a job file into the options of exo_trainer_fit. The functions follow the order of the file:
 * each reads one part of it, with defaults and ranges. Read next: job_config.c (the run's
 * config.json), run.c. */
#include "programs/job.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>

#include "actor/resources.h"
#include "actors/autocast.h"
#include "actors/fit_engine.h"
#include "actors/fit_opts.h"
#include "base/config_edit.h"
#include "base/dir.h"
#include "base/input.h"
#include "base/nearest.h"
#include "nn/builtin_models.h"
#include "nn/optim_groups.h"

enum {
    MAX_NODES = 1024,
    MAX_RUNS = 256,
};

/* The value of `key`, or `otherwise` if it is absent. Messages use the value for its place in the
 * file. */
static exo_config *
value_of(exo_config *map, const char *key, exo_config *otherwise)
{
    exo_config *value = exo_config_get(map, key);
    return value ? value : otherwise;
}

/* Checks that a mapping above the strategies' has none of their keys. */
static exo_status
check_no_strategy_keys(exo_config *map, exo_err *err)
{
    static const char *const strategy[] = {
        "optimizer", "lr_scheduler", "warmup_steps", "cosine_anneal", "max_norm", "H", "offset",
        NULL};
    exo_status st = exo_config_check_misplaced(map, strategy, "strategy.", err);
    return st == EXO_OK ? exo_optim_check_misplaced(map, "strategy.optimizer.", err) : st;
}

/* Checks for unknown keys first, so that a misspelt key is reported as such and not as a missing
 * one. */
static exo_status
check_keys(exo_config *root, exo_err *err)
{
    static const char *const keys[] = {
        "exogym", "name", "seed", "seeds", "plugins", "model", "data", "nodes", "device",
        "resources", "engine", "engine_suspends", "equal_bits", "collectives", "parallel", "train",
        "strategy", "compare", "presets", "clock", "hosts", "links", "compute", "edges", "failures",
        /* the last: what a run recorded in its config.json */
        "changes"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        exo_config_get(root, keys[i]);
    static const char *const train[] = {"max_steps",
                                        "num_epochs",
                                        "batch_size",
                                        "minibatch_size",
                                        "shuffle",
                                        "val_size",
                                        "val_interval",
                                        "autocast",
                                        "checkpoint_interval",
                                        "correlation_interval",
                                        "timeout",
                                        "save_dir",
                                        "final_checkpoint",
                                        "elastic",
                                        NULL};
    exo_status st = exo_config_check_misplaced(root, train, "train.", err);
    if (st == EXO_OK)
        st = check_no_strategy_keys(root, err);
    return st == EXO_OK ? exo_config_finish(root, err) : st;
}

/* The copies of the model: the nodes, or the groups that share one. */
static uint32_t
num_copies(const exo_job *job)
{
    const exo_fit_opts *o = &job->opts;
    return o->num_nodes / (o->tensor > 1 ? o->tensor : 1) / (o->pipeline > 1 ? o->pipeline : 1) /
           (o->context_parallel > 1 ? o->context_parallel : 1);
}

/* Reads "name" or {name: ..., options}. *map is a mapping in both cases. */
static exo_status
read_named(exo_config *root, const char *key, const char **name, exo_config **map, exo_err *err)
{
    exo_config *node = value_of(root, key, NULL);
    exo_status st = EXO_OK;
    *map = NULL;
    if (!node)
        return exo_config_fail(root, err, "the key '%s' is missing", key);
    if (!exo_config_is_map(node))
        st = exo_config_string(root, key, NULL, name, err);
    if (st == EXO_OK)
        st = exo_config_stand_in(root, key, map, err);
    if (st == EXO_OK)
        st = exo_config_string(*map, "name", NULL, name, err);
    if (st == EXO_OK && !*name)
        st = exo_config_fail(node, err, "%s: the key 'name' is missing", key);
    const exo_config *path = st == EXO_OK ? exo_config_peek(*map, "path") : NULL;
    const char *text = exo_config_scalar(path);
    if (text && text[0] == '\0') /* with a file's name behind it, it would be the root */
        st = exo_config_fail(path, err, "path is empty: name a file or folder, or leave it out");
    return st;
}

static exo_status
read_minibatch(exo_config *train, exo_fit_opts *opts, exo_err *err)
{
    exo_config *node = value_of(train, "minibatch_size", NULL);
    const char *word = exo_config_scalar(node);
    if (word && strcmp(word, "auto") == 0) {
        opts->minibatch_size = EXO_MINIBATCH_AUTO;
        return EXO_OK;
    }
    uint64_t size = 0;
    exo_status st =
        exo_config_u64(train, "minibatch_size", opts->batch_size, 1, opts->batch_size, &size, err);
    if (st != EXO_OK)
        return st;
    if (opts->batch_size % size != 0)
        return exo_config_fail(node, err,
                               "minibatch_size %" PRIu64 " does not divide batch_size %zu", size,
                               opts->batch_size);
    opts->minibatch_size = size;
    return EXO_OK;
}

static exo_status
read_val_size(exo_config *train, exo_fit_opts *opts, exo_err *err)
{
    const char *word = exo_config_scalar(value_of(train, "val_size", NULL));
    uint64_t size = 0;
    if (word && strcmp(word, "none") == 0) {
        opts->val_size = EXO_VAL_NONE;
        return EXO_OK;
    }
    exo_status st = exo_config_u64(train, "val_size", opts->val_size, 0, UINT32_MAX, &size, err);
    opts->val_size = size;
    return st;
}

/* Checks that `train` has no keys of the whole job or of a strategy. */
static exo_status
check_train_keys(exo_config *train, exo_err *err)
{
    static const char *const job[] = {
        "nodes",      "seed",        "seeds",    "model",     "data",
        "device",     "name",        "plugins",  "engine",    "engine_suspends",
        "equal_bits", "collectives", "parallel", "resources", NULL};
    exo_status st = check_no_strategy_keys(train, err);
    for (size_t i = 0; st == EXO_OK && job[i]; i++)
        if (exo_config_has(train, job[i]))
            st = exo_config_fail(exo_config_get(train, job[i]), err,
                                 "unknown key '%s'; it stands beside 'train', not in it", job[i]);
    return st == EXO_OK ? exo_config_finish(train, err) : st;
}

static exo_status
read_elastic(exo_config *train, exo_elastic *out, exo_err *err)
{
    exo_config *map = NULL;
    uint64_t nodes = 0;
    exo_status st = exo_config_map(train, "elastic", &map, err);
    if (!map)
        return st;
    if (st == EXO_OK)
        st = exo_config_u64(map, "min_nodes", 1, 1, UINT32_MAX, &nodes, err);
    if (st == EXO_OK)
        st = exo_config_time(map, "grace", 10 * EXO_SECOND, EXO_MS, INT64_MAX, &out->grace, err);
    if (st == EXO_OK)
        st = exo_config_time(map, "silence", 10 * EXO_SECOND, EXO_SECOND, INT64_MAX, &out->silence,
                             err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "verify", false, &out->verify, err);
    out->min_nodes = (uint32_t)nodes;
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

static exo_status
read_failures(exo_config *root, exo_failures *out, exo_err *err)
{
    exo_config *map = NULL;
    exo_status st = exo_config_map(root, "failures", &map, err);
    if (!map)
        return st;
    if (st == EXO_OK && !exo_config_has(map, "mean_time_between"))
        st = exo_config_fail(map, err, "failures: the key 'mean_time_between' is missing");
    if (st == EXO_OK)
        st = exo_config_time(map, "mean_time_between", 0, EXO_MS, INT64_MAX,
                             &out->mean_time_between, err);
    if (st == EXO_OK)
        st = exo_config_time(map, "repair", 60 * EXO_SECOND, 0, INT64_MAX, &out->repair, err);
    if (st == EXO_OK)
        st = exo_config_time(map, "detection", 10 * EXO_SECOND, 0, INT64_MAX, &out->detection, err);
    if (st == EXO_OK)
        st = exo_config_time(map, "restart", 60 * EXO_SECOND, 0, INT64_MAX, &out->restart, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "seed", 1, 0, INT64_MAX, &out->seed, err);
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

/* Reads the mapping `train`. Its defaults are those of exo_fit_opts_init. */
static exo_status
read_train(exo_config *root, exo_job *job, exo_err *err)
{
    exo_config *train = NULL;
    exo_fit_opts *o = &job->opts;
    uint64_t batch = 0;
    double timeout = 0;
    exo_status st = exo_config_map(root, "train", &train, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "max_steps", o->max_steps, 1, INT64_MAX, &o->max_steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "num_epochs", o->num_epochs, 1, INT32_MAX, &o->num_epochs, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "batch_size", o->batch_size, 1, UINT32_MAX, &batch, err);
    if (st != EXO_OK)
        return st;
    o->batch_size = batch;
    st = read_minibatch(train, o, err);
    if (st == EXO_OK)
        st = exo_config_bool(train, "shuffle", o->shuffle, &o->shuffle, err);
    if (st == EXO_OK)
        st = read_val_size(train, o, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "val_interval", o->val_interval, 0, INT64_MAX, &o->val_interval,
                            err);
    if (st == EXO_OK)
        st = exo_fit_read_autocast(train, &o->autocast, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "checkpoint_interval", o->checkpoint_interval, 0, INT64_MAX,
                            &o->checkpoint_interval, err);
    if (st == EXO_OK)
        st = exo_config_bool(train, "final_checkpoint", o->final_checkpoint, &o->final_checkpoint,
                             err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "correlation_interval", o->correlation_interval, 0, INT64_MAX,
                            &o->correlation_interval, err);
    if (st == EXO_OK)
        st = exo_config_double(train, "timeout", 600, 1, 1e6, &timeout, err);
    if (st == EXO_OK)
        st = read_elastic(train, &o->elastic, err);
    if (st == EXO_OK)
        st = exo_config_string(train, "save_dir", o->save_dir, &job->save_dir, err);
    if (st == EXO_OK && job->save_dir[0] == '\0')
        st = exo_config_fail(exo_config_get(train, "save_dir"), err,
                             "save_dir is empty: give a folder, or leave it out for '%s'",
                             o->save_dir);
    if (st == EXO_OK)
        st = check_train_keys(train, err);
    o->timeout = (exo_time)rint(timeout * (double)EXO_SECOND);
    return st;
}

/* Makes the data of one node: a factory, so that each node has a data set of its own. */
static exo_status
make_part(void *context, uint32_t rank, uint32_t num_nodes, bool train, exo_dataset **out,
          exo_err *err)
{
    const exo_job *job = context;
    if (train)
        return exo_dataset_split(out, job->train, rank, num_nodes, err);
    *out = job->val ? exo_dataset_hold(job->val) : NULL;
    return EXO_OK;
}

/* Reads `data`: its name and `split_by_node`. The other keys belong to the data set. */
static exo_status
read_data(exo_config *root, exo_job *job, exo_err *err)
{
    bool split = false;
    exo_status st = read_named(root, "data", &job->data_name, &job->data_config, err);
    if (st == EXO_OK)
        st = exo_config_bool(job->data_config, "split_by_node", false, &split, err);
    if (st == EXO_OK && split)
        job->opts.factory = (exo_dataset_factory){.make = make_part, .context = job};
    return st;
}

/* Reads all keys except the strategies, the name and the presets. */
static exo_status
read_common(exo_config *root, exo_job *job, exo_err *err)
{
    uint64_t version = 0, nodes = 0;
    bool equal_bits = true;
    exo_resource *resources = NULL;
    exo_fit_opts *o = &job->opts;
    *o = exo_fit_opts_init();
    exo_status st = exo_config_u64(root, "exogym", 1, 1, 1, &version, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "seed", o->seed, 0, INT64_MAX, &o->seed, err);
    if (st == EXO_OK)
        st = exo_job_read_seeds(root, job, err);
    if (st == EXO_OK)
        st = read_named(root, "model", &job->model_name, &job->model_config, err);
    if (st == EXO_OK)
        st = read_data(root, job, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "nodes", o->num_nodes, 1, MAX_NODES, &nodes, err);
    if (st == EXO_OK)
        st = exo_config_string(root, "device", "cpu", &o->device, err);
    if (st == EXO_OK)
        st = exo_needs_read(root, &resources, &o->num_resources, err);
    if (st == EXO_OK)
        st = exo_config_string(root, "engine", "auto", &o->engine, err);
    if (st == EXO_OK)
        st = exo_config_bool(root, "engine_suspends", false, &o->engine_suspends, err);
    if (st == EXO_OK)
        st = exo_config_bool(root, "equal_bits", true, &equal_bits, err);
    if (st == EXO_OK)
        st = exo_job_read_collectives(root, job, err);
    if (st != EXO_OK)
        return st;
    o->resources = resources;
    o->num_nodes = (uint32_t)nodes;
    o->any_bits = !equal_bits;
    st = exo_job_read_parallel(root, job, err);
    if (st == EXO_OK)
        st = read_failures(root, &job->opts.failures, err);
    if (st == EXO_OK)
        st = read_train(root, job, err);
    return st == EXO_OK ? exo_job_cut_batch(root, job, err) : st;
}

/* Adds the place of a key's wrong value to an error. */
static exo_status
fail_at(exo_config *root, const char *key, exo_err *err)
{
    if (err)
        err->code = EXO_INVAL;
    return exo_config_add_place(value_of(root, key, root), err);
}

/* Checks the engine. The plugins are loaded by then. Conditions that depend on the graph or the
 * workers are checked when the run begins. */
static exo_status
check_engine(exo_config *root, const exo_job *job, exo_err *err)
{
    const exo_engine_class *engine = NULL;
    const char *clock = exo_config_scalar(exo_config_get(root, "clock"));
    const exo_comm_engine_use use = {.emulated = exo_config_has(root, "links") ||
                                                 exo_config_has(root, "hosts") ||
                                                 (clock && strcmp(clock, "virtual") == 0)};
    exo_status st = exo_comm_find_engine(&engine, job->opts.engine, !job->opts.any_bits, err);
    if (st == EXO_OK && exo_comm_is_foreign(engine) && use.emulated)
        st = exo_comm_check_engine(engine, &use, err);
    if (st != EXO_OK)
        return fail_at(root, "engine", err);
    st = exo_fit_check_suspends(engine, &job->opts, err);
    return st == EXO_OK ? exo_job_check_collectives(root, job, engine, err)
                        : fail_at(root, "engine_suspends", err);
}

static exo_status
check_device(exo_config *root, const exo_job *job, exo_err *err)
{
    const char *device = job->opts.device;
    if (exo_device_check(device, err) != EXO_OK)
        return fail_at(root, "device", err);
    if (exo_fit_check_autocast(job->opts.autocast, device, err) != EXO_OK)
        return fail_at(root, "train", err);
    if (job->opts.minibatch_size != EXO_MINIBATCH_AUTO || strncmp(device, "cuda", 4) != 0)
        return EXO_OK;
    exo_fail(err, EXO_UNSUPPORTED,
             "train.minibatch_size: auto knows the memory of the host, not that of a GPU: give a "
             "number");
    return fail_at(root, "train", err);
}

/* Determines the run's name: the given one, else the file's name without folder and ending. */
static exo_status
read_name(exo_config *root, const char *path, const exo_job_opts *opts, exo_job *job, exo_err *err)
{
    exo_status st = exo_config_string(root, "name", NULL, &job->name, err);
    if (st != EXO_OK)
        return st;
    if (!job->name && !opts->name && exo_input_is_unnamed(path))
        return exo_config_fail(
            root, err,
            "a job that is read from a pipe needs a name: add the key 'name', or give --name");
    if (opts->name && !exo_config_is_label(opts->name))
        return exo_fail(err, EXO_INVAL, "--name '%.60s': expected " EXO_LABEL_RULE, opts->name);
    if (job->name && !exo_config_is_label(job->name))
        return exo_config_fail(value_of(root, "name", root), err,
                               "name '%.60s': expected " EXO_LABEL_RULE, job->name);
    if (opts->name)
        job->name = opts->name;
    if (opts->save_dir)
        job->save_dir = opts->save_dir;
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    const char *dot = strrchr(file, '.');
    job->folder =
        job->name ? exo_text_make(err, "%s/%s", job->save_dir, job->name)
                  : exo_text_make(err, "%s/%.*s", job->save_dir,
                                  dot && dot != file ? (int)(dot - file) : (int)strlen(file), file);
    if (!job->folder)
        return EXO_NOMEM;
    job->name = job->folder + strlen(job->save_dir) + 1;
    if (!exo_config_is_label(job->name))
        return exo_config_fail(root, err,
                               "the file's name makes no name for a run: add the key 'name'");
    /* a copied folder may contain symbolic links at paths that the run writes to */
    return exo_dir_guard(job->folder, err);
}

/* --- Strategies ------------------------------------------------------------------------------- */

/* Adds the job's suffix to the label of a strategy, which is its name unless it is given. */
static exo_status
add_suffix(const exo_job *job, exo_config *options, const char **label, exo_err *err)
{
    if (!job->suffix)
        return EXO_OK;
    char *text = exo_text_make(err, "%s%s", *label, job->suffix);
    exo_config_remove(options, "label");
    exo_status st = text ? exo_config_graft_string(options, "label", text, err) : EXO_NOMEM;
    exo_free(text);
    return st == EXO_OK ? exo_config_string(options, "label", NULL, label, err) : st;
}

static exo_status
fail_nameless(exo_config *options, exo_err *err)
{
    exo_nearest nearest = {.word = "name"};
    const char *key = NULL;
    for (size_t i = 0; (key = exo_config_key(options, i, NULL)); i++)
        exo_nearest_try(&nearest, key);
    return exo_nearest_name(&nearest)
               ? exo_config_fail(options, err,
                                 "the strategy's 'name' is missing; does '%s' stand for it?",
                                 nearest.name)
               : exo_config_fail(options, err, "the strategy's 'name' is missing");
}

/* Adds the runs of a strategy, one per seed. options: the mapping with the strategy's name, label
 * and own keys. */
static exo_status
read_group(exo_job *job, exo_config *options, exo_err *err)
{
    exo_job_run *run = &job->runs[job->num_runs];
    exo_status st = exo_config_string(options, "name", NULL, &run->strategy, err);
    if (st == EXO_OK && !run->strategy)
        st = fail_nameless(options, err);
    if (st == EXO_OK)
        st = exo_config_string(options, "label", NULL, &run->group, err);
    if (st != EXO_OK)
        return st;
    run->group = run->group ? run->group : run->strategy;
    st = add_suffix(job, options, &run->group, err);
    if (st != EXO_OK)
        return st;
    if (!exo_config_is_label(run->group))
        return exo_config_fail(value_of(options, "label", options), err,
                               "label '%.60s': expected " EXO_LABEL_RULE, run->group);
    run->options = options;
    const exo_job_run first = *run;
    for (size_t k = 0; st == EXO_OK && k < job->num_seeds; k++) {
        run = &job->runs[job->num_runs++];
        *run = first;
        st = exo_job_label_seed(job, run, k, err);
        for (size_t i = 0; st == EXO_OK && i + 1 < job->num_runs; i++)
            if (strcmp(job->runs[i].label, run->label) == 0)
                st = exo_config_fail(
                    options, err, "two runs are named '%s': give one of them a label",
                    strcmp(job->runs[i].group, run->group) == 0 ? run->group : run->label);
    }
    if (st != EXO_OK)
        return st;
    exo_config_remove(options, "label");

    exo_strategy *strategy = NULL;
    st = exo_strategy_new(&strategy, run->strategy, options, err);
    if (st == EXO_OK)
        st = exo_strategy_check(strategy, num_copies(job), err);
    const bool good = st == EXO_OK;
    if (good && job->opts.engine_suspends)
        st = exo_fit_check_rests(strategy, run->strategy, err);
    exo_strategy_free(&strategy);
    if (st == EXO_NOT_FOUND || (good && st != EXO_OK))
        err->code = EXO_INVAL;
    return st == EXO_OK ? EXO_OK : exo_config_add_place(value_of(options, "name", options), err);
}

/* Refuses an override of a key of `strategy` that each entry of `compare` has itself: it would have
 * no effect. */
static exo_status
check_overrides(exo_config *shared, exo_config *compare, exo_err *err)
{
    exo_config *value = NULL;
    const char *key;
    for (size_t i = 0; (key = exo_config_key(shared, i, &value)); i++) {
        const exo_config *set = exo_config_find_set(value);
        bool taken = !set;
        for (size_t k = 0; !taken && k < exo_config_length(compare); k++) {
            const exo_config *item = exo_config_item(compare, k);
            taken = exo_config_is_map(item) ? !exo_config_has(item, key) : strcmp(key, "name") != 0;
        }
        if (!taken)
            return exo_config_fail(
                set, err, "strategy.%s has no effect: each entry of 'compare' has its own", key);
    }
    return EXO_OK;
}

static exo_status
read_strategies(exo_config *root, exo_job *job, exo_err *err)
{
    exo_config *shared = value_of(root, "strategy", NULL), *compare = NULL;
    exo_status st = exo_config_list(root, "compare", &compare, err);
    if (st != EXO_OK)
        return st;
    if (!shared && !compare)
        return exo_config_fail(root, err, "the key 'strategy' or 'compare' is missing");
    if (compare && shared && !exo_config_is_map(shared))
        return exo_config_fail(shared, err,
                               "strategy: with 'compare' it holds the options that all share: "
                               "expected a mapping");
    size_t count = compare ? exo_config_length(compare) : 1;
    if (count == 0)
        return exo_config_fail(compare, err, "compare: the list is empty");
    if (count > MAX_RUNS / job->num_seeds)
        return exo_config_fail(compare, err,
                               "compare: more than %d runs: %zu strategies with %zu seed%s each",
                               MAX_RUNS, count, job->num_seeds, job->num_seeds == 1 ? "" : "s");
    st = compare && shared ? check_overrides(shared, compare, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    job->runs = exo_calloc(count * job->num_seeds, sizeof *job->runs);
    if (!job->runs)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        exo_config *item = compare ? exo_config_item(compare, i) : shared, *options = NULL;
        if (exo_config_is_list(item))
            return exo_config_fail(item, err, "compare: expected a strategy's name or a mapping");
        st = exo_config_overlay(compare ? shared : NULL, item, &options, err);
        if (st == EXO_OK)
            st = read_group(job, options, err);
    }
    return st;
}

/* --- Model and data --------------------------------------------------------------------------- */

/* Does the model have a `vocabulary`? It is the data's, unless the job gives one, directly or by
 * the `path` of a trained model. */
static bool
takes_vocabulary(const exo_job *job)
{
    const exo_model_class *c = exo_registry_find(&exo_model_registry, job->model_name);
    return c && c->takes_vocabulary;
}

/* With split_by_node: checks that each node's part holds at least one batch. */
static exo_status
check_parts(exo_config *root, const exo_job *job, exo_err *err)
{
    exo_config *train = value_of(root, "train", root);
    const exo_fit_opts *o = &job->opts;
    for (uint32_t r = 0; r < num_copies(job); r++) {
        exo_dataset *part = NULL;
        exo_status st = exo_dataset_split(&part, job->train, r, num_copies(job), err);
        if (st != EXO_OK)
            return exo_config_add_place(value_of(root, "data", root), err);
        size_t length = exo_dataset_length(part);
        exo_dataset_drop(&part);
        if (o->batch_size > length)
            return exo_config_fail(
                value_of(train, "batch_size", train), err,
                "batch_size %zu is more than node_%u's part of the data: %zu sample%s",
                o->batch_size, r, length, length == 1 ? "" : "s");
    }
    return EXO_OK;
}

static exo_status
check_sizes(exo_config *root, const exo_job *job, exo_err *err)
{
    exo_config *train = value_of(root, "train", root);
    const exo_fit_opts *o = &job->opts;
    size_t length = exo_dataset_length(job->train), share = length / num_copies(job);
    if (o->factory.make) {
        exo_status st = check_parts(root, job, err);
        if (st != EXO_OK)
            return st;
    } else if (o->batch_size > share) {
        return exo_config_fail(
            value_of(train, "batch_size", train), err,
            "batch_size %zu is more than a node's share of the data: %zu sample%s on %u node%s are "
            "%zu each",
            o->batch_size, length, length == 1 ? "" : "s", o->num_nodes,
            o->num_nodes == 1 ? "" : "s", share);
    }
    return EXO_OK;
}

static bool
has_tokens(const exo_dataset *data, exo_field *out)
{
    exo_field fields[EXO_MAX_FIELDS];
    size_t count = exo_dataset_fields(data, fields);
    for (size_t i = 0; i < count; i++)
        if (fields[i].name && strcmp(fields[i].name, "tokens") == 0) {
            *out = fields[i];
            return true;
        }
    return false;
}

/* Gives the data's vocabulary to the model. It is written to the document, so that this process's
 * model, the workers' models and config.json agree. */
static exo_status
give_vocabulary(exo_config *root, exo_job *job, exo_err *err)
{
    char text[24];
    exo_config *model = job->model_config;
    size_t vocabulary = exo_dataset_vocabulary(job->train);
    exo_field tokens;
    exo_status st = EXO_OK;
    if (vocabulary == 0 && has_tokens(job->train, &tokens))
        return exo_config_fail(
            value_of(root, "model", root), err,
            "vocabulary is missing: files of bare tokens do not say theirs; give the model's, "
            "vocabulary: N, or the data's tokenizer");
    if (vocabulary == 0)
        return EXO_OK;
    /* expand the short form to a mapping */
    if (!exo_config_is_map(value_of(root, "model", NULL))) {
        st = exo_config_overlay(NULL, value_of(root, "model", NULL), &model, err);
        exo_config_remove(root, "model");
        if (st == EXO_OK)
            st = exo_config_adopt(root, "model", model, err);
        if (st == EXO_OK)
            st = read_named(root, "model", &job->model_name, &job->model_config, err);
    }
    snprintf(text, sizeof text, "%zu", vocabulary);
    return st == EXO_OK ? exo_config_graft_text(model, "vocabulary", text, err) : st;
}

/* Checks a vocabulary that the job gives: it may be larger than the data's, but not smaller. */
static exo_status
check_vocabulary(const exo_job *job, exo_err *err)
{
    size_t needed = exo_dataset_vocabulary(job->train);
    uint64_t given = needed;
    if (!takes_vocabulary(job) || !exo_config_has(job->model_config, "vocabulary"))
        return EXO_OK;
    exo_status st =
        exo_config_u64(job->model_config, "vocabulary", needed, 1, UINT64_MAX, &given, err);
    if (st == EXO_OK && given < needed)
        st = exo_config_fail(exo_config_get(job->model_config, "vocabulary"), err,
                             "vocabulary %" PRIu64 " is less than that of the data, %zu", given,
                             needed);
    return st;
}

/* Checks that a decoder gets sequences of tokens that are no longer than its context. */
static exo_status
check_sequences(exo_config *root, const exo_job *job, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(job->model);
    exo_config *data = value_of(root, "data", root);
    exo_field tokens;
    if (!spec)
        return EXO_OK;
    if (!has_tokens(job->train, &tokens))
        return exo_config_fail(data, err, "'%s' has no tokens: the model '%s' trains on texts",
                               job->data_name, job->model_name);
    if (tokens.num_dims == 1 && tokens.dims[0] > spec->context)
        return exo_config_fail(value_of(job->data_config, "block", data), err,
                               "block %zu is more than the model's context, %zu", tokens.dims[0],
                               spec->context);
    exo_status st = exo_dataset_check_tokens(job->train, spec->vocabulary, err);
    if (st == EXO_OK && job->val)
        st = exo_dataset_check_tokens(job->val, spec->vocabulary, err);
    return st == EXO_OK ? EXO_OK : exo_config_add_place(data, err);
}

static exo_status
open_model(exo_config *root, exo_job *job, exo_err *err)
{
    exo_status st = exo_model_new_named(&job->model, job->model_name, job->model_config, err);
    bool from_folder = exo_config_has(job->model_config, "path");
    if (st == EXO_NOT_FOUND && !from_folder) /* the model's name is unknown */
        err->code = EXO_INVAL;
    if (st != EXO_OK)
        return exo_config_add_place(value_of(root, "model", root), err);
    if (!exo_model_objective(job->model))
        return exo_config_fail(
            value_of(root, "model", root), err,
            "the model '%s' has no objective: programs train it, and jobs cannot", job->model_name);
    return exo_config_finish(job->model_config, err);
}

static exo_status
open_data(exo_config *root, exo_job *job, exo_err *err)
{
    bool validates = job->opts.val_size != EXO_VAL_NONE;
    exo_status st = exo_dataset_named(job->data_name, job->data_config, &job->train,
                                      validates ? &job->val : NULL, err);
    if (st != EXO_OK)
        return exo_config_add_place(value_of(root, "data", root), err);
    return exo_config_finish(job->data_config, err);
}

/* Checks the strategies against the model, such as a parameter group whose pattern matches no
 * parameter, and against `elastic`. */
static exo_status
check_strategies(exo_config *root, const exo_job *job, exo_err *err)
{
    exo_config *train = value_of(root, "train", root);
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++) {
        exo_config *options = job->runs[i].options;
        exo_strategy *strategy = NULL;
        st = exo_strategy_new(&strategy, job->runs[i].strategy, options, err);
        if (st == EXO_OK)
            st = exo_strategy_check_model(strategy, job->model, err);
        if (st != EXO_OK)
            st = exo_config_add_place(value_of(options, "optimizer", options), err);
        else if (exo_fit_check_elastic(&job->opts, strategy, job->runs[i].strategy, err) != EXO_OK)
            st = fail_at(train, "elastic", err);
        exo_strategy_free(&strategy);
    }
    return st;
}

/* Checks `failures` against the clock, which the graphs have. */
static exo_status
check_failures(exo_config *root, const exo_job *job, exo_err *err)
{
    exo_status st = exo_fit_check_failures(&job->opts, job->runs[0].graph, err);
    return st == EXO_OK ? EXO_OK : fail_at(root, "failures", err);
}

/* Rehearses a pass of one sample, so that a model whose layers or classes do not fit the data is
 * found before an earlier run's folder is touched. Memory is another matter. */
static exo_status
check_pass(exo_config *root, const exo_job *job, exo_err *err)
{
    const exo_pass pass = {.train = true};
    exo_pass_memory memory;
    exo_err reason = {0};
    exo_status st = exo_model_pass_memory(job->model, &pass, job->train, 1, &memory, &reason);
    if (st == EXO_OK && job->val && !exo_decoder_spec_of(job->model)) /* may have further labels */
        st = exo_model_pass_memory(job->model, &pass, job->val, 1, &memory, &reason);
    if (st == EXO_OK || st == EXO_NOMEM)
        return EXO_OK;
    return exo_config_fail(value_of(root, "model", root), err,
                           "the model '%s' does not fit the samples of '%s': %s", job->model_name,
                           job->data_name, reason.text);
}

/* Opens the model first, because its mistakes show at once, unless it needs the data's
 * vocabulary. */
static exo_status
open_model_and_data(exo_config *root, exo_job *job, exo_err *err)
{
    const exo_config *model = job->model_config;
    bool says = model && (exo_config_has(model, "vocabulary") || exo_config_has(model, "path"));
    bool waits = takes_vocabulary(job) && !says;
    exo_status st = waits ? open_data(root, job, err) : EXO_OK;
    if (st == EXO_OK && waits)
        st = give_vocabulary(root, job, err);
    if (st == EXO_OK)
        st = open_model(root, job, err);
    if (st == EXO_OK && !waits)
        st = open_data(root, job, err);
    if (st == EXO_OK)
        st = check_vocabulary(job, err);
    if (st == EXO_OK)
        st = check_sequences(root, job, err);
    if (st == EXO_OK)
        st = check_sizes(root, job, err);
    return st == EXO_OK ? check_pass(root, job, err) : st;
}

/* The number of samples of the node that has the fewest. */
static size_t
smallest_share(const exo_job *job)
{
    const exo_fit_opts *o = &job->opts;
    size_t share = exo_dataset_length(job->train) / num_copies(job);
    /* split_by_node: check_parts has already checked each part */
    for (uint32_t r = 0; o->factory.make && r < num_copies(job); r++) {
        exo_dataset *part = NULL;
        size_t length = exo_dataset_split(&part, job->train, r, num_copies(job), NULL) == EXO_OK
                            ? exo_dataset_length(part)
                            : 0;
        share = r == 0 || length < share ? length : share;
        exo_dataset_drop(&part);
    }
    return share;
}

uint64_t
exo_job_steps(const exo_job *job)
{
    const exo_fit_opts *o = &job->opts;
    return o->max_steps ? o->max_steps
                        : o->num_epochs * (uint64_t)(smallest_share(job) / o->batch_size);
}

/* --- The whole job ---------------------------------------------------------------------------- */

exo_status
exo_job_from(exo_job *job, exo_config_doc **doc, const exo_job_opts *opts, exo_err *err)
{
    *job = (exo_job){.doc = *doc, .suffix = opts->suffix};
    *doc = NULL;
    exo_config *root = exo_config_root(job->doc);
    const char *path = exo_config_source(root);
    if (!exo_config_is_map(root))
        return exo_config_fail(
            root, err, "a job is a mapping: model, data, nodes, train, strategy (docs/jobs.md)");
    exo_status st = exo_config_apply_preset(root, opts->preset, "job", err);
    for (size_t i = 0; st == EXO_OK && i < opts->sets.length; i++)
        st = exo_config_set(job->doc, opts->sets.items[i], err);
    if (st == EXO_OK)
        st = exo_job_take_wrapping(job->doc, err);
    if (st == EXO_OK)
        st = exo_job_choose_parallel(job, err);
    if (st == EXO_OK)
        st = check_keys(root, err);
    if (st == EXO_OK)
        st = exo_config_check_presets(root, err);
    if (st == EXO_OK)
        st = read_common(root, job, err);
    if (st == EXO_OK)
        st = read_name(root, path, opts, job, err);
    if (st == EXO_OK)
        st = exo_config_plugins(root, &job->plugins, &job->num_plugins, err);
    if (st == EXO_OK)
        st = check_device(root, job, err);
    if (st == EXO_OK)
        st = check_engine(root, job, err);
    if (st == EXO_OK)
        st = read_strategies(root, job, err);
    if (st == EXO_OK)
        st = open_model_and_data(root, job, err);
    if (st == EXO_OK)
        st = check_strategies(root, job, err);
    if (st == EXO_OK)
        st = exo_job_make_graphs(job, err);
    if (st == EXO_OK)
        st = check_failures(root, job, err);
    return st == EXO_OK ? exo_job_check_parallel(job, err) : st;
}

void
exo_job_release(exo_job *job)
{
    for (size_t i = 0; i < job->num_runs; i++) {
        exo_graph_spec_free(&job->runs[i].graph);
        exo_free(job->runs[i].config_json);
        exo_config_free(&job->runs[i].config);
        exo_free(job->runs[i].own_label);
    }
    exo_free(job->runs);
    exo_free(job->seeds);
    exo_free(job->chosen);
    exo_free(job->folder);
    exo_dataset_drop(&job->train);
    exo_dataset_drop(&job->val);
    exo_model_drop(&job->model);
    exo_config_free(&job->doc);
    memset(job, 0, sizeof *job);
}
