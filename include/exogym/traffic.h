/* Traffic of an edge between two hosts: a row of the ledger. The counts are exact. For the same
 * graph they are the same in one process, in workers, over any transport and on either clock; only
 * times and device_bytes differ. */
#ifndef EXOGYM_TRAFFIC_H
#define EXOGYM_TRAFFIC_H

#include <stdint.h>

#include <exogym/clock.h>

EXO_DECLS_BEGIN

/* Sums since the start of the run. */
typedef struct exo_traffic {
    uint64_t messages;      /* messages sent */
    uint64_t items;         /* their content: items of a channel, calls of a collective */
    uint64_t payload_bytes; /* bytes of the items' arrays before the codec */
    uint64_t encoded_bytes; /* bytes of the same arrays after the codec */
    /* Encoded bytes with the headers of the channel and of the transport: the bytes that a TCP
     * socket would be given. */
    uint64_t wire_bytes;
    uint64_t drops;        /* items that the edge's rule on_full discarded */
    exo_time send_blocked; /* time that the sender waited for room */
    exo_time recv_blocked; /* time that the receiver waited for an item */
    /* Of payload_bytes, those of arrays that stayed in the memory of their device. Unlike the other
     * counts it depends on where the actors are. */
    uint64_t device_bytes;
} exo_traffic;

EXO_DECLS_END

#endif
