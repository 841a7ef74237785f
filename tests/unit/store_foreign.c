/* Shared objects of hostile processes: forged handles, descriptors that are no segments, and locks
 * on foreign objects. foreign_memory.c tests changes of memory during reads. Each test owns the
 * store and its peers. Read next: runtime/store/store.h; docs/security.md. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store.h"
#include "support/check.h"
#include "support/store_peer.h"

#define MiB ((uint64_t)1 << 20)

static exo_store *store;
static exo_err err;

static void
open_store(uint64_t capacity, uint64_t keep)
{
    exo_store_opts opts = {.capacity = capacity, .keep = keep};
    cr_assert_eq(exo_store_open(&store, &opts, &err), EXO_OK, "%s", err.text);
}

static void
teardown(void)
{
    exo_store_close(&store);
}

TestSuite(store_foreign, .fini = teardown, .timeout = 120);

static exo_object *
put(uint64_t size, int value)
{
    return object_put(store, size, value, &err);
}

/* --- Forged handles --------------------------------------------------------------------------- */

Test(store_foreign, every_bit_of_a_handle_counts)
{
    struct peer peer = peer_start(peer_owner);
    open_store(0, 0);
    uint64_t sizes[] = {500, 3 * MiB};
    for (int k = 0; k < 2; k++) {
        exo_object_handle good = peer_order(&peer, sizes[k]);
        for (size_t bit = 0; bit < 8 * sizeof good; bit++) {
            exo_object_handle bad = good;
            unsigned char bytes[sizeof bad];
            memcpy(bytes, &bad, sizeof bad);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            memcpy(&bad, bytes, sizeof bad);
            exo_object *object = NULL;
            exo_status st = exo_object_import(store, &bad, &object, &err);
            cr_expect(st == EXO_NOT_FOUND || st == EXO_INVAL || st == EXO_PEER_LOST ||
                          st == EXO_UNSUPPORTED,
                      "bit %zu: %s", bit, exo_status_text(st));
            cr_expect_null(object);
        }
        exo_object_handle bad = good;
        bad.size++;
        cr_expect_eq(exo_object_import(store, &bad, &(exo_object *){NULL}, NULL), EXO_INVAL);
        bad = good;
        bad.generation++;
        cr_expect_eq(exo_object_import(store, &bad, &(exo_object *){NULL}, NULL), EXO_NOT_FOUND);
        bad = good;
        bad.owner_start++; /* an earlier process with this id */
        cr_expect_eq(exo_object_import(store, &bad, &(exo_object *){NULL}, NULL), EXO_PEER_LOST);
    }
    peer_finish(&peer);
}

static void
say_word(int fd, off_t at, uint64_t value)
{
    CHECK(pwrite(fd, &value, sizeof value, at) == sizeof value);
}

enum {
    LIES = 14
};

/* Sends handles with descriptors other than those of an honest owner. */
static void
liar(int socket)
{
    exo_object_handle handle;
    char header[4096];
    int pipes[2];
    open_store(0, 0);
    exo_object *object = put(3 * MiB, 'l');
    CHECK(object);
    handle = object_handle(object);
    CHECK(pread((int)handle.fd, header, sizeof header, 0) == sizeof header);

    CHECK(pipe(pipes) == 0);
    int fds[LIES] = {pipes[0],
                     pipes[1],
                     socket,
                     open("/dev/zero", O_RDONLY),
                     open("/", O_RDONLY),
                     open("/proc/self/exe", O_RDONLY)};
    /* Copies of the right header, each with one fault: 6 may shrink, 7 is too short, 8 is empty, 9
     * has too many slots, the slots of 10 are longer than the file, the product of 11 overflows,
     * others can write 12, and 13 has no memory for the size in its header. */
    for (int i = 6; i < LIES; i++) {
        fds[i] = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(fds[i] >= 0);
        if (i == 8)
            continue;
        CHECK(ftruncate(fds[i], i == 7 ? 4000 : (off_t)(4096 + 3 * MiB)) == 0);
        CHECK(pwrite(fds[i], header, i == 7 ? 4000 : 4096, 0) > 0);
    }
    CHECK(fallocate(fds[12], 0, 0, (off_t)(4096 + 3 * MiB)) == 0);
    say_word(fds[9], 24, 129);
    say_word(fds[10], 16, 3 * MiB + 1);
    say_word(fds[11], 16, UINT64_C(1) << 63);
    say_word(fds[11], 24, 2);
    for (int i = 6; i < LIES; i++)
        CHECK(fcntl(fds[i], F_ADD_SEALS,
                    (i == 6 ? 0 : F_SEAL_SHRINK) | F_SEAL_GROW |
                        (i == 12 ? 0 : F_SEAL_FUTURE_WRITE)) == 0);

    for (int i = 0; i < LIES; i++) {
        handle.fd = (uint32_t)fds[i];
        peer_tell(socket, &handle, sizeof handle);
    }
    char done;
    CHECK(!peer_hear(socket, &done, 1));
}

Test(store_foreign, a_descriptor_that_is_no_segment_is_refused)
{
    struct peer peer = peer_start(liar);
    open_store(0, 0);
    for (int i = 0; i < LIES; i++) {
        exo_object_handle handle;
        exo_object *object = NULL;
        cr_assert(peer_hear(peer.socket, &handle, sizeof handle));
        exo_status st = exo_object_import(store, &handle, &object, &err);
        cr_expect_eq(st, i < 9 || i == 12 ? EXO_NOT_FOUND : EXO_INVAL, "%d: %s %s", i,
                     exo_status_text(st), err.text);
        cr_expect_null(object);
    }
    cr_expect_eq(exo_store_get_stats(store).bytes_imported, 0);
    peer_finish(&peer);
}

/* --- Limits of other processes ---------------------------------------------------------------- */

/* Opens the segment of an object, as every holder of the handle can. */
static int
open_segment(const exo_object_handle *h, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", h->owner, h->fd);
    int fd = open(path, flags | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

static void
cannot_write(int fd)
{
    const off_t places[] = {0, 4096 - 8, 4096};
    for (int i = 0; i < 3; i++) {
        cr_expect(pwrite(fd, "harmful", 8, places[i]) == -1 && errno == EPERM);
        cr_expect(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, places[i], 4096) ==
                      -1 &&
                  errno == EPERM);
    }
    cr_expect(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED &&
              errno == EPERM);
    void *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert_neq(map, MAP_FAILED);
    cr_expect(mprotect(map, 8192, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    munmap(map, 8192);
    cr_expect(ftruncate(fd, 4096) == -1 && errno == EPERM);
    cr_expect(ftruncate(fd, (off_t)(512 * MiB)) == -1 && errno == EPERM);
    cr_expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM);
}

Test(store_foreign, nobody_but_its_owner_can_write_an_object)
{
    struct peer peer = peer_start(peer_owner);
    open_store(0, 0);
    uint64_t sizes[] = {5000, 3 * MiB};
    for (int k = 0; k < 2; k++) {
        exo_object *object = NULL;
        exo_object_handle handle = peer_order(&peer, sizes[k]);
        cr_assert_eq(exo_object_import(store, &handle, &object, &err), EXO_OK, "%s", err.text);
        int fd = open_segment(&handle, O_RDWR);
        cannot_write(fd);
        close(fd);
        void *page =
            (void *)((uintptr_t)exo_object_data(object) & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1));
        cr_expect(mprotect(page, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
        cr_expect(object_holds(object, sizes[k], 'o'));
        exo_object_drop(&object);
    }
    peer_finish(&peer);
}

static int
set_lock(int fd, short type)
{
    /* from the first byte to beyond the last */
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock);
}

/* Other processes can change only locks: locks withhold memory, and do nothing else. */
Test(store_foreign, locks_of_others_withhold_memory_while_they_live)
{
    struct peer peer = peer_start(peer_owner);
    open_store(0, 0);
    uint64_t sizes[] = {5000, 3 * MiB};
    for (int k = 0; k < 2; k++) {
        exo_object *object = NULL;
        exo_object_handle first = peer_order(&peer, sizes[k]), later;
        int fd = open_segment(&first, O_RDWR);
        cr_assert_eq(set_lock(fd, F_WRLCK), 0);
        cr_expect_eq(exo_object_import(store, &first, &object, &err), EXO_FULL, "%s", err.text);
        cr_expect(strstr(err.text, "lock"), "%s", err.text);
        peer_order(&peer, 0);
        later = peer_order(&peer, sizes[k]);
        cr_expect_neq(later.nonce, first.nonce, "the owner goes on elsewhere");
        cr_assert_eq(exo_object_import(store, &later, &object, &err), EXO_OK, "%s", err.text);
        cr_expect(object_holds(object, sizes[k], 'o'));
        exo_object_drop(&object);
        peer_order(&peer, 0);
        close(fd);
        bool reused = false;
        for (int i = 0; i < 16; i++)
            reused |= peer_order(&peer, sizes[k]).nonce == first.nonce;
        cr_expect(reused || k == 0, "small ones have another segment by now");
        peer_order(&peer, 0);
    }
    peer_finish(&peer);
}

/* Readers copy small objects: locks of others withhold none of them, and nobody changes a copy. */
Test(store_foreign, small_objects_are_copied)
{
    static const uint64_t sizes[] = {1, 1000, 4096};
    struct peer peer = peer_start(peer_owner);
    open_store(0, 64 * MiB);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint64_t size = sizes[k];
        exo_object *object = NULL, *same = NULL, *later = NULL;
        exo_object_handle first = peer_order(&peer, size), second;
        int fd = open_segment(&first, O_RDWR);
        cr_assert_eq(set_lock(fd, F_WRLCK), 0);
        cr_assert_eq(exo_object_import(store, &first, &object, &err), EXO_OK, "%s", err.text);
        cr_expect(exo_object_is_imported(object) && !exo_object_may_change(object));
        cr_expect_eq((uintptr_t)exo_object_data(object) % 64, 0);
        cr_assert_eq(exo_object_import(store, &first, &same, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(same, object);
        peer_order(&peer, 0);
        second = peer_order(&peer, size);
        for (int i = 0; i < 300 && second.slot != first.slot; i++) { /* slots are used in turn */
            peer_order(&peer, 0);
            second = peer_order(&peer, size);
        }
        cr_expect(second.slot == first.slot && second.nonce == first.nonce,
                  "a lock withholds a slot");
        cr_assert_eq(exo_object_import(store, &second, &later, &err), EXO_OK, "%s", err.text);
        cr_expect_neq(later, object);
        cr_expect_eq(exo_object_import(store, &first, &same, &err), EXO_NOT_FOUND);
        exo_object_drop(&object);
        exo_object_drop(&same);
        cr_assert_eq(exo_object_import(store, &second, &same, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(same, later, "the older one took the later one's place with it");
        cr_expect(object_holds(later, size, 'o'));
        exo_object_drop(&later);
        exo_object_drop(&same);
        peer_order(&peer, 0);
        close(fd);
    }
    cr_expect_eq(exo_store_get_stats(store).imports, 0);
    peer_finish(&peer);
}

static void
visit_borrowers(void *context, const exo_object_info *info)
{
    *(uint32_t *)context += info->borrowers;
}

static uint32_t
borrowers(void)
{
    uint32_t count = 0;
    cr_assert_eq(exo_store_each(store, visit_borrowers, &count), EXO_OK);
    return count;
}

Test(store_foreign, borrowers_are_the_processes_that_live)
{
    struct peer peers[] = {peer_start(peer_reader), peer_start(peer_reader),
                           peer_start(peer_reader)};
    open_store(64 * MiB, 0);
    exo_object *objects[] = {put(5000, 1), put(5000, 2), put(MiB, 3)};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            cr_assert_eq(peer_ask(&peers[k], object_handle(objects[i])).status, EXO_OK);
            cr_expect_eq(borrowers(), i == 0 ? (uint32_t)k + 1 : 3,
                         "a reader drops the one before");
        }
    peer_kill(&peers[1]);
    cr_expect_eq(borrowers(), 2);
    peer_ask_to_drop(&peers[0]);
    cr_expect_eq(borrowers(), 1);
    int fd = open_segment(&(exo_object_handle[]){object_handle(objects[2])}[0], O_RDONLY);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    for (int i = 0; i < 1000; i++) { /* not adjacent: the kernel would merge them */
        lock.l_start = 1 + 2 * i;
        cr_assert_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
    }
    cr_expect_eq(borrowers(), 256, "counting ends");
    close(fd);
    for (int i = 0; i < 3; i++)
        exo_object_drop(&objects[i]);
    close(peers[0].socket); /* first, because later peers have copies of the earlier ends */
    peer_finish(&peers[2]);
    cr_expect_eq(waitpid(peers[0].pid, NULL, 0), peers[0].pid);
}

static void
holds_and_asks_wrongly(int socket)
{
    exo_object_handle handle;
    exo_object *object = NULL, *none = NULL;
    open_store(0, 64 * MiB);
    CHECK(peer_hear(socket, &handle, sizeof handle));
    CHECK(exo_object_import(store, &handle, &object, NULL) == EXO_OK);
    exo_object_handle wrong = handle;
    wrong.generation += 2;
    CHECK(exo_object_import(store, &wrong, &none, NULL) == EXO_NOT_FOUND);
    wrong = handle;
    wrong.size++;
    CHECK(exo_object_import(store, &wrong, &none, NULL) == EXO_INVAL);
    exo_object *same = NULL;
    CHECK(exo_object_import(store, &handle, &same, NULL) == EXO_OK && same == object);
    exo_object_drop(&same);
    peer_tell(socket, &handle, sizeof handle);
    CHECK(!peer_hear(socket, &handle, sizeof handle));
    CHECK(object_holds(object, exo_object_size(object), 1));
    exo_object_drop(&object);
    exo_store_close(&store);
}

/* A process has one lock for all of its threads' references to an object. */
Test(store_foreign, wrong_handles_give_nothing_back)
{
    struct peer peer = peer_start(holds_and_asks_wrongly);
    open_store(64 * MiB, 32 * MiB);
    exo_object *object = put(3 * MiB, 1);
    exo_object_handle handle = object_handle(object);
    peer_tell(peer.socket, &handle, sizeof handle);
    cr_assert(peer_hear(peer.socket, &handle, sizeof handle));
    cr_expect_eq(borrowers(), 1);
    exo_object_drop(&object);
    object = put(3 * MiB, 2);
    cr_expect_neq(object_handle(object).nonce, handle.nonce);
    exo_object_drop(&object);
    peer_finish(&peer);
}

/* Imports and drops again and again, and checks through another descriptor that the object is
 * locked meanwhile. */
static void *
import_and_drop(void *argument)
{
    const exo_object_handle *handle = argument;
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", handle->owner, handle->fd);
    int beside = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(beside >= 0);
    for (int i = 0; i < 20000; i++) {
        exo_object *object = NULL;
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        CHECK(exo_object_import(store, handle, &object, NULL) == EXO_OK);
        CHECK(fcntl(beside, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK);
        exo_object_drop(&object);
    }
    close(beside);
    return NULL;
}

static void
import_in_threads(int socket)
{
    exo_object_handle handle;
    pthread_t threads[3];
    open_store(0, 64 * MiB);
    CHECK(peer_hear(socket, &handle, sizeof handle));
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, import_and_drop, &handle) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    exo_store_close(&store);
}

/* A thread that drops the last reference does not release an object that another thread has just
 * imported. */
Test(store_foreign, threads_of_a_reader_share_one_lock)
{
    struct peer peer = peer_start(import_in_threads);
    open_store(64 * MiB, 0);
    exo_object *object = put(5000, 1);
    exo_object_handle handle = object_handle(object);
    peer_tell(peer.socket, &handle, sizeof handle);
    peer_finish(&peer);
    exo_object_drop(&object);
}

Test(store_foreign, an_owner_cannot_take_memory_from_under_a_reader)
{
    open_store(16 * MiB, 0);
    exo_object *object = put(MiB, 1);
    int fd = (int)object_handle(object).fd;
    cr_expect(ftruncate(fd, 4096) == -1 && errno == EPERM);
    cr_expect(ftruncate(fd, (off_t)(8 * MiB)) == -1 && errno == EPERM);
    exo_object_drop(&object);
}
