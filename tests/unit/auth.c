/* Who may talk to a node: key files, the list of accepted keys, and what honest and other peers get from real sockets. */
#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <zmq.h>

#include "auth.h"
#include "file.h"
#include "memory_fault.h"

static char folder[64];

static void
setup(void)
{
    strcpy(folder, "/tmp/exogym-auth-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void
teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

/* A path in the test's folder; valid until the fourth call from now. */
static const char *
in_folder(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void
put(const char *name, mode_t mode, const char *text)
{
    const char *path = in_folder(name);
    cr_assert_eq(exo_file_write_atomic(path, text, strlen(text), NULL), EXO_OK);
    cr_assert_eq(chmod(path, mode), 0);
}

static exo_keys
new_keys(void)
{
    exo_keys keys;
    exo_err err = {0};
    cr_assert_eq(exo_keys_generate(&keys, &err), EXO_OK, "%s", err.text);
    return keys;
}

static mode_t
mode_of(const char *path)
{
    struct stat info = {0};
    cr_assert_eq(lstat(path, &info), 0);
    return info.st_mode & 07777;
}

/* --- Key files -------------------------------------------------------------------------------------------------------- */

TestSuite(keys, .init = setup, .fini = teardown);

Test(keys, come_back_as_they_were_saved)
{
    exo_keys keys = new_keys(), back;
    cr_expect_eq(strlen(keys.public_key), 40);
    cr_expect_eq(strlen(keys.secret_key), 40);
    cr_assert_eq(exo_keys_save(&keys, in_folder("deep/er"), "n1", NULL), EXO_OK);
    cr_assert_eq(exo_keys_load(in_folder("deep/er/n1.secret"), &back, NULL), EXO_OK);
    cr_expect_eq(memcmp(&keys, &back, sizeof keys), 0);
    cr_expect_eq(mode_of(in_folder("deep/er/n1.secret")), 0600);
    cr_expect_eq(mode_of(in_folder("deep/er/n1.key")), 0644);
}

Test(keys, are_wiped_on_release)
{
    exo_keys keys = new_keys(), zero = {0};
    exo_keys_release(&keys);
    cr_expect_eq(memcmp(&keys, &zero, sizeof keys), 0);
    exo_keys_release(NULL);
}

Test(keys, are_never_overwritten)
{
    exo_keys keys = new_keys(), other = new_keys(), back;
    exo_err err = {0};
    cr_assert_eq(exo_keys_save(&keys, folder, "n1", NULL), EXO_OK);
    cr_expect_eq(exo_keys_save(&other, folder, "n1", &err), EXO_EXISTS);
    cr_expect_not_null(strstr(err.text, "n1.key"));
    /* The public file alone protects the name, and so does the secret one. */
    cr_assert_eq(unlink(in_folder("n1.secret")), 0);
    cr_expect_eq(exo_keys_save(&other, folder, "n1", NULL), EXO_EXISTS);
    cr_expect_neq(access(in_folder("n1.secret"), F_OK), 0);
    cr_assert_eq(unlink(in_folder("n1.key")), 0);
    cr_assert_eq(exo_keys_save(&keys, folder, "n1", NULL), EXO_OK);
    cr_assert_eq(unlink(in_folder("n1.key")), 0);
    cr_expect_eq(exo_keys_save(&other, folder, "n1", &err), EXO_EXISTS);
    cr_expect_neq(access(in_folder("n1.key"), F_OK), 0);
    cr_assert_eq(exo_keys_load(in_folder("n1.secret"), &back, NULL), EXO_OK);
    cr_expect_str_eq(back.public_key, keys.public_key);
}

Test(keys, do_not_follow_links)
{
    exo_keys keys = new_keys();
    cr_assert_eq(symlink(in_folder("elsewhere"), in_folder("n1.secret")), 0);
    cr_expect_eq(exo_keys_save(&keys, folder, "n1", NULL), EXO_EXISTS);
    cr_assert_eq(symlink(in_folder("elsewhere"), in_folder("n2.key")), 0);
    cr_expect_eq(exo_keys_save(&keys, folder, "n2", NULL), EXO_EXISTS);
    cr_expect_neq(access(in_folder("elsewhere"), F_OK), 0);
    cr_expect_neq(access(in_folder("n2.secret"), F_OK), 0);
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
    exo_keys keys = new_keys();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_not(exo_key_name_is_valid(bad[i]), "%s", bad[i]);
        cr_expect_eq(exo_keys_save(&keys, folder, bad[i], NULL), EXO_INVAL);
    }
}

static void
expect_bad_secret(exo_status status, const char *reason)
{
    static const exo_keys zero;
    exo_keys keys;
    exo_err err = {0};
    memset(&keys, 'x', sizeof keys);
    cr_expect_eq(exo_keys_load(in_folder("n1.secret"), &keys, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, reason), "'%s' does not say '%s'", err.text, reason);
    cr_expect_not_null(strstr(err.text, "n1.secret"));
    cr_expect_eq(memcmp(&keys, &zero, sizeof keys), 0, "keys are left of a file that was refused");
}

Test(keys, of_bad_files_are_refused)
{
    exo_keys a = new_keys(), b = new_keys();
    char text[512];
    expect_bad_secret(EXO_NOT_FOUND, "No such file");

    snprintf(text, sizeof text, "# one\npublic %s\nsecret %s\n", a.public_key, a.secret_key);
    const mode_t modes[] = {0640, 0604, 0644, 0620, 0601};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        put("n1.secret", modes[i], text);
        expect_bad_secret(EXO_INVAL, "run chmod 600");
    }
    snprintf(text, sizeof text, "# one\npublic %s\nsecret %.39s\n", a.public_key, a.secret_key);
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:3: the secret key has 39 characters instead of 40");
    snprintf(text, sizeof text, "public %sx\nsecret %s\n", a.public_key, a.secret_key);
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:1: the public key has 41 characters instead of 40");
    snprintf(text, sizeof text, "public %.39s~\nsecret %s\n", a.public_key, a.secret_key);
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:1: the public key is not Z85");
    snprintf(text, sizeof text, "public %s\nsecret %.39s\x80\n", a.public_key, a.secret_key);
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:2: the secret key is not Z85");
    snprintf(text, sizeof text, "public %s\nsecret %s\n", a.public_key, b.secret_key);
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "not a pair");
    snprintf(text, sizeof text, "public %s\n", a.public_key);
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "no line `secret KEY`");
    snprintf(text, sizeof text, "secret %s\n", a.secret_key);
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "no line `public KEY`");
    snprintf(text, sizeof text, "public %s\npublic %s\nsecret %s\n", a.public_key, a.public_key, a.secret_key);
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:2: a second public key");
    snprintf(text, sizeof text, "%s\n%s\n", a.public_key, a.secret_key);
    text[0] = 'p';
    put("n1.secret", 0600, text);
    expect_bad_secret(EXO_INVAL, "n1.secret:1: expected `public KEY`, `secret KEY` or a comment");
    put("n1.secret", 0600, "");
    expect_bad_secret(EXO_INVAL, "no line");

    static char large[10000];
    memset(large, '#', sizeof large - 1);
    put("n1.secret", 0600, large);
    expect_bad_secret(EXO_INVAL, "too long");
    cr_assert_eq(exo_file_write_atomic(in_folder("n1.secret"), "public\0x", 8, NULL), EXO_OK);
    cr_assert_eq(chmod(in_folder("n1.secret"), 0600), 0);
    expect_bad_secret(EXO_INVAL, "not a text file");
    /* A pipe that nobody writes to is no reason to wait. */
    cr_assert_eq(unlink(in_folder("n1.secret")), 0);
    cr_assert_eq(mkfifo(in_folder("n1.secret"), 0600), 0);
    expect_bad_secret(EXO_INVAL, "not a plain file");
    cr_assert_eq(unlink(in_folder("n1.secret")), 0);
    cr_assert_eq(mkdir(in_folder("n1.secret"), 0700), 0);
    expect_bad_secret(EXO_INVAL, "not a plain file");
}

/* What is refused is not quoted: it may be the secret. */
Test(keys, are_not_shown_in_errors)
{
    exo_keys a = new_keys(), back;
    exo_err err = {0};
    char text[512];
    snprintf(text, sizeof text, "public %s\nsekret %s\n", a.public_key, a.secret_key);
    put("n1.secret", 0600, text);
    cr_expect_eq(exo_keys_load(in_folder("n1.secret"), &back, &err), EXO_INVAL);
    cr_expect_null(strstr(err.text, a.secret_key));
}

Test(keys, cut_at_every_byte_are_refused)
{
    exo_keys keys = new_keys(), back;
    char *text = NULL;
    size_t size = 0;
    cr_assert_eq(exo_keys_save(&keys, folder, "n1", NULL), EXO_OK);
    cr_assert_eq(exo_file_read(in_folder("n1.secret"), 4096, &text, &size, NULL), EXO_OK);
    for (size_t length = 0; length < size - 1; length++) { /* without the last newline it is whole */
        cr_assert_eq(truncate(in_folder("n1.secret"), 0), 0);
        int fd = open(in_folder("n1.secret"), O_WRONLY);
        cr_assert_eq(write(fd, text, length), (ssize_t)length);
        close(fd);
        cr_expect_eq(exo_keys_load(in_folder("n1.secret"), &back, NULL), EXO_INVAL, "cut at %zu", length);
    }
    exo_free(text);
}

/* --- Allow-list ------------------------------------------------------------------------------------------------------- */

TestSuite(allow_list, .init = setup, .fini = teardown);

static void
authorize(const char *name, const exo_keys *keys)
{
    char file[EXO_KEY_NAME + 8], text[128];
    snprintf(file, sizeof file, "%s.key", name);
    snprintf(text, sizeof text, "# a comment\n\npublic %s\n", keys->public_key);
    put(file, 0644, text);
}

static bool
contains(exo_allow_list *list, const exo_keys *keys, char name[EXO_KEY_NAME])
{
    uint8_t key[EXO_KEY_BYTES];
    cr_assert_not_null(zmq_z85_decode(key, keys->public_key));
    return exo_allow_list_contains(list, key, name);
}

Test(allow_list, knows_the_keys_of_its_folder_by_name)
{
    exo_keys a = new_keys(), b = new_keys(), c = new_keys();
    exo_allow_list *list = NULL;
    char name[EXO_KEY_NAME];
    authorize("a", &a);
    authorize("node-b", &b);
    put("notes.txt", 0644, "not a key");
    cr_assert_eq(exo_allow_list_load(&list, folder, NULL), EXO_OK);
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
    exo_keys a = new_keys();
    exo_allow_list *list = NULL;
    uint8_t key[EXO_KEY_BYTES];
    authorize("a", &a);
    cr_assert_eq(exo_allow_list_load(&list, folder, NULL), EXO_OK);
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
    exo_keys a = new_keys(), b = new_keys();
    exo_allow_list *list = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_allow_list_load(&list, folder, NULL), EXO_OK);
    cr_expect_eq(exo_allow_list_count(list), 0);
    authorize("a", &a);
    cr_expect_not(contains(list, &a, NULL));
    cr_assert_eq(exo_allow_list_reload(list, NULL), EXO_OK);
    cr_expect(contains(list, &a, NULL));
    /* A folder with a mistake changes nothing. */
    cr_assert_eq(unlink(in_folder("a.key")), 0);
    authorize("b", &b);
    put("c.key", 0644, "public short\n");
    cr_expect_eq(exo_allow_list_reload(list, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "c.key:1: the public key has 5 characters instead of 40"), "%s", err.text);
    cr_expect(contains(list, &a, NULL));
    cr_expect_not(contains(list, &b, NULL));
    cr_assert_eq(unlink(in_folder("c.key")), 0);
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
    cr_expect_eq(exo_allow_list_load(&list, folder, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, reason), "'%s' does not say '%s'", err.text, reason);
    cr_expect_null(list);
    exo_allow_list_free(&list);
}

Test(allow_list, refuses_bad_files_by_file_and_line)
{
    exo_keys a = new_keys();
    char text[512];
    exo_allow_list *list = NULL;
    cr_expect_eq(exo_allow_list_load(&list, in_folder("none"), NULL), EXO_NOT_FOUND);

    snprintf(text, sizeof text, "# one\npublic %s\nsecret %s\n", a.public_key, a.secret_key);
    put("a.key", 0644, text);
    expect_bad_list(EXO_INVAL, "a.key:3: holds a secret key");
    put("a.key", 0644, "# one\n# two\nhello\n");
    expect_bad_list(EXO_INVAL, "a.key:3: expected `public KEY` or a comment");
    put("a.key", 0644, "# nothing\n");
    expect_bad_list(EXO_INVAL, "a.key: has no line `public KEY`");
    authorize("a", &a);
    cr_assert_eq(chmod(in_folder("a.key"), 0646), 0);
    expect_bad_list(EXO_INVAL, "run chmod o-w");
    cr_assert_eq(chmod(in_folder("a.key"), 0644), 0);
    authorize("b", &a);
    expect_bad_list(EXO_INVAL, "holds the same key as");
    cr_assert_eq(rename(in_folder("b.key"), in_folder("b c.key")), 0);
    expect_bad_list(EXO_INVAL, "a key's name is");
    cr_assert_eq(rename(in_folder("b c.key"), in_folder(".key")), 0);
    expect_bad_list(EXO_INVAL, "a key's name is");
    cr_assert_eq(unlink(in_folder(".key")), 0);
    cr_assert_eq(mkfifo(in_folder("p.key"), 0644), 0);
    expect_bad_list(EXO_INVAL, "p.key: is not a plain file");
    cr_assert_eq(unlink(in_folder("p.key")), 0);
    cr_assert_eq(symlink("nowhere", in_folder("l.key")), 0);
    expect_bad_list(EXO_NOT_FOUND, "l.key");
    cr_assert_eq(unlink(in_folder("l.key")), 0);
    cr_assert_eq(chmod(folder, 0777), 0);
    expect_bad_list(EXO_INVAL, "run chmod o-w");
    cr_assert_eq(chmod(folder, 0700), 0);
}

Test(allow_list, survives_every_failed_allocation)
{
    exo_allow_list *list = NULL;
    for (int i = 0; i < 40; i++) { /* the table grows twice */
        char name[16];
        exo_keys keys = new_keys();
        snprintf(name, sizeof name, "n%d", i);
        authorize(name, &keys);
    }
    uint64_t before = exo_memory_allocations();
    cr_assert_eq(exo_allow_list_load(&list, folder, NULL), EXO_OK);
    uint64_t count = exo_memory_allocations() - before;
    cr_expect_geq(count, 5);
    for (uint64_t n = 1; n <= count; n++) {
        exo_allow_list *other = NULL;
        exo_memory_fail_at(n);
        cr_expect_eq(exo_allow_list_load(&other, folder, NULL), EXO_NOMEM);
        cr_expect_null(other);
    }
    exo_memory_fail_at(1);
    cr_expect_eq(exo_allow_list_reload(list, NULL), EXO_NOMEM);
    cr_expect_eq(exo_allow_list_count(list), 40);
    exo_allow_list_free(&list);
}

/* --- Handler ---------------------------------------------------------------------------------------------------------- */

enum {
    WAIT_MS = 10000, /* for what must come */
    QUIET_MS = 300   /* for what must not  */
};

static struct {
    pthread_mutex_t lock;
    char text[65536];
    size_t length, lines;
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
note_line(void *context, exo_log_level level, const char *line)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&logged.lock);
    int n = snprintf(logged.text + logged.length, sizeof logged.text - logged.length, "%s\n", line);
    if (n > 0 && logged.length + (size_t)n < sizeof logged.text)
        logged.length += (size_t)n;
    logged.lines++;
    pthread_mutex_unlock(&logged.lock);
}

static bool
log_has(const char *text)
{
    pthread_mutex_lock(&logged.lock);
    bool has = strstr(logged.text, text) != NULL;
    pthread_mutex_unlock(&logged.lock);
    return has;
}

static size_t
log_lines(void)
{
    pthread_mutex_lock(&logged.lock);
    size_t lines = logged.lines;
    pthread_mutex_unlock(&logged.lock);
    return lines;
}

static void
expect_logged(const char *text)
{
    exo_time end = exo_deadline(exo_clock_real(), WAIT_MS * EXO_MS);
    while (!log_has(text) && exo_now(exo_clock_real()) < end)
        usleep(1000);
    cr_expect(log_has(text), "'%s' is not in the log:\n%s", text, logged.text);
}

/* A node that echoes: server socket, handler, list of keys in the test's folder; `honest` is in the list. */
static struct {
    void *context, *client_context, *server;
    exo_allow_list *allow;
    exo_zap *zap;
    exo_clock_manual clock;
    exo_keys keys, honest;
    char endpoint[128];
} node;

static void
open_node_at(const char *endpoint, const exo_null_domain *domain)
{
    exo_err err = {0};
    size_t size = sizeof node.endpoint;
    exo_log_set_sink(note_line, NULL);
    node.context = zmq_ctx_new();
    node.client_context = zmq_ctx_new();
    node.keys = new_keys();
    node.honest = new_keys();
    authorize("honest", &node.honest);
    cr_assert_eq(exo_allow_list_load(&node.allow, folder, &err), EXO_OK, "%s", err.text);
    exo_clock_manual_init(&node.clock, 0);
    exo_zap_opts opts = {
        .allow = node.allow, .null_domains = domain, .num_null_domains = domain ? 1 : 0, .clock = &node.clock.base};
    cr_assert_eq(exo_zap_open(&node.zap, node.context, &opts, &err), EXO_OK, "%s", err.text);
    node.server = zmq_socket(node.context, ZMQ_ROUTER);
    if (domain)
        cr_assert_eq(exo_null_server(node.server, domain->name, &err), EXO_OK, "%s", err.text);
    else
        cr_assert_eq(exo_curve_server(node.server, &node.keys, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_zap_watch(node.zap, node.server, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(zmq_bind(node.server, endpoint), 0, "%s", zmq_strerror(zmq_errno()));
    cr_assert_eq(zmq_getsockopt(node.server, ZMQ_LAST_ENDPOINT, node.endpoint, &size), 0);
}

static void
open_node(void)
{
    setup();
    open_node_at("tcp://127.0.0.1:*", NULL);
}

static void
close_node(void)
{
    zmq_close(node.server);
    exo_time start = exo_now(exo_clock_real());
    exo_zap_close(&node.zap);
    cr_expect_lt(exo_now(exo_clock_real()) - start, 5 * EXO_SECOND);
    cr_expect_null(node.zap);
    zmq_ctx_term(node.client_context);
    zmq_ctx_term(node.context);
    exo_allow_list_free(&node.allow);
    exo_keys_release(&node.keys);
    exo_log_set_sink(NULL, NULL);
    teardown();
}

/* A peer, not connected. It has its own context, as another process has. */
static void *
new_peer(void)
{
    int zero = 0;
    void *peer = zmq_socket(node.client_context, ZMQ_DEALER);
    zmq_setsockopt(peer, ZMQ_LINGER, &zero, sizeof zero);
    return peer;
}

static void *
new_curve_peer(const exo_keys *keys, const char *server_public)
{
    exo_err err = {0};
    void *peer = new_peer();
    cr_assert_eq(exo_curve_client(peer, keys, server_public, &err), EXO_OK, "%s", err.text);
    return peer;
}

/* Whether a message that the peer sends reaches the node; `user` gets the node's name for it. */
static bool
is_heard(void *peer, long wait_ms, char user[EXO_KEY_NAME])
{
    zmq_pollitem_t item = {.socket = node.server, .events = ZMQ_POLLIN};
    bool heard = false;
    cr_assert_geq(zmq_send(peer, "hello", 5, ZMQ_DONTWAIT), 0);
    if (zmq_poll(&item, 1, wait_ms) != 1)
        return false;
    for (int more = 1; more;) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        cr_assert_geq(zmq_msg_recv(&part, node.server, ZMQ_DONTWAIT), 0);
        more = zmq_msg_more(&part);
        if (!more) {
            const char *id = zmq_msg_gets(&part, "User-Id");
            heard = zmq_msg_size(&part) == 5 && memcmp(zmq_msg_data(&part), "hello", 5) == 0;
            if (user)
                snprintf(user, EXO_KEY_NAME, "%s", id ? id : "");
        }
        zmq_msg_close(&part);
    }
    return heard;
}

static void
expect_honest_is_heard(void)
{
    char user[EXO_KEY_NAME] = "";
    void *peer = new_curve_peer(&node.honest, node.keys.public_key);
    cr_assert_eq(zmq_connect(peer, node.endpoint), 0);
    cr_expect(is_heard(peer, WAIT_MS, user), "an honest peer is not heard");
    cr_expect_str_eq(user, "honest");
    zmq_close(peer);
}

static void
expect_refused(void *peer, const char *reason)
{
    cr_assert_eq(zmq_connect(peer, node.endpoint), 0);
    cr_expect_not(is_heard(peer, QUIET_MS, NULL), "a peer that must be refused is heard");
    expect_logged(reason);
    expect_logged("peer=127.0.0.1");
    zmq_close(peer);
    expect_honest_is_heard();
}

TestSuite(zap, .init = open_node, .fini = close_node);

Test(zap, lets_in_who_is_in_the_list)
{
    expect_honest_is_heard();
    cr_expect_eq(exo_zap_accepted(node.zap), 1);
    cr_expect_eq(exo_zap_refused(node.zap), 0, "%s", logged.text);
}

Test(zap, refuses_a_key_that_is_not_in_the_list)
{
    exo_keys stranger = new_keys();
    char start[32];
    expect_refused(new_curve_peer(&stranger, node.keys.public_key), "key is not authorized");
    snprintf(start, sizeof start, "key=%.8s ", stranger.public_key);
    cr_expect(log_has(start), "%s", logged.text);
    cr_expect_null(strstr(logged.text, stranger.public_key), "the log holds the whole key");
}

/* The public key of an honest node does not make one: its secret is missing. libzmq's client proves what it has. */
Test(zap, refuses_a_stolen_public_key)
{
    exo_keys thief = new_keys();
    memcpy(thief.public_key, node.honest.public_key, sizeof thief.public_key);
    void *peer = new_curve_peer(&thief, node.keys.public_key);
    expect_refused(peer, "event=refused");
    cr_expect_eq(exo_zap_accepted(node.zap), 1, "only the honest peer");
}

/* Both sides see that their mechanisms differ, and either may be the first to end the connection. */
Test(zap, refuses_a_peer_without_key)
{
    expect_refused(new_peer(), "event=refused");
}

Test(zap, refuses_a_password)
{
    void *peer = new_peer();
    cr_assert_eq(zmq_setsockopt(peer, ZMQ_PLAIN_USERNAME, "admin", 5), 0);
    cr_assert_eq(zmq_setsockopt(peer, ZMQ_PLAIN_PASSWORD, "admin", 5), 0);
    expect_refused(peer, "event=refused");
}

Test(zap, refuses_a_peer_that_expects_another_node)
{
    exo_keys other = new_keys();
    expect_refused(new_curve_peer(&node.honest, other.public_key), "expects another key of this node");
}

static int
plain_connect(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(node.endpoint, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    struct timeval wait = {.tv_sec = WAIT_MS / 1000};
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait), 0);
    return fd;
}

/* Sends bytes on a plain connection and reads until the node ends it. */
static void
send_raw(const void *bytes, size_t size, bool half_close)
{
    char buffer[256];
    int fd = plain_connect();
    cr_assert_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
    if (half_close)
        shutdown(fd, SHUT_WR);
    while (recv(fd, buffer, sizeof buffer, 0) > 0)
        ;
    close(fd);
}

Test(zap, survives_garbage)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: node\r\n\r\n";
    static const uint8_t greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1, 'C', 'U', 'R', 'V', 'E'};
    uint8_t bytes[4096];
    zmq_pollitem_t item = {.socket = node.server, .events = ZMQ_POLLIN};
    unsigned seed = 1;
    size_t sent = 1;
    send_raw(http, sizeof http - 1, true);
    for (int i = 0; i < 20; i++) {
        for (size_t b = 0; b < sizeof bytes; b++)
            bytes[b] = (uint8_t)((seed = seed * 1103515245u + 12345u) >> 16);
        send_raw(bytes, sizeof bytes, true);
        sent += 2;
        memcpy(bytes, greeting, sizeof greeting); /* the right greeting, and then garbage */
        send_raw(bytes, sizeof bytes, true);
    }
    for (size_t cut = 0; cut <= sizeof greeting; cut += 7, sent++)
        send_raw(greeting, cut, true);
    expect_logged("does not speak the protocol");
    expect_logged("peer=127.0.0.1:");
    cr_expect_eq(zmq_poll(&item, 1, 0), 0, "garbage reaches the node");
    expect_honest_is_heard();
    exo_time end = exo_deadline(exo_clock_real(), WAIT_MS * EXO_MS);
    while (exo_zap_refused(node.zap) < sent && exo_now(exo_clock_real()) < end)
        usleep(1000);
    cr_expect_eq(exo_zap_refused(node.zap), sent, "%zu of %zu\n%s", (size_t)exo_zap_refused(node.zap), sent,
                 logged.text);
    /* The clock stands still: no more than the first ten lines. */
    cr_expect_leq(log_lines(), 10, "%s", logged.text);
    /* Garbage does not hide a peer with a key. */
    exo_keys stranger = new_keys();
    expect_refused(new_curve_peer(&stranger, node.keys.public_key), "key is not authorized");
}

/* Peers that connect and say nothing do not keep others out. */
Test(zap, is_not_held_up_by_silence)
{
    int silent[50];
    for (size_t i = 0; i < 50; i++)
        silent[i] = plain_connect();
    expect_honest_is_heard();
    for (size_t i = 0; i < 50; i++)
        close(silent[i]);
    expect_logged("gone during the handshake");
}

Test(zap, accepts_a_key_that_is_added_while_it_runs)
{
    exo_keys late = new_keys();
    char user[EXO_KEY_NAME] = "";
    void *peer = new_curve_peer(&late, node.keys.public_key);
    cr_assert_eq(zmq_connect(peer, node.endpoint), 0);
    expect_logged("key is not authorized");
    zmq_close(peer); /* libzmq does not try again after status 400: a peer that was refused connects anew */
    authorize("late", &late);
    peer = new_curve_peer(&late, node.keys.public_key);
    cr_assert_eq(zmq_connect(peer, node.endpoint), 0);
    cr_expect(is_heard(peer, WAIT_MS, user), "a key that was added is not accepted");
    cr_expect_str_eq(user, "late");
    zmq_close(peer);
    /* And no longer, once it is taken out. */
    cr_assert_eq(unlink(in_folder("late.key")), 0);
    expect_refused(new_curve_peer(&late, node.keys.public_key), "key is not authorized");
    /* A mistake in the folder shuts nobody out who was in. */
    put("wrong.key", 0644, "no key\n");
    expect_honest_is_heard();
    expect_logged("event=keys_not_read");
}

/* A node whose handler is gone, or was never there, is closed to all. */
Test(zap, is_missed_by_nobody_who_gets_in)
{
    exo_err err = {0};
    exo_zap_unwatch(node.zap, node.server);
    exo_zap_close(&node.zap);
    void *peer = new_curve_peer(&node.honest, node.keys.public_key);
    cr_assert_eq(zmq_connect(peer, node.endpoint), 0);
    cr_expect_not(is_heard(peer, QUIET_MS, NULL), "without a handler, everybody is heard");
    /* A new one opens the door again. */
    cr_assert_eq(exo_zap_open(&node.zap, node.context, &(exo_zap_opts){.allow = node.allow}, &err), EXO_OK, "%s",
                 err.text);
    zmq_close(peer);
    expect_honest_is_heard();
}

Test(zap, is_one_a_context)
{
    exo_zap *second = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_zap_open(&second, node.context, &(exo_zap_opts){0}, &err), EXO_EXISTS, "%s", err.text);
    cr_expect_null(second);
    expect_honest_is_heard();
}

/* --- Requests, as RFC 27 has them -------------------------------------------------------------------------------------- */

typedef struct part {
    const void *data;
    size_t size;
} part;

#define TEXT(text)                                                                                                     \
    {                                                                                                                  \
        (text), sizeof(text) - 1                                                                                       \
    }

static void *
new_asker(void)
{
    int zero = 0, wait = WAIT_MS;
    void *asker = zmq_socket(node.context, ZMQ_DEALER);
    zmq_setsockopt(asker, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(asker, ZMQ_RCVTIMEO, &wait, sizeof wait);
    cr_assert_eq(zmq_connect(asker, "inproc://zeromq.zap.01"), 0);
    return asker;
}

static void
ask(void *asker, const part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cr_assert_geq(zmq_send(asker, parts[i].data, parts[i].size, i + 1 < count ? ZMQ_SNDMORE : 0), 0);
}

/* Reads a reply: delimiter, version, request, code, text, user, metadata. */
static void
expect_reply(void *asker, const char *id, const char *code, const char *user)
{
    char got[16][256] = {{0}};
    int count = 0, more = 1;
    size_t size = sizeof more;
    while (more && count < 16) {
        cr_assert_geq(zmq_recv(asker, got[count++], 255, 0), 0, "no reply to %s", id);
        cr_assert_eq(zmq_getsockopt(asker, ZMQ_RCVMORE, &more, &size), 0);
    }
    cr_assert_eq(count, 7);
    cr_expect_str_eq(got[0], "");
    cr_expect_str_eq(got[1], "1.0");
    cr_expect_str_eq(got[2], id);
    cr_expect_str_eq(got[3], code, "%s: %s", got[3], got[4]);
    cr_expect_str_neq(got[4], "");
    cr_expect_str_eq(got[5], user);
    cr_expect_str_eq(got[6], "");
}

/* A request for the honest key, as libzmq sends it. */
static size_t
good_request(part parts[10], uint8_t key[EXO_KEY_BYTES])
{
    const part all[] = {TEXT(""),        TEXT("1.0"), TEXT("id-1"),  TEXT("exogym"),
                        TEXT("1.2.3.4"), TEXT(""),    TEXT("CURVE"), {key, EXO_KEY_BYTES}};
    memcpy(parts, all, sizeof all);
    cr_assert_not_null(zmq_z85_decode(key, node.honest.public_key));
    return sizeof all / sizeof *all;
}

Test(zap, answers_requests)
{
    uint8_t key[EXO_KEY_BYTES];
    part parts[10];
    void *asker = new_asker();
    size_t count = good_request(parts, key);
    ask(asker, parts, count);
    expect_reply(asker, "id-1", "200", "honest");
    key[0] ^= 1;
    ask(asker, parts, count);
    expect_reply(asker, "id-1", "400", "");
    key[0] ^= 1;
    /* Nobody without a key, with a password, or with what nobody has heard of. */
    parts[6] = (part)TEXT("NULL");
    ask(asker, parts, 7);
    expect_reply(asker, "id-1", "400", "");
    parts[6] = (part)TEXT("PLAIN");
    parts[7] = parts[8] = (part)TEXT("honest");
    ask(asker, parts, 9);
    expect_reply(asker, "id-1", "400", "");
    parts[6] = (part)TEXT("GSSAPI");
    ask(asker, parts, 8);
    expect_reply(asker, "id-1", "400", "");
    parts[6] = (part)TEXT("curve");
    parts[7] = (part){key, EXO_KEY_BYTES};
    ask(asker, parts, 8);
    expect_reply(asker, "id-1", "400", "");
    zmq_close(asker);
}

/* What can be answered is refused, what cannot is dropped, and the next request is served. */
Test(zap, survives_malformed_requests)
{
    static char large[70000];
    uint8_t key[EXO_KEY_BYTES];
    part parts[10], good[10];
    void *asker = new_asker();
    size_t count = good_request(good, key);
    for (size_t cut = 0; cut < count; cut++) { /* cut after every frame: 3 and more have an id */
        if (cut > 0)
            ask(asker, good, cut);
        if (cut >= 3)
            expect_reply(asker, "id-1", "400", "");
    }
    for (size_t at = 0; at < count; at++) { /* every frame empty, and every one too large */
        memcpy(parts, good, sizeof parts);
        parts[at] = (part)TEXT("");
        ask(asker, parts, count);
        if (at == 0 || at == 3 || at == 4 || at == 5) /* was empty, or may be */
            expect_reply(asker, "id-1", "200", "honest");
        else if (at > 2)
            expect_reply(asker, "id-1", "400", "");
        parts[at] = (part){large, sizeof large};
        ask(asker, parts, count);
        if (at > 2)
            expect_reply(asker, "id-1", "400", "");
    }
    memcpy(parts, good, sizeof parts);
    parts[7] = (part){key, 31};
    ask(asker, parts, count);
    expect_reply(asker, "id-1", "400", "");
    parts[7] = good[7];
    parts[8] = parts[9] = (part)TEXT("more");
    ask(asker, parts, 9);
    expect_reply(asker, "id-1", "400", "");
    ask(asker, parts, 10);
    expect_reply(asker, "id-1", "400", "");
    const char *const versions[] = {"1.1", "1.", "1.00", "2.0"};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        memcpy(parts, good, sizeof parts);
        parts[1] = (part){versions[i], strlen(versions[i])};
        ask(asker, parts, count);
    }
    for (size_t i = 0; i < 100; i++)
        ask(asker, &(part){large, i}, 1);
    ask(asker, good, count);
    expect_reply(asker, "id-1", "200", "honest");
    zmq_close(asker);
    expect_honest_is_heard();
}

Test(zap, logs_no_more_than_its_rate)
{
    uint8_t key[EXO_KEY_BYTES];
    part parts[10];
    void *asker = new_asker();
    size_t count = good_request(parts, key);
    key[0] ^= 1;
    for (int i = 0; i < 1000; i++) {
        ask(asker, parts, count);
        expect_reply(asker, "id-1", "400", "");
    }
    cr_expect_eq(exo_zap_refused(node.zap), 1000);
    cr_expect_eq(log_lines(), 10);
    exo_clock_manual_advance(&node.clock, 10 * EXO_SECOND - 1);
    ask(asker, parts, count);
    expect_reply(asker, "id-1", "400", "");
    cr_expect_eq(log_lines(), 10);
    exo_clock_manual_advance(&node.clock, 1);
    for (int i = 0; i < 5; i++) {
        ask(asker, parts, count);
        expect_reply(asker, "id-1", "400", "");
    }
    cr_expect_eq(log_lines(), 11);
    cr_expect(log_has("left_out=991"));
    /* After a quiet time there are ten again, and never more. */
    exo_clock_manual_advance(&node.clock, 1000 * EXO_SECOND);
    for (int i = 0; i < 50; i++) {
        ask(asker, parts, count);
        expect_reply(asker, "id-1", "400", "");
    }
    cr_expect_eq(log_lines(), 21);
    zmq_close(asker);
}

/* What a peer can put into its address cannot forge a line. */
Test(zap, logs_nothing_raw)
{
    uint8_t key[EXO_KEY_BYTES];
    part parts[10];
    void *asker = new_asker();
    size_t count = good_request(parts, key);
    key[0] ^= 1;
    parts[4] = (part)TEXT("1.2\n level=error \"\x1b[2J\xff");
    ask(asker, parts, count);
    expect_reply(asker, "id-1", "400", "");
    cr_expect(log_has("peer=1.2??level=error???[2J? key="), "%s", logged.text);
    cr_expect_eq(log_lines(), 1);
    zmq_close(asker);
}

/* --- Domains without keys --------------------------------------------------------------------------------------------- */

static void
expect_null_request(const char *address, const char *code)
{
    const part parts[] = {TEXT(""), TEXT("1.0"), TEXT("id-1"), TEXT("local"), {address, strlen(address)},
                          TEXT(""), TEXT("NULL")};
    void *asker = new_asker();
    ask(asker, parts, 7);
    expect_reply(asker, "id-1", code, "");
    zmq_close(asker);
}

TestSuite(null_domain, .init = setup, .fini = close_node);

Test(null_domain, of_ipc_lets_this_user_in)
{
    char endpoint[128], address[64];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/socket", folder);
    open_node_at(endpoint, &(exo_null_domain){"local", EXO_NULL_SAME_USER});
    void *peer = new_peer();
    cr_assert_eq(zmq_connect(peer, node.endpoint), 0);
    cr_expect(is_heard(peer, WAIT_MS, NULL), "%s", logged.text);
    zmq_close(peer);

    unsigned uid = (unsigned)geteuid();
    snprintf(address, sizeof address, "localhost:%u:1:1", uid);
    expect_null_request(address, "200");
    snprintf(address, sizeof address, "localhost:%u:1:1", uid + 1);
    expect_null_request(address, "400");
    snprintf(address, sizeof address, "localhost:%u", uid);
    expect_null_request(address, "400");
    snprintf(address, sizeof address, "localhost:-%u:1:1", uid);
    expect_null_request(address, "400");
    expect_null_request("localhost:99999999999999999999999:1:1", "400");
    expect_null_request("localhost", "400");
    expect_null_request("127.0.0.1", "400");
    expect_null_request("::1", "400");
    expect_null_request("", "400");
}

Test(null_domain, of_loopback_lets_this_host_in)
{
    open_node_at("tcp://127.0.0.1:*", &(exo_null_domain){"local", EXO_NULL_LOOPBACK});
    void *peer = new_peer();
    cr_assert_eq(zmq_connect(peer, node.endpoint), 0);
    cr_expect(is_heard(peer, WAIT_MS, NULL), "%s", logged.text);
    zmq_close(peer);
    const char *const here[] = {"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"};
    const char *const elsewhere[] = {"10.0.0.1",        "128.0.0.1", "::2", "::ffff:10.0.0.1", "127.0.0.1.example.org",
                                     "localhost:0:0:1", ""};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        expect_null_request(here[i], "200");
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        expect_null_request(elsewhere[i], "400");
}

Test(null_domain, that_is_insecure_lets_everybody_in)
{
    open_node_at("tcp://127.0.0.1:*", &(exo_null_domain){"local", EXO_NULL_ANYONE});
    expect_null_request("10.0.0.1", "200");
    /* The domain's name is the permission: nothing like it will do. */
    const part parts[] = {TEXT(""),         TEXT("1.0"), TEXT("id-1"), TEXT("locale"),
                          TEXT("10.0.0.1"), TEXT(""),    TEXT("NULL")};
    void *asker = new_asker();
    ask(asker, parts, 7);
    expect_reply(asker, "id-1", "400", "");
    zmq_close(asker);
}

/* --- Ends ------------------------------------------------------------------------------------------------------------- */

static void *
terminate(void *context)
{
    zmq_ctx_term(context);
    return NULL;
}

/* A context that ends under the handler ends the handler, and neither waits for the other for good. */
Test(zap_ends, with_its_context)
{
    void *context = zmq_ctx_new();
    exo_zap *zap = NULL;
    pthread_t thread;
    cr_assert_eq(exo_zap_open(&zap, context, &(exo_zap_opts){0}, NULL), EXO_OK);
    cr_assert_eq(pthread_create(&thread, NULL, terminate, context), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    exo_zap_close(&zap);
    exo_zap_close(&zap);
    exo_zap_close(NULL);
}

/* Sockets closed right before, and sockets still open: neither holds the end up. */
Test(zap_ends, again_and_again)
{
    for (int i = 0; i < 50; i++) {
        void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_ROUTER);
        exo_zap *zap = NULL;
        exo_keys keys = new_keys();
        cr_assert_eq(exo_zap_open(&zap, context, &(exo_zap_opts){0}, NULL), EXO_OK);
        cr_assert_eq(exo_curve_server(socket, &keys, NULL), EXO_OK);
        cr_assert_eq(exo_zap_watch(zap, socket, NULL), EXO_OK);
        cr_assert_eq(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
        if (i % 2) {
            exo_zap_unwatch(zap, socket);
            exo_zap_close(&zap);
            zmq_close(socket);
        } else {
            zmq_close(socket);
            exo_zap_close(&zap);
        }
        zmq_ctx_term(context);
    }
}

Test(zap_ends, after_a_failed_start)
{
    void *context = zmq_ctx_new();
    exo_zap *zap = NULL;
    exo_null_domain domain = {"local", EXO_NULL_SAME_USER};
    exo_zap_opts opts = {.null_domains = &domain, .num_null_domains = 1};
    for (uint64_t n = 1; n <= 2; n++) {
        exo_memory_fail_at(n);
        cr_expect_eq(exo_zap_open(&zap, context, &opts, NULL), EXO_NOMEM);
        cr_expect_null(zap);
    }
    domain.name = "";
    cr_expect_eq(exo_zap_open(&zap, context, &opts, NULL), EXO_INVAL);
    domain.name = "a domain whose name is far too long for what a request may carry in it";
    cr_expect_eq(exo_zap_open(&zap, context, &opts, NULL), EXO_INVAL);
    domain.name = "local";
    cr_expect_eq(exo_zap_open(&zap, context, &opts, NULL), EXO_OK);
    exo_zap_close(&zap);
    zmq_ctx_term(context);
}

Test(sockets, take_no_bad_keys)
{
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    exo_keys keys = new_keys(), bad = keys;
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
