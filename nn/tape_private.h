/* The tape's own structure. It belongs to one thread at a time. These files share it: tape.c
 * (operations, backward), tape_memory.c (buffers, tensors), tape_checkpoint.c, tape_sink.c (final
 * gradients), tape_units.c (units), pass_values.c (metrics), tape_device.c and tape_error.c. Read
 * next: tape.c. */
#ifndef EXO_TAPE_PRIVATE_H
#define EXO_TAPE_PRIVATE_H

#include "nn/params_impl.h"
#include "nn/pass_values.h"
#include "nn/tape_run.h"

enum {
    TENSORS_PER_SLAB = 64
};

struct block {
    void *memory;
    size_t bytes;
    bool used;
    bool on_host; /* although the tape's device is not the host */
};

/* A request for a buffer, and the block that it got. */
struct request {
    size_t bytes, block;
};

struct slab {
    exo_tensor tensors[TENSORS_PER_SLAB];
    struct slab *next;
};

struct cached {
    const exo_op_class *op_class;
    void *signature;
    size_t signature_size;
    void *state;
};

struct metric {
    exo_pass_value known;
    const void *value; /* on the device, unless the form is HERE */
};

struct exo_tape {
    exo_device *device;
    exo_pass pass;
    struct exo_group *group, *context_group; /* of parts of models, and of tokens; the caller's */
    exo_params *params;
    exo_err error;
    exo_err reason;  /* why the last call on the device failed */
    bool begun;      /* the device's section of this pass has begun (exo_device_section_begin) */
    bool walked;     /* backward has run */
    bool rehearses;  /* its buffers are phantoms */
    bool again;      /* a checkpoint's part runs again */
    size_t most_ops; /* if so: the end of its places */
    /* The checkpoint whose part runs again, for exo_tape_recall; NULL: none. */
    exo_op *recalls;

    struct block *blocks;
    size_t num_blocks, cap_blocks;

    /* Of this pass; beyond num_requests those of earlier passes. */
    struct request *requests;
    size_t num_requests, cap_requests;

    struct slab *slabs; /* the first */
    struct slab *slab;  /* the one in use */
    size_t slab_used;

    exo_op *ops;
    size_t num_ops, cap_ops;
    size_t num_fp8;        /* layers with operands of fp8 */
    uint32_t next_ordinal; /* number of operations so far, checkpoints not counted */
    struct cached *cache;  /* by ordinal */
    size_t cap_cache;

    exo_tensor **param_tensors; /* of this pass, by parameter */
    size_t num_param_tensors;

    uint32_t units[EXO_MAX_INPUTS]; /* those that the pass is in */
    size_t num_units;

    struct metric metrics[EXO_TAPE_METRICS];
    size_t num_metrics;

    uint64_t allocations;
    size_t bytes;
    size_t real_bytes; /* of `bytes`, without phantoms */
    size_t padding;    /* of `bytes`, beyond what the buffers have */
};

/* Grows an array to at least `need` elements, and zeroes the new ones. False: no memory,
 * recorded. */
bool exo_tape_grow(exo_tape *tape, void **array, size_t *cap, size_t need, size_t size);
void exo_tape_free_blocks(exo_tape *tape);
/* Gives back the buffers of an operation whose backward has run. */
void exo_tape_op_done(exo_tape *tape, exo_op *op);

/* Enters the units of the operation's inputs, before its backward reads them (tape_units.c). */
exo_status exo_tape_use_again(exo_tape *tape, const exo_op *op, exo_err *err);

/* Counts down the uses of the parameters among the operation's inputs. Hands on or announces each
 * gradient that is final now (tape_sink.c). Errors: those of exo_grad_ready. */
exo_status exo_tape_sink_inputs(exo_tape *tape, const exo_op *op, exo_err *err);
/* At the end of backward: hands on zeros for, or announces, the parameters that the pass has not
 * used. */
exo_status exo_tape_sink_rest(exo_tape *tape, exo_err *err);

#endif
