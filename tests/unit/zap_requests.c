/* The ZAP handler seen by libzmq: requests of RFC 27, valid and malformed, their log lines, and
 * domains without keys.
 *
 * Each test owns the node of zap_node.h, and asks its handler through the socket that libzmq uses.
 * Read next: runtime/net/zap.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <zmq.h>

#include "support/key_folder.h"
#include "support/logged.h"
#include "support/zap_node.h"

struct zap_node zap_node;
char key_folder[64];
struct logged logged = LOGGED_NONE;

TestSuite(zap, .init = zap_node_open, .fini = zap_node_close);

typedef struct part {
    const void *data;
    size_t size;
} part;

#define TEXT(text)                                                                                 \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

static void *
new_asker(void)
{
    int zero = 0, wait = ZAP_NODE_WAIT_MS;
    void *asker = zmq_socket(zap_node.context, ZMQ_DEALER);
    zmq_setsockopt(asker, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(asker, ZMQ_RCVTIMEO, &wait, sizeof wait);
    cr_assert_eq(zmq_connect(asker, "inproc://zeromq.zap.01"), 0);
    return asker;
}

static void
ask(void *asker, const part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cr_assert_geq(
            zmq_send(asker, parts[i].data, parts[i].size, i + 1 < count ? ZMQ_SNDMORE : 0), 0);
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
    /* The metadata of a peer that a key admitted has the key as a property: lengths in ZMTP's form,
     * and texts. */
    static const char property[] = "\x0cX-Exogym-Key\0\0\0\x28";
    cr_expect(user[0] ? memcmp(got[6], property, sizeof property - 1) == 0 : got[6][0] == 0);
    cr_expect_str_eq(got[6] + (user[0] ? sizeof property - 1 : 0),
                     user[0] ? zap_node.honest.public_key : "");
}

/* Makes a request for the honest key, as libzmq sends it. */
static size_t
good_request(part parts[10], uint8_t key[EXO_KEY_BYTES])
{
    const part all[] = {TEXT(""),        TEXT("1.0"), TEXT("id-1"),  TEXT("exogym"),
                        TEXT("1.2.3.4"), TEXT(""),    TEXT("CURVE"), {key, EXO_KEY_BYTES}};
    memcpy(parts, all, sizeof all);
    cr_assert_not_null(zmq_z85_decode(key, zap_node.honest.public_key));
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
    /* Refused: no key, a password, and an unknown mechanism. */
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

/* A malformed request is refused if it can be answered, and dropped if not; the next request is
 * served. */
Test(zap, survives_malformed_requests)
{
    static char large[70000];
    uint8_t key[EXO_KEY_BYTES];
    part parts[10], good[10];
    void *asker = new_asker();
    size_t count = good_request(good, key);
    /* cut after every frame: from the third on there is an id */
    for (size_t cut = 0; cut < count; cut++) {
        if (cut > 0)
            ask(asker, good, cut);
        if (cut >= 3)
            expect_reply(asker, "id-1", "400", "");
    }
    for (size_t at = 0; at < count; at++) { /* every frame empty, and every frame too large */
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
    zap_node_expect_honest();
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
    cr_expect_eq(exo_zap_refused(zap_node.zap), 1000);
    cr_expect_eq(logged_lines(), 10);
    exo_clock_manual_advance(&zap_node.clock, 10 * EXO_SECOND - 1);
    ask(asker, parts, count);
    expect_reply(asker, "id-1", "400", "");
    cr_expect_eq(logged_lines(), 10);
    exo_clock_manual_advance(&zap_node.clock, 1);
    for (int i = 0; i < 5; i++) {
        ask(asker, parts, count);
        expect_reply(asker, "id-1", "400", "");
    }
    cr_expect_eq(logged_lines(), 11);
    cr_expect(logged_has("left_out=991"));
    /* After a quiet time there are ten lines again, and never more. */
    exo_clock_manual_advance(&zap_node.clock, 1000 * EXO_SECOND);
    for (int i = 0; i < 50; i++) {
        ask(asker, parts, count);
        expect_reply(asker, "id-1", "400", "");
    }
    cr_expect_eq(logged_lines(), 21);
    zmq_close(asker);
}

/* An address that a peer chooses cannot forge a log line. */
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
    cr_expect(logged_has("peer=1.2??level=error???[2J? key="), "%s", logged_text());
    cr_expect_eq(logged_lines(), 1);
    zmq_close(asker);
}

/* --- Domains without keys --------------------------------------------------------------------- */

static void
expect_null_request(const char *address, const char *code)
{
    const part parts[] = {
        TEXT(""), TEXT("1.0"), TEXT("id-1"), TEXT("local"), {address, strlen(address)},
        TEXT(""), TEXT("NULL")};
    void *asker = new_asker();
    ask(asker, parts, 7);
    expect_reply(asker, "id-1", code, "");
    zmq_close(asker);
}

TestSuite(null_domain, .init = key_folder_setup, .fini = zap_node_close);

Test(null_domain, of_ipc_lets_this_user_in)
{
    char endpoint[128], address[64];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/socket", key_folder);
    zap_node_open_at(endpoint, &(exo_null_domain){"local", EXO_NULL_SAME_USER});
    void *peer = zap_node_new_peer();
    cr_assert_eq(zmq_connect(peer, zap_node.endpoint), 0);
    cr_expect(zap_node_hears(peer, ZAP_NODE_WAIT_MS, NULL), "%s", logged_text());
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
    zap_node_open_at("tcp://127.0.0.1:*", &(exo_null_domain){"local", EXO_NULL_LOOPBACK});
    void *peer = zap_node_new_peer();
    cr_assert_eq(zmq_connect(peer, zap_node.endpoint), 0);
    cr_expect(zap_node_hears(peer, ZAP_NODE_WAIT_MS, NULL), "%s", logged_text());
    zmq_close(peer);
    const char *const here[] = {"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"};
    const char *const elsewhere[] = {
        "10.0.0.1",        "128.0.0.1", "::2", "::ffff:10.0.0.1", "127.0.0.1.example.org",
        "localhost:0:0:1", ""};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        expect_null_request(here[i], "200");
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        expect_null_request(elsewhere[i], "400");
}

Test(null_domain, that_is_insecure_lets_everybody_in)
{
    zap_node_open_at("tcp://127.0.0.1:*", &(exo_null_domain){"local", EXO_NULL_ANYONE});
    expect_null_request("10.0.0.1", "200");
    /* Only the exact name of the domain is the permission. */
    const part parts[] = {TEXT(""),         TEXT("1.0"), TEXT("id-1"), TEXT("locale"),
                          TEXT("10.0.0.1"), TEXT(""),    TEXT("NULL")};
    void *asker = new_asker();
    ask(asker, parts, 7);
    expect_reply(asker, "id-1", "400", "");
    zmq_close(asker);
}
