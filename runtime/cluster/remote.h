/* Calls between this runtime and those of other processes.
 *
 * A reference to an actor elsewhere is a connection (exo_peer) and the reference that it has there.
 * A call through it is pending here until its reply comes, and serving there. Whatever happens, its
 * future is completed once: by the reply, by its deadline, by cancelling (the other end is told,
 * and drops the call if it has not begun), or with PEER_LOST when the connection goes.
 *
 * A connection has a window: so many calls may be pending that further ones give FULL, so a slow
 * callee does not grow its caller.
 *
 * Threads: any. Nothing here blocks, but exo_remote_open and _close. */
#ifndef EXO_CLUSTER_REMOTE_H
#define EXO_CLUSTER_REMOTE_H

#include "actor/hooks.h"
#include "base/identity.h"
#include "net/net.h"
#include "store/store.h"

typedef struct exo_remote exo_remote;

typedef struct exo_remote_events {
    void (*opened)(void *context, exo_peer *peer);
    void (*lost)(void *context, exo_peer *peer, const char *cause);
    /* The namespace and owner with which the head had an actor of this process made; false: it did
     * not. */
    bool (*made_from)(void *context, exo_ref actor, char space[256], char owner[EXO_IDENTITY_NAME]);
} exo_remote_events;

/* Opens a net (handler, context and held of `opts` are set here) for `runtime`, which must outlive
 * it. Its endpoints are bound and known, but nothing that comes is read before exo_remote_start.
 * *out is NULL on failure. Errors: those of exo_net_open. */
exo_status exo_remote_open(exo_remote **out, exo_runtime *runtime, const exo_net_opts *opts,
                           const exo_remote_events *events, void *context, exo_err *err);
/* Once: serves from now on. Whoever knocked already is answered at once, so the caller first spawns
 * the system actors that others ask for, and makes ready all that `events` uses. After a failure it
 * can only be closed and freed. Errors: FAILED (no thread). */
exo_status exo_remote_start(exo_remote *remote, exo_err *err);
/* Ends every pending call with PEER_LOST. The references that it gave are dead then; it is freed by
 * exo_remote_free, when nothing can use them any more. */
void exo_remote_close(exo_remote *remote);
void exo_remote_free(exo_remote **remote);
exo_net *exo_remote_net(exo_remote *remote);

/* The reference here of the actor that is `id` at the peer. The same for the same actor, as long as
 * it is known here. */
exo_status exo_remote_actor(exo_remote *remote, exo_peer *peer, uint64_t id, exo_ref *out,
                            exo_err *err);
/* The same for the peer's actor `name` of the namespace "exogym": its head or worker. */
exo_status exo_remote_system(exo_remote *remote, exo_peer *peer, const char *name, exo_ref *out,
                             exo_err *err);
/* An open connection to that process, held; NULL if there is none. */
exo_peer *exo_remote_peer(exo_remote *remote, uint64_t node);
/* Whose a reference is, and what it is there. False: it is dead. */
bool exo_remote_locate(exo_remote *remote, exo_ref actor, uint64_t *node, uint64_t *id);

/* What this process holds for the peer of a connection: see quota.h. */
typedef struct exo_remote_held {
    uint64_t waiting, waiting_bytes; /* calls that wait for a turn */
    uint64_t lent, lent_bytes;       /* objects of replies that it has not acknowledged */
    uint64_t monitors, references;   /* of actors here; to actors of it */
} exo_remote_held;

/* What each of them holds that holds anything, `most` of them at most; *peers are held. Gives their
 * number. */
size_t exo_remote_list_held(exo_remote *remote, exo_peer **peers, exo_remote_held *held,
                            size_t most);
/* Zeroed if there is no connection to that process. */
void exo_remote_held_for(exo_remote *remote, uint64_t node, exo_remote_held *out);

/* Whether a call through the reference had PEER_LOST for an answer: its actor has died, or a method
 * of it said so of another. */
bool exo_remote_is_suspect(exo_remote *remote, exo_ref actor);

/* A method of every process, called as its system actor "": a piece of one of its objects. */
#define EXO_REMOTE_FETCH "$fetch"
typedef struct exo_remote_fetch {
    exo_object_handle handle;
    uint64_t first, size; /* bytes */
} exo_remote_fetch;

/* Another one: which of these actors of the process, uint64_t after uint64_t, are dead, and why.
 * The reply has the uint64_t of each of those and its cause, with a 0; the cause is empty if the
 * process has forgotten it. */
#define EXO_REMOTE_DEATHS "$deaths"

/* Another one: the objects that the process holds, exo_remote_object after exo_remote_object. */
#define EXO_REMOTE_OBJECTS "$objects"
typedef struct exo_remote_object {
    uint64_t size, nonce;
    uint32_t slot, references, borrowers, sealed, imported, reserved;
} exo_remote_object;

/* For exo_remote_ops; context is the exo_remote. */
exo_status exo_remote_call(void *context, exo_ref actor, const char *method, exo_payload *args,
                           exo_future *future, exo_err *err);
exo_status exo_remote_stop(void *context, exo_ref actor, bool drain, exo_err *err);
exo_status exo_remote_kill(void *context, exo_ref actor, const char *cause, exo_err *err);
exo_status exo_remote_monitor(void *context, exo_ref actor, exo_future *future, exo_err *err);
exo_status exo_remote_cause(void *context, exo_ref actor, char *text, size_t size);

#endif
