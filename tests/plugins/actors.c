/* A plugin with the actor class `counter`, for use from the command line: it counts, echoes, fails,
 * dies and waits. Numbers are passed as text. A counter's state belongs to its lane "main". Read
 * next: include/exogym/plugin.h, actor.h. */
#include <exogym/actor.h>
#include <exogym/object.h>
#include <exogym/plugin.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct counter {
    long long count;
};

static exo_status
start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    struct counter *c = self;
    char text[32];
    (void)call;
    snprintf(text, sizeof text, "%.*s", (int)args->size,
             args->data ? (const char *)args->data : "");
    if (strcmp(text, "fail") == 0)
        return exo_fail(err, EXO_FAILED, "told not to start");
    c->count = atoll(text);
    printf("counter begins at %lld\n", c->count);
    return EXO_OK;
}

/* Holds a shared object of the given number of bytes until the process ends. */
static exo_status
hold(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    char text[32];
    exo_object *object = NULL;
    (void)call;
    (void)self;
    (void)reply;
    snprintf(text, sizeof text, "%.*s", (int)args->size,
             args->data ? (const char *)args->data : "");
    exo_status st = exo_object_new(&object, strtoull(text, NULL, 10), err);
    if (st == EXO_OK)
        exo_object_seal(object);
    return st;
}

static exo_status
add(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct counter *c = self;
    char text[32];
    (void)call;
    (void)err;
    snprintf(text, sizeof text, "%.*s", (int)args->size,
             args->data ? (const char *)args->data : "");
    c->count += text[0] ? atoll(text) : 1;
    int length = snprintf(text, sizeof text, "%lld", c->count);
    return exo_payload_copy(reply, text, (size_t)length);
}

static exo_status
echo(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)err;
    return exo_payload_copy(reply, args->data, args->size);
}

static exo_status
say(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)reply;
    (void)err;
    printf("%.*s\n", (int)args->size, args->data ? (const char *)args->data : "");
    return EXO_OK;
}

static exo_status
fail(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)reply;
    return args->size > 0
               ? exo_fail(err, EXO_INVAL, "%.*s", (int)args->size, (const char *)args->data)
               : exo_fail(err, EXO_INVAL, "this method fails");
}

static exo_status
die(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    char cause[128];
    (void)self;
    (void)reply;
    (void)err;
    snprintf(cause, sizeof cause, "%.*s", (int)args->size,
             args->data ? (const char *)args->data : "");
    exo_call_die(call, cause[0] ? cause : "it was told to die");
    return EXO_OK;
}

/* Ends the process by the signal whose number is given, or by exit status 3 without an argument. */
static exo_status
crash(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    char text[32];
    (void)call;
    (void)self;
    (void)reply;
    (void)err;
    snprintf(text, sizeof text, "%.*s", (int)args->size,
             args->data ? (const char *)args->data : "");
    if (!text[0])
        _exit(3);
    raise(atoi(text));
    return EXO_OK;
}

/* Waits until a file of the given name exists. */
static exo_status
await(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    char path[4096];
    (void)self;
    snprintf(path, sizeof path, "%.*s", (int)args->size,
             args->data ? (const char *)args->data : "");
    while (access(path, F_OK) != 0) {
        if (exo_call_cancelled(call))
            return exo_fail(err, EXO_CANCELLED, "told to stop");
        usleep(1000);
    }
    return exo_payload_copy(reply, "there", 5);
}

/* Runs until it is cancelled; with an argument, for ever. */
static exo_status
linger(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    (void)self;
    (void)reply;
    while (args->size > 0 || !exo_call_cancelled(call))
        usleep(1000);
    return exo_fail(err, EXO_CANCELLED, "told to stop");
}

static const exo_lane_class lanes[] = {{.name = "main"},
                                       {.name = "slow", .blocking = true, .max_concurrency = 4}};
static const exo_method methods[] = {{.name = "hold", .run = hold},
                                     {.name = "add", .run = add},
                                     {.name = "echo", .run = echo},
                                     {.name = "say", .run = say},
                                     {.name = "fail", .run = fail},
                                     {.name = "die", .run = die},
                                     {.name = "crash", .run = crash},
                                     {.name = "await", .lane = 1, .run = await},
                                     {.name = "linger", .lane = 1, .run = linger}};
static const exo_actor_class counter = {.name = "counter",
                                        .state_size = sizeof(struct counter),
                                        .start = start,
                                        .lanes = lanes,
                                        .num_lanes = 2,
                                        .methods = methods,
                                        .num_methods = sizeof methods / sizeof methods[0]};

EXO_PLUGIN
{
    return exo_actor_class_register(&counter, err);
}
