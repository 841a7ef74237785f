/* Envelopes: the messages between two processes, as C structs and as bytes.
 *
 * A message is a frame of envelopes, then frames with large payloads; proto/README.md has the
 * layout. Only this folder sees the generated code of wire.proto. Nothing here blocks. A reader
 * checks everything that came from a peer; bytes that are no message give INVAL with the reason.
 *
 * Threads: writers and readers belong to one thread at a time. Read next: wire.c. */
#ifndef EXO_WIRE_H
#define EXO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

enum {
    EXO_WIRE_VERSION = 2, /* 1 had no Piece, and other rings */
    EXO_WIRE_HEADER = 12,
    EXO_WIRE_INLINE = 65536,                    /* largest payload inside an envelope, in bytes */
    EXO_WIRE_ENVELOPE = EXO_WIRE_INLINE + 8192, /* largest envelope, in bytes */
    EXO_WIRE_FRAME0 = 1 << 20,                  /* largest first frame, in bytes */
    EXO_WIRE_MAX_FRAMES = 256,                  /* of one message, the first included          */
    EXO_WIRE_MAX_ENVELOPES = 65535,             /* of one message                              */
    EXO_WIRE_NAME = 256,                        /* longest method, name or endpoint, with its NUL */
    EXO_WIRE_REASON = 1024,                     /* longest reason, with its NUL */
    EXO_WIRE_HANDLE = 64                        /* longest handle of a shared object, in bytes */
};

typedef enum exo_wire_place {
    EXO_WIRE_NONE,
    EXO_WIRE_BYTES,  /* data, size: inside the envelope */
    EXO_WIRE_FRAMED, /* the next frame of the message */
    EXO_WIRE_OBJECT, /* data, size: the handle of a shared object */
    EXO_WIRE_LANDED, /* assembled from the pieces that came before */
} exo_wire_place;

/* Borrowed: when writing, from the caller; when reading, from the reader until its next
 * envelope. */
typedef struct exo_wire_payload {
    exo_wire_place place;
    const void *data;
    size_t size;
} exo_wire_payload;

/* The identity of a process in Hello and Welcome. After reading, no string is NULL. */
typedef struct exo_wire_identity {
    uint64_t node; /* random for each process, never 0 */
    uint32_t pid;
    uint64_t start; /* start time of the process, in clock ticks since boot */
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
    uint64_t id;              /* CALL (0: no reply wanted), REPLY, CANCEL */
    uint64_t actor;           /* CALL: reference at the callee; 0: the system actor named `text` */
    const char *method;       /* CALL                                                       */
    const char *text;         /* CALL: name; REPLY, REFUSED, GOODBYE: reason */
    exo_time timeout;         /* CALL: remaining ns; INT64_MAX: no deadline */
    exo_status status;        /* REPLY                                                      */
    exo_wire_payload payload; /* CALL, REPLY; PIECE: the next frame */
    uint64_t size;            /* PIECE: size of the whole payload, in bytes */
    /* BEAT: number of calls without reply that left their mailboxes */
    uint64_t taken;
    /* BEAT: bytes read from the connection, see proto/README.md */
    uint64_t read;
    bool watches;          /* BEAT: the sender watches the receiver's process */
    uint32_t version;      /* REFUSED: the version of the refusing process */
    exo_wire_identity who; /* HELLO, WELCOME                                             */
    uint64_t token;        /* RING: to be presented at the sender's door */
} exo_envelope;

/* --- Writing ---------------------------------------------------------------------------------- */

/* A first frame that grows. A zeroed writer is empty. */
typedef struct exo_wire_writer {
    uint8_t *data; /* header and envelopes; freed with exo_free */
    size_t size, cap;
    uint32_t count;
} exo_wire_writer;

/* Adds an envelope. Errors: INVAL if a part exceeds the limits or changed meanwhile; FULL if the
 * frame has no room for it; NOMEM. After an error the frame is unchanged. A reason that is too long
 * is cut. */
exo_status exo_wire_add(exo_wire_writer *writer, const exo_envelope *envelope, exo_err *err);
/* Writes the header of a frame with at least one envelope. The frame is then ready to be sent as
 * the connection's message `number`. */
void exo_wire_finish(exo_wire_writer *writer, uint32_t number);
/* The number in a frame's header. */
uint32_t exo_wire_number(const uint8_t header[EXO_WIRE_HEADER]);
/* Empties the writer; it keeps its memory. */
void exo_wire_clear(exo_wire_writer *writer);
void exo_wire_release(exo_wire_writer *writer);

/* --- Reading ---------------------------------------------------------------------------------- */

typedef struct exo_wire_reader {
    const uint8_t *data; /* borrowed */
    size_t size, at;
    uint32_t left;   /* number of envelopes that are left */
    uint32_t number; /* of the message */
    uint32_t version;
    struct exo_wire_arena *arena; /* owns the memory that envelopes point to */
} exo_wire_reader;

/* Makes a reader without a frame. It keeps its memory from frame to frame. Errors: NOMEM. */
exo_status exo_wire_reader_init(exo_wire_reader *reader, exo_err *err);
void exo_wire_reader_release(exo_wire_reader *reader);
/* Opens a first frame, whose bytes must stay until the last envelope was read. Errors: INVAL if it
 * is no frame of exogym; UNSUPPORTED if it has another version, which reader->version gets. */
exo_status exo_wire_open(exo_wire_reader *reader, const void *data, size_t size, exo_err *err);
/* Reads the next envelope. Errors: NOT_FOUND at the end; INVAL if the bytes are no envelope; NOMEM.
 * After INVAL or NOMEM the frame is useless, and further calls give INVAL. */
exo_status exo_wire_next(exo_wire_reader *reader, exo_envelope *out, exo_err *err);

#endif
