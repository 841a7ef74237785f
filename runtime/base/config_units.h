/* Amounts as text that exo_config_time, _rate and _bytes read back to the same value. No state. */
#ifndef EXO_BASE_CONFIG_UNITS_H
#define EXO_BASE_CONFIG_UNITS_H

#include <exogym/config.h>

enum {
    EXO_UNIT_TEXT = 48 /* room for one amount */
};

/* "20 ms": in the largest unit in which it is a whole number. Each gives `out`. */
const char *exo_unit_time(exo_time time, char out[EXO_UNIT_TEXT]);
/* "100 Mbit/s", "unlimited" */
const char *exo_unit_rate(double rate, char out[EXO_UNIT_TEXT]);
/* "1 GiB", "12.5 B" */
const char *exo_unit_bytes(double bytes, char out[EXO_UNIT_TEXT]);

/* A number of seconds, to the nanosecond: "600", "0.02". From 0. */
const char *exo_unit_seconds(exo_time time, char out[EXO_UNIT_TEXT]);

/* The shortest text that reads back as the same number. */
const char *exo_unit_number(double value, char out[EXO_UNIT_TEXT]);

/* The shortest text that reads back as the same number when it is rounded to a float. */
const char *exo_unit_float(float value, char out[EXO_UNIT_TEXT]);

/* Are both the same amount, in whichever unit: 20 ms and 0.02 s, 90 % and 0.9? False if one is
 * none. */
bool exo_unit_same(const char *a, const char *b);

/* exo_config_bytes for an amount that is expected, not counted: any number of bytes from 0. */
exo_status exo_config_bytes_expected(exo_config *map, const char *key, double fallback, double *out,
                                     exo_err *err);

#endif
