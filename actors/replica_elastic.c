/* A replica as a member of an elastic run among processes: see replica.h and docs/elastic.md.
 *
 * The states of a step in which the strategy may communicate:
 *
 *              exo_replica_exchange       strategy.step and the barrier end well
 *     (none) ----------------------> doubtful ------------------------------------> done
 *        ^                              |
 *        |                              | a member is lost; exo_replica_regroup:
 *        |     no member is beyond it   |   a member is beyond it
 *        +------------------------------+------------------------------------> done
 *          the copy is restored, and
 *          the exchange is repeated
 *
 * 1. Every member calls the barrier after its part of the step. So if one member has passed the
 *    barrier, all have finished the step, and the step counts for all.
 * 2. If no living member has passed it, the step counts for none.
 *
 * Nodes that are apart (exo_strategy_class) have no barrier, and no step is in doubt: what a node knows of
 * its own step decides. If the step fails because a member is lost, the copy is restored at once, and the
 * exchange is repeated in the next epoch. What it had sent to the server is then sent again; the server
 * knows what it has had.
 *
 * The server of the strategy's communicator stays where it is: its process hands the state on to the
 * communicator of the next epoch. If it was lost, the strategy of another node begins a new one.
 *
 * Owner of the state: the computing lane, except where exo_membership says otherwise. */
#include "actors/replica.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/object.h>

#include "base/parallel.h"
#include "comm/far.h"

#define SLICE (50 * EXO_MS) /* between two looks whether a transfer was abandoned */

enum {
    DIGEST = 64,      /* digits of a SHA-256 */
    HEAD = 2 * DIGEST /* of the bytes of a state: the SHA-256 of its layout, and its own */
};

/* --- Lists of the state ----------------------------------------------------------------------- */

static exo_status
make_list(exo_replica *r, bool gradients, exo_state **out, exo_err *err)
{
    exo_membership *m = &r->member;
    exo_status st = exo_state_new(out, err);
    if (st != EXO_OK)
        return st;
    exo_replica_list_state(r, *out, &m->none[0], &m->none[1]);
    exo_state_add_u64(*out, "met", &m->met);
    if (gradients && r->node.grads.data)
        exo_state_add_array(*out, "gradients", r->node.grads);
    return EXO_OK;
}

exo_status
exo_replica_elastic_open(exo_replica *r, exo_err *err)
{
    exo_membership *m = &r->member;
    if (!exo_replica_is_elastic(r) || m->state)
        return EXO_OK;
    m->home = r->rank == 0; /* a node that joins has none: exo_replica_join */
    exo_status st = make_list(r, false, &m->state, err);
    if (st != EXO_OK || r->fit->sim) /* no node dies within a step on the virtual clock */
        return st;
    st = make_list(r, true, &m->undo, err);
    if (st == EXO_OK && !(m->copy = exo_alloc_aligned(exo_state_bytes(m->undo))))
        st = exo_fail(err, EXO_NOMEM, "no memory for a second copy of a node's state");
    if (st != EXO_OK)
        exo_replica_elastic_close(r);
    return st;
}

void
exo_replica_elastic_close(exo_replica *r)
{
    if (!r)
        return;
    exo_state_free(&r->member.state);
    exo_state_free(&r->member.undo);
    exo_free(r->member.copy);
    r->member.copy = NULL;
    exo_server_estate_release(&r->member.estate);
}

/* --- A step ----------------------------------------------------------------------------------- */

static void
count_as_done(exo_replica *r)
{
    r->member.doubtful = false;
    r->member.again = false;
    r->member.met = r->node.step + 1;
}

/* Compares the hashes of all members' parameters. */
static exo_status
verify(exo_replica *r, exo_err *err)
{
    uint32_t count = r->node.num_nodes;
    char own[DIGEST + 1], *all = exo_calloc(count, DIGEST);
    float *params = exo_calloc(r->node.numel, sizeof *params);
    exo_status st = all && params
                        ? exo_array_read(r->node.params, params, err)
                        : exo_fail(err, EXO_NOMEM, "no memory to compare %u nodes", count);
    if (st == EXO_OK)
        exo_sha256(params, r->node.numel * sizeof *params, own);
    exo_free(params);
    if (st == EXO_OK)
        memcpy(all + (size_t)r->node.rank * DIGEST, own, DIGEST);
    if (st == EXO_OK)
        st = exo_all_gather(
            r->side_group,
            (exo_array){.data = all, .count = (size_t)count * DIGEST, .dtype = EXO_U8}, err);
    for (uint32_t i = 0; st == EXO_OK && i < count; i++)
        if (memcmp(all + (size_t)i * DIGEST, own, DIGEST) != 0)
            st = exo_fail(err, EXO_FAILED,
                          "after step %llu the parameters of node_%u are not those of another node",
                          (unsigned long long)r->node.step + 1, r->rank);
    exo_free(all);
    return st;
}

/* Restores the copy. */
static exo_status
undo(exo_replica *r, exo_err *err)
{
    exo_membership *m = &r->member;
    exo_status st = exo_state_restore(m->undo, m->copy, err);
    r->node.stepped = m->was_stepped;
    m->doubtful = st != EXO_OK;
    m->again = true;
    return st;
}

/* The rest of a step that may be in doubt. */
static exo_status
end_meeting(exo_replica *r, exo_err *err)
{
    exo_status st = r->fit->verify ? verify(r, err) : EXO_OK;
    return st == EXO_OK ? exo_barrier(r->side_group, err) : st;
}

exo_status
exo_replica_exchange(exo_replica *r, exo_err *err)
{
    exo_membership *m = &r->member;
    exo_status st = EXO_OK;
    const bool meets = m->state && exo_strategy_meets(r->strategy, r->node.step);
    if (!meets || !m->undo) {
        st = exo_strategy_step(r->strategy, &r->node, err);
        if (st == EXO_OK && meets)
            count_as_done(r);
        return st;
    }
    m->was_stepped = r->node.stepped;
    st = exo_state_store(m->undo, m->copy, err);
    if (st != EXO_OK)
        return st;
    m->doubtful = true;
    st = exo_strategy_step(r->strategy, &r->node, err);
    if (exo_strategy_is_apart(r->strategy)) {
        exo_status undone = st == EXO_PEER_LOST ? undo(r, NULL) : EXO_OK;
        st = undone == EXO_OK ? st : exo_fail(err, undone, "a step cannot be undone");
    } else if (st == EXO_OK) {
        st = end_meeting(r, err);
    }
    if (st == EXO_OK)
        count_as_done(r);
    return st;
}

/* Ends the doubt about a step. */
static exo_status
resolve(exo_replica *r, uint64_t furthest, bool *done, exo_err *err)
{
    exo_membership *m = &r->member;
    *done = m->doubtful && furthest > r->node.step;
    if (*done) {
        count_as_done(r);
        r->node.step++;
        return EXO_OK;
    }
    return m->doubtful ? undo(r, err) : EXO_OK;
}

/* --- Members ---------------------------------------------------------------------------------- */

static exo_status
check_members(const exo_replica *r, const exo_epoch *e, uint32_t *place, exo_err *err)
{
    const uint32_t *ranks = e->ranks;
    bool found = false, home = false;
    if (e->number <= r->member.epoch)
        return exo_fail(err, EXO_INVAL, "regroup: epoch: %llu is not after %llu",
                        (unsigned long long)e->number, (unsigned long long)r->member.epoch);
    for (size_t i = 0; i < e->count; i++) {
        if (ranks[i] >= r->fit->num_nodes || (i > 0 && ranks[i] <= ranks[i - 1]))
            return exo_fail(err, EXO_INVAL,
                            "regroup: ranks: expected ascending ranks of the run's nodes");
        if (ranks[i] == r->rank) {
            *place = (uint32_t)i;
            found = true;
        }
        home = home || ranks[i] == e->home;
    }
    if (!home)
        return exo_fail(err, EXO_INVAL, "regroup: home: node_%u is no member", e->home);
    return found ? EXO_OK
                 : exo_fail(err, EXO_INVAL, "regroup: ranks: node_%u is not among them", r->rank);
}

/* Opens a communicator's group of all ranks, unless it is open, and the group among the members in
 * it. */
static exo_status
open_group(exo_replica *r, exo_comm *comm, exo_group **whole, exo_group **out,
           const uint32_t *ranks, size_t count, exo_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "node_%u", r->rank);
    exo_status st = *whole ? EXO_OK : exo_group_open(whole, comm, r->rank, name, err);
    if (st != EXO_OK)
        return st;
    exo_group_set_timeout(*whole, r->fit->timeout);
    return exo_group_among(out, *whole, ranks, (uint32_t)count, err);
}

static exo_status
connect_members(exo_replica *r, const exo_epoch *e, int64_t *unreached, exo_err *err)
{
    const uint32_t *ranks = e->ranks;
    exo_ref *nodes = exo_calloc(r->fit->num_nodes, sizeof *nodes);
    exo_time deadline = exo_deadline(exo_runtime_clock(r->place.runtime), 10 * EXO_SECOND);
    exo_status st =
        nodes ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %u nodes", r->fit->num_nodes);
    for (size_t i = 0; st == EXO_OK && i < e->count; i++) {
        if (ranks[i] == r->rank)
            nodes[ranks[i]] = r->place.self;
        else
            st = exo_ref_import(r->place.runtime, &e->actors[i], deadline, &nodes[ranks[i]], err);
        if (st == EXO_TIMEOUT)
            *unreached = ranks[i];
    }
    if (st == EXO_OK)
        st = exo_comm_far_connect(r->comm, nodes, err);
    if (st == EXO_OK)
        st = exo_comm_far_connect(r->side, nodes, err);
    exo_free(nodes);
    return st;
}

/* Leaves the groups of the epoch before, of communicators that all epochs share. */
static void
leave_groups(exo_replica *r)
{
    exo_group **const groups[] = {&r->group, &r->side_group};
    for (size_t i = 0; i < 2; i++)
        if (r->member.whole[i])
            exo_group_close(groups[i]);
        else
            r->member.whole[i] = *groups[i]; /* of the first epoch: all ranks */
    r->group = r->side_group = r->node.group = NULL;
}

/* Leaves the communicators of the epoch before, and makes those of this one. Messages of other
 * members may arrive as soon as these are made. */
static exo_status
change_comms(exo_replica *r, const exo_epoch *e, exo_err *err)
{
    exo_membership *m = &r->member;
    m->traffic = exo_replica_traffic(r);
    m->waited = exo_replica_waited(r);
    if (r->fit->comm) {
        leave_groups(r);
        m->epoch = e->number;
        return EXO_OK;
    }
    if (m->home && r->comm && !m->estate.state)
        exo_server_take_estate(r->comm, &m->estate);
    if (r->comm)
        exo_comm_far_move_on(r->comm);
    exo_replica_leave_comms(r);
    r->node.group = NULL;
    exo_comm *comm = NULL, *side = NULL;
    exo_status st = exo_replica_open_comms(r, e->number, e->home, &comm, &side, err);
    m->home = e->home == r->rank;
    if (st == EXO_OK && m->home && comm)
        exo_server_leave_estate(comm, &m->estate);
    exo_server_estate_release(&m->estate);
    pthread_mutex_lock(&m->lock);
    r->comm = comm;
    r->side = side;
    m->epoch = e->number;
    m->interrupted = false;
    pthread_mutex_unlock(&m->lock);
    return st;
}

exo_status
exo_replica_regroup(exo_replica *r, const exo_epoch *e, bool *done, int64_t *unreached,
                    exo_err *err)
{
    exo_membership *m = &r->member;
    uint32_t place = 0;
    *done = false;
    *unreached = EXO_EPOCH_NOBODY;
    exo_status st = check_members(r, e, &place, err);
    if (st == EXO_OK)
        st = resolve(r, e->furthest, done, err);
    if (st == EXO_OK)
        st = change_comms(r, e, err);
    if (st == EXO_OK)
        st = open_group(r, r->comm, &m->whole[0], &r->group, e->ranks, e->count, err);
    if (st == EXO_OK)
        st = open_group(r, r->side, &m->whole[1], &r->side_group, e->ranks, e->count, err);
    r->node.group = r->group;
    r->node.rank = place;
    r->node.num_nodes = (uint32_t)e->count;
    /* Before the first message of the epoch, which comes after the answers of all members. */
    if (st == EXO_OK) {
        st = exo_strategy_regroup(r->strategy, &r->node, e->ranks, m->fresh, err);
        m->fresh = m->fresh && st != EXO_OK;
    }
    return st == EXO_OK && !r->fit->comm ? connect_members(r, e, unreached, err) : st;
}

/* --- The state of another node ---------------------------------------------------------------- */

exo_status
exo_replica_give(exo_replica *r, exo_payload *out, exo_err *err)
{
    const exo_membership *m = &r->member;
    uint64_t size = exo_state_bytes(m->state);
    char digest[DIGEST + 1], *bytes = exo_alloc_aligned(HEAD + size);
    exo_status st = bytes ? exo_state_layout(m->state, digest, err)
                          : exo_fail(err, EXO_NOMEM, "no memory to give the state of a node");
    if (st == EXO_OK) {
        memcpy(bytes, digest, DIGEST);
        st = exo_state_store(m->state, bytes + HEAD, err);
    }
    if (st != EXO_OK) {
        exo_free(bytes);
        return st;
    }
    exo_sha256(bytes + HEAD, size, digest);
    memcpy(bytes + DIGEST, digest, DIGEST);
    *out = (exo_payload){.data = bytes, .size = HEAD + size, .release = exo_free};
    return EXO_OK;
}

/* Checks a state before any of it is used. */
static exo_status
check_state(const exo_replica *r, const exo_payload *given, char sha256[DIGEST + 1], exo_err *err)
{
    char layout[DIGEST + 1];
    const char *bytes = given->data;
    if (given->size != HEAD + exo_state_bytes(r->member.state))
        return exo_fail(err, EXO_INVAL,
                        "join: the other node's state has %zu bytes instead of %llu", given->size,
                        (unsigned long long)(HEAD + exo_state_bytes(r->member.state)));
    exo_status st = exo_state_layout(r->member.state, layout, err);
    if (st != EXO_OK)
        return st;
    if (memcmp(layout, bytes, DIGEST) != 0)
        return exo_fail(err, EXO_INVAL,
                        "join: the other node's state has other entries: check that its worker has "
                        "the version of this program");
    exo_sha256(bytes + HEAD, given->size - HEAD, sha256);
    return memcmp(sha256, bytes + DIGEST, DIGEST) == 0
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "join: the SHA-256 of the other node's state is wrong");
}

/* Waits for the other node's state, until the request is abandoned. */
static exo_status
await_state(exo_replica *r, exo_future *future, const exo_payload **given, exo_err *err)
{
    const exo_clock *clock = exo_runtime_clock(r->place.runtime);
    exo_status st = EXO_TIMEOUT;
    exo_compute_pause();
    while (st == EXO_TIMEOUT && !exo_future_ready(future) && !r->member.interrupted)
        st = exo_wait(future, exo_deadline(clock, SLICE), given, err);
    exo_compute_resume();
    if (exo_future_ready(future))
        return exo_wait(future, INT64_MAX, given, err);
    return exo_fail(err, EXO_PEER_LOST, "join: the other node does not answer");
}

static exo_status
fetch_state(exo_replica *r, const exo_actor_id *from, char sha256[DIGEST + 1], exo_err *err)
{
    const exo_clock *clock = exo_runtime_clock(r->place.runtime);
    exo_future *future = NULL;
    const exo_payload *given = NULL;
    exo_payload stable = {0};
    exo_ref donor;
    exo_status st =
        exo_ref_import(r->place.runtime, from, exo_deadline(clock, 10 * EXO_SECOND), &donor, err);
    if (st == EXO_OK)
        st = exo_call(r->place.runtime, donor, "give", (exo_payload){0}, INT64_MAX, &future, err);
    if (st == EXO_OK)
        st = await_state(r, future, &given, err);
    if (st == EXO_OK && !given)
        st = exo_fail(err, EXO_INVAL, "join: the other node gave nothing");
    if (st == EXO_OK)
        st = exo_payload_stable(&stable, given);
    if (st == EXO_OK)
        st = check_state(r, &stable, sha256, err);
    if (st == EXO_OK)
        st = exo_state_restore(r->member.state, (const char *)stable.data + HEAD, err);
    exo_payload_release(&stable);
    exo_future_drop(&future);
    return st;
}

exo_status
exo_replica_join(exo_replica *r, const exo_actor_id *from, uint64_t position, uint64_t bytes_sent,
                 char sha256[DIGEST + 1], exo_err *err)
{
    exo_membership *m = &r->member;
    m->interrupted = false;
    exo_status st = EXO_OK;
    if (!r->node.optim)
        st = exo_strategy_start(r->strategy, &r->node, err);
    if (st == EXO_OK)
        st = exo_replica_elastic_open(r, err);
    if (st == EXO_OK)
        st = fetch_state(r, from, sha256, err);
    if (st != EXO_OK)
        return st;
    if (r->fit->comm)
        leave_groups(r); /* their traffic is among the bytes of its earlier life */
    m->doubtful = m->again = r->node.stepped = m->home = false;
    m->fresh = true;
    r->bytes_before = bytes_sent;
    m->traffic = (exo_traffic){0};
    m->waited = 0;
    exo_loader_close(&r->loader);
    return exo_replica_open_loader(r, position, err);
}
