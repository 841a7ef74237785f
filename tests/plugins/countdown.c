/* A plugin with a tool: `countdown` says after each turn how many turns are left, ends the answer at
 * 0, and gives a turn 1 if it was the token `word`. */
#include <exogym/plugin.h>
#include <exogym/tool.h>

struct countdown {
    uint64_t from, word;
};

static exo_status
init(void *self, exo_tool_shape *shape, const exo_tokenizer *tokenizer, exo_config *config,
     exo_err *err)
{
    struct countdown *c = self;
    (void)tokenizer;
    exo_status st = exo_config_u64(config, "from", 2, 1, 9, &c->from, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "word", 3, 0, 15, &c->word, err);
    shape->turns = (size_t)c->from;
    return st;
}

static exo_status
reply(void *self, void *state, const exo_tool_turn *turn, exo_tool_reply *out, exo_err *err)
{
    const struct countdown *c = self;
    (void)state;
    (void)err;
    out->tokens[0] = (int32_t)(c->from - 1 - turn->number);
    out->length = 1;
    out->reward = (uint64_t)turn->tokens[turn->first] == c->word;
    out->ends = out->tokens[0] == 0;
    return EXO_OK;
}

static const exo_tool_class countdown = {.name = "countdown",
                                         .help = "counts turns",
                                         .shape = {.turns = 1, .turn_tokens = 1, .reply_tokens = 1},
                                         .self_size = sizeof(struct countdown),
                                         .init = init,
                                         .reply = reply};

EXO_PLUGIN
{
    return exo_tool_class_register(&countdown, err);
}
