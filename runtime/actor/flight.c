/* The flight recorder: see flight.h. Each slot belongs to the thread that has claimed it. */
#include "actor/flight.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    LONGEST_ACTOR = 80
};

/* `depth` is written last when a method begins, so a half-written text is never read. */
struct slot {
    atomic_uint taken;
    atomic_uint depth;
    char text[EXO_FLIGHT_SLOT - 2 * sizeof(atomic_uint)];
};

_Static_assert(sizeof(struct slot) == EXO_FLIGHT_SLOT, "slots lie one after the other");

void *exo_flight_recorder;

/* initial-exec: access needs no function call, also in a shared library. */
static _Thread_local struct slot *mine __attribute__((tls_model("initial-exec")));
static struct slot nobodys; /* for threads that found no free slot; never read */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
give_back(void *slot)
{
    mine = &nobodys;
    atomic_store(&((struct slot *)slot)->taken, 0);
}

static void
make_key(void)
{
    pthread_key_create(&key, give_back);
}

static void
claim(void)
{
    struct slot *slots = exo_flight_recorder;
    mine = &nobodys;
    pthread_once(&once, make_key);
    for (size_t i = 0; i < EXO_FLIGHT_SLOTS; i++) {
        unsigned taken = 0;
        if (atomic_compare_exchange_strong(&slots[i].taken, &taken, 1)) {
            mine = &slots[i];
            pthread_setspecific(key, mine);
            return;
        }
    }
}

void
exo_flight_use(void *memory)
{
    exo_flight_recorder = memory;
}

void
exo_flight_begin(const char *actor, const char *method)
{
    if (!mine)
        claim();
    struct slot *s = mine;
    if (s == &nobodys)
        return;
    unsigned depth = atomic_load_explicit(&s->depth, memory_order_relaxed);
    if (depth == 0) {
        char *at = memccpy(s->text, actor, 0, LONGEST_ACTOR), *end = s->text + sizeof s->text;
        at = at ? at : s->text + LONGEST_ACTOR + 1; /* a long name is cut */
        at[-1] = '.';
        if (!memccpy(at, method, 0, (size_t)(end - at)))
            end[-1] = 0;
    }
    atomic_store_explicit(&s->depth, depth + 1, memory_order_release);
}

void
exo_flight_end(void)
{
    struct slot *s = mine;
    if (s && s != &nobodys)
        atomic_store_explicit(&s->depth, atomic_load_explicit(&s->depth, memory_order_relaxed) - 1,
                              memory_order_release);
}

size_t
exo_flight_read(const void *memory, char *out, size_t size)
{
    const struct slot *slots = memory;
    size_t count = 0, at = 0;
    out[0] = 0;
    for (size_t i = 0; i < EXO_FLIGHT_SLOTS; i++) {
        if (atomic_load_explicit(&slots[i].depth, memory_order_acquire) == 0)
            continue;
        count++;
        int n = at < size ? snprintf(out + at, size - at, "%s%.*s", at ? ", " : "",
                                     (int)sizeof slots[i].text, slots[i].text)
                          : 0;
        at += n > 0 ? (size_t)n : 0;
    }
    return count;
}
