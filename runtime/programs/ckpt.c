/* `exogym ckpt reshard`: converts a checkpoint to another number of nodes, to nodes that share the model
 * in another way, or to another way of sharding. One thread. Read next: actors/reshard.h, job.c. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "actors/checkpoint.h"
#include "actors/reshard.h"
#include "actors/run_folder.h"
#include "base/config_edit.h"
#include "base/dir.h"
#include "base/file.h"
#include "programs/commands.h"
#include "programs/job.h"
#include "programs/text.h"

enum {
    MAX_ROWS = 1 << 28,
    MAX_LABELS = 32 /* runs of a job among which a message names the choice */
};

struct ckpt_args {
    const char *action, *from, *to, *nodes, *tensor, *pipeline, *microbatches, *context, *strategy;
    bool full;
};

/* The options that belong to one strategy alone; another one does not take them over. */
static const char *const own_options[] = {"sharding_strategy", "group_size", "prefetch", "across",
                                          "bucket_size",       "cpu_offload"};

struct reshard {
    const struct ckpt_args *args;
    /* 0: those of the checkpoint; if one of those from tensor on is given, the others are 1 */
    uint64_t nodes, tensor, pipeline, microbatches, context;
    char run[EXO_CHECKPOINT_PATH], checkpoint[EXO_CHECKPOINT_PATH];
    char to[EXO_CHECKPOINT_PATH];  /* TO, without links and dots */
    size_t num_made;               /* folders at the end of `to` that were not there */
    char *save_dir, *name, *label; /* of the new run: SAVE_DIR/NAME/LABEL */
    exo_config_doc *doc;           /* of the new run's job */
    exo_job job;
    int lock;
};

/* --- The checkpoint --------------------------------------------------------------------------- */

static exo_status
put_path(char out[EXO_CHECKPOINT_PATH], exo_err *err, const char *folder, const char *file)
{
    int length = snprintf(out, EXO_CHECKPOINT_PATH, "%s%s", folder, file);
    return length >= 0 && length < EXO_CHECKPOINT_PATH
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "the path '%.200s...' is too long", folder);
}

static bool
has(const char *folder, const char *file)
{
    char path[EXO_CHECKPOINT_PATH];
    return put_path(path, NULL, folder, file) == EXO_OK && access(path, F_OK) == 0;
}

static int
compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the labels of the runs with a checkpoint in a job's folder, by name. The caller frees them with
 * free_labels, also after an error. */
static exo_status
list_labels(const char *folder, char *labels[MAX_LABELS], size_t *count, exo_err *err)
{
    DIR *dir = exo_dir_list(folder);
    *count = 0;
    exo_status st = EXO_OK;
    for (struct dirent *e; dir && st == EXO_OK && *count < MAX_LABELS && (e = readdir(dir));) {
        char run[EXO_CHECKPOINT_PATH], newest[EXO_CHECKPOINT_PATH];
        int length = snprintf(run, sizeof run, "%s/%s", folder, e->d_name);
        if (e->d_name[0] == '.' || length >= (int)sizeof run || !exo_checkpoint_newest(run, newest))
            continue;
        labels[*count] = exo_strdup(e->d_name);
        st = labels[(*count)++] ? EXO_OK : exo_fail(err, EXO_NOMEM, "out of memory");
    }
    if (dir)
        closedir(dir);
    if (st == EXO_OK)
        qsort(labels, *count, sizeof *labels, compare_words);
    return st;
}

static void
free_labels(char *labels[MAX_LABELS], size_t count)
{
    for (size_t i = 0; i < count; i++)
        exo_free(labels[i]);
}

/* Fails: a job's folder has several runs. */
static exo_status
fail_choice(const char *from, char *const labels[MAX_LABELS], size_t count, exo_err *err)
{
    exo_text names = {0};
    for (size_t i = 0; i < count; i++)
        exo_text_add(&names, "%s%s/%s", i ? ", " : "", from, labels[i]);
    exo_fail(err, EXO_INVAL, "%s: has the checkpoints of %zu runs: name one of %s", from, count,
             names.data ? names.data : "them");
    exo_free(names.data);
    return EXO_INVAL;
}

/* Finds the run: that folder itself, or the only one with a checkpoint in a job's folder. */
static exo_status
find_run(struct reshard *r, exo_err *err)
{
    char newest[EXO_CHECKPOINT_PATH], *labels[MAX_LABELS];
    const char *from = r->args->from;
    size_t count = 0;
    if (exo_checkpoint_newest(from, newest))
        return put_path(r->run, err, from, "");
    exo_status st = list_labels(from, labels, &count, err);
    if (st == EXO_OK && count == 0)
        st = exo_fail(err, EXO_NOT_FOUND, "%s: is no checkpoint, and no run with one", from);
    if (st == EXO_OK && count > 1)
        st = fail_choice(from, labels, count, err);
    if (st == EXO_OK) {
        char *label = exo_text_make(err, "/%s", labels[0]);
        st = label ? put_path(r->run, err, from, label) : EXO_NOMEM;
        exo_free(label);
    }
    free_labels(labels, count);
    return st;
}

/* Finds the checkpoint: that folder itself, or the newest one of a run. A damaged one is an error, and
 * not passed over silently. */
static exo_status
find_checkpoint(struct reshard *r, exo_err *err)
{
    const char *from = r->args->from;
    exo_checkpoint_choice choice = {0};
    if (has(from, "/node_0.safetensors") || has(from, "/manifest.sha256")) {
        exo_status st = put_path(r->checkpoint, err, from, "");
        return st == EXO_OK ? put_path(r->run, err, from, "/../..") : st;
    }
    exo_status st = find_run(r, err);
    if (st == EXO_OK)
        st = exo_checkpoint_choose(r->run, &choice, err);
    if (st == EXO_OK && !choice.found)
        return exo_fail(err, EXO_NOT_FOUND, "%s: is no checkpoint, and no run with one", r->run);
    if (st == EXO_OK && choice.damage.code != EXO_OK)
        return exo_fail(err, EXO_FAILED, "%s%s%s%s", choice.damage.text,
                        choice.intact[0] ? "; " : "", choice.intact,
                        choice.intact[0] ? " is older and intact" : "");
    return st == EXO_OK ? put_path(r->checkpoint, err, choice.newest, "") : st;
}

/* --- The new run's job ------------------------------------------------------------------------ */

/* Cuts the last word off a path; NULL: no memory, or there is none. */
static char *
cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    char *word = exo_strdup(slash ? slash + 1 : path);
    if (slash)
        *slash = '\0';
    return word;
}

/* Finds where TO will be: what exists of the path, without links, and the folders to be made below it. */
static exo_status
find_target(struct reshard *r, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH], above[PATH_MAX], *more = NULL;
    const char *found = NULL;
    exo_text to = {0};
    exo_status st = put_path(path, err, r->args->to, "");
    size_t end = st == EXO_OK ? strlen(path) : 0;
    while (st == EXO_OK && end > 0) {
        const char cut = path[end];
        path[end] = '\0';
        found = realpath(path, above);
        path[end] = cut;
        if (found || errno != ENOENT)
            break;
        while (end > 0 && path[end - 1] != '/')
            end--;
        while (end > 1 && path[end - 1] == '/')
            end--;
    }
    if (st == EXO_OK && !found && (path[0] == '\0' || end > 0 || !realpath(".", above)))
        st = exo_fail(err, EXO_IO, "%s: the folder cannot be found", r->args->to);
    if (st != EXO_OK)
        return st;
    exo_text_add(&to, "%s", strcmp(above, "/") == 0 ? "" : above);
    for (char *word = strtok_r(path + end, "/", &more); word; word = strtok_r(NULL, "/", &more)) {
        if (strcmp(word, ".") == 0 || strcmp(word, "..") == 0)
            st = exo_fail(err, EXO_INVAL, "%s: '%s' follows a folder that does not exist",
                          r->args->to, word);
        exo_text_add(&to, "/%s", word);
        r->num_made++;
    }
    if (st == EXO_OK)
        st = to.failed ? exo_fail(err, EXO_NOMEM, "out of memory")
                       : put_path(r->to, err, to.data ? to.data : "/", "");
    exo_free(to.data);
    return st;
}

/* Checks that TO is not within the source: a file more in a checkpoint counts as damage. */
static exo_status
check_outside(const struct reshard *r, exo_err *err)
{
    const char *const sources[] = {r->run, r->checkpoint};
    char real[PATH_MAX];
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const size_t length = realpath(sources[i], real) ? strlen(real) : 0;
        if (length > 0 && strncmp(r->to, real, length) == 0 &&
            (r->to[length] == '/' || r->to[length] == '\0'))
            return exo_fail(err, EXO_INVAL,
                            "%s: lies within %s, which is converted: give a folder outside",
                            r->args->to, real);
    }
    return EXO_OK;
}

/* Takes TO apart: the last two words become the name and the label of the run. Makes the folder. */
static exo_status
name_run(struct reshard *r, exo_err *err)
{
    char *path = exo_strdup(r->to);
    r->label = path ? cut_last(path) : NULL;
    r->name = path ? cut_last(path) : NULL;
    r->save_dir = path ? exo_strdup(path[0] ? path : "/") : NULL;
    exo_free(path);
    if (!r->label || !r->name || !r->save_dir)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    if (!exo_config_is_label(r->label) || !exo_config_is_label(r->name))
        return exo_fail(err, EXO_INVAL,
                        "%s: the last two words of the path become the run's name and label: "
                        "expected " EXO_LABEL_RULE,
                        r->args->to);
    exo_status st = exo_dir_guard(r->to, err);
    return st == EXO_OK ? exo_folder_make(r->to, err) : st;
}

static exo_status
replace_number(exo_config *root, const char *key, uint64_t value, exo_err *err)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    exo_config_remove(root, key);
    return exo_config_graft_text(root, key, text, err);
}

/* Replaces the strategy by the one of --strategy or --full. What it does not say are the options that
 * strategies share, and with the same name all of them. */
static exo_status
replace_strategy(const struct reshard *r, exo_config *root, exo_err *err)
{
    const char *text = r->args->full ? "ddp" : r->args->strategy, *was = NULL, *is = NULL;
    exo_config_doc *given = NULL;
    exo_config *old = exo_config_get(root, "strategy"), *top = NULL, *merged = NULL;
    char *line = exo_text_make(err, "strategy: %s", text);
    exo_status st = line ? exo_config_parse(&given, "--strategy", line, err) : EXO_NOMEM;
    exo_free(line);
    if (st == EXO_OK)
        st = exo_config_stand_in(exo_config_root(given), "strategy", &top, err);
    if (st == EXO_OK)
        st = exo_config_string(top, "name", NULL, &is, err);
    if (st == EXO_OK)
        st = exo_config_string(old, "name", NULL, &was, err);
    if (st == EXO_OK && (!is || !was))
        st = exo_fail(err, EXO_INVAL, "--strategy: the key 'name' is missing");
    for (size_t i = 0;
         st == EXO_OK && strcmp(is, was) != 0 && i < sizeof own_options / sizeof(char *); i++)
        exo_config_remove(old, own_options[i]);
    if (st == EXO_OK)
        st = exo_config_graft(root, "given", top, err); /* into the document */
    if (st == EXO_OK)
        st = exo_config_overlay(old, exo_config_get(root, "given"), &merged, err);
    exo_config_remove(root, "given");
    exo_config_remove(root, "strategy");
    if (st == EXO_OK)
        st = exo_config_adopt(root, "strategy", merged, err);
    exo_config_free(&given);
    return st;
}

/* Whether the command says how nodes share the model. */
static bool
has_parallel(const struct reshard *r)
{
    return r->tensor > 0 || r->pipeline > 0 || r->context > 0 || r->args->full;
}

/* Replaces the job's `parallel`. The microbatches of a pipeline take the place of minibatch_size. */
static exo_status
replace_parallel(const struct reshard *r, exo_config *root, exo_err *err)
{
    const struct {
        const char *key;
        uint64_t value;
    } keys[] = {{"tensor", r->tensor > 1 ? r->tensor : 0},
                {"pipeline", r->pipeline > 1 ? r->pipeline : 0},
                {"microbatches", r->pipeline > 1 ? r->microbatches : 0},
                {"context", r->context > 1 ? r->context : 0}};
    exo_config *map = NULL;
    bool sequence = false; /* stays with the parts of layers */
    exo_config *was = exo_config_get(root, "parallel");
    exo_status st = exo_config_is_map(was) && r->tensor > 1
                        ? exo_config_bool(was, "sequence", false, &sequence, err)
                        : EXO_OK;
    exo_config_remove(root, "parallel");
    if (keys[2].value > 0)
        exo_config_remove(exo_config_get(root, "train"), "minibatch_size");
    for (size_t i = 0; st == EXO_OK && i < sizeof keys / sizeof *keys; i++) {
        if (keys[i].value == 0)
            continue;
        if (!map)
            st = exo_config_new_map(root, &map, err);
        if (st == EXO_OK)
            st = replace_number(map, keys[i].key, keys[i].value, err);
    }
    if (st == EXO_OK && sequence)
        st = exo_config_graft_text(map, "sequence", "true", err);
    return st == EXO_OK && map ? exo_config_adopt(root, "parallel", map, err) : st;
}

/* Makes the job of the new run from the old one's config.json. */
static exo_status
make_job(struct reshard *r, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    const struct ckpt_args *args = r->args;
    exo_status st = put_path(path, err, r->run, "/config.json");
    if (st == EXO_OK)
        st = exo_config_load(&r->doc, path, err);
    if (st != EXO_OK)
        return st;
    exo_config *root = exo_config_root(r->doc);
    if (!exo_config_is_map(root) || !exo_config_is_map(exo_config_get(root, "strategy")))
        st = exo_fail(err, EXO_FAILED, "%s: is damaged: it has no mapping 'strategy'", path);
    if (st == EXO_OK && r->nodes > 0)
        st = replace_number(root, "nodes", r->nodes, err);
    if (st == EXO_OK && has_parallel(r))
        st = replace_parallel(r, root, err);
    if (st == EXO_OK && (args->full || args->strategy))
        st = replace_strategy(r, root, err);
    exo_config *strategy = st == EXO_OK ? exo_config_get(root, "strategy") : NULL;
    if (strategy) {
        exo_config_remove(strategy, "label");
        st = exo_config_graft_string(strategy, "label", r->label, err);
    }
    const exo_job_opts opts = {.save_dir = r->save_dir, .name = r->name};
    if (st == EXO_OK)
        st = exo_job_from(&r->job, &r->doc, &opts, err);
    return st == EXO_OK ? exo_job_write_configs(&r->job, err) : st;
}

/* --- The new run's folder --------------------------------------------------------------------- */

/* Copies what the old run has written by step; the new one drops rows after the checkpoint's. */
static exo_status
copy_rows(const struct reshard *r, exo_err *err)
{
    static const char *const files[] = {"/train.csv", "/validation.csv", "/metrics.csv",
                                        "/correlation.csv", "/meters.csv"};
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof files / sizeof *files; i++) {
        char from[EXO_CHECKPOINT_PATH], to[EXO_CHECKPOINT_PATH], *data = NULL;
        size_t size = 0;
        st = put_path(from, err, r->run, files[i]);
        if (st == EXO_OK)
            st = put_path(to, err, r->to, files[i]);
        if (st == EXO_OK && has(r->run, files[i]))
            st = exo_file_read(from, MAX_ROWS, &data, &size, err);
        if (st == EXO_OK && data)
            st = exo_file_write_atomic(to, data, size, err);
        exo_free(data);
    }
    return st;
}

/* Removes the folders that a failed conversion has made, and what it has written there. */
static void
remove_remains(struct reshard *r)
{
    static const char *const names[] = {"/train.csv",       "/validation.csv", "/metrics.csv",
                                        "/correlation.csv", "/meters.csv",     "/.lock"};
    char path[EXO_CHECKPOINT_PATH];
    const bool is_own = r->lock >= 0; /* otherwise what is there is another process's */
    if (is_own)
        exo_checkpoint_remove_all(r->to, NULL);
    for (size_t i = 0; is_own && i < sizeof names / sizeof *names; i++)
        if (put_path(path, NULL, r->to, names[i]) == EXO_OK)
            exo_dir_unlink(path);
    if (is_own && put_path(path, NULL, r->to, "/checkpoints") == EXO_OK)
        exo_dir_rmdir(path);
    for (; r->num_made > 0 && exo_dir_rmdir(r->to) == 0; r->num_made--)
        exo_free(cut_last(r->to));
}

/* --- The command ------------------------------------------------------------------------------ */

static exo_status
read_number(const char *name, const char *text, uint64_t *out, exo_err *err)
{
    char *end = NULL;
    *out = text ? strtoull(text, &end, 10) : 0;
    if (!text || (text[0] >= '1' && text[0] <= '9' && *end == '\0' && *out <= 65536))
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "%s %.60s: expected a number from 1 to 65536", name, text);
}

static exo_status
check_args(struct reshard *r, exo_err *err)
{
    const struct ckpt_args *args = r->args;
    exo_status st = read_number("--nodes", args->nodes, &r->nodes, err);
    const struct {
        const char *name, *text;
        uint64_t *out;
    } numbers[] = {{"--tensor", args->tensor, &r->tensor},
                   {"--pipeline", args->pipeline, &r->pipeline},
                   {"--microbatches", args->microbatches, &r->microbatches},
                   {"--context", args->context, &r->context}};
    for (size_t i = 0; st == EXO_OK && i < sizeof numbers / sizeof *numbers; i++)
        st = read_number(numbers[i].name, numbers[i].text, numbers[i].out, err);
    if (st == EXO_OK && r->microbatches > 0 && r->pipeline <= 1)
        st = exo_fail(err, EXO_INVAL, "--microbatches goes with --pipeline: give both");
    if (st == EXO_OK && args->full && args->strategy)
        st = exo_fail(err, EXO_INVAL, "--full is --strategy ddp: give one of them");
    return st;
}

/* TO is a new run: it may have neither checkpoints, nor a result, nor a job. */
static exo_status
check_free(const struct reshard *r, exo_err *err)
{
    char newest[EXO_CHECKPOINT_PATH];
    if (!exo_checkpoint_newest(r->args->to, newest) && !exo_run_is_finished(r->args->to) &&
        !has(r->args->to, "/config.json"))
        return EXO_OK;
    return exo_fail(err, EXO_EXISTS, "%s: holds a run already: give a folder without one",
                    r->args->to);
}

/* config.json comes last: without it nobody takes what a kill leaves for a run that may go on. */
static exo_status
write_run(struct reshard *r, exo_resharded *out, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    const exo_job_run *run = &r->job.runs[0];
    const exo_reshard_form to = {.num_nodes = r->job.opts.num_nodes,
                                 .tensor = r->job.opts.tensor > 1 ? r->job.opts.tensor : 1,
                                 .pipeline = r->job.opts.pipeline,
                                 .context = r->job.opts.context_parallel,
                                 .minibatch_size = r->job.opts.minibatch_size,
                                 .any_bits = r->job.opts.any_bits,
                                 .strategy = run->strategy,
                                 .options = run->options};
    exo_status st = put_path(path, err, r->to, "/config.json");
    if (st == EXO_OK)
        st = copy_rows(r, err);
    if (st == EXO_OK)
        st = exo_reshard(r->job.model, r->checkpoint, r->to, &to, out, err);
    if (st == EXO_OK)
        st = exo_file_write_atomic(path, run->config_json, strlen(run->config_json), err);
    if (st == EXO_INVAL) /* the job was checked: a file is wrong, not the command */
        st = err->code = EXO_FAILED;
    return st;
}

static exo_status
reshard(struct reshard *r, exo_resharded *out, exo_err *err)
{
    exo_status st = find_checkpoint(r, err);
    if (st == EXO_OK)
        st = check_free(r, err);
    if (st == EXO_OK)
        st = find_target(r, err);
    if (st == EXO_OK)
        st = check_outside(r, err);
    if (st != EXO_OK)
        return st;
    const bool is_new = r->num_made > 0;
    st = name_run(r, err);
    if (st == EXO_OK)
        st = exo_run_lock(r->to, &r->lock, err);
    if (st == EXO_OK)
        st = check_free(r, err);
    if (st == EXO_OK)
        st = make_job(r, err);
    if (st == EXO_OK)
        st = write_run(r, out, err);
    if (st != EXO_OK && is_new)
        remove_remains(r);
    return st;
}

static void
print_report(const struct reshard *r, const exo_resharded *done)
{
    exo_text command = {0};
    exo_print_path(stdout, "", r->args->to, "");
    printf(": step %" PRIu64 ", %s, %s\n", done->step, done->change, r->job.runs[0].strategy);
    exo_text_add(&command, "exogym run ");
    char *config = exo_text_make(NULL, "%s/config.json", r->args->to);
    exo_text_add_quoted(&command, config ? config : "");
    exo_text_add(&command, " --save-dir ");
    exo_text_add_quoted(&command, r->save_dir);
    printf("to go on: %s --resume\n", command.data ? command.data : "");
    exo_free(config);
    exo_free(command.data);
}

static int
ckpt_command(const exo_command_line *line)
{
    exo_err err = {0};
    exo_resharded done = {0};
    struct reshard r = {.args = line->args, .lock = -1};
    if (check_args(&r, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    exo_status st = reshard(&r, &done, &err);
    if (st == EXO_OK)
        print_report(&r, &done);
    exo_job_release(&r.job);
    exo_config_free(&r.doc);
    exo_free(r.save_dir);
    exo_free(r.name);
    exo_free(r.label);
    if (r.lock >= 0)
        close(r.lock);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {NULL, "reshard", "reshard: writes the checkpoint for other nodes.",
     EXO_INTO(struct ckpt_args, action), .word = EXO_WORD_FIXED, .required = true},
    {NULL, "FROM",
     "A run's folder (runs/texts/fsdp, or runs/texts if it has one run with a checkpoint), or a "
     "checkpoint in it (.../checkpoints/step_00000100).",
     EXO_INTO(struct ckpt_args, from), .word = EXO_WORD_FOLDER, .required = true},
    {NULL, "TO", "The folder of the new run, SAVE_DIR/NAME/LABEL; it is made.",
     EXO_INTO(struct ckpt_args, to), .word = EXO_WORD_FOLDER, .required = true},
    {"--nodes", "N", "The number of nodes, instead of the checkpoint's.",
     EXO_INTO(struct ckpt_args, nodes)},
    {"--tensor", "T",
     "The nodes that share a copy of the model, each with a part of every layer (parallel.tensor). "
     "With one of --tensor, --pipeline and --context, the others are 1.",
     EXO_INTO(struct ckpt_args, tensor)},
    {"--pipeline", "P", "The same, each with some of the layers (parallel.pipeline).",
     EXO_INTO(struct ckpt_args, pipeline)},
    {"--microbatches", "M", "With --pipeline: the minibatches of a step (parallel.microbatches).",
     EXO_INTO(struct ckpt_args, microbatches)},
    {"--context", "C", "The same, each with some of the tokens (parallel.context).",
     EXO_INTO(struct ckpt_args, context)},
    {"--full", NULL, "Every node has everything: --strategy ddp.",
     EXO_INTO(struct ckpt_args, full)},
    {"--strategy", "STRATEGY",
     "ddp or fsdp, with options that differ: '{name: fsdp, group_size: 2}'.",
     EXO_INTO(struct ckpt_args, strategy), .word = EXO_WORD_STRATEGY},
    {0},
};

static const exo_note examples[] = {
    {"exogym ckpt reshard runs/texts runs/texts3/fsdp --nodes 3",
     "Goes on with three of four nodes, by the command that it prints."},
    {"exogym ckpt reshard runs/texts/fsdp runs/whole/ddp --full --nodes 1",
     "Gathers all shards: node 0 has the whole state."},
    {"exogym ckpt reshard runs/whole/ddp runs/cut/fsdp --nodes 8 --strategy fsdp",
     "Cuts it into shards."},
    {"exogym ckpt reshard runs/cut/fsdp runs/stages/ddp --full --nodes 4 --pipeline 2 "
     "--microbatches 4",
     "Makes two copies of it, of two stages each."},
    {0},
};

static const exo_note files[] = {
    {"TO/checkpoints/step_K/", "The checkpoint, of the same step. It appears when it is complete."},
    {"TO/config.json", "The job with the new nodes."},
    {0},
};

const exo_command exo_command_ckpt = {
    .name = "ckpt",
    .summary = "Converts a checkpoint to other nodes",
    .description =
        "The checkpoint's files are checked by their SHA-256 first. Parameters, the optimizer's "
        "moments and the step are those of the checkpoint, to the bit; position in the data, "
        "random streams and learning rate follow from the step. Each node of the old checkpoint "
        "is compared with what the result says of it.\n\n"
        "Checkpoints of ddp and fsdp can be converted, into each other, too. Under other "
        "strategies "
        "nodes have states of their own: the number of copies of the model stays, and the nodes "
        "that share a copy may change. docs/checkpoints.md says what begins anew.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct ckpt_args),
    .run = ckpt_command,
};
