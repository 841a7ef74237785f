/* IDX files: a magic number (0, 0, type 8 for bytes, number of dimensions), the dimensions as
 * big-endian 32-bit numbers, and the bytes. zlib reads them gzipped or plain. No state. Read next:
 * images.c. */
#include <exogym/data.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "base/memory_limits.h"
#include "nn/dataset_impl.h"

enum {
    MAX_IDX_DIMS = 3,
    MAX_RATIO = 128, /* the most unpacked bytes per packed byte */
    LITTLE = 1 << 20 /* unpacked bytes that any file may have */
};
#define MAX_IDX_BYTES ((size_t)1 << 33)

struct idx {
    size_t dims[MAX_IDX_DIMS];
    size_t bytes;
    uint8_t *data;
};

/* Reads exactly `size` bytes. Errors: DAMAGED, with the number of missing bytes. */
static exo_status
read_exactly(gzFile file, const char *path, void *out, size_t size, exo_err *err)
{
    for (size_t got = 0; got < size;) {
        size_t left = size - got;
        unsigned part = left > (1u << 30) ? 1u << 30 : (unsigned)left;
        int n = gzread(file, (char *)out + got, part);
        if (n < 0) {
            int number = 0;
            const char *text = gzerror(file, &number);
            const char *descriptor = strstr(text, ">: "); /* "<fd:3>: ", which says nothing */
            return exo_fail(err, EXO_DAMAGED, "%s: is damaged: %s", path,
                            number == Z_ERRNO ? strerror(errno)
                            : descriptor      ? descriptor + 3
                                              : text);
        }
        if (n == 0)
            return exo_fail(err, EXO_DAMAGED, "%s: is truncated: it ends %zu bytes early", path,
                            left);
        got += (size_t)n;
    }
    return EXO_OK;
}

static exo_status
read_header(gzFile file, const char *path, size_t num_dims, struct idx *out, exo_err *err)
{
    uint8_t magic[4], number[4];
    exo_status st = read_exactly(file, path, magic, sizeof magic, err);
    if (st != EXO_OK)
        return st;
    if (magic[0] != 0 || magic[1] != 0 || magic[2] != 8 || magic[3] != num_dims)
        return exo_fail(
            err, EXO_DAMAGED,
            "%s: is not an IDX file of bytes with %zu dimensions: it begins with %02x%02x%02x%02x",
            path, num_dims, magic[0], magic[1], magic[2], magic[3]);
    out->bytes = 1;
    for (size_t d = 0; d < num_dims; d++) {
        st = read_exactly(file, path, number, sizeof number, err);
        if (st != EXO_OK)
            return st;
        out->dims[d] =
            (size_t)number[0] << 24 | (size_t)number[1] << 16 | (size_t)number[2] << 8 | number[3];
        if (__builtin_mul_overflow(out->bytes, out->dims[d], &out->bytes) ||
            out->bytes > MAX_IDX_BYTES)
            return exo_fail(err, EXO_DAMAGED, "%s: its header announces more than %zu bytes", path,
                            MAX_IDX_BYTES);
    }
    return EXO_OK;
}

/* Checks the size that the header claims, before memory is allocated: 16 bytes can claim gigabytes,
 * and a small packed file can contain them. */
static exo_status
check_claim(int fd, const char *path, size_t bytes, exo_err *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    if (bytes > LITTLE && bytes / MAX_RATIO > (size_t)info.st_size)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: its header announces %zu bytes, more than %d times the file's size: "
                        "is it damaged?",
                        path, bytes, MAX_RATIO);
    return exo_memory_expect(bytes, path, err);
}

static exo_status
read_idx(const char *path, size_t num_dims, struct idx *out, exo_err *err)
{
    int fd = -1;
    *out = (struct idx){0};
    exo_status st = exo_file_open(path, &fd, err);
    if (st != EXO_OK)
        return st;
    gzFile file = gzdopen(fd, "rb"); /* gzclose closes fd too */
    if (!file) {
        close(fd);
        return exo_fail(err, EXO_NOMEM, "%s: no memory to read it", path);
    }
    gzbuffer(file, 1 << 18);
    st = read_header(file, path, num_dims, out, err);
    if (st == EXO_OK)
        st = check_claim(fd, path, out->bytes, err);
    if (st == EXO_OK) {
        out->data = exo_calloc(out->bytes, 1);
        st = out->data ? read_exactly(file, path, out->data, out->bytes, err)
                       : exo_fail(err, EXO_NOMEM, "%s: no memory for %zu bytes", path, out->bytes);
    }
    uint8_t more;
    if (st == EXO_OK && gzread(file, &more, 1) != 0)
        st = exo_fail(err, EXO_DAMAGED,
                      "%s: has more bytes than its header says, or is damaged at its end", path);
    gzclose(file);
    if (st != EXO_OK) {
        exo_free(out->data);
        out->data = NULL;
    }
    return st;
}

exo_status
exo_dataset_idx(exo_dataset **out, const char *images_path, const char *labels_path,
                const exo_image_opts *opts, exo_err *err)
{
    struct idx images = {0}, labels = {0};
    exo_status st = read_idx(images_path, 3, &images, err);
    if (st == EXO_OK)
        st = read_idx(labels_path, 1, &labels, err);
    if (st == EXO_OK && images.dims[0] != labels.dims[0])
        st = exo_fail(err, EXO_DAMAGED, "%s has %zu images, %s has %zu labels", images_path,
                      images.dims[0], labels_path, labels.dims[0]);
    if (st != EXO_OK) {
        exo_free(images.data);
        exo_free(labels.data);
        return st;
    }
    st = exo_dataset_images_own(out, images.dims[0], images.dims[1], images.dims[2], images.data,
                                labels.data, opts, err);
    return st == EXO_OK ? EXO_OK : exo_fail_in(err, st, "%s", images_path);
}
