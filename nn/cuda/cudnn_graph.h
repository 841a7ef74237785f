/* cuDNN's graphs for cudnn.cu and cudnn_attention.cu: descriptors, the choice of an engine, and its
 * execution.
 *
 * A graph's engine is the first one that cuDNN's heuristics advise among those whose bits are the same
 * in each run, whose sums are of fp32, and whose workspace is within a bound.
 *
 * State: none of its own. Read next: cudnn_graph.cu, cudnn_library.h. */
#ifndef EXO_CUDA_CUDNN_GRAPH_H
#define EXO_CUDA_CUDNN_GRAPH_H

#include "nn/cuda/cudnn.h"
#include "nn/cuda/cudnn_library.h"

enum {
    EXO_CUDNN_MOST_ADVICE = 64, /* engines of a heuristic; cuDNN 9.28 advises 40 */
    EXO_CUDNN_MOST_THINGS = 128,
    EXO_CUDNN_ALIGNMENT = 16 /* bytes, of arrays: their kernels on the tensor cores need it */
};

struct exo_cuda_cudnn {
    const exo_cudnn_table *call;
    exo_cudnn_handle handle;
    exo_cudnn_thing machine; /* in place of the handle: for tests, without a GPU */
    int ordinal;             /* of the GPU */
    bool tf32;
    exo_cuda_cudnn_attention *attentions; /* those that plans have; a list */
};

/* Descriptors, which are made one after the other until a call fails, and destroyed together. */
struct exo_cudnn_maker {
    const exo_cudnn_table *call;
    int status, count;
    exo_cudnn_thing things[EXO_CUDNN_MOST_THINGS];
};

/* A graph with a plan. */
struct exo_cudnn_pass {
    exo_cudnn_maker parts; /* what the plan was made of, which it may refer to */
    exo_cudnn_thing plan;  /* NULL: cuDNN does not compute it */
    size_t bytes;          /* of workspace */
};

exo_status exo_cudnn_check(const exo_cuda_cudnn *c, int status, const char *what, exo_err *err);
bool exo_cudnn_is_unsupported(int status);

exo_cudnn_thing exo_cudnn_make(exo_cudnn_maker *m, int kind);
void exo_cudnn_set_many(exo_cudnn_maker *m, exo_cudnn_thing thing, int attribute, int type,
                        int64_t count, const void *values);
exo_cudnn_thing exo_cudnn_finish(exo_cudnn_maker *m, exo_cudnn_thing thing);
void exo_cudnn_destroy_all(exo_cudnn_maker *m);

template <typename T>
static inline void
exo_cudnn_set(exo_cudnn_maker *m, exo_cudnn_thing thing, int attribute, int type, const T &value)
{
    exo_cudnn_set_many(m, thing, attribute, type, 1, &value);
}

exo_cudnn_thing exo_cudnn_make_graph(exo_cudnn_maker *m, const exo_cuda_cudnn *c, int64_t count,
                                     const exo_cudnn_thing *operations);

typedef struct exo_cudnn_choice {
    int64_t most_workspace;
    bool exact;             /* no engine that uses the tensor cores, or rounds operands */
    int64_t engine, advice; /* what was chosen, and from how many */
    int failure;            /* of the first plan that failed otherwise than as unsupported, or 0 */
    int64_t failed;         /* its engine */
} exo_cudnn_choice;

/* Chooses the engine of a pass and makes its plan. *found: there is one. Where a plan fails, the next advice is
 * taken and a warning names both engines; if none is left, or memory is what lacks, it is an error. Returns a
 * status of cuDNN. */
int exo_cudnn_choose(const exo_cuda_cudnn *c, exo_cudnn_pass *p, exo_cudnn_thing graph,
                     exo_cudnn_choice *choice, bool *found);
void exo_cudnn_destroy_pass(exo_cudnn_pass *p);

/* Arrays begin at a multiple of 16 bytes. */
exo_status exo_cudnn_check_arrays(size_t count, const void *const *arrays, const char *what,
                                  exo_err *err);
/* Memory of the pool, for the work that follows in the stream; *out is NULL for no bytes. */
exo_status exo_cudnn_take(exo_cuda_device *cuda, size_t bytes, const char *what, void **out,
                          exo_err *err);
void exo_cudnn_give(exo_cuda_device *cuda, void *memory, size_t bytes); /* accepts NULL */
exo_status exo_cudnn_execute(const exo_cuda_cudnn *c, const exo_cudnn_pass *p, int64_t count,
                             const int64_t *ids, const void *const *arrays, void *workspace,
                             const char *what, exo_err *err);

#endif
