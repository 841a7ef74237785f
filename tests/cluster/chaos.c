/* Random faults. Drivers call actors on three workers, with deadlines, cancels and objects, while
 * workers, head and drivers are killed, crash and are stopped for a moment. Each driver checks that
 *   - every call ends once, with its own reply or a possible error, by its deadline, and soon after
 *     the death of the process;
 *   - a process that was only stopped is not lost;
 *   - a reply comes from the life of the actor that was called, and never from a life that was
 *     reported dead;
 *   - no call runs twice, and every answered call ran.
 * Afterwards every name leads to a living actor, and nothing is left of any process.
 *
 * The test starts itself as a driver. EXO_CHAOS_ROUNDS: number of faults (40). EXO_CHAOS_SEED: seed
 * of the faults and calls. The main process owns all processes; the shared state is `struct board`.
 * Read next: tests/plugins/victim.c, the actor; tests/support/processes.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/actor.h>
#include <exogym/memory.h>
#include <exogym/object.h>

#include "support/check.h"
#include "support/processes.h"
#include "support/remains.h"
#include "support/victim.h"

enum {
    WORKERS = 3,
    DRIVERS = 3,
    THREADS = 2, /* of each driver */
    NAMES = 5,
    SLOTS = NAMES + 3, /* actors that a thread knows: the named ones, and some of its own */
    PIPELINE = 24,
    AUDITED = 512,
    GONE = 1024,
    DEATHS = 65536,
    PAUSES = 4096,
    OBJECT = 1 << 20,
    WITHIN = 6
};

/* Upper bounds of the classes of board->heard, in ms; the last class has none. */
static const int within_ms[WITHIN] = {1, 5, 20, 100, 1000, 0};

/* The allowance for news of a death, and for the end of a call after its deadline. The usual delay
 * is 1 ms. */
#define SOON      (20 * EXO_SECOND)
#define PAUSE     (4 * EXO_MS) /* a longer pause of a driver itself is subtracted from its delays */
#define REPLY_MAX (60 * EXO_SECOND)

/* The memory that the test and its drivers share. */
struct board {
    atomic_bool stop;
    atomic_uint begun; /* threads of drivers that have had an answer */
    atomic_uint num_deaths;
    struct {
        int pid;
        exo_time when;
    } deaths[DEATHS]; /* entered before the process is killed */
    atomic_ullong calls, values, lost, late, cancelled, other, lookups;
    atomic_ullong heard[WITHIN]; /* calls by the delay from the death of the process to their end */
};

static struct board *board;

static struct board *
open_board(const char *folder, bool create)
{
    char path[128];
    snprintf(path, sizeof path, "%s/board", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(struct board)) == 0);
    void *memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    close(fd);
    return memory;
}

/* When the process was killed; 0 if it was not. */
static exo_time
death_of(uint64_t pid)
{
    for (unsigned i = atomic_load(&board->num_deaths); i-- > 0;)
        if (board->deaths[i].pid == (int)pid)
            return board->deaths[i].when;
    return 0;
}

/* --- A driver --------------------------------------------------------------------------------- */

/* An actor that a thread knows. */
struct slot {
    exo_ref ref; /* id 0: none */
    bool named;
    uint64_t life, pid;                       /* 0: not known yet */
    uint64_t answered[AUDITED], num_answered; /* nonces of answered calls of this life */
};

struct thread {
    unsigned index;
    uint64_t random, nonce;
    bool has_begun;
    struct slot slots[SLOTS];
    uint64_t gone[GONE], num_gone; /* lives that were reported dead */
    pthread_t id;
};

static processes cluster_of;
static exo_runtime *runtime;
static exo_cluster *cluster;
static atomic_uint num_errors;

/* When this process did not run, because it was stopped or the cores were busy. Written by the
 * thread of note_pauses alone. */
static struct {
    exo_time from, to;
} pauses[PAUSES];
static atomic_uint num_pauses;
static atomic_bool over;

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: at %.3f: %s: ", __FILE__, __LINE__,                            \
                    (double)processes_now() / 1e9, #condition);                                    \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            atomic_fetch_add(&num_errors, 1);                                                      \
        }                                                                                          \
    } while (0)

static void *
note_pauses(void *unused)
{
    exo_time last = processes_now();
    while (!atomic_load(&over)) {
        usleep(1000);
        exo_time now = processes_now();
        if (now - last > PAUSE) {
            unsigned i = atomic_load(&num_pauses);
            pauses[i % PAUSES].from = last;
            pauses[i % PAUSES].to = now;
            atomic_store(&num_pauses, i + 1);
        }
        last = now;
    }
    return unused;
}

/* The time since `from` by which a delay is excused. */
static exo_time
excused(exo_time from)
{
    exo_time total = 0;
    usleep(2000); /* note_pauses enters the pause that has just ended */
    unsigned count = atomic_load(&num_pauses);
    for (unsigned i = count; i > 0 && i + PAUSES > count; i--) {
        exo_time begin = pauses[(i - 1) % PAUSES].from, end = pauses[(i - 1) % PAUSES].to;
        if (end <= from)
            break;
        total += end - (begin > from ? begin : from);
    }
    return 2 * total; /* twice: after a pause the process has to catch up */
}

static uint64_t
below(struct thread *t, uint64_t n)
{
    return processes_random(&t->random) % n;
}

static uint64_t
new_nonce(struct thread *t)
{
    return (uint64_t)getpid() << 40 | (uint64_t)(t->index + 1) << 36 | ++t->nonce;
}

static bool
is_gone(const struct thread *t, uint64_t life)
{
    for (uint64_t i = 0; i < t->num_gone && i < GONE; i++)
        if (t->gone[i] == life)
            return true;
    return false;
}

/* The slot's actor was reported dead. */
static void
forget(struct thread *t, struct slot *s)
{
    if (s->life && !is_gone(t, s->life))
        t->gone[t->num_gone++ % GONE] = s->life;
    s->ref = (exo_ref){0};
    s->life = s->pid = s->num_answered = 0;
}

static bool
can_be(exo_status st)
{
    return st == EXO_OK || st == EXO_PEER_LOST || st == EXO_TIMEOUT || st == EXO_CANCELLED ||
           st == EXO_FULL;
}

static void
count(exo_status st)
{
    atomic_fetch_add(st == EXO_OK          ? &board->values
                     : st == EXO_PEER_LOST ? &board->lost
                     : st == EXO_TIMEOUT   ? &board->late
                     : st == EXO_CANCELLED ? &board->cancelled
                                           : &board->other,
                     1);
}

/* Finds or makes an actor for a slot that has none. */
static void
fill(struct thread *t, struct slot *s)
{
    char name[16];
    exo_err err = {0};
    const char *plugin = PROCESSES_PLUGIN("victim");
    exo_spawn_opts opts = {.placement = EXO_PLACE_SPREAD, .plugins = &plugin, .num_plugins = 1};
    exo_time deadline = exo_deadline(exo_clock_real(), 5 * EXO_SECOND);
    exo_status st = EXO_NOT_FOUND;
    s->named = s < t->slots + NAMES;
    atomic_fetch_add(&board->lookups, 1);
    if (s->named) {
        snprintf(name, sizeof name, "shared-%d", (int)(s - t->slots));
        opts.name = name;
        opts.get_if_exists = opts.detached = true;
        opts.restart.when = below(t, 2) ? EXO_RESTART_ALWAYS : EXO_RESTART_ON_FAILURE;
        opts.restart.backoff = (exo_time)below(t, 3) * 20 * EXO_MS;
        if (below(t, 2))
            st = exo_get_actor(runtime, NULL, name, &s->ref, &err);
    }
    if (st == EXO_NOT_FOUND)
        st = exo_spawn_class(runtime, "victim", &opts, deadline, &s->ref, &err);
    EXPECT(can_be(st) || st == EXO_EXISTS || st == EXO_NOT_FOUND, "an actor: %d %s", (int)st,
           err.text);
    exo_time took = processes_now() - (deadline - 5 * EXO_SECOND);
    if (getenv("EXO_VERBOSE") && took > EXO_SECOND)
        fprintf(stderr, "note: shared-%d came after %.1f s: %d %s\n", (int)(s - t->slots),
                (double)took / 1e9, (int)st, err.text);
    if (took > 6 * EXO_SECOND)
        EXPECT(took < 31 * EXO_SECOND + SOON + excused(processes_now() - took),
               "an actor came after %.1f s", (double)took / 1e9);
    if (st != EXO_OK)
        s->ref = (exo_ref){0};
    if (st != EXO_OK)
        usleep(5000);
}

/* Checks the life that a reply names. */
static void
check_value(struct thread *t, struct slot *s, uint64_t nonce, uint64_t life)
{
    EXPECT(!is_gone(t, life), "nonce %llx: the life %llx was dead", (unsigned long long)nonce,
           (unsigned long long)life);
    EXPECT(!s->life || s->life == life, "nonce %llx: one reference, two lives",
           (unsigned long long)nonce);
    s->life = life;
}

struct call {
    exo_future *future;
    uint64_t nonce;
    exo_time began, deadline;
    bool cancelled, pokes, carries;
};

static void
note_delay(exo_time delay)
{
    int i = 0;
    while (i < WITHIN - 1 && delay > within_ms[i] * EXO_MS)
        i++;
    atomic_fetch_add(&board->heard[i], 1);
}

/* Checks an error: is it possible, and did it come in time? */
static void
check_error(const struct slot *s, const struct call *c, exo_status st, bool waited,
            const char *text)
{
    exo_time now = processes_now(), died = death_of(s->pid);
    bool process = strstr(text, "' is lost") != NULL;
    EXPECT(can_be(st), "nonce %llx: %d %s", (unsigned long long)c->nonce, (int)st, text);
    EXPECT(st != EXO_TIMEOUT || now >= c->deadline, "late before its deadline: %s", text);
    if (st == EXO_PEER_LOST && process && s->pid) {
        EXPECT(died, "the process %llu is lost, and was not killed: %s", (unsigned long long)s->pid,
               text);
        exo_time since = died > c->began ? died : c->began;
        if (died && waited)
            note_delay(now - since);
        if (died && waited && now - since > SOON)
            EXPECT(now - since < SOON + excused(since), "heard of a death after %lld ms: %s",
                   (long long)((now - since) / EXO_MS), text);
    }
}

/* Ends one call; true if the actor is dead. */
static bool
end_call(struct thread *t, struct slot *s, struct call *c)
{
    const exo_payload *reply = NULL;
    exo_err err = {0};
    bool waited = !exo_future_ready(c->future);
    exo_status st = exo_wait(c->future, c->deadline + REPLY_MAX, &reply, &err);
    exo_time now = processes_now();
    if (waited && now > c->deadline + SOON)
        EXPECT(now < c->deadline + SOON + excused(c->began),
               "ended %lld ms after its deadline: %d %s", (long long)((now - c->deadline) / EXO_MS),
               (int)st, err.text);
    EXPECT(exo_future_ready(c->future), "nonce %llx did not end", (unsigned long long)c->nonce);
    count(st);
    if (st == EXO_OK && c->carries) {
        const uint64_t *words = reply->data;
        EXPECT(reply->size == OBJECT, "an object of %zu bytes", reply->size);
        if (reply->size == OBJECT) {
            for (size_t i = 0; i + 1 < OBJECT / sizeof *words; i += 1023)
                EXPECT(words[i] == c->nonce + 1 + i, "word %zu of an object is another call's", i);
            check_value(t, s, c->nonce, words[OBJECT / sizeof *words - 1]);
        }
    } else if (st == EXO_OK) {
        struct victim_reply r = {0};
        EXPECT(reply->size == sizeof r, "a reply of %zu bytes", reply->size);
        memcpy(&r, reply->data, reply->size == sizeof r ? sizeof r : 0);
        EXPECT(r.nonce == c->nonce, "the reply of nonce %llx came for %llx",
               (unsigned long long)r.nonce, (unsigned long long)c->nonce);
        EXPECT(r.repeated == 0, "%llu calls came twice", (unsigned long long)r.repeated);
        check_value(t, s, c->nonce, r.life);
        s->pid = r.pid;
        if (c->pokes)
            s->answered[s->num_answered++ % AUDITED] = c->nonce;
    } else {
        check_error(s, c, st, waited, err.text);
    }
    if (st == EXO_OK && !t->has_begun)
        atomic_fetch_add(&board->begun, 1);
    t->has_begun = t->has_begun || st == EXO_OK;
    const exo_payload *again = NULL;
    exo_status second = exo_wait(c->future, 0, &again, NULL);
    EXPECT(second == st && again == reply, "a future was %d, then %d", (int)st, (int)second);
    exo_future_drop(&c->future);
    return st == EXO_PEER_LOST;
}

static exo_status
begin_call(struct thread *t, struct slot *s, struct call *c)
{
    exo_payload args = {0};
    exo_err err = {0};
    unsigned kind = (unsigned)below(t, 48);
    bool lingers = kind == 0, carries = kind == 1 || kind == 2;
    const char *method = lingers ? "linger" : carries ? "carry" : "poke";
    *c = (struct call){.nonce = new_nonce(t), .carries = carries, .pokes = !lingers && !carries};
    uint64_t words[2] = {c->nonce, below(t, 100)};
    if (c->carries) {
        exo_object *object = NULL;
        CHECK(exo_object_new(&object, OBJECT, &err) == EXO_OK);
        uint64_t *data = exo_object_data(object);
        for (size_t i = 0; i < OBJECT / sizeof *data; i++)
            data[i] = c->nonce + i;
        exo_object_seal(object);
        args = exo_object_payload(object);
        exo_object_drop(&object);
    } else {
        CHECK(exo_payload_copy(&args, words, lingers ? sizeof words : sizeof words[0]) == EXO_OK);
    }
    c->began = processes_now();
    c->deadline = c->began + (exo_time)(20 + below(t, 1500)) * EXO_MS;
    atomic_fetch_add(&board->calls, 1);
    exo_status st = exo_call(runtime, s->ref, method, args, c->deadline, &c->future, &err);
    if (st != EXO_OK) {
        count(st);
        check_error(s, c, st, false, err.text);
    }
    return st;
}

static void
call_some(struct thread *t, struct slot *s)
{
    struct call calls[PIPELINE];
    unsigned made = 0, wanted = 1 + (unsigned)below(t, PIPELINE);
    bool dead = false;
    while (made < wanted && !dead) {
        exo_status st = begin_call(t, s, &calls[made]);
        made += st == EXO_OK;
        dead = st == EXO_PEER_LOST;
        if (st != EXO_OK)
            break;
    }
    for (unsigned i = 0; i < made; i++)
        if (below(t, 12) == 0)
            exo_cancel(calls[i].future);
    for (unsigned i = 0; i < made; i++)
        dead = end_call(t, s, &calls[i]) || dead;
    if (dead)
        forget(t, s);
}

/* Calls that were answered must have run. */
static void
audit(struct thread *t, struct slot *s)
{
    exo_future *future = NULL;
    exo_payload args = {0};
    const exo_payload *reply = NULL;
    uint64_t known = s->num_answered < AUDITED ? s->num_answered : AUDITED;
    struct victim_reply r = {0};
    if (!known || exo_payload_copy(&args, s->answered, known * sizeof s->answered[0]) != EXO_OK)
        return;
    exo_status st = exo_call(runtime, s->ref, "audit", args,
                             exo_deadline(exo_clock_real(), 5 * EXO_SECOND), &future, NULL);
    if (st == EXO_OK)
        st = exo_wait(future, exo_deadline(exo_clock_real(), REPLY_MAX), &reply, NULL);
    if (st == EXO_OK) {
        memcpy(&r, reply->data, sizeof r);
        EXPECT(r.life == s->life && r.nonce == known, "%llu of %llu calls ran that were answered",
               (unsigned long long)r.nonce, (unsigned long long)known);
    }
    exo_future_drop(&future);
    if (st == EXO_PEER_LOST)
        forget(t, s);
}

static void
end_actor(struct thread *t, struct slot *s)
{
    exo_future *death = NULL;
    exo_err err = {0};
    exo_status st = exo_monitor(runtime, s->ref, &death, &err);
    if (st == EXO_OK)
        st = below(t, 2) ? exo_kill(runtime, s->ref, "the test", &err)
                         : exo_stop(runtime, s->ref, below(t, 2), &err);
    if (st == EXO_OK)
        st = exo_wait(death, exo_deadline(exo_clock_real(), REPLY_MAX), NULL, &err);
    EXPECT(st == EXO_OK || st == EXO_PEER_LOST, "a death: %d %s", (int)st, err.text);
    exo_future_drop(&death);
    forget(t, s);
}

static void *
thread_main(void *argument)
{
    struct thread *t = argument;
    while (!atomic_load(&board->stop)) {
        struct slot *s = &t->slots[below(t, SLOTS)];
        unsigned what = (unsigned)below(t, 100);
        if (!s->ref.id)
            fill(t, s);
        else if (what < 2)
            end_actor(t, s);
        else if (what < 10)
            audit(t, s);
        else
            call_some(t, s);
    }
    for (int i = 0; i < SLOTS; i++)
        if (t->slots[i].ref.id)
            audit(t, &t->slots[i]);
    return NULL;
}

/* After the faults, every name must lead to an actor that answers. */
static void
check_calm(struct thread *t)
{
    for (int i = 0; i < NAMES; i++) {
        exo_time patience = processes_now() + 60 * EXO_SECOND;
        struct slot *s = &t->slots[i];
        for (bool good = false; !good && processes_now() < patience;) {
            struct call c = {.nonce = new_nonce(t),
                             .began = processes_now(),
                             .deadline = processes_now() + 2 * EXO_SECOND,
                             .pokes = true};
            exo_payload args = {0};
            if (!s->ref.id)
                fill(t, s);
            CHECK(exo_payload_copy(&args, &c.nonce, sizeof c.nonce) == EXO_OK);
            exo_status st = exo_call(runtime, s->ref, "poke", args, c.deadline, &c.future, NULL);
            uint64_t before = s->num_answered;
            if (st != EXO_OK || end_call(t, s, &c))
                forget(t, s);
            good = s->num_answered > before;
        }
        EXPECT(s->num_answered, "shared-%d does not answer when all is over", i);
    }
}

static int
driver_main(const char *folder, unsigned index, uint64_t seed)
{
    static struct thread threads[THREADS];
    char job[32];
    pthread_t watch;
    snprintf(cluster_of.folder, sizeof cluster_of.folder, "%s", folder);
    board = open_board(folder, false);
    snprintf(job, sizeof job, "driver-%u", index);
    CHECK(pthread_create(&watch, NULL, note_pauses, NULL) == 0);
    cluster = processes_join(&cluster_of, job, &runtime);
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i].index = i;
        threads[i].random = seed + i;
        CHECK(pthread_create(&threads[i].id, NULL, thread_main, &threads[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    check_calm(&threads[0]);
    unsigned descriptors = processes_descriptors(getpid());
    EXPECT(descriptors < 200, "%u descriptors are open", descriptors);
    processes_leave(&cluster, &runtime);
    atomic_store(&over, true);
    pthread_join(watch, NULL);
    return atomic_load(&num_errors) ? 1 : 0;
}

/* --- Faults ----------------------------------------------------------------------------------- */

struct victim_process {
    enum {
        HEAD,
        WORKER,
        DRIVER
    } kind;
    unsigned index;
    pid_t pid;          /* the process that this test started: of a worker, its watcher; 0: dead */
    exo_time starts_at; /* if it is dead */
    pid_t stopped;      /* the process that is stopped; 0: none */
    exo_time goes_on_at;
    bool killed; /* by this test */
};

static processes all;
static uint64_t randomness;
static struct victim_process each[1 + WORKERS + DRIVERS];
static unsigned counts[8];

static uint64_t
choose(uint64_t n)
{
    return processes_random(&randomness) % n;
}

static void
start(struct victim_process *v)
{
    char index[16], seed[32], name[16];
    snprintf(index, sizeof index, "%u", v->index);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)processes_random(&randomness));
    snprintf(name, sizeof name, "driver%u", v->index);
    char self[512] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const char *driver[] = {self, "driver", all.folder, index, seed, NULL};
    if (v->kind == HEAD)
        CHECK(processes_start_head(&all));
    else if (v->kind == WORKER)
        CHECK(processes_start_worker(&all, v->index, false));
    v->pid = v->kind == HEAD     ? all.head
             : v->kind == WORKER ? all.workers[v->index]
                                 : processes_start(&all, NULL, name, false, driver);
    v->killed = false;
    CHECK(v->pid > 0);
}

static void
will_die(pid_t pid)
{
    unsigned i = atomic_load(&board->num_deaths);
    board->deaths[i % DEATHS].pid = (int)pid;
    board->deaths[i % DEATHS].when = processes_now();
    atomic_store(&board->num_deaths, i + 1);
}

static void
end_with(struct victim_process *v, int number, bool watcher)
{
    pid_t host = v->kind == WORKER ? processes_host_of(v->pid) : v->pid;
    if (!host)
        return;
    will_die(host);
    remains_none_of(host);
    kill(watcher ? v->pid : host, number);
    kill(host, SIGCONT);
    v->stopped = 0;
    v->killed = true;
}

/* Restarts a process that has ended, and continues one whose stop is over. */
static void
look_after(struct victim_process *v, bool restart)
{
    int status;
    exo_time now = processes_now();
    if (v->stopped && now >= v->goes_on_at) {
        kill(v->stopped, SIGCONT);
        v->stopped = 0;
    }
    if (v->pid && waitpid(v->pid, &status, WNOHANG) == v->pid) {
        if (!v->killed && (v->kind != DRIVER || status != 0)) {
            fprintf(stderr, "%s %u ended of its own accord, with status %#x\n",
                    v->kind == HEAD     ? "head"
                    : v->kind == WORKER ? "worker"
                                        : "driver",
                    v->index, (unsigned)status);
            all.failed = true;
        }
        v->pid = 0;
        v->starts_at = now + (exo_time)choose(500) * EXO_MS;
        if (v->kind == HEAD)
            all.head = 0;
        if (v->kind == WORKER)
            all.workers[v->index] = 0;
    }
    if (restart && !v->pid && now >= v->starts_at)
        start(v);
}

static void
one_fault(void)
{
    unsigned what = (unsigned)choose(100);
    struct victim_process *v = what < 60   ? &each[1 + choose(WORKERS)]
                               : what < 80 ? &each[0]
                                           : &each[1 + WORKERS + choose(DRIVERS)];
    if (!v->pid || v->killed)
        return;
    unsigned how = (unsigned)choose(100);
    if (how < 40 && !v->stopped) {
        v->stopped = v->kind == WORKER ? processes_host_of(v->pid) : v->pid;
        v->goes_on_at =
            processes_now() + 100 * EXO_MS + (exo_time)choose(choose(4) ? 500 : 2900) * EXO_MS;
        if (v->stopped)
            kill(v->stopped, SIGSTOP);
        counts[0]++;
    } else if (how < 80) {
        end_with(v, SIGKILL, false);
        counts[1]++;
    } else if (how < 90 && v->kind == WORKER) {
        end_with(v, SIGKILL, true);
        counts[2]++;
    } else {
        end_with(v, SIGSEGV, false);
        counts[3]++;
    }
}

static void
run_for(exo_time time, bool restart)
{
    exo_time until = processes_now() + time;
    do {
        for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
            look_after(&each[i], restart);
        usleep(2000);
    } while (processes_now() < until);
}

/* Faults begin when all threads of all drivers are at work, however long they take to start. */
static void
await_drivers(void)
{
    exo_time patience = processes_now() + 120 * EXO_SECOND;
    while (atomic_load(&board->begun) < DRIVERS * THREADS && !all.failed &&
           processes_now() < patience)
        run_for(2 * EXO_MS, true);
    if (atomic_load(&board->begun) < DRIVERS * THREADS && !all.failed) {
        fprintf(stderr, "%u threads of the drivers have had an answer\n",
                atomic_load(&board->begun));
        all.failed = true;
    }
}

static bool
all_run(void)
{
    bool good = true;
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%u", each[i].index);
        good = good && each[i].pid && !each[i].killed &&
               (each[i].kind != WORKER || processes_is_ready(&all, name));
    }
    return good;
}

static bool
drivers_run(void)
{
    for (size_t i = 1 + WORKERS; i < sizeof each / sizeof each[0]; i++)
        if (each[i].pid)
            return true;
    return false;
}

static void
calm_down(void)
{
    bool hangs = false;
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        if (each[i].stopped)
            kill(each[i].stopped, SIGCONT);
        each[i].stopped = 0;
    }
    exo_time patience = processes_now() + 60 * EXO_SECOND;
    do
        run_for(100 * EXO_MS, true);
    while (!all_run() && !all.failed && processes_now() < patience);
    atomic_store(&board->stop, true);
    exo_time deadline = processes_now() + 120 * EXO_SECOND;
    while (drivers_run() && !all.failed && processes_now() < deadline)
        run_for(2 * EXO_MS, false);
    for (size_t i = 1 + WORKERS; i < sizeof each / sizeof each[0]; i++) {
        if (!each[i].pid)
            continue;
        if (!all.failed)
            fprintf(stderr, "driver %u does not end\n", each[i].index);
        else /* after a failure, the event that the driver waits for may never come */
            remains_none_of(each[i].pid);
        kill(each[i].pid, SIGABRT);
        waitpid(each[i].pid, NULL, 0);
        hangs = hangs || !all.failed;
    }
    all.failed = all.failed || hangs;
}

/* The drivers have left, so no object may still be lent to them. */
static void
check_nothing_held(void)
{
    char text[4096];
    const char *const words[] = {"exogym", "list",     "objects",  "--json", "--cluster",
                                 "t",      "--folder", all.folder, NULL};
    exo_time patience = processes_now() + 60 * EXO_SECOND;
    bool none = false;
    while (!none && processes_now() < patience)
        none = processes_output(&all, NULL, words, text, sizeof text) && strcmp(text, "[]\n") == 0;
    if (!none)
        fprintf(stderr, "objects are left: %s\n", text);
    all.failed = all.failed || !none;
    for (unsigned i = 0; i <= WORKERS; i++) {
        pid_t pid = i == 0 ? all.head : processes_host_of(all.workers[i - 1]);
        unsigned descriptors = processes_descriptors(pid);
        if (descriptors > 200) {
            fprintf(stderr, "process %d has %u descriptors\n", (int)pid, descriptors);
            all.failed = true;
        }
    }
}

static void
print_figures(void)
{
    printf("%llu calls: %llu values, %llu lost, %llu late, %llu cancelled, %llu others; %llu "
           "actors looked for\n",
           (unsigned long long)board->calls, (unsigned long long)board->values,
           (unsigned long long)board->lost, (unsigned long long)board->late,
           (unsigned long long)board->cancelled, (unsigned long long)board->other,
           (unsigned long long)board->lookups);
    printf("who waited for a process heard of its death");
    for (int i = 0; i < WITHIN; i++)
        printf(i < WITHIN - 1 ? " within %d ms: %llu," : " later%.0d: %llu\n", within_ms[i],
               (unsigned long long)board->heard[i]);
    printf("%u stopped, %u killed, %u whose watcher was killed, %u crashed\n", counts[0], counts[1],
           counts[2], counts[3]);
}

int
main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "driver") == 0)
        return driver_main(argv[2], (unsigned)atoi(argv[3]), strtoull(argv[4], NULL, 0));
    uint64_t rounds = processes_setting("EXO_CHAOS_ROUNDS", 40);
    uint64_t seed = processes_setting("EXO_CHAOS_SEED", (uint64_t)processes_now());
    randomness = seed;
    printf("EXO_CHAOS_SEED=%llu EXO_CHAOS_ROUNDS=%llu\n", (unsigned long long)seed,
           (unsigned long long)rounds);
    fflush(stdout);
    processes_open(&all);
    board = open_board(all.folder, true);
    for (unsigned i = 0; i < 1 + WORKERS + DRIVERS; i++) {
        each[i].kind = i == 0 ? HEAD : i <= WORKERS ? WORKER : DRIVER;
        each[i].index = i == 0 ? 0 : i <= WORKERS ? i - 1 : i - 1 - WORKERS;
        start(&each[i]);
    }
    await_drivers();
    run_for(500 * EXO_MS, true);
    for (uint64_t i = 0; i < rounds && !all.failed; i++) {
        one_fault();
        run_for((exo_time)choose(400) * EXO_MS, true);
    }
    calm_down();
    check_nothing_held();
    bool good = processes_close(&all);
    print_figures();
    printf("%s\n", good ? "good" : "failed");
    return good ? 0 : 1;
}
