/* Numbers in text with a decimal point, whatever locale the program has chosen by setlocale: a comma would
 * change the meaning of a configuration, of CSV and of JSON. The locale is the calling thread's only and
 * is as before when a function returns. For C and C++. No state; any thread. */
#ifndef EXO_BASE_C_LOCALE_H
#define EXO_BASE_C_LOCALE_H

#include <locale.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* As the functions of stdio.h, in the locale "C". */
int exo_c_vsnprintf(char *out, size_t size, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
int exo_c_snprintf(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int exo_c_fprintf(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As strtod, in the locale "C". */
static inline double
exo_c_strtod(const char *text, char **end)
{
    /* a constant of the C library: cannot fail */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const double value = strtod_l(text, end, c);
    freelocale(c);
    return value;
}

#endif
