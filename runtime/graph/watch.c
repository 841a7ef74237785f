/* The search for stalls in a running graph: see watch.h. */
#include "graph/watch.h"

#include <string.h>

#include <exogym/memory.h>

#include "graph/host.h"

/* Between two searches on the real clock. With many actors in workers the time is 1 ms for each
 * actor, up to AT_LEAST. */
#define EVERY (200 * EXO_MS)
/* The longest time between two searches: a stall is reported within a second. */
#define AT_LEAST  (500 * EXO_MS)
#define LONG_WAIT (200 * EXO_MS) /* shorter waits are ignored */
/* an actor that does not answer within this time counts as one that does not wait */
#define ANSWER  (300 * EXO_MS)
#define VIRTUAL (500 * EXO_MS)

exo_status
exo_stall_watch_open(exo_stall_watch *w, exo_err *err)
{
    w->records = exo_calloc(w->count, sizeof *w->records);
    w->again = exo_calloc(w->count, sizeof *w->again);
    w->stuck = exo_calloc(w->count, sizeof *w->stuck);
    w->answered = exo_calloc(w->count, sizeof *w->answered);
    w->scratch = exo_calloc(w->count, sizeof *w->scratch);
    w->counts = exo_calloc(2 * (size_t)w->count, sizeof *w->counts);
    return w->records && w->again && w->stuck && w->answered && w->scratch && w->counts
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory to look for stalls");
}

static void
release_records(const exo_stall_watch *w, exo_payload *records)
{
    for (uint32_t i = 0; records && i < w->count; i++)
        exo_payload_release(&records[i]);
}

void
exo_stall_watch_close(exo_stall_watch *w)
{
    release_records(w, w->records);
    release_records(w, w->again);
    exo_stall_release(&w->stall);
    exo_free(w->records);
    exo_free(w->again);
    exo_free(w->stuck);
    exo_free(w->answered);
    exo_free(w->scratch);
    exo_free(w->counts);
    w->scratch = NULL;
    w->counts = NULL;
    w->records = w->again = NULL;
    w->stuck = w->answered = NULL;
}

/* --- Gathering -------------------------------------------------------------------------------- */

static exo_status
gather_here(exo_stall_watch *w, exo_time longer_than, exo_payload *records)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < w->count; i++)
        st = exo_place_look(w->places[i], longer_than, &records[i], NULL);
    return st;
}

/* Asks all actors at once. */
static exo_status
gather_there(exo_stall_watch *w, exo_time longer_than, exo_payload *records)
{
    exo_cast_round round;
    Exo__Train__GraphWaits m = EXO__TRAIN__GRAPH_WAITS__INIT;
    m.longer_than = longer_than;
    memset(w->answered, false, w->count * sizeof *w->answered);
    exo_status st = exo_cast_round_open(&round, w->cast, ANSWER, NULL);
    for (uint32_t i = 0; st == EXO_OK && i < w->count; i++) {
        exo_payload args = {0};
        if (!w->cast->replies[i] && exo_protocol_pack(&args, &m.base, NULL) == EXO_OK)
            exo_cast_round_ask(&round, i, "waits", args, NULL);
    }
    while (st == EXO_OK && exo_cast_round_next(&round))
        if (round.status == EXO_OK && exo_wait_record_is_whole(round.reply, w->count)) {
            w->answered[round.actor] = true;
            /* without memory the actor counts as one that does not wait */
            exo_payload_copy(&records[round.actor], round.reply->data, round.reply->size);
        }
    exo_cast_round_close(&round);
    return st;
}

static exo_status
gather(exo_stall_watch *w, exo_time longer_than, exo_payload *records)
{
    release_records(w, records);
    return w->site ? gather_here(w, longer_than, records) : gather_there(w, longer_than, records);
}

/* --- On the real clock ------------------------------------------------------------------------ */

static void
keep(exo_stall_watch *w, const exo_stall *stall, exo_time at)
{
    w->stall = *stall;
    w->at = at;
    w->found = true;
}

/* Actors that answer after another one has lost them are alive. */
static void
look_for_split(exo_stall_watch *w)
{
    if (exo_split_may_be(w->records, w->count) && gather(w, LONG_WAIT, w->again) == EXO_OK)
        w->split = exo_split_find(w->records, w->again, w->answered, w->count, w->scratch);
}

void
exo_stall_watch_look(exo_stall_watch *w)
{
    exo_stall stall = {0};
    exo_time now = exo_now(exo_clock_real());
    w->split = (exo_split){0};
    if (w->found || now < w->next || (w->site && w->site->sim))
        return;
    exo_time each = w->site ? EVERY : w->count * EXO_MS;
    each = each < AT_LEAST ? each : AT_LEAST;
    w->next = now + (each > EVERY ? each : EVERY);
    exo_status st = gather(w, LONG_WAIT, w->records);
    /* everything that both gatherings say was true at this moment */
    exo_time at = exo_now(exo_clock_real()) - w->began;
    if (st == EXO_OK && !w->site)
        look_for_split(w);
    if (w->split.found)
        return;
    if (st == EXO_OK)
        st = exo_stall_find(&stall, w->records, w->count, w->stuck, NULL);
    if (st == EXO_OK && stall.length > 0)
        st = gather(w, LONG_WAIT, w->again);
    /* The second gathering confirms the stuck actors only; the others may have moved on. So the
     * cycle of the first gathering is reported. */
    if (st == EXO_OK && stall.length > 0 &&
        exo_stall_is_same(w->records, w->again, w->stuck, w->count))
        keep(w, &stall, at);
    else
        exo_stall_release(&stall);
}

/* --- On the virtual clock --------------------------------------------------------------------- */

/* Leaves in `stuck` the actors that wait for each other, ignoring messages on their way. False:
 * there are none, or nothing has happened to them since the last search. */
static bool
may_have_stalled(exo_stall_watch *w)
{
    bool changed = true, any = false;
    uint64_t mark = 0;
    memset(w->stuck, true, w->count * sizeof *w->stuck);
    while (changed) {
        changed = any = false;
        mark = UINT64_C(0xcbf29ce484222325);
        for (uint32_t i = 0; i < w->count; i++) {
            if (!w->stuck[i])
                continue;
            mark = (mark ^ i) * UINT64_C(0x100000001b3);
            w->stuck[i] =
                exo_place_may_be_stuck(w->places[i], w->stuck, w->scratch, w->counts, &mark);
            changed = changed || !w->stuck[i];
            any = any || w->stuck[i];
        }
    }
    bool anew = any && mark != w->mark;
    w->mark = mark;
    return anew;
}

/* Searches with the baton: nothing else happens, so one gathering suffices. */
static exo_status
search_here(exo_stall_watch *w, exo_stall *stall)
{
    exo_status st = EXO_OK;
    release_records(w, w->records);
    for (uint32_t i = 0; st == EXO_OK && i < w->count; i++)
        if (w->stuck[i])
            st = exo_place_look(w->places[i], 0, &w->records[i], NULL);
    if (st == EXO_OK)
        st = exo_stall_find(stall, w->records, w->count, w->stuck, NULL);
    if (st != EXO_OK)
        w->mark = 0; /* without memory: searches again next time */
    return st;
}

static void
on_look(void *context, exo_time at)
{
    exo_stall_watch *w = context;
    exo_stall stall = {0};
    exo_sim *sim = w->site->sim;
    if (may_have_stalled(w) && search_here(w, &stall) == EXO_OK && stall.length > 0) {
        keep(w, &stall, at - w->site->origin);
        for (uint32_t i = 0; i < w->count; i++)
            exo_host_cancel(w->places[i]);
        return;
    }
    exo_time next = exo_sim_next(sim);
    if (next == INT64_MAX)
        return; /* the simulation has no more events */
    exo_sim_at(sim, next > at + VIRTUAL ? next : at + VIRTUAL, on_look, w, NULL);
}

exo_status
exo_stall_watch_begin(exo_stall_watch *w, exo_err *err)
{
    return w->site && w->site->sim
               ? exo_sim_at(w->site->sim, w->site->origin + VIRTUAL, on_look, w, err)
               : EXO_OK;
}
