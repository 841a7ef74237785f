/* The memory that a process may take: control groups of both versions, from folders like theirs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory_limits.h"

static char root[64], groups[80];

static void
write_text(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f, "%s", path);
    fputs(text, f);
    fclose(f);
}

static void
set_up(void)
{
    const char *folders[] = {"a", "a/b", "memory", "memory/c"};
    char path[256];
    snprintf(root, sizeof root, "/tmp/exogym-groups-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        cr_assert_eq(mkdir(path, 0755), 0);
    }
    snprintf(groups, sizeof groups, "%s/groups", root);
}

static void
tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    cr_expect_eq(system(command), 0);
}

static exo_memory_group
read_as(const char *lines)
{
    write_text("groups", lines);
    return exo_memory_group_read_in(groups, root);
}

TestSuite(memory_limits, .init = set_up, .fini = tear_down);

Test(memory_limits, the_least_limit_above_counts)
{
    write_text("a/memory.max", "5000\n");
    write_text("a/b/memory.max", "max\n");
    write_text("memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_text("memory/c/memory.limit_in_bytes", "3000\n");

    cr_expect_eq(read_as("0::/a/b\n").limit, 5000, "the group above has the limit");
    cr_expect_eq(read_as("5:cpu:/\n4:memory:/c\n0::/\n").limit, 3000, "version 1");
    cr_expect_eq(read_as("4:memory:/c\n0::/a/b\n").limit, 3000, "both");
    cr_expect_eq(read_as("4:memory:/not/seen/from/here\n").limit, 9223372036854771712u,
                 "a container's path");
    cr_expect_eq(exo_memory_group_read_in("/none", root).limit, UINT64_MAX);
}

Test(memory_limits, room_is_what_a_limit_has_left)
{
    cr_expect_eq(read_as("0::/a/b\n").room, UINT64_MAX);
    write_text("a/memory.max", "5000\n");
    cr_expect_eq(read_as("0::/a/b\n").room, 5000, "no use is known");
    write_text("a/memory.current", "4000\n");
    cr_expect_eq(read_as("0::/a/b\n").room, 1000);
    write_text("a/memory.stat", "anon 900\ninactive_file 700\nactive_file 20\n");
    cr_expect_eq(read_as("0::/a/b\n").room, 1720, "files in memory can be dropped");
    write_text("a/memory.current", "600\n");
    cr_expect_eq(read_as("0::/a/b\n").room, 5000, "read at another moment");
    write_text("a/memory.current", "4000\n");
    write_text("a/b/memory.max", "3000\n");
    write_text("a/b/memory.current", "3100\n");
    cr_expect_eq(read_as("0::/a/b\n").room, 0);
    cr_expect_eq(read_as("0::/a/b\n").limit, 3000);

    write_text("memory/c/memory.limit_in_bytes", "3000\n");
    write_text("memory/c/memory.usage_in_bytes", "2900\n");
    write_text("memory/c/memory.stat",
               "inactive_file 1\ntotal_inactive_file 50\ntotal_active_file 100\n");
    cr_expect_eq(read_as("4:memory:/c\n").room, 250, "version 1");
}

Test(memory_limits, kills_are_counted)
{
    cr_expect_eq(read_as("0::/a/b\n").oom_kills, -1);
    write_text("a/b/memory.events", "low 0\noom 4\noom_kill 3\n");
    write_text("a/memory.events", "oom_kill 9\n");
    cr_expect_eq(read_as("0::/a/b\n").oom_kills, 3, "the group's own");
    write_text("memory/c/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    cr_expect_eq(read_as("4:memory:/c\n0::/\n").oom_kills, 2, "version 1");
}

Test(memory_limits, this_process_can_get_something)
{
    cr_expect_gt(exo_memory_limit(), 0);
    cr_expect_gt(exo_free_memory(), 0);
    cr_expect_leq(exo_free_memory(), exo_memory_limit());
    cr_expect_leq(exo_memory_limit(),
                  (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

Test(memory_limits, only_what_is_free_can_be_expected)
{
    exo_err err = {0};
    cr_expect_eq(exo_memory_expect(UINT64_C(64) << 20, "small arrays", &err), EXO_OK, "%s",
                 err.text);
    cr_expect_eq(exo_memory_expect(UINT64_MAX, "all arrays", &err), EXO_NOMEM);
    cr_expect(strncmp(err.text, "all arrays take 18446744073.7 GB, and ", 38) == 0, "%s", err.text);
}
