/* A program with one command: a table of arguments, and a main() that hands the table over. The
 * test cli/program runs it. Read next: runtime/programs/program.h. */
#include <stdio.h>
#include <string.h>

#include "programs/program.h"

struct greet_args {
    const char *greeting, *style, *model;
    exo_words whom, with;
    bool loud;
};

static int
greet(const exo_command_line *line)
{
    exo_err err = {0};
    const struct greet_args *args = line->args;
    if (strcmp(args->greeting, "fail") == 0) {
        exo_fail(&err, EXO_IO, "as asked");
        return exo_report(&err);
    }
    printf("%s%s", args->greeting, args->loud ? "!" : "");
    for (size_t i = 0; i < args->whom.length; i++)
        printf(" %s", args->whom.items[i]);
    for (size_t i = 0; i < args->with.length; i++)
        printf(" with %s", args->with.items[i]);
    printf(" %s of %d\n", args->style ? args->style : "-", line->argc);
    return EXO_EXIT_OK;
}

static const exo_arg table[] = {
    {NULL, "GREETING", "Said first.", EXO_INTO(struct greet_args, greeting), .required = true},
    {NULL, "WHOM", "Then these.", EXO_INTO(struct greet_args, whom), .word = EXO_WORD_FOLDER},
    {"--style", "plain|fancy", ".hidden 'quotes' \\back-slash; a~b^c `d` \"e\".",
     EXO_INTO(struct greet_args, style), .brief = "-s", .word = EXO_WORD_FIXED},
    {"--with", "FILE", "Can be repeated.", EXO_INTO(struct greet_args, with),
     .word = EXO_WORD_FILE},
    {"--model", "NAME", "A model.", EXO_INTO(struct greet_args, model), .word = EXO_WORD_MODEL},
    {"--loud", NULL, "With an exclamation mark.", EXO_INTO(struct greet_args, loud)},
    {0},
};

static const exo_command program = {
    .name = "exogym-greet",
    .summary = "Greets",
    .description = "'Quoted' first. .Then a dot.\n\n.TH is no request here.",
    .args = table,
    .args_size = sizeof(struct greet_args),
    .run = greet,
};

int
main(int argc, char **argv)
{
    return exo_program_main(&program, argc, argv);
}
