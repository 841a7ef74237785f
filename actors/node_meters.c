/* A node's meters: see node_meters.h. */
#include "actors/node_meters.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

/* --- The figures of models -------------------------------------------------------------------- */

void
exo_pass_figures_count(exo_pass_figures *figures, const exo_meter_class *metric, double mean,
                       size_t count)
{
    size_t k = 0;
    while (k < figures->num && figures->each[k].metric != metric)
        k++;
    if (k == EXO_TAPE_METRICS || strcmp(metric->name, "loss") == 0)
        return;
    if (k == figures->num)
        figures->each[figures->num++].metric = metric;
    figures->each[k].sum += mean * (double)count;
    figures->each[k].count += count;
}

void
exo_pass_figures_add(exo_pass_figures *figures, const exo_tape *tape)
{
    for (size_t i = 0; i < exo_tape_num_metrics(tape); i++) {
        double mean = 0;
        size_t count = 0;
        const exo_meter_class *metric = exo_tape_metric_at(tape, i, &mean, &count);
        exo_pass_figures_count(figures, metric, mean, count);
    }
}

void
exo_pass_figures_set(exo_pass_figures *figures, exo_meters *scope)
{
    for (size_t i = 0; i < figures->num; i++) {
        exo_meter *meter = NULL;
        if (figures->each[i].metric->kind == EXO_GAUGE && figures->each[i].count > 0 &&
            exo_meter_declare(&meter, scope, figures->each[i].metric, NULL) == EXO_OK)
            exo_meter_set(meter, figures->each[i].sum / (double)figures->each[i].count);
    }
    *figures = (exo_pass_figures){0};
}

exo_status
exo_node_meters_init(exo_node_meters *meters, exo_meters *parent, exo_err *err)
{
    *meters = (exo_node_meters){0};
    exo_status st = parent ? EXO_OK : exo_meters_new(&meters->tree, err);
    parent = parent ? parent : meters->tree;
    if (st == EXO_OK)
        st = exo_meters_scope(&meters->strategy, parent, "strategy", err);
    if (st == EXO_OK)
        st = exo_meters_scope(&meters->model, parent, "model", err);
    if (st != EXO_OK)
        exo_node_meters_release(meters);
    return st;
}

void
exo_node_meters_release(exo_node_meters *meters)
{
    exo_meters_free(&meters->tree);
    *meters = (exo_node_meters){0};
}

/* --- As messages ------------------------------------------------------------------------------ */

struct entry {
    Exo__Train__Meter message;
    char path[EXO_METER_PATH];
    uint64_t buckets[EXO_METER_BOUNDS + 1];
};

struct gathering {
    exo_meter_list *list;
    bool failed;
};

static void
add_message(void *context, const exo_meter_sample *s)
{
    struct gathering *g = context;
    exo_meter_list *list = g->list;
    const exo_meter_class *c = s->meter_class;
    if (g->failed || (c->kind == EXO_GAUGE && isnan(s->value)))
        return;
    Exo__Train__Meter **more = exo_realloc(list->messages, list->num + 1, sizeof *more);
    struct entry *e = exo_calloc(1, sizeof *e);
    list->messages = more ? more : list->messages;
    if (!more || !e) {
        exo_free(e);
        g->failed = true;
        return;
    }
    Exo__Train__Meter message = EXO__TRAIN__METER__INIT;
    memcpy(e->path, s->path, strlen(s->path) + 1);
    message.path = e->path;
    message.unit = exo_args_text(c->unit);
    message.help = exo_args_text(c->help);
    message.kind = (Exo__Train__MeterKind)c->kind;
    message.count = s->count;
    message.value = s->value;
    if (c->kind == EXO_HISTOGRAM) {
        memcpy(e->buckets, s->buckets, sizeof e->buckets);
        /* protobuf-c only reads it, although its member is not const. */
        message.bounds = (double *)(uintptr_t)c->bounds;
        message.n_bounds = c->num_bounds;
        message.buckets = e->buckets;
        message.n_buckets = c->num_bounds + 1;
    }
    e->message = message;
    list->messages[list->num++] = &e->message;
}

exo_status
exo_meter_list_init(exo_meter_list *list, const exo_meters *tree, exo_err *err)
{
    struct gathering g = {.list = list};
    *list = (exo_meter_list){0};
    exo_status st = exo_meters_walk(tree, add_message, &g, err);
    return st == EXO_OK && g.failed ? exo_fail(err, EXO_NOMEM, "no memory for a node's meters")
                                    : st;
}

void
exo_meter_list_release(exo_meter_list *list)
{
    for (size_t i = 0; i < list->num; i++)
        exo_free(list->messages[i]); /* frees its entry, whose first member it is */
    exo_free(list->messages);
    *list = (exo_meter_list){0};
}

exo_status
exo_meter_of_message(const Exo__Train__Meter *message, exo_meter_class *c, exo_meter_sample *out,
                     exo_err *err)
{
    size_t bounds = message->n_bounds;
    bool histogram = message->kind == EXO__TRAIN__METER_KIND__HISTOGRAM;
    if (bounds > EXO_METER_BOUNDS || message->n_buckets != (histogram ? bounds + 1 : 0))
        return exo_fail(err, EXO_INVAL, "the meter '%.80s' has %zu bounds and %zu buckets",
                        message->path, bounds, message->n_buckets);
    *c = (exo_meter_class){.unit = message->unit,
                           .help = message->help,
                           .kind = (exo_meter_kind)message->kind,
                           .bounds = message->bounds,
                           .num_bounds = bounds};
    *out = (exo_meter_sample){
        .path = message->path, .meter_class = c, .count = message->count, .value = message->value};
    if (histogram)
        memcpy(out->buckets, message->buckets, message->n_buckets * sizeof *out->buckets);
    return EXO_OK;
}
