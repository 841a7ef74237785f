/* An actor class as a plugin, for use from the shell: `counter` adds up numbers. Arguments and
 * replies are text. README.md shows it on a cluster. */
#include <exogym/actor.h>
#include <exogym/plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct counter {
    long long count;
};

/* Arguments are bytes without a final NUL, which strtoll needs: so they are copied. */
static exo_status
read_number(const exo_payload *args, long long *out, exo_err *err)
{
    char text[32], *end = NULL;
    if (args->size >= sizeof text)
        return exo_fail(err, EXO_INVAL, "%zu bytes are no number", args->size);
    if (args->size > 0)
        memcpy(text, args->data, args->size);
    text[args->size] = '\0';
    *out = strtoll(text, &end, 10);
    return end != text && *end == '\0' ? EXO_OK
                                       : exo_fail(err, EXO_INVAL, "'%s' is no number", text);
}

/* Begins with the argument, as in `exogym spawn counter 100`; without one, at 0. */
static exo_status
start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    (void)call;
    struct counter *c = self;
    return args->size > 0 ? read_number(args, &c->count, err) : EXO_OK;
}

static exo_status
add(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    struct counter *c = self;
    long long number = 0;
    char text[32];
    exo_status st = read_number(args, &number, err);
    if (st != EXO_OK)
        return st;
    c->count += number;
    return exo_payload_copy(reply, text, (size_t)snprintf(text, sizeof text, "%lld", c->count));
}

static const exo_method methods[] = {{.name = "add", .run = add}};

static const exo_actor_class counter = {.name = "counter",
                                        .state_size = sizeof(struct counter),
                                        .start = start,
                                        .methods = methods,
                                        .num_methods = sizeof methods / sizeof methods[0]};

EXO_PLUGIN
{
    return exo_actor_class_register(&counter, err);
}
