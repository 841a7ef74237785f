/* The mean of all replicas and their correlation, independent of the strategy. The work is done
 * unit by unit, so that no member of a group by units ever holds all parameters. See replica.h. */
#include "actors/replica.h"

#include <math.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "base/parallel.h"

/* --- Units of the copies ---------------------------------------------------------------------- */

static exo_status
need_average(exo_replica *r, exo_err *err)
{
    if (r->average)
        return EXO_OK;
    exo_status st = EXO_OK;
    if (r->by_units)
        st = exo_shards_init(&r->average_shards, r->node.units, r->node.num_units,
                             r->node.num_nodes, r->node.rank, exo_device_cpu(), err);
    exo_params *copy = NULL;
    if (st == EXO_OK)
        st = r->by_units ? exo_model_by_units(r->model, r->fit->seed, &copy, err)
                         : exo_model_copy(r->model, &copy, err);
    if (st == EXO_OK)
        st = exo_params_move(&copy, r->device, err);
    if (st == EXO_OK) {
        r->average = copy;
        return EXO_OK;
    }
    exo_params_free(&copy);
    exo_shards_release(&r->average_shards);
    return st;
}

/* Statistics and frozen parameters. */
static exo_array
all_buffers(exo_params *params)
{
    return exo_params_buffers_array(params);
}

/* Gets this member's values of a whole unit, valid until done_with. */
static exo_status
use_unit(exo_replica *r, size_t unit, exo_array *values, exo_err *err)
{
    exo_status st = exo_strategy_before_use(r->strategy, &r->node, unit, exo_replica_side(r), err);
    *values = exo_unit_values(r->params, unit);
    return st;
}

static exo_status
done_with(exo_replica *r, size_t unit, exo_err *err)
{
    return exo_strategy_after_use(r->strategy, &r->node, unit, exo_replica_side(r), err);
}

/* --- The average ------------------------------------------------------------------------------ */

static exo_status
average_unit(exo_replica *r, size_t unit, exo_err *err)
{
    exo_array mean, values;
    exo_status st = exo_unit_open(r->average, unit, &mean, err);
    if (st == EXO_OK)
        st = use_unit(r, unit, &values, err);
    if (st == EXO_OK) {
        exo_vec_copy(mean, values);
        st = done_with(r, unit, err);
    }
    if (st == EXO_OK)
        st = exo_all_reduce(exo_replica_side(r), mean, EXO_MEAN, err);
    if (st == EXO_OK && r->by_units)
        exo_shards_keep(&r->average_shards, unit, mean);
    exo_unit_close(r->average, unit);
    return st;
}

/* Elements of the largest array that the strategy is assumed to send at once. */
static size_t
most_sent(const exo_replica *r)
{
    size_t most = 0;
    for (size_t u = 0; r->by_units && u < r->node.num_units; u++)
        most = r->node.units[u].count > most ? r->node.units[u].count : most;
    return r->by_units ? most : r->node.numel;
}

/* Averages parameters and statistics: models with different batch-norm statistics have an average
 * with the average statistics. Frozen parameters are only copied. They are equal on all nodes, and
 * an average of them could differ by rounding. */
exo_status
exo_replica_average(exo_replica *r, exo_err *err)
{
    exo_status st = need_average(r, err);
    if (st != EXO_OK)
        return st;
    const exo_array buffers = all_buffers(r->average);
    exo_compute_enter();
    for (size_t u = 0; st == EXO_OK && u < r->node.num_units; u++)
        st = average_unit(r, u, err);
    exo_vec_copy(buffers, all_buffers(r->params));
    if (st == EXO_OK)
        st = exo_all_reduce(exo_replica_side(r), exo_array_part(buffers, 0, r->node.buffer_numel),
                            EXO_MEAN, err);
    exo_comm_warm(r->comm, r->rank, most_sent(r));
    exo_compute_leave();
    r->averaged = r->averaged || st == EXO_OK;
    return st;
}

exo_status
exo_replica_average_open(exo_replica *r, size_t unit, exo_array *values, exo_err *err)
{
    exo_status st = exo_unit_open(r->average, unit, values, err);
    if (st == EXO_OK && r->by_units)
        st = exo_shards_gather(&r->average_shards, unit, *values, exo_replica_side(r), err);
    return st;
}

void
exo_replica_average_close(exo_replica *r, size_t unit)
{
    exo_unit_close(r->average, unit);
}

static exo_status
read_average(exo_replica *r, size_t unit, float *out, exo_err *err)
{
    exo_array values;
    exo_status st = exo_replica_average_open(r, unit, &values, err);
    if (st == EXO_OK)
        st = exo_array_read(values, out, err);
    exo_replica_average_close(r, unit);
    return st;
}

/* The first node with each part of the copy sends it in turn; stages may lack the unit. */
exo_status
exo_replica_average_whole(exo_replica *r, size_t unit, float **values, exo_err *err)
{
    const exo_fit *fit = r->fit;
    exo_status st = EXO_OK;
    const uint32_t size = exo_fit_sharing(fit);
    float *whole = exo_calloc(exo_model_units(fit->model)[unit].count, sizeof *whole);
    if (!whole)
        return exo_fail(err, EXO_NOMEM, "no memory for a unit of the average");
    for (uint32_t p = 0; st == EXO_OK && p < size; p++) {
        size_t at = 0;
        if (exo_fit_place_of(fit, p).member > 0 || /* it has the part of member 0 */
            !exo_part_unit(fit->model, fit->parts[p], unit, &at))
            continue;
        const size_t count = exo_model_units(fit->parts[p])[at].count;
        float *part = exo_calloc(count, sizeof *part);
        st = part ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a unit of the average");
        if (st == EXO_OK && p == r->rank % size)
            st = read_average(r, at, part, err);
        if (st == EXO_OK)
            st = exo_broadcast(r->sharing[1], exo_host_array(EXO_F32, part, count), p, err);
        if (st == EXO_OK)
            exo_part_put_unit(fit->model, fit->parts[p], unit, whole, part);
        exo_free(part);
    }
    if (st == EXO_OK)
        *values = whole;
    else
        exo_free(whole);
    return st;
}

static exo_status
before_average(void *context, size_t unit, exo_err *err)
{
    exo_array unused;
    return exo_replica_average_open(context, unit, &unused, err);
}

static exo_status
after_average(void *context, size_t unit, exo_err *err)
{
    (void)err;
    exo_replica_average_close(context, unit);
    return EXO_OK;
}

const exo_unit_hooks *
exo_replica_average_hooks(exo_replica *r, exo_unit_hooks *hooks)
{
    *hooks = (exo_unit_hooks){.before = before_average, .after = after_average, .context = r};
    return r->by_units ? hooks : NULL;
}

/* --- Correlation ------------------------------------------------------------------------------ */

/* Sums over all parameters, filled by the steps below. */
struct moments {
    double sum, mean;
    double squares; /* of the deviations from the mean */
    double length;  /* squared length of the sum of all copies' standardized parameters */
};

typedef exo_status (*unit_step)(exo_replica *r, exo_array x, exo_array z, struct moments *m,
                                exo_err *err);

static exo_status
add_sum(exo_replica *r, exo_array x, exo_array z, struct moments *m, exo_err *err)
{
    (void)r;
    (void)z;
    double sum = 0;
    exo_status st = exo_vec_sum(x, &sum, err);
    m->sum += sum;
    return st;
}

static exo_status
add_squares(exo_replica *r, exo_array x, exo_array z, struct moments *m, exo_err *err)
{
    (void)r;
    (void)z;
    double squares = 0;
    exo_status st = exo_vec_sum_squares(x, m->mean, &squares, err);
    m->squares += squares;
    return st;
}

static exo_status
add_length(exo_replica *r, exo_array x, exo_array z, struct moments *m, exo_err *err)
{
    double length = 0;
    exo_vec_standardize(z, x, m->mean, m->squares > 0 ? 1.0 / sqrt(m->squares) : 0);
    exo_status st = exo_all_reduce(r->side_group, z, EXO_SUM, err);
    if (st == EXO_OK)
        st = exo_vec_sum_squares(z, 0, &length, err);
    m->length += length;
    return st;
}

/* Runs a step on each unit: x has the unit's values, z is scratch memory of the same size. */
static exo_status
on_each_unit(exo_replica *r, unit_step step, struct moments *m, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t u = 0; st == EXO_OK && u < r->node.num_units; u++) {
        exo_array x, z;
        st = exo_unit_open(r->average, u, &z, err);
        if (st == EXO_OK)
            st = use_unit(r, u, &x, err);
        if (st == EXO_OK)
            st = step(r, x, z, m, err);
        if (st == EXO_OK)
            st = done_with(r, u, err);
        exo_unit_close(r->average, u);
    }
    return st;
}

/* Let z_i be the centred parameters of node i, scaled to length 1. Then r_ij = z_i . z_j, and the
 * sum over all pairs i < j follows from the length of the sum: |sum z|^2 = N + 2 sum r_ij. */
exo_status
exo_replica_correlate(exo_replica *r, double *out, exo_err *err)
{
    struct moments m = {0};
    r->averaged = false; /* the average serves as scratch memory */
    exo_status st = need_average(r, err);
    if (st == EXO_OK)
        st = on_each_unit(r, add_sum, &m, err);
    m.mean = r->node.numel ? m.sum / (double)r->node.numel : 0;
    if (st == EXO_OK)
        st = on_each_unit(r, add_squares, &m, err);
    if (st == EXO_OK)
        st = on_each_unit(r, add_length, &m, err);
    if (st != EXO_OK)
        return st;
    double nodes = (double)r->node.num_nodes;
    *out = nodes > 1 ? (m.length - nodes) / (nodes * (nodes - 1)) : 1.0;
    return EXO_OK;
}
