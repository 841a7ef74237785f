/* Writes a run's config.json: a job of this run alone, with all defaults filled in. Running it
 * gives the same run and the same config.json again. Numbers keep their original text, or get the
 * shortest text that reads back to the same bits. Owner: the job. Read next: config_edit.h (whole
 * copies), past.c (the comparison of --resume). */
#include "programs/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/config_edit.h"
#include "base/config_units.h"

static exo_status
add_number(exo_config *into, const char *key, uint64_t number, exo_err *err)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return exo_config_graft_text(into, key, text, err);
}

static exo_status
add_truth(exo_config *into, const char *key, bool truth, exo_err *err)
{
    return exo_config_graft_text(into, key, truth ? "true" : "false", err);
}

static exo_status
add_train(exo_config *root, const exo_job *job, exo_err *err)
{
    const exo_fit_opts *o = &job->opts;
    char timeout[EXO_UNIT_TEXT];
    exo_config *train = NULL;
    exo_status st = exo_config_new_map(root, &train, err);
    if (st == EXO_OK)
        st = exo_config_adopt(root, "train", train, err);
    if (st == EXO_OK)
        st = add_number(train, "max_steps", exo_job_steps(job), err);
    if (st == EXO_OK)
        st = add_number(train, "num_epochs", o->num_epochs, err);
    if (st == EXO_OK)
        st = add_number(train, "batch_size", o->batch_size, err);
    if (st == EXO_OK)
        st = add_number(train, "minibatch_size", o->minibatch_size, err);
    if (st == EXO_OK)
        st = add_truth(train, "shuffle", o->shuffle, err);
    if (st == EXO_OK)
        st = o->val_size == EXO_VAL_NONE ? exo_config_graft_string(train, "val_size", "none", err)
                                         : add_number(train, "val_size", o->val_size, err);
    if (st == EXO_OK)
        st = add_number(train, "val_interval", o->val_interval, err);
    if (st == EXO_OK)
        st = exo_config_graft_string(train, "autocast", o->autocast ? "bf16" : "none", err);
    if (st == EXO_OK)
        st = add_number(train, "checkpoint_interval", o->checkpoint_interval, err);
    if (st == EXO_OK)
        st = add_truth(train, "final_checkpoint", o->final_checkpoint, err);
    if (st == EXO_OK)
        st = add_number(train, "correlation_interval", o->correlation_interval, err);
    return st == EXO_OK
               ? exo_config_graft_text(train, "timeout", exo_unit_seconds(o->timeout, timeout), err)
               : st;
}

/* Adds the strategy. Its label is the run's, which includes the seed if there are several. */
static exo_status
add_strategy(exo_config *root, const exo_job_run *run, exo_err *err)
{
    exo_status st = exo_config_graft_whole(root, "strategy", run->options, err);
    exo_config *strategy = exo_config_get(root, "strategy");
    exo_config_remove(strategy, "label");
    return st == EXO_OK ? exo_config_graft_string(strategy, "label", run->label, err) : st;
}

static exo_status
add_plugins(exo_config *root, const exo_job *job, exo_err *err)
{
    exo_config *list = NULL;
    if (job->num_plugins == 0)
        return EXO_OK;
    exo_status st = exo_config_new_list(root, &list, err);
    if (st == EXO_OK)
        st = exo_config_adopt(root, "plugins", list, err);
    for (size_t i = 0; st == EXO_OK && i < job->num_plugins; i++)
        st = exo_config_graft_string(list, NULL, job->plugins[i], err);
    return st;
}

/* Adds the keys of the network as they were given. `exogym graph expand` shows the graph that
 * follows from them. */
static exo_status
add_network(exo_config *root, const exo_job *job, exo_err *err)
{
    static const char *const keys[] = {"clock", "hosts", "links", "compute", "edges"};
    exo_status st = EXO_OK;
    if (!exo_config_has(exo_config_root(job->doc), "clock")) {
        st = exo_config_graft_string(root, "clock", "real", err);
        if (st == EXO_OK)
            exo_config_mark_fallback(exo_config_get(root, "clock"));
    }
    for (size_t i = 0; st == EXO_OK && i < sizeof keys / sizeof *keys; i++) {
        exo_config *value = exo_config_get(exo_config_root(job->doc), keys[i]);
        if (value)
            st = exo_config_graft(root, keys[i], value, err);
    }
    return st;
}

static exo_status
write_config(const exo_job *job, exo_job_run *run, exo_err *err)
{
    exo_status st = exo_config_parse(&run->config, "config.json", "{}", err);
    if (st != EXO_OK)
        return st;
    exo_config *root = exo_config_root(run->config);
    st = add_number(root, "exogym", 1, err);
    if (st == EXO_OK)
        st = exo_config_graft_string(root, "name", job->name, err);
    if (st == EXO_OK)
        st = add_number(root, "seed", run->seed, err);
    if (st == EXO_OK)
        st = exo_config_graft_whole(root, "model", job->model_config, err);
    if (st == EXO_OK)
        st = exo_config_graft_whole(root, "data", job->data_config, err);
    if (st == EXO_OK)
        st = add_number(root, "nodes", job->opts.num_nodes, err);
    if (st == EXO_OK)
        st = exo_config_graft_string(root, "device", job->opts.device, err);
    if (st == EXO_OK)
        st = exo_config_graft_string(root, "engine", job->opts.engine, err);
    if (st == EXO_OK)
        st = add_truth(root, "equal_bits", !job->opts.any_bits, err);
    if (st == EXO_OK)
        st = add_train(root, job, err);
    if (st == EXO_OK)
        st = add_strategy(root, run, err);
    if (st == EXO_OK)
        st = add_plugins(root, job, err);
    if (st == EXO_OK)
        st = add_network(root, job, err);
    return st == EXO_OK ? exo_config_json(root, &run->config_json, err) : st;
}

exo_status
exo_job_write_configs(exo_job *job, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++)
        st = write_config(job, &job->runs[i], err);
    return st;
}
