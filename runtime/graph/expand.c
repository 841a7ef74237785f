/* Writes a graph as YAML with every default written out. No state. */
#include "graph/spec.h"

#include <inttypes.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/config_units.h"

struct writer {
    const exo_graph_spec *spec;
    exo_text text;
    exo_status status;
    exo_err *err;
};

/* Adds YAML in which "${" is to stay as it is: writes "$${". */
static void
add_literal(exo_text *text, const char *yaml)
{
    for (const char *at; (at = strstr(yaml, "${")); yaml = at + 2) {
        exo_text_add_bytes(text, yaml, (size_t)(at - yaml));
        exo_text_add(text, "$${");
    }
    exo_text_add(text, "%s", yaml);
}

static void
add_word(exo_text *text, const char *before, const char *word, const char *after)
{
    exo_text_add(text, "%s", before);
    exo_config_add_word(text, word);
    exo_text_add(text, "%s", after);
}

static void
add_time(exo_text *text, const char *before, exo_time time)
{
    char out[EXO_UNIT_TEXT];
    exo_text_add(text, "%s%s", before, exo_unit_time(time, out));
}

static void
add_rate(exo_text *text, const char *before, double rate)
{
    char out[EXO_UNIT_TEXT];
    exo_text_add(text, "%s%s", before, exo_unit_rate(rate, out));
}

static void
add_number(exo_text *text, const char *before, double number)
{
    char out[EXO_UNIT_TEXT];
    exo_text_add(text, "%s%s", before, exo_unit_number(number, out));
}

static void
add_node(struct writer *w, const exo_config *node)
{
    char *yaml = NULL;
    if (w->status == EXO_OK)
        w->status = exo_config_text(node, &yaml, w->err);
    if (yaml)
        add_literal(&w->text, yaml);
    exo_free(yaml);
}

static void
add_resources(exo_text *text, const exo_resource *resources, size_t count)
{
    char amount[EXO_UNIT_TEXT];
    exo_text_add(text, "    resources: {");
    for (size_t i = 0; i < count; i++) {
        add_word(text, i ? ", " : "", resources[i].name, ": ");
        exo_text_add(text, "%s",
                     strcmp(resources[i].name, "memory") == 0
                         ? exo_unit_bytes(resources[i].amount, amount)
                         : exo_unit_number(resources[i].amount, amount));
    }
    exo_text_add(text, "}\n");
}

static void
add_schedule(exo_text *text, const exo_link_change *changes, size_t count)
{
    exo_text_add(text, "    schedule: [");
    for (size_t i = 0; i < count; i++) {
        add_time(text, i ? ", {at: " : "{at: ", changes[i].at);
        add_time(text, ", for: ", changes[i].length);
        add_time(text, ", every: ", changes[i].period);
        add_number(text, ", factor: ", changes[i].factor);
        exo_text_add(text, "}");
    }
    exo_text_add(text, "]\n");
}

static void
add_top(struct writer *w)
{
    const exo_graph_spec *s = w->spec;
    exo_text *t = &w->text;
    exo_text_add(t, "exogym: 1\n");
    add_word(t, "name: ", s->name, "\n");
    exo_text_add(t, "seed: %" PRIu64 "\nclock: %s\n", s->seed,
                 s->virtual_clock ? "virtual" : "real");
    add_time(t, "until: ", s->until);
    exo_text_add(t, "\nplugins: [");
    for (size_t i = 0; i < s->num_plugins; i++) {
        exo_text path = {0};
        exo_config_add_word(&path, s->plugins[i]);
        exo_text_add(t, "%s", i ? ", " : "");
        add_literal(t, path.data ? path.data : "");
        t->failed |= path.failed;
        exo_free(path.data);
    }
    exo_text_add(t, "]\n");
}

static void
add_hosts(exo_text *t, const exo_graph_spec *s)
{
    exo_text_add(t, s->has_hosts ? "hosts:\n" : "");
    for (size_t i = 0; s->has_hosts && i < s->num_host_groups; i++) {
        const exo_host_group *group = &s->host_groups[i];
        const exo_emulated_host *host = &s->hosts[group->first];
        add_word(t, "  ", group->name, ":\n");
        if (group->numbered)
            exo_text_add(t, "    count: %" PRIu32 "\n", group->count);
        add_rate(t, "    up: ", host->spec.up);
        add_rate(t, "\n    down: ", host->spec.down);
        add_time(t, "\n    latency: ", host->spec.latency);
        if (host->spec.queue > 0)
            add_time(t, "\n    queue: ", host->spec.queue);
        add_number(t, "\n    speed: ", host->speed);
        exo_text_add(t, "\n");
        if (host->resources)
            add_resources(t, host->resources, host->num_resources);
        add_schedule(t, host->spec.changes, host->spec.num_changes);
    }
}

static void
add_restart(exo_text *t, const exo_restart_rule *rule)
{
    static const char *const names[] = {"never", "on_failure", "always"};
    exo_text_add(t, "    restart: {when: %s", names[rule->when]);
    if (rule->when != EXO_RESTART_NEVER) { /* without a rule, the other keys have no effect */
        exo_text_add(t, ", max: %" PRIu32, rule->max);
        add_time(t, ", within: ", rule->within);
        add_time(t, ", backoff: ", rule->backoff);
    }
    exo_text_add(t, "}\n");
}

static void
add_actor(struct writer *w, const exo_actor_spec *actor)
{
    exo_text *t = &w->text;
    bool first = true;
    add_word(t, "  ", actor->name, ":\n");
    add_word(t, "    class: ", actor->class->name, "\n");
    exo_text_add(t, "    count: %" PRIu32 "\n", actor->count);
    if (actor->placement) {
        exo_text_add(t, "    host: ");
        add_node(w, actor->placement);
        exo_text_add(t, "\n");
    } else if (w->spec->has_hosts) {
        add_word(t, "    host: ", w->spec->host_groups[0].name, "\n");
    }
    add_resources(t, actor->resources, actor->num_resources);
    add_restart(t, &actor->restart);
    exo_text_add(t, "    compute: {"); /* only declared costs; the others are measured */
    for (size_t i = 0; i < actor->num_compute; i++) {
        if (actor->compute[i].cost < 0)
            continue;
        add_word(t, first ? "" : ", ", actor->compute[i].phase, ": ");
        add_time(t, "", actor->compute[i].cost);
        first = false;
    }
    exo_text_add(t, "}\n    config: ");
    add_node(w, actor->config);
    exo_text_add(t, "\n");
}

/* The lists of targets, as a mapping from senders. */
static void
add_targets(exo_text *t, const exo_graph_spec *s, const exo_edge_spec *edge)
{
    const char *from = s->actors[edge->from].name, *to = s->actors[edge->to].name;
    exo_text_add(t, "    targets: {");
    for (uint32_t i = 0; i < s->actors[edge->from].count; i++) {
        exo_text_add(t, "%s%s_%" PRIu32 ": [", i ? ", " : "", from, i);
        for (uint32_t k = edge->begins[i]; k < edge->begins[i + 1]; k++)
            exo_text_add(t, "%s%s_%" PRIu32, k > edge->begins[i] ? ", " : "", to, edge->listed[k]);
        exo_text_add(t, "]");
    }
    exo_text_add(t, "}\n");
}

static void
add_edge(exo_text *t, const exo_graph_spec *s, const exo_edge_spec *edge)
{
    char size[EXO_UNIT_TEXT];
    add_word(t, "  - from: ", s->actors[edge->from].name, "\n");
    add_word(t, "    to: ", s->actors[edge->to].name, "\n");
    add_word(t, "    carries: ", edge->carries, "\n");
    add_word(t, "    name: ", edge->name, "\n");
    exo_text_add(t, "    route: %s\n", exo_route_names[edge->route]);
    if (edge->route == EXO_ROUTE_MODULO)
        exo_text_add(t, "    idle_senders: %s\n", edge->idle_senders ? "true" : "false");
    if (edge->route == EXO_ROUTE_LISTED)
        add_targets(t, s, edge);
    exo_text_add(t, "    codec: %s\n", edge->codec_text);
    if (edge->route != EXO_ROUTE_ALL_REDUCE) {
        exo_text_add(t,
                     "    buffer: {capacity: %" PRIu32 ", on_full: %s}\n    every: %" PRIu64 "\n",
                     edge->capacity, exo_on_full_names[edge->on_full], edge->every);
        add_time(t, "    delay: ", edge->delay);
        exo_text_add(t, "\n");
    }
    add_time(t, "    deadline: ", edge->deadline);
    exo_text_add(t, "\n");
    if (edge->link >= 0)
        add_word(t, "    link: ", s->links[edge->link].name, "\n");
    if (edge->item > 0)
        exo_text_add(t, "    item: %s\n", exo_unit_bytes(edge->item, size));
    if (edge->item > 0 || edge->interval != 1)
        exo_text_add(t, "    interval: %" PRIu64 "\n", edge->interval);
    if (edge->route == EXO_ROUTE_ALL_REDUCE && edge->members < s->actors[edge->from].count)
        exo_text_add(t, "    members: %" PRIu32 "\n", edge->members);
    if (edge->route == EXO_ROUTE_ALL_REDUCE) {
        add_word(t, "    engine: ", edge->engine ? edge->engine : "auto", "\n");
        exo_text_add(t, "    equal_bits: %s\n", edge->any_bits ? "false" : "true");
    }
}

static void
add_link(exo_text *t, const exo_graph_spec *s, const exo_named_link *link)
{
    add_word(t, "  ", link->name, ":\n");
    if (link->from >= 0) {
        add_word(t, "    from: ", s->host_groups[link->from].name, "\n");
        add_word(t, "    to: ", s->host_groups[link->to].name, "\n");
        exo_text_add(t, "    one_way: %s\n", link->both_ways ? "false" : "true");
    }
    add_rate(t, "    bandwidth: ", link->spec.bandwidth);
    add_time(t, "\n    latency: ", link->spec.latency);
    add_time(t, "\n    jitter: ", link->spec.jitter);
    add_number(t, "\n    loss: ", link->spec.loss);
    exo_text_add(t, "\n    transport: %s\n",
                 link->spec.transport == EXO_LINK_IDEAL ? "ideal" : "tcp");
    add_schedule(t, link->spec.changes, link->spec.num_changes);
}

exo_status
exo_graph_expand(const exo_graph_spec *spec, char **out, exo_err *err)
{
    struct writer w = {.spec = spec, .err = err};
    add_top(&w);
    add_hosts(&w.text, spec);
    exo_text_add(&w.text, "actors:\n");
    for (size_t i = 0; i < spec->num_actors; i++)
        add_actor(&w, &spec->actors[i]);
    exo_text_add(&w.text, spec->num_edges ? "edges:\n" : "edges: []\n");
    for (size_t i = 0; i < spec->num_edges; i++)
        add_edge(&w.text, spec, &spec->edges[i]);
    exo_text_add(&w.text, spec->num_links ? "links:\n" : "links: {}\n");
    for (size_t i = 0; i < spec->num_links; i++)
        add_link(&w.text, spec, &spec->links[i]);
    if (w.status == EXO_OK && w.text.failed)
        w.status = exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    if (w.status == EXO_OK)
        *out = w.text.data;
    else
        exo_free(w.text.data);
    return w.status;
}
