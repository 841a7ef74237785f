/* The state of a network as words, and back, so that a resumed run gets the answers that the
 * uninterrupted one would have got. Rates, latencies and schedules come from the spec. Counts of
 * messages, bytes and busy times are not saved: the report adds up the parts of a run.
 *
 *     now; the number of hosts, {queue up, queue down} for each; pairs, {from, to, 0, queue} for
 *     each; connections, {from, to, flow, 9 words} for each
 *     queue: free, since, 4 loads of 3 words, the number of arrivals, 4 words for each
 *
 * Owner: the caller, under the network's lock. */
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "link/link_impl.h"

/* A position in the words that are written or read. `words` NULL: they are only counted. */
struct tape {
    uint64_t *words;
    size_t at, count;
    bool reading, wrong;
};

static void
word(struct tape *t, uint64_t *value)
{
    if (t->reading && t->at >= t->count)
        t->wrong = true;
    else if (t->reading)
        *value = t->words[t->at];
    else if (t->words)
        t->words[t->at] = *value;
    t->at++;
}

/* A number of at most `limit`. */
static void
count_word(struct tape *t, uint32_t *value, uint64_t limit)
{
    uint64_t n = *value;
    word(t, &n);
    t->wrong = t->wrong || n > limit;
    *value = t->wrong ? 0 : (uint32_t)n;
}

static void
time_word(struct tape *t, exo_time *value)
{
    uint64_t bits = (uint64_t)*value;
    word(t, &bits);
    *value = (exo_time)bits;
}

static void
number_word(struct tape *t, double *value)
{
    uint64_t bits = 0;
    memcpy(&bits, value, sizeof bits);
    word(t, &bits);
    memcpy(value, &bits, sizeof bits);
    t->wrong = t->wrong || isnan(*value);
}

static void
queue_words(struct tape *t, exo_link_queue *q)
{
    time_word(t, &q->free);
    time_word(t, &q->since);
    for (int i = 0; i < EXO_LINK_LOADS; i++) {
        time_word(t, &q->loads[i].from);
        time_word(t, &q->loads[i].until);
        number_word(t, &q->loads[i].bits);
    }
    count_word(t, &q->count, q->capacity);
    for (uint32_t i = 0; !t->wrong && i < q->count; i++) {
        time_word(t, &q->arrivals[i].at);
        time_word(t, &q->arrivals[i].done);
        number_word(t, &q->arrivals[i].bits);
        count_word(t, &q->arrivals[i].count, UINT32_MAX);
    }
}

static void
connection_words(struct tape *t, struct connection *c)
{
    uint64_t limited = c->limited;
    word(t, &c->messages);
    number_word(t, &c->window);
    number_word(t, &c->left);
    number_word(t, &c->credit);
    number_word(t, &c->threshold);
    word(t, &limited);
    c->limited = limited != 0;
    time_word(t, &c->round);
    time_word(t, &c->last);
    time_word(t, &c->arrived);
}

static void
key_words(struct tape *t, uint32_t key[3], uint64_t hosts)
{
    count_word(t, &key[0], hosts - 1);
    count_word(t, &key[1], UINT32_MAX); /* EVERYONE (exchange.c) is no host */
    count_word(t, &key[2], UINT32_MAX);
}

static void
write_table(struct tape *t, const struct table *table, bool pairs, uint64_t hosts)
{
    uint64_t count = table->count;
    word(t, &count);
    for (size_t i = 0; i < table->size; i++)
        for (struct node *n = table->heads[i]; n; n = n->next) {
            key_words(t, n->key, hosts);
            if (pairs)
                queue_words(t, &((struct pair *)(void *)n)->queue);
            else
                connection_words(t, (struct connection *)(void *)n);
        }
}

/* False: no memory. */
static bool
read_table(struct tape *t, exo_links *l, bool pairs)
{
    uint64_t count = 0;
    word(t, &count);
    for (uint64_t i = 0; !t->wrong && i < count; i++) {
        uint32_t key[3] = {0};
        key_words(t, key, l->num_hosts);
        if (t->wrong)
            break;
        struct pair *p = pairs ? exo_link_pair(l, key[0], key[1]) : NULL;
        struct connection *c = pairs ? NULL : exo_link_connection(l, key[0], key[1], key[2]);
        if (!p && !c)
            return false;
        if (p)
            queue_words(t, &p->queue);
        else
            connection_words(t, c);
    }
    return true;
}

static void
host_words(struct tape *t, exo_links *l)
{
    uint32_t hosts = (uint32_t)l->num_hosts;
    time_word(t, &l->now);
    count_word(t, &hosts, l->num_hosts);
    t->wrong = t->wrong || hosts != l->num_hosts;
    for (size_t i = 0; !t->wrong && i < l->num_hosts; i++) {
        queue_words(t, &l->hosts[i].up.queue);
        queue_words(t, &l->hosts[i].down.queue);
    }
}

exo_status
exo_links_save(exo_links *links, uint64_t **words, size_t *count)
{
    struct tape t = {0};
    pthread_mutex_lock(&links->lock);
    for (int pass = 0; pass < 2 && (pass == 0 || t.words); pass++) { /* counts, then writes */
        t.at = 0;
        host_words(&t, links);
        write_table(&t, &links->pairs, true, links->num_hosts);
        write_table(&t, &links->connections, false, links->num_hosts);
        if (pass == 0)
            t.words = exo_calloc(t.at, sizeof *t.words);
    }
    pthread_mutex_unlock(&links->lock);
    *words = t.words;
    *count = t.at;
    return t.words ? EXO_OK : EXO_NOMEM;
}

exo_status
exo_links_restore(exo_links *links, const uint64_t *words, size_t count, exo_err *err)
{
    struct tape t = {
        .words = (uint64_t *)(uintptr_t)words /* only read */, .count = count, .reading = true};
    pthread_mutex_lock(&links->lock);
    host_words(&t, links);
    bool memory =
        (t.wrong || read_table(&t, links, true)) && (t.wrong || read_table(&t, links, false));
    pthread_mutex_unlock(&links->lock);
    if (!memory)
        return exo_fail(err, EXO_NOMEM, "no memory for the state of links");
    return !t.wrong && t.at == count
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "this is not the state of these links");
}
