/* The mode of a thread's floating-point arithmetic: rounding, denormal numbers and traps. The pieces
 * of a loop are computed in the mode of the thread that asks for them, whichever thread computes
 * them. No state; any thread. */
#ifndef EXO_BASE_FLOAT_MODE_H
#define EXO_BASE_FLOAT_MODE_H

#include <stdbool.h>

#if defined(__SSE2__)

#include <xmmintrin.h>

/* MXCSR without the flags of exceptions that have occurred. */
typedef unsigned exo_float_mode;

static inline exo_float_mode
exo_float_mode_get(void)
{
    return _mm_getcsr() & ~0x3fU;
}

static inline void
exo_float_mode_set(exo_float_mode mode)
{
    _mm_setcsr(mode);
}

static inline bool
exo_float_mode_same(const exo_float_mode *a, const exo_float_mode *b)
{
    return *a == *b;
}

#else

#include <fenv.h>

typedef fenv_t exo_float_mode;

static inline exo_float_mode
exo_float_mode_get(void)
{
    fenv_t mode;
    fegetenv(&mode);
    return mode;
}

static inline void
exo_float_mode_set(exo_float_mode mode)
{
    fesetenv(&mode);
}

/* Environments cannot be compared. */
static inline bool
exo_float_mode_same(const exo_float_mode *a, const exo_float_mode *b)
{
    (void)a;
    (void)b;
    return false;
}

#endif

#endif
