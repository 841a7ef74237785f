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
/* for a head on this host, which either answers or does not exist */
#define HERE_TIMEOUT EXO_SECOND

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
                                   .job = job};
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
    st = exo_cluster_join(&visit->cluster, visit->runtime, &opts,
                          far || timeout < HERE_TIMEOUT
                              ? visit->deadline
                              : exo_deadline(exo_clock_real(), HERE_TIMEOUT),
                          err);
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
exo_visit_do(const exo_command_line *line, const struct exo_where *where,
             exo_status (*run)(exo_visit *visit, const void *args, exo_err *err))
{
    exo_visit visit = {0};
    exo_err err = {0};
    exo_status st = exo_visit_open(&visit, where, NULL, &err);
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

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void
add_since(json_t *cells, const json_t *object)
{
    char figure[EXO_FIGURE];
    double passed =
        difftime(time(NULL), (time_t)json_integer_value(json_object_get(object, "since")));
    add_cell(cells, exo_text_seconds(passed < 0 ? 0 : passed, figure));
}

/* Adds a cell with the free and the total amount of a resource: "3/4", "3.2/4 GB". */
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

void
exo_print_nodes(const json_t *listing, bool with_left)
{
    static const char *const titles[] = {"node",   "kind", "state", "since",
                                         "actors", "cpus", "gpus",  "memory"};
    json_t *cells = json_array(), *n;
    char count[EXO_FIGURE];
    size_t i;
    for (i = 0; i < sizeof titles / sizeof titles[0]; i++)
        add_cell(cells, titles[i]);
    json_array_foreach (json_object_get(listing, "nodes"), i, n) {
        if (!with_left && strcmp(text_of(n, "state"), "left") == 0)
            continue;
        add_cell(cells, text_of(n, "name"));
        add_cell(cells, text_of(n, "kind"));
        add_cell(cells, text_of(n, "state"));
        add_since(cells, n);
        add_cell(cells,
                 exo_text_count((uint64_t)json_integer_value(json_object_get(n, "actors")), count));
        add_amount(cells, n, "cpus");
        add_amount(cells, n, "gpus");
        add_amount(cells, n, "memory");
    }
    print_table(cells, sizeof titles / sizeof titles[0]);
}

void
exo_print_actors(const json_t *listing)
{
    static const char *const titles[] = {"actor", "namespace", "class", "state",
                                         "since", "node",      "life",  "cause"};
    json_t *cells = json_array(), *a;
    char count[EXO_FIGURE];
    size_t i;
    for (i = 0; i < sizeof titles / sizeof titles[0]; i++)
        add_cell(cells, titles[i]);
    json_array_foreach (json_object_get(listing, "actors"), i, a) {
        add_cell(cells, text_of(a, "name"));
        add_cell(cells, text_of(a, "namespace"));
        add_cell(cells, text_of(a, "class"));
        add_cell(cells, text_of(a, "state"));
        add_since(cells, a);
        add_cell(cells, text_of(a, "node"));
        add_cell(cells,
                 exo_text_count((uint64_t)json_integer_value(json_object_get(a, "life")), count));
        add_cell(cells, text_of(a, "cause"));
    }
    print_table(cells, sizeof titles / sizeof titles[0]);
}

void
exo_print_jobs(const json_t *listing)
{
    static const char *const titles[] = {"job", "state", "cause"};
    json_t *cells = json_array(), *j;
    size_t i;
    for (i = 0; i < sizeof titles / sizeof titles[0]; i++)
        add_cell(cells, titles[i]);
    json_array_foreach (json_object_get(listing, "jobs"), i, j) {
        add_cell(cells, text_of(j, "name"));
        add_cell(cells, text_of(j, "state"));
        add_cell(cells, text_of(j, "cause"));
    }
    print_table(cells, sizeof titles / sizeof titles[0]);
}

void
exo_print_objects(const json_t *objects)
{
    static const char *const titles[] = {"object",     "node",      "bytes",
                                         "references", "borrowers", "state"};
    static const char *const counts[] = {"bytes", "references", "borrowers"};
    json_t *cells = json_array(), *o;
    char count[EXO_FIGURE];
    size_t i;
    for (i = 0; i < sizeof titles / sizeof titles[0]; i++)
        add_cell(cells, titles[i]);
    json_array_foreach ((json_t *)(uintptr_t)objects, i, o) {
        add_cell(cells, text_of(o, "id"));
        add_cell(cells, text_of(o, "node"));
        for (size_t k = 0; k < 3; k++) {
            snprintf(count, sizeof count, "%" JSON_INTEGER_FORMAT,
                     json_integer_value(json_object_get(o, counts[k])));
            add_cell(cells, count);
        }
        add_cell(cells, json_is_true(json_object_get(o, "imported")) ? "imported"
                        : json_is_true(json_object_get(o, "sealed")) ? "sealed"
                                                                     : "being written");
    }
    print_table(cells, sizeof titles / sizeof titles[0]);
}
