/* Damaged checkpoints: any damage to a file is found, and the file is named, before a run continues
 * from it.
 *
 * Each test owns a scene: a trainer, and a run in a temporary folder. Read next:
 * actors/checkpoint.h. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "actors/checkpoint.h"
#include "base/file.h"
#include "support/points.h"
#include "support/sanitized.h"

enum {
    NODES = 2,
    STEPS = 6,
    EVERY = 2, /* steps between checkpoints */
    MOST = 1 << 20
};

struct scene {
    exo_model *model;
    exo_dataset *train, *val;
    exo_trainer *trainer;
    exo_fit_opts opts;
    exo_fit_result result;
    exo_err err;
    char folder[64], newest[160], older[160];
};

static exo_status
fit(struct scene *s)
{
    exo_params_free(&s->result.params);
    s->err = (exo_err){0};
    return exo_trainer_fit_text(s->trainer, "diloco", "{H: 2}", &s->opts, &s->result, &s->err);
}

static void
stop_late(void *context, const exo_progress *progress)
{
    if (progress->step >= STEPS - 1)
        *(_Atomic int *)context = 1;
}

/* A run that was stopped after step 5. It has checkpoints of steps 4 and 5. */
static void
scene_init(struct scene *s)
{
    _Atomic int stop = 0;
    *s = (struct scene){.model = points_mlp(),
                        .train = points_new(200, 1, SIZE_MAX),
                        .val = points_new(64, 2, SIZE_MAX),
                        .opts = exo_fit_opts_init(),
                        .folder = "/tmp/exogym-test-XXXXXX"};
    cr_assert_not_null(mkdtemp(s->folder));
    cr_assert_eq(exo_trainer_new(&s->trainer, s->model, s->train, s->val, &s->err), EXO_OK);
    s->opts.num_nodes = NODES;
    s->opts.batch_size = 4;
    s->opts.max_steps = STEPS;
    s->opts.val_interval = 1;
    s->opts.checkpoint_interval = EVERY;
    s->opts.save_dir = s->folder;
    s->opts.run_name = "run";
    s->opts.progress = stop_late;
    s->opts.context = &stop;
    s->opts.stop = &stop;
    cr_assert_eq(fit(s), EXO_CANCELLED, "%s", s->err.text);
    s->opts.progress = NULL;
    s->opts.stop = NULL;
    s->opts.resume = true;
    snprintf(s->newest, sizeof s->newest, "%s/run/checkpoints/step_%08d", s->folder, STEPS - 1);
    snprintf(s->older, sizeof s->older, "%s/run/checkpoints/step_%08d", s->folder, STEPS - 2);
}

static void
scene_release(struct scene *s)
{
    char command[128];
    exo_params_free(&s->result.params);
    exo_trainer_free(&s->trainer);
    exo_dataset_drop(&s->train);
    exo_dataset_drop(&s->val);
    exo_model_drop(&s->model);
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    cr_expect_eq(system(command), 0);
}

static void
put(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "%s", path);
}

static char *
get(const char *path, size_t *size)
{
    char *bytes = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_file_read(path, MOST, &bytes, size, &err), EXO_OK, "%s", err.text);
    return bytes;
}

/* Expects that the newest checkpoint is refused and that the message begins with the file's
 * path. */
static void
expect_found(struct scene *s, const char *path, const char *what)
{
    exo_err err = {0};
    cr_expect_eq(exo_checkpoint_verify(s->newest, &err), EXO_INVAL, "%s: accepted: %s", path, what);
    cr_expect_eq(strncmp(err.text, path, strlen(path)), 0, "%s: '%s' does not name %s", what,
                 err.text, path);
    cr_assert(strlen(err.text) > strlen(path) && err.text[strlen(path)] == ':', "%s", err.text);
}

static const char *const files[] = {"node_0.safetensors", "node_1.safetensors", "figures.json",
                                    "run.json", "manifest.sha256"};
enum {
    FILES = sizeof files / sizeof *files
};

Test(checkpoint, has_the_files_that_are_tried_here)
{
    struct scene s;
    scene_init(&s);
    size_t count = 0;
    DIR *folder = opendir(s.newest);
    cr_assert_not_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    cr_expect_eq(count, FILES);
    cr_expect_eq(exo_checkpoint_verify(s.newest, &s.err), EXO_OK, "%s", s.err.text);
    cr_expect_eq(exo_checkpoint_verify(s.older, &s.err), EXO_OK, "%s", s.err.text);
    scene_release(&s);
}

/* Other programs compute the same sums. */
Test(checkpoint, the_manifest_is_what_sha256sum_reads)
{
    struct scene s;
    char command[256];
    scene_init(&s);
    snprintf(command, sizeof command, "cd %s && sha256sum --check --strict --quiet manifest.sha256",
             s.newest);
    cr_expect_eq(system(command), 0);
    scene_release(&s);
}

Test(checkpoint, any_byte_that_is_flipped_is_found_with_its_file, .timeout = 120)
{
    struct scene s;
    scene_init(&s);
    for (int f = 0; f < FILES; f++) {
        char path[256], what[64];
        size_t size = 0;
        snprintf(path, sizeof path, "%s/%s", s.newest, files[f]);
        char *bytes = get(path, &size);
        cr_assert_gt(size, 0);
        for (size_t i = 0; i < size; i += one_of(7)) {
            char mask = (char)(1 << (i % 8));
            snprintf(what, sizeof what, "byte %zu", i);
            bytes[i] ^= mask;
            put(path, bytes, size);
            expect_found(&s, path, what);
            if (i % 997 == 0) { /* a resumed run finds the damage, too */
                cr_expect_eq(fit(&s), EXO_INVAL, "%s: %s: the run goes on", path, what);
                cr_expect(strstr(s.err.text, path) && strstr(s.err.text, s.older), "%s",
                          s.err.text);
            }
            bytes[i] ^= mask;
        }
        put(path, bytes, size);
        exo_free(bytes);
        cr_assert_eq(exo_checkpoint_verify(s.newest, &s.err), EXO_OK, "%s", s.err.text);
    }
    scene_release(&s);
}

Test(checkpoint, a_file_that_is_cut_longer_empty_or_gone_is_found, .timeout = 60)
{
    struct scene s;
    scene_init(&s);
    for (int f = 0; f < FILES; f++) {
        char path[256], what[64];
        size_t size = 0;
        snprintf(path, sizeof path, "%s/%s", s.newest, files[f]);
        char *bytes = get(path, &size);
        for (size_t cut = 1; cut <= size; cut += cut < 80 ? 1 : size / 7) {
            snprintf(what, sizeof what, "cut by %zu", cut);
            put(path, bytes, size - cut);
            expect_found(&s, path, what);
        }
        put(path, bytes, 0);
        expect_found(&s, path, "empty");
        bytes[size] = '\n'; /* replaces the 0 behind the text */
        put(path, bytes, size + 1);
        expect_found(&s, path, "a byte more");
        unlink(path);
        expect_found(&s, path, "gone");
        mkdir(path, 0755);
        expect_found(&s, path, "a folder in its place");
        rmdir(path);
        put(path, bytes, size);
        exo_free(bytes);
    }
    scene_release(&s);
}

Test(checkpoint, files_in_each_others_place_and_strangers_are_found)
{
    struct scene s;
    char a[256], b[256];
    size_t a_size = 0, b_size = 0;
    scene_init(&s);
    for (int i = 0; i < FILES; i++)
        for (int k = 0; k < FILES; k++) {
            snprintf(a, sizeof a, "%s/%s", s.newest, files[i]);
            snprintf(b, sizeof b, "%s/%s", k == i ? s.older : s.newest, files[k]);
            char *own = get(a, &a_size), *other = get(b, &b_size);
            put(a, other, b_size); /* the file of another node, or of another step */
            if (a_size != b_size || memcmp(own, other, a_size) != 0) {
                exo_err err = {0};
                cr_expect_eq(exo_checkpoint_verify(s.newest, &err), EXO_INVAL, "%s in place of %s",
                             b, a);
                cr_expect(strstr(err.text, s.newest), "%s", err.text);
            }
            put(a, own, a_size);
            exo_free(own);
            exo_free(other);
        }
    snprintf(a, sizeof a, "%s/node_2.safetensors", s.newest);
    put(a, "x", 1);
    expect_found(&s, a, "a stranger");
    unlink(a);

    /* the older checkpoint under the newer one's name */
    snprintf(b, sizeof b, "%s.away", s.newest);
    cr_assert_eq(rename(s.newest, b), 0);
    cr_assert_eq(rename(s.older, s.newest), 0);
    cr_expect_eq(exo_checkpoint_verify(s.newest, &s.err), EXO_INVAL);
    cr_expect(strstr(s.err.text, "step 4 under another name: rename it to step_00000004"), "%s",
              s.err.text);
    scene_release(&s);
}

Test(checkpoint, the_older_one_gives_the_same_end)
{
    struct scene s, whole;
    scene_init(&whole);
    cr_assert_eq(fit(&whole), EXO_OK, "%s", whole.err.text);

    scene_init(&s);
    char path[256];
    snprintf(path, sizeof path, "%s/node_1.safetensors", s.newest);
    cr_assert_eq(truncate(path, 100), 0);
    cr_expect_eq(fit(&s), EXO_INVAL);
    cr_expect(strstr(s.err.text, path) && strstr(s.err.text, s.older) &&
                  strstr(s.err.text, "--resume=older"),
              "%s", s.err.text);
    s.opts.resume_older = true;
    cr_assert_eq(fit(&s), EXO_OK, "%s", s.err.text);
    cr_expect_str_eq(s.result.sha256, whole.result.sha256);
    snprintf(path, sizeof path, "%s/run/checkpoints/damaged_step_%08d/run.json", s.folder,
             STEPS - 1);
    cr_expect_eq(access(path, F_OK), 0, "the damaged checkpoint is gone");
    scene_release(&s);

    scene_init(&s); /* if both are damaged, the run does not continue */
    s.opts.resume_older = true;
    snprintf(path, sizeof path, "%s/run.json", s.newest);
    cr_assert_eq(truncate(path, 0), 0);
    snprintf(path, sizeof path, "%s/run.json", s.older);
    cr_assert_eq(truncate(path, 0), 0);
    cr_expect_eq(fit(&s), EXO_INVAL);
    cr_expect(strstr(s.err.text, s.newest) &&
                  strstr(s.err.text, "no checkpoint of this run is intact"),
              "%s", s.err.text);
    scene_release(&s);
    scene_release(&whole);
}
