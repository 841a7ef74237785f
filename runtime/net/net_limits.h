/* How much of this process others can take: every limit of the network in one place. docs/security.md has the same table with the reasons.
 *
 * A stranger is a connection that nobody has vouched for yet: it was accepted, and its Hello was not. */
#ifndef EXO_NET_LIMITS_H
#define EXO_NET_LIMITS_H

enum {
    /* Strangers. */
    EXO_LIMIT_STRANGERS = 256,            /* at a time, of all addresses: one more ends the oldest */
    EXO_LIMIT_STRANGERS_ADDRESS = 64,     /* of one address (of IPv6: of one /64)                  */
    EXO_LIMIT_STRANGERS_SHARE = 8,        /* and at most this part of all descriptors: 1/8         */
    EXO_LIMIT_STRANGER_BYTES = 64 * 1024, /* that one may send                                     */
    EXO_LIMIT_HANDSHAKE_MS = 2000,        /* for ZeroMQ's handshake, with CURVE's                  */
    EXO_LIMIT_HELLO_TICKS = 10,           /* half seconds until its Hello must have been accepted  */

    /* Peers. */
    EXO_LIMIT_INBOUND_BYTES = (1 << 30) + (64 << 20), /* of one connection, that lie in ZeroMQ */

    /* Descriptors. */
    EXO_LIMIT_DESCRIPTORS = 1 << 20, /* the soft limit is raised to the hard one, or to this  */
    EXO_LIMIT_RESERVE = 64,          /* no connection gets one of the last: files, memory ...     */
};

#endif
