/* Calls between this runtime and those of other processes.
 *
 * A reference to an actor elsewhere consists of a connection (exo_peer) and the actor's reference
 * at the other end. A call through it is pending here until its reply comes, and serving there. Its
 * future is completed once: by the reply, by its deadline, by cancellation (the other end is told,
 * and drops the call if it has not begun), or with PEER_LOST when the connection is lost.
 *
 * Each connection has a window of pending calls. Further calls fail with FULL, so a slow callee
 * does not make its caller grow.
 *
 * Threads: any. Only exo_remote_open and exo_remote_close block. */
#ifndef EXO_CLUSTER_REMOTE_H
#define EXO_CLUSTER_REMOTE_H

#include "actor/hooks.h"
#include "base/identity.h"
#include "net/net.h"
#include "store/store.h"

typedef struct exo_remote exo_remote;

typedef struct exo_remote_events {
    /* `opened`: another process has connected and proven its identity. `lost`: a connection is
     * lost, once for each. Called by the thread that drives the net; neither may block. Each may be
     * NULL. */
    void (*opened)(void *context, exo_peer *peer);
    void (*lost)(void *context, exo_peer *peer, const char *cause);
    /* Writes the namespace and owner of an actor of this process that the head knows; false: the
     * head does not know it. */
    bool (*made_from)(void *context, exo_ref actor, char space[256], char owner[EXO_IDENTITY_NAME]);
} exo_remote_events;

/* Opens a net for `runtime`, which must outlive it; handler, context and held of `opts` are set
 * here. Its endpoints are bound and known, but nothing that arrives is read before
 * exo_remote_start. *out is NULL on failure. Errors: NOMEM, and those of exo_net_open. */
exo_status exo_remote_open(exo_remote **out, exo_runtime *runtime, const exo_net_opts *opts,
                           const exo_remote_events *events, void *context, exo_err *err);
/* Begins to serve; called once. Calls that wait already are served immediately, so the caller first
 * spawns the system actors that others call, and prepares all that `events` uses. After a failure
 * the remote can only be closed and freed. Errors: FAILED (no thread). */
exo_status exo_remote_start(exo_remote *remote, exo_err *err);
/* Ends every pending call with PEER_LOST, and closes the connections. All references are dead
 * afterwards. why: the reason that peers hear; NULL: that it ended. exo_remote_free frees the remote, once
 * nothing can use the references. */
void exo_remote_close(exo_remote *remote, const char *why);
void exo_remote_free(exo_remote **remote);
exo_net *exo_remote_net(exo_remote *remote);

/* Makes a reference to the actor whose reference at the peer is `id`. An actor has the
 * same reference here for as long as that reference is known. Errors: PEER_LOST, FULL, NOMEM. */
exo_status exo_remote_actor(exo_remote *remote, exo_peer *peer, uint64_t id, exo_ref *out,
                            exo_err *err);
/* The same for the peer's actor `name` of the namespace "exogym", its head or worker; "": the
 * process itself. */
exo_status exo_remote_system(exo_remote *remote, exo_peer *peer, const char *name, exo_ref *out,
                             exo_err *err);
/* Keeps a connection that this process made, so that exo_remote_peer finds it. */
void exo_remote_know(exo_remote *remote, exo_peer *peer);
/* An open connection to that process, held; NULL: there is none. */
exo_peer *exo_remote_peer(exo_remote *remote, uint64_t node);
/* Whether the actor's process is on this host and connected by ipc. */
bool exo_remote_is_near(exo_remote *remote, exo_ref actor);
/* Writes the process of a reference's actor, and the actor's reference there (0: a system actor).
 * False: the reference is dead. */
bool exo_remote_locate(exo_remote *remote, exo_ref actor, uint64_t *node, uint64_t *id);

/* What this process holds for the peers of its connections: see quota.h. */
typedef struct exo_remote_held {
    uint64_t waiting, waiting_bytes; /* calls that wait for a turn */
    uint64_t lent, lent_bytes;       /* objects of replies that were not acknowledged */
    /* monitors of actors here; references here to actors of the peer */
    uint64_t monitors, references;
} exo_remote_held;

/* Lists the connections for which this process holds anything, at most `most`. The caller drops
 * each of *peers. Returns their number. */
size_t exo_remote_list_held(exo_remote *remote, exo_peer **peers, exo_remote_held *held,
                            size_t most);
/* Zeros if there is no connection to that process. */
void exo_remote_held_for(exo_remote *remote, uint64_t node, exo_remote_held *out);

/* Whether a call through the reference was answered with PEER_LOST, or a monitor reported its
 * death. The actor has probably died; but a method may also return PEER_LOST because of another
 * actor. */
bool exo_remote_is_suspect(exo_remote *remote, exo_ref actor);

/* A method of every process, called at its system actor "": reads a part of one of its objects. */
#define EXO_REMOTE_FETCH "$fetch"
typedef struct exo_remote_fetch {
    exo_object_handle handle;
    uint64_t first, size; /* bytes; of bytes elsewhere at most EXO_REMOTE_PIECE */
} exo_remote_fetch;
enum {
    EXO_REMOTE_PIECE = 4 << 20
};

/* Such a method, too: tells which actors of the process are dead, and why. Its argument is an array
 * of uint64_t, the actors' references there. For each dead one the reply has its uint64_t and its
 * cause with a 0. The cause is empty if the process has forgotten it. */
#define EXO_REMOTE_DEATHS "$deaths"

/* Such a method, too: lists the objects that the process holds, as an array of
 * exo_remote_object. */
#define EXO_REMOTE_OBJECTS "$objects"
typedef struct exo_remote_object {
    uint64_t size, nonce;
    uint32_t slot, references, borrowers, sealed, imported, elsewhere;
    uint32_t place, zero; /* place: exo_object_info.place */
} exo_remote_object;
/* Serves such a call of this process: completes the future, or, if it waits for a device, has an
 * actor do so. After an error the future is not complete. */
exo_status exo_remote_answer_own(exo_remote *r, const char *method, const exo_payload *args,
                                 exo_future *future, exo_err *err);

/* For exo_remote_ops; context: the exo_remote. */
exo_status exo_remote_call(void *context, exo_ref actor, const char *method, exo_payload *args,
                           exo_future *future, exo_err *err);
exo_status exo_remote_stop(void *context, exo_ref actor, bool drain, exo_err *err);
exo_status exo_remote_kill(void *context, exo_ref actor, const char *cause, exo_err *err);
exo_status exo_remote_monitor(void *context, exo_ref actor, exo_future *future, exo_err *err);
exo_status exo_remote_cause(void *context, exo_ref actor, char *text, size_t size);

#endif
