/* Codecs, arrays and both ends of a stream, for tests with Criterion. What fails in a helper fails
 * the test. */
#ifndef EXO_TEST_CODECS_H
#define EXO_TEST_CODECS_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/codec.h>

enum {
    CODEC_CHECK = 4,      /* bytes at the end of every encoding */
    CODEC_LARGE = 300007, /* several pieces of every loop, the last one short */
    CODEC_SIZES = 18,
    CODEC_CHAINS = 11
};

/* Lengths about every border of a block, and CODEC_LARGE, the last and largest. */
extern const size_t codec_sizes[CODEC_SIZES];
/* Texts of codecs with each kind of selection, values and lossless ends. */
extern const char *const codec_chains[CODEC_CHAINS];

/* The codec of a text; the caller frees it. */
exo_codec *codec_of(const char *text);
/* Gradients: normal, some of them zero, a few of other sizes. The caller frees them. */
float *codec_noise(size_t n, uint64_t seed);
/* Encodes, into no more than exo_codec_bound and just exo_codec_size where there is one; the caller
 * frees. */
uint8_t *codec_encode(exo_codec *codec, const exo_codec_place *place, const float *x, size_t n,
                      size_t *size);
void codec_decode(exo_codec *codec, const exo_codec_place *place, const uint8_t *bytes, size_t size,
                  float *y, size_t n);
/* What is left of x at the other end of a stream of this codec; the caller frees. */
float *codec_through(const char *text, const float *x, size_t n);
/* Equal to the bit; NaN is equal to NaN, and zeros of either sign are. */
void codec_expect_same(const float *got, const float *want, size_t n, const char *what);
uint32_t codec_bits(float x);

#endif
