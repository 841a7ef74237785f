/* CUDA graphs of passes that come again: the kernels of a pass, recorded, start with one call.
 *
 * A pass is known by its key: the shape and the addresses that its kernels get. The first time, its
 * kernels are started one by one, as many passes come once only; the second time they are recorded
 * and made a graph; from then on the graph is launched. A plan has a few graphs, and forgets the one
 * that it has not used for longest.
 *
 * A pass may meet others between its kernels, on the host. Then it has a graph for the kernels up to each
 * meeting, and the meetings are called between the launches. All graphs of a pass are made before the first one
 * is launched.
 *
 * CUDA may refuse a graph: it has no memory for one, or a kernel that was never launched has to be loaded first,
 * which a capture does not allow (CUDA_MODULE_LOADING=LAZY, CUDA's default). Then the kernels are started one by
 * one, with the same bits, and the log says why. Recording changes nothing but what libraries know of shapes.
 *
 * Owner: the plan. Read next: graphs.cu, decoder.cu; sections.h, for steps of training. */
#ifndef EXO_CUDA_GRAPHS_H
#define EXO_CUDA_GRAPHS_H

#include "nn/cuda/device.h"

enum {
    EXO_CUDA_GRAPHS = 8,
    EXO_CUDA_KEY_BYTES = 96,
    EXO_CUDA_REFUSALS = 16 /* of graphs of a device, and then it records no more */
};

/* A call of others: `meet` orders its work behind that of the device's stream. All of it follows from
 * the key of the pass. */
typedef struct exo_cuda_meeting {
    void (*meet)(void *context, float *data, size_t count);
    void *context;
    float *data;
    size_t count;
} exo_cuda_meeting;

/* Kernels, and the meeting behind them; meet is NULL at the end of a pass. */
typedef struct exo_cuda_piece {
    cudaGraphExec_t exec;
    exo_cuda_meeting meeting;
} exo_cuda_piece;

typedef struct exo_cuda_graph {
    unsigned char key[EXO_CUDA_KEY_BYTES]; /* filled up with zeros */
    uint64_t used;                         /* the number of its last pass; 0: no pass */
    exo_cuda_piece *pieces;
    size_t num_pieces, room; /* 0: came once */
} exo_cuda_graph;

typedef struct exo_cuda_graphs {
    exo_cuda_graph graph[EXO_CUDA_GRAPHS];
    uint64_t passes;
    exo_cuda_graph *recorded; /* of the pass under way: nobody is met; or NULL */
    size_t met;        /* meetings of it that have been before, with the kernels up to them */
    exo_status status; /* of its recording, */
    exo_err err;       /* and the reason */
} exo_cuda_graphs;

/* Starts the kernels of a pass on the device's stream; it makes no calls of CUDA that a capture
 * refuses. What it computes depends on its key and on nothing that it writes: before others are met, it may be
 * started anew. */
typedef exo_status (*exo_cuda_pass)(exo_device *device, const void *args, exo_err *err);

/* recorders.cu. Whether passes of the device are recorded: CUDA has not refused too many graphs. */
bool exo_cuda_may_record(const exo_cuda_device *cuda);
/* Begins to record passes on the device's GPU. False: it is kept from recordings
 * (side.h), and the pass is started as it is. Else exo_cuda_end_recording. */
bool exo_cuda_begin_recording(const exo_cuda_device *cuda);
void exo_cuda_end_recording(const exo_cuda_device *cuda);
/* Counts and logs a graph that CUDA has refused, and whose kernels have been started one by one. */
void exo_cuda_refused_graph(exo_cuda_device *cuda, const exo_err *reason);
/* Records the kernels of a pass, between these. The caller destroys *out. Errors: those of the pass,
 * FAILED. */
exo_status exo_cuda_record(exo_cuda_device *cuda, exo_cuda_pass pass, const void *args,
                           cudaGraph_t *out, exo_err *err);

/* For a pass under way: meets others behind the kernels so far. */
void exo_cuda_graphs_meet(exo_cuda_graphs *graphs, exo_cuda_device *cuda,
                          const exo_cuda_meeting *meeting);
/* Asks for the pass whose key, of up to EXO_CUDA_KEY_BYTES, this is. */
exo_status exo_cuda_graphs_run(exo_cuda_graphs *graphs, exo_cuda_device *cuda, const void *key,
                               size_t bytes, exo_cuda_pass pass, const void *args, exo_err *err);
/* Waits for the device's stream if there are graphs. Accepts NULL. */
void exo_cuda_graphs_free(exo_cuda_graphs *graphs, exo_cuda_device *cuda);

#endif
