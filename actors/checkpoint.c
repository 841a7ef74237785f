/* Checkpoint folders: see checkpoint.h. No state; called by the trainer's thread, the path function by nodes too. */
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include <exogym/memory.h>

#include "file.h"

enum {
    KEPT = 2,
    MAX_SETTINGS = 1 << 20
};

static exo_status path_format(char out[EXO_CHECKPOINT_PATH], exo_err *err, const char *format, ...) EXO_PRINTF(3, 4);

static exo_status
path_format(char out[EXO_CHECKPOINT_PATH], exo_err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out, EXO_CHECKPOINT_PATH, format, args);
    va_end(args);
    if (length < 0 || length >= EXO_CHECKPOINT_PATH)
        return exo_fail(err, EXO_INVAL, "the path '%.200s...' is longer than %d bytes", out, EXO_CHECKPOINT_PATH - 1);
    return EXO_OK;
}

exo_status
exo_checkpoint_node_path(char out[EXO_CHECKPOINT_PATH], const char *folder, uint32_t rank, exo_err *err)
{
    return path_format(out, err, "%s/node_%" PRIu32 ".safetensors", folder, rank);
}

static exo_status
step_path(char out[EXO_CHECKPOINT_PATH], const char *run_folder, uint64_t step, bool partial, exo_err *err)
{
    return path_format(out, err, "%s/checkpoints/%sstep_%08" PRIu64 "%s", run_folder, partial ? "." : "", step,
                       partial ? ".partial" : "");
}

/* The step in a folder's name "step_<digits>"; false for any other name. */
static bool
parse_step(const char *name, uint64_t *step)
{
    if (strncmp(name, "step_", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    char *end = NULL;
    errno = 0;
    *step = strtoull(name + 5, &end, 10);
    return errno == 0 && *end == '\0';
}

/* Removes a folder of plain files. */
static void
remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

/* The largest step below `limit` that has a whole checkpoint. */
static bool
newest_below(const char *run_folder, uint64_t limit, uint64_t *step)
{
    char path[EXO_CHECKPOINT_PATH];
    if (path_format(path, NULL, "%s/checkpoints", run_folder) != EXO_OK)
        return false;
    DIR *folder = opendir(path);
    if (!folder)
        return false;
    bool found = false;
    for (struct dirent *entry; (entry = readdir(folder));) {
        uint64_t s = 0;
        if (parse_step(entry->d_name, &s) && s < limit && (!found || s > *step)) {
            *step = s;
            found = true;
        }
    }
    closedir(folder);
    return found;
}

exo_status
exo_checkpoint_newest(const char *run_folder, char out[EXO_CHECKPOINT_PATH], bool *found, exo_err *err)
{
    uint64_t step = 0;
    *found = newest_below(run_folder, UINT64_MAX, &step);
    return *found ? step_path(out, run_folder, step, false, err) : EXO_OK;
}

exo_status
exo_checkpoint_begin(const char *run_folder, uint64_t step, char out[EXO_CHECKPOINT_PATH], exo_err *err)
{
    exo_status st = step_path(out, run_folder, step, true, err);
    if (st != EXO_OK)
        return st;
    remove_folder(out);
    return exo_folder_make(out, err);
}

void
exo_checkpoint_abort(const char *run_folder, uint64_t step)
{
    char path[EXO_CHECKPOINT_PATH];
    if (step_path(path, run_folder, step, true, NULL) == EXO_OK)
        remove_folder(path);
}

static void
flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd); /* a hint where the file system cannot: the rename is atomic all the same */
    close(fd);
}

static void
remove_old(const char *run_folder)
{
    uint64_t limit = UINT64_MAX, step = 0;
    for (int kept = 0; newest_below(run_folder, limit, &step); kept++) {
        char path[EXO_CHECKPOINT_PATH];
        if (kept >= KEPT && step_path(path, run_folder, step, false, NULL) == EXO_OK)
            remove_folder(path);
        limit = step;
    }
}

exo_status
exo_checkpoint_commit(const char *run_folder, uint64_t step, const char *settings, exo_err *err)
{
    char partial[EXO_CHECKPOINT_PATH], whole[EXO_CHECKPOINT_PATH], file[EXO_CHECKPOINT_PATH];
    exo_status st = step_path(partial, run_folder, step, true, err);
    if (st == EXO_OK)
        st = step_path(whole, run_folder, step, false, err);
    if (st == EXO_OK)
        st = path_format(file, err, "%s/run.json", partial);
    if (st == EXO_OK)
        st = exo_file_write_atomic(file, settings, strlen(settings), err);
    if (st != EXO_OK)
        return st;
    flush_folder(partial);
    remove_folder(whole); /* the same step again, of a run that was resumed: the same numbers */
    if (rename(partial, whole) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", whole, strerror(errno));
    if (path_format(file, NULL, "%s/checkpoints", run_folder) == EXO_OK)
        flush_folder(file);
    remove_old(run_folder);
    return EXO_OK;
}

exo_status
exo_checkpoint_check(const char *checkpoint, const char *settings, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    char *text = NULL;
    size_t size = 0;
    json_t *then = NULL, *now = NULL;
    exo_status st = path_format(path, err, "%s/run.json", checkpoint);
    if (st == EXO_OK)
        st = exo_file_read(path, MAX_SETTINGS, &text, &size, err);
    if (st != EXO_OK)
        goto done;

    then = json_loadb(text, size, 0, NULL);
    now = json_loads(settings, 0, NULL);
    if (!json_is_object(then) || !json_is_object(now)) {
        st = exo_fail(err, EXO_INVAL, "%s: not the settings of a checkpoint", path);
        goto done;
    }
    const char *key;
    json_t *value;
    json_object_foreach(now, key, value)
    {
        json_t *old = json_object_get(then, key);
        if (old && json_equal(old, value))
            continue;
        char *was = old ? json_dumps(old, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        char *is = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        st = exo_fail(err, EXO_INVAL,
                      "%s: the checkpoint was written with %s %s, this run has %s: resume with the same settings, or "
                      "start anew without resume",
                      checkpoint, key, was ? was : "(none)", is ? is : "?");
        json_free_t release;
        json_get_alloc_funcs(NULL, &release);
        release(was);
        release(is);
        goto done;
    }
done:
    json_decref(then);
    json_decref(now);
    exo_free(text);
    return st;
}

exo_status
exo_checkpoint_put_aside(const char *run_folder, char kept[EXO_CHECKPOINT_PATH], exo_err *err)
{
    kept[0] = '\0';
    uint64_t step = 0;
    char path[EXO_CHECKPOINT_PATH], from[EXO_CHECKPOINT_PATH];
    exo_status st = path_format(path, err, "%s/model.safetensors", run_folder);
    if (st != EXO_OK || !newest_below(run_folder, UINT64_MAX, &step))
        return st;
    st = path_format(from, err, "%s/checkpoints", run_folder);
    if (st != EXO_OK)
        return st;
    if (access(path, F_OK) == 0) { /* it finished: its model is what counts, and is replaced when this one finishes */
        for (; newest_below(run_folder, UINT64_MAX, &step);) {
            if (step_path(path, run_folder, step, false, err) != EXO_OK)
                break;
            remove_folder(path);
            if (access(path, F_OK) == 0)
                return exo_fail(err, EXO_IO, "%s: cannot be removed", path);
        }
        return EXO_OK;
    }
    for (unsigned i = 1; i < 10000; i++) {
        st = path_format(kept, err, "%s/checkpoints.%u", run_folder, i);
        if (st != EXO_OK)
            return st;
        if (access(kept, F_OK) == 0)
            continue;
        if (rename(from, kept) != 0)
            return exo_fail(err, EXO_IO, "%s: %s", kept, strerror(errno));
        return EXO_OK;
    }
    return exo_fail(err, EXO_EXISTS, "%s holds 10,000 sets of old checkpoints: remove some", run_folder);
}
