/* Loading of tokenizer.json: the model and the added tokens. The new tokenizer owns all state.
 * Read next: bpe.c, added.c. */
#include <string.h>

#include <exogym/memory.h>

#include "nn/text/tokenizer_impl.h"

enum {
    /* Numbers of a vocabulary are below GAPS times the count of its tokens, plus GAPS_LEAST. In
     * real files few numbers have no token. */
    GAPS = 16,
    GAPS_LEAST = 1 << 16
};

static exo_status
load_vocabulary(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    exo_status st = exo_json_object(part, err);
    void *at = st == EXO_OK ? json_object_iter(part->value) : NULL;
    /* The list by number is as long as the largest number: a single token must not make it huge. */
    const uint64_t most = GAPS * (uint64_t)json_object_size(part->value) + GAPS_LEAST;
    for (; at && st == EXO_OK; at = json_object_iter_next(part->value, at)) {
        const char *text = json_object_iter_key(at);
        exo_json token = {
            .up = part, .key = text, .value = json_object_iter_value(at), .file = part->file};
        uint64_t number = 0;
        st = exo_json_number(&token, EXO_VOCAB_MOST - 1, &number, err);
        if (st == EXO_OK && number >= most)
            st = exo_json_fail(&token, err, EXO_DAMAGED,
                               "the number %llu is far beyond the %zu tokens of the vocabulary",
                               (unsigned long long)number, json_object_size(part->value));
        if (st != EXO_OK)
            return st;
        st = exo_vocab_add(&t->bpe.vocab, text, strlen(text), number, EXO_TOKEN_MODEL, err);
        if (st != EXO_OK)
            return exo_json_in(part, err, st);
    }
    return st;
}

/* A merge is "a b" or ["a", "b"]. */
static exo_status
load_merge(exo_tokenizer *t, const exo_json *part, uint32_t rank, exo_err *err)
{
    const char *left = NULL, *right = NULL;
    size_t length = 0, count = 0;
    exo_status st;
    if (json_is_string(part->value)) {
        left = json_string_value(part->value);
        const char *space = strchr(left, ' ');
        if (!space || strchr(space + 1, ' '))
            return exo_json_fail(part, err, EXO_DAMAGED,
                                 "two tokens with a space between them are expected");
        length = (size_t)(space - left);
        right = space + 1;
    } else {
        st = exo_json_list(part, &count, err);
        if (st == EXO_OK && count != 2)
            st = exo_json_fail(part, err, EXO_DAMAGED, "two tokens are expected, but these are %zu",
                               count);
        for (size_t i = 0; i < 2 && st == EXO_OK; i++) {
            exo_json item = exo_json_item(part, i);
            st = exo_json_text(&item, i == 0 ? &left : &right, err);
        }
        if (st != EXO_OK)
            return st;
        length = strlen(left);
    }
    st = exo_bpe_merge(&t->bpe, left, length, right, strlen(right), rank, err);
    return st == EXO_OK ? EXO_OK : exo_json_in(part, err, st);
}

static exo_status
load_merges(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    size_t count = 0;
    uint32_t rank = 0;
    exo_status st = exo_json_list(part, &count, err);
    if (st == EXO_OK)
        st = exo_bpe_expect(&t->bpe, count, err);
    for (size_t i = 0; i < count && st == EXO_OK; i++) {
        exo_json merge = exo_json_item(part, i);
        if (json_is_string(merge.value) &&
            strncmp(json_string_value(merge.value), "#version", 8) == 0)
            continue;
        st = load_merge(t, &merge, rank++, err);
    }
    return st;
}

static exo_status
load_unknown(exo_tokenizer *t, const exo_json *model, exo_err *err)
{
    exo_json part;
    const char *text;
    t->bpe.unknown = -1;
    if (!exo_json_find(model, "unk_token", &part))
        return EXO_OK;
    exo_status st = exo_json_text(&part, &text, err);
    if (st != EXO_OK)
        return st;
    t->bpe.unknown = exo_vocab_find(&t->bpe.vocab, text, strlen(text));
    if (t->bpe.unknown < 0)
        return exo_json_fail(&part, err, EXO_DAMAGED, "'%.64s' is not in the vocabulary", text);
    return EXO_OK;
}

/* Refuses options that are supported only without effect. */
static exo_status
refuse_others(const exo_json *model, exo_err *err)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    exo_json part;
    const char *text;
    for (size_t i = 0; i < 2; i++) {
        if (!exo_json_find(model, affixes[i], &part))
            continue;
        exo_status st = exo_json_text(&part, &text, err);
        if (st != EXO_OK)
            return st;
        if (*text)
            return exo_json_fail(&part, err, EXO_UNSUPPORTED, "'%.64s' is not supported, only none",
                                 text);
    }
    if (exo_json_find(model, "dropout", &part)) {
        if (!json_is_number(part.value))
            return exo_json_fail(&part, err, EXO_DAMAGED, "a number is expected");
        if (json_number_value(part.value) != 0)
            return exo_json_fail(&part, err, EXO_UNSUPPORTED,
                                 "dropout is not supported; set it to null");
    }
    return EXO_OK;
}

exo_status
exo_load_model(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};
    exo_json type, vocab, merges;
    const char *name = "BPE";
    exo_status st = exo_json_object(part, err);
    if (st == EXO_OK && exo_json_find(part, "type", &type)) /* old files do not have it */
        st = exo_json_text(&type, &name, err);
    if (st == EXO_OK && strcmp(name, "BPE") != 0)
        st = exo_json_unknown(part, "the model", name, "BPE, as of GPT-2, LLaMA, Mistral and Qwen",
                              err);
    if (st == EXO_OK)
        st = exo_json_only(part, keys, err);
    if (st == EXO_OK)
        st = refuse_others(part, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "fuse_unk", false, &t->bpe.fuse_unknown, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "byte_fallback", false, &t->bpe.byte_fallback, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "ignore_merges", false, &t->bpe.ignore_merges, err);
    if (st == EXO_OK)
        st = exo_json_get(part, "vocab", &vocab, err);
    if (st == EXO_OK)
        st = exo_json_get(part, "merges", &merges, err);
    if (st == EXO_OK)
        st = load_vocabulary(t, &vocab, err);
    if (st == EXO_OK)
        st = load_unknown(t, part, err);
    if (st == EXO_OK) {
        st = exo_bpe_characters(&t->bpe, err);
        if (st != EXO_OK)
            return exo_json_in(part, err, st);
    }
    return st == EXO_OK ? load_merges(t, &merges, err) : st;
}

/* --- Added tokens ----------------------------------------------------------------------------- */

/* The number that Hugging Face's library gives the token: that library ignores the file's "id". */
static uint64_t
number_of(const exo_tokenizer *t, size_t model_tokens, const char *content)
{
    int32_t known = exo_vocab_find(&t->bpe.vocab, content, strlen(content));
    if (known >= 0)
        return (uint64_t)known;
    int32_t most = t->added.most;
    return most >= 0 && ((size_t)most >= model_tokens || model_tokens == 0) ? (uint64_t)most + 1
                                                                            : model_tokens;
}

static exo_status
read_added(const exo_json *part, exo_added_token *token, uint64_t *number, const char **content,
           exo_err *err)
{
    static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                       "rstrip", "normalized", "special",     NULL};
    exo_json id;
    exo_status st = exo_json_only(part, keys, err);
    if (st == EXO_OK)
        st = exo_json_get(part, "id", &id, err);
    if (st == EXO_OK)
        st = exo_json_number(&id, EXO_VOCAB_MOST - 1, number, err);
    if (st == EXO_OK)
        st = exo_json_text_of(part, "content", content, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "single_word", false, &token->single_word, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "lstrip", false, &token->lstrip, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "rstrip", false, &token->rstrip, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "special", false, &token->special, err);
    if (st == EXO_OK)
        st = exo_json_flag_of(part, "normalized", !token->special, &token->normalized, err);
    return st;
}

static exo_status
load_one(exo_tokenizer *t, const exo_json *part, size_t model_tokens, exo_err *err)
{
    exo_added_token token = {0};
    const char *content = NULL;
    uint64_t said = 0;
    exo_status st = read_added(part, &token, &said, &content, err);
    if (st != EXO_OK)
        return st;
    if (!*content)
        return exo_json_fail(part, err, EXO_UNSUPPORTED, "an empty added token is not supported");
    uint64_t number = number_of(t, model_tokens, content);
    if (said != number)
        return exo_json_fail(
            part, err, EXO_DAMAGED,
            "'%.64s' has the number %llu here, but %llu by the vocabulary and its place", content,
            (unsigned long long)said, (unsigned long long)number);
    if (exo_vocab_find(&t->bpe.vocab, content, strlen(content)) < 0) {
        st = exo_vocab_add(&t->bpe.vocab, content, strlen(content), number, EXO_TOKEN_ADDED, err);
        if (st != EXO_OK)
            return exo_json_in(part, err, st);
    }
    exo_spelling *spelling = &t->bpe.vocab.spellings[number];
    if (spelling->added)
        return exo_json_fail(part, err, EXO_DAMAGED, "'%.64s' is added twice", content);
    spelling->added = true;
    spelling->special = token.special;
    token.number = (int32_t)number;
    token.content = exo_strdup(content);
    if (!token.content)
        return exo_json_fail(part, err, EXO_NOMEM, "no memory for an added token");
    return exo_added_add(&t->added, token, err);
}

static exo_status
index_added(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    exo_text out = {0}, spare = {0};
    exo_status st = EXO_OK;
    for (size_t i = 0; i < t->added.count && st == EXO_OK; i++) {
        const exo_added_token *token = &t->added.tokens[i];
        const char *text = token->content;
        size_t size = strlen(text);
        bool first = false;
        if (token->normalized && t->normalizer.count) {
            st = exo_steps_normalize(&t->normalizer, text, size, &first, &out, &spare, err);
            text = out.data;
            size = out.length;
        }
        if (st == EXO_OK && size == 0)
            st = exo_fail(err, EXO_UNSUPPORTED, "nothing is left of '%.64s' when it is normalized",
                          token->content);
        if (st == EXO_OK)
            st = exo_added_index(&t->added, i, text, size, err);
        if (st != EXO_OK) {
            exo_json item = exo_json_item(part, i);
            exo_json_in(&item, err, st);
        }
    }
    exo_free(out.data);
    exo_free(spare.data);
    return st;
}

exo_status
exo_load_added(exo_tokenizer *t, const exo_json *part, exo_err *err)
{
    size_t count = 0, model_tokens = t->bpe.vocab.tokens;
    exo_status st = exo_json_list(part, &count, err);
    for (size_t i = 0; i < count && st == EXO_OK; i++) {
        exo_json item = exo_json_item(part, i);
        st = load_one(t, &item, model_tokens, err);
    }
    return st == EXO_OK ? index_added(t, part, err) : st;
}
