/* Added tokens: tokens that are found in the text itself, before the model sees it.
 *
 * Owner: the tokenizer. Read-only once loaded. Read next: added.c, load_model.c. */
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
    bool single_word; /* not found beside a character of a word */
    bool lstrip;      /* removes the white space before it */
    bool rstrip;      /* removes the white space after it */
    bool normalized;  /* normalized itself, and found in the normalized text */
} exo_added_token;

typedef struct exo_trie_node {
    int32_t child, sibling; /* indexes; 0: none, because no link leads to the root */
    int32_t token;          /* index of the token that ends here, or -1 */
    unsigned char byte;
} exo_trie_node;

typedef struct exo_trie {
    exo_trie_node *nodes; /* (count); the first is the root */
    size_t count, room;
    bool begins[256]; /* a token begins with this byte */
} exo_trie;

/* Zero-initialize, except `most`. */
typedef struct exo_added {
    exo_added_token *tokens;
    size_t count, room;
    int32_t most;               /* the largest number of these tokens; initialize to -1 */
    exo_trie plain, normalized; /* of tokens to find before normalization, and after it */
} exo_added;

void exo_added_release(exo_added *added);
/* Adds a token. Takes ownership of its content, also on failure. NOMEM. */
exo_status exo_added_add(exo_added *added, exo_added_token token, exo_err *err);
/* Inserts `text`, which is not empty, into the trie as the spelling of the token with this index:
 * its content, normalized if the token is. UNSUPPORTED: another token has this spelling. NOMEM. */
exo_status exo_added_index(exo_added *added, size_t token, const char *text, size_t size,
                           exo_err *err);

/* Finds the tokens of one trie in a text, and adds the text's pieces to *out: tokens, and the text
 * between them. The text is at `begin` of the text from which the pieces count. `first`: it is at
 * the beginning of the text that the caller of the tokenizer gave. A failure shows in *out. */
void exo_added_split(const exo_added *added, bool normalized, const char *text, size_t size,
                     size_t begin, bool first, exo_pieces *out);

#endif
