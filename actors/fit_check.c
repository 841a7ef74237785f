/* Checks of a worker's host: see fit_check.h. No state. */
#include "actors/fit_check.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "base/grow_text.h"
#include "nn/dataset_impl.h"
#include "nn/hash.h"

enum {
    PLACES = 64, /* samples of a data set that a digest has */
    MAX_NAME = 4096
};

/* --- The data --------------------------------------------------------------------------------- */

static exo_status
hash_samples(exo_hash *hash, const exo_dataset *data, exo_err *err)
{
    const exo_sample_key key = {0};
    const size_t length = exo_dataset_length(data), places = length < PLACES ? length : PLACES;
    uint64_t sizes[1 + EXO_MAX_FIELDS] = {length};
    exo_batch sample;
    exo_status st = exo_batch_init(&sample, data, 1, err);
    if (st != EXO_OK)
        return st;
    for (size_t f = 0; f < sample.num_fields; f++) {
        sizes[1 + f] = exo_field_bytes(&sample.fields[f]);
        memset(sample.data[f], 0, sizes[1 + f]); /* of a data set that does not fill it */
    }
    exo_hash_add(hash, sizes, sizeof sizes);
    for (uint32_t i = 0; st == EXO_OK && i < places; i++) {
        const uint32_t gaps = places > 1 ? (uint32_t)places - 1 : 1;
        st = exo_batch_read_row(&sample, 0, data, exo_split_point(length - 1, i, gaps), &key, err);
        for (size_t f = 0; st == EXO_OK && f < sample.num_fields; f++)
            exo_hash_add(hash, sample.data[f], sizes[1 + f]);
    }
    exo_batch_release(&sample);
    return st;
}

static exo_status
digest(exo_dataset *const *sets, uint32_t count, char out[65], exo_err *err)
{
    exo_hash hash;
    exo_status st = exo_hash_init(&hash, err);
    if (st != EXO_OK)
        return st;
    for (uint32_t i = 0; st == EXO_OK && i < count; i++)
        st = hash_samples(&hash, sets[i], err);
    if (st != EXO_OK)
        exo_hash_release(&hash);
    else if (!exo_hash_end(&hash, out))
        st = exo_fail(err, EXO_FAILED, "libcrypto cannot compute the SHA-256 of the data");
    return st;
}

static uint32_t
num_sets(const exo_fit *fit)
{
    return fit->shared_data ? 1 : fit->num_nodes;
}

static bool
validates(const exo_fit *fit)
{
    return fit->val && fit->val_count > 0;
}

exo_status
exo_fit_digest_data(const exo_fit *fit, exo_fit_digests *out, exo_err *err)
{
    *out = (exo_fit_digests){0};
    exo_status st = digest(fit->train, num_sets(fit), out->train, err);
    return st == EXO_OK && validates(fit) ? digest(&fit->val, 1, out->val, err) : st;
}

/* Compares data sets, `what` in messages, with two entries of the document. */
static exo_status
check_sets(exo_dataset *const *sets, uint32_t count, exo_config *document, const char *length_key,
           const char *digest_key, const char *what, exo_err *err)
{
    char here[65];
    const char *there = NULL;
    uint64_t samples = 0;
    const uint64_t length = exo_dataset_length(sets[0]);
    exo_status st = exo_config_string(document, digest_key, NULL, &there, err);
    if (st == EXO_OK && there)
        st = exo_config_u64(document, length_key, 0, 0, INT64_MAX, &samples, err);
    if (st != EXO_OK || !there)
        return st;
    if (samples != length)
        return exo_fail(err, EXO_INVAL,
                        "the %s have %" PRIu64 " samples on this host, and %" PRIu64
                        " on that of the run: the same files must be on all hosts",
                        what, length, samples);
    st = digest(sets, count, here, err);
    if (st == EXO_OK && strcmp(here, there) != 0)
        st = exo_fail(err, EXO_INVAL,
                      "the %s have other samples on this host than on that of the run: the same "
                      "files must be on all hosts",
                      what);
    return st;
}

static exo_status
check_data(const exo_fit *fit, exo_config *document, exo_err *err)
{
    exo_status st =
        check_sets(fit->train, num_sets(fit), document, "samples", "data_digest", "data", err);
    return st == EXO_OK && fit->val ? check_sets(&fit->val, 1, document, "val_samples",
                                                 "val_digest", "validation data", err)
                                    : st;
}

/* --- The folder ------------------------------------------------------------------------------- */

exo_status
exo_fit_mark_folder(const char *folder, int lock, const char *run, exo_err *err)
{
    const size_t size = strlen(run);
    /* flushed, so that other hosts read it while it is open here */
    if (ftruncate(lock, 0) != 0 || pwrite(lock, run, size, 0) != (ssize_t)size || fsync(lock) != 0)
        return exo_fail(err, EXO_IO, "%s/.lock: %s", folder, strerror(errno));
    return EXO_OK;
}

static exo_status
check_folder(exo_config *document, exo_err *err)
{
    const char *folder = NULL, *run = NULL;
    char *lock = NULL, *probe = NULL, *name = NULL;
    size_t size = 0;
    exo_file file;
    exo_err reason = {0};
    exo_status st = exo_config_string(document, "save_to", NULL, &folder, err);
    if (st == EXO_OK)
        st = exo_config_string(document, "run", "", &run, err);
    if (st != EXO_OK || !folder)
        return st;
    if (!(lock = exo_text_make(err, "%s/.lock", folder)) ||
        !(probe = exo_text_make(err, "%s/node", folder))) {
        st = EXO_NOMEM;
        goto done;
    }
    if (exo_file_read(lock, MAX_NAME, &name, &size, NULL) != EXO_OK || strcmp(name, run) != 0) {
        st =
            exo_fail(err, EXO_IO,
                     "the run's folder %s is not on this host, or is another one here: nodes write "
                     "their checkpoints into it, so all hosts must share it, or train without any: "
                     "train.final_checkpoint=false, and no checkpoint_interval",
                     folder);
        goto done;
    }
    st = exo_file_create(&file, probe, &reason);
    if (st == EXO_OK)
        exo_file_abort(&file);
    else
        exo_fail(err, st, "nodes cannot write their checkpoints on this host: %s", reason.text);
done:
    exo_free(name);
    exo_free(probe);
    exo_free(lock);
    return st;
}

/* --- Documents -------------------------------------------------------------------------------- */

static int
describe_set(const exo_dataset *data, json_t *document, const char *length_key,
             const char *digest_key, const char *digest)
{
    const json_int_t length = (json_int_t)exo_dataset_length(data);
    return json_object_set_new(document, digest_key, json_string(digest)) |
           json_object_set_new(document, length_key, json_integer(length));
}

exo_status
exo_fit_describe_host(const exo_fit *fit, const exo_fit_digests *digests, const char *folder,
                      json_t *document, exo_err *err)
{
    char absolute[PATH_MAX];
    int failed = describe_set(fit->train[0], document, "samples", "data_digest", digests->train);
    if (validates(fit))
        failed |= describe_set(fit->val, document, "val_samples", "val_digest", digests->val);
    if (folder && !realpath(folder, absolute))
        return exo_fail(err, EXO_IO, "%s: %s", folder, strerror(errno));
    json_t *path = folder ? json_string(absolute) : NULL;
    if (path) /* a path that is not UTF-8 is not checked */
        failed |= json_object_set_new(document, "save_to", path);
    return failed ? exo_fail(err, EXO_NOMEM, "no memory to describe a node") : EXO_OK;
}

exo_status
exo_fit_check_host(const exo_fit *fit, exo_config *document, exo_err *err)
{
    exo_status st = check_data(fit, document, err);
    return st == EXO_OK ? check_folder(document, err) : st;
}
