/* The ZAP handler: one thread that decides for all sockets of a context which peers to accept, and
 * logs those that it refuses. auth.h has the contracts.
 *
 * The thread owns the handler's socket and the receiving ends of the monitors. Other threads hand
 * it a monitor under the lock and wake it through an eventfd. Requests come from libzmq in this
 * process. They are checked all the same: any code in the process can send one, and their contents
 * come from the peer. Read next: allow_list.c. */
#include "net/auth.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <zmq.h>

#include "base/thread.h"
#include "net/intake.h"
#include "net/zmq_again.h"

enum {
    MAX_WATCHES = 64,
    MAX_PEERS = 512,       /* accepted connections that a watch remembers: the latest ones */
    DOMAIN_SIZE = 64,      /* with its 0 */
    PEER_TEXT = 64,        /* bytes of an address in the log */
    FRAME_LIMIT = 255,     /* bytes of a request's frame: RFC 27 has no longer one */
    AT_ONCE = 64,          /* messages of one socket before the next socket's turn */
    METADATA = 64,         /* bytes of an answer's properties */
    TICK_MS = 1000,        /* the longest sleep */
    STOP_MS = 1000,        /* how long close waits for monitors of sockets that are being closed */
    LOG_BURST = 10,        /* lines in a burst */
    LOG_EVERY_SECONDS = 10 /* afterwards, one line in this time */
};

#define ENDPOINT "inproc://zeromq.zap.01"

/* Limits the rate of log lines. An unused quota allows a whole burst. */
typedef struct quota {
    exo_time filled;
    uint64_t used, left_out;
} quota;

/* One monitored socket. */
typedef struct watch {
    void *monitor; /* owner: the handler's thread, once the watch is in the table */
    struct {
        /* -1: free. Only compared; after the accept it is never used as a descriptor. */
        int fd;
        uint64_t decided; /* the watch's `decided` when the connection was accepted */
        char address[PEER_TEXT];
    } peers[MAX_PEERS];
    size_t next_peer;
    int listener;      /* the socket's listening descriptor; -1: it does not listen yet */
    uint64_t accepted; /* connections of the listener so far, as exo_intake_origin counts them */
    uint64_t decided;  /* handshakes so far that succeeded or that the handler refused */
    char pending[96];  /* a failure whose connection is not known yet; "": none */
} watch;

typedef struct null_domain {
    char name[DOMAIN_SIZE];
    exo_null_rule rule;
} null_domain;

struct exo_zap {
    /* Constant after open. */
    void *context;
    exo_allow_list *allow;
    const exo_clock *clock;
    exo_audit *audit;
    null_domain *domains;
    size_t num_domains;
    int wake; /* eventfd */
    pthread_t thread;
    bool started;

    _Atomic bool stop;
    _Atomic uint64_t accepted, refused;

    pthread_mutex_t lock;
    watch *watches[MAX_WATCHES]; /* guarded by lock; only the thread removes one */
    bool ended;                  /* guarded by lock: the thread reads no monitor any more */

    /* Owner: the thread. */
    void *socket;
    quota refusals, failures;
};

/* --- Log -------------------------------------------------------------------------------------- */

static bool
may_log(quota *q, exo_time now, uint64_t *left_out)
{
    uint64_t refilled =
        now > q->filled ? (uint64_t)((now - q->filled) / (LOG_EVERY_SECONDS * EXO_SECOND)) : 0;
    if (refilled > 0) {
        q->used = refilled < q->used ? q->used - refilled : 0;
        q->filled += (exo_time)refilled * LOG_EVERY_SECONDS * EXO_SECOND;
    }
    if (q->used >= LOG_BURST) {
        q->left_out++;
        return false;
    }
    q->used++;
    *left_out = q->left_out;
    q->left_out = 0;
    return true;
}

/* Logs and records a refusal. The log has the beginning of `key`, a public key; "-": there is none.
 * `name`: of a key that has expired. */
static void
log_refusal(exo_zap *zap, quota *q, const char *peer, const char *key, const char *name,
            const char *reason)
{
    uint64_t left_out = 0;
    zap->refused++;
    exo_audit_add(zap->audit, &(exo_audit_record){.event = EXO_AUDIT_REFUSED,
                                                  .name = name,
                                                  .key = strcmp(key, "-") == 0 ? NULL : key,
                                                  .address = peer,
                                                  .status = EXO_DENIED,
                                                  .reason = reason});
    if (may_log(q, exo_now(zap->clock), &left_out))
        EXO_LOG(WARN, NET, "event=refused peer=%s key=%.8s reason=\"%s\" left_out=%" PRIu64, peer,
                key, reason, left_out);
}

static void
log_left_out(const quota *q)
{
    if (q->left_out > 0)
        EXO_LOG(WARN, NET, "event=refused left_out=%" PRIu64, q->left_out);
}

/* --- Requests --------------------------------------------------------------------------------- */

typedef struct frame {
    size_t size; /* as received; the data of a frame that is too long is not kept */
    uint8_t data[FRAME_LIMIT + 1]; /* ended with a 0 */
} frame;

/* The frames of a request, as a ROUTER socket receives them. */
enum {
    SENDER,
    DELIMITER,
    VERSION,
    REQUEST,
    DOMAIN,
    ADDRESS,
    ROUTING_ID,
    MECHANISM,
    CREDENTIALS, /* none, one or two frames */
    MAX_FRAMES = CREDENTIALS + 2
};

typedef struct request {
    frame frames[MAX_FRAMES];
    size_t count; /* received frames, also those beyond the array */
    bool whole;   /* no frame was too long */
} request;

/* Receives a request. 1: there was one; 0: there is none now; -1: the context ends. */
static int
receive(void *socket, request *r)
{
    int more = 1;
    r->count = 0;
    r->whole = true;
    while (more) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        if (zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) < 0) {
            int number = zmq_errno();
            zmq_msg_close(&part);
            if (number == EINTR)
                continue;
            return number == EAGAIN ? 0 : -1;
        }
        size_t size = zmq_msg_size(&part);
        if (r->count < MAX_FRAMES) {
            frame *f = &r->frames[r->count];
            f->size = size;
            if (size > 0 && size <= FRAME_LIMIT)
                memcpy(f->data, zmq_msg_data(&part), size);
            f->data[size <= FRAME_LIMIT ? size : 0] = '\0';
        }
        if (size > FRAME_LIMIT)
            r->whole = false;
        r->count++;
        more = zmq_msg_more(&part);
        zmq_msg_close(&part);
    }
    return 1;
}

static bool
frame_is(const frame *f, const char *text)
{
    return f->size == strlen(text) && memcmp(f->data, text, f->size) == 0;
}

/* Writes a property that ZeroMQ attaches to each frame of the connection (RFC 23, "metadata").
 * Gives its length. */
static size_t
write_property(uint8_t out[METADATA], const char *name, const char *value)
{
    size_t length = strlen(name), size = strlen(value), at = 0;
    if (1 + length + 4 + size > METADATA)
        return 0;
    out[at++] = (uint8_t)length;
    memcpy(out + at, name, length);
    at += length;
    for (int shift = 24; shift >= 0; shift -= 8)
        out[at++] = (uint8_t)(size >> shift);
    memcpy(out + at, value, size);
    return at + size;
}

/* Sends an answer, without waiting; an asker that has gone needs none. `key`: the key that was
 * accepted, or "". */
static void
reply(void *socket, const request *r, const char *code, const char *text, const char *user,
      const char *key)
{
    uint8_t metadata[METADATA];
    const struct {
        const void *data;
        size_t size;
    } parts[] = {{r->frames[SENDER].data, r->frames[SENDER].size},
                 {"", 0},
                 {"1.0", 3},
                 {r->frames[REQUEST].data, r->frames[REQUEST].size},
                 {code, strlen(code)},
                 {text, strlen(text)},
                 {user, strlen(user)},
                 {metadata, key[0] ? write_property(metadata, EXO_ZAP_KEY, key) : 0}};
    enum {
        NUM_PARTS = sizeof parts / sizeof *parts
    };
    for (size_t i = 0; i < NUM_PARTS; i++)
        if (zmq_send(socket, parts[i].data, parts[i].size,
                     ZMQ_DONTWAIT | (i + 1 < NUM_PARTS ? ZMQ_SNDMORE : 0)) < 0)
            return;
}

/* --- Decisions -------------------------------------------------------------------------------- */

/* libzmq gives an ipc peer's address as "localhost:UID:GID:PID", from SO_PEERCRED, and a TCP peer's
 * as a number. */
#define LOCAL "localhost:"

static bool
is_local(const char *address)
{
    return strncmp(address, LOCAL, sizeof LOCAL - 1) == 0;
}

static bool
is_same_user(const char *address)
{
    if (!is_local(address))
        return false;
    const char *digits = address + sizeof LOCAL - 1;
    char *end = NULL;
    if (!isdigit((unsigned char)*digits))
        return false;
    errno = 0;
    unsigned long uid = strtoul(digits, &end, 10);
    return errno == 0 && *end == ':' && uid == (unsigned long)geteuid();
}

static bool
is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, address, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return false;
}

/* NULL: the peer is accepted; otherwise the reason for the refusal. */
static const char *
judge_null(const exo_zap *zap, const request *r)
{
    if (r->count != CREDENTIALS)
        return "malformed request";
    const char *address = (const char *)r->frames[ADDRESS].data;
    for (size_t i = 0; i < zap->num_domains; i++) {
        if (!frame_is(&r->frames[DOMAIN], zap->domains[i].name))
            continue;
        switch (zap->domains[i].rule) {
        case EXO_NULL_SAME_USER:
            return is_same_user(address) ? NULL : "not a process of this user";
        case EXO_NULL_LOOPBACK:
            return is_loopback(address) ? NULL : "not from this host";
        case EXO_NULL_ANYONE:
            return NULL;
        }
    }
    return "no key";
}

static const char *
judge_curve(const exo_zap *zap, const request *r, char text[EXO_KEY_TEXT], char name[EXO_KEY_NAME])
{
    const frame *key = &r->frames[CREDENTIALS];
    const char *address = (const char *)r->frames[ADDRESS].data;
    if (r->count != CREDENTIALS + 1 || key->size != EXO_KEY_BYTES)
        return "malformed request";
    zmq_z85_encode(text, key->data, EXO_KEY_BYTES);
    /* an ipc socket with keys requires both: the key and this user */
    if (is_local(address) && !is_same_user(address))
        return "not a process of this user";
    if (zap->allow)
        exo_allow_list_refresh(zap->allow);
    exo_grant grant;
    bool expired = false;
    bool known = zap->allow &&
                 exo_allow_list_find(zap->allow, key->data, (int64_t)time(NULL), &grant, &expired);
    if (known || expired)
        snprintf(name, EXO_KEY_NAME, "%s", grant.name);
    if (known)
        return NULL;
    return expired ? "key has expired" : "key is not authorized";
}

/* Makes a peer's text harmless for a log line: nothing that a terminal or a reader of the log could
 * take for something else. */
static void
printable(char out[PEER_TEXT], const frame *f)
{
    size_t n = f->size <= FRAME_LIMIT ? f->size : 0;
    if (n > PEER_TEXT - 1)
        n = PEER_TEXT - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = f->data[i] > ' ' && f->data[i] < 127 && f->data[i] != '"' ? (char)f->data[i] : '?';
    out[n] = '\0';
    if (n == 0)
        strcpy(out, "unknown");
}

static void
answer(exo_zap *zap, const request *r)
{
    char peer[PEER_TEXT] = "unknown", key[EXO_KEY_TEXT] = "-", name[EXO_KEY_NAME] = "";
    const char *reason = NULL;
    /* An input that is not a 1.0 request, or that has no usable id, gets no answer: libzmq closes
     * the connection in time. */
    if (r->count <= REQUEST || r->frames[DELIMITER].size != 0 ||
        !frame_is(&r->frames[VERSION], "1.0") || r->frames[SENDER].size > FRAME_LIMIT ||
        r->frames[REQUEST].size == 0 || r->frames[REQUEST].size > FRAME_LIMIT) {
        log_refusal(zap, &zap->refusals, peer, key, name, "malformed request");
        return;
    }
    if (r->count > ADDRESS)
        printable(peer, &r->frames[ADDRESS]);
    if (!r->whole || r->count < CREDENTIALS)
        reason = "malformed request";
    else if (frame_is(&r->frames[MECHANISM], "CURVE"))
        reason = judge_curve(zap, r, key, name);
    else if (frame_is(&r->frames[MECHANISM], "NULL"))
        reason = judge_null(zap, r);
    else if (frame_is(&r->frames[MECHANISM], "PLAIN"))
        reason = "passwords are not accepted";
    else
        reason = "unknown mechanism";
    if (!reason) {
        zap->accepted++;
        EXO_LOG(DEBUG, NET, "event=accepted peer=%s name=%s", peer, name[0] ? name : "-");
        reply(zap->socket, r, "200", "OK", name, name[0] ? key : "");
        return;
    }
    log_refusal(zap, &zap->refusals, peer, key, name, reason);
    reply(zap->socket, r, "400", reason, "", "");
}

/* --- Monitors --------------------------------------------------------------------------------- */

static void
describe_address(const struct sockaddr_storage *from, char out[PEER_TEXT])
{
    char host[INET6_ADDRSTRLEN];
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    strcpy(out, "unknown");
    if (from->ss_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host))
        snprintf(out, PEER_TEXT, "%s:%u", host, (unsigned)ntohs(v4->sin_port));
    else if (from->ss_family == AF_INET6 && inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host))
        snprintf(out, PEER_TEXT, "[%s]:%u", host, (unsigned)ntohs(v6->sin6_port));
    else if (from->ss_family == AF_UNIX)
        strcpy(out, "ipc");
}

static void
remember_peer(watch *w, int fd)
{
    struct sockaddr_storage from;
    w->peers[w->next_peer].fd = fd;
    w->peers[w->next_peer].decided = w->decided;
    exo_intake_origin(w->listener, &w->accepted, fd, &from);
    describe_address(&from, w->peers[w->next_peer].address);
    w->next_peer = (w->next_peer + 1) % MAX_PEERS;
}

static void
flush_pending(exo_zap *zap, watch *w, const char *peer)
{
    if (w->pending[0])
        log_refusal(zap, &zap->failures, peer, "-", "", w->pending);
    w->pending[0] = '\0';
}

static const char *
protocol_error_text(uint32_t code)
{
    switch (code) {
    case ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
        return "expects another key of this node";
    case ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
        return "no key";
    case ZMQ_PROTOCOL_ERROR_ZMTP_INVALID_METADATA:
        return "wrong kind of socket or bad metadata";
    default:
        return "does not speak the protocol";
    }
}

/* Handles an event. False: it was the last one. */
static bool
take_event(exo_zap *zap, watch *w, uint16_t event, uint32_t value)
{
    switch (event) {
    case ZMQ_EVENT_LISTENING:
        w->listener = (int)value;
        w->accepted = 0;
        return true;
    case ZMQ_EVENT_ACCEPTED:
        remember_peer(w, (int)value);
        return true;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: /* answer() has logged it */
        w->decided++;
        return true;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        flush_pending(zap, w, "unknown");
        snprintf(w->pending, sizeof w->pending, "%s", protocol_error_text(value));
        return true;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        flush_pending(zap, w, "unknown");
        snprintf(w->pending, sizeof w->pending, "gone during the handshake: %s",
                 zmq_strerror((int)value));
        return true;
    case ZMQ_EVENT_DISCONNECTED: {
        /* A failing engine reports its failure right before it disconnects, so `pending` belongs to
         * this connection. The newest entry with this descriptor is the connection's. */
        const char *peer = "unknown";
        for (size_t i = 0; i < MAX_PEERS; i++) {
            size_t at = (w->next_peer + MAX_PEERS - 1 - i) % MAX_PEERS;
            if (w->peers[at].fd != (int)value)
                continue;
            /* libzmq reports nothing of a peer whose first bytes are not ZMTP 3. Such a peer is
             * recognized by the fact that no handshake was decided while it was connected. If one
             * was decided, it may have been this peer's own, and nothing is logged. */
            if (!w->pending[0] && w->peers[at].decided == w->decided)
                snprintf(w->pending, sizeof w->pending, "does not speak the protocol");
            peer = w->peers[at].address;
            w->peers[at].fd = -1;
            break;
        }
        flush_pending(zap, w, peer);
        return true;
    }
    case ZMQ_EVENT_MONITOR_STOPPED:
        flush_pending(zap, w, "unknown");
        return false;
    default:
        return true;
    }
}

/* Handles the events that have come. False: the monitor has ended. */
static bool
read_events(exo_zap *zap, watch *w)
{
    for (int i = 0; i < AT_ONCE; i++) {
        uint8_t head[6];
        uint16_t event;
        uint32_t value;
        int size = zmq_recv(w->monitor, head, sizeof head, ZMQ_DONTWAIT);
        if (size < 0)
            return zmq_errno() == EAGAIN || zmq_errno() == EINTR;
        int more = 0;
        size_t more_size = sizeof more;
        while (zmq_getsockopt(w->monitor, ZMQ_RCVMORE, &more, &more_size) == 0 && more)
            if (zmq_recv(w->monitor, NULL, 0, ZMQ_DONTWAIT) < 0 && zmq_errno() != EINTR)
                return false;
        if (size != (int)sizeof head)
            continue;
        memcpy(&event, head, sizeof event); /* host order */
        memcpy(&value, head + sizeof event, sizeof value);
        if (!take_event(zap, w, event, value))
            return false;
    }
    return true;
}

/* A closed socket would keep its endpoint until a thread of ZeroMQ has ended it, and the context's next
 * handler could not have it until then. */
static void
close_socket(exo_zap *zap)
{
    zmq_unbind(zap->socket, ENDPOINT);
    zmq_close(zap->socket);
    zap->socket = NULL;
}

static void
free_watch(watch *w)
{
    if (w && w->monitor)
        zmq_close(w->monitor);
    exo_free(w);
}

static void
end_watch(exo_zap *zap, watch *w)
{
    pthread_mutex_lock(&zap->lock);
    for (size_t i = 0; i < MAX_WATCHES; i++)
        if (zap->watches[i] == w)
            zap->watches[i] = NULL;
    pthread_mutex_unlock(&zap->lock);
    free_watch(w);
}

/* --- Thread ----------------------------------------------------------------------------------- */

/* One round of the thread. False: the context ends. *num_watches: how many watches there were. */
static bool
serve(exo_zap *zap, request *r, long timeout_ms, size_t *num_watches)
{
    zmq_pollitem_t items[2 + MAX_WATCHES] = {{.socket = zap->socket, .events = ZMQ_POLLIN},
                                             {.fd = zap->wake, .events = ZMQ_POLLIN}};
    watch *watches[MAX_WATCHES];
    size_t n = 0;
    pthread_mutex_lock(&zap->lock);
    for (size_t i = 0; i < MAX_WATCHES; i++)
        if (zap->watches[i])
            watches[n++] = zap->watches[i];
    pthread_mutex_unlock(&zap->lock);
    for (size_t i = 0; i < n; i++)
        items[2 + i] = (zmq_pollitem_t){.socket = watches[i]->monitor, .events = ZMQ_POLLIN};
    *num_watches = n;

    int ready = zmq_poll(items, (int)(2 + n), timeout_ms);
    if (ready < 0)
        return zmq_errno() == EINTR;
    if (items[1].revents) {
        uint64_t count;
        if (read(zap->wake, &count, sizeof count) < 0) /* another round will read it */
            count = 0;
    }
    if (items[0].revents) {
        for (int i = 0; i < AT_ONCE; i++) {
            int got = receive(zap->socket, r);
            if (got < 0)
                return false;
            if (got == 0)
                break;
            answer(zap, r);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (items[2 + i].revents) {
            if (!read_events(zap, watches[i]))
                end_watch(zap, watches[i]);
        } else if (ready == 0) {
            flush_pending(zap, watches[i], "unknown");
        }
    }
    return true;
}

static void *
run(void *argument)
{
    exo_zap *zap = argument;
    request r;
    size_t num_watches = 0;
    bool going = true;
    while (going && !zap->stop)
        going = serve(zap, &r, TICK_MS, &num_watches);

    /* A socket that is being closed still reports that to its monitor, and would wait for one that
     * is gone. */
    exo_time end = exo_deadline(exo_clock_real(), STOP_MS * EXO_MS);
    do
        going = going && serve(zap, &r, 20, &num_watches);
    while (going && num_watches > 0 && exo_now(exo_clock_real()) < end);

    pthread_mutex_lock(&zap->lock);
    zap->ended = true;
    pthread_mutex_unlock(&zap->lock);
    for (size_t i = 0; i < MAX_WATCHES; i++) {
        if (zap->watches[i])
            flush_pending(zap, zap->watches[i], "unknown");
        free_watch(zap->watches[i]);
        zap->watches[i] = NULL;
    }
    close_socket(zap);
    log_left_out(&zap->refusals);
    log_left_out(&zap->failures);
    return NULL;
}

static void
wake(exo_zap *zap)
{
    uint64_t one = 1;
    ssize_t n;
    do
        n = write(zap->wake, &one, sizeof one);
    while (n < 0 && errno == EINTR); /* a full counter wakes the thread, too */
}

/* --- Public ----------------------------------------------------------------------------------- */

static exo_status
copy_domains(exo_zap *zap, const exo_zap_opts *opts, exo_err *err)
{
    if (opts->num_null_domains == 0)
        return EXO_OK;
    zap->domains = exo_calloc(opts->num_null_domains, sizeof *zap->domains);
    if (!zap->domains)
        return exo_fail(err, EXO_NOMEM, "no memory for the domains");
    for (size_t i = 0; i < opts->num_null_domains; i++) {
        const exo_null_domain *d = &opts->null_domains[i];
        if (!d->name[0] || strlen(d->name) >= DOMAIN_SIZE)
            return exo_fail(err, EXO_INVAL, "a domain's name has 1 to %d characters",
                            DOMAIN_SIZE - 1);
        snprintf(zap->domains[i].name, DOMAIN_SIZE, "%s", d->name);
        zap->domains[i].rule = d->rule;
    }
    zap->num_domains = opts->num_null_domains;
    return EXO_OK;
}

static exo_status
bind_socket(exo_zap *zap, exo_err *err)
{
    int zero = 0;
    zap->socket = zmq_socket(zap->context, ZMQ_ROUTER);
    if (zap->socket && zmq_setsockopt(zap->socket, ZMQ_LINGER, &zero, sizeof zero) == 0 &&
        exo_zmq_bind(zap->socket, ENDPOINT) == 0)
        return EXO_OK;
    int number = zmq_errno();
    if (number == EADDRINUSE)
        return exo_fail(err, EXO_EXISTS,
                        "this ZeroMQ context has an authentication handler already");
    return exo_fail(err, EXO_FAILED, "cannot bind " ENDPOINT ": %s", zmq_strerror(number));
}

/* Starts the thread with all signals blocked: the program's own threads handle signals. */
static exo_status
start_thread(exo_zap *zap, exo_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    exo_status st = exo_thread_start(&zap->thread, run, zap, "authentication", err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

exo_status
exo_zap_open(exo_zap **out, void *zmq_context, const exo_zap_opts *opts, exo_err *err)
{
    exo_zap *zap = exo_calloc(1, sizeof *zap);
    if (!zap)
        return exo_fail(err, EXO_NOMEM, "no memory for the authentication handler");
    zap->context = zmq_context;
    zap->allow = opts->allow;
    zap->audit = opts->audit;
    zap->clock = opts->clock ? opts->clock : exo_clock_real();
    zap->refusals.filled = zap->failures.filled = exo_now(zap->clock);
    pthread_mutex_init(&zap->lock, NULL);
    exo_status st = EXO_OK;
    zap->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (zap->wake < 0)
        st = exo_fail(err, EXO_FAILED, "cannot make an eventfd: %s", strerror(errno));
    if (st == EXO_OK)
        st = copy_domains(zap, opts, err);
    if (st == EXO_OK)
        st = bind_socket(zap, err);
    if (st == EXO_OK) {
        st = start_thread(zap, err);
        zap->started = st == EXO_OK;
    }
    if (st == EXO_OK) {
        *out = zap;
        zap = NULL;
    }
    exo_zap_close(&zap);
    return st;
}

exo_status
exo_zap_watch(exo_zap *zap, void *socket, exo_err *err)
{
    static _Atomic uint64_t counter;
    const int events = ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED |
                       ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                       ZMQ_EVENT_MONITOR_STOPPED;
    char endpoint[64];
    int zero = 0;
    exo_status st = EXO_OK;
    watch *w = exo_calloc(1, sizeof *w);
    if (!w)
        return exo_fail(err, EXO_NOMEM, "no memory to watch a socket");
    w->listener = -1;
    for (size_t i = 0; i < MAX_PEERS; i++)
        w->peers[i].fd = -1;
    snprintf(endpoint, sizeof endpoint, "inproc://exogym.watch.%" PRIu64, counter++);
    /* first the end that receives: a monitor without one would wait for it when it ends */
    w->monitor = zmq_socket(zap->context, ZMQ_PAIR);
    if (!w->monitor || zmq_setsockopt(w->monitor, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        exo_zmq_monitor(socket, endpoint, events) != 0 ||
        exo_zmq_connect(w->monitor, endpoint) != 0) {
        st = exo_fail(err, EXO_FAILED, "cannot watch a socket: %s", zmq_strerror(zmq_errno()));
        goto done;
    }

    size_t free_slot = MAX_WATCHES;
    pthread_mutex_lock(&zap->lock);
    bool ended = zap->ended;
    for (size_t i = 0; i < MAX_WATCHES && free_slot == MAX_WATCHES; i++)
        if (!zap->watches[i])
            free_slot = i;
    if (!ended && free_slot < MAX_WATCHES) {
        zap->watches[free_slot] = w; /* moved to the thread */
        w = NULL;
    }
    pthread_mutex_unlock(&zap->lock);
    if (w) {
        st = ended ? exo_fail(err, EXO_CLOSED, "the authentication handler has ended")
                   : exo_fail(err, EXO_FULL, "at most %d sockets can be watched", MAX_WATCHES);
        zmq_socket_monitor(socket, NULL, 0); /* while the monitor's other end exists */
    } else {
        wake(zap);
    }
done:
    free_watch(w);
    return st;
}

void
exo_zap_unwatch(exo_zap *zap, void *socket)
{
    (void)zap; /* its thread receives the monitor's last event */
    zmq_socket_monitor(socket, NULL, 0);
}

uint64_t
exo_zap_accepted(const exo_zap *zap)
{
    return zap->accepted;
}

uint64_t
exo_zap_refused(const exo_zap *zap)
{
    return zap->refused;
}

void
exo_zap_close(exo_zap **zap_pointer)
{
    exo_zap *zap = zap_pointer ? *zap_pointer : NULL;
    if (!zap)
        return;
    *zap_pointer = NULL;
    if (zap->started) {
        zap->stop = true;
        wake(zap);
        pthread_join(zap->thread, NULL);
    }
    if (zap->socket)
        close_socket(zap); /* the thread never started */
    if (zap->wake >= 0)
        close(zap->wake);
    pthread_mutex_destroy(&zap->lock);
    exo_free(zap->domains);
    exo_free(zap);
}
