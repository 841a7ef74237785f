/* Arguments of the methods of built-in actor classes. An input is a sequence of calls: a byte that
 * chooses the method, two bytes with the length of the argument, and the argument. The first byte
 * of an input chooses the actor: a node of a run after its setup, in a worker or in the trainer's
 * process, or a connected actor of a graph.
 *
 * Each argument is first only decoded: an accepted argument must be a message that keeps the rules
 * of its fields, and packing the message must give an argument that is accepted too. Then this
 * thread calls the method. The error of a refused call names the method, and an actor that has only
 * refused calls serves a right call at the end. Methods that would write files or load code on
 * behalf of an input are decoded and not called.
 *
 * One thread; each input makes and frees its actor. Read next: runtime/protocol/protocol.h;
 * tests/fuzz/corpus.py. */
#include <stdlib.h>
#include <string.h>

#include <exogym/graph.h>
#include <exogym/log.h>
#include <exogym/memory.h>

#include "actor/runtime_impl.h"
#include "actors/train_node.h"
#include "graph/host.h"
#include "support/fit_here.h"

enum {
    MAX_CALLS = 50
};

/* The method that a byte chooses. The corpus uses the same numbers: add new methods at the end, and
 * to corpus.py. */
static const struct {
    const exo_protocol *protocol;
    const char *method;
    bool checked_only;
} asked[] = {
    {&exo_train_node_protocol, "start", true},
    {&exo_train_node_protocol, "setup", false},
    {&exo_train_node_protocol, "train", false},
    {&exo_train_node_protocol, "average", false},
    {&exo_train_node_protocol, "result", false},
    {&exo_train_node_protocol, "evaluate", false},
    {&exo_train_node_protocol, "correlate", false},
    {&exo_train_node_protocol, "save", true},
    {&exo_train_node_protocol, "change", false},
    {&exo_train_node_protocol, "deliver", false},
    {&exo_train_node_protocol, "abandon", false},
    {&exo_train_node_protocol, "waits", false},
    {&exo_graph_actor_protocol, "start", true},
    {&exo_graph_actor_protocol, "connect", false},
    {&exo_graph_actor_protocol, "run", false},
    {&exo_graph_actor_protocol, "report", false},
    {&exo_graph_actor_protocol, "look", false},
    {&exo_graph_actor_protocol, "waits", false},
    {&exo_graph_actor_protocol, "cancel", false},
    {&exo_graph_actor_protocol, "channel", false},
    {&exo_graph_actor_protocol, "collective", false},
    {&exo_graph_actor_protocol, "change", false},
    {&exo_graph_actor_protocol, "abandon", false},
    {&exo_train_node_protocol, "report", false},
    {&exo_train_node_protocol, "regroup", false},
    {&exo_train_node_protocol, "give", false},
    {&exo_train_node_protocol, "join", false},
    {&exo_train_node_protocol, "save_server", true},
    {&exo_graph_actor_protocol, "end_life", false},
    {&exo_graph_actor_protocol, "relink", false},
};

enum {
    ASKED = sizeof asked / sizeof asked[0]
};

static exo_runtime *runtime;

static void
require(bool holds)
{
    if (!holds)
        abort();
}

static void
quiet(void *context, exo_log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

/* --- Messages --------------------------------------------------------------------------------- */

static void
check_text(const char *text, const exo_field_rule *rule)
{
    size_t length = strlen(text);
    require(!rule ||
            (length >= (size_t)rule->least && (!rule->most || length <= (size_t)rule->most)));
}

/* The properties of a message on which a method's function relies. */
static void
check_message(const exo_args *args, const ProtobufCMessage *m)
{
    for (unsigned i = 0; i < args->fields->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &args->fields->fields[i];
        const void *member = (const char *)m + f->offset;
        const exo_field_rule *rule = NULL;
        for (size_t r = 0; r < args->num_rules; r++)
            if (strcmp(args->rules[r].field, f->name) == 0)
                rule = &args->rules[r];
        if (f->label != PROTOBUF_C_LABEL_REQUIRED)
            continue;
        if (f->type == PROTOBUF_C_TYPE_STRING)
            check_text(*(char *const *)member, rule);
        else if (f->type == PROTOBUF_C_TYPE_ENUM)
            require(protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)member) !=
                    NULL);
        else if (f->type == PROTOBUF_C_TYPE_INT64 && rule)
            require(*(const int64_t *)member >= rule->least);
        else if (f->type == PROTOBUF_C_TYPE_UINT64 && rule)
            require(*(const uint64_t *)member >= (uint64_t)rule->least);
    }
}

static void
check_args(const exo_args *args, const uint8_t *data, size_t size)
{
    exo_payload bytes = exo_payload_borrow(data, size), again = {0};
    ProtobufCMessage *message = NULL, *second = NULL;
    exo_err err = {0};
    exo_status st = exo_args_decode(args, &bytes, &message, &err);
    require(st == EXO_OK || (st == EXO_INVAL && !message && strstr(err.text, args->method)));
    if (st != EXO_OK)
        return;
    check_message(args, message);
    require(exo_protocol_pack(&again, message, &err) == EXO_OK);
    require(exo_args_decode(args, &again, &second, &err) == EXO_OK);
    exo_args_free(&second);
    exo_args_free(&message);
    exo_payload_release(&again);
}

/* --- Actors ----------------------------------------------------------------------------------- */

static exo_status
ignore(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    return EXO_OK;
}

/* The actor that stands for all other actors. */
static const exo_lane_class lanes[] = {{.name = "main", .capacity = 1u << 20}};
static const exo_method methods[] = {{.name = "channel", .run = ignore}};
static const exo_actor_class dummy_class = {
    .name = "dummy", .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 1};

static exo_status
run_nothing(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    (void)actor;
    (void)err;
    return EXO_OK;
}

static const exo_graph_port ports[] = {
    {.name = "state", .type = "t", .direction = EXO_PORT_INPUT},
    {.name = "state", .type = "t", .direction = EXO_PORT_OUTPUT},
};
static const exo_graph_class talker = {
    .name = "talker", .ports = ports, .num_ports = 2, .run = run_nothing};

static exo_actor *dummy;
static exo_identity stranger = {.references = 1, .node = 77}; /* a caller without a channel */

static void
open_once(void)
{
    exo_ref ref = {0};
    const exo_spawn_opts opts = {.name = "b_0", .namespace_name = "fuzz"};
    exo_log_set_sink(quiet, NULL);
    require(exo_runtime_open(&runtime, &(exo_runtime_opts){.threads = 1}, NULL) == EXO_OK);
    require(exo_graph_class_register(&talker, NULL) == EXO_OK);
    require(exo_spawn(runtime, &dummy_class, &opts, &ref, NULL) == EXO_OK);
    require((dummy = exo_runtime_find(runtime, ref)) != NULL);
    for (size_t i = 0, known = 0; i < ASKED; i++) { /* the table has every method */
        known += strcmp(asked[i].method, "start") != 0 &&
                 exo_protocol_find(asked[i].protocol, asked[i].method);
        require(i + 1 < ASKED || known == exo_train_node_protocol.num_methods +
                                              exo_graph_actor_protocol.num_methods);
    }
}

static void *
start(const exo_actor_class *class, exo_payload args)
{
    exo_err err = {0};
    void *self = exo_calloc(1, class->state_size);
    exo_call_context context = {.runtime = runtime, .actor = dummy};
    require(self && class->start(&context, self, &args, &err) == EXO_OK);
    exo_payload_release(&args);
    return self;
}

/* Calls a method as a lane does; takes over the arguments. */
static exo_status
call(const exo_actor_class *class, void *self, const char *method, exo_payload args, exo_err *err)
{
    exo_future *future = NULL;
    exo_payload reply = {0};
    size_t i = 0;
    while (strcmp(class->methods[i].name, method) != 0)
        i++;
    require(exo_future_new(&future, exo_clock_real(), INT64_MAX, NULL) == EXO_OK);
    exo_call_context context = {
        .runtime = runtime, .actor = dummy, .message = exo_future_message(future)};
    context.message->future = future;
    context.message->method = &class->methods[i];
    context.message->args = args;
    context.message->caller = exo_identity_hold(&stranger);
    exo_status st = class->methods[i].run(&context, self, &context.message->args, &reply, err);
    exo_payload_release(&context.message->args);
    exo_payload_release(&reply);
    exo_future_drop(&future);
    return st;
}

/* `here`: the node's communicators join threads of its process, as a trainer makes them. */
static void *
start_node(bool here)
{
    exo_payload args = {0};
    exo_err err = {0};
    exo_fit *fit = here ? fit_here(runtime, "here", 1, 2) : NULL;
    Exo__Train__NodeStart m = EXO__TRAIN__NODE_START__INIT;
    m.document = exo_args_text(
        here ? "{run: here, rank: 0, strategy: ddp}"
             : "{run: fuzz, rank: 0, nodes: 1, max_steps: 2, batch_size: 1, val_size: 1, "
               "model: mlp, data: {name: synthetic, count: 4}, strategy: ddp}");
    require(exo_protocol_pack(&args, &m.base, NULL) == EXO_OK);
    void *self = start(&exo_train_node_class, args);
    exo_fit_drop(&fit); /* the node holds a reference */
    require(call(&exo_train_node_class, self, "setup", (exo_payload){0}, &err) == EXO_OK);
    return self;
}

static void *
start_graph_actor(void)
{
    static const char text[] =
        "actors: {a: {class: talker}, b: {class: talker}}\n"
        "edges: [{from: a, to: b, carries: state}, {from: b, to: a, carries: state}]\n";
    exo_payload args = {0};
    exo_err err = {0};
    require(exo_host_start_text(
                &args, &(exo_far_start){.space = "fuzz", .source = "graph.yaml", .text = text},
                NULL) == EXO_OK);
    void *self = start(&exo_graph_far_actor_class, args);
    require(call(&exo_graph_far_actor_class, self, "connect", (exo_payload){0}, &err) == EXO_OK);
    return self;
}

/* A right call to an actor that has refused all calls. */
static void
serve_rightly(const exo_actor_class *class, void *self)
{
    exo_payload args = {0};
    exo_err err = {0};
    Exo__Train__Train train = EXO__TRAIN__TRAIN__INIT;
    train.until = 1;
    if (class == &exo_train_node_class)
        require(exo_protocol_pack(&args, &train.base, NULL) == EXO_OK);
    require(call(class, self, class == &exo_train_node_class ? "train" : "run", args, &err) ==
            EXO_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!runtime)
        open_once();
    if (size < 1)
        return 0;
    bool node = data[0] % 2 == 0, served = false;
    const exo_actor_class *class = node ? &exo_train_node_class : &exo_graph_far_actor_class;
    void *self = node ? start_node(data[0] % 4 == 2) : start_graph_actor();
    size_t at = 1;
    for (size_t calls = 0; at + 3 <= size && calls < MAX_CALLS; calls++) {
        size_t which = data[at] % ASKED, length = data[at + 1] | (size_t)data[at + 2] << 8;
        bool starts = strcmp(asked[which].method, "start") == 0;
        const exo_args *args = starts
                                   ? &asked[which].protocol->start
                                   : exo_protocol_find(asked[which].protocol, asked[which].method);
        at += 3;
        length = length < size - at ? length : size - at;
        if (args->fields)
            check_args(args, data + at, length);
        bool own =
            asked[which].protocol == (node ? &exo_train_node_protocol : &exo_graph_actor_protocol);
        if (own && !asked[which].checked_only) {
            exo_payload payload = {0};
            exo_err err = {0};
            require(exo_payload_copy(&payload, data + at, length) == EXO_OK);
            exo_status st = call(class, self, args->method, payload, &err);
            served = served || st != EXO_INVAL;
            require(st == EXO_OK || strstr(err.text, args->method) || served);
        }
        at += length;
    }
    if (!served)
        serve_rightly(class, self);
    class->stop(self);
    exo_free(self);
    return 0;
}
