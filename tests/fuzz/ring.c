/* The other side of a ring as an attacker. An input is a sequence of steps: messages that are put,
 * messages that the reader takes, and words that overwrite the shared memory. The reader takes what
 * it can until the ring is broken. Each step is a byte that chooses, two bytes with the place or
 * the length, and eight bytes of a word.
 *
 * One thread has all four ends; each input makes and frees them. Read next: runtime/net/ring.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/ring.h"

enum {
    STEP = 11,
    LONGEST_STEP = 8192
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool condition)
{
    if (!condition)
        abort();
}

/* Takes a message into memory of exactly its size, so that a sanitizer sees every access beyond
 * it. */
static void
take(exo_ring *ring)
{
    size_t size = exo_ring_next(ring);
    require(size <= EXO_RING_MESSAGE && (size == 0 || !exo_ring_is_broken(ring)));
    if (size == 0)
        return;
    uint8_t *out = malloc(size);
    require(out != NULL);
    exo_ring_peek(ring, out, size);
    exo_ring_take(ring, out);
    free(out);
}

/* The counters lie in the first words, the messages after the first page. */
static void
overwrite(exo_ring *ring, bool counters, size_t number, const uint8_t word[8])
{
    size_t where = counters ? number % 256 : 4096 + number * 8 % EXO_RING_BYTES;
    memcpy((uint8_t *)exo_ring_memory(ring) + where, word, 8);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[UINT16_MAX + 1];
    exo_ring *reader = NULL, *writer = NULL, *back_reader = NULL, *back_writer = NULL;
    int file = -1;
    require(exo_ring_pair_new(&reader, &back_writer, &file, NULL) == EXO_OK);
    require(exo_ring_pair_open(&back_reader, &writer, file, NULL) == EXO_OK);
    close(file);
    for (size_t at = 0; at + STEP <= size && at < LONGEST_STEP; at += STEP) {
        size_t number = data[at + 1] | (size_t)data[at + 2] << 8;
        if (data[at] < 96)
            exo_ring_put(writer, bytes, number);
        else if (data[at] < 192)
            take(reader);
        else
            overwrite(reader, data[at] < 224, number, data + at + 3);
    }
    exo_ring_free(&writer);
    exo_ring_free(&reader);
    exo_ring_free(&back_writer);
    exo_ring_free(&back_reader);
    return 0;
}
