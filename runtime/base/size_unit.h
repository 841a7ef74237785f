/* Units of sizes, as users write them: 5GB, 500 MiB. For C and C++. No state. */
#ifndef EXO_BASE_SIZE_UNIT_H
#define EXO_BASE_SIZE_UNIT_H

#include <stddef.h>
#include <string.h>

#define EXO_SIZE_UNITS "B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"

/* The bytes of a unit; 0: there is no such unit. */
static inline double
exo_size_unit(const char *name)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},    {"TB", 1e12},
                 {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(name, units[i].name) == 0)
            return units[i].bytes;
    return 0;
}

#endif
