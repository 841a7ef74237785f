/* The tree behind exogym/config.h, for the files config*.c only.
 *
 * A document owns every node and string of its tree, in blocks that are freed with it. A node is a
 * mapping, a list or a scalar. Mappings and lists keep their children in `entries`; the entries of
 * a list have no key. Each node keeps its origin (line and column, or "--set a.b") when it is
 * copied, so messages name the place where its author wrote it.
 *
 * Owner: one thread at a time. Read next: config_parse.c (text to tree), config.c (typed readers),
 * config_edit.c (overrides), config_write.c, config_whole.c (a copy with every fallback),
 * config_compare.c. */
#ifndef EXO_BASE_CONFIG_TREE_H
#define EXO_BASE_CONFIG_TREE_H

#include <exogym/config.h>

#include "base/config_edit.h"

enum {
    EXO_CONFIG_MAX_DEPTH = 64,
    EXO_CONFIG_MAX_NODES = 50000, /* also the limit for documents that aliases multiply */
    EXO_CONFIG_MAX_BYTES = 1 << 20,
};

typedef enum exo_config_kind {
    EXO_CONFIG_SCALAR,
    EXO_CONFIG_MAP,
    EXO_CONFIG_LIST,
} exo_config_kind;

/* The place of a node in its source. `origin` is NULL for a node of a file; otherwise messages name
 * it instead of a place. */
typedef struct exo_config_place {
    const char *origin;
    const char *source;                /* the file; NULL: the document's */
    unsigned line, column;             /* from 1 */
    unsigned alias_line, alias_column; /* of the alias that stands for it; 0: none */
} exo_config_place;

typedef struct exo_config_entry {
    const char *key; /* NULL in a list */
    exo_config_place place;
    exo_config *value;
} exo_config_entry;

/* The kinds of fallback that a reader may use if its key is missing. */
typedef enum exo_config_note_kind {
    EXO_NOTE_NONE, /* no text expresses the fallback */
    EXO_NOTE_BOOL,
    EXO_NOTE_U64,
    EXO_NOTE_DOUBLE,
    EXO_NOTE_FLOAT, /* a double that is rounded to a float */
    EXO_NOTE_TIME,
    EXO_NOTE_RATE,
    EXO_NOTE_BYTES,     /* an expected size: a real number */
    EXO_NOTE_U64_BYTES, /* an exact size: a whole number */
    EXO_NOTE_STRING,
    EXO_NOTE_NUMBERS, /* a list */
} exo_config_note_kind;

typedef struct exo_config_note {
    exo_config_note_kind kind;
    union {
        bool truth;
        uint64_t integer;
        double number;
        exo_time time;
        const char *text;
        const double *numbers;
    };
    size_t count; /* of numbers */
} exo_config_note;

/* A key that a reader has asked for, and its most recent fallback. */
typedef struct exo_config_asked {
    struct exo_config_asked *link;
    const char *key;
    exo_config_note note;
    bool is_text; /* its reader takes it as text, even if it looks like a number */
    /* the mapping that readers get instead of the entry; NULL: the entry itself
     * (exo_config_stand_in) */
    exo_config *stand_in;
} exo_config_asked;

struct exo_config {
    exo_config_doc *doc;
    exo_config_kind kind;
    exo_config_place place;
    const char *text; /* of a scalar */
    bool quoted;      /* a quoted scalar is a string, even if it looks like a number */
    bool is_fallback; /* in a whole copy: equal to the fallback */
    bool was_missing; /* in a whole copy: the key was missing */
    exo_config_entry *entries;
    size_t length, capacity;
    exo_config_asked *asked;
    bool forgot;            /* no memory for a key that was asked for */
    const char *stands_for; /* the key of a name for which the mapping stands in; NULL: none */
};

/* A further file that was read into a document. */
typedef struct exo_config_file {
    struct exo_config_file *link;
    const char *path;
} exo_config_file;

/* A file or folder that a value names (exo_config_note_file). */
typedef struct exo_config_named {
    struct exo_config_named *link;
    const char *path;
    const exo_config *at;
} exo_config_named;

struct exo_config_doc {
    char *source; /* for messages */
    exo_config_file *files;
    exo_config_named *named; /* in the order of the notes */
    exo_config *root;
    size_t num_nodes;
    bool without_plugins; /* plugins are not loaded, because the document is only inspected */
    struct exo_config_block *blocks;
};

/* Makes an empty node of the document. Errors: INVAL (too many), NOMEM. */
exo_status exo_config_new(exo_config_doc *doc, exo_config_kind kind, const exo_config_place *place,
                          exo_config **out, exo_err *err);
/* Adds a child; `key` (NULL in a list) must live as long as the document. Errors: NOMEM. */
exo_status exo_config_append(exo_config *parent, const char *key, const exo_config_place *place,
                             exo_config *value, exo_err *err);
/* The entry of that key, or NULL. */
exo_config_entry *exo_config_find(const exo_config *map, const char *key);
/* Finds `key` of a mapping and marks it as known; *out is NULL if it is missing. */
exo_status exo_config_ask(exo_config *map, const char *key, exo_config **out, exo_err *err);
/* exo_config_ask for a reader whose fallback is `note`. */
exo_status exo_config_ask_noting(exo_config *map, const char *key, const exo_config_note *note,
                                 exo_config **out, exo_err *err);
/* Adds to an error about a mapping that one of its keys, which nobody has asked for yet, probably
 * stands for a key that was not found: "; is 'rewadr' in line 13 meant to be 'reward'?" That key must
 * be in the error's text, or one letter of a long word be wrong. exo_config_fail does it. */
void exo_config_suggest(const exo_config *map, exo_err *err);
/* The record of a key that was asked for; NULL: nobody asked. */
exo_config_asked *exo_config_asked_of(const exo_config *map, const char *key);
/* "true" or "false" if YAML reads the word as a boolean, else NULL. */
const char *exo_config_boolean(const char *text);
/* Whether the node is an unquoted scalar that YAML reads as null. */
bool exo_config_is_null(const exo_config *node);
/* Returns INVAL, with `place` before the reason. */
exo_status exo_config_fail_at(const exo_config_doc *doc, const exo_config_place *place,
                              exo_err *err, const char *format, ...) EXO_PRINTF(4, 5);

/* Parses `size` bytes of YAML into nodes of `doc`; `source` and `origin` are those of
 * exo_config_place. *out is NULL for an empty text. Errors: INVAL, NOMEM. */
exo_status exo_config_read(exo_config_doc *doc, const char *text, size_t size, const char *source,
                           const char *origin, exo_config **out, exo_err *err);
/* Reads a file, a pipe or, as "-", standard input (input.h), with a NUL appended. The caller frees
 * *text. Errors: IO, INVAL (larger than EXO_CONFIG_MAX_BYTES), TIMEOUT (a pipe without a writer),
 * NOMEM. */
exo_status exo_config_read_file(const char *path, char **text, size_t *size, exo_err *err);

/* Returns INVAL: "key: expected WHAT, got ...". */
exo_status exo_config_fail_type(const exo_config *node, const char *key, const char *expected,
                                exo_err *err);

/* Whether `text` is a number. If so, *integer is true if it has no fraction and no exponent. */
bool exo_config_is_number(const char *text, bool *integer);
/* The value of a number's text, in any locale. An overflow gives infinity. */
double exo_config_to_double(const char *text);
/* Whether the number's text is not 0, though its value, as read or rounded, is: a number that is too
 * small would switch off what 0 switches off. */
bool exo_config_vanishes(const char *text, double value);

#endif
