/* Roles and access rights. A raw peer with a key of each role tries each cell of the access table,
 * over tcp with CURVE and over ipc sockets that require keys. Other tests: each method has a row; a
 * connection ends when its key is removed, expires or gets another role; a class can restrict its
 * callers; a driver sees only its own part of the lists.
 *
 * The test's thread owns the head and the worker (key_world.h). Read next:
 * runtime/cluster/access.c, runtime/net/proof.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "actor/hooks.h"
#include "cluster/access.h"
#include "cluster/head.h"
#include "cluster/messages.h"
#include "cluster/watch.h"
#include "cluster/worker.h"
#include "support/eventually.h"
#include "support/key_world.h"

char key_folder[64];
struct key_world key_world;

static const exo_access roles[] = {EXO_ACCESS_OBSERVER, EXO_ACCESS_DRIVER, EXO_ACCESS_WORKER,
                                   EXO_ACCESS_ADMIN};

enum {
    NUM_ROLES = sizeof roles / sizeof *roles
};

/* --- The table -------------------------------------------------------------------------------- */

static bool
has_row(const char *object, const char *method)
{
    const exo_access_row *r;
    for (size_t i = 0; (r = exo_access_row_at(i)); i++)
        if (strcmp(r->object, object) == 0 && strcmp(r->method, method) == 0)
            return true;
    return false;
}

static bool
has_method(const exo_actor_class *c, const char *method)
{
    for (size_t i = 0; i < c->num_methods; i++)
        if (strcmp(c->methods[i].name, method) == 0)
            return true;
    return false;
}

Test(access, names_every_method)
{
    const exo_actor_class *const classes[] = {&exo_head_class, &exo_worker_class};
    const exo_access_row *r;
    for (size_t c = 0; c < 2; c++)
        for (size_t i = 0; i < classes[c]->num_methods; i++)
            cr_expect(has_row(classes[c]->name, classes[c]->methods[i].name),
                      "nobody says who may call %s.%s", classes[c]->name,
                      classes[c]->methods[i].name);
    for (size_t i = 0; (r = exo_access_row_at(i)); i++) {
        bool head = strcmp(r->object, "head") == 0, worker = strcmp(r->object, "worker") == 0;
        if (head || worker)
            cr_expect(has_method(head ? &exo_head_class : &exo_worker_class, r->method),
                      "there is no %s.%s", r->object, r->method);
    }
    cr_expect_eq(exo_access_right("head", "no such method", EXO_ACCESS_ADMIN), EXO_RIGHT_NO);
    for (size_t i = 0; (r = exo_access_row_at(i)); i++)
        cr_expect_eq(exo_access_right(r->object, r->method, EXO_ACCESS_NONE), EXO_RIGHT_NO);
}

/* --- The cells of the table ------------------------------------------------------------------- */

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

static const exo_method methods[] = {{.name = "nothing", .run = nothing}};
static const exo_actor_class plain_class = {.name = "plain", .methods = methods, .num_methods = 1};

static void
make_roles(void)
{
    for (size_t i = 0; i < NUM_ROLES; i++)
        key_world_make_keys(exo_access_name(roles[i]), &(exo_grant){.role = roles[i], .space = ""});
}

/* Calls the method of a row, with arguments that cannot be parsed. */
static exo_status
try_row(stranger *s, const exo_access_row *row, exo_ref plain, char reason[EXO_WIRE_REASON])
{
    const char *method = strcmp(row->method, "*") == 0 ? "nothing" : row->method;
    const char *garbage = "\xff\xff\xff";
    if (strcmp(row->object, "actor") == 0)
        return stranger_call(s, plain.id, NULL, method, NULL, 0, reason, NULL, NULL);
    const char *name = strcmp(row->object, "process") == 0 ? "" : row->object;
    bool bare = strcmp(method, "list") == 0 || strcmp(method, "end") == 0;
    return stranger_call(s, 0, name, method, bare ? NULL : garbage, bare ? 0 : 3, reason, NULL,
                         NULL);
}

static exo_right
right_of(const exo_access_row *r, exo_access role)
{
    return role == EXO_ACCESS_OBSERVER ? r->observer
           : role == EXO_ACCESS_DRIVER ? r->driver
           : role == EXO_ACCESS_WORKER ? r->worker
                                       : r->admin;
}

/* Tries all rows at the process of the head, or of the worker. `absent` is the system actor that
 * the process does not have. */
static void
try_all_rows(exo_runtime *runtime, const char *endpoint, const char *server_key, const char *absent)
{
    const exo_access_row *row;
    for (size_t i = 0; i < NUM_ROLES; i++) {
        char secret[160];
        exo_keys keys;
        snprintf(secret, sizeof secret, "%s/%s.secret", key_folder, exo_access_name(roles[i]));
        cr_assert_eq(exo_keys_load(secret, &keys, NULL), EXO_OK);
        stranger s = stranger_open(endpoint, &keys, server_key);
        stranger_enter(&s, 1000 + i);
        for (size_t at = 0; (row = exo_access_row_at(at)); at++) {
            char reason[EXO_WIRE_REASON] = "";
            exo_ref plain = {0};
            exo_right right = right_of(row, roles[i]);
            bool ends = strcmp(row->method, "end") == 0 && right != EXO_RIGHT_NO;
            if (strcmp(row->object, absent) == 0 || ends)
                continue; /* an allowed "end" would end the test's own process: see the_end */
            cr_assert_eq(exo_spawn(runtime, &plain_class, NULL, &plain, NULL), EXO_OK);
            /* the reply to $monitor reports the death, before or after the call */
            if (strcmp(row->method, "$monitor") == 0 && right != EXO_RIGHT_NO)
                exo_stop(runtime, plain, true, NULL);
            exo_status st = try_row(&s, row, plain, reason);
            bool made = strcmp(row->method, "stop") != 0 && strcmp(row->method, "$stop") != 0 &&
                        strcmp(row->method, "$drain") != 0 && strcmp(row->method, "$kill") != 0;
            bool denied = right == EXO_RIGHT_NO || (right == EXO_RIGHT_OWN && !made);
            bool is_own = strcmp(row->object, "process") == 0 || strcmp(row->object, "actor") == 0;
            cr_expect_neq(st, EXO_FAILED, "%s: %s.%s: nothing came", exo_access_name(roles[i]),
                          row->object, row->method);
            cr_expect(!is_own || st != EXO_NOT_FOUND, "there is no %s.%s: %s", row->object,
                      row->method, reason);
            cr_expect_eq(st == EXO_DENIED, denied, "%s: %s.%s gave %d: %s",
                         exo_access_name(roles[i]), row->object, row->method, (int)st, reason);
            cr_expect_neq(st, EXO_CLOSED, "%s: %s.%s ended the connection: %s",
                          exo_access_name(roles[i]), row->object, row->method, reason);
            exo_stop(runtime, plain, false, NULL);
        }
        stranger_close(&s);
    }
}

static stranger
at_worker(const char *key)
{
    char secret[160];
    exo_keys worker, keys;
    snprintf(secret, sizeof secret, "%s/w1.secret", key_folder);
    cr_assert_eq(exo_keys_load(secret, &worker, NULL), EXO_OK);
    snprintf(secret, sizeof secret, "%s/%s.secret", key_folder, key);
    cr_assert_eq(exo_keys_load(secret, &keys, NULL), EXO_OK);
    return stranger_open(exo_cluster_address(key_world.worker), &keys, worker.public_key);
}

static void
try_the_table(bool local)
{
    char secret[160];
    exo_keys worker;
    key_world.local = local;
    key_world_open(true);
    make_roles();
    snprintf(secret, sizeof secret, "%s/w1.secret", key_folder);
    cr_assert_eq(exo_keys_load(secret, &worker, NULL), EXO_OK);
    const char *address = exo_cluster_address(key_world.head);
    cr_assert_eq(strncmp(address, local ? "ipc:" : "tcp:", 4), 0, "%s", address);
    try_all_rows(key_world.head_runtime, address, key_world.head_public, "worker");
    try_all_rows(key_world.runtime, exo_cluster_address(key_world.worker), worker.public_key,
                 "head");
    key_world_close();
}

Test(access, each_role_may_what_the_table_says)
{
    try_the_table(false);
}

Test(access, each_role_may_so_also_by_ipc_with_keys)
{
    try_the_table(true);
}

/* A peer without a key, or with a key that is not on the list, gets no Welcome. */
Test(access, nobody_comes_by_ipc_without_a_key)
{
    char reason[EXO_WIRE_REASON];
    const exo_envelope hello = STRANGER_HELLO;
    exo_keys unknown = key_pair_new();
    key_world.local = true;
    key_world_open(true);
    for (int i = 0; i < 2; i++) {
        stranger s = stranger_open(exo_cluster_address(key_world.head), i ? &unknown : NULL,
                                   key_world.head_public);
        stranger_say(&s, &hello);
        stranger_wait(&s, 300);
        cr_expect_not(stranger_hears(&s, EXO_WIRE_WELCOME, reason));
        stranger_close(&s);
    }
    key_world_close();
}

/* The cells that allow a call to end a process. The tests above have tried the cells that refuse
 * it. */
Test(access, the_end)
{
    char reason[EXO_WIRE_REASON];
    exo_err err = {0};
    key_world_open(true);
    make_roles();
    stranger s = at_worker("admin");
    stranger_enter(&s, 1);
    cr_expect_eq(stranger_call(&s, 0, "worker", "end", NULL, 0, reason, NULL, NULL), EXO_OK, "%s",
                 reason);
    cr_expect_eq(exo_cluster_wait(key_world.worker, INT64_MAX, key_world_soon(), &err), EXO_CLOSED,
                 "%s", err.text);
    stranger_close(&s);
    key_world_leave(&key_world.runtime, &key_world.worker);
    s = key_world_stranger("admin");
    stranger_enter(&s, 2);
    cr_expect_eq(stranger_call(&s, 0, "head", "end", NULL, 0, reason, NULL, NULL), EXO_OK, "%s",
                 reason);
    cr_expect_eq(exo_cluster_wait(key_world.head, INT64_MAX, key_world_soon(), &err), EXO_CLOSED,
                 "%s", err.text);
    stranger_close(&s);
    key_world_close();
}

/* --- Calls about the caller itself ------------------------------------------------------------ */

static exo_status ask(stranger *s, const char *method, const ProtobufCMessage *message,
                      char reason[EXO_WIRE_REASON]);

/* Calls a method that a node may call only about itself, with the node id `node`. */
static exo_status
speak_of(stranger *s, const char *method, uint64_t node, char reason[EXO_WIRE_REASON])
{
    Exo__Cluster__Register registers = EXO__CLUSTER__REGISTER__INIT;
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    Exo__Cluster__Name name = EXO__CLUSTER__NAME__INIT;
    Exo__Cluster__Report report = EXO__CLUSTER__REPORT__INIT;
    Exo__Cluster__Epitaph epitaph = EXO__CLUSTER__EPITAPH__INIT;
    Exo__Cluster__LogLines lines = EXO__CLUSTER__LOG_LINES__INIT;
    Exo__Cluster__Holdings holds = EXO__CLUSTER__HOLDINGS__INIT;
    registers.node = gone.node = name.node = report.node = epitaph.node = holds.node = node;
    registers.kind = exo_pb_text("worker");
    name.name = exo_pb_text("it");
    name.id = 1;
    report.json = exo_pb_text("{}");
    const struct {
        const char *method;
        const ProtobufCMessage *message;
    } calls[] = {{"register", &registers.base}, {"gone", &gone.base},
                 {"died", &name.base},          {"claim", &name.base},
                 {"report", &report.base},      {"epitaph", &epitaph.base},
                 {"log", &lines.base},          {"holds", &holds.base}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].method, method) == 0)
            return ask(s, method, calls[i].message, reason);
    cr_assert_fail("nobody says how %s is called", method);
    return EXO_FAILED;
}

Test(access, a_node_speaks_of_itself_only)
{
    const exo_access_row *row;
    char reason[EXO_WIRE_REASON];
    key_world_open(true);
    make_roles();
    for (size_t i = 0; i < NUM_ROLES; i++) {
        stranger s = key_world_stranger(exo_access_name(roles[i]));
        stranger_enter(&s, 500 + i);
        for (size_t at = 0; (row = exo_access_row_at(at)); at++) {
            exo_right right = right_of(row, roles[i]);
            bool claims = strcmp(row->method, "claim") == 0 && right == EXO_RIGHT_OWN;
            if (strcmp(row->object, "head") != 0 || (right != EXO_RIGHT_SELF && !claims) ||
                strcmp(row->method, "log") == 0)
                continue;
            /* a node that exists, and that is not the caller */
            uint64_t other = exo_cluster_node_id(key_world.worker);
            exo_status st = speak_of(&s, row->method, other, reason);
            cr_expect_eq(st, EXO_DENIED, "%s: %s of another: %d: %s", exo_access_name(roles[i]),
                         row->method, (int)st, reason);
        }
        stranger_close(&s);
    }
    key_world_close();
}

/* --- Actors of one driver --------------------------------------------------------------------- */

static exo_status
ask(stranger *s, const char *method, const ProtobufCMessage *message, char reason[EXO_WIRE_REASON])
{
    exo_payload args = {0};
    cr_assert_eq(exo_message_pack(&args, message), EXO_OK);
    exo_status st = stranger_call(s, 0, "head", method, args.data, args.size, reason, NULL, NULL);
    exo_payload_release(&args);
    return st;
}

static exo_status
spawn(stranger *s, const char *space, const char *name, const char *plugin,
      char reason[EXO_WIRE_REASON])
{
    Exo__Cluster__Spawn m = EXO__CLUSTER__SPAWN__INIT;
    char *plugins[] = {exo_pb_text(plugin)};
    m.class_name = exo_pb_text("plain");
    m.space = exo_pb_text(space);
    m.name = exo_pb_text(name);
    m.owner = exo_pb_text("admin"); /* false: the caller is not this owner */
    m.plugins = plugins;
    m.n_plugins = plugin != NULL;
    return ask(s, "spawn", &m.base, reason);
}

Test(access, a_driver_has_what_is_its_own)
{
    char reason[EXO_WIRE_REASON];
    exo_err err = {0};
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    key_world_open(true);
    cr_assert_eq(exo_actor_class_register(&plain_class, &err), EXO_OK);
    key_world_make_keys("red", &(exo_grant){.role = EXO_ACCESS_DRIVER, .space = "team"});
    key_world_make_keys("blue", &(exo_grant){.role = EXO_ACCESS_DRIVER, .space = "team"});
    key_world_make_keys("green", &(exo_grant){.role = EXO_ACCESS_DRIVER});
    stranger red = key_world_stranger("red"), blue = key_world_stranger("blue"),
             green = key_world_stranger("green");
    stranger_enter(&red, 101);
    stranger_enter(&blue, 102);
    stranger_enter(&green, 103);
    cr_expect_eq(spawn(&red, "team", "mine", NULL, reason), EXO_OK, "%s", reason);
    cr_expect_eq(spawn(&red, "other", "mine", NULL, reason), EXO_DENIED);
    cr_expect_eq(spawn(&red, "exogym", "head", NULL, reason), EXO_DENIED);
    cr_expect_eq(spawn(&red, "team", "loads", "/etc/passwd", reason), EXO_DENIED);
    cr_expect_not_null(strstr(reason, "without --plugin-dir"), "%s", reason);
    m.space = exo_pb_text("team");
    m.name = exo_pb_text("mine");
    cr_expect_eq(ask(&blue, "find", &m.base, reason), EXO_OK, "%s", reason);
    for (int alive = 0; alive < 2; alive++) {
        m.alive = alive == 1;
        cr_expect_eq(ask(&blue, "give_up", &m.base, reason), EXO_DENIED);
        cr_expect_not_null(strstr(reason, "did not make this actor"), "%s", reason);
    }
    m.alive = false;
    cr_expect_eq(ask(&green, "find", &m.base, reason), EXO_DENIED);
    cr_expect_eq(ask(&green, "why", &m.base, reason), EXO_DENIED);
    cr_expect_eq(ask(&red, "give_up", &m.base, reason), EXO_OK, "%s", reason);
    Exo__Cluster__Register as_worker = EXO__CLUSTER__REGISTER__INIT;
    as_worker.node = 101;
    as_worker.kind = exo_pb_text("worker");
    cr_expect_eq(ask(&red, "register", &as_worker.base, reason), EXO_DENIED);
    stranger_close(&red);
    stranger_close(&blue);
    stranger_close(&green);
    key_world_close();
}

/* Registers a node with an actor that it claims to have had under an earlier head. */
static exo_status
tell_of_old(stranger *s, uint64_t node, const char *kind, Exo__Cluster__Actor *actor, size_t *ended,
            char reason[EXO_WIRE_REASON])
{
    uint8_t value[EXO_WIRE_INLINE];
    size_t size = 0;
    exo_payload args = {0};
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = node;
    m.kind = exo_pb_text(kind);
    m.job = exo_pb_text(actor->spec->name);
    m.actors = &actor;
    m.n_actors = 1;
    cr_assert_eq(exo_message_pack(&args, &m.base), EXO_OK);
    exo_status st =
        stranger_call(s, 0, "head", "register", args.data, args.size, reason, value, &size);
    exo_payload_release(&args);
    const exo_payload reply = {.data = value, .size = size};
    Exo__Cluster__RegisterReply *r =
        EXO_UNPACK(Exo__Cluster__RegisterReply, exo__cluster__register_reply, &reply);
    cr_assert(r);
    *ended = r->n_ended;
    EXO_RELEASE(r);
    return st;
}

/* A restarted head adopts the actors that nodes report, if the node may have such actors. It
 * ignores their restart rules unless the node is an admin, because by a restart a node could have
 * actors made at other nodes. */
Test(access, nobody_has_made_elsewhere_what_it_says_it_had)
{
    static const struct {
        const char *key, *kind, *space;
        bool believed;
    } cases[] = {{"red", "driver", "other", false},
                 {"red", "driver", "exogym", false},
                 {"red", "driver", "team", true},
                 {"w2", "worker", "other", true},
                 {"w2", "worker", "exogym", false}};
    char reason[EXO_WIRE_REASON];
    char *plugins[] = {exo_pb_text("/nonexistent/evil.so")};
    key_world_open(true);
    key_world_make_keys("red", &(exo_grant){.role = EXO_ACCESS_DRIVER, .space = "team"});
    key_world_make_keys("w2", &(exo_grant){.role = EXO_ACCESS_WORKER});
    stranger admin = key_world_stranger("evil");
    stranger_enter(&admin, 99);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[16];
        size_t ended = 0;
        stranger s = key_world_stranger(cases[i].key);
        stranger_enter(&s, 100 + i);
        Exo__Cluster__Actor actor = EXO__CLUSTER__ACTOR__INIT;
        Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
        Exo__Cluster__RestartRule rule = EXO__CLUSTER__RESTART_RULE__INIT;
        Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
        snprintf(name, sizeof name, "old-%zu", i);
        rule.when = EXO_RESTART_ALWAYS;
        rule.backoff = EXO_SECOND;
        spec.class_name = exo_pb_text("plain");
        spec.space = exo_pb_text(cases[i].space);
        spec.name = name;
        spec.plugins = plugins;
        spec.n_plugins = 1;
        spec.detached = true;
        spec.restart = &rule;
        actor.key = m.key = 7 + i;
        actor.id = m.id = 5;
        actor.incarnation = m.incarnation = 1;
        actor.spec = &spec;
        cr_expect_eq(tell_of_old(&s, 100 + i, cases[i].kind, &actor, &ended, reason), EXO_OK, "%s",
                     reason);
        cr_expect_eq(ended, !cases[i].believed, "%s in %s", cases[i].kind, cases[i].space);
        m.node = 100 + i;
        m.failure = true;
        m.cause = exo_pb_text("it says so");
        cr_expect_eq(ask(&s, "died", &m.base, reason), EXO_OK, "%s", reason);
        m.space = spec.space;
        m.name = name;
        m.at_once = true;
        cr_expect_eq(ask(&admin, "find", &m.base, reason), EXO_NOT_FOUND,
                     "%s of %s in %s lives again: %s", name, cases[i].kind, cases[i].space, reason);
        stranger_close(&s);
    }
    stranger_close(&admin);
    key_world_close();
}

/* The members of a group end together, so a driver cannot join a group of another driver. */
Test(access, a_driver_joins_no_group_of_another)
{
    char reason[EXO_WIRE_REASON];
    Exo__Cluster__Spawn m = EXO__CLUSTER__SPAWN__INIT;
    key_world_open(true);
    cr_assert_eq(exo_actor_class_register(&plain_class, NULL), EXO_OK);
    key_world_make_keys("red", &(exo_grant){.role = EXO_ACCESS_DRIVER, .space = "team"});
    key_world_make_keys("blue", &(exo_grant){.role = EXO_ACCESS_DRIVER, .space = "team"});
    stranger red = key_world_stranger("red"), blue = key_world_stranger("blue");
    stranger_enter(&red, 101);
    stranger_enter(&blue, 102);
    m.class_name = exo_pb_text("plain");
    m.space = exo_pb_text("team");
    m.group = exo_pb_text("group");
    m.group_rule = EXO_ALL_FOR_ONE;
    cr_expect_eq(ask(&red, "spawn", &m.base, reason), EXO_OK, "%s", reason);
    cr_expect_eq(ask(&blue, "spawn", &m.base, reason), EXO_DENIED, "%s", reason);
    cr_expect_not_null(strstr(reason, "in its group"), "%s", reason);
    cr_expect_eq(ask(&red, "spawn", &m.base, reason), EXO_OK, "%s", reason);
    stranger_close(&red);
    stranger_close(&blue);
    key_world_close();
}

/* --- Restrictions of a class ------------------------------------------------------------------ */

static const exo_method narrow_methods[] = {
    {.name = "any", .run = nothing},
    {.name = "for_drivers", .run = nothing, .callers = EXO_CALLERS_DRIVERS},
    {.name = "for_workers", .run = nothing, .callers = EXO_CALLERS_WORKERS},
    {.name = "for_both", .run = nothing, .callers = EXO_CALLERS_DRIVERS | EXO_CALLERS_WORKERS},
    {.name = "for_admins", .run = nothing, .callers = EXO_CALLERS_ADMINS},
};

enum {
    NUM_NARROW = sizeof narrow_methods / sizeof *narrow_methods
};

static const exo_actor_class open_class = {.name = "open",
                                           .methods = narrow_methods,
                                           .num_methods = NUM_NARROW},
                             worker_class = {.name = "for_workers",
                                             .methods = narrow_methods,
                                             .num_methods = NUM_NARROW,
                                             .callers = EXO_CALLERS_WORKERS},
                             admin_class = {.name = "for_admins",
                                            .methods = narrow_methods,
                                            .num_methods = NUM_NARROW,
                                            .callers = EXO_CALLERS_ADMINS};

/* The roles that may call each method, in the order of narrow_methods: d(river), w(orker),
 * a(dmin). */
static const struct {
    const exo_actor_class *actor_class;
    const char *may[NUM_NARROW];
} narrow[] = {{&open_class, {"dwa", "da", "wa", "dwa", "a"}},
              {&worker_class, {"wa", "a", "wa", "wa", "a"}},
              {&admin_class, {"a", "a", "a", "a", "a"}}};

static void
try_narrow(stranger *s, char role, exo_runtime *runtime)
{
    char reason[EXO_WIRE_REASON], text[128];
    for (size_t c = 0; c < sizeof narrow / sizeof *narrow; c++) {
        exo_ref actor = {0};
        exo_err err = {0};
        cr_assert_eq(exo_spawn(runtime, narrow[c].actor_class, NULL, &actor, &err), EXO_OK, "%s",
                     err.text);
        for (size_t m = 0; m < NUM_NARROW; m++) {
            const char *name = narrow_methods[m].name;
            exo_status st = stranger_call(s, actor.id, NULL, name, NULL, 0, reason, NULL, NULL);
            bool may = strchr(narrow[c].may[m], role) != NULL;
            cr_expect_eq(st, may ? EXO_OK : EXO_DENIED, "%c: %s.%s: %d: %s", role,
                         narrow[c].actor_class->name, name, (int)st, reason);
            snprintf(text, sizeof text, "may not call `%s` of the class '%s'", name,
                     narrow[c].actor_class->name);
            cr_expect(may || role == 'o' || strstr(reason, text), "%s", reason);
            cr_expect_eq(
                exo_call_wait(runtime, actor, name, (exo_payload){0}, key_world_soon(), NULL, &err),
                EXO_OK, "within the process nobody is asked: %s", err.text);
        }
        cr_expect_eq(stranger_call(s, actor.id, NULL, "ping", NULL, 0, reason, NULL, NULL), EXO_OK,
                     "%s", reason);
        exo_stop(runtime, actor, false, NULL);
    }
}

Test(access, a_class_says_who_may_call_it)
{
    key_world_open(true);
    make_roles();
    for (size_t i = 0; i < NUM_ROLES; i++) {
        stranger s = at_worker(exo_access_name(roles[i]));
        stranger_enter(&s, 600 + i);
        try_narrow(&s, exo_access_name(roles[i])[0], key_world.runtime);
        stranger_close(&s);
    }
    key_world_close();
}

/* Without keys there are no roles, and each caller of this host may call everything. */
Test(access, a_class_is_open_to_this_host)
{
    key_world_open(false);
    stranger s = stranger_open(exo_cluster_address(key_world.worker), NULL, NULL);
    stranger_enter(&s, 700);
    try_narrow(&s, 'a', key_world.runtime);
    stranger_close(&s);
    key_world_close();
}

Test(access, a_class_names_roles_that_there_are)
{
    static const exo_method observed[] = {{.name = "look", .run = nothing, .callers = 1}};
    static const exo_actor_class wrong[] = {
        {.name = "wrong", .methods = observed, .num_methods = 1},
        {.name = "wrong", .callers = 128}};
    exo_runtime *runtime = NULL;
    exo_ref actor;
    cr_assert_eq(exo_runtime_open(&runtime, &(exo_runtime_opts){.threads = 1}, NULL), EXO_OK);
    for (size_t i = 0; i < 2; i++) {
        exo_err err = {0};
        cr_expect_eq(exo_spawn(runtime, &wrong[i], NULL, &actor, &err), EXO_INVAL);
        cr_expect_not_null(strstr(err.text, "none of exo_callers"), "%s", err.text);
    }
    cr_expect_eq(exo_runtime_close(&runtime, key_world_soon(), NULL), EXO_OK);
}

/* --- Lists that a driver sees ----------------------------------------------------------------- */

static Exo__Cluster__Listing *
list(stranger *s)
{
    static uint8_t value[EXO_WIRE_INLINE];
    char reason[EXO_WIRE_REASON];
    size_t size = 0;
    cr_assert_eq(stranger_call(s, 0, "head", "list", NULL, 0, reason, value, &size), EXO_OK, "%s",
                 reason);
    const exo_payload reply = {.data = value, .size = size};
    Exo__Cluster__Listing *listing =
        EXO_UNPACK(Exo__Cluster__Listing, exo__cluster__listing, &reply);
    cr_assert_not_null(listing);
    return listing;
}

static void
drive(stranger *s, uint64_t node, const char *job)
{
    char reason[EXO_WIRE_REASON];
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = node;
    m.name = m.job = exo_pb_text(job);
    m.kind = exo_pb_text("driver");
    stranger_enter(s, node);
    cr_assert_eq(ask(s, "register", &m.base, reason), EXO_OK, "%s", reason);
}

/* Expects the names of the nodes, jobs, actors and peers that the caller sees. */
static void
expect_seen(stranger *s, const char *expected)
{
    char text[512] = "";
    Exo__Cluster__Listing *l = list(s);
    size_t at = 0;
    for (size_t i = 0; i < l->n_nodes; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s ", l->nodes[i]->name);
    at += (size_t)snprintf(text + at, sizeof text - at, "|");
    for (size_t i = 0; i < l->n_jobs; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, " %s", l->jobs[i]->name);
    at += (size_t)snprintf(text + at, sizeof text - at, " |");
    for (size_t i = 0; i < l->n_actors; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, " %s", l->actors[i]->name);
    at += (size_t)snprintf(text + at, sizeof text - at, " |");
    for (size_t i = 0; i < l->n_peers; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, " %s", l->peers[i]->name);
    cr_expect_str_eq(text, expected);
    EXO_RELEASE(l);
}

Test(access, a_driver_sees_what_is_its_own)
{
    char reason[EXO_WIRE_REASON];
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    exo_err err = {0};
    key_world_open(true);
    cr_assert_eq(exo_actor_class_register(&plain_class, &err), EXO_OK);
    make_roles();
    key_world_make_keys("red", &(exo_grant){.role = EXO_ACCESS_DRIVER, .space = "team"});
    key_world_make_keys("blue", &(exo_grant){.role = EXO_ACCESS_DRIVER, .space = "team"});
    key_world_make_keys("green", &(exo_grant){.role = EXO_ACCESS_DRIVER});
    stranger red = key_world_stranger("red"), blue = key_world_stranger("blue"),
             green = key_world_stranger("green");
    stranger watch = key_world_stranger("observer"), boss = key_world_stranger("admin");
    drive(&red, 101, "red");
    drive(&blue, 102, "blue");
    stranger_enter(&green, 103);
    stranger_enter(&watch, 104);
    stranger_enter(&boss, 105);
    cr_expect_eq(spawn(&red, "team", "a", NULL, reason), EXO_OK, "%s", reason);
    /* the peers are its process, and its key, which has the actor */
    expect_seen(&red, "w1 red | red | a | red red");
    expect_seen(&blue, "w1 blue | blue | a | blue");
    expect_seen(&green, "w1 | | |");
    expect_seen(&watch, "w1 red blue | red blue | a | w1 red blue red");
    expect_seen(&boss, "w1 red blue | red blue | a | w1 red blue red");
    m.space = exo_pb_text("default");
    m.name = exo_pb_text("red"); /* the name of a driver's node */
    cr_expect_eq(ask(&green, "why", &m.base, reason), EXO_NOT_FOUND, "%s", reason);
    cr_expect_eq(ask(&boss, "why", &m.base, reason), EXO_OK, "%s", reason);

    /* The job belongs to its driver also after its end, and another connection with the same key
     * sees it. */
    gone.node = 101;
    gone.state = exo_pb_text("left");
    cr_expect_eq(ask(&red, "gone", &gone.base, reason), EXO_OK, "%s", reason);
    stranger again = key_world_stranger("red");
    stranger_enter(&again, 106);
    expect_seen(&again, "w1 red | red | a | red");
    expect_seen(&blue, "w1 blue | blue | a | blue");
    stranger_close(&again);
    stranger_close(&red);
    stranger_close(&blue);
    stranger_close(&green);
    stranger_close(&watch);
    stranger_close(&boss);
    key_world_close();
}

/* Spawns an actor of a job. */
static exo_status
spawn_of(stranger *s, const char *job, const char *space, const char *name, bool detached,
         char reason[EXO_WIRE_REASON])
{
    Exo__Cluster__Spawn m = EXO__CLUSTER__SPAWN__INIT;
    m.class_name = exo_pb_text("plain");
    m.space = exo_pb_text(space);
    m.name = exo_pb_text(name);
    m.job = exo_pb_text(job);
    m.detached = detached;
    return ask(s, "spawn", &m.base, reason);
}

/* A job's actors live in their own namespaces, whose names begin with the job's name. */
Test(access, a_driver_has_the_namespaces_of_its_jobs)
{
    char reason[EXO_WIRE_REASON];
    exo_err err = {0};
    exo_ref actor = {0};
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    key_world_open(true);
    cr_assert_eq(exo_actor_class_register(&plain_class, &err), EXO_OK);
    key_world_make_keys("red", &(exo_grant){.role = EXO_ACCESS_DRIVER});
    key_world_make_keys("blue", &(exo_grant){.role = EXO_ACCESS_DRIVER});
    stranger red = key_world_stranger("red"), blue = key_world_stranger("blue");
    drive(&red, 101, "red/one");
    drive(&blue, 102, "blue");
    cr_expect_eq(spawn_of(&red, "red/one", "red/one/7", "a", false, reason), EXO_OK, "%s", reason);
    cr_expect_eq(spawn_of(&red, "red/one", "red/one/7", "b", true, reason), EXO_DENIED,
                 "it would stay");
    cr_expect_not_null(strstr(reason, "which end with it"), "%s", reason);
    cr_expect_eq(spawn(&red, "red/one/7", "b", NULL, reason), EXO_DENIED,
                 "of no job, it would stay");
    cr_expect_eq(spawn(&red, "red/7", "a", NULL, reason), EXO_DENIED, "no job of that name");
    cr_expect_eq(spawn(&red, "red", "a", NULL, reason), EXO_DENIED,
                 "a key may have that namespace");
    cr_expect_eq(spawn(&red, "blue/7", "a", NULL, reason), EXO_DENIED);
    cr_expect_eq(spawn(&blue, "red/one/7", "b", NULL, reason), EXO_DENIED);
    m.space = exo_pb_text("red/one/7");
    m.name = exo_pb_text("a");
    cr_expect_eq(ask(&red, "find", &m.base, reason), EXO_OK, "%s", reason);
    cr_expect_eq(ask(&red, "why", &m.base, reason), EXO_OK, "%s", reason);
    cr_expect_eq(ask(&blue, "find", &m.base, reason), EXO_DENIED);
    cr_expect_eq(ask(&blue, "why", &m.base, reason), EXO_DENIED);
    cr_expect_eq(ask(&blue, "give_up", &m.base, reason), EXO_DENIED);
    expect_seen(&red, "w1 red/one | red/one | a | red/one red");
    expect_seen(&blue, "w1 blue | blue | | blue");
    cr_assert_eq(exo_get_actor(key_world.runtime, "red/one/7", "a", &actor, &err), EXO_OK, "%s",
                 err.text);
    stranger red_there = at_worker("red"), blue_there = at_worker("blue");
    stranger_enter(&red_there, 103);
    stranger_enter(&blue_there, 104);
    cr_expect_eq(stranger_call(&red_there, actor.id, NULL, "nothing", NULL, 0, reason, NULL, NULL),
                 EXO_OK, "%s", reason);
    cr_expect_eq(stranger_call(&blue_there, actor.id, NULL, "nothing", NULL, 0, reason, NULL, NULL),
                 EXO_DENIED);
    cr_expect_eq(stranger_call(&blue_there, actor.id, NULL, "ping", NULL, 0, reason, NULL, NULL),
                 EXO_DENIED);

    /* Another key that takes the job's name later gets none of the earlier job's actors. */
    gone.node = 101;
    gone.state = exo_pb_text("left");
    cr_expect_eq(ask(&red, "gone", &gone.base, reason), EXO_OK, "%s", reason);
    cr_expect_eq(spawn_of(&red, "red/one", "red/one/7", "c", false, reason), EXO_NOT_FOUND,
                 "the job has ended");
    stranger again = key_world_stranger("blue");
    drive(&again, 105, "red/one");
    EVENTUALLY(stranger_call(&blue_there, actor.id, NULL, "nothing", NULL, 0, reason, NULL, NULL) ==
               EXO_PEER_LOST);
    m.name = exo_pb_text("a");
    cr_expect_eq(ask(&again, "find", &m.base, reason), EXO_NOT_FOUND, "it ended with its job: %s",
                 reason);
    stranger_close(&again);
    stranger_close(&red_there);
    stranger_close(&blue_there);
    stranger_close(&red);
    stranger_close(&blue);
    key_world_close();
}

/* The lines that a worker printed and the calls that it ran can belong to other drivers. */
Test(access, a_driver_sees_no_last_lines)
{
    uint8_t value[EXO_WIRE_INLINE];
    char reason[EXO_WIRE_REASON];
    size_t size = 0;
    Exo__Cluster__Epitaph epitaph = EXO__CLUSTER__EPITAPH__INIT;
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    Exo__Cluster__Register registers = EXO__CLUSTER__REGISTER__INIT;
    key_world_open(true);
    make_roles();
    stranger worker = key_world_stranger("worker");
    stranger_enter(&worker, 901);
    registers.node = epitaph.node = 901;
    registers.name = epitaph.name = m.name = exo_pb_text("w9");
    registers.kind = exo_pb_text("worker");
    epitaph.cause = exo_pb_text("was killed");
    epitaph.running = exo_pb_text("secret_actor.run");
    epitaph.log = exo_pb_text("a secret line\n");
    cr_assert_eq(ask(&worker, "register", &registers.base, reason), EXO_OK, "%s", reason);
    cr_assert_eq(ask(&worker, "epitaph", &epitaph.base, reason), EXO_OK, "%s", reason);
    for (size_t i = 0; i < 2; i++) {
        exo_payload args = {0};
        stranger s = key_world_stranger(i ? "observer" : "driver");
        stranger_enter(&s, 910 + i);
        cr_assert_eq(exo_message_pack(&args, &m.base), EXO_OK);
        cr_assert_eq(
            stranger_call(&s, 0, "head", "why", args.data, args.size, reason, value, &size), EXO_OK,
            "%s", reason);
        value[size] = 0;
        cr_expect_not_null(strstr((char *)value, "was killed"), "%s", (char *)value);
        cr_expect_eq(strstr((char *)value, "secret") != NULL, i == 1, "%s", (char *)value);
        exo_payload_release(&args);
        stranger_close(&s);
    }
    stranger_close(&worker);
    key_world_close();
}

/* --- Keys that end ---------------------------------------------------------------------------- */

/* Replaces the key file of `keys`. */
static void
put_key(const char *name, const exo_keys *keys, const char *lines)
{
    char file[160], text[512];
    snprintf(file, sizeof file, "authorized/%s.key", name);
    snprintf(text, sizeof text, "public %s\n%s", keys->public_key, lines);
    key_folder_put(file, 0644, text);
}

Test(access, a_key_that_ends_ends_its_connections)
{
    const struct {
        const char *lines, *why; /* lines: NULL: the file is removed */
    } cases[] = {{NULL, "is not let in any more"},
                 {"role admin\nexpires 2001-01-01\n", "has expired"},
                 {"role observer\n", "another role"},
                 {"role driver\nnamespace team\n", "another role"}};
    char reason[EXO_WIRE_REASON], path[160];
    key_world_open(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_keys keys = key_pair_new();
        put_key("brief", &keys, "role admin\n");
        stranger s =
            stranger_open(exo_cluster_address(key_world.head), &keys, key_world.head_public);
        stranger t =
            stranger_open(exo_cluster_address(key_world.head), &keys, key_world.head_public);
        stranger_enter(&s, 200 + 2 * i);
        stranger_enter(&t, 201 + 2 * i);
        cr_expect_eq(stranger_call(&s, 0, "head", "list", NULL, 0, reason, NULL, NULL), EXO_OK,
                     "%s", reason);
        snprintf(path, sizeof path, "%s/authorized/brief.key", key_folder);
        if (cases[i].lines)
            put_key("brief", &keys, cases[i].lines);
        else
            cr_assert_eq(unlink(path), 0);
        stranger_expect(&s, EXO_WIRE_GOODBYE, reason);
        cr_expect_not_null(strstr(reason, cases[i].why), "%s", reason);
        stranger_expect(&t, EXO_WIRE_GOODBYE, reason);
        /* The old connection gets no further replies. A new Hello is accepted only if the key still
         * is. */
        exo_status st = stranger_call(&s, 0, "head", "list", NULL, 0, reason, NULL, NULL);
        cr_expect_eq(st, EXO_CLOSED, "%d", (int)st);
        exo_envelope hello = STRANGER_HELLO;
        hello.who.node = 300 + i;
        bool is_let_in = cases[i].lines && strcmp(cases[i].why, "another role") == 0;
        if (!is_let_in) {
            stranger_say_all(&t, 0, &hello, 1, 0);
            stranger_wait(&t, 300);
            cr_expect_not(stranger_hears(&t, EXO_WIRE_WELCOME, reason));
        }
        stranger_close(&s);
        stranger_close(&t);
        unlink(path);
    }
    key_world_close();
}
