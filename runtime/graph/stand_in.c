/* The graph class `stand_in`: computes for declared times and reduces declared amounts, without a
 * model. It predicts the effect of links on the training of a model that is not available, or too
 * large: data-parallel (an all_reduce in every step) or DiLoCo (in every H-th), with communication
 * of a layer during the computation of the layers before it. Owner of its state: the actor's
 * thread.
 *
 * A step is a forward pass, and a backward pass from the last layer to the first. In a step with
 * communication, the all_reduce of a layer begins after its backward pass, and the next step begins
 * when all of them are complete.
 *
 * With `fragments` (Streaming DiLoCo, arXiv:2501.18512) the layers form that many groups, every
 * fragments-th layer one of them. Each group communicates every `every` steps, at a step of its own,
 * evenly spread. With a `delay` the wait for a group is at the end of a step so much later. */
#include <exogym/memory.h>

#include "comm/edge.h"
#include "graph/builtin.h"
#include "graph/place.h"

struct stand_in {
    uint64_t steps, layers, every, bytes, fragments, delay;
    exo_time forward, backward;
    bool overlap;
};

static exo_status
stand_in_init(void *self, exo_config *config, exo_err *err)
{
    struct stand_in *s = self;
    exo_status st = exo_config_u64(config, "steps", 10, 1, 1000000000, &s->steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "layers", 1, 1, 10000, &s->layers, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "every", 1, 1, 1000000000, &s->every, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "fragments", 1, 1, s->layers < s->every ? s->layers : s->every,
                            &s->fragments, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "delay", 0, 0, s->every - 1, &s->delay, err);
    if (st == EXO_OK)
        st = exo_config_bytes(config, "bytes", 4000000, 4, UINT64_C(1) << 50, &s->bytes, err);
    if (st == EXO_OK)
        st = exo_config_time(config, "forward", 0, 0, INT64_MAX / 4, &s->forward, err);
    if (st == EXO_OK)
        st = exo_config_time(config, "backward", 0, 0, INT64_MAX / 4, &s->backward, err);
    return st == EXO_OK ? exo_config_bool(config, "overlap", true, &s->overlap, err) : st;
}

/* Computes for `cost`. */
static void
spend(exo_graph_actor *actor, const char *phase, exo_time cost)
{
    exo_pace *pace = &((exo_place *)actor)->pace;
    exo_pace_phase(pace, phase, cost);
    exo_pace_phase(pace, NULL, -1);
}

/* Waits for the requests of a fragment, also after an error; returns the first error. */
static exo_status
await_fragment(const struct stand_in *s, exo_request **requests, uint64_t fragment, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint64_t layer = fragment; layer < s->layers; layer += s->fragments)
        if (requests[layer] && st == EXO_OK)
            st = exo_request_wait(&requests[layer], err);
        else if (requests[layer])
            exo_request_cancel(&requests[layer]);
    return st;
}

/* Whether the step that ends with `done` steps is one of the fragment's, or comes `later` steps
 * after one. */
static bool
is_due(const struct stand_in *s, uint64_t fragment, uint64_t done, uint64_t later)
{
    uint64_t offset = (fragment + 1) * s->every / s->fragments;
    return done >= later + offset && (done - later - offset) % s->every == 0;
}

/* The fragment that communicates in a step; `fragments`: none does. */
static uint64_t
due_fragment(const struct stand_in *s, uint64_t done)
{
    uint64_t fragment = 0;
    while (fragment < s->fragments && !is_due(s, fragment, done, 0))
        fragment++;
    return fragment;
}

/* Does a step, the done-th. */
static exo_status
step(const struct stand_in *s, exo_graph_actor *actor, exo_group *group, exo_request **requests,
     uint64_t done, exo_err *err)
{
    size_t count = s->bytes / 4 / s->layers;
    uint64_t due = due_fragment(s, done);
    exo_status st = EXO_OK;
    spend(actor, "forward", s->forward);
    if (due == s->fragments || !s->overlap)
        spend(actor, "backward", s->backward);
    for (uint64_t layer = 0; st == EXO_OK && due < s->fragments && layer < s->layers; layer++) {
        if (s->overlap)
            spend(actor, "backward",
                  s->backward * (exo_time)(layer + 1) / (exo_time)s->layers -
                      s->backward * (exo_time)layer / (exo_time)s->layers);
        if (layer % s->fragments == due)
            st = exo_comm_begin_rehearsal(&requests[layer], group, count, EXO_F32, err);
    }
    for (uint64_t f = 0; st == EXO_OK && f < s->fragments; f++)
        if (is_due(s, f, done, s->delay))
            st = await_fragment(s, requests, f, err);
    return st;
}

static const exo_meter_class steps = {
    .name = "steps", .unit = "steps", .help = "steps that the actor has done"};

static exo_status
stand_in_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct stand_in *s = self;
    exo_group *group = exo_graph_group(actor, "gradients");
    exo_request **requests = exo_calloc(s->layers, sizeof *requests);
    exo_status st = requests ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for requests");
    uint64_t done = 0;
    exo_meter *meter = NULL;
    if (st == EXO_OK)
        st = exo_meter_declare(&meter, exo_graph_meters(actor), &steps, err);
    while (st == EXO_OK && done < s->steps && !exo_graph_cancelled(actor)) {
        st = step(s, actor, group, requests, done + 1, err);
        done += st == EXO_OK;
        exo_meter_count(meter, done);
    }
    for (uint64_t f = 0; requests && f < s->fragments; f++) {
        exo_status late = await_fragment(s, requests, f, st == EXO_OK ? err : NULL);
        st = st == EXO_OK ? late : st;
    }
    exo_free(requests);
    return st;
}

static const exo_graph_port ports[] = {
    {.name = "gradients", .type = "rehearsal", .direction = EXO_PORT_COLLECTIVE, .required = true}};
static const char *const phases[] = {"forward", "backward", NULL};

const exo_graph_class exo_stand_in_class = {
    .name = "stand_in",
    .help = "computes and reduces declared amounts, without a model",
    .ports = ports,
    .num_ports = 1,
    .phases = phases,
    .state_size = sizeof(struct stand_in),
    .init = stand_in_init,
    .run = stand_in_run,
    .order = "*reduce gradients",
};
