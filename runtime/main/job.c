/* Reads a job file into what exo_trainer_fit takes. The order is that of the file: each function below reads one part of
 * it, with defaults and ranges. Read next: run.c. */
#include "job.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/plugin.h>

#include "config_edit.h"
#include "text.h"

enum {
    MAX_NODES = 1024,
    MAX_RUNS = 256,
    MAX_LABEL = 100,
};

/* The value under `key`, or `otherwise` where it is not given: for messages, which should name the place. */
static exo_config *
value_of(exo_config *map, const char *key, exo_config *otherwise)
{
    exo_config *value = exo_config_get(map, key);
    return value ? value : otherwise;
}

/* Puts the place of `node` before a reason that has none, and keeps the code. */
static exo_status
with_place(const exo_config *node, exo_err *err)
{
    exo_err place = {0};
    exo_config_fail(node, &place, "%s", "");
    size_t source = strcspn(place.text, ":");
    if (strncmp(err->text, place.text, source) == 0 || strncmp(err->text, "--set ", 6) == 0)
        return err->code;
    exo_status code = err->code;
    char reason[EXO_ERR_TEXT];
    memcpy(reason, err->text, sizeof reason);
    exo_config_fail(node, err, "%s", reason[0] ? reason : exo_status_text(code));
    err->code = code;
    return code;
}

/* A name that becomes a folder. */
static bool
is_label(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return *text && *text != '.' && *text != '-' && strlen(text) <= MAX_LABEL && !text[strspn(text, allowed)];
}

#define LABEL_RULE "letters, digits, '_', '.' and '-', beginning with a letter, digit or '_'"

/* A misspelt key is named as such, before the key that it should be is missed. */
static exo_status
check_keys(exo_config *root, exo_err *err)
{
    static const char *const keys[] = {"exogym", "name",   "seed",  "plugins",  "model",   "data",
                                       "nodes",  "device", "train", "strategy", "compare", "presets"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        exo_config_get(root, keys[i]);
    return exo_config_finish(root, err);
}

static exo_status
apply_preset(exo_config *root, const char *name, exo_err *err)
{
    exo_config *presets = NULL, *preset = NULL, *value = NULL;
    const char *key = NULL;
    exo_status st = exo_config_map(root, "presets", &presets, err);
    if (st != EXO_OK || !name)
        return st;
    st = exo_config_has(presets, name) ? exo_config_map(presets, name, &preset, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    if (!preset) {
        exo_text names = {0};
        for (size_t i = 0; (key = exo_config_key(presets, i, NULL)); i++)
            exo_text_add(&names, "%s%s", i ? ", " : "", key);
        st = exo_fail(err, EXO_INVAL, "--preset %s: the job has no such preset; it has: %s", name,
                      names.data ? names.data : "none");
        exo_free(names.data);
        return st;
    }
    for (size_t i = 0; st == EXO_OK && (key = exo_config_key(preset, i, &value)); i++)
        st = exo_config_put(value, key, err);
    return st;
}

/* Presets are checked for form also when they are not asked for. */
static exo_status
check_presets(exo_config *root, exo_err *err)
{
    exo_config *presets = NULL, *preset = NULL;
    const char *name = NULL;
    exo_status st = exo_config_map(root, "presets", &presets, err);
    for (size_t i = 0; st == EXO_OK && (name = exo_config_key(presets, i, NULL)); i++)
        st = exo_config_map(presets, name, &preset, err);
    return st;
}

/* "name" or {name: ..., options}: *map is NULL for the first form. */
static exo_status
read_named(exo_config *root, const char *key, const char **name, exo_config **map, exo_err *err)
{
    exo_config *node = value_of(root, key, NULL);
    *map = NULL;
    if (!node)
        return exo_config_fail(root, err, "the key '%s' is missing", key);
    if (!exo_config_is_map(node)) {
        return exo_config_string(root, key, NULL, name, err);
    }
    exo_status st = exo_config_string(node, "name", NULL, name, err);
    if (st == EXO_OK && !*name)
        st = exo_config_fail(node, err, "%s: the key 'name' is missing", key);
    *map = node;
    return st;
}

static exo_status
load_plugins(exo_job *job, exo_config *root, const char *path, exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = exo_config_list(root, "plugins", &list, err);
    const char *slash = strrchr(path, '/');
    job->plugins = st == EXO_OK ? exo_calloc(exo_config_length(list) + 1, sizeof(char *)) : NULL;
    if (st == EXO_OK && !job->plugins)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(list); i++) {
        exo_config *item = exo_config_item(list, i);
        const char *file = exo_config_scalar(item);
        if (!file || !*file)
            return exo_config_fail(item, err, "plugins: expected the path of a shared object");
        exo_text full = {0};
        if (*file != '/')
            exo_text_add(&full, "%.*s/", slash ? (int)(slash - path) : 1, slash ? path : ".");
        exo_text_add(&full, "%s", file);
        st = full.failed ? exo_fail(err, EXO_NOMEM, "out of memory") : exo_plugin_load(full.data, err);
        if (st != EXO_OK) {
            st = with_place(item, err);
        } else {
            char absolute[PATH_MAX];
            job->plugins[job->num_plugins] = realpath(full.data, absolute) ? exo_strdup(absolute) : NULL;
            if (!job->plugins[job->num_plugins++])
                st = exo_fail(err, EXO_NOMEM, "out of memory");
        }
        exo_free(full.data);
    }
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
    exo_status st = exo_config_u64(train, "minibatch_size", opts->batch_size, 1, opts->batch_size, &size, err);
    if (st != EXO_OK)
        return st;
    if (opts->batch_size % size != 0)
        return exo_config_fail(node, err, "minibatch_size %" PRIu64 " does not divide batch_size %zu", size,
                               opts->batch_size);
    opts->minibatch_size = size;
    return EXO_OK;
}

static exo_status
read_autocast(exo_config *train, exo_fit_opts *opts, exo_err *err)
{
    static const char *const names[] = {"none", "bf16", "false", "true", NULL};
    size_t choice = 0;
    exo_status st = exo_config_choice(train, "autocast", 0, names, &choice, err);
    opts->autocast = choice % 2 == 1;
    return st;
}

/* The mapping `train`: defaults are those of exo_fit_opts_init. */
static exo_status
read_train(exo_config *root, exo_job *job, exo_err *err)
{
    exo_config *train = NULL;
    exo_fit_opts *o = &job->opts;
    uint64_t batch = 0, val_size = 0;
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
        st = exo_config_u64(train, "val_size", o->val_size, 0, UINT32_MAX, &val_size, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "val_interval", o->val_interval, 0, INT64_MAX, &o->val_interval, err);
    if (st == EXO_OK)
        st = read_autocast(train, o, err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "checkpoint_interval", o->checkpoint_interval, 0, INT64_MAX, &o->checkpoint_interval,
                            err);
    if (st == EXO_OK)
        st = exo_config_u64(train, "correlation_interval", o->correlation_interval, 0, INT64_MAX,
                            &o->correlation_interval, err);
    if (st == EXO_OK)
        st = exo_config_double(train, "timeout", 600, 1, 1e6, &timeout, err);
    if (st == EXO_OK)
        st = exo_config_string(train, "save_dir", o->save_dir, &job->save_dir, err);
    if (st == EXO_OK)
        st = exo_config_finish(train, err);
    o->val_size = val_size;
    o->timeout = (exo_time)(timeout * (double)EXO_SECOND);
    return st;
}

/* Everything but strategies, name and presets. */
static exo_status
read_common(exo_config *root, exo_job *job, exo_err *err)
{
    static const char *const devices[] = {"cpu", NULL};
    uint64_t version = 0, nodes = 0;
    size_t device = 0;
    exo_fit_opts *o = &job->opts;
    *o = exo_fit_opts_init();
    exo_status st = exo_config_u64(root, "exogym", 1, 1, 1, &version, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "seed", o->seed, 0, INT64_MAX, &o->seed, err);
    if (st == EXO_OK)
        st = read_named(root, "model", &job->model_name, &job->model_config, err);
    if (st == EXO_OK)
        st = read_named(root, "data", &job->data_name, &job->data_config, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "nodes", o->num_nodes, 1, MAX_NODES, &nodes, err);
    if (st == EXO_OK)
        st = exo_config_choice(root, "device", 0, devices, &device, err);
    if (st != EXO_OK)
        return st;
    o->num_nodes = (uint32_t)nodes;
    o->device = devices[device];
    return read_train(root, job, err);
}

/* The run's name: as given, else the file's without its folder and ending. */
static exo_status
read_name(exo_config *root, const char *path, const exo_job_opts *opts, exo_job *job, exo_err *err)
{
    exo_status st = exo_config_string(root, "name", NULL, &job->name, err);
    if (st != EXO_OK)
        return st;
    if (opts->name && !is_label(opts->name))
        return exo_fail(err, EXO_INVAL, "--name '%s': expected " LABEL_RULE, opts->name);
    if (job->name && !is_label(job->name))
        return exo_config_fail(value_of(root, "name", root), err, "name '%.60s': expected " LABEL_RULE, job->name);
    if (opts->name)
        job->name = opts->name;
    if (opts->save_dir)
        job->save_dir = opts->save_dir;
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    const char *dot = strrchr(file, '.');
    exo_text folder = {0};
    exo_text_add(&folder, "%s/", job->save_dir);
    size_t start = folder.length;
    if (job->name)
        exo_text_add(&folder, "%s", job->name);
    else
        exo_text_add(&folder, "%.*s", dot && dot != file ? (int)(dot - file) : (int)strlen(file), file);
    if (folder.failed) {
        exo_free(folder.data);
        return exo_fail(err, EXO_NOMEM, "out of memory");
    }
    job->folder = folder.data;
    job->name = job->folder + start;
    if (!is_label(job->name))
        return exo_config_fail(root, err, "the file's name makes no name for a run: add the key 'name'");
    return EXO_OK;
}

/* --- Strategies ------------------------------------------------------------------------------------------------------------ */

/* Fills in run `index` from `options`, the mapping of name, label and the strategy's own keys. */
static exo_status
read_run(exo_job *job, size_t index, exo_config *options, exo_err *err)
{
    exo_job_run *run = &job->runs[index];
    exo_status st = exo_config_string(options, "name", NULL, &run->strategy, err);
    if (st == EXO_OK && !run->strategy)
        st = exo_config_fail(options, err, "the strategy's 'name' is missing");
    if (st == EXO_OK)
        st = exo_config_string(options, "label", run->strategy, &run->label, err);
    if (st != EXO_OK)
        return st;
    if (!is_label(run->label))
        return exo_config_fail(value_of(options, "label", options), err, "label '%.60s': expected " LABEL_RULE,
                               run->label);
    for (size_t i = 0; i < index; i++)
        if (strcmp(job->runs[i].label, run->label) == 0)
            return exo_config_fail(options, err, "two runs are named '%s': give one of them a label", run->label);
    exo_config_remove(options, "label");
    run->options = options;

    exo_strategy *strategy = NULL;
    st = exo_strategy_new(&strategy, run->strategy, options, err);
    exo_strategy_free(&strategy);
    if (st == EXO_NOT_FOUND)
        err->code = EXO_INVAL;
    return st == EXO_OK ? EXO_OK : with_place(value_of(options, "name", options), err);
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
    if (count > MAX_RUNS)
        return exo_config_fail(compare, err, "compare: more than %d strategies", MAX_RUNS);
    job->runs = exo_calloc(count, sizeof *job->runs);
    if (!job->runs)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        exo_config *item = compare ? exo_config_item(compare, i) : shared, *options = NULL;
        if (exo_config_is_list(item))
            return exo_config_fail(item, err, "compare: expected a strategy's name or a mapping");
        st = exo_config_overlay(compare ? shared : NULL, item, &options, err);
        if (st == EXO_OK)
            st = read_run(job, i, options, err);
        job->num_runs = i + 1;
    }
    return st;
}

/* --- Model and data ---------------------------------------------------------------------------------------------------------- */

static exo_status
check_sizes(exo_config *root, const exo_job *job, exo_err *err)
{
    exo_config *train = value_of(root, "train", root);
    const exo_fit_opts *o = &job->opts;
    size_t length = exo_dataset_length(job->train), share = length / o->num_nodes;
    if (o->batch_size > share)
        return exo_config_fail(value_of(train, "batch_size", train), err,
                               "batch_size %zu is more than a node's share of the data: %zu samples on %u node%s are "
                               "%zu each",
                               o->batch_size, length, o->num_nodes, o->num_nodes == 1 ? "" : "s", share);
    size_t val_length = exo_dataset_length(job->val);
    const exo_config *val_size = value_of(train, "val_size", NULL);
    if (val_size && o->val_size > val_length)
        return exo_config_fail(val_size, err, "val_size %zu is more than the %zu samples of the validation set",
                               o->val_size, val_length);
    return EXO_OK;
}

static exo_status
open_model_and_data(exo_config *root, exo_job *job, exo_err *err)
{
    exo_status st = exo_model_new_named(&job->model, job->model_name, job->model_config, err);
    if (st == EXO_NOT_FOUND)
        err->code = EXO_INVAL;
    if (st != EXO_OK)
        return with_place(value_of(root, "model", root), err);
    st = exo_config_finish(job->model_config, err);
    if (st != EXO_OK)
        return st;
    st = exo_dataset_named(job->data_name, job->data_config, &job->train, &job->val, err);
    if (st != EXO_OK)
        return with_place(value_of(root, "data", root), err);
    st = exo_config_finish(job->data_config, err);
    return st == EXO_OK ? check_sizes(root, job, err) : st;
}

/* --- config.json ---------------------------------------------------------------------------------------------------------------- */

/* A node as JSON, or {"name": name} for the short form. Numbers of a job are written as they were meant: 15 digits. */
static json_t *
node_json(const exo_config *node, const char *name)
{
    char *text = NULL;
    json_t *value = NULL;
    if (!node)
        return json_pack("{s:s}", "name", name);
    if (exo_config_json(node, &text, NULL) == EXO_OK)
        value = json_loads(text, JSON_DECODE_ANY, NULL);
    exo_free(text);
    return value;
}

static json_t *
train_json(const exo_fit_opts *o)
{
    bool automatic = o->minibatch_size == EXO_MINIBATCH_AUTO;
    json_t *minibatch = automatic ? json_string("auto") : json_integer((json_int_t)o->minibatch_size);
    return json_pack("{s:I, s:I, s:I, s:o, s:b, s:I, s:I, s:s, s:I, s:I}", "max_steps", (json_int_t)o->max_steps,
                     "num_epochs", (json_int_t)o->num_epochs, "batch_size", (json_int_t)o->batch_size, "minibatch_size",
                     minibatch, "shuffle", o->shuffle, "val_size", (json_int_t)o->val_size, "val_interval",
                     (json_int_t)o->val_interval, "autocast", o->autocast ? "bf16" : "none", "checkpoint_interval",
                     (json_int_t)o->checkpoint_interval, "correlation_interval", (json_int_t)o->correlation_interval);
}

static int
add_to_text(const char *bytes, size_t size, void *text)
{
    exo_text_add_bytes(text, bytes, size);
    return ((exo_text *)text)->failed ? -1 : 0;
}

static exo_status
write_config(exo_job *job, exo_job_run *run, exo_err *err)
{
    exo_text text = {0};
    exo_status st = EXO_OK;
    json_t *config = json_pack(
        "{s:i, s:s, s:s, s:I, s:o, s:o, s:i, s:s, s:o, s:o}", "exogym", 1, "name", job->name, "label", run->label,
        "seed", (json_int_t)job->opts.seed, "model", node_json(job->model_config, job->model_name), "data",
        node_json(job->data_config, job->data_name), "nodes", (int)job->opts.num_nodes, "device", job->opts.device,
        "train", train_json(&job->opts), "strategy", node_json(run->options, NULL));
    if (!config || json_dump_callback(config, add_to_text, &text, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) != 0) {
        st = exo_fail(err, EXO_NOMEM, "out of memory");
        goto done;
    }
    run->config_json = text.data;
    text.data = NULL; /* moved to the run */
done:
    exo_free(text.data);
    json_decref(config);
    return st;
}

/* --- The whole -------------------------------------------------------------------------------------------------------------------- */

exo_status
exo_job_load(exo_job *job, const char *path, const exo_job_opts *opts, exo_err *err)
{
    memset(job, 0, sizeof *job);
    exo_status st = exo_config_load(&job->doc, path, err);
    if (st != EXO_OK)
        return st;
    exo_config *root = exo_config_root(job->doc);
    if (!exo_config_is_map(root))
        return exo_config_fail(root, err, "a job is a mapping: model, data, nodes, train, strategy (docs/jobs.md)");
    st = apply_preset(root, opts->preset, err);
    for (size_t i = 0; st == EXO_OK && i < opts->sets.length; i++)
        st = exo_config_set(job->doc, opts->sets.items[i], err);
    if (st == EXO_OK)
        st = check_keys(root, err);
    if (st == EXO_OK)
        st = check_presets(root, err);
    if (st == EXO_OK)
        st = read_common(root, job, err);
    if (st == EXO_OK)
        st = read_name(root, path, opts, job, err);
    if (st == EXO_OK)
        st = load_plugins(job, root, path, err);
    if (st == EXO_OK)
        st = read_strategies(root, job, err);
    if (st == EXO_OK)
        st = open_model_and_data(root, job, err);
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++)
        st = write_config(job, &job->runs[i], err);
    return st;
}

void
exo_job_release(exo_job *job)
{
    for (size_t i = 0; i < job->num_runs; i++)
        exo_free(job->runs[i].config_json);
    exo_free(job->runs);
    for (size_t i = 0; i < job->num_plugins; i++)
        exo_free(job->plugins[i]);
    exo_free(job->plugins);
    exo_free(job->folder);
    exo_dataset_drop(&job->train);
    exo_dataset_drop(&job->val);
    exo_model_drop(&job->model);
    exo_config_free(&job->doc);
    memset(job, 0, sizeof *job);
}
