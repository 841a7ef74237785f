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

/* What a file is that begins with these bytes, and what to do with it. Of several, the first counts. '?' is a
 * digit. A text may begin with letters that begin such a file, so they are as many as it always has. */
static const struct signature {
    const char *bytes;
    size_t size;
    const char *advice;
} signatures[] = {
    {"\x1F\x8B\x08", 3, "the file is compressed by gzip: decompress it with gunzip"},
    {"\x28\xB5\x2F\xFD", 4, "the file is compressed by zstd: decompress it with unzstd"},
    {"\xFD\x37zXZ\0", 6, "the file is compressed by xz: decompress it with unxz"},
    {"BZh?1AY&SY", 10, "the file is compressed by bzip2: decompress it with bunzip2"},
    {"BZh?\x17rE8P\x90", 10, "the file is compressed by bzip2: decompress it with bunzip2"},
    {"\x04\x22\x4D\x18", 4, "the file is compressed by lz4: decompress it with unlz4"},
    {"PK\x03\x04", 4, "the file is a zip archive: unpack it with unzip"},
    {"PAR1\x15", 5,
     "the file is a Parquet table: write its texts as text or as lines of JSON (.jsonl)"},
    {"%PDF-", 5, "the file is a PDF document: extract its text, as by pdftotext"},
    {"\xFF\xFE\0\0", 4, "the file is UTF-32: convert it with iconv -f UTF-32 -t UTF-8"},
    {"\0\0\xFE\xFF", 4, "the file is UTF-32: convert it with iconv -f UTF-32 -t UTF-8"},
    {"\xFF\xFE", 2, "the file is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"},
    {"\xFE\xFF", 2, "the file is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"},
};

static bool
begins_with(const char *text, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] == '?' ? text[i] < '1' || text[i] > '9' : text[i] != bytes[i])
            return false;
    return true;
}

/* Fails at the byte `at` of the piece text (size), which begins at the file's byte `offset`:
 * it is U+0000, or not UTF-8. */
static exo_status
fail_at(const char *text, size_t size, uint64_t offset, size_t at, bool is_utf8, exo_err *err)
{
    const char *problem = is_utf8 ? "U+0000" : "not UTF-8";
    for (size_t i = 0; offset == 0 && i < sizeof signatures / sizeof *signatures; i++) {
        const struct signature *s = &signatures[i];
        if (size >= s->size && begins_with(text, s->bytes, s->size))
            return exo_fail(err, EXO_INVAL, "byte %zu is %s: %s", at, problem, s->advice);
    }
    return exo_fail(err, EXO_INVAL, "byte %zu is %s: %sthe tokenizer 'bytes' takes any byte", at,
                    problem, is_utf8 ? "" : "convert the text to UTF-8, as by iconv; or ");
}

static exo_status
note_characters(void *context, size_t index, const char *text, size_t size, uint64_t offset,
                exo_err *err)
{
    (void)index;
    struct alphabet *a = context;
    const unsigned char *in = (const unsigned char *)text;
    for (size_t at = 0; at < size;) {
        uint32_t code = 0;
        size_t length = read_character(in + at, size - at, &code);
        if (length == 0 || code == 0) /* no tokenizer.json can hold U+0000 */
            return fail_at(text, size, offset, at, length > 0, err);
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
