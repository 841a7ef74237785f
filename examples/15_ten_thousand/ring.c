/* Ten thousand named actors in a ring. The program prints the time that it takes to start them, to
 * send one message round through all of them, to call each of them, and to stop them. An idle actor
 * costs memory only: the light lanes of all actors share one pool of threads.
 *
 * CMakeLists.txt builds this file twice: as the program, and as a plugin, from which the workers of
 * a cluster load the actors' class.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

/* --- The actor -------------------------------------------------------------------------------- */

struct place {
    uint32_t index, count;
};

struct link {
    struct place place;
    uint64_t passed;
};

static exo_status
start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    (void)call;
    struct link *l = self;
    if (args->size != sizeof l->place)
        return exo_fail(err, EXO_INVAL, "a link is told its place");
    memcpy(&l->place, args->data, sizeof l->place);
    return EXO_OK;
}

/* Passes the token, a number of hops, to the next actor. The last actor stops the driver's actor
 * `finish` instead. Nothing here waits for a reply. */
static exo_status
pass(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)reply;
    struct link *l = self;
    exo_runtime *runtime = exo_call_runtime(call);
    uint64_t hops;
    char name[32];
    exo_ref next;
    exo_payload token;
    memcpy(&hops, args->data, sizeof hops);
    hops++;
    l->passed = hops;
    bool last = l->place.index + 1 == l->place.count;
    snprintf(name, sizeof name, "link-%u", l->place.index + 1);
    exo_status st = exo_get_actor(runtime, "ring", last ? "finish" : name, &next, err);
    if (st != EXO_OK || last) /* every actor has the method `stop`, which ends it */
        return st != EXO_OK ? st
                            : exo_send(runtime, next, "stop", (exo_payload){0},
                                       exo_call_deadline(call), err);
    st = exo_payload_copy(&token, &hops, sizeof hops);
    return st == EXO_OK ? exo_send(runtime, next, "pass", token, exo_call_deadline(call), err) : st;
}

static exo_status
passed(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    (void)call, (void)args, (void)err;
    const struct link *l = self;
    return exo_payload_copy(reply, &l->passed, sizeof l->passed);
}

static const exo_method methods[] = {{.name = "pass", .run = pass},
                                     {.name = "passed", .run = passed}};
static const exo_actor_class link_class = {.name = "example.link",
                                           .state_size = sizeof(struct link),
                                           .start = start,
                                           .methods = methods,
                                           .num_methods = 2};
static const exo_actor_class finish_class = {.name = "example.finish"}; /* can only stop */

EXO_PLUGIN
{
    return exo_actor_class_register(&link_class, err);
}

/* --- The driver ------------------------------------------------------------------------------- */

enum {
    MOST = 100000
};

static exo_ref links[MOST];
static exo_future *futures[MOST];

static exo_status
make_all(exo_runtime *runtime, uint32_t count, exo_time deadline, exo_err *err)
{
    static const char *const plugins[] = {PLUGIN};
    char name[32];
    exo_spawn_opts opts = {
        .name = name, .namespace_name = "ring", .plugins = plugins, .num_plugins = 1};
    exo_status st = EXO_OK;
    opts.placement = EXO_PLACE_SPREAD; /* neighbours are on different workers */
    for (uint32_t i = 0; i < count && st == EXO_OK; i++) {
        snprintf(name, sizeof name, "link-%u", i);
        st = exo_payload_copy(&opts.args, &(struct place){.index = i, .count = count},
                              sizeof(struct place));
        if (st == EXO_OK)
            st = exo_spawn_class(runtime, "example.link", &opts, deadline, &links[i], err);
    }
    return st;
}

static exo_status
go_round(exo_runtime *runtime, uint32_t count, exo_time deadline, exo_err *err)
{
    static const uint64_t none = 0;
    (void)count;
    exo_ref finish;
    exo_future *over = NULL; /* a monitor: completes when `finish` ends */
    exo_status st =
        exo_spawn(runtime, &finish_class,
                  &(exo_spawn_opts){.name = "finish", .namespace_name = "ring"}, &finish, err);
    if (st == EXO_OK)
        st = exo_monitor(runtime, finish, &over, err);
    if (st == EXO_OK)
        st = exo_send(runtime, links[0], "pass", exo_payload_borrow(&none, sizeof none), deadline,
                      err);
    if (st == EXO_OK)
        st = exo_wait(over, deadline, NULL, err);
    exo_future_drop(&over);
    return st;
}

static exo_status
call_all(exo_runtime *runtime, uint32_t count, exo_time deadline, exo_err *err)
{
    const exo_payload *reply;
    uint64_t hops, sum = 0;
    exo_status st = EXO_OK;
    for (uint32_t i = 0; i < count && st == EXO_OK; i++)
        st = exo_call(runtime, links[i], "passed", (exo_payload){0}, deadline, &futures[i], err);
    for (uint32_t i = 0; i < count && st == EXO_OK; i++) {
        st = exo_wait(futures[i], deadline, &reply, err);
        if (st != EXO_OK)
            break;
        memcpy(&hops, reply->data, sizeof hops);
        sum += hops;
    }
    for (uint32_t i = 0; i < count; i++)
        exo_future_drop(&futures[i]);
    if (st == EXO_OK && sum != (uint64_t)count * (count + 1) / 2)
        st = exo_fail(err, EXO_FAILED, "some did not pass the token on");
    return st;
}

static exo_status
stop_all(exo_runtime *runtime, uint32_t count, exo_time deadline, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; i < count && st == EXO_OK; i++) {
        st = exo_monitor(runtime, links[i], &futures[i], err);
        if (st == EXO_OK)
            st = exo_stop(runtime, links[i], true, err);
    }
    if (st == EXO_OK)
        st = exo_wait_all(futures, count, deadline, err);
    for (uint32_t i = 0; i < count; i++)
        exo_future_drop(&futures[i]);
    return st;
}

static exo_status
run(exo_runtime *runtime, uint32_t count, exo_err *err)
{
    static const struct {
        const char *what;
        exo_status (*run)(exo_runtime *runtime, uint32_t count, exo_time deadline, exo_err *err);
    } parts[] = {{"start", make_all},
                 {"message round", go_round},
                 {"call to each", call_all},
                 {"stop", stop_all}};
    exo_status st = EXO_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && st == EXO_OK; i++) {
        exo_time began = exo_now(exo_clock_real());
        st = parts[i].run(runtime, count, exo_deadline(exo_clock_real(), 300 * EXO_SECOND), err);
        exo_time took = exo_now(exo_clock_real()) - began;
        if (st == EXO_OK)
            printf("%-14s %6u actors %10.1f ms %8.2f us each\n", parts[i].what, count,
                   (double)took / (double)EXO_MS, (double)took / (double)EXO_US / count);
    }
    return st;
}

int
main(int argc, char **argv)
{
    const char *head =
        argc > 2 && strcmp(argv[argc - 2], "--head") == 0 ? argv[argc - 1] : getenv("EXOGYM_HEAD");
    uint64_t wanted = argc > 1 && argv[1][0] != '-' ? strtoull(argv[1], NULL, 10) : 10000;
    uint32_t count = wanted < 1 ? 1 : wanted > MOST ? MOST : (uint32_t)wanted;
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL; /* stays NULL without --head: all actors live in this process */
    exo_err err = {0};
    exo_status st = exo_runtime_open(&runtime, NULL, &err);
    if (st == EXO_OK && head)
        st = exo_cluster_join(&cluster, runtime,
                              &(exo_cluster_opts){.role = EXO_ROLE_DRIVER, .head = head},
                              exo_deadline(exo_clock_real(), 10 * EXO_SECOND), &err);
    if (st == EXO_OK)
        st = run(runtime, count, &err);
    if (st != EXO_OK) {
        fprintf(stderr, "ring: %s\n", err.text);
        return EXIT_FAILURE;
    }
    exo_cluster_leave(cluster);
    st = exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), 10 * EXO_SECOND), &err);
    exo_cluster_free(&cluster);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
