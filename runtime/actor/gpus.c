/* Amounts of GPUs: see gpus.h. No state. */
#include "actor/gpus.h"

#include <math.h>

#define ROUNDING 1e-9 /* of amounts that were added up */

exo_status
exo_gpus_check(double amount, exo_err *err)
{
    if (amount <= 1 || fabs(amount - round(amount)) < ROUNDING)
        return EXO_OK;
    return exo_fail(
        err, EXO_INVAL,
        "there cannot be %g of the resource 'gpus' for an actor: take at most 1, a part "
        "of one GPU, or whole ones",
        amount);
}
