/* Emulated networks: hosts, links, connections, and the arrival times of messages. link.h has the
 * contract, docs/links.md the model.
 *
 * A message passes three queues (queue.h): its sender's uplink, the link of the pair, its
 * receiver's downlink. Slow start cuts it into pieces, one a round trip, and each piece enters the
 * uplink when its connection's window allows. So other connections use the gaps that one leaves,
 * and no combination of pieces exceeds a rate.
 *
 * Owner: the caller; one lock guards everything. Read next: rate.h, queue.h, exchange.c
 * (collectives). */
#include "link/link_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

/* Payload of a segment: an Ethernet frame of 1,500 bytes, less 20 for IPv4 and 32 for TCP with
 * timestamps. */
#define PAYLOAD 1448.0
/* Headers of a segment: those, and 14 of Ethernet. */
#define HEADERS    66.0
#define SEGMENT    (PAYLOAD + HEADERS)
#define CUBIC_BETA 0.7 /* RFC 9438 */
/* The window at the first loss, in full windows: it lies between 1 and 1.5 (HyStart). */
#define MOST_OF_FULL 1.25
/* The smallest window, in segments, in which duplicate acknowledgements can show a loss (RFC 5681):
 * three segments after the lost one. */
#define LEAST_WINDOW 4.0
#define RTO_MIN      (200 * EXO_MS) /* Linux's TCP_RTO_MIN; RFC 6298 has one second */

enum {
    INITIAL_WINDOW = 10, /* segments: RFC 6928                     */
    FIRST_HEADS = 64,    /* of a table's first array */
    HALVINGS = 64,       /* more than any window needs */
    /* losses of a message that are computed one by one; later its window is the steady one */
    MAX_LOSSES = 32
};

/* --- Tables ----------------------------------------------------------------------------------- */

static size_t
hash(const uint32_t key[3])
{
    uint64_t h = ((uint64_t)key[0] << 32 | key[1]) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ h >> 32 ^ key[2]) * UINT64_C(0xD6E8FEB86659FD93);
    return (size_t)(h ^ h >> 32);
}

static struct node *
table_find(const struct table *t, const uint32_t key[3])
{
    struct node *n = t->size ? t->heads[hash(key) & (t->size - 1)] : NULL;
    while (n && memcmp(n->key, key, sizeof n->key) != 0)
        n = n->next;
    return n;
}

/* If an allocation fails, the chains become longer. */
static void
table_grow(struct table *t)
{
    size_t size = t->size ? 2 * t->size : FIRST_HEADS;
    struct node **heads = exo_calloc(size, sizeof *heads);
    if (!heads)
        return;
    for (size_t i = 0; i < t->size; i++)
        for (struct node *n = t->heads[i], *next; n; n = next) {
            struct node **head = &heads[hash(n->key) & (size - 1)];
            next = n->next;
            n->next = *head;
            *head = n;
        }
    exo_free(t->heads);
    t->heads = heads;
    t->size = size;
}

/* Returns a zeroed node; NULL: no memory. */
static void *
table_add(struct table *t, const uint32_t key[3], size_t bytes)
{
    if (t->count >= t->size)
        table_grow(t);
    struct node *n = t->size ? exo_calloc(1, bytes) : NULL;
    if (!n)
        return NULL;
    memcpy(n->key, key, sizeof n->key);
    struct node **head = &t->heads[hash(key) & (t->size - 1)];
    n->next = *head;
    *head = n;
    t->count++;
    return n;
}

static void
table_release(struct table *t, void (*release)(struct node *node))
{
    for (size_t i = 0; i < t->size; i++)
        for (struct node *n = t->heads[i], *next; n; n = next) {
            next = n->next;
            if (release)
                release(n);
            exo_free(n);
        }
    exo_free(t->heads);
    *t = (struct table){0};
}

/* --- Specs ------------------------------------------------------------------------------------ */

static exo_status
check_line(const exo_link_spec *s, const char *what, exo_err *err)
{
    char rate[128];
    snprintf(rate, sizeof rate, "the bandwidth of %s", what);
    exo_status st = exo_link_rate_check(s->bandwidth, s->changes, s->num_changes, rate, err);
    if (st != EXO_OK)
        return st;
    if (s->latency < 0 || s->jitter < 0)
        return exo_fail(err, EXO_INVAL, "%s has a negative %s", what,
                        s->latency < 0 ? "latency" : "jitter");
    if (!(s->loss >= 0) || !(s->loss < 1))
        return exo_fail(err, EXO_INVAL, "%s loses %g of its packets: it must be in [0, 1)", what,
                        s->loss);
    if (s->transport != EXO_LINK_TCP && s->transport != EXO_LINK_IDEAL)
        return exo_fail(err, EXO_INVAL, "%s has no transport %d", what, (int)s->transport);
    return EXO_OK;
}

/* Replaces what *line held. */
static exo_status
set_line(struct line *line, const exo_link_spec *s, const char *what, exo_err *err)
{
    exo_link_rate rate;
    exo_status st = check_line(s, what, err);
    if (st == EXO_OK)
        st = exo_link_rate_init(&rate, s->bandwidth, s->changes, s->num_changes, err);
    if (st != EXO_OK)
        return st;
    exo_link_rate_release(&line->rate);
    *line = (struct line){.rate = rate,
                          .latency = s->latency,
                          .jitter = s->jitter,
                          .loss = s->loss,
                          .transport = s->transport};
    return EXO_OK;
}

double
exo_link_sustained(double rate, exo_time queue)
{
    if (isinf(rate) || queue == 0)
        return rate;
    /* Between overflows the window grows from 0.7 of the queue to the whole queue, by `grow`
     * segments a round trip, as in pass_with_loss(). Its mean times the number of round trips is: */
    const double grow = 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA);
    double held = rate / 8 * (double)queue / (double)EXO_SECOND / SEGMENT;
    double window = held > LEAST_WINDOW ? held : LEAST_WINDOW;
    double segments = (1 - CUBIC_BETA * CUBIC_BETA) / (2 * grow) * window * window;
    double passes = segments * SEGMENT * 8 / rate, waits = (double)RTO_MIN / (double)EXO_SECOND;
    return rate * passes / (passes + waits);
}

static exo_status
set_host(struct host *host, uint32_t index, const exo_host_spec *s, exo_err *err)
{
    char name[96], what[128];
    exo_link_rate up = {0}, down = {0};
    if (s->name)
        snprintf(name, sizeof name, "host '%s'", s->name);
    else
        snprintf(name, sizeof name, "host %u", index);
    snprintf(what, sizeof what, "the rate up of %s", name);
    exo_status st = exo_link_rate_check(s->up, s->changes, s->num_changes, what, err);
    if (st != EXO_OK)
        return st;
    snprintf(what, sizeof what, "the rate down of %s", name);
    st = exo_link_rate_check(s->down, NULL, 0, what, err);
    if (st == EXO_OK && (s->latency < 0 || s->queue < 0))
        st = exo_fail(err, EXO_INVAL, "%s has a negative %s", name,
                      s->latency < 0 ? "latency" : "queue");
    if (st == EXO_OK)
        st = exo_link_rate_init(&up, exo_link_sustained(s->up, s->queue), s->changes,
                                s->num_changes, err);
    if (st == EXO_OK)
        st = exo_link_rate_init(&down, s->down, s->changes, s->num_changes, err);
    if (st != EXO_OK) {
        exo_link_rate_release(&up);
        exo_link_rate_release(&down);
        return st;
    }
    exo_link_rate_release(&host->up.rate);
    exo_link_rate_release(&host->down.rate);
    host->up.rate = up;
    host->down.rate = down;
    host->latency = s->latency;
    return EXO_OK;
}

exo_status
exo_links_new(exo_links **out, const exo_host_spec *hosts, size_t num_hosts,
              const exo_link_spec *fallback, uint64_t seed, exo_err *err)
{
    *out = NULL;
    if (num_hosts == 0 || num_hosts > MAX_HOSTS)
        return exo_fail(err, EXO_INVAL, "a network of %zu hosts: it must be 1 to %d", num_hosts,
                        MAX_HOSTS);
    exo_links *l = exo_calloc(1, sizeof *l);
    if (!l)
        return exo_fail(err, EXO_NOMEM, "no memory for a network");
    pthread_mutex_init(&l->lock, NULL);
    l->seed = seed;
    l->num_hosts = num_hosts;
    l->hosts = exo_calloc(num_hosts, sizeof *l->hosts);
    l->arrivals = exo_calloc(num_hosts, 2 * HOST_ARRIVALS * sizeof *l->arrivals);
    exo_status st = l->hosts && l->arrivals
                        ? set_line(&l->fallback, fallback, "the fallback link", err)
                        : exo_fail(err, EXO_NOMEM, "no memory for %zu hosts", num_hosts);
    for (size_t i = 0; st == EXO_OK && i < num_hosts; i++) {
        struct host *h = &l->hosts[i];
        exo_link_arrival *arrivals = l->arrivals + 2 * HOST_ARRIVALS * i;
        h->up.queue = (exo_link_queue){.capacity = HOST_ARRIVALS, .arrivals = arrivals};
        h->down.queue =
            (exo_link_queue){.capacity = HOST_ARRIVALS, .arrivals = arrivals + HOST_ARRIVALS};
        st = set_host(h, (uint32_t)i, &hosts[i], err);
    }
    if (st == EXO_OK) {
        *out = l;
        l = NULL; /* moved to the caller */
    }
    exo_links_free(&l);
    return st;
}

static void
release_pair(struct node *node)
{
    struct pair *p = (struct pair *)(void *)node;
    exo_link_rate_release(&p->line.rate);
}

void
exo_links_free(exo_links **links)
{
    exo_links *l = *links;
    if (!l)
        return;
    for (size_t i = 0; l->hosts && i < l->num_hosts; i++) {
        exo_link_rate_release(&l->hosts[i].up.rate);
        exo_link_rate_release(&l->hosts[i].down.rate);
    }
    for (size_t i = 0; i < l->num_partitions; i++)
        exo_free(l->partitions[i].side);
    exo_free(l->partitions);
    exo_link_rate_release(&l->fallback.rate);
    table_release(&l->pairs, release_pair);
    table_release(&l->connections, NULL);
    exo_free(l->hosts);
    exo_free(l->arrivals);
    pthread_mutex_destroy(&l->lock);
    exo_free(l);
    *links = NULL;
}

size_t
exo_links_num_hosts(const exo_links *links)
{
    return links->num_hosts;
}

static struct pair *
add_pair(exo_links *l, uint32_t from, uint32_t to)
{
    struct pair *p = table_add(&l->pairs, (uint32_t[3]){from, to, 0}, sizeof *p);
    if (p)
        p->queue = (exo_link_queue){.capacity = PAIR_ARRIVALS, .arrivals = p->arrivals};
    return p;
}

struct pair *
exo_link_pair(exo_links *l, uint32_t from, uint32_t to)
{
    struct pair *p = (struct pair *)(void *)table_find(&l->pairs, (uint32_t[3]){from, to, 0});
    return p ? p : add_pair(l, from, to);
}

exo_status
exo_links_between(exo_links *links, uint32_t from, uint32_t to, const exo_link_spec *spec,
                  exo_err *err)
{
    char what[64];
    if (from >= links->num_hosts || to >= links->num_hosts || from == to)
        return exo_fail(err, EXO_INVAL, "a link from host %u to host %u, of %zu hosts", from, to,
                        links->num_hosts);
    snprintf(what, sizeof what, "the link from host %u to host %u", from, to);
    exo_status st = check_line(spec, what, err);
    if (st != EXO_OK)
        return st;
    pthread_mutex_lock(&links->lock);
    struct pair *p = exo_link_pair(links, from, to);
    st = p ? set_line(&p->line, spec, what, err)
           : exo_fail(err, EXO_NOMEM, "no memory for %s", what);
    if (st == EXO_OK) {
        links->num_own += !p->own;
        p->own = true;
        p->round = links->round;
    }
    pthread_mutex_unlock(&links->lock);
    return st;
}

void
exo_links_begin_change(exo_links *links)
{
    pthread_mutex_lock(&links->lock);
    links->round++;
    pthread_mutex_unlock(&links->lock);
}

void
exo_links_end_change(exo_links *links)
{
    pthread_mutex_lock(&links->lock);
    for (size_t i = 0; i < links->pairs.size; i++)
        for (struct node *n = links->pairs.heads[i]; n; n = n->next) {
            struct pair *p = (struct pair *)(void *)n;
            if (!p->own || p->round == links->round)
                continue;
            p->own = false;
            links->num_own--;
        }
    pthread_mutex_unlock(&links->lock);
}

exo_status
exo_links_set_host(exo_links *links, uint32_t host, const exo_host_spec *spec, exo_err *err)
{
    if (host >= links->num_hosts)
        return exo_fail(err, EXO_INVAL, "host %u, of %zu hosts", host, links->num_hosts);
    pthread_mutex_lock(&links->lock);
    exo_status st = set_host(&links->hosts[host], host, spec, err);
    pthread_mutex_unlock(&links->lock);
    return st;
}

exo_status
exo_links_set_fallback(exo_links *links, const exo_link_spec *spec, exo_err *err)
{
    pthread_mutex_lock(&links->lock);
    exo_status st = set_line(&links->fallback, spec, "the fallback link", err);
    pthread_mutex_unlock(&links->lock);
    return st;
}

static void
forget_partitions(exo_links *l, exo_time now)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->num_partitions; i++) {
        if (l->partitions[i].until > now)
            l->partitions[kept++] = l->partitions[i];
        else
            exo_free(l->partitions[i].side);
    }
    l->num_partitions = kept;
}

exo_status
exo_links_partition(exo_links *links, const bool *side, exo_time from, exo_time until, exo_err *err)
{
    if (from < 0 || until <= from)
        return exo_fail(err, EXO_INVAL, "a partition from %.9g s until %.9g s",
                        (double)from / (double)EXO_SECOND, (double)until / (double)EXO_SECOND);
    bool *copy = exo_calloc(links->num_hosts, sizeof *copy);
    if (!copy)
        return exo_fail(err, EXO_NOMEM, "no memory for a partition");
    memcpy(copy, side, links->num_hosts * sizeof *copy);
    pthread_mutex_lock(&links->lock);
    exo_status st = EXO_OK;
    forget_partitions(links, links->now);
    exo_link_partition *grown =
        exo_realloc(links->partitions, links->num_partitions + 1, sizeof *links->partitions);
    if (grown) {
        links->partitions = grown;
        grown[links->num_partitions++] =
            (exo_link_partition){.side = copy, .from = from, .until = until};
        copy = NULL;
    } else {
        st = exo_fail(err, EXO_NOMEM, "no memory for a partition");
    }
    pthread_mutex_unlock(&links->lock);
    exo_free(copy);
    return st;
}

/* --- Connections ------------------------------------------------------------------------------ */

/* The bytes of a message on the wire. A message without bytes is a segment, too. */
double
exo_link_wire(const struct line *line, uint64_t bytes)
{
    uint64_t segments = bytes / (uint64_t)PAYLOAD + (bytes % (uint64_t)PAYLOAD != 0 || bytes == 0);
    double wire = line->transport == EXO_LINK_TCP ? (double)bytes + HEADERS * (double)segments
                                                  : (double)bytes;
    return wire / (1 - line->loss);
}

const struct line *
exo_link_line(exo_links *l, uint32_t from, uint32_t to, struct pair **pair)
{
    struct pair *p = NULL;
    bool limited = !isinf(l->fallback.rate.rate);
    if (limited || l->num_own > 0)
        p = (struct pair *)(void *)table_find(&l->pairs, (uint32_t[3]){from, to, 0});
    if (!p && limited && pair)
        /* without memory *pair is NULL, and the pair's messages do not wait for each other */
        p = add_pair(l, from, to);
    if (pair)
        *pair = p;
    return p && p->own ? &p->line : &l->fallback;
}

struct connection *
exo_link_connection(exo_links *l, uint32_t from, uint32_t to, uint32_t flow)
{
    const uint32_t key[3] = {from, to, flow};
    struct connection *c = (struct connection *)(void *)table_find(&l->connections, key);
    if (!c)
        c = table_add(&l->connections, key, sizeof *c);
    return c;
}

/* Draws uniformly from [0, most]: draw number `c->messages` of the connection's stream, whose seed
 * is drawn from the network's. */
exo_time
exo_link_jitter(exo_links *l, struct connection *c, exo_time most)
{
    exo_rng rng;
    if (most == 0)
        return 0;
    if (!c->keyed) {
        exo_rng_init(&rng, l->seed, EXO_RNG_LINK, c->node.key[0],
                     (uint64_t)c->node.key[1] << 32 | c->node.key[2]);
        c->seed = (uint64_t)exo_rng_u32(&rng) << 32;
        c->seed |= exo_rng_u32(&rng);
        c->keyed = true;
    }
    exo_rng_init(&rng, c->seed, EXO_RNG_LINK, 0, c->messages);
    uint64_t draw = (uint64_t)exo_rng_u32(&rng) << 21;
    draw |= exo_rng_u32(&rng) >> 11;
    return (exo_time)((double)draw * 0x1p-53 * (double)most);
}

/* The connection's rate without other traffic, which determines its full window. An outage does not
 * count: TCP keeps the window that it had before. */
static double
rate_alone(const struct sending *s)
{
    double rate = exo_link_path_rate(&s->path, s->now, NULL);
    if (rate > 0)
        return rate;
    rate = s->path.rates[0]->rate;
    for (size_t i = 1; i < s->path.num_rates; i++)
        rate = s->path.rates[i]->rate < rate ? s->path.rates[i]->rate : rate;
    return rate;
}

/* Gives a piece of `bytes` bytes to the uplink at `at`. Connections share the uplink side by side:
 * the first byte of a piece passes at once, and its last byte when the uplink has passed everything
 * that came before. Pieces of one connection wait for each other. */
static void
send_piece(exo_links *l, struct sending *s, const struct connection *c, exo_time at, double bytes)
{
    exo_time start, passed, first = exo_link_max(at, c->last), arrived = 0;
    const double bits = 8 * bytes;
    exo_link_queue *up = &l->hosts[s->from].up.queue, *down = &l->hosts[s->to].down.queue;
    s->up_done = exo_link_max(s->up_done,
                              exo_link_queue_put(up, &s->up, s->now, at, bits * s->copies, &start));
    s->starts = start < s->starts ? start : s->starts;
    if (s->num_pieces < MAX_PIECES)
        s->pieces[s->num_pieces++] = (struct piece){.at = first, .before = s->bits};
    s->bits += bits;
    passed = exo_link_path_pass(&s->leaving, first, bits);
    if (s->pair)
        passed = exo_link_max(
            passed, exo_link_queue_put(&s->pair->queue, &s->between, s->now, first, bits, NULL));
    s->sent = exo_link_max(s->sent, passed);
    if (s->changes)
        arrived = exo_link_later(exo_link_path_pass(&s->path, first, bits), s->latency);
    s->last = exo_link_later(first, s->latency);
    if (s->copies == 1)
        arrived =
            exo_link_max(arrived, exo_link_queue_put(down, &s->down, s->now, s->last, bits, NULL));
    s->arrives = exo_link_max(s->arrives, arrived);
}

/* Begins a round trip of the connection and sets its window. After an idle time longer than the
 * timeout, Linux halves the window for each timeout that has passed (tcp_cwnd_restart, RFC
 * 2861). */
static void
begin_round(struct connection *c, exo_time now, exo_time rtt, exo_time idle, double full)
{
    const double first = INITIAL_WINDOW * SEGMENT;
    exo_time timeout = exo_link_later(rtt, RTO_MIN);
    if (c->window == 0) {
        c->window = first;
        c->threshold = INFINITY;
    } else if (idle > timeout) {
        for (int i = 0; i < HALVINGS && (idle -= timeout) > 0 && c->window > first; i++)
            c->window /= 2;
        c->window = c->window < first ? first : c->window;
    } else {
        /* an unused window does not grow (RFC 7661, tcp_is_cwnd_limited) */
        double used = c->window - c->left;
        c->window += c->window < full && (c->limited || 2 * used > c->window) ? used : 0;
    }
    c->window = c->window < MAX_WINDOW ? c->window : MAX_WINDOW;
    c->round = now;
    c->left = c->window;
    c->limited = false;
}

/* Continues a lossy connection after the loss of its first segment, and returns the time that the
 * bytes take. One of every 1/p segments is lost (the mean). CUBIC then multiplies the window by
 * 0.7. Below its previous size, where the window always is at such rates, it grows as fast as a
 * Reno window that is halved (RFC 9438, 4.3). In the mean the window is sqrt(3/2) / sqrt(p)
 * segments (Mathis et al., 1997). */
static double
pass_with_loss(struct connection *c, double bytes, double loss, double full, double rtt)
{
    const double steady = SEGMENT * sqrt(1.5 / loss),
                 grow = 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA) * SEGMENT;
    double took = 0;
    c->window = c->window < MOST_OF_FULL * full ? c->window : MOST_OF_FULL * full;
    for (int i = 0; bytes > 0 && i < MAX_LOSSES; i++) {
        bool ends = bytes <= c->credit;
        double sent = ends ? bytes : c->credit, rounds = sent / c->window;
        double mean = c->window + grow * rounds / 2;
        took += sent / (mean < full ? mean : full) * rtt;
        bytes -= sent;
        c->credit -= sent;
        c->window += grow * rounds;
        if (!ends) {
            c->window *= CUBIC_BETA;
            c->credit = SEGMENT / loss;
        }
    }
    return took + bytes / (steady < full ? steady : full) * rtt;
}

/* The bytes on the way when the rate is fully used; *rtt becomes the time of a round trip. 0: there
 * are no round trips. */
static double
full_window(const struct sending *s, exo_time *rtt)
{
    double rate = rate_alone(s);
    *rtt = s->rtt;
    if (isinf(rate) && *rtt == 0)
        return 0;
    if (!isinf(rate))
        *rtt = exo_link_later(*rtt,
                              (exo_time)(ROUND_SEGMENTS * SEGMENT * 8 / rate * (double)EXO_SECOND));
    return rate / 8 * (double)*rtt / (double)EXO_SECOND;
}

/* Sets the bytes until the next loss, anew if the link's loss has changed. */
static void
set_credit(struct connection *c, const struct line *line)
{
    double most = SEGMENT / line->loss; /* INFINITY without loss */
    if (c->window == 0 || line->loss == 0 || c->credit > most)
        c->credit = most;
}

/* Sends one piece a round trip, with a window that doubles until it fills the rate, then the rest
 * at once. */
static void
send_tcp(exo_links *l, struct sending *s, const struct line *line, struct connection *c,
         double bytes)
{
    exo_time rtt;
    double full = full_window(s, &rtt);
    if (full == 0) {
        send_piece(l, s, c, s->now, bytes);
        return;
    }
    set_credit(c, line);
    if (c->window == 0 || s->now >= exo_link_later(c->round, rtt)) {
        /* Connections share the uplink, so this one was sending as long as the uplink was busy. */
        exo_time last = exo_link_queue_busy(&l->hosts[s->from].up.queue, s->now, c->last);
        begin_round(c, s->now, rtt, s->now - last, full);
    }
    for (;;) {
        exo_time at = exo_link_max(s->now, c->round);
        bool rest = bytes <= c->left,
             open = c->window >= full || c->window >= c->threshold || c->window >= MAX_WINDOW;
        double piece = rest || open ? bytes : c->left;
        /* the window has stopped growing below `full`, or a loss comes: one window a round trip */
        if (piece > c->credit || (!rest && open && c->window < full)) {
            double took = line->loss > 0 ? pass_with_loss(c, bytes, line->loss, full, (double)rtt)
                                         : (bytes - c->left) / c->window * (double)rtt;
            send_piece(l, s, c, at, bytes);
            c->threshold = line->loss > 0 ? c->window : INFINITY;
            c->round = took < 0x1p62 ? exo_link_later(at, (exo_time)took) : EXO_LINK_NEVER;
            c->left = 0;
            s->sent = exo_link_max(s->sent, c->round);
            break;
        }
        send_piece(l, s, c, at, piece);
        c->credit -= piece;
        if (rest || open) {
            c->left = bytes < c->left ? c->left - bytes : 0;
            break;
        }
        bytes -= piece;
        c->round = exo_link_later(at, rtt);
        c->window = 2 * c->window < MAX_WINDOW ? 2 * c->window : MAX_WINDOW;
        c->left = c->window;
        c->limited = true;
    }
}

static exo_time
latency(const exo_links *l, const struct line *line, uint32_t from, uint32_t to)
{
    return exo_link_later(exo_link_later(line->latency, l->hosts[from].latency),
                          l->hosts[to].latency);
}

/* Sets the paths, the latency and the round-trip time of a message. */
static void
find_way(exo_links *l, struct sending *s, const struct line *line)
{
    const struct host *from = &l->hosts[s->from], *to = &l->hosts[s->to];
    s->up = (exo_link_path){.rates = {&from->up.rate}, .num_rates = 1};
    s->between = (exo_link_path){.rates = {&line->rate},
                                 .num_rates = 1,
                                 .partitions = l->partitions,
                                 .num_partitions = l->num_partitions,
                                 .from = s->from,
                                 .to = s->to};
    s->down = (exo_link_path){.rates = {&to->down.rate}, .num_rates = 1};
    s->leaving = s->between;
    s->leaving.rates[0] = &from->up.rate;
    s->leaving.rates[s->leaving.num_rates++] = &line->rate;
    s->latency = exo_link_later(s->latency, latency(l, line, s->from, s->to));
    s->path = s->leaving;
    s->path.shifts[s->path.num_rates] = s->latency;
    s->path.rates[s->path.num_rates++] = &to->down.rate;
    s->changes = exo_link_path_changes(&s->path);
    if (line->transport != EXO_LINK_TCP)
        return;
    const struct line *back = exo_link_line(l, s->to, s->from, NULL);
    s->rtt = exo_link_later(latency(l, line, s->from, s->to), latency(l, back, s->to, s->from));
    s->rtt = exo_link_later(s->rtt, (line->jitter + back->jitter) / 2); /* the mean */
}

void
exo_link_transmit(exo_links *l, struct sending *s, const struct line *line, struct connection *c,
                  uint64_t bytes)
{
    double wire = exo_link_wire(line, bytes);
    find_way(l, s, line);
    s->starts = EXO_LINK_NEVER;
    s->sent = s->up_done = s->arrives = s->now;
    struct connection fresh = {0};
    c = c ? c : &fresh;
    if (line->transport == EXO_LINK_TCP)
        send_tcp(l, s, line, c, wire);
    else
        send_piece(l, s, c, s->now, wire);
    if (!s->exchange)
        s->sent = exo_link_max(s->sent, s->up_done);
    c->last = s->sent == EXO_LINK_NEVER ? s->now : exo_link_max(c->last, s->sent);
    s->arrives = exo_link_max(s->arrives, exo_link_later(s->sent, s->latency));
}

void
exo_link_warm(exo_links *l, struct sending *s, const struct line *line, struct connection *c,
              uint64_t bytes)
{
    if (line->transport != EXO_LINK_TCP)
        return;
    find_way(l, s, line);
    exo_time rtt;
    double wire = exo_link_wire(line, bytes), full = full_window(s, &rtt);
    set_credit(c, line);
    begin_round(c, s->now, rtt, s->now - c->last, full);
    for (double most = full < c->threshold ? full : c->threshold;
         c->window < most && c->window <= wire;) {
        wire -= c->window;
        c->window = 2 * c->window < MAX_WINDOW ? 2 * c->window : MAX_WINDOW;
        c->limited = true;
    }
    c->left = wire < c->window ? c->window - wire : 0;
    c->round = s->now - rtt; /* the round trip is over */
    c->last = exo_link_max(c->last, s->now);
}

/* One acknowledgement for two segments (RFC 5681), each a segment without payload. */
double
exo_link_acknowledgements(const struct line *line, double bits)
{
    return line->transport == EXO_LINK_TCP ? bits * HEADERS / (2 * SEGMENT) : 0;
}

/* Makes the acknowledgements share the way back while the message passes. */
static void
acknowledge(exo_links *l, const struct sending *s, const struct line *line)
{
    double bits = exo_link_acknowledgements(line, s->bits);
    if (bits == 0 || s->sent == EXO_LINK_NEVER)
        return;
    exo_link_queue_load(&l->hosts[s->to].up.queue, s->now, (exo_link_load){s->now, s->sent, bits});
    exo_link_queue_load(&l->hosts[s->from].down.queue, s->now,
                        (exo_link_load){s->now, s->sent, bits});
}

/* Keeps the order of the connection's messages. A message that never arrives holds up nothing. */
void
exo_link_arrived(struct connection *c, struct sending *s)
{
    if (!c)
        return;
    c->messages++;
    if (s->arrives != EXO_LINK_NEVER)
        s->arrives = c->arrived = exo_link_max(s->arrives, c->arrived);
}

void
exo_links_send(exo_links *links, uint32_t from, uint32_t to, uint32_t flow, uint64_t bytes,
               exo_time now, exo_transit *out)
{
    *out = (exo_transit){.starts = now, .sent = now, .arrives = now};
    if (from == to)
        return;
    pthread_mutex_lock(&links->lock);
    links->now = exo_link_max(links->now, now);
    struct sending s = {.from = from, .to = to, .now = now, .copies = 1};
    const struct line *line = exo_link_line(links, from, to, &s.pair);
    struct connection *c = exo_link_connection(links, from, to, flow);
    s.latency = c ? exo_link_jitter(links, c, line->jitter) : 0;
    exo_link_transmit(links, &s, line, c, bytes);
    acknowledge(links, &s, line);
    exo_link_count(links, from, to, 1, bytes);
    exo_link_arrived(c, &s);
    pthread_mutex_unlock(&links->lock);
    *out = (exo_transit){.starts = s.starts, .sent = s.sent, .arrives = s.arrives};
}

void
exo_link_count(exo_links *l, uint32_t from, uint32_t to, uint64_t messages, uint64_t bytes)
{
    l->hosts[from].up.messages += messages;
    l->hosts[from].up.bytes += bytes;
    l->hosts[to].down.messages += messages;
    l->hosts[to].down.bytes += bytes;
}

static exo_link_stats
stats_of(const struct access *a)
{
    return (exo_link_stats){.messages = a->messages, .bytes = a->bytes, .busy = a->queue.busy};
}

void
exo_links_host_stats(const exo_links *links, uint32_t host, exo_link_stats *up,
                     exo_link_stats *down)
{
    exo_links *l = (exo_links *)(uintptr_t)links; /* to lock it */
    pthread_mutex_lock(&l->lock);
    *up = stats_of(&l->hosts[host].up);
    *down = stats_of(&l->hosts[host].down);
    pthread_mutex_unlock(&l->lock);
}

exo_link_speed
exo_links_speed(exo_links *l, uint32_t from, uint32_t to)
{
    exo_link_speed out = {INFINITY, INFINITY, INFINITY, 0};
    if (from == to)
        return out;
    pthread_mutex_lock(&l->lock);
    const struct host *a = &l->hosts[from], *b = &l->hosts[to];
    const struct line *line = exo_link_line(l, from, to, NULL);
    out = (exo_link_speed){.up = a->up.rate.rate,
                           .between = line->rate.rate,
                           .down = b->down.rate.rate,
                           .latency = (double)(line->latency + a->latency + b->latency) /
                                      (double)EXO_SECOND};
    pthread_mutex_unlock(&l->lock);
    return out;
}
