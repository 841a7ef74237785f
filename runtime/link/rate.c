/* Rates and their schedules: see rate.h. No state. */
#include "link/rate.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

enum {
    MAX_STEPS_OF_OUTAGE = 1000000 /* outages that take turns this often count as endless */
};

exo_status
exo_link_rate_check(double rate, const exo_link_change *changes, size_t num_changes,
                    const char *what, exo_err *err)
{
    if (!(rate > 0))
        return exo_fail(err, EXO_INVAL,
                        "%s is %g bit/s: it must be positive (an outage is a change by factor 0)",
                        what, rate);
    for (size_t i = 0; i < num_changes; i++) {
        const exo_link_change *c = &changes[i];
        if (!(c->factor >= 0) || isinf(c->factor))
            return exo_fail(err, EXO_INVAL,
                            "change %zu of %s has the factor %g: it must be 0 or more, and finite",
                            i, what, c->factor);
        if (c->at < 0 || c->length < 0 || c->period < 0)
            return exo_fail(err, EXO_INVAL, "change %zu of %s has a negative time", i, what);
        if (c->period > 0 && (c->length == 0 || c->length > c->period))
            return exo_fail(err, EXO_INVAL, "change %zu of %s lasts %.9g s of a period of %.9g s",
                            i, what, (double)c->length / (double)EXO_SECOND,
                            (double)c->period / (double)EXO_SECOND);
    }
    return EXO_OK;
}

exo_status
exo_link_rate_init(exo_link_rate *out, double rate, const exo_link_change *changes,
                   size_t num_changes, exo_err *err)
{
    *out = (exo_link_rate){.rate = rate, .num_changes = num_changes};
    if (num_changes == 0)
        return EXO_OK;
    out->changes = exo_calloc(num_changes, sizeof *changes);
    if (!out->changes)
        return exo_fail(err, EXO_NOMEM, "no memory for a schedule of %zu changes", num_changes);
    memcpy(out->changes, changes, num_changes * sizeof *changes);
    for (size_t i = 0; i < num_changes; i++)
        if (out->changes[i].period == out->changes[i].length) /* no pause: for ever */
            out->changes[i].period = out->changes[i].length = 0;
    return EXO_OK;
}

void
exo_link_rate_release(exo_link_rate *rate)
{
    exo_free(rate->changes);
    *rate = (exo_link_rate){0};
}

/* --- A rate at a time ------------------------------------------------------------------------- */

/* Whether the change applies at `t`; *edge is the next time when it begins or ends. */
static bool
change_is_on(const exo_link_change *c, exo_time t, exo_time *edge)
{
    *edge = EXO_LINK_NEVER;
    if (t < c->at) {
        *edge = c->at;
        return false;
    }
    if (c->length == 0)
        return true;
    exo_time phase = c->period ? (t - c->at) % c->period : t - c->at;
    if (phase < c->length)
        *edge = exo_link_later(t, c->length - phase);
    else if (c->period)
        *edge = exo_link_later(t, c->period - phase);
    return phase < c->length;
}

static double
rate_at(const exo_link_rate *r, exo_time t, exo_time *next)
{
    double rate = r->rate;
    /* INFINITY * 0 would not be 0 */
    bool outage = false;
    *next = EXO_LINK_NEVER;
    for (size_t i = 0; i < r->num_changes; i++) {
        exo_time edge;
        if (change_is_on(&r->changes[i], t, &edge)) {
            rate *= r->changes[i].factor;
            outage = outage || r->changes[i].factor == 0;
        }
        *next = edge < *next ? edge : *next;
    }
    return outage ? 0 : rate;
}

double
exo_link_path_rate(const exo_link_path *path, exo_time t, exo_time *edge)
{
    double least = INFINITY;
    exo_time first = EXO_LINK_NEVER, next;
    for (size_t i = 0; i < path->num_rates; i++) {
        double rate = rate_at(path->rates[i], exo_link_later(t, path->shifts[i]), &next);
        least = rate < least ? rate : least;
        next = next == EXO_LINK_NEVER ? next : next - path->shifts[i];
        first = next < first ? next : first;
    }
    for (size_t i = 0; i < path->num_partitions; i++) {
        const exo_link_partition *p = &path->partitions[i];
        if (p->side[path->from] == p->side[path->to] || t >= p->until)
            continue;
        least = t >= p->from ? 0 : least;
        next = t >= p->from ? p->until : p->from;
        first = next < first ? next : first;
    }
    if (edge)
        *edge = first;
    return least;
}

bool
exo_link_path_changes(const exo_link_path *path)
{
    bool changes = path->num_partitions > 0;
    for (size_t i = 0; i < path->num_rates; i++)
        changes = changes || path->rates[i]->num_changes > 0;
    return changes;
}

exo_time
exo_link_path_pass(const exo_link_path *path, exo_time t, double bits)
{
    uint32_t idle = 0;
    while (t != EXO_LINK_NEVER) {
        exo_time edge;
        double rate = exo_link_path_rate(path, t, &edge);
        if (rate > 0) {
            double need = ceil(bits / rate * (double)EXO_SECOND);
            if (need <= 0 || isinf(rate))
                return t;
            if (edge == EXO_LINK_NEVER || need <= (double)(edge - t))
                return need >= 0x1p62 ? EXO_LINK_NEVER : exo_link_later(t, (exo_time)need);
            bits -= rate * (double)(edge - t) / (double)EXO_SECOND;
            idle = 0;
        } else if (idle++ == MAX_STEPS_OF_OUTAGE) {
            return EXO_LINK_NEVER;
        }
        t = edge;
    }
    return EXO_LINK_NEVER;
}
