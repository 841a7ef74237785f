/* Finds cycles in which all actors can wait for each other: every edge of the cycle blocks its
 * sender when it is full, and its receiver until an item comes, and no edge begins with items. No
 * state outlives a call. */
#include "graph/spec_impl.h"

#include <string.h>

#include <exogym/memory.h>

/* A depth-first search. `path` has the edges from the start to the present actor, at most one for
 * each actor name. */
struct search {
    const exo_graph_spec *spec;
    const exo_edge_spec **path;
    /* (length of the path + 1) the next edge to try at each actor of the path */
    size_t *next;
    unsigned char *seen;
    size_t length;
};

enum {
    ON_PATH = 1,
    DONE = 2
};

static bool
can_wait(const exo_edge_spec *edge)
{
    return edge->output->direction == EXO_PORT_OUTPUT && edge->on_full == EXO_FULL_BLOCK &&
           edge->input->blocking && !edge->output->initial;
}

static exo_status
fail_cycle(const struct search *s, uint32_t at, exo_err *err)
{
    exo_text actors = {0}, edges = {0};
    size_t first = s->length - 1;
    while (s->path[first]->from != at)
        first--;
    for (size_t i = first; i < s->length; i++) {
        exo_text_add(&actors, "%s -> ", s->spec->actors[s->path[i]->from].name);
        exo_text_add(&edges, "%s'%s'", i > first ? ", " : "", s->path[i]->name);
    }
    exo_text_add(&actors, "%s", s->spec->actors[at].name);
    exo_status st =
        actors.failed || edges.failed
            ? exo_fail(err, EXO_NOMEM, "%s: out of memory", s->spec->source)
            : exo_config_fail(
                  s->path[first]->node, err,
                  "these can wait for each other for ever: %.150s (edges %.150s); let one of the "
                  "edges drop "
                  "(buffer: {on_full: latest}), or end at an actor that sends before it waits",
                  actors.data, edges.data);
    exo_free(actors.data);
    exo_free(edges.data);
    return st;
}

/* Searches all actors that can be reached from `start`. */
static exo_status
search_from(struct search *s, uint32_t start, exo_err *err)
{
    uint32_t at = start;
    s->length = 0;
    s->next[0] = 0;
    s->seen[start] = ON_PATH;
    for (;;) {
        size_t *next = &s->next[s->length];
        const exo_edge_spec *edge = NULL;
        while (*next < s->spec->num_edges && !edge) {
            const exo_edge_spec *candidate = &s->spec->edges[(*next)++];
            if (candidate->from == at && can_wait(candidate) && s->seen[candidate->to] != DONE)
                edge = candidate;
        }
        if (edge) {
            s->path[s->length++] = edge;
            if (s->seen[edge->to] == ON_PATH)
                return fail_cycle(s, edge->to, err);
            at = edge->to;
            s->seen[at] = ON_PATH;
            s->next[s->length] = 0;
        } else {
            s->seen[at] = DONE;
            if (s->length == 0)
                return EXO_OK;
            at = s->path[--s->length]->from;
        }
    }
}

exo_status
exo_graph_check_cycles(const exo_graph_spec *spec, exo_err *err)
{
    size_t n = spec->num_actors;
    struct search s = {.spec = spec,
                       .path = exo_calloc(n + 1, sizeof *s.path),
                       .next = exo_calloc(n + 2, sizeof *s.next),
                       .seen = exo_calloc(n + 1, sizeof *s.seen)};
    exo_status st = s.path && s.next && s.seen
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    for (uint32_t i = 0; st == EXO_OK && i < n; i++)
        if (!s.seen[i])
            st = search_from(&s, i, err);
    exo_free(s.path);
    exo_free(s.next);
    exo_free(s.seen);
    return st;
}
