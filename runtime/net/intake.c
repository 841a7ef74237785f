/* The intake; intake.h has the contracts.
 *
 * Each descriptor of a listener, and of a connection that it accepted, has an account, found by its
 * number without a lock. Strangers are in a list, the oldest first. The lock guards accounts but
 * for their kinds and bytes, which are atomic: ZeroMQ's thread reads them at every recv.
 *
 *            accept4                admit                 close
 *   (none) ----------> STRANGER ------------> ADMITTED ----------> (none)
 *                       |  ^                    |                     ^
 *                       |  +--------------------+ dismiss             |
 *                       |  room is needed, too slow                   |
 *                       +----------------------------> GOING ---------+
 *
 * Of any of these a connection becomes LEAVING, when the net is about to close its socket.
 *
 * 1. A stranger that must go is shut down for reading. ZeroMQ finds the end and closes it.
 * 2. The other side gets a reset, not an orderly end, which tells it that it may try again
 *    (attempt.c).
 * 3. Only the descriptor's owner closes it. So no other connection has the number by then. */
#undef _FORTIFY_SOURCE /* it makes recv inline, and this file defines recv */

#include "net/intake.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "net/net_limits.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags);
EXPORTED int close(int fd);
EXPORTED int listen(int fd, int backlog);
EXPORTED ssize_t recv(int fd, void *data, size_t size, int flags);
EXPORTED ssize_t send(int fd, const void *data, size_t size, int flags);

enum {
    CHUNK = 1024, /* accounts that are allocated at a time */
    AT_ONCE = 64, /* connections that accept4 refuses before it returns to ZeroMQ */
    ADDRESS = 16, /* bytes; an IPv4 address is mapped */
    /* bytes of an IPv6 address that name a network: one host may have 2^64 addresses */
    NETWORK = 8,
    NUMBER_BITS = 20 /* of a ticket, for the descriptor's number */
};
_Static_assert(EXO_LIMIT_DESCRIPTORS == 1 << NUMBER_BITS, "a ticket holds any descriptor's number");

enum kind {
    NONE,
    LISTENER,
    STRANGER,
    ADMITTED,
    GOING,
    LEAVING,
};

/* The origin of a connection. */
struct origin {
    uint64_t number; /* counted by its listener, from 1; 0: the entry is empty */
    int fd;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } from;
};

struct account {
    atomic_uint kind;
    /* bytes that ZeroMQ has read and the net has not taken; a stranger's: all */
    atomic_size_t held;
    atomic_ullong read; /* bytes that ZeroMQ has read, since the connection was made or admitted */
    bool listed;        /* in the list of strangers */
    bool elsewhere;     /* it came from another host, or may have */
    _Atomic uint64_t serial;
    unsigned ticks;
    const void *owner;
    uint8_t address[ADDRESS];
    int fd;
    struct account *prev, *next;
    /* a listener's: a ring buffer of EXO_LIMIT_ORIGINS, by number; NULL: none */
    struct origin *origins;
    uint64_t accepted; /* connections that the listener accepted */
};

/* The state is the process's, as descriptors are. */
static struct {
    _Atomic(struct account *) chunks[EXO_LIMIT_DESCRIPTORS / CHUNK];
    pthread_mutex_t lock;
    struct account *first, *last; /* strangers, the oldest first; guarded by lock, as all below */
    size_t strangers;             /* those in the list that came from elsewhere */
    uint64_t serial;              /* of the newest account */
    atomic_size_t limit;          /* soft limit of descriptors */
    /* closed for a moment, to accept and end a connection when no other is left; -1: none */
    int spare;
    unsigned users; /* open nets */
    /* ZeroMQ calls the functions of this file; not in a process that loads the library by dlopen */
    bool effective;
    exo_intake_figures figures;
    atomic_ullong overfull;
} intake = {.lock = PTHREAD_MUTEX_INITIALIZER, .spare = -1};

static _Thread_local const void *listens_for;

/* The functions of the next library; NULL before find_next, and then the kernel is called. */
static struct {
    int (*accept4)(int listener, struct sockaddr *address, socklen_t *size, int flags);
    int (*close)(int fd);
    int (*listen)(int fd, int backlog);
    ssize_t (*recv)(int fd, void *data, size_t size, int flags);
    ssize_t (*send)(int fd, const void *data, size_t size, int flags);
} next_of;

/* The descriptor whose reset send returned to this thread; -1: none. */
static _Thread_local int reset_fd = -1;

static void
lock(void)
{
    pthread_mutex_lock(&intake.lock);
}

static void
unlock(void)
{
    pthread_mutex_unlock(&intake.lock);
}

static void
read_limit(void)
{
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < EXO_LIMIT_DESCRIPTORS;
    atomic_store(&intake.limit, known ? (size_t)limit.rlim_cur : EXO_LIMIT_DESCRIPTORS);
}

/* Runs before main: dlsym takes locks of the loader, which could be held in a child of fork. */
__attribute__((constructor)) static void
find_next(void)
{
    *(void **)&next_of.accept4 = dlsym(RTLD_NEXT, "accept4");
    *(void **)&next_of.close = dlsym(RTLD_NEXT, "close");
    *(void **)&next_of.listen = dlsym(RTLD_NEXT, "listen");
    *(void **)&next_of.recv = dlsym(RTLD_NEXT, "recv");
    *(void **)&next_of.send = dlsym(RTLD_NEXT, "send");
    pthread_atfork(lock, unlock, unlock); /* a child may close descriptors that have accounts */
    read_limit();
}

static int
close_next(int fd)
{
    return next_of.close ? next_of.close(fd) : (int)syscall(SYS_close, fd);
}

static ssize_t
recv_next(int fd, void *data, size_t size, int flags)
{
    return next_of.recv ? next_of.recv(fd, data, size, flags)
                        : (ssize_t)syscall(SYS_recvfrom, fd, data, size, flags, NULL, NULL);
}

/* --- Accounts --------------------------------------------------------------------------------- */

/* NULL: no account ever had that number. */
static struct account *
find(int fd)
{
    if (fd < 0 || fd >= EXO_LIMIT_DESCRIPTORS)
        return NULL;
    struct account *chunk = atomic_load_explicit(&intake.chunks[fd / CHUNK], memory_order_acquire);
    return chunk ? &chunk[fd % CHUNK] : NULL;
}

static enum kind
kind_of(const struct account *a)
{
    return a ? (enum kind)atomic_load_explicit(&a->kind, memory_order_acquire) : NONE;
}

/* Opens an account for a descriptor that has none. NULL: no memory, or the number is too large. */
static struct account *
open_locked(int fd, enum kind kind, const void *owner)
{
    if (fd < 0 || fd >= EXO_LIMIT_DESCRIPTORS)
        return NULL;
    if (!find(fd)) {
        struct account *chunk = exo_calloc(CHUNK, sizeof *chunk);
        if (!chunk)
            return NULL;
        atomic_store_explicit(&intake.chunks[fd / CHUNK], chunk, memory_order_release);
    }
    struct account *a = find(fd);
    a->listed = a->elsewhere = false;
    a->ticks = 0;
    a->serial = ++intake.serial;
    a->owner = owner;
    a->fd = fd;
    a->accepted = 0;
    /* NULL is allowed: origins are unknown then */
    a->origins = kind == LISTENER ? exo_calloc(EXO_LIMIT_ORIGINS, sizeof *a->origins) : NULL;
    atomic_store(&a->held, 0);
    atomic_store(&a->read, 0);
    intake.figures.connections += kind != LISTENER;
    atomic_store_explicit(&a->kind, kind, memory_order_release);
    return a;
}

static void
unlist_locked(struct account *a)
{
    if (!a->listed)
        return;
    a->listed = false;
    intake.strangers -= a->elsewhere;
    *(a->prev ? &a->prev->next : &intake.first) = a->next;
    *(a->next ? &a->next->prev : &intake.last) = a->prev;
}

static void
list_locked(struct account *a)
{
    a->listed = true;
    intake.strangers += a->elsewhere;
    a->prev = intake.last;
    a->next = NULL;
    *(a->prev ? &a->prev->next : &intake.first) = a;
    intake.last = a;
}

/* --- Admission -------------------------------------------------------------------------------- */

/* When the descriptor is closed, the other end gets a reset. */
static void
reset_at_close(int fd)
{
    struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* Ends a stranger. It stays in the list until ZeroMQ has closed it. */
static void
send_away_locked(struct account *a)
{
    if (kind_of(a) != STRANGER)
        return;
    atomic_store_explicit(&a->kind, GOING, memory_order_release);
    intake.figures.ended++;
    reset_at_close(a->fd);
    shutdown(a->fd, SHUT_RD);
}

/* Reads the network address of a connection. False: it came from this host, by a path. */
static bool
read_address(const struct sockaddr_storage *from, uint8_t out[ADDRESS])
{
    memset(out, 0, ADDRESS);
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &v4->sin_addr, sizeof v4->sin_addr);
        return true;
    }
    if (from->ss_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    memcpy(out, &v6->sin6_addr, IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) ? ADDRESS : NETWORK);
    return true;
}

/* Makes room for one more stranger by ending the oldest, or the oldest of the same address if that
 * address has too many. False: too many are ending already. */
static bool
make_room_locked(const uint8_t address[ADDRESS])
{
    struct account *oldest = NULL, *same = NULL;
    size_t there = 0, alike = 0, most = atomic_load(&intake.limit) / EXO_LIMIT_STRANGERS_SHARE;
    if (most > EXO_LIMIT_STRANGERS)
        most = EXO_LIMIT_STRANGERS;
    for (struct account *a = intake.first; a; a = a->next) {
        bool is_same = memcmp(a->address, address, ADDRESS) == 0;
        if (kind_of(a) != STRANGER || !a->elsewhere)
            continue;
        there++;
        alike += is_same;
        oldest = oldest ? oldest : a;
        same = same || !is_same ? same : a;
    }
    if (alike >= EXO_LIMIT_STRANGERS_ADDRESS)
        send_away_locked(same);
    else if (there >= most && oldest)
        send_away_locked(oldest);
    return intake.strangers < 2 * most;
}

static void
remember_origin_locked(struct account *listener, int fd, const struct sockaddr_storage *from)
{
    uint64_t number = ++listener->accepted;
    struct origin *o = listener->origins ? &listener->origins[number % EXO_LIMIT_ORIGINS] : NULL;
    if (!o)
        return;
    *o = (struct origin){.number = number, .fd = fd, .from.any.sa_family = from->ss_family};
    if (from->ss_family == AF_INET || from->ss_family == AF_INET6)
        memcpy(&o->from, from, sizeof o->from);
}

static bool
enter(int fd, struct account *listener, const struct sockaddr_storage *from)
{
    uint8_t address[ADDRESS];
    bool elsewhere = read_address(from, address), starved = !exo_intake_has_room(fd), in = !starved;
    lock();
    if (in && elsewhere)
        in = make_room_locked(address);
    struct account *a = in ? open_locked(fd, STRANGER, listener->owner) : NULL;
    if (a) {
        memcpy(a->address, address, ADDRESS);
        a->elsewhere = elsewhere;
        list_locked(a);
        remember_origin_locked(listener, fd, from);
    } else {
        intake.figures.starved += starved;
        intake.figures.refused += !starved;
    }
    unlock();
    return a != NULL;
}

/* Opens the spare descriptor, if it is missing. Another thread can take its number while turn_away
 * has closed it; the next descriptor that becomes free is then kept as the spare one. */
static void
keep_spare_locked(void)
{
    if (intake.users > 0 && intake.spare < 0)
        intake.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void
keep_spare(void)
{
    lock();
    keep_spare_locked();
    unlock();
}

/* No descriptor is left. A connection that is not accepted would be reported again and again, so it
 * is accepted with the spare descriptor and ended. Without one, the thread waits a millisecond:
 * ZeroMQ calls again at once. */
static void
turn_away(int listener)
{
    lock();
    if (intake.spare >= 0)
        close_next(intake.spare);
    int fd = next_of.accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        reset_at_close(fd);
        close_next(fd);
        intake.figures.starved++;
    }
    intake.spare = -1;
    keep_spare_locked();
    bool waits = fd < 0 && intake.spare < 0;
    unlock();
    if (waits)
        poll(NULL, 0, 1);
}

int
accept4(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
    struct account *l = find(listener);
    if (!next_of.accept4) /* only before main */
        return (int)syscall(SYS_accept4, listener, address, size, flags);
    if (kind_of(l) != LISTENER)
        return next_of.accept4(listener, address, size, flags);
    for (int i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        socklen_t from_size = sizeof from;
        keep_spare();
        int fd = next_of.accept4(listener, (struct sockaddr *)&from, &from_size, flags);
        if (fd < 0 && errno == EMFILE) {
            turn_away(listener);
            errno = ENFILE; /* the error that every listener of ZeroMQ's expects */
        }
        if (fd < 0)
            return fd;
        if (enter(fd, l, &from)) {
            if (address && size) {
                memcpy(address, &from, *size < from_size ? *size : from_size);
                *size = from_size;
            }
            return fd;
        }
        reset_at_close(fd);
        close_next(fd);
    }
    errno = ECONNABORTED;
    return -1;
}

int
listen(int fd, int backlog)
{
    if (listens_for) {
        lock();
        open_locked(fd, LISTENER, listens_for);
        intake.effective = true;
        unlock();
        /* ZeroMQ leaves a listener blocking. accept4 below tries again after a connection that it
         * has ended itself, and would then block ZeroMQ's thread until the next connection. */
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    return next_of.listen ? next_of.listen(fd, backlog) : (int)syscall(SYS_listen, fd, backlog);
}

int
close(int fd)
{
    struct account *a = find(fd);
    if (fd == reset_fd)
        reset_fd = -1;
    if (kind_of(a) != NONE) {
        lock(); /* before another connection has the number */
        unlist_locked(a);
        intake.figures.connections -= kind_of(a) != LISTENER;
        exo_free(a->origins);
        a->origins = NULL;
        atomic_store_explicit(&a->kind, NONE, memory_order_release);
        unlock();
    }
    return close_next(fd);
}

/* --- Received bytes --------------------------------------------------------------------------- */

ssize_t
recv(int fd, void *data, size_t size, int flags)
{
    ssize_t got = recv_next(fd, data, size, flags);
    struct account *a = find(fd);
    enum kind kind = kind_of(a);
    if (kind == LEAVING) {
        errno = EAGAIN;
        return -1;
    }
    if (got == 0 && size > 0 && fd == reset_fd) {
        errno = ECONNRESET;
        return -1;
    }
    if (got <= 0 || kind == NONE || kind == LISTENER)
        return got;
    atomic_fetch_add_explicit(&a->read, (unsigned long long)got, memory_order_relaxed);
    size_t held = atomic_fetch_add(&a->held, (size_t)got) + (size_t)got;
    if (held <=
        (kind == ADMITTED ? (size_t)EXO_LIMIT_INBOUND_BYTES : (size_t)EXO_LIMIT_STRANGER_BYTES))
        return got;
    atomic_fetch_add(&intake.overfull, 1);
    return 0; /* looks like the end of the connection */
}

/* ZeroMQ ignores an error of send and looks at the connection when it reads next. The kernel
 * reports a reset only once: without reset_fd, that read would look like an orderly end, which is
 * another answer (attempt.c). */
ssize_t
send(int fd, const void *data, size_t size, int flags)
{
    ssize_t sent = next_of.send ? next_of.send(fd, data, size, flags)
                                : (ssize_t)syscall(SYS_sendto, fd, data, size, flags, NULL, 0);
    if (sent < 0 && errno == ECONNRESET)
        reset_fd = fd;
    return sent;
}

static struct account *
find_ticket(exo_intake_ticket ticket)
{
    struct account *a = ticket ? find((int)(ticket & (EXO_LIMIT_DESCRIPTORS - 1))) : NULL;
    return a && a->serial == ticket >> NUMBER_BITS ? a : NULL;
}

void
exo_intake_took(exo_intake_ticket ticket, size_t bytes)
{
    struct account *a = find_ticket(ticket);
    if (kind_of(a) != ADMITTED)
        return;
    size_t held = atomic_load(&a->held);
    while (!atomic_compare_exchange_weak(&a->held, &held, held - (held < bytes ? held : bytes)))
        continue;
}

uint64_t
exo_intake_read(exo_intake_ticket ticket)
{
    lock();
    struct account *a = find_ticket(ticket);
    uint64_t bytes = kind_of(a) == ADMITTED ? atomic_load(&a->read) : 0;
    unlock();
    return bytes;
}

exo_intake_ticket
exo_intake_admit(int fd, bool accepted)
{
    lock();
    struct account *a = find(fd);
    bool ended = accepted && fd >= 0 && kind_of(a) == NONE && intake.effective;
    exo_intake_ticket ticket = ended ? EXO_INTAKE_ENDED : 0;
    if (kind_of(a) == NONE && !accepted)
        a = open_locked(fd, ADMITTED, NULL);
    if (kind_of(a) == STRANGER) {
        unlist_locked(a);
        atomic_store(&a->held, 0);
        atomic_store_explicit(&a->kind, ADMITTED, memory_order_release);
    }
    if (kind_of(a) == ADMITTED)
        ticket = a->serial << NUMBER_BITS | (uint64_t)fd;
    unlock();
    return ticket;
}

bool
exo_intake_has_ended(exo_intake_ticket ticket)
{
    lock();
    bool ended = ticket && kind_of(find_ticket(ticket)) == NONE;
    unlock();
    return ended;
}

void
exo_intake_dismiss(exo_intake_ticket ticket)
{
    lock();
    struct account *a = find_ticket(ticket);
    if (kind_of(a) == ADMITTED && a->owner) {
        a->ticks = 0;
        atomic_store(&a->held, 0);
        atomic_store_explicit(&a->kind, STRANGER, memory_order_release);
        list_locked(a);
    }
    unlock();
}

/* --- The end of a socket ---------------------------------------------------------------------- */

/* ZeroMQ 4.3 takes a half-sent message out of its queue when it learns that a connection has ended
 * (session_base.cpp, clean_pipes), and ends the process if the queue was given up just before: at
 * the end of the time in which a closed socket may still send. So it learns of no end in that time.
 * What comes is dropped rather than left: the kernel answers a close before unread bytes with a
 * reset, which may overtake what was sent. */
void
exo_intake_leave(exo_intake_ticket ticket)
{
    lock();
    struct account *a = find_ticket(ticket);
    if (kind_of(a) == ADMITTED)
        atomic_store_explicit(&a->kind, LEAVING, memory_order_release);
    unlock();
}

void
exo_intake_leave_strangers(const void *owner)
{
    lock();
    for (struct account *a = intake.first; a; a = a->next)
        if (a->owner == owner)
            atomic_store_explicit(&a->kind, LEAVING, memory_order_release);
    unlock();
}

/* --- The process ------------------------------------------------------------------------------ */

static void
raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    rlim_t most = limit.rlim_max < EXO_LIMIT_DESCRIPTORS ? limit.rlim_max : EXO_LIMIT_DESCRIPTORS;
    if (limit.rlim_cur < most) {
        limit.rlim_cur = most;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    read_limit();
}

exo_status
exo_intake_open(exo_err *err)
{
    lock();
    raise_limit();
    size_t limit = atomic_load(&intake.limit);
    if (limit < EXO_LIMIT_LEAST_DESCRIPTORS) {
        unlock();
        return exo_fail(err, EXO_FULL,
                        "this process may have %zu descriptors, and connections need at least %d: "
                        "raise the limit (ulimit -n)",
                        limit, (int)EXO_LIMIT_LEAST_DESCRIPTORS);
    }
    intake.users++;
    keep_spare_locked();
    unlock();
    return EXO_OK;
}

void
exo_intake_hint(const char *endpoint, char out[EXO_INTAKE_HINT])
{
    const size_t limit = atomic_load(&intake.limit);
    *out = '\0';
    if (strncmp(endpoint, "ipc://", strlen("ipc://")) == 0 && limit < EXO_LIMIT_FEW_DESCRIPTORS)
        snprintf(out, EXO_INTAKE_HINT,
                 "; perhaps it has no descriptor left: processes here may have %zu each; raise the "
                 "limit (ulimit -n)",
                 limit);
}

void
exo_intake_close(void)
{
    lock();
    if (--intake.users == 0 && intake.spare >= 0) {
        close_next(intake.spare);
        intake.spare = -1;
    }
    unlock();
}

bool
exo_intake_has_room(int fd)
{
    size_t limit = atomic_load(&intake.limit), reserve = limit / EXO_LIMIT_STRANGERS_SHARE;
    if (reserve > EXO_LIMIT_RESERVE)
        reserve = EXO_LIMIT_RESERVE;
    return fd < 0 || (size_t)fd + reserve < limit;
}

void
exo_intake_begin(const void *owner)
{
    listens_for = owner;
}

void
exo_intake_end(void)
{
    listens_for = NULL;
}

bool
exo_intake_origin(int listener, uint64_t *number, int fd, struct sockaddr_storage *from)
{
    bool known = false;
    memset(from, 0, sizeof *from);
    lock();
    const struct account *l = find(listener);
    /* ZeroMQ does not report a connection that it accepted and could not use: its number is
     * skipped. */
    for (uint64_t n = *number + 1;
         !known && kind_of(l) == LISTENER && l->origins && n <= l->accepted; n++) {
        const struct origin *o = &l->origins[n % EXO_LIMIT_ORIGINS];
        if (o->number != n)
            break;
        if (o->fd == fd) {
            memcpy(from, &o->from, sizeof o->from);
            *number = n - 1;
            known = true;
        }
    }
    unlock();
    ++*number;
    return known;
}

exo_intake_figures
exo_intake_tick(const void *owner)
{
    lock();
    keep_spare_locked();
    for (struct account *a = intake.first; a; a = a->next)
        if (a->owner == owner && ++a->ticks > EXO_LIMIT_HELLO_TICKS)
            send_away_locked(a);
    exo_intake_figures figures = intake.figures;
    figures.strangers = intake.strangers;
    figures.overfull = atomic_load(&intake.overfull);
    figures.limit = atomic_load(&intake.limit);
    unlock();
    return figures;
}
