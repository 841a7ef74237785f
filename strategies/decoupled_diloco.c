/* Decoupled DiLoCo (Douillard et al., 2026, arXiv:2604.21428): streaming DiLoCo without a meeting.
 * The outer parameters are on a server (server.h), in fragments. A node sends its change of a
 * fragment every H steps of its own, and goes on. A *round* of a fragment begins with the first
 * change that the server gets, and merges those that come in time:
 *
 *     closes    when K nodes have sent a change (the quorum) and the grace has passed, or when no
 *               other node can still send one
 *     delta   = sum of w_i delta_i over its nodes / sum of w_i over all nodes
 *                                                      w_i = tokens_i (tokens_i / steps_i)
 *     theta_outer = outer optimizer(theta_outer, delta)
 *     theta   = alpha theta + (1 - alpha) theta_outer  on the nodes of the round, tau steps after
 *                                                      they have sent their changes
 *
 * A change is measured from the outer fragment that the node has got last, so one that comes late
 * takes part in the next round. A node that is not in a round counts as one without a change, with
 * the weight of its last one, unless it has ended: else N late nodes would move the outer parameters
 * N times as far in N rounds as in one. (The paper divides by the weights of the round's nodes; its
 * rounds come at most once in H steps.) The grace lasts until the first node of the round would have to
 * wait, or as long as an option says. A round without a quorum closes when its first node has waited
 * for twice the time from one of its changes to the next: at an evaluation some nodes may have
 * stopped that would send one later. With K = N nothing is late, no round closes without a quorum,
 * and it is streaming_diloco with codec raw, up to rounding. Batches are equal, so w_i is
 * proportional to the steps.
 *
 * Traffic of a node in H steps: Psi elements to the server, and Psi back.
 *
 * A change that is under way is in the node's checkpoint. A resumed run sends it again, and the
 * server answers without merging it if it has already.
 *
 * In an elastic run (docs/elastic.md) absent nodes count in no quorum and have no weight, and changes
 * that are under way when the nodes change are sent again. An answer also has the table of the changes
 * that the fragment has, 2 elements for each node. If the server is lost, the node with the newest outer
 * parameters has the next one, which begins with them and this table. The state of the outer optimizer
 * is lost, and so are the rounds of a fragment that this node has not got.
 *
 * The order in which changes arrive decides the bits. On the virtual clock with a declared cost of
 * a step it is always the same; on the real clock it is not.
 *
 * Owner of the state: the node's compute lane; of the server's, the server. Read next:
 * async_diloco.c, fragments.c, exogym/server.h.
 */
#include "strategies/builtin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/server.h>

#include "strategies/exchange.h"

/* The words of messages. A change is known by the steps that its node had made when it sent it. */
enum {
    FRAGMENT = 0,
    CHANGE = 1,
    VERSION = 2, /* rounds that the fragment has had: before the change; from the server: now */
    STEPS = 3,   /* to the server: of the change; with LAST, the node sends no further one */
    MERGED = 3,  /* from the server: changes that its last round had */
    /* Figures in seconds. To the server: until the node waits for the answer; that it trains from
     * one change of the fragment to the next. From the server: from the arrival to the end of the
     * round */
    SLACK = 0,
    INTERVAL = 1,
    HELD = 0,
};
static const uint64_t LAST = UINT64_C(1) << 63; /* in STEPS */
static const exo_time UNKNOWN = -1;
static const exo_time MOST = 1000000 * EXO_SECOND; /* of grace and patience */

enum {
    ADAPTIVE = -1
};

struct options {
    uint64_t quorum;
    exo_time grace, patience; /* ADAPTIVE: below */
};

/* --- The server ------------------------------------------------------------------------------- */

/* A node, as a fragment has it. */
struct sender {
    bool in;          /* its change is in the open round */
    uint64_t ended;   /* it sends no further change in a run of so many steps; 0: it does */
    uint64_t merged;  /* its last change that was merged; 0: none */
    double weight;    /* of its last change; before the first one, of H steps */
    uint64_t change;  /* of the open round */
    exo_time arrived; /* then */
};

struct outer_fragment {
    /* theta and a table are one array: an answer is the former, or in an elastic run both. The table
     * has the bits of each sender's `merged`, 2 elements for each node. */
    exo_array whole, theta, sum; /* (count), on the host */
    exo_optim *optim;
    uint64_t versions;      /* rounds that have closed */
    uint32_t changes;       /* in the open round; 0: none is open */
    exo_time closes;        /* the open round, if the quorum has come */
    exo_time patience;      /* the open round, also without it */
    struct sender *senders; /* (num_nodes) */
};

struct outer {
    struct options options;
    float lr;
    uint32_t num_nodes;
    bool *absent; /* (num_nodes) */
    bool elastic;
    double interval;    /* H: the weight of a node without a change */
    uint64_t max_steps; /* of the run: a resumed one may have more */
    size_t num_fragments;
    struct outer_fragment *fragments; /* (num_fragments) */
};

/* What the member that has the server gives to outer_open: fragments with these versions, which
 * have the changes of `merged`. */
struct opening {
    const struct options *options;
    const exo_optim_spec *spec;
    const exo_param_exchange *parts;
    exo_array base; /* (Psi) packed by fragments */
    uint64_t max_steps;
    const uint64_t *versions; /* (num_fragments) */
    const uint64_t *merged;   /* (num_fragments, num_members) */
    bool elastic;
};

static void
outer_close(void *state)
{
    struct outer *o = state;
    for (size_t p = 0; o->fragments && p < o->num_fragments; p++) {
        struct outer_fragment *f = &o->fragments[p];
        exo_array_release(&f->whole);
        exo_array_release(&f->sum);
        exo_optim_free(&f->optim);
        exo_free(f->senders);
    }
    exo_free(o->fragments);
    exo_free(o->absent);
    exo_free(o);
}

static exo_status
open_fragment(struct outer_fragment *f, const struct opening *opening, size_t p, uint32_t num_nodes,
              exo_err *err)
{
    const exo_fragment *part = &opening->parts->parts[p];
    f->senders = exo_calloc(num_nodes, sizeof *f->senders);
    if (!f->senders)
        return exo_fail(err, EXO_NOMEM, "decoupled_diloco: no memory for the server");
    for (uint32_t r = 0; r < num_nodes; r++) {
        f->senders[r].weight = (double)opening->parts->rounds.interval;
        f->senders[r].merged = opening->merged[p * num_nodes + r];
    }
    f->versions = opening->versions[p];
    exo_status st =
        exo_array_init(&f->whole, exo_device_cpu(), EXO_F32, part->count + 2 * num_nodes, err);
    if (st == EXO_OK)
        f->theta = exo_array_part(f->whole, 0, part->count);
    if (st == EXO_OK)
        st = exo_array_init(&f->sum, exo_device_cpu(), EXO_F32, part->count, err);
    if (st == EXO_OK)
        st = exo_optim_new(&f->optim, opening->spec, exo_device_cpu(), part->count, err);
    return st == EXO_OK ? exo_array_read(exo_array_part(opening->base, part->at, part->count),
                                         f->theta.data, err)
                        : st;
}

static exo_status
outer_open(void **state, const void *opts, uint32_t num_members, exo_err *err)
{
    const struct opening *opening = opts;
    struct outer *o = exo_calloc(1, sizeof *o);
    if (!o)
        return exo_fail(err, EXO_NOMEM, "decoupled_diloco: no memory for the server");
    *o = (struct outer){.options = *opening->options,
                        .lr = opening->spec->lr,
                        .num_nodes = num_members,
                        .elastic = opening->elastic,
                        .interval = (double)opening->parts->rounds.interval,
                        .max_steps = opening->max_steps,
                        .num_fragments = opening->parts->num_parts};
    o->fragments = exo_calloc(o->num_fragments, sizeof *o->fragments);
    o->absent = exo_calloc(num_members, sizeof *o->absent);
    exo_status st = o->fragments && o->absent
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "decoupled_diloco: no memory for the server");
    for (size_t p = 0; st == EXO_OK && p < o->num_fragments; p++)
        st = open_fragment(&o->fragments[p], opening, p, num_members, err);
    if (st == EXO_OK)
        *state = o;
    else
        outer_close(o);
    return st;
}

/* Forgets open rounds, whose changes are sent again, and absent nodes. */
static void
outer_members(void *state, const uint32_t *ranks, uint32_t count)
{
    struct outer *o = state;
    for (uint32_t r = 0, at = 0; r < o->num_nodes; r++) {
        o->absent[r] = ranks && !(at < count && ranks[at] == r);
        at += !o->absent[r];
    }
    for (size_t p = 0; p < o->num_fragments; p++) {
        struct outer_fragment *f = &o->fragments[p];
        exo_vec_fill(f->sum, 0);
        f->changes = 0;
        for (uint32_t r = 0; r < o->num_nodes; r++) {
            f->senders[r].in = false;
            if (o->absent[r])
                f->senders[r] = (struct sender){.weight = o->interval};
        }
    }
}

static exo_status
answer(const struct outer *o, exo_server *server, size_t p, uint32_t to, uint64_t change,
       exo_time held, uint64_t merged, exo_err *err)
{
    const struct outer_fragment *f = &o->fragments[p];
    float *table = (float *)f->whole.data + f->theta.count;
    for (uint32_t r = 0; r < o->num_nodes; r++)
        memcpy(table + 2 * r, &f->senders[r].merged, sizeof f->senders[r].merged);
    const exo_server_message message = {
        .numbers = {[FRAGMENT] = p, [CHANGE] = change, [VERSION] = f->versions, [MERGED] = merged},
        .figures = {[HELD] = (double)held * 1e-9},
        .data = o->elastic ? f->whole : f->theta};
    return exo_server_send(server, to, &message, err);
}

static bool
has_ended(const struct outer *o, const struct sender *s)
{
    return s->ended == o->max_steps;
}

/* Takes the outer step of a round, and answers its nodes. */
static exo_status
close_round(struct outer *o, exo_server *server, size_t p, exo_time now, exo_err *err)
{
    struct outer_fragment *f = &o->fragments[p];
    const uint32_t merged = f->changes;
    double weight = 0;
    exo_status st = EXO_OK;
    for (uint32_t r = 0; r < o->num_nodes; r++)
        if (f->senders[r].in || !(o->absent[r] || has_ended(o, &f->senders[r])))
            weight += f->senders[r].weight;
    exo_vec_scale(f->sum, (float)(1 / weight));
    exo_optim_step(f->optim, f->theta, f->sum, o->lr);
    exo_vec_fill(f->sum, 0);
    f->changes = 0;
    f->versions++;
    for (uint32_t r = 0; r < o->num_nodes; r++)
        if (f->senders[r].in)
            f->senders[r].merged = f->senders[r].change;
    for (uint32_t r = 0; st == EXO_OK && r < o->num_nodes; r++) {
        struct sender *s = &f->senders[r];
        if (!s->in)
            continue;
        s->in = false;
        st = answer(o, server, p, r, s->change, now - s->arrived, merged, err);
    }
    return st;
}

/* Whether the changes of the open round are a quorum: K, or all nodes if fewer are present. */
static bool
has_quorum(const struct outer *o, const struct outer_fragment *f)
{
    uint32_t present = 0;
    for (uint32_t r = 0; r < o->num_nodes; r++)
        present += !o->absent[r];
    return f->changes >= o->options.quorum || f->changes >= present;
}

/* Closes an open round if it is time, or asks to be called when it may be. */
static exo_status
consider(struct outer *o, exo_server *server, size_t p, exo_time now, exo_err *err)
{
    struct outer_fragment *f = &o->fragments[p];
    uint32_t others = 0; /* who can still send */
    if (f->changes == 0)
        return EXO_OK;
    for (uint32_t r = 0; r < o->num_nodes; r++)
        others += !f->senders[r].in && !o->absent[r] && !has_ended(o, &f->senders[r]);
    const exo_time closes = has_quorum(o, f) ? f->closes : f->patience;
    if (others == 0 || closes <= now)
        return close_round(o, server, p, now, err);
    return closes == INT64_MAX ? EXO_OK : exo_server_wake(server, closes, err);
}

/* A time of seconds from now on. */
static exo_time
after(exo_time now, double seconds)
{
    return seconds < 1e9 ? now + (exo_time)(fmax(seconds, 0) * 1e9) : INT64_MAX;
}

static void
add_change(struct outer *o, struct outer_fragment *f, struct sender *s,
           const exo_server_message *message, exo_time now)
{
    const struct options *p = &o->options;
    const double steps = (double)(message->numbers[STEPS] & ~LAST);
    const exo_time waits = after(now, message->figures[SLACK]);
    *s = (struct sender){.in = true,
                         .ended = message->numbers[STEPS] & LAST ? o->max_steps : 0,
                         .merged = s->merged,
                         .weight = steps,
                         .change = message->numbers[CHANGE],
                         .arrived = now};
    exo_vec_axpy(f->sum, (float)steps, message->data);
    if (f->changes++ == 0) {
        f->closes = INT64_MAX;
        f->patience = p->quorum == o->num_nodes ? INT64_MAX
                      : p->patience == ADAPTIVE ? after(waits, 2 * message->figures[INTERVAL])
                                                : now + p->patience;
    }
    if (p->grace == ADAPTIVE)
        f->closes = waits < f->closes ? waits : f->closes;
    else if (f->changes == p->quorum)
        f->closes = now + p->grace;
}

static exo_status
outer_handle(void *state, exo_server *server, uint32_t from, const exo_server_message *message,
             exo_time now, exo_err *err)
{
    struct outer *o = state;
    const uint64_t p = message->numbers[FRAGMENT], change = message->numbers[CHANGE];
    if (p >= o->num_fragments || message->data.count != o->fragments[p].theta.count ||
        !(message->numbers[STEPS] & ~LAST) || !change)
        return exo_fail(err, EXO_INVAL, "decoupled_diloco: rank %u sends no change of a fragment",
                        from);
    struct outer_fragment *f = &o->fragments[p];
    if (change <= f->senders[from].merged) { /* a resumed run sends it again */
        if (message->numbers[STEPS] & LAST)
            f->senders[from].ended = o->max_steps;
        exo_status st = answer(o, server, p, from, change, 0, 0, err);
        return st == EXO_OK ? consider(o, server, p, now, err) : st;
    }
    if (f->senders[from].in)
        return exo_fail(err, EXO_INVAL, "decoupled_diloco: rank %u sends two changes in a round",
                        from);
    add_change(o, f, &f->senders[from], message, now);
    return consider(o, server, p, now, err);
}

static exo_status
outer_wake(void *state, exo_server *server, exo_time now, exo_err *err)
{
    struct outer *o = state;
    exo_status st = EXO_OK;
    for (size_t p = 0; st == EXO_OK && p < o->num_fragments; p++) {
        const struct outer_fragment *f = &o->fragments[p];
        if (f->changes > 0 && (has_quorum(o, f) ? f->closes : f->patience) <= now)
            st = close_round(o, server, p, now, err);
    }
    return st;
}

static void
outer_list(void *state, exo_state *list)
{
    struct outer *o = state;
    char name[64];
    exo_state_prefix(list, "decoupled_diloco");
    for (size_t p = 0; p < o->num_fragments; p++) {
        struct outer_fragment *f = &o->fragments[p];
        snprintf(name, sizeof name, "outer_%zu", p);
        exo_state_add_array(list, name, f->theta);
        snprintf(name, sizeof name, "optim_%zu", p);
        exo_optim_state(f->optim, name, list);
        snprintf(name, sizeof name, "versions_%zu", p);
        exo_state_add_u64(list, name, &f->versions);
        for (uint32_t r = 0; r < o->num_nodes; r++) {
            snprintf(name, sizeof name, "merged_%zu_%u", p, r);
            exo_state_add_u64(list, name, &f->senders[r].merged);
            snprintf(name, sizeof name, "ended_%zu_%u", p, r);
            exo_state_add_u64(list, name, &f->senders[r].ended);
            snprintf(name, sizeof name, "weight_%zu_%u", p, r);
            exo_state_add(list, name, EXO_I64, &f->senders[r].weight, 1); /* its bits */
        }
    }
    exo_state_prefix(list, NULL);
}

static const exo_server_class outer_class = {.name = "decoupled_diloco",
                                             .open = outer_open,
                                             .handle = outer_handle,
                                             .wake = outer_wake,
                                             .close = outer_close,
                                             .list = outer_list,
                                             .members = outer_members};

/* --- The node --------------------------------------------------------------------------------- */

/* A fragment on a node. A change is known by its number as in messages; 0: none. */
struct flight {
    uint64_t change;  /* under way */
    uint64_t last;    /* the last one that was sent, under way or not */
    uint64_t steps;   /* of it */
    uint64_t version; /* of the base */
    bool sent;        /* by this process: not by one before a resume */
    uint64_t next;    /* version of the answer */
    bool received;    /* the answer is in `received` of the node, used or not */
    exo_time sent_at;
};

struct decoupled {
    struct options options;
    exo_optim_spec spec;
    exo_param_exchange parts; /* of which it uses the fragments, rounds, delay and alpha */
    /* (Psi) packed by fragments: the outer parameters that the node got last; the changes that are
     * under way; the answers that it has not yet used */
    exo_array base, changes, received;
    struct flight *flights; /* (num_parts) */
    double transfer;        /* seconds that a change and its answer take, without the server's */
    exo_time since;         /* the end of the last step; or UNKNOWN */
    exo_time quickest;      /* step since the last change; 0: none */
    /* (num_parts, num_nodes) In an elastic run: the changes that `base` has, and `received` */
    uint64_t *known, *known_next;
    uint32_t num_nodes;
    exo_meter *rounds, *staleness, *merged;
};

/* Reads a time, or auto. */
static exo_status
read_time(exo_config *config, const char *key, exo_time *out, exo_err *err)
{
    const char *word = NULL;
    exo_status st = exo_config_string(config, key, "auto", &word, err);
    *out = ADAPTIVE;
    return st == EXO_OK && strcmp(word, "auto") != 0
               ? exo_config_time(config, key, 0, 0, MOST, out, err)
               : st;
}

static exo_status
read_fragments(exo_param_exchange *e, exo_config *config, exo_err *err)
{
    snprintf(e->name, sizeof e->name, "decoupled_diloco");
    exo_status st = exo_rounds_read(config, 100, &e->rounds, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_fragments(e, config, "fragments", err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_delay(e, config, e->rounds.interval > 1, err);
    if (st == EXO_OK && e->delay >= e->rounds.interval)
        st = exo_config_fail(config, err,
                             "delay must be less than H, the steps between the rounds of a "
                             "fragment, %llu, got %llu",
                             (unsigned long long)e->rounds.interval, (unsigned long long)e->delay);
    return st == EXO_OK
               ? exo_config_float(config, "alpha", e->delay > 0 ? 0.5f : 0, 0, 1, &e->alpha, err)
               : st;
}

static exo_status
decoupled_init(void *self, exo_config *config, exo_err *err)
{
    struct decoupled *d = self;
    exo_optim_spec nesterov = exo_nesterov();
    nesterov.lr = 0.4f;
    exo_status st = read_fragments(&d->parts, config, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "quorum", 1, 1, UINT32_MAX, &d->options.quorum, err);
    if (st == EXO_OK)
        st = read_time(config, "grace", &d->options.grace, err);
    if (st == EXO_OK)
        st = read_time(config, "patience", &d->options.patience, err);
    return st == EXO_OK ? exo_optim_spec_read(config, "outer_optimizer", &nesterov, &d->spec, err)
                        : st;
}

static exo_status
decoupled_check(const void *self, uint32_t num_nodes, exo_err *err)
{
    const struct options *o = &((const struct decoupled *)self)->options;
    return o->quorum <= num_nodes
               ? EXO_OK
               : exo_fail(err, EXO_INVAL,
                          "decoupled_diloco: quorum must be at most %u, the number of nodes, got "
                          "%llu",
                          num_nodes, (unsigned long long)o->quorum);
}

static exo_status
decoupled_check_model(const void *self, const exo_model *model, exo_err *err)
{
    const struct decoupled *d = self;
    return exo_fragments_check(&d->parts, exo_model_num_units(model), err);
}

static exo_array
part_of(const struct decoupled *d, exo_array whole, size_t p)
{
    return exo_array_part(whole, d->parts.parts[p].at, d->parts.parts[p].count);
}

static exo_status
start_meters(struct decoupled *d, const exo_node *node, exo_err *err)
{
    static const exo_meter_class staleness = {
        .name = "staleness",
        .unit = "rounds",
        .help = "rounds of a fragment between the node's last change and the parameters that the "
                "change was measured from",
        .kind = EXO_GAUGE};
    static const exo_meter_class merged = {.name = "merged",
                                           .unit = "nodes",
                                           .help = "nodes that took part in the node's last round",
                                           .kind = EXO_GAUGE};
    exo_status st = exo_rounds_meter(&d->rounds, node->meters, err);
    if (st == EXO_OK)
        st = exo_meter_declare(&d->staleness, node->meters, &staleness, err);
    return st == EXO_OK ? exo_meter_declare(&d->merged, node->meters, &merged, err) : st;
}

static exo_status
open_server(struct decoupled *d, const exo_node *node, exo_err *err)
{
    void *outer = NULL;
    uint64_t *versions = exo_calloc(d->parts.num_parts, sizeof *versions);
    if (!versions)
        return exo_fail(err, EXO_NOMEM, "decoupled_diloco: no memory for the server");
    for (size_t p = 0; p < d->parts.num_parts; p++)
        versions[p] = d->flights[p].version;
    const struct opening opening = {.options = &d->options,
                                    .spec = &d->spec,
                                    .parts = &d->parts,
                                    .base = d->base,
                                    .max_steps = node->max_steps,
                                    .versions = versions,
                                    .merged = d->known,
                                    .elastic = node->elastic};
    exo_status st = exo_group_serve(node->group, &outer_class, &opening, &outer, err);
    exo_free(versions);
    return st;
}

static exo_status
decoupled_start(void *self, exo_node *node, exo_err *err)
{
    struct decoupled *d = self;
    exo_device *device = node->params.device;
    exo_status st = start_meters(d, node, err);
    if (st == EXO_OK)
        st = exo_fragments_start(&d->parts, node, err);
    if (st == EXO_OK)
        st = exo_array_init(&d->base, device, EXO_F32, node->numel, err);
    if (st == EXO_OK)
        st = exo_array_init(&d->changes, device, EXO_F32, node->numel, err);
    if (st == EXO_OK)
        st = exo_array_init(&d->received, device, EXO_F32, node->numel, err);
    if (st != EXO_OK)
        return st;
    d->num_nodes = node->num_nodes;
    d->flights = exo_calloc(d->parts.num_parts, sizeof *d->flights);
    d->known = exo_calloc(d->parts.num_parts * d->num_nodes, sizeof *d->known);
    d->known_next = exo_calloc(d->parts.num_parts * d->num_nodes, sizeof *d->known_next);
    if (!d->flights || !d->known || !d->known_next)
        return exo_fail(err, EXO_NOMEM, "decoupled_diloco: no memory for %zu fragments",
                        d->parts.num_parts);
    for (size_t p = 0; p < d->parts.num_parts; p++)
        exo_fragment_pack(&d->parts.parts[p], part_of(d, d->base, p), node->params);
    st = open_server(d, node, err);
    if (st == EXO_OK)
        d->since = exo_group_now(node->group);
    return st;
}

/* Sends the change of a fragment that is in `changes`. */
static exo_status
send_change(struct decoupled *d, const exo_node *node, size_t p, double step_time, exo_err *err)
{
    struct flight *f = &d->flights[p];
    const uint64_t interval = d->parts.rounds.interval;
    const uint64_t left = node->max_steps - f->change + 1; /* with the step before it */
    const bool last = left <= interval || left - interval <= d->parts.delay;
    const exo_server_message message = {
        .numbers = {[FRAGMENT] = p,
                    [CHANGE] = f->change,
                    [VERSION] = f->version,
                    [STEPS] = f->steps | (last ? LAST : 0)},
        .figures = {[SLACK] = (double)d->parts.delay * step_time - d->transfer,
                    [INTERVAL] = (double)interval * step_time},
        .data = part_of(d, d->changes, p)};
    f->sent = true;
    f->received = false;
    f->sent_at = exo_group_now(node->group);
    return exo_group_send(node->group, &message, err);
}

/* Takes the change of a fragment since its last round. */
static void
take_change(struct decoupled *d, const exo_node *node, size_t p)
{
    struct flight *f = &d->flights[p];
    const exo_array change = part_of(d, d->changes, p);
    exo_fragment_pack(&d->parts.parts[p], change, node->params);
    exo_vec_sub(change, part_of(d, d->base, p), change);
    f->change = node->step + 1;
    f->steps = f->change - f->last;
    f->last = f->change;
}

/* Sends the change of a fragment that was taken and not sent, unless the run ends before its answer would
 * be used: then a longer run that continues this one sends it. */
static exo_status
send_taken(struct decoupled *d, const exo_node *node, size_t p, double step_time, exo_err *err)
{
    const struct flight *f = &d->flights[p];
    const bool used = node->max_steps - (f->change - 1) > d->parts.delay;
    return used ? send_change(d, node, p, step_time, err) : EXO_OK;
}

/* Waits for the server's next answer, of any fragment, and keeps it. */
static exo_status
take_answer(struct decoupled *d, const exo_node *node, exo_err *err)
{
    exo_server_message answer;
    bool received;
    exo_status st = exo_group_receive(node->group, true, &answer, &received, err);
    if (st != EXO_OK)
        return st;
    const uint64_t p = answer.numbers[FRAGMENT];
    const size_t known = node->elastic ? 2 * d->num_nodes : 0; /* elements of the table */
    if (p >= d->parts.num_parts || answer.data.count != d->parts.parts[p].count + known ||
        answer.numbers[CHANGE] != d->flights[p].change) {
        exo_array_release(&answer.data);
        return exo_fail(err, EXO_FAILED, "decoupled_diloco: the server answers to another change");
    }
    struct flight *f = &d->flights[p];
    d->transfer = (double)(answer.arrived - f->sent_at) * 1e-9 - answer.figures[HELD];
    f->received = true;
    exo_meter_set(d->staleness, answer.numbers[VERSION] > f->version /* else a new server */
                                    ? (double)(answer.numbers[VERSION] - f->version - 1)
                                    : 0);
    exo_meter_set(d->merged, (double)answer.numbers[MERGED]);
    f->next = answer.numbers[VERSION];
    st = exo_array_write(part_of(d, d->received, p), answer.data.data, err);
    if (known)
        memcpy(&d->known_next[p * d->num_nodes],
               (const float *)answer.data.data + d->parts.parts[p].count,
               d->num_nodes * sizeof *d->known);
    exo_array_release(&answer.data);
    return st;
}

/* The answer becomes what the next change is measured from. */
static void
take_base(struct decoupled *d, size_t p)
{
    const size_t row = p * d->num_nodes;
    exo_vec_copy(part_of(d, d->base, p), part_of(d, d->received, p));
    d->flights[p].version = d->flights[p].next;
    memcpy(&d->known[row], &d->known_next[row], d->num_nodes * sizeof *d->known);
}

/* Ends the round of a fragment. */
static exo_status
end_round(struct decoupled *d, exo_node *node, size_t p, exo_err *err)
{
    struct flight *f = &d->flights[p];
    const exo_array outer = part_of(d, d->received, p);
    exo_status st = EXO_OK;
    while (st == EXO_OK && !f->received)
        st = take_answer(d, node, err);
    if (st != EXO_OK)
        return st;
    take_base(d, p);
    exo_fragment_unpack(&d->parts.parts[p], outer, d->parts.alpha, node->params);
    f->change = 0;
    f->sent = false;
    exo_meter_add(d->rounds, 1);
    return EXO_OK;
}

static exo_status
decoupled_step(void *self, exo_node *node, exo_err *err)
{
    struct decoupled *d = self;
    const uint64_t delay = d->parts.delay;
    bool begun = false;
    exo_status st = exo_node_inner_step(node, err);
    const exo_time now = exo_group_now(node->group), took = now - d->since;
    if (d->since != UNKNOWN)
        d->quickest = d->quickest == 0 || took < d->quickest ? took : d->quickest;
    for (size_t p = 0; st == EXO_OK && p < d->parts.num_parts; p++) {
        const struct flight *f = &d->flights[p];
        if (f->change && !f->sent)
            st = send_taken(d, node, p, 0, err); /* after a resume */
        else if (exo_fragment_due(&d->parts, p, node->step)) {
            take_change(d, node, p);
            st = send_taken(d, node, p, (double)d->quickest * 1e-9, err);
            begun = true;
        }
    }
    d->quickest = begun ? 0 : d->quickest;
    for (size_t p = 0; st == EXO_OK && p < d->parts.num_parts; p++)
        if (d->flights[p].change && node->step + 1 >= d->flights[p].change + delay)
            st = end_round(d, node, p, err);
    d->since = exo_group_now(node->group);
    return st;
}

static bool
decoupled_elastic(const void *self)
{
    (void)self;
    return true;
}

static bool
decoupled_meets(const void *self, uint64_t step)
{
    const struct decoupled *d = self;
    bool meets = !d->flights;
    for (size_t p = 0; d->flights && p < d->parts.num_parts; p++) {
        const struct flight *f = &d->flights[p];
        meets = meets || exo_fragment_due(&d->parts, p, step) ||
                (f->change && (!f->sent || step + 1 >= f->change + d->parts.delay));
    }
    return meets;
}

/* Changes that were not answered, or whose answer was not used yet, are sent again in the next step. A
 * node that has joined begins with the outer parameters, so that the steps of the other node count
 * once. */
static exo_status
decoupled_regroup(void *self, exo_node *node, const uint32_t *ranks, bool joined, exo_err *err)
{
    struct decoupled *d = self;
    for (size_t p = 0; p < d->parts.num_parts; p++) {
        struct flight *f = &d->flights[p];
        if (f->change && f->received)
            take_base(d, p);
        f->sent = f->received = false;
        if (joined) {
            exo_fragment_unpack(&d->parts.parts[p], part_of(d, d->base, p), 0, node->params);
            f->change = 0;
            f->last = node->step;
        }
        for (uint32_t r = 0, at = 0; r < d->num_nodes; r++)
            if (at < node->num_nodes && ranks[at] == r)
                at++;
            else
                d->known[p * d->num_nodes + r] = 0;
    }
    d->quickest = joined ? 0 : d->quickest;
    d->since = UNKNOWN; /* perhaps a part of the step is repeated, which takes no time */
    return open_server(d, node, err);
}

/* The rounds of all fragments. */
static uint64_t
decoupled_version(const void *self)
{
    const struct decoupled *d = self;
    uint64_t sum = 0;
    for (size_t p = 0; d->flights && p < d->parts.num_parts; p++)
        sum += d->flights[p].change && d->flights[p].received ? d->flights[p].next
                                                              : d->flights[p].version;
    return sum;
}

static void
decoupled_state(void *self, exo_state *state)
{
    struct decoupled *d = self;
    char name[64];
    exo_state_add_array(state, "decoupled_diloco.base", d->base);
    exo_state_add_array(state, "decoupled_diloco.changes", d->changes);
    exo_state_add(state, "decoupled_diloco.transfer", EXO_I64, &d->transfer, 1); /* its bits */
    exo_state_add(state, "decoupled_diloco.quickest", EXO_I64, &d->quickest, 1);
    exo_state_add(state, "decoupled_diloco.merged", EXO_I64, d->known,
                  d->parts.num_parts * d->num_nodes);
    for (size_t p = 0; p < d->parts.num_parts; p++) {
        struct flight *f = &d->flights[p];
        const struct {
            const char *name;
            uint64_t *value;
        } words[] = {{"change", &f->change},
                     {"steps", &f->steps},
                     {"last", &f->last},
                     {"version", &f->version}};
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            snprintf(name, sizeof name, "decoupled_diloco.%s_%zu", words[i].name, p);
            exo_state_add_u64(state, name, words[i].value);
        }
    }
}

static void
decoupled_release(void *self)
{
    struct decoupled *d = self;
    exo_array_release(&d->base);
    exo_array_release(&d->changes);
    exo_array_release(&d->received);
    exo_param_exchange_release(&d->parts);
    exo_optim_spec_release(&d->spec);
    exo_free(d->flights);
    exo_free(d->known);
    exo_free(d->known_next);
}

const exo_strategy_class exo_decoupled_diloco_class = {
    .name = "decoupled_diloco",
    .help = "fragments of the outer parameters on a server, which merges a quorum of changes",
    .state_size = sizeof(struct decoupled),
    .init = decoupled_init,
    .check = decoupled_check,
    .check_model = decoupled_check_model,
    .start = decoupled_start,
    .step = decoupled_step,
    .steps_alone = exo_always_steps_alone,
    .elastic = decoupled_elastic,
    .meets = decoupled_meets,
    .apart = true,
    .regroup = decoupled_regroup,
    .version = decoupled_version,
    .state = decoupled_state,
    .release = decoupled_release,
};
