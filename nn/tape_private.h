/* The tape's own structure, shared by the files that make it up: tape.c (operations, forwards and
 * backwards), tape_memory.c (buffers and tensors), tape_checkpoint.c, tape_sink.c (gradients that
 * are handed on), tape_units.c (units that a pass comes to). */
#ifndef EXO_TAPE_PRIVATE_H
#define EXO_TAPE_PRIVATE_H

#include "nn/params_impl.h"
#include "nn/tape_run.h"

enum {
    TENSORS_PER_SLAB = 64
};

struct block {
    void *memory;
    size_t bytes;
    bool used;
    bool on_host; /* though the tape's device is another */
};

/* A call of exo_tape_buffer, and which block it got. */
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
    const exo_meter_class *meter_class;
    double mean;
    size_t count;
};

struct exo_tape {
    exo_device *device;
    exo_pass pass;
    exo_params *params;
    exo_err error;
    exo_err reason;  /* of the kernel asked for last */
    bool walked;     /* backward has run */
    bool rehearses;  /* its buffers are phantoms */
    bool again;      /* a checkpoint's part runs for the second time */
    size_t most_ops; /* then: where its places end */
    exo_op *
        recalls; /* the checkpoint whose part runs again; NULL: none, or what it has kept is taken */

    struct block *blocks;
    size_t num_blocks, cap_blocks;

    struct request *requests; /* of this pass, and beyond num_requests of passes before it */
    size_t num_requests, cap_requests;

    struct slab *slabs; /* first */
    struct slab *slab;  /* in use */
    size_t slab_used;

    exo_op *ops;
    size_t num_ops, cap_ops;
    uint32_t next_ordinal; /* operations without checkpoints */
    struct cached *cache;  /* by ordinal */
    size_t cap_cache;

    exo_tensor **param_tensors; /* by index, of this pass */
    size_t num_param_tensors;

    uint32_t units[EXO_MAX_INPUTS]; /* that the pass is in */
    size_t num_units;

    struct metric metrics[EXO_TAPE_METRICS];
    size_t num_metrics;

    uint64_t allocations;
    size_t bytes;
    size_t real_bytes; /* of them, those that are no phantoms */
};

/* Grows an array to hold at least `need` elements; what is new is zeroed. false: no memory,
 * recorded. */
bool exo_tape_grow(exo_tape *tape, void **array, size_t *cap, size_t need, size_t size);
void exo_tape_free_blocks(exo_tape *tape);
/* Gives back all that an operation holds once its backward has run. */
void exo_tape_op_done(exo_tape *tape, exo_op *op);

/* Before an operation's backward reads its inputs. (tape_units.c) */
exo_status exo_tape_use_again(exo_tape *tape, const exo_op *op, exo_err *err);

/* Counts a use of each parameter among the inputs as done, and hands on the gradients that are
 * whole by that, or tells of them: errors are those of exo_grad_ready. (tape_sink.c) */
exo_status exo_tape_sink_inputs(exo_tape *tape, const exo_op *op, exo_err *err);
/* After the last: the gradients of parameters that the pass has not used, to which it has added
 * nothing. */
exo_status exo_tape_sink_rest(exo_tape *tape, exo_err *err);

#endif
