/* Checkpoint folders: see checkpoint.h. No state. The trainer's thread calls it; nodes call
 * exo_checkpoint_node_path too. */
#include "actors/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "actors/manifest.h"
#include "base/c_locale.h"
#include "base/config_edit.h"
#include "base/dir.h"
#include "base/file.h"
#include "report/json_text.h"

#define RUN_JSON "run.json"

enum {
    KEPT = 2,
    MAX_OTHERS = 16, /* files other than the nodes' and run.json */
    MAX_SETTINGS = 1 << 20
};

static exo_status path_format(char out[EXO_CHECKPOINT_PATH], exo_err *err, const char *format, ...)
    EXO_PRINTF(3, 4);

static exo_status
path_format(char out[EXO_CHECKPOINT_PATH], exo_err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = exo_c_vsnprintf(out, EXO_CHECKPOINT_PATH, format, args);
    va_end(args);
    if (length < 0 || length >= EXO_CHECKPOINT_PATH)
        return exo_fail(err, EXO_INVAL, "the path '%.200s...' is longer than %d bytes", out,
                        EXO_CHECKPOINT_PATH - 1);
    return EXO_OK;
}

/* Guards the folder of the run, two levels above the checkpoint's: a node in another process than
 * the trainer writes there too. */
static exo_status
guard_run_of(const char *folder, exo_err *err)
{
    char run[EXO_CHECKPOINT_PATH];
    exo_status st = path_format(run, err, "%s", folder);
    for (int i = 0; st == EXO_OK && i < 2; i++) {
        char *slash = strrchr(run, '/');
        if (!slash || slash == run)
            return EXO_OK;
        *slash = '\0';
    }
    return st == EXO_OK ? exo_dir_guard(run, err) : st;
}

exo_status
exo_checkpoint_node_path(char out[EXO_CHECKPOINT_PATH], const char *folder, uint32_t rank,
                         exo_err *err)
{
    exo_status st = guard_run_of(folder, err);
    return st != EXO_OK ? st
                        : path_format(out, err, "%s/node_%" PRIu32 ".safetensors", folder, rank);
}

exo_status
exo_checkpoint_server_path(char out[EXO_CHECKPOINT_PATH], const char *folder, exo_err *err)
{
    exo_status st = guard_run_of(folder, err);
    return st != EXO_OK ? st : path_format(out, err, "%s/server.safetensors", folder);
}

static exo_status
step_path(char out[EXO_CHECKPOINT_PATH], const char *run_folder, uint64_t step, bool partial,
          exo_err *err)
{
    return path_format(out, err, "%s/checkpoints/%sstep_%08" PRIu64 "%s", run_folder,
                       partial ? "." : "", step, partial ? ".partial" : "");
}

/* Reads the step from a folder's name "step_<digits>"; false for any other name. */
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

/* Removes a folder that contains plain files only. */
static void
remove_folder(const char *path)
{
    DIR *folder = exo_dir_list(path);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    exo_dir_rmdir(path);
}

/* Finds the largest step below `limit` that has a checkpoint. */
static bool
newest_below(const char *run_folder, uint64_t limit, uint64_t *step)
{
    char path[EXO_CHECKPOINT_PATH];
    if (path_format(path, NULL, "%s/checkpoints", run_folder) != EXO_OK)
        return false;
    DIR *folder = exo_dir_list(path);
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

bool
exo_checkpoint_newest(const char *run_folder, char out[EXO_CHECKPOINT_PATH])
{
    uint64_t step = 0;
    return newest_below(run_folder, UINT64_MAX, &step) &&
           step_path(out, run_folder, step, false, NULL) == EXO_OK;
}

exo_status
exo_checkpoint_verify(const char *checkpoint, exo_err *err)
{
    uint64_t named = 0, step = 0;
    const char *slash = strrchr(checkpoint, '/');
    exo_status st = exo_manifest_check(checkpoint, &step, err);
    if (st == EXO_OK && parse_step(slash ? slash + 1 : checkpoint, &named) && named != step)
        st = exo_fail(err, EXO_INVAL,
                      "%s: the folder holds the checkpoint of step %" PRIu64
                      " under another name: rename it to step_%08" PRIu64,
                      checkpoint, step, step);
    return st;
}

exo_status
exo_checkpoint_choose(const char *run_folder, exo_checkpoint_choice *out, exo_err *err)
{
    *out = (exo_checkpoint_choice){0};
    exo_status st = EXO_OK;
    for (uint64_t limit = UINT64_MAX, step = 0; newest_below(run_folder, limit, &step);
         limit = step) {
        char path[EXO_CHECKPOINT_PATH];
        exo_err damage = {0};
        st = step_path(path, run_folder, step, false, err);
        if (st != EXO_OK)
            return st;
        st = exo_checkpoint_verify(path, &damage);
        if (st == EXO_NOMEM)
            return exo_fail(err, st, "%s", damage.text);
        if (!out->found) {
            memcpy(out->newest, path, sizeof path);
            out->damage = damage;
        }
        out->found = true;
        if (st == EXO_OK) {
            memcpy(out->intact, path, sizeof path);
            break;
        }
    }
    return EXO_OK;
}

exo_status
exo_checkpoint_set_damaged_aside(const char *run_folder, const char *kept, exo_err *err)
{
    uint64_t kept_step = 0, step = 0;
    const char *slash = strrchr(kept, '/');
    if (!parse_step(slash ? slash + 1 : kept, &kept_step))
        return exo_fail(err, EXO_INVAL,
                        "%s: the folder is not a checkpoint: expected a name such as step_00000100",
                        kept);
    while (newest_below(run_folder, UINT64_MAX, &step) && step > kept_step) {
        char from[EXO_CHECKPOINT_PATH], to[EXO_CHECKPOINT_PATH];
        exo_status st = step_path(from, run_folder, step, false, err);
        if (st == EXO_OK)
            st = path_format(to, err, "%s/checkpoints/damaged_step_%08" PRIu64, run_folder, step);
        if (st != EXO_OK)
            return st;
        remove_folder(to); /* an earlier one of the same step */
        if (exo_dir_rename(from, to, 0) != 0)
            return exo_fail(err, EXO_IO, "%s: %s", from, exo_dir_reason(errno));
    }
    return EXO_OK;
}

exo_status
exo_checkpoint_begin(const char *run_folder, uint64_t step, char out[EXO_CHECKPOINT_PATH],
                     exo_err *err)
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
    int fd = exo_dir_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return;
    fsync(fd); /* an error is ignored: the rename is atomic in any case */
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

/* Removes the hidden folders of steps before `step`, which a kill has left: checkpoints are completed
 * in their order. */
static void
remove_left(const char *run_folder, uint64_t step)
{
    char path[EXO_CHECKPOINT_PATH];
    DIR *folder =
        path_format(path, NULL, "%s/checkpoints", run_folder) == EXO_OK ? exo_dir_list(path) : NULL;
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char *end = NULL;
        if (strncmp(entry->d_name, ".step_", 6) != 0)
            continue;
        const uint64_t left = strtoull(entry->d_name + 6, &end, 10);
        if (left < step && strcmp(end, ".partial") == 0 &&
            step_path(path, run_folder, left, true, NULL) == EXO_OK)
            remove_folder(path);
    }
    closedir(folder);
}

/* Adds a line for each file of the folder that has none yet; its SHA-256 is computed from the file
 * as it is on the disk. */
static exo_status
add_others(const char *folder, exo_manifest_line *lines, size_t *count, size_t room, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t before = *count;
    DIR *dir = exo_dir_list(folder);
    if (!dir)
        return exo_fail(err, EXO_IO, "%s: %s", folder, exo_dir_reason(errno));
    for (struct dirent *entry; st == EXO_OK && (entry = readdir(dir));) {
        char path[EXO_CHECKPOINT_PATH];
        bool known = entry->d_name[0] == '.';
        for (size_t i = 0; !known && i < before; i++)
            known = strcmp(lines[i].name, entry->d_name) == 0;
        if (known)
            continue;
        exo_manifest_line *line = &lines[*count];
        st = path_format(path, err, "%s/%s", folder, entry->d_name);
        if (st == EXO_OK && (*count == room || strlen(entry->d_name) >= sizeof line->name))
            st = exo_fail(err, EXO_INVAL, "%s: the file does not belong to a checkpoint: remove it",
                          path);
        if (st == EXO_OK)
            st = exo_sha256_file(path, line->sha256, err);
        if (st == EXO_OK)
            snprintf(lines[(*count)++].name, sizeof line->name, "%s", entry->d_name);
    }
    closedir(dir);
    return st;
}

/* Writes the manifest of the folder's files: the nodes' files, run.json with these settings, and
 * the other files of the run, such as its figures. */
static exo_status
write_manifest(const char *folder, uint64_t step, const char *settings, const char (*sums)[65],
               uint32_t num_nodes, exo_err *err)
{
    size_t count = (size_t)num_nodes + 1, room = count + MAX_OTHERS;
    exo_manifest_line *lines = exo_calloc(room, sizeof *lines);
    if (!lines)
        return exo_fail(err, EXO_NOMEM, "%s: no memory for its manifest", folder);
    for (uint32_t r = 0; r < num_nodes; r++) {
        snprintf(lines[r].name, sizeof lines[r].name, "node_%" PRIu32 ".safetensors", r);
        memcpy(lines[r].sha256, sums[r], sizeof lines[r].sha256);
    }
    snprintf(lines[num_nodes].name, sizeof lines[num_nodes].name, RUN_JSON);
    exo_sha256(settings, strlen(settings), lines[num_nodes].sha256);
    exo_status st = add_others(folder, lines, &count, room, err);
    if (st == EXO_OK)
        st = exo_manifest_write(folder, step, lines, count, err);
    exo_free(lines);
    return st;
}

/* Gives the folder its final name. After a resume there may be an older checkpoint of the same
 * step. The two are exchanged then, so that there is a complete one at any moment; where the file
 * system cannot do that, the older one is moved aside until the new one has its name. */
static exo_status
give_name(const char *partial, const char *whole, exo_err *err)
{
    if (exo_dir_rename(partial, whole, RENAME_EXCHANGE) == 0) {
        remove_folder(partial);
        return EXO_OK;
    }
    char aside[EXO_CHECKPOINT_PATH + 8];
    snprintf(aside, sizeof aside, "%s.older", partial);
    remove_folder(aside);
    const bool moved = exo_dir_rename(whole, aside, 0) == 0; /* otherwise there is none */
    exo_status st = EXO_OK;
    if (exo_dir_rename(partial, whole, 0) != 0)
        st = exo_fail(err, EXO_IO, "%s: %s", whole, exo_dir_reason(errno));
    if (moved && st == EXO_OK)
        remove_folder(aside);
    else if (moved)
        exo_dir_rename(aside, whole, 0);
    return st;
}

exo_status
exo_checkpoint_commit(const char *run_folder, uint64_t step, const char *settings,
                      const char (*sums)[65], uint32_t num_nodes, exo_err *err)
{
    char partial[EXO_CHECKPOINT_PATH], whole[EXO_CHECKPOINT_PATH], file[EXO_CHECKPOINT_PATH];
    exo_status st = step_path(partial, run_folder, step, true, err);
    if (st == EXO_OK)
        st = step_path(whole, run_folder, step, false, err);
    if (st == EXO_OK)
        st = path_format(file, err, "%s/" RUN_JSON, partial);
    if (st == EXO_OK)
        st = exo_file_write_atomic(file, settings, strlen(settings), err);
    if (st == EXO_OK)
        st = write_manifest(partial, step, settings, sums, num_nodes, err);
    if (st != EXO_OK)
        return st;
    flush_folder(partial);
    st = give_name(partial, whole, err);
    if (st != EXO_OK)
        return st;
    if (path_format(file, NULL, "%s/checkpoints", run_folder) == EXO_OK)
        flush_folder(file);
    remove_old(run_folder);
    remove_left(run_folder, step);
    return EXO_OK;
}

/* Compares the options of a checkpoint by meaning. "name" is skipped, because the strategy's name
 * is a setting of its own. */
static exo_status
check_options(const char *checkpoint, const json_t *then, const exo_config *now, exo_err *err)
{
    /* `cpu_offload` says where shards are, and changes no bit of them. */
    static const char *const skipped[] = {"name", "cpu_offload", NULL};
    exo_config_doc *doc = NULL;
    const char *text = json_string_value(then);
    exo_text path = {0};
    exo_status st = text ? exo_config_parse(&doc, checkpoint, text, err)
                         : exo_fail(err, EXO_INVAL, "%s/" RUN_JSON ": the key 'options' is missing",
                                    checkpoint);
    if (st == EXO_OK && exo_config_differs(exo_config_root(doc), now, skipped, &path))
        st = exo_fail(err, EXO_INVAL,
                      "%s: the checkpoint was written with other options, the first difference is "
                      "in %s: resume with the same settings, or start anew without resume",
                      checkpoint, path.data ? path.data : "an option");
    exo_config_free(&doc);
    exo_free(path.data);
    return st;
}

exo_status
exo_checkpoint_check(const char *checkpoint, const char *settings, const exo_config *options,
                     exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    char *text = NULL;
    size_t size = 0;
    json_t *then = NULL, *now = NULL;
    exo_status st = path_format(path, err, "%s/" RUN_JSON, checkpoint);
    if (st == EXO_OK)
        st = exo_file_read(path, MAX_SETTINGS, &text, &size, err);
    if (st != EXO_OK)
        goto done;

    then = json_loadb(text, size, 0, NULL);
    now = json_loads(settings, 0, NULL);
    if (!json_is_object(then) || !json_is_object(now)) {
        st = exo_fail(err, EXO_INVAL, "%s: the file does not hold the settings of a checkpoint",
                      path);
        goto done;
    }
    const char *key;
    json_t *value;
    static const char *const shares[] = {"tensor", "pipeline", "context"}; /* absent: 1 */
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        if (json_object_get(then, shares[i]) && !json_object_get(now, shares[i]))
            json_object_set_new(now, shares[i], json_integer(1));
    json_object_foreach (now, key, value) {
        json_t *old = json_object_get(then, key);
        if (old && json_equal(old, value))
            continue;
        if (options && strcmp(key, "options") == 0) {
            st = check_options(checkpoint, old, options, err);
            if (st == EXO_OK)
                continue;
            goto done;
        }
        char *was = exo_json_dump(old, JSON_ENCODE_ANY | JSON_COMPACT);
        char *is = exo_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
        st = exo_fail(
            err, EXO_INVAL,
            "%s: the checkpoint was written with %s %s, but this run has %s: resume with the "
            "same settings, or start anew without resume",
            checkpoint, key, was ? was : "(none)", is ? is : "?");
        exo_free(was);
        exo_free(is);
        goto done;
    }
done:
    json_decref(then);
    json_decref(now);
    exo_free(text);
    return st;
}

exo_status
exo_checkpoint_setting(const char *checkpoint, const char *key, uint64_t *value, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH], *text = NULL;
    size_t size = 0;
    exo_status st = path_format(path, err, "%s/" RUN_JSON, checkpoint);
    if (st == EXO_OK)
        st = exo_file_read(path, MAX_SETTINGS, &text, &size, err);
    json_t *settings = st == EXO_OK ? json_loadb(text, size, 0, NULL) : NULL;
    const json_t *found = json_object_get(settings, key);
    if (st == EXO_OK && !json_is_integer(found))
        st = exo_fail(err, EXO_INVAL, "%s: the key '%s' is missing", path, key);
    if (st == EXO_OK)
        *value = (uint64_t)json_integer_value(found);
    json_decref(settings);
    exo_free(text);
    return st;
}

/* Other names in the folder of checkpoints are the user's. */
static bool
is_of_a_run(const char *name)
{
    static const char *const beginnings[] = {"step_", ".step_", "damaged_step_"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

exo_status
exo_checkpoint_remove_all(const char *run_folder, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH], from[EXO_CHECKPOINT_PATH];
    exo_status st = path_format(from, err, "%s/checkpoints", run_folder);
    DIR *folder = st == EXO_OK ? exo_dir_list(from) : NULL;
    if (!folder)
        return st;
    for (struct dirent *entry; st == EXO_OK && (entry = readdir(folder));) {
        if (!is_of_a_run(entry->d_name))
            continue;
        st = path_format(path, err, "%s/%s", from, entry->d_name);
        if (st != EXO_OK)
            break;
        remove_folder(path);
        if (access(path, F_OK) == 0 && exo_dir_rmdir(path) != 0)
            st = exo_fail(err, EXO_IO, "%s: cannot remove the folder: %s", path,
                          exo_dir_reason(errno));
    }
    closedir(folder);
    exo_dir_rmdir(from);
    return st;
}

exo_status
exo_checkpoint_put_aside(const char *run_folder, char kept[EXO_CHECKPOINT_PATH], exo_err *err)
{
    kept[0] = '\0';
    uint64_t step = 0;
    char from[EXO_CHECKPOINT_PATH];
    exo_status st = path_format(from, err, "%s/checkpoints", run_folder);
    if (st != EXO_OK || !newest_below(run_folder, UINT64_MAX, &step))
        return st;
    for (unsigned i = 1; i < 10000; i++) {
        st = path_format(kept, err, "%s/checkpoints.%u", run_folder, i);
        if (st != EXO_OK)
            return st;
        if (access(kept, F_OK) == 0)
            continue;
        if (exo_dir_rename(from, kept, 0) != 0)
            return exo_fail(err, EXO_IO, "%s: %s", kept, exo_dir_reason(errno));
        return EXO_OK;
    }
    return exo_fail(err, EXO_EXISTS, "%s holds 10,000 sets of old checkpoints: remove some",
                    run_folder);
}

/* --- Models ----------------------------------------------------------------------------------- */

exo_status
exo_checkpoint_save_model(const exo_model *model, exo_params *params, const char *strategy,
                          const char *sha256, const char *path, exo_err *err)
{
    exo_state *state = NULL;
    exo_status st = exo_state_new(&state, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < exo_params_count(params); i++) {
        const exo_param_info *info = exo_params_info(params, i);
        exo_state_add_shaped(state, info->name, EXO_F32, exo_params_at(params, i), info->num_dims,
                             info->dims);
    }
    exo_state_metadata(state, "model", exo_model_name(model));
    exo_state_metadata(state, "strategy", strategy);
    exo_state_metadata(state, EXO_MODEL_SHA256, sha256);
    st = exo_state_save(state, path, err);
    exo_state_free(&state);
    return st;
}
