/* The key `parallel` of a job: how the nodes share copies of the model. Owner: the job. Read next:
 * job.c, exogym/parallel.h; job_auto.c (`auto`). */
#include "programs/job.h"

#include <inttypes.h>
#include <string.h>

#include <exogym/parallel.h>

#include "actors/fit_opts.h"

exo_status
exo_job_asks_plan(exo_config *root, bool *asks, exo_config **how, exo_err *err)
{
    exo_config *node = exo_config_get(root, "parallel"), *value = NULL;
    const char *word = exo_config_scalar(node), *key;
    *how = NULL;
    *asks = (word && strcmp(word, "auto") == 0) || exo_config_has(node, "auto");
    if (node && !*asks && !exo_config_is_map(node))
        return exo_config_fail(node, err,
                               "parallel: expected auto, or a mapping such as {tensor: 2}");
    if (!*asks || word)
        return EXO_OK;
    for (size_t i = 0; (key = exo_config_key(node, i, &value)); i++)
        if (strcmp(key, "auto") != 0)
            return exo_config_fail(value, err, "parallel: auto chooses the rest: leave '%.60s' out",
                                   key);
    return exo_config_map(node, "auto", how, err);
}

/* Reads the number of nodes that share something. */
static exo_status
read_divisor(exo_config *map, const char *key, uint32_t nodes, uint32_t *out, exo_err *err)
{
    uint64_t value = 1;
    exo_status st = exo_config_u64(map, key, 1, 1, nodes, &value, err);
    if (st == EXO_OK && nodes % value != 0)
        st = exo_config_fail(exo_config_get(map, key), err,
                             "parallel: %s %" PRIu64 " does not divide the %u nodes", key, value,
                             nodes);
    *out = (uint32_t)value;
    return st;
}

exo_status
exo_job_read_parallel(exo_config *root, exo_job *job, exo_err *err)
{
    exo_config *map = NULL;
    exo_fit_opts *o = &job->opts;
    exo_status st = exo_config_map(root, "parallel", &map, err);
    if (!map)
        return st;
    if (st == EXO_OK)
        st = read_divisor(map, "tensor", o->num_nodes, &o->tensor, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "sequence", false, &o->sequence, err);
    if (st == EXO_OK && o->sequence && o->tensor == 1)
        st =
            exo_config_fail(exo_config_get(map, "sequence"), err,
                            "parallel: sequence goes with tensor, the number of nodes that share a "
                            "copy: give it, too");
    exo_job_know_wrapping(map);          /* moved before (exo_job_take_wrapping) */
    exo_config_get(map, "auto");         /* known, and replaced before (exo_job_choose_parallel) */
    exo_config_get(map, "microbatches"); /* exo_job_cut_batch reads it */
    if (st == EXO_OK)
        st = read_divisor(map, "pipeline", o->num_nodes, &o->pipeline, err);
    if (st == EXO_OK)
        st = read_divisor(map, "context", o->num_nodes, &o->context_parallel, err);
    const uint64_t copy = (uint64_t)o->tensor * o->pipeline * o->context_parallel;
    if (st == EXO_OK && o->num_nodes % copy != 0)
        st = exo_config_fail(map, err,
                             "parallel: tensor x pipeline x context is %" PRIu64
                             ", which does not divide the %u nodes",
                             copy, o->num_nodes);
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

exo_status
exo_job_cut_batch(exo_config *root, exo_job *job, exo_err *err)
{
    exo_config *map = exo_config_get(root, "parallel"), *train = exo_config_get(root, "train");
    exo_config *key = map ? exo_config_get(map, "microbatches") : NULL;
    const bool cut = train && exo_config_has(train, "minibatch_size");
    exo_fit_opts *o = &job->opts;
    uint64_t count = 1;
    if (!key && o->pipeline > 1 && !cut)
        return exo_config_fail(
            map, err,
            "parallel: pipeline needs microbatches, a divisor of batch_size %zu: "
            "at least 2 for each stage keep the nodes busy",
            o->batch_size);
    if (!key)
        return EXO_OK;
    exo_status st = exo_config_u64(map, "microbatches", 1, 1, o->batch_size, &count, err);
    if (st != EXO_OK)
        return st;
    if (o->pipeline <= 1)
        return exo_config_fail(key, err,
                               "parallel: microbatches go with pipeline; without one, "
                               "train.minibatch_size cuts the batch");
    if (o->batch_size % count != 0 || (cut && o->minibatch_size != o->batch_size / count))
        return exo_config_fail(key, err,
                               cut ? "parallel: microbatches %" PRIu64
                                     " and train.minibatch_size differ: leave one of the two out"
                                   : "parallel: microbatches %" PRIu64
                                     " does not divide batch_size",
                               count);
    o->minibatch_size = o->batch_size / count;
    return EXO_OK;
}

/* INVAL, with the place of `parallel`. */
static exo_status
check_run(const exo_job *job, const exo_job_run *run, exo_err *err)
{
    exo_strategy *strategy = NULL;
    exo_status st = exo_strategy_new(&strategy, run->strategy, run->options, err);
    if (st == EXO_OK)
        st = exo_fit_check_parts(strategy, run->graph, &job->opts, err);
    exo_strategy_free(&strategy);
    return st;
}

exo_status
exo_job_check_parallel(const exo_job *job, exo_err *err)
{
    exo_config *place = exo_config_get(exo_config_root(job->doc), "parallel");
    exo_model *part = NULL;
    const exo_fit_opts *o = &job->opts;
    const exo_share share = exo_fit_opts_share(o, 0);
    if (o->tensor <= 1 && o->pipeline <= 1 && o->context_parallel <= 1)
        return EXO_OK;
    exo_status st = exo_fit_opts_check(&job->opts, err);
    if (st == EXO_OK)
        st = exo_fit_check_sequences(&job->opts, job->train, err);
    if (st == EXO_OK)
        st = exo_model_share(&part, job->model, &share, err);
    exo_model_drop(&part);
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++)
        st = check_run(job, &job->runs[i], err);
    if (st == EXO_OK || !place)
        return st;
    if (err && st == EXO_UNSUPPORTED)
        err->code = EXO_INVAL; /* the job is wrong, which exits with 2 */
    return exo_config_add_place(place, err);
}
