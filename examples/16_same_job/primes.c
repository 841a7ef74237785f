/* The actor class `example.primes`, as a plugin. It is built outside exogym, against the public
 * headers alone. Each process that hosts such an actor loads it. It links no library: the program
 * that loads it has the functions. */
#include <string.h>

#include <exogym/exogym.h>

#include "primes.h"

static exo_status
count(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)self;
    struct range range;
    uint32_t primes = 0;
    if (args->size != sizeof range)
        return exo_fail(err, EXO_INVAL, "count: %zu bytes are no range", args->size);
    memcpy(&range, args->data, sizeof range);
    for (uint32_t n = range.first; n < range.last; n++) {
        uint32_t d = 2;
        while (d * d <= n && n % d != 0)
            d++;
        primes += n > 1 && d * d > n;
        if (exo_call_cancelled(call))
            return exo_fail(err, EXO_CANCELLED, "stopped at %u", n);
    }
    return exo_payload_copy(reply, &primes, sizeof primes);
}

/* A blocking lane has its own thread: a long computation must not hold a thread of the pool. */
static const exo_lane_class lanes[] = {{.name = "compute", .blocking = true}};
static const exo_method methods[] = {{.name = "count", .run = count}};
static const exo_actor_class primes = {
    .name = "example.primes", .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 1};

EXO_PLUGIN
{
    return exo_actor_class_register(&primes, err);
}
