/* A crowd at a head and a worker: honest processes of this host, and strangers over TCP without a
 * key, all at once. Head and worker serve meanwhile; when the crowd has left, their memory,
 * descriptors and threads are back where they were.
 *
 * Each honest peer is a connection of its own with its ring, as from another process. Two nets of
 * this program make all of these connections: one those to the head, the other those to the worker.
 * Strangers are plain connections to the head that send nothing, garbage, half a greeting, or a
 * handshake without its end.
 *
 * EXO_CROWD_PEERS: number of honest peers at the head, and again at the worker (50).
 * EXO_CROWD_STRANGERS: number of strangers (1500). EXO_CHAOS_SEED: seed of the strangers' bytes.
 * The main thread owns all state. Read next: runtime/net/net.h; docs/security.md. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/net.h"
#include "support/check.h"
#include "support/processes.h"
#include "support/silent.h"

enum {
    ROUNDS = 3,
    SLACK_KB = 4096,        /* memory that the allocator may keep */
    MOST_HEAD_KB = 56 << 10 /* of a head with a thousand peers */
};

#define PATIENCE (60 * EXO_SECOND)

/* The resources that a process uses. */
struct use {
    unsigned descriptors, threads;
    unsigned long kb;
};

enum {
    AT_HEAD,
    AT_WORKER,
    PLACES
};

static processes all;
static exo_net *nets[PLACES];

/* --- Honest peers ----------------------------------------------------------------------------- */

static exo_peer *
meet(exo_net *net, const char *endpoint)
{
    exo_peer *peer = NULL;
    exo_err err = {0};
    if (exo_net_connect(net, endpoint, NULL, processes_now() + PATIENCE, &peer, &err) == EXO_OK)
        return peer;
    fprintf(stderr, "an honest peer is kept out: %s\n", err.text);
    all.failed = true;
    return NULL;
}

/* Connects `count` peers to each place, in turns. */
static void
meet_all(exo_peer **peers, uint64_t count)
{
    char endpoints[PLACES][160];
    snprintf(endpoints[AT_HEAD], sizeof *endpoints, "ipc://%s/t/head", all.folder);
    snprintf(endpoints[AT_WORKER], sizeof *endpoints, "ipc://%s/t/worker-%d-0", all.folder,
             (int)processes_host_of(all.workers[0]));
    for (uint64_t i = 0; i < PLACES * count && !all.failed; i++)
        peers[i] = meet(nets[i % PLACES], endpoints[i % PLACES]);
}

static void
leave_all(exo_peer **peers, uint64_t count)
{
    for (uint64_t i = 0; i < PLACES * count; i++) {
        if (peers[i])
            exo_peer_lose(nets[i % PLACES], peers[i], "it has seen enough");
        exo_peer_drop(&peers[i]);
    }
}

/* --- Strangers -------------------------------------------------------------------------------- */

/* The port of the head's line "... is ready at ipc://... tcp://127.0.0.1:PORT". */
static uint16_t
port_of_head(void)
{
    char path[128], line[512] = "";
    snprintf(path, sizeof path, "%s/head.out", all.folder);
    FILE *file = fopen(path, "re");
    CHECK(file && fgets(line, sizeof line, file));
    fclose(file);
    const char *colon = strstr(line, "tcp://") ? strrchr(line, ':') : NULL;
    CHECK(colon);
    return (uint16_t)atoi(colon + 1);
}

/* Connects without waiting, and sends bytes that are no handshake, or an incomplete one. */
static int
knock(uint16_t port, uint64_t *seed)
{
    static const uint8_t greeting[64] = {0xff, [9] = 0x7f, 3, 0, 'C', 'U', 'R', 'V', 'E'};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t garbage[600];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == ECONNRESET);
    uint64_t draw = processes_random(seed);
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (uint8_t)processes_random(seed);
    size_t some = draw / 8 % sizeof greeting;
    const void *said = draw % 4 == 0 ? (const void *)garbage : greeting;
    size_t length = draw % 4 == 0   ? sizeof garbage
                    : draw % 4 == 1 ? some
                    : draw % 4 == 2 ? sizeof greeting
                                    : 0;
    if (length > 0 && send(fd, said, length, MSG_NOSIGNAL | MSG_DONTWAIT) > 0 && draw % 4 == 2) {
        garbage[0] = 4; /* the header of a command of that many bytes */
        garbage[1] = (uint8_t)draw;
        ssize_t sent = send(fd, garbage, 2 + draw % 200, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent; /* the head may already have closed the connection */
    }
    if (draw % 16 == 5)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                   sizeof(struct linger));
    return fd;
}

static void
knock_all(uint16_t port, uint64_t *seed, int *fds, uint64_t count)
{
    uint64_t refused = 0;
    for (uint64_t i = 0; i < count; i++)
        refused += (fds[i] = knock(port, seed)) < 0;
    if (refused > 0) {
        fprintf(stderr,
                "this process has no descriptors for %llu strangers: raise its hard limit (ulimit "
                "-Hn)\n",
                (unsigned long long)refused);
        all.failed = true;
    }
}

/* --- Resources -------------------------------------------------------------------------------- */

static struct use
use_of(pid_t pid)
{
    char path[64];
    struct use use = {.descriptors = processes_descriptors(pid), .kb = processes_memory(pid)};
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        use.threads += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return use;
}

static void
show_use(const char *when, const struct use *head, const struct use *worker)
{
    printf("%s: head %lu KiB, %u descriptors, %u threads; worker %lu KiB, %u, %u\n", when, head->kb,
           head->descriptors, head->threads, worker->kb, worker->descriptors, worker->threads);
    fflush(stdout);
}

static void
check_most(const struct use *head)
{
#ifndef __SANITIZE_ADDRESS__
    if (head->kb <= MOST_HEAD_KB)
        return;
    fprintf(stderr, "the head has %lu KiB of memory, more than %d\n", head->kb, MOST_HEAD_KB);
    all.failed = true;
#else
    (void)head;
#endif
}

/* Waits until the process has given back three quarters of what the crowd took. */
static void
await_memory(const char *what, pid_t pid, const struct use *before, const struct use *crowded)
{
#ifdef __SANITIZE_ADDRESS__ /* the address sanitizer keeps freed memory */
    (void)what, (void)pid, (void)before, (void)crowded;
#else
    exo_time deadline = processes_now() + PATIENCE;
    unsigned long most = before->kb + SLACK_KB, now = processes_memory(pid);
    most += crowded->kb > before->kb ? (crowded->kb - before->kb) / 4 : 0;
    while (now > most && processes_now() < deadline) {
        usleep(20000);
        now = processes_memory(pid);
    }
    if (now > most) {
        fprintf(stderr, "the %s has %lu KiB of memory, and had %lu before the first crowd\n", what,
                now, before->kb);
        all.failed = true;
    }
#endif
}

/* Waits until the process has no more descriptors and threads than it had. */
static void
await_return(const char *what, pid_t pid, const struct use *before)
{
    exo_time deadline = processes_now() + PATIENCE;
    struct use now = use_of(pid);
    while ((now.descriptors > before->descriptors || now.threads > before->threads) &&
           processes_now() < deadline) {
        usleep(20000);
        now = use_of(pid);
    }
    if (now.descriptors <= before->descriptors && now.threads <= before->threads)
        return;
    fprintf(stderr, "the %s has %u descriptors and %u threads, and had %u and %u\n", what,
            now.descriptors, now.threads, before->descriptors, before->threads);
    all.failed = true;
}

/* A driver joins and leaves, and the command line finds the worker alive. */
static void
expect_served(unsigned round)
{
    char job[32], text[8192];
    exo_runtime *runtime = NULL;
    snprintf(job, sizeof job, "job-%u", round);
    exo_cluster *cluster = processes_join(&all, job, &runtime);
    CHECK(cluster);
    processes_leave(&cluster, &runtime);
    char head[128];
    snprintf(head, sizeof head, "ipc://%s/t/head", all.folder);
    const char *const words[] = {"exogym", "list", "nodes", "--head", head, NULL};
    if (!processes_output(&all, NULL, words, text, sizeof text) || !strstr(text, "alive")) {
        fprintf(stderr, "the worker is not alive: %s\n", text);
        all.failed = true;
    }
}

/* --- The test --------------------------------------------------------------------------------- */

static bool
start_head_with_keys(void)
{
    char text[1024], secret[160], authorized[160], state[128];
    const char *const make[] = {"exogym", "keygen", "head",     "--role",
                                "admin",  "-o",     all.folder, NULL};
    snprintf(secret, sizeof secret, "%s/head.secret", all.folder);
    snprintf(authorized, sizeof authorized, "%s/authorized", all.folder);
    snprintf(state, sizeof state, "%s/state.db", all.folder);
    CHECK(processes_output(&all, NULL, make, text, sizeof text));
    CHECK(mkdir(authorized, 0700) == 0);
    const char *const words[] = {"exogym-head",
                                 "--cluster",
                                 "t",
                                 "--folder",
                                 all.folder,
                                 "--state",
                                 state,
                                 "--keys",
                                 secret,
                                 "--authorized",
                                 authorized,
                                 "--listen",
                                 "tcp://127.0.0.1:0",
                                 NULL};
    all.head = processes_start(&all, NULL, "head", true, words);
    return all.head > 0;
}

int
main(void)
{
    uint64_t num_peers = processes_setting("EXO_CROWD_PEERS", 50),
             num_strangers = processes_setting("EXO_CROWD_STRANGERS", 1500);
    uint64_t seed = processes_setting("EXO_CHAOS_SEED", (uint64_t)processes_now());
    exo_err err = {0};
    printf("EXO_CHAOS_SEED=%llu EXO_CROWD_PEERS=%llu EXO_CROWD_STRANGERS=%llu\n",
           (unsigned long long)seed, (unsigned long long)num_peers,
           (unsigned long long)num_strangers);
    fflush(stdout);
    exo_peer **peers = calloc(PLACES * num_peers + 1, sizeof *peers);
    int *strangers = calloc(num_strangers + 1, sizeof *strangers);
    CHECK(peers && strangers);
    processes_open(&all);
    CHECK(start_head_with_keys() && processes_start_worker(&all, 0, true));
    uint16_t port = port_of_head();
    pid_t host = processes_host_of(all.workers[0]);
    expect_served(0);
    const struct use head = use_of(all.head), worker = use_of(host);
    show_use("before", &head, &worker);
    for (int i = 0; i < PLACES; i++)
        CHECK(exo_net_open(
                  &nets[i],
                  &(exo_net_opts){.name = "crowd", .cluster = "t", .handler = &silent_handler},
                  &err) == EXO_OK);
    for (unsigned round = 1; round <= ROUNDS && !all.failed; round++) {
        knock_all(port, &seed, strangers, num_strangers / 2);
        meet_all(peers, num_peers);
        knock_all(port, &seed, strangers + num_strangers / 2, num_strangers - num_strangers / 2);
        expect_served(round);
        struct use full_head = use_of(all.head), full_worker = use_of(host);
        show_use("crowded", &full_head, &full_worker);
        check_most(&full_head);
        for (uint64_t i = 0; i < num_strangers; i++)
            if (strangers[i] >= 0)
                close(strangers[i]);
        leave_all(peers, num_peers);
        await_return("head", all.head, &head);
        await_return("worker", host, &worker);
        await_memory("head", all.head, &head, &full_head);
        await_memory("worker", host, &worker, &full_worker);
        struct use now_head = use_of(all.head), now_worker = use_of(host);
        show_use("after", &now_head, &now_worker);
    }
    for (int i = 0; i < PLACES; i++)
        exo_net_close(&nets[i]);
    free(peers);
    free(strangers);
    bool good = processes_close(&all);
    printf("%s\n", good ? "good" : "failed");
    return good ? 0 : 1;
}
