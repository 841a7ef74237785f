/* The folder of a graph's run: see graph_folder.h. */
#include "programs/graph_folder.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/grow_text.h"
#include "programs/changes.h"
#include "programs/lenient_json.h"

enum {
    LARGEST = 256 << 20
};

/* The files of a run, in the order of their removal. The result goes first: a folder without a
 * result has no finished run. */
static const char *const files[] = {"result.json", "ledger.csv", "timeline.json", "graph.answer"};

/* The files of trainers: final_NAME.json is a trainer's result, and a resumed one continues from the
 * others. */
static const struct {
    const char *begin, *end;
    bool kept; /* for a resumed run */
} of_trainers[] = {
    {"final_", ".json", false},
    {"learned_", ".csv", true},
    {"versions_", ".csv", true},
    {"steps_", ".csv", true},
    {"checkpoint_", ".safetensors", true},
};

/* Does the result say that the run was stopped or failed? An unreadable result counts as that of a
 * finished run. */
static bool
was_cut(const char *text, size_t size)
{
    json_error_t reason;
    json_t *result = exo_json_load(text, size, &reason);
    const char *state = json_string_value(json_object_get(result, "state"));
    bool cut = state && (strcmp(state, "stopped") == 0 || strcmp(state, "failed") == 0);
    json_decref(result);
    return cut;
}

exo_status
exo_graph_folder_check_free(const char *folder, bool overwrite, exo_err *err)
{
    size_t size = 0;
    if (overwrite)
        return EXO_OK;
    char *path = exo_text_make(err, "%s/result.json", folder), *text = NULL;
    exo_status st = path ? EXO_OK : EXO_NOMEM;
    if (path && access(path, F_OK) == 0 &&
        (exo_file_read(path, LARGEST, &text, &size, NULL) != EXO_OK || !was_cut(text, size)))
        st = exo_fail(err, EXO_EXISTS,
                      "%s: holds a finished run: --overwrite starts it over, and another name "
                      "leaves it alone",
                      folder);
    exo_free(text);
    exo_free(path);
    return st;
}

/* Keys that a resumed run may change. A checkpoint is of no device; another one rounds otherwise. */
static const char *const free_settings[] = {"name",
                                            "clock",
                                            "until",
                                            "plugins",
                                            "hosts",
                                            "changes",
                                            "links",
                                            "actors.*.config.device",
                                            "actors.*.config.reward.device",
                                            "actors.*.config.reward.*.device",
                                            NULL};

bool
exo_graph_folder_can_resume(const exo_graph_spec *graph)
{
    for (size_t a = 0; a < graph->num_actors; a++)
        if (graph->actors[a].class->resumes)
            return true;
    return false;
}

exo_status
exo_graph_folder_check_resume(const char *folder, const exo_graph_spec *graph, exo_err *err)
{
    exo_config_doc *before = NULL, *now = NULL;
    exo_text difference = {0};
    if (!exo_graph_folder_can_resume(graph))
        return exo_fail(
            err, EXO_INVAL,
            "--resume: no class of this graph writes checkpoints: run with --overwrite");
    exo_status st = exo_changes_read(folder, &before, err);
    if (st == EXO_NOT_FOUND)
        return exo_fail(err, st,
                        "--resume: %s holds no run that has begun: leave --resume out to begin it",
                        folder);
    if (st == EXO_OK)
        st = exo_changes_expand(graph, &now, err);
    if (st == EXO_OK && exo_config_differs(exo_config_root(before), exo_config_root(now),
                                           free_settings, &difference))
        st = exo_fail(err, EXO_INVAL,
                      "--resume: %s was begun with another %s; run with --overwrite to start over, "
                      "or with --name",
                      folder, difference.data ? difference.data : "graph");
    exo_free(difference.data);
    exo_config_free(&before);
    exo_config_free(&now);
    return st;
}

static bool
is_of_trainer(const char *name, bool resume)
{
    for (size_t i = 0; i < sizeof of_trainers / sizeof *of_trainers; i++) {
        const char *begin = of_trainers[i].begin, *end = of_trainers[i].end;
        size_t length = strlen(name), around = strlen(begin) + strlen(end);
        if (length > around && strncmp(name, begin, strlen(begin)) == 0 &&
            strcmp(name + length - strlen(end), end) == 0)
            return !(resume && of_trainers[i].kept);
    }
    return false;
}

static exo_status
remove_files_of_trainers(const char *folder, bool resume, exo_err *err)
{
    exo_status st = EXO_OK;
    DIR *dir = exo_dir_list(folder);
    if (!dir)
        return errno == ENOENT ? EXO_OK
                               : exo_fail(err, EXO_IO, "%s: %s", folder, exo_dir_reason(errno));
    for (struct dirent *entry; st == EXO_OK && (entry = readdir(dir));)
        if (is_of_trainer(entry->d_name, resume) && unlinkat(dirfd(dir), entry->d_name, 0) != 0)
            st = exo_fail(err, EXO_IO, "cannot remove '%s/%s': %s", folder, entry->d_name,
                          strerror(errno));
    closedir(dir);
    return st;
}

exo_status
exo_graph_folder_start_over(const char *folder, bool resume, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof files / sizeof *files; i++) {
        char *path = exo_text_make(err, "%s/%s", folder, files[i]);
        st = path ? EXO_OK : EXO_NOMEM;
        if (path && exo_dir_unlink(path) != 0 && errno != ENOENT)
            st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
        exo_free(path);
    }
    return st == EXO_OK ? remove_files_of_trainers(folder, resume, err) : st;
}

/* --- The number of a run ---------------------------------------------------------------------- */

enum {
    TIMES = 16 /* bits that count how often a run was resumed */
};

static exo_status
read_number(const char *path, uint64_t *number, exo_err *err)
{
    char *text = NULL, *end = NULL;
    size_t size = 0;
    exo_status st = exo_file_read(path, 64, &text, &size, err);
    *number = 0;
    if (st == EXO_OK) {
        *number = strtoull(text, &end, 16);
        if (end == text || strcmp(end, "\n") != 0)
            st = exo_fail(err, EXO_DAMAGED, "%s: is damaged: it has no number of a run", path);
    }
    exo_free(text);
    return st == EXO_NOT_FOUND ? EXO_OK : st;
}

static exo_status
draw_number(uint64_t *number, exo_err *err)
{
    *number = 0;
    while (*number >> TIMES == 0)
        if (getrandom(number, sizeof *number, 0) != (ssize_t)sizeof *number)
            return exo_fail(err, EXO_IO, "the kernel gives no random numbers: %s", strerror(errno));
    *number = *number >> TIMES << TIMES;
    return EXO_OK;
}

exo_status
exo_graph_folder_number(const char *folder, bool resume, bool draw, uint64_t *number, exo_err *err)
{
    char text[32];
    char *path = exo_text_make(err, "%s/.graph.run", folder);
    exo_status st = path ? EXO_OK : EXO_NOMEM;
    *number = 0;
    if (st == EXO_OK && resume) {
        st = read_number(path, number, err);
        if (*number && (*number + 1) >> TIMES == *number >> TIMES)
            ++*number;
    } else if (st == EXO_OK && draw) {
        st = draw_number(number, err);
    }
    if (st == EXO_OK && *number) {
        snprintf(text, sizeof text, "%016llx\n", (unsigned long long)*number);
        st = exo_file_write_atomic(path, text, strlen(text), err);
    } else if (st == EXO_OK && exo_dir_unlink(path) != 0 && errno != ENOENT) {
        st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
    }
    exo_free(path);
    return st;
}
