/* `exogym status`: what a cluster has and does, on one page. */
#include <stdio.h>
#include <string.h>

#include "where.h"

struct status_args {
    struct exo_where where;
};

/* Of how many objects of a list the state is `state`. */
static size_t
count(const json_t *list, const char *state)
{
    size_t i, found = 0;
    const json_t *object;
    json_array_foreach ((json_t *)(uintptr_t)list, i, object)
        found += strcmp(json_string_value(json_object_get(object, "state")), state) == 0;
    return found;
}

static exo_status
status(exo_visit *visit, const void *arguments, exo_err *err)
{
    const struct status_args *args = arguments;
    json_t *listing = NULL;
    exo_status st = exo_visit_list(visit, &listing, err);
    if (st != EXO_OK)
        return st;
    if (args->where.json)
        return exo_print_json(listing, err);
    const json_t *nodes = json_object_get(listing, "nodes"), *actors = json_object_get(listing, "actors"),
                 *jobs = json_object_get(listing, "jobs");
    printf("cluster  %s, exogym %s\n", json_string_value(json_object_get(listing, "cluster")),
           json_string_value(json_object_get(listing, "version")));
    printf("nodes    %zu alive, %zu lost, %zu left\n", count(nodes, "alive"), count(nodes, "lost"),
           count(nodes, "left"));
    printf("actors   %zu alive, %zu dead, %zu between\n", count(actors, "alive"), count(actors, "dead"),
           json_array_size(actors) - count(actors, "alive") - count(actors, "dead"));
    printf("jobs     %zu running, %zu ended\n", count(jobs, "running"), json_array_size(jobs) - count(jobs, "running"));
    if (json_array_size(nodes) > count(nodes, "left")) {
        printf("\n");
        exo_print_nodes(listing, false);
    }
    json_decref(listing);
    return EXO_OK;
}

static int
status_command(const exo_command_line *line)
{
    return exo_visit_do(line, &((const struct status_args *)line->args)->where, status);
}

static const exo_arg table[] = {
    EXO_WHERE_ROWS(struct status_args, "Prints all that the head knows as one JSON object."),
    {0},
};

const exo_command exo_command_status = {
    .name = "status",
    .summary = "Shows what a cluster has and does",
    .description = "Nodes with what is free of their cpus, gpus and memory, and how many actors and jobs there are. "
                   "Nodes that left "
                   "in good order, as drivers do, are counted only; `exogym list nodes` has them.",
    .args = table,
    .args_size = sizeof(struct status_args),
    .run = status_command,
};
