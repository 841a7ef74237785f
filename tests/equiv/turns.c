/* Dialogues with a tool: what the tool writes is read, but not learned; answers have the bits of
 * generating everything anew; and a policy learns to use a tool up to the optimum. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/tool.h>

#include "experience/builtin.h"
#include "experience/learner.h"
#include "experience/source.h"
#include "support/parrot.h"
#include "support/sanitized.h"

enum {
    ITEMS = 6,
    MAX_TEXT = 2048
};

#define MODEL "{name: gpt, layers: 2, heads: 2, width: 24, context: 32, vocabulary: 11}"
#define CRITIC                                                                                     \
    "{name: gpt, layers: 1, heads: 2, width: 16, context: 32, vocabulary: 11, values: true}"
#define SOURCE                                                                                     \
    "{model: " MODEL ", prompts: {tokens: [[1], [2, 3], [4, 5, 6]]}, reward: {name: share, "       \
    "token: 5}, answers: 4, batch: 2, tool: parrot, generate: {max_new_tokens: 10, stop: [3]}}"

static exo_experience_source *
open_source(const char *text, uint64_t seed)
{
    exo_config_doc *doc = NULL;
    exo_experience_source *s = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "test", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_experience_source_read(&s, exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_experience_source_start(s, seed, 0, NULL, &err), EXO_OK, "%s", err.text);
    exo_config_free(&doc);
    return s;
}

static exo_item *
take(exo_experience_source *s)
{
    exo_item *item = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_experience_source_take(s, 0, &item, &err), EXO_OK, "%s", err.text);
    cr_assert_not_null(item);
    return item;
}

static void
step(exo_experience_source *s)
{
    exo_err err = {0};
    cr_assert_eq(exo_experience_source_step(s, &err), EXO_OK, "%s", err.text);
}

/* --- Items ------------------------------------------------------------------------------------ */

static exo_item *
make_one(exo_experience_source *s, uint64_t draw)
{
    cr_assert_eq(exo_experience_source_begin(s, draw, NULL), EXO_OK);
    while (exo_experience_source_unfinished(s) > 0)
        step(s);
    return take(s);
}

/* The turns of the answers end where they should: by token 9, by 4 tokens, or with the answer. */
Test(turns, an_item_says_who_wrote_what)
{
    size_t replies = 0, ended = 0, stopped = 0;
    parrot_register();
    exo_experience_source *s = open_source(SOURCE, 3);
    for (uint64_t draw = 0; draw < ITEMS; draw++) {
        exo_experience e;
        exo_err err = {0};
        exo_item *item = make_one(s, draw);
        cr_assert_eq(exo_experience_view(&e, item, &err), EXO_OK, "%s", err.text);
        cr_assert_not_null(e.mask);
        for (size_t a = 0, first = 0; a < e.answers; first += (size_t)e.lengths[a++]) {
            size_t drawn = 0, turn = 0; /* turn: tokens since it began */
            double earned = 0;
            for (size_t i = first; i < first + (size_t)e.lengths[a]; i++) {
                if (!e.mask[i] && e.mask[i - 1])
                    cr_expect_eq(turn, 0, "the tool interrupts a turn after %zu tokens", turn);
                drawn += e.mask[i];
                turn += e.mask[i];
                turn = turn == 4 || (e.mask[i] && e.tokens[i] == 9) ? 0 : turn;
                replies += !e.mask[i];
                stopped += e.mask[i] && e.tokens[i] == 9;
                earned += (double)e.rewards[i];
                cr_expect(e.mask[i] || e.rewards[i] == 0);
            }
            cr_expect_leq(drawn, 10);
            cr_expect(e.scores[a] >= earned && e.scores[a] <= earned + 1, "%g, %g", e.scores[a],
                      earned);
            ended += e.finish[a] == EXO_FINISH_STOP;
        }
        exo_item_drop(&item);
    }
    cr_expect_gt(replies, 20);
    cr_expect_gt(stopped, 2);
    cr_expect_gt(ended, 2);
    exo_experience_source_free(&s);
}

/* --- The cache -------------------------------------------------------------------------------- */

/* Two draws at once, whose caches are thrown away and computed anew before every step if `anew`. */
static void
make_two(exo_item *out[2], bool anew)
{
    exo_experience_source *s = open_source(SOURCE, 5);
    for (uint64_t draw = 0; draw < 2; draw++)
        cr_assert_eq(exo_experience_source_begin(s, draw, NULL), EXO_OK);
    while (exo_experience_source_unfinished(s) > 0) {
        if (anew)
            cr_assert_eq(exo_experience_source_renew(s, 0, EXO_KV_RECOMPUTE, NULL), EXO_OK);
        step(s);
    }
    out[0] = take(s);
    out[1] = take(s);
    exo_experience_source_free(&s);
}

static void
expect_same(const exo_item *a, const exo_item *b)
{
    cr_assert_eq(a->num_parts, b->num_parts);
    for (size_t i = 0; i < a->num_parts; i++) {
        cr_assert_eq(a->parts[i].count, b->parts[i].count, "array %zu", i);
        cr_expect_eq(memcmp(a->parts[i].data, b->parts[i].data,
                            a->parts[i].count * exo_dtype_size(a->parts[i].dtype)),
                     0, "array %zu", i);
    }
}

Test(turns, a_continued_cache_has_the_bits_of_computing_everything_anew)
{
    exo_item *kept[2], *anew[2];
    parrot_register();
    make_two(kept, false);
    make_two(anew, true);
    for (int i = 0; i < 2; i++) {
        expect_same(kept[i], anew[i]);
        exo_item_drop(&kept[i]);
        exo_item_drop(&anew[i]);
    }
}

/* Weights change after `before` steps of two draws. */
static exo_item *
make_mixed(exo_params *second, int before, exo_kv kv)
{
    exo_experience_source *s = open_source(SOURCE, 5);
    cr_assert_eq(exo_experience_source_begin(s, 1, NULL), EXO_OK);
    for (int i = 0; exo_experience_source_unfinished(s) > 0; i++) {
        if (i == before) {
            exo_generator *g = exo_experience_source_generator(s);
            cr_assert_eq(exo_generator_set_weights(g, second, NULL), EXO_OK);
            cr_assert_eq(exo_experience_source_renew(s, 7, kv, NULL), EXO_OK);
        }
        step(s);
    }
    exo_item *item = take(s);
    exo_experience_source_free(&s);
    return item;
}

Test(turns, weights_change_inside_a_dialogue)
{
    exo_params *second = NULL;
    parrot_register();
    exo_experience_source *s = open_source(SOURCE, 5);
    cr_assert_eq(exo_model_values(exo_experience_source_model(s), 4, &second, NULL), EXO_OK);
    for (int kv = EXO_KV_RECOMPUTE; kv <= EXO_KV_RESET; kv++)
        for (int before = 1; before < 9; before += 2) {
            exo_experience e;
            exo_err err = {0};
            size_t old = 0, new = 0;
            exo_item *item = make_mixed(second, before, (exo_kv)kv);
            cr_assert_eq(exo_experience_view(&e, item, &err), EXO_OK, "%s", err.text);
            for (size_t i = 0; i < e.tokens_length; i++) {
                old += e.mask[i] && e.versions[i] == 0;
                new += e.mask[i] && e.versions[i] == 7;
                if (e.mask[i] && e.versions[i] == 7)
                    cr_expect_eq(e.cache_versions[i], kv == EXO_KV_KEEP ? 0 : 7);
            }
            cr_expect_eq(item->version, old > 0 ? 0 : 7);
            cr_expect(kv == EXO_KV_RESET || old > 0, "kv %d, after %d steps: no old token", kv,
                      before);
            cr_expect_gt(new, 0, "kv %d, after %d steps: no new token", kv, before);
            cr_expect_eq(old + new, exo_experience_actions(&e, 0, e.tokens_length));
            exo_item_drop(&item);
        }
    exo_params_free(&second);
    exo_experience_source_free(&s);
}

/* --- The mask --------------------------------------------------------------------------------- */

static const char *const learners[] = {
    "algorithm: {name: grpo, kl_coef: 0.1}",
    "algorithm: {name: grpo, kl_loss: 0.1, entropy: 0.1, correction: decoupled, reduction: tokens}",
    "algorithm: {name: dr_grpo, length: 10, correction: interpolated}",
    "algorithm: {name: rloo, correction: truncated_sequence, weight_max: 2}",
    "algorithm: {name: reinforce++, kl_coef: 0.1, kl_target: 1}",
    "algorithm: {name: ppo, kl_coef: 0.1}, critic: " CRITIC,
    "algorithm: {name: ppo, correction: vtrace, entropy: 0.1}, critic: " CRITIC,
};

/* What becomes of the tokens of tools before the learner has them. */
enum change {
    NOTHING,
    NUMBERS,  /* their log-probabilities and versions are wrong */
    LAST_ONES /* those that end an answer are other tokens: only their own probability could tell */
};

static void
change(exo_experience *e, enum change what)
{
    for (size_t a = 0, first = 0; a < e->answers; first += (size_t)e->lengths[a++]) {
        bool last = true;
        for (size_t i = first + (size_t)e->lengths[a]; i-- > first;) {
            last = last && !e->mask[i];
            if (what == NUMBERS && !e->mask[i]) {
                e->log_probs[i] = e->plain_log_probs[i] = -3.5f;
                e->versions[i] = e->cache_versions[i] = 12;
            }
            if (what == LAST_ONES && last)
                e->tokens[i] = (e->tokens[i] + 1) % 11;
        }
    }
}

/* Learns twice from items, and gives the hash of the weights, and figures. */
static void
learn(const char *keys, enum change what, char sha256[65], exo_learner_figures *f)
{
    char text[MAX_TEXT];
    exo_config_doc *doc = NULL;
    exo_learner *learner = NULL;
    exo_err err = {0};
    exo_item *items[ITEMS];
    exo_experience views[ITEMS];
    exo_experience_source *s = open_source(SOURCE, 5);
    snprintf(text, sizeof text, "{model: " MODEL ", optimizer: {name: sgd, lr: 0.5}, %s}", keys);
    cr_assert_eq(exo_config_parse(&doc, "test", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_learner_read(&learner, exo_config_root(doc), &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_learner_start(learner, 5, 0, 1, 0, &err), EXO_OK, "%s", err.text);
    for (uint64_t i = 0; i < ITEMS; i++) {
        items[i] = make_one(s, i);
        cr_assert_eq(exo_experience_view(&views[i], items[i], &err), EXO_OK, "%s", err.text);
        change(&views[i], what);
    }
    for (int i = 0; i < 2; i++)
        cr_assert_eq(exo_learner_update(learner, NULL, views, ITEMS, f, &err), EXO_OK, "%s",
                     err.text);
    cr_assert_eq(exo_learner_sha256(learner, sha256, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < ITEMS; i++)
        exo_item_drop(&items[i]);
    exo_learner_free(&learner);
    exo_experience_source_free(&s);
    exo_config_free(&doc);
}

Test(turns, tokens_of_the_tool_are_not_learned)
{
    parrot_register();
    for (size_t i = 0; i < sizeof learners / sizeof *learners; i++) {
        char plain[65], changed[65];
        exo_learner_figures f, other;
        learn(learners[i], NOTHING, plain, &f);
        cr_expect_gt(f.tokens, ITEMS);
        for (int what = NUMBERS; what <= LAST_ONES; what++) {
            learn(learners[i], (enum change)what, changed, &other);
            cr_expect_str_eq(changed, plain, "%s, change %d", learners[i], what);
            cr_expect_eq(memcmp(&f, &other, sizeof f), 0, "%s, change %d: other figures",
                         learners[i], what);
        }
    }
}

/* --- An optimum ------------------------------------------------------------------------------- */

/* The task: the policy writes a token, the tool replies with one of CHOICES tokens by chance, and the
 * policy's second token should be the reply. Its first token should be 2. */
enum {
    VOCABULARY = 6,
    CHOICES = 3,
    PROMPT = 1,
    UPDATES = 100
};

static exo_status
oracle_reply(void *self, void *state, const exo_tool_turn *turn, exo_tool_reply *out, exo_err *err)
{
    (void)self;
    (void)state;
    (void)err;
    out->length = turn->number == 0;
    out->tokens[0] = (int32_t)(VOCABULARY - 1 - exo_rng_below(turn->rng, CHOICES));
    return EXO_OK;
}

static double
reward_of(int32_t first, int32_t reply, int32_t second)
{
    return (second == reply) + 0.5 * (first == 2);
}

static exo_status
oracle_score(void *self, const exo_answer *a, double *out, exo_err *err)
{
    (void)self;
    if (a->length != 3 || a->mask[1] != 0)
        return exo_fail(err, EXO_FAILED, "the answer has %zu tokens", a->length);
    *out = reward_of(a->tokens[0], a->tokens[1], a->tokens[2]);
    return EXO_OK;
}

static const exo_tool_class oracle = {
    .name = "oracle",
    .help = "says a token",
    .shape = {.turns = 2, .turn_tokens = 1, .reply_tokens = 1},
    .reply = oracle_reply,
};
static const exo_reward_class heard = {
    .name = "heard", .help = "who hears the oracle", .score = oracle_score};

/* log pi of each token after `count` tokens. */
static void
look(exo_experience_source *s, const int32_t *tokens, size_t count, double out[VOCABULARY])
{
    float logits[3 * VOCABULARY];
    double sum = 0;
    cr_assert_eq(
        exo_generator_logits(exo_experience_source_generator(s), tokens, count, logits, NULL),
        EXO_OK);
    const float *row = logits + (count - 1) * VOCABULARY;
    for (int v = 0; v < VOCABULARY; v++)
        sum += exp((double)row[v]);
    for (int v = 0; v < VOCABULARY; v++)
        out[v] = (double)row[v] - log(sum);
}

/* The log-probabilities of a policy, in all its states. */
struct policy {
    double first[VOCABULARY], second[VOCABULARY][CHOICES][VOCABULARY];
};

static void
look_at_all(exo_experience_source *s, struct policy *p)
{
    look(s, (const int32_t[]){PROMPT}, 1, p->first);
    for (int32_t a = 0; a < VOCABULARY; a++)
        for (int32_t c = 0; c < CHOICES; c++)
            look(s, (const int32_t[]){PROMPT, a, VOCABULARY - 1 - c}, 3, p->second[a][c]);
}

/* The objective E[r] - beta KL(pi || ref) of a policy over all dialogues; pi NULL: its maximum,
 * beta log E_ref[exp(V / beta)] in each state, from the last one on. */
static double
objective(const struct policy *pi, const struct policy *ref, double beta)
{
    double value = 0, soft = 0;
    for (int32_t a = 0; a < VOCABULARY; a++) {
        double mean = 0;
        for (int32_t c = 0; c < CHOICES; c++) {
            double sum = 0;
            for (int32_t b = 0; b < VOCABULARY; b++) {
                double r = reward_of(a, VOCABULARY - 1 - c, b), q = ref->second[a][c][b];
                double p = pi ? pi->second[a][c][b] : 0;
                sum += pi ? exp(p) * (r - beta * (p - q)) : exp(q + r / beta);
            }
            mean += (pi ? sum : beta * log(sum)) / CHOICES;
        }
        if (pi)
            value += exp(pi->first[a]) * (mean - beta * (pi->first[a] - ref->first[a]));
        soft += exp(ref->first[a] + mean / beta);
    }
    return pi ? value : beta * log(soft);
}

#define TINY "{name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 6}"

/* J* - J after learning with an algorithm, and of the first policy. */
static double
train(const char *algorithm, const char *more, double *before)
{
    const double beta = 0.2;
    char text[MAX_TEXT];
    exo_config_doc *doc = NULL;
    exo_learner *learner = NULL;
    exo_learner_figures f;
    exo_err err = {0};
    struct policy ref, pi;
    exo_experience_source *s =
        open_source("{model: " TINY ", prompts: {tokens: [[1]]}, reward: heard, tool: oracle, "
                    "answers: 64, batch: 4, generate: {max_new_tokens: 2}}",
                    9);
    snprintf(text, sizeof text,
             "{model: " TINY ", optimizer: {name: adamw, lr: 1e-2}, rows: 256, epochs: 2, "
             "algorithm: {name: %s, kl_coef: %g}%s}",
             algorithm, beta, more);
    cr_assert_eq(exo_config_parse(&doc, "test", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_learner_read(&learner, exo_config_root(doc), &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_learner_start(learner, 9, 0, 1, 0, &err), EXO_OK, "%s", err.text);
    look_at_all(s, &ref);
    *before = objective(NULL, &ref, beta) - objective(&ref, &ref, beta);
    for (uint64_t v = 0; v < UPDATES / one_of(20); v++) {
        exo_item *item = make_one(s, v);
        exo_experience e;
        cr_assert_eq(exo_experience_view(&e, item, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_learner_update(learner, NULL, &e, 1, &f, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(f.ratio_off, 0);
        cr_expect_eq(f.tokens, 2 * 64);
        cr_assert_eq(exo_generator_set_weights(exo_experience_source_generator(s),
                                               exo_learner_params(learner), &err),
                     EXO_OK);
        cr_assert_eq(exo_experience_source_renew(s, v + 1, EXO_KV_KEEP, &err), EXO_OK);
        exo_item_drop(&item);
    }
    look_at_all(s, &pi);
    double gap = objective(NULL, &ref, beta) - objective(&pi, &ref, beta);
    exo_learner_free(&learner);
    exo_experience_source_free(&s);
    exo_config_free(&doc);
    return gap;
}

Test(turns, a_policy_learns_to_use_what_a_tool_says)
{
    double before = 0;
    const double near = one_of(20) > 1 ? 1 : 0.01; /* few updates learn little */
    cr_assert_eq(exo_tool_class_register(&oracle, NULL), EXO_OK);
    cr_assert_eq(exo_reward_class_register(&heard, NULL), EXO_OK);
    double gap = train("rloo", "", &before);
    cr_expect_gt(before, 0.3, "the task is too easy: %g", before);
    cr_expect(gap >= 0 && gap < near, "rloo: %g", gap);
    gap = train("ppo",
                ", critic: {name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: "
                "6, values: true}, critic_optimizer: {name: adamw, lr: 1e-2}",
                &before);
    cr_expect(gap >= 0 && gap < near, "ppo: %g", gap);
}
