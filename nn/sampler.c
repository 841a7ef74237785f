/* The shuffling sampler: the samples that a node sees, as a pure function of the position. A
 * sampler belongs to one thread.
 *
 * Up to EXO_SAMPLER_TABLE samples, the order of an epoch is a table, a uniform permutation. For
 * more, such as windows over billions of tokens, it is a keyed bijection, which is computed sample
 * by sample and needs no memory: a Feistel network over the next power of four with Philox as its
 * round function, repeated until the result is a sample (cycle walking: Black & Rogaway, 2002,
 * "Ciphers with arbitrary finite domains"). Read next: loader.c. */
#include <exogym/data.h>

#include <exogym/memory.h>

exo_status
exo_sampler_init(exo_sampler *sampler, size_t length, uint32_t num_nodes, uint32_t rank,
                 bool shuffle, uint64_t seed, exo_err *err)
{
    *sampler = (exo_sampler){0};
    if (num_nodes < 1 || rank >= num_nodes)
        return exo_fail(err, EXO_INVAL, "node %u is not one of %u", rank, num_nodes);
    if (length < num_nodes)
        return exo_fail(err, EXO_INVAL,
                        "a data set of %zu sample%s cannot be shared out to %u nodes", length,
                        length == 1 ? "" : "s", num_nodes);
    *sampler = (exo_sampler){.length = length,
                             .num_nodes = num_nodes,
                             .rank = rank,
                             .shuffle = shuffle,
                             .seed = seed,
                             .epoch = UINT64_MAX};
    if (!shuffle || length > EXO_SAMPLER_TABLE)
        return EXO_OK;
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

/* The node's samples are every num_nodes-th of the epoch's order, from the node's rank on. */
static void
fill_table(exo_sampler *s, uint64_t epoch)
{
    exo_rng rng;
    exo_rng_init(&rng, s->seed, EXO_RNG_SHUFFLE, 0, epoch);
    exo_rng_permutation(&rng, s->scratch, (uint32_t)s->length);
    for (size_t i = 0; i < exo_sampler_share(s); i++)
        s->order[i] = s->scratch[i * s->num_nodes + s->rank];
}

/* Keys the rounds of the network. The table draws from the stream of node 0, the rounds from those
 * of nodes 1 and up. */
static void
key_rounds(exo_sampler *s, exo_purpose purpose, uint64_t epoch)
{
    s->half_bits = 1;
    while (s->half_bits < 32 && (s->length - 1) >> (2 * s->half_bits) != 0)
        s->half_bits++;
    for (uint32_t r = 0; r < EXO_SAMPLER_ROUNDS; r++)
        exo_rng_init(&s->rounds[r], s->seed, purpose, 1 + r, epoch);
}

/* The sample at place `at` of the epoch's order. The network's domain is less than four times as
 * large as the set, so on average it takes fewer than four walks. */
static size_t
permuted(const exo_sampler *s, size_t at)
{
    const uint32_t mask = (uint32_t)(UINT32_MAX >> (32 - s->half_bits));
    do {
        uint32_t left = (uint32_t)(at >> s->half_bits), right = (uint32_t)at & mask;
        for (int r = 0; r < EXO_SAMPLER_ROUNDS; r++) {
            uint32_t noise[4];
            exo_rng_block(&s->rounds[r], right, noise);
            uint32_t mixed = left ^ (noise[0] & mask);
            left = right;
            right = mixed;
        }
        at = (size_t)left << s->half_bits | right;
    } while (at >= s->length);
    return at;
}

size_t
exo_sampler_at(exo_sampler *sampler, uint64_t position)
{
    exo_sampler *s = sampler;
    size_t share = exo_sampler_share(s), i = (size_t)(position % share);
    uint64_t epoch = position / share;
    if (s->shuffle && epoch != s->epoch) {
        s->epoch = epoch;
        if (s->order)
            fill_table(s, epoch);
        else
            key_rounds(s, EXO_RNG_SHUFFLE, epoch);
    }
    if (s->order)
        return s->order[i];
    size_t at = i * s->num_nodes + s->rank;
    return s->shuffle ? permuted(s, at) : at;
}

/* The first `count` of a table of all samples. */
static exo_status
first_of_table(size_t length, size_t count, uint64_t seed, size_t *out, exo_err *err)
{
    exo_rng rng;
    uint32_t *all = exo_calloc(length, sizeof *all);
    if (!all)
        return exo_fail(err, EXO_NOMEM, "no memory for the order of %zu samples", length);
    exo_rng_init(&rng, seed, EXO_RNG_EVAL, 0, 0);
    exo_rng_permutation(&rng, all, (uint32_t)length);
    for (size_t i = 0; i < count; i++)
        out[i] = all[i];
    exo_free(all);
    return EXO_OK;
}

exo_status
exo_eval_order(size_t length, size_t count, uint64_t seed, size_t **out, exo_err *err)
{
    exo_sampler sampler = {.length = length, .seed = seed};
    if (count > length)
        return exo_fail(err, EXO_INVAL, "%zu samples are not in a data set of %zu", count, length);
    size_t *order = exo_calloc(count ? count : 1, sizeof *order);
    if (!order)
        return exo_fail(err, EXO_NOMEM, "no memory for the order of %zu samples", count);
    exo_status st = EXO_OK;
    if (length <= EXO_SAMPLER_TABLE) {
        st = first_of_table(length, count, seed, order, err);
    } else {
        key_rounds(&sampler, EXO_RNG_EVAL, 0);
        for (size_t i = 0; i < count; i++)
            order[i] = permuted(&sampler, i);
    }
    if (st == EXO_OK)
        *out = order;
    else
        exo_free(order);
    return st;
}
