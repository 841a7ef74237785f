/* The audit log: each line is JSON, whatever names it contains; the file belongs to this user and
 * process alone; rotation, a full disk, floods.
 *
 * Each test owns its folder and log. Read next: runtime/base/audit.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <jansson.h>

#include <exogym/memory.h>

#include "base/audit.h"
#include "support/eventually.h"
#include "support/temp.h"

static char folder[64];

static void
setup(void)
{
    temp_folder(folder, sizeof folder);
}

static void
teardown(void)
{
    temp_remove(folder);
}

static const char *
path_in(char out[128], const char *name)
{
    snprintf(out, 128, "%s/%s", folder, name);
    return out;
}

#define PATH(name) path_in((char[128]){0}, name)

static exo_audit *
open_log(const exo_clock *clock)
{
    exo_audit *audit = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_audit_open(&audit, PATH("audit"), clock, &err), EXO_OK, "%s", err.text);
    return audit;
}

/* Reads a file's lines into a JSON array. Expects that each line is one object and ends with a
 * newline. */
static json_t *
read_lines(const char *name)
{
    json_t *all = json_array();
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    FILE *file = fopen(PATH(name), "r");
    cr_assert_not_null(file, "%s", PATH(name));
    while ((length = getline(&line, &size, file)) > 0) {
        json_error_t error;
        cr_assert_eq(line[length - 1], '\n', "a line that does not end: %s", line);
        for (ssize_t i = 0; i + 1 < length; i++)
            cr_assert(line[i] >= ' ' && line[i] < 127, "byte %d in %s", line[i], line);
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
        cr_assert(json_is_object(object), "%s: %s", error.text, line);
        json_array_append_new(all, object);
    }
    free(line);
    fclose(file);
    return all;
}

static const char *
text_of(const json_t *lines, size_t i, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(lines, i), key));
    return text ? text : "";
}

static json_int_t
number_of(const json_t *lines, size_t i, const char *key)
{
    return json_integer_value(json_object_get(json_array_get(lines, i), key));
}

static exo_identity
somebody(const char *name)
{
    exo_identity who = {.node = 0xabc, .role = EXO_ACCESS_DRIVER, .address = "192.0.2.1"};
    snprintf(who.name, sizeof who.name, "%s", name);
    snprintf(who.key, sizeof who.key, "key of %s", name);
    return who;
}

static void
add(exo_audit *audit, const exo_identity *who, exo_audit_event event, const char *subject)
{
    exo_audit_add(audit, &(exo_audit_record){.event = event, .who = who, .subject = subject});
}

/* The number of lines whose `key` is `value`, and the sum of their counts. */
static size_t
count_of(const char *name, const char *key, const char *value, json_int_t *sum)
{
    json_t *lines = read_lines(name);
    size_t found = 0;
    *sum = 0;
    for (size_t i = 0; i < json_array_size(lines); i++) {
        if (strcmp(text_of(lines, i, key), value) != 0)
            continue;
        found++;
        *sum += number_of(lines, i, "count");
    }
    json_decref(lines);
    return found;
}

/* --- Lines ------------------------------------------------------------------------------------ */

Test(audit, a_line_is_json_whatever_is_in_it, .init = setup, .fini = teardown)
{
    char long_one[5000], every[256];
    memset(long_one, '\\', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = 0;
    for (int i = 0; i < 255; i++)
        every[i] = (char)(i + 1);
    every[255] = 0;
    const char *const texts[] = {"plain",
                                 "a\nb\",\"outcome\":\"allowed\"}\n{\"seq\":1",
                                 "\x1b[2J\x1b]0;title\x07",
                                 "back\\slash \"quoted\" \t\r",
                                 "\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80",
                                 "\xe2\x80\xa8\xe2\x80\xae bidi",
                                 "\xff\xc3 cut \xed\xa0\x80",
                                 long_one,
                                 every,
                                 ""};
    exo_audit *audit = open_log(NULL);
    exo_identity who = somebody("evil\n\"");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        exo_audit_add(audit, &(exo_audit_record){.event = EXO_AUDIT_DENIED,
                                                 .who = &who,
                                                 .object = texts[i],
                                                 .method = texts[i],
                                                 .subject = texts[i],
                                                 .detail = texts[i],
                                                 .status = EXO_DENIED,
                                                 .reason = texts[i]});
    cr_expect(exo_audit_flush(audit));
    json_t *lines = read_lines("audit");
    cr_assert_eq(json_array_size(lines), sizeof texts / sizeof *texts);
    for (size_t i = 0; i < 6; i++)
        cr_expect_str_eq(text_of(lines, i, "subject"), texts[i]);
    cr_expect_str_eq(text_of(lines, 6, "subject"),
                     "\xef\xbf\xbd\xef\xbf\xbd cut \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    cr_expect_eq(
        strcmp(text_of(lines, 7, "subject") + strlen(text_of(lines, 7, "subject")) - 3, "..."), 0);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        cr_expect_eq(number_of(lines, i, "seq"), (json_int_t)i + 1);
        cr_expect_str_eq(text_of(lines, i, "outcome"), "refused");
        cr_expect_str_eq(text_of(lines, i, "event"), "denied");
        cr_expect_str_eq(text_of(lines, i, "who"), "evil\n\"");
        cr_expect_str_eq(text_of(lines, i, "role"), "driver");
        cr_expect_str_eq(text_of(lines, i, "node"), "0000000000000abc");
        const char *when = text_of(lines, i, "time"); /* 2026-01-31T12:00:00.123456Z */
        cr_expect(strlen(when) == 27 && when[10] == 'T' && when[19] == '.' && when[26] == 'Z', "%s",
                  when);
    }
    json_decref(lines);
    exo_audit_close(&audit);
    exo_audit_add(NULL, &(exo_audit_record){0});
}

/* --- The file's owner ------------------------------------------------------------------------- */

static void
expect_refused(exo_status expected, const char *why)
{
    exo_audit *audit = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_audit_open(&audit, PATH("audit"), NULL, &err), expected, "%s", err.text);
    cr_expect_not_null(strstr(err.text, why), "'%s' does not say '%s'", err.text, why);
    cr_expect_null(audit);
}

Test(audit, the_file_is_of_this_user_alone, .init = setup, .fini = teardown)
{
    struct stat info;
    umask(0);
    exo_audit *audit = open_log(NULL);
    cr_assert_eq(stat(PATH("audit"), &info), 0);
    cr_expect_eq(info.st_mode & 07777, 0600, "%o", info.st_mode);
    expect_refused(EXO_EXISTS, "another process has it");
    exo_audit_close(&audit);
    audit = open_log(NULL); /* closing has released the lock */
    exo_audit_close(&audit);

    chmod(PATH("audit"), 0640);
    expect_refused(EXO_INVAL, "chmod 600");
    chmod(PATH("audit"), 0600);
    cr_assert_eq(link(PATH("audit"), PATH("another")), 0);
    expect_refused(EXO_INVAL, "one name");
    unlink(PATH("audit"));
    cr_assert_eq(symlink(PATH("another"), PATH("audit")), 0);
    expect_refused(EXO_INVAL, "must not be a link");
    unlink(PATH("audit"));
    FILE *file = fopen(PATH("audit"), "w");
    fputs("a secret", file);
    fclose(file);
    chmod(PATH("audit"), 0600);
    expect_refused(EXO_INVAL, "something else than an audit log");
    cr_assert_eq(stat(PATH("audit"), &info), 0);
    cr_expect_eq(info.st_size, 8);
    unlink(PATH("audit"));
    cr_assert_eq(mkfifo(PATH("audit"), 0600), 0);
    expect_refused(EXO_INVAL, "plain file");
    unlink(PATH("audit"));
    cr_assert_eq(mkdir(PATH("audit"), 0700), 0);
    expect_refused(EXO_IO, "audit");
}

/* A partial line, left by a killed process, is removed. */
Test(audit, begins_after_a_whole_line, .init = setup, .fini = teardown)
{
    const char *const before[] = {"{\"seq\":1}\n{\"seq\":2,\"tim", "{\"seq\":1}\n", "", "{\"seq\""};
    const size_t kept[] = {1, 1, 0, 0};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        int fd = open(PATH("audit"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        cr_assert_eq(write(fd, before[i], strlen(before[i])), (ssize_t)strlen(before[i]));
        close(fd);
        exo_audit *audit = open_log(NULL);
        add(audit, NULL, EXO_AUDIT_PROCESS, "it");
        exo_audit_close(&audit);
        json_t *lines = read_lines("audit");
        cr_expect_eq(json_array_size(lines), kept[i] + 1, "%zu", json_array_size(lines));
        json_decref(lines);
    }
}

/* --- Rotation --------------------------------------------------------------------------------- */

Test(audit, begins_anew_when_its_file_has_another_name, .init = setup, .fini = teardown)
{
    exo_audit *audit = open_log(NULL);
    json_int_t sum;
    struct stat info;
    add(audit, NULL, EXO_AUDIT_PROCESS, "one");
    cr_expect(exo_audit_flush(audit));
    cr_assert_eq(rename(PATH("audit"), PATH("audit.1")), 0);
    add(audit, NULL, EXO_AUDIT_PROCESS, "two");
    cr_expect(exo_audit_flush(audit));
    cr_expect_eq(count_of("audit.1", "subject", "one", &sum), 1);
    cr_expect_eq(count_of("audit", "subject", "two", &sum), 1);
    cr_assert_eq(stat(PATH("audit"), &info), 0);
    cr_expect_eq(info.st_mode & 07777, 0600);
    unlink(PATH("audit"));
    add(audit, NULL, EXO_AUDIT_PROCESS, "three");
    cr_expect(exo_audit_flush(audit));
    cr_expect_eq(count_of("audit", "subject", "three", &sum), 1);
    /* as with copytruncate: O_APPEND continues at the new end */
    cr_assert_eq(truncate(PATH("audit"), 0), 0);
    add(audit, NULL, EXO_AUDIT_PROCESS, "four");
    cr_expect(exo_audit_flush(audit));
    cr_expect_eq(count_of("audit", "subject", "four", &sum), 1);
    exo_audit_close(&audit);
}

/* A path that must not be written to is left alone until it can be used again. No record is lost
 * meanwhile. */
Test(audit, waits_for_a_file_that_is_right, .init = setup, .fini = teardown)
{
    exo_audit *audit = open_log(NULL);
    json_int_t sum;
    unlink(PATH("audit"));
    cr_assert_eq(symlink("/dev/null", PATH("audit")), 0);
    add(audit, NULL, EXO_AUDIT_PROCESS, "one");
    cr_expect_not(exo_audit_flush(audit));
    unlink(PATH("audit"));
    EVENTUALLY(exo_audit_flush(audit));
    cr_expect_eq(count_of("audit", "subject", "one", &sum), 1);
    exo_audit_close(&audit);
}

/* --- A full disk ------------------------------------------------------------------------------ */

static void
limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

Test(audit, counts_what_a_full_disk_costs, .init = setup, .fini = teardown)
{
    enum {
        FEW = 30,
        MANY = 10000
    };
    exo_audit *audit = open_log(NULL);
    json_int_t lost;
    limit_files(1000); /* in the middle of a line */
    for (int i = 0; i < FEW; i++)
        add(audit, NULL, EXO_AUDIT_PROCESS, "a full disk");
    cr_expect_not(exo_audit_flush(audit));
    for (int i = 0; i < MANY; i++)
        add(audit, NULL, EXO_AUDIT_PROCESS, "while it is full");
    limit_files(RLIM_INFINITY);
    EVENTUALLY(exo_audit_flush(audit));
    json_t *lines = read_lines("audit");
    size_t records = json_array_size(lines);
    cr_expect_eq(count_of("audit", "event", "lost", &lost), 1);
    cr_expect_gt(lost, 0);
    cr_expect_eq((json_int_t)records - 1 + lost, FEW + MANY, "%zu lines, %lld lost", records,
                 (long long)lost);
    cr_expect_str_eq(text_of(lines, records - 1, "event"), "lost");
    for (size_t i = 0; i < records; i++)
        cr_expect_eq(number_of(lines, i, "seq"), (json_int_t)i + 1);
    json_decref(lines);
    add(audit, NULL, EXO_AUDIT_PROCESS, "after");
    exo_audit_close(&audit);
    cr_expect_eq(count_of("audit", "subject", "after", &lost), 1);
}

/* --- Floods ----------------------------------------------------------------------------------- */

Test(audit, a_flood_is_counted, .init = setup, .fini = teardown)
{
    exo_clock_manual clock;
    json_int_t sum;
    exo_clock_manual_init(&clock, EXO_SECOND);
    exo_audit *audit = open_log(&clock.base);
    exo_identity red = somebody("red"), blue = somebody("blue"),
                 local = {.pid = 42, .address = "local"};
    for (int i = 0; i < 1000; i++)
        add(audit, &red, EXO_AUDIT_SPAWN, "flood");
    add(audit, &red, EXO_AUDIT_KILL, "hidden"); /* not hidden by the flood */
    add(audit, &blue, EXO_AUDIT_SPAWN, "other");
    add(audit, &local, EXO_AUDIT_SPAWN, "local");
    for (int i = 0; i < 1000; i++) /* with 1000 different keys */
        exo_audit_add(audit, &(exo_audit_record){
                                 .event = EXO_AUDIT_REFUSED,
                                 .key = (char[]){(char)('a' + i % 26), (char)('a' + i / 26), 0},
                                 .address = "192.0.2.2",
                                 .subject = "stranger",
                                 .status = EXO_DENIED});
    cr_expect(exo_audit_flush(audit));
    cr_expect_eq(count_of("audit", "subject", "flood", &sum), 100);
    cr_expect_eq(count_of("audit", "subject", "stranger", &sum), 100);
    cr_expect_eq(count_of("audit", "subject", "hidden", &sum), 1);
    cr_expect_eq(count_of("audit", "subject", "other", &sum), 1);
    cr_expect_eq(count_of("audit", "subject", "local", &sum), 1);
    cr_expect_eq(count_of("audit", "event", "suppressed", &sum), 2);
    cr_expect_eq(sum, 1800);
    cr_expect_eq(count_of("audit", "of", "spawn", &sum), 1);
    cr_expect_eq(sum, 900);
    cr_expect_eq(count_of("audit", "who", "strangers", &sum), 1);
    cr_expect_eq(count_of("audit", "key", "key of red", &sum), 102,
                 "its records, and the one that counts the others");

    exo_clock_manual_advance(&clock, 3 * EXO_SECOND); /* one more record each second */
    for (int i = 0; i < 10; i++)
        add(audit, &red, EXO_AUDIT_SPAWN, "later");
    cr_expect(exo_audit_flush(audit));
    cr_expect_eq(count_of("audit", "subject", "later", &sum), 3);
    cr_expect_eq(count_of("audit", "of", "spawn", &sum), 2);
    cr_expect_eq(sum, 907);
    exo_audit_close(&audit);
}

/* More keys than the table holds: the table is bounded, and further keys share one quota. */
Test(audit, many_keys_take_bounded_memory, .init = setup, .fini = teardown)
{
    exo_clock_manual clock;
    json_int_t sum;
    exo_clock_manual_init(&clock, EXO_SECOND);
    exo_audit *audit = open_log(&clock.base);
    for (int i = 0; i < 3000; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d", i);
        exo_identity who = somebody(name);
        add(audit, &who, EXO_AUDIT_SPAWN, "many");
        if (i % 500 == 0)
            cr_expect(exo_audit_flush(audit));
    }
    cr_expect(exo_audit_flush(audit));
    size_t recorded = count_of("audit", "subject", "many", &sum);
    cr_expect_geq(recorded, 1023);
    cr_expect_leq(recorded, 1024 + 100);
    count_of("audit", "event", "suppressed", &sum);
    cr_expect_eq((json_int_t)recorded + sum, 3000);
    exo_clock_manual_advance(&clock, 1000 * EXO_SECOND); /* quiet keys are forgotten */
    exo_identity who = somebody("late");
    add(audit, &who, EXO_AUDIT_SPAWN, "late");
    cr_expect(exo_audit_flush(audit));
    cr_expect_eq(count_of("audit", "subject", "late", &sum), 1);
    exo_audit_close(&audit);
}
