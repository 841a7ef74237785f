/* Regions: memory that other processes may map and write (runtime/store/region.h). The main process
 * owns the regions; a forked child maps them, as a peer does. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/region.h"

enum {
    BYTES = 1200000, /* more than 16 of the largest pages */
};

static void
setup(void)
{
    exo_region_enable();
}

/* Maps a place as another process does. */
static exo_status
map_place(exo_segment *out, const exo_process *owner, const exo_region_place *place)
{
    int folder = -1;
    exo_status st = exo_process_open(owner, &folder, NULL);
    if (st == EXO_OK)
        st = exo_segment_map_open(out, owner, folder, (int)place->fd, place->nonce, NULL);
    if (folder >= 0)
        close(folder);
    return st;
}

/* Forks a process that maps the place, and then, for each byte from `go`, fills the buffer with
 * that byte and writes it to `ready`. Begins with the byte 1. */
static pid_t
fork_writer(const exo_region_place *place, size_t bytes, int ready[2], int go[2])
{
    exo_process owner;
    cr_assert_eq(exo_process_self(&owner, NULL), EXO_OK);
    cr_assert(pipe(ready) == 0 && pipe(go) == 0);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    exo_segment view = {0};
    char byte = 1;
    if (map_place(&view, &owner, place) != EXO_OK)
        _exit(1);
    do {
        memset(exo_segment_slot(&view, 0) + place->offset, byte, bytes);
        if (write(ready[1], &byte, 1) != 1)
            _exit(2);
    } while (read(go[0], &byte, 1) == 1 && byte != 0);
    exo_segment_release(&view);
    _exit(0);
}

static void
ask(int ready[2], int go[2], char byte)
{
    char answer;
    cr_assert_eq(write(go[1], &byte, 1), 1);
    if (byte)
        cr_assert_eq(read(ready[0], &answer, 1), 1);
}

static void
check_all(const char *data, size_t bytes, char value)
{
    for (size_t i = 0; i < bytes; i++)
        cr_assert_eq(data[i], value, "byte %zu is %d, not %d", i, data[i], value);
}

Test(region, is_zeroed_memory_with_places, .init = setup)
{
    exo_region_place all, part, none;
    char *a = exo_region_alloc(BYTES), *b = exo_region_alloc(BYTES);
    cr_assert(a && b);
    check_all(a, BYTES, 0);
    cr_assert(exo_region_find(a, BYTES, &all) && exo_region_find(a + 77, BYTES - 77, &part));
    cr_expect_eq(part.nonce, all.nonce);
    cr_expect_eq(part.offset, all.offset + 77);
    cr_expect(!exo_region_find(a, 2 * BYTES, &none), "beyond the region");
    cr_expect(!exo_region_find(&all, sizeof all, &none), "other memory");
    cr_expect(exo_region_find(b, BYTES, &part) && part.nonce != all.nonce);
    cr_expect(!exo_region_free(&all));
    cr_expect(exo_region_free(a) && exo_region_free(b));
    cr_expect(!exo_region_find(b, BYTES, &none));
    cr_expect_null(exo_region_alloc(EXO_REGION_LEAST - 1));
}

Test(region, is_limited_in_number, .init = setup)
{
    static void *all[EXO_REGION_MOST];
    for (size_t i = 0; i < EXO_REGION_MOST; i++)
        cr_assert_not_null(all[i] = exo_region_alloc(EXO_REGION_LEAST));
    cr_expect_null(exo_region_alloc(EXO_REGION_LEAST));
    for (size_t i = 0; i < EXO_REGION_MOST; i++) /* in another order than they were made */
        cr_assert(exo_region_free(all[i * 5 % EXO_REGION_MOST]));
    void *again = exo_region_alloc(EXO_REGION_LEAST);
    cr_expect(again && exo_region_free(again));
}

Test(region, cannot_be_made_smaller, .init = setup)
{
    exo_region_place place;
    char *a = exo_region_alloc(BYTES);
    cr_assert(a && exo_region_find(a, BYTES, &place));
    cr_expect(ftruncate((int)place.fd, 0) != 0 && errno == EPERM);
    exo_region_free(a);
}

Test(region, is_written_by_others_until_it_is_disowned, .init = setup, .timeout = 60)
{
    exo_region_place place, later;
    int ready[2], go[2], status;
    char byte, *a = exo_region_alloc(BYTES);
    cr_assert(a && exo_region_find(a, BYTES, &place));
    pid_t writer = fork_writer(&place, BYTES, ready, go);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    check_all(a, BYTES, 1);
    cr_assert(exo_region_disown(a, BYTES));
    check_all(a, BYTES, 1);
    ask(ready, go, 2);
    check_all(a, BYTES, 1);
    cr_assert(exo_region_find(a, BYTES, &later), "it is a region again");
    cr_expect_neq(later.nonce, place.nonce);
    ask(ready, go, 0);
    cr_assert(waitpid(writer, &status, 0) == writer && status == 0);

    writer = fork_writer(&later, BYTES, ready, go);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    memset(a, 3, BYTES);
    ask(ready, go, 4);
    check_all(a, BYTES, 4);
    ask(ready, go, 0);
    cr_assert(waitpid(writer, &status, 0) == writer && status == 0);
    cr_expect(exo_region_free(a));
}

Test(region, tests_have_the_pages_that_they_ask_for)
{
    const char *page = getenv("EXO_TEST_PAGE"); /* tests/pages */
    cr_expect(!page || sysconf(_SC_PAGESIZE) == strtol(page, NULL, 10), "%s", page);
}

Test(region, is_disowned_in_part_by_whole_pages, .init = setup, .timeout = 60)
{
    exo_region_place place, later;
    int ready[2], go[2], status;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), first = 5 * page + 100, bytes = 10 * page;
    char byte, *a = exo_region_alloc(BYTES);
    cr_assert(a && exo_region_find(a, BYTES, &place));
    size_t end = first + bytes - ((uintptr_t)a + first + bytes) % page, begin = end - 9 * page;
    pid_t writer = fork_writer(&place, BYTES, ready, go);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    cr_assert(exo_region_disown(a + first, bytes));
    ask(ready, go, 2);
    check_all(a, begin, 2);
    check_all(a + begin, 9 * page, 1);
    check_all(a + end, BYTES - end, 2);
    cr_expect(!exo_region_find(a, BYTES, &later) && !exo_region_find(a, page, &later));
    ask(ready, go, 0);
    cr_assert(waitpid(writer, &status, 0) == writer && status == 0);
    cr_expect(exo_region_free(a));
}

Test(region, is_not_taken_for_an_object_nor_the_reverse, .init = setup)
{
    exo_process self;
    exo_segment object, view = {0};
    exo_region_place place;
    int folder;
    char *a = exo_region_alloc(BYTES);
    cr_assert(a && exo_region_find(a, BYTES, &place));
    cr_assert_eq(exo_process_self(&self, NULL), EXO_OK);
    cr_assert_eq(exo_process_open(&self, &folder, NULL), EXO_OK);
    cr_expect_neq(exo_segment_map(&view, &self, folder, (int)place.fd, place.nonce, NULL), EXO_OK);
    cr_assert_eq(exo_segment_create(&object, &self, BYTES, 1, NULL), EXO_OK);
    cr_expect_neq(exo_segment_map_open(&view, &self, folder, object.fd, object.nonce, NULL),
                  EXO_OK);
    cr_expect_neq(exo_segment_map_open(&view, &self, folder, (int)place.fd, place.nonce + 1, NULL),
                  EXO_OK);
    exo_segment_release(&object);
    close(folder);
    exo_region_free(a);
}
