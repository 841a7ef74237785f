/* Doors: a process hands descriptors to another one of its host and user.
 *
 * A door is a datagram socket in a private folder, beside the ipc socket of its net. The visitor
 * sends descriptors and a token that the connection gave it; the kernel adds the visitor's process
 * number. So neither process opens the other's /proc/PID/fd, which the kernel forbids where a
 * process is not dumpable. One datagram is one visit, and neither side waits for the other.
 *
 * A bell is a socketpair: each end sends a byte to wake the other, and never waits, whatever flags
 * the other process has set on it.
 *
 * No state; any thread. Read next: peer_ring.c, which uses both. */
#ifndef EXO_NET_DOOR_H
#define EXO_NET_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_DOOR_FILES = 2, /* descriptors of a visit */
    EXO_DOOR_PATH = 108
};

typedef struct exo_door_visit {
    uint64_t token;
    uint32_t pid;              /* of the visitor, by the kernel's word */
    int files[EXO_DOOR_FILES]; /* the receiver closes them; -1: none */
} exo_door_visit;

/* Gives the path of the door beside an ipc endpoint. False: the endpoint has none, because it is
 * abstract, too long or another transport's. */
bool exo_door_path(const char *endpoint, char out[EXO_DOOR_PATH]);
/* Makes a door, replacing one that was left at the path. The caller closes it and unlinks its path.
 * Errors: IO. */
exo_status exo_door_open(const char *path, int *out, exo_err *err);
/* Sends copies of the descriptors. Errors: FULL (other visits wait there; try again), PEER_LOST (no
 * process has the door), IO. */
exo_status exo_door_knock(const char *path, uint64_t token, const int files[EXO_DOOR_FILES],
                          exo_err *err);
/* Takes the next visit. False: there is none. A visit that is malformed or another user's is
 * discarded: then the files of *out are -1. */
bool exo_door_answer(int door, exo_door_visit *out);
void exo_door_visit_release(exo_door_visit *visit);

/* Makes a bell with two ends. False, with errno: it cannot be made. */
bool exo_bell_new(int ends[2]);
void exo_bell_ring(int bell);
/* Gives the process that rang first, by the kernel's word, if it is this user's; 0: unknown. The
 * maker of the bell calls it once, for its own end. */
uint32_t exo_bell_heard(int bell);
/* Takes all rings. False: the other end is closed and will not ring again. */
bool exo_bell_quiet(int bell);

#endif
