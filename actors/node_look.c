/* Looks at nodes: see node_look.h. No state. */
#include "actors/node_look.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "comm/edge.h"

static void
take(exo_node_look *out, uint32_t of, const exo_comm_look *look, uint32_t nodes,
     const uint32_t *missing, const uint64_t *counts)
{
    out->of = of;
    out->number = look->number;
    out->waited = exo_now(exo_clock_real()) - look->since;
    out->waits = look->waits && look->num_missing > 0 && !look->unsure;
    out->num_missing = !out->waits                            ? 0
                       : look->num_missing < EXO_NODE_MISSING ? look->num_missing
                                                              : EXO_NODE_MISSING;
    memcpy(out->missing, missing, out->num_missing * sizeof *missing);
    out->came = out->waits && look->counts ? counts[nodes + missing[0]] : 0;
    snprintf(out->operation, sizeof out->operation, "%s", look->operation);
}

exo_status
exo_node_look_at(exo_node_look *out, exo_comm *strategy, exo_comm *side, uint32_t rank,
                 uint32_t nodes, const exo_node_ask *ask, exo_err *err)
{
    exo_comm *const comms[] = {[EXO_NODE_IN_STRATEGY] = strategy, [EXO_NODE_IN_SIDE] = side};
    uint32_t *missing = exo_calloc(nodes, sizeof *missing);
    uint64_t *counts = exo_calloc(2 * (size_t)nodes, sizeof *counts);
    exo_status st =
        missing && counts ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to look at a node");
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

/* --- As a message ----------------------------------------------------------------------------- */

_Static_assert((int)EXO_NODE_COMPUTES == EXO__TRAIN__NODE_COMM__COMPUTES &&
                   (int)EXO_NODE_IN_STRATEGY == EXO__TRAIN__NODE_COMM__IN_STRATEGY &&
                   (int)EXO_NODE_IN_SIDE == EXO__TRAIN__NODE_COMM__IN_SIDE,
               "the same numbers");

exo_status
exo_node_look_pack(exo_payload *out, const exo_node_look *look, exo_err *err)
{
    uint32_t missing[EXO_NODE_MISSING];
    Exo__Train__NodeLook m = EXO__TRAIN__NODE_LOOK__INIT;
    memcpy(missing, look->missing, sizeof missing);
    m.comm = (Exo__Train__NodeComm)look->of;
    m.waited = look->waited;
    m.number = look->number;
    m.came = look->came;
    m.sent = look->sent;
    m.waits = look->waits != 0;
    m.missing = missing;
    m.n_missing = look->num_missing;
    m.operation = exo_args_text(look->operation);
    return exo_protocol_pack(out, &m.base, err);
}

exo_status
exo_node_look_read(exo_node_look *out, const exo_payload *message, uint32_t nodes, exo_err *err)
{
    static const exo_field_rule rules[] = {
        {.field = "operation", .most = sizeof out->operation - 1}};
    static const exo_args reply = {.method = "reply of waits",
                                   .fields = &exo__train__node_look__descriptor,
                                   .rules = rules,
                                   .num_rules = sizeof rules / sizeof *rules};
    ProtobufCMessage *decoded = NULL;
    *out = (exo_node_look){0};
    exo_status st = exo_args_decode(&reply, message, &decoded, err);
    const Exo__Train__NodeLook *m = (const Exo__Train__NodeLook *)decoded;
    if (st == EXO_OK && m->n_missing > EXO_NODE_MISSING)
        st = exo_fail(err, EXO_INVAL, "%s: missing: %zu are too many", reply.method, m->n_missing);
    for (size_t i = 0; st == EXO_OK && i < m->n_missing; i++)
        if (m->missing[i] >= nodes)
            st = exo_fail(err, EXO_INVAL, "%s: missing: %u is not a node of the run", reply.method,
                          m->missing[i]);
    if (st == EXO_OK) {
        *out = (exo_node_look){.waited = m->waited,
                               .number = m->number,
                               .came = m->came,
                               .sent = m->sent,
                               .of = m->comm,
                               .waits = m->waits != 0,
                               .num_missing = (uint32_t)m->n_missing};
        if (m->n_missing)
            memcpy(out->missing, m->missing, m->n_missing * sizeof *m->missing);
        snprintf(out->operation, sizeof out->operation, "%s", m->operation);
    }
    exo_args_free(&decoded);
    return st;
}
