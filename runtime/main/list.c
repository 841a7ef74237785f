/* `exogym list`: what a job can name, one a line, for people and for the shells' completions. */
#include <stdio.h>
#include <string.h>

#include <exogym/data.h>
#include <exogym/model.h>
#include <exogym/plugin.h>
#include <exogym/strategy.h>

#include "commands.h"

static void
print_entry(const char *name, const char *help)
{
    printf("%-16s %s\n", name, help ? help : "");
}

static void
print_strategies(void)
{
    const exo_strategy_class *c = NULL;
    for (size_t i = 0; (c = exo_strategy_class_at(i)); i++)
        print_entry(c->name, c->help);
}

static void
print_models(void)
{
    const exo_model_class *c = NULL;
    for (size_t i = 0; (c = exo_model_class_at(i)); i++)
        print_entry(c->name, c->help);
}

static void
print_data_sets(void)
{
    const exo_data_source *source = NULL;
    for (size_t i = 0; (source = exo_data_source_at(i)); i++)
        print_entry(source->name, source->help);
}

static void
print_commands(void)
{
    for (const exo_command *const *c = exo_program()->commands; *c; c++)
        print_entry((*c)->name, (*c)->summary);
}

struct list_args {
    const char *what;
    exo_words plugins;
};

static int
list_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct list_args *args = line->args;
    for (size_t i = 0; i < args->plugins.length; i++)
        if (exo_plugin_load(args->plugins.items[i], &err) != EXO_OK)
            return exo_report_usage(line->command, &err);
    if (strcmp(args->what, "strategies") == 0)
        print_strategies();
    else if (strcmp(args->what, "models") == 0)
        print_models();
    else if (strcmp(args->what, "data") == 0)
        print_data_sets();
    else
        print_commands();
    return EXO_EXIT_OK;
}

static const exo_arg table[] = {
    {.value = "strategies|models|data|commands",
     .help = "What is listed: the strategies, models or data sets that a job can name, or the commands of exogym.",
     .word = EXO_WORD_FIXED,
     .required = true,
     EXO_INTO(struct list_args, what)},
    {.name = "--plugin",
     .value = "FILE.so",
     .help = "Loads a plugin first; can be given again and again.",
     .word = EXO_WORD_FILE,
     EXO_INTO(struct list_args, plugins)},
    {0},
};

static const exo_note examples[] = {
    {"exogym list strategies --plugin ./libint8.so", "Shows a plugin's strategies beside the built-in ones."},
    {0},
};

const exo_command exo_command_list = {
    .name = "list",
    .summary = "Lists the strategies, models or data sets that a job can name",
    .description = "One a line: the name, then what it is.",
    .args = table,
    .examples = examples,
    .args_size = sizeof(struct list_args),
    .run = list_command,
};
