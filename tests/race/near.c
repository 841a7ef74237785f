/* Collectives through shared memory under the thread sanitizer: members of the engine `net` on
 * threads of this process, whose boards and buffers are mapped as between processes; with and
 * without a death or a cancelled request in the middle. Each thread owns its `struct member`. Read
 * next: runtime/comm/near.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <exogym/exogym.h>

#include "comm/far.h"
#include "store/region.h"
#include "support/check.h"

enum {
    MEMBERS = 3,
    COUNT = 40000,
    ROUNDS = 40
};

struct hearer {
    exo_comm *comm;
};

struct member {
    exo_comm *comm;
    uint32_t rank;
    bool cancels;
    exo_status last;
};

static exo_status
hearer_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    (void)call;
    (void)err;
    ((struct hearer *)self)->comm = *(exo_comm *const *)args->data;
    return EXO_OK;
}

static exo_status
hearer_collective(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
                  exo_err *err)
{
    exo_payload message = {0};
    (void)args;
    (void)reply;
    exo_call_take_args(call, &message);
    exo_status st = exo_comm_far_deliver(((struct hearer *)self)->comm, &message, 0, err);
    exo_payload_release(&message);
    return st;
}

static const exo_lane_class lanes[] = {{.name = "mail", .capacity = 1 << 16}};
static const exo_method methods[] = {{.name = "collective", .run = hearer_collective}};
static const exo_actor_class hearer_class = {.name = "hearer",
                                             .state_size = sizeof(struct hearer),
                                             .start = hearer_start,
                                             .lanes = lanes,
                                             .num_lanes = 1,
                                             .methods = methods,
                                             .num_methods = 1};

static exo_status
in_background(exo_group *group, exo_array data, bool cancel)
{
    exo_request *request = NULL;
    exo_status st = exo_comm_begin_all_reduce(&request, group, data, EXO_SUM, NULL);
    if (st == EXO_OK && cancel)
        exo_request_cancel(&request);
    return st == EXO_OK ? exo_request_wait(&request, NULL) : st;
}

static void *
member_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL, *some = NULL;
    exo_array array;
    const uint32_t ends[2] = {0, MEMBERS - 1};
    CHECK(exo_group_open(&group, m->comm, m->rank, NULL, NULL) == EXO_OK);
    exo_group_set_timeout(group, 120 * EXO_SECOND);
    if (m->rank == 0 || m->rank == MEMBERS - 1)
        CHECK(exo_group_among(&some, group, ends, 2, NULL) == EXO_OK);
    CHECK(exo_array_init(&array, exo_device_cpu(), EXO_F32, COUNT, NULL) == EXO_OK);
    for (int round = 0; round < ROUNDS && m->last == EXO_OK; round++) {
        exo_array data = exo_array_part(array, 0, round % 2 ? COUNT : 1000);
        exo_vec_fill(data, (float)(m->rank + 1));
        switch (round % 9) {
        case 0:
        case 1:
            m->last = exo_all_reduce(group, data, EXO_SUM, NULL);
            CHECK(m->last != EXO_OK || ((const float *)array.data)[999] == 1 + 2 + 3);
            break;
        case 2:
            m->last = exo_reduce_scatter(group, data, EXO_MEAN, NULL);
            break;
        case 3:
            m->last = exo_all_gather(group, data, NULL);
            break;
        case 4:
            m->last = exo_broadcast(group, data, 1, NULL);
            break;
        case 5:
            m->last = some ? exo_all_reduce(some, data, EXO_SUM, NULL) : EXO_OK;
            break;
        case 6:
            m->last = in_background(group, data, m->cancels && round > 20);
            break;
        case 7:
            m->last = exo_all_to_all(group, exo_array_part(data, 0, 999), NULL);
            break;
        case 8: /* the first and the last member */
            m->last = some ? exo_swap(group, data, MEMBERS - 1 - m->rank, NULL) : EXO_OK;
            CHECK(m->last != EXO_OK || !some ||
                  ((const float *)array.data)[0] == (float)(MEMBERS - m->rank));
            break;
        }
    }
    exo_array_release(&array);
    exo_group_close(&some);
    exo_group_close(&group);
    return NULL;
}

static void
run_members(bool dies, bool cancels, const char *way)
{
    exo_runtime *runtime = NULL;
    exo_ref refs[MEMBERS];
    pthread_t threads[MEMBERS];
    struct member members[MEMBERS];
    CHECK(exo_runtime_open(&runtime, NULL, NULL) == EXO_OK);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        members[r] = (struct member){.rank = r, .cancels = cancels && r == 1};
        const exo_comm_edge edge = {.way = way, .any_bits = true};
        const exo_comm_far_opts opts = {
            .runtime = runtime, .size = MEMBERS, .rank = r, .method = "collective", .edge = &edge};
        CHECK(exo_comm_far(&members[r].comm, &opts, NULL) == EXO_OK);
        const exo_spawn_opts spawn = {.args =
                                          exo_payload_borrow(&members[r].comm, sizeof(exo_comm *))};
        CHECK(exo_spawn(runtime, &hearer_class, &spawn, &refs[r], NULL) == EXO_OK);
    }
    for (uint32_t r = 0; r < MEMBERS; r++)
        CHECK(exo_comm_far_connect(members[r].comm, refs, NULL) == EXO_OK);
    for (uint32_t r = 0; r < MEMBERS; r++)
        CHECK(pthread_create(&threads[r], NULL, member_main, &members[r]) == 0);
    if (dies) {
        struct timespec moment = {.tv_nsec = 20000000};
        nanosleep(&moment, NULL);
        for (uint32_t r = 0; r < MEMBERS; r++)
            exo_comm_fail(members[r].comm, 1, "a test");
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        CHECK(pthread_join(threads[r], NULL) == 0);
        CHECK(members[r].last == EXO_OK || (dies && members[r].last == EXO_PEER_LOST) ||
              (cancels && members[r].last == EXO_CANCELLED));
    }
    for (uint32_t r = 0; r < MEMBERS; r++)
        exo_comm_far_disconnect(members[r].comm);
    CHECK(exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), NULL) ==
          EXO_OK);
    for (uint32_t r = 0; r < MEMBERS; r++)
        exo_comm_drop(&members[r].comm);
}

int
main(void)
{
    exo_region_enable();
    for (int w = 0; w < 3; w++) { /* a ring and halving go by messages */
        static const char *const ways[] = {NULL, "ring", "halving"};
        run_members(false, false, ways[w]);
        for (int i = 0; i < 5; i++) {
            run_members(true, false, ways[w]);
            run_members(false, true, ways[w]);
        }
    }
    puts("1 passed, 0 failed");
    return 0;
}
