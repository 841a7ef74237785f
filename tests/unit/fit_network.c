/* Training over an emulated network: the same bits as without one, on both clocks, and times that
 * follow from the links.
 *
 * Each test owns a scene: a job and its graph. Read next: actors/fit_run.h,
 * runtime/comm/timing.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "actors/fit_run.h"
#include "actors/run_folder.h"
#include "comm/timing.h"
#include "graph/site.h"
#include "support/points.h"
#include "support/sanitized.h"
#include "support/temp.h"

enum {
    NODES = 4,
    STEPS = 12,
    BATCH = 4
};

struct scene {
    exo_model *model;
    exo_dataset *train, *val;
    exo_fit_opts opts;
    exo_graph_spec graph;
    exo_actor_spec actor;
    exo_edge_spec edge;
    exo_named_link link;
    exo_compute_spec step;
    uint32_t placed[NODES];
    exo_emulated_host hosts[NODES];
    const exo_fit_live *live;
    exo_fit_result result;
    exo_err err;
};

static void
scene_init(struct scene *s, bool virtual_clock)
{
    static const char *const names[NODES] = {"home_0", "home_1", "home_2", "home_3"};
    *s = (struct scene){.model = points_mlp(),
                        .train = points_new(200, 1, SIZE_MAX),
                        .val = points_new(64, 2, SIZE_MAX),
                        .opts = exo_fit_opts_init()};
    s->opts.num_nodes = NODES;
    s->opts.batch_size = BATCH;
    s->opts.max_steps = STEPS;
    s->opts.val_interval = 5;
    s->opts.save_dir = NULL;
    s->step = (exo_compute_spec){.phase = "step", .cost = 50 * EXO_MS};
    s->actor = (exo_actor_spec){
        .name = "node", .count = NODES, .hosts = s->placed, .compute = &s->step, .num_compute = 1};
    s->edge = (exo_edge_spec){.name = "node>node:gradients",
                              .carries = "gradients",
                              .route = EXO_ROUTE_ALL_REDUCE,
                              .codec_text = "raw",
                              .link = -1};
    s->link = (exo_named_link){
        .name = "default",
        .is_default = true,
        .from = -1,
        .to = -1,
        .spec = {.bandwidth = INFINITY, .latency = 10 * EXO_MS, .transport = EXO_LINK_IDEAL}};
    for (uint32_t i = 0; i < NODES; i++) {
        s->placed[i] = i;
        s->hosts[i] =
            (exo_emulated_host){.spec = {.name = names[i], .up = 1e6, .down = 1e6}, .speed = 1};
    }
    s->graph = (exo_graph_spec){.source = "test",
                                .name = "test",
                                .seed = 1,
                                .virtual_clock = virtual_clock,
                                .actors = &s->actor,
                                .num_actors = 1,
                                .edges = &s->edge,
                                .num_edges = 1,
                                .hosts = s->hosts,
                                .num_hosts = NODES,
                                .links = &s->link,
                                .num_links = 1,
                                .emulated = true};
}

static void
scene_release(struct scene *s)
{
    exo_params_free(&s->result.params);
    exo_dataset_drop(&s->train);
    exo_dataset_drop(&s->val);
    exo_model_drop(&s->model);
}

static exo_status
try_fit(struct scene *s, const char *strategy, const char *options, bool emulated)
{
    exo_config_doc *doc = NULL;
    exo_params_free(&s->result.params);
    cr_assert_eq(exo_config_parse(&doc, "options", options, NULL), EXO_OK);
    exo_status st =
        exo_fit_run(s->model, s->train, s->val, strategy, exo_config_root(doc), &s->opts, NULL,
                    emulated ? &s->graph : NULL, s->live, &s->result, &s->err);
    exo_config_free(&doc);
    return st;
}

static void
fit(struct scene *s, const char *strategy, const char *options, bool emulated)
{
    exo_status st = try_fit(s, strategy, options, emulated);
    cr_assert_eq(st, EXO_OK, "%s: %s", strategy, s->err.text);
}

static const struct {
    const char *name, *options;
} strategies[] = {
    {"ddp", "{optimizer: {name: adamw, lr: 0.01}}"},
    {"ddp", "{bucket_size: 1 B, optimizer: {name: adamw, lr: 0.01}}"},
    {"diloco", "{H: 4, optimizer: {name: adamw, lr: 0.01}}"},
    {"fedavg", "{H: 3, optimizer: {name: sgd, lr: 0.1}}"},
    {"fsdp", "{sharding_strategy: full_shard, prefetch: true, optimizer: {name: adamw, lr: 0.01}}"},
    {"fsdp", "{group_size: 2, across: {name: diloco, H: 3}, optimizer: {name: adamw, lr: 0.01}}"},
    {"fedavg", "{H: 2, island_size: 3, optimizer: {name: adamw, lr: 0.01}}"},
    {"sparta", "{p: 0.2, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}"},
    {"sparta_diloco", "{p: 0.2, H: 3, optimizer: {name: adamw, lr: 0.01}}"},
    {"powersgd", "{optimizer: {name: adamw, lr: 0.01}}"},
    {"quantized", "{optimizer: {name: adamw, lr: 0.01}}"},
    {"demo", "{k: 4, chunk: 8, optimizer: {lr: 0.01}}"},
    {"onebit_adam", "{freeze_step: 3, optimizer: {lr: 0.01}}"},
    {"noloco", "{H: 2, optimizer: {name: adamw, lr: 0.01}}"},
};

static void
expect_same_bits(const char *name, const char *options, bool virtual_clock)
{
    struct scene s;
    char alone[65];
    scene_init(&s, virtual_clock);
    s.step.cost = virtual_clock ? 50 * EXO_MS : -1;
    s.link.spec.latency = EXO_MS;
    for (uint32_t h = 0; h < NODES; h++)
        s.hosts[h].spec.up = s.hosts[h].spec.down = 1e8;
    fit(&s, name, options, false);
    memcpy(alone, s.result.sha256, sizeof alone);
    uint64_t bytes = s.result.bytes_sent;
    fit(&s, name, options, true);
    cr_expect_str_eq(s.result.sha256, alone, "%s", name);
    cr_expect_eq(s.result.bytes_sent, bytes);
    cr_expect_eq(s.result.is_virtual, virtual_clock);
    scene_release(&s);
}

Test(fit_network, the_same_bits_over_links_and_on_the_virtual_clock, .timeout = 120)
{
    for (int clock = 0; clock < 2; clock++) {
        for (size_t i = clock ? 0 : one_of(2) - 1; i < sizeof strategies / sizeof *strategies;
             i += one_of(2))
            expect_same_bits(strategies[i].name, strategies[i].options, clock == 1);
        /* their messages pass while the nodes compute */
        expect_same_bits("streaming_diloco", "{H: 4, fragments: 2, delay: 3}", clock == 1);
        expect_same_bits("sparta", "{p: 0.2, delay: 2}", clock == 1);
        expect_same_bits("eager_diloco", "{H: 2}", clock == 1);
    }
}

/* Requests a stop at a step. */
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

static void
read_file(const char *folder, const char *run, const char *file, char *out, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/%s", folder, run, file);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    size_t length = fread(out, 1, size - 1, f);
    cr_assert_lt(length, size - 1, "%s is larger than expected", path);
    out[length] = '\0';
    fclose(f);
}

static void
stop_and_resume(const exo_link_spec *link)
{
    static char whole[1 << 20], resumed[1 << 20];
    static const char *const files[] = {"ledger.csv", "metrics.csv", "network.json",
                                        "timeline.json"};
    char folder[64];
    temp_folder(folder, sizeof folder);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i += one_of(2)) {
        struct scene s;
        char name[32], options[160];
        scene_init(&s, true);
        s.link.spec = *link;
        s.hosts[1].speed = 0.5; /* nodes of different speeds */
        /* a stop takes effect at an event, so there is one after each step */
        s.opts.val_interval = 1;
        s.opts.save_dir = folder;
        snprintf(options, sizeof options, "%s", strategies[i].options);
        snprintf(name, sizeof name, "whole_%zu", i);
        s.opts.run_name = name;
        fit(&s, strategies[i].name, options, true);
        const exo_fit_result alone = s.result;
        for (uint64_t step = 1 + i % 4; step < STEPS; step += 6) {
            char run[32];
            struct stop_at at = {.step = step};
            snprintf(run, sizeof run, "stopped_%zu_%u", i, (unsigned)step);
            s.opts.run_name = run;
            s.opts.progress = stop_at_step;
            s.opts.context = &at;
            s.opts.stop = &at.stop;
            cr_assert_eq(try_fit(&s, strategies[i].name, options, true), EXO_CANCELLED, "%s",
                         s.err.text);
            s.opts.stop = NULL;
            s.opts.progress = NULL;
            s.opts.resume = true;
            fit(&s, strategies[i].name, options, true);
            s.opts.resume = false;
            for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
                read_file(folder, name, files[f], whole, sizeof whole);
                read_file(folder, run, files[f], resumed, sizeof resumed);
                cr_expect_str_eq(resumed, whole, "%s of %s, stopped at %u", files[f],
                                 strategies[i].name, (unsigned)step);
            }
            cr_expect_eq(memcmp(&s.result.traffic, &alone.traffic, sizeof alone.traffic), 0);
            cr_expect_eq(s.result.seconds, alone.seconds);
            cr_expect_eq(s.result.train_seconds, alone.train_seconds);
            cr_expect_eq(s.result.samples_per_second, alone.samples_per_second);
        }
        scene_release(&s);
    }
    temp_remove(folder);
}

/* Times are equal, too: on the virtual clock a resumed run has the times of a whole run. */
Test(fit_network, stopped_and_resumed_counts_what_one_that_was_left_alone_counts, .timeout = 120)
{
    stop_and_resume(&(exo_link_spec){
        .bandwidth = INFINITY, .latency = 10 * EXO_MS, .transport = EXO_LINK_IDEAL});
}

/* Links have state: congestion windows, losses, the message numbers from which jitter is drawn, and
 * messages under way. */
Test(fit_network, links_go_on_where_they_were, .timeout = 120)
{
    stop_and_resume(&(exo_link_spec){.bandwidth = INFINITY,
                                     .latency = 10 * EXO_MS,
                                     .jitter = 3 * EXO_MS,
                                     .loss = 0.02,
                                     .transport = EXO_LINK_TCP});
    stop_and_resume(
        &(exo_link_spec){.bandwidth = 3e5, .latency = 40 * EXO_MS, .transport = EXO_LINK_TCP});
}

/* A stopped run has a ledger. A resumed run adds to it, also on the real clock and without
 * links. */
Test(fit_network, each_part_of_a_run_adds_to_its_ledger, .timeout = 60)
{
    static char text[65536];
    char folder[64];
    temp_folder(folder, sizeof folder);
    struct scene s;
    scene_init(&s, false);
    s.step.cost = -1;
    s.graph.emulated = false;
    s.opts.val_interval = 1;
    s.opts.save_dir = folder;
    s.opts.run_name = "parts";
    s.opts.progress = stop_at_step;
    for (uint64_t step = 3; step <= STEPS; step += 3) {
        struct stop_at at = {.step = step};
        char row[64];
        s.opts.context = &at;
        s.opts.stop = &at.stop;
        s.opts.resume = step > 3;
        cr_expect_eq(try_fit(&s, "ddp", "{}", true), step < STEPS ? EXO_CANCELLED : EXO_OK, "%s",
                     s.err.text);
        snprintf(row, sizeof row, ",node_2,home_2,%u,%u,", (unsigned)step * 6, (unsigned)step);
        read_file(folder, "parts", "ledger.csv", text, sizeof text);
        cr_expect_not_null(strstr(text, row), "after step %u: no %s in\n%s", (unsigned)step, row,
                           text);
    }
    scene_release(&s);
    temp_remove(folder);
}

Test(fit_network, a_virtual_run_says_what_the_closed_form_says, .timeout = 60)
{
    struct scene s;
    scene_init(&s, true);
    fit(&s, "ddp", "{}", true);
    /* A step takes 50 ms of computation, then twice 3 messages of a quarter of the gradients over 1
     * Mbit/s, one after the other, and a latency. */
    double bytes =
        (double)exo_model_numel(s.model) * 4 / NODES + EXO_COMM_HEADER + EXO_COMM_ENVELOPE;
    double expected = STEPS * (0.050 + 2 * (3 * bytes * 8 / 1e6 + 0.010));
    cr_expect_float_eq(s.result.seconds, expected, 0.01 * expected, "%g s, expected %g",
                       s.result.seconds, expected);
    double first = s.result.seconds;
    for (int again = 0; again < 3; again++) {
        fit(&s, "ddp", "{}", true);
        cr_expect_eq(s.result.seconds, first, "the same to the bit");
    }
    /* Hosts of twice the speed compute in half the time, and wait as long. */
    for (uint32_t i = 0; i < NODES; i++)
        s.hosts[i].speed = 2;
    fit(&s, "ddp", "{}", true);
    cr_expect_float_eq(first - s.result.seconds, STEPS * 0.025, 1e-6);
    scene_release(&s);
}

static exo_model *
deep_mlp(void)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    cr_assert_eq(exo_config_parse(&doc, "deep", "{in: 8, hidden: [64, 64, 64], out: 3}", NULL),
                 EXO_OK);
    cr_assert_eq(exo_model_new_named(&model, "mlp", exo_config_root(doc), NULL), EXO_OK);
    exo_config_free(&doc);
    return model;
}

/* A round begins after the steps 3, 6 and 9 and ends two steps, or 100 ms, later. So much of its
 * messages costs no time. A round that would begin after the last step does not begin. */
Test(fit_network, delayed_rounds_hide_behind_the_steps, .timeout = 60)
{
    static const double rates[] = {1e7, 2e6};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct scene s;
        scene_init(&s, true);
        exo_model_drop(&s.model);
        s.model = deep_mlp();
        for (uint32_t h = 0; h < NODES; h++)
            s.hosts[h].spec.up = s.hosts[h].spec.down = rates[i];
        double message =
            (double)exo_model_numel(s.model) * 4 / NODES + EXO_COMM_HEADER + EXO_COMM_ENVELOPE;
        double round = 2 * (3 * message * 8 / rates[i] + 0.010);
        fit(&s, "streaming_diloco", "{H: 3, fragments: 1, delay: 0, codec: raw}", true);
        double waits = STEPS * 0.050 + 4 * round;
        cr_expect_float_eq(s.result.seconds, waits, 0.01 * waits, "%g s, expected %g",
                           s.result.seconds, waits);
        fit(&s, "streaming_diloco", "{H: 3, fragments: 1, delay: 2, codec: raw}", true);
        double hides = STEPS * 0.050 + 3 * fmax(round - 0.100, 0);
        cr_expect_float_eq(s.result.seconds, hides, 0.01 * hides, "%g s, expected %g",
                           s.result.seconds, hides);
        double bytes = 3 * 2.0 * (NODES - 1) / NODES * 4 * (double)exo_model_numel(s.model);
        cr_expect_float_eq((double)s.result.bytes_sent, bytes, 0.5);
        scene_release(&s);
    }
}

/* Buckets are whole parameters, from the last one on. They are reduced one after the other,
 * beginning during backward. Of the last minibatch's share of the 50 ms a third is forward;
 * backward takes the rest, in proportion to the elements whose gradients it has computed. */
Test(fit_network, buckets_hide_behind_backward, .timeout = 60)
{
    static const size_t buckets[] = {3 + 3 * 64 + 64 + 64 * 64, 64 + 64 * 64, 64 + 8 * 64},
                        minibatches[] = {1, 2, 4};
    enum {
        RATE = 10000000
    };
    for (size_t i = 0; i < sizeof minibatches / sizeof *minibatches; i++) {
        struct scene s;
        char plain[65];
        scene_init(&s, true);
        exo_model_drop(&s.model);
        s.model = deep_mlp();
        for (uint32_t h = 0; h < NODES; h++)
            s.hosts[h].spec.up = s.hosts[h].spec.down = RATE;
        s.link.spec.latency = EXO_MS / 10;
        s.opts.minibatch_size = BATCH / minibatches[i];
        fit(&s, "ddp", "{max_norm: 0.5, optimizer: {name: adamw, lr: 0.01}}", true);
        memcpy(plain, s.result.sha256, sizeof plain);
        double whole = s.result.seconds, step = 0, yielded = 0,
               share = 1.0 / (double)minibatches[i];
        uint64_t bytes = s.result.bytes_sent;
        for (size_t b = 0; b < sizeof buckets / sizeof *buckets; b++) {
            double message = (double)buckets[b] * 4 / NODES + EXO_COMM_HEADER + EXO_COMM_ENVELOPE;
            yielded += (double)buckets[b] / (double)exo_model_numel(s.model);
            step = fmax(step, 0.050 * (1 - share + share * (1 + 2 * yielded) / 3));
            step += 2 * (3 * message * 8 / RATE + 0.0001);
        }
        cr_expect_float_eq(yielded, 1, 1e-9);
        fit(&s, "ddp", "{max_norm: 0.5, bucket_size: 4 KiB, optimizer: {name: adamw, lr: 0.01}}",
            true);
        cr_expect_str_eq(s.result.sha256, plain);
        cr_expect_eq(s.result.bytes_sent, bytes);
        cr_expect_float_eq(s.result.seconds, STEPS * step, 0.01 * STEPS * step, "%g s, expected %g",
                           s.result.seconds, STEPS * step);
        cr_expect_lt(s.result.seconds, whole, "%g s, without buckets %g", s.result.seconds, whole);
        scene_release(&s);
    }
}

Test(fit_network, nodes_in_islands_send_to_those_only, .timeout = 60)
{
    struct scene s;
    scene_init(&s, true);
    fit(&s, "fedavg", "{island_size: 2}", true);
    /* A step takes 50 ms of computation, then twice half of the parameters to the other member over
     * 1 Mbit/s, and a latency. */
    double bytes = (double)exo_model_numel(s.model) * 4 / 2 + EXO_COMM_HEADER + EXO_COMM_ENVELOPE;
    double expected = STEPS * (0.050 + 2 * (bytes * 8 / 1e6 + 0.010)), first = s.result.seconds;
    cr_expect_float_eq(first, expected, 0.01 * expected, "%g s, expected %g", first, expected);
    cr_expect_eq(s.result.traffic.messages, STEPS * NODES * 2);
    fit(&s, "fedavg", "{island_size: 2}", true);
    cr_expect_eq(s.result.seconds, first, "the same to the bit");
    scene_release(&s);
}

/* The hosts of two nodes compute at half speed. If these two form an island, the other island does
 * not wait for them. */
Test(fit_network, an_island_does_not_wait_for_another, .timeout = 60)
{
    struct scene s;
    scene_init(&s, true);
    s.opts.max_steps = 1;
    uint32_t island[NODES], count = exo_island(s.opts.seed, 0, NODES, 2, 0, island);
    cr_assert_eq(count, 2);
    s.hosts[island[0]].speed = s.hosts[island[1]].speed = 0.5;
    fit(&s, "fedavg", "{island_size: 2}", true);
    uint64_t slow = (uint64_t)s.result.traffic.recv_blocked;
    fit(&s, "fedavg", "{}", true);
    cr_expect_geq((uint64_t)s.result.traffic.recv_blocked, slow + 2 * 50 * (uint64_t)EXO_MS,
                  "among all, two wait for two");
    scene_release(&s);
}

Test(fit_network, the_real_clock_takes_as_long_as_the_virtual_one_says, .timeout = 60)
{
    struct scene s;
    scene_init(&s, true);
    s.opts.max_steps = 6;
    fit(&s, "ddp", "{}", true);
    double predicted = s.result.seconds;
    s.graph.virtual_clock = false;
    fit(&s, "ddp", "{}", true);
    cr_expect_geq(s.result.train_seconds, 0.98 * predicted, "%g s, predicted %g",
                  s.result.train_seconds, predicted);
    scene_release(&s);
}

Test(fit_network, many_virtual_hosts, .timeout = 120)
{
    struct scene s;
    enum {
        MANY = 48
    };
    static uint32_t placed[MANY];
    static exo_emulated_host hosts[MANY];
    scene_init(&s, true);
    for (uint32_t i = 0; i < MANY; i++) {
        placed[i] = i;
        hosts[i] = s.hosts[0];
    }
    s.actor.count = MANY;
    s.actor.hosts = placed;
    s.graph.hosts = hosts;
    s.graph.num_hosts = MANY;
    s.opts.num_nodes = MANY;
    s.opts.max_steps = 4;
    fit(&s, "diloco", "{H: 2}", true);
    cr_expect_geq(s.result.seconds, 4 * 0.050);
    scene_release(&s);
}

/* --- Changes ---------------------------------------------------------------------------------- */

static struct {
    struct scene next;
    int given;
    exo_status status;
} change;

static bool
next_graph(void *context, uint64_t step, const exo_graph_spec *now, const exo_graph_spec **graph,
           const char **text)
{
    exo_err err = {0};
    (void)context;
    (void)step;
    (void)text;
    if (change.given++ > 0)
        return false;
    *graph = &change.next.graph;
    cr_expect_eq(exo_graph_check_job_change(now, *graph, &err), EXO_OK, "%s", err.text);
    return true;
}

static void
graph_changed(void *context, uint64_t step, exo_time at, exo_status status, const char *reason)
{
    (void)context;
    (void)step;
    (void)at;
    (void)reason;
    change.status = status;
}

Test(fit_network, links_and_codec_change_between_two_steps, .timeout = 60)
{
    static const exo_fit_live live = {.next = next_graph, .changed = graph_changed};
    struct scene s;
    scene_init(&s, true);
    fit(&s, "ddp", "{}", true);
    char before[65];
    double slow = s.result.seconds;
    memcpy(before, s.result.sha256, sizeof before);
    scene_init(&change.next, true);
    for (uint32_t h = 0; h < NODES; h++)
        change.next.hosts[h].spec.up = change.next.hosts[h].spec.down = 1e9;
    s.live = &live;
    fit(&s, "ddp", "{}", true);
    cr_expect_eq(change.status, EXO_OK);
    cr_expect_eq(change.given > 0, true);
    cr_expect_str_eq(s.result.sha256, before, "links change times, not numbers");
    cr_expect_lt(s.result.seconds, 0.95 * slow);
    change.given = 0;
    change.next.edge.codec_text = "bf16";
    fit(&s, "ddp", "{}", true);
    cr_expect_eq(change.status, EXO_OK);
    cr_expect_str_neq(s.result.sha256, before, "a codec changes the numbers");
    cr_expect_lt(s.result.traffic.encoded_bytes, s.result.traffic.payload_bytes * 6 / 10,
                 "%llu of %llu", (unsigned long long)s.result.traffic.encoded_bytes,
                 (unsigned long long)s.result.traffic.payload_bytes);
    scene_release(&change.next);
    scene_release(&s);
}

/* --- The end ---------------------------------------------------------------------------------- */

static struct {
    char folder[64], run[128];
    int ends;
} end;

/* The command's last file is written under the folder's lock, so no other run can have begun
 * there. */
static exo_status
write_last(void *context, const exo_fit_result *result, const exo_meters *meters, exo_err *err)
{
    (void)meters;
    int lock = -1;
    (void)context;
    cr_expect_eq(result->steps, STEPS);
    cr_expect_eq(exo_run_lock(end.run, &lock, NULL), EXO_EXISTS);
    return end.ends++ == 0 ? EXO_OK : exo_fail(err, EXO_IO, "the disk is full");
}

Test(fit_network, what_is_written_last_is_written_under_the_lock, .timeout = 60)
{
    static const exo_fit_live live = {
        .next = next_graph, .changed = graph_changed, .finished = write_last};
    struct scene s;
    int lock = -1;
    scene_init(&s, true);
    temp_folder(end.folder, sizeof end.folder);
    snprintf(end.run, sizeof end.run, "%s/run", end.folder);
    change.given = 1;
    s.live = &live;
    s.opts.save_dir = end.folder;
    s.opts.run_name = "run";
    s.opts.overwrite = true;
    fit(&s, "ddp", "{}", true);
    cr_expect_eq(end.ends, 1);
    cr_expect_eq(exo_run_lock(end.run, &lock, NULL), EXO_OK, "the lock is held for ever");
    close(lock);
    cr_expect_eq(try_fit(&s, "ddp", "{}", true), EXO_IO);
    cr_expect_str_eq(s.err.text, "the disk is full");
    cr_expect_null(s.result.params);
    temp_remove(end.folder);
    scene_release(&s);
}
