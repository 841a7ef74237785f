/* The inside of a communicator's server, for comm.c: see exogym/server.h. Read next: server.c. */
#ifndef EXO_COMM_SERVER_H
#define EXO_COMM_SERVER_H

#include <exogym/server.h>

#include "comm/backend.h"

/* The server of a communicator whose engine has extras->edge; the first caller makes it. rank: the
 * caller's. Errors: NOMEM, EXISTS (it has one of another class), FULL (no thread), those of the
 * class. Any thread. */
exo_status exo_server_open(exo_server **out, exo_comm *comm, uint32_t rank,
                           const exo_server_class *class, const void *opts, exo_err *err);
/* Tells the class the members of an epoch, if the members are in processes of their own and the state is
 * here. ranks NULL: all. */
void exo_server_set_members(exo_server *server, const uint32_t *ranks, uint32_t count);
/* Ends all calls of the server of `comm`, and takes its state; none: it has no server, or the state is
 * in another process. Any thread that is in no call of the communicator. */
void exo_server_take_estate(exo_comm *comm, exo_server_estate *out);
/* Has the server of `comm`, which is not open yet, begin with a state that was taken. *estate is
 * moved. */
void exo_server_leave_estate(exo_comm *comm, exo_server_estate *estate);
/* Frees a state that no server has; accepts none in it. */
void exo_server_estate_release(exo_server_estate *estate);
/* Ends the server with its communicator; accepts NULL. */
void exo_server_close(exo_server *server);
void *exo_server_state(const exo_server *server);

/* exo_group_send and exo_group_receive of a member. *waited: the time in the call. */
exo_status exo_server_post(exo_server *server, uint32_t from, const exo_server_message *message,
                           exo_err *err);
exo_status exo_server_take(exo_server *server, uint32_t member, exo_time deadline, bool waits,
                           exo_server_message *out, bool *received, exo_time *waited, exo_err *err);
/* For an engine that carries messages: one of member `from` has arrived, which may be used from `at`
 * on. The array, on the host, is moved. NOMEM. Any thread. */
exo_status exo_server_arrived(exo_server *server, uint32_t from, exo_server_message *message,
                              exo_time at, exo_err *err);
/* Keeps the server from working, and lists its state in `list`, until exo_server_resume. False: it has
 * none here, or its class lists none, and the server goes on. Any thread. */
bool exo_server_pause(exo_server *server, struct exo_state *list);
void exo_server_resume(exo_server *server);
/* Ends all waits and all later calls with an error. Any thread. */
void exo_server_break(exo_server *server, exo_status status, const char *text);

#endif
