/* The inside of tensors and the tape, for operations and the engine's own files.
 *
 * Life of a buffer. Every buffer of a pass comes from the tape's pool (exo_tape_buffer) and goes
 * back to it when nobody reads it any more. That holds for an operation's output, its gradient and
 * its saved buffers as soon as its backward function has run, because all consumers came later in
 * the pass. exo_tape_begin takes back the rest. A request gets the block that the request at the
 * same place of the last pass got, else the smallest idle block that fits. Equal passes ask in
 * equal order, so nothing is allocated from the second one on.
 *
 * Layout. A tensor of 4 dimensions (N, C, H, W) lies in memory as (N, C, H, W) or channels-last as
 * (N, H, W, C). All others are row-major. Operations on images work on channels-last.
 *
 * State: as the tape, all of it belongs to one thread at a time. Read next: tape_run.h, then ops/;
 * tape_private.h for the tape itself. */
#ifndef EXO_TAPE_IMPL_H
#define EXO_TAPE_IMPL_H

#include <stdint.h>

#include <exogym/tensor.h>

typedef enum exo_layout {
    EXO_ROW_MAJOR,
    EXO_CHANNELS_LAST,
} exo_layout;

/* The gradient of a table (V, W), of which only some rows are not final yet. */
typedef struct exo_row_grads {
    int32_t *slot; /* (V): a row's place in `values`; -1: the row is final */
    int32_t *rows; /* (count): the rows' numbers in the table */
    float *values; /* (count, W) */
    size_t count;
} exo_row_grads;

struct exo_tensor {
    exo_tape *tape;
    void *data;
    /* Has the type and shape of data. NULL until something is added. A parameter's is its part of
     * the flat fp32 gradients. */
    void *grad;
    size_t dims[EXO_MAX_DIMS];
    size_t num_dims;
    size_t numel;
    exo_dtype dtype;
    exo_layout layout;
    /* Of an input, the caller's data in host memory. NULL: the host has `data` itself, if it
     * reaches the device's memory. */
    const void *host;
    bool needs_grad;
    /* The gradient lies in the model's copy or goes to a sink; operations always add to it. */
    bool is_param;
    bool owns_data;  /* data is a block of the tape's pool */
    bool keeps_grad; /* a variable: its gradient is read after backward */
    /* Of a result of an activation: the pre-activation, for the only operation that uses the result
     * and computes its gradient; NULL: it computes that of the result. */
    const void *before;
    uint32_t activation; /* an exo_activation */
    bool grad_is_before; /* grad is that of the pre-activation */
    /* Of a result in fp32 whose operation reads the gradient as bf16: the last operation that adds to
     * grad may round it there, too. NULL: nobody has, or grad has changed since. */
    void *rounded_grad;
    bool rounds_grad;
    size_t uses; /* by operations; of a parameter, by those that backward has not reached */
    /* Of a parameter whose gradient goes to a sink or is announced: */
    size_t offset;       /* in the flat parameters */
    exo_row_grads *rows; /* in place of grad; NULL: not opened */
    bool handed_on;      /* the whole gradient has been handed on or announced */
    /* Of a parameter, or of a view of one: */
    uint32_t unit; /* a unit of the model; any other tensor: EXO_NO_UNIT */
};

enum {
    EXO_MAX_INPUTS = 10,
    EXO_MAX_SAVED = 12
};

typedef struct exo_op exo_op;

/* A kind of operation. */
typedef struct exo_op_class {
    const char *name;
    /* Adds to the gradients of op->in[]. Reads op->out->grad, which is there. */
    exo_status (*backward)(exo_tape *tape, exo_op *op, exo_err *err);
    /* Releases what the cached state holds. May be NULL. */
    void (*release)(void *state);
    /* The result and saved[0] take little memory for the work of computing them. A checkpoint keeps
     * those of its last such operation, and the operation asks exo_tape_recall when it runs
     * again. */
    bool remembered;
    /* Backward does not read in[1], a table. It adds to the rows that in[0] (int32) names, and can
     * add to exo_tensor.rows in place of grad. */
    bool picks_rows;
    /* Backward does not read in[1], a table, so its unit may be absent there. */
    bool passes_table;
    /* Backward does not read in[0], so its unit may be absent there. */
    bool passes_input;
} exo_op_class;

/* A call of an operation in the pass. */
struct exo_op {
    const exo_op_class *op_class;
    exo_tensor *in[EXO_MAX_INPUTS];
    exo_tensor *out;
    void *saved[EXO_MAX_SAVED]; /* buffers of the pool that live until backward */
    void *state;                /* the cached state, such as plans */
    float factor;
    size_t number;
    uint32_t ordinal; /* number of the call in its pass, checkpoints not counted */
};

/* Whether the tape is one of exo_tape_new_rehearsal. */
bool exo_tape_rehearses(const exo_tape *tape);
/* The part of exo_tape_bytes that is real memory. */
size_t exo_tape_real_bytes(const exo_tape *tape);
/* The part of exo_tape_bytes by which large buffers are rounded up to huge pages. */
size_t exo_tape_padding(const exo_tape *tape);

/* Whether a checkpoint runs this part of the pass for the second time. What is not computation,
 * such as an update of running statistics, has been done then. */
bool exo_tape_again(const exo_tape *tape);
/* Whether the operation appended last is the last one of a part that runs again. Then nobody reads
 * its result, except its own backward. */
bool exo_tape_result_idle(const exo_tape *tape);

/* A tensor of this pass with uninitialized data from the pool. NULL: recorded in the tape. */
exo_tensor *exo_tape_tensor(exo_tape *tape, exo_dtype dtype, exo_layout layout, size_t num_dims,
                            const size_t *dims);
/* A tensor with the data of `of` in another shape, and with a gradient of its own. NULL: recorded
 * in the tape. */
exo_tensor *exo_tape_view(exo_tape *tape, exo_tensor *of, exo_layout layout, size_t num_dims,
                          const size_t *dims);

/* A buffer of the pool, 64-byte aligned, uninitialized; exo_tape_buffer_done gives it back before
 * the end of the pass. NULL: recorded in the tape. */
void *exo_tape_buffer(exo_tape *tape, size_t bytes);
void exo_tape_buffer_done(exo_tape *tape, void *buffer);
/* The same in host memory, for data that the host reads or writes. */
void *exo_tape_host_buffer(exo_tape *tape, size_t bytes);

/* For a `remembered` class, called when `out` has just been made. True: a checkpoint has kept the
 * result; out->data and op->saved[0] hold it now, and there is nothing to compute. */
bool exo_tape_recall(exo_tape *tape, exo_op *op, exo_tensor *out);

/* Appends an operation and counts the uses of its inputs. Every operation is appended, also in
 * a pass without gradients, so that ordinals, and with them caches and dropout streams, do not
 * depend on the kind of pass. NULL: recorded in the tape. */
exo_op *exo_tape_op(exo_tape *tape, const exo_op_class *op_class, exo_tensor *const *in,
                    size_t num_in);
/* Enters the units of the inputs before they are read. exo_tape_op does so by itself; an operation
 * with inputs that exo_tape_op does not get calls this first. False: recorded in the tape. */
bool exo_tape_use(exo_tape *tape, exo_tensor *const *in, size_t num_in);
/* Sets the operation's output, which needs a gradient if an input does. NULL: out is NULL, or the
 * pass has an error. */
exo_tensor *exo_tape_finish(exo_tape *tape, exo_op *op, exo_tensor *out);

/* The state that the operation at the same place of an earlier pass left, if its class and
 * signature (plain bytes) are equal. Otherwise a new one, zeroed, and *fresh is true. NULL:
 * recorded in the tape. */
void *exo_tape_state(exo_tape *tape, exo_op *op, const void *signature, size_t signature_size,
                     size_t state_size, bool *fresh);
/* Drops a new state that could not be filled. */
void exo_tape_state_failed(exo_tape *tape, exo_op *op);
/* The same, and records the error of a plan whose operands are `dtype`. Returns NULL. */
exo_tensor *exo_tape_plan_failed(exo_tape *tape, exo_op *op, exo_dtype dtype, exo_status status,
                                 const exo_err *err);

/* The memory for the gradient of `in` in an operation's backward. *add: add to it, as always for
 * parameters; else overwrite it. NULL: no gradient is needed; or, with *st set, an error. */
void *exo_tape_grad(exo_tape *tape, exo_tensor *in, bool *add, exo_status *st);
/* Makes the output's gradient the gradient of `in`, if `in` has none yet and both have one type and
 * size, so that backward works in place. Returns whether it did. */
bool exo_tape_steal_grad(exo_op *op, exo_tensor *in);

/* For an operation that computes the gradient of a parameter (V, W) row by row. True: it hands on
 * every row once, with exo_tape_give_rows, in place of exo_tape_grad. False: the pass has no sink,
 * the parameter already has a gradient, a later operation of backward does more than pick rows, or
 * there is no memory, recorded in the tape. */
bool exo_tape_open_rows(exo_tape *tape, exo_tensor *param);
/* Hands on rows [first, first + count) of an open parameter: grad (count, W). Any thread, inside
 * parallel loops. */
void exo_tape_give_rows(exo_tape *tape, exo_tensor *param, size_t first, size_t count,
                        const float *grad);

/* x in another layout or type, through an operation with a gradient; x itself if it has that layout
 * or type. NULL: x is NULL, or recorded in the tape. */
exo_tensor *exo_to_layout(exo_tape *tape, exo_tensor *x, exo_layout layout);
exo_tensor *exo_to_dtype(exo_tape *tape, exo_tensor *x, exo_dtype dtype);
/* The type of the operands of matrix products and convolutions, but for those of fp8. */
exo_dtype exo_compute_dtype(const exo_tape *tape);
/* Whether a linear layer of these sizes has operands of fp8. The tape counts those that do. */
bool exo_tape_fp8(exo_tape *tape, size_t rows, size_t in, size_t out);

/* Writes a shape for messages, such as "(2, 3, 4)". `out` has room for 96 characters; returns
 * it. */
const char *exo_shape_text(const exo_tensor *t, char *out);
bool exo_same_shape(const exo_tensor *a, const exo_tensor *b);
/* Whether kernels compute with its type: fp32 or bf16. */
bool exo_is_float(const exo_tensor *t);
/* The elements in host memory. NULL: they are on a device that the host does not reach, and the
 * host has no copy. */
const void *exo_tensor_host(const exo_tensor *t);

#endif
