/* What is looked for in a text: a literal text or a regular expression, in the syntax of Hugging Face's tokenizers (Oniguruma's).
 *
 * Patterns are read-only after they are made; a matcher belongs to one thread. */
#ifndef EXO_TEXT_PATTERN_H
#define EXO_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

#include "base/grow_text.h"

/* Sets of characters, for classes of PCRE2: Unicode's White_Space, and what Oniguruma's \w is. */
#define EXO_REGEX_SPACE                                                                            \
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"
#define EXO_REGEX_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

typedef struct exo_pattern exo_pattern;

/* UNSUPPORTED: an empty text. NOMEM. */
exo_status exo_pattern_literal(exo_pattern **out, const char *text, exo_err *err);
/* UNSUPPORTED: means something that is not known here to mean the same in PCRE2. NOMEM. */
exo_status exo_pattern_regex(exo_pattern **out, const char *regex, exo_err *err);
/* One in PCRE2's syntax: ours. */
exo_status exo_pattern_own(exo_pattern **out, const char *regex, exo_err *err);
void exo_pattern_free(exo_pattern **pattern);
/* Can it match between two characters? */
bool exo_pattern_may_be_empty(const exo_pattern *pattern);

/* Oniguruma's syntax to PCRE2's. UNSUPPORTED, with the offset and what it is. */
exo_status exo_regex_translate(exo_text *out, const char *regex, exo_err *err);

/* The matches of a pattern in a text, from left to right. */
typedef struct exo_matcher {
    const exo_pattern *pattern;
    void *data, *context; /* PCRE2's */
    const char *text;
    size_t size, at, last; /* last: the end of the match before; SIZE_MAX: there is none */
} exo_matcher;

/* Zero-initialize for `close`. NOMEM. */
exo_status exo_matcher_open(exo_matcher *matcher, const exo_pattern *pattern, exo_err *err);
void exo_matcher_close(exo_matcher *matcher);
/* The text must be UTF-8. */
void exo_matcher_begin(exo_matcher *matcher, const char *text, size_t size);
/* *found false: there is no further match. FAILED: the regular expression takes too long on this text. */
exo_status exo_matcher_next(exo_matcher *matcher, bool *found, size_t *begin, size_t *end,
                            exo_err *err);

#endif
