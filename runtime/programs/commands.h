/* The commands of `exogym`. Each consists of a table and a function, and prints its own errors.
 * main.c lists them. */
#ifndef EXO_PROGRAMS_COMMANDS_H
#define EXO_PROGRAMS_COMMANDS_H

#include "programs/program.h"

extern const exo_command exo_command_run, exo_command_sweep, exo_command_plan, exo_command_plot,
    exo_command_data, exo_command_list, exo_command_doctor, exo_command_keygen, exo_command_graph,
    exo_command_status, exo_command_spawn, exo_command_call, exo_command_kill, exo_command_why,
    exo_command_dump, exo_command_logs, exo_command_stop, exo_command_explain, exo_command_export,
    exo_command_generate, exo_command_help, exo_command_completion, exo_command_ckpt;

/* Exit statuses of commands that run a job, and of the program: those of exo_exits, and the signals
 * that stop a run. */
extern const exo_note exo_run_exits[];

#endif
