/* Reads a chain from its config and writes it as text. No state. */
#include "base/c_locale.h"
#include "codec/codec_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

exo_registry exo_codec_registry = EXO_REGISTRY("codec");

const exo_codec_entry exo_codec_entries[EXO_CODEC_KINDS] = {
    [EXO_CODEC_RAW] = {"raw", "fp32 as it is", EXO_CODEC_RAW, EXO_STAGE_VALUES},
    [EXO_CODEC_FP16] = {"fp16", "IEEE half precision", EXO_CODEC_FP16, EXO_STAGE_VALUES},
    [EXO_CODEC_BF16] = {"bf16", "the upper half of fp32", EXO_CODEC_BF16, EXO_STAGE_VALUES},
    [EXO_CODEC_FP8] = {"fp8", "8-bit floats (e4m3 or e5m2), a power of two as scale of each block",
                       EXO_CODEC_FP8, EXO_STAGE_VALUES},
    [EXO_CODEC_INT8] = {"int8", "8-bit integers, a scale for each block", EXO_CODEC_INT8,
                        EXO_STAGE_VALUES},
    [EXO_CODEC_INT4] = {"int4", "4-bit integers, a scale for each block", EXO_CODEC_INT4,
                        EXO_STAGE_VALUES},
    [EXO_CODEC_E3M0] = {"e3m0", "4-bit floats of sign and exponent, a scale for each block",
                        EXO_CODEC_E3M0, EXO_STAGE_VALUES},
    [EXO_CODEC_BINS] = {"bins", "2 bits: four bins of each block, with their means", EXO_CODEC_BINS,
                        EXO_STAGE_VALUES},
    [EXO_CODEC_TOPK] = {"topk", "the largest values, with error feedback; then a codec of values",
                        EXO_CODEC_TOPK, EXO_STAGE_SELECTION},
    [EXO_CODEC_SPARSE] = {"sparse",
                          "values that both ends select from the seed; then a codec of values",
                          EXO_CODEC_SPARSE, EXO_STAGE_SELECTION},
    [EXO_CODEC_ZSTD] = {"zstd", "lossless compression, last in a chain", EXO_CODEC_ZSTD,
                        EXO_STAGE_LOSSLESS},
    [EXO_CODEC_LZ4] = {"lz4", "lossless compression, faster and weaker than zstd", EXO_CODEC_LZ4,
                       EXO_STAGE_LOSSLESS},
};

static const char *const fp8_formats[] = {[EXO_FP8_E4M3] = "e4m3", [EXO_FP8_E5M2] = "e5m2", NULL};
static const char *const scale_formats[] = {
    [EXO_SCALE_FP32] = "fp32", [EXO_SCALE_BF16] = "bf16", NULL};
static const char *const select_kinds[] = {
    [EXO_SELECT_RANDOM] = "random",
    [EXO_SELECT_SHUFFLED_SEQUENTIAL] = "shuffled_sequential",
    [EXO_SELECT_PARTITIONED] = "partitioned",
    NULL,
};

bool
exo_codec_at(size_t index, const char **name, const char **help)
{
    const exo_codec_entry *entry = exo_registry_at(&exo_codec_registry, index);
    if (!entry)
        return false;
    *name = entry->name;
    *help = entry->help;
    return true;
}

size_t
exo_codec_share(double share, size_t count)
{
    double kept = ceil(share * (double)count * (1.0 - 1e-12));
    if (!(kept < (double)count))
        return count;
    return kept < 1 && count > 0 ? 1 : (size_t)kept;
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* The readers take options from `map`; it is NULL for a bare name, which leaves all defaults. */

static exo_status
read_topk(exo_topk *topk, exo_config *map, exo_err *err)
{
    *topk = (exo_topk){.error_feedback = true, .decay = 1};
    bool has_k = exo_config_has(map, "k");
    exo_status st = exo_config_double(map, "ratio", has_k ? 0 : 0.01, 0, 1, &topk->ratio, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "k", 0, 1, UINT32_MAX, &topk->k, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "block", 0, 0, EXO_CODEC_MAX_BLOCK, &topk->block, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "error_feedback", true, &topk->error_feedback, err);
    if (st == EXO_OK)
        st = exo_config_double(map, "decay", 1, 0, 1, &topk->decay, err);
    if (st != EXO_OK)
        return st;
    /* A run's config.json has both, with the values that say nothing. */
    if (has_k && topk->ratio > 0)
        return exo_config_fail(map, err, "topk: k and ratio say the same; one of them is enough");
    if (!has_k && !(topk->ratio > 0))
        return exo_config_fail(map, err, "topk: ratio must be greater than 0 and at most 1");
    if (!topk->error_feedback && topk->decay != 1)
        return exo_config_fail(map, err, "topk: decay needs error_feedback");
    return EXO_OK;
}

static exo_status
read_sparse(exo_codec_spec *spec, exo_config *map, exo_err *err)
{
    size_t kind = EXO_SELECT_RANDOM;
    exo_status st = exo_config_double(map, "p", 0.005, 0, 1, &spec->p, err);
    if (st == EXO_OK && !(spec->p > 0))
        st = exo_config_fail(map, err, "sparse: p must be greater than 0 and at most 1");
    if (st == EXO_OK)
        st = exo_config_choice(map, "selector", kind, select_kinds, &kind, err);
    spec->select_kind = (exo_select_kind)kind;
    return st;
}

static exo_status
read_values(exo_value_codec *values, exo_codec_kind kind, exo_config *map, exo_err *err)
{
    *values = (exo_value_codec){.kind = kind};
    exo_status st = EXO_OK;
    if (kind == EXO_CODEC_FP8) {
        size_t format = EXO_FP8_E4M3;
        st = exo_config_choice(map, "format", format, fp8_formats, &format, err);
        values->format = (exo_fp8_format)format;
    }
    if (kind == EXO_CODEC_INT8 || kind == EXO_CODEC_INT4 || kind == EXO_CODEC_E3M0 ||
        kind == EXO_CODEC_BINS) {
        size_t scales = kind == EXO_CODEC_INT8 ? EXO_SCALE_FP32 : EXO_SCALE_BF16;
        st = exo_config_choice(map, "scale", scales, scale_formats, &scales, err);
        values->scales = (exo_scale_format)scales;
    } else if (kind != EXO_CODEC_FP8) {
        return st;
    }
    uint64_t block = kind == EXO_CODEC_INT8 || kind == EXO_CODEC_BINS ? 256 : 128;
    if (st == EXO_OK)
        st = exo_config_u64(map, "block", block, kind != EXO_CODEC_FP8, EXO_CODEC_MAX_BLOCK, &block,
                            err);
    values->block = (size_t)block;
    return st;
}

static exo_status
read_lossless(exo_lossless *lossless, exo_codec_kind kind, exo_config *map, exo_err *err)
{
    uint64_t level = 3;
    exo_status st =
        kind == EXO_CODEC_ZSTD ? exo_config_u64(map, "level", level, 1, 19, &level, err) : EXO_OK;
    *lossless = (exo_lossless){.kind = kind, .level = (int)level};
    return st;
}

/* Reads the codec that a node names; *map gets its options, or NULL for a bare name. */
static exo_status
read_name(exo_config *node, exo_codec_kind *kind, exo_config **map, exo_err *err)
{
    const char *name = exo_config_scalar(node);
    *map = NULL;
    if (exo_config_is_map(node)) {
        *map = node;
        exo_status st = exo_config_string(node, "name", NULL, &name, err);
        if (st != EXO_OK)
            return st;
        if (!name)
            return exo_config_fail(node, err, "which codec? The key 'name' is missing");
    }
    if (!name || !*name)
        return exo_config_fail(node, err, "expected a codec's name, or a mapping with 'name'");
    const exo_codec_entry *entry = exo_registry_find(&exo_codec_registry, name);
    exo_err reason = {0};
    if (!entry) {
        exo_registry_unknown(&exo_codec_registry, name, &reason);
        return exo_config_fail(node, err, "%s", reason.text);
    }
    *kind = entry->kind;
    return EXO_OK;
}

/* The part of the chain that was read so far, to check the order. */
struct chain {
    size_t length;
    exo_codec_kind last;
};

static exo_status
check_order(const struct chain *chain, const exo_codec_spec *spec, exo_codec_kind kind,
            const exo_config *node, exo_err *err)
{
    if (chain->length == 0)
        return EXO_OK;
    exo_codec_stage now = exo_codec_entries[kind].stage,
                    before = exo_codec_entries[chain->last].stage;
    if (now < before)
        return exo_config_fail(
            node, err,
            "%s cannot come after %s: first a selection (topk, sparse), then one codec of values, "
            "then lossless ones (zstd, lz4)",
            exo_codec_entries[kind].name, exo_codec_entries[chain->last].name);
    if (now == before && now != EXO_STAGE_LOSSLESS)
        return exo_config_fail(node, err, "%s after %s: a chain has one %s at most",
                               exo_codec_entries[kind].name, exo_codec_entries[chain->last].name,
                               now == EXO_STAGE_SELECTION ? "selection" : "codec of values");
    if (now == EXO_STAGE_LOSSLESS && spec->num_lossless == EXO_CODEC_MAX_LOSSLESS)
        return exo_config_fail(node, err, "%s: a chain has two lossless codecs at most",
                               exo_codec_entries[kind].name);
    return EXO_OK;
}

static exo_status
read_one(struct chain *chain, exo_codec_spec *spec, exo_config *node, exo_err *err)
{
    exo_codec_kind kind = EXO_CODEC_RAW;
    exo_config *map = NULL;
    exo_status st = read_name(node, &kind, &map, err);
    if (st == EXO_OK)
        st = check_order(chain, spec, kind, node, err);
    if (st != EXO_OK)
        return st;
    if (kind == EXO_CODEC_TOPK)
        st = read_topk(&spec->topk, map, err);
    else if (kind == EXO_CODEC_SPARSE)
        st = read_sparse(spec, map, err);
    else if (exo_codec_entries[kind].stage == EXO_STAGE_LOSSLESS)
        st = read_lossless(&spec->lossless[spec->num_lossless++], kind, map, err);
    else
        st = read_values(&spec->values, kind, map, err);
    if (exo_codec_entries[kind].stage == EXO_STAGE_SELECTION)
        spec->selection = kind;
    chain->length++;
    chain->last = kind;
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

exo_status
exo_codec_spec_read(exo_codec_spec *spec, exo_config *node, exo_err *err)
{
    struct chain chain = {0};
    *spec = (exo_codec_spec){.selection = EXO_CODEC_RAW, .values = {.kind = EXO_CODEC_RAW}};
    if (!node)
        return EXO_OK;
    if (!exo_config_is_list(node))
        return read_one(&chain, spec, node, err);
    if (exo_config_length(node) == 0)
        return exo_config_fail(node, err, "the list of codecs is empty");
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(node); i++)
        st = read_one(&chain, spec, exo_config_item(node, i), err);
    return st;
}

/* --- Writing ---------------------------------------------------------------------------------- */

struct writer {
    char *text;
    size_t used;
};

static void put(struct writer *w, const char *format, ...) EXO_PRINTF(2, 3);

static void
put(struct writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = exo_c_vsnprintf(w->text + w->used, EXO_CODEC_TEXT - w->used, format, args);
    va_end(args);
    w->used += (size_t)length; /* the longest chain fills half of it */
}

/* Writes the fewest digits that read as the same number. */
static void
put_number(struct writer *w, const char *key, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        exo_c_snprintf(text, sizeof text, "%.*g", digits, value);
        if (exo_c_strtod(text, NULL) == value)
            break;
    }
    put(w, ", %s: %s", key, text);
}

static void
put_selection(struct writer *w, const exo_codec_spec *spec)
{
    if (spec->selection == EXO_CODEC_SPARSE) {
        put(w, "{name: sparse");
        put_number(w, "p", spec->p);
        put(w, ", selector: %s}", select_kinds[spec->select_kind]);
        return;
    }
    put(w, "{name: topk");
    if (spec->topk.k)
        put(w, ", k: %llu", (unsigned long long)spec->topk.k);
    else
        put_number(w, "ratio", spec->topk.ratio);
    put(w, ", block: %llu, error_feedback: %s", (unsigned long long)spec->topk.block,
        spec->topk.error_feedback ? "true" : "false");
    if (spec->topk.error_feedback)
        put_number(w, "decay", spec->topk.decay);
    put(w, "}");
}

static void
put_values(struct writer *w, const exo_value_codec *values)
{
    const char *name = exo_codec_entries[values->kind].name;
    switch (values->kind) {
    case EXO_CODEC_FP8:
        put(w, "{name: fp8, format: %s, block: %zu}", fp8_formats[values->format], values->block);
        return;
    case EXO_CODEC_INT8:
    case EXO_CODEC_INT4:
    case EXO_CODEC_E3M0:
    case EXO_CODEC_BINS:
        put(w, "{name: %s, block: %zu, scale: %s}", name, values->block,
            scale_formats[values->scales]);
        return;
    default:
        put(w, "%s", name);
    }
}

void
exo_codec_spec_text(const exo_codec_spec *spec, char text[EXO_CODEC_TEXT])
{
    struct writer w = {.text = text};
    bool selects = spec->selection != EXO_CODEC_RAW;
    bool encodes = spec->values.kind != EXO_CODEC_RAW || (!selects && spec->num_lossless == 0);
    bool list = selects + encodes + spec->num_lossless > 1;
    const char *between = list ? "[" : "";
    if (selects) {
        put(&w, "%s", between);
        put_selection(&w, spec);
        between = ", ";
    }
    if (encodes) {
        put(&w, "%s", between);
        put_values(&w, &spec->values);
        between = ", ";
    }
    for (size_t i = 0; i < spec->num_lossless; i++, between = ", ") {
        put(&w, "%s", between);
        if (spec->lossless[i].kind == EXO_CODEC_ZSTD)
            put(&w, "{name: zstd, level: %d}", spec->lossless[i].level);
        else
            put(&w, "%s", exo_codec_entries[spec->lossless[i].kind].name);
    }
    if (list)
        put(&w, "]");
}
