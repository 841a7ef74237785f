/* The actors of this process that the head knows: those that it had made here, and those with a
 * claimed name. They are noted here until the head has been told of their deaths, and listed for
 * the head whenever the process registers.
 *
 * Owns `known`, `deaths` and `num_told`, under the cluster's lock. Read next: cluster_head.c (calls
 * to the head), head_lives.c (what the head does with a death). */
#include <stdio.h>
#include <unistd.h>

#include <uthash.h>
#include <utlist.h>

#include <exogym/memory.h>

#include "base/version.h"
#include "cluster/cluster_impl.h"
#include "cluster/quota.h"

enum {
    PART_BYTES = 128 << 10 /* of one Register message, about */
};

/* An actor of this process that the head knows. */
struct known {
    uint64_t id, key, incarnation;
    Exo__Cluster__Spawn *spec; /* owned */
    char *cause;               /* of a dead one; may be NULL */
    bool failure;
    struct known *next; /* among the dead ones */
    UT_hash_handle hh;
};

/* True while this thread makes an actor for the head, which already has the actor's name. Owner:
 * this thread. */
static _Thread_local bool made_for_head;

static void
free_known(struct known *k)
{
    if (!k)
        return;
    EXO_RELEASE(k->spec);
    exo_free(k->cause);
    exo_free(k);
}

/* told, if not NULL: adds the note only if num_told still has this value. Otherwise a registration
 * since then listed the actors without this one, and the head takes it for dead. */
static bool
remember_if(exo_cluster *c, struct known *k, const uint64_t *told)
{
    pthread_mutex_lock(&c->lock);
    bool in_time = !told || c->num_told == *told;
    if (in_time)
        HASH_ADD(hh, c->known, id, sizeof k->id, k);
    pthread_mutex_unlock(&c->lock);
    if (!in_time)
        free_known(k);
    return in_time;
}

/* Notes an actor of this process, made from `spec`. False: too late, see remember_if. Without
 * memory the actor stays unknown. */
static bool
remember(exo_cluster *c, uint64_t id, uint64_t key, uint64_t incarnation,
         const Exo__Cluster__Spawn *spec, const uint64_t *told)
{
    Exo__Cluster__Spawn kept = *spec;
    struct known *k = exo_calloc(1, sizeof *k);
    if (!spec->restart || spec->restart->when == EXO_RESTART_NEVER)
        kept.args = (ProtobufCBinaryData){0};
    kept.n_together = 0;
    if (!k || !(k->spec = exo_message_copy(&kept.base))) {
        exo_free(k);
        return true;
    }
    k->id = id;
    k->key = key;
    k->incarnation = incarnation;
    return remember_if(c, k, told);
}

void
exo_cluster_forget_known(exo_cluster *c)
{
    struct known *k, *next;
    HASH_ITER (hh, c->known, k, next) {
        HASH_DEL(c->known, k);
        free_known(k);
    }
    while ((k = c->deaths)) {
        LL_DELETE(c->deaths, k);
        free_known(k);
    }
}

/* --- Deaths ----------------------------------------------------------------------------------- */

void
exo_cluster_tell_deaths(exo_cluster *c)
{
    for (;;) {
        pthread_mutex_lock(&c->lock);
        struct known *k = c->head.id ? c->deaths : NULL;
        if (k)
            LL_DELETE(c->deaths, k);
        pthread_mutex_unlock(&c->lock);
        if (!k)
            return;
        Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
        args.space = k->spec->space;
        args.name = k->spec->name;
        args.id = k->id;
        args.key = k->key;
        args.incarnation = k->incarnation;
        args.node = exo_net_node(exo_remote_net(c->remote));
        args.cause = exo_pb_text(k->cause);
        args.failure = k->failure;
        if (!exo_cluster_tell_head(c, "died", &args.base)) {
            pthread_mutex_lock(&c->lock);
            LL_PREPEND(c->deaths, k);
            pthread_mutex_unlock(&c->lock);
            return;
        }
        free_known(k);
    }
}

void
exo_cluster_died(void *context, const char *space, const char *name, exo_ref actor,
                 const char *cause, bool failure)
{
    exo_cluster *c = context;
    struct known *k = NULL;
    (void)space;
    (void)name;
    pthread_mutex_lock(&c->lock);
    HASH_FIND(hh, c->known, &actor.id, sizeof actor.id, k);
    bool closing = c->closing;
    if (k) {
        HASH_DEL(c->known, k);
        k->cause = cause ? exo_strdup(cause) : NULL;
        k->failure = failure;
        if (!closing)
            LL_APPEND(c->deaths, k);
    }
    pthread_mutex_unlock(&c->lock);
    if (closing)
        free_known(k);
    else if (k)
        exo_cluster_tell_deaths(c);
}

/* --- Actors that were made without the head --------------------------------------------------- */

/* Claims the name and notes the actor. *noted is false if this process registered meanwhile,
 * without the actor: the head may then have taken the name back. */
static exo_status
claim_once(exo_cluster *c, const Exo__Cluster__Name *args, exo_time deadline, bool *noted,
           exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    pthread_mutex_lock(&c->lock);
    const uint64_t told = c->num_told;
    pthread_mutex_unlock(&c->lock);
    exo_status st =
        exo_cluster_call_head(c, "claim", &args->base, true, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    *noted = true;
    Exo__Cluster__Actor *info = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, reply);
    if (info) {
        Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
        spec.space = args->space;
        spec.name = args->name;
        spec.class_name = info->class_name;
        spec.job = info->job;
        spec.driver = c->role == EXO_ROLE_DRIVER ? args->node : 0;
        *noted = remember(c, args->id, info->key, info->incarnation, &spec, &told);
    }
    EXO_RELEASE(info);
    exo_future_drop(&future);
    return EXO_OK;
}

exo_status
exo_cluster_claim(void *context, const char *space, const char *name, exo_ref actor, exo_err *err)
{
    exo_cluster *c = context;
    bool known = made_for_head, noted = false, asked = false;
    made_for_head = false; /* further actors, made by its `start`, are not made for the head */
    if (known || c->role == EXO_ROLE_GUEST)
        return EXO_OK;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(space);
    args.name = exo_pb_text(name);
    args.id = actor.id;
    args.node = exo_net_node(exo_remote_net(c->remote));
    exo_time deadline = exo_deadline(exo_clock_real(), LOOKUP_TIMEOUT);
    exo_status st = EXO_OK;
    while (st == EXO_OK && !noted) {
        st = claim_once(c, &args, deadline, &noted, err);
        if (st == EXO_EXISTS && !asked &&
            (asked = true, exo_cluster_is_free_again(c, space, name, deadline)))
            st = EXO_OK;
    }
    return st;
}

/* --- Actors that the head had made here ------------------------------------------------------- */

void
exo_cluster_making(void *context, bool begins, const Exo__Cluster__Spawn *spec, exo_ref actor)
{
    exo_cluster *c = context;
    char cause[256];
    made_for_head = begins;
    if (begins || !actor.id)
        return;
    remember(c, actor.id, spec->key, spec->incarnation, spec, NULL);
    if (exo_cause(c->runtime, actor, cause, sizeof cause) == EXO_OK)
        exo_cluster_died(c, NULL, NULL, actor, cause, true); /* it died before it was noted */
}

exo_ref
exo_cluster_find_made(void *context, uint64_t key, uint64_t incarnation)
{
    exo_cluster *c = context;
    exo_ref found = {0};
    pthread_mutex_lock(&c->lock);
    for (const struct known *k = c->known; k && !found.id; k = k->hh.next)
        if (k->key == key && k->incarnation == incarnation)
            found.id = k->id;
    pthread_mutex_unlock(&c->lock);
    return found;
}

bool
exo_cluster_made_from(void *context, exo_ref actor, char space[256], char owner[EXO_IDENTITY_NAME])
{
    exo_cluster *c = context;
    struct known *k = NULL;
    pthread_mutex_lock(&c->lock);
    HASH_FIND(hh, c->known, &actor.id, sizeof actor.id, k);
    if (k) {
        snprintf(space, 256, "%s", k->spec->space[0] ? k->spec->space : "default");
        snprintf(owner, EXO_IDENTITY_NAME, "%s", k->spec->owner);
    }
    pthread_mutex_unlock(&c->lock);
    return k != NULL;
}

/* --- Registering ------------------------------------------------------------------------------ */

static void
describe_known(const struct known *k, Exo__Cluster__Actor *out)
{
    exo__cluster__actor__init(out);
    out->key = k->key;
    out->id = k->id;
    out->incarnation = k->incarnation;
    out->name = k->spec->name;
    out->space = k->spec->space;
    out->class_name = k->spec->class_name;
    out->job = k->spec->job;
    out->detached = k->spec->detached;
    out->spec = k->spec;
}

/* Lists the living and dead actors of this process. */
static size_t
list_known_locked(exo_cluster *c, Exo__Cluster__Actor *infos, Exo__Cluster__Actor **list)
{
    size_t count = 0;
    for (const struct known *k = c->known; k; k = k->hh.next, count++)
        describe_known(k, &infos[count]);
    for (const struct known *k = c->deaths; k; k = k->next, count++) {
        describe_known(k, &infos[count]);
        infos[count].state = exo_pb_text("dead");
        infos[count].cause = exo_pb_text(k->cause);
        infos[count].failed = k->failure;
    }
    for (size_t i = 0; i < count; i++)
        list[i] = &infos[i];
    return count;
}

/* Ends actors that the head has declared dead, because it may have made others in their place. */
static void
end_fenced(exo_cluster *c, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct known *k = NULL;
        pthread_mutex_lock(&c->lock);
        HASH_FIND(hh, c->known, &ids[i], sizeof ids[i], k);
        /* the head need not be told of this death */
        if (k)
            HASH_DEL(c->known, k);
        pthread_mutex_unlock(&c->lock);
        if (k)
            exo_kill(c->runtime, (exo_ref){.id = k->id},
                     "its node was lost for a time, and it was taken for dead", NULL);
        free_known(k);
    }
}

/* Sends one part, takes the name that the head gives, and ends the actors that the reply lists. */
static exo_status
register_part(exo_cluster *c, exo_ref head, const Exo__Cluster__Register *m, exo_time deadline,
              exo_err *err)
{
    exo_payload packed = {0};
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_status st = exo_message_pack(&packed, &m->base);
    if (st != EXO_OK)
        return exo_fail(err, st, "no memory to register");
    st = exo_call(c->runtime, head, "register", packed, deadline, &future, err);
    if (st == EXO_OK)
        st = exo_wait(future, deadline, &reply, err);
    Exo__Cluster__RegisterReply *answer =
        st == EXO_OK ? EXO_UNPACK(Exo__Cluster__RegisterReply, exo__cluster__register_reply, reply)
                     : NULL;
    if (answer) {
        if (answer->name[0])
            exo_cluster_set_name(c, answer->name);
        end_fenced(c, answer->ended, answer->n_ended);
    }
    EXO_RELEASE(answer);
    exo_future_drop(&future);
    return st;
}

/* Registers in as many parts as needed, because the head takes EXO_MAX_CONTROL bytes at once. */
static exo_status
register_parts(exo_cluster *c, exo_ref head, Exo__Cluster__Register *m,
               Exo__Cluster__Actor **actors, size_t count, exo_time deadline, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t at = 0;
    do {
        size_t bytes = 0, n = 0;
        while (at + n < count && n < EXO_PART_ACTORS && (n == 0 || bytes < PART_BYTES))
            bytes += protobuf_c_message_get_packed_size(&actors[at + n++]->base);
        m->actors = actors + at;
        m->n_actors = n;
        at += n;
        m->more = at < count;
        st = register_part(c, head, m, deadline, err);
        m->part++;
    } while (st == EXO_OK && at < count);
    return st;
}

/* Copies the list of actors, because actors die and others are made while it is sent. NULL: no
 * memory. */
static Exo__Cluster__Actor **
copy_known(exo_cluster *c, size_t *count, bool *failed)
{
    const struct known *death;
    size_t most = 0, copied = 0;
    /* held for all of it, because infos and list borrow texts of `known` */
    pthread_mutex_lock(&c->lock);
    LL_COUNT(c->deaths, death, most);
    most += HASH_COUNT(c->known);
    Exo__Cluster__Actor *infos = exo_calloc(most + 1, sizeof *infos);
    Exo__Cluster__Actor **list = exo_calloc(most + 1, sizeof *list),
                        **copies = exo_calloc(most + 1, sizeof *copies);
    *failed = !infos || !list || !copies;
    *count = *failed ? 0 : list_known_locked(c, infos, list);
    if (!*failed)
        c->num_told++;
    for (; copied < *count && !*failed; copied += !*failed)
        *failed = !(copies[copied] = exo_message_copy(&list[copied]->base));
    pthread_mutex_unlock(&c->lock);
    *count = copied;
    exo_free(infos);
    exo_free(list);
    return copies;
}

exo_status
exo_cluster_register(exo_cluster *c, exo_ref head, exo_time deadline, exo_err *err)
{
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    Exo__Cluster__Resource resources[EXO_CLUSTER_PLACE_RESOURCES],
        *resource_list[EXO_CLUSTER_PLACE_RESOURCES];
    m.node = exo_net_node(exo_remote_net(c->remote));
    m.name = exo_pb_text(exo_cluster_node_name(c));
    m.endpoint = c->address;
    m.version = exo_pb_text(exo_version);
    m.key_text = c->place.has_keys ? c->place.keys.public_key : exo_pb_text("");
    m.kind = exo_pb_text(c->role == EXO_ROLE_WORKER ? "worker" : "driver");
    m.pid = (uint32_t)getpid();
    m.host = c->boot;
    m.job = c->job;
    for (size_t i = 0; i < c->place.num_resources; i++) {
        exo__cluster__resource__init(&resources[i]);
        resources[i].name = exo_pb_text(c->place.resources[i].name);
        resources[i].amount = c->place.resources[i].amount;
        resource_list[i] = &resources[i];
    }
    m.resources = resource_list;
    m.n_resources = c->place.num_resources;
    bool failed = false;
    size_t count = 0;
    Exo__Cluster__Actor **actors = copy_known(c, &count, &failed);
    exo_status st = failed ? exo_fail(err, EXO_NOMEM, "no memory to register")
                           : register_parts(c, head, &m, actors, count, deadline, err);
    for (size_t i = 0; i < count; i++)
        EXO_RELEASE(actors[i]);
    exo_free(actors);
    return st;
}
