/* Added tokens: see added.h. They are in a trie of their bytes. The search finds the leftmost
 * token, and of several that begin there the longest.
 *
 * A token with rstrip may remove white space with which the next token begins. The next token
 * counts all the same, and the text continues behind it. If the next token has lstrip and nothing
 * of it is left, it does not count. Hugging Face's library does the same. */
#include "nn/text/added.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/utf8.h"
#include "nn/text/kinds.h"

void
exo_added_release(exo_added *added)
{
    for (size_t i = 0; i < added->count; i++)
        exo_free(added->tokens[i].content);
    exo_free(added->tokens);
    exo_free(added->plain.nodes);
    exo_free(added->normalized.nodes);
    *added = (exo_added){0};
}

exo_status
exo_added_add(exo_added *added, exo_added_token token, exo_err *err)
{
    if (added->count == added->room) {
        size_t room = added->room ? 2 * added->room : 16;
        exo_added_token *tokens = exo_realloc(added->tokens, room, sizeof *tokens);
        if (!tokens) {
            exo_free(token.content);
            return exo_fail(err, EXO_NOMEM, "no memory for %zu added tokens", added->count + 1);
        }
        added->tokens = tokens;
        added->room = room;
    }
    added->tokens[added->count++] = token;
    if (token.number > added->most)
        added->most = token.number;
    return EXO_OK;
}

/* The index of a new node, or -1: no memory. */
static int32_t
new_node(exo_trie *trie, unsigned char byte)
{
    if (trie->count == trie->room) {
        size_t room = trie->room ? 2 * trie->room : 64;
        exo_trie_node *nodes =
            room < INT32_MAX ? exo_realloc(trie->nodes, room, sizeof *nodes) : NULL;
        if (!nodes)
            return -1;
        trie->nodes = nodes;
        trie->room = room;
    }
    trie->nodes[trie->count] = (exo_trie_node){.token = -1, .byte = byte};
    return (int32_t)trie->count++;
}

static int32_t
child(const exo_trie *trie, int32_t node, unsigned char byte)
{
    int32_t next = trie->nodes[node].child;
    while (next && trie->nodes[next].byte != byte)
        next = trie->nodes[next].sibling;
    return next;
}

exo_status
exo_added_index(exo_added *added, size_t token, const char *text, size_t size, exo_err *err)
{
    exo_trie *trie = added->tokens[token].normalized ? &added->normalized : &added->plain;
    int32_t node = trie->count ? 0 : new_node(trie, 0);
    for (size_t i = 0; i < size && node >= 0; i++) {
        unsigned char byte = (unsigned char)text[i];
        int32_t next = child(trie, node, byte);
        if (!next) {
            next = new_node(trie, byte);
            if (next >= 0) {
                trie->nodes[next].sibling = trie->nodes[node].child;
                trie->nodes[node].child = next;
            }
        }
        node = next;
    }
    if (node < 0)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu added tokens", added->count);
    if (trie->nodes[node].token >= 0)
        return exo_fail(
            err, EXO_UNSUPPORTED, "'%.64s' and '%.64s' are the same when they are normalized",
            added->tokens[trie->nodes[node].token].content, added->tokens[token].content);
    trie->nodes[node].token = (int32_t)token;
    trie->begins[(unsigned char)text[0]] = true;
    return EXO_OK;
}

/* The index of the longest token at the beginning of the text, with its length, or -1. */
static int32_t
longest(const exo_trie *trie, const char *text, size_t size, size_t *length)
{
    int32_t node = 0, found = -1;
    for (size_t i = 0; i < size; i++) {
        node = child(trie, node, (unsigned char)text[i]);
        if (!node)
            break;
        if (trie->nodes[node].token >= 0) {
            found = trie->nodes[node].token;
            *length = i + 1;
        }
    }
    return found;
}

/* The character before `at`, and the byte at which it begins. At 0: EXO_UTF8_INVALID. */
static uint32_t
before(const char *text, size_t at, size_t *begin)
{
    uint32_t code = EXO_UTF8_INVALID;
    if (at) {
        size_t from = at - 1;
        while (from > 0 && ((unsigned char)text[from] & 0xc0) == 0x80)
            from--;
        exo_utf8_next(text + from, at - from, &code);
        *begin = from;
    }
    return code;
}

static bool
is_single(const char *text, size_t size, size_t begin, size_t end)
{
    uint32_t code = EXO_UTF8_INVALID;
    size_t from;
    if (begin && exo_utf8_is_word(before(text, begin, &from)))
        return false;
    if (end < size)
        exo_utf8_next(text + end, size - end, &code);
    return end == size || !exo_utf8_is_word(code);
}

/* The beginning of the white space before `at`, at least `least`: another token may already have
 * removed the white space up to there. */
static size_t
spaces_before(const char *text, size_t least, size_t at)
{
    size_t from = at;
    while (at > least && exo_utf8_is_space(before(text, at, &from)))
        at = from;
    return at > least ? at : least;
}

static size_t
spaces_after(const char *text, size_t size, size_t at)
{
    while (at < size) {
        uint32_t code;
        size_t length = exo_utf8_next(text + at, size - at, &code);
        if (!exo_utf8_is_space(code))
            break;
        at += length;
    }
    return at;
}

void
exo_added_split(const exo_added *added, bool normalized, const char *text, size_t size,
                size_t begin, bool first, exo_pieces *out)
{
    const exo_trie *trie = normalized ? &added->normalized : &added->plain;
    size_t done = 0, length = 0;
    for (size_t at = 0; at < size && trie->count;) {
        int32_t index = trie->begins[(unsigned char)text[at]]
                            ? longest(trie, text + at, size - at, &length)
                            : -1;
        if (index < 0) {
            at++;
            continue;
        }
        const exo_added_token *token = &added->tokens[index];
        size_t from = at, to = at + length;
        at = to;
        if (token->single_word && !is_single(text, size, from, to))
            continue;
        if (token->lstrip)
            from = spaces_before(text, done, from);
        if (token->rstrip)
            to = spaces_after(text, size, to);
        if (done < from)
            exo_pieces_add(out, begin + done, from - done, -1, first && done == 0);
        if (from < to)
            exo_pieces_add(out, 0, 0, token->number, false);
        done = to;
    }
    if (done < size)
        exo_pieces_add(out, begin + done, size - done, -1, first && done == 0);
}
