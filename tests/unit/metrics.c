/* The files of a run: exact CSV, the same after a resume, whole rows only, and event files that a
 * decoder written from the formats' documents reads back. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/meter_json.h"
#include "report/metrics.h"
#include "report/tfevents.h"
#include "support/logged.h"

struct logged logged = LOGGED_NONE;

static char folder[256];

static void
make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/exogym_metrics_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void
remove_folder(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(metrics, .init = make_folder, .fini = remove_folder);

static const char *
in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static size_t
read_file(const char *name, char *out, size_t size)
{
    FILE *file = fopen(in_folder(name), "rb");
    if (!file)
        return 0;
    size_t got = fread(out, 1, size - 1, file);
    out[got] = '\0';
    fclose(file);
    return got;
}

static void
write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "wb");
    cr_assert_not_null(file);
    cr_assert_geq(fputs(text, file), 0);
    fclose(file);
}

static void
expect_file(const char *name, const char *text)
{
    char got[4096] = "";
    read_file(name, got, sizeof got);
    cr_expect_str_eq(got, text);
}

static exo_metrics *
open_metrics(bool resume, uint64_t step)
{
    exo_metrics *m = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_metrics_open(&m, folder, resume, step, &err), EXO_OK, "%s", err.text);
    return m;
}

/* Steps [first, last] of a run that evaluates every second step. */
static void
log_steps(exo_metrics *m, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++) {
        double loss = 2.0 / (double)(step + 1);
        cr_assert_eq(exo_metrics_train(m, step, step * 1024, loss, 3e-4, NULL), EXO_OK);
        if (step % 2 == 0) {
            exo_eval_row row = {step, 0.5 * (double)step, step * 100, loss, loss / 2, 0.5, 0.75};
            cr_assert_eq(exo_metrics_validation(m, &row, NULL), EXO_OK);
            cr_assert_eq(exo_metrics_correlation(m, step, 1.0 / (double)(step + 1), NULL), EXO_OK);
        }
    }
    cr_assert_eq(exo_metrics_flush(m, NULL), EXO_OK);
}

Test(metrics, rows_have_the_columns_of_exo_gym)
{
    exo_metrics *m = open_metrics(false, 0);
    cr_expect_eq(exo_metrics_train(m, 1, 1024, 0.5, 3e-4, NULL), EXO_OK);
    exo_eval_row row = {0, 1.25, 123456789012, 1, 0, NAN, 0.125};
    cr_expect_eq(exo_metrics_validation(m, &row, NULL), EXO_OK);
    expect_file(
        "train.csv",
        "step,examples_trained,train_loss,train_perplexity,lr\n1,1024,0.5,1.64872127,0.0003\n");
    expect_file(
        "validation.csv",
        "step,local_loss,local_perplexity,global_loss,global_perplexity\n0,1,2.71828183,0,1\n");
    expect_file("metrics.csv",
                "step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy\n"
                "0,1.250,123456789012,1,0,nan,0.125\n");
    cr_expect_neq(access(in_folder("correlation.csv"), F_OK), 0, "not asked for");
    cr_expect_eq(exo_metrics_correlation(m, 7, 0.5, NULL), EXO_OK);
    expect_file("correlation.csv", "step,avg_correlation\n7,0.5\n");
    exo_metrics_close(&m);
    cr_expect_null(m);
}

Test(metrics, a_fresh_run_replaces_an_old_one)
{
    exo_metrics *m = open_metrics(false, 0);
    log_steps(m, 0, 4);
    exo_metrics_close(&m);
    write_file("events.out.tfevents.1.other.exogym", "old");
    write_file("events.out.tfevents.1.other", "not ours");
    m = open_metrics(false, 0);
    exo_metrics_close(&m);
    expect_file("train.csv", "step,examples_trained,train_loss,train_perplexity,lr\n");
    cr_expect_neq(access(in_folder("correlation.csv"), F_OK), 0);
    cr_expect_neq(access(in_folder("events.out.tfevents.1.other.exogym"), F_OK), 0);
    expect_file("events.out.tfevents.1.other", "not ours");
}

Test(metrics, a_resumed_run_ends_with_the_same_files)
{
    static const char *const names[] = {"train.csv", "validation.csv", "metrics.csv",
                                        "correlation.csv"};
    char whole[4][4096];
    exo_metrics *m = open_metrics(false, 0);
    log_steps(m, 0, 20);
    exo_metrics_close(&m);
    for (int i = 0; i < 4; i++)
        cr_assert_gt(read_file(names[i], whole[i], sizeof whole[i]), 0);

    /* Killed at each step since the checkpoint of step 8; resumed with that step's own figures
     * computed again. */
    for (uint64_t killed = 8; killed <= 20; killed++) {
        m = open_metrics(false, 0);
        log_steps(m, 0, killed);
        exo_metrics_close(&m);
        m = open_metrics(true, 8);
        log_steps(m, 8, 20);
        exo_metrics_close(&m);
        for (int i = 0; i < 4; i++)
            expect_file(names[i], whole[i]);
    }
}

Test(metrics, a_file_cut_at_any_byte_is_mended)
{
    char whole[4096], cut[4096];
    exo_metrics *m = open_metrics(false, 0);
    log_steps(m, 0, 6);
    exo_metrics_close(&m);
    size_t size = read_file("train.csv", whole, sizeof whole);
    logged_begin(); /* each is said to be damaged */
    for (size_t length = 0; length <= size; length++) {
        memcpy(cut, whole, length);
        cut[length] = '\0';
        write_file("train.csv", cut);
        m = open_metrics(true, UINT64_MAX);
        uint64_t next = 0;
        read_file("train.csv", cut, sizeof cut);
        for (const char *c = cut; *c; c++)
            next += *c == '\n';
        log_steps(m, next - 1, 6); /* one line is the header */
        exo_metrics_close(&m);
        expect_file("train.csv", whole);
    }
    logged_end();
}

/* What the files say is all there is: a run that goes on cannot compute them again. */
Test(metrics, rows_that_are_lost_are_told_of)
{
    static const struct {
        const char *file, *text, *said; /* NULL: nothing is lost */
    } cases[] = {
        {"train.csv", NULL, "rows after step 0, up to step 4, are lost"},
        {"train.csv", "", "rows after step 0, up to step 4, are lost"},
        {"train.csv", "1,1024,1,3,3e-4\n2,2048,1,3,3e-4\n",
         "rows after step 2, up to step 4, are lost"},
        {"train.csv", "1,1024,1,3,3e-4\nx,2048,1,3,3e-4\n3,9,1,3,1\n4,9,1,3,1\n",
         "rows after step 1, up to step 4, are lost"},
        {"train.csv", "1,1024,1,3,3e-4\n1,1024,1,3,3e-4\n3,9,1,3,1\n4,9,1,3,1\n",
         "rows after step 1, up to step 4, are lost"},
        {"validation.csv", NULL, "rows after step 0, up to step 4, are lost"},
        {"validation.csv", "0,1,1,1,1\n2;1,1,1,1\n4,1,1,1,1\n",
         "rows after step 0, up to step 4, are lost"},
        {"metrics.csv", "0,1,1,1,1\n2,1,1,1,1\n\n4,1,1,1,1\n",
         "rows after step 2, up to step 4, are lost"},
        {"validation.csv", "0,1,1,1,1\n", NULL}, /* as other intervals leave it */
        {"validation.csv", "0,1,1,1,1\n2,1,", "rows after step 0, up to step 4, are lost"},
        {"validation.csv", "0,1,1,1,1\n5,1,", NULL}, /* a kill */
        {"validation.csv", "0,1,1,1,1\n4", NULL},    /* 4 or 40: a kill, perhaps */
        {"train.csv", "1,9,1,3,1\n2,9,1,3,1\n3,9,1,3,1\n4,9,1,3,1\n5,9,1\nx\n", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[256], text[512] = "";
        exo_metrics *m = open_metrics(false, 0);
        exo_metrics_close(&m);
        read_file(cases[i].file, header, sizeof header);
        m = open_metrics(false, 0);
        log_steps(m, 1, 6);
        exo_metrics_close(&m);
        if (cases[i].text && *cases[i].text)
            snprintf(text, sizeof text, "%s%s", header, cases[i].text);
        if (cases[i].text)
            write_file(cases[i].file, text);
        else
            unlink(in_folder(cases[i].file));
        logged.length = 0;
        logged.text[0] = '\0';
        logged_begin();
        m = open_metrics(true, 4);
        exo_metrics_close(&m);
        logged_end();
        if (cases[i].said)
            cr_expect(logged_has(cases[i].said) && logged_has(cases[i].file), "case %zu: '%s'", i,
                      logged_text());
        else
            cr_expect_eq(logged_text()[0], 0, "case %zu: '%s'", i, logged_text());
    }
}

Test(metrics, a_foreign_file_is_left_alone)
{
    write_file("train.csv", "epoch,loss\n1,2\n");
    exo_metrics *m = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_metrics_open(&m, folder, true, 3, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "train.csv: the first line should be 'step,examples_trained,"), "%s",
              err.text);
    cr_expect_null(m);
    expect_file("train.csv", "epoch,loss\n1,2\n");
}

Test(metrics, folders_are_made_and_failures_named)
{
    char deep[300], message[400];
    exo_metrics *m = NULL;
    exo_err err = {0};
    snprintf(deep, sizeof deep, "%s/a/b/c", folder);
    cr_expect_eq(exo_metrics_open(&m, deep, false, 0, &err), EXO_OK, "%s", err.text);
    exo_metrics_close(&m);
    snprintf(deep, sizeof deep, "%s/a/b/c/train.csv/d", folder);
    cr_expect_eq(exo_metrics_open(&m, deep, false, 0, &err), EXO_IO);
    snprintf(message, sizeof message, "%s/a/b/c/train.csv: is there and is no folder", folder);
    cr_expect_str_eq(err.text, message);
}

Test(metrics, a_full_disk_leaves_whole_rows)
{
    exo_metrics *m = open_metrics(false, 0);
    exo_err err = {0};
    char before[4096], after[4096], message[400];
    cr_assert_eq(exo_metrics_train(m, 0, 0, 0.5, 3e-4, NULL), EXO_OK);
    size_t size = read_file("train.csv", before, sizeof before);

    /* The "disk" ends in the middle of the next row. */
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){size + 5, RLIM_INFINITY}), 0);
    cr_expect_eq(exo_metrics_train(m, 1, 1024, 0.5, 3e-4, &err), EXO_IO);
    snprintf(message, sizeof message, "cannot write '%s/train.csv': %s", folder, strerror(EFBIG));
    cr_expect_str_eq(err.text, message);
    read_file("train.csv", after, sizeof after);
    cr_expect_str_eq(after, before);

    /* Room again: the row that failed can be written. */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), 0);
    cr_expect_eq(exo_metrics_train(m, 1, 1024, 0.5, 3e-4, &err), EXO_OK);
    exo_metrics_close(&m);
}

/* --- A decoder of event files, from TensorFlow's record_writer.h, event.proto and summary.proto */

struct decoded {
    double time;
    uint64_t step;
    char version[32];
    unsigned session_status;
    struct {
        char tag[64], description[64];
        float value;
        double num, sum, limits[8], buckets[8]; /* of a histogram */
    } scalars[8];
    size_t num_scalars;
};

static uint64_t
little_endian(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

static uint64_t
varint(const uint8_t **p)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*p)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
}

/* The next field of a message; `*bytes` and `*value` by wire type. */
static unsigned
next_field(const uint8_t **p, const uint8_t **bytes, uint64_t *value)
{
    uint64_t key = varint(p);
    switch (key & 7) {
    case 0:
        *value = varint(p);
        break;
    case 1:
        *value = little_endian(*p, 8);
        *p += 8;
        break;
    case 2:
        *value = varint(p);
        *bytes = *p;
        *p += *value;
        break;
    case 5:
        *value = little_endian(*p, 4);
        *p += 4;
        break;
    default:
        cr_assert_fail("wire type %u", (unsigned)(key & 7));
    }
    return (unsigned)(key >> 3);
}

/* HistogramProto; its least and largest values are not looked at. */
static void
decode_histogram(const uint8_t *p, const uint8_t *end, struct decoded *out, size_t i)
{
    const uint8_t *bytes = NULL;
    uint64_t value = 0;
    while (p < end) {
        unsigned field = next_field(&p, &bytes, &value);
        double *lists[] = {out->scalars[i].limits, out->scalars[i].buckets};
        if (field == 3)
            memcpy(&out->scalars[i].num, &value, sizeof value);
        else if (field == 4)
            memcpy(&out->scalars[i].sum, &value, sizeof value);
        else if (field >= 6) {
            cr_assert_leq(field, 7);
            cr_assert_leq(value, sizeof out->scalars[i].limits);
            memcpy(lists[field - 6], bytes, value); /* a little-endian host */
        }
    }
}

static void
decode_value(const uint8_t *p, const uint8_t *end, struct decoded *out)
{
    const uint8_t *bytes = NULL, *inner = NULL;
    uint64_t value = 0;
    size_t i = out->num_scalars++;
    while (p < end) {
        switch (next_field(&p, &bytes, &value)) {
        case 1:
            cr_assert_lt(value, sizeof out->scalars[i].tag);
            memcpy(out->scalars[i].tag, bytes, value);
            break;
        case 2: {
            uint32_t bits = (uint32_t)value;
            memcpy(&out->scalars[i].value, &bits, sizeof bits);
            break;
        }
        case 5:
            decode_histogram(bytes, bytes + value, out, i);
            break;
        case 9: /* SummaryMetadata: summary_description = 3 */
            inner = bytes;
            cr_assert_eq(next_field(&inner, &bytes, &value), 3);
            cr_assert_lt(value, sizeof out->scalars[i].description);
            memcpy(out->scalars[i].description, bytes, value);
            break;
        default:
            cr_assert_fail("unknown field of Summary.Value");
        }
    }
}

static void
decode_event(const uint8_t *p, const uint8_t *end, struct decoded *out)
{
    const uint8_t *bytes = NULL;
    uint64_t value = 0;
    memset(out, 0, sizeof *out);
    while (p < end) {
        switch (next_field(&p, &bytes, &value)) {
        case 1:
            memcpy(&out->time, &value, sizeof value);
            break;
        case 2:
            out->step = value;
            break;
        case 3:
            cr_assert_lt(value, sizeof out->version);
            memcpy(out->version, bytes, value);
            break;
        case 5:
            for (const uint8_t *s = bytes, *s_end = bytes + value; s < s_end;) {
                cr_assert_eq(next_field(&s, &bytes, &value), 1);
                decode_value(bytes, bytes + value, out);
            }
            break;
        case 7:
            cr_assert_eq(next_field(&bytes, &bytes, &value), 1);
            out->session_status = (unsigned)value;
            break;
        default:
            cr_assert_fail("unknown field of Event");
        }
    }
}

static uint32_t
unmask(uint32_t masked)
{
    uint32_t rotated = masked - 0xa282ead8u;
    return rotated >> 17 | rotated << 15;
}

/* Decodes the folder's one event file; gives how many events it has. */
static size_t
read_events(struct decoded *out, size_t room)
{
    static char bytes[65536];
    DIR *entries = opendir(folder);
    const struct dirent *entry = NULL;
    size_t size = 0, files = 0, count = 0;
    while ((entry = readdir(entries))) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) {
            size = read_file(entry->d_name, bytes, sizeof bytes);
            files++;
        }
    }
    closedir(entries);
    cr_assert_eq(files, 1);
    for (const uint8_t *p = (const uint8_t *)bytes, *end = p + size; p < end; count++) {
        cr_assert_geq(end - p, 16);
        uint64_t length = little_endian(p, 8);
        cr_assert_eq(unmask((uint32_t)little_endian(p + 8, 4)), exo_crc32c(p, 8));
        cr_assert_leq(length, (uint64_t)(end - p) - 16);
        cr_assert_eq(unmask((uint32_t)little_endian(p + 12 + length, 4)),
                     exo_crc32c(p + 12, length));
        cr_assert_lt(count, room);
        decode_event(p + 12, p + 12 + length, &out[count]);
        p += 16 + length;
    }
    return count;
}

Test(metrics, crc32c_known_answers)
{
    /* RFC 3720, B.4, and the usual check value. */
    uint8_t zeros[32] = {0}, ones[32];
    memset(ones, 0xff, sizeof ones);
    cr_expect_eq(exo_crc32c("123456789", 9), 0xe3069283u);
    cr_expect_eq(exo_crc32c(zeros, sizeof zeros), 0x8a9136aau);
    cr_expect_eq(exo_crc32c(ones, sizeof ones), 0x62a8ab43u);
}

Test(metrics, event_files_hold_the_scalars)
{
    struct decoded events[16];
    exo_metrics *m = open_metrics(false, 0);
    exo_eval_row row = {300, 1, 2000, 1.5, 1.25, 0.5, 0.75},
                 no_accuracy = {400, 1, 2000, 1.5, 1.25, NAN, NAN};
    cr_expect_eq(exo_metrics_train(m, 200, 1024, 0.5, 3e-4, NULL), EXO_OK);
    cr_expect_eq(exo_metrics_validation(m, &row, NULL), EXO_OK);
    cr_expect_eq(exo_metrics_validation(m, &no_accuracy, NULL), EXO_OK);
    cr_expect_eq(exo_metrics_correlation(m, 300, 0.25, NULL), EXO_OK);
    exo_metrics_close(&m);

    cr_assert_eq(read_events(events, 16), 5);
    cr_expect_str_eq(events[0].version, "brain.Event:2");
    cr_expect_gt(events[0].time, 1.5e9);
    cr_expect_eq(events[1].step, 200);
    cr_assert_eq(events[1].num_scalars, 2);
    cr_expect_str_eq(events[1].scalars[0].tag, "train/loss");
    cr_expect_eq(events[1].scalars[0].value, 0.5f);
    cr_expect_str_eq(events[1].scalars[1].tag, "train/lr");
    cr_expect_eq(events[1].scalars[1].value, 3e-4f);
    static const char *const tags[] = {"validation/local_loss", "validation/global_loss",
                                       "communication/bytes_sent", "validation/local_accuracy",
                                       "validation/global_accuracy"};
    static const float values[] = {1.5f, 1.25f, 2000, 0.5f, 0.75f};
    cr_expect_eq(events[2].step, 300);
    cr_assert_eq(events[2].num_scalars, 5);
    for (size_t i = 0; i < 5; i++) {
        cr_expect_str_eq(events[2].scalars[i].tag, tags[i]);
        cr_expect_eq(events[2].scalars[i].value, values[i]);
    }
    cr_expect_eq(events[3].num_scalars, 3, "no accuracy, no scalar of it");
    cr_expect_str_eq(events[4].scalars[0].tag, "correlation");
    cr_expect_eq(events[4].scalars[0].value, 0.25f);
}

Test(metrics, a_resumed_run_voids_later_events)
{
    struct decoded events[16];
    exo_metrics *m = open_metrics(false, 0);
    exo_metrics_close(&m);
    char command[300];
    snprintf(command, sizeof command, "rm %s/events*", folder);
    cr_assert_eq(system(command), 0);
    m = open_metrics(true, 8);
    exo_metrics_close(&m);
    cr_assert_eq(read_events(events, 16), 2);
    cr_expect_eq(events[1].session_status, 1, "START");
    cr_expect_eq(events[1].step, 9);
}

/* Nobody reads a pipe that lies in the place of a table: after some thousand rows the run would
 * wait for ever. */
Test(metrics, a_pipe_is_no_table)
{
    static const char *const files[] = {"train.csv", "validation.csv", "metrics.csv",
                                        "correlation.csv"};
    for (size_t i = 0; i < 4; i++) {
        exo_metrics *m = open_metrics(false, 0);
        exo_err err = {0};
        log_steps(m, 1, 2);
        exo_metrics_close(&m);
        unlink(in_folder(files[i]));
        cr_assert_eq(mkfifo(in_folder(files[i]), 0600), 0);
        cr_expect_eq(exo_metrics_open(&m, folder, true, 2, &err), EXO_INVAL);
        cr_expect(strstr(err.text, "is no plain file; once it is removed, the run goes on"), "%s",
                  err.text);
        unlink(in_folder(files[i]));
    }
}

/* --- Meters ----------------------------------------------------------------------------------- */

static const exo_meter_class rounds = {.name = "rounds", .unit = "rounds", .help = "outer steps"};
static const exo_meter_class noise = {
    .name = "noise", .unit = "1", .help = "a gauge", .kind = EXO_GAUGE};
static const exo_meter_class norm = {.name = "norm",
                                     .unit = "1",
                                     .help = "a histogram",
                                     .kind = EXO_HISTOGRAM,
                                     .bounds = (const double[]){0.5, 2},
                                     .num_bounds = 2};

struct tree {
    exo_meters *tree;
    exo_meter *rounds, *noise, *norm, *loss;
};

static struct tree
new_tree(void)
{
    static const exo_meter_class loss = {
        .name = "loss", .unit = "1", .help = "has its own tag", .kind = EXO_GAUGE};
    struct tree t = {0};
    exo_meters *node = NULL, *train = NULL;
    cr_assert_eq(exo_meters_new(&t.tree, NULL), EXO_OK);
    cr_assert_eq(exo_meters_scope(&train, t.tree, "train", NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&t.loss, train, &loss, NULL), EXO_OK);
    cr_assert_eq(exo_meters_scope(&node, t.tree, "node_0", NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&t.rounds, node, &rounds, NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&t.noise, node, &noise, NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&t.norm, node, &norm, NULL), EXO_OK);
    exo_meter_set(t.loss, 0.25);
    return t;
}

/* At steps [first, last] of which every second has rows. */
static void
log_meters(exo_metrics *m, const struct tree *t, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++) {
        exo_err err = {0};
        exo_meter_count(t->rounds, step);
        if (step > 0)
            exo_meter_set(t->noise, 1.0 / (double)step);
        if (step % 2 == 0)
            cr_assert_eq(exo_metrics_meters(m, step, t->tree, &err), EXO_OK, "%s", err.text);
    }
}

Test(metrics, meters_are_rows_and_events)
{
    struct decoded events[16];
    struct tree t = new_tree();
    exo_metrics *m = open_metrics(false, 0);
    expect_file("meters.csv", "step,meter,value,unit\n");
    log_meters(m, &t, 0, 1);
    expect_file("meters.csv",
                "step,meter,value,unit\n0,train.loss,0.25,1\n0,node_0.rounds,0,rounds\n"
                "0,node_0.norm.count,0,1\n0,node_0.norm.sum,0,1\n0,node_0.norm.le_0.5,0,1\n"
                "0,node_0.norm.le_2,0,1\n");
    exo_meter_observe(t.norm, 0.25);
    exo_meter_observe(t.norm, 1);
    exo_meter_observe(t.norm, 3);
    log_meters(m, &t, 2, 2);
    log_meters(m, &t, 2, 2); /* once is enough */
    exo_metrics_close(&m);
    char got[4096] = "";
    read_file("meters.csv", got, sizeof got);
    cr_expect_str_eq(strstr(got, "\n2,"),
                     "\n2,train.loss,0.25,1\n2,node_0.rounds,2,rounds\n2,node_0.noise,0.5,1\n"
                     "2,node_0.norm.count,3,1\n2,node_0.norm.sum,4.25,1\n"
                     "2,node_0.norm.le_0.5,1,1\n2,node_0.norm.le_2,2,1\n");

    cr_assert_eq(read_events(events, 16), 1 + 2 + 3, "the loss has a tag of its own already");
    cr_expect_str_eq(events[3].scalars[0].tag, "node_0/rounds");
    cr_expect_str_eq(events[3].scalars[0].description, "outer steps (rounds)");
    cr_expect_eq(events[3].scalars[0].value, 2);
    cr_expect_eq(events[3].step, 2);
    cr_expect_str_eq(events[4].scalars[0].tag, "node_0/noise");
    cr_expect_eq(events[4].scalars[0].value, 0.5f);
    cr_expect_str_eq(events[5].scalars[0].tag, "node_0/norm");
    cr_expect_eq(events[5].scalars[0].num, 3);
    cr_expect_eq(events[5].scalars[0].sum, 4.25);
    cr_expect_eq(events[5].scalars[0].limits[1], 2);
    cr_expect_eq(events[5].scalars[0].buckets[0], 1);
    cr_expect_eq(events[5].scalars[0].buckets[2], 1);
    exo_meters_free(&t.tree);
}

Test(metrics, a_resumed_run_has_the_meters_of_each_step_once)
{
    char whole[4096], cut[4096];
    struct tree t = new_tree();
    exo_metrics *m = open_metrics(false, 0);
    log_meters(m, &t, 0, 8);
    exo_metrics_close(&m);
    size_t size = read_file("meters.csv", whole, sizeof whole);
    logged_begin(); /* there is no train.csv, and what is cut is told of */
    for (size_t kept = 0; kept <= size;
         kept++) { /* killed while it wrote; the checkpoint is of step 4 */
        memcpy(cut, whole, kept);
        cut[kept] = '\0';
        write_file("meters.csv", cut);
        m = open_metrics(true, 4);
        const char *last = strstr(whole, "\n4,node_0.norm.le_2");
        if (last && kept > (size_t)(last - whole) + 25) {
            log_meters(m, &t, 4, 8);
            exo_metrics_close(&m);
            expect_file("meters.csv", whole);
        }
        exo_metrics_close(&m);
    }
    logged_end();
    exo_meters_free(&t.tree);
}

Test(metrics, meters_of_a_graph_have_times)
{
    struct decoded events[16];
    struct tree t = new_tree();
    exo_metrics *m = NULL;
    exo_err err = {0};
    exo_meters *sink = NULL;
    exo_meter *items = NULL;
    static const exo_meter_class items_class = {
        .name = "items", .unit = "items", .help = "items that came"};
    cr_assert_eq(exo_meters_scope(&sink, t.tree, "sink_0", NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&items, sink, &items_class, NULL), EXO_OK);
    write_file("meters.csv", "of a run before\n");
    cr_assert_eq(exo_metrics_open_graph(&m, folder, &err), EXO_OK, "%s", err.text);
    for (uint64_t i = 0; i < 3; i++) {
        exo_meter_count(items, i);
        cr_assert_eq(exo_metrics_meters_at(m, i < 2 ? 1500000999 : 2 * EXO_SECOND, sink, &err),
                     EXO_OK, "%s", err.text);
    }
    exo_metrics_close(&m);
    expect_file("meters.csv",
                "seconds,meter,value,unit\n1.500000,items,0,items\n1.500001,items,1,items\n"
                "2.000000,items,2,items\n");
    cr_assert_eq(read_events(events, 16), 1 + 3);
    cr_expect_eq(events[1].step, 1500);
    cr_expect_eq(events[3].step, 2000);
    cr_expect_float_eq(events[3].time - events[1].time, 0.5, 1e-3);
    char path[512];
    snprintf(path, sizeof path, "%s/train.csv", folder);
    cr_expect_neq(access(path, F_OK), 0, "a graph has no table of steps");
    exo_meters_free(&t.tree);
}

Test(metrics, meters_come_back_from_json)
{
    struct tree t = new_tree();
    exo_meters *back = NULL;
    exo_meter_sample s;
    exo_meter_count(t.rounds, 12);
    exo_meter_observe(t.norm, 1);
    json_t *json = exo_meters_json(t.tree);
    cr_assert_eq(json_object_set_new(json, "odd", json_integer(3)), 0);
    cr_assert_eq(json_object_set_new(json, "kindless", json_pack("{s:s}", "unit", "1")), 0);
    cr_assert_eq(json_object_set_new(json, "unitless",
                                     json_pack("{s:s, s:s}", "kind", "counter", "help", "h")),
                 0);
    cr_assert_eq(
        json_object_set_new(json, "a..b", json_deep_copy(json_object_get(json, "node_0.rounds"))),
        0);
    cr_assert_eq(exo_meters_new(&back, NULL), EXO_OK);
    exo_meters_of_json(back, json);
    json_t *again = exo_meters_json(back);
    cr_expect(exo_meters_get(back, "node_0.rounds", &s) && s.count == 12);
    cr_expect(exo_meters_get(back, "node_0.noise", &s) && isnan(s.value));
    cr_expect(exo_meters_get(back, "node_0.norm", &s) && s.buckets[1] == 1 &&
              s.meter_class->bounds[1] == 2);
    json_object_del(json, "odd");
    json_object_del(json, "kindless");
    json_object_del(json, "unitless");
    json_object_del(json, "a..b");
    cr_expect(json_equal(json, again));
    json_decref(json);
    json_decref(again);
    exo_meters_free(&back);
    exo_meters_free(&t.tree);
}
