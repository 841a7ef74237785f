/* Two lives of an actor with one folder: the earlier one was stopped, is taken for dead, and goes on.
 * Each test has a temporary folder. */
#include <criterion/criterion.h>

#include <pthread.h>
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

Test(table, a_checkpoint_of_another_run_is_passed_over)
{
    const uint64_t earlier = UINT64_C(7) << 16, present = UINT64_C(8) << 16;
    exo_checkpoints c = {.folder = folder, .actor = "sft_0", .size = 1, .run = present};
    exo_table table;
    uint64_t version = 0;
    cr_assert_eq(exo_table_open(&table, path, "step", 0, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(save(&c, &table, 4), EXO_OK, "%s", err.text);
    for (int none = 0; none < 2; none++) { /* also one that was written in one process */
        c.run = none ? 0 : earlier;
        cr_expect_eq(save(&c, &table, 9), EXO_OK, "%s", err.text);
        c.run = present + 1; /* it was resumed */
        cr_expect_eq(exo_checkpoints_agree(&c, &version, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(version, 4, "version %llu", (unsigned long long)version);
    }
    c.run = 0;
    cr_expect_eq(exo_checkpoints_agree(&c, &version, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(version, 9);
    exo_table_close(&table);
}

/* A trainer of two, which agree on a checkpoint. */
struct trainer {
    exo_checkpoints files;
    exo_table table;
    uint64_t version;
    exo_status status;
};

static void *
agree(void *context)
{
    struct trainer *t = context;
    t->status = exo_checkpoints_agree(&t->files, &t->version, NULL);
    return NULL;
}

static uint64_t
agreed(struct trainer both[2])
{
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, agree, &both[1]), 0);
    agree(&both[0]);
    pthread_join(other, NULL);
    cr_expect_eq(both[0].status, EXO_OK);
    cr_expect_eq(both[1].status, EXO_OK);
    cr_expect_eq(both[0].version, both[1].version);
    return both[0].version;
}

static void
save_in(struct trainer *t, uint32_t life, uint64_t version)
{
    t->files.life = life;
    cr_expect_eq(save(&t->files, &t->table, version), EXO_OK, "%s", err.text);
}

Test(table, trainers_go_on_from_one_life)
{
    exo_comm *comm = NULL;
    struct trainer both[2] = {0};
    cr_assert_eq(exo_comm_local(&comm, 2, exo_clock_real(), &err), EXO_OK, "%s", err.text);
    for (uint32_t i = 0; i < 2; i++) {
        static const char *const names[] = {"sft_0", "sft_1"};
        char file[128];
        both[i].files = (exo_checkpoints){
            .folder = folder, .actor = names[i], .rank = i, .size = 2, .run = UINT64_C(7) << 16};
        cr_assert_eq(exo_group_open(&both[i].files.group, comm, i, NULL, &err), EXO_OK);
        snprintf(file, sizeof file, "%s/steps_%s.csv", folder, names[i]);
        cr_assert_eq(exo_table_open(&both[i].table, file, "step", 0, &err), EXO_OK);
        save_in(&both[i], 0, 2);
        save_in(&both[i], 0, 4);
    }
    cr_expect_eq(agreed(both), 4);
    save_in(&both[1], 0, 6); /* the first one died before it wrote this */
    cr_expect_eq(agreed(both), 4);
    /* The first one was on another host in life 1, and its host of life 0 has what it had there. */
    save_in(&both[0], 0, 6);
    save_in(&both[1], 1, 4);
    save_in(&both[1], 1, 6);
    cr_expect_eq(agreed(both), 2);
    save_in(&both[1], 1, 2);
    cr_expect_eq(agreed(both), 0);
    for (uint32_t i = 0; i < 2; i++) {
        exo_table_close(&both[i].table);
        exo_group_close(&both[i].files.group);
    }
    exo_comm_drop(&comm);
}
