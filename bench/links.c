/* The cost of the model of links: messages per second, and the time of an exchange. To compare, it
 * prints the rate of memcpy of a message's bytes, the least work that a run does with a message.
 * Medians of 5.
 *
 *     bench_links
 */
#include <math.h>
#include <stdio.h>

#include <exogym/clock.h>
#include <exogym/memory.h>
#include <exogym/rng.h>

#include "limits.h"
#include "link/link.h"

enum {
    REPEATS = 5,
    MESSAGES = 500000
};

static exo_links *
network(uint32_t n, const exo_link_spec *link)
{
    exo_links *l = NULL;
    exo_err err = {0};
    exo_host_spec *hosts = exo_calloc(n, sizeof *hosts);
    for (uint32_t i = 0; hosts && i < n; i++)
        hosts[i] = (exo_host_spec){.up = 20e6, .down = 100e6};
    if (!hosts || exo_links_new(&l, hosts, n, link, 1, &err) != EXO_OK)
        fprintf(stderr, "%s\n", err.text);
    exo_free(hosts);
    return l;
}

static double
seconds_of(int64_t since)
{
    return (double)(bench_now() - since) / 1e9;
}

static void
send_messages(const char *name, uint32_t n, const exo_link_spec *link)
{
    double rates[REPEATS];
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        exo_links *l = network(n, link);
        exo_transit t;
        exo_rng rng;
        exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
        int64_t start = bench_now();
        for (int i = 0; l && i < MESSAGES; i++)
            exo_links_send(l, exo_rng_below(&rng, n), exo_rng_below(&rng, n), 0, 10000, i * EXO_MS,
                           &t);
        rates[repeat] = MESSAGES / seconds_of(start);
        exo_links_free(&l);
    }
    printf("%-44s %5u hosts  %8.2f million messages/s\n", name, n,
           bench_median(rates, REPEATS) / 1e6);
}

static void
exchange(const char *name, uint32_t n, bool mixed, const exo_link_spec *link)
{
    double times[REPEATS];
    exo_err err = {0};
    exo_links *l = network(n + 2, link);
    uint32_t *hosts = exo_calloc(n, sizeof *hosts);
    uint64_t *bytes = exo_calloc(n, sizeof *bytes);
    exo_time *begins = exo_calloc(n, sizeof *begins), *ends = exo_calloc(n, sizeof *ends);
    if (!l || !hosts || !bytes || !begins || !ends) {
        fprintf(stderr, "no memory\n");
    } else {
        if (mixed) /* a link of its own, between two hosts outside the exchange */
            exo_links_between(l, n, n + 1, link, NULL);
        for (uint32_t i = 0; i < n; i++) {
            hosts[i] = i;
            bytes[i] = 10000;
        }
        for (int repeat = 0; repeat < REPEATS; repeat++) {
            for (uint32_t i = 0; i < n; i++)
                begins[i] = repeat * 3600 * EXO_SECOND + i * EXO_US;
            int64_t start = bench_now();
            exo_status st = exo_links_exchange(l, EXO_EXCHANGE_SCATTER, n, hosts, 0, bytes, begins,
                                               ends, NULL, &err);
            times[repeat] = seconds_of(start) * 1e3;
            if (st != EXO_OK)
                fprintf(stderr, "%s\n", err.text);
        }
        printf("%-44s %5u members %10.3f ms\n", name, n, bench_median(times, REPEATS));
    }
    exo_free(hosts);
    exo_free(bytes);
    exo_free(begins);
    exo_free(ends);
    exo_links_free(&l);
}

int
main(void)
{
    static const uint32_t sizes[] = {8, 32, 100, 1000, 10000};
    const exo_link_spec ideal = {
        .bandwidth = INFINITY, .latency = 20 * EXO_MS, .transport = EXO_LINK_IDEAL};
    exo_link_spec tcp = ideal, pairs = ideal, jitter = ideal;
    bench_stats copy;
    exo_err err = {0};
    tcp.transport = EXO_LINK_TCP;
    pairs.bandwidth = 50e6;
    jitter.jitter = EXO_MS;
    if (bench_memcpy(10000, 100000, &copy, &err) == EXO_OK)
        printf("%-44s %25.2f million copies/s\n", "memcpy of 10 kB", copy.rate / 1e6);
    send_messages("ideal", 16, &ideal);
    send_messages("ideal", 1000, &ideal);
    send_messages("ideal, bandwidth of pairs", 16, &pairs);
    send_messages("ideal, jitter", 16, &jitter);
    send_messages("tcp", 16, &tcp);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        exchange("exchange of equal links, tcp", sizes[i], false, &tcp);
    for (size_t i = 0; i < 4; i++)
        exchange("exchange of mixed links, tcp", sizes[i], true, &tcp);
    return 0;
}
