/* Meters to and from JSON: see meter_json.h. */
#include "report/meter_json.h"

#include <math.h>
#include <string.h>

static const char *const kinds[] = {
    [EXO_COUNTER] = "counter", [EXO_GAUGE] = "gauge", [EXO_HISTOGRAM] = "histogram"};

enum {
    NUM_KINDS = 3
};

/* JSON's integers are signed: larger counts are clamped. */
static json_t *
whole(uint64_t count)
{
    return json_integer(count <= INT64_MAX ? (json_int_t)count : (json_int_t)INT64_MAX);
}

/* JSON has no NaN: it becomes null. */
static json_t *
number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void
add_meter(void *all, const exo_meter_sample *s)
{
    const exo_meter_class *c = s->meter_class;
    json_t *meter =
        json_pack("{s:s, s:s, s:s}", "kind", kinds[c->kind], "unit", c->unit, "help", c->help);
    if (c->kind != EXO_HISTOGRAM) {
        json_object_set_new(meter, "value",
                            c->kind == EXO_COUNTER ? whole(s->count) : number(s->value));
    } else {
        json_t *bounds = json_array(), *buckets = json_array();
        for (size_t i = 0; i <= c->num_bounds; i++) {
            if (i < c->num_bounds)
                json_array_append_new(bounds, json_real(c->bounds[i]));
            json_array_append_new(buckets, whole(s->buckets[i]));
        }
        json_object_set_new(meter, "count", whole(s->count));
        json_object_set_new(meter, "sum", number(s->value));
        json_object_set_new(meter, "bounds", bounds);
        json_object_set_new(meter, "buckets", buckets);
    }
    json_object_set_new(all, s->path, meter);
}

json_t *
exo_meters_json(const exo_meters *tree)
{
    json_t *all = json_object();
    if (all)
        exo_meters_walk(tree, add_meter, all, NULL);
    return all;
}

static uint64_t
count_of(const json_t *value)
{
    json_int_t count = json_integer_value(value);
    return count > 0 ? (uint64_t)count : 0;
}

/* Reads a histogram's buckets; false: the entry is not a histogram. */
static bool
read_buckets(const json_t *json, exo_meter_class *c, double bounds[EXO_METER_BOUNDS],
             exo_meter_sample *out)
{
    const json_t *limits = json_object_get(json, "bounds"),
                 *buckets = json_object_get(json, "buckets");
    c->num_bounds = json_array_size(limits);
    if (c->num_bounds == 0 || c->num_bounds > EXO_METER_BOUNDS ||
        json_array_size(buckets) != c->num_bounds + 1)
        return false;
    for (size_t i = 0; i <= c->num_bounds; i++) {
        if (i < c->num_bounds)
            bounds[i] = json_number_value(json_array_get(limits, i));
        if (i > 0 && i < c->num_bounds && bounds[i] <= bounds[i - 1])
            return false;
        out->buckets[i] = count_of(json_array_get(buckets, i));
    }
    c->bounds = bounds;
    out->count = count_of(json_object_get(json, "count"));
    out->value = json_number_value(json_object_get(json, "sum"));
    return true;
}

/* Reports to the head leave out "unit" and "help" of all but one actor of a name, see
 * meter_json.h. */
static const char *
text_of(const json_t *json, const char *key)
{
    const json_t *text = json_object_get(json, key);
    return text ? json_string_value(text) : "";
}

bool
exo_meter_of_json(const char *path, const json_t *json, exo_meter_class *c,
                  double bounds[EXO_METER_BOUNDS], exo_meter_sample *out)
{
    const char *kind = json_string_value(json_object_get(json, "kind"));
    const json_t *value = json_object_get(json, "value");
    int k = 0;
    while (k < NUM_KINDS && kind && strcmp(kinds[k], kind) != 0)
        k++;
    *c = (exo_meter_class){.name = path,
                           .unit = text_of(json, "unit"),
                           .help = text_of(json, "help"),
                           .kind = (exo_meter_kind)k};
    *out = (exo_meter_sample){.path = path, .meter_class = c};
    if (!kind || k == NUM_KINDS || !c->unit || !c->help)
        return false;
    if (c->kind == EXO_HISTOGRAM)
        return read_buckets(json, c, bounds, out);
    out->count = count_of(value);
    out->value = c->kind == EXO_GAUGE ? (double)NAN : 0;
    if (c->kind == EXO_GAUGE && json_is_number(value))
        out->value = json_number_value(value);
    return true;
}

void
exo_meters_of_json(exo_meters *tree, const json_t *json)
{
    const char *path;
    json_t *meter;
    json_object_foreach ((json_t *)(uintptr_t)json, path, meter) {
        exo_meter_class c;
        double bounds[EXO_METER_BOUNDS];
        exo_meter_sample s;
        if (exo_meter_of_json(path, meter, &c, bounds, &s))
            exo_meters_put(tree, &s, NULL);
    }
}
