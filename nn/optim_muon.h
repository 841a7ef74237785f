/* Muon's step of whole matrices, and the memory that it needs for it. An exo_muon belongs to one
 * optimizer and its thread. Of a shard, which has pieces of matrices, the updates of all members'
 * pieces are gathered in each step (exo_muon_shard).
 * Read next: optim_muon.c; nn/device/device_impl.h, newton_schulz. */
#ifndef EXO_OPTIM_MUON_H
#define EXO_OPTIM_MUON_H

#include <exogym/optim.h>

/* The plans of the shapes of an optimizer's matrices, and memory for one update at a time. */
typedef struct exo_muon exo_muon;

exo_status exo_muon_new(exo_muon **out, exo_device *device, exo_err *err);
/* Matrices are slices among these members from now on, before the first exo_muon_add. Of a host only. */
void exo_muon_share(exo_muon *muon, const exo_optim_slices *slices);
/* The optimizer has a shard of this unit from now on, before the first exo_muon_add. */
void exo_muon_shard(exo_muon *muon, const exo_optim_unit *unit);
/* Accepts NULL in *muon, and sets it to NULL. */
void exo_muon_free(exo_muon **muon);
enum {
    EXO_MUON_WHOLE = -1 /* a matrix that this member has as a whole */
};

/* Prepares the steps of a matrix; those of a shape that was added before cost nothing. `slice`: the
 * number of the parameter that is this member's slice of it, or EXO_MUON_WHOLE. Errors: NOMEM, or the
 * device's. */
exo_status exo_muon_add(exo_muon *muon, size_t rows, size_t cols, int slice, exo_err *err);
/* Allocates the memory of the steps, after the last exo_muon_add. That of a shard is allocated in each
 * step instead. */
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
/* A shard's piece of a matrix, or of this member's slice of one. */
typedef struct exo_muon_piece {
    size_t rows, cols;   /* of the whole matrix */
    int slice;           /* as exo_muon_add */
    size_t at, numel;    /* where the matrix, or the slice, begins in the unit; its elements */
    size_t first, count; /* the piece: of those elements; count 0: the shard has none of them */
    float *param;        /* (count) */
    const float *grad;   /* (count) */
    float *buffer;       /* (count) */
} exo_muon_piece;

/* exo_muon_step of all matrices of which a unit has pieces, in this order: begin, put for each piece,
 * gather, take for each piece, end. put makes the piece of U, gather is a collective of the members,
 * and take computes the matrix if the shard has some of it, or if it is a slice. After a failure they
 * do nothing but free their memory. */
void exo_muon_begin(exo_muon *muon);
void exo_muon_put(exo_muon *muon, const exo_optim_spec *spec, const exo_muon_piece *piece);
void exo_muon_gather(exo_muon *muon);
void exo_muon_take(exo_muon *muon, const exo_optim_spec *spec, double lr,
                   const exo_muon_piece *piece);
void exo_muon_end(exo_muon *muon);
/* The first failure of a step on the host, or of a gather. */
exo_status exo_muon_result(const exo_muon *muon, exo_err *err);

#endif
