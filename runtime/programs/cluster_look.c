/* `exogym kill`, `exogym why`, `exogym dump`, `exogym logs`, `exogym stop`. Read next: where.h. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "net/process.h"
#include "programs/program.h"
#include "programs/run_report.h"
#include "programs/show.h"
#include "programs/where.h"

/* The arguments of the commands about one actor. */
struct name_args {
    struct exo_where where;
    const char *name, *space, *cause;
    bool clean;
};

#define NAME_ROWS(what)                                                                            \
    {NULL, "NAME", what, EXO_INTO(struct name_args, name), .required = true},                      \
    {                                                                                              \
        "--namespace", "NAME", "The actor's namespace; default unless given.",                     \
            EXO_INTO(struct name_args, space), .brief = "-n"                                       \
    }

/* --- kill ------------------------------------------------------------------------------------- */

static exo_status
print_end(const struct name_args *args, const char *cause, exo_err *err)
{
    if (args->where.json)
        return exo_print_json(json_pack("{s:o, s:o}", "name", exo_lossy_json(args->name), "cause",
                                        exo_lossy_json(cause)),
                              err);
    return EXO_OK;
}

static exo_status
kill_actor(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct name_args *args = arguments;
    const char *cause = args->cause ? args->cause : "killed by `exogym kill`";
    exo_future *death = NULL;
    exo_ref actor;
    bool given_up = false;
    exo_status st = exo_cluster_give_up(visit->cluster, args->space, args->name, cause,
                                        visit->deadline, &given_up, err);
    if (st == EXO_OK && given_up)
        return print_end(args, cause, err);
    if (st == EXO_OK)
        st = exo_visit_find(visit, args->space, args->name, &actor, err);
    if (st == EXO_OK)
        st = exo_monitor(visit->runtime, actor, &death, err);
    if (st == EXO_OK && args->clean)
        st = exo_stop(visit->runtime, actor, true, err);
    else if (st == EXO_OK)
        st = exo_kill(visit->runtime, actor, cause, err);
    if (st == EXO_OK && (st = exo_wait(death, visit->deadline, NULL, err)) == EXO_TIMEOUT)
        exo_fail(err, st, "'%s' has not ended yet", args->name);
    exo_future_drop(&death);
    if (st != EXO_OK && st != EXO_PEER_LOST)
        return st;
    return print_end(args, st == EXO_OK ? "stopped" : err->text, err);
}

static int
kill_command(const exo_command_line *line)
{
    return exo_visit_do(line, kill_actor);
}

static const exo_arg kill_table[] = {
    NAME_ROWS("The actor's name."),
    {"--cause", "TEXT", "What others are told that it died of.", EXO_INTO(struct name_args, cause)},
    {"--clean", NULL,
     "Lets it do what is queued first; that is no failure, after which it would live again or take "
     "linked actors with it.",
     EXO_INTO(struct name_args, clean)},
    EXO_WHERE_ROWS(struct name_args, "Prints {\"name\", \"cause\"}."),
    {0},
};

const exo_command exo_command_kill = {
    .name = "kill",
    .summary = "Ends an actor",
    .description = "Ends when the actor is dead. For those that are linked to it, and for its "
                   "restart rule, it failed: the rule may give it another life. One that does not "
                   "live just now, since it waits to be restarted, gets none.",
    .args = kill_table,
    .args_size = sizeof(struct name_args),
    .run = kill_command,
};

/* --- why -------------------------------------------------------------------------------------- */

static exo_status
print_text(const struct name_args *args, const char *text, size_t size, exo_err *err)
{
    if (args->where.json)
        return exo_print_json(json_pack("{s:o, s:o}", "name", exo_lossy_json(args->name), "text",
                                        exo_lossy_json_bytes(text, size)),
                              err);
    exo_show(stdout, text, size, EXO_SHOWN_TEXT);
    if (size > 0 && text[size - 1] != '\n')
        putchar('\n');
    return EXO_OK;
}

/* The runs of a folder, with the state of each and the reason of its end, as progress.json has them. */
static exo_status
why_runs(const struct name_args *args, const json_t *runs, exo_err *err)
{
    exo_text text = {0};
    size_t i;
    const json_t *run;
    json_array_foreach ((json_t *)(uintptr_t)runs, i, run) {
        const json_t *report = json_object_get(run, "report");
        const char *folder = json_string_value(json_object_get(run, "folder")),
                   *state = json_string_value(json_object_get(run, "state")),
                   *reason = json_string_value(json_object_get(report, "error"));
        exo_text_add(&text, "%s: %s\n", folder ? folder : "?", state ? state : "ended");
        if (reason)
            exo_text_add(&text, "cause: %s\n", reason);
        else if (state && strcmp(state, "killed") == 0)
            exo_text_add(&text, "cause: unknown: its process ended without a word, by a crash, by "
                                "kill -9, or for lack of memory; with --workers a run names the "
                                "signal and what ran\n");
    }
    exo_status st = text.failed ? exo_fail(err, EXO_NOMEM, "out of memory")
                                : print_text(args, text.data, text.length, err);
    exo_free(text.data);
    return st;
}

static exo_status
why(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct name_args *args = arguments;
    char *text = NULL;
    exo_status st =
        exo_cluster_why(visit->cluster, args->space, args->name, visit->deadline, &text, err);
    if (st == EXO_OK)
        st = print_text(args, text, strlen(text), err);
    exo_free(text);
    return st;
}

static int
why_command(const exo_command_line *line)
{
    const struct name_args *args = line->args;
    exo_err err = {0};
    json_t *runs = NULL;
    if (!strchr(args->name, '/') || exo_run_report_read(args->name, &runs, NULL) != EXO_OK)
        return exo_visit_do(line, why);
    exo_status st = why_runs(args, runs, &err);
    json_decref(runs);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg why_table[] = {
    NAME_ROWS(
        "The name of an actor or a node; or the folder of a run, runs/NAME, without a cluster."),
    EXO_WHERE_ROWS(struct name_args, "Prints {\"name\", \"text\"}."),
    {0},
};

const exo_command exo_command_why = {
    .name = "why",
    .summary = "Tells why an actor, a node or a run ended",
    .description = "The cause of the latest death, and if a process was lost: the signal or exit "
                   "status, the methods that ran, and the last lines of its log. Of a run: its "
                   "state, and the error that ended it.",
    .args = why_table,
    .args_size = sizeof(struct name_args),
    .run = why_command,
};

/* --- dump ------------------------------------------------------------------------------------- */

static exo_status
dump(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct name_args *args = arguments;
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_ref actor;
    exo_status st = exo_visit_find(visit, args->space, args->name, &actor, err);
    if (st == EXO_OK)
        st = exo_visit_call(visit, actor, "dump", (exo_payload){0}, &future, &reply, err);
    if (st == EXO_OK)
        st = print_text(args, reply->data, reply->size, err);
    exo_future_drop(&future);
    return st;
}

static int
dump_command(const exo_command_line *line)
{
    return exo_visit_do(line, dump);
}

static const exo_arg dump_table[] = {
    NAME_ROWS("The actor's name."),
    EXO_WHERE_ROWS(struct name_args, "Prints {\"name\", \"text\"}."),
    {0},
};

const exo_command exo_command_dump = {
    .name = "dump",
    .summary = "Shows what an actor does now",
    .description = "A line for each of its lanes: how much is queued, which methods run, and for "
                   "how long. It works also while the actor is busy. What `exogym run` makes is in "
                   "a namespace NAME/LABEL/PID of its own, which `exogym list actors` shows.",
    .args = dump_table,
    .args_size = sizeof(struct name_args),
    .run = dump_command,
};

/* --- logs ------------------------------------------------------------------------------------- */

struct logs_args {
    struct exo_where where;
    const char *node;
    bool follow;
};

static exo_status
print_line(const struct logs_args *args, const char *line, size_t length, exo_err *err)
{
    const char *colon = memchr(line, ':', length);
    size_t name = colon ? (size_t)(colon - line) : 0;
    if (args->node && (strlen(args->node) != name || strncmp(args->node, line, name) != 0))
        return EXO_OK;
    if (!args->where.json) {
        exo_show(stdout, line, length, EXO_SHOWN_TEXT);
        putchar('\n');
        return EXO_OK;
    }
    size_t text = name + 2 < length ? name + 2 : length;
    json_t *json = json_pack("{s:o, s:o}", "node", exo_lossy_json_bytes(line, name), "line",
                             exo_lossy_json_bytes(line + text, length - text));
    if (!json)
        return exo_fail(err, EXO_NOMEM, "no memory for JSON");
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(json);
    return EXO_OK;
}

/* Prints the head's reply: the number of lines so far, then the lines. */
static exo_status
print_lines(const struct logs_args *args, const exo_payload *reply, uint64_t *known, exo_err *err)
{
    const char *at = reply->data, *end = at + reply->size;
    exo_status st = EXO_OK;
    if (reply->size < sizeof *known)
        return exo_fail(err, EXO_FAILED, "the head's reply cannot be read");
    memcpy(known, at, sizeof *known);
    for (at += sizeof *known; st == EXO_OK && at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        st = print_line(args, at, length, err);
        at += length + 1;
    }
    exo_flush_output();
    return st;
}

/* Checks the name, because a mistyped one would look like a quiet node. */
static exo_status
check_node(exo_visit *visit, const char *name, exo_err *err)
{
    json_t *listing = NULL;
    const json_t *node;
    size_t i;
    bool found = false;
    exo_status st = exo_visit_list(visit, &listing, err);
    json_array_foreach (json_object_get(listing, "nodes"), i, node)
        found = found || strcmp(json_string_value(json_object_get(node, "name")), name) == 0;
    json_decref(listing);
    return st != EXO_OK || found ? st
                                 : exo_fail(err, EXO_NOT_FOUND,
                                            "there is no node '%s': see `exogym list nodes`", name);
}

static exo_status
logs(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct logs_args *args = arguments;
    exo_ref head = {0};
    /* the number of known lines; 1: reply at once, without a wait for more */
    uint64_t words[2] = {0, 1};
    exo_status st = args->node ? check_node(visit, args->node, err) : EXO_OK;
    if (st == EXO_OK)
        st = exo_cluster_head(visit->cluster, visit->deadline, &head, err);
    for (bool again = true; st == EXO_OK && again;) {
        exo_future *future = NULL;
        const exo_payload *reply = NULL;
        st = exo_visit_call(visit, head, "logs", exo_payload_borrow(words, sizeof words), &future,
                            &reply, err);
        if (st == EXO_OK)
            st = print_lines(args, reply, &words[0], err);
        /* a reply without lines is the last one: each reply has only some of them */
        bool all = reply && reply->size == sizeof words[0];
        exo_future_drop(&future);
        again = args->follow || !all;
        if (all) {
            words[1] = 0;
            visit->deadline = INT64_MAX; /* a quiet log is not an error */
        }
    }
    return st;
}

static int
logs_command(const exo_command_line *line)
{
    return exo_visit_do(line, logs);
}

static const exo_arg logs_table[] = {
    {"--follow", NULL, "Goes on with what comes, until ctrl-C.", EXO_INTO(struct logs_args, follow),
     .brief = "-f"},
    {"--node", "NAME", "Lines of this node only.", EXO_INTO(struct logs_args, node)},
    EXO_WHERE_ROWS(struct logs_args, "Prints an object {\"node\", \"line\"} a line."),
    {0},
};

const exo_command exo_command_logs = {
    .name = "logs",
    .summary = "Shows what the workers of a cluster print",
    .description = "The last 4096 lines, each with the name of its node before it.",
    .args = logs_table,
    .args_size = sizeof(struct logs_args),
    .run = logs_command,
};

/* --- stop ------------------------------------------------------------------------------------- */

enum {
    MAX_AWAITED = 1024
};

struct stop_args {
    struct exo_where where;
};

/* Returns a descriptor that reports the end of a process, given by its entry in the listing (a
 * node, or the listing itself for the head); -1: the process is not on this host. */
static int
watch_process(const json_t *object)
{
    char boot[EXO_BOOT_ID];
    const char *host = json_string_value(json_object_get(object, "host"));
    uint32_t pid = (uint32_t)json_integer_value(json_object_get(object, "pid"));
    exo_boot_id(boot);
    return host && strcmp(host, boot) == 0 ? exo_process_watch(pid, exo_process_start(pid)) : -1;
}

/* Waits for a process to end, and closes the descriptor. With a deadline in the past it only closes
 * the descriptor. */
static exo_status
await_end(int process, exo_time deadline, exo_err *err)
{
    struct pollfd fd = {.fd = process, .events = POLLIN};
    exo_time left = deadline - exo_now(exo_clock_real());
    int n = process < 0 ? 1 : poll(&fd, 1, left < 0 ? 0 : (int)(left / EXO_MS));
    if (process >= 0)
        close(process);
    return n > 0 ? EXO_OK : exo_fail(err, EXO_TIMEOUT, "not all processes have ended yet");
}

/* Stops the cluster. Waits until the processes of this host have ended, not only left, so that new
 * ones can take their place. */
static exo_status
stop(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct stop_args *args = arguments;
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_ref head;
    json_t *listing = NULL, *node;
    int processes[MAX_AWAITED];
    size_t i, count = 0;
    exo_status st = exo_visit_list(visit, &listing, err);
    if (st == EXO_OK)
        processes[count++] = watch_process(listing);
    json_array_foreach (json_object_get(listing, "nodes"), i, node)
        if (count < MAX_AWAITED &&
            strcmp(json_string_value(json_object_get(node, "state")), "alive") == 0 &&
            strcmp(json_string_value(json_object_get(node, "kind")), "worker") == 0)
            processes[count++] = watch_process(node);
    json_decref(listing);
    if (st == EXO_OK)
        st = exo_cluster_head(visit->cluster, visit->deadline, &head, err);
    if (st == EXO_OK)
        st = exo_visit_call(visit, head, "end", (exo_payload){0}, &future, &reply, err);
    exo_future_drop(&future);
    if (st == EXO_OK)
        st = exo_cluster_wait(visit->cluster, 0, visit->deadline, err);
    if (st == EXO_PEER_LOST) /* the loss of the head is expected */
        st = EXO_OK;
    for (i = 0; i < count; i++) {
        exo_status ended =
            await_end(processes[i], st == EXO_OK ? visit->deadline : 0, st == EXO_OK ? err : NULL);
        st = st == EXO_OK ? ended : st;
    }
    if (st == EXO_OK && args->where.json)
        st = exo_print_json(json_pack("{s:b}", "stopped", 1), err);
    return st;
}

static int
stop_command(const exo_command_line *line)
{
    return exo_visit_do(line, stop);
}

static const exo_arg stop_table[] = {
    EXO_WHERE_ROWS(struct stop_args, "Prints {\"stopped\": true}."),
    {0},
};

const exo_command exo_command_stop = {
    .name = "stop",
    .summary = "Ends all workers of a cluster, and its head",
    .description = "Running methods are told to stop, and have ten seconds. Ends when the "
                   "processes have ended; of those on other hosts, when they have left.",
    .args = stop_table,
    .args_size = sizeof(struct stop_args),
    .run = stop_command,
};
