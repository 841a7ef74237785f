/* How the head makes actors, one or several together, and handles the workers' replies. Read next:
 * head_answers.c, head_lives.c. */
#include "cluster/head_impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "actor/gpus.h"
#include "actor/hooks.h"
#include "base/printable.h"
#include "cluster/durable.h"

/* the time in which an earlier life of the name must end at the node */
#define NAME_TAKEN (5 * EXO_SECOND)
/* the first pause between two attempts meanwhile */
#define TRY_AGAIN (10 * EXO_MS)

enum { /* numbers of Spawn's fields (proto/cluster.proto) */
    CLASS_NAME = 1,
    NAME = 2,
    SPACE = 3,
    TOGETHER = 17
};

void
exo_head_begin_life(struct head *h, exo_entry *a)
{
    exo_err err = {0};
    a->incarnation++;
    a->id = 0;
    a->unbegun = false;
    a->alive_since = 0;
    a->died_early = false;
    exo_head_set_state(h, a, EXO_ENTRY_STARTING);
    if (exo_head_ask_worker(h, a, &err) != EXO_OK)
        exo_head_entry_died(h, a, err.text, true);
}

/* Finds places for all of them, or for none. */
static exo_status
place_all(struct head *h, exo_entry *const *all, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t placed = 0;
    while (st == EXO_OK && placed < count) {
        st = exo_directory_place(&h->directory, all[placed], exo_head_now(h), err);
        placed += st == EXO_OK;
    }
    while (st != EXO_OK && placed > 0)
        exo_entry_unplace(all[--placed]);
    return st;
}

exo_status
exo_head_check_resources(Exo__Cluster__Resource *const *list, size_t count, exo_err *err)
{
    if (count > EXO_HEAD_RESOURCES)
        return exo_fail(err, EXO_INVAL, "%zu resources: at most %d are possible", count,
                        EXO_HEAD_RESOURCES);
    for (size_t i = 0; i < count; i++) {
        if (!list[i]->name[0])
            return exo_fail(err, EXO_INVAL, "a resource has no name: %g of what?", list[i]->amount);
        if (!(list[i]->amount >= 0 && list[i]->amount <= 1e18))
            return exo_fail(err, EXO_INVAL, "there cannot be %g of the resource '%.64s'",
                            list[i]->amount, list[i]->name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(list[i]->name, list[j]->name) == 0)
                return exo_fail(err, EXO_INVAL, "the resource '%.64s' is named twice",
                                list[i]->name);
    }
    return EXO_OK;
}

/* Parts of GPUs are amounts, too, but not those of more than one. */
static exo_status
check_gpus(const Exo__Cluster__Spawn *spec, exo_err *err)
{
    for (size_t i = 0; i < spec->n_resources; i++)
        if (strcmp(spec->resources[i]->name, "gpus") == 0)
            return exo_gpus_check(spec->resources[i]->amount, err);
    return EXO_OK;
}

static const char *
title_of(const Exo__Cluster__Spawn *spec)
{
    return spec->name[0] ? spec->name : spec->class_name;
}

/* Checks the supervision group of a spec: it has room, the caller may end its members, and all have
 * the same rule. */
static exo_status
check_group(struct head *h, const exo_call_context *call, const Exo__Cluster__Spawn *spec,
            exo_err *err)
{
    static const char *const rules[] = {"one_for_one", "all_for_one", "rest_for_one"};
    const size_t count = sizeof rules / sizeof rules[0];
    if (!spec->group[0])
        return EXO_OK;
    if (spec->group_rule >= count)
        return exo_fail(err, EXO_INVAL, "there is no group rule %u", spec->group_rule);
    const exo_supervision_group *group =
        exo_directory_group(&h->directory, spec->space, spec->group);
    const exo_entry *other = group ? group->members : NULL;
    if (group && spec->group_rule != EXO_ONE_FOR_ONE && group->count >= EXO_GROUP_MEMBERS)
        return exo_fail(err, EXO_FULL,
                        "the group '%.80s' has %zu actors, and one whose actors are restarted "
                        "together has %d at most: use several groups (docs/security.md)",
                        spec->group, group->count, EXO_GROUP_MEMBERS);
    /* a new member may end others, by the group's rule */
    exo_status st = other ? exo_head_check_owner(call, other, "spawn: in its group", err) : EXO_OK;
    if (st != EXO_OK || !other || other->spec->group_rule == spec->group_rule)
        return st;
    return exo_fail(err, EXO_INVAL,
                    "the group '%.80s' is %s, as '%.80s' of it says: '%.80s' cannot be %s",
                    spec->group, rules[other->spec->group_rule % count], title_of(other->spec),
                    title_of(spec), rules[spec->group_rule]);
}

static exo_status
check_spec(const Exo__Cluster__Spawn *spec, exo_err *err)
{
    if (!spec->space[0]) /* workers would take it for "default", and the head for another one */
        return exo_fail(err, EXO_INVAL,
                        "an actor of an empty namespace: give it a name, as 'default'");
    if (strlen(spec->name) >= EXO_NAME || strlen(spec->space) >= EXO_NAME)
        return exo_fail(err, EXO_INVAL,
                        "a name or namespace is longer than %d characters: '%.40s...'",
                        EXO_NAME - 1, spec->name);
    if (strlen(spec->group) >= EXO_NAME)
        return exo_fail(err, EXO_INVAL,
                        "the name of a group is longer than %d characters: '%.40s...'",
                        EXO_NAME - 1, spec->group);
    exo_status st = exo_head_check_resources(spec->resources, spec->n_resources, err);
    return st == EXO_OK ? check_gpus(spec, err) : st;
}

exo_status
exo_head_new_entry(struct head *h, uint64_t key, uint64_t peer, const Exo__Cluster__Spawn *spec,
                   exo_entry **out, exo_err *err)
{
    exo_status st = check_spec(spec, err);
    if (st != EXO_OK)
        return st;
    exo_head_trim(h, 2); /* two for each new one, so that the number of the dead does not grow */
    exo_entry *old = spec->name[0] ? exo_head_by_name(h, spec->space, spec->name) : NULL;
    if (old && old->state != EXO_ENTRY_DEAD)
        return exo_fail(err, EXO_EXISTS,
                        "there is an actor '%s' in the namespace '%s' already, on %s", spec->name,
                        spec->space, old->node ? old->node->name : "no node for now");
    uint64_t incarnation = old ? old->incarnation : 0; /* counting of the name's lives goes on */
    if (old) {
        exo_head_forget_row(h, "actors", old->key);
        exo_directory_remove(&h->directory, old);
    }
    while (!key && exo_directory_by_key(&h->directory, h->next_key))
        h->next_key++; /* a worker claims to have had it from an earlier head */
    exo_entry *a = exo_directory_add(&h->directory, key ? key : h->next_key, spec);
    if (!a)
        return exo_fail(err, EXO_NOMEM, "the head has no memory for an actor");
    h->next_key += key == 0;
    a->incarnation = incarnation;
    st = exo_entry_take(&h->directory, a, peer, EXO_QUOTA_ACTORS, err);
    if (st == EXO_OK && spec->name[0])
        st = exo_entry_take(&h->directory, a, peer, EXO_QUOTA_NAMES, err);
    if (st != EXO_OK)
        exo_directory_remove(&h->directory, a);
    *out = st == EXO_OK ? a : NULL;
    return st;
}

static void
discard(struct head *h, exo_entry *a)
{
    exo_entry_unplace(a);
    exo_head_forget_row(h, "actors", a->key);
    exo_directory_remove(&h->directory, a);
}

static exo_status
reply_actor(const exo_entry *a, exo_payload *reply, exo_err *err)
{
    Exo__Cluster__Actor info, *list[] = {&info};
    Exo__Cluster__SpawnReply message = EXO__CLUSTER__SPAWN_REPLY__INIT;
    exo_head_describe(a, &info);
    message.actors = list;
    message.n_actors = 1;
    return exo_head_reply(reply, &message.base, err);
}

static exo_status
begin_batch(exo_call_context *call, exo_entry *const *all, size_t count, exo_err *err)
{
    exo_spawn_batch *b = exo_calloc(1, sizeof *b + count * sizeof b->keys[0]);
    if (!b || !(b->future = exo_call_defer(call))) {
        exo_free(b);
        return exo_fail(err, EXO_NOMEM, "the head has no memory for a group");
    }
    b->count = count;
    for (size_t i = 0; i < count; i++) {
        b->keys[i] = all[i]->key;
        all[i]->batch = b;
    }
    return EXO_OK;
}

void
exo_head_end_batch(struct head *h, exo_spawn_batch *b, exo_status status, const char *reason,
                   exo_payload *reply)
{
    for (size_t i = 0; i < b->count; i++) {
        exo_entry *a = exo_directory_by_key(&h->directory, b->keys[i]);
        if (a && a->batch == b)
            a->batch = NULL;
    }
    exo_reply(&b->future, status, reason, reply);
    exo_free(b);
}

void
exo_head_fail_batch(struct head *h, exo_spawn_batch *b, exo_status status, const char *reason)
{
    exo_durable_begin(h->durable);
    for (size_t i = 0; i < b->count; i++) {
        exo_entry *a = exo_directory_by_key(&h->directory, b->keys[i]);
        if (!a || a->batch != b)
            continue;
        a->batch = NULL;
        if (a->state == EXO_ENTRY_ALIVE && a->node)
            exo_head_kill_at(h, a->node->id, a->id, "another one of its group did not start", true);
        exo_head_fulfil(h, &a->spawn_wishes, status, reason, NULL);
        exo_head_fulfil(h, &a->find_wishes, EXO_NOT_FOUND, reason, NULL);
        exo_directory_unindex(&h->directory, a);
        exo_entry_unplace(a);
        exo_entry_set_cause(a, reason);
        /* one that is starting is ended when its start is reported */
        exo_head_set_state(h, a, EXO_ENTRY_DEAD);
    }
    exo_head_commit(h);
    exo_reply(&b->future, status, reason, NULL);
    exo_free(b);
}

/* All of the batch live: replies with their places, in the order of the request. */
static void
complete_batch(struct head *h, exo_spawn_batch *b)
{
    exo_payload reply = {0};
    Exo__Cluster__SpawnReply message = EXO__CLUSTER__SPAWN_REPLY__INIT;
    Exo__Cluster__Actor *infos = exo_calloc(b->count, sizeof *infos);
    Exo__Cluster__Actor **list = exo_calloc(b->count, sizeof *list);
    exo_status st = infos && list ? EXO_OK : EXO_NOMEM;
    for (size_t i = 0; st == EXO_OK && i < b->count; i++) {
        const exo_entry *a = exo_directory_by_key(&h->directory, b->keys[i]);
        assert(a && a->state == EXO_ENTRY_ALIVE && a->id);
        exo_head_describe(a, list[i] = &infos[i]);
    }
    message.actors = list;
    message.n_actors = b->count;
    if (st == EXO_OK)
        st = exo_message_pack(&reply, &message.base);
    exo_free(infos);
    exo_free(list);
    if (st == EXO_OK)
        exo_head_end_batch(h, b, EXO_OK, NULL, &reply);
    else
        exo_head_fail_batch(h, b, st, "the head has no memory for a reply");
}

static void
begin_new(struct head *h, exo_entry *a, const struct work *w)
{
    (void)w;
    if (a->unbegun && a->state == EXO_ENTRY_STARTING && a->node)
        exo_head_begin_life(h, a);
}

static void
begin_all(struct head *h, exo_entry *const *all, size_t count)
{
    struct work *w = exo_head_new_work(count, begin_new);
    for (size_t i = 0; i < count; i++)
        all[i]->unbegun = true;
    for (size_t i = 0; i < count; i++) {
        if (w)
            exo_head_add_work(w, all[i]);
        else if (all[i]->state != EXO_ENTRY_DEAD) /* without memory for slices: at once */
            exo_head_begin_life(h, all[i]);
    }
    exo_head_do_work(h, &w);
}

/* Actors that a driver makes outside its namespace belong to the job whose namespace it is, and end
 * with the job. So none of them is left when another key uses the job's name later. */
static exo_status
check_end(const exo_identity *who, const Exo__Cluster__Spawn *spec, exo_err *err)
{
    size_t length = strlen(spec->job);
    bool own = strcmp(spec->space[0] ? spec->space : "default", who->space) == 0;
    bool of_job =
        length > 0 && strncmp(spec->space, spec->job, length) == 0 && spec->space[length] == '/';
    if (own || (of_job && !spec->detached))
        return EXO_OK;
    return exo_fail(
        err, EXO_DENIED,
        "spawn: in the namespace '%.100s', %s makes actors of that job only, which end with it",
        spec->space, who->name);
}

/* A driver's actors belong to no jobs but its own. */
static exo_status
check_job(struct head *h, const exo_call_context *call, const Exo__Cluster__Spawn *spec,
          exo_err *err)
{
    const exo_identity *who = exo_call_identity(call);
    exo_status st = who && who->role == EXO_ACCESS_DRIVER ? check_end(who, spec, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    const exo_job_entry *job = exo_directory_job(&h->directory, spec->job, 0);
    const exo_cluster_node *driver = job ? exo_directory_node(&h->directory, job->driver) : NULL;
    if (!who || who->role != EXO_ACCESS_DRIVER || !spec->job[0])
        return EXO_OK;
    if (driver && driver->owner && exo_identity_is_same(driver->owner, who))
        return EXO_OK;
    return exo_fail(err, EXO_DENIED, "spawn: the job '%.100s' is not one of %s's", spec->job,
                    who->name);
}

static exo_status
spawn_all(struct head *h, exo_call_context *call, Exo__Cluster__Spawn *spec, exo_payload *reply,
          exo_err *err)
{
    size_t count = 1 + spec->n_together, made = 0;
    uint64_t peer = exo_head_holder(h, call);
    if (h->ends_at)
        return exo_fail(err, EXO_CLOSED, "the cluster is being stopped");
    const exo_job_entry *job = exo_directory_job(&h->directory, spec->job, 0);
    if (spec->job[0] && !spec->detached && (!job || strcmp(job->state, "running") != 0))
        return exo_fail(err, EXO_NOT_FOUND, "there is no job '%s' that runs", spec->job);
    /* before the reply reveals whether the actor exists */
    exo_status allowed = exo_head_check_space(h, call, spec->space, NULL, "spawn", err);
    if (allowed != EXO_OK)
        return allowed;
    exo_entry *old =
        spec->get_if_exists && spec->name[0] ? exo_head_by_name(h, spec->space, spec->name) : NULL;
    if (old && old->state == EXO_ENTRY_ALIVE)
        return reply_actor(old, reply, err);
    if (old && old->state != EXO_ENTRY_DEAD) {
        exo_directory_stir(&h->directory, old); /* so that the wish is found when its caller goes */
        return exo_head_wish(h, call, &old->spawn_wishes, EXO_QUOTA_FINDS, err);
    }
    exo_entry **all = exo_calloc(count, sizeof *all);
    exo_status st = all ? EXO_OK : exo_fail(err, EXO_NOMEM, "the head has no memory for a group");
    exo_durable_begin(h->durable);
    for (; st == EXO_OK && made < count; made += st == EXO_OK) {
        Exo__Cluster__Spawn *one = made == 0 ? spec : spec->together[made - 1];
        Exo__Cluster__Spawn own;
        one->driver = exo_head_driver_of(h, one->job);
        exo_head_own_spec(call, one, &own);
        st = exo_head_check_space(h, call, own.space, NULL, "spawn", err);
        if (st == EXO_OK)
            st = check_group(h, call, &own, err);
        if (st == EXO_OK)
            st = check_job(h, call, &own, err);
        if (st == EXO_OK)
            st = exo_head_new_entry(h, 0, peer, &own, &all[made], err);
        if (st == EXO_OK &&
            (st = exo_entry_take(&h->directory, all[made], peer, EXO_QUOTA_SPAWNS, err)) != EXO_OK)
            exo_directory_remove(&h->directory, all[made]);
    }
    exo_head_commit(h);
    if (st == EXO_OK)
        st = place_all(h, all, count, err);
    if (st == EXO_OK)
        st = count > 1 ? begin_batch(call, all, count, err)
                       : exo_head_wish(h, call, &all[0]->spawn_wishes, EXO_QUOTAS, err);
    for (size_t i = 0; st != EXO_OK && i < made; i++)
        exo_directory_remove(&h->directory, all[i]); /* they are not in the state file yet */
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        all[i]->first_life = true;
    if (st == EXO_OK)
        begin_all(h, all, count);
    exo_free(all);
    return st;
}

void
exo_head_free_postponed(struct head *h, struct postponed *p)
{
    if (p->count)
        exo_account_give(&h->directory.accounts, p->peer, EXO_QUOTA_SPAWNS, p->count);
    exo_identity_drop(&p->who);
    exo_future_drop(&p->caller);
    exo_future_drop(&p->again);
    exo_payload_release(&p->args);
    exo_free(p);
}

/* err: why there is no place for it now. */
static exo_status
postpone(struct head *h, exo_call_context *call, size_t count, const exo_payload *args,
         exo_err *err)
{
    struct postponed *p = exo_calloc(1, sizeof *p);
    exo_status st = p ? exo_payload_copy(&p->args, args->data, args->size) : EXO_NOMEM;
    if (st == EXO_OK && !(p->caller = exo_call_defer(call)))
        st = EXO_NOMEM;
    if (st == EXO_OK) {
        exo_fail(&p->refusal, err->code, "%s; workers may still come back to the head", err->text);
        p->until = exo_head_answer_by(h, call);
        p->peer = exo_head_holder(h, call);
        p->who = exo_identity_hold(exo_call_identity(call));
        st = exo_account_take(&h->directory.accounts, p->peer, EXO_QUOTA_SPAWNS, count, err);
        p->count = st == EXO_OK ? count : 0;
    }
    if (st != EXO_OK) {
        if (p)
            exo_head_free_postponed(h, p);
        return exo_fail(err, st, "the head has no memory for a call");
    }
    p->next = h->postponed;
    h->postponed = p;
    exo_head_want_tick(h, p->until);
    return EXO_OK;
}

void
exo_head_refuse_postponed(struct head *h)
{
    for (struct postponed **at = &h->postponed, *p; (p = *at);) {
        if (p->until > exo_head_now(h)) {
            exo_head_want_tick(h, p->until);
            at = &p->next;
            continue;
        }
        *at = p->next;
        exo_reply(&p->caller, p->refusal.code, p->refusal.text, NULL);
        exo_head_free_postponed(h, p);
    }
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
    exo_head_free_postponed(NULL, p);
}

static const exo_future_hook again_hook = {.done = asked_again};

/* Repeats the request in its caller's name. */
static exo_status
ask_again(struct head *h, struct postponed *p, exo_payload *args, exo_err *err)
{
    exo_account_give(&h->directory.accounts, p->peer, EXO_QUOTA_SPAWNS, p->count);
    p->count = 0;
    exo_status st = exo_future_new(&p->again, exo_runtime_clock(h->runtime),
                                   exo_future_deadline(p->caller), err);
    if (st != EXO_OK) {
        exo_payload_release(args);
        return st;
    }
    return exo_runtime_deliver(h->runtime, h->self, "spawn", args, p->who, p->again, err);
}

void
exo_head_ask_again(struct head *h)
{
    struct postponed *next, *p = h->postponed;
    h->postponed = NULL;
    for (; p; p = next) {
        exo_err err = {0};
        exo_payload args = p->args;
        next = p->next;
        p->args = (exo_payload){0};
        exo_status st = ask_again(h, p, &args, &err);
        if (st != EXO_OK) {
            exo_reply(&p->caller, st, err.text, NULL);
            exo_head_free_postponed(h, p);
            continue;
        }
        exo_future *again = exo_future_hold(p->again);
        exo_future_set_hook(again, &again_hook, p, 0);
        exo_future_drop(&again);
    }
}

/* Checks the quotas before anything is made, so that a refused request costs little. */
static exo_status
check_quotas(struct head *h, uint64_t peer, const Exo__Cluster__Spawn *spec, exo_err *err)
{
    const exo_account *account = exo_account_of(&h->directory.accounts, peer);
    const exo_quotas *quotas = h->directory.accounts.quotas;
    size_t count = 1 + spec->n_together, names = spec->name[0] != 0;
    if (!peer)
        return EXO_OK;
    for (size_t i = 0; i < spec->n_together; i++)
        names += spec->together[i]->name[0] != 0;
    exo_status st = exo_quota_check(quotas, EXO_QUOTA_SPAWNS,
                                    account ? account->held[EXO_QUOTA_SPAWNS] : 0, count, err);
    if (st == EXO_OK)
        st = exo_quota_check(quotas, EXO_QUOTA_ACTORS,
                             account ? account->held[EXO_QUOTA_ACTORS] : 0, count, err);
    if (st == EXO_OK)
        st = exo_quota_check(quotas, EXO_QUOTA_NAMES, account ? account->held[EXO_QUOTA_NAMES] : 0,
                             names, err);
    return st;
}

/* Notes a request that is not unpacked, for the audit log. */
static void
note_together(struct head *h, const exo_payload *args, size_t count)
{
    char space[EXO_NAME], name[EXO_NAME], class_name[EXO_NAME], detail[EXO_NAME + 64];
    exo_message_text(args, SPACE, space, sizeof space);
    exo_message_text(args, NAME, name, sizeof name);
    exo_message_text(args, CLASS_NAME, class_name, sizeof class_name);
    snprintf(detail, sizeof detail, "class %s, with %zu more", class_name, count - 1);
    exo_head_note_actor(h, space, name, detail);
}

/* Bounds the number of actors before unpacking, which would keep other callers waiting. */
static exo_status
check_together(struct head *h, const exo_payload *args, exo_err *err)
{
    size_t count = 1 + exo_message_count(args, TOGETHER);
    if (count <= EXO_TOGETHER)
        return EXO_OK;
    note_together(h, args, count);
    return exo_fail(
        err, EXO_FULL,
        "%zu actors are asked for together, and there may be %d: make them in several groups "
        "(docs/security.md)",
        count, EXO_TOGETHER);
}

exo_status
exo_head_spawn(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
               exo_err *err)
{
    exo_status many = check_together(h, args, err);
    if (many != EXO_OK)
        return many;
    Exo__Cluster__Spawn *spec = EXO_UNPACK_ARGS(Exo__Cluster__Spawn, exo__cluster__spawn, args);
    if (!spec)
        return exo_message_refuse_args("spawn", err);
    size_t count = 1 + spec->n_together;
    exo_head_note_spawn(h, spec);
    exo_status st = check_quotas(h, exo_head_holder(h, call), spec, err);
    bool granted = st == EXO_OK;
    if (granted)
        st = spawn_all(h, call, spec, reply, err);
    EXO_RELEASE(spec);
    if (granted && (st == EXO_FULL || st == EXO_NOT_FOUND) && h->has_past && h->grace_ends)
        return postpone(h, call, count, args, err);
    return st;
}

/* Answers the calls that wait for the actor to live. */
static void
tell_alive(struct head *h, exo_entry *a)
{
    Exo__Cluster__Actor info, *list[] = {&info};
    Exo__Cluster__SpawnReply message = EXO__CLUSTER__SPAWN_REPLY__INIT;
    exo_head_describe(a, &info);
    message.actors = list;
    message.n_actors = 1;
    exo_head_fulfil(h, &a->spawn_wishes, EXO_OK, NULL, &message.base);
    exo_head_fulfil(h, &a->find_wishes, EXO_OK, NULL, &info.base);
}

void
exo_head_announce(struct head *h, exo_entry *a)
{
    a->first_life = false;
    a->alive_since = exo_head_now(h);
    a->name_taken_since = 0;
    a->listed = true; /* its node need not list it */
    exo_directory_index(&h->directory, a);
    exo_head_set_state(h, a, EXO_ENTRY_ALIVE);
    tell_alive(h, a);
    if (a->died_early) {
        a->died_early = false;
        exo_head_entry_died(h, a, a->cause, a->failed);
    } else if (a->batch && a->batch->alive == a->batch->count) {
        complete_batch(h, a->batch);
    }
}

/* The node says that the name is taken. It is taken by an earlier life that the head has ended
 * there, or by an actor of an earlier head, which will be ended when the node registers. The node
 * does not order starts after ends, so this life does not count, and is tried again for a while. */
static bool
try_again(struct head *h, exo_entry *a)
{
    a->name_taken_since = a->name_taken_since ? a->name_taken_since : exo_head_now(h);
    exo_time passed = exo_head_now(h) - a->name_taken_since;
    if (passed >= NAME_TAKEN)
        return false;
    a->incarnation--;
    exo_entry_unplace(a);
    exo_head_schedule(h, a, passed < TRY_AGAIN ? TRY_AGAIN : passed);
    return true;
}

/* Puts the worker's name before the reason why an actor did not start there: a file that is missing
 * on one host may exist on the caller's. */
static void
name_worker(const exo_entry *a, struct exo_outcome *o)
{
    char reason[sizeof o->reason], name[80];
    if (o->status == EXO_OK || !a->node)
        return;
    exo_format_cut(reason, sizeof reason, "on %s: %s", exo_cut(name, sizeof name, a->node->name),
                   o->reason);
    memcpy(o->reason, reason, sizeof reason);
}

/* The worker's reply did not come in time, and the actor may still start. */
static void
end_late(struct head *h, const struct exo_outcome *o)
{
    struct exo_head_kill kill = {.key = o->key, .incarnation = o->incarnation};
    exo_head_end_at(h, o->node, &kill, "it took too long to start");
}

/* A life that nobody waits for: its actor was killed while it started, its node was lost, or its job
 * or group ended. One that lives was listed by its node, which registered again, and is kept. */
static void
end_unwanted(struct head *h, const struct exo_outcome *o)
{
    if (o->status == EXO_OK)
        exo_head_kill_at(h, o->node, o->id, "it is not wanted any more", true);
    else if (o->status == EXO_TIMEOUT)
        end_late(h, o);
}

exo_status
exo_head_started(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
                 exo_err *err)
{
    const exo_payload *payload = args;
    struct exo_outcome outcome, *o = &outcome;
    (void)reply;
    exo_status own = exo_head_check_own(call, "started", err);
    if (own != EXO_OK)
        return own;
    if (payload->size != sizeof outcome)
        return exo_fail(err, EXO_INVAL, "started: the arguments cannot be read");
    memcpy(&outcome, payload->data, sizeof outcome);
    if (o->status == EXO_OK && !o->id)
        return exo_fail(err, EXO_INVAL, "started: it names no actor");
    outcome.reason[sizeof outcome.reason - 1] = 0;
    if (o->idempotent_size > sizeof o->idempotent ||
        (o->idempotent_size > 0 && o->idempotent[o->idempotent_size - 1] != 0))
        o->idempotent_size = 0;
    exo_entry *a = exo_head_by_key(h, o->key);
    bool same = a && a->incarnation == o->incarnation;
    if (!same || a->state != EXO_ENTRY_STARTING) {
        if (!same || a->state != EXO_ENTRY_ALIVE || (o->status == EXO_OK && a->id != o->id))
            end_unwanted(h, o);
        return EXO_OK;
    }
    if (o->status == EXO_TIMEOUT)
        end_late(h, o);
    if (o->status == EXO_EXISTS && try_again(h, a))
        return EXO_OK;
    name_worker(a, o);
    if (o->status != EXO_OK)
        exo_entry_note_refusal(a, exo_head_now(h));
    if (o->status != EXO_OK && a->batch && a->first_life) {
        exo_head_fail_batch(h, a->batch, (exo_status)o->status, o->reason);
        return EXO_OK;
    }
    /* it never lived: its callers are told, and it is forgotten */
    if (o->status != EXO_OK && a->first_life) {
        exo_head_fulfil(h, &a->spawn_wishes, (exo_status)o->status, o->reason, NULL);
        exo_head_fulfil(h, &a->find_wishes, EXO_NOT_FOUND, o->reason, NULL);
        discard(h, a);
        return EXO_OK;
    }
    if (o->status != EXO_OK) {
        exo_head_entry_died(h, a, o->reason, true);
        return EXO_OK;
    }
    if (a->node)
        exo_node_forgive(a->node);
    a->id = o->id;
    memcpy(a->idempotent, o->idempotent, o->idempotent_size);
    a->idempotent_size = o->idempotent_size;
    exo_head_announce(h, a);
    return EXO_OK;
}
