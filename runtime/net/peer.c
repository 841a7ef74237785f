/* Peers: the net's table of them, silence and loss. Callers of `_locked` functions hold net->lock.
 *
 * A peer is counted. The net holds it from exo_peer_new_locked on. Losing a peer takes it out of
 * every list but that of lost peers; the net drops it when the handler has been told. peer_impl.h
 * says which code owns which field. Read next: handshake.c, which opens a peer; send.c and
 * receive.c, which use it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/pages.h"
#include "net/net_impl.h"

#define BEAT EXO_SECOND
/* between processes that watch each other; it finds a connection that is gone */
#define QUIET_BEAT (4 * EXO_SECOND)
#define TRIM_AFTER EXO_SECOND

enum {
    QUIET_BYTES =
        64 << 10, /* received bytes of which the peer was not told: with more, beats are frequent */
    SAY_EVERY = 20, /* ticks between two lines of the log about strangers */
    HUNG_UP = 3 /* ticks without a message, after which an ended connection has no more of them */
};

exo_peer *
exo_peer_hold(exo_peer *peer)
{
    atomic_fetch_add(&peer->references, 1);
    return peer;
}

void
exo_peer_drop(exo_peer **peer)
{
    exo_peer *p = *peer;
    *peer = NULL;
    if (!p || atomic_fetch_sub(&p->references, 1) > 1)
        return;
    exo_identity_drop(&p->identity);
    exo_free(p->landing);
    exo_free(p);
}

const exo_identity *
exo_peer_identity(const exo_peer *peer)
{
    return peer->identity;
}

uint64_t
exo_peer_node(const exo_peer *peer)
{
    return peer->node;
}

const char *
exo_peer_name(const exo_peer *peer)
{
    return peer->name;
}

const char *
exo_peer_endpoint(const exo_peer *peer)
{
    return peer->endpoint;
}

bool
exo_peer_is_near(const exo_peer *peer)
{
    return peer->near;
}

bool
exo_peer_may_share(const exo_peer *peer)
{
    return peer->near && peer->own_user;
}

bool
exo_peer_is_full(const exo_peer *peer)
{
    return atomic_load(&peer->full);
}

bool
exo_peer_is_open(const exo_peer *peer)
{
    return atomic_load(&peer->state) == EXO_PEER_OPEN;
}

uint32_t
exo_peer_pid(const exo_peer *peer)
{
    return peer->pid;
}

void *
exo_peer_user(const exo_peer *peer)
{
    return atomic_load(&peer->user);
}

void
exo_peer_set_user(exo_peer *peer, void *user)
{
    atomic_store(&peer->user, user);
}

exo_peer *
exo_peer_new_locked(exo_net *net, exo_socket *socket)
{
    exo_peer *p = exo_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->references = 1; /* the net's, until the peer is lost */
    p->socket = socket;
    p->process_fd = p->bell = -1;
    p->process = (exo_source){.kind = EXO_SOURCE_PROCESS, .owner = p};
    p->heard = p->spoke = exo_now(exo_clock_real());
    DL_APPEND(net->peers, p);
    return p;
}

void
exo_net_make_plain(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

/* --- Loss ------------------------------------------------------------------------------------- */

/* Called without the lock: it runs the release functions of payloads, which belong to other
 * code. */
static void
drop_frames(exo_peer *peer)
{
    for (size_t i = 0; i < peer->num_frames; i++)
        zmq_msg_close(&peer->frames[i]);
    peer->num_frames = 0;
    exo_free(peer->frames);
    peer->frames = NULL;
}

void
exo_peer_lose_locked(exo_net *net, exo_peer *peer, const char *cause)
{
    if (atomic_load(&peer->state) == EXO_PEER_LOST_)
        return;
    snprintf(peer->cause, sizeof peer->cause, "%s", cause);
    exo_net_make_plain(peer->cause);
    atomic_store(&peer->state, EXO_PEER_LOST_);
    DL_DELETE(net->peers, peer);
    if (peer->dirty)
        LL_DELETE2(net->first_dirty, peer, next_dirty);
    peer->dirty = false;
    exo_wire_release(&peer->writer);
    exo_peer_drop_kept_locked(peer);
    if (peer->process_fd >= 0) {
        exo_net_unwatch_locked(net, peer->process_fd);
        close(peer->process_fd);
    }
    peer->process_fd = -1;
    exo_peer_close_rings_locked(net, peer);
    if (peer->route_size) {
        exo_intake_dismiss(peer->intake); /* the peer may keep its connection open */
        HASH_DELETE(by_route, peer->socket->peers, peer);
    } else {
        exo_intake_leave(peer->intake);
        exo_net_remove_socket_locked(net, peer->socket);
    }
    peer->socket = NULL;
    pthread_cond_broadcast(&net->changed);
    if (peer->announced) {
        LL_APPEND2(net->first_lost, peer, next_lost); /* with the net's reference */
        exo_net_kick(net);
    } else {
        exo_peer_drop(&peer); /* only a Hello was sent to it, so it has no frames */
    }
}

void
exo_peer_dismiss_locked(exo_net *net, exo_peer *peer, const char *cause)
{
    if (atomic_load(&peer->state) == EXO_PEER_OPEN) {
        exo_envelope goodbye = {.kind = EXO_WIRE_GOODBYE, .text = cause};
        exo_peer_say_locked(net, peer, &goodbye);
    }
    exo_peer_lose_locked(net, peer, cause);
}

void
exo_peer_lose(exo_net *net, exo_peer *peer, const char *cause)
{
    pthread_mutex_lock(&net->lock);
    exo_peer_dismiss_locked(net, peer, cause);
    pthread_mutex_unlock(&net->lock);
}

/* After many peers have gone, freed memory goes back to the kernel, once ZeroMQ has freed its part,
 * too. Called by the driver, without the lock. */
static void
trim_memory(exo_net *net, unsigned lost)
{
    net->untrimmed += lost;
    if (net->untrimmed < EXO_LIMIT_LOST_TO_TRIM)
        return;
    exo_time now = exo_now(exo_clock_real());
    if (lost > 0) {
        net->trim_at = now + TRIM_AFTER;
    } else if (now >= net->trim_at) {
        net->untrimmed = 0;
        exo_pages_trim();
    }
}

static exo_peer *
take_lost(exo_net *net)
{
    pthread_mutex_lock(&net->lock);
    exo_peer *peer = net->first_lost;
    if (peer)
        LL_DELETE2(net->first_lost, peer, next_lost);
    pthread_mutex_unlock(&net->lock);
    return peer;
}

/* True: the handler has more to do for the peer. */
static bool
report_lost(exo_net *net, exo_peer *peer)
{
    const exo_net_handler *handler = net->opts.handler;
    if (!peer->mourned) {
        drop_frames(peer);
        exo_peer_drop_parcels(peer);
        handler->lost(net->opts.context, peer, peer->cause);
    }
    peer->mourned = true;
    return handler->ending && handler->ending(net->opts.context, peer);
}

bool
exo_net_report_lost(exo_net *net)
{
    exo_peer *later = NULL, *next;
    unsigned lost = 0;
    for (exo_peer *peer; (peer = take_lost(net));) {
        lost += !peer->mourned;
        if (report_lost(net, peer))
            LL_PREPEND2(later, peer, next_lost);
        else
            exo_peer_drop(&peer);
    }
    bool more = later != NULL;
    pthread_mutex_lock(&net->lock);
    for (; later; later = next) {
        next = later->next_lost;
        LL_APPEND2(net->first_lost, later, next_lost);
    }
    pthread_mutex_unlock(&net->lock);
    trim_memory(net, lost);
    return more;
}

/* Tells the peer and loses it; whatever its connection carries afterwards belongs to no peer. */
static void
revoke_locked(exo_net *net, exo_peer *peer, const char *why)
{
    char reason[128];
    exo_envelope goodbye = {.kind = EXO_WIRE_GOODBYE, .text = reason};
    snprintf(reason, sizeof reason, "revoked: %s", why);
    EXO_LOG(WARN, NET, "event=revoked peer=%s key=%s reason=\"%s\"", peer->name,
            peer->identity->name, why);
    exo_audit_add(net->opts.audit, &(exo_audit_record){.event = strcmp(why, EXO_PROOF_EXPIRED) == 0
                                                                    ? EXO_AUDIT_EXPIRED
                                                                    : EXO_AUDIT_REVOKED,
                                                       .who = peer->identity,
                                                       .subject = peer->name,
                                                       .status = EXO_DENIED,
                                                       .reason = why});
    exo_peer_hold(peer);
    exo_peer_say_locked(net, peer, &goodbye);
    exo_peer_lose_locked(net, peer, reason);
    exo_peer_drop(&peer);
}

/* --- Time ------------------------------------------------------------------------------------- */

/* Counts ended strangers toward trim_memory, also while others arrive: those would reuse the same
 * memory, but need only parts of it. */
static void
count_strangers(exo_net *net, uint64_t ended, exo_time now)
{
    if (net->untrimmed < EXO_LIMIT_LOST_TO_TRIM)
        net->trim_at = now + TRIM_AFTER;
    net->untrimmed += (unsigned)(ended - net->ended);
    net->ended = ended;
}

void
exo_net_count_from_now(exo_net *net)
{
    exo_intake_figures now = exo_intake_tick(net);
    net->kept_out = now.refused + now.ended + now.overfull;
    net->starved = now.starved;
    net->ended = now.ended;
}

/* Ends strangers that take too long, and logs now and then how many connections were kept out. */
static void
watch_intake_locked(exo_net *net, exo_time time)
{
    exo_intake_figures now = exo_intake_tick(net);
    uint64_t out = now.refused + now.ended + now.overfull;
    count_strangers(net, now.ended, time);
    if ((out == net->kept_out && now.starved == net->starved) || ++net->ticks_unsaid < SAY_EVERY)
        return;
    if (out != net->kept_out)
        EXO_LOG(WARN, NET,
                "event=crowded kept_out=%" PRIu64 " strangers=%" PRIu64 " connections=%" PRIu64
                ": connections that do not become peers in time, or send too much, are ended",
                out - net->kept_out, now.strangers, now.connections);
    if (now.starved != net->starved)
        EXO_LOG(WARN, NET,
                "event=descriptors_short kept_out=%" PRIu64 " connections=%" PRIu64
                " limit=%" PRIu64 ": this process has too few descriptors for more connections; "
                "raise its hard limit (ulimit -Hn)",
                now.starved - net->starved, now.connections, now.limit);
    net->kept_out = out;
    net->starved = now.starved;
    net->ticks_unsaid = 0;
}

bool
exo_peer_is_by_ipc(const exo_peer *peer)
{
    return peer->near && peer->by_ipc;
}

bool
exo_peer_is_watched(const exo_peer *peer)
{
    return peer->near && peer->socket && peer->socket->ipc && peer->process_fd >= 0;
}

/* Each beat lies in a queue of ZeroMQ's at both ends, which keeps its memory: 64 bytes, up to 64
 * KiB a connection. Processes that watch each other need few beats. */
static exo_time
beat_of(const exo_peer *p)
{
    bool silent = p->watches && p->told_watch && p->received_bytes - p->told_bytes < QUIET_BYTES;
    return (silent ? QUIET_BEAT : BEAT) - BEAT / 10;
}

/* A process that came by ipc: its end is certain to be seen. A peer over tcp may lie about its
 * process. */
static bool
is_watched(const exo_peer *p)
{
    return p->near && p->socket->ipc &&
           (p->process_fd >= 0 || !exo_process_has_ended(p->pid, p->start));
}

/* Whether the peer's connection to us has ended and nothing more of it will be read. Called once a
 * tick. A process may live on without this connection: its Goodbye is lost if it closes a
 * connection that is full. Messages that ZeroMQ or the ring still has are read between the ticks,
 * which are counted, because this process may have stood still. */
static bool
has_hung_up(exo_peer *p)
{
    if (!p->route_size || !exo_intake_has_ended(p->intake))
        return false;
    if (p->heard != p->heard_last)
        p->ended_ticks = 0;
    p->heard_last = p->heard;
    return ++p->ended_ticks > HUNG_UP;
}

/* A message that comes over a slow link is no silence, though the beats behind it wait for its end: a piece
 * of a payload takes 4 s at 1 Mbit/s. Called once a tick. */
static void
hear_unfinished(exo_peer *p, exo_time now)
{
    const uint64_t read = exo_intake_read(p->intake);
    if (read > p->read)
        p->heard = now;
    p->read = read;
}

static void
move_on(exo_time *since, exo_time by, exo_time now)
{
    *since = now - *since > by ? *since + by : now;
}

/* A peer of another host beats once a second. */
static exo_time
quiet_of(const exo_net *net)
{
    const exo_time half = net->opts.peer_timeout / 2, most = net->opts.peer_timeout;
    const exo_time beats = 3 * BEAT / 2 < most ? 3 * BEAT / 2 : most;
    return half > beats ? half : beats;
}

bool
exo_net_hears(exo_net *net, exo_peer *peer)
{
    const exo_time now = exo_now(exo_clock_real());
    pthread_mutex_lock(&net->lock);
    if (atomic_load(&peer->state) == EXO_PEER_OPEN)
        hear_unfinished(peer, now);
    const bool heard = exo_peer_is_by_ipc(peer) || now - peer->heard <= quiet_of(net);
    pthread_mutex_unlock(&net->lock);
    return heard;
}

void
exo_net_excuse_silence_locked(exo_net *net, exo_time now)
{
    exo_peer *p;
    exo_time late = net->next_tick ? now - net->next_tick : 0;
    if (late < BEAT)
        return;
    DL_FOREACH(net->peers, p)
    {
        move_on(&p->heard, late, now);
        move_on(&p->read_at, late, now);
        if (p->gap_since)
            move_on(&p->gap_since, late, now);
    }
}

void
exo_net_tick_locked(exo_net *net, exo_time now)
{
    exo_peer *p, *next;
    char cause[128];
    DL_FOREACH_SAFE (net->peers, p, next) {
        if (atomic_load(&p->state) != EXO_PEER_OPEN)
            continue;
        const char *revoked = exo_proof_judge(net, p);
        if (revoked) {
            revoke_locked(net, p, revoked);
            continue;
        }
        hear_unfinished(p, now);
        if (!is_watched(p) && now - p->heard > net->opts.peer_timeout) {
            exo_c_snprintf(cause, sizeof cause, "nothing was heard from it for %.1f s",
                           (double)(now - p->heard) / (double)EXO_SECOND);
            exo_peer_lose_locked(net, p, cause);
        } else if (has_hung_up(p)) {
            exo_peer_lose_locked(net, p, "its connection has ended, without a word");
        } else if (exo_peer_is_stuck_locked(net, p, now)) {
            exo_c_snprintf(cause, sizeof cause,
                           "it has read nothing of what was sent to it for %.1f s",
                           (double)(now - p->read_at) / (double)EXO_SECOND);
            exo_peer_lose_locked(net, p, cause);
        } else if (exo_peer_has_gap_locked(p, now)) {
            snprintf(cause, sizeof cause, "message %u of it did not come", p->received);
            exo_peer_lose_locked(net, p, cause);
        } else if (now - p->spoke >= beat_of(p)) {
            exo_peer_say_beat_locked(net, p);
        }
    }
    DL_FOREACH(net->peers, p)
    exo_peer_knock_locked(net, p);
    exo_net_forgive_refusals_locked(net);
    watch_intake_locked(net, now);
    net->next_tick = now + BEAT / 2;
}
