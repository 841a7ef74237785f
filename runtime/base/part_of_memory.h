/* A bound of memory as the environment has it: a part up to 1, such as 0.5, or a size, such as 20GiB. For C and
 * C++. No state. */
#ifndef EXO_BASE_PART_OF_MEMORY_H
#define EXO_BASE_PART_OF_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/size_unit.h"

#define EXO_PART_EXPECTED "a part of the GPU's memory up to 1, as 0.5, or a size, as 20GiB"

/* Reads a bound. whole: the bytes of all memory. False: it is none. */
static inline bool
exo_part_of_memory(const char *text, uint64_t whole, uint64_t *out)
{
    char *end = NULL;
    const double number = exo_c_strtod(text, &end);
    const bool part = end > text && !*end && number <= 1;
    const double bytes = number * (part ? (double)whole : exo_size_unit(end + strspn(end, " ")));
    if (text + strspn(text, "0123456789.") == end && number > 0 && bytes >= 1 && bytes < 1e18) {
        *out = (uint64_t)bytes;
        return true;
    }
    return false;
}

#endif
