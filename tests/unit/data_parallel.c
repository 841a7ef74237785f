/* Wrapped models (exogym/data_parallel.h): members train as one node does, under ddp and under fsdp
 * with every sharding strategy. Each member's thread owns its `struct member`. Read next:
 * strategies/wrap.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

#include <exogym/data_parallel.h>
#include <exogym/memory.h>

#include "support/numbers.h"
#include "support/points.h"

enum {
    MOST = 4,
    STEPS = 3,
    SAMPLES = 16, /* of all members in a step */
    SEED = 7
};

#define OPTIONS "{optimizer: {name: adamw, lr: 0.01, eps: 1e-3}, max_norm: 0.5}"

struct member {
    const exo_parallel_config *config;
    uint32_t rank, size, minibatches;
    uint64_t seed;
    exo_model *model;
    exo_group *group;
    exo_dataset *data;
    float loss[STEPS], seen; /* of a step's batches; of all samples, after the steps */
    float *params;           /* (numel) of the whole model */
    const char *strategy;
    uint64_t sent;      /* in the steps */
    size_t open_before; /* bytes of the copy between steps */
    exo_status status;
    exo_err err;
};

static void
read_batch(exo_batch *batch, const exo_dataset *data, size_t first, size_t count)
{
    size_t index[SAMPLES];
    const exo_sample_key key = {0};
    for (size_t i = 0; i < count; i++)
        index[i] = first + i;
    cr_assert_eq(exo_batch_init(batch, data, count, NULL), EXO_OK);
    cr_assert_eq(exo_batch_read(batch, data, index, count, &key, NULL), EXO_OK);
}

static exo_status
step(struct member *m, exo_parallel *p, size_t s)
{
    exo_batch batches[2] = {0};
    const size_t count = SAMPLES / m->size / m->minibatches;
    for (size_t i = 0; i < m->minibatches; i++)
        read_batch(&batches[i], m->data, s * SAMPLES + (m->rank * m->minibatches + i) * count,
                   count);
    exo_status st = exo_parallel_step(p, batches, m->minibatches, &m->loss[s], &m->err);
    for (size_t i = 0; i < m->minibatches; i++)
        exo_batch_release(&batches[i]);
    return st;
}

static exo_status
look(struct member *m, exo_parallel *p)
{
    exo_batch all = {0};
    exo_params *whole = NULL;
    const size_t bytes = exo_model_numel(m->model) * sizeof(float);
    read_batch(&all, m->data, 0, SAMPLES);
    exo_status st = exo_parallel_evaluate(p, &all, &m->seen, &m->err);
    if (st == EXO_OK)
        st = exo_parallel_gather(p, &whole, &m->err);
    if (st == EXO_OK && (m->params = exo_calloc(1, bytes)))
        memcpy(m->params, exo_params_values(whole), bytes);
    exo_params_free(&whole);
    exo_batch_release(&all);
    return st;
}

static void *
train(void *argument)
{
    struct member *m = argument;
    exo_parallel *p = NULL;
    m->status = exo_parallel_wrap(&p, m->model, m->config, OPTIONS, m->group, m->seed, &m->err);
    if (m->status != EXO_OK)
        return NULL;
    m->strategy = exo_parallel_strategy(p);
    m->open_before = exo_params_open_bytes(exo_parallel_params(p));
    const uint64_t before = m->group ? exo_group_stats(m->group).bytes_sent : 0;
    for (size_t s = 0; s < STEPS && m->status == EXO_OK; s++)
        m->status = step(m, p, s);
    m->sent = m->group ? exo_group_stats(m->group).bytes_sent - before : 0;
    if (m->status == EXO_OK)
        m->status = look(m, p);
    exo_parallel_free(&p);
    return NULL;
}

/* Trains with `size` members, each with a thread, whose seeds are `seed`, `seed` + `apart`, ... */
static void
train_all(struct member *all, uint32_t size, const exo_parallel_config *config,
          uint32_t minibatches, uint64_t apart)
{
    exo_comm *comm = NULL;
    pthread_t threads[MOST];
    cr_assert_eq(exo_comm_local(&comm, size, exo_clock_real(), NULL), EXO_OK);
    for (uint32_t r = 0; r < size; r++) {
        all[r] = (struct member){.config = config,
                                 .rank = r,
                                 .size = size,
                                 .minibatches = minibatches,
                                 .seed = SEED + r * apart,
                                 .model = points_mlp(),
                                 .data = points_new(SAMPLES * STEPS, 1, SIZE_MAX)};
        cr_assert_eq(exo_group_open(&all[r].group, comm, r, "member", NULL), EXO_OK);
    }
    for (uint32_t r = 0; r < size; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, train, &all[r]), 0);
    for (uint32_t r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < size; r++)
        exo_group_close(&all[r].group);
    exo_comm_drop(&comm);
}

static void
release_all(struct member *all, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++) {
        exo_free(all[r].params);
        exo_dataset_drop(&all[r].data);
        exo_model_drop(&all[r].model);
    }
}

static exo_parallel_config
fsdp(exo_sharding_strategy sharding, uint32_t group_size)
{
    exo_parallel_config c = exo_parallel_config_init();
    c.use_fsdp = true;
    c.sharding_strategy = sharding;
    c.group_size = group_size;
    return c;
}

static void
expect_one_node(const struct member *all, uint32_t size, const struct member *one)
{
    const size_t numel = exo_model_numel(one->model);
    for (uint32_t r = 0; r < size; r++) {
        cr_assert_eq(all[r].status, EXO_OK, "member %u of %u: %s", r, size, all[r].err.text);
        cr_expect_lt(numbers_distance(all[r].params, one->params, numel), 1e-5,
                     "%s, member %u of %u", all[r].strategy, r, size);
        cr_expect_float_eq((double)all[r].seen, (double)one->seen, 1e-5 * (double)one->seen);
    }
    for (size_t s = 0; s < STEPS; s++) {
        double mean = 0;
        for (uint32_t r = 0; r < size; r++)
            mean += (double)all[r].loss[s] / size;
        cr_expect_float_eq(mean, (double)one->loss[s], 1e-5 * (double)one->loss[s]);
    }
}

Test(data_parallel, alone_a_model_is_trained_as_it_is)
{
    struct member plain, one, shards;
    const exo_parallel_config ddp = exo_parallel_config_init();
    const exo_parallel_config full = fsdp(EXO_FULL_SHARD, 0);
    plain = (struct member){.config = &ddp,
                            .size = 1,
                            .minibatches = 1,
                            .seed = SEED,
                            .model = points_mlp(),
                            .data = points_new(SAMPLES * STEPS, 1, SIZE_MAX)};
    train(&plain); /* without a group */
    cr_assert_eq(plain.status, EXO_OK, "%s", plain.err.text);
    cr_expect_null(plain.strategy);
    cr_expect_lt(plain.seen, plain.loss[0], "it learns the samples of its first step");
    train_all(&one, 1, &ddp, 1, 0);
    train_all(&shards, 1, &full, 1, 0);
    const size_t bytes = exo_model_numel(plain.model) * sizeof(float);
    cr_assert_eq(one.status, EXO_OK, "%s", one.err.text);
    cr_assert_eq(shards.status, EXO_OK, "%s", shards.err.text);
    cr_expect_arr_eq(one.params, plain.params, bytes);
    cr_expect_arr_eq(shards.params, plain.params, bytes);
    cr_expect_null(shards.strategy);
    cr_expect_eq(shards.open_before, plain.open_before, "it has all parameters");
    release_all(&plain, 1);
    release_all(&one, 1);
    release_all(&shards, 1);
}

Test(data_parallel, members_train_as_one_node)
{
    static const struct {
        exo_sharding_strategy sharding;
        uint32_t group;
    } kinds[] = {{EXO_FULL_SHARD, 0},   {EXO_SHARD_GRAD_OP, 0}, {EXO_NO_SHARD, 0},
                 {EXO_HYBRID_SHARD, 0}, {EXO_HYBRID_SHARD, 2},  {EXO_HYBRID_SHARD_ZERO2, 2}};
    struct member one, all[MOST];
    const exo_parallel_config ddp = exo_parallel_config_init();
    for (uint32_t minibatches = 1; minibatches <= 2; minibatches++) {
        train_all(&one, 1, &ddp, 1, 0);
        for (uint32_t size = 2; size <= MOST; size += 2) {
            train_all(all, size, &ddp, minibatches, 1); /* member 0's seed counts */
            expect_one_node(all, size, &one);
            cr_expect_str_eq(all[0].strategy, "ddp");
            release_all(all, size);
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                const exo_parallel_config c = fsdp(kinds[k].sharding, kinds[k].group);
                train_all(all, size, &c, minibatches, 1);
                expect_one_node(all, size, &one);
                cr_expect_str_eq(all[0].strategy, "fsdp");
                cr_expect_eq(all[0].open_before, 0, "no unit is open between steps");
                release_all(all, size);
            }
        }
        release_all(&one, 1);
    }
}

Test(data_parallel, members_may_draw_their_own_parameters)
{
    struct member synced[2], drawn[2], apart[2];
    exo_parallel_config c = fsdp(EXO_FULL_SHARD, 0);
    train_all(synced, 2, &c, 1, 0);
    c.sync_module_states = false;
    train_all(drawn, 2, &c, 1, 0);
    train_all(apart, 2, &c, 1, 1);
    const size_t numel = exo_model_numel(synced[0].model);
    for (uint32_t r = 0; r < 2; r++) {
        cr_assert_eq(synced[r].status, EXO_OK, "%s", synced[r].err.text);
        cr_assert_eq(drawn[r].status, EXO_OK, "%s", drawn[r].err.text);
        cr_assert_eq(apart[r].status, EXO_OK, "%s", apart[r].err.text);
        cr_expect_arr_eq(drawn[r].params, synced[r].params, numel * sizeof(float));
        cr_expect_eq(drawn[r].sent, synced[r].sent);
        cr_expect_gt(numbers_distance(apart[r].params, synced[r].params, numel), 0.01,
                     "member 1 began with its own");
    }
    release_all(synced, 2);
    release_all(drawn, 2);
    release_all(apart, 2);
}

Test(data_parallel, offload_keeps_the_bits_on_the_cpu)
{
    struct member here[2], there[2];
    exo_parallel_config c = fsdp(EXO_FULL_SHARD, 0);
    train_all(here, 2, &c, 1, 0);
    c.cpu_offload = true;
    train_all(there, 2, &c, 1, 0);
    cr_assert_eq(there[0].status, EXO_OK, "%s", there[0].err.text);
    cr_expect_arr_eq(there[0].params, here[0].params,
                     exo_model_numel(here[0].model) * sizeof(float));
    release_all(here, 2);
    release_all(there, 2);
}

Test(data_parallel, wrong_settings_are_named)
{
    const exo_parallel_config none = exo_parallel_config_init();
    const struct {
        exo_parallel_config config;
        const char *options, *reason;
    } cases[] = {
        {{.cpu_offload = true, .sync_module_states = true}, "", "cpu_offload is a setting of fsdp"},
        {{.sharding_strategy = EXO_FULL_SHARD}, "", "sharding_strategy is a setting of fsdp"},
        {{.group_size = 2}, "", "group_size is a setting of fsdp"},
        {{.use_fsdp = true, .sharding_strategy = (exo_sharding_strategy)9},
         "",
         "there is no sharding_strategy 9"},
        {{.use_fsdp = true, .sharding_strategy = EXO_FULL_SHARD, .group_size = 1},
         "",
         "group_size"},
        {{.use_fsdp = true, .group_size = 2}, "", "cannot be cut into groups of 2"},
        {{.use_fsdp = true}, "{sharding_strategy: no_shard}", "sharding_strategy is given twice"},
        {none, "{max_nrom: 1}", "did you mean 'max_norm'?"},
        {none, "[1]", "expected a mapping"},
    };
    exo_model *model = points_mlp();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_parallel *p = NULL;
        exo_err err = {0};
        cr_expect_eq(
            exo_parallel_wrap(&p, model, &cases[i].config, cases[i].options, NULL, SEED, &err),
            EXO_INVAL, "case %zu", i);
        cr_expect_not_null(strstr(err.text, cases[i].reason), "case %zu: %s", i, err.text);
        cr_expect_null(p);
    }
    exo_parallel *p = NULL;
    exo_err err = {0};
    float loss;
    cr_assert_eq(exo_parallel_wrap(&p, model, &none, NULL, NULL, SEED, &err), EXO_OK);
    cr_expect_eq(exo_parallel_step(p, NULL, 0, &loss, &err), EXO_INVAL);
    exo_parallel_free(&p);
    exo_parallel_free(&p);
    exo_model_drop(&model);
}
