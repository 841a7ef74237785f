/* PPO's update, and how makers and trainers learn with it, in a loop without a graph. Each test
 * owns its updates. Read next: actors/ppo_update.h; cli/maker_trainer runs the same in a graph. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/player.h"
#include "actors/ppo_update.h"
#include "actors/rollout.h"
#include "base/memory_fault.h"
#include "support/numbers.h"
#include "support/rollout_arrays.h"
#include "support/sanitized.h"

/* The defaults of the trainer actor. */
static const exo_ppo_update_opts defaults = {
    .loss = {.clip = 0.2, .entropy = 0.01, .value = 0.5},
    .last_entropy = 0.01,
    .epochs = 4,
    .minibatches = 16,
    .updates = 200,
    .lr = 1e-3,
    .gamma = 0.99,
    .lambda = 0.95,
    .max_norm = 0.5,
    .repeat = 1,
};

static exo_environment_spec *cartpole; /* made by the first test that needs it */

static const exo_environment_spec *
environment(void)
{
    if (!cartpole)
        cartpole = environment_new("cartpole");
    return cartpole;
}

static exo_ppo_update *
update_new(const exo_ppo_update_opts *opts, uint64_t seed, uint64_t order_seed)
{
    exo_ppo_update *update = NULL;
    const exo_policy_shape shape =
        exo_policy_shape_for(exo_environment_spec_shape(environment()), 64);
    cr_assert_eq(exo_ppo_update_new(&update, opts, &shape, seed, order_seed, NULL), EXO_OK);
    return update;
}

/* Updates `count` trainers that learn as one, without threads: their sums are added in the order of
 * their ranks. */
static void
update_as_one(exo_ppo_update **updates, size_t count, const exo_rollout *const *rollouts,
              const size_t *num_rollouts)
{
    for (size_t r = 0; r < count; r++)
        cr_assert_eq(exo_ppo_update_begin(updates[r], rollouts[r], num_rollouts[r], NULL), EXO_OK);
    for (uint64_t i = 0; i < exo_ppo_update_steps(updates[0]); i++) {
        float *all = NULL;
        for (size_t r = 0; r < count; r++) {
            exo_ppo_update_gradient(updates[r]);
            float *sums = exo_ppo_update_sums(updates[r]);
            if (r == 0)
                all = sums;
            for (size_t k = 0; r > 0 && k < exo_ppo_update_num_sums(updates[r]); k++)
                all[k] += sums[k];
        }
        for (size_t r = 1; r < count; r++)
            memcpy(exo_ppo_update_sums(updates[r]), all,
                   exo_ppo_update_num_sums(updates[r]) * sizeof *all);
        for (size_t r = 0; r < count; r++)
            cr_assert_eq(exo_ppo_update_apply(updates[r], NULL), EXO_OK);
    }
    for (size_t r = 0; r < count; r++)
        exo_ppo_update_end(updates[r]);
}

static void
update_alone(exo_ppo_update *update, const exo_rollout *rollouts, size_t count)
{
    update_as_one(&update, 1, &rollouts, &count);
}

/* --- The update ------------------------------------------------------------------------------- */

/* Plays rollouts with the initial policy. */
static void
play_some(exo_rollout *rollouts, size_t count, uint64_t seed)
{
    exo_policy policy = policy_new(environment(), 1);
    exo_player *player = NULL;
    cr_assert_eq(exo_player_new(&player, environment(), 2, seed, NULL), EXO_OK);
    for (size_t i = 0; i < count; i++) {
        rollouts[i] = arrays_new(environment(), 30 + i, 2);
        exo_player_play(player, &policy, &rollouts[i]);
    }
    exo_player_free(&player);
    policy_free(&policy);
}

static bool
same_policy(const exo_ppo_update *a, const exo_ppo_update *b)
{
    const exo_policy *one = exo_ppo_update_policy(a), *other = exo_ppo_update_policy(b);
    return memcmp(one->values, other->values, policy_numel(one) * sizeof(float)) == 0;
}

/* A copy, which policy_free frees. */
static exo_policy
policy_of(const exo_ppo_update *update)
{
    exo_policy copy = policy_new(environment(), 1);
    memcpy(copy.values, exo_ppo_update_policy(update)->values, policy_numel(&copy) * sizeof(float));
    return copy;
}

Test(ppo_update, a_loss_that_is_not_finite_leaves_the_policy)
{
    exo_rollout rollout;
    exo_err err = {0};
    play_some(&rollout, 1, 5);
    rollout.rewards[7] = 1e30f; /* its square is beyond a float */
    exo_ppo_update_opts opts = defaults;
    opts.minibatches = 1;
    exo_ppo_update *update = update_new(&opts, 1, 2), *fresh = update_new(&opts, 1, 2);
    cr_assert_eq(exo_ppo_update_begin(update, &rollout, 1, NULL), EXO_OK);
    exo_ppo_update_gradient(update);
    cr_expect_eq(exo_ppo_update_apply(update, &err), EXO_FAILED);
    cr_expect_str_eq(err.text, "the loss of update 1 is not finite: are rewards too large?");
    cr_expect(same_policy(update, fresh));
    arrays_free(&rollout);
    exo_ppo_update_free(&update);
    exo_ppo_update_free(&fresh);
}

Test(ppo_update, first_step_is_that_of_the_mean_gradient)
{
    exo_ppo_update_opts opts = defaults;
    opts.epochs = opts.minibatches = 1;
    opts.max_norm = 0;
    exo_rollout rollout;
    play_some(&rollout, 1, 5);
    exo_ppo_update *update = update_new(&opts, 1, 2);
    exo_policy before = policy_of(update), gradient = policy_of(update);
    memset(gradient.values, 0, policy_numel(&gradient) * sizeof(float));

    size_t count = rollout.steps * rollout.environments;
    float *advantages = calloc(count, sizeof *advantages),
          *targets = calloc(count, sizeof *targets);
    uint32_t *order = calloc(count, sizeof *order);
    exo_gae(&rollout, opts.gamma, opts.lambda, advantages);
    for (size_t i = 0; i < count; i++) {
        targets[i] = advantages[i] + rollout.values[i];
        order[i] = (uint32_t)i;
    }
    const exo_ppo_samples samples = {.count = count,
                                     .observation = 4,
                                     .observations = rollout.observations,
                                     .choices = rollout.choices,
                                     .log_probs = rollout.log_probs,
                                     .values = rollout.values,
                                     .advantages = advantages,
                                     .targets = targets};
    double loss = exo_ppo_gradient(&before, &samples, order, count, &opts.loss, &gradient);

    update_alone(update, &rollout, 1);
    cr_expect_float_eq(exo_ppo_update_loss(update), loss / (double)count, 1e-5 * fabs(loss));
    cr_expect_eq(exo_ppo_update_count(update), 1);
    /* Adam's first step is lr g / (|g| + eps), for g of any size. The update sums in another order,
     * so g is off by a rounding. */
    const float *old = before.values, *new = exo_ppo_update_policy(update)->values;
    const float *sum = gradient.values;
    for (size_t i = 0; i < policy_numel(&before); i++) {
        double g = (double)sum[i] / (double)count;
        cr_assert_float_eq((double)(new[i] - old[i]), -opts.lr * g / (fabs(g) + 1e-5),
                           0.02 * opts.lr, "[%zu]", i);
    }
    free(advantages);
    free(targets);
    free(order);
    policy_free(&before);
    policy_free(&gradient);
    exo_ppo_update_free(&update);
    arrays_free(&rollout);
}

Test(ppo_update, same_bits_again_and_others_in_another_order)
{
    exo_rollout rollouts[3];
    play_some(rollouts, 3, 5);
    exo_ppo_update *a = update_new(&defaults, 1, 2), *b = update_new(&defaults, 1, 2),
                   *c = update_new(&defaults, 1, 3);
    cr_expect(same_policy(a, c));
    for (int i = 0; i < 2; i++) {
        update_alone(a, rollouts, 3);
        update_alone(b, rollouts, 3);
        update_alone(c, rollouts, 3);
    }
    cr_expect(same_policy(a, b));
    cr_expect(!same_policy(a, c));
    for (int i = 0; i < 3; i++)
        arrays_free(&rollouts[i]);
    exo_ppo_update_free(&a);
    exo_ppo_update_free(&b);
    exo_ppo_update_free(&c);
}

Test(ppo_update, computing_a_gradient_again_changes_nothing)
{
    exo_ppo_update_opts slow = defaults;
    slow.repeat = 3;
    exo_rollout rollout;
    play_some(&rollout, 1, 5);
    exo_ppo_update *a = update_new(&defaults, 1, 2), *b = update_new(&slow, 1, 2);
    update_alone(a, &rollout, 1);
    update_alone(b, &rollout, 1);
    cr_expect(same_policy(a, b));
    arrays_free(&rollout);
    exo_ppo_update_free(&a);
    exo_ppo_update_free(&b);
}

Test(ppo_update, those_that_learn_as_one_have_one_policy)
{
    exo_rollout rollouts[3];
    play_some(rollouts, 3, 5);
    exo_ppo_update *updates[3];
    for (size_t r = 0; r < 3; r++)
        updates[r] = update_new(&defaults, 1, 10 + r);
    const exo_rollout *const parts[3] = {rollouts, rollouts + 1, rollouts};
    for (int i = 0; i < 3; i++)
        update_as_one(updates, 3, parts, (size_t[]){1, 2, i == 1 ? 0 : 1});
    cr_expect(same_policy(updates[0], updates[1]));
    cr_expect(same_policy(updates[0], updates[2]));
    for (int i = 0; i < 3; i++) {
        arrays_free(&rollouts[i]);
        exo_ppo_update_free(&updates[i]);
    }
}

Test(ppo_update, who_has_no_samples_only_takes_part)
{
    exo_rollout rollouts[2];
    play_some(rollouts, 2, 5);
    exo_ppo_update *alone = update_new(&defaults, 1, 2), *pair[2];
    pair[0] = update_new(&defaults, 1, 2);
    pair[1] = update_new(&defaults, 1, 3);
    update_alone(alone, rollouts, 2);
    update_as_one(pair, 2, (const exo_rollout *const[]){rollouts, NULL}, (size_t[]){2, 0});
    cr_expect(same_policy(alone, pair[0]));
    cr_expect(same_policy(alone, pair[1]));

    /* Without any samples nothing is learned. */
    exo_policy before = policy_of(alone);
    update_alone(alone, NULL, 0);
    cr_expect_eq(memcmp(before.values, exo_ppo_update_policy(alone)->values,
                        policy_numel(&before) * sizeof(float)),
                 0);
    policy_free(&before);
    cr_expect_eq(exo_ppo_update_count(alone), 2);
    arrays_free(&rollouts[0]);
    arrays_free(&rollouts[1]);
    exo_ppo_update_free(&alone);
    exo_ppo_update_free(&pair[0]);
    exo_ppo_update_free(&pair[1]);
}

Test(ppo_update, learning_rate_goes_to_zero)
{
    exo_ppo_update_opts opts = defaults;
    opts.updates = 2;
    exo_rollout rollout;
    play_some(&rollout, 1, 5);
    exo_ppo_update *update = update_new(&opts, 1, 2);
    update_alone(update, &rollout, 1);
    update_alone(update, &rollout, 1);
    exo_policy before = policy_of(update);
    update_alone(update, &rollout, 1);
    cr_expect_eq(memcmp(before.values, exo_ppo_update_policy(update)->values,
                        policy_numel(&before) * sizeof(float)),
                 0);
    policy_free(&before);
    arrays_free(&rollout);
    exo_ppo_update_free(&update);
}

/* With zero advantages the loss is that of the entropy alone, whose coefficient halves in the second
 * of two updates. */
Test(ppo_update, coefficient_of_the_entropy_goes_to_its_last)
{
    exo_ppo_update_opts opts = defaults;
    opts.updates = 2;
    opts.lr = 0;
    opts.loss = (exo_ppo_opts){.clip = 0.2, .entropy = 0.4};
    opts.last_entropy = 0.2;
    exo_rollout rollout;
    play_some(&rollout, 1, 5);
    exo_ppo_update *update = update_new(&opts, 1, 2);
    update_alone(update, &rollout, 1);
    double first = exo_ppo_update_loss(update);
    update_alone(update, &rollout, 1);
    /* Normalized advantages have the mean 0, and the ratio is 1: the policy loss is 0. */
    cr_expect_float_eq(first, -0.4 * log(2), 1e-3);
    cr_expect_float_eq(exo_ppo_update_loss(update), -0.3 * log(2), 1e-3);
    arrays_free(&rollout);
    exo_ppo_update_free(&update);
}

Test(ppo_update, every_allocation_may_fail)
{
    exo_rollout rollout;
    play_some(&rollout, 1, 5);
    const exo_policy_shape shape =
        exo_policy_shape_for(exo_environment_spec_shape(environment()), 64);
    size_t failed = 0;
    for (uint64_t n = 1; n <= 20; n++) {
        exo_ppo_update *update = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        exo_status st = exo_ppo_update_new(&update, &defaults, &shape, 1, 2, &err);
        cr_assert((st == EXO_OK) == (update != NULL));
        if (st == EXO_OK)
            st = exo_ppo_update_begin(update, &rollout, 1, &err);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]));
        failed += st != EXO_OK;
        if (update && st != EXO_OK) /* after the failure there is memory again */
            cr_assert_eq(exo_ppo_update_begin(update, &rollout, 1, &err), EXO_OK);
        exo_memory_fail_at(0);
        exo_ppo_update_free(&update);
    }
    cr_expect_eq(failed, 15, "%zu", failed);
    arrays_free(&rollout);
}

/* --- Learning CartPole ------------------------------------------------------------------------ */

enum {
    MAX_ACTORS = 2,
    BATCH = 4,
    CAPACITY = 7, /* of each pair: a buffer of four, and rollouts in flight */
    STEPS = 128,
    ENVIRONMENTS = 4
};

/* A trainer and the rollouts that wait for it. */
struct place {
    exo_ppo_update *update;
    exo_returns returns;
    exo_rollout waiting[(MAX_ACTORS * CAPACITY) + BATCH];
    size_t count;
};

/* Lets makers run as far ahead as the buffers allow, so that rollouts are as stale as possible.
 * Returns the number of updates until the last hundred episodes of all trainers had a mean return
 * of `target`. */
static uint64_t
learn_cartpole(size_t makers, size_t trainers, double target, uint64_t seed)
{
    exo_player *players[MAX_ACTORS];
    struct place *places = calloc(trainers, sizeof *places);
    size_t turn[MAX_ACTORS];
    uint64_t updates = 0;
    for (size_t m = 0; m < makers; m++) {
        cr_assert_eq(exo_player_new(&players[m], environment(), ENVIRONMENTS, seed * 100 + m, NULL),
                     EXO_OK);
        turn[m] = m % trainers;
    }
    for (size_t r = 0; r < trainers; r++)
        places[r].update = update_new(&defaults, seed, seed * 100 + 50 + r);
    for (double mean = 0; mean < target && updates < defaults.updates; updates++) {
        size_t blocked = 0;
        for (size_t m = 0; blocked < makers; m = (m + 1) % makers) {
            struct place *p = &places[turn[m]];
            if (p->count == sizeof p->waiting / sizeof *p->waiting ||
                p->count >= makers * CAPACITY) {
                blocked++;
                continue;
            }
            blocked = 0;
            p->waiting[p->count] = arrays_new(environment(), STEPS, ENVIRONMENTS);
            exo_player_play(players[m], exo_ppo_update_policy(places[0].update),
                            &p->waiting[p->count++]);
            turn[m] = (turn[m] + 1) % trainers;
        }
        exo_ppo_update *all[MAX_ACTORS];
        const exo_rollout *batches[MAX_ACTORS];
        size_t batch[MAX_ACTORS], episodes = 0;
        double sum = 0;
        for (size_t r = 0; r < trainers; r++) {
            double part;
            cr_assert_geq(places[r].count, BATCH);
            for (size_t i = 0; i < BATCH; i++)
                exo_returns_add(&places[r].returns, &places[r].waiting[i]);
            episodes += exo_returns_sum(&places[r].returns, &part);
            sum += part;
            all[r] = places[r].update;
            batches[r] = places[r].waiting;
            batch[r] = BATCH;
        }
        mean = episodes >= trainers * EXO_RETURN_WINDOW ? sum / (double)episodes : 0;
        update_as_one(all, trainers, batches, batch);
        for (size_t r = 0; r < trainers; r++) {
            struct place *p = &places[r];
            for (size_t i = 0; i < BATCH; i++)
                arrays_free(&p->waiting[i]);
            p->count -= BATCH;
            memmove(p->waiting, p->waiting + BATCH, p->count * sizeof *p->waiting);
        }
    }
    for (size_t m = 0; m < makers; m++)
        exo_player_free(&players[m]);
    for (size_t r = 0; r < trainers; r++) {
        for (size_t i = 0; i < places[r].count; i++)
            arrays_free(&places[r].waiting[i]);
        exo_ppo_update_free(&places[r].update);
    }
    free(places);
    return updates;
}

/* Over 20 seeds, learning to 400 took between 29 and 46 updates with any number of makers and
 * trainers. cli/maker_trainer learns to 400 with all of them. */
Test(ppo_update, one_maker_and_one_trainer_learn_cartpole)
{
    cr_expect_leq(learn_cartpole(1, 1, SANITIZED ? 20 : 400, 1), 60);
}

Test(ppo_update, two_makers_and_one_trainer_learn_cartpole)
{
    cr_expect_leq(learn_cartpole(2, 1, SANITIZED ? 20 : 150, 2), 30);
}

Test(ppo_update, two_makers_and_two_trainers_learn_cartpole)
{
    cr_expect_leq(learn_cartpole(2, 2, SANITIZED ? 20 : 150, 3), 30);
}
