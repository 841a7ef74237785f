/* Warnings of a file on standard error: see warnings.h. */
#include "programs/warnings.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "graph/warn.h"

/* The warnings about all graphs of a file, in the order in which they came first. */
struct warnings {
    struct {
        char *text;
        size_t times; /* graphs that it is about */
    } * each;
    size_t count, room;
    bool failed;
};

static void
note_warning(void *context, const char *text)
{
    struct warnings *w = context;
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(w->each[i].text, text) == 0) {
            w->each[i].times++;
            return;
        }
    if (w->count == w->room) {
        size_t room = w->room ? 2 * w->room : 8;
        void *more = exo_realloc(w->each, room, sizeof *w->each);
        w->failed = w->failed || !more;
        if (!more)
            return;
        w->each = more;
        w->room = room;
    }
    if (!(w->each[w->count].text = exo_strdup(text)))
        w->failed = true;
    else
        w->each[w->count++].times = 1;
}

exo_status
exo_warn_of_idle(const exo_graph_spec *const *graphs, size_t count, exo_err *err)
{
    struct warnings w = {0};
    exo_status st = EXO_OK;
    for (size_t g = 0; st == EXO_OK && g < count; g++)
        st = exo_graph_warn_all(graphs[g],
                                &(exo_graph_warnings){.say = note_warning, .context = &w}, err);
    if (st == EXO_OK && w.failed)
        st = exo_fail(err, EXO_NOMEM, "no memory for warnings");
    for (size_t i = 0; i < w.count; i++) {
        if (st == EXO_OK && w.each[i].times >= count)
            fprintf(stderr, "exogym: warning: %s\n", w.each[i].text);
        exo_free(w.each[i].text);
    }
    exo_free(w.each);
    return st;
}
