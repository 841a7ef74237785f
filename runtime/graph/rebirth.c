/* Next lives in one process: see rebirth.h.
 *
 * The members of a collective meet in `exo_regroup` of the site: the last one to arrive makes the
 * new communicators. A member that is over never arrives; the others then give up. */
#include "graph/rebirth.h"

#include <exogym/log.h>
#include <exogym/memory.h>

#include "graph/host.h"

#define LOOK_AGAIN (50 * EXO_MS) /* real clock: between two looks at the meeting */

static bool
has_collectives(const exo_place *p)
{
    for (size_t i = 0; i < p->spec->class->num_ports; i++)
        if (p->groups[i].edge)
            return true;
    return false;
}

static bool
is_cancelled(exo_place *p)
{
    pthread_mutex_lock(&p->lock);
    bool cancelled = p->cancelled;
    pthread_mutex_unlock(&p->lock);
    return cancelled;
}

/* Member `i` of the actor's name. */
static exo_place *
member(const exo_place *p, uint32_t i)
{
    const exo_site *site = p->actor.site;
    return site->places[site->first[p->spec_index] + i];
}

void
exo_rebirth_end_life(exo_place *place, const char *cause)
{
    exo_err reason = {0};
    exo_fail(&reason, EXO_PEER_LOST, "%s", cause);
    pthread_mutex_lock(&place->lock);
    bool ends = !place->over && !place->regroups;
    place->regroups = place->regroups || ends;
    pthread_mutex_unlock(&place->lock);
    if (!ends)
        return;
    exo_place_fail(place, &reason);
    exo_place_fail_collectives(place, cause);
}

/* Whether the rule gives another life after a failure; else the reason names the rule's limit. */
static bool
rule_gives(exo_place *p, exo_births *births, exo_status status, exo_err *reason, exo_time *wait)
{
    exo_regroup *meeting = &p->actor.site->regroups[p->spec_index];
    const exo_restart_rule *rule = &p->spec->restart;
    const exo_err said = exo_births_failure(p->actor.name, status, reason);
    exo_time now = exo_place_now(p);
    if (!has_collectives(p)) {
        bool next = exo_births_next(births, rule, &said, now, wait);
        if (!next)
            exo_births_explain(births, rule, reason);
        return next;
    }
    pthread_mutex_lock(&p->actor.site->lives_lock);
    bool gives = meeting->counted > meeting->round ||
                 exo_births_next(&meeting->births, rule, &said, now, wait);
    if (!gives)
        exo_births_explain(&meeting->births, rule, reason);
    if (gives)
        meeting->counted = meeting->round + 1;
    pthread_mutex_unlock(&p->actor.site->lives_lock);
    return gives;
}

bool
exo_rebirth_due(exo_place *p, exo_births *births, exo_status status, exo_err *reason,
                exo_time *wait)
{
    pthread_mutex_lock(&p->lock);
    bool cancelled = p->cancelled, regroups = p->regroups;
    uint16_t life = p->life;
    pthread_mutex_unlock(&p->lock);
    *wait = 0;
    if (cancelled || p->spec->restart.when == EXO_RESTART_NEVER || life == EXO_MAX_LIVES)
        return false;
    if (!regroups && (!exo_births_count(status) || !rule_gives(p, births, status, reason, wait)))
        return false;
    EXO_LOG(WARN, GRAPH, "event=failed life=%u why=\"%s\"", life, reason->text);
    for (uint32_t i = 0; i < p->actor.count && has_collectives(p); i++)
        if (i != p->actor.index)
            exo_rebirth_end_life(member(p, i), reason->text);
    return true;
}

/* --- Collectives ------------------------------------------------------------------------------ */

static exo_status
make_comms(exo_place *p, exo_err *err)
{
    exo_site *site = p->actor.site;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < p->spec->class->num_ports; i++)
        if (p->groups[i].edge)
            st = exo_site_renew_comm(site, p->groups[i].id, err);
    return st;
}

/* Arrives at the meeting; the last member makes the communicators. *round: the meeting's number. */
static exo_status
arrive(exo_place *p, uint64_t *round, exo_err *err)
{
    exo_site *site = p->actor.site;
    exo_regroup *meeting = &site->regroups[p->spec_index];
    exo_status st = EXO_OK;
    exo_time now = exo_place_now(p);
    pthread_mutex_lock(&site->lives_lock);
    *round = meeting->round;
    bool last = ++meeting->arrived == p->actor.count;
    if (last) {
        st = make_comms(p, err);
        meeting->arrived = 0;
        meeting->failed = st;
        meeting->births.began = now;
        meeting->round++;
    }
    pthread_mutex_unlock(&site->lives_lock);
    for (uint32_t i = 0; last && i < p->actor.count; i++) {
        exo_place *q = member(p, i);
        pthread_mutex_lock(&q->lock);
        exo_place_signal_locked(q, q, exo_place_now(p));
        pthread_mutex_unlock(&q->lock);
    }
    return st;
}

static bool
is_met(const exo_place *p, uint64_t round, exo_status *st)
{
    exo_site *site = p->actor.site;
    const exo_regroup *meeting = &site->regroups[p->spec_index];
    pthread_mutex_lock(&site->lives_lock);
    bool met = meeting->round > round;
    *st = met ? meeting->failed : EXO_OK;
    pthread_mutex_unlock(&site->lives_lock);
    return met;
}

/* Takes the actor's seat in the new communicator. */
static exo_status
take_seat(exo_place *p, exo_port_group *g, exo_err *err)
{
    exo_site *site = p->actor.site;
    exo_group *group = NULL, *old = NULL;
    exo_comm **former = exo_realloc(g->former, g->num_former + 1, sizeof(exo_comm *));
    if (!former)
        return exo_fail(err, EXO_NOMEM, "no memory for a collective");
    g->former = former;
    pthread_mutex_lock(&site->lives_lock);
    exo_comm *comm = exo_comm_hold(site->comms[g->id]);
    pthread_mutex_unlock(&site->lives_lock);
    pthread_mutex_lock(&p->lock);
    g->former[g->num_former++] = g->comm;
    g->comm = comm;
    old = g->group;
    g->group = NULL;
    pthread_mutex_unlock(&p->lock);
    exo_group_close(&old);
    exo_status st = exo_group_open(&group, comm, p->actor.index, p->actor.name, err);
    if (st != EXO_OK)
        return st;
    exo_group_set_timeout(group, g->edge->deadline);
    pthread_mutex_lock(&p->lock);
    g->group = group;
    pthread_mutex_unlock(&p->lock);
    return EXO_OK;
}

static exo_status
regroup(exo_place *p, exo_err *err)
{
    uint64_t round = 0;
    exo_status st = EXO_OK, met = EXO_OK;
    for (uint32_t i = 0; i < p->actor.count; i++) {
        exo_place *q = member(p, i);
        pthread_mutex_lock(&q->lock);
        bool over = q->over;
        pthread_mutex_unlock(&q->lock);
        if (over)
            return exo_fail(err, EXO_CLOSED,
                            "%s: %s has ended: a collective with it cannot be formed again",
                            p->actor.name, q->actor.name);
    }
    st = arrive(p, &round, err);
    while (st == EXO_OK && !is_met(p, round, &met)) {
        if (is_cancelled(p))
            return exo_fail(err, EXO_CANCELLED, "%s: the run ends", p->actor.name);
        pthread_mutex_lock(&p->lock);
        exo_time until = p->actor.site->sim ? INT64_MAX : exo_place_now(p) + LOOK_AGAIN;
        exo_place_wait_locked(p, p, until);
        pthread_mutex_unlock(&p->lock);
    }
    if (st == EXO_OK && met != EXO_OK)
        st = exo_fail(err, met, "%s: a collective could not be formed again", p->actor.name);
    for (size_t i = 0; st == EXO_OK && i < p->spec->class->num_ports; i++)
        if (p->groups[i].edge)
            st = take_seat(p, &p->groups[i], err);
    return st;
}

/* --- The next life ---------------------------------------------------------------------------- */

static exo_status
wait_for(exo_place *p, exo_time wait, exo_err *err)
{
    exo_time until = exo_place_now(p) + wait;
    pthread_mutex_lock(&p->lock);
    while (!p->cancelled && exo_place_now(p) < until)
        exo_place_wait_locked(p, p, until);
    bool cancelled = p->cancelled;
    pthread_mutex_unlock(&p->lock);
    return cancelled ? exo_fail(err, EXO_CANCELLED, "%s: the run ends", p->actor.name) : EXO_OK;
}

exo_status
exo_rebirth_begin(exo_place *p, exo_ref self, exo_time wait, exo_err *err)
{
    const exo_site *site = p->actor.site;
    exo_err reason = {0};
    exo_fail(&reason, EXO_CANCELLED, "%s: its life ends", p->actor.name);
    exo_place_fail(p, &reason); /* ends the threads of outlets */
    exo_status st = wait_for(p, wait, err);
    if (st == EXO_OK && has_collectives(p))
        st = regroup(p, err);
    if (st != EXO_OK)
        return st;
    pthread_mutex_lock(&p->lock);
    uint16_t life = (uint16_t)(p->life + 1);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_lock(&p->actor.site->lives_lock); /* no edges are added meanwhile */
    exo_place_begin_life(p, life);
    for (uint32_t i = 0; i < site->first[site->spec->num_actors]; i++)
        exo_place_relink(site->places[i], p->spec_index, p->actor.index, life, self);
    p->actor.resumes = true;
    st = exo_place_connect(p, NULL, err);
    pthread_mutex_unlock(&p->actor.site->lives_lock);
    return st;
}
