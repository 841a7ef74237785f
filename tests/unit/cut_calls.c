/* Calls whose arguments are cut: for each method of the head and of the worker, a raw peer with an
 * admin's key sends meaningful arguments, cut at every byte. Each call is answered, the connection
 * stays, and the actor still answers a ping.
 *
 * The test's thread owns the head, the worker (key_world.h) and the messages. Read next:
 * runtime/cluster/messages.c; tests/fuzz/roles.c continues this test. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "cluster/directory.h"
#include "cluster/head.h"
#include "cluster/messages.h"
#include "cluster/worker.h"
#include "support/key_world.h"

char key_folder[64];
struct key_world key_world;

enum {
    NODE = 99
};

/* One message of each kind, with all fields set. */
static struct {
    Exo__Cluster__Register as_node;
    Exo__Cluster__NodeInfo node;
    Exo__Cluster__Name name;
    Exo__Cluster__Epitaph epitaph;
    Exo__Cluster__LogLines lines;
    Exo__Cluster__Report report;
    Exo__Cluster__Holdings holdings;
    Exo__Cluster__Holding holding, *holders[1];
    Exo__Cluster__Spawn spawn, together, *members[1];
    Exo__Cluster__Actor actor, *actors[1];
    Exo__Cluster__Resource resource, *resources[1];
    Exo__Cluster__RestartRule rule;
    Exo__Cluster__LaneOpts lane, *lanes[1];
    char *plugins[1];
    struct exo_head_kill kill;
} full;

static void
fill_spawn(Exo__Cluster__Spawn *m, const char *name)
{
    exo__cluster__spawn__init(m);
    m->class_name = exo_pb_text("no such class");
    m->name = exo_pb_text(name);
    m->space = exo_pb_text("default");
    m->resources = full.resources;
    m->n_resources = 1;
    m->restart = &full.rule;
    m->group = exo_pb_text("group");
    m->plugins = full.plugins;
    m->n_plugins = 1;
    m->lanes = full.lanes;
    m->n_lanes = 1;
    m->args = (ProtobufCBinaryData){.data = (uint8_t *)exo_pb_text("args"), .len = 4};
}

static void
fill(void)
{
    exo__cluster__register__init(&full.as_node);
    exo__cluster__node_info__init(&full.node);
    exo__cluster__name__init(&full.name);
    exo__cluster__epitaph__init(&full.epitaph);
    exo__cluster__log_lines__init(&full.lines);
    exo__cluster__report__init(&full.report);
    exo__cluster__holdings__init(&full.holdings);
    exo__cluster__holding__init(full.holders[0] = &full.holding);
    exo__cluster__actor__init(full.actors[0] = &full.actor);
    exo__cluster__resource__init(full.resources[0] = &full.resource);
    exo__cluster__restart_rule__init(&full.rule);
    exo__cluster__lane_opts__init(full.lanes[0] = &full.lane);
    full.plugins[0] = exo_pb_text("/nonexistent/plugin.so");
    full.resource.name = exo_pb_text("cpus");
    full.resource.amount = 0.5;
    full.rule.max = 3;
    full.rule.within = EXO_SECOND;
    full.lane.lane = exo_pb_text("main");
    full.lane.max_concurrency = 1;
    fill_spawn(&full.together, "the second");
    fill_spawn(&full.spawn, "the first");
    full.members[0] = &full.together;
    full.spawn.together = full.members;
    full.spawn.n_together = 1;
    full.actor.key = 7;
    full.actor.id = 5;
    full.actor.incarnation = 1;
    full.actor.spec = &full.together;
    full.as_node.node = full.node.node = full.name.node = full.epitaph.node = full.report.node =
        NODE;
    full.as_node.name = full.epitaph.name = full.node.name = full.lines.node_name =
        exo_pb_text("raw");
    full.as_node.kind = exo_pb_text("driver"); /* a worker would get actors */
    full.as_node.resources = full.resources;
    full.as_node.n_resources = 1;
    full.as_node.actors = full.actors;
    full.as_node.n_actors = 1;
    full.node.cause = full.epitaph.cause = full.name.cause = exo_pb_text("a cause");
    full.epitaph.log = full.lines.text = exo_pb_text("a line\nand another");
    full.report.job = exo_pb_text("job");
    full.report.json = exo_pb_text("{}");
    full.holding.node = 9;
    full.holding.name = exo_pb_text("a holder");
    full.holding.references = 2;
    full.holdings.node = NODE;
    full.holdings.peers = full.holders;
    full.holdings.n_peers = 1;
    full.name.space = exo_pb_text("default");
    full.name.name = exo_pb_text("nobody");
    full.name.id = 3;
    full.name.at_once = true;
    snprintf(full.kill.cause, sizeof full.kill.cause, "a cause");
}

static const struct {
    const char *object, *method;
    const ProtobufCMessage *message; /* NULL: the arguments are `kill`, which serves as any bytes */
} methods[] = {{"head", "register", &full.as_node.base},
               {"head", "node", &full.node.base},
               {"head", "find", &full.name.base},
               {"head", "why", &full.name.base},
               {"head", "give_up", &full.name.base},
               {"head", "claim", &full.name.base},
               {"head", "died", &full.name.base},
               {"head", "log", &full.lines.base},
               {"head", "report", &full.report.base},
               {"head", "spawn", &full.spawn.base},
               {"head", "epitaph", &full.epitaph.base},
               {"head", "gone", &full.node.base},
               {"head", "logs", NULL},
               {"head", "list", NULL},
               {"head", "started", NULL},
               {"head", "go_on", NULL},
               {"head", "holds", &full.holdings.base},
               {"head", "tick", NULL},
               {"worker", "spawn", &full.spawn.base},
               {"worker", "kill", NULL}};

static bool
is_tried(const char *object, const char *method)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].object, object) == 0 && strcmp(methods[i].method, method) == 0)
            return true;
    return strcmp(method, "end") == 0; /* "end" has no arguments, and would end the process */
}

/* Sends all cuts of one method's arguments. */
static void
cut(const char *endpoint, const char *server_key, size_t which, uint64_t node)
{
    exo_payload args = {0};
    char reason[EXO_WIRE_REASON];
    stranger s = stranger_open(endpoint, &key_world.evil, server_key);
    stranger_enter(&s, node);
    /* a node must register before it reports about itself */
    if (strcmp(methods[which].object, "head") == 0) {
        cr_assert_eq(exo_message_pack(&args, &full.as_node.base), EXO_OK);
        cr_assert_eq(
            stranger_call(&s, 0, "head", "register", args.data, args.size, reason, NULL, NULL),
            EXO_OK, "%s", reason);
        exo_payload_release(&args);
    }
    if (methods[which].message)
        cr_assert_eq(exo_message_pack(&args, methods[which].message), EXO_OK);
    else
        cr_assert_eq(exo_payload_copy(&args, &full.kill, sizeof full.kill), EXO_OK);
    for (size_t size = 0; size <= args.size; size++) {
        if (strcmp(methods[which].method, "logs") == 0 && size == sizeof(uint64_t))
            continue; /* a whole request waits for the next line */
        exo_status st = stranger_call(&s, 0, methods[which].object, methods[which].method,
                                      args.data, size, reason, NULL, NULL);
        /* this reason is an answer, because a cut message can name node 0 */
        bool closed = st == EXO_CLOSED && !strstr(reason, "is not registered");
        cr_expect(!closed && st != EXO_FAILED, "%s of %s, cut at %zu of %zu: %d, %s",
                  methods[which].method, methods[which].object, size, args.size, (int)st, reason);
    }
    exo_payload_release(&args);
    cr_expect_neq(stranger_call(&s, 0, methods[which].object, "ping", NULL, 0, reason, NULL, NULL),
                  EXO_CLOSED);
    stranger_close(&s);
}

Test(cut_calls, are_answered)
{
    char secret[160];
    exo_keys worker;
    const exo_actor_class *const classes[] = {&exo_head_class, &exo_worker_class};
    for (size_t c = 0; c < 2; c++)
        for (size_t i = 0; i < classes[c]->num_methods; i++)
            cr_assert(is_tried(classes[c]->name, classes[c]->methods[i].name),
                      "%s of %s is not tried", classes[c]->methods[i].name, classes[c]->name);
    fill();
    key_world_open(true);
    snprintf(secret, sizeof secret, "%s/w1.secret", key_folder);
    cr_assert_eq(exo_keys_load(secret, &worker, NULL), EXO_OK);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        full.as_node.node = full.node.node = full.name.node = full.epitaph.node = full.report.node =
            full.holdings.node = NODE + i;
        bool head = strcmp(methods[i].object, "head") == 0;
        cut(exo_cluster_address(head ? key_world.head : key_world.worker),
            head ? key_world.head_public : worker.public_key, i, NODE + i);
    }
    key_world_close();
}
