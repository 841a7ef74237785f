/* The engine, the streams and the primitives of oneDNN: see onednn.h. A thread owns its stream and
 * its scratch memory; the rest is read-only once made. */
#include "nn/cpu/onednn.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <threads.h>

#include <exogym/memory.h>

/* Of libgomp, for the calling thread only. Declared here, because not every compiler finds
 * omp.h. */
extern void omp_set_num_threads(int threads);

enum {
    MAX_ARGS = 6 /* of an execution */
};

dnnl_engine_t
exo_onednn_engine(void)
{
    static _Atomic(dnnl_engine_t) shared;
    dnnl_engine_t engine = atomic_load(&shared);
    if (engine)
        return engine;
    /* Otherwise the first primitive looks for VTune with dlopen, whose message of failure belongs to
     * the calling thread and looks like a leak if the process ends with it. */
    if (!getenv("DNNL_JIT_PROFILE"))
        dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_NONE);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        return NULL;
    dnnl_engine_t expected = NULL;
    if (atomic_compare_exchange_strong(&shared, &expected, engine))
        return engine;
    dnnl_engine_destroy(engine);
    return expected;
}

/* The state of one thread, which is destroyed when the thread ends. */
struct thread {
    dnnl_stream_t stream;
    void *scratch;
    size_t scratch_size;
};

static tss_t thread_key;
static _Thread_local struct thread this_thread;

static void
destroy_thread(void *argument)
{
    struct thread *t = argument;
    dnnl_stream_destroy(t->stream);
    exo_free(t->scratch);
    *t = (struct thread){0};
}

static void
make_thread_key(void)
{
    if (tss_create(&thread_key, destroy_thread) != thrd_success)
        abort(); /* at the first use of the engine, so no results are lost */
}

static struct thread *
get_thread(void)
{
    static once_flag once = ONCE_FLAG_INIT;
    struct thread *t = &this_thread;
    if (t->stream)
        return t;
    call_once(&once, make_thread_key);
    omp_set_num_threads(1);
    dnnl_engine_t engine = exo_onednn_engine();
    if (!engine ||
        dnnl_stream_create(&t->stream, engine, dnnl_stream_default_flags) != dnnl_success)
        t->stream = NULL;
    if (t->stream && tss_set(thread_key, t) != thrd_success)
        destroy_thread(t);
    return t->stream ? t : NULL;
}

dnnl_stream_t
exo_onednn_stream(void)
{
    struct thread *t = get_thread();
    return t ? t->stream : NULL;
}

/* The thread's scratch memory, of at least `size` bytes. NULL: no memory. */
static void *
get_scratch(struct thread *t, size_t size)
{
    if (t->scratch_size < size) {
        exo_free(t->scratch);
        t->scratch = exo_alloc_aligned(size);
        t->scratch_size = t->scratch ? size : 0;
    }
    return t->scratch;
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
        return exo_fail(err, EXO_UNSUPPORTED,
                        "%s: oneDNN has no kernel for this processor, shape and type", what);
    default:
        return exo_fail(err, EXO_FAILED, "%s: oneDNN status %d", what, (int)status);
    }
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
    struct thread *t = get_thread();
    if (!t)
        return exo_fail(err, EXO_FAILED, "oneDNN does not start");
    for (size_t i = 0; i < count; i++) {
        bool scratch = args[i].name == DNNL_ARG_SCRATCHPAD;
        void *data = scratch ? get_scratch(t, op->scratch) : args[i].data;
        if (!data)
            return exo_fail(err, EXO_NOMEM, "no memory for the %zu bytes of scratch of a product",
                            op->scratch);
        dnnl_memory_set_data_handle(args[i].memory, data);
        list[i] = (dnnl_exec_arg_t){.arg = args[i].name, .memory = args[i].memory};
    }
    return exo_onednn_check(dnnl_primitive_execute(op->primitive, t->stream, (int)count, list),
                            "execution", err);
}
