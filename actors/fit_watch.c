/* Detects stalls of a training job while its nodes work on a request: see fit_impl.h.
 *
 * A node reports the call of a collective that it is in, and the members that are missing there
 * (node_look.h). A node is stuck in two cases:
 *
 * 1. It waits in a call, and one of the missing members is stuck.
 * 2. It has done its request. It then does nothing until all nodes have done theirs, because the
 *    trainer makes the next request only then.
 *
 * Between processes, case 1 also requires that every message from that member has arrived. If two
 * looks in a row show the same nodes stuck in the same calls, and nothing has come to them in
 * between, they were stuck at every moment between the looks. That is a stall, and it ends the run.
 * A node that computes, or whose messages are on a link, is not stuck.
 *
 * A node that does not answer, for instance because its process is stopped, may continue at any
 * time. That causes a warning only; other nodes' waits for it end at the run's deadline. */
#include "actors/fit_impl.h"

#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "actors/node_look.h"
#include "base/config_edit.h"

#define EVERY     (200 * EXO_MS)
#define LONG_WAIT (200 * EXO_MS)    /* a shorter wait cannot be a stall */
#define ANSWER    (300 * EXO_MS)    /* time for an answer to a look */
#define SILENCE   (600 * EXO_MS)    /* a node without answers for that long is silent */
#define SLOW      (30 * EXO_SECOND) /* a longer wait for a computing node causes a warning */

struct watched {
    exo_node_look look, before; /* the latest look; the one before it */
    bool pending;               /* it has not done its request */
    /* It answered the latest look; it was stuck at the latest look, and at the one before. */
    bool answers, stuck, suspected;
    exo_time silent_since; /* 0: it answers */
    bool told;             /* there was a warning of its silence */
    uint64_t told_of;      /* number of its last call with a warning, and the communicator */
    uint32_t told_in;
};

/* Owner: the trainer's thread. */
struct exo_fit_watch {
    exo_time next;
    bool suspects;          /* the last look found a possible stall */
    struct watched nodes[]; /* (num_nodes) */
};

exo_status
exo_fit_watch_open(struct run *run, exo_err *err)
{
    run->watch =
        exo_calloc(1, sizeof *run->watch + run->fit->num_nodes * sizeof run->watch->nodes[0]);
    return run->watch ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to look for stalls");
}

void
exo_fit_watch_begin(struct run *run)
{
    struct exo_fit_watch *w = run->watch;
    w->next = exo_now(run->clock) + EVERY + LONG_WAIT; /* most requests end earlier */
    w->suspects = false;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        w->nodes[r] =
            (struct watched){.told_of = w->nodes[r].told_of, .told_in = w->nodes[r].told_in};
}

exo_time
exo_fit_silence(const struct run *run, uint32_t rank)
{
    exo_time since = run->watch->nodes[rank].silent_since;
    return since ? exo_now(run->clock) - since : 0;
}

bool
exo_fit_is_silent(const struct run *run, uint32_t rank)
{
    return exo_fit_silence(run, rank) >= SILENCE;
}

/* --- Asking ----------------------------------------------------------------------------------- */

static void
note_answer(struct run *run, struct watched *n, bool answers)
{
    n->answers = answers;
    if (answers)
        n->silent_since = 0;
    else if (!n->silent_since)
        n->silent_since = exo_now(run->clock) - ANSWER;
    n->told = n->told && !answers;
}

static void
read_answer(struct run *run, uint32_t rank, exo_status st, const exo_payload *reply,
            exo_node_look *out)
{
    *out = (exo_node_look){0};
    bool whole =
        st == EXO_OK && exo_node_look_read(out, reply, run->fit->num_nodes, NULL) == EXO_OK;
    note_answer(run, &run->watch->nodes[rank], whole || st != EXO_TIMEOUT);
}

static exo_status
ask(exo_cast_round *round, uint32_t rank, const exo_node_ask *what)
{
    exo_payload payload = {0};
    Exo__Train__NodeAsk m = EXO__TRAIN__NODE_ASK__INIT;
    m.comm = (Exo__Train__NodeComm)what->of;
    m.to = what->to;
    exo_status st = exo_protocol_pack(&payload, &m.base, NULL);
    return st == EXO_OK ? exo_cast_round_ask(round, rank, "waits", payload, NULL) : st;
}

/* Looks at nodes on workers, all at once. */
static exo_status
gather_there(struct run *run)
{
    exo_cast_round round;
    exo_status st = exo_cast_round_open(&round, &run->cast, ANSWER, NULL);
    for (uint32_t r = 0; st == EXO_OK && r < run->cast.count; r++)
        if (ask(&round, r, &(exo_node_ask){0}) != EXO_OK)
            read_answer(run, r, EXO_FAILED, NULL, &run->watch->nodes[r].look);
    while (st == EXO_OK && exo_cast_round_next(&round))
        read_answer(run, round.actor, round.status, round.reply,
                    &run->watch->nodes[round.actor].look);
    exo_cast_round_close(&round);
    return st;
}

static exo_status
gather(struct run *run)
{
    const exo_node_ask nothing = {0};
    exo_status st = EXO_OK;
    if (!run->fit->comm)
        return gather_there(run);
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++) {
        st = exo_node_look_at(&run->watch->nodes[r].look, run->fit->comm, run->fit->side, r,
                              run->fit->num_nodes, &nothing, NULL);
        run->watch->nodes[r].answers = st == EXO_OK;
    }
    return st;
}

/* --- Stuck nodes ------------------------------------------------------------------------------ */

/* The first stuck node that node `rank` waits for; UINT32_MAX: none. */
static uint32_t
stuck_peer(const struct run *run, uint32_t rank)
{
    const struct watched *n = &run->watch->nodes[rank];
    for (uint32_t m = 0; n->pending && m < n->look.num_missing; m++)
        if (run->watch->nodes[n->look.missing[m]].stuck)
            return n->look.missing[m];
    return UINT32_MAX;
}

/* Finds the stuck nodes: marks all candidates, then unmarks those that wait for no marked node,
 * until nothing changes. Returns the first pending stuck node; UINT32_MAX: none. */
static uint32_t
find_stuck(struct run *run)
{
    bool changed = true;
    uint32_t first = UINT32_MAX;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        struct watched *n = &run->watch->nodes[r];
        n->stuck =
            n->answers && (n->pending ? n->look.waits && n->look.waited >= LONG_WAIT : !n->look.of);
    }
    while (changed) {
        changed = false;
        for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
            struct watched *n = &run->watch->nodes[r];
            if (n->pending && n->stuck && stuck_peer(run, r) == UINT32_MAX) {
                n->stuck = false;
                changed = true;
            }
        }
    }
    for (uint32_t r = run->fit->num_nodes; r-- > 0;)
        first = run->watch->nodes[r].pending && run->watch->nodes[r].stuck ? r : first;
    return first;
}

/* Whether all messages to the stuck nodes have arrived. Between processes a node misses one member
 * at a time, and is compared with that one. In one process no message is under way. */
static bool
nothing_is_under_way(struct run *run)
{
    bool none = true;
    for (uint32_t r = 0; run->far && none && r < run->fit->num_nodes; r++) {
        const struct watched *n = &run->watch->nodes[r];
        exo_cast_round round;
        if (!n->pending || !n->stuck)
            continue;
        exo_node_look peer = {0};
        uint32_t missing = n->look.missing[0];
        none = exo_cast_round_open(&round, &run->cast, ANSWER, NULL) == EXO_OK &&
               ask(&round, missing, &(exo_node_ask){.of = n->look.of, .to = r}) == EXO_OK;
        if (none && exo_cast_round_next(&round))
            read_answer(run, missing, round.status, round.reply, &peer);
        none = none && run->watch->nodes[missing].answers && peer.sent == n->look.came;
        exo_cast_round_close(&round);
    }
    return none;
}

/* Whether the same nodes are stuck in the same calls as at the last look. Keeps this look for the
 * next comparison. */
static bool
are_as_before(struct run *run)
{
    bool same = run->watch->suspects;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        struct watched *n = &run->watch->nodes[r];
        same = same && n->stuck == n->suspected &&
               (!n->stuck ||
                (n->look.of == n->before.of && n->look.number == n->before.number &&
                 n->look.came == n->before.came && n->look.num_missing == n->before.num_missing &&
                 memcmp(n->look.missing, n->before.missing, sizeof n->look.missing) == 0));
        n->suspected = n->stuck;
        n->before = n->look;
    }
    return same;
}

/* --- Reports ---------------------------------------------------------------------------------- */

/* Adds a text such as
 * "node_0 waits in all_reduce, call 3 of the strategy, for node_1 since 4.10 s into the run". */
static void
say_wait(const struct run *run, exo_text *out, uint32_t rank, uint32_t peer)
{
    const exo_node_look *look = &run->watch->nodes[rank].look;
    double since = (double)(exo_now(run->clock) - run->started - look->waited) * 1e-9;
    exo_text_add(out, "node_%u waits in %s, call %llu of %s, for node_%u since %.2f s into the run",
                 rank, look->operation, (unsigned long long)look->number,
                 look->of == EXO_NODE_IN_STRATEGY ? "the strategy" : "the averages", peer,
                 since > 0 ? since : 0);
}

/* Describes the stall: from each node to the one that it waits for, until a node that was described
 * already or that has done its request. */
static exo_status
tell_stall(struct run *run, uint32_t at, exo_err *err)
{
    exo_text text = {0};
    bool circle = true;
    for (bool first = true; run->watch->nodes[at].suspected; first = false) {
        uint32_t peer = stuck_peer(run, at);
        exo_text_add(&text, "%s", first ? "" : ", ");
        if (peer == UINT32_MAX)
            exo_text_add(&text, "node_%u has done its part and waits for the others", at);
        else
            say_wait(run, &text, at, peer);
        run->watch->nodes[at].suspected = false;
        circle = peer != UINT32_MAX;
        at = circle ? peer : at;
    }
    if (circle)
        exo_text_add(&text, "; calls in several groups need one order, which is the same on all "
                            "nodes (exo_group_among)");
    exo_fail(err, EXO_FAILED, "the nodes stall: %s", text.failed || !text.data ? "" : text.data);
    exo_free(text.data);
    return EXO_FAILED;
}

/* Logs waits for a silent node, and long waits for a computing one, each once. */
static void
warn_of_waits(struct run *run)
{
    for (uint32_t r = 0; r < run->fit->num_nodes; r++) {
        struct watched *n = &run->watch->nodes[r];
        if (!n->pending || !n->look.waits || n->look.waited < LONG_WAIT)
            continue;
        for (uint32_t m = 0; m < n->look.num_missing; m++) {
            uint32_t peer = n->look.missing[m];
            struct watched *p = &run->watch->nodes[peer];
            bool silent = exo_fit_is_silent(run, peer) && !p->told;
            bool slow = p->answers && n->look.waited >= SLOW &&
                        (n->told_of != n->look.number || n->told_in != n->look.of);
            if (!silent && !slow)
                continue;
            exo_text text = {0};
            say_wait(run, &text, r, peer);
            EXO_LOG(WARN, TRAIN, "node=%u waits_for=%u %s%s", r, peer, text.data ? text.data : "",
                    silent ? "; it does not answer: its process is stopped, its host cannot be "
                             "reached, or the link to it is busy"
                           : "");
            exo_free(text.data);
            p->told = p->told || silent;
            n->told_of = n->look.number;
            n->told_in = n->look.of;
        }
    }
}

exo_status
exo_fit_watch_look(struct run *run, exo_err *err)
{
    struct exo_fit_watch *w = run->watch;
    exo_time now = exo_now(run->clock);
    if (run->fit->sim || now < w->next)
        return EXO_OK;
    w->next = now + EVERY;
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        w->nodes[r].pending = run->cast.futures[r] != NULL;
    if (gather(run) != EXO_OK)
        return EXO_OK; /* no memory: the next look tries again */
    warn_of_waits(run);
    uint32_t first = find_stuck(run);
    if (first == UINT32_MAX || !nothing_is_under_way(run)) {
        w->suspects = false;
        return EXO_OK;
    }
    bool proven = are_as_before(run);
    w->suspects = true;
    return proven ? tell_stall(run, first, err) : EXO_OK;
}
