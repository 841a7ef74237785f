/* Data sets: IDX files and their errors, augmentation, samplers that give each sample to one node,
 * loaders, and data sets by name.
 *
 * The suite's `setup` and `teardown` own the folder. Read next: exogym/data.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <exogym/exogym.h>

#include "base/file.h"
#include "base/memory_fault.h"
#include "support/points.h"

static char folder[64];

static void
setup(void)
{
    strcpy(folder, "/tmp/exogym-data-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void
teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(data, .init = setup, .fini = teardown);

/* --- IDX -------------------------------------------------------------------------------------- */

static const uint8_t image_file[] = {0, 0,  8,   3,   0,   0,   0,   2,   0,   0,   0,  2,
                                     0, 0,  0,   3, /* 2 images of 2 x 3 */
                                     0, 51, 102, 153, 204, 255, 255, 204, 153, 102, 51, 0};
static const uint8_t label_file[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 9};

static const char *
write_file(const char *name, const uint8_t *bytes, size_t size)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    if (strstr(name, ".gz")) {
        gzFile f = gzopen(path, "wb");
        cr_assert_eq(gzwrite(f, bytes, (unsigned)size), (int)size);
        gzclose(f);
    } else {
        cr_assert_eq(exo_file_write_atomic(path, bytes, size, NULL), EXO_OK);
    }
    return path;
}

Test(data, idx_files_are_read_gzipped_or_not)
{
    static const char *const names[][2] = {{"images", "labels"}, {"images.gz", "labels.gz"}};
    for (int k = 0; k < 2; k++) {
        exo_dataset *d = NULL;
        exo_err err = {0};
        float image[6];
        int32_t label;
        exo_field fields[EXO_MAX_FIELDS];
        const char *images = write_file(names[k][0], image_file, sizeof image_file);
        const char *labels = write_file(names[k][1], label_file, sizeof label_file);
        cr_assert_eq(exo_dataset_idx(&d, images, labels,
                                     &(exo_image_opts){.mean = 0.5f, .deviation = 0.25f}, &err),
                     EXO_OK, "%s", err.text);
        cr_expect_eq(exo_dataset_length(d), 2);
        cr_expect_eq(exo_dataset_fields(d, fields), 2);
        cr_expect(fields[0].dims[0] == 1 && fields[0].dims[1] == 2 && fields[0].dims[2] == 3);
        cr_assert_eq(exo_dataset_get(d, 1, &(exo_sample_key){0}, (void *[]){image, &label}, &err),
                     EXO_OK);
        cr_expect_eq(label, 9);
        cr_expect_float_eq(image[0], (1.0f - 0.5f) / 0.25f, 1e-6);
        cr_expect_float_eq(image[4], (0.2f - 0.5f) / 0.25f, 1e-6);
        cr_expect_eq(exo_dataset_get(d, 2, &(exo_sample_key){0}, (void *[]){image, &label}, &err),
                     EXO_INVAL);
        exo_dataset_drop(&d);
    }
}

static void
refuse(const char *images, const char *labels, exo_status status, const char *word)
{
    exo_dataset *d = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_dataset_idx(&d, images, labels, NULL, &err), status, "%s", err.text);
    cr_expect(strstr(err.text, word) && strstr(err.text, folder), "'%s' does not say %s", err.text,
              word);
    cr_expect(!strchr(err.text, '\n'));
}

Test(data, damaged_idx_files_are_named)
{
    uint8_t more[sizeof image_file + 1], magic[sizeof image_file], three[sizeof label_file + 1],
        huge[16];
    const char *images = write_file("i", image_file, sizeof image_file);
    const char *labels = write_file("l", label_file, sizeof label_file);
    char missing[160];
    snprintf(missing, sizeof missing, "%s/none", folder);
    refuse(missing, labels, EXO_NOT_FOUND, "none");
    for (size_t cut = 0; cut < sizeof image_file; cut += 3)
        refuse(write_file("cut", image_file, cut), labels, EXO_DAMAGED, "truncated");
    memcpy(more, image_file, sizeof image_file);
    more[sizeof image_file] = 1;
    refuse(write_file("more", more, sizeof more), labels, EXO_DAMAGED, "more bytes");
    memcpy(magic, image_file, sizeof magic);
    magic[2] = 13;
    refuse(write_file("magic", magic, sizeof magic), labels, EXO_DAMAGED, "not an IDX");
    refuse(labels, images, EXO_DAMAGED, "not an IDX");
    memcpy(three, label_file, sizeof label_file);
    three[7] = 3;
    three[sizeof label_file] = 1;
    images = write_file("i", image_file, sizeof image_file);
    refuse(images, write_file("three", three, sizeof three), EXO_DAMAGED, "3 labels");
    memset(huge, 255, sizeof huge);
    memcpy(huge, image_file, 4);
    labels = write_file("l", label_file, sizeof label_file);
    refuse(write_file("huge", huge, sizeof huge), labels, EXO_DAMAGED, "header");
}

Test(data, a_cut_or_damaged_gzip_file_is_named)
{
    char *bytes = NULL;
    size_t size = 0;
    uint8_t noise[4096];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(i * 7919 >> 3);
    memcpy(noise, (const uint8_t[]){0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 51, 0, 0, 0, 80}, 16);
    const char *path = write_file("x.gz", noise, sizeof noise);
    cr_assert_eq(exo_file_read(path, 1 << 20, &bytes, &size, NULL), EXO_OK);
    const char *labels = write_file("l", label_file, sizeof label_file);
    FILE *f = fopen(path, "wb");
    cr_assert_eq(fwrite(bytes, 1, size / 2, f), size / 2);
    fclose(f);
    refuse(path, labels, EXO_DAMAGED, "x.gz");
    bytes[size - 8] ^= 1; /* its CRC */
    f = fopen(path, "wb");
    cr_assert_eq(fwrite(bytes, 1, size, f), size);
    fclose(f);
    refuse(path, labels, EXO_DAMAGED, "x.gz: is damaged: incorrect data check");
    exo_free(bytes);
}

/* --- Augmentation ----------------------------------------------------------------------------- */

enum {
    SIDE = 5
};

/* One image with a single bright pixel in row 2, column 1. */
static exo_dataset *
one_pixel(const exo_image_opts *opts)
{
    uint8_t pixels[SIDE * SIDE] = {0}, label = 3;
    exo_dataset *d = NULL;
    pixels[2 * SIDE + 1] = 255;
    cr_assert_eq(exo_dataset_images(&d, 1, SIDE, SIDE, pixels, &label, opts, NULL), EXO_OK);
    return d;
}

static void
read_image(const exo_dataset *d, uint64_t seed, uint64_t epoch, float *image)
{
    int32_t label;
    cr_assert_eq(exo_dataset_get(d, 0, &(exo_sample_key){.seed = seed, .epoch = epoch},
                                 (void *[]){image, &label}, NULL),
                 EXO_OK);
}

Test(data, translation_moves_by_whole_pixels_and_fills_with_black)
{
    exo_dataset *d = one_pixel(&(exo_image_opts){.translate = 0.4f});
    bool moved[SIDE][SIDE] = {{false}}, gone = false;
    for (uint64_t epoch = 0; epoch < 400; epoch++) {
        float image[SIDE * SIDE], sum = 0;
        read_image(d, 1, epoch, image);
        for (int i = 0; i < SIDE * SIDE; i++) {
            cr_assert(image[i] == 0 || image[i] == 1);
            sum += image[i];
            if (image[i] == 1)
                moved[i / SIDE][i % SIDE] = true;
        }
        cr_assert(sum <= 1);
        gone = gone || sum == 0;
    }
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            cr_expect_eq(moved[y][x], x <= 3, "up to 2 pixels from (2, 1) to (%d, %d)", y, x);
    cr_expect(gone, "two to the left is outside");
    exo_dataset_drop(&d);
}

Test(data, rotation_turns_about_the_centre)
{
    exo_dataset *d = one_pixel(&(exo_image_opts){.rotate = 180});
    bool seen[SIDE][SIDE] = {{false}};
    for (uint64_t epoch = 0; epoch < 2000; epoch++) {
        float image[SIDE * SIDE];
        read_image(d, 1, epoch, image);
        for (int i = 0; i < SIDE * SIDE; i++)
            if (image[i] == 1)
                seen[i / SIDE][i % SIDE] = true;
    }
    /* A pixel beside the centre moves on the ring around it. */
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            cr_expect_eq(seen[y][x], abs(y - 2) <= 1 && abs(x - 2) <= 1 && !(y == 2 && x == 2),
                         "(%d, %d)", y, x);
    exo_dataset_drop(&d);
}

Test(data, augmentation_depends_on_seed_epoch_and_sample_only)
{
    exo_dataset *d = one_pixel(&(exo_image_opts){.rotate = 10, .translate = 0.4f}), *plain = NULL;
    float a[SIDE * SIDE], b[SIDE * SIDE];
    int differ = 0;
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        read_image(d, 1, epoch, a);
        read_image(d, 1, epoch, b);
        cr_assert_arr_eq(a, b, sizeof a);
        read_image(d, 2, epoch, b);
        differ += memcmp(a, b, sizeof a) != 0;
    }
    cr_expect_gt(differ, 10);
    cr_assert_eq(exo_dataset_images_view(&plain, d, NULL, NULL), EXO_OK);
    read_image(plain, 1, 0, a);
    cr_expect_eq(a[2 * SIDE + 1], 1, "a view without augmentation");
    exo_dataset_drop(&d);
    read_image(plain, 1, 0, a);
    cr_expect_eq(a[2 * SIDE + 1], 1, "the pixels stay as long as a view does");
    exo_dataset_drop(&plain);
}

/* The n-th allocation of the images, or of a view of them, fails. */
static uint64_t
failed_allocations(exo_dataset *images)
{
    static const uint8_t pixels[2 * SIDE * SIDE], labels[2];
    exo_status st = EXO_NOMEM;
    uint64_t n = 0;
    while (st == EXO_NOMEM) {
        exo_dataset *d = NULL;
        exo_err err = {0};
        exo_memory_fail_at(++n);
        st = images ? exo_dataset_images_view(&d, images, NULL, &err)
                    : exo_dataset_images(&d, 2, SIDE, SIDE, pixels, labels, NULL, &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && !d && err.text[0]), "%s", err.text);
        exo_dataset_drop(&d);
    }
    return n - 1;
}

/* The address sanitizer finds pixels that are freed twice, read when they are freed, or left. */
Test(data, every_failed_allocation_of_images_is_an_error_and_leaks_nothing)
{
    float image[SIDE * SIDE];
    exo_dataset *d = one_pixel(NULL);
    cr_expect_eq(failed_allocations(NULL), 5,
                 "pixels, labels, what views share, a view, and its data set");
    cr_expect_eq(failed_allocations(d), 2, "a view and its data set");
    read_image(d, 1, 0, image);
    cr_expect_eq(image[2 * SIDE + 1], 1, "the pixels stay after a view that failed");
    exo_dataset_drop(&d);
}

/* --- Samplers and loaders --------------------------------------------------------------------- */

Test(data, each_sample_goes_to_one_node_an_epoch)
{
    enum {
        LENGTH = 103,
        NODES = 4
    };
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        int orders_differ = 0, left_out[LENGTH] = {0};
        for (uint64_t epoch = 0; epoch < 12; epoch++) {
            int seen[LENGTH] = {0};
            for (uint32_t r = 0; r < NODES; r++) {
                exo_sampler s;
                cr_assert_eq(exo_sampler_init(&s, LENGTH, NODES, r, shuffle, 9, NULL), EXO_OK);
                cr_assert_eq(exo_sampler_share(&s), LENGTH / NODES);
                for (size_t i = 0; i < LENGTH / NODES; i++) {
                    size_t at = exo_sampler_at(&s, epoch * (LENGTH / NODES) + i);
                    seen[at]++;
                    orders_differ += at != exo_sampler_at(&s, i);
                }
                exo_sampler_release(&s);
            }
            int sum = 0;
            for (int i = 0; i < LENGTH; i++) {
                cr_assert_leq(seen[i], 1);
                sum += seen[i];
                left_out[i] += !seen[i];
            }
            cr_assert_eq(sum, LENGTH / NODES * NODES);
        }
        cr_expect_eq(orders_differ > 0, shuffle);
        int ever = 0;
        for (int i = 0; i < LENGTH; i++)
            ever += left_out[i] > 0;
        cr_expect(shuffle ? ever > 3 : ever == 3, "the rest is another one in each epoch");
    }
}

Test(data, a_loader_goes_on_where_another_stopped)
{
    exo_dataset *d = points_new(90, 1, SIZE_MAX);
    exo_loader *whole = NULL, *late = NULL;
    exo_loader_opts opts = {.num_nodes = 2, .rank = 1, .shuffle = true, .seed = 3, .batch_size = 8};
    cr_assert_eq(exo_loader_open(&whole, d, &opts, NULL), EXO_OK);
    cr_expect_eq(exo_loader_epoch_batches(whole), 5);
    opts.first = 17;
    opts.threads = 3;
    cr_assert_eq(exo_loader_open(&late, d, &opts, NULL), EXO_OK);
    const exo_batch *a = NULL, *b = NULL;
    for (int i = 0; i < 17; i++)
        cr_assert_eq(exo_loader_next(whole, 60 * EXO_SECOND, &a, NULL), EXO_OK);
    for (int i = 0; i < 30; i++) {
        cr_assert_eq(exo_loader_next(whole, 60 * EXO_SECOND, &a, NULL), EXO_OK);
        cr_assert_eq(exo_loader_next(late, 60 * EXO_SECOND, &b, NULL), EXO_OK);
        cr_assert_eq(a->size, 8);
        cr_assert_eq(memcmp(a->data[0], b->data[0], 8 * POINTS_DIM * 4), 0, "batch %d", 17 + i);
        cr_assert_eq(memcmp(a->data[1], b->data[1], 8 * 4), 0);
    }
    exo_loader_close(&whole);
    exo_loader_close(&late);
    exo_dataset_drop(&d);
}

Test(data, a_loader_reports_the_data_sets_error_where_it_is)
{
    exo_dataset *d = points_new(40, 1, 21);
    exo_loader *l = NULL;
    exo_err err = {0};
    const exo_batch *batch = NULL;
    const exo_loader_opts opts = {.num_nodes = 1, .batch_size = 4, .threads = 2, .depth = 4};
    cr_assert_eq(exo_loader_open(&l, d, &opts, NULL), EXO_OK);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(exo_loader_next(l, 60 * EXO_SECOND, &batch, &err), EXO_OK,
                     "batch %d is before the bad sample", i);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(exo_loader_next(l, 60 * EXO_SECOND, &batch, &err), EXO_IO);
        cr_expect(strstr(err.text, "sample 21") && strstr(err.text, "the disk is gone"), "%s",
                  err.text);
    }
    exo_loader_close(&l);
    exo_dataset_drop(&d);
}

Test(data, a_steady_loader_allocates_nothing)
{
    exo_dataset *d = points_new(64, 1, SIZE_MAX);
    exo_loader *l = NULL;
    const exo_batch *batch = NULL;
    cr_assert_eq(
        exo_loader_open(&l, d, &(exo_loader_opts){.num_nodes = 1, .shuffle = true, .batch_size = 8},
                        NULL),
        EXO_OK);
    cr_assert_eq(exo_loader_next(l, 60 * EXO_SECOND, &batch, NULL), EXO_OK);
    uint64_t asked = exo_memory_allocations();
    for (int i = 0; i < 50; i++)
        cr_assert_eq(exo_loader_next(l, 60 * EXO_SECOND, &batch, NULL), EXO_OK);
    cr_expect_eq(exo_memory_allocations(), asked);
    exo_loader_close(&l);
    exo_dataset_drop(&d);
}

Test(data, impossible_shares_are_refused)
{
    exo_dataset *d = points_new(10, 1, SIZE_MAX), *slice = NULL;
    exo_loader *l = NULL;
    exo_sampler s;
    exo_err err = {0};
    cr_expect_eq(exo_loader_open(&l, d, &(exo_loader_opts){.num_nodes = 3, .batch_size = 4}, &err),
                 EXO_INVAL);
    cr_expect(strstr(err.text, "batch_size 4") && strstr(err.text, "3 of 10"), "%s", err.text);
    cr_expect_eq(exo_loader_open(&l, d, &(exo_loader_opts){.num_nodes = 1, .batch_size = 0}, &err),
                 EXO_INVAL);
    cr_expect_eq(exo_sampler_init(&s, 3, 4, 0, true, 1, &err), EXO_INVAL);
    cr_expect_eq(exo_sampler_init(&s, 3, 2, 2, true, 1, &err), EXO_INVAL);
    cr_expect_eq(exo_dataset_slice(&slice, d, 5, 6, &err), EXO_INVAL);
    cr_assert_eq(exo_dataset_slice(&slice, d, 5, 5, &err), EXO_OK);
    cr_expect_eq(exo_dataset_length(slice), 5);
    float a[POINTS_DIM], b[POINTS_DIM];
    int32_t label;
    cr_assert_eq(exo_dataset_get(d, 7, &(exo_sample_key){0}, (void *[]){a, &label}, NULL), EXO_OK);
    cr_assert_eq(exo_dataset_get(slice, 2, &(exo_sample_key){0}, (void *[]){b, &label}, NULL),
                 EXO_OK);
    cr_expect_arr_eq(a, b, sizeof a);
    exo_dataset_drop(&slice);
    exo_dataset_drop(&d);
}

/* --- By name ---------------------------------------------------------------------------------- */

Test(data, synthetic_images_are_made_from_their_seed)
{
    exo_dataset *a[2], *b[2];
    exo_config_doc *doc = NULL;
    float x[784], y[784];
    int32_t lx, ly;
    cr_assert_eq(exo_dataset_named("synthetic", NULL, &a[0], &a[1], NULL), EXO_OK);
    cr_expect_eq(exo_dataset_length(a[0]), 2048);
    cr_assert_eq(exo_config_parse(&doc, "test", "{count: 100, seed: 1}", NULL), EXO_OK);
    cr_assert_eq(exo_dataset_named("synthetic", exo_config_root(doc), &b[0], &b[1], NULL), EXO_OK);
    cr_expect_eq(exo_dataset_length(b[0]), 100);
    cr_expect_eq(exo_dataset_length(b[1]), 25);
    cr_assert_eq(exo_dataset_get(a[0], 50, &(exo_sample_key){0}, (void *[]){x, &lx}, NULL), EXO_OK);
    cr_assert_eq(exo_dataset_get(b[0], 50, &(exo_sample_key){0}, (void *[]){y, &ly}, NULL), EXO_OK);
    cr_expect_eq(lx, ly);
    cr_expect_arr_eq(x, y, sizeof x);
    for (int i = 0; i < 2; i++) {
        exo_dataset_drop(&a[i]);
        exo_dataset_drop(&b[i]);
    }
    exo_config_free(&doc);
}

Test(data, missing_files_say_what_to_do)
{
    exo_dataset *train, *val;
    exo_err err = {0};
    setenv("EXOGYM_DATA", folder, 1);
    cr_expect_eq(exo_dataset_named("mnist", NULL, &train, &val, &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "exogym data get mnist") && strstr(err.text, "train-images"), "%s",
              err.text);
    cr_expect_eq(exo_dataset_named("no_such", NULL, &train, &val, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "fashion_mnist"), "%s", err.text);
}

static exo_status
load_little(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    (void)val; /* there is none */
    uint64_t count = 0;
    exo_status st = exo_config_u64(config, "count", 3, 1, 9, &count, err);
    const uint8_t zeros[9] = {0};
    if (st == EXO_OK)
        st = exo_dataset_images(train, (size_t)count, 1, 1, zeros, zeros, NULL, err);
    return st;
}

static size_t
no_length(const void *self)
{
    (void)self;
    return 0;
}

static size_t
one_field(const void *self, exo_field *out)
{
    (void)self;
    out[0] = (exo_field){.name = "label", .dtype = EXO_I32};
    return 1;
}

static exo_status
load_empty(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    static const exo_dataset_class empty = {
        .name = "empty", .length = no_length, .fields = one_field};
    exo_status st = load_little(config, train, val, err);
    return st == EXO_OK && val ? exo_dataset_new(val, &empty, NULL, err) : st;
}

Test(data, validation_data_without_a_sample_are_refused)
{
    static const exo_named_data unchecked = {.name = "unchecked", .load = load_empty};
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_dataset_register(&unchecked, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_dataset_named("unchecked", NULL, &train, &val, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "the validation set of 'unchecked' is empty"), "%s", err.text);
    cr_expect(!train && !val, "what was made is dropped");
    cr_expect_eq(exo_dataset_named("unchecked", NULL, &train, NULL, &err), EXO_OK);
    exo_dataset_drop(&train);
}

Test(data, a_program_adds_names)
{
    static const exo_named_data little = {.name = "little", .help = "zeros", .load = load_little},
                                taken = {.name = "synthetic", .load = load_little},
                                empty = {.name = "empty"};
    exo_dataset *train = NULL, *val = NULL;
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_dataset_register(NULL, &err), EXO_INVAL);
    cr_expect_eq(exo_dataset_register(&empty, &err), EXO_INVAL);
    cr_expect_eq(exo_dataset_register(&taken, &err), EXO_EXISTS);
    cr_assert_eq(exo_dataset_register(&little, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_dataset_named("little", NULL, &train, NULL, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_dataset_length(train), 3);
    exo_dataset_drop(&train);
    cr_expect_eq(exo_dataset_named("little", NULL, &train, &val, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "the data set 'little' has made no data for validation");
    cr_expect_null(train, "what a failed load has made is dropped");
    cr_assert_eq(exo_config_parse(&doc, "test", "{count: 5, cuont: 6}", NULL), EXO_OK);
    cr_expect_eq(exo_dataset_named("little", exo_config_root(doc), &train, NULL, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "unknown key 'cuont'"), "%s", err.text);
    exo_config_free(&doc);
}
