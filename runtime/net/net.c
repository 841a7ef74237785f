/* The net: its threads, and the choice of the driver. Read net_impl.h first; next peer_impl.h, for
 * peers and sockets.
 *
 * A turn of the loop waits for events, receives what has come and hands it over. Home takes turns
 * all the time. A thread that waits for a reply asks to drive; then home parks, and the thread
 * takes the turns itself, so that no other thread stands between it and its reply. Such a thread
 * does not wake home when it is done, since most often it calls and waits again at once. Instead,
 * the guard checks every GUARD_TICK whether any thread drives, and wakes home if none does. The
 * guard also takes over the turns when home runs a long method. It sleeps when there is nothing to
 * do.
 *
 * Owner: net_impl.h says which thread or lock owns each field. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/thread.h"
#include "net/intake.h"
#include "net/net_impl.h"
#include "net/zmq_again.h"

#define GUARD_TICK (500 * EXO_US)
#define TURN       EXO_MS /* how long a turn receives, plus one message, before it settles */
/* a round trip between cores that are awake, and a little more */
#define SPIN            (60 * EXO_US)
#define DEFAULT_TIMEOUT (5 * EXO_SECOND)
#define DEFAULT_UNREAD  ((size_t)256 << 20)
#define LEAST_UNREAD    ((size_t)4 << 20)

enum {
    SOCKETS = 16384, /* one for each peer that this process connected to, and the listeners */
    /* ZMQ_ZERO_COPY_RECV. zmq.h has the name among its drafts only; libzmq has had the option since
     * 4.2. */
    ZERO_COPY_RECV = 10,
    /* Of ZeroMQ's context and its first socket, with which its threads start: one for events and one
     * that closes sockets. It ends the process if it cannot have them. */
    ZEROMQ_THREADS = 2,
    ZEROMQ_DESCRIPTORS = 10,
    EVENTS = 64,
    MESSAGES = 64,    /* that a turn receives at most before it settles */
    ENVELOPES = 4096, /* the same, of envelopes */
    QUIET_TICKS = 200 /* quiet ticks after which the guard sleeps */
};

/* --- Events ----------------------------------------------------------------------------------- */

bool
exo_net_watch_locked(exo_net *net, int fd, exo_source *source)
{
    if (fd < 0) {
        errno = EBADF;
        return false;
    }
    if ((size_t)fd >= net->num_sources) {
        size_t count = 2 * ((size_t)fd + 16);
        exo_source **larger = exo_realloc(net->sources, count, sizeof(exo_source *));
        if (!larger) {
            errno = ENOMEM;
            return false;
        }
        memset(larger + net->num_sources, 0, (count - net->num_sources) * sizeof(exo_source *));
        net->sources = larger;
        net->num_sources = count;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(net->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return false;
    net->sources[fd] = source;
    return true;
}

void
exo_net_unwatch_locked(exo_net *net, int fd)
{
    if (fd < 0)
        return;
    epoll_ctl(net->epoll, EPOLL_CTL_DEL, fd, NULL);
    if ((size_t)fd < net->num_sources)
        net->sources[fd] = NULL;
}

/* While `kicked` is set, a byte is in the pipe, or the thread that set it is about to write one. So
 * the driver clears it only after it has emptied the pipe, and before it looks for work. */
void
exo_net_kick(exo_net *net)
{
    if (atomic_load(&net->waiting) && !atomic_exchange(&net->kicked, true)) {
        ssize_t written = write(net->kicker, "", 1);
        (void)written; /* a full pipe wakes the driver, too */
    }
}

static bool
has_ended(int process_fd)
{
    /* poll, because it needs no descriptor of its own: there may be none left */
    struct pollfd end = {.fd = process_fd, .events = POLLIN};
    return poll(&end, 1, 0) == 1 && (end.revents & POLLIN);
}

static void
handle_event_locked(exo_net *net, int fd)
{
    exo_source *source = fd >= 0 && (size_t)fd < net->num_sources ? net->sources[fd] : NULL;
    char cause[64], rings[64];
    if (!source)
        return;
    switch (source->kind) {
    case EXO_SOURCE_KICK:
        while (read(fd, rings, sizeof rings) == sizeof rings)
            continue;
        atomic_store(&net->kicked, false);
        break;
    case EXO_SOURCE_SOCKET:
        ((exo_socket *)source->owner)->ready = true;
        break;
    case EXO_SOURCE_BELL:
        exo_peer_hear_bell_locked(net, source->owner);
        break;
    case EXO_SOURCE_DOOR:
        exo_net_answer_door_locked(net, source->owner);
        break;
    case EXO_SOURCE_PROCESS: {
        exo_peer *peer = source->owner;
        if (has_ended(fd)) { /* false: the descriptor's number now belongs to another one */
            snprintf(cause, sizeof cause, "its process %u ended", peer->pid);
            exo_peer_lose_locked(net, peer, cause);
        }
        break;
    }
    }
}

/* The time until something is due, in ms for epoll_wait; 0: there is work now. */
static int
time_to_wait_locked(exo_net *net, exo_time deadline)
{
    for (exo_socket *s = net->sockets; s; s = s->next)
        if (s->ready)
            return 0;
    exo_time now = exo_now(exo_clock_real());
    exo_time until = net->next_tick < deadline ? net->next_tick : deadline;
    if (net->first_lost || until <= now || exo_net_has_rung_locked(net))
        return 0;
    return (int)((until - now) / EXO_MS) + 1;
}

/* Waits for events, up to `wait` ms. After a message the next one is often near. So for a short
 * time the driver polls instead of sleeping, and yields the core to threads that can use it: a
 * sleeping core would take longer to wake than the answer takes to arrive. */
static int
await_events(exo_net *net, struct epoll_event events[EVENTS], int wait)
{
    exo_time until = net->busy ? exo_now(exo_clock_real()) + SPIN : INT64_MIN;
    bool rung = false;
    for (bool last = false; wait > 0 && !last;) {
        int count = epoll_wait(net->epoll, events, EVENTS, 0);
        if (count != 0)
            return count;
        last = exo_now(exo_clock_real()) >= until;
        pthread_mutex_lock(&net->lock);
        if (last)
            exo_net_sleep_locked(net);
        rung = exo_net_has_rung_locked(net);
        pthread_mutex_unlock(&net->lock);
        if (rung)
            return 0;
        if (!last && !exo_crowd_yield(&net->crowd))
            until = INT64_MIN; /* beside other work, a sleep is shorter */
    }
    return epoll_wait(net->epoll, events, EVENTS, wait);
}

/* One turn of the loop, by the driver. */
static void
turn(exo_net *net, exo_driver driver, exo_time deadline)
{
    struct epoll_event events[EVENTS];
    pthread_mutex_lock(&net->lock);
    exo_net_flush_locked(net);
    atomic_store(&net->waiting, true);
    int wait = time_to_wait_locked(net, deadline);
    pthread_mutex_unlock(&net->lock);
    if (atomic_load(&net->closing) || (driver != EXO_DRIVER_WAITER && atomic_load(&net->wanted)))
        wait = 0;
    int count = await_events(net, events, wait);
    atomic_store(&net->waiting, false);

    /* only the driver writes next_tick */
    if (net->opts.allowed && exo_now(exo_clock_real()) >= net->next_tick)
        exo_allow_list_refresh(net->opts.allowed);
    pthread_mutex_lock(&net->lock);
    for (int i = 0; i < count; i++)
        handle_event_locked(net, events[i].data.fd);
    exo_time now = exo_now(exo_clock_real());
    net->turn_began = now;
    if (now >= net->next_tick) {
        exo_net_excuse_silence_locked(net, now);
        exo_net_tick_locked(net, now);
    }
    pthread_mutex_unlock(&net->lock);
    exo_net_report_lost(net);
    size_t envelopes = 0, got = 1;
    for (int i = 0; i < MESSAGES && got > 0 && envelopes < ENVELOPES; i++) {
        got = exo_net_receive(net);
        envelopes += got;
        if (i > 0 && exo_now(exo_clock_real()) - now > TURN)
            break;
    }
    net->busy = envelopes > 0;
    atomic_fetch_add(&net->turns, 1);
}

/* --- Drivers ---------------------------------------------------------------------------------- */

/* Begins to drive if no thread drives, and gives -1; otherwise gives the current driver. */
static int
try_to_drive(exo_net *net, exo_driver driver)
{
    int nobody = -1;
    return atomic_compare_exchange_strong(&net->driver, &nobody, (int)driver) ? -1 : nobody;
}

/* Begins to drive, after home or guard has finished its turn if one of them drives. False: another
 * waiting thread drives. It may do so for long, and this thread's reply may come meanwhile, so this
 * thread must not wait for it here. */
static bool
take_over(exo_net *net, exo_driver driver)
{
    int other = try_to_drive(net, driver);
    if (other == -1 || other == EXO_DRIVER_WAITER)
        return other == -1;
    atomic_fetch_add(&net->wanted, 1);
    exo_net_kick(net);
    pthread_mutex_lock(&net->drive_lock);
    while ((other = try_to_drive(net, driver)) != -1 && other != EXO_DRIVER_WAITER)
        pthread_cond_wait(&net->driver_left, &net->drive_lock);
    pthread_mutex_unlock(&net->drive_lock);
    atomic_fetch_sub(&net->wanted, 1);
    return other == -1;
}

static void
end_driving(exo_net *net)
{
    pthread_mutex_lock(&net->drive_lock);
    atomic_store(&net->driver, -1);
    if (atomic_load(&net->wanted))
        pthread_cond_broadcast(&net->driver_left);
    pthread_mutex_unlock(&net->drive_lock);
}

/* The guard must be awake while it may have to take over. */
static void
wake_guard(exo_net *net)
{
    if (!atomic_load(&net->guard_sleeps))
        return;
    pthread_mutex_lock(&net->park_lock);
    atomic_store(&net->guard_sleeps, false);
    pthread_cond_signal(&net->guard_wake);
    pthread_mutex_unlock(&net->park_lock);
}

/* Leaves the turns to waiting threads, until the guard finds that no thread drives. */
static void
park(exo_net *net)
{
    pthread_mutex_lock(&net->park_lock);
    net->parked = true;
    atomic_store(&net->guard_sleeps, false);
    pthread_cond_signal(&net->guard_wake);
    while (net->parked && !atomic_load(&net->closing))
        pthread_cond_wait(&net->park, &net->park_lock);
    net->parked = false;
    pthread_mutex_unlock(&net->park_lock);
}

static void
settle(exo_net *net, exo_driver driver)
{
    net->opts.handler->settle(net->opts.context, driver);
}

/* Takes turns until a waiting thread wants to drive. */
static void
drive_from_home(exo_net *net)
{
    while (take_over(net, EXO_DRIVER_HOME)) {
        bool leaves = atomic_load(&net->closing) || atomic_load(&net->wanted);
        if (!leaves) {
            turn(net, EXO_DRIVER_HOME, INT64_MAX);
            /* Other threads may take turns while home runs the methods. */
            atomic_store(&net->home_runs, true);
            wake_guard(net);
        }
        end_driving(net);
        if (leaves)
            return;
        settle(net, EXO_DRIVER_HOME);
        atomic_store(&net->home_runs, false);
    }
}

static void *
home_main(void *argument)
{
    exo_net *net = argument;
    while (!atomic_load(&net->closing)) {
        drive_from_home(net);
        if (!atomic_load(&net->closing))
            park(net);
    }
    return NULL;
}

/* Drives while home runs a method. */
static void
stand_in(exo_net *net)
{
    while (!atomic_load(&net->closing) && !atomic_load(&net->wanted)) {
        turn(net, EXO_DRIVER_GUARD, INT64_MAX);
        settle(net, EXO_DRIVER_GUARD);
    }
    end_driving(net);
}

static void
nap(exo_time length)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)length}, NULL);
}

/* Called while home waits for events: the guard is not needed. */
static void
sleep_guard_locked(exo_net *net)
{
    atomic_store(&net->guard_sleeps, true);
    /* Home sets home_runs before it reads guard_sleeps. So one of the two threads sees the other's
     * store. */
    if (atomic_load(&net->home_runs))
        atomic_store(&net->guard_sleeps, false);
    while (atomic_load(&net->guard_sleeps) && !atomic_load(&net->closing))
        pthread_cond_wait(&net->guard_wake, &net->park_lock);
}

static void *
guard_main(void *argument)
{
    exo_net *net = argument;
    unsigned quiet = 0, last = 0;
    while (!atomic_load(&net->closing)) {
        unsigned turns = atomic_load(&net->turns);
        bool busy = atomic_load(&net->home_runs);
        nap(GUARD_TICK);
        quiet = turns == last ? quiet + 1 : 0;
        last = turns;
        pthread_mutex_lock(&net->park_lock);
        bool parked = net->parked;
        if (!parked && !busy && quiet > QUIET_TICKS) {
            sleep_guard_locked(net);
            quiet = 0;
        }
        pthread_mutex_unlock(&net->park_lock);
        if (!parked && !(busy && atomic_load(&net->home_runs) && atomic_load(&net->turns) == turns))
            continue;
        if (!parked) {
            if (try_to_drive(net, EXO_DRIVER_GUARD) == -1)
                stand_in(net);
        } else if (atomic_load(&net->driver) == -1) {
            pthread_mutex_lock(&net->park_lock);
            net->parked = false;
            pthread_cond_signal(&net->park);
            pthread_mutex_unlock(&net->park_lock);
        }
    }
    return NULL;
}

bool
exo_net_drive(exo_net *net, bool (*done)(void *argument), void *argument, exo_time deadline)
{
    exo_net_flush(net);
    if (!atomic_load(&net->started) || !take_over(net, EXO_DRIVER_WAITER))
        return false;
    for (;;) {
        /* before done() is called: exo_net_kick reports any later change */
        atomic_store(&net->waiting, true);
        if (done(argument) || exo_now(exo_clock_real()) >= deadline || atomic_load(&net->closing))
            break;
        turn(net, EXO_DRIVER_WAITER, deadline);
        settle(net, EXO_DRIVER_WAITER);
    }
    atomic_store(&net->waiting, false);
    end_driving(net);
    return true;
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static const exo_null_domain null_domains[] = {{.name = "ipc", .rule = EXO_NULL_SAME_USER},
                                               {.name = "insecure", .rule = EXO_NULL_ANYONE}};

/* The folder of an ipc endpoint must belong to this user alone: every process that can reach the
 * socket may call. */
static exo_status
check_private(const char *endpoint, exo_err *err)
{
    const char *path = endpoint + strlen("ipc://"), *slash = strrchr(path, '/');
    char folder[EXO_WIRE_NAME];
    struct stat info;
    if (!slash || (size_t)(slash - path) >= sizeof folder)
        return exo_fail(err, EXO_INVAL, "%s: an ipc endpoint is a path in a private folder",
                        endpoint);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    if (stat(folder, &info) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", folder, strerror(errno));
    if (info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        return exo_fail(err, EXO_INVAL,
                        "%s: the folder of an ipc endpoint must belong to you alone (chmod 700)",
                        folder);
    return EXO_OK;
}

/* Opens the door at which peers of this host hand over memory. Without one the socket carries
 * everything. */
static void
open_door_locked(exo_net *net, exo_socket *s, const char *endpoint)
{
    exo_err err = {0};
    if (!exo_door_path(endpoint, s->door_path))
        return;
    if (exo_door_open(s->door_path, &s->door, &err) != EXO_OK) {
        EXO_LOG(WARN, NET, "no rings: %s", err.text);
    } else if (!exo_net_watch_locked(net, s->door, &s->door_source)) {
        close(s->door);
        unlink(s->door_path);
        s->door = -1;
    }
}

bool
exo_net_is_keyed(const char *endpoint)
{
    size_t length = strlen(endpoint), end = strlen(EXO_NET_KEYED);
    return strncmp(endpoint, "ipc://", 6) == 0 && length > end &&
           strcmp(endpoint + length - end, EXO_NET_KEYED) == 0;
}

static exo_status
bind_endpoint_locked(exo_net *net, const char *endpoint, char **bound, exo_err *err)
{
    exo_socket *s = NULL;
    char address[EXO_WIRE_NAME], real[EXO_WIRE_NAME];
    size_t size = sizeof real;
    bool ipc = strncmp(endpoint, "ipc://", 6) == 0;
    if (strlen(endpoint) >= sizeof address)
        return exo_fail(err, EXO_INVAL, "an endpoint is longer than %zu characters: '%.40s...'",
                        sizeof address - 1, endpoint);
    exo_status st = ipc ? check_private(endpoint, err) : EXO_OK;
    if (st == EXO_OK)
        st = exo_net_add_socket_locked(net, ZMQ_ROUTER, &s, err);
    if (st == EXO_OK) {
        s->ipc = ipc;
        s->with_keys = ipc ? exo_net_is_keyed(endpoint) : net->opts.keys != NULL;
    }
    if (st == EXO_OK && s->with_keys && (!net->opts.keys || !net->opts.allowed))
        st =
            exo_fail(err, EXO_INVAL,
                     "%s: such a socket needs keys, and a list of those that are let in", endpoint);
    if (st == EXO_OK)
        st = s->with_keys ? exo_curve_server(s->zmq, net->opts.keys, err)
                          : exo_null_server(s->zmq, ipc ? "ipc" : "insecure", err);
    if (st == EXO_OK)
        st = exo_zap_watch(net->zap, s->zmq, err);
    if (st != EXO_OK)
        return st;
    exo_socket_limit(s, true);
    exo_socket_choose_family(s, endpoint);
    size_t length = strlen(endpoint);
    bool any = !ipc && length > 2 && strcmp(endpoint + length - 2, ":0") == 0;
    snprintf(address, sizeof address, "%.*s%s", (int)(any ? length - 1 : length), endpoint,
             any ? "*" : "");
    exo_intake_begin(net);
    int bound_to = exo_zmq_bind(s->zmq, address);
    exo_intake_end();
    if (bound_to != 0)
        return exo_fail(err, zmq_errno() == EADDRINUSE ? EXO_EXISTS : EXO_INVAL,
                        "cannot listen on %s: %s", endpoint,
                        zmq_errno() == ENODEV
                            ? "this host has no such interface: give an address of its own, or "
                              "0.0.0.0 for all of them"
                            : zmq_strerror(zmq_errno()));
    if (zmq_getsockopt(s->zmq, ZMQ_LAST_ENDPOINT, real, &size) != 0 || !(*bound = exo_strdup(real)))
        return exo_fail(err, EXO_NOMEM, "no memory for an endpoint");
    if (ipc)
        open_door_locked(net, s, real);
    return EXO_OK;
}

static exo_status
open_endpoints(exo_net *net, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&net->lock);
    for (size_t i = 0; st == EXO_OK && i < net->opts.num_endpoints; i++)
        st = bind_endpoint_locked(net, net->opts.endpoints[i], &net->bound[i], err);
    pthread_mutex_unlock(&net->lock);
    return st;
}

/* Chooses this process's identity. Errors: INVAL (it does not fit into a Hello), NOMEM, FAILED (no
 * descriptor is left to read its start time). */
static exo_status
identify_self(exo_net *net, exo_err *err)
{
    exo_wire_writer writer = {0};

    while (net->self.node == 0)
        if (getrandom(&net->self.node, sizeof net->self.node, 0) < 0)
            net->self.node = (uint64_t)exo_now(exo_clock_real()) ^ (uint64_t)getpid() << 32;
    if (net->opts.boot)
        snprintf(net->boot, sizeof net->boot, "%s", net->opts.boot);
    else
        exo_boot_id(net->boot);
    net->self.pid = (uint32_t)getpid();
    /* peers would take this process for another one */
    if (!exo_process_look(net->self.pid, &net->self.start))
        return exo_fail(err, EXO_FAILED, "/proc/%u/stat: it cannot be read: %s", net->self.pid,
                        strerror(errno));
    net->self.boot = net->boot;
    net->self.name = net->name;
    net->self.cluster = net->cluster;
    net->self.endpoint = net->advertised           ? net->advertised
                         : net->opts.num_endpoints ? net->bound[0]
                                                   : "";
    exo_status st =
        exo_wire_add(&writer, &(exo_envelope){.kind = EXO_WIRE_HELLO, .who = net->self}, err);
    exo_wire_release(&writer);
    return st;
}

exo_status
exo_net_start(exo_net *net, exo_err *err)
{
    atomic_store(&net->started, true);
    exo_status st = exo_thread_start(&net->home, home_main, net, "the net", err);
    net->has_home = st == EXO_OK;
    if (st == EXO_OK)
        st = exo_thread_start(&net->guard, guard_main, net, "the net", err);
    net->has_guard = st == EXO_OK;
    return st;
}

/* Makes the locks and sets options to their defaults; cannot fail. */
static void
init_net(exo_net *net, const exo_net_opts *opts)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&net->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_cond_init(&net->park, NULL);
    pthread_cond_init(&net->guard_wake, NULL);
    pthread_mutex_init(&net->drive_lock, NULL);
    pthread_cond_init(&net->driver_left, NULL);
    pthread_mutex_init(&net->lock, NULL);
    pthread_mutex_init(&net->park_lock, NULL);
    net->opts = *opts;
    if (net->opts.peer_timeout <= 0)
        net->opts.peer_timeout = DEFAULT_TIMEOUT;
    net->opts.trusted = net->opts.trusted ? net->opts.trusted : "";
    if (net->opts.unread_limit == 0)
        net->opts.unread_limit = DEFAULT_UNREAD;
    if (net->opts.unread_limit < LEAST_UNREAD)
        net->opts.unread_limit = LEAST_UNREAD;
    net->driver = -1;
}

/* Makes names, descriptors and ZeroMQ's context. */
static exo_status
make_parts(exo_net *net, const exo_net_opts *opts, exo_err *err)
{
    int ends[2] = {-1, -1};
    net->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        ends[0] = ends[1] = -1;
    net->kick = ends[0];
    net->kicker = ends[1];
    net->kick_source.kind = EXO_SOURCE_KICK;
    net->name = exo_strdup(opts->name);
    net->cluster = exo_strdup(opts->cluster ? opts->cluster : "");
    net->advertised = opts->advertised ? exo_strdup(opts->advertised) : NULL;
    net->bound = exo_calloc(opts->num_endpoints + 1, sizeof(char *));
    exo_status st = exo_thread_try(ZEROMQ_THREADS, ZEROMQ_DESCRIPTORS, "ZeroMQ", err);
    if (st != EXO_OK)
        return st;
    net->context = zmq_ctx_new();
    if (net->context) {
        zmq_ctx_set(net->context, ZMQ_MAX_SOCKETS, SOCKETS);
        /* otherwise each waiting message of 40 bytes would hold 18 KiB */
        zmq_ctx_set(net->context, ZERO_COPY_RECV, 0);
    }
    bool made = net->name && net->cluster && net->bound && net->context && net->epoll >= 0 &&
                net->kick >= 0 && exo_net_watch_locked(net, net->kick, &net->kick_source);
    return made ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory or descriptors for a net");
}

exo_status
exo_net_open(exo_net **out, const exo_net_opts *opts, exo_err *err)
{
    exo_net *net = exo_calloc(1, sizeof *net);
    *out = NULL;
    if (!net)
        return exo_fail(err, EXO_NOMEM, "no memory for a net");
    exo_status st = exo_intake_open(err);
    if (st != EXO_OK) {
        exo_free(net);
        return st;
    }
    init_net(net, opts);
    exo_net_count_from_now(net);
    st = make_parts(net, opts, err);
    if (st == EXO_OK)
        st = exo_wire_reader_init(&net->reader, err);
    net->rung = exo_calloc(1, EXO_RING_MESSAGE);
    if (st == EXO_OK && !net->rung)
        st = exo_fail(err, EXO_NOMEM, "no memory for messages");
    if (st == EXO_OK)
        st = exo_zap_open(
            &net->zap, net->context,
            &(exo_zap_opts){.allow = opts->allowed,
                            .null_domains = null_domains,
                            .num_null_domains = sizeof null_domains / sizeof null_domains[0],
                            .audit = opts->audit},
            err);
    if (st == EXO_OK)
        st = open_endpoints(net, err);
    if (st == EXO_OK)
        st = identify_self(net, err);
    if (st != EXO_OK)
        goto done;
    *out = net; /* before any thread starts: callbacks use *out at once */
    st = net->opts.held ? EXO_OK : exo_net_start(net, err);
    if (st == EXO_OK)
        return EXO_OK;
done:
    exo_net_close(&net); /* joins `home`, which may use *out until then */
    *out = NULL;
    return st;
}

static void
lose_all(exo_net *net, const char *why)
{
    for (;;) {
        pthread_mutex_lock(&net->lock);
        exo_peer *peer = net->peers ? exo_peer_hold(net->peers) : NULL;
        pthread_mutex_unlock(&net->lock);
        if (!peer)
            break;
        exo_peer_lose(net, peer, why ? why : "it ended");
        exo_peer_drop(&peer);
    }
    while (exo_net_report_lost(net))
        continue;
}

void
exo_net_stop(exo_net *net, const char *why)
{
    atomic_store(&net->closing, true);
    atomic_store(&net->waiting, true);
    atomic_store(&net->kicked, false);
    exo_net_kick(net);
    pthread_mutex_lock(&net->park_lock);
    atomic_store(&net->guard_sleeps, false);
    pthread_cond_broadcast(&net->park);
    pthread_cond_broadcast(&net->guard_wake);
    pthread_mutex_unlock(&net->park_lock);
    if (net->has_home)
        pthread_join(net->home, NULL);
    if (net->has_guard)
        pthread_join(net->guard, NULL);
    net->has_home = net->has_guard = false;
    /* A waiting thread that drives ends its turn, and no other begins. */
    atomic_fetch_add(&net->wanted, 1);
    pthread_mutex_lock(&net->drive_lock);
    while (atomic_load(&net->driver) != -1)
        pthread_cond_wait(&net->driver_left, &net->drive_lock);
    pthread_mutex_unlock(&net->drive_lock);
    atomic_fetch_sub(&net->wanted, 1);
    lose_all(net, why);
}

void
exo_net_close(exo_net **handle)
{
    exo_net *net = *handle;
    if (!net)
        return;
    *handle = NULL;
    exo_net_stop(net, NULL);
    pthread_mutex_lock(&net->lock);
    exo_intake_leave_strangers(net);
    while (net->sockets)
        exo_net_remove_socket_locked(net, net->sockets);
    pthread_mutex_unlock(&net->lock);
    exo_zap_close(&net->zap);
    while (net->context && zmq_ctx_term(net->context) != 0 && zmq_errno() == EINTR)
        continue; /* a signal ends the wait, and its threads would stay */
    exo_wire_reader_release(&net->reader);
    exo_free(net->rung);
    if (net->epoll >= 0)
        close(net->epoll);
    if (net->kick >= 0) {
        close(net->kick);
        close(net->kicker);
    }
    for (size_t i = 0; net->bound && i < net->opts.num_endpoints; i++)
        exo_free(net->bound[i]);
    exo_free(net->bound);
    exo_free(net->sources);
    exo_free(net->name);
    exo_free(net->cluster);
    exo_free(net->advertised);
    pthread_cond_destroy(&net->changed);
    pthread_cond_destroy(&net->park);
    pthread_cond_destroy(&net->guard_wake);
    pthread_mutex_destroy(&net->drive_lock);
    pthread_cond_destroy(&net->driver_left);
    pthread_mutex_destroy(&net->lock);
    pthread_mutex_destroy(&net->park_lock);
    exo_intake_close();
    exo_free(net);
}

const char *
exo_net_endpoint(const exo_net *net, size_t i)
{
    return i < net->opts.num_endpoints ? net->bound[i] : NULL;
}

uint64_t
exo_net_node(const exo_net *net)
{
    return net->self.node;
}
