/* Amounts with units: accepted and refused texts, and written amounts that read back the same. The
 * tests have no shared state. Read next: runtime/base/config_units.h. */
#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "base/config_units.h"

#define HOUR (3600 * EXO_SECOND)

enum kind {
    TIME,  /* 1 ns to 24 h */
    RATE,  /* from 1 bit/s */
    BYTES, /* 1 B to 1 TiB */
    FRACTION
};

static exo_status
read_as(enum kind kind, const char *text, double *out, exo_err *err)
{
    char yaml[128];
    exo_config_doc *doc = NULL;
    exo_time time = -7;
    uint64_t bytes = 7;
    snprintf(yaml, sizeof yaml, "k: %s", text);
    cr_assert_eq(exo_config_parse(&doc, "j", yaml, err), EXO_OK, "%s", err->text);
    exo_config *root = exo_config_root(doc);
    exo_status st = kind == TIME   ? exo_config_time(root, "k", 5, 1, 24 * HOUR, &time, err)
                    : kind == RATE ? exo_config_rate(root, "k", 5, 1, (double)INFINITY, out, err)
                    : kind == BYTES
                        ? exo_config_bytes(root, "k", 5, 1, UINT64_C(1) << 40, &bytes, err)
                        : exo_config_fraction(root, "k", 0.5, 0, 0.9, out, err);
    if (kind == TIME)
        *out = (double)time;
    if (kind == BYTES)
        *out = (double)bytes;
    exo_config_free(&doc);
    return st;
}

Test(config_units, amounts_are_read)
{
    static const struct {
        enum kind kind;
        const char *text;
        double value;
    } cases[] = {
        {TIME, "20 ms", 20e6},
        {TIME, "20ms", 20e6},
        {TIME, "\"20 ms\"", 20e6},
        {TIME, "1 ns", 1},
        {TIME, "3 us", 3e3},
        {TIME, "1.1 ms", 1.1e6},
        {TIME, "0.1 s", 1e8},
        {TIME, "1e3 s", 1e12},
        {TIME, "2 min", 120e9},
        {TIME, "24 h", 86400e9},
        {RATE, "100 Mbit/s", 100e6},
        {RATE, "56 kbit/s", 56e3},
        {RATE, "1 bit/s", 1},
        {RATE, "2.5 Gbit/s", 2.5e9},
        {RATE, "1 Tbit/s", 1e12},
        {RATE, "1 B/s", 8},
        {RATE, "1 kB/s", 8e3},
        {RATE, "1 MB/s", 8e6},
        {RATE, "1 GB/s", 8e9},
        {RATE, "1 KiB/s", 8192},
        {RATE, "1 MiB/s", 8388608},
        {RATE, "1 GiB/s", 8589934592},
        {RATE, "unlimited", (double)INFINITY},
        {BYTES, "1 B", 1},
        {BYTES, "1.5 KiB", 1536},
        {BYTES, "2 kB", 2000},
        {BYTES, "1 MB", 1e6},
        {BYTES, "1 GB", 1e9},
        {BYTES, "1 TB", 1e12},
        {BYTES, "1 MiB", 1048576},
        {BYTES, "1 GiB", 1073741824},
        {BYTES, "1 TiB", 1099511627776},
        {FRACTION, "0.01", 0.01},
        {FRACTION, "1 %", 0.01},
        {FRACTION, "50%", 0.5},
        {FRACTION, "0", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        double value = -1;
        cr_expect_eq(read_as(cases[i].kind, cases[i].text, &value, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(value, cases[i].value, "%s: %g", cases[i].text, value);
    }
}

Test(config_units, a_missing_key_is_the_default)
{
    exo_config_doc *doc = NULL;
    exo_time time = 0;
    uint64_t bytes = 0;
    double rate = 0, part = 0;
    cr_assert_eq(exo_config_parse(&doc, "j", "{}", NULL), EXO_OK);
    exo_config *root = exo_config_root(doc);
    cr_expect_eq(exo_config_time(root, "k", 5, 1, 9, &time, NULL), EXO_OK);
    cr_expect_eq(exo_config_rate(root, "k", 6, 1, 9, &rate, NULL), EXO_OK);
    cr_expect_eq(exo_config_bytes(root, "k", 7, 1, 9, &bytes, NULL), EXO_OK);
    cr_expect_eq(exo_config_fraction(root, "k", 0.8, 0, 1, &part, NULL), EXO_OK);
    cr_expect(time == 5 && rate == 6 && bytes == 7 && part == 0.8);
    exo_config_free(&doc);
}

Test(config_units, mistakes_are_named)
{
    static const struct {
        enum kind kind;
        const char *text, *message;
    } cases[] = {
        {TIME, "20", "j:1:4: k: '20' has no unit; expected a time such as 20 ms"},
        {TIME, "soon", "j:1:4: k: expected a time such as 20 ms, got 'soon'"},
        {TIME, "", "j:1:1: k: expected a time such as 20 ms, got nothing"},
        {TIME, "[1 s]", "j:1:4: k: expected a time such as 20 ms, got a list"},
        {TIME, "-- s", "j:1:4: k: expected a time such as 20 ms, got '-- s'"},
        {TIME, "1 sec", "j:1:4: k: 'sec' is no unit of a time; expected ns, us, ms, s, min or h"},
        {TIME, "1 S", "j:1:4: k: 'S' is no unit of a time; did you mean 's'?"},
        {TIME, "1 ms s", "j:1:4: k: 'ms s' is no unit of a time; expected ns, us, ms, s, min or h"},
        {TIME, "0", "j:1:4: k must be at least 1 ns, got 0"},
        {TIME, "-5 ms", "j:1:4: k must be at least 1 ns, got -5 ms"},
        {TIME, "25 h", "j:1:4: k must be at most 24 h, got 25 h"},
        {TIME, "99999999999999999999 h",
         "j:1:4: k must be at most 24 h, got 99999999999999999999 h"},
        {TIME, "1e999 h", "j:1:4: k must be at most 24 h, got 1e999 h"},
        {RATE, "100", "j:1:4: k: '100' has no unit; expected a rate such as 100 Mbit/s"},
        {RATE, "1 Mb/s",
         "j:1:4: k: 'Mb/s' is no unit of a rate; did you mean 'Mbit/s', in bits, or 'MB/s', in "
         "bytes?"},
        {RATE, "1 gB/s", "j:1:4: k: 'gB/s' is no unit of a rate; did you mean 'GB/s'?"},
        {RATE, "1 furlong/s",
         "j:1:4: k: 'furlong/s' is no unit of a rate; expected bit/s, kbit/s, Mbit/s, Gbit/s, "
         "Tbit/s, B/s, kB/s, MB/s, "
         "GB/s, KiB/s, MiB/s or GiB/s"},
        {RATE, "1 mbit/s", "j:1:4: k: 'mbit/s' is no unit of a rate; did you mean 'Mbit/s'?"},
        {RATE, "1 Mbps",
         "j:1:4: k: 'Mbps' is no unit of a rate; did you mean 'Mbit/s', in bits, or 'MB/s', in "
         "bytes?"},
        {RATE, "0.5 bit/s", "j:1:4: k must be at least 1 bit/s, got 0.5 bit/s"},
        {TIME, "0.4 ns", "j:1:4: k: 0.4 ns would be 0, as a time is in whole ns"},
        {TIME, "1e-400 s", "j:1:4: k: 1e-400 s is too small for a number, and would be 0"},
        {BYTES, "1e-400", "j:1:4: k: 1e-400 is too small for a number, and would be 0"},
        {FRACTION, "1e-323 %", "j:1:4: k: 1e-323 % is too small for a number, and would be 0"},
        {RATE, "1e999 bit/s", "j:1:4: k: 1e999 bit/s is too large for a number"},
        {BYTES, "100", "j:1:4: k: '100' has no unit; expected a size such as 16 MiB"},
        {BYTES, "1.5 B", "j:1:4: k: 1.5 B is no whole number of bytes"},
        {BYTES, "2 TiB", "j:1:4: k must be at most 1024 GiB, got 2 TiB"},
        {BYTES, "1 ms",
         "j:1:4: k: 'ms' is no unit of a size; expected B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"},
        {FRACTION, "95 %", "j:1:4: k must be at most 0.9, got 95 %"},
        {FRACTION, "-1 %", "j:1:4: k must be at least 0, got -1 %"},
        {FRACTION, "1 ms", "j:1:4: k: expected a part such as 0.01 or 1 %, got '1 ms'"},
        {FRACTION, "{}", "j:1:4: k: expected a part such as 0.01 or 1 %, got a mapping"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        double value = 0;
        cr_expect_eq(read_as(cases[i].kind, cases[i].text, &value, &err), EXO_INVAL, "accepted: %s",
                     cases[i].text);
        cr_expect_str_eq(err.text, cases[i].message);
    }
}

static void
expect_time_text(exo_time time, const char *text)
{
    char out[EXO_UNIT_TEXT];
    cr_expect_str_eq(exo_unit_time(time, out), text);
}

Test(config_units, amounts_are_written_as_people_do)
{
    char out[EXO_UNIT_TEXT];
    expect_time_text(0, "0 s");
    expect_time_text(1, "1 ns");
    expect_time_text(20 * EXO_MS, "20 ms");
    expect_time_text(1500 * EXO_US, "1500 us");
    expect_time_text(90 * EXO_SECOND, "90 s");
    expect_time_text(120 * EXO_SECOND, "2 min");
    expect_time_text(2 * HOUR, "2 h");
    cr_expect_str_eq(exo_unit_rate(100e6, out), "100 Mbit/s");
    cr_expect_str_eq(exo_unit_rate(2.5e9, out), "2.5 Gbit/s");
    cr_expect_str_eq(exo_unit_rate((double)INFINITY, out), "unlimited");
    cr_expect_str_eq(exo_unit_bytes(1073741824, out), "1 GiB");
    cr_expect_str_eq(exo_unit_bytes(0, out), "0 B");
    cr_expect_str_eq(exo_unit_bytes(12.5, out), "12.5 B");
}

Test(config_units, what_is_written_reads_back_the_same)
{
    uint32_t random[4];
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (uint32_t i = 0; i < 3000; i++) {
        exo_err err = {0};
        char text[EXO_UNIT_TEXT];
        double value = 0;
        exo_rng_block(&rng, i, random);
        exo_time time =
            (exo_time)(((uint64_t)random[0] << 32 | random[1]) % (uint64_t)(24 * HOUR)) + 1;
        time = time / (i % 3 == 0 ? EXO_MS : 1) * (i % 3 == 0 ? EXO_MS : 1) + (i % 3 == 0);
        cr_expect_eq(read_as(TIME, exo_unit_time(time, text), &value, &err), EXO_OK, "%s",
                     err.text);
        cr_expect_eq((exo_time)value, time, "%s", text);

        double rate = (double)random[2] * pow(10, (double)(i % 5)) + 1 + (i % 7 == 0 ? 1.0 / 3 : 0);
        cr_expect_eq(read_as(RATE, exo_unit_rate(rate, text), &value, &err), EXO_OK, "%s",
                     err.text);
        cr_expect_eq(value, rate, "%s", text);

        double bytes = (double)(random[3] % 1000000 + 1) * (i % 4 == 0 ? 1024 : 1);
        cr_expect_eq(read_as(BYTES, exo_unit_bytes(bytes, text), &value, &err), EXO_OK, "%s",
                     err.text);
        cr_expect_eq(value, bytes, "%s", text);
    }
}
