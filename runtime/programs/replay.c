/* Replays recorded changes of a job's graph: see replay.h. */
#include "programs/replay.h"

#include <inttypes.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/grow_text.h"
#include "graph/site.h"

/* --- Recorded changes ------------------------------------------------------------------------- */

static bool
read_step(exo_config *entry, uint64_t *step)
{
    return exo_config_has(entry, "step") &&
           exo_config_u64(entry, "step", 0, 0, UINT64_MAX - 1, step, NULL) == EXO_OK;
}

static bool
has_graph(exo_config *entry)
{
    uint64_t step = 0;
    return exo_config_is_map(exo_config_get(entry, "graph")) && read_step(entry, &step);
}

/* Adds the changed keys: "edges.a>b:x.codec, hosts.home.up". */
static void
add_keys(exo_text *text, exo_config *entry)
{
    exo_config *changed = exo_config_get(entry, "changed");
    for (size_t i = 0; i < exo_config_length(changed); i++) {
        const char *key = exo_config_scalar(exo_config_get(exo_config_item(changed, i), "key"));
        exo_text_add(text, "%s%s", i ? ", " : "", key ? key : "?");
    }
}

static void
warn(const char *folder, exo_config *entry)
{
    uint64_t step = 0;
    exo_text keys = {0};
    read_step(entry, &step);
    add_keys(&keys, entry);
    EXO_LOG(WARN, GRAPH,
            "folder=%s the change after step %" PRIu64
            " (%s) was recorded without its graph: the run goes on without it, until `exogym graph "
            "apply`",
            folder, step, keys.data ? keys.data : "?");
    exo_free(keys.data);
}

static void
skip_without_graph(exo_replay *replay)
{
    while (replay->at < exo_config_length(replay->list) &&
           !has_graph(exo_config_item(replay->list, replay->at)))
        replay->at++;
}

exo_status
exo_replay_open(exo_replay *replay, const char *folder, exo_err *err)
{
    *replay = (exo_replay){0};
    exo_status st = exo_changes_read(folder, &replay->config, err);
    if (st == EXO_NOT_FOUND)
        return EXO_OK;
    if (st != EXO_OK)
        return st;
    replay->list = exo_config_get(exo_config_root(replay->config), "changes");
    for (size_t i = 0; i < exo_config_length(replay->list); i++)
        if (!has_graph(exo_config_item(replay->list, i)))
            warn(folder, exo_config_item(replay->list, i));
    skip_without_graph(replay);
    return EXO_OK;
}

void
exo_replay_release(exo_replay *replay)
{
    exo_config_free(&replay->config);
    *replay = (exo_replay){0};
}

uint64_t
exo_replay_due(const exo_replay *replay)
{
    uint64_t step = UINT64_MAX;
    if (replay->at < exo_config_length(replay->list))
        read_step(exo_config_item(replay->list, replay->at), &step);
    return step;
}

/* --- The graph -------------------------------------------------------------------------------- */

static exo_status
take(exo_config *into, exo_config *from, const char *key, exo_err *err)
{
    exo_config *value = exo_config_get(from, key);
    exo_config_remove(into, key);
    return value ? exo_config_graft(into, key, value, err) : EXO_OK;
}

/* Takes from the recorded graph only what a change can set. Everything else stays as in the current
 * job, such as a deadline that follows from train.timeout. */
static exo_status
take_change(exo_config *graph, exo_config *recorded, exo_err *err)
{
    exo_config *edges = exo_config_get(graph, "edges"), *others = exo_config_get(recorded, "edges");
    exo_status st = take(graph, recorded, "links", err);
    if (st == EXO_OK && exo_config_get(recorded, "hosts"))
        st = take(graph, recorded, "hosts", err);
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(edges); i++) {
        exo_config *edge = exo_config_item(edges, i);
        const char *name = exo_config_scalar(exo_config_get(edge, "name"));
        exo_config *other = name ? exo_changes_edge(others, name) : NULL;
        if (other)
            st = take(edge, other, "codec", err);
        if (other && st == EXO_OK)
            st = take(edge, other, "link", err);
    }
    return st;
}

exo_status
exo_replay_next(exo_replay *replay, const exo_graph_spec *now, exo_graph_spec **graph, char **text,
                exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_config *recorded = exo_config_get(exo_config_item(replay->list, replay->at), "graph");
    *graph = NULL;
    *text = NULL;
    replay->at++;
    skip_without_graph(replay);
    exo_status st = exo_changes_expand(now, &doc, err);
    if (st == EXO_OK)
        st = take_change(exo_config_root(doc), recorded, err);
    if (st == EXO_OK)
        st = exo_config_text(exo_config_root(doc), text, err);
    if (st == EXO_OK)
        st = exo_graph_parse(graph, "config.json", *text, NULL, err);
    if (st == EXO_OK)
        st = exo_graph_check_job_change(now, *graph, err);
    if (st != EXO_OK) {
        exo_graph_spec_free(graph);
        exo_free(*text);
        *text = NULL;
    }
    exo_config_free(&doc);
    return st;
}
