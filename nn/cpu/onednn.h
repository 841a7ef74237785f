/* The basis of the oneDNN kernels: engine, streams, primitives and status codes. Private to
 * nn/cpu.
 *
 * oneDNN runs on the calling thread only. nn/cpu divides the work into pieces itself, so results
 * do not depend on the number of threads. Each thread has its own scratch memory, as large as the
 * largest primitive that it has run needs, so one primitive can run on many threads at the same
 * time. Read next: onednn.c; gemm.h, conv.h. */
#ifndef EXO_CPU_ONEDNN_H
#define EXO_CPU_ONEDNN_H

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

/* Makes the descriptor and the primitive of an operation descriptor. `op` must be zero. `hint`:
 * the forward descriptor, or NULL. The caller releases `op`, also after an error. */
exo_status exo_onednn_op_init(exo_onednn_op *op, const void *op_desc,
                              const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint,
                              const char *what, exo_err *err);
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
