/* The rate of one product of square matrices, as a linear layer asks a device for it: the limit that
 * a training step is held against. With fp8 the operands are codes already. Median of five rounds.
 *
 *     bench_matmul [--device cuda] [--dtype bf16|fp8] [--size 8192] [--products 20]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "base/bf16.h"
#include "limits.h"
#include "nn/device/device_impl.h"

enum {
    ROUNDS = 5
};

struct setting {
    const char *device;
    exo_dtype dtype; /* with fp8, of the result */
    bool fp8;
    size_t size, products;
};

struct product {
    exo_device *device;
    exo_plan *plan;
    exo_array x, weight, y, scratch;
    exo_array codes[2], scales[2]; /* of x and weight, with fp8 */
};

/* Uniform in [-1, 1): with zeros a processor may run faster. */
static exo_status
draw(exo_array array, uint64_t seed, exo_err *err)
{
    exo_rng rng;
    void *host = exo_alloc_aligned(array.count * exo_dtype_size(array.dtype));
    if (!host)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu numbers", array.count);
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < array.count; i++) {
        const float value = 2 * exo_rng_uniform(&rng) - 1;
        if (array.dtype == EXO_F32)
            ((float *)host)[i] = value;
        else
            ((uint16_t *)host)[i] = exo_to_bf16(value);
    }
    exo_array_send(array, host);
    exo_free(host);
    return EXO_OK;
}

/* Writes x and weight as fp8. */
static exo_status
make_codes(struct product *p, const struct setting *s, exo_err *err)
{
    const exo_array *from[] = {&p->x, &p->weight};
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < 2; i++) {
        st = exo_array_init(&p->codes[i], p->device, EXO_U8, s->size * s->size, err);
        if (st == EXO_OK)
            st = exo_array_init(&p->scales[i], p->device, EXO_F32, 1, err);
        if (st == EXO_OK)
            exo_device_run(p->device, to_fp8, .rows = s->size, .columns = s->size,
                           .dtype = s->dtype, .format = EXO_E4M3, .x = from[i]->data,
                           .codes = p->codes[i].data, .scale = p->scales[i].data);
    }
    return st;
}

/* Opens the device. Errors: UNSUPPORTED, also if it has no products of the type. */
static exo_status
open_device(struct product *p, const struct setting *s, exo_err *err)
{
    exo_status st = exo_device_open(&p->device, s->device, err);
    if (st != EXO_OK || !s->fp8)
        return st;
    if (s->size % EXO_FP8_SIDE != 0)
        return exo_fail(err, EXO_INVAL, "fp8: --size must be a multiple of %d", EXO_FP8_SIDE);
    return p->device->device_class->check_fp8
               ? p->device->device_class->check_fp8(p->device, err)
               : exo_fail(err, EXO_UNSUPPORTED, "fp8 needs --device cuda");
}

static exo_status
product_init(struct product *p, const struct setting *s, exo_err *err)
{
    const exo_linear_shape shape = {.rows = s->size,
                                    .in = s->size,
                                    .out = s->size,
                                    .dtype = s->dtype,
                                    .out_dtype = s->dtype,
                                    .fp8 = s->fp8};
    exo_status st = open_device(p, s, err);
    if (st == EXO_OK)
        st = exo_plan_new(&p->plan, p->device, EXO_SHAPE_LINEAR, &shape, err);
    if (st != EXO_OK)
        return st;
    const size_t bytes =
        p->device->device_class->scratch(p->device, EXO_SHAPE_LINEAR, &shape, EXO_SCRATCH_FORWARD);
    exo_array *arrays[] = {&p->x, &p->weight,
                           &p->y}; /* all zero: the rate is that of any numbers */
    for (size_t i = 0; st == EXO_OK && i < 3; i++)
        st = exo_array_init(arrays[i], p->device, s->dtype, s->size * s->size, err);
    if (st == EXO_OK)
        st = exo_array_init(&p->scratch, p->device, EXO_U8, bytes, err);
    if (st == EXO_OK)
        st = draw(p->x, 1, err);
    if (st == EXO_OK)
        st = draw(p->weight, 2, err);
    return st == EXO_OK && s->fp8 ? make_codes(p, s, err) : st;
}

static void
product_release(struct product *p)
{
    exo_plan_free(&p->plan);
    exo_array_release(&p->x);
    exo_array_release(&p->weight);
    exo_array_release(&p->y);
    exo_array_release(&p->scratch);
    for (size_t i = 0; i < 2; i++) {
        exo_array_release(&p->codes[i]);
        exo_array_release(&p->scales[i]);
    }
    exo_device_close(&p->device);
}

/* Seconds of a product. */
static exo_status
measure(const struct product *p, size_t products, double *seconds, exo_err *err)
{
    const exo_array *x = p->codes[0].data ? &p->codes[0] : &p->x,
                    *weight = p->codes[1].data ? &p->codes[1] : &p->weight;
    const int64_t start = bench_now();
    for (size_t i = 0; i < products; i++)
        exo_device_run(p->device, linear, .plan = p->plan, .y = p->y.data, .x = x->data,
                       .weight = weight->data, .x_scale = p->scales[0].data,
                       .weight_scale = p->scales[1].data, .scratch = p->scratch.data);
    const exo_status st = exo_device_synchronize(p->device, err);
    *seconds = (double)(bench_now() - start) * 1e-9 / (double)products;
    return st;
}

static exo_status
run(const struct setting *s, exo_err *err)
{
    struct product p = {0};
    double seconds[ROUNDS], warm_up = 0, n = (double)s->size;
    exo_status st = product_init(&p, s, err);
    if (st == EXO_OK)
        st = measure(&p, 1, &warm_up, err);
    for (size_t r = 0; st == EXO_OK && r < ROUNDS; r++)
        st = measure(&p, s->products, &seconds[r], err);
    product_release(&p);
    if (st != EXO_OK)
        return st;
    const double one = bench_median(seconds, ROUNDS);
    printf("{\"device\": \"%s\", \"dtype\": \"%s\", \"size\": %zu, \"product_ms\": %.4f, "
           "\"gflops\": %.1f}\n",
           s->device, s->fp8 ? "fp8" : exo_dtype_name(s->dtype), s->size, one * 1e3,
           2 * n * n * n / one * 1e-9);
    return EXO_OK;
}

int
main(int argc, char **argv)
{
    struct setting s = {.device = "cpu", .dtype = EXO_F32, .size = 1024, .products = 5};
    exo_err err = {0};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--device") == 0)
            s.device = value;
        else if (strcmp(argv[i], "--dtype") == 0)
            s.fp8 = strcmp(value, "fp8") == 0,
            s.dtype = s.fp8 || strcmp(value, "bf16") == 0 ? EXO_BF16 : EXO_F32;
        else if (strcmp(argv[i], "--size") == 0)
            s.size = (size_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--products") == 0)
            s.products = (size_t)strtoul(value, NULL, 10);
    }
    if (s.size == 0 || s.products == 0 || run(&s, &err) != EXO_OK) {
        fprintf(stderr, "bench_matmul: %s\n",
                err.text[0] ? err.text : "--size and --products must be at least 1");
        return 1;
    }
    return 0;
}
