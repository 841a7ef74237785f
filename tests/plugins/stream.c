/* A plugin with two graph classes whose ends can be compared, whatever lies between them.
 * `stream_source` sends arrays that are functions of the run's seed, the actor's index and the
 * item's number. `stream_sink` reports the number of items and a digest of all of them, which does
 * not depend on their order. tests/support/stream.h brings the same classes to programs. Each actor
 * owns its state.
 *
 *   stream_source   outputs items; config items (100), size (1000, elements), large (0, elements of
 *                   every third item instead), pause (0, before each item), gate (none: a file,
 *                   for which the last item waits); meters sent, digest
 *   stream_sink     inputs items (blocking), collective sums; config take (0: all), fail_at (0:
 *                   never), rounds (0: of all_reduce, before the first item), pause; meters items,
 *                   digest, sums */
#include <exogym/exogym.h>
#include <exogym/graph.h>
#include <exogym/plugin.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gate.h"

struct stream {
    uint64_t items, size, large, take, fail_at, rounds;
    exo_time pause;
    const char *gate;
};

/* splitmix64 */
static uint64_t
mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t
digest_of(const exo_item *item)
{
    uint64_t digest = mix(item->key) + mix(item->version + 1);
    for (size_t p = 0; p < item->num_parts; p++) {
        const unsigned char *bytes = item->parts[p].data;
        size_t size = item->parts[p].count * exo_dtype_size(item->parts[p].dtype);
        for (size_t i = 0; i < size; i++)
            digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return mix(digest);
}

/* Shows the 52 lowest bits, which a double holds exactly. */
static void
show_digest(exo_meter *meter, uint64_t digest)
{
    exo_meter_count(meter, digest & ((UINT64_C(1) << 52) - 1));
}

static const exo_meter_class source_meters[] = {
    {.name = "sent", .unit = "items", .help = "items that were sent"},
    {.name = "digest", .unit = "1", .help = "of all items"},
};

static const exo_meter_class sink_meters[] = {
    {.name = "items", .unit = "items", .help = "items that came"},
    {.name = "digest", .unit = "1", .help = "of all items"},
    {.name = "sums", .unit = "1", .help = "of what was reduced"},
};

static void
rest(const struct stream *s)
{
    const struct timespec time = {.tv_sec = (time_t)(s->pause / EXO_SECOND),
                                  .tv_nsec = (long)(s->pause % EXO_SECOND)};
    if (s->pause)
        nanosleep(&time, NULL);
}

static exo_status
make_item(const struct stream *s, exo_graph_actor *actor, uint64_t i, exo_item **out, exo_err *err)
{
    const size_t size = s->large && i % 3 == 2 ? s->large : s->size;
    const exo_item_part parts[] = {{.dtype = EXO_F32, .count = size},
                                   {.dtype = EXO_I32, .count = 3}};
    exo_status st = exo_item_new(out, parts, 2, err);
    if (st != EXO_OK)
        return st;
    exo_item *item = *out;
    float *values = item->parts[0].data;
    int32_t *numbers = item->parts[1].data;
    uint64_t x = mix(exo_graph_seed(actor) + mix(exo_graph_index(actor)) + i);
    for (size_t k = 0; k < size; k++)
        values[k] = (float)((int64_t)(mix(x + k) >> 40) - (1 << 23)) / (float)(1 << 20);
    numbers[0] = (int32_t)i;
    numbers[1] = (int32_t)exo_graph_index(actor);
    numbers[2] = (int32_t)x;
    item->version = i;
    item->key = mix(x);
    return EXO_OK;
}

static exo_status
source_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct stream *s = self;
    exo_port *out = exo_graph_output(actor, "items");
    exo_meter *meters[2];
    exo_status st = exo_meter_declare_all(meters, exo_graph_meters(actor), source_meters, 2, err);
    uint64_t digest = 0;
    for (uint64_t i = 0; st == EXO_OK && i < s->items; i++) {
        exo_item *item = NULL;
        exo_graph_phase(actor, "make");
        rest(s);
        if (i + 1 == s->items)
            gate_wait(s->gate, actor);
        st = make_item(s, actor, i, &item, err);
        exo_graph_phase(actor, NULL);
        if (st != EXO_OK)
            break;
        digest += digest_of(item);
        st = exo_port_send(out, &item, EXO_PORT_TIMEOUT, err);
        exo_meter_add(meters[0], st == EXO_OK);
    }
    show_digest(meters[1], digest);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static exo_status
reduce(const struct stream *s, exo_graph_actor *actor, exo_meter *sums, exo_err *err)
{
    enum {
        COUNT = 1000
    };
    float values[COUNT];
    exo_group *group = exo_graph_group(actor, "sums");
    exo_status st = EXO_OK;
    uint64_t digest = 0;
    for (uint64_t round = 0; st == EXO_OK && group && round < s->rounds; round++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)(mix(round * COUNT + (uint64_t)i + exo_graph_index(actor)) >> 44);
        st = exo_all_reduce(group, exo_host_array(EXO_F32, values, COUNT), EXO_SUM, err);
        for (int i = 0; st == EXO_OK && i < COUNT; i++)
            digest = mix(digest + (uint64_t)values[i]);
    }
    show_digest(sums, digest);
    return st;
}

static exo_status
sink_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct stream *s = self;
    exo_port *in = exo_graph_input(actor, "items");
    uint64_t digest = 0, items = 0;
    exo_meter *meters[3];
    exo_status st = exo_meter_declare_all(meters, exo_graph_meters(actor), sink_meters, 3, err);
    if (st == EXO_OK)
        st = reduce(s, actor, meters[2], err);
    while (st == EXO_OK && (!s->take || items < s->take)) {
        exo_item *item = NULL;
        st = exo_port_receive(in, EXO_PORT_TIMEOUT, &item, err);
        if (st != EXO_OK)
            break;
        exo_graph_phase(actor, "use");
        rest(s);
        digest += digest_of(item);
        exo_item_drop(&item);
        exo_graph_phase(actor, NULL);
        exo_meter_count(meters[0], ++items);
        if (items == s->fail_at)
            return exo_fail(err, EXO_FAILED, "on purpose");
    }
    show_digest(meters[1], digest);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static exo_status
source_init(void *self, exo_config *config, exo_err *err)
{
    struct stream *s = self;
    exo_status st = exo_config_u64(config, "items", 100, 0, 1000000000, &s->items, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "size", 1000, 1, 1 << 28, &s->size, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "large", 0, 0, 1 << 28, &s->large, err);
    if (st == EXO_OK)
        st = exo_config_string(config, "gate", NULL, &s->gate, err);
    return st == EXO_OK ? exo_config_time(config, "pause", 0, 0, EXO_SECOND, &s->pause, err) : st;
}

static exo_status
sink_init(void *self, exo_config *config, exo_err *err)
{
    struct stream *s = self;
    exo_status st = exo_config_u64(config, "take", 0, 0, 1000000000, &s->take, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "fail_at", 0, 0, 1000000000, &s->fail_at, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "rounds", 0, 0, 1000000, &s->rounds, err);
    return st == EXO_OK ? exo_config_time(config, "pause", 0, 0, EXO_SECOND, &s->pause, err) : st;
}

static void
source_order(const void *self, char *out, size_t size)
{
    snprintf(out, size, "%llu send items",
             (unsigned long long)((const struct stream *)self)->items);
}

static void
sink_order(const void *self, char *out, size_t size)
{
    const struct stream *s = self;
    char times[32] = "*";
    if (s->take)
        snprintf(times, sizeof times, "%llu ", (unsigned long long)s->take);
    snprintf(out, size, "%llu reduce sums; %sreceive items", (unsigned long long)s->rounds, times);
}

static const char *const source_phases[] = {"make", NULL};
static const char *const sink_phases[] = {"use", NULL};
static const exo_graph_port source_ports[] = {
    {.name = "items", .type = "stream", .direction = EXO_PORT_OUTPUT, .required = true}};
static const exo_graph_port sink_ports[] = {
    {.name = "items", .type = "stream", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "sums", .type = "sums", .direction = EXO_PORT_COLLECTIVE},
};

static const exo_graph_class source = {.name = "stream_source",
                                       .help = "sends arrays that follow from the seed",
                                       .ports = source_ports,
                                       .num_ports = 1,
                                       .phases = source_phases,
                                       .state_size = sizeof(struct stream),
                                       .init = source_init,
                                       .run = source_run,
                                       .write_order = source_order};
static const exo_graph_class sink = {.name = "stream_sink",
                                     .help = "makes a digest of what comes",
                                     .ports = sink_ports,
                                     .num_ports = 2,
                                     .phases = sink_phases,
                                     .state_size = sizeof(struct stream),
                                     .init = sink_init,
                                     .run = sink_run,
                                     .write_order = sink_order};

EXO_PLUGIN
{
    exo_status st = exo_graph_class_register(&source, err);
    return st == EXO_OK ? exo_graph_class_register(&sink, err) : st;
}
