/* See token_rows.h. */
#include "support/token_rows.h"

#include <stdlib.h>

#include <exogym/memory.h>

struct token_rows {
    size_t count, block, vocabulary;
};

static size_t
rows_length(const void *self)
{
    return ((const struct token_rows *)self)->count;
}

static size_t
rows_fields(const void *self, exo_field *out)
{
    const struct token_rows *r = self;
    out[0] = (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {r->block}};
    out[1] = (exo_field){.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {r->block}};
    return 2;
}

static exo_status
rows_get(const void *self, size_t index, const exo_sample_key *key, void *const *out, exo_err *err)
{
    const struct token_rows *r = self;
    (void)key;
    (void)err;
    for (size_t i = 0; i < r->block; i++) {
        ((int32_t *)out[0])[i] = (int32_t)((index * 7 + i * (1 + index % 3)) % r->vocabulary);
        ((int32_t *)out[1])[i] = (int32_t)((index * 7 + (i + 1) * (1 + index % 3)) % r->vocabulary);
    }
    return EXO_OK;
}

static const exo_dataset_class rows_class = {
    .name = "token_rows",
    .length = rows_length,
    .fields = rows_fields,
    .get = rows_get,
    .free = exo_free,
};

exo_dataset *
token_rows_new(size_t count, size_t block, size_t vocabulary)
{
    struct token_rows *r = exo_calloc(1, sizeof *r);
    exo_dataset *out = NULL;
    if (!r)
        abort();
    *r = (struct token_rows){.count = count, .block = block, .vocabulary = vocabulary};
    if (exo_dataset_new(&out, &rows_class, r, NULL) != EXO_OK)
        abort();
    return out;
}
