/* Helpers of the files that read a graph: memory of the spec, errors for unknown names. No
 * state. */
#include "graph/spec_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void *
exo_graph_alloc(const exo_graph_spec *spec, size_t count, size_t size, exo_err *err)
{
    void *memory = exo_config_alloc(spec->doc, (count ? count : 1) * size);
    if (!memory)
        exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    return memory;
}

exo_status
exo_graph_fail_name(const exo_config *node, const char *what, const char *word,
                    const char *(*name)(const void *context, size_t index), const void *context,
                    exo_err *err)
{
    exo_nearest nearest = {.word = word};
    char known[EXO_ERR_TEXT / 2] = "";
    size_t used = 0;
    const char *known_name = NULL;
    for (size_t i = 0; (known_name = name(context, i)); i++) {
        exo_nearest_try(&nearest, known_name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     known_name);
    }
    if (exo_nearest_name(&nearest))
        return exo_config_fail(node, err, "there is no %s '%.60s'; did you mean '%s'?", what, word,
                               nearest.name);
    return exo_config_fail(node, err, "there is no %s '%.60s'; %s%s", what, word,
                           used ? "there are: " : "there are none", known);
}

int
exo_graph_find_actor(const exo_graph_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->num_actors; i++)
        if (strcmp(spec->actors[i].name, name) == 0)
            return (int)i;
    return -1;
}
