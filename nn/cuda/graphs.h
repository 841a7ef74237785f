/* CUDA graphs of passes that come again: the kernels of a pass, recorded, start with one call.
 *
 * A pass is known by its key: the shape and the addresses that its kernels get. The first time, its
 * kernels are started one by one, as many passes come once only; the second time they are recorded
 * and made a graph; from then on the graph is launched. A plan has a few graphs, and forgets the one
 * that it has not used for longest.
 *
 * A pass may meet others between its kernels, on the host. Then it has a graph for the kernels up to each
 * meeting, and the meetings are called again, between the launches.
 *
 * Owner: the plan. Read next: graphs.cu, decoder.cu; sections.h, for steps of training. */
#ifndef EXO_CUDA_GRAPHS_H
#define EXO_CUDA_GRAPHS_H

#include "nn/cuda/device.h"

enum {
    EXO_CUDA_GRAPHS = 8,
    EXO_CUDA_KEY_BYTES = 96
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
    exo_cuda_graph *recorded; /* of the pass under way; NULL: it is not recorded */
    exo_status status;        /* of its recording, */
    exo_err err;              /* and the reason */
} exo_cuda_graphs;

/* Starts the kernels of a pass on the device's stream; it makes no calls of CUDA that a capture
 * refuses. */
typedef exo_status (*exo_cuda_pass)(exo_device *device, const void *args, exo_err *err);

/* recorders.cu. Begins to record passes on the device's GPU. False: it is kept from recordings
 * (side.h), and the pass is started as it is. Else exo_cuda_end_recording. */
bool exo_cuda_begin_recording(const exo_cuda_device *cuda);
void exo_cuda_end_recording(const exo_cuda_device *cuda);
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
