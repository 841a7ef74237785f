/* Graphs of passes: see graphs.h. State: exo_cuda_graphs, of a plan. */
#include "nn/cuda/graphs.h"

#include <assert.h>
#include <string.h>

#include <exogym/memory.h>

/* Leaves the key, as of a pass that came once. Graphs may be under way on the stream. */
static void
forget(exo_cuda_graph *g, const exo_cuda_device *cuda)
{
    if (g->num_pieces > 0)
        (void)cudaStreamSynchronize(cuda->stream);
    for (size_t i = 0; i < g->num_pieces; i++)
        (void)cudaGraphExecDestroy(g->pieces[i].exec);
    if (g->num_pieces > 0)
        (void)cudaGetLastError();
    exo_free(g->pieces);
    g->pieces = NULL;
    g->num_pieces = g->room = 0;
}

/* --- Recording -------------------------------------------------------------------------------- */

static exo_status
begin_capture(const exo_cuda_device *cuda, exo_err *err)
{
    return exo_cuda_status(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal),
                           "the record of a pass", err);
}

/* Ends a capture, also after a failure, st. */
static exo_status
end_capture(const exo_cuda_device *cuda, exo_status st, cudaGraph_t *out, exo_err *err)
{
    cudaGraph_t graph = NULL;
    const cudaError_t error = cudaStreamEndCapture(cuda->stream, &graph);
    if (st == EXO_OK && error == cudaSuccess) {
        *out = graph;
        return EXO_OK;
    }
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (st == EXO_OK)
        st = exo_cuda_status(error, "the record of a pass", err);
    (void)cudaGetLastError();
    return st;
}

exo_status
exo_cuda_record(exo_cuda_device *cuda, exo_cuda_pass pass, const void *args, cudaGraph_t *out,
                exo_err *err)
{
    *out = NULL;
    const exo_status st = begin_capture(cuda, err);
    return st == EXO_OK ? end_capture(cuda, pass(&cuda->device, args, err), out, err) : st;
}

/* Room for a further piece. */
static exo_cuda_piece *
take_piece(exo_cuda_graph *g)
{
    const size_t room = g->room > 0 ? 2 * g->room : 1;
    if (g->num_pieces == g->room) {
        void *more = exo_realloc(g->pieces, room, sizeof *g->pieces);
        if (!more)
            return NULL;
        g->pieces = static_cast<exo_cuda_piece *>(more);
        g->room = room;
    }
    return &g->pieces[g->num_pieces];
}

/* Makes the kernels since the last meeting a graph. st: what the pass has said. */
static void
end_piece(exo_cuda_graphs *graphs, const exo_cuda_device *cuda, exo_status st,
          const exo_cuda_meeting *meeting)
{
    cudaGraph_t graph = NULL;
    exo_cuda_piece *piece = take_piece(graphs->recorded);
    st = end_capture(cuda, st, &graph, &graphs->err);
    if (st == EXO_OK && !piece)
        st = exo_fail(&graphs->err, EXO_NOMEM, "no memory for graphs");
    if (st == EXO_OK)
        st = exo_cuda_status(cudaGraphInstantiate(&piece->exec, graph, 0), "the graph of a pass",
                             &graphs->err);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (st == EXO_OK) {
        piece->meeting = meeting ? *meeting : exo_cuda_meeting{};
        graphs->recorded->num_pieces++;
    }
    graphs->status = st;
}

/* Makes the graphs of a pass. After a failure the rest of its kernels may have been launched, in vain. */
static exo_status
record(exo_cuda_graphs *graphs, exo_cuda_graph *g, exo_cuda_device *cuda, exo_cuda_pass pass,
       const void *args, exo_err *err)
{
    exo_err reason = {};
    graphs->status = begin_capture(cuda, &graphs->err);
    if (graphs->status == EXO_OK) {
        graphs->recorded = g;
        const exo_status st = pass(&cuda->device, args, &reason);
        if (graphs->status == EXO_OK && st != EXO_OK)
            graphs->err = reason;
        if (graphs->status == EXO_OK)
            end_piece(graphs, cuda, st, NULL);
        graphs->recorded = NULL;
    }
    if (graphs->status == EXO_OK)
        return EXO_OK;
    forget(g, cuda);
    return exo_fail(err, graphs->status, "%s", graphs->err.text);
}

/* --- Meetings --------------------------------------------------------------------------------- */

static void
meet(exo_cuda_device *cuda, const exo_cuda_meeting *meeting)
{
    if (!meeting->meet)
        return;
    meeting->meet(meeting->context, meeting->data, meeting->count);
    (void)exo_cuda_select(cuda); /* a failure shows in the next launch */
}

/* Throws away what was recorded of kernels that have been launched before. */
static void
end_skip(const exo_cuda_device *cuda)
{
    cudaGraph_t graph = NULL;
    exo_err ignored = {};
    if (end_capture(cuda, EXO_OK, &graph, &ignored) == EXO_OK)
        (void)cudaGraphDestroy(graph);
    exo_cuda_end_recording(cuda);
}

void
exo_cuda_graphs_meet(exo_cuda_graphs *graphs, exo_cuda_device *cuda,
                     const exo_cuda_meeting *meeting)
{
    if (graphs->recorded) {
        if (graphs->status == EXO_OK)
            end_piece(graphs, cuda, EXO_OK, meeting);
        if (graphs->status == EXO_OK)
            graphs->status = begin_capture(cuda, &graphs->err);
    } else if (graphs->met == 0) {
        meet(cuda, meeting);
    } else if (--graphs->met == 0) {
        end_skip(cuda);
    }
}

/* Lets the kernels of the first pieces, which have been launched, be recorded and thrown away. */
static exo_status
begin_skip(exo_cuda_graphs *graphs, size_t pieces, const exo_cuda_device *cuda, exo_err *err)
{
    if (pieces == 0)
        return EXO_OK;
    if (!exo_cuda_begin_recording(cuda))
        return exo_fail(err, EXO_FAILED, "the graph of a pass on a GPU: none may be recorded now");
    const exo_status st = begin_capture(cuda, err);
    if (st == EXO_OK)
        graphs->met = pieces;
    else
        exo_cuda_end_recording(cuda);
    return st;
}

/* Starts the kernels of a pass one by one, from a piece on whose graph CUDA has refused, for a reason. After
 * a failure others are met nonetheless. */
static exo_status
start_refused(exo_cuda_graphs *graphs, exo_cuda_graph *g, size_t piece, exo_cuda_device *cuda,
              exo_cuda_pass pass, const void *args, const exo_err *reason, exo_err *err)
{
    exo_status st = begin_skip(graphs, piece, cuda, err);
    const bool skips = st == EXO_OK;
    if (skips)
        st = pass(&cuda->device, args, err);
    const bool skipped = graphs->met == 0;
    if (!skipped) { /* the pass has failed before */
        graphs->met = 0;
        end_skip(cuda);
    }
    for (size_t i = piece; (!skips || !skipped) && i < g->num_pieces; i++)
        meet(cuda, &g->pieces[i].meeting);
    if (st == EXO_OK)
        exo_cuda_refused_graph(cuda, reason);
    forget(g, cuda);
    return st;
}

/* Launches the graphs, with the meetings between them. */
static exo_status
repeat(exo_cuda_graphs *graphs, exo_cuda_graph *g, exo_cuda_device *cuda, exo_cuda_pass pass,
       const void *args, exo_err *err)
{
    exo_err reason = {};
    for (size_t i = 0; i < g->num_pieces; i++) {
        if (exo_cuda_status(cudaGraphLaunch(g->pieces[i].exec, cuda->stream), "the graph of a pass",
                            &reason) != EXO_OK)
            return start_refused(graphs, g, i, cuda, pass, args, &reason, err);
        meet(cuda, &g->pieces[i].meeting);
    }
    return EXO_OK;
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* The entry of the key, or an empty one, in the place of the one that was not used for longest. */
static exo_cuda_graph *
find(exo_cuda_graphs *graphs, const exo_cuda_device *cuda, const unsigned char *key)
{
    exo_cuda_graph *oldest = &graphs->graph[0];
    for (exo_cuda_graph &g : graphs->graph) {
        if (g.used > 0 && memcmp(g.key, key, sizeof g.key) == 0)
            return &g;
        if (g.used < oldest->used)
            oldest = &g;
    }
    forget(oldest, cuda);
    oldest->used = 0;
    memcpy(oldest->key, key, sizeof oldest->key);
    return oldest;
}

exo_status
exo_cuda_graphs_run(exo_cuda_graphs *graphs, exo_cuda_device *cuda, const void *key, size_t bytes,
                    exo_cuda_pass pass, const void *args, exo_err *err)
{
    unsigned char whole[EXO_CUDA_KEY_BYTES] = {0};
    assert(bytes <= sizeof whole);
    memcpy(whole, key, bytes);
    exo_status st = exo_cuda_status(exo_cuda_select(cuda), "a pass", err);
    if (st != EXO_OK)
        return st;
    exo_cuda_graph *g = find(graphs, cuda, whole);
    const bool came_before = g->used > 0;
    g->used = ++graphs->passes;
    if (came_before && g->num_pieces > 0)
        return repeat(graphs, g, cuda, pass, args, err);
    if (!came_before || !exo_cuda_may_record(cuda) || !exo_cuda_begin_recording(cuda))
        return pass(&cuda->device, args, err);
    exo_err reason = {};
    st = record(graphs, g, cuda, pass, args, &reason);
    exo_cuda_end_recording(cuda);
    return st == EXO_OK ? repeat(graphs, g, cuda, pass, args, err)
                        : start_refused(graphs, g, 0, cuda, pass, args, &reason, err);
}

void
exo_cuda_graphs_free(exo_cuda_graphs *graphs, exo_cuda_device *cuda)
{
    if (!graphs)
        return;
    (void)exo_cuda_select(cuda);
    for (exo_cuda_graph &g : graphs->graph)
        forget(&g, cuda);
    exo_free(graphs);
}
