/* What each role may do: every cell of the table is tried over CURVE by a raw peer with a key of that role, and no method is without a row;
 * and what becomes of connections whose key is taken away, expires or gets another role.
 *
 * Read next: runtime/cluster/access.c, runtime/net/proof.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "access.h"
#include "eventually.h"
#include "head.h"
#include "hooks.h"
#include "key_world.h"
#include "messages.h"
#include "worker.h"

char key_folder[64];
struct key_world key_world;

static const exo_access roles[] = {EXO_ACCESS_OBSERVER, EXO_ACCESS_DRIVER, EXO_ACCESS_WORKER, EXO_ACCESS_ADMIN};

enum {
    NUM_ROLES = sizeof roles / sizeof *roles
};

/* --- The table --------------------------------------------------------------------------------------------------------------------- */

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
            cr_expect(has_row(classes[c]->name, classes[c]->methods[i].name), "nobody says who may call %s.%s",
                      classes[c]->name, classes[c]->methods[i].name);
    for (size_t i = 0; (r = exo_access_row_at(i)); i++) {
        bool head = strcmp(r->object, "head") == 0, worker = strcmp(r->object, "worker") == 0;
        if (head || worker)
            cr_expect(has_method(head ? &exo_head_class : &exo_worker_class, r->method), "there is no %s.%s", r->object,
                      r->method);
    }
    cr_expect_eq(exo_access_right("head", "no such method", EXO_ACCESS_ADMIN), EXO_RIGHT_NO);
    for (size_t i = 0; (r = exo_access_row_at(i)); i++)
        cr_expect_eq(exo_access_right(r->object, r->method, EXO_ACCESS_NONE), EXO_RIGHT_NO);
}

/* --- Its cells --------------------------------------------------------------------------------------------------------------------- */

static exo_status
nothing(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
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

/* Calls what a row names, with arguments that nothing can be made of. */
static exo_status
try_row(stranger *s, const exo_access_row *row, exo_ref plain, char reason[EXO_WIRE_REASON])
{
    const char *method = strcmp(row->method, "*") == 0 ? "nothing" : row->method;
    const char *garbage = "\xff\xff\xff";
    if (strcmp(row->object, "actor") == 0)
        return stranger_call(s, plain.id, NULL, method, NULL, 0, reason, NULL, NULL);
    const char *name = strcmp(row->object, "process") == 0 ? "" : row->object;
    bool bare = strcmp(method, "list") == 0 || strcmp(method, "end") == 0;
    return stranger_call(s, 0, name, method, bare ? NULL : garbage, bare ? 0 : 3, reason, NULL, NULL);
}

static exo_right
right_of(const exo_access_row *r, exo_access role)
{
    return role == EXO_ACCESS_OBSERVER ? r->observer
           : role == EXO_ACCESS_DRIVER ? r->driver
           : role == EXO_ACCESS_WORKER ? r->worker
                                       : r->admin;
}

/* At the process of the head, or of the worker. */
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
            bool ends = strcmp(row->method, "end") == 0 || strcmp(row->method, "$monitor") == 0;
            exo_right right = right_of(row, roles[i]);
            if (strcmp(row->object, absent) == 0 || (ends && right != EXO_RIGHT_NO))
                continue; /* it would end us, or tells of a death only */
            cr_assert_eq(exo_spawn(runtime, &plain_class, NULL, &plain, NULL), EXO_OK);
            exo_status st = try_row(&s, row, plain, reason);
            bool made = strcmp(row->method, "stop") != 0 && strcmp(row->method, "$stop") != 0 &&
                        strcmp(row->method, "$drain") != 0 && strcmp(row->method, "$kill") != 0;
            bool denied = right == EXO_RIGHT_NO || (right == EXO_RIGHT_OWN && !made);
            bool is_own = strcmp(row->object, "process") == 0 || strcmp(row->object, "actor") == 0;
            cr_expect(!is_own || st != EXO_NOT_FOUND, "there is no %s.%s: %s", row->object, row->method, reason);
            cr_expect_eq(st == EXO_DENIED, denied, "%s: %s.%s gave %d: %s", exo_access_name(roles[i]), row->object,
                         row->method, (int)st, reason);
            cr_expect_neq(st, EXO_CLOSED, "%s: %s.%s ended the connection: %s", exo_access_name(roles[i]), row->object,
                          row->method, reason);
            exo_stop(runtime, plain, false, NULL);
        }
        stranger_close(&s);
    }
}

Test(access, each_role_may_what_the_table_says)
{
    char worker_public[EXO_KEY_TEXT];
    exo_keys worker;
    char secret[160];
    key_world_open(true);
    make_roles();
    snprintf(secret, sizeof secret, "%s/w1.secret", key_folder);
    cr_assert_eq(exo_keys_load(secret, &worker, NULL), EXO_OK);
    snprintf(worker_public, sizeof worker_public, "%s", worker.public_key);
    try_all_rows(key_world.head_runtime, exo_cluster_address(key_world.head), key_world.head_public, "worker");
    try_all_rows(key_world.runtime, exo_cluster_address(key_world.worker), worker_public, "head");
    key_world_close();
}

/* --- What is a driver's own -------------------------------------------------------------------------------------------------------- */

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
spawn(stranger *s, const char *space, const char *name, const char *plugin, char reason[EXO_WIRE_REASON])
{
    Exo__Cluster__Spawn m = EXO__CLUSTER__SPAWN__INIT;
    char *plugins[] = {exo_pb_text(plugin)};
    m.class_name = exo_pb_text("plain");
    m.space = exo_pb_text(space);
    m.name = exo_pb_text(name);
    m.owner = exo_pb_text("admin"); /* a lie */
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
    stranger red = key_world_stranger("red"), blue = key_world_stranger("blue"), green = key_world_stranger("green");
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
    cr_expect_eq(ask(&blue, "give_up", &m.base, reason), EXO_DENIED);
    cr_expect_not_null(strstr(reason, "did not make this actor"), "%s", reason);
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

/* --- Keys that end ----------------------------------------------------------------------------------------------------------------- */

/* Writes the key file of `keys` anew. */
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
        const char *lines, *why; /* lines: NULL: the file goes */
    } cases[] = {{NULL, "is not let in any more"},
                 {"role admin\nexpires 2001-01-01\n", "has expired"},
                 {"role observer\n", "another role"},
                 {"role driver\nnamespace team\n", "another role"}};
    char reason[EXO_WIRE_REASON], path[160];
    key_world_open(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_keys keys = key_pair_new();
        put_key("brief", &keys, "role admin\n");
        stranger s = stranger_open(exo_cluster_address(key_world.head), &keys, key_world.head_public);
        stranger t = stranger_open(exo_cluster_address(key_world.head), &keys, key_world.head_public);
        stranger_enter(&s, 200 + 2 * i);
        stranger_enter(&t, 201 + 2 * i);
        cr_expect_eq(stranger_call(&s, 0, "head", "list", NULL, 0, reason, NULL, NULL), EXO_OK, "%s", reason);
        snprintf(path, sizeof path, "%s/authorized/brief.key", key_folder);
        if (cases[i].lines)
            put_key("brief", &keys, cases[i].lines);
        else
            cr_assert_eq(unlink(path), 0);
        stranger_expect(&s, EXO_WIRE_GOODBYE, reason);
        cr_expect_not_null(strstr(reason, cases[i].why), "%s", reason);
        stranger_expect(&t, EXO_WIRE_GOODBYE, reason);
        /* By the same connection, nothing more is heard; a Hello only with what the key is now. */
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
