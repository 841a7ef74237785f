/* `exogym list`: what a job can name. */
#include <stdio.h>
#include <string.h>

#include <exogym/model.h>
#include <exogym/plugin.h>
#include <exogym/strategy.h>

#include "args.h"
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

static exo_status
list(const exo_words *operands, const exo_words *plugins, exo_err *err)
{
    if (operands->length == 0)
        return exo_fail(err, EXO_INVAL, "what? strategies or models");
    if (operands->length > 1)
        return exo_fail(err, EXO_INVAL, "'%s' is one word too many", operands->items[1]);
    bool strategies = strcmp(operands->items[0], "strategies") == 0;
    if (!strategies && strcmp(operands->items[0], "models") != 0)
        return exo_fail(err, EXO_INVAL, "expected strategies or models, got '%s'", operands->items[0]);
    for (size_t i = 0; i < plugins->length; i++) {
        exo_status st = exo_plugin_load(plugins->items[i], err);
        if (st != EXO_OK)
            return st;
    }
    if (strategies)
        print_strategies();
    else
        print_models();
    return EXO_OK;
}

static int
list_command(int argc, char **argv)
{
    exo_err err = {0};
    exo_words operands = {0}, plugins = {0};
    const exo_option options[] = {{.name = "--plugin", .list = &plugins}, {0}};
    exo_status st = exo_args_read(argc, argv, options, &operands, &err);
    if (st == EXO_OK)
        st = list(&operands, &plugins, &err);
    exo_words_release(&operands);
    exo_words_release(&plugins);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report_usage(&exo_command_list, &err);
}

const exo_command exo_command_list = {
    .name = "list",
    .usage = "list strategies|models [--plugin FILE.so]...",
    .summary = "Lists the strategies or models that a job can name",
    .help = "  --plugin FILE.so  Loads a plugin first; can be given again and again\n",
    .run = list_command,
};
