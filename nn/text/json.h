/* Parts of a JSON file that know where they are, so that an error can say so: "file: model.merges[3]: ...".
 *
 * A part is on the stack of whoever looks into it and points to the one that it is in. */
#ifndef EXO_TEXT_JSON_H
#define EXO_TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <exogym/status.h>

typedef struct exo_json {
    const struct exo_json *up; /* NULL: the file itself     */
    const char *key;           /* NULL: an element of a list */
    size_t index;
    json_t *value;
    const char *file;
} exo_json;

/* "file: place: reason". */
exo_status exo_json_fail(const exo_json *part, exo_err *err, exo_status code, const char *format,
                         ...) EXO_PRINTF(4, 5);
/* Puts "file: place: " before the reason that `err` has. */
exo_status exo_json_in(const exo_json *part, exo_err *err, exo_status code);
/* UNSUPPORTED: a value of this name, which nothing here knows. */
exo_status exo_json_unknown(const exo_json *part, const char *what, const char *name, exo_err *err);

/* The part under the key; false: there is none, or null. */
bool exo_json_find(const exo_json *object, const char *key, exo_json *out);
/* The same, but DAMAGED if it is missing or null. */
exo_status exo_json_get(const exo_json *object, const char *key, exo_json *out, exo_err *err);
exo_json exo_json_item(const exo_json *list, size_t index);

/* DAMAGED: of another type. */
exo_status exo_json_object(const exo_json *part, exo_err *err);
exo_status exo_json_list(const exo_json *part, size_t *count, exo_err *err);
exo_status exo_json_text(const exo_json *part, const char **out, exo_err *err);
/* 0 to `most`. */
exo_status exo_json_number(const exo_json *part, uint64_t most, uint64_t *out, exo_err *err);
/* The text under the key, which must be there. */
exo_status exo_json_text_of(const exo_json *object, const char *key, const char **out,
                            exo_err *err);
/* The flag under the key, or `fallback` if it is missing or null. */
exo_status exo_json_flag_of(const exo_json *object, const char *key, bool fallback, bool *out,
                            exo_err *err);
/* UNSUPPORTED: a key that is none of these (ended by NULL), which says something that would be ignored. */
exo_status exo_json_only(const exo_json *object, const char *const *keys, exo_err *err);

#endif
