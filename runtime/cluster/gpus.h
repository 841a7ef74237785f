/* The GPUs of a worker, and what is free of each: `gpus` is a resource whose parts have places. Owner:
 * the head. Pure functions of memory. */
#ifndef EXO_CLUSTER_GPUS_H
#define EXO_CLUSTER_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/actor.h>

typedef struct exo_gpus {
    double *free; /* (count) owned. The last one of a worker that offers 1.5 has 0.5 */
    size_t count;
} exo_gpus;

/* total: 0 to EXO_MAX_GPUS. False: no memory. The caller frees `free` with exo_free. */
bool exo_gpus_init(exo_gpus *out, double total);
/* Whether `amount` is free: of one GPU, or as many whole ones. */
bool exo_gpus_have(const exo_gpus *gpus, double amount);
/* Takes `amount`, and returns a bit for each GPU that it comes from: of those with room for a part, the
 * one with the least, so that others stay whole. The caller has asked exo_gpus_have. */
uint64_t exo_gpus_take(exo_gpus *gpus, double amount);
/* Takes `amount` of exactly those GPUs, even if too little is free. Returns those that exist. */
uint64_t exo_gpus_take_these(exo_gpus *gpus, double amount, uint64_t these);
/* Gives back what either of the two has taken, with the bits that it returned. */
void exo_gpus_give(exo_gpus *gpus, double amount, uint64_t these);

#endif
