/* The graph class `rollout_maker`: an actor plays an environment with the newest policy that it has
 * received, and sends its experience.
 *
 * Owner of the state: the thread that runs the actor. Read next: player.h (how it plays), rollout.h
 * (what it sends), policy_trainer.c (the trainer). */
#include <stdio.h>

#include <exogym/memory.h>

#include "actors/builtin_classes.h"
#include "actors/play.h"
#include "actors/player.h"
#include "actors/rollout.h"
#include "actors/stream_seed.h"

enum {
    ITEMS,
    VERSION,
    NUM_METERS
};

static const exo_meter_class meter_classes[NUM_METERS] = {
    [ITEMS] = {.name = "items",
               .unit = "items",
               .help = "items of experience that the maker has sent"},
    [VERSION] = {.name = "version",
                 .unit = "1",
                 .help = "version of the policy that the maker played the last item with",
                 .kind = EXO_GAUGE},
};

struct maker {
    exo_play play;
    uint64_t environments, steps, total;
    bool wait, synchronous;
    exo_meter *meters[NUM_METERS];
    exo_player *player;
    exo_policy policy; /* its values are owned */
    uint64_t version;  /* version of the policy */
};

static exo_status
maker_init(void *self, exo_config *config, exo_err *err)
{
    struct maker *m = self;
    exo_status st = exo_play_read(&m->play, config, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "environments", 4, 1, EXO_ENVIRONMENTS_MAX, &m->environments,
                            err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "steps", 128, 1, EXO_ROLLOUT_MAX_STEPS, &m->steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "total", 0, 0, UINT64_MAX, &m->total, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "wait_for_parameters", false, &m->wait, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "synchronous", false, &m->synchronous, err);
    if (st == EXO_OK && m->steps * m->environments > EXO_ROLLOUT_MAX_STEPS)
        return exo_config_fail(config, err, "steps * environments is at most %d",
                               EXO_ROLLOUT_MAX_STEPS);
    return st;
}

static void
maker_release(void *self)
{
    struct maker *m = self;
    exo_player_free(&m->player);
    exo_free(m->policy.values);
    exo_play_release(&m->play);
}

/* Waits at most `timeout` for parameters, and takes them unless they are older than the current
 * ones. */
static exo_status
receive_policy(struct maker *m, exo_port *port, exo_time timeout, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st = exo_port_receive(port, timeout, &item, err);
    if (st != EXO_OK)
        return st;
    if (item->version >= m->version)
        st = exo_policy_read(&m->policy, item, err);
    if (st != EXO_OK)
        st = exo_fail_in(err, st, "parameters from sender %u, item %llu", item->from,
                         (unsigned long long)item->number);
    else if (item->version > m->version)
        m->version = item->version;
    exo_item_drop(&item);
    return st;
}

/* Takes all parameters that have arrived. It is no error if there are none, or if the input is
 * closed. Before its first rollout with wait_for_parameters the maker waits for parameters; CLOSED
 * then ends it. If `synchronous` it does so before each rollout, and takes no more than it waited for:
 * each of several trainers sends it a version, and counts on a rollout for it. */
static exo_status
newest_policy(struct maker *m, exo_port *port, bool first, exo_err *err)
{
    exo_status st = EXO_OK;
    if (port && (m->synchronous || (first && m->wait)))
        st = receive_policy(m, port, EXO_PORT_TIMEOUT, err);
    if (st != EXO_OK || m->synchronous)
        return st;
    while (st == EXO_OK && port && exo_port_pending(port) > 0)
        st = receive_policy(m, port, 0, err);
    return st == EXO_TIMEOUT || st == EXO_CLOSED ? EXO_OK : st;
}

static exo_status
play(struct maker *m, exo_graph_actor *actor, exo_item **out, exo_err *err)
{
    const exo_environment_shape *shape = exo_environment_spec_shape(m->play.spec);
    exo_item_part parts[EXO_ROLLOUT_PARTS];
    exo_rollout rollout;
    size_t count = exo_rollout_parts(shape, m->steps, m->environments, parts);
    exo_status st = exo_item_new(out, parts, count, err);
    if (st == EXO_OK)
        st = exo_rollout_view(&rollout, *out, shape, err);
    if (st != EXO_OK)
        return st;
    exo_graph_phase(actor, "play");
    exo_player_play(m->player, &m->policy, &rollout);
    (*out)->version = m->version;
    return EXO_OK;
}

/* Makes the player and the first version of the policy, which follows from the run's seed. */
static exo_status
prepare(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    uint64_t seed = exo_graph_seed(actor);
    float *values = exo_calloc(exo_policy_numel(&m->play.shape), sizeof *values);
    if (!values)
        return exo_fail(err, EXO_NOMEM, "no memory for a policy");
    m->policy = exo_policy_view(&m->play.shape, values);
    exo_policy_init(&m->policy, seed);
    exo_status st =
        exo_meter_declare_all(m->meters, exo_graph_meters(actor), meter_classes, NUM_METERS, err);
    return st == EXO_OK ? exo_player_new(&m->player, m->play.spec, m->environments,
                                         exo_stream_seed(seed, exo_graph_name(actor)), err)
                        : st;
}

static exo_status
maker_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct maker *m = self;
    exo_port *experience = exo_graph_output(actor, "experience"),
             *parameters = exo_graph_input(actor, "parameters");
    exo_status st = prepare(m, actor, err);
    for (uint64_t i = 0;
         st == EXO_OK && (m->total == 0 || i < m->total) && !exo_graph_cancelled(actor); i++) {
        exo_item *item = NULL;
        st = newest_policy(m, parameters, i == 0, err);
        if (st == EXO_OK)
            st = play(m, actor, &item, err);
        if (st == EXO_OK)
            st = exo_port_send(experience, &item, EXO_PORT_TIMEOUT, err);
        exo_item_drop(&item);
        if (st == EXO_OK) {
            exo_meter_count(m->meters[ITEMS], i + 1);
            exo_meter_set(m->meters[VERSION], (double)m->version);
        }
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

static void
maker_order(const void *self, char *out, size_t size)
{
    const struct maker *m = self;
    char times[32] = "*";
    if (m->total > 0)
        snprintf(times, sizeof times, "%llu ", (unsigned long long)m->total);
    snprintf(out, size, "%s%s(%s parameters; send experience)",
             m->wait && !m->synchronous ? "receive parameters; " : "", times,
             m->synchronous ? "receive" : "poll");
}

static void
maker_shape(const void *self, char *out, size_t size)
{
    exo_play_write_shape(&((const struct maker *)self)->play, out, size);
}

static const exo_graph_port maker_ports[] = {
    {.name = "experience", .type = "rollout", .direction = EXO_PORT_OUTPUT, .required = true},
    {.name = "parameters", .type = "policy", .direction = EXO_PORT_INPUT},
};
static const char *const maker_phases[] = {"play", NULL};

const exo_graph_class exo_rollout_maker_class = {
    .name = "rollout_maker",
    .help = "plays an environment; options environment, environments, steps, total, units, "
            "wait_for_parameters, synchronous",
    .ports = maker_ports,
    .num_ports = sizeof maker_ports / sizeof *maker_ports,
    .phases = maker_phases,
    .state_size = sizeof(struct maker),
    .init = maker_init,
    .run = maker_run,
    .write_order = maker_order,
    .write_shape = maker_shape,
    .release = maker_release,
};
