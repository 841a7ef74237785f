/* Codecs, arrays and both ends of a stream, for tests with Criterion. An error in a helper fails
 * the test. */
#ifndef EXO_TEST_CODECS_H
#define EXO_TEST_CODECS_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/codec.h>

enum {
    CODEC_CHECK = 4,      /* bytes at the end of each encoding */
    CODEC_LARGE = 300007, /* several pieces of each loop, the last one shorter */
    CODEC_SIZES = 18,
    CODEC_CHAINS = 12
};

/* Lengths around each limit of a block. The last and largest is CODEC_LARGE. */
extern const size_t codec_sizes[CODEC_SIZES];
/* Texts of codecs that cover each kind of selection, values and lossless compression. */
extern const char *const codec_chains[CODEC_CHAINS];

/* Parses a codec. The caller frees it. */
exo_codec *codec_of(const char *text);
/* Makes gradients: normal numbers, some zeros, and a few of other magnitudes. The caller frees
 * them. */
float *codec_noise(size_t n, uint64_t seed);
/* Encodes. Expects that the size is within exo_codec_bound, and equals exo_codec_size if that is
 * known. The caller frees the bytes. */
uint8_t *codec_encode(exo_codec *codec, const exo_codec_place *place, const float *x, size_t n,
                      size_t *size);
void codec_decode(exo_codec *codec, const exo_codec_place *place, const uint8_t *bytes, size_t size,
                  float *y, size_t n);
/* Encodes and decodes x with a new codec. The caller frees the result. */
float *codec_through(const char *text, const float *x, size_t n);
/* Expects equal values; NaN equals NaN, and zeros of both signs are equal. */
void codec_expect_same(const float *got, const float *want, size_t n, const char *what);
uint32_t codec_bits(float x);

#endif
