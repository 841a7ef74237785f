/* The tokens of a member of a context-parallel group, and their positions. No state; any thread. Read next:
 * decoder_loss.c. */
#include "nn/models/decoder.h"
#include "nn/tape_impl.h"

/* The place in a sequence of `length` tokens of the t-th token of this member: it has the chunks rank and
 * 2 C - 1 - rank of 2 C. */
static size_t
place_of(const exo_decoder *d, size_t length, size_t t)
{
    const size_t chunks = 2 * (size_t)d->part.context, half = length / chunks;
    return (t < half ? d->part.member : chunks - 1 - d->part.member) * half + t % half;
}

exo_tensor *
exo_decoder_own_tokens(const exo_decoder *d, exo_tape *tape, const exo_tensor *tokens)
{
    const size_t samples = tokens->dims[0], length = tokens->dims[1];
    const size_t own = length / d->part.context, dims[2] = {samples, own};
    const int32_t *all = exo_tensor_host(tokens);
    int32_t *here = exo_tape_host_buffer(tape, samples * own * sizeof *here);
    if (!here)
        return NULL;
    for (size_t n = 0; n < samples; n++)
        for (size_t t = 0; t < own; t++)
            here[n * own + t] = all[n * length + place_of(d, length, t)];
    return exo_tape_input(tape, EXO_I32, 2, dims, here);
}

exo_tensor *
exo_decoder_own_positions(const exo_decoder *d, exo_tape *tape, size_t samples, size_t own)
{
    const size_t dims[2] = {samples, own}, length = own * d->part.context;
    int32_t *here = exo_tape_host_buffer(tape, samples * own * sizeof *here);
    if (!here)
        return NULL;
    for (size_t i = 0; i < samples * own; i++)
        here[i] = (int32_t)(place_of(d, length, i % own) + d->spec.position_offset);
    return exo_tape_input(tape, EXO_I32, 2, dims, here);
}
