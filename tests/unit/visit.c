/* Visits of programs to clusters. Read next: runtime/programs/where.h. */
#include "programs/where.h"

#include <dirent.h>

#include <criterion/criterion.h>

#include "support/eventually.h"
#include "support/temp.h"

static int
count_threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    cr_assert_not_null(dir);
    for (const struct dirent *e; (e = readdir(dir));)
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

Test(visit, without_a_head_leaves_no_thread, .timeout = 120)
{
    char folder[64];
    temp_folder(folder, sizeof folder);
    const struct exo_where where = {.folder = folder, .timeout = "20ms"};
    int before = count_threads();
    exo_visit visit = {0};
    exo_err err = {0};
    cr_expect_eq(exo_visit_open(&visit, &where, NULL, &err), EXO_TIMEOUT, "%s", err.text);
    exo_visit_close(&visit);
    EVENTUALLY(count_threads() == before);
    temp_remove(folder);
}
