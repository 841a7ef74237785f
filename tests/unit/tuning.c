/* Texts, tuners and rewards: what they compute, what is refused, and models that come back from their
 * folders. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/reward.h>

#include "base/file.h"
#include "experience/expression.h"
#include "experience/ptx.h"
#include "experience/tuner.h"
#include "support/temp.h"

#define MODEL "{name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 128}"
#define VALUED                                                                                     \
    "{name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 128, values: true}"

static exo_config *
parse(exo_config_doc **doc, const char *text)
{
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(doc, "test.yaml", text, &err), EXO_OK, "%s: %s", text, err.text);
    return exo_config_root(*doc);
}

/* --- Expressions ------------------------------------------------------------------------------ */

static const char answer_text[] = "Thou art fair, thou art \xc3\xa9lan.\nThou?";

static double
value_of(const char *formula, bool with_text)
{
    exo_expression *e = NULL;
    exo_tokenizer *bytes = NULL;
    exo_err err = {0};
    int32_t tokens[sizeof answer_text];
    double value = NAN;
    for (size_t i = 0; i + 1 < sizeof answer_text; i++)
        tokens[i] = (unsigned char)answer_text[i];
    cr_assert_eq(exo_tokenizer_bytes(&bytes, &err), EXO_OK);
    cr_assert_eq(exo_expression_parse(&e, formula, &err), EXO_OK, "%s: %s", formula, err.text);
    const exo_answer answer = {.prompt_length = 3,
                               .tokens = tokens,
                               .length = sizeof answer_text - 1,
                               .stopped = true,
                               .tokenizer = with_text ? bytes : NULL};
    exo_status st = exo_expression_value(e, &answer, &value, &err);
    if (with_text)
        cr_assert_eq(st, EXO_OK, "%s: %s", formula, err.text);
    else
        cr_expect_eq(st, EXO_INVAL, "%s", formula);
    exo_expression_free(&e);
    exo_tokenizer_drop(&bytes);
    return value;
}

Test(tuning, an_expression_has_the_value_that_its_grammar_says)
{
    const struct {
        const char *formula;
        double value;
    } cases[] = {
        {"1 + 2 * 3 - 4 / 8", 6.5},
        {"-2 - -3", 1},
        {"(1 + 2) * -(3)", -9},
        {"8 / 2 / 2", 2},
        {"1 < 2", 1},
        {"2 * 3 >= 7", 0},
        {"(1 <= 1) + (1 == 2) + (1 != 2) + (3 > 2)", 3},
        {"min(3, 2) + max(3, 2) * clip(9, -1, 1)", 5},
        {"abs(-2) + sqrt(9) + exp(0) + log(1)", 6},
        {"length", sizeof answer_text - 1},
        {"characters", sizeof answer_text - 2},
        {"words + prompt_length + stopped", 7 + 3 + 1},
        {"tokens(10) * 10 + share(10) * length", 11},
        {"contains('fair') + contains(\"foul\")", 1},
        {"count('ou')", 3},
        {"matches('(?i)\\bthou\\b')", 3},
        {"matches(\"^Thou\")", 2}, /* lines */
        {"matches('\\\\bart\\\\b')", 2},
        {"1e3 + .5", 1000.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_float_eq(value_of(cases[i].formula, true), cases[i].value, 1e-12, "%s is %g",
                           cases[i].formula, value_of(cases[i].formula, true));
    value_of("contains('x')", false); /* without a text */
}

Test(tuning, an_expression_with_a_mistake_is_refused_with_its_column)
{
    const struct {
        const char *formula, *reason;
    } cases[] = {
        {"1 +", "column 4: expected a number, a feature, a function or '(', got the end"},
        {"1 + * 2", "column 5: expected a number"},
        {"1 2", "column 3: expected an operator or the end, got '2'"},
        {"2 * lenght", "column 5: there is no 'lenght'; there are length, "},
        {"min(1)", "column 6: expected ',', got ')'"},
        {"min 1", "column 5: expected '('"},
        {"contains(fair)", "column 10: expected a text in quotes"},
        {"contains('fair", "column 10: the text has no end"},
        {"contains('')", "column 10: expected a text that is not empty"},
        {"1 + matches('(a')", "column 13: the regular expression '(a' is not supported: "},
        {"share('a')", "column 7: expected the number of a token"},
        {"(1", "column 3: expected ')'"},
        {"1 < 2 < 3", "column 7: expected an operator or the end"},
        {"", "column 1: expected a number"},
    };
    char deep[400] = "";
    exo_expression *e = NULL;
    exo_err err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(exo_expression_parse(&e, cases[i].formula, &err), EXO_INVAL);
        cr_expect_eq(strncmp(err.text, cases[i].reason, strlen(cases[i].reason)), 0, "'%s': %s",
                     cases[i].formula, err.text);
    }
    memset(deep, '(', 300);
    cr_expect_eq(exo_expression_parse(&e, deep, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "nested too deeply"), "%s", err.text);
    memset(deep, '-', 300);
    cr_expect_eq(exo_expression_parse(&e, deep, &err), EXO_INVAL);
}

static exo_status
score_of(const char *reward, double *out, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_reward *r = NULL;
    const int32_t tokens[] = {5, 5, 6, 7};
    const exo_answer answer = {.tokens = tokens, .length = 4};
    exo_status st = exo_reward_read(&r, parse(&doc, reward), "reward", err);
    if (st == EXO_OK)
        st = exo_reward_score(r, &answer, out, err);
    exo_reward_free(&r);
    exo_config_free(&doc);
    return st;
}

Test(tuning, rewards_of_a_list_are_added_by_their_weights)
{
    double score = 0;
    exo_err err = {0};
    cr_assert_eq(
        score_of("{reward: [{name: share, token: 5, weight: 2}, {name: expression, formula: "
                 "length, weight: -0.5}, {name: share, token: 6}]}",
                 &score, &err),
        EXO_OK, "%s", err.text);
    cr_expect_float_eq(score, 2 * 0.5 - 0.5 * 4 + 0.25, 1e-12, "%g", score);
    const struct {
        const char *reward, *reason;
    } bad[] = {
        {"{reward: []}", "the list is empty"},
        {"{reward: [{name: share, token: 5, wait: 2}]}", "unknown key 'wait'"},
        {"{reward: {name: share, token: 5, weight: 2}}", "unknown key 'weight'"},
        {"{reward: [{token: 5}]}", "the key 'name' is missing"},
        {"{reward: {name: expression}}", "the key 'formula' is missing"},
        {"{reward: {name: expression, formula: 1 +}}", "formula: column 4: expected"},
        {"{reward: {name: expression, formula: log(0)}}", "not finite"},
        {"{reward: {name: model}}", "the key 'path' is missing"},
        {"{reward: {name: model, path: /nowhere}}", "is no reward model"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_neq(score_of(bad[i].reward, &score, &err), EXO_OK, "%s", bad[i].reward);
        cr_expect(strstr(err.text, bad[i].reason), "%s: %s", bad[i].reward, err.text);
    }
}

/* --- Texts ------------------------------------------------------------------------------------ */

static void
write_file(char *path, size_t size, const char *folder, const char *name, const char *text)
{
    snprintf(path, size, "%s/%s", folder, name);
    cr_assert_eq(exo_file_write_atomic(path, text, strlen(text), NULL), EXO_OK);
}

Test(tuning, a_line_that_is_no_text_is_refused_with_its_number)
{
    const struct {
        bool comparisons;
        const char *line, *keys, *reason;
    } cases[] = {
        {false, "{\"prompt\": \"a\"}", "", ":2: \"answer\" is missing"},
        {false, "{\"prompt\": 3, \"answer\": \"b\"}", "", ":2: \"prompt\" is missing"},
        {false, "{\"prompt\": \"\", \"answer\": \"b\"}", "", ":2: \"prompt\": it has no tokens"},
        {false, "[1]", "", ":2:1: no JSON object, but another value"},
        {false, "{\"prompt\": ", "", ":2:11: no JSON object: "},
        {false, "{\"prompt\": \"a\", \"answer\": \"b\", \"answer\": \"b\"}", "", ":2:"},
        {false, "{\"prompt\": \"a\", \"answer\": \"bbbbbbbbbbbbbbbbbbbb\"}", "",
         "the model takes 17: set model.context, or data.truncate"},
        {false, "{\"prompt\": \"aaaaaaaaaaaaaaaaaaaa\", \"answer\": \"b\"}", ", truncate: true",
         "the model takes 17"},
        {false, "{\"prompt\": \"a\", \"answer\": \"\xc3\xa9\"}", "",
         "beyond the model's vocabulary"},
        {false, "{\"prompt\": \"a\", \"answer\": \"b\"}", ", texts: 1", "unknown key 'texts'"},
        {true, "{\"prompt\": \"a\", \"chosen\": \"b\"}", "", ":2: \"rejected\" is missing"},
    };
    char folder[64], path[128], config[512];
    temp_folder(folder, sizeof folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_config_doc *doc = NULL;
        exo_tuner *tuner = NULL;
        exo_err err = {0};
        snprintf(
            config, sizeof config,
            "{\"prompt\": \"a\", \"answer\": \"b\", \"chosen\": \"b\", \"rejected\": \"c\"}\n%s\n",
            cases[i].line);
        write_file(path, sizeof path, folder, "texts.jsonl", config);
        snprintf(config, sizeof config, "{model: %s, data: {path: %s%s}}",
                 cases[i].comparisons ? VALUED : MODEL, path, cases[i].keys);
        cr_expect_neq(exo_tuner_read(&tuner, parse(&doc, config),
                                     cases[i].comparisons ? EXO_TUNER_RANKING : EXO_TUNER_ANSWERS,
                                     &err),
                      EXO_OK, "%s", cases[i].line);
        cr_expect(strstr(err.text, cases[i].reason), "%s: %s", cases[i].line, err.text);
        exo_tuner_free(&tuner);
        exo_config_free(&doc);
    }
    temp_remove(folder);
}

Test(tuning, lines_of_other_programs_are_read)
{
    char folder[64], path[128], config[512];
    exo_config_doc *doc = NULL;
    exo_tuner *tuner = NULL;
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    write_file(
        path, sizeof path, folder, "texts.jsonl",
        "\xEF\xBB\xBF{\"id\": 18446744073709551616, \"prompt\": \"a\", \"answer\": \"b\"}\r\n"
        " \r\n{\"note\": \"\\u0000\", \"prompt\": \"a\", \"answer\": \"b\"}\r\n");
    snprintf(config, sizeof config, "{model: %s, data: {path: %s}}", MODEL, path);
    cr_expect_eq(exo_tuner_read(&tuner, parse(&doc, config), EXO_TUNER_ANSWERS, &err), EXO_OK, "%s",
                 err.text);
    exo_tuner_free(&tuner);
    exo_config_free(&doc);
    temp_remove(folder);
}

/* --- Tuners ----------------------------------------------------------------------------------- */

/* Makes a tuner of texts that are added. */
static exo_tuner *
new_tuner(exo_config_doc **doc, const char *config, exo_tuner_kind kind)
{
    exo_tuner *tuner = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_tuner_read(&tuner, parse(doc, config), kind, &err), EXO_OK, "%s", err.text);
    return tuner;
}

static void
add_text(exo_tuner *t, const char *prompt, const char *answer)
{
    int32_t tokens[2][64];
    exo_err err = {0};
    for (size_t i = 0; i < strlen(prompt); i++)
        tokens[0][i] = prompt[i];
    for (size_t i = 0; i < strlen(answer); i++)
        tokens[1][i] = answer[i];
    cr_assert_eq(exo_tuner_add(t, tokens[0], strlen(prompt), tokens[1], strlen(answer), &err),
                 EXO_OK, "%s", err.text);
}

/* The mean of -log p of the answers' tokens, with one pass for each. */
static double
loss_of(const char *model_text, uint64_t seed, const char *const (*texts)[2], size_t count)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_tape *tape = NULL;
    exo_err err = {0};
    double sum = 0, tokens = 0;
    exo_config *config = parse(&doc, model_text);
    const char *name = NULL;
    exo_config_string(config, "name", NULL, &name, NULL);
    cr_assert_eq(exo_model_new_named(&model, name, config, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_values(model, seed, &params, &err), EXO_OK);
    cr_assert_eq(exo_tape_new(&tape, &err), EXO_OK);
    for (size_t i = 0; i < count; i++) {
        int32_t in[64], targets[64];
        float log_probs[64];
        char whole[64];
        size_t length = (size_t)snprintf(whole, sizeof whole, "%s%s", texts[i][0], texts[i][1]) - 1;
        for (size_t k = 0; k < length; k++) {
            in[k] = whole[k];
            targets[k] = whole[k + 1];
        }
        exo_batch batch = {.size = 1, .num_fields = 1, .data = {in}};
        batch.fields[0] =
            (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {length}};
        exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
        exo_tape_begin(tape, params, &(exo_pass){0});
        cr_assert(exo_model_forward(model, tape, &batch, &outputs));
        exo_tensor_read(exo_log_probs(tape, exo_outputs_logits(&outputs, "logits"),
                                      exo_tape_input(tape, EXO_I32, 1, &length, targets), 1),
                        log_probs);
        for (size_t k = strlen(texts[i][0]) - 1; k < length; k++, tokens++)
            sum -= (double)log_probs[k];
    }
    exo_tape_free(&tape);
    exo_params_free(&params);
    exo_model_drop(&model);
    exo_config_free(&doc);
    return sum / tokens;
}

static const char *const lines[][2] = {
    {"ab:", "cdef"}, {"b:", "xy"}, {"abcde:", "f"}, {"q:", "uuuuuuuuuuuuuuu"}, {"z:", "zz"}};

enum {
    LINES = sizeof lines / sizeof *lines
};

Test(tuning, sft_takes_the_mean_over_the_answers_tokens)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    exo_tuner_figures first, rest = {0};
    exo_tuner *t = new_tuner(&doc,
                             "{model: " MODEL ", validation: 0, batch: 5, rows: 2, steps: 60, "
                             "optimizer: {name: adamw, lr: 1e-2}}",
                             EXO_TUNER_ANSWERS);
    for (size_t i = 0; i < LINES; i++)
        add_text(t, lines[i][0], lines[i][1]);
    cr_assert_eq(exo_tuner_start(t, 9, 0, 1, 0, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tuner_evaluate(t, NULL, &first, &err), EXO_OK, "%s", err.text);
    cr_expect_float_eq(first.loss, loss_of(MODEL, 9, lines, LINES), 1e-5, "%g", first.loss);
    for (uint64_t s = 0; s < exo_tuner_steps(t); s++)
        cr_assert_eq(exo_tuner_step(t, NULL, s, &rest, &err), EXO_OK, "%s", err.text);
    cr_expect_lt(rest.loss, 0.2 * first.loss, "%g", rest.loss);
    exo_tuner_free(&t);
    exo_config_free(&doc);
}

/* Comparisons: the chosen answer has more a. */
static void
add_comparisons(exo_tuner *t, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char chosen[8] = "bbbbbb", rejected[8] = "bbbbbb", prompt[4] = "p:";
        prompt[0] = (char)('p' + i % 7);
        for (size_t k = 0; k <= i % 3; k++)
            chosen[(i + 2 * k) % 6] = 'a';
        chosen[3 + i % 3] = '\0'; /* answers of several lengths */
        if (!strchr(chosen, 'a'))
            chosen[0] = 'a';
        add_text(t, prompt, chosen);
        add_text(t, prompt, rejected);
    }
}

Test(tuning, a_reward_model_ranks_comparisons_that_it_has_not_seen)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    exo_tuner_figures f = {0};
    exo_tuner *t =
        new_tuner(&doc,
                  "{model: " VALUED ", validation: 25 %, batch: 8, epochs: 8, smoothing: "
                  "0.05, optimizer: {name: adamw, lr: 1e-2}}",
                  EXO_TUNER_RANKING);
    add_comparisons(t, 64);
    cr_assert_eq(exo_tuner_start(t, 3, 0, 1, 0, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_tuner_held_out(t), 16);
    cr_expect_eq(exo_tuner_steps(t), 48);
    for (uint64_t s = 0; s < exo_tuner_steps(t); s++)
        cr_assert_eq(exo_tuner_step(t, NULL, s, &f, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tuner_evaluate(t, NULL, &f, &err), EXO_OK);
    cr_expect_gt(f.accuracy, 0.9, "%g", f.accuracy);
    cr_expect_gt(f.margin, 0.5, "%g", f.margin);
    cr_expect_eq(f.samples, 16);
    exo_tuner_free(&t);
    exo_config_free(&doc);
}

Test(tuning, dpo_begins_with_log_2_and_learns_the_preference)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    exo_tuner_figures f = {0};
    exo_tuner *t = new_tuner(&doc,
                             "{model: " MODEL ", validation: 25 %, batch: 8, epochs: 8, beta: 0.2, "
                             "optimizer: {name: adamw, lr: 1e-2}}",
                             EXO_TUNER_DPO);
    add_comparisons(t, 64);
    cr_assert_eq(exo_tuner_start(t, 3, 0, 1, 0, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tuner_evaluate(t, NULL, &f, &err), EXO_OK, "%s", err.text);
    cr_expect_float_eq(f.loss, log(2), 1e-6, "%g", f.loss);
    cr_expect_eq(f.accuracy, 0.5);
    for (uint64_t s = 0; s < exo_tuner_steps(t); s++)
        cr_assert_eq(exo_tuner_step(t, NULL, s, &f, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tuner_evaluate(t, NULL, &f, &err), EXO_OK);
    cr_expect_gt(f.accuracy, 0.9, "%g", f.accuracy);
    exo_tuner_free(&t);
    exo_config_free(&doc);
}

/* --- Models that come back -------------------------------------------------------------------- */

static void
read_model(exo_model **model, exo_params **params, const char *folder, bool values)
{
    char text[256];
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    snprintf(text, sizeof text, "{path: %s, values: %s}", folder, values ? "true" : "false");
    cr_assert_eq(exo_model_new_named(model, "gpt", parse(&doc, text), &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_model_values(*model, 77, params, &err), EXO_OK, "%s", err.text);
    exo_config_free(&doc);
}

static bool
same(const exo_params *a, exo_model *of, exo_params *b)
{
    return exo_params_numel(a) == exo_params_numel(b) &&
           memcmp(exo_params_values((exo_params *)(uintptr_t)a), exo_params_values(b),
                  exo_model_numel(of) * sizeof(float)) == 0;
}

Test(tuning, a_value_head_comes_back_with_its_folder)
{
    char folder[64], path[128];
    exo_config_doc *doc = NULL;
    exo_model *model = NULL, *again = NULL, *plain = NULL;
    exo_params *params = NULL, *back = NULL, *trunk = NULL;
    exo_err err = {0};
    const char *name = NULL;
    temp_folder(folder, sizeof folder);
    exo_config *config = parse(&doc, VALUED);
    exo_config_string(config, "name", NULL, &name, NULL);
    cr_assert_eq(exo_model_new_named(&model, "gpt", config, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_values(model, 5, &params, &err), EXO_OK);
    cr_assert_eq(exo_decoder_save(folder, model, params, EXO_F32, 0, &err), EXO_OK, "%s", err.text);
    read_model(&again, &back, folder, true);
    cr_expect(same(params, model, back), "the parameters are other ones");
    read_model(&plain, &trunk, folder, false);
    cr_expect_eq(exo_model_numel(plain) + 17, exo_model_numel(model));
    /* a save without a head leaves none */
    cr_assert_eq(exo_decoder_save(folder, plain, trunk, EXO_F32, 0, &err), EXO_OK, "%s", err.text);
    exo_params_free(&back);
    exo_model_drop(&again);
    read_model(&again, &back, folder, true);
    cr_expect_not(same(params, model, back), "an old head was read");
    /* that of another width is refused */
    write_file(path, sizeof path, folder, "value_head.safetensors", "no tensors");
    exo_params_free(&back);
    cr_expect_neq(exo_model_values(again, 1, &back, &err), EXO_OK);
    cr_expect(strstr(err.text, "value_head.safetensors"), "%s", err.text);
    exo_params_free(&params);
    exo_params_free(&trunk);
    exo_model_drop(&model);
    exo_model_drop(&again);
    exo_model_drop(&plain);
    exo_config_free(&doc);
    temp_remove(folder);
}

/* Answers of many lengths, in more passes than one, have the bits that each has alone. */
static void
expect_same_scores_together(exo_reward *reward)
{
    enum {
        COUNT = 150,
        MOST = 18
    };
    int32_t tokens[MOST];
    exo_answer answers[COUNT];
    double together[COUNT], alone;
    exo_err err = {0};
    for (int32_t i = 0; i < MOST; i++)
        tokens[i] = 'a' + i * i % 7;
    for (size_t i = 0; i < COUNT; i++)
        answers[i] = (exo_answer){.prompt = tokens + i % 3,
                                  .prompt_length = 1 + i % 2,
                                  .tokens = tokens + i % 5,
                                  .length = 1 + i * 7 % 13};
    cr_expect(exo_reward_batches(reward));
    cr_assert_eq(exo_reward_score_many(reward, answers, COUNT, together, &err), EXO_OK, "%s",
                 err.text);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(exo_reward_score(reward, &answers[i], &alone, &err), EXO_OK);
        cr_expect_eq(together[i], alone, "answer %zu: %.17g together, %.17g alone", i, together[i],
                     alone);
    }
    answers[COUNT - 1].length = 1 << 20;
    cr_expect_eq(exo_reward_score_many(reward, answers, COUNT, together, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "longer than the context"), "%s", err.text);
}

/* The score of a reward model is its value at the last token, less a mean, over a deviation. */
Test(tuning, the_reward_model_gives_the_value_at_the_last_token)
{
    char folder[64], text[256];
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    exo_tuner_figures f = {0};
    double sum = 0, squares = 0;
    temp_folder(folder, sizeof folder);
    exo_tuner *t = new_tuner(&doc, "{model: " VALUED ", validation: 0, optimizer: {lr: 1e-2}}",
                             EXO_TUNER_RANKING);
    add_comparisons(t, 4);
    cr_assert_eq(exo_tuner_start(t, 3, 0, 1, 0, &err), EXO_OK);
    cr_assert_eq(exo_tuner_step(t, NULL, 0, &f, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tuner_evaluate(t, NULL, &f, &err), EXO_OK);
    cr_assert_eq(exo_tuner_save(t, folder, &err), EXO_OK, "%s", err.text);
    exo_tuner_free(&t);
    exo_config_free(&doc);
    snprintf(text, sizeof text, "{reward: {name: model, path: %s, mean: 0.25, deviation: 2}}",
             folder);
    exo_config_doc *options = NULL;
    exo_reward *reward = NULL;
    cr_assert_eq(exo_reward_read(&reward, parse(&options, text), "reward", &err), EXO_OK, "%s",
                 err.text);
    const struct {
        const char *prompt, *answer;
    } all[] = {{"p:", "abb"}, {"p:", "bbbbbb"}, {"q:", "baba"}, {"q:", "bbbbbb"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int32_t prompt[8], answer[8];
        double score = 0;
        for (size_t k = 0; k < strlen(all[i].prompt); k++)
            prompt[k] = all[i].prompt[k];
        for (size_t k = 0; k < strlen(all[i].answer); k++)
            answer[k] = all[i].answer[k];
        const exo_answer a = {.prompt = prompt,
                              .prompt_length = strlen(all[i].prompt),
                              .tokens = answer,
                              .length = strlen(all[i].answer)};
        cr_assert_eq(exo_reward_score(reward, &a, &score, &err), EXO_OK, "%s", err.text);
        sum += 2 * score + 0.25;
        squares += (2 * score + 0.25) * (2 * score + 0.25);
    }
    expect_same_scores_together(reward);
    /* the tuner's own figures of the same four answers, in a batch that is padded */
    snprintf(text, sizeof text, "{model: {name: gpt, path: %s, values: true}, validation: 0}",
             folder);
    t = new_tuner(&doc, text, EXO_TUNER_RANKING);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        add_text(t, all[i].prompt, all[i].answer);
    cr_assert_eq(exo_tuner_start(t, 1, 0, 1, 0, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tuner_evaluate(t, NULL, &f, &err), EXO_OK);
    cr_expect_float_eq(f.mean, sum / 4, 1e-5, "%g, expected %g", f.mean, sum / 4);
    cr_expect_float_eq(f.deviation, sqrt(fmax(0, squares / 4 - sum * sum / 16)), 1e-4, "%g",
                       f.deviation);
    exo_reward_free(&reward);
    exo_config_free(&options);
    exo_tuner_free(&t);
    exo_config_free(&doc);
    temp_remove(folder);
}
