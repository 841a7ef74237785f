/* Files that the options of a graph's actors name, and those of another host: graph/files.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/state.h>

#include "base/config_edit.h"
#include "graph/files.h"
#include "nn/hash.h"

static exo_err err;
static exo_config_doc *doc;
static exo_graph_files files;
static char folder[] = "/tmp/graph_files.XXXXXX";

static void
write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void
begin(void)
{
    exo_graph_files_set_hash(exo_sha256_sample);
    cr_assert(mkdtemp(folder) && chdir(folder) == 0 && mkdir("m", 0700) == 0);
    write_file("texts", "a\n");
    write_file("m/config.json", "{}");
    write_file("m/model.safetensors", "1");
    write_file("m/notes", "none");
    cr_assert_eq(exo_config_parse(&doc, "graph", "{text: texts, model: m}", &err), EXO_OK);
    static const char *const paths[] = {"texts", "m", "m/config.json", "texts", "absent"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        cr_assert_eq(exo_config_note_file(exo_config_root(doc), paths[i], &err), EXO_OK);
    cr_assert_eq(exo_graph_files_list(&files, doc, &err), EXO_OK, "%s", err.text);
}

static void
end(void)
{
    exo_graph_files_release(&files);
    exo_config_free(&doc);
    unlink("texts");
    unlink("m/config.json");
    unlink("m/model.safetensors");
    unlink("m/more.safetensors");
    unlink("m/notes");
    unlink("m/tokenizer.json");
    unlink("m/reward.json");
    rmdir("m");
    rmdir(folder);
}

TestSuite(graph_files, .init = begin, .fini = end);

static void
expect_other(const char *path)
{
    exo_err why = {0};
    cr_expect_eq(exo_graph_files_compare(&files, doc, &why), EXO_INVAL, "%s", path);
    cr_expect(strstr(why.text, path) && strstr(why.text, "graph:1:1"), "%s", why.text);
}

/* A file that was noted twice, and one of a noted folder, are compared like others. */
Test(graph_files, equal_files_pass)
{
    cr_expect_eq(files.count, 4); /* texts, two of m, one of them once more */
    cr_expect_eq(exo_graph_files_compare(&files, doc, &err), EXO_OK, "%s", err.text);
    write_file("m/notes", "other");
    cr_expect_eq(exo_graph_files_compare(&files, doc, &err), EXO_OK, "%s", err.text);
}

Test(graph_files, another_text_is_named)
{
    write_file("texts", "b\n");
    expect_other("'texts'");
}

Test(graph_files, other_weights_are_named)
{
    write_file("m/model.safetensors", "2");
    expect_other("'m/model.safetensors'");
}

Test(graph_files, a_part_of_a_model_more_or_less_is_named)
{
    write_file("m/more.safetensors", "1");
    expect_other("'m/more.safetensors'");
    unlink("m/more.safetensors");
    unlink("m/model.safetensors");
    expect_other("'m/model.safetensors'");
}

Test(graph_files, a_tokenizer_or_scores_of_one_host_alone_are_named)
{
    write_file("m/tokenizer.json", "{}");
    expect_other("'m/tokenizer.json'");
    unlink("m/tokenizer.json");
    write_file("m/reward.json", "{}");
    expect_other("'m/reward.json'");
}

/* Entries of a folder are its model's files, not others in it, nor those of folders in it. */
Test(graph_files, other_entries_of_a_folder_are_not_compared)
{
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static char notes[] = SHA256 " m/notes", below[] = SHA256 " m/n/a.safetensors";
    char *texts[] = {below, notes};
    exo_graph_files odd = {.texts = texts, .count = 2};
    cr_expect_eq(exo_graph_files_compare(&odd, doc, &err), EXO_OK, "%s", err.text);
}

/* The list comes from the wire. */
Test(graph_files, what_the_runner_lacks_is_not_compared)
{
    char *texts[] = {"", " ", "0123 texts", "texts", files.texts[0]};
    const exo_graph_files none = {0}, odd = {.texts = texts, .count = 4};
    write_file("texts", "b\n");
    cr_expect_eq(exo_graph_files_compare(&none, doc, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_graph_files_compare(&odd, doc, &err), EXO_OK, "%s", err.text);
}

/* Of a large file, its size, its beginning and its end are seen, and pieces in between. */
Test(graph_files, a_large_file_is_sampled)
{
    enum {
        SIZE = 100 << 20
    };
    char first[65], now[65];
    write_file("texts", "");
    cr_assert_eq(truncate("texts", SIZE), 0);
    cr_assert_eq(exo_sha256_sample("texts", first, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(truncate("texts", SIZE + 1), 0); /* more of the same zeros */
    cr_assert_eq(exo_sha256_sample("texts", now, &err), EXO_OK);
    cr_expect(strcmp(first, now) != 0);
    cr_assert_eq(truncate("texts", SIZE), 0);
    static const long places[] = {0, 2 << 20, SIZE - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        FILE *f = fopen("texts", "r+");
        cr_assert(f && fseek(f, places[i], SEEK_SET) == 0 && fputc('x', f) == 'x');
        fclose(f);
        cr_assert_eq(exo_sha256_sample("texts", now, &err), EXO_OK);
        cr_expect(strcmp(first, now) != 0, "at %ld", places[i]);
        memcpy(first, now, sizeof first);
    }
    cr_assert_eq(truncate("texts", SIZE + 1), 0);
    cr_assert_eq(exo_sha256_sample("texts", now, &err), EXO_OK);
    cr_expect(strcmp(first, now) != 0);
    cr_assert_eq(truncate("texts", 1 << 20), 0);
    cr_assert_eq(exo_sha256_sample("texts", now, &err), EXO_OK);
    cr_assert_eq(exo_sha256_file("texts", first, &err), EXO_OK);
    cr_expect_str_eq(first, now);
}
