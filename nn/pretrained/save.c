/* Writes Hugging Face directories: the weights in one file or in shards, then their index, then
 * config.json. Each file is replaced atomically. Finally, stale files of an earlier save are
 * removed. One call owns all state. Read next: family.h, base/file.h. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/bf16.h"
#include "base/dir.h"
#include "base/file.h"
#include "nn/pretrained/family.h"
#include "nn/pretrained/pretrained.h"
#include "nn/pretrained/save_json.h"
#include "nn/pretrained/weights.h"

struct saving {
    const char *folder;
    const exo_family *family;
    const exo_decoder_spec *spec;
    exo_params *params;
    const _Atomic int *stop; /* not 0: no further tensor is written; NULL: never */
    bool bf16;
    exo_tensor_places places;
    size_t *shards; /* (places.count): the number of each tensor's file, from 0 */
    size_t num_shards;
};

static exo_status
fail_nomem(const struct saving *s, exo_err *err)
{
    return exo_fail(err, EXO_NOMEM, "%s: no memory to write it", s->folder);
}

static size_t
bytes_of(const struct saving *s, const exo_tensor_place *p)
{
    return exo_tensor_place_numel(p) * (s->bf16 ? 2 : 4);
}

static void
full_name(const struct saving *s, const exo_tensor_place *p, char out[2 * EXO_TENSOR_PLACE_NAME])
{
    strcpy(out, p->bare ? "" : s->family->prefixes[0]);
    strcat(out, p->tensor);
}

static void
shard_name(const struct saving *s, size_t shard, char out[64])
{
    if (s->num_shards == 1)
        strcpy(out, EXO_WEIGHTS_FILE);
    else
        snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, s->num_shards);
}

/* Distributes the tensors, in order, to files of at most `limit` bytes (0: one file). A tensor
 * larger than the limit has its own file. */
static exo_status
plan_shards(struct saving *s, size_t limit, exo_err *err)
{
    size_t used = 0, shard = 0;
    s->shards = exo_calloc(s->places.count + 1, sizeof *s->shards);
    if (!s->shards)
        return fail_nomem(s, err);
    for (size_t i = 0; i < s->places.count; i++) {
        size_t bytes = bytes_of(s, &s->places.items[i]);
        if (limit > 0 && used > 0 && bytes > limit - (used < limit ? used : limit)) {
            shard++;
            used = 0;
        }
        s->shards[i] = shard;
        used += bytes;
    }
    s->num_shards = shard + 1;
    return EXO_OK;
}

/* --- One file --------------------------------------------------------------------------------- */

/* The header of a shard, padded with spaces so that the data begin at a multiple of 8. */
static char *
make_header(const struct saving *s, size_t shard, size_t *length)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    size_t at = 0;
    bool good = header != NULL;
    for (size_t i = 0; good && i < s->places.count; i++) {
        const exo_tensor_place *p = &s->places.items[i];
        char name[2 * EXO_TENSOR_PLACE_NAME];
        if (s->shards[i] != shard)
            continue;
        json_t *shape = p->num_dims == 2
                            ? json_pack("[I, I]", (json_int_t)p->dims[0], (json_int_t)p->dims[1])
                            : json_pack("[I]", (json_int_t)p->dims[0]);
        size_t end = at + bytes_of(s, p);
        full_name(s, p, name);
        good = json_object_set_new(header, name,
                                   json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                                             s->bf16 ? "BF16" : "F32", "shape", shape,
                                             "data_offsets", (json_int_t)at, (json_int_t)end)) == 0;
        at = end;
    }
    size_t bare = good ? json_dumpb(header, NULL, 0, JSON_COMPACT) : 0, padded = (bare + 7) / 8 * 8;
    char *text = bare ? exo_calloc(padded + 1, 1) : NULL;
    if (text) {
        json_dumpb(header, text, bare, JSON_COMPACT);
        memset(text + bare, ' ', padded - bare);
        *length = padded;
    }
    json_decref(header);
    return text;
}

static exo_status
write_floats(const struct saving *s, exo_file *file, const float *values, size_t count,
             exo_err *err)
{
    uint16_t half[1024];
    exo_status st = EXO_OK;
    if (!s->bf16)
        return exo_file_write(file, values, count * sizeof *values, err);
    for (size_t at = 0; st == EXO_OK && at < count;) {
        size_t n = count - at < 1024 ? count - at : 1024;
        for (size_t i = 0; i < n; i++)
            half[i] = exo_to_bf16(values[at + i]);
        st = exo_file_write(file, half, n * sizeof *half, err);
        at += n;
    }
    return st;
}

static exo_status
write_tensor(const struct saving *s, exo_file *file, const exo_tensor_place *p, exo_err *err)
{
    size_t index = 0, count = exo_params_count(s->params);
    while (index < count && strcmp(exo_params_info(s->params, index)->name, p->param) != 0)
        index++;
    const exo_param_info *info = exo_params_info(s->params, index);
    size_t numel = exo_tensor_place_numel(p);
    if (!info || p->first + numel > info->numel)
        return exo_fail(err, EXO_INVAL, "%s: the parameters are of another model: '%s' is missing",
                        s->folder, p->param);
    const float *here = exo_params_at(s->params, index) + p->first;
    if (p->kind == EXO_TENSOR_PLACE_PLAIN)
        return write_floats(s, file, here, numel, err);
    float *there = exo_alloc_aligned(numel * sizeof *there);
    if (!there)
        return fail_nomem(s, err);
    exo_tensor_place_write(p, here, there);
    exo_status st = write_floats(s, file, there, numel, err);
    exo_free(there);
    return st;
}

static exo_status
write_shard(const struct saving *s, size_t shard, exo_err *err)
{
    char name[64], path[EXO_PRETRAINED_PATH];
    unsigned char size[8];
    size_t length = 0;
    exo_file file = {0};
    shard_name(s, shard, name);
    exo_status st = exo_pretrained_path(path, s->folder, name, err);
    char *header = st == EXO_OK ? make_header(s, shard, &length) : NULL;
    if (st == EXO_OK)
        st = header ? exo_file_create(&file, path, err) : fail_nomem(s, err);
    if (st != EXO_OK)
        goto done;
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)((uint64_t)length >> (8 * i));
    st = exo_file_write(&file, size, sizeof size, err);
    if (st == EXO_OK)
        st = exo_file_write(&file, header, length, err);
    for (size_t i = 0; st == EXO_OK && i < s->places.count; i++)
        if (s->stop && *s->stop)
            st = exo_fail(err, EXO_CANCELLED, "%s: stopped before it was written", s->folder);
        else if (s->shards[i] == shard)
            st = write_tensor(s, &file, &s->places.items[i], err);
    if (st == EXO_OK)
        st = exo_file_commit(&file, err);
    exo_file_abort(&file);
done:
    exo_free(header);
    return st;
}

/* --- The folder ------------------------------------------------------------------------------- */

static exo_status
write_index(const struct saving *s, exo_err *err)
{
    json_t *map = json_object();
    size_t total = 0;
    for (size_t i = 0; i < s->places.count; i++) {
        char name[2 * EXO_TENSOR_PLACE_NAME], file[64];
        full_name(s, &s->places.items[i], name);
        shard_name(s, s->shards[i], file);
        if (json_object_set_new(map, name, json_string(file)) != 0) {
            json_decref(map);
            return fail_nomem(s, err);
        }
        total += bytes_of(s, &s->places.items[i]);
    }
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    exo_status st = exo_pretrained_write_json(s->folder, EXO_WEIGHTS_INDEX, index, err);
    json_decref(index);
    return st;
}

/* The special tokens belong to the tokenizer. They are null here: if they were missing,
 * transformers would take the family's defaults, and end texts at tokens with another meaning. */
static exo_status
write_config(const struct saving *s, exo_err *err)
{
    json_t *config = s->family->write(s->spec);
    json_t *shared =
        json_pack("{s:[s], s:s, s:s, s:n, s:n, s:n}", "architectures", s->family->architecture,
                  "model_type", s->family->name, "torch_dtype", s->bf16 ? "bfloat16" : "float32",
                  "bos_token_id", "eos_token_id", "pad_token_id");
    exo_status st = config && shared && json_object_update(shared, config) == 0
                        ? exo_pretrained_write_json(s->folder, EXO_CONFIG_FILE, shared, err)
                        : fail_nomem(s, err);
    json_decref(shared);
    json_decref(config);
    return st;
}

/* True: `name` is a weights file of an earlier save, which a reader would take instead of this
 * save's files, or beside them. */
static bool
is_stale(const struct saving *s, const char *name)
{
    size_t shard = 0, of = 0;
    int end = 0;
    char mine[64];
    if (strcmp(name, EXO_WEIGHTS_FILE) == 0)
        return s->num_shards > 1;
    if (strcmp(name, EXO_WEIGHTS_INDEX) == 0)
        return s->num_shards == 1;
    if (sscanf(name, "model-%5zu-of-%5zu.safetensors%n", &shard, &of, &end) != 2 || end == 0 ||
        name[end] != '\0')
        return false;
    if (s->num_shards == 1 || shard < 1 || shard > s->num_shards)
        return true;
    shard_name(s, shard - 1, mine);
    return strcmp(name, mine) != 0;
}

static exo_status
remove_stale(const struct saving *s, exo_err *err)
{
    DIR *folder = exo_dir_list(s->folder);
    exo_status st = EXO_OK;
    if (!folder)
        return exo_fail(err, EXO_IO, "%s: %s", s->folder, exo_dir_reason(errno));
    for (struct dirent *entry; st == EXO_OK && (entry = readdir(folder));)
        if (is_stale(s, entry->d_name) && unlinkat(dirfd(folder), entry->d_name, 0) != 0)
            st = exo_fail(err, EXO_IO, "%s/%s: %s", s->folder, entry->d_name, strerror(errno));
    closedir(folder);
    return st;
}

exo_status
exo_pretrained_can_write(const exo_decoder_spec *spec, exo_err *err)
{
    const exo_family *family = NULL;
    return exo_family_check(&family, spec, err);
}

exo_status
exo_pretrained_write(const char *folder, const exo_decoder_spec *spec, exo_params *params,
                     exo_dtype dtype, size_t shard_bytes, const _Atomic int *stop, exo_err *err)
{
    struct saving s = {
        .folder = folder, .spec = spec, .params = params, .stop = stop, .bf16 = dtype == EXO_BF16};
    if (dtype != EXO_F32 && dtype != EXO_BF16)
        return exo_fail(err, EXO_INVAL, "%s: a decoder is saved as float32 or bfloat16, not %s",
                        folder, exo_dtype_name(dtype));
    exo_status st = exo_family_check(&s.family, s.spec, err);
    if (st == EXO_OK)
        st = exo_dir_guard(folder, err); /* a folder from elsewhere may have links in it */
    if (st == EXO_OK)
        st = exo_folder_make(folder, err);
    if (st == EXO_OK)
        st = exo_pretrained_check_adapter(folder, EXO_INVAL,
                                          "the folder has an adapter, and a model needs its own: "
                                          "give another one",
                                          err);
    if (st == EXO_OK)
        st = exo_family_places(s.family, s.spec, &s.places, err);
    if (st == EXO_OK)
        st = plan_shards(&s, shard_bytes, err);
    for (size_t i = 0; st == EXO_OK && i < s.num_shards; i++)
        st = write_shard(&s, i, err);
    if (st == EXO_OK && s.num_shards > 1)
        st = write_index(&s, err);
    if (st == EXO_OK)
        st = write_config(&s, err);
    if (st == EXO_OK)
        st = remove_stale(&s, err);
    exo_tensor_places_release(&s.places);
    exo_free(s.shards);
    return st;
}
