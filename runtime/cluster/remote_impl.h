/* Shared by the files of exo_remote. Read remote.h first, then remote.c.
 *
 * One lock, the remote's, guards references, channels, pending and serving calls, and loans. Each
 * holder keeps it briefly. No future is completed, no object dropped and no message sent under it,
 * and no other lock is taken. Functions that end in _locked are called under it. */
#ifndef EXO_CLUSTER_REMOTE_IMPL_H
#define EXO_CLUSTER_REMOTE_IMPL_H

#include <pthread.h>

#include <uthash.h>

#include "cluster/remote.h"

enum {
    WINDOW = 65536, /* pending calls of one connection */
    CAUSE = 256,
    ENDED_AT_ONCE = 256,  /* calls of a lost connection that are ended before others are served */
    ASKED_AT_ONCE = 2048, /* actors in one call of EXO_REMOTE_DEATHS */
    /* the last generation of a reference or pending call; 1 follows */
    GENERATION = 0x7fffffff
};

/* Methods that every actor has for other processes, in addition to the control lane's. */
#define METHOD_MONITOR "$monitor"
#define METHOD_KILL    "$kill"
#define METHOD_STOP    "$stop"
#define METHOD_DRAIN   "$drain"

struct pending; /* remote_calls.c */
struct serving; /* remote_serve.c */
struct loan;    /* remote_serve.c */
struct gate;    /* remote_gate.c */

struct key {
    uint64_t node, id;
};

/* An actor of another process. remote_refs.c makes and ends it; remote_calls.c marks it as suspect.
 * The remote's lock guards all of it; it is freed with the remote. It ends with its connection, or
 * when its process reports the actor's death. Processes are asked for deaths when the number of
 * references has doubled. */
struct reference {
    struct key key;
    exo_peer *peer; /* held; NULL: dead, and free for another actor */
    char *system;   /* name of a system actor; NULL: key.id is the actor's reference there */
    uint32_t index; /* its slot */
    uint32_t generation;
    uint32_t next_free; /* among the dead ones, index + 1 */
    bool suspect;
    /* of a dead actor, or of one whose monitor has reported its death; kept until the slot is used
     * again */
    char *cause;
    UT_hash_handle hh;
};

/* The state of one connection. It is freed with the remote. It is used for another connection when
 * its own is closed, everything done for its peer has ended, and none of its calls runs. The
 * remote's lock guards all of it, and the setting of the peer's user pointer, which leads here
 * while the connection is open. */
struct channel {
    exo_peer *peer; /* held until `ends` is false; owner, also of closed, ends and next: remote.c */
    uint32_t first; /* the first pending call, index + 1; owner: remote_calls.c */
    uint32_t num_pending;  /* owner: remote_calls.c */
    uint32_t num_watches;  /* monitors among them; owner, also of sweep_at: remote_calls.c */
    uint32_t sweep_at;     /* number of monitors at which dropped ones are looked for */
    uint32_t num_serving;  /* owner, also of the next six: remote_serve.c */
    uint32_t num_monitors; /* of these */
    uint32_t num_lent;     /* objects of replies that were not acknowledged */
    uint64_t lent_bytes;
    struct serving *servings; /* calls that run here; cancelled ones stand last */
    struct loan *loans;
    uint32_t num_references; /* owner: remote_refs.c */
    struct gate *gate;       /* owner: remote_gate.c */
    /* closed: the connection is lost; ends: everything done for its peer is being ended */
    bool closed, ends;
    struct channel *next;
};

struct exo_remote {
    /* exo_remote_open sets the members up to the lock; afterwards they are only read */
    exo_runtime *runtime;
    exo_net *net;
    const exo_remote_events *events;
    void *context;
    /* has records of refused calls and of calls that end an actor; NULL: none */
    exo_audit *audit;
    pthread_mutex_t lock;
    /* guarded by lock, like all below; owner, up to sweep_at: remote_refs.c */
    struct reference **references;
    size_t num_references, cap_references;
    uint32_t first_free, last_free; /* dead references, the longest dead first, index + 1 */
    uint32_t num_free;
    struct reference *by_key;
    size_t sweep_at;         /* number of references at which processes are asked for deaths */
    struct pending *pending; /* owner, up to free_pending: remote_calls.c */
    size_t num_pending, cap_pending;
    uint32_t free_pending;
    bool leaving;             /* no further call may become pending: remote.c */
    struct serving *serving;  /* remote_serve.c */
    struct loan *loans;       /* remote_serve.c */
    struct channel *channels; /* remote.c */
};

/* --- Channels (remote.c) ---------------------------------------------------------------------- */

/* The channel of an open connection, made at its first use. NULL: no memory. */
struct channel *exo_remote_channel_locked(exo_remote *r, exo_peer *peer);

/* --- References (remote_refs.c) --------------------------------------------------------------- */

/* The slot of a reference, also of a dead one as long as its cause is kept; NULL: none. */
struct reference *exo_remote_reference_locked(exo_remote *r, exo_ref actor);
/* Ends the references through a lost connection. */
void exo_remote_bury_references_locked(exo_remote *r, const exo_peer *peer, const char *cause);
/* Frees all references, once nothing can use them. */
void exo_remote_free_references(exo_remote *r);

/* --- Calls to other processes (remote_calls.c) ------------------------------------------------ */

/* Handles a reply. *value is moved. */
void exo_remote_take_reply(exo_remote *r, exo_peer *peer, const exo_envelope *e,
                           exo_payload *value);
/* Ends the pending calls of a channel that the peer's user pointer no longer leads to. Releases the
 * lock while it completes futures; it is held again on return. */
void exo_remote_end_pending_locked(exo_remote *r, struct channel *c, const char *reason);

/* --- Calls of other processes (remote_serve.c) ------------------------------------------------ */

/* Handles a call. *args is moved. */
void exo_remote_serve_call(exo_remote *r, exo_peer *peer, const exo_envelope *e, exo_payload *args);
/* The caller has given up its call; or, if the call has been answered, has received the object of
 * the reply. */
void exo_remote_cancel_call(exo_remote *r, exo_peer *peer, uint64_t id);
/* Cancels some calls of a lost peer, and takes back some of the objects that were lent to it. True:
 * there are more. */
bool exo_remote_end_serving(exo_remote *r, struct channel *c);

/* --- Turns at system actors (remote_gate.c) --------------------------------------------------- */

/* Puts a call of a connection's peer to a system actor of this process into the actor's mailbox, or
 * among the waiting calls. asker: number by which the peer knows the process that it calls for; 0:
 * itself. FULL: the quotas. *args is moved; after a failure it may remain the caller's. */
exo_status exo_remote_pass(exo_remote *r, struct channel *c, exo_peer *peer, uint64_t asker,
                           exo_ref actor, const char *method, exo_payload *args, exo_future *future,
                           exo_err *err);
/* Whether a further call could wait there. FULL: the quotas. It is checked first, so that a call
 * without room costs little more than its refusal. */
exo_status exo_remote_check_gate(exo_remote *r, exo_peer *peer, uint64_t asker, size_t size,
                                 exo_err *err);
/* Keeps waiting calls from being made, because the connection is lost. */
void exo_remote_close_gate_locked(struct channel *c);
/* Completes some of the calls that wait behind a closed gate. False: none is left, and the
 * channel's gate is gone. */
bool exo_remote_drain_gate(exo_remote *r, struct channel *c);

/* --- Objects that go with calls (remote_objects.c) -------------------------------------------- */

/* Puts a payload for a process of this host into shared memory, if it is an object or large, and
 * its handle into the envelope. The caller holds *lent until the other side has it. *lent is NULL
 * if the bytes are to be sent instead, for example because there is no room. Errors: those of
 * exo_object_export. */
exo_status exo_remote_place_payload(exo_peer *peer, exo_envelope *e, const exo_payload *payload,
                                    exo_object_handle *handle, exo_object **lent, exo_err *err);
/* Imports the payload whose handle is in an envelope. */
exo_status exo_remote_fetch_payload(const exo_envelope *e, exo_payload *out, exo_err *err);

#endif
