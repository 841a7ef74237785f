/* What a node waits for: see node_look.h. No state. */
#include "actors/node_look.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "comm/edge.h"

static void
take(exo_node_look *out, uint32_t of, const exo_comm_look *look, uint32_t nodes, const uint32_t *missing,
     const uint64_t *counts)
{
    out->of = of;
    out->number = look->number;
    out->waited = exo_now(exo_clock_real()) - look->since;
    out->waits = look->waits && look->num_missing > 0;
    out->num_missing = !out->waits ? 0 : look->num_missing < EXO_NODE_MISSING ? look->num_missing : EXO_NODE_MISSING;
    memcpy(out->missing, missing, out->num_missing * sizeof *missing);
    out->came = out->waits && look->counts ? counts[nodes + missing[0]] : 0;
    snprintf(out->operation, sizeof out->operation, "%s", look->operation);
}

exo_status
exo_node_look_at(exo_node_look *out, exo_comm *strategy, exo_comm *side, uint32_t rank, uint32_t nodes,
                 const exo_node_ask *ask, exo_err *err)
{
    exo_comm *const comms[] = {[EXO_NODE_IN_STRATEGY] = strategy, [EXO_NODE_IN_SIDE] = side};
    uint32_t *missing = exo_calloc(nodes, sizeof *missing);
    uint64_t *counts = exo_calloc(2 * (size_t)nodes, sizeof *counts);
    exo_status st = missing && counts ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to look at a node");
    *out = (exo_node_look){0};
    for (uint32_t of = EXO_NODE_IN_STRATEGY; st == EXO_OK && of <= EXO_NODE_IN_SIDE; of++) {
        exo_comm_look look = {0};
        exo_comm_look_at(comms[of], rank, &look, missing, counts);
        if (look.inside)
            take(out, of, &look, nodes, missing, counts);
        if (look.counts && ask->of == of && ask->to < nodes)
            out->sent = counts[ask->to];
    }
    exo_free(missing);
    exo_free(counts);
    return st;
}
