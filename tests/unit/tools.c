/* Tools of a language model: the calculator, its reward, and what is refused. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/reward.h>
#include <exogym/tool.h>

#include "experience/calculate.h"

/* --- Arithmetic ------------------------------------------------------------------------------- */

Test(tools, expressions_have_their_values)
{
    static const struct {
        const char *text;
        double value; /* NAN: it is no expression */
    } cases[] = {
        {"7", 7},    {"3+4", 7},  {"2+3*4", 14},  {"(2+3)*4", 20}, {"7-2-1", 4},     {"8/4/2", 1},
        {"-3+5", 2}, {"--2", 2},  {" 1 + 2 ", 3}, {"1.5*2", 3},    {"2*-3", -6},     {"", NAN},
        {"+", NAN},  {"3+", NAN}, {"3 4", NAN},   {"(3", NAN},     {"3)", NAN},      {"1/0", NAN},
        {"1.", NAN}, {".5", NAN}, {"x", NAN},     {"3++4", NAN},   {"((((1))))", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double value = 0;
        bool good = exo_calculate(cases[i].text, strlen(cases[i].text), &value);
        cr_expect_eq(good, !isnan(cases[i].value), "'%s'", cases[i].text);
        if (good)
            cr_expect_float_eq(value, cases[i].value, 1e-12, "'%s': %g", cases[i].text, value);
    }
    char deep[400];
    double value;
    memset(deep, '(', sizeof deep);
    cr_expect_not(exo_calculate(deep, sizeof deep, &value));
    cr_expect(exo_last_number("it is 12 or -3.5.", 17, &value) && value == -3.5);
    cr_expect(exo_last_number("7", 1, &value) && value == 7);
    cr_expect_not(exo_last_number("none", 4, &value));
}

/* --- The calculator --------------------------------------------------------------------------- */

static exo_status
read(exo_tool **out, const exo_tokenizer *tokenizer, const char *text, exo_err *err)
{
    exo_config_doc *doc = NULL;
    cr_assert_eq(exo_config_parse(&doc, "test", text, NULL), EXO_OK);
    exo_status st = exo_tool_read(out, exo_config_root(doc), "tool", tokenizer, err);
    exo_config_free(&doc);
    return st;
}

/* The reply to one turn, as text. */
static void
ask(exo_tool *tool, const exo_tokenizer *tokenizer, const char *said, bool stopped, char out[64],
    double *reward)
{
    int32_t *tokens = NULL, reply[32];
    uint8_t mask[64];
    char *text = NULL;
    size_t count = 0, size = 0;
    exo_err err = {0};
    exo_rng rng;
    cr_assert_eq(exo_tokenizer_encode(tokenizer, said, strlen(said), false, &tokens, &count, NULL),
                 EXO_OK);
    memset(mask, 1, sizeof mask);
    exo_rng_init(&rng, 1, EXO_RNG_TOOL, 0, 0);
    const exo_tool_turn turn = {.prompt = tokens,
                                .prompt_length = 1,
                                .tokens = tokens,
                                .mask = mask,
                                .length = count,
                                .stopped = stopped,
                                .rng = &rng,
                                .tokenizer = tokenizer};
    exo_tool_reply r = {.tokens = reply};
    cr_assert_eq(exo_tool_answer(tool, NULL, &turn, &r, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tokenizer_decode(tokenizer, reply, r.length, false, &text, &size, NULL),
                 EXO_OK);
    snprintf(out, 64, "%s", text);
    *reward = r.reward;
    exo_free(tokens);
    exo_free(text);
}

Test(tools, the_calculator_replies_with_the_value)
{
    static const struct {
        const char *said, *reply;
        double reward;
        bool stopped;
    } cases[] = {
        {"3+4=", "7!", 0.5, true},       {"1/4=", "0.25!", 0.5, true}, {"what=", "?", 0, true},
        {"3+4", "?", 0, false},          {"3=4=", "?", 0, true},       {"1/3=", "?", 0, true},
        {"100*10=", "1000!", 0.5, true},
    };
    exo_tool *tool = NULL;
    exo_tokenizer *tokenizer = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_tokenizer_bytes(&tokenizer, NULL), EXO_OK);
    cr_assert_eq(read(&tool, tokenizer,
                      "{tool: {name: calculator, turns: 4, after: '!', valid: 0.5, reply_tokens: "
                      "5}}",
                      &err),
                 EXO_OK, "%s", err.text);
    cr_expect_eq(exo_tool_shape_of(tool)->turns, 4);
    cr_expect_eq(exo_tool_shape_of(tool)->stop[0], '=');
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char reply[64];
        double reward = -1;
        ask(tool, tokenizer, cases[i].said, cases[i].stopped, reply, &reward);
        cr_expect_str_eq(reply, cases[i].reply, "%s", cases[i].said);
        cr_expect_eq(reward, cases[i].reward, "%s: %g", cases[i].said, reward);
    }
    exo_tool_free(&tool);
    cr_assert_eq(read(&tool, tokenizer, "{tool: {name: calculator, open: '<', close: '>'}}", &err),
                 EXO_OK, "%s", err.text);
    char reply[64];
    double reward;
    ask(tool, tokenizer, "I take <2> or <2*3>", true, reply, &reward);
    cr_expect_str_eq(reply, "6");
    ask(tool, tokenizer, "2*3>", true, reply, &reward);
    cr_expect_str_eq(reply, "?");
    exo_tool_free(&tool);
    exo_tokenizer_drop(&tokenizer);
}

Test(tools, what_is_wrong_is_said)
{
    static const struct {
        const char *text, *reason;
        bool numbers; /* no tokenizer */
    } cases[] = {
        {"{tool: calculatr}", "did you mean 'calculator'", false},
        {"{tool: {turns: 2}}", "the key 'name' is missing", false},
        {"{tool: {name: calculator, close: '=='}}", "must be one token", false},
        {"{tool: {name: calculator, marks: 3}}", "marks", false},
        {"{tool: {name: calculator, invalid: 'no value', reply_tokens: 3}}", "reply_tokens is 3",
         false},
        {"{tool: {name: calculator, turns: 0}}", "turns", false},
        {"{tool: calculator}", "prompts.tokens are numbers", true},
    };
    exo_tokenizer *tokenizer = NULL;
    exo_tool *tool = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&tokenizer, NULL), EXO_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        cr_expect_eq(read(&tool, cases[i].numbers ? NULL : tokenizer, cases[i].text, &err),
                     EXO_INVAL, "%s", cases[i].text);
        cr_expect_not_null(strstr(err.text, cases[i].reason), "%s: %s", cases[i].text, err.text);
    }
    cr_expect_eq(read(&tool, tokenizer, "{}", NULL), EXO_OK);
    cr_expect_null(tool);
    exo_tokenizer_drop(&tokenizer);
}

/* --- Failures --------------------------------------------------------------------------------- */

/* A tool that fails in turn 0, and has a reward beyond floats in turn 1. */
static exo_status
broken_reply(void *self, void *state, const exo_tool_turn *turn, exo_tool_reply *out, exo_err *err)
{
    (void)self;
    (void)state;
    out->reward = 1e300;
    return turn->number == 0 ? exo_fail(err, EXO_CLOSED, "the shop is closed") : EXO_OK;
}

static exo_status
broken_score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    (void)self;
    (void)answer;
    (void)out;
    (void)err;
    return EXO_CLOSED;
}

static const exo_tool_class broken_tool = {
    .name = "broken", .shape = {.turn_tokens = 1, .reply_tokens = 1}, .reply = broken_reply};
static const exo_reward_class broken_reward = {.name = "broken", .score = broken_score};

/* CLOSED would be the end of a maker's work, and of the run, without an error. */
Test(tools, a_failure_of_any_status_is_a_failure)
{
    exo_tool *tool = NULL;
    exo_reward *reward = NULL;
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    exo_tool_reply reply = {0};
    double score = 0;
    cr_assert_eq(exo_tool_class_register(&broken_tool, NULL), EXO_OK);
    cr_assert_eq(exo_reward_class_register(&broken_reward, NULL), EXO_OK);
    cr_assert_eq(read(&tool, NULL, "{tool: broken}", &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_tool_answer(tool, NULL, &(exo_tool_turn){.number = 0}, &reply, &err),
                 EXO_FAILED);
    cr_expect_str_eq(err.text, "the tool 'broken' failed in turn 0: the shop is closed");
    cr_expect_eq(exo_tool_answer(tool, NULL, &(exo_tool_turn){.number = 1}, &reply, &err),
                 EXO_FAILED);
    cr_expect_not_null(strstr(err.text, "no finite float"), "%s", err.text);
    cr_assert_eq(exo_config_parse(&doc, "test", "{reward: broken}", NULL), EXO_OK);
    cr_assert_eq(exo_reward_read(&reward, exo_config_root(doc), "reward", &err), EXO_OK);
    cr_expect_eq(exo_reward_score(reward, &(exo_answer){0}, &score, &err), EXO_FAILED);
    cr_expect_not_null(strstr(err.text, "the reward 'broken'"), "%s", err.text);
    exo_tool_free(&tool);
    exo_reward_free(&reward);
    exo_config_free(&doc);
}

/* --- The reward ------------------------------------------------------------------------------- */

Test(tools, the_reward_asks_for_the_right_result)
{
    static const struct {
        const char *by, *prompt, *answer, *mask;
        double score;
    } cases[] = {
        {"tool", "3+4?", "3+4=7", "11110", 1},
        {"tool", "3+4?", "3+5=8", "11110", 0},
        {"tool", "3+4?", "7=?", "110", 0},
        {"tool", "12", "3*4=12ok", "11110011", 1},
        {"tool", "5", "1=12+3=5", "11011110", 1},
        {"policy", "3+4?", "3+4=7so 8", "111101111", 0},
        {"policy", "3+4?", "3+4=9so 7", "111101111", 1},
    };
    exo_tokenizer *tokenizer = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&tokenizer, NULL), EXO_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        int32_t prompt[16], answer[16];
        uint8_t mask[16];
        double score = -1;
        exo_reward *reward = NULL;
        exo_config_doc *doc = NULL;
        exo_err err = {0};
        size_t length = strlen(cases[i].answer);
        snprintf(text, sizeof text, "{reward: {name: calculation, by: %s}}", cases[i].by);
        cr_assert_eq(exo_config_parse(&doc, "test", text, NULL), EXO_OK);
        cr_assert_eq(exo_reward_read(&reward, exo_config_root(doc), "reward", &err), EXO_OK, "%s",
                     err.text);
        for (size_t k = 0; k < strlen(cases[i].prompt); k++)
            prompt[k] = cases[i].prompt[k];
        for (size_t k = 0; k < length; k++) {
            answer[k] = cases[i].answer[k];
            mask[k] = cases[i].mask[k] == '1';
        }
        const exo_answer a = {.prompt = prompt,
                              .prompt_length = strlen(cases[i].prompt),
                              .tokens = answer,
                              .length = length,
                              .mask = mask,
                              .tokenizer = tokenizer};
        cr_assert_eq(exo_reward_score(reward, &a, &score, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(score, cases[i].score, "%s %s", cases[i].prompt, cases[i].answer);
        exo_reward_free(&reward);
        exo_config_free(&doc);
    }
    exo_tokenizer_drop(&tokenizer);
}

/* A model may have more numbers than its tokenizer has tokens: 258 is of no byte. */
Test(tools, rewards_and_tools_read_answers_with_numbers_of_no_token)
{
    const int32_t prompt[] = {'1', '+', '2', '?'}, answer[] = {258, '1', '+', '2', 259, '=', '3'};
    const uint8_t mask[] = {1, 1, 1, 1, 1, 1, 0};
    static const struct {
        const char *reward;
        double score;
    } cases[] = {
        {"{reward: {name: expression, formula: 'characters + 10 * length'}}", 65},
        {"{reward: calculation}", 1},
    };
    exo_tokenizer *tokenizer = NULL;
    cr_assert_eq(exo_tokenizer_bytes(&tokenizer, NULL), EXO_OK);
    const exo_answer a = {.prompt = prompt,
                          .prompt_length = 4,
                          .tokens = answer,
                          .length = 7,
                          .mask = mask,
                          .tokenizer = tokenizer};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double score = -1;
        exo_reward *reward = NULL;
        exo_config_doc *doc = NULL;
        exo_err err = {0};
        cr_assert_eq(exo_config_parse(&doc, "test", cases[i].reward, NULL), EXO_OK);
        cr_assert_eq(exo_reward_read(&reward, exo_config_root(doc), "reward", &err), EXO_OK, "%s",
                     err.text);
        cr_expect_eq(exo_reward_score(reward, &a, &score, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(score, cases[i].score, "%s: %g", cases[i].reward, score);
        exo_reward_free(&reward);
        exo_config_free(&doc);
    }
    exo_tokenizer_drop(&tokenizer);
}
