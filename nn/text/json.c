/* Parts of a JSON file: their search, the checks of their types, and their places in errors. See
 * json.h. */
#include "nn/text/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/grow_text.h"

static void
place(const exo_json *part, exo_text *out)
{
    if (!part->up)
        return;
    place(part->up, out);
    if (part->key)
        exo_text_add(out, "%s%.64s", out->length ? "." : "", part->key);
    else
        exo_text_add(out, "[%zu]", part->index);
}

exo_status
exo_json_in(const exo_json *part, exo_err *err, exo_status code)
{
    exo_text where = {0};
    place(part, &where);
    code = where.length ? exo_fail_in(err, code, "%s: %s", part->file, where.data)
                        : exo_fail_in(err, code, "%s", part->file);
    exo_free(where.data);
    return code;
}

exo_status
exo_json_fail(const exo_json *part, exo_err *err, exo_status code, const char *format, ...)
{
    char reason[EXO_ERR_TEXT];
    va_list args;
    va_start(args, format);
    exo_c_vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    exo_fail(err, code, "%s", reason);
    return exo_json_in(part, err, code);
}

exo_status
exo_json_unknown(const exo_json *part, const char *what, const char *name, const char *known,
                 exo_err *err)
{
    return exo_json_fail(part, err, EXO_UNSUPPORTED, "%s '%.64s' is not supported%s%s", what, name,
                         known ? ", only " : "", known ? known : "");
}

bool
exo_json_find(const exo_json *object, const char *key, exo_json *out)
{
    json_t *value = json_object_get(object->value, key);
    *out = (exo_json){.up = object, .key = key, .value = value, .file = object->file};
    return value && !json_is_null(value);
}

exo_status
exo_json_get(const exo_json *object, const char *key, exo_json *out, exo_err *err)
{
    exo_status st = exo_json_object(object, err);
    *out = (exo_json){0};
    if (st == EXO_OK && !exo_json_find(object, key, out))
        st = exo_json_fail(object, err, EXO_DAMAGED, "'%s' is missing", key);
    return st;
}

exo_json
exo_json_item(const exo_json *list, size_t index)
{
    return (exo_json){.up = list,
                      .index = index,
                      .value = json_array_get(list->value, index),
                      .file = list->file};
}

static exo_status
expected(const exo_json *part, const char *what, exo_err *err)
{
    static const char *const names[] = {"an object", "a list", "a text", "a number",
                                        "a number",  "true",   "false",  "null"};
    json_type type = json_typeof(part->value);
    return exo_json_fail(part, err, EXO_DAMAGED, "%s is expected, but this is %s", what,
                         (size_t)type < sizeof names / sizeof *names ? names[type]
                                                                     : "something else");
}

exo_status
exo_json_object(const exo_json *part, exo_err *err)
{
    return json_is_object(part->value) ? EXO_OK : expected(part, "an object", err);
}

exo_status
exo_json_list(const exo_json *part, size_t *count, exo_err *err)
{
    if (!json_is_array(part->value))
        return expected(part, "a list", err);
    *count = json_array_size(part->value);
    return EXO_OK;
}

exo_status
exo_json_text(const exo_json *part, const char **out, exo_err *err)
{
    if (!json_is_string(part->value))
        return expected(part, "a text", err);
    *out = json_string_value(part->value);
    return EXO_OK;
}

exo_status
exo_json_number(const exo_json *part, uint64_t most, uint64_t *out, exo_err *err)
{
    if (!json_is_integer(part->value))
        return expected(part, "a whole number", err);
    json_int_t value = json_integer_value(part->value);
    if (value < 0 || (uint64_t)value > most)
        return exo_json_fail(part, err, EXO_DAMAGED, "%lld is not between 0 and %llu",
                             (long long)value, (unsigned long long)most);
    *out = (uint64_t)value;
    return EXO_OK;
}

exo_status
exo_json_text_of(const exo_json *object, const char *key, const char **out, exo_err *err)
{
    exo_json part;
    exo_status st = exo_json_get(object, key, &part, err);
    return st == EXO_OK ? exo_json_text(&part, out, err) : st;
}

exo_status
exo_json_flag_of(const exo_json *object, const char *key, bool fallback, bool *out, exo_err *err)
{
    exo_json part;
    *out = fallback;
    if (!exo_json_find(object, key, &part))
        return EXO_OK;
    if (!json_is_boolean(part.value))
        return expected(&part, "true or false", err);
    *out = json_is_true(part.value);
    return EXO_OK;
}

exo_status
exo_json_only(const exo_json *object, const char *const *keys, exo_err *err)
{
    exo_status st = exo_json_object(object, err);
    if (st != EXO_OK)
        return st;
    const char *key;
    json_t *value;
    json_object_foreach (object->value, key, value) {
        const char *const *known = keys;
        while (*known && strcmp(*known, key) != 0)
            known++;
        if (!*known)
            return exo_json_unknown(object, "the key", key, NULL, err);
    }
    return EXO_OK;
}
