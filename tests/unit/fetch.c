/* Fetching files: whole, resumed, refused if damaged, and with a clear message if no source works.
 * The addresses are file://, so the tests need no network. The suite's `setup` and `teardown` own
 * the folder. Read next: nn/fetch.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/file.h"
#include "nn/fetch.h"

enum {
    SIZE = 100000
};

static char folder[64], source[128], url[160], bad_url[160], target[128], part[160], sha[65];
static char bytes[SIZE];

static void
setup(void)
{
    strcpy(folder, "/tmp/exogym-fetch-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 31 >> 2);
    snprintf(source, sizeof source, "%s/source", folder);
    snprintf(url, sizeof url, "file://%s", source);
    snprintf(bad_url, sizeof bad_url, "file://%s/none", folder);
    snprintf(target, sizeof target, "%s/thing", folder);
    snprintf(part, sizeof part, "%s.part", target);
    cr_assert_eq(exo_file_write_atomic(source, bytes, SIZE, NULL), EXO_OK);
    exo_sha256(bytes, SIZE, sha);
}

static void
teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(fetch, .init = setup, .fini = teardown);

static void
expect_whole(void)
{
    char *got = NULL;
    size_t size = 0;
    cr_assert_eq(exo_file_read(target, SIZE, &got, &size, NULL), EXO_OK);
    cr_expect_eq(size, SIZE);
    cr_expect_eq(memcmp(got, bytes, SIZE), 0);
    cr_expect_neq(access(part, F_OK), 0);
    exo_free(got);
}

static uint64_t reported;

static void
note(void *context, const char *file, uint64_t got, uint64_t total)
{
    (void)context;
    cr_expect_str_eq(file, "thing");
    cr_expect_eq(total, SIZE);
    reported = got;
}

Test(fetch, a_file_is_fetched_once)
{
    const struct exo_data_file file = {"thing", {bad_url, url}, sha, SIZE};
    exo_err err = {0};
    cr_assert_eq(exo_fetch_file(&file, folder, note, NULL, &err), EXO_OK, "%s", err.text);
    expect_whole();
    cr_expect_eq(reported, SIZE);
    unlink(source);
    cr_expect_eq(exo_fetch_file(&file, folder, NULL, NULL, &err), EXO_OK,
                 "it is there: nothing is fetched");
}

Test(fetch, what_was_cut_is_resumed)
{
    const struct exo_data_file file = {"thing", {url}, sha, SIZE};
    exo_err err = {0};
    cr_assert_eq(exo_file_write_atomic(part, bytes, SIZE / 3, NULL), EXO_OK);
    memset(bytes, 'x', SIZE / 3); /* a resumed fetch does not read the source's beginning */
    cr_assert_eq(exo_file_write_atomic(source, bytes, SIZE, NULL), EXO_OK);
    for (int i = 0; i < SIZE / 3; i++)
        bytes[i] = (char)(i * 31 >> 2);
    cr_assert_eq(exo_fetch_file(&file, folder, NULL, NULL, &err), EXO_OK, "%s", err.text);
    expect_whole();
}

Test(fetch, a_damaged_file_is_refused)
{
    const struct exo_data_file file = {"thing", {url}, sha, SIZE};
    exo_err err = {0};
    bytes[500] ^= 1;
    cr_assert_eq(exo_file_write_atomic(source, bytes, SIZE, NULL), EXO_OK);
    cr_expect_eq(exo_fetch_file(&file, folder, NULL, NULL, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "SHA-256") && strstr(err.text, url), "%s", err.text);
    cr_expect_neq(access(target, F_OK), 0);
    cr_expect_neq(access(part, F_OK), 0, "there is nothing to resume");
}

Test(fetch, without_a_source_the_message_says_what_to_do)
{
    const struct exo_data_file file = {"thing", {bad_url}, sha, SIZE};
    exo_err err = {0};
    cr_expect_eq(exo_fetch_file(&file, folder, NULL, NULL, &err), EXO_IO);
    cr_expect(strstr(err.text, bad_url) && strstr(err.text, folder) && strstr(err.text, "by hand"),
              "%s", err.text);
    cr_expect_eq(exo_data_fetch("no_such", NULL, NULL, &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "mnist"), "%s", err.text);
}

/* Downloaded bytes are appended only to the part file: not through a symbolic link, and not to a
 * file with a second name or to a FIFO. */
Test(fetch, appends_to_nothing_else)
{
    const struct exo_data_file file = {"thing", {url}, sha, SIZE};
    char other[128];
    exo_err err = {0};
    struct stat info;
    snprintf(other, sizeof other, "%s/other", folder);
    cr_assert_eq(exo_file_write_atomic(other, "mine", 4, NULL), EXO_OK);
    for (int how = 0; how < 3; how++) {
        cr_assert_eq(how == 0   ? symlink(other, part)
                     : how == 1 ? link(other, part)
                                : mkfifo(part, 0600),
                     0);
        cr_expect_eq(exo_fetch_file(&file, folder, NULL, NULL, &err), EXO_IO);
        cr_expect(strstr(err.text, part) && strstr(err.text, "remove it"), "%s", err.text);
        cr_expect(stat(other, &info) == 0 && info.st_size == 4);
        cr_assert_eq(unlink(part), 0);
    }
    cr_assert_eq(exo_fetch_file(&file, folder, NULL, NULL, &err), EXO_OK, "%s", err.text);
    expect_whole();
}
