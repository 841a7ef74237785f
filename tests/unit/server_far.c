/* A server whose members are in processes of their own, over emulated links on the real clock. Read next:
 * runtime/comm/far_messages.c. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>

#include <exogym/server.h>

#include "support/far_members.h"

enum {
    MEMBERS = 3
};

static atomic_int handled; /* messages; one test runs in a process */

static exo_status
failing_open(void **state, const void *opts, uint32_t num_members, exo_err *err)
{
    (void)opts;
    (void)num_members;
    (void)err;
    *state = &handled;
    return EXO_OK;
}

static exo_status
failing_handle(void *state, exo_server *server, uint32_t from, const exo_server_message *message,
               exo_time now, exo_err *err)
{
    (void)state;
    (void)server;
    (void)from;
    (void)message;
    (void)now;
    atomic_fetch_add(&handled, 1);
    return exo_fail(err, EXO_FAILED, "on purpose");
}

static void
failing_close(void *state)
{
    (void)state;
}

static const exo_server_class failing = {
    .name = "failing", .open = failing_open, .handle = failing_handle, .close = failing_close};

struct member {
    exo_group *group;
    exo_status sent, received;
    exo_err err;
};

static void *
talk(void *argument)
{
    struct member *m = argument;
    exo_server_message got;
    bool received = false;
    m->received = exo_group_receive(m->group, true, &got, &received, &m->err);
    return NULL;
}

/* The members wait for an answer of the server of member 0. Member 1 has sent it a message. */
static void
ask(const exo_link_spec *link, exo_time timeout, struct member m[MEMBERS])
{
    static const uint32_t hosts[MEMBERS] = {0, 1, 2};
    exo_host_spec specs[MEMBERS];
    exo_links *links = NULL;
    far_members members;
    pthread_t threads[MEMBERS];
    void *state = NULL;
    exo_err err = {0};
    for (int r = 0; r < MEMBERS; r++)
        specs[r] = (exo_host_spec){.up = 1e9, .down = 1e9};
    cr_assert_eq(exo_links_new(&links, specs, MEMBERS, link, 1, &err), EXO_OK, "%s", err.text);
    const exo_comm_edge edge = {
        .name = "edge", .links = links, .hosts = hosts, .origin = exo_now(exo_clock_real())};
    far_members_open(&members, MEMBERS, &edge);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        m[r] = (struct member){0};
        cr_assert_eq(exo_group_open(&m[r].group, members.comms[r], r, NULL, &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(exo_group_serve(m[r].group, &failing, NULL, &state, &err), EXO_OK, "%s",
                     err.text);
    }
    m[1].sent = exo_group_send(m[1].group, &(exo_server_message){0}, &m[1].err);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        exo_group_set_timeout(m[r].group, timeout);
        cr_assert_eq(pthread_create(&threads[r], NULL, talk, &m[r]), 0);
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        pthread_join(threads[r], NULL);
        exo_group_close(&m[r].group);
    }
    far_members_close(&members);
    exo_links_free(&links);
}

/* Its sender would wait for ever otherwise: the message has no deadline. */
Test(server_far, a_message_in_an_outage_without_an_end_is_lost, .timeout = 60)
{
    const exo_link_change change = {.factor = 0};
    const exo_link_spec link = {
        .bandwidth = 1e9, .transport = EXO_LINK_IDEAL, .changes = &change, .num_changes = 1};
    struct member m[MEMBERS];
    ask(&link, 200 * EXO_MS, m);
    cr_expect_eq(m[1].sent, EXO_OK, "%s", m[1].err.text);
    for (int r = 0; r < MEMBERS; r++)
        cr_expect_eq(m[r].received, EXO_TIMEOUT, "%d: %s", r, m[r].err.text);
    cr_expect_eq(handled, 0);
}

/* The messages that tell of it pass the links at once, as the communicator is broken by then. */
Test(server_far, an_error_of_the_class_reaches_the_members_over_links, .timeout = 60)
{
    const exo_link_spec link = {.bandwidth = 1e9, .latency = EXO_MS, .transport = EXO_LINK_IDEAL};
    struct member m[MEMBERS];
    ask(&link, 600 * EXO_SECOND, m);
    cr_expect_eq(handled, 1);
    for (int r = 0; r < MEMBERS; r++) {
        cr_expect_eq(m[r].received, EXO_FAILED, "%d", r);
        cr_expect_str_eq(m[r].err.text, "on purpose");
    }
}
