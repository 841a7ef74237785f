/* What the folders of a job hold from before: see past.h. */
#include "past.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "checkpoint.h"
#include "file.h"
#include "fit_opts.h"
#include "results.h"
#include "run_folder.h"
#include "text.h"

enum {
    MAX_CONFIG = 1 << 24
};

/* Settings that decide neither the numbers nor what is measured of them: where and when files are written, how long somebody is waited for,
 * and how long the run is, which is looked at by itself. */
static const char *const free_settings[] = {
    "name",
    "changes", /* made while it ran */
    "train.max_steps",
    "train.num_epochs",
    "train.checkpoint_interval",
    "train.final_checkpoint",
    "train.val_interval",
    "train.correlation_interval",
    "train.timeout",
    "train.save_dir",
};

static bool
is_free(const char *path)
{
    for (size_t i = 0; i < sizeof free_settings / sizeof *free_settings; i++)
        if (strcmp(path, free_settings[i]) == 0)
            return true;
    return false;
}

/* 1 and 1.0 are the same setting. */
static bool
is_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b) &&
               (!json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) == json_integer_value(b));
    return json_equal(a, b);
}

/* Writes the path of the first setting in which `a` and `b` differ and that matters; false if there is none. */
static bool
first_difference(json_t *a, json_t *b, exo_text *path)
{
    if (is_free(path->data ? path->data : "") || is_same(a, b))
        return false;
    if (!json_is_object(a) || !json_is_object(b))
        return true;
    const json_t *sides[] = {a, b};
    for (int side = 0; side < 2; side++) {
        const char *key = NULL;
        json_t *value = NULL;
        json_object_foreach((json_t *)sides[side], key, value)
        {
            json_t *other = json_object_get(sides[1 - side], key);
            size_t length = path->length;
            exo_text_add(path, "%s%s", length ? "." : "", key);
            if (other ? first_difference(value, other, path) : !is_free(path->data ? path->data : ""))
                return true;
            path->length = length;
            if (path->data)
                path->data[length] = '\0';
        }
    }
    return false;
}

/* --- Files ------------------------------------------------------------------------------------------------------------------- */

static exo_status
folder_of(const exo_job *job, const exo_job_run *run, exo_text *out, exo_err *err)
{
    *out = (exo_text){0};
    exo_text_add(out, "%s/%s", job->folder, run->label);
    return out->failed ? exo_fail(err, EXO_NOMEM, "out of memory") : EXO_OK;
}

/* A JSON object in the folder; *out is NULL if there is no such file. One that is empty, cut or otherwise none is damaged. */
static exo_status
read_object(const char *folder, const char *file, json_t **out, exo_err *err)
{
    exo_text path = {0};
    char *text = NULL;
    size_t size = 0;
    json_error_t reason;
    *out = NULL;
    exo_text_add(&path, "%s/%s", folder, file);
    exo_status st = path.failed ? exo_fail(err, EXO_NOMEM, "out of memory")
                                : exo_file_read(path.data, MAX_CONFIG, &text, &size, err);
    if (st == EXO_NOT_FOUND) {
        st = EXO_OK;
    } else if (st == EXO_OK) {
        *out = json_loadb(text, size, 0, &reason);
        if (!json_is_object(*out)) {
            json_decref(*out);
            *out = NULL;
            st = exo_fail(err, EXO_FAILED, "%s: is damaged: %s; without it, or with --overwrite, the run starts anew",
                          path.data, size ? reason.text : "it is empty");
        }
    } else if (st == EXO_INVAL) {
        err->code = st = EXO_FAILED; /* no file, or far too large */
    }
    exo_free(text);
    exo_free(path.data);
    return st;
}

static bool
has_checkpoints(const char *folder)
{
    char path[EXO_CHECKPOINT_PATH];
    return exo_checkpoint_newest(folder, path);
}

/* --- Going on ---------------------------------------------------------------------------------------------------------------- */

/* Was it begun with these settings? */
static exo_status
check_settings(const char *folder, const exo_job_run *run, json_t *before, exo_err *err)
{
    exo_text difference = {0};
    exo_status st = EXO_OK;
    json_t *now = json_loads(run->config_json, 0, NULL);
    if (!now)
        st = exo_fail(err, EXO_NOMEM, "out of memory");
    else if (first_difference(before, now, &difference))
        st = exo_fail(err, EXO_INVAL,
                      "--resume: %s was begun with another %s; run with --overwrite to start over, or with --name",
                      folder, difference.data ? difference.data : "configuration");
    json_decref(now);
    exo_free(difference.data);
    return st;
}

static exo_status
look_to_resume(const exo_job *job, const exo_job_run *run, exo_past *past, exo_fit_result *result, exo_err *err)
{
    exo_text folder = {0};
    json_t *before = NULL, *ended = NULL;
    uint64_t steps = exo_job_steps(job);
    exo_status st = folder_of(job, run, &folder, err);
    if (st == EXO_OK)
        st = read_object(folder.data, "config.json", &before, err);
    if (st == EXO_OK)
        st = read_object(folder.data, "result.json", &ended, err);
    if (st == EXO_OK && before)
        st = check_settings(folder.data, run, before, err);
    if (st == EXO_OK && ended)
        exo_result_from(ended, result);
    if (st == EXO_OK && ended && result->steps > steps)
        st = exo_fail(err, EXO_INVAL, "--resume: %s is finished after %" PRIu64 " steps, %" PRIu64 " are asked for",
                      folder.data, result->steps, steps);
    if (st == EXO_OK) {
        past->finished = ended && result->steps == steps;
        past->begun = before || has_checkpoints(folder.data);
    }
    json_decref(before);
    json_decref(ended);
    exo_free(folder.data);
    return st;
}

/* --- Starting anew ----------------------------------------------------------------------------------------------------------- */

/* Nobody else writes into the folder while *lock is held; -1: there is no such folder. */
static exo_status
take_folder(const exo_job *job, const exo_job_run *run, bool overwrite, int *lock, exo_err *err)
{
    exo_text folder = {0};
    *lock = -1;
    exo_status st = folder_of(job, run, &folder, err);
    if (st == EXO_OK && access(folder.data, F_OK) == 0) {
        st = exo_run_check_free(folder.data, overwrite, err); /* before its lock makes a file */
        if (st == EXO_OK)
            st = exo_run_lock(folder.data, lock, err);
        if (st == EXO_OK)
            st = exo_run_check_free(folder.data, overwrite, err);
    }
    exo_free(folder.data);
    return st;
}

static exo_status
start_over(const exo_job *job, const exo_job_run *run, bool overwrite, exo_err *err)
{
    exo_text folder = {0};
    exo_status st = folder_of(job, run, &folder, err);
    if (st == EXO_OK)
        st = exo_run_start_over(folder.data, overwrite, err);
    exo_free(folder.data);
    return st;
}

/* Nothing of any run goes before all can go. */
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
exo_past_look(const exo_job *job, const exo_past_opts *opts, exo_past *past, exo_fit_result *results, exo_err *err)
{
    exo_status st = EXO_OK;
    bool all = true;
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++) {
        if (opts->resume)
            st = look_to_resume(job, &job->runs[i], &past[i], &results[i], err);
        all = all && past[i].finished;
    }
    if (st == EXO_OK && !opts->resume)
        st = start_all_over(job, opts->overwrite, err);
    return st == EXO_OK && !all ? exo_results_forget_seeds(job, err) : st;
}

/* --- Settling ---------------------------------------------------------------------------------------------------------------- */

/* The number that the first of the job's runs was begun with; 0: none was. */
static exo_status
find_minibatch(const exo_job *job, size_t *size, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && *size == 0 && i < job->num_runs; i++) {
        exo_text folder = {0};
        json_t *config = NULL;
        st = folder_of(job, &job->runs[i], &folder, err);
        if (st == EXO_OK)
            st = read_object(folder.data, "config.json", &config, err);
        json_int_t found = json_integer_value(json_object_get(json_object_get(config, "train"), "minibatch_size"));
        if (found > 0 && job->opts.batch_size % (size_t)found == 0)
            *size = (size_t)found;
        json_decref(config);
        exo_free(folder.data);
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
        unsigned threads = exo_num_threads(), copies = o->num_nodes < threads ? o->num_nodes : threads;
        st = resume ? find_minibatch(job, &size, err) : EXO_OK;
        if (st == EXO_OK && size == 0)
            st = exo_fit_auto_minibatch(job->model, job->train, o->batch_size, o->autocast, copies, &size, err);
        if (st == EXO_OK)
            o->minibatch_size = size;
    }
    return st == EXO_OK ? exo_job_write_configs(job, err) : st;
}
