/* Patterns to find in a text: literal texts, or regular expressions in the syntax of Hugging
 * Face's tokenizers (Oniguruma's).
 *
 * A pattern is read-only once made; a matcher belongs to one thread. Read next: pattern.c;
 * regex_syntax.c, the translation to PCRE2. */
#ifndef EXO_TEXT_PATTERN_H
#define EXO_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

#include "base/grow_text.h"

/* Sets of characters for PCRE2's classes: Unicode's White_Space, and Oniguruma's \w in a class. */
#define EXO_REGEX_SPACE                                                                            \
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"
#define EXO_REGEX_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

typedef struct exo_pattern exo_pattern;

/* A pattern that matches `text`. UNSUPPORTED: the text is empty. NOMEM. */
exo_status exo_pattern_literal(exo_pattern **out, const char *text, exo_err *err);
/* A regular expression in Oniguruma's syntax. UNSUPPORTED: it has a construct that may have
 * another meaning in PCRE2, or an error. NOMEM. */
exo_status exo_pattern_regex(exo_pattern **out, const char *regex, exo_err *err);
/* A regular expression in PCRE2's syntax, for those in exogym's own source. Errors: as above. */
exo_status exo_pattern_own(exo_pattern **out, const char *regex, exo_err *err);
void exo_pattern_free(exo_pattern **pattern);
/* True: the pattern can match the empty text, between two characters. */
bool exo_pattern_may_be_empty(const exo_pattern *pattern);

/* Translates a regular expression from Oniguruma's syntax to PCRE2's, and appends it to *out,
 * which the caller frees. UNSUPPORTED names the construct and its offset. NOMEM. */
exo_status exo_regex_translate(exo_text *out, const char *regex, exo_err *err);

/* The matches of a pattern in a text, from left to right. */
typedef struct exo_matcher {
    const exo_pattern *pattern;
    void *data, *context; /* of PCRE2 */
    const char *text;
    size_t size, at, last; /* last: the end of the previous match, or SIZE_MAX */
} exo_matcher;

/* `pattern` must outlive the matcher. A zeroed matcher, or one of a failed open, may be closed.
 * NOMEM. */
exo_status exo_matcher_open(exo_matcher *matcher, const exo_pattern *pattern, exo_err *err);
void exo_matcher_close(exo_matcher *matcher);
/* Begins at the start of a text. The text must be valid UTF-8, and stay as it is. */
void exo_matcher_begin(exo_matcher *matcher, const char *text, size_t size);
/* The bytes [*begin, *end) of the next match; *found false: there is none. FAILED: the regular
 * expression takes more steps on this text than its limit. NOMEM. */
exo_status exo_matcher_next(exo_matcher *matcher, bool *found, size_t *begin, size_t *end,
                            exo_err *err);

#endif
