/* Failures of pieces: the first one that comes is kept. */
#include "pieces.h"

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
