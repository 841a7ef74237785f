/* Nets that close connections to a process that has stopped reading in the middle of a message, and that
 * then dies. ZeroMQ would end the closing process if it learned of that at the end of its linger.
 *
 * Three processes: the test's; one that reads nothing, which the test stops and kills; one that closes,
 * whose status is the result. The latter stands still while the former dies, so that the end of its
 * linger and the reset come together. Read next: exo_intake_leave in runtime/net/intake.c. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <utlist.h>

#include "net/net_impl.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"

enum {
    CONNECTIONS = 16, /* some stop in the middle of a message */
    GATHERED = 30000, /* bytes of a message's first frame */
    FRAMED = EXO_WIRE_INLINE + 1,
    LINGER_US = 200000 /* longer than the linger */
};

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

/* A child and two pipes to it. */
struct child {
    pid_t pid;
    int say[2], hear[2];
};

static void
open_pipes(struct child *c)
{
    cr_assert_eq(pipe(c->say), 0);
    cr_assert_eq(pipe(c->hear), 0);
}

static void
write_byte(int fd)
{
    if (write(fd, "x", 1) != 1)
        _exit(2);
}

static void
await_byte(int fd)
{
    char byte;
    if (read(fd, &byte, 1) != 1)
        _exit(3);
}

/* In the test's process, an end of the child is a failure. */
static void
hear(struct child *c)
{
    char byte;
    cr_assert_eq(read(c->hear[0], &byte, 1), 1, "a child has ended");
}

static pid_t
begin(struct child *c)
{
    open_pipes(c);
    c->pid = fork();
    cr_assert_geq(c->pid, 0);
    close(c->hear[c->pid == 0 ? 0 : 1]);
    close(c->say[c->pid == 0 ? 1 : 0]);
    return c->pid;
}

static void
open_net(net_end *e, const char *endpoint)
{
    exo_net_opts opts = {.name = "end",
                         .endpoints = &endpoint,
                         .num_endpoints = endpoint ? 1 : 0,
                         .handler = &net_end_handler,
                         .context = e,
                         .peer_timeout = 600 * EXO_SECOND};
    if (exo_net_open(&e->net, &opts, NULL) != EXO_OK)
        _exit(4);
}

/* Messages of two frames, of which the first is longer than what ZeroMQ takes at a time, until the
 * peer's window is used up: more than the kernel keeps. */
static void
fill(net_end *from, exo_peer *peer)
{
    for (int bytes = 0; bytes < EXO_LIMIT_WINDOW; bytes += GATHERED + FRAMED) {
        exo_payload small = net_end_zeros(GATHERED), large = net_end_zeros(FRAMED);
        net_end_call(from, peer, "nothing", &small);
        net_end_call(from, peer, "nothing", &large);
    }
}

/* --- The processes ---------------------------------------------------------------------------- */

struct place {
    char endpoint[EXO_WIRE_NAME];
};

static void
tell_place(const struct child *c, const net_end *e)
{
    struct place at = {0};
    snprintf(at.endpoint, sizeof at.endpoint, "%s", exo_net_endpoint(e->net, 0));
    if (write(c->hear[1], &at, sizeof at) != sizeof at)
        _exit(2);
}

static void
join(net_end *ends, exo_peer **peers, const char *endpoint)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        open_net(&ends[i], NULL);
        if (exo_net_connect(ends[i].net, endpoint, NULL, in_ms(60000), &peers[i], NULL) != EXO_OK)
            _exit(5);
    }
}

/* Says when it has closed, or is about to, and ends when it has stood still. */
static void
end(struct child *c)
{
    write_byte(c->hear[1]);
    await_byte(c->say[0]);
    _exit(0);
}

/* Connects, and loses its peers while its nets live on. */
static void
be_connecting(struct child *c, const char *endpoint)
{
    static net_end ends[CONNECTIONS];
    exo_peer *peers[CONNECTIONS];
    join(ends, peers, endpoint);
    write_byte(c->hear[1]);
    await_byte(c->say[0]);
    for (int i = 0; i < CONNECTIONS; i++)
        fill(&ends[i], peers[i]);
    usleep(LINGER_US); /* for ZeroMQ to send what it can */
    for (int i = 0; i < CONNECTIONS; i++)
        exo_peer_lose(ends[i].net, peers[i], "enough");
    end(c);
}

/* Listens, and closes its net. */
static void
be_listening(struct child *c)
{
    static net_end self;
    open_net(&self, net_end_endpoint(1));
    tell_place(c, &self);
    await_byte(c->say[0]);
    pthread_mutex_lock(&self.net->lock);
    exo_peer *peers[CONNECTIONS], *p;
    int count = 0;
    DL_FOREACH(self.net->peers, p)
    if (count < CONNECTIONS)
        peers[count++] = exo_peer_hold(p);
    pthread_mutex_unlock(&self.net->lock);
    for (int i = 0; i < count; i++)
        fill(&self, peers[i]);
    usleep(LINGER_US);
    for (int i = 0; i < count; i++)
        exo_peer_drop(&peers[i]);
    write_byte(c->hear[1]);
    exo_net_close(&self.net);
    end(c);
}

/* The one that will read nothing. With no endpoint to connect to, it listens. */
static void
be_stuck(struct child *c, const char *connect_to)
{
    static net_end ends[CONNECTIONS];
    exo_peer *peers[CONNECTIONS];
    if (connect_to) {
        join(ends, peers, connect_to);
        write_byte(c->hear[1]);
    } else {
        open_net(&ends[0], net_end_endpoint(1));
        tell_place(c, &ends[0]);
    }
    for (;;)
        pause();
}

static struct place
hear_place(struct child *c)
{
    struct place at;
    cr_assert_eq(read(c->hear[0], &at, sizeof at), sizeof at, "a child has ended");
    return at;
}

/* Called when `closing` has closed its sockets, within its linger if the machine is not slow. */
static void
die_together(struct child *closing, struct child *stuck)
{
    int status = 0;
    usleep(LINGER_US / 8); /* for ZeroMQ's threads to begin to close */
    kill(closing->pid, SIGSTOP);
    kill(stuck->pid, SIGKILL);
    waitpid(stuck->pid, NULL, 0);
    usleep(LINGER_US);
    kill(closing->pid, SIGCONT);
    write_byte(closing->say[1]);
    cr_assert_eq(waitpid(closing->pid, &status, 0), closing->pid);
    cr_expect(WIFEXITED(status), "signal %d", WTERMSIG(status));
    cr_expect_eq(status, 0, "status %d", WEXITSTATUS(status));
}

Test(net, closes_a_connection_that_hangs_and_is_reset)
{
    struct child stuck, closing;
    if (begin(&stuck) == 0)
        be_stuck(&stuck, NULL);
    struct place at = hear_place(&stuck);
    if (begin(&closing) == 0)
        be_connecting(&closing, at.endpoint);
    hear(&closing);
    kill(stuck.pid, SIGSTOP);
    write_byte(closing.say[1]);
    hear(&closing);
    die_together(&closing, &stuck);
}

Test(net, ends_while_connections_hang_and_are_reset)
{
    struct child stuck, closing;
    if (begin(&closing) == 0)
        be_listening(&closing);
    struct place at = hear_place(&closing);
    if (begin(&stuck) == 0)
        be_stuck(&stuck, at.endpoint);
    hear(&stuck);
    kill(stuck.pid, SIGSTOP);
    write_byte(closing.say[1]);
    hear(&closing);
    die_together(&closing, &stuck);
}
