/* The parser of expressions: see expression.h. One function for each rule of the grammar. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "experience/expression_impl.h"

enum {
    MAX_NAME = 24,
    MAX_DEPTH = 64
};

/* What the argument list of a function is. */
enum arguments {
    NONE, /* a feature */
    TOKEN,
    LITERAL,
    REGEX,
    ONE,
    TWO,
    THREE
};

static const struct {
    const char *name;
    exo_expression_op op;
    enum arguments arguments;
} names[] = {
    {"length", EXO_OP_LENGTH, NONE},
    {"prompt_length", EXO_OP_PROMPT_LENGTH, NONE},
    {"characters", EXO_OP_CHARACTERS, NONE},
    {"words", EXO_OP_WORDS, NONE},
    {"stopped", EXO_OP_STOPPED, NONE},
    {"tokens", EXO_OP_TOKENS, TOKEN},
    {"share", EXO_OP_SHARE, TOKEN},
    {"contains", EXO_OP_CONTAINS, LITERAL},
    {"count", EXO_OP_COUNT, LITERAL},
    {"matches", EXO_OP_MATCHES, REGEX},
    {"min", EXO_OP_MIN, TWO},
    {"max", EXO_OP_MAX, TWO},
    {"clip", EXO_OP_CLIP, THREE},
    {"abs", EXO_OP_ABS, ONE},
    {"sqrt", EXO_OP_SQRT, ONE},
    {"exp", EXO_OP_EXP, ONE},
    {"log", EXO_OP_LOG, ONE},
};

#define NAMES                                                                                      \
    "length, prompt_length, characters, words, stopped, tokens(N), share(N), contains(TEXT), "     \
    "count(TEXT), matches(REGEX), min, max, clip, abs, sqrt, exp, log"

struct parser {
    exo_expression *e;
    const char *text, *at;
    size_t depth;
    exo_err *err;
};

static exo_status
fail(struct parser *p, const char *at, const char *expected)
{
    size_t column = (size_t)(at - p->text) + 1, shown = strcspn(at, " \t\n");
    if (!*at)
        return exo_fail(p->err, EXO_INVAL, "column %zu: expected %s, got the end", column,
                        expected);
    return exo_fail(p->err, EXO_INVAL, "column %zu: expected %s, got '%.*s'", column, expected,
                    (int)(shown < 20 ? shown : 20), at);
}

static void
skip_space(struct parser *p)
{
    p->at += strspn(p->at, " \t\n");
}

static bool
accept(struct parser *p, const char *word)
{
    skip_space(p);
    size_t length = strlen(word);
    if (strncmp(p->at, word, length) != 0)
        return false;
    p->at += length;
    return true;
}

static exo_status
add_node(struct parser *p, exo_expression_node node, uint16_t *out)
{
    if (p->e->count == EXO_EXPRESSION_NODES) {
        exo_pattern_free(&node.pattern);
        return exo_fail(p->err, EXO_INVAL, "column %zu: the expression has more than %d parts",
                        (size_t)(p->at - p->text) + 1, EXO_EXPRESSION_NODES);
    }
    *out = (uint16_t)p->e->count;
    p->e->nodes[p->e->count++] = node;
    return EXO_OK;
}

/* --- Arguments -------------------------------------------------------------------------------- */

static exo_status parse_comparison(struct parser *p, uint16_t *out);

/* Reads a quoted text. */
static exo_status
parse_text(struct parser *p, exo_text *out)
{
    skip_space(p);
    const char *start = p->at;
    char quote = *p->at;
    if (quote != '"' && quote != '\'')
        return fail(p, p->at, "a text in quotes");
    for (p->at++; *p->at && *p->at != quote; p->at++) {
        if (*p->at == '\\' && (p->at[1] == quote || p->at[1] == '\\')) {
            /* for a pattern, \\ is \, as in YAML's double quotes */
            p->at++;
        }
        exo_text_add_bytes(out, p->at, 1);
    }
    if (!*p->at)
        return exo_fail(p->err, EXO_INVAL, "column %zu: the text has no end",
                        (size_t)(start - p->text) + 1);
    p->at++;
    if (out->failed)
        return exo_fail(p->err, EXO_NOMEM, "no memory for an expression");
    return out->length ? EXO_OK : fail(p, start, "a text that is not empty");
}

/* Compiles the text or regular expression of a function. */
static exo_status
parse_pattern(struct parser *p, exo_expression_node *node, bool regex)
{
    exo_text text = {0};
    exo_err reason = {0};
    skip_space(p);
    const char *start = p->at;
    exo_status st = parse_text(p, &text);
    if (st == EXO_OK) {
        st = regex ? exo_pattern_own(&node->pattern, text.data, &reason)
                   : exo_pattern_literal(&node->pattern, text.data, &reason);
        if (st == EXO_OK)
            st = exo_matcher_open(&node->matcher, node->pattern, &reason);
        if (st != EXO_OK)
            st = exo_fail(p->err, st == EXO_NOMEM ? st : EXO_INVAL, "column %zu: %s",
                          (size_t)(start - p->text) + 1, reason.text);
    }
    exo_free(text.data);
    return st;
}

static exo_status
parse_token(struct parser *p, exo_expression_node *node)
{
    skip_space(p);
    char *end = NULL;
    unsigned long token = isdigit((unsigned char)*p->at) ? strtoul(p->at, &end, 10) : 0;
    if (!end || token > INT32_MAX)
        return fail(p, p->at, "the number of a token");
    node->number = (double)token;
    p->at = end;
    return EXO_OK;
}

/* Reads what stands between the parentheses of a function. */
static exo_status
parse_arguments(struct parser *p, exo_expression_node *node, enum arguments arguments)
{
    exo_status st = EXO_OK;
    if (!accept(p, "("))
        return fail(p, p->at, "'('");
    if (arguments == TOKEN)
        st = parse_token(p, node);
    else if (arguments == LITERAL || arguments == REGEX)
        st = parse_pattern(p, node, arguments == REGEX);
    else
        for (size_t i = 0; st == EXO_OK && i <= (size_t)(arguments - ONE); i++) {
            if (i > 0 && !accept(p, ","))
                return fail(p, p->at, "','");
            st = parse_comparison(p, &node->inputs[i]);
        }
    if (st == EXO_OK && !accept(p, ")"))
        st = fail(p, p->at, "')'");
    return st;
}

/* --- The grammar ------------------------------------------------------------------------------ */

static exo_status
parse_name(struct parser *p, uint16_t *out)
{
    exo_expression_node node = {0};
    const char *start = p->at;
    size_t length = strspn(p->at, "abcdefghijklmnopqrstuvwxyz_"), i = 0;
    while (i < sizeof names / sizeof *names &&
           (strlen(names[i].name) != length || strncmp(names[i].name, start, length) != 0))
        i++;
    if (i == sizeof names / sizeof *names)
        return exo_fail(p->err, EXO_INVAL, "column %zu: there is no '%.*s'; there are " NAMES,
                        (size_t)(start - p->text) + 1, (int)(length < MAX_NAME ? length : MAX_NAME),
                        start);
    p->at += length;
    node.op = names[i].op;
    exo_status st =
        names[i].arguments == NONE ? EXO_OK : parse_arguments(p, &node, names[i].arguments);
    if (st == EXO_OK)
        return add_node(p, node, out);
    exo_matcher_close(&node.matcher);
    exo_pattern_free(&node.pattern);
    return st;
}

static exo_status
parse_factor(struct parser *p, uint16_t *out)
{
    exo_status st = EXO_OK;
    skip_space(p);
    if (++p->depth > MAX_DEPTH)
        return exo_fail(p->err, EXO_INVAL, "column %zu: the expression is nested too deeply",
                        (size_t)(p->at - p->text) + 1);
    if (accept(p, "-")) {
        exo_expression_node node = {.op = EXO_OP_NEGATE};
        st = parse_factor(p, &node.inputs[0]);
        st = st == EXO_OK ? add_node(p, node, out) : st;
    } else if (accept(p, "(")) {
        st = parse_comparison(p, out);
        if (st == EXO_OK && !accept(p, ")"))
            st = fail(p, p->at, "')'");
    } else if (isdigit((unsigned char)*p->at) || *p->at == '.') {
        char *end = NULL;
        exo_expression_node node = {.op = EXO_OP_NUMBER, .number = exo_c_strtod(p->at, &end)};
        if (end == p->at)
            return fail(p, p->at, "a number");
        p->at = end;
        st = add_node(p, node, out);
    } else if (islower((unsigned char)*p->at)) {
        st = parse_name(p, out);
    } else {
        st = fail(p, p->at, "a number, a feature, a function or '('");
    }
    p->depth--;
    return st;
}

/* An operator and its meaning; the longer ones first. */
struct operator
{
    const char *word;
    exo_expression_op op;
};

/* Reads operands of `next` with operators between them, from left to right; `once`: at most one
 * operator. */
static exo_status
parse_chain(struct parser *p, const struct operator* operators, bool once,
            exo_status (*next)(struct parser *, uint16_t *), uint16_t *out)
{
    exo_status st = next(p, out);
    for (bool found = true; st == EXO_OK && found;) {
        found = false;
        for (size_t i = 0; !found && operators[i].word; i++) {
            exo_expression_node node = {.op = operators[i].op, .inputs = {*out}};
            if (!accept(p, operators[i].word))
                continue;
            found = true;
            st = next(p, &node.inputs[1]);
            if (st == EXO_OK)
                st = add_node(p, node, out);
        }
        found = found && !once;
    }
    return st;
}

static exo_status
parse_product(struct parser *p, uint16_t *out)
{
    static const struct operator operators[] = {{"*", EXO_OP_MULTIPLY}, {"/", EXO_OP_DIVIDE}, {0}};
    return parse_chain(p, operators, false, parse_factor, out);
}

static exo_status
parse_sum(struct parser *p, uint16_t *out)
{
    static const struct operator operators[] = {{"+", EXO_OP_ADD}, {"-", EXO_OP_SUBTRACT}, {0}};
    return parse_chain(p, operators, false, parse_product, out);
}

static exo_status
parse_comparison(struct parser *p, uint16_t *out)
{
    static const struct operator operators[] = {{"<=", EXO_OP_LESS_EQUAL},
                                                {">=", EXO_OP_MORE_EQUAL},
                                                {"==", EXO_OP_EQUAL},
                                                {"!=", EXO_OP_UNEQUAL},
                                                {"<", EXO_OP_LESS},
                                                {">", EXO_OP_MORE},
                                                {0}};
    return parse_chain(p, operators, true, parse_sum, out);
}

exo_status
exo_expression_parse(exo_expression **out, const char *text, exo_err *err)
{
    uint16_t root = 0;
    struct parser p = {.e = exo_calloc(1, sizeof *p.e), .text = text, .at = text, .err = err};
    *out = NULL;
    if (!p.e)
        return exo_fail(err, EXO_NOMEM, "no memory for an expression");
    exo_status st = parse_comparison(&p, &root);
    skip_space(&p);
    if (st == EXO_OK && *p.at)
        st = fail(&p, p.at, "an operator or the end");
    if (st == EXO_OK)
        *out = p.e;
    else
        exo_expression_free(&p.e);
    return st;
}

void
exo_expression_free(exo_expression **expression)
{
    exo_expression *e = *expression;
    *expression = NULL;
    if (!e)
        return;
    for (size_t i = 0; i < e->count; i++) {
        exo_matcher_close(&e->nodes[i].matcher);
        exo_pattern_free(&e->nodes[i].pattern);
    }
    exo_free(e->text.data);
    exo_free(e);
}
