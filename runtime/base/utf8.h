/* UTF-8: one character at a time. No state. */
#ifndef EXO_BASE_UTF8_H
#define EXO_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/grow_text.h"

#define EXO_UTF8_INVALID UINT32_MAX
#define EXO_UTF8_LOST    "\xef\xbf\xbd" /* U+FFFD */

/* Decodes the first character of `size` > 0 bytes and returns its length. For invalid bytes, the
 * code is EXO_UTF8_INVALID, and the length is that of the longest beginning of a character, or 1
 * (Unicode's "maximal subpart", which one U+FFFD replaces). */
size_t exo_utf8_next(const char *text, size_t size, uint32_t *code);
/* Encodes a character and returns the number of bytes. */
size_t exo_utf8_put(uint32_t code, char out[4]);
/* The number of bytes before the first invalid one. */
size_t exo_utf8_valid(const char *text, size_t size);
/* Appends the text with U+FFFD in place of invalid bytes. */
void exo_utf8_lossy(exo_text *out, const char *text, size_t size);
/* The number of bytes, 0 to 3, of an incomplete character at the text's end, which further bytes
 * may complete. */
size_t exo_utf8_unfinished(const char *text, size_t size);

#endif
