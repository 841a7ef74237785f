/* Variables of a document: ${NAME} in a scalar. No state outlives a call. */
#include "base/config_tree.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/nearest.h"

enum {
    /* longest scalar after substitution: variables that contain others must not double without
     * end */
    MAX_TEXT = 4096,
    /* longest chain of variables of which each contains the next */
    MAX_DEPTH = 64
};

enum progress {
    UNTOUCHED,
    UNDER_WAY,
    DONE
};

struct variables {
    exo_config *map;       /* NULL: there are none */
    enum progress *states; /* (length of the map)  */
    bool *used;            /* (length of the map) a value has them */
    unsigned depth;        /* number of variables that are UNDER_WAY */
    exo_err *err;
};

static exo_status substitute(struct variables *v, exo_config *node);

/* Refuses an override of a variable that no value has, if it is a misspelt one of those that some have. */
static exo_status
check_overrides(const struct variables *v)
{
    for (size_t i = 0; i < exo_config_length(v->map); i++) {
        const exo_config_entry *entry = &v->map->entries[i];
        const exo_config *set = exo_config_find_set(entry->value);
        exo_nearest nearest = {.word = entry->key};
        for (size_t k = 0; k < exo_config_length(v->map); k++)
            if (v->used[k])
                exo_nearest_try(&nearest, v->map->entries[k].key);
        if (set && !v->used[i] && exo_nearest_name(&nearest))
            return exo_config_fail(set, v->err,
                                   "no value has ${%.60s}; did you mean the variable '%s'?",
                                   entry->key, nearest.name);
    }
    return EXO_OK;
}

static exo_status
fail_unknown(const struct variables *v, const exo_config *node, const char *name)
{
    exo_nearest nearest = {.word = name};
    char known[EXO_ERR_TEXT / 2] = "";
    size_t used = 0;
    for (size_t i = 0; i < exo_config_length(v->map); i++) {
        exo_nearest_try(&nearest, v->map->entries[i].key);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     v->map->entries[i].key);
    }
    if (exo_nearest_name(&nearest))
        return exo_config_fail(node, v->err, "there is no variable '%s'; did you mean '%s'?", name,
                               nearest.name);
    return exo_config_fail(node, v->err, "there is no variable '%s'; %s%s", name,
                           used ? "there are: " : "there are none", known);
}

/* Finds a variable's value and substitutes the variables in it. */
static exo_status
look_up(struct variables *v, const exo_config *node, const char *name, const exo_config **out)
{
    for (size_t i = 0; i < exo_config_length(v->map); i++) {
        const exo_config_entry *entry = &v->map->entries[i];
        if (strcmp(entry->key, name) != 0)
            continue;
        if (v->states[i] == UNDER_WAY)
            return exo_config_fail(node, v->err, "the variable '%s' is made of itself", name);
        if (v->states[i] == UNTOUCHED) {
            if (v->depth == MAX_DEPTH)
                return exo_config_fail(node, v->err,
                                       "the variable '%s' is more than %d variables deep", name,
                                       MAX_DEPTH);
            v->states[i] = UNDER_WAY;
            v->depth++;
            exo_status st = substitute(v, entry->value);
            v->depth--;
            if (st != EXO_OK)
                return st;
            v->states[i] = DONE;
        }
        *out = entry->value;
        v->used[i] = v->used[i] || node != entry->value;
        return EXO_OK;
    }
    return fail_unknown(v, node, name);
}

/* Reads the name in "${NAME}" at `text`; *after points behind it. */
static exo_status
read_name(const struct variables *v, const exo_config *node, const char *text, char *name,
          size_t size, const char **after)
{
    const char *start = text + strlen("${");
    size_t length =
        strspn(start, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (length == 0 || length >= size || start[length] != '}')
        return exo_config_fail(node, v->err,
                               "'%.40s': expected ${NAME}, or $${ for the signs themselves", text);
    memcpy(name, start, length);
    name[length] = '\0';
    *after = start + length + 1;
    return EXO_OK;
}

static exo_status
substitute_scalar(struct variables *v, exo_config *node)
{
    exo_text text = {0};
    const exo_config *value = NULL;
    const char *at = node->text;
    bool whole = false;
    exo_status st = EXO_OK;
    while (st == EXO_OK && *at) {
        size_t plain = strcspn(at, "$");
        exo_text_add_bytes(&text, at, plain);
        at += plain;
        if (strncmp(at, "$${", 3) == 0) {
            exo_text_add(&text, "${");
            at += 3;
        } else if (strncmp(at, "${", 2) == 0) {
            char name[64];
            whole = at == node->text;
            st = read_name(v, node, at, name, sizeof name, &at);
            if (st == EXO_OK)
                st = look_up(v, node, name, &value);
            if (st == EXO_OK)
                exo_text_add(&text, "%s", value->text);
            whole = whole && !*at;
        } else if (*at) {
            exo_text_add_bytes(&text, at++, 1);
        }
        if (st == EXO_OK && text.length > MAX_TEXT)
            st = exo_config_fail(node, v->err, "longer than %d bytes with its variables", MAX_TEXT);
    }
    if (st == EXO_OK) {
        char *copy = text.failed
                         ? NULL
                         : exo_config_copy_text(node->doc, text.data ? text.data : "", text.length);
        if (copy) {
            node->text = copy;
            node->quoted = whole && value->quoted;
            node->quoted |= exo_config_is_null(node) && !whole;
        } else {
            st = exo_fail(v->err, EXO_NOMEM, "%s: out of memory", node->doc->source);
        }
    }
    exo_free(text.data);
    return st;
}

static exo_status
substitute(struct variables *v, exo_config *node)
{
    exo_status st = EXO_OK;
    if (node->kind == EXO_CONFIG_SCALAR)
        return strstr(node->text, "${") ? substitute_scalar(v, node) : EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < node->length; i++)
        st = substitute(v, node->entries[i].value);
    return st;
}

static exo_status
check_variables(const struct variables *v)
{
    for (size_t i = 0; i < exo_config_length(v->map); i++) {
        const exo_config_entry *entry = &v->map->entries[i];
        if (!*entry->key ||
            entry->key[strspn(entry->key,
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")])
            return exo_config_fail_at(
                v->map->doc, &entry->place, v->err,
                "variable '%.60s': expected a name of letters, digits and '_'", entry->key);
        if (entry->value->kind != EXO_CONFIG_SCALAR)
            return exo_config_fail_type(entry->value, entry->key, "one value", v->err);
    }
    return EXO_OK;
}

exo_status
exo_config_substitute(exo_config *root, exo_err *err)
{
    struct variables v = {.err = err};
    exo_status st = exo_config_map(root, "variables", &v.map, err);
    if (st == EXO_OK)
        st = check_variables(&v);
    if (st != EXO_OK)
        return st;
    v.states = exo_calloc(exo_config_length(v.map) + 1, sizeof *v.states);
    v.used = exo_calloc(exo_config_length(v.map) + 1, sizeof *v.used);
    if (!v.states || !v.used)
        st = exo_fail(err, EXO_NOMEM, "%s: out of memory", root->doc->source);
    const exo_config *value = NULL;
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(v.map); i++)
        st = look_up(&v, v.map->entries[i].value, v.map->entries[i].key, &value);
    for (size_t i = 0; st == EXO_OK && i < root->length; i++)
        if (root->entries[i].value != v.map)
            st = substitute(&v, root->entries[i].value);
    if (st == EXO_OK)
        st = check_overrides(&v);
    exo_free(v.states);
    exo_free(v.used);
    return st;
}
