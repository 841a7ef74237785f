/* A maker's uptake under the thread sanitizer: its thread decodes, verifies and packs updates while
 * the maker's thread generates with the weights in use, ends them, and exchanges them between two
 * steps; also updates that are damaged, and an uptake that is freed while it works. Read next:
 * experience/uptake.h. */
#include <string.h>

#include <exogym/exogym.h>

#include "experience/uptake.h"
#include "support/check.h"

enum {
    VERSIONS = 12,
    SEQUENCES = 2
};

static exo_item *
make_update(exo_update_sender *sender, exo_params *params, uint64_t version)
{
    exo_update *update = NULL;
    exo_item *item = NULL;
    const exo_parameters about = {.version = version, .trainers = 1, .canary = true};
    for (size_t i = version; i < exo_params_numel(params); i += 3)
        exo_params_values(params)[i] *= 1.01f;
    CHECK(exo_update_sender_stage(sender, params, version + 1, NULL) == EXO_OK);
    CHECK(exo_update_begin(&update, sender, (const char *[]){"maker_0"}, 1, NULL) == EXO_OK);
    CHECK(exo_parameters_new(&item, &about, update, NULL) == EXO_OK);
    exo_update_free(&update);
    return item;
}

/* Generates until the uptake is done; returns its answer. */
static exo_update_answer
generate_beside(exo_uptake *uptake, exo_generator *generator, exo_update_sender *sender)
{
    exo_update_reply reply;
    exo_generated done;
    double spent = 0;
    const int32_t prompt[] = {1, 2, 3};
    const exo_sampling sampling = {.temperature = 1, .max_new_tokens = 8};
    static uint64_t id;
    for (uint64_t steps = 0;; steps++) {
        while (exo_generator_take(generator, &done))
            continue;
        if (exo_generator_room(generator) > 0)
            CHECK(exo_generator_submit(generator, id++, prompt, 3, &sampling, NULL) == EXO_OK);
        CHECK(exo_generator_step(generator, NULL) == EXO_OK);
        if (exo_uptake_end(uptake, steps > 100, &reply, &spent))
            break;
    }
    exo_status st = exo_update_sender_reply(sender, "maker_0", &reply, NULL);
    CHECK((st == EXO_OK) == (reply.answer == EXO_UPDATE_ACCEPTED));
    return reply.answer;
}

int
main(void)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    exo_params *params = NULL, *initial = NULL;
    exo_generator *generator = NULL;
    exo_update_sender *sender = NULL;
    exo_uptake *uptake = NULL;
    const exo_weight_format format = EXO_WEIGHTS_F32;
    const exo_update_sender_opts opts = {
        .form = EXO_UPDATE_DELTA, .chunk_bytes = 64 << 10, .canaries = &format, .num_canaries = 1};
    const exo_generator_opts places = {.sequences = SEQUENCES};
    CHECK(exo_config_parse(&doc, "test",
                           "{layers: 1, heads: 2, width: 96, context: 32, vocabulary: 64}",
                           NULL) == EXO_OK);
    CHECK(exo_model_new_named(&model, "gpt", exo_config_root(doc), NULL) == EXO_OK);
    CHECK(exo_model_values(model, 1, &initial, NULL) == EXO_OK);
    CHECK(exo_model_values(model, 1, &params, NULL) == EXO_OK);
    CHECK(exo_generator_new(&generator, exo_decoder_spec_of(model), initial, &places, NULL) ==
          EXO_OK);
    CHECK(exo_update_sender_new(&sender, model, &opts, NULL) == EXO_OK);
    CHECK(exo_uptake_new(&uptake, model, initial, generator, NULL, NULL) == EXO_OK);
    for (uint64_t v = 0; v < VERSIONS; v++) {
        exo_item *item = make_update(sender, params, v);
        bool damaged = v % 3 == 2;
        if (damaged)
            ((uint8_t *)item->parts[1].data)[item->parts[1].count / 2] ^= 1;
        CHECK(exo_uptake_is_free(uptake));
        CHECK(exo_uptake_begin(uptake, &item, NULL) == EXO_OK);
        exo_update_answer answer = generate_beside(uptake, generator, sender);
        CHECK(answer == (damaged ? EXO_UPDATE_REFUSED : EXO_UPDATE_ACCEPTED));
        CHECK(exo_uptake_is_ready(uptake) == !damaged);
        CHECK(damaged || exo_uptake_version(uptake) == (int64_t)v);
        if (!damaged)
            exo_uptake_swap(uptake);
    }
    exo_item *last = make_update(sender, params, VERSIONS);
    CHECK(exo_uptake_begin(uptake, &last, NULL) == EXO_OK);
    exo_uptake_free(&uptake);
    exo_update_sender_free(&sender);
    exo_generator_free(&generator);
    exo_params_free(&params);
    exo_params_free(&initial);
    exo_model_drop(&model);
    exo_config_free(&doc);
    return 0;
}
