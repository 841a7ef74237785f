/* The flight recorder: memory shared with another process, in which each thread notes the method
 * that it runs. The other process can read it even after this one was killed.
 *
 * A thread writes only to its own slot and takes no lock. Without a recorder, a call costs one
 * branch. */
#ifndef EXO_ACTOR_FLIGHT_H
#define EXO_ACTOR_FLIGHT_H

#include <stddef.h>

enum {
    EXO_FLIGHT_SLOTS = 64, /* threads; the methods of further threads are not noted */
    EXO_FLIGHT_SLOT = 128  /* bytes                                      */
};

/* The size of the memory, which must be zeroed and aligned to EXO_FLIGHT_SLOT. */
#define EXO_FLIGHT_SIZE ((size_t)EXO_FLIGHT_SLOTS * EXO_FLIGHT_SLOT)

/* Sets the memory for the notes; NULL: no recorder. Call it before any runtime is opened. */
void exo_flight_use(void *memory);
extern void *exo_flight_recorder;

/* Called around a method, on its thread. Of nested methods the outermost is noted. */
void exo_flight_begin(const char *actor, const char *method);
void exo_flight_end(void);

/* Writes the running methods as "actor.method, actor.method" and returns their number. Any process
 * that maps the memory may call it. */
size_t exo_flight_read(const void *memory, char *out, size_t size);

#endif
