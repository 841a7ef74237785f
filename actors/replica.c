/* Replicas: see replica.h. This file makes a replica, saves and loads its state, and sets it up.
 * Read next: replica_share.c, replica_pass.c, replica_average.c. */
#include "actors/replica.h"

#include <stdio.h>

#include <exogym/data_parallel.h>
#include <exogym/memory.h>
#include <exogym/state.h>

#include "actor/hooks.h"
#include "actors/fit_engine.h"
#include "actors/fit_opts.h"
#include "actors/node_state.h"
#include "base/large_memory.h"
#include "base/parallel.h"
#include "base/traffic.h"
#include "comm/far.h"
#include "comm/server.h"
#include "graph/site.h"

void
exo_replica_rehearse(const exo_replica *r, bool on)
{
    if (!r->fit->rehearses)
        return;
    exo_parallel_rehearse(on);
    exo_memory_leave_large(on);
}

/* --- Making a replica ------------------------------------------------------------------------- */

static exo_status
make_strategy(exo_replica *r, exo_err *err)
{
    const char *name = NULL;
    exo_config *options = NULL;
    exo_status st = exo_fit_read_named(exo_config_root(r->document), "strategy", "a strategy",
                                       &name, &options, err);
    return st == EXO_OK ? exo_strategy_new(&r->strategy, name, options, err) : st;
}

/* Whether the strategy's messages, or those of its engine, go to other actors. They do not if all
 * nodes are in this process, or if an engine that is not the library's needs none. */
static bool
strategy_is_far(const exo_replica *r)
{
    return !r->fit->comm &&
           (!exo_comm_is_foreign(r->fit->engine) || exo_comm_engine_posts(r->fit->engine));
}

exo_status
exo_replica_open_comms(exo_replica *r, uint64_t epoch, uint32_t home, exo_comm **comm,
                       exo_comm **side, exo_err *err)
{
    exo_fit *fit = r->fit;
    exo_comm_edge edge;
    exo_comm_far_opts opts = {.runtime = r->place.runtime,
                              .size = fit->num_nodes,
                              .rank = r->rank,
                              .channel = r->place.channel + 2 * (uint32_t)epoch,
                              .method = "deliver",
                              .home = home,
                              .goes_on = fit->elastic,
                              .edge = exo_fit_comm_edge(fit, &edge) ? &edge : NULL};
    exo_status st = EXO_OK;
    if (r->place.pace)
        return EXO_OK;
    if (fit->engine_suspends && fit->engine->can_suspend)
        st = fit->engine->can_suspend(err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "engine_suspends");
    if (fit->comm)
        *comm = exo_comm_hold(fit->comm);
    else if (exo_comm_engine_posts(fit->engine))
        st = exo_fit_open_engine_far(comm, fit->engine, exo_fit_name(fit), &opts, err);
    else if (strategy_is_far(r))
        st = exo_comm_far(comm, &opts, err);
    else
        st = exo_fit_open_engine(comm, fit->engine, exo_fit_name(fit), opts.size,
                                 exo_runtime_clock(r->place.runtime), err);
    opts.channel++;
    opts.edge = NULL; /* set-up and evaluation do not use the strategy's edge */
    if (st == EXO_OK && fit->side)
        *side = exo_comm_hold(fit->side);
    else if (st == EXO_OK)
        st = exo_comm_far(side, &opts, err);
    return st;
}

static exo_status
make_comms(exo_replica *r, exo_err *err)
{
    return exo_replica_open_comms(r, 0, 0, &r->comm, &r->side, err);
}

static exo_status
open_groups(exo_replica *r, exo_err *err)
{
    char name[32];
    if (r->place.pace)
        return EXO_OK;
    snprintf(name, sizeof name, "node_%u", r->rank);
    exo_status st = exo_group_open(&r->group, r->comm, r->rank, name, err);
    if (st == EXO_OK)
        st = exo_group_open(&r->side_group, r->side, r->rank, name, err);
    if (st != EXO_OK)
        return st;
    exo_group_set_timeout(r->group, r->fit->timeout);
    exo_group_set_timeout(r->side_group, r->fit->timeout);
    return r->fit->parts ? exo_replica_open_share(r, err) : EXO_OK;
}

static exo_status
take_pace(exo_replica *r, exo_err *err)
{
    const exo_fit *fit = r->fit;
    if (r->place.pace) {
        r->pace = r->place.pace;
        r->step_cost = r->place.step_cost;
        return EXO_OK;
    }
    r->step_cost = fit->rehearses ? fit->step_cost : exo_fit_step_cost(fit->graph);
    r->pace = fit->paces ? &fit->paces[r->rank] : &r->own_pace;
    return fit->paces
               ? EXO_OK
               : exo_pace_init(&r->own_pace, NULL, 0, exo_fit_speed(fit->graph, r->rank), err);
}

static exo_status
make_params(exo_replica *r, exo_err *err)
{
    const exo_fit *fit = r->fit;
    r->model = exo_fit_model_of(fit, r->rank);
    if (fit->rehearses && !r->by_units)
        return exo_model_params_phantom(r->model, &r->params, err);
    exo_status st = r->by_units ? exo_model_by_units(r->model, fit->seed, &r->params, err)
                    : r->within ? exo_model_values(r->model, fit->seed, &r->params, err)
                                : exo_model_params(r->model, fit->seed, &r->params, err);
    return st == EXO_OK ? exo_params_move(&r->params, r->device, err) : st;
}

static exo_status
make_copy(exo_replica *r, exo_err *err)
{
    const exo_fit *fit = r->fit;
    r->by_units = exo_strategy_keeps_units(r->strategy);
    exo_status st = exo_device_open_place(
        &r->device, fit->device,
        r->place.runtime ? exo_actor_place(r->place.runtime, r->place.self, r->rank) : r->rank,
        err);
    r->within = st == EXO_OK && fit->stages == 1 && exo_device_is_host(r->device) &&
                exo_fit_steps_within(r->strategy, exo_fit_copies(fit), fit->batch_size,
                                     fit->minibatch_size);
    if (st == EXO_OK)
        st = make_params(r, err);
    if (st == EXO_OK && fit->stages > 1)
        st = exo_pipeline_new(&r->pipeline, r, err);
    if (st != EXO_OK)
        return st;
    r->node = (exo_node){
        .rank = r->rank / exo_fit_sharing(fit),
        .num_nodes = exo_fit_copies(fit),
        .max_steps = fit->max_steps,
        .seed = fit->seed,
        .group = r->copies[0] ? r->copies[0] : r->group,
        .meters = r->meters.strategy,
        .elastic = fit->elastic,
    };
    exo_node_show_params(&r->node, r->params);
    return fit->parts ? exo_replica_count_share(r, err) : EXO_OK;
}

static exo_status
open_meters(exo_replica *r, exo_err *err)
{
    return exo_node_meters_init(&r->meters, r->place.meters, err);
}

static exo_status
make(exo_replica *r, const char *document, exo_err *err)
{
    static exo_status (*const parts[])(exo_replica *, exo_err *) = {
        make_strategy, make_comms, open_groups, open_meters, take_pace, make_copy};
    uint64_t rank = 0;
    exo_status st = exo_config_parse(&r->document, "start: document", document, err);
    if (st == EXO_OK)
        st = exo_config_u64(exo_config_root(r->document), "rank", 0, 0, EXO_FIT_MAX_NODES - 1,
                            &rank, err);
    r->rank = r->node.rank = (uint32_t)rank;
    r->member.position = UINT64_MAX;
    if (st == EXO_OK)
        st = exo_config_u64(exo_config_root(r->document), "position", UINT64_MAX, 0, INT64_MAX,
                            &r->member.position, err);
    if (st == EXO_OK)
        st = exo_fit_open(&r->fit, r->place.runtime, exo_config_root(r->document), err);
    if (st == EXO_OK && r->rank >= r->fit->num_nodes)
        st = exo_fail(err, EXO_INVAL, "rank %u is not a node of a run of %u nodes", r->rank,
                      r->fit->num_nodes);
    for (size_t i = 0; st == EXO_OK && i < sizeof parts / sizeof *parts; i++)
        st = parts[i](r, err);
    return st;
}

exo_status
exo_replica_open(exo_replica **out, const exo_replica_place *place, const char *document,
                 exo_err *err)
{
    exo_replica *r = exo_calloc(1, sizeof *r);
    if (!r)
        return exo_fail(err, EXO_NOMEM, "no memory for a node");
    r->place = *place;
    pthread_mutex_init(&r->member.lock, NULL);
    exo_status st = make(r, document, err);
    if (st == EXO_OK)
        *out = r;
    else
        exo_replica_close(&r);
    return st;
}

void
exo_replica_leave_comms(exo_replica *r)
{
    pthread_mutex_lock(&r->member.lock);
    exo_comm *comm = r->comm, *side = r->side;
    r->comm = r->side = NULL;
    pthread_mutex_unlock(&r->member.lock);
    exo_replica_close_share(r);
    exo_group_close(&r->group);
    exo_group_close(&r->side_group);
    exo_group_close(&r->member.whole[0]);
    exo_group_close(&r->member.whole[1]);
    if (comm && strategy_is_far(r))
        exo_comm_far_disconnect(comm);
    if (side && !r->fit->side)
        exo_comm_far_disconnect(side);
    exo_comm_drop(&comm);
    exo_comm_drop(&side);
}

void
exo_replica_close(exo_replica **replica)
{
    exo_replica *r = *replica;
    *replica = NULL;
    if (!r)
        return;
    exo_loader_close(&r->loader);
    exo_batch_release(&r->eval_batch);
    exo_optim_free(&r->node.optim);
    if (r->strategy)
        exo_strategy_leave(r->strategy);
    exo_group_close(&r->inside);
    exo_replica_leave_comms(r);
    exo_pass_values_release(&r->passes);
    exo_tape_free(&r->train_tape);
    exo_tape_free(&r->eval_tape);
    exo_pipeline_free(&r->pipeline);
    exo_params_free(&r->average);
    exo_shards_release(&r->average_shards);
    exo_params_free(&r->params);
    exo_pace_release(&r->own_pace);
    exo_strategy_free(&r->strategy);
    exo_free(r->counted);
    exo_device_close(&r->device);
    exo_node_meters_release(&r->meters); /* after the strategy, which counts in them */
    exo_config_free(&r->document);
    exo_fit_drop(&r->fit);
    pthread_mutex_destroy(&r->member.lock);
    exo_free(r);
}

/* --- The state in a checkpoint ---------------------------------------------------------------- */

void
exo_replica_list_state(exo_replica *r, exo_state *state, uint64_t *elapsed, uint64_t *bytes)
{
    exo_node_list_state(&r->node, r->strategy, elapsed, bytes, state);
}

/* Writes the server's state to its file in the folder of a checkpoint, or reads it from there. */
static exo_status
transfer_server(exo_comm *comm, const char *folder,
                exo_status (*how)(exo_state *state, const char *path, exo_err *err), exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    exo_state *state = NULL;
    exo_status st = exo_checkpoint_server_path(path, folder, err);
    if (st == EXO_OK)
        st = exo_state_new(&state, err);
    if (st == EXO_OK && exo_server_pause(comm->server, state)) {
        st = how(state, path, err);
        exo_server_resume(comm->server);
    }
    exo_state_free(&state);
    return st;
}

static exo_status
load(exo_replica *r, uint64_t *elapsed, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    exo_state *state = NULL;
    exo_status st = exo_checkpoint_node_path(path, r->fit->resume_from, r->rank, err);
    if (st == EXO_OK)
        st = exo_state_new(&state, err);
    if (st == EXO_OK) {
        exo_replica_list_state(r, state, elapsed, &r->bytes_before);
        st = exo_state_load(state, path, err);
    }
    exo_state_free(&state);
    return st == EXO_OK && r->rank == 0 && r->comm
               ? transfer_server(r->comm, r->fit->resume_from, exo_state_load, err)
               : st;
}

uint64_t
exo_replica_bytes_sent(const exo_replica *r)
{
    return r->bytes_before + exo_replica_traffic(r).payload_bytes;
}

exo_traffic
exo_replica_traffic(const exo_replica *r)
{
    exo_traffic sum = r->member.traffic;
    const exo_traffic now = r->group ? exo_group_traffic(r->group) : (exo_traffic){0};
    exo_traffic_add(&sum, &now);
    return sum;
}

exo_time
exo_replica_waited(const exo_replica *r)
{
    return r->member.waited + (r->group ? exo_group_stats(r->group).waited : 0);
}

/* Tells the strategy that all units of a flat copy will be read at once, or were read. The strategy
 * may have to complete them. */
static exo_status
use_all_units(exo_replica *r,
              exo_status (*tell)(exo_strategy *, exo_node *, size_t unit, exo_group *group,
                                 exo_err *err),
              exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t u = 0; !r->by_units && st == EXO_OK && u < r->node.num_units; u++)
        st = tell(r->strategy, &r->node, u, exo_replica_side(r), err);
    return st;
}

exo_status
exo_replica_save(exo_replica *r, uint32_t rank, const char *folder, uint64_t elapsed,
                 char sha256[65], exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    uint64_t bytes = exo_replica_bytes_sent(r);
    exo_state *state = NULL;
    exo_status st = exo_checkpoint_node_path(path, folder, rank, err);
    if (st == EXO_OK)
        st = exo_state_new(&state, err);
    if (st == EXO_OK)
        st = use_all_units(r, exo_strategy_before_use, err);
    if (st == EXO_OK) {
        exo_replica_list_state(r, state, &elapsed, &bytes);
        st = exo_state_save_hashed(state, path, sha256, err);
    }
    if (st == EXO_OK)
        st = use_all_units(r, exo_strategy_after_use, err);
    exo_state_free(&state);
    return st;
}

/* --- Set-up ----------------------------------------------------------------------------------- */

/* Connects the replica's own communicators with the other actors. */
static exo_status
meet(exo_replica *r, exo_err *err)
{
    uint32_t count = r->fit->num_nodes;
    if (!strategy_is_far(r) && r->fit->side)
        return EXO_OK;
    exo_ref *nodes = exo_calloc(count, sizeof *nodes);
    exo_status st = nodes ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %u nodes", count);
    for (uint32_t i = 0; st == EXO_OK && i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "node_%u", i);
        if (i == r->rank)
            nodes[i] = r->place.self;
        else
            st = exo_get_actor(r->place.runtime, exo_fit_name(r->fit), name, &nodes[i], err);
    }
    if (st == EXO_OK && strategy_is_far(r))
        st = exo_comm_far_connect(r->comm, nodes, err);
    if (st == EXO_OK && !r->fit->side)
        st = exo_comm_far_connect(r->side, nodes, err);
    exo_free(nodes);
    return st;
}

/* Measures the links of the strategy's communicator and lets its ways follow them. All members get
 * the same figures. */
static exo_status
measure_links(exo_replica *r, exo_err *err)
{
    exo_fit *fit = r->fit;
    const size_t count = (size_t)fit->num_nodes * fit->num_nodes;
    exo_link_figure *figures = exo_calloc(count, sizeof *figures);
    if (!figures)
        return exo_fail(err, EXO_NOMEM, "no memory for the links of %u nodes", fit->num_nodes);
    exo_status st = exo_comm_far_measure(
        r->comm, exo_deadline(exo_runtime_clock(r->place.runtime), fit->timeout),
        figures + (size_t)r->rank * fit->num_nodes, err);
    if (st == EXO_OK)
        st = exo_all_gather(
            r->side_group,
            (exo_array){.data = figures, .count = count * sizeof *figures, .dtype = EXO_U8}, err);
    exo_comm_far_merge(fit->num_nodes, figures, figures);
    if (st == EXO_OK)
        st = exo_comm_follow(r->comm, figures, err);
    pthread_mutex_lock(&fit->shared.making);
    if (st == EXO_OK && !fit->figures) {
        fit->figures = figures;
        figures = NULL;
    }
    pthread_mutex_unlock(&fit->shared.making);
    exo_free(figures);
    return st;
}

/* Distributes rank 0's values of a unit to all members, unless each has drawn its own. */
static exo_status
agree_on_unit(exo_replica *r, size_t unit, exo_err *err)
{
    const bool syncs = exo_strategy_syncs(r->strategy);
    exo_array values;
    exo_status st = exo_unit_open(r->params, unit, &values, err);
    bool draws = r->by_units && (r->node.rank == 0 || !syncs) && !r->fit->rehearses;
    if (st == EXO_OK && draws)
        st = exo_unit_draw(r->model, r->params, unit, r->node.seed, err);
    if (st == EXO_OK && !r->fit->rehearses && syncs)
        st = exo_broadcast(exo_replica_side(r), values, 0, err);
    if (st == EXO_OK)
        st = exo_strategy_keep(r->strategy, &r->node, unit, err);
    exo_unit_close(r->params, unit);
    return st;
}

/* Distributes units, statistics and frozen parameters. */
static exo_status
agree_on_parameters(exo_replica *r, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t u = 0; st == EXO_OK && u < r->node.num_units; u++)
        st = agree_on_unit(r, u, err);
    if (st != EXO_OK || r->fit->rehearses || !exo_strategy_syncs(r->strategy))
        return st;
    return exo_broadcast(exo_replica_side(r), exo_params_buffers_array(r->params), 0, err);
}

/* A strategy on a flat copy starts once it has the parameters. One that keeps units starts before,
 * and then receives them. In a graph nothing is distributed: every member draws the parameters from
 * the seed, and strategies that keep units are not admitted. */
static exo_status
start_strategy(exo_replica *r, exo_err *err)
{
    exo_replica_rehearse(r, true);
    exo_status st = r->by_units || r->place.pace ? EXO_OK : agree_on_parameters(r, err);
    if (st == EXO_OK)
        st = exo_strategy_start(r->strategy, &r->node, err);
    if (st == EXO_OK && r->by_units)
        st = agree_on_parameters(r, err);
    exo_replica_rehearse(r, false);
    return st;
}

exo_status
exo_replica_open_loader(exo_replica *r, uint64_t first, exo_err *err)
{
    const exo_fit *fit = r->fit;
    const exo_loader_opts opts = {
        .num_nodes = fit->shared_data ? exo_fit_copies(fit) : 1,
        .rank = fit->shared_data ? r->rank / exo_fit_sharing(fit) : 0,
        .shuffle = fit->shuffle,
        /* Nodes with data of their own read it in different orders. */
        .seed = fit->shared_data ? fit->seed : fit->seed + r->rank / exo_fit_sharing(fit),
        .batch_size = fit->batch_size,
        .first = first,
    };
    return exo_loader_open(&r->loader, fit->train[r->rank], &opts, err);
}

exo_status
exo_replica_set_up(exo_replica *r, uint64_t *elapsed, exo_err *err)
{
    exo_status st = r->place.pace ? EXO_OK : meet(r, err);
    if (st == EXO_OK && r->fit->measures && !r->place.pace)
        st = measure_links(r, err);
    if (st == EXO_OK)
        st = start_strategy(r, err);
    if (st == EXO_OK && r->fit->resume_from[0])
        st = load(r, elapsed, err);
    const uint64_t position = r->member.position;
    return st == EXO_OK
               ? exo_replica_open_loader(r, position == UINT64_MAX ? r->node.step : position, err)
               : st;
}

/* --- From any thread -------------------------------------------------------------------------- */

/* Holds the two communicators, which a change of the members replaces. */
static void
hold_comms(const exo_replica *r, exo_comm **comm, exo_comm **side, uint64_t *epoch)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&r->member.lock;
    pthread_mutex_lock(lock);
    *comm = r->comm ? exo_comm_hold(r->comm) : NULL;
    *side = r->side ? exo_comm_hold(r->side) : NULL;
    *epoch = r->member.epoch;
    pthread_mutex_unlock(lock);
}

/* Whether a message is of another epoch of an elastic run: late, and of no use to anybody. */
static bool
is_late(const exo_replica *r, uint32_t channel, uint32_t first)
{
    return exo_replica_is_elastic(r) && channel >= r->place.channel && channel < first;
}

static exo_status
deliver(exo_replica *r, exo_comm *comm, exo_comm *side, uint32_t first, exo_payload *payload,
        uint64_t from, exo_err *err)
{
    uint32_t channel = exo_comm_far_channel(payload);
    bool strategys = channel == first;
    if (is_late(r, channel, first) || (exo_replica_is_elastic(r) && !comm)) {
        exo_payload_release(payload);
        return EXO_OK;
    }
    if (!strategys && channel != first + 1)
        return exo_fail(err, EXO_INVAL, "the message is not for a collective of this node");
    if (strategys ? r->fit->comm : r->fit->side)
        return exo_fail(
            err, EXO_INVAL,
            "the message is for a collective among processes, but all nodes are in this process");
    if (strategys && !strategy_is_far(r))
        return exo_fail(err, EXO_INVAL, "the message is for a collective of another engine");
    return exo_comm_far_deliver(strategys ? comm : side, payload, from, err);
}

exo_status
exo_replica_deliver(exo_replica *r, exo_payload *payload, uint64_t from, exo_err *err)
{
    exo_comm *comm = NULL, *side = NULL;
    uint64_t epoch = 0;
    hold_comms(r, &comm, &side, &epoch);
    exo_status st =
        deliver(r, comm, side, r->place.channel + 2 * (uint32_t)epoch, payload, from, err);
    exo_comm_drop(&comm);
    exo_comm_drop(&side);
    return st;
}

exo_status
exo_replica_save_server(exo_replica *r, const char *folder, exo_err *err)
{
    exo_comm *comm = NULL, *side = NULL;
    uint64_t epoch = 0;
    hold_comms(r, &comm, &side, &epoch);
    exo_status st = comm ? transfer_server(comm, folder, exo_state_save, err) : EXO_OK;
    exo_comm_drop(&comm);
    exo_comm_drop(&side);
    return st;
}

static void
fail_comms(exo_comm *comm, exo_comm *side, uint32_t rank, const char *cause)
{
    if (comm)
        exo_comm_fail(comm, rank, cause);
    if (side)
        exo_comm_fail(side, rank, cause);
}

void
exo_replica_fail(exo_replica *r, uint32_t rank, const char *cause)
{
    exo_replica_abandon(r, UINT64_MAX, rank, cause);
}

void
exo_replica_abandon(exo_replica *r, uint64_t epoch, uint32_t rank, const char *cause)
{
    exo_comm *comm = NULL, *side = NULL;
    uint64_t now = 0;
    hold_comms(r, &comm, &side, &now);
    if (epoch >= now) {
        r->member.interrupted = true;
        fail_comms(comm, side, rank, cause);
    }
    exo_comm_drop(&comm);
    exo_comm_drop(&side);
}

exo_status
exo_replica_look(const exo_replica *r, const exo_node_ask *ask, exo_node_look *out, exo_err *err)
{
    exo_comm *comm = NULL, *side = NULL;
    uint64_t epoch = 0;
    hold_comms(r, &comm, &side, &epoch);
    *out = (exo_node_look){0};
    exo_status st = comm && side
                        ? exo_node_look_at(out, comm, side, r->rank, r->fit->num_nodes, ask, err)
                        : EXO_OK;
    exo_comm_drop(&comm);
    exo_comm_drop(&side);
    return st;
}

/* Every node of the run makes this change. The nodes of one process share their links, and each of
 * them sets the same values. */
exo_status
exo_replica_change(exo_replica *r, const char *graph, exo_err *err)
{
    exo_graph_spec *next = NULL;
    if (!r->fit->graph)
        return exo_fail(err, EXO_INVAL, "change: graph: the run has no graph");
    exo_status st = exo_graph_parse(&next, "change: graph", graph, NULL, err);
    if (st == EXO_OK)
        st = exo_graph_check_job_change(r->fit->graph, next, err);
    if (st == EXO_OK)
        st = exo_fit_change(r->fit, r->comm, next, err);
    exo_graph_spec_free(&next);
    return st;
}
