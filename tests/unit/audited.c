/* The audit logs of a head and a worker record what peers with keys do: admissions and refusals,
 * actors made and ended, denied calls, and keys that are added or end. Reads and ordinary calls are
 * not recorded.
 *
 * The test's thread owns the head and the worker (key_world.h). Read next:
 * runtime/cluster/head_audit.c, runtime/base/audit.h, tests/unit/audit.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <jansson.h>

#include <exogym/memory.h>

#include "cluster/messages.h"
#include "support/eventually.h"
#include "support/key_world.h"

char key_folder[64];
struct key_world key_world;

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

static const exo_method methods[] = {
    {.name = "nothing", .run = nothing},
    {.name = "for_workers", .run = nothing, .callers = EXO_CALLERS_WORKERS}};
static const exo_actor_class plain_class = {.name = "plain", .methods = methods, .num_methods = 2};

/* --- Reading a log ---------------------------------------------------------------------------- */

/* Counts the records in NAME.audit that match. `wanted` holds pairs of a field and a part of its
 * value. Expects that each line is JSON. */
static size_t
count(const char *name, const char *const *wanted, size_t num_wanted)
{
    char path[128], *line = NULL;
    size_t size = 0, found = 0;
    ssize_t length;
    snprintf(path, sizeof path, "%s/%s.audit", key_folder, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    while ((length = getline(&line, &size, file)) > 0) {
        if (line[length - 1] != '\n')
            break; /* the line is still being written */
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        cr_assert_not_null(object, "%s", line);
        bool same = true;
        for (size_t i = 0; i + 1 < num_wanted && same; i += 2) {
            const char *text = json_string_value(json_object_get(object, wanted[i]));
            same = text && strstr(text, wanted[i + 1]);
        }
        found += same;
        json_decref(object);
    }
    free(line);
    fclose(file);
    return found;
}

#define COUNT(name, ...)                                                                           \
    count(name, (const char *const[]){__VA_ARGS__},                                                \
          sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))
#define RECORDED(name, ...) EVENTUALLY(COUNT(name, __VA_ARGS__) > 0)

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
spawn(stranger *s, const char *space, const char *name, char reason[EXO_WIRE_REASON])
{
    Exo__Cluster__Spawn m = EXO__CLUSTER__SPAWN__INIT;
    m.class_name = exo_pb_text("plain");
    m.space = exo_pb_text(space);
    m.name = exo_pb_text(name);
    return ask(s, "spawn", &m.base, reason);
}

static stranger
at_worker(const char *key)
{
    char path[160];
    exo_keys worker, keys;
    snprintf(path, sizeof path, "%s/w1.secret", key_folder);
    cr_assert_eq(exo_keys_load(path, &worker, NULL), EXO_OK);
    snprintf(path, sizeof path, "%s/%s.secret", key_folder, key);
    cr_assert_eq(exo_keys_load(path, &keys, NULL), EXO_OK);
    return stranger_open(exo_cluster_address(key_world.worker), &keys, worker.public_key);
}

static void
open_world(void)
{
    key_world.audited = true;
    key_world_open(true);
    cr_assert_eq(exo_actor_class_register(&plain_class, NULL), EXO_OK);
    key_world_make_keys("red", &(exo_grant){.role = EXO_ACCESS_DRIVER, .space = "team"});
    key_world_make_keys("watch", &(exo_grant){.role = EXO_ACCESS_OBSERVER});
}

/* --- Admissions ------------------------------------------------------------------------------- */

Test(audited, who_is_let_in_and_who_is_not)
{
    char reason[EXO_WIRE_REASON];
    exo_envelope hello = STRANGER_HELLO;
    open_world();
    exo_keys unknown = key_pair_new(),
             late =
                 key_world_make_keys("late", &(exo_grant){.role = EXO_ACCESS_ADMIN, .expires = 1});
    stranger s = key_world_stranger("red");
    stranger_enter(&s, 1);
    RECORDED("head", "event", "admitted", "outcome", "allowed", "who", "red", "role", "driver",
             "address", "127.0.0.1", "node", "0000000000000001", "subject", "stranger");
    RECORDED("head", "event", "admitted", "who", "w1", "role", "worker");
    stranger_close(&s);

    s = stranger_open(exo_cluster_address(key_world.head), &unknown, key_world.head_public);
    RECORDED("head", "event", "refused", "outcome", "refused", "key", unknown.public_key, "address",
             "127.0.0.1", "reason", "key is not authorized");
    stranger_close(&s);
    s = stranger_open(exo_cluster_address(key_world.head), &late, key_world.head_public);
    RECORDED("head", "event", "refused", "who", "late", "key", late.public_key, "reason",
             "key has expired");
    stranger_close(&s);

    hello.who.cluster = "theirs\n\"}";
    s = key_world_stranger("red");
    stranger_say(&s, &hello);
    stranger_expect(&s, EXO_WIRE_REFUSED, reason);
    RECORDED("head", "event", "refused", "who", "red", "address", "127.0.0.1", "reason",
             "not 'theirs\n\"}'");
    stranger_close(&s);
    RECORDED("head", "event", "process", "subject", "head", "detail", "begins");
    RECORDED("w1", "event", "process", "subject", "w1", "detail", "with keys");
    key_world_close();
}

/* --- Calls ------------------------------------------------------------------------------------ */

Test(audited, who_does_what_at_the_head)
{
    char reason[EXO_WIRE_REASON];
    Exo__Cluster__Register driver = EXO__CLUSTER__REGISTER__INIT;
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    Exo__Cluster__Name name = EXO__CLUSTER__NAME__INIT;
    open_world();
    stranger red = key_world_stranger("red"), watch = key_world_stranger("watch");
    stranger_enter(&red, 1);
    stranger_enter(&watch, 2);
    driver.node = gone.node = 1;
    driver.name = driver.job = exo_pb_text("red");
    driver.kind = exo_pb_text("driver");
    gone.state = exo_pb_text("left");
    cr_expect_eq(ask(&red, "register", &driver.base, reason), EXO_OK, "%s", reason);
    RECORDED("head", "event", "node", "who", "red", "method", "register", "subject", "red",
             "detail", "driver");
    RECORDED("head", "event", "job", "who", "red", "subject", "red", "detail", "began");

    cr_expect_eq(spawn(&red, "team", "a\n\"b\"\x1b[2J", reason), EXO_OK, "%s", reason);
    RECORDED("head", "event", "spawn", "outcome", "allowed", "who", "red", "subject",
             "team/a\n\"b\"\x1b[2J", "detail", "class plain");
    cr_expect_eq(spawn(&red, "team", "a\n\"b\"\x1b[2J", reason), EXO_EXISTS);
    RECORDED("head", "event", "spawn", "outcome", "failed", "who", "red", "reason",
             "there is an actor");
    cr_expect_eq(spawn(&red, "other", "c", reason), EXO_DENIED);
    RECORDED("head", "event", "denied", "outcome", "refused", "who", "red", "method", "spawn",
             "subject", "other/c", "reason", "may use the namespace 'team' only");
    cr_expect_eq(spawn(&watch, "team", "d", reason), EXO_DENIED);
    RECORDED("head", "event", "denied", "who", "watch", "role", "observer", "object", "head",
             "method", "spawn", "reason", "may not call");
    name.space = name.name = exo_pb_text("other");
    cr_expect_eq(ask(&red, "find", &name.base, reason), EXO_DENIED);
    RECORDED("head", "event", "denied", "who", "red", "method", "find", "subject", "other/other");
    gone.node = 3;
    cr_expect_eq(ask(&red, "gone", &gone.base, reason), EXO_DENIED);
    RECORDED("head", "event", "denied", "who", "red", "method", "gone", "reason",
             "speaks of another node");

    name.space = exo_pb_text("team");
    name.name = exo_pb_text("a\n\"b\"\x1b[2J");
    cr_expect_eq(ask(&red, "give_up", &name.base, reason), EXO_OK, "%s", reason);
    RECORDED("head", "event", "kill", "outcome", "allowed", "who", "red", "method", "give_up",
             "subject", "team/a\n");
    gone.node = 1;
    cr_expect_eq(ask(&red, "gone", &gone.base, reason), EXO_OK, "%s", reason);
    RECORDED("head", "event", "node", "who", "red", "method", "gone", "detail", "left");
    RECORDED("head", "event", "job", "who", "red", "subject", "red", "detail",
             "done: its driver left");

    /* Lists and lookups are not recorded. */
    cr_expect_eq(ask(&red, "find", &name.base, reason), EXO_OK, "%s", reason);
    cr_expect_eq(stranger_call(&watch, 0, "head", "list", NULL, 0, reason, NULL, NULL), EXO_OK,
                 "%s", reason);
    cr_expect_eq(spawn(&watch, "team", "last", reason), EXO_DENIED);
    EVENTUALLY(COUNT("head", "event", "denied", "who", "watch") == 2);
    cr_expect_eq(COUNT("head", "method", "find"), 1, "the refused one");
    cr_expect_eq(COUNT("head", "method", "list"), 0);
    stranger_close(&red);
    stranger_close(&watch);
    key_world_close();
}

Test(audited, what_is_beyond_a_quota)
{
    enum {
        MANY = 5000
    };
    char reason[EXO_WIRE_REASON];
    Exo__Cluster__Spawn m = EXO__CLUSTER__SPAWN__INIT, one = EXO__CLUSTER__SPAWN__INIT;
    Exo__Cluster__Spawn **together = exo_calloc(MANY, sizeof *together);
    open_world();
    stranger red = key_world_stranger("red");
    stranger_enter(&red, 1);
    m.class_name = exo_pb_text("plain");
    m.space = exo_pb_text("team");
    m.name = exo_pb_text("many");
    for (size_t i = 0; i < MANY; i++)
        together[i] = &one;
    m.together = together;
    m.n_together = MANY;
    cr_expect_eq(ask(&red, "spawn", &m.base, reason), EXO_FULL);
    RECORDED("head", "event", "quota", "outcome", "failed", "who", "red", "method", "spawn",
             "subject", "team/many", "detail", "with 5000 more", "reason",
             "5001 actors are asked for together");
    exo_free(together);
    stranger_close(&red);
    key_world_close();
}

Test(audited, who_does_what_at_a_worker)
{
    char reason[EXO_WIRE_REASON];
    exo_ref actor = {0};
    open_world();
    stranger head = key_world_stranger("red"), red = at_worker("red"), boss = at_worker("evil");
    stranger_enter(&head, 1);
    stranger_enter(&red, 2);
    stranger_enter(&boss, 3);
    cr_expect_eq(spawn(&head, "team", "a", reason), EXO_OK, "%s", reason);
    RECORDED("w1", "event", "spawn", "outcome", "allowed", "object", "worker", "method", "spawn",
             "subject", "team/a", "detail", "class plain, for red");
    cr_assert_eq(exo_spawn(key_world.runtime, &plain_class,
                           &(exo_spawn_opts){.name = "other", .namespace_name = "team"}, &actor,
                           NULL),
                 EXO_OK);
    cr_expect_eq(stranger_call(&red, actor.id, NULL, "nothing", NULL, 0, reason, NULL, NULL),
                 EXO_OK, "%s", reason);
    cr_expect_eq(stranger_call(&red, actor.id, NULL, "for_workers", NULL, 0, reason, NULL, NULL),
                 EXO_DENIED);
    RECORDED("w1", "event", "denied", "who", "red", "object", "actor", "method", "for_workers",
             "subject", "team/other", "detail", "plain", "reason", "the class says who may");
    cr_expect_eq(stranger_call(&red, actor.id, NULL, "$kill", "why", 3, reason, NULL, NULL),
                 EXO_DENIED);
    RECORDED("w1", "event", "denied", "who", "red", "method", "$kill", "subject", "team/other",
             "reason", "did not make this actor");
    cr_expect_eq(stranger_call(&red, 0, "worker", "end", NULL, 0, reason, NULL, NULL), EXO_DENIED);
    RECORDED("w1", "event", "denied", "who", "red", "object", "worker", "method", "end");
    cr_expect_eq(stranger_call(&red, 0, "", "$objects", NULL, 0, reason, NULL, NULL), EXO_DENIED);
    RECORDED("w1", "event", "denied", "who", "red", "object", "process", "method", "$objects");
    cr_expect_eq(stranger_call(&boss, actor.id, NULL, "$kill", "why", 3, reason, NULL, NULL),
                 EXO_OK, "%s", reason);
    RECORDED("w1", "event", "kill", "outcome", "allowed", "who", "evil", "role", "admin", "method",
             "$kill", "subject", "team/other");
    cr_expect_eq(stranger_call(&boss, 0, "worker", "end", NULL, 0, reason, NULL, NULL), EXO_OK,
                 "%s", reason);
    RECORDED("w1", "event", "stop", "who", "evil", "object", "worker", "method", "end");
    cr_expect_eq(COUNT("w1", "method", "nothing"), 0, "not every call");
    stranger_close(&head);
    stranger_close(&red);
    stranger_close(&boss);
    key_world_leave(&key_world.runtime, &key_world.worker);
    RECORDED("w1", "event", "process", "detail", "ends");

    head = key_world_stranger("evil");
    stranger_enter(&head, 4);
    cr_expect_eq(stranger_call(&head, 0, "head", "end", NULL, 0, reason, NULL, NULL), EXO_OK, "%s",
                 reason);
    RECORDED("head", "event", "stop", "who", "evil", "object", "head", "method", "end", "subject",
             "test");
    stranger_close(&head);
    key_world_close();
}

/* --- Keys that end ---------------------------------------------------------------------------- */

Test(audited, whose_key_comes_and_goes)
{
    char file[160], reason[EXO_WIRE_REASON], text[256];
    open_world();
    exo_keys keys = key_world_make_keys("brief", KEY_ADMIN);
    RECORDED("head", "event", "key", "subject", "brief", "detail", "added: key", "detail",
             keys.public_key, "detail", "role admin");
    stranger s = key_world_stranger("brief");
    stranger_enter(&s, 1);
    snprintf(file, sizeof file, "authorized/brief.key");
    snprintf(text, sizeof text, "public %s\nrole admin\nexpires 2001-01-01\n", keys.public_key);
    key_folder_put(file, 0644, text);
    stranger_expect(&s, EXO_WIRE_GOODBYE, reason);
    RECORDED("head", "event", "expired", "outcome", "refused", "who", "brief", "role", "admin",
             "reason", "its key has expired");
    RECORDED("head", "event", "key", "subject", "brief", "detail", "changed: key", "detail",
             "expires 2001-01-01T00:00:00Z");
    stranger_close(&s);

    s = key_world_stranger("watch");
    stranger_enter(&s, 2);
    snprintf(file, sizeof file, "%s/authorized/watch.key", key_folder);
    cr_assert_eq(unlink(file), 0);
    stranger_expect(&s, EXO_WIRE_GOODBYE, reason);
    RECORDED("head", "event", "revoked", "who", "watch", "reason", "is not let in any more");
    RECORDED("head", "event", "key", "subject", "watch", "detail", "removed: key");
    stranger_close(&s);
    key_world_close();
}
