/* Which versions are of two builds. How a build gets its version: tests/cli/version.sh. */
#include <criterion/criterion.h>

#include "base/version.h"

Test(version, of_another_commit_is_another)
{
    static const struct {
        const char *a, *b;
        bool other;
    } rows[] = {{"0.1.0", "0.1.0", false},
                {"0.1.0", "0.2.0", true},
                {"0.1.0", "0.1.01", true},
                {"0.1.0-dev.aa", "0.1.0-dev.aa", false},
                {"0.1.0-dev.aa", "0.1.0-dev.ab", true},
                {"0.1.0-dev.aa", "0.1.0-dev.aa.changed", true},
                {"0.1.0-dev.aa", "0.2.0-dev.aa", true},
                {"0.1.0-dev.aa", "0.1.0", false}, /* a program, and one with the library */
                {"", "0.1.0", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect_eq(exo_version_is_other(rows[i].a, rows[i].b), rows[i].other, "row %zu", i);
        cr_expect_eq(exo_version_is_other(rows[i].b, rows[i].a), rows[i].other, "row %zu", i);
    }
}
