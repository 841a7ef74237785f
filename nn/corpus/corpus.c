/* Corpora: see corpus.h. Tokens are checked when they are read. */
#include "nn/corpus/corpus.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include <exogym/memory.h>

enum {
    SCAN = 1 << 14 /* tokens examined together */
};

struct exo_corpus {
    atomic_uint references;
    exo_tokenizer *tokenizer; /* or NULL */
    size_t vocabulary;
    int32_t end;
    exo_corpus_part *parts;
    size_t num_parts, room;
    size_t count;
    atomic_size_t below; /* a check found all tokens less than this; 0: none was made */
    size_t *starts;      /* (num_starts): the documents' first tokens, if known */
    size_t num_starts;
};

exo_status
exo_corpus_new(exo_corpus **out, exo_tokenizer *tokenizer, size_t vocabulary, int32_t end,
               exo_err *err)
{
    exo_corpus *c = exo_calloc(1, sizeof *c);
    if (!c)
        return exo_fail(err, EXO_NOMEM, "no memory for a corpus");
    *c = (exo_corpus){.references = 1,
                      .tokenizer = tokenizer ? exo_tokenizer_hold(tokenizer) : NULL,
                      .vocabulary = vocabulary,
                      .end = end};
    *out = c;
    return EXO_OK;
}

exo_corpus *
exo_corpus_hold(exo_corpus *corpus)
{
    atomic_fetch_add(&corpus->references, 1);
    return corpus;
}

void
exo_corpus_part_release(exo_corpus_part *part)
{
    if (part->map)
        munmap(part->map, part->map_bytes);
    else
        exo_free((void *)(uintptr_t)part->tokens);
    exo_free(part->path);
}

void
exo_corpus_drop(exo_corpus **corpus)
{
    exo_corpus *c = *corpus;
    *corpus = NULL;
    if (!c || atomic_fetch_sub(&c->references, 1) > 1)
        return;
    for (size_t i = 0; i < c->num_parts; i++)
        exo_corpus_part_release(&c->parts[i]);
    exo_tokenizer_drop(&c->tokenizer);
    exo_free(c->parts);
    exo_free(c->starts);
    exo_free(c);
}

exo_status
exo_corpus_add(exo_corpus *corpus, exo_corpus_part part, exo_err *err)
{
    exo_corpus *c = corpus;
    if (c->num_parts == c->room) {
        size_t room = c->room ? 2 * c->room : 4;
        exo_corpus_part *parts = exo_realloc(c->parts, room, sizeof *parts);
        if (!parts) {
            exo_corpus_part_release(&part);
            return exo_fail(err, EXO_NOMEM, "no memory for a corpus of %zu files",
                            c->num_parts + 1);
        }
        c->parts = parts;
        c->room = room;
    }
    part.first = c->count;
    c->parts[c->num_parts++] = part;
    c->count += part.count;
    return EXO_OK;
}

void
exo_corpus_set_documents(exo_corpus *corpus, size_t *starts, size_t count)
{
    exo_free(corpus->starts);
    corpus->starts = starts;
    corpus->num_starts = count;
}

size_t
exo_corpus_count(const exo_corpus *corpus)
{
    return corpus->count;
}

exo_tokenizer *
exo_corpus_tokenizer(const exo_corpus *corpus)
{
    return corpus->tokenizer;
}

size_t
exo_corpus_vocabulary(const exo_corpus *corpus)
{
    return corpus->vocabulary;
}

int32_t
exo_corpus_end(const exo_corpus *corpus)
{
    return corpus->end;
}

size_t
exo_corpus_next_document(const exo_corpus *corpus, size_t at)
{
    size_t low = 0, high = corpus->num_starts;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (corpus->starts[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < corpus->num_starts ? corpus->starts[low] : SIZE_MAX;
}

/* --- Checks and reading ----------------------------------------------------------------------- */

static uint32_t
largest_of(const exo_corpus_part *part, size_t at, size_t count)
{
    uint32_t largest = 0;
    if (part->width == 2) {
        const uint16_t *in = (const uint16_t *)part->tokens + at;
        for (size_t i = 0; i < count; i++) {
            uint32_t token = le16toh(in[i]);
            largest = token > largest ? token : largest;
        }
    } else {
        const uint32_t *in = (const uint32_t *)part->tokens + at;
        for (size_t i = 0; i < count; i++) {
            uint32_t token = le32toh(in[i]);
            largest = token > largest ? token : largest;
        }
    }
    return largest;
}

static exo_status
check_part(const exo_corpus_part *part, size_t vocabulary, exo_err *err)
{
    for (size_t first = 0; first < part->count; first += SCAN) {
        size_t count = part->count - first < SCAN ? part->count - first : SCAN, at = first;
        if (largest_of(part, first, count) < vocabulary)
            continue;
        while (largest_of(part, at, 1) < vocabulary)
            at++;
        uint32_t token = largest_of(part, at, 1);
        if (!part->path)
            return exo_fail(
                err, EXO_INVAL,
                "token %zu of the text is %u, which is not in the model's vocabulary of %zu",
                part->first + at, token, vocabulary);
        size_t byte =
            (size_t)((const char *)part->tokens - (const char *)part->map) + at * part->width;
        return exo_fail(err, EXO_INVAL,
                        "%s: the token %u at byte %zu is not in the model's vocabulary of %zu",
                        part->path, token, byte, vocabulary);
    }
    return EXO_OK;
}

exo_status
exo_corpus_check(exo_corpus *corpus, size_t vocabulary, exo_err *err)
{
    exo_corpus *c = corpus;
    bool bare = false; /* encoded text and shards are known to be below their vocabulary */
    for (size_t i = 0; i < c->num_parts; i++)
        bare = bare || (c->parts[i].map && c->parts[i].tokens == c->parts[i].map);
    size_t below = bare ? 0 : c->vocabulary, seen = atomic_load(&c->below);
    if ((below > 0 && below <= vocabulary) || (seen > 0 && seen <= vocabulary))
        return EXO_OK;
    exo_status st = EXO_OK;
    for (size_t i = 0; i < c->num_parts && st == EXO_OK; i++)
        st = check_part(&c->parts[i], vocabulary, err);
    if (st == EXO_OK)
        atomic_store(&c->below, vocabulary);
    return st;
}

/* The index of the part that has token `at`. */
static size_t
find_part(const exo_corpus *c, size_t at)
{
    size_t low = 0, high = c->num_parts;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (c->parts[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static exo_status
fail_token(const exo_corpus *c, const exo_corpus_part *part, size_t at, uint32_t token,
           exo_err *err)
{
    size_t byte = part->map ? (size_t)((const char *)part->tokens - (const char *)part->map) +
                                  at * part->width
                            : at * part->width;
    const char *path = part->path ? part->path : "tokens";
    if (token > INT32_MAX)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: the token %u at byte %zu is 2^31 or more: are these tokens of uint%d?",
                        path, token, byte, part->width == 2 ? 32 : 16);
    return exo_fail(err, EXO_DAMAGED,
                    "%s: the token %u at byte %zu is not in the vocabulary of %zu", path, token,
                    byte, c->vocabulary);
}

/* Reads tokens [at, at + count) of one part. */
static exo_status
read_part(const exo_corpus *c, const exo_corpus_part *part, size_t at, size_t count, int32_t *out,
          exo_err *err)
{
    const uint32_t limit =
        c->vocabulary && c->vocabulary <= INT32_MAX ? (uint32_t)c->vocabulary : INT32_MAX;
    uint32_t largest = 0;
    if (part->width == 2) {
        const uint16_t *in = (const uint16_t *)part->tokens + at;
        for (size_t i = 0; i < count; i++) {
            uint32_t token = le16toh(in[i]);
            largest = token > largest ? token : largest;
            out[i] = (int32_t)token;
        }
    } else {
        const uint32_t *in = (const uint32_t *)part->tokens + at;
        for (size_t i = 0; i < count; i++) {
            uint32_t token = le32toh(in[i]);
            largest = token > largest ? token : largest;
            out[i] = (int32_t)token;
        }
    }
    if (largest < limit)
        return EXO_OK;
    size_t bad = 0;
    while ((uint32_t)out[bad] < limit)
        bad++;
    return fail_token(c, part, at + bad, (uint32_t)out[bad], err);
}

exo_status
exo_corpus_read(const exo_corpus *corpus, size_t first, size_t count, int32_t *out, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t p = find_part(corpus, first); st == EXO_OK && count > 0; p++) {
        const exo_corpus_part *part = &corpus->parts[p];
        size_t at = first - part->first, here = part->count - at < count ? part->count - at : count;
        st = read_part(corpus, part, at, here, out, err);
        first += here;
        count -= here;
        out += here;
    }
    return st;
}
