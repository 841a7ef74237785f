/* The head: see head.h. Time, the end, and calls that ask by name. Read next: head_nodes.c,
 * head_spawn.c, head_lives.c. */
#include "cluster/head_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <uthash.h>

#include <exogym/memory.h>

#include "cluster/durable.h"

#define GRACE       (10 * EXO_SECOND) /* for nodes to come back to a restarted head */
#define END_TIMEOUT (10 * EXO_SECOND) /* for workers that are told to end */

exo_time
exo_head_now(const struct head *h)
{
    return exo_now(exo_runtime_clock(h->runtime));
}

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

/* --- Deferred replies ------------------------------------------------------------------------- */

exo_time
exo_head_answer_by(const struct head *h, const exo_call_context *call)
{
    exo_time deadline = exo_call_deadline(call), quarter = (deadline - exo_head_now(h)) / 4;
    return deadline == INT64_MAX ? deadline
                                 : deadline - (quarter < EXO_SECOND ? quarter : EXO_SECOND);
}

exo_status
exo_head_wish(struct head *h, exo_call_context *call, struct exo_wish **list, exo_quota quota,
              exo_err *err)
{
    uint64_t peer = exo_head_peer(call);
    exo_status st =
        quota < EXO_QUOTAS ? exo_account_take(&h->directory.accounts, peer, quota, 1, err) : EXO_OK;
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

void
exo_head_free_wish(struct head *h, struct exo_wish *w)
{
    if (w->quota < EXO_QUOTAS)
        exo_account_give(&h->directory.accounts, w->peer, w->quota, 1);
    exo_future_drop(&w->future);
    exo_free(w);
}

void
exo_head_forget_wishes(struct head *h, struct exo_wish **list, uint64_t peer)
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
    out->gpus = a->spec->gpus;
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

/* --- Time, and the end ------------------------------------------------------------------------ */

exo_status
exo_head_reply_actor(const exo_entry *a, exo_payload *reply, exo_err *err)
{
    Exo__Cluster__Actor info;
    exo_head_describe(a, &info);
    return exo_head_reply(reply, &info.base, err);
}

void
exo_head_maybe_end(struct head *h)
{
    if (!h->ends_at)
        return;
    for (const exo_cluster_node *n = h->directory.nodes; n && exo_head_now(h) < h->ends_at;
         n = n->hh.next)
        if (n->alive && !n->is_driver)
            return;
    exo_head_fulfil(h, &h->end_wishes, EXO_OK, NULL, NULL);
    h->env.end(h->env.context);
}

static exo_status
head_end(struct head *h, exo_call_context *call, const void *args, exo_payload *reply, exo_err *err)
{
    (void)args;
    (void)reply;
    exo_head_note(h, h->env.cluster, "the cluster ends");
    exo_status st = exo_head_wish(h, call, &h->end_wishes, EXO_QUOTA_LOGS, err);
    if (st != EXO_OK || h->ends_at)
        return st;
    h->ends_at = exo_head_now(h) + END_TIMEOUT;
    exo_head_want_tick(h, h->ends_at);
    for (const exo_cluster_node *n = h->directory.nodes; n; n = n->hh.next) {
        exo_ref worker;
        if (n->alive && !n->is_driver &&
            h->env.worker_of(h->env.context, n->id, &worker, NULL) == EXO_OK)
            exo_send(h->runtime, worker, "end", (exo_payload){0}, INT64_MAX, NULL);
    }
    exo_head_maybe_end(h);
    return EXO_OK;
}

/* Answers searches whose deadline is close: the actor does not live yet. */
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

/* An actor of an earlier head has not come back. */
static void
die_unknown(struct head *h, exo_entry *a, const struct work *w)
{
    if (a->state == EXO_ENTRY_UNKNOWN)
        exo_head_entry_died(h, a, w->cause, true);
}

/* Ends actors of an earlier head: those whose processes have ended, or, with `all`, every one that
 * has not come back. */
static void
end_unknown(struct head *h, bool all)
{
    struct work *w = exo_head_new_work(HASH_CNT(by_key, h->directory.actors), die_unknown);
    if (!w) { /* without memory for the work: later */
        exo_head_want_tick(h, exo_head_now(h) + EXO_SECOND);
        return;
    }
    snprintf(w->cause, sizeof w->cause, "%s",
             all ? "its node did not come back to a head that was restarted or cut off"
                 : "its process ended while there was no head");
    for (const exo_entry *a = h->directory.actors; a; a = a->by_key.next)
        if (a->state == EXO_ENTRY_UNKNOWN && (all || a->ended))
            exo_head_add_work(w, a);
    exo_head_do_work(h, &w);
}

void
exo_head_begin_grace(struct head *h)
{
    h->is_cut_off = false;
    h->has_past = true;
    h->grace_ends = exo_head_now(h) + GRACE;
    exo_head_want_tick(h, h->grace_ends);
}

bool
exo_head_hears_any(const struct head *h)
{
    const exo_cluster_node *n = h->directory.nodes;
    while (n && !(n->alive && (!h->env.is_heard || h->env.is_heard(h->env.context, n->id))))
        n = n->hh.next;
    return n != NULL;
}

static void
end_grace(struct head *h)
{
    if (h->is_cut_off && exo_head_hears_any(h))
        exo_head_begin_grace(h);
    if (h->is_cut_off) {
        exo_head_want_tick(h, exo_head_now(h) + EXO_SECOND);
        return;
    }
    end_unknown(h, false);
    if (exo_head_now(h) < h->grace_ends) {
        exo_head_want_tick(h, h->grace_ends);
        return;
    }
    h->grace_ends = 0;
    end_unknown(h, true);
    exo_head_end_lost_jobs(h);
    exo_head_ask_again(h);
}

/* Begins next lives that are due, SLICE at most; the others follow at the next tick. Returns the
 * time of the next restart that waits; INT64_MAX: there is none. */
static exo_time
restart_due(struct head *h, exo_time at)
{
    exo_entry *a, *next;
    exo_time soon = INT64_MAX;
    size_t tried = 0;
    exo_durable_begin(h->durable);
    for (a = h->directory.restless; a; a = next) {
        exo_err reason = {0};
        next = a->next_restless;
        if (a->state != EXO_ENTRY_RESTARTING)
            continue;
        if (a->restart_at <= at && tried++ < SLICE) {
            if (exo_directory_place(&h->directory, a, at, &reason) == EXO_OK) {
                exo_head_begin_life(h, a);
                continue;
            }
            a->restart_at = at + EXO_SECOND; /* a node with room may come */
            exo_entry_set_waits(a, reason.text);
        }
        soon = a->restart_at < soon ? a->restart_at : soon;
    }
    exo_head_commit(h);
    return soon;
}

/* Handles the actors that time may change. The more there are, the longer is the pause between two
 * rounds: 1 us for each. */
static void
look_around(struct head *h)
{
    exo_entry *a, *next;
    exo_time at = exo_head_now(h), gap = (exo_time)h->directory.num_restless * EXO_US,
             soon = restart_due(h, at);
    if (soon < INT64_MAX)
        exo_head_want_tick(h, soon > at + gap ? soon : at + gap);
    for (a = h->directory.restless; a; a = next) {
        next = a->next_restless;
        if (a->find_wishes)
            tell_not_yet(h, a);
        if (a->state != EXO_ENTRY_RESTARTING && !a->find_wishes && !a->spawn_wishes)
            exo_directory_calm(&h->directory, a);
    }
}

static exo_status
head_tick(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
          exo_err *err)
{
    exo_time at = exo_head_now(h);
    (void)args;
    (void)reply;
    exo_status st = exo_head_check_own(call, "tick", err);
    if (st != EXO_OK)
        return st;
    atomic_store(h->env.due, INT64_MAX);
    if (h->grace_ends)
        end_grace(h);
    exo_head_refuse_postponed(h);
    if (h->ends_at > at)
        exo_head_want_tick(h, h->ends_at);
    exo_head_mend_file(h);
    exo_head_maybe_end(h);
    look_around(h);
    return EXO_OK;
}

/* --- Names ------------------------------------------------------------------------------------ */

exo_status
exo_head_fail_not_there(const Exo__Cluster__Name *m, const exo_entry *a, exo_err *err)
{
    return exo_fail(err, EXO_NOT_FOUND, "there is no actor '%s' in the namespace '%s'%s%s", m->name,
                    m->space, a ? "; the last one died: " : "", a && a->cause ? a->cause : "");
}

static exo_status
head_find(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
          exo_err *err)
{
    char text[EXO_ERR_TEXT];
    exo_status st = EXO_OK;
    const Exo__Cluster__Name *m = args;
    exo_entry *a = exo_head_by_name(h, m->space, m->name);
    exo_head_note_actor(h, m->space, m->name, NULL);
    st = exo_head_check_space(h, call, m->space, a, "find", err);
    if (st != EXO_OK)
        return st;
    if (!a || a->state == EXO_ENTRY_DEAD) {
        st = exo_head_fail_not_there(m, a, err);
    } else if (a->state == EXO_ENTRY_ALIVE &&
               !(m->id && a->id == m->id && a->node && a->node->id == m->node)) {
        st = exo_head_reply_actor(a, reply, err);
    } else if (m->at_once) {
        exo_entry_describe(a, text, sizeof text);
        st = exo_fail(err, EXO_TIMEOUT, "%s", text);
    } else { /* not alive yet, or the caller knows of its death before the head */
        st = exo_head_wish(h, call, &a->find_wishes, EXO_QUOTA_FINDS, err);
        if (st == EXO_OK) {
            exo_directory_stir(&h->directory, a);
            exo_head_want_tick(h, a->find_wishes->until = exo_head_answer_by(h, call));
        }
    }
    return st;
}

/* Describes a process's address in the form of an actor's place. */
static exo_status
head_node(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
          exo_err *err)
{
    (void)call;
    const exo_cluster_node *node =
        exo_directory_node(&h->directory, ((const Exo__Cluster__NodeInfo *)args)->node);
    /* not PEER_LOST, which would be the loss of the head: callers repeat such calls */
    if (!node || !node->alive)
        return exo_fail(err, EXO_NOT_FOUND, "the process %s%s", node ? node->name : "is not known",
                        node ? " is gone" : "");
    Exo__Cluster__Actor info = EXO__CLUSTER__ACTOR__INIT;
    info.node = node->id;
    info.id = 1; /* any id but 0; it is never called */
    info.node_name = exo_pb_text(node->name);
    info.endpoint = exo_pb_text(node->endpoint);
    info.key_text = exo_pb_text(node->key);
    return exo_head_reply(reply, &info.base, err);
}

static exo_status
head_claim(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
           exo_err *err)
{
    exo_entry *a = NULL;
    bool claimed = false;
    const Exo__Cluster__Name *m = args;
    exo_cluster_node *node = exo_directory_node(&h->directory, m->node);
    exo_head_note_actor(h, m->space, m->name, "a name is claimed");
    exo_status st =
        !m->id || !m->name[0] ? exo_fail(err, EXO_INVAL, "claim: the arguments cannot be read")
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
        /* a repeated claim, whose first reply was lost? */
        a = exo_head_by_id(h, m->node, m->id);
        claimed = a && a->state == EXO_ENTRY_ALIVE && strcmp(a->spec->name, m->name) == 0 &&
                  strcmp(a->spec->space, m->space) == 0;
        st = claimed ? EXO_OK : exo_head_new_entry(h, 0, exo_head_holder(h, call), &spec, &a, err);
    }
    if (st == EXO_OK && !claimed) {
        exo_entry_set_node(a, node);
        a->id = m->id;
        a->incarnation++;
        exo_directory_index(&h->directory, a);
        exo_head_set_state(h, a, EXO_ENTRY_ALIVE);
    }
    return st == EXO_OK ? exo_head_reply_actor(a, reply, err) : st;
}

/* --- Life ------------------------------------------------------------------------------------- */

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
    exo_head_free_works(h);
    exo_head_close_answers(h);
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
    /* Keys begin after those of any earlier head, whose actors may still live, unless the host's clock
     * was set back; then they do not come so far. So a key belongs to one actor, whether a state file
     * exists or not. */
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (getrandom(&h->salt, sizeof h->salt, 0) != (ssize_t)sizeof h->salt)
        return exo_fail(err, EXO_IO, "the kernel gives no random numbers: %s", strerror(errno));
    h->next_key = ((uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / 1000000) << 20;
    st = exo_head_open_answers(h, err);
    if (st == EXO_OK && h->env.state_path) {
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
    exo_head_trim(h, SIZE_MAX);
    exo_head_forget_starts(h);
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
        return exo_fail(
            err, EXO_NOT_FOUND,
            "neither XDG_STATE_HOME nor HOME is set: say where the head's state is (--state)");
    int n = state && state[0] == '/'
                ? snprintf(out, size, "%s/exogym/%s.db", state, cluster)
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

static const struct exo_head_method served[] = {
    {"register", &exo__cluster__register__descriptor, exo_head_register, EXO_AUDIT_NODE},
    {"gone", &exo__cluster__node_info__descriptor, exo_head_gone, EXO_AUDIT_NODE},
    {"spawn", NULL, exo_head_spawn, EXO_AUDIT_SPAWN},
    {"started", NULL, exo_head_started, EXO_AUDIT_EVENTS},
    {"find", &exo__cluster__name__descriptor, head_find, EXO_AUDIT_EVENTS},
    {"claim", &exo__cluster__name__descriptor, head_claim, EXO_AUDIT_SPAWN},
    {"node", &exo__cluster__node_info__descriptor, head_node, EXO_AUDIT_EVENTS},
    {"died", &exo__cluster__name__descriptor, exo_head_died, EXO_AUDIT_EVENTS},
    {"epitaph", &exo__cluster__epitaph__descriptor, exo_head_epitaph, EXO_AUDIT_NODE},
    {"list", &exo__cluster__name__descriptor, exo_head_list, EXO_AUDIT_EVENTS},
    {"why", &exo__cluster__name__descriptor, exo_head_why, EXO_AUDIT_EVENTS},
    {"log", &exo__cluster__log_lines__descriptor, exo_head_log, EXO_AUDIT_EVENTS},
    {"logs", NULL, exo_head_logs, EXO_AUDIT_EVENTS},
    {"tick", NULL, head_tick, EXO_AUDIT_EVENTS},
    {"end", NULL, head_end, EXO_AUDIT_STOP},
    {"give_up", &exo__cluster__name__descriptor, exo_head_give_up, EXO_AUDIT_KILL},
    {"report", &exo__cluster__report__descriptor, exo_head_report, EXO_AUDIT_EVENTS},
    {"go_on", NULL, exo_head_go_on, EXO_AUDIT_EVENTS},
    {"holds", NULL, exo_head_holds, EXO_AUDIT_EVENTS},
};

static exo_status
serve(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    size_t i = 0;
    while (i + 1 < sizeof served / sizeof *served &&
           strcmp(served[i].name, exo_call_method(call)) != 0)
        i++;
    return exo_head_serve(&served[i], self, call, args, reply, err);
}

static const exo_method methods[] = {
    {.name = "register", .run = serve}, {.name = "gone", .run = serve},
    {.name = "spawn", .run = serve},    {.name = "started", .run = serve},
    {.name = "find", .run = serve},     {.name = "claim", .run = serve},
    {.name = "node", .run = serve},     {.name = "died", .run = serve},
    {.name = "epitaph", .run = serve},  {.name = "list", .run = serve},
    {.name = "why", .run = serve},      {.name = "log", .run = serve},
    {.name = "logs", .run = serve},     {.name = "tick", .run = serve},
    {.name = "end", .run = serve},      {.name = "give_up", .run = serve},
    {.name = "report", .run = serve},   {.name = "go_on", .run = serve},
    {.name = "holds", .run = serve},
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
