/* Requests to the nodes of a fit: see fit_impl.h. The state belongs to the trainer's thread. Read
 * next: conduct/conduct.h, fit_watch.c. */
#include "actors/fit_members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STOP_SILENCE (10 * EXO_SECOND)

void
exo_fit_end_collectives(struct run *run, uint32_t rank, const char *cause)
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
    m.has_epoch = run->elastic != NULL;
    m.epoch = m.has_epoch ? exo_fit_epoch(run) : 0;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        exo_payload payload = {0};
        if (run->cast.actors[r].id && exo_protocol_pack(&payload, &m.base, NULL) == EXO_OK)
            exo_send(run->cast.runtime, run->cast.actors[r], "abandon", payload, INT64_MAX, NULL);
    }
}

exo_status
exo_fit_ask(struct run *run, uint32_t rank, const char *method, const ProtobufCMessage *args,
            exo_err *err)
{
    exo_payload payload = {0};
    exo_status st = args ? exo_protocol_pack(&payload, args, NULL) : EXO_OK;
    return st == EXO_OK ? exo_cast_ask(&run->cast, rank, method, payload, err)
                        : exo_fail(err, st, "no memory to call node_%u", rank);
}

/* --- Waiting ---------------------------------------------------------------------------------- */

struct waiting {
    struct run *run;
    const exo_fit_next *next; /* NULL: none */
    exo_err stall;            /* EXO_OK: no stall was found */
    exo_err own;              /* of `next`; EXO_OK: none */
    bool left_out;            /* a silent node of an elastic run was left out */
};

static bool
has_failed(const struct waiting *w)
{
    return w->run->cast.root.status != EXO_OK || w->stall.code != EXO_OK || w->own.code != EXO_OK ||
           w->left_out;
}

/* Sets the limit of the wait from now on. After an error it is the time in which the other nodes
 * hear of the error; before one, it exceeds the nodes' own deadlines. */
static void
be_patient(struct waiting *w)
{
    exo_time patience =
        has_failed(w) ? EXO_FIT_CLOSE_GRACE : w->run->fit->timeout + EXO_FIT_CLOSE_GRACE;
    if (w->stall.code == EXO_CANCELLED)
        patience = EXO_SECOND;
    exo_cast_be_patient(&w->run->cast, patience);
}

static void
on_answer(void *context, uint32_t rank, exo_status status, const exo_err *err)
{
    struct waiting *w = context;
    if (status != EXO_OK)
        exo_fit_end_collectives(w->run, rank, err->text);
    else if (w->next && !has_failed(w) && w->next->take(w->next->context, rank, &w->own) != EXO_OK)
        exo_fit_end_collectives(w->run, rank, w->own.text);
    be_patient(w);
}

/* Whether every node that has not answered its request is silent, too. */
static bool
all_are_silent(const struct run *run)
{
    for (uint32_t r = 0; r < run->cast.count; r++)
        if (run->cast.futures[r] && !exo_fit_is_silent(run, r))
            return false;
    return true;
}

/* A run that is to stop does not wait long for a node whose process is stopped or cannot be reached:
 * *rank. A node that computes answers. */
static bool
find_unstoppable(const struct run *run, uint32_t *rank)
{
    const bool stops = run->opts->stop && *run->opts->stop && !run->elastic;
    for (*rank = 0; stops && *rank < run->cast.count; (*rank)++)
        if (run->cast.futures[*rank] && exo_fit_silence(run, *rank) >= STOP_SILENCE)
            return true;
    return false;
}

/* Whether the run is to stop while nodes on workers are set up, when there is no state to save. */
static bool
is_to_stop_early(const struct run *run)
{
    return run->far && !run->is_set_up && run->opts->stop && *run->opts->stop;
}

static void
on_idle(void *context)
{
    struct waiting *w = context;
    struct run *run = w->run;
    bool failed = has_failed(w);
    if (failed && all_are_silent(run)) {
        run->cast.patience = 0;
        return;
    }
    uint32_t silent = 0;
    if (!failed && is_to_stop_early(run)) {
        exo_fit_note_unbegun(run);
        exo_fail(&w->stall, EXO_CANCELLED,
                 "stopped before the first step: its nodes were not set up yet");
        exo_fit_end_collectives(run, exo_cast_late(&run->cast), w->stall.text);
        be_patient(w);
        return;
    }
    if (!failed && w->next && w->next->idle)
        w->next->idle(w->next->context);
    if (exo_fit_find_silent(run, &silent)) {
        exo_fit_end_collectives(run, silent, "it does not answer");
        exo_fit_leave_out(run, silent, "it does not answer");
        w->left_out = true;
        be_patient(w);
        return;
    }
    if (!failed && find_unstoppable(run, &silent)) {
        exo_fail(&w->stall, EXO_TIMEOUT,
                 "node_%u has not answered for %d s: the run stops without a checkpoint", silent,
                 (int)(STOP_SILENCE / EXO_SECOND));
        exo_fit_end_collectives(run, silent, "it does not answer");
        be_patient(w);
        return;
    }
    if (exo_fit_watch_look(run, failed ? NULL : &w->stall) != EXO_OK && !failed) {
        exo_fit_end_collectives(run, exo_cast_late(&run->cast), w->stall.text);
        be_patient(w);
    }
}

static exo_status
await_all(struct run *run, const exo_fit_next *next, exo_err *err)
{
    struct waiting w = {.run = run, .next = next};
    const exo_cast_hooks hooks = {.context = &w, .idle = on_idle, .answered = on_answer};
    const exo_cast_root *root = &run->cast.root;
    exo_fit_watch_begin(run);
    run->cast.root = (exo_cast_root){0};
    be_patient(&w);
    uint32_t left = exo_cast_await(&run->cast, &hooks), late = exo_cast_late(&run->cast);
    if (w.stall.code != EXO_OK)
        return exo_fail(err, w.stall.code, "%s", w.stall.text);
    if (w.own.code != EXO_OK)
        return exo_fail(err, w.own.code, "%s", w.own.text);
    if (w.left_out && (root->status == EXO_OK || root->status == EXO_PEER_LOST))
        return exo_fail(err, EXO_PEER_LOST, "a node does not answer");
    if (root->status != EXO_OK) {
        char cause[EXO_ERR_TEXT + 40];
        snprintf(cause, sizeof cause, "%s", root->err.text);
        if (left > 0)
            snprintf(cause, sizeof cause, "%.400s; node_%u does not answer", root->err.text, late);
        return exo_cast_blame(&run->cast, root->actor, root->status, cause, err);
    }
    if (left == 0)
        return EXO_OK;
    exo_fit_end_collectives(run, late, "it does not answer");
    return exo_fail(err, EXO_TIMEOUT, "node_%u has not answered for %" PRId64 " s", late,
                    (run->fit->timeout + EXO_FIT_CLOSE_GRACE) / EXO_SECOND);
}

exo_status
exo_fit_await_each(struct run *run, exo_status asked, const exo_fit_next *next, exo_err *err)
{
    exo_status st = await_all(run, asked == EXO_OK ? next : NULL, asked == EXO_OK ? err : NULL);
    return asked == EXO_OK ? st : asked;
}

exo_status
exo_fit_await_all(struct run *run, exo_status asked, exo_err *err)
{
    return exo_fit_await_each(run, asked, NULL, err);
}

exo_status
exo_fit_have_all(struct run *run, const char *method, const ProtobufCMessage *args, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < run->cast.count; r++) {
        if (!exo_fit_is_member(run, r))
            continue;
        st = exo_fit_ask(run, r, method, args, err);
        if (st != EXO_OK) /* nodes with the request would wait for this one */
            exo_fit_end_collectives(run, r, err->text);
    }
    st = exo_fit_await_all(run, st, err);
    if (st != EXO_OK)
        exo_cast_drop(&run->cast); /* nobody waits for the missing answers any more */
    return st;
}

/* --- Replies ---------------------------------------------------------------------------------- */

static exo_status
reply_of(struct run *run, uint32_t rank, const exo_payload **out, exo_err *err)
{
    exo_status st = exo_wait(run->cast.replies[rank], INT64_MAX, out, err);
    return st == EXO_OK && !*out ? exo_fail(err, EXO_INVAL, "node_%u sent an empty reply", rank)
                                 : st;
}

exo_status
exo_fit_reply(struct run *run, uint32_t rank, const ProtobufCMessageDescriptor *of,
              ProtobufCMessage **out, exo_err *err)
{
    const exo_args reply = {.method = of->short_name, .fields = of};
    const exo_payload *payload = NULL;
    *out = NULL;
    exo_status st = reply_of(run, rank, &payload, err);
    if (st != EXO_OK)
        return st;
    st = exo_args_decode(&reply, payload, out, err);
    return st == EXO_OK ? st : exo_fail_in(err, st, "the reply of node_%u cannot be decoded", rank);
}

exo_status
exo_fit_raw_reply(struct run *run, uint32_t rank, size_t size, const void **out, exo_err *err)
{
    const exo_payload *payload = NULL;
    exo_status st = reply_of(run, rank, &payload, err);
    if (st == EXO_OK && payload->size != size)
        st = exo_fail(err, EXO_INVAL,
                      "node_%u replied with %zu bytes instead of %zu: check that its worker has "
                      "the version of this program",
                      rank, payload->size, size);
    *out = st == EXO_OK ? payload->data : NULL;
    return st;
}
