/* The trainer: results do not depend on threads, stops or crashes; the bytes are those of the
 * closed forms; errors name their place. Each test owns its `struct scene`. Read next:
 * include/exogym/trainer.h; docs/checkpoints.md. */
#include <criterion/criterion.h>

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "support/points.h"

enum {
    STEPS = 12,
    NODES = 3,
    BATCH = 4
};

struct scene {
    exo_model *model;
    exo_dataset *train, *val;
    exo_trainer *trainer;
    exo_fit_opts opts;
    exo_fit_result result;
    exo_err err;
    char folder[64];
};

static void
scene_init(struct scene *s)
{
    *s = (struct scene){.model = points_mlp(),
                        .train = points_new(200, 1, SIZE_MAX),
                        .val = points_new(64, 2, SIZE_MAX),
                        .opts = exo_fit_opts_init(),
                        .folder = "/tmp/exogym-test-XXXXXX"};
    cr_assert_not_null(mkdtemp(s->folder));
    cr_assert_eq(exo_trainer_new(&s->trainer, s->model, s->train, s->val, &s->err), EXO_OK);
    s->opts.num_nodes = NODES;
    s->opts.batch_size = BATCH;
    s->opts.max_steps = STEPS;
    s->opts.val_interval = 5;
    s->opts.save_dir = NULL;
}

static void
scene_release(struct scene *s)
{
    char command[128];
    exo_params_free(&s->result.params);
    exo_trainer_free(&s->trainer);
    exo_dataset_drop(&s->train);
    exo_dataset_drop(&s->val);
    exo_model_drop(&s->model);
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    cr_expect_eq(system(command), 0);
}

static exo_status
fit(struct scene *s, const char *strategy, const char *options)
{
    exo_params_free(&s->result.params);
    s->err = (exo_err){0};
    return exo_trainer_fit_text(s->trainer, strategy, options, &s->opts, &s->result, &s->err);
}

static void
fit_ok(struct scene *s, const char *strategy, const char *options)
{
    exo_status st = fit(s, strategy, options);
    cr_assert_eq(st, EXO_OK, "%s: %s", strategy, s->err.text);
}

static const struct {
    const char *name, *options;
} strategies[] = {
    {"ddp", "{optimizer: {name: adamw, lr: 0.01}}"},
    {"diloco", "{H: 4, optimizer: {name: adamw, lr: 0.01}}"},
    {"muloco", "{H: 4}"},
    {"sparta", "{p: 0.2, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}"},
    {"sparta", "{p: 0.3, selector: partitioned, optimizer: {name: rmsprop, lr: 0.01}}"},
    {"sparta", "{p: 0.3, selector: shuffled_sequential, optimizer: {name: adagrad, lr: 0.1}}"},
};
enum {
    NUM_STRATEGIES = sizeof strategies / sizeof strategies[0]
};

/* --- Reproducibility -------------------------------------------------------------------------- */

Test(trainer, same_job_same_bits_with_any_number_of_threads)
{
    for (int i = 0; i < NUM_STRATEGIES; i++) {
        struct scene s;
        scene_init(&s);
        char first[65];
        exo_set_num_threads(1);
        fit_ok(&s, strategies[i].name, strategies[i].options);
        memcpy(first, s.result.sha256, sizeof first);
        for (unsigned threads = 1; threads <= 4; threads++) {
            exo_set_num_threads(threads);
            fit_ok(&s, strategies[i].name, strategies[i].options);
            cr_expect_str_eq(s.result.sha256, first, "%s with %u threads", strategies[i].name,
                             threads);
        }
        s.opts.seed++;
        fit_ok(&s, strategies[i].name, strategies[i].options);
        cr_expect_str_neq(s.result.sha256, first, "%s: another seed must give another model",
                          strategies[i].name);
        scene_release(&s);
    }
}

/* With a norm that is never reached, gradients lie in a buffer and the step comes after backward.
 * Without a norm, some strategies take the step within backward. */
Test(trainer, a_step_within_backward_is_the_step_after_it)
{
    for (int i = 0; i < NUM_STRATEGIES; i++)
        for (uint32_t nodes = 1; nodes <= NODES; nodes += NODES - 1) {
            struct scene s;
            char within[65], options[160];
            scene_init(&s);
            s.opts.num_nodes = nodes;
            fit_ok(&s, strategies[i].name, strategies[i].options);
            memcpy(within, s.result.sha256, sizeof within);
            snprintf(options, sizeof options, "{max_norm: 1e30, %s", strategies[i].options + 1);
            fit_ok(&s, strategies[i].name, options);
            cr_expect_str_eq(s.result.sha256, within, "%s, %u nodes", strategies[i].name, nodes);
            scene_release(&s);
        }
}

Test(trainer, evaluation_and_correlation_change_nothing)
{
    struct scene s;
    scene_init(&s);
    char first[65];
    fit_ok(&s, "diloco", "{H: 4}");
    memcpy(first, s.result.sha256, sizeof first);
    s.opts.val_interval = 1;
    s.opts.correlation_interval = 1;
    s.opts.val_size = 10;
    fit_ok(&s, "diloco", "{H: 4}");
    cr_expect_str_eq(s.result.sha256, first);
    scene_release(&s);
}

struct stop_at {
    uint64_t step;
    _Atomic int stop;
};

static void
stop_at_step(void *context, const exo_progress *progress)
{
    struct stop_at *at = context;
    if (progress->step >= at->step)
        at->stop = 1;
}

/* Reads a file of a run. */
static void
read_rows(const char *folder, const char *run, const char *file, char *out, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/%s", folder, run, file);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    fclose(f);
}

Test(trainer, stopped_at_any_step_and_resumed_gives_the_same_bits_and_rows, .timeout = 120)
{
    static char whole[65536], resumed[65536];
    for (int i = 0; i < NUM_STRATEGIES; i++) {
        struct scene s;
        scene_init(&s);
        char sha[65];
        uint64_t bytes;
        s.opts.val_interval = 1; /* an event after each step, at which a stop takes effect */
        s.opts.save_dir = s.folder;
        s.opts.run_name = "whole";
        fit_ok(&s, strategies[i].name, strategies[i].options);
        memcpy(sha, s.result.sha256, sizeof sha);
        bytes = s.result.bytes_sent;

        for (uint64_t step = 1; step < STEPS; step += i == 0 ? 1 : 3) {
            char run[32];
            struct stop_at at = {.step = step};
            snprintf(run, sizeof run, "stopped_%u", (unsigned)step);
            s.opts.run_name = run;
            s.opts.progress = stop_at_step;
            s.opts.context = &at;
            s.opts.stop = &at.stop;
            cr_expect_eq(fit(&s, strategies[i].name, strategies[i].options), EXO_CANCELLED, "%s",
                         s.err.text);
            s.opts.stop = NULL;
            s.opts.progress = NULL;
            s.opts.resume = true;
            fit_ok(&s, strategies[i].name, strategies[i].options);
            s.opts.resume = false;
            cr_expect_str_eq(s.result.sha256, sha, "%s stopped at %u", strategies[i].name,
                             (unsigned)step);
            cr_expect_eq(s.result.bytes_sent, bytes);
            const char *files[] = {"train.csv", "validation.csv"};
            for (int f = 0; f < 2; f++) {
                read_rows(s.folder, "whole", files[f], whole, sizeof whole);
                read_rows(s.folder, run, files[f], resumed, sizeof resumed);
                cr_expect_str_eq(resumed, whole, "%s of %s stopped at %u", files[f],
                                 strategies[i].name, (unsigned)step);
            }
        }
        scene_release(&s);
    }
}

static void
die_at_step(void *context, const exo_progress *progress)
{
    if (progress->step >= *(const uint64_t *)context)
        raise(SIGKILL);
}

/* Trains in a child process, which kills itself at `step`. */
static void
train_and_die(struct scene *s, uint64_t step)
{
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        s->opts.progress = die_at_step;
        s->opts.context = &step;
        fit(s, "diloco", "{H: 3}");
        _exit(0);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

Test(trainer, killed_at_any_step_and_resumed_gives_the_same_bits, .timeout = 120)
{
    struct scene s;
    char run[STEPS + 1][32], sha[65];
    scene_init(&s);
    s.opts.save_dir = s.folder;
    s.opts.checkpoint_interval = 2;
    /* All children are forked before this process trains: a fork copies locks that other threads
     * hold, but not the threads. */
    for (uint64_t step = 1; step <= STEPS; step++) {
        snprintf(run[step], sizeof run[step], "killed_%u", (unsigned)step);
        s.opts.run_name = run[step];
        train_and_die(&s, step);
    }
    s.opts.run_name = "whole";
    fit_ok(&s, "diloco", "{H: 3}");
    memcpy(sha, s.result.sha256, sizeof sha);

    s.opts.resume = true;
    for (uint64_t step = 1; step <= STEPS; step++) {
        s.opts.run_name = run[step];
        fit_ok(&s, "diloco", "{H: 3}");
        cr_expect_str_eq(s.result.sha256, sha, "killed at %u", (unsigned)step);
    }
    scene_release(&s);
}

/* --- Correctness ------------------------------------------------------------------------------ */

Test(trainer, learns_and_reports_the_averaged_model)
{
    for (int i = 0; i < NUM_STRATEGIES; i++) {
        struct scene s;
        scene_init(&s);
        exo_trainer_free(&s.trainer);
        exo_dataset_drop(&s.train);
        s.train = points_new(4000, 1, SIZE_MAX); /* too many points to memorize */
        cr_assert_eq(exo_trainer_new(&s.trainer, s.model, s.train, s.val, &s.err), EXO_OK);
        s.opts.max_steps = 240;
        s.opts.num_nodes = 2;
        s.opts.val_size = 0;
        fit_ok(&s, strategies[i].name, strategies[i].options);
        cr_expect_lt(s.result.global_loss, 1.0, "%s: %g", strategies[i].name, s.result.global_loss);
        cr_expect_gt(s.result.global_accuracy, 0.5);
        cr_expect_eq(s.result.steps, 240);
        scene_release(&s);
    }
}

Test(trainer, bytes_equal_the_closed_forms)
{
    struct scene s;
    scene_init(&s);
    uint64_t numel = exo_model_numel(s.model);
    cr_expect_eq(numel, 8 * 16 + 16 + 16 * 3 + 3);
    for (uint32_t n = 1; n <= 4; n++) {
        s.opts.num_nodes = n;
        /* The mean of a node: 2 Psi (N - 1) / N elements of 4 bytes a round, rounded after the sum
         * over rounds. */
        double round = 2.0 * (double)numel * 4.0 * (n - 1) / n;
        fit_ok(&s, "ddp", "{}");
        cr_expect_eq(s.result.bytes_sent, (uint64_t)floor(round * STEPS + 0.5), "ddp on %u", n);
        fit_ok(&s, "diloco", "{H: 5}");
        cr_expect_eq(s.result.bytes_sent, (uint64_t)floor(round * (STEPS / 5) + 0.5),
                     "diloco on %u", n);
    }
    scene_release(&s);
}

/* ddp on N nodes with batch B equals one node with batch N B: each step has the same samples,
 * summed in another order. */
Test(trainer, ddp_is_one_node_with_a_larger_batch)
{
    struct scene s;
    scene_init(&s);
    s.opts.num_nodes = 4;
    s.opts.batch_size = 4;
    fit_ok(&s, "ddp", "{optimizer: {name: sgd, lr: 0.1}}");
    size_t numel = exo_params_numel(s.result.params);
    float *many = calloc(numel, sizeof *many);
    memcpy(many, exo_params_values(s.result.params), numel * sizeof *many);
    s.opts.num_nodes = 1;
    s.opts.batch_size = 16;
    fit_ok(&s, "ddp", "{optimizer: {name: sgd, lr: 0.1}}");
    for (size_t i = 0; i < numel; i++)
        cr_assert_float_eq(exo_params_values(s.result.params)[i], many[i], 1e-5, "element %zu", i);
    free(many);
    scene_release(&s);
}

Test(trainer, minibatches_add_up_to_the_batch)
{
    struct scene s;
    scene_init(&s);
    s.opts.batch_size = 16;
    fit_ok(&s, "ddp", "{optimizer: {name: sgd, lr: 0.1}}");
    double whole = s.result.global_loss;
    for (size_t size = 1; size <= 8; size *= 2) {
        s.opts.minibatch_size = size;
        fit_ok(&s, "ddp", "{optimizer: {name: sgd, lr: 0.1}}");
        cr_expect_float_eq(s.result.global_loss, whole, 1e-5);
    }
    s.opts.minibatch_size = EXO_MINIBATCH_AUTO; /* a batch of 16 points fits in any memory */
    fit_ok(&s, "ddp", "{optimizer: {name: sgd, lr: 0.1}}");
    cr_expect_float_eq(s.result.global_loss, whole, 1e-7);
    scene_release(&s);
}

Test(trainer, equal_copies_correlate_perfectly)
{
    struct scene s;
    scene_init(&s);
    s.opts.save_dir = s.folder;
    s.opts.run_name = "run";
    s.opts.correlation_interval = STEPS;
    fit_ok(&s, "ddp", "{}");
    char rows[256];
    double correlation = 0;
    read_rows(s.folder, "run", "correlation.csv", rows, sizeof rows);
    const char *last = strstr(rows, "\n12,");
    cr_assert(last && sscanf(last, "\n12,%lf", &correlation) == 1, "%s", rows);
    cr_expect_float_eq(correlation, 1.0, 1e-5);
    scene_release(&s);
}

Test(trainer, epochs_become_steps)
{
    struct scene s;
    scene_init(&s);
    s.opts.max_steps = 0;
    s.opts.num_epochs = 2;
    s.opts.num_nodes = 2; /* 200 samples, 100 a node, 25 batches of 4 */
    fit_ok(&s, "ddp", "{}");
    cr_expect_eq(s.result.steps, 50);
    scene_release(&s);
}

static _Atomic uint32_t asked;

static exo_status
make_points(void *context, uint32_t rank, uint32_t num_nodes, bool train, exo_dataset **out,
            exo_err *err)
{
    (void)context;
    (void)err;
    if (train)
        asked |= 1u << rank;
    cr_assert_eq(num_nodes, NODES);
    *out = points_new(40, train ? 10 + rank : 2, SIZE_MAX);
    return EXO_OK;
}

Test(trainer, a_factory_makes_each_nodes_data)
{
    struct scene s;
    scene_init(&s);
    exo_trainer_free(&s.trainer);
    cr_assert_eq(exo_trainer_new(&s.trainer, s.model, NULL, NULL, &s.err), EXO_OK);
    s.opts.factory.make = make_points;
    fit_ok(&s, "ddp", "{}");
    cr_expect_eq(asked, 7u);
    s.opts.factory.make = NULL;
    cr_expect_eq(fit(&s, "ddp", "{}"), EXO_INVAL);
    scene_release(&s);
}

/* --- Errors ----------------------------------------------------------------------------------- */

static exo_status
make_none_to_validate(void *context, uint32_t rank, uint32_t num_nodes, bool train,
                      exo_dataset **out, exo_err *err)
{
    (void)context, (void)num_nodes, (void)err;
    *out = points_new(train ? 40 : 0, rank, SIZE_MAX);
    return EXO_OK;
}

Test(trainer, wrong_options_are_named)
{
    struct scene s;
    scene_init(&s);
#define REFUSED(change, word)                                                                      \
    do {                                                                                           \
        exo_fit_opts saved = s.opts;                                                               \
        change;                                                                                    \
        exo_status st = fit(&s, "ddp", "{}");                                                      \
        cr_expect(st == EXO_INVAL || st == EXO_UNSUPPORTED, "%s: %d", #change, st);                \
        cr_expect(strstr(s.err.text, word), "%s: '%s' does not name %s", #change, s.err.text,      \
                  word);                                                                           \
        s.opts = saved;                                                                            \
    } while (0)
    REFUSED(s.opts.num_nodes = 0, "num_nodes");
    REFUSED(s.opts.num_nodes = 65537, "num_nodes must be 1 to 65536");
    REFUSED(s.opts.timeout = -1, "timeout must be 0 or from 1 ms to 1,000,000 s");
    REFUSED(s.opts.timeout = EXO_MS - 1, "timeout must be 0 or from 1 ms to 1,000,000 s");
    REFUSED(s.opts.timeout = 1000000 * EXO_SECOND + 1, "timeout must be 0 or from 1 ms");
    REFUSED(s.opts.timeout = INT64_MAX, "timeout must be 0 or from 1 ms to 1,000,000 s");
    REFUSED(s.opts.batch_size = 0, "batch_size");
    REFUSED(s.opts.batch_size = 67, "batch_size 67");
    REFUSED(s.opts.minibatch_size = 3, "minibatch_size 3");
    REFUSED(s.opts.device = "tpu", "tpu");
    REFUSED(s.opts.max_steps = s.opts.num_epochs = 0, "max_steps");
    REFUSED(s.opts.run_name = "a/b", "a/b");
    REFUSED(s.opts.resume = true, "save_dir");
    REFUSED(s.opts.checkpoint_interval = 1, "save_dir");
    REFUSED(s.opts.factory.make = make_none_to_validate, "the validation set is empty");
    cr_expect_eq(fit(&s, "nonsense", "{}"), EXO_NOT_FOUND);
    cr_expect(strstr(s.err.text, "ddp"), "%s", s.err.text);
    cr_expect_eq(fit(&s, "diloco", "{H: 0}"), EXO_INVAL);
    cr_expect(strstr(s.err.text, "H"), "%s", s.err.text);
    cr_expect_eq(fit(&s, "diloco", "{h: 1}"), EXO_INVAL);
    scene_release(&s);
}

Test(trainer, a_node_that_fails_ends_the_run_with_its_reason, .timeout = 60)
{
    struct scene s;
    scene_init(&s);
    exo_trainer_free(&s.trainer);
    exo_dataset *broken = points_new(200, 1, 77);
    cr_assert_eq(exo_trainer_new(&s.trainer, s.model, broken, s.val, &s.err), EXO_OK);
    s.opts.max_steps = 40; /* more than an epoch: some node reads sample 77 */
    for (int i = 0; i < NUM_STRATEGIES; i++) {
        cr_expect_eq(fit(&s, strategies[i].name, strategies[i].options), EXO_IO);
        cr_expect(strstr(s.err.text, "node_") && strstr(s.err.text, "the disk is gone"), "%s",
                  s.err.text);
    }
    exo_dataset_drop(&broken);
    scene_release(&s);
}

Test(trainer, resume_refuses_other_settings)
{
    struct scene s;
    scene_init(&s);
    s.opts.save_dir = s.folder;
    s.opts.run_name = "run";
    s.opts.checkpoint_interval = 4;
    fit_ok(&s, "ddp", "{}");
    s.opts.resume = true;
    s.opts.batch_size = 8;
    cr_expect_eq(fit(&s, "ddp", "{}"), EXO_INVAL);
    cr_expect(strstr(s.err.text, "batch_size 4"), "%s", s.err.text);
    s.opts.batch_size = BATCH;
    cr_expect_eq(fit(&s, "ddp", "{max_norm: 1}"), EXO_INVAL);
    cr_expect(strstr(s.err.text, "other options, the first difference is in max_norm"), "%s",
              s.err.text);
    /* data of another length; other data of the same length */
    for (uint64_t other = 0; other < 2; other++) {
        exo_trainer_free(&s.trainer);
        exo_dataset_drop(&s.train);
        s.train = points_new(200 + 4 * (1 - other), 1 + other, SIZE_MAX);
        cr_assert_eq(exo_trainer_new(&s.trainer, s.model, s.train, s.val, &s.err), EXO_OK);
        cr_expect_eq(fit(&s, "ddp", "{}"), EXO_INVAL);
        cr_expect(strstr(s.err.text, "written with data \"200 samples"), "%s", s.err.text);
    }
    scene_release(&s);
}

/* A full disk during the writing of a checkpoint, for which a limit on file sizes stands in. */
Test(trainer, a_checkpoint_that_cannot_be_written_leaves_the_last_one)
{
    struct scene s;
    scene_init(&s);
    char sha[65];
    /* no figures, which would exceed the limit first; the stop takes effect at a correlation */
    s.opts.val_interval = 0;
    s.opts.correlation_interval = 4;
    fit_ok(&s, "ddp", "{}");
    memcpy(sha, s.result.sha256, sizeof sha);

    s.opts.save_dir = s.folder;
    s.opts.run_name = "run";
    struct stop_at at = {.step = 4};
    s.opts.progress = stop_at_step;
    s.opts.context = &at;
    s.opts.stop = &at.stop;
    cr_assert_eq(fit(&s, "ddp", "{}"), EXO_CANCELLED);
    s.opts.stop = NULL;
    s.opts.progress = NULL;
    s.opts.resume = true;
    s.opts.checkpoint_interval = STEPS - 1;

    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {.rlim_cur = 2048, .rlim_max = RLIM_INFINITY};
    const struct rlimit large = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &small);
    cr_expect_eq(fit(&s, "ddp", "{}"), EXO_IO);
    setrlimit(RLIMIT_FSIZE, &large);
    cr_expect(strstr(s.err.text, "safetensors"), "%s", s.err.text);

    char command[160];
    snprintf(command, sizeof command, "test \"$(ls -A %s/run/checkpoints | wc -l)\" = 1", s.folder);
    cr_expect_eq(system(command), 0, "something half-written was left");
    fit_ok(&s, "ddp", "{}");
    cr_expect_str_eq(s.result.sha256, sha);
    scene_release(&s);
}

Test(trainer, two_runs_do_not_share_a_folder)
{
    struct scene s;
    scene_init(&s);
    char path[128];
    s.opts.save_dir = s.folder;
    s.opts.run_name = "run";
    s.opts.overwrite = true;
    fit_ok(&s, "ddp", "{}");
    snprintf(path, sizeof path, "cd %s/run && flock .lock sleep 2 &", s.folder);
    cr_assert_eq(system(path), 0);
    exo_status st = EXO_OK;
    for (int i = 0; i < 200 && st == EXO_OK; i++) { /* until flock has the lock */
        st = fit(&s, "ddp", "{}");
    }
    cr_expect_eq(st, EXO_EXISTS, "%s", s.err.text);
    cr_expect(strstr(s.err.text, "another run writes"), "%s", s.err.text);
    scene_release(&s);
}

static void
stop_after_five(void *context, const exo_progress *progress)
{
    EXO_ATOMIC(int) *stop = context;
    cr_expect_eq(isnan(progress->train_loss) != 0, progress->step == 0, "a loss of %g at step %d",
                 (double)progress->train_loss, (int)progress->step);
    if (progress->step >= 5)
        *stop = 1;
}

/* Without a final checkpoint, the end of a run removes the checkpoint of an earlier stop, and keeps
 * those of the interval. */
Test(trainer, no_final_checkpoint_leaves_none_of_a_stop)
{
    for (uint64_t interval = 0; interval <= 4; interval += 4) {
        struct scene s;
        char path[128];
        EXO_ATOMIC(int) stop = 0;
        scene_init(&s);
        s.opts.save_dir = s.folder;
        s.opts.run_name = "run";
        s.opts.final_checkpoint = false;
        s.opts.checkpoint_interval = interval;
        s.opts.progress = stop_after_five;
        s.opts.context = (void *)&stop;
        s.opts.stop = &stop;
        snprintf(path, sizeof path, "%s/run/checkpoints", s.folder);
        cr_assert_eq(fit(&s, "ddp", "{}"), EXO_CANCELLED, "%s", s.err.text);
        cr_expect_eq(access(path, F_OK), 0, "the stop saved nothing");
        stop = 0;
        s.opts.stop = NULL;
        s.opts.resume = true;
        fit_ok(&s, "ddp", "{}");
        cr_expect_eq(access(path, F_OK) == 0, interval != 0, "interval %d", (int)interval);
        scene_release(&s);
    }
}

/* A folder holds one run. A finished run is replaced only on request, and its model is gone before
 * another run trains. */
static void
model_is_gone(void *context, const exo_progress *progress)
{
    (void)progress;
    cr_expect_neq(access(context, F_OK), 0,
                  "the model of the run before is there while another trains");
}

Test(trainer, a_finished_run_is_replaced_only_when_asked_and_goes_on_with_more_steps)
{
    struct scene s;
    char path[128], sha[65];
    scene_init(&s);
    s.opts.max_steps = 2 * STEPS;
    fit_ok(&s, "diloco", "{H: 4}");
    memcpy(sha, s.result.sha256, sizeof sha);

    s.opts.max_steps = STEPS;
    s.opts.save_dir = s.folder;
    s.opts.run_name = "run";
    fit_ok(&s, "diloco", "{H: 4}");
    snprintf(path, sizeof path, "%s/run/model.safetensors", s.folder);
    cr_expect_eq(fit(&s, "diloco", "{H: 4}"), EXO_EXISTS);
    cr_expect(strstr(s.err.text, "holds a finished run"), "%s", s.err.text);
    cr_expect_eq(access(path, F_OK), 0, "the model is gone");

    s.opts.resume = true;
    s.opts.max_steps = 2 * STEPS;
    s.opts.progress = model_is_gone;
    s.opts.context = path;
    fit_ok(&s, "diloco", "{H: 4}");
    cr_expect_str_eq(s.result.sha256, sha, "12 steps and 12 more are not 24");
    cr_expect_eq(access(path, F_OK), 0, "there is no model");
    s.opts.resume = false;
    s.opts.overwrite = true;
    fit_ok(&s, "diloco", "{H: 4}");
    cr_expect_str_eq(s.result.sha256, sha);
    scene_release(&s);
}

/* The size that auto chose remains that of the run: with auto again, and if the job gives the same
 * size. */
Test(trainer, auto_keeps_its_minibatch_when_resumed)
{
    struct scene s;
    scene_init(&s);
    s.opts.save_dir = s.folder;
    s.opts.run_name = "run";
    s.opts.minibatch_size = 2; /* as auto would choose with less memory */
    fit_ok(&s, "ddp", "{}");
    s.opts.resume = true;
    s.opts.max_steps = 2 * STEPS;
    s.opts.minibatch_size = EXO_MINIBATCH_AUTO;
    fit_ok(&s, "ddp", "{}");
    s.opts.max_steps = 3 * STEPS;
    s.opts.minibatch_size = 2;
    fit_ok(&s, "ddp", "{}");
    s.opts.max_steps = 4 * STEPS;
    s.opts.minibatch_size = 4;
    cr_expect_eq(fit(&s, "ddp", "{}"), EXO_INVAL);
    cr_expect(strstr(s.err.text, "minibatch_size 2"), "%s", s.err.text);
    scene_release(&s);
}
