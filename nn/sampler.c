/* The shuffling sampler: which samples a node sees, as a pure function of its position. One thread. */
#include <exogym/data.h>

#include <exogym/memory.h>

exo_status
exo_sampler_init(exo_sampler *sampler, size_t length, uint32_t num_nodes, uint32_t rank, bool shuffle, uint64_t seed,
                 exo_err *err)
{
    *sampler = (exo_sampler){0};
    if (num_nodes < 1 || rank >= num_nodes)
        return exo_fail(err, EXO_INVAL, "node %u is not one of %u", rank, num_nodes);
    if (length < num_nodes || length > UINT32_MAX)
        return exo_fail(err, EXO_INVAL, "a data set of %zu samples cannot be shared out to %u nodes", length,
                        num_nodes);
    *sampler = (exo_sampler){
        .length = length, .num_nodes = num_nodes, .rank = rank, .shuffle = shuffle, .seed = seed, .epoch = UINT64_MAX};
    sampler->order = exo_calloc(length / num_nodes, sizeof *sampler->order);
    sampler->scratch = exo_calloc(length, sizeof *sampler->scratch);
    if (sampler->order && sampler->scratch)
        return EXO_OK;
    exo_sampler_release(sampler);
    return exo_fail(err, EXO_NOMEM, "no memory for the order of %zu samples", length);
}

void
exo_sampler_release(exo_sampler *sampler)
{
    exo_free(sampler->order);
    exo_free(sampler->scratch);
    *sampler = (exo_sampler){0};
}

size_t
exo_sampler_share(const exo_sampler *sampler)
{
    return sampler->length / sampler->num_nodes;
}

/* Every num_nodes-th sample of the epoch's order, from the node's own rank on. */
static void
begin_epoch(exo_sampler *s, uint64_t epoch)
{
    s->epoch = epoch;
    if (s->shuffle) {
        exo_rng rng;
        exo_rng_init(&rng, s->seed, EXO_RNG_SHUFFLE, 0, epoch);
        exo_rng_permutation(&rng, s->scratch, (uint32_t)s->length);
    }
    for (size_t i = 0; i < exo_sampler_share(s); i++) {
        size_t at = i * s->num_nodes + s->rank;
        s->order[i] = s->shuffle ? s->scratch[at] : (uint32_t)at;
    }
}

size_t
exo_sampler_at(exo_sampler *sampler, uint64_t position)
{
    size_t share = exo_sampler_share(sampler);
    if (position / share != sampler->epoch)
        begin_epoch(sampler, position / share);
    return sampler->order[position % share];
}
