/* A named strategy as the list of exchanges that it is, for people who want to change a part of it.
 * No state. Read next: exchange_options.c, composition.c. */
#include "strategies/exchange.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/config_tree.h"

static exo_status
add_option(exo_text *text, const char *key, exo_config *value, exo_err *err)
{
    char *yaml = NULL;
    exo_status st = exo_config_text(value, &yaml, err);
    if (st == EXO_OK)
        exo_text_add(text, "%s: %s, ", key, yaml);
    exo_free(yaml);
    return st;
}

/* Appends the optimizer with its name, for a class whose default is another one than that of
 * `compose`. */
static exo_status
add_optimizer(exo_text *text, const exo_strategy_class *class, exo_config *all, exo_err *err)
{
    exo_config *given = exo_config_get(all, "optimizer"), *value = NULL;
    const char *name = exo_optim_kind_name(class->optimizer().kind), *key = NULL;
    exo_status st = EXO_OK;
    if (given && !(exo_config_is_map(given) && !exo_config_has(given, "name")))
        return add_option(text, "optimizer", given, err);
    exo_text_add(text, "optimizer: {name: %s, ", name);
    for (size_t i = 0; given && st == EXO_OK && (key = exo_config_key(given, i, &value)); i++)
        st = add_option(text, key, value, err);
    exo_text_add(text, "}, ");
    return st;
}

/* Appends "key: value, " for each option that the class itself does not read. */
static exo_status
add_common(exo_text *text, const exo_strategy_class *class, exo_config *all, const exo_config *own,
           exo_err *err)
{
    exo_config *value = NULL;
    const char *key = NULL;
    exo_status st = class->optimizer ? add_optimizer(text, class, all, err) : EXO_OK;
    for (size_t i = 0; st == EXO_OK && (key = exo_config_key(all, i, &value)); i++)
        if (strcmp(key, "name") != 0 && !exo_config_asked_of(own, key) &&
            !(class->optimizer && strcmp(key, "optimizer") == 0))
            st = add_option(text, key, value, err);
    return st;
}

static exo_status
add_exchanges(exo_text *text, const exo_composition *c, exo_config *all, exo_err *err)
{
    exo_config *optimizer = exo_config_get(all, "outer_optimizer");
    exo_config *schedule = exo_config_get(all, "outer_momentum");
    char *outer = NULL, *momentum = NULL;
    exo_status st = optimizer ? exo_config_text(optimizer, &outer, err) : EXO_OK;
    if (st == EXO_OK && schedule)
        st = exo_config_text(schedule, &momentum, err);
    exo_text_add(text, "exchanges: [");
    for (size_t i = 0; i < c->count; i++) {
        exo_text_add(text, "%s", i ? ", " : "");
        exo_param_exchange_write(&c->each[i], outer, momentum, text);
    }
    exo_text_add(text, "]}");
    exo_free(outer);
    exo_free(momentum);
    return st;
}

static exo_status
write_composition(exo_text *text, const exo_strategy_class *class, exo_config *root, exo_err *err)
{
    exo_composition c = {0};
    exo_config *own = exo_config_get(root, "options");
    exo_status st = class->init(&c, own, err);
    if (st == EXO_OK) /* with the fallbacks of the options that init has read */
        st = exo_config_graft_whole(root, "all", own, err);
    exo_text_add(text, "{name: compose, ");
    if (st == EXO_OK)
        st = add_common(text, class, exo_config_get(root, "all"), own, err);
    if (st == EXO_OK)
        st = add_exchanges(text, &c, exo_config_get(root, "all"), err);
    exo_composition_release(&c);
    return st == EXO_OK && text->failed ? exo_fail(err, EXO_NOMEM, "out of memory") : st;
}

exo_status
exo_strategy_composition(char **out, const char *name, const exo_config *options, exo_err *err)
{
    const exo_strategy_class *class = exo_registry_find(&exo_strategy_registry, name);
    exo_config_doc *doc = NULL;
    exo_text text = {0};
    *out = NULL;
    if (!class || class->step != exo_composition_step)
        return EXO_OK;
    exo_status st = exo_config_parse(&doc, name, options ? "{}" : "{options: {}}", err);
    if (st == EXO_OK && options)
        st = exo_config_graft(exo_config_root(doc), "options", options, err);
    if (st == EXO_OK)
        st = write_composition(&text, class, exo_config_root(doc), err);
    if (st == EXO_OK)
        *out = text.data;
    else
        exo_free(text.data);
    exo_config_free(&doc);
    return st;
}
