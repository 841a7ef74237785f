/* Checkpoint files: a written state is read back, and every deviation from it is refused without a
 * change. Each test owns its folder. Read next: include/exogym/state.h; docs/checkpoints.md. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/file.h"
#include "base/memory_fault.h"

struct values {
    float a[6];
    int32_t b[3];
    uint64_t c;
};

static char folder[64], path[128];

static void
setup(void)
{
    strcpy(folder, "/tmp/exogym-state-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
}

static void
teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

static exo_state *
list(struct values *v)
{
    exo_state *s = NULL;
    cr_assert_eq(exo_state_new(&s, NULL), EXO_OK);
    exo_state_prefix(s, "model");
    exo_state_add_shaped(s, "a", EXO_F32, v->a, 2, (size_t[]){2, 3});
    exo_state_prefix(s, NULL);
    exo_state_add(s, "b", EXO_I32, v->b, 3);
    exo_state_add_u64(s, "c", &v->c);
    exo_state_metadata(s, "model", "a \"test\"");
    return s;
}

static const struct values written = {
    {1, -2, 3.5f, 0, 1e-30f, 7}, {1, -1, INT32_MIN}, UINT64_MAX - 5};

static void
save(void)
{
    struct values v = written;
    exo_err err = {0};
    exo_state *s = list(&v);
    cr_assert_eq(exo_state_save(s, path, &err), EXO_OK, "%s", err.text);
    exo_state_free(&s);
}

static exo_status
load(struct values *v, exo_err *err)
{
    exo_state *s = list(v);
    exo_status st = exo_state_load(s, path, err);
    exo_state_free(&s);
    return st;
}

TestSuite(state, .init = setup, .fini = teardown);

Test(state, comes_back_as_it_was)
{
    struct values v = {0};
    exo_err err = {0};
    char *model = NULL;
    save();
    cr_assert_eq(load(&v, &err), EXO_OK, "%s", err.text);
    cr_expect_arr_eq(v.a, written.a, sizeof v.a);
    cr_expect_arr_eq(v.b, written.b, sizeof v.b);
    cr_expect_eq(v.c, written.c);
    cr_assert_eq(exo_state_read_metadata(path, "model", &model, NULL), EXO_OK);
    cr_expect_str_eq(model, "a \"test\"");
    exo_free(model);
    cr_expect_eq(exo_state_read_metadata(path, "none", &model, &err), EXO_NOT_FOUND);
}

/* The format as other programs read it: a length, JSON, aligned data. */
Test(state, is_a_safetensors_file)
{
    char *bytes = NULL;
    size_t size = 0;
    save();
    cr_assert_eq(exo_file_read(path, 1 << 20, &bytes, &size, NULL), EXO_OK);
    uint64_t header = 0;
    memcpy(&header, bytes, 8);
    cr_assert_eq(header % 8, 0);
    cr_assert_eq(size, 8 + header + 24 + 12 + 8);
    bytes[8 + header - 1] = '\0';
    cr_expect(strstr(bytes + 8,
                     "\"model.a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"),
              "%s", bytes + 8);
    cr_expect_eq(memcmp(bytes + 8 + header, written.a, 24), 0);
    exo_free(bytes);
}

Test(state, every_cut_is_refused_and_changes_nothing)
{
    char *bytes = NULL;
    size_t size = 0;
    save();
    cr_assert_eq(exo_file_read(path, 1 << 20, &bytes, &size, NULL), EXO_OK);
    for (size_t cut = 0; cut < size; cut++) {
        struct values v = {.c = 1}, before = v;
        exo_err err = {0};
        cr_assert_eq(exo_file_write_atomic(path, bytes, cut, NULL), EXO_OK);
        cr_assert_eq(load(&v, &err), EXO_INVAL, "cut at %zu", cut);
        cr_assert(strstr(err.text, path), "%s", err.text);
        cr_assert_eq(memcmp(&v, &before, sizeof v), 0, "cut at %zu changed something", cut);
    }
    exo_free(bytes);
}

enum {
    KEPT = 16 << 10,
    NUMBERS = 4 * KEPT
};

static void
shorten(void)
{
    cr_assert_eq(truncate(path, KEPT), 0);
}

/* The file is cut between the check of its sizes and the read of its header or of an entry. */
Test(state, a_file_that_shrinks_while_it_is_read_is_named)
{
    static float numbers[NUMBERS];
    static char text[2 * KEPT];
    memset(text, 'x', sizeof text - 1);
    for (int large_header = 0; large_header < 2; large_header++) {
        exo_err err = {0};
        exo_state *s = NULL;
        cr_assert_eq(exo_state_new(&s, NULL), EXO_OK);
        exo_state_add(s, "numbers", EXO_F32, numbers, NUMBERS);
        if (large_header)
            exo_state_metadata(s, "text", text);
        cr_assert_eq(exo_state_save(s, path, &err), EXO_OK, "%s", err.text);
        exo_memory_call_at(1, shorten); /* the memory for the header */
        cr_expect_eq(exo_state_load(s, path, &err), EXO_IO, "%s", err.text);
        cr_expect(strstr(err.text, path) && strstr(err.text, "became shorter"), "%s", err.text);
        exo_state_free(&s);
    }
}

Test(state, altered_headers_are_refused_or_harmless)
{
    char *bytes = NULL;
    size_t size = 0;
    save();
    cr_assert_eq(exo_file_read(path, 1 << 20, &bytes, &size, NULL), EXO_OK);
    for (size_t at = 0; at < size - 44; at++) {
        for (unsigned flip = 1; flip < 256; flip <<= 1) {
            struct values v = {.c = 1}, before = v;
            char kept = bytes[at];
            bytes[at] = (char)(bytes[at] ^ (char)flip);
            /* not with the atomic writer, whose 3,000 flushes take long */
            FILE *f = fopen(path, "wb");
            cr_assert_eq(fwrite(bytes, 1, size, f), size);
            fclose(f);
            bytes[at] = kept;
            /* A change of the metadata or of the layout may pass; a crash or a partial change of
             * the state may not. */
            if (load(&v, NULL) != EXO_OK)
                cr_assert_eq(memcmp(&v, &before, sizeof v), 0, "byte %zu, bit %u", at, flip);
        }
    }
    exo_free(bytes);
}

Test(state, other_entries_types_and_shapes_are_refused)
{
    struct values v = {0};
    exo_err err = {0};
    save();
    for (int k = 0; k < 5; k++) {
        exo_state *s = NULL;
        cr_assert_eq(exo_state_new(&s, NULL), EXO_OK);
        exo_state_add_shaped(s, k == 0 ? "model.z" : "model.a", EXO_F32, v.a, 2,
                             k == 1 ? (size_t[]){3, 2} : (size_t[]){2, 3});
        exo_state_add(s, "b", k == 2 ? EXO_F32 : EXO_I32, v.b, 3);
        if (k != 3)
            exo_state_add_u64(s, "c", &v.c);
        if (k == 4)
            exo_state_add_u64(s, "c", &v.c);
        exo_status st = exo_state_load(s, path, &err);
        cr_expect(st == EXO_INVAL || (k == 4 && st == EXO_EXISTS), "%d: %s", k, err.text);
        exo_state_free(&s);
    }
    unlink(path);
    cr_expect_eq(load(&v, &err), EXO_NOT_FOUND);
}

Test(state, a_full_disk_leaves_the_old_file_and_nothing_else)
{
    exo_err err = {0};
    struct values v = written;
    save();
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 100, .rlim_max = RLIM_INFINITY});
    v.c = 1;
    exo_state *s = list(&v);
    exo_status st = exo_state_save(s, path, &err);
    exo_state_free(&s);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY});
    cr_expect_eq(st, EXO_IO);
    cr_expect(strstr(err.text, path), "%s", err.text);
    cr_assert_eq(load(&v, &err), EXO_OK);
    cr_expect_eq(v.c, written.c);
    char command[128];
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = x.safetensors", folder);
    cr_expect_eq(system(command), 0, "something half-written was left");
}

Test(state, folders_are_made_and_files_read_within_limits)
{
    char deep[160], *text = NULL;
    size_t size = 0;
    exo_err err = {0};
    snprintf(deep, sizeof deep, "%s/a/b//c/", folder);
    cr_expect_eq(exo_folder_make(deep, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_folder_make(deep, &err), EXO_OK, "again");
    save();
    snprintf(deep, sizeof deep, "%s/below", path);
    cr_expect_eq(exo_folder_make(deep, &err), EXO_IO, "a file is in the way");
    cr_expect_eq(exo_file_read(path, 10, &text, &size, &err), EXO_DAMAGED, "larger than its limit");
    cr_expect_eq(exo_file_read(folder, 10, &text, &size, &err), EXO_DAMAGED, "a folder");
    cr_expect_eq(exo_file_write_atomic("/nonexistent/x", "x", 1, &err), EXO_IO);
    cr_expect(strstr(err.text, "/nonexistent/x"), "%s", err.text);
}

Test(state, sha256_known_answer)
{
    char out[65];
    exo_sha256("abc", 3, out);
    cr_expect_str_eq(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
