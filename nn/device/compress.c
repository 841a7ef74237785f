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
