/* A vocabulary: see vocab.h. A hash table leads from spellings to numbers, a list from numbers to
 * spellings. Both double when they are full. */
#include "nn/text/vocab.h"

#include <string.h>

#include <exogym/memory.h>

#include "nn/text/map64.h"

void
exo_vocab_release(exo_vocab *vocab)
{
    exo_free(vocab->bytes.data);
    exo_free(vocab->spellings);
    exo_free(vocab->slots);
    *vocab = (exo_vocab){0};
}

const exo_spelling *
exo_vocab_spelling(const exo_vocab *vocab, int32_t number)
{
    if (number < 0 || (size_t)number >= vocab->count ||
        vocab->spellings[number].kind == EXO_TOKEN_NONE)
        return NULL;
    return &vocab->spellings[number];
}

int32_t
exo_vocab_find(const exo_vocab *vocab, const char *text, size_t length)
{
    if (!vocab->slots)
        return -1;
    for (size_t i = exo_hash_bytes(text, length) & vocab->mask; vocab->slots[i] >= 0;
         i = (i + 1) & vocab->mask) {
        const exo_spelling *spelling = &vocab->spellings[vocab->slots[i]];
        if (spelling->length == length &&
            memcmp(vocab->bytes.data + spelling->begin, text, length) == 0)
            return vocab->slots[i];
    }
    return -1;
}

static void
place(const exo_vocab *vocab, int32_t *slots, size_t mask, int32_t number)
{
    const exo_spelling *spelling = &vocab->spellings[number];
    size_t i = exo_hash_bytes(vocab->bytes.data + spelling->begin, spelling->length) & mask;
    while (slots[i] >= 0)
        i = (i + 1) & mask;
    slots[i] = number;
}

/* Makes room for one more token in the hash table. */
static bool
grow_slots(exo_vocab *vocab)
{
    if (vocab->slots && vocab->tokens < (vocab->mask + 1) / 2)
        return true;
    size_t size = vocab->slots ? 2 * (vocab->mask + 1) : 1024;
    int32_t *slots = exo_calloc(size, sizeof *slots);
    if (!slots)
        return false;
    memset(slots, 0xff, size * sizeof *slots);
    for (size_t i = 0; i < vocab->count; i++)
        if (vocab->spellings[i].kind != EXO_TOKEN_NONE)
            place(vocab, slots, size - 1, (int32_t)i);
    exo_free(vocab->slots);
    vocab->slots = slots;
    vocab->mask = size - 1;
    return true;
}

static bool
grow_spellings(exo_vocab *vocab, size_t count)
{
    if (count > vocab->room) {
        size_t room = 2 * count;
        exo_spelling *spellings = exo_realloc(vocab->spellings, room, sizeof *spellings);
        if (!spellings)
            return false;
        vocab->spellings = spellings;
        vocab->room = room;
    }
    if (count > vocab->count) {
        memset(vocab->spellings + vocab->count, 0,
               (count - vocab->count) * sizeof *vocab->spellings);
        vocab->count = count;
    }
    return true;
}

exo_status
exo_vocab_add(exo_vocab *vocab, const char *text, size_t length, uint64_t number,
              exo_token_kind kind, exo_err *err)
{
    if (number >= EXO_VOCAB_MOST)
        return exo_fail(err, EXO_DAMAGED, "the number of '%.64s', %llu, is not below %d", text,
                        (unsigned long long)number, EXO_VOCAB_MOST);
    if (exo_vocab_find(vocab, text, length) >= 0)
        return exo_fail(err, EXO_DAMAGED, "the token '%.64s' occurs twice", text);
    const exo_spelling *taken = exo_vocab_spelling(vocab, (int32_t)number);
    if (taken)
        return exo_fail(err, EXO_DAMAGED, "'%.64s' and '%.64s' have the same number, %llu",
                        vocab->bytes.data + taken->begin, text, (unsigned long long)number);
    exo_spelling spelling = {
        .begin = vocab->bytes.length, .length = (uint32_t)length, .kind = (uint8_t)kind};
    exo_text_add_bytes(&vocab->bytes, text, length);
    exo_text_add_bytes(&vocab->bytes, "", 1);
    if (vocab->bytes.failed || !grow_slots(vocab) || !grow_spellings(vocab, (size_t)number + 1))
        return exo_fail(err, EXO_NOMEM, "no memory for %zu tokens", vocab->tokens + 1);
    vocab->spellings[number] = spelling;
    vocab->tokens++;
    place(vocab, vocab->slots, vocab->mask, (int32_t)number);
    return EXO_OK;
}
