/* Items as messages: a written item can be read. A cut or altered message is refused, and no memory
 * is allocated for it. Each test owns a scene: a codec, an item and its message. Read next:
 * runtime/graph/item.h. */
#include <criterion/criterion.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "codec/codec_impl.h"
#include "graph/item.h"

static const char *const codecs[] = {
    "raw",
    "bf16",
    "int8",
    "{name: topk, ratio: 0.2, error_feedback: false}",
    "{name: sparse, p: 0.3}",
    "zstd",
    "[int4, lz4]",
    "[{name: topk, ratio: 0.1, error_feedback: false}, fp16, zstd]",
};

enum {
    CODECS = sizeof codecs / sizeof *codecs,
    SEED = 9
};

/* The header of each array in a message. */
struct part_header {
    uint32_t dtype, reserved;
    uint64_t count, bytes;
};

struct scene {
    exo_codec *codec;
    exo_item *item;
    exo_payload message;
    exo_err err;
};

static void
scene_init(struct scene *s, const char *codec)
{
    const exo_item_part parts[] = {{.dtype = EXO_F32, .count = 150},
                                   {.dtype = EXO_I32, .count = 7},
                                   {.dtype = EXO_U8, .count = 0}};
    const exo_channel_header header = {.kind = EXO_CHANNEL_DATA,
                                       .edge = 1,
                                       .from = 2,
                                       .to = 3,
                                       .number = 4,
                                       .version = 5,
                                       .key = 6,
                                       .sent = 7};
    exo_item_sizes sizes;
    *s = (struct scene){0};
    cr_assert_eq(exo_codec_parse(&s->codec, codec, &s->err), EXO_OK, "%s", s->err.text);
    cr_assert_eq(exo_item_new(&s->item, parts, 3, &s->err), EXO_OK);
    for (int i = 0; i < 150; i++)
        ((float *)s->item->parts[0].data)[i] = (float)((i * 37) % 100) - 50;
    for (int i = 0; i < 7; i++)
        ((int32_t *)s->item->parts[1].data)[i] = i;
    const exo_item_form form = {.codec = s->codec, .seed = SEED};
    cr_assert_eq(exo_item_write(&s->message, &header, s->item, &form, &sizes, &s->err), EXO_OK);
    cr_assert_eq(sizes.message, s->message.size);
}

static void
scene_release(struct scene *s)
{
    exo_payload_release(&s->message);
    exo_item_drop(&s->item);
    exo_codec_free(&s->codec);
}

/* Reads a copy of the bytes in memory of exactly their size. */
static exo_status
read_bytes(struct scene *s, const void *bytes, size_t size, exo_item **out)
{
    void *exact = malloc(size ? size : 1);
    cr_assert_not_null(exact);
    memcpy(exact, bytes, size);
    const exo_payload message = exo_payload_borrow(exact, size);
    exo_channel_header header = {0};
    *out = NULL;
    exo_status st = exo_channel_read(&message, &header, &s->err);
    if (st == EXO_OK)
        st = exo_item_read(out, &message, &header, s->codec, SEED, &s->err);
    cr_expect((st == EXO_OK) == (*out != NULL));
    cr_expect(st == EXO_OK || st == EXO_INVAL, "%s", s->err.text);
    free(exact);
    return st;
}

Test(graph_item, what_was_written_is_read)
{
    for (size_t c = 0; c < CODECS; c++) {
        struct scene s;
        exo_item *item = NULL;
        scene_init(&s, codecs[c]);
        cr_assert_eq(read_bytes(&s, s.message.data, s.message.size, &item), EXO_OK, "%s",
                     s.err.text);
        cr_expect_eq(item->num_parts, 3);
        cr_expect_eq(item->parts[0].count, 150);
        cr_expect_eq(item->parts[2].count, 0);
        cr_expect_eq(memcmp(item->parts[1].data, s.item->parts[1].data, 7 * sizeof(int32_t)), 0);
        if (exo_codec_is_lossless(s.codec))
            cr_expect_eq(memcmp(item->parts[0].data, s.item->parts[0].data, 150 * sizeof(float)),
                         0);
        cr_expect(item->number == 4 && item->version == 5 && item->key == 6 && item->sent == 7 &&
                  item->from == 2);
        exo_item_drop(&item);
        scene_release(&s);
    }
}

Test(graph_item, cut_at_every_byte_it_is_refused, .timeout = 60)
{
    for (size_t c = 0; c < CODECS; c++) {
        struct scene s;
        exo_item *item = NULL;
        scene_init(&s, codecs[c]);
        for (size_t size = 0; size < s.message.size; size++) {
            cr_expect_eq(read_bytes(&s, s.message.data, size, &item), EXO_INVAL, "%s: %zu bytes",
                         codecs[c], size);
            if (size < sizeof(exo_channel_header))
                continue;
            /* The same with a header that states the cut size. */
            char *lies = malloc(size);
            cr_assert_not_null(lies);
            memcpy(lies, s.message.data, size);
            ((exo_channel_header *)(void *)lies)->bytes = size - sizeof(exo_channel_header);
            cr_expect_eq(read_bytes(&s, lies, size, &item), EXO_INVAL, "%s: %zu bytes", codecs[c],
                         size);
            free(lies);
        }
        scene_release(&s);
    }
}

/* The time on the link is added after the check was computed. */
static bool
is_passing(size_t at)
{
    return at >= offsetof(exo_channel_header, passing) &&
           at < offsetof(exo_channel_header, passing) + sizeof(exo_time);
}

Test(graph_item, altered_at_any_byte_it_is_refused, .timeout = 60)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    for (size_t c = 0; c < CODECS; c++) {
        struct scene s;
        scene_init(&s, codecs[c]);
        uint8_t *bytes = s.message.data;
        for (size_t at = 0; at < s.message.size; at++)
            for (size_t m = 0; m < sizeof masks; m++) {
                exo_item *item = NULL;
                bytes[at] ^= masks[m];
                exo_status st = read_bytes(&s, bytes, s.message.size, &item);
                cr_expect(st == EXO_INVAL || is_passing(at), "%s: byte %zu", codecs[c], at);
                exo_item_drop(&item);
                bytes[at] ^= masks[m];
            }
        scene_release(&s);
    }
}

Test(graph_item, a_count_that_the_bytes_cannot_hold_gets_no_memory, .timeout = 60)
{
    for (size_t c = 0; c < CODECS; c++) {
        struct scene s;
        exo_item *item = NULL;
        scene_init(&s, codecs[c]);
        struct part_header *heads = (void *)((char *)s.message.data + sizeof(exo_channel_header));
        for (int part = 0; part < 3; part++) {
            uint64_t count = heads[part].count;
            for (int bit = 20; bit < 64; bit++) {
                heads[part].count = count | UINT64_C(1) << bit;
                uint64_t before = exo_memory_allocations();
                cr_expect_eq(read_bytes(&s, s.message.data, s.message.size, &item), EXO_INVAL);
                cr_expect_eq(exo_memory_allocations(), before, "%s: part %d, bit %d", codecs[c],
                             part, bit);
            }
            heads[part].count = count;
        }
        scene_release(&s);
    }
}

/* The check is right, as a hostile sender could make it. */
Test(graph_item, no_codec_accepts_more_than_its_bytes_can_hold)
{
    enum {
        BODY = 64
    };
    uint8_t bytes[BODY + 4] = {1, 2, 3};
    const exo_codec_place place = {.seed = SEED};
    for (size_t c = 0; c < CODECS; c++) {
        exo_codec *codec = NULL;
        cr_assert_eq(exo_codec_parse(&codec, codecs[c], NULL), EXO_OK);
        for (int bit = 31; bit < 63; bit++) {
            size_t count = (size_t)1 << bit;
            uint32_t check = exo_codec_check(codec, &place, count, bytes, BODY);
            memcpy(bytes + BODY, &check, sizeof check);
            cr_expect(!exo_codec_accepts(codec, &place, bytes, sizeof bytes, count), "%s: 2^%d",
                      codecs[c], bit);
            check = exo_codec_check(codec, &(exo_codec_place){0}, ~count, bytes, BODY);
            memcpy(bytes + BODY, &check, sizeof check);
            cr_expect(!exo_codec_accepts_bytes(codec, bytes, sizeof bytes, count), "%s: 2^%d bytes",
                      codecs[c], bit);
        }
        exo_codec_free(&codec);
    }
}

Test(graph_item, without_memory_nothing_is_written_or_read_and_nothing_leaks)
{
    for (size_t c = 0; c < CODECS; c++) {
        struct scene s;
        scene_init(&s, codecs[c]);
        const exo_channel_header header = {.kind = EXO_CHANNEL_DATA};
        exo_status st = EXO_NOMEM;
        for (uint64_t n = 1; st == EXO_NOMEM; n++) {
            exo_payload message = {0};
            exo_item_sizes sizes;
            exo_codec_free(&s.codec); /* a new codec has no buffers yet */
            cr_assert_eq(exo_codec_parse(&s.codec, codecs[c], NULL), EXO_OK);
            const exo_item_form form = {.codec = s.codec, .seed = SEED};
            exo_memory_fail_at(n);
            st = exo_item_write(&message, &header, s.item, &form, &sizes, &s.err);
            exo_memory_fail_at(0);
            cr_expect(st == EXO_OK || st == EXO_NOMEM, "%s", s.err.text);
            exo_payload_release(&message);
        }
        st = EXO_NOMEM;
        for (uint64_t n = 1; st == EXO_NOMEM; n++) {
            exo_channel_header read = {0};
            exo_item *item = NULL;
            exo_codec_free(&s.codec);
            cr_assert_eq(exo_codec_parse(&s.codec, codecs[c], NULL), EXO_OK);
            cr_assert_eq(exo_channel_read(&s.message, &read, NULL), EXO_OK);
            exo_memory_fail_at(n);
            st = exo_item_read(&item, &s.message, &read, s.codec, SEED, &s.err);
            exo_memory_fail_at(0);
            cr_expect(st == EXO_OK || st == EXO_NOMEM, "%s", s.err.text);
            exo_item_drop(&item);
        }
        scene_release(&s);
    }
}
