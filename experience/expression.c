/* The values of expressions: see expression.h. And the reward `expression`. */
#include "experience/expression.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/utf8.h"
#include "experience/builtin.h"
#include "experience/expression_impl.h"
#include "experience/reward_task.h"

/* --- Features of the text --------------------------------------------------------------------- */

static exo_status
refuse_numbers(exo_err *err)
{
    return exo_fail(err, EXO_INVAL,
                    "the reward's expression looks at the text of answers, but the prompts are "
                    "token numbers: use tokens(N), share(N) or length, or prompts of texts");
}

/* Decodes the answer, once for all features that look at its text. */
static exo_status
take_text(exo_expression *e, const exo_answer *a, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    if (e->has_text)
        return EXO_OK;
    if (!a->tokenizer)
        return refuse_numbers(err);
    exo_status st =
        exo_tokenizer_decode(a->tokenizer, a->tokens, a->length, false, &text, &size, err);
    if (st != EXO_OK)
        return st;
    e->text.length = 0;
    exo_utf8_lossy(&e->text, text, size);
    exo_free(text);
    e->has_text = !e->text.failed;
    return e->has_text ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the text of an answer");
}

static double
count_characters(const exo_text *text)
{
    size_t count = 0;
    for (size_t i = 0; i < text->length; i++)
        count += ((unsigned char)text->data[i] & 0xC0) != 0x80;
    return (double)count;
}

static double
count_words(const exo_text *text)
{
    size_t count = 0;
    bool inside = false;
    for (size_t i = 0; i < text->length; i++) {
        bool space = isspace((unsigned char)text->data[i]);
        count += !space && !inside;
        inside = !space;
    }
    return (double)count;
}

static exo_status
count_matches(exo_expression *e, exo_expression_node *node, double *out, exo_err *err)
{
    size_t count = 0, begin, end;
    bool found = e->text.length > 0;
    exo_status st = EXO_OK;
    if (found)
        exo_matcher_begin(&node->matcher, e->text.data, e->text.length);
    while (found && st == EXO_OK) {
        st = exo_matcher_next(&node->matcher, &found, &begin, &end, err);
        count += st == EXO_OK && found;
    }
    *out = node->op == EXO_OP_CONTAINS ? count > 0 : (double)count;
    return st == EXO_FAILED
               ? exo_fail(err, st, "a regular expression of the reward takes too long on an answer")
               : st;
}

static double
count_tokens(const exo_answer *a, double token)
{
    size_t count = 0;
    for (size_t i = 0; i < a->length; i++)
        count += (!a->mask || a->mask[i]) && (double)a->tokens[i] == token;
    return (double)count;
}

/* The tokens that the policy wrote. */
static double
count_written(const exo_answer *a)
{
    size_t count = 0;
    for (size_t i = 0; a->mask && i < a->length; i++)
        count += a->mask[i];
    return (double)(a->mask ? count : a->length);
}

/* The value of a feature, or of a function of the answer. */
static exo_status
feature(exo_expression *e, exo_expression_node *n, const exo_answer *a, double *out, exo_err *err)
{
    exo_status st = EXO_OK;
    switch (n->op) {
    case EXO_OP_LENGTH:
        *out = count_written(a);
        return EXO_OK;
    case EXO_OP_PROMPT_LENGTH:
        *out = (double)a->prompt_length;
        return EXO_OK;
    case EXO_OP_STOPPED:
        *out = a->stopped;
        return EXO_OK;
    case EXO_OP_TOKENS:
        *out = count_tokens(a, n->number);
        return EXO_OK;
    case EXO_OP_SHARE:
        *out = a->length ? count_tokens(a, n->number) / count_written(a) : 0;
        return EXO_OK;
    default:
        st = take_text(e, a, err);
    }
    if (st != EXO_OK)
        return st;
    if (n->op == EXO_OP_CHARACTERS)
        *out = count_characters(&e->text);
    else if (n->op == EXO_OP_WORDS)
        *out = count_words(&e->text);
    else
        st = count_matches(e, n, out, err);
    return st;
}

/* --- Arithmetic ------------------------------------------------------------------------------- */

static double
compare(exo_expression_op op, double x, double y)
{
    switch (op) {
    case EXO_OP_LESS:
        return x < y;
    case EXO_OP_LESS_EQUAL:
        return x <= y;
    case EXO_OP_MORE:
        return x > y;
    case EXO_OP_MORE_EQUAL:
        return x >= y;
    case EXO_OP_EQUAL:
        return x == y;
    default:
        return x != y;
    }
}

static double
arithmetic(exo_expression_op op, double x, double y, double z)
{
    switch (op) {
    case EXO_OP_MIN:
        return fmin(x, y);
    case EXO_OP_MAX:
        return fmax(x, y);
    case EXO_OP_CLIP:
        return fmin(fmax(x, y), z);
    case EXO_OP_ABS:
        return fabs(x);
    case EXO_OP_SQRT:
        return sqrt(x);
    case EXO_OP_EXP:
        return exp(x);
    case EXO_OP_LOG:
        return log(x);
    case EXO_OP_NEGATE:
        return -x;
    case EXO_OP_ADD:
        return x + y;
    case EXO_OP_SUBTRACT:
        return x - y;
    case EXO_OP_MULTIPLY:
        return x * y;
    case EXO_OP_DIVIDE:
        return x / y;
    default:
        return compare(op, x, y);
    }
}

exo_status
exo_expression_value(exo_expression *e, const exo_answer *answer, double *out, exo_err *err)
{
    double values[EXO_EXPRESSION_NODES] = {0};
    exo_status st = EXO_OK;
    e->has_text = false;
    for (size_t i = 0; st == EXO_OK && i < e->count; i++) {
        exo_expression_node *n = &e->nodes[i];
        if (n->op == EXO_OP_NUMBER)
            values[i] = n->number;
        else if (n->op < EXO_OP_MIN)
            st = feature(e, n, answer, &values[i], err);
        else
            values[i] =
                arithmetic(n->op, values[n->inputs[0]], values[n->inputs[1]], values[n->inputs[2]]);
    }
    *out = values[e->count - 1];
    return st;
}

/* --- The reward ------------------------------------------------------------------------------- */

static exo_status
expression_init(void *self, exo_config *config, exo_err *err)
{
    exo_expression **e = self;
    const char *text = NULL;
    exo_err reason = {0};
    exo_status st = exo_config_string(config, "formula", NULL, &text, err);
    if (st == EXO_OK && !text)
        return exo_config_fail(config, err,
                               "expression: the key 'formula' is missing: formula: "
                               "'matches(\"thou\") - 0.01 * length'");
    if (st != EXO_OK)
        return st;
    st = exo_expression_parse(e, text, &reason);
    if (st == EXO_OK || st == EXO_NOMEM)
        return st == EXO_OK ? st : exo_fail(err, st, "%s", reason.text);
    return exo_config_fail(exo_config_get(config, "formula"), err, "formula: %s", reason.text);
}

static bool
looks_at_text(exo_expression_op op)
{
    return op == EXO_OP_CHARACTERS || op == EXO_OP_WORDS || op == EXO_OP_CONTAINS ||
           op == EXO_OP_COUNT || op == EXO_OP_MATCHES;
}

exo_status
exo_expression_reward_check(const void *self, const exo_reward_task *task, exo_err *err)
{
    const exo_expression *e = *(exo_expression *const *)self;
    for (size_t i = 0; i < e->count; i++) {
        const exo_expression_node *n = &e->nodes[i];
        if (looks_at_text(n->op) && !exo_prompts_tokenizer(task->prompts))
            return refuse_numbers(err);
        if ((n->op == EXO_OP_TOKENS || n->op == EXO_OP_SHARE) &&
            n->number >= (double)task->vocabulary)
            return exo_fail(err, EXO_INVAL,
                            "formula: no answer has the token %.15g: the model's vocabulary is %zu",
                            n->number, task->vocabulary);
    }
    return EXO_OK;
}

static exo_status
expression_score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    exo_expression **e = self;
    return exo_expression_value(*e, answer, out, err);
}

static void
expression_release(void *self)
{
    exo_expression_free(self);
}

const exo_reward_class exo_expression_reward = {
    .name = "expression",
    .help = "a formula over features of the answer: length, words, matches(REGEX), ...; option "
            "formula",
    .state_size = sizeof(exo_expression *),
    .init = expression_init,
    .score = expression_score,
    .release = expression_release,
};
