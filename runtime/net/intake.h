/* Incoming connections, below ZeroMQ: limits of the descriptors that strangers hold, of the time
 * they have, and of the bytes they send.
 *
 * ZeroMQ 4.3 ends the process when a listener of a path has no descriptor left. It has no limit on
 * connections, on bytes before the end of the handshake, or on the parts of one message. So
 * intake.c defines accept4, close, listen, recv and send for the whole process. They keep accounts
 * of descriptors that came through a net's listener, and pass calls for all others to the C
 * library. docs/decisions/0014-intake.md has the reasons.
 *
 * Threads: any thread may call any function. The table of descriptors belongs to the process, as
 * descriptors do; its lock stands alone. Read next: intake.c. */
#ifndef EXO_NET_INTAKE_H
#define EXO_NET_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <exogym/status.h>

/* Called for each net before anything else: raises the soft limit of descriptors to the hard one,
 * and keeps a spare descriptor for the time when no other is left. Errors: FULL if the limit is
 * below EXO_LIMIT_LEAST_DESCRIPTORS. */
exo_status exo_intake_open(exo_err *err);
void exo_intake_close(void);

enum {
    EXO_INTAKE_HINT = 160
};

/* The end of an error that the process at `endpoint` does not answer: perhaps it has no descriptor left,
 * because processes of this host may have few. "": they may have many, or it is on another host. */
void exo_intake_hint(const char *endpoint, char out[EXO_INTAKE_HINT]);

/* Between begin and end, sockets on which this thread begins to listen belong to `owner`: the
 * intake keeps accounts of them and of the connections that they accept. */
void exo_intake_begin(const void *owner);
void exo_intake_end(void);

/* Names an account for good: a descriptor's number may be reused by another connection. 0: none. */
typedef uint64_t exo_intake_ticket;

/* A connection that a listener accepted, and that ended before it was admitted. */
#define EXO_INTAKE_ENDED UINT64_MAX

/* The connection is not a stranger's any more. accepted: by a listener; a connection that this
 * process made gets an account here. 0: it has no account. */
exo_intake_ticket exo_intake_admit(int fd, bool accepted);
/* Whether the connection has an account no more, because ZeroMQ has closed it. Messages of it may
 * be left in ZeroMQ. */
bool exo_intake_has_ended(exo_intake_ticket ticket);
/* The connection is a stranger's again, and is ended in time unless it ends by itself. One that
 * this process made stays as it is. */
void exo_intake_dismiss(exo_intake_ticket ticket);
/* Called before the net closes the socket of connections: of an admitted one, or of all strangers of
 * `owner`, which lost peers are, too. ZeroMQ still sends what they are owed, but reads nothing more
 * of them, not even their end. */
void exo_intake_leave(exo_intake_ticket ticket);
void exo_intake_leave_strangers(const void *owner);
/* The net has taken `bytes` of the connection from ZeroMQ. */
void exo_intake_took(exo_intake_ticket ticket, size_t bytes);
/* The number of bytes that ZeroMQ has read of the connection so far, also of a message that is not
 * complete yet; 0: it has no account. */
uint64_t exo_intake_read(exo_intake_ticket ticket);
/* Whether a descriptor with that number leaves the reserve free. If not, a caller that can do
 * without the descriptor closes it. */
bool exo_intake_has_room(int fd);

/* Gives the origin of the connection `fd`, which `listener` accepted as its *number-th (from 0) or
 * later. `listener` began to listen between begin and end. ZeroMQ reports its connections in that
 * order, and reports some after they have ended. *number advances past the connection. False: the
 * origin is unknown, or was forgotten, because EXO_LIMIT_ORIGINS connections came since. */
bool exo_intake_origin(int listener, uint64_t *number, int fd, struct sockaddr_storage *from);

typedef struct exo_intake_figures {
    /* connections: those that have an account now; strangers: those among them from other hosts */
    uint64_t connections, strangers;
    /* since the process began: refused at once, because no room or memory was left for strangers */
    uint64_t refused;
    uint64_t starved;  /* refused at once, because the process had too few descriptors left */
    uint64_t ended;    /* strangers that were ended to make room, or after too long a time */
    uint64_t overfull; /* connections that were ended because they sent too much */
    uint64_t limit;    /* of descriptors, of this process */
} exo_intake_figures;

/* Called each half second: ends strangers of `owner` that have taken too long. */
exo_intake_figures exo_intake_tick(const void *owner);

#endif
