/* What went over an edge from one host to another: the row of the ledger. Exact, and the same for
 * the same graph in one process, in workers, over any transport and on either clock, but for
 * times. */
#ifndef EXOGYM_TRAFFIC_H
#define EXOGYM_TRAFFIC_H

#include <stdint.h>

#include <exogym/clock.h>

EXO_DECLS_BEGIN

/* Sums since the beginning of the run. */
typedef struct exo_traffic {
    uint64_t messages;      /* that were sent */
    uint64_t items;         /* what they carried: items of a channel, calls of a collective */
    uint64_t payload_bytes; /* of the items' arrays as the sender had them */
    uint64_t encoded_bytes; /* of the same after the codec */
    /* encoded, with the headers of the channel and of the transport: what a TCP socket is given */
    uint64_t wire_bytes;
    uint64_t drops;        /* items that on_full gave up */
    exo_time send_blocked; /* the sender waited for room */
    exo_time recv_blocked; /* the receiver waited for something to come */
} exo_traffic;

EXO_DECLS_END

#endif
