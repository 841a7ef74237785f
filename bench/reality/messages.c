/* Sends messages over TCP between hosts in network namespaces, and compares the times with the
 * predictions of the model of links (link.h).
 *
 *     messages PREFIX N UP_BITS DOWN_BITS LATENCY_MS LOSS REPEATS PATTERN BYTES
 *
 * namespaces.sh makes the namespaces PREFIX_0 .. PREFIX_(N-1); host I has the address 10.78.I.2.
 * PATTERN is one of
 *
 *     one   host 0 sends a message to host 1
 *     out   host 0 sends a message to each other host
 *     in    each other host sends a message to host 0
 *     all   an all_reduce of BYTES, as in far.c: each host sends 1/N of the bytes to each other
 *           host; a host that has the parts of all others then sends 1/N to each of them again
 *
 * The pattern runs three times in each repeat: on fresh connections (`cold`), soon after (`warm`),
 * and after 3 s of silence (`idle`). Each of the three gives a line with the medians of the
 * measured and of the predicted time until the last byte has arrived, the error of the prediction,
 * and the least and the largest measured time. One thread has all sockets, so one clock gives all
 * times.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"
#include "link/link.h"

enum {
    MAX_HOSTS = 16,
    EVENTS = 3,
    PORT = 7878,
    CHUNK = 1 << 20
};

#define OUTGOING (UINT32_C(1) << 31) /* in an epoll event: the sending socket of a way */
#define DEADLINE (60 * EXO_SECOND)
#define PAUSE    (60 * EXO_MS)
#define SILENCE  (3 * EXO_SECOND)

struct way {
    uint32_t from, to;
    int out, in;
    uint64_t to_send, received; /* bytes left to send, and received in this event */
};

static struct {
    const char *prefix, *pattern;
    uint32_t n;
    double up, down, loss;
    exo_time latency;
    uint64_t bytes;
    struct way ways[MAX_HOSTS * MAX_HOSTS];
    uint32_t num_ways;
    int epoll;
} run;

static const char *const event_names[EVENTS] = {"cold", "warm", "idle"};

static void
fail(const char *what)
{
    fprintf(stderr, "messages: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* --- Connections ------------------------------------------------------------------------------ */

static void
enter(uint32_t host)
{
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s_%u", run.prefix, host);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        fail(path);
    close(fd);
}

static struct sockaddr_in
address(uint32_t host)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    a.sin_addr.s_addr = htonl(10u << 24 | 78u << 16 | host << 8 | 2u);
    return a;
}

static int
open_socket(void)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0 || /* as libzmq */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0)
        fail("socket");
    return fd;
}

static void
wait_for(int fd, uint32_t events)
{
    struct epoll_event e = {.events = events};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) != 0 ||
        epoll_wait(epoll, &e, 1, 20000) != 1)
        fail("connecting");
    close(epoll);
}

static void
add_way(uint32_t from, uint32_t to)
{
    run.ways[run.num_ways++] = (struct way){.from = from, .to = to, .out = -1, .in = -1};
}

static void
accept_way(int listener, uint32_t to)
{
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    wait_for(listener, EPOLLIN);
    int fd =
        accept4(listener, (struct sockaddr *)(void *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        fail("accept");
    for (uint32_t i = 0; i < run.num_ways; i++)
        if (run.ways[i].to == to &&
            address(run.ways[i].from).sin_addr.s_addr == peer.sin_addr.s_addr)
            run.ways[i].in = fd;
}

static void
connect_all(void)
{
    int listeners[MAX_HOSTS];
    for (uint32_t host = 0; host < run.n; host++) {
        struct sockaddr_in a = address(host);
        enter(host);
        listeners[host] = open_socket();
        if (bind(listeners[host], (struct sockaddr *)(void *)&a, sizeof a) != 0 ||
            listen(listeners[host], MAX_HOSTS) != 0)
            fail("listen");
        for (uint32_t i = 0; i < run.num_ways; i++)
            if (run.ways[i].from == host)
                run.ways[i].out = open_socket();
    }
    for (uint32_t i = 0; i < run.num_ways; i++) {
        struct sockaddr_in a = address(run.ways[i].to);
        if (connect(run.ways[i].out, (struct sockaddr *)(void *)&a, sizeof a) != 0 &&
            errno != EINPROGRESS)
            fail("connect");
    }
    for (uint32_t i = 0; i < run.num_ways; i++)
        accept_way(listeners[run.ways[i].to], run.ways[i].to);
    run.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < run.num_ways; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        struct epoll_event out = {.events = EPOLLOUT | EPOLLET, .data.u32 = i | OUTGOING};
        if (run.ways[i].in < 0)
            fail("a connection that nobody opened");
        wait_for(run.ways[i].out, EPOLLOUT);
        if (epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.ways[i].in, &e) != 0 ||
            epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.ways[i].out, &out) != 0)
            fail("epoll");
    }
    for (uint32_t host = 0; host < run.n; host++)
        close(listeners[host]);
}

static void
disconnect_all(void)
{
    const struct linger at_once = {.l_onoff = 1};
    for (uint32_t i = 0; i < run.num_ways; i++) {
        setsockopt(run.ways[i].out, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(run.ways[i].out);
        close(run.ways[i].in);
    }
    close(run.epoll);
}

/* --- Measuring -------------------------------------------------------------------------------- */

static void
push(struct way *w)
{
    static const char zeros[CHUNK];
    while (w->to_send > 0) {
        ssize_t sent = send(w->out, zeros, w->to_send < CHUNK ? w->to_send : CHUNK, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return;
        if (sent < 0)
            fail("send");
        w->to_send -= (uint64_t)sent;
    }
}

static void
pull(struct way *w)
{
    for (;;) {
        ssize_t got = recv(w->in, NULL, CHUNK, MSG_TRUNC); /* the kernel discards the data */
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0)
            fail("recv");
        w->received += (uint64_t)got;
    }
}

static void
start_way(struct way *w, uint64_t bytes)
{
    w->to_send += bytes;
    push(w);
}

/* The second half of an all_reduce, for a member that has the parts of all others. */
static void
second_phase(uint32_t member, uint64_t bytes)
{
    for (uint32_t i = 0; i < run.num_ways; i++)
        if (run.ways[i].from == member)
            start_way(&run.ways[i], bytes);
}

/* Sends the messages of the pattern. Returns the time at which the last byte has arrived. */
static exo_time
measure(void)
{
    bool all = strcmp(run.pattern, "all") == 0;
    uint64_t bytes = all ? run.bytes / run.n : run.bytes;
    uint32_t left = run.num_ways * (all ? 2 : 1), missing[MAX_HOSTS] = {0};
    exo_time deadline = bench_now() + DEADLINE, last = 0;
    for (uint32_t i = 0; i < run.num_ways; i++) {
        missing[run.ways[i].to]++;
        run.ways[i].received = 0;
    }
    for (uint32_t i = 0; i < run.num_ways; i++)
        start_way(&run.ways[i], bytes);
    while (left > 0) {
        struct epoll_event events[64];
        int count = epoll_wait(run.epoll, events, 64, 1000);
        if (count < 0 || bench_now() > deadline)
            fail("not all has arrived");
        for (int e = 0; e < count; e++) {
            struct way *w = &run.ways[events[e].data.u32 & ~OUTGOING];
            uint64_t before = w->received / bytes;
            if (events[e].data.u32 & OUTGOING) {
                push(w);
                continue;
            }
            pull(w);
            last = bench_now();
            left -= (uint32_t)(w->received / bytes - before);
            if (all && before == 0 && w->received >= bytes && --missing[w->to] == 0)
                second_phase(w->to, bytes);
        }
    }
    return last;
}

static void
sleep_for(exo_time time)
{
    const struct timespec t = {.tv_sec = time / EXO_SECOND, .tv_nsec = time % EXO_SECOND};
    nanosleep(&t, NULL);
}

/* --- Predicting ------------------------------------------------------------------------------- */

static exo_links *
network(void)
{
    exo_host_spec hosts[MAX_HOSTS];
    const exo_link_spec link = {
        .bandwidth = INFINITY, .latency = run.latency, .loss = run.loss, .transport = EXO_LINK_TCP};
    exo_links *l = NULL;
    exo_err err = {0};
    for (uint32_t i = 0; i < run.n; i++)
        hosts[i] = (exo_host_spec){.up = run.up, .down = run.down};
    if (exo_links_new(&l, hosts, run.n, &link, 1, &err) != EXO_OK) {
        fprintf(stderr, "messages: %s\n", err.text);
        exit(1);
    }
    return l;
}

static exo_time
predict(exo_links *l, exo_time now)
{
    exo_time last = now, begins[MAX_HOSTS], ends[MAX_HOSTS];
    uint64_t bytes[MAX_HOSTS];
    uint32_t hosts[MAX_HOSTS];
    exo_transit t;
    if (strcmp(run.pattern, "all") != 0) {
        for (uint32_t i = 0; i < run.num_ways; i++) {
            exo_links_send(l, run.ways[i].from, run.ways[i].to, 0, run.bytes, now, &t);
            last = t.arrives > last ? t.arrives : last;
        }
        return last;
    }
    for (uint32_t i = 0; i < run.n; i++) {
        hosts[i] = i;
        bytes[i] = run.bytes / run.n;
        begins[i] = now;
    }
    exo_links_exchange(l, EXO_EXCHANGE_SCATTER, run.n, hosts, 0, bytes, begins, ends, NULL, NULL);
    exo_links_exchange(l, EXO_EXCHANGE_GATHER, run.n, hosts, 0, bytes, ends, begins, NULL, NULL);
    for (uint32_t i = 0; i < run.n; i++)
        last = begins[i] > last ? begins[i] : last;
    return last;
}

/* --- The program ------------------------------------------------------------------------------ */

static void
make_ways(void)
{
    if (strcmp(run.pattern, "one") == 0)
        add_way(0, 1);
    for (uint32_t i = 1; i < run.n; i++) {
        if (strcmp(run.pattern, "out") == 0)
            add_way(0, i);
        if (strcmp(run.pattern, "in") == 0)
            add_way(i, 0);
    }
    for (uint32_t k = 1; k < run.n; k++)
        for (uint32_t i = 0; strcmp(run.pattern, "all") == 0 && i < run.n; i++)
            add_way(i,
                    (i + k) % run.n); /* as in far.c: hosts do not all send to the same one first */
}

int
main(int argc, char **argv)
{
    if (argc != 10) {
        fprintf(
            stderr,
            "usage: messages PREFIX N UP_BITS DOWN_BITS LATENCY_MS LOSS REPEATS PATTERN BYTES\n");
        return 2;
    }
    double measured[EVENTS][BENCH_MAX_REPEATS], predicted[EVENTS][BENCH_MAX_REPEATS];
    run.prefix = argv[1];
    run.n = (uint32_t)strtoul(argv[2], NULL, 10);
    run.up = strtod(argv[3], NULL);
    run.down = strtod(argv[4], NULL);
    run.latency = (exo_time)(strtod(argv[5], NULL) * (double)EXO_MS);
    run.loss = strtod(argv[6], NULL);
    uint32_t repeats = (uint32_t)strtoul(argv[7], NULL, 10);
    run.pattern = argv[8];
    run.bytes = strtoull(argv[9], NULL, 10);
    if (run.n < 2 || run.n > MAX_HOSTS || repeats < 1 || repeats > BENCH_MAX_REPEATS)
        return 2;
    make_ways();
    for (uint32_t repeat = 0; repeat < repeats; repeat++) {
        exo_links *l = network();
        connect_all();
        sleep_for(PAUSE);
        exo_time origin = bench_now();
        for (int event = 0; event < EVENTS; event++) {
            sleep_for(event == 0 ? 0 : event == 1 ? PAUSE + 2 * run.latency : SILENCE);
            exo_time start = bench_now();
            measured[event][repeat] = (double)(measure() - start) / 1e6;
            predicted[event][repeat] =
                (double)(predict(l, start - origin) - (start - origin)) / 1e6;
        }
        disconnect_all();
        exo_links_free(&l);
    }
    for (int event = 0; event < EVENTS; event++) {
        double m = bench_median(measured[event], repeats),
               p = bench_median(predicted[event], repeats);
        printf(
            "%-4s %2u %6.0f %6.0f %6.1f %7.4f %9llu %-5s %10.2f %10.2f %+8.1f %%   %.2f .. %.2f\n",
            run.pattern, run.n, run.up / 1e6, run.down / 1e6, (double)run.latency / 1e6, run.loss,
            (unsigned long long)run.bytes, event_names[event], m, p, (p / m - 1) * 100,
            measured[event][0], measured[event][repeats - 1]);
    }
    return 0;
}
