/* Prometheus's text format: see prometheus.h. Read next: report/meter_json.h. */
#include "programs/prometheus.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/grow_text.h"
#include "base/traffic.h"
#include "programs/meter_rows.h"
#include "report/meter_json.h"
#include "report/traffic_json.h"

enum {
    NUMBER = 32,                /* bytes of a number's text */
    NAME = EXO_METER_PATH + 64, /* of a family's name */
    MAX_LABELS = 4 << 10        /* bytes of a sample's labels; a sample with more is left out */
};

/* --- Samples ---------------------------------------------------------------------------------- */

/* Adds text with a backslash before backslashes, and with \n for the end of a line. quotes: before
 * double quotes, too. */
static void
add_escaped(exo_text *out, const char *text, bool quotes)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\n')
            exo_text_add_bytes(out, "\\n", 2);
        else
            exo_text_add(out, "%s%c", *c == '\\' || (quotes && *c == '"') ? "\\" : "", *c);
    }
}

/* Adds a label, `job="compare"`; one whose value is NULL or "" is left out. */
static void
add_label(exo_text *labels, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    exo_text_add(labels, "%s%s=\"", labels->length ? "," : "", name);
    add_escaped(labels, value, true);
    exo_text_add_bytes(labels, "\"", 1);
}

static const char *
number(double value, char out[NUMBER])
{
    if (isfinite(value))
        exo_c_snprintf(out, NUMBER, "%.15g", value);
    else
        snprintf(out, NUMBER, "%s", isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
    return out;
}

static bool
is_histogram(const json_t *page, const char *name)
{
    const json_t *kind = json_object_get(json_object_get(page, name), "kind");
    return json_is_string(kind) && strcmp(json_string_value(kind), "histogram") == 0;
}

/* Whether a new family would have the name of a histogram's line, x_count beside a histogram x, or the
 * other way round. Prometheus refuses a page that has both. */
static bool
is_a_line(const json_t *page, const char *name, const char *kind)
{
    static const char *const ends[] = {"_bucket", "_sum", "_count"};
    const size_t length = strlen(name);
    char other[NAME + 8]; /* with "_bucket" */
    for (int i = 0; i < 3; i++) {
        const size_t end = strlen(ends[i]);
        snprintf(other, sizeof other, "%s%s", name, ends[i]);
        if (strcmp(kind, "histogram") == 0 && json_object_get(page, other))
            return true;
        snprintf(other, sizeof other, "%.*s", (int)(length > end ? length - end : 0), name);
        if (length > end && strcmp(name + length - end, ends[i]) == 0 && is_histogram(page, other))
            return true;
    }
    return false;
}

/* The samples of a family, which is made if it is new. NULL: the name is taken by another kind. */
static json_t *
samples_of(json_t *page, const char *name, const char *kind, const char *help)
{
    json_t *family = json_object_get(page, name);
    if (!family && is_a_line(page, name, kind))
        return NULL;
    if (!family) {
        family = json_pack("{s:s, s:s, s:{}}", "kind", kind, "help", help, "samples");
        json_object_set_new(page, name, family);
    }
    const char *first = json_string_value(json_object_get(family, "kind"));
    return first && strcmp(first, kind) == 0 ? json_object_get(family, "samples") : NULL;
}

/* Adds a sample. Releases its labels. */
static void
add_sample(json_t *page, const char *name, const char *kind, const char *help, exo_text *labels,
           const char *value)
{
    json_t *samples = samples_of(page, name, kind, help);
    const char *key = labels->data ? labels->data : "";
    if (samples && !labels->failed && !json_object_get(samples, key))
        json_object_set_new(samples, key, json_string(value));
    exo_free(labels->data);
}

/* Adds a gauge with up to two labels; a name of NULL ends them. */
static void
add_gauge(json_t *page, const char *name, const char *help, const char *const labels[4],
          double value)
{
    char text[NUMBER];
    exo_text all = {.most = MAX_LABELS};
    for (int i = 0; i < 4 && labels[i]; i += 2)
        add_label(&all, labels[i], labels[i + 1]);
    add_sample(page, name, "gauge", help, &all, number(value, text));
}

/* --- Meters ----------------------------------------------------------------------------------- */

/* A unit as Prometheus wants it: what a name ends with, and what values are multiplied by. */
struct unit {
    const char *name, *end;
    double factor;
};

static struct unit
unit_of(const char *unit)
{
    static const struct unit known[] = {
        {"ns", "_seconds", 1e-9}, {"s", "_seconds", 1}, {"bytes", "_bytes", 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, unit) == 0)
            return known[i];
    return (struct unit){unit, "", 1};
}

/* "exogym_node_strategy_rounds_total" of "node_0.strategy.rounds". */
static void
name_family(const char *prefix, const exo_meter_sample *s, struct unit unit, char out[NAME])
{
    char path[EXO_METER_PATH];
    exo_meter_shared_path(s->path, path);
    snprintf(out, NAME - 32, "exogym_%s%s", prefix, path);
    for (char *c = out; *c; c++)
        if (!isascii((unsigned char)*c) || !isalnum((unsigned char)*c))
            *c = '_';
    if (!strstr(out, unit.end))
        strcat(out, unit.end);
    if (s->meter_class->kind == EXO_COUNTER)
        strcat(out, "_total");
}

/* A histogram is one sample of several lines, with its labels. */
static void
put_histogram(const exo_meter_sample *s, const char *name, const char *labels, double factor,
              exo_text *out)
{
    const exo_meter_class *c = s->meter_class;
    const char *comma = *labels ? "," : "";
    char bound[NUMBER], next[NUMBER], sum[NUMBER];
    uint64_t count = 0; /* of the buckets: s->count may be later by some observations */
    for (size_t i = 0; i <= c->num_bounds; i++) {
        count += s->buckets[i];
        number(i < c->num_bounds ? c->bounds[i] * factor : (double)INFINITY, bound);
        if (i + 1 < c->num_bounds && strcmp(bound, number(c->bounds[i + 1] * factor, next)) == 0)
            continue; /* bounds that differ in their last digits are one */
        exo_text_add(out, "%s_bucket{%s%sle=\"%s\"} %llu\n", name, labels, comma, bound,
                     (unsigned long long)count);
    }
    exo_text_add(out, "%s_sum{%s} %s\n%s_count{%s} %llu\n", name, labels,
                 number(s->value * factor, sum), name, labels, (unsigned long long)count);
}

/* Adds a meter. Releases the labels. prefix: of the family's name. */
static void
add_meter(json_t *page, const char *prefix, const exo_meter_sample *s, exo_text *labels)
{
    const exo_meter_class *c = s->meter_class;
    const struct unit unit = unit_of(c->unit);
    /* "rounds in which ..., in rounds" would say it twice */
    const bool says_unit = unit.end[0] || strcmp(c->unit, "1") == 0 || strstr(c->help, c->unit);
    char name[NAME], value[NUMBER];
    exo_text help = {0}, lines = {0};
    name_family(prefix, s, unit, name);
    exo_text_add(&help, "%s", c->help);
    if (!says_unit)
        exo_text_add(&help, "%sin %s", *c->help ? ", " : "", c->unit);
    const char *words = help.data ? help.data : c->help;
    if (c->kind == EXO_HISTOGRAM) {
        put_histogram(s, name, labels->data ? labels->data : "", unit.factor, &lines);
        add_sample(page, name, "histogram", words, labels, lines.data ? lines.data : "");
    } else if (c->kind == EXO_COUNTER && unit.factor == 1.0) {
        snprintf(value, sizeof value, "%llu", (unsigned long long)s->count);
        add_sample(page, name, "counter", words, labels, value);
    } else {
        const double v = c->kind == EXO_COUNTER ? (double)s->count : s->value;
        add_sample(page, name, c->kind == EXO_COUNTER ? "counter" : "gauge", words, labels,
                   number(v * unit.factor, value));
    }
    exo_free(help.data);
    exo_free(lines.data);
}

/* --- Reports ---------------------------------------------------------------------------------- */

static const char *
text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The strategy's edge is among the edges. */
static bool
is_of_an_edge(const char *path)
{
    return strncmp(path, "communication.", 14) == 0;
}

/* Unit and help of a meter: in a report to the head only the first of several actors of a name has
 * them. told: the meters that have them. path: without the actor's number. */
static void
take_texts(json_t *told, const char *path, json_t *meter, exo_meter_class *c)
{
    const json_t *first = json_object_get(told, path);
    if (!first && json_object_get(meter, "unit"))
        json_object_set(told, path, meter);
    if (!first || json_object_get(meter, "unit"))
        return;
    const char *unit = text_of(first, "unit"), *help = text_of(first, "help");
    c->unit = unit ? unit : "";
    c->help = help ? help : "";
}

static void
add_meters(json_t *page, const char *label, const char *run, const json_t *meters)
{
    const char *path;
    json_t *meter, *told = json_object();
    json_object_foreach ((json_t *)(uintptr_t)meters, path, meter) {
        exo_meter_class c;
        exo_meter_sample s;
        double bounds[EXO_METER_BOUNDS];
        char shared[EXO_METER_PATH], actor[EXO_METER_PATH];
        if (is_of_an_edge(path) || strlen(path) >= EXO_METER_PATH ||
            !exo_meter_of_json(path, meter, &c, bounds, &s))
            continue;
        snprintf(actor, sizeof actor, "%.*s", (int)exo_meter_shared_path(path, shared), path);
        take_texts(told, shared, meter, &c);
        if (c.kind == EXO_GAUGE && isnan(s.value)) /* not set */
            continue;
        exo_text labels = {.most = MAX_LABELS};
        add_label(&labels, label, run);
        add_label(&labels, "actor", actor);
        add_meter(page, "", &s, &labels);
    }
    json_decref(told);
}

static void
add_edges(json_t *page, const char *label, const char *run, const json_t *edges)
{
    size_t i;
    json_t *edge;
    json_array_foreach ((json_t *)(uintptr_t)edges, i, edge) {
        const exo_traffic t = exo_traffic_of_json(edge, EXO_TRAFFIC_SECONDS);
        for (size_t k = 0; k < EXO_TRAFFIC_COLUMNS; k++) {
            const exo_meter_class *c = &exo_traffic_columns[k];
            const exo_meter_sample s = {
                .path = c->name, .meter_class = c, .count = exo_traffic_get(&t, k)};
            exo_text labels = {.most = MAX_LABELS};
            add_label(&labels, label, run);
            add_label(&labels, "edge", text_of(edge, "edge"));
            add_meter(page, "edge_", &s, &labels);
        }
    }
}

static void
add_waits(json_t *page, const char *label, const char *run, const json_t *waits)
{
    size_t i;
    json_t *w;
    char text[NUMBER];
    json_array_foreach ((json_t *)(uintptr_t)waits, i, w) {
        exo_text labels = {.most = MAX_LABELS};
        add_label(&labels, label, run);
        add_label(&labels, "actor", text_of(w, "actor"));
        add_label(&labels, "edge", text_of(w, "edge"));
        add_label(&labels, "kind", text_of(w, "kind"));
        add_label(&labels, "link", text_of(w, "link"));
        add_label(&labels, "for", text_of(w, "for"));
        add_sample(page, "exogym_wait_seconds", "gauge", "time that an actor has waited at an edge",
                   &labels, number(json_number_value(json_object_get(w, "waited_s")), text));
    }
}

void
exo_prometheus_add_report(json_t *page, const char *label, const char *name, const char *state,
                          const json_t *report)
{
    const json_t *time = json_object_get(report, "time_s");
    add_gauge(page, "exogym_run_state", "1, with the state of the run",
              (const char *[]){label, name, "state", state}, 1);
    if (json_is_number(time))
        add_gauge(page, "exogym_run_time_seconds", "time of the run, by its clock",
                  (const char *[]){label, name, "clock", text_of(report, "clock")},
                  json_number_value(time));
    add_meters(page, label, name, json_object_get(report, "meters"));
    add_edges(page, label, name, json_object_get(report, "edges"));
    add_waits(page, label, name, json_object_get(report, "waits"));
}

/* --- The cluster ------------------------------------------------------------------------------ */

/* Adds how many objects of a list there are in each state; states: those that also count as 0. */
static void
add_states(json_t *page, const char *name, const char *help, const json_t *list,
           const char *const states[4])
{
    json_t *counts = json_object(), *object, *count;
    const char *state;
    size_t i;
    for (i = 0; i < 4 && states[i]; i++)
        json_object_set_new(counts, states[i], json_integer(0));
    json_array_foreach ((json_t *)(uintptr_t)list, i, object)
        if ((state = text_of(object, "state")))
            json_object_set_new(
                counts, state,
                json_integer(json_integer_value(json_object_get(counts, state)) + 1));
    json_object_foreach (counts, state, count)
        add_gauge(page, name, help, (const char *[]){"state", state, NULL, NULL},
                  (double)json_integer_value(count));
    json_decref(counts);
}

/* Adds what processes that are alive have offered, and what is free of it. */
static void
add_nodes(json_t *page, const json_t *nodes)
{
    size_t i;
    json_t *node, *amount;
    const char *resource;
    json_array_foreach ((json_t *)(uintptr_t)nodes, i, node) {
        const char *name = text_of(node, "name"), *state = text_of(node, "state");
        if (!state || strcmp(state, "alive") != 0)
            continue;
        add_gauge(page, "exogym_cluster_node_actors", "actors on the node",
                  (const char *[]){"node", name, NULL, NULL},
                  json_number_value(json_object_get(node, "actors")));
        json_object_foreach (json_object_get(node, "total"), resource, amount)
            add_gauge(page, "exogym_cluster_node_resource", "what the node has; memory in bytes",
                      (const char *[]){"node", name, "resource", resource},
                      json_number_value(amount));
        json_object_foreach (json_object_get(node, "free"), resource, amount)
            add_gauge(page, "exogym_cluster_node_resource_free", "what of it no actor holds",
                      (const char *[]){"node", name, "resource", resource},
                      json_number_value(amount));
    }
}

/* Adds what each process holds of the head, or of another process. */
static void
add_peers(json_t *page, const json_t *peers)
{
    size_t i;
    json_t *peer, *held;
    const char *what;
    char text[NUMBER];
    json_array_foreach ((json_t *)(uintptr_t)peers, i, peer)
        json_object_foreach (peer, what, held) {
            if (!json_is_integer(held))
                continue;
            exo_text labels = {.most = MAX_LABELS};
            add_label(&labels, "peer", text_of(peer, "name"));
            add_label(&labels, "id", text_of(peer, "id"));
            add_label(&labels, "of", text_of(peer, "by"));
            add_label(&labels, "what", what);
            add_sample(page, "exogym_cluster_held", "gauge",
                       "what a process holds of the head, or of the process `of`", &labels,
                       number((double)json_integer_value(held), text));
        }
}

static void
add_device_memory(json_t *page, const json_t *rows)
{
    size_t i;
    json_t *row;
    char gpu[NUMBER];
    json_array_foreach ((json_t *)(uintptr_t)rows, i, row) {
        const json_t *number_of = json_object_get(row, "gpu");
        if (!json_object_get(row, "bytes"))
            continue;
        snprintf(gpu, sizeof gpu, "%lld", (long long)json_integer_value(number_of));
        add_gauge(page, "exogym_cluster_device_memory_bytes",
                  "arrays that a process has on its GPU for others",
                  (const char *[]){"node", text_of(row, "node"), "gpu",
                                   json_is_string(number_of) ? json_string_value(number_of) : gpu},
                  json_number_value(json_object_get(row, "bytes")));
    }
}

/* Adds the jobs that run. The head has one job of a name. */
static void
add_jobs(json_t *page, const json_t *jobs)
{
    size_t i;
    json_t *job;
    json_array_foreach ((json_t *)(uintptr_t)jobs, i, job) {
        const char *name = text_of(job, "name"), *state = text_of(job, "state");
        if (!name || !state || strcmp(state, "running") != 0)
            continue;
        add_gauge(page, "exogym_cluster_job_start_time_seconds", "when the job began, since 1970",
                  (const char *[]){"job", name, NULL, NULL},
                  json_number_value(json_object_get(job, "began")));
        if (json_object_get(job, "report"))
            exo_prometheus_add_report(page, "job", name, state, json_object_get(job, "report"));
    }
}

void
exo_prometheus_add_cluster(json_t *page, const json_t *listing)
{
    add_gauge(page, "exogym_cluster_info", "1, with the cluster and the version of its head",
              (const char *[]){"cluster", text_of(listing, "cluster"), "version",
                               text_of(listing, "version")},
              1);
    add_states(page, "exogym_cluster_nodes", "processes of the cluster",
               json_object_get(listing, "nodes"), (const char *[4]){"alive", "lost", "left"});
    add_states(page, "exogym_cluster_actors", "actors of the cluster",
               json_object_get(listing, "actors"),
               (const char *[4]){"alive", "restarting", "dead"});
    add_states(page, "exogym_cluster_jobs", "jobs of the cluster", json_object_get(listing, "jobs"),
               (const char *[4]){"running", "done"});
    add_nodes(page, json_object_get(listing, "nodes"));
    add_device_memory(page, json_object_get(listing, "device_memory"));
    add_peers(page, json_object_get(listing, "peers"));
    add_jobs(page, json_object_get(listing, "jobs"));
}

/* --- The page --------------------------------------------------------------------------------- */

static void
put_family(exo_text *out, const char *name, const json_t *family)
{
    const char *kind = text_of(family, "kind"), *labels;
    json_t *sample;
    exo_text_add(out, "# HELP %s ", name);
    add_escaped(out, text_of(family, "help"), false);
    exo_text_add(out, "\n# TYPE %s %s\n", name, kind);
    json_object_foreach (json_object_get(family, "samples"), labels, sample) {
        const char *value = json_string_value(sample);
        if (strcmp(kind, "histogram") == 0)
            exo_text_add(out, "%s", value);
        else if (*labels)
            exo_text_add(out, "%s{%s} %s\n", name, labels, value);
        else
            exo_text_add(out, "%s %s\n", name, value);
    }
}

exo_status
exo_prometheus_print(FILE *out, json_t *page, exo_err *err)
{
    const char *name;
    json_t *family;
    exo_text text = {0};
    json_object_foreach (page, name, family)
        put_family(&text, name, family);
    exo_status st = !page || text.failed ? exo_fail(err, EXO_NOMEM, "no memory for the page")
                    : text.data && fputs(text.data, out) == EOF
                        ? exo_fail(err, EXO_IO, "the page cannot be written")
                        : EXO_OK;
    exo_free(text.data);
    json_decref(page);
    return st;
}
