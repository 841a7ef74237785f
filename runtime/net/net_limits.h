/* How much of this process others can take: every limit of the network in one place.
 * docs/security.md has the same table with the reasons.
 *
 * A stranger is a connection that nobody has vouched for yet: it was accepted, and its Hello was
 * not. */
#ifndef EXO_NET_LIMITS_H
#define EXO_NET_LIMITS_H

enum {
    /* Strangers. */
    EXO_LIMIT_STRANGERS = 256,        /* at a time, of all addresses: one more ends the oldest */
    EXO_LIMIT_STRANGERS_ADDRESS = 64, /* of one address (of IPv6: of one /64) */
    EXO_LIMIT_STRANGERS_SHARE = 8,    /* and at most this part of all descriptors: 1/8 */
    EXO_LIMIT_STRANGER_BYTES = 64 * 1024, /* that one may send */
    EXO_LIMIT_HANDSHAKE_MS = 2000,        /* for ZeroMQ's handshake, with CURVE's */
    EXO_LIMIT_HELLO_TICKS = 10,           /* half seconds until its Hello must have been accepted */
    /* of a listener: of how many, the last ones, the address is kept for the log */
    EXO_LIMIT_ORIGINS = 512,

    /* Peers. */
    EXO_LIMIT_PAYLOAD = 1 << 30,  /* bytes of one payload */
    EXO_LIMIT_PIECE = 512 * 1024, /* of a frame: a larger payload goes in pieces */
    EXO_LIMIT_FRAME = 1 << 20,    /* of a frame that comes: ZeroMQ takes none that is longer */
    /* of a first frame, which is what one peer says in its turn */
    EXO_LIMIT_FIRST_FRAME = 128 * 1024,
    EXO_LIMIT_ENVELOPES = 2048, /* in it */
    EXO_LIMIT_WINDOW = 8 << 20, /* bytes that are on their way to a peer; more wait here */
    /* calls and replies that wait here for a peer, until calls to it give FULL */
    EXO_LIMIT_WAITING = 1 << 17,
    EXO_LIMIT_WAITING_REPLIES = 1 << 18, /* the same, until the peer is lost */
    /* of a connection that lie in ZeroMQ: parts of a message without end too */
    EXO_LIMIT_INBOUND_BYTES = 32 << 20,

    /* peers that share memory with this process; others of its host use their sockets */
    EXO_LIMIT_RINGS = 64,
    /* lost peers and ended strangers after which freed memory goes back to the kernel */
    EXO_LIMIT_LOST_TO_TRIM = 64,

    /* Descriptors. */
    EXO_LIMIT_DESCRIPTORS = 1 << 20, /* the soft limit is raised to the hard one, or to this  */
    EXO_LIMIT_RESERVE = 64,          /* no connection gets one of the last: files, memory ...     */
};

#endif
