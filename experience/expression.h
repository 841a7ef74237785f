/* Expressions over features of an answer, for the reward `expression`:
 *
 *     matches("\\b(thou|thee)\\b") - 0.01 * max(length - 20, 0)
 *
 *     comparison = sum [(< | <= | > | >= | == | !=) sum]      1 if it holds, else 0
 *     sum        = product {(+ | -) product}
 *     product    = factor {(* | /) factor}
 *     factor     = - factor | NUMBER | FEATURE | FUNCTION ( ... ) | ( comparison )
 *
 * docs/rlhf.md lists the features and functions. A text stands in double or single quotes; \ before a
 * quote or a \ takes it as it is, and other characters keep their \.
 *
 * Owner: the caller, one thread at a time. Read next: expression_parse.c. */
#ifndef EXO_EXPRESSION_H
#define EXO_EXPRESSION_H

#include <exogym/reward.h>

typedef struct exo_expression exo_expression;

/* Parses an expression. The caller frees it. INVAL: the text begins with "column N: "; NOMEM. */
exo_status exo_expression_parse(exo_expression **out, const char *text, exo_err *err);
void exo_expression_free(exo_expression **expression);
/* Computes it for an answer. INVAL: it looks at the text, but the answer has no tokenizer; FAILED: a
 * pattern takes too long on this text; NOMEM; those of the tokenizer. */
exo_status exo_expression_value(exo_expression *expression, const exo_answer *answer, double *out,
                                exo_err *err);

#endif
