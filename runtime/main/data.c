/* `exogym data`: the public data sets, what of them is here, and fetching them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/clock.h>
#include <exogym/data.h>
#include <exogym/memory.h>

#include "args.h"
#include "commands.h"
#include "text.h"

/* How many of a set's files are in its folder, whole. */
static size_t
files_here(const exo_data_source *source, const char *folder)
{
    size_t here = 0;
    for (size_t i = 0; i < source->num_files; i++) {
        exo_text path = {0};
        struct stat info;
        exo_text_add(&path, "%s/%s", folder, source->files[i].name);
        if (!path.failed && stat(path.data, &info) == 0 && (uint64_t)info.st_size == source->files[i].bytes)
            here++;
        exo_free(path.data);
    }
    return here;
}

static exo_status
print_sets(exo_err *err)
{
    const exo_data_source *source = NULL;
    for (size_t i = 0; (source = exo_data_source_at(i)); i++) {
        char *folder = NULL, size[EXO_FIGURE];
        uint64_t bytes = 0;
        exo_status st = exo_data_folder(source->name, &folder, err);
        if (st != EXO_OK)
            return st;
        for (size_t f = 0; f < source->num_files; f++)
            bytes += source->files[f].bytes;
        size_t here = files_here(source, folder);
        printf("%-18s %8s  %s\n", source->name, exo_text_bytes((double)bytes, size), source->help);
        if (here == source->num_files)
            printf("%-18s %8s  in %s\n", "", "", folder);
        else if (here > 0)
            printf("%-18s %8s  %zu of %zu files in %s\n", "", "", here, source->num_files, folder);
        exo_free(folder);
    }
    return EXO_OK;
}

struct download {
    bool terminal;
    exo_time last;
    char file[128];
};

static void
show_download(void *context, const char *file, uint64_t got, uint64_t total)
{
    struct download *d = context;
    char got_text[EXO_FIGURE], total_text[EXO_FIGURE];
    exo_time now = exo_now(exo_clock_real());
    bool is_new = strcmp(d->file, file) != 0, done = total > 0 && got >= total;
    if (!is_new && !done && now - d->last < (d->terminal ? EXO_SECOND / 10 : 2 * EXO_SECOND))
        return;
    if (d->terminal && is_new && d->file[0])
        fputc('\n', stderr);
    snprintf(d->file, sizeof d->file, "%s", file);
    d->last = now;
    fprintf(stderr, "%s%s  %s of %s%s", d->terminal ? "\r" : "", file, exo_text_bytes((double)got, got_text),
            total ? exo_text_bytes((double)total, total_text) : "?", d->terminal ? "\x1b[K" : "\n");
    fflush(stderr);
}

static exo_status
get(const char *name, exo_err *err)
{
    char *folder = NULL;
    struct download d = {.terminal = isatty(STDERR_FILENO) != 0};
    exo_status st = exo_data_fetch(name, show_download, &d, err);
    if (d.terminal && d.file[0])
        fputc('\n', stderr);
    if (st == EXO_OK)
        st = exo_data_folder(name, &folder, err);
    if (st == EXO_OK)
        printf("%s is in %s\n", name, folder);
    exo_free(folder);
    return st;
}

static int
data_command(int argc, char **argv)
{
    exo_err err = {0};
    exo_words words = {0};
    const exo_option options[] = {{0}};
    int status = EXO_EXIT_OK;
    exo_status st = exo_args_read(argc, argv, options, &words, &err);
    if (st == EXO_OK && words.length == 1 && strcmp(words.items[0], "list") == 0) {
        if (print_sets(&err) != EXO_OK)
            status = exo_report(&err);
    } else if (st == EXO_OK && words.length == 2 && strcmp(words.items[0], "get") == 0) {
        st = get(words.items[1], &err);
        if (st == EXO_NOT_FOUND)
            err.code = EXO_INVAL; /* the name is wrong */
        if (st != EXO_OK)
            status = exo_report(&err);
    } else {
        if (st == EXO_OK)
            exo_fail(&err, EXO_INVAL, "expected `list` or `get NAME`");
        status = exo_report_usage(&exo_command_data, &err);
    }
    exo_words_release(&words);
    return status;
}

const exo_command exo_command_data = {
    .name = "data",
    .usage = "data list | data get NAME",
    .summary = "Lists and fetches public data sets",
    .help = "  list      The sets, their sizes, and where they are\n"
            "  get NAME  Fetches what is missing of a set; checks it; a cut download goes on\n\n"
            "Files lie in $EXOGYM_DATA/NAME, else $XDG_DATA_HOME/exogym/NAME, else\n"
            "~/.local/share/exogym/NAME. Fashion-MNIST also comes as the Debian package\n"
            "dataset-fashion-mnist.\n",
    .run = data_command,
};
