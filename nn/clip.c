/* Gradient clipping by the global norm. The buffer is cut into pieces by its length alone, and their sums are added in order:
 * the norm is the same to the bit with any number of threads. */
#include <exogym/optim.h>

#include <math.h>

#include "optim_kernels.h"
#include "parallel.h"

enum {
    MAX_PIECES = 64,
    MIN_PIECE = 1 << 14 /* elements: less is not worth another thread */
};

struct clip {
    float *grads;
    size_t numel;
    size_t piece; /* elements in all pieces but the last */
    float factor;
    double sums[MAX_PIECES];
};

static size_t
piece_length(const struct clip *clip, size_t index)
{
    size_t left = clip->numel - index * clip->piece;
    return left < clip->piece ? left : clip->piece;
}

static void
sum_piece(void *context, size_t index)
{
    struct clip *clip = context;
    clip->sums[index] = exo_kernel_sum_squares(piece_length(clip, index), clip->grads + index * clip->piece);
}

static void
scale_piece(void *context, size_t index)
{
    struct clip *clip = context;
    exo_kernel_scale(piece_length(clip, index), clip->grads + index * clip->piece, clip->factor);
}

float
exo_clip_grad_norm(float *grads, size_t numel, float max_norm)
{
    struct clip clip = {.grads = grads, .numel = numel, .piece = (numel + MAX_PIECES - 1) / MAX_PIECES};
    if (clip.piece < MIN_PIECE)
        clip.piece = MIN_PIECE;
    size_t pieces = (numel + clip.piece - 1) / clip.piece;

    exo_parallel_for(pieces, sum_piece, &clip);
    double sum = 0;
    for (size_t i = 0; i < pieces; i++)
        sum += clip.sums[i];
    float norm = (float)sqrt(sum);

    clip.factor = max_norm / (norm + 1e-6f);
    if (!(clip.factor >= 1.0f)) /* also where it is NaN, which then spreads */
        exo_parallel_for(pieces, scale_piece, &clip);
    return norm;
}
