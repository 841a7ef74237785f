/* The folder of a graph's run: see graph_folder.h. */
#include "programs/graph_folder.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/grow_text.h"
#include "programs/lenient_json.h"

enum {
    LARGEST = 256 << 20
};

/* The files of a run, in the order of their removal. The result goes first: a folder without a
 * result has no finished run. */
static const char *const files[] = {"result.json", "ledger.csv", "timeline.json", "graph.answer"};

/* A trainer's result is in final_NAME.json, where NAME is the trainer's. */
#define FINAL     "final_"
#define FINAL_END ".json"

static exo_status
path_in(exo_text *path, const char *folder, const char *name, exo_err *err)
{
    *path = (exo_text){0};
    exo_text_add(path, "%s/%s", folder, name);
    return path->failed ? exo_fail(err, EXO_NOMEM, "out of memory") : EXO_OK;
}

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
    exo_text path = {0};
    char *text = NULL;
    size_t size = 0;
    if (overwrite)
        return EXO_OK;
    exo_status st = path_in(&path, folder, "result.json", err);
    if (st == EXO_OK && access(path.data, F_OK) == 0 &&
        (exo_file_read(path.data, LARGEST, &text, &size, NULL) != EXO_OK || !was_cut(text, size)))
        st = exo_fail(err, EXO_EXISTS,
                      "%s: holds a finished run: --overwrite starts it over, and another name "
                      "leaves it alone",
                      folder);
    exo_free(text);
    exo_free(path.data);
    return st;
}

static bool
is_final(const char *name)
{
    size_t length = strlen(name);
    return length > strlen(FINAL FINAL_END) && strncmp(name, FINAL, strlen(FINAL)) == 0 &&
           strcmp(name + length - strlen(FINAL_END), FINAL_END) == 0;
}

static exo_status
remove_finals(const char *folder, exo_err *err)
{
    exo_status st = EXO_OK;
    DIR *dir = exo_dir_list(folder);
    if (!dir)
        return errno == ENOENT ? EXO_OK
                               : exo_fail(err, EXO_IO, "%s: %s", folder, exo_dir_reason(errno));
    for (struct dirent *entry; st == EXO_OK && (entry = readdir(dir));)
        if (is_final(entry->d_name) && unlinkat(dirfd(dir), entry->d_name, 0) != 0)
            st = exo_fail(err, EXO_IO, "cannot remove '%s/%s': %s", folder, entry->d_name,
                          strerror(errno));
    closedir(dir);
    return st;
}

exo_status
exo_graph_folder_start_over(const char *folder, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof files / sizeof *files; i++) {
        exo_text path = {0};
        st = path_in(&path, folder, files[i], err);
        if (st == EXO_OK && exo_dir_unlink(path.data) != 0 && errno != ENOENT)
            st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path.data, exo_dir_reason(errno));
        exo_free(path.data);
    }
    return st == EXO_OK ? remove_finals(folder, err) : st;
}
