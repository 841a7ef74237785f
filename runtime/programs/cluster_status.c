/* `exogym status`: an overview of a cluster; or the state of a run on this host. Read next:
 * run_report.h. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/printable.h"
#include "base/version.h"
#include "programs/cluster_folder.h"
#include "programs/prometheus.h"
#include "programs/run_report.h"
#include "programs/where.h"

struct status_args {
    struct exo_where where;
    const char *run;
    bool prometheus;
};

/* The number of objects in a list whose state is `state`. */
static size_t
count(const json_t *list, const char *state)
{
    size_t i, found = 0;
    const json_t *object;
    json_array_foreach ((json_t *)(uintptr_t)list, i, object)
        found += strcmp(json_string_value(json_object_get(object, "state")), state) == 0;
    return found;
}

static void
print_report(const char *what, const char *name, const char *state, const json_t *report)
{
    exo_text title = {0};
    exo_text_add(&title, "%s%s: %s", what, name, state);
    exo_run_report_print(stdout, title.failed ? "?" : title.data, report);
    exo_free(title.data);
}

static long long
held(const json_t *peer, const char *what)
{
    return (long long)json_integer_value(json_object_get(peer, what));
}

/* Prints what each process holds of the head, or of another process, where quotas limit it. */
static void
print_peers(const json_t *peers)
{
    size_t i;
    const json_t *p;
    char name[1024], by[1024];
    if (json_array_size(peers) > 0)
        printf("\n%-24s %-12s %5s %4s %6s %6s %6s %7s %7s %7s %8s %9s\n", "held by", "of", "nodes",
               "jobs", "actors", "names", "spawns", "waiting", "objects", "refs", "monitors",
               "bytes");
    json_array_foreach ((json_t *)(uintptr_t)peers, i, p) {
        const char *called = json_string_value(json_object_get(p, "name")),
                   *of = json_string_value(json_object_get(p, "by"));
        if (!called || !*called)
            called = json_string_value(json_object_get(p, "id"));
        printf("%-24s %-12s %5lld %4lld %6lld %6lld %6lld %7lld %7lld %7lld %8lld %9lld\n",
               exo_printable(name, sizeof name, called, EXO_SHOWN_LINE),
               exo_printable(by, sizeof by, of ? of : "the head", EXO_SHOWN_LINE), held(p, "nodes"),
               held(p, "jobs"), held(p, "actors"), held(p, "names"), held(p, "spawns"),
               held(p, "waiting") + held(p, "finds") + held(p, "logs"), held(p, "lent"),
               held(p, "references"), held(p, "monitors"),
               held(p, "waiting_bytes") + held(p, "lent_bytes"));
    }
}

/* Prints the actors to which the head gave GPUs, with these. */
static void
print_gpus(const json_t *actors)
{
    json_t *having = json_array(), *actor;
    size_t i;
    json_array_foreach ((json_t *)(uintptr_t)actors, i, actor)
        if (json_object_get(actor, "gpus"))
            json_array_append(having, actor);
    if (json_array_size(having) > 0) {
        printf("\n");
        exo_print_rows("gpus", having, true);
    }
    json_decref(having);
}

/* Whether a process of the cluster has offered a GPU. */
static bool
has_gpus(const json_t *nodes)
{
    bool has = false;
    size_t i;
    const json_t *node;
    json_array_foreach ((json_t *)(uintptr_t)nodes, i, node)
        has = has || json_number_value(json_object_get(json_object_get(node, "total"), "gpus")) > 0;
    return has;
}

static void
add_to(json_t *row, const char *key, json_int_t amount)
{
    const json_int_t sum = json_integer_value(json_object_get(row, key)) + amount;
    json_object_set_new(row, key, json_integer(sum));
}

/* The row of a process and its GPU, where the object's bytes are. */
static json_t *
row_of(json_t *rows, const json_t *object)
{
    size_t i;
    json_t *row;
    json_array_foreach (rows, i, row)
        if (json_equal(json_object_get(row, "node"), json_object_get(object, "node")) &&
            json_equal(json_object_get(row, "gpu"), json_object_get(object, "gpu")))
            return row;
    row = json_pack("{s:O, s:O}", "node", json_object_get(object, "node"), "gpu",
                    json_object_get(object, "gpu"));
    json_array_append_new(rows, row);
    return row;
}

/* The arrays that processes have on each GPU for others, if this process's role may ask for them. One that
 * does not answer has a row with the reason. */
static exo_status
look_at_device_memory(exo_visit *visit, json_t *listing, exo_err *err)
{
    char *text = NULL;
    size_t i;
    json_t *object, *rows = json_array();
    exo_status st = exo_cluster_list_objects(visit->cluster, visit->deadline, &text, err);
    json_t *objects = st == EXO_OK ? json_loads(text, 0, NULL) : NULL;
    json_array_foreach (objects, i, object) {
        if (json_object_get(object, "error") && !json_is_true(json_object_get(object, "denied")))
            json_array_append(rows, object);
        if (!json_object_get(object, "gpu"))
            continue;
        json_t *row = row_of(rows, object);
        add_to(row, "arrays", 1);
        add_to(row, "bytes", json_integer_value(json_object_get(object, "bytes")));
    }
    json_object_set_new(listing, "device_memory", rows);
    json_decref(objects);
    exo_free(text);
    return st;
}

static void
print_device_memory(const json_t *rows)
{
    if (json_array_size(rows) == 0)
        return;
    printf("\n");
    exo_print_rows("device_memory", rows, true);
}

/* Prints the reports of the jobs that have one. */
static void
print_reports(const json_t *jobs)
{
    size_t i;
    const json_t *job;
    json_array_foreach ((json_t *)(uintptr_t)jobs, i, job) {
        const json_t *report = json_object_get(job, "report");
        if (!report)
            continue;
        printf("\n");
        print_report("job ", json_string_value(json_object_get(job, "name")), "running", report);
    }
}

/* The version of a process that is alive, "" if it is too old to say; NULL: it is that of the head. */
static const char *
other_version(const json_t *node, const char *head)
{
    const char *theirs = json_string_value(json_object_get(node, "version")),
               *state = json_string_value(json_object_get(node, "state"));
    theirs = theirs ? theirs : "";
    return strcmp(state, "alive") == 0 && exo_version_is_other(theirs, head) ? theirs : NULL;
}

/* Names the first process of each version that is not that of the head. */
static void
print_versions(const json_t *nodes, const char *head)
{
    char name[256], version[64];
    if (!head || !*head) {
        puts(
            "warning  the head has an older exogym, which does not say who has another: a run over "
            "both may have other bits");
        return;
    }
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        const char *theirs = other_version(node, head);
        size_t before = 0, more = 0;
        for (size_t j = 0; theirs && j < json_array_size(nodes); j++) {
            const char *one = other_version(json_array_get(nodes, j), head);
            const bool same = one && strcmp(one, theirs) == 0;
            before += same && j < i;
            more += same && j > i;
        }
        if (!theirs || before > 0)
            continue;
        exo_printable(name, sizeof name, json_string_value(json_object_get(node, "name")),
                      EXO_SHOWN_LINE);
        exo_printable(version, sizeof version, theirs, EXO_SHOWN_LINE);
        printf("warning  %s", name);
        if (more > 0)
            printf(" and %zu more", more);
        printf(" %s %s%s: a run over both may have other bits\n", more > 0 ? "have" : "has",
               *version ? "exogym " : "an older exogym", version);
    }
}

static void
print_overview(const json_t *listing)
{
    const json_t *nodes = json_object_get(listing, "nodes"),
                 *actors = json_object_get(listing, "actors"),
                 *jobs = json_object_get(listing, "jobs");
    printf("cluster  %s, exogym %s\n", json_string_value(json_object_get(listing, "cluster")),
           json_string_value(json_object_get(listing, "version")));
    printf("nodes    %zu alive, %zu lost, %zu left\n", count(nodes, "alive"), count(nodes, "lost"),
           count(nodes, "left"));
    printf("actors   %zu alive, %zu dead, %zu between\n", count(actors, "alive"),
           count(actors, "dead"),
           json_array_size(actors) - count(actors, "alive") - count(actors, "dead"));
    printf("jobs     %zu running, %zu ended\n", count(jobs, "running"),
           json_array_size(jobs) - count(jobs, "running"));
    print_versions(nodes, json_string_value(json_object_get(listing, "version")));
    if (json_array_size(nodes) > count(nodes, "left")) {
        printf("\n");
        exo_print_rows("nodes", nodes, false);
    }
    print_gpus(actors);
    print_device_memory(json_object_get(listing, "device_memory"));
    print_peers(json_object_get(listing, "peers"));
    print_reports(jobs);
}

static exo_status
status(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct status_args *args = arguments;
    json_t *listing = NULL;
    exo_status st = exo_visit_list(visit, &listing, err);
    if (st == EXO_OK && has_gpus(json_object_get(listing, "nodes")))
        st = look_at_device_memory(visit, listing, err);
    if (st != EXO_OK) {
        json_decref(listing);
        return st;
    }
    if (args->where.json)
        return exo_print_json(listing, err);
    if (args->prometheus) {
        json_t *page = json_object();
        exo_prometheus_add_cluster(page, listing);
        st = exo_prometheus_print(stdout, page, err);
    } else {
        print_overview(listing);
    }
    json_decref(listing);
    return st;
}

/* The state of a run, for people. */
static const char *
state_text(const json_t *run)
{
    const char *state = json_string_value(json_object_get(run, "state"));
    if (state && strcmp(state, "until") == 0)
        return "finished, at its until";
    if (state && strcmp(state, "killed") == 0)
        return "killed: it does not run, and has not said that it ended";
    return state ? state : "ended";
}

/* Prints the reports in the runs' folders. Needs no cluster. */
static int
status_of_run(const struct status_args *args)
{
    exo_err err = {0};
    json_t *runs = NULL;
    size_t i;
    const json_t *run;
    exo_status st = exo_run_report_read(args->run, &runs, &err);
    if (st == EXO_OK && args->where.json) {
        st = exo_print_json(json_pack("{s:o}", "runs", runs), &err);
        return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
    }
    json_t *page = st == EXO_OK && args->prometheus ? json_object() : NULL;
    json_array_foreach (runs, i, run) {
        if (args->prometheus) {
            exo_prometheus_add_report(
                page, "run", json_string_value(json_object_get(run, "folder")),
                json_string_value(json_object_get(run, "state")), json_object_get(run, "report"));
            continue;
        }
        if (i)
            printf("\n");
        print_report("", json_string_value(json_object_get(run, "folder")), state_text(run),
                     json_object_get(run, "report"));
    }
    json_decref(runs);
    if (st == EXO_OK && args->prometheus)
        st = exo_prometheus_print(stdout, page, &err);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static int
status_command(const exo_command_line *line)
{
    const struct status_args *args = line->args;
    exo_err err = {0};
    if (args->prometheus && args->where.json) {
        exo_fail(&err, EXO_INVAL, "--json or --prometheus, not both");
        return exo_report_usage(&exo_command_status, &err);
    }
    if (args->run)
        return status_of_run(args);
    (void)exo_cluster_folder_sweep(true);
    return exo_visit_do(line, status);
}

static const exo_arg table[] = {
    {"--run", "DIR",
     "How the run of this folder goes, or those of the runs in it, instead: runs/NAME. Needs no "
     "cluster.",
     EXO_INTO(struct status_args, run), .word = EXO_WORD_FOLDER},
    {"--prometheus", NULL, "Prints the figures in Prometheus's text format (docs/meters.md).",
     EXO_INTO(struct status_args, prometheus)},
    EXO_WHERE_ROWS(
        struct status_args,
        "Prints all that the head knows as one JSON object; of --run, what the run says."),
    {0},
};

static const exo_note examples[] = {
    {"exogym status --run runs/compare",
     "Shows how the runs of a job go that runs on this host, with or without a cluster."},
    {"exogym status --prometheus > DIR/exogym.part && mv DIR/exogym.part DIR/exogym.prom",
     "Gives the figures to Prometheus, by the folder of node_exporter's textfile collector."},
    {0},
};

const exo_command exo_command_status = {
    .name = "status",
    .summary = "Shows what a cluster has and does",
    .description =
        "Nodes with what is free of their cpus, gpus and memory, and how many actors and jobs "
        "there are. Nodes that left in good order, as drivers do, are counted only; `exogym list "
        "nodes` has them. Then the actors to which the head gave GPUs (`--resource gpus=1`), with "
        "the numbers of these at their node; and the arrays that each process has on its GPUs for "
        "others, as weight updates and items (docs/objects.md), which it is asked for.\n\n"
        "Of each job that `exogym run` runs there: its time, its figures, and what went over its "
        "edges so far (the ledger; docs/graph.md explains its columns), as it said about a second "
        "ago.\n\n"
        "And what each process holds of the head: docs/security.md has the quotas.",
    .args = table,
    .examples = examples,
    .args_size = sizeof(struct status_args),
    .run = status_command,
};
