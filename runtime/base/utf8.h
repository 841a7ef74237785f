/* UTF-8: one character at a time. No state. */
#ifndef EXO_BASE_UTF8_H
#define EXO_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/grow_text.h"

#define EXO_UTF8_INVALID UINT32_MAX
#define EXO_UTF8_LOST    "\xef\xbf\xbd" /* U+FFFD */

/* The first character of `size` > 0 bytes: its code point and its length. Bytes that begin none:
 * EXO_UTF8_INVALID, and the length of the longest beginning of a character that they are, or 1
 * (Unicode's "maximal subpart", which one U+FFFD stands for). */
size_t exo_utf8_next(const char *text, size_t size, uint32_t *code);
/* Bytes written. */
size_t exo_utf8_put(uint32_t code, char out[4]);
/* Bytes before the first that is invalid. */
size_t exo_utf8_valid(const char *text, size_t size);
/* Appends the text with U+FFFD for what is invalid. */
void exo_utf8_lossy(exo_text *out, const char *text, size_t size);
/* Of a text that does not end a character: how many bytes at its end may still become one, 0 to
 * 3. */
size_t exo_utf8_unfinished(const char *text, size_t size);

#endif
