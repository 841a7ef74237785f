/* Muon's step of whole matrices, and the memory that it needs for it. An exo_muon belongs to one
 * optimizer and its thread. Read next: optim_muon.c; nn/device/device_impl.h, newton_schulz. */
#ifndef EXO_OPTIM_MUON_H
#define EXO_OPTIM_MUON_H

#include <exogym/optim.h>

/* The plans of the shapes of an optimizer's matrices, and memory for one update at a time. */
typedef struct exo_muon exo_muon;

exo_status exo_muon_new(exo_muon **out, exo_device *device, exo_err *err);
/* Matrices are slices among these members from now on, before the first exo_muon_add. Of a host only. */
void exo_muon_share(exo_muon *muon, const exo_optim_slices *slices);
/* Accepts NULL in *muon, and sets it to NULL. */
void exo_muon_free(exo_muon **muon);
enum {
    EXO_MUON_WHOLE = -1 /* a matrix that this member has as a whole */
};

/* Prepares the steps of a matrix; those of a shape that was added before cost nothing. `slice`: the
 * number of the parameter that is this member's slice of it, or EXO_MUON_WHOLE. Errors: NOMEM, or the
 * device's. */
exo_status exo_muon_add(exo_muon *muon, size_t rows, size_t cols, int slice, exo_err *err);
/* Allocates the memory of the steps, after the last exo_muon_add. */
exo_status exo_muon_reserve(exo_muon *muon, exo_err *err);

/* One step of a matrix (rows, cols) of a shape that was added. param, grad and buffer are those of this
 * member's slice; U is gathered, and each member computes the whole of newton_schulz(U):
 *
 *     buffer = buffer + (1 - momentum) (grad - buffer)
 *     U      = nesterov ? grad + momentum (buffer - grad) : buffer
 *     param  = (1 - lr weight_decay) param - lr r(rows, cols) newton_schulz(U)
 *
 * r is spec->adjust_lr. The device remembers failures, and exo_muon_result those of the host. */
void exo_muon_step(exo_muon *muon, const exo_optim_spec *spec, double lr, size_t rows, size_t cols,
                   int slice, float *param, const float *grad, float *buffer);
/* The first failure of a step on the host, or of a gather. */
exo_status exo_muon_result(const exo_muon *muon, exo_err *err);

#endif
