/* The GPUs of a worker: see gpus.h. No state of its own. Read next: directory.c, which takes them for
 * actors. */
#include "cluster/gpus.h"

#include <math.h>

#include <exogym/memory.h>

#define ROUNDING 1e-9

bool
exo_gpus_init(exo_gpus *out, double total)
{
    *out = (exo_gpus){.count = (size_t)ceil(total - ROUNDING)};
    out->free = exo_calloc(out->count + 1, sizeof *out->free);
    for (size_t g = 0; out->free && g < out->count; g++)
        out->free[g] = fmin(1, total - (double)g);
    return out->free != NULL;
}

bool
exo_gpus_have(const exo_gpus *gpus, double amount)
{
    const double of_each = fmin(amount, 1);
    double found = 0;
    for (size_t g = 0; g < gpus->count; g++)
        if (gpus->free[g] + ROUNDING >= of_each)
            found += of_each;
    return found + ROUNDING >= amount;
}

static uint64_t
take_one(exo_gpus *gpus, double part)
{
    size_t best = gpus->count;
    for (size_t g = 0; g < gpus->count; g++)
        if (gpus->free[g] + ROUNDING >= part &&
            (best == gpus->count || gpus->free[g] < gpus->free[best]))
            best = g;
    if (best == gpus->count)
        return 0;
    gpus->free[best] -= part;
    return UINT64_C(1) << best;
}

uint64_t
exo_gpus_take(exo_gpus *gpus, double amount)
{
    uint64_t taken = 0;
    for (double left = amount; left > ROUNDING; left -= 1)
        taken |= take_one(gpus, fmin(left, 1));
    return taken;
}

/* Adds `sign` times the amount to what is free of these, and returns those that exist. */
static uint64_t
add(exo_gpus *gpus, double amount, uint64_t these, double sign)
{
    uint64_t found = 0;
    for (size_t g = 0; g < gpus->count; g++)
        if (these >> g & 1) {
            gpus->free[g] += sign * fmin(amount, 1);
            found |= UINT64_C(1) << g;
        }
    return found;
}

uint64_t
exo_gpus_take_these(exo_gpus *gpus, double amount, uint64_t these)
{
    return add(gpus, amount, these, -1);
}

void
exo_gpus_give(exo_gpus *gpus, double amount, uint64_t these)
{
    add(gpus, amount, these, 1);
}
