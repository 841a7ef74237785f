/* A peer with a raw socket: see stranger.h. */
#include "support/stranger.h"

#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>
#include <zmq.h>

enum {
    WAIT_MS = 60000,
    TRIES = 6 /* of a Hello, within WAIT_MS */
};

stranger
stranger_open(const char *endpoint, const exo_keys *keys, const char *server_key)
{
    stranger s = {.context = zmq_ctx_new()};
    const int none = 0, wait = WAIT_MS;
    exo_err err = {0};
    s.socket = zmq_socket(s.context, ZMQ_DEALER);
    snprintf(s.endpoint, sizeof s.endpoint, "%s", endpoint);
    zmq_setsockopt(s.socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(s.socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    zmq_setsockopt(s.socket, ZMQ_RCVHWM, &none, sizeof none);
    if (keys)
        cr_assert_eq(exo_curve_client(s.socket, keys, server_key, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(zmq_connect(s.socket, endpoint), 0);
    return s;
}

void
stranger_close(stranger *s)
{
    zmq_close(s->socket);
    zmq_ctx_term(s->context);
    *s = (stranger){0};
}

void
stranger_call_itself(stranger *s, const void *route, size_t size)
{
    cr_assert_eq(zmq_disconnect(s->socket, s->endpoint), 0);
    zmq_setsockopt(s->socket, ZMQ_ROUTING_ID, route, size);
    cr_assert_eq(zmq_connect(s->socket, s->endpoint), 0);
}

void
stranger_wait(stranger *s, int ms)
{
    zmq_setsockopt(s->socket, ZMQ_RCVTIMEO, &ms, sizeof ms);
}

void
stranger_say_all(stranger *s, uint32_t number, const exo_envelope *envelopes, size_t count,
                 size_t frames)
{
    exo_wire_writer w = {0};
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(exo_wire_add(&w, &envelopes[i], NULL), EXO_OK);
    exo_wire_finish(&w, number);
    cr_assert_geq(zmq_send(s->socket, w.data, w.size, frames ? ZMQ_SNDMORE : 0), 0);
    for (size_t i = 0; i < frames; i++)
        cr_assert_geq(zmq_send(s->socket, "frame", 5, i + 1 < frames ? ZMQ_SNDMORE : 0), 0);
    exo_wire_release(&w);
    s->next = number + 1;
}

void
stranger_say(stranger *s, const exo_envelope *envelope)
{
    stranger_say_all(s, s->next, envelope, 1, 0);
}

/* Reads messages until an envelope of one of the kinds comes. False: none came in time. */
static bool
hear(stranger *s, unsigned kinds, uint64_t call, exo_envelope *out, char reason[EXO_WIRE_REASON],
     void *value, size_t *value_size)
{
    uint8_t *data = exo_calloc(2, EXO_WIRE_FRAME0), *frame = data + EXO_WIRE_FRAME0;
    exo_wire_reader r;
    bool found = false;
    cr_assert_eq(exo_wire_reader_init(&r, NULL), EXO_OK);
    while (!found) {
        int size = zmq_recv(s->socket, data, EXO_WIRE_FRAME0, 0), more = 0, frame_size = 0;
        size_t more_size = sizeof more;
        if (size < 0)
            break;
        /* only the last frame counts */
        while (zmq_getsockopt(s->socket, ZMQ_RCVMORE, &more, &more_size) == 0 && more)
            frame_size = zmq_recv(s->socket, frame, EXO_WIRE_FRAME0, 0);
        if (exo_wire_open(&r, data, (size_t)size, NULL) != EXO_OK)
            continue;
        while (!found && exo_wire_next(&r, out, NULL) == EXO_OK) {
            if (!(kinds & 1u << out->kind) ||
                (out->kind == EXO_WIRE_REPLY && call && out->id != call))
                continue;
            found = true;
            snprintf(reason, EXO_WIRE_REASON, "%s", out->text ? out->text : "");
            if (!value)
                continue;
            bool framed = out->payload.place == EXO_WIRE_FRAMED;
            *value_size = framed ? (size_t)(frame_size > 0 ? frame_size : 0) : out->payload.size;
            *value_size = *value_size < EXO_WIRE_INLINE ? *value_size : EXO_WIRE_INLINE;
            if (*value_size > 0)
                memcpy(value, framed ? frame : out->payload.data, *value_size);
        }
    }
    exo_wire_reader_release(&r);
    exo_free(data);
    return found;
}

bool
stranger_hears(stranger *s, exo_wire_kind kind, char reason[EXO_WIRE_REASON])
{
    exo_envelope e;
    return hear(s, 1u << kind, 0, &e, reason, NULL, NULL);
}

void
stranger_expect(stranger *s, exo_wire_kind kind, char reason[EXO_WIRE_REASON])
{
    cr_assert(stranger_hears(s, kind, reason), "nothing of kind %d came", (int)kind);
}

/* Waits for the Welcome, for a part of WAIT_MS. */
static bool
is_welcome(stranger *s)
{
    char reason[EXO_WIRE_REASON];
    const int part = WAIT_MS / TRIES;
    int wait = 0;
    size_t size = sizeof wait;
    zmq_getsockopt(s->socket, ZMQ_RCVTIMEO, &wait, &size);
    stranger_wait(s, part);
    const bool welcome = stranger_hears(s, EXO_WIRE_WELCOME, reason);
    stranger_wait(s, wait);
    return welcome;
}

/* A server ends the connection of a peer whose Hello is late. ZeroMQ then connects anew, without the
 * Hello, which went with the first connection: so it is said again on a connection of its own. */
void
stranger_enter(stranger *s, uint64_t node)
{
    const uint32_t first = s->next;
    exo_envelope hello = STRANGER_HELLO;
    hello.who.node = node;
    bool in = false;
    for (int i = 0; i < TRIES && !in; i++) {
        if (i > 0) {
            cr_assert_eq(zmq_disconnect(s->socket, s->endpoint), 0);
            cr_assert_eq(zmq_connect(s->socket, s->endpoint), 0);
            s->next = first;
        }
        stranger_say(s, &hello);
        in = is_welcome(s);
    }
    cr_assert(in, "no Welcome came");
}

exo_status
stranger_call(stranger *s, uint64_t actor, const char *name, const char *method, const void *args,
              size_t size, char reason[EXO_WIRE_REASON], void *value, size_t *value_size)
{
    exo_envelope e = {0};
    const exo_envelope call = {
        .kind = EXO_WIRE_CALL,
        .id = ++s->calls,
        .actor = actor,
        .text = name,
        .method = method,
        .timeout = WAIT_MS * EXO_MS,
        .payload = {.place = size ? EXO_WIRE_BYTES : EXO_WIRE_NONE, .data = args, .size = size}};
    stranger_say(s, &call);
    if (!hear(s, 1u << EXO_WIRE_REPLY | 1u << EXO_WIRE_GOODBYE | 1u << EXO_WIRE_REFUSED, s->calls,
              &e, reason, value, value_size))
        return EXO_FAILED;
    return e.kind == EXO_WIRE_REPLY ? e.status : EXO_CLOSED;
}
