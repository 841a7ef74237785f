/* The arrays of exogym/compress.h: each function checks types and counts, then asks the device for
 * one kernel. No state. Read next: nn/device/compress_args.h; low_rank.c. */
#include <exogym/compress.h>

#include <assert.h>

#include "nn/device/device_impl.h"

static size_t
chunks_of(size_t count, size_t chunk)
{
    assert(chunk > 0);
    return (count + chunk - 1) / chunk;
}

/* --- int8 ------------------------------------------------------------------------------------- */

void
exo_vec_largest(exo_array y, exo_array x, size_t chunk)
{
    assert(y.device == x.device && y.dtype == EXO_F32 && x.dtype == EXO_F32);
    assert(y.count == chunks_of(x.count, chunk));
    exo_device_run(y.device, largest, .count = x.count, .chunk = chunk, .y = y.data, .x = x.data);
}

/* The rows of `scales` for `count` elements. */
static size_t
rows_of(exo_array scales, size_t count, size_t chunk)
{
    const size_t chunks = chunks_of(count, chunk);
    assert(scales.dtype == EXO_F32 && (chunks == 0 || scales.count % chunks == 0));
    return chunks ? scales.count / chunks : 0;
}

void
exo_vec_quantize(exo_array y, exo_array x, exo_array scales, size_t chunk)
{
    assert(y.device == x.device && y.count == x.count && y.dtype == EXO_I8 && x.dtype == EXO_F32);
    exo_device_run(y.device, quantize, .count = x.count, .chunk = chunk,
                   .rows = rows_of(scales, x.count, chunk), .y = y.data, .x = x.data,
                   .scales = scales.data);
}

void
exo_vec_dequantize(exo_array y, exo_array x, exo_array scales, size_t chunk, float divisor)
{
    assert(y.device == x.device && x.dtype == EXO_I8 && y.dtype == EXO_F32);
    assert(y.count == 0 || x.count % y.count == 0);
    exo_device_run(y.device, dequantize, .count = y.count, .chunk = chunk,
                   .rows = rows_of(scales, y.count, chunk),
                   .senders = y.count ? x.count / y.count : 0, .y = y.data, .x = x.data,
                   .scales = scales.data, .divisor = divisor);
}

/* --- DCT -------------------------------------------------------------------------------------- */

static size_t
largest_divisor(size_t of, size_t most)
{
    size_t divisor = of < most ? of : most;
    while (divisor > 1 && of % divisor)
        divisor--;
    return divisor ? divisor : 1;
}

exo_dct
exo_dct_cut(size_t rows, size_t cols, size_t most)
{
    assert(most >= 1 && most <= EXO_DCT_MOST);
    return (exo_dct){.rows = rows,
                     .cols = cols,
                     .chunk_rows = largest_divisor(rows, most),
                     .chunk_cols = largest_divisor(cols, most)};
}

static void
run_dct(exo_array y, exo_array x, const exo_dct *s, bool inverse)
{
    assert(y.device == x.device && y.dtype == EXO_F32 && x.dtype == EXO_F32);
    assert(y.count == s->rows * s->cols && x.count == y.count);
    exo_device_run(y.device, dct, .rows = s->rows, .cols = s->cols, .chunk_rows = s->chunk_rows,
                   .chunk_cols = s->chunk_cols, .inverse = inverse, .y = y.data, .x = x.data);
}

void
exo_vec_dct(exo_array y, exo_array x, const exo_dct *shape)
{
    run_dct(y, x, shape, false);
}

void
exo_vec_dct_inverse(exo_array y, exo_array x, const exo_dct *shape)
{
    run_dct(y, x, shape, true);
}

/* The address of a byte of the first message. */
static void *
byte_of(const exo_sent *sent, size_t byte)
{
    return (char *)sent->messages.data + byte;
}

void
exo_vec_top_k(const exo_sent *sent, exo_array x)
{
    assert(x.dtype == EXO_F32 && x.device == sent->messages.device && x.count % sent->size == 0);
    exo_device_run(x.device, top_k, .chunks = x.count / sent->size, .size = sent->size,
                   .k = sent->k, .values = byte_of(sent, sent->values),
                   .index = byte_of(sent, sent->places), .x = x.data);
}

void
exo_vec_sent_mean(exo_array y, const exo_sent *sent)
{
    assert(y.dtype == EXO_F32 && y.device == sent->messages.device && y.count % sent->size == 0);
    exo_device_run(y.device, sent_mean, .chunks = y.count / sent->size, .size = sent->size,
                   .k = sent->k, .senders = sent->bytes ? sent->messages.count / sent->bytes : 0,
                   .step = sent->bytes, .y = y.data, .values = byte_of(sent, sent->values),
                   .index = byte_of(sent, sent->places));
}

/* --- Signs ------------------------------------------------------------------------------------ */

static size_t
messages_in(const exo_signs *s)
{
    assert(s->messages.dtype == EXO_U8 && s->chunk % 8 == 0 && s->bytes % sizeof(float) == 0);
    return s->bytes ? s->messages.count / s->bytes : 0;
}

void
exo_vec_sign_pack(const exo_signs *to, exo_array x)
{
    const size_t chunks = messages_in(to);
    char *first = to->messages.data;
    assert(x.dtype == EXO_F32 && x.device == to->messages.device && x.count <= chunks * to->chunk);
    exo_device_run(x.device, sign_pack, .count = x.count, .chunk = to->chunk, .chunks = chunks,
                   .step = to->bytes, .bits = (uint8_t *)first + to->signs,
                   .scale = (float *)(void *)(first + to->scale), .x = x.data);
}

static void
run_sign_mean(exo_array y, const exo_signs *from, size_t senders, size_t sender_step,
              size_t chunk_step)
{
    const char *first = from->messages.data;
    assert(y.dtype == EXO_F32 && y.device == from->messages.device);
    exo_device_run(y.device, sign_mean, .count = y.count, .chunk = from->chunk, .senders = senders,
                   .sender_step = sender_step, .chunk_step = chunk_step, .y = y.data,
                   .bits = (const uint8_t *)first + from->signs,
                   .scale = (const float *)(const void *)(first + from->scale));
}

void
exo_vec_sign_unpack(exo_array y, const exo_signs *from)
{
    assert(y.count <= messages_in(from) * from->chunk);
    run_sign_mean(y, from, 1, 0, from->bytes);
}

void
exo_vec_sign_mean(exo_array y, const exo_signs *from)
{
    assert(y.count <= from->chunk);
    run_sign_mean(y, from, messages_in(from), from->bytes, 0);
}
