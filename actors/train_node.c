/* The actor class train_node: see train_node.h. This file has the actor's methods and messages; its
 * replica does the work. */
#include "actors/train_node.h"

#include <math.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "actor/hooks.h"
#include "actors/replica.h"
#include "base/parallel.h"
#include "base/traffic.h"

/* Owner: the compute lane. */
struct train_node {
    exo_replica *replica;
    bool begun;  /* set up, or the set-up failed */
    bool warned; /* a loss was not finite */
    /* The losses and learning rates of the steps up to `until`, or to the present one. A request that is
     * repeated, because it failed on another node, gets all of them. */
    struct {
        float *loss, *lr;
        size_t count, room;
        uint64_t until;
    } records;
};

static exo_status
start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    struct train_node *n = self;
    const exo_replica_place place = {
        .runtime = exo_call_runtime(call), .self = exo_call_self(call), .channel = 1};
    ProtobufCMessage *message = NULL;
    exo_status st = exo_args_decode(&exo_train_node_protocol.start, args, &message, err);
    if (st == EXO_OK)
        st = exo_replica_open(&n->replica, &place,
                              ((const Exo__Train__NodeStart *)message)->document, err);
    exo_args_free(&message);
    return st;
}

static void
stop(void *self)
{
    struct train_node *n = self;
    exo_replica_elastic_close(n->replica);
    exo_replica_close(&n->replica);
    exo_free(n->records.loss);
    exo_free(n->records.lr);
}

static uint32_t
rank_of(const struct train_node *n)
{
    return n->replica->rank;
}

/* After an error, ends the collectives of the other nodes, which would wait for this node in vain.
 * PEER_LOST is a report of another node's error and is not passed on. */
static exo_status
give_up(struct train_node *n, exo_status st, const exo_err *err)
{
    if (st != EXO_OK && st != EXO_PEER_LOST)
        exo_replica_fail(n->replica, rank_of(n), err ? err->text : exo_status_text(st));
    return st;
}

/* Gets the replica of a node that is set up. Any process of the cluster may be the caller, so a
 * refused call changes nothing and ends no collective. */
static exo_status
get_replica(const struct train_node *n, const char *method, exo_replica **out, exo_err *err)
{
    *out = n->replica;
    if (!n->replica->loader)
        return exo_fail(err, EXO_INVAL, "%s: node_%u is not set up", method, rank_of(n));
    return EXO_OK;
}

/* --- The compute lane ------------------------------------------------------------------------- */

/* Packs the reply; that of node 0 has the links that the nodes have measured. */
static exo_status
pack_ready(const exo_replica *r, Exo__Train__NodeReady *ready, exo_payload *reply, exo_err *err)
{
    const exo_fit *fit = r->fit;
    const size_t count =
        fit->measures && r->rank == 0 ? (size_t)fit->num_nodes * fit->num_nodes : 0;
    double *numbers = exo_calloc(2 * count + 1, sizeof *numbers);
    if (!numbers)
        return exo_fail(err, EXO_NOMEM, "no memory for the links of %u nodes", fit->num_nodes);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = fit->figures[i].rate;
        numbers[count + i] = fit->figures[i].latency;
    }
    ready->rates = numbers;
    ready->latencies = numbers + count;
    ready->n_rates = ready->n_latencies = count;
    exo_status st = exo_protocol_pack(reply, &ready->base, err);
    exo_free(numbers);
    return st;
}

static exo_status
setup(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    struct train_node *n = self;
    Exo__Train__NodeReady ready = EXO__TRAIN__NODE_READY__INIT;
    if (n->begun)
        return exo_fail(err, EXO_INVAL, "setup: node_%u is set up, or could not be", rank_of(n));
    n->begun = true;
    exo_status st = exo_replica_set_up(n->replica, &ready.elapsed, err);
    if (st == EXO_OK)
        st = exo_replica_elastic_open(n->replica, err);
    if (st == EXO_OK) {
        ready.step = n->replica->node.step;
        ready.bytes_sent = n->replica->bytes_before;
        ready.epoch_batches = exo_loader_epoch_batches(n->replica->loader);
        st = pack_ready(n->replica, &ready, reply, err);
    }
    return give_up(n, st, err);
}

static void
record(struct train_node *n, float loss, float lr)
{
    n->records.loss[n->records.count] = loss;
    n->records.lr[n->records.count++] = lr;
}

/* Makes room for the records of `count` more steps. */
static exo_status
need_records(struct train_node *n, uint64_t count, exo_err *err)
{
    uint64_t room = n->records.count + count + 1;
    if (room <= n->records.room)
        return EXO_OK;
    float *loss = NULL, *lr = NULL;
    if (count <= PTRDIFF_MAX / (2 * sizeof *loss)) {
        if ((loss = exo_realloc(n->records.loss, room, sizeof *loss)))
            n->records.loss = loss;
        if ((lr = exo_realloc(n->records.lr, room, sizeof *lr)))
            n->records.lr = lr;
    }
    if (!loss || !lr)
        return exo_fail(err, EXO_NOMEM, "no memory for the records of %llu steps",
                        (unsigned long long)count);
    n->records.room = room;
    return EXO_OK;
}

/* Fills the records of the steps whose losses were not read. */
static exo_status
read_losses(struct train_node *n, exo_err *err)
{
    exo_replica *r = n->replica;
    const size_t steps = r->unread;
    float *loss = n->records.loss + n->records.count - steps;
    exo_status st = exo_replica_losses(r, loss, err);
    for (size_t i = 0; st == EXO_OK && i < steps; i++)
        if (!isfinite(loss[i]) && !n->warned && exo_fit_has_loss(r->fit, rank_of(n))) {
            n->warned = true;
            EXO_LOG(WARN, TRAIN,
                    "node=%u step=%llu loss=%g the loss is not finite; a lower learning rate may "
                    "help",
                    rank_of(n), (unsigned long long)(r->node.step - steps + i + 1),
                    (double)loss[i]);
        }
    return st;
}

static exo_status
one_step(struct train_node *n, exo_err *err)
{
    exo_replica *r = n->replica;
    exo_status st = exo_replica_step_ahead(r, err);
    if (st != EXO_OK)
        return st;
    record(n, NAN, r->node.lr);
    return exo_replica_must_read(r) ? read_losses(n, err) : EXO_OK;
}

/* Ends the steps of a request. After an error the collectives end before the device is waited for,
 * and the records of the steps that were taken stay. */
static exo_status
end_steps(struct train_node *n, exo_status st, exo_err *err)
{
    give_up(n, st, err);
    if (n->replica->unread == 0)
        return st;
    const exo_status read = read_losses(n, st == EXO_OK ? err : NULL);
    return st == EXO_OK ? give_up(n, read, err) : st;
}

/* Packs the results of the steps of the request. */
static exo_status
pack_trained(struct train_node *n, exo_payload *reply, exo_err *err)
{
    const exo_replica *r = n->replica;
    const exo_traffic traffic = exo_replica_traffic(r);
    uint64_t columns[EXO_TRAFFIC_COLUMNS];
    exo_traffic_put(&traffic, columns);
    Exo__Train__Trained out = EXO__TRAIN__TRAINED__INIT;
    out.bytes_sent = exo_replica_bytes_sent(r);
    out.waited = exo_replica_waited(r);
    out.traffic = columns;
    out.n_traffic = EXO_TRAFFIC_COLUMNS;
    out.loss = n->records.loss;
    out.lr = n->records.lr;
    out.n_loss = out.n_lr = n->records.count;
    exo_meter_list meters;
    exo_status st = exo_meter_list_init(&meters, r->meters.tree, err);
    out.meters = meters.messages;
    out.n_meters = meters.num;
    if (st == EXO_OK)
        st = exo_protocol_pack(reply, &out.base, err);
    exo_meter_list_release(&meters);
    return st;
}

/* A step of a node whose host may fail meanwhile. */
static exo_status
one_step_in_time(struct train_node *n, exo_err *err)
{
    const exo_replica *r = n->replica;
    if (!r->fit->outages || !r->fit->apart)
        return one_step(n, err);
    const exo_time began = exo_pace_now(r->pace);
    exo_status st = one_step(n, err);
    return st == EXO_OK ? exo_outages_pass(&r->fit->outages[r->rank], r->pace, began, err) : st;
}

/* Keeps virtual time from passing until the node is in its lane again. Everything that comes before
 * its time has happened. */
static void
hold_baton(const exo_replica *r)
{
    if (!r->fit->sim)
        return;
    exo_sim_sync(r->pace->lane);
    exo_sim_expect(r->fit->sim, 1);
}

static exo_status
train(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct train_node *n = self;
    exo_replica *r = NULL;
    const Exo__Train__Train *m = args;
    const uint64_t until = m->until;
    exo_status st = get_replica(n, "train", &r, err);
    if (st != EXO_OK)
        return st;
    if (until > r->fit->max_steps)
        return exo_fail(err, EXO_INVAL, "train: until: step %llu is beyond the last one, %llu",
                        (unsigned long long)until, (unsigned long long)r->fit->max_steps);
    const bool goes_on =
        m->has_since ? r->node.step - n->records.count == m->since : n->records.until == until;
    if (!goes_on)
        n->records.count = 0;
    n->records.until = until;
    st = need_records(n, until > r->node.step ? until - r->node.step : 0, err);
    if (st != EXO_OK)
        return give_up(n, st, err);
    exo_pace_enter(r->pace, r->fit->begins);
    exo_compute_enter();
    while (st == EXO_OK && r->node.step < until) {
        if (exo_call_cancelled(call))
            st = exo_fail(err, EXO_CANCELLED, "node_%u was told to stop", rank_of(n));
        else if (exo_replica_is_elastic(r) && r->member.interrupted)
            st = exo_fail(err, EXO_PEER_LOST, "the nodes of the run change");
        else
            st = one_step_in_time(n, err);
    }
    /* Before exo_pace_leave: once the baton passes on, virtual time may jump to the deadline of the
     * nodes that wait. */
    st = end_steps(n, st, err);
    exo_compute_leave();
    if (st == EXO_OK && m->goes_on)
        hold_baton(r);
    exo_pace_leave(r->pace);
    return st == EXO_OK ? give_up(n, pack_trained(n, reply, err), err) : st;
}

static exo_status
average(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    (void)reply;
    exo_replica *r = NULL;
    exo_status st = get_replica(self, "average", &r, err);
    return st == EXO_OK ? give_up(self, exo_replica_average(r, err), err) : st;
}

/* Packs a unit of the whole model, of which the nodes have parts. Only node 0 returns it. */
static exo_status
pack_whole(exo_replica *r, size_t unit, exo_payload *reply, exo_err *err)
{
    float *values = NULL;
    exo_status st = exo_replica_average_whole(r, unit, &values, err);
    if (st == EXO_OK && r->rank == 0)
        *reply = (exo_payload){.data = values,
                               .size = exo_model_units(r->fit->model)[unit].count * sizeof *values,
                               .release = exo_free};
    else
        exo_free(values);
    return st;
}

/* Packs fp32 values. By units, all nodes take part in the request and only node 0 returns the
 * values. */
static exo_status
pack_values(const exo_replica *r, exo_array values, exo_payload *reply, exo_err *err)
{
    if (r->by_units && r->node.rank > 0)
        return EXO_OK;
    size_t bytes = values.count * sizeof(float);
    void *copy = exo_calloc(1, bytes);
    if (!copy)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu values of the averaged model",
                        values.count);
    exo_status st = exo_array_read(values, copy, err);
    if (st == EXO_OK)
        *reply = (exo_payload){.data = copy, .size = bytes, .release = exo_free};
    else
        exo_free(copy);
    return st;
}

static exo_status
result(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    size_t part = ((const Exo__Train__Result *)args)->part;
    exo_replica *r = NULL;
    exo_array values;
    exo_status st = get_replica(self, "result", &r, err);
    const size_t units = st == EXO_OK ? exo_model_num_units(r->fit->model) : 0;
    if (st == EXO_OK && part > units)
        st = exo_fail(err, EXO_INVAL,
                      "result: part: %zu is beyond the last of %zu units and the buffers", part,
                      units);
    if (st == EXO_OK && !r->averaged)
        st = exo_fail(err, EXO_INVAL, "result: node_%u has no average yet", r->rank);
    if (st != EXO_OK)
        return st;
    if (part == units) {
        values = exo_params_buffers_array(r->average);
        return pack_values(r, values, reply, err);
    }
    if (r->fit->parts)
        return give_up(self, pack_whole(r, part, reply, err), err);
    st = exo_replica_average_open(r, part, &values, err);
    if (st == EXO_OK)
        st = pack_values(r, values, reply, err);
    exo_replica_average_close(r, part);
    return r->by_units ? give_up(self, st, err) : st;
}

static exo_status
evaluate(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    bool of_average = ((const Exo__Train__Evaluate *)args)->copy == EXO__TRAIN__COPY__AVERAGE;
    exo_replica *r = NULL;
    exo_replica_figures figures = {0};
    exo_status st = get_replica(self, "evaluate", &r, err);
    if (st == EXO_OK && r->fit->val_count == 0)
        st = exo_fail(err, EXO_INVAL, "evaluate: the run has no data for it");
    if (st == EXO_OK && of_average && !r->averaged)
        st = exo_fail(err, EXO_INVAL, "evaluate: copy: node_%u has no average yet", r->rank);
    if (st != EXO_OK)
        return st;
    exo_meters *reported = NULL;
    exo_meter_list meters = {0};
    st = exo_meters_new(&reported, err);
    exo_compute_enter();
    if (st == EXO_OK)
        st = exo_replica_evaluate(r, of_average, &figures, reported, err);
    exo_compute_leave();
    if (st == EXO_OK)
        st = exo_meter_list_init(&meters, reported, err);
    Exo__Train__Figures out = EXO__TRAIN__FIGURES__INIT;
    out.loss = figures.loss;
    out.accuracy = figures.accuracy;
    out.meters = meters.messages;
    out.n_meters = meters.num;
    if (st == EXO_OK)
        st = exo_protocol_pack(reply, &out.base, err);
    exo_meter_list_release(&meters);
    exo_meters_free(&reported);
    return give_up(self, st, err);
}

static exo_status
correlate(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    exo_replica *r = NULL;
    Exo__Train__Correlation out = EXO__TRAIN__CORRELATION__INIT;
    exo_status st = get_replica(self, "correlate", &r, err);
    if (st != EXO_OK)
        return st;
    st = exo_replica_correlate(r, &out.mean, err);
    if (st == EXO_OK)
        st = exo_protocol_pack(reply, &out.base, err);
    return give_up(self, st, err);
}

static exo_status
read_folder(const ProtobufCBinaryData *path, const char *method, char out[EXO_CHECKPOINT_PATH],
            exo_err *err)
{
    if (path->len == 0 || path->len >= EXO_CHECKPOINT_PATH || memchr(path->data, 0, path->len))
        return exo_fail(err, EXO_INVAL, "%s: folder: expected a path", method);
    memcpy(out, path->data, path->len);
    out[path->len] = '\0';
    return EXO_OK;
}

/* A failed save ends no collective: the node itself is well, and the trainer decides about the
 * run. */
static exo_status
save(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    const Exo__Train__Save *m = args;
    Exo__Train__Saved out = EXO__TRAIN__SAVED__INIT;
    char sha256[65] = "", folder[EXO_CHECKPOINT_PATH];
    exo_replica *r = NULL;
    exo_status st = get_replica(self, "save", &r, err);
    if (st == EXO_OK)
        st = read_folder(&m->folder, "save", folder, err);
    if (st != EXO_OK)
        return st;
    if (m->has_rank && m->rank >= r->fit->num_nodes)
        return exo_fail(err, EXO_INVAL, "save: rank: %u is not a node of the run", m->rank);
    st = exo_replica_save(r, m->has_rank ? m->rank : r->rank, folder, m->elapsed, sha256, err);
    out.sha256 = sha256;
    return st == EXO_OK ? exo_protocol_pack(reply, &out.base, err) : st;
}

/* The lane of files, so that node 0 trains on. */
static exo_status
save_server(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    char folder[EXO_CHECKPOINT_PATH];
    (void)call;
    (void)reply;
    exo_status st =
        read_folder(&((const Exo__Train__SaveServer *)args)->folder, "save_server", folder, err);
    return st == EXO_OK ? exo_replica_save_server(((struct train_node *)self)->replica, folder, err)
                        : st;
}

static exo_status
change(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)reply;
    return exo_replica_change(((struct train_node *)self)->replica,
                              ((const Exo__Train__NodeChange *)args)->graph, err);
}

/* --- Elastic runs ----------------------------------------------------------------------------- */

static exo_status
get_member(const struct train_node *n, const char *method, exo_replica **out, exo_err *err)
{
    exo_status st = get_replica(n, method, out, err);
    return st == EXO_OK && !n->replica->member.state
               ? exo_fail(err, EXO_INVAL, "%s: the run of node_%u is not elastic", method,
                          rank_of(n))
               : st;
}

static exo_status
report(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    exo_replica *r = NULL;
    (void)call;
    (void)args;
    exo_status st = get_member(self, "report", &r, err);
    if (st != EXO_OK)
        return st;
    Exo__Train__NodeReport out = EXO__TRAIN__NODE_REPORT__INIT;
    out.step = r->node.step;
    out.met = r->member.met;
    out.doubtful = r->member.doubtful;
    out.has_serves = out.has_version = true;
    out.serves = r->member.home;
    out.version = exo_strategy_version(r->strategy);
    return exo_protocol_pack(reply, &out.base, err);
}

/* Answers with the member to which this node could not connect: whether one of them leaves the run is the
 * trainer's decision. */
static exo_status
tell_unreached(exo_payload *reply, int64_t rank, exo_err *err)
{
    Exo__Train__NodeRegrouped m = EXO__TRAIN__NODE_REGROUPED__INIT;
    m.unreached = (uint32_t)rank;
    m.cause = exo_args_text(err->text);
    return exo_protocol_pack(reply, &m.base, err);
}

static exo_status
regroup(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct train_node *n = self;
    const Exo__Train__NodeRegroup *m = args;
    exo_replica *r = NULL;
    bool done = false;
    int64_t unreached = EXO_EPOCH_NOBODY;
    (void)call;
    exo_status st = get_member(n, "regroup", &r, err);
    if (st == EXO_OK && (m->n_ranks < 1 || m->n_ranks > r->fit->num_nodes ||
                         m->n_nodes != m->n_ranks || m->n_actors != m->n_ranks))
        st = exo_fail(err, EXO_INVAL, "regroup: ranks: expected each node's rank, process and id");
    if (st == EXO_OK)
        st = need_records(n, 1, err);
    if (st != EXO_OK)
        return st;
    exo_actor_id *actors = exo_calloc(m->n_ranks, sizeof *actors);
    if (!actors)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu nodes", m->n_ranks);
    const exo_epoch epoch = {.number = m->epoch,
                             .furthest = m->furthest,
                             .ranks = m->ranks,
                             .actors = actors,
                             .count = m->n_ranks,
                             .home = m->has_home ? m->home : m->ranks[0]};
    for (size_t i = 0; i < m->n_ranks; i++)
        actors[i] = (exo_actor_id){.node = m->nodes[i], .id = m->actors[i]};
    st = exo_replica_regroup(r, &epoch, &done, &unreached, err);
    if (done)
        record(n, r->member.loss, r->node.lr);
    exo_free(actors);
    return m->reads && unreached != EXO_EPOCH_NOBODY ? tell_unreached(reply, unreached, err) : st;
}

static exo_status
give(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    exo_replica *r = NULL;
    (void)call;
    (void)args;
    exo_status st = get_member(self, "give", &r, err);
    if (st == EXO_OK && r->member.doubtful)
        st = exo_fail(err, EXO_INVAL, "give: a step of node_%u is in doubt", r->rank);
    return st == EXO_OK ? exo_replica_give(r, reply, err) : st;
}

static exo_status
join(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct train_node *n = self;
    const Exo__Train__NodeJoin *m = args;
    char sha256[65];
    (void)call;
    if (!exo_replica_is_elastic(n->replica) || (n->begun && !n->replica->member.state))
        return exo_fail(err, EXO_INVAL, "join: the run of node_%u is not elastic", rank_of(n));
    n->begun = true;
    n->records.count = 0;
    const exo_actor_id from = {.node = m->node, .id = m->actor};
    exo_status st = exo_replica_join(n->replica, &from, m->position, m->bytes_sent, sha256, err);
    if (st != EXO_OK)
        return st;
    Exo__Train__NodeJoined out = EXO__TRAIN__NODE_JOINED__INIT;
    out.step = n->replica->node.step;
    out.sha256 = sha256;
    out.bytes = exo_state_bytes(n->replica->member.state);
    return exo_protocol_pack(reply, &out.base, err);
}

/* --- The mail lane ---------------------------------------------------------------------------- */

static exo_status
deliver(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    exo_payload payload;
    (void)args;
    (void)reply;
    exo_call_take_args(call, &payload);
    exo_status st = exo_replica_deliver(((struct train_node *)self)->replica, &payload,
                                        exo_call_node(call), err);
    exo_payload_release(&payload);
    return st == EXO_OK ? st : exo_fail_in(err, st, "deliver");
}

static exo_status
waits(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    const exo_replica *r = ((struct train_node *)self)->replica;
    const Exo__Train__NodeAsk *ask = args;
    exo_node_look look;
    (void)call;
    if (ask->to >= r->fit->num_nodes)
        return exo_fail(err, EXO_INVAL, "waits: to: %u is not a node of the run", ask->to);
    exo_status st =
        exo_replica_look(r, &(exo_node_ask){.of = ask->comm, .to = ask->to}, &look, err);
    return st == EXO_OK ? exo_node_look_pack(reply, &look, err) : st;
}

static exo_status
abandon(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    exo_replica *r = ((struct train_node *)self)->replica;
    const Exo__Train__NodeAbandon *m = args;
    (void)call;
    (void)reply;
    if (m->rank >= r->fit->num_nodes)
        return exo_fail(err, EXO_INVAL, "abandon: rank: %u is not a node of the run", m->rank);
    exo_replica_abandon(r, m->has_epoch ? m->epoch : UINT64_MAX, m->rank, m->cause);
    return EXO_OK;
}

/* --- The class -------------------------------------------------------------------------------- */

static const exo_field_rule cause_rules[] = {{.field = "cause", .most = EXO_ERR_TEXT}};

static const exo_args served[] = {
    {.method = "setup", .serve = setup},
    {.method = "train", .fields = &exo__train__train__descriptor, .serve = train},
    {.method = "average", .serve = average},
    {.method = "result", .fields = &exo__train__result__descriptor, .serve = result},
    {.method = "evaluate", .fields = &exo__train__evaluate__descriptor, .serve = evaluate},
    {.method = "correlate", .serve = correlate},
    {.method = "save", .fields = &exo__train__save__descriptor, .serve = save},
    {.method = "change", .fields = &exo__train__node_change__descriptor, .serve = change},
    {.method = "deliver", .raw = true, .serve = deliver},
    {.method = "abandon",
     .fields = &exo__train__node_abandon__descriptor,
     .rules = cause_rules,
     .num_rules = 1,
     .serve = abandon},
    {.method = "waits", .fields = &exo__train__node_ask__descriptor, .serve = waits},
    {.method = "report", .serve = report},
    {.method = "regroup", .fields = &exo__train__node_regroup__descriptor, .serve = regroup},
    {.method = "give", .serve = give},
    {.method = "join", .fields = &exo__train__node_join__descriptor, .serve = join},
    {.method = "save_server", .fields = &exo__train__save_server__descriptor, .serve = save_server},
};

const exo_protocol exo_train_node_protocol = {
    .name = "train_node",
    .start = {.method = "start", .fields = &exo__train__node_start__descriptor},
    .methods = served,
    .num_methods = sizeof served / sizeof *served,
};

static exo_status
serve(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    return exo_protocol_serve(&exo_train_node_protocol, call, self, args, reply, err);
}

static const exo_lane_class lanes[] = {{.name = "compute", .blocking = true},
                                       {.name = "mail", .capacity = 65536},
                                       {.name = "files", .blocking = true}};

/* In the order of `served`. */
static const exo_method methods[] = {
    {.name = "setup", .run = serve},
    {.name = "train", .run = serve},
    {.name = "average", .run = serve},
    {.name = "result", .run = serve},
    {.name = "evaluate", .run = serve},
    {.name = "correlate", .run = serve},
    {.name = "save", .run = serve},
    {.name = "change", .run = serve},
    {.name = "deliver", .lane = 1, .run = serve},
    {.name = "abandon", .lane = 1, .run = serve},
    {.name = "waits", .lane = 1, .run = serve},
    {.name = "report", .run = serve},
    {.name = "regroup", .run = serve},
    {.name = "give", .run = serve},
    {.name = "join", .run = serve},
    {.name = "save_server", .lane = 2, .run = serve},
};
_Static_assert(sizeof methods / sizeof *methods == sizeof served / sizeof *served,
               "each takes what its line says");

const exo_actor_class exo_train_node_class = {
    .name = "train_node",
    .state_size = sizeof(struct train_node),
    .start = start,
    .stop = stop,
    .lanes = lanes,
    .num_lanes = sizeof lanes / sizeof *lanes,
    .methods = methods,
    .num_methods = sizeof methods / sizeof *methods,
};
