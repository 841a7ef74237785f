/* Amounts as text that exo_config_time, _rate and _bytes read back as the same value. No state. */
#ifndef EXO_BASE_CONFIG_UNITS_H
#define EXO_BASE_CONFIG_UNITS_H

#include <exogym/config.h>

enum {
    EXO_UNIT_TEXT = 48 /* room for one amount */
};

/* Writes a time in the largest unit that gives a whole number: "20 ms". This and the next functions
 * return `out`. */
const char *exo_unit_time(exo_time time, char out[EXO_UNIT_TEXT]);
/* Writes a rate: "100 Mbit/s", "unlimited". */
const char *exo_unit_rate(double rate, char out[EXO_UNIT_TEXT]);
/* Writes a size: "1 GiB", "12.5 B". */
const char *exo_unit_bytes(double bytes, char out[EXO_UNIT_TEXT]);

/* Writes a time of 0 or more as a number of seconds, to the nanosecond: "600", "0.02". */
const char *exo_unit_seconds(exo_time time, char out[EXO_UNIT_TEXT]);

/* Writes the shortest text that reads back as the same number. */
const char *exo_unit_number(double value, char out[EXO_UNIT_TEXT]);

/* Writes the shortest text that, rounded to a float, reads back as the same number. */
const char *exo_unit_float(float value, char out[EXO_UNIT_TEXT]);

/* Whether both texts are the same amount in any units, such as 20 ms and 0.02 s, or 90 % and 0.9.
 * False if one is no amount. */
bool exo_unit_same(const char *a, const char *b);

/* The number that an amount in any unit, or a number alone, stands for: seconds are nanoseconds, and
 * percent hundredths. Texts that exo_unit_same calls the same have the same number. NaN: no amount. */
double exo_unit_value(const char *text);

/* exo_config_bytes for an expected size, which may be any real number from 0. */
exo_status exo_config_bytes_expected(exo_config *map, const char *key, double fallback, double *out,
                                     exo_err *err);

#endif
