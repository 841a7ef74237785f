/* A process that has joined a cluster whose head sends unusual replies, or none. The head is an
 * actor of this test in its own runtime.
 *
 * The suite's `setup` and `teardown` own both runtimes. The head's methods write the counters and
 * the kept futures. Read next: runtime/cluster/cluster_impl.h. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/cluster.h>
#include <exogym/memory.h>
#include <exogym/object.h>

#include "actor/hooks.h"
#include "cluster/cluster_impl.h"
#include "cluster/messages.h"
#include "cluster/place.h"
#include "cluster/remote_impl.h"
#include "cluster/watch.h"
#include "support/check.h"
#include "support/eventually.h"
#include "support/sanitized.h"
#include "support/temp.h"

static char folder[64], endpoint[128];
static exo_runtime *runtimes[2]; /* the head's, the driver's */
static exo_remote *remote;       /* the head's */
static exo_cluster *driver;
static exo_ref idler;

static atomic_int registered, looked_for, left_for_good;
static exo_future *kept;            /* the latest search that has no reply */
static _Atomic exo_time kept_until; /* its deadline */
static const char unended[] = {'n', 'o', ' ', '0', ' ', 'a', 't', ' ', 'e', 'n', 'd'};

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

/* --- The head --------------------------------------------------------------------------------- */

static exo_status
head_register(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
              exo_err *err)
{
    char name[32];
    Exo__Cluster__RegisterReply m = EXO__CLUSTER__REGISTER_REPLY__INIT;
    (void)call;
    (void)self;
    (void)args;
    (void)err;
    snprintf(name, sizeof name, "given-%d", ++registered);
    m.name = name;
    return exo_message_pack(reply, &m.base);
}

static exo_status
head_why(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
         exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)err;
    return exo_payload_copy(reply, unended, sizeof unended);
}

/* The first search gets `idler`, whatever the name. Later searches get no reply. */
static exo_status
head_find(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *err)
{
    exo_status st = EXO_OK;
    (void)self;
    (void)err;
    Exo__Cluster__Name *m = EXO_UNPACK(Exo__Cluster__Name, exo__cluster__name, args);
    cr_assert(m);
    if (looked_for > 0) {
        kept = exo_call_defer(call);
        kept_until = exo_call_deadline(call);
    } else {
        Exo__Cluster__Actor info = EXO__CLUSTER__ACTOR__INIT;
        info.id = idler.id;
        info.node = exo_net_node(exo_remote_net(remote));
        info.endpoint = endpoint;
        info.space = m->space;
        info.name = m->name;
        info.idempotent.data =
            (uint8_t *)(uintptr_t)(strcmp(m->name, "odd") == 0 ? unended : "idle");
        info.idempotent.len = strcmp(m->name, "odd") == 0 ? sizeof unended : sizeof "idle";
        st = exo_message_pack(reply, &info.base);
    }
    looked_for++; /* counted last, because a test waits for it */
    EXO_RELEASE(m);
    return st;
}

static exo_status
nothing(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
        exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    return EXO_OK;
}

static atomic_int idles;
static exo_future *idling; /* the latest call that has no reply */

/* Replies only in `teardown`. */
static exo_status
idle(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    idling = exo_call_defer(call);
    idles++;
    return EXO_OK;
}

static atomic_int asked_for_nodes;
static exo_future *asked; /* the latest question for a node, which has no reply */

static exo_status
head_node(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *err)
{
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    asked = exo_call_defer(call);
    asked_for_nodes++;
    return EXO_OK;
}

static exo_status
gone(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    left_for_good++;
    return nothing(call, self, args, reply, err);
}

static const exo_method head_methods[] = {
    {.name = "register", .run = head_register}, {.name = "why", .run = head_why},
    {.name = "find", .run = head_find},         {.name = "gone", .run = gone},
    {.name = "died", .run = nothing},           {.name = "node", .run = head_node}};
static const exo_actor_class head_class = {
    .name = "a head", .methods = head_methods, .num_methods = 6};
static const exo_method idler_methods[] = {{.name = "idle", .run = idle},
                                           {.name = "echo", .run = nothing}};
static const exo_actor_class idler_class = {
    .name = "an idler", .methods = idler_methods, .num_methods = 2};

static void
setup(void)
{
    const char *const endpoints[] = {endpoint};
    const exo_net_opts net = {
        .name = "head", .cluster = "test", .endpoints = endpoints, .num_endpoints = 1};
    const exo_spawn_opts head = {.name = "head", .namespace_name = "exogym"};
    const exo_cluster_opts opts = {.role = EXO_ROLE_DRIVER,
                                   .name = "d",
                                   .cluster = "test",
                                   .folder = folder,
                                   .head = endpoint};
    exo_err err = {0};
    exo_ref unused;
    temp_folder(folder, sizeof folder);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/odd-head", folder);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(exo_runtime_open(&runtimes[i], NULL, &err), EXO_OK);
    cr_assert_eq(exo_spawn(runtimes[0], &head_class, &head, &unused, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_spawn(runtimes[0], &idler_class, NULL, &idler, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_remote_open(&remote, runtimes[0], &net, NULL, NULL, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_remote_start(remote, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_cluster_join(&driver, runtimes[1], &opts, soon(), &err), EXO_OK, "%s",
                 err.text);
}

static void
teardown(void)
{
    exo_err err = {0};
    exo_cluster_leave(driver);
    cr_expect_eq(exo_runtime_close(&runtimes[1], soon(), &err), EXO_OK, "%s", err.text);
    exo_cluster_free(&driver);
    exo_remote_close(remote, NULL);
    if (kept)
        exo_reply(&kept, EXO_CANCELLED, NULL, NULL);
    if (asked)
        exo_reply(&asked, EXO_CANCELLED, NULL, NULL);
    if (idling)
        exo_reply(&idling, EXO_CANCELLED, NULL, NULL);
    cr_expect_eq(exo_runtime_close(&runtimes[0], soon(), &err), EXO_OK, "%s", err.text);
    exo_remote_free(&remote);
    temp_remove(folder);
}

TestSuite(cluster_life, .init = setup, .fini = teardown, .timeout = 120);

/* Ends the connection from the head's side. The driver connects again. */
static void
lose_driver(void)
{
    exo_peer *peer = exo_remote_peer(remote, exo_cluster_node_id(driver));
    cr_assert(peer);
    exo_peer_lose(exo_remote_net(remote), peer, "a test");
    exo_peer_drop(&peer);
}

/* --- Replies ---------------------------------------------------------------------------------- */

Test(cluster_life, a_name_stays_readable_when_there_is_another)
{
    const char *first = exo_cluster_node_name(driver);
    cr_expect_str_eq(first, "given-1");
    lose_driver();
    EVENTUALLY(strcmp(exo_cluster_node_name(driver), "given-2") == 0);
    cr_expect_str_eq(first, "given-1");
}

Test(cluster_life, a_cause_ends_where_the_reply_ends)
{
    char *text = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_cluster_why(driver, NULL, "any", soon(), &text, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(strlen(text), sizeof unended, "%s", text);
    cr_expect_eq(memcmp(text, unended, sizeof unended), 0);
    exo_free(text);
}

Test(cluster_life, methods_that_do_not_end_are_none)
{
    exo_ref ref;
    exo_err err = {0};
    cr_assert_eq(exo_get_actor(runtimes[1], NULL, "odd", &ref, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_call_wait(runtimes[1], ref, "echo", (exo_payload){0}, soon(), NULL, &err),
                 EXO_OK, "%s", err.text);
}

/* --- Connecting ------------------------------------------------------------------------------- */

enum {
    CALLERS = 8
};

static atomic_int begun, opened;

static void
on_received(void *context, exo_peer *peer, const exo_envelope *envelope, exo_payload *payload)
{
    (void)context;
    (void)peer;
    (void)envelope;
    exo_payload_release(payload);
}

static void
on_settled(void *context, exo_driver who)
{
    (void)context;
    (void)who;
}

static void
on_opened(void *context, exo_peer *peer)
{
    (void)context;
    (void)peer;
    opened++;
}

static void
on_lost(void *context, exo_peer *peer, const char *cause)
{
    (void)context;
    (void)peer;
    (void)cause;
}

static void *
refer(void *info)
{
    exo_ref ref;
    exo_err err = {0};
    begun++;
    exo_status st = exo_cluster_refer_to(driver, info, soon(), &ref, &err);
    return (void *)(intptr_t)st;
}

/* Actors that start together look for the same process at the same time. They must share one
 * connection. */
Test(cluster_life, those_who_look_for_a_process_together_connect_once)
{
    static const exo_net_handler handler = {
        .received = on_received, .settle = on_settled, .opened = on_opened, .lost = on_lost};
    char at[128];
    const char *const endpoints[] = {at};
    const exo_net_opts opts = {.name = "other",
                               .cluster = "test",
                               .endpoints = endpoints,
                               .num_endpoints = 1,
                               .held = true, /* it replies once all have begun */
                               .handler = &handler};
    exo_net *other = NULL;
    exo_err err = {0};
    pthread_t threads[CALLERS];
    snprintf(at, sizeof at, "ipc://%s/other", folder);
    cr_assert_eq(exo_net_open(&other, &opts, &err), EXO_OK, "%s", err.text);
    Exo__Cluster__Actor info = EXO__CLUSTER__ACTOR__INIT;
    info.id = 1;
    info.node = exo_net_node(other);
    info.endpoint = at;
    info.name = (char *)(uintptr_t) "any";
    for (int i = 0; i < CALLERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, refer, &info), 0);
    EVENTUALLY(begun == CALLERS);
    /* lets a wrong implementation open several connections; a right one passes at any speed */
    usleep(100000);
    cr_assert_eq(exo_net_start(other, &err), EXO_OK, "%s", err.text);
    for (int i = 0; i < CALLERS; i++) {
        void *st = NULL;
        pthread_join(threads[i], &st);
        cr_expect_eq((intptr_t)st, EXO_OK);
    }
    EVENTUALLY(opened > 0); /* the other process greets first, and counts afterwards */
    exo_net_close(&other);
    cr_expect_eq(opened, 1, "%d connections", opened);
}

/* --- Leaving ---------------------------------------------------------------------------------- */

/* The call waits for its actor's next life, and the head does not reply about it. */
Test(cluster_life, leaving_waits_for_no_reply)
{
    exo_ref ref;
    exo_err err = {0};
    exo_future *future = NULL;
    cr_assert_eq(exo_get_actor(runtimes[1], NULL, "idler", &ref, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_call(runtimes[1], ref, "idle", (exo_payload){0}, INT64_MAX, &future, &err),
                 EXO_OK);
    EVENTUALLY(idles == 1);
    lose_driver();
    /* the thread that asks for the next life may wait for half a minute */
    EVENTUALLY(looked_for == 2);
    cr_expect(!exo_future_ready(future));
    exo_cluster_leave(driver);
    cr_expect_lt(exo_now(exo_clock_real()), kept_until, "it waited until the head's time was over");
    cr_expect_eq(exo_wait(future, soon(), NULL, &err), EXO_PEER_LOST);
    exo_future_drop(&future);
}

/* The driver gives a busy head a second to hear that it leaves. */
static void
expect_head_heard(exo_time began)
{
    cr_expect(left_for_good == 1 ||
                  (left_for_good == 0 && exo_now(exo_clock_real()) - began >= EXO_SECOND),
              "the head heard %d times that the driver left", left_for_good);
}

Test(cluster_life, a_runtime_that_closes_leaves_first)
{
    exo_err err = {0};
    exo_time began = exo_now(exo_clock_real());
    cr_expect_eq(exo_runtime_close(&runtimes[1], soon(), &err), EXO_OK, "%s", err.text);
    expect_head_heard(began);
    exo_cluster_free(&driver);
}

Test(cluster_life, a_runtime_closes_after_its_cluster_was_freed)
{
    exo_err err = {0};
    exo_time began = exo_now(exo_clock_real());
    exo_cluster_free(&driver);
    expect_head_heard(began);
    cr_expect_eq(exo_runtime_close(&runtimes[1], soon(), &err), EXO_OK, "%s", err.text);
}

/* Waits for the head without a deadline. It may run on the receiving thread. */
static exo_status
import(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    const exo_actor_id nowhere = {.node = 4711, .id = 1};
    exo_ref ref;
    (void)self;
    (void)args;
    (void)reply;
    return exo_ref_import(exo_call_runtime(call), &nowhere, INT64_MAX, &ref, err);
}

static const exo_method importer_methods[] = {{.name = "import", .run = import}};
static const exo_actor_class importer_class = {
    .name = "an importer", .methods = importer_methods, .num_methods = 1};

static atomic_bool left;

static void *
leave(void *argument)
{
    exo_cluster_leave(argument);
    left = true;
    return NULL;
}

Test(cluster_life, leaving_ends_what_a_method_waits_for)
{
    exo_ref importer, there;
    exo_err err = {0};
    exo_future *future = NULL;
    pthread_t thread;
    cr_assert_eq(exo_spawn(runtimes[1], &importer_class, NULL, &importer, &err), EXO_OK, "%s",
                 err.text);
    exo_peer *peer = exo_remote_peer(remote, exo_cluster_node_id(driver));
    cr_assert(peer);
    cr_assert_eq(exo_remote_actor(remote, peer, importer.id, &there, &err), EXO_OK, "%s", err.text);
    exo_peer_drop(&peer);
    cr_assert_eq(exo_future_new(&future, exo_clock_real(), INT64_MAX, &err), EXO_OK);
    cr_assert_eq(exo_remote_call(remote, there, "import", &(exo_payload){0}, future, &err), EXO_OK,
                 "%s", err.text);
    EVENTUALLY(asked_for_nodes == 1);
    cr_assert_eq(pthread_create(&thread, NULL, leave, driver), 0);
    EVENTUALLY(left);
    pthread_join(thread, NULL);
    exo_status st = exo_wait(future, soon(), NULL, &err);
    cr_expect(st == EXO_PEER_LOST || st == EXO_CLOSED, "%d: %s", (int)st, err.text);
    exo_future_drop(&future);
}

/* --- Bounded memory --------------------------------------------------------------------------- */

/* Actors of another process are made, referred to and ended. The number of slots does not grow with
 * their number. */
Test(cluster_life, references_to_the_dead_are_given_back)
{
    enum {
        BLOCKS = 40,
        EACH = 500
    };
    exo_remote *r = driver->remote;
    exo_peer *peer = exo_remote_peer(r, exo_net_node(exo_remote_net(remote)));
    exo_ref living, ref, local;
    exo_err err = {0};
    cr_assert(peer);
    cr_assert_eq(exo_remote_actor(r, peer, idler.id, &living, &err), EXO_OK, "%s", err.text);
    for (int block = 0; block < BLOCKS; block++) {
        for (int i = 0; i < EACH; i++) {
            cr_assert_eq(exo_spawn(runtimes[0], &idler_class, NULL, &local, &err), EXO_OK, "%s",
                         err.text);
            cr_assert_eq(exo_remote_actor(r, peer, local.id, &ref, &err), EXO_OK, "%s", err.text);
            cr_assert_eq(exo_kill(runtimes[0], local, "a test", &err), EXO_OK, "%s", err.text);
        }
        /* The peer serves the echo after all earlier requests. */
        cr_assert_eq(
            exo_call_wait(runtimes[1], living, "echo", (exo_payload){0}, soon(), NULL, &err),
            EXO_OK, "%s", err.text);
    }
    pthread_mutex_lock(&r->lock);
    size_t slots = r->num_references;
    pthread_mutex_unlock(&r->lock);
    cr_expect_leq(slots, 4096, "%zu slots for %d references", slots, BLOCKS * EACH);
    cr_expect_eq(exo_call_wait(runtimes[1], ref, "echo", (exo_payload){0}, soon(), NULL, &err),
                 EXO_PEER_LOST);
    exo_peer_drop(&peer);
}

/* Many lost actors, with methods that would be called again in their next lives. */
Test(cluster_life, the_lost_are_not_remembered_without_end)
{
    char name[32];
    for (unsigned i = 0; i < 50000; i++) {
        snprintf(name, sizeof name, "name-%u", i);
        exo_retrier_learn(driver->retrier,
                          (exo_ref){.id = EXO_REMOTE | UINT64_C(1) << 32 | (1000000 + i)},
                          "default", name, "idle", sizeof "idle");
    }
    cr_expect_leq(exo_retrier_remembers(driver->retrier), 20001);
    cr_expect_geq(exo_retrier_remembers(driver->retrier), 10000);
}

/* As CUDA reads the variable. */
Test(cluster_life, a_worker_offers_the_gpus_that_it_sees)
{
    static const struct {
        const char *list;
        int visible;
    } rows[] = {{NULL, 4},
                {"", 0},
                {"2", 1},
                {"0,3", 2},
                {"0,1,2,3,4", 4},
                {"1,-1,2", 1},
                {"-1", 0},
                {"GPU-8932f937,GPU-1c2f", 2},
                {"1,7,2", 1},
                {"3,x", 1},
                {"0,1,0", 0},
                {" 2, 1", 2},
                {"GPU-8932f937,GPU-8932f937", 0},
                {"MIG-1c2f,MIG-1c2e", 2},
                {"1,,2", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(exo_cluster_visible_gpus(rows[i].list, 4), rows[i].visible, "%s",
                     rows[i].list ? rows[i].list : "unset");
}

/* --- Forks ------------------------------------------------------------------------------------ */

/* What a child does with its parent's part in the cluster; it has none of the threads. */
static void
use_in_child(void)
{
    exo_cluster *inherited = driver;
    exo_err err = {0};
    exo_ref ref;
    char *text = NULL;
    exo_cluster *again = driver;
    const exo_cluster_opts opts = {.role = EXO_ROLE_DRIVER, .head = endpoint};
    exo_object *object = NULL;
    void *context;
    CHECK(exo_cluster_join(&again, runtimes[1], &opts, INT64_MAX, NULL) == EXO_UNSUPPORTED);
    CHECK(!again);
    CHECK(exo_runtime_remote(runtimes[1], &context)); /* a join that fails takes it away */
    CHECK(exo_object_get(runtimes[1], &(exo_object_id){{0}}, INT64_MAX, &object, NULL) ==
          EXO_UNSUPPORTED);
    exo_cluster_interrupt(driver);
    exo_cluster_forsake_head(driver, NULL);
    CHECK(exo_cluster_head(driver, INT64_MAX, &ref, &err) == EXO_UNSUPPORTED);
    CHECK(strstr(err.text, "join with a runtime of its own"));
    CHECK(exo_cluster_wait(driver, INT64_MAX, INT64_MAX, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_cluster_why(driver, NULL, "any", INT64_MAX, &text, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_cluster_list(driver, INT64_MAX, &text, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_cluster_get_actor(driver, NULL, "any", INT64_MAX, &ref, NULL) == EXO_UNSUPPORTED);
    exo_cluster_leave(driver);
    exo_cluster_free(&inherited);
    CHECK(!inherited);
}

static void
in_child(void (*act)(void))
{
    int status = -1;
    if (SANITIZED)
        cr_skip_test("the sanitizer's allocator cannot be forked beside threads");
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* ends a child that waits for a thread */
        act();
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0, "the child's status is %#x", (unsigned)status);
}

Test(cluster_life, a_child_of_fork_leaves_its_parent_a_member)
{
    exo_ref ref;
    exo_err err = {0};
    in_child(use_in_child);
    cr_expect_eq(left_for_good, 0);
    cr_assert_eq(exo_get_actor(runtimes[1], NULL, "any", &ref, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_call_wait(runtimes[1], ref, "echo", (exo_payload){0}, soon(), NULL, &err),
                 EXO_OK, "%s", err.text);
}

/* A child becomes a member by a runtime of its own. */
static void
join_in_child(void)
{
    const exo_cluster_opts opts = {.role = EXO_ROLE_DRIVER,
                                   .name = "child",
                                   .cluster = "test",
                                   .folder = folder,
                                   .head = endpoint};
    exo_runtime *own = NULL;
    exo_cluster *member = NULL;
    exo_ref ref;
    CHECK(exo_runtime_open(&own, NULL, NULL) == EXO_OK);
    CHECK(exo_cluster_join(&member, own, &opts, soon(), NULL) == EXO_OK);
    CHECK(exo_cluster_node_id(member) != exo_cluster_node_id(driver));
    CHECK(exo_get_actor(own, NULL, "any", &ref, NULL) == EXO_OK);
    CHECK(exo_call_wait(own, ref, "echo", (exo_payload){0}, soon(), NULL, NULL) == EXO_OK);
    exo_cluster_leave(member);
    CHECK(exo_runtime_close(&own, soon(), NULL) == EXO_OK);
    exo_cluster_free(&member);
}

Test(cluster_life, a_child_of_fork_joins_beside_its_parent)
{
    in_child(join_in_child);
    EVENTUALLY(left_for_good == 1);
    cr_expect_eq(registered, 2);
}
