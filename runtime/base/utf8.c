/* UTF-8: one character at a time (Unicode 15, table 3-7). */
#include "base/utf8.h"

#include <string.h>

static size_t
invalid(size_t length, uint32_t *code)
{
    *code = EXO_UTF8_INVALID;
    return length;
}

size_t
exo_utf8_next(const char *text, size_t size, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *code = s[0];
        return 1;
    }
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return invalid(1, code);
    /* Only the second byte has bounds of its own: no overlong forms, no surrogates, nothing beyond
     * U+10FFFF. */
    unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    uint32_t value = s[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (i >= size || s[i] < low || s[i] > high)
            return invalid(i, code);
        value = value << 6 | (s[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *code = value;
    return length;
}

size_t
exo_utf8_put(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00u >> length & 0xffu) | code);
    return length;
}

size_t
exo_utf8_valid(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint64_t eight;
        if (size - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        uint32_t code;
        size_t length = exo_utf8_next(text + at, size - at, &code);
        if (code == EXO_UTF8_INVALID)
            break;
        at += length;
    }
    return at;
}

void
exo_utf8_lossy(exo_text *out, const char *text, size_t size)
{
    while (size) {
        size_t valid = exo_utf8_valid(text, size);
        exo_text_add_bytes(out, text, valid);
        text += valid;
        size -= valid;
        if (!size)
            return;
        uint32_t code;
        size_t lost = exo_utf8_next(text, size, &code);
        exo_text_add_bytes(out, EXO_UTF8_LOST, strlen(EXO_UTF8_LOST));
        text += lost;
        size -= lost;
    }
}

size_t
exo_utf8_unfinished(const char *text, size_t size)
{
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char c = (unsigned char)text[size - back];
        if (c < 0x80)
            return 0;
        if (c >= 0xc0) {
            uint32_t code;
            size_t needed = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
            bool whole = exo_utf8_next(text + size - back, back, &code) == back;
            return whole && code == EXO_UTF8_INVALID && back < needed && c <= 0xf4 && c >= 0xc2
                       ? back
                       : 0;
        }
    }
    return 0;
}
