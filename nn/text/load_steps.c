/* Loading of tokenizer.json: the normalizer, the pre-tokenizer and the decoder, each as a list of
 * steps. The new tokenizer owns all state. Read next: steps.h. */
#include <string.h>

#include <exogym/memory.h>

#include "base/grow_text.h"
#include "base/utf8.h"
#include "nn/text/tokenizer_impl.h"

enum {
    DEPTH_MOST = 16 /* nested sequences */
};

/* GPT-2's split into words, which is built into Hugging Face's ByteLevel. */
#define GPT2_WORDS                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" EXO_REGEX_SPACE                             \
    "\\p{L}\\p{N}]+|[" EXO_REGEX_SPACE "]+(?![^" EXO_REGEX_SPACE "])|[" EXO_REGEX_SPACE "]+"
/* \w of Rust's regular expressions. */
#define RUST_WORD EXO_REGEX_WORD "\\x{200c}\\x{200d}"

typedef exo_status load_part(exo_steps *steps, const exo_json *part, int depth, exo_err *err);

struct loader {
    const char *type;
    load_part *load; /* NULL: the part is `step`, and has no options */
    const char *const *keys;
    exo_step step;
};

static exo_status
fail_unknown(const exo_json *part, const struct loader *loaders, const char *what, const char *type,
             exo_err *err)
{
    exo_text known = {0};
    for (const struct loader *l = loaders; l->type; l++)
        exo_text_add(&known, "%s%s", l == loaders ? "" : ", ", l->type);
    exo_status st = exo_json_unknown(part, what, type, known.failed ? NULL : known.data, err);
    exo_free(known.data);
    return st;
}

static exo_status
load_any(exo_steps *steps, const exo_json *part, const struct loader *loaders, const char *what,
         int depth, exo_err *err)
{
    const char *type = NULL;
    exo_status st = exo_json_text_of(part, "type", &type, err);
    if (st != EXO_OK)
        return st;
    if (depth > DEPTH_MOST)
        return exo_json_fail(part, err, EXO_UNSUPPORTED,
                             "sequences nested this deep are not supported");
    const struct loader *l = loaders;
    while (l->type && strcmp(l->type, type) != 0)
        l++;
    if (!l->type)
        return fail_unknown(part, loaders, what, type, err);
    st = exo_json_only(part, l->keys, err);
    if (st != EXO_OK)
        return st;
    return l->load ? l->load(steps, part, depth, err) : exo_steps_add(steps, l->step, err);
}

static exo_status
load_sequence(exo_steps *steps, const exo_json *part, const char *key, load_part *load, int depth,
              exo_err *err)
{
    exo_json list;
    size_t count = 0;
    exo_status st = exo_json_get(part, key, &list, err);
    if (st == EXO_OK)
        st = exo_json_list(&list, &count, err);
    for (size_t i = 0; i < count && st == EXO_OK; i++) {
        exo_json item = exo_json_item(&list, i);
        st = load(steps, &item, depth + 1, err);
    }
    return st;
}

/* --- Shared by the three parts ---------------------------------------------------------------- */

/* Adds the step with a copy of `content` (NULL: none). Takes ownership of its pattern, also on
 * failure. */
static exo_status
add(exo_steps *steps, const exo_json *part, exo_step step, const char *content, exo_err *err)
{
    if (content) {
        step.content = exo_strdup(content);
        if (!step.content) {
            exo_pattern_free(&step.pattern);
            return exo_json_fail(part, err, EXO_NOMEM, "no memory");
        }
    }
    return exo_steps_add(steps, step, err);
}

/* Adds a split at matches of a pattern in PCRE2's syntax. */
static exo_status
add_split(exo_steps *steps, const exo_json *part, const char *regex, exo_split_behavior behavior,
          bool invert, exo_err *err)
{
    exo_step step = {.kind = EXO_STEP_SPLIT, .behavior = behavior, .invert = invert};
    exo_status st = exo_pattern_own(&step.pattern, regex, err);
    return st == EXO_OK ? add(steps, part, step, NULL, err) : exo_json_in(part, err, st);
}

/* Reads a pattern: {"String": ...} or {"Regex": ...}. */
static exo_status
read_pattern(const exo_json *part, exo_pattern **out, bool *regex, exo_err *err)
{
    static const char *const keys[] = {"String", "Regex", NULL};
    exo_json pattern, text;
    const char *string = NULL;
    exo_status st = exo_json_get(part, "pattern", &pattern, err);
    if (st == EXO_OK)
        st = exo_json_only(&pattern, keys, err);
    if (st == EXO_OK && json_object_size(pattern.value) != 1)
        st = exo_json_fail(&pattern, err, EXO_DAMAGED, "either 'String' or 'Regex' is expected");
    if (st != EXO_OK)
        return st;
    *regex = exo_json_find(&pattern, "Regex", &text);
    st = *regex ? EXO_OK : exo_json_get(&pattern, "String", &text, err);
    if (st == EXO_OK)
        st = exo_json_text(&text, &string, err);
    if (st != EXO_OK)
        return st;
    st = *regex ? exo_pattern_regex(out, string, err) : exo_pattern_literal(out, string, err);
    return st == EXO_OK ? EXO_OK : exo_json_in(&text, err, st);
}

static exo_status
load_replace(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    exo_step step = {.kind = EXO_STEP_REPLACE};
    bool regex = false;
    const char *content = NULL;
    exo_status st = exo_json_text_of(part, "content", &content, err);
    if (st == EXO_OK)
        st = read_pattern(part, &step.pattern, &regex, err);
    if (st != EXO_OK)
        return st;
    if (regex && strchr(content, '$'))
        st = exo_json_fail(part, err, EXO_UNSUPPORTED,
                           "a '$' in what replaces a regular expression is not supported");
    else if (exo_pattern_may_be_empty(step.pattern)) /* Hugging Face's library panics */
        st = exo_json_fail(
            part, err, EXO_UNSUPPORTED,
            "to replace what a regular expression finds between characters is not supported");
    if (st != EXO_OK) {
        exo_pattern_free(&step.pattern);
        return st;
    }
    return add(steps, part, step, content, err);
}

/* Reads a text of one character. */
static exo_status
read_character(const exo_json *part, const char *key, const char **out, exo_err *err)
{
    uint32_t code;
    exo_status st = exo_json_text_of(part, key, out, err);
    if (st == EXO_OK && (!**out || exo_utf8_next(*out, strlen(*out), &code) != strlen(*out)))
        st = exo_json_fail(part, err, EXO_DAMAGED, "'%s' must be one character", key);
    return st;
}

typedef enum prepend_scheme {
    PREPEND_ALWAYS,
    PREPEND_FIRST,
    PREPEND_NEVER,
} prepend_scheme;

static exo_status
read_metaspace(const exo_json *part, const char **replacement, prepend_scheme *scheme, bool *split,
               exo_err *err)
{
    exo_json key;
    const char *name = "always";
    bool prefix = true, named = exo_json_find(part, "prepend_scheme", &key);
    exo_status st = read_character(part, "replacement", replacement, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "split", true, split, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "add_prefix_space", true, &prefix, err);
    if (st == EXO_OK && named)
        st = exo_json_text(&key, &name, err);
    if (st != EXO_OK)
        return st;
    if (!prefix && strcmp(name, "never") != 0)
        return exo_json_fail(part, err, EXO_DAMAGED,
                             "'add_prefix_space' false needs 'prepend_scheme' never");
    if (strcmp(name, "always") == 0)
        *scheme = PREPEND_ALWAYS;
    else if (strcmp(name, "first") == 0)
        *scheme = PREPEND_FIRST;
    else if (strcmp(name, "never") == 0)
        *scheme = PREPEND_NEVER;
    else
        return exo_json_unknown(part, "the prepend scheme", name, "always, first, never", err);
    return EXO_OK;
}

/* Reads a flag that must not be missing. */
static exo_status
need_flag(const exo_json *part, const char *key, bool *out, exo_err *err)
{
    exo_json flag;
    exo_status st = exo_json_get(part, key, &flag, err);
    return st == EXO_OK ? exo_json_flag_of(part, key, false, out, err) : st;
}

static const char *const only_type[] = {"type", NULL};
static const char *const replace_keys[] = {"type", "pattern", "content", NULL};
static const char *const byte_level_keys[] = {"type", "add_prefix_space", "trim_offsets",
                                              "use_regex", NULL};
static const char *const metaspace_keys[] = {
    "type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep", NULL};

/* --- Normalizers ------------------------------------------------------------------------------ */

static load_part load_one_normalizer;

static exo_status
load_normalizers(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    return load_sequence(steps, part, "normalizers", load_one_normalizer, depth, err);
}

static exo_status
load_prepend(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    const char *text = NULL;
    exo_status st = exo_json_text_of(part, "prepend", &text, err);
    if (st == EXO_OK && !*text)
        st = exo_json_fail(part, err, EXO_UNSUPPORTED, "to prepend nothing is not supported");
    return st == EXO_OK ? add(steps, part, (exo_step){.kind = EXO_STEP_PREPEND}, text, err) : st;
}

static exo_status
load_one_normalizer(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    static const char *const sequence_keys[] = {"type", "normalizers", NULL};
    static const char *const prepend_keys[] = {"type", "prepend", NULL};
    static const struct loader loaders[] = {
        {.type = "Sequence", .load = load_normalizers, .keys = sequence_keys},
        {.type = "Prepend", .load = load_prepend, .keys = prepend_keys},
        {.type = "Replace", .load = load_replace, .keys = replace_keys},
        {.type = "NFC",
         .keys = only_type,
         .step = {.kind = EXO_STEP_UNICODE, .form = EXO_UNICODE_NFC}},
        {.type = "NFD",
         .keys = only_type,
         .step = {.kind = EXO_STEP_UNICODE, .form = EXO_UNICODE_NFD}},
        {.type = "NFKC",
         .keys = only_type,
         .step = {.kind = EXO_STEP_UNICODE, .form = EXO_UNICODE_NFKC}},
        {.type = "NFKD",
         .keys = only_type,
         .step = {.kind = EXO_STEP_UNICODE, .form = EXO_UNICODE_NFKD}},
        {.type = "Lowercase", .keys = only_type, .step = {.kind = EXO_STEP_LOWERCASE}},
        {.type = NULL}};
    return load_any(steps, part, loaders, "the normalizer", depth, err);
}

exo_status
exo_load_normalizer(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    return load_one_normalizer(&t->normalizer, part, 0, err);
}

/* --- Pre-tokenizers --------------------------------------------------------------------------- */

static load_part load_one_pre_tokenizer;

static exo_status
load_pre_tokenizers(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    return load_sequence(steps, part, "pretokenizers", load_one_pre_tokenizer, depth, err);
}

static exo_status
load_byte_level(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    bool prefix = false, words = true, trims;
    exo_status st = need_flag(part, "add_prefix_space", &prefix, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "use_regex", true, &words, err);
    if (st == EXO_OK) /* checked but not used: it changes the tokens' offsets in the text only */
        st = exo_json_flag_of(part, "trim_offsets", true, &trims, err);
    if (st == EXO_OK && prefix)
        st = add(steps, part, (exo_step){.kind = EXO_STEP_PREFIX}, " ", err);
    if (st == EXO_OK && words)
        st = add_split(steps, part, GPT2_WORDS, EXO_SPLIT_ISOLATED, false, err);
    return st == EXO_OK ? add(steps, part, (exo_step){.kind = EXO_STEP_BYTES}, NULL, err) : st;
}

static exo_status
read_behavior(const exo_json *part, exo_split_behavior *out, exo_err *err)
{
    static const char *const names[] = {[EXO_SPLIT_REMOVED] = "Removed",
                                        [EXO_SPLIT_ISOLATED] = "Isolated",
                                        [EXO_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [EXO_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
                                        [EXO_SPLIT_CONTIGUOUS] = "Contiguous"};
    const char *name = NULL;
    exo_status st = exo_json_text_of(part, "behavior", &name, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (exo_split_behavior)i;
            return EXO_OK;
        }
    return exo_json_unknown(part, "the behavior", name,
                            "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous",
                            err);
}

static exo_status
load_split(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    exo_step step = {.kind = EXO_STEP_SPLIT};
    bool regex;
    exo_status st = read_behavior(part, &step.behavior, err);
    if (st == EXO_OK)
        st = need_flag(part, "invert", &step.invert, err);
    if (st == EXO_OK)
        st = read_pattern(part, &step.pattern, &regex, err);
    return st == EXO_OK ? add(steps, part, step, NULL, err) : st;
}

static exo_status
load_metaspace(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    const char *replacement = NULL;
    prepend_scheme scheme = PREPEND_ALWAYS;
    bool split = true;
    exo_step spaces = {.kind = EXO_STEP_REPLACE},
             parts = {.kind = EXO_STEP_SPLIT, .behavior = EXO_SPLIT_MERGED_WITH_NEXT};
    exo_status st = read_metaspace(part, &replacement, &scheme, &split, err);
    for (size_t i = 0; i < steps->count && st == EXO_OK && scheme == PREPEND_FIRST; i++)
        if (steps->items[i].kind == EXO_STEP_PREFIX)
            st = exo_json_fail(part, err, EXO_UNSUPPORTED,
                               "'prepend_scheme' first after another prefix is not supported");
    if (st == EXO_OK)
        st = exo_pattern_literal(&spaces.pattern, " ", err);
    if (st == EXO_OK)
        st = add(steps, part, spaces, replacement, err);
    if (st == EXO_OK && scheme != PREPEND_NEVER)
        st = add(
            steps, part,
            (exo_step){.kind = scheme == PREPEND_FIRST ? EXO_STEP_PREFIX_FIRST : EXO_STEP_PREFIX},
            replacement, err);
    if (st != EXO_OK || !split)
        return st;
    st = exo_pattern_literal(&parts.pattern, replacement, err);
    return st == EXO_OK ? add(steps, part, parts, NULL, err) : st;
}

static exo_status
load_digits(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    bool each;
    exo_status st = need_flag(part, "individual_digits", &each, err);
    return st == EXO_OK ? add_split(steps, part, "\\p{N}",
                                    each ? EXO_SPLIT_ISOLATED : EXO_SPLIT_CONTIGUOUS, false, err)
                        : st;
}

static exo_status
load_whitespace(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    return add_split(steps, part, "[" RUST_WORD "]+|[^" RUST_WORD EXO_REGEX_SPACE "]+",
                     EXO_SPLIT_REMOVED, true, err);
}

static exo_status
load_whitespace_split(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    return add_split(steps, part, "[" EXO_REGEX_SPACE "]", EXO_SPLIT_REMOVED, false, err);
}

static exo_status
load_punctuation(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    exo_split_behavior behavior = EXO_SPLIT_ISOLATED;
    exo_json given;
    exo_status st =
        exo_json_find(part, "behavior", &given) ? read_behavior(part, &behavior, err) : EXO_OK;
    return st == EXO_OK ? add_split(steps, part, "[\\p{P}!-/:-@\\[-`{-~]", behavior, false, err)
                        : st;
}

static exo_status
load_one_pre_tokenizer(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    static const char *const sequence_keys[] = {"type", "pretokenizers", NULL};
    static const char *const split_keys[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const digits_keys[] = {"type", "individual_digits", NULL};
    static const char *const punctuation_keys[] = {"type", "behavior", NULL};
    static const struct loader loaders[] = {
        {.type = "Sequence", .load = load_pre_tokenizers, .keys = sequence_keys},
        {.type = "ByteLevel", .load = load_byte_level, .keys = byte_level_keys},
        {.type = "Split", .load = load_split, .keys = split_keys},
        {.type = "Metaspace", .load = load_metaspace, .keys = metaspace_keys},
        {.type = "Digits", .load = load_digits, .keys = digits_keys},
        {.type = "Whitespace", .load = load_whitespace, .keys = only_type},
        {.type = "WhitespaceSplit", .load = load_whitespace_split, .keys = only_type},
        {.type = "Punctuation", .load = load_punctuation, .keys = punctuation_keys},
        {.type = NULL}};
    return load_any(steps, part, loaders, "the pre-tokenizer", depth, err);
}

exo_status
exo_load_pre_tokenizer(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    exo_status st = load_one_pre_tokenizer(&t->pre_tokenizer, part, 0, err);
    bool first = false, prepends = false;
    for (size_t i = 0; i < t->pre_tokenizer.count; i++)
        first |= t->pre_tokenizer.items[i].kind == EXO_STEP_PREFIX_FIRST;
    for (size_t i = 0; i < t->normalizer.count; i++)
        prepends |= t->normalizer.items[i].kind == EXO_STEP_PREPEND;
    if (st == EXO_OK && first && prepends)
        st = exo_json_fail(part, err, EXO_UNSUPPORTED,
                           "'prepend_scheme' first is not supported with the normalizer 'Prepend'");
    return st;
}

/* --- Decoders --------------------------------------------------------------------------------- */

static load_part load_one_decoder;

static exo_status
load_decoders(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    return load_sequence(steps, part, "decoders", load_one_decoder, depth, err);
}

static exo_status
load_strip(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    exo_json start, stop;
    uint64_t from = 0, to = 0;
    const char *content = NULL;
    exo_status st = read_character(part, "content", &content, err);
    if (st == EXO_OK)
        st = exo_json_get(part, "start", &start, err);
    if (st == EXO_OK)
        st = exo_json_number(&start, INT32_MAX, &from, err);
    if (st == EXO_OK)
        st = exo_json_get(part, "stop", &stop, err);
    if (st == EXO_OK)
        st = exo_json_number(&stop, INT32_MAX, &to, err);
    exo_step step = {.kind = EXO_STEP_STRIP, .start = (size_t)from, .stop = (size_t)to};
    return st == EXO_OK ? add(steps, part, step, content, err) : st;
}

static exo_status
load_unmetaspace(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    (void)depth;
    const char *replacement = NULL;
    prepend_scheme scheme = PREPEND_ALWAYS;
    bool split;
    exo_status st = read_metaspace(part, &replacement, &scheme, &split, err);
    exo_step step = {.kind = EXO_STEP_METASPACE, .prefix = scheme != PREPEND_NEVER};
    return st == EXO_OK ? add(steps, part, step, replacement, err) : st;
}

static exo_status
load_one_decoder(exo_steps *steps, const exo_json *part, int depth, exo_err *err)
{
    static const char *const sequence_keys[] = {"type", "decoders", NULL};
    static const char *const strip_keys[] = {"type", "content", "start", "stop", NULL};
    static const struct loader loaders[] = {
        {.type = "Sequence", .load = load_decoders, .keys = sequence_keys},
        {.type = "ByteLevel", .keys = byte_level_keys, .step = {.kind = EXO_STEP_UNBYTES}},
        {.type = "Replace", .load = load_replace, .keys = replace_keys},
        {.type = "ByteFallback", .keys = only_type, .step = {.kind = EXO_STEP_BYTE_FALLBACK}},
        {.type = "Fuse", .keys = only_type, .step = {.kind = EXO_STEP_FUSE}},
        {.type = "Strip", .load = load_strip, .keys = strip_keys},
        {.type = "Metaspace", .load = load_unmetaspace, .keys = metaspace_keys},
        {.type = NULL}};
    return load_any(steps, part, loaders, "the decoder", depth, err);
}

exo_status
exo_load_decoder(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    return load_one_decoder(&t->decoder, part, 0, err);
}
