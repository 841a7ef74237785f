/* The counts and times of a fit in its checkpoints, as figures.json, so that a resumed run
 * continues them: see fit_impl.h. The state of the training itself is in the nodes' files
 * (replica.c).
 *
 *     {"elapsed_ns", "wall_ns", "trained_ns", "now_ns", "train_loss", "lr",
 *      "links": "words in hex", "names": [...], "meters": {...: meter_json.h},
 *      "nodes": [{"time_ns", "traffic": [8 counts], "up": [3 counts], "down": [3 counts],
 *                 "totals": [[name, kind, ns, count], ...],
 *                 "lost", "spans": [[name, kind, begin, end], ...]}, ...]}
 *
 * A name is an index into `names`. Spans are written on the virtual clock only, for the
 * timeline. If nodes come to the checkpoint one after the other (fit_apart.c), the figures of a node
 * are those at which it comes to it, and the others are those at which the first one does. */
#include "actors/fit_members.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/file.h"
#include "base/grow_text.h"
#include "report/json_text.h"
#include "report/meter_json.h"
#include "report/traffic_json.h"

enum {
    LARGEST = 1 << 30
};

/* --- Writing ---------------------------------------------------------------------------------- */

static json_int_t
index_of(json_t *names, const char *name)
{
    size_t i;
    const json_t *known;
    json_array_foreach (names, i, known)
        if (strcmp(json_string_value(known), name) == 0)
            return (json_int_t)i;
    json_array_append_new(names, json_string(name));
    return (json_int_t)i;
}

static json_t *
link_json(const exo_link_stats *s)
{
    return json_pack("[I, I, I]", (json_int_t)s->messages, (json_int_t)s->bytes,
                     (json_int_t)s->busy);
}

static json_t *
totals_json(const exo_track *track, json_t *names)
{
    json_t *totals = json_array();
    for (size_t i = 0; i < track->num_totals; i++) {
        const exo_span_total *t = &track->totals[i];
        json_array_append_new(totals,
                              json_pack("[I, i, I, I]", index_of(names, t->name), (int)t->kind,
                                        (json_int_t)t->time, (json_int_t)t->count));
    }
    return totals;
}

static json_t *
spans_json(const exo_track *track, json_t *names)
{
    json_t *spans = json_array();
    for (size_t i = 0; i < track->length; i++) {
        const exo_span *s = &track->spans[i];
        json_array_append_new(spans,
                              json_pack("[I, i, I, I]", index_of(names, s->name), (int)s->kind,
                                        (json_int_t)s->begin, (json_int_t)s->end));
    }
    return spans;
}

static json_t *
node_json(const struct run *run, uint32_t rank, uint64_t step, json_t *names)
{
    json_t *node =
        json_pack("{s:o}", "traffic", exo_traffic_json(&run->traffic[rank], EXO_TRAFFIC_NUMBERS));
    if (run->elastic)
        json_object_set_new(node, "position",
                            json_integer((json_int_t)exo_fit_position_at(run, rank, step)));
    exo_link_stats up, down;
    if (exo_fit_link_stats(run, rank, &up, &down)) {
        json_object_set_new(node, "up", link_json(&up));
        json_object_set_new(node, "down", link_json(&down));
    }
    if (run->fit->paces && run->fit->graph) {
        const exo_pace *pace = &run->fit->paces[rank];
        json_object_set_new(node, "time_ns",
                            json_integer(pace->lane ? exo_sim_time(pace->lane) : 0));
        json_object_set_new(node, "totals", totals_json(&pace->track, names));
        json_object_set_new(node, "spans", spans_json(&pace->track, names));
        json_object_set_new(node, "lost", json_integer((json_int_t)pace->track.lost));
    }
    return node;
}

/* The state of the links as hexadecimal words; NULL: no memory. */
static json_t *
links_json(const struct run *run)
{
    uint64_t *words = NULL;
    size_t count = 0;
    exo_text text = {0};
    bool failed = exo_links_save(run->fit->links, &words, &count) != EXO_OK;
    for (size_t i = 0; !failed && i < count; i++)
        exo_text_add(&text, i ? " %" PRIx64 : "%" PRIx64, words[i]);
    json_t *json = failed || text.failed ? NULL : json_string(text.data);
    exo_free(text.data);
    exo_free(words);
    return json;
}

json_t *
exo_fit_begin_figures(const struct run *run, uint64_t elapsed)
{
    json_t *nodes = json_array();
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        json_array_append_new(nodes, json_null());
    json_t *all =
        json_pack("{s:I, s:I, s:I, s:I, s:[], s:o, s:o}", "elapsed_ns", (json_int_t)elapsed,
                  "wall_ns", (json_int_t)exo_fit_wall(run), "trained_ns", (json_int_t)run->trained,
                  "now_ns", (json_int_t)exo_fit_now(run), "names", "nodes", nodes, "meters",
                  exo_meters_json(run->meters.tree));
    if (all && run->fit->links && json_object_set_new(all, "links", links_json(run)) != 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

void
exo_fit_add_figures(const struct run *run, uint32_t rank, uint64_t step, json_t *all)
{
    json_t *meters = exo_meters_json(run->meters.nodes[rank].scope), *meter;
    const char *path;
    char name[EXO_METER_PATH];
    json_array_set_new(json_object_get(all, "nodes"), rank,
                       node_json(run, rank, step, json_object_get(all, "names")));
    json_object_foreach (meters, path, meter) {
        snprintf(name, sizeof name, "node_%u.%s", rank, path);
        json_object_set(json_object_get(all, "meters"), name, meter);
    }
    json_decref(meters);
    if (rank > 0)
        return;
    if (isfinite(run->train_loss)) /* JSON has finite numbers only */
        json_object_set_new(all, "train_loss", json_real((double)run->train_loss));
    json_object_set_new(all, "lr", json_real((double)run->lr));
}

exo_status
exo_fit_write_figures(const json_t *all, const char *folder, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    size_t i;
    const json_t *node;
    bool whole = true;
    json_array_foreach (json_object_get(all, "nodes"), i, node)
        whole = whole && json_is_object(node);
    char *text = whole ? exo_json_dump(all, JSON_COMPACT) : NULL;
    snprintf(path, sizeof path, "%s/figures.json", folder);
    exo_status st = text ? exo_file_write_atomic(path, text, strlen(text), err)
                         : exo_fail(err, EXO_NOMEM, "no memory for the figures of a checkpoint");
    exo_free(text);
    return st;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static int64_t
number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? value : 0;
}

static int64_t
at(const json_t *list, size_t i)
{
    json_int_t value = json_integer_value(json_array_get(list, i));
    return value > 0 ? value : 0;
}

static exo_link_stats
read_link(const json_t *s)
{
    return (exo_link_stats){
        .messages = (uint64_t)at(s, 0), .bytes = (uint64_t)at(s, 1), .busy = at(s, 2)};
}

/* Reads the name and kind of a total or a span; false: the entry is not one. */
static bool
read_label(const json_t *entry, const json_t *names, const char **name, exo_span_kind *kind)
{
    *name = json_string_value(json_array_get(names, (size_t)at(entry, 0)));
    *kind = (exo_span_kind)at(entry, 1);
    return *name && at(entry, 1) <= EXO_SPAN_RECV_BLOCKED;
}

/* Reads a track. Spans come first, because they add to the totals. The totals are then set to their
 * saved values, which also count spans that were lost. */
static void
read_track(const json_t *node, const json_t *names, exo_track *track)
{
    const json_t *spans = json_object_get(node, "spans"), *totals = json_object_get(node, "totals");
    const char *name = NULL;
    exo_span_kind kind;
    for (size_t i = 0; i < json_array_size(spans); i++)
        if (read_label(json_array_get(spans, i), names, &name, &kind))
            exo_track_add(track, name, kind, at(json_array_get(spans, i), 2),
                          at(json_array_get(spans, i), 3));
    track->num_totals = 0;
    for (size_t i = 0; i < json_array_size(totals) && track->num_totals < EXO_SPAN_NAMES; i++) {
        const json_t *total = json_array_get(totals, i);
        if (read_label(total, names, &name, &kind))
            track->totals[track->num_totals++] = (exo_span_total){
                .name = name, .kind = kind, .time = at(total, 2), .count = (uint64_t)at(total, 3)};
    }
    track->lost = (uint64_t)number(node, "lost");
}

static exo_status
allocate(struct run *run, exo_err *err)
{
    uint32_t n = run->fit->num_nodes;
    run->before.traffic = exo_calloc(n, sizeof *run->before.traffic);
    run->before.up = exo_calloc(n, sizeof *run->before.up);
    run->before.down = exo_calloc(n, sizeof *run->before.down);
    return run->before.traffic && run->before.up && run->before.down
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for %u nodes", n);
}

exo_status
exo_fit_load_figures(struct run *run, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32], *text = NULL;
    size_t size = 0;
    exo_status st = allocate(run, err);
    if (st != EXO_OK || !run->fit->resume_from[0])
        return st;
    snprintf(path, sizeof path, "%s/figures.json", run->fit->resume_from);
    st = exo_file_read(path, LARGEST, &text, &size, err);
    if (st == EXO_NOT_FOUND) {
        EXO_LOG(WARN, TRAIN,
                "missing=%s the checkpoint was converted, or an older exogym wrote it: ledger and "
                "times "
                "begin with this resume",
                path);
        return EXO_OK;
    }
    json_t *all = st == EXO_OK ? json_loadb(text, size, 0, NULL) : NULL;
    exo_free(text);
    const json_t *nodes = json_object_get(all, "nodes");
    if (st == EXO_OK && json_array_size(nodes) != run->fit->num_nodes)
        st = exo_fail(err, EXO_INVAL,
                      "%s: the file does not hold the figures of a checkpoint of %u nodes", path,
                      run->fit->num_nodes);
    if (st != EXO_OK) {
        json_decref(all);
        return st;
    }
    run->before.figures = all; /* spans and totals refer to its names */
    run->before.known = true;
    run->before.now = number(all, "now_ns");
    run->before.wall = number(all, "wall_ns");
    run->trained = number(all, "trained_ns");
    const json_t *loss = json_object_get(all, "train_loss");
    run->train_loss = json_is_number(loss) ? (float)json_number_value(loss) : NAN;
    run->lr = (float)json_number_value(json_object_get(all, "lr"));
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        const json_t *node = json_array_get(nodes, r);
        run->before.traffic[r] = run->traffic[r] =
            exo_traffic_of_json(json_object_get(node, "traffic"), EXO_TRAFFIC_NUMBERS);
        run->before.up[r] = read_link(json_object_get(node, "up"));
        run->before.down[r] = read_link(json_object_get(node, "down"));
    }
    return EXO_OK;
}

void
exo_fit_restore_pace(struct run *run, uint32_t rank)
{
    exo_pace *pace = &run->fit->paces[rank];
    if (!run->before.known)
        return;
    const json_t *node = json_array_get(json_object_get(run->before.figures, "nodes"), rank);
    read_track(node, json_object_get(run->before.figures, "names"), &pace->track);
    if (pace->lane)
        exo_sim_lane_restore(pace->lane, number(node, "time_ns"));
}

exo_status
exo_fit_restore_links(struct run *run, exo_err *err)
{
    const char *text = json_string_value(json_object_get(run->before.figures, "links"));
    size_t count = 0, most = text ? strlen(text) / 2 + 1 : 0; /* a word: a digit and a space */
    if (!text)
        return EXO_OK;
    uint64_t *words = exo_calloc(most, sizeof *words);
    if (!words)
        return exo_fail(err, EXO_NOMEM, "no memory for the state of links");
    for (char *end = NULL; count < most; text = end, count++) {
        words[count] = strtoull(text, &end, 16);
        if (end == text)
            break;
    }
    exo_err reason = {0};
    exo_status st = exo_links_restore(run->fit->links, words, count, &reason);
    if (st != EXO_OK)
        st = exo_fail(err, st, "%s/figures.json: %s", run->fit->resume_from, reason.text);
    exo_free(words);
    return st;
}

void
exo_fit_release_figures(struct run *run)
{
    json_decref(run->before.figures);
    exo_free(run->before.traffic);
    exo_free(run->before.up);
    exo_free(run->before.down);
}
