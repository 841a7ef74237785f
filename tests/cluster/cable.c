/* A network cable is cut and mended. Head, one worker and this driver are on one host, another
 * worker on a second host. The hosts are two network namespaces with a veth pair as the cable.
 * EXOGYM_HOST_ID tells them apart: without it, processes that share a kernel take each other for
 * neighbours.
 *   - A short cut, or a short stop of a worker, is survived: nothing is lost.
 *   - After a long cut, waiting calls fail within the peer timeout, each call ends once, and the
 *     actor restarts on this side.
 *   - After the cable is mended, the life on the other side is ended. From neither host does the
 *     name or the old reference lead to it.
 *
 * The test is skipped where the kernel or the process's rights do not allow namespaces.
 * EXO_CHAOS_ROUNDS: number of rounds (1). EXO_CHAOS_SEED: seed of the times. The main thread owns
 * all state. Read next: tests/plugins/victim.c, the actor; docs/cluster.md. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/actor.h>

#include "support/check.h"
#include "support/processes.h"
#include "support/victim.h"

enum {
    SKIPPED = 77,
    WAITERS = 4,
    TRIES = 10 /* of a round that the machine is too busy for */
};

#define HEAD_ADDRESS "tcp://10.77.0.1:7070"
#define TIMEOUT      (3 * EXO_SECOND) /* after which a peer is lost */
/* of a cut: well below TIMEOUT, even with a heartbeat interval and TCP's retransmissions */
#define SHORT    (400 * EXO_MS)
#define GENEROUS (20 * EXO_SECOND)

static processes all;
static pid_t far_worker, near_worker;
static exo_runtime *runtime;
static exo_cluster *cluster;
static uint64_t seed, round_number;

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: round %llu: %s: ", __FILE__, __LINE__,                         \
                    (unsigned long long)round_number, #condition);                                 \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            all.failed = true;                                                                     \
        }                                                                                          \
    } while (0)

static exo_time
within(exo_time time)
{
    return exo_deadline(exo_clock_real(), time);
}

static int
milliseconds(exo_time since)
{
    return (int)((processes_now() - since) / EXO_MS);
}

/* --- Two hosts -------------------------------------------------------------------------------- */

static bool
run(const char *command)
{
    char line[256];
    snprintf(line, sizeof line, "%s 2>/dev/null", command);
    int status = system(line); /* NOLINT(cert-env33-c): fixed commands of a test */
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool
write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

/* Gives this process network and mount namespaces of its own, which end with it. */
static bool
leave_namespaces(void)
{
    char map[64];
    unsigned user = geteuid(), group = getegid();
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) == 0)
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0)
        return false;
    snprintf(map, sizeof map, "0 %u 1", user);
    bool good = write_file("/proc/self/setgroups", "deny") && write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", group);
    return good && write_file("/proc/self/gid_map", map);
}

static bool
make_hosts(void)
{
    static const char *const commands[] = {"ip link set lo up",
                                           "ip netns add far",
                                           "ip -n far link set lo up",
                                           "ip link add cable type veth peer name plug netns far",
                                           "ip addr add 10.77.0.1/24 dev cable",
                                           "ip -n far addr add 10.77.0.2/24 dev plug",
                                           "ip link set cable up",
                                           "ip -n far link set plug up"};
    if (!leave_namespaces() || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/run", "tmpfs", 0, NULL) != 0)
        return false;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!run(commands[i]))
            return false;
    return run("ip netns exec far true");
}

static void
cut(void)
{
    CHECK(run("ip -n far link set plug down"));
}

static void
mend(void)
{
    CHECK(run("ip -n far link set plug up"));
}

/* --- The cluster ------------------------------------------------------------------------------ */

static pid_t
start(const char *network, const char *host, const char *name, const char *const *words)
{
    CHECK(setenv("EXOGYM_HOST_ID", host, 1) == 0);
    pid_t pid = processes_start(&all, network, name, true, words);
    CHECK(setenv("EXOGYM_HOST_ID", "near", 1) == 0);
    CHECK(pid > 0);
    return pid;
}

static pid_t
start_worker(const char *network, const char *name, const char *listen)
{
    const char *const words[] = {
        "exogym-worker",  "--cluster", "t",          "--folder",   all.folder,
        "--name",         name,        "--no-ipc",   "--insecure", "--listen",
        listen,           "--head",    HEAD_ADDRESS, "--plugin",   PROCESSES_PLUGIN("victim"),
        "--peer-timeout", "3s",        NULL};
    return start(network, name, name, words);
}

static void
join(exo_cluster_role role)
{
    exo_err err = {0};
    const exo_cluster_opts opts = {.role = role,
                                   .cluster = "t",
                                   .folder = all.folder,
                                   .head = HEAD_ADDRESS,
                                   .job = role == EXO_ROLE_DRIVER ? "cable" : NULL,
                                   .peer_timeout = TIMEOUT};
    exo_status st = exo_runtime_open(&runtime, &(exo_runtime_opts){.threads = 2}, &err);
    if (st == EXO_OK)
        st = exo_cluster_join(&cluster, runtime, &opts, within(3 * GENEROUS), &err);
    if (st != EXO_OK)
        fprintf(stderr, "joining: %s\n", err.text);
    CHECK(st == EXO_OK);
}

static void
start_all(void)
{
    const char *const head[] = {"exogym-head", "--cluster", "t",          "--folder",
                                all.folder,    "--no-ipc",  "--insecure", "--listen",
                                HEAD_ADDRESS,  "--state",   "none",       "--peer-timeout",
                                "3s",          NULL};
    all.head = start(NULL, "near", "head", head);
    near_worker = start_worker(NULL, "near", "tcp://10.77.0.1:0");
    far_worker = start_worker("far", "far", "tcp://10.77.0.2:0");
    join(EXO_ROLE_DRIVER);
}

/* --- Actors ----------------------------------------------------------------------------------- */

static exo_status
poke(exo_ref ref, exo_time time, uint64_t *life, exo_err *err)
{
    struct victim_reply r = {0};
    exo_future *future = NULL;
    exo_payload args = {0};
    const exo_payload *reply = NULL;
    uint64_t nonce = processes_random(&seed);
    CHECK(exo_payload_copy(&args, &nonce, sizeof nonce) == EXO_OK);
    exo_status st = exo_call(runtime, ref, "poke", args, within(time), &future, err);
    if (st == EXO_OK)
        st = exo_wait(future, within(time + GENEROUS), &reply, err);
    if (st == EXO_OK) {
        CHECK(reply->size == sizeof r);
        memcpy(&r, reply->data, sizeof r);
        EXPECT(r.nonce == nonce && r.repeated == 0,
               "another call's reply, or a call that ran twice");
        *life = r.life;
    }
    exo_future_drop(&future);
    return st;
}

static exo_status
spawn(const char *name, const char *node, exo_placement placement, exo_ref *out, exo_err *err)
{
    const exo_spawn_opts opts = {.name = name,
                                 .node = node,
                                 .placement = placement,
                                 .restart = {.when = EXO_RESTART_ON_FAILURE}};
    return exo_spawn_class(runtime, "victim", &opts, within(GENEROUS), out, err);
}

/* The life that the name leads to; 0 if no actor answers. */
static uint64_t
life_of(const char *name)
{
    exo_ref ref;
    exo_err err = {0};
    uint64_t life = 0;
    exo_status st = exo_get_actor(runtime, NULL, name, &ref, &err);
    if (st == EXO_OK)
        st = poke(ref, GENEROUS, &life, &err);
    EXPECT(st == EXO_OK, "%s: %d %s", name, (int)st, err.text);
    return life;
}

/* Waits until the name leads to a life that answers. The head may hear of a cut later than this
 * process does. */
static uint64_t
await_life(const char *name)
{
    exo_ref ref;
    exo_err err = {0};
    uint64_t life = 0;
    exo_status st;
    exo_time end = within(3 * GENEROUS);
    do {
        st = exo_get_actor(runtime, NULL, name, &ref, &err);
        if (st == EXO_OK)
            st = poke(ref, GENEROUS, &life, &err);
    } while (st != EXO_OK && processes_now() < end);
    EXPECT(st == EXO_OK, "%s: %d %s", name, (int)st, err.text);
    return life;
}

/* The life that the name leads to on the other host. */
static uint64_t
life_from_far(const char *name)
{
    char self[512] = "", text[64];
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const char *const words[] = {self, "far", all.folder, name, NULL};
    CHECK(setenv("EXOGYM_HOST_ID", "far", 1) == 0);
    bool good = processes_output(&all, "far", words, text, sizeof text);
    CHECK(setenv("EXOGYM_HOST_ID", "near", 1) == 0);
    EXPECT(good, "a program on the other host");
    return good ? strtoull(text, NULL, 16) : 0;
}

static int
far_main(const char *folder, const char *name)
{
    snprintf(all.folder, sizeof all.folder, "%s", folder);
    join(EXO_ROLE_GUEST);
    printf("%llx\n", (unsigned long long)life_of(name));
    processes_leave(&cluster, &runtime);
    return all.failed;
}

/* --- A round ---------------------------------------------------------------------------------- */

struct waiter {
    exo_future *future;
    bool watches;
};

static void
begin_waiting(exo_ref ref, struct waiter *waiters)
{
    exo_err err = {0};
    for (int i = 0; i < WAITERS; i++) {
        uint64_t words[2] = {processes_random(&seed), 60000};
        exo_payload args = {0};
        waiters[i].watches = i == 0;
        CHECK(exo_payload_copy(&args, words, sizeof words) == EXO_OK);
        exo_status st = i == 0 ? exo_monitor(runtime, ref, &waiters[i].future, &err)
                               : exo_call(runtime, ref, "linger", args, within(60 * EXO_SECOND),
                                          &waiters[i].future, &err);
        if (i == 0)
            exo_payload_release(&args);
        EXPECT(st == EXO_OK, "%d %s", (int)st, err.text);
    }
}

/* Each future ends once, with PEER_LOST. */
static void
end_waiting(struct waiter *waiters, exo_time since)
{
    for (int i = 0; i < WAITERS; i++) {
        exo_err err = {0};
        exo_status st = exo_wait(waiters[i].future, since + TIMEOUT + GENEROUS, NULL, &err);
        EXPECT(st == EXO_PEER_LOST, "waiter %d: %d %s", i, (int)st, err.text);
        EXPECT(exo_wait(waiters[i].future, 0, NULL, NULL) == st, "a future that ended ended again");
        exo_future_drop(&waiters[i].future);
    }
}

/* Interrupts the cable or the worker's process for less than the timeout: nothing may be lost.
 * Gives false if the machine was too busy to keep the interruption short. */
static bool
interrupt(exo_ref ref, uint64_t life, bool cable)
{
    exo_time began = processes_now(),
             length = SHORT / 2 + (exo_time)(processes_random(&seed) % (SHORT / 2));
    uint64_t same = 0;
    exo_err err = {0};
    pid_t host = processes_host_of(far_worker);
    if (cable)
        cut();
    else
        kill(host, SIGSTOP);
    usleep((useconds_t)(length / EXO_US));
    if (cable)
        mend();
    else
        kill(host, SIGCONT);
    bool busy = processes_now() - began > 2 * SHORT;
    exo_status st = poke(ref, GENEROUS, &same, &err);
    EXPECT(busy || (st == EXO_OK && same == life), "after %d ms: %d %s", (int)(length / EXO_MS),
           (int)st, err.text);
    return !busy;
}

/* Ends an actor, and waits until it has ended: the next one is then placed as it was. */
static void
end_actor(exo_ref ref)
{
    exo_err err = {0};
    exo_future *death = NULL;
    exo_status st = exo_monitor(runtime, ref, &death, &err);
    if (st == EXO_OK)
        st = exo_stop(runtime, ref, false, &err);
    if (st == EXO_OK)
        st = exo_wait(death, within(GENEROUS), NULL, &err);
    exo_future_drop(&death);
    EXPECT(st == EXO_OK, "%d %s", (int)st, err.text);
}

/* Waits until the far worker accepts actors. */
static void
await_far(exo_time since)
{
    exo_ref ref;
    exo_err err = {0};
    exo_status st;
    do
        st = spawn(NULL, "far", EXO_PLACE_STRICT, &ref, &err);
    while (st != EXO_OK && processes_now() < since + 3 * GENEROUS);
    EXPECT(st == EXO_OK, "the other host does not come back: %d %s", (int)st, err.text);
    printf("the worker was back %d ms after the cable was mended\n", milliseconds(since));
    end_actor(ref);
}

/* The life that was declared dead ends on its host too. */
static void
check_fenced(const exo_actor_id *id)
{
    exo_ref ref;
    exo_err err = {0};
    uint64_t life = 0;
    exo_status st;
    exo_time began = processes_now();
    do {
        st = exo_ref_import(runtime, id, within(GENEROUS), &ref, &err);
        if (st == EXO_OK)
            st = poke(ref, GENEROUS, &life, &err);
    } while (st == EXO_OK && processes_now() < began + GENEROUS);
    EXPECT(st == EXO_PEER_LOST, "the old life: %d %s", (int)st, err.text);
    EXPECT(strstr(err.text, "taken for dead"), "the cause of its end: %s", err.text);
}

/* False: the machine was too busy for the short interruptions, and the rest was not tried. */
static bool
one_round(unsigned try)
{
    exo_ref ref;
    exo_err err = {0};
    exo_actor_id id = {0};
    struct waiter waiters[WAITERS] = {0};
    uint64_t first = 0, second;
    char name[48];
    snprintf(name, sizeof name, "phoenix-%llu-%u", (unsigned long long)round_number, try);
    exo_status st = spawn(name, NULL, EXO_PLACE_SPREAD, &ref, &err);
    if (st == EXO_OK)
        st = poke(ref, GENEROUS, &first, &err);
    EXPECT(st == EXO_OK, "%d %s", (int)st, err.text);
    EXPECT(life_from_far(name) == first, "the name leads elsewhere");
    if (all.failed)
        return true;
    if (!interrupt(ref, first, true) || !interrupt(ref, first, false)) {
        await_far(processes_now());
        await_life(name);
        st = exo_get_actor(runtime, NULL, name, &ref, &err);
        EXPECT(st == EXO_OK, "%d %s", (int)st, err.text);
        end_actor(ref);
        return false;
    }
    CHECK(exo_ref_export(runtime, ref, &id, &err) == EXO_OK);
    begin_waiting(ref, waiters);

    cut();
    exo_time since = processes_now();
    EXPECT(life_of("keeper") != 0, "this side of the cable");
    end_waiting(waiters, since);
    printf("who waited heard of the cut after %d ms, with a timeout of %d ms\n",
           milliseconds(since), (int)(TIMEOUT / EXO_MS));
    second = await_life(name);
    printf("it lived again %d ms after the cut\n", milliseconds(since));
    EXPECT(second != first, "the life on the other side answers");
    usleep((useconds_t)(processes_random(&seed) % 500000));
    mend();
    await_far(processes_now());
    check_fenced(&id);
    for (int i = 0; i < 20; i++)
        EXPECT(life_of(name) == second, "the name leads to another life");
    EXPECT(life_from_far(name) == second, "the name leads to another life on the other host");
    return true;
}

int
main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "far") == 0)
        return far_main(argv[2], argv[3]);
    uint64_t rounds = processes_setting("EXO_CHAOS_ROUNDS", 1);
    seed = processes_setting("EXO_CHAOS_SEED", (uint64_t)processes_now());
    printf("EXO_CHAOS_SEED=%llu EXO_CHAOS_ROUNDS=%llu\n", (unsigned long long)seed,
           (unsigned long long)rounds);
    if (!make_hosts()) {
        printf("skipped: no network namespaces here\n");
        return SKIPPED;
    }
    fflush(stdout);
    processes_open(&all);
    start_all();
    exo_ref ref;
    exo_err err = {0};
    exo_status st = spawn("keeper", "near", EXO_PLACE_STRICT, &ref, &err);
    EXPECT(st == EXO_OK, "%d %s", (int)st, err.text);
    bool whole = true;
    for (round_number = 0; round_number < rounds && whole && !all.failed; round_number += whole) {
        whole = false;
        for (unsigned try = 0; try < TRIES && !whole; try++)
            whole = one_round(try);
    }
    processes_leave(&cluster, &runtime);
    all.workers[0] = near_worker;
    all.workers[1] = far_worker;
    bool good = processes_close(&all);
    printf("%llu rounds: %s\n", (unsigned long long)round_number, good ? "good" : "failed");
    if (good && !whole)
        printf("skipped: the machine is too busy to cut the cable for a short time only\n");
    return !good ? 1 : whole ? 0 : SKIPPED;
}
