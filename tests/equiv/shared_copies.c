/* Strategies among copies of a model that several nodes share, as tensor parts or as stages. Those that treat
 * each element by itself, or draw among the elements of the whole model, have the numbers of copies that a
 * node has alone. Those whose messages have scales, ranks or largest values have those of each part; they
 * learn, and what several nodes of a copy have stays equal, to the bit. The tests own their runs. Read next:
 * actors/replica_share.c; strategies/composition.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "base/file.h"
#include "support/numbers.h"
#include "support/run.h"
#include "support/sanitized.h"
#include "support/temp.h"
#include "support/token_rows.h"

enum {
    STEPS = 6,
    HALF = 3,
    SAMPLES = 4,
    LENGTH = 12,
    WIDTH = 16,
    VOCABULARY = 51 /* two parts of the table have other sizes */
};

/* Two copies of the model, of which each is shared by `sharing` nodes. */
static void
prepare(struct run *r, bool stages, uint32_t sharing, bool tied)
{
    char text[200];
    snprintf(text, sizeof text,
             "{layers: 2, width: %d, heads: 4, inner: 24, vocabulary: %d, context: 16, tied: %s}",
             WIDTH, VOCABULARY, tied ? "true" : "false");
    run_init(r, "gpt", text, token_rows_new(200, LENGTH, VOCABULARY),
             token_rows_new(200, LENGTH, VOCABULARY));
    r->opts.num_nodes = 2 * sharing;
    r->opts.tensor = stages ? 1 : sharing;
    r->opts.pipeline = stages ? sharing : 1;
    r->opts.batch_size = SAMPLES;
    r->opts.minibatch_size = SAMPLES / 2;
    r->opts.max_steps = STEPS;
    r->opts.val_size = SAMPLES;
    r->opts.val_interval = 1; /* every step is reported */
    r->opts.run_name = "run";
}

#define SGD "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}"

/* --- The numbers of copies that nodes have alone ---------------------------------------------- */

static void
compare(const char *strategy, const char *options, bool stages, bool tied)
{
    struct run whole, shared;
    prepare(&whole, false, 1, tied);
    prepare(&shared, stages, 2, tied);
    run_must_fit(&whole, strategy, options);
    run_must_fit(&shared, strategy, options);
    const double off =
        numbers_distance(exo_params_values(shared.result.params),
                         exo_params_values(whole.result.params), exo_model_numel(whole.model));
    cr_expect_lt(off, 1e-5, "%s %s, %s: the model is off by %g", strategy, options,
                 stages ? "stages" : "parts", off);
    for (int s = 1; s <= STEPS; s++)
        cr_expect_float_eq(shared.loss[s], whole.loss[s], 1e-5 * fabs((double)whole.loss[s]),
                           "%s, %s: step %d", strategy, stages ? "stages" : "parts", s);
    run_release(&whole);
    run_release(&shared);
}

Test(shared_copies, each_element_by_itself_gives_the_numbers_of_whole_copies)
{
    static const struct {
        const char *strategy, *options;
    } cases[] = {
        {"sparta", "{p: 0.2, " SGD "}"},
        {"sparta", "{p: 0.3, selector: shuffled_sequential, delay: 2, interval: 2, " SGD "}"},
        {"sparta", "{p: 0.25, selector: partitioned, " SGD "}"},
        {"sparta_diloco", "{p: 0.1, H: 2, " SGD "}"},
        {"streaming_diloco", "{H: 4, fragments: 3, delay: 1, codec: raw, " SGD "}"},
        {"streaming_diloco", "{H: 3, fragments: 2, delay: 0, codec: raw, " SGD "}"},
        {"eager_diloco", "{H: 2, " SGD "}"},
        {"noloco", "{H: 2, " SGD "}"},
        {"local_sgd", "{H: 2, aggregate: median, " SGD "}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stages = (int)(i % one_of(2)); stages < 2; stages += (int)one_of(2))
            compare(cases[i].strategy, cases[i].options, stages, i % 2 == 0);
}

/* --- What depends on the part ----------------------------------------------------------------- */

/* Reads a parameter of a node's file in a checkpoint. The caller frees the numbers. */
static float *
read_parameter(const char *folder, uint32_t node, const char *name, size_t *count)
{
    char path[160], key[96], *data = NULL;
    size_t size = 0, first = 0, end = 0;
    uint64_t header = 0;
    snprintf(path, sizeof path, "%s/run/checkpoints/step_%08d/node_%u.safetensors", folder, STEPS,
             node);
    cr_assert_eq(exo_file_read(path, 1 << 24, &data, &size, NULL), EXO_OK, "%s", path);
    memcpy(&header, data, sizeof header);
    snprintf(key, sizeof key, "\"model.%s\":", name);
    char *at = strstr(data + sizeof header, key);
    cr_assert_not_null(at, "%s has no %s", path, name);
    at = strstr(at, "\"data_offsets\":[");
    cr_assert_eq(sscanf(at, "\"data_offsets\":[%zu,%zu]", &first, &end), 2);
    *count = (end - first) / sizeof(float);
    float *numbers = exo_calloc(*count, sizeof *numbers);
    cr_assert_not_null(numbers);
    memcpy(numbers, data + sizeof header + header + first, end - first);
    exo_free(data);
    return numbers;
}

/* Checks that a parameter is equal on the two nodes of the first copy. */
static void
expect_equal(const char *folder, const char *name, const char *strategy)
{
    size_t count = 0, other = 0;
    float *a = read_parameter(folder, 0, name, &count),
          *b = read_parameter(folder, 1, name, &other);
    cr_expect_eq(count, other);
    cr_expect_arr_eq(a, b, count * sizeof *a, "%s: %s differs", strategy, name);
    exo_free(a);
    exo_free(b);
}

/* Trains to the end, and again with a stop in between. */
static void
learn(const char *strategy, const char *options, bool stages)
{
    struct run r;
    char folder[64], expected[65];
    temp_folder(folder, sizeof folder);
    prepare(&r, stages, 2, true);
    run_must_fit(&r, strategy, options);
    memcpy(expected, r.result.sha256, sizeof expected);
    cr_expect_lt(r.loss[STEPS], r.loss[1], "%s %s learns", strategy, options);
    r.opts.save_dir = folder;
    r.opts.max_steps = HALF;
    run_must_fit(&r, strategy, options);
    r.opts.resume = true;
    r.opts.max_steps = STEPS;
    run_must_fit(&r, strategy, options);
    cr_expect_str_eq(r.result.sha256, expected, "%s %s", strategy, options);
    expect_equal(folder, stages ? "embedding.weight" : "norm.weight", strategy);
    if (!stages)
        expect_equal(folder, "position.weight", strategy);
    run_release(&r);
    temp_remove(folder);
}

Test(shared_copies, what_several_nodes_have_stays_equal_when_messages_are_of_parts)
{
    static const struct {
        const char *strategy, *options;
    } cases[] = {
        {"streaming_diloco", "{H: 2, fragments: 2, delay: 1, " SGD "}"},
        {"sparseloco",
         "{H: 2, codec: [{name: topk, k: 16, block: 256, error_feedback: false}, bins], " SGD "}"},
        {"demo", "{k: 4, chunk: 8, optimizer: {name: sgd, lr: 0.01}}"},
        {"quantized", "{error_feedback: true, " SGD "}"},
        {"powersgd", "{rank: 2, " SGD "}"},
        {"onebit_adam", "{freeze_step: 3, optimizer: {name: adamw, lr: 0.001, weight_decay: 0}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stages = (int)(i % one_of(2)); stages < 2; stages += (int)one_of(2))
            learn(cases[i].strategy, cases[i].options, stages);
}

/* --- What is refused -------------------------------------------------------------------------- */

Test(shared_copies, what_needs_whole_models_is_named)
{
    static const struct {
        const char *strategy, *options, *reason;
    } cases[] = {
        {"diloco", "{aggregate: norm_clip}", "aggregate or outer_optimizer needs whole models"},
        {"async_diloco", "{}", "the strategy 'async_diloco'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stages = 0; stages < 2; stages++) {
            struct run r;
            prepare(&r, stages, 2, true);
            cr_expect_eq(run_fit(&r, cases[i].strategy, cases[i].options), EXO_UNSUPPORTED);
            cr_expect_not_null(strstr(r.err.text, cases[i].reason), "%s", r.err.text);
            run_release(&r);
        }
}
