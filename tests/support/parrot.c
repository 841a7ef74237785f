/* The tool `parrot`: see parrot.h. */
#include "support/parrot.h"

#include <stdlib.h>

struct memory {
    int32_t turns;
};

static exo_status
parrot_reply(void *self, void *state, const exo_tool_turn *turn, exo_tool_reply *out, exo_err *err)
{
    struct memory *m = state;
    (void)self;
    if (m->turns++ != (int32_t)turn->number)
        return exo_fail(err, EXO_FAILED, "parrot: turn %zu comes after %d turns", turn->number,
                        m->turns - 1);
    for (size_t i = turn->first; i < turn->length; i++)
        if (turn->mask[i] != 1 || turn->tokens[i] < 0)
            return exo_fail(err, EXO_FAILED, "parrot: token %zu of the turn is not the policy's",
                            i);
    const int32_t reply[] = {turn->tokens[turn->first], m->turns % 11,
                             (int32_t)exo_rng_below(turn->rng, 11)};
    out->length = exo_rng_below(turn->rng, 4);
    for (size_t i = 0; i < out->length; i++)
        out->tokens[i] = reply[i];
    out->reward = 0.25 * (double)out->length;
    out->ends = turn->tokens[turn->first] == 7;
    return EXO_OK;
}

static const exo_tool_class parrot_class = {
    .name = "parrot",
    .help = "repeats",
    .shape = {.turns = 3,
              .turn_tokens = 4,
              .reply_tokens = 3,
              .stop = {9},
              .num_stop = 1,
              .state = sizeof(struct memory)},
    .reply = parrot_reply,
};

const exo_tool_class *
parrot(void)
{
    return &parrot_class;
}

void
parrot_register(void)
{
    if (exo_tool_class_register(&parrot_class, NULL) != EXO_OK)
        abort();
}
