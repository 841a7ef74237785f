/* The generation settings of a Hugging Face directory: see generation_config.h. */
#include "programs/generation_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "programs/args.h"
#include "programs/show.h"
#include "report/json_text.h"

enum {
    MAX_FILE = 1 << 24
};

#define OWN_FILE "generation_config.json"
/* With a top_p of 0, transformers takes the most probable token. The smallest top_p here does the
 * same. */
#define LEAST_TOP_P 1e-6

/* --- Files ------------------------------------------------------------------------------------ */

static exo_status
read_file(const char *folder, const char *name, json_t **out, exo_err *err)
{
    char *path = exo_text_make(err, "%s/%s", folder, name), *text = NULL;
    size_t size = 0;
    json_error_t reason;
    exo_status st = path ? exo_file_read(path, MAX_FILE, &text, &size, err) : EXO_NOMEM;
    *out = st == EXO_OK ? json_loadb(text, size, JSON_REJECT_DUPLICATES, &reason) : NULL;
    if (st == EXO_OK && !*out)
        st = exo_fail(err, EXO_DAMAGED, "%s:%d:%d: %s", path, reason.line, reason.column,
                      reason.text);
    else if (st == EXO_OK && !json_is_object(*out))
        st = exo_fail(err, EXO_DAMAGED, "%s: is no JSON object", path);
    if (st != EXO_OK) {
        json_decref(*out);
        *out = NULL;
    }
    exo_free(path);
    exo_free(text);
    return st;
}

/* The keys that transformers takes from config.json if there is no generation_config.json; NULL:
 * none of them is there. */
static json_t *
of_model(const json_t *config)
{
    static const char keys[] =
        "bos_token_id|eos_token_id|pad_token_id|do_sample|temperature|top_k|top_p|"
        "repetition_penalty|max_new_tokens|num_beams|num_beam_groups|min_length|"
        "no_repeat_ngram_size|encoder_no_repeat_ngram_size|typical_p|bad_words_ids|"
        "suppress_tokens|begin_suppress_tokens|forced_bos_token_id|forced_eos_token_id|"
        "exponential_decay_length_penalty";
    char key[64];
    const char *list = keys, *word;
    json_t *out = NULL;
    for (size_t length; (length = exo_fixed_word(&list, &word)) > 0;) {
        snprintf(key, sizeof key, "%.*s", (int)length, word);
        json_t *value = json_object_get(config, key);
        if (!value || json_is_null(value))
            continue;
        out = out ? out : json_object();
        json_object_set(out, key, value);
    }
    return out;
}

exo_status
exo_generation_config_read(const char *folder, json_t **out, bool *own, exo_err *err)
{
    exo_err missing = {0};
    json_t *model = NULL;
    *out = NULL;
    exo_status st = read_file(folder, OWN_FILE, out, &missing);
    *own = st == EXO_OK;
    if (st == EXO_NOT_FOUND && (st = read_file(folder, "config.json", &model, &missing)) == EXO_OK)
        *out = of_model(model);
    json_decref(model);
    if (st != EXO_OK && st != EXO_NOT_FOUND)
        return exo_fail(err, st, "%s", missing.text);
    return EXO_OK;
}

/* --- Settings --------------------------------------------------------------------------------- */

struct reading {
    const char *folder;
    const json_t *json;
    const char *file;
    exo_err *err;
    exo_status status; /* the first error */
};

static const json_t *
value_of(const struct reading *r, const char *key)
{
    const json_t *value = json_object_get(r->json, key);
    return json_is_null(value) ? NULL : value;
}

static void
wrong(struct reading *r, const char *key, const char *expected)
{
    char *value = exo_json_dump(value_of(r, key), JSON_COMPACT | JSON_ENCODE_ANY);
    if (r->status == EXO_OK)
        r->status = exo_fail(r->err, EXO_DAMAGED, "%s/%s: \"%s\": %.100s is wrong: expected %s",
                             r->folder, r->file, key, value ? value : "?", expected);
    exo_free(value);
}

static bool
read_number(struct reading *r, const char *key, double min, double max, const char *expected,
            double *out)
{
    const json_t *value = value_of(r, key);
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (!value)
        return false;
    if (!(number >= min && number <= max)) {
        wrong(r, key, expected);
        return false;
    }
    *out = number;
    return true;
}

static bool
read_count(struct reading *r, const char *key, uint64_t min, const char *expected, uint64_t *out)
{
    const json_t *value = value_of(r, key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (!value)
        return false;
    if (number < 0 || (uint64_t)number < min || number > INT32_MAX) {
        wrong(r, key, expected);
        return false;
    }
    *out = (uint64_t)number;
    return true;
}

/* Reads top_k. 0 and -1 both stand for all tokens. */
static bool
read_top_k(struct reading *r, uint64_t *out)
{
    const json_t *value = value_of(r, "top_k");
    if (json_is_integer(value) && json_integer_value(value) == -1) {
        *out = 0;
        return true;
    }
    return read_count(r, "top_k", 0, "a whole number from 0, or -1", out);
}

/* Reads one token or a list of tokens; -1 stands for none. Returns their number. */
static size_t
read_tokens(struct reading *r, const char *key, int32_t *out, size_t room)
{
    const json_t *value = value_of(r, key);
    size_t count = json_is_array(value) ? json_array_size(value) : value ? 1 : 0, known = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        json_int_t number = json_is_integer(item) ? json_integer_value(item) : -2;
        if (number < -1 || number > INT32_MAX) {
            wrong(r, key, "the number of a token, or a list of them");
            return 0;
        }
        if (number >= 0 && known == room) {
            wrong(r, key, room == 1 ? "one token" : "at most 16 tokens");
            return 0;
        }
        if (number >= 0)
            out[known++] = (int32_t)number;
    }
    return known;
}

/* Keys that do not change a text: names, return values, methods of computation, and the total
 * length, which --max-new-tokens replaces. */
static const char harmless[] =
    "_from_model_config|transformers_version|pad_token_id|decoder_start_token_id|max_length|"
    "use_cache|cache_implementation|cache_config|return_legacy_cache|output_attentions|"
    "output_hidden_states|output_scores|output_logits|return_dict_in_generate|trust_remote_code|"
    "low_memory|compile_config|disable_compile|prefill_chunk_size|length_penalty|early_stopping|"
    "diversity_penalty|num_return_sequences|num_assistant_tokens|num_assistant_tokens_schedule|"
    "assistant_confidence_threshold|prompt_lookup_num_tokens|max_matching_ngram_size|"
    "assistant_early_exit|assistant_lookbehind|target_lookbehind|is_assistant|_commit_hash|"
    "renormalize_logits|remove_invalid_values|chat_format|max_window_size";
static const char done[] =
    "bos_token_id|eos_token_id|do_sample|temperature|top_k|top_p|repetition_penalty|max_new_tokens";

/* The neutral values of options for which it is not 0. */
static const struct {
    const char *key;
    double number;
} neutral[] = {{"num_beams", 1},      {"num_beam_groups", 1},
               {"typical_p", 1},      {"encoder_repetition_penalty", 1},
               {"guidance_scale", 1}, {"forced_bos_token_id", -1},
               {"top_h", 1},          {"forced_eos_token_id", -1}};

/* Is the option as good as absent: null, false, empty, or its neutral number? */
static bool
does_nothing(const char *key, const json_t *value)
{
    double number = 0;
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if (strcmp(neutral[i].key, key) == 0)
            number = neutral[i].number;
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && fabs(json_number_value(value) - number) < 1e-12) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static void
say_what_is_not_done(const struct reading *r)
{
    exo_text keys = {0}, line = {0};
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)r->json, key, value)
        if (exo_fixed_index(harmless, key) < 0 && exo_fixed_index(done, key) < 0 &&
            !does_nothing(key, value))
            exo_text_add(&keys, "%s%s", keys.length > 0 ? ", " : "", key);
    if (keys.length > 0)
        exo_text_add(&line, "exogym: %s/%s: is not done here: %s", r->folder, r->file, keys.data);
    if (line.length > 0) {
        exo_show(stderr, line.data, line.length, EXO_SHOWN_LINE);
        fputc('\n', stderr);
    }
    exo_free(keys.data);
    exo_free(line.data);
}

exo_status
exo_generation_defaults_read(exo_generation_defaults *out, const char *folder, exo_err *err)
{
    json_t *json = NULL;
    bool own = false;
    int32_t begin = -1;
    *out = (exo_generation_defaults){.begin = -1};
    exo_status st = exo_generation_config_read(folder, &json, &own, err);
    if (st != EXO_OK || !json)
        return st;
    struct reading r = {
        .folder = folder, .json = json, .file = own ? OWN_FILE : "config.json", .err = err};
    out->file = r.file;
    const json_t *sample = value_of(&r, "do_sample");
    if (sample && !json_is_boolean(sample))
        wrong(&r, "do_sample", "true or false");
    out->greedy = json_is_false(sample);
    out->has_temperature =
        read_number(&r, "temperature", 0, 1000, "a number from 0 to 1000", &out->temperature);
    out->has_top_p = read_number(&r, "top_p", 0, 1, "a number from 0 to 1", &out->top_p);
    out->top_p = fmax(out->top_p, LEAST_TOP_P);
    out->has_penalty = read_number(&r, "repetition_penalty", 0.01, 100, "a number from 0.01 to 100",
                                   &out->repetition_penalty);
    out->has_top_k = read_top_k(&r, &out->top_k);
    out->has_most =
        read_count(&r, "max_new_tokens", 1, "a whole number from 1", &out->max_new_tokens);
    out->num_ends = read_tokens(&r, "eos_token_id", out->ends, EXO_MAX_STOP_TOKENS);
    if (read_tokens(&r, "bos_token_id", &begin, 1) == 1)
        out->begin = begin;
    if (r.status == EXO_OK)
        say_what_is_not_done(&r);
    json_decref(json);
    return r.status;
}
