/* Translation of the regular expressions in tokenizer.json (Oniguruma's, in Ruby's syntax) to the
 * syntax of PCRE2.
 *
 * The two agree on most constructs that tokenizers use. The differences are written out: \s, \w
 * and the scripts are other sets; a class within a class is a union. Constructs that may have
 * another meaning are refused, because a tokenizer that splits in another way gives wrong numbers
 * without an error. One call owns all state. Read next: pattern.c. */
#include "nn/text/pattern.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define SPACE EXO_REGEX_SPACE
#define WORD  EXO_REGEX_WORD
/* Outside of classes, Oniguruma's \w has another table for Latin-1, which includes superscripts
 * and fractions. */
#define WORD_OUTSIDE WORD "\\xb2\\xb3\\xb9\\xbc-\\xbe"

enum {
    DEPTH_MOST = 50 /* nested groups and classes */
};

struct reader {
    const char *regex, *at;
    exo_text *out;
    exo_err *err;
    int depth;
};

static exo_status
refuse(struct reader *r, const char *what)
{
    return exo_fail(r->err, EXO_UNSUPPORTED,
                    "the regular expression '%.80s' is not supported: %s at byte %zu", r->regex,
                    what, (size_t)(r->at - r->regex));
}

static void
put(struct reader *r, const char *text)
{
    exo_text_add_bytes(r->out, text, strlen(text));
}

/* Writes a character that stands for itself. */
static void
put_literal(struct reader *r, uint32_t code)
{
    if (code < 0x80 && !isalnum((int)code))
        exo_text_add(r->out, "\\x%02x", code);
    else if (code < 0x80)
        exo_text_add(r->out, "%c", (int)code);
    else
        exo_text_add(r->out, "\\x{%x}", code);
}

/* --- Escapes ---------------------------------------------------------------------------------- */

static exo_status
hex(struct reader *r, size_t least, size_t most, uint32_t *code)
{
    size_t digits = 0;
    *code = 0;
    while (digits < most && isxdigit((unsigned char)r->at[digits])) {
        char digit[2] = {r->at[digits++], 0};
        *code = *code * 16 + (uint32_t)strtoul(digit, NULL, 16);
    }
    if (digits < least || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
        return refuse(r, "the number of a character that does not exist");
    r->at += digits;
    return EXO_OK;
}

/* Reads the rest of an escape, after the backslash, if it stands for one character: *code. Else
 * *is is false, and nothing is read. */
static exo_status
escaped_character(struct reader *r, bool *is, uint32_t *code)
{
    static const char letters[] = "nrtfvae", controls[] = "\n\r\t\f\v\a\x1b";
    unsigned char c = (unsigned char)*r->at;
    const char *letter = c ? strchr(letters, c) : NULL;
    *is = true;
    if (letter) {
        *code = (uint32_t)controls[letter - letters];
        r->at++;
        return EXO_OK;
    }
    if (c == 'u') {
        r->at++;
        return hex(r, 4, 4, code);
    }
    if (c == 'x') {
        r->at++;
        if (*r->at != '{') {
            exo_status st = hex(r, 1, 2, code);
            return st == EXO_OK && *code > 0x7f ? refuse(r, "a byte that is not a character") : st;
        }
        r->at++;
        exo_status st = hex(r, 1, 6, code);
        if (st == EXO_OK && *r->at++ != '}')
            return refuse(r, "a number without '}'");
        return st;
    }
    if (c == 0)
        return refuse(r, "a backslash at the end");
    if (c < 0x80 && isalnum(c)) {
        *is = false;
        return EXO_OK;
    }
    r->at += exo_utf8_next(r->at, 4, code);
    return EXO_OK;
}

/* Translates \p{...} or \P{...}. `at` is behind the p. */
static exo_status
property(struct reader *r, bool negated)
{
    static const char *const same[] = {"Alphabetic", "White_Space", "Uppercase",  "Lowercase",
                                       "Emoji",      "Any",         "Ideographic"};
    static const char *const categories[][2] = {{"Letter", "L"},
                                                {"Mark", "M"},
                                                {"Number", "N"},
                                                {"Punctuation", "P"},
                                                {"Symbol", "S"},
                                                {"Separator", "Z"},
                                                {"Other", "C"},
                                                {"Control", "Cc"},
                                                {"Decimal_Number", "Nd"},
                                                {"Uppercase_Letter", "Lu"},
                                                {"Lowercase_Letter", "Ll"}};
    if (*r->at != '{')
        return refuse(r, "a property without '{'");
    const char *name = r->at + 1;
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
    if (!length || name[length] != '}')
        return refuse(r, "a property without a name");
    const char *prefix = length <= 2 ? "" : "sc:", *known = NULL;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (strlen(same[i]) == length && memcmp(same[i], name, length) == 0)
            prefix = "";
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strlen(categories[i][0]) == length && memcmp(categories[i][0], name, length) == 0)
            known = categories[i][1];
    if (known)
        exo_text_add(r->out, "\\%c{%s}", negated ? 'P' : 'p', known);
    else
        exo_text_add(r->out, "\\%c{%s%.*s}", negated ? 'P' : 'p', prefix, (int)length, name);
    r->at = name + length + 1;
    return EXO_OK;
}

/* Translates an escape outside of classes. `at` is behind the backslash. */
static exo_status
escape(struct reader *r)
{
    uint32_t code = 0;
    bool is;
    exo_status st = escaped_character(r, &is, &code);
    if (st != EXO_OK)
        return st;
    if (is) {
        put_literal(r, code);
        return EXO_OK;
    }
    char c = *r->at++;
    switch (c) {
    case 's':
        put(r, "[" SPACE "]");
        return EXO_OK;
    case 'S':
        put(r, "[^" SPACE "]");
        return EXO_OK;
    case 'w':
        put(r, "[" WORD_OUTSIDE "]");
        return EXO_OK;
    case 'W':
        put(r, "[^" WORD_OUTSIDE "]");
        return EXO_OK;
    case 'd':
        put(r, "\\p{Nd}");
        return EXO_OK;
    case 'D':
        put(r, "\\P{Nd}");
        return EXO_OK;
    case 'b':
        put(r, "(?:(?<=[" WORD_OUTSIDE "])(?![" WORD_OUTSIDE "])|(?<![" WORD_OUTSIDE
               "])(?=[" WORD_OUTSIDE "]))");
        return EXO_OK;
    case 'p':
    case 'P':
        return property(r, c == 'P');
    case 'A':
    case 'z':
    case 'Z':
        exo_text_add(r->out, "\\%c", c);
        return EXO_OK;
    default:
        r->at--;
        return refuse(r, "this escape");
    }
}

/* --- Classes ---------------------------------------------------------------------------------- */

/* Translates an escape in a class that stands for a set. `at` is behind the backslash. */
static exo_status
class_escape(struct reader *r)
{
    char c = *r->at++;
    switch (c) {
    case 's':
        put(r, SPACE);
        return EXO_OK;
    case 'S':
        put(r, "\\P{White_Space}");
        return EXO_OK;
    case 'w':
        put(r, WORD);
        return EXO_OK;
    case 'd':
        put(r, "\\p{Nd}");
        return EXO_OK;
    case 'D':
        put(r, "\\P{Nd}");
        return EXO_OK;
    case 'p':
    case 'P':
        return property(r, c == 'P');
    default:
        r->at--;
        return refuse(r, "this escape in a class");
    }
}

/* Reads a character of a class, plain or escaped. *is false: the escape stands for a set, and `at`
 * is at its letter. */
static exo_status
class_character(struct reader *r, bool *is, uint32_t *code)
{
    if (*r->at == '\\') {
        r->at++;
        return escaped_character(r, is, code);
    }
    *is = true;
    r->at += exo_utf8_next(r->at, 4, code);
    return EXO_OK;
}

static exo_status
class_item(struct reader *r)
{
    uint32_t low = 0, high = 0;
    bool is;
    exo_status st = class_character(r, &is, &low);
    if (st != EXO_OK)
        return st;
    if (!is)
        return class_escape(r);
    put_literal(r, low);
    if (r->at[0] != '-' || r->at[1] == ']' || r->at[1] == 0)
        return EXO_OK;
    r->at++;
    if (*r->at == '[' || *r->at == '-')
        return refuse(r, "a range without an end");
    st = class_character(r, &is, &high);
    if (st != EXO_OK)
        return st;
    if (!is || high < low)
        return refuse(r, "a range without an end");
    put(r, "-");
    put_literal(r, high);
    return EXO_OK;
}

/* Translates a class. `at` is behind its '['. The items of an inner class become items of the
 * outer one. */
static exo_status
class_(struct reader *r)
{
    exo_status st = EXO_OK;
    if (++r->depth > DEPTH_MOST)
        return refuse(r, "a class nested this deep");
    if (*r->at == ']')
        return refuse(r, "a class that begins with ']'");
    while (st == EXO_OK && *r->at != ']') {
        if (!*r->at)
            return refuse(r, "a class without ']'");
        if (r->at[0] == '&' && r->at[1] == '&')
            return refuse(r, "an intersection");
        if (r->at[0] == '[') {
            r->at++;
            if (*r->at == ':' || *r->at == '^')
                return refuse(r, *r->at == ':' ? "a POSIX class" : "a negated class in a class");
            st = class_(r);
        } else {
            st = class_item(r);
        }
    }
    if (st == EXO_OK)
        r->at++;
    r->depth--;
    return st;
}

/* --- The rest --------------------------------------------------------------------------------- */

static exo_status
group(struct reader *r)
{
    static const char *const kinds[] = {"?:", "?=", "?!", "?>", "?<=", "?<!", "?i:"};
    if (++r->depth > DEPTH_MOST)
        return refuse(r, "a group nested this deep");
    put(r, "(");
    if (*r->at != '?')
        return *r->at == '*' ? refuse(r, "'(*'") : EXO_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(r->at, kinds[i], strlen(kinds[i])) == 0) {
            put(r, kinds[i]);
            r->at += strlen(kinds[i]);
            return EXO_OK;
        }
    /* Only at the beginning does (?i) have the same meaning in both syntaxes. */
    if (strncmp(r->at, "?i)", 3) == 0 && r->at == r->regex + 1) {
        put(r, "?i");
        r->at += 2;
        return EXO_OK;
    }
    return refuse(r, "this kind of group");
}

/* Translates {n}, {n,} or {n,m}. `at` is behind the '{'. */
static exo_status
interval(struct reader *r)
{
    const char *at = r->at;
    size_t least = strspn(at, "0123456789");
    at += least;
    bool open = *at == ',';
    if (open)
        at += 1 + strspn(at + 1, "0123456789");
    if (!least || *at != '}')
        return refuse(r, "this '{'");
    at++;
    if (*at == '+' || (*at == '?' && !open))
        return refuse(r, "what follows '}'");
    exo_text_add(r->out, "{%.*s", (int)(at - r->at), r->at);
    r->at = at;
    return EXO_OK;
}

exo_status
exo_regex_translate(exo_text *out, const char *regex, exo_err *err)
{
    struct reader r = {.regex = regex, .at = regex, .out = out, .err = err};
    exo_status st = EXO_OK;
    while (st == EXO_OK && *r.at) {
        char c = *r.at++;
        if (c == '\\') {
            st = escape(&r);
        } else if (c == '[') {
            bool negated = *r.at == '^';
            r.at += negated;
            put(&r, negated ? "[^" : "[");
            st = class_(&r);
            put(&r, "]");
        } else if (c == '(') {
            st = group(&r);
        } else if (c == '{') {
            st = interval(&r);
        } else if (c == ')') {
            r.depth--;
            put(&r, ")");
        } else if (strchr("*+?|.^$", c)) {
            exo_text_add(out, "%c", c);
        } else {
            uint32_t code;
            r.at += exo_utf8_next(r.at - 1, 4, &code) - 1;
            put_literal(&r, code);
        }
    }
    if (st == EXO_OK && out->failed)
        st = exo_fail(err, EXO_NOMEM, "no memory for a regular expression");
    return st;
}
