/* How the communicators of NCCL are made: see group.h.
 *
 *     the members             offer what they have from an earlier group to the first of the set
 *     the first               decides by the offers, and tells its plan to all
 *     GROWN: that of rank 0   asks NCCL for an id to grow by, and tells it to all
 *     all                     call NCCL
 *
 * A communicator that was suspended is resumed by its next call. Only in an elastic run has anybody something to offer; else the first does not wait. What NCCL demands of
 * a call to grow: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/comms.html#ncclcommgrow */
#include "nccl/group.h"

#include <limits.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

enum {
    CONFIG_MAGIC = (int)0xCAFEBEEF,
    CONFIG_VERSION = 21700
};

/* --- Records ---------------------------------------------------------------------------------- */

/* The FNV-1a hash of the ranks names a set (http://www.isthe.com/chongo/tech/comp/fnv/). */
static uint64_t
key_of(const uint32_t *ranks, uint32_t size)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t p = 0; p < size; p++)
        hash = (hash ^ (ranks ? ranks[p] : p)) * UINT64_C(1099511628211);
    return hash;
}

static bool
has_ranks(const exo_nccl_set *s, const uint32_t *ranks, uint32_t size)
{
    bool same = s->size == size;
    for (uint32_t p = 0; same && p < size; p++)
        same = exo_nccl_rank_at(s, p) == (ranks ? ranks[p] : p);
    return same;
}

exo_status
exo_nccl_set_of(exo_nccl_set **out, exo_nccl_group *g, exo_nccl_member *m,
                const exo_collective_args *a, exo_err *err)
{
    const uint64_t key = key_of(a->ranks, a->size);
    exo_nccl_set *s = m->sets;
    while (s && s->key != key)
        s = s->next;
    *out = s;
    if (s && !has_ranks(s, a->ranks, a->size))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "two sets of members have one key: open one of them "
                        "in a group of its own");
    if (s)
        return EXO_OK;
    const bool some = a->ranks && a->size < g->size;
    s = exo_calloc(1, sizeof *s);
    if (s && some && !(s->ranks = exo_calloc(a->size, sizeof *s->ranks))) {
        exo_free(s);
        s = NULL;
    }
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a set of members");
    if (some)
        memcpy(s->ranks, a->ranks, a->size * sizeof *s->ranks);
    s->holders = 1;
    s->key = key;
    s->size = a->size;
    s->place = a->place;
    s->next = m->sets;
    pthread_mutex_lock(&g->lock);
    m->sets = s;
    pthread_mutex_unlock(&g->lock);
    *out = s;
    return EXO_OK;
}

/* --- Offers ----------------------------------------------------------------------------------- */

static exo_nccl_offer
own_offer(const exo_nccl_set *s)
{
    const exo_nccl_remains *r = s->parent;
    exo_nccl_offer offer = {0};
    if (!r)
        return offer;
    offer = (exo_nccl_offer){.lineage = r->lineage, .size = r->size, .fate = (uint32_t)r->fate};
    while (r->ranks[offer.rank] != r->rank)
        offer.rank++;
    return offer;
}

/* Takes what this member has from an earlier group, and offers it to the first. */
static exo_status
claim(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_err *err)
{
    exo_nccl_message message = {.kind = EXO_NCCL_TELLS_OFFER, .set = s->key};
    if (s->claimed)
        return EXO_OK;
    s->claimed = true;
    if (!g->post)
        return EXO_OK;
    s->parent = exo_nccl_take(g, rank, s);
    if (s->place == 0)
        return EXO_OK;
    const exo_nccl_offer offer = own_offer(s);
    memcpy(message.body, &offer, sizeof offer);
    return g->post->send(g->post->context, exo_nccl_rank_at(s, 0), &message, sizeof message, err);
}

/* The first alone reads it. */
static exo_nccl_offer
offer_at(exo_nccl_group *g, const exo_nccl_set *s, uint32_t place)
{
    return place == s->place ? own_offer(s)
                             : exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, place)).offer;
}

/* Whether the members may have something to offer. */
static bool
have_offers(const exo_nccl_group *g)
{
    return g->post && g->post->goes_on && (g->nccl->CommShrink || exo_nccl_can_grow(g->nccl));
}

static bool
all_have_offered(exo_nccl_group *g, const exo_nccl_set *s)
{
    bool all = true;
    for (uint32_t p = 1; have_offers(g) && all && p < s->size; p++)
        all = exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, p)).has_offer;
    return all;
}

/* --- Plans ------------------------------------------------------------------------------------ */

static bool
is_order(const uint16_t *order, uint32_t size)
{
    bool seen[EXO_NCCL_GROWN_MOST] = {0}, fine = size <= EXO_NCCL_GROWN_MOST;
    for (uint32_t p = 0; fine && p < size; p++) {
        fine = order[p] < size && !seen[order[p]];
        seen[fine ? order[p] : 0] = true;
    }
    return fine;
}

/* NCCL's ranks after growing: the members keep theirs, and newcomers come behind. */
static bool
write_order(exo_nccl_group *g, const exo_nccl_set *s, uint32_t size, uint16_t *order)
{
    for (uint32_t p = 0; p < s->size; p++) {
        const exo_nccl_offer offer = offer_at(g, s, p);
        order[p] = (uint16_t)(offer.lineage ? offer.rank : size++);
    }
    return is_order(order, s->size);
}

/* What can be made of the offers. order: (EXO_NCCL_GROWN_MOST), written for GROWN. */
static exo_nccl_way
choose(exo_nccl_group *g, const exo_nccl_set *s, uint16_t *order)
{
    exo_nccl_offer common = {0};
    uint32_t count = 0;
    bool equal = true;
    for (uint32_t p = 0; have_offers(g) && p < s->size; p++) {
        const exo_nccl_offer offer = offer_at(g, s, p);
        if (!offer.lineage)
            continue;
        common = count++ == 0 ? offer : common;
        equal =
            equal && offer.lineage == common.lineage && offer.size == common.size &&
            offer.fate == common.fate; /* NCCL promises no shrink of one that some have revoked */
    }
    if (!equal || count == 0 || count != (common.size < s->size ? common.size : s->size))
        return EXO_NCCL_ANEW; /* some members of it are not here, or have lost it */
    if (common.size >= s->size)
        return common.size > s->size ? EXO_NCCL_SHRUNK : EXO_NCCL_KEPT;
    return s->size <= EXO_NCCL_GROWN_MOST && write_order(g, s, count, order) ? EXO_NCCL_GROWN
                                                                             : EXO_NCCL_ANEW;
}

/* Of the first: decides, once, when all have offered. */
static exo_status
decide(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_err *err)
{
    exo_nccl_message message = {.kind = EXO_NCCL_TELLS_PLAN, .set = s->key};
    uint16_t order[EXO_NCCL_GROWN_MOST] = {0};
    exo_nccl_id id = {0};
    exo_status st = EXO_OK;
    if (s->place != 0 || s->decided || !all_have_offered(g, s))
        return EXO_OK;
    s->decided = true;
    const exo_nccl_way way = choose(g, s, order);
    if (way == EXO_NCCL_ANEW)
        st = exo_nccl_status(g, NULL, g->nccl->GetUniqueId(&id), "the id of a communicator", err);
    memcpy(message.body, way == EXO_NCCL_GROWN ? (const void *)order : &id,
           way == EXO_NCCL_GROWN ? sizeof order : sizeof id);
    message.value = (uint64_t)way;
    return st == EXO_OK ? exo_nccl_tell(g, rank, s, &message, err) : st;
}

/* Of rank 0 in NCCL: makes the id by which the communicator grows. NCCL may refuse, as it does if
 * NCCL_COMM_ID is set; then the id is one for a new communicator. */
static exo_status
invite(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_err *err)
{
    exo_nccl_message message = {.kind = EXO_NCCL_TELLS_ID, .set = s->key, .value = 1};
    exo_nccl_id id = {0};
    exo_status st = EXO_OK;
    if (s->invited)
        return EXO_OK;
    s->invited = true;
    const int result = g->nccl->CommGetUniqueId(s->parent->comm, &id);
    if (result != EXO_NCCL_SUCCESS) {
        EXO_LOG(WARN, COMM, "engine=nccl event=cannot_grow reason=\"%s\"",
                g->nccl->GetErrorString(result));
        message.value = 0;
        st = exo_nccl_status(g, NULL, g->nccl->GetUniqueId(&id), "the id of a communicator", err);
    }
    memcpy(message.body, &id, sizeof id);
    return st == EXO_OK ? exo_nccl_tell(g, rank, s, &message, err) : st;
}

/* The place of NCCL's rank 0 in a plan to grow. */
static uint32_t
inviter_of(const exo_nccl_set *s, const exo_nccl_plan *plan)
{
    uint32_t p = 0;
    while (p + 1 < s->size && plan->order[p] != 0)
        p++;
    return p;
}

bool
exo_nccl_set_misses(exo_nccl_group *g, const exo_nccl_set *s, uint32_t place)
{
    const exo_nccl_plan *plan = exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, 0)).plan;
    const exo_nccl_note note = exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, place));
    if (!plan)
        return s->place == 0 ? place != 0 && have_offers(g) && !note.has_offer : place == 0;
    return plan->way == EXO_NCCL_GROWN && place == inviter_of(s, plan) && !note.has_id;
}

/* --- Making ----------------------------------------------------------------------------------- */

static uint64_t
lineage_of(const exo_nccl_id *id)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof id->bytes; i++)
        hash = (hash ^ (unsigned char)id->bytes[i]) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

/* Writes NCCL's ranks down, unless they are the places. order: (size), moved. */
static void
set_order(exo_nccl_set *s, uint32_t *order)
{
    uint32_t p = 0;
    while (p < s->size && order[p] == p)
        p++;
    s->order = p < s->size ? order : NULL;
    if (p == s->size)
        exo_free(order);
}

/* NCCL's ranks of a set whose members all have the parent: in the order of their ranks there. */
static exo_status
take_order(exo_nccl_set *s, exo_err *err)
{
    const exo_nccl_remains *r = s->parent;
    uint32_t next = 0, *order = exo_calloc(s->size, sizeof *order);
    if (!order)
        return exo_fail(err, EXO_NOMEM, "no memory for a set of members");
    for (uint32_t at = 0; at < r->size; at++) {
        uint32_t p = 0;
        while (p < s->size && exo_nccl_rank_at(s, p) != r->ranks[at])
            p++;
        if (p < s->size)
            order[p] = next++;
    }
    set_order(s, order);
    return EXO_OK;
}

static exo_status
shrink(exo_nccl_group *g, exo_nccl_set *s, exo_nccl_config *config, int *result, exo_err *err)
{
    exo_status st = take_order(s, err);
    int *places = exo_calloc(s->parent->size, sizeof *places);
    if (st == EXO_OK && !places)
        st = exo_fail(err, EXO_NOMEM, "no memory for a set of members");
    if (st == EXO_OK) {
        const int count = exo_nccl_excluded(s->parent, s, places);
        s->lineage = s->parent->lineage * UINT64_C(1099511628211) ^ s->key;
        *result = g->nccl->CommShrink(s->parent->comm, places, count, &s->comm, config, 0);
    }
    exo_free(places);
    return st;
}

/* Members of the parent have no rank to give, and only that of rank 0 gives the id. */
static exo_status
grow(exo_nccl_group *g, exo_nccl_set *s, const exo_nccl_plan *plan, const exo_nccl_id *id,
     exo_nccl_config *config, int *result, exo_err *err)
{
    const int own = plan->order[s->place];
    uint32_t *order = exo_calloc(s->size, sizeof *order);
    if (!order)
        return exo_fail(err, EXO_NOMEM, "no memory for a set of members");
    for (uint32_t p = 0; p < s->size; p++)
        order[p] = plan->order[p];
    set_order(s, order);
    *result = g->nccl->CommGrow(s->parent ? s->parent->comm : NULL, (int)s->size,
                                s->parent && own != 0 ? NULL : id, s->parent ? -1 : own, &s->comm,
                                config);
    return EXO_OK;
}

static exo_status
keep(exo_nccl_set *s, int *result, exo_err *err)
{
    exo_status st = take_order(s, err);
    if (st != EXO_OK)
        return st;
    s->comm = s->parent->comm;
    s->lineage = s->parent->lineage;
    exo_free(s->parent);
    s->parent = NULL;
    *result = EXO_NCCL_SUCCESS;
    return EXO_OK;
}

/* Calls NCCL. id: to grow by, or for one anew. */
static exo_status
call(exo_nccl_group *g, exo_nccl_set *s, const exo_nccl_plan *plan, const exo_nccl_id *id,
     exo_err *err)
{
    exo_nccl_config config = {.size = sizeof config,
                              .magic = (unsigned)CONFIG_MAGIC,
                              .version = CONFIG_VERSION,
                              .blocking = 0,
                              .cga_cluster_size = INT_MIN, /* NCCL's choice, as the others */
                              .min_ctas = INT_MIN,
                              .max_ctas = INT_MIN};
    int result = EXO_NCCL_SUCCESS;
    exo_status st = EXO_OK;
    s->lineage = lineage_of(id);
    if (s->way == EXO_NCCL_SHRUNK)
        st = shrink(g, s, &config, &result, err);
    else if (s->way == EXO_NCCL_GROWN)
        st = grow(g, s, plan, id, &config, &result, err);
    else if (s->way == EXO_NCCL_KEPT)
        st = keep(s, &result, err);
    else
        result = g->nccl->CommInitRankConfig(&s->comm, (int)s->size, *id, (int)s->place, &config);
    return st == EXO_OK ? exo_nccl_status(g, NULL, result, "a new communicator", err) : st;
}

/* Whether the plan asks only for what this member has. */
static exo_status
check_plan(const exo_nccl_group *g, const exo_nccl_set *s, const exo_nccl_plan *plan, exo_err *err)
{
    const uint32_t size = s->parent ? s->parent->size : 0;
    const bool fine = plan->way == EXO_NCCL_ANEW ||
                      (plan->way == EXO_NCCL_SHRUNK && g->nccl->CommShrink && size > s->size) ||
                      (plan->way == EXO_NCCL_KEPT && size == s->size) ||
                      (plan->way == EXO_NCCL_GROWN && exo_nccl_can_grow(g->nccl) &&
                       size < s->size && is_order(plan->order, s->size) &&
                       (!s->parent || plan->order[s->place] == own_offer(s).rank));
    return fine ? EXO_OK
                : exo_fail(err, EXO_INVAL,
                           "a new communicator: rank %u decides what this member cannot do; all "
                           "members need one version of NCCL",
                           exo_nccl_rank_at(s, 0));
}

static exo_status
begin_making(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_err *err)
{
    exo_status st = claim(g, rank, s, err);
    if (st == EXO_OK)
        st = exo_cuda_side_select(g->members[rank].side, err);
    if (st == EXO_OK)
        st = decide(g, rank, s, err);
    const exo_nccl_plan *plan = exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, 0)).plan;
    if (st != EXO_OK || !plan)
        return st;
    st = check_plan(g, s, plan, err);
    exo_nccl_note invitation = {.id = plan->id};
    if (st == EXO_OK && plan->way == EXO_NCCL_GROWN) {
        if (plan->order[s->place] == 0)
            st = invite(g, rank, s, err);
        invitation = exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, inviter_of(s, plan)));
    }
    if (st != EXO_OK || (plan->way == EXO_NCCL_GROWN && !invitation.has_id))
        return st;
    s->way = plan->way == EXO_NCCL_GROWN && !invitation.grows ? EXO_NCCL_ANEW : plan->way;
    if (s->way == EXO_NCCL_ANEW) {
        exo_nccl_bury(g->nccl, s->parent);
        s->parent = NULL;
    }
    st = call(g, s, plan, &invitation.id, err);
    /* a shrink writes s->comm when it is done */
    s->phase =
        st == EXO_OK || (s->way != EXO_NCCL_SHRUNK && s->comm) ? EXO_NCCL_MAKING : EXO_NCCL_NEW;
    return st;
}

/* What it was made from is of no use any more. */
static void
leave_parent(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s)
{
    exo_nccl_member *m = &g->members[rank];
    if (s->parent && s->way == EXO_NCCL_GROWN) {
        exo_nccl_finish(g->nccl, s->parent, exo_deadline(exo_clock_real(), m->timeout));
        m->has_ending = true;
    } else {
        exo_nccl_bury(g->nccl, s->parent);
    }
    s->parent = NULL;
}

static void
be_ready(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s)
{
    static const char *const ways[] = {[EXO_NCCL_ANEW] = "anew",
                                       [EXO_NCCL_SHRUNK] = "shrunk",
                                       [EXO_NCCL_GROWN] = "grown",
                                       [EXO_NCCL_KEPT] = "kept"};
    EXO_LOG(INFO, COMM, "engine=nccl event=communicator way=%s rank=%u members=%u",
            s->phase == EXO_NCCL_RESUMING ? "resumed" : ways[s->way], rank, s->size);
    s->phase = EXO_NCCL_READY;
    leave_parent(g, rank, s);
}

/* --- Memory ----------------------------------------------------------------------------------- */

exo_status
exo_nccl_set_suspend(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_err *err)
{
    exo_status st = exo_cuda_side_select(g->members[rank].side, err);
    if (st != EXO_OK)
        return st;
    const int result = g->nccl->CommSuspend(s->comm, EXO_NCCL_SUSPEND_MEM);
    if (result ==
        EXO_NCCL_INVALID_USAGE) /* as to all members: its memory manager is switched off */
        return exo_fail(err, EXO_UNSUPPORTED, "engine nccl: ncclCommSuspend: %s",
                        g->nccl->GetErrorString(result));
    s->phase = EXO_NCCL_SUSPENDED;
    return exo_nccl_status(g, s->comm, result, "ncclCommSuspend", err);
}

static exo_status
resume(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_err *err)
{
    exo_status st = exo_cuda_side_select(g->members[rank].side, err);
    if (st != EXO_OK)
        return st;
    s->phase = EXO_NCCL_RESUMING;
    return exo_nccl_status(g, s->comm, g->nccl->CommResume(s->comm), "ncclCommResume", err);
}

exo_status
exo_nccl_set_make(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, bool *ready, exo_err *err)
{
    bool busy = false;
    exo_status st = s->phase == EXO_NCCL_NEW         ? begin_making(g, rank, s, err)
                    : s->phase == EXO_NCCL_SUSPENDED ? resume(g, rank, s, err)
                                                     : EXO_OK;
    if (st == EXO_OK && (s->phase == EXO_NCCL_MAKING || s->phase == EXO_NCCL_RESUMING)) {
        st = exo_nccl_set_poll(g, s, &busy, err);
        if (st == EXO_OK && !busy)
            be_ready(g, rank, s);
    }
    *ready = st == EXO_OK && s->phase == EXO_NCCL_READY;
    return st;
}
