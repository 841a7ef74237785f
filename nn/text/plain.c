/* Tokenizers without a file: of characters and of bytes. Each is written as a tokenizer.json in
 * memory, and loaded from it. So a saved tokenizer is the one that was used. The new tokenizer
 * owns all state. Read next: load.c. */
#include <string.h>

#include <exogym/memory.h>

#include "base/utf8.h"
#include "nn/text/tokenizer_impl.h"

static void
add_spelling(exo_text *out, uint32_t code, size_t number)
{
    char bytes[4];
    exo_text_add(out, "%s\n      \"", number ? "," : "");
    if (code < 0x20 || code == 0x7f)
        exo_text_add(out, "\\u%04x", code);
    else if (code == '"' || code == '\\')
        exo_text_add(out, "\\%c", (int)code);
    else
        exo_text_add_bytes(out, bytes, exo_utf8_put(code, bytes));
    exo_text_add(out, "\": %zu", number);
}

static void
begin_file(exo_text *out, const char *pre_tokenizer, const char *decoder)
{
    exo_text_add(
        out,
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  "
        "\"added_tokens\": [],\n"
        "  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n  \"post_processor\": null,\n  "
        "\"decoder\": %s,\n"
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    "
        "\"fuse_unk\": false,\n"
        "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {",
        pre_tokenizer, decoder);
}

static exo_status
end_file(exo_tokenizer **out, exo_text *file, const char *name, exo_err *err)
{
    exo_text_add(file, "\n    },\n    \"merges\": []\n  }\n}\n");
    if (!file->failed)
        return exo_tokenizer_parse(out, name, file->data, file->length, err);
    exo_free(file->data);
    return exo_fail(err, EXO_NOMEM, "no memory for a tokenizer");
}

exo_status
exo_tokenizer_characters(exo_tokenizer **out, const char *alphabet, size_t size, exo_err *err)
{
    exo_text file = {0};
    exo_status st = EXO_OK;
    uint32_t last = 0;
    size_t number = 0;
    begin_file(&file, "null", "{\"type\": \"Fuse\"}");
    for (size_t at = 0; at < size && st == EXO_OK; number++) {
        uint32_t code;
        size_t length = exo_utf8_next(alphabet + at, size - at, &code);
        if (code == EXO_UTF8_INVALID)
            st = exo_fail(err, EXO_INVAL, "the alphabet is not UTF-8 at byte %zu", at);
        else if (code == 0)
            st = exo_fail(err, EXO_INVAL,
                          "the alphabet has U+0000 at byte %zu, which no tokenizer.json can hold",
                          at);
        else if (code <= last)
            st = exo_fail(err, EXO_INVAL,
                          "the alphabet is not sorted, or has a character twice: U+%04X at byte "
                          "%zu comes after U+%04X",
                          code, at, last);
        add_spelling(&file, code, number);
        last = code;
        at += length;
    }
    if (st == EXO_OK && size == 0)
        st = exo_fail(err, EXO_INVAL, "the alphabet is empty");
    if (st == EXO_OK)
        return end_file(out, &file, "the tokenizer of characters", err);
    exo_free(file.data);
    return st;
}

exo_status
exo_tokenizer_characters_of(exo_tokenizer **out, const char *text, size_t size, exo_err *err)
{
    enum {
        CODES = 0x110000
    };
    bool *seen = exo_calloc(CODES, sizeof *seen);
    exo_text alphabet = {0};
    exo_status st = EXO_OK;
    char bytes[4];
    if (!seen)
        return exo_fail(err, EXO_NOMEM, "no memory for an alphabet");
    for (size_t at = 0; at < size && st == EXO_OK;) {
        uint32_t code;
        size_t length = exo_utf8_next(text + at, size - at, &code);
        if (code == EXO_UTF8_INVALID)
            st = exo_fail(err, EXO_INVAL, "the text is not UTF-8 at byte %zu", at);
        else if (code == 0)
            st = exo_fail(err, EXO_INVAL,
                          "the text has U+0000 at byte %zu, which no tokenizer.json can hold", at);
        else
            seen[code] = true;
        at += length;
    }
    for (uint32_t code = 0; code < CODES && st == EXO_OK; code++)
        if (seen[code])
            exo_text_add_bytes(&alphabet, bytes, exo_utf8_put(code, bytes));
    if (st == EXO_OK && alphabet.failed)
        st = exo_fail(err, EXO_NOMEM, "no memory for an alphabet");
    if (st == EXO_OK)
        st =
            exo_tokenizer_characters(out, alphabet.data ? alphabet.data : "", alphabet.length, err);
    exo_free(alphabet.data);
    exo_free(seen);
    return st;
}

exo_status
exo_tokenizer_bytes(exo_tokenizer **out, exo_err *err)
{
    exo_text file = {0};
    begin_file(&file,
               "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, "
               "\"use_regex\": false}",
               "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, "
               "\"use_regex\": false}");
    for (unsigned byte = 0; byte < 256; byte++)
        add_spelling(&file, exo_byte_character((unsigned char)byte), byte);
    exo_status st = end_file(out, &file, "the tokenizer of bytes", err);
    if (st == EXO_OK)
        (*out)->raw = true;
    return st;
}
