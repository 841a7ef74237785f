/* The list of a cluster can be read whatever its processes are called. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/cluster.h>
#include <exogym/memory.h>

#include "temp.h"

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 20 * EXO_SECOND);
}

Test(listing, is_json_also_of_names_that_are_no_text)
{
    char folder[64], *json = NULL;
    exo_runtime *runtimes[2] = {NULL, NULL};
    exo_cluster *head = NULL, *driver = NULL;
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    exo_cluster_opts opts = {
        .role = EXO_ROLE_HEAD, .name = "head", .cluster = "test", .folder = folder, .state = "none"};
    cr_assert_eq(exo_runtime_open(&runtimes[0], NULL, &err), EXO_OK);
    cr_assert_eq(exo_runtime_open(&runtimes[1], NULL, &err), EXO_OK);
    cr_assert_eq(exo_cluster_join(&head, runtimes[0], &opts, soon(), &err), EXO_OK, "%s", err.text);
    opts.role = EXO_ROLE_DRIVER;
    opts.name = "driver\xff\"";
    opts.job = "job\xc3";
    opts.head = exo_cluster_address(head);
    cr_assert_eq(exo_cluster_join(&driver, runtimes[1], &opts, soon(), &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_cluster_list(head, soon(), &json, &err), EXO_OK, "%s", err.text);
    cr_expect_not_null(strstr(json, "driver?\\\""), "%s", json);
    cr_expect_not_null(strstr(json, "job?"), "%s", json);
    exo_free(json);
    exo_cluster_leave(driver);
    cr_expect_eq(exo_runtime_close(&runtimes[1], soon(), &err), EXO_OK);
    exo_cluster_free(&driver);
    exo_cluster_leave(head);
    cr_expect_eq(exo_runtime_close(&runtimes[0], soon(), &err), EXO_OK);
    exo_cluster_free(&head);
    temp_remove(folder);
}

/* The list, as text that the caller frees. */
static char *
list(exo_cluster *cluster)
{
    char *json = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_cluster_list(cluster, soon(), &json, &err), EXO_OK, "%s", err.text);
    return json;
}

Test(listing, has_the_latest_report_of_a_job_that_runs)
{
    char folder[64], *json = NULL;
    exo_runtime *runtimes[2] = {NULL, NULL};
    exo_cluster *head = NULL, *driver = NULL;
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    exo_cluster_opts opts = {
        .role = EXO_ROLE_HEAD, .name = "head", .cluster = "test", .folder = folder, .state = "none"};
    cr_assert_eq(exo_runtime_open(&runtimes[0], NULL, &err), EXO_OK);
    cr_assert_eq(exo_runtime_open(&runtimes[1], NULL, &err), EXO_OK);
    cr_assert_eq(exo_cluster_join(&head, runtimes[0], &opts, soon(), &err), EXO_OK, "%s", err.text);
    opts.role = EXO_ROLE_DRIVER;
    opts.name = "driver";
    opts.job = "job";
    opts.head = exo_cluster_address(head);
    cr_assert_eq(exo_cluster_join(&driver, runtimes[1], &opts, soon(), &err), EXO_OK, "%s", err.text);
    json = list(head);
    cr_expect_null(strstr(json, "\"report\""), "%s", json);
    exo_free(json);

    cr_expect_eq(exo_cluster_report(driver, "{\"first\": 1}", soon(), &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_cluster_report(driver, "{\"second\": 2}", soon(), &err), EXO_OK, "%s", err.text);
    json = list(head);
    cr_expect(strstr(json, "\"second\": 2") && !strstr(json, "first"), "%s", json);
    exo_free(json);

    char *longest = exo_calloc(1, (64 << 10) + 2);
    snprintf(longest, (64 << 10) + 2, "{\"long\": 3%*s}", (64 << 10) - 11, "");
    cr_expect_eq(exo_cluster_report(driver, longest, soon(), &err), EXO_OK, "%s", err.text);
    snprintf(longest, (64 << 10) + 2, "{\"long\": 4%*s}", (64 << 10) - 10, "");
    cr_expect_eq(exo_cluster_report(driver, longest, soon(), &err), EXO_INVAL);
    exo_free(longest);
    cr_expect_eq(exo_cluster_report(driver, "[1]", soon(), &err), EXO_INVAL);
    cr_expect_eq(exo_cluster_report(driver, "{", soon(), &err), EXO_INVAL);
    cr_expect_eq(exo_cluster_report(head, "{}", soon(), &err), EXO_INVAL);
    json = list(head);
    cr_expect_not_null(strstr(json, "\"long\": 3"), "%s", json);
    exo_free(json);

    exo_cluster_leave(driver);
    cr_expect_eq(exo_runtime_close(&runtimes[1], soon(), &err), EXO_OK);
    exo_cluster_free(&driver);
    json = list(head);
    cr_expect(strstr(json, "\"done\"") && !strstr(json, "\"report\""), "%s", json);
    exo_free(json);
    exo_cluster_leave(head);
    cr_expect_eq(exo_runtime_close(&runtimes[0], soon(), &err), EXO_OK);
    exo_cluster_free(&head);
    temp_remove(folder);
}
