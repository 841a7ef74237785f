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

/* The rest of the pass is started as it is, and the next one is recorded anew. */
static void
give_up(exo_cuda_graphs *graphs, const exo_cuda_device *cuda)
{
    forget(graphs->recorded, cuda);
    graphs->recorded = NULL;
}

static void
begin_piece(exo_cuda_graphs *graphs, const exo_cuda_device *cuda)
{
    if (!exo_cuda_begin_recording(cuda)) {
        give_up(graphs, cuda);
        return;
    }
    graphs->status = begin_capture(cuda, &graphs->err);
    if (graphs->status == EXO_OK)
        return;
    exo_cuda_end_recording(cuda);
    give_up(graphs, cuda);
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

/* Makes the kernels since the last meeting a graph, and launches it. st: what the pass has said. */
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
    exo_cuda_end_recording(cuda);
    if (st == EXO_OK) {
        piece->meeting = meeting ? *meeting : exo_cuda_meeting{};
        graphs->recorded->num_pieces++;
        st = exo_cuda_status(cudaGraphLaunch(piece->exec, cuda->stream), "the graph of a pass",
                             &graphs->err);
    }
    graphs->status = st;
    if (st != EXO_OK)
        give_up(graphs, cuda);
}

void
exo_cuda_graphs_meet(exo_cuda_graphs *graphs, exo_cuda_device *cuda,
                     const exo_cuda_meeting *meeting)
{
    if (graphs->recorded)
        end_piece(graphs, cuda, EXO_OK, meeting);
    meeting->meet(meeting->context, meeting->data, meeting->count);
    (void)exo_cuda_select(cuda); /* a failure shows in the next launch */
    if (graphs->recorded)
        begin_piece(graphs, cuda);
}

/* Records the pass while it goes on. After a failure its kernels have not been launched, but others have
 * been met. */
static exo_status
record(exo_cuda_graphs *graphs, exo_cuda_graph *g, exo_cuda_device *cuda, exo_cuda_pass pass,
       const void *args, exo_err *err)
{
    graphs->recorded = g;
    graphs->status = EXO_OK;
    begin_piece(graphs, cuda);
    exo_err reason = {};
    const exo_status st = pass(&cuda->device, args, &reason);
    if (st != EXO_OK && graphs->status == EXO_OK)
        graphs->err = reason;
    if (graphs->recorded)
        end_piece(graphs, cuda, st, NULL);
    else if (graphs->status == EXO_OK)
        graphs->status = st;
    graphs->recorded = NULL;
    return graphs->status == EXO_OK ? EXO_OK
                                    : exo_fail(err, graphs->status, "%s", graphs->err.text);
}

/* Launches the graphs, with the meetings between them. After a failure others are met nonetheless. */
static exo_status
repeat(const exo_cuda_graph *g, exo_cuda_device *cuda, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; i < g->num_pieces; i++) {
        const exo_cuda_piece *piece = &g->pieces[i];
        if (st == EXO_OK)
            st = exo_cuda_status(cudaGraphLaunch(piece->exec, cuda->stream), "the graph of a pass",
                                 err);
        if (!piece->meeting.meet)
            continue;
        piece->meeting.meet(piece->meeting.context, piece->meeting.data, piece->meeting.count);
        (void)exo_cuda_select(cuda);
    }
    return st;
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
    if (!came_before)
        return pass(&cuda->device, args, err);
    return g->num_pieces > 0 ? repeat(g, cuda, err) : record(graphs, g, cuda, pass, args, err);
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
