/* Whole updates of policies and of language models, beside PyTorch's: from the same weights and
 * experience, the weights and figures after one update and after three. tests/golden/updates.py has
 * the same weights and experience as functions of their index. Each test owns what it makes. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../golden/updates_golden.h"
#include "actors/ppo_update.h"
#include "experience/learner_impl.h"

/* Parameters move by up to 2e-2. What rounding changes, Adam enlarges where gradients are small: by
 * up to 6e-6. */
static const double tolerance = 2e-5;

static float
number(size_t i, size_t salt)
{
    return (float)((double)((i * 7919 + salt * 104729) % 2003) / 2003 - 0.5);
}

static float *
numbers_of(size_t count, size_t salt, float scale, float shift)
{
    float *x = calloc(count, sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = number(i, salt) * scale + shift;
    return x;
}

/* Compares every `every`-th weight with the golden ones. */
static void
expect_weights(const float *weights, size_t numel, size_t every, const double *golden, size_t count,
               const char *what)
{
    double most = 0;
    cr_expect_eq((numel + every - 1) / every, count, "%s", what);
    for (size_t i = 0; i < count; i++) {
        double off = fabs((double)weights[i * every] - golden[i]);
        most = off <= most ? most : off; /* unlike fmax, it keeps a NaN */
    }
    cr_expect_leq(most, tolerance, "%s: %g", what, most);
}

/* --- Policies --------------------------------------------------------------------------------- */

enum {
    STEPS = 8,
    ENVIRONMENTS = 2,
    ITEMS = 2,
    SAMPLES = STEPS * ENVIRONMENTS,
    OBSERVATION = 3,
    UNITS = 16
};

static exo_rollout
rollout_of(const struct golden_policy *g, size_t u, size_t k)
{
    const size_t salt = 100 * u + 10 * k, players = g->players;
    exo_rollout r = {.steps = STEPS,
                     .environments = ENVIRONMENTS,
                     .box = g->box ? g->outputs : 0,
                     .num_players = players,
                     .observations = numbers_of(SAMPLES * OBSERVATION, salt + 1, 2, 0),
                     .log_probs = numbers_of(SAMPLES, salt + 2, 1, -1.25f),
                     .values = numbers_of(SAMPLES, salt + 3, 1, 0),
                     .rewards = numbers_of(SAMPLES * players, salt + 4, 2, 0),
                     .final_values = numbers_of(SAMPLES, salt + 5, 1, 0),
                     .bootstrap = numbers_of(ENVIRONMENTS, salt + 6, 1, 0),
                     .dones = calloc(SAMPLES, 1)};
    if (g->box)
        r.boxes = numbers_of(SAMPLES * g->outputs, salt + 7, 2, 0);
    else
        r.choices = calloc(SAMPLES, sizeof *r.choices);
    if (players > 1)
        r.players = calloc(SAMPLES + ENVIRONMENTS, 1);
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t end = (i + 3 * u + 5 * k) % 9;
        r.dones[i] = end == 4 ? EXO_EPISODE_TERMINATED : end == 7 ? EXO_EPISODE_TRUNCATED : 0;
        if (r.dones[i] != EXO_EPISODE_TRUNCATED)
            r.final_values[i] = 0;
        if (r.choices)
            r.choices[i] = (int32_t)((5 * i + u + k) % 3);
    }
    for (size_t i = 0; r.players && i < SAMPLES + ENVIRONMENTS; i++)
        r.players[i] = (uint8_t)((3 * i + u) / 2 % players);
    return r;
}

static void
rollout_free(exo_rollout *r)
{
    free(r->observations);
    free(r->log_probs);
    free(r->values);
    free(r->rewards);
    free(r->final_values);
    free(r->bootstrap);
    free(r->dones);
    free(r->boxes);
    free(r->choices);
    free(r->players);
}

static void
learn(exo_ppo_update *update, const struct golden_policy *g, size_t u)
{
    exo_rollout rollouts[ITEMS];
    for (size_t k = 0; k < ITEMS; k++)
        rollouts[k] = rollout_of(g, u, k);
    cr_assert_eq(exo_ppo_update_begin(update, rollouts, ITEMS, NULL), EXO_OK);
    for (uint64_t i = 0; i < exo_ppo_update_steps(update); i++) {
        exo_ppo_update_gradient(update);
        cr_assert_eq(exo_ppo_update_apply(update, NULL), EXO_OK);
    }
    exo_ppo_update_end(update);
    for (size_t k = 0; k < ITEMS; k++)
        rollout_free(&rollouts[k]);
}

static void
compare_policy(const struct golden_policy *g, const char *what)
{
    const exo_ppo_update_opts opts = {.loss = {.clip = g->clip,
                                               .value_clip = g->value_clip,
                                               .entropy = g->entropy,
                                               .value = g->value},
                                      .last_entropy = g->last_entropy,
                                      .epochs = (uint64_t)g->epochs,
                                      .minibatches = (uint64_t)g->minibatches,
                                      .updates = (uint64_t)g->updates,
                                      .lr = g->lr,
                                      .gamma = g->gamma,
                                      .lambda = g->lambda,
                                      .max_norm = g->max_norm,
                                      .repeat = 1};
    const exo_policy_shape shape = {
        .observation = OBSERVATION, .units = UNITS, .outputs = g->outputs, .box = g->box};
    exo_ppo_update *update = NULL;
    cr_assert_eq(exo_ppo_update_new(&update, &opts, &shape, 1, 77, NULL), EXO_OK);
    float *weights = exo_ppo_update_policy(update)->values;
    size_t numel = exo_policy_numel(&shape);
    for (size_t i = 0; i < numel; i++)
        weights[i] = number(i, 0);
    for (size_t u = 0; u < GOLDEN_UPDATES; u++) {
        learn(update, g, u);
        cr_expect_float_eq(exo_ppo_update_loss(update), g->losses[u], tolerance, "%s: %g", what,
                           exo_ppo_update_loss(update));
        if (u == 0 || u == GOLDEN_UPDATES - 1)
            expect_weights(weights, numel, GOLDEN_POLICY_EVERY, g->weights[u > 0], g->count, what);
    }
    exo_ppo_update_free(&update);
}

Test(updates_golden, of_policies)
{
    static const char *const names[] = {"choices", "box", "two players"};
    for (size_t i = 0; i < sizeof golden_policies / sizeof *golden_policies; i++)
        compare_policy(&golden_policies[i], names[i]);
}

/* --- Language models -------------------------------------------------------------------------- */

enum {
    BATCH = 4,
    ANSWERS = 2,
    VOCABULARY = 7,
    SEED = 5
};

#define MODEL(more)                                                                                \
    "{name: gpt, layers: 1, heads: 2, width: 16, context: 12, vocabulary: 7" more "}"

static void
fill(const exo_model *model, exo_params *params, size_t salt)
{
    size_t at = 0;
    for (size_t i = 0; i < exo_model_num_infos(model); i++) {
        const exo_param_info *info = &exo_model_infos(model)[i];
        const char *last = strrchr(info->name, '.');
        bool scales = strstr(info->name, "norm") && strcmp(last, ".weight") == 0;
        for (size_t k = 0; k < info->numel; k++)
            exo_params_at(params, i)[k] = number(at++, salt) + (scales ? 1 : 0);
    }
}

/* Fills answer a of the item `number_of`, whose tokens begin at `first`. */
static void
fill_answer(exo_experience *e, const struct golden_learner *g, size_t a, size_t first, size_t u)
{
    const size_t id = (size_t)e->id, salt = 1000 + 10 * id;
    float *log_probs = g->filtered ? e->plain_log_probs : e->log_probs;
    for (size_t i = first; i < first + (size_t)e->lengths[a]; i++) {
        bool action = !g->turns || i == first || (3 * i + id) % 4 != 0;
        e->tokens[i] = (int32_t)((3 * i + 2 * id + i * i % 5) % VOCABULARY);
        log_probs[i] = number(i, salt + 1) - 1.75f;
        e->versions[i] = (int64_t)(u > (i + id) % 3 ? u - (i + id) % 3 : 0);
        if (g->turns) {
            e->mask[i] = action;
            e->rewards[i] = action && (i + id) % 3 == 0 ? number(i, salt + 2) : 0;
        }
    }
    e->scores[a] = 2 * (double)number(a, salt + 3);
}

static exo_item *
item_of(exo_experience *e, const struct golden_learner *g, uint64_t id, size_t u)
{
    exo_item *item = NULL;
    size_t lengths[ANSWERS], prompt = 1 + id % 3, all = 0;
    for (size_t a = 0; a < ANSWERS; a++)
        all += lengths[a] = (id + a) % 4 + 2;
    cr_assert_eq(exo_experience_new(&item, e, ANSWERS, prompt, all, g->turns, NULL), EXO_OK);
    e->id = id;
    e->temperature = (float)g->temperature;
    e->filtered = g->filtered;
    for (size_t i = 0; i < prompt; i++)
        e->prompt_tokens[i] = (int32_t)((3 * i + id) % VOCABULARY);
    for (size_t a = 0, first = 0; a < ANSWERS; first += lengths[a++]) {
        e->lengths[a] = (int32_t)lengths[a];
        fill_answer(e, g, a, first, u);
    }
    return item;
}

static exo_learner *
learner_of(const struct golden_learner *g, exo_config_doc **doc)
{
    char text[1024];
    exo_err err = {0};
    exo_learner *l = NULL;
    snprintf(text, sizeof text,
             "{model: %s, %s%s, optimizer: {name: adamw, lr: 3e-3, eps: 1e-5, "
             "weight_decay: 0.1}, critic_optimizer: {name: adamw, lr: 3e-3, "
             "eps: 1e-5, weight_decay: 0.1}, rows: 3}",
             g->values ? MODEL(", values: true") : MODEL(""), g->config,
             g->critic ? ", critic: " MODEL(", values: true") : "");
    cr_assert_eq(exo_config_parse(doc, "test", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_learner_read(&l, exo_config_root(*doc), &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_learner_start(l, SEED, 0, 1, 0, &err), EXO_OK, "%s", err.text);
    fill(l->actor.model, l->actor.params, 1);
    if (l->reference)
        fill(l->actor.model, l->reference, 2);
    if (l->critic.model)
        fill(l->critic.model, l->critic.params, 3);
    return l;
}

static void
expect_figures(const exo_learner_figures *f, const double golden[GOLDEN_FIGURES], const char *what)
{
    static const char *const names[] = {"loss",      "value loss", "clipped",   "norm",
                                        "kl",        "kl_coef",    "kl makers", "chi^2",
                                        "effective", "last kl",    "steps"};
    const double got[GOLDEN_FIGURES] = {
        f->loss,      f->value_loss,  f->clipped,   f->norm,    f->kl,           f->kl_coef,
        f->kl_makers, f->chi_squared, f->effective, f->last_kl, (double)f->steps};
    for (size_t i = 0; i < GOLDEN_FIGURES; i++)
        cr_expect_float_eq(got[i], golden[i], 2e-5 * (1 + fabs(golden[i])), "%s, %s: %g, not %g",
                           what, names[i], got[i], golden[i]);
}

static void
compare_learner(const struct golden_learner *g)
{
    exo_config_doc *doc = NULL;
    exo_learner *l = learner_of(g, &doc);
    exo_learner_figures figures;
    exo_err err = {0};
    for (size_t u = 0; u < GOLDEN_UPDATES; u++) {
        exo_item *items[BATCH];
        exo_experience e[BATCH];
        for (size_t i = 0; i < BATCH; i++)
            items[i] = item_of(&e[i], g, BATCH * u + i, u);
        cr_assert_eq(exo_learner_update(l, NULL, e, BATCH, &figures, &err), EXO_OK, "%s", err.text);
        if (u == 0 || u == GOLDEN_UPDATES - 1)
            expect_weights(exo_params_values(l->actor.params), exo_learner_numel(l),
                           GOLDEN_MODEL_EVERY, g->weights[u > 0], g->count, g->config);
        for (size_t i = 0; i < BATCH; i++)
            exo_item_drop(&items[i]);
    }
    expect_figures(&figures, g->figures, g->config);
    if (g->critic)
        expect_weights(exo_params_values(l->critic.params), exo_model_numel(l->critic.model),
                       GOLDEN_MODEL_EVERY, g->critic_weights, g->count, "critic");
    exo_learner_free(&l);
    exo_config_free(&doc);
}

Test(updates_golden, of_language_models)
{
    for (size_t i = 0; i < sizeof golden_learners / sizeof *golden_learners; i++)
        compare_learner(&golden_learners[i]);
}
