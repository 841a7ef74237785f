/* Sine and cosine of small angles, which a compiler vectorizes, and whose bits do not depend on the
 * C library. No state. */
#ifndef EXO_ENVIRONMENTS_SMALL_ANGLE_H
#define EXO_ENVIRONMENTS_SMALL_ANGLE_H

/* The largest |x| that the functions take, in rad. */
static const double exo_small_angle = 0.25;

/* The Taylor series to x^13 and x^12. At 0.25 the terms that are left out are below 2^-64 of the
 * result. The last addition rounds by at most half a unit in the last place; the rest of the error
 * is below 0.1 units. unit/environments compares both with long double. */
static inline double
exo_small_sin(double x)
{
    double z = x * x, p = 1.0 / 6227020800.0;
    p = p * z - 1.0 / 39916800.0;
    p = p * z + 1.0 / 362880.0;
    p = p * z - 1.0 / 5040.0;
    p = p * z + 1.0 / 120.0;
    p = p * z - 1.0 / 6.0;
    return x + x * (z * p);
}

static inline double
exo_small_cos(double x)
{
    double z = x * x, p = 1.0 / 479001600.0;
    p = p * z - 1.0 / 3628800.0;
    p = p * z + 1.0 / 40320.0;
    p = p * z - 1.0 / 720.0;
    p = p * z + 1.0 / 24.0;
    p = p * z - 0.5;
    return 1.0 + z * p;
}

#endif
