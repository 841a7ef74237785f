/* Shared objects: one actor makes 64 MiB, and two others read them. Readers on the maker's host map
 * the maker's memory, in the same process or in others. Another host fetches the object once.
 *
 * The maker fills the object and seals it. Messages carry only the object's name, a few numbers. A
 * reader that has the object keeps it, even after the maker's end.
 *
 * CMakeLists.txt builds this file twice: as the program, and as a plugin, from which the workers of
 * a cluster load the actor's class.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

enum {
    COUNT = 64 * 1024 * 1024 / sizeof(uint64_t)
};

/* --- The actor -------------------------------------------------------------------------------- */

struct holder {
    exo_object *object;
};

/* Makes an object, and keeps it: others can get it only while its maker holds it. */
static exo_status
produce(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
        exo_err *err)
{
    (void)args;
    struct holder *h = self;
    exo_object_id name;
    exo_object_drop(&h->object);
    exo_status st = exo_object_new(&h->object, COUNT * sizeof(uint64_t), err);
    if (st != EXO_OK)
        return st;
    uint64_t *numbers = exo_object_data(h->object);
    for (uint64_t i = 0; i < COUNT; i++)
        numbers[i] = i;
    exo_object_seal(h->object); /* nobody writes after this */
    st = exo_object_name(exo_call_runtime(call), h->object, &name, err);
    return st == EXO_OK ? exo_payload_copy(reply, &name, sizeof name) : st;
}

/* Gets the object whose name is the argument, and keeps it. */
static exo_status
keep(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)reply;
    struct holder *h = self;
    exo_object_id name;
    if (args->size != sizeof name)
        return exo_fail(err, EXO_INVAL, "keep: %zu bytes are no object's name", args->size);
    memcpy(&name, args->data, sizeof name);
    exo_object_drop(&h->object);
    return exo_object_get(exo_call_runtime(call), &name, exo_call_deadline(call), &h->object, err);
}

static exo_status
add_up(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    (void)call, (void)args;
    const struct holder *h = self;
    if (!h->object)
        return exo_fail(err, EXO_NOT_FOUND, "there is nothing to add up");
    const uint64_t *numbers = exo_object_data(h->object);
    uint64_t sum = 0;
    for (size_t i = 0; i < exo_object_size(h->object) / sizeof *numbers; i++)
        sum += numbers[i];
    return exo_payload_copy(reply, &sum, sizeof sum);
}

static void
stop(void *self)
{
    struct holder *h = self;
    exo_object_drop(&h->object);
}

static const exo_lane_class lanes[] = {{.name = "work", .blocking = true}};
static const exo_method methods[] = {{.name = "produce", .run = produce},
                                     {.name = "keep", .run = keep},
                                     {.name = "add_up", .run = add_up}};
static const exo_actor_class holder = {.name = "example.holder",
                                       .state_size = sizeof(struct holder),
                                       .stop = stop,
                                       .lanes = lanes,
                                       .num_lanes = 1,
                                       .methods = methods,
                                       .num_methods = 3};

EXO_PLUGIN
{
    return exo_actor_class_register(&holder, err);
}

/* --- The driver ------------------------------------------------------------------------------- */

static exo_time
in(exo_time time)
{
    return exo_deadline(exo_clock_real(), time);
}

static exo_status
run(exo_runtime *runtime, exo_err *err)
{
    static const char *const plugins[] = {PLUGIN};
    const exo_spawn_opts opts = {
        .plugins = plugins, .num_plugins = 1, .placement = EXO_PLACE_SPREAD};
    exo_ref actors[3]; /* the maker, and two readers */
    exo_future *made = NULL, *calls[2] = {NULL, NULL};
    const exo_payload *reply;
    exo_status st = EXO_OK;
    for (size_t i = 0; i < 3 && st == EXO_OK; i++)
        st =
            exo_spawn_class(runtime, "example.holder", &opts, in(20 * EXO_SECOND), &actors[i], err);
    if (st == EXO_OK)
        st = exo_call(runtime, actors[0], "produce", (exo_payload){0}, in(60 * EXO_SECOND), &made,
                      err);
    if (st == EXO_OK)
        st = exo_wait(made, in(60 * EXO_SECOND), &reply, err);
    for (size_t i = 0; i < 2 && st == EXO_OK; i++) {
        exo_payload name;
        st = exo_payload_copy(&name, reply->data, reply->size);
        if (st == EXO_OK)
            st =
                exo_call(runtime, actors[1 + i], "keep", name, in(60 * EXO_SECOND), &calls[i], err);
    }
    if (st == EXO_OK)
        st = exo_wait_all(calls, 2, in(60 * EXO_SECOND), err);
    for (size_t i = 0; i < 2; i++)
        exo_future_drop(&calls[i]);
    exo_future_drop(&made);

    /* The maker ends. The readers hold the object, and can still read it. */
    if (st == EXO_OK)
        st = exo_kill(runtime, actors[0], "no longer needed", err);
    for (size_t i = 0; i < 2 && st == EXO_OK; i++)
        st = exo_call(runtime, actors[1 + i], "add_up", (exo_payload){0}, in(60 * EXO_SECOND),
                      &calls[i], err);
    for (size_t i = 0; i < 2 && st == EXO_OK; i++) {
        st = exo_wait(calls[i], in(60 * EXO_SECOND), &reply, err);
        if (st == EXO_OK)
            printf("reader %zu: the sum of %zu MiB is %" PRIu64 "\n", i,
                   COUNT * sizeof(uint64_t) >> 20, *(const uint64_t *)reply->data);
    }
    for (size_t i = 0; i < 2; i++)
        exo_future_drop(&calls[i]);
    return st;
}

int
main(int argc, char **argv)
{
    const char *head =
        argc == 3 && strcmp(argv[1], "--head") == 0 ? argv[2] : getenv("EXOGYM_HEAD");
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL; /* stays NULL without --head: all actors live in this process */
    exo_err err = {0};
    exo_status st = exo_runtime_open(&runtime, NULL, &err);
    if (st == EXO_OK && head)
        st = exo_cluster_join(&cluster, runtime,
                              &(exo_cluster_opts){.role = EXO_ROLE_DRIVER, .head = head},
                              in(10 * EXO_SECOND), &err);
    if (st == EXO_OK)
        st = run(runtime, &err);
    if (st != EXO_OK) {
        fprintf(stderr, "objects: %s\n", err.text);
        return EXIT_FAILURE;
    }
    exo_cluster_leave(cluster);
    st = exo_runtime_close(&runtime, in(10 * EXO_SECOND), &err);
    exo_cluster_free(&cluster);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
