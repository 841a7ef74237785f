/* Exchanges: the messages of a collective, all at once. See link.h.
 *
 * A member's messages leave side by side, because its connections share the uplink evenly. A
 * message has left when the uplink has sent as much for each other message, so messages of equal
 * size leave together. The receiver's downlink queues the arriving messages in the order of their
 * first bytes.
 *
 * There are two ways: message by message, in O(n^2), and in sums, for equal links only. State: the
 * network's; scratch memory lasts for the call. Read next: docs/links.md. */
#include "link/link_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

enum {
    SMALL = 32 /* up to this many members go message by message */
};

/* In sums, one connection stands for all of a member's connections. This is its receiver. */
#define EVERYONE UINT32_MAX

struct entry {
    int64_t value;
    uint32_t member;
};

struct pieces {
    struct piece piece[MAX_PIECES];
    uint32_t count;
};

struct exchange {
    exo_links *links;
    exo_exchange kind;
    uint32_t n, flow;
    const uint32_t *hosts;
    const uint64_t *bytes;
    const exo_time *begins;
    exo_time *ends, *sent;
    /* scratch, (n) each. Members, by the time when they begin, or when their first byte leaves */
    struct entry *order;
    /* members' bytes, ascending */
    struct entry *sizes;
    struct connection **connections; /* of one member's messages */
    /* of each member's messages; in sums only */
    struct pieces *pieces;
    /* (n + 1); [k] is the sum of the k smallest sizes */
    double *sums;
    /* see downlink_done() */
    double *highest[2];
    exo_time *latency; /* of one member's messages */
    /* the latest time when the first byte of a last piece arrives at a member; -1: none does */
    exo_time *last;
};

static int
compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->member < y->member ? -1 : 1;
}

static uint64_t
bytes_between(const struct exchange *x, uint32_t from, uint32_t to)
{
    return x->bytes[x->kind == EXO_EXCHANGE_SCATTER ? to : from];
}

static void
end_later(struct exchange *x, uint32_t member, exo_time time)
{
    x->ends[member] = exo_link_max(x->ends[member], time);
}

static double
bits_of(const struct exchange *x, uint32_t from, uint32_t to)
{
    return 8 * exo_link_wire(&x->links->fallback, bytes_between(x, from, to));
}

/* The bits that a member receives and sends. */
static void
sums_of(const struct exchange *x, uint32_t i, double all_bits, double *gets, double *sends)
{
    double own = bits_of(x, i, i), each = own * (x->n - 1), others = all_bits - own;
    *gets = x->kind == EXO_EXCHANGE_SCATTER ? each : others;
    *sends = x->kind == EXO_EXCHANGE_SCATTER ? others : each;
}

/* Charges acknowledgements: those that a member sends pass its uplink, and those that it receives
 * pass its downlink. */
static void
acknowledge(struct exchange *x, uint32_t i, double all_bits)
{
    const struct line *line = &x->links->fallback;
    struct host *h = &x->links->hosts[x->hosts[i]];
    const exo_link_path up = {.rates = {&h->up.rate}, .num_rates = 1};
    const exo_link_path down = {.rates = {&h->down.rate}, .num_rates = 1};
    exo_time now = x->begins[i],
             later = exo_link_later(now, exo_link_later(line->latency, h->latency));
    double gets, sends;
    if (line->transport != EXO_LINK_TCP)
        return;
    sums_of(x, i, all_bits, &gets, &sends);
    exo_link_queue_put(&h->up.queue, &up, now, now, exo_link_acknowledgements(line, gets), NULL);
    exo_link_queue_put(&h->down.queue, &down, now, later, exo_link_acknowledgements(line, sends),
                       NULL);
}

/* --- Message by message ----------------------------------------------------------------------- */

/* The bytes by which `from`'s larger messages exceed its message to `to`, in sum: they pass the
 * uplink after it. */
static double
bytes_after(const struct exchange *x, uint32_t from, uint32_t to)
{
    if (x->kind == EXO_EXCHANGE_GATHER)
        return 0;
    const double size = (double)x->bytes[to], own = (double)x->bytes[from];
    uint32_t low = 0, high = x->n;
    while (low < high) { /* binary search: the number of messages that are no larger */
        uint32_t middle = (low + high) / 2;
        if (x->sizes[middle].value <= (int64_t)x->bytes[to])
            low = middle + 1;
        else
            high = middle;
    }
    double larger = x->sums[x->n] - x->sums[low] - size * (double)(x->n - low);
    return larger - (own > size ? own - size : 0);
}

/* Sends all messages of a member. Returns the time when its uplink has passed them. */
static exo_time
send_each(struct exchange *x, uint32_t i)
{
    exo_links *l = x->links;
    exo_time through = x->begins[i], sent = x->begins[i];
    for (uint32_t k = 1; k < x->n; k++) {
        uint32_t j = (i + k) % x->n;
        uint64_t bytes = bytes_between(x, i, j);
        struct sending s = {.from = x->hosts[i],
                            .to = x->hosts[j],
                            .now = x->begins[i],
                            .copies = 1,
                            .exchange = true};
        if (s.from == s.to)
            continue;
        const struct line *line = exo_link_line(l, s.from, s.to, &s.pair);
        struct connection *c = exo_link_connection(l, s.from, s.to, x->flow);
        s.latency = c ? exo_link_jitter(l, c, line->jitter) : 0;
        exo_link_transmit(l, &s, line, c, bytes);
        exo_link_count(l, s.from, s.to, 1, bytes);
        exo_link_arrived(c, &s);
        x->connections[j] = c;
        through = exo_link_max(through, s.up_done);
        sent = exo_link_max(sent, s.sent);
        x->latency[j] = s.latency;
        x->last[j] = exo_link_max(x->last[j], s.last);
        end_later(x, j, s.arrives);
    }
    if (x->sent)
        x->sent[i] = exo_link_max(sent, through);
    return through;
}

/* Ends the messages of member `i`: they share the uplink until `through`, smaller ones until an
 * earlier time. */
static void
receive_each(struct exchange *x, uint32_t i, exo_time through)
{
    double rate = x->links->hosts[x->hosts[i]].up.rate.rate / (double)EXO_SECOND;
    for (uint32_t k = 1; k < x->n; k++) {
        uint32_t j = (i + k) % x->n;
        double after = 8 * bytes_after(x, i, j) / rate;
        if (x->hosts[j] == x->hosts[i] || after > (double)(through - x->begins[i]))
            continue;
        exo_time done = through == EXO_LINK_NEVER ? through : through - (exo_time)after;
        end_later(x, j, exo_link_later(done, x->latency[j]));
        if (x->connections[j] && done != EXO_LINK_NEVER)
            x->connections[j]->last = exo_link_max(x->connections[j]->last, done);
    }
}

static void
message_by_message(struct exchange *x)
{
    double all_bits = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        x->sizes[i] = (struct entry){.value = (int64_t)x->bytes[i], .member = i};
        x->order[i] = (struct entry){.value = x->begins[i], .member = i};
        x->last[i] = -1;
    }
    qsort(x->sizes, x->n, sizeof *x->sizes, compare_entries);
    qsort(x->order, x->n, sizeof *x->order, compare_entries);
    for (uint32_t i = 0; i < x->n; i++)
        x->sums[i + 1] = x->sums[i] + (double)x->sizes[i].value;
    for (uint32_t i = 0; i < x->n; i++)
        all_bits += bits_of(x, i, i);
    for (uint32_t place = 0; place < x->n; place++)
        acknowledge(x, x->order[place].member, all_bits);
    for (uint32_t place = 0; place < x->n; place++) {
        uint32_t i = x->order[place].member;
        receive_each(x, i, send_each(x, i));
    }
    for (uint32_t j = 0; j < x->n; j++)
        if (x->last[j] >= 0)
            end_later(x, j,
                      exo_link_queue_done(&x->links->hosts[x->hosts[j]].down.queue, x->last[j]));
}

/* --- In sums ---------------------------------------------------------------------------------- */

static bool
may_be_summed(const exo_links *l, uint32_t n)
{
    return n > SMALL && l->num_own == 0 && l->num_partitions == 0 &&
           l->fallback.rate.num_changes == 0;
}

/* Whether the sums are valid: equal links, hosts without schedules and with one member each,
 * messages of nearly the same size. Uses x->sizes as scratch. */
static bool
can_be_summed(const struct exchange *x)
{
    exo_links *l = x->links;
    uint64_t least = UINT64_MAX, most = 0;
    if (!may_be_summed(l, x->n))
        return false;
    bool can = true;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct host *h = &l->hosts[x->hosts[i]];
        can = can && h->up.rate.num_changes == 0 && h->down.rate.num_changes == 0;
        least = x->bytes[i] < least ? x->bytes[i] : least;
        most = x->bytes[i] > most ? x->bytes[i] : most;
        x->sizes[i] = (struct entry){.value = x->hosts[i], .member = i};
    }
    if (!can || most - least > most / 100 + 64)
        return false;
    qsort(x->sizes, x->n, sizeof *x->sizes, compare_entries);
    for (uint32_t i = 1; i < x->n; i++)
        can = can && x->sizes[i].value != x->sizes[i - 1].value;
    return can;
}

/* The state that downlink_done() keeps from one member to the next. x->highest[0][r] is the latest
 * time among places 0..r of the order, [1][r] among places r and later. Times are ns since
 * `origin`. */
struct downlinks {
    double bits, rate; /* the bits and rate that `highest` was computed for; 0: none yet */
    exo_time origin;
};

/* The time at which a member's traffic could arrive as one block without delaying the downlink: the
 * latest, over its pieces, of the piece's time less the time that the bits before it take. Assumes
 * that the others' pieces are alike. scale: bits that arrive for each bit of a piece. */
static double
comes(const struct exchange *x, const struct downlinks *d, uint32_t member, double scale)
{
    const struct pieces *p = &x->pieces[member];
    double latest = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        double at = (double)(p->piece[i].at - d->origin) - p->piece[i].before * scale / d->rate;
        latest = at > latest ? at : latest;
    }
    return latest + (double)x->links->hosts[x->hosts[member]].latency;
}

/* The time when the downlink of the member at `place` has passed everything: the latest, over all
 * other members, of the member's beginning plus the time for all bits that begin from then on. */
static double
downlink_done(struct exchange *x, struct downlinks *d, uint32_t place)
{
    uint32_t j = x->order[place].member, n = x->n;
    bool gather = x->kind == EXO_EXCHANGE_GATHER;
    double rate = x->links->hosts[x->hosts[j]].down.rate.rate / (double)EXO_SECOND,
           own = bits_of(x, j, j);
    double *before = x->highest[0], *after = x->highest[1], work = 0;
    if (d->rate != rate || (!gather && d->bits != own)) {
        d->bits = own;
        d->rate = rate;
        for (uint32_t r = n; r-- > 0;) {
            work += gather ? bits_of(x, x->order[r].member, x->order[r].member) : own;
            before[r] = comes(x, d, x->order[r].member, n - 1) + work / rate;
            after[r] = r + 1 < n && after[r + 1] > before[r] ? after[r + 1] : before[r];
        }
        for (uint32_t r = 1; r < n; r++)
            before[r] = before[r - 1] > before[r] ? before[r - 1] : before[r];
    }
    /* without the member's own bits, which it does not send to itself */
    double a = place > 0 ? before[place - 1] - own / rate : 0;
    double b = place + 1 < n ? after[place + 1] : 0;
    return a > b ? a : b;
}

/* Sends over the uplinks. through[0] and through[1] are the latest two times when a member's
 * messages have left, with the latency of its host; *last is the member of the latest. */
static void
send_sums(struct exchange *x, uint64_t total, double all_bits, exo_time through[2], uint32_t *last)
{
    exo_links *l = x->links;
    double others = (double)(x->n - 1);
    through[0] = through[1] = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        struct host *h = &l->hosts[x->hosts[i]];
        uint64_t all =
            x->kind == EXO_EXCHANGE_SCATTER ? total - x->bytes[i] : x->bytes[i] * (x->n - 1);
        struct sending s = {
            .from = x->hosts[i], .to = x->hosts[i == 0], .now = x->begins[i], .copies = others};
        struct connection *c = exo_link_connection(l, s.from, EVERYONE, x->flow);
        acknowledge(x, i, all_bits);
        exo_link_transmit(l, &s, &l->fallback, c, (all + x->n - 2) / (x->n - 1));
        h->up.messages += x->n - 1;
        h->up.bytes += all;
        if (x->sent)
            x->sent[i] = s.sent;
        memcpy(x->pieces[i].piece, s.pieces, sizeof s.pieces);
        x->pieces[i].count = s.num_pieces;
        exo_time t = exo_link_later(s.sent, h->latency);
        if (t > through[0]) {
            through[1] = through[0];
            through[0] = t;
            *last = i;
        } else {
            through[1] = exo_link_max(through[1], t);
        }
        x->order[i] = (struct entry){.value = exo_link_later(s.starts, h->latency), .member = i};
    }
}

static void
in_sums(struct exchange *x)
{
    exo_links *l = x->links;
    const struct line *line = &l->fallback;
    double others = (double)(x->n - 1), all_bits = 0;
    exo_time through[2],
        jitter = (exo_time)((double)line->jitter * others / (others + 1)); /* mean of the largest */
    uint32_t last = 0;
    uint64_t total = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        total += x->bytes[i];
        all_bits += bits_of(x, i, i);
    }
    send_sums(x, total, all_bits, through, &last);
    qsort(x->order, x->n, sizeof *x->order, compare_entries);
    struct downlinks d = {.origin = x->begins[0]};
    for (uint32_t i = 1; i < x->n; i++)
        d.origin = x->begins[i] < d.origin ? x->begins[i] : d.origin;
    for (uint32_t place = 0; place < x->n; place++) {
        uint32_t j = x->order[place].member;
        struct host *h = &l->hosts[x->hosts[j]];
        exo_link_path down = {.rates = {&h->down.rate}, .num_rates = 1};
        exo_time later = exo_link_later(line->latency + jitter, h->latency);
        exo_time first = exo_link_later(x->order[place == 0].value, later);
        bool scatter = x->kind == EXO_EXCHANGE_SCATTER;
        double gets, sends, acknowledgements;
        sums_of(x, j, all_bits, &gets, &sends);
        acknowledgements =
            exo_link_acknowledgements(line, sends) / h->down.rate.rate * (double)EXO_SECOND;
        double done = ceil(downlink_done(x, &d, place) + acknowledgements);
        exo_time queued = done < 0x1p62 ? exo_link_later(d.origin, (exo_time)done) : EXO_LINK_NEVER;
        end_later(x, j, exo_link_queue_put(&h->down.queue, &down, x->begins[j], first, gets, NULL));
        end_later(x, j, exo_link_later(queued, later));
        end_later(x, j, exo_link_later(through[j == last], later));
        h->down.messages += x->n - 1;
        h->down.bytes += scatter ? x->bytes[j] * (x->n - 1) : total - x->bytes[j];
    }
}

/* --- Both ------------------------------------------------------------------------------------- */

exo_status
exo_links_exchange(exo_links *links, exo_exchange kind, uint32_t n, const uint32_t *hosts,
                   uint32_t flow, const uint64_t *bytes, const exo_time *begins, exo_time *ends,
                   exo_time *sent, exo_err *err)
{
    struct exchange x = {.links = links,
                         .kind = kind,
                         .n = n,
                         .flow = flow,
                         .hosts = hosts,
                         .bytes = bytes,
                         .begins = begins,
                         .ends = ends,
                         .sent = sent};
    x.order = exo_calloc(n, sizeof *x.order);
    x.sizes = exo_calloc(n, sizeof *x.sizes);
    x.sums = exo_calloc((size_t)n + 1, 3 * sizeof *x.sums);
    x.last = exo_calloc(n, 2 * sizeof *x.last);
    x.pieces = exo_calloc(n, sizeof *x.pieces);
    x.connections = exo_calloc(n, sizeof *x.connections);
    exo_status st = EXO_OK;
    if (!x.order || !x.sizes || !x.sums || !x.last || !x.pieces || !x.connections) {
        st = exo_fail(err, EXO_NOMEM, "no memory for an exchange of %u members", n);
        goto done;
    }
    x.highest[0] = x.sums + n + 1;
    x.highest[1] = x.highest[0] + n;
    x.latency = x.last + n;
    memcpy(ends, begins, n * sizeof *ends);
    if (sent)
        memcpy(sent, begins, n * sizeof *sent);
    pthread_mutex_lock(&links->lock);
    for (uint32_t i = 0; i < n; i++)
        links->now = exo_link_max(links->now, begins[i]);
    if (n > 1 && can_be_summed(&x))
        in_sums(&x);
    else if (n > 1)
        message_by_message(&x);
    pthread_mutex_unlock(&links->lock);
done:
    exo_free(x.order);
    exo_free(x.sizes);
    exo_free(x.sums);
    exo_free(x.last);
    exo_free(x.pieces);
    exo_free(x.connections);
    return st;
}

void
exo_links_warm(exo_links *links, uint32_t n, const uint32_t *hosts, uint32_t flow, uint32_t member,
               uint64_t bytes, exo_time now)
{
    pthread_mutex_lock(&links->lock);
    bool summed = may_be_summed(links, n);
    for (uint32_t k = 1; k < (summed ? 2 : n); k++) {
        struct sending s = {
            .from = hosts[member], .to = hosts[(member + k) % n], .now = now, .copies = 1};
        const struct line *line = exo_link_line(links, s.from, s.to, &s.pair);
        struct connection *c = exo_link_connection(links, s.from, summed ? EVERYONE : s.to, flow);
        if (c && s.from != s.to)
            exo_link_warm(links, &s, line, c, bytes);
    }
    pthread_mutex_unlock(&links->lock);
}
