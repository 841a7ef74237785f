/* Connections that come in, below ZeroMQ: how many descriptors strangers may hold, for how long,
 * and how much they may send.
 *
 * ZeroMQ 4.3 ends the process when a listener of a path finds no descriptor left, and has no bound
 * of connections, of bytes before the handshake's end, or of the parts of one message. So this file
 * defines accept4, close, listen, recv and send of the whole process: of descriptors that came by a
 * listener of a net they keep accounts, all others go to the C library as they are.
 * docs/decisions/0014-intake.md has the reasons.
 *
 * Threads: everything from any thread. The table of descriptors is the process's, as the
 * descriptors are; its lock stands alone. */
#ifndef EXO_NET_INTAKE_H
#define EXO_NET_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* For each net, before anything else: raises the soft limit of descriptors to the hard one, and
 * keeps one descriptor for the time when there is no other. */
void exo_intake_open(void);
void exo_intake_close(void);

/* What this thread begins to listen on, from begin to end, is `owner`'s: the intake looks after it
 * and whatever it accepts. */
void exo_intake_begin(const void *owner);
void exo_intake_end(void);

/* An account, beyond its descriptor's number, which another connection may have by now; 0: none. */
typedef uint64_t exo_intake_ticket;

/* The connection is no stranger's any more. Also of one that this process made: from now on it has
 * an account. */
exo_intake_ticket exo_intake_admit(int fd);
/* It is one again, and goes in time if it does not go by itself. */
void exo_intake_dismiss(exo_intake_ticket ticket);
/* So much of what the connection sent was taken from ZeroMQ. */
void exo_intake_took(exo_intake_ticket ticket, size_t bytes);
/* Whether a descriptor of that number leaves the reserve alone. What can do without it closes it
 * otherwise. */
bool exo_intake_has_room(int fd);

/* Where the connection `fd` came from that `listener` (a descriptor that listens between begin and
 * end) accepted as its *number-th (from 0). ZeroMQ tells of its connections in that order, and of
 * some when they have ended already. Counts *number on to the next one. False: it is not known, or
 * not any more, as EXO_LIMIT_ORIGINS others came since. */
bool exo_intake_origin(int listener, uint64_t *number, int fd, struct sockaddr_storage *from);

typedef struct exo_intake_figures {
    /* that are there: all with an account; of these, strangers from elsewhere */
    uint64_t connections, strangers;
    uint64_t refused;  /* at once, since the process began: no descriptor was to be had */
    uint64_t ended;    /* strangers that had to make room, or took too long */
    uint64_t overfull; /* connections that sent more than they may */
} exo_intake_figures;

/* Half a second has gone by: strangers of `owner` that are there for too long go. */
exo_intake_figures exo_intake_tick(const void *owner);

#endif
