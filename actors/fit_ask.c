/* Requests to the nodes of a fit: see fit_impl.h. */
#include "actors/fit_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actor/many.h"

#define SLICE (100 * EXO_MS) /* between two looks at what there is to be waited for */

/* Ends the collectives that wait for node `rank`. */
static void
fail_collectives(struct run *run, uint32_t rank, const char *cause)
{
    if (run->fit->comm) {
        exo_comm_fail(run->fit->comm, rank, cause);
        exo_comm_fail(run->fit->side, rank, cause);
        exo_fit_expect_no_more(run);
        return;
    }
    Exo__Train__NodeAbandon m = EXO__TRAIN__NODE_ABANDON__INIT;
    m.rank = rank;
    m.cause = exo_args_text(cause);
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        exo_payload payload = {0};
        if (run->nodes[r].id && exo_protocol_pack(&payload, &m.base, NULL) == EXO_OK)
            exo_send(run->runtime, run->nodes[r], "abandon", payload, INT64_MAX, NULL);
    }
}

/* An error of one node; of one that was lost with its worker, also why, as far as that can be learnt. */
static exo_status
blame(const struct run *run, uint32_t rank, exo_status st, const char *reason, exo_err *err)
{
    char why[EXO_ERR_TEXT] = "", name[EXO_NODE_NAME];
    snprintf(name, sizeof name, "node_%u", rank);
    if (err && st == EXO_PEER_LOST && run->far && run->far->explain)
        run->far->explain(run->far->context, run->far->run, name, why, sizeof why);
    return exo_fail(err, st, "%s: %s", name, why[0] ? why : reason[0] ? reason : exo_status_text(st));
}

/* How much an error says of what went wrong: least, if it is what a node heard of another. */
static int
weight(const struct run *run, uint32_t rank, exo_status st)
{
    char cause[EXO_ERR_TEXT];
    if (st == EXO_OK)
        return 0;
    if (st != EXO_PEER_LOST)
        return 3;
    return exo_cause(run->runtime, run->nodes[rank], cause, sizeof cause) == EXO_OK ? 2 : 1;
}

/* Sends a request to one node; its future goes to futures[rank]. */
exo_status
exo_fit_ask(struct run *run, uint32_t rank, const char *method, const ProtobufCMessage *args, exo_err *err)
{
    exo_payload payload = {0};
    exo_status st = args ? exo_protocol_pack(&payload, args, NULL) : EXO_OK;
    if (st != EXO_OK)
        return exo_fail(err, st, "no memory to call node_%u", rank);
    exo_err reason = {0};
    st = exo_call(run->runtime, run->nodes[rank], method, payload, INT64_MAX, &run->futures[rank], &reason);
    return st == EXO_OK ? st : blame(run, rank, st, reason.text, err);
}

exo_status
exo_fit_ask_all(struct run *run, const char *method, const ProtobufCMessage *args, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++)
        st = exo_fit_ask(run, r, method, args, err);
    if (st != EXO_OK) /* those that were asked wait for one that was not */
        fail_collectives(run, 0, err->text);
    return st;
}

void
exo_fit_drop_futures(struct run *run)
{
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        exo_future_drop(&run->futures[r]);
}

/* Of the errors of nodes, the one that says most. */
struct root {
    exo_status status; /* OK: there is none */
    exo_err err;
    uint32_t rank;
    int weight;
};

static void
take_end(struct run *run, size_t at, uint32_t *count, struct root *root)
{
    exo_err err = {0};
    exo_status st = exo_wait(run->pending[at], INT64_MAX, NULL, &err);
    uint32_t rank = run->pending_ranks[at];
    --*count;
    run->pending[at] = run->pending[*count];
    run->pending_ranks[at] = run->pending_ranks[*count];
    int says = weight(run, rank, st);
    if (says > root->weight)
        *root = (struct root){.status = st, .err = err, .rank = rank, .weight = says};
    if (st != EXO_OK)
        fail_collectives(run, rank, err.text);
}

/* Do none of those that are pending answer? */
static bool
all_are_silent(const struct run *run, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!exo_fit_is_silent(run, run->pending_ranks[i]))
            return false;
    return true;
}

/* How long it is waited from now on: until nodes have heard of an error, or else for their own deadlines. */
static exo_time
patience_of(const struct run *run, bool failed)
{
    return exo_deadline(run->clock, failed ? EXO_FIT_CLOSE_GRACE : run->fit->timeout + EXO_FIT_CLOSE_GRACE);
}

exo_status
exo_fit_await_all(struct run *run, exo_err *err)
{
    uint32_t count = 0;
    struct root root = {0};
    exo_err stall = {0};
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        if (!run->futures[r])
            continue;
        run->pending[count] = run->futures[r];
        run->pending_ranks[count++] = r;
    }
    exo_fit_watch_begin(run);
    exo_time patience = patience_of(run, false);
    while (count > 0) {
        size_t at = 0;
        exo_status st = exo_wait_any_of_many(run->pending, count, exo_deadline(run->clock, SLICE), &at, NULL);
        if (st == EXO_OK) {
            take_end(run, at, &count, &root);
            patience = patience_of(run, root.status != EXO_OK || stall.code != EXO_OK);
            continue;
        }
        bool failed = root.status != EXO_OK || stall.code != EXO_OK;
        if (exo_now(run->clock) > patience || (failed && all_are_silent(run, count)))
            break;
        if (exo_fit_watch_look(run, run->pending_ranks, count, failed ? NULL : &stall) != EXO_OK && !failed) {
            fail_collectives(run, run->pending_ranks[0], stall.text);
            patience = patience_of(run, true);
        }
    }
    if (stall.code != EXO_OK)
        return exo_fail(err, stall.code, "%s", stall.text);
    if (root.status != EXO_OK) {
        char cause[EXO_ERR_TEXT + 40];
        snprintf(cause, sizeof cause, "%s", root.err.text);
        if (count > 0)
            snprintf(cause, sizeof cause, "%.400s; node_%u does not answer", root.err.text, run->pending_ranks[0]);
        return blame(run, root.rank, root.status, cause, err);
    }
    if (count == 0)
        return EXO_OK;
    fail_collectives(run, run->pending_ranks[0], "it does not answer");
    return exo_fail(err, EXO_TIMEOUT, "node_%u has not answered for %" PRId64 " s", run->pending_ranks[0],
                    (run->fit->timeout + EXO_FIT_CLOSE_GRACE) / EXO_SECOND);
}

static exo_status
reply_of(struct run *run, uint32_t rank, const exo_payload **out, exo_err *err)
{
    exo_status st = exo_wait(run->futures[rank], INT64_MAX, out, err);
    return st == EXO_OK && !*out ? exo_fail(err, EXO_INVAL, "node_%u answers with nothing", rank) : st;
}

exo_status
exo_fit_reply(struct run *run, uint32_t rank, const ProtobufCMessageDescriptor *of, ProtobufCMessage **out,
              exo_err *err)
{
    const exo_args reply = {.method = of->short_name, .fields = of};
    const exo_payload *payload = NULL;
    *out = NULL;
    exo_status st = reply_of(run, rank, &payload, err);
    if (st != EXO_OK)
        return st;
    st = exo_args_decode(&reply, payload, out, err);
    return st == EXO_OK ? st : exo_fail_in(err, st, "node_%u answers what cannot be read", rank);
}

exo_status
exo_fit_raw_reply(struct run *run, uint32_t rank, size_t size, const void **out, exo_err *err)
{
    const exo_payload *payload = NULL;
    exo_status st = reply_of(run, rank, &payload, err);
    if (st == EXO_OK && payload->size != size)
        st = exo_fail(err, EXO_INVAL, "node_%u answers with %zu bytes, not with %zu: is its worker of this version?",
                      rank, payload->size, size);
    *out = st == EXO_OK ? payload->data : NULL;
    return st;
}
