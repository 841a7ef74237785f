/* A first actor: it has a name and state that only messages reach. The caller uses a future and a
 * deadline, receives a method's error, and prints the cause of the actor's death. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

/* --- The actor, which counts visits ----------------------------------------------------------- */

struct visits {
    uint64_t count; /* needs no lock: the actor's lane runs one message at a time */
};

static exo_status
greet(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    struct visits *v = self;
    if (args->size == 0)
        return exo_fail(err, EXO_INVAL, "who is there?");
    v->count++;
    printf("hello %s\n", (const char *)args->data);
    return exo_payload_copy(reply, &v->count, sizeof v->count);
}

static const exo_method methods[] = {{.name = "greet", .run = greet}};
static const exo_actor_class door = {
    .name = "door", .state_size = sizeof(struct visits), .methods = methods, .num_methods = 1};

/* --- The caller ------------------------------------------------------------------------------- */

static exo_status
visit(exo_runtime *runtime, const char *who, exo_err *err)
{
    exo_ref ref;
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_time deadline = exo_deadline(exo_runtime_clock(runtime), EXO_SECOND);
    exo_status st = exo_get_actor(runtime, NULL, "front", &ref, err);
    if (st == EXO_OK)
        st = exo_call(runtime, ref, "greet", exo_payload_borrow(who, who ? strlen(who) + 1 : 0),
                      deadline, &future, err);
    if (st == EXO_OK)
        st = exo_wait(future, deadline, &reply, err);
    if (st == EXO_OK)
        printf("visit number %" PRIu64 "\n", *(const uint64_t *)reply->data);
    exo_future_drop(&future);
    return st;
}

int
main(void)
{
    exo_runtime *runtime = NULL;
    exo_ref ref;
    exo_err err = {0};
    exo_status st = exo_runtime_open(&runtime, NULL, &err);
    if (st == EXO_OK)
        st = exo_spawn(runtime, &door, &(exo_spawn_opts){.name = "front"}, &ref, &err);
    if (st == EXO_OK)
        st = visit(runtime, "Ada", &err);
    if (st == EXO_OK)
        st = visit(runtime, "Grace", &err);
    if (st != EXO_OK) {
        fprintf(stderr, "hello: %s\n", err.text);
        return EXIT_FAILURE;
    }
    visit(runtime, NULL, &err);
    printf("a method's error is the caller's: %s\n", err.text);

    exo_kill(runtime, ref, "somebody slammed it", &err);
    visit(runtime, "Edsger", &err);
    printf("and a death has a cause: %s\n", err.text);
    return exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), EXO_SECOND), &err) == EXO_OK
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}
