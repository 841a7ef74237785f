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
        char *path = exo_text_make(err, "%s/%s", folder, files[i]);
        st = path ? EXO_OK : EXO_NOMEM;
        if (path && exo_dir_unlink(path) != 0 && errno != ENOENT)
            st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
        exo_free(path);
    }
    return st == EXO_OK ? remove_finals(folder, err) : st;
}
