/* The server of a communicator under the thread sanitizer: members on threads of the engine `local`,
 * and of `net`, whose server has a thread; with and without a death, an error of the class, or a
 * late opening. Each thread owns its `struct member`. Read next: runtime/comm/server.c. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "comm/edge.h"
#include "comm/server.h"
#include "support/check.h"
#include "support/far_members.h"

enum {
    MEMBERS = 4,
    COUNT = 1000,
    ROUNDS = 60
};

/* Adds up what it is sent, and answers at once or a little later; with `fails`, that round fails. */
struct sum {
    exo_array total;
    uint64_t messages;
    bool owed[MEMBERS];
};

static exo_status
sum_open(void **state, const void *opts, uint32_t num_members, exo_err *err)
{
    struct sum *s = exo_calloc(1, sizeof *s);
    (void)opts;
    CHECK(s && num_members == MEMBERS);
    *state = s;
    return exo_array_init(&s->total, exo_device_cpu(), EXO_F32, COUNT, err);
}

static exo_status
answer(struct sum *s, exo_server *server, uint32_t to, exo_err *err)
{
    const exo_server_message message = {.numbers = {s->messages}, .data = s->total};
    return exo_server_send(server, to, &message, err);
}

static exo_status
sum_handle(void *state, exo_server *server, uint32_t from, const exo_server_message *message,
           exo_time now, exo_err *err)
{
    struct sum *s = state;
    s->messages++;
    exo_vec_add(s->total, s->total, message->data);
    if (message->numbers[0] == 1)
        return exo_fail(err, EXO_FAILED, "the sum overflows");
    if (s->messages % 3)
        return answer(s, server, from, err);
    s->owed[from] = true;
    return exo_server_wake(server, now + EXO_MS / 2, err);
}

static exo_status
sum_wake(void *state, exo_server *server, exo_time now, exo_err *err)
{
    struct sum *s = state;
    exo_status st = EXO_OK;
    (void)now;
    for (uint32_t r = 0; st == EXO_OK && r < MEMBERS; r++) {
        if (s->owed[r])
            st = answer(s, server, r, err);
        s->owed[r] = false;
    }
    return st;
}

static void
sum_close(void *state)
{
    struct sum *s = state;
    exo_array_release(&s->total);
    exo_free(s);
}

/* No message is half handled. */
static void
sum_list(void *state, struct exo_state *list)
{
    const struct sum *s = state;
    const float *total = s->total.data;
    (void)list;
    CHECK(total[0] == (float)s->messages && total[COUNT - 1] == total[0]);
}

static const exo_server_class sum_class = {.name = "sum",
                                           .open = sum_open,
                                           .handle = sum_handle,
                                           .wake = sum_wake,
                                           .close = sum_close,
                                           .list = sum_list};

struct member {
    exo_comm *comm;
    uint32_t rank;
    bool fails; /* makes the server fail in the middle */
    exo_status last;
    exo_err err;
    exo_server_message got; /* the last answer */
    float sum;              /* its first element */
    uint64_t bytes;
};

static exo_status
talk(struct member *m, exo_group *group, exo_array array, int round)
{
    exo_server_message message = {.data = array};
    bool received = false;
    message.numbers[0] = m->fails && round == ROUNDS / 2;
    if (m->rank == 0 && round % 4 == 0) { /* as for a checkpoint, while others send */
        CHECK(exo_server_pause(m->comm->server, NULL));
        exo_server_resume(m->comm->server);
    }
    exo_status st = exo_group_send(group, &message, &m->err);
    if (st == EXO_OK && round % 5 == 0)
        st = exo_group_receive(group, false, &m->got, &received, &m->err);
    if (st == EXO_OK && !received)
        st = exo_group_receive(group, true, &m->got, &received, &m->err);
    if (st != EXO_OK)
        return st;
    m->sum = *(const float *)m->got.data.data;
    CHECK(m->sum == (float)m->got.numbers[0]);
    CHECK(((const float *)m->got.data.data)[COUNT - 1] == m->sum);
    exo_array_release(&m->got.data);
    return EXO_OK;
}

static void *
member_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL;
    exo_array array;
    void *state = NULL;
    CHECK(exo_group_open(&group, m->comm, m->rank, NULL, NULL) == EXO_OK);
    exo_group_set_timeout(group, 120 * EXO_SECOND);
    CHECK(exo_array_init(&array, exo_device_cpu(), EXO_F32, COUNT, NULL) == EXO_OK);
    exo_vec_fill(array, 1);
    m->last = exo_group_serve(group, &sum_class, NULL, &state, &m->err);
    for (int round = 0; round < ROUNDS && m->last == EXO_OK; round++)
        m->last = talk(m, group, array, round);
    m->bytes = exo_group_traffic(group).payload_bytes;
    exo_array_release(&array);
    exo_group_close(&group);
    return NULL;
}

/* What ends a run early. */
enum end {
    NOTHING,
    DEATH,
    FAILURE
};

static void
run_members(exo_comm *const *comms, enum end end)
{
    pthread_t threads[MEMBERS];
    struct member members[MEMBERS];
    float most = 0;
    for (uint32_t r = 0; r < MEMBERS; r++) {
        members[r] =
            (struct member){.comm = comms[r], .rank = r, .fails = end == FAILURE && r == 2};
        CHECK(pthread_create(&threads[r], NULL, member_main, &members[r]) == 0);
    }
    for (uint32_t r = 0; end == DEATH && r < MEMBERS; r++)
        exo_comm_fail(comms[r], 1, "a test");
    for (uint32_t r = 0; r < MEMBERS; r++) {
        const struct member *m = &members[r];
        CHECK(pthread_join(threads[r], NULL) == 0);
        CHECK(m->last == EXO_OK || (end == DEATH && m->last == EXO_PEER_LOST) ||
              (end == FAILURE && m->last == EXO_FAILED));
        CHECK(m->last != EXO_FAILED || strcmp(m->err.text, "the sum overflows") == 0);
        CHECK(end != NOTHING || m->bytes == 2 * ROUNDS * COUNT * sizeof(float));
        most = m->sum > most ? m->sum : most;
    }
    CHECK(end != NOTHING || most == MEMBERS * ROUNDS);
    CHECK(end != FAILURE || members[2].last == EXO_FAILED);
}

static void
run_threads(enum end end)
{
    exo_comm *comm = NULL, *all[MEMBERS];
    const exo_comm_edge edge = {0};
    CHECK(exo_comm_local_on(&comm, MEMBERS, exo_clock_real(), &edge, NULL) == EXO_OK);
    for (uint32_t r = 0; r < MEMBERS; r++)
        all[r] = comm;
    run_members(all, end);
    exo_comm_drop(&comm);
}

static void
run_far(enum end end)
{
    far_members members;
    far_members_open(&members, MEMBERS, NULL);
    run_members(members.comms, end);
    far_members_close(&members);
}

int
main(void)
{
    for (int i = 0; i < 5; i++) {
        run_threads((enum end)(i % 3));
        run_far((enum end)(i % 3));
    }
    puts("1 passed, 0 failed");
    return 0;
}
