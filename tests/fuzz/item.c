/* Messages of channels, as any peer may send them. The first byte chooses a codec and one of these:
 * - the rest is read as one message, with or without a right length;
 * - the rest is a run of messages, each after two bytes with its length, for a place on the virtual
 *   clock that has an input and an output. Some accepted items are received in between. Whatever
 *   the messages are, the place fails or goes on, and holds no more items than its buffers;
 * - each of the two with right checksums, as a malicious sender would make them.
 *
 * One thread; each input makes and frees its place. Read next: runtime/graph/place.h, item.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "codec/checksum.h"
#include "codec/codec_impl.h"
#include "graph/place.h"

static const char *const chains[] = {"raw",
                                     "int8",
                                     "{name: topk, ratio: 0.3, error_feedback: false}",
                                     "{name: sparse, p: 0.5}",
                                     "zstd",
                                     "[bf16, lz4]"};

enum {
    CHAINS = sizeof chains / sizeof *chains,
    CAPACITY = 3
};

static void
expect(int right)
{
    if (!right)
        abort();
}

/* --- One message ------------------------------------------------------------------------------ */

/* Copies to memory of exactly `size` bytes. */
static exo_payload
exact(const uint8_t *data, size_t size)
{
    uint8_t *copy = exo_calloc(1, size);
    expect(copy != NULL);
    memcpy(copy, data, size);
    return (exo_payload){.data = copy, .size = size, .release = exo_free};
}

static void
read_one(exo_codec *codec, const uint8_t *data, size_t size, bool right_length)
{
    exo_err err = {0};
    exo_channel_header header = {0};
    exo_item *item = NULL;
    exo_payload message = exact(data, size);
    if (right_length && size >= sizeof header)
        ((exo_channel_header *)message.data)->bytes = size - sizeof header;
    exo_status st = exo_channel_read(&message, &header, &err);
    if (st == EXO_OK)
        st = exo_item_read(&item, &message, &header, codec, 1, &err);
    bool named = st == EXO_PEER_LOST || st == EXO_NOT_FOUND || st == EXO_UNSUPPORTED;
    expect((st == EXO_OK) == (item != NULL) &&
           (st == EXO_OK || ((st == EXO_INVAL || named) && err.text[0])));
    for (size_t i = 0; item && i < item->num_parts; i++)
        expect(item->parts[i].count == 0 || ((uintptr_t)item->parts[i].data % 64 == 0));
    exo_item_drop(&item);
    exo_payload_release(&message);
}

/* --- A place ---------------------------------------------------------------------------------- */

static const exo_graph_port ports[] = {
    {.name = "in", .type = "t", .direction = EXO_PORT_INPUT},
    {.name = "out", .type = "t", .direction = EXO_PORT_OUTPUT},
};
static const exo_graph_class talker = {.name = "talker", .ports = ports, .num_ports = 2};

struct scene {
    exo_graph_spec spec;
    exo_actor_spec actor;
    exo_edge_spec edges[2];
    uint32_t placed[2];
    exo_emulated_host hosts[2];
    exo_site *site;
    exo_place *places[2];
};

static void
scene_init(struct scene *s, const char *chain)
{
    exo_err err = {0};
    *s = (struct scene){.placed = {0, 1}};
    s->actor = (exo_actor_spec){.name = "talker", .class = &talker, .count = 2, .hosts = s->placed};
    for (int e = 0; e < 2; e++) {
        s->hosts[e] = (exo_emulated_host){
            .spec = {.name = e ? "b" : "a", .up = INFINITY, .down = INFINITY}, .speed = 1};
        s->edges[e] = (exo_edge_spec){.name = e ? "dropping" : "blocking",
                                      .carries = "in",
                                      .route = EXO_ROUTE_BROADCAST,
                                      .codec_text = chain,
                                      .capacity = CAPACITY,
                                      .on_full = e ? EXO_FULL_DROP_OLDEST : EXO_FULL_BLOCK,
                                      .every = 1,
                                      .deadline = EXO_SECOND,
                                      .link = -1};
    }
    s->spec = (exo_graph_spec){.source = "fuzz",
                               .name = "fuzz",
                               .seed = 1,
                               .virtual_clock = true,
                               .actors = &s->actor,
                               .num_actors = 1,
                               .edges = s->edges,
                               .num_edges = 2,
                               .hosts = s->hosts,
                               .num_hosts = 2};
    expect(exo_site_new(&s->site, &s->spec, "fuzz", NULL, 0, &err) == EXO_OK);
    for (uint32_t i = 0; i < 2; i++) {
        expect(exo_place_new(&s->places[i], s->site, 0, i, NULL, &err) == EXO_OK);
        s->site->places[i] = s->places[i];
    }
    for (uint32_t i = 0; i < 2; i++)
        expect(exo_place_connect(s->places[i], NULL, &err) == EXO_OK);
}

static void
scene_release(struct scene *s)
{
    for (uint32_t i = 0; i < 2; i++)
        exo_place_stop(s->places[i]);
    for (uint32_t i = 0; i < 2; i++)
        exo_place_free(&s->places[i]);
    exo_site_free(&s->site);
}

/* The header of each array in a message: runtime/graph/item.c. */
struct part_header {
    uint32_t dtype, check;
    uint64_t count, bytes;
};

/* Makes the checksums of one array right. */
static void
seal_array(const exo_codec *codec, const exo_channel_header *header, struct part_header *part,
           uint32_t index, uint8_t *bytes)
{
    exo_channel_header h = *header;
    const exo_codec_place place = {.slot = index, .round = h.number, .seed = 1}, nowhere = {0};
    if (part->bytes >= EXO_CHECKSUM_BYTES) {
        size_t body = part->bytes - EXO_CHECKSUM_BYTES;
        uint32_t check =
            part->dtype == EXO_F32
                ? exo_codec_check(codec, &place, part->count, bytes, body)
                : exo_codec_check(codec, &nowhere,
                                  ~(part->count * exo_dtype_size((exo_dtype)part->dtype)), bytes,
                                  body);
        memcpy(bytes + body, &check, sizeof check);
    }
    h.passing = 0;
    h.bytes = 0;
    part->check = 0;
    part->check = exo_checksum(part, sizeof *part, exo_checksum(&h, sizeof h, index));
}

/* Makes the message's length and all checksums right, as far as its fields allow. */
static void
set_checks(exo_payload *message, const char *chain)
{
    exo_channel_header h;
    exo_codec *codec = NULL;
    if (message->size < sizeof h)
        return;
    memcpy(&h, message->data, sizeof h);
    h.bytes = message->size - sizeof h;
    h.num_parts = (uint32_t)(h.num_parts % 4 < h.bytes / sizeof(struct part_header)
                                 ? h.num_parts % 4
                                 : h.bytes / sizeof(struct part_header));
    h.passing &= EXO_PASSING_MAX;
    memcpy(message->data, &h, sizeof h);
    expect(exo_codec_parse(&codec, chain, NULL) == EXO_OK);
    uint8_t *head = (uint8_t *)message->data + sizeof h,
            *bytes = head + h.num_parts * sizeof(struct part_header);
    size_t left = h.bytes - h.num_parts * sizeof(struct part_header);
    for (uint32_t i = 0; i < h.num_parts; i++) {
        struct part_header part;
        memcpy(&part, head + i * sizeof part, sizeof part);
        part.dtype = (part.dtype & 0xff) % (EXO_I64 + 1) | (part.dtype & 0x300); /* and its way */
        part.bytes = i + 1 == h.num_parts ? left : part.bytes % (left + 1);
        seal_array(codec, &h, &part, i, bytes);
        memcpy(head + i * sizeof part, &part, sizeof part);
        bytes += part.bytes;
        left -= part.bytes;
    }
    exo_codec_free(&codec);
}

static void
run_place(const char *chain, const uint8_t *data, size_t size, bool checks)
{
    struct scene s;
    scene_init(&s, chain);
    exo_place *place = s.places[0];
    exo_sim_lane *lane = place->pace.lane;
    exo_sim_enter(lane, 0);
    while (size >= 2) {
        size_t length = (size_t)(data[0] | data[1] << 8) & 1023, receive = data[1] >> 6;
        data += 2;
        size -= 2;
        length = length < size ? length : size;
        exo_payload message = exact(data, length);
        data += length;
        size -= length;
        if (checks)
            set_checks(&message, chain);
        exo_place_deliver(place, &message, 0, NULL);
        exo_item *item = NULL;
        while (receive-- > 0 && exo_port_receive(&place->ports[0], 0, &item, NULL) == EXO_OK)
            exo_item_drop(&item);
    }
    expect(exo_port_pending(&place->ports[0]) <= 4 * CAPACITY);
    exo_sim_leave(lane);
    scene_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    exo_codec *codec = NULL;
    if (size < 1)
        return 0;
    const char *chain = chains[data[0] % CHAINS];
    unsigned kind = data[0] / CHAINS % 5;
    data++;
    size--;
    expect(exo_codec_parse(&codec, chain, NULL) == EXO_OK);
    if (kind < 2)
        read_one(codec, data, size, kind == 1);
    else if (kind == 2) {
        exo_payload message = exact(data, size);
        set_checks(&message, chain);
        read_one(codec, message.data, message.size, false);
        exo_payload_release(&message);
    } else {
        run_place(chain, data, size, kind == 4);
    }
    exo_codec_free(&codec);
    return 0;
}
