/* The tree behind exogym/config.h, for the files config*.c only.
 *
 * A document owns every node and string of its tree, in blocks that are freed with it. A node is a
 * mapping, a list or a scalar; mappings and lists both keep their children in `entries`, a list's
 * entries have no key. Where a node comes from (line and column, or "--set a.b") goes with it when
 * it is copied, so that messages name the place that a person wrote.
 *
 * Read next: config_parse.c (text to tree), config.c (typed readers), config_edit.c (overrides),
 * config_write.c, config_whole.c (a copy with every fallback), config_compare.c. */
#ifndef EXO_BASE_CONFIG_TREE_H
#define EXO_BASE_CONFIG_TREE_H

#include <exogym/config.h>

#include "base/config_edit.h"

enum {
    EXO_CONFIG_MAX_DEPTH = 64,
    EXO_CONFIG_MAX_NODES = 50000, /* also what aliases may multiply a document to */
    EXO_CONFIG_MAX_BYTES = 1 << 20,
};

typedef enum exo_config_kind {
    EXO_CONFIG_SCALAR,
    EXO_CONFIG_MAP,
    EXO_CONFIG_LIST,
} exo_config_kind;

/* Where something was written. `origin` is NULL for what stands in a file, else what to name
 * instead of a place. */
typedef struct exo_config_place {
    const char *origin;
    const char *source;    /* the file; NULL: the document's */
    unsigned line, column; /* from 1 */
} exo_config_place;

typedef struct exo_config_entry {
    const char *key; /* NULL in a list */
    exo_config_place place;
    exo_config *value;
} exo_config_entry;

/* What a reader takes where its key is missing. */
typedef enum exo_config_note_kind {
    EXO_NOTE_NONE, /* nothing that could be written there instead */
    EXO_NOTE_BOOL,
    EXO_NOTE_U64,
    EXO_NOTE_DOUBLE,
    EXO_NOTE_FLOAT, /* a double that is one */
    EXO_NOTE_TIME,
    EXO_NOTE_RATE,
    EXO_NOTE_BYTES,     /* expected: a number */
    EXO_NOTE_U64_BYTES, /* counted            */
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

/* A key that a reader asked for, and what the last of them said. */
typedef struct exo_config_asked {
    struct exo_config_asked *link;
    const char *key;
    exo_config_note note;
    bool is_text;         /* it is read as text, whatever it looks like                       */
    exo_config *stand_in; /* what readers take for it; NULL: what is there (exo_config_stand_in) */
} exo_config_asked;

struct exo_config {
    exo_config_doc *doc;
    exo_config_kind kind;
    exo_config_place place;
    const char *text; /* of a scalar         */
    bool quoted;      /* a scalar in quotes is a string, whatever it looks like */
    bool is_fallback; /* of a whole copy: the same is meant where it is missing */
    bool was_missing; /* likewise: and it was                                   */
    exo_config_entry *entries;
    size_t length, capacity;
    exo_config_asked *asked;
};

/* A file that was read into a document besides its own. */
typedef struct exo_config_file {
    struct exo_config_file *link;
    const char *path;
} exo_config_file;

struct exo_config_doc {
    char *source; /* for messages */
    exo_config_file *files;
    exo_config *root;
    size_t num_nodes;
    bool without_plugins; /* they are not loaded: the file is only looked at */
    struct exo_config_block *blocks;
};

exo_status exo_config_new(exo_config_doc *doc, exo_config_kind kind, const exo_config_place *place,
                          exo_config **out, exo_err *err);
/* Adds a child; `key` (NULL in a list) lives as long as the document. */
exo_status exo_config_append(exo_config *parent, const char *key, const exo_config_place *place,
                             exo_config *value, exo_err *err);
exo_config_entry *exo_config_find(const exo_config *map, const char *key);
/* Finds `key` of a mapping and marks it as known; *out is NULL where it is missing. */
exo_status exo_config_ask(exo_config *map, const char *key, exo_config **out, exo_err *err);
/* The same of a reader that takes `note` where there is none. */
exo_status exo_config_ask_noting(exo_config *map, const char *key, const exo_config_note *note,
                                 exo_config **out, exo_err *err);
/* What was said when `key` was asked for; NULL: it was not. */
const exo_config_asked *exo_config_asked_of(const exo_config *map, const char *key);
/* "true" or "false" as YAML reads the word, or NULL. */
const char *exo_config_boolean(const char *text);
/* Is it an unquoted scalar that YAML reads as null? */
bool exo_config_is_null(const exo_config *node);
/* INVAL with `place` before the reason. */
exo_status exo_config_fail_at(const exo_config_doc *doc, const exo_config_place *place,
                              exo_err *err, const char *format, ...) EXO_PRINTF(4, 5);

/* Parses `size` bytes of YAML into nodes of `doc`; `source` and `origin` as in exo_config_place.
 * *out is NULL for an empty text. */
exo_status exo_config_read(exo_config_doc *doc, const char *text, size_t size, const char *source,
                           const char *origin, exo_config **out, exo_err *err);
/* The bytes of a file, a pipe or, as "-", standard input (input.h), with a 0 after them; the caller
 * frees *text. IO, INVAL (larger than EXO_CONFIG_MAX_BYTES), TIMEOUT (a pipe that nobody writes
 * into), NOMEM. */
exo_status exo_config_read_file(const char *path, char **text, size_t *size, exo_err *err);

/* INVAL: "key: expected WHAT, got ...". */
exo_status exo_config_fail_type(const exo_config *node, const char *key, const char *expected,
                                exo_err *err);

/* Does `text` look like a number? On true, *integer says whether it has no fraction and no
 * exponent. */
bool exo_config_is_number(const char *text, bool *integer);
double exo_config_to_double(const char *text);

#endif
