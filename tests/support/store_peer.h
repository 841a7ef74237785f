/* Objects that are told apart by their bytes, and a second process that owns or reads some: for
 * tests of stores, with Criterion. */
#ifndef EXO_TEST_STORE_PEER_H
#define EXO_TEST_STORE_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "store/store.h"

/* An object of `size` bytes, each `value`, sealed. NULL, with the reason in *err. */
exo_object *object_put(exo_store *store, uint64_t size, int value, exo_err *err);
exo_object_handle object_handle(const exo_object *object);
/* Has it this size, and each byte this value? */
bool object_holds(const exo_object *object, uint64_t size, int value);

struct peer {
    pid_t pid;
    int socket;
};

/* Starts a process that runs `body` with its end of a socket; before there is a store in this
 * one. */
struct peer peer_start(void (*body)(int socket));
void peer_tell(int socket, const void *data, size_t size);
/* False when the other side has closed. */
bool peer_hear(int socket, void *data, size_t size);
/* Lets the peer run to its end, which must be a good one. */
void peer_finish(struct peer *peer);
void peer_kill(struct peer *peer);

/* What a reader has found. */
struct peer_answer {
    exo_status status;
    int first, last; /* bytes */
};

/* A body: imports what it is sent, says what it found, and keeps it until the next one. */
void peer_reader(int socket);
struct peer_answer peer_ask(const struct peer *reader, exo_object_handle handle);
/* Has the reader give up what it holds. */
void peer_ask_to_drop(const struct peer *reader);

/* A body: at each message, a size, it makes an object of that many 'o' and sends the handle; at 0
 * it drops all. */
void peer_owner(int socket);
exo_object_handle peer_order(const struct peer *owner, uint64_t size);

#endif
