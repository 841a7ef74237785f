/* Checkpoints of nodes that are apart: no node waits for another one at a checkpoint, and a run goes
 * on from a checkpoint whose parts were written at different times. Steps have a declared cost, so all
 * times are virtual. Read next: actors/fit_apart.c. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "actors/fit_run.h"
#include "support/points.h"
#include "support/temp.h"

enum {
    NODES = 4,
    STEPS = 40,
    BATCH = 4,
    INTERVAL = 3
};

static const exo_failures often = {
    .mean_time_between = 3 * EXO_SECOND, .repair = 500 * EXO_MS, .seed = 1};

static const double equal[NODES] = {1, 1, 1, 1}, unequal[NODES] = {0.5, 1, 0.3, 0.9};

static const struct {
    const char *name, *options;
    bool exact, always; /* a resumed run has the bits of a whole one, at equal or at all speeds */
} strategies[] = {
    {"async_diloco", "{H: 5, dynamic: false, optimizer: {name: adamw, lr: 0.01}}", true, false},
    {"async_diloco", "{H: 5, optimizer: {name: adamw, lr: 0.01}}", true, false},
    {"decoupled_diloco",
     "{H: 6, fragments: 2, delay: 2, quorum: 4, optimizer: {name: adamw, lr: 0.01}}", true, true},
    {"decoupled_diloco", "{H: 6, fragments: 2, optimizer: {name: adamw, lr: 0.01}}", false, false},
};

struct scene {
    exo_fit_opts opts;
    const double *speeds;
    exo_fit_result result;
    exo_err err;
};

static exo_status
try_fit(struct scene *s, size_t strategy)
{
    uint32_t placed[NODES];
    exo_emulated_host hosts[NODES];
    exo_compute_spec step = {.phase = "step", .cost = 50 * EXO_MS};
    exo_actor_spec actor = {
        .name = "node", .count = NODES, .hosts = placed, .compute = &step, .num_compute = 1};
    exo_edge_spec edge = {.name = "node>node",
                          .carries = "exchange",
                          .route = EXO_ROUTE_ALL_REDUCE,
                          .codec_text = "raw",
                          .link = -1};
    exo_named_link link = {
        .name = "default",
        .is_default = true,
        .from = -1,
        .to = -1,
        .spec = {.bandwidth = INFINITY, .latency = 10 * EXO_MS, .transport = EXO_LINK_IDEAL}};
    for (uint32_t i = 0; i < NODES; i++) {
        placed[i] = i;
        hosts[i] = (exo_emulated_host){.spec = {.name = "h", .up = 1e6, .down = 1e6},
                                       .speed = s->speeds[i]};
    }
    const exo_graph_spec graph = {.source = "test",
                                  .name = "test",
                                  .seed = 1,
                                  .virtual_clock = true,
                                  .actors = &actor,
                                  .num_actors = 1,
                                  .edges = &edge,
                                  .num_edges = 1,
                                  .hosts = hosts,
                                  .num_hosts = NODES,
                                  .links = &link,
                                  .num_links = 1,
                                  .emulated = true};
    exo_model *model = points_mlp();
    exo_dataset *train = points_new(200, 1, SIZE_MAX), *val = points_new(64, 2, SIZE_MAX);
    exo_config_doc *doc = NULL;
    cr_assert_eq(exo_config_parse(&doc, "options", strategies[strategy].options, NULL), EXO_OK);
    exo_status st = exo_fit_run(model, train, val, strategies[strategy].name, exo_config_root(doc),
                                &s->opts, NULL, &graph, NULL, &s->result, &s->err);
    exo_params_free(&s->result.params);
    exo_config_free(&doc);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
    exo_model_drop(&model);
    return st;
}

static struct scene
scene_of(const char *folder, const double *speeds, uint64_t interval)
{
    struct scene s = {.opts = exo_fit_opts_init(), .speeds = speeds};
    s.opts.num_nodes = NODES;
    s.opts.batch_size = BATCH;
    s.opts.max_steps = STEPS;
    s.opts.val_interval = 0;
    s.opts.save_dir = folder;
    s.opts.overwrite = true;
    s.opts.checkpoint_interval = interval;
    return s;
}

static void
fit(struct scene *s, size_t strategy)
{
    cr_assert_eq(try_fit(s, strategy), EXO_OK, "%s: %s", strategies[strategy].name, s->err.text);
}

/* --- Time ------------------------------------------------------------------------------------- */

static void
expect_free_checkpoints(const char *folder, size_t strategy, const double *speeds,
                        const exo_failures *failures)
{
    struct scene without = scene_of(folder, speeds, 0), with = scene_of(folder, speeds, INTERVAL);
    without.opts.failures = with.opts.failures = *failures;
    fit(&without, strategy);
    fit(&with, strategy);
    cr_expect_eq(with.result.seconds, without.result.seconds, "%s: %g s, without checkpoints %g s",
                 strategies[strategy].options, with.result.seconds, without.result.seconds);
    cr_expect_eq(with.result.bytes_sent, without.result.bytes_sent);
    cr_expect_str_eq(with.result.sha256, without.result.sha256);
    cr_expect(with.result.goodput == without.result.goodput ||
              (isnan(with.result.goodput) && isnan(without.result.goodput)));
}

Test(apart, a_checkpoint_takes_no_time_and_changes_nothing, .timeout = 240)
{
    char folder[64];
    temp_folder(folder, sizeof folder);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        expect_free_checkpoints(folder, i, unequal, &(exo_failures){0});
        expect_free_checkpoints(folder, i, equal, &often);
    }
    temp_remove(folder);
}

/* --- Resuming --------------------------------------------------------------------------------- */

static void
die_at_step(void *context, const exo_progress *progress)
{
    if (progress->step >= *(const uint64_t *)context)
        raise(SIGKILL);
}

/* Trains in a child process, which kills itself when node 0 is at `step`. */
static void
train_and_die(struct scene s, size_t strategy, uint64_t step)
{
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        s.opts.progress = die_at_step;
        s.opts.context = &step;
        try_fit(&s, strategy);
        _exit(0);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static bool
exists(const char *folder, const char *run, const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/%s", folder, run, file);
    return access(path, F_OK) == 0;
}

static void
expect_exact(const char *folder, size_t i, const struct scene *whole)
{
    struct scene s = scene_of(folder, equal, INTERVAL);
    char name[32];
    snprintf(name, sizeof name, "equal_%zu", i);
    s.opts.run_name = name;
    s.opts.resume = true;
    cr_expect(exists(folder, name, "checkpoints/step_00000012/server.safetensors"), "%s", name);
    fit(&s, i);
    cr_expect_eq(s.result.steps, STEPS);
    /* decoupled_diloco sends again what was under way */
    cr_expect_geq(s.result.bytes_sent, whole->result.bytes_sent);
    if (i < 2)
        cr_expect_eq(s.result.bytes_sent, whole->result.bytes_sent);
    if (strategies[i].exact)
        cr_expect_str_eq(s.result.sha256, whole->result.sha256, "%s", strategies[i].options);
    cr_expect_float_eq(s.result.global_loss, whole->result.global_loss, 0.05);
}

/* Nodes of different speeds come to a checkpoint at different times. The run goes on, each time in
 * the same way. */
static void
expect_same_again(const char *folder, size_t i, const struct scene *whole)
{
    struct scene runs[2];
    for (int k = 0; k < 2; k++) {
        char name[32];
        snprintf(name, sizeof name, "unequal_%zu_%d", i, k);
        runs[k] = scene_of(folder, unequal, INTERVAL);
        runs[k].opts.run_name = name;
        runs[k].opts.resume = true;
        fit(&runs[k], i);
        cr_expect_eq(runs[k].result.steps, STEPS);
    }
    cr_expect_str_eq(runs[0].result.sha256, runs[1].result.sha256);
    cr_expect_eq(runs[0].result.seconds, runs[1].result.seconds);
    cr_expect_float_eq(runs[0].result.global_loss, whole->result.global_loss, 0.2);
    if (strategies[i].always)
        cr_expect_str_eq(runs[0].result.sha256, whole->result.sha256);
}

Test(apart, a_killed_run_goes_on_from_parts_of_different_times, .timeout = 240)
{
    char folder[64], name[32];
    const size_t count = sizeof strategies / sizeof *strategies;
    temp_folder(folder, sizeof folder);
    /* All children are forked before this process trains: a fork copies locks that other threads
     * hold, but not the threads. */
    for (size_t i = 0; i < count; i++) {
        struct scene s = scene_of(folder, equal, INTERVAL);
        s.opts.run_name = name;
        snprintf(name, sizeof name, "equal_%zu", i);
        train_and_die(s, i, 15);
        s.speeds = unequal;
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "unequal_%zu_%d", i, k);
            train_and_die(s, i, 30);
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct scene whole = scene_of(folder, equal, 0);
        whole.opts.run_name = "whole";
        fit(&whole, i);
        expect_exact(folder, i, &whole);
        whole.speeds = unequal;
        fit(&whole, i);
        expect_same_again(folder, i, &whole);
    }
    temp_remove(folder);
}

static void
count_checkpoints(const char *folder, const char *run, size_t *hidden, size_t *complete)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s/checkpoints", folder, run);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    *hidden = *complete = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        *hidden += strncmp(e->d_name, ".step_", 6) == 0;
        *complete += strncmp(e->d_name, "step_", 5) == 0;
    }
    closedir(dir);
}

/* The fast nodes are up to ten checkpoints ahead of the slow one. What a kill leaves of them is
 * removed when the run goes on. */
Test(apart, few_checkpoints_are_incomplete_at_a_time, .timeout = 60)
{
    char folder[64];
    size_t hidden, complete;
    temp_folder(folder, sizeof folder);
    struct scene s = scene_of(folder, unequal, 1);
    s.opts.run_name = "many";
    train_and_die(s, 0, 15);
    count_checkpoints(folder, "many", &hidden, &complete);
    cr_expect_gt(hidden, 0);
    cr_expect_leq(hidden, 4);
    cr_expect_eq(complete, 2);
    s.opts.resume = true;
    fit(&s, 0);
    count_checkpoints(folder, "many", &hidden, &complete);
    cr_expect_eq(hidden, 0);
    cr_expect_eq(complete, 2);
    temp_remove(folder);
}

/* --- Stopping and errors ---------------------------------------------------------------------- */

static void
stop_at_step(void *context, const exo_progress *progress)
{
    if (progress->step >= 9)
        *(_Atomic int *)context = 1;
}

/* A request to stop is obeyed at the next checkpoint that a node comes to, although there is no
 * evaluation. */
Test(apart, a_stop_does_not_wait_for_an_evaluation, .timeout = 120)
{
    char folder[64];
    temp_folder(folder, sizeof folder);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct scene s = scene_of(folder, unequal, INTERVAL);
        _Atomic int stop = 0;
        s.opts.run_name = "stops";
        s.opts.progress = stop_at_step;
        s.opts.context = &stop;
        s.opts.stop = &stop;
        cr_expect_eq(try_fit(&s, i), EXO_CANCELLED, "%s", s.err.text);
        cr_expect(strstr(s.err.text, "stopped after step "), "%s", s.err.text);
        s.opts.progress = NULL;
        s.opts.stop = NULL;
        s.opts.resume = true;
        fit(&s, i);
        cr_expect_eq(s.result.steps, STEPS);
    }
    temp_remove(folder);
}
