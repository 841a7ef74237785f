/* Islands: the groups of nodes that meet in a round (exogym/strategy.h). No state: every node
 * computes the same groups. */
#include <exogym/strategy.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/rng.h>

static int
compare_ranks(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

uint32_t
exo_island(uint64_t seed, uint64_t round, uint32_t num_nodes, uint32_t island_size, uint32_t rank,
           uint32_t *out)
{
    exo_rng rng;
    uint32_t at = 0;
    assert(rank < num_nodes && island_size > 0);
    exo_rng_init(&rng, seed, EXO_RNG_ISLAND, 0, round);
    exo_rng_permutation(&rng, out, num_nodes);
    while (out[at] != rank)
        at++;
    uint32_t first = at - at % island_size, rest = num_nodes - first;
    uint32_t count = rest < island_size ? rest : island_size;
    memmove(out, out + first, count * sizeof *out);
    qsort(out, count, sizeof *out, compare_ranks);
    return count;
}
