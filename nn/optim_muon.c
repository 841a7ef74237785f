/* Muon's step of whole matrices: see optim_muon.h. All numbers are fp32. torch.optim.Muon computes
 * the Newton-Schulz iteration in bf16, which is faster on its devices and less exact. */
#include "nn/optim_muon.h"

#include <assert.h>
#include <math.h>

#include <exogym/memory.h>

#include "nn/device/device_impl.h"

struct matrix {
    exo_newton_schulz_shape shape;
    exo_plan *plan;
};

struct exo_muon {
    exo_device *device;
    struct matrix *matrices; /* (count), of different shapes */
    size_t count;
    size_t most;               /* elements of the largest matrix */
    size_t scratch_bytes;      /* of the shape that needs the most */
    exo_array update, scratch; /* (most) fp32, (scratch_bytes) */
    exo_err failed;            /* of a step on the host; code OK: none */
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

void
exo_muon_free(exo_muon **muon)
{
    exo_muon *m = *muon;
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++)
        exo_plan_free(&m->matrices[i].plan);
    exo_array_release(&m->update);
    exo_array_release(&m->scratch);
    exo_free(m->matrices);
    exo_free(m);
    *muon = NULL;
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
exo_muon_add(exo_muon *m, size_t rows, size_t cols, exo_err *err)
{
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

exo_status
exo_muon_reserve(exo_muon *m, exo_err *err)
{
    exo_status st = exo_array_init(&m->update, m->device, EXO_F32, m->most, err);
    if (st == EXO_OK && m->scratch_bytes > 0)
        st = exo_array_init(&m->scratch, m->device, EXO_U8, m->scratch_bytes, err);
    return st;
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

void
exo_muon_step(exo_muon *m, const exo_optim_spec *spec, double lr, size_t rows, size_t cols,
              float *param, const float *grad, float *buffer)
{
    const struct matrix *matrix = find(m, rows, cols);
    const size_t n = rows * cols;
    float *update = m->update.data;
    assert(matrix);
    exo_device_run(m->device, lerp, .count = n, .y = buffer, .t = (float)(1.0 - spec->momentum),
                   .x = grad);
    exo_device_run(m->device, scale, .count = n, .y = update, .a = 1.0f,
                   .x = spec->nesterov ? grad : buffer);
    if (spec->nesterov)
        exo_device_run(m->device, lerp, .count = n, .y = update, .t = (float)spec->momentum,
                       .x = buffer);
    if (orthogonalize(m, spec, matrix) != EXO_OK)
        return;
    exo_device_run(m->device, scale, .count = n, .y = param,
                   .a = (float)(1.0 - lr * spec->weight_decay), .x = param);
    exo_device_run(m->device, axpy, .count = n, .y = param,
                   .a = (float)(-lr * rate_of(spec->adjust_lr, (double)rows, (double)cols)),
                   .x = update);
}
