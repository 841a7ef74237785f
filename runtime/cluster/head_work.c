/* Work of the head on many actors: the ends of nodes and jobs, the lives of a large group. It is
 * done in slices. After each slice the head sends itself a call for the next one, which queues
 * behind other calls, so these are served between slices.
 *
 * A piece of work has the keys of its actors, and looks each of them up again when its turn comes.
 * Several pieces take turns. Actors of a node that has ended stay in its list until their turn; a
 * lookup of one of them by name, key or reference handles its death first. */
#include "cluster/head_impl.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/printable.h"
#include "cluster/durable.h"

enum {
    /* casualties of one node that are remembered, because the cause of their deaths may become
     * known later */
    MOST_CASUALTIES = 10000
};

struct work *
exo_head_new_work(size_t most, void (*each)(struct head *h, exo_entry *a, const struct work *w))
{
    struct work *w = exo_calloc(1, sizeof *w + most * sizeof w->keys[0]);
    if (!w)
        return NULL;
    w->each = each;
    w->most = most;
    return w;
}

void
exo_head_add_work(struct work *w, const exo_entry *a)
{
    w->keys[w->count++] = a->key;
}

static void
do_slice(struct head *h, struct work *w)
{
    exo_durable_begin(h->durable);
    for (size_t end = w->at + SLICE; w->at < w->count && w->at < end; w->at++) {
        exo_entry *a = exo_directory_by_key(&h->directory, w->keys[w->at]);
        if (a)
            w->each(h, a, w);
    }
    exo_head_commit(h);
}

/* Has the head call itself, or, if its mailbox is full, does all work at once. */
static void
want_more(struct head *h)
{
    exo_err err = {0};
    if (!h->works ||
        exo_send(h->runtime, h->self, "go_on", (exo_payload){0}, INT64_MAX, &err) == EXO_OK)
        return;
    for (struct work *w; (w = h->works);) {
        while (w->at < w->count)
            do_slice(h, w);
        h->works = w->next;
        exo_free(w);
    }
}

static void
append(struct head *h, struct work *w)
{
    struct work **last = &h->works;
    while (*last)
        last = &(*last)->next;
    w->next = NULL;
    *last = w;
}

void
exo_head_do_work(struct head *h, struct work **work)
{
    struct work *w = *work;
    *work = NULL;
    if (!w)
        return;
    do_slice(h, w);
    if (w->at == w->count) {
        exo_free(w);
        return;
    }
    bool idle = !h->works;
    append(h, w);
    if (idle)
        want_more(h);
}

exo_status
exo_head_go_on(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
               exo_err *err)
{
    struct work *w = h->works;
    (void)args;
    (void)reply;
    exo_status own = exo_head_check_own(call, "go_on", err);
    if (own != EXO_OK || !w)
        return own;
    do_slice(h, w);
    h->works = w->next; /* further work that the slice has caused is queued behind */
    if (w->at < w->count)
        append(h, w);
    else
        exo_free(w);
    want_more(h);
    return EXO_OK;
}

void
exo_head_free_works(struct head *h)
{
    for (struct work *w; (w = h->works);) {
        h->works = w->next;
        exo_free(w);
    }
}

/* --- The end of a node ------------------------------------------------------------------------ */

/* The cause of death of actors whose node has ended. */
static void
tell_loss(const exo_cluster_node *node, char *out, size_t size)
{
    exo_format_cut(out, size, "its node '%s' %s: %s", node->name, node->left ? "left" : "is lost",
                   node->cause ? node->cause : "");
}

/* Handles the actor's death first, if its node has ended. Returns the entry; NULL: it was
 * forgotten. */
static exo_entry *
settle(struct head *h, exo_entry *a)
{
    char reason[EXO_ERR_TEXT];
    if (!a || !a->node || a->node->alive)
        return a;
    uint64_t key = a->key;
    tell_loss(a->node, reason, sizeof reason);
    exo_head_entry_died(h, a, reason, !a->node->left);
    return exo_directory_by_key(&h->directory, key);
}

exo_entry *
exo_head_by_name(struct head *h, const char *space, const char *name)
{
    return settle(h, exo_directory_by_name(&h->directory, space, name));
}

exo_entry *
exo_head_by_key(struct head *h, uint64_t key)
{
    return settle(h, exo_directory_by_key(&h->directory, key));
}

exo_entry *
exo_head_by_id(struct head *h, uint64_t node, uint64_t id)
{
    return settle(h, exo_directory_by_id(&h->directory, node, id));
}

/* Ends an actor with its node, unless the node is back and has listed the actor. */
static void
die_with_node(struct head *h, exo_entry *a, const struct work *w)
{
    if (a->node && a->node->id == w->node && !a->node->alive)
        exo_head_entry_died(h, a, w->cause, w->failure);
}

void
exo_head_end_entries(struct head *h, exo_cluster_node *node, bool failure)
{
    char reason[EXO_ERR_TEXT];
    size_t count = 0;
    for (const exo_entry *a = node->entries; a; a = a->next_there)
        count++;
    if (count == 0)
        return;
    tell_loss(node, reason, sizeof reason);
    struct work *w = exo_head_new_work(count, die_with_node);
    exo_free(node->casualties);
    node->casualties =
        exo_calloc(count < MOST_CASUALTIES ? count : MOST_CASUALTIES, sizeof *node->casualties);
    node->num_casualties = 0;
    for (const exo_entry *a = node->entries; a; a = a->next_there) {
        if (w)
            exo_head_add_work(w, a);
        if (node->casualties && node->num_casualties < MOST_CASUALTIES)
            node->casualties[node->num_casualties++] = a->key;
    }
    while (!w && node->entries) /* without memory for slices: at once */
        exo_head_entry_died(h, node->entries, reason, failure);
    if (!w)
        return;
    w->node = node->id;
    w->failure = failure;
    snprintf(w->cause, sizeof w->cause, "%s", reason);
    exo_head_do_work(h, &w);
}

static void
explain(struct head *h, exo_entry *a, const struct work *w)
{
    if (a->lost_with != w->node)
        return;
    exo_entry_set_cause(a, w->cause);
    exo_head_keep_actor(h, a);
}

void
exo_head_explain(struct head *h, exo_cluster_node *node, const char *cause)
{
    struct work *w = exo_head_new_work(node->num_casualties, explain);
    for (size_t i = 0; w && i < node->num_casualties; i++)
        w->keys[w->count++] = node->casualties[i];
    exo_free(node->casualties);
    node->casualties = NULL;
    node->num_casualties = 0;
    if (!w)
        return;
    w->node = node->id;
    snprintf(w->cause, sizeof w->cause, "%s", cause);
    exo_head_do_work(h, &w);
}
