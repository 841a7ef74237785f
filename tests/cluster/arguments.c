/* Malformed method arguments from a process that has joined the cluster. The test calls every
 * method of every built-in class in a worker with no argument, with one byte, with noise, and with
 * each field of its message missing, twice, of another type and out of its range. An argument that
 * cannot be right gets INVAL, and the text names the method and the field. No call waits for
 * anything, the worker survives, and the actor then serves a right call as before. The same is
 * tested of a node in the trainer's own process.
 *
 * Classes, methods and fields come from the registries and from the messages' descriptors. A new
 * method is therefore tested without a change here; a new class needs an entry in `makers`. The
 * methods of the head and of the worker are tested by unit/cut_calls and tests/fuzz.
 *
 * The main thread owns all state. Read next: runtime/protocol/protocol.h. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "actors/train_node.h"
#include "graph/host.h"
#include "protocol/protocol.h"
#include "support/check.h"
#include "support/fit_here.h"
#include "support/processes.h"

enum {
    MEGABYTE = 1 << 20,
    HEADER = 72 /* of raw messages, in bytes: words of four bytes each */
};

#define PATIENCE (60 * EXO_SECOND) /* for any call: no call may wait for anything */

static processes all;
static exo_runtime *runtime;
static exo_cluster *cluster;
static unsigned long calls, lives;

static exo_time
within(exo_time time)
{
    return exo_deadline(exo_clock_real(), time);
}

static void
fail(const char *class, const char *method, const char *what, exo_status st, const char *text)
{
    fprintf(stderr, "%s.%s, %s: %s, '%s'\n", class, method, what, exo_status_text(st), text);
    all.failed = true;
}

/* --- Bytes ------------------------------------------------------------------------------------ */

typedef struct bytes {
    uint8_t *data;
    size_t size, room;
} bytes;

static void
put(bytes *b, const void *data, size_t size)
{
    if (b->size + size > b->room) {
        b->room = 2 * (b->size + size);
        uint8_t *grown = exo_calloc(1, b->room);
        CHECK(grown);
        if (b->size)
            memcpy(grown, b->data, b->size);
        exo_free(b->data);
        b->data = grown;
    }
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void
put_varint(bytes *b, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        put(b, &byte, 1);
        value >>= 7;
    } while (value);
}

static void
put_tag(bytes *b, uint32_t number, unsigned kind)
{
    put_varint(b, (uint64_t)number << 3 | kind);
}

static void
put_text(bytes *b, uint32_t number, const void *text, size_t size)
{
    put_tag(b, number, 2);
    put_varint(b, size);
    put(b, text, size);
}

static unsigned
kind_of(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_DOUBLE:
        return 1;
    case PROTOBUF_C_TYPE_FLOAT:
        return 5;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
        return 2;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
        return 0;
    default:
        fprintf(stderr, "%s: this test knows no fields of that type: teach it\n", f->name);
        abort();
    }
}

/* Adds the field with a valid value; a repeated field is left empty. */
static void
put_plain(bytes *b, const ProtobufCFieldDescriptor *f)
{
    static const uint8_t zeros[8];
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return;
    if (kind_of(f) == 2) {
        put_text(b, f->id, "a", 1);
        return;
    }
    put_tag(b, f->id, kind_of(f));
    if (kind_of(f) == 0)
        put_varint(b, 1);
    else
        put(b, zeros, kind_of(f) == 1 ? 8 : 4);
}

/* Adds all fields except `without`, with valid values. */
static void
put_others(bytes *b, const ProtobufCMessageDescriptor *fields,
           const ProtobufCFieldDescriptor *without)
{
    for (unsigned i = 0; i < fields->n_fields; i++)
        if (&fields->fields[i] != without)
            put_plain(b, &fields->fields[i]);
}

/* --- Actors ----------------------------------------------------------------------------------- */

/* One actor of a class, and the second actor that it needs, if any. */
typedef struct subject {
    exo_ref actor, other;
} subject;

static exo_status
spawn(const char *class, const char *space, const char *name, exo_payload args, exo_ref *out,
      exo_err *err)
{
    const char *const plugin = PROCESSES_PLUGIN("stream");
    const exo_spawn_opts opts = {.name = name,
                                 .namespace_name = space,
                                 .args = args,
                                 .plugins = &plugin,
                                 .num_plugins = cluster != NULL};
    *err = (exo_err){0};
    return exo_spawn_class(runtime, class, &opts, within(PATIENCE), out, err);
}

static void
expect_ok(exo_status st, const exo_err *err, const char *what)
{
    if (st == EXO_OK)
        return;
    fprintf(stderr, "%s: %s, '%s'\n", what, exo_status_text(st), err->text);
    processes_close(&all);
    exit(1);
}

/* Calls the method and waits for its reply; err has the reason of a failure. */
static exo_status
ask(exo_ref actor, const char *method, const void *data, size_t size, exo_payload *reply,
    exo_err *err)
{
    exo_payload args = {0}, unwanted = {0};
    *err = (exo_err){0};
    CHECK(size == 0 || exo_payload_copy(&args, data, size) == EXO_OK);
    calls++;
    exo_status st = exo_call_wait(runtime, actor, method, args, within(PATIENCE),
                                  reply ? reply : &unwanted, err);
    exo_payload_release(&unwanted);
    return st;
}

static void
make_node(subject *s)
{
    char space[32], document[300];
    exo_err err = {0};
    exo_payload args = {0};
    Exo__Train__NodeStart m = EXO__TRAIN__NODE_START__INIT;
    snprintf(space, sizeof space, "arguments/%lu", lives++);
    snprintf(document, sizeof document,
             "{run: %s, rank: 0, nodes: 1, max_steps: 1, batch_size: 2, val_size: 2, model: mlp, "
             "data: {name: synthetic, count: 8}, strategy: ddp}",
             space);
    m.document = document;
    CHECK(exo_protocol_pack(&args, &m.base, NULL) == EXO_OK);
    expect_ok(spawn("train_node", space, "node_0", args, &s->actor, &err), &err, "train_node");
    expect_ok(ask(s->actor, "setup", NULL, 0, NULL, &err), &err, "setup");
}

/* Makes a node of the trainer's own process, as a trainer makes it. */
static void
make_node_here(subject *s)
{
    char space[32], document[100];
    exo_err err = {0};
    exo_payload args = {0};
    Exo__Train__NodeStart m = EXO__TRAIN__NODE_START__INIT;
    snprintf(space, sizeof space, "arguments/%lu", lives++);
    snprintf(document, sizeof document, "{run: %s, rank: 0, strategy: ddp}", space);
    m.document = document;
    exo_fit *fit = fit_here(runtime, space, 1, 1);
    CHECK(exo_protocol_pack(&args, &m.base, NULL) == EXO_OK);
    const exo_spawn_opts opts = {.args = args};
    expect_ok(exo_spawn_class(runtime, "train_node", &opts, within(PATIENCE), &s->actor, &err),
              &err, "train_node here");
    expect_ok(ask(s->actor, "setup", NULL, 0, NULL, &err), &err, "setup");
    exo_fit_drop(&fit);
}

static bool
node_serves(const subject *s, exo_err *err)
{
    exo_payload args = {0}, reply = {0};
    ProtobufCMessage *message = NULL;
    const exo_args trained = {.method = "trained", .fields = &exo__train__trained__descriptor};
    Exo__Train__Train m = EXO__TRAIN__TRAIN__INIT;
    m.until = 1;
    CHECK(exo_protocol_pack(&args, &m.base, NULL) == EXO_OK);
    bool serves = ask(s->actor, "train", args.data, args.size, &reply, err) == EXO_OK &&
                  exo_args_decode(&trained, &reply, &message, err) == EXO_OK;
    exo_args_free(&message);
    exo_payload_release(&args);
    exo_payload_release(&reply);
    return serves;
}

static const char graph[] = "actors:\n"
                            "  source: {class: stream_source, config: {items: 1, size: 4}}\n"
                            "  sink: {class: stream_sink}\n"
                            "edges: [{from: source, to: sink, carries: items}]\n";

static void
make_graph_actor(subject *s)
{
    char space[32];
    exo_err err = {0};
    exo_ref *refs[] = {&s->actor, &s->other};
    static const char *const names[] = {"source_0", "sink_0"};
    snprintf(space, sizeof space, "arguments/%lu", lives++);
    for (uint32_t i = 0; i < 2; i++) {
        exo_payload args = {0};
        CHECK(
            exo_host_start_text(
                &args,
                &(exo_far_start){.space = space, .source = "graph.yaml", .text = graph, .actor = i},
                &err) == EXO_OK);
        expect_ok(spawn("graph_actor", space, names[i], args, refs[i], &err), &err, "graph_actor");
    }
    for (uint32_t i = 0; i < 2; i++)
        expect_ok(ask(*refs[i], "connect", NULL, 0, NULL, &err), &err, "connect");
}

/* Runs the source. Its one item leaves because the sink gave a credit when it was connected. */
static bool
graph_actor_serves(const subject *s, exo_err *err)
{
    exo_payload reply = {0};
    bool serves = ask(s->actor, "run", NULL, 0, &reply, err) == EXO_OK && reply.size > 0;
    const char *sent = serves ? strstr(reply.data, "\"sent\":{") : NULL;
    const char *value = sent ? strstr(sent, "\"value\":") : NULL;
    serves = value && strtod(value + strlen("\"value\":"), NULL) == 1;
    exo_payload_release(&reply);
    return serves;
}

static const struct maker {
    const char *class;
    void (*make)(subject *subject);
    bool (*serves)(const subject *subject, exo_err *err);
} makers[] = {{"train_node", make_node, node_serves},
              {"graph_actor", make_graph_actor, graph_actor_serves}};

static const struct maker here = {"train_node", make_node_here, node_serves};

static void
end(subject *s)
{
    if (s->actor.id)
        exo_kill(runtime, s->actor, "the test", NULL);
    if (s->other.id)
        exo_kill(runtime, s->other, "the test", NULL);
    *s = (subject){0};
}

/* --- One call --------------------------------------------------------------------------------- */

/* The method under test. */
typedef struct target {
    const struct maker *maker;
    const exo_args *args;
    bool starts; /* `args` are those of a start of the class */
    subject subject;
} target;

/* Statuses that a valid value of a field may have: the type allows it, but for example no such
 * folder or name exists. */
static bool
may_be(exo_status st)
{
    return st == EXO_OK || st == EXO_INVAL || st == EXO_IO || st == EXO_NOT_FOUND ||
           st == EXO_UNSUPPORTED;
}

/* Makes one call with the argument b. If `wrong` is set, the status must be INVAL, and the text
 * must name `field` unless it is NULL. */
static void
try(target *t, const bytes *b, bool wrong, const char *field, const char *what)
{
    exo_err err = {0};
    exo_status st;
    exo_ref made = {0};
    exo_payload args = {0};
    if (t->starts) {
        CHECK(b->size == 0 || exo_payload_copy(&args, b->data, b->size) == EXO_OK);
        calls++;
        st = spawn(t->maker->class, NULL, NULL, args, &made, &err);
    } else {
        st = ask(t->subject.actor, t->args->method, b->data, b->size, NULL, &err);
    }
    bool right = wrong ? st == EXO_INVAL : may_be(st);
    /* the head itself refuses a larger argument of a start, with another text */
    if (wrong && right && b->size < MEGABYTE / 2)
        right = strstr(err.text, t->args->method) && (!field || strstr(err.text, field));
    if (!right)
        fail(t->maker->class, t->args->method, what, st, err.text);
    if (made.id)
        exo_kill(runtime, made, "the test", NULL);
    /* the call succeeded: the next call needs an actor without a history */
    if (!t->starts && st == EXO_OK) {
        end(&t->subject);
        t->maker->make(&t->subject);
    }
}

/* Makes a call whose argument has the field as encoded in b, and all other fields with valid
 * values; empties b. */
static void
try_field(target *t, const ProtobufCFieldDescriptor *f, bytes *b, bool wrong, const char *what)
{
    char text[100];
    snprintf(text, sizeof text, "%s %s", f->name, what);
    put_others(b, t->args->fields, f);
    try(t, b, wrong, f->name, text);
    b->size = 0;
}

/* --- Fields ----------------------------------------------------------------------------------- */

static bool
is_out_of_type(const ProtobufCFieldDescriptor *f, uint64_t value)
{
    int64_t number = (int64_t)value;
    switch (f->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return value > 1;
    case PROTOBUF_C_TYPE_UINT32:
        return value > UINT32_MAX;
    case PROTOBUF_C_TYPE_INT32:
        return number < INT32_MIN || number > INT32_MAX;
    case PROTOBUF_C_TYPE_ENUM:
        return number < INT32_MIN || number > INT32_MAX ||
               !protobuf_c_enum_descriptor_get_value(f->descriptor, (int)number);
    default:
        return false;
    }
}

static void
try_numbers(target *t, const ProtobufCFieldDescriptor *f, bytes *b)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       77,
                                       INT32_MAX,
                                       UINT32_MAX,
                                       UINT64_C(1) << 32,
                                       UINT64_C(1) << 61,
                                       INT64_MAX,
                                       (uint64_t)INT64_MIN,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char what[40];
        snprintf(what, sizeof what, "%lld", (long long)numbers[i]);
        put_tag(b, f->id, 0);
        put_varint(b, numbers[i]);
        try_field(t, f, b, is_out_of_type(f, numbers[i]), what);
    }
}

static void
try_reals(target *t, const ProtobufCFieldDescriptor *f, bytes *b)
{
    static const double reals[] = {0, -1, (double)INFINITY, -(double)INFINITY, (double)NAN, 1e308};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        float small = (float)reals[i];
        put_tag(b, f->id, kind_of(f));
        put(b, kind_of(f) == 1 ? (const void *)&reals[i] : &small, kind_of(f) == 1 ? 8 : 4);
        try_field(t, f, b, false, "another number");
    }
}

static void
try_texts(target *t, const ProtobufCFieldDescriptor *f, bytes *b)
{
    static char longest[MEGABYTE];
    bool text = f->type == PROTOBUF_C_TYPE_STRING;
    static const struct {
        const char *text, *what;
        size_t size;
    } wrong[] = {{"\xff\xfe", "that is no UTF-8", 2},
                 {"a\0b", "with a 0 in it", 3},
                 {"\xed\xa0\x80", "with a surrogate", 3},
                 {"a\xc3", "that ends within a character", 2}};
    memset(longest, 'x', sizeof longest);
    put_text(b, f->id, "", 0);
    try_field(t, f, b, false, "empty");
    put_text(b, f->id, longest, sizeof longest);
    try_field(t, f, b, false, "very long");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_text(b, f->id, wrong[i].text, wrong[i].size);
        try_field(t, f, b, text, wrong[i].what);
    }
}

static void
try_lists(target *t, const ProtobufCFieldDescriptor *f, bytes *b)
{
    static const uint8_t zeros[MEGABYTE];
    bool packed = f->flags & PROTOBUF_C_FIELD_FLAG_PACKED;
    if (packed) {
        put_text(b, f->id, zeros, sizeof zeros);
        try_field(t, f, b, false, "a million times");
        put_text(b, f->id, "\xff", 1);
        try_field(t, f, b, true, "cut");
        return;
    }
    for (size_t i = 0; i < 100000; i++) {
        put_tag(b, f->id, kind_of(f));
        kind_of(f) == 1 ? put(b, zeros, 8) : kind_of(f) == 5 ? put(b, zeros, 4) : put_varint(b, 0);
    }
    try_field(t, f, b, false, "100000 times");
}

static void
try_fields(target *t)
{
    bytes b = {0};
    for (unsigned i = 0; i < t->args->fields->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &t->args->fields->fields[i];
        bool listed = f->label == PROTOBUF_C_LABEL_REPEATED;
        try_field(t, f, &b, f->label == PROTOBUF_C_LABEL_REQUIRED, "missing");
        put_plain(&b, f);
        put_plain(&b, f);
        try_field(t, f, &b, !listed, "twice");
        put_tag(&b, f->id, kind_of(f) == 5 ? 0 : 5);
        put(&b, "\1\0\0\0", kind_of(f) == 5 ? 1 : 4);
        try_field(t, f, &b, true, "of another type");
        if (listed)
            try_lists(t, f, &b);
        else if (kind_of(f) == 2)
            try_texts(t, f, &b);
        else if (kind_of(f) == 0)
            try_numbers(t, f, &b);
        else
            try_reals(t, f, &b);
    }
    put_others(&b, t->args->fields, NULL);
    put_tag(&b, 1, 3);
    try(t, &b, true, NULL, "a group");
    b.size = 0;
    put_others(&b, t->args->fields, NULL);
    put_tag(&b, 2000, 0);
    put_varint(&b, 1);
    try(t, &b, true, "2000", "a field that is not known");
    exo_free(b.data);
}

/* --- Noise and headers ------------------------------------------------------------------------ */

static void
try_noise(target *t, size_t size, uint64_t seed)
{
    bytes b = {0};
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = processes_random(&seed);
        put(&b, &word, size - i < 8 ? size - i : 8);
    }
    try(t, &b, true, NULL, "noise");
    exo_free(b.data);
}

/* Tries raw headers of the right length, each with one word changed. Some name an existing channel
 * or collective whose other end is another process: this process may not speak for it. */
static void
try_headers(target *t)
{
    static const uint32_t words[] = {0, 2, UINT32_MAX};
    uint32_t header[HEADER / 4];
    for (size_t base = 1; base < 3; base++)
        for (size_t at = 0; at < HEADER / 4; at++)
            for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
                memset(header, 0, sizeof header);
                header[0] = (uint32_t)base;
                header[at] = words[i];
                try(t, &(bytes){.data = (uint8_t *)header, .size = sizeof header}, true, NULL,
                    "a header");
            }
}

static void
try_anything(target *t)
{
    static const uint8_t some[] = {0, 1, 8, 10, 127, 128, 255};
    bool empty = !t->args->fields && !t->args->raw; /* the method takes no argument */
    bool needs = t->args->raw;
    for (unsigned i = 0; t->args->fields && i < t->args->fields->n_fields; i++)
        needs = needs || t->args->fields->fields[i].label == PROTOBUF_C_LABEL_REQUIRED;
    for (size_t i = 0; i < sizeof some; i++)
        try(t, &(bytes){.data = (uint8_t *)(uintptr_t)&some[i], .size = 1}, needs || empty, NULL,
            "one byte");
    try_noise(t, HEADER, 1);
    for (uint64_t seed = 0; seed < 4; seed++)
        try_noise(t, MEGABYTE, seed);
    try(t, &(bytes){0}, needs, NULL, "no argument");
}

static void
try_all(target *t)
{
    exo_err err = {0};
    pid_t host = processes_host_of(all.workers[0]);
    if (!t->starts)
        t->maker->make(&t->subject);
    try_anything(t);
    if (t->args->fields)
        try_fields(t);
    if (t->args->raw)
        try_headers(t);
    if (!t->starts && !t->maker->serves(&t->subject, &err)) {
        /* The actor made last has seen no right call, so it must serve one. */
        fail(t->maker->class, t->args->method, "a right call afterwards", err.code, err.text);
    }
    end(&t->subject);
    if (processes_host_of(all.workers[0]) != host || kill(host, 0) != 0)
        fail(t->maker->class, t->args->method, "the worker has died", EXO_PEER_LOST, "");
}

/* --- All classes ------------------------------------------------------------------------------ */

static const struct maker *
maker_of(const char *class)
{
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (strcmp(makers[i].class, class) == 0)
            return &makers[i];
    return NULL;
}

static void
try_class(const exo_actor_class *class, const struct maker *maker)
{
    const exo_protocol *protocol = exo_registry_find(&exo_protocol_registry, class->name);
    if (!maker || !protocol || protocol->num_methods != class->num_methods) {
        fail(class->name, "*", "it needs a table (builtins.c) and a maker here", EXO_NOT_FOUND, "");
        return;
    }
    for (size_t i = 0; i < class->num_methods; i++) {
        target t = {.maker = maker, .args = exo_protocol_find(protocol, class->methods[i].name)};
        if (t.args)
            try_all(&t);
        else
            fail(class->name, class->methods[i].name, "it is in no table", EXO_NOT_FOUND, "");
    }
    target start = {.maker = maker, .args = &protocol->start, .starts = true};
    try_all(&start);
}

/* Sends bytes of the size of the pointers with which only this process may make an actor of the
 * class. */
static void
try_pointers(const char *class, size_t size)
{
    static const char bytes_of[sizeof(exo_host_start)];
    exo_ref ref = {0};
    exo_err err = {0};
    exo_status st = spawn(class, NULL, NULL, exo_payload_borrow(bytes_of, size), &ref, &err);
    if (st != EXO_INVAL)
        fail(class, "start", "pointers", st, err.text);
}

int
main(void)
{
    const exo_actor_class *class = NULL;
    size_t count = 0;
    processes_open(&all);
    CHECK(processes_start_head(&all));
    CHECK(processes_start_worker(&all, 0, true));
    cluster = processes_join(&all, "arguments", &runtime);
    for (; (class = exo_actor_class_at(count)); count++)
        try_class(class, maker_of(class->name));
    CHECK(count == sizeof makers / sizeof *makers);
    try_pointers("graph_actor", sizeof(exo_host_start));
    printf("%lu calls to %lu lives\n", calls, lives);
    processes_leave(&cluster, &runtime);
    CHECK(exo_runtime_open(&runtime, NULL, NULL) == EXO_OK);
    try_class(exo_actor_class_find("train_node"), &here);
    CHECK(exo_runtime_close(&runtime, within(PATIENCE), NULL) == EXO_OK);
    return processes_close(&all) ? 0 : 1;
}
