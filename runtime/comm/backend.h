/* The inside of a communicator: its engine (exogym/engine.h), and the additional functions of the
 * library's own engines. Read next: comm.c, local.c, far.c. */
#ifndef EXO_COMM_BACKEND_H
#define EXO_COMM_BACKEND_H

#include <stdbool.h>

#include <exogym/comm.h>
#include <exogym/engine.h>
#include <exogym/server.h>

#include "comm/edge.h"
#include "comm/encode.h"
#include "comm/ways.h"

/* Functions of `local` and `net` beyond those of every engine. */
typedef struct exo_comm_extras {
    /* Records that the group has just done an all_reduce of `count` fp32 elements beside the run,
     * over the connections of member `rank`. */
    void (*warm)(void *group, uint32_t rank, size_t count);
    /* exo_comm_look_at; *look is zeroed by the caller. */
    void (*look)(void *group, uint32_t rank, exo_comm_look *look, uint32_t *missing,
                 uint64_t *counts);
    /* The group's edge, for a server. NULL: the engine has no servers. */
    const exo_comm_edge *(*edge)(const void *group);
    /* If the members are in processes of their own; else all three are NULL. The functions are
     * called without the server's locks.
     *
     * Gives the server the messages that have arrived and, from now on, those that arrive, and
     * breaks it with the group. NULL: ends that. */
    void (*attach)(void *group, exo_server *server);
    /* Sends a message of the server of this member to that of member `to`. Waits on emulated links
     * only. */
    exo_status (*carry)(void *group, uint32_t to, const exo_server_message *message, exo_err *err);
    /* Breaks the group of all members. */
    void (*fail_all)(void *group, const exo_err *reason);
} exo_comm_extras;

/* The state of a server that is handed on from one communicator to the next; state NULL: none. */
typedef struct exo_server_estate {
    const exo_server_class *class;
    void *state;
} exo_server_estate;

struct exo_comm {
    _Atomic uint32_t references;
    uint32_t size;
    const exo_clock *clock;
    const exo_engine_class *engine;
    const exo_comm_extras *extras; /* NULL: none */
    exo_comm_ways *ways;           /* NULL: all calls go directly */
    void *state;                   /* the engine's group */
    /* of an engine with EXO_ENGINE_POST among processes: the communicator of `net` that carries its
     * messages (far_post.c); else NULL */
    exo_comm *post;
    /* codec of its edge, copied; NULL: raw */
    const char *codec;
    /* number of changes of the codec; groups follow in their next call */
    _Atomic uint32_t codings;
    _Atomic uint64_t codecs_made; /* codecs that its groups have made */
    _Atomic(exo_server *) server; /* server.c makes it when it is first opened; NULL: none */
    uint32_t home;                /* the member that has the server */
    bool rehearses;               /* no call moves data (exo_comm_rehearse) */
    exo_server_estate estate;     /* with which the server will begin */
    struct exo_comm_seats *seats; /* of an engine without extras (seats.h); NULL: none */
    /* of members that read and write buffers in place (commons.h); NULL: none */
    struct exo_commons_pool *commons;
};

/* exo_comm_open with a post. */
exo_status exo_comm_open_with(exo_comm **out, const exo_engine_class *engine,
                              const exo_engine_opts *opts, exo_err *err);

#endif
