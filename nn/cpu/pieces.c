/* Loops with scratch; failures of pieces, of which the first one that comes is kept. */
#include "nn/cpu/pieces.h"

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
