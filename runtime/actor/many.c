/* Waits for any of thousands of futures: see many.h. No state. */
#include "actor/many.h"

#include <stdbool.h>

#define SLICE (5 * EXO_MS)

enum {
    FEW = 64 /* exo_wait_any serves up to this many */
};

exo_status
exo_wait_any_of_many(exo_future *const *futures, size_t count, exo_time deadline, size_t *index,
                     exo_err *err)
{
    if (count <= FEW)
        return exo_wait_any(futures, count, deadline, index, err);
    for (;;) {
        exo_future *last = NULL;
        for (size_t i = 0; i < count; i++) {
            if (futures[i] && exo_future_ready(futures[i])) {
                *index = i;
                return EXO_OK;
            }
            last = futures[i] ? futures[i] : last;
        }
        if (!last)
            return exo_fail(err, EXO_INVAL, "no future was given");
        exo_time now = exo_now(exo_clock_real());
        if (now >= deadline)
            return exo_fail(err, EXO_TIMEOUT, "none of %zu calls was answered in time", count);
        exo_time slice = exo_deadline(exo_clock_real(), SLICE);
        exo_wait(last, slice < deadline ? slice : deadline, NULL, NULL);
    }
}
