/* A cluster under the thread sanitizer: head, two workers and a driver are runtimes of this
 * process, so that the sanitizer sees all of their threads. Threads of the driver call, wait,
 * cancel, pass objects, and make and kill actors, all over the same two connections. Every future
 * is completed once, and every sum is right.
 *
 * ZeroMQ is built with the thread sanitizer too: the sanitizer sees its threads and the order that
 * they establish. Each thread owns its `struct caller`. Read next: docs/concurrency.md. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/cluster.h>
#include <exogym/memory.h>
#include <exogym/object.h>

#include "support/check.h"
#include "support/temp.h"

enum {
    CALLS = 5000,
    WINDOW = 40,
    ROUNDS = 200,
    OBJECTS = 200
};

/* --- Actors ----------------------------------------------------------------------------------- */

static exo_status
add(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    uint64_t *sum = self, value;
    (void)call;
    if (args->size < sizeof value)
        return exo_fail(err, EXO_INVAL, "expected a number");
    memcpy(&value, args->data, sizeof value);
    *sum += value;
    return exo_payload_copy(reply, sum, sizeof *sum);
}

static exo_status
first_word(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *err)
{
    (void)call;
    (void)self;
    if (args->size < sizeof(uint64_t))
        return exo_fail(err, EXO_INVAL, "expected bytes");
    return exo_payload_copy(reply, args->data, sizeof(uint64_t));
}

/* Runs until a cancel. */
static exo_status
linger(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    (void)self;
    (void)args;
    (void)reply;
    while (!exo_call_cancelled(call))
        usleep(1000);
    return exo_fail(err, EXO_CANCELLED, "cancelled");
}

static const exo_lane_class lanes[] = {{.name = "main", .capacity = 4096},
                                       {.name = "own", .capacity = 64, .blocking = true}};
static const exo_method methods[] = {{.name = "add", .run = add},
                                     {.name = "first_word", .run = first_word},
                                     {.name = "linger", .lane = 1, .run = linger}};
static const exo_actor_class adder_class = {.name = "adder",
                                            .state_size = sizeof(uint64_t),
                                            .lanes = lanes,
                                            .num_lanes = 2,
                                            .methods = methods,
                                            .num_methods = 3};

/* --- The cluster ------------------------------------------------------------------------------ */

struct node {
    exo_runtime *runtime;
    exo_cluster *cluster;
};

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

static void
must(exo_status st, const exo_err *err)
{
    if (st != EXO_OK)
        fprintf(stderr, "%s\n", err->text);
    CHECK(st == EXO_OK);
}

static struct node
join(exo_cluster_role role, const char *name, const char *folder, const char *head)
{
    struct node node = {0};
    exo_err err = {0};
    const exo_cluster_opts opts = {
        .role = role, .name = name, .folder = folder, .head = head, .state = "none"};
    must(exo_runtime_open(&node.runtime, &(exo_runtime_opts){.threads = 2}, &err), &err);
    must(exo_cluster_join(&node.cluster, node.runtime, &opts, soon(), &err), &err);
    return node;
}

static void
leave(struct node *node)
{
    exo_err err = {0};
    exo_cluster_leave(node->cluster);
    must(exo_runtime_close(&node->runtime, soon(), &err), &err);
    exo_cluster_free(&node->cluster);
}

static exo_ref
spawn(exo_runtime *runtime, const char *node)
{
    exo_ref ref;
    exo_err err = {0};
    const exo_spawn_opts opts = {.placement = EXO_PLACE_STRICT, .node = node};
    must(exo_spawn_class(runtime, "adder", &opts, soon(), &ref, &err), &err);
    return ref;
}

/* --- The driver's threads --------------------------------------------------------------------- */

struct caller {
    exo_runtime *runtime;
    exo_ref ref;
    const char *node;
};

/* Keeps many calls in flight: the last sum counts all of them. */
static void *
pipeline(void *argument)
{
    const struct caller *c = argument;
    exo_future *futures[WINDOW] = {0};
    exo_err err = {0};
    static const uint64_t ones[10000] = {1};
    uint64_t last = 0, one = 1;
    for (size_t i = 0; i < CALLS + WINDOW; i++) {
        exo_future **f = &futures[i % WINDOW];
        if (*f) {
            const exo_payload *reply = NULL;
            must(exo_wait(*f, soon(), &reply, &err), &err);
            CHECK(reply->size == sizeof last);
            memcpy(&last, reply->data, sizeof last);
            exo_future_drop(f);
        }
        const void *data = i % 50 == 0 ? ones : &one; /* a large argument takes another way */
        size_t size = i % 50 == 0 ? sizeof ones : sizeof one;
        if (i < CALLS)
            must(exo_call(c->runtime, c->ref, "add", exo_payload_borrow(data, size), soon(), f,
                          &err),
                 &err);
    }
    CHECK(last == CALLS);
    return NULL;
}

/* Makes one call after another, each with an object that is dropped at once. */
static void *
pass_objects(void *argument)
{
    const struct caller *c = argument;
    exo_err err = {0};
    for (uint64_t i = 0; i < OBJECTS; i++) {
        exo_object *object = NULL;
        exo_payload reply = {0};
        must(exo_object_new(&object, 1u << 20, &err), &err);
        memcpy(exo_object_data(object), &i, sizeof i);
        exo_object_seal(object);
        exo_payload args = exo_object_payload(object);
        exo_object_drop(&object);
        must(exo_call_wait(c->runtime, c->ref, "first_word", args, soon(), &reply, &err), &err);
        CHECK(reply.size == sizeof i && memcmp(reply.data, &i, sizeof i) == 0);
        exo_payload_release(&reply);
    }
    return NULL;
}

/* Makes actors that live for two calls, and kills each with a call in flight. */
static void *
make_and_kill(void *argument)
{
    const struct caller *c = argument;
    exo_err err = {0};
    uint64_t one = 1;
    for (size_t i = 0; i < ROUNDS; i++) {
        exo_future *monitor = NULL, *lasts = NULL;
        exo_ref ref = spawn(c->runtime, c->node);
        must(exo_monitor(c->runtime, ref, &monitor, &err), &err);
        must(exo_call_wait(c->runtime, ref, "add", exo_payload_borrow(&one, sizeof one), soon(),
                           NULL, &err),
             &err);
        must(exo_call(c->runtime, ref, "linger", (exo_payload){0}, soon(), &lasts, &err), &err);
        must(exo_kill(c->runtime, ref, "as planned", &err), &err);
        CHECK(exo_wait(monitor, soon(), NULL, &err) == EXO_PEER_LOST);
        exo_status st = exo_wait(lasts, soon(), NULL, &err);
        CHECK(st == EXO_PEER_LOST || st == EXO_CANCELLED);
        exo_future_drop(&monitor);
        exo_future_drop(&lasts);
    }
    return NULL;
}

/* Makes calls that end by a cancel or by their deadline. */
static void *
give_up(void *argument)
{
    const struct caller *c = argument;
    exo_err err = {0};
    for (size_t i = 0; i < ROUNDS; i++) {
        exo_future *future = NULL;
        exo_time deadline = i % 2 ? soon() : exo_deadline(exo_clock_real(), 3 * EXO_MS);
        must(exo_call(c->runtime, c->ref, "linger", (exo_payload){0}, deadline, &future, &err),
             &err);
        if (i % 2)
            exo_cancel(future);
        exo_status st = exo_wait(future, soon(), NULL, &err);
        /* FULL: a call that was given up leaves the lane only in its turn, and the lane fills up if
         * its thread gets no core for a while. */
        CHECK(st == EXO_CANCELLED || st == EXO_FULL || (i % 2 == 0 && st == EXO_TIMEOUT));
        exo_future_drop(&future);
    }
    return NULL;
}

/* Lists the contents of the cluster, again and again, while the other threads work. */
static void *
look(void *argument)
{
    const struct node *driver = argument;
    exo_err err = {0};
    for (size_t i = 0; i < ROUNDS; i++) {
        char *json = NULL;
        must(exo_cluster_list(driver->cluster, soon(), &json, &err), &err);
        CHECK(json && strstr(json, "\"nodes\""));
        exo_free(json);
    }
    return NULL;
}

int
main(void)
{
    exo_err err = {0};
    char folder[64];
    temp_folder(folder, sizeof folder);
    must(exo_actor_class_register(&adder_class, &err), &err);
    struct node head = join(EXO_ROLE_HEAD, "head", folder, NULL);
    const char *address = exo_cluster_address(head.cluster);
    struct node one = join(EXO_ROLE_WORKER, "one", folder, address),
                two = join(EXO_ROLE_WORKER, "two", folder, address),
                driver = join(EXO_ROLE_DRIVER, "driver", folder, address);

    exo_runtime *r = driver.runtime;
    struct caller callers[] = {{r, spawn(r, "one"), "one"},
                               {r, spawn(r, "two"), "two"},
                               {r, spawn(r, "one"), "one"},
                               {r, spawn(r, "two"), "two"},
                               {r, spawn(r, "one"), "two"}};
    void *(*const what[])(void *) = {pipeline, pipeline, pass_objects, give_up, make_and_kill};
    pthread_t threads[6];
    for (size_t i = 0; i < 5; i++)
        CHECK(pthread_create(&threads[i], NULL, what[i], &callers[i]) == 0);
    CHECK(pthread_create(&threads[5], NULL, look, &driver) == 0);
    for (size_t i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);

    leave(&driver);
    leave(&two);
    leave(&one);
    leave(&head);
    temp_remove(folder);
    return 0;
}
