/* A text in one piece: see grow_text.h. A file of its own, because grow_text.c writes the text of
 * errors. No state. */
#include <stdarg.h>
#include <stdio.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/grow_text.h"

char *
exo_text_make(exo_err *err, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = exo_c_vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length >= 0 ? exo_calloc(1, (size_t)length + 1) : NULL;
    if (text)
        exo_c_vsnprintf(text, (size_t)length + 1, format, again);
    else
        exo_fail(err, EXO_NOMEM, "out of memory");
    va_end(again);
    return text;
}
