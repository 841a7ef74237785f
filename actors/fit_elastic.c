/* Changes of the members of an elastic run: see fit_elastic.h. This file has three parts: the
 * beginning and the end, the members' new epochs, and the nodes that come back. */
#include "actors/fit_elastic.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "actors/fit_engine.h"
#include "actors/fit_reach.h"
#include "actors/fit_recruit.h"
#include "base/printable.h"
#include "base/traffic.h"

#define NAP         (10 * EXO_MS)
#define AGAIN       (200 * EXO_MS) /* between two requests for a node */
#define CLOSE_LIMIT (30 * EXO_SECOND)
#define APART_FIRST                                                                                \
    EXO_SECOND /* until a node is made in the place of one that others did not reach */

enum {
    APART_DOUBLED = 5 /* so many times at most: 32 s */
};

/* --- Beginning and end ------------------------------------------------------------------------ */

exo_status
exo_fit_elastic_open(struct run *run, exo_err *err)
{
    run->samples = exo_fit_samples(run);
    if (!run->fit->elastic)
        return EXO_OK;
    const exo_engine_class *engine = run->fit->engine;
    const unsigned changes = EXO_ENGINE_POST | EXO_ENGINE_SOME; /* an epoch is a new communicator */
    if (run->far && exo_comm_is_foreign(engine) && (engine->promises & changes) != changes)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "elastic: the engine %s cannot change its members: choose `net` or `auto`",
                        engine->name);
    run->elastic =
        exo_calloc(1, sizeof *run->elastic + run->fit->num_nodes * sizeof run->elastic->seats[0]);
    if (!run->elastic)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", run->fit->num_nodes);
    run->cast.explain = NULL; /* it waits, and a death is no error here */
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        uint64_t position = exo_fit_first_position(run, r);
        run->elastic->seats[r].step = run->elastic->seats[r].at = run->step;
        run->elastic->seats[r].until = run->step;
        run->elastic->seats[r].position = position == UINT64_MAX ? run->step : position;
        run->elastic->seats[r].bytes = run->bytes_sent;
    }
    run->samples = exo_fit_samples(run);
    return run->far ? exo_recruiter_open(run->far->runtime, run->far->run, run->opts->resources,
                                         run->opts->num_resources, &run->elastic->recruiter, err)
                    : EXO_OK;
}

static void
stop_node(struct run *run, exo_ref *node)
{
    if (node->id)
        exo_stop(run->cast.runtime, *node, false, NULL);
    *node = (exo_ref){0};
}

void
exo_fit_elastic_close(struct run *run)
{
    struct exo_fit_elastic *e = run->elastic;
    run->elastic = NULL;
    for (uint32_t r = 0; e && r < run->fit->num_nodes; r++) {
        struct exo_fit_seat *s = &e->seats[r];
        exo_time limit = exo_deadline(run->clock, CLOSE_LIMIT);
        if (s->recruit && exo_wait(s->recruit, limit, NULL, NULL) != EXO_TIMEOUT)
            exo_recruiter_answer(s->recruit, &s->ready, NULL);
        stop_node(run, &s->ready);
        stop_node(run, &s->sleeper);
        exo_future_drop(&s->asleep);
        exo_future_drop(&s->recruit);
        exo_future_drop(&s->joining);
    }
    if (e && e->recruiter.id)
        exo_stop(run->cast.runtime, e->recruiter, false, NULL);
    exo_free(e);
}

/* --- Epochs ----------------------------------------------------------------------------------- */

static void
nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
}

static void
leave_out_dead(struct run *run)
{
    for (uint32_t r = 0; r < run->cast.count; r++) {
        char cause[EXO_ERR_TEXT];
        if (exo_fit_is_member(run, r) && !run->cast.futures[r] &&
            exo_cause(run->cast.runtime, run->cast.actors[r], cause, sizeof cause) == EXO_OK)
            exo_fit_leave_out(run, r, cause);
    }
}

struct members {
    uint64_t furthest, nearest; /* the most and the fewest steps of a member */
    uint64_t met;               /* 1 + the last step in which they met; 0: none */
    uint32_t home;              /* the rank with the server, or with the newest of its parameters */
    bool serves;
    uint64_t version;
};

/* Notes a node's report. A lost server begins anew with the node that knows the most of it. */
static void
note_report(struct run *run, uint32_t rank, const Exo__Train__NodeReport *m, struct members *out)
{
    run->elastic->seats[rank].at = m->step;
    out->furthest = m->step > out->furthest ? m->step : out->furthest;
    out->nearest = m->step < out->nearest ? m->step : out->nearest;
    out->met = m->met > out->met ? m->met : out->met;
    if (out->serves || (!m->serves && out->home != UINT32_MAX && m->version <= out->version))
        return;
    out->home = rank;
    out->serves = m->serves;
    out->version = m->version;
}

/* Asks all members how far they are. A request for a report fails with PEER_LOST only if the node
 * itself is lost, whatever else is known of it. */
static exo_status
ask_for_reports(struct run *run, exo_err *err)
{
    bool lost = false;
    exo_err why = {0};
    for (uint32_t r = 0; r < run->cast.count; r++)
        if (exo_fit_is_member(run, r) &&
            exo_fit_ask(run, r, "report", NULL, &why) == EXO_PEER_LOST) {
            exo_fit_leave_out(run, r, why.text);
            lost = true;
        }
    exo_status st = exo_fit_await_all(run, EXO_OK, err);
    for (uint32_t r = 0; r < run->cast.count; r++)
        if (exo_fit_is_member(run, r) && run->cast.replies[r] &&
            exo_wait(run->cast.replies[r], INT64_MAX, NULL, &why) == EXO_PEER_LOST) {
            exo_fit_leave_out(run, r, why.text);
            lost = true;
        }
    return st == EXO_OK && lost ? EXO_PEER_LOST : st;
}

static exo_status
gather(struct run *run, struct members *out, exo_err *err)
{
    *out = (struct members){.nearest = UINT64_MAX, .home = UINT32_MAX};
    exo_status st = ask_for_reports(run, err);
    for (uint32_t r = 0; st == EXO_OK && r < run->cast.count; r++) {
        ProtobufCMessage *reply = NULL;
        if (!exo_fit_is_member(run, r))
            continue;
        st = exo_fit_reply(run, r, &exo__train__node_report__descriptor, &reply, err);
        if (st == EXO_OK)
            note_report(run, r, (const Exo__Train__NodeReport *)reply, out);
        exo_args_free(&reply);
    }
    exo_cast_drop(&run->cast);
    return st;
}

/* The position of lost ranks: what they did after the last meeting is lost with them. Of nodes that are
 * apart it is not known which of their last batches count; none of them is used again. */
static void
settle_lost(struct run *run, const struct members *members)
{
    for (uint32_t r = 0; r < run->cast.count; r++) {
        struct exo_fit_seat *s = &run->elastic->seats[r];
        const uint64_t met = run->apart ? s->until : members->met;
        if (s->lost && met > s->step)
            s->position += met - s->step;
        s->lost = false;
    }
}

/* Has no node made for a rank for some time, the longer the more often it could not reach others. */
static void
put_off(struct run *run, uint32_t rank)
{
    struct exo_fit_seat *s = &run->elastic->seats[rank];
    s->again = exo_now(run->clock) + (APART_FIRST << s->put_off);
    s->put_off += s->put_off < APART_DOUBLED;
}

static void
leave_out_unreached(struct run *run, uint32_t rank, const char *cause)
{
    exo_ref node = run->cast.actors[rank];
    exo_fit_leave_out(run, rank, cause);
    stop_node(run, &node); /* it would join with the state of another node in any case */
    put_off(run, rank);
}

/* Reads the answers to `regroup`. cause: of the first node that cannot reach another one; "": none. */
static exo_status
read_regrouped(struct run *run, exo_fit_reach *ranks, char cause[EXO_ERR_TEXT], exo_err *err)
{
    static const exo_args regrouped = {.method = "regroup",
                                       .fields = &exo__train__node_regrouped__descriptor};
    exo_status st = EXO_OK;
    cause[0] = '\0';
    for (uint32_t r = 0; st == EXO_OK && r < run->cast.count; r++) {
        const exo_payload *reply = ranks[r].is_member ? exo_cast_reply(&run->cast, r) : NULL;
        ProtobufCMessage *message = NULL;
        if (!reply || reply->size == 0)
            continue;
        st = exo_args_decode(&regrouped, reply, &message, err);
        const Exo__Train__NodeRegrouped *m = (const Exo__Train__NodeRegrouped *)message;
        ranks[r].fails = st == EXO_OK;
        ranks[r].to = st == EXO_OK ? m->unreached : 0;
        if (st == EXO_OK && !cause[0])
            exo_format_cut(cause, EXO_ERR_TEXT, "node_%u cannot reach node_%u: %s", r, m->unreached,
                           m->cause);
        exo_args_free(&message);
    }
    exo_cast_drop(&run->cast);
    return st;
}

/* After `regroup`. ranks: which are members, and their processes. PEER_LOST: some members cannot connect
 * to others, and those of one process were left out; the others need another epoch. */
static exo_status
hear_of_unreached(struct run *run, exo_fit_reach *ranks, exo_err *err)
{
    const uint32_t count = run->cast.count;
    char cause[EXO_ERR_TEXT];
    exo_status st = read_regrouped(run, ranks, cause, err);
    if (st != EXO_OK || !cause[0])
        return st;
    bool *leaves = exo_calloc(count, sizeof *leaves);
    if (!leaves)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", count);
    const uint32_t left = exo_fit_find_unreached(ranks, count, run->elastic->home, leaves);
    for (uint32_t r = 0; left > 0 && r < count; r++)
        if (leaves[r])
            leave_out_unreached(run, r, cause);
    exo_free(leaves);
    return exo_fail(err, left > 0 ? EXO_PEER_LOST : EXO_TIMEOUT, "%s", cause);
}

/* Sends all members into the next epoch. */
static exo_status
regroup(struct run *run, const struct members *members, exo_err *err)
{
    uint32_t count = exo_fit_num_members(run), at = 0;
    uint32_t *ranks = exo_calloc(count, sizeof *ranks);
    uint64_t *nodes = exo_calloc(count, sizeof *nodes), *actors = exo_calloc(count, sizeof *actors);
    exo_fit_reach *reach = exo_calloc(run->cast.count, sizeof *reach);
    exo_status st = ranks && nodes && actors && reach
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "no memory for the members of a run");
    for (uint32_t r = 0; st == EXO_OK && r < run->cast.count; r++) {
        exo_actor_id id = {0};
        if (!exo_fit_is_member(run, r))
            continue;
        st = exo_ref_export(run->cast.runtime, run->cast.actors[r], &id, err);
        ranks[at] = r;
        nodes[at] = id.node;
        reach[r] = (exo_fit_reach){.is_member = true, .process = id.node};
        actors[at++] = id.id;
    }
    Exo__Train__NodeRegroup m = EXO__TRAIN__NODE_REGROUP__INIT;
    m.epoch = ++run->elastic->epoch;
    m.furthest = members->furthest;
    m.has_home = m.has_reads = m.reads = true;
    m.home = run->elastic->home = members->home;
    m.ranks = ranks;
    m.nodes = nodes;
    m.actors = actors;
    m.n_ranks = m.n_nodes = m.n_actors = count;
    if (st == EXO_OK)
        st = exo_fit_have_all(run, "regroup", &m.base, err);
    if (st == EXO_OK)
        st = hear_of_unreached(run, reach, err);
    exo_free(reach);
    exo_free(ranks);
    exo_free(nodes);
    exo_free(actors);
    return st;
}

static exo_status
fail_without_nodes(const struct run *run, exo_err *err)
{
    const bool saves = run->opts->save_dir && run->opts->checkpoint_interval > 0;
    char last[EXO_ERR_TEXT];
    return exo_fail(err, EXO_PEER_LOST,
                    "all nodes of the run are lost, and their state with them%s; %s",
                    saves ? ": --resume continues from the last checkpoint"
                          : ": with checkpoint_interval, --resume could continue",
                    exo_cut(last, 200, run->elastic->last));
}

exo_status
exo_fit_settle(struct run *run, exo_err *err)
{
    exo_time limit = exo_deadline(run->clock, run->fit->timeout);
    for (;;) {
        struct members members = {0};
        leave_out_dead(run);
        if (exo_fit_num_members(run) == 0)
            return fail_without_nodes(run, err);
        exo_status st = gather(run, &members, err);
        if (st == EXO_OK) {
            settle_lost(run, &members);
            st = regroup(run, &members, err);
        }
        if (st != EXO_PEER_LOST || exo_now(run->clock) > limit)
            return st;
        nap(); /* the process of a lost node may end a moment after its connections */
    }
}

/* --- Nodes that come back --------------------------------------------------------------------- */

static void
ask_recruiter(struct run *run, uint32_t rank)
{
    struct exo_fit_seat *s = &run->elastic->seats[rank];
    exo_payload start = {0};
    exo_time now = exo_now(run->clock);
    if (now < s->again)
        return;
    s->again = now + AGAIN;
    if (exo_fit_describe_node(run, rank, exo_fit_now(run), &start, NULL) == EXO_OK)
        exo_recruiter_ask(run->cast.runtime, run->elastic->recruiter, rank, &start, &s->recruit,
                          NULL);
}

/* Takes the recruiter's answer. That no worker has room for the node, or is there, is usual; another
 * reason why the node cannot be made is logged, once for each time that it is absent. */
static void
take_recruit(struct run *run, uint32_t rank)
{
    struct exo_fit_seat *s = &run->elastic->seats[rank];
    exo_err why = {0};
    const bool made = exo_recruiter_answer(s->recruit, &s->ready, &why);
    const bool usual = why.code == EXO_FULL || why.code == EXO_TIMEOUT || why.code == EXO_PEER_LOST;
    exo_future_drop(&s->recruit);
    if (!made && !usual && !s->refused)
        EXO_LOG(WARN, TRAIN, "node=%u reason='%s' no node can be made in its place", rank,
                why.text);
    s->refused = !made && (s->refused || !usual);
}

/* Follows the search for nodes in place of the absent ones. */
static void
look_for_nodes(struct run *run)
{
    for (uint32_t r = 0; run->far && r < run->cast.count; r++) {
        struct exo_fit_seat *s = &run->elastic->seats[r];
        if (exo_fit_is_member(run, r) || s->ready.id)
            continue;
        if (s->asleep && exo_future_ready(s->asleep)) {
            bool dead = exo_wait(s->asleep, INT64_MAX, NULL, NULL) == EXO_PEER_LOST &&
                        exo_cause(run->cast.runtime, s->sleeper, (char[2]){0}, 2) == EXO_OK;
            s->ready = dead ? (exo_ref){0} : s->sleeper;
            s->sleeper = (exo_ref){0};
            exo_future_drop(&s->asleep);
        } else if (s->recruit && exo_future_ready(s->recruit)) {
            take_recruit(run, r);
        } else if (!s->asleep && !s->recruit) {
            ask_recruiter(run, r);
        }
    }
}

static Exo__Train__NodeJoin
join_of(const struct exo_fit_seat *s, const exo_actor_id *donor)
{
    Exo__Train__NodeJoin m = EXO__TRAIN__NODE_JOIN__INIT;
    m.node = donor->node;
    m.actor = donor->id;
    m.position = s->position;
    m.bytes_sent = s->bytes;
    return m;
}

static exo_status
ask_to_join(struct run *run, uint32_t rank, const exo_actor_id *donor, exo_err *err)
{
    struct exo_fit_seat *s = &run->elastic->seats[rank];
    const Exo__Train__NodeJoin m = join_of(s, donor);
    run->cast.actors[rank] = s->ready;
    return exo_fit_ask(run, rank, "join", &m.base, err);
}

/* Makes a node a member that has the state of another one. */
static void
seat_node(struct run *run, uint32_t rank, const Exo__Train__NodeJoined *m)
{
    struct exo_fit_seat *s = &run->elastic->seats[rank];
    char text[160];
    run->cast.actors[rank] = s->ready;
    s->ready = (exo_ref){0};
    s->step = s->at = s->until = m->step;
    s->lives++;
    s->put_off = 0;
    run->elastic->state_bytes = m->bytes;
    run->elastic->joins++;
    snprintf(text, sizeof text, "its state of %" PRIu64 " bytes has the SHA-256 %.64s", m->bytes,
             m->sha256);
    exo_fit_tell(run, "joined", rank, text);
}

/* Reads a node's answer to `join`; false: it is no member. step: that at which the members are;
 * UINT64_MAX: they are apart. */
static bool
has_joined(struct run *run, uint32_t rank, exo_future *answer, uint64_t step)
{
    static const exo_args joined = {.method = "join",
                                    .fields = &exo__train__node_joined__descriptor};
    struct exo_fit_seat *s = &run->elastic->seats[rank];
    ProtobufCMessage *reply = NULL;
    const exo_payload *payload = NULL;
    exo_err why = {0};
    char cause[EXO_ERR_TEXT];
    exo_status st = answer ? exo_wait(answer, INT64_MAX, &payload, &why) : EXO_PEER_LOST;
    if (st == EXO_OK)
        st = payload ? exo_args_decode(&joined, payload, &reply, &why) : EXO_INVAL;
    if (st == EXO_OK) {
        const Exo__Train__NodeJoined *m = (const Exo__Train__NodeJoined *)reply;
        const bool fits = step == UINT64_MAX || m->step == step; /* else it joins again */
        if (fits)
            seat_node(run, rank, m);
        exo_args_free(&reply);
        return fits;
    }
    run->cast.actors[rank] = (exo_ref){0};
    bool dead = exo_cause(run->cast.runtime, s->ready, cause, sizeof cause) == EXO_OK;
    if (!dead && st != EXO_PEER_LOST) {
        EXO_LOG(WARN, TRAIN, "node=%u reason='%s' the node cannot join; another one is made", rank,
                why.text);
        stop_node(run, &s->ready);
        put_off(run, rank);
    }
    if (dead || s->asleep) /* asleep: it has not answered this request */
        s->ready = (exo_ref){0};
    s->lost = false;
    return false;
}

/* Takes in the nodes that have taken a state over while the others trained, if it is of this step. */
static uint32_t
take_joined(struct run *run, uint64_t step)
{
    uint32_t joined = 0;
    for (uint32_t r = 0; r < run->cast.count; r++) {
        exo_future **answer = &run->elastic->seats[r].joining;
        if (!*answer || !exo_future_ready(*answer))
            continue;
        joined += has_joined(run, r, *answer, step);
        exo_future_drop(answer);
    }
    return joined;
}

static bool
can_join(const struct run *run, uint32_t rank)
{
    const struct exo_fit_seat *s = &run->elastic->seats[rank];
    return !exo_fit_is_member(run, rank) && s->ready.id && !s->joining;
}

/* Gives the state of a member to all nodes that are ready. *joined: how many have it. */
static exo_status
join_ready(struct run *run, uint32_t *joined, exo_err *err)
{
    exo_actor_id donor = {0};
    uint32_t count = run->cast.count, asked = 0;
    bool *asks = exo_calloc(count, sizeof *asks);
    exo_status st = asks ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %u nodes", count);
    *joined = 0;
    if (st == EXO_OK)
        st = exo_ref_export(run->cast.runtime, run->cast.actors[exo_fit_member_at(run, 0)], &donor,
                            err);
    exo_cast_drop(&run->cast);
    for (uint32_t r = 0; st == EXO_OK && r < count; r++)
        if (can_join(run, r)) {
            asks[r] = true;
            asked += ask_to_join(run, r, &donor, NULL) == EXO_OK;
        }
    if (st == EXO_OK && asked > 0)
        exo_fit_await_all(run, EXO_OK, NULL); /* each answer is read below */
    for (uint32_t r = 0; asks && r < count; r++)
        *joined += asks[r] && has_joined(run, r, run->cast.replies[r], UINT64_MAX);
    exo_cast_drop(&run->cast);
    exo_free(asks);
    return st;
}

static bool
any_is_ready(const struct run *run)
{
    bool any = false;
    for (uint32_t r = 0; r < run->cast.count; r++)
        any = any || can_join(run, r);
    return any;
}

exo_status
exo_fit_take_in(struct run *run, exo_err *err)
{
    uint32_t joined = 0;
    look_for_nodes(run);
    const uint32_t before = take_joined(run, run->step);
    if (before == 0 && !any_is_ready(run))
        return EXO_OK;
    exo_status st = any_is_ready(run) ? join_ready(run, &joined, err) : EXO_OK;
    /* after a failure it is not known whether the donor still lives */
    return st == EXO_OK || st == EXO_PEER_LOST ? exo_fit_settle(run, err) : st;
}

/* Waits until there are enough nodes. */
static exo_status
await_quorum(struct run *run, exo_err *err)
{
    const exo_elastic *opts = &run->opts->elastic;
    exo_time limit = exo_deadline(run->clock, exo_fit_wait_or_default(opts->grace));
    exo_status st = EXO_OK;
    while (st == EXO_OK && exo_fit_num_members(run) < opts->min_nodes) {
        if (exo_now(run->clock) > limit)
            return exo_fail(err, EXO_PEER_LOST,
                            "%u of %u nodes are left, min_nodes is %u, and none came back within "
                            "%.3g s",
                            exo_fit_num_members(run), run->fit->num_nodes, opts->min_nodes,
                            (double)exo_fit_wait_or_default(opts->grace) * 1e-9);
        st = exo_fit_take_in(run, err);
        nap();
    }
    return st;
}

static exo_status
change_members(struct run *run, exo_status (*change)(struct run *, exo_err *), exo_err *err)
{
    exo_time began = exo_now(run->clock);
    exo_status st = change(run, err);
    if (st == EXO_OK)
        st = await_quorum(run, err);
    run->elastic->paused += exo_now(run->clock) - began;
    return st;
}

exo_status
exo_fit_recover(struct run *run, exo_status st, exo_err *err)
{
    if (!run->elastic || !run->far || st != EXO_PEER_LOST)
        return st;
    return change_members(run, exo_fit_settle, err);
}

exo_status
exo_fit_admit(struct run *run, exo_err *err)
{
    return exo_fit_awaits_nodes(run) ? change_members(run, exo_fit_take_in, err) : EXO_OK;
}

/* --- Nodes that are apart --------------------------------------------------------------------- */

bool
exo_fit_join_apart(struct run *run)
{
    exo_actor_id donor = {0};
    bool any = false;
    look_for_nodes(run);
    for (uint32_t r = 0; r < run->cast.count; r++) {
        struct exo_fit_seat *s = &run->elastic->seats[r];
        exo_payload args = {0};
        any = any || (s->joining && exo_future_ready(s->joining));
        if (!can_join(run, r) ||
            exo_ref_export(run->cast.runtime, run->cast.actors[exo_fit_member_at(run, 0)], &donor,
                           NULL) != EXO_OK)
            continue;
        const Exo__Train__NodeJoin m = join_of(s, &donor);
        if (exo_protocol_pack(&args, &m.base, NULL) == EXO_OK)
            exo_call(run->cast.runtime, s->ready, "join", args, INT64_MAX, &s->joining, NULL);
    }
    return any;
}

static exo_status
settle_with_joined(struct run *run, exo_err *err)
{
    take_joined(run, UINT64_MAX);
    return exo_fit_settle(run, err);
}

exo_status
exo_fit_recover_apart(struct run *run, exo_status st, exo_err *err)
{
    if (!run->elastic || !run->far || st != EXO_PEER_LOST)
        return st;
    exo_cast_drop(&run->cast);
    return change_members(run, settle_with_joined, err);
}

/* --- The end ---------------------------------------------------------------------------------- */

exo_status
exo_fit_agree_on_step(struct run *run, exo_err *err)
{
    struct members members = {0};
    exo_status st = gather(run, &members, err);
    const uint32_t stays = run->apart ? members.home : exo_fit_member_at(run, 0);
    for (uint32_t r = 0; st == EXO_OK && members.nearest < members.furthest && r < run->cast.count;
         r++)
        if (exo_fit_is_member(run, r) && r != stays) {
            exo_ref node = run->cast.actors[r];
            exo_fit_leave_out(run, r, "the run ends");
            stop_node(run, &node);
        }
    if (st == EXO_OK && members.nearest < members.furthest) {
        settle_lost(run, &members);
        st = run->apart ? exo_fit_settle(run, err) : EXO_OK; /* the server forgets the others */
    }
    if (st == EXO_OK && members.nearest < members.furthest)
        st = gather(run, &members, err);
    run->step = st == EXO_OK ? members.furthest : run->step;
    return st;
}
