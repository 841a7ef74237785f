/* Weight updates under a generator: the exchange of packed weights while sequences are under way,
 * and the canary, which refuses a version that the receiver does not run as the sender does. Each
 * test owns its generators. Read next: nn/updates/canary.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "nn/updates/wire.h"
#include "support/small_decoders.h"
#include "support/updates.h"

static const exo_weight_format formats[] = {EXO_WEIGHTS_F32, EXO_WEIGHTS_INT8, EXO_WEIGHTS_INT4};

enum {
    FORMATS = 3
};

struct world {
    small_decoder trainer;
    exo_generator *generator;
    exo_update_sender *sender;
    exo_update_receiver *receiver;
};

static void
world_init(struct world *w, int kind, exo_weight_format format, exo_update_form form)
{
    exo_err err = {0};
    const exo_decoder_spec spec = small_decoder_spec(kind);
    const exo_update_sender_opts opts = {
        .form = form, .canaries = formats, .num_canaries = FORMATS};
    small_decoder_new(&w->trainer, &spec, 1);
    cr_assert_eq(exo_generator_new(&w->generator, &spec, w->trainer.params,
                                   &(exo_generator_opts){.weights = format, .sequences = 3}, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_update_sender_new(&w->sender, w->trainer.model, &opts, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_update_receiver_new(&w->receiver, w->trainer.model, w->trainer.params,
                                         &(exo_update_receiver_opts){.generator = w->generator},
                                         &err),
                 EXO_OK, "%s", err.text);
}

static void
world_free(struct world *w)
{
    exo_update_sender_free(&w->sender);
    exo_update_receiver_free(&w->receiver);
    exo_generator_free(&w->generator);
    small_decoder_free(&w->trainer);
}

static void
learn(struct world *w, uint64_t version, kept_update *out)
{
    exo_err err = {0};
    updates_learn(w->trainer.params, 1, version);
    cr_assert_eq(exo_update_sender_stage(w->sender, w->trainer.params, version, &err), EXO_OK, "%s",
                 err.text);
    updates_keep(out, w->sender, "maker");
}

/* Returns the last status. */
static exo_status
give(struct world *w, const kept_update *u, exo_update_reply *reply, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < u->count; i++)
        st = exo_update_receive(w->receiver, u->bytes[i], u->size[i], reply, err);
    return st;
}

static void
expect_logits(exo_generator *generator, small_decoder *d, exo_params *params)
{
    int32_t tokens[6];
    exo_generator *fresh = NULL;
    size_t numel = 6 * d->spec.vocabulary;
    float *a = malloc(numel * sizeof *a), *b = malloc(numel * sizeof *b);
    small_decoder_tokens(&d->spec, 4, 6, tokens);
    const exo_generator_opts opts = {.weights = exo_generator_options(generator)->weights};
    cr_assert_eq(exo_generator_new(&fresh, &d->spec, params, &opts, NULL), EXO_OK);
    cr_assert_eq(exo_generator_logits(generator, tokens, 6, a, NULL), EXO_OK);
    cr_assert_eq(exo_generator_logits(fresh, tokens, 6, b, NULL), EXO_OK);
    cr_expect_arr_eq(a, b, numel * sizeof *a);
    exo_generator_free(&fresh);
    free(a);
    free(b);
}

Test(update_canary, a_swap_gives_the_generator_the_weights_that_were_sent)
{
    for (int kind = 0; kind < SMALL_DECODERS; kind++)
        for (size_t f = 0; f < FORMATS; f++) {
            struct world w = {0};
            world_init(&w, kind, formats[f], f ? EXO_UPDATE_DELTA : EXO_UPDATE_INT8);
            for (uint64_t version = 1; version < 4; version++) {
                kept_update u;
                exo_update_reply reply = {0};
                exo_err err = {0};
                learn(&w, version, &u);
                expect_logits(w.generator, &w.trainer, exo_update_params(w.receiver));
                cr_assert_eq(give(&w, &u, &reply, &err), EXO_OK, "%s", err.text);
                cr_expect_eq(reply.answer, EXO_UPDATE_ACCEPTED);
                expect_logits(w.generator, &w.trainer, exo_update_params(w.receiver));
                cr_expect(exo_update_swap(w.receiver));
                expect_logits(w.generator, &w.trainer, exo_update_params(w.receiver));
                exo_update_sender_reply(w.sender, "maker", &reply, &err);
                updates_release(&u);
            }
            world_free(&w);
        }
}

/* A sequence goes on under the new weights, with its cache: as if set_weights had been called. */
Test(update_canary, sequences_under_way_keep_their_caches)
{
    struct world w = {0};
    exo_generator *plain = NULL;
    exo_generated a, b;
    kept_update u;
    exo_update_reply reply = {0};
    exo_err err = {0};
    int32_t prompt[5];
    const exo_sampling sampling = {.temperature = 1, .max_new_tokens = 20, .seed = 3};
    world_init(&w, 0, EXO_WEIGHTS_INT8, EXO_UPDATE_WHOLE);
    small_decoder_tokens(&w.trainer.spec, 9, 5, prompt);
    const exo_generator_opts opts = {.weights = EXO_WEIGHTS_INT8};
    exo_generator_new(&plain, &w.trainer.spec, w.trainer.params, &opts, NULL);
    exo_generator *both[] = {w.generator, plain};
    for (size_t g = 0; g < 2; g++) {
        cr_assert_eq(exo_generator_submit(both[g], 1, prompt, 5, &sampling, NULL), EXO_OK);
        for (int i = 0; i < 8; i++)
            exo_generator_step(both[g], NULL);
    }
    learn(&w, 1, &u);
    cr_assert_eq(give(&w, &u, &reply, &err), EXO_OK, "%s", err.text);
    exo_update_swap(w.receiver);
    exo_generator_set_weights(plain, w.trainer.params, NULL);
    for (size_t g = 0; g < 2; g++)
        while (exo_generator_active(both[g]) > 0)
            exo_generator_step(both[g], NULL);
    cr_assert(exo_generator_take(w.generator, &a) && exo_generator_take(plain, &b));
    cr_assert_eq(a.length, 25);
    cr_expect_arr_eq(a.tokens, b.tokens, a.length * sizeof *a.tokens);
    cr_expect_arr_eq(a.log_probs, b.log_probs, 20 * sizeof *a.log_probs);
    updates_release(&u);
    exo_generator_free(&plain);
    world_free(&w);
}

/* The sender claims a canary of other weights than those that it sends, as one does whose LoRA part
 * never comes. */
Test(update_canary, a_version_that_is_not_run_as_sent_is_refused)
{
    for (size_t f = 0; f < FORMATS; f++) {
        struct world w = {0}, other = {0};
        kept_update u, wrong;
        exo_update_reply reply = {0};
        exo_err err = {0};
        world_init(&w, 0, formats[f], EXO_UPDATE_WHOLE);
        world_init(&other, 0, formats[f], EXO_UPDATE_WHOLE);
        updates_learn(other.trainer.params, 0.001f, 50);
        learn(&w, 1, &u);
        learn(&other, 1, &wrong);
        size_t canaries = FORMATS * EXO_CANARY_BYTES;
        memcpy(u.bytes[0] + u.size[0] - canaries, wrong.bytes[0] + wrong.size[0] - canaries,
               canaries);
        updates_seal_all(&u);
        cr_expect_eq(give(&w, &u, &reply, &err), EXO_FAILED);
        cr_expect_not_null(strstr(err.text, "does not run what was sent"), "%s", err.text);
        cr_expect_eq(reply.answer, EXO_UPDATE_REFUSED);
        cr_expect_not(exo_update_swap(w.receiver));
        expect_logits(w.generator, &w.trainer, exo_update_params(w.receiver));
        cr_expect_eq(exo_update_sender_reply(w.sender, "maker", &reply, &err), EXO_FAILED);

        updates_release(&u);
        updates_keep(&u, w.sender, "maker");
        cr_expect_eq(give(&w, &u, &reply, &err), EXO_OK, "the true one is accepted: %s", err.text);
        cr_expect(exo_update_swap(w.receiver));
        updates_release(&u);
        updates_release(&wrong);
        world_free(&w);
        world_free(&other);
    }
}

Test(update_canary, an_update_without_the_generators_format_is_refused)
{
    struct world w = {0};
    exo_update_sender *sender = NULL;
    exo_update_reply reply = {0};
    exo_err err = {0};
    kept_update u;
    world_init(&w, 0, EXO_WEIGHTS_INT4, EXO_UPDATE_WHOLE);
    const exo_update_sender_opts opts = {.canaries = formats, .num_canaries = 2};
    exo_update_sender_new(&sender, w.trainer.model, &opts, NULL);
    exo_update_sender_stage(sender, w.trainer.params, 1, NULL);
    updates_keep(&u, sender, "maker");
    cr_expect_eq(give(&w, &u, &reply, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "no canary"), "%s", err.text);
    updates_release(&u);
    exo_update_sender_free(&sender);
    world_free(&w);
}

Test(update_canary, another_arithmetic_is_compared_with_the_tolerance)
{
    exo_canary a = {.count = 2, .arithmetic = "cpu avx512"}, b = a;
    exo_err err = {0};
    for (size_t i = 0; i < 2 * EXO_CANARY_PROMPTS; i++) {
        a.tokens[i] = b.tokens[i] = (int32_t)i;
        a.log_probs[i] = b.log_probs[i] = -1;
    }
    cr_expect_eq(exo_canary_compare(&a, &b, 1e-3, &err), EXO_OK, "%s", err.text);
    b.logits[3] = 1;
    cr_expect_eq(exo_canary_compare(&a, &b, 1e-3, &err), EXO_FAILED, "logits of equal arithmetic");
    strcpy(b.arithmetic, "cpu avx2");
    cr_expect_eq(exo_canary_compare(&a, &b, 1e-3, &err), EXO_OK, "%s", err.text);
    b.log_probs[2] -= 5e-4f;
    cr_expect_eq(exo_canary_compare(&a, &b, 1e-3, &err), EXO_OK, "%s", err.text);
    b.tokens[2] = 9;     /* a tie that falls the other way, */
    b.log_probs[3] = -7; /* after which the prompt goes on differently */
    cr_expect_eq(exo_canary_compare(&a, &b, 1e-3, &err), EXO_OK, "%s", err.text);
    b.log_probs[4] -= 5e-3f;
    cr_expect_eq(exo_canary_compare(&a, &b, 1e-3, &err), EXO_FAILED);
    cr_expect_not_null(strstr(err.text, "token 0 of prompt 2"), "%s", err.text);
    b.log_probs[4] = NAN;
    cr_expect_eq(exo_canary_compare(&a, &b, 1e-3, &err), EXO_FAILED);
}

Test(update_canary, weights_are_exchanged_between_equal_layouts_only)
{
    small_decoder a, b;
    exo_generator *x = NULL, *y = NULL, *z = NULL;
    exo_err err = {0};
    exo_decoder_spec spec = small_decoder_spec(0);
    small_decoder_new(&a, &spec, 1);
    spec.layers = 1;
    small_decoder_new(&b, &spec, 1);
    const exo_generator_opts int8 = {.weights = EXO_WEIGHTS_INT8};
    exo_generator_new(&x, &a.spec, a.params, NULL, NULL);
    exo_generator_new(&y, &b.spec, b.params, NULL, NULL);
    exo_generator_new(&z, &a.spec, a.params, &int8, NULL);
    cr_expect_eq(exo_generator_swap_weights(x, y, &err), EXO_INVAL);
    cr_expect_eq(exo_generator_swap_weights(x, z, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "int8"), "%s", err.text);
    exo_generator_free(&x);
    exo_generator_free(&y);
    exo_generator_free(&z);
    small_decoder_free(&a);
    small_decoder_free(&b);
}
