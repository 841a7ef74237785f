/* The ranks of a run and their nodes: see fit_members.h. */
#include "actors/fit_members.h"

#include <inttypes.h>

#include <exogym/log.h>

#include "base/printable.h"

#define DEFAULT_WAIT (10 * EXO_SECOND)

exo_time
exo_fit_wait_or_default(exo_time given)
{
    return given > 0 ? given : DEFAULT_WAIT;
}

bool
exo_fit_is_member(const struct run *run, uint32_t rank)
{
    return run->cast.actors[rank].id != 0;
}

uint32_t
exo_fit_num_members(const struct run *run)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < run->cast.count; r++)
        count += exo_fit_is_member(run, r);
    return count;
}

uint32_t
exo_fit_member_at(const struct run *run, uint32_t place)
{
    uint32_t r = 0;
    for (uint32_t seen = 0; r < run->cast.count; r++)
        if (exo_fit_is_member(run, r) && seen++ == place)
            break;
    return r;
}

uint64_t
exo_fit_first_position(const struct run *run, uint32_t rank)
{
    const json_t *nodes = json_object_get(run->before.figures, "nodes");
    const json_t *position = json_object_get(json_array_get(nodes, rank), "position");
    return json_is_integer(position) ? (uint64_t)json_integer_value(position) : UINT64_MAX;
}

uint64_t
exo_fit_epoch(const struct run *run)
{
    return run->elastic->epoch;
}

uint64_t
exo_fit_position_at(const struct run *run, uint32_t rank, uint64_t step)
{
    if (!run->elastic)
        return step;
    const struct exo_fit_seat *s = &run->elastic->seats[rank];
    bool trains = exo_fit_is_member(run, rank) && step > s->step;
    return s->position + (trains ? step - s->step : 0);
}

uint64_t
exo_fit_position(const struct run *run, uint32_t rank)
{
    return exo_fit_position_at(run, rank, run->step);
}

uint32_t
exo_fit_home(const struct run *run)
{
    return run->elastic ? run->elastic->home : 0;
}

uint64_t
exo_fit_samples(const struct run *run)
{
    uint64_t batches = 0;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        batches += exo_fit_position(run, r);
    return batches / exo_fit_sharing(run->fit) * run->fit->batch_size;
}

uint64_t
exo_fit_note_bytes(struct run *run, uint32_t rank, uint64_t bytes)
{
    uint64_t sum = 0;
    if (!run->elastic)
        return bytes;
    run->elastic->seats[rank].bytes = bytes;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        sum += run->elastic->seats[r].bytes;
    return sum;
}

bool
exo_fit_awaits_nodes(const struct run *run)
{
    return run->elastic && run->far && exo_fit_num_members(run) < run->fit->num_nodes;
}

void
exo_fit_elastic_count(const struct run *run, exo_meter *const meters[EXO_FIT_MEMBER_METERS])
{
    const struct exo_fit_elastic *e = run->elastic;
    exo_meter_set(meters[0], exo_fit_num_members(run));
    exo_meter_count(meters[1], e->deaths);
    exo_meter_count(meters[2], e->joins);
    exo_meter_count(meters[3], e->epoch);
    exo_meter_count(meters[4], (uint64_t)e->paused);
}

/* Writes down that a node has left or joined. */
void
exo_fit_tell(struct run *run, const char *event, uint32_t rank, const char *why)
{
    const struct exo_fit_elastic *e = run->elastic;
    uint32_t present = exo_fit_num_members(run);
    exo_err err = {0};
    /* on the virtual clock failures are as many as the job asks for; members.csv has them */
    exo_log_write(run->failures ? EXO_LOG_DEBUG : EXO_LOG_WARN, "TRAIN",
                  "node=%u event=%s step=%" PRIu64 " epoch=%" PRIu64 " present=%u of=%u %s", rank,
                  event, run->step, e->epoch, present, run->fit->num_nodes, why);
    if (run->metrics &&
        exo_metrics_members(run->metrics, run->step, (double)exo_fit_elapsed(run) * 1e-9, e->epoch,
                            event, rank, present, &err) != EXO_OK)
        EXO_LOG(WARN, TRAIN, "reason='%s' members.csv is not complete", err.text);
}

/* Leaves a rank out. A node that is only silent keeps its request, whose answer shows that it is
 * awake. */
void
exo_fit_leave_out(struct run *run, uint32_t rank, const char *why)
{
    struct exo_fit_elastic *e = run->elastic;
    struct exo_fit_seat *s = &e->seats[rank];
    if (run->cast.futures[rank]) {
        s->asleep = run->cast.futures[rank];
        s->sleeper = run->cast.actors[rank];
        run->cast.futures[rank] = NULL;
    }
    run->cast.actors[rank] = (exo_ref){0};
    s->lost = true;
    s->again = 0;
    e->deaths++;
    exo_format_cut(e->last, sizeof e->last, "node_%u: %s", rank, why);
    /* A later life of the node counts from 0. */
    run->before.traffic[rank] = run->traffic[rank];
    exo_fit_tell(run, "left", rank, why);
}

bool
exo_fit_find_silent(const struct run *run, uint32_t *rank)
{
    const exo_time limit = exo_fit_wait_or_default(run->opts->elastic.silence);
    for (*rank = 0; run->elastic && *rank < run->cast.count; (*rank)++)
        if (exo_fit_is_member(run, *rank) && run->cast.futures[*rank] &&
            exo_fit_silence(run, *rank) >= limit)
            return true;
    return false;
}
