/* Faults of weight updates: chunks that are lost, altered, repeated, reordered, of another update
 * or another base, manifests that say other names, shapes and versions, and canaries that differ.
 * Each is refused with its reason, the copy in use does not change, and the next update succeeds.
 * The tests have no shared state. Read next: nn/updates/receiver.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "base/memory_fault.h"
#include "nn/updates/wire.h"
#include "support/sanitized.h"
#include "support/small_decoders.h"
#include "support/updates.h"

enum {
    AT_NUMBER = 8, /* offsets in a chunk's header */
    AT_COUNT = 12,
    AT_SENDER = 16,
    AT_LIFE = 24,
    AT_VERSION = 32,
    AT_BYTES = 40,
    AT_MANIFEST = EXO_CHUNK_HEADER,
    AT_BASE = AT_MANIFEST + 16 + EXO_SHA, /* life 8, version 8, digest */
    AT_TENSORS = AT_BASE + 2 * (16 + EXO_SHA),
    FAULTS = SANITIZED ? 250 : 1000
};

/* --- The fault of a turn ---------------------------------------------------------------------- */

static void
flip(uint8_t *bytes, size_t size, exo_rng *rng)
{
    size_t bit = exo_rng_below(rng, (uint32_t)(8 * size));
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

static void
remove_chunk(kept_update *u, size_t index)
{
    free(u->bytes[index]);
    u->count--;
    memmove(u->bytes + index, u->bytes + index + 1, (u->count - index) * sizeof *u->bytes);
    memmove(u->size + index, u->size + index + 1, (u->count - index) * sizeof *u->size);
}

static void
insert_chunk(kept_update *u, size_t index, const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size);
    memcpy(copy, bytes, size);
    memmove(u->bytes + index + 1, u->bytes + index, (u->count - index) * sizeof *u->bytes);
    memmove(u->size + index + 1, u->size + index, (u->count - index) * sizeof *u->size);
    u->bytes[index] = copy;
    u->size[index] = size;
    u->count++;
}

static void
swap_chunks(kept_update *u, size_t a, size_t b)
{
    uint8_t *bytes = u->bytes[a];
    size_t size = u->size[a];
    u->bytes[a] = u->bytes[b];
    u->size[a] = u->size[b];
    u->bytes[b] = bytes;
    u->size[b] = size;
}

static const char *const fault_names[] = {
    "a bit",
    "a lost chunk",
    "a repeated chunk",
    "reordered chunks",
    "a cut",
    "an extension",
    "a foreign chunk",
    "a header sealed anew",
    "a manifest",
    "another base",
    "a body sealed anew",
    "a name",
    "a shape",
    "a tensor's hash",
    "a manifest of another update",
};

enum {
    KINDS = sizeof fault_names / sizeof *fault_names
};

/* Changes `u` by the fault; `other` is an earlier update. */
static void
inject(kept_update *u, const kept_update *other, size_t kind, exo_rng *rng)
{
    static const size_t fields[] = {AT_NUMBER, AT_COUNT, AT_SENDER, AT_LIFE, AT_VERSION, AT_BYTES};
    size_t chunk = exo_rng_below(rng, (uint32_t)u->count), last = u->count - 1;
    size_t both = other->count < u->count ? other->count - 1 : last;
    size_t later = 1 + exo_rng_below(rng, (uint32_t)both);
    switch (kind) {
    case 0:
        flip(u->bytes[chunk], u->size[chunk], rng);
        break;
    case 1:
        remove_chunk(u, chunk);
        break;
    case 2: /* the copy of the last one comes when the update is complete: see `turn` */
        insert_chunk(u, exo_rng_below(rng, (uint32_t)last), u->bytes[0], u->size[0]);
        break;
    case 3:
        swap_chunks(u, later - 1, later);
        break;
    case 4:
        u->size[chunk] = exo_rng_below(rng, (uint32_t)u->size[chunk]);
        break;
    case 5:
        u->bytes[chunk] = realloc(u->bytes[chunk], u->size[chunk] + 8);
        memset(u->bytes[chunk] + u->size[chunk], 0, 8);
        u->size[chunk] += 8;
        break;
    case 6:
        memcpy(u->bytes[later] = realloc(u->bytes[later], other->size[later]), other->bytes[later],
               other->size[later]);
        u->size[later] = other->size[later];
        break;
    case 7:
        flip(u->bytes[chunk] + fields[exo_rng_below(rng, 6)], 4, rng);
        updates_seal(u, chunk);
        break;
    case 8:
        flip(u->bytes[0] + AT_MANIFEST, u->size[0] - AT_MANIFEST, rng);
        updates_seal(u, 0);
        break;
    case 9:
        flip(u->bytes[0] + AT_BASE, 16 + EXO_SHA, rng);
        updates_seal_all(u);
        break;
    case 10:
        flip(u->bytes[later] + EXO_CHUNK_HEADER, u->size[later] - EXO_CHUNK_HEADER, rng);
        updates_seal(u, later);
        break;
    case 11: /* the name of the first tensor, of two dimensions */
        flip(u->bytes[0] + AT_TENSORS + 4 + EXO_SHA + 16, strlen("embedding.weight"), rng);
        updates_seal_all(u);
        break;
    case 12:
        flip(u->bytes[0] + AT_TENSORS + 4 + EXO_SHA, 16, rng);
        updates_seal_all(u);
        break;
    case 13:
        flip(u->bytes[0] + AT_TENSORS + 4, EXO_SHA, rng);
        updates_seal_all(u);
        break;
    default:
        memcpy(u->bytes[0] = realloc(u->bytes[0], other->size[0]), other->bytes[0], other->size[0]);
        u->size[0] = other->size[0];
    }
}

/* --- Turns ------------------------------------------------------------------------------------ */

struct world {
    small_decoder trainer;
    exo_params *before; /* values of the version in use */
    exo_update_sender *sender;
    exo_update_receiver *receiver;
};

static void
world_init(struct world *w, exo_update_form form)
{
    exo_err err = {0};
    const exo_decoder_spec spec = small_decoder_spec(0);
    const exo_update_sender_opts opts = {.form = form, .chunk_bytes = 16384, .sender = 5};
    small_decoder_new(&w->trainer, &spec, 1);
    cr_assert_eq(exo_model_copy(w->trainer.model, &w->before, &err), EXO_OK);
    cr_assert_eq(exo_update_sender_new(&w->sender, w->trainer.model, &opts, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_update_receiver_new(&w->receiver, w->trainer.model, NULL, NULL, &err), EXO_OK,
                 "%s", err.text);
}

static void
world_free(struct world *w)
{
    exo_update_sender_free(&w->sender);
    exo_update_receiver_free(&w->receiver);
    exo_params_free(&w->before);
    small_decoder_free(&w->trainer);
}

/* Gives all chunks to the receiver, and its replies to the sender. Returns the number of errors. */
static size_t
give(struct world *w, const kept_update *u, bool *accepted)
{
    size_t errors = 0;
    *accepted = false;
    for (size_t i = 0; i < u->count; i++) {
        exo_update_reply reply = {0};
        exo_err err = {0};
        /* memory of exactly this size, so that a sanitizer sees each access beyond it */
        uint8_t *exact = malloc(u->size[i] ? u->size[i] : 1);
        memcpy(exact, u->bytes[i], u->size[i]);
        exo_status st = exo_update_receive(w->receiver, exact, u->size[i], &reply, &err);
        free(exact);
        errors += st != EXO_OK;
        cr_expect(st == EXO_OK || err.text[0] != '\0');
        if (reply.answer != EXO_UPDATE_NONE)
            exo_update_sender_reply(w->sender, "maker", &reply, &err);
        *accepted = *accepted || reply.answer == EXO_UPDATE_ACCEPTED;
    }
    return errors;
}

/* One fault, and the recovery by the next update. */
static void
turn(struct world *w, kept_update *other, size_t kind, uint64_t version, exo_rng *rng)
{
    kept_update update, again;
    exo_update_reply reply;
    exo_err err = {0};
    char state[65];
    bool accepted = false;
    snprintf(state, sizeof state, "%s", exo_update_state(w->receiver));
    updates_learn(w->trainer.params, version % 2 ? 1 : 0.01f, version);
    cr_assert_eq(exo_update_sender_stage(w->sender, w->trainer.params, version, &err), EXO_OK);
    updates_keep(&update, w->sender, "maker");
    cr_assert_geq(update.count, 3);
    if (other->count > 0) {
        inject(&update, other, kind, rng);
        size_t errors = give(w, &update, &accepted);
        cr_assert_not(accepted, "%s was accepted", fault_names[kind]);
        cr_assert_not(exo_update_is_ready(w->receiver));
        exo_update_abandon(w->receiver, &reply);
        cr_assert(errors > 0 || reply.answer == EXO_UPDATE_REFUSED, "%s was not seen",
                  fault_names[kind]);
        cr_assert_str_eq(exo_update_state(w->receiver), state);
        cr_assert(updates_are_same(exo_update_params(w->receiver), w->before), "%s changed values",
                  fault_names[kind]);
    }
    updates_keep(&again, w->sender, "maker");
    cr_assert_eq(give(w, &again, &accepted), 0);
    cr_assert(accepted && exo_update_swap(w->receiver));
    cr_assert(updates_are_same(exo_update_params(w->receiver), w->trainer.params));
    cr_assert_eq(exo_update_sender_base(w->sender, "maker"), version);
    memcpy(exo_params_values(w->before), exo_params_values(w->trainer.params),
           exo_params_numel(w->before) * sizeof(float));
    updates_release(other);
    updates_release(&update);
    *other = again;
}

static void
thousand_faults(exo_update_form form)
{
    struct world w = {0};
    kept_update other = {0};
    exo_rng rng;
    exo_rng_init(&rng, 77, EXO_RNG_USER, 0, form);
    world_init(&w, form);
    for (uint64_t version = 1; version <= FAULTS + 1; version++)
        turn(&w, &other, version % KINDS, version, &rng);
    updates_release(&other);
    world_free(&w);
}

Test(update_faults, a_thousand_faults_of_whole_updates_are_detected, .timeout = 280)
{
    thousand_faults(EXO_UPDATE_WHOLE);
}

Test(update_faults, a_thousand_faults_of_deltas_are_detected, .timeout = 280)
{
    thousand_faults(EXO_UPDATE_DELTA);
}

/* --- Reasons ---------------------------------------------------------------------------------- */

static void
expect_reason(struct world *w, const kept_update *u, size_t chunk, const char *reason)
{
    exo_update_reply reply = {0};
    exo_err err = {0};
    exo_status st = exo_update_receive(w->receiver, u->bytes[chunk], u->size[chunk], &reply, &err);
    cr_expect(reason ? st != EXO_OK : st == EXO_OK, "%s", err.text);
    if (reason)
        cr_expect_not_null(strstr(err.text, reason), "'%s' gave '%s'", reason, err.text);
    cr_expect(!reason || reply.answer == EXO_UPDATE_NONE || strcmp(reply.text, err.text) == 0);
}

Test(update_faults, reasons_name_the_chunk_and_the_version)
{
    struct world w = {0};
    kept_update u, next;
    exo_update_reply reply;
    world_init(&w, EXO_UPDATE_WHOLE);
    exo_update_sender_stage(w.sender, w.trainer.params, 7, NULL);
    updates_keep(&u, w.sender, "maker");
    expect_reason(&w, &u, 3, "chunk 3 of version 7 came before chunk 0");
    expect_reason(&w, &u, 4, "of an update that was refused");
    expect_reason(&w, &u, 0, NULL);
    expect_reason(&w, &u, 0, "chunk 0 of version 7 came twice");
    expect_reason(&w, &u, 0, NULL);
    expect_reason(&w, &u, 1, NULL);
    expect_reason(&w, &u, 1,
                  "chunk 1 of version 7 came where chunk 2 was expected: a chunk was "
                  "repeated");
    expect_reason(&w, &u, 0, NULL);
    expect_reason(&w, &u, 2, "came where chunk 1 was expected: a chunk was lost");
    expect_reason(&w, &u, 0, NULL);

    /* A newer update of the same sender gives the old one up, and the reply says so. */
    exo_err err = {0};
    updates_learn(w.trainer.params, 1, 8);
    exo_update_sender_stage(w.sender, w.trainer.params, 8, NULL);
    updates_keep(&next, w.sender, "maker");
    expect_reason(&w, &next, 1, "is of another update than version 7");
    cr_expect_eq(exo_update_receive(w.receiver, next.bytes[0], next.size[0], &reply, &err), EXO_OK,
                 "%s", err.text);
    cr_expect_eq(reply.answer, EXO_UPDATE_REFUSED);
    cr_expect_eq(reply.version, 7);
    cr_expect_not_null(strstr(reply.text, "chunks 1 to"), "%s", reply.text);
    for (size_t i = 1; i < next.count; i++)
        expect_reason(&w, &next, i, NULL);
    cr_expect(exo_update_swap(w.receiver));
    cr_expect_eq(exo_update_version(w.receiver), 8);
    updates_release(&u);
    updates_release(&next);
    world_free(&w);
}

Test(update_faults, another_sender_does_not_disturb_the_update_under_way)
{
    struct world w = {0};
    exo_update_sender *second = NULL;
    kept_update u, foreign;
    world_init(&w, EXO_UPDATE_WHOLE);
    const exo_update_sender_opts opts = {.sender = 6, .chunk_bytes = 16384};
    exo_update_sender_new(&second, w.trainer.model, &opts, NULL);
    exo_update_sender_stage(w.sender, w.trainer.params, 1, NULL);
    exo_update_sender_stage(second, w.trainer.params, 1, NULL);
    updates_keep(&u, w.sender, "maker");
    updates_keep(&foreign, second, "maker");
    expect_reason(&w, &u, 0, NULL);
    expect_reason(&w, &foreign, 0, "of sender 6 is of another update than version 1 of sender 5");
    for (size_t i = 1; i < u.count; i++)
        expect_reason(&w, &u, i, NULL);
    cr_expect(exo_update_swap(w.receiver));
    updates_release(&u);
    updates_release(&foreign);
    exo_update_sender_free(&second);
    world_free(&w);
}

/* A receiver whose unsent tensors are not the sender's: the manifest alone shows it. */
Test(update_faults, a_tensor_that_is_missing_from_the_update_is_named)
{
    struct world w = {0};
    kept_update u;
    exo_update_manifest m;
    exo_update_reply reply = {0};
    exo_err err = {0};
    bool accepted = false;
    world_init(&w, EXO_UPDATE_DELTA);
    exo_update_sender_stage(w.sender, w.trainer.params, 1, NULL);
    updates_keep(&u, w.sender, "maker");
    give(&w, &u, &accepted);
    exo_update_swap(w.receiver);
    updates_release(&u);
    exo_params_at(w.trainer.params, 1)[0] += 1;
    exo_update_sender_stage(w.sender, w.trainer.params, 2, NULL);
    updates_keep(&u, w.sender, "maker");

    /* The same update without its tensor 1, and with hashes that fit together. */
    cr_assert_eq(
        exo_update_manifest_read(&m, u.bytes[0] + AT_MANIFEST, u.size[0] - AT_MANIFEST, &err),
        EXO_OK, "%s", err.text);
    cr_assert(m.tensors[1].sent);
    m.tensors[1].sent = false;
    uint8_t *read = m.bytes;
    cr_assert_eq(exo_update_manifest_write(&m, &err), EXO_OK);
    memcpy(u.bytes[0] + AT_MANIFEST, m.bytes + EXO_CHUNK_HEADER, m.size);
    exo_free(read);
    exo_update_manifest_release(&m);
    u.bytes[0][AT_COUNT] = 1;
    u.count = 1;
    updates_seal_all(&u);
    cr_expect_eq(exo_update_receive(w.receiver, u.bytes[0], u.size[0], &reply, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "tensor 'position.weight' is not in the update"), "%s",
                       err.text);
    cr_expect_eq(reply.answer, EXO_UPDATE_NEED_WHOLE);
    updates_release(&u);
    world_free(&w);
}

/* --- Memory ----------------------------------------------------------------------------------- */

Test(update_faults, each_allocation_fails_in_turn)
{
    struct world w = {0};
    exo_update *update = NULL;
    static const char *const name = "maker";
    world_init(&w, EXO_UPDATE_DELTA);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        exo_update_reply reply = {0};
        exo_err err = {0};
        const void *bytes = NULL;
        size_t size = 0;
        uint64_t version = n + 1;
        updates_learn(w.trainer.params, 1, n);
        exo_memory_fail_at(n);
        exo_status st = exo_update_sender_stage(w.sender, w.trainer.params, version, &err);
        if (st == EXO_OK)
            st = exo_update_begin(&update, w.sender, &name, 1, &err);
        while (st == EXO_OK && (st = exo_update_next(update, &bytes, &size, &err)) == EXO_OK)
            st = exo_update_receive(w.receiver, bytes, size, &reply, &err);
        exo_memory_fail_at(0);
        exo_update_free(&update);
        done = st == EXO_CLOSED;
        cr_assert(done || st == EXO_NOMEM, "allocation %llu: %s", (unsigned long long)n, err.text);
        cr_expect_eq(done, reply.answer == EXO_UPDATE_ACCEPTED);
        if (reply.answer != EXO_UPDATE_NONE)
            exo_update_sender_reply(w.sender, name, &reply, &err);
    }
    cr_expect(exo_update_swap(w.receiver));
    cr_expect(updates_are_same(exo_update_params(w.receiver), w.trainer.params));
    world_free(&w);
}
