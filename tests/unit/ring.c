/* Rings: order, capacity, sleeping, and distrust of the shared memory. Each test owns its rings.
 * Read next: runtime/net/ring.h; net_rings.c. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "net/ring.h"
#include "support/check.h"

/* Both ends of one direction, and both ends of the other direction, in this process. */
struct pair {
    exo_ring *reader, *writer, *back_reader, *back_writer;
    int file;
};

static struct pair
open_pair(void)
{
    struct pair p = {0};
    exo_err err = {0};
    cr_assert_eq(exo_ring_pair_new(&p.reader, &p.back_writer, &p.file, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_ring_pair_open(&p.back_reader, &p.writer, p.file, &err), EXO_OK, "%s",
                 err.text);
    return p;
}

static void
close_pair(struct pair *p)
{
    exo_ring_free(&p->reader);
    exo_ring_free(&p->writer);
    exo_ring_free(&p->back_reader);
    exo_ring_free(&p->back_writer);
    close(p->file);
}

/* Makes message `number`: the number determines its length and bytes. */
static size_t
make_message(uint64_t number, uint8_t *out)
{
    size_t size = 1 + number * 2654435761u % 3000;
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(number + i);
    return size;
}

static void
expect_message(exo_ring *ring, uint64_t number)
{
    uint8_t wanted[3000], got[3000], peeked[3000];
    size_t size = make_message(number, wanted);
    CHECK(exo_ring_next(ring) == size);
    exo_ring_peek(ring, peeked, size);
    CHECK(memcmp(peeked, wanted, size) == 0);
    CHECK(exo_ring_next(ring) == size);
    exo_ring_take(ring, got);
    CHECK(memcmp(got, wanted, size) == 0);
}

Test(ring, gives_what_was_put_in_its_order)
{
    struct pair p = open_pair();
    uint8_t bytes[3000];
    uint64_t put = 0, taken = 0;
    for (int round = 0; round < 200; round++) {
        for (;;) {
            size_t size = make_message(put, bytes);
            if (!exo_ring_put(p.writer, bytes, size))
                break;
            put++;
        }
        uint64_t keep = (uint64_t)round % 5;
        while (taken + keep < put)
            expect_message(p.reader, taken++);
    }
    while (taken < put)
        expect_message(p.reader, taken++);
    cr_expect_eq(exo_ring_next(p.reader), 0);
    cr_expect_gt(put, 10000);
    cr_expect(!exo_ring_is_broken(p.reader) && !exo_ring_is_broken(p.writer));
    close_pair(&p);
}

Test(ring, has_its_limits)
{
    static uint8_t bytes[EXO_RING_MESSAGE + 1];
    struct pair p = open_pair();
    cr_expect(!exo_ring_put(p.writer, bytes, EXO_RING_MESSAGE + 1));
    cr_expect(!exo_ring_put(p.writer, bytes, 0));
    cr_expect(exo_ring_put(p.writer, bytes, EXO_RING_MESSAGE));
    cr_expect(!exo_ring_put(p.writer, bytes, EXO_RING_MESSAGE), "the lengths take room, too");
    cr_expect(!exo_ring_is_broken(p.writer));
    cr_expect_eq(exo_ring_next(p.reader), EXO_RING_MESSAGE);
    close_pair(&p);
}

Test(ring, wakes_a_sleeper_once)
{
    struct pair p = open_pair();
    cr_expect(exo_ring_put(p.writer, "a", 1));
    cr_expect(!exo_ring_wakes(p.writer));
    exo_ring_sleep(p.reader);
    cr_expect(exo_ring_put(p.writer, "b", 1));
    cr_expect(exo_ring_wakes(p.writer));
    cr_expect(exo_ring_put(p.writer, "c", 1));
    cr_expect(!exo_ring_wakes(p.writer));
    close_pair(&p);
}

Test(ring, has_a_direction_for_each)
{
    struct pair p = open_pair();
    char got[4];
    cr_expect(exo_ring_put(p.writer, "out", 4) && exo_ring_put(p.back_writer, "back", 5));
    cr_expect_eq(exo_ring_next(p.reader), 4);
    cr_expect_eq(exo_ring_next(p.back_reader), 5);
    exo_ring_take(p.reader, got);
    cr_expect_str_eq(got, "out");
    close_pair(&p);
}

/* Makes a file with `seals`, as long as a pair's file plus `more`. */
static int
file_like_a_pair(unsigned kind, int seals, off_t more)
{
    int fd = memfd_create("pair", MFD_CLOEXEC | MFD_ALLOW_SEALING | kind);
    cr_assert(fd < 0 || ftruncate(fd, EXO_RING_PAIR + more) == 0);
    cr_assert(fd < 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

Test(ring, opens_nothing_else)
{
    struct pair p = open_pair();
    exo_ring *in = NULL, *out = NULL;
    exo_err err = {0};
    char path[] = "/tmp/ring-XXXXXX";
    int ends[2], fixed = F_SEAL_SHRINK | F_SEAL_GROW, disk = mkstemp(path);
    cr_assert(pipe(ends) == 0 && disk >= 0 && ftruncate(disk, EXO_RING_PAIR) == 0);
    unlink(path);
    const int wrong[] = {
        file_like_a_pair(0, 0, 0),
        file_like_a_pair(0, F_SEAL_GROW, 0),
        file_like_a_pair(0, F_SEAL_SHRINK, 0),
        file_like_a_pair(0, fixed, 4096),
        file_like_a_pair(0, fixed, -4096),
        file_like_a_pair(0, fixed | F_SEAL_WRITE, 0),
        file_like_a_pair(MFD_HUGETLB, fixed, (2 << 20) - EXO_RING_PAIR),
        ends[0],
        disk,
        open("/", O_RDONLY | O_CLOEXEC),
        -1,
        1 << 20,
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_expect_neq(exo_ring_pair_open(&in, &out, wrong[i], &err), EXO_OK, "%zu", i);
        cr_expect(!in && !out, "%zu", i);
        if (wrong[i] >= 0 && wrong[i] < 1 << 20)
            close(wrong[i]);
    }
    close(ends[1]);
    cr_expect_neq(ftruncate(p.file, 0), 0, "nobody can take its memory away");
    cr_expect_neq(ftruncate(p.file, 2 * EXO_RING_PAIR), 0);
    close_pair(&p);
}

/* The offsets of `written`, `read` and the first message's length. */
enum {
    WRITTEN = 0,
    READ = 64,
    FIRST = 4096
};

/* Makes a ring with one message, in which the other side has then overwritten a number. */
static struct pair
damaged(size_t where, uint64_t value)
{
    struct pair p = open_pair();
    cr_assert(exo_ring_put(p.writer, "message", 8));
    memcpy((char *)exo_ring_memory(p.writer) + where, &value, sizeof value);
    return p;
}

Test(ring, believes_no_counter)
{
    static const uint64_t written[] = {
        1, 7, 15, 17 + EXO_RING_BYTES, UINT64_MAX, UINT64_C(1) << 63};
    static const uint64_t lengths[] = {
        0, 9, EXO_RING_MESSAGE, EXO_RING_MESSAGE + 1, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        struct pair p = damaged(WRITTEN, written[i]);
        cr_expect_eq(exo_ring_next(p.reader), 0, "%zu", i);
        cr_expect(exo_ring_is_broken(p.reader), "%zu", i);
        close_pair(&p);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct pair p = damaged(FIRST, lengths[i]);
        cr_expect_eq(exo_ring_next(p.reader), 0, "%zu", i);
        cr_expect(exo_ring_is_broken(p.reader), "%zu", i);
        close_pair(&p);
    }
    struct pair p = damaged(READ, 1000);
    cr_expect(!exo_ring_put(p.writer, "x", 1));
    cr_expect(exo_ring_is_broken(p.writer));
    close_pair(&p);
}

enum {
    MESSAGES = 40000
};

/* Between two processes at once all messages arrive in order, and a sleeping reader is woken. */
Test(ring, works_between_processes, .timeout = 120)
{
    int bell[2], file = -1;
    exo_ring *ring = NULL, *back = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_ring_pair_new(&ring, &back, &file, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(pipe(bell), 0);
    pid_t child = fork();
    if (child == 0) {
        exo_ring *in = NULL, *out = NULL;
        uint8_t bytes[3000];
        if (exo_ring_pair_open(&in, &out, file, &err) != EXO_OK)
            _exit(1);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            size_t size = make_message(i, bytes);
            while (!exo_ring_put(out, bytes, size))
                usleep(10);
            if (exo_ring_wakes(out) && write(bell[1], "", 1) != 1)
                _exit(1);
            if (i % 1000 == 0)
                usleep(500); /* gives the reader time to fall asleep */
        }
        exo_ring_free(&out);
        _exit(0);
    }
    unsigned slept = 0;
    for (uint64_t i = 0; i < MESSAGES; i++) {
        while (exo_ring_next(ring) == 0) {
            char rung;
            exo_ring_sleep(ring);
            if (exo_ring_next(ring) > 0)
                break;
            slept++;
            cr_assert_eq(read(bell[0], &rung, 1), 1);
        }
        expect_message(ring, i);
    }
    int status = 0;
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0);
    cr_expect_gt(slept, 10);
    exo_ring_free(&ring);
    exo_ring_free(&back);
    close(file);
    close(bell[0]);
    close(bell[1]);
}
