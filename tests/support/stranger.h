/* A peer with a raw ZeroMQ socket, who says what no process of exogym says: for tests with
 * Criterion. Each belongs to the test's thread.
 *
 *     stranger s = stranger_open(endpoint, NULL, NULL);
 *     stranger_say(&s, &hello);
 *     stranger_expect(&s, EXO_WIRE_WELCOME, reason);
 *     stranger_close(&s); */
#ifndef EXO_TEST_STRANGER_H
#define EXO_TEST_STRANGER_H

#include "net/auth.h"
#include "wire/wire.h"

typedef struct stranger {
    void *context, *socket;
    char endpoint[256];
    uint32_t next; /* number of its next message */
    uint64_t calls;
} stranger;

/* A DEALER that connects there. keys: NULL: it has none; server_key: the key that it knows the
 * other end by. */
stranger stranger_open(const char *endpoint, const exo_keys *keys, const char *server_key);
void stranger_close(stranger *s);
/* Connects again under a routing id of its choice. */
void stranger_call_itself(stranger *s, const void *route, size_t size);

/* It waits so long for what it expects, instead of 20 s. */
void stranger_wait(stranger *s, int ms);

/* A Hello of another host's process, to be changed. */
#define STRANGER_HELLO                                                                             \
    {                                                                                              \
        .kind = EXO_WIRE_HELLO, .who = {                                                           \
            .node = 99,                                                                            \
            .pid = 1,                                                                              \
            .start = 1,                                                                            \
            .name = "stranger",                                                                    \
            .boot = "another kernel",                                                              \
            .endpoint = "",                                                                        \
            .cluster = ""                                                                          \
        }                                                                                          \
    }

/* Sends a message of `count` envelopes and `frames` more frames, with that number. */
void stranger_say_all(stranger *s, uint32_t number, const exo_envelope *envelopes, size_t count,
                      size_t frames);
/* One envelope, as its next message. */
void stranger_say(stranger *s, const exo_envelope *envelope);
/* Says Hello as that node, and is welcomed. */
void stranger_enter(stranger *s, uint64_t node);
/* Reads until an envelope of that kind comes; gives its reason. False: nothing of the kind came in
 * time. */
bool stranger_hears(stranger *s, exo_wire_kind kind, char reason[EXO_WIRE_REASON]);
void stranger_expect(stranger *s, exo_wire_kind kind, char reason[EXO_WIRE_REASON]);
/* Calls the actor, or, if it is 0, the system actor `name`, and waits for the reply: its status and
 * reason; CLOSED if it is told Goodbye or Refused instead, FAILED if nothing comes. `value` (room
 * for EXO_WIRE_INLINE; may be NULL) gets the reply's bytes. */
exo_status stranger_call(stranger *s, uint64_t actor, const char *name, const char *method,
                         const void *args, size_t size, char reason[EXO_WIRE_REASON], void *value,
                         size_t *value_size);

#endif
