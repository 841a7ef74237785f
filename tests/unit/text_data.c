/* Text as data: windows that were counted by hand, the parts of a text, boundaries of documents,
 * and each node's share. Each test owns its folder. Read next: nn/corpus/documents.h;
 * docs/data.md. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "base/memory_fault.h"
#include "nn/corpus/documents.h"
#include "support/points.h"
#include "support/temp.h"
#include "support/texts.h"

static char folder[64];

static void
setup(void)
{
    temp_folder(folder, sizeof folder);
}

static void
teardown(void)
{
    temp_remove(folder);
}

TestSuite(text_data, .init = setup, .fini = teardown);

/* The whole text for both halves. */
static exo_window_opts
whole(size_t block, size_t stride)
{
    exo_window_opts opts = exo_window_opts_init();
    opts.block = block;
    opts.stride = stride;
    opts.end = 1;
    opts.val_start = 0;
    return opts;
}

static exo_dataset *
open_text(const char *path, exo_tokenizer *tokenizer, exo_window_opts opts)
{
    exo_dataset *train = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_dataset_text(&train, NULL, path, tokenizer, &opts, &err), EXO_OK, "%s",
                 err.text);
    return train;
}

static void
refuse_text(const char *path, exo_tokenizer *tokenizer, exo_window_opts opts, exo_status status,
            const char *reason)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_dataset_text(&train, &val, path, tokenizer, &opts, &err), status, "%s",
                 err.text);
    cr_expect(strstr(err.text, reason), "'%s' does not say '%s'", err.text, reason);
    cr_expect_null(train);
    cr_expect_null(val);
}

/* --- Windows ---------------------------------------------------------------------------------- */

Test(text_data, a_window_and_what_follows_each_of_its_tokens)
{
    /* The alphabet " dehlorw" gives: h 3, e 2, l 4, l 4, o 5, space 0, w 7, o 5, r 6, l 4, d 1. */
    exo_dataset *d = open_text(texts_write_text(folder, "a.txt", "hello world"), NULL, whole(3, 1));
    exo_field fields[EXO_MAX_FIELDS];
    int32_t out[3];
    exo_err err = {0};
    cr_assert_eq(exo_dataset_fields(d, fields), 2);
    cr_expect_str_eq(fields[0].name, "tokens");
    cr_expect_str_eq(fields[1].name, "targets");
    for (int i = 0; i < 2; i++)
        cr_expect(fields[i].dtype == EXO_I32 && fields[i].num_dims == 1 && fields[i].dims[0] == 3);
    cr_expect_eq(exo_dataset_length(d), 11 - 3);
    texts_expect(d, 0, 3, (int32_t[]){3, 2, 4}, (int32_t[]){2, 4, 4});
    texts_expect(d, 4, 3, (int32_t[]){5, 0, 7}, (int32_t[]){0, 7, 5});
    texts_expect(d, 7, 3, (int32_t[]){5, 6, 4}, (int32_t[]){6, 4, 1});
    cr_expect_eq(exo_dataset_get(d, 8, &(exo_sample_key){0}, (void *[]){out, out}, &err),
                 EXO_INVAL);
    exo_dataset_drop(&d);
}

Test(text_data, strides_count_windows)
{
    static const struct {
        size_t tokens, block, stride, windows;
    } cases[] = {{9, 4, 4, 2},  {8, 4, 4, 1},   {5, 4, 4, 1},  {18, 4, 4, 4}, {17, 4, 4, 4},
                 {18, 4, 3, 5}, {18, 4, 1, 14}, {18, 4, 7, 2}, {18, 4, 99, 1}};
    const char letters[] = "abcdefghijklmnopqr";
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_dataset *d = open_text(texts_write(folder, "t.txt", letters, cases[c].tokens), NULL,
                                   whole(cases[c].block, cases[c].stride));
        cr_expect_eq(exo_dataset_length(d), cases[c].windows, "case %zu: %zu", c,
                     exo_dataset_length(d));
        for (size_t i = 0; i < exo_dataset_length(d); i++) {
            int32_t tokens[TEXTS_MAX_BLOCK], targets[TEXTS_MAX_BLOCK];
            texts_sample(d, i, tokens, targets);
            for (size_t k = 0; k < cases[c].block; k++) {
                cr_expect_eq(tokens[k], (int32_t)(i * cases[c].stride + k));
                cr_expect_eq(targets[k], tokens[k] + 1);
            }
        }
        exo_dataset_drop(&d);
    }
}

Test(text_data, halves_are_fractions_of_the_tokens)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_window_opts opts = exo_window_opts_init();
    opts.block = 1;
    const char *path = texts_write_text(folder, "t.txt", "abcdefghijklmnopqrs"); /* 19 tokens */
    cr_assert_eq(exo_dataset_text(&train, &val, path, NULL, &opts, NULL), EXO_OK);
    cr_expect_eq(exo_dataset_length(train), 17 - 1, "0.9 of 19 is 17.1");
    cr_expect_eq(exo_dataset_length(val), 2 - 1);
    texts_expect(train, 15, 1, (int32_t[]){15}, (int32_t[]){16});
    texts_expect(val, 0, 1, (int32_t[]){17}, (int32_t[]){18});
    exo_dataset_drop(&train);
    /* the tokens live as long as one of the halves */
    texts_expect(val, 0, 1, (int32_t[]){17}, (int32_t[]){18});
    exo_dataset_drop(&val);

    opts = (exo_window_opts){
        .block = 2, .stride = 1, .start = 0.25, .end = 0.5, .val_start = 0, .val_end = 0.25};
    cr_assert_eq(exo_dataset_text(&train, &val, path, NULL, &opts, NULL), EXO_OK);
    cr_expect_eq(exo_dataset_length(train), 9 - 4 - 2);
    texts_expect(train, 0, 2, (int32_t[]){4, 5}, (int32_t[]){5, 6});
    texts_expect(train, 2, 2, (int32_t[]){6, 7}, (int32_t[]){7, 8});
    texts_expect(val, 1, 2, (int32_t[]){1, 2}, (int32_t[]){2, 3});
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
}

Test(text_data, what_has_no_window_is_refused_with_its_part)
{
    /* 20 tokens: 18 and 2 */
    const char *path = texts_write_text(folder, "t.txt", "abcdefghijklmnopqrst");
    exo_window_opts opts = exo_window_opts_init();
    refuse_text(path, NULL, opts, EXO_INVAL,
                "training part, 0 to 0.9 of 20 tokens, has 18: a window of block 256");
    opts.block = 2;
    refuse_text(path, NULL, opts, EXO_INVAL,
                "validation part, 0.9 to 1 of 20 tokens, has 2: a window of block 2");
    refuse_text(path, NULL, whole(0, 1), EXO_INVAL, "block");
    refuse_text(path, NULL, whole(1, 0), EXO_INVAL, "stride");
    opts = whole(1, 1);
    opts.start = 1;
    refuse_text(path, NULL, opts, EXO_INVAL, "0 <= start_pc < end_pc <= 1");
    opts = whole(1, 1);
    opts.val_end = 1.5;
    refuse_text(path, NULL, opts, EXO_INVAL, "val_end_pc");
    refuse_text(texts_write_text(folder, "empty.txt", ""), NULL, whole(1, 1), EXO_INVAL,
                "empty.txt");
    refuse_text(texts_path(folder, "none.txt"), NULL, whole(1, 1), EXO_NOT_FOUND, "none.txt");
    texts_write_text(folder, "no_text/a.md", "abc");
    refuse_text(texts_path(folder, "no_text"), NULL, whole(1, 1), EXO_NOT_FOUND, "*.txt");
}

/* --- Documents -------------------------------------------------------------------------------- */

/* Three documents, "ab", "c" and "de", an empty one between, and files that are no text. */
#define write_documents() write_documents_in((char[TEXTS_PATH]){0})

static const char *
write_documents_in(char out[TEXTS_PATH])
{
    texts_write_text(folder, "docs/2.txt", "c");
    texts_write_text(folder, "docs/1.txt", "ab");
    texts_write_text(folder, "docs/10.txt", "");
    texts_write_text(folder, "docs/3.txt", "de");
    texts_write_text(folder, "docs/2.md", "zzz");
    texts_write_text(folder, "docs/.hidden.txt", "zzz");
    return texts_path_in(out, folder, "docs");
}

Test(text_data, documents_follow_each_other_in_the_order_of_names)
{
    exo_window_opts opts = whole(4, 1);
    opts.documents = EXO_DOCUMENTS_IGNORE;
    exo_dataset *d = open_text(write_documents(), NULL, opts);
    cr_expect_eq(exo_dataset_length(d), 1);
    texts_expect(d, 0, 4, (int32_t[]){0, 1, 2, 3}, (int32_t[]){1, 2, 3, 4});
    exo_dataset_drop(&d);
}

Test(text_data, an_end_token_stands_between_documents)
{
    enum {
        E = TEXTS_END
    };
    exo_tokenizer *t = texts_tokenizer(folder);
    for (int automatic = 0; automatic < 2; automatic++) {
        exo_window_opts opts = whole(6, 1);
        opts.documents = automatic ? EXO_DOCUMENTS_AUTO : EXO_DOCUMENTS_END;
        exo_dataset *d = open_text(write_documents(), t, opts);
        cr_expect_eq(exo_dataset_length(d), 1);
        texts_expect(d, 0, 6, (int32_t[]){2, 3, E, 4, E, 5}, (int32_t[]){3, E, 4, E, 5, 6});
        exo_dataset_drop(&d);
    }
    exo_window_opts opts = whole(4, 1);
    opts.documents = EXO_DOCUMENTS_IGNORE;
    exo_dataset *d = open_text(write_documents(), t, opts);
    texts_expect(d, 0, 4, (int32_t[]){2, 3, 4, 5}, (int32_t[]){3, 4, 5, 6});
    exo_dataset_drop(&d);
    exo_tokenizer_drop(&t);
}

/* Appends "index:text " to the text that it has. */
static exo_status
note_document(void *context, size_t index, const char *text, size_t size, uint64_t offset,
              exo_err *err)
{
    (void)offset, (void)err;
    char *out = context;
    sprintf(out + strlen(out), "%zu:%.*s ", index, (int)size, text);
    return EXO_OK;
}

Test(text_data, lines_of_json_may_lie_across_the_end_of_what_is_read)
{
    for (size_t limit = 14; limit < 40; limit++) { /* a line has 14 bytes */
        char all[256] = "";
        exo_file_list files = {0};
        exo_err err = {0};
        const char *path = texts_write_text(folder, "d.jsonl",
                                            "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n"
                                            "{\"text\": \"ef\"}\n{\"text\": \"gh\"}");
        cr_assert_eq(exo_file_list_add(&files, path, ".txt", NULL), EXO_OK);
        cr_expect_eq(exo_documents_read(&files, limit, note_document, all, NULL, &err), EXO_OK,
                     "%s", err.text);
        cr_expect_str_eq(all, "0:ab 1:cd 2:ef 3:gh ");
        cr_expect_eq(exo_documents_read(&files, 12, note_document, all, NULL, &err), EXO_INVAL);
        cr_expect(strstr(err.text, "d.jsonl:1: the line has more than 12 bytes"), "%s", err.text);
        exo_file_list_release(&files);
    }
}

Test(text_data, lines_of_json_are_documents)
{
    enum {
        E = TEXTS_END
    };
    static const char *const wrong[][2] = {
        {"{\"text\": \"ab\"}\n{\"text\": 1}", "w.jsonl:2: an object with the key 'text'"},
        {"\n{\"Text\": \"ab\"}", "w.jsonl:2: an object with the key 'text'"},
        {"[1]", "w.jsonl:1:1: no JSON object, but another value"},
        {"{\"text\": \"ab", "w.jsonl:1:12: no JSON object: "},
        {"\xFF\xFE{", "w.jsonl:1:1: no JSON object: "}, /* UTF-16 */
        {"\n  {\"text\": \"\\ud800\"}", "w.jsonl:2:"},
        {"{\"text\": \"a\\u0000b\"}", "w.jsonl:1: byte 1 is U+0000: the tokenizer 'bytes'"}};
    exo_tokenizer *t = texts_tokenizer(folder);
    exo_window_opts opts = whole(6, 1);
    opts.documents = EXO_DOCUMENTS_END;
    const char *path = texts_write_text(folder, "d.jsonl",
                                        "{\"text\": \"ab\", \"id\": 1}\r\n{\"text\": \"\"}\n "
                                        "\n{\"text\": \"\\u0063\"}\n{\"text\": \"de\"}");
    exo_dataset *d = open_text(path, t, opts);
    cr_expect_eq(exo_dataset_length(d), 1);
    texts_expect(d, 0, 6, (int32_t[]){2, 3, E, 4, E, 5}, (int32_t[]){3, E, 4, E, 5, 6});
    exo_dataset_drop(&d);
    path = texts_write_text(folder, "m.jsonl",
                            "\xEF\xBB\xBF{\"text\": \"ab\", \"id\": 18446744073709551616}\r\n"
                            "{\"note\": \"\\u0000\", \"text\": \"cde\"}\r\n");
    opts.block = 5;
    d = open_text(path, t, opts);
    texts_expect(d, 0, 5, (int32_t[]){2, 3, E, 4, 5}, (int32_t[]){3, E, 4, 5, 6});
    exo_dataset_drop(&d);
    refuse_text(folder, NULL, whole(1, 1), EXO_NOT_FOUND,
                "; for its *.jsonl give the path of each");
    refuse_text(texts_write(folder, "z.jsonl", "\0\n{\"text\": \"ab\"}", 16), NULL, whole(1, 1),
                EXO_INVAL, "z.jsonl:1:1: no JSON object: ");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse_text(texts_write_text(folder, "w.jsonl", wrong[i][0]), NULL, whole(1, 1), EXO_INVAL,
                    wrong[i][1]);
    exo_tokenizer_drop(&t);
}

Test(text_data, separate_documents_never_predict_each_other)
{
    enum {
        E = TEXTS_END
    };
    exo_tokenizer *t = texts_tokenizer(folder);
    exo_window_opts opts = whole(6, 1);
    opts.documents = EXO_DOCUMENTS_SEPARATE;
    exo_dataset *d = open_text(write_documents(), t, opts);
    texts_expect(d, 0, 6, (int32_t[]){2, 3, E, 4, E, 5}, (int32_t[]){3, E, -1, E, -1, 6});
    exo_dataset_drop(&d);
    exo_tokenizer_drop(&t);

    opts.block = 4; /* characters have no end token: the files are the boundaries */
    d = open_text(write_documents(), NULL, opts);
    texts_expect(d, 0, 4, (int32_t[]){0, 1, 2, 3}, (int32_t[]){1, -1, -1, 4});
    exo_dataset_drop(&d);
    opts.block = 2;
    d = open_text(write_documents(), NULL, opts);
    texts_expect(d, 0, 2, (int32_t[]){0, 1}, (int32_t[]){1, -1});
    texts_expect(d, 1, 2, (int32_t[]){1, 2}, (int32_t[]){-1, -1});
    texts_expect(d, 2, 2, (int32_t[]){2, 3}, (int32_t[]){-1, 4});
    exo_dataset_drop(&d);
    opts.documents = EXO_DOCUMENTS_END;
    refuse_text(write_documents(), NULL, opts, EXO_INVAL, "the tokenizer has no end token");
}

/* --- Tokenizers ------------------------------------------------------------------------------- */

Test(text_data, a_data_set_says_its_tokenizer_also_in_parts)
{
    exo_dataset *d = open_text(texts_write_text(folder, "t.txt", "abcabcabc"), NULL, whole(2, 1)),
                *slice = NULL, *part = NULL, *points = points_new(10, 1, SIZE_MAX);
    char *text = NULL;
    size_t size = 0;
    cr_assert_eq(exo_dataset_slice(&slice, d, 1, 3, NULL), EXO_OK);
    cr_assert_eq(exo_dataset_split(&part, d, 1, 2, NULL), EXO_OK);
    exo_tokenizer *t = exo_dataset_tokenizer(d);
    cr_assert_not_null(t);
    cr_expect_eq(exo_dataset_tokenizer(slice), t);
    cr_expect_eq(exo_dataset_tokenizer(part), t);
    cr_expect_eq(exo_dataset_vocabulary(d), 3);
    cr_expect_eq(exo_dataset_vocabulary(slice), 3);
    cr_expect_eq(exo_dataset_vocabulary(part), 3);
    exo_dataset_drop(&d);
    cr_assert_eq(exo_tokenizer_decode(t, (int32_t[]){2, 0, 1}, 3, false, &text, &size, NULL),
                 EXO_OK);
    cr_expect_str_eq(text, "cab");
    exo_free(text);
    cr_expect_null(exo_dataset_tokenizer(points));
    cr_expect_eq(exo_dataset_vocabulary(points), 0);
    exo_dataset_drop(&slice);
    exo_dataset_drop(&part);
    exo_dataset_drop(&points);
}

Test(text_data, what_the_tokenizer_refuses_is_named_with_its_file)
{
    exo_tokenizer *t = NULL;
    cr_assert_eq(exo_tokenizer_characters(&t, "abc", 3, NULL), EXO_OK);
    texts_write_text(folder, "docs/a.txt", "abc");
    texts_write_text(folder, "docs/b.txt", "abXc");
    refuse_text(texts_path(folder, "docs"), t, whole(1, 1), EXO_INVAL, "docs/b.txt: ");
    exo_tokenizer_drop(&t);
    refuse_text(texts_write(folder, "bad.txt", "ab\xC3(", 4), NULL, whole(1, 1), EXO_INVAL,
                "bad.txt: byte 2 is not UTF-8");
}

Test(text_data, any_bytes_are_text_to_the_tokenizer_of_bytes)
{
    exo_tokenizer *t = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    exo_dataset *d = open_text(texts_write(folder, "b.txt", "\xFF\x00\x80z", 4), t, whole(3, 1));
    texts_expect(d, 0, 3, (int32_t[]){255, 0, 128}, (int32_t[]){0, 128, 'z'});
    cr_expect_eq(exo_dataset_vocabulary(d), exo_tokenizer_vocabulary(t));
    exo_dataset_drop(&d);
    exo_tokenizer_drop(&t);
}

Test(text_data, an_alphabet_has_every_character_once)
{
    /* Characters of one, two, three and four bytes; U+E000 and U+D7FF are next to the
     * surrogates. */
    const char text[] = "b\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"
                        "ab\xEE\x80\x80\xED\x9F\xBF\xC3\xA9";
    exo_dataset *d =
        open_text(texts_write(folder, "u.txt", text, sizeof text - 1), NULL, whole(8, 1));
    cr_expect_eq(exo_dataset_vocabulary(d), 7);
    texts_expect(d, 0, 8, (int32_t[]){1, 2, 3, 6, 0, 1, 5, 4}, (int32_t[]){2, 3, 6, 0, 1, 5, 4, 2});
    exo_dataset_drop(&d);
    static const char *const wrong[] = {
        "a\x80",         "a\xC0\x80",         "a\xE0\x80\x80",
        "a\xED\xA0\x80", "a\xF4\x90\x80\x80", "a\xF8\x88\x80\x80\x80",
        "a\xE2\x82"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse_text(texts_write_text(folder, "w.txt", wrong[i]), NULL, whole(1, 1), EXO_INVAL,
                    "w.txt: byte 1 is not UTF-8");
    refuse_text(texts_write(folder, "z.txt", "ab\0c", 4), NULL, whole(1, 1), EXO_INVAL,
                "z.txt: byte 2 is U+0000");
}

Test(text_data, a_file_that_is_no_text_is_told_what_it_is)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *part; /* of the message */
    } files[] = {
        {"\x1F\x8B\x08\0", 4, "x.txt: byte 1 is not UTF-8: the file is compressed by gzip"},
        {"\x28\xB5\x2F\xFD\x04", 5, "byte 1 is not UTF-8: the file is compressed by zstd"},
        {"\xFD\x37zXZ\0", 6, "byte 0 is not UTF-8: the file is compressed by xz"},
        {"BZh91AY&SY\x9D", 11, "byte 10 is not UTF-8: the file is compressed by bzip2"},
        {"BZh9\x17rE8P\x90\0\0", 12, "byte 9 is not UTF-8: the file is compressed by bzip2"},
        {"BZh f\xFCr alle", 12, "byte 5 is not UTF-8: convert the text to UTF-8, as by iconv"},
        {"BZh91AY&SX\xFC", 11, "byte 10 is not UTF-8: convert the text to UTF-8, as by iconv"},
        {"PAR1\x15\0", 6, "byte 5 is U+0000: the file is a Parquet table"},
        {"PAR1S \xE9t\xE9", 9, "byte 6 is not UTF-8: convert the text to UTF-8, as by iconv"},
        {"PK\x03\x04\x14\0", 6, "byte 5 is U+0000: the file is a zip archive"},
        {"\xFF\xFE\x61\0", 4, "byte 0 is not UTF-8: the file is UTF-16: convert it with iconv"},
        {"\xFE\xFF\0a", 4, "byte 0 is not UTF-8: the file is UTF-16: convert it with iconv"},
        {"\xFF\xFE\0\0a\0\0\0", 8,
         "byte 0 is not UTF-8: the file is UTF-32: convert it with iconv"},
        {"\xFF", 1, "byte 0 is not UTF-8: convert the text to UTF-8, as by iconv; or"},
        {"caf\xE9 au lait", 12, "byte 3 is not UTF-8: convert the text to UTF-8, as by iconv"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        refuse_text(texts_write(folder, "x.txt", files[i].bytes, files[i].size), NULL, whole(1, 1),
                    EXO_INVAL, files[i].part);
}

/* --- Pieces ----------------------------------------------------------------------------------- */

struct pieces {
    char text[4096];
    size_t size, count, longest, limit;
    /* each piece but the first begins with this line end, after the letter x; NULL: anywhere */
    const char *line;
};

static exo_status
take_piece(void *context, size_t index, const char *text, size_t size, uint64_t offset,
           exo_err *err)
{
    (void)err;
    struct pieces *p = context;
    cr_expect_eq(index, 0);
    cr_expect_eq(offset, p->size);
    cr_expect(size > 0 && size <= p->limit);
    cr_expect_neq((unsigned char)text[0] & 0xC0, 0x80, "a character is cut at byte %zu", p->size);
    if (p->line && p->count > 0)
        cr_expect(strncmp(text, p->line, strlen(p->line)) == 0 && p->text[p->size - 1] == 'x');
    memcpy(p->text + p->size, text, size);
    p->size += size;
    p->count++;
    p->longest = size > p->longest ? size : p->longest;
    return EXO_OK;
}

static void
expect_pieces(const char *text, size_t size, size_t limit, const char *line, size_t count)
{
    struct pieces p = {.limit = limit, .line = line};
    exo_file_list files = {0};
    cr_assert_eq(exo_file_list_add(&files, texts_write(folder, "p.txt", text, size), ".txt", NULL),
                 EXO_OK);
    cr_assert_eq(exo_documents_read(&files, limit, take_piece, &p, NULL, NULL), EXO_OK);
    cr_expect_eq(p.size, size);
    cr_expect_arr_eq(p.text, text, size);
    if (count)
        cr_expect_eq(p.count, count, "%zu pieces instead of %zu", p.count, count);
    exo_file_list_release(&files);
}

Test(text_data, long_documents_are_cut_where_it_does_no_harm)
{
    char lines[3000], windows[3000], points[3000], greek[3000], none[3000];
    for (size_t i = 0; i < sizeof lines; i++) {
        lines[i] = i % 20 == 19 ? '\n' : i % 20 == 18 && i % 3 ? 'x' : '.';
        windows[i] = i % 20 == 19 ? '\n' : i % 20 == 18 ? '\r' : i % 20 == 17 && i % 3 ? 'x' : '.';
        points[i] = i % 20 == 19 ? '\n' : '.';
        greek[i] = i % 2 ? '\x80' : '\xCE';
        none[i] = '.';
    }
    expect_pieces(lines, sizeof lines, 200, "\n", 0);
    expect_pieces(windows, sizeof windows, 200, "\r\n", 0);
    expect_pieces(points, sizeof points, 200, NULL, 0);
    expect_pieces(greek, sizeof greek, 201, NULL, 15);
    expect_pieces(none, sizeof none, 1000, NULL, 3);
    expect_pieces(none, sizeof none, 3000, NULL, 1);
    expect_pieces(none, 1, 3000, NULL, 1);
    expect_pieces(none, 0, 3000, NULL, 0);
}

/* --- Nodes ------------------------------------------------------------------------------------ */

Test(text_data, no_token_is_in_two_nodes_parts)
{
    enum {
        TOKENS = 101,
        BLOCK = 4,
        NODES = 3
    };
    uint32_t numbers[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        numbers[i] = i;
    exo_window_opts opts = exo_window_opts_init();
    opts.block = BLOCK;
    opts.val_start = 0.5;
    exo_dataset *train = NULL, *part = NULL;
    exo_err err = {0};
    const char *path = texts_write(folder, "n.bin", numbers, sizeof numbers);
    cr_assert_eq(exo_dataset_tokens(&train, NULL, path, EXO_TOKEN_FILES_U32, NULL, &opts, &err),
                 EXO_OK, "%s", err.text);
    int owner[TOKENS];
    memset(owner, -1, sizeof owner);
    for (uint32_t r = 0; r < NODES; r++) {
        cr_assert_eq(exo_dataset_split(&part, train, r, NODES, NULL), EXO_OK);
        for (size_t i = 0; i < exo_dataset_length(part); i++) {
            int32_t tokens[BLOCK], targets[BLOCK];
            texts_sample(part, i, tokens, targets);
            for (int k = 0; k < 2 * BLOCK; k++) {
                int32_t token = k < BLOCK ? tokens[k] : targets[k - BLOCK];
                cr_expect(owner[token] == -1 || owner[token] == (int)r, "token %d is of %d and %u",
                          token, owner[token], r);
                owner[token] = (int)r;
            }
        }
        exo_dataset_drop(&part);
    }
    for (int i = 0; i < TOKENS; i++)
        cr_expect_eq(owner[i] >= 0, i < 90, "token %d", i);
    cr_expect_eq(exo_dataset_split(&part, train, 3, 3, &err), EXO_INVAL);
    cr_expect_eq(exo_dataset_split(&part, train, 0, 20, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "part 0 of 20 has 4 of the 90 tokens"), "%s", err.text);
    exo_dataset_drop(&train);
}

Test(text_data, other_data_sets_are_split_by_samples)
{
    exo_dataset *d = points_new(10, 1, SIZE_MAX), *part = NULL;
    size_t sum = 0;
    for (uint32_t r = 0; r < 3; r++) {
        float a[POINTS_DIM], b[POINTS_DIM];
        int32_t label;
        cr_assert_eq(exo_dataset_split(&part, d, r, 3, NULL), EXO_OK);
        cr_assert_eq(exo_dataset_get(part, 0, &(exo_sample_key){0}, (void *[]){a, &label}, NULL),
                     EXO_OK);
        cr_assert_eq(exo_dataset_get(d, sum, &(exo_sample_key){0}, (void *[]){b, &label}, NULL),
                     EXO_OK);
        cr_expect_arr_eq(a, b, sizeof a);
        sum += exo_dataset_length(part);
        exo_dataset_drop(&part);
    }
    cr_expect_eq(sum, 10);
    cr_expect_eq(exo_dataset_split(&part, d, 0, 11, NULL), EXO_INVAL);
    exo_dataset_drop(&d);
}

/* --- Positions -------------------------------------------------------------------------------- */

Test(text_data, a_loader_of_text_goes_on_where_another_stopped)
{
    char letters[400];
    for (size_t i = 0; i < sizeof letters; i++)
        letters[i] = (char)('a' + i * i % 26);
    exo_dataset *d =
        open_text(texts_write(folder, "t.txt", letters, sizeof letters), NULL, whole(8, 1));
    exo_loader *from_start = NULL, *later = NULL;
    exo_loader_opts opts = {
        .num_nodes = 2, .rank = 1, .shuffle = true, .seed = 5, .batch_size = 16};
    const exo_batch *a = NULL, *b = NULL;
    cr_assert_eq(exo_loader_open(&from_start, d, &opts, NULL), EXO_OK);
    opts.first = 29; /* in the third epoch */
    cr_assert_eq(exo_loader_open(&later, d, &opts, NULL), EXO_OK);
    for (uint64_t i = 0; i < opts.first; i++)
        cr_assert_eq(exo_loader_next(from_start, 60 * EXO_SECOND, &a, NULL), EXO_OK);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(exo_loader_next(from_start, 60 * EXO_SECOND, &a, NULL), EXO_OK);
        cr_assert_eq(exo_loader_next(later, 60 * EXO_SECOND, &b, NULL), EXO_OK);
        cr_assert_eq(memcmp(a->data[0], b->data[0], 16 * 8 * 4), 0, "batch %d", 29 + i);
        cr_assert_eq(memcmp(a->data[1], b->data[1], 16 * 8 * 4), 0);
    }
    exo_loader_close(&from_start);
    exo_loader_close(&later);
    exo_dataset_drop(&d);
}

/* --- By name ---------------------------------------------------------------------------------- */

static exo_status
open_named(const char *name, const char *options, exo_dataset **train, exo_dataset **val,
           exo_err *err)
{
    exo_config_doc *doc = NULL;
    cr_assert_eq(exo_config_parse(&doc, "job", options, err), EXO_OK, "%s", err->text);
    exo_status st = exo_dataset_named(name, exo_config_root(doc), train, val, err);
    exo_config_free(&doc);
    return st;
}

static void
refuse_named(const char *name, const char *options, exo_status status, const char *reason)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    cr_expect_eq(open_named(name, options, &train, &val, &err), status, "%s", err.text);
    cr_expect(strstr(err.text, reason), "'%s' does not say '%s'", err.text, reason);
    cr_expect(!strchr(err.text, '\n'));
}

static void
expect_lengths(const char *name, const char *options, size_t train_length, size_t val_length)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    cr_assert_eq(open_named(name, options, &train, &val, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_dataset_length(train), train_length, "%s: %zu", options,
                 exo_dataset_length(train));
    cr_expect_eq(exo_dataset_length(val), val_length, "%s: %zu", options, exo_dataset_length(val));
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
}

Test(text_data, a_job_says_what_is_read)
{
    char letters[4000];
    for (size_t i = 0; i < sizeof letters; i++)
        letters[i] = (char)('a' + i % 26);
    texts_write(folder, "t.txt", letters, sizeof letters);
    cr_assert_eq(chdir(folder), 0);
    expect_lengths("text", "{path: t.txt}", 3600 - 256, 400 - 256);
    expect_lengths("text", "{path: t.txt, block: 100, stride: block}", 35, 3);
    expect_lengths("text", "{path: t.txt, block: 100, stride: 50, tokenizer: bytes}", 70, 6);
    expect_lengths(
        "text",
        "{path: t.txt, block: 10, start_pc: 0.5, end_pc: 75 %, val_start_pc: 0, val_end_pc: 0.1}",
        1000 - 10, 400 - 10);
    expect_lengths("shakespeare", "{path: t.txt, tokenizer: characters, documents: separate}",
                   3600 - 256, 400 - 256);
    expect_lengths("tokens", "{path: t.txt, dtype: uint16, block: 32}", 1800 - 32, 200 - 32);

    refuse_named("text", "{path: t.txt, blok: 3}", EXO_INVAL,
                 "job:1:15: unknown key 'blok'; did you mean 'block'?");
    refuse_named("text", "{block: 3}", EXO_INVAL, "job:1:1: the key 'path' is missing");
    refuse_named("text", "{path: t.txt, block: 0}", EXO_INVAL,
                 "job:1:22: block must be at least 1");
    refuse_named("text", "{path: t.txt, stride: far}", EXO_INVAL,
                 "job:1:23: stride: expected an integer or block, got 'far'");
    refuse_named("text", "{path: t.txt, documents: all}", EXO_INVAL,
                 "job:1:26: documents: expected one of auto, ignore, end, separate, got 'all'");
    refuse_named("text", "{path: t.txt, start_pc: 0.5, end_pc: 0.2}", EXO_INVAL,
                 "start_pc must be less than end_pc");
    refuse_named("text", "{path: t.txt, tokenizer: none.json}", EXO_NOT_FOUND, "none.json");
    refuse_named("tokens", "{path: t.txt}", EXO_DAMAGED, "t.txt: is not a token shard");
    refuse_named("tokens", "{path: t.txt, dtype: uint8}", EXO_INVAL,
                 "dtype: expected one of shards, uint16, uint32");
    exo_dataset *train, *val;
    exo_err err = {0};
    cr_expect_eq(exo_dataset_named("text", NULL, &train, &val, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "path"), "%s", err.text);
}

Test(text_data, shakespeare_is_where_it_was_fetched_to)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    setenv("EXOGYM_DATA", folder, 1);
    cr_expect_eq(exo_dataset_named("shakespeare", NULL, &train, &val, &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "exogym data get shakespeare") &&
                  strstr(err.text, "tinyshakespeare.txt"),
              "%s", err.text);
    char text[5000];
    memset(text, 'a', sizeof text);
    texts_write(folder, "shakespeare/tinyshakespeare.txt", text, sizeof text);
    cr_assert_eq(exo_dataset_named("shakespeare", NULL, &train, &val, &err), EXO_OK, "%s",
                 err.text);
    cr_expect_eq(exo_dataset_length(train), 4500 - 256);
    cr_expect_eq(exo_dataset_vocabulary(train), 1);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
}

Test(text_data, the_names_are_listed_as_they_are_found)
{
    const char *name = NULL, *help = NULL;
    size_t count = 0;
    for (; (name = exo_dataset_name_at(count, &help)); count++) {
        exo_dataset *train = NULL, *val = NULL;
        exo_err err = {0};
        exo_status st = exo_dataset_named(name, NULL, &train, &val, &err);
        cr_expect(!strstr(err.text, "there is no data set"), "%s: %s", name, err.text);
        cr_expect_gt(strlen(help), 10);
        (void)st;
        exo_dataset_drop(&train);
        exo_dataset_drop(&val);
    }
    cr_expect_eq(count, 6);
}

Test(text_data, every_allocation_may_fail)
{
    exo_tokenizer *t = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    const char *path = write_documents();
    exo_window_opts opts = whole(2, 1);
    for (int characters = 0; characters < 2; characters++) {
        exo_status st = EXO_NOMEM;
        for (uint64_t n = 1; st != EXO_OK && n < 200; n++) {
            exo_dataset *train = NULL, *val = NULL;
            exo_memory_fail_at(n);
            st = exo_dataset_text(&train, &val, path, characters ? NULL : t, &opts, NULL);
            exo_memory_fail_at(0);
            cr_assert(st == EXO_NOMEM || st == EXO_OK, "allocation %llu: %d", (unsigned long long)n,
                      (int)st);
            exo_dataset_drop(&train);
            exo_dataset_drop(&val);
        }
        cr_expect_eq(st, EXO_OK);
    }
    exo_tokenizer_drop(&t);
}
