/* Shared objects between real processes: other processes read sealed objects in place, and neither
 * a dead owner nor a dead reader does harm. store_foreign.c tests hostile processes. Each test owns
 * the store and its peers. Read next: runtime/store/store.h; docs/objects.md. */
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
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "base/memory_limits.h"
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

TestSuite(store, .fini = teardown, .timeout = 120);

static exo_object *
put(uint64_t size, int value)
{
    return object_put(store, size, value, &err);
}

/* --- One process ------------------------------------------------------------------------------ */

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
            cr_assert(object_holds(object, size, 7));
            cr_assert_eq((uintptr_t)exo_object_data(object) % (size > 64 << 10 ? 4096 : 256), 0);
            cr_assert(size <= 64 << 10 ||
                      exo_store_get_stats(store).bytes_used - before <= size + size / 8 + 2 * 4096);
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
        cr_expect_eq(object_handle(objects[i]).fd, object_handle(objects[0]).fd);
    }
    for (int i = 0; i < 128; i++) {
        cr_expect(object_holds(objects[i], 200, i));
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
    exo_object_handle handle = object_handle(object);
    cr_assert_eq(exo_object_import(store, &handle, &same, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(same, object);
    cr_expect_not(exo_object_is_imported(same));
    exo_object_drop(&object);
    cr_expect(object_holds(same, 1000, 1));
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
    /* Kept memory makes room. */
    cr_expect_eq(exo_object_create(store, 8 * MiB, &second, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_store_get_stats(store).bytes_kept, 0);
    exo_object_drop(&second);
}

Test(store, keeps_what_was_used_last)
{
    open_store(100 * MiB, 9 * MiB);
    exo_object *a = put(4 * MiB, 1), *b = put(3 * MiB, 2), *c = put(5 * MiB, 3);
    exo_object_handle old_b = object_handle(b);
    exo_object_drop(&a);
    exo_object_drop(&b);
    cr_expect_eq(exo_store_get_stats(store).bytes_kept, 7 * MiB + 2 * 4096);
    exo_object_drop(&c); /* evicts a */
    cr_expect_eq(exo_store_get_stats(store).bytes_kept, 8 * MiB + 2 * 4096);
    b = put(3 * MiB, 4);
    cr_expect_eq(exo_store_get_stats(store).reuses, 1);
    cr_expect_eq(object_handle(b).nonce, old_b.nonce);
    cr_expect_neq(object_handle(b).generation, old_b.generation);
    exo_object *none = NULL;
    cr_expect_eq(exo_object_import(store, &old_b, &none, &err), EXO_NOT_FOUND);
    exo_object_drop(&b);
}

Test(store, objects_outlive_the_store)
{
    open_store(MiB, MiB);
    exo_object *object = put(1000, 9);
    exo_object_handle handle = object_handle(object);
    exo_store *alias = store;
    exo_store_close(&store);
    exo_object *other = NULL;
    cr_expect_eq(exo_object_create(alias, 1, &other, &err), EXO_CLOSED);
    cr_expect_eq(exo_object_import(alias, &handle, &other, &err), EXO_CLOSED);
    cr_expect(object_holds(object, 1000, 9));
    exo_object_drop(&object);
}

static void
count_visit(void *context, const exo_object_info *info)
{
    exo_object_info *sum = context;
    sum->references += info->references;
    sum->handle.size += info->handle.size;
    sum->sealed |= info->sealed;
    exo_store_get_stats(store); /* the callback may use the store */
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

/* --- Readers ---------------------------------------------------------------------------------- */

Test(store, another_process_reads_in_place)
{
    struct peer peer = peer_start(peer_reader);
    open_store(256 * MiB, 0);
    uint64_t sizes[] = {1, 255, 64 << 10, (64 << 10) + 1, 3 * MiB + 5, 64 * MiB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        exo_object *object = put(sizes[i], (int)i + 1);
        struct peer_answer answer = peer_ask(&peer, object_handle(object));
        cr_expect_eq(answer.status, EXO_OK);
        cr_expect_eq(answer.first, (int)i + 1);
        cr_expect_eq(answer.last, (int)i + 1);
        exo_object_drop(&object);
    }
    peer_finish(&peer);
}

static void
maps_once(int socket)
{
    exo_object_handle handle;
    exo_object *a = NULL, *b = NULL;
    open_store(0, 0);
    CHECK(peer_hear(socket, &handle, sizeof handle));
    CHECK(exo_object_import(store, &handle, &a, NULL) == EXO_OK);
    CHECK(exo_object_import(store, &handle, &b, NULL) == EXO_OK);
    CHECK(a == b && exo_object_is_imported(a));
    exo_object_handle forwarded;
    CHECK(exo_object_export(a, &forwarded, NULL) == EXO_OK);
    CHECK(memcmp(&forwarded, &handle, sizeof handle) == 0);
    exo_store_stats stats = exo_store_get_stats(store);
    CHECK(stats.imports == 1 && stats.objects == 0 && stats.bytes_imported == 32 * MiB + 4096);
    /* An imported object is read-only: a system call that writes to it fails. */
    CHECK(read(open("/dev/zero", O_RDONLY), exo_object_data(a), 1) == -1 && errno == EFAULT);
    exo_object_drop(&a);
    CHECK(object_holds(b, 32 * MiB, 3));
    exo_object_drop(&b);
    CHECK(exo_store_get_stats(store).bytes_imported == 0);
    exo_store_close(&store);
}

Test(store, two_imports_share_one_mapping_that_is_read_only)
{
    struct peer peer = peer_start(maps_once);
    open_store(64 * MiB, 0);
    exo_object *object = put(32 * MiB, 3);
    exo_object_handle handle = object_handle(object);
    peer_tell(peer.socket, &handle, sizeof handle);
    peer_finish(&peer);
    exo_object_drop(&object);
}

Test(store, a_reader_outlives_the_owners_reference)
{
    struct peer peer = peer_start(peer_owner);
    open_store(0, 0);
    uint64_t sizes[] = {500, 3 * MiB};
    for (int i = 0; i < 2; i++) {
        exo_object *object = NULL;
        exo_object_handle handle = peer_order(&peer, sizes[i]);
        cr_assert_eq(exo_object_import(store, &handle, &object, &err), EXO_OK, "%s", err.text);
        peer_order(&peer, 0);
        /* New objects of the same size do not reuse the memory while it is read. */
        for (int k = 0; k < 8; k++)
            cr_expect(memcmp(&handle, &(exo_object_handle){0}, sizeof handle) != 0 &&
                      peer_order(&peer, sizes[i]).size);
        cr_expect(object_holds(object, sizes[i], 'o'));
        exo_object_drop(&object);
        cr_expect_eq(exo_object_import(store, &handle, &object, &err), EXO_NOT_FOUND, "%s",
                     err.text);
        peer_order(&peer, 0);
    }
    peer_finish(&peer);
}

Test(store, a_reader_outlives_the_owner)
{
    struct peer peer = peer_start(peer_owner), late = peer_start(peer_reader);
    open_store(0, 0);
    exo_object *small = NULL, *large = NULL;
    exo_object_handle handles[] = {peer_order(&peer, 500), peer_order(&peer, 3 * MiB),
                                   peer_order(&peer, 5 * MiB)};
    cr_assert_eq(exo_object_import(store, &handles[0], &small, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_object_import(store, &handles[1], &large, &err), EXO_OK, "%s", err.text);
    peer_kill(&peer);
    cr_expect(object_holds(small, 500, 'o'));
    cr_expect(object_holds(large, 3 * MiB, 'o'));
    cr_expect_eq(peer_ask(&late, handles[0]).status, EXO_PEER_LOST);
    cr_expect_eq(exo_object_import(store, &handles[2], &(exo_object *){NULL}, &err), EXO_PEER_LOST);
    char pid[32];
    snprintf(pid, sizeof pid, "process %d", (int)peer.pid);
    cr_expect(strstr(err.text, pid), "%s", err.text);
    exo_object_drop(&small);
    exo_object_drop(&large);
    peer_finish(&late);
}

Test(store, an_owner_that_nobody_has_waited_for_is_gone)
{
    struct peer peer = peer_start(peer_owner);
    open_store(0, 0);
    exo_object_handle handle = peer_order(&peer, 3 * MiB);
    siginfo_t info;
    kill(peer.pid, SIGKILL);
    /* the owner stays a zombie */
    cr_assert_eq(waitid(P_PID, (id_t)peer.pid, &info, WEXITED | WNOWAIT), 0);
    cr_expect_eq(exo_object_import(store, &handle, &(exo_object *){NULL}, &err), EXO_PEER_LOST,
                 "%s", err.text);
    peer_kill(&peer);
}

/* --- Reuse ------------------------------------------------------------------------------------ */

static void
reuse_waits_for_readers(uint64_t size, bool killed)
{
    struct peer peer = peer_start(peer_reader);
    open_store(256 * MiB, 64 * MiB);
    exo_object *object = put(size, 1);
    exo_object_handle first = object_handle(object);
    cr_assert_eq(peer_ask(&peer, first).status, EXO_OK);
    exo_object_drop(&object);

    /* The object is borrowed: no new object may have its memory. The number of small objects fills
     * two segments of 32 slots, except for that slot. */
    exo_object *others[64];
    size_t count = size > 64 << 10 ? 3 : 63;
    for (size_t i = 0; i < count; i++) {
        others[i] = put(size, 2);
        cr_assert_not_null(others[i]);
        exo_object_handle h = object_handle(others[i]);
        cr_assert_not(h.nonce == first.nonce && h.slot == first.slot);
    }
    for (size_t i = 0; i < count; i++)
        exo_object_drop(&others[i]);

    if (killed)
        peer_kill(&peer);
    else
        peer_ask_to_drop(&peer);
    bool reused = false;
    for (size_t i = 0; i <= count; i++) {
        others[i] = put(size, 3);
        cr_assert_not_null(others[i]);
        exo_object_handle h = object_handle(others[i]);
        reused |= h.nonce == first.nonce && h.slot == first.slot;
    }
    cr_expect(reused); /* the kernel has returned the locks of a killed reader */
    for (size_t i = 0; i <= count; i++)
        exo_object_drop(&others[i]);
    if (!killed) {
        cr_expect_eq(peer_ask(&peer, first).status, EXO_NOT_FOUND);
        peer_finish(&peer);
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
    reuse_waits_for_readers(5000, false);
}

Test(store, a_slot_of_a_killed_reader_is_reused)
{
    reuse_waits_for_readers(5000, true);
}

Test(store, killed_readers_leave_nothing_behind)
{
    open_store(64 * MiB, 8 * MiB);
    for (int i = 0; i < 5; i++) {
        exo_object *object = put(3 * MiB, i);
        cr_assert_not_null(object, "%s", err.text);
        exo_object_handle handle = object_handle(object);
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

/* A mapping that was kept from the last object shows the next object in the same memory, and not
 * the last one. */
Test(store, a_mapping_serves_the_next_object)
{
    struct peer peer = peer_start(peer_reader);
    open_store(64 * MiB, 64 * MiB);
    uint64_t sizes[] = {500, 3 * MiB};
    for (int k = 0; k < 2; k++) {
        exo_object_handle before = {0};
        for (int i = 1; i < 200; i++) {
            exo_object *object = put(sizes[k], i);
            exo_object_handle handle = object_handle(object);
            struct peer_answer answer = peer_ask(&peer, handle);
            cr_assert(answer.status == EXO_OK && answer.first == i && answer.last == i);
            peer_ask_to_drop(&peer);
            exo_object_drop(&object);
            cr_assert(i == 1 || handle.nonce == before.nonce);
            cr_assert(i == 1 || peer_ask(&peer, before).status == EXO_NOT_FOUND);
            before = handle;
        }
    }
    peer_finish(&peer);
}

/* A mapping that is only kept goes when the owner frees the memory, or has died. */
Test(store, kept_mappings_hold_no_memory_of_the_past)
{
    struct peer peer = peer_start(peer_owner);
    open_store(1024 * MiB, 512 * MiB);
    for (int i = 0; i < 2; i++) {
        exo_object *object = NULL;
        exo_object_handle handle = peer_order(&peer, 60 * MiB);
        cr_assert_eq(exo_object_import(store, &handle, &object, &err), EXO_OK);
        exo_object_drop(&object);
        cr_expect_geq(exo_store_get_stats(store).bytes_imported, 60 * MiB);
        peer_order(&peer, 0);
        if (i == 0) { /* the owner uses its kept memory for another object */
            peer_order(&peer, 40 * MiB);
            peer_order(&peer, 0);
            handle = peer_order(&peer, 100);
        } else {
            peer_kill(&peer);
            handle.fd++;
        }
        cr_expect_eq(exo_object_import(store, &handle, &object, &err),
                     i == 0 ? EXO_OK : EXO_PEER_LOST);
        exo_object_drop(&object);
        cr_expect_leq(exo_store_get_stats(store).bytes_imported, MiB);
    }
}

/* --- Exhaustion ------------------------------------------------------------------------------- */

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

/* Counts mappings of segments; those of the allocator vary. */
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
    struct peer maker = peer_start(peer_owner), taker = peer_start(peer_reader);
    unsigned fds = descriptors();
    for (int round = 0; round < 3; round++) {
        open_store(256 * MiB, 16 * MiB);
        for (int i = 0; i < 20; i++) {
            exo_object *mine[] = {put(100, 1), put(3 * MiB, 1), put(100 << 10, 1)}, *theirs = NULL;
            cr_assert_gt(mappings(), 0);
            for (int k = 0; k < 3; k++)
                cr_assert_eq(peer_ask(&taker, object_handle(mine[k])).status, EXO_OK);
            exo_object_handle handle = peer_order(&maker, i % 2 ? 3 * MiB : 300);
            cr_assert_eq(exo_object_import(store, &handle, &theirs, &err), EXO_OK, "%s", err.text);
            peer_order(&maker, 0);
            for (int k = 0; k < 3; k++)
                exo_object_drop(&mine[k]);
            exo_object_drop(&theirs);
            handle.generation += 5;
            cr_assert_eq(exo_object_import(store, &handle, &theirs, &err), EXO_NOT_FOUND, "%s",
                         err.text);
        }
        exo_store_close(&store);
        cr_expect_eq(descriptors(), fds);
        cr_expect_eq(mappings(), 0);
    }
    peer_finish(&taker); /* first, because it has a copy of this end of the other peer's socket */
    peer_finish(&maker);
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
    /* The descriptor of a kept segment serves a new object of another size. */
    exo_object_drop(&objects[0]);
    objects[0] = put(MiB, 1);
    cr_expect_not_null(objects[0], "%s", err.text);
    for (size_t i = 0; i < count; i++)
        exo_object_drop(&objects[i]);
}

/* A reader has a descriptor for each segment. Those of segments that are only kept mapped are
 * closed first, and half of all descriptors stay free for other uses. */
Test(store, imports_leave_descriptors_to_others)
{
    enum {
        OBJECTS = 60
    };
    struct peer peer = peer_start(peer_owner);
    exo_object *objects[OBJECTS] = {0};
    exo_object_handle handles[OBJECTS];
    size_t count = 0;
    struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    open_store(256 * MiB, 64 * MiB);
    for (int i = 0; i < OBJECTS; i++) { /* the owner makes at most 16 at a time */
        if (i % 16 == 0)
            peer_order(&peer, 0);
        handles[i] = peer_order(&peer, (64 << 10) + 1);
        cr_assert_eq(exo_object_import(store, &handles[i], &objects[0], &err), EXO_OK, "%d: %s", i,
                     err.text);
        exo_object_drop(&objects[0]);
        cr_expect_leq(descriptors(), 48);
    }
    peer_order(&peer, 0);
    while (count < OBJECTS) {
        if (count % 16 == 0)
            peer_order(&peer, 0);
        handles[0] = peer_order(&peer, (64 << 10) + 1);
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
    peer_finish(&peer);
}

/* Whichever descriptor is the first that an import lacks, nobody takes its owner for ended. */
Test(store, imports_without_a_descriptor_are_told)
{
    struct peer peer = peer_start(peer_owner);
    struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
    int fds[64];
    size_t count = 0, refused = 0;
    exo_object *object = NULL;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    open_store(256 * MiB, 64 * MiB);
    exo_object_handle handle = peer_order(&peer, MiB);
    while (count < 64 && (fds[count] = dup(0)) >= 0)
        count++;
    cr_assert(count > 8 && count < 64);
    while (exo_object_import(store, &handle, &object, &err) != EXO_OK && count > 0) {
        cr_expect_eq(err.code, EXO_FULL, "%s", err.text);
        cr_expect_not_null(strstr(err.text, "descriptor"), "%s", err.text);
        refused++;
        close(fds[--count]);
    }
    cr_expect_geq(refused, 2);
    cr_assert_not_null(object);
    exo_object_drop(&object);
    while (count > 0)
        close(fds[--count]);
    peer_finish(&peer);
}

/* Fails each allocation of `act` in turn, until `act` makes fewer. At least one must be reached. */
static void
fail_each(exo_status (*act)(void *context), void *context)
{
    unsigned failed = 0;
    for (bool reached = true; reached; failed += reached) {
        uint64_t n = failed + 1, before = exo_memory_allocations();
        exo_memory_fail_at(n);
        exo_status st = act(context);
        reached = exo_memory_allocations() - before >= n;
        exo_memory_fail_at(0);
        cr_expect_eq(st, reached ? EXO_NOMEM : EXO_OK, "allocation %llu: %d", (unsigned long long)n,
                     (int)st);
        exo_store_stats stats = store ? exo_store_get_stats(store) : (exo_store_stats){0};
        cr_expect(stats.bytes_used == 0 && stats.bytes_imported == 0 && stats.objects == 0 &&
                  stats.imports == 0);
    }
    cr_expect_gt(failed, 0);
}

static exo_status
open_and_close(void *context)
{
    (void)context;
    exo_status st = exo_store_open(&store, NULL, &err);
    exo_store_close(&store);
    return st;
}

static exo_status
create_and_drop(void *context)
{
    exo_object *object = NULL;
    (void)context;
    exo_status st = exo_object_create(store, MiB, &object, &err);
    cr_expect_eq(object != NULL, st == EXO_OK);
    exo_object_drop(&object);
    return st;
}

static exo_status
import_and_drop(void *context)
{
    exo_object *object = NULL;
    exo_status st = exo_object_import(store, context, &object, &err);
    cr_expect_eq(object != NULL, st == EXO_OK);
    exo_object_drop(&object);
    return st;
}

Test(store, every_allocation_may_fail)
{
    struct peer peer = peer_start(peer_owner);
    fail_each(open_and_close, NULL);
    open_store(64 * MiB, 0);
    exo_object_handle handle = peer_order(&peer, 3 * MiB);
    fail_each(create_and_drop, NULL);
    fail_each(import_and_drop, &handle);
    exo_object *object = put(10, 1);
    exo_memory_fail_at(1);
    cr_expect_eq(exo_store_each(store, count_visit, &(exo_object_info){0}), EXO_NOMEM);
    exo_memory_fail_at(0);
    exo_object_drop(&object);
    peer_finish(&peer);
}

/* --- Limits ----------------------------------------------------------------------------------- */

Test(store, capacity_is_half_of_the_memory)
{
    cr_assert_eq(exo_store_open(&store, NULL, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_store_get_stats(store).capacity, exo_memory_limit() / 2);
}
