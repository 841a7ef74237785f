/* A plugin with the actor class `victim`, for tests that break a cluster. Each life has a random
 * number, and knows which calls it has run. The lane "main" owns the table of calls. Read next:
 * tests/support/victim.h. */
#include <exogym/actor.h>
#include <exogym/object.h>
#include <exogym/plugin.h>

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "support/victim.h"

struct victim {
    uint64_t life, runs;
    uint64_t *nonces; /* open addressing, 0: free */
    size_t num_nonces, cap_nonces;
    uint64_t repeated; /* calls that came again after they had run */
};

static exo_status
start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    struct victim *v = self;
    (void)call;
    (void)args;
    while (v->life == 0)
        if (getrandom(&v->life, sizeof v->life, 0) < 0)
            return exo_fail(err, EXO_FAILED, "no random numbers");
    return EXO_OK;
}

static void
stop(void *self)
{
    struct victim *v = self;
    free(v->nonces);
}

static bool
knows(const struct victim *v, uint64_t nonce)
{
    for (size_t i = nonce; v->cap_nonces; i++) {
        uint64_t at = v->nonces[i & (v->cap_nonces - 1)];
        if (at == nonce || at == 0)
            return at == nonce;
    }
    return false;
}

static void
insert(uint64_t *table, size_t cap, uint64_t nonce)
{
    size_t i = nonce;
    while (table[i & (cap - 1)])
        i++;
    table[i & (cap - 1)] = nonce;
}

static exo_status
note(struct victim *v, uint64_t nonce, exo_err *err)
{
    v->runs++;
    if (knows(v, nonce)) {
        v->repeated++;
        return EXO_OK;
    }
    if (2 * (v->num_nonces + 1) > v->cap_nonces) {
        size_t cap = v->cap_nonces ? 2 * v->cap_nonces : 1024;
        uint64_t *larger = calloc(cap, sizeof *larger);
        if (!larger)
            return exo_fail(err, EXO_NOMEM, "no memory for a number");
        for (size_t i = 0; i < v->cap_nonces; i++)
            if (v->nonces[i])
                insert(larger, cap, v->nonces[i]);
        free(v->nonces);
        v->nonces = larger;
        v->cap_nonces = cap;
    }
    insert(v->nonces, v->cap_nonces, nonce);
    v->num_nonces++;
    return EXO_OK;
}

static struct victim_reply
describe(const struct victim *v, uint64_t nonce)
{
    return (struct victim_reply){.nonce = nonce,
                                 .life = v->life,
                                 .runs = v->runs,
                                 .repeated = v->repeated,
                                 .pid = (uint64_t)getpid()};
}

/* Arguments: a nonce, then anything. */
static exo_status
poke(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct victim *v = self;
    uint64_t nonce;
    (void)call;
    if (args->size < sizeof nonce)
        return exo_fail(err, EXO_INVAL, "a call without a number");
    memcpy(&nonce, args->data, sizeof nonce);
    exo_status st = note(v, nonce, err);
    const struct victim_reply r = describe(v, nonce);
    return st == EXO_OK ? exo_payload_copy(reply, &r, sizeof r) : st;
}

/* Counts the given nonces that have run in this life. */
static exo_status
audit(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    const struct victim *v = self;
    uint64_t known = 0;
    (void)call;
    (void)err;
    for (size_t i = 0; i + sizeof(uint64_t) <= args->size; i += sizeof(uint64_t)) {
        uint64_t nonce;
        memcpy(&nonce, (const char *)args->data + i, sizeof nonce);
        known += knows(v, nonce);
    }
    const struct victim_reply r = describe(v, known);
    return exo_payload_copy(reply, &r, sizeof r);
}

/* Takes an object with the words nonce, nonce + 1, ...; replies with an object of the words nonce +
 * 1, nonce + 2, ..., whose last word is the life. */
static exo_status
carry(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    const struct victim *v = self;
    exo_object *out = NULL;
    const uint64_t *in = args->data;
    size_t words = args->size / sizeof *in;
    (void)call;
    if (words < 2)
        return exo_fail(err, EXO_INVAL, "an object without a number");
    for (size_t i = 0; i < words; i += 512)
        if (in[i] != in[0] + i)
            return exo_fail(err, EXO_INVAL, "word %zu of an object is %llu", i,
                            (unsigned long long)in[i]);
    exo_status st = exo_object_new(&out, args->size, err);
    if (st != EXO_OK)
        return st;
    uint64_t *to = exo_object_data(out);
    for (size_t i = 0; i < words; i++)
        to[i] = in[0] + 1 + i;
    to[words - 1] = v->life;
    exo_object_seal(out);
    *reply = exo_object_payload(out);
    exo_object_drop(&out);
    return EXO_OK;
}

/* Keeps references to the actors in the arguments, a run of exo_actor_id. It blocks, because the
 * process of an actor may have to be looked up. */
static exo_status
refer(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    exo_status st = EXO_OK;
    (void)self;
    (void)reply;
    for (size_t i = 0; st == EXO_OK && i + sizeof(exo_actor_id) <= args->size;
         i += sizeof(exo_actor_id)) {
        exo_actor_id id;
        exo_ref ref;
        memcpy(&id, (const char *)args->data + i, sizeof id);
        st = exo_ref_import(exo_call_runtime(call), &id, exo_deadline(exo_clock_real(), EXO_SECOND),
                            &ref, err);
    }
    return st;
}

/* Arguments: a nonce, and the milliseconds to wait. */
static exo_status
linger(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    const struct victim *v = self;
    uint64_t words[2];
    if (args->size != sizeof words)
        return exo_fail(err, EXO_INVAL, "linger wants two numbers");
    memcpy(words, args->data, sizeof words);
    for (uint64_t i = 0; i < words[1]; i++) {
        if (exo_call_cancelled(call))
            return exo_fail(err, EXO_CANCELLED, "told to stop");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    /* Not describe(): it reads what the other lane writes. */
    const struct victim_reply r = {.nonce = words[0], .life = v->life, .pid = (uint64_t)getpid()};
    return exo_payload_copy(reply, &r, sizeof r);
}

static const exo_lane_class lanes[] = {{.name = "main"},
                                       {.name = "slow", .blocking = true, .max_concurrency = 2}};
static const exo_method methods[] = {{.name = "poke", .run = poke},
                                     {.name = "audit", .run = audit},
                                     {.name = "carry", .run = carry},
                                     {.name = "refer", .lane = 1, .run = refer},
                                     {.name = "linger", .lane = 1, .run = linger}};
static const exo_actor_class victim = {.name = "victim",
                                       .state_size = sizeof(struct victim),
                                       .start = start,
                                       .stop = stop,
                                       .lanes = lanes,
                                       .num_lanes = 2,
                                       .methods = methods,
                                       .num_methods = sizeof methods / sizeof methods[0]};

EXO_PLUGIN
{
    return exo_actor_class_register(&victim, err);
}
