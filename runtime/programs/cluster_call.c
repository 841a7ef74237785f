/* `exogym call`, `exogym spawn`: actors from the shell. Read next: where.h. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "programs/show.h"
#include "programs/where.h"

/* --- call ------------------------------------------------------------------------------------- */

struct call_args {
    struct exo_where where;
    const char *name, *method, *argument, *space;
    bool raw;
};

/* The reply as a string; NULL unless it is UTF-8 without control characters other than line breaks
 * and tabs. */
static json_t *
as_text(const exo_payload *reply)
{
    const unsigned char *data = reply->data;
    for (size_t i = 0; i < reply->size; i++)
        if (data[i] < 32 && data[i] != '\n' && data[i] != '\t' && data[i] != '\r')
            return NULL;
    return json_stringn(reply->size ? reply->data : "", reply->size); /* NULL: not UTF-8 */
}

/* Prints bytes in the format of hexdump -C. */
static void
print_bytes(const exo_payload *reply)
{
    const unsigned char *data = reply->data;
    for (size_t at = 0; at < reply->size; at += 16) {
        size_t count = reply->size - at < 16 ? reply->size - at : 16;
        printf("%08zx ", at);
        for (size_t i = 0; i < 16; i++) {
            if (i < count)
                printf("%s%02x", i == 8 ? "  " : " ", data[at + i]);
            else
                printf("%s  ", i == 8 ? "  " : " ");
        }
        printf("  |");
        for (size_t i = 0; i < count; i++)
            putchar(isprint(data[at + i]) ? data[at + i] : '.');
        printf("|\n");
    }
}

static json_t *
as_hex(const exo_payload *reply)
{
    const unsigned char *data = reply->data;
    exo_text text = {0};
    for (size_t i = 0; i < reply->size; i++)
        exo_text_add(&text, "%02x", data[i]);
    json_t *json = json_string(text.data ? text.data : "");
    exo_free(text.data);
    return json;
}

static exo_status
print_reply(const exo_payload *reply, const struct call_args *args, exo_err *err)
{
    json_t *text = as_text(reply);
    if (args->raw) {
        fwrite(reply->data, 1, reply->size, stdout);
    } else if (args->where.json) {
        const char *key = text ? "text" : "hex";
        json_t *value = text ? text : as_hex(reply);
        return exo_print_json(json_pack("{s:o, s:o, s:I, s:o}", "actor", exo_lossy_json(args->name),
                                        "method", exo_lossy_json(args->method), "size",
                                        (json_int_t)reply->size, key, value),
                              err);
    } else if (!text) {
        print_bytes(reply);
    } else if (reply->size > 0) {
        exo_show(stdout, reply->data, reply->size, EXO_SHOWN_TEXT);
        if (((const char *)reply->data)[reply->size - 1] != '\n')
            putchar('\n');
    }
    json_decref(text);
    return EXO_OK;
}

static exo_status
call(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct call_args *args = arguments;
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_payload payload = {0};
    exo_ref actor;
    exo_status st = exo_visit_find(visit, args->space, args->name, &actor, err);
    if (st == EXO_OK)
        st = exo_read_argument(args->argument, &payload, err);
    if (st == EXO_OK)
        st = exo_visit_call(visit, actor, args->method, payload, &future, &reply, err);
    if (st == EXO_OK)
        st = print_reply(reply, args, err);
    exo_future_drop(&future);
    return st;
}

static int
call_command(const exo_command_line *line)
{
    return exo_visit_do(line, call);
}

static const exo_arg call_table[] = {
    {NULL, "NAME", "The actor's name.", EXO_INTO(struct call_args, name), .required = true},
    {NULL, "METHOD", "Which of its methods.", EXO_INTO(struct call_args, method), .required = true},
    {NULL, "ARGUMENT",
     "What the method gets: these bytes, or with @FILE those of a file; nothing unless given.",
     EXO_INTO(struct call_args, argument)},
    {"--namespace", "NAME", "The actor's namespace; default unless given.",
     EXO_INTO(struct call_args, space), .brief = "-n"},
    {"--raw", NULL, "Prints the reply's bytes and nothing else.", EXO_INTO(struct call_args, raw)},
    EXO_WHERE_ROWS(struct call_args,
                   "Prints {\"actor\", \"method\", \"size\", \"text\" or \"hex\"}."),
    {0},
};

static const exo_note call_examples[] = {
    {"exogym call counter add 5", "Calls the method add with the text 5."},
    {"exogym call store put @model.bin -n training", "Sends a file."},
    {0},
};

const exo_command exo_command_call = {
    .name = "call",
    .summary = "Calls a method of an actor and prints its reply",
    .description = "A reply that is text is printed as it is, another one as bytes in hexadecimal. "
                   "If the method fails, so does the command, with the method's reason.",
    .args = call_table,
    .examples = call_examples,
    .args_size = sizeof(struct call_args),
    .run = call_command,
};

/* --- spawn ------------------------------------------------------------------------------------ */

enum {
    MAX_RESOURCES = 32,
    MAX_NUMBER = 1000000
};

struct spawn_args {
    struct exo_where where;
    const char *class_name, *argument, *name, *space, *restart, *max, *within, *backoff, *node,
        *group, *group_rule, *job, *concurrency, *pending;
    exo_words plugins, resources;
    bool spread, detached, get;
};

struct spawn_lists {
    exo_resource resources[MAX_RESOURCES];
    exo_lane_opts lanes;
    char names[MAX_RESOURCES][64];
    char **plugins; /* absolute paths: workers have other working directories */
};

#define RESTARTS    "never|on_failure|always"
#define GROUP_RULES "one_for_one|all_for_one|rest_for_one"

/* The index of an option's word in its list; 0 if it is not given. */
static int
chosen(const char *list, const char *word)
{
    return word ? exo_fixed_index(list, word) : 0;
}

static exo_status
read_lists(const struct spawn_args *args, exo_spawn_opts *opts, struct spawn_lists *lists,
           exo_err *err)
{
    exo_status st = EXO_OK;
    if (args->resources.length > MAX_RESOURCES)
        return exo_fail(err, EXO_INVAL, "more than %d resources", (int)MAX_RESOURCES);
    for (size_t i = 0; st == EXO_OK && i < args->resources.length; i++) {
        lists->resources[i].name = lists->names[i];
        st = exo_text_read_resource(args->resources.items[i], lists->names[i],
                                    sizeof lists->names[i], &lists->resources[i].amount, err);
    }
    lists->plugins = exo_calloc(args->plugins.length + 1, sizeof *lists->plugins);
    if (!lists->plugins)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; st == EXO_OK && i < args->plugins.length; i++) {
        char path[4096];
        const char *named = args->plugins.items[i], *whole = realpath(named, path);
        /* the file may exist on the worker's host only, where a relative path is another */
        if (!whole && named[0] != '/')
            st = exo_fail(err, EXO_NOT_FOUND,
                          "plugin '%s': %s: give the whole path of a file that only the worker's "
                          "host has",
                          named, strerror(errno));
        else if (!(lists->plugins[i] = exo_strdup(whole ? whole : named)))
            st = exo_fail(err, EXO_NOMEM, "out of memory");
    }
    opts->resources = lists->resources;
    opts->num_resources = args->resources.length;
    opts->plugins = (const char *const *)lists->plugins;
    opts->num_plugins = args->plugins.length;
    return st;
}

static exo_status
read_number(const char *text, const char *option, uint32_t least, uint32_t *out, exo_err *err)
{
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : (long)least;
    if (text && (!*text || *end || number < (long)least || number > MAX_NUMBER))
        return exo_fail(err, EXO_INVAL, "%s: expected a number from %u to %d, got '%.40s'", option,
                        least, (int)MAX_NUMBER, text);
    if (text)
        *out = (uint32_t)number;
    return EXO_OK;
}

static exo_status
read_options(const struct spawn_args *args, exo_spawn_opts *opts, struct spawn_lists *lists,
             exo_err *err)
{
    *opts = (exo_spawn_opts){.name = args->name ? args->name : args->class_name,
                             .namespace_name = args->space,
                             .get_if_exists = args->get,
                             .detached = args->detached || !args->job,
                             .placement = args->node     ? EXO_PLACE_STRICT
                                          : args->spread ? EXO_PLACE_SPREAD
                                                         : EXO_PLACE_PACK,
                             .node = args->node,
                             .restart.when = (exo_restart_when)chosen(RESTARTS, args->restart),
                             .group = args->group,
                             .group_rule = (exo_group_rule)chosen(GROUP_RULES, args->group_rule)};
    exo_status st = read_number(args->max, "--max-restarts", 0, &opts->restart.max, err);
    if (st == EXO_OK)
        st = read_number(args->concurrency, "--max-concurrency", 1, &lists->lanes.max_concurrency,
                         err);
    if (st == EXO_OK)
        st = read_number(args->pending, "--max-pending-calls", 1, &lists->lanes.max_pending_calls,
                         err);
    opts->lanes = &lists->lanes;
    opts->num_lanes = args->concurrency || args->pending;
    if (st == EXO_OK && args->within)
        st = exo_text_read_time(args->within, "--within", &opts->restart.within, err);
    if (st == EXO_OK && args->backoff)
        st = exo_text_read_time(args->backoff, "--backoff", &opts->restart.backoff, err);
    return st == EXO_OK ? read_lists(args, opts, lists, err) : st;
}

static int
spawn_command(const exo_command_line *line)
{
    const struct spawn_args *args = line->args;
    exo_visit visit = {0};
    exo_spawn_opts opts;
    struct spawn_lists lists = {0};
    exo_err err = {0};
    exo_ref actor;
    exo_status st = read_options(args, &opts, &lists, &err);
    if (st == EXO_OK)
        st = exo_visit_open(&visit, &args->where, args->job, &err);
    int status = st == EXO_INVAL ? exo_report_usage(line->command, &err) : EXO_EXIT_OK;
    if (st == EXO_OK)
        st = exo_read_argument(args->argument, &opts.args, &err);
    if (st == EXO_OK)
        st = exo_spawn_class(visit.runtime, args->class_name, &opts, visit.deadline, &actor, &err);
    if (st == EXO_OK && args->where.json)
        st = exo_print_json(json_pack("{s:o, s:o, s:o}", "name", exo_lossy_json(opts.name),
                                      "namespace",
                                      exo_lossy_json(args->space ? args->space : "default"),
                                      "class", exo_lossy_json(args->class_name)),
                            &err);
    if (st == EXO_OK && !args->where.json) {
        exo_show(stdout, opts.name, strlen(opts.name), EXO_SHOWN_LINE);
        putchar('\n');
    }
    if (st != EXO_OK && status == EXO_EXIT_OK) {
        exo_report(&err);
        status = EXO_EXIT_FAILURE;
    }
    exo_visit_close(&visit);
    for (size_t i = 0; lists.plugins && i < args->plugins.length; i++)
        exo_free(lists.plugins[i]);
    exo_free(lists.plugins);
    return status;
}

static const exo_arg spawn_table[] = {
    {NULL, "CLASS", "Its class, which the worker or a plugin has.",
     EXO_INTO(struct spawn_args, class_name), .required = true},
    {NULL, "ARGUMENT",
     "What it starts with: these bytes, or with @FILE those of a file; nothing unless given.",
     EXO_INTO(struct spawn_args, argument)},
    {"--name", "NAME", "What it is called; CLASS unless given.", EXO_INTO(struct spawn_args, name)},
    {"--namespace", "NAME", "Where its name belongs; default unless given.",
     EXO_INTO(struct spawn_args, space), .brief = "-n"},
    {"--plugin", "FILE.so", "The worker loads it first; can be given again and again.",
     EXO_INTO(struct spawn_args, plugins), .word = EXO_WORD_FILE},
    {"--restart", RESTARTS, "When it lives again after its death; never unless given.",
     EXO_INTO(struct spawn_args, restart), .word = EXO_WORD_FIXED},
    {"--max-restarts", "N", "After more deaths than this it stays dead; any number unless given.",
     EXO_INTO(struct spawn_args, max)},
    {"--within", "TIME", "Only deaths within this time count.",
     EXO_INTO(struct spawn_args, within)},
    {"--backoff", "TIME",
     "Before the first restart; doubles while lives are shorter than 10s, up to 30s.",
     EXO_INTO(struct spawn_args, backoff)},
    {"--resource", "NAME=AMOUNT",
     "What it takes of its worker: cpus=1, memory=2GiB; can be given again and again.",
     EXO_INTO(struct spawn_args, resources)},
    {"--max-concurrency", "N",
     "Calls that each of its lanes serves at a time; as its class says unless given.",
     EXO_INTO(struct spawn_args, concurrency)},
    {"--max-pending-calls", "N",
     "Calls that wait in each of its lanes at most, further ones fail; as its class says unless "
     "given.",
     EXO_INTO(struct spawn_args, pending)},
    {"--node", "NAME", "On that worker, or not at all.", EXO_INTO(struct spawn_args, node)},
    {"--spread", NULL, "On the emptiest worker, instead of the fullest that has room.",
     EXO_INTO(struct spawn_args, spread)},
    {"--group", "NAME", "Its supervision group.", EXO_INTO(struct spawn_args, group)},
    {"--group-rule", GROUP_RULES, "Who of the group is restarted with one that failed.",
     EXO_INTO(struct spawn_args, group_rule), .word = EXO_WORD_FIXED},
    {"--job", "NAME",
     "The job that it belongs to, and ends with; unless given it belongs to none, and stays.",
     EXO_INTO(struct spawn_args, job)},
    {"--detached", NULL, "Stays when its --job ends.", EXO_INTO(struct spawn_args, detached)},
    {"--get", NULL, "Is content with an actor of that name that is there.",
     EXO_INTO(struct spawn_args, get)},
    EXO_WHERE_ROWS(struct spawn_args, "Prints {\"name\", \"namespace\", \"class\"}."),
    {0},
};

static const exo_note spawn_examples[] = {
    {"exogym spawn counter --plugin ./libcounter.so --restart on_failure",
     "Makes an actor that outlives its worker."},
    {0},
};

const exo_command exo_command_spawn = {
    .name = "spawn",
    .summary = "Makes an actor on a worker of a cluster",
    .description =
        "Ends when the actor has started, and prints its name. `exogym kill` ends the actor.",
    .args = spawn_table,
    .examples = spawn_examples,
    .args_size = sizeof(struct spawn_args),
    .run = spawn_command,
};
