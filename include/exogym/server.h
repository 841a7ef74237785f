/* A server of a communicator: state that its members change by messages.
 *
 * A collective has all members meet. With a server they do not: a member sends it a message when it
 * has something, and receives the server's messages when they come. async_diloco keeps the outer
 * parameters there.
 *
 * A communicator has at most one server, which each member opens with exo_group_serve. It handles
 * one message at a time, in the order of arrival. On an edge with links it is on the host of member
 * 0, a message takes the time that its bytes need on the link, and so does an answer. Without links
 * a message is handled at once. In an elastic run (strategy.h) the server is with the member that the
 * host of the strategy chooses. On the virtual clock the order is always the same, except if
 * computation is measured; on the real clock it depends on threads and processes.
 *
 * Errors: an error of the server's class, a death, or a deadline breaks the communicator, and all
 * members get that error.
 *
 * Engines: `local`, and `net` on the real clock, both without a codec on the edge (UNSUPPORTED).
 * With `net` the server is in the process of member 0 (or the chosen one), on a thread of its own; the
 * others have no state.
 */
#ifndef EXOGYM_SERVER_H
#define EXOGYM_SERVER_H

#include <exogym/comm.h>

EXO_DECLS_BEGIN

struct exo_state; /* state.h */

/* What a member and a server send each other. The class defines what numbers and figures mean. */
typedef struct exo_server_message {
    uint64_t numbers[4]; /* counts */
    double figures[2];   /* measurements */
    exo_array data;      /* fp32, of any length; no array: none */
    exo_time arrived;    /* set by exo_group_receive: the arrival, on the communicator's clock */
} exo_server_message;

/* The server, for the functions of its class. */
typedef struct exo_server exo_server;

/* A class of servers. Read-only; it lives as long as the process. All functions of one server are
 * called one at a time, by any thread that is in a call of the communicator, and wait for nobody.
 * `now` is the time of arrival on the communicator's clock. */
typedef struct exo_server_class {
    const char *name; /* in error texts */
    /* Makes the state from the options of the member that opens the server first (`net`: of the
     * member that has the server). */
    exo_status (*open)(void **state, const void *opts, uint32_t num_members, exo_err *err);
    /* Handles a message of member `from`. The array is on the host; it is the server's until the
     * function returns. */
    exo_status (*handle)(void *state, exo_server *server, uint32_t from,
                         const exo_server_message *message, exo_time now, exo_err *err);
    /* Called at a time of exo_server_wake. NULL: the class does not use that. */
    exo_status (*wake)(void *state, exo_server *server, exo_time now, exo_err *err);
    /* Frees the state. Called once, with the communicator's last reference. */
    void (*close)(void *state);
    /* Lists what must survive a restart, as a strategy's `state` does (state.h). The list is written
     * once every node has written its own part of the checkpoint. Nodes that have gone on since
     * repeat their steps after a resume: the server must know messages that it has had already.
     * NULL: nothing. */
    void (*list)(void *state, struct exo_state *list);
    /* For elastic runs among processes. Tells the members of an epoch (docs/elastic.md), before its
     * first message: `ranks` (count), ascending; NULL: all. The state is new, or that of the epoch
     * before. Messages under way between two epochs are lost; members send what was not answered
     * again. What the state has of absent members is dropped: a member that comes back counts anew.
     * NULL: the members do not change. */
    void (*members)(void *state, const uint32_t *ranks, uint32_t count);
} exo_server_class;

/* For a server: sends a message to member `to`. The array, on any device, is copied. Errors: NOMEM,
 * INVAL (no such member), the device's. */
EXO_API exo_status exo_server_send(exo_server *server, uint32_t to,
                                   const exo_server_message *message, exo_err *err);
/* For a server: has `wake` called at time `at`, or at once if that has passed. NOMEM. */
EXO_API exo_status exo_server_wake(exo_server *server, exo_time at, exo_err *err);

/* Opens the server of the group's communicator, and gives its state, which is the class's own, or
 * NULL if it is in another process. All members give the same class and options. Messages of a group of
 * some members are those of the same member in the communicator. Errors: UNSUPPORTED, EXISTS
 * (another class), those of `open`. */
EXO_API exo_status exo_group_serve(exo_group *group, const exo_server_class *server_class,
                                   const void *opts, void **state, exo_err *err);
/* Sends a message to the server. The array, on any device, is copied. Its bytes count as sent by
 * this member. Errors: NOMEM, the device's, and those above. Blocks: never for other members. */
EXO_API exo_status exo_group_send(exo_group *group, const exo_server_message *message,
                                  exo_err *err);
/* Receives the server's next message to this member, in the order in which it sent them. With
 * `wait` it waits for one, up to the group's timeout (TIMEOUT); otherwise *received says whether
 * one has arrived. `out` gets the figures and an array on the host, which the caller releases. Its
 * bytes count in the traffic of this member, too, because the server has none of its own. */
EXO_API exo_status exo_group_receive(exo_group *group, bool wait, exo_server_message *out,
                                     bool *received, exo_err *err);
/* The time on the communicator's clock. */
EXO_API exo_time exo_group_now(const exo_group *group);

EXO_DECLS_END

#endif
