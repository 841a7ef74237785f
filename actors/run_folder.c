/* The folder of a run: see run_folder.h. No state. */
#include "actors/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/log.h>

#include "actors/checkpoint.h"
#include "base/dir.h"
#include "base/file.h"

#define EVENTS "events.out.tfevents."

/* The files of a finished run, in the order of their removal: a folder without a model has no
 * result. */
static const char *const results[] = {"result.json", "model.safetensors"};
/* The other files of a run. config.json is removed last: a folder without it holds no run. */
static const char *const others[] = {"tokenizer.json", "train.csv",       "validation.csv",
                                     "metrics.csv",    "correlation.csv", "meters.csv",
                                     "ledger.csv",     "network.json",    "timeline.json",
                                     "links.json",     "config.json"};

static exo_status
path_in(char out[EXO_CHECKPOINT_PATH], const char *folder, const char *name, exo_err *err)
{
    int length = snprintf(out, EXO_CHECKPOINT_PATH, "%s/%s", folder, name);
    return length >= 0 && length < EXO_CHECKPOINT_PATH
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "the path '%.200s' is too long", folder);
}

exo_status
exo_run_lock(const char *folder, int *lock, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    exo_status st = exo_dir_guard(folder, err);
    if (st == EXO_OK)
        st = path_in(path, folder, ".lock", err);
    int fd = st == EXO_OK ? exo_dir_open(path, O_CREAT | O_RDWR | O_NONBLOCK, 0666) : -1;
    if (st == EXO_OK && fd < 0)
        st = exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(errno));
    if (st == EXO_OK && !exo_file_lock(fd))
        st = exo_fail(err, EXO_EXISTS,
                      "%s: another run writes into this folder: wait for it or give another name",
                      folder);
    if (st == EXO_OK) {
        *lock = fd;
        /* The commands write the files graph.* and may be doing so now (programs/apply.c). */
        exo_file_sweep(folder, "graph.");
    } else if (fd >= 0) {
        close(fd);
    }
    return st;
}

bool
exo_run_is_finished(const char *folder)
{
    char path[EXO_CHECKPOINT_PATH];
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (path_in(path, folder, results[i], NULL) == EXO_OK && access(path, F_OK) == 0)
            return true;
    return false;
}

exo_status
exo_run_check_free(const char *folder, bool overwrite, exo_err *err)
{
    if (overwrite || !exo_run_is_finished(folder))
        return EXO_OK;
    return exo_fail(err, EXO_EXISTS,
                    "%s: holds a finished run: --overwrite starts it over, --resume keeps it or "
                    "goes on with more steps, and another name leaves it alone",
                    folder);
}

static exo_status
remove_files(const char *folder, const char *const *names, size_t count, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        st = path_in(path, folder, names[i], err);
        if (st == EXO_OK && exo_dir_unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR)
            st = exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(errno));
    }
    return st;
}

/* Event files are found by their prefix: their names contain the time. */
static exo_status
remove_events(const char *folder, exo_err *err)
{
    exo_status st = EXO_OK;
    DIR *dir = exo_dir_list(folder);
    if (!dir)
        return errno == ENOENT ? EXO_OK : exo_fail(err, EXO_IO, "%s: %s", folder, strerror(errno));
    for (struct dirent *entry; st == EXO_OK && (entry = readdir(dir));)
        if (strncmp(entry->d_name, EVENTS, sizeof EVENTS - 1) == 0 &&
            unlinkat(dirfd(dir), entry->d_name, 0) != 0)
            st = exo_fail(err, EXO_IO, "%s/%s: %s", folder, entry->d_name, strerror(errno));
    closedir(dir);
    return st;
}

exo_status
exo_run_reopen(const char *folder, exo_err *err)
{
    return remove_files(folder, results, sizeof results / sizeof *results, err);
}

exo_status
exo_run_start_over(const char *folder, bool overwrite, exo_err *err)
{
    char kept[EXO_CHECKPOINT_PATH] = "";
    bool finished = exo_run_is_finished(folder);
    exo_status st = exo_run_reopen(folder, err);
    if (st == EXO_OK && (overwrite || finished))
        st = exo_checkpoint_remove_all(folder, err);
    else if (st == EXO_OK)
        st = exo_checkpoint_put_aside(folder, kept, err);
    if (st == EXO_OK && kept[0])
        EXO_LOG(WARN, TRAIN,
                "kept=%s checkpoints of an earlier run that did not finish were put aside", kept);
    if (st == EXO_OK)
        st = remove_events(folder, err);
    return st == EXO_OK ? remove_files(folder, others, sizeof others / sizeof *others, err) : st;
}
