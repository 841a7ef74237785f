/* The argument of the method `count`, which driver.c sends and primes.c receives. Numbers are sent
 * as they lie in memory, so both must be machines of the same kind. */
#ifndef PRIMES_H
#define PRIMES_H

#include <stdint.h>

struct range {
    uint32_t first, last; /* [first, last) */
};

#endif
