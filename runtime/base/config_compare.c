/* Compares the meaning of two configurations, and hashes that of one. See exo_config_differs in
 * config_edit.h. No state. */
#include "base/config_tree.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_units.h"

static const char *
boolean_of(const exo_config *node)
{
    return node->quoted ? NULL : exo_config_boolean(node->text);
}

/* Compares integers without regard to a plus sign and leading zeros. */
static bool
same_integers(const char *a, const char *b)
{
    bool negative[2] = {*a == '-', *b == '-'};
    a += *a == '-' || *a == '+';
    b += *b == '-' || *b == '+';
    a += strspn(a, "0");
    b += strspn(b, "0");
    return strcmp(a, b) == 0 && (negative[0] == negative[1] || !*a);
}

static bool
same_scalars(const exo_config *a, const exo_config *b)
{
    bool whole[2] = {false, false};
    /* quotes do not matter: if one reader took this as text, the other does, too */
    if (strcmp(a->text, b->text) == 0)
        return true;
    if (a->quoted && b->quoted)
        return false;
    const char *truth = boolean_of(a), *other = boolean_of(b);
    if (truth || other)
        return truth && other && strcmp(truth, other) == 0;
    if (exo_config_is_number(a->text, &whole[0]) && exo_config_is_number(b->text, &whole[1]))
        return !a->quoted && !b->quoted &&
               (whole[0] && whole[1]
                    ? same_integers(a->text, b->text)
                    : exo_config_to_double(a->text) == exo_config_to_double(b->text));
    return exo_unit_same(a->text, b->text);
}

/* Whether the mapping was given a name. The fallbacks of a mapping may depend on it: an outer
 * optimizer without a name is not PyTorch's. */
static bool
is_named(const exo_config *map)
{
    const exo_config_entry *entry = exo_config_find(map, "name");
    return entry && !entry->value->was_missing;
}

/* Whether the value means the same as a missing one. */
static bool
is_fallback(const exo_config *node)
{
    if (node->is_fallback || exo_config_is_null(node))
        return true;
    if (node->kind == EXO_CONFIG_MAP && is_named(node))
        return false;
    for (size_t i = 0; i < node->length; i++)
        if (!is_fallback(node->entries[i].value))
            return false;
    return node->kind == EXO_CONFIG_MAP;
}

/* Whether a path is the pattern, in which `*` is any key. */
static bool
is_of(const char *path, const char *pattern)
{
    for (; *pattern; pattern++)
        if (*pattern == '*')
            path += strcspn(path, ".");
        else if (*path++ != *pattern)
            return false;
    return *path == '\0';
}

static bool
is_skipped(const char *path, const char *const *skipped)
{
    for (; skipped && *skipped; skipped++)
        if (is_of(path, *skipped))
            return true;
    return false;
}

static bool differs(const exo_config *before, const exo_config *now, const char *const *skipped,
                    exo_text *path);

/* Compares a name alone with a mapping, which may add only fallbacks to that name. */
static bool
differs_from_name(const exo_config *name, const exo_config *map)
{
    for (size_t i = 0; i < map->length; i++) {
        const exo_config *value = map->entries[i].value;
        bool same = strcmp(map->entries[i].key, "name") == 0 && value->kind == EXO_CONFIG_SCALAR
                        ? same_scalars(name, value)
                        : is_fallback(value);
        if (!same)
            return true;
    }
    return !exo_config_find(map, "name");
}

static void
cut_path(exo_text *path, size_t length)
{
    path->length = length;
    if (path->data)
        path->data[length] = '\0';
}

/* Compares two items of lists. The path stays that of the list, which is told as what differs. */
static bool
item_differs(const exo_config *before, const exo_config *now, size_t index,
             const char *const *skipped, exo_text *path)
{
    size_t length = path ? path->length : 0;
    if (path)
        exo_text_add(path, "%s%zu", length ? "." : "", index);
    bool differ = differs(before, now, skipped, path);
    if (path)
        cut_path(path, length);
    return differ;
}

/* Compares one entry. excused: the key may be missing in `before`. */
static bool
entry_differs(const exo_config *before, const exo_config *now, const char *key, bool excused,
              const char *const *skipped, exo_text *path)
{
    const exo_config_entry *old = exo_config_find(before, key), *new = exo_config_find(now, key);
    size_t length = path ? path->length : 0;
    if (path)
        exo_text_add(path, "%s%s", length ? "." : "", key);
    bool lacks = !excused && !is_skipped(path && path->data ? path->data : "", skipped);
    if (lacks || differs(old ? old->value : NULL, new ? new->value : NULL, skipped, path))
        return true;
    if (path)
        cut_path(path, length);
    return false;
}

static bool
differs(const exo_config *before, const exo_config *now, const char *const *skipped, exo_text *path)
{
    if (is_skipped(path && path->data ? path->data : "", skipped))
        return false;
    before = before && exo_config_is_null(before) ? NULL : before;
    now = now && exo_config_is_null(now) ? NULL : now;
    if (!before || !now)
        return before || (now && !is_fallback(now));
    if (before->kind == EXO_CONFIG_SCALAR && now->kind == EXO_CONFIG_MAP)
        return differs_from_name(before, now);
    if (before->kind != now->kind)
        return true;
    if (before->kind == EXO_CONFIG_SCALAR)
        return !same_scalars(before, now);
    if (before->kind == EXO_CONFIG_LIST) {
        for (size_t i = 0; i < before->length && i < now->length; i++)
            if (item_differs(before->entries[i].value, now->entries[i].value, i, skipped, path))
                return true;
        return before->length != now->length;
    }
    for (size_t i = 0; i < before->length; i++)
        if (entry_differs(before, now, before->entries[i].key, true, skipped, path))
            return true;
    bool excused = exo_config_find(before, "name") ? is_named(now) : !is_named(now);
    for (size_t i = 0; i < now->length; i++)
        if (!exo_config_find(before, now->entries[i].key) &&
            entry_differs(before, now, now->entries[i].key, excused, skipped, path))
            return true;
    return false;
}

bool
exo_config_differs(const exo_config *before, const exo_config *now, const char *const *skipped,
                   exo_text *path)
{
    return differs(before, now, skipped, path);
}

/* --- Hashes ----------------------------------------------------------------------------------- */

static uint64_t
hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) /* FNV-1a */
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

/* Quotes do not matter here: a quoted scalar may mean the same as one without. */
static uint64_t
hash_scalar(uint64_t hash, const char *text)
{
    bool whole = false;
    const char *truth = exo_config_boolean(text);
    if (truth)
        return hash_bytes(hash, truth, strlen(truth));
    double value = exo_config_is_number(text, &whole) ? exo_config_to_double(text) //
                                                      : exo_unit_value(text);
    value += 0.0; /* -0 is 0 */
    return isnan(value) ? hash_bytes(hash, text, strlen(text))
                        : hash_bytes(hash, &value, sizeof value);
}

/* A name alone means the same as a mapping with that name. */
static uint64_t
hash_path(const exo_text *path)
{
    static const char last[] = ".name";
    const size_t size = sizeof last - 1;
    size_t length = path->length;
    while (length >= size && memcmp(path->data + length - size, last, size) == 0)
        length -= size;
    return hash_bytes(UINT64_C(0xcbf29ce484222325), path->data, length);
}

/* The sum over all scalars and lists within `node` that mean more than a missing value, each with its
 * path: neither the order of keys nor fallbacks matter. */
static uint64_t
hash_within(const exo_config *node, const char *const *skipped, exo_text *path)
{
    if (node->is_fallback || exo_config_is_null(node) ||
        is_skipped(path->data ? path->data : "", skipped))
        return 0;
    const uint64_t place = hash_path(path);
    if (node->kind == EXO_CONFIG_SCALAR)
        return hash_scalar(place, node->text);
    uint64_t sum = 0;
    if (node->kind == EXO_CONFIG_LIST)
        sum = hash_bytes(place, &node->length, sizeof node->length);
    for (size_t i = 0; i < node->length; i++) {
        const char *key = node->entries[i].key;
        const size_t length = path->length;
        if (key)
            exo_text_add(path, "%s%s", length ? "." : "", key);
        else
            exo_text_add(path, "%s%zu", length ? "." : "", i);
        sum += hash_within(node->entries[i].value, skipped, path);
        cut_path(path, length);
    }
    return sum;
}

exo_status
exo_config_hash(const exo_config *whole, const char *const *skipped, uint64_t *hash, exo_err *err)
{
    exo_text path = {0};
    *hash = hash_within(whole, skipped, &path);
    const bool failed = path.failed;
    exo_free(path.data);
    return failed ? exo_fail(err, EXO_NOMEM, "out of memory") : EXO_OK;
}
