/* The structs that a network's files share: hosts, pairs and connections. exo_links.lock guards all
 * of them. Read next: link.c. */
#ifndef EXO_LINK_LINK_IMPL_H
#define EXO_LINK_LINK_IMPL_H

#include <pthread.h>

#include "link/queue.h"

enum {
    MAX_HOSTS = 1 << 24, /* the number of nodes that random streams allow (rng.h) */
    HOST_ARRIVALS = 32,  /* entries of a host's queue, see queue.h */
    PAIR_ARRIVALS = 4,
    MAX_PIECES = 12 /* of a message: after this many doublings a window has reached MAX_WINDOW */
};

/* the largest TCP window, in bytes on the wire */
#define MAX_WINDOW 4e6
/* a round trip includes the serialization of two segments, as an acknowledgement is for two */
#define ROUND_SEGMENTS 2

/* An entry of a hash table; the first member of struct pair and struct connection. */
struct node {
    struct node *next;
    uint32_t key[3];
};

struct table {
    struct node **heads;
    size_t count, size; /* size: 0 or a power of two */
};

/* One direction of a host's access link. */
struct access {
    exo_link_rate rate;
    exo_link_queue queue;
    uint64_t messages, bytes;
};

struct host {
    struct access up, down;
    exo_time latency;
};

/* The link of a pair: a spec with its own copy of the schedule. */
struct line {
    exo_link_rate rate;
    exo_time latency, jitter;
    double loss;
    exo_link_transport transport;
};

/* Two hosts, in one direction, with a link of their own, or with a fallback link of limited
 * bandwidth. */
struct pair {
    struct node node; /* from, to, 0 */
    bool own;         /* `line` is in use; otherwise the fallback is */
    uint64_t round;   /* of the change that set `line` */
    struct line line;
    exo_link_queue queue;
    exo_link_arrival arrivals[PAIR_ARRIVALS];
};

struct connection {
    struct node node; /* from, to, flow */
    bool keyed;       /* seed has been drawn */
    uint64_t seed, messages;
    double window;    /* TCP's, in bytes on the wire; 0: nothing was sent yet */
    double left;      /* unused part of the window in this round trip */
    double credit;    /* bytes until the next loss */
    double threshold; /* end of slow start; INFINITY until the first loss */
    bool limited;     /* the previous round trip used its whole window */
    exo_time round;   /* beginning of the current round trip; may lie ahead */
    exo_time last;    /* time when the last byte has left */
    exo_time arrived; /* time when the last message arrives */
};

struct exo_links {
    pthread_mutex_t lock;
    uint64_t seed;
    exo_time now; /* the latest time of a request */
    size_t num_hosts;
    struct host *hosts;
    exo_link_arrival *arrivals; /* memory of the hosts' queues */
    struct line fallback;
    size_t num_own; /* pairs with a link of their own */
    uint64_t round; /* changes of all pairs so far */
    struct table pairs, connections;
    exo_link_partition *partitions;
    size_t num_partitions;
};

/* Bits of a message that may leave from `at` on, after the `before` bits of earlier pieces. */
struct piece {
    exo_time at;
    double before;
};

/* A message on its way. The caller sets the members above `out`. */
struct sending {
    uint32_t from, to;
    exo_time now;
    /* number of receivers; above 1, they share the uplink, and the downlinks are left out */
    double copies;
    /* one of several messages sent together: `sent` does not include up_done, which the caller
     * adds */
    bool exchange;
    exo_time latency;  /* in: jitter; out: the whole latency */
    struct pair *pair; /* NULL: no other messages share the link */
    /* out */
    exo_time starts, sent, arrives;
    exo_time up_done; /* time when the uplink has passed the message */
    exo_time last;    /* time when the first byte of the last piece arrives */
    struct piece pieces[MAX_PIECES];
    uint32_t num_pieces;
    double bits; /* sum of the pieces */
    exo_time rtt;
    bool changes;                                   /* a rate of the path has a schedule */
    exo_link_path up, between, down, leaving, path; /* leaving: up and between; path: all three */
};

/* The link from `from` to `to`. *pair (pair may be NULL) becomes the pair with its queue, made if
 * the fallback's bandwidth is limited; NULL: it has none, or no memory. */
const struct line *exo_link_line(exo_links *l, uint32_t from, uint32_t to, struct pair **pair);
/* The pair of two hosts, made if it is missing; NULL: no memory. */
struct pair *exo_link_pair(exo_links *l, uint32_t from, uint32_t to);
/* The connection, made if it is missing; NULL: no memory. */
struct connection *exo_link_connection(exo_links *l, uint32_t from, uint32_t to, uint32_t flow);
/* Bytes on the wire, retransmissions included. */
double exo_link_wire(const struct line *line, uint64_t bytes);
/* Draws the jitter of the connection's next message, in [0, most]. */
exo_time exo_link_jitter(exo_links *l, struct connection *c, exo_time most);
/* Puts a message into the queues and fills in the rest of `s`. c: NULL for a new connection that is
 * not kept. */
void exo_link_transmit(exo_links *l, struct sending *s, const struct line *line,
                       struct connection *c, uint64_t bytes);
/* Sets the connection's window as if `bytes` had just left. */
void exo_link_warm(exo_links *l, struct sending *s, const struct line *line, struct connection *c,
                   uint64_t bytes);
/* Counts a message on its connection and makes it arrive after the earlier ones. c may be NULL. */
void exo_link_arrived(struct connection *c, struct sending *s);
/* Bits of the acknowledgements for `bits` bits. */
double exo_link_acknowledgements(const struct line *line, double bits);
/* Counts messages and bytes for the report. */
void exo_link_count(exo_links *l, uint32_t from, uint32_t to, uint64_t messages, uint64_t bytes);

#endif
