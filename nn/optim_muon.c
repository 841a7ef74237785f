/* Muon's step of whole matrices: see optim_muon.h. All numbers are fp32. torch.optim.Muon computes
 * the Newton-Schulz iteration in bf16, which is faster on its devices and less exact. */
#include "nn/optim_muon.h"

#include <assert.h>
#include <math.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "nn/device/device_impl.h"

struct matrix {
    exo_newton_schulz_shape shape;
    exo_plan *plan;
};

struct exo_muon {
    exo_device *device;
    struct matrix *matrices; /* (count), of different shapes */
    size_t count;
    exo_optim_slices slices;   /* count 0: all matrices are whole */
    exo_optim_unit unit;       /* count 0: the optimizer has all of its matrices */
    size_t most;               /* elements of the largest matrix */
    size_t most_gathered;      /* of the largest one among members, in as many equal shards */
    size_t scratch_bytes;      /* of the shape that needs the most */
    exo_array update, scratch; /* (most) fp32, (scratch_bytes) */
    exo_array gathered;        /* (most_gathered) fp32 */
    exo_array all;             /* (unit.count) fp32, within a step: U of all members' pieces */
    exo_err failed;            /* of a step on the host, or of a gather; code OK: none */
};

exo_status
exo_muon_new(exo_muon **out, exo_device *device, exo_err *err)
{
    exo_muon *m = exo_calloc(1, sizeof *m);
    if (!m)
        return exo_fail(err, EXO_NOMEM, "no memory for muon");
    m->device = device;
    *out = m;
    return EXO_OK;
}

static void
release_memory(exo_muon *m)
{
    exo_array_release(&m->update);
    exo_array_release(&m->scratch);
    exo_array_release(&m->gathered);
    exo_array_release(&m->all);
}

void
exo_muon_free(exo_muon **muon)
{
    exo_muon *m = *muon;
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++)
        exo_plan_free(&m->matrices[i].plan);
    release_memory(m);
    exo_free(m->matrices);
    exo_free(m);
    *muon = NULL;
}

void
exo_muon_share(exo_muon *m, const exo_optim_slices *slices)
{
    m->slices = *slices;
}

void
exo_muon_shard(exo_muon *m, const exo_optim_unit *unit)
{
    m->unit = *unit;
}

/* The elements of a member's slice. */
static size_t
slice_numel(const exo_muon *m, uint32_t member, int slice)
{
    return exo_model_infos(m->slices.models[member])[slice].numel;
}

/* The elements of a shard, which has room for any member's slice. */
static size_t
shard_of(const exo_muon *m, int slice)
{
    size_t most = 0;
    for (uint32_t i = 0; i < m->slices.count; i++)
        most = slice_numel(m, i, slice) > most ? slice_numel(m, i, slice) : most;
    return most;
}

static struct matrix *
find(const exo_muon *m, size_t rows, size_t cols)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->matrices[i].shape.rows == rows && m->matrices[i].shape.cols == cols)
            return &m->matrices[i];
    return NULL;
}

exo_status
exo_muon_add(exo_muon *m, size_t rows, size_t cols, int slice, exo_err *err)
{
    const size_t gathered = slice == EXO_MUON_WHOLE ? 0 : m->slices.count * shard_of(m, slice);
    m->most_gathered = gathered > m->most_gathered ? gathered : m->most_gathered;
    if (find(m, rows, cols))
        return EXO_OK;
    struct matrix *more = exo_realloc(m->matrices, m->count + 1, sizeof *more);
    if (!more)
        return exo_fail(err, EXO_NOMEM, "no memory for muon");
    m->matrices = more;
    struct matrix *matrix = &more[m->count];
    *matrix = (struct matrix){.shape = {.rows = rows, .cols = cols}};
    exo_status st =
        exo_plan_new(&matrix->plan, m->device, EXO_SHAPE_NEWTON_SCHULZ, &matrix->shape, err);
    if (st != EXO_OK)
        return st;
    m->count++;
    size_t bytes = m->device->device_class->scratch(m->device, EXO_SHAPE_NEWTON_SCHULZ,
                                                    &matrix->shape, EXO_SCRATCH_FORWARD);
    m->most = rows * cols > m->most ? rows * cols : m->most;
    m->scratch_bytes = bytes > m->scratch_bytes ? bytes : m->scratch_bytes;
    return EXO_OK;
}

static exo_status
allocate(exo_muon *m, exo_err *err)
{
    exo_status st = exo_array_init(&m->update, m->device, EXO_F32, m->most, err);
    if (st == EXO_OK && m->scratch_bytes > 0)
        st = exo_array_init(&m->scratch, m->device, EXO_U8, m->scratch_bytes, err);
    if (st == EXO_OK && m->most_gathered > 0)
        st = exo_array_init(&m->gathered, m->device, EXO_F32, m->most_gathered, err);
    if (st == EXO_OK && m->unit.count > 0)
        st = exo_array_init(&m->all, m->device, EXO_F32, m->unit.count, err);
    return st;
}

exo_status
exo_muon_reserve(exo_muon *m, exo_err *err)
{
    return m->unit.count > 0 ? EXO_OK : allocate(m, err);
}

static double
rate_of(exo_muon_rate rate, double rows, double cols)
{
    switch (rate) {
    case EXO_MUON_ORIGINAL:
        return sqrt(fmax(1.0, rows / cols));
    case EXO_MUON_MATCH_RMS_ADAMW:
        return 0.2 * sqrt(fmax(rows, cols));
    }
    return 1.0;
}

/* The product kernels of a host may fail, and its device remembers nothing. */
static exo_status
orthogonalize(exo_muon *m, const exo_optim_spec *spec, const struct matrix *matrix)
{
    const exo_newton_schulz_args args = {.plan = matrix->plan,
                                         .x = m->update.data,
                                         .scratch = m->scratch.data,
                                         .a = (float)spec->ns_coefficients[0],
                                         .b = (float)spec->ns_coefficients[1],
                                         .c = (float)spec->ns_coefficients[2],
                                         .eps = (float)spec->eps,
                                         .steps = (size_t)spec->ns_steps};
    exo_err reason = {0};
    exo_status st = m->device->device_class->kernels->newton_schulz(m->device, &args, &reason);
    if (!m->device->device_class->is_host)
        exo_device_note(m->device, st, &reason);
    else if (st != EXO_OK && m->failed.code == EXO_OK)
        m->failed = reason;
    return st;
}

exo_status
exo_muon_result(const exo_muon *m, exo_err *err)
{
    if (m->failed.code != EXO_OK && err)
        *err = m->failed;
    return m->failed.code;
}

/* Copies a member's slice of the update, `part`, between the whole matrix and its own shape; put: into
 * the whole. */
static void
copy_slice(exo_muon *m, uint32_t member, int slice, float *part, bool put)
{
    const exo_param_info *info = &exo_model_infos(m->slices.models[member])[slice];
    const exo_param_cut *cut = exo_model_cut(m->slices.models[member], (size_t)slice);
    size_t rows = 1, inner = 1;
    for (size_t d = 0; d < cut->dim; d++)
        rows *= info->dims[d];
    for (size_t d = cut->dim + 1; d < info->num_dims; d++)
        inner *= info->dims[d];
    const size_t width = cut->whole * inner, own = info->dims[cut->dim] * inner;
    for (size_t b = 0; b < cut->num_bands; b++) {
        float *whole = (float *)m->update.data + cut->bands[b].first * inner;
        const size_t count = cut->bands[b].count * inner;
        exo_device_run(m->device, copy_columns, .rows = rows, .count = count,
                       .y_pitch = put ? width : own, .x_pitch = put ? own : width,
                       .y = put ? whole : part, .x = put ? part : whole);
        part += count;
    }
}

/* Gathers the slices of the update, of which this member's is in its shard, into the whole one. */
static exo_status
gather(exo_muon *m, int slice, size_t shard)
{
    exo_err reason = {0};
    const exo_array all = exo_array_part(m->gathered, 0, m->slices.count * shard);
    exo_status st = m->slices.gather(m->slices.context, all, &reason);
    if (st != EXO_OK) {
        m->failed = m->failed.code == EXO_OK ? reason : m->failed;
        return st;
    }
    for (uint32_t i = 0; i < m->slices.count; i++)
        copy_slice(m, i, slice, (float *)all.data + i * shard, true);
    return EXO_OK;
}

/* Leaves newton_schulz(U) in the place of U; `own`: of the member's slice. */
static exo_status
complete(exo_muon *m, const exo_optim_spec *spec, const struct matrix *matrix, int slice,
         size_t shard, float *own)
{
    if (slice == EXO_MUON_WHOLE)
        return orthogonalize(m, spec, matrix);
    exo_status st = gather(m, slice, shard);
    if (st == EXO_OK)
        st = orthogonalize(m, spec, matrix);
    if (st == EXO_OK)
        copy_slice(m, m->slices.rank, slice, own, false);
    return st;
}

/* Steps the momentum of n elements, and writes their U. */
static void
make_update(const exo_muon *m, const exo_optim_spec *spec, size_t n, const float *grad,
            float *buffer, float *update)
{
    exo_device_run(m->device, lerp, .count = n, .y = buffer, .t = (float)(1.0 - spec->momentum),
                   .x = grad);
    exo_device_run(m->device, scale, .count = n, .y = update, .a = 1.0f,
                   .x = spec->nesterov ? grad : buffer);
    if (spec->nesterov)
        exo_device_run(m->device, lerp, .count = n, .y = update, .t = (float)spec->momentum,
                       .x = buffer);
}

/* Steps n parameters of a matrix (rows, cols) by their newton_schulz(U). */
static void
apply(const exo_muon *m, const exo_optim_spec *spec, double lr, size_t rows, size_t cols, size_t n,
      float *param, const float *update)
{
    exo_device_run(m->device, scale, .count = n, .y = param,
                   .a = (float)(1.0 - lr * spec->weight_decay), .x = param);
    exo_device_run(m->device, axpy, .count = n, .y = param,
                   .a = (float)(-lr * rate_of(spec->adjust_lr, (double)rows, (double)cols)),
                   .x = update);
}

/* Where this member's U of a matrix is, or its slice of it. */
static float *
update_of(const exo_muon *m, int slice)
{
    return slice == EXO_MUON_WHOLE
               ? m->update.data
               : (float *)m->gathered.data + m->slices.rank * shard_of(m, slice);
}

void
exo_muon_step(exo_muon *m, const exo_optim_spec *spec, double lr, size_t rows, size_t cols,
              int slice, float *param, const float *grad, float *buffer)
{
    const bool whole = slice == EXO_MUON_WHOLE;
    const struct matrix *matrix = find(m, rows, cols);
    const size_t n = whole ? rows * cols : slice_numel(m, m->slices.rank, slice);
    const size_t shard = whole ? 0 : shard_of(m, slice);
    float *update = update_of(m, slice);
    assert(matrix);
    if (m->failed.code != EXO_OK)
        return; /* the other members may be at another matrix */
    make_update(m, spec, n, grad, buffer, update);
    if (complete(m, spec, matrix, slice, shard, update) == EXO_OK)
        apply(m, spec, lr, rows, cols, n, param, update);
}

/* --- Of a shard ------------------------------------------------------------------------------- */

/* Notes a failure; the first one is kept. */
static void
note(exo_muon *m, exo_status st, const exo_err *reason)
{
    if (st != EXO_OK && m->failed.code == EXO_OK)
        m->failed = *reason;
}

void
exo_muon_begin(exo_muon *m)
{
    exo_err reason = {0};
    if (m->failed.code == EXO_OK)
        note(m, allocate(m, &reason), &reason);
}

void
exo_muon_put(exo_muon *m, const exo_optim_spec *spec, const exo_muon_piece *p)
{
    if (m->failed.code == EXO_OK && p->count > 0)
        make_update(m, spec, p->count, p->grad, p->buffer, (float *)m->all.data + p->at + p->first);
}

void
exo_muon_gather(exo_muon *m)
{
    exo_err reason = {0};
    if (m->failed.code == EXO_OK)
        note(m, m->unit.gather(m->unit.context, m->all, &reason), &reason);
}

void
exo_muon_take(exo_muon *m, const exo_optim_spec *spec, double lr, const exo_muon_piece *p)
{
    const bool whole = p->slice == EXO_MUON_WHOLE;
    if (m->failed.code != EXO_OK || (whole && p->count == 0))
        return;
    float *update = update_of(m, p->slice);
    exo_device_run(m->device, scale, .count = p->numel, .y = update, .a = 1.0f,
                   .x = (float *)m->all.data + p->at);
    exo_status st = complete(m, spec, find(m, p->rows, p->cols), p->slice,
                             whole ? 0 : shard_of(m, p->slice), update);
    if (st == EXO_OK && p->count > 0)
        apply(m, spec, lr, p->rows, p->cols, p->count, p->param, update + p->first);
}

void
exo_muon_end(exo_muon *m)
{
    release_memory(m);
}
