/* The preparation of a fit: strategy, data, the run's folder, the checkpoint to resume from, nodes.
 * See fit_impl.h. */
#include "actors/fit_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/log.h>
#include <exogym/memory.h>
#include <exogym/tokenizer.h>

#include "actors/fit_elastic.h"
#include "actors/fit_engine.h"
#include "actors/fit_failures.h"
#include "actors/fit_opts.h"
#include "actors/run_folder.h"
#include "base/config_edit.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/grow_text.h"

enum {
    MAX_CONFIG = 1 << 24
};

/* The strategy's options with every default. */
static exo_config *
whole_options(const struct run *run)
{
    return exo_config_get(exo_config_root(run->whole), "options");
}

static exo_status
allocate(struct run *run, exo_err *err)
{
    uint32_t n = run->fit->num_nodes;
    run->fit->train = exo_calloc(n, sizeof *run->fit->train);
    run->traffic = exo_calloc(n, sizeof *run->traffic);
    if (!run->traffic || !run->fit->train || exo_fit_open_cast(run, err) != EXO_OK ||
        exo_fit_watch_open(run, err) != EXO_OK)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", n);
    return EXO_OK;
}

/* Writes the options with every default. They are the run's settings, however few options were
 * given. */
static exo_status
write_options(struct run *run, const exo_config *options, exo_err *err)
{
    exo_status st = exo_config_parse(&run->whole, "options", "{}", err);
    if (st == EXO_OK)
        st = exo_config_graft_whole(exo_config_root(run->whole), "options", options, err);
    return st == EXO_OK ? exo_config_text(whole_options(run), &run->options_text, err) : st;
}

/* Writes the strategy for the nodes' documents: the options as they were written, so that no number
 * loses a digit, and the name. */
static exo_status
write_strategy(struct run *run, const exo_config *options, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "strategy", "{}", err);
    exo_config *root = st == EXO_OK ? exo_config_root(doc) : NULL;
    if (st == EXO_OK)
        st = exo_config_graft(root, "strategy", options, err);
    exo_config *strategy = exo_config_get(root, "strategy");
    if (st == EXO_OK && !exo_config_get(strategy, "name"))
        st = exo_config_graft_string(strategy, "name", run->strategy_name, err);
    if (st == EXO_OK)
        st = exo_config_text(strategy, &run->strategy_text, err);
    exo_config_free(&doc);
    return st;
}

/* Makes a strategy to find errors in the options before there are nodes. Each node makes its own
 * strategy later. */
static exo_status
check_strategy(struct run *run, exo_config *options, exo_err *err)
{
    exo_strategy *strategy = NULL;
    exo_config_doc *none = NULL;
    exo_status st = options ? EXO_OK : exo_config_parse(&none, "options", "{}", err);
    if (st == EXO_OK && none)
        options = exo_config_root(none);
    if (st == EXO_OK)
        st = exo_strategy_new(&strategy, run->strategy_name, options, err);
    if (st == EXO_OK)
        st = exo_strategy_check(strategy, exo_fit_copies(run->fit), err);
    if (st == EXO_OK && run->fit->parts)
        st = exo_fit_check_parts(strategy, run->fit->graph, run->opts, err);
    if (st == EXO_OK)
        st = exo_strategy_check_model(strategy, run->fit->model, err);
    if (st == EXO_OK)
        st = exo_fit_check_elastic(run->opts, strategy, run->strategy_name, err);
    if (st == EXO_OK && run->opts->engine_suspends)
        st = exo_fit_check_rests(strategy, run->strategy_name, err);
    if (st == EXO_OK) {
        run->together = exo_strategy_awaits_units(strategy) || run->fit->parts;
        run->apart = exo_strategy_is_apart(strategy);
        if (run->apart && run->fit->graph && run->fit->graph->virtual_clock)
            run->fit->elastic = false; /* each node takes its failures by itself */
        st = exo_fit_check_failures(run->opts, run->fit->graph, err);
    }
    if (st == EXO_OK)
        st = write_options(run, options, err);
    if (st == EXO_OK)
        st = write_strategy(run, options, err);
    exo_strategy_free(&strategy);
    exo_config_free(&none);
    return st;
}

static exo_status
make_data(struct run *run, exo_dataset *train, exo_dataset *val, exo_err *err)
{
    const exo_dataset_factory *factory = &run->opts->factory;
    exo_status st = EXO_OK;
    run->fit->shared_data = !factory->make;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++) {
        if (factory->make) {
            st = factory->make(factory->context, r / exo_fit_sharing(run->fit),
                               exo_fit_copies(run->fit), true, &run->fit->train[r], err);
            if (st != EXO_OK)
                exo_fail_in(err, st, "the data of node_%u", r);
        } else if (train) {
            run->fit->train[r] = exo_dataset_hold(train);
        } else {
            st = exo_fail(err, EXO_INVAL,
                          "the trainer has no training data, and the options have no factory");
        }
        if (st == EXO_OK && !run->fit->train[r])
            st = exo_fail(err, EXO_INVAL, "the factory made no data set for node_%u", r);
    }
    if (st == EXO_OK && factory->make) {
        st = factory->make(factory->context, 0, exo_fit_copies(run->fit), false, &run->fit->val,
                           err);
        if (st != EXO_OK)
            exo_fail_in(err, st, "the validation data");
    } else if (st == EXO_OK && val) {
        run->fit->val = exo_dataset_hold(val);
    }
    return st;
}

/* Finds tokens outside the model's vocabulary now, not when the first batch with one arrives. */
static exo_status
check_tokens(const struct run *run, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(run->fit->model);
    exo_status st = exo_fit_check_sequences(run->opts, run->fit->val, err);
    for (uint32_t r = 0;
         st == EXO_OK && r < run->fit->num_nodes && (r == 0 || !run->fit->shared_data); r++) {
        st = exo_fit_check_sequences(run->opts, run->fit->train[r], err);
        if (st == EXO_OK && spec)
            st = exo_dataset_check_tokens(run->fit->train[r], spec->vocabulary, err);
    }
    if (spec && st == EXO_OK && run->fit->val)
        st = exo_dataset_check_tokens(run->fit->val, spec->vocabulary, err);
    return st;
}

/* Plans the number of steps: max_steps, or num_epochs over the smallest share. Checks that every
 * node has data for a batch. */
static exo_status
plan_steps(struct run *run, exo_err *err)
{
    const exo_fit *fit = run->fit;
    uint64_t epoch = UINT64_MAX;
    for (uint32_t r = 0; r < fit->num_nodes; r++) {
        size_t length = exo_dataset_length(run->fit->train[r]);
        size_t share = fit->shared_data ? length / exo_fit_copies(fit) : length;
        if (share < fit->batch_size)
            return exo_fail(
                err, EXO_INVAL,
                "batch_size %zu is too large: node_%u gets %zu of %zu sample%s in an epoch",
                fit->batch_size, r, share, length, length == 1 ? "" : "s");
        uint64_t batches = share / fit->batch_size;
        epoch = batches < epoch ? batches : epoch;
    }
    run->fit->max_steps =
        run->opts->max_steps ? run->opts->max_steps : run->opts->num_epochs * epoch;
    return EXO_OK;
}

/* Chooses the minibatch size. A resumed run keeps the size that was chosen for it, whatever memory
 * is free now. */
static exo_status
plan_minibatch(struct run *run, exo_err *err)
{
    size_t wanted = run->opts->minibatch_size;
    uint64_t chosen = 0;
    run->fit->minibatch_size = wanted ? wanted : run->fit->batch_size;
    if (wanted != EXO_MINIBATCH_AUTO)
        return EXO_OK;
    if (run->fit->resume_from[0]) {
        exo_status st =
            exo_checkpoint_setting(run->fit->resume_from, "minibatch_size", &chosen, err);
        /* If it does not divide, batch_size has changed, and check_settings refuses the run. */
        bool fits = chosen > 0 && run->fit->batch_size % chosen == 0;
        run->fit->minibatch_size = fits ? (size_t)chosen : run->fit->batch_size;
        return st;
    }
    unsigned threads = exo_num_threads();
    bool all = run->fit->parts || run->fit->num_nodes < threads; /* at once */
    unsigned copies = all ? run->fit->num_nodes : threads;
    return exo_fit_auto_minibatch(exo_fit_model_of(run->fit, 0), run->fit->train[0],
                                  run->fit->batch_size, run->fit->autocast, copies,
                                  &run->fit->minibatch_size, err);
}

static exo_status
write_text(const struct run *run, const char *name, const char *text, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", run->folder, name);
    return exo_file_write_atomic(path, text, strlen(text), err);
}

/* A damaged newest checkpoint is an error, unless opts->resume_older admits an older one. */
static exo_status
accept(const struct run *run, const exo_checkpoint_choice *choice, exo_err *err)
{
    if (choice->damage.code == EXO_OK)
        return EXO_OK;
    if (!choice->intact[0])
        return exo_fail(err, EXO_INVAL,
                        "%s; no checkpoint of this run is intact: start the run over",
                        choice->damage.text);
    if (!run->opts->resume_older)
        return exo_fail(err, EXO_INVAL,
                        "%s; %s is older and intact: --resume=older continues from it",
                        choice->damage.text, choice->intact);
    return EXO_OK;
}

/* Finds the checkpoint to resume from, if there is one. */
static exo_status
find_checkpoint(struct run *run, exo_checkpoint_choice *choice, exo_err *err)
{
    exo_status st = exo_checkpoint_choose(run->folder, choice, err);
    if (st == EXO_OK && choice->found)
        st = accept(run, choice, err);
    else if (st == EXO_OK && exo_run_is_finished(run->folder))
        st = exo_fail(err, EXO_INVAL,
                      "%s: the run is finished and has no checkpoint to continue from: start it "
                      "over, or choose another name",
                      run->folder);
    else if (st == EXO_OK)
        EXO_LOG(WARN, TRAIN,
                "folder=%s there is no checkpoint to resume from: starting from step 0",
                run->folder);
    if (st != EXO_OK || !choice->found)
        return st;
    memcpy(run->fit->resume_from, choice->intact, sizeof run->fit->resume_from);
    return EXO_OK;
}

/* Makes and locks the run's folder. */
static exo_status
open_folder(struct run *run, exo_checkpoint_choice *choice, exo_err *err)
{
    const exo_fit_opts *opts = run->opts;
    int length = snprintf(run->folder, sizeof run->folder, "%s/%s", opts->save_dir,
                          opts->run_name ? opts->run_name : run->strategy_name);
    if (length < 0 || (size_t)length >= sizeof run->folder - 256)
        return exo_fail(err, EXO_INVAL, "the path of save_dir and the run name is too long");
    exo_status st = exo_dir_guard(run->folder, err);
    if (st == EXO_OK)
        st = exo_folder_make(run->folder, err);
    if (st == EXO_OK)
        st = exo_run_lock(run->folder, &run->lock, err);
    if (st == EXO_OK)
        st = opts->resume ? find_checkpoint(run, choice, err)
                          : exo_run_check_free(run->folder, opts->overwrite, err);
    return st;
}

/* Checks that the run can resume from the checkpoint. Nothing is written before. */
static exo_status
check_checkpoint(struct run *run, exo_err *err)
{
    exo_status st =
        exo_checkpoint_check(run->fit->resume_from, run->settings, whole_options(run), err);
    if (st == EXO_OK && run->far) { /* workers have other current folders */
        char absolute[EXO_CHECKPOINT_PATH];
        if (realpath(run->fit->resume_from, absolute))
            memcpy(run->fit->resume_from, absolute, sizeof absolute);
    }
    return st;
}

static exo_status
put_damaged_aside(const struct run *run, const exo_checkpoint_choice *choice, exo_err *err)
{
    if (!run->fit->resume_from[0] || choice->damage.code == EXO_OK)
        return EXO_OK;
    EXO_LOG(WARN, TRAIN, "damage=\"%s\" resuming from the older %s", choice->damage.text,
            choice->intact);
    return exo_checkpoint_set_damaged_aside(run->folder, choice->intact, err);
}

/* Adds the record of live changes in the folder's config.json, if there is one, to the text of a
 * new config.json. */
static exo_status
keep_changes(const char *folder, const char *text, char **out, exo_err *err)
{
    char *path = exo_text_make(NULL, "%s/config.json", folder), *was = NULL;
    size_t size = 0;
    exo_config_doc *before = NULL, *now = NULL;
    exo_status st = path ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a path");
    *out = NULL;
    exo_config *changes = NULL;
    if (path && exo_file_read(path, MAX_CONFIG, &was, &size, NULL) == EXO_OK &&
        exo_config_parse(&before, path, was, NULL) == EXO_OK)
        changes = exo_config_get(exo_config_root(before), "changes");
    if (st == EXO_OK && exo_config_length(changes) > 0)
        st = exo_config_parse(&now, "config.json", text, err);
    if (st == EXO_OK && now)
        st = exo_config_graft(exo_config_root(now), "changes", changes, err);
    if (st == EXO_OK && now)
        st = exo_config_json(exo_config_root(now), out, err);
    exo_config_free(&before);
    exo_config_free(&now);
    exo_free(was);
    exo_free(path);
    return st;
}

/* Writes config.json. A resumed run keeps the record of live changes. */
static exo_status
write_config(struct run *run, const char *text, exo_err *err)
{
    char *with_changes = NULL;
    exo_status st =
        run->opts->resume ? keep_changes(run->folder, text, &with_changes, err) : EXO_OK;
    if (st == EXO_OK)
        st = write_text(run, "config.json", with_changes ? with_changes : text, err);
    exo_free(with_changes);
    return st;
}

static exo_status
check_settings(struct run *run, exo_err *err)
{
    exo_status st =
        exo_fit_settings_json(run->opts, run->strategy_name, run->options_text, run->fit->model,
                              run->fit->train[0], run->fit->minibatch_size, &run->settings, err);
    return st == EXO_OK && run->fit->resume_from[0] ? check_checkpoint(run, err) : st;
}

/* Clears the folder for this run and writes config.json. It is called once nothing can refuse the
 * run any more. */
static exo_status
begin_folder(struct run *run, const exo_checkpoint_choice *choice, exo_err *err)
{
    const exo_fit_opts *opts = run->opts;
    char *config = NULL;
    exo_status st = opts->resume ? put_damaged_aside(run, choice, err)
                                 : exo_run_start_over(run->folder, opts->overwrite, err);
    if (st == EXO_OK && !opts->config_json)
        st = exo_fit_config_json(opts, run->strategy_name, run->options_text, run->fit->model,
                                 run->fit->max_steps, run->fit->minibatch_size, &config, err);
    if (st == EXO_OK)
        st = write_config(run, opts->config_json ? opts->config_json : config, err);
    exo_free(config);
    return st;
}

/* Saves the tokenizer with the model, so that text can be generated from a copy of the folder,
 * without the data. */
static exo_status
save_tokenizer(const struct run *run, exo_err *err)
{
    const exo_tokenizer *tokenizer = exo_dataset_tokenizer(run->fit->train[0]);
    return tokenizer && run->folder[0] ? exo_tokenizer_save(tokenizer, run->folder, err) : EXO_OK;
}

/* Reads the nodes' states, which must be at the same step. */
static exo_status
read_ready(struct run *run, exo_err *err)
{
    uint64_t bytes = 0;
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++) {
        ProtobufCMessage *reply = NULL;
        st = exo_fit_reply(run, r, &exo__train__node_ready__descriptor, &reply, err);
        const Exo__Train__NodeReady *ready = (const Exo__Train__NodeReady *)reply;
        if (st == EXO_OK && r == 0) {
            run->step = ready->step;
            run->steps_before = run->before.known ? 0 : ready->step;
            run->elapsed_before = ready->elapsed;
            st = exo_fit_take_links(run, ready, err);
        }
        if (st == EXO_OK && ready->step != run->step)
            st = exo_fail(err, EXO_INVAL,
                          "%s: node_0 is at step %" PRIu64 ", node_%u at step %" PRIu64,
                          run->fit->resume_from, run->step, r, ready->step);
        bytes += st == EXO_OK ? ready->bytes_sent : 0;
        exo_args_free(&reply);
    }
    run->bytes_sent = exo_fit_mean_bytes(run, bytes);
    return st;
}

static exo_status
set_up_nodes(struct run *run, exo_err *err)
{
    exo_status st = exo_fit_have_all(run, "setup", NULL, err);
    if (st == EXO_OK)
        st = read_ready(run, err);
    if (st == EXO_OK && run->step > run->fit->max_steps)
        st = exo_fail(err, EXO_INVAL,
                      "%s: the checkpoint is at step %" PRIu64 ", beyond max_steps %" PRIu64
                      ": increase max_steps",
                      run->fit->resume_from, run->step, run->fit->max_steps);
    run->is_set_up = st == EXO_OK;
    return st;
}

exo_status
exo_fit_prepare(struct run *run, exo_dataset *train, exo_dataset *val, exo_config *options,
                exo_err *err)
{
    exo_checkpoint_choice choice = {0};
    exo_status st = allocate(run, err);
    if (st == EXO_OK)
        st = check_strategy(run, options, err);
    if (st == EXO_OK)
        st = make_data(run, train, val, err);
    if (st == EXO_OK)
        st = check_tokens(run, err);
    if (st == EXO_OK)
        st = plan_steps(run, err);
    if (st == EXO_OK && run->opts->val_size != EXO_VAL_NONE)
        st = exo_fit_plan_evaluation(run->fit, run->opts->val_size, err);
    if (st == EXO_OK && run->opts->save_dir)
        st = open_folder(run, &choice, err);
    if (st == EXO_OK)
        st = plan_minibatch(run, err);
    if (st == EXO_OK && run->opts->save_dir)
        st = check_settings(run, err);
    if (st == EXO_OK)
        st = exo_fit_load_figures(run, err);
    if (st == EXO_OK)
        st = exo_fit_open_meters(run, err);
    if (st == EXO_OK)
        st = exo_fit_open_network(run, err);
    if (st == EXO_OK)
        st = exo_fit_make_nodes(run, err);
    if (st == EXO_OK)
        st = set_up_nodes(run, err);
    if (st == EXO_OK)
        st = exo_fit_elastic_open(run, err);
    if (st == EXO_OK)
        st = exo_fit_failures_open(run, err);
    if (st == EXO_OK && run->opts->save_dir)
        st = begin_folder(run, &choice, err);
    if (st == EXO_OK)
        st = exo_fit_show_links(run, err);
    if (st == EXO_OK)
        st = save_tokenizer(run, err);
    if (st == EXO_OK && run->folder[0])
        st = exo_metrics_open(&run->metrics, run->folder, run->fit->resume_from[0] != 0, run->step,
                              err);
    if (st == EXO_OK && run->folder[0] && run->step < run->fit->max_steps)
        st = exo_run_reopen(run->folder, err); /* its old model and result are outdated */
    return st;
}
