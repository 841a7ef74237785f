/* The head's file: it is whole after a kill at any moment, it catches up after a full disk, and
 * files of other programs stay unchanged. The suite's `setup` and `teardown` own the folder. Read
 * next: runtime/cluster/durable.h. */
#include "cluster/durable.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <sqlite3.h>

#include "support/head_world.h"
#include "support/temp.h"

static char folder[64], path[128];
static exo_err err;

static void
setup(void)
{
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/head.db", folder);
}

static void
teardown(void)
{
    temp_remove(folder);
}

TestSuite(durable, .init = setup, .fini = teardown, .timeout = 120);

/* --- Kills ------------------------------------------------------------------------------------ */

/* In a child process: the number of changes to files until the process exits. With `torn`, half of
 * the last write is done. */
static int left;
static bool torn;

static ssize_t
killed_pwrite(int file, const void *data, size_t size, off_t at)
{
    if (--left == 0) {
        if (torn && pwrite(file, data, size / 2, at) < 0)
            _exit(2);
        _exit(1);
    }
    return pwrite(file, data, size, at);
}

static int
killed_ftruncate(int file, off_t size)
{
    if (--left == 0)
        _exit(1);
    return ftruncate(file, size);
}

static int
killed_unlink(const char *name)
{
    if (--left == 0)
        _exit(1);
    return unlink(name);
}

static void
hook(const char *name, sqlite3_syscall_ptr function)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    if (vfs->xSetSystemCall(vfs, name, function) != SQLITE_OK)
        _exit(3);
}

static const exo_durable_row row = {
    .table = "jobs", .key = 7, .name = "job", .state = "running", .info = "info", .info_size = 4};

/* A child process opens the file, puts a row into it and closes it. It exits at the given change;
 * the result is its exit status, 1 for such an exit. */
static int
be_killed(int change, bool in_the_middle)
{
    pid_t child = fork();
    int status = 0;
    cr_assert_geq(child, 0);
    if (child == 0) {
        exo_durable *d = NULL;
        left = change;
        torn = in_the_middle;
        sqlite3_initialize();
        hook("pwrite64", (sqlite3_syscall_ptr)(void (*)(void))killed_pwrite);
        hook("pwrite", (sqlite3_syscall_ptr)(void (*)(void))killed_pwrite);
        hook("ftruncate", (sqlite3_syscall_ptr)(void (*)(void))killed_ftruncate);
        hook("unlink", (sqlite3_syscall_ptr)(void (*)(void))killed_unlink);
        if (exo_durable_open(&d, path, NULL) != EXO_OK || exo_durable_put(d, &row, NULL) != EXO_OK)
            _exit(4);
        exo_durable_close(&d);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void
count_row(void *context, const exo_durable_row *found)
{
    *(int *)context += found->key == row.key && found->info_size == 4;
}

static void
expect_whole(int change)
{
    exo_durable *d = NULL;
    int rows = 0;
    cr_expect_eq(exo_durable_open(&d, path, &err), EXO_OK, "killed at change %d: %s", change,
                 err.text);
    if (!d)
        return;
    cr_expect_eq(exo_durable_each(d, "jobs", count_row, &rows, &err), EXO_OK, "%s", err.text);
    cr_expect_leq(rows, 1);
    cr_expect_eq(exo_durable_put(d, &row, &err), EXO_OK, "killed at change %d: %s", change,
                 err.text);
    exo_durable_close(&d);
}

/* Kills a child at each change. Unless new_each_time is set, the files of earlier kills remain, so
 * the head is killed repeatedly with one file. */
static void
kill_at_each(bool in_the_middle, bool new_each_time)
{
    int change = 1, result;
    while ((result = be_killed(change, in_the_middle)) == 1) {
        expect_whole(change++);
        if (new_each_time) {
            temp_remove(folder);
            setup();
        }
    }
    cr_expect_eq(result, 0);
    cr_expect_geq(change, 5, "it changed files %d times: is it seen?", change);
}

Test(durable, is_whole_wherever_a_head_was_killed)
{
    kill_at_each(false, true);
}

Test(durable, is_whole_wherever_a_write_was_torn)
{
    kill_at_each(true, true);
}

Test(durable, is_whole_when_heads_are_killed_one_after_the_other)
{
    kill_at_each(true, false);
}

/* --- A full disk ------------------------------------------------------------------------------ */

static atomic_bool full;

static ssize_t
full_pwrite(int file, const void *data, size_t size, off_t at)
{
    if (!full)
        return pwrite(file, data, size, at);
    errno = ENOSPC;
    return -1;
}

/* From now on the disk is full whenever `full` is true. */
static void
hook_full(void)
{
    sqlite3_initialize();
    hook("pwrite64", (sqlite3_syscall_ptr)(void (*)(void))full_pwrite);
    hook("pwrite", (sqlite3_syscall_ptr)(void (*)(void))full_pwrite);
}

static int
count_rows(exo_durable *d)
{
    int rows = 0;
    cr_expect_eq(exo_durable_each(d, "jobs", count_row, &rows, &err), EXO_OK, "%s", err.text);
    return rows;
}

Test(durable, says_that_changes_were_not_written)
{
    exo_durable *d = NULL;
    hook_full();
    cr_assert_eq(exo_durable_open(&d, path, &err), EXO_OK, "%s", err.text);
    for (int i = 0; i < 2; i++) {
        full = i == 0;
        exo_durable_begin(d);
        exo_durable_begin(d);
        cr_expect_eq(exo_durable_put(d, &row, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_durable_commit(d, &err), EXO_OK, "it is not the outermost one");
        cr_expect_eq(exo_durable_commit(d, &err), full ? EXO_IO : EXO_OK);
        cr_expect(!full || strstr(err.text, "not written"), "%s", err.text);
        full = false;
        cr_expect_eq(count_rows(d), i);
    }
    exo_durable_close(&d);
}

Test(durable, is_cleared_with_other_changes_or_not_at_all)
{
    exo_durable *d = NULL;
    cr_assert_eq(exo_durable_open(&d, path, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_durable_put(d, &row, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_durable_clear(d, &err), EXO_IO);
    cr_expect_eq(count_rows(d), 1);
    for (int i = 0; i < 2; i++) {
        exo_durable_begin(d);
        cr_expect_eq(exo_durable_clear(d, &err), EXO_OK, "%s", err.text);
        if (i == 0)
            exo_durable_cancel(d);
        else
            cr_expect_eq(exo_durable_commit(d, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(count_rows(d), 1 - i);
    }
    exo_durable_close(&d);
}

/* A head goes on while the disk is full. A second after there is room, the file has all changes. */
Test(durable, catches_up_after_a_full_disk)
{
    static head_world w;
    hook_full();
    world_open(&w, path);
    world_spawn_one(&w, "early", 0);
    full = true;
    world_spawn_one(&w, "late", 0);
    world_register(&w, 50, "driver", "d", "job");
    world_tick(&w, 2 * EXO_SECOND); /* still full: the head tries again later */
    full = false;
    world_tick(&w, 2 * EXO_SECOND);
    world_close(&w);
    world_open(&w, path);
    cr_expect(world_is(&w, "early", "restarting", 1), "%s", w.text);
    cr_expect(world_is(&w, "late", "restarting", 1), "%s", w.text);
    Exo__Cluster__Listing *listing = world_list(&w);
    cr_expect_eq(listing->n_jobs, 1);
    EXO_RELEASE(listing);
    world_close(&w);
}

/* A head that is started on a full disk, as by systemd after a crash, has what its file has. */
Test(durable, opens_on_a_full_disk)
{
    static head_world w;
    hook_full();
    world_open(&w, path);
    world_spawn_one(&w, "early", 0);
    world_close(&w);
    full = true;
    world_open(&w, path);
    cr_expect(world_is(&w, "early", "restarting", 1), "%s", w.text);
    world_register(&w, 50, "driver", "d", "job");
    full = false;
    world_tick(&w, 2 * EXO_SECOND);
    world_close(&w);
    world_open(&w, path);
    Exo__Cluster__Listing *listing = world_list(&w);
    cr_expect_eq(listing->n_actors, 1);
    cr_expect_eq(listing->n_jobs, 1);
    EXO_RELEASE(listing);
    world_close(&w);
}

/* --- The file's owner ------------------------------------------------------------------------- */

static void
make(const char *sql)
{
    sqlite3 *db = NULL;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

Test(durable, mends_what_an_earlier_version_left_when_it_was_killed)
{
    make("CREATE TABLE actors (key INTEGER PRIMARY KEY, name TEXT, state TEXT, detail TEXT, info "
         "BLOB, spec BLOB);");
    expect_whole(0);
}

Test(durable, leaves_files_of_other_programs_alone)
{
    exo_durable *d = NULL;
    make("CREATE TABLE actors (name TEXT, film TEXT);");
    cr_expect_eq(exo_durable_open(&d, path, &err), EXO_IO);
    cr_expect(strstr(err.text, "another program"), "%s", err.text);
}

Test(durable, says_what_to_do_with_a_damaged_file)
{
    static const long places[] = {0, 100, 4096}; /* the header, the first page, a table */
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        exo_durable *d = NULL;
        exo_err reason = {0};
        int rows = 0;
        unlink(path);
        make("CREATE TABLE actors (key INTEGER PRIMARY KEY, name TEXT, state TEXT, detail TEXT, "
             "info BLOB, spec BLOB);");
        FILE *file = fopen(path, "r+");
        cr_assert(file && fseek(file, places[i], SEEK_SET) == 0);
        for (int k = 0; k < 200; k++)
            fputc(0xa5, file);
        fclose(file);
        exo_status st = exo_durable_open(&d, path, &reason);
        if (st == EXO_OK)
            st = exo_durable_each(d, "actors", count_row, &rows, &reason);
        cr_expect_eq(st, EXO_IO, "at %ld", places[i]);
        cr_expect(strstr(reason.text, ": move it away, with its -wal and -shm"), "at %ld: %s",
                  places[i], reason.text);
        exo_durable_close(&d);
    }
}

static mode_t
mode_of(const char *file)
{
    struct stat info;
    return stat(file, &info) == 0 ? info.st_mode & 0777 : 0600;
}

/* Other users may read neither the head's file nor SQLite's files beside it, whatever the umask
 * permits. */
Test(durable, is_for_its_owner_alone)
{
    static const char *const besides[] = {"", "-wal", "-shm", "-journal"};
    exo_durable *d = NULL;
    umask(0);
    cr_assert_eq(exo_durable_open(&d, path, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_durable_put(d, &row, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < sizeof besides / sizeof *besides; i++) {
        char beside[512];
        snprintf(beside, sizeof beside, "%s%s", path, besides[i]);
        cr_expect_eq(mode_of(beside), 0600, "%s", beside);
    }
    exo_durable_close(&d);
}
