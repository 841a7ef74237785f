/* What the oneDNN kernels share: engine, stream, one thread a call, status codes. Private to nn/cpu.
 *
 * oneDNN runs on the calling thread alone: the engine splits work into pieces itself, so that results do not depend on how many
 * threads there are. Scratch memory is the thread's, as large as the largest that it has run, so one primitive runs on many threads at once. */
#ifndef EXO_CPU_ONEDNN_H
#define EXO_CPU_ONEDNN_H

#include <dnnl.h>

#include <exogym/status.h>
#include <exogym/tensor.h>

/* The engine of this process, made at first use; NULL if oneDNN cannot make one. */
dnnl_engine_t exo_onednn_engine(void);
/* A stream of the calling thread, which is from here on told to use one OpenMP thread. It ends with its thread. NULL: oneDNN does not start. */
dnnl_stream_t exo_onednn_stream(void);
dnnl_data_type_t exo_onednn_type(exo_dtype dtype);
/* EXO_OK, or the failure with `what` in its text. */
exo_status exo_onednn_check(dnnl_status_t status, const char *what, exo_err *err);

/* A primitive with its descriptor. */
typedef struct exo_onednn_op {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    size_t scratch; /* bytes */
} exo_onednn_op;

/* Makes descriptor and primitive of an operation descriptor. `hint` is the forward descriptor, or NULL. */
exo_status exo_onednn_op_init(exo_onednn_op *op, const void *op_desc,
                              const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint,
                              const char *what, exo_err *err);
void exo_onednn_op_release(exo_onednn_op *op);

/* One argument of an execution. */
typedef struct exo_onednn_arg {
    int name; /* DNNL_ARG_... */
    dnnl_memory_t memory;
    void *data; /* of DNNL_ARG_SCRATCHPAD nothing: it is the thread's */
} exo_onednn_arg;

/* Runs a primitive on the calling thread with up to 5 arguments. */
exo_status exo_onednn_run(const exo_onednn_op *op, size_t count, const exo_onednn_arg *args,
                          exo_err *err);

#endif
