/* The alphabet of text files. A set has a bit for each code point, so the text need not stay in
 * memory. One call owns all state; one thread. See documents.h. */
#include "nn/corpus/documents.h"

#include <inttypes.h>
#include <string.h>

#include <exogym/memory.h>

enum {
    CODE_POINTS = 0x110000,
    SURROGATES = 0xD800,
    AFTER_SURROGATES = 0xE000
};

struct alphabet {
    uint8_t seen[CODE_POINTS / 8];
    size_t bytes; /* the size of the alphabet as UTF-8 */
};

/* The length of a character that begins with the byte `first`; 0: no character does. */
static size_t
length_of(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xC2)
        return 0;
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
}

/* Reads the character at `text`, which has `size` bytes, and returns its length; 0: invalid
 * UTF-8. */
static size_t
read_character(const unsigned char *text, size_t size, uint32_t *out)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = length_of(text[0]);
    if (length == 0 || length > size)
        return 0;
    uint32_t code = length == 1 ? text[0] : text[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3F);
    }
    *out = code;
    bool valid = code >= smallest[length] && code < CODE_POINTS &&
                 !(code >= SURROGATES && code < AFTER_SURROGATES);
    return valid ? length : 0;
}

static exo_status
note_characters(void *context, size_t index, const char *text, size_t size, uint64_t offset,
                exo_err *err)
{
    (void)index;
    (void)offset;
    struct alphabet *a = context;
    const unsigned char *in = (const unsigned char *)text;
    for (size_t at = 0; at < size;) {
        uint32_t code = 0;
        size_t length = read_character(in + at, size - at, &code);
        if (length == 0)
            return exo_fail(err, EXO_INVAL,
                            "byte %zu is not UTF-8: the tokenizer 'bytes' takes any byte", at);
        if (code == 0) /* no tokenizer.json can hold it */
            return exo_fail(err, EXO_INVAL,
                            "byte %zu is U+0000: the tokenizer 'bytes' takes any byte", at);
        if (!(a->seen[code / 8] >> code % 8 & 1)) {
            a->seen[code / 8] |= (uint8_t)(1u << code % 8);
            a->bytes += length;
        }
        at += length;
    }
    return EXO_OK;
}

static char *
write_character(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    unsigned tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *out++ = (char)(uint8_t)(0xFF00u >> (tail + 1) | code >> 6 * tail);
    while (tail-- > 0)
        *out++ = (char)(uint8_t)(0x80 | (code >> 6 * tail & 0x3F));
    return out;
}

exo_status
exo_documents_alphabet(const exo_file_list *files, size_t limit, exo_tokenizer **out, exo_err *err)
{
    struct alphabet *a = exo_calloc(1, sizeof *a);
    if (!a)
        return exo_fail(err, EXO_NOMEM, "no memory for an alphabet");
    exo_status st = exo_documents_read(files, limit, note_characters, a, NULL, err);
    if (st == EXO_OK && a->bytes == 0)
        st = exo_fail(err, EXO_INVAL, "%s: there is no text", files->paths[0]);
    char *text = st == EXO_OK ? exo_calloc(a->bytes + 1, 1) : NULL;
    if (st == EXO_OK && !text)
        st = exo_fail(err, EXO_NOMEM, "no memory for an alphabet");
    char *at = text;
    for (uint32_t code = 0; st == EXO_OK && code < CODE_POINTS; code++)
        if (a->seen[code / 8] >> code % 8 & 1)
            at = write_character(at, code);
    if (st == EXO_OK)
        st = exo_tokenizer_characters(out, text, a->bytes, err);
    exo_free(text);
    exo_free(a);
    return st;
}
