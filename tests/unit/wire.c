/* Envelopes to bytes and back: every kind is read as it was written, and bytes that are no message
 * are refused. Each test owns its writer and reader. Read next: runtime/wire/wire.h. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "wire/wire.h"

/* --- Envelopes -------------------------------------------------------------------------------- */

static char name_text[EXO_WIRE_NAME], reason_text[EXO_WIRE_REASON], handle[EXO_WIRE_HANDLE + 1];
static uint8_t bytes[EXO_WIRE_INLINE + 1];

static void
setup(void)
{
    memset(name_text, 'n', sizeof name_text - 1); /* the longest allowed */
    memset(reason_text, 'r', sizeof reason_text - 1);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    memcpy(handle, bytes, sizeof handle);
}

/* Gives one envelope of each kind and place, first small ones, then ones with texts and payloads of
 * the largest size. */
static size_t
every_envelope(exo_envelope out[32])
{
    const exo_wire_payload small[] = {{0},
                                      {.place = EXO_WIRE_BYTES, .data = bytes, .size = 3},
                                      {.place = EXO_WIRE_FRAMED},
                                      {.place = EXO_WIRE_OBJECT, .data = handle, .size = 5}};
    const exo_wire_payload large[] = {
        {.place = EXO_WIRE_BYTES, .data = bytes, .size = EXO_WIRE_INLINE},
        {.place = EXO_WIRE_OBJECT, .data = handle, .size = EXO_WIRE_HANDLE},
        {.place = EXO_WIRE_BYTES, .data = bytes, .size = 0}};
    const exo_wire_identity who = {
        .node = 7, .pid = 8, .start = 9, .name = "n", .boot = "b", .endpoint = "e", .cluster = "c"};
    const exo_wire_identity most = {.node = UINT64_MAX,
                                    .pid = UINT32_MAX,
                                    .start = UINT64_MAX,
                                    .name = name_text,
                                    .boot = name_text,
                                    .endpoint = name_text,
                                    .cluster = name_text};
    size_t n = 0;
    for (size_t i = 0; i < 4; i++)
        out[n++] = (exo_envelope){.kind = EXO_WIRE_CALL,
                                  .id = 1,
                                  .actor = 2,
                                  .method = "add",
                                  .text = "head",
                                  .timeout = 120,
                                  .payload = small[i]};
    for (size_t i = 0; i < 4; i++)
        out[n++] = (exo_envelope){.kind = EXO_WIRE_REPLY,
                                  .id = 3,
                                  .status = EXO_FULL,
                                  .text = "why",
                                  .payload = small[i]};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_CANCEL, .id = 4};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_BEAT, .taken = 5, .read = 6};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_HELLO, .who = who};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_WELCOME, .who = who};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_REFUSED, .version = 2, .text = "no"};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_GOODBYE, .text = "bye"};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_RING, .token = 5};
    out[n++] = (exo_envelope){
        .kind = EXO_WIRE_PIECE, .size = 1 << 20, .payload = {.place = EXO_WIRE_FRAMED}};
    out[n++] =
        (exo_envelope){.kind = EXO_WIRE_REPLY, .id = 8, .payload = {.place = EXO_WIRE_LANDED}};
    for (size_t i = 0; i < 3; i++)
        out[n++] = (exo_envelope){.kind = EXO_WIRE_CALL,
                                  .id = UINT64_MAX,
                                  .actor = UINT64_MAX,
                                  .method = name_text,
                                  .text = name_text,
                                  .timeout = INT64_MAX,
                                  .payload = large[i]};
    for (size_t i = 0; i < 3; i++)
        out[n++] = (exo_envelope){.kind = EXO_WIRE_REPLY,
                                  .id = UINT64_MAX,
                                  .status = EXO_FAILED,
                                  .text = reason_text,
                                  .payload = large[i]};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_CALL, .timeout = INT64_MIN}; /* texts may be NULL */
    out[n++] = (exo_envelope){.kind = EXO_WIRE_REPLY};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_CANCEL, .id = UINT64_MAX};
    out[n++] = (exo_envelope){
        .kind = EXO_WIRE_BEAT, .taken = UINT64_MAX, .read = UINT64_MAX, .watches = true};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_HELLO, .who = most};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_WELCOME, .who = most};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_REFUSED, .version = UINT32_MAX, .text = reason_text};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_GOODBYE, .text = reason_text};
    out[n++] = (exo_envelope){.kind = EXO_WIRE_RING, .token = UINT64_MAX};
    return n;
}

static bool
same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool
same_payload(const exo_wire_payload *a, const exo_wire_payload *b)
{
    return a->place == b->place && a->size == b->size &&
           (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

static bool
same_identity(const exo_wire_identity *a, const exo_wire_identity *b, bool whole)
{
    return a->node == b->node && a->pid == b->pid && a->start == b->start &&
           same_text(a->name, b->name) && same_text(a->boot, b->boot) &&
           (!whole || (same_text(a->endpoint, b->endpoint) && same_text(a->cluster, b->cluster)));
}

static bool
same(const exo_envelope *a, const exo_envelope *b)
{
    return a->kind == b->kind && a->id == b->id && a->actor == b->actor &&
           same_text(a->method, b->method) && same_text(a->text, b->text) &&
           a->timeout == b->timeout && a->status == b->status &&
           same_payload(&a->payload, &b->payload) && a->taken == b->taken && a->read == b->read &&
           a->watches == b->watches && a->version == b->version && a->token == b->token &&
           same_identity(&a->who, &b->who, a->kind == EXO_WIRE_HELLO);
}

static exo_wire_reader
new_reader(void)
{
    exo_wire_reader r;
    cr_assert_eq(exo_wire_reader_init(&r, NULL), EXO_OK);
    return r;
}

/* Writes a frame with one envelope of each small kind. */
static exo_wire_writer
small_frame(size_t *count)
{
    exo_envelope all[32];
    exo_wire_writer w = {0};
    every_envelope(all);
    *count = 14;
    for (size_t i = 0; i < *count; i++)
        cr_assert_eq(exo_wire_add(&w, &all[i], NULL), EXO_OK);
    exo_wire_finish(&w, 77);
    return w;
}

/* Reads to the end; returns the status that ended it. */
static exo_status
read_all(exo_wire_reader *r, const void *data, size_t size, exo_err *err)
{
    exo_envelope e;
    exo_status st = exo_wire_open(r, data, size, err);
    for (size_t i = 0; st == EXO_OK; i++) {
        cr_assert_leq(i, EXO_WIRE_MAX_ENVELOPES);
        st = exo_wire_next(r, &e, err);
    }
    return st;
}

TestSuite(wire, .init = setup);

/* --- Round trips ------------------------------------------------------------------------------ */

Test(wire, brings_every_envelope_back)
{
    exo_envelope all[32], got;
    exo_wire_writer w = {0};
    exo_wire_reader r = new_reader();
    exo_err err = {0};
    size_t count = every_envelope(all);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(exo_wire_add(&w, &all[i], &err), EXO_OK, "%zu: %s", i, err.text);
    exo_wire_finish(&w, 0xfedcba98);
    cr_assert_eq(exo_wire_open(&r, w.data, w.size, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(r.number, 0xfedcba98);
    cr_expect_eq(r.version, EXO_WIRE_VERSION);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(exo_wire_next(&r, &got, &err), EXO_OK, "%zu: %s", i, err.text);
        cr_expect(same(&all[i], &got), "envelope %zu, of kind %d", i, (int)all[i].kind);
    }
    cr_expect_eq(exo_wire_next(&r, &got, &err), EXO_NOT_FOUND);
    cr_expect_eq(exo_wire_next(&r, &got, &err), EXO_NOT_FOUND);
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

Test(wire, takes_65535_envelopes_and_no_more)
{
    const exo_envelope cancel = {.kind = EXO_WIRE_CANCEL, .id = 1};
    exo_wire_writer w = {0};
    exo_wire_reader r = new_reader();
    exo_err err = {0};
    exo_envelope got;
    for (int i = 0; i < EXO_WIRE_MAX_ENVELOPES; i++)
        cr_assert_eq(exo_wire_add(&w, &cancel, &err), EXO_OK);
    size_t size = w.size;
    cr_expect_eq(exo_wire_add(&w, &cancel, &err), EXO_FULL);
    cr_expect_eq(w.size, size);
    exo_wire_finish(&w, 0);
    cr_assert_eq(exo_wire_open(&r, w.data, w.size, &err), EXO_OK);
    for (int i = 0; i < EXO_WIRE_MAX_ENVELOPES; i++)
        cr_assert_eq(exo_wire_next(&r, &got, &err), EXO_OK);
    cr_expect_eq(exo_wire_next(&r, &got, &err), EXO_NOT_FOUND);
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

/* A reader accepts the largest frame of a writer. */
Test(wire, fills_a_frame_to_its_limit_and_no_further)
{
    const exo_envelope call = {
        .kind = EXO_WIRE_CALL,
        .method = "m",
        .payload = {.place = EXO_WIRE_BYTES, .data = bytes, .size = EXO_WIRE_INLINE}};
    exo_wire_writer w = {0};
    exo_wire_reader r = new_reader();
    exo_err err = {0};
    exo_status st;
    uint32_t added = 0;
    while ((st = exo_wire_add(&w, &call, &err)) == EXO_OK)
        added++;
    cr_expect_eq(st, EXO_FULL);
    cr_expect_eq(w.count, added);
    cr_expect_leq(w.size, EXO_WIRE_FRAME0);
    exo_wire_finish(&w, 0);
    cr_expect_eq(read_all(&r, w.data, w.size, &err), EXO_NOT_FOUND, "%s", err.text);
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

/* --- Beyond the limits ------------------------------------------------------------------------ */

static void
expect_refused(const exo_envelope *e)
{
    size_t count;
    exo_wire_writer w = small_frame(&count);
    uint8_t *before = exo_calloc(1, w.size);
    size_t size = w.size;
    exo_err err = {0};
    memcpy(before, w.data, size);
    cr_expect_eq(exo_wire_add(&w, e, &err), EXO_INVAL, "kind %d", (int)e->kind);
    cr_expect_neq(err.text[0], 0);
    cr_expect_eq(w.size, size);
    cr_expect_eq(w.count, count);
    cr_expect_eq(memcmp(before, w.data, size), 0);
    exo_free(before);
    exo_wire_release(&w);
}

Test(wire, refuses_what_is_one_too_long)
{
    char long_name[EXO_WIRE_NAME + 1] = "";
    memset(long_name, 'x', EXO_WIRE_NAME);
    const exo_wire_identity names[] = {{.node = 1, .name = long_name},
                                       {.node = 1, .boot = long_name},
                                       {.node = 1, .endpoint = long_name},
                                       {.node = 1, .cluster = long_name}};
    expect_refused(&(exo_envelope){.kind = EXO_WIRE_CALL, .method = long_name});
    expect_refused(&(exo_envelope){.kind = EXO_WIRE_CALL, .text = long_name});
    for (size_t i = 0; i < 4; i++)
        expect_refused(&(exo_envelope){.kind = EXO_WIRE_HELLO, .who = names[i]});
    for (size_t i = 0; i < 2; i++)
        expect_refused(&(exo_envelope){.kind = EXO_WIRE_WELCOME, .who = names[i]});
    const exo_wire_payload payloads[] = {
        {.place = EXO_WIRE_BYTES, .data = bytes, .size = EXO_WIRE_INLINE + 1},
        {.place = EXO_WIRE_OBJECT, .data = handle, .size = EXO_WIRE_HANDLE + 1},
        {.place = (exo_wire_place)9}};
    for (size_t i = 0; i < 3; i++) {
        expect_refused(
            &(exo_envelope){.kind = EXO_WIRE_CALL, .method = "m", .payload = payloads[i]});
        expect_refused(&(exo_envelope){.kind = EXO_WIRE_REPLY, .payload = payloads[i]});
    }
    expect_refused(&(exo_envelope){0});
    expect_refused(&(exo_envelope){.kind = (exo_wire_kind)11});
}

Test(wire, cuts_a_reason_that_is_too_long)
{
    char text[2 * EXO_WIRE_REASON] = "";
    exo_wire_writer w = {0};
    exo_wire_reader r = new_reader();
    exo_envelope got;
    memset(text, 'x', sizeof text - 1);
    cr_assert_eq(exo_wire_add(&w, &(exo_envelope){.kind = EXO_WIRE_GOODBYE, .text = text}, NULL),
                 EXO_OK);
    exo_wire_finish(&w, 0);
    cr_assert_eq(exo_wire_open(&r, w.data, w.size, NULL), EXO_OK);
    cr_assert_eq(exo_wire_next(&r, &got, NULL), EXO_OK);
    cr_expect_eq(strlen(got.text), EXO_WIRE_REASON - 1);
    cr_expect_str_eq(got.text + EXO_WIRE_REASON - 5, "x...");
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

/* --- Bytes that are no message ---------------------------------------------------------------- */

Test(wire, refuses_a_frame_cut_anywhere)
{
    size_t count;
    exo_wire_writer w = small_frame(&count);
    exo_wire_reader r = new_reader();
    for (size_t cut = 0; cut < w.size; cut++) {
        exo_err err = {0};
        /* of exactly the size, so that a sanitizer sees a read beyond it */
        uint8_t *exact = exo_calloc(1, cut);
        memcpy(exact, w.data, cut);
        cr_expect_eq(read_all(&r, exact, cut, &err), EXO_INVAL, "cut at %zu", cut);
        cr_expect_neq(err.text[0], 0);
        exo_free(exact);
    }
    cr_expect_eq(read_all(&r, w.data, w.size, NULL), EXO_NOT_FOUND);
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

/* A flipped bit may give another message; every other outcome is INVAL or UNSUPPORTED. The reader
 * can be used again. */
Test(wire, survives_every_flipped_bit)
{
    size_t count;
    exo_wire_writer w = small_frame(&count);
    exo_wire_reader r = new_reader();
    for (size_t at = 0; at < w.size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            w.data[at] ^= (uint8_t)(1u << bit);
            exo_status st = read_all(&r, w.data, w.size, NULL);
            bool number = at >= 8 && at < EXO_WIRE_HEADER;
            cr_expect(st == EXO_INVAL || (st == EXO_NOT_FOUND && at >= 8) ||
                          (st == EXO_UNSUPPORTED && (at == 4 || at == 5)),
                      "byte %zu bit %d: %d", at, bit, (int)st);
            cr_expect(!number || st == EXO_NOT_FOUND);
            w.data[at] ^= (uint8_t)(1u << bit);
        }
    }
    cr_expect_eq(read_all(&r, w.data, w.size, NULL), EXO_NOT_FOUND);
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

Test(wire, knows_the_version_of_another)
{
    size_t count;
    exo_wire_writer w = small_frame(&count);
    exo_wire_reader r = new_reader();
    const uint32_t others[] = {0, 1, 3, 255, 256, 65535};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        exo_err err = {0};
        exo_envelope e;
        char expected[32];
        w.data[4] = (uint8_t)others[i];
        w.data[5] = (uint8_t)(others[i] >> 8);
        cr_expect_eq(exo_wire_open(&r, w.data, w.size, &err), EXO_UNSUPPORTED);
        cr_expect_eq(r.version, others[i]);
        snprintf(expected, sizeof expected, "version %u ", others[i]);
        cr_expect_not_null(strstr(err.text, expected), "%s", err.text);
        cr_expect_not_null(strstr(err.text, others[i] < EXO_WIRE_VERSION ? "update the other one"
                                                                         : "update this one"),
                           "%s", err.text);
        cr_expect_eq(exo_wire_next(&r, &e, NULL), EXO_INVAL, "nothing of it is read");
    }
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

Test(wire, refuses_a_frame_that_is_too_long)
{
    exo_wire_reader r = new_reader();
    size_t count;
    exo_wire_writer w = small_frame(&count);
    uint8_t *large = exo_calloc(1, EXO_WIRE_FRAME0 + 1);
    memcpy(large, w.data, w.size);
    cr_expect_eq(exo_wire_open(&r, large, EXO_WIRE_FRAME0, NULL), EXO_OK);
    cr_expect_eq(exo_wire_open(&r, large, EXO_WIRE_FRAME0 + 1, NULL), EXO_INVAL);
    exo_free(large);
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

Test(wire, believes_no_count)
{
    size_t count;
    exo_wire_writer w = small_frame(&count);
    exo_wire_reader r = new_reader();
    for (uint32_t claimed = 0; claimed < 65536; claimed += claimed < 32 ? 1 : 977) {
        w.data[6] = (uint8_t)claimed;
        w.data[7] = (uint8_t)(claimed >> 8);
        cr_expect_eq(read_all(&r, w.data, w.size, NULL),
                     claimed == count ? EXO_NOT_FOUND : EXO_INVAL, "%u", claimed);
    }
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

Test(wire, believes_no_length)
{
    const exo_envelope cancel = {.kind = EXO_WIRE_CANCEL, .id = 300};
    const uint32_t lies[] = {0,
                             1,
                             2,
                             3,
                             4,
                             6,
                             7,
                             100,
                             EXO_WIRE_ENVELOPE,
                             EXO_WIRE_ENVELOPE + 1,
                             INT32_MAX,
                             UINT32_MAX - 3,
                             UINT32_MAX};
    exo_wire_writer w = {0};
    exo_wire_reader r = new_reader();
    cr_assert_eq(exo_wire_add(&w, &cancel, NULL), EXO_OK);
    exo_wire_finish(&w, 0);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        for (int b = 0; b < 4; b++)
            w.data[EXO_WIRE_HEADER + b] = (uint8_t)(lies[i] >> (8 * b));
        cr_expect_eq(read_all(&r, w.data, w.size, NULL), EXO_INVAL, "%u", lies[i]);
    }
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

Test(wire, refuses_bytes_after_the_last_envelope)
{
    size_t count;
    exo_wire_writer w = small_frame(&count);
    exo_wire_reader r = new_reader();
    exo_err err = {0};
    uint8_t *longer = exo_calloc(1, w.size + 3);
    memcpy(longer, w.data, w.size);
    for (size_t more = 1; more <= 3; more++)
        cr_expect_eq(read_all(&r, longer, w.size + more, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "after the last"), "%s", err.text);
    exo_free(longer);
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}

/* Reads a frame around one envelope of raw protobuf. */
static exo_status
read_raw(const void *data, size_t size, exo_err *err)
{
    exo_wire_reader r = new_reader();
    uint8_t *frame = exo_calloc(1, EXO_WIRE_HEADER + 4 + size);
    memcpy(frame, "EXOG\2\0\1\0\0\0\0\0", EXO_WIRE_HEADER);
    for (int b = 0; b < 4; b++)
        frame[EXO_WIRE_HEADER + b] = (uint8_t)(size >> (8 * b));
    memcpy(frame + EXO_WIRE_HEADER + 4, data, size);
    exo_status st = read_all(&r, frame, EXO_WIRE_HEADER + 4 + size, err);
    exo_free(frame);
    exo_wire_reader_release(&r);
    return st;
}

Test(wire, refuses_envelopes_that_say_nothing_or_too_much)
{
    exo_err err = {0};
    /* a call whose method has 256 characters */
    char named[400] = {0x0a, (char)0x83, 0x02, 0x1a, (char)0x80, 0x02};
    memset(named + 6, 'm', 256);
    cr_expect_eq(read_raw("", 0, &err), EXO_INVAL, "no kind");
    cr_expect_eq(read_raw("\x5a\x00", 2, &err), EXO_INVAL, "a kind of the future");
    cr_expect_eq(read_raw("\x2a\x00", 2, &err), EXO_INVAL, "a Hello of node 0");
    cr_expect_eq(read_raw("\x0a\x04\x22\x02\x08\x07", 6, &err), EXO_INVAL,
                 "a payload at a place of the future");
    cr_expect_eq(read_raw(named, 262, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "method"), "%s", err.text);
    cr_expect_eq(read_raw("\x0a\x00", 2, &err), EXO_NOT_FOUND, "an empty call is one");
    cr_expect_eq(read_raw("\x12\x02\x10\x7f", 4, &err), EXO_NOT_FOUND,
                 "an unknown status is a failure");
}

/* Groups, nested fields and unknown fields are read in bounded depth and memory, or refused. */
Test(wire, is_not_nested_to_death)
{
    static uint8_t nested[EXO_WIRE_ENVELOPE];
    exo_err err = {0};
    memset(nested, 0x0a, sizeof nested); /* field 1, of 10 bytes, again and again */
    cr_expect_eq(read_raw(nested, sizeof nested, &err), EXO_INVAL);
    memset(nested, 0x0b, sizeof nested); /* groups that begin within each other */
    cr_expect_eq(read_raw(nested, sizeof nested, &err), EXO_INVAL);
    for (size_t i = 0; i + 1 < sizeof nested; i += 2) { /* unknown varints */
        nested[i] = 0x78;
        nested[i + 1] = 0x01;
    }
    cr_expect_eq(read_raw(nested, sizeof nested & ~(size_t)1, &err), EXO_INVAL);
}

/* --- Failed allocations ----------------------------------------------------------------------- */

Test(wire, writes_again_after_every_failed_allocation)
{
    exo_envelope all[32];
    size_t count = every_envelope(all);
    for (uint64_t n = 1;; n++) {
        exo_wire_writer w = {0};
        exo_wire_reader r = new_reader();
        size_t failures = 0;
        exo_memory_fail_at(n);
        for (size_t i = 0; i < count; i++) {
            exo_wire_writer before = w;
            exo_status st = exo_wire_add(&w, &all[i], NULL);
            if (st == EXO_OK)
                continue;
            cr_assert_eq(st, EXO_NOMEM);
            cr_expect_eq(w.size, before.size);
            cr_expect_eq(w.count, before.count);
            cr_assert_eq(exo_wire_add(&w, &all[i], NULL), EXO_OK);
            failures++;
        }
        exo_memory_fail_at(0);
        exo_wire_finish(&w, 0);
        cr_expect_eq(read_all(&r, w.data, w.size, NULL), EXO_NOT_FOUND);
        exo_wire_reader_release(&r);
        exo_wire_release(&w);
        if (failures == 0) {
            cr_expect_gt(n, 2, "no allocation failed");
            break;
        }
    }
}

/* The status is NOMEM, which does not blame the peer. */
Test(wire, reads_again_after_every_failed_allocation)
{
    exo_envelope all[32];
    exo_wire_writer w = {0};
    exo_wire_reader r;
    size_t count = every_envelope(all);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(exo_wire_add(&w, &all[i], NULL), EXO_OK);
    exo_wire_finish(&w, 0);
    exo_memory_fail_at(1);
    cr_expect_eq(exo_wire_reader_init(&r, NULL), EXO_NOMEM);
    exo_wire_reader_release(&r);
    r = new_reader();
    for (uint64_t n = 1;; n++) {
        exo_err err = {0};
        exo_memory_fail_at(n);
        exo_status st = read_all(&r, w.data, w.size, &err);
        exo_memory_fail_at(0);
        if (st == EXO_NOT_FOUND) {
            cr_expect_gt(n, 2, "no allocation failed");
            break;
        }
        cr_expect_eq(st, EXO_NOMEM, "%s", err.text);
        cr_expect_eq(read_all(&r, w.data, w.size, &err), EXO_NOT_FOUND);
    }
    exo_wire_reader_release(&r);
    exo_wire_release(&w);
}
