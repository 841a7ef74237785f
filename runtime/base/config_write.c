/* Tree to text: JSON for files, YAML in flow style to pass a node on. No state. */
#include "base/config_tree.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

struct writer {
    exo_text text;
    bool json;
};

static void
put_string(struct writer *w, const char *text)
{
    exo_text_add_bytes(&w->text, text, strlen(text));
}

/* Writes a string in double quotes, in the common syntax of JSON and YAML. */
static void
put_quoted(struct writer *w, const char *text)
{
    put_string(w, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char escape[8];
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (c == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else if (c == '\t')
            snprintf(escape, sizeof escape, "\\t");
        else if (c < 0x20 || c == 0x7f)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else
            snprintf(escape, sizeof escape, "%c", c);
        put_string(w, escape);
    }
    put_string(w, "\"");
}

/* Whether the text is a plain word of YAML in flow style. Three points alone would end the document. */
static bool
is_word(const char *text)
{
    if (!*text || *text == '-' || strcmp(text, "...") == 0)
        return false;
    for (; *text; text++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-", *text))
            return false;
    return true;
}

/* Writes a number of YAML as one of JSON, which allows no plus sign and no leading zeros and needs
 * digits on both sides of the point. No digit is lost. */
static void
put_json_number(struct writer *w, const char *text)
{
    static const char digits[] = "0123456789";
    /* JSON readers refuse such a number */
    if (isinf(exo_config_to_double(text))) {
        put_quoted(w, text);
        return;
    }
    if (*text == '-')
        put_string(w, "-");
    text += *text == '-' || *text == '+';
    while (text[0] == '0' && text[1] >= '0' && text[1] <= '9')
        text++;
    size_t whole = strspn(text, digits);
    if (whole == 0)
        put_string(w, "0");
    exo_text_add_bytes(&w->text, text, whole);
    text += whole;
    if (*text == '.') {
        size_t part = strspn(text + 1, digits);
        exo_text_add_bytes(&w->text, text, part + 1);
        if (part == 0)
            put_string(w, "0");
        text += part + 1;
    }
    put_string(w, text); /* the exponent */
}

static void
write_scalar(struct writer *w, const exo_config *node)
{
    bool integer = false;
    if (node->quoted) {
        put_quoted(w, node->text);
        return;
    }
    if (exo_config_is_null(node)) {
        put_string(w, "null");
        return;
    }
    const char *boolean = exo_config_boolean(node->text);
    if (boolean) {
        put_string(w, boolean);
    } else if (exo_config_is_number(node->text, &integer)) {
        if (w->json)
            put_json_number(w, node->text);
        else
            put_string(w, node->text);
    } else if (!w->json && is_word(node->text)) {
        put_string(w, node->text);
    } else {
        put_quoted(w, node->text);
    }
}

static void
new_line(struct writer *w, unsigned depth)
{
    if (!w->json)
        return;
    put_string(w, "\n");
    for (unsigned i = 0; i < depth; i++)
        put_string(w, "  ");
}

static void
write_node(struct writer *w, const exo_config *node, unsigned depth)
{
    if (node->kind == EXO_CONFIG_SCALAR) {
        write_scalar(w, node);
        return;
    }
    bool is_map = node->kind == EXO_CONFIG_MAP;
    put_string(w, is_map ? "{" : "[");
    for (size_t i = 0; i < node->length; i++) {
        if (i)
            put_string(w, w->json ? "," : ", ");
        new_line(w, depth + 1);
        if (is_map) {
            bool integer = false;
            const char *key = node->entries[i].key;
            if (w->json || !is_word(key) || exo_config_is_number(key, &integer))
                put_quoted(w, key);
            else
                put_string(w, key);
            put_string(w, ": ");
        }
        write_node(w, node->entries[i].value, depth + 1);
    }
    if (node->length)
        new_line(w, depth);
    put_string(w, is_map ? "}" : "]");
}

static exo_status
write_text(const exo_config *node, bool json, char **out, exo_err *err)
{
    struct writer w = {.json = json};
    write_node(&w, node, 0);
    if (w.text.failed) {
        exo_free(w.text.data);
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", node->doc->source);
    }
    *out = w.text.data;
    return EXO_OK;
}

exo_status
exo_config_json(const exo_config *node, char **out, exo_err *err)
{
    return write_text(node, true, out, err);
}

exo_status
exo_config_text(const exo_config *node, char **out, exo_err *err)
{
    return write_text(node, false, out, err);
}

void
exo_config_add_word(exo_text *text, const char *word)
{
    struct writer w = {.text = *text};
    bool integer = false;
    exo_config plain = {.kind = EXO_CONFIG_SCALAR, .text = word};
    if (is_word(word) && !exo_config_is_null(&plain) && !exo_config_is_number(word, &integer) &&
        !exo_config_boolean(word))
        put_string(&w, word);
    else
        put_quoted(&w, word);
    *text = w.text;
}
