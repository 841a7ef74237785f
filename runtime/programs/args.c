/* Reads command lines according to a command's table: see args.h. No state. */
#include "programs/args.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/nearest.h"
#include "programs/program.h"

/* Options that need no row. All commands have the first one. A program with commands also has
 * --version; a program of one command has all of them. */
static const exo_arg everywhere[] = {
    {"--help", NULL, "Shows this text.", EXO_INTO(exo_asked, help), .brief = "-h"},
    {"--version", NULL, "Shows the version.", EXO_INTO(exo_asked, version)},
    {"--man", NULL, "Prints the manual page, for man(1).", EXO_INTO(exo_asked, man)},
    {"--completion", "bash|zsh|fish",
     "Prints a script that completes the program's arguments in a shell.",
     EXO_INTO(exo_asked, completion), .word = EXO_WORD_FIXED},
};

enum {
    NUM_EVERYWHERE = sizeof everywhere / sizeof *everywhere
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
    size_t others = command != exo_program() ? 1 : command->commands ? 2 : NUM_EVERYWHERE;
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

int
exo_fixed_index(const char *list, const char *word)
{
    const char *known;
    size_t length;
    for (int i = 0; (length = exo_fixed_word(&list, &known)) > 0; i++)
        if (strlen(word) == length && strncmp(known, word, length) == 0)
            return i;
    return -1;
}

static const char *
fixed_words(const exo_arg *arg)
{
    return arg->words ? arg->words : arg->value;
}

/* Fails with the list of choices. given: the wrong word, or NULL. */
static exo_status
fail_fixed(const exo_arg *arg, const char *given, exo_err *err)
{
    char known[EXO_ERR_TEXT / 2] = "";
    const char *list = fixed_words(arg), *word;
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

/* A command line while it is read. */
struct reader {
    const exo_command *command;
    int argc, at; /* `at`: index of the next word */
    char *const *argv;
    void *args;
    exo_asked *asked;
    const exo_arg *operand; /* the row of the last operand; the number of operands so far */
    size_t operands;
    bool only_operands;
};

static void *
target_of(const struct reader *r, const exo_arg *arg)
{
    bool own = arg < everywhere || arg >= everywhere + NUM_EVERYWHERE;
    return (char *)(own ? r->args : r->asked) + arg->offset;
}

static exo_status
take(const struct reader *r, const exo_arg *arg, const char *word, exo_err *err)
{
    void *target = target_of(r, arg);
    if (arg->name && !*word) /* --head "$UNSET" must not silently mean the default cluster */
        return exo_fail(err, EXO_INVAL, "%s: its value is empty", arg->name);
    if (arg->word == EXO_WORD_FIXED && exo_fixed_index(fixed_words(arg), word) < 0)
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

/* Finds the option that `word` names. *value is the text after its "=", or NULL. */
static const exo_arg *
find_option(const exo_command *command, const char *word, const char **value)
{
    const exo_arg *a;
    *value = NULL;
    for (size_t i = 0; (a = exo_option_at(command, i)); i++) {
        size_t length = strlen(a->name);
        if (strncmp(word, a->name, length) == 0 && (word[length] == '\0' || word[length] == '=')) {
            *value = word[length] == '=' ? word + length + 1 : NULL;
            return a;
        }
        if (a->brief && strcmp(word, a->brief) == 0)
            return a;
    }
    return NULL;
}

static exo_status
fail_unknown(const exo_command *command, const char *word, exo_err *err)
{
    char name[64], known[EXO_ERR_TEXT / 2] = "";
    size_t used = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    /* The leading dashes are not compared. */
    exo_nearest nearest = {.word = name + strspn(name, "-")};
    const exo_arg *option;
    for (size_t i = 0; (option = exo_option_at(command, i)); i++) {
        exo_nearest_try(&nearest, option->name + 2);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     option->name);
    }
    if (exo_nearest_name(&nearest))
        return exo_fail(err, EXO_INVAL, "unknown option %s; did you mean --%s?", name,
                        nearest.name);
    return exo_fail(err, EXO_INVAL, "unknown option %s; known are %s", name, known);
}

static exo_status
check_required(const struct reader *r, exo_err *err)
{
    for (const exo_arg *a = r->command->args; a && (a->name || a->value); a++) {
        const void *target = target_of(r, a);
        if (!a->required)
            continue;
        if (a->kind == EXO_ARG_LIST ? ((const exo_words *)target)->length > 0
                                    : *(const char *const *)target != NULL)
            continue;
        if (a->word == EXO_WORD_FIXED && !a->name)
            return fail_fixed(a, NULL, err);
        return exo_fail(err, EXO_INVAL, "%s%s%s is missing", a->name ? a->name : "",
                        a->name ? " " : "", a->value);
    }
    return EXO_OK;
}

/* Reads the next word and, if it is an option that needs one, its value. */
static exo_status
read_word(struct reader *r, exo_err *err)
{
    const char *word = r->argv[r->at++], *value = NULL;
    if (r->only_operands || word[0] != '-' || word[1] == '\0') {
        if (!r->operand || r->operand->kind != EXO_ARG_LIST)
            r->operand = exo_operand_at(r->command, r->operands++);
        return r->operand ? take(r, r->operand, word, err)
                          : exo_fail(err, EXO_INVAL, "'%s' is one word too many", word);
    }
    if (strcmp(word, "--") == 0) {
        r->only_operands = true;
        return EXO_OK;
    }
    const exo_arg *option = find_option(r->command, word, &value);
    if (!option)
        return fail_unknown(r->command, word, err);
    if (option->words) {
        if (value && exo_fixed_index(fixed_words(option), value) < 0)
            return fail_fixed(option, value, err);
        *(const char **)target_of(r, option) = value ? value : "";
        return EXO_OK;
    }
    if (option->kind == EXO_ARG_FLAG) {
        if (value)
            return exo_fail(err, EXO_INVAL, "%s takes no value", option->name);
        *(bool *)target_of(r, option) = true;
        return EXO_OK;
    }
    if (!value && r->at == r->argc)
        return exo_fail(err, EXO_INVAL, "%s needs a value", word);
    return take(r, option, value ? value : r->argv[r->at++], err);
}

exo_status
exo_args_read(const exo_command *command, int argc, char *const *argv, void *args, exo_asked *asked,
              exo_err *err)
{
    struct reader r = {
        .command = command, .argc = argc, .argv = argv, .args = args, .asked = asked};
    exo_status st = EXO_OK;
    /* Read all words even after an error, because --help may follow. */
    while (r.at < argc) {
        exo_status next = read_word(&r, st == EXO_OK ? err : NULL);
        st = st == EXO_OK ? next : st;
    }
    bool other = asked->help || asked->version || asked->man || asked->completion;
    return st == EXO_OK && !other ? check_required(&r, err) : st;
}

void
exo_args_release(const exo_command *command, void *args)
{
    for (const exo_arg *a = command->args; a && (a->name || a->value); a++)
        if (a->kind == EXO_ARG_LIST)
            exo_free(((exo_words *)(void *)((char *)args + a->offset))->items);
}
