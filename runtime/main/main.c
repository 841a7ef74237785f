/* main() of the exogym command: finds the command and hands over. Read next: commands.h, run.c. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"

static const exo_command *const commands[] = {&exo_command_run, &exo_command_plot, &exo_command_data,
                                              &exo_command_list};

enum {
    NUM_COMMANDS = sizeof commands / sizeof *commands
};

int
exo_report(const exo_err *err)
{
    fprintf(stderr, "exogym: %s\n", err->text[0] ? err->text : exo_status_text(err->code));
    return err->code == EXO_INVAL ? EXO_EXIT_USAGE : EXO_EXIT_FAILURE;
}

int
exo_report_usage(const exo_command *command, const exo_err *err)
{
    if (err->code != EXO_INVAL)
        return exo_report(err);
    fprintf(stderr, "exogym: %s: %s (see `exogym help %s`)\n", command->name, err->text, command->name);
    return EXO_EXIT_USAGE;
}

static void
print_help(void)
{
    fputs("exogym trains one model on several nodes under a strategy (DDP, DiLoCo, SPARTA, ...)\n"
          "and shows what each strategy costs and gives.\n\n"
          "Usage: exogym COMMAND [ARGUMENTS]\n\n",
          stdout);
    for (size_t i = 0; i < NUM_COMMANDS; i++)
        printf("  %-6s %s\n", commands[i]->name, commands[i]->summary);
    fputs("  help   Shows a command's arguments: exogym help run\n\n"
          "Options:\n"
          "  -h, --help     Shows this text\n"
          "  --version      Shows the version\n\n"
          "Exit status: 0 done, 1 something failed, 2 wrong arguments or job file,\n"
          "130 or 143 stopped by ctrl-C or SIGTERM with its state saved.\n\n"
          "Environment:\n"
          "  EXOGYM_THREADS  Threads that compute at once; all usable cores unless set\n"
          "  EXOGYM_DATA     Where data sets lie; ~/.local/share/exogym unless set\n"
          "  EXOGYM_LOG      error, warn (the default), info or debug\n\n"
          "To begin: exogym run examples/01_compare/compare.yaml --preset quick\n",
          stdout);
}

static void
print_command_help(const exo_command *command)
{
    printf("%s\n\nUsage: exogym %s\n\n%s", command->summary, command->usage, command->help);
}

static const exo_command *
find_command(const char *name)
{
    for (size_t i = 0; i < NUM_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int
fail_unknown(const char *name)
{
    fprintf(stderr, "exogym: unknown command '%s'; known are run, plot, data, list and help (see `exogym --help`)\n",
            name);
    return EXO_EXIT_USAGE;
}

static int
dispatch(int argc, char **argv)
{
    if (argc < 2) {
        fputs("exogym: which command? run, plot, data, list or help (see `exogym --help`)\n", stderr);
        return EXO_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        puts("exogym " EXO_VERSION);
        return EXO_EXIT_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (strcmp(name, "help") == 0 && argc == 2)) {
        print_help();
        return EXO_EXIT_OK;
    }
    bool help = strcmp(name, "help") == 0;
    const exo_command *command = find_command(help ? argv[2] : name);
    if (!command)
        return fail_unknown(help ? argv[2] : name);
    for (int i = 2; !help && i < argc && strcmp(argv[i], "--") != 0; i++)
        help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (help) {
        print_command_help(command);
        return EXO_EXIT_OK;
    }
    return command->run(argc - 2, argv + 2);
}

int
main(int argc, char **argv)
{
    int status = dispatch(argc, argv);
    /* A table that did not reach its file is a failure. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (errno != EPIPE)
            fprintf(stderr, "exogym: cannot write to standard output: %s\n", strerror(errno));
        return status == EXO_EXIT_OK ? EXO_EXIT_FAILURE : status;
    }
    return status;
}
