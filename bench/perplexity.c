/* The cost of quantized weights in quality: the perplexity of a text under fp32, int8 and int4
 * weights.
 *
 *     bench_perplexity --model DIR --text FILE [--skip BYTES] [--bytes N] [--window N]
 *
 * DIR is a Hugging Face directory with its tokenizer; `exogym export` writes one. The text is the N
 * bytes of FILE (default: all) that follow the first BYTES. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/generate.h>
#include <exogym/memory.h>
#include <exogym/model.h>
#include <exogym/tokenizer.h>

#include "base/file.h"

struct setting {
    const char *model, *text;
    size_t skip, bytes, window;
};

static exo_status
read_tokens(const struct setting *s, int32_t **tokens, size_t *count, exo_err *err)
{
    exo_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t size = 0;
    exo_status st = exo_file_read(s->text, (size_t)1 << 30, &text, &size, err);
    if (st == EXO_OK && s->skip >= size)
        st = exo_fail(err, EXO_INVAL, "%s has %zu bytes", s->text, size);
    if (st == EXO_OK)
        st = exo_tokenizer_load(&tokenizer, s->model, err);
    if (st == EXO_OK) {
        size_t left = size - s->skip;
        st = exo_tokenizer_encode(tokenizer, text + s->skip,
                                  s->bytes && s->bytes < left ? s->bytes : left, false, tokens,
                                  count, err);
    }
    exo_tokenizer_drop(&tokenizer);
    exo_free(text);
    return st;
}

static exo_status
measure(const struct setting *s, exo_model *model, exo_params *params, const int32_t *tokens,
        size_t count, exo_err *err)
{
    static const char *const names[] = {"fp32", "int8", "int4"};
    double first = 0;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof names / sizeof names[0]; i++) {
        exo_generator *g = NULL;
        double mean = 0;
        const exo_generator_opts opts = {.weights = (exo_weight_format)i};
        st = exo_generator_new(&g, exo_decoder_spec_of(model), params, &opts, err);
        if (st == EXO_OK)
            st = exo_generator_nll(g, tokens, count, s->window, &mean, err);
        if (st == EXO_OK) {
            first = i == 0 ? mean : first;
            printf("weights=%s tokens=%zu nll=%.5f perplexity=%.4f over_fp32=%+.3f%% "
                   "weights_MiB=%.1f\n",
                   names[i], count, mean, exp(mean), (exp(mean - first) - 1) * 100,
                   (double)exo_generator_weight_bytes(g) / (1 << 20));
            fflush(stdout);
        }
        exo_generator_free(&g);
    }
    return st;
}

int
main(int argc, char **argv)
{
    struct setting s = {0};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--model") == 0)
            s.model = argv[i + 1];
        else if (strcmp(argv[i], "--text") == 0)
            s.text = argv[i + 1];
        else if (strcmp(argv[i], "--skip") == 0)
            s.skip = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--bytes") == 0)
            s.bytes = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--window") == 0)
            s.window = strtoul(argv[i + 1], NULL, 10);
    }
    if (!s.model || !s.text) {
        fprintf(stderr, "usage: bench_perplexity --model DIR --text FILE [--skip BYTES] [--bytes "
                        "N] [--window N]\n");
        return 2;
    }
    exo_err err = {0};
    exo_model *model = NULL;
    exo_params *params = NULL;
    int32_t *tokens = NULL;
    size_t count = 0;
    exo_status st = read_tokens(&s, &tokens, &count, &err);
    if (st == EXO_OK)
        st = exo_decoder_load(s.model, &model, &params, &err);
    if (st == EXO_OK)
        st = measure(&s, model, params, tokens, count, &err);
    if (st != EXO_OK)
        fprintf(stderr, "bench_perplexity: %s\n", err.text);
    exo_params_free(&params);
    exo_model_drop(&model);
    exo_free(tokens);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
