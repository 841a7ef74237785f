/* Tables of positions: rotary angles and ALiBi's slopes. No state. */
#ifndef EXO_GENERATE_POSITIONS_H
#define EXO_GENERATE_POSITIONS_H

#include <exogym/decoder.h>

/* cosine, sine (context, head_width / 2) of position t times theta^(-2 i / head_width), stretched as spec->rope_scaling says. */
void exo_rotary_tables(const exo_decoder_spec *spec, size_t context, float *cosine, float *sine);
/* Slopes of `heads` heads as BLOOM has them: 2^(-8 i / n), i = 1.. for the largest power of two n, then every second of those of 2 n. */
void exo_alibi_slopes(size_t heads, float *slopes);

#endif
