/* Runs a graph for `exogym run`: see run_graph.h. The run's folder gets progress.json
 * (run_report.h), result.json, ledger.csv, meters.csv and a TensorBoard file (report/metrics.h),
 * timeline.json, and files of the actors. Read next: graph_line.c, graph_folder.c. */
#include "programs/run_graph.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/printable.h"
#include "graph/run.h"
#include "programs/apply.h"
#include "programs/graph_folder.h"
#include "programs/graph_line.h"
#include "programs/meter_table.h"
#include "programs/network_table.h"
#include "programs/program.h"
#include "programs/progress.h"
#include "programs/run_report.h"
#include "programs/show.h"
#include "programs/text.h"
#include "report/json_text.h"
#include "report/meter_json.h"
#include "report/metrics.h"

#define SLOW       (5 * EXO_SECOND) /* the shortest wait for a link that is printed as a note */
#define JSON_STYLE (JSON_INDENT(2) | JSON_REAL_PRECISION(15))

enum {
    /* at least 1/ROWS_EACH of the run's time so far passes between two rows of a meter */
    ROWS_EACH = 500
};

/* One run in its folder. */
struct show {
    const exo_run_graph_opts *opts;
    char *folder, *timeline, *space;
    char *text; /* the graph's text, for workers; NULL: the actors are in this process */
    exo_display display;
    exo_apply_box box;
    exo_run_report report;
    exo_metrics *metrics;
    /* on the real clock: begin of the run, and time of the latest rows of meters */
    exo_time began, written;
    exo_err lost; /* why no more rows are written; code OK: they are */
    exo_graph_result result;
    uint64_t number; /* exo_graph_run_number */
    bool told_of_link;
};

static bool
is_here(const struct show *show)
{
    return !show->opts->cluster || !show->opts->cluster->runtime;
}

/* --- Progress --------------------------------------------------------------------------------- */

/* Reports the run's progress: to progress.json and to the head. */
static void
say(struct show *show, const exo_graph_progress *p)
{
    static const char *const kinds[] = {"none", "send", "receive", "collective", "finish"};
    json_t *report = exo_run_report_new((double)p->time * 1e-9, show->opts->spec->virtual_clock);
    exo_run_report_add_meters(report, p->meters);
    if (p->ledger)
        exo_run_report_add_ledger(report, p->ledger);
    for (size_t i = 0; i < p->num_waits; i++)
        exo_run_report_add_wait(report, p->waits[i].actor, kinds[p->waits[i].kind],
                                p->waits[i].edge, (double)p->waits[i].waited * 1e-9,
                                p->waits[i].link ? "link" : "for", p->waits[i].on);
    exo_run_report_say(&show->report, report);
}

/* Writes rows of the meters. In a long run the rows become rarer, so that each meter has at most a
 * few thousand. */
static void
write_meters(struct show *show, exo_time at, const exo_meters *meters, bool last)
{
    exo_time now = exo_now(exo_clock_real());
    if (show->lost.code != EXO_OK ||
        (!last && now - show->written < (now - show->began) / ROWS_EACH))
        return;
    show->written = now;
    if (exo_metrics_meters_at(show->metrics, at, meters, &show->lost) != EXO_OK)
        exo_display_note(&show->display, "no more rows of meters are written: %s", show->lost.text);
}

/* Prints a note about the first long wait for a link, once in a run. */
static void
tell_slow_link(struct show *show, const exo_graph_progress *p)
{
    for (size_t i = 0; i < p->num_waits && !show->told_of_link; i++) {
        const exo_slow_wait *w = &p->waits[i];
        if (!w->link || w->waited < SLOW)
            continue;
        exo_display_note(&show->display, "%s has waited %.1f s on '%s', for what is on %s",
                         w->actor, (double)w->waited * 1e-9, w->edge, w->on);
        show->told_of_link = true;
    }
}

static void
on_stall(void *context, const exo_stall *stall, exo_time at)
{
    struct show *show = context;
    char wait[512];
    exo_display_note(&show->display,
                     "the graph stalls: %zu actor%s wait%s for each other, and %zu for them",
                     stall->length, stall->length == 1 ? "" : "s", stall->length == 1 ? "s" : "",
                     stall->num_stuck - stall->length);
    for (size_t i = 0; i < stall->length; i++) {
        exo_stall_wait_text(show->opts->spec, &stall->cycle[i], at, wait, sizeof wait);
        exo_display_note(&show->display, "  %s", wait);
    }
}

static void
on_progress(void *context, const exo_graph_progress *p)
{
    struct show *show = context;
    exo_text line = {0};
    exo_graph_line(&line, p, exo_display_width(&show->display));
    if (line.data)
        exo_display_line(&show->display, line.data);
    exo_free(line.data);
    tell_slow_link(show, p);
    say(show, p);
    write_meters(show, p->time, p->meters, false);
}

static void
actor_failed(void *context, const char *why, uint32_t life)
{
    struct show *show = context;
    exo_display_note(&show->display, "%s; it begins life %u", why, life + 1);
}

static bool
next_graph(void *context, const exo_graph_spec *now, const exo_graph_spec **graph,
           const char **text)
{
    struct show *show = context;
    return exo_apply_next(&show->box, 0, now, graph, text);
}

static void
graph_changed(void *context, exo_time at, exo_status status, const char *reason)
{
    struct show *show = context;
    exo_apply_answer(&show->box, &(exo_change_time){.time = at, .step = -1}, status, reason);
    exo_display_note(&show->display,
                     status == EXO_OK ? "the graph was changed%s" : "the graph was not changed: %s",
                     status == EXO_OK ? "" : reason);
}

static void
print_banner(struct show *show)
{
    const exo_graph_spec *spec = show->opts->spec;
    exo_text line = {0};
    exo_text_add(&line, "%s: ", spec->name);
    for (size_t i = 0; i < spec->num_actors; i++)
        exo_text_add(&line, "%s%u %s", i ? ", " : "", spec->actors[i].count, spec->actors[i].name);
    exo_text_add(&line, ", %zu edge%s, %s clock -> %s", spec->num_edges,
                 spec->num_edges == 1 ? "" : "s", spec->virtual_clock ? "virtual" : "real",
                 show->folder);
    if (line.data)
        exo_display_note(&show->display, "%s", line.data);
    exo_free(line.data);
}

/* --- Results ---------------------------------------------------------------------------------- */

static void
add_edge(void *context, const char *name, const exo_traffic *sum)
{
    json_array_append_new(context, exo_run_traffic_json(name, sum));
}

static exo_run_state
state_of(const exo_graph_result *result)
{
    static const exo_run_state states[] = {[EXO_GRAPH_NEVER_BEGAN] = EXO_RUN_FAILED,
                                           [EXO_GRAPH_FINISHED] = EXO_RUN_FINISHED,
                                           [EXO_GRAPH_UNTIL] = EXO_RUN_UNTIL,
                                           [EXO_GRAPH_STOPPED] = EXO_RUN_STOPPED,
                                           [EXO_GRAPH_FAILED] = EXO_RUN_FAILED};
    return states[result->end];
}

/* reason: why the run failed; else NULL. */
static json_t *
result_json(const exo_graph_spec *spec, const char *folder, const exo_graph_result *result,
            const char *reason)
{
    json_t *edges = json_array(), *actors = json_array(), *hosts = json_array();
    exo_ledger_each(&result->ledger, add_edge, edges);
    for (size_t i = 0; i < result->num_parts; i++) {
        const exo_graph_part *p = &result->parts[i];
        double all = (double)result->time;
        json_t *phases = json_array();
        for (size_t k = 0; k < p->num_phases; k++)
            json_array_append_new(phases, json_pack("{s:o, s:s, s:f, s:I}", "name",
                                                    exo_lossy_json(p->phases[k].name), "kind",
                                                    p->phases[k].kind, "time_s",
                                                    (double)p->phases[k].time * 1e-9, "spans",
                                                    (json_int_t)p->phases[k].count));
        json_array_append_new(
            actors,
            json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:o}", "name", p->actor, "host", p->host,
                      "time_s", (double)p->time * 1e-9, "compute_s", (double)p->compute * 1e-9,
                      "send_blocked_s", (double)p->send_blocked * 1e-9, "recv_blocked_s",
                      (double)p->recv_blocked * 1e-9, "utilization",
                      all > 0 ? (double)p->compute / all : 0.0, "phases", phases));
    }
    for (size_t i = 0; i < result->num_hosts; i++) {
        const exo_graph_host *h = &result->hosts[i];
        json_array_append_new(hosts, json_pack("{s:s, s:I, s:I, s:f, s:f}", "name", h->name,
                                               "up_bytes", (json_int_t)h->up_bytes, "down_bytes",
                                               (json_int_t)h->down_bytes, "up_busy_s",
                                               (double)h->up_busy * 1e-9, "down_busy_s",
                                               (double)h->down_busy * 1e-9));
    }
    json_t *changes = exo_changes_of(folder);
    return json_pack(
        "{s:s, s:o, s:s, s:o*, s:o*, s:s, s:I, s:f, s:f, s:o, s:o, s:o, s:o}", "name", spec->name,
        "folder", exo_lossy_json(folder), "state", exo_run_state_text(state_of(result)), "error",
        reason ? exo_lossy_json(reason) : NULL, "changes", changes, "clock",
        spec->virtual_clock ? "virtual" : "real", "seed", (json_int_t)spec->seed, "time_s",
        (double)result->time * 1e-9, "wall_s", result->seconds, "actors", actors, "hosts", hosts,
        "edges", edges, "meters", exo_meters_json(result->meters));
}

static exo_status
write_json(const char *path, const json_t *json, exo_err *err)
{
    char *text = exo_json_dump(json, JSON_STYLE);
    exo_status st = text ? exo_file_write_atomic(path, text, strlen(text), err)
                         : exo_fail(err, EXO_NOMEM, "out of memory");
    exo_free(text);
    return st;
}

static void
print_parts(const exo_graph_result *result)
{
    exo_network_row *rows = exo_calloc(result->num_parts + 1, sizeof *rows);
    for (size_t i = 0; rows && i < result->num_parts; i++) {
        const exo_graph_part *p = &result->parts[i];
        rows[i] = (exo_network_row){.host = p->host,
                                    .actor = p->actor,
                                    .compute = p->compute,
                                    .send_blocked = p->send_blocked,
                                    .recv_blocked = p->recv_blocked};
        for (size_t h = 0; h < result->num_hosts; h++)
            if (strcmp(result->hosts[h].name, p->host) == 0) {
                rows[i].up_bytes = result->hosts[h].up_bytes;
                rows[i].down_bytes = result->hosts[h].down_bytes;
            }
    }
    if (rows)
        exo_network_print(stdout, rows, result->num_parts, result->time, result->num_hosts > 0);
    exo_free(rows);
}

/* Prints the result for people. */
static void
print_result(const struct show *show, const json_t *json)
{
    char figure[EXO_FIGURE];
    const exo_graph_spec *spec = show->opts->spec;
    const exo_graph_result *result = &show->result;
    const json_t *meters = json_object_get(json, "meters");
    printf("\n");
    exo_meter_table_print(stdout, meters);
    if (json_object_size(meters) > 0)
        printf("\n");
    print_parts(result);
    printf("\n");
    exo_ledger_print(stdout, &result->ledger);
    printf("\n%s%s: %s",
           result->end == EXO_GRAPH_STOPPED  ? "stopped, "
           : result->end == EXO_GRAPH_FAILED ? "failed, "
                                             : "",
           spec->virtual_clock ? "predicted" : "time",
           exo_text_seconds((double)result->time * 1e-9, figure));
    if (spec->virtual_clock)
        printf(" (simulated in %s)", exo_text_seconds(result->seconds, figure));
    exo_print_path(stdout, "\nfiles: ", show->folder,
                   is_here(show) ? " (timeline.json opens in https://ui.perfetto.dev)\n" : "\n");
}

/* Writes the files and prints the tables, however the run ended. */
static exo_status
finish(struct show *show, const char *reason, exo_err *err)
{
    const char *folder = show->folder;
    char *ledger = exo_text_make(err, "%s/ledger.csv", folder),
         *path = exo_text_make(err, "%s/result.json", folder);
    json_t *json = result_json(show->opts->spec, folder, &show->result, reason);
    write_meters(show, show->result.time, show->result.meters, true);
    exo_status st =
        ledger && path ? exo_ledger_write(&show->result.ledger, ledger, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = write_json(path, json, err);
    if (st == EXO_OK && show->opts->json) {
        json_dumpf(json, stdout, JSON_STYLE);
        printf("\n");
    } else if (st == EXO_OK) {
        print_result(show, json);
    }
    json_decref(json);
    exo_free(ledger);
    exo_free(path);
    return st == EXO_OK && show->lost.code != EXO_OK
               ? exo_fail(err, show->lost.code, "%s", show->lost.text)
               : st;
}

/* --- The run ---------------------------------------------------------------------------------- */

/* Writes DIR/NAME to *out, which the caller frees. */
static exo_status
folder_of(const char *save_dir, const exo_graph_spec *spec, char **out, exo_err *err)
{
    *out = exo_text_make(err, "%s/%s", save_dir ? save_dir : "runs", spec->name);
    return *out ? exo_dir_guard(*out, err) : EXO_NOMEM;
}

exo_status
exo_run_graph_check(const char *save_dir, const exo_graph_spec *spec, bool overwrite, bool resume,
                    exo_err *err)
{
    char *folder;
    exo_status st = folder_of(save_dir, spec, &folder, err);
    if (st == EXO_OK)
        st = resume ? exo_graph_folder_check_resume(folder, spec, err)
                    : exo_graph_folder_check_free(folder, overwrite, err);
    exo_free(folder);
    return st;
}

/* Makes and locks the folder, removes files of an earlier run, and opens this run's files. */
static exo_status
open_folder(struct show *show, exo_err *err)
{
    const exo_run_graph_opts *opts = show->opts;
    const exo_graph_spec *spec = opts->spec;
    exo_status st = folder_of(opts->save_dir, spec, &show->folder, err);
    const char *folder = show->folder;
    if (st != EXO_OK)
        return st;
    show->timeline = exo_text_make(err, "%s/timeline.json", folder);
    show->space = exo_text_make(err, "%s/%d", spec->name, (int)getpid());
    st = show->timeline && show->space ? exo_folder_make(folder, err) : EXO_NOMEM;
    /* checked once before the lock, whose file would be left in a finished run's folder, and once
     * more under it */
    if (st == EXO_OK)
        st = exo_graph_folder_check_free(folder, opts->overwrite || opts->resume, err);
    if (st == EXO_OK)
        st = exo_apply_open(&show->box, folder, false, spec, err);
    if (st == EXO_OK)
        st = exo_graph_folder_check_free(folder, opts->overwrite || opts->resume, err);
    if (st == EXO_OK && !is_here(show))
        st = exo_graph_expand(spec, &show->text, err);
    if (st == EXO_OK)
        st = exo_graph_folder_start_over(folder, opts->resume, err);
    if (st == EXO_OK)
        st = exo_graph_folder_number(folder, opts->resume, !is_here(show), &show->number, err);
    if (st == EXO_OK)
        st = exo_metrics_open_graph(&show->metrics, folder, err);
    return st == EXO_OK ? exo_changes_begin(folder, spec, err) : st;
}

/* The entry of an array whose key is the text, and whose other key is the other text; NULL: none. */
static const json_t *
entry_with(const json_t *array, const char *key, const char *text, const char *other_key,
           const char *other)
{
    for (size_t i = 0; text && i < json_array_size(array); i++) {
        const json_t *entry = json_array_get(array, i);
        const char *value = json_string_value(json_object_get(entry, key)),
                   *more = other_key ? json_string_value(json_object_get(entry, other_key)) : "";
        if (value && strcmp(value, text) == 0 && (!other_key || (more && strcmp(more, other) == 0)))
            return entry;
    }
    return NULL;
}

static void
find_worker(void *cluster, const char *space, const char *name, char *out, size_t size)
{
    char *text = NULL, shown[128];
    const exo_time patience = exo_deadline(exo_clock_real(), EXO_SECOND);
    if (exo_cluster_list(cluster, patience, &text, NULL) != EXO_OK)
        return;
    json_t *all = json_loads(text, 0, NULL);
    exo_free(text);
    const json_t *actor =
        entry_with(json_object_get(all, "actors"), "name", name, "namespace", space);
    const char *worker = json_string_value(json_object_get(actor, "node"));
    const json_t *node = entry_with(json_object_get(all, "nodes"), "name", worker, NULL, NULL);
    if (node)
        snprintf(out, size, "in %s, process %lld",
                 exo_printable(shown, sizeof shown, worker, EXO_SHOWN_LINE),
                 (long long)json_integer_value(json_object_get(node, "pid")));
    json_decref(all);
}

static exo_status
end_actor(void *cluster, const char *space, const char *name, const char *cause, bool is_lost,
          exo_time deadline, exo_future **out, exo_err *err)
{
    return exo_cluster_end_actor(cluster, space, name, cause, is_lost, deadline, out, err);
}

static exo_status
run_graph(struct show *show, exo_err *err)
{
    const exo_run_graph_opts *opts = show->opts;
    const bool here = is_here(show);
    const exo_graph_run_opts run = {.runtime = here ? NULL : opts->cluster->runtime,
                                    .text = show->text,
                                    .space = show->space,
                                    .folder = show->folder,
                                    .timeline = here ? show->timeline : NULL,
                                    .resume = opts->resume,
                                    .number = show->number,
                                    .progress = on_progress,
                                    .stalled = on_stall,
                                    .next = next_graph,
                                    .changed = graph_changed,
                                    .failed = actor_failed,
                                    .context = show,
                                    .explain = here ? NULL : opts->explain,
                                    .explain_context = here ? NULL : opts->cluster->cluster,
                                    .where = here ? NULL : find_worker,
                                    .end = here ? NULL : end_actor,
                                    .forlorn = here ? NULL : exo_local_cluster_forlorn,
                                    .workers = opts->cluster,
                                    .stop = opts->stop};
    show->began = exo_now(exo_clock_real());
    exo_status st = exo_graph_run(opts->spec, &run, &show->result, err);
    exo_display_clear(&show->display);
    const char *lost = st == EXO_OK ? NULL : exo_local_cluster_lost(opts->cluster);
    if (!lost)
        return st;
    show->result.end =
        show->result.end == EXO_GRAPH_NEVER_BEGAN ? show->result.end : EXO_GRAPH_FAILED;
    /* the loss of the head caused all other errors */
    return exo_fail(err, EXO_PEER_LOST, "%s", lost);
}

/* Runs the graph, with everything that is printed: from the banner to the last tables. */
static exo_status
show_run(struct show *show, exo_err *err)
{
    exo_err unused = {0};
    exo_graph_result *result = &show->result;
    exo_display_init(&show->display, stderr, exo_clock_real(), 1, 0);
    print_banner(show);
    show->report = (exo_run_report){.folder = show->folder,
                                    .cluster = is_here(show) ? NULL : show->opts->cluster->cluster};
    say(show, &(exo_graph_progress){0}); /* replaces the report of an earlier run */
    exo_status st = run_graph(show, err);
    bool began = result->end != EXO_GRAPH_NEVER_BEGAN;
    if (began)
        say(show, &(exo_graph_progress){
                      .time = result->time, .meters = result->meters, .ledger = &result->ledger});
    const char *reason = state_of(result) == EXO_RUN_FAILED ? err->text : NULL;
    exo_run_report_end(&show->report, state_of(result), reason);
    exo_run_report_close(&show->report);
    exo_status left = began ? finish(show, reason, st == EXO_OK ? err : &unused) : EXO_OK;
    return st == EXO_OK ? left : st;
}

int
exo_run_graph(const exo_run_graph_opts *opts)
{
    exo_err err = {0};
    struct show show = {.opts = opts, .box = {.lock = -1}};
    exo_status st = open_folder(&show, &err);
    if (st == EXO_OK)
        st = show_run(&show, &err);
    int status = st == EXO_OK ? EXO_EXIT_OK : 0;
    if (st == EXO_CANCELLED && opts->stop && *opts->stop > 0)
        status = EXO_EXIT_SIGNAL + *opts->stop;
    else if (st != EXO_OK)
        status = exo_report(&err);
    exo_metrics_close(&show.metrics);
    exo_graph_result_release(&show.result);
    exo_apply_release(&show.box);
    exo_free(show.text);
    exo_free(show.folder);
    exo_free(show.timeline);
    exo_free(show.space);
    return status;
}
