/* The contents of a tokenizer.json: each part that changes the tokens is either read or refused,
 * with the file and the place in the error. Also the regular expressions in it, and their
 * translation to PCRE2's syntax. Each test owns its tokenizers. Read next:
 * nn/text/tokenizer_impl.h, pattern.h. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/grow_text.h"
#include "nn/text/pattern.h"
#include "nn/text/tokenizer_impl.h"

#define MODEL                                                                                      \
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, \"a\": "   \
    "1, \"b\": 2, \"ab\": "                                                                        \
    "3, \" \": 4,"                                                                                 \
    " \"w\": 5, \"o\": 6, \"r\": 7, \"d\": 8}, \"merges\": [\"a b\"]}"

static exo_status
parse(exo_tokenizer **out, const char *json, exo_err *err)
{
    char *file = exo_strdup(json);
    return exo_tokenizer_parse(out, "dir/tokenizer.json", file, strlen(file), err);
}

/* --- Refused contents ------------------------------------------------------------------------- */

#define PART(key, value) "{\"" key "\": " value ", " MODEL "}"
#define ADDED(fields)                                                                              \
    PART("added_tokens", "[{\"id\": 9, \"content\": \"x\", \"special\": true}, {" fields "}]")

static const struct {
    const char *json;
    exo_status status;
    const char *place, *reason;
} refused[] = {
    {"", EXO_DAMAGED, ":1:0", "expected"},
    {"[]", EXO_DAMAGED, "dir/tokenizer.json", "an object is expected, but this is a list"},
    {"{}", EXO_DAMAGED, "dir/tokenizer.json", "'model' is missing"},
    {"{\"model\": {}, \"model\": {}}", EXO_DAMAGED, ":1:", "duplicate"},
    {"{\"version\": \"2.0\", " MODEL "}", EXO_UNSUPPORTED, "", "the version '2.0'"},
    {"{\"chat\": 1, " MODEL "}", EXO_UNSUPPORTED, "", "the key 'chat'"},
    {"{\"padding\": {}, " MODEL "}", EXO_DAMAGED, "padding", "'strategy' is missing"},
    {"{\"padding\": {\"strategy\": {\"Fixed\": 8}}, " MODEL "}", EXO_UNSUPPORTED, "padding",
     "set it to null"},
    {"{\"padding\": {\"strategy\": \"BatchLongest\", \"pad_to_multiple_of\": 8}, " MODEL "}",
     EXO_UNSUPPORTED, "padding", "set it to null"},
    {"{\"truncation\": {}, " MODEL "}", EXO_UNSUPPORTED, "truncation", "set it to null"},
    {"{\"model\": {\"type\": \"Unigram\"}}", EXO_UNSUPPORTED, "model", "the model 'Unigram'"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}", EXO_DAMAGED, "model.vocab",
     "an object is expected"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1.5}, \"merges\": []}}", EXO_DAMAGED,
     "model.vocab.a", "a whole number"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", EXO_DAMAGED,
     "model.vocab.a", "not between 0"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 5000000}, \"merges\": []}}", EXO_DAMAGED,
     "model.vocab.a", "not between 0"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
     EXO_DAMAGED, "model.vocab", "the same number, 0"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\\u0000\": 0}, \"merges\": []}}",
     EXO_UNSUPPORTED, ":1:", "NUL"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}", EXO_DAMAGED,
     "model.merges[0]", "two tokens"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]}}",
     EXO_DAMAGED, "model.merges[0]", "two tokens"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"a\", \"a\"]]}}",
     EXO_DAMAGED, "merges[0]", "these are 3"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\", 1]]}}",
     EXO_DAMAGED, "model.merges[0][1]", "a text"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}", EXO_DAMAGED,
     "model.merges[0]", "'b' is not in the"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"\": 1}, \"merges\": [\"a \"]}}",
     EXO_UNSUPPORTED, "merges[0]", "empty token"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", EXO_DAMAGED, "model",
     "'merges' is missing"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"unk_token\": \"u\"}}",
     EXO_DAMAGED, "model.unk_token", "'u' is not"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"dropout\": 0.1}}",
     EXO_UNSUPPORTED, "model.dropout", "null"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"end_of_word_suffix\": "
     "\"</w>\"}}",
     EXO_UNSUPPORTED, "model.end_of_word_suffix", "'</w>'"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"fuse_unk\": 1}}",
     EXO_DAMAGED, "model.fuse_unk", "true or false"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"more\": 1}}",
     EXO_UNSUPPORTED, "model", "the key 'more'"},
    {ADDED("\"id\": 10"), EXO_DAMAGED, "added_tokens[1]", "'content' is missing"},
    {ADDED("\"id\": 10, \"content\": \"\""), EXO_UNSUPPORTED, "added_tokens[1]", "empty"},
    {ADDED("\"id\": 12, \"content\": \"y\""), EXO_DAMAGED, "added_tokens[1]", "12 here, but 10"},
    {ADDED("\"id\": 9, \"content\": \"x\""), EXO_DAMAGED, "added_tokens[1]", "twice"},
    {ADDED("\"id\": 10, \"content\": \"y\", \"odd\": true"), EXO_UNSUPPORTED, "added_tokens[1]",
     "the key 'odd'"},
    {"{\"normalizer\": {\"type\": \"Lowercase\"}, \"added_tokens\": [{\"id\": 9, \"content\": "
     "\"X\"}, {\"id\": 10, \"content\": \"x\"}], " MODEL "}",
     EXO_UNSUPPORTED, "added_tokens[1]", "'X' and 'x' are the same"},
    {PART("normalizer", "{\"type\": \"Prepend\", \"prepend\": \"\"}"), EXO_UNSUPPORTED,
     "normalizer", "nothing"},
    {PART("normalizer", "{}"), EXO_DAMAGED, "normalizer", "'type' is missing"},
    {PART("normalizer", "{\"type\": \"BertNormalizer\"}"), EXO_UNSUPPORTED, "normalizer",
     "the normalizer 'BertNormalizer'"},
    {PART("normalizer",
          "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Nmt\"}]}"),
     EXO_UNSUPPORTED, "normalizer.normalizers[1]", "'Nmt'"},
    {PART("normalizer", "{\"type\": \"NFC\", \"more\": 1}"), EXO_UNSUPPORTED, "normalizer",
     "the key 'more'"},
    {PART("normalizer",
          "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}"),
     EXO_UNSUPPORTED, "normalizer.pattern.String", "empty"},
    {PART("normalizer",
          "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(a)\"}, \"content\": \"$1\"}"),
     EXO_UNSUPPORTED, "normalizer", "'$'"},
    {PART("normalizer",
          "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a(\"}, \"content\": \"\"}"),
     EXO_UNSUPPORTED, "normalizer.pattern.Regex", "regular expression"},
    {PART("normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\", \"Regex\": "
                        "\"a\"}, \"content\": \"\"}"),
     EXO_DAMAGED, "normalizer.pattern", "either"},
    {PART("normalizer",
          "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(?=x)\"}, \"content\": \"a\"}"),
     EXO_UNSUPPORTED, "normalizer", "between characters"},
    {PART("pre_tokenizer", "{\"type\": \"UnicodeScripts\"}"), EXO_UNSUPPORTED, "pre_tokenizer",
     "the pre-tokenizer 'UnicodeScripts'"},
    {PART("pre_tokenizer", "{\"type\": \"ByteLevel\"}"), EXO_DAMAGED, "pre_tokenizer",
     "'add_prefix_space' is missing"},
    {PART("pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": "
                           "\"Odd\", \"invert\": false}"),
     EXO_UNSUPPORTED, "pre_tokenizer", "the behavior 'Odd'"},
    {PART("pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"__\"}"), EXO_DAMAGED,
     "pre_tokenizer", "one character"},
    {PART("pre_tokenizer",
          "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}"),
     EXO_DAMAGED, "pre_tokenizer", "never"},
    {PART("pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\", "
                           "\"add_prefix_space\": true},{\"type\": \"Metaspace\", \"replacement\": "
                           "\"_\", \"prepend_scheme\": \"first\"}]}"),
     EXO_UNSUPPORTED, "pre_tokenizer.pretokenizers[1]", "after another prefix"},
    {PART("normalizer", "{\"type\": \"Prepend\", \"prepend\": \"_\"}, \"pre_tokenizer\": "
                        "{\"type\": \"Metaspace\", \"replacement\": "
                        "\"_\", \"prepend_scheme\": \"first\"}"),
     EXO_UNSUPPORTED, "pre_tokenizer", "with the normalizer 'Prepend'"},
    {PART("post_processor", "{\"type\": \"BertProcessing\"}"), EXO_UNSUPPORTED, "post_processor",
     "'BertProcessing'"},
    {PART("post_processor",
          "{\"type\": \"TemplateProcessing\", \"single\": [], \"special_tokens\": {}}"),
     EXO_UNSUPPORTED, "post_processor.single", "without the sequence"},
    {PART("post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": "
                            "{\"id\": \"B\"}}], \"special_tokens\": {}}"),
     EXO_UNSUPPORTED, "post_processor.single[0]", "only one sequence"},
    {PART("post_processor",
          "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}], "
          "\"special_tokens\": {}}"),
     EXO_DAMAGED, "post_processor.special_tokens", "'x' is missing"},
    {PART("post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
                            "{\"id\": \"x\"}}], \"special_tokens\": "
                            "{\"x\": {\"id\": \"x\", \"ids\": [77], \"tokens\": [\"x\"]}}}"),
     EXO_DAMAGED, "post_processor.special_tokens.x.ids[0]", "no token has the number 77"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0.0]]}}", EXO_UNSUPPORTED, "model",
     "the model 'Unigram' is not supported, only BPE"},
    {PART("decoder", "{\"type\": \"WordPiece\"}"), EXO_UNSUPPORTED, "decoder",
     "the decoder 'WordPiece' is not supported, only Sequence, ByteLevel, Replace"},
    {PART("decoder", "{\"type\": \"Strip\", \"content\": \"x\", \"start\": 1}"), EXO_DAMAGED,
     "decoder", "'stop' is missing"},
};

Test(tokenizer_file, refuses)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        exo_tokenizer *t = NULL;
        exo_err err = {0};
        cr_expect_eq(parse(&t, refused[i].json, &err), refused[i].status, "%s: %d, %s",
                     refused[i].json, err.code, err.text);
        cr_expect_null(t);
        cr_expect_eq(strncmp(err.text, "dir/tokenizer.json:", 19), 0, "%s", err.text);
        cr_expect(strstr(err.text, refused[i].place), "%s: %s", refused[i].place, err.text);
        cr_expect(strstr(err.text, refused[i].reason), "%s: %s", refused[i].reason, err.text);
        exo_tokenizer_drop(&t);
    }
}

Test(tokenizer_file, sequences_without_end)
{
    exo_text json = {0};
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    exo_text_add(&json, "{\"decoder\": ");
    for (int i = 0; i < 500; i++)
        exo_text_add(&json, "{\"type\": \"Sequence\", \"decoders\": [");
    exo_text_add(&json, "{\"type\": \"Fuse\"}");
    for (int i = 0; i < 500; i++)
        exo_text_add(&json, "]}");
    exo_text_add(&json, ", " MODEL "}");
    cr_expect_eq(parse(&t, json.data, &err), EXO_UNSUPPORTED, "%s", err.text);
    exo_free(json.data);
}

Test(tokenizer_file, a_file_that_is_not_there)
{
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_tokenizer_load(&t, "/nowhere/tokenizer.json", &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "/nowhere/tokenizer.json"), "%s", err.text);
    cr_expect_eq(exo_tokenizer_load(&t, "/tmp", &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "/tmp/tokenizer.json"), "%s", err.text);
}

/* --- Contents that the golden files lack ------------------------------------------------------ */

static void
expect_encoded(const char *json, const char *text, const char *expected)
{
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    int32_t *tokens = NULL;
    size_t count = 0;
    exo_text out = {0};
    cr_assert_eq(parse(&t, json, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tokenizer_encode(t, text, strlen(text), true, &tokens, &count, &err), EXO_OK,
                 "%s", err.text);
    exo_text_add(&out, "%s", "");
    for (size_t i = 0; i < count; i++)
        exo_text_add(&out, "%s%d", i ? " " : "", tokens[i]);
    cr_expect_str_eq(out.data, expected, "'%s'", text);
    exo_free(out.data);
    exo_free(tokens);
    exo_tokenizer_drop(&t);
}

/* The text is searched for an added token in the form that the normalizer gives it; decoding gives
 * the form of the file. */
Test(tokenizer_file, normalized_added_tokens)
{
    const char *json =
        "{\"normalizer\": {\"type\": \"Lowercase\"}, \"added_tokens\": [{\"id\": 9, \"content\": "
        "\"Word\", \"normalized\": true},"
        "{\"id\": 10, \"content\": \"AB\", \"normalized\": false}], " MODEL "}";
    exo_tokenizer *t = NULL;
    char *text = NULL;
    size_t size;
    expect_encoded(json, "WORD word", "9 4 9");
    expect_encoded(json, "AB ab aB", "10 4 3 4 3");
    cr_assert_eq(parse(&t, json, NULL), EXO_OK);
    cr_assert_eq(exo_tokenizer_decode(t, (int32_t[]){9}, 1, true, &text, &size, NULL), EXO_OK);
    cr_expect_str_eq(text, "Word");
    exo_free(text);
    exo_tokenizer_drop(&t);
}

/* An added token that takes the white space behind it takes it from the next added token, which
 * still counts. */
Test(tokenizer_file, added_tokens_that_take_white_space)
{
    const char *json = "{\"added_tokens\": [{\"id\": 9, \"content\": \"X\", \"rstrip\": true}, "
                       "{\"id\": 10, \"content\": \" y\"},{\"id\": 11, \"content\": \"  \", "
                       "\"lstrip\": true, \"rstrip\": true}], " MODEL "}";
    expect_encoded(json, "X y", "9 10");
    expect_encoded(json, "X  a", "9 1");
    expect_encoded(json, "a    b", "1 11 2");
}

/* If the beginning of a text is replaced by nothing, the rest is not the first piece. */
Test(tokenizer_file, what_is_first)
{
    const char *json = "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": "
                       "\"^x+\"}, \"content\": \"%s\"},"
                       "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"w\", "
                       "\"prepend_scheme\": \"first\"}, " MODEL "}";
    static const struct {
        const char *by, *text, *expected;
    } cases[] = {{"", "ab", "5 3"}, {"", "xab", "3"}, {"r", "xab", "5 7 3"}, {"r", "xxab", "7 3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_text file = {0};
        char before[256];
        const char *rest = strstr(json, "%s");
        snprintf(before, sizeof before, "%.*s", (int)(rest - json), json);
        exo_text_add(&file, "%s%s%s", before, cases[i].by, rest + 2);
        expect_encoded(file.data, cases[i].text, cases[i].expected);
        exo_free(file.data);
    }
}

Test(tokenizer_file, templates_put_tokens_on_both_sides)
{
    expect_encoded(
        "{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
        "{\"id\": \"x\", \"type_id\": 0}},{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
        "{\"SpecialToken\": {\"id\": \"y\", \"type_id\": 0}}], \"pair\": [],\"special_tokens\": "
        "{\"x\": {\"id\": \"x\", \"ids\": [7, 8], \"tokens\": [\"r\", \"d\"]},\"y\": {\"id\": "
        "\"y\", \"ids\": [5], \"tokens\": [\"w\"]}}}, " MODEL "}",
        "ab", "7 8 3 5");
}

Test(tokenizer_file, padding_to_the_longest_of_one_text_is_none)
{
    expect_encoded("{\"padding\": {\"strategy\": \"BatchLongest\", \"pad_to_multiple_of\": null, "
                   "\"pad_id\": 3}, " MODEL "}",
                   "ab", "3");
}

Test(tokenizer_file, characters_without_token)
{
    expect_encoded("{" MODEL "}", "axxb", "1 0 0 2");
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    int32_t *tokens;
    size_t count;
    cr_assert_eq(parse(&t, "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}", NULL), EXO_OK);
    cr_expect_eq(exo_tokenizer_encode(t, "ax", 2, true, &tokens, &count, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "U+0078"), "%s", err.text);
    exo_tokenizer_drop(&t);
}

/* Short steps that each double a text fail long before memory is exhausted. */
Test(tokenizer_file, steps_that_multiply_a_text_are_refused)
{
#define DOUBLE   "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}"
#define TWICE(x) x ", " x
#define MANY     TWICE(TWICE(TWICE(TWICE(DOUBLE))))
#define BYTES                                                                                      \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "              \
    "\"use_regex\": false}"
    static const char *const encoders[] = {
        "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [" MANY "]}, " MODEL "}",
        "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" TWICE(
            TWICE(TWICE(BYTES))) "]}, " MODEL "}",
    };
    char text[2000];
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    int32_t *tokens = NULL;
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        memset(text, i ? ' ' : 'a', sizeof text);
        cr_assert_eq(parse(&t, encoders[i], &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_tokenizer_encode(t, text, sizeof text, true, &tokens, &count, &err),
                     EXO_FAILED);
        cr_expect(strstr(err.text, "which is refused"), "%s", err.text);
        exo_tokenizer_drop(&t);
    }
    /* The same for decoding, and for added tokens, which the normalizer changes too. */
    int32_t ones[2000];
    char *out = NULL;
    for (size_t i = 0; i < 2000; i++)
        ones[i] = 1;
    cr_assert_eq(
        parse(&t, "{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [" MANY "]}, " MODEL "}",
              &err),
        EXO_OK, "%s", err.text);
    cr_expect_eq(exo_tokenizer_decode(t, ones, 2000, true, &out, &count, &err), EXO_FAILED);
    cr_expect(strstr(err.text, "which is refused"), "%s", err.text);
    exo_tokenizer_drop(&t);
    cr_expect_eq(parse(&t,
                       "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [" MANY
                       "]}, \"added_tokens\": [{\"id\": 9, \"content\": \"abba\", \"normalized\": "
                       "true}], " MODEL "}",
                       &err),
                 EXO_FAILED);
    cr_expect(strstr(err.text, "dir/tokenizer.json") && strstr(err.text, "which is refused"), "%s",
              err.text);
    /* A real tokenizer's growth of a text is accepted: 3 bytes for each byte, and one character in
     * front. */
    static const char spaces[] =
        "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
        "\"prepend\": \"\u2581\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
        "\"content\": \"\u2581\"}]}, " MODEL "}";
    memset(text, ' ', sizeof text);
    cr_assert_eq(parse(&t, spaces, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_tokenizer_encode(t, text, sizeof text, true, &tokens, &count, &err), EXO_OK,
                 "%s", err.text);
    exo_free(tokens);
    exo_tokenizer_drop(&t);
}

Test(tokenizer_file, a_token_alone_makes_no_long_list)
{
    exo_tokenizer *t = NULL;
    exo_err err = {0};
    cr_expect_eq(
        parse(&t, "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 4194303}, \"merges\": []}}", &err),
        EXO_DAMAGED);
    cr_expect(strstr(err.text, "far beyond the 2 tokens"), "%s", err.text);
    cr_expect_eq(
        parse(&t, "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 50256}, \"merges\": []}}", &err),
        EXO_OK, "%s", err.text);
    exo_tokenizer_drop(&t);
}

/* --- Regular expressions ---------------------------------------------------------------------- */

static const struct {
    const char *regex, *text;
    const char *matches; /* separated by |; NULL: the expression is refused */
} regexes[] = {
    {"a+", "aa b a", "aa|a"},
    {"\\s+", "a \t\u00a0\u3000b\u180ec", " \t\u00a0\u3000"},
    {"\\S+", "a \u180eb", "a|\u180eb"},
    {"[^\\s]+", "a \u180eb", "a|\u180eb"},
    {"[\\S]+", "a b", "a|b"},
    {"\\w+", "a1_\u0301 \u00e9\u203f-", "a1_\u0301|\u00e9\u203f"},
    {"\\w+", "a\u00b2\u00bd", "a\u00b2\u00bd"},
    {"[\\w]+", "a\u00b2\u00bd", "a"},
    {"[^\\w]", "a-b", "-"},
    {"\\W", "a-b", "-"},
    {"\\d\\D", "1a22", "1a"},
    {"\\bab", "ab cab", "ab"},
    {" ?[^(\\s|[.,!?\u2026])]+", "(a) b|c.", "a| b|c"},
    {"[a[bc]-]+", "a-c d", "a-c"},
    {"[a-c-]+", "a-c d", "a-c"},
    {"[]]", "]", NULL},
    {"[\\]\\-\\\\]+", "]-\\", "]-\\"},
    {"[\\x41-\\u0043\\x{44}]+", "ABCDE", "ABCD"},
    {"\\x{1F600}", "\U0001f600", "\U0001f600"},
    {"\\p{L}+\\p{^L}", "ab1", "ab1"},
    {"\\p{Han}+", "\u4f60\u3007a", "\u4f60\u3007"},
    {"\\p{Letter}+|\\P{Decimal_Number}", "ab.1", "ab|."},
    {"(?i:'LL)|x", "'ll 'LL X", "'ll|'LL"},
    {"(?i)x", "xX", "x|X"},
    {"a|(?i)x", "x", NULL},
    {"(?<=a)b(?!c)|(?>d)", "ab abc d", "b|d"},
    {"a{1,2}", "aaa", "aa|a"},
    {"a{2}+", "aaaa", NULL},
    {"a{,2}", "aa", NULL},
    {"a{2}?", "aa", NULL},
    {"^a|b$", "a\na b\nb", "a|a|b|b"},
    {".", "a\nb", "a|b"},
    {"x*", "ax", "|x"},
    {"[a&&b]", "a", NULL},
    {"[[:alpha:]]", "a", NULL},
    {"[a[^b]]", "a", NULL},
    {"[a", "a", NULL},
    {"[z-a]", "a", NULL},
    {"[a-\\d]", "a", NULL},
    {"(a", "a", NULL},
    {"a)", "a", NULL},
    {"(?x)a", "a", NULL},
    {"(?P<n>a)", "a", NULL},
    {"(*UTF)a", "a", NULL},
    {"\\1", "a", NULL},
    {"\\h", "a", NULL},
    {"\\R", "a", NULL},
    {"\\Ka", "a", NULL},
    {"a\\", "a", NULL},
    {"\\xff", "\u00ff", NULL},
    {"\\x{110000}", "a", NULL},
    {"\\u12", "a", NULL},
    {"\\p{Klingon}", "a", NULL},
    {"\\pL", "a", NULL},
    {"#a b", "#a b", "#a b"},
};

static void
expect_matches(const exo_pattern *pattern, const char *text, const char *expected)
{
    exo_matcher matcher;
    exo_text out = {0};
    bool found = true;
    size_t begin = 0, end = 0;
    cr_assert_eq(exo_matcher_open(&matcher, pattern, NULL), EXO_OK);
    exo_matcher_begin(&matcher, text, strlen(text));
    for (size_t i = 0; i < 20; i++) {
        cr_assert_eq(exo_matcher_next(&matcher, &found, &begin, &end, NULL), EXO_OK);
        if (!found)
            break;
        exo_text_add(&out, "%s%.*s", i ? "|" : "", (int)(end - begin), text + begin);
    }
    cr_expect_not(found);
    cr_expect_str_eq(out.data ? out.data : "", expected);
    exo_free(out.data);
    exo_matcher_close(&matcher);
}

Test(tokenizer_file, regular_expressions)
{
    for (size_t i = 0; i < sizeof regexes / sizeof *regexes; i++) {
        exo_pattern *pattern = NULL;
        exo_err err = {0};
        exo_status st = exo_pattern_regex(&pattern, regexes[i].regex, &err);
        if (regexes[i].matches) {
            cr_assert_eq(st, EXO_OK, "%s", err.text);
            expect_matches(pattern, regexes[i].text, regexes[i].matches);
        } else {
            cr_expect_eq(st, EXO_UNSUPPORTED, "%s: %s", regexes[i].regex, err.text);
            cr_expect(strstr(err.text, "regular expression"), "%s", err.text);
        }
        exo_pattern_free(&pattern);
    }
}

/* A pattern that would try every way to divide the text ends with an error. */
Test(tokenizer_file, a_regular_expression_that_takes_too_long)
{
    exo_pattern *pattern = NULL;
    exo_matcher matcher;
    exo_err err = {0};
    bool found;
    size_t begin, end;
    const char *text = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabc";
    cr_assert_eq(exo_pattern_regex(&pattern, "(a|aa)+c", NULL), EXO_OK);
    cr_assert_eq(exo_matcher_open(&matcher, pattern, NULL), EXO_OK);
    exo_matcher_begin(&matcher, text, strlen(text));
    cr_expect_eq(exo_matcher_next(&matcher, &found, &begin, &end, &err), EXO_FAILED);
    cr_expect(strstr(err.text, "takes too long"), "%s", err.text);
    exo_matcher_close(&matcher);
    exo_pattern_free(&pattern);
}
