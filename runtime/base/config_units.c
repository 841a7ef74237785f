/* Amounts with units. No state. Read next: config.c (the other readers). */
#include "base/config_units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/c_locale.h"
#include "base/config_tree.h"

struct unit {
    const char *name;
    uint64_t factor; /* in the unit of the values that readers return */
};

/* A quantity with its units. */
struct quantity {
    const char *what, *example;
    const struct unit *units; /* the smallest first; a NULL name ends the list */
};

#define KI UINT64_C(1024)

static const struct unit time_units[] = {{"ns", 1},
                                         {"us", EXO_US},
                                         {"ms", EXO_MS},
                                         {"s", EXO_SECOND},
                                         {"min", 60 * EXO_SECOND},
                                         {"h", 3600 * EXO_SECOND},
                                         {0}};
static const struct unit rate_units[] = {{"bit/s", 1},
                                         {"kbit/s", 1000},
                                         {"Mbit/s", 1000000},
                                         {"Gbit/s", 1000000000},
                                         {"Tbit/s", 1000000000000},
                                         {"B/s", 8},
                                         {"kB/s", 8000},
                                         {"MB/s", 8000000},
                                         {"GB/s", 8000000000},
                                         {"KiB/s", 8 * KI},
                                         {"MiB/s", 8 * KI *KI},
                                         {"GiB/s", 8 * KI *KI *KI},
                                         {0}};
static const struct unit byte_units[] = {{"B", 1},
                                         {"kB", 1000},
                                         {"MB", 1000000},
                                         {"GB", 1000000000},
                                         {"TB", 1000000000000},
                                         {"KiB", KI},
                                         {"MiB", KI *KI},
                                         {"GiB", KI *KI *KI},
                                         {"TiB", KI *KI *KI *KI},
                                         {0}};

static const struct quantity times = {"a time", "20 ms", time_units};
static const struct quantity rates = {"a rate", "100 Mbit/s", rate_units};
static const struct quantity sizes = {"a size", "16 MiB", byte_units};

/* An amount: `value`, and, if it is an integer that fits, its exact value in `whole`. */
struct amount {
    double value;
    uint64_t whole;
    bool exact;
};

/* --- Reading ---------------------------------------------------------------------------------- */

/* The length of the number at the beginning of `text`: [-+] digits [. digits] [e [-+] digits]. */
static size_t
number_length(const char *text)
{
    const char *at = text + (*text == '-' || *text == '+');
    at += strspn(at, "0123456789");
    if (*at == '.')
        at += 1 + strspn(at + 1, "0123456789");
    if (*at == 'e' || *at == 'E') {
        const char *power = at + 1 + (at[1] == '-' || at[1] == '+');
        size_t digits = strspn(power, "0123456789");
        at = digits > 0 ? power + digits : at;
    }
    return (size_t)(at - text);
}

/* The probable unit of a misspelt rate: Mb/s, Mbps and mbit mean bits, MBps and MB mean bytes.
 * *instead is a second possible unit, or NULL. NULL: no guess. */
static const struct unit *
guess_rate(const char *unit, const char **instead)
{
    static const char *const ends[] = {"it/s", "its/s", "it", "/s", "ps", "it/sec", "/sec", ""};
    size_t prefix = *unit && strchr("kKmMgGtT", *unit) ? 1 : 0;
    bool binary = prefix && strchr("iI", unit[1]) && unit[1] != '\0';
    const char *letter = unit + prefix + (binary ? 1 : 0);
    bool known = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        known = known || (*letter && strcasecmp(letter + 1, ends[i]) == 0);
    if ((*letter != 'b' && *letter != 'B') || !known)
        return NULL;
    bool bits = *letter == 'b' || strncasecmp(letter, "bit", 3) == 0;
    const struct unit *found = NULL;
    *instead = NULL;
    for (const struct unit *u = rate_units; u->name; u++) {
        bool is_bits = strstr(u->name, "bit/s") != NULL,
             is_binary = strchr(u->name, 'i') && !is_bits;
        size_t own =
            strlen(u->name) - (is_bits ? strlen("bit/s") : strlen("B/s")) - (is_binary ? 1 : 0);
        if (own != prefix || (prefix && strncasecmp(u->name, unit, 1) != 0))
            continue;
        if (is_bits == bits && is_binary == (binary && !bits))
            found = u;
        else if (*letter == 'b' && strncasecmp(letter, "bit", 3) != 0 && !is_bits &&
                 is_binary == binary)
            *instead = u->name;
    }
    return found;
}

/* Reports an unknown unit with a suggestion. A wrong suggestion of another size would be worse than
 * none: the case of letters is ignored, but a small b always means bits. */
static exo_status
fail_unit(const exo_config *node, const char *key, const struct quantity *quantity,
          const char *unit, exo_err *err)
{
    char known[EXO_ERR_TEXT / 2] = "";
    size_t used = 0;
    const char *bytes = NULL;
    const struct unit *rate = quantity == &rates ? guess_rate(unit, &bytes) : NULL;
    if (rate && bytes)
        return exo_config_fail(
            node, err,
            "%s: '%.20s' is no unit of a rate; did you mean '%s', in bits, or '%s', in bytes?", key,
            unit, rate->name, bytes);
    if (rate)
        return exo_config_fail(node, err, "%s: '%.20s' is no unit of a rate; did you mean '%s'?",
                               key, unit, rate->name);
    for (const struct unit *u = quantity->units; u->name; u++) {
        if (strcasecmp(unit, u->name) == 0)
            return exo_config_fail(node, err, "%s: '%.20s' is no unit of %s; did you mean '%s'?",
                                   key, unit, quantity->what, u->name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                     u == quantity->units ? ""
                                     : u[1].name          ? ", "
                                                          : " or ",
                                     u->name);
    }
    return exo_config_fail(node, err, "%s: '%.20s' is no unit of %s; expected %s", key, unit,
                           quantity->what, known);
}

static exo_status
fail_quantity(const exo_config *node, const char *key, const struct quantity *quantity,
              exo_err *err)
{
    char expected[80];
    snprintf(expected, sizeof expected, "%s such as %s", quantity->what, quantity->example);
    return exo_config_fail_type(node, key, expected, err);
}

static struct amount
times_factor(const char *number, bool integer, uint64_t factor)
{
    struct amount amount = {.value = exo_config_to_double(number) * (double)factor,
                            .exact = integer};
    for (const char *digit = number + (*number == '+'); integer && *digit; digit++)
        if (*digit == '-' || __builtin_mul_overflow(amount.whole, UINT64_C(10), &amount.whole) ||
            __builtin_add_overflow(amount.whole, (uint64_t)(*digit - '0'), &amount.whole))
            amount.exact = false;
    if (amount.exact && __builtin_mul_overflow(amount.whole, factor, &amount.whole))
        amount.exact = false;
    return amount;
}

static exo_status
fail_small(const exo_config *node, const char *key, exo_err *err)
{
    return exo_config_fail(node, err, "%s: %.40s is too small for a number, and would be 0", key,
                           exo_config_scalar(node));
}

/* Reads the amount under `key`; *node is NULL if the key is missing. */
static exo_status
read_amount(exo_config *map, const char *key, const struct quantity *quantity,
            const exo_config_note *note, exo_config **node, struct amount *out, exo_err *err)
{
    char number[64];
    bool integer = false;
    exo_status st = exo_config_ask_noting(map, key, note, node, err);
    if (st != EXO_OK || !*node)
        return st;
    const char *text = exo_config_scalar(*node);
    size_t length = text ? number_length(text) : 0;
    if (length == 0 || length >= sizeof number)
        return fail_quantity(*node, key, quantity, err);
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    if (!exo_config_is_number(number, &integer))
        return fail_quantity(*node, key, quantity, err);

    const char *unit = text + length + strspn(text + length, " \t");
    if (!*unit && exo_config_to_double(number) == 0) {
        *out = (struct amount){.exact = true};
        return exo_config_vanishes(number, 0) ? fail_small(*node, key, err) : EXO_OK;
    }
    if (!*unit)
        return exo_config_fail(*node, err, "%s: '%.40s' has no unit; expected %s such as %s", key,
                               text, quantity->what, quantity->example);
    for (const struct unit *u = quantity->units; u->name; u++) {
        if (strcmp(u->name, unit) == 0) {
            *out = times_factor(number, integer, u->factor);
            return exo_config_vanishes(number, out->value) ? fail_small(*node, key, err) : EXO_OK;
        }
    }
    return fail_unit(*node, key, quantity, unit, err);
}

static exo_status
fail_range(const exo_config *node, const char *key, bool low, const char *limit, exo_err *err)
{
    return exo_config_fail(node, err, "%s must be at %s %s, got %.40s", key, low ? "least" : "most",
                           limit, exo_config_scalar(node));
}

exo_status
exo_config_time(exo_config *map, const char *key, exo_time fallback, exo_time min, exo_time max,
                exo_time *out, exo_err *err)
{
    exo_config *node = NULL;
    struct amount amount = {0};
    char limit[EXO_UNIT_TEXT];
    const exo_config_note note = {.kind = fallback >= min && fallback <= max ? EXO_NOTE_TIME
                                                                             : EXO_NOTE_NONE,
                                  .time = fallback};
    exo_status st = read_amount(map, key, &times, &note, &node, &amount, err);
    if (st != EXO_OK)
        return st;
    if (!node) {
        *out = fallback;
        return EXO_OK;
    }
    double rounded = rint(amount.value);
    if (rounded == 0 && amount.value != 0)
        return exo_config_fail(node, err, "%s: %.40s would be 0, as a time is in whole ns", key,
                               exo_config_scalar(node));
    if (rounded < (double)min ||
        (amount.exact && amount.whole <= INT64_MAX && (exo_time)amount.whole < min))
        return fail_range(node, key, true, exo_unit_time(min, limit), err);
    if (rounded >= 9.2e18 || rounded > (double)max ||
        (amount.exact && amount.whole > (uint64_t)max))
        return fail_range(node, key, false, exo_unit_time(max, limit), err);
    *out = amount.exact ? (exo_time)amount.whole : (exo_time)rounded;
    return EXO_OK;
}

exo_status
exo_config_rate(exo_config *map, const char *key, double fallback, double min, double max,
                double *out, exo_err *err)
{
    exo_config *node = NULL;
    struct amount amount = {0};
    char limit[EXO_UNIT_TEXT];
    const exo_config_note note = {.kind = fallback >= min && fallback <= max ? EXO_NOTE_RATE
                                                                             : EXO_NOTE_NONE,
                                  .number = fallback};
    exo_status st = exo_config_ask_noting(map, key, &note, &node, err);
    const char *text = st == EXO_OK ? exo_config_scalar(node) : NULL;
    if (text && isinf(max) && strcmp(text, "unlimited") == 0) {
        *out = (double)INFINITY;
        return EXO_OK;
    }
    if (st == EXO_OK)
        st = read_amount(map, key, &rates, &note, &node, &amount, err);
    if (st != EXO_OK)
        return st;
    if (!node) {
        *out = fallback;
        return EXO_OK;
    }
    if (isinf(amount.value))
        return exo_config_fail(node, err, "%s: %.40s is too large for a number", key, text);
    if (amount.value < min)
        return fail_range(node, key, true, exo_unit_rate(min, limit), err);
    if (amount.value > max)
        return fail_range(node, key, false, exo_unit_rate(max, limit), err);
    *out = amount.value;
    return EXO_OK;
}

exo_status
exo_config_bytes(exo_config *map, const char *key, uint64_t fallback, uint64_t min, uint64_t max,
                 uint64_t *out, exo_err *err)
{
    exo_config *node = NULL;
    struct amount amount = {0};
    char limit[EXO_UNIT_TEXT];
    const exo_config_note note = {.kind = fallback >= min && fallback <= max ? EXO_NOTE_U64_BYTES
                                                                             : EXO_NOTE_NONE,
                                  .integer = fallback};
    exo_status st = read_amount(map, key, &sizes, &note, &node, &amount, err);
    if (st != EXO_OK)
        return st;
    if (!node) {
        *out = fallback;
        return EXO_OK;
    }
    if (amount.value < (double)min || (amount.exact && amount.whole < min))
        return fail_range(node, key, true, exo_unit_bytes((double)min, limit), err);
    if (amount.value >= 1.8e19 || amount.value > (double)max ||
        (amount.exact && amount.whole > max))
        return fail_range(node, key, false, exo_unit_bytes((double)max, limit), err);
    if (!amount.exact && amount.value != rint(amount.value))
        return exo_config_fail(node, err, "%s: %.40s is no whole number of bytes", key,
                               exo_config_scalar(node));
    *out = amount.exact ? amount.whole : (uint64_t)amount.value;
    return EXO_OK;
}

exo_status
exo_config_bytes_expected(exo_config *map, const char *key, double fallback, double *out,
                          exo_err *err)
{
    exo_config *node = NULL;
    struct amount amount = {0};
    bool is_valid = fallback >= 0 && fallback <= 1e18;
    const exo_config_note note = {.kind = is_valid ? EXO_NOTE_BYTES : EXO_NOTE_NONE,
                                  .number = fallback};
    exo_status st = read_amount(map, key, &sizes, &note, &node, &amount, err);
    if (st != EXO_OK)
        return st;
    if (node && amount.value < 0)
        return fail_range(node, key, true, "0 B", err);
    if (node && amount.value > 1e18)
        return fail_range(node, key, false, "1e18 B", err);
    *out = node ? amount.value : fallback;
    return EXO_OK;
}

exo_status
exo_config_fraction(exo_config *map, const char *key, double fallback, double min, double max,
                    double *out, exo_err *err)
{
    exo_config *node = NULL;
    char number[64];
    bool integer = false;
    const exo_config_note note = {.kind = fallback >= min && fallback <= max ? EXO_NOTE_DOUBLE
                                                                             : EXO_NOTE_NONE,
                                  .number = fallback};
    exo_status st = exo_config_ask_noting(map, key, &note, &node, err);
    if (st != EXO_OK)
        return st;
    if (!node) {
        *out = fallback;
        return EXO_OK;
    }
    const char *text = exo_config_scalar(node);
    size_t length = text ? number_length(text) : 0;
    const char *unit = text ? text + length + strspn(text + length, " \t") : "";
    bool percent = strcmp(unit, "%") == 0;
    if (length == 0 || length >= sizeof number || (*unit && !percent))
        return exo_config_fail_type(node, key, "a part such as 0.01 or 1 %", err);
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    if (!exo_config_is_number(number, &integer))
        return exo_config_fail_type(node, key, "a part such as 0.01 or 1 %", err);
    double value = exo_config_to_double(number) / (percent ? 100 : 1);
    if (exo_config_vanishes(number, value))
        return fail_small(node, key, err);
    if (value < min)
        return exo_config_fail(node, err, "%s must be at least %g, got %.40s", key, min, text);
    if (value > max)
        return exo_config_fail(node, err, "%s must be at most %g, got %.40s", key, max, text);
    *out = value;
    return EXO_OK;
}

/* --- Comparing -------------------------------------------------------------------------------- */

/* The unit at the end of `text`; *number gets the number before it. NULL: the text is no amount. */
static const char *
split_amount(const char *text, char number[64])
{
    bool integer = false;
    size_t length = number_length(text);
    if (length == 0 || length >= 64)
        return NULL;
    snprintf(number, 64, "%.*s", (int)length, text);
    return exo_config_is_number(number, &integer) ? text + length + strspn(text + length, " \t")
                                                  : NULL;
}

static bool
amount_of(const char *text, const struct unit *units, struct amount *out)
{
    char number[64];
    bool integer = false;
    const char *unit = split_amount(text, number);
    if (!unit)
        return false;
    exo_config_is_number(number, &integer);
    if (!*unit && exo_config_to_double(number) == 0) {
        *out = (struct amount){.exact = true};
        return true;
    }
    for (const struct unit *u = units; u->name; u++) {
        if (strcmp(u->name, unit) == 0) {
            *out = times_factor(number, integer, u->factor);
            return true;
        }
    }
    return false;
}

static bool
fraction_of(const char *text, double *out, bool *percent)
{
    char number[64];
    const char *unit = split_amount(text, number);
    if (!unit || (*unit && strcmp(unit, "%") != 0))
        return false;
    *percent = *unit != '\0';
    *out = exo_config_to_double(number) / (*percent ? 100 : 1);
    return true;
}

double
exo_unit_value(const char *text)
{
    const struct unit *const all[] = {time_units, rate_units, byte_units};
    struct amount amount;
    double part;
    bool percent;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (amount_of(text, all[i], &amount))
            return amount.exact           ? (double)amount.whole
                   : all[i] == time_units ? rint(amount.value)
                                          : amount.value;
    return fraction_of(text, &part, &percent) ? part : (double)NAN;
}

bool
exo_unit_same(const char *a, const char *b)
{
    const struct unit *const all[] = {time_units, rate_units, byte_units};
    double parts[2];
    bool percent[2];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct amount x, y;
        if (!amount_of(a, all[i], &x) || !amount_of(b, all[i], &y))
            continue;
        if (all[i] == time_units) /* times are read in whole nanoseconds */
            return x.exact && y.exact ? x.whole == y.whole : rint(x.value) == rint(y.value);
        return x.exact && y.exact ? x.whole == y.whole : x.value == y.value;
    }
    return fraction_of(a, &parts[0], &percent[0]) && fraction_of(b, &parts[1], &percent[1]) &&
           (percent[0] || percent[1]) && parts[0] == parts[1];
}

/* --- Writing ---------------------------------------------------------------------------------- */

const char *
exo_unit_time(exo_time time, char out[EXO_UNIT_TEXT])
{
    const struct unit *best = &time_units[0];
    uint64_t whole = time < 0 ? 0 : (uint64_t)time;
    for (const struct unit *u = best; u->name && strcmp(u->name, "min") != 0; u++)
        if (whole % u->factor == 0)
            best = u;
    /* 90 s, but 2 min and 3 h */
    for (const struct unit *u = best; whole > 0 && u->name; u++)
        if (whole % u->factor == 0)
            best = u;
    if (whole == 0)
        best = &time_units[3];
    snprintf(out, EXO_UNIT_TEXT, "%" PRIu64 " %s", whole / best->factor, best->name);
    return out;
}

const char *
exo_unit_seconds(exo_time time, char out[EXO_UNIT_TEXT])
{
    int length = snprintf(out, EXO_UNIT_TEXT, "%" PRId64 ".%09" PRId64,
                          (int64_t)(time / EXO_SECOND), (int64_t)(time % EXO_SECOND));
    while (out[length - 1] == '0')
        out[--length] = '\0';
    if (out[length - 1] == '.')
        out[--length] = '\0';
    return out;
}

const char *
exo_unit_number(double value, char out[EXO_UNIT_TEXT])
{
    if (fabs(value) < 1e15 && value == rint(value)) {
        exo_c_snprintf(out, EXO_UNIT_TEXT, "%.0f", value);
        return out;
    }
    for (int digits = 1; digits <= 17; digits++) {
        exo_c_snprintf(out, EXO_UNIT_TEXT, "%.*g", digits, value);
        if (exo_config_to_double(out) == value)
            break;
    }
    return out;
}

const char *
exo_unit_float(float value, char out[EXO_UNIT_TEXT])
{
    for (int digits = 1; digits <= 9; digits++) {
        exo_c_snprintf(out, EXO_UNIT_TEXT, "%.*g", digits, (double)value);
        if ((float)exo_config_to_double(out) == value)
            break;
    }
    return out;
}

const char *
exo_unit_rate(double rate, char out[EXO_UNIT_TEXT])
{
    char number[EXO_UNIT_TEXT];
    const struct unit *best = &rate_units[0];
    if (isinf(rate)) {
        snprintf(out, EXO_UNIT_TEXT, "unlimited");
        return out;
    }
    for (const struct unit *u = best; strcmp(u->name, "B/s") != 0; u++)
        if (rate >= (double)u->factor && rate / (double)u->factor * (double)u->factor == rate)
            best = u;
    exo_unit_number(rate / (double)best->factor, number);
    if (exo_config_to_double(number) * (double)best->factor != rate) {
        best = &rate_units[0];
        exo_unit_number(rate, number);
    }
    snprintf(out, EXO_UNIT_TEXT, "%.30s %s", number, best->name);
    return out;
}

const char *
exo_unit_bytes(double bytes, char out[EXO_UNIT_TEXT])
{
    static const struct unit binary[] = {
        {"B", 1}, {"KiB", KI}, {"MiB", KI * KI}, {"GiB", KI * KI * KI}, {0}};
    char number[EXO_UNIT_TEXT];
    const struct unit *best = &binary[0];
    for (const struct unit *u = best; u->name; u++)
        if (bytes > 0 && fmod(bytes, (double)u->factor) == 0)
            best = u;
    exo_unit_number(bytes / (double)best->factor, number);
    snprintf(out, EXO_UNIT_TEXT, "%.30s %s", number, best->name);
    return out;
}
