/* Failures of a host: see outages.h. */
#include "actors/outages.h"

#include <math.h>

#include <exogym/rng.h>

static exo_time
add(exo_time a, double b)
{
    return b < (double)(INT64_MAX - a) ? a + (exo_time)b : INT64_MAX;
}

void
exo_outages_next(exo_outages *o)
{
    exo_rng rng;
    exo_rng_init(&rng, o->failures.seed, EXO_RNG_FAILURE, o->host, o->drawn++);
    const double most = 4294967296.0, high = exo_rng_u32(&rng), low = exo_rng_u32(&rng);
    const double uniform = (high + (low + 0.5) / most) / most; /* in (0, 1) */
    o->down = add(o->up, -log(uniform) * (double)o->failures.mean_time_between);
    o->up = add(o->down, (double)o->failures.repair);
}

exo_outages
exo_outages_begin(const exo_failures *failures, uint32_t host, exo_time now)
{
    exo_outages o = {.failures = *failures, .host = host};
    do
        exo_outages_next(&o);
    while (o.up <= now);
    return o;
}

exo_status
exo_outages_pass(exo_outages *o, exo_pace *pace, exo_time began, exo_err *err)
{
    const exo_time now = exo_pace_now(pace);
    exo_time end = now;
    for (uint64_t n = 0; o->down < end; n++) {
        if (n == EXO_OUTAGES_MOST)
            return exo_fail(err, EXO_FAILED,
                            "failures: the host has failed %d times in a step of %.6g s: choose a "
                            "larger mean_time_between",
                            EXO_OUTAGES_MOST, (double)(now - began) * 1e-9);
        end = add(o->up, (double)(now - began));
        o->count++;
        exo_outages_next(o);
    }
    if (end == now)
        return EXO_OK;
    o->lost += end - now;
    exo_pace_wait_begin(pace, "failure", EXO_SPAN_RECV_BLOCKED);
    while (exo_pace_now(pace) < end)
        exo_sim_wait(pace->lane, end + pace->origin);
    exo_pace_wait_end(pace);
    return EXO_OK;
}
