/* Envelopes: what two processes say to each other, as C structs on one side and bytes on the
 * other.
 *
 * A message is a frame of envelopes and, after it, frames with large payloads: proto/README.md has
 * the layout. This is the only folder that sees the generated code of wire.proto. Nothing here
 * blocks, and nothing that came from a peer is believed before it is checked: a reader gives INVAL
 * with the reason for bytes that are not a message.
 *
 * Threads: writers and readers belong to one thread at a time. */
#ifndef EXO_WIRE_H
#define EXO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

enum {
    EXO_WIRE_VERSION = 2, /* 1 had no Piece, and rings of another kind */
    EXO_WIRE_HEADER = 12,
    EXO_WIRE_INLINE = 65536,                    /* largest payload inside an envelope, bytes   */
    EXO_WIRE_ENVELOPE = EXO_WIRE_INLINE + 8192, /* largest envelope                            */
    EXO_WIRE_FRAME0 = 1 << 20,                  /* largest first frame                         */
    EXO_WIRE_MAX_FRAMES = 256,                  /* of one message, the first included          */
    EXO_WIRE_MAX_ENVELOPES = 65535,             /* of one message                              */
    EXO_WIRE_NAME = 256,                        /* longest method, name or endpoint, with its 0 */
    EXO_WIRE_REASON = 1024,                     /* longest reason, with its 0                  */
    EXO_WIRE_HANDLE = 64                        /* longest handle of a shared object           */
};

typedef enum exo_wire_place {
    EXO_WIRE_NONE,
    EXO_WIRE_BYTES,  /* data, size: inside the envelope               */
    EXO_WIRE_FRAMED, /* the next frame of the message                 */
    EXO_WIRE_OBJECT, /* data, size: the handle of a shared object      */
    EXO_WIRE_LANDED, /* what came in pieces before it                  */
} exo_wire_place;

/* Borrowed: from the caller when writing; from the reader, until its next envelope, when
 * reading. */
typedef struct exo_wire_payload {
    exo_wire_place place;
    const void *data;
    size_t size;
} exo_wire_payload;

/* Who a process is, in Hello and Welcome. Strings are never NULL after reading. */
typedef struct exo_wire_identity {
    uint64_t node; /* random for each process, never 0 */
    uint32_t pid;
    uint64_t start; /* of the process, clock ticks since boot */
    const char *name, *boot, *endpoint, *cluster;
} exo_wire_identity;

typedef enum exo_wire_kind {
    EXO_WIRE_CALL = 1,
    EXO_WIRE_REPLY,
    EXO_WIRE_CANCEL,
    EXO_WIRE_BEAT,
    EXO_WIRE_HELLO,
    EXO_WIRE_WELCOME,
    EXO_WIRE_REFUSED,
    EXO_WIRE_GOODBYE,
    EXO_WIRE_RING,
    EXO_WIRE_PIECE,
} exo_wire_kind;

typedef struct exo_envelope {
    exo_wire_kind kind;
    uint64_t id;              /* CALL (0: no reply is wanted), REPLY, CANCEL               */
    uint64_t actor;           /* CALL: reference at the callee; 0: the system actor `text`  */
    const char *method;       /* CALL                                                       */
    const char *text;         /* CALL: name; REPLY, REFUSED, GOODBYE: reason                */
    exo_time timeout;         /* CALL: ns left; INT64_MAX: no deadline                      */
    exo_status status;        /* REPLY                                                      */
    exo_wire_payload payload; /* CALL, REPLY; PIECE: the next frame                         */
    uint64_t size;            /* PIECE: bytes of the whole payload                          */
    uint64_t taken;           /* BEAT: calls without reply taken from their mailboxes       */
    uint64_t read;            /* BEAT: bytes read from the connection, see proto/README.md  */
    bool watches;             /* BEAT: the sender watches the receiver's process            */
    uint32_t version;         /* REFUSED: the refuser's                                     */
    exo_wire_identity who;    /* HELLO, WELCOME                                             */
    uint64_t token;           /* RING: to be said at the speaker's door                     */
} exo_envelope;

/* --- Writing ---------------------------------------------------------------------------------- */

/* A first frame that grows. Zeroed is empty. */
typedef struct exo_wire_writer {
    uint8_t *data; /* header and envelopes; exo_free */
    size_t size, cap;
    uint32_t count;
} exo_wire_writer;

/* Adds an envelope. INVAL: something in it is longer than the limits, or changed meanwhile; FULL:
 * the frame has no room for it; NOMEM. Each leaves the frame as it was. A reason that is too long
 * is cut. */
exo_status exo_wire_add(exo_wire_writer *writer, const exo_envelope *envelope, exo_err *err);
/* Writes the header of a frame that has an envelope: it is ready to be sent as the connection's
 * message `number`. */
void exo_wire_finish(exo_wire_writer *writer, uint32_t number);
/* The number in a frame's header. */
uint32_t exo_wire_number(const uint8_t header[EXO_WIRE_HEADER]);
void exo_wire_clear(exo_wire_writer *writer); /* empty, keeps its memory */
void exo_wire_release(exo_wire_writer *writer);

/* --- Reading ---------------------------------------------------------------------------------- */

typedef struct exo_wire_reader {
    const uint8_t *data; /* borrowed */
    size_t size, at;
    uint32_t left;   /* envelopes */
    uint32_t number; /* of the message */
    uint32_t version;
    struct exo_wire_arena *arena; /* what the envelope points to */
} exo_wire_reader;

/* A reader without a frame; keeps memory from frame to frame. */
exo_status exo_wire_reader_init(exo_wire_reader *reader, exo_err *err);
void exo_wire_reader_release(exo_wire_reader *reader);
/* Begins a first frame, which must stay until the last envelope is read. INVAL: not exogym's;
 * UNSUPPORTED: of another version, which is in reader->version. */
exo_status exo_wire_open(exo_wire_reader *reader, const void *data, size_t size, exo_err *err);
/* The next envelope; NOT_FOUND at the end; INVAL if the bytes are no envelope, NOMEM: the frame is
 * then of no further use, and asking on gives INVAL. */
exo_status exo_wire_next(exo_wire_reader *reader, exo_envelope *out, exo_err *err);

#endif
