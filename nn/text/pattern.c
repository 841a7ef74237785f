/* Patterns, compiled by PCRE2, and their matches: see pattern.h. No other file includes pcre2.h.
 *
 * A regular expression comes from a file, so the cost of a match is bounded. The bound is a number
 * of steps for each byte of the text, never a time. Real tokenizers stay far below it. Read next:
 * regex_syntax.c. */
#include "nn/text/pattern.h"

#include <stdint.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <exogym/memory.h>

#include "base/utf8.h"

enum {
    STEPS_LEAST = 1 << 20, /* steps of one match, */
    STEPS_EACH = 16,       /* and more for each byte of the text */
    HEAP_KIB = 1 << 20,    /* memory of one match */
    OPTIONS = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
};

struct exo_pattern {
    char *text; /* the literal text; NULL: a regular expression */
    size_t length;
    pcre2_code *code;
    bool fast; /* PCRE2 has compiled it to machine code */
};

static void *
give(size_t size, void *unused)
{
    (void)unused;
    return exo_calloc(1, size);
}

static void
take(void *memory, void *unused)
{
    (void)unused;
    exo_free(memory);
}

exo_status
exo_pattern_literal(exo_pattern **out, const char *text, exo_err *err)
{
    if (!*text)
        return exo_fail(err, EXO_UNSUPPORTED, "an empty pattern is not supported");
    exo_pattern *p = exo_calloc(1, sizeof *p);
    if (p)
        p->text = exo_strdup(text);
    if (!p || !p->text) {
        exo_pattern_free(&p);
        return exo_fail(err, EXO_NOMEM, "no memory for a pattern");
    }
    p->length = strlen(text);
    *out = p;
    return EXO_OK;
}

static exo_status
compile(exo_pattern *p, const char *regex, exo_err *err)
{
    int code = 0;
    size_t at = 0;
    pcre2_general_context *general = pcre2_general_context_create(give, take, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        p->code =
            pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, OPTIONS, &code, &at, context);
        if (p->code)
            p->fast = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    }
    bool ready = context != NULL;
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (!ready || code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return exo_fail(err, EXO_NOMEM, "no memory for a regular expression");
    if (!p->code) {
        PCRE2_UCHAR reason[128] = "?";
        pcre2_get_error_message(code, reason, sizeof reason);
        return exo_fail(err, EXO_UNSUPPORTED, "the regular expression '%.80s' is not supported: %s",
                        regex, (const char *)reason);
    }
    return EXO_OK;
}

exo_status
exo_pattern_own(exo_pattern **out, const char *regex, exo_err *err)
{
    exo_pattern *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a pattern");
    exo_status st = compile(p, regex, err);
    if (st == EXO_OK) {
        *out = p;
        p = NULL;
    }
    exo_pattern_free(&p);
    return st;
}

exo_status
exo_pattern_regex(exo_pattern **out, const char *regex, exo_err *err)
{
    exo_text translated = {0};
    exo_status st = exo_regex_translate(&translated, regex, err);
    if (st == EXO_OK)
        st = exo_pattern_own(out, translated.data ? translated.data : "", err);
    exo_free(translated.data);
    return st;
}

void
exo_pattern_free(exo_pattern **pattern)
{
    if (!*pattern)
        return;
    exo_free((*pattern)->text);
    pcre2_code_free((*pattern)->code);
    exo_free(*pattern);
    *pattern = NULL;
}

bool
exo_pattern_may_be_empty(const exo_pattern *pattern)
{
    uint32_t empty = 0;
    return pattern->code && pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &empty) == 0 &&
           empty;
}

exo_status
exo_matcher_open(exo_matcher *matcher, const exo_pattern *pattern, exo_err *err)
{
    *matcher = (exo_matcher){.pattern = pattern};
    if (pattern->text)
        return EXO_OK;
    pcre2_general_context *general = pcre2_general_context_create(give, take, NULL);
    if (general) {
        matcher->data = pcre2_match_data_create(1, general);
        matcher->context = pcre2_match_context_create(general);
    }
    pcre2_general_context_free(general);
    if (!matcher->data || !matcher->context)
        return exo_fail(err, EXO_NOMEM, "no memory to match a regular expression");
    pcre2_set_heap_limit(matcher->context, HEAP_KIB);
    return EXO_OK;
}

void
exo_matcher_close(exo_matcher *matcher)
{
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    *matcher = (exo_matcher){0};
}

void
exo_matcher_begin(exo_matcher *matcher, const char *text, size_t size)
{
    matcher->text = text;
    matcher->size = size;
    matcher->at = 0;
    matcher->last = SIZE_MAX;
    if (matcher->context) {
        uint64_t steps = STEPS_LEAST + (uint64_t)STEPS_EACH * size;
        pcre2_set_match_limit(matcher->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    }
}

static int
match(exo_matcher *m)
{
    const pcre2_code *code = m->pattern->code;
    if (m->pattern->fast) {
        int found =
            pcre2_jit_match(code, (PCRE2_SPTR)m->text, m->size, m->at, 0, m->data, m->context);
        if (found != PCRE2_ERROR_JIT_STACKLIMIT)
            return found;
    }
    return pcre2_match(code, (PCRE2_SPTR)m->text, m->size, m->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       m->data, m->context);
}

static exo_status
next_regex(exo_matcher *m, bool *found, size_t *begin, size_t *end, exo_err *err)
{
    *found = false;
    while (m->at <= m->size) {
        int result = match(m);
        if (result == PCRE2_ERROR_NOMATCH)
            return EXO_OK;
        if (result == PCRE2_ERROR_NOMEMORY)
            return exo_fail(err, EXO_NOMEM, "no memory to match a regular expression");
        if (result < 0)
            return exo_fail(
                err, EXO_FAILED,
                "a regular expression of the tokenizer takes too long on this text (PCRE2: %d)",
                result);
        const size_t *bounds = pcre2_get_ovector_pointer(m->data);
        /* As in Oniguruma, an empty match directly after another match does not count. The bounds
         * never go back: only \K could do that, and it is refused. */
        if (bounds[0] == bounds[1] && bounds[1] == m->last) {
            uint32_t code;
            m->at += m->at < m->size ? exo_utf8_next(m->text + m->at, m->size - m->at, &code) : 1;
            continue;
        }
        *found = true;
        *begin = bounds[0];
        *end = m->at = m->last = bounds[1];
        return EXO_OK;
    }
    return EXO_OK;
}

exo_status
exo_matcher_next(exo_matcher *m, bool *found, size_t *begin, size_t *end, exo_err *err)
{
    if (!m->pattern->text)
        return next_regex(m, found, begin, end, err);
    const char *hit =
        memmem(m->text + m->at, m->size - m->at, m->pattern->text, m->pattern->length);
    *found = hit != NULL;
    if (hit) {
        *begin = (size_t)(hit - m->text);
        *end = m->at = *begin + m->pattern->length;
    }
    return EXO_OK;
}
