/* YAML to tree, with libfyaml's event parser. The tree is this library's own, so that every node
 * knows its place.
 *
 * Aliases become copies of their anchors; merge keys (<<) add the entries that a mapping lacks.
 * Tags, complex keys and several documents in one file are refused. No state outlives a call. Read
 * next: config.c. */
#include "base/config_tree.h"

#include <libfyaml.h>
#include <string.h>

struct anchor {
    struct anchor *link;
    const char *name;
    exo_config *node; /* complete, so an alias inside its own anchor is unknown */
};

struct reader {
    exo_config_doc *doc;
    const char *source, *origin;
    struct fy_diag *diag;
    struct fy_parser *parser;
    struct anchor *anchors; /* the newest first */
    exo_err *err;
};

static exo_config_place
place_of(const struct reader *r, struct fy_event *event)
{
    const struct fy_mark *mark = fy_event_start_mark(event);
    exo_config_place place = {.origin = r->origin, .source = r->source, .line = 1, .column = 1};
    if (mark) {
        place.line = (unsigned)mark->line + 1;
        place.column = (unsigned)mark->column + 1;
    }
    /* libfyaml marks the character after a quote or an asterisk; a person looks for the sign
     * itself. */
    bool quoted = event->type == FYET_SCALAR && event->scalar.value &&
                  (fy_token_scalar_style(event->scalar.value) == FYSS_SINGLE_QUOTED ||
                   fy_token_scalar_style(event->scalar.value) == FYSS_DOUBLE_QUOTED);
    if ((quoted || event->type == FYET_ALIAS) && place.column > 1)
        place.column--;
    return place;
}

/* Reports libfyaml's first error, which is the cause of the others. */
static exo_status
fail_syntax(struct reader *r)
{
    void *iterator = NULL;
    struct fy_diag_error *error = fy_diag_errors_iterate(r->diag, &iterator);
    exo_config_place place = {.origin = r->origin, .source = r->source, .line = 1, .column = 1};
    if (!error || !error->msg)
        return exo_config_fail_at(r->doc, &place, r->err, "this is not YAML");
    place.line = error->line > 0 ? (unsigned)error->line : 1;
    place.column = error->column > 0 ? (unsigned)error->column : 1;
    return exo_config_fail_at(r->doc, &place, r->err, "%.*s", (int)strcspn(error->msg, "\r\n"),
                              error->msg);
}

static exo_status
next_event(struct reader *r, struct fy_event **out)
{
    *out = fy_parser_parse(r->parser);
    return *out && !fy_parser_get_stream_error(r->parser) ? EXO_OK : fail_syntax(r);
}

static exo_status
fail_nomem(struct reader *r)
{
    return exo_fail(r->err, EXO_NOMEM, "%s: out of memory", r->doc->source);
}

/* The length of the UTF-8 character at `text` (Unicode 15, table 3-7); 0 if it is invalid or
 * NUL. */
static size_t
utf8_length(const unsigned char *text, size_t size)
{
    static const struct {
        unsigned char first, last, second_first, second_last, length;
    } rows[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (text[0] < rows[i].first || text[0] > rows[i].last)
            continue;
        if (rows[i].length > size)
            return 0;
        for (size_t k = 1; k < rows[i].length; k++) {
            unsigned char low = k == 1 ? rows[i].second_first : 0x80;
            unsigned char high = k == 1 ? rows[i].second_last : 0xbf;
            if (text[k] < low || text[k] > high)
                return 0;
        }
        return rows[i].length;
    }
    return 0;
}

static exo_status
token_text(struct reader *r, struct fy_token *token, const exo_config_place *place,
           const char **out)
{
    size_t length = 0;
    const char *text = token ? fy_token_get_text(token, &length) : NULL;
    /* An escape (\0, \ud800) may give an invalid character. */
    for (size_t i = 0, step = 0; text && i < length; i += step) {
        step = utf8_length((const unsigned char *)text + i, length - i);
        if (step == 0)
            return exo_config_fail_at(r->doc, place, r->err,
                                      "an escape in this string is no character");
    }
    *out = exo_config_copy_text(r->doc, text ? text : "", text ? length : 0);
    return *out ? EXO_OK : fail_nomem(r);
}

static exo_status
remember_anchor(struct reader *r, struct fy_token *token, exo_config *node)
{
    if (!token)
        return EXO_OK;
    struct anchor *anchor = exo_config_alloc(r->doc, sizeof *anchor);
    if (!anchor)
        return fail_nomem(r);
    exo_status st = token_text(r, token, &node->place, &anchor->name);
    if (st != EXO_OK)
        return st;
    anchor->node = node;
    anchor->link = r->anchors;
    r->anchors = anchor;
    return EXO_OK;
}

/* The place of what an alias stands for: where it is written, and where it is used. */
static exo_config_place
through(const exo_config_place *written, const exo_config_place *alias)
{
    exo_config_place place = *written;
    place.alias_line = alias->line;
    place.alias_column = alias->column;
    return place;
}

static exo_status
copy_at_depth(struct reader *r, const exo_config *from, const exo_config_place *alias,
              unsigned depth, exo_config **out)
{
    if (depth > EXO_CONFIG_MAX_DEPTH)
        return exo_config_fail_at(r->doc, alias, r->err, "nested deeper than %d levels",
                                  EXO_CONFIG_MAX_DEPTH);
    exo_config *node = NULL;
    exo_config_place place = through(&from->place, alias);
    exo_status st = exo_config_new(r->doc, from->kind, &place, &node, r->err);
    if (st != EXO_OK)
        return st;
    node->text = from->text;
    node->quoted = from->quoted;
    for (size_t i = 0; i < from->length; i++) {
        exo_config *child = NULL;
        st = copy_at_depth(r, from->entries[i].value, alias, depth + 1, &child);
        place = through(&from->entries[i].place, alias);
        if (st == EXO_OK)
            st = exo_config_append(node, from->entries[i].key, &place, child, r->err);
        if (st != EXO_OK)
            return st;
    }
    *out = node;
    return EXO_OK;
}

static exo_status
read_alias(struct reader *r, struct fy_event *event, unsigned depth, exo_config **out)
{
    exo_config_place place = place_of(r, event);
    const char *name = NULL;
    exo_status st = token_text(r, event->alias.anchor, &place, &name);
    if (st != EXO_OK)
        return st;
    for (struct anchor *a = r->anchors; a; a = a->link)
        if (strcmp(a->name, name) == 0)
            return copy_at_depth(r, a->node, &place, depth, out);
    return exo_config_fail_at(r->doc, &place, r->err, "*%.60s: there is no such anchor before it",
                              name);
}

static exo_status read_node(struct reader *r, struct fy_event *event, unsigned depth,
                            exo_config **out);

/* Adds the entries of `from` that `map` lacks. */
static exo_status
merge(struct reader *r, exo_config *map, const exo_config *from)
{
    if (from->kind == EXO_CONFIG_LIST) {
        for (size_t i = 0; i < from->length; i++) {
            if (from->entries[i].value->kind == EXO_CONFIG_LIST)
                return exo_config_fail(from, r->err,
                                       "<<: expected a mapping or a list of mappings");
            exo_status st = merge(r, map, from->entries[i].value);
            if (st != EXO_OK)
                return st;
        }
        return EXO_OK;
    }
    if (from->kind != EXO_CONFIG_MAP)
        return exo_config_fail(from, r->err, "<<: expected a mapping or a list of mappings");
    for (size_t i = 0; i < from->length; i++) {
        const exo_config_entry *entry = &from->entries[i];
        if (exo_config_find(map, entry->key))
            continue;
        exo_status st = exo_config_append(map, entry->key, &entry->place, entry->value, r->err);
        if (st != EXO_OK)
            return st;
    }
    return EXO_OK;
}

/* Reads one "key: value"; `event` is the key. Merges are collected in *merges until all of the
 * mapping's own keys are known. */
static exo_status
read_entry(struct reader *r, exo_config *map, struct fy_event *event, unsigned depth,
           exo_config *merges)
{
    exo_config_place place = place_of(r, event);
    const char *key = NULL;
    bool is_merge = false;
    exo_status st = EXO_OK;
    if (event->type != FYET_SCALAR)
        return exo_config_fail_at(r->doc, &place, r->err, "a key must be a plain word");
    st = token_text(r, event->scalar.value, &place, &key);
    if (st != EXO_OK)
        return st;
    if (event->scalar.tag)
        return exo_config_fail_at(r->doc, &place, r->err, "tags (!) are not supported");
    is_merge = strcmp(key, "<<") == 0 && fy_token_scalar_style(event->scalar.value) == FYSS_PLAIN;
    const exo_config_entry *first = exo_config_find(map, key);
    if (first)
        return exo_config_fail_at(r->doc, &place, r->err, "duplicate key '%.60s', first in line %u",
                                  key, first->place.line);

    struct fy_event *value_event = NULL;
    st = next_event(r, &value_event);
    if (st != EXO_OK)
        return st;
    exo_config *value = NULL;
    st = read_node(r, value_event, depth, &value);
    fy_parser_event_free(r->parser, value_event);
    if (st != EXO_OK)
        return st;
    if (exo_config_is_null(value) && !*value->text)
        value->place = place; /* an empty value has no place of its own */
    return exo_config_append(is_merge ? merges : map, is_merge ? NULL : key, &place, value, r->err);
}

static exo_status
read_children(struct reader *r, exo_config *node, enum fy_event_type end, unsigned depth)
{
    exo_config *merges = NULL;
    exo_status st = exo_config_new(r->doc, EXO_CONFIG_LIST, &node->place, &merges, r->err);
    while (st == EXO_OK) {
        struct fy_event *event = NULL;
        st = next_event(r, &event);
        if (st != EXO_OK)
            return st;
        if (event->type == end) {
            fy_parser_event_free(r->parser, event);
            break;
        }
        if (node->kind == EXO_CONFIG_MAP) {
            st = read_entry(r, node, event, depth + 1, merges);
        } else {
            exo_config *item = NULL;
            st = read_node(r, event, depth + 1, &item);
            if (st == EXO_OK)
                st = exo_config_append(node, NULL, &item->place, item, r->err);
        }
        fy_parser_event_free(r->parser, event);
    }
    for (size_t i = 0; st == EXO_OK && i < merges->length; i++)
        st = merge(r, node, merges->entries[i].value);
    return st;
}

/* Reads the node that begins with `event`; the caller frees the event. */
static exo_status
read_node(struct reader *r, struct fy_event *event, unsigned depth, exo_config **out)
{
    exo_config_place place = place_of(r, event);
    if (depth > EXO_CONFIG_MAX_DEPTH)
        return exo_config_fail_at(r->doc, &place, r->err, "nested deeper than %d levels",
                                  EXO_CONFIG_MAX_DEPTH);

    exo_config_kind kind = EXO_CONFIG_SCALAR;
    struct fy_token *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case FYET_ALIAS:
        return read_alias(r, event, depth, out);
    case FYET_SCALAR:
        anchor = event->scalar.anchor;
        tag = event->scalar.tag;
        break;
    case FYET_MAPPING_START:
        kind = EXO_CONFIG_MAP;
        anchor = event->mapping_start.anchor;
        tag = event->mapping_start.tag;
        break;
    case FYET_SEQUENCE_START:
        kind = EXO_CONFIG_LIST;
        anchor = event->sequence_start.anchor;
        tag = event->sequence_start.tag;
        break;
    default:
        return exo_config_fail_at(r->doc, &place, r->err, "expected a value");
    }
    if (tag)
        return exo_config_fail_at(r->doc, &place, r->err, "tags (!) are not supported");

    exo_config *node = NULL;
    exo_status st = exo_config_new(r->doc, kind, &place, &node, r->err);
    if (st != EXO_OK)
        return st;
    if (kind == EXO_CONFIG_SCALAR) {
        st = token_text(r, event->scalar.value, &place, &node->text);
        node->quoted =
            event->scalar.value && fy_token_scalar_style(event->scalar.value) != FYSS_PLAIN;
    } else {
        st = read_children(r, node, kind == EXO_CONFIG_MAP ? FYET_MAPPING_END : FYET_SEQUENCE_END,
                           depth);
    }
    if (st == EXO_OK)
        st = remember_anchor(r, anchor, node);
    if (st == EXO_OK)
        *out = node;
    return st;
}

/* Reads the stream of events around its only document. */
static exo_status
read_stream(struct reader *r, exo_config **out)
{
    for (;;) {
        struct fy_event *event = NULL;
        exo_status st = next_event(r, &event);
        if (st != EXO_OK)
            return st;
        exo_config_place place = place_of(r, event);
        enum fy_event_type type = event->type;
        if (type == FYET_STREAM_END) {
            /* the end */
        } else if (type == FYET_DOCUMENT_START && *out) {
            st = exo_config_fail_at(r->doc, &place, r->err,
                                    "a second document begins here; one is expected");
        } else if (type != FYET_STREAM_START && type != FYET_DOCUMENT_START &&
                   type != FYET_DOCUMENT_END) {
            st = read_node(r, event, 0, out);
        }
        fy_parser_event_free(r->parser, event);
        if (st != EXO_OK || type == FYET_STREAM_END)
            return st;
    }
}

/* Checks the encoding: libfyaml would end the text at the first invalid byte. */
static exo_status
check_utf8(const struct reader *r, const char *text, size_t size)
{
    exo_config_place place = {.origin = r->origin, .source = r->source, .line = 1, .column = 1};
    for (size_t i = 0; i < size;) {
        size_t length = utf8_length((const unsigned char *)text + i, size - i);
        if (length == 0)
            return exo_config_fail_at(r->doc, &place, r->err, "byte 0x%02x is not UTF-8 text",
                                      (unsigned char)text[i]);
        place.column++;
        if (text[i] == '\n') {
            place.line++;
            place.column = 1;
        }
        i += length;
    }
    return EXO_OK;
}

exo_status
exo_config_read(exo_config_doc *doc, const char *text, size_t size, const char *source,
                const char *origin, exo_config **out, exo_err *err)
{
    struct reader r = {.doc = doc, .source = source, .origin = origin, .err = err};
    exo_config *node = NULL;
    exo_status st = check_utf8(&r, text, size);
    if (st != EXO_OK)
        goto done;

    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    /* libfyaml collects its messages instead of printing them */
    diag_cfg.fp = NULL;
    r.diag = fy_diag_create(&diag_cfg);
    if (!r.diag) {
        st = fail_nomem(&r);
        goto done;
    }
    fy_diag_set_collect_errors(r.diag, true);
    r.parser = fy_parser_create(
        &(struct fy_parse_cfg){.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG, .diag = r.diag});
    if (!r.parser || fy_parser_set_string(r.parser, text, size) != 0) {
        st = fail_nomem(&r);
        goto done;
    }
    st = read_stream(&r, &node);
    if (st == EXO_OK)
        *out = node;
done:
    if (r.parser)
        fy_parser_destroy(r.parser);
    if (r.diag)
        fy_diag_destroy(r.diag);
    return st;
}
