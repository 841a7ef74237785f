/* Rows to files: each row is one write(2), so that a killed process loses none. Rows after a
 * checkpoint are dropped by truncating the file, which is atomic. A row that does not fit on the
 * disk is cut off again. Read next: tfevents.c. */
#include "report/metrics.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/grow_text.h"
#include "report/tfevents.h"

enum {
    MAX_ROW = 512,
    MAX_HOST = 64,
};

#define EVENTS_PREFIX "events.out.tfevents."
#define EVENTS_SUFFIX ".exogym"

/* A file that rows are appended to. */
struct output {
    char *path;
    int fd; /* -1: not open */
    off_t size;
    bool has_rows;
    bool damaged;  /* a row was not readable: rows after `last` are lost */
    uint64_t last; /* step of the last row, if has_rows */
};

enum table {
    TRAIN,
    VALIDATION,
    METRICS,
    CORRELATION,
    MEMBERS,
    METERS,
    GRAPH_METERS,
    NUM_TABLES
};

static const struct {
    const char *file, *header;
} tables[NUM_TABLES] = {
    {"train.csv", "step,examples_trained,train_loss,train_perplexity,lr\n"},
    {"validation.csv", "step,local_loss,local_perplexity,global_loss,global_perplexity\n"},
    {"metrics.csv",
     "step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy\n"},
    {"correlation.csv", "step,avg_correlation\n"},
    {"members.csv", "step,seconds,epoch,event,node,present\n"},
    {"meters.csv", "step,meter,value,unit\n"},
    {"meters.csv", "seconds,meter,value,unit\n"},
};

/* Tables as bits. The files of `late` are made when their first row is written. */
static const unsigned of_training = 1U << TRAIN | 1U << VALIDATION | 1U << METRICS |
                                    1U << CORRELATION | 1U << MEMBERS | 1U << METERS,
                      of_graph = 1U << GRAPH_METERS, late = 1U << CORRELATION | 1U << MEMBERS;

struct exo_metrics {
    struct output tables[NUM_TABLES];
    struct output events;
    double opened; /* in seconds since 1970 */
};

static exo_status
fail_io(const struct output *o, const char *what, exo_err *err)
{
    return exo_fail(err, EXO_IO, "cannot %s '%s': %s", what, o->path, exo_dir_reason(errno));
}

static exo_status
make_path(struct output *o, const char *folder, const char *name, exo_err *err)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    o->path = exo_calloc(size, 1);
    if (!o->path)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", name);
    snprintf(o->path, size, "%s/%s", folder, name);
    return EXO_OK;
}

/* Appends all of `bytes` or, after an error, nothing. */
static exo_status
append(struct output *o, const void *bytes, size_t size, exo_err *err)
{
    size_t done = 0;
    while (done < size) {
        ssize_t wrote = write(o->fd, (const char *)bytes + done, size - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0) {
            exo_status st = fail_io(o, "write", err);
            if (ftruncate(o->fd, o->size) != 0)
                return exo_fail_in(err, st, "and cannot take back a part of a row");
            return st;
        }
        done += (size_t)wrote;
    }
    o->size += (off_t)size;
    return EXO_OK;
}

static exo_status
read_all(const struct output *o, char **out, size_t *size, exo_err *err)
{
    struct stat info;
    if (fstat(o->fd, &info) != 0)
        return fail_io(o, "read", err);
    char *text = exo_calloc((size_t)info.st_size + 1, 1);
    if (!text)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", o->path);
    size_t used = 0;
    while (used < (size_t)info.st_size) {
        ssize_t got = pread(o->fd, text + used, (size_t)info.st_size - used, (off_t)used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            exo_free(text);
            return fail_io(o, "read", err);
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    *out = text;
    *size = used;
    return EXO_OK;
}

/* Truncates the table after its last whole row of a step up to `step`. several: a step may have
 * several rows. */
static exo_status
keep_rows(struct output *o, const char *header, bool several, uint64_t step, exo_err *err)
{
    char *text = NULL;
    size_t size = 0, header_size = strlen(header), kept = 0;
    exo_status st = read_all(o, &text, &size, err);
    if (st != EXO_OK)
        return st;
    if (size >= header_size && memcmp(text, header, header_size) == 0) {
        kept = header_size;
    } else if (size >= header_size || memcmp(text, header, size) != 0) {
        st = exo_fail(err, EXO_INVAL,
                      "%s: the first line should be '%.*s'; once the file is removed, the run goes "
                      "on without its rows",
                      o->path, (int)header_size - 1, header);
        goto done;
    }
    while (kept >= header_size && kept < size) {
        const char *row = text + kept, *end = memchr(row, '\n', size - kept);
        char *after = NULL;
        errno = 0;
        uint64_t row_step = isdigit((unsigned char)*row) ? strtoull(row, &after, 10) : 0;
        if (!end) { /* a kill can only cut rows after the checkpoint: earlier ones were flushed */
            o->damaged = after && !errno && *after == ',' && row_step <= step;
            break;
        }
        o->damaged = !after || errno || *after != ',' ||
                     (o->has_rows && (several ? row_step < o->last : row_step <= o->last));
        if (o->damaged || row_step > step)
            break;
        o->has_rows = true;
        o->last = row_step;
        kept = (size_t)(end - text) + 1;
    }
    o->size = (off_t)kept;
    if (kept < size && ftruncate(o->fd, o->size) != 0)
        st = fail_io(o, "write", err);
done:
    exo_free(text);
    return st;
}

/* Logs a warning if rows up to `step` are missing, because the resumed run does not compute them
 * again. train.csv has a row of every step. The steps of the other tables depend on intervals, but
 * each has a header from the start. */
static void
tell_of_lost_rows(const struct output *o, enum table table, uint64_t step)
{
    uint64_t last = o->has_rows ? o->last : 0;
    if (last < step && (o->damaged || o->size == 0 || table == TRAIN))
        EXO_LOG(WARN, TRAIN,
                "path=%s is damaged: rows after step %" PRIu64 ", up to step %" PRIu64 ", are lost",
                o->path, last, step);
}

static exo_status
open_table(exo_metrics *m, enum table table, bool resume, uint64_t step, exo_err *err)
{
    struct output *o = &m->tables[table];
    const char *header = tables[table].header;
    o->fd = exo_dir_open(o->path, O_RDWR | O_CREAT | O_APPEND | (resume ? 0 : O_TRUNC), 0666);
    struct stat info;
    if (o->fd < 0 || fstat(o->fd, &info) != 0)
        return fail_io(o, "open", err);
    if (!S_ISREG(info.st_mode)) /* rows written to a pipe would be lost */
        return exo_fail(
            err, EXO_INVAL,
            "%s: is no plain file; once it is removed, the run goes on without its rows", o->path);
    exo_status st = resume ? keep_rows(o, header, table == METERS, step, err) : EXO_OK;
    if (st == EXO_OK && resume)
        tell_of_lost_rows(o, table, step);
    if (st == EXO_OK && o->size == 0)
        st = append(o, header, strlen(header), err);
    return st;
}

/* Removes the event files of an earlier run: TensorBoard would show them together with this
 * run's. */
static exo_status
remove_events(const char *folder, exo_err *err)
{
    DIR *entries = exo_dir_list(folder);
    if (!entries)
        return exo_fail(err, EXO_IO, "cannot read '%s': %s", folder, exo_dir_reason(errno));
    exo_status st = EXO_OK;
    const struct dirent *entry = NULL;
    while (st == EXO_OK && (entry = readdir(entries))) {
        size_t length = strlen(entry->d_name), suffix = strlen(EVENTS_SUFFIX);
        if (strncmp(entry->d_name, EVENTS_PREFIX, strlen(EVENTS_PREFIX)) == 0 && length > suffix &&
            strcmp(entry->d_name + length - suffix, EVENTS_SUFFIX) == 0 &&
            unlinkat(dirfd(entries), entry->d_name, 0) != 0)
            st = exo_fail(err, EXO_IO, "cannot remove '%s/%s': %s", folder, entry->d_name,
                          exo_dir_reason(errno));
    }
    closedir(entries);
    return st;
}

/* The time of day, for event files only; nothing else depends on it. */
static double
unix_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static exo_status
open_events(exo_metrics *m, const char *folder, bool resume, uint64_t step, exo_err *err)
{
    char host[MAX_HOST] = "", name[MAX_ROW];
    uint8_t record[EXO_TFEVENT_BYTES];
    double now = unix_time();
    struct output *o = &m->events;

    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.')
            *c = '_';
    exo_c_snprintf(name, sizeof name, EVENTS_PREFIX "%010.0f.%s" EVENTS_SUFFIX, floor(now),
                   host[0] ? host : "localhost");

    exo_status st = resume ? EXO_OK : remove_events(folder, err);
    if (st == EXO_OK)
        st = make_path(o, folder, name, err);
    if (st != EXO_OK)
        return st;
    o->fd = exo_dir_open(o->path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (o->fd < 0)
        return fail_io(o, "open", err);
    /* after a resume within a second, the file's name is the same */
    o->size = lseek(o->fd, 0, SEEK_END);
    st = append(o, record, exo_tfevent_version(record, now), err);
    if (st == EXO_OK && resume)
        st = append(o, record, exo_tfevent_start(record, now, step + 1), err);
    return st;
}

/* which: the tables, one bit each. */
static exo_status
open_files(exo_metrics **out, unsigned which, const char *folder, bool resume, uint64_t step,
           exo_err *err)
{
    exo_status st = EXO_NOMEM;
    exo_metrics *m = exo_calloc(1, sizeof *m);
    if (!m) {
        exo_fail(err, EXO_NOMEM, "%s: out of memory", folder);
        goto done;
    }
    m->events.fd = -1;
    for (int t = 0; t < NUM_TABLES; t++)
        m->tables[t].fd = -1;
    m->opened = unix_time();

    st = exo_folder_make(folder, err);
    for (int t = 0; st == EXO_OK && t < NUM_TABLES; t++) {
        if (!(which & 1U << t))
            continue;
        st = make_path(&m->tables[t], folder, tables[t].file, err);
        if (st != EXO_OK)
            break;
        const char *path = m->tables[t].path;
        if (!(late & 1U << t) || (resume && access(path, F_OK) == 0))
            st = open_table(m, (enum table)t, resume, step, err);
        else if (exo_dir_unlink(path) != 0 && errno != ENOENT)
            st = fail_io(&m->tables[t], "remove", err);
    }
    if (st == EXO_OK)
        st = open_events(m, folder, resume, step, err);
    if (st != EXO_OK)
        goto done;
    *out = m;
    m = NULL; /* moved to the caller */
done:
    exo_metrics_close(&m);
    return st;
}

exo_status
exo_metrics_open(exo_metrics **out, const char *folder, bool resume, uint64_t step, exo_err *err)
{
    return open_files(out, of_training, folder, resume, step, err);
}

exo_status
exo_metrics_open_graph(exo_metrics **out, const char *folder, exo_err *err)
{
    return open_files(out, of_graph, folder, false, 0, err);
}

static void
close_output(struct output *o)
{
    if (o->fd >= 0)
        close(o->fd);
    exo_free(o->path);
}

void
exo_metrics_close(exo_metrics **m)
{
    if (!m || !*m)
        return;
    for (int t = 0; t < NUM_TABLES; t++)
        close_output(&(*m)->tables[t]);
    close_output(&(*m)->events);
    exo_free(*m);
    *m = NULL;
}

/* Writes one row whose first column is `step`. *added: the table did not have this step yet. */
static exo_status add_row(exo_metrics *m, enum table table, uint64_t step, bool *added,
                          exo_err *err, const char *format, ...) EXO_PRINTF(6, 7);

static exo_status
add_row(exo_metrics *m, enum table table, uint64_t step, bool *added, exo_err *err,
        const char *format, ...)
{
    struct output *o = &m->tables[table];
    *added = false;
    if (o->has_rows && step <= o->last)
        return EXO_OK;

    char row[MAX_ROW];
    va_list args;
    int start = snprintf(row, sizeof row, "%" PRIu64 ",", step);
    va_start(args, format);
    int length = exo_c_vsnprintf(row + start, sizeof row - (size_t)start, format, args);
    va_end(args);

    exo_status st = append(o, row, (size_t)(start + length), err);
    if (st == EXO_OK) {
        o->has_rows = true;
        o->last = step;
        *added = true;
    }
    return st;
}

static exo_status
add_scalars(exo_metrics *m, uint64_t step, const exo_scalar *scalars, size_t count, exo_err *err)
{
    uint8_t record[EXO_TFEVENT_BYTES];
    return append(&m->events, record,
                  exo_tfevent_scalars(record, unix_time(), step, scalars, count), err);
}

exo_status
exo_metrics_train(exo_metrics *m, uint64_t step, uint64_t examples, double loss, double lr,
                  exo_err *err)
{
    bool added = false;
    exo_status st = add_row(m, TRAIN, step, &added, err, "%" PRIu64 ",%.9g,%.9g,%.7g\n", examples,
                            loss, exp(loss), lr);
    if (st != EXO_OK || !added)
        return st;
    const exo_scalar scalars[] = {{"train/loss", loss}, {"train/lr", lr}};
    return add_scalars(m, step, scalars, 2, err);
}

exo_status
exo_metrics_validation(exo_metrics *m, const exo_eval_row *row, exo_err *err)
{
    bool added = false;
    exo_status st =
        add_row(m, VALIDATION, row->step, &added, err, "%.9g,%.9g,%.9g,%.9g\n", row->local_loss,
                exp(row->local_loss), row->global_loss, exp(row->global_loss));
    if (st == EXO_OK)
        st = add_row(m, METRICS, row->step, &added, err, "%.3f,%" PRIu64 ",%.9g,%.9g,%.9g,%.9g\n",
                     row->seconds, row->bytes_sent, row->local_loss, row->global_loss,
                     row->local_accuracy, row->global_accuracy);
    if (st != EXO_OK || !added)
        return st;
    const exo_scalar scalars[] = {
        {"validation/local_loss", row->local_loss},
        {"validation/global_loss", row->global_loss},
        {"communication/bytes_sent", (double)row->bytes_sent},
        {"validation/local_accuracy", row->local_accuracy},
        {"validation/global_accuracy", row->global_accuracy},
    };
    bool has_accuracy = !isnan(row->local_accuracy) && !isnan(row->global_accuracy);
    return add_scalars(m, row->step, scalars, has_accuracy ? 5 : 3, err);
}

exo_status
exo_metrics_correlation(exo_metrics *m, uint64_t step, double correlation, exo_err *err)
{
    bool added = false;
    exo_status st =
        m->tables[CORRELATION].fd < 0 ? open_table(m, CORRELATION, false, 0, err) : EXO_OK;
    if (st == EXO_OK)
        st = add_row(m, CORRELATION, step, &added, err, "%.9g\n", correlation);
    if (st != EXO_OK || !added)
        return st;
    return add_scalars(m, step, &(exo_scalar){"correlation", correlation}, 1, err);
}

/* A step may have several rows. */
exo_status
exo_metrics_members(exo_metrics *m, uint64_t step, double seconds, uint64_t epoch,
                    const char *event, uint32_t node, uint32_t present, exo_err *err)
{
    bool added = false;
    struct output *o = &m->tables[MEMBERS];
    exo_status st = o->fd < 0 ? open_table(m, MEMBERS, false, 0, err) : EXO_OK;
    o->has_rows = false;
    return st == EXO_OK ? add_row(m, MEMBERS, step, &added, err, "%.3f,%" PRIu64 ",%s,%u,%u\n",
                                  seconds, epoch, event, node, present)
                        : st;
}

/* --- Meters ----------------------------------------------------------------------------------- */

/* The rows of one step or, for a graph, of one time. */
struct meter_rows {
    char key[32];  /* the first column */
    uint64_t step; /* TensorBoard's step */
    double now;    /* in seconds since 1970 */
    exo_text csv, events;
};

static void
add_meter_row(struct meter_rows *r, const exo_meter_sample *s, const char *part, double value,
              const char *unit)
{
    exo_text_add(&r->csv, "%s,%s%s,%.9g,%s\n", r->key, s->path, part, value, unit);
}

static void
add_count_row(struct meter_rows *r, const exo_meter_sample *s, const char *part, uint64_t count,
              const char *unit)
{
    exo_text_add(&r->csv, "%s,%s%s,%" PRIu64 ",%s\n", r->key, s->path, part, count, unit);
}

/* Buckets are cumulative, as in Prometheus: each row counts the observations up to its bound. */
static void
add_histogram_rows(struct meter_rows *r, const exo_meter_sample *s)
{
    const exo_meter_class *c = s->meter_class;
    uint64_t so_far = 0;
    add_count_row(r, s, ".count", s->count, "1");
    add_meter_row(r, s, ".sum", s->value, c->unit);
    for (size_t i = 0; i < c->num_bounds; i++) {
        char part[48];
        so_far += s->buckets[i];
        exo_c_snprintf(part, sizeof part, ".le_%.9g", c->bounds[i]);
        add_count_row(r, s, part, so_far, "1");
    }
}

/* Meters that add_scalars writes under a tag of their own. */
static bool
has_tag(const char *path)
{
    static const char *const paths[] = {"step",
                                        "bytes_sent",
                                        "train.loss",
                                        "train.lr",
                                        "validation.local.loss",
                                        "validation.global.loss",
                                        "validation.local.accuracy",
                                        "validation.global.accuracy"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(paths[i], path) == 0)
            return true;
    return false;
}

static void
add_event(struct meter_rows *r, const exo_meter_sample *s)
{
    uint8_t record[EXO_TFEVENT_BYTES];
    char tag[EXO_METER_PATH];
    size_t length = strlen(s->path);
    if (has_tag(s->path))
        return;
    for (size_t i = 0; i <= length; i++)
        tag[i] = s->path[i] == '.' ? '/' : s->path[i];
    exo_text_add_bytes(&r->events, (const char *)record,
                       exo_tfevent_meter(record, r->now, r->step, tag, s));
}

static void
add_meter(void *context, const exo_meter_sample *s)
{
    struct meter_rows *r = context;
    const exo_meter_class *c = s->meter_class;
    if (c->kind == EXO_GAUGE && isnan(s->value))
        return;
    if (c->kind == EXO_COUNTER)
        add_count_row(r, s, "", s->count, c->unit);
    else if (c->kind == EXO_GAUGE)
        add_meter_row(r, s, "", s->value, c->unit);
    else
        add_histogram_rows(r, s);
    add_event(r, s);
}

/* Appends the rows of a tree to a table; `key` becomes the table's last step. */
static exo_status
write_meters(exo_metrics *m, enum table table, uint64_t key, struct meter_rows *rows,
             const exo_meters *tree, exo_err *err)
{
    struct output *o = &m->tables[table];
    exo_status st = exo_meters_walk(tree, add_meter, rows, err);
    if (st == EXO_OK && (rows->csv.failed || rows->events.failed))
        st = exo_fail(err, EXO_NOMEM, "%s: out of memory", o->path);
    if (st == EXO_OK)
        st = append(o, rows->csv.data, rows->csv.length, err);
    if (st == EXO_OK && rows->csv.length > 0) {
        o->has_rows = true;
        o->last = key;
        st = append(&m->events, rows->events.data, rows->events.length, err);
    }
    exo_free(rows->csv.data);
    exo_free(rows->events.data);
    return st;
}

exo_status
exo_metrics_meters(exo_metrics *m, uint64_t step, const exo_meters *tree, exo_err *err)
{
    struct meter_rows rows = {.step = step, .now = unix_time()};
    if (m->tables[METERS].has_rows && step <= m->tables[METERS].last)
        return EXO_OK;
    snprintf(rows.key, sizeof rows.key, "%" PRIu64, step);
    return write_meters(m, METERS, step, &rows, tree, err);
}

exo_status
exo_metrics_meters_at(exo_metrics *m, exo_time at, const exo_meters *tree, exo_err *err)
{
    const struct output *o = &m->tables[GRAPH_METERS];
    uint64_t us = (uint64_t)(at > 0 ? at : 0) / 1000;
    us = o->has_rows && us <= o->last ? o->last + 1 : us;
    struct meter_rows rows = {.step = us / 1000, .now = m->opened + (double)us * 1e-6};
    snprintf(rows.key, sizeof rows.key, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
    return write_meters(m, GRAPH_METERS, us, &rows, tree, err);
}

exo_status
exo_metrics_flush(exo_metrics *m, exo_err *err)
{
    for (int t = 0; t < NUM_TABLES; t++)
        if (m->tables[t].fd >= 0 && fdatasync(m->tables[t].fd) != 0 && errno != EINVAL)
            return fail_io(&m->tables[t], "write", err);
    return fdatasync(m->events.fd) == 0 || errno == EINVAL ? EXO_OK
                                                           : fail_io(&m->events, "write", err);
}
