/* Writes a run's config.json: a job of this run alone, with all defaults filled in. Running it
 * gives the same run and the same config.json again. Numbers keep their original text, or get the
 * shortest text that reads back to the same bits. Owner: the job. Read next: config_edit.h (whole
 * copies), past.c (the comparison of --resume). */
#include "programs/job.h"

#include <string.h>

#include "actors/autocast.h"
#include "base/config_maker.h"
#include "base/config_units.h"

static void
add_elastic(exo_config_maker *m, exo_config *train, const exo_elastic *e)
{
    char text[EXO_UNIT_TEXT];
    if (e->min_nodes == 0)
        return;
    exo_config *map = exo_make_map(m, train, "elastic");
    exo_make_number(m, map, "min_nodes", e->min_nodes);
    exo_make_text(m, map, "grace", exo_unit_time(e->grace, text));
    exo_make_text(m, map, "silence", exo_unit_time(e->silence, text));
    exo_make_truth(m, map, "verify", e->verify);
}

static void
add_train(exo_config_maker *m, exo_config *root, const exo_job *job)
{
    const exo_fit_opts *o = &job->opts;
    char timeout[EXO_UNIT_TEXT];
    exo_config *train = exo_make_map(m, root, "train");
    exo_make_number(m, train, "max_steps", exo_job_steps(job));
    exo_make_number(m, train, "num_epochs", o->num_epochs);
    exo_make_number(m, train, "batch_size", o->batch_size);
    exo_make_number(m, train, "minibatch_size", o->minibatch_size);
    exo_make_truth(m, train, "shuffle", o->shuffle);
    if (o->val_size == EXO_VAL_NONE)
        exo_make_string(m, train, "val_size", "none");
    else
        exo_make_number(m, train, "val_size", o->val_size);
    exo_make_number(m, train, "val_interval", o->val_interval);
    exo_make_string(m, train, "autocast", exo_fit_autocast_name(o->autocast));
    exo_make_number(m, train, "checkpoint_interval", o->checkpoint_interval);
    exo_make_truth(m, train, "final_checkpoint", o->final_checkpoint);
    exo_make_number(m, train, "correlation_interval", o->correlation_interval);
    exo_make_text(m, train, "timeout", exo_unit_seconds(o->timeout, timeout));
    add_elastic(m, train, &o->elastic);
}

/* Adds the strategy. Its label is the run's, which includes the seed if there are several. */
static void
add_strategy(exo_config_maker *m, exo_config *root, const exo_job_run *run)
{
    exo_make_whole(m, root, "strategy", run->options);
    exo_config *strategy = exo_config_get(root, "strategy");
    exo_config_remove(strategy, "label");
    exo_make_string(m, strategy, "label", run->label);
}

static void
add_plugins(exo_config_maker *m, exo_config *root, const exo_job *job)
{
    exo_config *list = job->num_plugins > 0 ? exo_make_list(m, root, "plugins") : NULL;
    for (size_t i = 0; i < job->num_plugins; i++)
        exo_make_string(m, list, NULL, job->plugins[i]);
}

/* Adds the keys of the network as they were given. `exogym graph expand` shows the graph that
 * follows from them. */
static void
add_network(exo_config_maker *m, exo_config *root, const exo_job *job)
{
    static const char *const keys[] = {"clock", "hosts", "links", "compute", "edges", "failures"};
    exo_config *from = exo_config_root(job->doc);
    if (!exo_config_has(from, "clock")) {
        exo_make_string(m, root, "clock", "real");
        if (m->status == EXO_OK)
            exo_config_mark_fallback(exo_config_get(root, "clock"));
    }
    exo_make_copies(m, root, from, keys, sizeof keys / sizeof *keys);
}

/* Adds how the nodes share copies of the model, if they do. */
static void
add_parallel(exo_config_maker *m, exo_config *root, const exo_job *job)
{
    const struct {
        const char *key;
        uint32_t nodes;
    } axes[] = {{"tensor", job->opts.tensor},
                {"pipeline", job->opts.pipeline},
                {"context", job->opts.context_parallel}};
    exo_config *parallel = NULL;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        if (axes[i].nodes <= 1)
            continue;
        if (!parallel)
            parallel = exo_make_map(m, root, "parallel");
        exo_make_number(m, parallel, axes[i].key, axes[i].nodes);
    }
    if (job->opts.tensor > 1 && job->opts.sequence)
        exo_make_truth(m, parallel, "sequence", true);
}

static exo_status
write_config(const exo_job *job, exo_job_run *run, exo_err *err)
{
    exo_config_maker m = {.err = err};
    m.status = exo_config_parse(&run->config, "config.json", "{}", err);
    if (m.status != EXO_OK)
        return m.status;
    exo_config *root = exo_config_root(run->config);
    exo_make_number(&m, root, "exogym", 1);
    exo_make_string(&m, root, "name", job->name);
    exo_make_number(&m, root, "seed", run->seed);
    exo_make_whole(&m, root, "model", job->model_config);
    exo_make_whole(&m, root, "data", job->data_config);
    exo_make_number(&m, root, "nodes", job->opts.num_nodes);
    exo_make_string(&m, root, "device", job->opts.device);
    exo_make_copy(&m, root, "resources", exo_config_get(exo_config_root(job->doc), "resources"));
    exo_make_string(&m, root, "engine", job->opts.engine);
    if (job->opts.engine_suspends)
        exo_make_truth(&m, root, "engine_suspends", true);
    exo_make_truth(&m, root, "equal_bits", !job->opts.any_bits);
    exo_job_write_collectives(&m, root, job);
    add_parallel(&m, root, job);
    add_train(&m, root, job);
    add_strategy(&m, root, run);
    add_plugins(&m, root, job);
    add_network(&m, root, job);
    return m.status == EXO_OK ? exo_config_json(root, &run->config_json, err) : m.status;
}

exo_status
exo_job_write_configs(exo_job *job, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++)
        st = write_config(job, &job->runs[i], err);
    return st;
}
