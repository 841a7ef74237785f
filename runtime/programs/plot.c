/* Draws pictures of runs, and the command `exogym plot`. plot_runs.c reads the runs and
 * plot_script.c writes a gnuplot script, on which gnuplot runs here. The script is gnuplot's
 * standard input and the picture its standard output. So neither a shell nor gnuplot gets a file's
 * name; gnuplot would take a name that begins with "|" for a command. No state. */
#include "programs/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "programs/child.h"
#include "programs/commands.h"
#include "programs/plot_script.h"
#include "programs/plot_versions.h"
#include "programs/stopping.h"

enum {
    MAX_LINE = 1024
};

extern char **environ;

/* --- gnuplot ---------------------------------------------------------------------------------- */

/* Fails with gnuplot's first message, without the line of the script that precedes it. */
static exo_status
fail_gnuplot(int complaints, int status, exo_err *err)
{
    char text[MAX_LINE] = "";
    ssize_t got = pread(complaints, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    char *reason = text + strspn(text, " \n\t^");
    char *line = strstr(reason, "line ");
    if (line)
        reason = line;
    reason[strcspn(reason, "\n")] = '\0';
    if (*reason)
        return exo_fail(err, EXO_FAILED, "gnuplot: %s", reason);
    return exo_fail(err, EXO_FAILED, "gnuplot ended with status %d",
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128);
}

/* picture: a descriptor of the file to write. */
static exo_status
run_gnuplot(const exo_text *script, int picture, exo_err *err)
{
    /* with --default-settings, gnuplot does not read the user's start file */
    char *const argv[] = {"gnuplot", "--default-settings", "-", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    int status = 0;
    exo_status st = EXO_OK;
    int input = memfd_create("script", MFD_CLOEXEC),
        complaints = memfd_create("complaints", MFD_CLOEXEC);
    posix_spawn_file_actions_init(&actions);
    if (input < 0 || complaints < 0 ||
        write(input, script->data, script->length) != (ssize_t)script->length ||
        lseek(input, 0, SEEK_SET) != 0) {
        st = exo_fail(err, EXO_IO, "cannot hold gnuplot's script: %s", strerror(errno));
        goto done;
    }
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, picture, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, complaints, STDERR_FILENO);
    int failure = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    if (failure == ENOENT) {
        st = exo_fail(err, EXO_NOT_FOUND,
                      "gnuplot is not installed (Debian: apt install gnuplot-nox)");
        goto done;
    }
    if (failure) {
        st = exo_fail(err, EXO_FAILED, "cannot start gnuplot: %s", strerror(failure));
        goto done;
    }
    st = exo_child_await(child, "gnuplot", EXO_CHILD_PATIENCE, &exo_stop_reason, &status, err);
    if (st == EXO_OK && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        st = fail_gnuplot(complaints, status, err);
done:
    posix_spawn_file_actions_destroy(&actions);
    if (input >= 0)
        close(input);
    if (complaints >= 0)
        close(complaints);
    return st;
}

/* Whether the file has a picture's end. gnuplot's PNG writer does not notice a full disk, and ends
 * with 0 after a part of the picture. */
static bool
is_complete(const char *path, bool svg)
{
    const char *const end = svg ? "</svg>" : "IEND\xae\x42\x60\x82";
    char bytes[16];
    struct stat info;
    int fd = exo_dir_open(path, O_RDONLY, 0);
    if (fd < 0)
        return false;
    ssize_t got = fstat(fd, &info) == 0 && info.st_size >= (off_t)sizeof bytes
                      ? pread(fd, bytes, sizeof bytes, info.st_size - (off_t)sizeof bytes)
                      : 0;
    close(fd);
    return got == (ssize_t)sizeof bytes && memmem(bytes, sizeof bytes, end, strlen(end));
}

/* Runs a script, whose picture gets the name `out`. */
static exo_status
draw(const exo_text *script, bool svg, const char *out, exo_err *err)
{
    char *temporary = exo_text_make(NULL, "%s.partial-XXXXXX", out);
    exo_status st = EXO_OK;
    if (script->failed || !temporary) {
        st = exo_fail(err, EXO_NOMEM, "out of memory");
        goto done;
    }
    int picture = exo_dir_temporary(temporary);
    if (picture < 0) {
        st = exo_fail(err, EXO_IO, "cannot write '%s': %s", out, strerror(errno));
        goto done;
    }
    st = run_gnuplot(script, picture, err);
    if (close(picture) != 0 && st == EXO_OK)
        st = exo_fail(err, EXO_IO, "cannot write '%s': %s", out, strerror(errno));
    if (st == EXO_OK && !is_complete(temporary, svg))
        st = exo_fail(err, EXO_IO, "gnuplot could not write all of '%s': is the disk full?", out);
    if (st == EXO_OK && exo_dir_rename(temporary, out, 0) != 0)
        st = exo_fail(err, EXO_IO, "cannot write '%s': %s", out, strerror(errno));
    if (st != EXO_OK)
        exo_dir_unlink(temporary);
done:
    exo_free(temporary);
    return st;
}

/* Whether all folders are runs of policies that learn from rewards. */
static bool
all_have_versions(const char *const *folders, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!exo_plot_has_versions(folders[i]))
            return false;
    return count > 0;
}

exo_status
exo_plot(const char *const *folders, size_t count, const char *title, const char *out, exo_err *err)
{
    exo_plot_data data = {0};
    exo_text script = {0};
    const char *dot = strrchr(out, '.');
    bool svg = dot && strcmp(dot, ".svg") == 0;
    exo_status st = EXO_OK;
    if (!title)
        title = "";
    if (!svg && (!dot || strcmp(dot, ".png") != 0)) {
        st = exo_fail(err, EXO_INVAL, "'%s': a picture's name ends with .png or .svg", out);
    } else if (all_have_versions(folders, count)) {
        st = exo_plot_versions(&script, folders, count, title, svg, err);
    } else {
        st = exo_plot_read(&data, folders, count, err);
        if (st == EXO_OK)
            exo_plot_script(&script, &data, title, svg);
    }
    if (st == EXO_OK)
        st = draw(&script, svg, out, err);
    exo_free(script.data);
    exo_plot_release(&data);
    return st;
}

/* --- The command ------------------------------------------------------------------------------ */

struct plot_args {
    exo_words folders;
    const char *out, *title;
};

static int
plot_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct plot_args *args = line->args;
    const char *title = args->title, *first = args->folders.items[0];
    if (!title && args->folders.length == 1) {
        const char *slash = strrchr(first, '/');
        title = slash && slash[1] ? slash + 1 : first;
    }
    exo_stop_on_signals("");
    exo_status st = exo_plot(args->folders.items, args->folders.length, title, args->out, &err);
    if (exo_stop_reason > 0 && st != EXO_OK)
        return EXO_EXIT_SIGNAL + exo_stop_reason;
    if (st != EXO_OK)
        return exo_report(&err);
    printf("%s\n", args->out);
    return EXO_EXIT_OK;
}

static const exo_arg table[] = {
    {NULL, "RUN", "A run's folder (runs/compare/ddp), or one that holds several (runs/compare).",
     EXO_INTO(struct plot_args, folders), .word = EXO_WORD_FOLDER, .required = true},
    {"--output", "FILE", "The picture; its ending, .png or .svg, says the format.",
     EXO_INTO(struct plot_args, out), .brief = "-o", .word = EXO_WORD_FILE, .required = true},
    {"--title", "TEXT", "Stands above it; else the folder's name if there is one.",
     EXO_INTO(struct plot_args, title)},
    {0},
};

static const exo_note examples[] = {
    {"exogym plot runs/compare -o compare.png", "All runs of a job."},
    {"exogym plot runs/a/diloco runs/b/diloco -o both.svg --title \"two learning rates\"",
     "Runs of two jobs."},
    {0},
};

static const exo_note files[] = {
    {"RUN/metrics.csv", "What is drawn of a training job."},
    {"RUN/versions_TRAINER.csv", "What is drawn of a graph with a ppo_trainer."},
    {0},
};

const exo_command exo_command_plot = {
    .name = "plot",
    .summary = "Draws validation loss by step, by bytes sent and by time",
    .description =
        "One colour a run: the global model (the average of all nodes) solid, and with "
        "up to eight curves the local one (node 0) dashed. Folders named LABEL-seedN "
        "are seeds of one strategy: their mean, with a band from the least to the "
        "largest. Works on a run that is still going.\n\n"
        "Of graphs with a ppo_trainer it draws the mean score by KL from version 0, and by "
        "version, one curve a run.\n\n"
        "Needs gnuplot (Debian: apt install gnuplot-nox). The picture appears only when "
        "it is whole.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct plot_args),
    .run = plot_command,
};
