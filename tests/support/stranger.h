/* A peer with a raw ZeroMQ socket that sends messages which no process of exogym sends. For tests
 * with Criterion. Owner: the test's thread.
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
    uint32_t next; /* number of the next message */
    uint64_t calls;
} stranger;

/* Connects a DEALER. keys: NULL: no keys. server_key: the public key that the server must have. */
stranger stranger_open(const char *endpoint, const exo_keys *keys, const char *server_key);
void stranger_close(stranger *s);
/* Connects again with the routing id `route`. */
void stranger_call_itself(stranger *s, const void *route, size_t size);

/* Sets the timeout of expected messages, which is a minute otherwise. */
void stranger_wait(stranger *s, int ms);

/* A Hello of a process on another host, as a start for changes. */
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

/* Sends message `number` with `count` envelopes and `frames` additional frames. */
void stranger_say_all(stranger *s, uint32_t number, const exo_envelope *envelopes, size_t count,
                      size_t frames);
/* Sends one envelope as the next message. */
void stranger_say(stranger *s, const exo_envelope *envelope);
/* Sends Hello as node `node` and expects Welcome, some times if none comes. */
void stranger_enter(stranger *s, uint64_t node);
/* Reads until an envelope of this kind comes, and copies its reason. False: none came in time. */
bool stranger_hears(stranger *s, exo_wire_kind kind, char reason[EXO_WIRE_REASON]);
void stranger_expect(stranger *s, exo_wire_kind kind, char reason[EXO_WIRE_REASON]);
/* Calls the actor or, if `actor` is 0, the system actor `name`, and waits for the reply. Returns
 * its status and reason; CLOSED if Goodbye or Refused comes instead; FAILED if nothing comes.
 * `value` (room for EXO_WIRE_INLINE; may be NULL) gets the reply's bytes. */
exo_status stranger_call(stranger *s, uint64_t actor, const char *name, const char *method,
                         const void *args, size_t size, char reason[EXO_WIRE_REASON], void *value,
                         size_t *value_size);

#endif
