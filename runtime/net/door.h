/* Doors: where a process takes in descriptors of another one of its host and user.
 *
 * A door is a datagram socket in a private folder, beside the ipc socket of its net. Who knocks
 * hands over descriptors and a token that it was told by the connection; the kernel adds who it is.
 * So neither process ever opens the other one's /proc/PID/fd, which the kernel forbids where a
 * process is not dumpable. One datagram is one visit: nobody waits for anybody.
 *
 * A socketpair is a bell: each end sends a byte to wake the other, never waiting, whatever flags
 * the other one has set. */
#ifndef EXO_NET_DOOR_H
#define EXO_NET_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_DOOR_FILES = 2, /* descriptors that a visit brings */
    EXO_DOOR_PATH = 108
};

typedef struct exo_door_visit {
    uint64_t token;
    uint32_t pid;              /* of whoever knocked, as the kernel says */
    int files[EXO_DOOR_FILES]; /* the receiver's to close                */
} exo_door_visit;

/* The door's path beside an ipc endpoint. False: the endpoint has none, being another transport's,
 * abstract, or too long. */
bool exo_door_path(const char *endpoint, char out[EXO_DOOR_PATH]);
/* Makes a door, in the place of one that was left there. The caller closes it and unlinks its path.
 * IO. */
exo_status exo_door_open(const char *path, int *out, exo_err *err);
/* Hands copies of descriptors over. FULL: others are waiting there; try again. PEER_LOST: nobody
 * has the door. IO. */
exo_status exo_door_knock(const char *path, uint64_t token, const int files[EXO_DOOR_FILES],
                          exo_err *err);
/* Takes the next visit of this user's processes. False: nobody is there. What makes no sense is
 * thrown away: then `*out` has no files, which are -1. */
bool exo_door_answer(int door, exo_door_visit *out);
void exo_door_visit_release(exo_door_visit *visit);

/* The two ends of a bell. False, with errno. */
bool exo_bell_new(int ends[2]);
void exo_bell_ring(int bell);
/* The process that rang first, as the kernel says, if it is this user's; 0: it cannot be told. For
 * the maker's end, once. */
uint32_t exo_bell_heard(int bell);
/* Takes what was rung. False: the other end is closed, and nobody rings any more. */
bool exo_bell_quiet(int bell);

#endif
