/* A parameter server (Li et al., 2014): one actor holds the weights of a linear regression. Workers
 * pull the weights, compute a gradient on their own data, and push it. Training is asynchronous: no
 * worker waits for another, so gradients may belong to weights that are a few updates old. With
 * --sync the driver gathers all gradients of a step and pushes them in the order of the workers, so
 * every run gives the same numbers.
 *
 * CMakeLists.txt builds this file twice: as the program, and as a plugin, from which the workers of
 * a cluster load the actors' classes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

enum {
    D = 8,
    WORKERS = 4,
    BATCH = 32,
    STEPS = 50, /* steps of each worker between two lines of output */
    ROUNDS = 4
};

struct weights {
    float w[D];
    uint64_t updates;
};

/* Sample `index` of worker `rank`: fills x (D) and returns y = 1 x0 + 2 x1 + ... + 8 x7 + noise. */
static float
sample(uint32_t rank, uint64_t index, float x[D])
{
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, rank, index);
    float y = 0.1f * exo_rng_normal(&rng);
    for (int k = 0; k < D; k++)
        y += (float)(k + 1) * (x[k] = exo_rng_normal(&rng));
    return y;
}

/* Returns half the mean squared error over BATCH samples from `first` on, and writes its gradient
 * to g (D), unless g is NULL. */
static float
loss(const float w[D], uint32_t rank, uint64_t first, float *g)
{
    float x[D], sum = 0;
    for (int k = 0; g && k < D; k++)
        g[k] = 0;
    for (uint64_t i = 0; i < BATCH; i++) {
        float error = -sample(rank, first + i, x);
        for (int k = 0; k < D; k++)
            error += w[k] * x[k];
        for (int k = 0; g && k < D; k++)
            g[k] += error * x[k] / BATCH;
        sum += error * error / (2 * BATCH);
    }
    return sum;
}

/* Calls a method, waits for its reply, and copies the reply to `out`. */
static exo_status
ask(exo_runtime *runtime, exo_ref actor, const char *method, const void *args, size_t size,
    exo_time deadline, void *out, size_t out_size, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_payload payload = {0};
    exo_status st = exo_payload_copy(&payload, args, size);
    if (st == EXO_OK)
        st = exo_call(runtime, actor, method, payload, deadline, &future, err);
    if (st == EXO_OK)
        st = exo_wait(future, deadline, &reply, err);
    if (st == EXO_OK)
        memcpy(out, reply->data, out_size < reply->size ? out_size : reply->size);
    exo_future_drop(&future);
    return st;
}

/* --- The server: its one light lane runs pulls and pushes in turn, so it needs no lock -------- */

static exo_status
pull(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call, (void)args, (void)err;
    return exo_payload_copy(reply, self, sizeof(struct weights));
}

static exo_status
push(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    struct weights *s = self;
    const float *g = args->data;
    if (args->size != sizeof s->w)
        return exo_fail(err, EXO_INVAL, "push: %zu bytes are no gradient of %d numbers", args->size,
                        D);
    for (int k = 0; k < D; k++)
        s->w[k] -= 0.02f * g[k];
    s->updates++;
    return exo_payload_copy(reply, &s->updates, sizeof s->updates);
}

static const exo_method server_methods[] = {{.name = "pull", .run = pull},
                                            {.name = "push", .run = push}};
static const exo_actor_class server = {.name = "example.server",
                                       .state_size = sizeof(struct weights),
                                       .methods = server_methods,
                                       .num_methods = 2};

/* --- A worker: its methods wait for the server, so its lane is a blocking one ----------------- */

struct worker {
    uint32_t rank;
    uint64_t seen; /* samples that it has used */
    exo_ref server;
};

static exo_status
start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    struct worker *w = self;
    memcpy(&w->rank, args->data, sizeof w->rank);
    /* Finds the server by its name, because a reference is valid in one process only. */
    return exo_get_actor(exo_call_runtime(call), "example", "server", &w->server, err);
}

static exo_status
gradient(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
         exo_err *err)
{
    (void)args;
    struct worker *w = self;
    struct weights now;
    float g[D];
    exo_status st = ask(exo_call_runtime(call), w->server, "pull", NULL, 0, exo_call_deadline(call),
                        &now, sizeof now, err);
    if (st != EXO_OK)
        return st;
    loss(now.w, w->rank, w->seen, g);
    w->seen += BATCH;
    return exo_payload_copy(reply, g, sizeof g);
}

static exo_status
train(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct worker *w = self;
    uint64_t updates = 0;
    exo_status st = EXO_OK;
    for (int i = 0; i < STEPS && st == EXO_OK && !exo_call_cancelled(call); i++) {
        exo_payload g = {0};
        st = gradient(call, self, args, &g, err);
        if (st == EXO_OK)
            st = ask(exo_call_runtime(call), w->server, "push", g.data, g.size,
                     exo_call_deadline(call), &updates, sizeof updates, err);
        exo_payload_release(&g);
    }
    return st == EXO_OK ? exo_payload_copy(reply, &updates, sizeof updates) : st;
}

static const exo_lane_class worker_lanes[] = {{.name = "work", .blocking = true}};
static const exo_method worker_methods[] = {{.name = "gradient", .run = gradient},
                                            {.name = "train", .run = train}};
static const exo_actor_class worker = {.name = "example.worker",
                                       .state_size = sizeof(struct worker),
                                       .start = start,
                                       .lanes = worker_lanes,
                                       .num_lanes = 1,
                                       .methods = worker_methods,
                                       .num_methods = 2};

EXO_PLUGIN
{
    exo_status st = exo_actor_class_register(&server, err);
    return st == EXO_OK ? exo_actor_class_register(&worker, err) : st;
}

/* --- The driver ------------------------------------------------------------------------------- */

/* Calls `method` of all workers at once and waits for them. With a `target`, pushes their replies
 * to it, in the order of the workers. */
static exo_status
all(exo_runtime *runtime, const exo_ref *workers, const char *method, const exo_ref *target,
    exo_err *err)
{
    exo_future *futures[WORKERS] = {0};
    exo_time deadline = exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
    const exo_payload *reply;
    uint64_t updates;
    size_t called = 0;
    exo_status st = EXO_OK;
    for (; called < WORKERS && st == EXO_OK; called += st == EXO_OK)
        st = exo_call(runtime, workers[called], method, (exo_payload){0}, deadline,
                      &futures[called], err);
    if (st == EXO_OK)
        st = exo_wait_all(futures, WORKERS, deadline, err);
    for (size_t i = 0; i < WORKERS && target && st == EXO_OK; i++) {
        st = exo_wait(futures[i], deadline, &reply, err);
        if (st == EXO_OK)
            st = ask(runtime, *target, "push", reply->data, reply->size, deadline, &updates,
                     sizeof updates, err);
    }
    for (size_t i = 0; i < WORKERS; i++)
        exo_future_drop(&futures[i]);
    return st;
}

static exo_status
run(exo_runtime *runtime, bool sync, exo_err *err)
{
    static const char *const plugins[] = {PLUGIN};
    exo_spawn_opts opts = {
        .name = "server", .namespace_name = "example", .plugins = plugins, .num_plugins = 1};
    exo_time soon = exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
    exo_ref parameters, workers[WORKERS];
    struct weights now = {0};
    exo_status st = exo_spawn_class(runtime, "example.server", &opts, soon, &parameters, err);
    opts.name = NULL;
    opts.placement = EXO_PLACE_SPREAD;
    for (uint32_t i = 0; i < WORKERS && st == EXO_OK; i++) {
        st = exo_payload_copy(&opts.args, &i, sizeof i);
        if (st == EXO_OK)
            st = exo_spawn_class(runtime, "example.worker", &opts, soon, &workers[i], err);
    }
    for (int round = 0; round <= ROUNDS && st == EXO_OK; round++) {
        for (int step = 0; round > 0 && step < (sync ? STEPS : 1) && st == EXO_OK; step++)
            st = all(runtime, workers, sync ? "gradient" : "train", sync ? &parameters : NULL, err);
        if (st == EXO_OK)
            st = ask(runtime, parameters, "pull", NULL, 0, soon, &now, sizeof now, err);
        if (st == EXO_OK)
            printf("updates %4" PRIu64 "  loss %.6f\n", now.updates,
                   loss(now.w, WORKERS, 0, NULL)); /* on data that no worker has */
    }
    return st;
}

int
main(int argc, char **argv)
{
    bool sync = argc > 1 && strcmp(argv[1], "--sync") == 0;
    const char *head =
        argc > 2 && strcmp(argv[argc - 2], "--head") == 0 ? argv[argc - 1] : getenv("EXOGYM_HEAD");
    exo_time soon = exo_deadline(exo_clock_real(), 10 * EXO_SECOND);
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL; /* stays NULL without --head: all actors live in this process */
    exo_err err = {0};
    exo_status st = exo_runtime_open(&runtime, NULL, &err);
    if (st == EXO_OK && head)
        st = exo_cluster_join(&cluster, runtime,
                              &(exo_cluster_opts){.role = EXO_ROLE_DRIVER, .head = head}, soon,
                              &err);
    if (st == EXO_OK)
        st = run(runtime, sync, &err);
    if (st != EXO_OK) {
        fprintf(stderr, "parameter_server: %s\n", err.text);
        return EXIT_FAILURE;
    }
    exo_cluster_leave(cluster);
    st = exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), 10 * EXO_SECOND), &err);
    exo_cluster_free(&cluster);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
