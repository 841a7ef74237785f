/* The head's tables: see directory.h. Read next: directory_lists.c. */
#include "cluster/directory.h"
#include "base/c_locale.h"
#include "base/printable.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

/* The time after a loss in which a node gets no new actors if others have room; after a refusal, no
 * actors of that name. */
#define SHUNNED (60 * EXO_SECOND)

enum {
    MAX_LOST_NODES = 256 /* nodes that have ended and are remembered */
};

static void
set_text(char **text, const char *value)
{
    char *copy = value && *value ? exo_strdup(value) : NULL;
    exo_free(*text);
    *text = copy;
}

const char *
exo_entry_state_text(exo_entry_state state)
{
    static const char *const texts[] = {"starting", "alive", "restarting", "unknown", "dead"};
    return texts[state];
}

const char *
exo_node_state(const exo_cluster_node *node)
{
    return node->alive ? "alive" : node->left ? "left" : "lost";
}

/* --- Actors ----------------------------------------------------------------------------------- */

exo_entry *
exo_directory_by_key(exo_directory *directory, uint64_t key)
{
    exo_entry *a = NULL;
    HASH_FIND(by_key, directory->actors, &key, sizeof key, a);
    return a;
}

/* Writes the key of a name: space and name, with a 0 between, which neither contains. Returns the
 * key's size; 0: one of them is too long. */
static size_t
write_full_name(char out[2 * EXO_NAME], const char *space, const char *name)
{
    size_t first = strlen(space) + 1, second = strlen(name);
    if (first > EXO_NAME || second >= EXO_NAME)
        return 0;
    memcpy(out, space, first);
    memcpy(out + first, name, second);
    return first + second;
}

exo_entry *
exo_directory_by_name(exo_directory *directory, const char *space, const char *name)
{
    char full[2 * EXO_NAME];
    exo_entry *a = NULL;
    size_t size = write_full_name(full, space, name);
    if (size > 0)
        HASH_FIND(by_name, directory->names, full, size, a);
    return a;
}

exo_entry *
exo_directory_by_id(exo_directory *directory, uint64_t node, uint64_t id)
{
    exo_entry *a = NULL, probe = {0};
    probe.where.node = node;
    probe.where.id = id;
    HASH_FIND(by_where, directory->where, &probe.where, sizeof probe.where, a);
    return a;
}

/* --- Quotas ----------------------------------------------------------------------------------- */

exo_status
exo_entry_take(exo_directory *directory, exo_entry *entry, uint64_t peer, exo_quota quota,
               exo_err *err)
{
    exo_status st = exo_account_take(&directory->accounts, peer, quota, 1, err);
    if (st != EXO_OK)
        return st;
    assert(!(entry->holds >> quota & 1) && (!entry->holds || entry->holder == peer));
    exo_account_name(&directory->accounts, peer, entry->spec->owner);
    entry->holder = peer;
    entry->holds |= 1u << quota;
    return EXO_OK;
}

void
exo_entry_give(exo_directory *directory, exo_entry *entry, exo_quota quota)
{
    if (!(entry->holds >> quota & 1))
        return;
    entry->holds &= ~(1u << quota);
    exo_account_give(&directory->accounts, entry->holder, quota, 1);
}

exo_entry *
exo_directory_add(exo_directory *directory, uint64_t key, const Exo__Cluster__Spawn *spec)
{
    char full[2 * EXO_NAME];
    exo_entry *a = exo_calloc(1, sizeof *a);
    Exo__Cluster__Spawn alone = *spec;
    alone.n_together = 0; /* they have entries of their own */
    Exo__Cluster__Spawn *copy = a ? exo_message_copy(&alone.base) : NULL;
    if (copy && spec->name[0]) {
        a->full_size = write_full_name(full, spec->space, spec->name);
        a->full_name = a->full_size > 0 ? exo_calloc(1, a->full_size) : NULL;
        if (a->full_name)
            memcpy(a->full_name, full, a->full_size);
    }
    if (!copy || (spec->name[0] && !a->full_name)) {
        EXO_RELEASE(copy);
        exo_free(a);
        return NULL;
    }
    copy->gpus = 0; /* whoever asks for it does not choose them */
    a->key = key;
    a->spec = copy;
    if (!exo_directory_enlist(directory, a)) {
        EXO_RELEASE(copy);
        exo_free(a->full_name);
        exo_free(a);
        return NULL;
    }
    HASH_ADD(by_key, directory->actors, key, sizeof a->key, a);
    if (a->full_name)
        HASH_ADD_KEYPTR(by_name, directory->names, a->full_name, a->full_size, a);
    return a;
}

void
exo_entry_set_last(exo_entry *entry, uint64_t node, const char *key)
{
    entry->last_node = node;
    snprintf(entry->last_key, sizeof entry->last_key, "%s", key ? key : "");
}

bool
exo_entry_was_at(const exo_entry *entry, const exo_cluster_node *node)
{
    return entry->last_node == node->id && strcmp(entry->last_key, node->key ? node->key : "") == 0;
}

void
exo_directory_index(exo_directory *directory, exo_entry *entry)
{
    exo_directory_unindex(directory, entry);
    entry->where.node = entry->node->id;
    entry->where.id = entry->id;
    exo_entry_set_last(entry, entry->node->id, entry->node->key);
    HASH_ADD(by_where, directory->where, where, sizeof entry->where, entry);
    entry->indexed = true;
}

void
exo_directory_unindex(exo_directory *directory, exo_entry *entry)
{
    if (entry->indexed)
        HASH_DELETE(by_where, directory->where, entry);
    entry->indexed = false;
}

void
exo_directory_remove(exo_directory *directory, exo_entry *entry)
{
    /* its waiting calls have been answered */
    assert(!entry->spawn_wishes && !entry->find_wishes && !entry->batch);
    exo_directory_unindex(directory, entry);
    exo_entry_unplace(entry);
    exo_directory_unlist(directory, entry);
    for (int q = 0; q < EXO_QUOTA_HEAD; q++)
        exo_entry_give(directory, entry, (exo_quota)q);
    HASH_DELETE(by_key, directory->actors, entry);
    if (entry->full_name)
        HASH_DELETE(by_name, directory->names, entry);
    EXO_RELEASE(entry->spec);
    exo_free(entry->full_name);
    exo_free(entry->cause);
    exo_free(entry->waits);
    exo_free(entry);
}

void
exo_entry_set_cause(exo_entry *entry, const char *cause)
{
    if (cause != entry->cause)
        set_text(&entry->cause, cause);
}

void
exo_entry_set_waits(exo_entry *entry, const char *why)
{
    set_text(&entry->waits, why);
}

void
exo_entry_forget_start(exo_entry *entry)
{
    Exo__Cluster__Spawn rest = *entry->spec;
    rest.args = (ProtobufCBinaryData){0};
    rest.n_plugins = 0;
    rest.n_plugin_builds = 0;
    rest.n_lanes = 0;
    Exo__Cluster__Spawn *copy = exo_message_copy(&rest.base);
    if (!copy)
        return;
    EXO_RELEASE(entry->spec);
    entry->spec = copy;
}

void
exo_entry_describe(const exo_entry *entry, char *out, size_t size)
{
    /* a caller that waits nevertheless has heard of its death */
    if (entry->state == EXO_ENTRY_ALIVE) {
        snprintf(out, size, "the actor '%s' is alive, for all that the head has heard",
                 entry->spec->name);
        return;
    }
    char cause[200];
    exo_format_cut(out, size, "the actor '%s' is %s%s%s%s%s", entry->spec->name,
                   exo_entry_state_text(entry->state), entry->cause ? ": " : "",
                   exo_cut(cause, sizeof cause, entry->cause ? entry->cause : ""),
                   entry->waits ? "; it waits: " : "", entry->waits ? entry->waits : "");
}

void
exo_directory_trim(exo_directory *directory, size_t most, size_t at_once,
                   void (*forget)(void *context, uint64_t key), void *context)
{
    for (; directory->num_dead > most && at_once > 0; at_once--) {
        exo_entry *a = directory->dead;
        forget(context, a->key);
        exo_directory_remove(directory, a);
    }
}

/* --- Places ----------------------------------------------------------------------------------- */

static exo_amount *
find_amount(const exo_cluster_node *node, const char *name)
{
    for (size_t i = 0; i < node->num_amounts; i++)
        if (strcmp(node->amounts[i].name, name) == 0)
            return &node->amounts[i];
    return NULL;
}

static bool
is_gpus(const Exo__Cluster__Resource *resource)
{
    return strcmp(resource->name, "gpus") == 0;
}

static bool
has_room(const exo_cluster_node *node, const Exo__Cluster__Spawn *spec)
{
    for (size_t i = 0; i < spec->n_resources; i++) {
        const exo_amount *amount = find_amount(node, spec->resources[i]->name);
        if (spec->resources[i]->amount > 0 &&
            (!amount || amount->free + 1e-9 < spec->resources[i]->amount))
            return false;
        if (is_gpus(spec->resources[i]) && !exo_gpus_have(&node->gpus, spec->resources[i]->amount))
            return false;
    }
    return true;
}

/* The load of a node: the used share of its scarcest resource, then the number of its actors. */
static double
load_of(const exo_cluster_node *node)
{
    double taken = 0;
    for (size_t i = 0; i < node->num_amounts; i++) {
        double share =
            node->amounts[i].total > 0 ? 1 - node->amounts[i].free / node->amounts[i].total : 0;
        taken = share > taken ? share : taken;
    }
    return taken + 1e-6 * (double)node->num_actors;
}

static exo_status
fail_place(exo_directory *directory, const Exo__Cluster__Spawn *spec, exo_err *err)
{
    char wants[200] = "";
    size_t at = 0, workers = 0;
    for (size_t i = 0; i < spec->n_resources && at < sizeof wants; i++)
        at += (size_t)exo_c_snprintf(
            wants + at, sizeof wants - at, "%s%s %g%s", i ? ", " : "", spec->resources[i]->name,
            spec->resources[i]->amount,
            is_gpus(spec->resources[i]) && spec->resources[i]->amount < 1 ? " of one" : "");
    for (const exo_cluster_node *n = directory->nodes; n; n = n->hh.next)
        workers += n->alive && !n->is_driver;
    const exo_cluster_node *named =
        spec->node[0] ? exo_directory_node_by_name(directory, spec->node) : NULL;
    if (spec->node[0] && (!named || named->is_driver))
        return exo_fail(err, EXO_NOT_FOUND, "there is no worker '%s'", spec->node);
    if (named && !named->alive)
        return exo_fail(err, EXO_NOT_FOUND, "the worker '%s' is lost", spec->node);
    if (workers == 0)
        return exo_fail(err, EXO_FULL, "the cluster has no worker: start one with `exogym-worker`");
    return exo_fail(err, EXO_FULL, "none of %zu workers has room for '%s'%s%s: see `exogym status`",
                    spec->placement == EXO_PLACE_STRICT ? (size_t)1 : workers,
                    spec->name[0] ? spec->name : spec->class_name, wants[0] ? ", which wants " : "",
                    wants);
}

static void
take_gpus(exo_entry *entry, double amount, uint64_t has)
{
    exo_gpus *gpus = &entry->node->gpus;
    entry->spec->gpus = has ? exo_gpus_take_these(gpus, amount, has) : exo_gpus_take(gpus, amount);
}

void
exo_entry_take_place(exo_entry *entry, exo_cluster_node *node, uint64_t gpus)
{
    exo_entry_unplace(entry);
    exo_entry_set_waits(entry, NULL);
    exo_entry_set_node(entry, node);
    exo_entry_set_last(entry, node->id, node->key);
    entry->placed = true;
    node->num_actors++;
    for (size_t i = 0; i < entry->spec->n_resources; i++) {
        exo_amount *amount = find_amount(node, entry->spec->resources[i]->name);
        if (amount)
            amount->free -= entry->spec->resources[i]->amount;
        if (is_gpus(entry->spec->resources[i]))
            take_gpus(entry, entry->spec->resources[i]->amount, gpus);
    }
}

void
exo_entry_unplace(exo_entry *entry)
{
    exo_cluster_node *node = entry->node;
    exo_entry_set_node(entry, NULL);
    entry->id = 0;
    if (!node || !entry->placed)
        return;
    entry->placed = false;
    node->num_actors--;
    for (size_t i = 0; i < entry->spec->n_resources; i++) {
        exo_amount *amount = find_amount(node, entry->spec->resources[i]->name);
        if (amount)
            amount->free += entry->spec->resources[i]->amount;
        if (is_gpus(entry->spec->resources[i]))
            exo_gpus_give(&node->gpus, entry->spec->resources[i]->amount, entry->spec->gpus);
    }
    entry->spec->gpus = 0;
}

void
exo_node_note_loss(exo_cluster_node *node, const char *cause, exo_time now)
{
    const exo_entry *a = node->entries;
    while (a && (a->state != EXO_ENTRY_STARTING || a->unbegun))
        a = a->next_there;
    if (!a)
        return;
    node->lost_starts++;
    node->shunned_until = now + SHUNNED;
    set_text(&node->last_loss, cause);
}

void
exo_node_forgive(exo_cluster_node *node)
{
    node->lost_starts = 0;
    node->shunned_until = 0;
    set_text(&node->last_loss, NULL);
}

/* The characters behind a name that number the life of a graph's actor: ".1" of "maker_0.1". */
static size_t
length_of_life(const char *name)
{
    const char *dot = strrchr(name, '.');
    const size_t digits = dot ? strspn(dot + 1, "0123456789") : 0;
    return digits > 0 && !dot[1 + digits] ? 1 + digits : 0;
}

/* The same for all lives of a graph's actor: what one lacks, the next one lacks, too. */
static uint32_t
hash_name(const Exo__Cluster__Spawn *spec)
{
    char full[2 * EXO_NAME];
    uint32_t hash = 0;
    const size_t size = write_full_name(full, spec->space, spec->name),
                 life = length_of_life(spec->name);
    HASH_VALUE(full, (unsigned)(size > life ? size - life : 0), hash);
    return hash;
}

/* The latest refusal comes first; it pushes out the actor's earlier one, or the oldest. */
void
exo_entry_note_refusal(const exo_entry *entry, exo_time now)
{
    if (!entry->node || !entry->spec->name[0])
        return;
    exo_refusal *list = entry->node->refusals,
                latest = {.actor = hash_name(entry->spec), .until = now + SHUNNED};
    size_t at = 0;
    while (at < EXO_REFUSALS - 1 && list[at].until > 0 && list[at].actor != latest.actor)
        at++;
    memmove(list + 1, list, at * sizeof *list);
    list[0] = latest;
}

enum {
    WILLING, /* ranks of nodes; a higher one is asked if no lower one has room */
    REFUSED, /* has refused this actor */
    LOST,    /* was lost while actors started there */
    RANKS
};

static int
rank_of(const exo_cluster_node *node, const Exo__Cluster__Spawn *spec, exo_time now)
{
    bool refused = false;
    for (size_t i = 0; spec->name[0] && !refused && i < EXO_REFUSALS; i++)
        refused = node->refusals[i].until > now && node->refusals[i].actor == hash_name(spec);
    return node->shunned_until > now ? LOST : refused ? REFUSED : WILLING;
}

/* The best place by the load among the nodes of a rank. NULL: none has room. */
static exo_cluster_node *
best_place(exo_directory *directory, const Exo__Cluster__Spawn *spec, exo_time now, int rank)
{
    exo_cluster_node *best = NULL;
    for (exo_cluster_node *n = directory->nodes; n; n = n->hh.next) {
        if (!n->alive || n->is_driver || !has_room(n, spec) || rank_of(n, spec, now) != rank)
            continue;
        if (spec->node[0] && strcmp(n->name, spec->node) != 0)
            continue;
        double load = load_of(n), least = best ? load_of(best) : 0;
        if (!best || (spec->placement == EXO_PLACE_PACK ? load > least : load < least))
            best = n;
    }
    return best;
}

exo_status
exo_directory_place(exo_directory *directory, exo_entry *entry, exo_time now, exo_err *err)
{
    char name[80], loss[120];
    const Exo__Cluster__Spawn *spec = entry->spec;
    exo_cluster_node *best = NULL;
    for (int rank = WILLING; !best && rank < RANKS; rank++)
        best = best_place(directory, spec, now, rank);
    if (!best)
        return fail_place(directory, spec, err);
    if (best->shunned_until > now && best->lost_starts >= EXO_LOST_STARTS)
        return exo_fail(
            err, EXO_FAILED,
            "the worker '%s' was lost %u times in a row while actors started there (%s): "
            "look whether its host is overloaded, and whether the link to it loses "
            "large packets while small ones pass, as with a wrong MTU "
            "(docs/cluster.md#failures)",
            exo_cut(name, sizeof name, best->name), best->lost_starts,
            exo_cut(loss, sizeof loss, best->last_loss ? best->last_loss : "lost"));
    exo_entry_take_place(entry, best, 0);
    return EXO_OK;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

exo_cluster_node *
exo_directory_node(exo_directory *directory, uint64_t id)
{
    exo_cluster_node *n = NULL;
    HASH_FIND(hh, directory->nodes, &id, sizeof id, n);
    return n;
}

exo_cluster_node *
exo_directory_node_by_name(exo_directory *directory, const char *name)
{
    exo_cluster_node *found = NULL;
    for (exo_cluster_node *n = directory->nodes; n; n = n->hh.next)
        if (strcmp(n->name, name) == 0 && (!found || n->alive || !found->alive))
            found = n; /* the living one, else the latest */
    return found;
}

static bool
name_node(exo_directory *directory, exo_cluster_node *node, const Exo__Cluster__Register *from)
{
    char name[256];
    const char *wanted = from->name[0] ? from->name : from->kind[0] ? from->kind : "node";
    snprintf(name, sizeof name, "%s", wanted);
    for (unsigned i = 2;; i++) {
        const exo_cluster_node *other = exo_directory_node_by_name(directory, name);
        if (!other || !other->alive || other == node)
            break;
        snprintf(name, sizeof name, "%.200s-%u", wanted, i);
    }
    node->name = exo_strdup(name);
    return node->name != NULL;
}

static bool
set_amounts(exo_cluster_node *node, const Exo__Cluster__Register *from)
{
    exo_amount *amounts = exo_calloc(from->n_resources + 1, sizeof *amounts);
    if (!amounts)
        return false;
    for (size_t i = 0; i < from->n_resources; i++) {
        snprintf(amounts[i].name, sizeof amounts[i].name, "%s", from->resources[i]->name);
        amounts[i].total = amounts[i].free = from->resources[i]->amount;
    }
    node->amounts = amounts;
    node->num_amounts = from->n_resources;
    const exo_amount *gpus = find_amount(node, "gpus");
    return exo_gpus_init(&node->gpus, gpus ? gpus->total : 0);
}

static void
free_node(exo_cluster_node *n)
{
    exo_free(n->name);
    exo_free(n->endpoint);
    exo_free(n->key);
    exo_free(n->host);
    exo_free(n->job);
    exo_free(n->version);
    exo_free(n->cause);
    exo_free(n->running);
    exo_free(n->log);
    exo_free(n->last_loss);
    exo_free(n->amounts);
    exo_free(n->gpus.free);
    exo_free(n->casualties);
    EXO_RELEASE(n->held);
    exo_identity_drop(&n->owner);
    exo_free(n);
}

/* Forgets the oldest nodes that have ended, except those whose actors have not been handled yet. */
static void
trim_nodes(exo_directory *directory)
{
    exo_cluster_node *n, *next;
    size_t lost = 0;
    for (n = directory->nodes; n; n = n->hh.next)
        lost += !n->alive;
    HASH_ITER (hh, directory->nodes, n, next) {
        if (lost <= MAX_LOST_NODES)
            return;
        if (!n->alive && !n->entries) {
            HASH_DEL(directory->nodes, n);
            free_node(n);
            lost--;
        }
    }
}

exo_cluster_node *
exo_directory_add_node(exo_directory *directory, const Exo__Cluster__Register *from)
{
    exo_cluster_node *n = exo_directory_node(directory, from->node);
    bool is_new = !n;
    if (is_new && !(n = exo_calloc(1, sizeof *n)))
        return NULL;
    if (is_new) {
        n->id = from->node;
        trim_nodes(directory);
        if (!set_amounts(n, from) || !name_node(directory, n, from)) {
            exo_free(n->amounts);
            exo_free(n->gpus.free);
            exo_free(n);
            return NULL;
        }
        HASH_ADD(hh, directory->nodes, id, sizeof n->id, n);
    }
    n->alive = true;
    n->left = false;
    n->is_driver = strcmp(from->kind, "driver") == 0;
    n->pid = from->pid;
    set_text(&n->endpoint, from->endpoint);
    set_text(&n->key, from->key_text);
    set_text(&n->host, from->host);
    set_text(&n->job, from->job);
    set_text(&n->version, from->version);
    set_text(&n->cause, NULL);
    return n;
}

/* --- Jobs ------------------------------------------------------------------------------------- */

exo_job_entry *
exo_directory_job(exo_directory *directory, const char *name, uint64_t key)
{
    exo_job_entry *j = NULL;
    if (!name || !*name)
        return NULL;
    HASH_FIND_STR(directory->jobs, name, j);
    if (j || key == 0)
        return j;
    j = exo_calloc(1, sizeof *j);
    if (j && !(j->name = exo_strdup(name))) {
        exo_free(j);
        j = NULL;
    }
    if (j) {
        j->key = key;
        j->state = "running";
        HASH_ADD_KEYPTR(hh, directory->jobs, j->name, strlen(j->name), j);
    }
    return j;
}

void
exo_directory_renew_job(exo_directory *directory, exo_job_entry *job)
{
    HASH_DEL(directory->jobs, job);
    HASH_ADD_KEYPTR(hh, directory->jobs, job->name, strlen(job->name), job);
}

static void
free_job(exo_job_entry *j)
{
    exo_free(j->name);
    exo_free(j->cause);
    exo_free(j->report);
    exo_free(j->owner);
    exo_free(j);
}

void
exo_directory_trim_jobs(exo_directory *directory, size_t most,
                        void (*forget)(void *context, uint64_t key), void *context)
{
    exo_job_entry *j, *next;
    size_t ended = 0;
    if (HASH_COUNT(directory->jobs) <
        (directory->trim_jobs_at ? directory->trim_jobs_at : 2 * most))
        return;
    for (j = directory->jobs; j; j = j->hh.next)
        ended += j->ended != 0;
    HASH_ITER (hh, directory->jobs, j, next) {
        if (ended <= most)
            break;
        if (j->ended) {
            forget(context, j->key);
            HASH_DEL(directory->jobs, j);
            free_job(j);
            ended--;
        }
    }
    directory->trim_jobs_at = HASH_COUNT(directory->jobs) + most;
}

void
exo_job_describe(const exo_job_entry *job, Exo__Cluster__Job *out)
{
    exo__cluster__job__init(out);
    out->name = exo_pb_text(job->name);
    out->state = exo_pb_text(job->state);
    out->cause = exo_pb_text(job->cause);
    out->began = job->began;
    out->ended = job->ended;
    out->report = exo_pb_text(job->report);
    out->owner = exo_pb_text(job->owner);
}

/* --- Everything ------------------------------------------------------------------------------- */

/* The totals and the free amounts share one allocation; exo_directory_free_node_info frees it. */
static exo_status
describe_node(const exo_cluster_node *n, Exo__Cluster__NodeInfo **out)
{
    size_t count = n->num_amounts;
    Exo__Cluster__NodeInfo *info = exo_calloc(1, sizeof *info);
    Exo__Cluster__Resource **list = exo_calloc(2 * count + 1, sizeof *list);
    Exo__Cluster__Resource *resources = exo_calloc(2 * count + 1, sizeof *resources);
    if (!info || !list || !resources) {
        exo_free(info);
        exo_free(list);
        exo_free(resources);
        return EXO_NOMEM;
    }
    exo__cluster__node_info__init(info);
    info->node = n->id;
    info->name = exo_pb_text(n->name);
    info->endpoint = exo_pb_text(n->endpoint);
    info->host = exo_pb_text(n->host);
    info->pid = n->pid;
    info->state = exo_pb_text(exo_node_state(n));
    info->cause = exo_pb_text(n->cause);
    info->actors = n->num_actors;
    info->kind = exo_pb_text(n->is_driver ? "driver" : "worker");
    info->since = n->since;
    info->version = exo_pb_text(n->version);
    for (size_t i = 0; i < 2 * count; i++) {
        exo__cluster__resource__init(&resources[i]);
        resources[i].name = n->amounts[i % count].name;
        resources[i].amount = i < count ? n->amounts[i].total : n->amounts[i - count].free;
        list[i] = &resources[i];
    }
    /* the last element leads to the block to free, also if there are no amounts */
    list[2 * count] = resources;
    info->total = list;
    info->free = list + count;
    info->n_total = info->n_free = count;
    *out = info;
    return EXO_OK;
}

exo_status
exo_directory_list(exo_directory *directory, Exo__Cluster__Listing *out)
{
    out->nodes = exo_calloc(HASH_COUNT(directory->nodes) + 1, sizeof *out->nodes);
    out->jobs = exo_calloc(HASH_COUNT(directory->jobs) + 1, sizeof *out->jobs);
    if (!out->nodes || !out->jobs)
        return EXO_NOMEM;
    for (const exo_cluster_node *n = directory->nodes; n; n = n->hh.next) {
        if (describe_node(n, &out->nodes[out->n_nodes]) != EXO_OK)
            return EXO_NOMEM;
        out->n_nodes++;
    }
    for (const exo_job_entry *j = directory->jobs; j; j = j->hh.next) {
        if (!(out->jobs[out->n_jobs] = exo_calloc(1, sizeof **out->jobs)))
            return EXO_NOMEM;
        exo_job_describe(j, out->jobs[out->n_jobs++]);
    }
    return EXO_OK;
}

void
exo_directory_free_node_info(Exo__Cluster__NodeInfo *info)
{
    exo_free(info->total[2 * info->n_total]);
    exo_free(info->total);
    exo_free(info);
}

void
exo_directory_list_release(Exo__Cluster__Listing *listing)
{
    for (size_t i = 0; i < listing->n_nodes; i++)
        exo_directory_free_node_info(listing->nodes[i]);
    for (size_t i = 0; i < listing->n_actors; i++)
        exo_free(listing->actors[i]);
    for (size_t i = 0; i < listing->n_jobs; i++)
        exo_free(listing->jobs[i]);
    for (size_t i = 0; i < listing->n_peers; i++)
        exo_free(listing->peers[i]);
    exo_free(listing->peers);
    exo_free(listing->nodes);
    exo_free(listing->actors);
    exo_free(listing->jobs);
}

void
exo_directory_release(exo_directory *directory)
{
    exo_entry *a, *next_actor;
    exo_cluster_node *n, *next_node;
    exo_job_entry *j, *next_job;
    HASH_ITER (by_key, directory->actors, a, next_actor)
        exo_directory_remove(directory, a);
    HASH_ITER (hh, directory->nodes, n, next_node) {
        HASH_DEL(directory->nodes, n);
        free_node(n);
    }
    HASH_ITER (hh, directory->jobs, j, next_job) {
        HASH_DEL(directory->jobs, j);
        free_job(j);
    }
    exo_accounts_release(&directory->accounts);
}
