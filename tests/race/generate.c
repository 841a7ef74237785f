/* Generation by several threads under the thread sanitizer, with sequences that start and end, and
 * weights that are replaced between steps. The tokens are those of one thread. The main thread owns
 * the generator. Read next: include/exogym/generate.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/generate.h>
#include <exogym/model.h>

enum {
    SEQUENCES = 12,
    CONTEXT = 32
};

static void
check(exo_status st, const exo_err *err)
{
    if (st == EXO_OK)
        return;
    fprintf(stderr, "generate: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void
run(exo_generator *g, exo_params *params, int32_t tokens[SEQUENCES][CONTEXT])
{
    exo_err err = {0};
    exo_generated done;
    for (uint64_t next = 0, taken = 0; taken < SEQUENCES;) {
        for (; next < SEQUENCES && exo_generator_room(g) > 0; next++) {
            const int32_t prompt[] = {(int32_t)next, 5, 6, 7, 8};
            const exo_sampling s = {
                .temperature = 1, .top_k = 20, .max_new_tokens = 5 + next, .seed = 3};
            check(exo_generator_submit(g, next, prompt, 1 + next % 5, &s, &err), &err);
        }
        check(exo_generator_step(g, &err), &err);
        for (; exo_generator_take(g, &done); taken++)
            memcpy(tokens[done.id], done.tokens, done.length * sizeof *done.tokens);
        check(exo_generator_set_weights(g, params, &err), &err);
    }
}

int
main(void)
{
    exo_err err = {0};
    exo_decoder_spec spec;
    exo_model *model = NULL;
    exo_params *params = NULL;
    static int32_t one[SEQUENCES][CONTEXT], many[SEQUENCES][CONTEXT];
    check(exo_decoder_size(&spec, "small", &err), &err);
    spec.vocabulary = 300;
    spec.context = CONTEXT;
    spec.layers = 2;
    check(exo_decoder_new(&model, &spec, &err), &err);
    check(exo_model_params(model, 1, &params, &err), &err);
    for (int format = EXO_WEIGHTS_F32; format <= EXO_WEIGHTS_INT4; format++) {
        exo_generator *g = NULL;
        const exo_generator_opts opts = {
            .weights = (exo_weight_format)format, .sequences = 5, .step_tokens = 7};
        check(exo_generator_new(&g, &spec, params, &opts, &err), &err);
        exo_set_num_threads(1);
        run(g, params, one);
        exo_set_num_threads(4);
        run(g, params, many);
        exo_generator_free(&g);
        if (memcmp(one, many, sizeof one) != 0) {
            fprintf(stderr, "generate: four threads give other tokens than one\n");
            return EXIT_FAILURE;
        }
    }
    exo_params_free(&params);
    exo_model_drop(&model);
    return EXIT_SUCCESS;
}
