/* Objects that can be told apart by their bytes, and a second process that owns or reads objects.
 * For tests of stores, with Criterion. */
#ifndef EXO_TEST_STORE_PEER_H
#define EXO_TEST_STORE_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "store/store.h"

/* Makes a sealed object of `size` bytes with the value `value`. NULL, with the reason in *err, if
 * that fails. */
exo_object *object_put(exo_store *store, uint64_t size, int value, exo_err *err);
exo_object_handle object_handle(const exo_object *object);
/* Does the object have this size, and each byte this value? */
bool object_holds(const exo_object *object, uint64_t size, int value);

struct peer {
    pid_t pid;
    int socket;
};

/* Forks a process that runs `body` with its end of a socket. Call it before this process opens a
 * store. */
struct peer peer_start(void (*body)(int socket));
void peer_tell(int socket, const void *data, size_t size);
/* False: the other side has closed the socket. */
bool peer_hear(int socket, void *data, size_t size);
/* Waits for the peer's end, and fails the test unless it is a success. */
void peer_finish(struct peer *peer);
void peer_kill(struct peer *peer);

/* The reader's answer to a handle. */
struct peer_answer {
    exo_status status;
    int first, last; /* bytes of the object */
};

/* A body: imports each handle that it receives, answers, and holds the object until the next
 * one. */
void peer_reader(int socket);
struct peer_answer peer_ask(const struct peer *reader, exo_object_handle handle);
/* Makes the reader drop its object. */
void peer_ask_to_drop(const struct peer *reader);

/* A body: for each size that it receives, makes an object of that many 'o' and sends the handle; 0
 * makes it drop all objects. */
void peer_owner(int socket);
exo_object_handle peer_order(const struct peer *owner, uint64_t size);

#endif
