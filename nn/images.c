/* Images: bytes that all views and nodes share, normalized and augmented when a sample is read.
 *
 * Augmentation is torchvision's RandomAffine with its defaults: a rotation about the centre and a
 * shift by whole pixels, nearest neighbour, black outside. The draw depends on (seed, epoch,
 * sample) only. A data set is read-only, for any thread; views count the references to the bytes.
 * Read next: dataset.c. */
#include <exogym/data.h>

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/dataset_impl.h"

/* The memory that all views share. */
struct pixels {
    atomic_uint references;
    uint8_t *pixels; /* (count, rows, columns) */
    uint8_t *labels; /* (count) */
};

struct images {
    struct pixels *shared;
    size_t count, rows, columns;
    exo_image_opts opts;
    float value[256]; /* the normalized value of each byte */
};

static size_t
images_length(const void *self)
{
    return ((const struct images *)self)->count;
}

static size_t
images_fields(const void *self, exo_field *out)
{
    const struct images *s = self;
    out[0] = (exo_field){
        .name = "image", .dtype = EXO_F32, .num_dims = 3, .dims = {1, s->rows, s->columns}};
    out[1] = (exo_field){.name = "label", .dtype = EXO_I32};
    return 2;
}

static float
uniform_between(exo_rng *rng, float bound)
{
    return bound * (2.0f * exo_rng_uniform(rng) - 1.0f);
}

/* For each output pixel, the source is the inverse of "rotate by `angle` (counter-clockwise, as
 * displayed) about the centre, then shift by (dx, dy)". */
static void
affine_image(const struct images *s, const uint8_t *in, float angle, float dx, float dy, float *out)
{
    float radians = angle * 0.017453292519943295f;
    float c = cosf(radians), sn = sinf(radians);
    float centre_x = ((float)s->columns - 1) * 0.5f, centre_y = ((float)s->rows - 1) * 0.5f;
    int rows = (int)s->rows, columns = (int)s->columns;
    for (int y = 0; y < rows; y++) {
        float v = (float)y - centre_y - dy;
        /* A row of the output is a straight line through the source. */
        float u0 = -centre_x - dx;
        float from_x = c * u0 - sn * v + centre_x + 0.5f;
        float from_y = sn * u0 + c * v + centre_y + 0.5f;
        for (int x = 0; x < columns; x++) {
            int i = (int)floorf(from_x + c * (float)x), j = (int)floorf(from_y + sn * (float)x);
            bool inside = i >= 0 && i < columns && j >= 0 && j < rows;
            out[y * columns + x] = s->value[inside ? in[j * columns + i] : 0];
        }
    }
}

static exo_status
images_get(const void *self, size_t index, const exo_sample_key *key, void *const *out,
           exo_err *err)
{
    (void)err;
    const struct images *s = self;
    size_t area = s->rows * s->columns;
    const uint8_t *in = s->shared->pixels + index * area;
    float *image = out[0];
    *(int32_t *)out[1] = s->shared->labels[index];
    if (s->opts.rotate == 0 && s->opts.translate == 0) {
        for (size_t i = 0; i < area; i++)
            image[i] = s->value[in[i]];
        return EXO_OK;
    }
    exo_rng rng;
    exo_rng_init(&rng, key->seed, EXO_RNG_AUGMENT, 0, key->epoch << 32 | index);
    float angle = uniform_between(&rng, s->opts.rotate);
    float dx = roundf(uniform_between(&rng, s->opts.translate * (float)s->columns));
    float dy = roundf(uniform_between(&rng, s->opts.translate * (float)s->rows));
    affine_image(s, in, angle, dx, dy, image);
    return EXO_OK;
}

static void
drop_pixels(struct pixels *shared)
{
    if (atomic_fetch_sub(&shared->references, 1) > 1)
        return;
    exo_free(shared->pixels);
    exo_free(shared->labels);
    exo_free(shared);
}

static void
images_free(void *self)
{
    struct images *s = self;
    drop_pixels(s->shared);
    exo_free(s);
}

static const exo_dataset_class images_class = {.name = "images",
                                               .length = images_length,
                                               .fields = images_fields,
                                               .get = images_get,
                                               .free = images_free};

static exo_status
make_view(exo_dataset **out, struct pixels *shared, size_t count, size_t rows, size_t columns,
          const exo_image_opts *opts, exo_err *err)
{
    struct images *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a data set of images");
    atomic_fetch_add(&shared->references, 1);
    *s = (struct images){.shared = shared, .count = count, .rows = rows, .columns = columns};
    if (opts)
        s->opts = *opts;
    float deviation = s->opts.deviation != 0 ? s->opts.deviation : 1.0f;
    for (int i = 0; i < 256; i++)
        s->value[i] = ((float)i / 255.0f - s->opts.mean) / deviation;
    return exo_dataset_new(out, &images_class, s, err);
}

exo_status
exo_dataset_images_own(exo_dataset **out, size_t count, size_t rows, size_t columns,
                       uint8_t *pixels, uint8_t *labels, const exo_image_opts *opts, exo_err *err)
{
    struct pixels *shared = exo_calloc(1, sizeof *shared);
    if (!shared || count == 0 || rows == 0 || columns == 0 || rows > 4096 || columns > 4096) {
        exo_status st = shared ? exo_fail(err, EXO_INVAL,
                                          "a data set needs 1 image or more, of 1 x 1 to 4096 x "
                                          "4096 pixels: got %zu of %zu x %zu",
                                          count, rows, columns)
                               : exo_fail(err, EXO_NOMEM, "no memory for %zu images", count);
        exo_free(shared);
        exo_free(pixels);
        exo_free(labels);
        return st;
    }
    *shared = (struct pixels){.references = 1, .pixels = pixels, .labels = labels};
    exo_status st = make_view(out, shared, count, rows, columns, opts, err);
    drop_pixels(shared); /* a view has its own reference */
    return st;
}

exo_status
exo_dataset_images(exo_dataset **out, size_t count, size_t rows, size_t columns,
                   const uint8_t *pixels, const uint8_t *labels, const exo_image_opts *opts,
                   exo_err *err)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(rows, columns, &bytes) ||
        __builtin_mul_overflow(bytes, count, &bytes))
        return exo_fail(err, EXO_INVAL, "%zu images of %zu x %zu pixels are too large", count, rows,
                        columns);
    uint8_t *own_pixels = exo_calloc(bytes, 1), *own_labels = exo_calloc(count, 1);
    if (!own_pixels || !own_labels) {
        exo_free(own_pixels);
        exo_free(own_labels);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu images", count);
    }
    memcpy(own_pixels, pixels, bytes);
    memcpy(own_labels, labels, count);
    return exo_dataset_images_own(out, count, rows, columns, own_pixels, own_labels, opts, err);
}

exo_status
exo_dataset_images_view(exo_dataset **out, exo_dataset *images, const exo_image_opts *opts,
                        exo_err *err)
{
    if (exo_dataset_class_of(images) != &images_class)
        return exo_fail(err, EXO_INVAL, "only a data set of images has views");
    const struct images *s = exo_dataset_self(images);
    return make_view(out, s->shared, s->count, s->rows, s->columns, opts, err);
}

int32_t
exo_images_largest_label(const exo_dataset *dataset)
{
    uint8_t largest = 0;
    if (exo_dataset_class_of(dataset) != &images_class)
        return 0;
    const struct images *s = exo_dataset_self(dataset);
    for (size_t i = 0; i < s->count; i++)
        largest = s->shared->labels[i] > largest ? s->shared->labels[i] : largest;
    return largest;
}
