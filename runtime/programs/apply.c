/* Changes of a running graph: see apply.h. */
#include "programs/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/config_tree.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/grow_text.h"
#include "graph/site.h"
#include "programs/stopping.h"

#define NEXT    "graph.next"
#define TAKEN   "graph.taken"

#define CHECKED (20 * EXO_SECOND) /* the longest time that a stopped asker gives the run to check */

enum {
    LARGEST = EXO_CONFIG_MAX_BYTES, /* of a graph that can be parsed */
    LARGEST_ANSWER = 4096
};

/* --- The asker -------------------------------------------------------------------------------- */

/* Does a run hold the folder's lock? */
static bool
is_running(const char *folder)
{
    char *path = exo_text_make(NULL, "%s/.graph.lock", folder);
    int lock = path ? exo_dir_open(path, O_RDWR, 0) : -1;
    bool running = lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) != 0;
    if (lock >= 0)
        close(lock);
    exo_free(path);
    return running;
}

/* Has the run written graph.yaml? It then writes a byte to the lock's file. */
static bool
has_said_graph(const char *folder)
{
    struct stat info;
    char *path = exo_text_make(NULL, "%s/.graph.lock", folder);
    bool said = path && stat(path, &info) == 0 && info.st_size > 0;
    exo_free(path);
    return said;
}

/* Waits a moment. Errors: CANCELLED, by a signal; TIMEOUT, with this reason. */
static exo_status
wait_more(const char *folder, exo_time deadline, const char *reason, exo_err *err)
{
    if (exo_stop_reason > 0)
        return exo_fail(err, EXO_CANCELLED, "%s: stopped", folder);
    if (exo_now(exo_clock_real()) >= deadline)
        return exo_fail(err, EXO_TIMEOUT, "%s: %s", folder, reason);
    nanosleep(&(struct timespec){.tv_nsec = 10 * EXO_MS}, NULL);
    return EXO_OK;
}

/* Waits for graph.yaml: a run takes the lock a moment before it writes the file. */
static exo_status
await_graph(const char *folder, exo_time deadline, exo_err *err)
{
    exo_status st = EXO_OK;
    while (st == EXO_OK && !has_said_graph(folder)) {
        if (!is_running(folder))
            return exo_fail(err, EXO_NOT_FOUND, "%s: no graph runs in this folder", folder);
        st = wait_more(folder, deadline, "the run has not said which graph it runs", err);
    }
    return st;
}

/* The answer to the request `id`, without the number; NULL: none yet. The caller frees it. */
static char *
read_answer(const char *folder, uint64_t id)
{
    char *path = exo_text_make(NULL, "%s/graph.answer", folder);
    char *text = NULL, *end = NULL, *answer = NULL;
    size_t size = 0;
    if (path && exo_file_read(path, LARGEST_ANSWER, &text, &size, NULL) == EXO_OK &&
        strtoull(text, &end, 10) == id && *end == ' ')
        answer = exo_strdup(end + 1);
    exo_free(text);
    exo_free(path);
    return answer;
}

/* Reads the current graph of the run. *out is NULL if the file does not exist. */
static exo_status
read_now(const char *folder, exo_graph_spec **out, exo_err *err)
{
    char *path = exo_text_make(err, "%s/graph.yaml", folder), *text = NULL;
    size_t size = 0;
    exo_status st = path ? exo_file_read(path, LARGEST, &text, &size, err) : EXO_NOMEM;
    *out = NULL;
    if (st == EXO_OK)
        st = exo_graph_parse(out, path, text, NULL, err);
    exo_free(text);
    exo_free(path);
    return st == EXO_NOT_FOUND ? EXO_OK : st;
}

/* Makes the same check as the run, so that errors have places in the asker's file. */
static exo_status
check(const char *folder, const exo_graph_spec *next, bool job, exo_err *err)
{
    exo_graph_spec *now = NULL;
    exo_status st = read_now(folder, &now, err);
    if (st == EXO_OK && now)
        st = job ? exo_graph_check_job_change(now, next, err)
                 : exo_graph_check_change(now, next, err);
    exo_graph_spec_free(&now);
    return st;
}

static exo_status
leave(const char *path, uint64_t id, const exo_graph_spec *next, exo_err *err)
{
    char *yaml = NULL;
    exo_status st = exo_graph_expand(next, &yaml, err);
    char *text = st == EXO_OK ? exo_text_make(err, "# %" PRIu64 "\n%s", id, yaml) : NULL;
    if (st == EXO_OK && !text)
        st = EXO_NOMEM;
    if (st == EXO_OK && strlen(text) > LARGEST)
        st = exo_fail(err, EXO_INVAL,
                      "%s: a run takes %d MiB of a graph as `exogym graph expand` prints it; this "
                      "one has %zu bytes",
                      next->source, LARGEST >> 20, strlen(text));
    if (st == EXO_OK)
        st = exo_file_write_atomic(path, text, strlen(text), err);
    exo_free(yaml);
    exo_free(text);
    return st;
}

/* Waits for the answer. The caller frees *answer. */
static exo_status
await_answer(const char *folder, uint64_t id, exo_time deadline, char **answer, exo_err *err)
{
    exo_status st = EXO_OK;
    while (st == EXO_OK && !(*answer = read_answer(folder, id))) {
        if (!is_running(folder) && !(*answer = read_answer(folder, id)))
            return exo_fail(err, EXO_NOT_FOUND, "%s: the run has ended", folder);
        if (!*answer)
            st = wait_more(folder, deadline, "the run has not answered", err);
    }
    return *answer ? EXO_OK : st;
}

/* Waits while the run checks what it has taken. Returns its answer; NULL: none, it makes the change. */
static char *
await_check(const char *folder, uint64_t id)
{
    char *taken = exo_text_make(NULL, "%s/" TAKEN, folder);
    exo_time limit = exo_deadline(exo_clock_real(), CHECKED);
    while (taken && access(taken, F_OK) == 0 && is_running(folder) &&
           exo_now(exo_clock_real()) < limit)
        nanosleep(&(struct timespec){.tv_nsec = EXO_MS}, NULL);
    exo_free(taken);
    return read_answer(folder, id);
}

/* Takes the request back, so that the run does not apply it later. If the run has taken it already,
 * its answer counts; without one, the error says so. The caller frees *answer. */
static exo_status
withdraw(const char *folder, const char *path, uint64_t id, exo_status st, char **answer,
         exo_err *err)
{
    exo_err why = err ? *err : (exo_err){0};
    bool late =
        exo_dir_unlink(path) != 0 && errno == ENOENT && (st == EXO_TIMEOUT || st == EXO_CANCELLED);
    if (late && (*answer = await_check(folder, id)))
        return EXO_OK;
    if (late && !is_running(folder))
        return exo_fail(err, st, "%s: the run has ended", folder);
    return late ? exo_fail(err, st,
                           "%s, but it has taken the change and makes it once every actor can: its "
                           "graph.yaml is then the new graph",
                           why.text)
                : st;
}

/* Removes the place from an answer: the run read graph.next, and the asker has another file. */
static const char *
without_place(const char *answer)
{
    int length = 0;
    unsigned line, column;
    if (sscanf(answer, NEXT ":%u:%u: %n", &line, &column, &length) == 2 && length > 0)
        return answer + length;
    return strncmp(answer, NEXT ": ", strlen(NEXT ": ")) == 0 ? answer + strlen(NEXT ": ") : answer;
}

/* Waits until no other asker is in the folder: there is room for one request and one answer. *turn is
 * the folder, to be closed after the answer. */
static exo_status
await_turn(const char *folder, exo_time deadline, int *turn, exo_err *err)
{
    *turn = exo_dir_open(folder, O_RDONLY | O_DIRECTORY, 0);
    if (*turn < 0)
        return exo_fail(err, EXO_IO, "%s: %s", folder, exo_dir_reason(errno));
    exo_status st = EXO_OK;
    while (st == EXO_OK && flock(*turn, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return exo_fail(err, EXO_IO, "%s: %s", folder, strerror(errno));
        st = wait_more(folder, deadline, "another change waits for the run's answer", err);
    }
    return st;
}

exo_status
exo_apply_ask(const char *folder, const exo_graph_spec *next, bool job, exo_time deadline,
              exo_err *err)
{
    char *path = exo_text_make(err, "%s/" NEXT, folder), *answer = NULL;
    uint64_t id = (uint64_t)exo_now(exo_clock_real()) ^ ((uint64_t)getpid() << 48);
    int turn = -1;
    exo_status st = path ? EXO_OK : EXO_NOMEM;
    if (st == EXO_OK && !is_running(folder))
        st = exo_fail(err, EXO_NOT_FOUND, "%s: no graph runs in this folder", folder);
    if (st == EXO_OK)
        st = await_graph(folder, deadline, err);
    if (st == EXO_OK)
        st = await_turn(folder, deadline, &turn, err);
    if (st == EXO_OK)
        st = check(folder, next, job, err);
    if (st == EXO_OK) {
        st = leave(path, id, next, err);
        if (st == EXO_OK)
            st = await_answer(folder, id, deadline, &answer, err);
        if (st != EXO_OK)
            st = withdraw(folder, path, id, st, &answer, err);
        if (st == EXO_OK && strcmp(answer, "ok") != 0)
            st = exo_fail(err, EXO_INVAL, "%s: %s", next->source, without_place(answer));
    }
    if (turn >= 0)
        close(turn);
    exo_free(answer);
    exo_free(path);
    return st;
}

/* --- The run ---------------------------------------------------------------------------------- */

/* Writes the current graph to graph.yaml, for askers. */
static exo_status
say_graph(const char *folder, const exo_graph_spec *graph, exo_err *err)
{
    char *path = exo_text_make(err, "%s/graph.yaml", folder), *yaml = NULL;
    exo_status st = path ? exo_graph_expand(graph, &yaml, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_file_write_atomic(path, yaml, strlen(yaml), err);
    exo_free(yaml);
    exo_free(path);
    return st;
}

exo_status
exo_apply_open(exo_apply_box *box, const char *folder, bool job, const exo_graph_spec *graph,
               exo_err *err)
{
    char *path = exo_text_make(err, "%s/.graph.lock", folder),
         *next = exo_text_make(err, "%s/" NEXT, folder),
         *taken = exo_text_make(err, "%s/" TAKEN, folder);
    *box = (exo_apply_box){.folder = folder, .job = job, .lock = -1};
    exo_status st = path && next && taken ? EXO_OK : EXO_NOMEM;
    if (st == EXO_OK && (box->lock = exo_dir_open(path, O_CREAT | O_RDWR, 0666)) < 0)
        st = exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(errno));
    if (st == EXO_OK && !exo_file_lock(box->lock))
        st = exo_fail(err, EXO_EXISTS,
                      "%s: another run writes into this folder: wait for it or give another name",
                      folder);
    if (st == EXO_OK && ftruncate(box->lock, 0) != 0)
        st = exo_fail(err, EXO_IO, "%s: %s", path,
                      errno == EINVAL ? "is no plain file: remove it" : exo_dir_reason(errno));
    if (st == EXO_OK) { /* files of an earlier run */
        exo_dir_unlink(next);
        exo_dir_unlink(taken);
        exo_file_sweep(folder, NULL);
    }
    if (st == EXO_OK && graph)
        st = say_graph(folder, graph, err);
    if (st == EXO_OK && write(box->lock, "1", 1) != 1)
        st = exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(errno));
    if (st != EXO_OK && box->lock >= 0)
        exo_apply_release(box);
    exo_free(path);
    exo_free(next);
    exo_free(taken);
    return st;
}

exo_status
exo_apply_replay(exo_apply_box *box, exo_err *err)
{
    return exo_replay_open(&box->replay, box->folder, err);
}

uint64_t
exo_apply_due(const exo_apply_box *box)
{
    return exo_replay_due(&box->replay);
}

void
exo_apply_release(exo_apply_box *box)
{
    exo_replay_release(&box->replay);
    for (size_t i = 0; i < box->count; i++) {
        exo_graph_spec_free(&box->specs[i]);
        exo_free(box->texts[i]);
    }
    exo_free(box->specs);
    exo_free(box->texts);
    if (box->lock >= 0)
        close(box->lock);
    *box = (exo_apply_box){.lock = -1};
}

static void
answer(const exo_apply_box *box, exo_status status, const char *reason)
{
    char text[LARGEST_ANSWER], *path = exo_text_make(NULL, "%s/graph.answer", box->folder);
    int length =
        snprintf(text, sizeof text, "%" PRIu64 " %s", box->id, status == EXO_OK ? "ok" : reason);
    if (path)
        exo_file_write_atomic(path, text, (size_t)length, NULL); /* else the asker times out */
    exo_free(path);
}

void
exo_apply_answer(exo_apply_box *box, const exo_change_time *when, exo_status status,
                 const char *reason)
{
    exo_err err = {0};
    if (status == EXO_OK && box->count > 0) {
        const exo_graph_spec *after = box->specs[box->count - 1];
        exo_status st =
            box->again ? EXO_OK : exo_changes_add(box->folder, box->now, after, when, &err);
        if (!box->again)
            exo_replay_release(&box->replay);
        if (st == EXO_OK)
            st = say_graph(box->folder, after, &err);
        if (st != EXO_OK) /* the change itself was made */
            EXO_LOG(WARN, GRAPH, "folder=%s a change was made that could not be recorded: %s",
                    box->folder, err.text);
    }
    if (!box->again)
        answer(box, status, reason);
}

/* The number in the first line of a request; 0: none. */
static uint64_t
read_id(const char *path)
{
    char line[32] = "";
    int file = exo_dir_open(path, O_RDONLY, 0);
    ssize_t got = file >= 0 ? read(file, line, sizeof line - 1) : 0;
    if (file >= 0)
        close(file);
    return got > 0 && strncmp(line, "# ", 2) == 0 ? strtoull(line + 2, NULL, 10) : 0;
}

/* Takes the request from the folder, under the name `taken`. The caller frees *text. The request is
 * renamed before it is read: what is removed then is not the request of a next asker, who does not
 * wait for one that was killed. NOT_FOUND: there is none. */
static exo_status
take_text(exo_apply_box *box, const char *taken, char **text, exo_err *err)
{
    char *path = exo_text_make(NULL, "%s/" NEXT, box->folder);
    size_t size = 0;
    bool there = path && access(path, R_OK) == 0 && exo_dir_rename(path, taken, 0) == 0;
    exo_free(path);
    if (!there)
        return EXO_NOT_FOUND;
    box->id = read_id(taken);
    exo_status st = exo_file_read(taken, LARGEST, text, &size, err);
    return st == EXO_NOT_FOUND ? exo_fail(err, EXO_IO, "%s was removed", taken) : st;
}

static exo_status
keep(exo_apply_box *box, exo_graph_spec *spec, char *text, exo_err *err)
{
    exo_graph_spec **specs = exo_realloc(box->specs, box->count + 1, sizeof *specs);
    box->specs = specs ? specs : box->specs;
    char **texts = exo_realloc(box->texts, box->count + 1, sizeof *texts);
    box->texts = texts ? texts : box->texts;
    if (!specs || !texts)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    specs[box->count] = spec;
    texts[box->count++] = text;
    return EXO_OK;
}

/* Hands out the next recorded change that is due. Changes that cannot be replayed are skipped with
 * a warning. */
static bool
give_again(exo_apply_box *box, uint64_t step, const exo_graph_spec *now)
{
    while (exo_replay_due(&box->replay) <= step) {
        exo_err err = {0};
        exo_graph_spec *spec = NULL;
        char *text = NULL;
        uint64_t due = exo_replay_due(&box->replay);
        exo_status st = exo_replay_next(&box->replay, now, &spec, &text, &err);
        if (st == EXO_OK && (st = keep(box, spec, text, &err)) == EXO_OK)
            return true;
        EXO_LOG(WARN, GRAPH, "folder=%s the change after step %" PRIu64 " is not made again: %s",
                box->folder, due, err.text);
        exo_graph_spec_free(&spec);
        exo_free(text);
    }
    return false;
}

/* Hands out a graph that an asker left in the folder. What was taken is removed last, when the answer
 * to a graph that cannot be is there: an asker that is stopped meanwhile waits for that. */
static bool
give_asked(exo_apply_box *box, const exo_graph_spec *now)
{
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    char *next = NULL, *taken = exo_text_make(NULL, "%s/" TAKEN, box->folder);
    exo_status st = taken ? take_text(box, taken, &next, &err) : EXO_NOT_FOUND;
    const bool there = st != EXO_NOT_FOUND;
    if (st == EXO_OK)
        st = exo_graph_parse(&spec, NEXT, next, NULL, &err);
    if (st == EXO_OK)
        st = box->job ? exo_graph_check_job_change(now, spec, &err)
                      : exo_graph_check_change(now, spec, &err);
    if (st == EXO_OK)
        st = keep(box, spec, next, &err);
    if (st != EXO_OK) {
        exo_graph_spec_free(&spec);
        exo_free(next);
    }
    if (there && st != EXO_OK)
        answer(box, st, err.text);
    if (there)
        exo_dir_unlink(taken);
    exo_free(taken);
    return st == EXO_OK;
}

bool
exo_apply_next(exo_apply_box *box, uint64_t step, const exo_graph_spec *now,
               const exo_graph_spec **graph, const char **text)
{
    box->again = give_again(box, step, now);
    if (!box->again && !give_asked(box, now))
        return false;
    box->now = now;
    *graph = box->specs[box->count - 1];
    *text = box->texts[box->count - 1];
    return true;
}
