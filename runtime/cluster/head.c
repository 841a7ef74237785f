/* The head: see head.h. Everything in struct head belongs to its lane. Read next: place.c (who gets an actor), durable.c (its file). */
#include "head.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <uthash.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "directory.h"
#include "durable.h"
#include "hooks.h"
#include "messages.h"
#include "place.h"
#include "process.h"

#define SPAWN_TIMEOUT (60 * EXO_SECOND) /* of a worker that makes an actor                        */
#define GRACE         (10 * EXO_SECOND) /* for nodes to come back to a head that was restarted     */
#define MIN_BACKOFF   (10 * EXO_MS)     /* before the second of lives that are short, whatever the rule says */
#define MAX_BACKOFF   (30 * EXO_SECOND)
#define LONG_LIFE     (10 * EXO_SECOND) /* after which earlier deaths make nobody wait any more        */
#define NAME_TAKEN    (5 * EXO_SECOND)  /* for an earlier life to end where the next one begins         */
#define END_TIMEOUT   (10 * EXO_SECOND) /* of workers that are told to end                         */

enum {
    LOG_LINES = 4096,
    REMEMBERED = 10000 /* dead actors */
};

struct head {
    exo_head_env env;
    exo_runtime *runtime;
    exo_ref self;
    exo_directory directory;
    exo_durable *durable;
    uint64_t next_key, first_key; /* smaller ones are those of earlier heads */
    exo_time grace_ends;          /* 0: it is over */
    bool has_past;                /* there was a head before it, whose workers may come back */
    struct postponed *postponed;
    int64_t began;
    char *lines[LOG_LINES]; /* a ring: line n is at n % LOG_LINES */
    uint64_t num_lines;
    struct exo_wish *log_wishes; /* those that wait for more */
    exo_time ends_at;            /* 0: it is not told to end */
    struct exo_wish *end_wishes;
};

static exo_time
now(const struct head *h)
{
    return exo_now(exo_runtime_clock(h->runtime));
}

/* For people only: nothing is decided by it. */
static int64_t
wall_clock(void)
{
    return (int64_t)time(NULL);
}

static void
want_tick(struct head *h, exo_time at)
{
    if (at < atomic_load(h->env.due)) {
        atomic_store(h->env.due, at);
        h->env.wake(h->env.context);
    }
}

static exo_status
reply_with(exo_payload *reply, const ProtobufCMessage *message, exo_err *err)
{
    exo_status st = exo_message_pack(reply, message);
    return st == EXO_OK ? st : exo_fail(err, st, "the head has no memory for a reply");
}

/* --- Replies that come later --------------------------------------------------------------------------------------------------- */

static exo_status
wish(exo_call_context *call, struct exo_wish **list, exo_err *err)
{
    struct exo_wish *w = exo_calloc(1, sizeof *w);
    if (!w)
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a call");
    if (!(w->future = exo_call_defer(call))) {
        exo_free(w);
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a call");
    }
    w->next = *list;
    *list = w;
    return EXO_OK;
}

static void
fulfil(struct exo_wish **list, exo_status status, const char *reason, const ProtobufCMessage *message)
{
    for (struct exo_wish *w = *list, *next; w; w = next) {
        exo_payload reply = {0};
        next = w->next;
        exo_status st = status;
        if (st == EXO_OK && message)
            st = exo_message_pack(&reply, message);
        exo_future_complete(w->future, st, reason, &reply);
        exo_future_drop(&w->future);
        exo_free(w);
    }
    *list = NULL;
}

/* --- What is kept ---------------------------------------------------------------------------------------------------------------- */

static void
describe_actor(const exo_entry *a, Exo__Cluster__Actor *out)
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

static void
keep_actor(struct head *h, const exo_entry *a)
{
    Exo__Cluster__Actor info;
    exo_payload packed = {0}, spec = {0};
    exo_err err = {0};
    if (!h->durable || (!a->spec->name[0] && !a->spec->detached))
        return; /* an anonymous actor of a job cannot be asked for, and ends with its job */
    describe_actor(a, &info);
    if (exo_message_pack(&packed, &info.base) == EXO_OK && exo_message_pack(&spec, &a->spec->base) == EXO_OK) {
        const exo_durable_row row = {.table = "actors",
                                     .key = a->key,
                                     .name = a->spec->name,
                                     .state = exo_entry_state_text(a->state),
                                     .detail = a->cause ? a->cause : a->spec->class_name,
                                     .info = packed.data,
                                     .info_size = packed.size,
                                     .spec = spec.data,
                                     .spec_size = spec.size};
        if (exo_durable_put(h->durable, &row, &err) != EXO_OK)
            EXO_LOG(ERROR, HEAD, "%s", err.text);
    }
    exo_payload_release(&packed);
    exo_payload_release(&spec);
}

static void
keep_job(struct head *h, const exo_job_entry *j)
{
    Exo__Cluster__Job info;
    exo_payload packed = {0};
    exo_err err = {0};
    if (!h->durable)
        return;
    exo_job_describe(j, &info);
    if (exo_message_pack(&packed, &info.base) != EXO_OK)
        return;
    const exo_durable_row row = {.table = "jobs",
                                 .key = j->key,
                                 .name = j->name,
                                 .state = j->state,
                                 .detail = j->cause,
                                 .info = packed.data,
                                 .info_size = packed.size};
    if (exo_durable_put(h->durable, &row, &err) != EXO_OK)
        EXO_LOG(ERROR, HEAD, "%s", err.text);
    exo_payload_release(&packed);
}

static void
set_state(struct head *h, exo_entry *a, exo_entry_state state)
{
    a->state = state;
    a->since = wall_clock();
    keep_actor(h, a);
}

/* --- Making actors ---------------------------------------------------------------------------------------------------------------- */

/* What comes back of a worker, for the head's lane. */
struct outcome {
    exo_runtime *runtime;
    exo_ref head;
    uint64_t key, incarnation, node;
    exo_future *future; /* held */
};

struct outcome_args {
    uint64_t key, incarnation, id, node;
    int status;
    char reason[EXO_ERR_TEXT];
    char idempotent[512]; /* names, each with a 0; those that have room */
    size_t idempotent_size;
};

static void
worker_answered(void *context, uint64_t tag, exo_future *future)
{
    struct outcome *o = context;
    struct outcome_args args = {.key = o->key, .incarnation = o->incarnation, .node = o->node};
    exo_payload reply = {0}, payload = {0};
    exo_err err = {0};
    (void)tag;
    args.status = (int)exo_future_take(future, &reply, &err);
    snprintf(args.reason, sizeof args.reason, "%s", err.text);
    if (args.status == EXO_OK && reply.size >= sizeof args.id) {
        const char *names = (const char *)reply.data + sizeof args.id;
        memcpy(&args.id, reply.data, sizeof args.id);
        args.idempotent_size = reply.size - sizeof args.id;
        if (args.idempotent_size > sizeof args.idempotent || (args.idempotent_size && names[args.idempotent_size - 1]))
            args.idempotent_size = 0;
        memcpy(args.idempotent, names, args.idempotent_size);
    }
    exo_payload_release(&reply);
    if (exo_payload_copy(&payload, &args, sizeof args) == EXO_OK)
        exo_send(o->runtime, o->head, "started", payload, INT64_MAX, NULL);
    exo_future_drop(&o->future);
    exo_free(o);
}

static const exo_future_hook worker_hook = {.done = worker_answered};

/* Asks the node's worker to make the actor; its answer becomes a call of `started`. */
static exo_status
ask_worker(struct head *h, exo_entry *a, exo_err *err)
{
    exo_ref worker;
    exo_payload args = {0};
    struct outcome *o = exo_calloc(1, sizeof *o);
    exo_status st = o ? h->env.worker_of(h->env.context, a->node->id, &worker, err) : EXO_NOMEM;
    a->spec->key = a->key;
    a->spec->incarnation = a->incarnation;
    if (st == EXO_OK)
        st = exo_message_pack(&args, &a->spec->base);
    if (st == EXO_OK) {
        *o = (struct outcome){
            .runtime = h->runtime, .head = h->self, .key = a->key, .incarnation = a->incarnation, .node = a->node->id};
        st = exo_call(h->runtime, worker, "spawn", args, exo_deadline(exo_runtime_clock(h->runtime), SPAWN_TIMEOUT),
                      &o->future, err);
    }
    if (st != EXO_OK) {
        exo_free(o);
        return st;
    }
    exo_future *future = exo_future_hold(o->future);
    exo_future_set_hook(future, &worker_hook, o, 0);
    exo_future_drop(&future);
    return EXO_OK;
}

static void entry_died(struct head *h, exo_entry *a, const char *cause, bool failure);

/* Has a node end a life of an actor. If the node is away, it is told when it registers again. */
static void
end_at(struct head *h, uint64_t node, struct exo_head_kill *kill, const char *cause)
{
    exo_ref worker;
    exo_payload args = {0};
    snprintf(kill->cause, sizeof kill->cause, "%s", cause);
    if (h->env.worker_of(h->env.context, node, &worker, NULL) == EXO_OK &&
        exo_payload_copy(&args, kill, sizeof *kill) == EXO_OK)
        exo_send(h->runtime, worker, "kill", args, INT64_MAX, NULL);
}

static void
kill_at(struct head *h, uint64_t node, uint64_t id, const char *cause, bool clean)
{
    struct exo_head_kill kill = {.id = id, .clean = clean};
    end_at(h, node, &kill, cause);
}

/* Begins a life of an actor that has a place. */
static void
begin_life(struct head *h, exo_entry *a)
{
    exo_err err = {0};
    a->incarnation++;
    a->id = 0;
    a->alive_since = 0;
    a->died_early = false;
    set_state(h, a, EXO_ENTRY_STARTING);
    if (ask_worker(h, a, &err) != EXO_OK)
        entry_died(h, a, err.text, true);
}

/* Finds a place for all of them or none. */
static exo_status
place_all(struct head *h, exo_entry *const *all, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t placed = 0;
    while (st == EXO_OK && placed < count) {
        st = exo_directory_place(&h->directory, all[placed], err);
        placed += st == EXO_OK;
    }
    while (st != EXO_OK && placed > 0)
        exo_entry_unplace(all[--placed]);
    return st;
}

/* NaN is refused, too: it would spoil every sum that it is in. */
static exo_status
check_resources(Exo__Cluster__Resource *const *list, size_t count, exo_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!list[i]->name[0])
            return exo_fail(err, EXO_INVAL, "a resource has no name: %g of what?", list[i]->amount);
        if (!(list[i]->amount >= 0 && list[i]->amount <= 1e18))
            return exo_fail(err, EXO_INVAL, "there cannot be %g of the resource '%.64s'", list[i]->amount,
                            list[i]->name);
    }
    return EXO_OK;
}

static const char *
title_of(const Exo__Cluster__Spawn *spec)
{
    return spec->name[0] ? spec->name : spec->class_name;
}

/* A group has one rule. */
static exo_status
check_group(struct head *h, const Exo__Cluster__Spawn *spec, exo_err *err)
{
    static const char *const rules[] = {"one_for_one", "all_for_one", "rest_for_one"};
    const size_t count = sizeof rules / sizeof rules[0];
    if (!spec->group[0])
        return EXO_OK;
    if (spec->group_rule >= count)
        return exo_fail(err, EXO_INVAL, "there is no group rule %u", spec->group_rule);
    const exo_entry *other = exo_directory_member(&h->directory, spec->space, spec->group);
    if (!other || other->spec->group_rule == spec->group_rule)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "the group '%.80s' is %s, as '%.80s' of it says: '%.80s' cannot be %s", spec->group,
                    rules[other->spec->group_rule % count], title_of(other->spec), title_of(spec),
                    rules[spec->group_rule]);
}

static exo_status
check_spec(const Exo__Cluster__Spawn *spec, exo_err *err)
{
    if (strlen(spec->name) >= EXO_NAME || strlen(spec->space) >= EXO_NAME)
        return exo_fail(err, EXO_INVAL, "a name or namespace is longer than %d characters: '%.40s...'", EXO_NAME - 1,
                        spec->name);
    return check_resources(spec->resources, spec->n_resources, err);
}

/* An entry for a spec that is copied; a dead one of the same name makes room. key 0: a new one. */
static exo_status
new_entry(struct head *h, uint64_t key, const Exo__Cluster__Spawn *spec, exo_entry **out, exo_err *err)
{
    exo_status st = check_spec(spec, err);
    if (st != EXO_OK)
        return st;
    exo_directory_trim(&h->directory, REMEMBERED); /* here, where nobody goes through the table or holds a dead entry */
    exo_entry *old = spec->name[0] ? exo_directory_by_name(&h->directory, spec->space, spec->name) : NULL;
    if (old && old->state != EXO_ENTRY_DEAD)
        return exo_fail(err, EXO_EXISTS, "there is an actor '%s' in the namespace '%s' already, on %s", spec->name,
                        spec->space, old->node ? old->node->name : "no node for now");
    uint64_t incarnation = old ? old->incarnation : 0; /* the name's lives are counted on */
    if (old) {
        if (h->durable)
            exo_durable_remove(h->durable, "actors", old->key, NULL);
        exo_directory_remove(&h->directory, old);
    }
    exo_entry *a = exo_directory_add(&h->directory, key ? key : h->next_key, spec);
    if (!a)
        return exo_fail(err, EXO_NOMEM, "the head has no memory for an actor");
    h->next_key += key == 0;
    a->incarnation = incarnation;
    *out = a;
    return EXO_OK;
}

static void
discard(struct head *h, exo_entry *a)
{
    exo_entry_unplace(a);
    if (h->durable)
        exo_durable_remove(h->durable, "actors", a->key, NULL);
    exo_directory_remove(&h->directory, a);
}

static exo_status
reply_actor(const exo_entry *a, exo_payload *reply, exo_err *err)
{
    Exo__Cluster__Actor info, *list[] = {&info};
    Exo__Cluster__SpawnReply message = EXO__CLUSTER__SPAWN_REPLY__INIT;
    describe_actor(a, &info);
    message.actors = list;
    message.n_actors = 1;
    return reply_with(reply, &message.base, err);
}

static exo_status
begin_batch(exo_call_context *call, exo_entry *const *all, size_t count, exo_err *err)
{
    exo_batch *b = exo_calloc(1, sizeof *b + count * sizeof b->keys[0]);
    if (!b || !(b->future = exo_call_defer(call))) {
        exo_free(b);
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a group");
    }
    b->count = b->left = count;
    for (size_t i = 0; i < count; i++) {
        b->keys[i] = all[i]->key;
        all[i]->batch = b;
    }
    return EXO_OK;
}

static void
end_batch(struct head *h, exo_batch *b, exo_status status, const char *reason, exo_payload *reply)
{
    for (size_t i = 0; i < b->count; i++) {
        exo_entry *a = exo_directory_by_key(&h->directory, b->keys[i]);
        if (a && a->batch == b)
            a->batch = NULL;
    }
    exo_reply(&b->future, status, reason, reply);
    exo_free(b);
}

/* One of them does not live: none does. */
static void
fail_batch(struct head *h, exo_batch *b, exo_status status, const char *reason)
{
    for (size_t i = 0; i < b->count; i++) {
        exo_entry *a = exo_directory_by_key(&h->directory, b->keys[i]);
        if (!a || a->batch != b)
            continue;
        a->batch = NULL;
        if (a->state == EXO_ENTRY_ALIVE && a->node)
            kill_at(h, a->node->id, a->id, "another one of its group did not start", true);
        fulfil(&a->find_wishes, EXO_NOT_FOUND, reason, NULL);
        exo_directory_unindex(&h->directory, a);
        exo_entry_unplace(a);
        exo_entry_set_cause(a, reason);
        set_state(h, a, EXO_ENTRY_DEAD); /* one that is starting is ended when we hear that it lives */
    }
    exo_reply(&b->future, status, reason, NULL);
    exo_free(b);
}

/* All of them live: their places, in the order in which they were asked for. */
static void
complete_batch(struct head *h, exo_batch *b)
{
    exo_payload reply = {0};
    Exo__Cluster__SpawnReply message = EXO__CLUSTER__SPAWN_REPLY__INIT;
    Exo__Cluster__Actor *infos = exo_calloc(b->count, sizeof *infos);
    Exo__Cluster__Actor **list = exo_calloc(b->count, sizeof *list);
    exo_status st = infos && list ? EXO_OK : EXO_NOMEM;
    for (size_t i = 0; st == EXO_OK && i < b->count; i++) {
        const exo_entry *a = exo_directory_by_key(&h->directory, b->keys[i]);
        if (a)
            describe_actor(a, list[i] = &infos[i]);
        else
            st = EXO_PEER_LOST; /* it died while the others started */
    }
    message.actors = list;
    message.n_actors = b->count;
    if (st == EXO_OK)
        st = exo_message_pack(&reply, &message.base);
    exo_free(infos);
    exo_free(list);
    end_batch(h, b, st, st == EXO_PEER_LOST ? "one of the group died while others started" : NULL, &reply);
}

static exo_status
spawn_all(struct head *h, exo_call_context *call, const Exo__Cluster__Spawn *spec, exo_payload *reply, exo_err *err)
{
    size_t count = 1 + spec->n_together, made = 0;
    if (h->ends_at)
        return exo_fail(err, EXO_CLOSED, "the cluster is being stopped");
    const exo_job_entry *job = exo_directory_job(&h->directory, spec->job, 0);
    if (spec->job[0] && !spec->detached && (!job || strcmp(job->state, "running") != 0))
        return exo_fail(err, EXO_NOT_FOUND, "there is no job '%s' that runs", spec->job);
    exo_entry *old =
        spec->get_if_exists && spec->name[0] ? exo_directory_by_name(&h->directory, spec->space, spec->name) : NULL;
    if (old && old->state == EXO_ENTRY_ALIVE)
        return reply_actor(old, reply, err);
    if (old && old->state != EXO_ENTRY_DEAD)
        return wish(call, &old->spawn_wishes, err);
    exo_entry **all = exo_calloc(count, sizeof *all);
    exo_status st = all ? EXO_OK : exo_fail(err, EXO_NOMEM, "the head has no memory for a group");
    for (; st == EXO_OK && made < count; made += st == EXO_OK) {
        const Exo__Cluster__Spawn *one = made == 0 ? spec : spec->together[made - 1];
        st = check_group(h, one, err);
        if (st == EXO_OK)
            st = new_entry(h, 0, one, &all[made], err);
    }
    if (st == EXO_OK)
        st = place_all(h, all, count, err);
    if (st == EXO_OK)
        st = count > 1 ? begin_batch(call, all, count, err) : wish(call, &all[0]->spawn_wishes, err);
    for (size_t i = 0; st != EXO_OK && i < made; i++)
        discard(h, all[i]);
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        all[i]->first_life = true;
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        if (all[i]->state != EXO_ENTRY_DEAD) /* if one cannot even be asked for, none is */
            begin_life(h, all[i]);
    exo_free(all);
    return st;
}

/* Spawning that finds no place while workers may still come back to a head that was restarted: then it is asked for again. */
struct postponed {
    exo_future *caller, *again; /* held */
    exo_payload args;
    struct postponed *next;
};

static void
free_postponed(struct postponed *p)
{
    exo_future_drop(&p->caller);
    exo_future_drop(&p->again);
    exo_payload_release(&p->args);
    exo_free(p);
}

static exo_status
postpone(struct head *h, exo_call_context *call, const exo_payload *args, exo_err *err)
{
    struct postponed *p = exo_calloc(1, sizeof *p);
    exo_status st = p ? exo_payload_copy(&p->args, args->data, args->size) : EXO_NOMEM;
    if (st == EXO_OK && !(p->caller = exo_call_defer(call)))
        st = EXO_NOMEM;
    if (st != EXO_OK) {
        if (p)
            free_postponed(p);
        return exo_fail(err, st, "the head has no memory for a call");
    }
    p->next = h->postponed;
    h->postponed = p;
    return EXO_OK;
}

static void
asked_again(void *context, uint64_t tag, exo_future *future)
{
    struct postponed *p = context;
    exo_payload reply = {0};
    exo_err err = {0};
    (void)tag;
    exo_status st = exo_future_take(future, &reply, &err);
    exo_reply(&p->caller, st, err.text, &reply);
    free_postponed(p);
}

static const exo_future_hook again_hook = {.done = asked_again};

/* There is another worker, or none will come any more. */
static void
ask_again(struct head *h)
{
    struct postponed *next, *p = h->postponed;
    h->postponed = NULL;
    for (; p; p = next) {
        exo_err err = {0};
        exo_payload args = p->args;
        next = p->next;
        p->args = (exo_payload){0};
        exo_status st = exo_call(h->runtime, h->self, "spawn", args, exo_future_deadline(p->caller), &p->again, &err);
        if (st != EXO_OK) {
            exo_reply(&p->caller, st, err.text, NULL);
            free_postponed(p);
            continue;
        }
        exo_future *again = exo_future_hold(p->again);
        exo_future_set_hook(again, &again_hook, p, 0);
        exo_future_drop(&again);
    }
}

static exo_status
head_spawn(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    Exo__Cluster__Spawn *spec = EXO_UNPACK(Exo__Cluster__Spawn, exo__cluster__spawn, args);
    if (!spec)
        return exo_fail(err, EXO_INVAL, "spawn: the arguments cannot be read");
    exo_status st = spawn_all(h, call, spec, reply, err);
    EXO_RELEASE(spec);
    if ((st == EXO_FULL || st == EXO_NOT_FOUND) && h->has_past && h->grace_ends)
        return postpone(h, call, args, err);
    return st;
}

/* Answers those who wait for it. */
static void
tell_alive(exo_entry *a)
{
    Exo__Cluster__Actor info, *list[] = {&info};
    Exo__Cluster__SpawnReply message = EXO__CLUSTER__SPAWN_REPLY__INIT;
    describe_actor(a, &info);
    message.actors = list;
    message.n_actors = 1;
    fulfil(&a->spawn_wishes, EXO_OK, NULL, &message.base);
    fulfil(&a->find_wishes, EXO_OK, NULL, &info.base);
}

/* It lives: who waits for it is told. */
static void
announce(struct head *h, exo_entry *a)
{
    a->first_life = false;
    a->alive_since = now(h);
    a->name_taken_since = 0;
    exo_directory_index(&h->directory, a);
    set_state(h, a, EXO_ENTRY_ALIVE);
    tell_alive(a);
    if (a->batch && --a->batch->left == 0)
        complete_batch(h, a->batch);
    if (a->died_early) {
        a->died_early = false;
        entry_died(h, a, a->cause, a->failed);
    }
}

static void
schedule(struct head *h, exo_entry *a, exo_time wait)
{
    a->restart_at = now(h) + wait;
    set_state(h, a, EXO_ENTRY_RESTARTING);
    want_tick(h, a->restart_at);
}

/* The node says that there is an actor of that name: an earlier life, which we had it end, but what makes and what ends actors do not wait
 * for each other there. So this life has not been, and is tried again, for a while. */
static bool
try_again(struct head *h, exo_entry *a)
{
    a->name_taken_since = a->name_taken_since ? a->name_taken_since : now(h);
    exo_time passed = now(h) - a->name_taken_since;
    if (passed >= NAME_TAKEN)
        return false;
    a->incarnation--;
    exo_entry_unplace(a);
    schedule(h, a, passed < MIN_BACKOFF ? MIN_BACKOFF : passed);
    return true;
}

static exo_status
head_started(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    struct outcome_args outcome, *o = &outcome;
    (void)call;
    (void)reply;
    if (args->size != sizeof outcome)
        return exo_fail(err, EXO_INVAL, "started: the arguments cannot be read");
    memcpy(&outcome, args->data, sizeof outcome);
    outcome.reason[sizeof outcome.reason - 1] = 0;
    if (o->idempotent_size > sizeof o->idempotent ||
        (o->idempotent_size > 0 && o->idempotent[o->idempotent_size - 1] != 0))
        o->idempotent_size = 0;
    exo_entry *a = exo_directory_by_key(&h->directory, o->key);
    bool same = a && a->incarnation == o->incarnation;
    if (!same || a->state != EXO_ENTRY_STARTING) {
        /* It was killed, its node lost, or its job or group ended meanwhile; or its node registered again, with it. */
        if (o->status == EXO_OK && !(same && a->state == EXO_ENTRY_ALIVE && a->id == o->id))
            kill_at(h, o->node, o->id, "it is not wanted any more", true);
        return EXO_OK;
    }
    if (o->status == EXO_TIMEOUT) { /* should it have started all the same */
        struct exo_head_kill kill = {.key = o->key, .incarnation = o->incarnation};
        end_at(h, o->node, &kill, "it took too long to start");
    }
    if (o->status != EXO_OK && a->batch) {
        fail_batch(h, a->batch, (exo_status)o->status, o->reason);
        return EXO_OK;
    }
    if (o->status != EXO_OK && a->first_life) { /* who asked for it hears of it; it never lived */
        fulfil(&a->spawn_wishes, (exo_status)o->status, o->reason, NULL);
        fulfil(&a->find_wishes, EXO_NOT_FOUND, o->reason, NULL);
        discard(h, a);
        return EXO_OK;
    }
    if (o->status == EXO_EXISTS && try_again(h, a))
        return EXO_OK;
    if (o->status != EXO_OK) {
        entry_died(h, a, o->reason, true);
        return EXO_OK;
    }
    a->id = o->id;
    memcpy(a->idempotent, o->idempotent, o->idempotent_size);
    a->idempotent_size = o->idempotent_size;
    announce(h, a);
    return EXO_OK;
}

/* --- Death and restart -------------------------------------------------------------------------------------------------------------- */

/* Before its next life. The first one is made at once unless the rule says otherwise. */
static exo_time
backoff_of(const exo_entry *a)
{
    exo_time wait = a->spec->restart->backoff > 0 ? a->spec->restart->backoff : 0;
    for (uint64_t i = 1; i < a->num_quick && wait < MAX_BACKOFF; i++)
        wait = 2 * wait > MIN_BACKOFF ? 2 * wait : MIN_BACKOFF;
    return wait < MAX_BACKOFF ? wait : MAX_BACKOFF;
}

/* Whether the rule gives it another life; the time until then in *wait. */
static bool
may_restart(struct head *h, exo_entry *a, bool failure, exo_time *wait)
{
    const Exo__Cluster__RestartRule *rule = a->spec->restart;
    if (h->ends_at || !rule || rule->when == EXO_RESTART_NEVER || (rule->when == EXO_RESTART_ON_FAILURE && !failure))
        return false;
    exo_time at = now(h);
    a->num_quick = a->alive_since && at - a->alive_since >= LONG_LIFE ? 1 : a->num_quick + 1;
    if (rule->within > 0 && a->num_deaths > 0 && at - a->first_death > rule->within)
        a->num_deaths = 0;
    if (a->num_deaths == 0)
        a->first_death = at;
    a->num_deaths++;
    if (rule->max > 0 && a->num_deaths > rule->max)
        return false;
    *wait = backoff_of(a);
    return true;
}

/* The others of its group that its rule restarts with it. */
static void
restart_group(struct head *h, const exo_entry *failed, exo_time wait)
{
    char cause[160];
    exo_entry *a, *next;
    snprintf(cause, sizeof cause, "restarted with '%.80s' of its group", failed->spec->name);
    HASH_ITER (by_key, h->directory.actors, a, next) {
        bool mine = a != failed && strcmp(a->spec->group, failed->spec->group) == 0 &&
                    strcmp(a->spec->space, failed->spec->space) == 0;
        if (!mine || a->state != EXO_ENTRY_ALIVE ||
            (failed->spec->group_rule == EXO_REST_FOR_ONE && a->key < failed->key))
            continue;
        exo_directory_unindex(&h->directory, a); /* its death is no news */
        kill_at(h, a->node->id, a->id, cause, false);
        exo_entry_set_cause(a, cause);
        exo_entry_unplace(a);
        schedule(h, a, wait);
    }
}

static void
entry_died(struct head *h, exo_entry *a, const char *cause, bool failure)
{
    exo_time wait = 0;
    exo_directory_unindex(&h->directory, a);
    exo_entry_set_cause(a, cause);
    exo_entry_set_waits(a, NULL);
    a->failed = failure;
    a->name_taken_since = 0;
    a->lost_with = a->node && !a->node->alive ? a->node->id : 0;
    exo_entry_unplace(a);
    if (a->batch && a->first_life && a->state == EXO_ENTRY_STARTING) {
        fail_batch(h, a->batch, EXO_PEER_LOST, cause);
        return;
    }
    bool again = may_restart(h, a, failure, &wait);
    if (again && failure && a->spec->group[0] && a->spec->group_rule != EXO_ONE_FOR_ONE)
        restart_group(h, a, wait);
    if (again) {
        schedule(h, a, wait);
        return;
    }
    set_state(h, a, EXO_ENTRY_DEAD);
    fulfil(&a->spawn_wishes, EXO_PEER_LOST, a->cause, NULL);
    fulfil(&a->find_wishes, EXO_NOT_FOUND, a->cause, NULL);
    if (!a->spec->name[0])
        exo_directory_remove(&h->directory, a);
}

static exo_status
head_died(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)call;
    (void)reply;
    Exo__Cluster__Name *m = EXO_UNPACK(Exo__Cluster__Name, exo__cluster__name, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "died: the arguments cannot be read");
    exo_entry *a =
        m->key ? exo_directory_by_key(&h->directory, m->key) : exo_directory_by_id(&h->directory, m->node, m->id);
    bool same = a && a->node && a->node->id == m->node && (!m->key || a->incarnation == m->incarnation);
    if (same && a->state == EXO_ENTRY_ALIVE && a->id == m->id) {
        entry_died(h, a, m->cause, m->failure);
    } else if (same && a->state == EXO_ENTRY_STARTING && m->key) { /* before we heard that it lives */
        exo_entry_set_cause(a, m->cause);
        a->failed = m->failure;
        a->died_early = true;
    }
    EXO_RELEASE(m);
    return EXO_OK;
}

/* An actor of a job that ended. `driver` is gone, and what lived there is dead. */
static void
end_with_job(struct head *h, exo_entry *a, uint64_t driver, const char *cause)
{
    char reason[200];
    if (a->spec->detached || a->state == EXO_ENTRY_DEAD)
        return;
    snprintf(reason, sizeof reason, "its job ended: %.150s", cause);
    if (a->state == EXO_ENTRY_ALIVE && a->node && a->node->id != driver)
        kill_at(h, a->node->id, a->id, reason, true);
    if (a->spec->restart)
        a->spec->restart->when = EXO_RESTART_NEVER;
    entry_died(h, a, reason, false);
}

static void
finish_job(struct head *h, exo_job_entry *job, const char *state, const char *cause)
{
    exo_entry *a, *next;
    job->state = state;
    job->ended = wall_clock();
    exo_free(job->cause);
    job->cause = exo_strdup(cause);
    keep_job(h, job);
    HASH_ITER (by_key, h->directory.actors, a, next)
        if (strcmp(a->spec->job, job->name) == 0)
            end_with_job(h, a, job->driver, cause);
}

/* The job of a driver that went: what it made and did not detach goes, too. */
static void
end_job(struct head *h, const exo_node *driver, const char *state, const char *cause)
{
    exo_job_entry *job = exo_directory_job(&h->directory, driver->job, 0);
    if (job && job->driver == driver->id)
        finish_job(h, job, state, cause);
}

/* Those whose drivers went while there was no head, and the actors of those that nobody remembers. */
static void
end_lost_jobs(struct head *h)
{
    static const char cause[] = "its driver did not come back to a head that was restarted";
    exo_job_entry *job, *next_job;
    exo_entry *a, *next;
    HASH_ITER (hh, h->directory.jobs, job, next_job)
        if (strcmp(job->state, "running") == 0 && !job->driver)
            finish_job(h, job, "lost", cause);
    HASH_ITER (by_key, h->directory.actors, a, next) {
        job = a->spec->job[0] ? exo_directory_job(&h->directory, a->spec->job, 0) : NULL;
        if (a->spec->job[0] && (!job || strcmp(job->state, "running") != 0))
            end_with_job(h, a, 0, cause);
    }
}

/* Told to end, and all workers have left, or had the time to. */
static void
maybe_end(struct head *h)
{
    if (!h->ends_at)
        return;
    for (const exo_node *n = h->directory.nodes; n && now(h) < h->ends_at; n = n->hh.next)
        if (n->alive && !n->is_driver)
            return;
    fulfil(&h->end_wishes, EXO_OK, NULL, NULL);
    h->env.end(h->env.context);
}

static exo_status
head_end(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)args;
    (void)reply;
    exo_status st = wish(call, &h->end_wishes, err);
    if (st != EXO_OK || h->ends_at)
        return st;
    h->ends_at = now(h) + END_TIMEOUT;
    want_tick(h, h->ends_at);
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
        if (w->until > now(h)) {
            want_tick(h, w->until);
            at = &w->next;
            continue;
        }
        *at = w->next;
        exo_reply(&w->future, EXO_TIMEOUT, text, NULL);
        exo_free(w);
    }
}

static exo_status
head_tick(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    exo_entry *a, *next;
    exo_time at = now(h);
    (void)call;
    (void)args;
    (void)reply;
    (void)err;
    atomic_store(h->env.due, INT64_MAX);
    HASH_ITER (by_key, h->directory.actors, a, next)
        if (a->state == EXO_ENTRY_UNKNOWN && a->ended)
            entry_died(h, a, "its process ended while there was no head", true);
    if (h->grace_ends && at >= h->grace_ends) {
        h->grace_ends = 0;
        HASH_ITER (by_key, h->directory.actors, a, next)
            if (a->state == EXO_ENTRY_UNKNOWN)
                entry_died(h, a, "its node did not come back to a head that was restarted", true);
        end_lost_jobs(h);
        ask_again(h);
    }
    if (h->grace_ends)
        want_tick(h, h->grace_ends);
    if (h->ends_at > at)
        want_tick(h, h->ends_at);
    maybe_end(h);
    HASH_ITER (by_key, h->directory.actors, a, next) {
        exo_err reason = {0};
        if (a->state != EXO_ENTRY_RESTARTING)
            continue;
        if (a->restart_at > at) {
            want_tick(h, a->restart_at);
        } else if (exo_directory_place(&h->directory, a, &reason) == EXO_OK) {
            begin_life(h, a);
        } else { /* a node may come */
            a->restart_at = at + EXO_SECOND;
            exo_entry_set_waits(a, reason.text);
            want_tick(h, a->restart_at);
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
    exo_time deadline = exo_call_deadline(call), quarter = (deadline - now(h)) / 4;
    return deadline == INT64_MAX ? deadline : deadline - (quarter < EXO_SECOND ? quarter : EXO_SECOND);
}

/* `a`: the last one of that name; may be NULL. */
static exo_status
fail_not_there(const Exo__Cluster__Name *m, const exo_entry *a, exo_err *err)
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
    Exo__Cluster__Name *m = EXO_UNPACK(Exo__Cluster__Name, exo__cluster__name, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "find: the arguments cannot be read");
    exo_entry *a = exo_directory_by_name(&h->directory, m->space, m->name);
    if (!a || a->state == EXO_ENTRY_DEAD) {
        st = fail_not_there(m, a, err);
    } else if (a->state == EXO_ENTRY_ALIVE && !(m->id && a->id == m->id && a->node && a->node->id == m->node)) {
        Exo__Cluster__Actor info;
        describe_actor(a, &info);
        st = reply_with(reply, &info.base, err);
    } else if (m->at_once) {
        exo_entry_describe(a, text, sizeof text);
        st = exo_fail(err, EXO_TIMEOUT, "%s", text);
    } else { /* it is not alive yet, or the caller knows more of its death than we do */
        st = wish(call, &a->find_wishes, err);
        if (st == EXO_OK)
            want_tick(h, a->find_wishes->until = tell_until(h, call));
    }
    EXO_RELEASE(m);
    return st;
}

/* One that does not live just now gets no further life. */
static void
give_up(struct head *h, exo_entry *a, const char *why)
{
    char cause[EXO_ERR_TEXT], was[EXO_ERR_TEXT];
    exo_entry_describe(a, was, sizeof was);
    snprintf(cause, sizeof cause, "%.150s; before, %s", why, was);
    if (a->spec->restart)
        a->spec->restart->when = EXO_RESTART_NEVER;
    entry_died(h, a, cause, false);
}

static exo_status
head_give_up(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)call;
    Exo__Cluster__Name *m = EXO_UNPACK(Exo__Cluster__Name, exo__cluster__name, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "give_up: the arguments cannot be read");
    exo_entry *a = exo_directory_by_name(&h->directory, m->space, m->name);
    exo_status st = a && a->state != EXO_ENTRY_DEAD ? EXO_OK : fail_not_there(m, a, err);
    if (st == EXO_OK && a->state != EXO_ENTRY_ALIVE)
        give_up(h, a, m->cause);
    if (st == EXO_OK) {
        Exo__Cluster__Actor info;
        describe_actor(a, &info);
        st = reply_with(reply, &info.base, err);
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
    Exo__Cluster__NodeInfo *m = EXO_UNPACK(Exo__Cluster__NodeInfo, exo__cluster__node_info, args);
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
    return reply_with(reply, &info.base, err);
}

static exo_status
head_claim(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    exo_entry *a = NULL;
    bool claimed = false;
    (void)call;
    Exo__Cluster__Name *m = EXO_UNPACK(Exo__Cluster__Name, exo__cluster__name, args);
    exo_node *node = m ? exo_directory_node(&h->directory, m->node) : NULL;
    exo_status st = !m      ? exo_fail(err, EXO_INVAL, "claim: the arguments cannot be read")
                    : !node ? exo_fail(err, EXO_CLOSED, "this process is not registered at the head")
                            : EXO_OK;
    if (st == EXO_OK) {
        Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
        spec.name = m->name;
        spec.space = m->space;
        spec.class_name = m->class_name;
        spec.job = exo_pb_text(node->job);
        a = exo_directory_by_id(&h->directory, m->node, m->id); /* it was claimed, and the reply was lost? */
        claimed = a && a->state == EXO_ENTRY_ALIVE && strcmp(a->spec->name, m->name) == 0 &&
                  strcmp(a->spec->space, m->space) == 0;
        st = claimed ? EXO_OK : new_entry(h, 0, &spec, &a, err);
    }
    if (st == EXO_OK && !claimed) {
        a->node = node;
        a->id = m->id;
        a->incarnation++;
        exo_directory_index(&h->directory, a);
        set_state(h, a, EXO_ENTRY_ALIVE);
    }
    if (st == EXO_OK) {
        Exo__Cluster__Actor info;
        describe_actor(a, &info);
        st = reply_with(reply, &info.base, err);
    }
    EXO_RELEASE(m);
    return st;
}

/* "NAME: dead since ..., class C, life 1", and why. Returns the length. */
static size_t
tell_of_actor(const exo_entry *a, char *out, size_t size)
{
    char since[64] = "";
    time_t when = (time_t)a->since;
    struct tm broken;
    if (localtime_r(&when, &broken))
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &broken);
    size_t at = (size_t)snprintf(out, size, "%s: %s since %s, class %.300s, life %llu\n", a->spec->name,
                                 exo_entry_state_text(a->state), since, a->spec->class_name,
                                 (unsigned long long)a->incarnation);
    if (a->cause && at < size)
        at += (size_t)snprintf(out + at, size - at, "%s: %s\n",
                               a->state == EXO_ENTRY_ALIVE ? "its last life ended" : "cause", a->cause);
    if (a->waits && at < size)
        at += (size_t)snprintf(out + at, size - at, "it waits: %s\n", a->waits);
    return at < size ? at : size - 1;
}

static void
tell_of_node(const exo_node *n, char *out, size_t size)
{
    bool lost = n->cause && !n->left, ran = n->running && n->running[0], printed = n->log && n->log[0];
    snprintf(out, size, "node %s: %s%s%s\n%s%s%s%s%s", n->name, exo_node_state(n), lost ? ": " : "",
             lost ? n->cause : "", ran ? "it ran: " : "", ran ? n->running : "", ran ? "\n" : "",
             printed ? "its last lines:\n" : "", printed ? n->log : "");
}

static exo_status
head_why(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    char text[8192] = "";
    (void)call;
    Exo__Cluster__Name *m = EXO_UNPACK(Exo__Cluster__Name, exo__cluster__name, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "why: the arguments cannot be read");
    const exo_entry *a = exo_directory_by_name(&h->directory, m->space, m->name);
    const exo_node *n = !a             ? exo_directory_node_by_name(&h->directory, m->name)
                        : a->lost_with ? exo_directory_node(&h->directory, a->lost_with)
                        : a->node      ? a->node
                                       : exo_directory_node(&h->directory, a->last_node);
    size_t at = a ? tell_of_actor(a, text, sizeof text) : 0;
    if (n)
        tell_of_node(n, text + at, sizeof text - at);
    exo_status st =
        a || n ? exo_payload_copy(reply, text, strlen(text) + 1)
               : exo_fail(err, EXO_NOT_FOUND, "nothing is known of '%s' in the namespace '%s'", m->name, m->space);
    EXO_RELEASE(m);
    return st;
}

/* --- Nodes --------------------------------------------------------------------------------------------------------------------------- */

/* The entry of an actor that an earlier head made, which kept no file or not of this one. NULL: it must not live. */
static exo_entry *
remember_again(struct head *h, const exo_node *node, const Exo__Cluster__Actor *info)
{
    exo_err err = {0};
    exo_entry *a = NULL;
    const exo_job_entry *job = exo_directory_job(&h->directory, info->job, 0);
    if (!info->spec || info->key >= h->first_key || (job && strcmp(job->state, "running") != 0 && !info->detached))
        return NULL; /* this head made it, and has forgotten it since */
    if (new_entry(h, info->key, info->spec, &a, &err) != EXO_OK) {
        EXO_LOG(WARN, HEAD, "node=%s an actor is not known any more: %s", node->name, err.text);
        return NULL;
    }
    a->state = EXO_ENTRY_UNKNOWN;
    a->incarnation = info->incarnation;
    a->last_node = node->id;
    return a;
}

/* An actor that lives at a node which (again) registers: known from before, or made while the head was away. False: it is dead for us,
 * and there may be another one in its place. */
static bool
adopt(struct head *h, exo_node *node, const Exo__Cluster__Actor *info)
{
    exo_entry *a = exo_directory_by_key(&h->directory, info->key);
    if (!a && !(a = remember_again(h, node, info)))
        return false;
    bool same = a->incarnation == info->incarnation;
    if (a->state == EXO_ENTRY_ALIVE && same && a->node == node && a->id == info->id) {
        a->listed = true;
        return true;
    }
    bool starting = a->state == EXO_ENTRY_STARTING && same && a->node == node;
    if (!starting && !(a->state == EXO_ENTRY_UNKNOWN && info->incarnation >= a->incarnation))
        return false;
    exo_entry_take_place(a, node);
    a->incarnation = info->incarnation;
    a->id = info->id;
    a->listed = true;
    announce(h, a);
    return true;
}

/* An actor that died when the head could not be told. */
static void
bury(struct head *h, const exo_node *node, const Exo__Cluster__Actor *info)
{
    exo_entry *a = exo_directory_by_key(&h->directory, info->key);
    bool there = a && (a->node == node || (a->state == EXO_ENTRY_UNKNOWN && a->last_node == node->id));
    if (there && a->incarnation == info->incarnation && a->state != EXO_ENTRY_DEAD && a->state != EXO_ENTRY_RESTARTING)
        entry_died(h, a, info->cause, info->failed);
}

/* What a node that registers tells of its actors. Those that it does not tell of are not there. *ended (n_actors of it) gets the
 * references of those that it must end; their number is returned. */
static size_t
compare_actors(struct head *h, exo_node *node, const Exo__Cluster__Register *m, uint64_t *ended)
{
    exo_entry *a, *next;
    size_t count = 0;
    for (size_t i = 0; i < m->n_actors; i++) {
        if (strcmp(m->actors[i]->state, "dead") == 0)
            bury(h, node, m->actors[i]);
        else if (!adopt(h, node, m->actors[i]))
            ended[count++] = m->actors[i]->id;
    }
    HASH_ITER (by_key, h->directory.actors, a, next) {
        bool listed = a->listed;
        a->listed = false;
        if (!listed && ((a->state == EXO_ENTRY_ALIVE && a->node == node) ||
                        (a->state == EXO_ENTRY_UNKNOWN && a->last_node == node->id)))
            entry_died(h, a, "it ended while its node could not reach the head", true);
    }
    return count;
}

static exo_status
head_register(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)call;
    Exo__Cluster__Register *m = EXO_UNPACK(Exo__Cluster__Register, exo__cluster__register, args);
    if (!m || !m->node) {
        EXO_RELEASE(m);
        return exo_fail(err, EXO_INVAL, "register: the arguments cannot be read");
    }
    uint64_t *ended = NULL;
    size_t num_ended = 0;
    exo_status st = check_resources(m->resources, m->n_resources, err);
    exo_node *node = st == EXO_OK ? exo_directory_add_node(&h->directory, m) : NULL;
    if (st == EXO_OK && !node) {
        st = exo_fail(err, EXO_NOMEM, "the head has no memory for a node");
    } else if (st == EXO_OK) {
        node->since = wall_clock();
        ended = exo_calloc(m->n_actors + 1, sizeof *ended);
        num_ended = ended ? compare_actors(h, node, m, ended) : 0;
        if (strcmp(m->kind, "driver") == 0 && m->job[0]) {
            exo_job_entry *job = exo_directory_job(&h->directory, m->job, h->next_key++);
            if (job && (job->driver != node->id || job->ended)) {
                job->driver = node->id;
                job->state = "running";
                job->ended = 0;
                job->began = job->began ? job->began : wall_clock();
                keep_job(h, job);
            }
        }
        Exo__Cluster__RegisterReply message = EXO__CLUSTER__REGISTER_REPLY__INIT;
        message.cluster = exo_pb_text(h->env.cluster);
        message.name = exo_pb_text(node->name);
        message.ended = ended;
        message.n_ended = num_ended;
        st = reply_with(reply, &message.base, err);
        want_tick(h, now(h)); /* there may be room now for what waits */
        ask_again(h);
    }
    exo_free(ended);
    EXO_RELEASE(m);
    return st;
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
    node->since = wall_clock();
    exo_free(node->cause);
    node->cause = exo_strdup(cause);
    if (node->is_driver)
        end_job(h, node, clean ? "done" : "lost", clean ? "its driver left" : cause);
    snprintf(reason, sizeof reason, "its node '%s' %s: %.300s", node->name, clean ? "left" : "is lost", cause);
    HASH_ITER (by_key, h->directory.actors, a, next)
        if (a->node == node)
            entry_died(h, a, reason, !clean);
    want_tick(h, now(h));
    maybe_end(h);
}

static exo_status
head_gone(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)call;
    (void)reply;
    Exo__Cluster__NodeInfo *m = EXO_UNPACK(Exo__Cluster__NodeInfo, exo__cluster__node_info, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "lost: the arguments cannot be read");
    exo_node *node = exo_directory_node(&h->directory, m->node);
    if (node)
        node_gone(h, node, m->cause, strcmp(m->state, "left") == 0);
    EXO_RELEASE(m);
    return EXO_OK;
}

static exo_status
head_epitaph(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    char cause[EXO_ERR_TEXT];
    exo_entry *a, *next;
    (void)call;
    (void)reply;
    Exo__Cluster__Epitaph *m = EXO_UNPACK(Exo__Cluster__Epitaph, exo__cluster__epitaph, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "epitaph: the arguments cannot be read");
    exo_node *node = exo_directory_node(&h->directory, m->node);
    snprintf(cause, sizeof cause, "its node '%s' %.200s%s%.200s", node ? node->name : m->name, m->cause,
             m->running[0] ? ", in " : "", m->running);
    HASH_ITER (by_key, h->directory.actors, a, next)
        if (a->state == EXO_ENTRY_UNKNOWN && a->last_node == m->node)
            entry_died(h, a, cause, true); /* it ended when there was no head */
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
                keep_actor(h, a);
            }
        }
    }
    EXO_RELEASE(m);
    return EXO_OK;
}

/* --- Looking ------------------------------------------------------------------------------------------------------------------------- */

static exo_status
head_list(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    (void)call;
    (void)args;
    char boot[EXO_BOOT_ID];
    Exo__Cluster__Listing listing = EXO__CLUSTER__LISTING__INIT;
    listing.cluster = exo_pb_text(h->env.cluster);
    listing.version = exo_pb_text(EXO_VERSION);
    listing.began = h->began;
    listing.pid = (uint32_t)getpid();
    listing.host = boot;
    exo_boot_id(boot);
    exo_status st = exo_directory_list(&h->directory, &listing, describe_actor);
    if (st == EXO_OK)
        st = reply_with(reply, &listing.base, err);
    exo_directory_list_release(&listing);
    return st;
}

static exo_status
reply_lines(struct head *h, uint64_t after, exo_payload *reply)
{
    uint64_t first = h->num_lines > LOG_LINES ? h->num_lines - LOG_LINES : 0;
    size_t size = sizeof(uint64_t) + 1;
    first = after > first ? after : first;
    for (uint64_t n = first; n < h->num_lines; n++)
        size += strlen(h->lines[n % LOG_LINES]) + 1;
    char *text = exo_calloc(1, size);
    if (!text)
        return EXO_NOMEM;
    memcpy(text, &h->num_lines, sizeof h->num_lines);
    size_t at = sizeof h->num_lines;
    for (uint64_t n = first; n < h->num_lines; n++)
        at += (size_t)snprintf(text + at, size - at, "%s\n", h->lines[n % LOG_LINES]);
    *reply = (exo_payload){.data = text, .size = at, .release = exo_free};
    return EXO_OK;
}

static exo_status
head_log(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    char full[1024];
    (void)call;
    (void)reply;
    Exo__Cluster__LogLines *m = EXO_UNPACK(Exo__Cluster__LogLines, exo__cluster__log_lines, args);
    if (!m)
        return exo_fail(err, EXO_INVAL, "log: the arguments cannot be read");
    for (char *line = m->text; *line;) {
        size_t length = strcspn(line, "\n");
        snprintf(full, sizeof full, "%s: %.*s", m->node_name, (int)(length < 900 ? length : 900), line);
        char *copy = exo_strdup(full);
        if (copy) {
            char **slot = &h->lines[h->num_lines++ % LOG_LINES];
            exo_free(*slot);
            *slot = copy;
        }
        line += length + (line[length] == '\n');
    }
    EXO_RELEASE(m);
    for (struct exo_wish *w = h->log_wishes, *next; w; w = next) {
        exo_payload lines = {0};
        next = w->next;
        exo_status st = reply_lines(h, w->after, &lines);
        exo_future_complete(w->future, st, NULL, &lines);
        exo_future_drop(&w->future);
        exo_free(w);
    }
    h->log_wishes = NULL;
    return EXO_OK;
}

/* args: none, for all lines there are; or the number of lines that are known already, UINT64_MAX: only new ones. The reply: the next such number, then text. */
static exo_status
head_logs(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct head *h = self;
    uint64_t after = 0;
    if (args->size == 0)
        return reply_lines(h, 0, reply);
    if (args->size != sizeof after)
        return exo_fail(err, EXO_INVAL, "logs: expected the number of a line");
    memcpy(&after, args->data, sizeof after);
    if (after < h->num_lines)
        return reply_lines(h, after, reply);
    exo_status st = wish(call, &h->log_wishes, err);
    if (st == EXO_OK)
        h->log_wishes->after = after == UINT64_MAX ? h->num_lines : after;
    return st;
}

/* --- Life ---------------------------------------------------------------------------------------------------------------------------- */

/* Has the process where it lived ended? One of this host has a socket as long as it lives. */
static bool
has_ended(const Exo__Cluster__Actor *was)
{
    char host[EXO_BOOT_ID], path[EXO_PLACE_PATH];
    size_t length = strcspn(was->endpoint, " ");
    exo_boot_id(host);
    if (strcmp(was->host, host) != 0 || strncmp(was->endpoint, "ipc://", 6) != 0 || length - 6 >= sizeof path)
        return false;
    snprintf(path, sizeof path, "%.*s", (int)(length - 6), was->endpoint + 6);
    return !exo_place_has_owner(path);
}

static void
recall_actor(void *context, const exo_durable_row *row)
{
    struct head *h = context;
    const exo_payload info = {.data = (void *)(uintptr_t)row->info, .size = row->info_size};
    const exo_payload packed = {.data = (void *)(uintptr_t)row->spec, .size = row->spec_size};
    Exo__Cluster__Actor *was = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, &info);
    Exo__Cluster__Spawn *spec = EXO_UNPACK(Exo__Cluster__Spawn, exo__cluster__spawn, &packed);
    exo_entry *a = was && spec ? exo_directory_add(&h->directory, row->key, spec) : NULL;
    if (a) {
        a->incarnation = was->incarnation;
        a->since = was->since;
        a->last_node = was->node;
        if (was->cause[0])
            exo_entry_set_cause(a, was->cause);
        a->state = strcmp(was->state, "dead") == 0         ? EXO_ENTRY_DEAD
                   : strcmp(was->state, "restarting") == 0 ? EXO_ENTRY_RESTARTING
                                                           : EXO_ENTRY_UNKNOWN;
        a->ended = a->state == EXO_ENTRY_UNKNOWN && has_ended(was);
    }
    if (row->key >= h->next_key)
        h->next_key = row->key + 1;
    EXO_RELEASE(was);
    EXO_RELEASE(spec);
}

static void
recall_job(void *context, const exo_durable_row *row)
{
    struct head *h = context;
    const exo_payload info = {.data = (void *)(uintptr_t)row->info, .size = row->info_size};
    Exo__Cluster__Job *was = EXO_UNPACK(Exo__Cluster__Job, exo__cluster__job, &info);
    exo_job_entry *job = was ? exo_directory_job(&h->directory, was->name, row->key) : NULL;
    if (job) {
        job->state = strcmp(was->state, "running") == 0 ? "running" : strcmp(was->state, "done") == 0 ? "done" : "lost";
        job->began = was->began;
        job->ended = was->ended;
        job->cause = was->cause[0] ? exo_strdup(was->cause) : NULL;
    }
    if (row->key >= h->next_key)
        h->next_key = row->key + 1;
    EXO_RELEASE(was);
}

static void
head_stop(void *self)
{
    struct head *h = self;
    exo_entry *a, *next;
    HASH_ITER (by_key, h->directory.actors, a, next) {
        fulfil(&a->spawn_wishes, EXO_PEER_LOST, "the head ended", NULL);
        fulfil(&a->find_wishes, EXO_PEER_LOST, "the head ended", NULL);
        if (a->batch)
            end_batch(h, a->batch, EXO_PEER_LOST, "the head ended", NULL);
    }
    for (struct postponed *p = h->postponed, *next_p; p; p = next_p) {
        next_p = p->next;
        exo_reply(&p->caller, EXO_PEER_LOST, "the head ended", NULL);
        free_postponed(p);
    }
    fulfil(&h->log_wishes, EXO_PEER_LOST, "the head ended", NULL);
    fulfil(&h->end_wishes, EXO_PEER_LOST, "the head ended", NULL);
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
    h->runtime = exo_call_runtime(call);
    h->self = exo_call_self(call);
    h->began = wall_clock();
    /* Greater than those of any earlier head, whose actors may be there: so a key is one actor's, whatever is kept in files. */
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    h->next_key = ((uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / 1000000) << 20;
    if (h->env.state_path) {
        st = exo_durable_open(&h->durable, h->env.state_path, err);
        if (st == EXO_OK)
            st = exo_durable_each(h->durable, "actors", recall_actor, h, err);
        if (st == EXO_OK)
            st = exo_durable_each(h->durable, "jobs", recall_job, h, err);
    }
    if (st != EXO_OK) {
        head_stop(h);
        return st;
    }
    h->has_past = h->directory.actors || h->directory.jobs;
    h->first_key = h->next_key;
    h->grace_ends = now(h) + GRACE;
    want_tick(h, now(h));
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

static const exo_method methods[] = {
    {.name = "register", .run = head_register}, {.name = "gone", .run = head_gone},
    {.name = "spawn", .run = head_spawn},       {.name = "started", .run = head_started},
    {.name = "find", .run = head_find},         {.name = "claim", .run = head_claim},
    {.name = "node", .run = head_node},         {.name = "died", .run = head_died},
    {.name = "epitaph", .run = head_epitaph},   {.name = "list", .run = head_list},
    {.name = "why", .run = head_why},           {.name = "log", .run = head_log},
    {.name = "logs", .run = head_logs},         {.name = "tick", .run = head_tick},
    {.name = "end", .run = head_end},           {.name = "give_up", .run = head_give_up},
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
