/* From argv to a command and its exit status. State: the program, set once before anything else
 * runs. */
#include "programs/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/environment.h"
#include "base/nearest.h"
#include "base/version.h"
#include "programs/output.h"

static const exo_command *the_program;

const exo_note exo_exits[] = {
    {"0", "Done."},
    {"1", "The command was right and something failed: a missing file, a full disk, no network."},
    {"2", "The command line is wrong."},
    {0},
};

const exo_command *
exo_program(void)
{
    return the_program;
}

const exo_command *
exo_program_find(const char *name)
{
    for (const exo_command *const *c = the_program->commands; c && *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

/* "run, plot, data or help" */
static void
list_commands(char *out, size_t size)
{
    size_t used = 0;
    for (const exo_command *const *c = the_program->commands; *c && used < size; c++)
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 used == 0 ? ""
                                 : c[1]    ? ", "
                                           : " or ",
                                 (*c)->name);
}

exo_status
exo_program_fail_unknown(const char *name, exo_err *err)
{
    char known[EXO_ERR_TEXT / 2];
    exo_nearest nearest = {.word = name};
    for (const exo_command *const *c = the_program->commands; *c; c++)
        exo_nearest_try(&nearest, (*c)->name);
    if (exo_nearest_name(&nearest))
        return exo_fail(err, EXO_INVAL, "unknown command '%.60s'; did you mean %s?", name,
                        nearest.name);
    list_commands(known, sizeof known);
    return exo_fail(err, EXO_INVAL, "unknown command '%.60s'; expected %s", name, known);
}

int
exo_report(const exo_err *err)
{
    fprintf(stderr, "%s: %s\n", the_program->name,
            err->text[0] ? err->text : exo_status_text(err->code));
    return err->code == EXO_INVAL ? EXO_EXIT_USAGE : EXO_EXIT_FAILURE;
}

int
exo_report_usage(const exo_command *command, const exo_err *err)
{
    if (err->code != EXO_INVAL)
        return exo_report(err);
    if (command == the_program)
        fprintf(stderr, "%s: %s (see `%s --help`)\n", command->name, err->text, command->name);
    else
        fprintf(stderr, "%s: %s: %s (see `%s help %s`)\n", the_program->name, command->name,
                err->text, the_program->name, command->name);
    return EXO_EXIT_USAGE;
}

/* Answers a request for help, version, manual page or completion. Returns whether there was one. */
static bool
answer(const exo_command *command, const exo_asked *asked)
{
    if (asked->help)
        exo_page_print_text(command);
    else if (asked->version)
        printf("%s %s\n", command->name, exo_version);
    else if (asked->man)
        exo_page_print_man(command);
    else if (asked->completion)
        exo_completion_print(asked->completion);
    else
        return false;
    return true;
}

/* argv: the `argc` words after the command's name. */
static int
run(const exo_command *command, int argc, char **argv)
{
    exo_err err = {0};
    exo_asked asked = {0};
    exo_command_line line = {.command = command, .argc = argc, .argv = argv};
    int status = EXO_EXIT_OK;
    line.args = exo_calloc(1, command->args_size + 1); /* + 1: some commands have no struct */
    if (!line.args) {
        exo_fail(&err, EXO_NOMEM, "out of memory");
        return exo_report(&err);
    }
    exo_status st = exo_args_read(command, argc, argv, line.args, &asked, &err);
    if (st == EXO_OK || asked.help) {
        if (!answer(command, &asked))
            status = command->run(&line);
    } else {
        status = exo_report_usage(command, &err);
    }
    exo_args_release(command, line.args);
    exo_free(line.args);
    return status;
}

/* Runs the command that the first word names. Without one, the first word is an option of the
 * program. */
static int
run_command(int argc, char **argv)
{
    exo_err err = {0};
    char known[EXO_ERR_TEXT / 2];
    const exo_command *command = argc > 0 ? exo_program_find(argv[0]) : NULL;
    if (command)
        return run(command, argc - 1, argv + 1);
    if (argc > 0 && argv[0][0] == '-' && argv[0][1] != '\0' && strcmp(argv[0], "--") != 0)
        return run(the_program, 1, argv);
    if (argc > 0) {
        exo_program_fail_unknown(argv[0], &err);
    } else {
        list_commands(known, sizeof known);
        exo_fail(&err, EXO_INVAL, "which command? %s", known);
    }
    return exo_report_usage(the_program, &err);
}

/* Opens /dev/null for each standard file that is closed. Otherwise the next opened file would get
 * its number, and with it everything that is printed. */
static void
open_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            abort();
}

static void
on_file_limit(int number)
{
    (void)number;
}

/* Lets a write beyond the limit of a file's size (ulimit -f) fail, where the signal would end the
 * process without a word. It is an empty handler instead of SIG_IGN, because started programs would
 * inherit SIG_IGN. */
static void
outlive_file_limit(void)
{
    struct sigaction action = {.sa_handler = on_file_limit, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGXFSZ, &action, NULL);
}

/* Takes back what a parent that ignores SIGCHLD has handed on: the kernel would keep no status of the
 * processes that this one starts, and not tell of their end. */
static void
notice_children(void)
{
    struct sigaction action;
    if (sigaction(SIGCHLD, NULL, &action) != 0 || action.sa_handler != SIG_IGN)
        return;
    action.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &action, NULL);
}

/* The first error of a flush. What a program does afterwards changes errno. */
static int output_error;

void
exo_flush_output(void)
{
    if (fflush(stdout) != 0 && !output_error)
        output_error = errno;
}

void
exo_forget_output_error(void)
{
    output_error = 0;
    clearerr(stdout);
}

int
exo_program_main(const exo_command *program, int argc, char **argv)
{
    exo_err err = {0};
    the_program = program;
    open_standard_files();
    exo_output_open();
    outlive_file_limit();
    notice_children();
    if (exo_environment_check(&err) != EXO_OK)
        return exo_report(&err);
    int status =
        program->commands ? run_command(argc - 1, argv + 1) : run(program, argc - 1, argv + 1);
    /* Output that did not reach its file is a failure. */
    exo_flush_output();
    if (output_error || ferror(stdout)) {
        int error = output_error ? output_error : errno;
        if (error != EPIPE)
            fprintf(stderr, "%s: cannot write to standard output: %s\n", program->name,
                    error == EAGAIN ? "its reader took nothing for 60 s" : strerror(error));
        return status == EXO_EXIT_OK ? EXO_EXIT_FAILURE : status;
    }
    return status;
}
