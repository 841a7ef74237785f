/* State: lists of named tensors, and safetensors files.
 *
 * A file is 8 bytes with the header's length (little-endian), the header (JSON: name -> dtype,
 * shape, data_offsets, relative to the end of the header), and the data. Loading checks the header,
 * the types and shapes, and all sizes before it changes an entry; then it reads the bytes in place.
 *
 * A list belongs to its user; the tensors' memory belongs to the caller. Read next:
 * exogym/state.h. */
#include <exogym/state.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/hash.h"

#define MAX_HEADER (UINT64_C(64) << 20)

struct entry {
    char *name;
    exo_dtype dtype;
    void *data;
    /* The device that `data` is an address of. NULL: host memory. */
    exo_device *device;
    size_t num_dims;
    size_t dims[EXO_MAX_DIMS];
    uint64_t bytes;
};

struct exo_state {
    struct entry *entries;
    size_t count, cap;
    char *prefix;
    json_t *metadata;
    exo_err error; /* the first of an add; save and load report it */
};

static const struct {
    exo_dtype dtype;
    const char *name;
} type_names[] = {
    {EXO_F32, "F32"}, {EXO_BF16, "BF16"}, {EXO_I32, "I32"},
    {EXO_U8, "U8"},   {EXO_I8, "I8"},     {EXO_I64, "I64"},
};

static const char *
type_name(exo_dtype dtype)
{
    for (size_t i = 0; i < sizeof type_names / sizeof type_names[0]; i++)
        if (type_names[i].dtype == dtype)
            return type_names[i].name;
    return "?";
}

exo_status
exo_state_new(exo_state **out, exo_err *err)
{
    exo_state *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a state");
    *out = s;
    return EXO_OK;
}

void
exo_state_free(exo_state **state)
{
    exo_state *s = *state;
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++)
        exo_free(s->entries[i].name);
    exo_free(s->entries);
    exo_free(s->prefix);
    json_decref(s->metadata);
    exo_free(s);
    *state = NULL;
}

void
exo_state_prefix(exo_state *state, const char *prefix)
{
    exo_free(state->prefix);
    state->prefix = prefix ? exo_strdup(prefix) : NULL;
    if (prefix && !state->prefix)
        exo_fail(&state->error, EXO_NOMEM, "no memory for the prefix '%s'", prefix);
}

void
exo_state_metadata(exo_state *state, const char *key, const char *value)
{
    if (!state->metadata)
        state->metadata = json_object();
    if (json_object_set_new(state->metadata, key, json_string(value)) != 0)
        exo_fail(&state->error, EXO_INVAL,
                 "the metadata '%s' is not UTF-8 text, or there is no memory", key);
}

static bool
grow(exo_state *s)
{
    if (s->count < s->cap)
        return true;
    size_t cap = s->cap ? 2 * s->cap : 32;
    struct entry *larger = exo_realloc(s->entries, cap, sizeof *larger);
    if (!larger)
        return false;
    s->entries = larger;
    s->cap = cap;
    return true;
}

void
exo_state_add_shaped(exo_state *state, const char *name, exo_dtype dtype, void *data,
                     size_t num_dims, const size_t *dims)
{
    if (state->error.code != EXO_OK)
        return;
    size_t prefix = state->prefix ? strlen(state->prefix) + 1 : 0;
    struct entry e = {
        .dtype = dtype, .data = data, .num_dims = num_dims, .bytes = exo_dtype_size(dtype)};
    e.name = exo_calloc(prefix + strlen(name) + 1, 1);
    if (!e.name || !grow(state)) {
        exo_free(e.name);
        exo_fail(&state->error, EXO_NOMEM, "no memory for the entry '%s'", name);
        return;
    }
    if (prefix)
        sprintf(e.name, "%s.%s", state->prefix, name);
    else
        strcpy(e.name, name);
    for (size_t d = 0; d < num_dims && d < EXO_MAX_DIMS; d++) {
        e.dims[d] = dims[d];
        e.bytes *= dims[d];
    }
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->entries[i].name, e.name) == 0)
            exo_fail(&state->error, EXO_EXISTS, "the state has two entries '%s'", e.name);
    if (!data && e.bytes > 0)
        exo_fail(&state->error, EXO_INVAL, "the entry '%s' of the state has no memory: NULL",
                 e.name);
    if (num_dims > EXO_MAX_DIMS || strcmp(e.name, "__metadata__") == 0)
        exo_fail(&state->error, EXO_INVAL, "'%s' cannot be an entry of a state", e.name);
    state->entries[state->count++] = e;
}

void
exo_state_add(exo_state *state, const char *name, exo_dtype dtype, void *data, size_t numel)
{
    exo_state_add_shaped(state, name, dtype, data, 1, &numel);
}

void
exo_state_add_shaped_array(exo_state *state, const char *name, exo_array array, size_t num_dims,
                           const size_t *dims)
{
    size_t before = state->count;
    exo_state_add_shaped(state, name, array.dtype, array.data, num_dims, dims);
    if (state->count > before && array.device && !exo_device_is_host(array.device))
        state->entries[before].device = array.device;
}

void
exo_state_add_array(exo_state *state, const char *name, exo_array array)
{
    exo_state_add_shaped_array(state, name, array, 1, &array.count);
}

void
exo_state_add_u64(exo_state *state, const char *name, uint64_t *value)
{
    exo_state_add_shaped(state, name, EXO_I64, value, 0, NULL);
}

exo_status
exo_state_check(const exo_state *state, exo_err *err)
{
    return state->error.code == EXO_OK ? EXO_OK
                                       : exo_fail(err, state->error.code, "%s", state->error.text);
}

/* --- Entries on a device ---------------------------------------------------------------------- */

enum {
    STAGE = 1 << 20 /* bytes copied to or from a device at a time */
};

/* Calls `part` for the entry's bytes, piece by piece, in host memory. With `fill`, part writes the
 * bytes of the entry; else it reads them. */
static exo_status
through_host(const struct entry *e, bool fill,
             exo_status (*part)(void *context, void *bytes, size_t size, exo_err *err),
             void *context, exo_err *err)
{
    if (!e->device)
        return part(context, e->data, e->bytes, err);
    char *stage = exo_calloc(1, STAGE);
    exo_status st =
        stage ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to copy the entry '%s'", e->name);
    for (uint64_t at = 0; st == EXO_OK && at < e->bytes; at += STAGE) {
        size_t size = e->bytes - at < STAGE ? e->bytes - at : STAGE;
        const exo_array bytes = {
            .device = e->device, .data = (char *)e->data + at, .count = size, .dtype = EXO_U8};
        if (!fill)
            st = exo_array_read(bytes, stage, err);
        if (st == EXO_OK)
            st = part(context, stage, size, err);
        if (st == EXO_OK && fill)
            st = exo_array_write(bytes, stage, err);
    }
    exo_free(stage);
    return st;
}

/* --- Saving ----------------------------------------------------------------------------------- */

static json_t *
entry_header(const struct entry *e, uint64_t first)
{
    json_t *shape = json_array();
    for (size_t d = 0; d < e->num_dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)e->dims[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_name(e->dtype), "shape", shape,
                     "data_offsets", (json_int_t)first, (json_int_t)(first + e->bytes));
}

/* The header, padded with spaces to a multiple of 8, so that the data is aligned. */
static exo_status
make_header(const exo_state *s, char **out, uint64_t *length, exo_err *err)
{
    json_t *header = json_object();
    uint64_t at = 0;
    bool good = header != NULL;
    if (s->metadata)
        good = json_object_set(header, "__metadata__", s->metadata) == 0;
    for (size_t i = 0; good && i < s->count; i++) {
        good =
            json_object_set_new(header, s->entries[i].name, entry_header(&s->entries[i], at)) == 0;
        at += s->entries[i].bytes;
    }
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text)
        return exo_fail(err, EXO_NOMEM, "no memory for a header of %zu entries", s->count);
    size_t bare = strlen(text), padded = (bare + 7) / 8 * 8;
    *out = exo_calloc(padded + 1, 1);
    if (*out) {
        memcpy(*out, text, bare);
        memset(*out + bare, ' ', padded - bare);
        *length = padded;
    }
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a header of %zu bytes", padded);
}

/* Writes bytes, and adds them to the hash. Either may be NULL. */
static exo_status
write_part(exo_file *file, exo_hash *hash, const void *data, size_t size, exo_err *err)
{
    if (hash)
        exo_hash_add(hash, data, size);
    return file ? exo_file_write(file, data, size, err) : EXO_OK;
}

struct writer {
    exo_file *file;
    exo_hash *hash;
};

static exo_status
write_bytes(void *context, void *bytes, size_t size, exo_err *err)
{
    const struct writer *w = context;
    return write_part(w->file, w->hash, bytes, size, err);
}

static exo_status
write_parts(const exo_state *state, exo_file *file, exo_hash *hash, const char *header,
            uint64_t length, exo_err *err)
{
    unsigned char size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)(length >> (8 * i));
    exo_status st = write_part(file, hash, size, sizeof size, err);
    if (st == EXO_OK)
        st = write_part(file, hash, header, length, err);
    struct writer w = {.file = file, .hash = hash};
    for (size_t i = 0; st == EXO_OK && i < state->count; i++)
        st = through_host(&state->entries[i], false, write_bytes, &w, err);
    return st;
}

exo_status
exo_state_save_hashed(exo_state *state, const char *path, char sha256[65], exo_err *err)
{
    if (state->error.code != EXO_OK)
        return exo_fail(err, state->error.code, "%s: %s", path, state->error.text);
    char *header = NULL;
    uint64_t length = 0;
    exo_file file = {0};
    exo_hash hash = {0};
    exo_status st = make_header(state, &header, &length, err);
    if (st == EXO_OK && sha256)
        st = exo_hash_init(&hash, err);
    if (st == EXO_OK)
        st = exo_file_create(&file, path, err);
    if (st != EXO_OK)
        goto done;
    st = write_parts(state, &file, sha256 ? &hash : NULL, header, length, err);
    if (st == EXO_OK && sha256 && !exo_hash_end(&hash, sha256))
        st = exo_fail(err, EXO_FAILED, "%s: libcrypto gives no SHA-256", path);
    if (st == EXO_OK)
        st = exo_file_commit(&file, err);
    exo_file_abort(&file);
done:
    exo_hash_release(&hash);
    exo_free(header);
    return st;
}

exo_status
exo_state_save(exo_state *state, const char *path, exo_err *err)
{
    return exo_state_save_hashed(state, path, NULL, err);
}

/* --- Seals ------------------------------------------------------------------------------------ */

/* Before the 64 digits of a seal in a header. */
#define SEAL "\"sha256\":\""

enum {
    DIGITS = 64
};

/* Finds the digits of the seal in a header; NULL: it has none. */
static char *
find_seal(char *header)
{
    char *at = strstr(header, SEAL);
    if (!at || strspn(at + strlen(SEAL), "0123456789abcdef") != DIGITS)
        return NULL;
    return at + strlen(SEAL);
}

/* Writes the file's hash over the zeros in its header. */
static exo_status
seal(const exo_state *state, char *header, uint64_t length, const char *path, exo_err *err)
{
    char sha256[DIGITS + 1], *digits = find_seal(header);
    exo_hash hash = {0};
    if (!digits)
        return exo_fail(err, EXO_INVAL, "%s: the header has no place for its hash", path);
    exo_status st = exo_hash_init(&hash, err);
    if (st == EXO_OK)
        st = write_parts(state, NULL, &hash, header, length, err);
    if (st == EXO_OK && !exo_hash_end(&hash, sha256))
        st = exo_fail(err, EXO_FAILED, "%s: libcrypto gives no SHA-256", path);
    if (st == EXO_OK)
        memcpy(digits, sha256, DIGITS);
    exo_hash_release(&hash);
    return st;
}

exo_status
exo_state_save_sealed(exo_state *state, const char *path, exo_err *err)
{
    char zeros[DIGITS + 1], *header = NULL;
    uint64_t length = 0;
    exo_file file = {0};
    memset(zeros, '0', DIGITS);
    zeros[DIGITS] = '\0';
    exo_state_metadata(state, "sha256", zeros);
    if (state->error.code != EXO_OK)
        return exo_fail(err, state->error.code, "%s: %s", path, state->error.text);
    exo_status st = make_header(state, &header, &length, err);
    if (st == EXO_OK)
        st = seal(state, header, length, path, err);
    if (st == EXO_OK)
        st = exo_file_create(&file, path, err);
    if (st == EXO_OK) {
        st = write_parts(state, &file, NULL, header, length, err);
        if (st == EXO_OK)
            st = exo_file_commit(&file, err);
        exo_file_abort(&file);
    }
    exo_free(header);
    return st;
}

/* --- Copies in memory -------------------------------------------------------------------------- */

/* exo_state's part functions: *context is the place in the copy. */
static exo_status
store_part(void *context, void *bytes, size_t size, exo_err *err)
{
    char **at = context;
    (void)err;
    if (size > 0)
        memcpy(*at, bytes, size);
    *at += size;
    return EXO_OK;
}

static exo_status
restore_part(void *context, void *bytes, size_t size, exo_err *err)
{
    const char **at = context;
    (void)err;
    if (size > 0)
        memcpy(bytes, *at, size);
    *at += size;
    return EXO_OK;
}

size_t
exo_state_count(const exo_state *state)
{
    return state->count;
}

exo_array
exo_state_entry(const exo_state *state, size_t index, const char **name)
{
    const struct entry *e = &state->entries[index];
    const size_t count = (size_t)(e->bytes / exo_dtype_size(e->dtype));
    if (name)
        *name = e->name;
    exo_array array = exo_host_array(e->dtype, e->data, count);
    if (e->device)
        array.device = e->device;
    return array;
}

uint64_t
exo_state_bytes(const exo_state *state)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < state->count; i++)
        sum += state->entries[i].bytes;
    return sum;
}

exo_status
exo_state_store(const exo_state *state, void *out, exo_err *err)
{
    char *at = out;
    exo_status st = state->error.code;
    if (st != EXO_OK)
        return exo_fail(err, st, "%s", state->error.text);
    for (size_t i = 0; st == EXO_OK && i < state->count; i++)
        st = through_host(&state->entries[i], false, store_part, &at, err);
    return st;
}

exo_status
exo_state_restore(const exo_state *state, const void *bytes, exo_err *err)
{
    const char *at = bytes;
    exo_status st = state->error.code;
    if (st != EXO_OK)
        return exo_fail(err, st, "%s", state->error.text);
    for (size_t i = 0; st == EXO_OK && i < state->count; i++)
        st = through_host(&state->entries[i], true, restore_part, &at, err);
    return st;
}

exo_status
exo_state_layout(const exo_state *state, char sha256[65], exo_err *err)
{
    char *header = NULL;
    uint64_t length = 0;
    exo_status st = make_header(state, &header, &length, err);
    if (st == EXO_OK)
        exo_sha256(header, length, sha256);
    exo_free(header);
    return st;
}

/* --- Loading ---------------------------------------------------------------------------------- */

/* An open file with its parsed header. */
struct reader {
    const char *path;
    FILE *stream;
    json_t *header;
    uint64_t data_at, data_bytes;
};

static void
close_reader(struct reader *r)
{
    if (r->stream)
        fclose(r->stream);
    json_decref(r->header);
}

/* Reads the next bytes of the file. Errors: IO, also if the file ends before. */
static exo_status
read_bytes(void *context, void *bytes, size_t size, exo_err *err)
{
    const struct reader *r = context;
    if (fread(bytes, 1, size, r->stream) == size)
        return EXO_OK;
    return exo_fail(err, EXO_IO, "%s: %s", r->path,
                    ferror(r->stream) ? strerror(errno) : "became shorter while it was read");
}

static exo_status
open_reader(struct reader *r, const char *path, exo_err *err)
{
    *r = (struct reader){.path = path};
    unsigned char size[8];
    uint64_t length = 0;
    exo_status st = exo_file_open_stream(path, &r->stream, err);
    if (st != EXO_OK)
        return st;
    if (fseeko(r->stream, 0, SEEK_END) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    uint64_t total = (uint64_t)ftello(r->stream);
    rewind(r->stream);
    if (fread(size, 1, sizeof size, r->stream) != sizeof size)
        return exo_fail(err, EXO_INVAL, "%s: is truncated: it has %llu bytes", path,
                        (unsigned long long)total);
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)size[i] << (8 * i);
    if (length > MAX_HEADER || length > total - sizeof size)
        return exo_fail(
            err, EXO_INVAL,
            "%s: is truncated or not a safetensors file: a header of %llu bytes in a file of %llu",
            path, (unsigned long long)length, (unsigned long long)total);
    char *text = exo_calloc(length + 1, 1);
    if (!text)
        return exo_fail(err, EXO_NOMEM, "%s: no memory for its header", path);
    st = read_bytes(r, text, length, err);
    json_error_t reason;
    if (st == EXO_OK)
        r->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    exo_free(text);
    if (st != EXO_OK)
        return st;
    if (!json_is_object(r->header))
        return exo_fail(err, EXO_INVAL, "%s: its header is not a JSON object: %s", path,
                        reason.text);
    r->data_at = sizeof size + length;
    r->data_bytes = total - r->data_at;
    return EXO_OK;
}

static bool
same_shape(const struct entry *e, const json_t *shape)
{
    if (!json_is_array(shape) || json_array_size(shape) != e->num_dims)
        return false;
    for (size_t d = 0; d < e->num_dims; d++) {
        const json_t *item = json_array_get(shape, d);
        if (!json_is_integer(item) || json_integer_value(item) != (json_int_t)e->dims[d])
            return false;
    }
    return true;
}

/* *first: the position of an entry's bytes in the file. Errors: INVAL if the header does not match
 * the entry. */
static exo_status
find_entry(const struct reader *r, const struct entry *e, uint64_t *first, exo_err *err)
{
    const json_t *info = json_object_get(r->header, e->name);
    if (!info)
        return exo_fail(err, EXO_INVAL, "%s: has no entry '%s'", r->path, e->name);
    const char *dtype = json_string_value(json_object_get(info, "dtype"));
    if (!dtype || strcmp(dtype, type_name(e->dtype)) != 0 ||
        !same_shape(e, json_object_get(info, "shape")))
        return exo_fail(err, EXO_INVAL,
                        "%s: its entry '%s' has another type or shape than expected", r->path,
                        e->name);
    const json_t *offsets = json_object_get(info, "data_offsets");
    json_int_t from = json_integer_value(json_array_get(offsets, 0));
    json_int_t to = json_integer_value(json_array_get(offsets, 1));
    if (json_array_size(offsets) != 2 || from < 0 || to < from ||
        (uint64_t)(to - from) != e->bytes || (uint64_t)to > r->data_bytes)
        return exo_fail(err, EXO_INVAL,
                        "%s: is truncated or damaged: its entry '%s' lies outside the file",
                        r->path, e->name);
    *first = r->data_at + (uint64_t)from;
    return EXO_OK;
}

static exo_status
check_header(const struct reader *r, const exo_state *s, exo_err *err)
{
    uint64_t all = 0, first = 0;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < s->count; i++) {
        st = find_entry(r, &s->entries[i], &first, err);
        all += s->entries[i].bytes;
    }
    size_t extra = json_object_get(r->header, "__metadata__") ? 1 : 0;
    if (st == EXO_OK && json_object_size(r->header) != s->count + extra)
        return exo_fail(err, EXO_INVAL, "%s: has %zu entries, %zu are expected", r->path,
                        json_object_size(r->header) - extra, s->count);
    if (st == EXO_OK && all != r->data_bytes)
        return exo_fail(err, EXO_INVAL, "%s: has %llu bytes of data, %llu are expected", r->path,
                        (unsigned long long)r->data_bytes, (unsigned long long)all);
    return st;
}

exo_status
exo_state_load(exo_state *state, const char *path, exo_err *err)
{
    if (state->error.code != EXO_OK)
        return exo_fail(err, state->error.code, "%s: %s", path, state->error.text);
    struct reader r;
    exo_status st = open_reader(&r, path, err);
    if (st == EXO_OK)
        st = check_header(&r, state, err);
    for (size_t i = 0; st == EXO_OK && i < state->count; i++) {
        struct entry *e = &state->entries[i];
        uint64_t first = 0;
        st = find_entry(&r, e, &first, err);
        if (st == EXO_OK && fseeko(r.stream, (off_t)first, SEEK_SET) != 0)
            st = exo_fail(err, EXO_IO, "%s: entry '%s': %s", path, e->name, strerror(errno));
        if (st == EXO_OK)
            st = through_host(e, true, read_bytes, &r, err);
    }
    close_reader(&r);
    return st;
}

/* Hashes an open file whose header is `text`, with zeros for the digits of the seal. */
static exo_status
hash_rest(const struct reader *r, const unsigned char size[8], const char *text, uint64_t length,
          char sha256[65], exo_err *err)
{
    exo_hash hash = {0};
    char *part = exo_calloc(1, STAGE);
    exo_status st = part ? exo_hash_init(&hash, err)
                         : exo_fail(err, EXO_NOMEM, "%s: no memory to check it", r->path);
    if (st == EXO_OK) {
        exo_hash_add(&hash, size, 8);
        exo_hash_add(&hash, text, length);
    }
    for (uint64_t left = r->data_bytes; st == EXO_OK && left > 0;) {
        size_t now = left < STAGE ? (size_t)left : STAGE;
        st = read_bytes((void *)(uintptr_t)r, part, now, err);
        if (st == EXO_OK)
            exo_hash_add(&hash, part, now);
        left -= now;
    }
    if (st == EXO_OK && !exo_hash_end(&hash, sha256))
        st = exo_fail(err, EXO_FAILED, "%s: libcrypto gives no SHA-256", r->path);
    exo_hash_release(&hash);
    exo_free(part);
    return st;
}

exo_status
exo_state_check_seal(const char *path, exo_err *err)
{
    struct reader r;
    unsigned char size[8];
    char said[DIGITS + 1] = "", has[DIGITS + 1] = "", *text = NULL, *digits = NULL;
    exo_status st = open_reader(&r, path, err);
    uint64_t length = st == EXO_OK ? r.data_at - sizeof size : 0;
    if (st == EXO_INVAL)
        st = exo_fail(err, EXO_DAMAGED, "%s: is damaged: truncated, or no safetensors file", path);
    if (st == EXO_OK && !(text = exo_calloc(length + 1, 1)))
        st = exo_fail(err, EXO_NOMEM, "%s: no memory for its header", path);
    if (st == EXO_OK) {
        rewind(r.stream);
        st = read_bytes(&r, size, sizeof size, err);
    }
    if (st == EXO_OK)
        st = read_bytes(&r, text, length, err);
    if (st == EXO_OK && !(digits = find_seal(text)))
        st = exo_fail(err, EXO_DAMAGED, "%s: is damaged: its header has no SHA-256", path);
    if (st == EXO_OK) {
        memcpy(said, digits, DIGITS);
        memset(digits, '0', DIGITS);
        st = hash_rest(&r, size, text, length, has, err);
    }
    if (st == EXO_OK && strcmp(said, has) != 0)
        st = exo_fail(err, EXO_DAMAGED,
                      "%s: is damaged: its bytes have another SHA-256 than when "
                      "it was written",
                      path);
    exo_free(text);
    close_reader(&r);
    return st;
}

exo_status
exo_state_read_metadata(const char *path, const char *key, char **out, exo_err *err)
{
    struct reader r;
    exo_status st = open_reader(&r, path, err);
    const char *value =
        st == EXO_OK
            ? json_string_value(json_object_get(json_object_get(r.header, "__metadata__"), key))
            : NULL;
    if (st == EXO_OK && !value)
        st = exo_fail(err, EXO_NOT_FOUND, "%s: has no metadata '%s'", path, key);
    if (st == EXO_OK && !(*out = exo_strdup(value)))
        st = exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    close_reader(&r);
    return st;
}
