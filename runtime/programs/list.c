/* `exogym list`: the names that a job can use, one per line, for people and for completions; and
 * the contents of a cluster. */
#include <stdio.h>
#include <string.h>

#include <exogym/codec.h>
#include <exogym/data.h>
#include <exogym/engine.h>
#include <exogym/environment.h>
#include <exogym/graph.h>
#include <exogym/memory.h>
#include <exogym/model.h>
#include <exogym/plugin.h>
#include <exogym/reward.h>
#include <exogym/strategy.h>
#include <exogym/tool.h>

#include "actor/hooks.h"
#include "comm/engines.h"
#include "environments/optional.h"
#include "nn/device/kinds.h"
#include "programs/show.h"
#include "programs/where.h"

static json_t *entries; /* output of --json; NULL: text is printed */

static void
print_entry(const char *name, const char *help)
{
    char shown[512], line[2048]; /* a plugin's texts are untrusted */
    if (entries)
        json_array_append_new(entries, json_pack("{s:o, s:o}", "name", exo_lossy_json(name), "help",
                                                 exo_lossy_json(help ? help : "")));
    else
        printf("%-16s %s\n", exo_printable(shown, sizeof shown, name, EXO_SHOWN_LINE),
               exo_printable(line, sizeof line, help ? help : "", EXO_SHOWN_LINE));
}

/* Prints the environments, and of each that this installation lacks, what it needs. */
static void
print_environments(void)
{
    const char *name = NULL;
    for (size_t i = 0; (name = exo_environment_optional_at(i)); i++)
        exo_environment_optional_load(name, NULL);
    for (size_t i = 0; exo_environment_class_at(i); i++)
        print_entry(exo_environment_class_at(i)->name, exo_environment_class_at(i)->help);
    for (size_t i = 0; (name = exo_environment_optional_at(i)); i++) {
        exo_err err = {0};
        if (exo_environment_optional_load(name, &err) != EXO_OK)
            print_entry(name, err.text);
    }
}

/* Also those whose plugin cannot be loaded, each with the reason. */
static void
print_engines(void)
{
    const char *name = NULL;
    for (size_t i = 0; (name = exo_engine_optional_at(i)); i++)
        exo_engine_load_optional(name, NULL);
    for (size_t i = 0; exo_engine_at(i); i++)
        print_entry(exo_engine_at(i)->name, exo_engine_at(i)->help);
    for (size_t i = 0; (name = exo_engine_optional_at(i)); i++) {
        exo_err err = {0};
        if (exo_engine_load_optional(name, &err) != EXO_OK)
            print_entry(name, err.text);
    }
}

/* Prints the names of a kind, `what`. */
static void
print_names(const char *what)
{
    const char *name = NULL, *help = NULL;
    size_t i = 0;
    if (strcmp(what, "strategies") == 0)
        for (const exo_strategy_class *c; (c = exo_strategy_class_at(i)); i++)
            print_entry(c->name, c->help);
    else if (strcmp(what, "schedules") == 0)
        for (const exo_schedule_class *c; (c = exo_schedule_class_at(i)); i++)
            print_entry(c->name, c->help);
    else if (strcmp(what, "classes") == 0)
        for (const exo_graph_class *c; (c = exo_graph_class_at(i)); i++)
            print_entry(c->name, c->help);
    else if (strcmp(what, "environments") == 0)
        print_environments();
    else if (strcmp(what, "models") == 0)
        for (const exo_model_class *c; (c = exo_model_class_at(i)); i++)
            print_entry(c->name, c->help);
    else if (strcmp(what, "downloads") == 0)
        for (const exo_data_source *c; (c = exo_data_source_at(i)); i++)
            print_entry(c->name, c->help);
    else if (strcmp(what, "engines") == 0)
        print_engines();
    else if (strcmp(what, "devices") == 0)
        for (const exo_device_kind *k; (k = exo_registry_at(&exo_device_registry, i)); i++)
            print_entry(k->name, k->help);
    else if (strcmp(what, "rewards") == 0)
        for (const exo_reward_class *c; (c = exo_reward_class_at(i)); i++)
            print_entry(c->name, c->help);
    else if (strcmp(what, "tools") == 0)
        for (const exo_tool_class *c; (c = exo_tool_class_at(i)); i++)
            print_entry(c->name, c->help);
    else if (strcmp(what, "data") == 0)
        for (; (name = exo_dataset_name_at(i, &help)); i++)
            print_entry(name, help);
    else if (strcmp(what, "codecs") == 0)
        for (; exo_codec_at(i, &name, &help); i++)
            print_entry(name, help);
    else
        for (const exo_command *const *c = exo_program()->commands; *c; c++)
            print_entry((*c)->name, (*c)->summary);
}

struct list_args {
    struct exo_where where;
    const char *what, *name, *space;
    exo_words plugins;
};

static exo_status
list_cluster(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct list_args *args = arguments;
    json_t *listing = NULL;
    exo_status st = exo_visit_list(visit, &listing, err);
    if (st != EXO_OK)
        return st;
    if (args->where.json)
        st = exo_print_json(json_incref(json_object_get(listing, args->what)), err);
    else
        exo_print_rows(args->what, json_object_get(listing, args->what), true);
    json_decref(listing);
    return st;
}

static exo_status
list_objects(exo_visit *visit, const void *command_args, exo_err *err)
{
    const struct list_args *args = command_args;
    char *text = NULL;
    exo_status st = exo_cluster_list_objects(visit->cluster, visit->deadline, &text, err);
    json_t *objects = st == EXO_OK ? json_loads(text, 0, NULL) : NULL;
    exo_free(text);
    if (st != EXO_OK || args->where.json)
        return st == EXO_OK ? exo_print_json(objects, err) : st;
    exo_print_rows("objects", objects, true);
    json_decref(objects);
    return EXO_OK;
}

/* Reads one method from its line. Splits the line in place. */
static json_t *
read_method(char *line)
{
    char *rest = NULL;
    const char *name = strtok_r(line, "\t", &rest), *lane = strtok_r(NULL, "\t", &rest);
    const char *kind = strtok_r(NULL, "\t", &rest), *again = strtok_r(NULL, "\t", &rest);
    if (!again)
        return NULL;
    return json_pack("{s:o, s:o, s:o, s:b}", "name", exo_lossy_json(name), "lane",
                     exo_lossy_json(lane), "kind", exo_lossy_json(kind), "idempotent",
                     strcmp(again, "idempotent") == 0);
}

static void
print_methods(const json_t *methods)
{
    char name[256], lane[256];
    size_t i;
    const json_t *m;
    printf("%-24s %-12s %-10s %s\n", "method", "lane", "kind", "idempotent");
    json_array_foreach (methods, i, m)
        printf("%-24s %-12s %-10s %s\n",
               exo_printable(name, sizeof name, json_string_value(json_object_get(m, "name")),
                             EXO_SHOWN_LINE),
               exo_printable(lane, sizeof lane, json_string_value(json_object_get(m, "lane")),
                             EXO_SHOWN_LINE),
               json_string_value(json_object_get(m, "kind")),
               json_is_true(json_object_get(m, "idempotent")) ? "yes" : "no");
}

static exo_status
list_methods(exo_visit *visit, const void *command_args, exo_err *err)
{
    const struct list_args *args = command_args;
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_ref actor;
    exo_status st = exo_visit_find(visit, args->space, args->name, &actor, err);
    if (st == EXO_OK)
        st = exo_visit_call(visit, actor, EXO_METHOD_METHODS, (exo_payload){0}, &future, &reply,
                            err);
    json_t *methods = json_array();
    char *text = exo_calloc(1, (st == EXO_OK ? reply->size : 0) + 1), *rest = NULL;
    if (st == EXO_OK && (!methods || !text))
        st = exo_fail(err, EXO_NOMEM, "no memory for a list of methods");
    if (st == EXO_OK && reply->size)
        memcpy(text, reply->data, reply->size);
    for (char *line = st == EXO_OK ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        json_t *method = read_method(line);
        if (method)
            json_array_append_new(methods, method);
    }
    exo_free(text);
    exo_future_drop(&future);
    if (st == EXO_OK && args->where.json)
        return exo_print_json(methods, err);
    if (st == EXO_OK)
        print_methods(methods);
    json_decref(methods);
    return st;
}

static int
list_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct list_args *args = line->args;
    if (!args->name != (strcmp(args->what, "methods") != 0)) {
        exo_fail(&err, EXO_INVAL,
                 args->name ? "list %s: there is nothing to name; '%s' is one word too many"
                            : "list %s: whose? Name an actor: exogym list methods NAME",
                 args->what, args->name);
        return exo_report_usage(line->command, &err);
    }
    if (strcmp(args->what, "methods") == 0)
        return exo_visit_do(line, list_methods);
    if (strcmp(args->what, "nodes") == 0 || strcmp(args->what, "actors") == 0 ||
        strcmp(args->what, "jobs") == 0)
        return exo_visit_do(line, list_cluster);
    if (strcmp(args->what, "objects") == 0)
        return exo_visit_do(line, list_objects);
    entries = args->where.json ? json_array() : NULL;
    for (size_t i = 0; i < args->plugins.length; i++)
        if (exo_plugin_load(args->plugins.items[i], &err) != EXO_OK)
            return exo_report_usage(line->command, &err);
    print_names(args->what);
    if (entries && exo_print_json(entries, &err) != EXO_OK)
        return exo_report(&err);
    return EXO_EXIT_OK;
}

static const exo_arg table[] = {
    {NULL,
     "strategies|schedules|models|data|downloads|codecs|engines|devices|classes|environments|"
     "rewards|tools|commands|"
     "nodes|"
     "actors|jobs|objects|methods",
     "What is listed: the strategies, learning-rate schedules, models or data sets that a job can "
     "name, the sets that `exogym data get` fetches, the codecs that arrays can be sent with, the "
     "engines that move the data of collectives, the devices that compute, the classes of actors "
     "that a graph can name, the environments that they play, the rewards of answers, the tools "
     "that policies call, the commands "
     "of exogym, or the nodes, actors, "
     "jobs or shared objects "
     "of a cluster, or the methods of one of its actors.",
     EXO_INTO(struct list_args, what), .word = EXO_WORD_FIXED, .required = true},
    {NULL, "NAME", "The actor whose methods are listed.", EXO_INTO(struct list_args, name)},
    {"--namespace", "NAME", "The actor's namespace; default unless given.",
     EXO_INTO(struct list_args, space), .brief = "-n"},
    {"--plugin", "FILE.so", "Loads a plugin first; can be given again and again.",
     EXO_INTO(struct list_args, plugins), .word = EXO_WORD_FILE},
    EXO_WHERE_ROWS(struct list_args, "Prints an array of objects instead of text."),
    {0},
};

static const exo_note examples[] = {
    {"exogym list strategies --plugin ./libint8.so",
     "Shows a plugin's strategies beside the built-in ones."},
    {"exogym list methods node_0 -n compare/ddp/4711", "Shows what `exogym call` can call there."},
    {0},
};

const exo_command exo_command_list = {
    .name = "list",
    .summary = "Lists what a job or graph can name, or what is in a cluster",
    .description = "One a line: the name, then what it is; of a method its lane, whether the lane "
                   "is light, has threads of its own (blocking) or is always served (control), and "
                   "whether a call may be made again (idempotent). --cluster and what follows it "
                   "are for nodes, actors, jobs, objects and methods.",
    .args = table,
    .examples = examples,
    .args_size = sizeof(struct list_args),
    .run = list_command,
};
