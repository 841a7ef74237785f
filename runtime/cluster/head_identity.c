/* Rights of the head's callers: a node may speak only of itself. Its identity was proven when its
 * connection was made (runtime/net/proof.c), and is not taken from its messages. Calls without an
 * identity come from this process: from the head itself, its net or its keeper.
 *
 * Keeps nothing; the owners of nodes are in the directory. Read next: head.c. */
#include "cluster/head_impl.h"

#include <string.h>

static exo_status
deny(const exo_identity *who, const char *method, const char *what, exo_err *err)
{
    char name[128];
    exo_identity_describe(who, name, sizeof name);
    return exo_fail(err, EXO_DENIED, "%s: %s %s", method, name, what);
}

exo_status
exo_head_check_own(const exo_call_context *call, const char *method, exo_err *err)
{
    const exo_identity *who = exo_call_identity(call);
    return who ? deny(who, method, "is not the head itself, which alone calls this", err) : EXO_OK;
}

exo_status
exo_head_check_self(const exo_call_context *call, uint64_t node, const char *method, exo_err *err)
{
    const exo_identity *who = exo_call_identity(call);
    return who && who->node != node ? deny(who, method, "speaks of another node than itself", err)
                                    : EXO_OK;
}

exo_status
exo_head_check_register(const struct head *h, const exo_call_context *call,
                        const Exo__Cluster__Register *m, exo_err *err)
{
    const exo_identity *who = exo_call_identity(call);
    const exo_cluster_node *node = NULL;
    const exo_job_entry *job = NULL;
    const exo_cluster_node *driver = NULL;
    exo_status st = exo_head_check_self(call, m->node, "register", err);
    if (st != EXO_OK || !who)
        return st;
    HASH_FIND(hh, h->directory.nodes, &m->node, sizeof m->node, node);
    if (node && node->owner && !exo_identity_is_same(node->owner, who))
        return deny(who, "register", "is not who was that node before", err);
    const char *kind = who->role == EXO_ACCESS_DRIVER   ? "driver"
                       : who->role == EXO_ACCESS_WORKER ? "worker"
                                                        : m->kind;
    if (strcmp(m->kind, kind) != 0)
        return deny(who, "register", "may be a node of another kind only: its role says which",
                    err);
    if (who->key[0] && m->key_text[0] && strcmp(who->key, m->key_text) != 0)
        return deny(who, "register", "names another key than it has shown", err);
    HASH_FIND_STR(h->directory.jobs, m->job, job);
    if (job && !job->ended && job->driver != m->node)
        HASH_FIND(hh, h->directory.nodes, &job->driver, sizeof job->driver, driver);
    if (driver && driver->alive && driver->owner && !exo_identity_is_same(driver->owner, who))
        return exo_fail(err, EXO_EXISTS, "there is a job '%.100s' already, of the driver '%.100s'",
                        m->job, driver->name);
    if (job && !job->ended && !job->driver && who->role == EXO_ACCESS_DRIVER &&
        strcmp(job->owner ? job->owner : "", who->name) != 0)
        return exo_fail(
            err, EXO_EXISTS,
            "there is a job '%.100s' already, of %.64s, whose driver may come back to this head",
            m->job, job->owner ? job->owner : "an admin");
    return EXO_OK;
}

exo_status
exo_head_check_epitaph(const struct head *h, const exo_call_context *call, uint64_t id,
                       exo_err *err)
{
    const exo_identity *who = exo_call_identity(call);
    const exo_cluster_node *node = NULL;
    HASH_FIND(hh, h->directory.nodes, &id, sizeof id, node);
    if (!who || !node || !node->owner || exo_identity_is_same(node->owner, who) ||
        (!who->key[0] && who->pid && who->pid == node->watcher))
        return EXO_OK;
    return deny(who, "epitaph", "is not the watcher of that node", err);
}

uint64_t
exo_head_peer(const exo_call_context *call)
{
    const exo_identity *who = exo_call_identity(call);
    return who ? who->node : 0;
}

uint64_t
exo_head_holder(const struct head *h, const exo_call_context *call)
{
    const exo_identity *who = exo_call_identity(call);
    if (!who || who->role != EXO_ACCESS_DRIVER || !who->key[0])
        return exo_head_peer(call);
    /* secret, so that no process can take the number of a key's account for its own */
    uint64_t hash = h->salt;
    for (const char *c = who->key; *c; c++)
        hash = (hash ^ (uint8_t)*c) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

/* --- Drivers ---------------------------------------------------------------------------------- */

static const exo_identity *
driver_of(const exo_call_context *call)
{
    const exo_identity *who = exo_call_identity(call);
    return who && who->role == EXO_ACCESS_DRIVER ? who : NULL;
}

static bool
is_own_space(const exo_identity *who, const char *space)
{
    return strcmp(space[0] ? space : "default", who->space) == 0;
}

static bool
has_made(const exo_identity *who, const exo_entry *a)
{
    return a && who->name[0] && strcmp(a->spec->owner, who->name) == 0;
}

/* "JOB/..." belongs to a running job that the caller's key began. A job's name may have slashes,
 * and no key's namespace has one. */
static bool
is_of_job(const struct head *h, const exo_identity *who, const char *space)
{
    for (const char *slash = strchr(space, '/'); slash; slash = strchr(slash + 1, '/')) {
        const exo_job_entry *job = NULL;
        const exo_cluster_node *driver = NULL;
        HASH_FIND(hh, h->directory.jobs, space, (size_t)(slash - space), job);
        if (job && !job->ended)
            HASH_FIND(hh, h->directory.nodes, &job->driver, sizeof job->driver, driver);
        if (driver && driver->owner && exo_identity_is_same(driver->owner, who))
            return true;
    }
    return false;
}

exo_status
exo_head_check_space(const struct head *h, const exo_call_context *call, const char *space,
                     const exo_entry *a, const char *method, exo_err *err)
{
    const exo_identity *who = driver_of(call);
    if (who && !is_own_space(who, space) && !has_made(who, a) && !is_of_job(h, who, space))
        return exo_fail(err, EXO_DENIED,
                        "%s: %s may use the namespace '%s' only, and those of its jobs", method,
                        who->name, who->space);
    bool makes = strcmp(method, "spawn") == 0 || strcmp(method, "claim") == 0 ||
                 strcmp(method, "register") == 0;
    return strcmp(space, EXO_SYSTEM_SPACE) == 0 && exo_call_identity(call) && makes
               ? exo_fail(err, EXO_DENIED, "%s: the namespace '%s' is the cluster's own", method,
                          space)
               : EXO_OK;
}

exo_status
exo_head_check_owner(const exo_call_context *call, const exo_entry *a, const char *method,
                     exo_err *err)
{
    const exo_identity *who = driver_of(call);
    return who && strcmp(a->spec->owner, who->name) != 0
               ? deny(who, method, "did not make this actor", err)
               : EXO_OK;
}

bool
exo_head_is_hidden(const exo_call_context *call, const exo_entry *a)
{
    const exo_identity *who = driver_of(call);
    return who && !is_own_space(who, a->spec->space) && !has_made(who, a);
}

bool
exo_head_hides_node(const exo_call_context *call, const exo_cluster_node *node)
{
    const exo_identity *who = driver_of(call);
    return who && node->is_driver && !(node->owner && exo_identity_is_same(node->owner, who));
}

bool
exo_head_hides_job(const exo_call_context *call, const exo_job_entry *job)
{
    const exo_identity *who = driver_of(call);
    return who && !(job->owner && strcmp(job->owner, who->name) == 0);
}

bool
exo_head_hides_holding(const exo_call_context *call, uint64_t peer, const exo_cluster_node *node)
{
    const exo_identity *who = driver_of(call);
    return who && peer != who->node &&
           !(node && node->owner && exo_identity_is_same(node->owner, who));
}

bool
exo_head_hides_logs(const exo_call_context *call)
{
    return driver_of(call) != NULL;
}

exo_status
exo_head_told_spec(const struct head *h, const exo_call_context *call,
                   const Exo__Cluster__Spawn *spec, Exo__Cluster__Spawn *out,
                   Exo__Cluster__RestartRule *rule, exo_err *err)
{
    const exo_identity *who = exo_call_identity(call);
    bool is_driver = who && who->role == EXO_ACCESS_DRIVER,
         is_worker = who && who->role == EXO_ACCESS_WORKER;
    *out = *spec;
    exo_status st = exo_head_check_space(h, call, spec->space, NULL, "register", err);
    if (st == EXO_OK && is_driver)
        exo_head_own_spec(call, spec, out);
    if (st == EXO_OK && (is_driver || is_worker) && spec->restart) {
        *rule = *spec->restart;
        rule->when = EXO_RESTART_NEVER;
        out->restart = rule;
    }
    return st;
}

void
exo_head_own_spec(const exo_call_context *call, const Exo__Cluster__Spawn *spec,
                  Exo__Cluster__Spawn *out)
{
    const exo_identity *who = exo_call_identity(call);
    *out = *spec;
    out->owner = exo_pb_text(who ? who->name : "");
    out->restricted = who && who->role == EXO_ACCESS_DRIVER;
}
