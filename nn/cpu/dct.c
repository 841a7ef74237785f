/* The DCT of chunks of a matrix, the largest coefficients of chunks, and the mean of those that
 * nodes have sent. A piece has whole chunks, which do not depend on each other. No state. Read next:
 * nn/device/compress_args.h. */
#include "nn/cpu/cpu_device.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/pieces.h"

enum {
    MOST = EXO_DCT_MOST,
    PIECE = 1 << 14 /* elements */
};

/* The chunks of a piece. */
static size_t
chunks_of_piece(size_t size)
{
    return size < PIECE ? PIECE / size : 1;
}

/* --- DCT -------------------------------------------------------------------------------------- */

struct dct {
    const exo_dct_args *k;
    float left[MOST * MOST], right[MOST * MOST]; /* of the chunk's rows, and of its columns */
};

/* Writes the matrix (n, n) of the transform, or the transposed one. A cosine that is 0 is exactly
 * 0, so that a value which is 0 stays 0. */
static void
make_basis(float *out, size_t n, bool transposed)
{
    double cosines[4 * MOST];
    for (size_t m = 0; m < 4 * n; m++)
        cosines[m] =
            m == n || m == 3 * n ? 0 : cos(3.14159265358979323846 * (double)m / (2 * (double)n));
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < n; i++)
            out[transposed ? i * n + f : f * n + i] =
                (float)(cosines[(2 * i + 1) * f % (4 * n)] * sqrt((f ? 2 : 1) / (double)n));
}

/* y (rows, cols) = a (rows, inner) x (inner, cols), with distances `x_step` and `y_step` of
 * rows. */
static void
multiply(const float *restrict a, const float *restrict x, float *restrict y, size_t rows,
         size_t inner, size_t cols, size_t x_step, size_t y_step)
{
    for (size_t i = 0; i < rows; i++) {
        float *out = y + i * y_step;
        memset(out, 0, cols * sizeof *out);
        for (size_t l = 0; l < inner; l++) {
            const float factor = a[i * inner + l], *in = x + l * x_step;
            for (size_t j = 0; j < cols; j++)
                out[j] += factor * in[j];
        }
    }
}

static void
dct_piece(void *context, size_t piece)
{
    const struct dct *d = context;
    const exo_dct_args *k = d->k;
    const size_t h = k->chunk_rows, w = k->chunk_cols, across = k->cols / w,
                 chunks = k->rows / h * across, first = piece * chunks_of_piece(h * w);
    float half[MOST * MOST];
    for (size_t c = first; c < chunks && c < first + chunks_of_piece(h * w); c++) {
        const size_t in_matrix = c / across * h * k->cols + c % across * w;
        const float *x = k->x + (k->inverse ? c * h * w : in_matrix);
        float *y = k->y + (k->inverse ? in_matrix : c * h * w);
        multiply(d->left, x, half, h, h, w, k->inverse ? w : k->cols, w);
        multiply(half, d->right, y, h, w, w, w, k->inverse ? k->cols : w);
    }
}

exo_status
exo_cpu_dct(exo_device *device, const exo_dct_args *k, exo_err *err)
{
    struct dct d;
    const size_t size = k->chunk_rows * k->chunk_cols;
    (void)device;
    (void)err;
    if (k->rows * k->cols == 0)
        return EXO_OK;
    d.k = k;
    make_basis(d.left, k->chunk_rows, k->inverse);
    make_basis(d.right, k->chunk_cols, !k->inverse);
    exo_parallel_for(exo_pieces(k->rows * k->cols / size, chunks_of_piece(size)), dct_piece, &d);
    return EXO_OK;
}

/* --- The largest coefficients ----------------------------------------------------------------- */

/* The order of magnitudes as that of integers; a NaN is above infinity. */
static uint32_t
magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffff;
    return bits > 0x7f800000 ? 0x7fffffff : bits;
}

/* The k-th largest magnitude of x (n), found byte by byte. *equal: how many of those equal to it
 * belong to the k largest. */
static uint32_t
find_threshold(const float *x, size_t n, size_t k, size_t *equal)
{
    uint32_t found = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t counts[256] = {0};
        uint32_t digit = 255;
        for (size_t i = 0; i < n; i++)
            if ((magnitude(x[i]) & known) == found)
                counts[magnitude(x[i]) >> shift & 255]++;
        while (counts[digit] < k)
            k -= counts[digit--];
        found |= digit << shift;
        known |= (uint32_t)255 << shift;
    }
    *equal = k;
    return found;
}

static void
top_k_piece(void *args, size_t piece)
{
    const exo_top_k_args *k = args;
    const size_t first = piece * chunks_of_piece(k->size);
    for (size_t c = first; c < k->chunks && c < first + chunks_of_piece(k->size); c++) {
        const float *x = k->x + c * k->size;
        float *values = k->values + c * k->k;
        uint16_t *index = k->index + c * k->k;
        size_t equal, taken = 0;
        const uint32_t threshold = find_threshold(x, k->size, k->k, &equal);
        for (size_t i = 0; taken < k->k; i++) {
            const uint32_t m = magnitude(x[i]);
            if (m < threshold || (m == threshold && equal == 0))
                continue;
            equal -= m == threshold;
            values[taken] = x[i];
            index[taken++] = (uint16_t)i;
        }
    }
}

exo_status
exo_cpu_top_k(exo_device *device, const exo_top_k_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(exo_pieces(k->chunks, chunks_of_piece(k->size)), top_k_piece,
                     (void *)(uintptr_t)k);
    return EXO_OK;
}

/* --- Their mean ------------------------------------------------------------------------------- */

static void
mean_of_chunk(const exo_sent_mean_args *k, size_t chunk)
{
    uint32_t senders[MOST * MOST];
    float *y = k->y + chunk * k->size;
    memset(y, 0, k->size * sizeof *y);
    memset(senders, 0, k->size * sizeof *senders);
    for (size_t s = 0; s < k->senders; s++) {
        const float *values = k->values + s * (k->step / sizeof *values) + chunk * k->k;
        const uint16_t *index = k->index + s * (k->step / sizeof *index) + chunk * k->k;
        for (size_t j = 0; j < k->k; j++)
            if (index[j] < k->size) {
                y[index[j]] += values[j];
                senders[index[j]]++;
            }
    }
    for (size_t i = 0; i < k->size; i++)
        y[i] = senders[i] ? y[i] / (float)senders[i] : 0;
}

static void
sent_mean_piece(void *args, size_t piece)
{
    const exo_sent_mean_args *k = args;
    const size_t first = piece * chunks_of_piece(k->size);
    for (size_t c = first; c < k->chunks && c < first + chunks_of_piece(k->size); c++)
        mean_of_chunk(k, c);
}

exo_status
exo_cpu_sent_mean(exo_device *device, const exo_sent_mean_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(exo_pieces(k->chunks, chunks_of_piece(k->size)), sent_mean_piece,
                     (void *)(uintptr_t)k);
    return EXO_OK;
}
