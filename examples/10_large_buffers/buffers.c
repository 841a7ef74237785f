/* Large buffers between actors: 64 MiB that one actor makes and two others read.
 *
 * A payload is moved, not copied, inside a process: what a method puts into its reply is what the caller gets, at the same address. To
 * hand it on to others without a copy, each of them gets a payload whose owner is the future that has the reply. To another process
 * payloads are sent; there the addresses differ.
 *
 * Built twice, as the program and as the plugin with its class (CMakeLists.txt).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/cluster.h>
#include <exogym/exogym.h>

enum {
    COUNT = 64 * 1024 * 1024 / sizeof(uint64_t)
};

/* --- The actor -------------------------------------------------------------------------------------------------------------------- */

static exo_status
produce(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call, (void)self, (void)args;
    uint64_t *numbers = exo_calloc(COUNT, sizeof *numbers);
    if (!numbers)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu bytes", COUNT * sizeof *numbers);
    for (uint64_t i = 0; i < COUNT; i++)
        numbers[i] = i;
    *reply = (exo_payload){.data = numbers, .size = COUNT * sizeof *numbers, .release = exo_free}; /* handed over */
    return EXO_OK;
}

struct summary {
    uint64_t sum;
    uintptr_t address;
};

static exo_status
add_up(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call, (void)self, (void)err;
    const uint64_t *numbers = args->data;
    struct summary s = {.address = (uintptr_t)args->data};
    for (size_t i = 0; i < args->size / sizeof *numbers; i++)
        s.sum += numbers[i];
    return exo_payload_copy(reply, &s, sizeof s);
}

static const exo_lane_class lanes[] = {{.name = "work", .blocking = true}};
static const exo_method methods[] = {{.name = "produce", .run = produce}, {.name = "add_up", .run = add_up}};
static const exo_actor_class buffers = {
    .name = "example.buffers", .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 2};

EXO_PLUGIN
{
    return exo_actor_class_register(&buffers, err);
}

/* --- The driver ------------------------------------------------------------------------------------------------------------------- */

static exo_time
in(exo_time time)
{
    return exo_deadline(exo_clock_real(), time);
}

static void
drop_future(void *owner)
{
    exo_future *future = owner;
    exo_future_drop(&future);
}

/* The reply that `future` keeps, as arguments for others: the last one to be done with it frees it. */
static exo_payload
share(exo_future *future, const exo_payload *reply)
{
    return (exo_payload){
        .data = reply->data, .size = reply->size, .release = drop_future, .owner = exo_future_hold(future)};
}

static exo_status
run(exo_runtime *runtime, exo_err *err)
{
    static const char *const plugins[] = {PLUGIN};
    const exo_spawn_opts opts = {.plugins = plugins, .num_plugins = 1, .placement = EXO_PLACE_SPREAD};
    exo_ref actors[3];
    exo_future *made = NULL, *sums[2] = {NULL, NULL};
    const exo_payload *buffer = NULL, *reply;
    struct summary s;
    exo_status st = EXO_OK;
    for (size_t i = 0; i < 3 && st == EXO_OK; i++)
        st = exo_spawn_class(runtime, "example.buffers", &opts, in(20 * EXO_SECOND), &actors[i], err);
    if (st == EXO_OK)
        st = exo_call(runtime, actors[0], "produce", (exo_payload){0}, in(60 * EXO_SECOND), &made, err);
    if (st == EXO_OK)
        st = exo_wait(made, in(60 * EXO_SECOND), &buffer, err);
    if (st == EXO_OK)
        printf("%zu MiB were made\n", buffer->size >> 20);
    for (size_t i = 0; i < 2 && st == EXO_OK; i++)
        st = exo_call(runtime, actors[1 + i], "add_up", share(made, buffer), in(60 * EXO_SECOND), &sums[i], err);
    for (size_t i = 0; i < 2 && st == EXO_OK; i++) {
        st = exo_wait(sums[i], in(60 * EXO_SECOND), &reply, err);
        if (st != EXO_OK)
            break;
        memcpy(&s, reply->data, sizeof s);
        printf("reader %zu: sum %" PRIu64 ", %s\n", i, s.sum,
               s.address == (uintptr_t)buffer->data ? "the same memory" : "a copy, in another process");
    }
    for (size_t i = 0; i < 2; i++)
        exo_future_drop(&sums[i]);
    exo_future_drop(&made);
    return st;
}

int
main(int argc, char **argv)
{
    const char *head = argc == 3 && strcmp(argv[1], "--head") == 0 ? argv[2] : getenv("EXOGYM_HEAD");
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL; /* none: all of it is in this process */
    exo_err err = {0};
    exo_status st = exo_runtime_open(&runtime, NULL, &err);
    if (st == EXO_OK && head)
        st = exo_cluster_join(&cluster, runtime, &(exo_cluster_opts){.role = EXO_ROLE_DRIVER, .head = head},
                              in(10 * EXO_SECOND), &err);
    if (st == EXO_OK)
        st = run(runtime, &err);
    if (st != EXO_OK) {
        fprintf(stderr, "buffers: %s\n", err.text);
        return EXIT_FAILURE;
    }
    exo_cluster_leave(cluster);
    st = exo_runtime_close(&runtime, in(10 * EXO_SECOND), &err);
    exo_cluster_free(&cluster);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
