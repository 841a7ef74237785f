/* What nodes tell the head: that they are there, with their actors; that they leave; and the cause
 * of an end. Read next: head_work.c, for the actors that end with a node. */
#include "cluster/head_impl.h"

#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/printable.h"
#include "base/version.h"
#include "cluster/durable.h"
#include "net/process.h"

/* Whether the job of an actor that a node lists may be going on, under the driver that made the
 * actor. An unknown job may be going on during the grace, because its driver may still register;
 * later, an unknown job has been forgotten. */
static bool
job_goes_on(struct head *h, const Exo__Cluster__Spawn *spec)
{
    if (!spec->job[0] || spec->detached)
        return true;
    const exo_job_entry *job = exo_directory_job(&h->directory, spec->job, 0);
    if (!job)
        return h->grace_ends != 0;
    return strcmp(job->state, "running") == 0 &&
           (!job->driver || !spec->driver || job->driver == spec->driver);
}

/* Makes an entry for an actor of an earlier head that is in no file of this head. NULL: the actor
 * must not live. */
static exo_entry *
remember_again(struct head *h, const exo_call_context *call, const exo_cluster_node *node,
               const Exo__Cluster__Actor *info)
{
    exo_err err = {0};
    exo_entry *a = NULL;
    Exo__Cluster__Spawn spec;
    Exo__Cluster__RestartRule rule;
    /* this head made the actor, and has forgotten it since */
    const bool own = info->key >= h->first_key && info->key < h->next_key;
    if (!info->spec || !info->key || own || !job_goes_on(h, info->spec))
        return NULL;
    exo_status st = exo_head_told_spec(h, call, info->spec, &spec, &rule, &err);
    if (st == EXO_OK)
        st = exo_head_new_entry(h, info->key, exo_head_holder(h, call), &spec, &a, &err);
    if (st != EXO_OK) {
        EXO_LOG(WARN, HEAD, "node=%s an actor is not known any more: %s", node->name, err.text);
        return NULL;
    }
    a->state = EXO_ENTRY_UNKNOWN;
    a->incarnation = info->incarnation;
    exo_entry_set_last(a, node->id, node->key);
    return a;
}

/* Takes an actor that lives at a registering node into the table: one known from before, or made
 * while the head was away. False: the head takes it for dead, and may have made another one in its
 * place. */
static bool
adopt(struct head *h, const exo_call_context *call, exo_cluster_node *node,
      const Exo__Cluster__Actor *info)
{
    exo_entry *a = exo_head_by_key(h, info->key);
    if (!info->id || (!a && !(a = remember_again(h, call, node, info))))
        return false;
    bool same = a->incarnation == info->incarnation;
    if (a->state == EXO_ENTRY_ALIVE && same && a->node == node && a->id == info->id) {
        a->listed = true;
        return true;
    }
    bool starting = a->state == EXO_ENTRY_STARTING && same && a->node == node;
    bool back = a->state == EXO_ENTRY_UNKNOWN && exo_entry_was_at(a, node) &&
                info->incarnation >= a->incarnation;
    if (!starting && !back)
        return false;
    exo_entry_take_place(a, node, info->spec ? info->spec->gpus : 0);
    a->incarnation = info->incarnation;
    a->id = info->id;
    a->listed = true;
    exo_head_announce(h, a);
    return true;
}

/* Handles the death of an actor that its node could not report at the time. */
static void
bury(struct head *h, const exo_cluster_node *node, const Exo__Cluster__Actor *info)
{
    exo_entry *a = exo_head_by_key(h, info->key);
    bool there =
        a && (a->node == node || (a->state == EXO_ENTRY_UNKNOWN && exo_entry_was_at(a, node)));
    if (there && a->incarnation == info->incarnation && a->state != EXO_ENTRY_DEAD &&
        a->state != EXO_ENTRY_RESTARTING)
        exo_head_entry_died(h, a, info->cause, info->failed);
}

/* Whether this node may still list the actor, which belongs to an earlier head. This is possible
 * until the end of the grace. */
static bool
is_awaited(const struct head *h, const exo_entry *a, const exo_cluster_node *node)
{
    return h->grace_ends && a->state == EXO_ENTRY_UNKNOWN && exo_entry_was_at(a, node);
}

static void
die_unlisted(struct head *h, exo_entry *a, const struct work *w)
{
    const exo_cluster_node *node = exo_directory_node(&h->directory, w->node);
    bool there =
        node && ((a->state == EXO_ENTRY_ALIVE && a->node == node) || is_awaited(h, a, node));
    if (there && !a->listed)
        exo_head_entry_died(h, a, w->cause, true);
}

/* Marks the actors that the node may have as not listed. */
static void
unlist_all(struct head *h, exo_cluster_node *node)
{
    exo_entry *a;
    for (a = node->entries; a; a = a->next_there)
        a->listed = false;
    for (a = h->grace_ends ? h->directory.actors : NULL; a; a = a->by_key.next)
        a->listed = a->listed && !is_awaited(h, a, node);
}

static exo_status
end_unlisted(struct head *h, const exo_cluster_node *node, exo_err *err)
{
    const exo_entry *a;
    size_t count = 0;
    for (a = node->entries; a; a = a->next_there)
        count += !a->listed;
    for (a = h->grace_ends ? h->directory.actors : NULL; a; a = a->by_key.next)
        count += !a->listed && is_awaited(h, a, node);
    struct work *w = count ? exo_head_new_work(count, die_unlisted) : NULL;
    if (count && !w)
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a node");
    for (a = count ? node->entries : NULL; a; a = a->next_there)
        if (!a->listed)
            exo_head_add_work(w, a);
    for (a = count && h->grace_ends ? h->directory.actors : NULL; a; a = a->by_key.next)
        if (!a->listed && is_awaited(h, a, node))
            exo_head_add_work(w, a);
    if (w) {
        w->node = node->id;
        snprintf(w->cause, sizeof w->cause, "it ended while its node could not reach the head");
    }
    exo_head_do_work(h, &w);
    return EXO_OK;
}

/* Compares the actors that a registering node lists, in one message or several, with the head's
 * table. Actors that the node does not list are dead. *ended (m->n_actors) receives the references
 * of those that the node must end, and *count their number. */
static exo_status
compare_actors(struct head *h, const exo_call_context *call, exo_cluster_node *node,
               const Exo__Cluster__Register *m, uint64_t *ended, size_t *count, exo_err *err)
{
    *count = 0;
    if (m->part == 0)
        unlist_all(h, node);
    exo_durable_begin(h->durable);
    for (size_t i = 0; i < m->n_actors; i++) {
        if (strcmp(m->actors[i]->state, "dead") == 0)
            bury(h, node, m->actors[i]);
        else if (!adopt(h, call, node, m->actors[i]))
            ended[(*count)++] = m->actors[i]->id;
    }
    exo_head_commit(h);
    return m->more ? EXO_OK : end_unlisted(h, node, err);
}

/* Makes `owner` the owner of the node. */
static void
own_node(exo_cluster_node *node, const exo_identity *owner)
{
    exo_identity *before = node->owner;
    node->owner = exo_identity_hold(owner);
    exo_identity_drop(&before);
    node->watcher = owner && owner->pid ? exo_process_parent(owner->pid) : 0;
    char *key = owner && owner->key[0] ? exo_strdup(owner->key) : NULL;
    if (key) { /* the proven key, whatever the message says */
        exo_free(node->key);
        node->key = key;
    }
}

/* Begins the job of a driver, or continues it. */
static exo_status
begin_job(struct head *h, const exo_cluster_node *node, const Exo__Cluster__Register *m,
          uint64_t peer, exo_err *err)
{
    exo_head_trim(h, SLICE);
    exo_job_entry *job = exo_directory_job(&h->directory, m->job, h->next_key++);
    if (!job)
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a job");
    if (job->driver == node->id && !job->ended)
        return EXO_OK;
    exo_status st = exo_head_take_job(h, job, peer, err);
    if (st != EXO_OK) {
        /* so that a job made just now is forgotten in time */
        job->ended = job->ended ? job->ended : exo_head_date();
        return st;
    }
    exo_directory_renew_job(&h->directory, job);
    exo_free(job->owner);
    job->owner = node->owner && node->owner->name[0] ? exo_strdup(node->owner->name) : NULL;
    job->driver = node->id;
    job->state = "running";
    job->began = job->began && !job->ended ? job->began : exo_head_date();
    job->ended = 0;
    exo_head_keep_job(h, job);
    exo_head_record_job(h, job, node, "began");
    exo_head_end_former(h, job);
    return EXO_OK;
}

/* The name of a new node. Actors are placed by it, so a node may take neither the name of another
 * key nor that of another key's node, even a lost one. It then gets the name of its own key. */
static char *
name_of_node(struct head *h, const exo_identity *who, char *wanted)
{
    const exo_cluster_node *other = exo_directory_node_by_name(&h->directory, wanted);
    if (!who || !who->name[0] || strcmp(who->name, wanted) == 0)
        return wanted;
    bool keys = h->env.is_key && h->env.is_key(h->env.context, wanted);
    bool theirs = other && other->owner && !exo_identity_is_same(other->owner, who);
    return keys || theirs ? exo_pb_text(who->name) : wanted;
}

/* Versions of exogym that speak one protocol work together, but may compute other bits. */
static void
compare_versions(const exo_cluster_node *node)
{
    const char *theirs = node->version ? node->version : "older";
    if (exo_version_is_other(theirs, exo_version))
        EXO_LOG(
            WARN, HEAD,
            "event=other_version node=%s version=\"%.60s\" head=\"%s\" a run over both may have "
            "other bits",
            node->name, theirs, exo_version);
}

/* Adds or renews a node, charged to the process that registers it. */
static exo_status
add_node(struct head *h, const exo_call_context *call, const Exo__Cluster__Register *m,
         exo_cluster_node **out, exo_err *err)
{
    exo_accounts *accounts = &h->directory.accounts;
    uint64_t peer = exo_head_peer(call);
    const exo_cluster_node *known = exo_directory_node(&h->directory, m->node);
    bool counts = !known || !known->alive;
    exo_status st = counts ? exo_account_take(accounts, peer, EXO_QUOTA_NODES, 1, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    Exo__Cluster__Register named = *m;
    named.name = name_of_node(h, exo_call_identity(call), m->name);
    *out = exo_directory_add_node(&h->directory, &named);
    if (!*out && counts)
        exo_account_give(accounts, peer, EXO_QUOTA_NODES, 1);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a node");
    if (counts)
        (*out)->holder = peer;
    (*out)->since = exo_head_date();
    own_node(*out, exo_call_identity(call));
    if (counts && m->part == 0)
        compare_versions(*out);
    return EXO_OK;
}

exo_status
exo_head_register(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
                  exo_err *err)
{
    uint64_t peer = exo_head_peer(call), *ended = NULL;
    exo_cluster_node *node = NULL;
    Exo__Cluster__RegisterReply message = EXO__CLUSTER__REGISTER_REPLY__INIT;
    const Exo__Cluster__Register *m = args;
    if (!m->node)
        return exo_fail(err, EXO_INVAL, "register: the arguments cannot be read");
    if (m->part == 0)
        exo_head_note(h, m->name, m->kind);
    exo_status st =
        m->n_actors > EXO_PART_ACTORS
            ? exo_fail(err, EXO_INVAL,
                       "register: %zu actors at once, and %d may be: tell of them in parts",
                       m->n_actors, EXO_PART_ACTORS)
            : exo_head_check_resources(m->resources, m->n_resources, err);
    for (size_t i = 0; st == EXO_OK && i < m->n_resources; i++)
        if (strcmp(m->resources[i]->name, "gpus") == 0 && m->resources[i]->amount > EXO_MAX_GPUS)
            st = exo_fail(err, EXO_INVAL, "a worker offers at most %d GPUs, not %g", EXO_MAX_GPUS,
                          m->resources[i]->amount);
    if (st == EXO_OK && strcmp(m->kind, "worker") != 0 && strcmp(m->kind, "driver") != 0)
        st = exo_fail(err, EXO_INVAL, "register: a node is a worker or a driver, not '%.60s'",
                      m->kind);
    if (st == EXO_OK)
        st = exo_head_check_register(h, call, m, err);
    if (st == EXO_OK)
        st = add_node(h, call, m, &node, err);
    if (st == EXO_OK && strcmp(m->kind, "driver") == 0 && m->job[0])
        st = begin_job(h, node, m, peer, err);
    if (st == EXO_OK && !(ended = exo_calloc(m->n_actors + 1, sizeof *ended)))
        st = exo_fail(err, EXO_NOMEM, "the head has no memory for a node");
    if (st == EXO_OK)
        st = compare_actors(h, call, node, m, ended, &message.n_ended, err);
    if (st == EXO_OK) {
        message.cluster = exo_pb_text(h->env.cluster);
        message.name = exo_pb_text(node->name);
        message.ended = ended;
        st = exo_head_reply(reply, &message.base, err);
    }
    if (st == EXO_OK && h->is_cut_off)
        exo_head_begin_grace(h);
    if (st == EXO_OK && !m->more) {
        exo_head_want_tick(h, exo_head_now(h)); /* there may be room now for actors that wait */
        exo_head_ask_again(h);
    }
    exo_free(ended);
    return st;
}

/* Ends the waiting calls of a process that is gone. */
static void
forget_peer(struct head *h, uint64_t peer)
{
    const exo_account *account = exo_account_of(&h->directory.accounts, peer);
    if (!account)
        return;
    bool finds = account->held[EXO_QUOTA_FINDS] > 0;
    exo_entry *next;
    if (account->held[EXO_QUOTA_LOGS] > 0) {
        exo_head_forget_wishes(h, &h->log_wishes, peer);
        exo_head_forget_wishes(h, &h->end_wishes, peer);
    }
    for (exo_entry *a = finds ? h->directory.restless : NULL; a; a = next) {
        next = a->next_restless;
        exo_head_forget_wishes(h, &a->find_wishes, peer);
        exo_head_forget_wishes(h, &a->spawn_wishes, peer);
    }
}

static void
end_job_of(struct head *h, const exo_cluster_node *driver, const char *cause, bool clean)
{
    char why[EXO_ERR_TEXT];
    exo_format_cut(why, sizeof why, "its driver is lost: %s", cause);
    exo_head_end_job(h, driver, clean ? "done" : "lost", clean ? "its driver left" : why);
}

static void
node_gone(struct head *h, exo_cluster_node *node, const char *cause, bool clean)
{
    if (!node->alive)
        return;
    if (!clean)
        exo_node_note_loss(node, cause, exo_head_now(h));
    node->alive = false;
    node->left = clean;
    exo_account_give(&h->directory.accounts, node->holder, EXO_QUOTA_NODES, 1);
    node->since = exo_head_date();
    exo_free(node->cause);
    node->cause = exo_strdup(cause);
    if (node->is_driver)
        end_job_of(h, node, cause, clean);
    exo_head_end_entries(h, node, !clean);
    exo_head_want_tick(h, exo_head_now(h));
    exo_head_maybe_end(h);
}

/* Loses a node that is silent while no other one is heard: this host is cut off from all of them, and
 * they may go on. Its actors and its job are kept as a restarted head would find them. */
static void
node_unheard(struct head *h, exo_cluster_node *node, const char *cause)
{
    exo_entry *a, *next;
    exo_job_entry *job, *next_job;
    h->is_cut_off = true;
    h->grace_ends = INT64_MAX;
    exo_durable_begin(h->durable);
    for (a = node->entries; a; a = next) {
        next = a->next_there;
        if (a->state == EXO_ENTRY_ALIVE && !a->batch)
            exo_head_await(h, a);
    }
    exo_head_commit(h);
    HASH_ITER (hh, h->directory.jobs, job, next_job)
        if (job->driver == node->id && !job->ended)
            job->driver = 0;
    node_gone(h, node, cause, false);
}

exo_status
exo_head_gone(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
              exo_err *err)
{
    (void)reply;
    const Exo__Cluster__NodeInfo *m = args;
    exo_status st = exo_head_check_self(call, m->node, "gone", err);
    exo_cluster_node *node = st == EXO_OK ? exo_directory_node(&h->directory, m->node) : NULL;
    bool left = strcmp(m->state, "left") == 0, silent = strcmp(m->state, "silent") == 0;
    if (node && left)
        exo_head_note(h, node->name, "left");
    if (node && node->alive && silent && !exo_head_hears_any(h))
        node_unheard(h, node, m->cause);
    else if (node)
        node_gone(h, node, m->cause, left);
    if (st == EXO_OK)
        forget_peer(h, m->node);
    return st;
}

exo_status
exo_head_epitaph(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
                 exo_err *err)
{
    char cause[EXO_ERR_TEXT], why[200];
    exo_entry *a, *next;
    (void)reply;
    const Exo__Cluster__Epitaph *m = args;
    exo_head_note(h, m->name, m->cause);
    exo_status st = exo_head_check_epitaph(h, call, m->node, err);
    if (st != EXO_OK)
        return st;
    const exo_identity *who = exo_call_identity(call);
    exo_cluster_node *node = exo_directory_node(&h->directory, m->node);
    exo_format_cut(cause, sizeof cause, "its node '%s' %s%s%s", node ? node->name : m->name,
                   exo_cut(why, sizeof why, m->cause), m->running[0] ? ", in " : "", m->running);
    for (a = h->grace_ends ? h->directory.actors : NULL; a; a = next) {
        next = a->by_key.next;
        if (a->state == EXO_ENTRY_UNKNOWN && a->last_node == m->node &&
            (!who || strcmp(a->last_key, who->key) == 0))
            exo_head_entry_died(h, a, cause, true); /* it ended while there was no head */
    }
    if (node) {
        node_gone(h, node, m->cause, false);
        node->left = false;
        exo_free(node->cause);
        node->cause = exo_strdup(m->cause);
        exo_free(node->running);
        node->running = exo_strdup(m->running);
        exo_free(node->log);
        if (strlen(m->log) > MAX_LAST_LINES)
            m->log[MAX_LAST_LINES] = 0;
        node->log = exo_strdup(m->log);
        exo_head_explain(h, node, cause);
    }
    return EXO_OK;
}
