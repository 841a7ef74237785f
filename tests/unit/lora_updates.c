/* LoRA in weight updates: A and B alone are sent, the receiver's generator rebuilds its weights from
 * its own base, and a receiver that does not apply A and B is found by the canary. Each test owns
 * its world. Read next: docs/updates.md, docs/lora.md. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/updates.h>

#include "support/updates.h"

static const exo_weight_format formats[] = {EXO_WEIGHTS_F32, EXO_WEIGHTS_INT8, EXO_WEIGHTS_INT4};

enum {
    FORMATS = 3,
    TOKENS = 6
};

struct world {
    exo_model *model;
    exo_params *params; /* the trainer's */
    exo_generator *generator;
    exo_update_sender *sender;
    exo_update_receiver *receiver;
};

/* `spec`: of the maker's generator; NULL: the model's. */
static void
world_init(struct world *w, exo_weight_format format, exo_update_form form,
           const exo_decoder_spec *spec)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    *w = (struct world){0};
    cr_assert_eq(exo_config_parse(&doc, "job.yaml",
                                  "{layers: 2, heads: 2, width: 32, vocabulary: 60, context: 24, "
                                  "lora: {rank: 2, layers: attention.*}}",
                                  &err),
                 EXO_OK);
    cr_assert_eq(exo_model_new_named(&w->model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_model_params(w->model, 3, &w->params, &err), EXO_OK, "%s", err.text);
    updates_learn(w->params, 1, 70); /* B is not zero */
    const exo_update_sender_opts opts = {
        .form = form, .learned = true, .canaries = formats, .num_canaries = FORMATS};
    cr_assert_eq(exo_update_sender_new(&w->sender, w->model, &opts, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_generator_new(&w->generator, spec ? spec : exo_decoder_spec_of(w->model),
                                   w->params, &(exo_generator_opts){.weights = format}, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_update_receiver_new(&w->receiver, w->model, NULL,
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
    exo_params_free(&w->params);
    exo_model_drop(&w->model);
}

/* Sends the newest version. Returns the facts of the update; *reply and *err: the receiver's. */
static exo_update_facts
send(struct world *w, exo_update_reply *reply, exo_err *err)
{
    exo_update *update = NULL;
    const char *maker = "maker";
    const void *bytes = NULL;
    size_t size = 0;
    exo_status st = EXO_OK;
    cr_assert_eq(exo_update_begin(&update, w->sender, &maker, 1, err), EXO_OK, "%s", err->text);
    while (st == EXO_OK && exo_update_next(update, &bytes, &size, NULL) == EXO_OK)
        st = exo_update_receive(w->receiver, bytes, size, reply, err);
    exo_update_facts facts = exo_update_facts_of(update);
    exo_update_free(&update);
    return facts;
}

/* The maker's generator computes as one that is made of the trainer's parameters. */
static void
expect_logits(struct world *w)
{
    static const int32_t tokens[TOKENS] = {3, 14, 15, 9, 26, 5};
    const exo_decoder_spec *spec = exo_decoder_spec_of(w->model);
    const exo_generator_opts opts = {.weights = exo_generator_options(w->generator)->weights};
    exo_generator *fresh = NULL;
    size_t numel = TOKENS * spec->vocabulary;
    float *a = malloc(numel * sizeof *a), *b = malloc(numel * sizeof *b);
    cr_assert_eq(exo_generator_new(&fresh, spec, exo_update_params(w->receiver), &opts, NULL),
                 EXO_OK);
    cr_assert_eq(exo_generator_logits(w->generator, tokens, TOKENS, a, NULL), EXO_OK);
    cr_assert_eq(exo_generator_logits(fresh, tokens, TOKENS, b, NULL), EXO_OK);
    cr_expect_arr_eq(a, b, numel * sizeof *a);
    exo_generator_free(&fresh);
    free(a);
    free(b);
}

Test(lora_updates, a_and_b_alone_are_sent_and_every_format_runs_them)
{
    static const exo_update_form forms[] = {EXO_UPDATE_WHOLE, EXO_UPDATE_INT8, EXO_UPDATE_DELTA};
    for (size_t f = 0; f < FORMATS; f++) {
        struct world w;
        exo_update_reply reply = {0};
        exo_err err = {0};
        world_init(&w, formats[f], forms[f], NULL);
        size_t learned = exo_params_numel(w.params);
        for (uint64_t version = 1; version < 4; version++) {
            updates_learn(w.params, 1, version);
            cr_assert_eq(exo_update_sender_stage(w.sender, w.params, version, &err), EXO_OK, "%s",
                         err.text);
            exo_update_facts facts = send(&w, &reply, &err);
            cr_assert_eq(reply.answer, EXO_UPDATE_ACCEPTED, "%s", err.text);
            cr_expect_eq(exo_update_sender_reply(w.sender, "maker", &reply, &err), EXO_OK);
            cr_expect(exo_update_swap(w.receiver));
            expect_logits(&w);
            /* the first one brings the base, too */
            size_t all = learned + exo_params_frozen_numel(w.params);
            cr_expect_eq(facts.elements, version == 1 ? all : learned);
            if (version == 1)
                continue;
            cr_expect_eq(facts.tensors, 8, "A and B of two layers in two blocks");
            /* the manifest names and hashes the tensors of the base, too */
            size_t manifest = exo_params_count(w.params) * 120 + 4096;
            cr_expect_lt(facts.bytes, learned * sizeof(float) + manifest);
        }
        world_free(&w);
    }
}

/* The maker's generator leaves A and B out, as one whose LoRA part is never applied: its parameters
 * and all hashes are right. */
Test(lora_updates, a_maker_that_does_not_apply_a_and_b_is_found_at_the_first_version)
{
    for (size_t f = 0; f < FORMATS; f++) {
        struct world w, honest;
        exo_update_reply reply = {0};
        exo_err err = {0};
        world_init(&honest, formats[f], EXO_UPDATE_WHOLE, NULL);
        exo_decoder_spec spec = *exo_decoder_spec_of(honest.model);
        spec.lora_scale = 1e-30f;
        world_init(&w, formats[f], EXO_UPDATE_WHOLE, &spec);
        /* int4 rounds small parts away */
        for (size_t i = 0; i < exo_params_numel(w.params); i++)
            exo_params_values(w.params)[i] *= 30;
        cr_assert_eq(exo_update_sender_stage(w.sender, w.params, 1, &err), EXO_OK, "%s", err.text);
        send(&w, &reply, &err);
        cr_expect_eq(reply.answer, EXO_UPDATE_REFUSED);
        cr_expect_not_null(strstr(err.text, "does not run what was sent"), "%s", err.text);
        cr_expect_eq(exo_update_sender_reply(w.sender, "maker", &reply, &err), EXO_FAILED);
        cr_expect_not(exo_update_swap(w.receiver));
        world_free(&w);
        world_free(&honest);
    }
}

/* A maker whose generator is made without LoRA, and a sender that leaves A and B out. */
Test(lora_updates, an_end_without_lora_is_an_error)
{
    struct world w;
    exo_generator *g = NULL;
    exo_update_receiver *r = NULL;
    exo_update_sender *s = NULL;
    exo_model *base = NULL;
    exo_params *merged = NULL;
    exo_err err = {0};
    world_init(&w, EXO_WEIGHTS_F32, EXO_UPDATE_WHOLE, NULL);
    cr_assert_eq(exo_decoder_merge(w.model, w.params, &base, &merged, &err), EXO_OK);
    cr_assert_eq(exo_generator_new(&g, exo_decoder_spec_of(base), merged, NULL, &err), EXO_OK);
    const exo_update_receiver_opts opts = {.generator = g};
    cr_expect_eq(exo_update_receiver_new(&r, w.model, w.params, &opts, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "LoRA parameter"), "%s", err.text);

    const char *names[] = {"*.weight", "*.bias"};
    const exo_update_sender_opts partial = {.names = names, .num_names = 2};
    cr_assert_eq(exo_update_sender_new(&s, w.model, &partial, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_update_sender_stage(s, w.params, 1, &err), EXO_OK, "%s", err.text);
    updates_learn(w.params, 1, 9);
    cr_expect_eq(exo_update_sender_stage(s, w.params, 2, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "lora_a' has changed"), "%s", err.text);
    exo_update_sender_free(&s);
    exo_generator_free(&g);
    exo_params_free(&merged);
    exo_model_drop(&base);
    world_free(&w);
}
