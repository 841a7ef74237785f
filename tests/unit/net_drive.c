/* The driver of a net: waiting threads, home and guard take turns, no kick is lost, and everything
 * ends when the net is stopped.
 *
 * Each test owns its ends and threads; some tests take the net's lock to stop the driver at a
 * certain place. Read next: runtime/net/net.c. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "net/net_impl.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

struct sender {
    net_end *from;
    exo_peer *peer;
    pthread_t thread;
};

static void *
send_until_lost(void *argument)
{
    struct sender *s = argument;
    exo_status st = EXO_OK;
    while (st == EXO_OK || st == EXO_FULL) {
        exo_payload payload = net_end_zeros(100);
        st = net_end_call(s->from, s->peer, "add", &payload);
    }
    cr_expect_eq(st, EXO_PEER_LOST);
    return NULL;
}

static bool
never(void *argument)
{
    (void)argument;
    return false;
}

static void *
drive_until_closed(void *argument)
{
    net_end *e = argument;
    for (exo_time until = in_ms(60000);
         exo_now(exo_clock_real()) < until && !atomic_load(&e->stopped);)
        exo_net_drive(e->net, never, NULL, until);
    return NULL;
}

Test(net, stops_while_others_send_and_drive)
{
    for (int i = 0; i < 6; i++) {
        net_end server = {0}, client = {0};
        struct sender senders[4];
        pthread_t driver;
        net_end_open(&server, net_end_endpoint(i % 2), NULL);
        net_end_open(&client, NULL, NULL);
        exo_peer *peer = net_end_connect(&client, &server);
        for (int k = 0; k < 4; k++) {
            senders[k] = (struct sender){.from = &client, .peer = peer};
            cr_assert_eq(pthread_create(&senders[k].thread, NULL, send_until_lost, &senders[k]), 0);
        }
        net_end *stopped = i < 3 ? &client : &server;
        cr_assert_eq(pthread_create(&driver, NULL, drive_until_closed, stopped), 0);
        EVENTUALLY(server.calls > 1000);
        exo_net_stop(stopped->net, NULL);
        atomic_store(&stopped->stopped, true); /* from now on, callbacks are an error */
        for (int k = 0; k < 4; k++)
            pthread_join(senders[k].thread, NULL);
        pthread_join(driver, NULL);
        EVENTUALLY(server.lost == 1 && client.lost == 1);
        exo_peer_drop(&peer);
        net_end_close(&client);
        net_end_close(&server);
        cr_expect_eq(server.lost + client.lost, 2);
    }
}

/* Two threads that wait while home drives: each waits until the other one has left the net. */
struct pair {
    net_end *end;
    exo_time deadline;
    atomic_uint left, late;    /* late: those that left at the deadline */
    atomic_bool held, goes_on; /* home is in a callback; it may return */
};

static void
hold_driver(void *context, exo_peer *peer, const exo_envelope *e, exo_payload *payload)
{
    struct pair *pair = context;
    (void)peer;
    (void)e;
    exo_payload_release(payload);
    atomic_store(&pair->held, true);
    while (!atomic_load(&pair->goes_on))
        usleep(100);
}

static bool
other_has_left(void *argument)
{
    return atomic_load(&((struct pair *)argument)->left) > 0;
}

static void *
wait_for_other(void *argument)
{
    struct pair *pair = argument;
    exo_net *net = pair->end->net;
    exo_net_drive(net, other_has_left, pair, pair->deadline);
    atomic_fetch_add(&pair->late, exo_now(exo_clock_real()) >= pair->deadline);
    atomic_fetch_add(&pair->left, 1);
    exo_net_kick(net);
    return NULL;
}

static void
ignore_settle(void *context, exo_driver driver)
{
    (void)context;
    (void)driver;
}

static void
ignore_opened(void *context, exo_peer *peer)
{
    (void)context;
    (void)peer;
}

static void
ignore_lost(void *context, exo_peer *peer, const char *cause)
{
    (void)context;
    (void)peer;
    (void)cause;
}

/* The event for which one thread waits may need the other thread. So the other thread must not be
 * held until the first has its reply. */
Test(net, of_two_that_want_to_drive_one_waits_by_other_means)
{
    static const exo_net_handler holding = {.received = hold_driver,
                                            .settle = ignore_settle,
                                            .opened = ignore_opened,
                                            .lost = ignore_lost};
    net_end server = {0}, client = {0};
    struct pair pair = {.end = &server};
    pthread_t waiters[2];
    exo_payload none = {0};
    const char *at = net_end_endpoint(0);
    exo_err err = {0};
    cr_assert_eq(exo_net_open(&server.net,
                              &(exo_net_opts){.name = "server",
                                              .endpoints = &at,
                                              .num_endpoints = 1,
                                              .handler = &holding,
                                              .context = &pair},
                              &err),
                 EXO_OK, "%s", err.text);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    cr_assert_eq(net_end_call(&client, peer, "add", &none), EXO_OK);
    EVENTUALLY(pair.held);
    pair.deadline = in_ms(60000);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&waiters[i], NULL, wait_for_other, &pair), 0);
    EVENTUALLY(server.net->wanted == 2);
    atomic_store(&pair.goes_on, true);
    for (int i = 0; i < 2; i++)
        pthread_join(waiters[i], NULL);
    cr_expect_eq(pair.late, 0, "one waited for the other until its deadline");
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* --- Kicks ------------------------------------------------------------------------------------ */

/* Takes the net's lock while the driver wakes from a kick, so that the driver gets no further. The
 * driver may just have been about to sleep, for which it takes the lock too; then the function
 * tries again. */
static void
hold_waking_driver(exo_net *net)
{
    for (;;) {
        EVENTUALLY(net->waiting);
        pthread_mutex_lock(&net->lock);
        exo_net_kick(net);
        for (int look = 0; look < 100 && net->waiting; look++)
            usleep(200);
        if (!net->waiting)
            return;
        pthread_mutex_unlock(&net->lock);
    }
}

/* The driver sleeps, and a kick would wake it. It may begin to sleep while an earlier kick has
 * still to wake it; the earlier kick then does so. */
static bool
hears_kicks(exo_net *net)
{
    return net->waiting && !net->kicked;
}

/* A kick is served before the next heartbeat, even if it comes while the driver wakes from an
 * earlier kick. */
Test(net, no_kick_is_lost)
{
    net_end e = {0};
    net_end_open(&e, NULL, NULL);
    for (int i = 0; i < 100; i++) {
        hold_waking_driver(e.net);
        usleep(100);
        /* Do the second half of a kick that began before the driver woke. */
        if (!atomic_exchange(&e.net->kicked, true))
            cr_assert_eq(write(e.net->kicker, "", 1), 1);
        pthread_mutex_unlock(&e.net->lock);
        EVENTUALLY(hears_kicks(e.net));
    }
    net_end_close(&e);
}

struct completion {
    exo_net *net;
    bool done;
};

/* Another thread completes the wait right after this thread has looked. */
static bool
done_after_look(void *argument)
{
    struct completion *c = argument;
    bool done = c->done;
    c->done = true;
    exo_net_kick(c->net);
    return done;
}

Test(net, a_kick_between_look_and_sleep_is_heard)
{
    net_end e = {0};
    net_end_open(&e, NULL, NULL);
    for (int i = 0; i < 20; i++) {
        struct completion c = {.net = e.net};
        exo_time deadline = in_ms(60000);
        pthread_mutex_lock(&e.net->lock);
        e.net->next_tick = deadline; /* nothing else wakes the driver */
        pthread_mutex_unlock(&e.net->lock);
        cr_assert(exo_net_drive(e.net, done_after_look, &c, deadline));
        cr_assert_lt(exo_now(exo_clock_real()), deadline, "it was heard of at the deadline only");
    }
    net_end_close(&e);
}

/* --- Events ----------------------------------------------------------------------------------- */

/* ZeroMQ gives -1 as the descriptor of a socket whose context ends. */
Test(net, no_descriptor_is_not_watched)
{
    net_end server = {0}, client = {0};
    exo_payload none = {0};
    exo_source source = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    pthread_mutex_lock(&client.net->lock);
    size_t sources = client.net->num_sources;
    cr_expect_not(exo_net_watch_locked(client.net, -1, &source));
    cr_expect_eq(errno, EBADF);
    exo_net_unwatch_locked(client.net, -1);
    cr_expect_eq(client.net->num_sources, sources);
    pthread_mutex_unlock(&client.net->lock);
    cr_expect_eq(net_end_call(&client, peer, "add", &none), EXO_OK);
    EVENTUALLY(server.calls == 1);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}
