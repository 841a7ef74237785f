/* `exogym help` and `exogym completion`: print the commands' tables for people, man(1) and
 * shells. */
#include <stddef.h>

#include "programs/commands.h"

struct help_args {
    const char *command;
    bool man;
};

static int
help_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct help_args *args = line->args;
    const exo_command *command = args->command ? exo_program_find(args->command) : exo_program();
    if (!command) {
        exo_program_fail_unknown(args->command, &err);
        return exo_report_usage(exo_program(), &err);
    }
    if (args->man)
        exo_page_print_man(command);
    else
        exo_page_print_text(command);
    return EXO_EXIT_OK;
}

static const exo_arg help_table[] = {
    {NULL, "COMMAND", "What help is about; the program itself if there is none.",
     EXO_INTO(struct help_args, command), .word = EXO_WORD_COMMAND},
    {"--man", NULL, "Prints the manual page as man(7) source instead of plain text.",
     EXO_INTO(struct help_args, man)},
    {0},
};

static const exo_note help_examples[] = {
    {"exogym help run", "The same as exogym run --help."},
    {"exogym help --man run | man -l -", "Reads the manual page where it is not installed."},
    {0},
};

const exo_command exo_command_help = {
    .name = "help",
    .summary = "Shows what a command does and takes",
    .description = "Prints a command's summary, arguments, examples, files and exit statuses on "
                   "standard output.",
    .args = help_table,
    .examples = help_examples,
    .args_size = sizeof(struct help_args),
    .run = help_command,
};

struct completion_args {
    const char *shell;
};

static int
completion_command(const exo_command_line *line)
{
    const struct completion_args *args = line->args;
    exo_completion_print(args->shell);
    return EXO_EXIT_OK;
}

static const exo_arg completion_table[] = {
    {NULL, "bash|zsh|fish", "The shell that will read the script.",
     EXO_INTO(struct completion_args, shell), .word = EXO_WORD_FIXED, .required = true},
    {0},
};

static const exo_note completion_examples[] = {
    {"source <(exogym completion bash)", "Completes in this bash."},
    {"exogym completion zsh >\"${fpath[1]}/_exogym\"", "Completes in every zsh from the next on."},
    {"exogym completion fish >~/.config/fish/completions/exogym.fish", "Completes in every fish."},
    {0},
};

static const exo_note completion_files[] = {
    {"share/bash-completion/completions/exogym",
     "Where an installation has the script for bash, under its prefix."},
    {"share/zsh/site-functions/_exogym", "The one for zsh."},
    {"share/fish/vendor_completions.d/exogym.fish", "The one for fish."},
    {0},
};

const exo_command exo_command_completion = {
    .name = "completion",
    .summary = "Prints a script that completes arguments in a shell",
    .description = "The script completes commands, options, fixed words and files by itself. It "
                   "asks `exogym list` for strategies, models and data sets.",
    .args = completion_table,
    .examples = completion_examples,
    .files = completion_files,
    .args_size = sizeof(struct completion_args),
    .run = completion_command,
};
