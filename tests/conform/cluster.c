/* One table of tests over every way in which two processes can be connected: head, worker and
 * driver, here three runtimes of one process, over ipc, over tcp, and over tcp with CURVE. The
 * tests also run in one process without a cluster, where the same must hold.
 *
 * Each test owns its `struct rig`. An actor's state belongs to its lane. Read next:
 * include/exogym/cluster.h and actor.h, whose contracts these tests check. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/cluster.h>
#include <exogym/memory.h>
#include <exogym/object.h>

#include "net/auth.h"
#include "support/check.h"
#include "support/temp.h"

/* --- An actor --------------------------------------------------------------------------------- */

struct counter {
    uint64_t count;
    exo_future *waiting; /* the deferred reply of the first call of `meet` */
    _Atomic uint64_t lingering;
};

/* The first call defers its reply; the second call sends it. */
static exo_status
meet(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct counter *c = self;
    (void)args;
    (void)reply;
    if (!c->waiting)
        return (c->waiting = exo_call_defer(call)) ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory");
    exo_reply(&c->waiting, EXO_OK, NULL, NULL);
    return EXO_OK;
}

static void
stop(void *self)
{
    exo_future_drop(&((struct counter *)self)->waiting);
}

/* Calls the actor whose identity is in the arguments, from this actor's own thread. */
static exo_status
pass_on(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
        exo_err *err)
{
    exo_actor_id id;
    exo_ref ref;
    (void)self;
    exo_time deadline = exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
    memcpy(&id, args->data, sizeof id);
    exo_status st = exo_ref_import(exo_call_runtime(call), &id, deadline, &ref, err);
    return st == EXO_OK ? exo_call_wait(exo_call_runtime(call), ref, "add", (exo_payload){0},
                                        deadline, reply, err)
                        : st;
}

static exo_status
add(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct counter *c = self;
    (void)call;
    (void)err;
    c->count += args->size == sizeof(uint64_t) ? *(const uint64_t *)args->data : 1;
    return exo_payload_copy(reply, &c->count, sizeof c->count);
}

static exo_status
echo(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)err;
    return exo_payload_copy(reply, args->data, args->size);
}

static exo_status
fail(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    return exo_fail(err, EXO_UNSUPPORTED, "this method fails");
}

static exo_status
die(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    exo_call_die(call, "it was told to die");
    return EXO_OK;
}

/* Replies with the name of an object of 5 MB, and holds the object. */
static exo_status
share(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    static exo_object *object;
    exo_object_id id;
    (void)self;
    (void)args;
    exo_status st = object ? EXO_OK : exo_object_new(&object, 5000000, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < 5000000; i++)
        ((unsigned char *)exo_object_data(object))[i] = (unsigned char)(i * 7);
    exo_object_seal(object);
    st = exo_object_name(exo_call_runtime(call), object, &id, err);
    return st == EXO_OK ? exo_payload_copy(reply, &id, sizeof id) : st;
}

/* Every other call kills the actor, beginning with the first one in the process; the calls between
 * them are answered. */
static exo_status
frail(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    static _Atomic int asked;
    (void)self;
    (void)args;
    (void)err;
    if (asked++ % 2 == 0) {
        exo_call_die(call, "the first time");
        return EXO_OK;
    }
    return exo_payload_copy(reply, "alive", 6);
}

/* Runs until it is cancelled. */
static exo_status
linger(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    struct counter *c = self;
    (void)args;
    (void)reply;
    c->lingering++;
    while (!exo_call_cancelled(call))
        usleep(1000);
    c->lingering--;
    return exo_fail(err, EXO_CANCELLED, "told to stop");
}

static exo_status
lingering(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *err)
{
    const struct counter *c = self;
    uint64_t count = c->lingering;
    (void)call;
    (void)args;
    (void)err;
    return exo_payload_copy(reply, &count, sizeof count);
}

static const exo_lane_class lanes[] = {{.name = "main"}, {.name = "slow", .blocking = true}};
static const exo_method methods[] = {{.name = "add", .run = add},
                                     {.name = "echo", .run = echo},
                                     {.name = "fail", .run = fail},
                                     {.name = "die", .run = die},
                                     {.name = "share", .run = share},
                                     {.name = "meet", .run = meet},
                                     {.name = "pass_on", .lane = 1, .run = pass_on},
                                     {.name = "frail", .run = frail, .idempotent = true},
                                     {.name = "frail_once", .run = frail},
                                     {.name = "linger", .lane = 1, .run = linger},
                                     {.name = "lingering", .run = lingering}};
static const exo_actor_class counter_class = {.name = "counter",
                                              .state_size = sizeof(struct counter),
                                              .stop = stop,
                                              .lanes = lanes,
                                              .num_lanes = 2,
                                              .methods = methods,
                                              .num_methods = sizeof methods / sizeof methods[0]};

/* Makes a counter when it starts, with the name in its arguments. */
static exo_status
parent_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    exo_ref child;
    (void)self;
    return exo_spawn(exo_call_runtime(call), &counter_class, &(exo_spawn_opts){.name = args->data},
                     &child, err);
}

static const exo_actor_class parent_class = {.name = "parent", .start = parent_start};

/* --- The table -------------------------------------------------------------------------------- */

enum transport {
    LOCAL,
    IPC,
    TCP,
    CURVE,
    TRANSPORTS
};

static const char *const names[] = {"local", "ipc", "tcp", "tcp with CURVE"};

struct rig {
    enum transport transport;
    char folder[64];
    exo_runtime *head_runtime, *worker_runtime, *runtime; /* the driver's */
    exo_cluster *head, *worker, *driver;
};

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

static exo_access
role_of(const char *name)
{
    return strcmp(name, "worker") == 0   ? EXO_ACCESS_WORKER
           : strcmp(name, "driver") == 0 ? EXO_ACCESS_DRIVER
                                         : EXO_ACCESS_ADMIN;
}

static void
make_keys(struct rig *r, const char *name)
{
    char path[128];
    exo_keys keys;
    exo_err err = {0};
    cr_assert_eq(exo_keys_generate(&keys, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_keys_save(&keys, &(exo_grant){.role = role_of(name)}, r->folder, name, &err),
                 EXO_OK, "%s", err.text);
    snprintf(path, sizeof path, "cp %s/%s.key %s/authorized/", r->folder, name, r->folder);
    cr_assert_eq(system(path), 0);
}

static void
join(struct rig *r, exo_cluster_role role, const char *name, exo_runtime **runtime,
     exo_cluster **cluster)
{
    static const char *const any[] = {"tcp://127.0.0.1:0"};
    exo_err err = {0};
    char secret[128], head_key[128];
    const char *at = r->head ? exo_cluster_address(r->head) : NULL;
    exo_cluster_opts opts = {.role = role,
                             .name = name,
                             .cluster = "test",
                             .folder = r->folder,
                             .state = "none",
                             .job = "job"};
    snprintf(secret, sizeof secret, "%s/%s.secret", r->folder, name);
    snprintf(head_key, sizeof head_key, "%s/head.key", r->folder);
    opts.head = at;
    if (r->transport >= TCP) {
        opts.listen = any;
        opts.num_listen = 1;
        opts.no_ipc = true;
    }
    opts.insecure = r->transport == TCP;
    if (r->transport == CURVE) {
        opts.keys = secret;
        opts.head_key = head_key;
    }
    cr_assert_eq(exo_runtime_open(runtime, NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_cluster_join(cluster, *runtime, &opts, soon(), &err), EXO_OK, "%s: %s", name,
                 err.text);
}

static void
rig_init(struct rig *r, enum transport transport)
{
    char path[128];
    exo_err err = {0};
    *r = (struct rig){.transport = transport};
    temp_folder(r->folder, sizeof r->folder);
    cr_assert_eq(exo_actor_class_register(&counter_class, &err), EXO_OK);
    cr_assert_eq(exo_actor_class_register(&parent_class, &err), EXO_OK);
    if (transport == LOCAL) {
        cr_assert_eq(exo_runtime_open(&r->runtime, NULL, &err), EXO_OK);
        return;
    }
    if (transport == CURVE) {
        snprintf(path, sizeof path, "mkdir -m 700 %s/authorized", r->folder);
        cr_assert_eq(system(path), 0);
        make_keys(r, "head");
        make_keys(r, "worker");
        make_keys(r, "driver");
    }
    join(r, EXO_ROLE_HEAD, "head", &r->head_runtime, &r->head);
    join(r, EXO_ROLE_WORKER, "worker", &r->worker_runtime, &r->worker);
    join(r, EXO_ROLE_DRIVER, "driver", &r->runtime, &r->driver);
}

static void
leave(exo_runtime **runtime, exo_cluster **cluster)
{
    exo_err err = {0};
    exo_cluster_leave(*cluster);
    cr_expect_eq(exo_runtime_close(runtime, soon(), &err), EXO_OK, "%s", err.text);
    exo_cluster_free(cluster);
}

static void
rig_release(struct rig *r)
{
    leave(&r->runtime, &r->driver);
    leave(&r->worker_runtime, &r->worker);
    leave(&r->head_runtime, &r->head);
    temp_remove(r->folder);
}

static exo_ref
spawn(struct rig *r, const char *name)
{
    exo_ref ref = {0};
    exo_err err = {0};
    cr_assert_eq(
        exo_spawn_class(r->runtime, "counter", &(exo_spawn_opts){.name = name}, soon(), &ref, &err),
        EXO_OK, "%s: %s", names[r->transport], err.text);
    cr_expect_eq(err.code, EXO_OK, "%s: an error is left: %s", names[r->transport], err.text);
    return ref;
}

static uint64_t
call_add(struct rig *r, exo_ref ref, uint64_t by)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_payload args = {0};
    exo_err err = {0};
    uint64_t got = 0;
    cr_assert_eq(exo_payload_copy(&args, &by, sizeof by), EXO_OK);
    cr_assert_eq(exo_call(r->runtime, ref, "add", args, soon(), &future, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_wait(future, soon(), &reply, &err), EXO_OK, "%s: %s", names[r->transport],
                 err.text);
    memcpy(&got, reply->data, sizeof got);
    exo_future_drop(&future);
    return got;
}

#define EVERYWHERE(r)                                                                              \
    struct rig r;                                                                                  \
    for (int t = 0; t < TRANSPORTS && (rig_init(&r, (enum transport)t), true); rig_release(&r), t++)

/* --- Tests ------------------------------------------------------------------------------------ */

Test(cluster, a_call_has_its_reply)
{
    EVERYWHERE(r)
    {
        exo_ref ref = spawn(&r, "one");
        cr_expect_eq(call_add(&r, ref, 5), 5);
        cr_expect_eq(call_add(&r, ref, 7), 12, "%s", names[t]);
    }
}

Test(cluster, a_name_is_found_and_is_one_actors)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_ref ref = spawn(&r, "one"), found = {0}, second = {0};
        cr_expect_eq(exo_get_actor(r.runtime, NULL, "one", &found, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(found.id, ref.id, "%s", names[t]);
        cr_expect_eq(exo_spawn_class(r.runtime, "counter", &(exo_spawn_opts){.name = "one"}, soon(),
                                     &second, &err),
                     EXO_EXISTS);
        cr_expect_eq(exo_spawn_class(r.runtime, "counter",
                                     &(exo_spawn_opts){.name = "one", .get_if_exists = true},
                                     soon(), &second, &err),
                     EXO_OK, "%s", err.text);
        cr_expect_eq(second.id, ref.id);
        cr_expect_eq(exo_get_actor(r.runtime, NULL, "two", &found, &err), EXO_NOT_FOUND);
        cr_expect(strstr(err.text, "two"), "%s", err.text);
    }
}

static int
count_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    cr_assert_not_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

Test(cluster, references_to_one_process_share_a_connection)
{
    EVERYWHERE(r)
    {
        spawn(&r, NULL);
        int before = count_files();
        for (int i = 0; i < 100; i++)
            spawn(&r, NULL); /* a new reference is not called */
        cr_expect_lt(count_files(), before + 50, "%s", names[t]);
    }
}

Test(cluster, what_an_actor_makes_when_it_starts_has_its_name_everywhere)
{
    static const char *const parents[] = {"parent", NULL}, *const children[] = {"child",
                                                                                "other child"};
    EVERYWHERE(r)
    {
        for (int i = 0; i < 2; i++) {
            exo_err err = {0};
            exo_ref ref = {0};
            exo_spawn_opts opts = {.name = parents[i]};
            cr_assert_eq(exo_payload_copy(&opts.args, children[i], strlen(children[i]) + 1),
                         EXO_OK);
            cr_assert_eq(exo_spawn_class(r.runtime, "parent", &opts, soon(), &ref, &err), EXO_OK,
                         "%s", err.text);
            cr_assert_eq(exo_get_actor(r.runtime, NULL, children[i], &ref, &err), EXO_OK, "%s: %s",
                         names[t], err.text);
            cr_expect_eq(call_add(&r, ref, 5), 5);
        }
    }
}

Test(cluster, a_dump_comes_from_anywhere)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        char *text = NULL;
        exo_ref ref = spawn(&r, "looked at");
        cr_assert_eq(exo_dump(r.runtime, ref, &text, &err), EXO_OK, "%s: %s", names[t], err.text);
        cr_expect(strstr(text, "looked at") && strstr(text, "lane=slow"), "%s", text);
        exo_free(text);
    }
}

Test(cluster, errors_come_as_they_are)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_future *future = NULL;
        exo_ref ref = spawn(&r, NULL);
        cr_assert_eq(exo_call(r.runtime, ref, "fail", (exo_payload){0}, soon(), &future, &err),
                     EXO_OK);
        cr_expect_eq(exo_wait(future, soon(), NULL, &err), EXO_UNSUPPORTED);
        cr_expect_str_eq(err.text, "this method fails", "%s", names[t]);
        exo_future_drop(&future);
        exo_status st =
            exo_call(r.runtime, ref, "nothing", (exo_payload){0}, soon(), &future, &err);
        if (st == EXO_OK) {
            st = exo_wait(future, soon(), NULL, &err);
            exo_future_drop(&future);
        }
        cr_expect_eq(st, EXO_NOT_FOUND);
        cr_expect_eq(exo_spawn_class(r.runtime, "no_such_class", NULL, soon(), &ref, &err),
                     EXO_NOT_FOUND, "%s", err.text);
    }
}

Test(cluster, payloads_of_every_size_come_whole)
{
    static const size_t sizes[] = {0, 1, 100, 65535, 65536, 65537, 1000000, 20000000};
    EVERYWHERE(r)
    {
        exo_ref ref = spawn(&r, NULL);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            exo_future *future = NULL;
            const exo_payload *reply = NULL;
            exo_payload args = {0};
            exo_err err = {0};
            unsigned char *data = exo_calloc(1, sizes[i] + 1);
            for (size_t k = 0; k < sizes[i]; k++)
                data[k] = (unsigned char)(k * 31 + k / 256);
            cr_assert_eq(exo_payload_copy(&args, data, sizes[i]), EXO_OK);
            cr_assert_eq(exo_call(r.runtime, ref, "echo", args, soon(), &future, &err), EXO_OK,
                         "%s", err.text);
            cr_assert_eq(exo_wait(future, soon(), &reply, &err), EXO_OK, "%s %zu: %s", names[t],
                         sizes[i], err.text);
            cr_assert_eq(reply->size, sizes[i]);
            cr_expect(sizes[i] == 0 || memcmp(reply->data, data, sizes[i]) == 0, "%s %zu", names[t],
                      sizes[i]);
            exo_future_drop(&future);
            exo_free(data);
        }
    }
}

/* Calls of different sizes take different ways to a process. */
Test(cluster, many_calls_keep_their_order)
{
    enum {
        COUNT = 20000,
        WINDOW = 500,
        LONGEST = 100000
    };
    static exo_future *futures[WINDOW];
    static const char bytes[LONGEST];
    EVERYWHERE(r)
    {
        exo_ref ref = spawn(&r, NULL);
        memset(futures, 0, sizeof futures);
        for (uint64_t i = 0; i < COUNT + WINDOW; i++) {
            exo_future **f = &futures[i % WINDOW];
            exo_err err = {0};
            if (*f) {
                const exo_payload *reply = NULL;
                cr_assert_eq(exo_wait(*f, soon(), &reply, &err), EXO_OK, "%s: %s", names[t],
                             err.text);
                cr_assert_eq(*(uint64_t *)reply->data, i - WINDOW + 1, "%s", names[t]);
                exo_future_drop(f);
            }
            size_t size = i % 61 == 0 ? LONGEST : i % 17 == 0 ? 40000 : i % 5;
            if (i < COUNT)
                cr_assert_eq(exo_call(r.runtime, ref, "add", exo_payload_borrow(bytes, size),
                                      soon(), f, &err),
                             EXO_OK, "%s", err.text);
        }
    }
}

Test(cluster, a_call_can_be_cancelled_and_late)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_future *running = NULL, *late = NULL;
        exo_ref ref = spawn(&r, NULL);
        cr_assert_eq(
            exo_call(r.runtime, ref, "linger", (exo_payload){0}, INT64_MAX, &running, &err),
            EXO_OK);
        cr_assert_eq(exo_call(r.runtime, ref, "linger", (exo_payload){0},
                              exo_deadline(exo_clock_real(), 50 * EXO_MS), &late, &err),
                     EXO_OK);
        cr_expect_eq(exo_wait(late, soon(), NULL, &err), EXO_TIMEOUT, "%s", names[t]);
        cr_expect_eq(exo_wait(running, exo_deadline(exo_clock_real(), EXO_MS), NULL, &err),
                     EXO_TIMEOUT);
        exo_cancel(running);
        cr_expect_eq(exo_wait(running, soon(), NULL, &err), EXO_CANCELLED);
        exo_future_drop(&running);
        exo_future_drop(&late);
        cr_expect_eq(call_add(&r, ref, 1), 1);
    }
}

static uint64_t
how_many_linger(const struct rig *r, exo_ref ref)
{
    exo_payload reply = {0};
    exo_err err = {0};
    cr_assert_eq(
        exo_call_wait(r->runtime, ref, "lingering", (exo_payload){0}, soon(), &reply, &err), EXO_OK,
        "%s", err.text);
    uint64_t count = *(const uint64_t *)reply.data;
    exo_payload_release(&reply);
    return count;
}

Test(cluster, lanes_are_as_is_asked_for)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_ref ref;
        exo_future *under_way[3] = {0}, *further = NULL;
        const exo_lane_opts two_and_one = {
            .lane = "slow", .max_concurrency = 2, .max_pending_calls = 1};
        exo_spawn_opts opts = {.lanes = &two_and_one, .num_lanes = 1};
        cr_assert_eq(exo_spawn_class(r.runtime, "counter", &opts, soon(), &ref, &err), EXO_OK,
                     "%s: %s", names[t], err.text);
        for (uint64_t i = 0; i < 2; i++) {
            cr_assert_eq(exo_call(r.runtime, ref, "linger", (exo_payload){0}, INT64_MAX,
                                  &under_way[i], &err),
                         EXO_OK);
            for (exo_time end = soon();
                 how_many_linger(&r, ref) <= i && exo_now(exo_clock_real()) < end;)
                usleep(1000);
            cr_assert_eq(how_many_linger(&r, ref), i + 1, "%s: two are served at a time", names[t]);
        }
        cr_assert_eq(
            exo_call(r.runtime, ref, "linger", (exo_payload){0}, INT64_MAX, &under_way[2], &err),
            EXO_OK);
        exo_status st =
            exo_call(r.runtime, ref, "linger", (exo_payload){0}, INT64_MAX, &further, &err);
        if (st == EXO_OK)
            st = exo_wait(further, soon(), NULL, &err);
        cr_expect_eq(st, EXO_FULL, "%s: one waits, and no more", names[t]);
        exo_future_drop(&further);
        cr_expect_eq(how_many_linger(&r, ref), 2);
        for (int i = 0; i < 3; i++) {
            exo_cancel(under_way[i]);
            cr_expect_eq(exo_wait(under_way[i], soon(), NULL, &err), EXO_CANCELLED);
            exo_future_drop(&under_way[i]);
        }
        cr_expect_eq(call_add(&r, ref, 1), 1, "another lane is as it was");

        const exo_lane_opts unknown = {.lane = "fast", .max_concurrency = 2};
        opts.lanes = &unknown;
        cr_expect_eq(exo_spawn_class(r.runtime, "counter", &opts, soon(), &ref, &err), EXO_INVAL,
                     "%s", names[t]);
        /* a cluster names the worker before it */
        cr_expect(strstr(err.text, "the class 'counter' has no lane 'fast'"), "%s: %s", names[t],
                  err.text);
    }
}

Test(cluster, a_death_is_heard_of)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_future *monitor = NULL, *call = NULL, *dying = NULL;
        exo_ref ref = spawn(&r, "mortal"), found;
        cr_assert_eq(exo_monitor(r.runtime, ref, &monitor, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_call(r.runtime, ref, "linger", (exo_payload){0}, INT64_MAX, &call, &err),
                     EXO_OK);
        cr_assert_eq(exo_call(r.runtime, ref, "die", (exo_payload){0}, INT64_MAX, &dying, &err),
                     EXO_OK);
        cr_expect_eq(exo_wait(dying, soon(), NULL, &err), EXO_PEER_LOST);
        cr_expect_eq(exo_wait(call, soon(), NULL, &err), EXO_PEER_LOST);
        cr_expect(strstr(err.text, "told to die"), "%s", err.text);
        cr_expect_eq(exo_wait(monitor, soon(), NULL, &err), EXO_PEER_LOST);
        cr_expect(strstr(err.text, "told to die"), "%s: %s", names[t], err.text);
        exo_future_drop(&monitor);
        exo_future_drop(&call);
        exo_future_drop(&dying);
        exo_status st = EXO_OK;
        for (exo_time end = soon(); st == EXO_OK && exo_now(exo_clock_real()) < end;) {
            st = exo_get_actor(r.runtime, NULL, "mortal", &found, &err);
            usleep(1000);
        }
        cr_expect_eq(st, EXO_NOT_FOUND);
        cr_expect(strstr(err.text, "told to die"), "%s: %s", names[t], err.text);
        spawn(&r, "mortal"); /* the name is free */
    }
}

Test(cluster, links_reach_across)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_future *monitor = NULL;
        exo_ref far = spawn(&r, "far"), near = {0};
        cr_assert_eq(
            exo_spawn(r.runtime, &counter_class, &(exo_spawn_opts){.name = "near"}, &near, &err),
            EXO_OK, "%s", err.text);
        cr_assert_eq(exo_link(r.runtime, far, near, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_monitor(r.runtime, near, &monitor, &err), EXO_OK);
        cr_assert_eq(exo_kill(r.runtime, far, "a test", &err), EXO_OK);
        cr_expect_eq(exo_wait(monitor, soon(), NULL, &err), EXO_PEER_LOST, "%s", names[t]);
        cr_expect(strstr(err.text, "a test"), "%s", err.text);
        exo_future_drop(&monitor);
    }
}

Test(cluster, objects_come_as_the_memory_they_are)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_object *object = NULL;
        exo_future *future = NULL;
        const exo_payload *reply = NULL;
        exo_ref ref = spawn(&r, NULL);
        cr_assert_eq(exo_object_new(&object, 3000000, &err), EXO_OK, "%s", err.text);
        memset(exo_object_data(object), 7, 3000000);
        if (t != LOCAL) { /* no other process may see an object that is still written */
            cr_expect_eq(
                exo_call(r.runtime, ref, "echo", exo_object_payload(object), soon(), &future, &err),
                EXO_INVAL);
        }
        exo_object_seal(object);
        cr_assert_eq(
            exo_call(r.runtime, ref, "echo", exo_object_payload(object), soon(), &future, &err),
            EXO_OK);
        cr_assert_eq(exo_wait(future, soon(), &reply, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(reply->size, 3000000);
        cr_expect_eq(memcmp(reply->data, exo_object_data(object), reply->size), 0);
        cr_expect(t == LOCAL || exo_object_of_payload(reply),
                  "a large reply comes in shared memory");
        exo_future_drop(&future);
        exo_object_drop(&object);
    }
}

Test(cluster, objects_are_got_by_name)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_object *object = NULL;
        exo_object_id id;
        exo_future *future = NULL;
        const exo_payload *reply = NULL;
        exo_ref ref = spawn(&r, NULL);
        cr_assert_eq(exo_call(r.runtime, ref, "share", (exo_payload){0}, soon(), &future, &err),
                     EXO_OK);
        cr_assert_eq(exo_wait(future, soon(), &reply, &err), EXO_OK, "%s", err.text);
        memcpy(&id, reply->data, sizeof id);
        exo_future_drop(&future);
        for (int far = 0; far < 2; far++) {
            /* a different start time: the owner is no process of this host, so the object is
             * fetched */
            if (far)
                id.words[2]++;
            if (far && t == LOCAL)
                break;
            exo_status st = exo_object_get(r.runtime, &id, soon(), &object, &err);
            if (far) { /* the owner does not recognize its own identity */
                cr_expect_neq(st, EXO_OK);
                break;
            }
            cr_assert_eq(st, EXO_OK, "%s: %s", names[t], err.text);
            cr_assert_eq(exo_object_size(object), 5000000);
            for (size_t i = 0; i < 5000000; i += 4099)
                cr_assert_eq(((unsigned char *)exo_object_data(object))[i], (unsigned char)(i * 7));
            exo_object_drop(&object);
        }
    }
}

Test(cluster, only_idempotent_calls_are_made_again)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_future *future = NULL;
        const exo_payload *reply = NULL;
        exo_ref ref = {0};
        const exo_spawn_opts opts = {.name = "phoenix",
                                     .restart = {.when = EXO_RESTART_ON_FAILURE, .max = 10}};
        if (t == LOCAL) /* a runtime without a cluster restarts no actor */
            continue;
        cr_assert_eq(exo_spawn_class(r.runtime, "counter", &opts, soon(), &ref, &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(exo_call(r.runtime, ref, "frail", (exo_payload){0}, soon(), &future, &err),
                     EXO_OK, "%s", err.text);
        cr_assert_eq(exo_wait(future, soon(), &reply, &err), EXO_OK, "%s: %s", names[t], err.text);
        cr_expect_str_eq(reply->data, "alive");
        exo_future_drop(&future);
        cr_assert_eq(exo_get_actor(r.runtime, NULL, "phoenix", &ref, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(
            exo_call(r.runtime, ref, "frail_once", (exo_payload){0}, soon(), &future, &err),
            EXO_OK);
        cr_expect_eq(exo_wait(future, soon(), &reply, &err), EXO_PEER_LOST, "%s", names[t]);
        exo_future_drop(&future);
        cr_assert_eq(exo_get_actor(r.runtime, NULL, "phoenix", &ref, &err), EXO_OK,
                     "waits for its next life: %s", err.text);
        cr_assert_eq(
            exo_call(r.runtime, ref, "frail_once", (exo_payload){0}, soon(), &future, &err),
            EXO_OK);
        cr_expect_eq(exo_wait(future, soon(), &reply, &err), EXO_OK, "%s: %s", names[t], err.text);
        exo_future_drop(&future);
    }
}

/* --- Groups, references in messages, deferred replies ----------------------------------------- */

Test(cluster, a_group_is_made_whole_or_not_at_all)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_ref refs[3] = {0}, found;
        exo_spawn_item items[3] = {{.class_name = "counter", .opts = {.name = "a"}},
                                   {.class_name = "counter", .opts = {.name = "b"}},
                                   {.class_name = "counter"}};
        cr_assert_eq(exo_spawn_group(r.runtime, items, 3, soon(), refs, &err), EXO_OK, "%s: %s",
                     names[t], err.text);
        for (int i = 0; i < 3; i++)
            cr_expect_eq(call_add(&r, refs[i], 1), 1);
        /* The second actor cannot be made: its name is taken. */
        items[0].opts.name = "c";
        cr_expect_eq(exo_spawn_group(r.runtime, items, 2, soon(), refs, &err), EXO_EXISTS, "%s",
                     names[t]);
        cr_expect_eq(exo_get_actor(r.runtime, NULL, "c", &found, &err), EXO_NOT_FOUND, "%s",
                     names[t]);
        items[1] = (exo_spawn_item){.class_name = "no_such_class"};
        cr_expect_eq(exo_spawn_group(r.runtime, items, 2, soon(), refs, &err), EXO_NOT_FOUND);
        exo_status st = EXO_OK;
        for (exo_time end = soon(); st == EXO_OK && exo_now(exo_clock_real()) < end;) {
            st = exo_get_actor(r.runtime, NULL, "c", &found, &err);
            usleep(1000);
        }
        cr_expect_eq(st, EXO_NOT_FOUND, "%s", names[t]);
        /* More CPUs than the cluster has. */
        const exo_resource all = {.name = "cpus", .amount = 1e6};
        items[1] = (exo_spawn_item){.class_name = "counter",
                                    .opts = {.resources = &all, .num_resources = 1}};
        if (t != LOCAL)
            cr_expect_eq(exo_spawn_group(r.runtime, items, 2, soon(), refs, &err), EXO_FULL, "%s",
                         err.text);
    }
}

Test(cluster, a_reference_goes_in_a_message)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_actor_id id = {0};
        exo_payload args = {0}, reply = {0};
        exo_ref target = spawn(&r, NULL), other = spawn(&r, NULL);
        cr_assert_eq(exo_ref_export(r.runtime, target, &id, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_payload_copy(&args, &id, sizeof id), EXO_OK);
        cr_assert_eq(exo_call_wait(r.runtime, other, "pass_on", args, soon(), &reply, &err), EXO_OK,
                     "%s: %s", names[t], err.text);
        cr_assert_eq(reply.size, sizeof(uint64_t));
        cr_expect_eq(*(uint64_t *)reply.data, 1, "the other one called it");
        exo_payload_release(&reply);
        cr_expect_eq(call_add(&r, target, 1), 2);
    }
}

Test(cluster, a_reply_may_come_later)
{
    EVERYWHERE(r)
    {
        exo_err err = {0};
        exo_future *first = NULL, *second = NULL, *third = NULL;
        exo_ref ref = spawn(&r, NULL);
        cr_assert_eq(exo_call(r.runtime, ref, "meet", (exo_payload){0}, soon(), &first, &err),
                     EXO_OK);
        cr_expect_eq(exo_wait(first, exo_deadline(exo_clock_real(), 20 * EXO_MS), NULL, &err),
                     EXO_TIMEOUT);
        cr_assert_eq(exo_call(r.runtime, ref, "meet", (exo_payload){0}, soon(), &second, &err),
                     EXO_OK);
        cr_expect_eq(exo_wait(first, soon(), NULL, &err), EXO_OK, "%s: %s", names[t], err.text);
        cr_expect_eq(exo_wait(second, soon(), NULL, &err), EXO_OK);
        cr_assert_eq(exo_call(r.runtime, ref, "meet", (exo_payload){0}, soon(), &third, &err),
                     EXO_OK);
        cr_expect_eq(call_add(&r, ref, 1), 1, "its lane goes on");
        cr_assert_eq(exo_kill(r.runtime, ref, "a test", &err), EXO_OK);
        cr_expect_eq(exo_wait(third, soon(), NULL, &err), EXO_PEER_LOST, "%s", names[t]);
        exo_future_drop(&first);
        exo_future_drop(&second);
        exo_future_drop(&third);
    }
}
