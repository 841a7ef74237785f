/* Reads command lines. No state. */
#include "args.h"

#include <string.h>

#include <exogym/memory.h>

static exo_status
add_word(exo_words *words, const char *word, exo_err *err)
{
    const char **items = exo_realloc(words->items, words->length + 1, sizeof *items);
    if (!items)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    items[words->length++] = word;
    words->items = items;
    return EXO_OK;
}

void
exo_words_release(exo_words *words)
{
    exo_free(words->items);
    *words = (exo_words){0};
}

/* The option that `word` names; *value is what follows its "=", or NULL. */
static const exo_option *
find_option(const exo_option *options, const char *word, const char **value)
{
    *value = NULL;
    for (const exo_option *o = options; o->name; o++) {
        size_t length = strlen(o->name);
        if (strncmp(word, o->name, length) == 0 && (word[length] == '\0' || word[length] == '=')) {
            *value = word[length] == '=' ? word + length + 1 : NULL;
            return o;
        }
        if (o->brief && strcmp(word, o->brief) == 0)
            return o;
    }
    return NULL;
}

exo_status
exo_args_read(int argc, char *const *argv, const exo_option *options, exo_words *operands, exo_err *err)
{
    bool only_operands = false;
    exo_status st = EXO_OK;
    for (int i = 0; st == EXO_OK && i < argc; i++) {
        const char *word = argv[i], *value = NULL;
        if (only_operands || word[0] != '-' || word[1] == '\0') {
            st = add_word(operands, word, err);
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_operands = true;
            continue;
        }
        const exo_option *option = find_option(options, word, &value);
        if (!option)
            return exo_fail(err, EXO_INVAL, "unknown option '%s'", word);
        if (option->flag) {
            if (value)
                return exo_fail(err, EXO_INVAL, "%s takes no value", option->name);
            *option->flag = true;
            continue;
        }
        if (!value && i + 1 == argc)
            return exo_fail(err, EXO_INVAL, "%s needs a value", word);
        if (!value)
            value = argv[++i];
        if (option->value)
            *option->value = value;
        else
            st = add_word(option->list, value, err);
    }
    return st;
}
