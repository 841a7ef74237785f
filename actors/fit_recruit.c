/* The recruiter: see fit_recruit.h. Its lane blocks, and serves several requests at once. */
#include "actors/fit_recruit.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#define PATIENCE (2 * EXO_SECOND) /* the wait for the head, and for the start of a node */

struct recruiter {
    const char *space;
    const exo_resource *resources;
    size_t num_resources;
};

static exo_status
start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    (void)call;
    (void)err;
    memcpy(self, args->data, sizeof(struct recruiter));
    return EXO_OK;
}

/* args: the rank, and the arguments of the node's start. */
static exo_status
recruit(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
        exo_err *err)
{
    uint32_t rank = 0;
    char name[32];
    exo_ref node = {0};
    exo_runtime *runtime = exo_call_runtime(call);
    if (args->size < sizeof rank)
        return exo_fail(err, EXO_INVAL, "recruit: expected a rank");
    memcpy(&rank, args->data, sizeof rank);
    snprintf(name, sizeof name, "node_%u", rank);
    const struct recruiter *r = self;
    exo_spawn_opts opts = {.name = name,
                           .namespace_name = r->space,
                           .get_if_exists = true,
                           .resources = r->resources,
                           .num_resources = r->num_resources,
                           .placement = EXO_PLACE_SPREAD};
    exo_status st = exo_payload_copy(&opts.args, (const char *)args->data + sizeof rank,
                                     args->size - sizeof rank);
    if (st == EXO_OK)
        st = exo_spawn_class(runtime, "train_node", &opts,
                             exo_deadline(exo_runtime_clock(runtime), PATIENCE), &node, err);
    return st == EXO_OK ? exo_payload_copy(reply, &node, sizeof node) : st;
}

static const exo_lane_class lanes[] = {{.name = "recruit", .blocking = true, .max_concurrency = 4}};
static const exo_method methods[] = {{.name = "recruit", .run = recruit}};
static const exo_actor_class recruiter_class = {.name = "recruiter",
                                                .state_size = sizeof(struct recruiter),
                                                .start = start,
                                                .lanes = lanes,
                                                .num_lanes = 1,
                                                .methods = methods,
                                                .num_methods = 1,
                                                .callers = EXO_CALLERS_ADMINS};

exo_status
exo_recruiter_open(exo_runtime *runtime, const char *space, const exo_resource *resources,
                   size_t count, exo_ref *out, exo_err *err)
{
    const struct recruiter self = {.space = space, .resources = resources, .num_resources = count};
    exo_spawn_opts opts = {.args = exo_payload_borrow(&self, sizeof self)};
    return exo_spawn(runtime, &recruiter_class, &opts, out, err);
}

exo_status
exo_recruiter_ask(exo_runtime *runtime, exo_ref recruiter, uint32_t rank, exo_payload *begin,
                  exo_future **out, exo_err *err)
{
    char *bytes = exo_calloc(1, sizeof rank + begin->size);
    exo_payload args = {.data = bytes, .size = sizeof rank + begin->size, .release = exo_free};
    if (bytes) {
        memcpy(bytes, &rank, sizeof rank);
        memcpy(bytes + sizeof rank, begin->data, begin->size);
    }
    exo_payload_release(begin);
    return bytes ? exo_call(runtime, recruiter, "recruit", args, INT64_MAX, out, err)
                 : exo_fail(err, EXO_NOMEM, "no memory to look for a node");
}

bool
exo_recruiter_answer(exo_future *future, exo_ref *out, exo_err *err)
{
    const exo_payload *reply = NULL;
    bool good =
        exo_wait(future, INT64_MAX, &reply, err) == EXO_OK && reply && reply->size == sizeof *out;
    if (good)
        memcpy(out, reply->data, sizeof *out);
    return good;
}
