/* What driver and actors say to each other. Both are on machines of the same kind: numbers go as they are. */
#ifndef PRIMES_H
#define PRIMES_H

#include <stdint.h>

struct range {
    uint32_t first, last; /* [first, last) */
};

#endif
