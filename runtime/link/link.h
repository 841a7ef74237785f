/* Emulated networks: when does a message arrive that is sent now?
 *
 * A network has hosts, each with a rate up and a rate down that all of its messages share, and
 * links between pairs of hosts with a bandwidth, latency, jitter and loss of their own. All of it
 * may change by a schedule. The model is arithmetic on times: the virtual clock asks it when a
 * message arrives, and the real clock's filter holds messages back until then. Who asks must do so
 * in the order of time (on the real clock: as time goes), as a message takes its share of a link
 * when it is asked for. A time that was told stays as it was told: what overtakes a message on its
 * way (a nearer sender's, say) is paid for by those asked for after it.
 *
 * Times are on the run's clock from its beginning; a rate is in bits per second of what a link
 * carries: with the transport `tcp`, TCP segments with their headers (Ethernet, IPv4, TCP with
 * timestamps: 66 bytes for each 1,448 of payload), which is what `tc tbf` counts.
 *
 * The same questions get the same answers, to the bit. docs/links.md has the formulas, and how
 * close they are to a kernel. Threads: any; one lock inside. */
#ifndef EXO_LINK_LINK_H
#define EXO_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

/* What happens to a rate from `at` for `length` (0: for ever), again every `period` (0: once, else
 * length or more). */
typedef struct exo_link_change {
    exo_time at, length, period;
    /* of the rates; 0: an outage, nothing passes until it is over. Several at once multiply */
    double factor;
} exo_link_change;

typedef enum exo_link_transport {
    EXO_LINK_TCP,   /* headers of segments, slow start after idleness, loss as TCP takes it */
    EXO_LINK_IDEAL, /* bytes and latency, nothing else; loss is retransmitted at once       */
} exo_link_transport;

typedef struct exo_link_spec {
    double bandwidth; /* bit/s, INFINITY: no limit. Each direction for itself */
    exo_time latency; /* one way                                              */
    /* up to so much is added to the latency of a message, uniformly; order is kept */
    exo_time jitter;
    double loss; /* of packets, in [0, 1)                                 */
    exo_link_transport transport;
    const exo_link_change *changes; /* copied */
    size_t num_changes;
} exo_link_spec;

typedef struct exo_host_spec {
    const char *name;               /* for messages; may be NULL, is not kept */
    double up, down;                /* bit/s, shared by all of its messages; INFINITY: no limit */
    exo_time latency;               /* added to that of each link, on this side             */
    const exo_link_change *changes; /* copied; of up and down */
    size_t num_changes;
} exo_host_spec;

typedef struct exo_links exo_links;

/* Hosts, and `fallback` as the link of every pair that exo_links_between does not name. INVAL names
 * what is out of range. */
exo_status exo_links_new(exo_links **out, const exo_host_spec *hosts, size_t num_hosts,
                         const exo_link_spec *fallback, uint64_t seed, exo_err *err);
void exo_links_free(exo_links **links);
size_t exo_links_num_hosts(const exo_links *links);
/* A link of its own for messages from `from` to `to` (one direction). Replaces what there was: also
 * while messages are under way, whose times stay as they were told. */
exo_status exo_links_between(exo_links *links, uint32_t from, uint32_t to,
                             const exo_link_spec *spec, exo_err *err);
/* Changes a host's rates, latency and schedule, or the fallback's, likewise. */
exo_status exo_links_set_host(exo_links *links, uint32_t host, const exo_host_spec *spec,
                              exo_err *err);
exo_status exo_links_set_fallback(exo_links *links, const exo_link_spec *spec, exo_err *err);
/* From `from` until `until` nothing passes between hosts of `side` (num_hosts flags) and the
 * others: a partition. */
exo_status exo_links_partition(exo_links *links, const bool *side, exo_time from, exo_time until,
                               exo_err *err);

/* When a message's bytes pass. */
typedef struct exo_transit {
    /* the first byte leaves the sender: it has waited for earlier ones until then */
    exo_time starts;
    /* the last byte has left */
    exo_time sent;
    /* the last byte is there */
    exo_time arrives;
} exo_transit;

/* Sends `bytes` at `now` on the connection (from, to, flow): messages of one connection arrive in
 * order. From a host to itself it takes no time. INT64_MAX in *out: never (an outage without end).
 * Without memory for a new connection it is taken as one that begins now. */
void exo_links_send(exo_links *links, uint32_t from, uint32_t to, uint32_t flow, uint64_t bytes,
                    exo_time now, exo_transit *out);

/* What members of an exchange send each other. */
typedef enum exo_exchange {
    /* every other member sends bytes[j] to j: the first half of an all_reduce */
    EXO_EXCHANGE_SCATTER,
    /* i sends bytes[i] to every other member: the second half, and an all_gather */
    EXO_EXCHANGE_GATHER,
} exo_exchange;

/* Members 0..n-1 on hosts[i], which begin at begins[i], exchange messages: ends[i] is when member i
 * has got all that is for it, sent[i] (may be NULL) when all that it sends has left. All
 * connections of a member send at once and share its uplink, so that messages of one size are
 * through together. Beginnings may differ: ask when all are known, as other messages that were
 * asked for meanwhile were first. O(n log n) where n > 32, every pair has the same link, nothing
 * changes by schedule, members are on hosts of their own and messages are of about one size (and
 * O(n) more for each rate down that differs); there, jitter is the mean of the largest. Else
 * O(n^2), jitter drawn for each message. Both agree to some ns where rates and beginnings are
 * equal, and about else. NOMEM. */
exo_status exo_links_exchange(exo_links *links, exo_exchange kind, uint32_t n,
                              const uint32_t *hosts, uint32_t flow, const uint64_t *bytes,
                              const exo_time *begins, exo_time *ends, exo_time *sent, exo_err *err);

/* Others have just sent `bytes` to each other member on the connections of member `member`, and
 * left them warm: as after an exchange that ends at `now`. It takes neither time nor rate. */
void exo_links_warm(exo_links *links, uint32_t n, const uint32_t *hosts, uint32_t flow,
                    uint32_t member, uint64_t bytes, exo_time now);

/* All that the answers to later questions depend on besides the specs, as words: queues, windows,
 * how much was lost, numbers of messages. A network of the same hosts that has them says from then
 * on what this one would have said; its counts for the report begin anew. The caller frees *words
 * with exo_free. NOMEM; INVAL: the words are of other hosts, or none of ours: the network is then
 * to be freed. */
exo_status exo_links_save(exo_links *links, uint64_t **words, size_t *count);
exo_status exo_links_restore(exo_links *links, const uint64_t *words, size_t count, exo_err *err);

/* What has passed, for the report. */
typedef struct exo_link_stats {
    uint64_t messages, bytes; /* bytes as given to exo_links_send         */
    exo_time busy;            /* the rate was used to the full for so long */
} exo_link_stats;
void exo_links_host_stats(const exo_links *links, uint32_t host, exo_link_stats *up,
                          exo_link_stats *down);

#endif
