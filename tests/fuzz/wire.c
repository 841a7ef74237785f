/* A first frame as a peer may send it: the envelopes that are read, written and read again are the
 * same. One thread. Read next: runtime/wire/wire.h. */
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "wire/wire.h"

static void
require(bool condition)
{
    if (!condition)
        abort();
}

static bool
same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool
same(const exo_envelope *a, const exo_envelope *b)
{
    return a->kind == b->kind && a->id == b->id && a->actor == b->actor &&
           same_text(a->method, b->method) && same_text(a->text, b->text) &&
           a->timeout == b->timeout && a->status == b->status && a->taken == b->taken &&
           a->read == b->read && a->watches == b->watches && a->version == b->version &&
           a->payload.place == b->payload.place && a->payload.size == b->payload.size &&
           (a->payload.size == 0 ||
            memcmp(a->payload.data, b->payload.data, a->payload.size) == 0) &&
           a->who.node == b->who.node && a->who.pid == b->who.pid && a->who.start == b->who.start &&
           same_text(a->who.name, b->who.name) && same_text(a->who.boot, b->who.boot) &&
           same_text(a->who.endpoint, b->who.endpoint) && same_text(a->who.cluster, b->who.cluster);
}

/* Reads the envelopes of `data` until an error, and writes each to `out`. */
static exo_status
copy(const uint8_t *data, size_t size, exo_wire_writer *out, bool *full)
{
    exo_wire_reader r;
    exo_envelope e;
    exo_status st;
    require(exo_wire_reader_init(&r, NULL) == EXO_OK);
    st = exo_wire_open(&r, data, size, NULL);
    while (st == EXO_OK && (st = exo_wire_next(&r, &e, NULL)) == EXO_OK) {
        exo_status added = exo_wire_add(out, &e, NULL);
        /* FULL: the sender's encoding may have been shorter */
        require(added == EXO_OK || added == EXO_FULL);
        *full = *full || added != EXO_OK;
    }
    if (out->count > 0)
        exo_wire_finish(out, r.number);
    exo_wire_reader_release(&r);
    return st;
}

static void
compare(const uint8_t *data, size_t size, const exo_wire_writer *again)
{
    exo_wire_reader a, b;
    exo_envelope x, y;
    require(exo_wire_reader_init(&a, NULL) == EXO_OK && exo_wire_reader_init(&b, NULL) == EXO_OK);
    require(exo_wire_open(&a, data, size, NULL) == EXO_OK);
    require(exo_wire_open(&b, again->data, again->size, NULL) == EXO_OK);
    require(a.number == b.number);
    for (uint32_t i = 0; i < again->count; i++) {
        require(exo_wire_next(&a, &x, NULL) == EXO_OK);
        require(exo_wire_next(&b, &y, NULL) == EXO_OK);
        require(same(&x, &y));
    }
    require(exo_wire_next(&b, &y, NULL) == EXO_NOT_FOUND);
    exo_wire_reader_release(&a);
    exo_wire_reader_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    exo_wire_writer out = {0};
    bool full = false;
    exo_status st = copy(data, size, &out, &full);
    require(st == EXO_INVAL || st == EXO_UNSUPPORTED || st == EXO_NOT_FOUND);
    if (out.count > 0 && !full)
        compare(data, size, &out);
    exo_wire_release(&out);
    return 0;
}
