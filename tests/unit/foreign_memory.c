/* Memory that another one writes at every moment while it is read: rings, and messages in another process's object. Nothing may be believed
 * twice. Under the address sanitizer a byte beyond what was allocated ends the test. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/clock.h>

#include "check.h"
#include "cluster.pb-c.h"
#include "messages.h"
#include "ring.h"
#include "store.h"

/* --- Rings ----------------------------------------------------------------------------------------------------------------- */

struct scribbler {
    exo_ring *ring;
    atomic_bool over;
};

static uint64_t
draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Counters and lengths near what they are, so that much of it is believable for a moment. */
static void *
scribble(void *argument)
{
    struct scribbler *s = argument;
    uint8_t *memory = exo_ring_memory(s->ring);
    uint64_t state = 88172645463325252u;
    while (!atomic_load(&s->over)) {
        uint64_t number = draw(&state);
        volatile uint64_t *word =
            (volatile uint64_t *)(void *)(memory + (number & 1 ? number % 3 * 64 : 4096 + number % 64 * 8));
        *word = draw(&state) >> (number >> 32) % 64;
    }
    return NULL;
}

static void
read_exactly(exo_ring *ring)
{
    size_t size = exo_ring_next(ring);
    CHECK(size <= EXO_RING_MESSAGE);
    if (size == 0)
        return;
    uint8_t *out = malloc(size);
    CHECK(out);
    exo_ring_peek(ring, out, size < 12 ? size : 12);
    exo_ring_take(ring, out);
    free(out);
}

Test(foreign_memory, is_read_once_from_rings, .timeout = 240)
{
    static const uint8_t bytes[EXO_RING_MESSAGE];
    unsigned broken = 0;
    for (int round = 0; round < 400; round++) {
        exo_ring *reader, *writer, *back_reader, *back_writer;
        int file;
        pthread_t thread;
        CHECK(exo_ring_pair_new(&reader, &back_writer, &file, NULL) == EXO_OK);
        CHECK(exo_ring_pair_open(&back_reader, &writer, file, NULL) == EXO_OK);
        struct scribbler s = {.ring = round % 2 ? writer : back_writer};
        CHECK(pthread_create(&thread, NULL, scribble, &s) == 0);
        for (int i = 0; i < 200; i++) {
            exo_ring_put(writer, bytes, 1 + (size_t)(i * 131 % 2000));
            exo_ring_put(back_writer, bytes, 1 + (size_t)(i * 131 % 2000));
            read_exactly(reader);
            read_exactly(back_reader);
        }
        broken += exo_ring_is_broken(reader) || exo_ring_is_broken(writer) || exo_ring_is_broken(back_reader);
        atomic_store(&s.over, true);
        pthread_join(thread, NULL);
        exo_ring_free(&reader);
        exo_ring_free(&writer);
        exo_ring_free(&back_reader);
        exo_ring_free(&back_writer);
        close(file);
    }
    cr_expect_gt(broken, 10);
}

/* --- Messages -------------------------------------------------------------------------------------------------------------- */

enum {
    CHANGES = 100, /* that were seen while it was unpacked */
    MORE = 40000,
    LEVELS = 60000,
    TAG_BYTES = 6 /* of a level: the tag of Spawn.together, in 2 bytes at most, and a length */
};

/* A Spawn in a Spawn in a Spawn: more than any stack has room for. Gives where it begins. */
static uint8_t *
nest(uint8_t *end, unsigned tag)
{
    size_t size = 0;
    uint8_t *at = end;
    for (int level = 0; level < LEVELS; level++) {
        uint8_t head[TAG_BYTES];
        size_t n = 0;
        for (unsigned t = tag; n == 0 || t; t >>= 7)
            head[n++] = (uint8_t)((t & 127) | (t > 127 ? 128 : 0));
        for (size_t left = size, first = n; n == first || left; left >>= 7)
            head[n++] = (uint8_t)((left & 127) | (left > 127 ? 128 : 0));
        at -= n;
        memcpy(at, head, n);
        size += n;
    }
    return at;
}

static unsigned
tag_of(const char *field)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(&exo__cluster__spawn__descriptor, field);
    CHECK(f && f->type == PROTOBUF_C_TYPE_MESSAGE);
    return f->id << 3 | 2;
}

/* Owns an object, and makes its first field known and unknown again and again. */
static void
own_and_change(int out)
{
    enum {
        SIZE = LEVELS * TAG_BYTES
    };
    static uint8_t room[SIZE];
    const uint8_t *from = nest(room + SIZE, tag_of("together"));
    size_t size = (size_t)(room + SIZE - from);
    exo_store *store = NULL;
    exo_object *object = NULL;
    exo_object_handle handle;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(exo_store_open(&store, NULL, NULL) == EXO_OK);
    CHECK(exo_object_create(store, size + MORE, &object, NULL) == EXO_OK);
    uint8_t *bytes = exo_object_data(object);
    memcpy(bytes, from, size);
    for (size_t i = 0; i < MORE; i += 2)
        memcpy(bytes + size + i, (uint8_t[]){4 << 3, 1},
               2); /* Spawn.get_if_exists: time between two looks at the tag */
    exo_object_seal(object);
    CHECK(exo_object_export(object, &handle, NULL) == EXO_OK);
    CHECK(write(out, &handle, sizeof handle) == sizeof handle);
    for (volatile uint8_t *tag = bytes;;) {
        *tag ^= 8; /* the next number, which is no message; and back */
        for (volatile int i = 0; i < 1000; i++)
            ;
    }
}

Test(foreign_memory, is_unpacked_from_a_copy, .timeout = 240)
{
    int ends[2];
    exo_store *store = NULL;
    exo_object *object = NULL;
    exo_object_handle handle;
    cr_assert_eq(pipe(ends), 0);
    pid_t owner = fork();
    if (owner == 0)
        own_and_change(ends[1]);
    cr_assert_eq(read(ends[0], &handle, sizeof handle), sizeof handle);
    cr_assert_eq(exo_store_open(&store, NULL, NULL), EXO_OK);
    cr_assert_eq(exo_object_import(store, &handle, &object, NULL), EXO_OK);
    exo_payload payload = exo_object_payload(object);
    const volatile uint8_t *tag = payload.data;
    exo_time until = exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
    for (int changes = 0; changes < CHANGES && exo_now(exo_clock_real()) < until;) {
        uint8_t before = *tag;
        Exo__Cluster__Spawn *spawn = exo_message_unpack(&exo__cluster__spawn__descriptor, &payload);
        changes += *tag != before;
        if (spawn)
            exo__cluster__spawn__free_unpacked(spawn, NULL);
    }
    exo_payload_release(&payload);
    exo_object_drop(&object);
    exo_store_close(&store);
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}
