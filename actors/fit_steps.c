/* The steps of the nodes of a fit: how many a request has, what their replies say, and what is told of
 * them. See fit_impl.h. The state belongs to the trainer's thread. */
#include "actors/fit_members.h"

#include <math.h>

#include "base/traffic.h"

/* Length of a segment. Nodes on workers wait for a message from the trainer between two segments,
 * so their segments are longer. */
#define SEGMENT     (200 * EXO_MS)
#define FAR_SEGMENT (2 * EXO_SECOND)
/* While nodes are absent: they join between two segments. */
#define JOIN_SEGMENT (250 * EXO_MS)

uint64_t
exo_fit_next_due(uint64_t step, uint64_t interval, uint64_t limit)
{
    if (interval == 0)
        return limit;
    uint64_t next = step - step % interval + interval;
    return next < limit ? next : limit;
}

uint64_t
exo_fit_stretch(const struct run *run)
{
    exo_time length = exo_fit_awaits_nodes(run) ? JOIN_SEGMENT : run->far ? FAR_SEGMENT : SEGMENT;
    uint64_t steps = run->step_time > 0 ? (uint64_t)(length / run->step_time) : 1;
    return steps < 1 ? 1 : steps > 10000 ? 10000 : steps;
}

/* Reads one node's reply about its `steps` steps. A node that has joined meanwhile has fewer. */
exo_status
exo_fit_read_trained(struct run *run, uint32_t rank, size_t steps, ProtobufCMessage **out,
                     exo_err *err)
{
    exo_status st = exo_fit_reply(run, rank, &exo__train__trained__descriptor, out, err);
    const Exo__Train__Trained *reply = (const Exo__Train__Trained *)*out;
    if (st == EXO_OK && (reply->n_loss > steps || (reply->n_loss < steps && !run->elastic) ||
                         reply->n_lr != reply->n_loss || reply->n_traffic != EXO_TRAFFIC_COLUMNS))
        st = exo_fail(err, EXO_INVAL,
                      "node_%u reported %zu steps instead of %zu: check that its worker has the "
                      "version of this program",
                      rank, reply->n_loss, steps);
    if (st != EXO_OK)
        return st;
    const exo_traffic traffic = exo_traffic_of(reply->traffic);
    run->traffic[rank] = run->before.traffic[rank];
    exo_traffic_add(&run->traffic[rank], &traffic);
    return exo_fit_take_trained(run, rank, reply, err);
}

/* Records the steps of the first node, which stand for those of all nodes. Of steps that only lost
 * nodes took, the losses are not known. `before`: samples before the steps. */
static exo_status
record_rows(struct run *run, const Exo__Train__Trained *first, size_t steps, uint64_t before,
            exo_err *err)
{
    exo_status st = EXO_OK;
    const uint64_t start = run->step, all = run->samples - before;
    const size_t unknown = steps > first->n_loss ? steps - first->n_loss : 0;
    const size_t skipped = first->n_loss > steps ? first->n_loss - steps : 0;
    for (size_t i = 0; i < steps && st == EXO_OK; i++) {
        run->step = start + i + 1;
        run->train_loss = i < unknown ? NAN : first->loss[skipped + i - unknown];
        run->lr = i < unknown ? run->lr : first->lr[skipped + i - unknown];
        if (run->metrics)
            st = exo_metrics_train(run->metrics, run->step, before + all * (i + 1) / steps,
                                   (double)run->train_loss, (double)run->lr, err);
    }
    return st;
}

/* The samples of all nodes after the step `step`. */
static uint64_t
samples_at(struct run *run, uint64_t step)
{
    const uint64_t now = run->step;
    run->step = step;
    const uint64_t samples = exo_fit_samples(run);
    run->step = now;
    return samples;
}

exo_status
exo_fit_record_steps(struct run *run, const Exo__Train__Trained *first, size_t steps, exo_time took,
                     exo_time took_here, exo_err *err)
{
    const uint64_t before = run->samples;
    run->samples = samples_at(run, run->step + steps);
    if (run->samples < before) /* a lost node that was apart had done fewer steps */
        run->samples = before;
    exo_status st = first ? record_rows(run, first, steps, before, err) : EXO_OK;
    run->trained += took;
    run->step_time = steps ? took_here / (exo_time)steps : 0;
    double rate = took > 0 ? (double)(run->samples - before) / ((double)took * 1e-9) : 0;
    run->rate = run->rate > 0 ? 0.8 * run->rate + 0.2 * rate : rate;
    run->evaluated = false;
    return st;
}

void
exo_fit_report(struct run *run, bool evaluated)
{
    if (!run->opts->progress)
        return;
    exo_progress p = run->eval;
    uint64_t left = run->fit->max_steps - run->step;
    p.num_nodes = run->fit->num_nodes;
    p.num_present = exo_fit_num_members(run);
    double per_step = (double)run->fit->batch_size * p.num_present / exo_fit_sharing(run->fit);
    p.step = run->step;
    p.max_steps = run->fit->max_steps;
    p.train_loss = run->train_loss;
    p.lr = run->lr;
    p.samples_per_second = run->rate;
    p.elapsed = (double)exo_fit_elapsed(run) * 1e-9;
    p.eta = run->rate > 0 ? (double)left * per_step / run->rate : (double)NAN;
    p.bytes_sent = run->bytes_sent;
    p.evaluated = evaluated;
    p.meters = exo_fit_meters(run);
    p.edge = exo_fit_edge_name(run);
    p.traffic = (exo_traffic){0};
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        exo_traffic_add(&p.traffic, &run->traffic[r]);
    run->opts->progress(run->opts->context, &p);
}
