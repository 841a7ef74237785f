/* Rings: order, room, sleep, and what is not believed. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "check.h"
#include "ring.h"

/* Both ends in this process. */
struct pair {
    exo_ring *reader, *writer;
};

static struct pair
open_pair(void)
{
    struct pair p = {0};
    exo_err err = {0};
    cr_assert_eq(exo_ring_new(&p.reader, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_ring_open(&p.writer, (uint32_t)getpid(), exo_ring_fd(p.reader), exo_ring_token(p.reader), &err),
                 EXO_OK, "%s", err.text);
    return p;
}

static void
close_pair(struct pair *p)
{
    exo_ring_free(&p->reader);
    exo_ring_free(&p->writer);
}

/* Message `number`: its length and bytes follow from it. */
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

Test(ring, opens_nothing_else)
{
    struct pair p = open_pair();
    exo_ring *none = NULL;
    exo_err err = {0};
    uint32_t self = (uint32_t)getpid();
    int fd = exo_ring_fd(p.reader), plain = memfd_create("plain", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(plain, 4096 + EXO_RING_BYTES), 0);
    cr_expect_eq(exo_ring_open(&none, self, fd, exo_ring_token(p.reader) + 1, &err), EXO_INVAL);
    cr_expect_eq(exo_ring_open(&none, self, plain, 0, &err), EXO_INVAL, "its size may change");
    cr_expect_eq(exo_ring_open(&none, self, 0, 0, &err), EXO_PEER_LOST);
    cr_expect_eq(exo_ring_open(&none, self, 1 << 20, 0, &err), EXO_PEER_LOST);
    cr_expect_eq(exo_ring_open(&none, self, -1, 0, &err), EXO_PEER_LOST);
    cr_expect_eq(exo_ring_open(&none, UINT32_MAX, fd, exo_ring_token(p.reader), &err), EXO_PEER_LOST);
    cr_expect_null(none);
    cr_expect_neq(ftruncate(fd, 0), 0, "nobody can take its memory away");
    close(plain);
    close_pair(&p);
}

/* Where `written`, `read` and the first message's length lie. */
enum {
    WRITTEN = 64,
    READ = 128,
    FIRST = 4096
};

/* A ring with one message, in which the other side has then written a number. */
static struct pair
damaged(size_t where, uint64_t value)
{
    struct pair p = open_pair();
    cr_assert(exo_ring_put(p.writer, "message", 8));
    cr_assert_eq(pwrite(exo_ring_fd(p.reader), &value, sizeof value, (off_t)where), sizeof value);
    return p;
}

Test(ring, believes_no_counter)
{
    static const uint64_t written[] = {1, 7, 15, 17 + EXO_RING_BYTES, UINT64_MAX, UINT64_C(1) << 63};
    static const uint64_t lengths[] = {0, 9, EXO_RING_MESSAGE, EXO_RING_MESSAGE + 1, UINT64_MAX, UINT64_MAX - 7};
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

/* Two processes at once: all comes, in order, and who sleeps is woken. */
Test(ring, works_between_processes, .timeout = 120)
{
    int bell[2];
    exo_ring *ring = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_ring_new(&ring, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(pipe(bell), 0);
    uint32_t parent = (uint32_t)getpid();
    pid_t child = fork();
    if (child == 0) {
        exo_ring *out = NULL;
        uint8_t bytes[3000];
        if (exo_ring_open(&out, parent, exo_ring_fd(ring), exo_ring_token(ring), &err) != EXO_OK)
            _exit(1);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            size_t size = make_message(i, bytes);
            while (!exo_ring_put(out, bytes, size))
                usleep(10);
            if (exo_ring_wakes(out) && write(bell[1], "", 1) != 1)
                _exit(1);
            if (i % 1000 == 0)
                usleep(500); /* let the other one go to sleep */
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
    close(bell[0]);
    close(bell[1]);
}
