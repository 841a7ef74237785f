/* Token shards: written tokens are read back, from any number of files, and errors of a file are
 * reported with their place. Each test owns its folder. Read next: nn/corpus/shard.h;
 * docs/data.md. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "base/file.h"
#include "base/memory_fault.h"
#include "nn/corpus/shard.h"
#include "nn/corpus/tokenize.h"
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

TestSuite(token_shards, .init = setup, .fini = teardown);

static exo_window_opts
whole(size_t block)
{
    exo_window_opts opts = exo_window_opts_init();
    opts.block = block;
    opts.end = 1;
    opts.val_start = 0;
    return opts;
}

static exo_dataset *
open_tokens(const char *path, exo_token_files files, exo_tokenizer *tokenizer, exo_window_opts opts)
{
    exo_dataset *train = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_dataset_tokens(&train, NULL, path, files, tokenizer, &opts, &err), EXO_OK,
                 "%s", err.text);
    return train;
}

static void
refuse(const char *path, exo_token_files files, exo_window_opts opts, exo_status status,
       const char *reason)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_dataset_tokens(&train, &val, path, files, NULL, &opts, &err), status, "%s",
                 err.text);
    cr_expect(strstr(err.text, reason) && strstr(err.text, folder), "'%s' does not say '%s'",
              err.text, reason);
    cr_expect_null(train);
    cr_expect_null(val);
}

/* The number of files in a folder; -1 if there is no such folder. */
static int
files_in(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;
    if (!dir)
        return -1;
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

#define write_texts() write_texts_in((char[TEXTS_PATH]){0})

static const char *
write_texts_in(char out[TEXTS_PATH])
{
    texts_write_text(folder, "docs/a.txt", "the quick brown fox\njumps over\n");
    texts_write_text(folder, "docs/b.txt", "");
    texts_write_text(folder, "docs/c.txt", "x");
    texts_write_text(folder, "docs/d.txt", "the lazy dog and so on and on and on\n");
    return texts_path_in(out, folder, "docs");
}

static exo_tokenize_result
tokenize(const char *input, const char *output, exo_tokenizer *tokenizer, exo_documents documents,
         uint64_t per_shard)
{
    const exo_tokenize_opts opts = {
        .tokenizer = tokenizer, .documents = documents, .shard_tokens = per_shard};
    exo_tokenize_result result;
    exo_err err = {0};
    cr_assert_eq(exo_data_tokenize(&input, 1, output, &opts, &result, &err), EXO_OK, "%s",
                 err.text);
    return result;
}

struct progress {
    uint64_t bytes, total;
    int calls;
};

static void
note_progress(void *context, uint64_t bytes, uint64_t total)
{
    struct progress *p = context;
    cr_expect(bytes >= p->bytes && bytes <= total);
    *p = (struct progress){bytes, total, p->calls + 1};
}

Test(token_shards, progress_ends_with_all_bytes)
{
    static const char *const texts[][2] = {
        {"p.txt", "the quick brown fox\n"},
        {"p.jsonl", "{\"text\": \"the fox\", \"id\": 12345}\r\n{\"text\": \"\"}\n\n"}};
    exo_tokenizer *t = texts_tokenizer(folder);
    char out[2][TEXTS_PATH];
    for (int i = 0; i < 2; i++) {
        struct progress p = {0};
        const char *input = texts_write_text(folder, texts[i][0], texts[i][1]);
        const exo_tokenize_opts opts = {.tokenizer = t, .progress = note_progress, .context = &p};
        exo_tokenize_result result;
        exo_err err = {0};
        texts_path_in(out[i], folder, i == 0 ? "all_0" : "all_1");
        cr_assert_eq(exo_data_tokenize(&input, 1, out[i], &opts, &result, &err), EXO_OK, "%s",
                     err.text);
        cr_expect(p.calls > 0 && p.total == strlen(texts[i][1]));
        cr_expect_eq(p.bytes, p.total, "%s", input);
    }
    exo_tokenizer_drop(&t);
}

/* --- Written and read ------------------------------------------------------------------------- */

Test(token_shards, shards_are_the_text_whatever_their_size)
{
    static const struct {
        exo_documents written, read;
    } modes[] = {{EXO_DOCUMENTS_AUTO, EXO_DOCUMENTS_AUTO},
                 {EXO_DOCUMENTS_END, EXO_DOCUMENTS_END},
                 {EXO_DOCUMENTS_END, EXO_DOCUMENTS_SEPARATE},
                 {EXO_DOCUMENTS_IGNORE, EXO_DOCUMENTS_IGNORE}};
    static const uint64_t sizes[] = {1, 7, 16, 17, 1000};
    const char *docs = write_texts();
    exo_tokenizer *t = texts_tokenizer(folder);
    char name[32];
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            exo_dataset *text[2], *shards[2];
            exo_err err = {0};
            exo_window_opts opts = exo_window_opts_init();
            opts.block = 16;
            opts.end = 0.75;
            opts.val_start = 0.25;
            opts.documents = modes[m].read;
            snprintf(name, sizeof name, "out%zu_%zu", m, s);
            const char *out = texts_path(folder, name);
            exo_tokenize_result made = tokenize(docs, out, t, modes[m].written, sizes[s]);
            bool ends = modes[m].written != EXO_DOCUMENTS_IGNORE;
            cr_expect_eq(made.tokens, 31 + 1 + 37 + (ends ? 2 : 0), "%llu",
                         (unsigned long long)made.tokens);
            cr_expect_eq(made.bytes, 31 + 1 + 37);
            cr_expect_eq(made.documents, 3);
            cr_expect_eq(made.vocabulary, TEXTS_END + 1);
            cr_expect_eq(made.shards, (made.tokens + sizes[s] - 1) / sizes[s]);
            cr_expect_eq(files_in(out), (int)made.shards + 1, "the shards and tokenizer.json");
            cr_assert_eq(exo_dataset_text(&text[0], &text[1], docs, t, &opts, &err), EXO_OK, "%s",
                         err.text);
            cr_assert_eq(exo_dataset_tokens(&shards[0], &shards[1], out, EXO_TOKEN_FILES_SHARDS,
                                            NULL, &opts, &err),
                         EXO_OK, "%s", err.text);
            for (int half = 0; half < 2; half++) {
                texts_expect_equal(text[half], shards[half]);
                exo_dataset_drop(&text[half]);
                exo_dataset_drop(&shards[half]);
            }
        }
    exo_tokenizer_drop(&t);
}

Test(token_shards, the_tokenizer_comes_with_them)
{
    const char *out = texts_path(folder, "out");
    char *text = NULL;
    size_t size = 0;
    int32_t tokens[8], targets[8];
    tokenize(write_texts(), out, NULL, EXO_DOCUMENTS_AUTO, 20);
    exo_dataset *d = open_tokens(out, EXO_TOKEN_FILES_SHARDS, NULL, whole(8));
    exo_tokenizer *t = exo_dataset_tokenizer(d);
    cr_assert_not_null(t);
    cr_expect_eq(exo_dataset_vocabulary(d), exo_tokenizer_vocabulary(t));
    texts_sample(d, 16, tokens, targets); /* across the end of the first shard */
    cr_assert_eq(exo_tokenizer_decode(t, tokens, 8, false, &text, &size, NULL), EXO_OK);
    cr_expect_str_eq(text, "fox\njump");
    exo_free(text);
    exo_dataset_drop(&d);

    d = open_tokens(texts_path(folder, "out/shard-000001.tokens"), EXO_TOKEN_FILES_SHARDS, NULL,
                    whole(8));
    cr_expect_not_null(exo_dataset_tokenizer(d), "of a single file too");
    cr_expect_eq(exo_dataset_length(d), 20 - 8);
    exo_dataset_drop(&d);

    cr_assert_eq(unlink(texts_path(folder, "out/tokenizer.json")), 0);
    d = open_tokens(out, EXO_TOKEN_FILES_SHARDS, NULL, whole(8));
    cr_expect_null(exo_dataset_tokenizer(d));
    cr_expect_gt(exo_dataset_vocabulary(d), 10, "the shards know how many tokens there are");
    exo_dataset_drop(&d);

    texts_write_tokenizer(out);
    refuse(out, EXO_TOKEN_FILES_SHARDS, whole(8), EXO_DAMAGED, "is not the tokenizer.json that");
}

Test(token_shards, large_vocabularies_take_four_bytes)
{
    const exo_shard_info info = {.width = 4, .vocabulary = 100000, .end = 99999};
    const int32_t tokens[] = {0, 65535, 65536, 99999, 5};
    exo_shard_writer writer;
    exo_err err = {0};
    cr_assert_eq(exo_shard_writer_init(&writer, folder, &info, 3, &err), EXO_OK);
    cr_assert_eq(exo_shard_write(&writer, tokens, 5, true, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_shard_write(&writer, &(int32_t){100000}, 1, true, &err), EXO_FAILED);
    cr_expect_eq(exo_shard_write(&writer, &(int32_t){-1}, 1, true, &err), EXO_FAILED);
    cr_assert_eq(exo_shard_writer_finish(&writer, &err), EXO_OK);
    exo_shard_writer_release(&writer);
    exo_window_opts opts = whole(4);
    opts.documents = EXO_DOCUMENTS_SEPARATE;
    exo_dataset *d = open_tokens(folder, EXO_TOKEN_FILES_SHARDS, NULL, opts);
    texts_expect(d, 0, 4, tokens, (int32_t[]){65535, 65536, 99999, -1});
    cr_expect_eq(exo_dataset_vocabulary(d), 100000);
    exo_dataset_drop(&d);
}

/* --- Bare numbers ----------------------------------------------------------------------------- */

Test(token_shards, bare_numbers_are_read_when_that_is_said)
{
    static const uint16_t a[] = {1, 2, 3, 4, 5}, b[] = {6, 7, 60000};
    texts_write(folder, "bins/a.bin", a, sizeof a);
    const char *second = texts_write(folder, "bins/b.bin", b, sizeof b),
               *bins = texts_path(folder, "bins");
    exo_dataset *d = open_tokens(bins, EXO_TOKEN_FILES_U16, NULL, whole(7));
    texts_expect(d, 0, 7, (int32_t[]){1, 2, 3, 4, 5, 6, 7}, (int32_t[]){2, 3, 4, 5, 6, 7, 60000});
    cr_expect_eq(exo_dataset_vocabulary(d), 0);
    cr_expect_null(exo_dataset_tokenizer(d));
    exo_dataset_drop(&d);
    exo_window_opts separate = whole(2);
    separate.documents = EXO_DOCUMENTS_SEPARATE;
    refuse(bins, EXO_TOKEN_FILES_U16, separate, EXO_INVAL, "no end token");
    refuse(second, EXO_TOKEN_FILES_U32, whole(1), EXO_DAMAGED, "b.bin: has 6 bytes");
    refuse(bins, EXO_TOKEN_FILES_SHARDS, whole(1), EXO_NOT_FOUND, "there is no *.tokens");
    refuse(second, EXO_TOKEN_FILES_SHARDS, whole(1), EXO_DAMAGED, "is truncated at byte 6");

    /* with a tokenizer, its vocabulary and its end token apply */
    exo_tokenizer *t = texts_tokenizer(folder);
    static const uint16_t c[] = {5, TEXTS_END, 6, TEXTS_END + 1, 7};
    d = open_tokens(texts_write(folder, "c.bin", c, sizeof c), EXO_TOKEN_FILES_U16, t, separate);
    texts_expect(d, 0, 2, (int32_t[]){5, TEXTS_END}, (int32_t[]){TEXTS_END, -1});
    int32_t out[4];
    exo_err err = {0};
    cr_expect_eq(exo_dataset_get(d, 1, &(exo_sample_key){0}, (void *[]){out, out + 2}, &err),
                 EXO_DAMAGED);
    cr_expect(strstr(err.text, "c.bin: the token 29 at byte 6 is not in the vocabulary of 29"),
              "%s", err.text);
    exo_dataset_drop(&d);
    exo_tokenizer_drop(&t);
}

/* --- Damage ----------------------------------------------------------------------------------- */

/* Makes a shard of 20 tokens, 0 to 9 twice, in `bytes`; returns its size. */
static size_t
make_shard(uint8_t bytes[EXO_SHARD_HEADER + 40], uint64_t vocabulary)
{
    const exo_shard_info info = {.width = 2, .count = 20, .vocabulary = vocabulary, .end = -1};
    exo_shard_pack(&info, bytes);
    for (uint16_t i = 0; i < 20; i++)
        memcpy(bytes + EXO_SHARD_HEADER + 2 * i, &(uint16_t){(uint16_t)(i % 10)}, 2);
    return EXO_SHARD_HEADER + 40;
}

Test(token_shards, a_cut_shard_is_named_with_the_place)
{
    uint8_t bytes[EXO_SHARD_HEADER + 42] = {0};
    size_t size = make_shard(bytes, 10);
    char place[64];
    for (size_t cut = 0; cut < size; cut++) {
        snprintf(place, sizeof place,
                 cut ? "s.tokens: is truncated at byte %zu" : "s.tokens: is empty", cut);
        refuse(texts_write(folder, "s.tokens", bytes, cut), EXO_TOKEN_FILES_SHARDS, whole(3),
               EXO_DAMAGED, place);
    }
    for (size_t more = 1; more < 3; more++)
        refuse(texts_write(folder, "s.tokens", bytes, size + more), EXO_TOKEN_FILES_SHARDS,
               whole(3), EXO_DAMAGED, "s.tokens: continues after its last token, at byte 168");
    exo_dataset *d = open_tokens(texts_write(folder, "s.tokens", bytes, size),
                                 EXO_TOKEN_FILES_SHARDS, NULL, whole(3));
    cr_expect_eq(exo_dataset_length(d), 17);
    exo_dataset_drop(&d);
}

Test(token_shards, an_altered_header_is_refused)
{
    uint8_t bytes[EXO_SHARD_HEADER + 40];
    size_t size = make_shard(bytes, 10);
    for (size_t at = 0; at < EXO_SHARD_HEADER; at++) {
        bytes[at] ^= 4;
        refuse(texts_write(folder, "s.tokens", bytes, size), EXO_TOKEN_FILES_SHARDS, whole(3),
               EXO_DAMAGED,
               at < 8    ? "is not a token shard"
               : at < 12 ? "version"
                         : "byte 96: the header is damaged");
        bytes[at] ^= 4;
    }
}

Test(token_shards, a_header_that_makes_no_sense_is_refused)
{
    static const struct {
        exo_shard_info info;
        const char *reason;
    } cases[] = {
        {{.width = 3, .count = 20, .vocabulary = 10, .end = -1}, "byte 12: a token has 3 bytes"},
        {{.width = 2, .count = 0, .vocabulary = 10, .end = -1}, "byte 16: the shard has no tokens"},
        {{.width = 2, .count = UINT64_MAX, .vocabulary = 10, .end = -1},
         "is truncated at byte 168"},
        {{.width = 2, .count = 20, .vocabulary = 0, .end = -1}, "byte 24: a vocabulary of 0"},
        {{.width = 2, .count = 20, .vocabulary = UINT64_C(1) << 40, .end = -1},
         "byte 24: a vocabulary"},
        {{.width = 2, .count = 20, .vocabulary = 10, .end = 10}, "byte 32: the end token 10"},
        {{.width = 2, .count = 20, .vocabulary = 10, .end = -2}, "byte 32: the end token -2"}};
    uint8_t bytes[EXO_SHARD_HEADER + 40];
    size_t size = make_shard(bytes, 10);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_shard_pack(&cases[i].info, bytes);
        refuse(texts_write(folder, "s.tokens", bytes, size), EXO_TOKEN_FILES_SHARDS, whole(3),
               EXO_DAMAGED, cases[i].reason);
    }
}

Test(token_shards, a_token_out_of_the_vocabulary_is_an_error_of_its_windows)
{
    uint8_t bytes[EXO_SHARD_HEADER + 40];
    size_t size = make_shard(bytes, 10);
    texts_write(folder, "bad/a.tokens", bytes, size);
    bytes[EXO_SHARD_HEADER + 2 * 5] = 10;
    texts_write(folder, "bad/b.tokens", bytes, size);
    exo_dataset *d = open_tokens(texts_path(folder, "bad"), EXO_TOKEN_FILES_SHARDS, NULL, whole(3));
    for (size_t i = 0; i < exo_dataset_length(d); i++) {
        int32_t tokens[3], targets[3];
        exo_err err = {0};
        bool hit = i <= 25 && i + 3 >= 25;
        cr_expect_eq(exo_dataset_get(d, i, &(exo_sample_key){0}, (void *[]){tokens, targets}, &err),
                     hit ? EXO_DAMAGED : EXO_OK, "sample %zu: %s", i, err.text);
        cr_expect(
            !hit || strstr(err.text,
                           "bad/b.tokens: the token 10 at byte 138 is not in the vocabulary of 10"),
            "%s", err.text);
    }
    exo_dataset_drop(&d);
}

Test(token_shards, shards_of_different_makes_do_not_mix)
{
    uint8_t bytes[EXO_SHARD_HEADER + 40];
    size_t size = make_shard(bytes, 10);
    texts_write(folder, "mixed/a.tokens", bytes, size);
    make_shard(bytes, 11);
    texts_write(folder, "mixed/b.tokens", bytes, size);
    refuse(texts_path(folder, "mixed"), EXO_TOKEN_FILES_SHARDS, whole(3), EXO_DAMAGED,
           "each has a different vocabulary");
    exo_shard_info info = {.width = 2, .count = 20, .vocabulary = 10, .end = 3};
    exo_shard_pack(&info, bytes);
    texts_write(folder, "mixed/b.tokens", bytes, size);
    refuse(texts_path(folder, "mixed"), EXO_TOKEN_FILES_SHARDS, whole(3), EXO_DAMAGED,
           "each has a different end token");
    info.end = -1;
    info.tokenizer[31] = 1;
    exo_shard_pack(&info, bytes);
    texts_write(folder, "mixed/b.tokens", bytes, size);
    refuse(texts_path(folder, "mixed"), EXO_TOKEN_FILES_SHARDS, whole(3), EXO_DAMAGED,
           "each has a different tokenizer");
    info.tokenizer[31] = 0;
    info.width = 4; /* widths may differ */
    info.count = 10;
    exo_shard_pack(&info, bytes);
    memset(bytes + EXO_SHARD_HEADER, 0, 40);
    texts_write(folder, "mixed/b.tokens", bytes, size);
    exo_dataset *d =
        open_tokens(texts_path(folder, "mixed"), EXO_TOKEN_FILES_SHARDS, NULL, whole(3));
    cr_expect_eq(exo_dataset_length(d), 30 - 3);
    texts_expect(d, 18, 3, (int32_t[]){8, 9, 0}, (int32_t[]){9, 0, 0});
    exo_dataset_drop(&d);
}

/* --- All or nothing --------------------------------------------------------------------------- */

static void
refuse_tokenize(const char *input, const char *output, exo_tokenizer *tokenizer,
                exo_documents documents, exo_status status, const char *reason)
{
    const exo_tokenize_opts opts = {
        .tokenizer = tokenizer, .documents = documents, .shard_tokens = 2};
    exo_tokenize_result result;
    exo_err err = {0};
    cr_expect_eq(exo_data_tokenize(&input, 1, output, &opts, &result, &err), status, "%s",
                 err.text);
    cr_expect(strstr(err.text, reason), "'%s' does not say '%s'", err.text, reason);
}

Test(token_shards, what_failed_leaves_no_folder)
{
    exo_tokenizer *t = NULL;
    cr_assert_eq(exo_tokenizer_characters(&t, "abc", 3, NULL), EXO_OK);
    const char *text = texts_write_text(folder, "abcd.txt", "abcabcabcd"),
               *out = texts_path(folder, "new/out");
    refuse_tokenize(text, out, t, EXO_DOCUMENTS_AUTO, EXO_INVAL, "abcd.txt");
    cr_expect_eq(files_in(texts_path(folder, "new")), 0,
                 "neither the folder nor what it was made of");
    refuse_tokenize(text, out, t, EXO_DOCUMENTS_END, EXO_INVAL, "no end token");
    refuse_tokenize(text, out, t, EXO_DOCUMENTS_SEPARATE, EXO_INVAL, "separate");
    refuse_tokenize(texts_write_text(folder, "empty.txt", ""), out, t, EXO_DOCUMENTS_AUTO,
                    EXO_INVAL, "no text");
    refuse_tokenize(texts_path(folder, "none.txt"), out, t, EXO_DOCUMENTS_AUTO, EXO_NOT_FOUND,
                    "none.txt");
    cr_expect_eq(files_in(texts_path(folder, "new")), 0);
    exo_tokenizer_drop(&t);
}

Test(token_shards, a_folder_with_files_is_not_written_to)
{
    const char *text = texts_write_text(folder, "t.txt", "abcabc"),
               *out = texts_path(folder, "out");
    char with_slash[300];
    snprintf(with_slash, sizeof with_slash, "%s//", out);
    cr_assert_eq(mkdir(out, 0755), 0);
    /* an empty folder is accepted */
    exo_tokenize_result made = tokenize(text, with_slash, NULL, EXO_DOCUMENTS_AUTO, 4);
    cr_expect_eq(made.shards, 2);
    cr_expect_eq(files_in(out), 3);
    refuse_tokenize(text, out, NULL, EXO_DOCUMENTS_AUTO, EXO_EXISTS, "not empty");
    cr_expect_eq(files_in(out), 3);
    refuse_tokenize(text, text, NULL, EXO_DOCUMENTS_AUTO, EXO_IO, "t.txt");
}

static void
ask_to_stop(void *context, uint64_t bytes, uint64_t total)
{
    (void)bytes;
    (void)total;
    *(_Atomic int *)context = 15;
}

Test(token_shards, one_that_is_stopped_leaves_no_folder)
{
    exo_tokenizer *t = NULL;
    _Atomic int stop = 0;
    exo_err err = {0};
    exo_tokenize_result result;
    char docs[256], out[256];
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    snprintf(docs, sizeof docs, "%s", write_texts());
    snprintf(out, sizeof out, "%s", texts_path(folder, "new/out"));
    const char *input = docs;
    const exo_tokenize_opts opts = {
        .tokenizer = t, .shard_tokens = 40, .progress = ask_to_stop, .context = (void *)&stop};
    cr_expect_eq(exo_tokenize_until(&input, 1, out, &opts, &stop, &result, &err), EXO_CANCELLED);
    cr_expect_eq(stop, 15, "it has ended before it wrote");
    cr_expect_leq(files_in(texts_path(folder, "new")), 0);
    exo_tokenizer_drop(&t);
}

Test(token_shards, every_allocation_may_fail)
{
    exo_tokenizer *t = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&t, NULL), EXO_OK);
    char docs[256], out[256];
    snprintf(docs, sizeof docs, "%s", write_texts());
    snprintf(out, sizeof out, "%s", texts_path(folder, "new/out"));
    const char *input = docs;
    const exo_tokenize_opts opts = {.tokenizer = t, .shard_tokens = 40};
    const exo_window_opts windows = whole(8);
    exo_status st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK && n < 500; n++) {
        exo_tokenize_result result;
        exo_memory_fail_at(n);
        st = exo_data_tokenize(&input, 1, out, &opts, &result, NULL);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_NOMEM || st == EXO_OK, "allocation %llu: %d", (unsigned long long)n,
                  (int)st);
        cr_assert(st == EXO_OK || files_in(texts_path(folder, "new")) <= 0);
    }
    cr_assert_eq(st, EXO_OK);
    st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK && n < 500; n++) {
        exo_dataset *train = NULL, *val = NULL;
        exo_memory_fail_at(n);
        st = exo_dataset_tokens(&train, &val, out, EXO_TOKEN_FILES_SHARDS, t, &windows, NULL);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_NOMEM || st == EXO_OK, "allocation %llu: %d", (unsigned long long)n,
                  (int)st);
        exo_dataset_drop(&train);
        exo_dataset_drop(&val);
    }
    cr_expect_eq(st, EXO_OK);
    exo_tokenizer_drop(&t);
}
