/* Reports of a running job or graph: see run_report.h. No state of its own. */
#include "programs/run_report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"
#include "programs/meter_rows.h"
#include "programs/meter_table.h"
#include "programs/show.h"
#include "programs/text.h"
#include "report/json_text.h"
#include "report/meter_json.h"
#include "report/traffic_json.h"

#define EVERY        EXO_SECOND
#define HEAD_TIMEOUT (100 * EXO_MS)
#define HEAD_QUIET   (5 * EXO_SECOND) /* pause after a report that did not reach the head */
#define FILE_STYLE   (JSON_INDENT(2) | JSON_REAL_PRECISION(15))
#define HEAD_STYLE   (JSON_COMPACT | JSON_REAL_PRECISION(15))

enum {
    HEAD_TAKES = 64 << 10,
    LARGEST = 64 << 20
};

/* --- Making a report -------------------------------------------------------------------------- */

const char *
exo_run_state_text(exo_run_state state)
{
    static const char *const texts[] = {"running", "finished", "until", "stopped", "failed"};
    return texts[state];
}

json_t *
exo_run_report_new(double time_s, bool virtual_clock)
{
    return json_pack("{s:s, s:f, s:s, s:[], s:{}}", "state", exo_run_state_text(EXO_RUN_RUNNING),
                     "time_s", time_s, "clock", virtual_clock ? "virtual" : "real", "edges",
                     "meters");
}

json_t *
exo_run_traffic_json(const char *edge, const exo_traffic *t)
{
    json_t *row = json_pack("{s:s}", "edge", edge);
    json_object_update_new(row, exo_traffic_json(t, EXO_TRAFFIC_SECONDS));
    return row;
}

void
exo_run_report_add_edge(json_t *report, const char *edge, const exo_traffic *traffic)
{
    json_array_append_new(json_object_get(report, "edges"), exo_run_traffic_json(edge, traffic));
}

static void
add_edge(void *context, const char *name, const exo_traffic *sum)
{
    exo_run_report_add_edge(context, name, sum);
}

void
exo_run_report_add_ledger(json_t *report, const exo_ledger *ledger)
{
    exo_ledger_each(ledger, add_edge, report);
}

void
exo_run_report_add_meters(json_t *report, const exo_meters *tree)
{
    json_object_set_new(report, "meters", exo_meters_json(tree));
}

void
exo_run_report_add_wait(json_t *report, const char *actor, const char *kind, const char *edge,
                        double waited_s, const char *what, const char *on)
{
    json_t *waits = json_object_get(report, "waits");
    if (!waits && json_object_set_new(report, "waits", waits = json_array()) != 0)
        return;
    json_array_append_new(waits, json_pack("{s:s, s:s, s:s, s:f, s:s}", "actor", actor, "kind",
                                           kind, "edge", edge, "waited_s", waited_s, what, on));
}

/* --- Publishing a report ---------------------------------------------------------------------- */

/* Writes progress.json. The rename is atomic, so a reader sees one whole report. It is not synced
 * to the disk: after a crash of the host the file may be empty. */
static void
write_file(const char *folder, const json_t *report)
{
    char *path = exo_text_make(NULL, "%s/progress.json", folder),
         *temporary = exo_text_make(NULL, "%s/.progress.json.part", folder);
    int fd = -1;
    if (path && temporary) {
        exo_dir_unlink(temporary); /* left by a run that was killed */
        fd = exo_dir_open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
    }
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !file)
        close(fd);
    bool written = file && json_dumpf(report, file, FILE_STYLE) == 0 && fputc('\n', file) != EOF;
    if (file && fclose(file) == 0 && written)
        written = exo_dir_rename(temporary, path, 0) == 0;
    else
        written = false;
    if (file && !written)
        exo_dir_unlink(temporary);
    exo_free(path);
    exo_free(temporary);
}

/* Copies the meters. If several actors of one name share a meter, only the first one keeps unit and
 * help. */
static json_t *
without_repeated_texts(const json_t *meters)
{
    json_t *all = json_object(), *seen = json_object(), *meter;
    const char *path;
    json_object_foreach ((json_t *)(uintptr_t)meters, path, meter) {
        char name[EXO_METER_PATH];
        exo_meter_shared_path(path, name);
        json_t *less = json_object_get(seen, name) ? json_copy(meter) : json_incref(meter);
        if (less != meter) {
            json_object_del(less, "unit");
            json_object_del(less, "help");
        }
        json_object_set_new(all, path, less);
        json_object_set_new(seen, name, json_true());
    }
    json_decref(seen);
    return all;
}

/* The report as text, shortened if it is larger than the head accepts. The caller releases it. */
static char *
text_for_head(const json_t *report)
{
    char *text = exo_json_dump(report, HEAD_STYLE);
    json_t *copy =
        text && strlen(text) > HEAD_TAKES ? json_copy((json_t *)(uintptr_t)report) : NULL;
    for (int i = 0; copy && text && strlen(text) > HEAD_TAKES && i < 3; i++) {
        if (i == 0)
            json_object_set_new(copy, "meters",
                                without_repeated_texts(json_object_get(report, "meters")));
        else
            json_object_set_new(copy, i == 1 ? "meters" : "edges",
                                i == 1 ? json_object() : json_array());
        if (i > 0)
            json_object_set_new(copy, "shortened", json_true());
        exo_free(text);
        text = exo_json_dump(copy, HEAD_STYLE);
    }
    json_decref(copy);
    return text;
}

static void
tell_head(exo_run_report *r)
{
    exo_time now = exo_now(exo_clock_real());
    char *text = r->cluster && now >= r->quiet ? text_for_head(r->latest) : NULL;
    if (text && exo_cluster_report(r->cluster, text, now + HEAD_TIMEOUT, NULL) != EXO_OK)
        r->quiet = now + HEAD_QUIET; /* the run must not block on each report */
    exo_free(text);
}

bool
exo_run_report_is_due(const exo_run_report *r)
{
    return r->said == 0 || exo_now(exo_clock_real()) - r->said >= EVERY;
}

void
exo_run_report_keep(exo_run_report *r, json_t *report)
{
    if (!report)
        return;
    json_decref(r->latest);
    r->latest = report;
    r->unsaid = true;
}

void
exo_run_report_say(exo_run_report *r, json_t *report)
{
    exo_run_report_keep(r, report);
    if (!r->latest)
        return;
    if (r->folder)
        write_file(r->folder, r->latest);
    tell_head(r);
    r->said = exo_now(exo_clock_real());
    r->unsaid = false;
}

void
exo_run_report_end(exo_run_report *r, exo_run_state state, const char *reason)
{
    if (!r->latest)
        r->latest = exo_run_report_new(0, false); /* the run ended before its first report */
    json_object_set_new(r->latest, "state", json_string(exo_run_state_text(state)));
    if (reason)
        json_object_set_new(r->latest, "error", exo_lossy_json(reason));
    exo_run_report_say(r, json_incref(r->latest));
}

void
exo_run_report_close(exo_run_report *r)
{
    if (r->unsaid && r->folder)
        write_file(r->folder, r->latest);
    json_decref(r->latest);
    *r = (exo_run_report){0};
}

/* --- Printing a report ------------------------------------------------------------------------ */

/* Escapes untrusted text. The caller frees it; NULL: no memory. */
static char *
harmless(const char *text)
{
    exo_text copy = {0};
    exo_text_add_bytes(&copy, "", 0);
    exo_printable_add(&copy, text ? text : "", text ? strlen(text) : 0, EXO_SHOWN_LINE);
    return copy.data;
}

static void
print_edges(FILE *out, const json_t *edges)
{
    exo_ledger ledger = {0};
    size_t i, size = 0;
    json_t *e;
    char *text = NULL;
    json_array_foreach (edges, i, e) {
        const exo_traffic t = exo_traffic_of_json(e, EXO_TRAFFIC_SECONDS);
        char *name = harmless(json_string_value(json_object_get(e, "edge")));
        exo_ledger_add(&ledger, name ? name : "?", "", "", &t, NULL);
        exo_free(name);
    }
    FILE *table = open_memstream(&text, &size);
    if (table)
        exo_ledger_print(table, &ledger);
    if (table && fclose(table) == 0)
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            fprintf(out, "  %.*s\n", (int)strcspn(line, "\n"), line);
    (free)(text); /* open_memstream allocates with malloc */
    exo_ledger_release(&ledger);
}

/* Prints "  sink_0 has waited 7.2 s to receive on 'source>sink:numbers', for what is on home_0 ->
 * dc (20 Mbit/s)". */
static void
print_waits(FILE *out, const json_t *waits)
{
    size_t i;
    json_t *w;
    char figure[EXO_FIGURE];
    json_array_foreach (waits, i, w) {
        const char *kind = json_string_value(json_object_get(w, "kind"));
        const char *link = json_string_value(json_object_get(w, "link"));
        char *actor = harmless(json_string_value(json_object_get(w, "actor")));
        char *edge = harmless(json_string_value(json_object_get(w, "edge")));
        char *on = harmless(link ? link : json_string_value(json_object_get(w, "for")));
        bool sends = kind && strcmp(kind, "send") == 0,
             receives = kind && strcmp(kind, "receive") == 0;
        fprintf(out, "  %s has waited %s %s '%s'", actor ? actor : "?",
                exo_text_seconds(json_number_value(json_object_get(w, "waited_s")), figure),
                sends      ? "to send on"
                : receives ? "to receive on"
                           : "in",
                edge ? edge : "?");
        if (on && *on)
            fprintf(out, link ? ", for what is on %s" : ", for %s", on);
        fputc('\n', out);
        exo_free(actor);
        exo_free(edge);
        exo_free(on);
    }
}

void
exo_run_report_print(FILE *out, const char *title, const json_t *report)
{
    const json_t *time = json_object_get(report, "time_s"),
                 *steps = json_object_get(report, "max_steps");
    const char *clock = json_string_value(json_object_get(report, "clock"));
    char figure[EXO_FIGURE], *plain = harmless(title);
    fprintf(out, "%s\n", plain ? plain : "?");
    exo_free(plain);
    if (json_is_number(time))
        fprintf(out, "  time %s%s\n", exo_text_seconds(json_number_value(time), figure),
                clock && strcmp(clock, "virtual") == 0 ? " of the virtual clock" : "");
    if (json_is_integer(steps))
        fprintf(out, "  until step %" JSON_INTEGER_FORMAT "\n", json_integer_value(steps));
    exo_meter_table_print(out, json_object_get(report, "meters"));
    print_edges(out, json_object_get(report, "edges"));
    print_waits(out, json_object_get(report, "waits"));
}

/* --- Reading reports of this host ------------------------------------------------------------- */

/* Does a run hold one of the folder's locks? */
static bool
is_running(const char *folder)
{
    static const char *const names[] = {".lock", ".graph.lock"}; /* of a training job, of a graph */
    bool running = false;
    for (size_t i = 0; i < 2; i++) {
        char *path = exo_text_make(NULL, "%s/%s", folder, names[i]);
        int lock = path ? exo_dir_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0) : -1;
        running =
            running || (lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK);
        if (lock >= 0)
            close(lock);
        exo_free(path);
    }
    return running;
}

/* Adds the run in the folder to the list. Returns NOT_FOUND if the folder has no report. */
static exo_status
read_one(const char *folder, json_t *runs, exo_err *err)
{
    char *path = exo_text_make(err, "%s/progress.json", folder), *text = NULL;
    size_t size = 0;
    if (path && access(path, F_OK) != 0) {
        exo_free(path);
        return EXO_NOT_FOUND;
    }
    /* check the lock before the file is read: a run that ends in between has already written its
     * last report */
    bool running = is_running(folder);
    exo_status st = path ? exo_file_read(path, LARGEST, &text, &size, err) : EXO_NOMEM;
    json_t *report = st == EXO_OK ? json_loadb(text, size, 0, NULL) : NULL;
    if (st == EXO_OK && !json_is_object(report))
        st = exo_fail(err, EXO_FAILED, "%s: it is no report of a run", path);
    const char *state = json_string_value(json_object_get(report, "state"));
    if (running)
        state = "running"; /* the report may be of an earlier run */
    else if (state && strcmp(state, "running") == 0)
        state = "killed"; /* no run holds the lock, and none reported its end */
    if (st == EXO_OK &&
        json_array_append_new(
            runs, json_pack("{s:o, s:b, s:s, s:O}", "folder", exo_lossy_json(folder), "running",
                            (int)running, "state", state ? state : "ended", "report", report)) != 0)
        st = exo_fail(err, EXO_NOMEM, "no memory for JSON");
    json_decref(report);
    exo_free(text);
    exo_free(path);
    return st;
}

static int
is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

exo_status
exo_run_report_read(const char *folder, json_t **out, exo_err *err)
{
    struct dirent **entries = NULL;
    json_t *runs = json_array();
    *out = NULL;
    exo_status st = runs ? read_one(folder, runs, err) : exo_fail(err, EXO_NOMEM, "out of memory");
    int count = st == EXO_NOT_FOUND ? scandir(folder, &entries, is_visible, alphasort) : 0;
    if (count > 0)
        st = EXO_OK;
    for (int i = 0; i < count; i++) {
        char *path = st == EXO_OK ? exo_text_make(err, "%s/%s", folder, entries[i]->d_name) : NULL;
        if (st == EXO_OK) {
            exo_status one = path ? read_one(path, runs, err) : EXO_NOMEM;
            st = one == EXO_NOT_FOUND ? st : one;
        }
        exo_free(path);
        (free)(entries[i]); /* scandir allocates with malloc */
    }
    (free)(entries);
    if (st == EXO_OK && json_array_size(runs) == 0)
        st = EXO_NOT_FOUND;
    if (st == EXO_NOT_FOUND)
        exo_fail(err, st, "%s: no run has said how it goes in this folder", folder);
    if (st == EXO_OK)
        *out = json_incref(runs);
    json_decref(runs);
    return st;
}
