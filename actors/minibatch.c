/* minibatch_size: auto. It rehearses passes of the whole batch, its half, its third and so on,
 * until one fits into memory. */
#include "actors/fit_opts.h"
#include "base/memory_limits.h"

/* The share of the free memory that the passes of a run may use. The rest is for parameters,
 * optimizers, data and other programs. */
static const double share_of_memory = 0.6;

exo_status
exo_fit_auto_minibatch(exo_model *model, exo_dataset *train, size_t batch_size,
                       exo_autocast autocast, unsigned copies, size_t *out, exo_err *err)
{
    const exo_pass pass = {.train = true, .grad = true, .autocast = autocast};
    double budget = share_of_memory * (double)exo_free_memory() / copies;
    exo_status st = EXO_OK;
    *out = batch_size;
    for (size_t parts = 1; st == EXO_OK && parts <= batch_size; parts++) {
        if (batch_size % parts != 0)
            continue;
        exo_pass_memory memory;
        *out = batch_size / parts;
        st = exo_model_pass_memory(model, &pass, train, *out, &memory, err);
        if (st == EXO_NOMEM && *out > 1) { /* the pass needs more than the address space */
            st = EXO_OK;
            continue;
        }
        if (st != EXO_OK || budget <= 0 || (double)(memory.tape + memory.plans) <= budget)
            break;
    }
    return st;
}
