/* A small problem: see points.h. */
#include "support/points.h"

#include <stdlib.h>

#include <exogym/memory.h>

struct points {
    size_t count;
    uint64_t seed;
    size_t bad;
};

static size_t
points_length(const void *self)
{
    return ((const struct points *)self)->count;
}

static size_t
points_fields(const void *self, exo_field *out)
{
    (void)self;
    out[0] = (exo_field){.name = "x", .dtype = EXO_F32, .num_dims = 1, .dims = {POINTS_DIM}};
    out[1] = (exo_field){.name = "label", .dtype = EXO_I32};
    return 2;
}

static exo_status
points_get(const void *self, size_t index, const exo_sample_key *key, void *const *out,
           exo_err *err)
{
    (void)key;
    const struct points *p = self;
    if (index == p->bad)
        return exo_fail(err, EXO_IO, "the disk is gone");
    exo_rng rng;
    exo_rng_init(&rng, p->seed, EXO_RNG_USER, 0, index);
    uint32_t label = exo_rng_below(&rng, POINTS_CLASSES);
    float *x = out[0];
    for (uint32_t d = 0; d < POINTS_DIM; d++)
        x[d] = exo_rng_normal(&rng) + (d % POINTS_CLASSES == label ? 1.0f : 0.0f);
    *(int32_t *)out[1] = (int32_t)label;
    return EXO_OK;
}

static const exo_dataset_class points_class = {
    .name = "points",
    .length = points_length,
    .fields = points_fields,
    .get = points_get,
    .free = exo_free,
};

exo_dataset *
points_new(size_t count, uint64_t seed, size_t bad)
{
    struct points *p = exo_calloc(1, sizeof *p);
    exo_dataset *out = NULL;
    if (!p)
        abort();
    *p = (struct points){.count = count, .seed = seed, .bad = bad};
    if (exo_dataset_new(&out, &points_class, p, NULL) != EXO_OK)
        abort();
    return out;
}

exo_model *
points_mlp(void)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    if (exo_config_parse(&doc, "points", "{in: 8, hidden: 16, out: 3}", NULL) != EXO_OK ||
        exo_model_new_named(&model, "mlp", exo_config_root(doc), NULL) != EXO_OK)
        abort();
    exo_config_free(&doc);
    return model;
}
