/* The bodies of kernels.h for one type of images. kernels.c includes this file once for each type,
 * after it has defined: T, the type in memory; LOAD(x), a T as float; STORE(x), a float as T;
 * NAME(f), the function's name for the type. No state. */

/* Sums of a strip of channels, which stay in registers. Blocks of rows are summed in fp32, and the
 * blocks' sums in double. */
static inline void
NAME(strip_sums)(const T *restrict x, size_t rows, size_t channels, size_t width,
                 const float *restrict shift, double *restrict sum, double *restrict squares)
{
    for (size_t first = 0; first < rows; first += SUM_BLOCK) {
        size_t last = rows - first < SUM_BLOCK ? rows : first + SUM_BLOCK;
        float s[STRIP] = {0}, q[STRIP] = {0};
        for (size_t r = first; r < last; r++) {
            const T *row = x + r * channels;
            for (size_t c = 0; c < width; c++) {
                float d = LOAD(row[c]) - shift[c];
                s[c] += d;
                q[c] += d * d;
            }
        }
        for (size_t c = 0; c < width; c++) {
            sum[c] += (double)s[c];
            squares[c] += (double)q[c];
        }
    }
}

static void
NAME(bn_sums)(const T *x, size_t rows, size_t channels, const float *shift, double *sum,
              double *squares)
{
    size_t c = 0;
    for (; c + STRIP <= channels; c += STRIP)
        NAME(strip_sums)(x + c, rows, channels, STRIP, shift + c, sum + c, squares + c);
    if (c < channels)
        NAME(strip_sums)(x + c, rows, channels, channels - c, shift + c, sum + c, squares + c);
}

static void
NAME(bn_apply)(const T *restrict x, T *restrict y, size_t rows, size_t channels,
               const float *restrict scale, const float *restrict shift, bool relu)
{
    float floor = relu ? 0.0f : -INFINITY;
    for (size_t r = 0; r < rows; r++) {
        const T *in = x + r * channels;
        T *out = y + r * channels;
        for (size_t c = 0; c < channels; c++) {
            float v = LOAD(in[c]) * scale[c] + shift[c];
            out[c] = STORE(v < floor ? floor : v);
        }
    }
}

static inline void
NAME(strip_grad_sums)(const T *restrict x, const T *restrict dy, size_t rows, size_t channels,
                      size_t width, const float *restrict mean, const float *restrict scale,
                      const float *restrict shift, bool relu, double *restrict sum_dy,
                      double *restrict sum_dyx)
{
    float floor = relu ? 0.0f : -INFINITY;
    for (size_t first = 0; first < rows; first += SUM_BLOCK) {
        size_t last = rows - first < SUM_BLOCK ? rows : first + SUM_BLOCK;
        float s[STRIP] = {0}, q[STRIP] = {0};
        for (size_t r = first; r < last; r++) {
            const T *in = x + r * channels, *grad = dy + r * channels;
            for (size_t c = 0; c < width; c++) {
                float v = LOAD(in[c]);
                float g = v * scale[c] + shift[c] > floor ? LOAD(grad[c]) : 0.0f;
                s[c] += g;
                q[c] += g * (v - mean[c]);
            }
        }
        for (size_t c = 0; c < width; c++) {
            sum_dy[c] += (double)s[c];
            sum_dyx[c] += (double)q[c];
        }
    }
}

static void
NAME(bn_grad_sums)(const T *x, const T *dy, size_t rows, size_t channels, const float *mean,
                   const float *scale, const float *shift, bool relu, double *sum_dy,
                   double *sum_dyx)
{
    size_t c = 0;
    for (; c + STRIP <= channels; c += STRIP)
        NAME(strip_grad_sums)
    (x + c, dy + c, rows, channels, STRIP, mean + c, scale + c, shift + c, relu, sum_dy + c,
     sum_dyx + c);
    if (c < channels)
        NAME(strip_grad_sums)
    (x + c, dy + c, rows, channels, channels - c, mean + c, scale + c, shift + c, relu, sum_dy + c,
     sum_dyx + c);
}

static void
NAME(bn_grad_apply)(const T *restrict x, const T *dy, T *dx, size_t rows, size_t channels,
                    const float *restrict scale, const float *restrict shift, bool relu,
                    const float *restrict k_dy, const float *restrict k_x,
                    const float *restrict k_1, bool add)
{
    float floor = relu ? 0.0f : -INFINITY;
    for (size_t r = 0; r < rows; r++) {
        const T *in = x + r * channels, *grad = dy + r * channels;
        T *out = dx + r * channels;
        if (add) {
            for (size_t c = 0; c < channels; c++) {
                float v = LOAD(in[c]);
                float g = v * scale[c] + shift[c] > floor ? LOAD(grad[c]) : 0.0f;
                out[c] = STORE(LOAD(out[c]) + (k_dy[c] * g + (k_x[c] * v + k_1[c])));
            }
        } else {
            IN_PLACE
            for (size_t c = 0; c < channels; c++) {
                float v = LOAD(in[c]);
                float g = v * scale[c] + shift[c] > floor ? LOAD(grad[c]) : 0.0f;
                out[c] = STORE(k_dy[c] * g + (k_x[c] * v + k_1[c]));
            }
        }
    }
}

static void
NAME(relu_forward)(const T *restrict x, T *restrict y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float v = LOAD(x[i]);
        y[i] = STORE(v < 0.0f ? 0.0f : v);
    }
}

static void
NAME(relu_backward)(const T *restrict y, const T *dy, T *dx, size_t count, bool add)
{
    if (add) {
        for (size_t i = 0; i < count; i++)
            dx[i] = STORE(LOAD(dx[i]) + (LOAD(y[i]) > 0.0f ? LOAD(dy[i]) : 0.0f));
        return;
    }
    IN_PLACE
    for (size_t i = 0; i < count; i++)
        dx[i] = STORE(LOAD(y[i]) > 0.0f ? LOAD(dy[i]) : 0.0f);
}

/* The maxima of one window, for a strip of channels. Keys and winners have the same width, so that
 * the compiler vectorizes the loop. */
static inline void
NAME(pool_strip)(const T *restrict corner, T *restrict out, uint8_t *restrict won, size_t row,
                 size_t channels, size_t width, size_t size)
{
    int32_t best[STRIP];
    int32_t who[STRIP] = {0};
    for (size_t c = 0; c < width; c++)
        best[c] = order_key(LOAD(corner[c]));
    for (size_t k = 1; k < size * size; k++) {
        const T *in = corner + k / size * row + k % size * channels;
        for (size_t c = 0; c < width; c++) {
            int32_t key = order_key(LOAD(in[c]));
            who[c] = key > best[c] ? (int32_t)k : who[c];
            best[c] = key > best[c] ? key : best[c];
        }
    }
    for (size_t c = 0; c < width; c++) {
        out[c] = STORE(key_value(best[c]));
        won[c] = (uint8_t)who[c];
    }
}

/* Windows of 2 x 2, the usual ones: comparisons without intermediate memory. */
static void
NAME(pool_2x2)(const T *restrict corner, T *restrict out, uint8_t *restrict won, size_t row,
               size_t channels)
{
    const T *restrict in1 = corner + channels, *restrict in2 = corner + row,
                      *restrict in3 = corner + row + channels;
    for (size_t c = 0; c < channels; c++) {
        int32_t k0 = order_key(LOAD(corner[c])), k1 = order_key(LOAD(in1[c]));
        int32_t k2 = order_key(LOAD(in2[c])), k3 = order_key(LOAD(in3[c]));
        int32_t upper = k1 > k0 ? k1 : k0, lower = k3 > k2 ? k3 : k2;
        int32_t who_upper = k1 > k0, who_lower = 2 + (k3 > k2);
        out[c] = STORE(key_value(lower > upper ? lower : upper));
        won[c] = (uint8_t)(lower > upper ? who_lower : who_upper);
    }
}

static void
NAME(max_pool_forward)(const T *restrict x, T *restrict y, uint8_t *restrict winner, size_t height,
                       size_t width, size_t channels, size_t size)
{
    size_t out_height = height / size, out_width = width / size, row = width * channels;
    for (size_t h = 0; h < out_height; h++) {
        for (size_t w = 0; w < out_width; w++) {
            T *out = y + (h * out_width + w) * channels;
            uint8_t *won = winner + (h * out_width + w) * channels;
            const T *corner = x + h * size * row + w * size * channels;
            size_t c = 0;
            if (size == 2) {
                NAME(pool_2x2)(corner, out, won, row, channels);
                continue;
            }
            for (; c + STRIP <= channels; c += STRIP)
                NAME(pool_strip)(corner + c, out + c, won + c, row, channels, STRIP, size);
            if (c < channels)
                NAME(pool_strip)(corner + c, out + c, won + c, row, channels, channels - c, size);
        }
    }
}

static void
NAME(max_pool_backward)(const T *restrict dy, const uint8_t *restrict winner, T *restrict dx,
                        size_t height, size_t width, size_t channels, size_t size, bool add)
{
    size_t out_height = height / size, out_width = width / size;
    if (!add && (height % size || width % size))
        memset(dx, 0, height * width * channels * sizeof *dx); /* for pixels in no window */
    for (size_t h = 0; h < out_height; h++) {
        for (size_t w = 0; w < out_width; w++) {
            const T *grad = dy + (h * out_width + w) * channels;
            const uint8_t *won = winner + (h * out_width + w) * channels;
            T *corner = dx + (h * size * width + w * size) * channels;
            for (size_t k = 0; k < size * size; k++) {
                T *out = corner + (k / size * width + k % size) * channels;
                if (add) {
                    for (size_t c = 0; c < channels; c++)
                        out[c] = STORE(LOAD(out[c]) + (won[c] == k ? LOAD(grad[c]) : 0.0f));
                } else {
                    for (size_t c = 0; c < channels; c++)
                        out[c] = won[c] == k ? grad[c] : (T)0;
                }
            }
        }
    }
}

static void
NAME(mask_scale)(const T *x, T *y, const uint8_t *restrict keep, size_t count, float factor,
                 bool add)
{
    if (add) {
        for (size_t i = 0; i < count; i++)
            y[i] = STORE(LOAD(y[i]) + (keep[i] ? LOAD(x[i]) * factor : 0.0f));
        return;
    }
    IN_PLACE
    for (size_t i = 0; i < count; i++)
        y[i] = STORE(keep[i] ? LOAD(x[i]) * factor : 0.0f);
}

static void
NAME(channel_scale)(const T *x, T *y, const float *restrict factor, size_t rows, size_t channels,
                    bool add)
{
    for (size_t r = 0; r < rows; r++) {
        const T *in = x + r * channels;
        T *out = y + r * channels;
        if (add) {
            for (size_t c = 0; c < channels; c++)
                out[c] = STORE(LOAD(out[c]) + LOAD(in[c]) * factor[c]);
        } else {
            IN_PLACE
            for (size_t c = 0; c < channels; c++)
                out[c] = STORE(LOAD(in[c]) * factor[c]);
        }
    }
}

static void
NAME(accumulate)(const T *restrict x, T *restrict y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = STORE(LOAD(y[i]) + LOAD(x[i]));
}

static void
NAME(column_sums)(const T *restrict x, size_t rows, size_t stride, size_t columns,
                  double *restrict sum)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            sum[c] += (double)LOAD(x[r * stride + c]);
}

static void
NAME(transpose)(const T *restrict x, T *restrict y, size_t rows, size_t columns, bool add)
{
    enum {
        TILE = 16
    };
    for (size_t r0 = 0; r0 < rows; r0 += TILE) {
        size_t r1 = r0 + TILE < rows ? r0 + TILE : rows;
        for (size_t c = 0; c < columns; c++)
            for (size_t r = r0; r < r1; r++)
                y[c * rows + r] = add ? STORE(LOAD(y[c * rows + r]) + LOAD(x[r * columns + c]))
                                      : x[r * columns + c];
    }
}

#undef T
#undef LOAD
#undef STORE
#undef NAME
