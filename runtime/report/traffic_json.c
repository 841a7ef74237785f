/* Traffic as JSON: see traffic_json.h. */
#include "report/traffic_json.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_KEY = 80
};

/* Returns the key of a column, or NULL if the form leaves the column out. */
static const char *
key_of(size_t column, exo_traffic_form form, char key[MAX_KEY])
{
    const char *name = exo_traffic_columns[column].name;
    bool is_time = exo_traffic_is_time(column);
    if (form == EXO_TRAFFIC_CALLS) {
        if (strcmp(name, "drops") == 0 || strcmp(name, "send_blocked") == 0 ||
            strcmp(name, "device_bytes") == 0)
            return NULL;
        return strcmp(name, "items") == 0 ? "calls" : is_time ? "waited_s" : name;
    }
    snprintf(key, MAX_KEY, "%s%s", name, is_time ? "_s" : "");
    return key;
}

static bool
has_seconds(size_t column, exo_traffic_form form)
{
    return exo_traffic_is_time(column) && form != EXO_TRAFFIC_NUMBERS;
}

static json_t *
value_of(const exo_traffic *traffic, size_t column, exo_traffic_form form)
{
    json_int_t value = (json_int_t)exo_traffic_get(traffic, column);
    return has_seconds(column, form) ? json_real((double)value * 1e-9) : json_integer(value);
}

json_t *
exo_traffic_json(const exo_traffic *traffic, exo_traffic_form form)
{
    json_t *json = form == EXO_TRAFFIC_NUMBERS ? json_array() : json_object();
    for (size_t i = 0; i < EXO_TRAFFIC_COLUMNS; i++) {
        char key[MAX_KEY];
        const char *name = key_of(i, form, key);
        int failed = form == EXO_TRAFFIC_NUMBERS
                         ? json_array_append_new(json, value_of(traffic, i, form))
                     : name ? json_object_set_new(json, name, value_of(traffic, i, form))
                            : 0;
        if (failed) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

static uint64_t
number_of(const json_t *value, bool seconds)
{
    if (seconds) {
        double s = json_number_value(value);
        return s > 0 && s < 9e9 ? (uint64_t)(s * 1e9) : 0;
    }
    json_int_t n = json_integer_value(value);
    return n > 0 ? (uint64_t)n : 0;
}

exo_traffic
exo_traffic_of_json(const json_t *json, exo_traffic_form form)
{
    exo_traffic traffic = {0};
    for (size_t i = 0; i < EXO_TRAFFIC_COLUMNS; i++) {
        char key[MAX_KEY];
        const char *name = key_of(i, form, key);
        const json_t *value = form == EXO_TRAFFIC_NUMBERS ? json_array_get(json, i)
                              : name                      ? json_object_get(json, name)
                                                          : NULL;
        exo_traffic_set(&traffic, i, number_of(value, has_seconds(i, form)));
    }
    return traffic;
}
