/* The inside of an expression: see expression.h. */
#ifndef EXO_EXPRESSION_IMPL_H
#define EXO_EXPRESSION_IMPL_H

#include "base/grow_text.h"
#include "experience/expression.h"
#include "nn/text/pattern.h"

enum {
    EXO_EXPRESSION_NODES = 256,
    EXO_EXPRESSION_ARGUMENTS = 3
};

typedef enum exo_expression_op {
    EXO_OP_NUMBER,
    /* features */
    EXO_OP_LENGTH,
    EXO_OP_PROMPT_LENGTH,
    EXO_OP_CHARACTERS,
    EXO_OP_WORDS,
    EXO_OP_STOPPED,
    /* functions of a token */
    EXO_OP_TOKENS,
    EXO_OP_SHARE,
    /* functions of a pattern */
    EXO_OP_CONTAINS,
    EXO_OP_COUNT,
    EXO_OP_MATCHES,
    /* arithmetic */
    EXO_OP_MIN,
    EXO_OP_MAX,
    EXO_OP_CLIP,
    EXO_OP_ABS,
    EXO_OP_SQRT,
    EXO_OP_EXP,
    EXO_OP_LOG,
    EXO_OP_NEGATE,
    EXO_OP_ADD,
    EXO_OP_SUBTRACT,
    EXO_OP_MULTIPLY,
    EXO_OP_DIVIDE,
    EXO_OP_LESS,
    EXO_OP_LESS_EQUAL,
    EXO_OP_MORE,
    EXO_OP_MORE_EQUAL,
    EXO_OP_EQUAL,
    EXO_OP_UNEQUAL,
} exo_expression_op;

typedef struct exo_expression_node {
    exo_expression_op op;
    double number;                             /* of NUMBER; the token of TOKENS and SHARE */
    uint16_t inputs[EXO_EXPRESSION_ARGUMENTS]; /* nodes before this one */
    exo_pattern *pattern;                      /* owned; of the functions of a pattern */
    exo_matcher matcher;
} exo_expression_node;

/* The nodes in an order in which they can be computed; the last one is the result. */
struct exo_expression {
    exo_expression_node nodes[EXO_EXPRESSION_NODES]; /* (count) */
    size_t count;
    exo_text text; /* of the present answer, UTF-8 */
    bool has_text;
};

#endif
