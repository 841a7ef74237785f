/* Data sets: references, slices, and batches read from them. A data set is read-only, for any
 * thread; a batch belongs to its user. Read next: dataset_impl.h. */
#include <exogym/data.h>

#include <stdatomic.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/dataset_impl.h"

struct exo_dataset {
    atomic_uint references;
    const exo_dataset_class *dataset_class;
    void *self;
    size_t length;
    size_t num_fields;
    exo_field fields[EXO_MAX_FIELDS];
};

exo_status
exo_dataset_new(exo_dataset **out, const exo_dataset_class *dataset_class, void *self, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_dataset *d = exo_calloc(1, sizeof *d);
    if (!d) {
        st = exo_fail(err, EXO_NOMEM, "no memory for a data set");
        goto done;
    }
    *d = (exo_dataset){.references = 1, .dataset_class = dataset_class, .self = self};
    d->length = dataset_class->length(self);
    d->num_fields = dataset_class->fields(self, d->fields);
    if (d->num_fields < 1 || d->num_fields > EXO_MAX_FIELDS) {
        st = exo_fail(err, EXO_INVAL, "the data set '%s' has %zu fields; expected 1 to %d",
                      dataset_class->name, d->num_fields, EXO_MAX_FIELDS);
        goto done;
    }
    for (size_t i = 0; i < d->num_fields; i++) {
        if ((d->fields[i].dtype != EXO_F32 && d->fields[i].dtype != EXO_I32) ||
            d->fields[i].num_dims > EXO_MAX_DIMS - 1) {
            st = exo_fail(err, EXO_INVAL,
                          "the field '%s' of the data set '%s' must be fp32 or int32, of at most "
                          "%d dimensions",
                          d->fields[i].name, dataset_class->name, EXO_MAX_DIMS - 1);
            goto done;
        }
    }
    *out = d;
    d = NULL;
    self = NULL;
done:
    exo_free(d);
    if (self && dataset_class->free)
        dataset_class->free(self);
    return st;
}

exo_dataset *
exo_dataset_hold(exo_dataset *dataset)
{
    atomic_fetch_add(&dataset->references, 1);
    return dataset;
}

void
exo_dataset_drop(exo_dataset **dataset)
{
    exo_dataset *d = *dataset;
    *dataset = NULL;
    if (!d || atomic_fetch_sub(&d->references, 1) > 1)
        return;
    if (d->dataset_class->free)
        d->dataset_class->free(d->self);
    exo_free(d);
}

size_t
exo_dataset_length(const exo_dataset *dataset)
{
    return dataset->length;
}

size_t
exo_dataset_fields(const exo_dataset *dataset, exo_field *out)
{
    memcpy(out, dataset->fields, dataset->num_fields * sizeof *out);
    return dataset->num_fields;
}

exo_status
exo_dataset_get(const exo_dataset *dataset, size_t index, const exo_sample_key *key,
                void *const *out, exo_err *err)
{
    if (index >= dataset->length)
        return exo_fail(err, EXO_INVAL, "sample %zu is not in a data set of %zu", index,
                        dataset->length);
    return dataset->dataset_class->get(dataset->self, index, key, out, err);
}

const exo_dataset_class *
exo_dataset_class_of(const exo_dataset *dataset)
{
    return dataset->dataset_class;
}

void *
exo_dataset_self(const exo_dataset *dataset)
{
    return dataset->self;
}

exo_tokenizer *
exo_dataset_tokenizer(const exo_dataset *dataset)
{
    return dataset->dataset_class->tokenizer ? dataset->dataset_class->tokenizer(dataset->self)
                                             : NULL;
}

size_t
exo_dataset_vocabulary(const exo_dataset *dataset)
{
    return dataset->dataset_class->vocabulary ? dataset->dataset_class->vocabulary(dataset->self)
                                              : 0;
}

exo_status
exo_dataset_split(exo_dataset **out, exo_dataset *dataset, uint32_t rank, uint32_t num_parts,
                  exo_err *err)
{
    if (rank >= num_parts)
        return exo_fail(err, EXO_INVAL, "part %u is not one of %u", rank, num_parts);
    if (dataset->dataset_class->split)
        return dataset->dataset_class->split(dataset->self, rank, num_parts, out, err);
    size_t first = exo_split_point(dataset->length, rank, num_parts),
           end = exo_split_point(dataset->length, rank + 1, num_parts);
    if (first == end)
        return exo_fail(err, EXO_INVAL, "a data set of %zu sample%s cannot be split into %u parts",
                        dataset->length, dataset->length == 1 ? "" : "s", num_parts);
    return exo_dataset_slice(out, dataset, first, end - first, err);
}

/* --- Slices ----------------------------------------------------------------------------------- */

struct slice {
    exo_dataset *of;
    size_t first, count;
};

static size_t
slice_length(const void *self)
{
    return ((const struct slice *)self)->count;
}

static size_t
slice_fields(const void *self, exo_field *out)
{
    return exo_dataset_fields(((const struct slice *)self)->of, out);
}

static exo_status
slice_get(const void *self, size_t index, const exo_sample_key *key, void *const *out, exo_err *err)
{
    const struct slice *s = self;
    return exo_dataset_get(s->of, s->first + index, key, out, err);
}

static void
slice_free(void *self)
{
    exo_dataset_drop(&((struct slice *)self)->of);
    exo_free(self);
}

static exo_tokenizer *
slice_tokenizer(const void *self)
{
    return exo_dataset_tokenizer(((const struct slice *)self)->of);
}

static size_t
slice_vocabulary(const void *self)
{
    return exo_dataset_vocabulary(((const struct slice *)self)->of);
}

static const exo_dataset_class slice_class = {.name = "slice",
                                              .length = slice_length,
                                              .fields = slice_fields,
                                              .get = slice_get,
                                              .free = slice_free,
                                              .tokenizer = slice_tokenizer,
                                              .vocabulary = slice_vocabulary};

exo_status
exo_dataset_slice(exo_dataset **out, exo_dataset *dataset, size_t first, size_t count, exo_err *err)
{
    if (first > dataset->length || count > dataset->length - first)
        return exo_fail(err, EXO_INVAL, "samples %zu to %zu are not in a data set of %zu", first,
                        first + count, dataset->length);
    struct slice *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a slice");
    *s = (struct slice){.of = exo_dataset_hold(dataset), .first = first, .count = count};
    return exo_dataset_new(out, &slice_class, s, err);
}

/* --- Batches ---------------------------------------------------------------------------------- */

size_t
exo_field_bytes(const exo_field *field)
{
    size_t bytes = exo_dtype_size(field->dtype);
    for (size_t d = 0; d < field->num_dims; d++)
        bytes *= field->dims[d];
    return bytes;
}

exo_status
exo_batch_init(exo_batch *batch, const exo_dataset *dataset, size_t size, exo_err *err)
{
    *batch = (exo_batch){.size = size};
    batch->num_fields = exo_dataset_fields(dataset, batch->fields);
    for (size_t i = 0; i < batch->num_fields; i++) {
        size_t bytes = 0;
        if (!__builtin_mul_overflow(size, exo_field_bytes(&batch->fields[i]), &bytes))
            batch->data[i] = exo_alloc_aligned(bytes);
        if (!batch->data[i]) {
            exo_batch_release(batch);
            return exo_fail(err, EXO_NOMEM, "no memory for a batch of %zu samples", size);
        }
    }
    return EXO_OK;
}

void
exo_batch_release(exo_batch *batch)
{
    for (size_t i = 0; i < EXO_MAX_FIELDS; i++)
        exo_free(batch->data[i]);
    *batch = (exo_batch){0};
}

exo_status
exo_batch_read_row(exo_batch *batch, size_t row, const exo_dataset *dataset, size_t index,
                   const exo_sample_key *key, exo_err *err)
{
    void *out[EXO_MAX_FIELDS];
    for (size_t i = 0; i < batch->num_fields; i++)
        out[i] = (char *)batch->data[i] + row * exo_field_bytes(&batch->fields[i]);
    exo_status st = exo_dataset_get(dataset, index, key, out, err);
    return st == EXO_OK ? EXO_OK : exo_fail_in(err, st, "sample %zu", index);
}

exo_status
exo_batch_read(exo_batch *batch, const exo_dataset *dataset, const size_t *indices, size_t count,
               const exo_sample_key *key, exo_err *err)
{
    exo_status st = EXO_OK;
    batch->size = count;
    for (size_t n = 0; st == EXO_OK && n < count; n++)
        st = exo_batch_read_row(batch, n, dataset, indices[n], key, err);
    return st;
}
