/* Added tokens: those that are looked for in the text itself, before the model sees it. Read-only after they are made. */
#ifndef EXO_TEXT_ADDED_H
#define EXO_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

#include "nn/text/pieces.h"

typedef struct exo_added_token {
    char *content;
    int32_t number;
    bool special;
    bool single_word; /* not beside a letter or digit                    */
    bool lstrip;      /* takes the white space before it                 */
    bool rstrip;      /* and after it                                    */
    bool normalized;  /* looked for after normalization, normalized too  */
} exo_added_token;

typedef struct exo_trie_node {
    int32_t child, sibling; /* 0: none (nothing leads to the root) */
    int32_t token;          /* index of the token that ends here, or -1 */
    unsigned char byte;
} exo_trie_node;

typedef struct exo_trie {
    exo_trie_node *nodes; /* the first is the root */
    size_t count, room;
    bool begins[256]; /* a token begins with this byte */
} exo_trie;

/* Zero-initialize, but `most`. */
typedef struct exo_added {
    exo_added_token *tokens;
    size_t count, room;
    int32_t most; /* the largest number, or -1 */
    exo_trie plain, normalized;
} exo_added;

void exo_added_release(exo_added *added);
/* Takes the token's content, also on failure. NOMEM. */
exo_status exo_added_add(exo_added *added, exo_added_token token, exo_err *err);
/* Makes `text` (a token's content, or what a normalizer makes of it) lead to the token. UNSUPPORTED: it leads to another. NOMEM. */
exo_status exo_added_index(exo_added *added, size_t token, const char *text, size_t size,
                           exo_err *err);

/* Adds the pieces of a text to *out: tokens, and what is between them. The text is at `begin` of the text that the pieces count from. */
void exo_added_split(const exo_added *added, bool normalized, const char *text, size_t size,
                     size_t begin, bool first, exo_pieces *out);

#endif
