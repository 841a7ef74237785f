/* Tables of positions: rotary angles (Su et al., 2021) and ALiBi's slopes (Press et al., 2021). No
 * state. Read next: decoder_positions.c. */
#ifndef EXO_CPU_DECODER_POSITIONS_H
#define EXO_CPU_DECODER_POSITIONS_H

#include <exogym/decoder.h>

/* cosine, sine (context, head_width / 2): of the angles t theta^(-2 i / head_width), t the
 * position. spec->rope_scaling changes the frequencies, the second factor. */
void exo_rotary_tables(const exo_decoder_spec *spec, size_t context, float *cosine, float *sine);
/* slopes (heads), as in BLOOM: 2^(-8 i / n), i = 1..n, where n is the largest power of two that is
 * at most `heads`. The remaining heads have the slopes of 2 n heads with i = 1, 3, 5, ... */
void exo_alibi_slopes(size_t heads, float *slopes);

#endif
