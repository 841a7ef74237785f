/* Threads that use one emulated network at once: no message is lost, and each connection keeps its
 * order. Each thread owns its host's connections. Read next: runtime/link/link.h. */
#include <math.h>
#include <pthread.h>

#include "link/link.h"
#include "support/check.h"

enum {
    THREADS = 4,
    MESSAGES = 5000,
    BYTES = 1000
};

static exo_links *links;

static void *
send_many(void *arg)
{
    uint32_t from = *(const uint32_t *)arg;
    const exo_host_spec host = {.up = 1e9, .down = 1e9};
    exo_link_stats up, down;
    exo_transit t;
    exo_time last[THREADS] = {0};
    for (int i = 0; i < MESSAGES; i++) {
        uint32_t to = (from + 1 + (uint32_t)i % (THREADS - 1)) % THREADS;
        exo_links_send(links, from, to, 0, BYTES, i * EXO_MS, &t);
        CHECK(t.arrives >= last[to]);
        last[to] = t.arrives;
        if (i % 100 == 0) {
            CHECK(exo_links_set_host(links, from, &host, NULL) == EXO_OK);
            exo_links_host_stats(links, to, &up, &down);
        }
    }
    return NULL;
}

int
main(void)
{
    const exo_link_spec link = {
        .bandwidth = 1e9, .latency = EXO_MS, .jitter = EXO_MS, .transport = EXO_LINK_TCP};
    exo_host_spec hosts[THREADS];
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        hosts[i] = (exo_host_spec){.up = 1e9, .down = 1e9};
        numbers[i] = i;
    }
    CHECK(exo_links_new(&links, hosts, THREADS, &link, 1, NULL) == EXO_OK);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, send_many, &numbers[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        exo_link_stats up, down;
        exo_links_host_stats(links, i, &up, &down);
        CHECK(up.messages == MESSAGES && up.bytes == (uint64_t)MESSAGES * BYTES);
    }
    exo_links_free(&links);
    return 0;
}
