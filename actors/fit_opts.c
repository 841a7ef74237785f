/* The options of a fit. No state; the trainer's thread. */
#include "actors/fit_opts.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "actors/autocast.h"
#include "actors/fit.h"
#include "comm/encode.h"
#include "report/json_text.h"

enum {
    MARKED = 8, /* samples by which data sets are told apart */
    MARK = 48   /* bytes of the mark, with its NUL */
};

exo_fit_opts
exo_fit_opts_init(void)
{
    return (exo_fit_opts){
        .num_nodes = 1,
        .device = "cpu",
        .num_epochs = 1,
        .batch_size = 16,
        .shuffle = true,
        .val_size = 64,
        .val_interval = 100,
        .final_checkpoint = true,
        .save_dir = "runs",
        .seed = 42,
    };
}

/* The name of a run becomes the name of its folder. */
static bool
is_file_name(const char *name)
{
    return name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           !strchr(name, '/');
}

/* The key with which nodes cannot have parts of a model yet; NULL: there is none. */
static const char *
not_with_parts(const exo_fit_opts *opts)
{
    if (opts->elastic.min_nodes > 0)
        return "train.elastic";
    if (opts->failures.mean_time_between > 0)
        return "failures";
    return opts->correlation_interval > 0 ? "train.correlation_interval" : NULL;
}

/* The key by which nodes share copies of the model, for messages. */
static const char *
key_of_parts(const exo_fit_opts *opts)
{
    return opts->tensor > 1     ? "parallel.tensor"
           : opts->pipeline > 1 ? "parallel.pipeline"
                                : "parallel.context";
}

/* The number of nodes that share a copy of the model. */
static uint64_t
sharing_of(const exo_fit_opts *opts)
{
    const uint32_t counts[] = {opts->tensor, opts->pipeline, opts->context_parallel};
    uint64_t product = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        product *= counts[i] > 1 ? counts[i] : 1;
    return product;
}

exo_share
exo_fit_opts_share(const exo_fit_opts *opts, uint32_t stage)
{
    return (exo_share){.parts = opts->tensor > 1 ? opts->tensor : 0,
                       .sequence = opts->sequence,
                       .members = opts->context_parallel > 1 ? opts->context_parallel : 0,
                       .stage = stage,
                       .stages = opts->pipeline > 1 ? opts->pipeline : 0};
}

/* Whether the nodes can be cut into copies of the model. */
static exo_status
check_counts(const exo_fit_opts *opts, exo_err *err)
{
    const struct {
        const char *key;
        uint32_t count;
    } each[] = {{"tensor", opts->tensor},
                {"pipeline", opts->pipeline},
                {"context", opts->context_parallel}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i].count > 1 && opts->num_nodes % each[i].count != 0)
            return exo_fail(err, EXO_INVAL, "%s %u does not divide num_nodes %u", each[i].key,
                            each[i].count, opts->num_nodes);
    if (opts->num_nodes % sharing_of(opts) != 0)
        return exo_fail(err, EXO_INVAL,
                        "a copy of the model needs tensor x pipeline x context = %llu nodes, which "
                        "does not divide num_nodes %u",
                        (unsigned long long)sharing_of(opts), opts->num_nodes);
    return EXO_OK;
}

/* How the nodes share copies of the model. */
static exo_status
check_sharing(const exo_fit_opts *opts, exo_err *err)
{
    const char *lacks = sharing_of(opts) > 1 ? not_with_parts(opts) : NULL;
    exo_status st = check_counts(opts, err);
    if (st != EXO_OK)
        return st;
    if (opts->sequence && opts->tensor <= 1)
        return exo_fail(err, EXO_INVAL,
                        "parallel.sequence goes with parallel.tensor, the number of nodes that "
                        "share a copy: give it, or leave sequence out");
    if (opts->pipeline > 1 && opts->minibatch_size == EXO_MINIBATCH_AUTO)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "parallel.pipeline does not go with train.minibatch_size: auto: give "
                        "parallel.microbatches");
    if (lacks)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "%s does not go with %s yet: leave one of the two out", key_of_parts(opts),
                        lacks);
    return EXO_OK;
}

exo_status
exo_fit_opts_check(const exo_fit_opts *opts, exo_err *err)
{
    if (opts->num_nodes < 1 || opts->num_nodes > EXO_FIT_MAX_NODES)
        return exo_fail(err, EXO_INVAL, "num_nodes must be 1 to %d, got %u", EXO_FIT_MAX_NODES,
                        opts->num_nodes);
    exo_status shares = check_sharing(opts, err);
    if (shares != EXO_OK)
        return shares;
    if (exo_device_check(opts->device ? opts->device : "cpu", err) != EXO_OK) {
        if (err)
            err->code = EXO_INVAL;
        return EXO_INVAL;
    }
    if (exo_fit_check_autocast(opts->autocast, opts->device, err) != EXO_OK)
        return EXO_UNSUPPORTED;
    if (opts->max_steps == 0 && opts->num_epochs == 0)
        return exo_fail(err, EXO_INVAL, "max_steps or num_epochs must be at least 1");
    if (opts->batch_size < 1)
        return exo_fail(err, EXO_INVAL, "batch_size must be at least 1");
    size_t minibatch = opts->minibatch_size;
    if (minibatch == EXO_MINIBATCH_AUTO && opts->device && strncmp(opts->device, "cuda", 4) == 0)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "minibatch_size: auto knows the memory of the host, not that of a GPU: "
                        "give a number");
    if (minibatch != 0 && minibatch != EXO_MINIBATCH_AUTO &&
        (minibatch > opts->batch_size || opts->batch_size % minibatch != 0))
        return exo_fail(err, EXO_INVAL, "minibatch_size %zu does not divide batch_size %zu",
                        minibatch, opts->batch_size);
    if (opts->timeout != 0 &&
        (opts->timeout < EXO_FIT_MIN_TIMEOUT || opts->timeout > EXO_FIT_MAX_TIMEOUT))
        return exo_fail(err, EXO_INVAL,
                        "timeout must be 0 or from 1 ms to 1,000,000 s, got %lld ns",
                        (long long)opts->timeout);
    if (opts->elastic.grace < 0 || opts->elastic.silence < 0)
        return exo_fail(err, EXO_INVAL, "elastic: grace and silence must be times from 0");
    const exo_failures *f = &opts->failures;
    if (f->mean_time_between < 0 || f->repair < 0 || f->detection < 0 || f->restart < 0)
        return exo_fail(err, EXO_INVAL, "failures: expected times from 0");
    if (opts->run_name && !is_file_name(opts->run_name))
        return exo_fail(err, EXO_INVAL, "run name '%s' cannot be the name of a folder",
                        opts->run_name);
    if (opts->save_dir && opts->save_dir[0] == '\0')
        return exo_fail(err, EXO_INVAL, "save_dir is empty: give a folder, or none at all");
    if (opts->resume && !opts->save_dir)
        return exo_fail(err, EXO_INVAL, "resume needs save_dir, where the checkpoints are");
    if (opts->checkpoint_interval && !opts->save_dir)
        return exo_fail(err, EXO_INVAL, "checkpoint_interval needs save_dir, where checkpoints go");
    return EXO_OK;
}

/* NULL: no host fails. */
static json_t *
settings_of_failures(const exo_failures *f)
{
    return f->mean_time_between > 0 ? json_pack("[I, I, I, I, I]", (json_int_t)f->mean_time_between,
                                                (json_int_t)f->repair, (json_int_t)f->detection,
                                                (json_int_t)f->restart, (json_int_t)f->seed)
                                    : NULL;
}

/* The settings on which the numerical results of a run depend. */
static json_t *
settings_object(const exo_fit_opts *opts, const char *strategy, const char *options,
                const exo_model *model, size_t minibatch_size)
{
    /* Only where it is set, so that checkpoints of other runs stay valid. */
    json_t *elastic = opts->elastic.min_nodes > 0 ? json_true() : NULL;
    json_t *failures = settings_of_failures(&opts->failures);
    json_t *tensor = opts->tensor > 1 ? json_integer((json_int_t)opts->tensor) : NULL;
    json_t *stages = opts->pipeline > 1 ? json_integer((json_int_t)opts->pipeline) : NULL;
    json_t *context =
        opts->context_parallel > 1 ? json_integer((json_int_t)opts->context_parallel) : NULL;
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:s, s:I, s:o*, s:o*, s:o*, s:o*, s:o*}",
        "strategy", strategy, "options", options, "model", exo_model_name(model), "parameters",
        (json_int_t)exo_model_numel(model), "num_nodes", (json_int_t)opts->num_nodes, "batch_size",
        (json_int_t)opts->batch_size, "minibatch_size", (json_int_t)minibatch_size, "shuffle",
        (int)opts->shuffle, "autocast", exo_fit_autocast_name(opts->autocast), "seed",
        (json_int_t)opts->seed, "elastic", elastic, "failures", failures, "tensor", tensor,
        "pipeline", stages, "context", context); /* `sequence` changes no state */
}

/* Writes a JSON value as text that exo_free frees, and drops the value. */
static exo_status
dump(json_t *value, size_t flags, char **out, exo_err *err)
{
    *out = exo_json_dump(value, flags);
    json_decref(value);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to write the settings down");
}

/* Writes a mark that identifies the data: the number of samples, and the SHA-256 of a few of them.
 * Samples that cannot be read are left out. */
static exo_status
mark_data(const exo_dataset *data, char out[MARK], exo_err *err)
{
    exo_batch batch = {0};
    const exo_sample_key key = {0};
    char digests[MARKED][65] = {{0}}, digest[65];
    size_t length = exo_dataset_length(data);
    exo_status st = exo_batch_init(&batch, data, 1, err);
    for (size_t i = 0; st == EXO_OK && i < MARKED && length > 0; i++) {
        size_t index = length / MARKED * i + length % MARKED * i / MARKED;
        exo_err unread = {0};
        if (exo_batch_read(&batch, data, &index, 1, &key, &unread) != EXO_OK)
            continue; /* training on the sample will report the reason */
        char fields[EXO_MAX_FIELDS][65] = {{0}};
        for (size_t f = 0; f < batch.num_fields; f++) {
            size_t bytes = exo_dtype_size(batch.fields[f].dtype);
            for (size_t d = 0; d < batch.fields[f].num_dims; d++)
                bytes *= batch.fields[f].dims[d];
            exo_sha256(batch.data[f], bytes, fields[f]);
        }
        exo_sha256(fields, sizeof fields, digests[i]);
    }
    exo_batch_release(&batch);
    exo_sha256(digests, sizeof digests, digest);
    snprintf(out, MARK, "%zu samples %.16s", length, digest);
    return st;
}

exo_status
exo_fit_settings_json(const exo_fit_opts *opts, const char *strategy, const char *options,
                      const exo_model *model, const exo_dataset *train, size_t minibatch_size,
                      char **out, exo_err *err)
{
    char mark[MARK];
    exo_status st = mark_data(train, mark, err);
    if (st != EXO_OK)
        return st;
    json_t *settings = settings_object(opts, strategy, options, model, minibatch_size);
    if (settings)
        json_object_set_new(settings, "data", json_string(mark));
    return dump(settings, JSON_COMPACT, out, err);
}

exo_status
exo_fit_config_json(const exo_fit_opts *opts, const char *strategy, const char *options,
                    const exo_model *model, uint64_t max_steps, size_t minibatch_size, char **out,
                    exo_err *err)
{
    json_t *all = settings_object(opts, strategy, options, model, minibatch_size);
    bool evaluates = opts->val_size != EXO_VAL_NONE;
    json_t *val_size = evaluates ? json_integer((json_int_t)opts->val_size) : json_string("none");
    json_t *rest = json_pack("{s:s, s:I, s:I, s:o, s:I, s:I, s:I}", "device",
                             opts->device ? opts->device : "cpu", "num_epochs",
                             (json_int_t)opts->num_epochs, "max_steps", (json_int_t)max_steps,
                             "val_size", val_size, "val_interval", (json_int_t)opts->val_interval,
                             "checkpoint_interval", (json_int_t)opts->checkpoint_interval,
                             "correlation_interval", (json_int_t)opts->correlation_interval);
    if (all && rest)
        json_object_update(all, rest);
    json_decref(rest);
    return dump(all, JSON_INDENT(2), out, err);
}

bool
exo_fit_steps_within(const exo_strategy *strategy, uint32_t num_nodes, size_t batch_size,
                     size_t minibatch_size)
{
    return minibatch_size == batch_size && exo_strategy_steps_alone(strategy, num_nodes);
}

/* Nodes that have the whole model, and gradients that are those of all their nodes, may have any strategy
 * that does not let nodes go on by themselves. */
static exo_status
check_context(const exo_strategy *strategy, exo_err *err)
{
    if (!exo_strategy_is_apart(strategy))
        return EXO_OK;
    return exo_fail(err, EXO_UNSUPPORTED,
                    "parallel.context does not go with the strategy '%s' yet: use another one",
                    exo_strategy_name(strategy));
}

exo_status
exo_fit_check_parts(const exo_strategy *strategy, const exo_graph_spec *graph,
                    const exo_fit_opts *opts, exo_err *err)
{
    exo_codec *codec = NULL;
    const char *what = key_of_parts(opts);
    exo_status st = opts->context_parallel > 1 ? check_context(strategy, err) : EXO_OK;
    if (st == EXO_OK && (opts->tensor > 1 || opts->pipeline > 1))
        st = exo_strategy_check_parts(strategy, what, err);
    if (st == EXO_OK)
        st = exo_comm_codec_new(&codec, exo_fit_edge_codec(graph), err);
    if (codec)
        st = exo_fail(err, EXO_UNSUPPORTED,
                      "%s does not go with the codec of an edge (edges.codec) yet: leave it out",
                      what);
    exo_codec_free(&codec);
    return st;
}

exo_status
exo_fit_check_sequences(const exo_fit_opts *opts, const exo_dataset *data, exo_err *err)
{
    exo_field fields[EXO_MAX_FIELDS];
    const size_t context = opts->context_parallel > 1 ? opts->context_parallel : 1;
    const bool cuts = context > 1 || opts->sequence;
    const size_t count = cuts && data ? exo_dataset_fields(data, fields) : 0;
    for (size_t i = 0; i < count; i++) {
        const size_t length = fields[i].dims[0];
        if (strcmp(fields[i].name, "tokens") != 0)
            continue;
        if (context > 1 && length % (2 * context) != 0)
            return exo_fail(err, EXO_INVAL,
                            "parallel.context over %zu nodes: twice as many must divide sequences "
                            "of %zu tokens",
                            context, length);
        if (opts->sequence && length / context % opts->tensor != 0)
            return exo_fail(err, EXO_INVAL,
                            "parallel.sequence over %u nodes: it must divide sequences of %zu "
                            "tokens%s",
                            opts->tensor, length / context, context > 1 ? " of a member" : "");
    }
    return EXO_OK;
}

exo_status
exo_fit_check_elastic(const exo_fit_opts *opts, const exo_strategy *strategy, const char *name,
                      exo_err *err)
{
    const exo_elastic *e = &opts->elastic;
    if (e->min_nodes == 0)
        return EXO_OK;
    if (e->min_nodes > opts->num_nodes)
        return exo_fail(err, EXO_INVAL,
                        "elastic: min_nodes %u is more than the %u nodes of the run", e->min_nodes,
                        opts->num_nodes);
    if (!exo_strategy_is_elastic(strategy))
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "elastic: the nodes of the strategy '%s' cannot change during a run with "
            "these options: leave `elastic` out, choose another strategy "
            "(docs/elastic.md lists them), or let a class of your own declare `elastic`",
            name);
    if (e->verify && exo_strategy_is_apart(strategy))
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "elastic: verify: the nodes of the strategy '%s' have different parameters: "
            "leave `verify` out",
            name);
    return EXO_OK;
}

exo_status
exo_fit_check_failures(const exo_fit_opts *opts, const exo_graph_spec *graph, exo_err *err)
{
    return opts->failures.mean_time_between == 0 || (graph && graph->virtual_clock)
               ? EXO_OK
               : exo_fail(
                     err, EXO_UNSUPPORTED,
                     "failures: hosts fail on the virtual clock: set `clock: virtual`, or leave "
                     "`failures` out");
}
