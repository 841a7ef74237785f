/* Weight updates: forms, bases, partial updates, replies, and the exchange of weights under a
 * generator. Each test owns its sender and receivers. Faults of chunks are in update_faults.c. Read
 * next: exogym/updates.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "nn/updates/delta.h"
#include "nn/updates/wire.h"
#include "support/sanitized.h"
#include "support/small_decoders.h"
#include "support/updates.h"

/* A trainer's decoder, its sender, and one receiver. */
struct pair {
    small_decoder trainer;
    exo_update_sender *sender;
    exo_update_receiver *receiver;
};

static void
pair_init(struct pair *p, const exo_update_sender_opts *opts)
{
    exo_err err = {0};
    const exo_decoder_spec spec = small_decoder_spec(0);
    small_decoder_new(&p->trainer, &spec, 1);
    cr_assert_eq(exo_update_sender_new(&p->sender, p->trainer.model, opts, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_update_receiver_new(&p->receiver, p->trainer.model, NULL, NULL, &err), EXO_OK,
                 "%s", err.text);
}

static void
pair_free(struct pair *p)
{
    exo_update_sender_free(&p->sender);
    exo_update_receiver_free(&p->receiver);
    small_decoder_free(&p->trainer);
}

static void
stage(struct pair *p, uint64_t version)
{
    exo_err err = {0};
    cr_assert_eq(exo_update_sender_stage(p->sender, p->trainer.params, version, &err), EXO_OK, "%s",
                 err.text);
}

/* Sends one update, which must be accepted, and swaps. Returns its facts. */
static exo_update_facts
deliver(exo_update_sender *sender, exo_update_receiver *receiver, const char *name)
{
    exo_update *update = NULL;
    exo_update_reply reply = {0};
    exo_err err = {0};
    const void *bytes = NULL;
    size_t size = 0;
    cr_assert_eq(exo_update_begin(&update, sender, &name, 1, &err), EXO_OK, "%s", err.text);
    while (exo_update_next(update, &bytes, &size, &err) == EXO_OK) {
        cr_assert_eq(reply.answer, EXO_UPDATE_NONE);
        cr_assert_eq(exo_update_receive(receiver, bytes, size, &reply, &err), EXO_OK, "%s",
                     err.text);
    }
    cr_assert_eq(reply.answer, EXO_UPDATE_ACCEPTED);
    cr_assert(exo_update_swap(receiver));
    cr_assert_eq(exo_update_sender_reply(sender, name, &reply, &err), EXO_OK, "%s", err.text);
    exo_update_facts facts = exo_update_facts_of(update);
    exo_update_free(&update);
    return facts;
}

/* --- Forms ------------------------------------------------------------------------------------ */

/* The values that a form gives, computed by the public codecs. */
static void
expect_form(exo_params *got, exo_params *trained, exo_update_form form)
{
    exo_codec *bf16 = NULL, *int8 = NULL;
    cr_assert_eq(exo_codec_parse(&bf16, "bf16", NULL), EXO_OK);
    cr_assert_eq(exo_codec_parse(&int8, "int8", NULL), EXO_OK);
    for (size_t i = 0; i < exo_params_count(got); i++) {
        const exo_param_info *info = exo_params_info(got, i);
        bool rounds = form == EXO_UPDATE_BF16 || form == EXO_UPDATE_BF16_DELTA;
        exo_codec *codec = rounds                                          ? bf16
                           : form == EXO_UPDATE_INT8 && info->num_dims > 1 ? int8
                                                                           : NULL;
        float *want = malloc(info->numel * sizeof *want);
        memcpy(want, exo_params_at(trained, i), info->numel * sizeof *want);
        if (codec) {
            size_t size = 0;
            void *coded = malloc(exo_codec_bound(codec, info->numel));
            exo_codec_encode(codec, NULL, want, info->numel, coded, &size, NULL);
            exo_codec_decode(codec, NULL, coded, size, want, info->numel, NULL);
            free(coded);
        }
        cr_expect_arr_eq(exo_params_at(got, i), want, info->numel * sizeof *want, "%s in %s",
                         info->name, exo_update_form_name(form));
        free(want);
    }
    exo_codec_free(&bf16);
    exo_codec_free(&int8);
}

Test(updates, every_form_gives_the_values_of_its_codec)
{
    for (exo_update_form form = EXO_UPDATE_WHOLE; form <= EXO_UPDATE_BF16_DELTA; form++) {
        struct pair p = {0};
        pair_init(&p, &(exo_update_sender_opts){.form = form, .chunk_bytes = 4096});
        for (uint64_t version = 1; version < 6; version++) {
            updates_learn(p.trainer.params, version == 3 ? 0.005f : 1, version);
            stage(&p, version);
            exo_update_facts facts = deliver(p.sender, p.receiver, "maker");
            cr_expect_gt(facts.chunks, 4, "%s", exo_update_form_name(form));
            cr_expect_eq(exo_update_version(p.receiver), version);
            cr_expect_str_eq(exo_update_state(p.receiver), exo_update_sender_state(p.sender));
            expect_form(exo_update_params(p.receiver), p.trainer.params, form);
        }
        pair_free(&p);
    }
}

Test(updates, names_of_forms)
{
    exo_err err = {0};
    for (exo_update_form form = EXO_UPDATE_WHOLE; form <= EXO_UPDATE_BF16_DELTA; form++) {
        exo_update_form found = EXO_UPDATE_WHOLE;
        cr_expect_eq(exo_update_form_named(exo_update_form_name(form), &found, &err), EXO_OK);
        cr_expect_eq(found, form);
    }
    cr_expect_eq(exo_update_form_named("fp8", &(exo_update_form){0}, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "bf16_delta"), "%s", err.text);
}

Test(updates, a_thousand_deltas_do_not_drift)
{
    static const exo_update_form forms[] = {EXO_UPDATE_DELTA, EXO_UPDATE_BF16_DELTA};
    for (size_t f = 0; f < 2; f++) {
        struct pair p = {0};
        pair_init(&p, &(exo_update_sender_opts){.form = forms[f]});
        for (uint64_t version = 1; version <= (SANITIZED ? 100 : 1000); version++) {
            updates_learn(p.trainer.params, version % 3 ? 0.01f : 1, version);
            if (forms[f] == EXO_UPDATE_BF16_DELTA)
                updates_round(p.trainer.params);
            stage(&p, version);
            exo_update_facts facts = deliver(p.sender, p.receiver, "maker");
            cr_assert_eq(facts.base, version - 1);
            cr_assert(updates_are_same(exo_update_params(p.receiver), p.trainer.params),
                      "version %llu", (unsigned long long)version);
            cr_assert_leq(exo_update_sender_copies(p.sender), 2);
        }
        pair_free(&p);
    }
}

Test(updates, a_delta_of_bf16_that_rarely_changes_is_a_hundredth)
{
    struct pair p = {0};
    pair_init(&p, &(exo_update_sender_opts){.form = EXO_UPDATE_BF16_DELTA});
    stage(&p, 1);
    uint64_t whole = deliver(p.sender, p.receiver, "maker").bytes;
    float *first = exo_params_values(p.trainer.params);
    first[7] += 1;
    stage(&p, 2);
    exo_update_facts facts = deliver(p.sender, p.receiver, "maker");
    cr_expect_eq(facts.tensors, 1, "only the tensor that has changed is sent");
    cr_expect_lt(facts.bytes, whole / 10);
    pair_free(&p);
}

/* --- Differences ------------------------------------------------------------------------------ */

static void
expect_delta(const uint32_t *base, const uint32_t *now, size_t count, exo_delta_kind kind)
{
    uint32_t *z = calloc(count, sizeof *z), *back = calloc(count, sizeof *back);
    uint8_t *planes[4], *gaps = calloc(count, 5);
    for (size_t p = 0; p < 4; p++)
        planes[p] = calloc(count, 1);
    exo_delta_shape shape = exo_delta_subtract(base, now, count, z);
    cr_expect_eq(shape.kind, kind);
    size_t size = exo_delta_split(z, count, shape, planes, gaps);
    const uint8_t *at = gaps;
    cr_expect(
        exo_delta_add(base, back, count, shape, (const uint8_t *const *)planes, &at, gaps + size));
    cr_expect_eq(at, gaps + size);
    cr_expect_arr_eq(back, now, count * sizeof *now);
    if (exo_delta_is_sparse(kind)) {
        at = gaps;
        cr_expect_not(exo_delta_add(base, back, count, shape, (const uint8_t *const *)planes, &at,
                                    gaps + size - 1),
                      "a gap is missing");
    }
    for (size_t p = 0; p < 4; p++)
        free(planes[p]);
    free(z);
    free(back);
    free(gaps);
}

Test(updates, differences_keep_all_bits)
{
    enum {
        N = 5000
    };
    static const uint32_t odd[] = {0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001,
                                   0xFFFFFFFF, 0x00000001, 0x80000001, 0x7F7FFFFF, 0x3F800000};
    uint32_t base[N], now[N];
    exo_rng rng;
    exo_rng_init(&rng, 5, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < N; i++) {
        base[i] = i < 100 ? odd[i / 10] : exo_rng_u32(&rng);
        now[i] = i < 100 ? odd[i % 10] : exo_rng_u32(&rng);
    }
    expect_delta(base, now, N, EXO_DELTA_FULL32);
    memcpy(now + 100, base + 100, (N - 100) * sizeof *now);
    expect_delta(base, now, N, EXO_DELTA_SPARSE32);
    expect_delta(base, base, N, EXO_DELTA_SAME);
    for (size_t i = 0; i < N; i++) {
        base[i] &= 0xFFFF0000;
        now[i] &= 0xFFFF0000;
    }
    expect_delta(base, now, N, EXO_DELTA_SPARSE16);
    for (size_t i = 0; i < N; i++)
        now[i] = exo_rng_u32(&rng) & 0xFFFF0000;
    expect_delta(base, now, N, EXO_DELTA_FULL16);
}

/* --- Bases ------------------------------------------------------------------------------------ */

Test(updates, the_base_moves_with_an_acceptance_only)
{
    struct pair p = {0};
    kept_update lost;
    pair_init(&p, &(exo_update_sender_opts){.form = EXO_UPDATE_DELTA});
    stage(&p, 1);
    cr_expect_eq(deliver(p.sender, p.receiver, "maker").base, 0);
    for (uint64_t version = 2; version < 5; version++) {
        updates_learn(p.trainer.params, 1, version);
        stage(&p, version);
        updates_keep(&lost, p.sender, "maker");
        updates_release(&lost);
        cr_expect_eq(exo_update_sender_base(p.sender, "maker"), 1);
    }
    cr_expect_eq(exo_update_sender_copies(p.sender), 2);
    cr_expect_eq(deliver(p.sender, p.receiver, "maker").base, 1);
    cr_expect(updates_are_same(exo_update_params(p.receiver), p.trainer.params));
    pair_free(&p);
}

Test(updates, a_receiver_that_restarts_asks_for_a_whole_one)
{
    struct pair p = {0};
    kept_update update;
    exo_update_reply reply = {0};
    exo_err err = {0};
    pair_init(&p, &(exo_update_sender_opts){.form = EXO_UPDATE_DELTA});
    stage(&p, 1);
    deliver(p.sender, p.receiver, "maker");
    exo_update_receiver_free(&p.receiver);
    cr_assert_eq(
        exo_update_receiver_new(&p.receiver, p.trainer.model, p.trainer.params, NULL, &err),
        EXO_OK);
    cr_expect(updates_are_same(exo_update_params(p.receiver), p.trainer.params), "it has initial "
                                                                                 "values");
    updates_learn(p.trainer.params, 1, 2);
    stage(&p, 2);
    updates_keep(&update, p.sender, "maker");
    cr_expect_eq(exo_update_receive(p.receiver, update.bytes[0], update.size[0], &reply, &err),
                 EXO_INVAL);
    cr_expect_eq(reply.answer, EXO_UPDATE_NEED_WHOLE);
    cr_expect_not_null(strstr(err.text, "send a whole update"), "%s", err.text);
    cr_expect_eq(exo_update_receive(p.receiver, update.bytes[1], update.size[1], &reply, &err),
                 EXO_DAMAGED);
    cr_expect_eq(reply.answer, EXO_UPDATE_NONE, "one reply for each update");
    updates_release(&update);

    exo_update_greet(p.receiver, &reply);
    cr_expect_eq(reply.answer, EXO_UPDATE_NEED_WHOLE);
    cr_expect_eq(exo_update_sender_reply(p.sender, "maker", &reply, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(deliver(p.sender, p.receiver, "maker").base, 0);
    exo_update_greet(p.receiver, &reply);
    cr_expect_eq(reply.answer, EXO_UPDATE_NONE);
    cr_expect(updates_are_same(exo_update_params(p.receiver), p.trainer.params));
    pair_free(&p);
}

Test(updates, receivers_with_one_base_share_chunks_and_others_get_a_whole_update)
{
    struct pair p = {0};
    exo_update *update = NULL;
    exo_err err = {0};
    static const char *const both[] = {"a", "b"};
    pair_init(&p, &(exo_update_sender_opts){.form = EXO_UPDATE_DELTA});
    stage(&p, 1);
    deliver(p.sender, p.receiver, "a");
    updates_learn(p.trainer.params, 1, 2);
    stage(&p, 2);
    cr_assert_eq(exo_update_begin(&update, p.sender, both, 2, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_update_facts_of(update).base, 0);
    exo_update_free(&update);
    exo_update_sender_forget(p.sender, "b");
    cr_assert_eq(exo_update_begin(&update, p.sender, both, 1, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_update_facts_of(update).base, 1);
    exo_update_free(&update);
    pair_free(&p);
}

/* A restarted sender has another life, in which versions may begin again. */
Test(updates, stale_versions_are_refused_and_a_new_life_is_not)
{
    struct pair p = {0};
    exo_update_reply reply = {0};
    exo_err err = {0};
    kept_update old;
    pair_init(&p, NULL);
    stage(&p, 4);
    updates_keep(&old, p.sender, "maker");
    stage(&p, 5);
    deliver(p.sender, p.receiver, "maker");
    cr_expect_eq(exo_update_receive(p.receiver, old.bytes[0], old.size[0], &reply, &err),
                 EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "stale"), "%s", err.text);
    cr_expect_eq(reply.answer, EXO_UPDATE_REFUSED);
    cr_expect_eq(exo_update_sender_reply(p.sender, "maker", &reply, &err), EXO_INVAL,
                 "version 4 is not under way");
    cr_expect_eq(exo_update_sender_base(p.sender, "maker"), 5);
    updates_release(&old);

    exo_update_sender_free(&p.sender);
    cr_assert_eq(exo_update_sender_new(&p.sender, p.trainer.model,
                                       &(exo_update_sender_opts){.life = 1}, &err),
                 EXO_OK);
    updates_learn(p.trainer.params, 1, 2);
    stage(&p, 1);
    deliver(p.sender, p.receiver, "maker");
    cr_expect_eq(exo_update_version(p.receiver), 1);
    pair_free(&p);
}

Test(updates, a_chunk_before_the_swap_is_to_be_given_again)
{
    struct pair p = {0};
    kept_update first, second;
    exo_update_reply reply = {0};
    exo_err err = {0};
    pair_init(&p, NULL);
    stage(&p, 1);
    updates_keep(&first, p.sender, "maker");
    updates_learn(p.trainer.params, 1, 2);
    stage(&p, 2);
    updates_keep(&second, p.sender, "maker");
    for (size_t i = 0; i < first.count; i++)
        exo_update_receive(p.receiver, first.bytes[i], first.size[i], &reply, &err);
    cr_expect(exo_update_is_ready(p.receiver));
    cr_expect_eq(exo_update_version(p.receiver), 0);
    cr_expect_eq(exo_update_receive(p.receiver, second.bytes[0], second.size[0], &reply, &err),
                 EXO_FULL);
    cr_expect_eq(reply.answer, EXO_UPDATE_NONE);
    cr_expect(exo_update_swap(p.receiver));
    cr_expect_not(exo_update_swap(p.receiver));
    for (size_t i = 0; i < second.count; i++)
        cr_expect_eq(exo_update_receive(p.receiver, second.bytes[i], second.size[i], &reply, &err),
                     EXO_OK, "%s", err.text);
    cr_expect_eq(reply.answer, EXO_UPDATE_ACCEPTED);
    cr_expect(exo_update_swap(p.receiver));
    cr_expect(updates_are_same(exo_update_params(p.receiver), p.trainer.params));
    updates_release(&first);
    updates_release(&second);
    pair_free(&p);
}

/* --- Partial updates -------------------------------------------------------------------------- */

Test(updates, a_partial_update_sends_the_named_parameters)
{
    static const char *const names[] = {"blocks.*.mlp.*", "norm.*"};
    static const exo_update_form forms[] = {EXO_UPDATE_WHOLE, EXO_UPDATE_DELTA};
    for (size_t f = 0; f < 2; f++) {
        struct pair p = {0};
        exo_err err = {0};
        pair_init(&p, &(exo_update_sender_opts){.form = forms[f], .names = names, .num_names = 2});
        stage(&p, 1);
        size_t all = deliver(p.sender, p.receiver, "maker").tensors;
        cr_expect_eq(all, exo_params_count(p.trainer.params), "the first update is whole");
        size_t changed = 0;
        for (size_t i = 0; i < all; i++)
            if (strstr(exo_params_info(p.trainer.params, i)->name, ".mlp.")) {
                exo_params_at(p.trainer.params, i)[3] += 0.5f;
                changed++;
            }
        stage(&p, 2);
        exo_update_facts facts = deliver(p.sender, p.receiver, "maker");
        cr_expect_eq(facts.tensors, forms[f] == EXO_UPDATE_DELTA ? changed : changed + 2);
        cr_expect(updates_are_same(exo_update_params(p.receiver), p.trainer.params));

        exo_params_at(p.trainer.params, 0)[0] += 1; /* the embedding */
        cr_expect_eq(exo_update_sender_stage(p.sender, p.trainer.params, 3, &err), EXO_INVAL);
        cr_expect_not_null(strstr(err.text, "'embedding.weight' has changed"), "%s", err.text);
        cr_expect_eq(exo_update_sender_version(p.sender), 2);
        pair_free(&p);
    }
}

Test(updates, frozen_parameters_are_sent_once)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_update_sender *sender = NULL;
    exo_update_receiver *receiver = NULL;
    exo_err err = {0};
    exo_config_parse(&doc, "m.yaml", "{in: 8, out: 3, hidden: [16, 12], frozen: [fc1.*]}", &err);
    cr_assert_eq(exo_model_new_named(&model, "mlp", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_model_params(model, 3, &params, NULL);
    const exo_update_sender_opts opts = {.learned = true};
    cr_assert_eq(exo_update_sender_new(&sender, model, &opts, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_update_receiver_new(&receiver, model, NULL, NULL, &err), EXO_OK);
    for (uint64_t version = 1; version < 6; version++) {
        updates_learn(params, 1, version);
        exo_update_sender_stage(sender, params, version, NULL);
        exo_update_facts facts = deliver(sender, receiver, "maker");
        cr_expect_eq(facts.tensors, exo_params_count(params) - (version > 1 ? 2 : 0));
        cr_expect(updates_are_same(exo_update_params(receiver), params));
    }
    exo_params_buffers(params)[0] += 1;
    cr_expect_eq(exo_update_sender_stage(sender, params, 9, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "'fc1."), "%s", err.text);
    exo_update_sender_free(&sender);
    exo_update_receiver_free(&receiver);
    exo_params_free(&params);
    exo_model_drop(&model);
    exo_config_free(&doc);
}

/* --- Mistakes --------------------------------------------------------------------------------- */

Test(updates, another_model_is_named_tensor_by_tensor)
{
    static const struct {
        int kind;
        const char *reason;
    } others[] = {{1, "'position.weight' has the shape (48, 32) at the sender and (50, 32)"},
                  {2, "tensor 1 of the sender is 'position.weight', and 'embedding_norm.weight'"}};
    for (size_t k = 0; k < 2; k++) {
        struct pair p = {0};
        small_decoder other;
        exo_update_receiver *receiver = NULL;
        exo_update_reply reply = {0};
        exo_err err = {0};
        kept_update update;
        exo_decoder_spec spec = small_decoder_spec(others[k].kind);
        pair_init(&p, NULL);
        spec.heads = spec.kv_heads = 4;
        spec.width = 32;
        small_decoder_new(&other, &spec, 2);
        cr_assert_eq(exo_update_receiver_new(&receiver, other.model, NULL, NULL, &err), EXO_OK,
                     "%s", err.text);
        stage(&p, 1);
        updates_keep(&update, p.sender, "maker");
        cr_expect_eq(exo_update_receive(receiver, update.bytes[0], update.size[0], &reply, &err),
                     EXO_INVAL);
        cr_expect_not_null(strstr(err.text, others[k].reason), "%s", err.text);
        cr_expect_eq(reply.answer, EXO_UPDATE_REFUSED);
        cr_expect_str_eq(reply.text, err.text);
        cr_expect_eq(exo_update_sender_reply(p.sender, "maker", &reply, &err), EXO_FAILED);
        cr_expect_not_null(strstr(err.text, "'maker' refused version 1"), "%s", err.text);
        cr_expect_eq(exo_update_sender_stage(p.sender, other.params, 2, &err), EXO_INVAL,
                     "the sender refuses it, too");
        updates_release(&update);
        exo_update_receiver_free(&receiver);
        small_decoder_free(&other);
        pair_free(&p);
    }
}

Test(updates, options_that_cannot_be_are_named)
{
    static const char *const wrong[] = {"block.*"};
    static const exo_weight_format formats[] = {EXO_WEIGHTS_F32, EXO_WEIGHTS_F32, EXO_WEIGHTS_F32,
                                                EXO_WEIGHTS_F32};
    static const struct {
        exo_update_sender_opts opts;
        const char *reason;
    } cases[] = {
        {{.form = (exo_update_form)9}, "form 9"},
        {{.chunk_bytes = 100}, "100 bytes"},
        {{.names = wrong, .num_names = 1}, "'block.*'"},
        {{.names = wrong, .num_names = 1, .learned = true}, "either"},
        {{.canaries = formats, .num_canaries = 4}, "4 canaries"},
    };
    small_decoder d;
    const exo_decoder_spec spec = small_decoder_spec(0);
    small_decoder_new(&d, &spec, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_update_sender *sender = NULL;
        exo_err err = {0};
        cr_expect_eq(exo_update_sender_new(&sender, d.model, &cases[i].opts, &err), EXO_INVAL);
        cr_expect_not_null(strstr(err.text, cases[i].reason), "%s", err.text);
    }
    small_decoder_free(&d);
}

Test(updates, int8_refuses_values_that_are_not_finite)
{
    struct pair p = {0};
    exo_err err = {0};
    pair_init(&p, &(exo_update_sender_opts){.form = EXO_UPDATE_INT8});
    exo_params_at(p.trainer.params, 0)[5] = NAN;
    cr_expect_eq(exo_update_sender_stage(p.sender, p.trainer.params, 1, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "'embedding.weight'"), "%s", err.text);
    pair_free(&p);
}

Test(updates, replies_keep_their_bytes)
{
    exo_update_reply reply = {.answer = EXO_UPDATE_REFUSED,
                              .sender = 3,
                              .life = 4,
                              .version = 5,
                              .have = 6,
                              .code = EXO_DAMAGED,
                              .text = "a reason"},
                     back;
    uint8_t bytes[EXO_UPDATE_REPLY_BYTES];
    memset(reply.state, 'a', 64);
    exo_update_reply_write(&reply, bytes);
    cr_assert_eq(exo_update_reply_read(bytes, sizeof bytes, &back, NULL), EXO_OK);
    cr_expect_eq(back.answer, reply.answer);
    cr_expect_eq(back.sender + 10 * back.life + 100 * back.version + 1000 * back.have, 6543);
    cr_expect_eq(back.code, EXO_DAMAGED);
    cr_expect_str_eq(back.text, reply.text);
    cr_expect_str_eq(back.state, reply.state);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_expect_eq(exo_update_reply_read(bytes, sizeof bytes, &back, NULL), EXO_DAMAGED);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t size = 0; size < sizeof bytes; size++)
        cr_expect_eq(exo_update_reply_read(bytes, size, &back, NULL), EXO_DAMAGED);
}
