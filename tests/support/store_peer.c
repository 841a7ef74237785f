/* Objects and a second process: see store_peer.h. */
#include "support/store_peer.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "support/check.h"

exo_object *
object_put(exo_store *store, uint64_t size, int value, exo_err *err)
{
    exo_object *object = NULL;
    if (exo_object_create(store, size, &object, err) != EXO_OK)
        return NULL;
    memset(exo_object_data(object), value, size);
    exo_object_seal(object);
    return object;
}

exo_object_handle
object_handle(const exo_object *object)
{
    exo_object_handle handle = {0};
    exo_object_export(object, &handle, NULL);
    return handle;
}

bool
object_holds(const exo_object *object, uint64_t size, int value)
{
    const unsigned char *data = exo_object_data(object);
    for (uint64_t i = 0; i < size; i++)
        if (data[i] != value)
            return false;
    return exo_object_size(object) == size;
}

struct peer
peer_start(void (*body)(int socket))
{
    struct peer peer;
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    peer.pid = fork();
    if (peer.pid == 0) {
        close(ends[0]);
        body(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    peer.socket = ends[0];
    return peer;
}

void
peer_tell(int socket, const void *data, size_t size)
{
    CHECK(send(socket, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

bool
peer_hear(int socket, void *data, size_t size)
{
    return recv(socket, data, size, 0) == (ssize_t)size;
}

void
peer_finish(struct peer *peer)
{
    int status = 0;
    close(peer->socket);
    cr_assert_eq(waitpid(peer->pid, &status, 0), peer->pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the peer ended with %#x",
              (unsigned)status);
}

void
peer_kill(struct peer *peer)
{
    cr_assert_eq(kill(peer->pid, SIGKILL), 0);
    cr_assert_eq(waitpid(peer->pid, NULL, 0), peer->pid);
    close(peer->socket);
}

static exo_store *
open_large(void)
{
    exo_store *store = NULL;
    const exo_store_opts opts = {.capacity = UINT64_C(1) << 30, .keep = UINT64_C(64) << 20};
    CHECK(exo_store_open(&store, &opts, NULL) == EXO_OK);
    return store;
}

void
peer_reader(int socket)
{
    exo_object_handle handle;
    exo_object *object = NULL;
    exo_store *store = open_large();
    while (peer_hear(socket, &handle, sizeof handle)) {
        exo_object_drop(&object);
        struct peer_answer answer = {.status = exo_object_import(store, &handle, &object, NULL)};
        if (object && handle.size) {
            unsigned char *data = exo_object_data(object);
            answer.first = data[0];
            answer.last = data[handle.size - 1];
        }
        peer_tell(socket, &answer, sizeof answer);
    }
    exo_object_drop(&object);
    exo_store_close(&store);
}

struct peer_answer
peer_ask(const struct peer *peer, exo_object_handle handle)
{
    struct peer_answer answer = {.status = EXO_FAILED};
    peer_tell(peer->socket, &handle, sizeof handle);
    cr_assert(peer_hear(peer->socket, &answer, sizeof answer), "the reader died");
    return answer;
}

void
peer_ask_to_drop(const struct peer *peer)
{
    cr_assert_eq(peer_ask(peer, (exo_object_handle){0}).status, EXO_INVAL);
}

void
peer_owner(int socket)
{
    exo_object *objects[16] = {0};
    size_t count = 0;
    uint64_t size = 0;
    exo_store *store = open_large();
    while (peer_hear(socket, &size, sizeof size)) {
        exo_object_handle handle = {0};
        if (size == 0) {
            while (count)
                exo_object_drop(&objects[--count]);
        } else {
            objects[count] = object_put(store, size, 'o', NULL);
            CHECK(objects[count]);
            handle = object_handle(objects[count++]);
        }
        peer_tell(socket, &handle, sizeof handle);
    }
    while (count)
        exo_object_drop(&objects[--count]);
    exo_store_close(&store);
}

exo_object_handle
peer_order(const struct peer *peer, uint64_t size)
{
    exo_object_handle handle;
    peer_tell(peer->socket, &size, sizeof size);
    cr_assert(peer_hear(peer->socket, &handle, sizeof handle), "the owner died");
    return handle;
}
