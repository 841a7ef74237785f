/* One end of a connection under test: a net with counters of what it received. For tests with
 * Criterion, of the suite `net`.
 *
 * A net's threads update the counters, which are atomic; any thread reads them. Calls of the method
 * "count" carry numbers from 0 on, and bytes that follow from the number, so that lost, damaged and
 * reordered calls are detected. Read next: tests/unit/net.c. */
#ifndef EXO_TEST_NET_END_H
#define EXO_TEST_NET_END_H

#include <stdatomic.h>

#include "net/net.h"

typedef struct net_end {
    exo_net *net;
    atomic_uint opened, lost, calls, replies, cancels;
    atomic_uint refused;      /* own replies that failed with FULL */
    atomic_ullong next;       /* number of the next expected call */
    atomic_uint wrong;        /* calls that are out of order or damaged */
    size_t reply_bytes;       /* size of the reply to each call; 0: no reply */
    atomic_bool stopped;      /* nothing may arrive any more */
    _Atomic(exo_peer *) peer; /* the peer that was opened last; held */
    char cause[EXO_ERR_TEXT]; /* of the last loss; read it after `lost` has increased */
} net_end;

/* An ipc endpoint in the test's folder. The program defines it, and also `logged` of logged.h. */
extern char net_end_ipc[128];
/* The handler's context is a net_end. */
extern const exo_net_handler net_end_handler;

/* Fixtures of the suite: a temporary folder, and a record of the log (logged.h). */
void net_end_setup(void);
void net_end_teardown(void);

/* 0: net_end_ipc; 1: tcp with any port. */
const char *net_end_endpoint(int i);
/* endpoint: NULL: the end does not listen. `more` may be NULL; the peer timeout is ten minutes
 * unless given. */
void net_end_open(net_end *e, const char *endpoint, const exo_net_opts *more);
/* Stops the net and closes it. Fails the test if anything arrived after the stop, or damaged
 * before. */
void net_end_close(net_end *e);
exo_peer *net_end_connect(net_end *from, net_end *to);
/* Calls a method. Takes over the payload. */
exo_status net_end_call(net_end *from, exo_peer *peer, const char *method, exo_payload *payload);
/* The payload of call `number` of "count". */
exo_payload net_end_numbered(uint64_t number);
/* A payload of zeros. */
exo_payload net_end_zeros(size_t size);

#endif
