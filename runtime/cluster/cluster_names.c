/* Actors by name: asks the head, and checks its answer against deaths that this process may have
 * seen first. Claiming a name: cluster_known.c.
 *
 * Keeps nothing. Read next: cluster_reach.c (a reference from the head's description). */
#include "cluster/cluster_impl.h"

/* the time within which the head hears of a death that this process knows */
#define HEARSAY (2 * EXO_SECOND)

/* One question to the head. */
struct search {
    const char *space, *name;
    /* a life known to be over: the head's answer waits until the head has heard of its end */
    exo_actor_id dead;
    bool at_once; /* the head answers at once, even if the actor is about to live */
};

/* *where becomes the life that the head gave, even if its process cannot be reached (PEER_LOST). */
static exo_status
find_life(exo_cluster *c, const struct search *search, exo_time deadline, exo_actor_id *where,
          exo_ref *out, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(search->space);
    args.name = exo_pb_text(search->name);
    args.node = search->dead.node;
    args.id = search->dead.id;
    args.at_once = search->at_once;
    *where = (exo_actor_id){0};
    exo_status st =
        exo_cluster_call_head(c, "find", &args.base, true, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    Exo__Cluster__Actor *info = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, reply);
    if (info)
        *where = (exo_actor_id){.node = info->node, .id = info->id};
    st = info ? exo_cluster_refer_to(c, info, deadline, out, err)
              : exo_fail(err, EXO_FAILED, "the head's reply cannot be read");
    EXO_RELEASE(info);
    exo_future_drop(&future);
    return st;
}

/* Whether this process has seen a death that the head may not know: the actor's, or its process's,
 * which cannot be reached. */
static bool
is_over(exo_cluster *c, exo_status found, exo_ref actor, const exo_actor_id *where,
        exo_time deadline)
{
    if (found == EXO_PEER_LOST)
        return where->node != 0;
    return found == EXO_OK && exo_remote_is_suspect(c->remote, actor) &&
           exo_call_wait(c->runtime, actor, "ping", (exo_payload){0}, deadline, NULL, NULL) ==
               EXO_PEER_LOST;
}

static exo_status
find(exo_cluster *c, const char *space, const char *name, exo_time deadline, exo_ref *out,
     exo_err *err)
{
    struct search search = {.space = space, .name = name};
    exo_actor_id where;
    exo_err reason = {0};
    exo_status st = find_life(c, &search, deadline, &where, out, err);
    exo_time patience = exo_deadline(exo_clock_real(), HEARSAY);
    patience = patience < deadline ? patience : deadline;
    while (is_over(c, st, *out, &where, deadline)) {
        bool reached = st == EXO_OK;
        search.dead = where;
        st = find_life(c, &search, reached ? deadline : patience, &where, out, &reason);
        /* the head still reaches the process, and this one does not */
        if (!reached && st == EXO_TIMEOUT)
            return EXO_PEER_LOST;
        if (st != EXO_OK && err)
            *err = reason;
    }
    return st;
}

exo_status
exo_cluster_find(void *context, const char *space, const char *name, exo_ref *out, exo_err *err)
{
    return find(context, space, name, exo_deadline(exo_clock_real(), LOOKUP_TIMEOUT), out, err);
}

exo_status
exo_cluster_get_actor(exo_cluster *cluster, const char *namespace_name, const char *name,
                      exo_time deadline, exo_ref *out, exo_err *err)
{
    return find(cluster, namespace_name ? namespace_name : "default", name, deadline, out, err);
}

bool
exo_cluster_is_free_again(exo_cluster *c, const char *space, const char *name, exo_time deadline)
{
    struct search search = {.space = space, .name = name, .at_once = true};
    exo_actor_id where;
    exo_ref ref = {0};
    exo_time patience = exo_deadline(exo_clock_real(), HEARSAY);
    patience = patience < deadline ? patience : deadline;
    exo_status st = find_life(c, &search, patience, &where, &ref, NULL);
    if (is_over(c, st, ref, &where, patience)) {
        search.at_once = false;
        search.dead = where;
        st = find_life(c, &search, patience, &where, &ref, NULL);
    }
    return st == EXO_NOT_FOUND;
}
