/* Makes parts of a document: see config_maker.h. */
#include "base/config_maker.h"

#include <inttypes.h>
#include <stdio.h>

void
exo_make_text(exo_config_maker *m, exo_config *into, const char *key, const char *text)
{
    if (m->status == EXO_OK)
        m->status = exo_config_graft_text(into, key, text, m->err);
}

void
exo_make_string(exo_config_maker *m, exo_config *into, const char *key, const char *text)
{
    if (m->status == EXO_OK)
        m->status = exo_config_graft_string(into, key, text, m->err);
}

void
exo_make_number(exo_config_maker *m, exo_config *into, const char *key, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    exo_make_text(m, into, key, text);
}

void
exo_make_truth(exo_config_maker *m, exo_config *into, const char *key, bool truth)
{
    exo_make_text(m, into, key, truth ? "true" : "false");
}

void
exo_make_whole(exo_config_maker *m, exo_config *into, const char *key, const exo_config *value)
{
    if (m->status == EXO_OK)
        m->status = exo_config_graft_whole(into, key, value, m->err);
}

void
exo_make_copy(exo_config_maker *m, exo_config *into, const char *key, const exo_config *value)
{
    if (m->status == EXO_OK && value)
        m->status = exo_config_graft(into, key, value, m->err);
}

void
exo_make_copies(exo_config_maker *m, exo_config *into, exo_config *from, const char *const *keys,
                size_t count)
{
    for (size_t i = 0; i < count; i++)
        exo_make_copy(m, into, keys[i], exo_config_get(from, keys[i]));
}

/* Adds a new mapping or list. */
static exo_config *
adopt(exo_config_maker *m, exo_config *into, const char *key,
      exo_status (*make)(const exo_config *at, exo_config **out, exo_err *err))
{
    exo_config *made = NULL;
    if (m->status == EXO_OK)
        m->status = make(into, &made, m->err);
    if (m->status == EXO_OK)
        m->status = exo_config_adopt(into, key, made, m->err);
    return m->status == EXO_OK ? made : NULL;
}

exo_config *
exo_make_map(exo_config_maker *m, exo_config *into, const char *key)
{
    return adopt(m, into, key, exo_config_new_map);
}

exo_config *
exo_make_list(exo_config_maker *m, exo_config *into, const char *key)
{
    return adopt(m, into, key, exo_config_new_list);
}
