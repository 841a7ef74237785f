/* Nodes under a strategy: see nodes.h. */
#include "support/nodes.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "comm/server.h"

/* Programs without Criterion use this file, too. */
#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

void
nodes_initial(size_t numel, float *params)
{
    exo_rng rng;
    exo_rng_init(&rng, NODES_SEED, EXO_RNG_INIT, 0, 0);
    for (size_t j = 0; j < numel; j++)
        params[j] = 2.0f * exo_rng_uniform(&rng) - 1.0f;
}

void
nodes_gradient(size_t numel, const float *params, uint64_t first, size_t count, float *grads)
{
    memset(grads, 0, numel * sizeof *grads);
    for (uint64_t k = first; k < first + count; k++) {
        exo_rng rng;
        exo_rng_init(&rng, NODES_SEED, EXO_RNG_USER, 0, k);
        for (size_t j = 0; j < numel; j++) {
            float a = 0.5f + exo_rng_uniform(&rng), b = 4.0f * exo_rng_uniform(&rng) - 2.0f;
            grads[j] += a * tanhf(params[j] - b) / (float)count;
        }
    }
}

/* Returns the number of shapes, which cover all parameters. */
static size_t
list_shapes(nodes *n)
{
    static const struct {
        const char *name;
        size_t num_dims, dims[EXO_MAX_DIMS];
    } shapes[] = {
        {"wide", 2, {12, 8}}, {"bias", 1, {7}}, {"low", 2, {5, 14}}, {"conv", 4, {6, 3, 3, 2}}};
    size_t count = 0, offset = 0;
    for (size_t i = 0; i <= sizeof shapes / sizeof *shapes; i++) {
        exo_param_info info = {.name = "rest", .num_dims = 1, .dims = {n->numel - offset}};
        if (i < sizeof shapes / sizeof *shapes) {
            info.name = shapes[i].name;
            info.num_dims = shapes[i].num_dims;
            memcpy(info.dims, shapes[i].dims, sizeof info.dims);
        }
        info.numel = 1;
        for (size_t d = 0; d < info.num_dims; d++)
            info.numel *= info.dims[d];
        info.offset = offset;
        if (info.numel == 0 || info.numel > n->numel - offset)
            continue;
        offset += info.numel;
        n->infos[count++] = info;
    }
    return count;
}

/* Gives a node its units. */
static void
add_units(nodes_node *each, size_t numel)
{
    static const char *const names[NODES_UNITS] = {"a", "b", "c", "d", "e"};
    for (uint32_t u = 0; u < NODES_UNITS; u++) {
        each->units[u].name = names[u];
        exo_shard(numel, NODES_UNITS, u, &each->units[u].first, &each->units[u].count);
    }
    if (numel < NODES_UNITS)
        return;
    each->node.units = each->units;
    each->node.num_units = NODES_UNITS;
}

void
nodes_init_on(nodes *n, uint32_t count, size_t numel, size_t batch, uint64_t max_steps,
              const char *name, const char *options, exo_device *(*device)(void),
              void (*release)(exo_device **device))
{
    exo_err err = {0};
    *n = (nodes){
        .count = count, .numel = numel, .batch = batch, .max_steps = max_steps, .release = release};
    const size_t num_infos = list_shapes(n);
    MUST(exo_comm_local(&n->comm, count, exo_clock_real(), &err) == EXO_OK, "%s", err.text);
    for (uint32_t r = 0; r < count; r++) {
        nodes_node *each = &n->each[r];
        char place[16];
        snprintf(place, sizeof place, "node_%u", r);
        MUST(exo_group_open(&each->group, n->comm, r, place, &err) == EXO_OK, "%s", err.text);
        exo_group_set_timeout(each->group, 30 * EXO_SECOND);
        each->params = exo_alloc_aligned(numel * sizeof(float));
        each->grads = exo_alloc_aligned(numel * sizeof(float));
        MUST(each->params && each->grads, "out of memory");
        nodes_initial(numel, each->params);
        each->device = device();
        exo_array params = exo_host_array(EXO_F32, each->params, numel),
                  grads = exo_host_array(EXO_F32, each->grads, numel);
        if (!exo_device_is_host(each->device)) {
            MUST(exo_array_init(&params, each->device, EXO_F32, numel, &err) == EXO_OK, "%s",
                 err.text);
            MUST(exo_array_init(&grads, each->device, EXO_F32, numel, &err) == EXO_OK, "%s",
                 err.text);
            MUST(exo_array_write(params, each->params, &err) == EXO_OK, "%s", err.text);
        }
        each->node = (exo_node){
            .rank = r,
            .num_nodes = count,
            .max_steps = max_steps,
            .seed = NODES_SEED,
            .numel = numel,
            .params = params,
            .grads = grads,
            .infos = n->infos,
            .num_infos = num_infos,
            .group = each->group,
        };
        add_units(each, numel);
        MUST(exo_strategy_parse(&each->strategy, name, options, &err) == EXO_OK, "%s", err.text);
        MUST(exo_strategy_start(each->strategy, &each->node, &err) == EXO_OK, "%s", err.text);
    }
}

void
nodes_init(nodes *n, uint32_t count, size_t numel, size_t batch, uint64_t max_steps,
           const char *name, const char *options)
{
    nodes_init_on(n, count, numel, batch, max_steps, name, options, exo_device_cpu, NULL);
}

void
nodes_release(nodes *n)
{
    for (uint32_t r = 0; r < n->count; r++) {
        nodes_node *each = &n->each[r];
        exo_strategy_free(&each->strategy);
        exo_optim_free(&each->node.optim);
        exo_group_close(&each->group);
        exo_array_release(&each->node.params);
        exo_array_release(&each->node.grads);
        if (n->release)
            n->release(&each->device);
        exo_free(each->params);
        exo_free(each->grads);
    }
    exo_comm_drop(&n->comm);
}

struct job {
    nodes *n;
    uint32_t rank;
    uint64_t steps;
};

/* Copies the parameters to the host, for the next gradient. */
static exo_status
read_back(nodes_node *each)
{
    return exo_device_is_host(each->device)
               ? EXO_OK
               : exo_array_read(each->node.params, each->params, &each->err);
}

static exo_status
take_step(nodes_node *each)
{
    exo_status st = EXO_OK;
    if (!exo_device_is_host(each->device))
        st = exo_array_write(each->node.grads, each->grads, &each->err);
    if (st == EXO_OK)
        st = exo_strategy_step(each->strategy, &each->node, &each->err);
    return st == EXO_OK ? read_back(each) : st;
}

static void *
train_node(void *arg)
{
    const struct job *job = arg;
    const nodes *n = job->n;
    nodes_node *each = &job->n->each[job->rank];
    each->status = EXO_OK;
    for (uint64_t i = 0; i < job->steps && each->status == EXO_OK; i++) {
        uint64_t first = (each->node.step * n->count + job->rank) * n->batch;
        nodes_gradient(n->numel, each->params, first, n->batch, each->grads);
        each->status = take_step(each);
        each->node.step++;
    }
    if (each->status != EXO_OK)
        exo_comm_fail(n->comm, job->rank, each->err.text);
    return NULL;
}

void
nodes_try(nodes *n, uint64_t steps)
{
    pthread_t threads[NODES_MAX];
    struct job jobs[NODES_MAX];
    for (uint32_t r = 0; r < n->count; r++) {
        jobs[r] = (struct job){n, r, steps};
        MUST(pthread_create(&threads[r], NULL, train_node, &jobs[r]) == 0, "no thread");
    }
    for (uint32_t r = 0; r < n->count; r++)
        pthread_join(threads[r], NULL);
}

void
nodes_train(nodes *n, uint64_t steps)
{
    nodes_try(n, steps);
    for (uint32_t r = 0; r < n->count; r++)
        MUST(n->each[r].status == EXO_OK, "node %u: %s", r, n->each[r].err.text);
}

typedef exo_status file_function(exo_state *state, const char *path, exo_err *err);

static void
one_file(nodes *n, uint32_t rank, const char *folder, file_function *how)
{
    nodes_node *each = &n->each[rank];
    char path[256];
    exo_err err = {0};
    exo_state *state = NULL;
    snprintf(path, sizeof path, "%s/%u", folder, rank);
    MUST(exo_state_new(&state, &err) == EXO_OK, "%s", err.text);
    exo_state_add_array(state, "params", each->node.params);
    exo_state_add_u64(state, "step", &each->node.step);
    exo_strategy_state(each->strategy, &each->node, state);
    MUST(how(state, path, &err) == EXO_OK, "%s", err.text);
    exo_state_free(&state);
}

static void
server_file(nodes *n, const char *folder, file_function *how)
{
    char path[256];
    exo_err err = {0};
    exo_state *state = NULL;
    snprintf(path, sizeof path, "%s/server", folder);
    MUST(exo_state_new(&state, &err) == EXO_OK, "%s", err.text);
    if (exo_server_pause(n->comm->server, state)) {
        MUST(how(state, path, &err) == EXO_OK, "%s", err.text);
        exo_server_resume(n->comm->server);
    }
    exo_state_free(&state);
}

void
nodes_save_one(nodes *n, uint32_t rank, const char *folder)
{
    one_file(n, rank, folder, exo_state_save);
}

void
nodes_save_server(nodes *n, const char *folder)
{
    server_file(n, folder, exo_state_save);
}

void
nodes_save(nodes *n, const char *folder)
{
    for (uint32_t r = 0; r < n->count; r++)
        nodes_save_one(n, r, folder);
    nodes_save_server(n, folder);
}

void
nodes_load(nodes *n, const char *folder)
{
    for (uint32_t r = 0; r < n->count; r++)
        one_file(n, r, folder, exo_state_load);
    server_file(n, folder, exo_state_load);
    for (uint32_t r = 0; r < n->count; r++)
        MUST(read_back(&n->each[r]) == EXO_OK, "node %u", r);
}

uint64_t
nodes_bytes(const nodes *n)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < n->count; r++)
        sum += exo_group_stats(n->each[r].group).bytes_sent;
    return sum;
}
