/* Tools of a language model: see exogym/tool.h. The registry, and tools with their options. Read
 * next: calculator.c, draft.c. */
#include <exogym/tool.h>

#include <math.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/registry.h"
#include "experience/builtin.h"
#include "experience/named_class.h"

struct exo_tool {
    const exo_tool_class *of;
    exo_tool_shape shape;
    void *self;
};

exo_registry exo_tool_registry = EXO_REGISTRY("tool");

exo_status
exo_tool_class_register(const exo_tool_class *tool_class, exo_err *err)
{
    if (!tool_class || !tool_class->name || !*tool_class->name || !tool_class->reply)
        return exo_fail(err, EXO_INVAL, "a tool class needs a name and the function reply");
    return exo_registry_add(&exo_tool_registry, tool_class, err);
}

const exo_tool_class *
exo_tool_class_at(size_t index)
{
    return exo_registry_at(&exo_tool_registry, index);
}

static exo_status
check_shape(const exo_tool *t, const exo_config *map, exo_err *err)
{
    const exo_tool_shape *s = &t->shape;
    if (s->reply_tokens < 1 || s->reply_tokens > EXO_TOOL_MAX_REPLY ||
        s->num_stop > EXO_TOOL_MAX_STOP || s->state > EXO_TOOL_MAX_STATE)
        return exo_config_fail(
            map, err,
            "the tool '%s' has replies of up to %zu tokens (1 to %d), %zu tokens "
            "that end a turn (to %d), and a state of %zu bytes (to %d)",
            t->of->name, s->reply_tokens, EXO_TOOL_MAX_REPLY, s->num_stop, EXO_TOOL_MAX_STOP,
            s->state, EXO_TOOL_MAX_STATE);
    for (size_t i = 0; i < s->num_stop; i++)
        if (s->stop[i] < 0)
            return exo_config_fail(map, err, "the tool '%s' ends turns with the token %d",
                                   t->of->name, s->stop[i]);
    if (s->num_stop == 0 && s->turn_tokens == 0)
        return exo_config_fail(map, err,
                               "nothing ends a turn: the tool '%s' has no token that does; set "
                               "turn_tokens",
                               t->of->name);
    return EXO_OK;
}

static exo_status
read_options(exo_tool *t, const exo_tokenizer *tokenizer, exo_config *map, exo_err *err)
{
    uint64_t turns = 0, limit = 0;
    exo_status st = t->of->init ? t->of->init(t->self, &t->shape, tokenizer, map, err) : EXO_OK;
    if (st == EXO_OK)
        st = exo_config_u64(map, "turns", t->shape.turns ? t->shape.turns : 1, 1,
                            EXO_TOOL_MAX_TURNS, &turns, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "turn_tokens", t->shape.turn_tokens, 0, INT32_MAX, &limit, err);
    t->shape.turns = (size_t)turns;
    t->shape.turn_tokens = (size_t)limit;
    if (st == EXO_OK)
        st = exo_config_finish(map, err);
    return st == EXO_OK ? check_shape(t, map, err) : st;
}

exo_status
exo_tool_read(exo_tool **out, exo_config *config, const char *key, const exo_tokenizer *tokenizer,
              exo_err *err)
{
    const void *found = NULL;
    exo_config *map = NULL;
    *out = NULL;
    if (!exo_config_get(config, key))
        return EXO_OK;
    exo_status st = exo_config_stand_in(config, key, &map, err);
    if (st == EXO_OK)
        st = exo_named_class_find(&found, &exo_tool_registry, map, key, &map, err);
    const exo_tool_class *of = found;
    exo_tool *t = st == EXO_OK ? exo_calloc(1, sizeof *t) : NULL;
    if (t) {
        t->of = of;
        t->shape = of->shape;
        t->self = exo_calloc(1, of->self_size ? of->self_size : 1);
    }
    if (st == EXO_OK && (!t || !t->self))
        st = exo_fail(err, EXO_NOMEM, "no memory for a tool");
    if (st == EXO_OK)
        st = read_options(t, tokenizer, map, err);
    if (st == EXO_OK)
        *out = t;
    else
        exo_tool_free(&t);
    return st;
}

void
exo_tool_free(exo_tool **tool)
{
    exo_tool *t = *tool;
    *tool = NULL;
    if (!t)
        return;
    if (t->self && t->of->release)
        t->of->release(t->self);
    exo_free(t->self);
    exo_free(t);
}

const exo_tool_shape *
exo_tool_shape_of(const exo_tool *tool)
{
    return &tool->shape;
}

/* The class has failed: FAILED whatever its status says, as CLOSED would be the end of a maker's work. */
static exo_status
blame(const exo_tool *t, const exo_tool_turn *turn, exo_status st, const char *reason, exo_err *err)
{
    return exo_fail(err, st == EXO_NOMEM ? st : EXO_FAILED, "the tool '%s' failed in turn %zu: %s",
                    t->of->name, turn->number, *reason ? reason : exo_status_text(st));
}

exo_status
exo_tool_answer(exo_tool *t, void *state, const exo_tool_turn *turn, exo_tool_reply *out,
                exo_err *err)
{
    exo_err reason = {0};
    out->room = t->shape.reply_tokens;
    out->length = 0;
    out->reward = 0;
    out->ends = false;
    exo_status st = t->of->reply(t->self, state, turn, out, &reason);
    if (st != EXO_OK)
        return blame(t, turn, st, reason.text, err);
    if (out->length > t->shape.reply_tokens)
        return exo_fail(err, EXO_FAILED, "the tool '%s' replied with %zu tokens; its limit is %zu",
                        t->of->name, out->length, t->shape.reply_tokens);
    if (!isfinite((float)out->reward))
        return exo_fail(err, EXO_FAILED, "the tool '%s' gave a reward that is no finite float: %g",
                        t->of->name, out->reward);
    return EXO_OK;
}
