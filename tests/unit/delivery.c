/* Large messages whose loss is reported (actor/delivery.h): by a lack of the receiver's process only,
 * with its reason and the message's tag, and to an owner that is still there.
 *
 * Each test owns its runtime; `reports` is atomic, since any thread reports. */
#include <criterion/criterion.h>

#include <stdatomic.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "actor/delivery.h"
#include "support/eventually.h"

static atomic_uint reports, calls;
static atomic_ullong last_tag;

static void
lost(void *context, uint64_t tag, const exo_err *reason)
{
    cr_expect_eq(context, &reports);
    cr_expect_eq(reason->code, EXO_FULL);
    cr_expect_str_eq(reason->text, "no room");
    atomic_store(&last_tag, tag);
    atomic_fetch_add(&reports, 1);
}

/* Ends with the status that the message begins with. */
static exo_status
take(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    exo_status st;
    (void)call, (void)self, (void)reply;
    memcpy(&st, args->data, sizeof st);
    atomic_fetch_add(&calls, 1);
    return st == EXO_OK ? st : exo_fail(err, st, "no room");
}

static const exo_lane_class lanes[] = {{.name = "main"}};
static const exo_method methods[] = {{.name = "take", .run = take}};
static const exo_actor_class taker = {.name = "taker",
                                      .state_size = 1,
                                      .lanes = lanes,
                                      .num_lanes = 1,
                                      .methods = methods,
                                      .num_methods = 1};

static void
send_one(exo_delivery *d, exo_runtime *runtime, exo_ref to, exo_status status, size_t size,
         uint64_t tag)
{
    unsigned before = atomic_load(&calls);
    char *data = exo_calloc(1, size);
    cr_assert_not_null(data);
    memcpy(data, &status, sizeof status);
    const exo_payload args = {.data = data, .size = size, .release = exo_free};
    cr_assert_eq(exo_delivery_send(d, runtime, to, "take", args, tag, NULL), EXO_OK);
    EVENTUALLY(atomic_load(&calls) > before);
}

Test(delivery, a_lack_of_the_receiver_is_reported)
{
    exo_runtime *runtime = NULL;
    exo_ref to;
    exo_err err = {0};
    cr_assert_eq(exo_runtime_open(&runtime, NULL, NULL), EXO_OK);
    cr_assert_eq(exo_spawn(runtime, &taker, &(exo_spawn_opts){0}, &to, NULL), EXO_OK);
    exo_delivery *d = exo_delivery_open(lost, &reports);
    cr_assert_not_null(d);
    send_one(d, runtime, to, EXO_OK, EXO_DELIVERY_LARGE, 1);
    send_one(d, runtime, to, EXO_INVAL, EXO_DELIVERY_LARGE, 2); /* the actor refuses it */
    send_one(d, runtime, to, EXO_FULL, EXO_DELIVERY_LARGE - 1, 3);
    send_one(d, runtime, to, EXO_FULL, EXO_DELIVERY_LARGE, 4);
    EVENTUALLY(atomic_load(&reports) == 1);
    cr_expect_eq(atomic_load(&last_tag), 4);
    exo_delivery_close(d);
    cr_assert_eq(exo_kill(runtime, to, "the test", NULL), EXO_OK);
    d = exo_delivery_open(lost, &reports);
    cr_expect_eq(exo_delivery_send(d, runtime, to, "take",
                                   exo_payload_borrow(&reports, sizeof reports), 5, &err),
                 EXO_PEER_LOST);
    exo_delivery_close(d);
    cr_assert_eq(exo_runtime_close(&runtime, INT64_MAX, NULL), EXO_OK);
    cr_expect_eq(atomic_load(&reports), 1);
}

/* The replies come after the owner has closed. */
Test(delivery, nothing_is_reported_to_an_owner_that_has_closed)
{
    exo_runtime *runtime = NULL;
    exo_ref to;
    cr_assert_eq(exo_runtime_open(&runtime, NULL, NULL), EXO_OK);
    cr_assert_eq(exo_spawn(runtime, &taker, &(exo_spawn_opts){0}, &to, NULL), EXO_OK);
    for (unsigned i = 0; i < 200; i++) {
        exo_delivery *d = exo_delivery_open(lost, &reports);
        const exo_status full = EXO_FULL;
        char *data = exo_calloc(1, EXO_DELIVERY_LARGE);
        cr_assert(d && data);
        memcpy(data, &full, sizeof full);
        const exo_payload args = {.data = data, .size = EXO_DELIVERY_LARGE, .release = exo_free};
        cr_assert_eq(exo_delivery_send(d, runtime, to, "take", args, i, NULL), EXO_OK);
        exo_delivery_close(d);
        unsigned then = atomic_load(&reports);
        EVENTUALLY(atomic_load(&calls) == i + 1);
        cr_expect_eq(atomic_load(&reports), then);
    }
    cr_assert_eq(exo_runtime_close(&runtime, INT64_MAX, NULL), EXO_OK);
}
