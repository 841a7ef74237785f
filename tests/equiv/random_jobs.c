/* Jobs drawn at random (random_job.h) do what documentation says: the ones that cannot be are refused
 * with a reason, the others have the bits of the plainer job and the numbers of one node.
 *
 * EXO_RANDOM_JOBS: number of jobs (100, under sanitizers 12). EXO_RANDOM_SEED: their seed (1).
 * EXO_RANDOM_FIRST: number of the first one (0). A failed job prints its seed, its number and all of
 * it. The test owns the runs. Read next: tests/support/random_job.h. */
#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "actors/fit_run.h"
#include "support/numbers.h"
#include "support/points.h"
#include "support/random_job.h"
#include "support/sanitized.h"
#include "support/temp.h"
#include "support/token_rows.h"

enum {
    SAMPLES = 288, /* more than any job uses in its steps */
    VALIDATED = 4
};

/* --- Data: each copy of the model has its own ------------------------------------------------- */

/* The samples of one member of a group. Together, the members read what one node reads that has the
 * place of the group. */
struct hand {
    exo_dataset *all;
    size_t first, stride;
};

static size_t
hand_length(const void *self)
{
    const struct hand *h = self;
    return SAMPLES / h->stride;
}

static size_t
hand_fields(const void *self, exo_field *out)
{
    const struct hand *h = self;
    return exo_dataset_fields(h->all, out);
}

static exo_status
hand_get(const void *self, size_t index, const exo_sample_key *key, void *const *out, exo_err *err)
{
    const struct hand *h = self;
    return exo_dataset_get(h->all, h->first + index * h->stride, key, out, err);
}

static void
hand_free(void *self)
{
    struct hand *h = self;
    exo_dataset_drop(&h->all);
    exo_free(h);
}

static const exo_dataset_class hand_class = {
    .name = "hand",
    .length = hand_length,
    .fields = hand_fields,
    .get = hand_get,
    .free = hand_free,
};

static exo_dataset *
new_data(bool gpt, bool train)
{
    const size_t count = train ? SAMPLES : VALIDATED;
    return gpt ? token_rows_new(count, RANDOM_JOB_LENGTH, RANDOM_JOB_VOCABULARY)
               : points_new(count, train ? 1 : 2, SIZE_MAX);
}

static exo_status
deal(void *context, uint32_t rank, uint32_t num_nodes, bool train, exo_dataset **out, exo_err *err)
{
    const random_job *job = context;
    const uint32_t group = random_job_group(job), groups = random_job_groups(job);
    if (!train) {
        *out = new_data(job->gpt, false);
        return EXO_OK;
    }
    struct hand *h = exo_calloc(1, sizeof *h);
    if (!h)
        abort();
    *h = (struct hand){.all = new_data(job->gpt, true),
                       .first = rank % group * groups + rank / group,
                       .stride = num_nodes};
    return exo_dataset_new(out, &hand_class, h, err);
}

/* --- Runs ------------------------------------------------------------------------------------- */

struct run {
    exo_model *model;
    exo_dataset *train, *val;
    exo_status status;
    exo_err err;
    double local[RANDOM_JOB_STEPS + 1], global[RANDOM_JOB_STEPS + 1]; /* by step; NaN: unknown */
    float *params;
    size_t numel;
    uint64_t sent; /* bytes, the mean over the nodes */
    char sha256[65];
};

static void
note(void *context, const exo_progress *p)
{
    struct run *r = context;
    if (!p->evaluated || p->step > RANDOM_JOB_STEPS)
        return;
    r->local[p->step] = p->local_loss;
    r->global[p->step] = p->global_loss;
}

static exo_fit_opts
options_of(const random_job *job, struct run *r)
{
    exo_fit_opts o = exo_fit_opts_init();
    o.num_nodes = random_job_nodes(job);
    o.tensor = job->tensor;
    o.sequence = job->sequence;
    o.context_parallel = job->context;
    o.pipeline = job->pipeline;
    o.batch_size = job->batch;
    o.minibatch_size = job->minibatch;
    o.max_steps = RANDOM_JOB_STEPS;
    o.val_interval = 1;
    o.save_dir = NULL;
    o.collectives = job->collectives;
    o.any_bits = job->any_bits;
    if (!job->shuffled)
        o.factory = (exo_dataset_factory){.make = deal, .context = (void *)(uintptr_t)job};
    o.shuffle = job->shuffled;
    o.elastic.min_nodes = job->elastic;
    o.correlation_interval = job->correlates;
    o.progress = note;
    o.context = r;
    return o;
}

/* Hosts of different speeds behind slow links, on the virtual clock. */
struct network {
    exo_compute_spec step;
    exo_actor_spec actor;
    exo_edge_spec edge;
    uint32_t placed[RANDOM_JOB_NODES];
    exo_emulated_host hosts[RANDOM_JOB_NODES];
    exo_graph_spec graph;
};

static const exo_graph_spec *
connect(struct network *n, uint32_t nodes)
{
    n->step = (exo_compute_spec){.phase = "step", .cost = 20 * EXO_MS};
    n->actor = (exo_actor_spec){
        .name = "node", .count = nodes, .hosts = n->placed, .compute = &n->step, .num_compute = 1};
    n->edge = (exo_edge_spec){.name = "node>node",
                              .carries = "gradients",
                              .route = EXO_ROUTE_ALL_REDUCE,
                              .codec_text = "raw",
                              .link = -1};
    for (uint32_t i = 0; i < nodes; i++) {
        n->placed[i] = i;
        n->hosts[i] =
            (exo_emulated_host){.spec = {.name = "h", .up = 1e6, .down = 4e6, .latency = EXO_MS},
                                .speed = 1 + i % 3 * 0.5};
    }
    n->graph = (exo_graph_spec){.source = "test",
                                .name = "test",
                                .seed = 1,
                                .virtual_clock = true,
                                .emulated = true,
                                .actors = &n->actor,
                                .num_actors = 1,
                                .edges = &n->edge,
                                .num_edges = 1,
                                .hosts = n->hosts,
                                .num_hosts = nodes};
    return &n->graph;
}

static exo_status
fit(struct run *r, const random_job *job, const exo_fit_opts *opts, exo_fit_result *result)
{
    char options[RANDOM_JOB_TEXT];
    struct network net;
    exo_config_doc *doc = NULL;
    random_job_options(job, options);
    exo_params_free(&result->params);
    cr_assert_eq(exo_config_parse(&doc, "options", options, &r->err), EXO_OK, "%s", r->err.text);
    exo_status st = exo_fit_run(
        r->model, r->train, r->val, random_job_strategy(job), exo_config_root(doc), opts, NULL,
        job->virtual_clock ? connect(&net, opts->num_nodes) : NULL, NULL, result, &r->err);
    exo_config_free(&doc);
    return st;
}

/* Ends after a few steps, and goes on. */
static exo_status
fit_in_two(struct run *r, const random_job *job, exo_fit_opts *opts, exo_fit_result *result)
{
    char folder[64];
    temp_folder(folder, sizeof folder);
    opts->save_dir = folder;
    opts->run_name = "run";
    opts->max_steps = RANDOM_JOB_STOP;
    exo_status st = fit(r, job, opts, result);
    opts->max_steps = RANDOM_JOB_STEPS;
    opts->resume = true;
    if (st == EXO_OK)
        st = fit(r, job, opts, result);
    temp_remove(folder);
    return st;
}

static void
run(struct run *r, const random_job *job)
{
    char text[RANDOM_JOB_TEXT];
    exo_config_doc *doc = NULL;
    exo_fit_result result = {0};
    *r = (struct run){.train = new_data(job->gpt, true), .val = new_data(job->gpt, false)};
    for (int s = 0; s <= RANDOM_JOB_STEPS; s++)
        r->local[s] = r->global[s] = NAN;
    random_job_model(job, text);
    cr_assert_eq(exo_config_parse(&doc, "model", text, &r->err), EXO_OK, "%s", r->err.text);
    r->status =
        exo_model_new_named(&r->model, job->gpt ? "gpt" : "mlp", exo_config_root(doc), &r->err);
    cr_assert_eq(r->status, EXO_OK, "%s: %s", text, r->err.text);
    exo_fit_opts opts = options_of(job, r);
    r->status = job->stops ? fit_in_two(r, job, &opts, &result) : fit(r, job, &opts, &result);
    if (r->status == EXO_OK) {
        r->numel = exo_model_numel(r->model);
        r->params = exo_calloc(r->numel, sizeof(float));
        cr_assert_not_null(r->params);
        memcpy(r->params, exo_params_values(result.params), r->numel * sizeof(float));
        memcpy(r->sha256, result.sha256, sizeof r->sha256);
        r->sent = result.bytes_sent;
    }
    exo_params_free(&result.params);
    exo_dataset_drop(&r->train);
    exo_dataset_drop(&r->val);
    exo_model_drop(&r->model);
    exo_config_free(&doc);
}

/* --- Comparisons ------------------------------------------------------------------------------ */

/* What a job is called in messages. */
struct place {
    uint64_t seed;
    uint32_t number;
    char job[2 * RANDOM_JOB_TEXT];
};

#define FAIL(place, format, ...)                                                                   \
    cr_expect(false,                                                                               \
              "EXO_RANDOM_SEED=%" PRIu64 " EXO_RANDOM_FIRST=%u EXO_RANDOM_JOBS=1: " format         \
              "\n    %s",                                                                          \
              (place)->seed, (place)->number, __VA_ARGS__, (place)->job)

static void
expect_refused(const struct place *at, const struct run *r, const char *const *reasons,
               size_t count)
{
    bool named = false;
    for (size_t i = 0; i < count; i++)
        named = named || strstr(r->err.text, reasons[i]);
    if (r->status != EXO_INVAL && r->status != EXO_UNSUPPORTED)
        FAIL(at, "not refused for \"%s\", but %d: %s", reasons[0], (int)r->status, r->err.text);
    else if (!named)
        FAIL(at, "refused, not for \"%s\" but for: %s", reasons[0], r->err.text);
}

static bool
is_close(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b);
}

static void
expect_numbers(const struct place *at, const struct run *r, const random_job *reference)
{
    struct run one;
    run(&one, reference);
    if (one.status != EXO_OK) {
        FAIL(at, "one node fails: %s", one.err.text);
        return;
    }
    for (int s = 0; s <= RANDOM_JOB_STEPS; s++)
        if (!is_close(r->local[s], one.local[s]) || !is_close(r->global[s], one.global[s]))
            FAIL(at, "step %d: local loss %.9g, global loss %.9g; one node: %.9g, %.9g", s,
                 r->local[s], r->global[s], one.local[s], one.global[s]);
    double off = numbers_distance(r->params, one.params, r->numel);
    if (!(off <= 1e-5))
        FAIL(at, "the parameters are off by %g", off);
    exo_free(one.params);
}

static void
expect_bits(const struct place *at, const random_job *job, const struct run *r,
            const random_job *twin)
{
    struct run plain;
    char text[2 * RANDOM_JOB_TEXT];
    run(&plain, twin);
    random_job_print(twin, text);
    if (plain.status != EXO_OK)
        FAIL(at, "its twin fails: %s; %s", plain.err.text, text);
    else if (strcmp(plain.sha256, r->sha256) != 0)
        FAIL(at, "other bits than its twin, off by %g: %s",
             numbers_distance(r->params, plain.params, r->numel), text);
    else if (random_job_sends_same(job, twin) && plain.sent != r->sent)
        FAIL(at, "sends %" PRIu64 " bytes, its twin %" PRIu64 ": %s", r->sent, plain.sent, text);
    for (int s = 0; plain.status == EXO_OK && s <= RANDOM_JOB_STEPS; s++)
        if (r->local[s] != plain.local[s] && !isnan(plain.local[s]))
            FAIL(at, "step %d: loss %.17g, its twin: %.17g", s, r->local[s], plain.local[s]);
    exo_free(plain.params);
}

struct tally {
    unsigned refused, twins, references;
};

static void
try_job(uint64_t seed, uint32_t number, struct tally *tally)
{
    random_job job, other;
    struct place at = {.seed = seed, .number = number};
    struct run r;
    const char *reasons[RANDOM_JOB_REASONS];
    random_job_draw(&job, seed, number);
    random_job_print(&job, at.job);
    const size_t count = random_job_reasons(&job, reasons);
    run(&r, &job);
    if (count > 0) {
        expect_refused(&at, &r, reasons, count);
        tally->refused++;
    } else if (r.status != EXO_OK) {
        FAIL(&at, "fails: %s", r.err.text);
    } else {
        if (random_job_twin(&job, &other)) {
            expect_bits(&at, &job, &r, &other);
            tally->twins++;
        }
        if (random_job_reference(&job, &other)) {
            expect_numbers(&at, &r, &other);
            tally->references++;
        }
    }
    exo_free(r.params);
}

static uint64_t
setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

Test(random_jobs, do_what_documentation_says)
{
    const uint64_t count = setting("EXO_RANDOM_JOBS", SANITIZED ? 12 : 100);
    const uint64_t seed = setting("EXO_RANDOM_SEED", 1), first = setting("EXO_RANDOM_FIRST", 0);
    struct tally tally = {0};
    for (uint64_t i = 0; i < count; i++)
        try_job(seed, (uint32_t)(first + i), &tally);
    printf("EXO_RANDOM_SEED=%" PRIu64 ": %" PRIu64
           " jobs, %u refused, %u like their twins, %u like "
           "one node\n",
           seed, count, tally.refused, tally.twins, tally.references);
    cr_expect(count < 100 || (tally.refused > 5 && tally.twins > 20 && tally.references > 20));
}
