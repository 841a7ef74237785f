/* One end of a connection under test: a net and what it heard. For tests with Criterion, of the
 * suite `net`.
 *
 * A net's threads count what comes in the end's atomics, which any thread reads. Calls of the
 * method "count" carry numbers from 0 on and bytes that follow from them, so that what is lost,
 * torn or out of order shows. Read next: tests/unit/net.c. */
#ifndef EXO_TEST_NET_END_H
#define EXO_TEST_NET_END_H

#include <stdatomic.h>

#include "net/net.h"

typedef struct net_end {
    exo_net *net;
    atomic_uint opened, lost, calls, replies, cancels;
    atomic_uint refused;      /* own replies that were FULL */
    atomic_ullong next;       /* number of the call that is due */
    atomic_uint wrong;        /* calls out of order, or not whole */
    size_t reply_bytes;       /* of the reply to each call; 0: there is none */
    atomic_bool stopped;      /* nothing may come any more */
    _Atomic(exo_peer *) peer; /* the last that was opened; held */
    char cause[EXO_ERR_TEXT]; /* of the last loss; read after `lost` is seen */
} net_end;

/* An ipc endpoint in the test's folder. The program defines it, and `logged` of logged.h. */
extern char net_end_ipc[128];
/* Its context is a net_end. */
extern const exo_net_handler net_end_handler;

/* Of the suite: a folder of its own, and a record of the log (logged.h). */
void net_end_setup(void);
void net_end_teardown(void);

/* 0: net_end_ipc; 1: any port of tcp. */
const char *net_end_endpoint(int i);
/* endpoint: NULL: it listens nowhere. `more` may be NULL. */
void net_end_open(net_end *e, const char *endpoint, const exo_net_opts *more);
/* Nothing may come after it was stopped, and nothing have been wrong. */
void net_end_close(net_end *e);
exo_peer *net_end_connect(net_end *from, net_end *to);
/* Calls a method; the payload is moved. */
exo_status net_end_call(net_end *from, exo_peer *peer, const char *method, exo_payload *payload);
/* The payload of call `number` of "count". */
exo_payload net_end_numbered(uint64_t number);
/* A payload of zeros. */
exo_payload net_end_zeros(size_t size);

#endif
