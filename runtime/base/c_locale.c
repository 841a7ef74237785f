/* Numbers in text with a decimal point: see c_locale.h. */
#include "base/c_locale.h"

/* Gives the calling thread the locale "C". Returns the one before. */
static locale_t
begin(void)
{
    /* a constant of the C library: cannot fail, and need not be freed */
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

int
exo_c_vsnprintf(char *out, size_t size, const char *format, va_list args)
{
    const locale_t before = begin();
    const int length = vsnprintf(out, size, format, args);
    uselocale(before);
    return length;
}

int
exo_c_snprintf(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = exo_c_vsnprintf(out, size, format, args);
    va_end(args);
    return length;
}

int
exo_c_fprintf(FILE *file, const char *format, ...)
{
    va_list args;
    const locale_t before = begin();
    va_start(args, format);
    const int length = vfprintf(file, format, args);
    va_end(args);
    uselocale(before);
    return length;
}
