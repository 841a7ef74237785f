/* The change of a running graph: see changing.h. */
#include "graph/changing.h"

#include <time.h>

#include <exogym/memory.h>

#include "graph/lives.h"
#include "graph/place.h"

#define SLICE     (50 * EXO_MS)
#define TRY_AGAIN (200 * EXO_MS)    /* after an actor has failed */
#define PATIENCE  (60 * EXO_SECOND) /* with an actor that fails again and again */

static exo_time
now(void)
{
    return exo_now(exo_clock_real());
}

bool
exo_changing_pends(const exo_changing *c)
{
    return c->next != NULL;
}

static bool
is_virtual(const exo_changing *c)
{
    return c->site && c->site->sim;
}

/* --- The virtual clock ------------------------------------------------------------------------ */

static void
on_event(void *context, exo_time at)
{
    exo_changing *c = context;
    exo_status st = EXO_OK;
    (void)at;
    for (uint32_t i = 0; st == EXO_OK && i < c->cast->count; i++)
        st = exo_place_change_inputs(c->places[i], NULL, &c->event_err);
    for (uint32_t i = 0; st == EXO_OK && i < c->cast->count; i++)
        st = exo_place_change_outputs(c->places[i], NULL, &c->event_err);
    c->event_done = true;
}

/* The event waits while an actor computes. */
static bool
await_event(const exo_changing *c, exo_time until)
{
    while (!c->event_done && now() < until)
        nanosleep(&(struct timespec){.tv_nsec = EXO_MS}, NULL);
    return c->event_done;
}

/* --- The real clock --------------------------------------------------------------------------- */

/* The first actor that fails is the culprit until it succeeds, or is dead. */
static void
note_failure(exo_changing *c, uint32_t i, exo_status st, const exo_err *reason)
{
    c->again[i] = true;
    if (c->failing && c->culprit != i)
        return;
    c->failing = c->failing ? c->failing : now();
    c->hopeless = now() - c->failing > PATIENCE;
    c->culprit = i;
    c->status = st;
    c->reason = *reason;
}

static void
take_status(exo_changing *c, uint32_t i, exo_status st, const exo_err *reason)
{
    c->missed[i] = c->missed[i] || exo_lives_is_loss(st);
    if (st != EXO_OK && !exo_lives_is_loss(st))
        note_failure(c, i, st, reason);
    else if (c->culprit == i)
        c->failing = 0;
}

static void
ask(exo_changing *c, uint32_t i)
{
    exo_payload payload = {0};
    exo_err reason = {0};
    c->again[i] = false;
    if (!c->cast->actors[i].id) {
        c->missed[i] = true;
        return;
    }
    exo_status st =
        exo_host_change_text(&payload, c->count, c->step, c->texts[c->count - 1], &reason);
    if (st == EXO_OK)
        st = exo_cast_round_ask(&c->round, i, "change", payload, &reason);
    if (st != EXO_OK)
        take_status(c, i, st, &reason);
}

static void
begin_step(exo_changing *c, exo_change_step step)
{
    c->step = step;
    c->failing = 0;
    c->hopeless = false;
    c->due = now() + TRY_AGAIN;
    for (uint32_t i = 0; i < c->cast->count; i++)
        ask(c, i);
}

/* Takes the answers that come until then. Returns true if nobody is left to answer. */
static bool
take_answers(exo_changing *c, exo_time until)
{
    bool all = true;
    for (uint32_t i = 0; i < c->cast->count; i++) {
        exo_err reason = {0};
        if (!c->round.futures[i])
            continue;
        exo_status st = exo_wait(c->round.futures[i], until, NULL, &reason);
        if (!exo_future_ready(c->round.futures[i])) {
            all = false;
            continue;
        }
        exo_future_drop(&c->round.futures[i]);
        take_status(c, i, st, &reason);
    }
    return all;
}

static bool
ask_again(exo_changing *c)
{
    bool any = false, due = now() >= c->due;
    for (uint32_t i = 0; i < c->cast->count; i++) {
        any = any || c->again[i];
        if (c->again[i] && due)
            ask(c, i);
    }
    if (due)
        c->due = now() + TRY_AGAIN;
    return any;
}

/* Whether all actors have made the step. */
static bool
await_step(exo_changing *c, exo_time until)
{
    bool all = take_answers(c, until);
    return !ask_again(c) && all;
}

/* --- The change ------------------------------------------------------------------------------- */

/* Keeps the text for workers, and for actors that are made later. */
static exo_status
keep_text(exo_changing *c, const char *text, exo_err *err)
{
    char **texts = exo_realloc(c->texts, c->count + 1, sizeof *texts);
    if (texts)
        c->texts = texts;
    char *copy = texts && text ? exo_strdup(text) : NULL;
    if (!texts || (text && !copy))
        return exo_fail(err, EXO_NOMEM, "no memory for a change");
    texts[c->count++] = copy;
    return EXO_OK;
}

exo_status
exo_changing_begin(exo_changing *c, const exo_graph_spec *next, const char *text, exo_err *err)
{
    exo_status st = EXO_OK;
    if (!c->site && c->count == EXO_MAX_CHANGES)
        return exo_fail(err, EXO_FULL, "a graph on workers changes %d times at most",
                        EXO_MAX_CHANGES);
    if (!c->again)
        c->again = exo_calloc(c->cast->count, sizeof *c->again);
    if (!c->missed)
        c->missed = exo_calloc(c->cast->count, sizeof *c->missed);
    if (!c->again || !c->missed)
        return exo_fail(err, EXO_NOMEM, "no memory for a change");
    for (uint32_t i = 0; i < c->cast->count; i++)
        c->missed[i] = false;
    if (!is_virtual(c))
        st = exo_cast_round_open(&c->round, c->cast, INT64_MAX, err);
    if (st == EXO_OK)
        st = keep_text(c, c->site ? NULL : text, err);
    if (st == EXO_OK && c->site)
        st = exo_site_change(c->site, next, err);
    c->event_err = (exo_err){0};
    c->event_done = false;
    if (st == EXO_OK && is_virtual(c))
        st = exo_sim_at(c->site->sim, 0, on_event, c, err); /* at the present time */
    if (st != EXO_OK) {
        exo_cast_round_close(&c->round);
        return st;
    }
    c->next = next;
    if (!is_virtual(c))
        begin_step(c, EXO_CHANGE_INPUTS);
    return EXO_OK;
}

static bool
end(exo_changing *c)
{
    exo_cast_round_close(&c->round);
    c->next = NULL;
    return true;
}

bool
exo_changing_go_on(exo_changing *c, exo_status *status, uint32_t *culprit, exo_err *err)
{
    exo_time until = exo_deadline(exo_clock_real(), SLICE);
    *status = EXO_OK;
    *culprit = 0;
    bool made = is_virtual(c) ? await_event(c, until) : await_step(c, until);
    if (made && !is_virtual(c) && c->step == EXO_CHANGE_INPUTS) {
        begin_step(c, EXO_CHANGE_OUTPUTS);
        made = await_step(c, until);
    }
    if (!made && c->hopeless) {
        *culprit = c->culprit;
        *status = exo_fail(err, c->status, "%s", c->reason.text);
        return end(c);
    }
    if (!made)
        return false;
    if (is_virtual(c) && c->event_err.code != EXO_OK) {
        *err = c->event_err;
        *status = err->code;
        return end(c);
    }
    c->graph = c->next;
    return end(c);
}

uint32_t
exo_changing_late(const exo_changing *c)
{
    uint32_t i = 0;
    while (i + 1 < c->cast->count && !(c->round.futures && c->round.futures[i]) && !c->again[i])
        i++;
    return i;
}

void
exo_changing_close(exo_changing *c)
{
    exo_cast_round_close(&c->round);
    for (uint64_t i = 0; i < c->count; i++)
        exo_free(c->texts[i]);
    exo_free(c->texts);
    exo_free(c->again);
    exo_free(c->missed);
    c->texts = NULL;
    c->again = c->missed = NULL;
    c->count = 0;
}
