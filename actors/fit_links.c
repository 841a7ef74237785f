/* The links that collectives follow: see fit_links.h, and for struct run fit_impl.h.
 *
 *     {"nodes": 2, "rates_bit_per_s": [[0, 1e9], [9e8, 0]], "latencies_s": [[0, 1e-4], [1e-4, 0]],
 *      "ring": [0, 1], "islands": [[0, 1]]}
 *
 * The element [a][b] is of messages from node a to node b. `ring` and `islands` are for the reader. */
#include "actors/fit_links.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "actors/fit_impl.h"
#include "base/file.h"
#include "base/grow_text.h"

enum {
    LARGEST = 1 << 20 /* bytes of a file */
};

bool
exo_fit_measures(const char *links)
{
    return links && strcmp(links, "measured") == 0;
}

exo_status
exo_fit_check_links(const char *links, exo_way way, uint32_t num_nodes, bool virtual_clock,
                    exo_err *err)
{
    exo_link_figure *figures = NULL;
    if (!links)
        return EXO_OK;
    if (way != EXO_WAY_AUTO && way != EXO_WAY_RING && way != EXO_WAY_HIERARCHICAL)
        return exo_fail(err, EXO_INVAL,
                        "the way %s does not depend on links: leave links out, or choose auto, "
                        "ring or hierarchical",
                        exo_way_name(way));
    if (num_nodes > EXO_WAYS_MEMBERS)
        return exo_fail(err, EXO_INVAL, "links are measured among at most %d nodes, not %u",
                        EXO_WAYS_MEMBERS, num_nodes);
    if (exo_fit_measures(links))
        return virtual_clock
                   ? exo_fail(err, EXO_INVAL,
                              "on the virtual clock there is nothing to measure: leave out 'links: "
                              "measured', and the declared links count")
                   : EXO_OK;
    exo_status st = exo_fit_load_links(&figures, links, num_nodes, err);
    exo_free(figures);
    return st;
}

/* --- The file --------------------------------------------------------------------------------- */

static exo_status
read_figure(exo_link_figure *out, const json_t *rate, const json_t *latency, exo_err *err)
{
    *out = (exo_link_figure){json_number_value(rate), json_number_value(latency)};
    return json_is_number(rate) && json_is_number(latency) && out->rate > 0 && out->latency >= 0
               ? EXO_OK
               : exo_fail(err, EXO_INVAL,
                          "rates_bit_per_s and latencies_s: expected a positive rate and a latency "
                          "of each pair of nodes");
}

static exo_status
read_figures(exo_link_figure *out, const json_t *json, uint32_t size, exo_err *err)
{
    const json_t *rates = json_object_get(json, "rates_bit_per_s"),
                 *latencies = json_object_get(json, "latencies_s");
    const json_t *nodes = json_object_get(json, "nodes");
    if (!json_is_integer(nodes))
        return exo_fail(err, EXO_INVAL, "nodes: expected the number of nodes");
    if (json_integer_value(nodes) != (json_int_t)size)
        return exo_fail(err, EXO_INVAL,
                        "the links are of %" JSON_INTEGER_FORMAT " nodes, and the job has %u",
                        json_integer_value(nodes), size);
    exo_status st = EXO_OK;
    for (uint32_t a = 0; a < size; a++)
        for (uint32_t b = 0; st == EXO_OK && b < size; b++)
            if (a != b)
                st = read_figure(&out[a * size + b], json_array_get(json_array_get(rates, a), b),
                                 json_array_get(json_array_get(latencies, a), b), err);
    return st;
}

exo_status
exo_fit_parse_links(exo_link_figure **out, const char *text, uint32_t num_nodes, exo_err *err)
{
    json_error_t where;
    *out = exo_calloc((size_t)num_nodes * num_nodes, sizeof **out);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no memory for the links of %u nodes", num_nodes);
    json_t *json = json_loads(text, 0, &where);
    exo_status st = json ? read_figures(*out, json, num_nodes, err)
                         : exo_fail(err, EXO_INVAL, "line %d: %s", where.line, where.text);
    json_decref(json);
    if (st != EXO_OK) {
        exo_free(*out);
        *out = NULL;
    }
    return st;
}

exo_status
exo_fit_load_links(exo_link_figure **out, const char *path, uint32_t num_nodes, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    *out = NULL;
    exo_status st = exo_file_read(path, LARGEST, &text, &size, err);
    if (st == EXO_OK && (st = exo_fit_parse_links(out, text, num_nodes, err)) != EXO_OK)
        exo_fail_in(err, st, "%s", path);
    exo_free(text);
    return st;
}

static void
add_matrix(exo_text *text, const exo_link_figure *figures, uint32_t size, bool latencies)
{
    for (uint32_t a = 0; a < size; a++)
        for (uint32_t b = 0; b < size; b++) {
            const exo_link_figure *f = &figures[a * size + b];
            exo_text_add(text, "%s%.17g",
                         b > 0   ? ", "
                         : a > 0 ? "],\n  ["
                                 : "[\n  [",
                         a == b      ? 0
                         : latencies ? f->latency
                                     : f->rate);
        }
    exo_text_add(text, "]\n ]");
}

static void
add_choices(exo_text *text, const exo_comm_ways *ways)
{
    exo_text_add(text, ",\n \"ring\": [");
    for (uint32_t i = 0; i < ways->size; i++)
        exo_text_add(text, i > 0 ? ", %u" : "%u", ways->order[i]);
    exo_text_add(text, "],\n \"islands\": [");
    for (uint32_t i = 0, islands = 0; i < ways->size; i++) {
        uint32_t members = 0;
        for (uint32_t r = 0; r < ways->size; r++)
            if (ways->islands[r] == i)
                exo_text_add(text, members++ > 0 ? ", %u" : islands++ > 0 ? "], [%u" : "[%u", r);
    }
    exo_text_add(text, "]]");
}

char *
exo_fit_links_text(const exo_link_figure *figures, uint32_t num_nodes, const exo_comm_ways *ways)
{
    exo_text text = {0};
    exo_text_add(&text, "{\n \"nodes\": %u,\n \"rates_bit_per_s\": ", num_nodes);
    add_matrix(&text, figures, num_nodes, false);
    exo_text_add(&text, ",\n \"latencies_s\": ");
    add_matrix(&text, figures, num_nodes, true);
    if (ways)
        add_choices(&text, ways);
    exo_text_add(&text, "\n}\n");
    if (text.failed) {
        exo_free(text.data);
        return NULL;
    }
    return text.data;
}

/* --- Of a run --------------------------------------------------------------------------------- */

exo_status
exo_fit_choose_links(struct run *run, exo_err *err)
{
    exo_fit *fit = run->fit;
    const char *links = run->opts->links;
    exo_status st = exo_fit_check_links(links, fit->way, fit->num_nodes, fit->sim != NULL, err);
    fit->measures = exo_fit_measures(links);
    if (st == EXO_OK && fit->measures && !run->far)
        return exo_fail(err, EXO_INVAL,
                        "links are measured between workers: run the job with --workers, --head or "
                        "--cluster, or leave out 'links: measured'");
    return st == EXO_OK && links && !fit->measures
               ? exo_fit_load_links(&fit->figures, links, fit->num_nodes, err)
               : st;
}

exo_status
exo_fit_take_links(struct run *run, const Exo__Train__NodeReady *ready, exo_err *err)
{
    exo_fit *fit = run->fit;
    const size_t count = (size_t)fit->num_nodes * fit->num_nodes;
    if (!fit->measures || fit->num_nodes < 2)
        return EXO_OK;
    if (ready->n_rates != count || ready->n_latencies != count)
        return exo_fail(err, EXO_INVAL, "node_0 has not measured the links of %u nodes",
                        fit->num_nodes);
    if (!(fit->figures = exo_calloc(count, sizeof *fit->figures)))
        return exo_fail(err, EXO_NOMEM, "no memory for the links of %u nodes", fit->num_nodes);
    for (size_t i = 0; i < count; i++)
        fit->figures[i] = (exo_link_figure){ready->rates[i], ready->latencies[i]};
    return EXO_OK;
}

/* The pair whose message of a megabyte takes the shortest time, or the longest. */
static const exo_link_figure *
extreme(const exo_link_figure *figures, uint32_t size, bool longest, uint32_t pair[2])
{
    const exo_link_figure *found = NULL;
    double least = INFINITY;
    for (uint32_t a = 0; a < size; a++)
        for (uint32_t b = 0; b < size; b++) {
            const exo_link_figure *f = &figures[a * size + b];
            double time = a == b ? INFINITY : f->latency + 8e6 / f->rate;
            time = longest && a != b ? -time : time;
            if (time < least) {
                least = time;
                found = f;
                pair[0] = a;
                pair[1] = b;
            }
        }
    return found;
}

static void
add_pair(exo_text *line, const exo_fit *fit, bool longest)
{
    uint32_t pair[2] = {0};
    const exo_link_figure *f = extreme(fit->figures, fit->num_nodes, longest, pair);
    bool giga = f->rate >= 1e9;
    exo_text_add(line, "%.3g %cbit/s and %.3g ms from node_%u to node_%u",
                 f->rate * (giga ? 1e-9 : 1e-6), giga ? 'G' : 'M', f->latency * 1e3, pair[0],
                 pair[1]);
}

/* Adds the order of the ring, and the islands if there are several. */
static void
add_order(exo_text *line, const exo_comm_ways *ways)
{
    bool several = false;
    exo_text_add(line, "; ring");
    for (uint32_t i = 0; i < ways->size; i++) {
        exo_text_add(line, " %u", ways->order[i]);
        several = several || ways->islands[i] != ways->islands[0];
    }
    for (uint32_t i = 0; several && i < ways->size; i++)
        for (uint32_t r = 0, any = 0; r < ways->size; r++)
            if (ways->islands[r] == i)
                exo_text_add(line, any++ ? " %u" : "; island %u", r);
}

exo_status
exo_fit_show_links(struct run *run, exo_err *err)
{
    const exo_fit *fit = run->fit;
    exo_comm_ways *ways = NULL;
    exo_text line = {0};
    char path[EXO_CHECKPOINT_PATH + 32], *text = NULL;
    if (!fit->figures || fit->num_nodes < 2)
        return EXO_OK;
    exo_status st =
        exo_comm_ways_new(&ways, fit->way, !fit->any_bits, fit->num_nodes, NULL, NULL, err);
    if (st == EXO_OK)
        st = exo_comm_ways_measured(ways, fit->figures, err);
    if (st == EXO_OK) {
        exo_text_add(&line, fit->measures ? "measured links: " : "links of the file: ");
        add_pair(&line, fit, true);
        exo_text_add(&line, ", up to ");
        add_pair(&line, fit, false);
        add_order(&line, ways);
        text = exo_fit_links_text(fit->figures, fit->num_nodes, ways);
        st = text && !line.failed ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the links");
    }
    if (st == EXO_OK && run->live && run->live->note)
        run->live->note(run->live->context, line.data);
    else if (st == EXO_OK)
        EXO_LOG(INFO, TRAIN, "%s", line.data);
    snprintf(path, sizeof path, "%s/" EXO_FIT_LINKS_FILE, run->folder);
    if (st == EXO_OK && run->folder[0])
        st = exo_file_write_atomic(path, text, strlen(text), err);
    exo_comm_ways_free(&ways);
    exo_free(text);
    exo_free(line.data);
    return st;
}
