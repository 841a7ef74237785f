/* Safetensors files: see safetensors.h. The layout:
 *
 *   8 bytes   the header's length, little-endian
 *   header    JSON: name -> dtype, shape, data_offsets (relative to the header's end)
 *   data      without gaps
 *
 * The file is not trusted: each number is checked before it is used. */
#include "nn/pretrained/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include <exogym/memory.h>

#include "base/file.h"

#define MAX_HEADER (UINT64_C(100) << 20) /* bytes, as in the reference implementation */

struct exo_safetensors {
    char *path;
    const unsigned char *mapped; /* NULL: an empty file */
    size_t size;
    size_t data_at; /* offset of the data */
    json_t *header; /* owns the names */
    exo_safetensor *tensors;
    size_t count;
};

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    {"F32", 4}, {"BF16", 2}, {"F16", 2},     {"F64", 8},     {"I64", 8},
    {"U64", 8}, {"I32", 4},  {"U32", 4},     {"I16", 2},     {"U16", 2},
    {"I8", 1},  {"U8", 1},   {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BOOL", 1},
};

const char *
exo_safetensors_shape(size_t num_dims, const size_t *dims, char *out)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t d = 0; d < num_dims && at < EXO_SHAPE_TEXT; d++)
        at += (size_t)snprintf(out + at, EXO_SHAPE_TEXT - at, "%s%zu", d ? ", " : "(", dims[d]);
    if (at < EXO_SHAPE_TEXT)
        snprintf(out + at, EXO_SHAPE_TEXT - at, "%s)", num_dims ? "" : "(");
    return out;
}

const char *
exo_safetensors_path(const exo_safetensors *file)
{
    return file->path;
}

size_t
exo_safetensors_count(const exo_safetensors *file)
{
    return file->count;
}

const exo_safetensor *
exo_safetensors_at(const exo_safetensors *file, size_t index)
{
    return index < file->count ? &file->tensors[index] : NULL;
}

void
exo_safetensors_close(exo_safetensors **file)
{
    exo_safetensors *f = *file;
    if (!f)
        return;
    if (f->mapped)
        munmap((void *)(uintptr_t)f->mapped, f->size);
    json_decref(f->header);
    exo_free(f->tensors);
    exo_free(f->path);
    exo_free(f);
    *file = NULL;
}

static exo_status
map_file(exo_safetensors *f, exo_err *err)
{
    struct stat info;
    int fd = -1;
    exo_status st = exo_file_open(f->path, &fd, err);
    if (st != EXO_OK)
        return st;
    if (fstat(fd, &info) != 0) {
        st = exo_fail(err, EXO_IO, "%s: %s", f->path, strerror(errno));
    } else if (info.st_size > 0) {
        void *mapped = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (mapped == MAP_FAILED)
            st = exo_fail(err, EXO_IO, "%s: %s", f->path, strerror(errno));
        else
            f->mapped = mapped;
        f->size = (size_t)info.st_size;
    }
    close(fd);
    return st;
}

static exo_status
parse_header(exo_safetensors *f, exo_err *err)
{
    uint64_t length = 0;
    if (f->size < 8)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: is truncated or not a safetensors file: it has %zu bytes", f->path,
                        f->size);
    static const char pointer[] = "version https://git-lfs.github.com/";
    if (f->size >= sizeof pointer && memcmp(f->mapped, pointer, sizeof pointer - 1) == 0)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: is a Git LFS pointer, not the file: fetch the file with `git lfs "
                        "pull` in its folder",
                        f->path);
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)f->mapped[i] << (8 * i);
    if (length > MAX_HEADER || length > f->size - 8)
        return exo_fail(
            err, EXO_DAMAGED,
            "%s: is truncated or not a safetensors file: a header of %llu bytes in a file of %zu",
            f->path, (unsigned long long)length, f->size);
    json_error_t reason;
    f->header =
        json_loadb((const char *)f->mapped + 8, (size_t)length, JSON_REJECT_DUPLICATES, &reason);
    if (!json_is_object(f->header))
        return exo_fail(
            err, EXO_DAMAGED,
            "%s: is damaged or not a safetensors file: its header is not a JSON object: %s",
            f->path, f->header ? "another kind of value" : reason.text);
    f->data_at = 8 + (size_t)length;
    return EXO_OK;
}

/* Reads a tensor's type and shape, and computes its bytes. */
static exo_status
read_shape(const exo_safetensors *f, const json_t *info, exo_safetensor *t, exo_err *err)
{
    const json_t *shape = json_object_get(info, "shape");
    const char *dtype = json_string_value(json_object_get(info, "dtype"));
    for (size_t i = 0; dtype && !t->dtype && i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, dtype) == 0) {
            t->dtype = dtypes[i].name;
            t->bytes = dtypes[i].size;
        }
    }
    if (!t->dtype)
        return exo_fail(err, EXO_DAMAGED, "%s: tensor '%s' has the unknown type '%.32s'", f->path,
                        t->name, dtype ? dtype : "");
    if (!json_is_array(shape) || json_array_size(shape) > EXO_SAFETENSORS_DIMS)
        return exo_fail(err, EXO_DAMAGED, "%s: tensor '%s' has no shape of at most %d dimensions",
                        f->path, t->name, EXO_SAFETENSORS_DIMS);
    t->num_dims = json_array_size(shape);
    t->numel = 1;
    for (size_t d = 0; d < t->num_dims; d++) {
        const json_t *item = json_array_get(shape, d);
        json_int_t length = json_is_integer(item) ? json_integer_value(item) : -1;
        if (length < 0 || __builtin_mul_overflow(t->numel, (size_t)length, &t->numel))
            return exo_fail(err, EXO_DAMAGED, "%s: tensor '%s' has an impossible shape", f->path,
                            t->name);
        t->dims[d] = (size_t)length;
    }
    if (__builtin_mul_overflow(t->numel, t->bytes, &t->bytes))
        return exo_fail(err, EXO_DAMAGED, "%s: tensor '%s' has an impossible shape", f->path,
                        t->name);
    return EXO_OK;
}

static exo_status
read_tensor(const exo_safetensors *f, const char *name, const json_t *info, exo_safetensor *t,
            exo_err *err)
{
    *t = (exo_safetensor){.name = name};
    exo_status st = read_shape(f, info, t, err);
    if (st != EXO_OK)
        return st;
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return exo_fail(err, EXO_DAMAGED, "%s: tensor '%s' has no data_offsets", f->path, name);
    json_int_t from = json_integer_value(first), to = json_integer_value(last);
    if (from < 0 || to < from || (uint64_t)to > f->size - f->data_at)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: is truncated or damaged: tensor '%s' lies outside the file", f->path,
                        name);
    if ((uint64_t)(to - from) != t->bytes) {
        char shape[EXO_SHAPE_TEXT];
        return exo_fail(err, EXO_DAMAGED, "%s: tensor '%s' of %s %s has %lld bytes, not %zu",
                        f->path, name, t->dtype, exo_safetensors_shape(t->num_dims, t->dims, shape),
                        (long long)(to - from), t->bytes);
    }
    t->data = f->mapped + f->data_at + from;
    return EXO_OK;
}

static int
by_place(const void *a, const void *b)
{
    const exo_safetensor *x = a, *y = b;
    if (x->data != y->data)
        return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

/* Each byte of the data belongs to exactly one tensor, as the reference implementation requires. */
static exo_status
check_places(const exo_safetensors *f, exo_err *err)
{
    const unsigned char *end = f->mapped + f->data_at, *all = f->mapped + f->size;
    for (size_t i = 0; i < f->count; i++) {
        const exo_safetensor *t = &f->tensors[i];
        if ((const unsigned char *)t->data != end)
            return exo_fail(err, EXO_DAMAGED, "%s: is damaged: tensor '%s' %s", f->path, t->name,
                            (uintptr_t)t->data < (uintptr_t)end ? "overlaps another"
                                                                : "comes after a gap");
        end += t->bytes;
    }
    if (end != all)
        return exo_fail(err, EXO_DAMAGED, "%s: is damaged: its last %zu bytes belong to no tensor",
                        f->path, (size_t)(all - end));
    return EXO_OK;
}

static exo_status
read_tensors(exo_safetensors *f, exo_err *err)
{
    const char *name = NULL;
    json_t *info = NULL;
    exo_status st = EXO_OK;
    f->tensors = exo_calloc(json_object_size(f->header) + 1, sizeof *f->tensors);
    if (!f->tensors)
        return exo_fail(err, EXO_NOMEM, "%s: no memory for its header", f->path);
    json_object_foreach (f->header, name, info) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        st = read_tensor(f, name, info, &f->tensors[f->count], err);
        if (st != EXO_OK)
            return st;
        f->count++;
    }
    qsort(f->tensors, f->count, sizeof *f->tensors, by_place);
    return check_places(f, err);
}

exo_status
exo_safetensors_open(exo_safetensors **out, const char *path, exo_err *err)
{
    exo_status st = EXO_NOMEM;
    exo_safetensors *f = exo_calloc(1, sizeof *f);
    if (f)
        f->path = exo_strdup(path);
    if (!f || !f->path) {
        st = exo_fail(err, EXO_NOMEM, "%s: no memory", path);
        goto done;
    }
    st = map_file(f, err);
    if (st == EXO_OK)
        st = parse_header(f, err);
    if (st == EXO_OK)
        st = read_tensors(f, err);
    if (st != EXO_OK)
        goto done;
    *out = f;
    f = NULL;
done:
    exo_safetensors_close(&f);
    return st;
}
