/* Reads a prepared document into a graph: the top level and the actors. Ranges of single values are
 * checked here, the whole graph in check.c. No state. Read next: spec_parts.c, spec_network.c,
 * spec_edges.c, check.c. */
#include "graph/spec_impl.h"

#include <string.h>

#include "actor/resources.h"
#include "base/input.h"
#include "graph/builtin.h"

/* --- The top level ---------------------------------------------------------------------------- */

bool
exo_graph_is(exo_config *root)
{
    if (!exo_config_is_map(root) || exo_config_has(root, "model"))
        return false;
    return exo_config_has(root, "actors") || exo_config_has(root, "include") ||
           (exo_config_has(root, "edges") && !exo_config_has(root, "strategy") &&
            !exo_config_has(root, "compare"));
}

/* Reports a misspelt key as unknown, before a reader reports the intended key as missing. */
static exo_status
check_keys(exo_config *root, exo_err *err)
{
    static const char *const keys[] = {"exogym", "name", "seed", "clock", "until", "plugins",
                                       "include", "variables",
                                       /* `changes` is written by a run into its config.json */
                                       "presets", "hosts", "actors", "edges", "links", "changes"};
    for (size_t i = sizeof keys / sizeof *keys; i-- > 0;)
        exo_config_get(root, keys[i]);
    return exo_config_finish(root, err);
}

/* The run's name: the key `name`, or else the file's name without folder and ending. */
static exo_status
read_name(exo_graph_spec *spec, const exo_graph_opts *opts, exo_err *err)
{
    exo_status st = exo_config_string(spec->root, "name", NULL, &spec->name, err);
    if (st != EXO_OK)
        return st;
    if (opts->name && !exo_config_is_label(opts->name))
        return exo_fail(err, EXO_INVAL, "--name '%.60s': expected " EXO_LABEL_RULE, opts->name);
    if (spec->name && !exo_config_is_label(spec->name))
        return exo_config_fail(exo_config_get(spec->root, "name"), err,
                               "name '%.60s': expected " EXO_LABEL_RULE, spec->name);
    const char *slash = strrchr(spec->source, '/'), *file = slash ? slash + 1 : spec->source,
               *dot = strrchr(file, '.');
    const char *name = opts->name ? opts->name : spec->name ? spec->name : file;
    size_t length = name == file && dot && dot != file ? (size_t)(dot - file) : strlen(name);
    if (name == file && exo_input_is_unnamed(spec->source))
        return exo_config_fail(spec->root, err,
                               "a graph that is read from a pipe needs a name: add the key 'name'");
    spec->name = exo_config_copy_text(spec->doc, name, length);
    if (!spec->name)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    if (!exo_config_is_label(spec->name))
        return exo_config_fail(spec->root, err,
                               "the file's name makes no name for a run: add the key 'name'");
    return EXO_OK;
}

static exo_status
read_top(exo_graph_spec *spec, const exo_graph_opts *opts, exo_err *err)
{
    static const char *const clocks[] = {"real", "virtual", NULL};
    uint64_t version = 0;
    size_t clock = 0;
    exo_status st = check_keys(spec->root, err);
    if (st == EXO_OK)
        st = exo_config_check_presets(spec->root, err);
    if (st == EXO_OK)
        st = exo_config_u64(spec->root, "exogym", 1, 1, 1, &version, err);
    if (st == EXO_OK)
        st = read_name(spec, opts, err);
    if (st == EXO_OK)
        st = exo_config_u64(spec->root, "seed", 42, 0, INT64_MAX, &spec->seed, err);
    if (st == EXO_OK)
        st = exo_config_choice(spec->root, "clock", 0, clocks, &clock, err);
    if (st == EXO_OK)
        st = exo_config_time(spec->root, "until", 0, 0, INT64_MAX, &spec->until, err);
    if (st == EXO_OK)
        st = exo_config_plugins(spec->root, &spec->plugins, &spec->num_plugins, err);
    spec->virtual_clock = clock == 1;
    spec->runs = opts->runs;
    return st;
}

/* --- Actors ----------------------------------------------------------------------------------- */

static exo_status
read_restart(exo_config *node, exo_restart_rule *rule, exo_err *err)
{
    static const char *const names[] = {"never", "on_failure", "always", NULL};
    static const char *const others[] = {"max", "within", "backoff"};
    exo_config *map = NULL;
    size_t when = 0;
    uint64_t max = 0;
    exo_status st = exo_config_map(node, "restart", &map, err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "when", 0, names, &when, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "max", 0, 0, UINT32_MAX, &max, err);
    if (st == EXO_OK)
        st = exo_config_time(map, "within", 0, 0, INT64_MAX, &rule->within, err);
    if (st == EXO_OK)
        st = exo_config_time(map, "backoff", 0, 0, INT64_MAX, &rule->backoff, err);
    if (st == EXO_OK)
        st = exo_config_finish(map, err);
    rule->when = (exo_restart_when)when;
    rule->max = (uint32_t)max;
    for (size_t i = 0; st == EXO_OK && when == 0 && i < sizeof others / sizeof *others; i++)
        if (exo_config_has(map, others[i]))
            st = exo_config_fail(
                exo_config_get(map, others[i]), err,
                "restart: %s says nothing without when: on_failure or when: always", others[i]);
    return st;
}

/* Reads the cost of each phase of the class, in its order. */
static exo_status
read_compute(exo_graph_spec *spec, exo_actor_spec *actor, exo_err *err)
{
    exo_config *map = NULL;
    const char *const *phases = actor->class->phases;
    exo_status st = exo_config_map(actor->node, "compute", &map, err);
    while (phases && phases[actor->num_compute])
        actor->num_compute++;
    actor->compute = st == EXO_OK
                         ? exo_graph_alloc(spec, actor->num_compute, sizeof *actor->compute, err)
                         : NULL;
    if (!actor->compute)
        return st == EXO_OK ? EXO_NOMEM : st;
    for (size_t i = 0; st == EXO_OK && i < actor->num_compute; i++) {
        actor->compute[i].phase = phases[i];
        st = exo_config_time(map, phases[i], -1, 0, INT64_MAX, &actor->compute[i].cost, err);
    }
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

static exo_status
read_actor(exo_graph_spec *spec, exo_actor_spec *actor, exo_err *err)
{
    const char *class = NULL;
    uint64_t count = 0;
    exo_status st = exo_config_string(actor->node, "class", NULL, &class, err);
    if (st == EXO_OK)
        st = exo_config_u64(actor->node, "count", 1, 1, EXO_GRAPH_MAX_ACTORS, &count, err);
    if (st == EXO_OK)
        st = exo_config_map(actor->node, "config", &actor->config, err);
    if (st == EXO_OK)
        st = exo_needs_read(actor->node, &actor->resources, &actor->num_resources, err);
    if (st == EXO_OK)
        st = read_restart(actor->node, &actor->restart, err);
    actor->count = (uint32_t)count;
    actor->placement = exo_config_get(actor->node, "host");
    exo_config_get(actor->node, "compute");
    if (st == EXO_OK)
        st = exo_config_finish(actor->node, err);
    if (st == EXO_OK && !class)
        st = exo_config_fail(actor->node, err, "actor '%s': the key 'class' is missing",
                             actor->name);
    if (st == EXO_OK && exo_graph_class_get(&actor->class, class, err) != EXO_OK) {
        if (err)
            err->code = EXO_INVAL;
        exo_config_add_place(exo_config_get(actor->node, "class"), err);
        return EXO_INVAL;
    }
    if (st == EXO_OK)
        st = read_compute(spec, actor, err);
    if (st == EXO_OK && !actor->config)
        st = exo_config_new_map(actor->node, &actor->config, err);
    return st;
}

static exo_status
read_actors(exo_graph_spec *spec, exo_err *err)
{
    exo_config *map = NULL;
    size_t total = 0;
    exo_status st = exo_config_map(spec->root, "actors", &map, err);
    if (st != EXO_OK)
        return st;
    size_t length = exo_config_length(map);
    if (length == 0)
        return exo_config_fail(map ? map : spec->root, err,
                               map ? "actors: there are none" : "the key 'actors' is missing");
    if (length > EXO_GRAPH_MAX_NAMES)
        return exo_config_fail(map, err, "actors: more than %d names", EXO_GRAPH_MAX_NAMES);
    spec->actors = exo_graph_alloc(spec, length, sizeof *spec->actors, err);
    if (!spec->actors)
        return EXO_NOMEM;
    for (size_t i = 0; st == EXO_OK && i < length; i++) {
        exo_actor_spec *actor = &spec->actors[i];
        actor->name = exo_config_key(map, i, &actor->node);
        if (!actor->name)
            return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
        if (!exo_config_is_label(actor->name))
            return exo_config_fail(actor->node, err, "actor '%.60s': expected " EXO_LABEL_RULE,
                                   actor->name);
        st = exo_config_map(map, actor->name, &actor->node, err);
        if (st == EXO_OK)
            st = read_actor(spec, actor, err);
        total += actor->count;
        if (st == EXO_OK && total > EXO_GRAPH_MAX_ACTORS)
            st = exo_config_fail(actor->node, err, "%zu actors so far: a graph has at most %d",
                                 total, EXO_GRAPH_MAX_ACTORS);
        spec->num_actors = i + 1;
    }
    return st;
}

/* --- The whole graph -------------------------------------------------------------------------- */

static exo_status
read_graph(exo_graph_spec *spec, const exo_graph_opts *opts, exo_err *err)
{
    exo_status st = exo_graph_prepare(spec->doc, opts, err);
    if (st == EXO_OK)
        st = read_top(spec, opts, err);
    if (st == EXO_OK)
        st = exo_graph_read_hosts(spec, err);
    if (st == EXO_OK)
        st = read_actors(spec, err);
    if (st == EXO_OK && !spec->has_hosts)
        st = exo_graph_default_hosts(spec, err);
    for (size_t i = 0; st == EXO_OK && i < spec->num_actors; i++)
        st = exo_graph_place(spec, &spec->actors[i], err);
    if (st == EXO_OK)
        st = exo_graph_read_links(spec, err);
    if (st == EXO_OK)
        st = exo_graph_read_edges(spec, err);
    if (st == EXO_OK)
        st = exo_graph_check(spec, err);
    if (st == EXO_OK)
        exo_graph_mark_feedback(spec);
    return st;
}

exo_status
exo_graph_from(exo_graph_spec **out, exo_config_doc **doc, const exo_graph_opts *opts, exo_err *err)
{
    static const exo_graph_opts defaults = {0};
    exo_graph_spec *spec = exo_config_alloc(*doc, sizeof *spec);
    exo_status st;
    if (!spec) {
        exo_config_free(doc);
        return exo_fail(err, EXO_NOMEM, "no memory for a graph");
    }
    spec->doc = *doc;
    *doc = NULL;
    spec->root = exo_config_root(spec->doc);
    spec->source = exo_config_source(spec->root);
    st = read_graph(spec, opts ? opts : &defaults, err);
    if (st == EXO_OK) {
        *out = spec;
        spec = NULL; /* moved to the caller */
    }
    exo_graph_spec_free(&spec);
    return st;
}

exo_status
exo_graph_load(exo_graph_spec **out, const char *path, const exo_graph_opts *opts, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_load(&doc, path, err);
    return st == EXO_OK ? exo_graph_from(out, &doc, opts, err) : st;
}

exo_status
exo_graph_parse(exo_graph_spec **out, const char *source, const char *text,
                const exo_graph_opts *opts, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, source, text, err);
    return st == EXO_OK ? exo_graph_from(out, &doc, opts, err) : st;
}

void
exo_graph_spec_free(exo_graph_spec **spec)
{
    if (!spec || !*spec)
        return;
    exo_config_doc *doc = (*spec)->doc; /* owns the spec's memory */
    *spec = NULL;
    exo_config_free(&doc);
}
