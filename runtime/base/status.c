/* Status texts, and the filling of exo_err, whose text is always one line. Any thread; no state. */
#include <exogym/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/printable.h"

const char *
exo_status_text(exo_status status)
{
    switch (status) {
#define STATUS_CASE(name, number, text)                                                            \
    case EXO_##name:                                                                               \
        return text;
        EXO_STATUS_TABLE(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

exo_status
exo_fail(exo_err *err, exo_status code, const char *format, ...)
{
    if (!err)
        return code;
    va_list args;
    va_start(args, format);
    err->code = code;
    int length = exo_c_vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    exo_printable_here(err->text, sizeof err->text, length >= (int)sizeof err->text);
    return code;
}

exo_status
exo_fail_in(exo_err *err, exo_status code, const char *format, ...)
{
    if (!err)
        return code;
    char reason[EXO_ERR_TEXT];
    memcpy(reason, err->text, sizeof reason);

    va_list args;
    va_start(args, format);
    int written = exo_c_vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);

    if (written >= 0 && (size_t)written < sizeof err->text)
        written += snprintf(err->text + written, sizeof err->text - (size_t)written, ": %s",
                            reason[0] ? reason : exo_status_text(code));
    exo_printable_here(err->text, sizeof err->text, written >= (int)sizeof err->text);
    if (err->code == EXO_OK)
        err->code = code;
    return err->code;
}
