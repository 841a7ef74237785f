/* Loops over pieces of a kernel's work. Pieces depend on shapes only, so sums have one order with
 * any number of threads. No state, except an exo_failure, which the caller of a loop owns. Read
 * next: pieces.c; base/parallel.h. */
#ifndef EXO_CPU_PIECES_H
#define EXO_CPU_PIECES_H

#include <stdatomic.h>
#include <stddef.h>

#include <exogym/status.h>
#include <exogym/tensor.h>

#include "base/parallel.h"

/* The number of pieces of `per_piece` that cover `count`. */
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

/* As exo_parallel_for, for pieces that need scratch memory. There is one runner per thread, at most
 * `count`, and each runner takes the next piece when it is free. The scratch of a runner is enough,
 * so memory grows with the threads and not with the pieces. Results must not depend on the runner
 * of a piece. */
void exo_run_for(size_t count, void (*piece)(void *context, size_t runner, size_t index),
                 void *context);
/* The number of runners for `count` pieces; `runner` is below it. */
size_t exo_runners(size_t count);

/* The failure of a loop: that of the first piece to report one. Zero-initialized: none. */
typedef struct exo_failure {
    atomic_int status;
    exo_err err;
} exo_failure;

/* Reports the status of a piece, from any thread. */
void exo_failure_note(exo_failure *failure, exo_status status, const exo_err *err);
/* The status of the loop, after its end. */
exo_status exo_failure_result(const exo_failure *failure, exo_err *err);

#endif
