/* Random numbers: known answers of Philox4x32-10, independence of streams, and bounds. Each test
 * owns its generators. Read next: include/exogym/rng.h. */
#include <criterion/criterion.h>

#include <exogym/rng.h>

Test(rng, philox_known_answer)
{
    /* Random123's kat_vectors: counter 0, key 0. */
    exo_rng rng;
    exo_rng_init(&rng, 0, (exo_purpose)0, 0, 0);
    uint32_t out[4];
    exo_rng_block(&rng, 0, out);
    cr_expect_eq(out[0], 0x6627e8d5u);
    cr_expect_eq(out[1], 0xe169c58du);
    cr_expect_eq(out[2], 0xbc57ac4cu);
    cr_expect_eq(out[3], 0x9b00dbd8u);
}

Test(rng, streams_differ_by_every_part_of_the_key)
{
    exo_rng a, b;
    exo_rng_init(&a, 1, EXO_RNG_DROPOUT, 2, 3);
    uint32_t first = exo_rng_u32(&a);
    exo_rng_init(&b, 2, EXO_RNG_DROPOUT, 2, 3);
    cr_expect_neq(exo_rng_u32(&b), first);
    exo_rng_init(&b, 1, EXO_RNG_SHUFFLE, 2, 3);
    cr_expect_neq(exo_rng_u32(&b), first);
    exo_rng_init(&b, 1, EXO_RNG_DROPOUT, 1, 3);
    cr_expect_neq(exo_rng_u32(&b), first);
    exo_rng_init(&b, 1, EXO_RNG_DROPOUT, 2, 4);
    cr_expect_neq(exo_rng_u32(&b), first);
}

Test(rng, block_is_the_stream_in_random_access)
{
    exo_rng rng;
    exo_rng_init(&rng, 7, EXO_RNG_USER, 0, 0);
    exo_rng start = rng;
    for (uint32_t block = 0; block < 5; block++) {
        uint32_t out[4];
        exo_rng_block(&start, block, out);
        for (int i = 0; i < 4; i++)
            cr_expect_eq(exo_rng_u32(&rng), out[i]);
    }
}

Test(rng, permutation_holds_every_number_once)
{
    enum {
        N = 1000
    };
    uint32_t order[N];
    int seen[N] = {0};
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_SHUFFLE, 0, 0);
    exo_rng_permutation(&rng, order, N);
    for (int i = 0; i < N; i++) {
        cr_assert_lt(order[i], N);
        seen[order[i]]++;
    }
    for (int i = 0; i < N; i++)
        cr_expect_eq(seen[i], 1);
}

Test(rng, normal_has_mean_0_and_deviation_1)
{
    enum {
        N = 100000
    };
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_INIT, 0, 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        double x = (double)exo_rng_normal(&rng);
        sum += x;
        squares += x * x;
    }
    cr_expect_float_eq(sum / N, 0.0, 0.02);
    cr_expect_float_eq(squares / N, 1.0, 0.03);
}
