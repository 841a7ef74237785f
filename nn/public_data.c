/* Named data sets of images: Fashion-MNIST, MNIST, and a synthetic one that needs no files. Named
 * sets of text are in corpus/named.c. No state. Read next: images.c. */
#include <exogym/data.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/memory_limits.h"
#include "nn/dataset_impl.h"

enum {
    SIDE = 28,
    CLASSES = 10,
    MAX_PATH = 4096
};

/* MNIST's mean and deviation, and the augmentation of EXO Gym's comparison. */
static const exo_image_opts usual = {
    .mean = 0.1307f, .deviation = 0.3081f, .rotate = 10.0f, .translate = 0.1f};

/* --- Options that image sets share ------------------------------------------------------------ */

struct options {
    const char *path; /* or NULL */
    exo_image_opts train, val;
};

static exo_status
read_options(exo_config *config, struct options *o, exo_err *err)
{
    bool augment = true;
    *o = (struct options){.train = usual};
    exo_status st = EXO_OK;
    if (config) {
        st = exo_config_string(config, "path", NULL, &o->path, err);
        if (st == EXO_OK)
            st = exo_config_bool(config, "augment", true, &augment, err);
        if (st == EXO_OK)
            st = exo_config_float(config, "rotate", usual.rotate, 0, 180, &o->train.rotate, err);
        if (st == EXO_OK)
            st = exo_config_float(config, "translate", usual.translate, 0, 1, &o->train.translate,
                                  err);
        if (st == EXO_OK)
            st = exo_config_float(config, "mean", usual.mean, -1e6, 1e6, &o->train.mean, err);
        if (st == EXO_OK)
            st = exo_config_float(config, "deviation", usual.deviation, 1e-6, 1e6,
                                  &o->train.deviation, err);
    }
    o->val = o->train;
    o->val.rotate = o->val.translate = 0;
    if (!augment)
        o->train = o->val;
    return st;
}

/* --- IDX sets --------------------------------------------------------------------------------- */

/* Writes the path "folder/name" if that file is there, else "folder/name.gz". */
static void
find_file(char out[MAX_PATH], const char *folder, const char *name)
{
    snprintf(out, MAX_PATH, "%s/%s", folder, name);
    if (access(out, F_OK) != 0)
        snprintf(out, MAX_PATH, "%s/%s.gz", folder, name);
}

static exo_status
load_half(const char *folder, const char *half, const exo_image_opts *opts, exo_dataset **out,
          exo_err *err)
{
    char images[MAX_PATH], labels[MAX_PATH], name[64];
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", half);
    find_file(images, folder, name);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", half);
    find_file(labels, folder, name);
    return exo_dataset_idx(out, images, labels, opts, err);
}

/* Loads both halves from a folder. `hint`: how to get the files, for the error NOT_FOUND. */
static exo_status
load_folder(const char *folder, const char *hint, const struct options *o, exo_dataset **train,
            exo_dataset **val, exo_err *err)
{
    exo_status st = load_half(folder, "train", &o->train, train, err);
    if (st == EXO_OK && val)
        st = load_half(folder, "t10k", &o->val, val, err);
    if (st != EXO_OK)
        exo_dataset_drop(train);
    if (st == EXO_NOT_FOUND && err) {
        char reason[EXO_ERR_TEXT];
        memcpy(reason, err->text, sizeof reason);
        exo_fail(err, st, "%.300s: %s", reason, hint);
    }
    return st;
}

static exo_status
load_fashion_mnist(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    struct options o;
    exo_status st = read_options(config, &o, err);
    if (st != EXO_OK)
        return st;
    const char *folder = o.path ? o.path : "/usr/share/datasets/fashion-mnist";
    return load_folder(
        folder, "install Debian's dataset-fashion-mnist, or say where the files are with data.path",
        &o, train, val, err);
}

static exo_status
load_mnist(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    struct options o;
    char *folder = NULL;
    exo_status st = read_options(config, &o, err);
    if (st == EXO_OK && !o.path)
        st = exo_data_folder("mnist", &folder, err);
    if (st == EXO_OK)
        st = load_folder(o.path ? o.path : folder,
                         "run 'exogym data get mnist', or say where the files are with data.path",
                         &o, train, val, err);
    exo_free(folder);
    return st;
}

/* --- Synthetic -------------------------------------------------------------------------------- */

/* A class is a picture of three soft blobs, placed by the seed. A sample is the picture of its
 * class, shifted, dimmed, and with noise. */
struct blob {
    float x, y, width;
};

static void
draw_sample(exo_rng *rng, const struct blob *blobs, uint8_t *out)
{
    float dx = 4.0f * exo_rng_uniform(rng) - 2.0f, dy = 4.0f * exo_rng_uniform(rng) - 2.0f;
    float light = 0.6f + 0.4f * exo_rng_uniform(rng);
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            float v = 0;
            for (int k = 0; k < 3; k++) {
                float u = ((float)x - blobs[k].x - dx) / blobs[k].width,
                      w = ((float)y - blobs[k].y - dy) / blobs[k].width;
                v += expf(-0.5f * (u * u + w * w));
            }
            v = 255.0f * light * (v > 1 ? 1 : v) + 40.0f * exo_rng_normal(rng);
            out[y * SIDE + x] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
    }
}

static exo_status
make_synthetic(size_t count, uint64_t seed, uint32_t half, const exo_image_opts *opts,
               exo_dataset **out, exo_err *err)
{
    struct blob blobs[CLASSES][3];
    char what[64];
    snprintf(what, sizeof what, "%zu synthetic images", count);
    exo_status st = exo_memory_expect((uint64_t)count * (SIDE * SIDE + 1), what, err);
    if (st != EXO_OK)
        return st;
    uint8_t *pixels = exo_calloc(count, SIDE * SIDE), *labels = exo_calloc(count, 1);
    if (!pixels || !labels) {
        exo_free(pixels);
        exo_free(labels);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu synthetic images", count);
    }
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    for (int c = 0; c < CLASSES; c++)
        for (int k = 0; k < 3; k++)
            blobs[c][k] =
                (struct blob){4 + 20 * exo_rng_uniform(&rng), 4 + 20 * exo_rng_uniform(&rng),
                              1.5f + 2 * exo_rng_uniform(&rng)};
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 1 + half);
    for (size_t i = 0; i < count; i++) {
        labels[i] = (uint8_t)exo_rng_below(&rng, CLASSES);
        draw_sample(&rng, blobs[labels[i]], pixels + i * SIDE * SIDE);
    }
    return exo_dataset_images_own(out, count, SIDE, SIDE, pixels, labels, opts, err);
}

static exo_status
load_synthetic(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    uint64_t count = 2048, seed = 1;
    bool augment = false;
    exo_status st = EXO_OK;
    if (config) {
        st = exo_config_u64(config, "count", count, 1, 1 << 24, &count, err);
        if (st == EXO_OK)
            st = exo_config_u64(config, "seed", seed, 0, UINT64_MAX, &seed, err);
        if (st == EXO_OK)
            st = exo_config_bool(config, "augment", false, &augment, err);
    }
    exo_image_opts plain = usual;
    plain.rotate = plain.translate = 0;
    if (st == EXO_OK)
        st = make_synthetic((size_t)count, seed, 0, augment ? &usual : &plain, train, err);
    if (st == EXO_OK && val)
        st = make_synthetic((size_t)(count + 3) / 4, seed, 1, &plain, val, err);
    if (st != EXO_OK)
        exo_dataset_drop(train);
    return st;
}

const exo_named_data exo_image_sets[EXO_NUM_IMAGE_SETS] = {
    {"fashion_mnist", "articles of clothing, 60,000 and 10,000 images of 28x28",
     load_fashion_mnist},
    {"mnist", "handwritten digits, 60,000 and 10,000 images of 28x28", load_mnist},
    {"synthetic", "ten kinds of blobs, images of 28x28 made from a seed", load_synthetic},
};
