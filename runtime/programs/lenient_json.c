/* JSON with integers beyond jansson's range: see lenient_json.h. */
#include "programs/lenient_json.h"

#include <math.h>
#include <stddef.h>

/* An integer, if the real has an integer's value and is exact; else NULL. */
static json_t *
exact(json_t *value)
{
    double real = json_real_value(value);
    return json_is_real(value) && real == rint(real) && fabs(real) < 0x1p53
               ? json_integer((json_int_t)real)
               : NULL;
}

static void
restore_integers(json_t *json)
{
    const char *key;
    size_t i;
    json_t *value;
    void *next;
    json_object_foreach_safe(json, next, key, value)
    {
        json_t *integer = exact(value);
        if (integer)
            json_object_set_new(json, key, integer);
        else
            restore_integers(value);
    }
    json_array_foreach (json, i, value) {
        json_t *integer = exact(value);
        if (integer)
            json_array_set_new(json, i, integer);
        else
            restore_integers(value);
    }
}

json_t *
exo_json_load(const char *text, size_t size, json_error_t *reason)
{
    json_t *json = json_loadb(text, size, 0, reason);
    if (json || json_error_code(reason) != json_error_numeric_overflow)
        return json;
    json = json_loadb(text, size, JSON_DECODE_INT_AS_REAL, reason);
    restore_integers(json);
    return json;
}
