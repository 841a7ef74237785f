/* Shared objects, with real processes: what is sealed is read in place by others, and neither a dead owner, a dead reader nor a
 * forged handle does harm. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "check.h"
#include "host.h"
#include "memory_fault.h"
#include "store.h"

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

TestSuite(store, .fini = teardown, .timeout = 120);

/* An object of `size` bytes, each `value`, sealed. */
static exo_object *
put(uint64_t size, int value)
{
    exo_object *object = NULL;
    if (exo_object_create(store, size, &object, &err) != EXO_OK)
        return NULL;
    memset(exo_object_data(object), value, size);
    exo_object_seal(object);
    return object;
}

static exo_object_handle
handle_of(const exo_object *object)
{
    exo_object_handle handle = {0};
    exo_object_export(object, &handle, NULL);
    return handle;
}

static bool
holds(const exo_object *object, uint64_t size, int value)
{
    const unsigned char *data = exo_object_data(object);
    for (uint64_t i = 0; i < size; i++)
        if (data[i] != value)
            return false;
    return exo_object_size(object) == size;
}

/* --- A second process ------------------------------------------------------------------------------------------------------ */

struct peer {
    pid_t pid;
    int socket;
};

/* Starts a process that runs `body` with its end of a socket; before there is a store in this one. */
static struct peer
start(void (*body)(int socket))
{
    struct peer peer;
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    peer.pid = fork();
    if (peer.pid == 0) {
        close(ends[0]);
        body(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    peer.socket = ends[0];
    return peer;
}

static void
tell(int socket, const void *data, size_t size)
{
    CHECK(send(socket, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

/* False when the other side has closed. */
static bool
hear(int socket, void *data, size_t size)
{
    return recv(socket, data, size, 0) == (ssize_t)size;
}

/* Lets the peer run to its end, which must be a good one. */
static void
finish(struct peer *peer)
{
    int status = 0;
    close(peer->socket);
    cr_assert_eq(waitpid(peer->pid, &status, 0), peer->pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the peer ended with %#x", (unsigned)status);
}

static void
kill_hard(struct peer *peer)
{
    cr_assert_eq(kill(peer->pid, SIGKILL), 0);
    cr_assert_eq(waitpid(peer->pid, NULL, 0), peer->pid);
    close(peer->socket);
}

struct answer {
    exo_status status;
    int first, last; /* bytes */
};

/* A reader: imports what it is sent, says what it found, and keeps it until the next one. */
static void
reader(int socket)
{
    exo_object_handle handle;
    exo_object *object = NULL;
    open_store(1024 * MiB, 64 * MiB);
    while (hear(socket, &handle, sizeof handle)) {
        exo_object_drop(&object);
        struct answer answer = {.status = exo_object_import(store, &handle, &object, NULL)};
        if (object && handle.size) {
            unsigned char *data = exo_object_data(object);
            answer.first = data[0];
            answer.last = data[handle.size - 1];
        }
        tell(socket, &answer, sizeof answer);
    }
    exo_object_drop(&object);
    exo_store_close(&store);
}

static struct answer
ask(const struct peer *peer, exo_object_handle handle)
{
    struct answer answer = {.status = EXO_FAILED};
    tell(peer->socket, &handle, sizeof handle);
    cr_assert(hear(peer->socket, &answer, sizeof answer), "the reader died");
    return answer;
}

/* Has the reader give up what it holds. */
static void
ask_to_drop(const struct peer *peer)
{
    cr_assert_eq(ask(peer, (exo_object_handle){0}).status, EXO_INVAL);
}

/* An owner: at each message, a size, it makes an object of that many 'o' and sends the handle; at 0 it drops all. */
static void
owner(int socket)
{
    exo_object *objects[16] = {0};
    size_t count = 0;
    uint64_t size = 0;
    open_store(1024 * MiB, 64 * MiB);
    while (hear(socket, &size, sizeof size)) {
        exo_object_handle handle = {0};
        if (size == 0) {
            while (count)
                exo_object_drop(&objects[--count]);
        } else {
            objects[count] = put(size, 'o');
            CHECK(objects[count]);
            handle = handle_of(objects[count++]);
        }
        tell(socket, &handle, sizeof handle);
    }
    while (count)
        exo_object_drop(&objects[--count]);
    exo_store_close(&store);
}

static exo_object_handle
order(const struct peer *peer, uint64_t size)
{
    exo_object_handle handle;
    tell(peer->socket, &size, sizeof size);
    cr_assert(hear(peer->socket, &handle, sizeof handle), "the owner died");
    return handle;
}

/* --- One process ----------------------------------------------------------------------------------------------------------- */

Test(store, is_one_a_process)
{
    exo_store *second = NULL;
    open_store(MiB, 0);
    cr_expect_eq(exo_store_open(&second, NULL, &err), EXO_EXISTS);
    cr_expect_null(second);
    exo_store_close(&store);
    cr_expect_eq(exo_store_open(&store, NULL, &err), EXO_OK);
}

Test(store, a_forked_child_opens_its_own)
{
    open_store(MiB, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(exo_store_open(&store, NULL, NULL) == EXO_OK ? 0 : 1);
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
}

Test(store, every_size_has_room_to_its_last_byte)
{
    open_store(1024 * MiB, 0);
    for (uint64_t power = 1; power <= 64 * MiB; power *= 2) {
        for (uint64_t size = power - 1; size <= power + 1; size++) {
            uint64_t before = exo_store_get_stats(store).bytes_used;
            exo_object *object = put(size, 7);
            cr_assert_not_null(object, "%s", err.text);
            cr_assert(holds(object, size, 7));
            cr_assert_eq((uintptr_t)exo_object_data(object) % (size > 64 << 10 ? 4096 : 256), 0);
            cr_assert(size <= 64 << 10 || exo_store_get_stats(store).bytes_used - before <= size + size / 8 + 2 * 4096);
            exo_object_drop(&object);
        }
    }
    exo_object *none = NULL;
    cr_expect_eq(exo_object_create(store, UINT64_MAX, &none, &err), EXO_INVAL);
    cr_expect_eq(exo_object_create(store, UINT64_C(1) << 46, &none, &err), EXO_FULL);
}

Test(store, small_objects_share_a_segment)
{
    exo_object *objects[128];
    open_store(MiB, 0);
    for (int i = 0; i < 128; i++) {
        objects[i] = put(200, i);
        cr_assert_not_null(objects[i]);
        cr_expect_eq(handle_of(objects[i]).fd, handle_of(objects[0]).fd);
    }
    for (int i = 0; i < 128; i++) {
        cr_expect(holds(objects[i], 200, i));
        exo_object_drop(&objects[i]);
    }
    cr_expect_eq(exo_store_get_stats(store).bytes_used, 0);
}

Test(store, exports_only_what_is_sealed)
{
    exo_object *object = NULL;
    exo_object_handle handle;
    open_store(MiB, 0);
    cr_assert_eq(exo_object_create(store, 10, &object, &err), EXO_OK);
    cr_expect_eq(exo_object_export(object, &handle, &err), EXO_INVAL);
    exo_object_seal(object);
    cr_expect_eq(exo_object_export(object, &handle, &err), EXO_OK);
    exo_object_drop(&object);
}

Test(store, import_in_the_owner_gives_the_very_object)
{
    open_store(MiB, 0);
    exo_object *object = put(1000, 1), *same = NULL;
    exo_object_handle handle = handle_of(object);
    cr_assert_eq(exo_object_import(store, &handle, &same, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(same, object);
    cr_expect_not(exo_object_is_imported(same));
    exo_object_drop(&object);
    cr_expect(holds(same, 1000, 1));
    exo_object_drop(&same);
    cr_expect_eq(exo_object_import(store, &handle, &same, &err), EXO_NOT_FOUND);
}

Test(store, full_says_what_there_is)
{
    open_store(10 * MiB, 5 * MiB);
    exo_object *object = put(4 * MiB, 1), *second = NULL;
    cr_expect_eq(exo_object_create(store, 8 * MiB, &second, &err), EXO_FULL);
    cr_expect(strstr(err.text, "capacity 10485760") && strstr(err.text, "used 4198400") &&
                  strstr(err.text, "wanted 8388608"),
              "%s", err.text);
    exo_object_drop(&object);
    cr_expect_eq(exo_store_get_stats(store).bytes_kept, 4 * MiB + 4096);
    /* What is kept makes room. */
    cr_expect_eq(exo_object_create(store, 8 * MiB, &second, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_store_get_stats(store).bytes_kept, 0);
    exo_object_drop(&second);
}

Test(store, keeps_what_was_used_last)
{
    open_store(100 * MiB, 9 * MiB);
    exo_object *a = put(4 * MiB, 1), *b = put(3 * MiB, 2), *c = put(5 * MiB, 3);
    exo_object_handle old_b = handle_of(b);
    exo_object_drop(&a);
    exo_object_drop(&b);
    cr_expect_eq(exo_store_get_stats(store).bytes_kept, 7 * MiB + 2 * 4096);
    exo_object_drop(&c); /* a goes */
    cr_expect_eq(exo_store_get_stats(store).bytes_kept, 8 * MiB + 2 * 4096);
    b = put(3 * MiB, 4);
    cr_expect_eq(exo_store_get_stats(store).reuses, 1);
    cr_expect_eq(handle_of(b).nonce, old_b.nonce);
    cr_expect_neq(handle_of(b).generation, old_b.generation);
    exo_object *none = NULL;
    cr_expect_eq(exo_object_import(store, &old_b, &none, &err), EXO_NOT_FOUND);
    exo_object_drop(&b);
}

Test(store, objects_outlive_the_store)
{
    open_store(MiB, MiB);
    exo_object *object = put(1000, 9);
    exo_object_handle handle = handle_of(object);
    exo_store *alias = store;
    exo_store_close(&store);
    exo_object *other = NULL;
    cr_expect_eq(exo_object_create(alias, 1, &other, &err), EXO_CLOSED);
    cr_expect_eq(exo_object_import(alias, &handle, &other, &err), EXO_CLOSED);
    cr_expect(holds(object, 1000, 9));
    exo_object_drop(&object);
}

static void
count_visit(void *context, const exo_object_info *info)
{
    exo_object_info *sum = context;
    sum->references += info->references;
    sum->handle.size += info->handle.size;
    sum->sealed |= info->sealed;
    exo_store_get_stats(store); /* the store may be used in here */
}

Test(store, lists_its_objects)
{
    exo_object *objects[40];
    exo_object_info sum = {0};
    open_store(64 * MiB, 0);
    for (int i = 0; i < 40; i++)
        cr_assert_eq(exo_object_create(store, 100, &objects[i], NULL), EXO_OK);
    exo_object *again = exo_object_hold(objects[0]);
    cr_assert_eq(exo_store_each(store, count_visit, &sum), EXO_OK);
    cr_expect_eq(sum.references, 41);
    cr_expect_eq(sum.handle.size, 4000);
    cr_expect_not(sum.sealed);
    exo_object_drop(&again);
    for (int i = 0; i < 40; i++)
        exo_object_drop(&objects[i]);
}

/* --- Readers --------------------------------------------------------------------------------------------------------------- */

Test(store, another_process_reads_in_place)
{
    struct peer peer = start(reader);
    open_store(256 * MiB, 0);
    uint64_t sizes[] = {1, 255, 64 << 10, (64 << 10) + 1, 3 * MiB + 5, 64 * MiB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        exo_object *object = put(sizes[i], (int)i + 1);
        struct answer answer = ask(&peer, handle_of(object));
        cr_expect_eq(answer.status, EXO_OK);
        cr_expect_eq(answer.first, (int)i + 1);
        cr_expect_eq(answer.last, (int)i + 1);
        exo_object_drop(&object);
    }
    finish(&peer);
}

static void
maps_once(int socket)
{
    exo_object_handle handle;
    exo_object *a = NULL, *b = NULL;
    open_store(0, 0);
    CHECK(hear(socket, &handle, sizeof handle));
    CHECK(exo_object_import(store, &handle, &a, NULL) == EXO_OK);
    CHECK(exo_object_import(store, &handle, &b, NULL) == EXO_OK);
    CHECK(a == b && exo_object_is_imported(a));
    exo_object_handle forwarded;
    CHECK(exo_object_export(a, &forwarded, NULL) == EXO_OK);
    CHECK(memcmp(&forwarded, &handle, sizeof handle) == 0);
    exo_store_stats stats = exo_store_get_stats(store);
    CHECK(stats.imports == 1 && stats.objects == 0 && stats.bytes_imported == 32 * MiB + 4096);
    /* Nobody writes what is imported: a system call that tries says so. */
    CHECK(read(open("/dev/zero", O_RDONLY), exo_object_data(a), 1) == -1 && errno == EFAULT);
    exo_object_drop(&a);
    CHECK(holds(b, 32 * MiB, 3));
    exo_object_drop(&b);
    CHECK(exo_store_get_stats(store).bytes_imported == 0);
    exo_store_close(&store);
}

Test(store, two_imports_share_one_mapping_that_is_read_only)
{
    struct peer peer = start(maps_once);
    open_store(64 * MiB, 0);
    exo_object *object = put(32 * MiB, 3);
    exo_object_handle handle = handle_of(object);
    tell(peer.socket, &handle, sizeof handle);
    finish(&peer);
    exo_object_drop(&object);
}

Test(store, a_reader_outlives_the_owners_reference)
{
    struct peer peer = start(owner);
    open_store(0, 0);
    uint64_t sizes[] = {500, 3 * MiB};
    for (int i = 0; i < 2; i++) {
        exo_object *object = NULL;
        exo_object_handle handle = order(&peer, sizes[i]);
        cr_assert_eq(exo_object_import(store, &handle, &object, &err), EXO_OK, "%s", err.text);
        order(&peer, 0);
        /* New objects of the same class do not take the memory from under it. */
        for (int k = 0; k < 8; k++)
            cr_expect(memcmp(&handle, &(exo_object_handle){0}, sizeof handle) != 0 && order(&peer, sizes[i]).size);
        cr_expect(holds(object, sizes[i], 'o'));
        exo_object_drop(&object);
        cr_expect_eq(exo_object_import(store, &handle, &object, &err), EXO_NOT_FOUND, "%s", err.text);
        order(&peer, 0);
    }
    finish(&peer);
}

Test(store, a_reader_outlives_the_owner)
{
    struct peer peer = start(owner), late = start(reader);
    open_store(0, 0);
    exo_object *small = NULL, *large = NULL;
    exo_object_handle handles[] = {order(&peer, 500), order(&peer, 3 * MiB), order(&peer, 5 * MiB)};
    cr_assert_eq(exo_object_import(store, &handles[0], &small, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_object_import(store, &handles[1], &large, &err), EXO_OK, "%s", err.text);
    kill_hard(&peer);
    cr_expect(holds(small, 500, 'o'));
    cr_expect(holds(large, 3 * MiB, 'o'));
    cr_expect_eq(ask(&late, handles[0]).status, EXO_PEER_LOST);
    cr_expect_eq(exo_object_import(store, &handles[2], &(exo_object *){NULL}, &err), EXO_PEER_LOST);
    char pid[32];
    snprintf(pid, sizeof pid, "process %d", (int)peer.pid);
    cr_expect(strstr(err.text, pid), "%s", err.text);
    exo_object_drop(&small);
    exo_object_drop(&large);
    finish(&late);
}

Test(store, an_owner_that_nobody_has_waited_for_is_gone)
{
    struct peer peer = start(owner);
    open_store(0, 0);
    exo_object_handle handle = order(&peer, 3 * MiB);
    siginfo_t info;
    kill(peer.pid, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)peer.pid, &info, WEXITED | WNOWAIT), 0); /* a zombie from here on */
    cr_expect_eq(exo_object_import(store, &handle, &(exo_object *){NULL}, &err), EXO_PEER_LOST, "%s", err.text);
    kill_hard(&peer);
}

/* --- Reuse ----------------------------------------------------------------------------------------------------------------- */

static void
reuse_waits_for_readers(uint64_t size, bool killed)
{
    struct peer peer = start(reader);
    open_store(256 * MiB, 64 * MiB);
    exo_object *object = put(size, 1);
    exo_object_handle first = handle_of(object);
    cr_assert_eq(ask(&peer, first).status, EXO_OK);
    exo_object_drop(&object);

    /* Borrowed: no new object lies there. So many small ones that two segments of 128 are full but for that slot. */
    exo_object *others[256];
    size_t count = size > 64 << 10 ? 3 : 255;
    for (size_t i = 0; i < count; i++) {
        others[i] = put(size, 2);
        cr_assert_not_null(others[i]);
        exo_object_handle h = handle_of(others[i]);
        cr_assert_not(h.nonce == first.nonce && h.slot == first.slot);
    }
    for (size_t i = 0; i < count; i++)
        exo_object_drop(&others[i]);

    if (killed)
        kill_hard(&peer);
    else
        ask_to_drop(&peer);
    bool reused = false;
    for (size_t i = 0; i <= count; i++) {
        others[i] = put(size, 3);
        cr_assert_not_null(others[i]);
        exo_object_handle h = handle_of(others[i]);
        reused |= h.nonce == first.nonce && h.slot == first.slot;
    }
    cr_expect(reused); /* the kernel has given back what a killed one borrowed */
    for (size_t i = 0; i <= count; i++)
        exo_object_drop(&others[i]);
    if (!killed) {
        cr_expect_eq(ask(&peer, first).status, EXO_NOT_FOUND);
        finish(&peer);
    }
}

Test(store, a_large_segment_is_reused_when_no_reader_is_left)
{
    reuse_waits_for_readers(3 * MiB, false);
}

Test(store, a_large_segment_of_a_killed_reader_is_reused)
{
    reuse_waits_for_readers(3 * MiB, true);
}

Test(store, a_slot_is_reused_when_no_reader_is_left)
{
    reuse_waits_for_readers(1000, false);
}

Test(store, a_slot_of_a_killed_reader_is_reused)
{
    reuse_waits_for_readers(1000, true);
}

Test(store, killed_readers_leave_nothing_behind)
{
    open_store(64 * MiB, 8 * MiB);
    for (int i = 0; i < 5; i++) {
        exo_object *object = put(3 * MiB, i);
        cr_assert_not_null(object, "%s", err.text);
        exo_object_handle handle = handle_of(object);
        pid_t child = fork();
        if (child == 0) {
            open_store(0, 0);
            CHECK(exo_object_import(store, &handle, &(exo_object *){NULL}, NULL) == EXO_OK);
            kill(getpid(), SIGKILL);
        }
        cr_assert_eq(waitpid(child, NULL, 0), child);
        exo_object_drop(&object);
        cr_expect_leq(exo_store_get_stats(store).bytes_kept, 8 * MiB);
        cr_expect_eq(exo_store_get_stats(store).reuses, (uint64_t)i);
    }
}

/* --- Handles that lie ------------------------------------------------------------------------------------------------------- */

Test(store, every_bit_of_a_handle_counts)
{
    struct peer peer = start(owner);
    open_store(0, 0);
    uint64_t sizes[] = {500, 3 * MiB};
    for (int k = 0; k < 2; k++) {
        exo_object_handle good = order(&peer, sizes[k]);
        for (size_t bit = 0; bit < 8 * sizeof good; bit++) {
            exo_object_handle bad = good;
            unsigned char bytes[sizeof bad];
            memcpy(bytes, &bad, sizeof bad);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            memcpy(&bad, bytes, sizeof bad);
            exo_object *object = NULL;
            exo_status st = exo_object_import(store, &bad, &object, &err);
            cr_expect(st == EXO_NOT_FOUND || st == EXO_INVAL || st == EXO_PEER_LOST || st == EXO_UNSUPPORTED,
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
    finish(&peer);
}

/* A mapping that is left from the last object shows the next one in the same memory, and not the last one. */
Test(store, a_mapping_serves_the_next_object)
{
    struct peer peer = start(reader);
    open_store(64 * MiB, 64 * MiB);
    uint64_t sizes[] = {500, 3 * MiB};
    for (int k = 0; k < 2; k++) {
        exo_object_handle before = {0};
        for (int i = 1; i < 200; i++) {
            exo_object *object = put(sizes[k], i);
            exo_object_handle handle = handle_of(object);
            struct answer answer = ask(&peer, handle);
            cr_assert(answer.status == EXO_OK && answer.first == i && answer.last == i);
            ask_to_drop(&peer);
            exo_object_drop(&object);
            cr_assert(i == 1 || handle.nonce == before.nonce);
            cr_assert(i == 1 || ask(&peer, before).status == EXO_NOT_FOUND);
            before = handle;
        }
    }
    finish(&peer);
}

/* What is only kept mapped goes when its owner lets it go, or has died. */
Test(store, kept_mappings_hold_no_memory_of_the_past)
{
    struct peer peer = start(owner);
    open_store(1024 * MiB, 512 * MiB);
    for (int i = 0; i < 2; i++) {
        exo_object *object = NULL;
        exo_object_handle handle = order(&peer, 60 * MiB);
        cr_assert_eq(exo_object_import(store, &handle, &object, &err), EXO_OK);
        exo_object_drop(&object);
        cr_expect_geq(exo_store_get_stats(store).bytes_imported, 60 * MiB);
        order(&peer, 0);
        if (i == 0) { /* the owner needs what it kept for something else */
            order(&peer, 40 * MiB);
            order(&peer, 0);
            handle = order(&peer, 100);
        } else {
            kill_hard(&peer);
            handle.fd++;
        }
        cr_expect_eq(exo_object_import(store, &handle, &object, &err), i == 0 ? EXO_OK : EXO_PEER_LOST);
        exo_object_drop(&object);
        cr_expect_leq(exo_store_get_stats(store).bytes_imported, MiB);
    }
}

static void
say_word(int fd, off_t at, uint64_t value)
{
    CHECK(pwrite(fd, &value, sizeof value, at) == sizeof value);
}

enum {
    LIES = 13
};

/* Sends handles whose descriptor is not what an honest owner has there. */
static void
liar(int socket)
{
    exo_object_handle handle;
    char header[4096];
    int pipes[2];
    open_store(0, 0);
    exo_object *object = put(3 * MiB, 'l');
    CHECK(object);
    handle = handle_of(object);
    CHECK(pread((int)handle.fd, header, sizeof header, 0) == sizeof header);

    CHECK(pipe(pipes) == 0);
    int fds[LIES] = {
        pipes[0], pipes[1], socket, open("/dev/zero", O_RDONLY), open("/", O_RDONLY), open("/proc/self/exe", O_RDONLY)};
    /* Copies of the true header, each with one thing wrong: 6 may shrink, 7 is short, 8 is empty, 9 has too many slots, 10's slots
     * are longer than the file, 11's product overflows, 12 can be written by others. */
    for (int i = 6; i < LIES; i++) {
        fds[i] = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(fds[i] >= 0);
        if (i == 8)
            continue;
        CHECK(ftruncate(fds[i], i == 7 ? 4000 : (off_t)(4096 + 3 * MiB)) == 0);
        CHECK(pwrite(fds[i], header, i == 7 ? 4000 : 4096, 0) > 0);
    }
    say_word(fds[9], 24, 129);
    say_word(fds[10], 16, 3 * MiB + 1);
    say_word(fds[11], 16, UINT64_C(1) << 63);
    say_word(fds[11], 24, 2);
    for (int i = 6; i < LIES; i++)
        CHECK(fcntl(fds[i], F_ADD_SEALS,
                    (i == 6 ? 0 : F_SEAL_SHRINK) | F_SEAL_GROW | (i == 12 ? 0 : F_SEAL_FUTURE_WRITE)) == 0);

    for (int i = 0; i < LIES; i++) {
        handle.fd = (uint32_t)fds[i];
        tell(socket, &handle, sizeof handle);
    }
    char done;
    CHECK(!hear(socket, &done, 1));
}

Test(store, a_descriptor_that_is_no_segment_is_refused)
{
    struct peer peer = start(liar);
    open_store(0, 0);
    for (int i = 0; i < LIES; i++) {
        exo_object_handle handle;
        exo_object *object = NULL;
        cr_assert(hear(peer.socket, &handle, sizeof handle));
        exo_status st = exo_object_import(store, &handle, &object, &err);
        cr_expect_eq(st, i < 9 || i == 12 ? EXO_NOT_FOUND : EXO_INVAL, "%d: %s %s", i, exo_status_text(st), err.text);
        cr_expect_null(object);
    }
    cr_expect_eq(exo_store_get_stats(store).bytes_imported, 0);
    finish(&peer);
}

/* --- What others cannot do -------------------------------------------------------------------------------------------------- */

/* The descriptor of an object's segment, opened as whoever has the handle can. */
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
        cr_expect(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, places[i], 4096) == -1 && errno == EPERM);
    }
    cr_expect(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
    void *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert_neq(map, MAP_FAILED);
    cr_expect(mprotect(map, 8192, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    munmap(map, 8192);
    cr_expect(ftruncate(fd, 4096) == -1 && errno == EPERM);
    cr_expect(ftruncate(fd, (off_t)(512 * MiB)) == -1 && errno == EPERM);
    cr_expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM);
}

Test(store, nobody_but_its_owner_can_write_an_object)
{
    struct peer peer = start(owner);
    open_store(0, 0);
    uint64_t sizes[] = {500, 3 * MiB};
    for (int k = 0; k < 2; k++) {
        exo_object *object = NULL;
        exo_object_handle handle = order(&peer, sizes[k]);
        cr_assert_eq(exo_object_import(store, &handle, &object, &err), EXO_OK, "%s", err.text);
        int fd = open_segment(&handle, O_RDWR);
        cannot_write(fd);
        close(fd);
        void *page = (void *)((uintptr_t)exo_object_data(object) & ~(uintptr_t)4095);
        cr_expect(mprotect(page, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
        cr_expect(holds(object, sizes[k], 'o'));
        exo_object_drop(&object);
    }
    finish(&peer);
}

static int
set_lock(int fd, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET}; /* from the first byte to behind the last */
    return fcntl(fd, F_OFD_SETLK, &lock);
}

/* Locks are all that others can change: they withhold memory, and no more. */
Test(store, locks_of_others_withhold_memory_while_they_live)
{
    struct peer peer = start(owner);
    open_store(0, 0);
    uint64_t sizes[] = {500, 3 * MiB};
    for (int k = 0; k < 2; k++) {
        exo_object *object = NULL;
        exo_object_handle first = order(&peer, sizes[k]), later;
        int fd = open_segment(&first, O_RDWR);
        cr_assert_eq(set_lock(fd, F_WRLCK), 0);
        cr_expect_eq(exo_object_import(store, &first, &object, &err), EXO_FULL, "%s", err.text);
        cr_expect(strstr(err.text, "lock"), "%s", err.text);
        order(&peer, 0);
        later = order(&peer, sizes[k]);
        cr_expect_neq(later.nonce, first.nonce, "the owner goes on elsewhere");
        cr_assert_eq(exo_object_import(store, &later, &object, &err), EXO_OK, "%s", err.text);
        cr_expect(holds(object, sizes[k], 'o'));
        exo_object_drop(&object);
        order(&peer, 0);
        close(fd);
        bool reused = false;
        for (int i = 0; i < 16; i++)
            reused |= order(&peer, sizes[k]).nonce == first.nonce;
        cr_expect(reused || k == 0, "small ones have another segment by now");
        order(&peer, 0);
    }
    finish(&peer);
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

Test(store, borrowers_are_the_processes_that_live)
{
    struct peer peers[] = {start(reader), start(reader), start(reader)};
    open_store(64 * MiB, 0);
    exo_object *objects[] = {put(1000, 1), put(1000, 2), put(MiB, 3)};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            cr_assert_eq(ask(&peers[k], handle_of(objects[i])).status, EXO_OK);
            cr_expect_eq(borrowers(), i == 0 ? (uint32_t)k + 1 : 3, "a reader drops the one before");
        }
    kill_hard(&peers[1]);
    cr_expect_eq(borrowers(), 2);
    ask_to_drop(&peers[0]);
    cr_expect_eq(borrowers(), 1);
    int fd = open_segment(&(exo_object_handle[]){handle_of(objects[2])}[0], O_RDONLY);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    for (int i = 0; i < 1000; i++) { /* not next to each other: the kernel would make them one */
        lock.l_start = 1 + 2 * i;
        cr_assert_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
    }
    cr_expect_eq(borrowers(), 256, "counting ends");
    close(fd);
    for (int i = 0; i < 3; i++)
        exo_object_drop(&objects[i]);
    close(peers[0].socket); /* later ones have copies of the earlier ends */
    finish(&peers[2]);
    cr_expect_eq(waitpid(peers[0].pid, NULL, 0), peers[0].pid);
}

static void
holds_and_asks_wrongly(int socket)
{
    exo_object_handle handle;
    exo_object *object = NULL, *none = NULL;
    open_store(0, 64 * MiB);
    CHECK(hear(socket, &handle, sizeof handle));
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
    tell(socket, &handle, sizeof handle);
    CHECK(!hear(socket, &handle, sizeof handle));
    CHECK(holds(object, exo_object_size(object), 1));
    exo_object_drop(&object);
    exo_store_close(&store);
}

/* A process has one lock for all that its threads do with an object. */
Test(store, wrong_handles_give_nothing_back)
{
    struct peer peer = start(holds_and_asks_wrongly);
    open_store(64 * MiB, 32 * MiB);
    exo_object *object = put(3 * MiB, 1);
    exo_object_handle handle = handle_of(object);
    tell(peer.socket, &handle, sizeof handle);
    cr_assert(hear(peer.socket, &handle, sizeof handle));
    cr_expect_eq(borrowers(), 1);
    exo_object_drop(&object);
    object = put(3 * MiB, 2);
    cr_expect_neq(handle_of(object).nonce, handle.nonce);
    exo_object_drop(&object);
    finish(&peer);
}

/* Imports, sees from beside that the object is locked, and drops, again and again. */
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
    CHECK(hear(socket, &handle, sizeof handle));
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, import_and_drop, &handle) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    exo_store_close(&store);
}

/* A thread that drops the last reference gives back nothing that another thread has just imported. */
Test(store, threads_of_a_reader_share_one_lock)
{
    struct peer peer = start(import_in_threads);
    open_store(64 * MiB, 0);
    exo_object *object = put(1000, 1);
    exo_object_handle handle = handle_of(object);
    tell(peer.socket, &handle, sizeof handle);
    finish(&peer);
    exo_object_drop(&object);
}

Test(store, an_owner_cannot_take_memory_from_under_a_reader)
{
    open_store(16 * MiB, 0);
    exo_object *object = put(MiB, 1);
    int fd = (int)handle_of(object).fd;
    cr_expect(ftruncate(fd, 4096) == -1 && errno == EPERM);
    cr_expect(ftruncate(fd, (off_t)(8 * MiB)) == -1 && errno == EPERM);
    exo_object_drop(&object);
}

/* --- What runs out ---------------------------------------------------------------------------------------------------------- */

static unsigned
descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    cr_assert_not_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* Mappings of segments; those of the allocator come and go. */
static unsigned
mappings(void)
{
    unsigned count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    cr_assert_not_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:exogym") != NULL;
    fclose(maps);
    return count;
}

Test(store, leaks_no_descriptors_and_no_mappings)
{
    struct peer maker = start(owner), taker = start(reader);
    unsigned fds = descriptors();
    for (int round = 0; round < 3; round++) {
        open_store(256 * MiB, 16 * MiB);
        for (int i = 0; i < 20; i++) {
            exo_object *mine[] = {put(100, 1), put(3 * MiB, 1), put(100 << 10, 1)}, *theirs = NULL;
            cr_assert_gt(mappings(), 0);
            for (int k = 0; k < 3; k++)
                cr_assert_eq(ask(&taker, handle_of(mine[k])).status, EXO_OK);
            exo_object_handle handle = order(&maker, i % 2 ? 3 * MiB : 300);
            cr_assert_eq(exo_object_import(store, &handle, &theirs, &err), EXO_OK, "%s", err.text);
            order(&maker, 0);
            for (int k = 0; k < 3; k++)
                exo_object_drop(&mine[k]);
            exo_object_drop(&theirs);
            handle.generation += 5;
            cr_assert_eq(exo_object_import(store, &handle, &theirs, &err), EXO_NOT_FOUND, "%s", err.text);
        }
        exo_store_close(&store);
        cr_expect_eq(descriptors(), fds);
        cr_expect_eq(mappings(), 0);
    }
    finish(&taker); /* it has a copy of this end of the other's socket */
    finish(&maker);
}

Test(store, too_many_descriptors_are_told)
{
    struct rlimit few = {.rlim_cur = 40, .rlim_max = 64};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    open_store(256 * MiB, 64 * MiB);
    struct rlimit raised;
    getrlimit(RLIMIT_NOFILE, &raised);
    cr_expect_eq(raised.rlim_cur, 64);
    exo_object *objects[80] = {0};
    size_t count = 0;
    while (count < 80 && (objects[count] = put(100 << 10, 1)))
        count++;
    cr_assert(count > 20 && count < 64);
    cr_expect_eq(err.code, EXO_FULL);
    cr_expect(strstr(err.text, "descriptor") && strstr(err.text, "64"), "%s", err.text);
    /* A kept segment's descriptor serves a new object of another class. */
    exo_object_drop(&objects[0]);
    objects[0] = put(MiB, 1);
    cr_expect_not_null(objects[0], "%s", err.text);
    for (size_t i = 0; i < count; i++)
        exo_object_drop(&objects[i]);
}

/* A reader keeps a descriptor for each segment: the ones that it only keeps mapped go first, and half are left to others. */
Test(store, imports_leave_descriptors_to_others)
{
    enum {
        OBJECTS = 60
    };
    struct peer peer = start(owner);
    exo_object *objects[OBJECTS] = {0};
    exo_object_handle handles[OBJECTS];
    size_t count = 0;
    struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    open_store(256 * MiB, 64 * MiB);
    for (int i = 0; i < OBJECTS; i++) { /* the owner makes 16 at a time at most */
        if (i % 16 == 0)
            order(&peer, 0);
        handles[i] = order(&peer, (64 << 10) + 1);
        cr_assert_eq(exo_object_import(store, &handles[i], &objects[0], &err), EXO_OK, "%d: %s", i, err.text);
        exo_object_drop(&objects[0]);
        cr_expect_leq(descriptors(), 48);
    }
    order(&peer, 0);
    while (count < OBJECTS) {
        if (count % 16 == 0)
            order(&peer, 0);
        handles[0] = order(&peer, (64 << 10) + 1);
        if (exo_object_import(store, &handles[0], &objects[count], &err) != EXO_OK)
            break;
        count++;
    }
    cr_expect_eq(count, 32);
    cr_expect_eq(err.code, EXO_FULL);
    cr_expect(strstr(err.text, "32 segments") && strstr(err.text, "ulimit"), "%s", err.text);
    while (count)
        exo_object_drop(&objects[--count]);
    cr_expect_eq(exo_object_import(store, &handles[0], &objects[0], &err), EXO_OK, "%s", err.text);
    exo_object_drop(&objects[0]);
    finish(&peer);
}

Test(store, every_allocation_may_fail)
{
    struct peer peer = start(owner);
    for (uint64_t n = 1; n <= 2; n++) {
        exo_memory_fail_at(1);
        cr_expect_eq(exo_store_open(&store, NULL, &err), EXO_NOMEM);
    }
    open_store(64 * MiB, 0);
    exo_object_handle handle = order(&peer, 3 * MiB);
    exo_object *object = NULL;
    for (uint64_t n = 1; n <= 2; n++) {
        exo_memory_fail_at(n);
        cr_expect_eq(exo_object_create(store, MiB, &object, &err), EXO_NOMEM);
        exo_memory_fail_at(n);
        cr_expect_eq(exo_object_import(store, &handle, &object, &err), EXO_NOMEM);
        cr_expect_null(object);
    }
    exo_store_stats stats = exo_store_get_stats(store);
    cr_expect(stats.bytes_used == 0 && stats.bytes_imported == 0 && stats.objects == 0 && stats.imports == 0);
    object = put(10, 1);
    exo_memory_fail_at(1);
    cr_expect_eq(exo_store_each(store, count_visit, &(exo_object_info){0}), EXO_NOMEM);
    exo_memory_fail_at(0);
    exo_object_drop(&object);
    finish(&peer);
}

/* --- Limits ----------------------------------------------------------------------------------------------------------------- */

static void
write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f, "%s", path);
    fputs(text, f);
    fclose(f);
}

Test(store, capacity_follows_the_control_groups)
{
    char root[] = "/tmp/exogym-groups-XXXXXX", path[256], groups[256];
    cr_assert_not_null(mkdtemp(root));
    const char *folders[] = {"a", "a/b", "memory", "memory/c"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        cr_assert_eq(mkdir(path, 0755), 0);
    }
    snprintf(groups, sizeof groups, "%s/groups", root);
    write_text(root, "a/memory.max", "5000\n");
    write_text(root, "a/b/memory.max", "max\n");
    write_text(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_text(root, "memory/c/memory.limit_in_bytes", "3000\n");

    write_text(root, "groups", "0::/a/b\n");
    cr_expect_eq(exo_memory_limit_in(groups, root, 8000), 5000, "the group above has the limit");
    cr_expect_eq(exo_memory_limit_in(groups, root, 4000), 4000, "the machine has less");
    write_text(root, "groups", "5:cpu:/\n4:memory:/c\n0::/\n");
    cr_expect_eq(exo_memory_limit_in(groups, root, 8000), 3000, "version 1");
    write_text(root, "groups", "4:memory:/not/seen/from/here\n");
    cr_expect_eq(exo_memory_limit_in(groups, root, 8000), 8000, "a container's path");
    cr_expect_eq(exo_memory_limit_in("/none", root, 0), 0);

    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    cr_expect_eq(system(command), 0);

    cr_assert_eq(exo_store_open(&store, NULL, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_store_get_stats(store).capacity, exo_memory_limit() / 2);
}
