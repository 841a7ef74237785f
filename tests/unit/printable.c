/* Foreign texts are shown in one line that a terminal cannot take for control sequences: in errors,
 * in the log, and alone. Each test owns its texts. Read next: runtime/base/printable.h. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <exogym/rng.h>
#include <exogym/status.h>

#include "base/printable.h"
#include "base/utf8.h"
#include "support/logged.h"

struct logged logged = LOGGED_NONE;

/* Is the text UTF-8 without characters that control a terminal? */
static bool
is_harmless(const char *text, bool lines)
{
    size_t size = strlen(text);
    for (size_t at = 0; at < size;) {
        uint32_t code;
        at += exo_utf8_next(text + at, size - at, &code);
        bool kept = lines && (code == '\n' || code == '\t');
        if (code == EXO_UTF8_INVALID || (code < 0x20 && !kept) || (code >= 0x7f && code < 0xa0) ||
            (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
            return false;
    }
    return true;
}

Test(printable, escapes_what_a_terminal_would_obey)
{
    const struct {
        const char *text, *shown;
    } cases[] = {
        {"plain, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80",
         "plain, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"two\nlines\r\n", "two\\nlines\\r\\n"},
        {"a\tb", "a\\tb"},
        {"\x1b[31mred", "\\x1b[31mred"},
        {"\a\b\x7f", "\\x07\\x08\\x7f"},
        {"\xc2\x9b"
         "31m",
         "\\u009b31m"}, /* CSI in one character */
        {"\xe2\x80\xae"
         "abc",
         "\\u202e"
         "abc"},                                          /* right to left */
        {"\xe2\x80\xa8|\xe2\x81\xa6", "\\u2028|\\u2066"}, /* a line separator */
        {"\xff\xfe", "\\xff\\xfe"},                       /* no UTF-8 */
        {"\xe2\x82", "\\xe2\\x82"},                       /* the beginning of a character */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},              /* half of a surrogate pair */
        {"C:\\new", "C:\\new"},                           /* printable */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[256];
        exo_text grown = {0};
        cr_expect_str_eq(exo_printable(out, sizeof out, cases[i].text, EXO_SHOWN_LINE),
                         cases[i].shown, "case %zu", i);
        exo_printable_add(&grown, cases[i].text, strlen(cases[i].text), EXO_SHOWN_LINE);
        cr_expect_str_eq(grown.data, cases[i].shown, "case %zu", i);
        exo_free(grown.data);
    }
}

/* The format of an error cuts at a byte. */
Test(printable, removes_what_a_format_leaves_of_a_character)
{
    static const char *const letters[] = {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        for (size_t shift = 0; shift < 4; shift++) {
            char name[128] = "abc", expected[128];
            exo_err err = {0};
            name[shift] = '\0';
            while (strlen(name) < 100)
                strcat(name, letters[i]);
            exo_fail(&err, EXO_INVAL, "'%.40s': expected a number", name);
            size_t whole = shift + (40 - shift) / strlen(letters[i]) * strlen(letters[i]);
            snprintf(expected, sizeof expected, "'%.*s': expected a number", (int)whole, name);
            cr_expect_str_eq(err.text, expected);
        }
    exo_err err = {0};
    exo_fail(&err, EXO_INVAL, "'\xc3\xa4\xc3': no such file"); /* a name that is broken itself */
    cr_expect_str_eq(err.text, "'\xc3\xa4\\xc3': no such file");
    exo_fail(&err, EXO_INVAL, "'/a/folder/with/a/long/path/caf\xe9': no such file"); /* Latin 1 */
    cr_expect_str_eq(err.text, "'/a/folder/with/a/long/path/caf\\xe9': no such file");
}

Test(printable, keeps_the_lines_of_a_text)
{
    exo_text out = {0};
    exo_printable_add(&out, "a\n\tb\r\x1b", 6, EXO_SHOWN_TEXT);
    cr_expect_str_eq(out.data, "a\n\tb\\r\\x1b");
    exo_free(out.data);
    exo_text with_nul = {0};
    exo_printable_add(&with_nul, "a\0b", 3, EXO_SHOWN_TEXT);
    cr_expect_str_eq(with_nul.data, "a\\x00b");
    exo_free(with_nul.data);
}

Test(printable, cuts_between_characters_at_every_length)
{
    const char text[] = "a\xc3\xa4\x1b\xe2\x82\xac\xff\xf0\x9f\x98\x80z";
    for (size_t room = 1; room < 40; room++) {
        char out[40];
        memset(out, 'x', sizeof out);
        exo_printable(out, room, text, EXO_SHOWN_LINE);
        cr_expect_lt(strlen(out), room);
        cr_expect(is_harmless(out, false), "room %zu: %s", room, out);
    }
}

static bool
ends_in(const char *text, const char *end)
{
    size_t size = strlen(text), length = strlen(end);
    return size >= length && strcmp(text + size - length, end) == 0;
}

Test(printable, marks_what_is_cut)
{
    const char text[] = "a\xc3\xa4\x1b\xe2\x82\xac\xff\xf0\x9f\x98\x80z";
    char out[64], whole[64];
    exo_err err = {0};
    exo_printable(whole, sizeof whole, text, EXO_SHOWN_LINE);
    for (size_t room = 5; room <= strlen(whole); room++) {
        exo_printable(out, room, text, EXO_SHOWN_LINE);
        cr_expect(ends_in(out, "..."), "room %zu: %s", room, out);
    }
    for (size_t room = 5; room < sizeof text; room++) {
        exo_cut(out, room, text);
        cr_expect_lt(strlen(out), room);
        cr_expect(ends_in(out, "..."), "room %zu: %s", room, out);
    }
    cr_expect_str_eq(exo_cut(out, sizeof text, text), text);
    exo_format_cut(out, 8, "%s: %d", "four", 5678);
    cr_expect_str_eq(out, "four...");
    exo_fail(&err, EXO_IO, "%0600d", 1);
    cr_expect(ends_in(err.text, "0..."), "%s", err.text);
    exo_fail_in(&err, EXO_IO, "context");
    cr_expect(ends_in(err.text, "0..."), "%s", err.text);
}

Test(printable, any_bytes_are_shown_harmlessly_and_only_once)
{
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (int round = 0; round < 2000; round++) {
        char text[64], once[512], twice[512];
        size_t size = exo_rng_u32(&rng) % (sizeof text - 1);
        for (size_t i = 0; i < size; i++)
            text[i] = (char)(1 + exo_rng_u32(&rng) % 255);
        text[size] = '\0';
        exo_printable(once, sizeof once, text, EXO_SHOWN_LINE);
        cr_assert(is_harmless(once, false), "%s", once);
        cr_assert_str_eq(exo_printable(twice, sizeof twice, once, EXO_SHOWN_LINE), once);
        exo_printable(once, sizeof once, text, EXO_SHOWN_TEXT);
        cr_assert(is_harmless(once, true), "%s", once);
    }
}

Test(printable, an_error_is_one_line)
{
    exo_err err = {0};
    exo_fail(&err, EXO_INVAL, "tensor '%s'", "w\n\x1b[2J\xff");
    cr_expect_str_eq(err.text, "tensor 'w\\n\\x1b[2J\\xff'");
    exo_fail_in(&err, EXO_INVAL, "%s", "a\rb");
    cr_expect_str_eq(err.text, "a\\rb: tensor 'w\\n\\x1b[2J\\xff'");
}

Test(printable, an_error_that_is_cut_is_cut_between_characters)
{
    char text[2 * EXO_ERR_TEXT];
    for (size_t shift = 0; shift < 3; shift++) {
        exo_err err = {0};
        size_t at = 0;
        for (; at < shift; at++)
            text[at] = 'a';
        for (; at + 3 < sizeof text; at += 3)
            memcpy(text + at, "\xe2\x82\xac", 3);
        text[at] = '\0';
        exo_fail(&err, EXO_IO, "%s", text);
        cr_expect(is_harmless(err.text, false) && !strstr(err.text, "\\x"), "shift %zu: %s", shift,
                  err.text + 500);
        exo_fail_in(&err, EXO_IO, "x");
        cr_expect(is_harmless(err.text, false) && !strstr(err.text, "\\x"), "shift %zu: %s", shift,
                  err.text + 500);
    }
}

Test(printable, a_line_of_the_log_is_one_line)
{
    logged_begin();
    EXO_LOG(WARN, TEXT, "name=%s", "a\nlevel=error \x1b]0;x\a\xc3");
    cr_expect(logged_has("name=a\\nlevel=error \\x1b]0;x\\x07\\xc3"), "%s", logged_text());
    cr_expect_eq(logged_lines(), 1u);
    logged_end();
}
