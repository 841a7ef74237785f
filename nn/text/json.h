/* Parts of a JSON file that know their place, so that an error can name it:
 *
 *     file: model.merges[3]: two tokens are expected, but these are 3
 *
 * A part is on the stack of the function that reads it, and points to the part that contains it.
 * The file's root owns the values. Read next: json.c. */
#ifndef EXO_TEXT_JSON_H
#define EXO_TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <exogym/status.h>

typedef struct exo_json {
    const struct exo_json *up; /* the part that contains it; NULL: this is the root */
    const char *key;           /* NULL: an element of a list, or the root */
    size_t index;
    json_t *value;
    const char *file;
} exo_json;

/* Sets `err` to "file: place: reason", and returns `code`. */
exo_status exo_json_fail(const exo_json *part, exo_err *err, exo_status code, const char *format,
                         ...) EXO_PRINTF(4, 5);
/* Puts "file: place: " before the reason in `err`, and returns `code`. */
exo_status exo_json_in(const exo_json *part, exo_err *err, exo_status code);
/* Fails with UNSUPPORTED: `what`, such as "the normalizer", has an unknown name. known: the names that
 * there are, for the message; may be NULL. */
exo_status exo_json_unknown(const exo_json *part, const char *what, const char *name,
                            const char *known, exo_err *err);

/* The part under the key. False: it is missing or null. */
bool exo_json_find(const exo_json *object, const char *key, exo_json *out);
/* The part under the key. DAMAGED: it is missing or null, or `object` is no object. */
exo_status exo_json_get(const exo_json *object, const char *key, exo_json *out, exo_err *err);
exo_json exo_json_item(const exo_json *list, size_t index);

/* Checks of a part's type, with its value. DAMAGED: it has another type. */
exo_status exo_json_object(const exo_json *part, exo_err *err);
exo_status exo_json_list(const exo_json *part, size_t *count, exo_err *err);
exo_status exo_json_text(const exo_json *part, const char **out, exo_err *err);
/* DAMAGED also for a number that is not in 0..most. */
exo_status exo_json_number(const exo_json *part, uint64_t most, uint64_t *out, exo_err *err);
/* The text under the key. DAMAGED: it is missing or null, or no text. */
exo_status exo_json_text_of(const exo_json *object, const char *key, const char **out,
                            exo_err *err);
/* The flag under the key, or `fallback` if it is missing or null. DAMAGED: it is no flag. */
exo_status exo_json_flag_of(const exo_json *object, const char *key, bool fallback, bool *out,
                            exo_err *err);
/* Checks that an object has no other keys than `keys`, a list that ends with NULL: an unknown key
 * would be ignored silently. UNSUPPORTED: it has another. DAMAGED: no object. */
exo_status exo_json_only(const exo_json *object, const char *const *keys, exo_err *err);

#endif
