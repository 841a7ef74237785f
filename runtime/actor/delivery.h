/* Large messages whose replies nobody awaits, and whose loss has to be known. A process that cannot
 * take a call's arguments, as one that has no descriptor left for an object of another process,
 * answers with an error, and the call's method never runs. exo_send drops that answer; these
 * messages report it.
 *
 * Threads: any. The state is guarded by a lock of its own, which is held for a few instructions.
 * Read next: delivery.c, cluster/remote_objects.c. */
#ifndef EXO_ACTOR_DELIVERY_H
#define EXO_ACTOR_DELIVERY_H

#include <exogym/actor.h>

enum {
    /* least bytes of a message that goes to other processes of this host as an object */
    EXO_DELIVERY_LARGE = 256 * 1024
};

typedef struct exo_delivery exo_delivery;

/* The process of the message's receiver lacks something: FULL, NOMEM, IO or UNSUPPORTED, with its
 * reason. Runs under no lock, on any thread, until exo_delivery_close has returned. */
typedef void exo_delivery_lost(void *context, uint64_t tag, const exo_err *reason);

/* Errors: NOMEM, as NULL. */
exo_delivery *exo_delivery_open(exo_delivery_lost *lost, void *context);
/* Waits for calls of `lost` that run now; then the context may go. Messages on their way arrive.
 * NULL is allowed. */
void exo_delivery_close(exo_delivery *delivery);
/* Like exo_send without a deadline. The loss of a smaller message is not reported. */
exo_status exo_delivery_send(exo_delivery *delivery, exo_runtime *runtime, exo_ref actor,
                             const char *method, exo_payload args, uint64_t tag, exo_err *err);

#endif
