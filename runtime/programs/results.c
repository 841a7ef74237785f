/* Results to and from JSON, and tables from their files: see results.h. No state. Read next:
 * results_table.c. */
#include "programs/results.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"
#include "programs/changes.h"
#include "programs/network_table.h"
#include "programs/show.h"
#include "report/json_text.h"
#include "report/ledger.h"
#include "report/meter_json.h"
#include "report/traffic_json.h"

/* 15 digits print a setting such as 3e-4 as 0.0003, and are more than the precision of losses. */
#define JSON_STYLE (JSON_INDENT(2) | JSON_REAL_PRECISION(15))
#define CONFIG     "@"

enum {
    LARGEST = 64 << 20 /* the largest file that is read, in bytes */
};

/* folder/label/file. The caller frees it. NULL: no memory. */
static char *
path_of(const exo_job *job, const exo_job_run *run, const char *file)
{
    return exo_text_make(NULL, "%s/%s/%s", job->folder, run->label, file);
}

/* JSON has no NaN: it becomes null. */
static json_t *
number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* A run's result. Its "config" is CONFIG, a placeholder that dump replaces with the run's
 * config.json. */
static json_t *
result_json(const exo_job_run *run, const exo_fit_result *r)
{
    json_t *all = json_pack(
        "{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:s, s:s}", "label", run->label,
        "strategy", run->strategy, "steps", (json_int_t)r->steps, "local_loss",
        number(r->local_loss), "global_loss", number(r->global_loss), "local_accuracy",
        number(r->local_accuracy), "global_accuracy", number(r->global_accuracy),
        "bytes_sent_per_node", (json_int_t)r->bytes_sent, "seconds", number(r->seconds),
        "train_seconds", number(r->train_seconds), "samples_per_second",
        number(r->samples_per_second), "sha256", r->sha256, "config", CONFIG);
    if (all) {
        json_object_set_new(all, "seed", json_integer((json_int_t)run->seed));
        json_object_set_new(all, "clock", json_string(r->is_virtual ? "virtual" : "real"));
        json_object_set_new(all, "wall_seconds", number(r->wall_seconds));
        if (isfinite(r->goodput))
            json_object_set_new(all, "goodput", json_real(r->goodput));
        json_object_set_new(
            all, "traffic",
            exo_traffic_json(&r->traffic, EXO_TRAFFIC_CALLS)); /* sum over all nodes */
    }
    return all;
}

/* Adds lines of text. All lines but the first get the indentation of the last line of `out`. */
static void
add_indented(exo_text *out, const char *text)
{
    size_t line = out->length, depth = 0;
    while (line > 0 && out->data[line - 1] != '\n')
        line--;
    while (out->data[line + depth] == ' ')
        depth++;
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        exo_text_add_bytes(out, text, (size_t)(end - text) + 1);
        exo_text_add(out, "%*s", (int)depth, "");
    }
    exo_text_add(out, "%s", text);
}

/* Writes JSON as text, with a newline at the end. Each placeholder is replaced with the
 * configuration of the next one of `runs`, as text: jansson's numbers would lose digits. The caller
 * frees the text, also after an error. */
static exo_status
dump(const json_t *json, const exo_job_run *runs, exo_text *out, exo_err *err)
{
    static const char mark[] = "\"config\": \"" CONFIG "\"";
    char *text = exo_json_dump(json, JSON_STYLE);
    const char *at = text;
    bool failed = !text;
    for (const char *next; !failed && (next = strstr(at, mark)); at = next + sizeof mark - 1) {
        exo_text_add_bytes(out, at, (size_t)(next - at));
        exo_text_add(out, "\"config\": ");
        failed = out->failed;
        if (!failed)
            add_indented(out, runs++->config_json);
    }
    if (!failed)
        exo_text_add(out, "%s\n", at);
    exo_free(text);
    return failed || out->failed ? exo_fail(err, EXO_NOMEM, "out of memory") : EXO_OK;
}

exo_status
exo_result_write(const exo_job *job, const exo_job_run *run, const exo_fit_result *result,
                 const exo_meters *meters, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_text text = {0};
    char *path = exo_text_make(err, "%s/%s/result.json", job->folder, run->label),
         *folder = exo_text_make(NULL, "%s/%s", job->folder, run->label);
    json_t *json = result_json(run, result), *changes = folder ? exo_changes_of(folder) : NULL;
    if (changes && json)
        json_object_set(json, "changes", changes);
    if (json)
        json_object_set_new(json, "meters", exo_meters_json(meters));
    json_decref(changes);
    exo_free(folder);
    st = path ? dump(json, run, &text, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_file_write_atomic(path, text.data, text.length, err);
    json_decref(json);
    exo_free(text.data);
    exo_free(path);
    return st;
}

/* Reads a JSON file. *out is NULL if the file does not exist or is not valid JSON. */
static exo_status
read_json(const char *path, json_t **out, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    *out = NULL;
    exo_status st = exo_file_read(path, LARGEST, &text, &size, err);
    if (st == EXO_OK)
        *out = json_loadb(text, size, 0, NULL);
    exo_free(text);
    return st == EXO_NOT_FOUND ? EXO_OK : st;
}

static double
get_number(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static uint64_t
get_count(const json_t *json, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(json, key));
    return value > 0 ? (uint64_t)value : 0;
}

static exo_time
nanoseconds(const json_t *object, const char *key)
{
    return (exo_time)(json_number_value(json_object_get(object, key)) * 1e9);
}

void
exo_result_from(const json_t *json, exo_fit_result *result)
{
    *result = (exo_fit_result){
        .steps = get_count(json, "steps"),
        .local_loss = get_number(json, "local_loss"),
        .global_loss = get_number(json, "global_loss"),
        .local_accuracy = get_number(json, "local_accuracy"),
        .global_accuracy = get_number(json, "global_accuracy"),
        .bytes_sent = get_count(json, "bytes_sent_per_node"),
        .seconds = get_number(json, "seconds"),
        .train_seconds = get_number(json, "train_seconds"),
        .samples_per_second = get_number(json, "samples_per_second"),
    };
    const char *clock = json_string_value(json_object_get(json, "clock"));
    result->is_virtual = clock && strcmp(clock, "virtual") == 0;
    result->wall_seconds = get_number(json, "wall_seconds");
    result->goodput = get_number(json, "goodput");
    result->traffic = exo_traffic_of_json(json_object_get(json, "traffic"), EXO_TRAFFIC_CALLS);
    const char *sha256 = json_string_value(json_object_get(json, "sha256"));
    snprintf(result->sha256, sizeof result->sha256, "%s", sha256 ? sha256 : "");
}

/* --- Tables ----------------------------------------------------------------------------------- */

void
exo_results_print_ledger(FILE *out, const exo_job *job, const exo_fit_result *results)
{
    exo_ledger ledger = {0};
    bool failed = false;
    for (size_t i = 0; i < job->num_runs; i++) {
        char edge[160];
        const exo_graph_spec *graph = job->runs[i].graph;
        snprintf(edge, sizeof edge, "%s: %s", job->runs[i].label,
                 graph->num_edges ? graph->edges[0].carries : "?");
        failed =
            exo_ledger_add(&ledger, edge, "nodes", "all", &results[i].traffic, NULL) != EXO_OK ||
            failed;
    }
    if (!failed)
        exo_ledger_print(out, &ledger);
    exo_ledger_release(&ledger);
}

void
exo_results_print_network(FILE *out, const exo_job *job, size_t index)
{
    json_t *json = NULL;
    char *path = path_of(job, &job->runs[index], "network.json");
    if (path)
        read_json(path, &json, NULL);
    const json_t *hosts = json_object_get(json, "hosts");
    size_t count = json_array_size(hosts);
    exo_network_row *rows = exo_calloc(count + 1, sizeof *rows);
    for (size_t i = 0; rows && i < count; i++) {
        const json_t *host = json_array_get(hosts, i);
        rows[i] = (exo_network_row){.host = json_string_value(json_object_get(host, "host")),
                                    .actor = json_string_value(json_object_get(host, "actor")),
                                    .compute = nanoseconds(host, "compute_s"),
                                    .send_blocked = nanoseconds(host, "send_blocked_s"),
                                    .recv_blocked = nanoseconds(host, "recv_blocked_s"),
                                    .up_bytes = get_count(host, "up_bytes"),
                                    .down_bytes = get_count(host, "down_bytes")};
        if (!rows[i].host || !rows[i].actor)
            count = 0;
    }
    if (rows && count > 0) {
        fprintf(out, "\n%s\n", job->runs[index].label);
        exo_network_print(out, rows, count, nanoseconds(json, "time_s"),
                          job->runs[index].graph->emulated);
    }
    exo_free(rows);
    exo_free(path);
    json_decref(json);
}

/* The meters of a finished run from its result.json; JSON null if it has none. */
static json_t *
meters_of(const exo_job *job, const exo_job_run *run)
{
    json_t *json = NULL;
    char *path = path_of(job, run, "result.json");
    if (path)
        read_json(path, &json, NULL);
    json_t *meters = json_incref(json_object_get(json, "meters"));
    json_decref(json);
    exo_free(path);
    return meters ? meters : json_null();
}

/* --- The job's result as JSON ----------------------------------------------------------------- */

static json_t *
job_json(const exo_job *job, const exo_fit_result *results, const char *picture)
{
    json_t *runs = json_array(); /* in the job's order, which dump relies on */
    for (size_t i = 0; i < job->num_runs; i++) {
        json_t *run = result_json(&job->runs[i], &results[i]), *network = NULL;
        char *path = path_of(job, &job->runs[i], "network.json");
        bool emulated = job->runs[i].graph->emulated || job->runs[i].graph->virtual_clock;
        if (path && emulated && read_json(path, &network, NULL) == EXO_OK && network)
            json_object_set_new(run, "network", network);
        json_object_set_new(run, "meters", meters_of(job, &job->runs[i]));
        json_array_append_new(runs, run);
        exo_free(path);
    }
    json_t *all =
        json_pack("{s:s, s:o, s:o, s:o}", "name", job->name, "folder", exo_lossy_json(job->folder),
                  "picture", picture ? exo_lossy_json(picture) : json_null(), "runs", runs);
    if (all && job->has_seeds)
        json_object_set_new(all, "seeds", exo_results_seeds_json(job, results));
    return all;
}

exo_status
exo_results_print_json(FILE *out, const exo_job *job, const exo_fit_result *results,
                       const char *picture, exo_err *err)
{
    exo_text text = {0};
    json_t *all = job_json(job, results, picture);
    exo_status st = dump(all, job->runs, &text, err);
    if (st == EXO_OK)
        fwrite(text.data, 1, text.length, out);
    json_decref(all);
    exo_free(text.data);
    return st;
}

exo_status
exo_results_write_seeds(const exo_job *job, const exo_fit_result *results, const char *picture,
                        exo_err *err)
{
    exo_text text = {0};
    if (!job->has_seeds)
        return EXO_OK;
    char *path = exo_text_make(err, "%s/result.json", job->folder);
    json_t *all = job_json(job, results, picture);
    exo_status st = path ? dump(all, job->runs, &text, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_file_write_atomic(path, text.data, text.length, err);
    json_decref(all);
    exo_free(text.data);
    exo_free(path);
    return st;
}

exo_status
exo_results_forget_seeds(const exo_job *job, exo_err *err)
{
    if (!job->has_seeds)
        return EXO_OK;
    char *path = exo_text_make(err, "%s/result.json", job->folder);
    if (!path)
        return EXO_NOMEM;
    exo_status st = EXO_OK;
    if (exo_dir_unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR)
        st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
    exo_free(path);
    return st;
}
