/* What a worker's host is checked for before the first step of a run: its data, and the run's folder. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "actors/fit_check.h"
#include "actors/run_folder.h"
#include "support/temp.h"

enum {
    SAMPLES = 1000,
    PIXELS = 4
};

/* --- The data --------------------------------------------------------------------------------- */

static uint8_t pixels[SAMPLES + 1][PIXELS];
static uint8_t labels[SAMPLES + 1];

static exo_dataset *
data_of(size_t first, size_t count)
{
    exo_dataset *data = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_dataset_images(&data, count, 2, 2, pixels[first], labels + first,
                                    &(exo_image_opts){0}, &err),
                 EXO_OK, "%s", err.text);
    return data;
}

static void
digest_of(size_t first, size_t count, char out[65])
{
    exo_dataset *data = data_of(first, count);
    exo_err err = {0};
    exo_fit fit = {.shared_data = true, .num_nodes = 2, .train = (exo_dataset *[]){data, data}};
    exo_fit_digests digests;
    cr_assert_eq(exo_fit_digest_data(&fit, &digests, &err), EXO_OK, "%s", err.text);
    memcpy(out, digests.train, 65);
    cr_expect_str_empty(digests.val);
    exo_dataset_drop(&data);
}

static void
fill(void)
{
    for (size_t i = 0; i <= SAMPLES; i++) {
        labels[i] = (uint8_t)(i % 10);
        for (size_t p = 0; p < PIXELS; p++)
            pixels[i][p] = (uint8_t)((PIXELS * i + p) % 251);
    }
}

Test(fit_check, the_digest_sees_edits_of_the_first_and_the_last_sample_and_shifts)
{
    char before[65], same[65], now[65];
    const size_t edited[] = {0, SAMPLES - 1};
    for (size_t count = 1; count <= SAMPLES; count = count * 3 + 1) {
        fill();
        digest_of(0, count, before);
        digest_of(0, count, same);
        cr_expect_str_eq(before, same);
        digest_of(1, count, now);
        cr_expect_str_neq(before, now, "%zu samples: a shift", count);
        for (size_t i = 0; i < 2; i++) {
            fill();
            pixels[edited[i] < count ? edited[i] : count - 1][PIXELS - 1] += 1;
            digest_of(0, count, now);
            cr_expect_str_neq(before, now, "%zu samples: an edit", count);
        }
        fill();
        labels[count - 1]++;
        digest_of(0, count, now);
        cr_expect_str_neq(before, now, "%zu samples: a label", count);
    }
}

/* --- A document, as the trainer writes it and a worker reads it ------------------------------- */

static exo_status
check(const exo_fit *fit, json_t *document, exo_err *err)
{
    exo_config_doc *doc = NULL;
    char *text = json_dumps(document, 0);
    cr_assert_eq(exo_config_parse(&doc, "document", text, err), EXO_OK, "%s", err->text);
    exo_status st = exo_fit_check_host(fit, exo_config_root(doc), err);
    exo_config_free(&doc);
    free(text);
    return st;
}

Test(fit_check, refuses_other_data)
{
    exo_fit_digests digests;
    exo_err err = {0};
    fill();
    exo_dataset *data = data_of(0, SAMPLES), *other = data_of(1, SAMPLES), *few = data_of(0, 10);
    exo_fit fit = {.shared_data = true, .num_nodes = 1, .train = &data};
    json_t *document = json_pack("{s:s}", "run", "a");
    cr_assert_eq(exo_fit_digest_data(&fit, &digests, &err), EXO_OK);
    cr_assert_eq(exo_fit_describe_host(&fit, &digests, NULL, document, &err), EXO_OK);
    cr_expect_eq(check(&fit, document, &err), EXO_OK, "%s", err.text);
    fit.train = &other;
    cr_expect_eq(check(&fit, document, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "other samples on this host"), "%s", err.text);
    fit.train = &few;
    cr_expect_eq(check(&fit, document, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "10 samples on this host, and 1000"), "%s", err.text);
    json_decref(document);
    exo_dataset_drop(&data);
    exo_dataset_drop(&other);
    exo_dataset_drop(&few);
}

Test(fit_check, refuses_other_validation_data)
{
    exo_fit_digests digests;
    exo_err err = {0};
    fill();
    exo_dataset *data = data_of(0, 10), *val = data_of(0, 20), *other = data_of(1, 20),
                *few = data_of(0, 5);
    exo_fit fit = {.shared_data = true, .num_nodes = 1, .train = &data, .val = val, .val_count = 4};
    json_t *document = json_pack("{s:s}", "run", "a");
    cr_assert_eq(exo_fit_digest_data(&fit, &digests, &err), EXO_OK);
    cr_assert_eq(exo_fit_describe_host(&fit, &digests, NULL, document, &err), EXO_OK);
    cr_expect_eq(check(&fit, document, &err), EXO_OK, "%s", err.text);
    fit.val = other;
    cr_expect_eq(check(&fit, document, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "the validation data have other samples on this host"), "%s",
              err.text);
    fit.val = few;
    cr_expect_eq(check(&fit, document, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "the validation data have 5 samples on this host, and 20"), "%s",
              err.text);
    fit.val = NULL;
    cr_expect_eq(check(&fit, document, &err), EXO_OK, "a node that does not validate");
    json_decref(document);
    exo_dataset_drop(&data);
    exo_dataset_drop(&val);
    exo_dataset_drop(&other);
    exo_dataset_drop(&few);
}

static exo_status
check_folder(const char *folder, const char *run, exo_err *err)
{
    exo_fit_digests digests;
    fill();
    exo_dataset *data = data_of(0, 10);
    exo_fit fit = {.shared_data = true, .num_nodes = 1, .train = &data};
    json_t *document = json_pack("{s:s}", "run", run);
    cr_assert_eq(exo_fit_digest_data(&fit, &digests, err), EXO_OK);
    cr_assert_eq(exo_fit_describe_host(&fit, &digests, folder, document, err), EXO_OK, "%s",
                 err->text);
    exo_status st = check(&fit, document, err);
    json_decref(document);
    exo_dataset_drop(&data);
    return st;
}

Test(fit_check, refuses_a_folder_that_is_another_one_or_cannot_be_written_to)
{
    int lock = -1;
    exo_err err = {0};
    char folder[64];
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_run_lock(folder, &lock, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(check_folder(folder, "a", &err), EXO_IO, "it is not marked");
    cr_assert_eq(exo_fit_mark_folder(folder, lock, "a", &err), EXO_OK, "%s", err.text);
    cr_expect_eq(check_folder(folder, "a", &err), EXO_OK, "%s", err.text);
    cr_expect_eq(check_folder(folder, "another", &err), EXO_IO);
    cr_expect(strstr(err.text, "all hosts must share it"), "%s", err.text);
    cr_assert_eq(chmod(folder, 0555), 0);
    cr_assert(geteuid() != 0 || seteuid(65534) == 0); /* root may write everywhere */
    cr_expect_eq(check_folder(folder, "a", &err), EXO_IO);
    cr_expect(strstr(err.text, "cannot write their checkpoints on this host"), "%s", err.text);
    cr_assert(geteuid() == getuid() || seteuid(getuid()) == 0);
    cr_assert_eq(chmod(folder, 0700), 0);
    temp_remove(folder);
    close(lock);
}
