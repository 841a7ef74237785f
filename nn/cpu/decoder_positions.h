/* Tables of positions: rotary angles (Su et al., 2021) and ALiBi's slopes (Press et al., 2021). Both
 * attentions, that of a pass and that of generation, read these tables. No state. Read next:
 * decoder_positions.c. */
#ifndef EXO_CPU_DECODER_POSITIONS_H
#define EXO_CPU_DECODER_POSITIONS_H

#include <stddef.h>

/* turns (positions, 2, turned / 2): cosines, then sines, of the angles t f_i of position t, where
 * f_i = theta^(-2 i / turned), multiplied by factors[i] unless factors is NULL. Frequencies and
 * angles are rounded to fp32, as in the models' own code, which they were trained with. */
void exo_rotary_table(double theta, size_t turned, const float *factors, size_t positions,
                      float *turns);
/* slopes (heads), as in BLOOM: 2^(-8 i / n), i = 1..n, where n is the largest power of two that is
 * at most `heads`. The remaining heads have the slopes of 2 n heads with i = 1, 3, 5, ... */
void exo_alibi_slopes(size_t heads, float *slopes);

#endif
