/* The tool `calculator`, and the reward `calculation` of a task that it helps with. The policy
 * writes an expression and a mark; the tool replies with the value; the reward compares the last
 * value with that of the prompt. Read next: calculate.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "experience/builtin.h"
#include "experience/calculate.h"
#include "experience/reward_task.h"

enum {
    MAX_MARK = 64,
    MAX_VALUE = 32
};

/* --- The tool --------------------------------------------------------------------------------- */

/* The options of a calculator. */
struct calculator {
    char open[MAX_MARK], close[MAX_MARK], after[MAX_MARK], invalid[MAX_MARK];
    double valid;
};

static exo_status
read_mark(exo_config *config, const char *key, const char *fallback, char out[MAX_MARK],
          exo_err *err)
{
    const char *text = NULL;
    exo_status st = exo_config_string(config, key, fallback, &text, err);
    if (st == EXO_OK && strlen(text) >= MAX_MARK)
        return exo_config_fail(config, err, "%s: at most %d bytes", key, MAX_MARK - 1);
    if (st == EXO_OK)
        snprintf(out, MAX_MARK, "%s", text);
    return st;
}

/* Writes the tokens of a text to tokens (room). INVAL: it has more, or a character without one. */
static exo_status
encode(const exo_tokenizer *tokenizer, const char *text, int32_t *tokens, size_t room,
       size_t *length, exo_err *err)
{
    int32_t *all = NULL;
    exo_status st = exo_tokenizer_encode(tokenizer, text, strlen(text), false, &all, length, err);
    if (st == EXO_OK && *length > room)
        st = exo_fail(err, EXO_INVAL, "'%s' has %zu tokens; reply_tokens is %zu", text, *length,
                      room);
    if (st == EXO_OK && *length > 0)
        memcpy(tokens, all, *length * sizeof *tokens);
    exo_free(all);
    return st;
}

/* Checks the marks against the tokenizer; the closing one ends a turn. */
static exo_status
take_marks(struct calculator *c, exo_tool_shape *shape, const exo_tokenizer *tokenizer,
           exo_config *config, exo_err *err)
{
    exo_err reason = {0};
    int32_t tokens[EXO_TOOL_MAX_STOP];
    size_t length = 0;
    exo_status st = encode(tokenizer, c->close, tokens, EXO_TOOL_MAX_STOP, &length, &reason);
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "%s", reason.text);
    if (st != EXO_OK || length != 1)
        return exo_config_fail(config, err,
                               "calculator: close: '%s' must be one token of the prompts' "
                               "tokenizer",
                               c->close);
    shape->stop[0] = tokens[0];
    shape->num_stop = 1;
    int32_t *reply = exo_calloc(shape->reply_tokens, sizeof *reply);
    if (!reply)
        return exo_fail(err, EXO_NOMEM, "no memory for a reply");
    st = encode(tokenizer, c->invalid, reply, shape->reply_tokens, &length, &reason);
    exo_free(reply);
    return st == EXO_OK || st == EXO_NOMEM
               ? st
               : exo_config_fail(config, err, "calculator: invalid: %s", reason.text);
}

static exo_status
calculator_init(void *self, exo_tool_shape *shape, const exo_tokenizer *tokenizer,
                exo_config *config, exo_err *err)
{
    struct calculator *c = self;
    uint64_t reply = 16;
    if (!tokenizer)
        return exo_config_fail(config, err,
                               "calculator: it reads text, but prompts.tokens are numbers; use "
                               "prompts.lines or prompts.path");
    exo_status st = read_mark(config, "open", "", c->open, err);
    if (st == EXO_OK)
        st = read_mark(config, "close", "=", c->close, err);
    if (st == EXO_OK)
        st = read_mark(config, "after", "", c->after, err);
    if (st == EXO_OK)
        st = read_mark(config, "invalid", "?", c->invalid, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "valid", 0, -1e6, 1e6, &c->valid, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "reply_tokens", reply, 1, EXO_TOOL_MAX_REPLY, &reply, err);
    shape->reply_tokens = (size_t)reply;
    return st == EXO_OK ? take_marks(c, shape, tokenizer, config, err) : st;
}

/* The value of the expression between the last opening mark of a turn, or its beginning, and its
 * closing mark. */
static bool
value_of_turn(const struct calculator *c, const char *text, double *value)
{
    size_t close = strlen(c->close), size = strlen(text), open = strlen(c->open);
    const char *begin = open ? NULL : text;
    if (size < close || strcmp(text + size - close, c->close) != 0)
        return false;
    for (const char *at = text; open && (at = strstr(at, c->open)); at += open)
        begin = at + open;
    const char *end = text + size - close;
    return begin && begin <= end && exo_calculate(begin, (size_t)(end - begin), value);
}

static exo_status
calculator_reply(void *self, void *state, const exo_tool_turn *turn, exo_tool_reply *out,
                 exo_err *err)
{
    const struct calculator *c = self;
    char *text = NULL, reply[MAX_VALUE + MAX_MARK];
    size_t size = 0, length = 0;
    double value = 0;
    (void)state;
    exo_status st = exo_tokenizer_decode(turn->tokenizer, turn->tokens + turn->first,
                                         turn->length - turn->first, false, &text, &size, err);
    if (st != EXO_OK)
        return st;
    bool good = turn->stopped && value_of_turn(c, text, &value);
    exo_free(text);
    if (good) {
        exo_c_snprintf(reply, sizeof reply, "%.6g%s", value, c->after);
        st = encode(turn->tokenizer, reply, out->tokens, out->room, &length, NULL);
        good = st == EXO_OK; /* otherwise the value cannot be written with these tokens */
    }
    if (!good && st != EXO_NOMEM)
        st = encode(turn->tokenizer, c->invalid, out->tokens, out->room, &length, err);
    out->length = length;
    out->reward = good ? c->valid : 0;
    return st;
}

const exo_tool_class exo_calculator_tool = {
    .name = "calculator",
    .help = "replies with the value of the expression that a turn ends with; options open, close, "
            "after, invalid, valid, reply_tokens",
    .shape = {.turns = 1, .reply_tokens = 16},
    .self_size = sizeof(struct calculator),
    .init = calculator_init,
    .reply = calculator_reply,
};

/* --- The reward ------------------------------------------------------------------------------- */

struct calculation {
    bool of_policy; /* the result is the policy's last number, not the tool's */
};

static exo_status
calculation_init(void *self, exo_config *config, exo_err *err)
{
    struct calculation *c = self;
    static const char *const by[] = {"tool", "policy", NULL};
    size_t who = 0;
    exo_status st = exo_config_choice(config, "by", 0, by, &who, err);
    c->of_policy = who == 1;
    return st;
}

/* The value of the expression that the prompt begins with: up to a mark such as = or ?. */
static exo_status
expected_value(const exo_answer *a, double *value, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    exo_status st =
        exo_tokenizer_decode(a->tokenizer, a->prompt, a->prompt_length, false, &text, &size, err);
    if (st != EXO_OK)
        return st;
    if (!exo_calculate(text, strspn(text, "0123456789.+-*/() "), value))
        st = exo_fail(err, EXO_INVAL,
                      "calculation: the prompt '%s' does not begin with an expression", text);
    exo_free(text);
    return st;
}

static exo_status
check_answers(const struct calculation *c, const exo_tokenizer *tokenizer, bool has_tool,
              exo_err *err)
{
    if (!tokenizer)
        return exo_fail(err, EXO_INVAL, "calculation: the prompts are numbers, not texts");
    if (!has_tool && !c->of_policy)
        return exo_fail(err, EXO_INVAL,
                        "calculation: the maker has no tool whose result it compares; set tool, or "
                        "by: policy");
    return EXO_OK;
}

exo_status
exo_calculation_reward_check(const void *self, const exo_reward_task *task, exo_err *err)
{
    const exo_tokenizer *tokenizer = exo_prompts_tokenizer(task->prompts);
    double value = 0;
    exo_status st = check_answers(self, tokenizer, task->has_tool, err);
    for (size_t i = 0; st == EXO_OK && i < exo_prompts_count(task->prompts); i++) {
        const exo_prompt prompt = exo_prompts_at(task->prompts, i);
        const exo_answer a = {
            .prompt = prompt.tokens, .prompt_length = prompt.length, .tokenizer = tokenizer};
        st = expected_value(&a, &value, err);
    }
    return st;
}

static exo_status
calculation_score(void *self, const exo_answer *a, double *out, exo_err *err)
{
    const struct calculation *c = self;
    char *text = NULL;
    size_t size = 0, end = a->length;
    double expected = 0, value = 0;
    *out = 0;
    exo_status st = check_answers(c, a->tokenizer, a->mask != NULL, err);
    if (st == EXO_OK)
        st = expected_value(a, &expected, err);
    while (a->mask && end > 0 && (a->mask[end - 1] != 0) != c->of_policy)
        end--;
    size_t first = end;
    while (first > 0 && (!a->mask || (a->mask[first - 1] != 0) == c->of_policy))
        first--;
    if (st == EXO_OK)
        st = exo_tokenizer_decode(a->tokenizer, a->tokens + first, end - first, false, &text, &size,
                                  err);
    if (st == EXO_OK && exo_last_number(text, size, &value))
        *out = fabs(value - expected) <= 1e-6 * fmax(1, fabs(expected));
    exo_free(text);
    return st;
}

const exo_reward_class exo_calculation_reward = {
    .name = "calculation",
    .help = "1 if the last number of the tool, or with `by: policy` of the policy, is the value of "
            "the prompt's expression",
    .state_size = sizeof(struct calculation),
    .init = calculation_init,
    .score = calculation_score,
};
