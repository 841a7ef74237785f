/* Two lives of an actor with one folder: the earlier one was stopped, is taken for dead, and goes on.
 * Each test has a temporary folder. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/table.h"
#include "experience/checkpoints.h"

static char folder[64], path[128];
static exo_err err;

static void
make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/exogym-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/steps_sft_0.csv", folder);
}

static void
remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(table, .init = make_folder, .fini = remove_folder);

static void
expect_lines(const char *lines)
{
    char *text = NULL;
    size_t size = 0;
    cr_assert_eq(exo_file_read(path, 1 << 16, &text, &size, &err), EXO_OK, "%s", err.text);
    cr_expect_str_eq(text, lines);
    free(text);
}

static void
write_line(exo_table *t, const char *line)
{
    fprintf(t->stream, "%s\n", line);
    cr_expect_eq(exo_table_push(t, &err), EXO_OK, "%s", err.text);
}

Test(table, lines_of_an_earlier_life_do_not_reach_the_file)
{
    exo_table earlier, later;
    uint64_t length = 0;
    cr_assert_eq(exo_table_open(&earlier, path, "step", 0, &err), EXO_OK, "%s", err.text);
    write_line(&earlier, "1");
    cr_expect_eq(exo_table_flush(&earlier, &length, &err), EXO_OK);
    cr_expect_eq(length, 7);
    write_line(&earlier, "2");
    cr_expect_eq(exo_table_check(&earlier, &err), EXO_OK, "%s", err.text);

    cr_assert_eq(exo_table_open(&later, path, "step", length, &err), EXO_OK, "%s", err.text);
    expect_lines("step\n1\n");
    write_line(&earlier, "3");
    write_line(&later, "2");
    write_line(&earlier, "4");
    expect_lines("step\n1\n2\n");
    cr_expect_eq(exo_table_check(&earlier, &err), EXO_FAILED);
    cr_expect(strstr(err.text, "taken for dead"), "%s", err.text);
    cr_expect_eq(exo_table_check(&later, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_table_flush(&later, &length, &err), EXO_OK);
    cr_expect_eq(length, 9);
    exo_table_close(&earlier);
    exo_table_close(&later);
}

Test(table, is_as_it_was_if_it_cannot_be_opened)
{
    exo_table table, again;
    cr_expect_eq(exo_table_open(&again, path, "step", 5, &err), EXO_NOT_FOUND);
    cr_assert_eq(exo_table_open(&table, path, "step", 0, &err), EXO_OK, "%s", err.text);
    write_line(&table, "1");
    cr_expect_eq(exo_table_open(&again, path, "step", 8, &err), EXO_DAMAGED);
    cr_expect(strstr(err.text, "7 bytes are left of 8"), "%s", err.text);
    expect_lines("step\n1\n");
    cr_expect_eq(exo_table_check(&table, &err), EXO_OK, "%s", err.text);
    exo_table_close(&table);
    exo_table_close(&again);
    cr_expect_eq(rmdir(folder), -1);
    cr_expect_eq(unlink(path), 0);
    cr_expect_eq(rmdir(folder), 0, "a temporary file is left");
    cr_assert_eq(exo_folder_make(folder, &err), EXO_OK);
}

static exo_status
save(const exo_checkpoints *c, const exo_table *table, uint64_t version)
{
    uint64_t figure = version;
    exo_state *state = NULL;
    cr_assert_eq(exo_state_new(&state, &err), EXO_OK);
    exo_state_add_u64(state, "figure", &figure);
    exo_status st = exo_checkpoints_save(c, table, version, state, &err);
    exo_state_free(&state);
    return st;
}

Test(table, an_earlier_life_writes_no_checkpoint)
{
    exo_checkpoints lives[2] = {{.folder = folder, .actor = "sft_0", .size = 1}};
    exo_table earlier, later;
    uint64_t version = 0;
    lives[1] = lives[0];
    lives[1].life = 1;
    cr_assert_eq(exo_table_open(&earlier, path, "step", 0, &err), EXO_OK);
    cr_expect_eq(save(&lives[0], &earlier, 4), EXO_OK, "%s", err.text);
    cr_expect_eq(save(&lives[0], &earlier, 6), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_table_open(&later, path, "step", 0, &err), EXO_OK);
    cr_assert_eq(exo_checkpoints_remove_after(&lives[1], 4, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(save(&lives[0], &earlier, 7), EXO_FAILED);
    cr_expect_eq(exo_checkpoints_agree(&lives[1], &version, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(version, 4);
    cr_expect_eq(save(&lives[1], &later, 5), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_checkpoints_agree(&lives[1], &version, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(version, 5);
    exo_table_close(&earlier);
    exo_table_close(&later);
}
