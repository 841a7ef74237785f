/* Sections of work: see sections.h. State: exo_cuda_sections, of one device. */
#include "nn/cuda/sections.h"

#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/cuda/graphs.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/memory.h"
#include "nn/cuda/own_bytes.h"
#include "nn/cuda/plans.h"

enum {
    ALIGNMENT = 16, /* of a request in its list */
    CELLS_BYTES = EXO_CUDA_CELLS * EXO_CUDA_CELL_BYTES
};

/* A request; its arguments follow. */
struct head {
    uint32_t request, bytes; /* of the arguments */
};

/* A part of a request's arguments. */
struct field {
    size_t at, bytes;
};

struct list {
    unsigned char *memory;
    size_t bytes, room;
    size_t requests;
};

struct recorded {
    list asked;
    uint64_t used;        /* the number of its last list; 0: there was none */
    cudaGraphExec_t exec; /* NULL: came once */
    bool stale;           /* an equal list may mean something else by now */
};

/* A request of a list. late.bytes 0: it has no field that changes, or no cell is left for it. */
struct request {
    exo_cuda_request name;
    const unsigned char *args;
    size_t bytes;
    field late;
    size_t cell;
};

/* How far a list has been read. */
struct walk {
    size_t at, cells;
};

struct exo_cuda_sections {
    unsigned open;        /* sections within each other that have begun */
    list asked;           /* what is put off */
    exo_cuda_cell *cells; /* on the device: (EXO_CUDA_CELLS) */
    recorded graphs[EXO_CUDA_SECTION_GRAPHS];
    uint64_t lists;
};

/* --- Life ------------------------------------------------------------------------------------- */

size_t
exo_cuda_sections_bytes(void)
{
    const char *asked = getenv("EXOGYM_CUDA_GRAPHS");
    return asked && strcmp(asked, "on") == 0 ? CELLS_BYTES : 0;
}

exo_status
exo_cuda_sections_new(exo_cuda_sections **out, const exo_cuda_device *cuda, exo_err *err)
{
    const char *asked = getenv("EXOGYM_CUDA_GRAPHS");
    void *cells = NULL;
    *out = NULL;
    if (!asked || !*asked || strcmp(asked, "off") == 0)
        return EXO_OK;
    if (strcmp(asked, "on") != 0)
        return exo_fail(err, EXO_INVAL, "EXOGYM_CUDA_GRAPHS: expected off or on, got '%.60s'",
                        asked);
    *out = static_cast<exo_cuda_sections *>(exo_calloc(1, sizeof **out));
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no memory for the graphs of a device");
    const cudaError_t error = cudaMallocAsync(&cells, CELLS_BYTES, cuda->stream);
    if (error == cudaErrorMemoryAllocation)
        return exo_cuda_say_full(cuda, "the numbers of graphs", CELLS_BYTES, err);
    if (error != cudaSuccess)
        return exo_cuda_status(error, "the numbers of graphs", err);
    (*out)->cells = static_cast<exo_cuda_cell *>(cells);
    exo_cuda_took(cuda, EXO_CUDA_WORKSPACES, CELLS_BYTES);
    return EXO_OK;
}

static void
clear(list *l)
{
    l->bytes = l->requests = 0;
}

/* Leaves the list, as of one that came once. Nothing is under way of the graph. */
static void
drop_exec(recorded *g)
{
    if (g->exec)
        (void)cudaGraphExecDestroy(g->exec);
    g->exec = NULL;
    g->stale = false;
}

static void
drop(recorded *g)
{
    drop_exec(g);
    g->used = 0;
    clear(&g->asked);
}

/* The graph may be under way on the stream. */
static void
drop_exec_later(recorded *g, const exo_cuda_device *cuda)
{
    if (g->exec)
        (void)cudaStreamSynchronize(cuda->stream);
    drop_exec(g);
    (void)cudaGetLastError();
}

static void
drop_later(recorded *g, const exo_cuda_device *cuda)
{
    drop_exec_later(g, cuda);
    drop(g);
}

void
exo_cuda_sections_free(exo_cuda_sections *sections, const exo_cuda_device *cuda)
{
    if (!sections)
        return;
    if (sections->cells)
        (void)cudaFreeAsync(sections->cells, cuda->stream);
    for (recorded &g : sections->graphs) {
        drop(&g);
        exo_free(g.asked.memory);
    }
    exo_free(sections->asked.memory);
    exo_free(sections);
}

/* --- Lists ------------------------------------------------------------------------------------ */

static size_t
aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Adds a request. The bytes that fill up its place are zero. */
static exo_status
add(list *l, exo_cuda_request request, const void *args, size_t bytes, exo_err *err)
{
    const size_t first = aligned(sizeof(head)), need = l->bytes + first + aligned(bytes);
    if (need > l->room) {
        const size_t room = need * 2;
        void *larger = exo_realloc(l->memory, room, 1);
        if (!larger)
            return exo_fail(err, EXO_NOMEM, "no memory for the requests of a pass");
        l->memory = static_cast<unsigned char *>(larger);
        l->room = room;
    }
    const head h = {static_cast<uint32_t>(request), static_cast<uint32_t>(bytes)};
    unsigned char *const at = l->memory + l->bytes;
    memset(at, 0, need - l->bytes);
    memcpy(at, &h, sizeof h);
    memcpy(at + first, args, bytes);
    l->bytes = need;
    l->requests++;
    return EXO_OK;
}

static head
head_at(const list *l, size_t at)
{
    head h;
    memcpy(&h, l->memory + at, sizeof h);
    return h;
}

static size_t
behind(size_t at, const head *h)
{
    return at + aligned(sizeof *h) + aligned(h->bytes);
}

/* The field of a request that changes from step to step. */
static field
late_field(exo_cuda_request name, const void *args)
{
    switch (name) {
#define FIELD(kernel, member)                                                                      \
    case EXO_CUDA_REQUEST_##kernel:                                                                \
        static_assert(sizeof(exo_##kernel##_args{}.member) <= EXO_CUDA_CELL_BYTES, #kernel);       \
        return {offsetof(exo_##kernel##_args, member), sizeof(exo_##kernel##_args{}.member)};
        EXO_CUDA_LATE_FIELDS(FIELD)
#undef FIELD
    case EXO_CUDA_REQUEST_COPY:
        return {offsetof(exo_cuda_copy_args, ends),
                static_cast<const exo_cuda_copy_args *>(args)->bytes <= EXO_CUDA_LATE_COPY
                    ? sizeof(exo_cuda_copy_ends)
                    : 0};
    default:
        return {0, 0};
    }
}

/* Reads the next request of a list. False: there is none. */
static bool
next(const list *l, walk *w, request *out)
{
    if (w->at >= l->bytes)
        return false;
    const head h = head_at(l, w->at);
    out->name = static_cast<exo_cuda_request>(h.request);
    out->args = l->memory + w->at + aligned(sizeof h);
    out->bytes = h.bytes;
    out->late = late_field(out->name, out->args);
    out->cell = w->cells;
    if (w->cells == EXO_CUDA_CELLS)
        out->late.bytes = 0;
    w->cells += out->late.bytes > 0;
    w->at = behind(w->at, &h);
    return true;
}

static bool
has_same_form(const list *a, const list *b)
{
    if (a->bytes != b->bytes || a->requests != b->requests)
        return false;
    for (size_t at = 0; at < a->bytes;) {
        const head one = head_at(a, at), other = head_at(b, at);
        if (one.request != other.request || one.bytes != other.bytes)
            return false;
        at = behind(at, &one);
    }
    return true;
}

/* Whether two lists of the same form differ in nothing but fields that change from step to step. */
static bool
is_equal(const list *a, const list *b)
{
    walk w = {}, v = {};
    request one, other;
    while (next(a, &w, &one) && next(b, &v, &other)) {
        const size_t end = one.late.at + one.late.bytes;
        if (one.late.bytes != other.late.bytes || memcmp(one.args, other.args, one.late.at) != 0 ||
            memcmp(one.args + end, other.args + end, one.bytes - end) != 0)
            return false;
    }
    return true;
}

/* --- The start of a list ---------------------------------------------------------------------- */

#define STARTER(name)                                                                              \
    static exo_status start_##name(exo_device *device, const void *args, exo_err *err)             \
    {                                                                                              \
        return exo_cuda_##name(device, static_cast<const exo_##name##_args *>(args), err);         \
    }
EXO_KERNELS(STARTER)
#undef STARTER

static exo_status
start_copy(exo_device *device, const void *args, exo_err *err)
{
    const exo_cuda_copy_args *k = static_cast<const exo_cuda_copy_args *>(args);
    exo_cuda_device *cuda = exo_cuda_of(device);
    return k->bytes <= EXO_CUDA_LATE_COPY
               ? exo_cuda_copy_late(cuda, k, err)
               : exo_cuda_status(cudaMemcpyAsync(k->ends.to, k->ends.from, k->bytes,
                                                 cudaMemcpyDeviceToDevice, cuda->stream),
                                 "a copy", err);
}

static exo_status (*const starters[])(exo_device *device, const void *args, exo_err *err) = {
#define ENTRY(name) start_##name,
    EXO_KERNELS(ENTRY)
#undef ENTRY
        start_copy,
};

/* Starts the requests of a list one by one. cells: where their kernels find late fields; NULL: in
 * their arguments. */
static exo_status
start_each(exo_cuda_device *cuda, const list *l, exo_cuda_cell *cells, exo_err *err)
{
    exo_status st = EXO_OK;
    walk w = {};
    request r;
    while (st == EXO_OK && next(l, &w, &r)) {
        cuda->late = cells && r.late.bytes > 0 ? cells + r.cell : NULL;
        st = starters[r.name](&cuda->device, r.args, err);
    }
    cuda->late = NULL;
    return st;
}

/* exo_cuda_pass: what a graph has of a list. */
static exo_status
start_in_graph(exo_device *device, const void *args, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    return start_each(cuda, static_cast<const list *>(args), cuda->sections->cells, err);
}

/* Writes the late fields of a list to their cells. */
static exo_status
write_cells(exo_cuda_device *cuda, const list *l, exo_err *err)
{
    exo_cuda_cells cells = {};
    exo_status st = EXO_OK;
    walk w = {};
    request r;
    while (st == EXO_OK && next(l, &w, &r)) {
        if (r.late.bytes == 0)
            continue;
        memcpy(cells.cell[cells.count++].bytes, r.args + r.late.at, r.late.bytes);
        if (cells.count < EXO_CUDA_CELLS_AT_ONCE)
            continue;
        st = exo_cuda_write_cells(cuda, cuda->sections->cells, &cells, err);
        cells.first += cells.count;
        cells.count = 0;
    }
    return st == EXO_OK && cells.count > 0
               ? exo_cuda_write_cells(cuda, cuda->sections->cells, &cells, err)
               : st;
}

/* Makes the graph that of its list. Its exec, if it has one, is changed; the device may refuse that,
 * if the kernels of a request have become more or fewer. */
static exo_status
record(recorded *g, exo_cuda_device *cuda, exo_err *err)
{
    cudaGraph_t graph = NULL;
    exo_status st = exo_cuda_record(cuda, start_in_graph, &g->asked, &graph, err);
    if (st != EXO_OK)
        return st;
    cudaGraphExecUpdateResultInfo info = {};
    cudaError_t error =
        g->exec ? cudaGraphExecUpdate(g->exec, graph, &info) : cudaErrorGraphExecUpdateFailure;
    if (error == cudaErrorGraphExecUpdateFailure) {
        if (g->exec) {
            (void)cudaStreamSynchronize(cuda->stream); /* it may be under way */
            (void)cudaGraphExecDestroy(g->exec);
        }
        (void)cudaGetLastError();
        g->exec = NULL;
        error = cudaGraphInstantiate(&g->exec, graph, 0);
    }
    (void)cudaGraphDestroy(graph);
    g->stale = false;
    return exo_cuda_status(error, "the graph of a section", err);
}

/* The graph whose place a new list takes: an empty one, or the one that was not used for longest. */
static recorded *
find_place(exo_cuda_sections *s)
{
    recorded *oldest = &s->graphs[0];
    for (recorded &g : s->graphs)
        if (g.used < oldest->used)
            oldest = &g;
    return oldest;
}

/* How many graphs the form of a list may have. */
static size_t
most_of_form(const list *l)
{
    const size_t together = EXO_CUDA_FORM_REQUESTS / l->requests, most = EXO_CUDA_FORM_GRAPHS,
                 least = EXO_CUDA_FORM_LEAST;
    return together > most ? most : together < least ? least : together;
}

/* Finds the graph for what is put off. NULL: there is none of the form; else *equal says whether it
 * is the graph of just that list. */
static recorded *
find(exo_cuda_sections *s, bool *equal)
{
    recorded *oldest = NULL, *idle = NULL;
    size_t of_form = 0;
    for (recorded &g : s->graphs) {
        if (g.used == 0 || !has_same_form(&g.asked, &s->asked))
            continue;
        *equal = g.exec && !g.stale && is_equal(&g.asked, &s->asked);
        if (*equal)
            return &g;
        if (!g.exec || g.stale)
            idle = &g;
        if (!oldest || g.used < oldest->used)
            oldest = &g;
        of_form++;
    }
    recorded *place = find_place(s);
    if (!idle && of_form > 0 && of_form < most_of_form(&s->asked) && place->used == 0)
        return place;
    return idle ? idle : oldest;
}

static void
exchange(list *a, list *b)
{
    const list kept = *a;
    *a = *b;
    *b = kept;
}

/* Starts a list whose graph CUDA has refused, for a reason: nothing of it is under way. */
static exo_status
start_refused(exo_cuda_device *cuda, recorded *g, const list *l, const exo_err *reason,
              exo_err *err)
{
    drop_exec_later(g, cuda);
    const exo_status st = start_each(cuda, l, NULL, err);
    if (st == EXO_OK)
        exo_cuda_refused_graph(cuda, reason);
    else
        drop(g);
    return st;
}

static exo_status
start_list(exo_cuda_device *cuda, exo_err *err)
{
    exo_cuda_sections *s = cuda->sections;
    if (s->asked.requests < EXO_CUDA_LEAST_REQUESTS)
        return start_each(cuda, &s->asked, NULL, err);
    bool equal = false;
    recorded *g = find(s, &equal);
    const bool came_before = g != NULL;
    if (!g) {
        g = find_place(s);
        drop_later(g, cuda);
    }
    if (!equal)
        exchange(&g->asked, &s->asked);
    g->used = ++s->lists;
    if (!came_before)
        return start_each(cuda, &g->asked, NULL, err);
    if (!equal && (!exo_cuda_may_record(cuda) || !exo_cuda_begin_recording(cuda))) {
        g->stale = true; /* its exec is not that of this list */
        return start_each(cuda, &g->asked, NULL, err);
    }
    const list *const l = equal ? &s->asked : &g->asked;
    exo_err reason = {};
    exo_status st = EXO_OK;
    if (!equal) {
        st = record(g, cuda, &reason);
        exo_cuda_end_recording(cuda);
    }
    if (st != EXO_OK)
        return start_refused(cuda, g, l, &reason, err);
    st = write_cells(cuda, l, err);
    if (st != EXO_OK) {
        drop_later(g, cuda);
        return st;
    }
    st = exo_cuda_status(cudaGraphLaunch(g->exec, cuda->stream), "the graph of a section", &reason);
    return st == EXO_OK ? st : start_refused(cuda, g, l, &reason, err);
}

/* Orders the copies from the host, which go on meanwhile, before what was put off or behind it. */
static cudaError_t
order_copies(exo_cuda_device *cuda, bool behind_them)
{
    cudaError_t error = cudaSuccess;
    for (exo_cuda_slot &slot : cuda->slots) {
        if (slot.lands && error == cudaSuccess)
            error = behind_them ? cudaStreamWaitEvent(cuda->stream, slot.free, 0)
                                : cudaEventRecord(slot.taken, cuda->stream);
        slot.lands = slot.lands && behind_them;
    }
    return error;
}

/* --- Sections --------------------------------------------------------------------------------- */

exo_status
exo_cuda_catch_up(exo_cuda_device *cuda, exo_err *err)
{
    exo_cuda_sections *s = cuda->sections;
    if (!s || s->asked.requests == 0)
        return EXO_OK;
    cudaError_t error = exo_cuda_select(cuda);
    if (error == cudaSuccess)
        error = order_copies(cuda, true);
    exo_status st = exo_cuda_status(error, "a section", err);
    if (st == EXO_OK)
        st = start_list(cuda, err);
    error = order_copies(cuda, false); /* also after a failure */
    clear(&s->asked);
    return st == EXO_OK ? exo_cuda_status(error, "a section", err) : st;
}

void
exo_cuda_catch_up_noted(exo_cuda_device *cuda)
{
    exo_err reason = {};
    const exo_status st = exo_cuda_catch_up(cuda, &reason);
    if (st == EXO_OK || cuda->device.failed.code != EXO_OK)
        return;
    cuda->device.failed = reason;
    cuda->device.failed.code = st;
}

void
exo_cuda_section_begin(exo_device *device)
{
    exo_cuda_sections *s = exo_cuda_of(device)->sections;
    if (s)
        s->open++;
}

exo_status
exo_cuda_section_end(exo_device *device, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    exo_cuda_sections *s = cuda->sections;
    if (!s || s->open == 0 || --s->open > 0)
        return EXO_OK;
    return exo_cuda_catch_up(cuda, err);
}

static bool
by_cudnn(exo_plan *attention)
{
    return exo_cuda_cudnn_attends_some(exo_cuda_plan_of(attention)->attention_by_cudnn);
}

/* Kernels that have graphs of their own, or that cuDNN computes, with memory of the pool. */
static bool
is_apart(const exo_cuda_device *cuda, exo_cuda_request request, const void *args)
{
    switch (request) {
    case EXO_CUDA_REQUEST_decoder_pack:
    case EXO_CUDA_REQUEST_decoder_pass:
    case EXO_CUDA_REQUEST_decoder_logits:
        return true;
    case EXO_CUDA_REQUEST_conv:
    case EXO_CUDA_REQUEST_conv_backward:
        return cuda->cudnn != NULL;
    case EXO_CUDA_REQUEST_attention:
        return by_cudnn(static_cast<const exo_attention_args *>(args)->plan);
    case EXO_CUDA_REQUEST_attention_backward:
        return by_cudnn(static_cast<const exo_attention_backward_args *>(args)->plan);
    default:
        return false;
    }
}

bool
exo_cuda_puts_off(const exo_cuda_device *cuda)
{
    return cuda->sections && cuda->sections->open > 0;
}

exo_status
exo_cuda_put_off(exo_cuda_device *cuda, exo_cuda_request request, const void *args, size_t bytes,
                 bool *taken, exo_err *err)
{
    exo_cuda_sections *s = cuda->sections;
    *taken = exo_cuda_puts_off(cuda) && !is_apart(cuda, request, args);
    return *taken ? add(&s->asked, request, args, bytes, err) : exo_cuda_catch_up(cuda, err);
}

void
exo_cuda_sections_forget(exo_cuda_device *cuda)
{
    exo_cuda_sections *s = cuda->sections;
    for (size_t g = 0; s && g < EXO_CUDA_SECTION_GRAPHS; g++)
        s->graphs[g].stale = true;
}
