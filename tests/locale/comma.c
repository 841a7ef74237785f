/* A locale whose numbers have a decimal comma, as in much of Europe: a library for LD_PRELOAD that chooses it
 * before main, as a program does that calls setlocale. No system needs to have such a locale: this writes one,
 * for the time of the call that reads it.
 *
 *   LD_PRELOAD=build/dev/tests/comma.so build/dev/tests/test_unit_config_units
 *
 * No state. */
#include <locale.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The C library's file of the category LC_NUMERIC: places of six items, and the items. */
struct numeric {
    uint32_t magic, count, at[6];
    char point[2], thousands[2], grouping[4];
    uint32_t wide_point, wide_thousands;
    char charset[8];
};

static const struct numeric comma = {
    .magic = 0x20031115 ^ LC_NUMERIC,
    .count = 6,
    .at = {offsetof(struct numeric, point), offsetof(struct numeric, thousands),
           offsetof(struct numeric, grouping), offsetof(struct numeric, wide_point),
           offsetof(struct numeric, wide_thousands), offsetof(struct numeric, charset)},
    .point = ",",
    .thousands = ".",
    .grouping = "\3\3",
    .wide_point = (uint32_t)',',
    .wide_thousands = (uint32_t)'.',
    .charset = "UTF-8"};

__attribute__((constructor)) static void
choose(void)
{
    char folder[] = "/tmp/exo-comma-XXXXXX", locale[64], file[80], number[8];
    FILE *out = NULL;
    if (mkdtemp(folder)) {
        snprintf(locale, sizeof locale, "%s/comma", folder);
        snprintf(file, sizeof file, "%s/LC_NUMERIC", locale);
        if (mkdir(locale, 0700) == 0)
            out = fopen(file, "w");
    }
    if (out) {
        fwrite(&comma, sizeof comma, 1, out);
        fclose(out);
        setenv("LOCPATH", folder, 1);
        setlocale(LC_NUMERIC, "comma");
        unsetenv("LOCPATH");
        unlink(file);
        rmdir(locale);
        rmdir(folder);
    }
    snprintf(number, sizeof number, "%.1f", 0.5);
    if (strcmp(number, "0,5") == 0)
        return;
    fprintf(stderr, "comma.so: the C library did not take the locale\n");
    _exit(1);
}
