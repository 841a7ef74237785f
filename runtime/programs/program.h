/* main() of a program, made from its table: commands or one command, `--help`, `--version`, errors.
 *
 * A program of one command is its table and a main() that hands it over. State: which program this
 * is, set once. */
#ifndef EXO_PROGRAMS_PROGRAM_H
#define EXO_PROGRAMS_PROGRAM_H

#include <exogym/status.h>

#include "programs/args.h"

enum exo_exit {
    EXO_EXIT_OK = 0,
    EXO_EXIT_FAILURE = 1, /* the command was right, and something failed     */
    EXO_EXIT_USAGE = 2,   /* the command line or the job file is wrong        */
    EXO_EXIT_SIGNAL = 128 /* plus the number of the signal that stopped it    */
};

/* What exit statuses mean where a command says nothing else. */
extern const exo_note exo_exits[];

/* Finds the command, reads its arguments, runs it; gives the exit status. A program of one command
 * also takes --man and --completion, which stand for the commands help and completion of one that
 * has commands. */
int exo_program_main(const exo_command *program, int argc, char **argv);

/* The program that runs. */
const exo_command *exo_program(void);
/* Its command of that name, or NULL. */
const exo_command *exo_program_find(const char *name);
/* INVAL, with the nearest command or all of them. */
exo_status exo_program_fail_unknown(const char *name, exo_err *err);

/* "exogym: reason" on standard error, and the exit status for the error's code. */
int exo_report(const exo_err *err);
/* The same for a wrong command line: also where help is. */
int exo_report_usage(const exo_command *command, const exo_err *err);

/* Help on standard output: as plain text, or as a manual page in man(7) macros. */
void exo_page_print_text(const exo_command *command);
void exo_page_print_man(const exo_command *command);
/* The program's completion script for "bash", "zsh" or "fish", on standard output. */
void exo_completion_print(const char *shell);

#endif
