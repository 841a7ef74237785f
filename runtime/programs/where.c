/* Inspection of a cluster: see where.h. Read next: cluster_status.c, cluster_look.c,
 * cluster_call.c. */
#include "programs/where.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "base/environment.h"
#include "base/printable.h"

#define CLOSE_TIMEOUT (2 * EXO_SECOND)
/* interval of the queries for an actor that is still starting */
#define AGAIN (20 * EXO_MS)
/* for a head on this host to begin; one that is there may take until the deadline to answer */
#define ABSENCE EXO_SECOND

/* --- The visit -------------------------------------------------------------------------------- */

exo_status
exo_visit_open(exo_visit *visit, const struct exo_where *where, const char *job, exo_err *err)
{
    const exo_cluster_opts opts = {.role = EXO_ROLE_GUEST,
                                   .cluster = where->cluster,
                                   .head = where->head,
                                   .head_key = where->head_key,
                                   .keys = where->keys,
                                   .folder = where->folder,
                                   .job = job,
                                   .absence = ABSENCE};
    const char *head = where->head ? where->head : exo_environment("EXOGYM_HEAD");
    exo_time timeout = 30 * EXO_SECOND;
    exo_status st =
        where->timeout ? exo_text_read_time(where->timeout, "--timeout", &timeout, err) : EXO_OK;
    if (st == EXO_OK && timeout < EXO_MS)
        st = exo_fail(err, EXO_INVAL, "--timeout: '%.40s' is too short", where->timeout);
    if (st != EXO_OK)
        return st;
    bool far = head && strncmp(head, "tcp://", 6) == 0;
    visit->deadline = exo_deadline(exo_clock_real(), timeout);
    st = exo_runtime_open(&visit->runtime, &(exo_runtime_opts){.threads = 1}, err);
    if (st != EXO_OK)
        return st;
    st = exo_cluster_join(&visit->cluster, visit->runtime, &opts, visit->deadline, err);
    const char *key = where->head_key ? where->head_key : exo_environment("EXOGYM_HEAD_KEY");
    if ((st == EXO_TIMEOUT || st == EXO_UNSUPPORTED) && far && !key) {
        exo_err reason = *err;
        exo_fail(err, st, "%s; one with keys wants --head-key and --keys", reason.text);
    }
    return st;
}

void
exo_visit_close(exo_visit *visit)
{
    exo_cluster_leave(visit->cluster);
    if (visit->runtime)
        exo_runtime_close(&visit->runtime, exo_deadline(exo_clock_real(), CLOSE_TIMEOUT), NULL);
    exo_cluster_free(&visit->cluster);
}

int
exo_visit_do(const exo_command_line *line, exo_visit_run *run)
{
    exo_visit visit = {0};
    exo_err err = {0};
    exo_status st = exo_visit_open(&visit, line->args, NULL, &err);
    bool usage = st == EXO_INVAL;
    if (st == EXO_OK)
        st = run(&visit, line->args, &err);
    exo_visit_close(&visit);
    if (st == EXO_OK)
        return EXO_EXIT_OK;
    if (usage)
        return exo_report_usage(line->command, &err);
    exo_report(&err);
    /* even for EXO_INVAL: it came from an actor, not from the command line */
    return EXO_EXIT_FAILURE;
}

/* Reads the head's answer about an actor (exo_cluster_why). Returns true if the actor is neither
 * alive nor dead, with its state ("restarting", "starting" or "unknown") and the cause. */
static bool
is_between(const char *said, const char *name, char state[16], char cause[512])
{
    char shown[1024]; /* exo_cluster_why escapes the name */
    name = exo_printable(shown, sizeof shown, name, EXO_SHOWN_LINE);
    size_t length = strlen(name);
    const char *line = strstr(said, "\ncause: "), *waits = strstr(said, "\nit waits: ");
    state[0] = cause[0] = 0;
    if (strncmp(said, name, length) != 0 || sscanf(said + length, ": %15[a-z] since", state) != 1 ||
        strcmp(state, "alive") == 0 || strcmp(state, "dead") == 0)
        return false;
    if (line)
        sscanf(line, "\ncause: %255[^\n]", cause);
    if (waits)
        snprintf(cause + strlen(cause), 512 - strlen(cause), "%s%.*s", cause[0] ? "; " : "",
                 (int)strcspn(waits + 1, "\n"), waits + 1);
    return true;
}

exo_status
exo_visit_find(exo_visit *visit, const char *space, const char *name, exo_ref *out, exo_err *err)
{
    char state[16] = "", cause[512];
    for (;;) {
        char *said = NULL;
        exo_status st = exo_cluster_why(visit->cluster, space, name, visit->deadline, &said, NULL);
        bool over = st == EXO_TIMEOUT && state[0]; /* report the head's last answer */
        bool between = over || (st == EXO_OK && is_between(said, name, state, cause));
        exo_free(said);
        if (!between)
            return exo_cluster_get_actor(visit->cluster, space, name, visit->deadline, out, err);
        if (over || exo_now(exo_clock_real()) + AGAIN > visit->deadline)
            return exo_fail(err, EXO_TIMEOUT, "the actor '%s' is %s%s%s", name, state,
                            cause[0] ? ": " : "", cause);
        nanosleep(&(struct timespec){.tv_nsec = AGAIN}, NULL);
    }
}

exo_status
exo_visit_call(exo_visit *visit, exo_ref actor, const char *method, exo_payload args,
               exo_future **future, const exo_payload **reply, exo_err *err)
{
    exo_status st = exo_call(visit->runtime, actor, method, args, visit->deadline, future, err);
    if (st == EXO_OK)
        st = exo_wait(*future, visit->deadline, reply, err);
    if (st == EXO_TIMEOUT)
        exo_fail(err, st, "no reply in time");
    return st;
}

exo_status
exo_visit_list(exo_visit *visit, json_t **out, exo_err *err)
{
    char *text = NULL;
    exo_status st = exo_cluster_list(visit->cluster, visit->deadline, &text, err);
    if (st != EXO_OK)
        return st;
    *out = json_loads(text, 0, NULL);
    exo_free(text);
    return *out ? EXO_OK : exo_fail(err, EXO_FAILED, "the head's list cannot be read");
}

exo_status
exo_read_argument(const char *word, exo_payload *out, exo_err *err)
{
    char data[65536];
    size_t got;
    exo_text text = {0};
    if (!word)
        return EXO_OK;
    if (word[0] != '@')
        return exo_payload_copy(out, word, strlen(word)) == EXO_OK
                   ? EXO_OK
                   : exo_fail(err, EXO_NOMEM, "out of memory");
    if (!word[1])
        return exo_fail(err, EXO_INVAL, "'@' stands for a file's bytes, and names none");
    FILE *file = fopen(word + 1, "re");
    if (!file)
        return exo_fail(err, EXO_NOT_FOUND, "%s: %s", word + 1, strerror(errno));
    while ((got = fread(data, 1, sizeof data, file)) > 0)
        exo_text_add_bytes(&text, data, got);
    bool failed = ferror(file);
    fclose(file);
    if (failed || text.failed) {
        exo_free(text.data);
        return failed ? exo_fail(err, EXO_IO, "%s: it cannot be read", word + 1)
                      : exo_fail(err, EXO_NOMEM, "%s: out of memory", word + 1);
    }
    *out = (exo_payload){.data = text.data, .size = text.length, .release = exo_free};
    return EXO_OK;
}

/* --- Printing --------------------------------------------------------------------------------- */

exo_status
exo_print_json(json_t *json, exo_err *err)
{
    if (!json)
        return exo_fail(err, EXO_NOMEM, "no memory for JSON, or a text that is not UTF-8");
    json_dumpf(json, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    putchar('\n');
    json_decref(json);
    return EXO_OK;
}

/* The number of characters of a UTF-8 text. */
static size_t
width_of(const json_t *cell)
{
    size_t width = 0;
    for (const char *c = json_string_value(cell); *c; c++)
        width += ((unsigned char)*c & 0xc0) != 0x80;
    return width;
}

/* Prints a table. cells: rows * columns texts, row by row. Drops `cells`. */
static void
print_table(json_t *cells, size_t columns)
{
    size_t widths[8] = {0}, i;
    json_t *cell;
    json_array_foreach (cells, i, cell)
        if (width_of(cell) > widths[i % columns])
            widths[i % columns] = width_of(cell);
    json_array_foreach (cells, i, cell) {
        bool last = i % columns == columns - 1;
        printf("%s%*s", json_string_value(cell),
               last ? 0 : (int)(widths[i % columns] - width_of(cell) + 2), "");
        if (last)
            putchar('\n');
    }
    json_decref(cells);
}

/* --- Columns of tables ------------------------------------------------------------------------ */

/* Adds a cell. Names and causes are untrusted, so they are escaped. */
static void
add_cell(json_t *cells, const char *text)
{
    exo_text cell = {0};
    text = text && *text ? text : "-";
    exo_printable_add(&cell, text, strlen(text), EXO_SHOWN_LINE);
    json_array_append_new(cells, json_string(cell.failed ? "?" : cell.data));
    exo_free(cell.data);
}

/* Adds the cell of a row in the column `key`. */
typedef void add_column(json_t *cells, const json_t *row, const char *key);

static void
add_text(json_t *cells, const json_t *row, const char *key)
{
    add_cell(cells, json_string_value(json_object_get(row, key)));
}

static void
add_since(json_t *cells, const json_t *row, const char *key)
{
    char figure[EXO_FIGURE];
    double passed = difftime(time(NULL), (time_t)json_integer_value(json_object_get(row, key)));
    add_cell(cells, exo_text_seconds(passed < 0 ? 0 : passed, figure));
}

/* "1,234". */
static void
add_count(json_t *cells, const json_t *row, const char *key)
{
    char figure[EXO_FIGURE];
    add_cell(cells,
             exo_text_count((uint64_t)json_integer_value(json_object_get(row, key)), figure));
}

/* "1234". */
static void
add_number(json_t *cells, const json_t *row, const char *key)
{
    char figure[EXO_FIGURE] = "";
    const json_t *number = json_object_get(row, key);
    if (number)
        snprintf(figure, sizeof figure, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
    add_cell(cells, figure);
}

/* The free and the total amount of a node's resource: "3/4", "3.2/4 GB". */
static void
add_amount(json_t *cells, const json_t *node, const char *name)
{
    char text[2 * EXO_FIGURE + 2], left[EXO_FIGURE], all[EXO_FIGURE];
    const json_t *total = json_object_get(json_object_get(node, "total"), name);
    double there = json_number_value(total),
           unused = json_number_value(json_object_get(json_object_get(node, "free"), name));
    if (!total)
        text[0] = 0;
    else if (strcmp(name, "memory") == 0)
        snprintf(text, sizeof text, "%s/%s", exo_text_bytes(unused, left),
                 exo_text_bytes(there, all));
    else
        snprintf(text, sizeof text, "%.6g/%.6g", unused, there);
    add_cell(cells, text);
}

/* The numbers of a list: "0, 1". */
static void
add_numbers(json_t *cells, const json_t *row, const char *key)
{
    size_t i;
    const json_t *number;
    exo_text text = {0};
    json_array_foreach (json_object_get(row, key), i, number)
        exo_text_add(&text, "%s%" JSON_INTEGER_FORMAT, i ? ", " : "", json_integer_value(number));
    add_cell(cells, text.failed ? "?" : text.data);
    exo_free(text.data);
}

static void
add_object_state(json_t *cells, const json_t *object, const char *key)
{
    const char *error = json_string_value(json_object_get(object, "error"));
    (void)key;
    add_cell(cells, error                                               ? error
                    : json_is_true(json_object_get(object, "imported")) ? "imported"
                    : json_is_true(json_object_get(object, "sealed"))   ? "sealed"
                                                                        : "being written");
}

static void
add_memory(json_t *cells, const json_t *object, const char *key)
{
    const json_t *on_device = json_object_get(object, key);
    add_cell(cells, !on_device ? "" : json_is_true(on_device) ? "device" : "shared");
}

/* "GPU 1", of a process; or why it is not known. */
static void
add_gpu(json_t *cells, const json_t *row, const char *key)
{
    char text[32];
    const json_t *gpu = json_object_get(row, key);
    const char *error = json_string_value(json_object_get(row, "error"));
    snprintf(text, sizeof text, "GPU %" JSON_INTEGER_FORMAT, json_integer_value(gpu));
    add_cell(cells, gpu ? text : error ? error : "?");
}

static void
add_bytes(json_t *cells, const json_t *row, const char *key)
{
    char text[32];
    const json_t *bytes = json_object_get(row, key);
    add_cell(cells, bytes ? exo_text_bytes((double)json_integer_value(bytes), text) : "");
}

/* The tables by name, column by column. */
static const struct column {
    const char *table, *title, *key;
    add_column *add;
} columns[] = {
    {"nodes", "node", "name", add_text},
    {"nodes", "kind", "kind", add_text},
    {"nodes", "state", "state", add_text},
    {"nodes", "since", "since", add_since},
    {"nodes", "actors", "actors", add_count},
    {"nodes", "cpus", "cpus", add_amount},
    {"nodes", "gpus", "gpus", add_amount},
    {"nodes", "memory", "memory", add_amount},
    {"actors", "actor", "name", add_text},
    {"actors", "namespace", "namespace", add_text},
    {"actors", "class", "class", add_text},
    {"actors", "state", "state", add_text},
    {"actors", "since", "since", add_since},
    {"actors", "node", "node", add_text},
    {"actors", "life", "life", add_count},
    {"actors", "cause", "cause", add_text},
    {"gpus", "on GPUs", "name", add_text},
    {"gpus", "namespace", "namespace", add_text},
    {"gpus", "node", "node", add_text},
    {"gpus", "gpus", "gpus", add_numbers},
    {"jobs", "job", "name", add_text},
    {"jobs", "state", "state", add_text},
    {"jobs", "cause", "cause", add_text},
    {"device_memory", "shared on", "gpu", add_gpu},
    {"device_memory", "node", "node", add_text},
    {"device_memory", "arrays", "arrays", add_count},
    {"device_memory", "memory", "bytes", add_bytes},
    {"objects", "object", "id", add_text},
    {"objects", "node", "node", add_text},
    {"objects", "bytes", "bytes", add_number},
    {"objects", "memory", "on_device", add_memory},
    {"objects", "references", "references", add_number},
    {"objects", "borrowers", "borrowers", add_number},
    {"objects", "state", NULL, add_object_state},
};

void
exo_print_rows(const char *table, const json_t *rows, bool with_left)
{
    json_t *cells = json_array(), *row;
    const struct column *first = columns, *end = columns + sizeof columns / sizeof *columns;
    size_t i, count = 0;
    while (strcmp(first->table, table) != 0)
        first++;
    for (; first + count < end && strcmp(first[count].table, table) == 0; count++)
        add_cell(cells, first[count].title);
    json_array_foreach ((json_t *)(uintptr_t)rows, i, row) {
        const char *state = json_string_value(json_object_get(row, "state"));
        if (!with_left && state && strcmp(state, "left") == 0)
            continue;
        for (size_t k = 0; k < count; k++)
            first[k].add(cells, row, first[k].key);
    }
    print_table(cells, count);
}
