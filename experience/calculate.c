/* Arithmetic in texts: see calculate.h. One function for each rule of the grammar. */
#include "experience/calculate.h"

#include <math.h>

enum {
    MAX_DEPTH = 64
};

struct reader {
    const char *at, *end;
    int depth;
    bool good;
};

static double sum(struct reader *r);

/* The next character that is no space; 0 at the end. */
static char
peek(struct reader *r)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static double
number(struct reader *r)
{
    double value = 0, unit = 1;
    r->good = r->good && is_digit(peek(r));
    for (; r->at < r->end && is_digit(*r->at); r->at++)
        value = 10 * value + (*r->at - '0');
    if (r->at + 1 < r->end && *r->at == '.' && is_digit(r->at[1]))
        for (r->at++; r->at < r->end && is_digit(*r->at); r->at++) {
            value = 10 * value + (*r->at - '0');
            unit *= 10;
        }
    return value / unit;
}

static double
factor(struct reader *r)
{
    double value;
    char c = peek(r);
    if (c != '-' && c != '(')
        return number(r);
    r->at++;
    r->good = r->good && ++r->depth < MAX_DEPTH;
    if (!r->good)
        return 0;
    if (c == '-') {
        value = -factor(r);
    } else {
        value = sum(r);
        r->good = r->good && peek(r) == ')';
        r->at += r->good;
    }
    r->depth--;
    return value;
}

static double
product(struct reader *r)
{
    double value = factor(r);
    for (char c; r->good && ((c = peek(r)) == '*' || c == '/');) {
        r->at++;
        double next = factor(r);
        value = c == '*' ? value * next : value / next;
    }
    return value;
}

static double
sum(struct reader *r)
{
    double value = product(r);
    for (char c; r->good && ((c = peek(r)) == '+' || c == '-');) {
        r->at++;
        double next = product(r);
        value += c == '+' ? next : -next;
    }
    return value;
}

bool
exo_calculate(const char *text, size_t size, double *value)
{
    struct reader r = {.at = text, .end = text + size, .good = true};
    *value = sum(&r);
    return r.good && peek(&r) == '\0' && r.at == r.end && isfinite(*value);
}

bool
exo_last_number(const char *text, size_t size, double *value)
{
    size_t end = size;
    while (end > 0 && !is_digit(text[end - 1]))
        end--;
    size_t first = end;
    while (first > 0 && (is_digit(text[first - 1]) ||
                         (text[first - 1] == '.' && first > 1 && is_digit(text[first - 2]))))
        first--;
    first -= first > 0 && first < end && text[first - 1] == '-';
    return end > 0 && exo_calculate(text + first, end - first, value);
}
