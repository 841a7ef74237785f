#include "support/far_members.h"

#include "actor/hooks.h"
#include "comm/far.h"
#include "support/check.h"

struct hearer {
    exo_comm *comm;
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
    exo_status st =
        exo_comm_far_deliver(((struct hearer *)self)->comm, &message, exo_call_node(call), err);
    exo_payload_release(&message);
    return st;
}

static const exo_lane_class lanes[] = {{.name = "mail", .capacity = 1 << 16}};
static const exo_method methods[] = {{.name = "collective", .run = hearer_collective}};
const exo_actor_class far_hearer_class = {.name = "hearer",
                                          .state_size = sizeof(struct hearer),
                                          .start = hearer_start,
                                          .lanes = lanes,
                                          .num_lanes = 1,
                                          .methods = methods,
                                          .num_methods = 1};

void
far_members_open(far_members *m, uint32_t count, const exo_comm_edge *edge)
{
    exo_ref refs[FAR_MEMBERS_MAX];
    *m = (far_members){.count = count};
    CHECK(count <= FAR_MEMBERS_MAX);
    CHECK(exo_runtime_open(&m->runtime, NULL, NULL) == EXO_OK);
    for (uint32_t r = 0; r < count; r++) {
        const exo_comm_far_opts opts = {.runtime = m->runtime,
                                        .size = count,
                                        .rank = r,
                                        .channel = 3,
                                        .method = "collective",
                                        .edge = edge};
        CHECK(exo_comm_far(&m->comms[r], &opts, NULL) == EXO_OK);
        const exo_spawn_opts spawn = {.args = exo_payload_borrow(&m->comms[r], sizeof(exo_comm *))};
        CHECK(exo_spawn(m->runtime, &far_hearer_class, &spawn, &refs[r], NULL) == EXO_OK);
    }
    for (uint32_t r = 0; r < count; r++)
        CHECK(exo_comm_far_connect(m->comms[r], refs, NULL) == EXO_OK);
}

void
far_members_close(far_members *m)
{
    for (uint32_t r = 0; r < m->count; r++)
        exo_comm_far_disconnect(m->comms[r]);
    CHECK(exo_runtime_close(&m->runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), NULL) ==
          EXO_OK);
    for (uint32_t r = 0; r < m->count; r++)
        exo_comm_drop(&m->comms[r]);
}
