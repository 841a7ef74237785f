/* Strict configuration: YAML in, typed values out, and every mistake named with file, line and
 * column.
 *
 * A reader asks for the keys that it knows; each call checks type and range and marks the key as
 * known. exo_config_finish then refuses whatever was never asked for, with the nearest known key as
 * a hint. So a struct, its defaults and its checks stand in one place: the function that reads it.
 *
 *     exo_config_u64(c, "H", 100, 1, UINT64_MAX, &self->interval, err)
 *
 * What a reader takes where a key is missing is noted, and a run's config.json has it, unless the
 * reader would not take it as a value: a fallback outside of its own range, or NULL, means that
 * there is none.
 *
 * A node is valid as long as its document. A document belongs to one thread at a time. All readers:
 * INVAL with "file:line:column: reason" for a wrong type or range, and *out untouched.
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
typedef struct exo_config exo_config;         /* a mapping, sequence or scalar in it */

/* Parses a file, or `text` under the name `source` for messages. The file may be a pipe, which is
 * read once, to its end; "-" is standard input. The caller frees the document. Errors: IO (cannot
 * be read), INVAL (not YAML, duplicate key; with place), TIMEOUT (a pipe that nobody has opened for
 * writing within 5 s), NOMEM. */
EXO_API exo_status exo_config_load(exo_config_doc **out, const char *path, exo_err *err);
EXO_API exo_status exo_config_parse(exo_config_doc **out, const char *source, const char *text,
                                    exo_err *err);
EXO_API void exo_config_free(exo_config_doc **doc);

/* The document's root; an empty document is an empty mapping. */
EXO_API exo_config *exo_config_root(exo_config_doc *doc);

/* Overrides one value: "a.b.c=VALUE", VALUE in YAML; missing mappings are made, "name.0" goes into
 * a sequence. Messages about it name "--set a.b.c". Errors: INVAL. */
EXO_API exo_status exo_config_set(exo_config_doc *doc, const char *assignment, exo_err *err);

/* Writes the document, overrides applied, as JSON. The caller frees *out with exo_free. */
EXO_API exo_status exo_config_json(const exo_config *node, char **out, exo_err *err);
/* Writes one node as YAML text in flow style, on one line. The caller frees *out with exo_free. */
EXO_API exo_status exo_config_text(const exo_config *node, char **out, exo_err *err);

/* Is there such a key? Does not mark it. */
EXO_API bool exo_config_has(const exo_config *map, const char *key);

/* Scalars of a mapping; `fallback` where the key is missing. Strings live as long as the
 * document. */
EXO_API exo_status exo_config_bool(exo_config *map, const char *key, bool fallback, bool *out,
                                   exo_err *err);
EXO_API exo_status exo_config_u64(exo_config *map, const char *key, uint64_t fallback, uint64_t min,
                                  uint64_t max, uint64_t *out, exo_err *err);
EXO_API exo_status exo_config_double(exo_config *map, const char *key, double fallback, double min,
                                     double max, double *out, exo_err *err);

/* The same for what is kept as a float: where the fallback is written down, it is the shortest
 * number that is the same float. */
EXO_API exo_status exo_config_float(exo_config *map, const char *key, float fallback, double min,
                                    double max, float *out, exo_err *err);
/* A string; `fallback` may be NULL. */
EXO_API exo_status exo_config_string(exo_config *map, const char *key, const char *fallback,
                                     const char **out, exo_err *err);
/* A string out of `choices`, a NULL-terminated list; *out is its index. */
EXO_API exo_status exo_config_choice(exo_config *map, const char *key, size_t fallback,
                                     const char *const *choices, size_t *out, exo_err *err);

/* Amounts with their unit, "20 ms" or "20ms". A bare number is refused, but for 0. Exact as long as
 * the amount is. Times: ns, us, ms, s, min, h. Rates, in bit/s: bit/s, kbit/s, Mbit/s, Gbit/s,
 * Tbit/s, B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s; and "unlimited", INFINITY, where `max` is
 * INFINITY. Bytes: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB. */
EXO_API exo_status exo_config_time(exo_config *map, const char *key, exo_time fallback,
                                   exo_time min, exo_time max, exo_time *out, exo_err *err);
EXO_API exo_status exo_config_rate(exo_config *map, const char *key, double fallback, double min,
                                   double max, double *out, exo_err *err);
EXO_API exo_status exo_config_bytes(exo_config *map, const char *key, uint64_t fallback,
                                    uint64_t min, uint64_t max, uint64_t *out, exo_err *err);

/* A part of a whole: 0.01, or "1 %". */
EXO_API exo_status exo_config_fraction(exo_config *map, const char *key, double fallback,
                                       double min, double max, double *out, exo_err *err);

/* A mapping or sequence under `key`; *out is NULL where the key is missing. */
EXO_API exo_status exo_config_map(exo_config *map, const char *key, exo_config **out, exo_err *err);
EXO_API exo_status exo_config_list(exo_config *map, const char *key, exo_config **out,
                                   exo_err *err);

/* Items of a sequence, and keys of a mapping in the file's order (marks them as known). */
EXO_API size_t exo_config_length(const exo_config *node);
EXO_API exo_config *exo_config_item(exo_config *list, size_t index);
EXO_API const char *exo_config_key(exo_config *map, size_t index, exo_config **value);

/* What a node is. */
EXO_API bool exo_config_is_map(const exo_config *node);
EXO_API bool exo_config_is_list(const exo_config *node);

/* The node's scalar as a string, or NULL if it is none. */
EXO_API const char *exo_config_scalar(const exo_config *node);

/* Refuses keys of `map` that no reader asked for; does not go into nested mappings, whose readers
 * do so themselves. */
EXO_API exo_status exo_config_finish(exo_config *map, exo_err *err);

/* INVAL with the node's place before the reason. */
EXO_API exo_status exo_config_fail(const exo_config *node, exo_err *err, const char *format, ...)
    EXO_PRINTF(3, 4);

EXO_DECLS_END

#endif
