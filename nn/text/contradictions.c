/* Contradictions between tokenizer_config.json and tokenizer.json, each logged as a warning.
 *
 * exogym follows tokenizer.json. transformers takes some values from tokenizer_config.json, so the
 * same text can have other tokens there. No state. Read next: ends.c, which calls this. */
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>

#include "nn/text/tokenizer_impl.h"

/* transformers' classes of other kinds of tokenizers, by the beginning of their names. */
static const struct {
    const char *beginning, *kind;
} classes[] = {
    {"Bert", "WordPiece"},       {"DistilBert", "WordPiece"}, {"Electra", "WordPiece"},
    {"MobileBert", "WordPiece"}, {"T5", "Unigram"},           {"Albert", "Unigram"},
    {"XLNet", "Unigram"},        {"Pegasus", "Unigram"},      {"MBart", "Unigram"},
    {"XLMRoberta", "Unigram"},   {"Camembert", "Unigram"},    {"BigBird", "Unigram"},
};

static void
check_class(const exo_json *config)
{
    const char *name = json_string_value(json_object_get(config->value, "tokenizer_class"));
    for (size_t i = 0; name && i < sizeof classes / sizeof *classes; i++) {
        size_t length = strlen(classes[i].beginning);
        if (strncmp(name, classes[i].beginning, length) == 0 &&
            strncmp(name + length, "Tokenizer", 9) == 0)
            EXO_LOG(WARN, TEXT,
                    "%s: tokenizer_class is '%.64s', %s; tokenizer.json, which counts, is BPE",
                    config->file, name, classes[i].kind);
    }
}

/* An entry of added_tokens_decoder: {"NUMBER": {"content": ..., "special": ...}}. */
static void
check_added(const exo_tokenizer *t, const exo_json *config, const char *key, const json_t *token)
{
    const char *content = json_string_value(json_object_get(token, "content"));
    const json_t *special = json_object_get(token, "special");
    char *end = NULL;
    long long number = strtoll(key, &end, 10);
    if (!content || end == key || *end)
        return;
    int32_t known = exo_tokenizer_token(t, content);
    if (known < 0)
        EXO_LOG(WARN, TEXT,
                "%s: added_tokens_decoder has '%.64s' with the number %.20s, which tokenizer.json "
                "does not have",
                config->file, content, key);
    else if (known != number)
        EXO_LOG(WARN, TEXT,
                "%s: added_tokens_decoder gives '%.64s' the number %.20s; tokenizer.json, which "
                "counts, %d",
                config->file, content, key, known);
    else if (json_is_boolean(special) &&
             json_is_true(special) != t->bpe.vocab.spellings[known].special)
        EXO_LOG(WARN, TEXT,
                "%s: added_tokens_decoder says that '%.64s' is %s; tokenizer.json, which counts, "
                "does not",
                config->file, content, json_is_true(special) ? "special" : "not special");
}

/* add_bos_token and add_eos_token: whether encoding puts a token before or after a text. */
static void
check_ends(const exo_json *config, const char *key, const char *where, bool does)
{
    const json_t *says = json_object_get(config->value, key);
    if (json_is_boolean(says) && json_is_true(says) != does)
        EXO_LOG(WARN, TEXT, "%s: %s is %s, but tokenizer.json, which counts, %s %s a text",
                config->file, key, json_is_true(says) ? "true" : "false",
                does ? "puts a token" : "puts nothing", where);
}

/* add_prefix_space, with ByteLevel only: a SentencePiece tokenizer may put the space before a text
 * in its normalizer. */
static void
check_space(const exo_tokenizer *t, const exo_json *config)
{
    const json_t *says = json_object_get(config->value, "add_prefix_space");
    bool bytes = false, does = false;
    for (size_t i = 0; i < t->pre_tokenizer.count; i++) {
        bytes = bytes || t->pre_tokenizer.items[i].kind == EXO_STEP_BYTES;
        does = does || t->pre_tokenizer.items[i].kind == EXO_STEP_PREFIX;
    }
    if (bytes && json_is_boolean(says) && json_is_true(says) != does)
        EXO_LOG(WARN, TEXT,
                "%s: add_prefix_space is %s, but tokenizer.json, which counts, has it %s",
                config->file, json_is_true(says) ? "true" : "false", does ? "true" : "false");
}

void
exo_warn_of_contradictions(const exo_tokenizer *t, const exo_json *config)
{
    const char *key;
    json_t *token;
    check_class(config);
    json_object_foreach (json_object_get(config->value, "added_tokens_decoder"), key, token)
        check_added(t, config, key, token);
    check_ends(config, "add_bos_token", "before", t->before.count > 0);
    check_ends(config, "add_eos_token", "after", t->after.count > 0);
    check_space(t, config);
}
