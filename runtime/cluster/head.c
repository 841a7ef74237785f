/* The head: see head.h. What it is told of nodes, and asked for by name. Read next: head_spawn.c, head_lives.c. */
#include "head_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <uthash.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "durable.h"
#include "printable.h"
#include "process.h"

#define GRACE       (10 * EXO_SECOND) /* for nodes to come back to a head that was restarted     */
#define END_TIMEOUT (10 * EXO_SECOND) /* of workers that are told to end                         */

exo_time
exo_head_now(const struct head *h)
{
    return exo_now(exo_runtime_clock(h->runtime));
}

/* For people only: nothing is decided by it. */
int64_t
exo_head_date(void)
{
    return (int64_t)time(NULL);
}

void
exo_head_want_tick(struct head *h, exo_time at)
{
    if (at < atomic_load(h->env.due)) {
        atomic_store(h->env.due, at);
        h->env.wake(h->env.context);
    }
}

exo_status
exo_head_reply(exo_payload *reply, const ProtobufCMessage *message, exo_err *err)
{
    exo_status st = exo_message_pack(reply, message);
    return st == EXO_OK ? st : exo_fail(err, st, "the head has no memory for a reply");
}

/* --- Replies that come later --------------------------------------------------------------------------------------------------- */

exo_status
exo_head_wish(struct head *h, exo_call_context *call, struct exo_wish **list, exo_quota quota, exo_err *err)
{
    uint64_t peer = exo_head_peer(call);
    exo_status st = quota < EXO_QUOTAS ? exo_account_take(&h->directory.accounts, peer, quota, 1, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    struct exo_wish *w = exo_calloc(1, sizeof *w);
    if (!w || !(w->future = exo_call_defer(call))) {
        exo_free(w);
        if (quota < EXO_QUOTAS)
            exo_account_give(&h->directory.accounts, peer, quota, 1);
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a call");
    }
    w->peer = peer;
    w->quota = quota;
    w->next = *list;
    *list = w;
    return EXO_OK;
}

/* It is answered. */
void
exo_head_free_wish(struct head *h, struct exo_wish *w)
{
    if (w->quota < EXO_QUOTAS)
        exo_account_give(&h->directory.accounts, w->peer, w->quota, 1);
    exo_future_drop(&w->future);
    exo_free(w);
}

/* Answers what a process that is gone waits for. */
static void
forget_wishes(struct head *h, struct exo_wish **list, uint64_t peer)
{
    for (struct exo_wish **at = list, *w; (w = *at);) {
        if (w->peer != peer) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        exo_future_complete(w->future, EXO_CANCELLED, "the caller is gone", NULL);
        exo_head_free_wish(h, w);
    }
}

void
exo_head_fulfil(struct head *h, struct exo_wish **list, exo_status status, const char *reason,
                const ProtobufCMessage *message)
{
    for (struct exo_wish *w = *list, *next; w; w = next) {
        exo_payload reply = {0};
        next = w->next;
        exo_status st = status;
        if (st == EXO_OK && message)
            st = exo_message_pack(&reply, message);
        exo_future_complete(w->future, st, reason, &reply);
        exo_head_free_wish(h, w);
    }
    *list = NULL;
}

void
exo_head_describe(const exo_entry *a, Exo__Cluster__Actor *out)
{
    exo__cluster__actor__init(out);
    out->key = a->key;
    out->name = exo_pb_text(a->spec->name);
    out->space = exo_pb_text(a->spec->space);
    out->class_name = exo_pb_text(a->spec->class_name);
    out->job = exo_pb_text(a->spec->job);
    out->detached = a->spec->detached;
    out->id = a->id;
    out->incarnation = a->incarnation;
    out->state = exo_pb_text(exo_entry_state_text(a->state));
    out->cause = exo_pb_text(a->cause);
    out->restarts = a->incarnation > 0 ? a->incarnation - 1 : 0;
    out->since = a->since;
    if (a->spec->restart && a->spec->restart->when != EXO_RESTART_NEVER && a->spec->name[0]) {
        out->idempotent.data = (uint8_t *)(uintptr_t)a->idempotent;
        out->idempotent.len = a->idempotent_size;
    }
    if (a->node) {
        out->node = a->node->id;
        out->node_name = exo_pb_text(a->node->name);
        out->endpoint = exo_pb_text(a->node->endpoint);
        out->key_text = exo_pb_text(a->node->key);
        out->host = exo_pb_text(a->node->host);
    }
}

/* --- Time, and the end ---------------------------------------------------------------------------------------------------------------- */

/* Told to end, and all workers have left, or had the time to. */
static void
maybe_end(struct head *h)
{
    if (!h->ends_at)
        return;
    for (const exo_node *n = h->directory.nodes; n && exo_head_now(h) < h->ends_at; n = n->hh.next)
        if (n->alive && !n->is_driver)
            return;
    exo_head_fulfil(h, &h->end_wishes, EXO_OK, NULL, NULL);
    h->env.end(h->env.context);
}

static exo_status
head_end(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)args;
    (void)reply;
    exo_head_note(h, h->env.cluster, "the cluster ends");
    exo_status st = exo_head_wish(h, call, &h->end_wishes, EXO_QUOTA_LOGS, err);
    if (st != EXO_OK || h->ends_at)
        return st;
    h->ends_at = exo_head_now(h) + END_TIMEOUT;
    exo_head_want_tick(h, h->ends_at);
    for (const exo_node *n = h->directory.nodes; n; n = n->hh.next) {
        exo_ref worker;
        if (n->alive && !n->is_driver && h->env.worker_of(h->env.context, n->id, &worker, NULL) == EXO_OK)
            exo_send(h->runtime, worker, "end", (exo_payload){0}, INT64_MAX, NULL);
    }
    maybe_end(h);
    return EXO_OK;
}

/* Those who have looked for it for almost as long as they can. */
static void
tell_not_yet(struct head *h, exo_entry *a)
{
    char text[EXO_ERR_TEXT];
    exo_entry_describe(a, text, sizeof text);
    for (struct exo_wish **at = &a->find_wishes, *w; (w = *at);) {
        if (w->until > exo_head_now(h)) {
            exo_head_want_tick(h, w->until);
            at = &w->next;
            continue;
        }
        *at = w->next;
        exo_future_complete(w->future, EXO_TIMEOUT, text, NULL);
        exo_head_free_wish(h, w);
    }
}

static exo_status
head_tick(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    exo_entry *a, *next;
    exo_time at = exo_head_now(h);
    (void)args;
    (void)reply;
    exo_status st = exo_head_check_own(call, "tick", err);
    if (st != EXO_OK)
        return st;
    atomic_store(h->env.due, INT64_MAX);
    HASH_ITER (by_key, h->directory.actors, a, next)
        if (a->state == EXO_ENTRY_UNKNOWN && a->ended)
            exo_head_entry_died(h, a, "its process ended while there was no head", true);
    if (h->grace_ends && at >= h->grace_ends) {
        h->grace_ends = 0;
        HASH_ITER (by_key, h->directory.actors, a, next)
            if (a->state == EXO_ENTRY_UNKNOWN)
                exo_head_entry_died(h, a, "its node did not come back to a head that was restarted", true);
        exo_head_end_lost_jobs(h);
        exo_head_ask_again(h);
    }
    if (h->grace_ends)
        exo_head_want_tick(h, h->grace_ends);
    if (h->ends_at > at)
        exo_head_want_tick(h, h->ends_at);
    maybe_end(h);
    HASH_ITER (by_key, h->directory.actors, a, next) {
        exo_err reason = {0};
        if (a->state != EXO_ENTRY_RESTARTING)
            continue;
        if (a->restart_at > at) {
            exo_head_want_tick(h, a->restart_at);
        } else if (exo_directory_place(&h->directory, a, &reason) == EXO_OK) {
            exo_head_begin_life(h, a);
        } else { /* a node may come */
            a->restart_at = at + EXO_SECOND;
            exo_entry_set_waits(a, reason.text);
            exo_head_want_tick(h, a->restart_at);
        }
    }
    HASH_ITER (by_key, h->directory.actors, a, next)
        if (a->find_wishes)
            tell_not_yet(h, a);
    return EXO_OK;
}

/* --- Names --------------------------------------------------------------------------------------------------------------------------- */

/* A little before the caller stops waiting, so that the reply reaches it. */
static exo_time
tell_until(const struct head *h, const exo_call_context *call)
{
    exo_time deadline = exo_call_deadline(call), quarter = (deadline - exo_head_now(h)) / 4;
    return deadline == INT64_MAX ? deadline : deadline - (quarter < EXO_SECOND ? quarter : EXO_SECOND);
}

/* `a`: the last one of that name; may be NULL. */
exo_status
exo_head_fail_not_there(const Exo__Cluster__Name *m, const exo_entry *a, exo_err *err)
{
    return exo_fail(err, EXO_NOT_FOUND, "there is no actor '%s' in the namespace '%s'%s%s", m->name, m->space,
                    a ? "; the last one died: " : "", a && a->cause ? a->cause : "");
}

static exo_status
head_find(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    char text[EXO_ERR_TEXT];
    exo_status st = EXO_OK;
    Exo__Cluster__Name *m = EXO_UNPACK_ARGS(Exo__Cluster__Name, exo__cluster__name, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "find: the arguments cannot be read");
    exo_entry *a = exo_directory_by_name(&h->directory, m->space, m->name);
    exo_head_note_actor(h, m->space, m->name, NULL);
    st = exo_head_check_space(h, call, m->space, a, "find", err);
    if (st != EXO_OK) {
        EXO_RELEASE(m);
        return st;
    }
    if (!a || a->state == EXO_ENTRY_DEAD) {
        st = exo_head_fail_not_there(m, a, err);
    } else if (a->state == EXO_ENTRY_ALIVE && !(m->id && a->id == m->id && a->node && a->node->id == m->node)) {
        Exo__Cluster__Actor info;
        exo_head_describe(a, &info);
        st = exo_head_reply(reply, &info.base, err);
    } else if (m->at_once) {
        exo_entry_describe(a, text, sizeof text);
        st = exo_fail(err, EXO_TIMEOUT, "%s", text);
    } else { /* it is not alive yet, or the caller knows more of its death than we do */
        st = exo_head_wish(h, call, &a->find_wishes, EXO_QUOTA_FINDS, err);
        if (st == EXO_OK)
            exo_head_want_tick(h, a->find_wishes->until = tell_until(h, call));
    }
    EXO_RELEASE(m);
    return st;
}

/* Where a process is, as if it were an actor's place. */
static exo_status
head_node(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)call;
    Exo__Cluster__NodeInfo *m = EXO_UNPACK_ARGS(Exo__Cluster__NodeInfo, exo__cluster__node_info, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "node: the arguments cannot be read");
    const exo_node *node = exo_directory_node(&h->directory, m->node);
    EXO_RELEASE(m);
    if (!node || !node->alive)
        return exo_fail(err, EXO_PEER_LOST, "the process %s%s", node ? node->name : "is not known",
                        node ? " is gone" : "");
    Exo__Cluster__Actor info = EXO__CLUSTER__ACTOR__INIT;
    info.node = node->id;
    info.id = 1; /* any: nobody calls it */
    info.node_name = exo_pb_text(node->name);
    info.endpoint = exo_pb_text(node->endpoint);
    info.key_text = exo_pb_text(node->key);
    return exo_head_reply(reply, &info.base, err);
}

static exo_status
head_claim(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    exo_entry *a = NULL;
    bool claimed = false;
    Exo__Cluster__Name *m = EXO_UNPACK_ARGS(Exo__Cluster__Name, exo__cluster__name, args);
    exo_node *node = m ? exo_directory_node(&h->directory, m->node) : NULL;
    if (m)
        exo_head_note_actor(h, m->space, m->name, "a name is claimed");
    exo_status st = !m || !m->id || !m->name[0] ? exo_fail(err, EXO_INVAL, "claim: the arguments cannot be read")
                    : !node ? exo_fail(err, EXO_CLOSED, "this process is not registered at the head")
                    : !node->alive
                        ? exo_fail(err, EXO_CLOSED, "this process has left, or the head has taken it for lost")
                        : exo_head_check_self(call, m->node, "claim", err);
    if (st == EXO_OK)
        st = exo_head_check_space(h, call, m->space, NULL, "claim", err);
    if (st == EXO_OK) {
        Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
        spec.name = m->name;
        spec.space = m->space;
        spec.class_name = m->class_name;
        spec.job = exo_pb_text(node->job);
        spec.owner = exo_pb_text(node->owner ? node->owner->name : "");
        spec.driver = exo_head_driver_of(h, node->job);
        a = exo_directory_by_id(&h->directory, m->node, m->id); /* it was claimed, and the reply was lost? */
        claimed = a && a->state == EXO_ENTRY_ALIVE && strcmp(a->spec->name, m->name) == 0 &&
                  strcmp(a->spec->space, m->space) == 0;
        st = claimed ? EXO_OK : exo_head_new_entry(h, 0, exo_head_holder(h, call), &spec, &a, err);
    }
    if (st == EXO_OK && !claimed) {
        a->node = node;
        a->id = m->id;
        a->incarnation++;
        exo_directory_index(&h->directory, a);
        exo_head_set_state(h, a, EXO_ENTRY_ALIVE);
    }
    if (st == EXO_OK) {
        Exo__Cluster__Actor info;
        exo_head_describe(a, &info);
        st = exo_head_reply(reply, &info.base, err);
    }
    EXO_RELEASE(m);
    return st;
}

/* --- Nodes --------------------------------------------------------------------------------------------------------------------------- */

/* Whether the job of an actor that a node tells of may be going on: it runs, under the driver that it had when the actor was made. Until the
 * grace is over its driver may still come; one that is not known later has been forgotten. */
static bool
job_goes_on(struct head *h, const Exo__Cluster__Spawn *spec)
{
    if (!spec->job[0] || spec->detached)
        return true;
    const exo_job_entry *job = exo_directory_job(&h->directory, spec->job, 0);
    if (!job)
        return h->grace_ends != 0;
    return strcmp(job->state, "running") == 0 && (!job->driver || !spec->driver || job->driver == spec->driver);
}

/* The entry of an actor that an earlier head made, which kept no file or not of this one. NULL: it must not live. */
static exo_entry *
remember_again(struct head *h, const exo_call_context *call, const exo_node *node, const Exo__Cluster__Actor *info)
{
    exo_err err = {0};
    exo_entry *a = NULL;
    Exo__Cluster__Spawn spec;
    Exo__Cluster__RestartRule rule;
    if (!info->spec || !info->key || info->key >= h->first_key || !job_goes_on(h, info->spec))
        return NULL; /* this head made it, and has forgotten it since */
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

/* An actor that lives at a node which (again) registers: known from before, or made while the head was away. False: it is dead for us,
 * and there may be another one in its place. */
static bool
adopt(struct head *h, const exo_call_context *call, exo_node *node, const Exo__Cluster__Actor *info)
{
    exo_entry *a = exo_directory_by_key(&h->directory, info->key);
    if (!info->id || (!a && !(a = remember_again(h, call, node, info))))
        return false;
    bool same = a->incarnation == info->incarnation;
    if (a->state == EXO_ENTRY_ALIVE && same && a->node == node && a->id == info->id) {
        a->listed = true;
        return true;
    }
    bool starting = a->state == EXO_ENTRY_STARTING && same && a->node == node;
    bool back = a->state == EXO_ENTRY_UNKNOWN && exo_entry_was_at(a, node) && info->incarnation >= a->incarnation;
    if (!starting && !back)
        return false;
    exo_entry_take_place(a, node);
    a->incarnation = info->incarnation;
    a->id = info->id;
    a->listed = true;
    exo_head_announce(h, a);
    return true;
}

/* An actor that died when the head could not be told. */
static void
bury(struct head *h, const exo_node *node, const Exo__Cluster__Actor *info)
{
    exo_entry *a = exo_directory_by_key(&h->directory, info->key);
    bool there = a && (a->node == node || (a->state == EXO_ENTRY_UNKNOWN && exo_entry_was_at(a, node)));
    if (there && a->incarnation == info->incarnation && a->state != EXO_ENTRY_DEAD && a->state != EXO_ENTRY_RESTARTING)
        exo_head_entry_died(h, a, info->cause, info->failed);
}

static bool
is_of_node(const exo_entry *a, const exo_node *node)
{
    return (a->state == EXO_ENTRY_ALIVE && a->node == node) ||
           (a->state == EXO_ENTRY_UNKNOWN && exo_entry_was_at(a, node));
}

/* What a node that registers tells of its actors, in one message or in several. Those that it does not tell of are not there. *ended
 * (n_actors of it) gets the references of those that it must end; their number is returned. */
static size_t
compare_actors(struct head *h, const exo_call_context *call, exo_node *node, const Exo__Cluster__Register *m,
               uint64_t *ended)
{
    exo_entry *a, *next;
    size_t count = 0;
    for (a = m->part == 0 ? h->directory.actors : NULL; a; a = a->by_key.next)
        a->listed = a->listed && !is_of_node(a, node);
    for (size_t i = 0; i < m->n_actors; i++) {
        if (strcmp(m->actors[i]->state, "dead") == 0)
            bury(h, node, m->actors[i]);
        else if (!adopt(h, call, node, m->actors[i]))
            ended[count++] = m->actors[i]->id;
    }
    if (m->more)
        return count;
    HASH_ITER (by_key, h->directory.actors, a, next) {
        if (is_of_node(a, node) && !a->listed)
            exo_head_entry_died(h, a, "it ended while its node could not reach the head", true);
    }
    return count;
}

/* From now on the node is the caller's. */
static void
own_node(exo_node *node, const exo_identity *owner)
{
    exo_identity *before = node->owner;
    node->owner = exo_identity_hold(owner);
    exo_identity_drop(&before);
    node->watcher = owner && owner->pid ? exo_process_parent(owner->pid) : 0;
    char *key = owner && owner->key[0] ? exo_strdup(owner->key) : NULL;
    if (key) { /* whatever it says */
        exo_free(node->key);
        node->key = key;
    }
}

/* A driver's job runs, from now on or again. */
static exo_status
begin_job(struct head *h, const exo_node *node, const Exo__Cluster__Register *m, uint64_t peer, exo_err *err)
{
    exo_head_trim(h);
    exo_job_entry *job = exo_directory_job(&h->directory, m->job, h->next_key++);
    if (!job)
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a job");
    if (job->driver == node->id && !job->ended)
        return EXO_OK;
    exo_status st = exo_head_take_job(h, job, peer, err);
    if (st != EXO_OK) {
        job->ended = job->ended ? job->ended : exo_head_date(); /* one that was made just now is forgotten in time */
        return st;
    }
    exo_directory_renew_job(&h->directory, job);
    exo_free(job->owner);
    job->owner = node->owner && node->owner->name[0] ? exo_strdup(node->owner->name) : NULL;
    job->driver = node->id;
    job->state = "running";
    job->ended = 0;
    job->began = job->began ? job->began : exo_head_date();
    exo_head_keep_job(h, job);
    exo_head_record_job(h, job, node, "began");
    exo_head_end_former(h, job);
    return EXO_OK;
}

/* What a new node may be called: actors are placed by it. The names of other keys, and of nodes of theirs that are lost, are not its to take: then it
 * has that of its own key. */
static char *
name_of_node(struct head *h, const exo_identity *who, char *wanted)
{
    const exo_node *other = exo_directory_node_by_name(&h->directory, wanted);
    if (!who || !who->name[0] || strcmp(who->name, wanted) == 0)
        return wanted;
    bool keys = h->env.is_key && h->env.is_key(h->env.context, wanted);
    bool theirs = other && other->owner && !exo_identity_is_same(other->owner, who);
    return keys || theirs ? exo_pb_text(who->name) : wanted;
}

/* A node that is counted for the process that registers it. */
static exo_status
add_node(struct head *h, const exo_call_context *call, const Exo__Cluster__Register *m, exo_node **out, exo_err *err)
{
    exo_accounts *accounts = &h->directory.accounts;
    uint64_t peer = exo_head_peer(call);
    const exo_node *known = exo_directory_node(&h->directory, m->node);
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
    return EXO_OK;
}

static exo_status
head_register(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    uint64_t peer = exo_head_peer(call), *ended = NULL;
    exo_node *node = NULL;
    Exo__Cluster__RegisterReply message = EXO__CLUSTER__REGISTER_REPLY__INIT;
    Exo__Cluster__Register *m = EXO_UNPACK_ARGS(Exo__Cluster__Register, exo__cluster__register, args);
    if (!m || !m->node) {
        EXO_RELEASE(m);
        return exo_fail(err, EXO_INVAL, "register: the arguments cannot be read");
    }
    if (m->part == 0)
        exo_head_note(h, m->name, m->kind);
    exo_status st = exo_head_check_resources(m->resources, m->n_resources, err);
    if (st == EXO_OK && strcmp(m->kind, "worker") != 0 && strcmp(m->kind, "driver") != 0)
        st = exo_fail(err, EXO_INVAL, "register: a node is a worker or a driver, not '%.60s'", m->kind);
    if (st == EXO_OK)
        st = exo_head_check_register(h, call, m, err);
    if (st == EXO_OK)
        st = add_node(h, call, m, &node, err);
    if (st == EXO_OK && strcmp(m->kind, "driver") == 0 && m->job[0])
        st = begin_job(h, node, m, peer, err);
    if (st == EXO_OK && !(ended = exo_calloc(m->n_actors + 1, sizeof *ended)))
        st = exo_fail(err, EXO_NOMEM, "the head has no memory for a node");
    if (st == EXO_OK) {
        message.n_ended = compare_actors(h, call, node, m, ended);
        message.cluster = exo_pb_text(h->env.cluster);
        message.name = exo_pb_text(node->name);
        message.ended = ended;
        st = exo_head_reply(reply, &message.base, err);
    }
    if (st == EXO_OK && !m->more) {
        exo_head_want_tick(h, exo_head_now(h)); /* there may be room now for what waits */
        exo_head_ask_again(h);
    }
    exo_free(ended);
    EXO_RELEASE(m);
    return st;
}

/* What a process that is gone waits for. */
static void
forget_peer(struct head *h, uint64_t peer)
{
    const exo_account *account = exo_account_of(&h->directory.accounts, peer);
    if (!account)
        return;
    bool finds = account->held[EXO_QUOTA_FINDS] > 0;
    if (account->held[EXO_QUOTA_LOGS] > 0) {
        forget_wishes(h, &h->log_wishes, peer);
        forget_wishes(h, &h->end_wishes, peer);
    }
    for (exo_entry *a = finds ? h->directory.actors : NULL; a; a = a->by_key.next) {
        forget_wishes(h, &a->find_wishes, peer);
        forget_wishes(h, &a->spawn_wishes, peer);
    }
}

static void
node_gone(struct head *h, exo_node *node, const char *cause, bool clean)
{
    char reason[EXO_ERR_TEXT];
    exo_entry *a, *next;
    if (!node->alive)
        return;
    node->alive = false;
    node->left = clean;
    exo_account_give(&h->directory.accounts, node->holder, EXO_QUOTA_NODES, 1);
    node->since = exo_head_date();
    exo_free(node->cause);
    node->cause = exo_strdup(cause);
    if (node->is_driver)
        exo_head_end_job(h, node, clean ? "done" : "lost", clean ? "its driver left" : cause);
    exo_format_cut(reason, sizeof reason, "its node '%s' %s: %s", node->name, clean ? "left" : "is lost", cause);
    exo_durable_begin(h->durable);
    HASH_ITER (by_key, h->directory.actors, a, next)
        if (a->node == node)
            exo_head_entry_died(h, a, reason, !clean);
    exo_durable_commit(h->durable);
    exo_head_want_tick(h, exo_head_now(h));
    maybe_end(h);
}

static exo_status
head_gone(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)reply;
    Exo__Cluster__NodeInfo *m = EXO_UNPACK_ARGS(Exo__Cluster__NodeInfo, exo__cluster__node_info, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "gone: the arguments cannot be read");
    exo_status st = exo_head_check_self(call, m->node, "gone", err);
    exo_node *node = st == EXO_OK ? exo_directory_node(&h->directory, m->node) : NULL;
    bool left = strcmp(m->state, "left") == 0;
    if (node && left)
        exo_head_note(h, node->name, "left");
    if (node)
        node_gone(h, node, m->cause, left);
    if (st == EXO_OK)
        forget_peer(h, m->node);
    EXO_RELEASE(m);
    return st;
}

static exo_status
head_epitaph(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    char cause[EXO_ERR_TEXT], why[200];
    exo_entry *a, *next;
    (void)reply;
    Exo__Cluster__Epitaph *m = EXO_UNPACK_ARGS(Exo__Cluster__Epitaph, exo__cluster__epitaph, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "epitaph: the arguments cannot be read");
    exo_head_note(h, m->name, m->cause);
    exo_status st = exo_head_check_epitaph(h, call, m->node, err);
    if (st != EXO_OK) {
        EXO_RELEASE(m);
        return st;
    }
    const exo_identity *who = exo_call_identity(call);
    exo_node *node = exo_directory_node(&h->directory, m->node);
    exo_format_cut(cause, sizeof cause, "its node '%s' %s%s%s", node ? node->name : m->name,
                   exo_cut(why, sizeof why, m->cause), m->running[0] ? ", in " : "", m->running);
    HASH_ITER (by_key, h->directory.actors, a, next)
        if (a->state == EXO_ENTRY_UNKNOWN && a->last_node == m->node && (!who || strcmp(a->last_key, who->key) == 0))
            exo_head_entry_died(h, a, cause, true); /* it ended when there was no head */
    if (node) {
        node_gone(h, node, m->cause, false);
        node->left = false;
        exo_free(node->cause);
        node->cause = exo_strdup(m->cause);
        exo_free(node->running);
        node->running = exo_strdup(m->running);
        exo_free(node->log);
        node->log = exo_strdup(m->log);
        HASH_ITER (by_key, h->directory.actors, a, next) {
            if (a->lost_with == node->id) {
                exo_entry_set_cause(a, cause);
                exo_head_keep_actor(h, a);
            }
        }
    }
    EXO_RELEASE(m);
    return EXO_OK;
}

/* --- Life ----------------------------------------------------------------------------------------------------------------------------- */

static void
head_stop(void *self)
{
    struct head *h = self;
    exo_entry *a, *next;
    HASH_ITER (by_key, h->directory.actors, a, next) {
        exo_head_fulfil(h, &a->spawn_wishes, EXO_PEER_LOST, "the head ended", NULL);
        exo_head_fulfil(h, &a->find_wishes, EXO_PEER_LOST, "the head ended", NULL);
        if (a->batch)
            exo_head_end_batch(h, a->batch, EXO_PEER_LOST, "the head ended", NULL);
    }
    for (struct postponed *p = h->postponed, *next_p; p; p = next_p) {
        next_p = p->next;
        exo_reply(&p->caller, EXO_PEER_LOST, "the head ended", NULL);
        exo_head_free_postponed(h, p);
    }
    for (struct beginning *b; (b = h->beginnings);) {
        h->beginnings = b->next;
        exo_free(b);
    }
    exo_head_fulfil(h, &h->log_wishes, EXO_PEER_LOST, "the head ended", NULL);
    exo_head_fulfil(h, &h->end_wishes, EXO_PEER_LOST, "the head ended", NULL);
    exo_directory_release(&h->directory);
    exo_durable_close(&h->durable);
    for (size_t i = 0; i < LOG_LINES; i++)
        exo_free(h->lines[i]);
}

static exo_status
head_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    struct head *h = self;
    exo_status st = EXO_OK;
    memcpy(&h->env, args->data, sizeof h->env);
    h->directory.accounts.quotas = h->env.quotas;
    h->runtime = exo_call_runtime(call);
    h->self = exo_call_self(call);
    h->began = exo_head_date();
    /* Greater than those of any earlier head, whose actors may be there: so a key is one actor's, whatever is kept in files. */
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (getrandom(&h->salt, sizeof h->salt, 0) != (ssize_t)sizeof h->salt)
        return exo_fail(err, EXO_IO, "the kernel gives no random numbers: %s", strerror(errno));
    h->next_key = ((uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / 1000000) << 20;
    if (h->env.state_path) {
        st = exo_durable_open(&h->durable, h->env.state_path, err);
        if (st == EXO_OK)
            st = exo_durable_each(h->durable, "actors", exo_head_recall_actor, h, err);
        if (st == EXO_OK)
            st = exo_durable_each(h->durable, "jobs", exo_head_recall_job, h, err);
    }
    if (st != EXO_OK) {
        head_stop(h);
        return st;
    }
    h->has_past = h->directory.actors || h->directory.jobs;
    exo_head_trim(h);
    h->first_key = h->next_key;
    h->grace_ends = exo_head_now(h) + GRACE;
    exo_head_want_tick(h, exo_head_now(h));
    return EXO_OK;
}

exo_status
exo_head_default_state(const char *cluster, char *out, size_t size, exo_err *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if ((!state || state[0] != '/') && (!home || home[0] != '/'))
        return exo_fail(err, EXO_NOT_FOUND,
                        "neither XDG_STATE_HOME nor HOME is set: say where the head's state is (--state)");
    int n = state && state[0] == '/' ? snprintf(out, size, "%s/exogym/%s.db", state, cluster)
                                     : snprintf(out, size, "%s/.local/state/exogym/%s.db", home, cluster);
    if (n < 0 || (size_t)n >= size)
        return exo_fail(err, EXO_INVAL, "the path of the head's state is too long");
    for (char *slash = strchr(out + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool made = mkdir(out, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made)
            return exo_fail(err, EXO_IO, "%s: %s", out, strerror(errno));
    }
    return EXO_OK;
}

static const exo_lane_class lanes[] = {{.name = "main", .capacity = 65536}};

/* What each method does, and as which event it is recorded if it notes what it is about. */
static const struct {
    exo_method method;
    exo_audit_event event;
} served[] = {
    {{.name = "register", .run = head_register}, EXO_AUDIT_NODE},
    {{.name = "gone", .run = head_gone}, EXO_AUDIT_NODE},
    {{.name = "spawn", .run = exo_head_spawn}, EXO_AUDIT_SPAWN},
    {{.name = "started", .run = exo_head_started}, EXO_AUDIT_EVENTS},
    {{.name = "find", .run = head_find}, EXO_AUDIT_EVENTS},
    {{.name = "claim", .run = head_claim}, EXO_AUDIT_SPAWN},
    {{.name = "node", .run = head_node}, EXO_AUDIT_EVENTS},
    {{.name = "died", .run = exo_head_died}, EXO_AUDIT_EVENTS},
    {{.name = "epitaph", .run = head_epitaph}, EXO_AUDIT_NODE},
    {{.name = "list", .run = exo_head_list}, EXO_AUDIT_EVENTS},
    {{.name = "why", .run = exo_head_why}, EXO_AUDIT_EVENTS},
    {{.name = "log", .run = exo_head_log}, EXO_AUDIT_EVENTS},
    {{.name = "logs", .run = exo_head_logs}, EXO_AUDIT_EVENTS},
    {{.name = "tick", .run = head_tick}, EXO_AUDIT_EVENTS},
    {{.name = "end", .run = head_end}, EXO_AUDIT_STOP},
    {{.name = "give_up", .run = exo_head_give_up}, EXO_AUDIT_KILL},
    {{.name = "report", .run = exo_head_report}, EXO_AUDIT_EVENTS},
    {{.name = "begin", .run = exo_head_begin_more}, EXO_AUDIT_EVENTS},
};

static exo_status
serve(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    const char *method = exo_call_method(call);
    size_t i = 0;
    while (i + 1 < sizeof served / sizeof *served && strcmp(served[i].method.name, method) != 0)
        i++;
    return exo_head_serve(call, self, served[i].event, &served[i].method, args, reply, err);
}

static const exo_method methods[] = {
    {.name = "register", .run = serve}, {.name = "gone", .run = serve},   {.name = "spawn", .run = serve},
    {.name = "started", .run = serve},  {.name = "find", .run = serve},   {.name = "claim", .run = serve},
    {.name = "node", .run = serve},     {.name = "died", .run = serve},   {.name = "epitaph", .run = serve},
    {.name = "list", .run = serve},     {.name = "why", .run = serve},    {.name = "log", .run = serve},
    {.name = "logs", .run = serve},     {.name = "tick", .run = serve},   {.name = "end", .run = serve},
    {.name = "give_up", .run = serve},  {.name = "report", .run = serve}, {.name = "begin", .run = serve},
};

const exo_actor_class exo_head_class = {
    .name = "head",
    .state_size = sizeof(struct head),
    .start = head_start,
    .stop = head_stop,
    .lanes = lanes,
    .num_lanes = sizeof lanes / sizeof lanes[0],
    .methods = methods,
    .num_methods = sizeof methods / sizeof methods[0],
};
