/* Strict configuration: YAML documents whose values are read with types. Every mistake is reported
 * with file, line and column.
 *
 * A reader asks for the keys that it knows; each call checks type and range, and marks the key as
 * known. exo_config_finish then refuses keys that nobody asked for, and suggests the nearest known
 * key. So one function, the reader, contains the options of a struct, their defaults and their
 * checks.
 *
 *     exo_config_u64(c, "H", 100, 1, UINT64_MAX, &self->interval, err)
 *
 * Where a key is missing, the reader takes `fallback`, and the document notes the value for a run's
 * config.json. A fallback outside the allowed range, or NULL, stands for "none" and is not noted.
 *
 * Nodes are valid as long as their document. A document belongs to one thread at a time. All
 * readers: a wrong type or range is INVAL with "file:line:column: reason", and *out keeps its
 * value. A number that is not 0 in the file is not 0 in *out: one that is too small (below 5e-324,
 * of a float 1e-45, of a time half a nanosecond) is INVAL, as one that is too large.
 */
#ifndef EXOGYM_CONFIG_H
#define EXOGYM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

typedef struct exo_config_doc exo_config_doc; /* a parsed document */
/* A node of a document: a mapping, sequence or scalar. */
typedef struct exo_config exo_config;

/* Parses the file at `path`. The file may be a pipe, which is read once, to its end; "-" is
 * standard input. The caller frees the document. Errors: IO (cannot be read), INVAL (not YAML, or a
 * duplicate key; with place), TIMEOUT (nobody opened a pipe for writing within 5 s), NOMEM. */
EXO_API exo_status exo_config_load(exo_config_doc **out, const char *path, exo_err *err);
/* The same for `text`, which error messages call `source`. */
EXO_API exo_status exo_config_parse(exo_config_doc **out, const char *source, const char *text,
                                    exo_err *err);
/* Frees *doc with its nodes and sets it to NULL; accepts NULL in it. */
EXO_API void exo_config_free(exo_config_doc **doc);

/* The root of the document. The root of an empty document is an empty mapping. */
EXO_API exo_config *exo_config_root(exo_config_doc *doc);

/* Overrides one value: "a.b.c=VALUE", with VALUE in YAML. Missing mappings are made; a number as in
 * "name.0" is an index of a sequence. Error messages about the value name "--set a.b.c". Errors:
 * INVAL. */
EXO_API exo_status exo_config_set(exo_config_doc *doc, const char *assignment, exo_err *err);

/* Writes a node, overrides applied, as JSON. The caller frees *out with exo_free. */
EXO_API exo_status exo_config_json(const exo_config *node, char **out, exo_err *err);
/* Writes a node as YAML in flow style, on one line. The caller frees *out with exo_free. */
EXO_API exo_status exo_config_text(const exo_config *node, char **out, exo_err *err);

/* Whether the mapping has the key. Does not mark the key as known. */
EXO_API bool exo_config_has(const exo_config *map, const char *key);

/* Readers of scalars in a mapping; *out is `fallback` where the key is missing. Strings live as
 * long as the document. */
EXO_API exo_status exo_config_bool(exo_config *map, const char *key, bool fallback, bool *out,
                                   exo_err *err);
EXO_API exo_status exo_config_u64(exo_config *map, const char *key, uint64_t fallback, uint64_t min,
                                  uint64_t max, uint64_t *out, exo_err *err);
EXO_API exo_status exo_config_double(exo_config *map, const char *key, double fallback, double min,
                                     double max, double *out, exo_err *err);

/* The same for an option that is kept as a float. The noted fallback is the shortest number that
 * gives the same float. */
EXO_API exo_status exo_config_float(exo_config *map, const char *key, float fallback, double min,
                                    double max, float *out, exo_err *err);
/* Reads a string; `fallback` may be NULL. */
EXO_API exo_status exo_config_string(exo_config *map, const char *key, const char *fallback,
                                     const char **out, exo_err *err);
/* Reads a string that must be one of `choices`, a NULL-terminated list; *out is its index,
 * `fallback` the default index. */
EXO_API exo_status exo_config_choice(exo_config *map, const char *key, size_t fallback,
                                     const char *const *choices, size_t *out, exo_err *err);

/* Reads an amount with its unit: "20 ms" or "20ms". Only 0 may stand without a unit. An amount is
 * exact if it is a whole number with its unit.
 *   time:  ns, us, ms, s, min, h
 *   rate:  bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s;
 *          *out is in bit/s. Where `max` is INFINITY also "unlimited", which is INFINITY.
 *   bytes: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB */
EXO_API exo_status exo_config_time(exo_config *map, const char *key, exo_time fallback,
                                   exo_time min, exo_time max, exo_time *out, exo_err *err);
EXO_API exo_status exo_config_rate(exo_config *map, const char *key, double fallback, double min,
                                   double max, double *out, exo_err *err);
EXO_API exo_status exo_config_bytes(exo_config *map, const char *key, uint64_t fallback,
                                    uint64_t min, uint64_t max, uint64_t *out, exo_err *err);

/* Reads a part of a whole: 0.01, or "1 %". */
EXO_API exo_status exo_config_fraction(exo_config *map, const char *key, double fallback,
                                       double min, double max, double *out, exo_err *err);

/* Reads a mapping or sequence; *out is NULL where the key is missing. */
EXO_API exo_status exo_config_map(exo_config *map, const char *key, exo_config **out, exo_err *err);
EXO_API exo_status exo_config_list(exo_config *map, const char *key, exo_config **out,
                                   exo_err *err);

/* The number of items of a sequence or keys of a mapping; the item of an index; the key of an index
 * in the order of the file, with its value. exo_config_key marks the key as known. */
EXO_API size_t exo_config_length(const exo_config *node);
EXO_API exo_config *exo_config_item(exo_config *list, size_t index);
EXO_API const char *exo_config_key(exo_config *map, size_t index, exo_config **value);

/* The kind of a node. */
EXO_API bool exo_config_is_map(const exo_config *node);
EXO_API bool exo_config_is_list(const exo_config *node);

/* The text of a scalar; NULL if the node is not a scalar. */
EXO_API const char *exo_config_scalar(const exo_config *node);
/* The same of a scalar without quotes; NULL also of a string in quotes, which is no number whatever it
 * looks like. For items of lists of numbers. */
EXO_API const char *exo_config_plain(const exo_config *node);

/* Refuses keys of `map` that no reader asked for. Nested mappings are not checked: their readers
 * call exo_config_finish themselves. */
EXO_API exo_status exo_config_finish(exo_config *map, exo_err *err);

/* Fails with INVAL; the text begins with the node's place. */
EXO_API exo_status exo_config_fail(const exo_config *node, exo_err *err, const char *format, ...)
    EXO_PRINTF(3, 4);

EXO_DECLS_END

#endif
