/* Reads command lines by a command's table. No state. */
#include "args.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "nearest.h"
#include "program.h"

/* Options that need no row: they are handled before a command's own. A command has the first; a program with commands has
 * --version too, one that is itself a command has all. */
static const exo_arg everywhere[] = {
    {.name = "--help", .brief = "-h", .help = "Shows this text."},
    {.name = "--version", .help = "Shows the version."},
    {.name = "--man", .help = "Prints the manual page, for man(1)."},
    {.name = "--completion",
     .value = "bash|zsh|fish",
     .help = "Prints a script that completes the program's arguments in a shell.",
     .word = EXO_WORD_FIXED,
     .kind = EXO_ARG_VALUE},
};

static const exo_arg *
arg_at(const exo_command *command, bool operand, size_t *index)
{
    for (const exo_arg *a = command->args; a && (a->name || a->value); a++)
        if (!a->name == operand && (*index)-- == 0)
            return a;
    return NULL;
}

const exo_arg *
exo_operand_at(const exo_command *command, size_t index)
{
    return arg_at(command, true, &index);
}

const exo_arg *
exo_option_at(const exo_command *command, size_t index)
{
    const exo_arg *own = arg_at(command, false, &index);
    size_t others = command != exo_program() ? 1 : command->commands ? 2 : sizeof everywhere / sizeof *everywhere;
    return own ? own : index < others ? &everywhere[index] : NULL;
}

size_t
exo_fixed_word(const char **list, const char **word)
{
    *word = *list;
    size_t length = strcspn(*list, "|");
    *list += length + ((*list)[length] == '|');
    return length;
}

/* `given` is none of the fixed words, or NULL. */
static exo_status
fail_fixed(const exo_arg *arg, const char *given, exo_err *err)
{
    char known[EXO_ERR_TEXT / 2] = "";
    const char *list = arg->value, *word;
    size_t length, used = 0;
    while ((length = exo_fixed_word(&list, &word)) > 0 && used < sizeof known)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%.*s",
                                 used == 0 ? ""
                                 : *list   ? ", "
                                           : " or ",
                                 (int)length, word);
    return exo_fail(err, EXO_INVAL, given ? "%s%sexpected %s, got '%.60s'" : "%s%sexpected %s",
                    arg->name ? arg->name : "", arg->name ? ": " : "", known, given);
}

static bool
is_fixed(const exo_arg *arg, const char *given)
{
    const char *list = arg->value, *word;
    size_t length;
    while ((length = exo_fixed_word(&list, &word)) > 0)
        if (strlen(given) == length && strncmp(given, word, length) == 0)
            return true;
    return false;
}

static exo_status
take(const exo_arg *arg, const char *word, void *args, exo_err *err)
{
    void *target = (char *)args + arg->offset;
    if (arg->word == EXO_WORD_FIXED && !is_fixed(arg, word))
        return fail_fixed(arg, word, err);
    if (arg->kind == EXO_ARG_VALUE) {
        *(const char **)target = word;
        return EXO_OK;
    }
    exo_words *words = target;
    const char **items = exo_realloc(words->items, words->length + 1, sizeof *items);
    if (!items)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    items[words->length++] = word;
    words->items = items;
    return EXO_OK;
}

/* The row of the option that `word` names; *value is what follows its "=", or NULL. */
static const exo_arg *
find_option(const exo_command *command, const char *word, const char **value)
{
    *value = NULL;
    for (const exo_arg *a = command->args; a && (a->name || a->value); a++) {
        size_t length = a->name ? strlen(a->name) : 0;
        if (a->name && strncmp(word, a->name, length) == 0 && (word[length] == '\0' || word[length] == '=')) {
            *value = word[length] == '=' ? word + length + 1 : NULL;
            return a;
        }
        if (a->brief && strcmp(word, a->brief) == 0)
            return a;
    }
    return NULL;
}

exo_status
exo_args_fail_unknown(const exo_command *command, const char *word, exo_err *err)
{
    char name[64], known[EXO_ERR_TEXT / 2] = "";
    size_t used = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    /* Dashes are right anyway; only what follows them is compared. */
    exo_nearest nearest = {.word = name + strspn(name, "-")};
    const exo_arg *option;
    for (size_t i = 0; (option = exo_option_at(command, i)); i++) {
        exo_nearest_try(&nearest, option->name + 2);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", option->name);
    }
    if (exo_nearest_name(&nearest))
        return exo_fail(err, EXO_INVAL, "unknown option %s; did you mean --%s?", name, nearest.name);
    return exo_fail(err, EXO_INVAL, "unknown option %s; known are %s", name, known);
}

static exo_status
check_required(const exo_command *command, const void *args, exo_err *err)
{
    for (const exo_arg *a = command->args; a && (a->name || a->value); a++) {
        const void *target = (const char *)args + a->offset;
        if (!a->required)
            continue;
        bool given =
            a->kind == EXO_ARG_LIST ? ((const exo_words *)target)->length > 0 : *(const char *const *)target != NULL;
        if (!given && a->word == EXO_WORD_FIXED && !a->name)
            return fail_fixed(a, NULL, err);
        if (!given)
            return exo_fail(err, EXO_INVAL, "%s%s%s is missing", a->name ? a->name : "", a->name ? " " : "", a->value);
    }
    return EXO_OK;
}

exo_status
exo_args_read(const exo_command *command, int argc, char *const *argv, void *args, exo_err *err)
{
    const exo_arg *operand = NULL;
    size_t operands = 0;
    bool only_operands = false;
    exo_status st = EXO_OK;
    for (int i = 0; st == EXO_OK && i < argc; i++) {
        const char *word = argv[i], *value = NULL;
        if (only_operands || word[0] != '-' || word[1] == '\0') {
            if (!operand || operand->kind != EXO_ARG_LIST)
                operand = exo_operand_at(command, operands++);
            st = operand ? take(operand, word, args, err) : exo_fail(err, EXO_INVAL, "'%s' is one word too many", word);
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_operands = true;
            continue;
        }
        const exo_arg *option = find_option(command, word, &value);
        if (!option)
            return exo_args_fail_unknown(command, word, err);
        if (option->kind == EXO_ARG_FLAG) {
            if (value)
                return exo_fail(err, EXO_INVAL, "%s takes no value", option->name);
            *(bool *)((char *)args + option->offset) = true;
            continue;
        }
        if (!value && i + 1 == argc)
            return exo_fail(err, EXO_INVAL, "%s needs a value", word);
        st = take(option, value ? value : argv[++i], args, err);
    }
    return st == EXO_OK ? check_required(command, args, err) : st;
}

void
exo_args_release(const exo_command *command, void *args)
{
    for (const exo_arg *a = command->args; a && (a->name || a->value); a++)
        if (a->kind == EXO_ARG_LIST)
            exo_free(((exo_words *)(void *)((char *)args + a->offset))->items);
}
