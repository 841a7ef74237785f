/* A group's calls to the server of its communicator: see exogym/server.h. This file counts the
 * messages; server.c has the server. */
#include <exogym/server.h>

#include "comm/group.h"
#include "comm/server.h"
#include "comm/timing.h"

exo_status
exo_group_serve(exo_group *group, const exo_server_class *class, const void *opts, void **state,
                exo_err *err)
{
    exo_comm *c = group->comm;
    exo_server *server = NULL;
    *state = NULL;
    if (!c->extras || !c->extras->edge)
        return exo_fail(err, EXO_UNSUPPORTED, "engine %s has no servers: choose local or net",
                        c->engine->name);
    if (c->extras->attach && c->clock != exo_clock_real())
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "engine %s has servers on the real clock only: run all nodes in one process",
            c->engine->name);
    if (exo_group_whole(group)->codec)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "messages for a server do not pass through the edge's codec: remove it");
    exo_status st = exo_server_open(&server, c, group->rank, class, opts, err);
    if (st == EXO_OK)
        exo_server_set_members(server, group->ranks, group->size);
    if (st == EXO_OK)
        *state = exo_server_state(server);
    return st;
}

/* Adds a message to the traffic of a member. */
static void
note_message(exo_group *g, const exo_server_message *message, exo_time waited)
{
    uint64_t bytes = message->data.count * sizeof(float);
    for (exo_group *each = g; each; each = each->parent) {
        pthread_mutex_lock(&each->lock);
        each->waited += waited;
        each->traffic.recv_blocked += waited;
        each->traffic.items++;
        each->traffic.messages++;
        each->traffic.payload_bytes += bytes;
        each->traffic.encoded_bytes += bytes;
        each->traffic.wire_bytes += bytes + EXO_COMM_HEADER + EXO_COMM_ENVELOPE;
        pthread_mutex_unlock(&each->lock);
    }
}

static exo_status
no_server(exo_err *err)
{
    return exo_fail(err, EXO_INVAL, "the group has no server: open it with exo_group_serve");
}

exo_status
exo_group_send(exo_group *group, const exo_server_message *message, exo_err *err)
{
    exo_server *server = group->comm->server;
    exo_status st = server ? exo_server_post(server, group->rank, message, err) : no_server(err);
    if (st == EXO_OK)
        note_message(group, message, 0);
    return st;
}

exo_status
exo_group_receive(exo_group *group, bool wait, exo_server_message *out, bool *received,
                  exo_err *err)
{
    exo_server *server = group->comm->server;
    exo_time waited = 0;
    *received = false;
    if (!server)
        return no_server(err);
    exo_status st =
        exo_server_take(server, group->rank, exo_deadline(group->comm->clock, group->timeout), wait,
                        out, received, &waited, err);
    if (*received)
        note_message(group, out, waited);
    return st;
}

exo_time
exo_group_now(const exo_group *group)
{
    return exo_now(group->comm->clock);
}
