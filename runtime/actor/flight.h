/* The flight recorder: memory shared with another process, where each thread that runs a method
 * notes which one, so that it can be said what ran even after the process was killed.
 *
 * A thread writes only to a slot of its own, and takes no lock. Without a recorder there is one
 * branch a call. */
#ifndef EXO_ACTOR_FLIGHT_H
#define EXO_ACTOR_FLIGHT_H

#include <stddef.h>

enum {
    EXO_FLIGHT_SLOTS = 64, /* threads; what more of them do is not noted */
    EXO_FLIGHT_SLOT = 128  /* bytes                                      */
};

/* Zeroed memory of this many bytes, at an address that is a multiple of EXO_FLIGHT_SLOT. */
#define EXO_FLIGHT_SIZE ((size_t)EXO_FLIGHT_SLOTS * EXO_FLIGHT_SLOT)

/* Where methods are noted from now on; NULL: nowhere. Before there are runtimes. */
void exo_flight_use(void *memory);
extern void *exo_flight_recorder;

/* Around a method, on its thread. Of nested ones the outer one is noted. */
void exo_flight_begin(const char *actor, const char *method);
void exo_flight_end(void);

/* What runs: "actor.method, actor.method". Gives the number of methods. In any process that has the
 * memory. */
size_t exo_flight_read(const void *memory, char *out, size_t size);

#endif
