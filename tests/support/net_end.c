/* One end of a connection under test: see net_end.h. */
#include "support/net_end.h"

#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "support/eventually.h"
#include "support/logged.h"
#include "support/temp.h"

void
net_end_setup(void)
{
    char folder[64];
    temp_folder(folder, sizeof folder);
    snprintf(net_end_ipc, sizeof net_end_ipc, "ipc://%s/s", folder);
    logged_begin();
}

void
net_end_teardown(void)
{
    char folder[sizeof net_end_ipc];
    snprintf(folder, sizeof folder, "%s", net_end_ipc + strlen("ipc://"));
    *strrchr(folder, '/') = 0;
    logged_end();
    temp_remove(folder);
}

/* The byte at `i` of call `number`. */
static uint8_t
expected(uint64_t number, size_t i)
{
    return (uint8_t)(i < 8 ? number >> (8 * i) : number + i);
}

static size_t
size_of(uint64_t number)
{
    return number % 1000 == 999 ? 100000 : number % 1000 == 500 ? 600000 : 8 + number % 100;
}

static void
received(void *context, exo_peer *peer, const exo_envelope *e, exo_payload *payload)
{
    net_end *self = context;
    self->wrong += atomic_load(&self->stopped);
    if (e->kind == EXO_WIRE_REPLY) {
        self->replies++;
    } else if (e->kind == EXO_WIRE_CANCEL) {
        self->cancels++;
    } else if (strcmp(e->method, "count") == 0) {
        uint64_t number = self->next++;
        bool right = payload->size == size_of(number);
        for (size_t i = 0; right && i < payload->size; i++)
            right = ((const uint8_t *)payload->data)[i] == expected(number, i);
        self->wrong += !right;
    }
    exo_payload_release(payload);
    if (e->kind == EXO_WIRE_CALL && self->reply_bytes > 0) {
        exo_envelope reply = {.kind = EXO_WIRE_REPLY, .id = e->id};
        exo_payload value = {.data = exo_calloc(1, self->reply_bytes),
                             .size = self->reply_bytes,
                             .release = exo_free};
        self->refused += exo_net_send(self->net, peer, &reply, &value, NULL) == EXO_FULL;
    }
    /* counted last, because a test waits for it */
    self->calls += e->kind != EXO_WIRE_REPLY && e->kind != EXO_WIRE_CANCEL;
}

static void
settle(void *context, exo_driver driver)
{
    (void)context;
    (void)driver;
}

static void
opened(void *context, exo_peer *peer)
{
    net_end *self = context;
    exo_peer *before = atomic_exchange(&self->peer, exo_peer_hold(peer));
    exo_peer_drop(&before);
    self->opened++;
}

static void
lost(void *context, exo_peer *peer, const char *cause)
{
    net_end *self = context;
    self->wrong += atomic_load(&self->stopped) || exo_peer_is_open(peer);
    snprintf(self->cause, sizeof self->cause, "%s", cause);
    self->lost++;
}

const exo_net_handler net_end_handler = {
    .received = received, .settle = settle, .opened = opened, .lost = lost};

void
net_end_open(net_end *e, const char *endpoint, const exo_net_opts *more)
{
    exo_net_opts opts = more ? *more : (exo_net_opts){0};
    exo_err err = {0};
    opts.name = opts.name ? opts.name : "end";
    opts.endpoints = &endpoint;
    opts.num_endpoints = endpoint ? 1 : 0;
    opts.handler = &net_end_handler;
    opts.context = e;
    /* a process that a busy machine stops for a time is not lost by its silence */
    opts.peer_timeout = opts.peer_timeout ? opts.peer_timeout : 600 * EXO_SECOND;
    cr_assert_eq(exo_net_open(&e->net, &opts, &err), EXO_OK, "%s", err.text);
}

void
net_end_close(net_end *e)
{
    exo_peer *peer = atomic_exchange(&e->peer, NULL);
    exo_net_stop(e->net, NULL);
    atomic_store(&e->stopped, true);
    exo_net_close(&e->net);
    exo_peer_drop(&peer);
    cr_expect_eq(e->wrong, 0);
}

exo_peer *
net_end_connect(net_end *from, net_end *to)
{
    exo_peer *peer = NULL;
    exo_err err = {0};
    cr_assert_eq(
        exo_net_connect(from->net, exo_net_endpoint(to->net, 0), NULL, in_ms(60000), &peer, &err),
        EXO_OK, "%s", err.text);
    return peer;
}

exo_payload
net_end_numbered(uint64_t number)
{
    exo_payload payload = {.size = size_of(number), .release = exo_free};
    uint8_t *data = exo_calloc(1, payload.size);
    for (size_t i = 0; i < payload.size; i++)
        data[i] = expected(number, i);
    payload.data = data;
    return payload;
}

exo_status
net_end_call(net_end *from, exo_peer *peer, const char *method, exo_payload *payload)
{
    exo_envelope e = {.kind = EXO_WIRE_CALL, .id = 1, .method = method, .timeout = INT64_MAX};
    return exo_net_send(from->net, peer, &e, payload, NULL);
}

exo_payload
net_end_zeros(size_t size)
{
    return (exo_payload){.data = exo_calloc(1, size), .size = size, .release = exo_free};
}

const char *
net_end_endpoint(int i)
{
    static const char *const endpoints[] = {net_end_ipc, "tcp://127.0.0.1:0"};
    return endpoints[i];
}
