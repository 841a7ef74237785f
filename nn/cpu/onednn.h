/* The basis of the oneDNN kernels: engine, streams, primitives and status codes. Private to
 * nn/cpu.
 *
 * oneDNN runs on the calling thread only. nn/cpu divides the work into pieces itself, so results
 * do not depend on the number of threads. Each thread has its own scratch memory, as large as the
 * largest primitive that it has run needs, so one primitive can run on many threads at the same
 * time. oneDNN 2 and 3 differ in how operations are described: onednn_ops.c has both. Read next:
 * onednn.c; gemm.h, conv.h. */
#ifndef EXO_CPU_ONEDNN_H
#define EXO_CPU_ONEDNN_H

#include <stdbool.h>

#include <dnnl.h>

#include <exogym/status.h>
#include <exogym/tensor.h>

/* The engine of this process, made at first use; NULL if oneDNN cannot make one. */
dnnl_engine_t exo_onednn_engine(void);
/* The stream of the calling thread, which lives as long as the thread. The first call limits the
 * thread to one OpenMP thread. NULL: oneDNN does not start. */
dnnl_stream_t exo_onednn_stream(void);
dnnl_data_type_t exo_onednn_type(exo_dtype dtype);
/* EXO_OK, NOMEM, UNSUPPORTED (oneDNN has no such kernel) or FAILED; the text begins with `what`. */
exo_status exo_onednn_check(dnnl_status_t status, const char *what, exo_err *err);

/* A primitive with its descriptor. */
typedef struct exo_onednn_op {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    size_t scratch; /* bytes */
} exo_onednn_op;

/* A descriptor of memory: a struct in oneDNN 2, a handle in oneDNN 3. */
#if DNNL_VERSION_MAJOR < 3
typedef dnnl_memory_desc_t exo_onednn_layout;
#else
typedef struct dnnl_memory_desc exo_onednn_layout;
#endif

/* The layout of a tag (dnnl_format_tag_any: the primitive chooses), or of strides. The caller frees
 * it. Errors: those of exo_onednn_check. */
exo_status exo_onednn_layout_new(exo_onednn_layout **out, int axes, const dnnl_dims_t dims,
                                 dnnl_data_type_t type, dnnl_format_tag_t tag, exo_err *err);
exo_status exo_onednn_layout_strided(exo_onednn_layout **out, const dnnl_dims_t dims,
                                     dnnl_data_type_t type, const dnnl_dims_t strides,
                                     exo_err *err);
void exo_onednn_layout_free(exo_onednn_layout **layout);

/* The layout that a primitive has for one of its arguments; `op` owns it. */
const exo_onednn_layout *exo_onednn_query(const exo_onednn_op *op, dnnl_query_t what, int index);

/* The attributes of a primitive whose scratch memory is the thread's. add: the result is added to
 * what is there. The caller destroys them, also after an error. */
exo_status exo_onednn_attributes(dnnl_primitive_attr_t *out, bool add, exo_err *err);

/* Make the descriptor and the primitive of a product of matrices, or of a convolution. `op` must be
 * zero; the caller releases it, also after an error. bias: NULL without one. forward: the forward
 * convolution. Errors: those of exo_onednn_check, FAILED if oneDNN does not start. */
exo_status exo_onednn_matmul(exo_onednn_op *op, const exo_onednn_layout *a,
                             const exo_onednn_layout *b, const exo_onednn_layout *bias,
                             const exo_onednn_layout *c, const_dnnl_primitive_attr_t attr,
                             exo_err *err);

typedef struct exo_onednn_conv {
    const exo_onednn_layout *x, *weights, *bias, *y;
    dnnl_dims_t stride, padding, padding_end;
    const_dnnl_primitive_attr_t attr;
} exo_onednn_conv;

exo_status exo_onednn_conv_forward(exo_onednn_op *op, const exo_onednn_conv *conv, bool training,
                                   exo_err *err);
exo_status exo_onednn_conv_data(exo_onednn_op *op, const exo_onednn_conv *conv,
                                const exo_onednn_op *forward, exo_err *err);
exo_status exo_onednn_conv_weights(exo_onednn_op *op, const exo_onednn_conv *conv,
                                   const exo_onednn_op *forward, exo_err *err);
void exo_onednn_op_release(exo_onednn_op *op);

/* One argument of an execution. */
typedef struct exo_onednn_arg {
    int name; /* DNNL_ARG_... */
    dnnl_memory_t memory;
    void *data; /* ignored for DNNL_ARG_SCRATCHPAD, which is the thread's memory */
} exo_onednn_arg;

/* Runs a primitive on the calling thread, with up to 6 arguments. */
exo_status exo_onednn_run(const exo_onednn_op *op, size_t count, const exo_onednn_arg *args,
                          exo_err *err);

#endif
