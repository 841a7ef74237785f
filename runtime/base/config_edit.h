/* Changing a parsed document: what jobs and graphs do with presets, overrides, variables, and files
 * that include others. One thread at a time. Read next: config_edit.c (values), config_include.c
 * (files), config_variables.c, config_presets.c, config_plugins.c. */
#ifndef EXO_BASE_CONFIG_EDIT_H
#define EXO_BASE_CONFIG_EDIT_H

#include <exogym/config.h>

#include "base/grow_text.h"

/* --- Values ----------------------------------------------------------------------------------- */

/* Puts a copy of `value`, which keeps its place for messages, at "a.b.c" of its own document.
 * Errors: INVAL, NOMEM. */
exo_status exo_config_put(exo_config *value, const char *path, exo_err *err);

/* A new mapping with the entries of `base` (may be NULL), each replaced as a whole by the entry of
 * `top` of the same key, and the other entries of `top`. `top` is a mapping, or a scalar that
 * stands for {name: scalar}. Belongs to top's document. */
exo_status exo_config_overlay(const exo_config *base, exo_config *top, exo_config **out,
                              exo_err *err);

/* Takes a key out of a mapping; nothing if it is not there. */
void exo_config_remove(exo_config *map, const char *key);

/* The value under `key`, whatever it is, or NULL; marks the key as known. NULL also if `map` is
 * NULL or no mapping. */
exo_config *exo_config_get(exo_config *map, const char *key);

/* An empty mapping, or list, of the document of `at` and with its place. */
exo_status exo_config_new_map(const exo_config *at, exo_config **out, exo_err *err);
exo_status exo_config_new_list(const exo_config *at, exo_config **out, exo_err *err);
/* Adds a copy of `value`, of any document, under a new key of a mapping or, with NULL, to a list.
 * It keeps its place. */
exo_status exo_config_graft(exo_config *into, const char *key, const exo_config *value,
                            exo_err *err);
/* Likewise a scalar, unquoted, with the place of `into`. */
exo_status exo_config_graft_text(exo_config *into, const char *key, const char *text, exo_err *err);
/* Likewise in quotes: a string, whatever it looks like. */
exo_status exo_config_graft_string(exo_config *into, const char *key, const char *text,
                                   exo_err *err);
/* Adds a node of the same document itself. */
exo_status exo_config_adopt(exo_config *into, const char *key, exo_config *value, exo_err *err);
/* Adds the entries of one mapping to another of its document, or the items of a list to a list.
 * INVAL: a key is in both; `what` says what it names, and the message has both places. */
exo_status exo_config_merge(exo_config *into, const exo_config *from, const char *what,
                            exo_err *err);

/* Memory of the document: zeroed, freed with it; NULL if there is none. */
void *exo_config_alloc(exo_config_doc *doc, size_t size);
char *exo_config_copy_text(exo_config_doc *doc, const char *text, size_t length);
exo_config_doc *exo_config_document(const exo_config *node);

/* Adds a word that YAML reads back as this string, in quotes where it needs them. */
void exo_config_add_word(exo_text *text, const char *word);

/* --- Wholes (config_whole.c) ------------------------------------------------------------------ */

/* The mapping under `key`, which may also be given by its name alone, or not at all: then one that
 * has that name, or nothing, stands in for it, and in a whole copy. INVAL: it is a list, or
 * nothing. */
exo_status exo_config_stand_in(exo_config *map, const char *key, exo_config **out, exo_err *err);
/* Notes what is taken where the list `key`, which a reader has asked for, is missing. */
exo_status exo_config_note_numbers(exo_config *map, const char *key, const double *numbers,
                                   size_t count, exo_err *err);
/* exo_config_graft of a whole copy: with every key that was asked for and is missing, where its
 * reader could be given what it takes instead. A number that is text to its reader is in quotes.
 * Read again, it means the same, and its whole is the same text. What nobody has asked for is
 * copied as it is. */
exo_status exo_config_graft_whole(exo_config *into, const char *key, const exo_config *value,
                                  exo_err *err);

/* Says of a node of a whole copy that the same is meant where it is missing. */
void exo_config_mark_fallback(exo_config *node);

/* Writes the path of the first key that does not mean the same in both, such as "strategy.H";
 * false: there is none. The order of keys does not matter, nor how a number or an amount is
 * written, nor whether a key of nothing (null) is there. What is missing in `before` may be there
 * in `now` as a fallback, where that is a whole copy. `skipped` (NULL-terminated): paths that are
 * not compared. */
bool exo_config_differs(const exo_config *before, const exo_config *now, const char *const *skipped,
                        exo_text *path);

/* --- Places ----------------------------------------------------------------------------------- */

/* "file:line:column", or what overrode it: "--set a.b". */
void exo_config_where(const exo_config *node, char *out, size_t size);
/* Puts the place of `node` before the reason in `err` if it begins with no place of its own, and
 * keeps the code. */
exo_status exo_config_add_place(const exo_config *node, exo_err *err);
/* The file that the node was written in; what --set wrote counts as written in the document's. */
const char *exo_config_source(const exo_config *node);
/* `path`, which stands in `node`, from the current folder: a relative one starts at the file's
 * folder, or at the current one if the file is standard input or another descriptor. NULL: no
 * memory. */
char *exo_config_relative(const exo_config *node, const char *path);

/* --- Files ------------------------------------------------------------------------------------ */

/* Reads a further file into a document: its nodes name it in messages. An empty file is an empty
 * mapping. IO, INVAL, NOMEM. */
exo_status exo_config_load_more(exo_config_doc *doc, const char *path, exo_config **out,
                                exo_err *err);

/* Puts the values of the mapping `variables` of `root` (which may lack it) into the scalars that
 * name them, ${NAME}. Variables may name each other. What results is read as if it stood there
 * without quotes; "$${" gives "${". INVAL: unknown names, rings, with place. */
exo_status exo_config_substitute(exo_config *root, exo_err *err);

/* Applies preset `name` (NULL: none) of the mapping `presets`. `what` the file is ("job"), for
 * messages. */
exo_status exo_config_apply_preset(exo_config *root, const char *name, const char *what,
                                   exo_err *err);
/* Presets are checked for form also when they are not asked for. */
exo_status exo_config_check_presets(exo_config *root, exo_err *err);

/* Loads the plugins that the list `plugins` names, each relative to the file where it stands. *out
 * is their absolute paths, in the document's memory. */
/* Of this document plugins are named, but not loaded: it is only looked at, and loading one runs
 * its code. */
void exo_config_keep_plugins_out(exo_config_doc *doc);
/* The same for a document that was made of `other`, if it holds for that. */
void exo_config_keep_out_as(exo_config_doc *doc, const exo_config_doc *other);
exo_status exo_config_plugins(exo_config *root, const char *const **out, size_t *count,
                              exo_err *err);

/* Is it a name that can become a file's or a folder's? At most 100 letters, digits, '_', '.', '-';
 * none of the last two first. */
bool exo_config_is_label(const char *text);
#define EXO_LABEL_RULE                                                                             \
    "at most 100 letters, digits, '_', '.' and '-', beginning with a letter, digit or '_'"

/* INVAL if `map` has one of `keys`, a NULL-terminated list, that no reader asked for: it belongs to
 * `place`, such as "optimizer.", which the message puts before it. Called before exo_config_finish,
 * which would guess at a neighbour. */
exo_status exo_config_check_misplaced(exo_config *map, const char *const *keys, const char *place,
                                      exo_err *err);

#endif
