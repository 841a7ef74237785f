/* The server of a communicator: order and times of messages on the virtual clock, and every way in
 * which a wait for it ends. The server of these tests adds up what it is sent, and answers with the
 * sum. Each test owns its communicator; each member's thread owns its `struct member`. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/server.h>

#include "comm/edge.h"
#include "support/eventually.h"

enum {
    MAX_MEMBERS = 8
};

/* Words of messages. */
enum {
    ANSWER = 0, /* 1: answer at once, 2: at the next wake-up, 3: fail, 0: do not answer */
    DELAY = 1,  /* of that wake-up */
    FROM = 1,   /* of an answer: whose message was the last */
    COUNT = 2,  /* of an answer: messages up to now */
};

struct sum {
    float value;
    uint64_t count;
    uint32_t last, waits_for;
    bool closed;
};

static struct sum *the_sum; /* of the test's server; one test runs in a process */

static exo_status
sum_open(void **state, const void *opts, uint32_t num_members, exo_err *err)
{
    (void)num_members;
    if (!opts)
        return exo_fail(err, EXO_INVAL, "no options");
    *state = the_sum = exo_calloc(1, sizeof *the_sum);
    the_sum->value = *(const float *)opts;
    return EXO_OK;
}

static exo_status
answer(struct sum *s, exo_server *server, uint32_t to, exo_err *err)
{
    const exo_server_message message = {.numbers = {[FROM] = s->last, [COUNT] = s->count},
                                        .data = exo_host_array(EXO_F32, &s->value, 1)};
    return exo_server_send(server, to, &message, err);
}

static exo_status
sum_handle(void *state, exo_server *server, uint32_t from, const exo_server_message *message,
           exo_time now, exo_err *err)
{
    struct sum *s = state;
    s->count++;
    s->last = from;
    if (message->data.count > 0)
        s->value += *(const float *)message->data.data;
    switch (message->numbers[ANSWER]) {
    case 1:
        return answer(s, server, from, err);
    case 2:
        s->waits_for = from;
        return exo_server_wake(server, now + (exo_time)message->numbers[DELAY], err);
    case 3:
        return exo_fail(err, EXO_FAILED, "the sum overflows");
    default:
        return EXO_OK;
    }
}

static exo_status
sum_wake(void *state, exo_server *server, exo_time now, exo_err *err)
{
    struct sum *s = state;
    (void)now;
    return answer(s, server, s->waits_for, err);
}

static void
sum_close(void *state)
{
    struct sum *s = state;
    exo_free(s);
    the_sum = NULL;
}

static const exo_server_class sum_class = {.name = "sum",
                                           .open = sum_open,
                                           .handle = sum_handle,
                                           .wake = sum_wake,
                                           .close = sum_close},
                              other_class = {.name = "other",
                                             .open = sum_open,
                                             .handle = sum_handle,
                                             .close = sum_close};

/* --- Members ---------------------------------------------------------------------------------- */

struct member {
    exo_group *group;
    exo_sim_lane *lane;
    exo_time at;     /* it sends then, on the virtual clock */
    uint64_t answer; /* of its message */
    exo_time delay;
    float value;
    int rounds;
    exo_time received; /* when it had the last answer */
    exo_server_message got;
    float sum;
    exo_status status;
    exo_err err;
};

struct team {
    exo_comm *comm;
    exo_sim *sim;
    exo_links *links;
    uint32_t size;
    struct member m[MAX_MEMBERS];
    pthread_t threads[MAX_MEMBERS];
};

/* Bandwidth of 8 Mbit/s: a byte takes a microsecond. */
static void
team_init(struct team *t, uint32_t size, bool virtual_clock)
{
    static const uint32_t hosts[MAX_MEMBERS] = {0, 1, 2, 3, 4, 5, 6, 7};
    const exo_link_spec link = {
        .bandwidth = 8e6, .latency = 10 * EXO_MS, .transport = EXO_LINK_IDEAL};
    exo_host_spec specs[MAX_MEMBERS];
    exo_err err = {0};
    float first = 100;
    void *state = NULL;
    *t = (struct team){.size = size};
    for (int i = 0; i < MAX_MEMBERS; i++)
        specs[i] = (exo_host_spec){.up = 1e18, .down = 1e18};
    if (virtual_clock) {
        cr_assert_eq(exo_sim_new(&t->sim, 0, &err), EXO_OK);
        cr_assert_eq(exo_links_new(&t->links, specs, MAX_MEMBERS, &link, 1, &err), EXO_OK, "%s",
                     err.text);
    }
    const exo_comm_edge edge = {.links = t->links, .hosts = hosts, .sim = t->sim};
    const exo_clock *clock = t->sim ? exo_sim_clock(t->sim) : exo_clock_real();
    cr_assert_eq(exo_comm_local_on(&t->comm, size, clock, &edge, &err), EXO_OK, "%s", err.text);
    for (uint32_t r = 0; r < size; r++) {
        struct member *m = &t->m[r];
        m->rounds = 1;
        m->value = (float)(1 << r);
        m->answer = 1;
        if (t->sim)
            m->lane = exo_sim_lane_new(t->sim, 1);
        cr_assert_eq(exo_group_open(&m->group, t->comm, r, NULL, &err), EXO_OK);
        cr_assert_eq(exo_group_serve(m->group, &sum_class, &first, &state, &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(state, the_sum);
    }
}

static void
team_release(struct team *t)
{
    for (uint32_t r = 0; r < t->size; r++)
        exo_group_close(&t->m[r].group);
    cr_assert_not_null(the_sum);
    exo_comm_drop(&t->comm);
    cr_assert_null(the_sum, "the server ends with its communicator");
    exo_links_free(&t->links);
    exo_sim_free(&t->sim);
}

static void
talk(struct member *m)
{
    bool received = false;
    for (int i = 0; i < m->rounds && m->status == EXO_OK; i++) {
        const exo_server_message message = {
            .numbers = {[ANSWER] = m->answer, [DELAY] = (uint64_t)m->delay},
            .data = exo_host_array(EXO_F32, &m->value, 1)};
        m->status = exo_group_send(m->group, &message, &m->err);
        if (m->status == EXO_OK)
            m->status = exo_group_receive(m->group, true, &m->got, &received, &m->err);
        if (m->status != EXO_OK)
            return;
        m->sum = *(const float *)m->got.data.data;
        exo_array_release(&m->got.data);
    }
    m->received = exo_group_now(m->group);
}

static void *
member_main(void *argument)
{
    struct member *m = argument;
    if (m->lane) {
        exo_sim_enter(m->lane, m->at);
        exo_sim_sync(m->lane);
    }
    talk(m);
    if (m->lane)
        exo_sim_leave(m->lane);
    return NULL;
}

static void
team_run(struct team *t)
{
    if (t->sim)
        exo_sim_expect(t->sim, t->size);
    for (uint32_t r = 0; r < t->size; r++)
        cr_assert_eq(pthread_create(&t->threads[r], NULL, member_main, &t->m[r]), 0);
    for (uint32_t r = 0; r < t->size; r++)
        pthread_join(t->threads[r], NULL);
}

/* --- Order and times -------------------------------------------------------------------------- */

/* A message takes its 4 bytes, the headers of 64 and 68, and the latency; from member 0 no time. */
Test(server, messages_are_handled_in_the_order_of_arrival_and_answered_in_time)
{
    const exo_time way = 136 * EXO_US + 10 * EXO_MS;
    struct team t;
    team_init(&t, 4, true);
    t.m[0].at = 50 * EXO_MS;
    t.m[1].at = 30 * EXO_MS;
    t.m[2].at = 45 * EXO_MS; /* arrives after the message of member 0 */
    t.m[3].at = 10 * EXO_MS;
    team_run(&t);
    for (uint32_t r = 0; r < 4; r++)
        cr_assert_eq(t.m[r].status, EXO_OK, "%s", t.m[r].err.text);
    cr_expect_eq(t.m[3].sum, 108.0f);
    cr_expect_eq(t.m[1].sum, 110.0f);
    cr_expect_eq(t.m[0].sum, 111.0f);
    cr_expect_eq(t.m[2].sum, 115.0f);
    cr_expect_eq(t.m[2].got.numbers[COUNT], 4);
    cr_expect_eq(t.m[2].got.numbers[FROM], 2);
    cr_expect_eq(t.m[3].received, 10 * EXO_MS + 2 * way, "%lld", (long long)t.m[3].received);
    cr_expect_eq(t.m[1].received, 30 * EXO_MS + 2 * way, "%lld", (long long)t.m[1].received);
    cr_expect_eq(t.m[0].received, 50 * EXO_MS, "%lld", (long long)t.m[0].received);
    cr_expect_eq(t.m[2].received, 45 * EXO_MS + 2 * way, "%lld", (long long)t.m[2].received);
    const exo_traffic traffic = exo_group_traffic(t.m[3].group);
    cr_expect_eq(traffic.messages, 2);
    cr_expect_eq(traffic.payload_bytes, 8);
    cr_expect_eq(traffic.wire_bytes, 2 * 136);
    cr_expect_eq(traffic.recv_blocked, 2 * way);
    team_release(&t);
}

Test(server, a_wake_up_comes_at_its_time)
{
    struct team t;
    team_init(&t, 2, true);
    t.m[1].answer = 2;
    t.m[1].delay = 7 * EXO_MS;
    t.m[0].at = 12 * EXO_MS; /* handled before the wake-up, which is at 17.136 ms */
    team_run(&t);
    cr_expect_eq(t.m[1].sum, 103.0f);
    cr_expect_eq(t.m[1].received, 2 * (136 * EXO_US + 10 * EXO_MS) + 7 * EXO_MS, "%lld",
                 (long long)t.m[1].received);
    team_release(&t);
}

/* Every member's answers have its own messages; nothing is lost. */
Test(server, threads_that_talk_at_once_lose_nothing)
{
    struct team t;
    team_init(&t, MAX_MEMBERS, false);
    for (uint32_t r = 0; r < t.size; r++) {
        t.m[r].rounds = 200;
        t.m[r].value = 1;
    }
    team_run(&t);
    for (uint32_t r = 0; r < t.size; r++) {
        cr_assert_eq(t.m[r].status, EXO_OK, "%s", t.m[r].err.text);
        cr_expect_eq(t.m[r].got.numbers[FROM], r);
    }
    cr_expect_eq(the_sum->value, 100.0f + 200 * MAX_MEMBERS);
    cr_expect_eq(the_sum->count, 200 * MAX_MEMBERS);
    team_release(&t);
}

Test(server, who_does_not_wait_goes_on_without_an_answer)
{
    struct team t;
    exo_server_message got;
    exo_err err = {0};
    bool received = true;
    team_init(&t, 2, false);
    cr_expect_eq(exo_group_receive(t.m[0].group, false, &got, &received, &err), EXO_OK);
    cr_expect(!received);
    const exo_server_message ask = {.numbers = {[ANSWER] = 1}};
    cr_expect_eq(exo_group_send(t.m[0].group, &ask, &err), EXO_OK);
    cr_expect_eq(exo_group_receive(t.m[0].group, false, &got, &received, &err), EXO_OK);
    cr_expect(received && got.numbers[COUNT] == 1);
    exo_array_release(&got.data);
    cr_expect_eq(exo_group_send(t.m[1].group, &ask, &err), EXO_OK); /* its answer is never taken */
    team_release(&t);
}

/* --- Ends of a wait --------------------------------------------------------------------------- */

Test(server, a_server_that_does_not_answer_ends_the_wait_at_its_deadline)
{
    struct team t;
    team_init(&t, 2, true);
    t.m[1].answer = 0;
    exo_group_set_timeout(t.m[1].group, 3 * EXO_SECOND);
    team_run(&t);
    cr_expect_eq(t.m[0].status, EXO_OK, "it had its answer before");
    cr_expect_eq(t.m[1].status, EXO_TIMEOUT);
    cr_expect_str_eq(t.m[1].err.text,
                     "deadline passed after 3.0 s while rank 1 waited for the server 'sum'");
    team_release(&t);
}

Test(server, an_error_of_the_class_reaches_all_members)
{
    struct team t;
    team_init(&t, 3, true);
    t.m[0].answer = t.m[1].answer = 0;
    t.m[2].answer = 3;
    t.m[2].at = EXO_SECOND;
    team_run(&t);
    for (uint32_t r = 0; r < 3; r++) {
        cr_expect_eq(t.m[r].status, EXO_FAILED, "%u: %d", r, t.m[r].status);
        cr_expect_str_eq(t.m[r].err.text, "the sum overflows");
    }
    team_release(&t);
}

Test(server, a_death_ends_every_wait)
{
    struct team t;
    team_init(&t, 2, false);
    t.m[1].answer = 0;
    exo_group_set_timeout(t.m[1].group, 600 * EXO_SECOND);
    cr_assert_eq(pthread_create(&t.threads[1], NULL, member_main, &t.m[1]), 0);
    EVENTUALLY(exo_group_stats(t.m[1].group).calls == 1);
    exo_comm_fail(t.comm, 0, "killed");
    pthread_join(t.threads[1], NULL);
    cr_expect_eq(t.m[1].status, EXO_PEER_LOST);
    cr_expect_str_eq(t.m[1].err.text, "rank 0 died: killed");
    team_release(&t);
}

/* --- Refusals --------------------------------------------------------------------------------- */

static void
expect_refusal(exo_group *group, const exo_server_class *class, const void *opts, exo_status status,
               const char *text)
{
    void *state = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_group_serve(group, class, opts, &state, &err), status, "%s", text);
    cr_expect(strstr(err.text, text), "'%s' instead of '%s'", err.text, text);
}

Test(server, what_cannot_be_is_refused)
{
    const exo_comm_edge coded = {.codec = "bf16"};
    float first = 1;
    int32_t number = 1;
    exo_comm *comm = NULL;
    exo_group *group = NULL;
    exo_err err = {0};
    const exo_server_message integers = {.data = exo_host_array(EXO_I32, &number, 1)};
    cr_assert_eq(exo_comm_local_on(&comm, 1, exo_clock_real(), &coded, &err), EXO_OK);
    cr_assert_eq(exo_group_open(&group, comm, 0, NULL, &err), EXO_OK);
    expect_refusal(group, &sum_class, &first, EXO_UNSUPPORTED, "the edge's codec: remove it");
    exo_group_close(&group);
    exo_comm_drop(&comm);

    cr_assert_eq(exo_comm_local(&comm, 1, exo_clock_real(), &err), EXO_OK);
    cr_assert_eq(exo_group_open(&group, comm, 0, NULL, &err), EXO_OK);
    cr_expect_eq(exo_group_send(group, &integers, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "open it with exo_group_serve"), "%s", err.text);
    expect_refusal(group, &sum_class, NULL, EXO_INVAL, "no options");
    void *state = NULL;
    cr_assert_eq(exo_group_serve(group, &sum_class, &first, &state, &err), EXO_OK);
    expect_refusal(group, &other_class, &first, EXO_EXISTS,
                   "the communicator has the server 'sum': it cannot have 'other'");
    cr_expect_eq(exo_group_send(group, &integers, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "a server's messages carry fp32, not int32");
    exo_group_close(&group);
    exo_comm_drop(&comm);
}
