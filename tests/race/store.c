/* The store under the thread sanitizer: threads of two processes create, share, import and drop
 * objects. The store keeps so little free memory that segments are reused, evicted and mapped again
 * all the time. A reader of an object finds its owner's words, from the first to the last.
 *
 * The parent's threads send, the child's receive. Read next: runtime/store/store.h;
 * docs/objects.md. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store.h"
#include "support/check.h"

enum {
    THREADS = 3,
    ROUNDS = 400,
    SHELF = 8
};

static exo_store *store;

/* Objects that the threads of one process take from each other. */
static struct {
    pthread_mutex_t lock;
    exo_object *objects[SHELF]; /* guarded by lock */
} shelf = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
write_object(exo_object *object, uint64_t value)
{
    uint64_t *words = exo_object_data(object);
    for (uint64_t i = 0; i < exo_object_size(object) / 8; i++)
        words[i] = value;
    exo_object_seal(object);
}

static void
check_object(const exo_object *object)
{
    const uint64_t *words = exo_object_data(object);
    uint64_t count = exo_object_size(object) / 8;
    for (uint64_t i = 1; i < count; i++)
        CHECK(words[i] == words[0]);
}

/* Puts the caller's reference on the shelf, and returns the reference that was there. */
static exo_object *
exchange(unsigned place, exo_object *object)
{
    pthread_mutex_lock(&shelf.lock);
    exo_object *before = shelf.objects[place];
    shelf.objects[place] = object;
    pthread_mutex_unlock(&shelf.lock);
    return before;
}

struct sender {
    int socket;
    unsigned seed;
};

/* Creates objects, sends their handles, imports them as well, and drops objects of other
 * threads. */
static void *
send_objects(void *argument)
{
    struct sender *sender = argument;
    static const uint64_t sizes[] = {64, 1000, 800, 30000, 70000, 72000, 80000, (2 << 20) + 8};
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned draw = (unsigned)rand_r(&sender->seed);
        uint64_t size = sizes[draw % 64 == 0 ? 7 : draw % 7];
        exo_object *object = NULL, *same = NULL;
        exo_status st = exo_object_create(store, size, &object, NULL);
        CHECK(st == EXO_OK || st == EXO_FULL);
        if (st == EXO_FULL)
            continue;
        write_object(object, (uint64_t)draw << 32 | i);
        exo_object_handle handle;
        CHECK(exo_object_export(object, &handle, NULL) == EXO_OK);
        CHECK(exo_object_import(store, &handle, &same, NULL) == EXO_OK && same == object);
        exo_object_drop(&same);
        CHECK(send(sender->socket, &handle, sizeof handle, 0) == sizeof handle);
        exo_object *other = exchange(draw / 64 % SHELF, object);
        if (other) {
            exo_object *again = exo_object_hold(other);
            check_object(other);
            exo_object_drop(&other);
            exo_object_drop(&again);
        }
    }
    return NULL;
}

static void *
receive_objects(void *argument)
{
    int socket = *(int *)argument;
    exo_object_handle handle;
    static _Atomic unsigned found;
    while (recv(socket, &handle, sizeof handle, 0) == sizeof handle) {
        exo_object *object = NULL, *again = NULL;
        exo_status st = exo_object_import(store, &handle, &object, NULL);
        CHECK(st == EXO_OK || st == EXO_NOT_FOUND || st == EXO_PEER_LOST);
        if (st != EXO_OK)
            continue;
        check_object(object);
        CHECK(exo_object_import(store, &handle, &again, NULL) == EXO_OK || !again);
        exo_object *other = exchange(handle.slot % SHELF, object);
        if (other)
            check_object(other);
        exo_object_drop(&other);
        exo_object_drop(&again);
        found++;
    }
    CHECK(found > 0);
    return NULL;
}

static void
count_object(void *context, const exo_object_info *info)
{
    *(uint64_t *)context += info->handle.size;
}

static _Atomic bool over;

static void *
watch(void *unused)
{
    (void)unused;
    while (!over) {
        uint64_t bytes = 0;
        CHECK(exo_store_each(store, count_object, &bytes) == EXO_OK);
        exo_store_stats stats = exo_store_get_stats(store);
        CHECK(stats.bytes_used + stats.bytes_kept <= stats.capacity);
    }
    return NULL;
}

static void
empty_shelf(void)
{
    for (unsigned i = 0; i < SHELF; i++) {
        exo_object *object = exchange(i, NULL);
        exo_object_drop(&object);
    }
}

static void
open_store(void)
{
    exo_store_opts opts = {.capacity = 12 << 20, .keep = 3 << 20};
    CHECK(exo_store_open(&store, &opts, NULL) == EXO_OK);
}

int
main(void)
{
    int ends[2];
    pthread_t threads[THREADS + 1];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    /* the smallest buffer that the kernel allows: handles that wait for long are stale */
    const int few = 1;
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    open_store();
    close(ends[child == 0]);
    CHECK(pthread_create(&threads[THREADS], NULL, watch, NULL) == 0);
    struct sender senders[THREADS];
    for (int i = 0; i < THREADS; i++) {
        senders[i] = (struct sender){.socket = ends[1], .seed = (unsigned)i + 1};
        CHECK(pthread_create(&threads[i], NULL, child == 0 ? receive_objects : send_objects,
                             child == 0 ? (void *)&ends[0] : (void *)&senders[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    over = true;
    CHECK(pthread_join(threads[THREADS], NULL) == 0);
    close(ends[child != 0]);

    empty_shelf();
    exo_store_stats stats = exo_store_get_stats(store);
    CHECK(stats.objects == 0 && stats.imports == 0 && stats.bytes_used == 0);
    CHECK(child == 0 || stats.reuses > 0);
    exo_store_close(&store);
    if (child == 0)
        return 0;
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("1 passed, 0 failed");
    return 0;
}
