/* The state of a job's folders before the job starts: see past.h. Read next: run_folder.h,
 * checkpoint.h. */
#include "programs/past.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "actors/checkpoint.h"
#include "actors/fit_opts.h"
#include "actors/run_folder.h"
#include "base/config_edit.h"
#include "base/file.h"
#include "programs/lenient_json.h"
#include "programs/results.h"

enum {
    MAX_CONFIG = 1 << 24
};

/* Settings that a resumed run may change. Those from FREE on affect neither the numbers nor their
 * measurement: they say where and when files are written, how long the run waits, and how long it is
 * (checked separately); and on which device it goes on, whose roundings are its own. Those before say how
 * the nodes share the model: with them a checkpoint is converted. */
enum {
    FREE = 6
};
static const char *const settings[] = {
    "nodes",
    "parallel",
    "train.minibatch_size", /* the microbatches of a pipeline */
    "strategy.sharding_strategy",
    "strategy.group_size",
    "strategy.prefetch",
    "name",
    "engine", /* engines with equal bits give the same numbers */
    "equal_bits",
    "strategy.cpu_offload", /* where shards are */
    "device",               /* a checkpoint is of no device; another one rounds otherwise */
    "resources",            /* where nodes find room */
    "changes",              /* recorded during the run */
    "train.max_steps",
    "train.num_epochs",
    "train.checkpoint_interval",
    "train.final_checkpoint",
    "train.val_interval",
    "train.correlation_interval",
    "train.timeout",
    "train.save_dir",
    NULL,
};

/* --- Files ------------------------------------------------------------------------------------ */

static char *
folder_of(const exo_job *job, const exo_job_run *run, exo_err *err)
{
    return exo_text_make(err, "%s/%s", job->folder, run->label);
}

static exo_status
fail_damaged(const char *path, size_t size, const char *reason, exo_err *err)
{
    return exo_fail(err, EXO_FAILED,
                    "%s: is damaged: %s; once it is removed, --resume goes on from the checkpoints "
                    "that are there; --overwrite starts the run over",
                    path, size ? reason : "it is empty");
}

/* Parses a file's text into *out; fills in `reason` if it cannot. */
typedef exo_status take_text(const char *text, size_t size, void *out, exo_err *reason);

static exo_status
take_result(const char *text, size_t size, void *out, exo_err *reason)
{
    json_error_t error = {0};
    json_t *json = exo_json_load(text, size, &error);
    if (!json_is_object(json)) {
        exo_fail(reason, EXO_DAMAGED, "%s", json ? "it is no object" : error.text);
        json_decref(json);
        return EXO_DAMAGED;
    }
    *(json_t **)out = json;
    return EXO_OK;
}

static exo_status
take_config(const char *text, size_t size, void *out, exo_err *reason)
{
    (void)size;
    exo_config_doc **doc = out;
    exo_status st = exo_config_parse(doc, "config.json", text, reason);
    if (st == EXO_OK &&
        (!exo_config_is_map(exo_config_root(*doc)) || !exo_config_length(exo_config_root(*doc))))
        st = exo_fail(reason, EXO_DAMAGED, "it is no mapping");
    if (st != EXO_OK)
        exo_config_free(doc);
    return st;
}

/* Reads and parses a file. *out is unchanged if the file does not exist. An empty, incomplete or
 * other file is damaged. */
static exo_status
read_file(const char *folder, const char *file, take_text *take, void *out, exo_err *err)
{
    char *path = exo_text_make(err, "%s/%s", folder, file), *text = NULL;
    size_t size = 0;
    exo_err reason = {0};
    exo_status st = path ? exo_file_read(path, MAX_CONFIG, &text, &size, err) : EXO_NOMEM;
    if (st == EXO_OK && (st = take(text, size, out, &reason)) != EXO_OK)
        st = st == EXO_NOMEM ? exo_fail(err, st, "%s", reason.text)
                             : fail_damaged(path, size, reason.text, err);
    exo_free(text);
    exo_free(path);
    return st == EXO_NOT_FOUND ? EXO_OK : st;
}

/* Read result.json and config.json. *out is NULL if the file does not exist. */
static exo_status
read_result(const char *folder, json_t **out, exo_err *err)
{
    *out = NULL;
    return read_file(folder, "result.json", take_result, out, err);
}

static exo_status
read_config(const char *folder, exo_config_doc **out, exo_err *err)
{
    *out = NULL;
    return read_file(folder, "config.json", take_config, out, err);
}

/* Does the folder have checkpoints? *step is that of the newest one. */
static bool
has_checkpoints(const char *folder, uint64_t *step)
{
    char path[EXO_CHECKPOINT_PATH];
    *step = 0;
    if (!exo_checkpoint_newest(folder, path))
        return false;
    *step = strtoull(strrchr(path, '_') + 1, NULL, 10); /* .../step_00000100 */
    return true;
}

/* --- Resuming --------------------------------------------------------------------------------- */

exo_reshard_form
exo_past_form(const exo_job *job, const exo_job_run *run)
{
    const exo_fit_opts *o = &job->opts;
    return (exo_reshard_form){.num_nodes = o->num_nodes,
                              .tensor = o->tensor > 1 ? o->tensor : 1,
                              .pipeline = o->pipeline,
                              .context = o->context_parallel,
                              .minibatch_size = o->minibatch_size,
                              .any_bits = o->any_bits,
                              .strategy = run->strategy,
                              .options = run->options};
}

/* Can the newest checkpoint be converted to the nodes of the job? */
static bool
can_reshard(const exo_job *job, const exo_job_run *run, const char *folder)
{
    char newest[EXO_CHECKPOINT_PATH];
    const exo_reshard_form to = exo_past_form(job, run);
    return exo_checkpoint_newest(folder, newest) &&
           exo_reshard_check(job->model, newest, &to, NULL) == EXO_OK;
}

/* Fails if the run was begun with settings that have another meaning. */
static exo_status
check_settings(const exo_job *job, const exo_job_run *run, const char *folder,
               exo_config_doc *before, bool reshard, exo_err *err)
{
    exo_text difference = {0}, rest = {0};
    const exo_config *then = exo_config_root(before), *now = exo_config_root(run->config);
    exo_status st = EXO_OK;
    if (exo_config_differs(then, now, reshard ? settings : settings + FREE, &difference)) {
        const bool other_nodes = !reshard && !exo_config_differs(then, now, settings, &rest);
        st = exo_fail(err, EXO_INVAL,
                      "--resume: %s was begun with another %s; run with %s--overwrite to start "
                      "over, or with --name",
                      folder, difference.data ? difference.data : "configuration",
                      other_nodes && can_reshard(job, run, folder)
                          ? "--resume=reshard, which converts the checkpoint, "
                          : "");
    }
    exo_free(difference.data);
    exo_free(rest.data);
    return st;
}

static exo_status
look_to_resume(const exo_job *job, const exo_job_run *run, const exo_past_opts *opts,
               exo_past *past, exo_fit_result *result, exo_err *err)
{
    char *folder = folder_of(job, run, err);
    exo_config_doc *before = NULL;
    json_t *ended = NULL;
    uint64_t steps = exo_job_steps(job), newest = 0;
    exo_status st = folder ? read_config(folder, &before, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = read_result(folder, &ended, err);
    if (st == EXO_OK && before)
        st = check_settings(job, run, folder, before, opts->reshard, err);
    if (st == EXO_OK && ended)
        exo_result_from(ended, result);
    if (st == EXO_OK && ended && result->steps > steps)
        st = exo_fail(err, EXO_INVAL,
                      "--resume: %s is finished after %" PRIu64 " steps, %" PRIu64 " are asked for",
                      folder, result->steps, steps);
    if (st == EXO_OK) {
        past->finished = ended && result->steps == steps;
        past->begun = has_checkpoints(folder, &newest) || before;
    }
    /* without `older`: with it, an older checkpoint may be used */
    if (st == EXO_OK && newest > steps && !opts->older)
        st = exo_fail(err, EXO_INVAL,
                      "--resume: %s is at step %" PRIu64 ", %" PRIu64 " are asked for", folder,
                      newest, steps);
    exo_config_free(&before);
    json_decref(ended);
    exo_free(folder);
    return st;
}

/* --- Starting over ---------------------------------------------------------------------------- */

/* Locks the folder of a run, so that no other process writes to it while *lock is held. *lock is -1
 * if the folder does not exist. */
static exo_status
take_folder(const exo_job *job, const exo_job_run *run, bool overwrite, int *lock, exo_err *err)
{
    char *folder = folder_of(job, run, err);
    *lock = -1;
    exo_status st = folder ? EXO_OK : EXO_NOMEM;
    if (folder && access(folder, F_OK) == 0) {
        /* checked before the lock, whose file would be left in a finished run's folder */
        st = exo_run_check_free(folder, overwrite, err);
        if (st == EXO_OK)
            st = exo_run_lock(folder, lock, err);
        if (st == EXO_OK)
            st = exo_run_check_free(folder, overwrite, err);
    }
    exo_free(folder);
    return st;
}

static exo_status
start_over(const exo_job *job, const exo_job_run *run, bool overwrite, exo_err *err)
{
    char *folder = folder_of(job, run, err);
    exo_status st = folder ? exo_run_start_over(folder, overwrite, err) : EXO_NOMEM;
    exo_free(folder);
    return st;
}

/* Locks and checks all runs first: nothing is removed unless everything can be. */
static exo_status
start_all_over(const exo_job *job, bool overwrite, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t taken = 0;
    int *locks = exo_calloc(job->num_runs, sizeof *locks);
    if (!locks)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (; st == EXO_OK && taken < job->num_runs; taken++)
        st = take_folder(job, &job->runs[taken], overwrite, &locks[taken], err);
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++)
        if (locks[i] >= 0)
            st = start_over(job, &job->runs[i], overwrite, err);
    for (size_t i = 0; i < taken; i++)
        if (locks[i] >= 0)
            close(locks[i]);
    exo_free(locks);
    return st;
}

exo_status
exo_past_look(const exo_job *job, const exo_past_opts *opts, exo_past *past,
              exo_fit_result *results, exo_err *err)
{
    exo_status st = EXO_OK;
    bool all = true;
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++) {
        if (opts->resume)
            st = look_to_resume(job, &job->runs[i], opts, &past[i], &results[i], err);
        all = all && past[i].finished;
    }
    if (st == EXO_OK && !opts->resume)
        st = start_all_over(job, opts->overwrite, err);
    return st == EXO_OK && !all ? exo_results_forget_seeds(job, err) : st;
}

/* --- minibatch_size --------------------------------------------------------------------------- */

/* Finds the minibatch_size of the job's first run that was begun; *size stays 0 if there is
 * none. */
static exo_status
find_minibatch(const exo_job *job, size_t *size, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && *size == 0 && i < job->num_runs; i++) {
        char *folder = folder_of(job, &job->runs[i], err);
        exo_config_doc *config = NULL;
        uint64_t found = 0;
        st = folder ? read_config(folder, &config, err) : EXO_NOMEM;
        exo_config *train = config ? exo_config_get(exo_config_root(config), "train") : NULL;
        if (exo_config_u64(train, "minibatch_size", 0, 1, UINT32_MAX, &found, NULL) == EXO_OK &&
            found > 0 && job->opts.batch_size % found == 0)
            *size = (size_t)found;
        exo_config_free(&config);
        exo_free(folder);
    }
    return st;
}

exo_status
exo_past_settle(exo_job *job, bool resume, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_fit_opts *o = &job->opts;
    if (o->minibatch_size == EXO_MINIBATCH_AUTO) {
        size_t size = 0;
        unsigned threads = exo_num_threads(),
                 copies = o->num_nodes < threads ? o->num_nodes : threads;
        st = resume ? find_minibatch(job, &size, err) : EXO_OK;
        if (st == EXO_OK && size == 0)
            st = exo_fit_auto_minibatch(job->model, job->train, o->batch_size, o->autocast, copies,
                                        &size, err);
        if (st == EXO_OK)
            o->minibatch_size = size;
    }
    return st == EXO_OK ? exo_job_write_configs(job, err) : st;
}
