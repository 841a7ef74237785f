/* Lives: see lives.h. */
#include "graph/lives.h"

#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/config_units.h"
#include "base/printable.h"
#include "graph/host.h"

#define MIN_BACKOFF (10 * EXO_MS)
#define MAX_BACKOFF (30 * EXO_SECOND)
#define LONG_LIFE   (10 * EXO_SECOND)
#define TRY_AGAIN   (200 * EXO_MS)    /* after a member could not be made */
#define ANSWER      (20 * EXO_SECOND) /* to `connect` and `relink` */

void
exo_life_name(const char *actor, uint32_t index, uint32_t life, char out[EXO_LIFE_NAME])
{
    int length = snprintf(out, EXO_LIFE_NAME, "%s_%u", actor, index);
    if (life > 0 && length > 0 && length < EXO_LIFE_NAME)
        snprintf(out + length, (size_t)(EXO_LIFE_NAME - length), ".%u", life);
}

/* --- The rule --------------------------------------------------------------------------------- */

exo_err
exo_births_failure(const char *name, exo_status status, const exo_err *reason)
{
    exo_err said = *reason;
    size_t length = strlen(name);
    said.code = status;
    for (char *at = said.text; (at = strstr(at, name));)
        memmove(at, at + length, strlen(at + length) + 1);
    return said;
}

/* A hash of a failure's status and text (FNV-1a); not 0. */
static uint64_t
words_of(const exo_err *reason)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)reason->code;
    for (const char *c = reason->text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

/* Counts failures in a row with the same words. */
static void
count_same(exo_births *b, const exo_err *reason)
{
    uint64_t words = words_of(reason);
    if (reason->code == EXO_PEER_LOST)
        return;
    b->same = words == b->words ? b->same + 1 : 1;
    b->words = words;
}

bool
exo_births_next(exo_births *b, const exo_restart_rule *rule, const exo_err *reason, exo_time now,
                exo_time *wait)
{
    if (rule->when == EXO_RESTART_NEVER)
        return false;
    count_same(b, reason);
    if (rule->max == 0 && b->same >= EXO_SAME_FAILURES)
        return false;
    b->quick = now - b->began >= LONG_LIFE ? 1 : b->quick + 1;
    if (rule->within > 0 && b->failures > 0 && now - b->first_failure > rule->within)
        b->failures = 0;
    if (b->failures == 0)
        b->first_failure = now;
    b->failures++;
    if (rule->max > 0 && b->failures > rule->max)
        return false;
    *wait = rule->backoff;
    for (uint32_t i = 1; i < b->quick && *wait < MAX_BACKOFF; i++)
        *wait = 2 * *wait > MIN_BACKOFF ? 2 * *wait : MIN_BACKOFF;
    if (*wait > MAX_BACKOFF && *wait > rule->backoff)
        *wait = MAX_BACKOFF;
    return true;
}

void
exo_births_explain(const exo_births *b, const exo_restart_rule *rule, exo_err *reason)
{
    char within[40] = "", time[EXO_UNIT_TEXT], limit[160] = "", said[EXO_ERR_TEXT];
    if (rule->within > 0)
        snprintf(within, sizeof within, ", within %s", exo_unit_time(rule->within, time));
    if (rule->max > 0 && b->failures > rule->max)
        snprintf(limit, sizeof limit,
                 "; no restart is left ('restart.max' is %u%s): mend the cause, or raise the limit",
                 rule->max, within);
    else if (rule->max == 0 && b->same >= EXO_SAME_FAILURES)
        snprintf(
            limit, sizeof limit,
            "; %u lives in a row have ended so: mend the cause, or allow more by 'restart.max'",
            b->same);
    exo_format_cut(said, sizeof said - strlen(limit), "%s", reason->text);
    snprintf(reason->text, sizeof reason->text, "%s%s", said, limit);
}

bool
exo_births_count(exo_status status)
{
    return status != EXO_OK && status != EXO_CANCELLED;
}

bool
exo_lives_is_loss(exo_status st)
{
    return st == EXO_PEER_LOST || st == EXO_NOT_FOUND || st == EXO_CLOSED;
}

/* --- Units ------------------------------------------------------------------------------------ */

static exo_time
now(void)
{
    return exo_now(exo_clock_real());
}

static bool
has_collective(const exo_graph_spec *spec, uint32_t actor)
{
    for (size_t e = 0; e < spec->num_edges; e++)
        if (spec->edges[e].route == EXO_ROUTE_ALL_REDUCE && spec->edges[e].from == actor)
            return true;
    return false;
}

exo_status
exo_lives_open(exo_lives *l, exo_err *err)
{
    uint32_t count = l->cast->count, at = 0;
    l->lives = exo_calloc(count, sizeof *l->lives);
    l->units = exo_calloc(count, sizeof *l->units);
    l->unit_of = exo_calloc(count, sizeof *l->unit_of);
    l->batch = exo_calloc(count, sizeof *l->batch);
    l->partings = exo_calloc(count, sizeof *l->partings);
    l->born = exo_calloc(count, sizeof *l->born);
    l->since = exo_calloc(count, sizeof *l->since);
    l->ended = exo_calloc(count, sizeof *l->ended);
    l->missed = exo_calloc(count, sizeof *l->missed);
    if (!l->lives || !l->units || !l->unit_of || !l->batch || !l->partings || !l->born ||
        !l->since || !l->ended || !l->missed)
        return exo_fail(err, EXO_NOMEM, "no memory for the lives of %u actors", count);
    for (uint32_t a = 0; a < l->spec->num_actors; a++) {
        uint32_t members = has_collective(l->spec, a) ? l->spec->actors[a].count : 1;
        for (uint32_t i = 0; i < l->spec->actors[a].count; i++, at++) {
            if (i % members == 0)
                l->units[l->num_units++] = (exo_life_unit){
                    .actor = a, .index = i, .first = at, .count = members, .births.began = now()};
            l->unit_of[at] = l->num_units - 1;
        }
    }
    return EXO_OK;
}

void
exo_lives_close(exo_lives *l)
{
    for (uint32_t i = 0; l->partings && i < l->cast->count; i++)
        exo_future_drop(&l->partings[i].end);
    exo_free(l->lives);
    exo_free(l->units);
    exo_free(l->unit_of);
    exo_free(l->batch);
    exo_free(l->partings);
    exo_free(l->born);
    exo_free(l->since);
    exo_free(l->ended);
    exo_free(l->missed);
    l->lives = l->unit_of = l->born = l->since = l->ended = NULL;
    l->units = NULL;
    l->batch = l->missed = NULL;
    l->partings = NULL;
    l->num_units = 0;
}

/* The name of a member in that life; 0: without a life. */
static void
name_member(const exo_lives *l, const exo_life_unit *u, uint32_t i, uint32_t life,
            char out[EXO_LIFE_NAME])
{
    exo_life_name(l->spec->actors[u->actor].name, u->index + i - u->first, life, out);
}

static uint32_t
unanswered(const exo_lives *l, const exo_life_unit *u)
{
    uint32_t left = 0;
    for (uint32_t i = u->first; i < u->first + u->count; i++)
        left += l->cast->futures[i] != NULL;
    return left;
}

/* Tells an actor that runs that its life ends. */
static void
end_life(exo_lives *l, uint32_t i, const char *why)
{
    Exo__Train__GraphAbandon m = EXO__TRAIN__GRAPH_ABANDON__INIT;
    exo_payload args = {0};
    m.cause = exo_args_text(why);
    if (l->cast->futures[i] && exo_protocol_pack(&args, &m.base, NULL) == EXO_OK)
        exo_send(l->cast->runtime, l->cast->actors[i], "end_life", args, INT64_MAX, NULL);
}

/* Tells the other members that their lives end, and drops the answers of those that have ended. */
static void
end_others(exo_lives *l, const exo_life_unit *u, const char *why)
{
    for (uint32_t i = u->first; i < u->first + u->count; i++) {
        exo_future_drop(&l->cast->replies[i]);
        if (i != u->culprit)
            end_life(l, i, why);
    }
}

bool
exo_lives_take(exo_lives *l, uint32_t i, exo_status status, exo_err *reason)
{
    exo_life_unit *u = &l->units[l->unit_of[i]];
    char name[EXO_LIFE_NAME];
    exo_err why = {0};
    exo_time wait = 0;
    name_member(l, u, i, 0, name);
    exo_err said = exo_births_failure(name, status, reason);
    if (status == EXO_OK && (l->since[i] > 0 || l->missed[i]))
        l->news = true;
    if (l->cast->told || (u->state == EXO_UNIT_RUNS && !exo_births_count(status)))
        return false;
    if (u->state == EXO_UNIT_RUNS) {
        const exo_restart_rule *rule = &l->spec->actors[u->actor].restart;
        if (l->lives[i] >= EXO_MAX_LIVES)
            return false;
        if (!exo_births_next(&u->births, rule, &said, now(), &wait)) {
            exo_births_explain(&u->births, rule, reason);
            return false;
        }
        exo_cast_blame(l->cast, i, status, reason->text, &why);
        u->state = EXO_UNIT_ENDS;
        u->culprit = i;
        u->failed = now();
        u->due = u->failed + wait;
        u->put_off = 0;
        EXO_LOG(WARN, GRAPH, "event=failed life=%u why=\"%s\"", l->lives[i], why.text);
        if (l->tell)
            l->tell(l->context, i, why.text);
        end_others(l, u, why.text);
    }
    if (unanswered(l, u) == 0)
        u->state = EXO_UNIT_WAITS;
    return true;
}

bool
exo_lives_end(exo_lives *l, uint32_t i, exo_err *reason)
{
    bool again = exo_lives_take(l, i, EXO_PEER_LOST, reason);
    if (again)
        end_life(l, i, reason->text);
    return again;
}

uint32_t
exo_lives_ended(exo_lives *l)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->cast->count; i++)
        if (l->cast->replies[i])
            l->ended[count++] = i;
    return count;
}

void
exo_lives_miss(exo_lives *l, const bool *dead)
{
    for (uint32_t i = 0; i < l->cast->count; i++) {
        if (!dead[i])
            continue;
        l->missed[i] = l->misses = true;
        l->news = l->news || l->cast->replies[i]; /* else when it is known to have ended */
    }
}

/* Of these, the ones that were not told of the present life of actor `i`, or of a change. */
static uint32_t
ended_for(exo_lives *l, uint32_t i)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < l->cast->count; k++)
        if (l->cast->replies[k] && (l->missed[k] || (l->since[k] > 0 && l->since[k] <= l->born[i])))
            l->ended[count++] = k;
    return count;
}

uint32_t
exo_lives_owed(const exo_lives *l)
{
    uint32_t owed = 0;
    for (uint32_t k = 0; k < l->num_units && !l->cast->told; k++)
        if (l->units[k].state != EXO_UNIT_RUNS)
            owed += l->units[k].count - unanswered(l, &l->units[k]);
    return owed;
}

bool
exo_lives_pend(const exo_lives *l)
{
    for (uint32_t k = 0; k < l->num_units; k++)
        if (l->units[k].state != EXO_UNIT_RUNS)
            return true;
    return false;
}

bool
exo_lives_is_due(const exo_lives *l, uint32_t i)
{
    return l->units[l->unit_of[i]].state != EXO_UNIT_RUNS;
}

/* --- The end of the earlier life -------------------------------------------------------------- */

static void
ask_for_end(exo_lives *l, uint32_t i)
{
    exo_parting *p = &l->partings[i];
    exo_future_drop(&p->end);
    p->lingers = l->end != NULL;
    if (p->lingers && l->end(l->context, i, p->is_lost, &p->end, NULL) != EXO_OK)
        p->end = NULL;
}

/* Stops the members, once. A stop does not reach one that only this process has lost, as it was frozen or
 * cut off for a while: it would hold its place until the job ends. */
static void
part(exo_lives *l, exo_life_unit *u)
{
    char cause[EXO_ERR_TEXT];
    if (u->parts)
        return;
    u->parts = now();
    for (uint32_t i = u->first; i < u->first + u->count; i++) {
        exo_ref *actor = &l->cast->actors[i];
        l->partings[i].is_lost =
            !actor->id || exo_cause(l->cast->runtime, *actor, cause, sizeof cause) == EXO_OK;
        if (actor->id)
            exo_stop(l->cast->runtime, *actor, false, NULL);
        *actor = (exo_ref){0};
        ask_for_end(l, i);
    }
}

/* Whether the member's earlier life may be alive. Where nobody could tell, this asks again. */
static bool
lingers(exo_lives *l, uint32_t i)
{
    exo_parting *p = &l->partings[i];
    if (!p->lingers || (p->end && !exo_future_ready(p->end)))
        return p->lingers;
    exo_status st = p->end ? exo_wait(p->end, INT64_MAX, NULL, NULL) : EXO_PEER_LOST;
    if (st == EXO_PEER_LOST || st == EXO_TIMEOUT || st == EXO_FULL || st == EXO_NOMEM)
        ask_for_end(l, i);
    else
        p->lingers = false;
    return p->lingers;
}

/* Whether the unit is to be made now: its time has come, and its earlier lives are over. */
static bool
is_ready(exo_lives *l, exo_life_unit *u)
{
    uint32_t left = 0, last = 0;
    if (u->state != EXO_UNIT_WAITS || now() < u->due)
        return false;
    part(l, u);
    for (uint32_t i = u->first; i < u->first + u->count; i++)
        if (lingers(l, i)) {
            left++;
            last = i;
        }
    if (left > 0 && now() - u->parts < EXO_LIFE_PARTING)
        return false;
    if (left > 0)
        EXO_LOG(WARN, GRAPH, "event=lingers life=%u nobody says that %u earlier %s ended",
                l->lives[last], left, left > 1 ? "lives have" : "life has");
    for (uint32_t i = u->first; i < u->first + u->count; i++)
        exo_future_drop(&l->partings[i].end);
    u->parts = 0;
    return true;
}

/* --- The next life ---------------------------------------------------------------------------- */

/* The unit could not begin its next life: it tries again, or the run ends. */
static exo_status
put_off(exo_lives *l, exo_life_unit *u, uint32_t i, exo_status st, exo_err *reason, exo_err *err)
{
    for (uint32_t k = u->first; k < u->first + u->count; k++)
        l->batch[k] = false;
    part(l, u);
    const char *forlorn = l->forlorn ? l->forlorn(l->context) : NULL;
    char name[EXO_LIFE_NAME]; /* another one at each attempt */
    name_member(l, u, i, l->lives[i], name);
    const exo_err said = exo_births_failure(name, st, reason);
    const uint64_t words = words_of(&said);
    u->due = now() + TRY_AGAIN;
    u->culprit = i;
    if (words != u->put_off) /* not at each attempt */
        EXO_LOG(WARN, GRAPH, "event=put_off life=%u why=\"%s\"", l->lives[i], reason->text);
    u->put_off = words;
    if (!forlorn && now() - u->failed < EXO_LIFE_PATIENCE)
        return EXO_OK;
    return exo_fail(err, st, "its life %u could not begin: %s", l->lives[i] + 1,
                    forlorn ? forlorn : reason->text);
}

static exo_life_unit *
unit_at(exo_lives *l, uint32_t i)
{
    return &l->units[l->unit_of[i]];
}

/* An actor cannot reach a new life, as over a cut that lasts, and does not say which. */
static exo_status
put_off_all(exo_lives *l, exo_err *reason, uint32_t *culprit, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < l->cast->count; i++) {
        if (!l->batch[i])
            continue;
        *culprit = i;
        st = put_off(l, unit_at(l, i), i, EXO_TIMEOUT, reason, err);
    }
    return st;
}

/* Whether a life is being made. Of none the other actors are told nothing: they would send to it. */
static bool
makes_some(const exo_lives *l)
{
    for (uint32_t i = 0; i < l->cast->count; i++)
        if (l->batch[i])
            return true;
    return false;
}

/* Makes the members of all units that are due. */
static exo_status
make_all(exo_lives *l, uint32_t *culprit, exo_err *err)
{
    exo_status st = EXO_OK;
    l->batches++;
    for (uint32_t i = 0; i < l->cast->count; i++) {
        exo_life_unit *u = unit_at(l, i);
        l->batch[i] = i == u->first ? is_ready(l, u) : l->batch[u->first];
        if (!l->batch[i])
            continue;
        l->lives[i]++;
        l->born[i] = l->batches;
        l->since[i] = 0;
        l->missed[i] = false;
    }
    for (uint32_t i = 0; st == EXO_OK && i < l->cast->count; i++) {
        exo_err reason = {0};
        *culprit = i;
        exo_status one = l->batch[i] ? l->make(l->context, i, &reason) : EXO_OK;
        if (one != EXO_OK)
            st = put_off(l, unit_at(l, i), i, one, &reason, err);
    }
    return st;
}

static exo_status
connect_all(exo_lives *l, uint32_t *culprit, exo_err *err)
{
    exo_cast_round round;
    exo_status st = exo_cast_round_open(&round, l->cast, ANSWER, err);
    if (st != EXO_OK)
        return st;
    for (uint32_t i = 0; st == EXO_OK && i < l->cast->count; i++) {
        exo_err reason = {0};
        exo_status one = EXO_OK;
        *culprit = i;
        if (l->batch[i]) /* one that has died since fails at once */
            one = exo_cast_round_ask(&round, i, "connect", (exo_payload){0}, &reason);
        if (one != EXO_OK)
            st = put_off(l, unit_at(l, i), i, one, &reason, err);
    }
    while (st == EXO_OK && exo_cast_round_next(&round)) {
        *culprit = round.actor;
        if (round.status != EXO_OK && l->batch[round.actor])
            st = put_off(l, unit_at(l, round.actor), round.actor, round.status, &round.reason, err);
    }
    exo_cast_round_close(&round);
    return st;
}

/* Whether an actor is to be told: in `news`, only later lives, unless an actor is missed. */
static bool
is_told(exo_lives *l, uint32_t i, bool news)
{
    if (!l->cast->actors[i].id)
        return false;
    if (news)
        return (l->born[i] > 0 || l->misses) &&
               (l->batch[i] || unit_at(l, i)->state == EXO_UNIT_RUNS);
    return !l->batch[i] && unit_at(l, i)->state != EXO_UNIT_WAITS;
}

/* The arguments of `relink`. */
static exo_status
lives_text(exo_payload *out, const uint32_t *lives, size_t count, const uint32_t *ended,
           size_t num_ended, exo_err *err)
{
    Exo__Train__GraphLives m = EXO__TRAIN__GRAPH_LIVES__INIT;
    m.lives = (uint32_t *)(uintptr_t)lives;
    m.n_lives = count;
    m.ended = (uint32_t *)(uintptr_t)ended;
    m.n_ended = num_ended;
    return exo_protocol_pack(out, &m.base, err);
}

/* Takes an actor's answer to `relink`. */
static exo_status
take_relinked(exo_lives *l, uint32_t i, bool news, exo_status status, const exo_err *reason,
              exo_err *err)
{
    if (exo_lives_is_loss(status)) {
        l->since[i] = l->since[i] ? l->since[i] : l->batches;
        l->news = l->news || (!news && l->cast->replies[i]);
        return EXO_OK;
    }
    if (status == EXO_TIMEOUT)
        return exo_fail(err, status,
                        "no answer within %d s while another actor begins a life: its process is "
                        "stopped, or too busy",
                        (int)(ANSWER / EXO_SECOND));
    return status == EXO_OK ? EXO_OK : exo_fail(err, status, "%s", reason->text);
}

/* Tells the other actors of the new lives; news: tells later lives of actors that have ended. One that
 * is dead is told when it lives again. */
static exo_status
relink_all(exo_lives *l, bool news, uint32_t *culprit, exo_err *err)
{
    exo_cast_round round;
    exo_status st = exo_cast_round_open(&round, l->cast, ANSWER, err);
    if (st != EXO_OK)
        return st;
    for (uint32_t i = 0; st == EXO_OK && i < l->cast->count; i++) {
        exo_payload args = {0};
        exo_err reason = {0};
        if (!is_told(l, i, news))
            continue;
        *culprit = i;
        uint32_t ended = ended_for(l, i);
        st = lives_text(&args, l->lives, l->cast->count, l->ended, ended, err);
        if (st != EXO_OK)
            break;
        exo_status one = exo_cast_round_ask(&round, i, "relink", args, &reason);
        if (one != EXO_OK) /* a loss that is known */
            st = take_relinked(l, i, news, one, &reason, err);
    }
    while (st == EXO_OK && exo_cast_round_next(&round)) {
        *culprit = round.actor;
        if (!news && round.status == EXO_TIMEOUT && now() < round.deadline)
            st = put_off_all(l, &round.reason, culprit, err);
        else
            st = take_relinked(l, round.actor, news, round.status, &round.reason, err);
    }
    exo_cast_round_close(&round);
    return st;
}

static exo_status
tell_news(exo_lives *l, uint32_t *culprit, exo_err *err)
{
    if (!l->news)
        return EXO_OK;
    l->news = false;
    return relink_all(l, true, culprit, err);
}

static exo_status
run_all(exo_lives *l, uint32_t *culprit, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; i < l->cast->count; i++)
        if (l->batch[i]) {
            unit_at(l, i)->state = EXO_UNIT_RUNS;
            unit_at(l, i)->births.began = now();
        }
    for (uint32_t i = 0; st == EXO_OK && i < l->cast->count; i++) {
        exo_err reason = {0};
        if (!l->batch[i] || unit_at(l, i)->state != EXO_UNIT_RUNS)
            continue;
        *culprit = i;
        st = exo_cast_ask(l->cast, i, "run", (exo_payload){0}, &reason);
        if (st == EXO_OK || exo_lives_take(l, i, st, &reason)) /* it has died since */
            st = EXO_OK;
        else
            exo_fail(err, st, "%s", reason.text);
    }
    return st;
}

exo_status
exo_lives_tend(exo_lives *l, uint32_t *culprit, exo_err *err)
{
    if (l->cast->told)
        return EXO_OK;
    if (!exo_lives_pend(l))
        return tell_news(l, culprit, err);
    exo_status st = make_all(l, culprit, err);
    if (st == EXO_OK && makes_some(l))
        st = connect_all(l, culprit, err);
    if (st == EXO_OK && makes_some(l))
        st = relink_all(l, false, culprit, err);
    if (st == EXO_OK)
        st = tell_news(l, culprit, err);
    return st == EXO_OK && makes_some(l) ? run_all(l, culprit, err) : st;
}

exo_status
exo_lives_begin(exo_lives *l, uint32_t *culprit, exo_err *err)
{
    for (uint32_t i = 0; i < l->cast->count; i++)
        l->batch[i] = !exo_lives_is_due(l, i);
    return run_all(l, culprit, err);
}
