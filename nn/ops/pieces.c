/* Loops with scratch; failures of pieces, of which the first one that comes is kept; sweeps over all elements. */
#include "nn/ops/pieces.h"

#include "nn/cpu/kernels.h"

void
exo_failure_note(exo_failure *failure, exo_status status, const exo_err *err)
{
    int none = EXO_OK;
    if (status != EXO_OK && atomic_compare_exchange_strong(&failure->status, &none, (int)status))
        failure->err = *err; /* read after the loop only */
}

exo_status
exo_failure_result(const exo_failure *failure, exo_err *err)
{
    exo_status st = (exo_status)atomic_load(&failure->status);
    if (st != EXO_OK && err)
        *err = failure->err;
    return st;
}

struct runners {
    atomic_size_t next;
    size_t count;
    void (*piece)(void *context, size_t runner, size_t index);
    void *context;
};

static void
run_pieces(void *context, size_t runner)
{
    struct runners *r = context;
    for (size_t index; (index = atomic_fetch_add(&r->next, 1)) < r->count;)
        r->piece(r->context, runner, index);
}

size_t
exo_runners(size_t count)
{
    size_t threads = exo_num_threads();
    return threads < count ? threads : count;
}

void
exo_run_for(size_t count, void (*piece)(void *context, size_t runner, size_t index), void *context)
{
    struct runners r = {.count = count, .piece = piece, .context = context};
    exo_parallel_for(exo_runners(count), run_pieces, &r);
}

struct cast_loop {
    exo_dtype from, to;
    const char *in;
    char *out;
    size_t count;
};

static void
cast_piece(void *context, size_t piece)
{
    const struct cast_loop *l = context;
    size_t first = piece * EXO_PIECE_ELEMENTS;
    exo_cast(l->from, l->in + first * exo_dtype_size(l->from), l->to, l->out + first * exo_dtype_size(l->to),
             exo_piece_length(l->count, EXO_PIECE_ELEMENTS, piece));
}

void
exo_cast_all(exo_dtype from, const void *in, exo_dtype to, void *out, size_t count)
{
    struct cast_loop l = {.from = from, .to = to, .in = in, .out = out, .count = count};
    exo_parallel_for(exo_pieces(count, EXO_PIECE_ELEMENTS), cast_piece, &l);
}

struct accumulate_loop {
    exo_dtype type;
    const char *in;
    char *out;
    size_t count;
};

static void
accumulate_piece(void *context, size_t piece)
{
    const struct accumulate_loop *l = context;
    size_t skip = piece * EXO_PIECE_ELEMENTS * exo_dtype_size(l->type);
    exo_accumulate(l->type, l->in + skip, l->out + skip, exo_piece_length(l->count, EXO_PIECE_ELEMENTS, piece));
}

void
exo_accumulate_all(exo_dtype type, const void *in, void *out, size_t count)
{
    struct accumulate_loop l = {.type = type, .in = in, .out = out, .count = count};
    exo_parallel_for(exo_pieces(count, EXO_PIECE_ELEMENTS), accumulate_piece, &l);
}
