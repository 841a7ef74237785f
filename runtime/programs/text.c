/* Formats figures, and reads values of options: see text.h. No state. */
#include "programs/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/printable.h"
#include "programs/output.h"

bool
exo_text_can_redraw(FILE *out)
{
    const char *kind = getenv("TERM");
    return isatty(exo_output_descriptor(out)) && !(kind && strcmp(kind, "dumb") == 0);
}

const char *
exo_text_seconds(double seconds, char out[EXO_FIGURE])
{
    if (!(seconds >= 0) || seconds > 1e9) {
        snprintf(out, EXO_FIGURE, "-");
    } else if (seconds < 99.95) {
        snprintf(out, EXO_FIGURE, "%.1f s", seconds);
    } else {
        uint64_t s = (uint64_t)(seconds + 0.5);
        if (s < 3600)
            snprintf(out, EXO_FIGURE, "%" PRIu64 ":%02" PRIu64, s / 60, s % 60);
        else
            snprintf(out, EXO_FIGURE, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60,
                     s % 60);
    }
    return out;
}

const char *
exo_text_count(uint64_t count, char out[EXO_FIGURE])
{
    char digits[EXO_FIGURE];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    size_t used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

const char *
exo_text_number(double value, int digits, char out[EXO_FIGURE])
{
    double rounded = rint(value);
    if (isnan(value)) {
        snprintf(out, EXO_FIGURE, "-");
    } else if (fabs(rounded) >= pow(10, digits - 1) && fabs(rounded) < 1e9) {
        snprintf(out, EXO_FIGURE, "%.0f", value); /* enough digits before the point */
    } else {
        snprintf(out, EXO_FIGURE, "%#.*g", digits, value);
    }
    return out;
}

const char *
exo_text_rate(double rate, char out[EXO_FIGURE])
{
    return exo_text_number(rate, 3, out);
}

const char *
exo_text_value(double value, int digits, char out[EXO_FIGURE])
{
    if (!(fabs(value) < 1e15) || value != floor(value))
        return exo_text_number(value, digits, out);
    snprintf(out, EXO_FIGURE, "%.0f", value);
    return out;
}

void
exo_text_add_quoted(exo_text *text, const char *word)
{
    static const char harmless[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,@%+-";
    if (*word && word[strspn(word, harmless)] == '\0') {
        exo_text_add(text, "%s", word);
        return;
    }
    exo_text shown = {0};
    exo_printable_add(&shown, word, strlen(word), EXO_SHOWN_LINE);
    bool plain = !shown.failed && (!*word || strcmp(shown.data, word) == 0);
    exo_free(shown.data);
    if (!plain) {
        exo_text_add(text, "$'");
        for (; *word; word++)
            exo_text_add(text,
                         *word >= ' ' && *word < 0x7f && *word != '\'' && *word != '\\' ? "%c"
                                                                                        : "\\%03o",
                         (unsigned char)*word);
        exo_text_add(text, "'");
        return;
    }
    exo_text_add(text, "'");
    for (; *word; word++) {
        if (*word == '\'')
            exo_text_add(text, "'\\''");
        else
            exo_text_add(text, "%c", *word);
    }
    exo_text_add(text, "'");
}

void
exo_print_path(FILE *out, const char *before, const char *path, const char *after)
{
    exo_text shown = {0};
    exo_printable_add(&shown, path, strlen(path), EXO_SHOWN_LINE);
    fprintf(out, "%s%s%s", before, shown.failed || !shown.data ? "?" : shown.data, after);
    exo_free(shown.data);
}

exo_status
exo_text_read_time(const char *text, const char *what, exo_time *out, exo_err *err)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
    char *end = NULL;
    double number = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++) {
        double seconds = number * units[i].seconds;
        if (strcmp(end, units[i].unit) == 0 && seconds >= 0 && seconds <= 1e9) {
            *out = (exo_time)(seconds * (double)EXO_SECOND);
            return EXO_OK;
        }
    }
    return exo_fail(err, EXO_INVAL, "%s: expected a time such as 90s, 500ms or 5m, got '%.40s'",
                    what, text);
}

exo_status
exo_text_read_resource(const char *text, char *name, size_t size, double *amount, exo_err *err)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    const char *equals = strchr(text, '=');
    char *end = NULL;
    if (!equals || equals == text || (size_t)(equals - text) >= size)
        return exo_fail(err, EXO_INVAL, "'%.60s': expected NAME=AMOUNT", text);
    snprintf(name, size, "%.*s", (int)(equals - text), text);
    double number = strtod(equals + 1, &end), unit = 1;
    for (size_t i = 0; end != equals + 1 && i < sizeof units / sizeof units[0]; i++, unit *= 1024) {
        if (strcmp(end, units[i]) == 0 && number >= 0 && number <= 1e18) {
            *amount = number * unit;
            return EXO_OK;
        }
    }
    return exo_fail(err, EXO_INVAL, "'%.60s': expected an amount such as 4, 0.5 or 16GiB", text);
}
