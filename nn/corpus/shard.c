/* Token shards: see shard.h. */
#include "nn/corpus/shard.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/hash.h"

/* Offsets of the header's fields. All other bytes are zero. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_WIDTH = 12,
    AT_COUNT = 16,
    AT_VOCABULARY = 24,
    AT_END = 32,
    AT_TOKENIZER = 48,
    AT_CHECKSUM = 96,        /* SHA-256 of the bytes before it */
    MAX_TOKENIZER = 1 << 30, /* bytes of a tokenizer.json */
    MAX_PATH = 4096,
    BUFFER = 1 << 16 /* tokens in a writer's buffer */
};

static const char magic[8] = {'E', 'X', 'O', 'T', 'O', 'K', 'E', 'N'};

/* --- Header ----------------------------------------------------------------------------------- */

static void
put_u32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static void
put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static uint32_t
get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t
get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

void
exo_shard_pack(const exo_shard_info *info, uint8_t out[EXO_SHARD_HEADER])
{
    memset(out, 0, EXO_SHARD_HEADER);
    memcpy(out + AT_MAGIC, magic, sizeof magic);
    put_u32(out + AT_VERSION, EXO_SHARD_VERSION);
    put_u32(out + AT_WIDTH, info->width);
    put_u64(out + AT_COUNT, info->count);
    put_u64(out + AT_VOCABULARY, info->vocabulary);
    put_u32(out + AT_END, (uint32_t)info->end);
    memcpy(out + AT_TOKENIZER, info->tokenizer, sizeof info->tokenizer);
    exo_sha256_bytes(out, AT_CHECKSUM, out + AT_CHECKSUM);
}

exo_status
exo_shard_unpack(const uint8_t header[EXO_SHARD_HEADER], exo_shard_info *out, exo_err *err)
{
    uint8_t checksum[32];
    if (memcmp(header + AT_MAGIC, magic, sizeof magic) != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "is not a token shard: it does not begin with EXOTOKEN; for bare "
                        "numbers, set dtype: uint16");
    if (get_u32(header + AT_VERSION) != EXO_SHARD_VERSION)
        return exo_fail(err, EXO_DAMAGED,
                        "byte %d: token shards have the unknown version %u; expected %d",
                        AT_VERSION, get_u32(header + AT_VERSION), EXO_SHARD_VERSION);
    exo_sha256_bytes(header, AT_CHECKSUM, checksum);
    if (memcmp(header + AT_CHECKSUM, checksum, sizeof checksum) != 0)
        return exo_fail(err, EXO_DAMAGED, "byte %d: the header is damaged: its SHA-256 differs",
                        AT_CHECKSUM);
    *out = (exo_shard_info){.width = get_u32(header + AT_WIDTH),
                            .count = get_u64(header + AT_COUNT),
                            .vocabulary = get_u64(header + AT_VOCABULARY),
                            .end = (int32_t)get_u32(header + AT_END)};
    memcpy(out->tokenizer, header + AT_TOKENIZER, sizeof out->tokenizer);
    if (out->width != 2 && out->width != 4)
        return exo_fail(err, EXO_DAMAGED, "byte %d: a token has %u bytes; expected 2 or 4",
                        AT_WIDTH, out->width);
    if (out->count == 0)
        return exo_fail(err, EXO_DAMAGED, "byte %d: the shard has no tokens", AT_COUNT);
    if (out->vocabulary == 0 || out->vocabulary > INT32_MAX)
        return exo_fail(err, EXO_DAMAGED, "byte %d: a vocabulary of %" PRIu64, AT_VOCABULARY,
                        out->vocabulary);
    if (out->end < -1 || (out->end >= 0 && (uint64_t)out->end >= out->vocabulary))
        return exo_fail(err, EXO_DAMAGED,
                        "byte %d: the end token %" PRId32 " is not in the vocabulary", AT_END,
                        out->end);
    return EXO_OK;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static exo_status
check_shard(const char *path, const uint8_t *map, size_t bytes, exo_shard_info *info, exo_err *err)
{
    if (bytes < EXO_SHARD_HEADER)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: is truncated at byte %zu: a token shard has a header of %d", path,
                        bytes, EXO_SHARD_HEADER);
    exo_status st = exo_shard_unpack(map, info, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "%s", path);
    uint64_t held = (bytes - EXO_SHARD_HEADER) / info->width;
    if (held < info->count)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: is truncated at byte %zu: it holds %" PRIu64 " of its %" PRIu64
                        " tokens",
                        path, bytes, held, info->count);
    if (held > info->count || (bytes - EXO_SHARD_HEADER) % info->width != 0)
        return exo_fail(err, EXO_DAMAGED, "%s: continues after its last token, at byte %" PRIu64,
                        path, EXO_SHARD_HEADER + info->count * info->width);
    return EXO_OK;
}

static exo_status
check_bare(const char *path, size_t bytes, exo_token_files files, exo_shard_info *info,
           exo_err *err)
{
    *info = (exo_shard_info){.width = files == EXO_TOKEN_FILES_U16 ? 2 : 4, .end = -1};
    info->count = bytes / info->width;
    if (bytes % info->width != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: has %zu bytes, which is not a multiple of a token's %u bytes", path,
                        bytes, info->width);
    return EXO_OK;
}

static exo_status
map_file(const char *path, void **map, size_t *bytes, exo_err *err)
{
    struct stat info;
    int fd = -1;
    exo_status st = exo_file_open(path, &fd, err);
    if (st != EXO_OK)
        return st;
    *map = NULL;
    if (fstat(fd, &info) != 0)
        st = exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    else if (info.st_size == 0)
        st = exo_fail(err, EXO_DAMAGED, "%s: is empty", path);
    if (st == EXO_OK) {
        *bytes = (size_t)info.st_size;
        void *at = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            st = exo_fail(err, errno == ENOMEM ? EXO_NOMEM : EXO_IO, "%s: cannot be mapped: %s",
                          path, strerror(errno));
        else
            *map = at;
    }
    close(fd);
    return st;
}

exo_status
exo_shard_map(const char *path, exo_token_files files, exo_corpus_part *out, exo_shard_info *info,
              exo_err *err)
{
    exo_corpus_part part = {0};
    exo_status st = map_file(path, &part.map, &part.map_bytes, err);
    if (st != EXO_OK)
        return st;
    bool bare = files != EXO_TOKEN_FILES_SHARDS;
    st = bare ? check_bare(path, part.map_bytes, files, info, err)
              : check_shard(path, part.map, part.map_bytes, info, err);
    if (st == EXO_OK && !(part.path = exo_strdup(path)))
        st = exo_fail(err, EXO_NOMEM, "no memory for a path");
    if (st != EXO_OK) {
        munmap(part.map, part.map_bytes);
        return st;
    }
    part.tokens = (const char *)part.map + (bare ? 0 : EXO_SHARD_HEADER);
    part.count = info->count;
    part.width = info->width;
    *out = part;
    return EXO_OK;
}

exo_status
exo_tokenizer_file_hash(const char *path, uint8_t out[32], exo_err *err)
{
    struct stat info;
    char file[MAX_PATH], *text = NULL;
    size_t size = 0;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (snprintf(file, sizeof file, "%s%s", path, folder ? "/tokenizer.json" : "") >=
        (int)sizeof file)
        return exo_fail(err, EXO_INVAL, "%s: the path is too long", path);
    exo_status st = exo_file_read(file, MAX_TOKENIZER, &text, &size, err);
    if (st == EXO_OK)
        exo_sha256_bytes(text, size, out);
    exo_free(text);
    return st;
}

/* --- Writing ---------------------------------------------------------------------------------- */

exo_status
exo_shard_writer_init(exo_shard_writer *writer, const char *folder, const exo_shard_info *info,
                      uint64_t per_shard, exo_err *err)
{
    *writer = (exo_shard_writer){.folder = folder, .info = *info, .per_shard = per_shard};
    writer->info.count = 0;
    writer->buffer = exo_calloc(BUFFER, info->width);
    return writer->buffer ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to write tokens");
}

static exo_status
begin_shard(exo_shard_writer *w, exo_err *err)
{
    char path[MAX_PATH];
    const uint8_t nothing[EXO_SHARD_HEADER] = {0};
    if (snprintf(path, sizeof path, "%s/shard-%06zu" EXO_SHARD_ENDING, w->folder, w->shards) >=
        (int)sizeof path)
        return exo_fail(err, EXO_INVAL, "%s: the path is too long", w->folder);
    exo_status st = exo_file_create(&w->file, path, err);
    if (st != EXO_OK)
        return st;
    w->shards++;
    w->info.count = 0;
    return exo_file_write(&w->file, nothing, sizeof nothing, err);
}

exo_status
exo_shard_writer_finish(exo_shard_writer *writer, exo_err *err)
{
    uint8_t header[EXO_SHARD_HEADER];
    if (!writer->file.stream)
        return EXO_OK;
    exo_shard_pack(&writer->info, header);
    if (fseeko(writer->file.stream, 0, SEEK_SET) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", writer->file.path, strerror(errno));
    exo_status st = exo_file_write(&writer->file, header, sizeof header, err);
    return st == EXO_OK ? exo_file_commit(&writer->file, err) : st;
}

void
exo_shard_writer_release(exo_shard_writer *writer)
{
    exo_file_abort(&writer->file);
    exo_free(writer->buffer);
    *writer = (exo_shard_writer){0};
}

/* Writes up to BUFFER tokens to the open file. */
static exo_status
write_some(exo_shard_writer *w, const int32_t *tokens, size_t count, exo_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (uint64_t)tokens[i] >= w->info.vocabulary)
            return exo_fail(err, EXO_FAILED,
                            "the tokenizer gave %" PRId32 ", beyond its vocabulary of %" PRIu64,
                            tokens[i], w->info.vocabulary);
        if (w->info.width == 2)
            ((uint16_t *)(void *)w->buffer)[i] = htole16((uint16_t)tokens[i]);
        else
            ((uint32_t *)(void *)w->buffer)[i] = htole32((uint32_t)tokens[i]);
    }
    w->info.count += count;
    w->tokens += count;
    return exo_file_write(&w->file, w->buffer, count * w->info.width, err);
}

exo_status
exo_shard_write(void *writer, const int32_t *tokens, size_t count, bool begins, exo_err *err)
{
    (void)begins;
    exo_shard_writer *w = writer;
    exo_status st = EXO_OK;
    while (st == EXO_OK && count > 0) {
        if (w->file.stream && w->info.count == w->per_shard)
            st = exo_shard_writer_finish(w, err);
        if (st == EXO_OK && !w->file.stream)
            st = begin_shard(w, err);
        if (st != EXO_OK)
            break;
        uint64_t room = w->per_shard - w->info.count;
        size_t now = count < BUFFER ? count : BUFFER;
        now = room < now ? (size_t)room : now;
        st = write_some(w, tokens, now, err);
        tokens += now;
        count -= now;
    }
    return st;
}
