/* Figures for people: see figures.h. */
#include "base/figures.h"

#include <stddef.h>
#include <stdio.h>

#include "base/c_locale.h"

const char *
exo_text_bytes(double bytes, char out[EXO_FIGURE])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    /* %.0f would write 999.5 as 1000 */
    for (; bytes >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1000;
    int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
    exo_c_snprintf(out, EXO_FIGURE, "%.*f %s", decimals, bytes, units[unit]);
    return out;
}
