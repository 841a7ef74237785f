/* The limits of what other processes may take of this one, in one place. docs/security.md has the
 * same table, with reasons.
 *
 * A stranger is a connection that was accepted and whose Hello was not yet accepted. Read next:
 * intake.h, which enforces the limits of strangers; send.c and receive.c for those of peers. */
#ifndef EXO_NET_LIMITS_H
#define EXO_NET_LIMITS_H

enum {
    /* Strangers. */
    EXO_LIMIT_STRANGERS = 256,        /* at a time, of all addresses; one more ends the oldest */
    EXO_LIMIT_STRANGERS_ADDRESS = 64, /* at a time, of one address (IPv6: one /64) */
    EXO_LIMIT_STRANGERS_SHARE = 8,    /* strangers take at most 1/8 of all descriptors */
    EXO_LIMIT_STRANGER_BYTES = 64 * 1024, /* that one stranger may send */
    EXO_LIMIT_HANDSHAKE_MS = 2000,        /* for ZeroMQ's handshake, with CURVE's */
    EXO_LIMIT_HELLO_TICKS = 10,           /* half seconds within which its Hello must be accepted */
    /* connections of a listener whose addresses are kept for the log: the latest ones */
    EXO_LIMIT_ORIGINS = 512,

    /* Peers. */
    EXO_LIMIT_PAYLOAD = 1 << 30,  /* bytes of one payload */
    EXO_LIMIT_PIECE = 512 * 1024, /* bytes of a frame; a larger payload is sent in pieces */
    EXO_LIMIT_FRAME = 1 << 20,    /* bytes of a received frame; ZeroMQ accepts no longer one */
    /* bytes of a first frame, which has the envelopes of a message */
    EXO_LIMIT_FIRST_FRAME = 128 * 1024,
    EXO_LIMIT_ENVELOPES = 2048, /* envelopes of a message */
    EXO_LIMIT_WINDOW = 8 << 20, /* unread bytes on the way to a peer; further data waits here */
    /* calls and replies that wait here for a peer; at the limit, calls to it fail with FULL */
    EXO_LIMIT_WAITING = 1 << 17,
    EXO_LIMIT_WAITING_REPLIES = 1 << 18, /* the same; at this limit the peer is lost */
    /* bytes of a connection inside ZeroMQ, parts of an unfinished message included */
    EXO_LIMIT_INBOUND_BYTES = 32 << 20,

    /* peers with rings in shared memory; other peers of this host use their sockets */
    EXO_LIMIT_RINGS = 64,
    /* lost peers and ended strangers after which freed memory goes back to the kernel */
    EXO_LIMIT_LOST_TO_TRIM = 64,

    /* Descriptors. */
    EXO_LIMIT_DESCRIPTORS = 1 << 20, /* the soft limit is raised to the hard one, at most to this */
    EXO_LIMIT_LEAST_DESCRIPTORS = 64, /* fewer are not enough for a net with a few peers */
    EXO_LIMIT_FEW_DESCRIPTORS = 256,  /* fewer may not be enough for a dozen peers */
    EXO_LIMIT_RESERVE = 64,           /* connections leave the last ones to files and other needs */
};

#endif
