/* Random jobs: see random_job.h. */
#include "support/random_job.h"

#include <stdio.h>
#include <string.h>

#include <exogym/rng.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* --- Drawing ---------------------------------------------------------------------------------- */

/* One of `n`. */
static uint32_t
below(exo_rng *rng, size_t n)
{
    return exo_rng_below(rng, (uint32_t)n);
}

/* True once in `n`. */
static bool
once_in(exo_rng *rng, uint32_t n)
{
    return exo_rng_below(rng, n) == 0;
}

/* What is not trained: all but a few small matrices, an end of the model, a whole block. */
static void
draw_frozen(random_job *job, exo_rng *rng)
{
    static const char *const loras[] = {"{rank: 2}", "{rank: 1, alpha: 2, layers: 'mlp.*'}",
                                        "{rank: 3, layers: 'blocks.0.*'}"};
    static const char *const of_gpt[] = {"'embedding.*'", "'blocks.0.*'",
                                         "['embedding.*', 'position.*']", "'*.weight'"};
    static const char *const of_mlp[] = {"'*.bias'", "'*.weight'"};
    if (job->gpt && once_in(rng, 10))
        job->lora = loras[below(rng, COUNT(loras))];
    else if (once_in(rng, 10))
        job->frozen = job->gpt ? of_gpt[below(rng, COUNT(of_gpt))] : of_mlp[below(rng, 2)];
    if (!job->gpt || !job->frozen)
        return;
    if (strstr(job->frozen, "position") && (job->alibi || strstr(job->kinds, "position")))
        job->frozen = of_gpt[0];
    if (strcmp(job->frozen, "'*.weight'") == 0 && strstr(job->kinds, "bias: false"))
        job->frozen = of_gpt[1];
}

static void
draw_model(random_job *job, exo_rng *rng)
{
    static const char *const hidden[] = {"[9]", "[16, 13]", "[7, 5, 6]"};
    static const char *const kinds[] = {"",
                                        "",
                                        ", norm: rms, gated: true, bias: false",
                                        ", position: rotary, values: true",
                                        ", embedding_norm: true, activation: relu",
                                        ", kv_heads: 2",
                                        ", qk_norm: true, kv_heads: 2, norm: rms"};
    static const uint32_t heads[] = {2, 4}, inner[] = {12, 24};
    job->gpt = !once_in(rng, 3);
    job->hidden = hidden[below(rng, COUNT(hidden))];
    job->kinds = kinds[below(rng, COUNT(kinds))];
    job->layers = 1 + below(rng, 4);
    job->heads = heads[below(rng, 2)];
    job->inner = inner[below(rng, 2)];
    job->checkpoint = job->gpt && once_in(rng, 3);
    job->tied = once_in(rng, 2);
    job->dropout = job->gpt && once_in(rng, 12);
    job->alibi = job->gpt && !strstr(job->kinds, "position") && once_in(rng, 6);
    draw_frozen(job, rng);
}

static void
draw_sharing(random_job *job, exo_rng *rng)
{
    static const uint32_t shares[] = {2, 2, 3, 4};
    job->copies = 1 + below(rng, 4);
    job->tensor = job->pipeline = 1;
    uint32_t how = below(rng, 6);
    if (how == 0 || how == 2)
        job->tensor = shares[below(rng, COUNT(shares))];
    if (how == 1 || how == 2)
        job->pipeline = shares[below(rng, COUNT(shares))];
    if (job->tensor * job->pipeline > 8)
        job->pipeline = 2;
    if (job->tensor * job->pipeline > 2)
        job->copies = 1 + job->copies % 2;
    if (job->tensor * job->pipeline == 1 && once_in(rng, 4))
        job->copies = 6;
    job->odd = job->tensor * job->pipeline > 1 && once_in(rng, 15);
    job->context = 1;
}

static void
draw_context(random_job *job, exo_rng *rng)
{
    static const uint32_t shares[] = {2, 2, 3, 4};
    const bool alone = job->tensor * job->pipeline == 1;
    const uint32_t context = shares[below(rng, COUNT(shares))];
    if (!once_in(rng, alone ? 4 : 3) || random_job_nodes(job) * context >= RANDOM_JOB_NODES)
        return;
    job->context = context;
    job->odd = job->odd || once_in(rng, 15);
    if (job->copies > 2 && job->group == 0)
        job->copies = 2;
}

static void
draw_across(random_job *job, exo_rng *rng)
{
    static const struct {
        const char *name, *options;
        bool mean, by_place, by_shape;
    } all[] = {
        {"fedavg", "H: 1", true, false, false},
        {"local_sgd", "H: 1", true, false, false},
        {"compose", "exchanges: [{every: 1, apply: mean}]", true, false, false},
        {"diloco", "H: 1, outer_optimizer: {name: sgd, lr: 1}", true, false, false},
        {"fedavg", "H: 2, aggregate: median", false, false, false},
        {"local_sgd", "H: 3", false, false, false},
        {"diloco", "H: 2", false, false, false},
        {"diloco", "H: 2, offset: 1, outer_optimizer: {name: adam, lr: 0.01, eps: 1e-2}", false,
         false, false},
        {"eager_diloco", "H: 2", false, false, false},
        {"noloco", "H: 2", false, false, false},
        {"compose", "exchanges: [{every: 2, apply: {name: mix, alpha: 0.25}}]", false, false,
         false},
        {"sparta", "p: 0.3", false, true, false},
        {"sparta", "p: 0.2, interval: 2, delay: 1", false, true, false},
        {"sparta_diloco", "p: 0.3, H: 2", false, true, false},
        {"streaming_diloco", "H: 2, fragments: 2, delay: 1", false, true, true},
        {"sparseloco", "H: 2", false, true, true},
    };
    const uint32_t i = below(rng, COUNT(all));
    job->across = all[i].name;
    job->across_options = all[i].options;
    job->across_is_mean = all[i].mean;
    job->across_by_place = all[i].by_place;
    job->across_by_shape = all[i].by_shape;
}

static void
draw_strategy(random_job *job, exo_rng *rng)
{
    static const char *const shardings[] = {NULL,       "full_shard",   "shard_grad_op",
                                            "no_shard", "hybrid_shard", "hybrid_shard_zero2"};
    static const char *const buckets[] = {NULL, "4 B", "1 kB", "1 MB"};
    const bool whole = job->tensor * job->pipeline == 1;
    uint32_t how = below(rng, whole ? 8 : 12);
    job->kind = how < 4 ? RANDOM_JOB_FSDP : how < 6 ? RANDOM_JOB_ALONE : RANDOM_JOB_DDP;
    if (job->kind == RANDOM_JOB_DDP)
        job->bucket = buckets[below(rng, COUNT(buckets))];
    if (job->kind == RANDOM_JOB_ALONE)
        draw_across(job, rng);
    if (job->kind != RANDOM_JOB_FSDP)
        return;
    job->sharding = shardings[below(rng, COUNT(shardings))];
    job->prefetch = once_in(rng, 2);
    if (!job->sharding || strncmp(job->sharding, "hybrid", 6) == 0 || once_in(rng, 8))
        job->group = below(rng, 4);
    if (job->group > 0 && once_in(rng, 2))
        draw_across(job, rng);
    if (once_in(rng, 40))
        draw_across(job, rng);
}

static void
draw_rule(random_job *job, exo_rng *rng)
{
    /* Rules that divide by the size of a gradient have an eps above rounding: a gradient that is 0 on
     * paper is noise, and would be made large. */
    static const struct {
        const char *text;
        bool muon, plain;
    } rules[] = {
        {"{name: sgd, lr: 0.1}", false, true},
        {"{name: sgd, lr: 0.1}", false, true},
        {"{name: sgd, lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.01}", false, false},
        {"{name: sgd, lr: 0.1, momentum: 0.5, dampening: 0.1}", false, false},
        {"{name: adamw, lr: 0.01, eps: 1e-2}", false, false},
        {"{name: adamw, lr: 0.01, eps: 1e-2, groups: [{min_dims: 2, lr: 0.02}]}", false, false},
        {"{name: adam, lr: 0.01, eps: 1e-2, amsgrad: true, weight_decay: 0.1}", false, false},
        {"{name: rmsprop, lr: 0.01, eps: 1e-2, momentum: 0.5, centered: false}", false, false},
        {"{name: adagrad, lr: 0.01, eps: 1e-2, lr_decay: 0.1}", false, false},
        {"{name: muon, lr: 0.02, adamw: {lr: 0.01, eps: 1e-2}}", true, false},
    };
    static const char *const schedulers[] = {
        NULL, NULL, "{name: cosine, warmup_steps: 1, max_steps: 3}",
        "{name: linear, end_factor: 0.5, max_steps: 3}", "{name: step, step_size: 2}"};
    static const char *const norms[] = {NULL, "0.05", "1000"};
    const uint32_t i = below(rng, COUNT(rules));
    job->optimizer = rules[i].text;
    job->muon = rules[i].muon;
    job->plain_sgd = rules[i].plain;
    job->scheduler = schedulers[below(rng, COUNT(schedulers))];
    if (once_in(rng, 2))
        job->max_norm = norms[below(rng, COUNT(norms))];
}

static void
draw_rest(random_job *job, exo_rng *rng)
{
    static const size_t batches[][2] = {{6, 6}, {6, 3}, {6, 2}, {4, 1}, {2, 2}, {1, 1}};
    static const char *const ways[] = {"tree", "ring", "halving", "auto"};
    const uint32_t i = below(rng, COUNT(batches));
    job->batch = batches[i][0];
    job->minibatch = once_in(rng, 40) ? batches[i][0] + 1 : batches[i][1];
    job->shuffled = random_job_groups(job) == 1 && once_in(rng, 2);
    job->stops = once_in(rng, 6);
    if (once_in(rng, 5))
        job->collectives = ways[below(rng, COUNT(ways))];
    job->any_bits = job->collectives && !once_in(rng, 6);
    job->virtual_clock = once_in(rng, 5);
    job->correlates = once_in(rng, 12);
    job->elastic = job->kind != RANDOM_JOB_ALONE && once_in(rng, 12);
    job->sequence = once_in(rng, job->tensor > 1 ? 2 : 60);
}

/* Whether all that is trained is in one unit, and is to be cut into fragments. */
static bool
has_few_units(const random_job *job)
{
    return job->kind == RANDOM_JOB_ALONE && job->across && strstr(job->across, "streaming") &&
           job->lora && (job->layers == 1 || strstr(job->lora, "blocks.0"));
}

/* Whether no matrix is trained. */
static bool
leaves_vectors(const random_job *job)
{
    return job->frozen && strstr(job->frozen, "weight");
}

/* Whether no hidden matrix is. */
static bool
leaves_ends(const random_job *job)
{
    return leaves_vectors(job) ||
           (job->frozen && strstr(job->frozen, "blocks.0") && job->layers == 1);
}

/* Whether groups of shards are kept together by a strategy that looks at more than each element, or takes
 * some at a time. */
static bool
shards_by_place(const random_job *job)
{
    return job->kind == RANDOM_JOB_FSDP && job->across &&
           (job->across_by_place || job->across_by_shape);
}

/* Makes a job with parts or stages one that trains. */
static void
mend_parts(random_job *job)
{
    job->gpt = true;
    job->dropout = false;
    job->lora = job->frozen = NULL;
    job->odd = 0;
    if (shards_by_place(job))
        job->across = NULL;
    if (job->tensor > 1)
        job->alibi = false;
    job->elastic = job->correlates = false;
    if (job->tensor == 3)
        job->tensor = 2;
    if (job->tensor == 4) {
        job->heads = 4;
        job->kinds = "";
        job->sequence = false; /* it does not divide the sequences */
    }
    if (job->layers < job->pipeline)
        job->layers = job->pipeline;
}

/* Makes a job with parts of sequences one that trains. */
static void
mend_context(random_job *job)
{
    job->gpt = true;
    job->dropout = job->alibi = job->elastic = job->correlates = false;
    job->lora = job->frozen = NULL;
    job->odd = 0;
    if (job->context == 4)
        job->context = 2;
}

/* Makes a job with shards one that trains. */
static void
mend_shards(random_job *job)
{
    if (job->sharding && strncmp(job->sharding, "hybrid", 6) != 0)
        job->group = 0;
    if (job->group > 0 && job->copies % job->group != 0)
        job->copies = 2 * job->group;
    if (random_job_nodes(job) >= RANDOM_JOB_NODES) {
        job->group = job->group > 0;
        job->copies = 2;
    }
    if (job->group == 0)
        job->across = NULL;
    job->elastic = false;
}

static void
mend(random_job *job)
{
    if (job->tensor == 1)
        job->sequence = false;
    if (job->tensor * job->pipeline > 1)
        mend_parts(job);
    if (job->context > 1)
        mend_context(job);
    if (job->kind == RANDOM_JOB_FSDP)
        mend_shards(job);
    if (leaves_ends(job))
        job->frozen = NULL;
    if (has_few_units(job))
        job->lora = NULL;
    if (job->batch % job->minibatch != 0)
        job->minibatch = job->batch;
    job->any_bits = job->collectives;
    job->shuffled = job->shuffled && random_job_groups(job) == 1;
}

void
random_job_draw(random_job *job, uint64_t seed, uint32_t number)
{
    const char *reasons[RANDOM_JOB_REASONS];
    exo_rng rng;
    *job = (random_job){0};
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, number);
    draw_model(job, &rng);
    draw_sharing(job, &rng);
    draw_strategy(job, &rng);
    draw_context(job, &rng);
    draw_rule(job, &rng);
    draw_rest(job, &rng);
    if (random_job_reasons(job, reasons) > 0 && !once_in(&rng, 5))
        mend(job);
}

/* --- As text ---------------------------------------------------------------------------------- */

uint32_t
random_job_nodes(const random_job *job)
{
    return job->copies * job->tensor * job->pipeline * job->context + job->odd;
}

uint32_t
random_job_group(const random_job *job)
{
    if (job->kind == RANDOM_JOB_ALONE)
        return 1;
    const bool apart = job->across && job->group > 0 && job->copies % job->group == 0;
    return apart ? job->group : job->copies;
}

uint32_t
random_job_groups(const random_job *job)
{
    return job->copies / random_job_group(job);
}

void
random_job_model(const random_job *job, char out[RANDOM_JOB_TEXT])
{
    if (!job->gpt) {
        snprintf(out, RANDOM_JOB_TEXT, "{in: 8, out: 3, hidden: %s%s%s}", job->hidden,
                 job->frozen ? ", frozen: " : "", job->frozen ? job->frozen : "");
        return;
    }
    snprintf(out, RANDOM_JOB_TEXT,
             "{layers: %u, width: 16, heads: %u, inner: %u, vocabulary: %d, context: 12, tied: %s, "
             "checkpoint: %s%s%s%s%s%s}",
             job->layers, job->heads, job->inner, RANDOM_JOB_VOCABULARY,
             job->tied ? "true" : "false", job->checkpoint ? "true" : "false", job->kinds,
             job->alibi ? ", position: alibi" : "", job->dropout ? ", dropout: 0.1" : "",
             job->lora     ? ", lora: "
             : job->frozen ? ", frozen: "
                           : "",
             job->lora     ? job->lora
             : job->frozen ? job->frozen
                           : "");
}

const char *
random_job_strategy(const random_job *job)
{
    return job->kind == RANDOM_JOB_DDP    ? "ddp"
           : job->kind == RANDOM_JOB_FSDP ? "fsdp"
                                          : job->across;
}

void
random_job_options(const random_job *job, char out[RANDOM_JOB_TEXT])
{
    size_t at = (size_t)snprintf(out, RANDOM_JOB_TEXT, "{optimizer: %s", job->optimizer);
#define ADD(condition, ...)                                                                        \
    if (condition)                                                                                 \
    at += (size_t)snprintf(out + at, RANDOM_JOB_TEXT - at, __VA_ARGS__)
    ADD(job->scheduler, ", lr_scheduler: %s", job->scheduler);
    ADD(job->max_norm, ", max_norm: %s", job->max_norm);
    ADD(job->bucket, ", bucket_size: %s", job->bucket);
    ADD(job->sharding, ", sharding_strategy: %s", job->sharding);
    ADD(job->group > 0, ", group_size: %u", job->group);
    ADD(job->prefetch, ", prefetch: true");
    ADD(job->kind == RANDOM_JOB_ALONE, ", %s", job->across_options);
    ADD(job->kind == RANDOM_JOB_FSDP && job->across, ", across: {name: %s, %s}", job->across,
        job->across_options);
    ADD(true, "}");
#undef ADD
}

void
random_job_print(const random_job *job, char out[2 * RANDOM_JOB_TEXT])
{
    char model[RANDOM_JOB_TEXT], options[RANDOM_JOB_TEXT];
    random_job_model(job, model);
    random_job_options(job, options);
    snprintf(
        out, 2 * RANDOM_JOB_TEXT,
        "%u nodes, tensor %u%s, pipeline %u, context %u, batch %zu, minibatch %zu, %s %.300s, %s "
        "%.400s%s%s%s%s%s%s%s%s",
        random_job_nodes(job), job->tensor, job->sequence ? " with sequence" : "", job->pipeline,
        job->context, job->batch, job->minibatch, job->gpt ? "gpt" : "mlp", model,
        random_job_strategy(job), options, job->collectives ? ", collectives " : "",
        job->collectives ? job->collectives : "", job->any_bits ? ", any bits" : "",
        job->shuffled ? ", shuffled" : "", job->stops ? ", stopped and resumed" : "",
        job->virtual_clock ? ", virtual clock" : "", job->elastic ? ", elastic" : "",
        job->correlates ? ", correlates" : "");
}

/* --- What is known of it ---------------------------------------------------------------------- */

/* Whether fsdp keeps shards of a copy. */
static bool
has_shards(const random_job *job)
{
    const char *s = job->sharding;
    if (job->kind != RANDOM_JOB_FSDP || (s && strcmp(s, "no_shard") == 0))
        return false;
    return (job->group > 0 ? job->group : job->copies) > 1;
}

static bool
has_own_group(const random_job *job)
{
    return job->sharding && strncmp(job->sharding, "hybrid", 6) != 0;
}

struct reasons {
    const char **list;
    size_t count;
};

static void
refuse_if(struct reasons *r, bool condition, const char *reason)
{
    if (condition && r->count < RANDOM_JOB_REASONS)
        r->list[r->count++] = reason;
}

/* Nodes with parts or stages of the model. */
static void
refuse_parts(const random_job *job, struct reasons *r)
{
    const uint32_t t = job->tensor, p = job->pipeline;
    const uint32_t kv = strstr(job->kinds, "kv_heads") ? 2 : job->heads;
    refuse_if(r, job->sequence && RANDOM_JOB_LENGTH / job->context % t != 0,
              "it must divide sequences of");
    refuse_if(r, job->sequence && t == 1, "parallel.sequence goes with parallel.tensor");
    if (t * p == 1)
        return;
    refuse_if(r, random_job_nodes(job) % t != 0 || random_job_nodes(job) % p != 0,
              "does not divide num_nodes");
    refuse_if(r, shards_by_place(job), "does not go with the strategy");
    refuse_if(r, !job->gpt, "needs a model of the class gpt");
    refuse_if(r, job->dropout, "dropout");
    refuse_if(r, job->lora, "lora");
    refuse_if(r, job->frozen, "frozen");
    refuse_if(r, job->elastic, "train.elastic");
    refuse_if(r, job->correlates, "train.correlation_interval");
    refuse_if(r, t > 1 && job->alibi, "alibi");
    refuse_if(r, t > 1 && (job->heads % t != 0 || kv % t != 0 || job->inner % t != 0),
              "must divide the model's");
    refuse_if(r, p > 1 && job->layers < p, "layers");
}

/* Nodes with parts of each sequence. */
static void
refuse_context(const random_job *job, struct reasons *r)
{
    if (job->context == 1)
        return;
    refuse_if(r, random_job_nodes(job) % job->context != 0, "does not divide num_nodes");
    refuse_if(r, RANDOM_JOB_LENGTH % (2 * job->context) != 0, "twice as many must divide");
    refuse_if(r, !job->gpt, "needs a model of the class gpt");
    refuse_if(r, job->dropout, "dropout");
    refuse_if(r, job->lora, "lora");
    refuse_if(r, job->frozen, "frozen");
    refuse_if(r, job->elastic, "train.elastic");
    refuse_if(r, job->correlates, "train.correlation_interval");
    refuse_if(r, job->alibi, "alibi");
}

static void
refuse_shards(const random_job *job, struct reasons *r)
{
    if (job->kind != RANDOM_JOB_FSDP)
        return;
    refuse_if(r, job->group > 0 && has_own_group(job), "group_size");
    refuse_if(r, job->group > 0 && job->copies % job->group != 0, "cannot be cut into groups");
    refuse_if(r, job->group == 0 && job->across, "across: needs a group_size");
    refuse_if(r, job->elastic, "elastic");
}

size_t
random_job_reasons(const random_job *job, const char *out[RANDOM_JOB_REASONS])
{
    struct reasons r = {.list = out};
    const char *way = job->collectives;
    refuse_parts(job, &r);
    refuse_context(job, &r);
    refuse_shards(job, &r);
    refuse_if(&r, leaves_ends(job) && job->muon, "muon");
    refuse_if(&r, has_few_units(job), "which is fewer than the 2 fragments");
    refuse_if(&r, leaves_vectors(job) && strstr(job->optimizer, "groups"), "groups");
    refuse_if(&r, job->batch % job->minibatch != 0, "does not divide batch_size");
    refuse_if(&r,
              way && !job->any_bits && (strcmp(way, "ring") == 0 || strcmp(way, "halving") == 0),
              "equal_bits");
    return r.count;
}

bool
random_job_twin(const random_job *job, random_job *twin)
{
    *twin = *job;
    twin->checkpoint = twin->prefetch = twin->stops = false;
    twin->virtual_clock = twin->elastic = twin->correlates = false;
    twin->bucket = NULL;
    if (job->any_bits)
        return false;
    twin->collectives = NULL;
    const bool by_stage = job->max_norm || (job->across && job->across_by_shape);
    if (!job->tied && job->tensor == 1 && !by_stage) /* a norm is a sum over stages */
        twin->pipeline = 1;
    if (job->kind == RANDOM_JOB_FSDP) {
        const bool one = !has_shards(job) || job->group == 0 || job->group == job->copies;
        const bool clips = job->max_norm && has_shards(job); /* a sum over shards */
        twin->sharding = "hybrid_shard";
        twin->group = has_shards(job) ? random_job_group(job) : 1;
        if (has_shards(job) && job->group > 0)
            twin->group = job->group;
        if (!job->across && one && !clips) {
            twin->kind = RANDOM_JOB_DDP;
            twin->sharding = NULL;
            twin->group = 0;
        }
        if (job->across && job->group == 1 && !job->across_by_shape) {
            twin->kind = RANDOM_JOB_ALONE;
            twin->sharding = NULL;
            twin->group = 0;
        }
    }
    return memcmp(twin, job, sizeof *job) != 0;
}

bool
random_job_sends_same(const random_job *job, const random_job *twin)
{
    const char *s = job->sharding;
    const bool stays_open = s && (strcmp(s, "shard_grad_op") == 0 || strstr(s, "zero2"));
    const bool repeats = job->tensor > 1 && job->checkpoint; /* sums, in backward */
    return job->kind == twin->kind && job->pipeline == twin->pipeline && !job->collectives &&
           !stays_open && !repeats;
}

bool
random_job_reference(const random_job *job, random_job *reference)
{
    const bool mean = job->across && job->across_is_mean && job->plain_sgd && !job->max_norm;
    const uint32_t groups = mean ? 1 : random_job_groups(job);
    *reference = *job;
    const bool by_shard = job->across_by_shape || job->kind == RANDOM_JOB_FSDP;
    if (job->dropout || (job->across && job->across_by_place && by_shard))
        return false; /* dropout's stream is the node's */
    reference->tensor = reference->pipeline = reference->context = 1;
    reference->sequence = false;
    reference->checkpoint = reference->prefetch = reference->stops = reference->any_bits = false;
    reference->virtual_clock = reference->elastic = reference->correlates = false;
    reference->bucket = reference->sharding = reference->collectives = NULL;
    reference->group = 0;
    reference->kind = groups == 1 && !(job->across && !mean) ? RANDOM_JOB_DDP : RANDOM_JOB_ALONE;
    if (reference->kind == RANDOM_JOB_DDP)
        reference->across = NULL;
    reference->copies = groups;
    reference->batch = reference->minibatch = job->batch * job->copies / groups;
    return memcmp(reference, job, sizeof *job) != 0;
}
