/* Reads the hosts and links of a graph, and places the actors on hosts. No state. Read next:
 * spec_edges.c, links.c. */
#include "graph/spec_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actor/resources.h"

enum {
    MAX_SCHEDULE = 256 /* entries for one host or link */
};

#define MAX_LOSS 0.99 /* with more loss, almost nothing arrives */

int
exo_graph_find_group(const exo_graph_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->num_host_groups; i++)
        if (strcmp(spec->host_groups[i].name, name) == 0)
            return (int)i;
    return -1;
}

static const char *
group_name(const void *spec, size_t index)
{
    const exo_graph_spec *s = spec;
    return index < s->num_host_groups ? s->host_groups[index].name : NULL;
}

/* --- Schedules -------------------------------------------------------------------------------- */

static exo_status
read_change(exo_config *node, exo_link_change *change, exo_err *err)
{
    exo_status st = exo_config_time(node, "at", 0, 0, INT64_MAX, &change->at, err);
    if (st == EXO_OK)
        st = exo_config_time(node, "for", 0, 0, INT64_MAX, &change->length, err);
    if (st == EXO_OK)
        st = exo_config_time(node, "every", 0, 0, INT64_MAX, &change->period, err);
    if (st == EXO_OK)
        st = exo_config_double(node, "factor", 1, 0, 1000, &change->factor, err);
    if (st == EXO_OK)
        st = exo_config_finish(node, err);
    if (st == EXO_OK && !exo_config_has(node, "factor"))
        st = exo_config_fail(node, err,
                             "schedule: the key 'factor' is missing: of the rates; 0 is an outage");
    if (st == EXO_OK && change->period > 0 && change->length == 0)
        st = exo_config_fail(node, err,
                             "schedule: 'every' needs 'for': how long it lasts each time");
    if (st == EXO_OK && change->period > 0 && change->length > change->period)
        st = exo_config_fail(node, err, "schedule: 'for' is longer than 'every'");
    return st;
}

/* Reads the list `schedule` of a host or link: [{at, for, every, factor}]. */
static exo_status
read_schedule(exo_graph_spec *spec, exo_config *node, const exo_link_change **out, size_t *count,
              exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = exo_config_list(node, "schedule", &list, err);
    size_t length = exo_config_length(list);
    if (st != EXO_OK || length == 0)
        return st;
    if (length > MAX_SCHEDULE)
        return exo_config_fail(list, err, "schedule: more than %d changes", MAX_SCHEDULE);
    exo_link_change *changes = exo_graph_alloc(spec, length, sizeof *changes, err);
    if (!changes)
        return EXO_NOMEM;
    for (size_t i = 0; st == EXO_OK && i < length; i++)
        st = read_change(exo_config_item(list, i), &changes[i], err);
    *out = changes;
    *count = length;
    return st;
}

/* --- Hosts ------------------------------------------------------------------------------------ */

static exo_status
add_hosts(exo_graph_spec *spec, const exo_host_group *group, const exo_emulated_host *like,
          exo_err *err)
{
    for (uint32_t i = 0; i < group->count; i++) {
        exo_emulated_host *host = &spec->hosts[group->first + i];
        size_t size = strlen(group->name) + sizeof "_65535";
        char *name = exo_graph_alloc(spec, size, 1, err);
        if (!name)
            return EXO_NOMEM;
        snprintf(name, size, group->numbered ? "%s_%" PRIu32 : "%s", group->name, i);
        *host = *like;
        host->spec.name = name;
    }
    return EXO_OK;
}

static exo_status
read_host(exo_graph_spec *spec, exo_host_group *group, exo_emulated_host *host, exo_err *err)
{
    uint64_t count = 0;
    exo_config *node = group->node;
    exo_status st = exo_config_u64(node, "count", 1, 1, EXO_GRAPH_MAX_ACTORS, &count, err);
    if (st == EXO_OK)
        st =
            exo_config_rate(node, "up", (double)INFINITY, 1, (double)INFINITY, &host->spec.up, err);
    if (st == EXO_OK)
        st = exo_config_rate(node, "down", (double)INFINITY, 1, (double)INFINITY, &host->spec.down,
                             err);
    if (st == EXO_OK)
        st = exo_config_time(node, "latency", 0, 0, INT64_MAX / 4, &host->spec.latency, err);
    if (st == EXO_OK)
        st = exo_config_time(node, "queue", 0, 0, INT64_MAX / 4, &host->spec.queue, err);
    if (st == EXO_OK)
        st = exo_config_double(node, "speed", 1, 1e-6, 1e6, &host->speed, err);
    if (st == EXO_OK)
        st = exo_resources_read(node, &host->resources, &host->num_resources, err);
    if (st == EXO_OK)
        st = read_schedule(spec, node, &host->spec.changes, &host->spec.num_changes, err);
    if (st == EXO_OK)
        st = exo_config_finish(node, err);
    group->count = (uint32_t)count;
    group->numbered = exo_config_has(node, "count");
    if (isfinite(host->spec.up) || isfinite(host->spec.down) || host->spec.latency > 0 ||
        host->spec.num_changes > 0)
        spec->emulated = true;
    return st;
}

/* True: `name` is a host of the group, such as home_3. */
static bool
is_host_of(const exo_host_group *group, const char *name, uint32_t *index)
{
    size_t length = strlen(group->name);
    if (!group->numbered) {
        *index = 0;
        return strcmp(name, group->name) == 0;
    }
    const char *digits = name + length + 1;
    if (strncmp(name, group->name, length) != 0 || name[length] != '_' ||
        strspn(digits, "0123456789") != strlen(digits))
        return false;
    if (!*digits || strlen(digits) > 5 || (digits[0] == '0' && digits[1]))
        return false;
    *index = 0;
    for (; *digits; digits++)
        *index = 10 * *index + (uint32_t)(*digits - '0');
    return *index < group->count;
}

static exo_status
check_host_names(const exo_graph_spec *spec, exo_err *err)
{
    uint32_t index = 0;
    for (size_t i = 0; i < spec->num_host_groups; i++)
        for (size_t k = 0; k < spec->num_host_groups; k++)
            if (i != k && is_host_of(&spec->host_groups[k], spec->host_groups[i].name, &index))
                return exo_config_fail(spec->host_groups[i].node, err,
                                       "hosts: '%s' is also a host of '%s'",
                                       spec->host_groups[i].name, spec->host_groups[k].name);
    return EXO_OK;
}

exo_status
exo_graph_read_hosts(exo_graph_spec *spec, exo_err *err)
{
    exo_config *map = NULL;
    size_t total = 0;
    exo_status st = exo_config_map(spec->root, "hosts", &map, err);
    size_t length = exo_config_length(map);
    if (st != EXO_OK || length == 0)
        return st;
    if (length > EXO_GRAPH_MAX_NAMES)
        return exo_config_fail(map, err, "hosts: more than %d names", EXO_GRAPH_MAX_NAMES);
    spec->host_groups = exo_graph_alloc(spec, length, sizeof *spec->host_groups, err);
    exo_emulated_host *kinds = exo_graph_alloc(spec, length, sizeof *kinds, err);
    if (!spec->host_groups || !kinds)
        return EXO_NOMEM;
    for (size_t i = 0; st == EXO_OK && i < length; i++) {
        exo_host_group *group = &spec->host_groups[i];
        group->name = exo_config_key(map, i, &group->node);
        if (!group->name)
            return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
        if (!exo_config_is_label(group->name))
            return exo_config_fail(group->node, err, "host '%.60s': expected " EXO_LABEL_RULE,
                                   group->name);
        st = exo_config_map(map, group->name, &group->node, err);
        if (st == EXO_OK)
            st = read_host(spec, group, &kinds[i], err);
        group->first = (uint32_t)total;
        total += group->count;
        if (st == EXO_OK && total > EXO_GRAPH_MAX_ACTORS)
            st = exo_config_fail(group->node, err, "%zu hosts so far: a graph has at most %d",
                                 total, EXO_GRAPH_MAX_ACTORS);
        spec->num_host_groups = i + 1;
    }
    if (st == EXO_OK)
        st = check_host_names(spec, err);
    spec->hosts = st == EXO_OK ? exo_graph_alloc(spec, total, sizeof *spec->hosts, err) : NULL;
    if (!spec->hosts)
        return st == EXO_OK ? EXO_NOMEM : st;
    spec->num_hosts = total;
    spec->has_hosts = true;
    for (size_t i = 0; st == EXO_OK && i < length; i++)
        st = add_hosts(spec, &spec->host_groups[i], &kinds[i], err);
    return st;
}

exo_status
exo_graph_default_hosts(exo_graph_spec *spec, exo_err *err)
{
    static const exo_emulated_host plain = {
        .spec = {.up = (double)INFINITY, .down = (double)INFINITY}, .speed = 1};
    size_t total = 0;
    exo_status st = EXO_OK;
    for (size_t i = 0; i < spec->num_actors; i++)
        total += spec->actors[i].count;
    spec->hosts = exo_graph_alloc(spec, total, sizeof *spec->hosts, err);
    spec->host_groups = exo_graph_alloc(spec, spec->num_actors, sizeof *spec->host_groups, err);
    if (!spec->hosts || !spec->host_groups)
        return EXO_NOMEM;
    spec->num_hosts = total;
    spec->num_host_groups = spec->num_actors;
    total = 0;
    for (size_t i = 0; st == EXO_OK && i < spec->num_actors; i++) {
        exo_host_group *group = &spec->host_groups[i];
        *group = (exo_host_group){.name = spec->actors[i].name,
                                  .first = (uint32_t)total,
                                  .count = spec->actors[i].count,
                                  .numbered = true};
        total += group->count;
        st = add_hosts(spec, group, &plain, err);
    }
    return st;
}

/* --- Actors on hosts -------------------------------------------------------------------------- */

/* Adds the hosts of a name: all hosts of a group, or one. */
static exo_status
add_named(const exo_graph_spec *spec, exo_config *node, uint32_t *hosts, size_t room, size_t *used,
          exo_err *err)
{
    const char *name = exo_config_scalar(node);
    uint32_t index = 0;
    if (!name || !*name)
        return exo_config_fail(node, err, "host: expected the name of hosts, or a list of names");
    for (size_t g = 0; g < spec->num_host_groups; g++) {
        const exo_host_group *group = &spec->host_groups[g];
        bool whole = strcmp(group->name, name) == 0;
        if (!whole && !is_host_of(group, name, &index))
            continue;
        for (uint32_t i = whole ? 0 : index; i < (whole ? group->count : index + 1) && *used < room;
             i++)
            hosts[(*used)++] = group->first + i;
        return EXO_OK;
    }
    return exo_graph_fail_name(node, "host", name, group_name, spec, err);
}

exo_status
exo_graph_place(exo_graph_spec *spec, exo_actor_spec *actor, exo_err *err)
{
    size_t used = 0;
    exo_status st = EXO_OK;
    actor->hosts = exo_graph_alloc(spec, actor->count, sizeof *actor->hosts, err);
    if (!actor->hosts)
        return EXO_NOMEM;
    if (actor->placement && !spec->has_hosts)
        return exo_config_fail(actor->placement, err, "host: this graph has no 'hosts'");
    if (!spec->has_hosts) {
        const exo_host_group *own = &spec->host_groups[actor - spec->actors];
        for (; used < actor->count; used++)
            actor->hosts[used] = own->first + (uint32_t)used;
    } else if (exo_config_is_list(actor->placement)) {
        if (exo_config_length(actor->placement) == 0)
            return exo_config_fail(actor->placement, err, "host: the list is empty");
        for (size_t i = 0; st == EXO_OK && i < exo_config_length(actor->placement); i++)
            st = add_named(spec, exo_config_item(actor->placement, i), actor->hosts, actor->count,
                           &used, err);
    } else if (actor->placement) {
        st = add_named(spec, actor->placement, actor->hosts, actor->count, &used, err);
    } else if (spec->num_host_groups == 1) {
        const exo_host_group *only = &spec->host_groups[0];
        for (; used < actor->count && used < only->count; used++)
            actor->hosts[used] = only->first + (uint32_t)used;
    } else {
        return exo_config_fail(
            actor->node, err, "actor '%s': the key 'host' is missing: which of the hosts is it on?",
            actor->name);
    }
    for (size_t i = used; st == EXO_OK && i < actor->count; i++)
        actor->hosts[i] = actor->hosts[i - used]; /* the actors take the hosts in turn */
    return st;
}

/* --- Links ------------------------------------------------------------------------------------ */

static exo_status
read_end(const exo_graph_spec *spec, exo_config *node, const char *key, int *out, exo_err *err)
{
    const char *name = NULL;
    exo_status st = exo_config_string(node, key, NULL, &name, err);
    *out = -1;
    if (st != EXO_OK || !name)
        return st;
    *out = exo_graph_find_group(spec, name);
    return *out >= 0 ? EXO_OK
                     : exo_graph_fail_name(exo_config_get(node, key), "host", name, group_name,
                                           spec, err);
}

static exo_status
read_link(exo_graph_spec *spec, exo_named_link *link, exo_err *err)
{
    static const char *const transports[] = {"tcp", "ideal", NULL};
    size_t transport = 0;
    bool one_way = false;
    exo_config *node = link->node;
    exo_link_spec *s = &link->spec;
    exo_status st = exo_config_rate(node, "bandwidth", (double)INFINITY, 1, (double)INFINITY,
                                    &s->bandwidth, err);
    if (st == EXO_OK)
        st = exo_config_time(node, "latency", 0, 0, INT64_MAX / 4, &s->latency, err);
    if (st == EXO_OK)
        st = exo_config_time(node, "jitter", 0, 0, INT64_MAX / 4, &s->jitter, err);
    if (st == EXO_OK)
        st = exo_config_fraction(node, "loss", 0, 0, MAX_LOSS, &s->loss, err);
    if (st == EXO_OK)
        st = exo_config_choice(node, "transport", 0, transports, &transport, err);
    if (st == EXO_OK)
        st = read_schedule(spec, node, &s->changes, &s->num_changes, err);
    if (st == EXO_OK)
        st = read_end(spec, node, "from", &link->from, err);
    if (st == EXO_OK)
        st = read_end(spec, node, "to", &link->to, err);
    if (st == EXO_OK)
        st = exo_config_bool(node, "one_way", false, &one_way, err);
    if (st == EXO_OK)
        st = exo_config_finish(node, err);
    s->transport = transport == 1 ? EXO_LINK_IDEAL : EXO_LINK_TCP;
    link->both_ways = !one_way;
    return st;
}

static exo_status
check_ends(const exo_named_link *link, exo_err *err)
{
    bool named = link->from >= 0 || link->to >= 0;
    if (link->is_default && named)
        return exo_config_fail(
            link->node, err,
            "links: 'default' is for all other hosts; give this link another name");
    if (named && (link->from < 0 || link->to < 0))
        return exo_config_fail(link->node, err, "link '%s': the key '%s' is missing", link->name,
                               link->from < 0 ? "from" : "to");
    if (!named && !link->both_ways)
        return exo_config_fail(link->node, err,
                               "link '%s': one_way says nothing without from and to", link->name);
    return EXO_OK;
}

static bool
covers(const exo_named_link *link, int from, int to)
{
    return link->from >= 0 && ((link->from == from && link->to == to) ||
                               (link->both_ways && link->from == to && link->to == from));
}

static exo_status
check_overlap(const exo_graph_spec *spec, const exo_named_link *link, exo_err *err)
{
    for (const exo_named_link *other = spec->links; other < link; other++) {
        char where[256];
        if (!covers(link, other->from, other->to) &&
            !(other->both_ways && other->from >= 0 && covers(link, other->to, other->from)))
            continue;
        exo_config_where(other->node, where, sizeof where);
        return exo_config_fail(link->node, err,
                               "link '%s': '%s' is between the same hosts already, in %s",
                               link->name, other->name, where);
    }
    return EXO_OK;
}

/* Reads the links; `default` becomes the first, wherever it is in the file. */
exo_status
exo_graph_read_links(exo_graph_spec *spec, exo_err *err)
{
    exo_config *map = NULL;
    exo_status st = exo_config_map(spec->root, "links", &map, err);
    size_t length = exo_config_length(map), next = exo_config_has(map, "default") ? 1 : 0;
    if (st != EXO_OK || length == 0)
        return st;
    if (length > EXO_GRAPH_MAX_NAMES)
        return exo_config_fail(map, err, "links: more than %d names", EXO_GRAPH_MAX_NAMES);
    spec->links = exo_graph_alloc(spec, length, sizeof *spec->links, err);
    if (!spec->links)
        return EXO_NOMEM;
    for (size_t i = 0; st == EXO_OK && i < length; i++) {
        exo_config *node = NULL;
        const char *name = exo_config_key(map, i, &node);
        if (!name)
            return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
        exo_named_link *link = &spec->links[strcmp(name, "default") == 0 ? 0 : next++];
        link->name = name;
        link->is_default = strcmp(name, "default") == 0;
        if (!exo_config_is_label(name))
            return exo_config_fail(node, err, "link '%.60s': expected " EXO_LABEL_RULE, name);
        st = exo_config_map(map, name, &link->node, err);
        if (st == EXO_OK)
            st = read_link(spec, link, err);
        if (st == EXO_OK)
            st = check_ends(link, err);
    }
    spec->num_links = length;
    spec->emulated = true;
    for (size_t i = 0; st == EXO_OK && i < length; i++)
        st = check_overlap(spec, &spec->links[i], err);
    return st;
}
