/* A net and its process's descriptors: strangers cannot use them up, a lack of descriptors loses no
 * peer, and peers that leave give theirs back.
 *
 * Each test is a process with few descriptors; strangers are plain connections that the test makes.
 * Read next: runtime/net/intake.h. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/file.h"
#include "net/net_impl.h"
#include "net/net_limits.h"
#include "net/process.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

static unsigned
descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    cr_assert_not_null(dir);
    for (const struct dirent *e; (e = readdir(dir));)
        count += e->d_name[0] != '.';
    closedir(dir);
    return count - 1; /* without that of `dir` */
}

static void
have_few(rlim_t soft, rlim_t hard)
{
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = soft, .rlim_max = hard}), 0);
}

/* Makes a socket of the endpoint's kind. */
static int
new_socket(const char *endpoint)
{
    int fd = socket(strncmp(endpoint, "ipc://", 6) == 0 ? AF_UNIX : AF_INET,
                    SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    return fd;
}

static void
connect_to(int fd, const char *endpoint)
{
    union {
        struct sockaddr any;
        struct sockaddr_un path;
        struct sockaddr_in tcp;
    } to = {0};
    bool ipc = strncmp(endpoint, "ipc://", 6) == 0;
    if (ipc) {
        to.path.sun_family = AF_UNIX;
        snprintf(to.path.sun_path, sizeof to.path.sun_path, "%s", endpoint + 6);
    } else {
        to.tcp.sin_family = AF_INET;
        to.tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.tcp.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
    }
    /* the listener may reset the connection before connect looks at its state again */
    cr_assert(connect(fd, &to.any, ipc ? sizeof to.path : sizeof to.tcp) == 0 ||
              errno == ECONNRESET);
}

/* Makes a plain connection. */
static int
knock(const char *endpoint)
{
    int fd = new_socket(endpoint);
    connect_to(fd, endpoint);
    return fd;
}

static bool
has_ended(int fd)
{
    char byte;
    ssize_t got;
    while ((got = recv(fd, &byte, 1, MSG_DONTWAIT)) > 0)
        continue; /* skips ZeroMQ's greeting */
    return got == 0 || errno == ECONNRESET || errno == ENOTCONN;
}

static uint64_t
strangers(const net_end *e)
{
    pthread_mutex_lock(&e->net->lock);
    uint64_t count = exo_intake_tick(NULL).strangers;
    pthread_mutex_unlock(&e->net->lock);
    return count;
}

/* The number of strangers that were ended to make room. */
static uint64_t
ended(void)
{
    return exo_intake_tick(NULL).ended;
}

static void
expect_heard(net_end *server, net_end *client, exo_peer *peer)
{
    exo_payload none = {0};
    unsigned calls = server->calls;
    cr_assert_eq(net_end_call(client, peer, "add", &none), EXO_OK);
    exo_net_flush(client->net);
    EVENTUALLY(server->calls == calls + 1);
}

Test(net, raises_the_soft_limit_of_descriptors)
{
    struct rlimit limit;
    net_end server = {0};
    have_few(300, 700);
    net_end_open(&server, net_end_ipc, NULL);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect_eq(limit.rlim_cur, 700);
    net_end_close(&server);
}

Test(net, says_that_descriptors_are_too_few)
{
    net_end end = {0};
    exo_err err = {0};
    have_few(40, 40);
    cr_expect_eq(exo_net_open(&end.net, &(exo_net_opts){.name = "poor"}, &err), EXO_FULL);
    cr_expect_not_null(strstr(err.text, "40 descriptors, and connections need at least 64"), "%s",
                       err.text);
}

/* A process without a descriptor accepts nobody: those who wait for it say why that may be. */
Test(net, says_that_a_silent_process_may_lack_descriptors)
{
    for (int few = 0; few < 2; few++) {
        net_end server = {0}, client = {0};
        exo_peer *peer = NULL;
        exo_err err = {0};
        const rlim_t limit = few ? 200 : 300;
        have_few(limit, few ? limit : 700);
        net_end_open(&server, net_end_ipc, &(exo_net_opts){.held = true});
        net_end_open(&client, NULL, NULL);
        cr_expect_eq(exo_net_connect(client.net, exo_net_endpoint(server.net, 0), NULL,
                                     exo_deadline(exo_clock_real(), 50 * EXO_MS), &peer, &err),
                     EXO_TIMEOUT);
        const char *hint =
            strstr(err.text, "processes here may have 200 each; raise the limit (ulimit -n)");
        cr_expect_eq(hint != NULL, few, "%s", err.text);
        net_end_close(&client);
        net_end_close(&server);
    }
}

/* Lets the net write its lines of the log about connections that were kept out. */
static void
say_kept_out(const net_end *e)
{
    pthread_mutex_lock(&e->net->lock);
    for (int i = 0; i < 20; i++)
        exo_net_tick_locked(e->net, exo_now(exo_clock_real()));
    pthread_mutex_unlock(&e->net->lock);
}

Test(net, a_file_that_finds_no_descriptor_says_which_limit_to_raise)
{
    char *text = NULL;
    size_t size = 0;
    exo_err err = {0};
    have_few(0, 64);
    cr_expect_neq(exo_file_read("/proc/self/stat", 4096, &text, &size, &err), EXO_OK);
    have_few(64, 64); /* for what ends the test */
    cr_expect(strstr(err.text, "/proc/self/stat: ") && strstr(err.text, "ulimit -n"), "%s",
              err.text);
}

/* The kernel has accepted connections for which the process has no descriptor. The process goes on,
 * and serves when it has descriptors again. ZeroMQ closes descriptors of its closed sockets in a
 * thread of its own, so a few of the strangers may get one, and are ended when their time for a
 * handshake is over. */
Test(net, survives_without_a_descriptor)
{
    for (int i = 0; i < 2; i++) {
        net_end server = {0}, client = {0};
        int own[200], knocking[20];
        char line[64];
        size_t count = 0;
        have_few(200, 200);
        net_end_open(&server, net_end_endpoint(i), NULL);
        net_end_open(&client, NULL, NULL);
        exo_peer *peer = net_end_connect(&client, &server);
        for (size_t k = 0; k < 20; k++)
            knocking[k] = new_socket(exo_net_endpoint(server.net, 0));
        while (count < 200 && (own[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
            count++;
        cr_assert(count < 200 && errno == EMFILE);
        uint64_t kept_out = exo_intake_tick(NULL).starved;
        for (size_t k = 0; k < 20; k++)
            connect_to(knocking[k], exo_net_endpoint(server.net, 0));
        for (size_t k = 0; k < 20; k++)
            EVENTUALLY(has_ended(knocking[k]));
        kept_out = exo_intake_tick(NULL).starved - kept_out;
        cr_expect(kept_out > 0 && kept_out <= 20, "%" PRIu64 " of 20 were kept out", kept_out);
        snprintf(line, sizeof line, "event=descriptors_short kept_out=%" PRIu64 " ", kept_out);
        expect_heard(&server, &client, peer);
        for (size_t k = 0; k < count; k++)
            close(own[k]);
        logged_begin();
        say_kept_out(&server);
        cr_expect(logged_has(line), "%s", logged_text());
        cr_expect(logged_has(" limit=200: "), "%s", logged_text());
        cr_expect(!logged_has("event=crowded"), "the strangers are blamed: %s", logged_text());
        logged_end();
        for (size_t k = 0; k < 20; k++)
            close(knocking[k]);
        net_end late = {0};
        net_end_open(&late, NULL, NULL);
        exo_peer *other = net_end_connect(&late, &server);
        expect_heard(&server, &late, other);
        cr_expect_eq(late.net->starved, server.net->starved, "it counts those before its time");
        exo_peer_drop(&other);
        exo_peer_drop(&peer);
        net_end_close(&late);
        net_end_close(&client);
        net_end_close(&server);
    }
}

/* Without a descriptor a process cannot look whether another one lives: that is no sign of its
 * end. */
Test(net, does_not_take_a_living_process_for_ended)
{
    net_end server = {0}, client = {0};
    uint32_t self = (uint32_t)getpid();
    uint64_t start = exo_process_start(self);
    struct rlimit limit;
    net_end_open(&server, net_end_ipc, &(exo_net_opts){.peer_timeout = 100 * EXO_MS});
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    expect_heard(&server, &client, peer);
    cr_expect(!exo_process_has_ended(self, start));
    cr_expect(exo_process_has_ended(self, start + 1), "the number is another process's");
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    pthread_mutex_lock(&server.net->lock);
    exo_net_unwatch_locked(server.net, server.peer->process_fd);
    close(server.peer->process_fd);
    server.peer->process_fd = -1; /* as if it could not be watched */
    have_few(3, limit.rlim_max);
    cr_expect(!exo_process_look(self, &start) && errno == EMFILE);
    cr_expect(!exo_process_has_ended(self, start + 1));
    exo_net_tick_locked(server.net, server.peer->heard + EXO_SECOND);
    have_few(limit.rlim_cur, limit.rlim_max);
    cr_expect_eq(atomic_load(&server.peer->state), EXO_PEER_OPEN);
    pthread_mutex_unlock(&server.net->lock);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* The last descriptors are reserved. A connection that gets one of them is ended, and the thread
 * that ended it goes on. */
Test(net, a_connection_that_is_ended_at_once_stops_nobody)
{
    for (int i = 0; i < 2; i++) {
        net_end server = {0}, client = {0};
        int own[200];
        size_t count = 0;
        have_few(200, 200);
        net_end_open(&server, net_end_endpoint(i), NULL);
        net_end_open(&client, NULL, NULL);
        exo_peer *peer = net_end_connect(&client, &server);
        int knocking = new_socket(exo_net_endpoint(server.net, 0));
        while (count < 200 && (own[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
            count++;
        cr_assert(count > 2 && count < 200 && errno == EMFILE);
        close(own[--count]);
        connect_to(knocking, exo_net_endpoint(server.net, 0));
        EVENTUALLY(has_ended(knocking));
        expect_heard(&server, &client, peer);
        while (count > 0)
            close(own[--count]);
        close(knocking);
        exo_peer_drop(&peer);
        net_end_close(&client);
        net_end_close(&server);
    }
}

/* Strangers of one address take less than all strangers together: one more than their share ends
 * one of them. On a busy machine their own time limit may end them before there are so many, so
 * there are several tries. */
static void
expect_share_of_an_address(net_end *server)
{
    enum {
        ALL = 240, /* fewer than all addresses together may have */
        TRIES = 20
    };
    static int fds[ALL];
    for (int i = 0; i < TRIES && ended() == 0; i++) {
        for (size_t k = 0; k < ALL; k++)
            fds[k] = knock(exo_net_endpoint(server->net, 0));
        EVENTUALLY(ended() > 0 || strangers(server) == 0);
        for (size_t k = 0; k < ALL; k++)
            close(fds[k]);
        EVENTUALLY(strangers(server) == 0);
    }
    cr_expect_gt(ended(), 0, "no stranger was ended to make room");
}

/* Strangers that connect and send nothing are bounded in number. Peers stay connected, and an
 * honest process can join beside the strangers. */
Test(net, strangers_take_no_more_than_their_share)
{
    enum {
        KNOCKS = 600
    };
    static int fds[KNOCKS];
    net_end server = {0}, client = {0}, late = {0};
    have_few(2000, 2000);
    net_end_open(&server, "tcp://127.0.0.1:0", NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    expect_share_of_an_address(&server);
    unsigned before = descriptors();
    for (size_t k = 0; k < KNOCKS; k++)
        fds[k] = knock(exo_net_endpoint(server.net, 0));
    EVENTUALLY(descriptors() <= before + KNOCKS + EXO_LIMIT_STRANGERS_ADDRESS);
    expect_heard(&server, &client, peer);
    net_end_open(&late, NULL, NULL);
    exo_peer *other = net_end_connect(&late, &server);
    expect_heard(&server, &late, other);
    for (size_t k = 0; k < KNOCKS; k++) /* the rest end by their own time limit */
        EVENTUALLY(has_ended(fds[k]));
    for (size_t k = 0; k < KNOCKS; k++)
        close(fds[k]);
    EVENTUALLY(strangers(&server) == 0);
    expect_heard(&server, &client, peer);
    exo_peer_drop(&other);
    exo_peer_drop(&peer);
    net_end_close(&late);
    net_end_close(&client);
    net_end_close(&server);
}

/* A stranger may send far less than a message. */
Test(net, a_stranger_sends_little)
{
    static const unsigned char greeting[64] = {0xff, [9] = 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    static const unsigned char command[9] = {6, [5] = 0x10}; /* a command of 2^24 bytes */
    static char zeros[1 << 16];
    for (int i = 0; i < 2; i++) {
        net_end server = {0};
        size_t sent = 0;
        net_end_open(&server, net_end_endpoint(i), NULL);
        int fd = knock(exo_net_endpoint(server.net, 0));
        /* on a busy machine the stranger's time may be over before it has said anything */
        while (send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting ||
               send(fd, command, sizeof command, MSG_NOSIGNAL) != sizeof command) {
            close(fd);
            fd = knock(exo_net_endpoint(server.net, 0));
        }
        for (ssize_t got;
             sent < 64 << 20 && (got = send(fd, zeros, sizeof zeros, MSG_NOSIGNAL)) > 0;)
            sent += (size_t)got;
        cr_expect_lt(sent, 64 << 20, "all was taken");
        EVENTUALLY(has_ended(fd));
        close(fd);
        net_end_close(&server);
    }
}

/* There is no bound on the total bytes of a peer, only on its unread bytes. */
Test(net, a_peer_sends_as_much_as_it_wants)
{
    for (int i = 0; i < 2; i++) {
        net_end server = {0}, client = {0};
        net_end_open(&server, net_end_endpoint(i), NULL);
        net_end_open(&client, NULL, NULL);
        exo_peer *peer = net_end_connect(&client, &server);
        for (unsigned k = 0; k < 12; k++) {
            exo_payload large = net_end_zeros(100 << 20);
            cr_assert_eq(net_end_call(&client, peer, "add", &large), EXO_OK);
            EVENTUALLY(server.calls == k + 1);
        }
        cr_expect_eq(server.lost + client.lost, 0);
        exo_peer_drop(&peer);
        net_end_close(&client);
        net_end_close(&server);
    }
}

/* A peer of this host may end its connection and live on. Nothing of it is left, whichever end lost
 * the other without a Goodbye. */
Test(net, gives_back_what_peers_of_this_host_took)
{
    net_end server = {0};
    net_end_open(&server, net_end_ipc, NULL);
    unsigned before = 0;
    for (int i = 0; i < 6; i++) {
        net_end client = {0};
        unsigned lost = server.lost;
        net_end_open(&client, NULL, NULL);
        exo_peer *peer = net_end_connect(&client, &server);
        expect_heard(&server, &client, peer);
        if (i % 2) { /* as after a message that made no sense */
            pthread_mutex_lock(&client.net->lock);
            exo_peer_lose_locked(client.net, peer, "it is a test");
            pthread_mutex_unlock(&client.net->lock);
            EVENTUALLY(server.lost == lost + 1);
        }
        exo_peer_drop(&peer);
        net_end_close(&client);
        EVENTUALLY(server.lost == lost + 1);
        if (i == 1)
            before = descriptors();
    }
    EVENTUALLY(descriptors() <= before);
    net_end_close(&server);
}

/* The other direction: the end that connected notices too. */
Test(net, hears_that_it_was_lost_without_a_word)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    expect_heard(&server, &client, peer);
    pthread_mutex_lock(&server.net->lock);
    exo_peer_lose_locked(server.net, server.peer, "it is a test");
    pthread_mutex_unlock(&server.net->lock);
    EVENTUALLY(client.lost == 1);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}
