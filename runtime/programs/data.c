/* `exogym data`: lists and fetches the public data sets, and makes text into tokens
 * (data_tokenize.c). */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/clock.h>
#include <exogym/data.h>
#include <exogym/memory.h>

#include "programs/commands.h"
#include "programs/data_tokenize.h"
#include "programs/stopping.h"
#include "programs/text.h"

/* The number of a set's files that are in its folder in full size. */
static size_t
files_here(const exo_data_source *source, const char *folder)
{
    size_t here = 0;
    for (size_t i = 0; i < source->num_files; i++) {
        struct stat info;
        char *path = exo_text_make(NULL, "%s/%s", folder, source->files[i].name);
        here += path && stat(path, &info) == 0 && (uint64_t)info.st_size == source->files[i].bytes;
        exo_free(path);
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
        if (here == source->num_files) {
            exo_print_path(stdout, "                             in ", folder, "\n");
        } else if (here > 0) {
            printf("%-18s %8s  %zu of %zu files", "", "", here, source->num_files);
            exo_print_path(stdout, " in ", folder, "\n");
        }
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
    fprintf(stderr, "%s%s  %s of %s%s", d->terminal ? "\r" : "", file,
            exo_text_bytes((double)got, got_text),
            total ? exo_text_bytes((double)total, total_text) : "?", d->terminal ? "\x1b[K" : "\n");
    fflush(stderr);
}

static exo_status
get(const char *name, exo_err *err)
{
    char *folder = NULL;
    struct download d = {.terminal = exo_text_can_redraw(stderr)};
    exo_status st = exo_data_fetch(name, show_download, &d, err);
    if (d.terminal && d.file[0])
        fputc('\n', stderr);
    if (st == EXO_OK)
        st = exo_data_folder(name, &folder, err);
    if (st == EXO_OK) {
        printf("%s is in ", name);
        exo_print_path(stdout, "", folder, "\n");
    }
    exo_free(folder);
    return st;
}

struct data_args {
    const char *action;
    exo_words names;
    struct exo_tokenize_args tokenize;
};

/* Checks the words against the action. */
static exo_status
check_args(const struct data_args *args, exo_err *err)
{
    const exo_words *names = &args->names;
    if (strcmp(args->action, "tokenize") == 0)
        return exo_tokenize_check(&args->tokenize, names, err);
    if (exo_tokenize_option(&args->tokenize))
        return exo_fail(err, EXO_INVAL, "%s is an option of 'exogym data tokenize'",
                        exo_tokenize_option(&args->tokenize));
    bool getting = strcmp(args->action, "get") == 0;
    if (getting && names->length == 0)
        return exo_fail(err, EXO_INVAL, "get which data set? NAME is missing");
    if (names->length > (getting ? 1 : 0))
        return exo_fail(err, EXO_INVAL, "'%s' is one word too many", names->items[getting ? 1 : 0]);
    return EXO_OK;
}

static int
data_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct data_args *args = line->args;
    exo_status st = check_args(args, &err);
    if (st != EXO_OK)
        return exo_report_usage(line->command, &err);
    if (strcmp(args->action, "list") == 0) {
        st = print_sets(&err);
    } else if (strcmp(args->action, "get") == 0) {
        st = get(args->names.items[0], &err);
        if (st == EXO_NOT_FOUND)
            err.code = EXO_INVAL; /* the name is wrong */
    } else {
        st = exo_tokenize(&args->tokenize, &args->names, &err);
        if (st == EXO_CANCELLED && exo_stop_reason > 0)
            return EXO_EXIT_SIGNAL + exo_stop_reason;
    }
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {NULL, "list|get|tokenize",
     "list: shows the public sets, their sizes, and where they are. get: fetches what is missing "
     "of the set NAME. tokenize: makes text files, the *.txt of folders, and the lines of *.jsonl "
     "(their key \"text\"), into token shards for "
     "`data: {name: tokens}`.",
     EXO_INTO(struct data_args, action), .word = EXO_WORD_FIXED, .required = true},
    {NULL, "NAME|FILE", "The set to get, or the files and folders to tokenize.",
     EXO_INTO(struct data_args, names), .word = EXO_WORD_DATA},
    {"--tokenizer", "TOKENIZER",
     "tokenize: characters, bytes, or a tokenizer.json or the folder it is in.",
     EXO_INTO(struct data_args, tokenize.tokenizer), .word = EXO_WORD_FILE},
    {"--output", "FOLDER",
     "tokenize: the new folder for shards and tokenizer.json. It appears when all is done.",
     EXO_INTO(struct data_args, tokenize.output), .brief = "-o", .word = EXO_WORD_FOLDER},
    {"--shard-size", "TOKENS", "tokenize: tokens in a file, such as 100M, which is the default.",
     EXO_INTO(struct data_args, tokenize.shard_size)},
    {"--documents", "end|ignore",
     "tokenize: whether the tokenizer's end token stands between documents; end, if it has "
     "one.",
     EXO_INTO(struct data_args, tokenize.documents), .word = EXO_WORD_FIXED},
    {0},
};

static const exo_note examples[] = {
    {"exogym data list", "Says what there is, and where."},
    {"exogym data get mnist", "Fetches MNIST; again, it does nothing."},
    {"exogym data tokenize books/ --tokenizer gpt2/ -o books.gpt2",
     "Makes books/*.txt into tokens of gpt2/tokenizer.json."},
    {0},
};

static const exo_note files[] = {
    {"$EXOGYM_DATA/NAME", "The set's files, if EXOGYM_DATA is set."},
    {"$XDG_DATA_HOME/exogym/NAME", "Else here, if XDG_DATA_HOME is set."},
    {"~/.local/share/exogym/NAME", "Else here."},
    {0},
};

const exo_command exo_command_data = {
    .name = "data",
    .summary = "Lists and fetches public data sets, makes text into tokens",
    .description = "A download that was cut goes on where it was, and no file gets its name before "
                   "its SHA-256 is right.\n\n"
                   "Fashion-MNIST also comes as the Debian package dataset-fashion-mnist.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct data_args),
    .run = data_command,
};
