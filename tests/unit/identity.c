/* Who somebody is was proven when its connection was made: what an admitted peer says of others, in
 * others' names, is refused, by a head that goes on as before.
 *
 * The head and an honest worker are joined in this process; forgers are raw peers with a key of
 * their own (stranger.h), or another process without. Read next: runtime/net/proof.c,
 * runtime/cluster/head_identity.c. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "actor/hooks.h"
#include "cluster/messages.h"
#include "cluster/watch.h"
#include "net/process.h"
#include "support/eventually.h"
#include "support/key_world.h"

char key_folder[64];

struct key_world key_world;

static exo_status
ask(stranger *s, const char *method, const ProtobufCMessage *message, char reason[EXO_WIRE_REASON])
{
    exo_payload args = {0};
    if (message)
        cr_assert_eq(exo_message_pack(&args, message), EXO_OK);
    exo_status st = stranger_call(s, 0, "head", method, args.data, args.size, reason, NULL, NULL);
    exo_payload_release(&args);
    return st;
}

/* The state of the worker as the head lists it. */
static bool
is_alive(const char *name)
{
    char *json = NULL, wanted[64];
    cr_assert_eq(exo_cluster_list(key_world.head, key_world_soon(), &json, NULL), EXO_OK);
    snprintf(wanted, sizeof wanted, "\"name\": \"%s\"", name);
    const char *at = strstr(json, wanted);
    bool alive =
        at && strstr(at, "\"state\": \"alive\"") && strstr(at, "\"state\": \"alive\"") < at + 400;
    exo_free(json);
    return alive;
}

/* --- Forgeries of those who were let in ------------------------------------------------------- */

Test(identity, nobody_is_a_node_that_lives)
{
    char reason[EXO_WIRE_REASON];
    key_world_open(true);
    stranger s = key_world_stranger("evil");
    exo_envelope hello = STRANGER_HELLO;
    hello.who.node = exo_cluster_node_id(key_world.worker);
    stranger_say(&s, &hello);
    stranger_expect(&s, EXO_WIRE_REFUSED, reason);
    cr_expect_not_null(strstr(reason, "a node that another one is"), "%s", reason);
    stranger_close(&s);
    s = key_world_stranger("evil");
    hello.who.node = exo_cluster_node_id(key_world.head);
    stranger_say(&s, &hello);
    stranger_expect(&s, EXO_WIRE_REFUSED, reason);
    stranger_close(&s);
    cr_expect(is_alive("w1"));
    key_world_close();
}

/* What each forgery says of the node `victim`. */
static exo_status
forge(stranger *s, const char *method, uint64_t victim, char reason[EXO_WIRE_REASON])
{
    if (strcmp(method, "gone") == 0) {
        Exo__Cluster__NodeInfo m = EXO__CLUSTER__NODE_INFO__INIT;
        m.node = victim;
        m.state = exo_pb_text("left");
        return ask(s, method, &m.base, reason);
    }
    if (strcmp(method, "epitaph") == 0) {
        Exo__Cluster__Epitaph m = EXO__CLUSTER__EPITAPH__INIT;
        m.node = victim;
        m.cause = exo_pb_text("was forged");
        return ask(s, method, &m.base, reason);
    }
    if (strcmp(method, "register") == 0) {
        Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
        m.node = victim;
        m.name = exo_pb_text("forged");
        m.kind = exo_pb_text("worker");
        return ask(s, method, &m.base, reason);
    }
    if (strcmp(method, "report") == 0) {
        Exo__Cluster__Report m = EXO__CLUSTER__REPORT__INIT;
        m.node = victim;
        m.job = exo_pb_text("job");
        m.json = exo_pb_text("{}");
        return ask(s, method, &m.base, reason);
    }
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT; /* claim, died */
    m.node = victim;
    m.id = 1;
    m.name = exo_pb_text("forged");
    m.space = exo_pb_text("default");
    return ask(s, method, &m.base, reason);
}

Test(identity, nobody_speaks_for_another)
{
    static const char *const methods[] = {"gone", "epitaph", "register", "report", "claim", "died"};
    char reason[EXO_WIRE_REASON];
    key_world_open(true);
    uint64_t victim = exo_cluster_node_id(key_world.worker);
    stranger s = key_world_stranger("evil");
    stranger_enter(&s, 99);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        exo_status st = forge(&s, methods[i], victim, reason);
        cr_expect_eq(st, EXO_DENIED, "%s gave %d: %s", methods[i], (int)st, reason);
        cr_expect_not_null(strstr(reason, "evil"), "%s does not say who: %s", methods[i], reason);
        cr_expect(is_alive("w1"), "after %s", methods[i]);
    }
    /* Of itself it may say all of that. */
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = 99;
    m.name = exo_pb_text("w1"); /* a living name is nobody's to take */
    m.kind = exo_pb_text("worker");
    cr_expect_eq(ask(&s, "register", &m.base, reason), EXO_OK, "%s", reason);
    cr_expect(is_alive("w1"));
    cr_expect(is_alive("evil"));
    m.key_text = exo_pb_text(key_world.head_public);
    cr_expect_eq(ask(&s, "register", &m.base, reason), EXO_DENIED);
    cr_expect_not_null(strstr(reason, "another key than it has shown"), "%s", reason);
    cr_expect_eq(forge(&s, "claim", 99, reason), EXO_OK, "%s", reason);
    cr_expect_eq(forge(&s, "gone", 99, reason), EXO_OK, "%s", reason);
    stranger_close(&s);
    key_world_close();
}

/* Only the head tells itself what time it is, and what workers answered. */
Test(identity, nobody_is_the_head)
{
    static const char *const methods[] = {"tick", "started"};
    uint8_t args[8192] = {0};
    char reason[EXO_WIRE_REASON];
    key_world_open(true);
    stranger s = key_world_stranger("evil");
    stranger_enter(&s, 99);
    for (size_t i = 0; i < 2; i++)
        cr_expect_eq(
            stranger_call(&s, 0, "head", methods[i], args, sizeof args, reason, NULL, NULL),
            EXO_DENIED);
    stranger_close(&s);
    key_world_close();
}

/* Who somebody is, is said once. */
Test(identity, a_second_hello_changes_nothing)
{
    char reason[EXO_WIRE_REASON];
    exo_envelope hello = STRANGER_HELLO;
    key_world_open(true);
    stranger s = key_world_stranger("evil");
    stranger_enter(&s, 99);
    hello.who.node = 100;
    stranger_say(&s, &hello);
    cr_expect_eq(forge(&s, "register", 100, reason), EXO_DENIED, "%s", reason);
    cr_expect_eq(forge(&s, "register", 99, reason), EXO_OK, "%s", reason);
    stranger_close(&s);
    key_world_close();
}

/* A node that is lost is nobody else's either; its watcher, which has its key, says why it
 * ended. */
Test(identity, what_was_a_node_is_not_another)
{
    char reason[EXO_WIRE_REASON];
    key_world_open(true);
    uint64_t victim = exo_cluster_node_id(key_world.worker);
    key_world_leave(&key_world.runtime, &key_world.worker);
    EVENTUALLY(!is_alive("w1"));
    stranger s = key_world_stranger("evil");
    stranger_enter(&s, victim);
    cr_expect_eq(forge(&s, "register", victim, reason), EXO_DENIED);
    cr_expect_not_null(strstr(reason, "is not who was that node"), "%s", reason);
    cr_expect_eq(forge(&s, "epitaph", victim, reason), EXO_DENIED);
    stranger_close(&s);
    s = key_world_stranger("w1");
    stranger_enter(&s, 77);
    cr_expect_eq(forge(&s, "epitaph", victim, reason), EXO_OK, "%s", reason);
    stranger_close(&s);
    key_world_close();
}

/* Actors are placed by the names of workers: a key's name is for its own, there or not. */
Test(identity, a_name_is_its_keys)
{
    static const char *const names[] = {"w1",
                                        "w3"}; /* one that was there, and one that never was */
    char reason[EXO_WIRE_REASON];
    key_world_open(true);
    key_world_make_keys("w2", &(exo_grant){.role = EXO_ACCESS_WORKER});
    key_world_make_keys("w3", &(exo_grant){.role = EXO_ACCESS_WORKER});
    key_world_leave(&key_world.runtime, &key_world.worker);
    EVENTUALLY(!is_alive("w1"));
    for (uint64_t i = 0; i < 2; i++) {
        stranger s = key_world_stranger("w2");
        Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
        stranger_enter(&s, 77 + i);
        m.node = 77 + i;
        m.name = exo_pb_text(names[i]);
        m.kind = exo_pb_text("worker");
        cr_expect_eq(ask(&s, "register", &m.base, reason), EXO_OK, "%s", reason);
        cr_expect_not(is_alive(names[i]));
        cr_expect(is_alive("w2"));
        stranger_close(&s);
    }
    key_world_close();
}

Test(identity, a_job_stays_with_the_driver_that_lives)
{
    char reason[EXO_WIRE_REASON];
    exo_runtime *runtime;
    exo_cluster *driver;
    key_world_open(true);
    key_world_make_keys("driver", &(exo_grant){.role = EXO_ACCESS_DRIVER});
    key_world_join(EXO_ROLE_DRIVER, "driver", true, &runtime, &driver);
    stranger s = key_world_stranger("evil");
    stranger_enter(&s, 99);
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = 99;
    m.name = exo_pb_text("evil");
    m.kind = exo_pb_text("driver");
    m.job = exo_pb_text("job");
    cr_expect_eq(ask(&s, "register", &m.base, reason), EXO_EXISTS);
    cr_expect_not_null(strstr(reason, "of the driver 'driver'"), "%s", reason);
    key_world_leave(&runtime, &driver);
    EVENTUALLY(ask(&s, "register", &m.base, reason) == EXO_OK);
    stranger_close(&s);
    key_world_close();
}

/* ZeroMQ lets whoever comes choose a routing id, also one of a connection that has just broken. */
Test(identity, a_routing_id_is_no_identity)
{
    static const char route[] = "chosen";
    char reason[EXO_WIRE_REASON];
    bool refused = false;
    key_world_open(true);
    stranger honest = key_world_stranger("w1");
    stranger_call_itself(&honest, route, sizeof route);
    stranger_enter(&honest, 77);
    uint32_t next = honest.next;
    stranger_close(&honest); /* without a Goodbye: the head does not know yet */
    for (int i = 0; i < 100 && !refused; i++) {
        stranger s = key_world_stranger("evil");
        const int brief = 200;
        stranger_call_itself(&s, route, sizeof route);
        stranger_wait(&s, brief);
        Exo__Cluster__NodeInfo m = EXO__CLUSTER__NODE_INFO__INIT;
        exo_payload args = {0};
        m.node = 77;
        s.next = next; /* it goes on where the other one ended */
        cr_assert_eq(exo_message_pack(&args, &m.base), EXO_OK);
        exo_status st =
            stranger_call(&s, 0, "head", "gone", args.data, args.size, reason, NULL, NULL);
        cr_expect(st == EXO_CLOSED || st == EXO_FAILED, "it is heard as another: %d", (int)st);
        refused = st == EXO_CLOSED;
        exo_payload_release(&args);
        stranger_close(&s);
    }
    cr_expect(refused, "it never got the routing id");
    key_world_close();
}

/* --- Another process of the same user --------------------------------------------------------- */

/* Says Hello by ipc as process `pid`, of this host, and node `node`. Exits with 0 if it is
 * refused. */
static void
pretend(const char *endpoint, uint32_t pid, uint64_t node)
{
    char reason[EXO_WIRE_REASON], boot[EXO_BOOT_ID];
    stranger s = stranger_open(endpoint, NULL, NULL);
    exo_envelope hello = STRANGER_HELLO;
    exo_boot_id(boot);
    if (pid) {
        hello.who.boot = boot;
        hello.who.pid = pid;
        hello.who.start = exo_process_start(pid);
    }
    hello.who.node = node;
    stranger_say(&s, &hello);
    _exit(stranger_hears(&s, EXO_WIRE_REFUSED, reason) ? 0 : 1);
}

static int
status_of(pid_t child)
{
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

Test(identity, a_process_is_what_the_kernel_says)
{
    int ends[2];
    struct {
        char endpoint[256];
        uint32_t pid;
        uint64_t node;
    } order;
    cr_assert_eq(pipe(ends), 0);
    pid_t children[2]; /* before there are threads */
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            if (read(ends[0], &order, sizeof order) != sizeof order)
                _exit(2);
            pretend(order.endpoint, order.pid, order.node);
        }
    }
    key_world_open(false);
    snprintf(order.endpoint, sizeof order.endpoint, "%s", exo_cluster_address(key_world.head));
    order.pid = (uint32_t)getpid();
    order.node = 99;
    cr_assert_eq(write(ends[1], &order, sizeof order), sizeof order); /* another process's number */
    order.pid = 0;
    order.node = exo_cluster_node_id(key_world.worker);
    cr_assert_eq(write(ends[1], &order, sizeof order), sizeof order); /* another process's node */
    for (int i = 0; i < 2; i++)
        cr_expect_eq(status_of(children[i]), 0);
    cr_expect(is_alive("w1"));
    close(ends[0]);
    close(ends[1]);
    key_world_close();
}

/* --- What a process is made of ---------------------------------------------------------------- */

Test(identity, system_actors_take_no_orders)
{
    static const char *const orders[] = {"$kill",    "$stop",    "$drain",
                                         "$monitor", "$methods", "stop"};
    char reason[EXO_WIRE_REASON];
    exo_ref head;
    key_world_open(true);
    cr_assert_eq(exo_runtime_find_name(key_world.head_runtime, "exogym", "head", &head, NULL),
                 EXO_OK);
    stranger s = key_world_stranger("evil");
    stranger_enter(&s, 99);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        cr_expect_eq(stranger_call(&s, 0, "head", orders[i], NULL, 0, reason, NULL, NULL),
                     EXO_DENIED, "%s", orders[i]);
        cr_expect_eq(stranger_call(&s, head.id, NULL, orders[i], NULL, 0, reason, NULL, NULL),
                     EXO_DENIED, "%s by number", orders[i]);
    }
    cr_expect(is_alive("w1"));
    stranger_close(&s);
    key_world_close();
}

Test(identity, a_process_without_its_head_or_worker_ends)
{
    const struct {
        const char *name;
        exo_runtime **runtime;
        exo_cluster **cluster;
    } cases[] = {{"worker", &key_world.runtime, &key_world.worker},
                 {"head", &key_world.head_runtime, &key_world.head}};
    key_world_open(false);
    for (size_t i = 0; i < 2; i++) {
        exo_ref actor;
        exo_err err = {0};
        cr_expect_eq(exo_cluster_wait(*cases[i].cluster, INT64_MAX, 0, &err), EXO_TIMEOUT);
        cr_assert_eq(
            exo_runtime_find_name(*cases[i].runtime, "exogym", cases[i].name, &actor, NULL),
            EXO_OK);
        cr_assert_eq(exo_kill(*cases[i].runtime, actor, "a fault of its own", NULL), EXO_OK);
        cr_expect_eq(exo_cluster_wait(*cases[i].cluster, INT64_MAX, key_world_soon(), &err),
                     EXO_FAILED);
        cr_expect_not_null(strstr(err.text, "a fault of its own"), "%s", err.text);
        cr_expect_not_null(strstr(err.text, cases[i].name), "%s", err.text);
    }
    key_world_close();
}
