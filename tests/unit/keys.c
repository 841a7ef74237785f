/* Keys: their files, the list of those that are accepted, and sockets that are given them.
 *
 * Each test owns the folder of key_folder.h. Read next: runtime/net/auth.c; zap.c beside this file,
 * for who gets in with them. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>
#include <zmq.h>

#include "base/file.h"
#include "base/memory_fault.h"
#include "net/auth.h"
#include "support/key_folder.h"

char key_folder[64];

static mode_t
mode_of(const char *path)
{
    struct stat info = {0};
    cr_assert_eq(lstat(path, &info), 0);
    return info.st_mode & 07777;
}

/* --- Key files -------------------------------------------------------------------------------- */

TestSuite(keys, .init = key_folder_setup, .fini = key_folder_teardown);

Test(keys, come_back_as_they_were_saved)
{
    exo_keys keys = key_pair_new(), back;
    cr_expect_eq(strlen(keys.public_key), 40);
    cr_expect_eq(strlen(keys.secret_key), 40);
    cr_assert_eq(exo_keys_save(&keys, KEY_ADMIN, key_folder_path("deep/er"), "n1", NULL), EXO_OK);
    cr_assert_eq(exo_keys_load(key_folder_path("deep/er/n1.secret"), &back, NULL), EXO_OK);
    cr_expect_eq(memcmp(&keys, &back, sizeof keys), 0);
    cr_expect_eq(mode_of(key_folder_path("deep/er/n1.secret")), 0600);
    cr_expect_eq(mode_of(key_folder_path("deep/er/n1.key")), 0644);
}

Test(keys, are_wiped_on_release)
{
    exo_keys keys = key_pair_new(), zero = {0};
    exo_keys_release(&keys);
    cr_expect_eq(memcmp(&keys, &zero, sizeof keys), 0);
    exo_keys_release(NULL);
}

Test(keys, are_never_overwritten)
{
    exo_keys keys = key_pair_new(), other = key_pair_new(), back;
    exo_err err = {0};
    cr_assert_eq(exo_keys_save(&keys, KEY_ADMIN, key_folder, "n1", NULL), EXO_OK);
    cr_expect_eq(exo_keys_save(&other, KEY_ADMIN, key_folder, "n1", &err), EXO_EXISTS);
    cr_expect_not_null(strstr(err.text, "n1.key"));
    /* The public file alone protects the name, and so does the secret one. */
    cr_assert_eq(unlink(key_folder_path("n1.secret")), 0);
    cr_expect_eq(exo_keys_save(&other, KEY_ADMIN, key_folder, "n1", NULL), EXO_EXISTS);
    cr_expect_neq(access(key_folder_path("n1.secret"), F_OK), 0);
    cr_assert_eq(unlink(key_folder_path("n1.key")), 0);
    cr_assert_eq(exo_keys_save(&keys, KEY_ADMIN, key_folder, "n1", NULL), EXO_OK);
    cr_assert_eq(unlink(key_folder_path("n1.key")), 0);
    cr_expect_eq(exo_keys_save(&other, KEY_ADMIN, key_folder, "n1", &err), EXO_EXISTS);
    cr_expect_neq(access(key_folder_path("n1.key"), F_OK), 0);
    cr_assert_eq(exo_keys_load(key_folder_path("n1.secret"), &back, NULL), EXO_OK);
    cr_expect_str_eq(back.public_key, keys.public_key);
}

Test(keys, do_not_follow_links)
{
    exo_keys keys = key_pair_new();
    cr_assert_eq(symlink(key_folder_path("elsewhere"), key_folder_path("n1.secret")), 0);
    cr_expect_eq(exo_keys_save(&keys, KEY_ADMIN, key_folder, "n1", NULL), EXO_EXISTS);
    cr_assert_eq(symlink(key_folder_path("elsewhere"), key_folder_path("n2.key")), 0);
    cr_expect_eq(exo_keys_save(&keys, KEY_ADMIN, key_folder, "n2", NULL), EXO_EXISTS);
    cr_expect_neq(access(key_folder_path("elsewhere"), F_OK), 0);
    cr_expect_neq(access(key_folder_path("n2.secret"), F_OK), 0);
}

Test(keys, have_plain_names)
{
    char longest[EXO_KEY_NAME + 1];
    memset(longest, 'a', sizeof longest);
    longest[EXO_KEY_NAME] = '\0';
    cr_expect_not(exo_key_name_is_valid(longest));
    longest[EXO_KEY_NAME - 1] = '\0';
    cr_expect(exo_key_name_is_valid(longest));
    const char *const good[] = {"a", "node-1", "7", "host.example_org"};
    const char *const bad[] = {"", ".", "..", "-o", "a/b", "../a", "a b", "a\n", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect(exo_key_name_is_valid(good[i]), "%s", good[i]);
    exo_keys keys = key_pair_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_not(exo_key_name_is_valid(bad[i]), "%s", bad[i]);
        cr_expect_eq(exo_keys_save(&keys, KEY_ADMIN, key_folder, bad[i], NULL), EXO_INVAL);
    }
}

static void
expect_bad_secret(exo_status status, const char *reason)
{
    static const exo_keys zero;
    exo_keys keys;
    exo_err err = {0};
    memset(&keys, 'x', sizeof keys);
    cr_expect_eq(exo_keys_load(key_folder_path("n1.secret"), &keys, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, reason), "'%s' does not say '%s'", err.text, reason);
    cr_expect_not_null(strstr(err.text, "n1.secret"));
    cr_expect_eq(memcmp(&keys, &zero, sizeof keys), 0, "keys are left of a file that was refused");
}

Test(keys, of_bad_files_are_refused)
{
    exo_keys a = key_pair_new(), b = key_pair_new();
    char text[512];
    expect_bad_secret(EXO_NOT_FOUND, "No such file");

    snprintf(text, sizeof text, "# one\npublic %s\nsecret %s\n", a.public_key, a.secret_key);
    const mode_t modes[] = {0640, 0604, 0644, 0620, 0601};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        key_folder_put("n1.secret", modes[i], text);
        expect_bad_secret(EXO_INVAL, "run chmod 600");
    }
    snprintf(text, sizeof text, "# one\npublic %s\nsecret %.39s\n", a.public_key, a.secret_key);
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:3: the secret key has 39 characters instead of 40");
    snprintf(text, sizeof text, "public %sx\nsecret %s\n", a.public_key, a.secret_key);
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:1: the public key has 41 characters instead of 40");
    snprintf(text, sizeof text, "public %.39s~\nsecret %s\n", a.public_key, a.secret_key);
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:1: the public key is not Z85");
    snprintf(text, sizeof text, "public %s\nsecret %.39s\x80\n", a.public_key, a.secret_key);
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:2: the secret key is not Z85");
    snprintf(text, sizeof text, "public %s\nsecret %s\n", a.public_key, b.secret_key);
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "not a pair");
    snprintf(text, sizeof text, "public %s\n", a.public_key);
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "is a public key, and a secret one is wanted");
    snprintf(text, sizeof text, "secret %s\n", a.secret_key);
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "no line `public KEY`");
    snprintf(text, sizeof text, "public %s\npublic %s\nsecret %s\n", a.public_key, a.public_key,
             a.secret_key);
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:2: a second public key");
    snprintf(text, sizeof text, "%s\n%s\n", a.public_key, a.secret_key);
    text[0] = 'p';
    key_folder_put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:1: expected `public KEY`, `secret KEY` or a comment");
    key_folder_put("n1.secret", 0600, "");
    expect_bad_secret(EXO_INVAL, "no line");

    static char large[10000];
    memset(large, '#', sizeof large - 1);
    key_folder_put("n1.secret", 0600, large);
    expect_bad_secret(EXO_INVAL, "too long");
    cr_assert_eq(exo_file_write_atomic(key_folder_path("n1.secret"), "public\0x", 8, NULL), EXO_OK);
    cr_assert_eq(chmod(key_folder_path("n1.secret"), 0600), 0);
    expect_bad_secret(EXO_INVAL, "not a text file");
    /* A pipe that nobody writes to is no reason to wait. */
    cr_assert_eq(unlink(key_folder_path("n1.secret")), 0);
    cr_assert_eq(mkfifo(key_folder_path("n1.secret"), 0600), 0);
    expect_bad_secret(EXO_INVAL, "not a plain file");
    cr_assert_eq(unlink(key_folder_path("n1.secret")), 0);
    cr_assert_eq(mkdir(key_folder_path("n1.secret"), 0700), 0);
    expect_bad_secret(EXO_INVAL, "not a plain file");
}

/* What is refused is not quoted: it may be the secret. */
Test(keys, are_not_shown_in_errors)
{
    exo_keys a = key_pair_new(), back;
    exo_err err = {0};
    char text[512];
    snprintf(text, sizeof text, "public %s\nsekret %s\n", a.public_key, a.secret_key);
    key_folder_put("n1.secret", 0600, text);
    cr_expect_eq(exo_keys_load(key_folder_path("n1.secret"), &back, &err), EXO_INVAL);
    cr_expect_null(strstr(err.text, a.secret_key));
}

Test(keys, cut_at_every_byte_are_refused)
{
    exo_keys keys = key_pair_new(), back;
    char *text = NULL;
    size_t size = 0;
    cr_assert_eq(exo_keys_save(&keys, KEY_ADMIN, key_folder, "n1", NULL), EXO_OK);
    cr_assert_eq(exo_file_read(key_folder_path("n1.secret"), 4096, &text, &size, NULL), EXO_OK);
    for (size_t length = 0; length < size - 1;
         length++) { /* without the last newline it is whole */
        cr_assert_eq(truncate(key_folder_path("n1.secret"), 0), 0);
        int fd = open(key_folder_path("n1.secret"), O_WRONLY);
        cr_assert_eq(write(fd, text, length), (ssize_t)length);
        close(fd);
        cr_expect_eq(exo_keys_load(key_folder_path("n1.secret"), &back, NULL), EXO_INVAL,
                     "cut at %zu", length);
    }
    exo_free(text);
}

/* --- Allow-list ------------------------------------------------------------------------------- */

TestSuite(allow_list, .init = key_folder_setup, .fini = key_folder_teardown);

static bool
contains(exo_allow_list *list, const exo_keys *keys, char name[EXO_KEY_NAME])
{
    uint8_t key[EXO_KEY_BYTES];
    cr_assert_not_null(zmq_z85_decode(key, keys->public_key));
    return exo_allow_list_contains(list, key, name);
}

Test(allow_list, knows_the_keys_of_its_folder_by_name)
{
    exo_keys a = key_pair_new(), b = key_pair_new(), c = key_pair_new();
    exo_allow_list *list = NULL;
    char name[EXO_KEY_NAME];
    key_folder_authorize("a", &a);
    key_folder_authorize("node-b", &b);
    key_folder_put("notes.txt", 0644, "not a key");
    cr_assert_eq(exo_allow_list_load(&list, key_folder, NULL), EXO_OK);
    cr_expect_eq(exo_allow_list_count(list), 2);
    cr_expect(contains(list, &a, name));
    cr_expect_str_eq(name, "a");
    cr_expect(contains(list, &b, name));
    cr_expect_str_eq(name, "node-b");
    cr_expect_not(contains(list, &c, name));
    cr_expect_str_eq(name, "");
    cr_expect(contains(list, &a, NULL));
    exo_allow_list_free(&list);
    cr_expect_null(list);
    exo_allow_list_free(&list);
}

/* A key that differs in one bit is another key, whichever bit it is. */
Test(allow_list, compares_every_bit)
{
    exo_keys a = key_pair_new();
    exo_allow_list *list = NULL;
    uint8_t key[EXO_KEY_BYTES];
    key_folder_authorize("a", &a);
    cr_assert_eq(exo_allow_list_load(&list, key_folder, NULL), EXO_OK);
    cr_assert_not_null(zmq_z85_decode(key, a.public_key));
    for (size_t bit = 0; bit < sizeof key * 8; bit++) {
        key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_expect_not(exo_allow_list_contains(list, key, NULL), "bit %zu", bit);
        key[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    exo_allow_list_free(&list);
}

Test(allow_list, is_read_again_on_demand)
{
    exo_keys a = key_pair_new(), b = key_pair_new();
    exo_allow_list *list = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_allow_list_load(&list, key_folder, NULL), EXO_OK);
    cr_expect_eq(exo_allow_list_count(list), 0);
    key_folder_authorize("a", &a);
    cr_expect_not(contains(list, &a, NULL));
    cr_assert_eq(exo_allow_list_reload(list, NULL), EXO_OK);
    cr_expect(contains(list, &a, NULL));
    /* A folder with a mistake changes nothing, when it is read on demand. */
    cr_assert_eq(unlink(key_folder_path("a.key")), 0);
    key_folder_authorize("b", &b);
    key_folder_put("c.key", 0644, "public short\n");
    cr_expect_eq(exo_allow_list_reload(list, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "c.key:1: the public key has 5 characters instead of 40"),
                       "%s", err.text);
    cr_expect(contains(list, &a, NULL));
    cr_expect_not(contains(list, &b, NULL));
    cr_assert_eq(unlink(key_folder_path("c.key")), 0);
    cr_assert_eq(exo_allow_list_reload(list, NULL), EXO_OK);
    cr_expect_not(contains(list, &a, NULL));
    cr_expect(contains(list, &b, NULL));
    exo_allow_list_free(&list);
}

static void
expect_bad_list(exo_status status, const char *reason)
{
    exo_allow_list *list = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_allow_list_load(&list, key_folder, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, reason), "'%s' does not say '%s'", err.text, reason);
    cr_expect_null(list);
    exo_allow_list_free(&list);
}

Test(allow_list, refuses_bad_files_by_file_and_line)
{
    exo_keys a = key_pair_new();
    char text[512];
    exo_allow_list *list = NULL;
    cr_expect_eq(exo_allow_list_load(&list, key_folder_path("none"), NULL), EXO_NOT_FOUND);

    snprintf(text, sizeof text, "# one\npublic %s\nsecret %s\n", a.public_key, a.secret_key);
    key_folder_put("a.key", 0644, text);
    expect_bad_list(EXO_INVAL, "a.key:3: holds a secret key");
    key_folder_put("a.key", 0644, "# one\n# two\nhello\n");
    expect_bad_list(EXO_INVAL, "a.key:3: expected `public KEY` or a comment");
    key_folder_put("a.key", 0644, "# nothing\n");
    expect_bad_list(EXO_INVAL, "a.key: has no line `public KEY`");
    key_folder_authorize("a", &a);
    cr_assert_eq(chmod(key_folder_path("a.key"), 0646), 0);
    expect_bad_list(EXO_INVAL, "run chmod o-w");
    cr_assert_eq(chmod(key_folder_path("a.key"), 0644), 0);
    key_folder_authorize("b", &a);
    expect_bad_list(EXO_INVAL, "holds the same key as");
    cr_assert_eq(rename(key_folder_path("b.key"), key_folder_path("b c.key")), 0);
    expect_bad_list(EXO_INVAL, "a key's name is");
    cr_assert_eq(rename(key_folder_path("b c.key"), key_folder_path(".key")), 0);
    expect_bad_list(EXO_INVAL, "a key's name is");
    cr_assert_eq(unlink(key_folder_path(".key")), 0);
    cr_assert_eq(mkfifo(key_folder_path("p.key"), 0644), 0);
    expect_bad_list(EXO_INVAL, "p.key: is not a plain file");
    cr_assert_eq(unlink(key_folder_path("p.key")), 0);
    cr_assert_eq(symlink("nowhere", key_folder_path("l.key")), 0);
    expect_bad_list(EXO_NOT_FOUND, "l.key");
    cr_assert_eq(unlink(key_folder_path("l.key")), 0);
    cr_assert_eq(chmod(key_folder, 0777), 0);
    expect_bad_list(EXO_INVAL, "run chmod o-w");
    cr_assert_eq(chmod(key_folder, 0700), 0);
}

Test(allow_list, survives_every_failed_allocation)
{
    exo_allow_list *list = NULL;
    for (int i = 0; i < 40; i++) { /* the table grows twice */
        char name[16];
        exo_keys keys = key_pair_new();
        snprintf(name, sizeof name, "n%d", i);
        key_folder_authorize(name, &keys);
    }
    uint64_t before = exo_memory_allocations();
    cr_assert_eq(exo_allow_list_load(&list, key_folder, NULL), EXO_OK);
    uint64_t count = exo_memory_allocations() - before;
    cr_expect_geq(count, 5);
    for (uint64_t n = 1; n <= count; n++) {
        exo_allow_list *other = NULL;
        exo_memory_fail_at(n);
        cr_expect_eq(exo_allow_list_load(&other, key_folder, NULL), EXO_NOMEM);
        cr_expect_null(other);
    }
    exo_memory_fail_at(1);
    cr_expect_eq(exo_allow_list_reload(list, NULL), EXO_NOMEM);
    cr_expect_eq(exo_allow_list_count(list), 40);
    exo_allow_list_free(&list);
}

/* --- Sockets ---------------------------------------------------------------------------------- */

Test(sockets, take_no_bad_keys)
{
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    exo_keys keys = key_pair_new(), bad = keys;
    bad.secret_key[39] = '\0';
    cr_expect_eq(exo_curve_server(socket, &bad, NULL), EXO_INVAL);
    cr_expect_eq(exo_curve_client(socket, &bad, keys.public_key, NULL), EXO_INVAL);
    cr_expect_eq(exo_curve_client(socket, &keys, "", NULL), EXO_INVAL);
    cr_expect_eq(exo_curve_client(socket, &keys, "short", NULL), EXO_INVAL);
    cr_expect_eq(exo_curve_server(socket, &(exo_keys){0}, NULL), EXO_INVAL);
    cr_expect_eq(exo_null_server(socket, "", NULL), EXO_INVAL);
    cr_expect_eq(exo_curve_server(context, &keys, NULL), EXO_FAILED, "not a socket");
    zmq_close(socket);
    zmq_ctx_term(context);
}
