/* What the files of exo_remote share. Read remote.h first, then remote.c.
 *
 * One lock, the remote's, guards references, channels, pending and serving calls and loans; it is
 * held for moments, and never while a future is completed, an object is dropped or a message is
 * sent. It stands alone: nothing else is locked under it. Functions that end in _locked are called
 * under it. */
#ifndef EXO_CLUSTER_REMOTE_IMPL_H
#define EXO_CLUSTER_REMOTE_IMPL_H

#include <pthread.h>

#include <uthash.h>

#include "cluster/remote.h"

enum {
    WINDOW = 65536, /* calls that one connection may have pending */
    CAUSE = 256,
    ENDED_AT_ONCE = 256,    /* calls of a lost connection: others are served before the next ones */
    ASKED_AT_ONCE = 2048,   /* actors of which EXO_REMOTE_DEATHS tells */
    GENERATION = 0x7fffffff /* the last one, of a reference or a pending call: after it comes 1 */
};

/* Methods that every actor has for other processes, besides the control lane's. */
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

/* An actor of another process. remote_refs.c makes and ends it; remote_calls.c makes it suspect.
 * All of it is guarded by the remote's lock; it is freed with the remote. It ends with its
 * connection, or when its process says that the actor is dead, which it is asked when references
 * have become twice as many as were alive. */
struct reference {
    struct key key;
    exo_peer *peer; /* held; NULL: free or dead */
    char *system;   /* the name of a system actor; NULL: key.id is its reference */
    uint32_t index; /* its own */
    uint32_t generation;
    uint32_t next_free; /* index + 1 */
    bool suspect;
    /* of a dead one, or one whose monitor has told of its death; until the slot is used again */
    char *cause;
    UT_hash_handle hh;
};

/* What there is about one connection. Freed with the remote, and used again after it is closed,
 * nothing is left to be done for its peer and none of its calls runs. All of it is guarded by the
 * remote's lock; the peer's user pointer, which leads here while the connection is open, is set
 * under it. */
struct channel {
    exo_peer *peer;        /* held until `ends` is over; remote.c, as `closed`, `ends` and `next` */
    uint32_t first;        /* pending, index + 1; remote_calls.c                */
    uint32_t num_pending;  /* remote_calls.c                                    */
    uint32_t num_watches;  /* monitors among them; remote_calls.c, as the next  */
    uint32_t sweep_at;     /* number of monitors at which the dropped ones are looked for */
    uint32_t num_serving;  /* remote_serve.c, as the next six                    */
    uint32_t num_monitors; /* of these                                          */
    uint32_t num_lent;     /* objects of replies that were not acknowledged      */
    uint64_t lent_bytes;
    struct serving *servings; /* those that were cancelled are the last ones */
    struct loan *loans;
    uint32_t num_references; /* remote_refs.c */
    struct gate *gate;       /* remote_gate.c */
    bool closed, ends;       /* ends: what was done for the peer is being ended */
    struct channel *next;
};

struct exo_remote {
    exo_runtime *runtime; /* set by exo_remote_open, as all to the lock, and only read then */
    exo_net *net;
    const exo_remote_events *events;
    void *context;
    exo_audit *audit; /* of calls that are refused, and of those that end an actor; NULL: none */
    pthread_mutex_t lock;
    struct reference **references; /* guarded by lock, as all below; remote_refs.c, to by_key */
    size_t num_references, cap_references;
    uint32_t first_free, last_free; /* dead references, the longest dead first, index + 1 */
    uint32_t num_free;
    struct reference *by_key;
    size_t sweep_at; /* number of references at which their processes are asked which are dead */
    struct pending *pending; /* remote_calls.c, to free_pending */
    size_t num_pending, cap_pending;
    uint32_t free_pending;
    bool leaving;             /* no call becomes pending any more: remote.c */
    struct serving *serving;  /* remote_serve.c */
    struct loan *loans;       /* remote_serve.c */
    struct channel *channels; /* remote.c */
};

/* --- Channels (remote.c) ---------------------------------------------------------------------- */

/* An open connection's; made when it is first used. NULL: no memory. */
struct channel *exo_remote_channel_locked(exo_remote *r, exo_peer *peer);

/* --- References (remote_refs.c) --------------------------------------------------------------- */

/* Also a dead one, as long as its cause is kept; NULL: there is none (any more). */
struct reference *exo_remote_reference_locked(exo_remote *r, exo_ref actor);
/* Ends those through a connection that is lost. */
void exo_remote_bury_references_locked(exo_remote *r, const exo_peer *peer, const char *cause);
/* When nothing can use them any more. */
void exo_remote_free_references(exo_remote *r);

/* --- Calls to other processes (remote_calls.c) ------------------------------------------------ */

/* A reply has come. *value is moved. */
void exo_remote_take_reply(exo_remote *r, exo_peer *peer, const exo_envelope *e,
                           exo_payload *value);
/* Ends what is pending on a channel whose peer nothing leads to any more. Gives up the lock while
 * it completes futures, and has it again when it returns. */
void exo_remote_end_pending_locked(exo_remote *r, struct channel *c, const char *reason);

/* --- Calls of other processes (remote_serve.c) ------------------------------------------------ */

/* A call has come. *args is moved. */
void exo_remote_serve_call(exo_remote *r, exo_peer *peer, const exo_envelope *e, exo_payload *args);
/* The caller does not want its call any more; or, if it has been answered, has the object that went
 * with the reply. */
void exo_remote_cancel_call(exo_remote *r, exo_peer *peer, uint64_t id);
/* Ends some of what was done for a peer that is lost, and takes back some of what was lent to it.
 * True: there is more. */
bool exo_remote_end_serving(exo_remote *r, struct channel *c);

/* --- Turns at system actors (remote_gate.c) --------------------------------------------------- */

/* A call of a connection's peer to a system actor of this process: into its mailbox, or to those
 * that wait. `asker`: who asked the peer for it, by the peer's numbers; 0: nobody. FULL: the
 * quotas. *args is moved, or stays on failure. */
exo_status exo_remote_pass(exo_remote *r, struct channel *c, exo_peer *peer, uint64_t asker,
                           exo_ref actor, const char *method, exo_payload *args, exo_future *future,
                           exo_err *err);
/* Whether one could wait there. FULL: the quotas. So one that cannot costs little more than its
 * refusal. */
exo_status exo_remote_check_gate(exo_remote *r, exo_peer *peer, uint64_t asker, size_t size,
                                 exo_err *err);
/* What waits there is not called any more: the connection is lost. */
void exo_remote_close_gate_locked(struct channel *c);
/* Answers some of what waits behind a closed gate. False: there is no more, and the channel has no
 * gate. */
bool exo_remote_drain_gate(exo_remote *r, struct channel *c);

/* --- Objects that go with calls (remote_objects.c) -------------------------------------------- */

/* Puts a payload for a process of this host into shared memory, if it is an object or large, and
 * its handle into the envelope. *lent is to be held until the other side has it. No room is no
 * error: then the bytes are sent. */
exo_status exo_remote_place_payload(exo_peer *peer, exo_envelope *e, const exo_payload *payload,
                                    exo_object_handle *handle, exo_object **lent, exo_err *err);
/* The payload of an envelope that has a handle. */
exo_status exo_remote_fetch_payload(const exo_envelope *e, exo_payload *out, exo_err *err);
/* Methods of the process itself: EXO_REMOTE_FETCH, EXO_REMOTE_OBJECTS and EXO_REMOTE_DEATHS. */
exo_status exo_remote_run_own(exo_remote *r, const char *method, const exo_payload *args,
                              exo_payload *value, exo_err *err);

#endif
