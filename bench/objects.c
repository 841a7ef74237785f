/* Objects in shared memory, beside memcpy of the same size between private buffers in the same run:
 *
 *   hand-over  from before the export in the owner to after the import in another process, with
 *              the message that has the handle; and the import alone
 *   copy out   the reader copies the object into a private buffer after the import; beside memcpy
 *              in the reader
 *   put        the owner creates an object and copies data into it, in kept and in new memory
 *   small      objects of 1 KiB: create, seal, export and drop in the owner; import and drop in the
 *              reader
 *
 * With small pages, a reader that copies takes a page fault for each 16 pages, and reaches less
 * than half of memcpy's rate. Populating the mapping first (MADV_POPULATE_READ, MAP_POPULATE) takes
 * as long as the faults. MADV_HUGEPAGE in the reader does nothing where the machine's setting for
 * shared memory is "never", the default. So the owner puts the segment on huge pages when it makes
 * it (MADV_COLLAPSE, Linux 6.1 or newer); 64 MiB are then 32 faults. The column "huge" shows
 * whether the kernel did. Objects below 2 MiB have no huge pages; there it helps that the reader
 * keeps the mapping.
 *
 *     bench_objects
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/clock.h>
#include <exogym/memory.h>

#include "store/store.h"

enum {
    ROUNDS = 51,
    SMALL_ROUNDS = 20000
};

static const uint64_t sizes[] = {64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20};
enum {
    NUM_SIZES = sizeof sizes / sizeof sizes[0]
};

/* The messages of the owner and of the reader. Both processes read the same clock. */
struct question {
    exo_object_handle handle;
    exo_time sent;
    bool copy;
};
struct answer {
    exo_time hand_over, import, copy_out, plain, small;
};

static exo_time
now(void)
{
    return exo_now(exo_clock_real());
}

static void
need(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "bench_objects: %s\n", what);
    exit(EXIT_FAILURE);
}

static int
compare_times(const void *a, const void *b)
{
    exo_time x = *(const exo_time *)a, y = *(const exo_time *)b;
    return x < y ? -1 : x > y;
}

static double
median_us(exo_time *times)
{
    qsort(times, ROUNDS, sizeof times[0], compare_times);
    return (double)times[ROUNDS / 2] * 1e-3;
}

static exo_store *
open_store(uint64_t keep)
{
    exo_store *store = NULL;
    exo_err err = {0};
    exo_store_opts opts = {.capacity = (uint64_t)1 << 30, .keep = keep};
    need(exo_store_open(&store, &opts, &err) == EXO_OK, err.text);
    return store;
}

static exo_time
copy(char *to, const char *from, uint64_t size)
{
    exo_time before = now();
    memcpy(to, from, size);
    return now() - before;
}

/* --- The reader ------------------------------------------------------------------------------- */

/* Receives the next question; false: the owner has closed its end. Spins, because the time to wake
 * a sleeping process belongs to the scheduler and not to the store. */
static bool
hear(int socket, struct question *q)
{
    ssize_t got;
    do
        got = recv(socket, q, sizeof *q, MSG_DONTWAIT);
    while (got < 0 && errno == EAGAIN);
    return got == sizeof *q;
}

static void
read_objects(int socket, uint64_t keep)
{
    exo_store *store = open_store(keep);
    char *private = exo_alloc_aligned(sizes[NUM_SIZES - 1]),
         *other = exo_alloc_aligned(sizes[NUM_SIZES - 1]);
    need(private && other, "no memory");
    memset(other, 1, sizes[NUM_SIZES - 1]);
    struct question q;
    while (hear(socket, &q)) {
        exo_object *object = NULL;
        exo_err err = {0};
        struct answer a = {0};
        exo_time heard = now();
        need(exo_object_import(store, &q.handle, &object, &err) == EXO_OK, err.text);
        exo_time imported = now();
        a.hand_over = imported - q.sent;
        a.import = imported - heard;
        if (q.copy) {
            exo_time before = now();
            memcpy(private, exo_object_data(object), q.handle.size);
            a.copy_out = now() - before;
            a.plain = copy(private, other, q.handle.size);
            exo_object_drop(&object);
        } else {
            exo_time before = now();
            for (int i = 0; i < SMALL_ROUNDS; i++) {
                exo_object_drop(&object);
                need(exo_object_import(store, &q.handle, &object, &err) == EXO_OK, err.text);
            }
            a.small = (now() - before) / SMALL_ROUNDS;
            exo_object_drop(&object);
        }
        need(send(socket, &a, sizeof a, 0) == sizeof a, "the owner is gone");
    }
    exo_free(private);
    exo_free(other);
    exo_store_close(&store);
}

/* --- The owner -------------------------------------------------------------------------------- */

static struct answer
ask(int socket, const exo_object *object, bool copy)
{
    struct question q = {.sent = now(), .copy = copy};
    struct answer a;
    need(exo_object_export(object, &q.handle, NULL) == EXO_OK, "not sealed");
    need(send(socket, &q, sizeof q, 0) == sizeof q, "the reader is gone");
    need(recv(socket, &a, sizeof a, 0) == sizeof a, "the reader is gone");
    return a;
}

static exo_time
put(exo_store *store, const char *private, uint64_t size, exo_object **out)
{
    exo_err err = {0};
    exo_time before = now();
    need(exo_object_create(store, size, out, &err) == EXO_OK, err.text);
    memcpy(exo_object_data(*out), private, size);
    exo_object_seal(*out);
    return now() - before;
}

/* Whether the mapping of an address has huge pages. */
static bool
is_huge(const void *address)
{
    char line[512];
    bool inside = false;
    unsigned long from = 0, to = 0, kib = 0;
    FILE *maps = fopen("/proc/self/smaps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside =
                from <= (unsigned long)(uintptr_t)address && (unsigned long)(uintptr_t)address < to;
        else if (inside && sscanf(line, "ShmemPmdMapped: %lu", &kib) == 1)
            break;
    }
    if (maps)
        fclose(maps);
    return inside && kib > 0;
}

static void
measure(exo_store *store, int socket, uint64_t size, char *a, char *b)
{
    exo_time plain[ROUNDS], kept[ROUNDS], hand_over[ROUNDS], import[ROUNDS], copy_out[ROUNDS],
        beside[ROUNDS];
    bool huge = false;
    /* The measurements alternate, so that other load on the machine affects all of them. */
    for (int i = 0; i < ROUNDS; i++) {
        exo_object *object = NULL;
        plain[i] = copy(b, a, size);
        kept[i] = put(store, a, size, &object);
        huge = is_huge(exo_object_data(object));
        struct answer answer = ask(socket, object, true);
        hand_over[i] = answer.hand_over;
        import[i] = answer.import;
        beside[i] = answer.plain;
        copy_out[i] = answer.copy_out;
        exo_object_drop(&object);
    }
    double base = median_us(plain);
    printf("%9.3f %5s %10.1f %10.1f %9.2f %10.1f %9.2f %9.1f %9.1f\n", (double)size / (1 << 20),
           huge ? "yes" : "no", base, median_us(copy_out), median_us(beside) / median_us(copy_out),
           median_us(kept), base / median_us(kept), median_us(hand_over), median_us(import));
}

/* Measures `put` in a store that keeps no memory. */
static void
measure_new(const char *a, char *b)
{
    exo_store *store = open_store(0);
    printf("put in new memory, which the kernel zeroes\n      MiB     put us  of memcpy\n");
    for (int s = 0; s < NUM_SIZES; s++) {
        exo_time plain[ROUNDS], fresh[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            exo_object *object = NULL;
            plain[i] = copy(b, a, sizes[s]);
            fresh[i] = put(store, a, sizes[s], &object);
            exo_object_drop(&object);
        }
        double base = median_us(plain);
        printf("%9.3f %10.1f %10.2f\n", (double)sizes[s] / (1 << 20), median_us(fresh),
               base / median_us(fresh));
    }
    exo_store_close(&store);
}

static void
measure_small(exo_store *store, int socket)
{
    exo_object *object = NULL, *stays = NULL;
    exo_object_handle handle;
    need(exo_object_create(store, 1024, &stays, NULL) == EXO_OK, "full");
    exo_object_seal(stays);
    exo_time before = now();
    for (int i = 0; i < SMALL_ROUNDS; i++) {
        need(exo_object_create(store, 1024, &object, NULL) == EXO_OK, "full");
        exo_object_seal(object);
        exo_object_export(object, &handle, NULL);
        exo_object_drop(&object);
    }
    exo_time create = (now() - before) / SMALL_ROUNDS;
    struct answer a = ask(socket, stays, false);
    printf(
        "1 KiB: create, seal, export, drop %lld ns; import and drop in another process %lld ns\n",
        (long long)create, (long long)a.small);
    exo_object_drop(&stays);
}

/* Measures with a reader that keeps up to `keep` bytes mapped, and an owner that keeps all of its
 * memory. */
static void
measure_pair(uint64_t keep, char *a, char *b)
{
    int ends[2];
    need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "no socket");
    fflush(stdout);
    pid_t reader = fork();
    need(reader >= 0, "no process");
    if (reader == 0) {
        close(ends[0]);
        read_objects(ends[1], keep);
        _exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    exo_store *store = open_store((uint64_t)512 << 20);
    printf("the reader %s\n",
           keep ? "has the segment mapped from the object before" : "maps each object anew");
    printf("      MiB  huge  memcpy us   copy out  of memcpy   put kept  of memcpy  hand-over  of "
           "it import\n");
    for (int s = 0; s < NUM_SIZES; s++)
        measure(store, ends[0], sizes[s], a, b);
    if (keep)
        measure_small(store, ends[0]);
    printf("\n");
    exo_store_close(&store);
    close(ends[0]);
    int status = 0;
    need(waitpid(reader, &status, 0) == reader && status == 0, "the reader failed");
}

int
main(void)
{
    char *a = exo_alloc_aligned(sizes[NUM_SIZES - 1]), *b = exo_alloc_aligned(sizes[NUM_SIZES - 1]);
    need(a && b, "no memory");
    memset(a, 1, sizes[NUM_SIZES - 1]);
    printf("medians of %d rounds, in us; \"of memcpy\": memcpy's time as a share of this one's\n\n",
           ROUNDS);
    measure_pair(0, a, b);
    measure_pair((uint64_t)512 << 20, a, b);
    measure_new(a, b);
    exo_free(a);
    exo_free(b);
    return EXIT_SUCCESS;
}
