/* A text that doubles its memory. No state. */
#include "base/grow_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"

static bool
reserve(exo_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (text->most && (text->length > text->most || more > text->most - text->length)) {
        text->failed = text->over = true;
        return false;
    }
    if (text->size - text->length > more)
        return true;
    size_t size = 2 * text->size + more + 256;
    char *data = exo_realloc(text->data, size, 1);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->size = size;
    return true;
}

void
exo_text_add_bytes(exo_text *text, const char *bytes, size_t length)
{
    if (!reserve(text, length))
        return;
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void
exo_text_add(exo_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = exo_c_vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length >= 0 && reserve(text, (size_t)length)) {
        exo_c_vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}
