/* What the files of a network share: its hosts, pairs and connections. Everything under
 * exo_links.lock. */
#ifndef EXO_LINK_LINK_IMPL_H
#define EXO_LINK_LINK_IMPL_H

#include <pthread.h>

#include "link/queue.h"

enum {
    MAX_HOSTS = 1 << 24, /* a stream of random numbers has so many nodes */
    HOST_ARRIVALS = 32,  /* kept one by one, see queue.h                 */
    PAIR_ARRIVALS = 4,
    MAX_PIECES = 12 /* of a message: a window doubles no more often until it is MAX_WINDOW */
};

#define MAX_WINDOW     4e6 /* bytes on the wire that TCP has under way at most */
#define ROUND_SEGMENTS 2   /* that a round trip takes to serialize: an acknowledgement is for two */

struct node {
    struct node *next;
    uint32_t key[3];
};

struct table {
    struct node **heads;
    size_t count, size; /* size: 0 or a power of two */
};

/* A host's side of its link to the world, one way. */
struct access {
    exo_link_rate rate;
    exo_link_queue queue;
    uint64_t messages, bytes;
};

struct host {
    struct access up, down;
    exo_time latency;
};

struct line {
    exo_link_rate rate;
    exo_time latency, jitter;
    double loss;
    exo_link_transport transport;
};

/* Of hosts that have a link of their own, or that share a fallback of limited bandwidth. */
struct pair {
    struct node node; /* from, to */
    bool own;         /* else the fallback is its line */
    struct line line;
    exo_link_queue queue;
    exo_link_arrival arrivals[PAIR_ARRIVALS];
};

struct connection {
    struct node node; /* from, to, flow */
    bool keyed;       /* seed was drawn */
    uint64_t seed, messages;
    double window;    /* of TCP, in bytes on the wire; 0: it has not sent yet */
    double left;      /* of the window in this round trip                     */
    double credit;    /* bytes until the next loss                            */
    double threshold; /* of slow start; INFINITY until there was a loss       */
    bool limited;     /* the round trip before has used all of its window     */
    exo_time round;   /* when that began, or will                             */
    exo_time last;    /* the last byte has left                               */
    exo_time arrived; /* the last message                                     */
};

struct exo_links {
    pthread_mutex_t lock;
    uint64_t seed;
    exo_time now; /* the latest that was asked about */
    size_t num_hosts;
    struct host *hosts;
    exo_link_arrival *arrivals; /* of the hosts' queues */
    struct line fallback;
    size_t num_own; /* pairs with a link of their own */
    struct table pairs, connections;
    exo_link_partition *partitions;
    size_t num_partitions;
};

/* Bits of a message that may leave from `at` on, when others have left before. */
struct piece {
    exo_time at;
    double before;
};

/* A message under way. The caller sets the first part. */
struct sending {
    uint32_t from, to;
    exo_time now;
    /* 1, or to so many hosts: they share the uplink, and take nothing of downlinks yet */
    double copies;
    /* one of several at once: `sent` is without up_done, which whoever sends them sees to */
    bool exchange;
    exo_time latency;  /* in: jitter; out: all of it */
    struct pair *pair; /* NULL: nobody else is on that link */
    /* out */
    exo_time starts, sent, arrives;
    exo_time up_done; /* the uplink is through with it, whatever the pair's link does */
    exo_time last;    /* the first byte of the last piece arrives                     */
    struct piece pieces[MAX_PIECES];
    uint32_t num_pieces;
    double bits; /* of the pieces */
    exo_time rtt;
    bool changes;
    exo_link_path up, between, down, leaving, path; /* leaving: up and between; path: all three */
};

const struct line *exo_link_line(exo_links *l, uint32_t from, uint32_t to, struct pair **pair);
/* Of two hosts, made if it is missing; NULL: no memory. */
struct pair *exo_link_pair(exo_links *l, uint32_t from, uint32_t to);
struct connection *exo_link_connection(exo_links *l, uint32_t from, uint32_t to, uint32_t flow);
double exo_link_wire(const struct line *line, uint64_t bytes);
exo_time exo_link_jitter(exo_links *l, struct connection *c, exo_time most);
/* `c` NULL: one that begins now. */
void exo_link_transmit(exo_links *l, struct sending *s, const struct line *line,
                       struct connection *c, uint64_t bytes);
/* As if `bytes` had just left: the window is what it then is. */
void exo_link_warm(exo_links *l, struct sending *s, const struct line *line, struct connection *c,
                   uint64_t bytes);
void exo_link_arrived(struct connection *c, struct sending *s);
/* Bits of the acknowledgements of so many. */
double exo_link_acknowledgements(const struct line *line, double bits);
void exo_link_count(exo_links *l, uint32_t from, uint32_t to, uint64_t messages, uint64_t bytes);

#endif
