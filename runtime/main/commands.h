/* The commands of `exogym`. Each gets the words after its name, prints its own errors, and gives the exit status. */
#ifndef EXO_MAIN_COMMANDS_H
#define EXO_MAIN_COMMANDS_H

#include <exogym/status.h>

enum exo_exit {
    EXO_EXIT_OK = 0,
    EXO_EXIT_FAILURE = 1, /* the command was right, and something failed     */
    EXO_EXIT_USAGE = 2,   /* the command line or the job file is wrong        */
    EXO_EXIT_SIGNAL = 128 /* plus the number of the signal that stopped it    */
};

typedef struct exo_command {
    const char *name;
    const char *usage;   /* "run JOB.yaml [options]" */
    const char *summary; /* one line, for `exogym --help` */
    const char *help;    /* the rest of `exogym help NAME` */
    int (*run)(int argc, char **argv);
} exo_command;

extern const exo_command exo_command_run, exo_command_plot, exo_command_data, exo_command_list;

/* "exogym: reason" on standard error, and the exit status for the error's code. */
int exo_report(const exo_err *err);
/* A wrong command line: the reason and where help is. */
int exo_report_usage(const exo_command *command, const exo_err *err);

#endif
