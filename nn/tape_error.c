/* The first error of a pass, which stays until the next pass begins. As the tape, it belongs to one
 * thread at a time. Read next: tape_impl.h. */
#include "base/c_locale.h"
#include "nn/tape_private.h"

#include <stdarg.h>
#include <stdio.h>

exo_tensor *
exo_tape_fail(exo_tape *tape, exo_status status, const char *format, ...)
{
    if (tape->error.code != EXO_OK)
        return NULL;
    va_list args;
    va_start(args, format);
    tape->error.code = status;
    exo_c_vsnprintf(tape->error.text, sizeof tape->error.text, format, args);
    va_end(args);
    return NULL;
}

exo_status
exo_tape_error(const exo_tape *tape, exo_err *err)
{
    if (tape->error.code != EXO_OK && err)
        *err = tape->error;
    return tape->error.code;
}
