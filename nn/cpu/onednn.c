/* The engine, streams and primitives of oneDNN. Streams belong to their threads; the rest is read-only once made. */
#include "onednn.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <threads.h>

/* libgomp's; omp.h is not where every compiler looks. Sets a variable of the calling thread only. */
extern void omp_set_num_threads(int threads);

enum {
    MAX_ARGS = 6
};

dnnl_engine_t
exo_onednn_engine(void)
{
    static _Atomic(dnnl_engine_t) shared;
    dnnl_engine_t engine = atomic_load(&shared);
    if (engine)
        return engine;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        return NULL;
    dnnl_engine_t expected = NULL;
    if (atomic_compare_exchange_strong(&shared, &expected, engine))
        return engine;
    dnnl_engine_destroy(engine);
    return expected;
}

/* A thread's stream ends with it. */
static tss_t stream_key;

static void
destroy_stream(void *stream)
{
    dnnl_stream_destroy(stream);
}

static void
make_stream_key(void)
{
    if (tss_create(&stream_key, destroy_stream) != thrd_success)
        abort(); /* at the first use of the engine, before there is anything to lose */
}

dnnl_stream_t
exo_onednn_stream(void)
{
    static once_flag once = ONCE_FLAG_INIT;
    static _Thread_local dnnl_stream_t stream;
    if (stream)
        return stream;
    call_once(&once, make_stream_key);
    omp_set_num_threads(1);
    dnnl_engine_t engine = exo_onednn_engine();
    if (!engine || dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success)
        stream = NULL;
    if (stream && tss_set(stream_key, stream) != thrd_success) {
        dnnl_stream_destroy(stream);
        stream = NULL;
    }
    return stream;
}

dnnl_data_type_t
exo_onednn_type(exo_dtype dtype)
{
    return dtype == EXO_BF16 ? dnnl_bf16 : dnnl_f32;
}

exo_status
exo_onednn_check(dnnl_status_t status, const char *what, exo_err *err)
{
    switch (status) {
    case dnnl_success:
        return EXO_OK;
    case dnnl_out_of_memory:
        return exo_fail(err, EXO_NOMEM, "%s: no memory", what);
    case dnnl_unimplemented:
        return exo_fail(err, EXO_UNSUPPORTED, "%s: oneDNN has no kernel for this processor, shape and type", what);
    default:
        return exo_fail(err, EXO_FAILED, "%s: oneDNN status %d", what, (int)status);
    }
}

exo_status
exo_onednn_op_init(exo_onednn_op *op, const void *op_desc, const_dnnl_primitive_attr_t attr,
                   const_dnnl_primitive_desc_t hint, const char *what, exo_err *err)
{
    if (!exo_onednn_stream())
        return exo_fail(err, EXO_FAILED, "%s: oneDNN does not start", what);
    exo_status st =
        exo_onednn_check(dnnl_primitive_desc_create(&op->desc, op_desc, attr, exo_onednn_engine(), hint), what, err);
    if (st == EXO_OK)
        st = exo_onednn_check(dnnl_primitive_create(&op->primitive, op->desc), what, err);
    if (st == EXO_OK)
        op->scratch = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(op->desc, dnnl_query_scratchpad_md, 0));
    return st;
}

void
exo_onednn_op_release(exo_onednn_op *op)
{
    if (op->primitive)
        dnnl_primitive_destroy(op->primitive);
    if (op->desc)
        dnnl_primitive_desc_destroy(op->desc);
    *op = (exo_onednn_op){0};
}

exo_status
exo_onednn_run(const exo_onednn_op *op, size_t count, const exo_onednn_arg *args, exo_err *err)
{
    dnnl_exec_arg_t list[MAX_ARGS];
    dnnl_stream_t stream = exo_onednn_stream();
    if (!stream)
        return exo_fail(err, EXO_FAILED, "oneDNN does not start");
    for (size_t i = 0; i < count; i++) {
        dnnl_memory_set_data_handle(args[i].memory, args[i].data);
        list[i] = (dnnl_exec_arg_t){.arg = args[i].name, .memory = args[i].memory};
    }
    return exo_onednn_check(dnnl_primitive_execute(op->primitive, stream, (int)count, list), "execution", err);
}
