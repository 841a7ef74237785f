/* Emulated networks: the arrival times of messages.
 *
 * A network has hosts and links. A host has one rate up and one rate down for all of its messages.
 * A link joins a pair of hosts and has a bandwidth, latency, jitter and loss. Schedules change the
 * rates. The model is arithmetic on times: the virtual clock uses the arrival times directly, and
 * on the real clock messages are held back until then. Requests must come in the order of time (on
 * the real clock: as time goes), because a message takes its share of a link when it is requested.
 * An arrival time is final: if a later request overtakes a message on its way (its sender is
 * nearer, say), later requests pay for it.
 *
 * Times are on the run's clock, from its beginning. A rate is in bits per second on the wire. With
 * the transport `tcp`, these are TCP segments with their headers, as `tc tbf` counts them: 66 bytes
 * (Ethernet, IPv4, TCP with timestamps) for each 1,448 of payload.
 *
 * The same requests get the same answers, to the bit. docs/links.md has the formulas and their
 * accuracy. Threads: any; one lock inside. Read next: rate.h, queue.h, link.c. */
#ifndef EXO_LINK_LINK_H
#define EXO_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

/* Changes a rate from `at` for `length` (0: for ever), and again every `period` (0: once, else
 * `length` or more). */
typedef struct exo_link_change {
    exo_time at, length, period;
    /* multiplies the rates; 0: an outage, in which nothing passes. Simultaneous changes multiply
     * each other */
    double factor;
} exo_link_change;

typedef enum exo_link_transport {
    EXO_LINK_TCP,   /* segment headers, slow start also after idle times, TCP's reaction to loss */
    EXO_LINK_IDEAL, /* bytes and latency only; a lost packet is sent again at once */
} exo_link_transport;

typedef struct exo_link_spec {
    double bandwidth; /* bit/s in each direction; INFINITY: no limit */
    exo_time latency; /* one way */
    /* largest addition to a message's latency, drawn uniformly; messages keep their order */
    exo_time jitter;
    double loss; /* fraction of packets, in [0, 1) */
    exo_link_transport transport;
    const exo_link_change *changes; /* copied */
    size_t num_changes;
} exo_link_spec;

typedef struct exo_host_spec {
    const char *name; /* for error messages; may be NULL, not kept */
    double up, down;  /* bit/s, shared by all of its messages; INFINITY: no limit */
    exo_time latency; /* added to the latency of each of its links */
    /* traffic that the device which limits `up` holds, as time at that rate: TCP's segments beyond
     * it are dropped. 0: it holds as much as comes */
    exo_time queue;
    const exo_link_change *changes; /* of up and down; copied */
    size_t num_changes;
} exo_host_spec;

/* The rate in bit/s, in the mean, that TCP gets of `rate` where the device that limits it holds
 * `queue` of traffic (exo_host_spec). docs/links.md has the formula. */
double exo_link_sustained(double rate, exo_time queue);

typedef struct exo_links exo_links;

/* Makes a network; pairs that exo_links_between does not name use the link `fallback`. seed: for
 * jitter. Errors: INVAL names the value that is out of range; NOMEM. */
exo_status exo_links_new(exo_links **out, const exo_host_spec *hosts, size_t num_hosts,
                         const exo_link_spec *fallback, uint64_t seed, exo_err *err);
void exo_links_free(exo_links **links);
size_t exo_links_num_hosts(const exo_links *links);

/* What is declared of the way from one host to another, without its schedules. */
typedef struct exo_link_speed {
    double up, between, down; /* bit/s: the sender's rate, the link's, the receiver's */
    double latency;           /* s, hosts included */
} exo_link_speed;
/* Of a host to itself: INFINITY, and no latency. Any thread. */
exo_link_speed exo_links_speed(exo_links *links, uint32_t from, uint32_t to);

/* Gives messages from `from` to `to` a link of their own, in this direction, or replaces it.
 * Messages under way keep the arrival times that were returned. Errors: INVAL, NOMEM. */
exo_status exo_links_between(exo_links *links, uint32_t from, uint32_t to,
                             const exo_link_spec *spec, exo_err *err);
/* Replace all links of pairs: those that exo_links_between does not name between begin and end are
 * taken away at the end, and their messages use the fallback link from then on. Without an end, as
 * after an error, all stay. One change at a time; messages may be sent meanwhile. */
void exo_links_begin_change(exo_links *links);
void exo_links_end_change(exo_links *links);
/* Replaces a host's rates, latency and schedule, or the fallback link, in the same way. */
exo_status exo_links_set_host(exo_links *links, uint32_t host, const exo_host_spec *spec,
                              exo_err *err);
exo_status exo_links_set_fallback(exo_links *links, const exo_link_spec *spec, exo_err *err);
/* Partitions the network: between `from` and `until` nothing passes between the hosts with side[i]
 * (num_hosts flags) and the others. Errors: INVAL, NOMEM. */
exo_status exo_links_partition(exo_links *links, const bool *side, exo_time from, exo_time until,
                               exo_err *err);

/* The times at which a message's bytes pass. */
typedef struct exo_transit {
    /* the first byte leaves the sender; until then it waits for earlier messages */
    exo_time starts;
    /* the last byte has left the sender */
    exo_time sent;
    /* the last byte has arrived */
    exo_time arrives;
} exo_transit;

/* Sends `bytes` at `now` on the connection (from, to, flow). Messages of one connection arrive in
 * order. A host's messages to itself take no time. INT64_MAX in *out: never (an endless outage).
 * Without memory for a new connection, the message is computed on a temporary one that begins
 * now. */
void exo_links_send(exo_links *links, uint32_t from, uint32_t to, uint32_t flow, uint64_t bytes,
                    exo_time now, exo_transit *out);

/* The messages between the members of an exchange. */
typedef enum exo_exchange {
    /* every other member sends bytes[j] to member j: the first half of an all_reduce */
    EXO_EXCHANGE_SCATTER,
    /* member i sends bytes[i] to every other member: the second half, and an all_gather */
    EXO_EXCHANGE_GATHER,
} exo_exchange;

/* Computes an exchange between members 0..n-1, on hosts[i], which begin at begins[i]. ends[i] is
 * the time when member i has received all of its messages, sent[i] (may be NULL) the time when all
 * messages that it sends have left. All connections of a member send at once and share its uplink,
 * so its messages of one size leave together. Beginnings may differ. Call it once all of them are
 * known: messages requested before the call pass first.
 *
 * The cost is O(n log n), plus O(n) for each differing rate down, if all of this holds: n > 32,
 * every pair has the same link, nothing changes by a schedule, each member has a host of its own,
 * and the messages have about one size. Jitter is then the mean of the largest. Otherwise the cost
 * is O(n^2), and jitter is drawn for each message. Both ways agree to a few ns where rates and
 * beginnings are equal, and approximately elsewhere. Errors: NOMEM. */
exo_status exo_links_exchange(exo_links *links, exo_exchange kind, uint32_t n,
                              const uint32_t *hosts, uint32_t flow, const uint64_t *bytes,
                              const exo_time *begins, exo_time *ends, exo_time *sent, exo_err *err);

/* Leaves the connections of member `member` warm, as after an exchange that ended at `now` and in
 * which it sent `bytes` to each other member. Takes neither time nor rate. */
void exo_links_warm(exo_links *links, uint32_t n, const uint32_t *hosts, uint32_t flow,
                    uint32_t member, uint64_t bytes, exo_time now);

/* Saves, as words, the state that later answers depend on besides the specs: queues, windows,
 * losses, numbers of messages. A network of the same hosts that restores them gives the same
 * answers from then on; its counts for the report begin at zero. The caller frees *words with
 * exo_free. Errors: NOMEM; restore: also INVAL, if the words are not the state of these hosts.
 * After an error of restore, free the network. */
exo_status exo_links_save(exo_links *links, uint64_t **words, size_t *count);
exo_status exo_links_restore(exo_links *links, const uint64_t *words, size_t count, exo_err *err);

/* Traffic so far, for the report. */
typedef struct exo_link_stats {
    uint64_t messages, bytes; /* as given to exo_links_send and exo_links_exchange */
    exo_time busy;            /* total time with the rate fully used */
} exo_link_stats;
void exo_links_host_stats(const exo_links *links, uint32_t host, exo_link_stats *up,
                          exo_link_stats *down);

#endif
