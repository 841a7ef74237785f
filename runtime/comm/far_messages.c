/* The messages among the members of a collective: how they are sent, and how they wait for their
 * call. See far_impl.h. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/object.h>

#include "base/c_locale.h"
#include "base/waiting.h"
#include "comm/backend.h"
#include "comm/far_impl.h"
#include "comm/near.h"
#include "comm/server.h"
#include "comm/timing.h"

void
exo_far_break_locked(exo_far *f, exo_status status, const char *text)
{
    if (f->broken.code != EXO_OK)
        return;
    exo_fail(&f->broken, status, "%s", text);
    pthread_cond_broadcast(&f->changed);
    exo_near_wake(f->near);
    if (f->server)
        exo_server_break(f->server, status, text);
}

void
exo_far_break(exo_far *f, exo_status status, const char *text)
{
    pthread_mutex_lock(&f->lock);
    exo_far_break_locked(f, status, text);
    pthread_mutex_unlock(&f->lock);
}

void
exo_far_lost(void *far, uint64_t to, const exo_err *reason)
{
    exo_far *f = far;
    char text[EXO_ERR_TEXT];
    snprintf(text, sizeof text, "%s_%u (rank %u) cannot take a message: %.400s", f->noun,
             (unsigned)to, (unsigned)to, reason->text);
    exo_far_break(f, reason->code, text);
}

void
exo_far_end_text(const exo_far *f, char text[EXO_ERR_TEXT], uint32_t rank, exo_status status,
                 const char *cause, size_t length)
{
    snprintf(text, EXO_ERR_TEXT, "%s_%u (rank %u) %s%.*s", f->noun, rank, rank,
             status == EXO_CANCELLED ? "cancelled " : "died: ", (int)(length < 400 ? length : 400),
             cause);
}

void
exo_far_tell(exo_far *f, uint32_t rank, exo_status status, const char *cause)
{
    char text[EXO_ERR_TEXT];
    size_t length = strlen(cause);
    exo_far_end_text(f, text, rank, status, cause, length);
    pthread_mutex_lock(&f->lock);
    bool tell = f->broken.code == EXO_OK && f->members;
    exo_far_break_locked(f, status, text);
    pthread_mutex_unlock(&f->lock);
    exo_far_header header = {.channel = f->opts.channel,
                             .phase = EXO_FAR_FAILED,
                             .from = f->opts.rank,
                             .root = rank,
                             .count = (uint64_t)status,
                             .bytes = length};
    for (uint32_t r = 0; tell && r < f->opts.size; r++)
        if (r != f->opts.rank && f->members[r].id)
            exo_far_send(f, r, &header, NULL, cause, 0, NULL);
}

void
exo_far_message_free(exo_far_message *m)
{
    exo_payload_release(&m->payload);
    exo_free(m);
}

/* Takes a message from the inbox. NULL: none; *ready is then the time of a message that is still on
 * an emulated link. */
static exo_far_message *
take_message_locked(exo_far *f, uint64_t number, uint32_t phase, uint32_t from, exo_time *ready)
{
    for (exo_far_message **at = &f->inbox; *at; at = &(*at)->next) {
        exo_far_message *m = *at;
        if (m->header.number == number && m->header.phase == phase && m->header.from == from) {
            if (f->edge.links && m->ready > exo_now(f->clock)) {
                *ready = m->ready;
                return NULL;
            }
            *at = m->next;
            return m;
        }
    }
    return NULL;
}

void
exo_far_describe(exo_far_header *h, const exo_far *f, uint32_t to, uint32_t phase,
                 const exo_collective_args *args, size_t bytes)
{
    *h = (exo_far_header){.channel = f->opts.channel,
                          .phase = phase,
                          .from = f->opts.rank,
                          .operation = (uint32_t)args->operation,
                          .number = f->calls[to],
                          .count = args->count,
                          .dtype = (uint32_t)args->dtype,
                          .reduce = (uint32_t)args->reduce,
                          .root = args->root,
                          .members = f->among,
                          .bytes = bytes};
}

/* Waits until `at`, on the communicator's clock, but no longer than until the communicator breaks or
 * `deadline` has passed. Returns whether it waited until `at`. */
static bool
pass_until(exo_far *f, exo_time at, exo_time deadline)
{
    const exo_time slice = f->clock == exo_clock_real() ? EXO_SECOND : 2 * EXO_MS;
    const exo_time until = at < deadline ? at : deadline;
    pthread_mutex_lock(&f->lock);
    f->passing = true;
    for (exo_time left; f->broken.code == EXO_OK && (left = until - exo_now(f->clock)) > 0;)
        exo_condition_wait_for(&f->changed, &f->lock, left < slice ? left : slice);
    f->passing = false;
    const bool passed = f->broken.code == EXO_OK && at <= deadline;
    pthread_mutex_unlock(&f->lock);
    return passed;
}

/* The end of a wait for links that did not end well: that of the communicator, or of its deadline. */
static exo_status
fail_by_links(exo_far *f, exo_err *err)
{
    char text[EXO_ERR_TEXT];
    pthread_mutex_lock(&f->lock);
    snprintf(text, sizeof text, "%s: the links do not let it through before the deadline",
             exo_collective_name(f->operation));
    exo_far_break_locked(f, EXO_TIMEOUT, text);
    const exo_err reason = f->broken;
    pthread_mutex_unlock(&f->lock);
    return exo_fail(err, reason.code, "%s", reason.text);
}

/* What is sent after that tells of it, and does not wait for the links. */
static bool
is_broken(exo_far *f)
{
    pthread_mutex_lock(&f->lock);
    const bool broken = f->broken.code != EXO_OK;
    pthread_mutex_unlock(&f->lock);
    return broken;
}

/* Whether the message is one of the present call, whose deadline then is the message's, too. */
static bool
is_of_call(const exo_far_header *header)
{
    return header->phase != EXO_FAR_SERVER && header->phase != EXO_FAR_POST;
}

/* Waits until a message would have left on the edge's links, and writes the rest of its way to the
 * header. In an outage without an end a message of a call waits for the deadline of the call. One of a
 * server is lost, as on the virtual clock: *lost. */
static exo_status
pass_links(exo_far *f, uint32_t to, exo_far_header *header, bool *lost, exo_err *err)
{
    exo_transit transit;
    const exo_time deadline = is_of_call(header) ? f->deadline : INT64_MAX;
    exo_links_send(f->edge.links, f->hosts[f->opts.rank], f->hosts[to], f->edge.flow,
                   header->bytes + EXO_COMM_HEADER + EXO_COMM_ENVELOPE,
                   exo_now(f->clock) - f->edge.origin, &transit);
    const bool arrives = transit.arrives != INT64_MAX;
    *lost = !arrives && !is_of_call(header);
    if (*lost)
        return EXO_OK;
    header->passing = arrives ? transit.arrives - transit.sent : 0;
    /* later than each deadline, also than one that is INT64_MAX: such a call waits for a break */
    const exo_time at = arrives ? transit.sent + f->edge.origin : INT64_MAX;
    return pass_until(f, at, deadline) && arrives ? EXO_OK : fail_by_links(f, err);
}

/* Writes `data` as header->bytes bytes, encoded if there is an encoder. */
static exo_status
write_data(exo_encoder *encoder, const exo_far_header *header, const void *data, size_t count,
           char *out, exo_err *err)
{
    const exo_codec_place place = {0};
    size_t size = header->bytes;
    if (!encoder) {
        memcpy(out, data, size);
        return EXO_OK;
    }
    return exo_codec_encode(encoder->codec, &place, data, count, out, &size, err);
}

/* Makes the memory of a message. Large ones are objects, which reach another process of this host
 * without a further copy and whose pages are used again. *object is NULL for others. */
static char *
new_message(size_t size, bool may_be_object, exo_object **object)
{
    *object = NULL;
    if (may_be_object && size >= EXO_DELIVERY_LARGE && exo_object_new(object, size, NULL) == EXO_OK)
        return exo_object_data(*object);
    return exo_calloc(1, size);
}

static exo_payload
payload_of(exo_object **object, char *data, size_t size)
{
    if (!*object)
        return (exo_payload){.data = data, .size = size, .release = exo_free};
    exo_object_seal(*object);
    const exo_payload payload = exo_object_payload(*object);
    exo_object_drop(object);
    return payload;
}

exo_status
exo_far_send(exo_far *f, uint32_t to, exo_far_header *header, exo_encoder *encoder,
             const void *data, size_t count, exo_err *err)
{
    size_t room = encoder ? exo_codec_bound(encoder->codec, count) : header->bytes;
    exo_object *object;
    char *copy = new_message(sizeof *header + room, !encoder, &object);
    if (!copy)
        return exo_fail(err, EXO_NOMEM, "no memory to send %llu bytes",
                        (unsigned long long)header->bytes);
    exo_status st = header->bytes
                        ? write_data(encoder, header, data, count, copy + sizeof *header, err)
                        : EXO_OK;
    if (st != EXO_OK) {
        exo_free(copy); /* no object: only a codec fails */
        return st;
    }
    bool lost = false;
    if (f->edge.links && header->phase != EXO_FAR_FAILED && !is_broken(f))
        st = pass_links(f, to, header, &lost, err);
    memcpy(copy, header, sizeof *header);
    exo_payload payload = payload_of(&object, copy, sizeof *header + header->bytes);
    if (st != EXO_OK || lost) {
        exo_payload_release(&payload);
        return st;
    }
    pthread_mutex_lock(&f->lock);
    f->counts[to] += header->phase != EXO_FAR_FAILED;
    pthread_mutex_unlock(&f->lock);
    exo_err reason = {0};
    st = exo_delivery_send(f->delivery, f->opts.runtime, f->members[to], f->opts.method, payload,
                           to, &reason);
    return st == EXO_OK
               ? EXO_OK
               : exo_fail(err, st, "%s_%u (rank %u) %s%.400s", f->noun, to, to,
                          st == EXO_PEER_LOST ? "died: " : "cannot be sent to: ", reason.text);
}

static bool
is_other_call(const exo_far *f, const exo_collective_args *args, const exo_far_header *h)
{
    return h->operation != (uint32_t)args->operation || h->count != args->count ||
           h->dtype != (uint32_t)args->dtype || h->reduce != (uint32_t)args->reduce ||
           h->root != args->root || h->members != f->among;
}

static bool
is_member(const exo_collective_args *args, uint32_t rank)
{
    uint32_t place = 0;
    while (place < args->size && exo_far_rank_at(args, place) != rank)
        place++;
    return place < args->size;
}

/* Whether a member of a shift has sent this one its data because it has another distance: nobody awaits
 * this message, also after a shift that has ended here. */
static bool
is_astray(const exo_far *f, const exo_collective_args *args, const exo_far_header *h)
{
    if (h->phase == EXO_FAR_REDUCE && h->operation == EXO_SHIFT && h->number < f->calls[h->from])
        return true;
    return args->operation == EXO_SHIFT && h->number == f->calls[h->from] &&
           is_other_call(f, args, h) && is_member(args, h->from);
}

/* A message of `from` with the number of the present call but the arguments of another call, in any
 * phase. Both members would wait for each other. Or a message that went astray. NULL: none. */
static const exo_far_message *
find_other_call_locked(const exo_far *f, const exo_collective_args *args, uint32_t from)
{
    for (const exo_far_message *m = f->inbox; m; m = m->next)
        if ((m->header.from == from && m->header.number == f->calls[from] &&
             is_other_call(f, args, &m->header)) ||
            is_astray(f, args, &m->header))
            return m;
    return NULL;
}

void
exo_far_disagree_locked(exo_far *f, const exo_collective_args *args, const exo_far_header *h)
{
    char text[EXO_ERR_TEXT];
    bool known = h->operation <= EXO_SHIFT;
    if (h->operation == EXO_SHIFT && args->operation == EXO_SHIFT && h->root != args->root)
        snprintf(text, sizeof text,
                 "members disagree: %s_%u (rank %u) shifts by %u, %s_%u (rank %u) by %u", f->noun,
                 h->from, h->from, h->root, f->noun, f->opts.rank, f->opts.rank, args->root);
    else if (known && (h->operation != (uint32_t)args->operation || h->count != args->count))
        snprintf(text, sizeof text,
                 "members disagree: %s_%u (rank %u) calls %s of %llu, %s_%u (rank %u) %s of %zu",
                 f->noun, h->from, h->from, exo_collective_name((exo_collective)h->operation),
                 (unsigned long long)h->count, f->noun, f->opts.rank, f->opts.rank,
                 exo_collective_name(args->operation), args->count);
    else
        snprintf(text, sizeof text,
                 "members disagree: %s_%u (rank %u) calls another operation, count or type, or "
                 "among others, or has another exogym (`exogym status` shows versions)",
                 f->noun, h->from, h->from);
    exo_far_break_locked(f, EXO_INVAL, text);
}

bool
exo_far_find_other_locked(exo_far *f, const exo_collective_args *args, uint32_t from)
{
    const exo_far_message *other = find_other_call_locked(f, args, from);
    if (!other)
        return false;
    exo_far_header header;
    exo_far_disagree_locked(f, args, &other->header);
    pthread_mutex_unlock(&f->lock);
    exo_far_describe(&header, f, from, EXO_FAR_MEET, args, 0);
    exo_far_send(f, from, &header, NULL, NULL, 0, NULL);
    pthread_mutex_lock(&f->lock);
    return true;
}

exo_far_message *
exo_far_await(exo_far *f, uint32_t phase, uint32_t place, const exo_collective_args *args,
              size_t bytes, exo_time deadline, exo_status *st, exo_err *err)
{
    uint32_t from = exo_far_rank_at(args, place);
    exo_far_message *m = NULL;
    char text[EXO_ERR_TEXT];
    pthread_mutex_lock(&f->lock);
    exo_time ready = 0;
    while (!(m = take_message_locked(f, f->calls[from], phase, from, &ready)) &&
           f->broken.code == EXO_OK) {
        const exo_far_message *other = find_other_call_locked(f, args, from);
        if (other) {
            exo_far_disagree_locked(f, args, &other->header);
            break;
        }
        exo_time now = exo_now(f->clock),
                 left = (ready && ready < deadline ? ready : deadline) - now;
        if (f->left[from] && !ready) {
            snprintf(text, sizeof text, "%s_%u (rank %u) has left", f->noun, from, from);
            exo_far_break_locked(f, EXO_PEER_LOST, text);
        } else if (now >= deadline) {
            exo_c_snprintf(text, sizeof text,
                           "%s: deadline passed after %.1f s while waiting for %s_%u (rank %u)",
                           exo_collective_name(args->operation), (double)(now - f->since) * 1e-9,
                           f->noun, from, from);
            exo_far_break_locked(f, EXO_TIMEOUT, text);
        } else {
            f->awaited = ready ? 0 : from + 1;
            f->passing = ready != 0;
            exo_time slice = f->clock == exo_clock_real() ? EXO_SECOND : 2 * EXO_MS;
            left = left < slice ? left : slice;
            exo_condition_wait_for(&f->changed, &f->lock, left);
            f->awaited = 0;
            f->passing = false;
        }
    }
    if (m &&
        ((bytes != SIZE_MAX && m->header.bytes != bytes) || is_other_call(f, args, &m->header))) {
        exo_far_disagree_locked(f, args, &m->header);
        exo_far_message_free(m);
        m = NULL;
    }
    if (!m) {
        *st = f->broken.code;
        if (err)
            *err = f->broken;
    }
    pthread_mutex_unlock(&f->lock);
    return m;
}
