/* How kernels cut their work: by shapes only, so that sums have one order with any number of
 * threads. */
#ifndef EXO_CPU_PIECES_H
#define EXO_CPU_PIECES_H

#include <stdatomic.h>
#include <stddef.h>

#include <exogym/status.h>
#include <exogym/tensor.h>

#include "base/parallel.h"

/* Pieces of `per_piece` that cover `count`. */
static inline size_t
exo_pieces(size_t count, size_t per_piece)
{
    return (count + per_piece - 1) / per_piece;
}

/* The length of piece `index`. */
static inline size_t
exo_piece_length(size_t count, size_t per_piece, size_t index)
{
    size_t left = count - index * per_piece;
    return left < per_piece ? left : per_piece;
}

/* As exo_parallel_for, for pieces that work in scratch of the thread that runs them: as many
 * runners as threads take the next piece in turn, so that scratch grows with the threads and not
 * with the pieces. Which runner has which piece must change nothing in the numbers. */
void exo_run_for(size_t count, void (*piece)(void *context, size_t runner, size_t index),
                 void *context);
/* How many runners it has for so many pieces: runner is below that. */
size_t exo_runners(size_t count);

/* The first failure among the pieces of a loop; the text is the first to come, the call fails
 * either way. */
typedef struct exo_failure {
    atomic_int status;
    exo_err err;
} exo_failure;

/* Called by a piece with what it got. */
void exo_failure_note(exo_failure *failure, exo_status status, const exo_err *err);
/* After the loop. */
exo_status exo_failure_result(const exo_failure *failure, exo_err *err);

#endif
