/* Items that a learner refuses: what does not fit its pass, and what would spoil the weights. Each error names
 * the item and its maker. Read next: experience/learner_batch.c. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/comm.h>

#include "experience/learner.h"
#include "support/good_item.h"

/* Learner `rank` of `size`. Its context has room for the longest answer of good_item. */
static exo_learner *
learner_of(exo_config_doc **doc, const char *algorithm, uint32_t rank, uint32_t size, exo_err *err)
{
    char text[384];
    exo_learner *learner = NULL;
    snprintf(text, sizeof text,
             "{algorithm: %s, model: {name: gpt, layers: 1, heads: 1, width: 16, context: %d, "
             "vocabulary: 8}}",
             algorithm, PROMPT + 4);
    cr_assert_eq(exo_config_parse(doc, "test", text, err), EXO_OK, "%s", err->text);
    cr_assert_eq(exo_learner_read(&learner, exo_config_root(*doc), err), EXO_OK, "%s", err->text);
    cr_assert_eq(exo_learner_start(learner, 1, rank, size, 0, err), EXO_OK, "%s", err->text);
    return learner;
}

/* What is wrong with the last of two items. */
static exo_status
learn_from(const char *algorithm, void (*spoil)(exo_experience *), exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_learner *learner = learner_of(&doc, algorithm, 0, 1, err);
    exo_learner_figures figures;
    exo_experience e[2];
    exo_item *items[2];
    for (uint64_t i = 0; i < 2; i++) {
        items[i] = good_item(&e[i]);
        e[i].id = i;
        e[i].filtered = false;
    }
    spoil(&e[1]);
    exo_status st = exo_learner_update(learner, NULL, e, 2, &figures, err);
    exo_item_drop(&items[0]);
    exo_item_drop(&items[1]);
    exo_learner_free(&learner);
    exo_config_free(&doc);
    return st;
}

static void
leave(exo_experience *e)
{
    (void)e;
}

static void
set_one_answer(exo_experience *e)
{
    e->answers = 1;
}

static void
set_temperature(exo_experience *e)
{
    e->temperature = 0.75f;
}

static void
set_filtered(exo_experience *e)
{
    e->filtered = true;
}

static void
set_last_token(exo_experience *e)
{
    e->tokens[TOKENS - 1] = 8;
}

static void
set_first_token(exo_experience *e)
{
    e->prompt_tokens[0] = 8;
}

Test(learner_items, a_learner_refuses_what_does_not_fit_its_pass)
{
    const struct {
        void (*spoil)(exo_experience *);
        const char *word;
    } cases[] = {{set_temperature, "item 1 of maker 1 with 0.75"},
                 {set_filtered, "the same generate.temperature"},
                 {set_last_token, "8"},
                 {set_first_token, "embedding: token 8"}};
    exo_err err = {0};
    cr_expect_eq(learn_from("reinforce++", leave, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(learn_from("reinforce++", cases[i].spoil, &err), EXO_INVAL, "case %zu", i);
        cr_expect_neq(strstr(err.text, cases[i].word), NULL, "case %zu: %s", i, err.text);
    }
}

static void
set_large_scores(exo_experience *e)
{
    for (size_t a = 0; a < ANSWERS; a++)
        e->scores[a] = 3e38;
}

static void
set_opposite_scores(exo_experience *e)
{
    e->scores[0] = 1e25;
    e->scores[1] = -1e25;
}

/* Their mean and the loss are finite, but the gradient is not. */
static void
set_largest_scores(exo_experience *e)
{
    e->scores[0] = 1e38;
    e->scores[1] = -1e38;
}

static void
set_low_log_prob(exo_experience *e)
{
    e->scores[1] = -1;
    e->log_probs[4] = -1e30f;
}

Test(learner_items, numbers_that_would_spoil_the_weights_are_refused_with_their_maker)
{
    const struct {
        const char *algorithm;
        void (*spoil)(exo_experience *);
        const char *words[2];
    } cases[] = {
        {"grpo",
         set_large_scores,
         {"the sum of the scores of version 0 is not finite", "item 1 of maker 1 has the largest"}},
        {"{name: dr_grpo, length: 4}, max_norm: 0",
         set_opposite_scores,
         {"the square of the gradient of version 0 is", "of maker 1 has the largest score, 1e+25"}},
        {"{name: dr_grpo, length: 4}",
         set_largest_scores,
         {"the square of the gradient of version 0 is", "of maker 1 has the largest score, 1e+38"}},
        {"ppo, critic: {name: gpt, layers: 1, heads: 1, width: 16, context: 8, vocabulary: 8, "
         "values: "
         "true}, max_norm: 0", /* its advantages are whitened, its returns are not */
         set_opposite_scores,
         {"the square of the critic's gradient of version 0 is", "lower the learning rate"}},
        {"reinforce++",
         set_low_log_prob,
         {"the loss of version 0 is not finite",
          "item 1 of maker 1 the lowest log-probability, -1e+30 at token 2 of answer 1"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        cr_expect_eq(learn_from(cases[i].algorithm, cases[i].spoil, &err), EXO_FAILED);
        for (size_t k = 0; k < 2; k++)
            cr_expect_not_null(strstr(err.text, cases[i].words[k]), "case %zu: %s", i, err.text);
    }
}

/* One of two learners that add up, in a thread of its own. */
struct summand {
    exo_learner *learner;
    exo_group *group;
    uint64_t id;
    void (*spoil)(exo_experience *);
    exo_status status;
    exo_err err;
};

static void *
learn_one_item(void *argument)
{
    struct summand *s = argument;
    exo_learner_figures figures;
    exo_experience e;
    exo_item *item = good_item(&e);
    e.id = s->id;
    e.filtered = false;
    s->spoil(&e);
    s->status = exo_learner_update(s->learner, s->group, &e, 1, &figures, &s->err);
    exo_item_drop(&item);
    exo_group_close(&s->group); /* as a trainer that fails */
    return NULL;
}

/* Two learners that add up learn from an item each. */
static void
learn_together(const char *algorithm, struct summand s[2])
{
    exo_config_doc *docs[2] = {NULL};
    exo_comm *comm = NULL;
    pthread_t threads[2];
    cr_assert_eq(exo_comm_local(&comm, 2, exo_clock_real(), NULL), EXO_OK);
    for (uint32_t k = 0; k < 2; k++) {
        s[k].learner = learner_of(&docs[k], algorithm, k, 2, &s[k].err);
        cr_assert_eq(exo_group_open(&s[k].group, comm, k, "trainer", NULL), EXO_OK);
        cr_assert_eq(pthread_create(&threads[k], NULL, learn_one_item, &s[k]), 0);
    }
    for (int k = 0; k < 2; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < 2; k++) {
        exo_learner_free(&s[k].learner);
        exo_config_free(&docs[k]);
    }
    exo_comm_drop(&comm);
}

/* The other trainer fails because that one is gone, and accuses no item. */
Test(learner_items, only_the_trainer_whose_items_are_not_finite_names_them)
{
    const struct {
        const char *algorithm;
        void (*spoil)(exo_experience *);
        const char *what;
    } cases[] = {{"grpo", set_large_scores, "the sum of the scores"},
                 {"{name: dr_grpo, length: 4}", set_largest_scores, "the gradient of version 0"},
                 {"reinforce++", set_low_log_prob, "the loss"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct summand s[2] = {{.spoil = leave}, {.id = 1, .spoil = cases[i].spoil}};
        learn_together(cases[i].algorithm, s);
        cr_expect_eq(s[0].status, EXO_PEER_LOST, "case %zu: %s", i, s[0].err.text);
        cr_expect_eq(s[1].status, EXO_FAILED, "case %zu: %s", i, s[1].err.text);
        cr_expect_eq(strncmp(s[1].err.text, cases[i].what, strlen(cases[i].what)), 0, "%s",
                     s[1].err.text);
    }
}

static void
set_scores_of_half_the_range(exo_experience *e)
{
    for (size_t a = 0; a < ANSWERS; a++)
        e->scores[a] = 2e38 / ANSWERS;
}

static double opposite; /* score; of one test, which no other runs beside in its process */

static void
set_opposite_to(exo_experience *e)
{
    e->scores[0] = opposite;
    e->scores[1] = -opposite;
}

/* Whichever of the two says so first. */
static void
expect_sum_overflows(const struct summand s[2], const char *what)
{
    for (int k = 0; k < 2; k++) {
        char words[160];
        snprintf(words, sizeof words,
                 "%s of version 0 is not finite, though this trainer's part is: the sum over the 2 "
                 "trainers overflows. Of this trainer's items, item %d",
                 what, k);
        cr_expect(s[k].status == EXO_PEER_LOST ||
                      (s[k].status == EXO_FAILED && strstr(s[k].err.text, words)),
                  "%d: %s", k, s[k].err.text);
    }
    cr_expect(s[0].status == EXO_FAILED || s[1].status == EXO_FAILED);
}

/* Neither trainer alone is to blame: the error says that their sum is not finite. */
Test(learner_items, a_sum_that_overflows_is_told_as_such)
{
    struct summand s[2] = {{.spoil = set_scores_of_half_the_range},
                           {.id = 1, .spoil = set_scores_of_half_the_range}};
    learn_together("grpo", s);
    expect_sum_overflows(s, "the sum of the scores");
    /* the least score, to a factor of 1.5, at which the square of the sum's norm overflows: that of
     * each half does not */
    s[0].status = s[1].status = EXO_OK;
    for (opposite = 1e16; s[0].status == EXO_OK && s[1].status == EXO_OK && opposite < 1e25;
         opposite *= 1.5) {
        s[0] = (struct summand){.spoil = set_opposite_to};
        s[1] = (struct summand){.id = 1, .spoil = set_opposite_to};
        learn_together("{name: dr_grpo, length: 4}, max_norm: 0", s);
    }
    expect_sum_overflows(s, "the square of the gradient");
}

static void
set_opposite_to_unlikely(exo_experience *e)
{
    set_opposite_to(e);
    /* of the answer that is to become less likely: the ratio is not clipped */
    for (size_t t = (size_t)e->lengths[0]; t < TOKENS; t++)
        e->log_probs[t] = -40;
}

/* Losses of which each is finite. From one try to the next they grow by a factor of 1.5. With `length: 1`
 * an answer weighs as much as each of its tokens, so that a sum of these may overflow where none does. */
Test(learner_items, a_sum_of_losses_that_overflows_is_told_as_such)
{
    struct summand s[2];
    bool found = false;
    for (opposite = 1e18; !found && opposite < 1e27; opposite *= 1.5) {
        s[0] = (struct summand){.spoil = set_opposite_to_unlikely};
        s[1] = (struct summand){.id = 1, .spoil = set_opposite_to_unlikely};
        learn_together("{name: dr_grpo, length: 1}", s);
        found = strstr(s[0].err.text, "the loss") || strstr(s[1].err.text, "the loss");
    }
    expect_sum_overflows(s, "the loss");
}

/* Its gradient is finite, but its square is not: the sum is not to blame for that. */
Test(learner_items, a_trainer_whose_gradient_spoils_the_sum_names_its_items)
{
    struct summand s[2] = {{.status = EXO_OK}};
    /* more than once if it hears of the other's end first */
    for (int i = 0; i < 20 && s[1].status != EXO_FAILED; i++) {
        s[0] = (struct summand){.spoil = leave};
        s[1] = (struct summand){.id = 1, .spoil = set_opposite_scores};
        learn_together("{name: dr_grpo, length: 4}, max_norm: 0", s);
    }
    cr_expect_eq(s[1].status, EXO_FAILED, "%s", s[1].err.text);
    cr_expect(strstr(s[1].err.text, "the square of the gradient of version 0 is not finite. Of "
                                    "this trainer's items, item 1 of maker 1 has"),
              "%s", s[1].err.text);
}

static void
set_longer_answer(exo_experience *e)
{
    e->lengths[0] = 1;
    e->lengths[1] = 6;
}

Test(learner_items, an_answer_beyond_the_context_is_named)
{
    exo_err err = {0};
    exo_config_doc *doc = NULL;
    exo_experience e;
    exo_item *item = good_item(&e);
    exo_learner *learner = learner_of(&doc, "grpo", 0, 1, &err);
    cr_expect_eq(exo_learner_check(learner, &e, &err), EXO_OK, "%s", err.text);
    set_longer_answer(&e);
    cr_expect_eq(exo_learner_check(learner, &e, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "answer 1 of item 40 of maker 1 needs a context of"), "%s",
                       err.text);
    cr_expect_eq(learn_from("grpo", set_longer_answer, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "item 1 has an answer that needs a context of"), "%s",
                       err.text);
    exo_item_drop(&item);
    exo_learner_free(&learner);
    exo_config_free(&doc);
}

Test(learner_items, algorithms_that_compare_answers_refuse_items_of_one)
{
    static const char *const algorithms[] = {"grpo", "{name: dr_grpo, length: 4}", "rloo"};
    exo_err err = {0};
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        cr_expect_eq(learn_from(algorithms[i], leave, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(learn_from(algorithms[i], set_one_answer, &err), EXO_INVAL);
        cr_expect_neq(strstr(err.text, "item 1 of maker 1 has one answer"), NULL, "%s", err.text);
    }
}
