/* The list of a cluster can be read whatever its processes are called. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/cluster.h>
#include <exogym/memory.h>
#include <exogym/object.h>

#include "support/temp.h"

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

/* A head and a driver of it, each with its runtime. */
struct pair {
    char folder[64];
    exo_runtime *runtimes[2];
    exo_cluster *head, *driver;
};

static void
pair_join(struct pair *p, const char *driver, const char *job)
{
    exo_err err = {0};
    *p = (struct pair){0};
    temp_folder(p->folder, sizeof p->folder);
    exo_cluster_opts opts = {.role = EXO_ROLE_HEAD,
                             .name = "head",
                             .cluster = "test",
                             .folder = p->folder,
                             .state = "none"};
    cr_assert_eq(exo_runtime_open(&p->runtimes[0], NULL, &err), EXO_OK);
    cr_assert_eq(exo_runtime_open(&p->runtimes[1], NULL, &err), EXO_OK);
    cr_assert_eq(exo_cluster_join(&p->head, p->runtimes[0], &opts, soon(), &err), EXO_OK, "%s",
                 err.text);
    opts.role = EXO_ROLE_DRIVER;
    opts.name = driver;
    opts.job = job;
    opts.head = exo_cluster_address(p->head);
    cr_assert_eq(exo_cluster_join(&p->driver, p->runtimes[1], &opts, soon(), &err), EXO_OK, "%s",
                 err.text);
}

static void
leave(exo_cluster **cluster, exo_runtime **runtime)
{
    exo_err err = {0};
    exo_cluster_leave(*cluster);
    cr_expect_eq(exo_runtime_close(runtime, soon(), &err), EXO_OK);
    exo_cluster_free(cluster);
}

static void
pair_leave_driver(struct pair *p)
{
    leave(&p->driver, &p->runtimes[1]);
}

/* The head leaves too. */
static void
pair_end(struct pair *p)
{
    leave(&p->head, &p->runtimes[0]);
    temp_remove(p->folder);
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

Test(listing, has_the_objects_of_the_process_that_asks)
{
    struct pair p;
    exo_err err = {0};
    exo_object *object = NULL;
    char *json = NULL;
    pair_join(&p, "asks", NULL);
    cr_assert_eq(exo_object_put(&object, (char[5432]){0}, 5432, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_cluster_list_objects(p.driver, soon(), &json, &err), EXO_OK, "%s", err.text);
    cr_expect(strstr(json, "\"node\": \"asks\"") && strstr(json, "\"bytes\": 5432"), "%s", json);
    cr_expect_null(strstr(json, "error"), "%s", json);
    exo_free(json);
    exo_object_drop(&object);
    pair_leave_driver(&p);
    pair_end(&p);
}

Test(listing, is_json_also_of_names_that_are_no_text)
{
    struct pair p;
    pair_join(&p, "driver\xff\"", "job\xc3");
    char *json = list(p.head);
    cr_expect_not_null(strstr(json, "driver?\\\""), "%s", json);
    cr_expect_not_null(strstr(json, "job?"), "%s", json);
    exo_free(json);
    pair_leave_driver(&p);
    pair_end(&p);
}

Test(listing, has_the_latest_report_of_a_job_that_runs)
{
    struct pair p;
    exo_err err = {0};
    pair_join(&p, "driver", "job");
    char *json = list(p.head);
    cr_expect_null(strstr(json, "\"report\""), "%s", json);
    exo_free(json);

    cr_expect_eq(exo_cluster_report(p.driver, "{\"first\": 1}", soon(), &err), EXO_OK, "%s",
                 err.text);
    cr_expect_eq(exo_cluster_report(p.driver, "{\"second\": 2}", soon(), &err), EXO_OK, "%s",
                 err.text);
    json = list(p.head);
    cr_expect(strstr(json, "\"second\": 2") && !strstr(json, "first"), "%s", json);
    exo_free(json);

    char *longest = exo_calloc(1, (64 << 10) + 2);
    snprintf(longest, (64 << 10) + 2, "{\"long\": 3%*s}", (64 << 10) - 11, "");
    cr_expect_eq(exo_cluster_report(p.driver, longest, soon(), &err), EXO_OK, "%s", err.text);
    snprintf(longest, (64 << 10) + 2, "{\"long\": 4%*s}", (64 << 10) - 10, "");
    cr_expect_eq(exo_cluster_report(p.driver, longest, soon(), &err), EXO_INVAL);
    exo_free(longest);
    cr_expect_eq(exo_cluster_report(p.driver, "[1]", soon(), &err), EXO_INVAL);
    cr_expect_eq(exo_cluster_report(p.driver, "{", soon(), &err), EXO_INVAL);
    cr_expect_eq(exo_cluster_report(p.head, "{}", soon(), &err), EXO_INVAL);
    json = list(p.head);
    cr_expect_not_null(strstr(json, "\"long\": 3"), "%s", json);
    exo_free(json);

    pair_leave_driver(&p);
    json = list(p.head);
    cr_expect(strstr(json, "\"done\"") && !strstr(json, "\"report\""), "%s", json);
    exo_free(json);
    pair_end(&p);
}
