/* Edits of a parsed document, which jobs and graphs need for presets, overrides, variables and
 * included files. One thread at a time. Read next: config_edit.c (values), config_include.c
 * (files), config_variables.c, config_presets.c, config_plugins.c. */
#ifndef EXO_BASE_CONFIG_EDIT_H
#define EXO_BASE_CONFIG_EDIT_H

#include <exogym/config.h>

#include "base/grow_text.h"

/* --- Values ----------------------------------------------------------------------------------- */

/* Puts a copy of `value`, with its place for messages, at "a.b.c" of its own document. Errors:
 * INVAL, NOMEM. */
exo_status exo_config_put(exo_config *value, const char *path, exo_err *err);

/* Makes a new mapping, in top's document, with the entries of `base` (may be NULL) and `top`. An
 * entry of `top` replaces the whole entry of `base` with the same key. `top` is a mapping, or a
 * scalar that stands for {name: scalar}. */
exo_status exo_config_overlay(const exo_config *base, exo_config *top, exo_config **out,
                              exo_err *err);

/* The node, or the first value within it, that an assignment of exo_config_set has made; NULL:
 * none. */
const exo_config *exo_config_find_set(const exo_config *node);

/* The value of a key, which is not marked as known: its reader may refuse the key. NULL: none. */
const exo_config *exo_config_peek(const exo_config *map, const char *key);

/* Removes a key from a mapping, if it is there. */
void exo_config_remove(exo_config *map, const char *key);

/* The value of `key`, of any kind, or NULL. Marks the key as known. NULL also if `map` is NULL or
 * no mapping. */
exo_config *exo_config_get(exo_config *map, const char *key);

/* Makes an empty mapping, or list, in the document of `at`, with the place of `at`. */
exo_status exo_config_new_map(const exo_config *at, exo_config **out, exo_err *err);
exo_status exo_config_new_list(const exo_config *at, exo_config **out, exo_err *err);
/* Adds a copy of `value`, from any document, under a new key of a mapping or, with key NULL, to a
 * list. The copy keeps its place. */
exo_status exo_config_graft(exo_config *into, const char *key, const exo_config *value,
                            exo_err *err);
/* Adds an unquoted scalar, with the place of `into`. */
exo_status exo_config_graft_text(exo_config *into, const char *key, const char *text, exo_err *err);
/* Adds a quoted scalar: a string, even if it looks like a number. */
exo_status exo_config_graft_string(exo_config *into, const char *key, const char *text,
                                   exo_err *err);
/* Adds a node of the same document, without a copy. */
exo_status exo_config_adopt(exo_config *into, const char *key, exo_config *value, exo_err *err);
/* Adds the entries of one mapping to another of its document, or the items of a list to a list.
 * INVAL if a key is in both; the message has both places, and `what` the keys' meaning. */
exo_status exo_config_merge(exo_config *into, const exo_config *from, const char *what,
                            exo_err *err);

/* Zeroed memory of the document, freed with it; NULL: no memory. */
void *exo_config_alloc(exo_config_doc *doc, size_t size);
char *exo_config_copy_text(exo_config_doc *doc, const char *text, size_t length);
exo_config_doc *exo_config_document(const exo_config *node);

/* Appends the word as YAML that reads back as this string, in quotes where necessary. */
void exo_config_add_word(exo_text *text, const char *word);

/* --- Whole copies (config_whole.c) ------------------------------------------------------------ */

/* The mapping under `key`. The key may also be given as a name alone, or not at all: then *out is a
 * stand-in, {name: NAME} or an empty mapping, and a whole copy contains the stand-in. Errors: INVAL
 * if the value is a list or null; NOMEM. */
exo_status exo_config_stand_in(exo_config *map, const char *key, exo_config **out, exo_err *err);
/* Records the fallback of the list `key`, which a reader has asked for. */
exo_status exo_config_note_numbers(exo_config *map, const char *key, const double *numbers,
                                   size_t count, exo_err *err);
/* Adds a whole copy of `value`, as exo_config_graft does: each missing key that a reader has asked
 * for is added with its fallback, if text can express that. A number whose reader takes text is
 * quoted. The copy means the same as `value`, and its own whole copy has the same text. Keys that
 * no reader has asked for are copied unchanged. */
exo_status exo_config_graft_whole(exo_config *into, const char *key, const exo_config *value,
                                  exo_err *err);

/* Marks a node of a whole copy as equal to its fallback. */
void exo_config_mark_fallback(exo_config *node);

/* Whether two configurations differ in meaning; `path` then gets the first key that differs, such
 * as "strategy.H". The order of keys, the notation of numbers and amounts, and keys whose value is
 * null do not matter. If `now` is a whole copy, it may have fallbacks for keys that `before` lacks.
 * skipped (NULL-terminated): paths that are not compared; `*` is any key, or any item of a list. */
bool exo_config_differs(const exo_config *before, const exo_config *now, const char *const *skipped,
                        exo_text *path);

/* A hash of the meaning, to find equal configurations among many: two whole copies by the same readers
 * have the same hash if exo_config_differs finds no difference; others rarely have. Errors: NOMEM. */
exo_status exo_config_hash(const exo_config *whole, const char *const *skipped, uint64_t *hash,
                           exo_err *err);

/* --- Places ----------------------------------------------------------------------------------- */

/* Writes "file:line:column", or the override's name: "--set a.b". */
void exo_config_where(const exo_config *node, char *out, size_t size);
/* Puts the place of `node` before the reason in `err`, unless the reason begins with a place.
 * Returns the code of `err`, which stays. */
exo_status exo_config_add_place(const exo_config *node, exo_err *err);
/* The file of the node; the document's file for a node of --set. */
const char *exo_config_source(const exo_config *node);
/* Converts `path`, a value of `node`, to a path from the current folder. A relative path starts at
 * the folder of the node's file, or at the current folder if that file is standard input or another
 * descriptor. The caller frees the result; NULL: no memory. */
char *exo_config_relative(const exo_config *node, const char *path);

/* --- Files ------------------------------------------------------------------------------------ */

/* Reads a further file into a document; messages about its nodes name that file. An empty file
 * gives an empty mapping. Errors: IO, INVAL, TIMEOUT, NOMEM. */
exo_status exo_config_load_more(exo_config_doc *doc, const char *path, exo_config **out,
                                exo_err *err);

/* Notes a file or folder that a value of `at` names and whose contents count as the value does, so that
 * other hosts can compare theirs (graph/files.h). A path that was noted counts once. NOMEM. */
exo_status exo_config_note_file(const exo_config *at, const char *path, exo_err *err);
/* The path of an index, in the order of the notes, and the node that names it; NULL after the last. */
const char *exo_config_noted_file(const exo_config_doc *doc, size_t index, const exo_config **at);

/* Replaces ${NAME} in scalars by the values of the mapping `variables` of `root`, which may lack
 * it. Variables may refer to each other. The result is read like an unquoted scalar; "$${" gives
 * "${". Errors: INVAL for unknown names and cycles, with the place; NOMEM. */
exo_status exo_config_substitute(exo_config *root, exo_err *err);

/* Applies preset `name` (NULL: none) of the mapping `presets`. what: the kind of file, for messages
 * ("job"). */
exo_status exo_config_apply_preset(exo_config *root, const char *name, const char *what,
                                   exo_err *err);
/* Checks the form of all presets, also of those that are not applied. */
exo_status exo_config_check_presets(exo_config *root, exo_err *err);

/* Keeps exo_config_plugins from loading the plugins of this document, which is only inspected:
 * loading a plugin runs its code. */
void exo_config_keep_plugins_out(exo_config_doc *doc);
/* Copies that setting from `other`, from which `doc` was made. */
void exo_config_keep_out_as(exo_config_doc *doc, const exo_config_doc *other);
/* Loads the plugins in the list `plugins`, each relative to the file that names it. *out is the
 * list of their absolute paths, in the document's memory. */
exo_status exo_config_plugins(exo_config *root, const char *const **out, size_t *count,
                              exo_err *err);

/* Whether the text can be the name of a file or folder: at most 100 letters, digits, '_', '.' and
 * '-', with neither '.' nor '-' first. */
bool exo_config_is_label(const char *text);
#define EXO_LABEL_RULE                                                                             \
    "at most 100 letters, digits, '_', '.' and '-', beginning with a letter, digit or '_'"

/* Returns INVAL if `map` has one of `keys` (NULL-terminated) that no reader has asked for. The key
 * belongs to `place`, such as "optimizer.", which the message names. Call it before
 * exo_config_finish, which would suggest a similar key instead. */
exo_status exo_config_check_misplaced(exo_config *map, const char *const *keys, const char *place,
                                      exo_err *err);

#endif
