/* Inside of tensors and the tape, for the engine's own files.
 *
 * Life of memory. Every buffer of a pass comes from the tape's pool (exo_tape_buffer) and goes back
 * to it when it is dead: an operation's output, its gradient and what the operation saved are dead
 * as soon as its backward function has run, as every consumer came later in the pass.
 * exo_tape_begin takes back the rest. A request gets the block that the request at the same place
 * of the last pass got, or the smallest idle one that is large enough: equal passes ask in equal
 * order, so from the second one on nothing is allocated.
 *
 * Layout. A tensor of 4 dimensions (N, C, H, W) lies in memory as (N, C, H, W) or channels-last as
 * (N, H, W, C); all others are row-major. Operations on images work on channels-last. */
#ifndef EXO_TAPE_IMPL_H
#define EXO_TAPE_IMPL_H

#include <stdint.h>

#include <exogym/tensor.h>

typedef enum exo_layout {
    EXO_ROW_MAJOR,
    EXO_CHANNELS_LAST,
} exo_layout;

/* The gradient of a table (V, W) of which only these rows are not whole yet. */
typedef struct exo_row_grads {
    int32_t *slot; /* (V): where a row's gradient is in `values`; -1: it has been handed on */
    int32_t *rows; /* (count): of the table                                                 */
    float *values; /* (count, W)                                                            */
    size_t count;
} exo_row_grads;

struct exo_tensor {
    exo_tape *tape;
    void *data;
    void *
        grad; /* like data; NULL until something is added. For parameters: their part of the flat fp32 gradients */
    size_t dims[EXO_MAX_DIMS];
    size_t num_dims;
    size_t numel;
    exo_dtype dtype;
    exo_layout layout;
    const void *
        host; /* of an input what the host has of it; NULL: the host has `data`, if the device's memory is the host's */
    bool needs_grad;
    bool is_param;   /* grad is not the tape's, or it goes to a sink: always added to */
    bool owns_data;  /* data is a block of the tape's pool      */
    bool keeps_grad; /* a variable: its gradient is read after backward */
    /* Of a parameter whose gradient is handed on or told of: */
    size_t offset;       /* in the flat parameters                                   */
    size_t uses;         /* operations of the pass that backward has still to come to */
    exo_row_grads *rows; /* in place of grad; NULL: not opened                        */
    bool handed_on;      /* all of it                                                 */
    /* Of a parameter, and of a view of one: */
    uint32_t unit; /* of a model's; EXO_NO_UNIT of any other tensor */
};

enum {
    EXO_MAX_INPUTS = 5,
    EXO_MAX_SAVED = 4
};

typedef struct exo_op exo_op;

/* One kind of operation. */
typedef struct exo_op_class {
    const char *name;
    /* Adds to the gradients of op->in[] from op->out->grad, which exists. */
    exo_status (*backward)(exo_tape *tape, exo_op *op, exo_err *err);
    /* Frees the cached state's contents. May be NULL. */
    void (*release)(void *state);
    /* Its result and saved[0] take little memory for the work that they are: a checkpoint keeps
     * those of the last such operation in it, and the operation asks exo_tape_recall when it runs
     * again. */
    bool remembered;
    /* Backward reads nothing of in[1], a table, and adds to those of its rows that in[0] (int32)
     * names, also where they are open: `rows`. */
    bool picks_rows;
    /* Backward reads nothing of in[1], a table: its unit may be absent there. */
    bool passes_table;
} exo_op_class;

/* One call of the pass. */
struct exo_op {
    const exo_op_class *op_class;
    exo_tensor *in[EXO_MAX_INPUTS];
    exo_tensor *out;
    void *saved[EXO_MAX_SAVED]; /* buffers of the pool that live until backward */
    void *state;                /* the cache's: primitives and plans            */
    float factor;
    size_t number;
    uint32_t ordinal; /* of the call in its pass, checkpoints not counted */
};

/* A tape whose buffers are phantoms (phantom.h): a pass over it takes the buffers that a pass
 * takes, and computes nothing of use. */
exo_status exo_tape_new_rehearsal(exo_tape **out, exo_err *err);
/* Whether it is one. */
bool exo_tape_rehearses(const exo_tape *tape);
/* Of exo_tape_bytes, what is really there. */
size_t exo_tape_real_bytes(const exo_tape *tape);

/* Whether this part of the pass runs for the second time, for a checkpoint: what is not
 * computation, as running statistics, has been done. */
bool exo_tape_again(const exo_tape *tape);
/* Whether the operation appended last is the last one of a part that runs again: nobody reads its
 * result, unless its own backward does. */
bool exo_tape_result_idle(const exo_tape *tape);

/* A tensor with uninitialized data from the pool. NULL: recorded in the tape. */
exo_tensor *exo_tape_tensor(exo_tape *tape, exo_dtype dtype, exo_layout layout, size_t num_dims,
                            const size_t *dims);
/* Another view of the same data (a reshape): shares data, has a gradient of its own. */
exo_tensor *exo_tape_view(exo_tape *tape, exo_tensor *of, exo_layout layout, size_t num_dims,
                          const size_t *dims);

/* A buffer of the pool, 64-byte aligned, uninitialized. NULL: recorded in the tape. */
void *exo_tape_buffer(exo_tape *tape, size_t bytes);
void exo_tape_buffer_done(exo_tape *tape, void *buffer);
/* The same in the host's memory: what the tape itself keeps. */
void *exo_tape_host_buffer(exo_tape *tape, size_t bytes);

/* For a class that is `remembered`, with `out` just made: whether a checkpoint has kept its result.
 * out->data and op->saved[0] are what they were then, and there is nothing to compute. */
bool exo_tape_recall(exo_tape *tape, exo_op *op, exo_tensor *out);

/* Appends an operation; it needs a gradient if the pass records and an input needs one. Every
 * operation is appended, so that ordinals, and with them caches and dropout streams, do not depend
 * on the kind of pass. */
exo_op *exo_tape_op(exo_tape *tape, const exo_op_class *op_class, exo_tensor *const *in,
                    size_t num_in);
/* For an operation whose inputs are not all the tape's: comes to the units of these before they are
 * read. False: recorded in the tape. */
bool exo_tape_use(exo_tape *tape, exo_tensor *const *in, size_t num_in);
/* Sets the output; takes over whether a gradient is needed. */
exo_tensor *exo_tape_finish(exo_tape *tape, exo_op *op, exo_tensor *out);

/* The state that the operation at the same place of an earlier pass left, if its class and
 * signature (plain bytes) are equal; otherwise a new zeroed one, and *fresh is true. NULL: recorded
 * in the tape. */
void *exo_tape_state(exo_tape *tape, exo_op *op, const void *signature, size_t signature_size,
                     size_t state_size, bool *fresh);
/* Forgets a state that could not be filled. */
void exo_tape_state_failed(exo_tape *tape, exo_op *op);
/* The same, and records why: that a product of `dtype` operands could not be planned. Gives
 * NULL. */
exo_tensor *exo_tape_plan_failed(exo_tape *tape, exo_op *op, exo_dtype dtype, exo_status status,
                                 const exo_err *err);

/* Where an operation's backward writes the gradient of `in`; *add says whether to add to what is
 * there or to overwrite: for parameters always to add. NULL if none is needed, or, with *st set, if
 * there is no memory. */
void *exo_tape_grad(exo_tape *tape, exo_tensor *in, bool *add, exo_status *st);
/* Hands the output's gradient buffer to `in` as its gradient, if `in` has none yet and they are
 * alike: then backward may work in place. Gives whether it did. */
bool exo_tape_steal_grad(exo_op *op, exo_tensor *in);

/* For an operation that knows the gradient of a parameter (V, W) row by row: whether it may hand
 * whole rows on with exo_tape_give_rows, all of them, once, in place of exo_tape_grad. False: the
 * pass has no sink, something has been added, what is still to come in backward is more than rows
 * picked, or, recorded in the tape, there is no memory. */
bool exo_tape_open_rows(exo_tape *tape, exo_tensor *param);
/* Rows [first, first + count) of an open parameter: `grad` (count, W). Any thread; inside loops. */
void exo_tape_give_rows(exo_tape *tape, exo_tensor *param, size_t first, size_t count,
                        const float *grad);

/* `x` in another layout or type, through an operation that is differentiable; `x` itself if it is
 * so already. */
exo_tensor *exo_to_layout(exo_tape *tape, exo_tensor *x, exo_layout layout);
exo_tensor *exo_to_dtype(exo_tape *tape, exo_tensor *x, exo_dtype dtype);
/* The type that matrix products and convolutions take their operands in. */
exo_dtype exo_compute_dtype(const exo_tape *tape);

/* "(2, 3, 4)" for messages; `out` has room for 96 characters. */
const char *exo_shape_text(const exo_tensor *t, char *out);
bool exo_same_shape(const exo_tensor *a, const exo_tensor *b);
/* fp32 or bf16: what kernels compute with. */
bool exo_is_float(const exo_tensor *t);
/* The elements where the host can read them; NULL: they are on a device that it cannot reach, and
 * nobody has them here. */
const void *exo_tensor_host(const exo_tensor *t);

#endif
