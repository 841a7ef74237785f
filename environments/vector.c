/* Vectors of environments. Each instance has a fixed place in one array of states.
 *
 * Owner: the caller, one thread at a time. Read next: spec.h. */
#include <string.h>

#include <exogym/memory.h>

#include "environments/spec.h"

/* What a vector knows of an instance beside its state. */
struct instance {
    uint64_t episode; /* index of the next episode */
    uint64_t steps;   /* of the current episode so far */
};

struct exo_environments {
    const exo_environment_spec *spec;
    size_t count;
    uint64_t seed;
    size_t stride; /* bytes from a state to the next: a multiple of 64 */
    struct instance *instances;
    unsigned char *states; /* (count, stride), aligned to 64 bytes */
};

static void *
state_of(const exo_environments *v, size_t e)
{
    return v->states + e * v->stride;
}

static void
begin_episode(exo_environments *v, size_t e)
{
    exo_rng rng;
    exo_rng_init(&rng, v->seed, EXO_RNG_RESET, (uint32_t)e, v->instances[e].episode++);
    v->instances[e].steps = 0;
    v->spec->environment_class->begin(v->spec->self, state_of(v, e), &rng);
}

exo_status
exo_environments_new(exo_environments **out, const exo_environment_spec *spec, size_t count,
                     uint64_t seed, exo_err *err)
{
    if (count < 1 || count > EXO_ENVIRONMENTS_MAX)
        return exo_fail(err, EXO_INVAL, "a vector has 1 to %d environments, not %zu",
                        EXO_ENVIRONMENTS_MAX, count);
    exo_environments *v = exo_calloc(1, sizeof *v);
    if (v) {
        v->stride = (spec->shape.state + 63) / 64 * 64;
        v->instances = exo_calloc(count, sizeof *v->instances);
        v->states = exo_alloc_aligned(count * v->stride);
    }
    if (!v || !v->instances || !v->states) {
        exo_environments_free(&v);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu environments", count);
    }
    v->spec = spec;
    v->count = count;
    v->seed = seed;
    for (size_t e = 0; e < count; e++)
        begin_episode(v, e);
    *out = v;
    return EXO_OK;
}

void
exo_environments_free(exo_environments **environments)
{
    exo_environments *v = *environments;
    if (!v)
        return;
    for (size_t e = 0; v->spec && v->spec->environment_class->end && e < v->count; e++)
        v->spec->environment_class->end(v->spec->self, state_of(v, e));
    exo_free(v->instances);
    exo_free(v->states);
    exo_free(v);
    *environments = NULL;
}

void
exo_environments_observe(const exo_environments *v, float *observations)
{
    const exo_environment_spec *spec = v->spec;
    if (spec->environment_class->observe_many) {
        spec->environment_class->observe_many(spec->self, v->states, v->stride, v->count,
                                              observations);
        return;
    }
    for (size_t e = 0; e < v->count; e++)
        spec->environment_class->observe(spec->self, state_of(v, e),
                                         observations + e * spec->shape.observation);
}

void
exo_environments_players(const exo_environments *v, uint8_t *players)
{
    const exo_environment_spec *spec = v->spec;
    for (size_t e = 0; e < v->count; e++)
        players[e] = spec->environment_class->player
                         ? (uint8_t)spec->environment_class->player(spec->self, state_of(v, e))
                         : 0;
}

/* Returns instance `e`'s action; a continuous one is clipped into `box`. */
static exo_action
read_action(const exo_environment_shape *shape, const void *actions, size_t e, float *box)
{
    if (shape->actions > 0)
        return (exo_action){.choice = ((const int32_t *)actions)[e]};
    const float *given = (const float *)actions + e * shape->box;
    for (size_t i = 0; i < shape->box; i++) {
        float low = shape->low[i], high = shape->high[i];
        box[i] = given[i] < low ? low : given[i] > high ? high : given[i];
    }
    return (exo_action){.box = box};
}

static void
make_steps(exo_environments *v, const void *actions, float *rewards, uint8_t *ends)
{
    const exo_environment_spec *spec = v->spec;
    const exo_environment_class *c = spec->environment_class;
    const exo_environment_shape *shape = &spec->shape;
    float box[EXO_ENVIRONMENT_MAX_ACTIONS];
    if (c->step_many) {
        c->step_many(spec->self, v->states, v->stride, v->count, actions, rewards, ends);
        return;
    }
    for (size_t e = 0; e < v->count; e++) {
        exo_action action = read_action(shape, actions, e, box);
        ends[e] =
            (uint8_t)c->step(spec->self, state_of(v, e), action, rewards + e * shape->players);
    }
}

void
exo_environments_step(exo_environments *v, const void *actions, float *rewards, uint8_t *ends,
                      float *finals)
{
    const exo_environment_spec *spec = v->spec;
    const exo_environment_shape *shape = &spec->shape;
    make_steps(v, actions, rewards, ends);
    for (size_t e = 0; e < v->count; e++) {
        uint64_t steps = ++v->instances[e].steps;
        if (ends[e] == EXO_EPISODE_GOES_ON && shape->max_steps > 0 && steps >= shape->max_steps)
            ends[e] = EXO_EPISODE_TRUNCATED;
        if (ends[e] == EXO_EPISODE_GOES_ON)
            continue;
        if (finals)
            spec->environment_class->observe(spec->self, state_of(v, e),
                                             finals + e * shape->observation);
        begin_episode(v, e);
    }
}
