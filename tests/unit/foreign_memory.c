/* Memory that another process writes while this process reads it: rings, messages in another
 * process's object, and the memory that processes share of a store. A value must be read only once.
 * Under the address sanitizer an access beyond an allocation ends the test.
 *
 * Each test owns its rings and stores; child processes are the hostile writers. Read next:
 * runtime/net/ring.h, runtime/store/store.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/clock.h>

#include "cluster.pb-c.h"
#include "cluster/messages.h"
#include "net/ring.h"
#include "store/store.h"
#include "support/check.h"

/* --- Rings ------------------------------------------------------------------------------------ */

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

/* Overwrites counters and lengths, with values of all magnitudes, so that some are plausible for a
 * moment. */
static void *
scribble(void *argument)
{
    struct scribbler *s = argument;
    uint8_t *memory = exo_ring_memory(s->ring);
    uint64_t state = 88172645463325252u;
    while (!atomic_load(&s->over)) {
        uint64_t number = draw(&state);
        volatile uint64_t *word =
            (volatile uint64_t *)(void *)(memory +
                                          (number & 1 ? number % 3 * 64 : 4096 + number % 64 * 8));
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
        broken += exo_ring_is_broken(reader) || exo_ring_is_broken(writer) ||
                  exo_ring_is_broken(back_reader);
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

/* --- Messages --------------------------------------------------------------------------------- */

enum {
    CHANGES = 100, /* seen while a message was unpacked */
    MORE = 40000,
    LEVELS = 60000,
    TAG_BYTES = 6 /* of a level: the tag of Spawn.together, at most 2 bytes, and a length */
};

/* Writes Spawns nested deeper than any stack allows, so that they end at `end`. Returns their
 * beginning. */
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

/* Owns an object, and repeatedly makes its first field known and unknown. */
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
    /* many Spawn.get_if_exists fields, which take time between two reads of the tag */
    for (size_t i = 0; i < MORE; i += 2)
        memcpy(bytes + size + i, (uint8_t[]){4 << 3, 1}, 2);
    exo_object_seal(object);
    CHECK(exo_object_export(object, &handle, NULL) == EXO_OK);
    CHECK(write(out, &handle, sizeof handle) == sizeof handle);
    for (volatile uint8_t *tag = bytes;;) {
        *tag ^= 8; /* the next field number, which is not a message, and back */
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
        EXO_RELEASE(spawn);
    }
    exo_payload_release(&payload);
    exo_object_drop(&object);
    exo_store_close(&store);
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

/* --- Stores ----------------------------------------------------------------------------------- */

enum {
    OBJECTS = 3000,
    HELD = 8,
    FILES = 64 /* the owner's descriptors that are tried */
};

static uint64_t
size_of(unsigned i)
{
    return i % 4 == 0 ? (80 << 10) + i : i % 4 == 1 ? 200 + i % 1000 : 5000 + i % 1000;
}

/* Locks and unlocks the owner's segments that it can open, and tries to write to them. The kernel
 * must refuse each write. */
static void
tamper(pid_t owner)
{
    int files[FILES];
    uint64_t state = 88172645463325252u;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(files, -1, sizeof files);
    for (;;) {
        uint64_t number = draw(&state);
        int *file = &files[number % FILES];
        if (*file >= 0 && number >> 20 & 1) {
            close(*file); /* also releases its locks */
            *file = -1;
        }
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)owner, (int)(number % FILES));
        if (*file < 0 && readlink(path, target, sizeof target - 1) > 0 &&
            strncmp(target, "/memfd:exogym ", 14) == 0)
            *file = open(path, O_RDWR | O_CLOEXEC);
        if (*file < 0)
            continue;
        static const short types[] = {F_RDLCK, F_WRLCK, F_UNLCK, F_UNLCK};
        struct flock lock = {.l_type = types[number >> 22 & 3],
                             .l_whence = SEEK_SET,
                             .l_start = (off_t)(number >> 24 & 127) << 32,
                             .l_len = (off_t)1 << 32};
        fcntl(*file, F_OFD_SETLK, &lock);
        /* until it is sealed, no other process knows the segment */
        if (fcntl(*file, F_GET_SEALS) & F_SEAL_SEAL) {
            CHECK(pwrite(*file, &state, sizeof state, (off_t)(number >> 32 & 8191)) == -1 &&
                  errno == EPERM);
            CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, *file, 0) == MAP_FAILED &&
                  errno == EPERM);
            CHECK(ftruncate(*file, (off_t)(number >> 32 & 65535)) == -1 && errno == EPERM);
            CHECK(fallocate(*file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192) == -1 &&
                  errno == EPERM);
        }
    }
}

static bool
is_all(const exo_object *object, unsigned char value)
{
    const unsigned char *bytes = exo_object_data(object);
    for (uint64_t i = 0; i < exo_object_size(object); i++)
        if (bytes[i] != value)
            return false;
    return true;
}

/* Holds the last objects that it received, long after their owner has dropped them. */
static void
hold_and_look(int socket)
{
    exo_object *held[HELD] = {0};
    unsigned char values[HELD] = {0};
    exo_object_handle handle;
    exo_store *store = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(exo_store_open(&store, NULL, NULL) == EXO_OK);
    for (unsigned i = 0; recv(socket, &handle, sizeof handle, 0) == sizeof handle; i++) {
        exo_object_drop(&held[i % HELD]);
        exo_status st = exo_object_import(store, &handle, &held[i % HELD], NULL);
        CHECK(st == EXO_OK || st == EXO_FULL);
        values[i % HELD] = (unsigned char)i;
        for (unsigned k = 0; k < HELD; k++)
            CHECK(!held[k] || is_all(held[k], values[k]));
        bool got = st == EXO_OK;
        CHECK(send(socket, &got, sizeof got, 0) == sizeof got);
    }
    for (unsigned k = 0; k < HELD; k++)
        exo_object_drop(&held[k]);
    exo_store_close(&store);
}

Test(foreign_memory, of_a_store_is_locks_only, .timeout = 240)
{
    int ends[2], status = 0;
    unsigned got = 0;
    pid_t self = getpid();
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_t reader = fork();
    if (reader == 0) {
        close(ends[1]);
        hold_and_look(ends[0]);
        _exit(0);
    }
    pid_t bad = fork();
    if (bad == 0) {
        close(ends[0]);
        close(ends[1]);
        tamper(self);
    }
    close(ends[0]);
    exo_store *store = NULL;
    const exo_store_opts opts = {.capacity = 64 << 20, .keep = 4 << 20};
    cr_assert_eq(exo_store_open(&store, &opts, NULL), EXO_OK);
    for (unsigned i = 0; i < OBJECTS; i++) {
        exo_object *object = NULL;
        exo_object_handle handle;
        bool here = false;
        cr_assert_eq(exo_object_create(store, size_of(i), &object, NULL), EXO_OK);
        memset(exo_object_data(object), (int)(i & 255), size_of(i));
        exo_object_seal(object);
        cr_assert_eq(exo_object_export(object, &handle, NULL), EXO_OK);
        cr_assert_eq(send(ends[1], &handle, sizeof handle, 0), sizeof handle);
        cr_assert_eq(recv(ends[1], &here, sizeof here, 0), sizeof here, "the reader died");
        got += here;
        cr_assert(is_all(object, (unsigned char)i));
        exo_object_drop(&object);
    }
    cr_expect_gt(got, OBJECTS / 10);
    cr_expect_gt(exo_store_get_stats(store).reuses, OBJECTS / 10);
    cr_expect_eq(waitpid(bad, &status, WNOHANG), 0, "somebody could write");
    kill(bad, SIGKILL);
    waitpid(bad, NULL, 0);
    close(ends[1]);
    cr_assert_eq(waitpid(reader, &status, 0), reader);
    cr_expect_eq(status, 0);
    exo_store_close(&store);
}

enum {
    ROUNDS = 3000,
    WORDS = 64 /* of the header, which are overwritten */
};

/* Returns the header of an object's segment: the begin of its mapping. */
static volatile uint64_t *
find_header(const void *data)
{
    char line[512];
    uintptr_t at = (uintptr_t)data, from = 0, to = 0, found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps);
    while (!found && fgets(line, sizeof line, maps))
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2 && from <= at && at < to)
            found = from;
    fclose(maps);
    CHECK(found);
    return (volatile uint64_t *)found;
}

/* An owner that writes random values into its segments' headers while others read them, and tries
 * to remove their memory. */
static void
own_and_lie(int socket)
{
    exo_store *store = NULL;
    exo_object *objects[HELD] = {0};
    uint64_t state = 88172645463325252u;
    const exo_store_opts opts = {.capacity = 64 << 20, .keep = 4 << 20};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(exo_store_open(&store, &opts, NULL) == EXO_OK);
    for (unsigned i = 0;; i++) {
        exo_object_handle handle;
        exo_object **object = &objects[i % HELD];
        exo_object_drop(object);
        CHECK(exo_object_create(store, size_of(i), object, NULL) == EXO_OK);
        exo_object_seal(*object);
        CHECK(exo_object_export(*object, &handle, NULL) == EXO_OK);
        CHECK(ftruncate((int)handle.fd, 0) == -1 && errno == EPERM);
        CHECK(fallocate((int)handle.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20) ==
                  -1 &&
              errno == EPERM);
        volatile uint64_t *header = find_header(exo_object_data(*object));
        CHECK(madvise((void *)(uintptr_t)header, 1 << 16, MADV_REMOVE) == -1);
        if (send(socket, &handle, sizeof handle, MSG_NOSIGNAL) != sizeof handle)
            _exit(0);
        for (int k = 0; k < 1000; k++) {
            uint64_t number = draw(&state);
            volatile uint64_t *word =
                header + (number & 1 ? 5U + handle.slot * 2U + (number >> 1 & 1)
                                     : number >> 2 & (WORDS - 1));
            uint64_t was = *word;
            *word = number >> 8 & 1 ? draw(&state) : was ^ UINT64_C(1) << (number >> 16) % 64;
            for (volatile int wait = 0; wait < 50; wait++)
                ;
            *word = was;
        }
    }
}

/* Whatever an owner writes into a segment, an import gives an error, or an object of the announced
 * size that can be read to its end. */
Test(foreign_memory, of_a_hostile_owner_harms_no_reader, .timeout = 240)
{
    int ends[2];
    unsigned got = 0, refused = 0;
    unsigned long sum = 0;
    exo_store *store = NULL;
    exo_object_handle handle;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_t owner = fork();
    if (owner == 0) {
        close(ends[0]);
        own_and_lie(ends[1]);
    }
    close(ends[1]);
    const exo_store_opts opts = {.capacity = 64 << 20, .keep = 1 << 20};
    cr_assert_eq(exo_store_open(&store, &opts, NULL), EXO_OK);
    for (int i = 0; i < ROUNDS; i++) {
        exo_object *object = NULL;
        exo_err err = {0};
        cr_assert_eq(recv(ends[0], &handle, sizeof handle, 0), sizeof handle, "the owner died");
        exo_status st = exo_object_import(store, &handle, &object, &err);
        cr_assert(st == EXO_OK || st == EXO_NOT_FOUND || st == EXO_INVAL, "%s: %s",
                  exo_status_text(st), err.text);
        got += st == EXO_OK;
        refused += st != EXO_OK;
        if (st != EXO_OK)
            continue;
        exo_payload payload = exo_object_payload(object), stable;
        cr_assert(payload.size == handle.size && exo_payload_stable(&stable, &payload) == EXO_OK);
        for (size_t k = 0; k < stable.size; k++)
            sum += ((const unsigned char *)stable.data)[k];
        exo_payload_release(&stable);
        exo_payload_release(&payload);
        exo_object_drop(&object);
    }
    cr_expect(got > ROUNDS / 10 && refused > 0, "%u were read (%lu), %u refused", got, sum,
              refused);
    exo_store_close(&store);
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    close(ends[0]);
}
