/* A handler that never replies: see silent.h. */
#include "support/silent.h"

static void
received(void *context, exo_peer *peer, const exo_envelope *envelope, exo_payload *payload)
{
    (void)context;
    (void)peer;
    (void)envelope;
    exo_payload_release(payload);
}

static void
settle(void *context, exo_driver driver)
{
    (void)context;
    (void)driver;
}

static void
lost(void *context, exo_peer *peer, const char *cause)
{
    (void)context;
    (void)peer;
    (void)cause;
}

const exo_net_handler silent_handler = {.received = received, .settle = settle, .lost = lost};
