/* Escapes: see printable.h. No state. */
#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/utf8.h"

enum {
    MAX_PIECE = 8, /* "\u202e" and a NUL */
    MAX_HERE = 1024,
    LEAST_CUT = 20 /* less than the smallest precision of the formats of errors */
};

/* Marks the end of a string that was cut, if there is room for the mark. */
static void
mark_cut(char *text, size_t room)
{
    static const char mark[] = "...";
    size_t at = strlen(text), last = room > sizeof mark ? room - sizeof mark : 0;
    if (room <= sizeof mark)
        return;
    for (at = at < last ? at : last; at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80;)
        at--;
    memcpy(text + at, mark, sizeof mark);
}

/* Ends a string that fills its `room` and was cut: removes a broken character and marks the end. */
static void
end_cut(char *text, size_t room)
{
    size_t size = strlen(text);
    text[size - exo_utf8_unfinished(text, size)] = '\0';
    mark_cut(text, room);
}

const char *
exo_cut(char *out, size_t room, const char *text)
{
    size_t length = strnlen(text, room);
    if (length < room)
        memcpy(out, text, length + 1);
    else
        exo_format_cut(out, room, "%s", text);
    return out;
}

void
exo_format_cut(char *out, size_t room, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = exo_c_vsnprintf(out, room, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length >= room)
        end_cut(out, room);
}

/* Whether the character moves the cursor, reorders its neighbours, or breaks the line. */
static bool
is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* Writes the escaped form of the first character of `size` > 0 bytes to `piece`; returns the
 * character's length in the text. */
static size_t
show(const char *text, size_t size, exo_shown shown, char piece[MAX_PIECE])
{
    static const char names[] = {['\t'] = 't', ['\n'] = 'n', ['\r'] = 'r'};
    uint32_t code;
    size_t length = exo_utf8_next(text, size, &code);
    if (code == EXO_UTF8_INVALID) {
        snprintf(piece, MAX_PIECE, "\\x%02x", (unsigned char)text[0]);
        return 1;
    }
    if (!is_control(code) || (shown == EXO_SHOWN_TEXT && (code == '\n' || code == '\t'))) {
        memcpy(piece, text, length);
        piece[length] = '\0';
    } else if (code < sizeof names && names[code]) {
        snprintf(piece, MAX_PIECE, "\\%c", names[code]);
    } else {
        snprintf(piece, MAX_PIECE, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
    }
    return length;
}

/* The length of a beginning that needs no escapes; most texts are ASCII. */
static size_t
plain(const char *text, size_t size)
{
    size_t n = 0;
    while (n < size && text[n] >= 0x20 && text[n] < 0x7f)
        n++;
    return n;
}

void
exo_printable_add(exo_text *out, const char *text, size_t size, exo_shown shown)
{
    char piece[MAX_PIECE];
    while (size > 0) {
        size_t length = plain(text, size);
        if (length > 0) {
            exo_text_add_bytes(out, text, length);
        } else {
            length = show(text, size, shown, piece);
            exo_text_add_bytes(out, piece, strlen(piece));
        }
        text += length;
        size -= length;
    }
}

const char *
exo_printable(char *out, size_t room, const char *text, exo_shown shown)
{
    char piece[MAX_PIECE];
    size_t at = 0, size = strlen(text);
    while (size > 0) {
        size_t length = show(text, size, shown, piece), wide = strlen(piece);
        if (at + wide >= room)
            break;
        memcpy(out + at, piece, wide);
        at += wide;
        text += length;
        size -= length;
    }
    out[at] = '\0';
    if (size > 0)
        mark_cut(out, room);
    return out;
}

/* Removes the broken characters that "%.40s" leaves where it cuts: after a quote and LEAST_CUT bytes
 * or more. Text without a whole character of several bytes may be in another encoding, and stays. */
static void
remove_broken(char *text, size_t size)
{
    uint32_t code;
    bool whole = false;
    for (size_t at = 0; at < size && !whole;) {
        size_t length = exo_utf8_next(text + at, size - at, &code);
        whole = length > 1 && code != EXO_UTF8_INVALID;
        at += length;
    }
    size_t to = 0, quote = 0;
    for (size_t at = 0, length; at < size; at += length) {
        length = exo_utf8_next(text + at, size - at, &code);
        quote = text[at] == '\'' ? at + 1 : quote;
        if (whole && at - quote >= LEAST_CUT && code == EXO_UTF8_INVALID &&
            exo_utf8_unfinished(text + at, length) == length)
            continue;
        memmove(text + to, text + at, length);
        to += length;
    }
    text[to] = '\0';
}

void
exo_printable_here(char *text, size_t room, bool cut)
{
    char copy[MAX_HERE];
    size_t size = strlen(text);
    if (cut) {
        end_cut(text, room);
        size = strlen(text);
    }
    size_t from = plain(text, size);
    if (from == size)
        return;
    remove_broken(text, size);
    snprintf(copy, sizeof copy, "%s", text + from);
    exo_printable(text + from, room - from, copy, EXO_SHOWN_LINE);
}
