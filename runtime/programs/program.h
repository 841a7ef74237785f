/* main() of a program, made from its table: its commands, `--help`, `--version`, errors.
 *
 * A program of one command consists of its table and a main() that calls exo_program_main. State:
 * the program's table, set once, and the first error of standard output. Read next: program.c. */
#ifndef EXO_PROGRAMS_PROGRAM_H
#define EXO_PROGRAMS_PROGRAM_H

#include <exogym/status.h>

#include "programs/args.h"

enum exo_exit {
    EXO_EXIT_OK = 0,
    EXO_EXIT_FAILURE = 1, /* the command was right, but an operation failed */
    EXO_EXIT_USAGE = 2,   /* the command line or the job file is wrong */
    EXO_EXIT_SIGNAL = 128 /* plus the number of the signal that stopped it */
};

/* The exit statuses of commands that have no list of their own. */
extern const exo_note exo_exits[];

/* Finds the command, reads its arguments and runs it. Returns the exit status. A program of one
 * command also takes --man and --completion, in place of the commands help and completion. */
int exo_program_main(const exo_command *program, int argc, char **argv);

/* The running program. */
const exo_command *exo_program(void);
/* Finds a command of the program by name; NULL: there is none. */
const exo_command *exo_program_find(const char *name);
/* Fails with INVAL. The message suggests the nearest command, or lists all. */
exo_status exo_program_fail_unknown(const char *name, exo_err *err);

/* Flushes standard output. The program ends with the first error, whatever happens in between. */
void exo_flush_output(void);
/* What failed until now is no failure of the program. */
void exo_forget_output_error(void);

/* Prints "exogym: reason" on standard error. Returns the exit status for the error's code. */
int exo_report(const exo_err *err);
/* The same for a wrong command line; the message also says where to find help. */
int exo_report_usage(const exo_command *command, const exo_err *err);

/* Print help on standard output, as plain text or as a manual page in man(7) macros. */
void exo_page_print_text(const exo_command *command);
void exo_page_print_man(const exo_command *command);
/* Prints the program's completion script for "bash", "zsh" or "fish" on standard output. */
void exo_completion_print(const char *shell);

#endif
