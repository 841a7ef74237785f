/* The common options of makers and trainers of rollouts: see play.h. */
#include "actors/play.h"

#include <stdio.h>

#include "base/config_edit.h"

/* A name that no environment has is a mistake of the graph, as any other wrong value. */
static exo_status
read_environment(exo_play *play, exo_config *config, exo_err *err)
{
    exo_err reason = {0};
    exo_config *node = exo_config_get(config, "environment");
    exo_status st =
        exo_environment_spec_read(&play->spec, config, "environment", "cartpole", &reason);
    if (st == EXO_NOT_FOUND)
        return exo_config_fail(node ? node : config, err, "environment: %s", reason.text);
    if (st != EXO_OK)
        *err = reason;
    return st;
}

exo_status
exo_play_read(exo_play *play, exo_config *config, exo_err *err)
{
    uint64_t units = 0;
    exo_status st = read_environment(play, config, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "units", 64, EXO_POLICY_UNITS_STEP, EXO_POLICY_MAX_UNITS,
                            &units, err);
    if (st == EXO_OK && units % EXO_POLICY_UNITS_STEP != 0)
        st = exo_config_fail(config, err, "units is a multiple of %d", EXO_POLICY_UNITS_STEP);
    if (st == EXO_OK)
        play->shape = exo_policy_shape_for(exo_environment_spec_shape(play->spec), (size_t)units);
    return st;
}

void
exo_play_release(exo_play *play)
{
    exo_environment_spec_free(&play->spec);
}

void
exo_play_write_shape(const exo_play *play, char *out, size_t size)
{
    const exo_policy_shape *s = &play->shape;
    uint32_t players = exo_environment_spec_shape(play->spec)->players;
    snprintf(out, size, "%s: %zu observations, %zu %s, %u player%s, %zu units",
             exo_environment_spec_name(play->spec), s->observation, s->outputs,
             s->box ? "continuous actions" : "actions", players, players == 1 ? "" : "s", s->units);
}
