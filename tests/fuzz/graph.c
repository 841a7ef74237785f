/* A transmission graph in YAML: the input is parsed and checked with the classes of tests/support,
 * and its expansion must be the same graph. No files are read. One thread; each input owns its
 * graph. Read next: runtime/graph/spec.h; docs/graph.md. */
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "../support/graph_classes.c"
#include "graph/plan.h"

/* libfyaml leaks memory when a simple key spans lines. The leak is libfyaml's own, and a graph is
 * the user's own file. */
const char *__lsan_default_suppressions(void);

const char *
__lsan_default_suppressions(void)
{
    return "leak:libfyaml";
}

static void
check_targets(const exo_graph_spec *spec)
{
    for (size_t e = 0; e < spec->num_edges && e < 8; e++) {
        const exo_edge_spec *edge = &spec->edges[e];
        uint32_t count = spec->actors[edge->to].count, senders = spec->actors[edge->from].count;
        for (uint32_t i = 0; i < senders && i < 8; i++)
            if (exo_edge_targets(spec, edge, i, NULL) > count)
                abort();
    }
    for (size_t a = 0; a < spec->num_actors; a++)
        for (uint32_t i = 0; i < spec->actors[a].count; i++)
            if (spec->actors[a].hosts[i] >= spec->num_hosts)
                abort();
}

/* The expanded text must parse, and its expansion must be the same text. */
static void
check_expanded(const exo_graph_spec *spec)
{
    const exo_graph_opts opts = {.closed = true};
    char *once = NULL, *twice = NULL, *dot = NULL;
    exo_graph_spec *again = NULL;
    exo_err err = {0};
    exo_plan_edge *plan = exo_calloc(spec->num_edges + 1, sizeof *plan);
    if (!plan || exo_graph_plan(spec, plan, &err) != EXO_OK ||
        exo_graph_dot(spec, &dot, &err) != EXO_OK || exo_graph_expand(spec, &once, &err) != EXO_OK)
        abort();
    exo_status st =
        strlen(once) < 1 << 20 ? exo_graph_parse(&again, "again", once, &opts, &err) : EXO_NOMEM;
    if (st == EXO_OK &&
        (exo_graph_expand(again, &twice, &err) != EXO_OK || strcmp(once, twice) != 0))
        abort();
    if (st != EXO_OK && strlen(once) < 1 << 20 && !strstr(err.text, "more than") &&
        !strstr(err.text, "nested"))
        abort(); /* the expanded text may exceed limits of size that the input keeps */
    exo_graph_spec_free(&again);
    exo_free(plan);
    exo_free(once);
    exo_free(twice);
    exo_free(dot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const exo_graph_opts opts = {.closed = true, .preset = size % 2 ? "p" : NULL};
    exo_graph_spec *spec = NULL;
    exo_err err = {0};
    char *text = exo_calloc(1, size + 1);
    if (!text)
        return 0;
    graph_classes_register();
    memcpy(text, data, size);
    exo_status st = exo_graph_parse(&spec, "fuzz", text, &opts, &err);
    if (st == EXO_OK) {
        check_targets(spec);
        check_expanded(spec);
    } else if (!err.text[0] || spec) {
        abort();
    }
    exo_graph_spec_free(&spec);
    exo_free(text);
    return 0;
}
