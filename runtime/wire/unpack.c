/* Unpacking of protobuf messages into few blocks of memory: see unpack.h. */
#include "wire/unpack.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#include <exogym/memory.h>

enum {
    UNIT = 16,       /* the alignment of each part, and what one takes at least */
    LEAST = 1 << 10, /* bytes of a block but the first one, and but for larger parts */
    MOST = 64 << 10
};

struct block {
    struct block *next; /* an earlier one */
    size_t size, used;
    _Alignas(UNIT) uint8_t data[];
};

/* The blocks of a message, newest first; the message lies at the beginning of the oldest. */
struct arena {
    ProtobufCAllocator allocator;
    struct block *newest;
    bool failed; /* there was no memory for a part */
};

/* What the first part of a block belongs to: the message is behind it. */
struct head {
    _Alignas(UNIT) struct block *newest;
};

static void *
fail(struct arena *a)
{
    a->failed = true;
    return NULL;
}

static void *
take(void *context, size_t size)
{
    struct arena *a = context;
    struct block *b = a->newest;
    if (size > SIZE_MAX / 2)
        return fail(a);
    size_t part = (size + UNIT - 1) / UNIT * UNIT;
    if (!b || b->size - b->used < part) {
        size_t room = !b || b->size < LEAST ? LEAST : b->size < MOST ? b->size : MOST;
        room = part > room ? part : room;
        if (!(b = exo_calloc(1, sizeof *b + room)))
            return fail(a);
        b->size = room;
        b->next = a->newest;
        a->newest = b;
    }
    void *out = b->data + b->used;
    b->used += part;
    return out;
}

/* The parts of a message are freed with the message. */
static void
leave(void *context, void *part)
{
    (void)context;
    (void)part;
}

static void
free_blocks(struct block *newest)
{
    for (struct block *next; newest; newest = next) {
        next = newest->next;
        exo_free(newest);
    }
}

/* Estimates the memory of a message from its packed size. A text of n bytes takes n + 2 bytes
 * packed, and less than n + 1 + UNIT here. Small messages and numbers need about as much. */
static size_t
guess(const ProtobufCMessageDescriptor *descriptor, size_t size)
{
    size_t parts = size < MOST / 4 ? 4 * size : MOST;
    return sizeof(struct head) + descriptor->sizeof_message + UNIT + parts;
}

exo_status
exo_message_unpack_bytes(void **out, const ProtobufCMessageDescriptor *descriptor, size_t size,
                         const uint8_t *data)
{
    struct arena a = {.allocator = {.alloc = take, .free = leave}};
    size_t room = guess(descriptor, size);
    *out = NULL;
    a.allocator.allocator_data = &a;
    if (!(a.newest = exo_calloc(1, sizeof *a.newest + room)))
        return EXO_NOMEM;
    a.newest->size = room;
    struct head *head = take(&a, sizeof *head);
    ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, &a.allocator, size, data);
    /* protobuf-c allocates the message before all that it refers to. */
    assert(!message || (void *)message == (void *)(head + 1));
    if ((void *)message != (void *)(head + 1)) {
        free_blocks(a.newest);
        return a.failed ? EXO_NOMEM : EXO_INVAL;
    }
    head->newest = a.newest;
    *out = message;
    return EXO_OK;
}

void
exo_message_release(ProtobufCMessage *message)
{
    if (message)
        free_blocks(((struct head *)(void *)message - 1)->newest);
}
