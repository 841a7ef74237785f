/* Items with parameters: see parameters.h. No state. */
#include "experience/parameters.h"

#include <string.h>

#include <exogym/state.h>

enum {
    FORMAT = 1,
    HASH = 64
};

/* The parts of an item, and the words of the first. */
enum {
    HEADER,
    SHA256,
    VALUES,
    NUM_PARTS
};
enum {
    FORMAT_WORD,
    VERSION,
    QUOTA,
    HEADER_WORDS
};

exo_status
exo_parameters_new(exo_item **out, const exo_parameters *p, exo_err *err)
{
    const exo_item_part parts[NUM_PARTS] = {
        [HEADER] = {.dtype = EXO_I64, .count = HEADER_WORDS},
        [SHA256] = {.dtype = EXO_U8, .count = HASH},
        [VALUES] = {.dtype = EXO_F32, .count = p->numel},
    };
    exo_status st = exo_item_new(out, parts, NUM_PARTS, err);
    if (st != EXO_OK)
        return st;
    int64_t *header = (*out)->parts[HEADER].data;
    header[FORMAT_WORD] = FORMAT;
    header[VERSION] = (int64_t)p->version;
    header[QUOTA] = (int64_t)p->quota;
    memcpy((*out)->parts[SHA256].data, p->sha256, HASH);
    memcpy((*out)->parts[VALUES].data, p->values, p->numel * sizeof *p->values);
    (*out)->version = p->version;
    return EXO_OK;
}

exo_status
exo_parameters_view(exo_parameters *out, const exo_item *item, size_t numel, exo_err *err)
{
    char sha256[HASH + 1];
    const exo_item_part *p = item->parts;
    bool good = item->num_parts == NUM_PARTS && p[HEADER].dtype == EXO_I64 &&
                p[HEADER].count == HEADER_WORDS && p[SHA256].dtype == EXO_U8 &&
                p[SHA256].count == HASH && p[VALUES].dtype == EXO_F32;
    const int64_t *header = good ? p[HEADER].data : NULL;
    if (!good || header[FORMAT_WORD] != FORMAT || header[VERSION] < 0 || header[QUOTA] < 0)
        return exo_fail(err, EXO_INVAL, "this is no item with parameters of format %d", FORMAT);
    if (p[VALUES].count != numel)
        return exo_fail(err, EXO_INVAL,
                        "%zu parameters came, but the model has %zu: the trainer's model is "
                        "another one",
                        p[VALUES].count, numel);
    exo_sha256(p[VALUES].data, numel * sizeof(float), sha256);
    if (memcmp(sha256, p[SHA256].data, HASH) != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "the parameters of version %lld are not those that the trainer sent: their "
                        "SHA-256 is another one; an edge that carries parameters takes no codec "
                        "that rounds",
                        (long long)header[VERSION]);
    *out = (exo_parameters){.version = (uint64_t)header[VERSION],
                            .quota = (uint64_t)header[QUOTA],
                            .numel = numel,
                            .values = p[VALUES].data,
                            .sha256 = p[SHA256].data};
    return EXO_OK;
}
