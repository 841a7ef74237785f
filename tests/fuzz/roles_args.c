/* Arguments of the head's and the worker's methods, from the bytes of an input. Contracts and
 * owner: roles_args.h. Read next: runtime/cluster/messages.h. */
#include "roles_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "cluster/directory.h"
#include "cluster/messages.h"

/* --- The input -------------------------------------------------------------------------------- */

const uint8_t *args_input;
size_t args_left;
static const struct args_world *world;

uint8_t
args_byte(void)
{
    if (args_left == 0)
        return 0;
    args_left--;
    return *args_input++;
}

const char *
args_text(const char *const *texts, size_t count)
{
    return texts[args_byte() % count];
}

static char *
next_name(void)
{
    static char longest[400];
    memset(longest, 'x', sizeof longest - 1);
    return exo_pb_text(ARGS_TEXT("", "kept", "treasure", "old", "head", "mine", "ours", "evil",
                                 "host", "lost", longest));
}

static char *
next_space(void)
{
    return exo_pb_text(ARGS_TEXT("", "default", "team", "other", "dark", "exogym"));
}

static char *
next_job(void)
{
    return exo_pb_text(ARGS_TEXT("", "red-job", "boss-job", "old-job", "dark-job", "third-job"));
}

static uint64_t
next_node(void)
{
    static const uint64_t nodes[] = {101, 102, 103, 10, 20, 30, 21, 0, UINT64_MAX};
    return nodes[args_byte() % (sizeof nodes / sizeof *nodes)];
}

static uint64_t
next_key(void)
{
    uint8_t which = args_byte();
    if (which < 64)
        return world->keys[which % world->num_keys];
    return which < 128   ? which % 8
           : which < 192 ? world->next_key - which % 8
                         : UINT64_MAX - which % 4;
}

/* --- Arguments -------------------------------------------------------------------------------- */

/* Messages of one call; args_build frees them. */
static struct {
    void *pieces[128];
    size_t count;
} built;

static void *
piece(size_t size)
{
    void *p = exo_calloc(1, size);
    if (!p || built.count == 128)
        abort();
    return built.pieces[built.count++] = p;
}

static Exo__Cluster__Resource **
build_resources(size_t *count)
{
    static const double amounts[] = {0, 1, 64, 1e9, -1, 0.5};
    *count = args_byte() % 3;
    Exo__Cluster__Resource **list = piece(3 * sizeof *list);
    for (size_t i = 0; i < *count; i++) {
        exo__cluster__resource__init(list[i] = piece(sizeof **list));
        list[i]->name = exo_pb_text(ARGS_TEXT("cpus", "memory", ""));
        list[i]->amount = amounts[args_byte() % 6];
    }
    return list;
}

static Exo__Cluster__Spawn *
build_spawn(bool nests)
{
    Exo__Cluster__Spawn *m = piece(sizeof *m);
    exo__cluster__spawn__init(m);
    uint8_t has = args_byte(), flags = args_byte();
    m->class_name = exo_pb_text(ARGS_TEXT("victim", "graph_actor", "train_node", "none", ""));
    m->name = next_name();
    m->space = next_space();
    m->job = next_job();
    m->get_if_exists = flags & 1;
    m->detached = flags & 2;
    m->restricted = flags & 4;
    m->owner = exo_pb_text(flags & 8 ? "boss" : flags & 16 ? "red" : "");
    m->driver = flags & 32 ? next_node() : 0;
    m->placement = args_byte() % 4;
    m->node = exo_pb_text(ARGS_TEXT("", "", "host", "evil", "nobody"));
    m->args.len = has & 1 ? args_byte() % 40 : 0;
    m->args.data = piece(40);
    for (size_t i = 0; i < m->args.len; i++)
        m->args.data[i] = args_byte();
    if (has & 2)
        m->resources = build_resources(&m->n_resources);
    if (has & 4) {
        exo__cluster__restart_rule__init(m->restart = piece(sizeof *m->restart));
        m->restart->when = args_byte() % 4;
        m->restart->max = args_byte() % 3;
        m->restart->within = args_byte() * EXO_SECOND;
        m->restart->backoff = args_byte() * EXO_MS;
    }
    if (has & 8) {
        m->group = exo_pb_text(ARGS_TEXT("g", "h"));
        m->group_rule = args_byte() % 4;
    }
    if (has & 16) {
        m->plugins = piece(sizeof *m->plugins);
        m->plugins[0] = exo_pb_text(ARGS_TEXT("/nonexistent/evil.so", "../evil", ""));
        m->n_plugins = 1;
    }
    if (has & 32 && nests) {
        m->n_together = args_byte() % 4;
        m->together = piece(4 * sizeof *m->together);
        for (size_t i = 0; i < m->n_together; i++)
            m->together[i] = build_spawn(false);
    }
    if (has & 64) {
        m->key = next_key();
        m->incarnation = args_byte() % 4;
    }
    return m;
}

static Exo__Cluster__Actor *
build_actor(void)
{
    Exo__Cluster__Actor *m = piece(sizeof *m);
    exo__cluster__actor__init(m);
    uint8_t has = args_byte();
    m->key = next_key();
    m->id = args_byte() % 8;
    m->incarnation = args_byte() % 4;
    m->state = exo_pb_text(has & 1 ? "dead" : "");
    m->cause = exo_pb_text("it says so");
    m->failed = has & 2;
    if (has & 12)
        m->spec = build_spawn(false);
    return m;
}

static ProtobufCMessage *
build_register(void)
{
    Exo__Cluster__Register *m = piece(sizeof *m);
    exo__cluster__register__init(m);
    uint8_t has = args_byte();
    m->node = world->self;
    if (has & 1)
        m->node = next_node();
    m->name = next_name();
    m->kind = exo_pb_text(ARGS_TEXT("worker", "driver", "", "head"));
    m->endpoint = exo_pb_text(ARGS_TEXT("", "ipc:///nonexistent/head", "tcp://127.0.0.1:1"));
    m->key_text =
        exo_pb_text(has & 2 ? ARGS_TEXT("key of host", "key of evil", "key of mole") : "");
    m->host = exo_pb_text(ARGS_TEXT("", "a host"));
    m->job = next_job();
    m->pid = args_byte();
    m->part = has & 4 ? args_byte() : 0;
    m->more = has & 8;
    m->resources = build_resources(&m->n_resources);
    m->n_actors = args_byte() % 4;
    m->actors = piece(4 * sizeof *m->actors);
    for (size_t i = 0; i < m->n_actors; i++)
        m->actors[i] = build_actor();
    return &m->base;
}

static ProtobufCMessage *
build_name(void)
{
    Exo__Cluster__Name *m = piece(sizeof *m);
    exo__cluster__name__init(m);
    uint8_t has = args_byte();
    m->space = next_space();
    m->name = next_name();
    m->node = has & 1 ? next_node() : world->self;
    m->id = has & 2 ? args_byte() % 8 : 0;
    m->key = has & 4 ? next_key() : 0;
    m->incarnation = args_byte() % 4;
    m->failure = has & 8;
    m->at_once = has & 16;
    m->cause = exo_pb_text("it says so");
    m->class_name = exo_pb_text("victim");
    return &m->base;
}

static ProtobufCMessage *
build_node(void)
{
    Exo__Cluster__NodeInfo *m = piece(sizeof *m);
    exo__cluster__node_info__init(m);
    m->node = args_byte() % 2 ? next_node() : world->self;
    m->state = exo_pb_text(ARGS_TEXT("left", "lost", ""));
    m->cause = exo_pb_text("it says so");
    return &m->base;
}

static ProtobufCMessage *
build_epitaph(void)
{
    Exo__Cluster__Epitaph *m = piece(sizeof *m);
    exo__cluster__epitaph__init(m);
    m->node = next_node();
    m->cause = exo_pb_text("was said to end");
    m->running = exo_pb_text(ARGS_TEXT("", "exo.method"));
    m->log = exo_pb_text(ARGS_TEXT("", "a line\nanother"));
    return &m->base;
}

static ProtobufCMessage *
build_report(void)
{
    Exo__Cluster__Report *m = piece(sizeof *m);
    exo__cluster__report__init(m);
    m->job = next_job();
    m->node = args_byte() % 2 ? next_node() : world->self;
    m->json = exo_pb_text(ARGS_TEXT("{}", "", "{\"step\": 1}"));
    return &m->base;
}

static ProtobufCMessage *
build_lines(void)
{
    Exo__Cluster__LogLines *m = piece(sizeof *m);
    exo__cluster__log_lines__init(m);
    m->node_name = next_name();
    m->text = exo_pb_text(ARGS_TEXT("one\ntwo", "", "\n\n", "no end"));
    return &m->base;
}

/* Arguments that are no message of protobuf. */
void
args_build_plain(const struct args_world *w, const char *method, exo_payload *out)
{
    world = w;
    uint8_t bytes[64];
    struct exo_head_kill kill = {.clean = args_byte()};
    const void *data = bytes;
    size_t size = args_byte() % sizeof bytes;
    for (size_t i = 0; i < size; i++)
        bytes[i] = args_byte();
    if (strcmp(method, "kill") == 0) {
        kill.id = args_byte() % 2 ? world->worker : args_byte();
        kill.key = next_key();
        data = &kill;
        size = sizeof kill;
    } else if (strcmp(method, "logs") == 0) {
        size = args_byte() % 2 ? 8 : 0;
    }
    if (exo_payload_copy(out, data, size) != EXO_OK)
        abort();
}

void
args_build(const struct args_world *w, const char *method, exo_payload *out)
{
    world = w;
    static const struct {
        const char *methods;
        ProtobufCMessage *(*build)(void);
    } kinds[] = {{" find claim died why give_up ", build_name},
                 {" gone node ", build_node},
                 {" register ", build_register},
                 {" epitaph ", build_epitaph},
                 {" log ", build_lines},
                 {" report ", build_report}};
    ProtobufCMessage *m = NULL;
    char wanted[40];
    snprintf(wanted, sizeof wanted, " %s ", method);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !m; i++)
        m = strstr(kinds[i].methods, wanted) ? kinds[i].build() : NULL;
    if (!m && strcmp(method, "spawn") == 0)
        m = &build_spawn(true)->base;
    if (m && exo_message_pack(out, m) != EXO_OK)
        abort();
    if (!m)
        args_build_plain(w, method, out);
    while (built.count > 0)
        exo_free(built.pieces[--built.count]);
    uint8_t spoil = args_byte();
    if (spoil < 32 && out->size > 0)
        ((uint8_t *)out->data)[(size_t)args_byte() * 7 % out->size] ^= (uint8_t)(1 << spoil % 8);
    else if (spoil < 48 && out->size > 0)
        out->size -= args_byte() % out->size;
}
