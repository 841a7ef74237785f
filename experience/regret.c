/* Regrets: see regret.h. */
#include "experience/regret.h"

#include <math.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>

#include "base/config_edit.h"
#include "experience/exact_task.h"

enum {
    PIECE = 64 /* sequences of a pass */
};

struct exo_regret {
    exo_exact_rewards task;
    uint64_t every;
    double beta;
    double *policy, *reference; /* (task.count) log-probabilities of sequences */
    double optimum;
    bool started; /* reference and optimum are known */
    /* A piece of the sequences, as answers. */
    exo_experience answers;
    float *log_probs; /* (PIECE length) */
};

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
read_map(exo_regret *r, exo_config *map, exo_err *err)
{
    static const char *const names[] = {"exact", NULL};
    size_t ignored = 0;
    exo_status st = exo_config_choice(map, "name", 0, names, &ignored, err);
    if (st == EXO_OK)
        st = exo_exact_rewards_read(&r->task, map, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "every", 10, 0, UINT32_MAX, &r->every, err);
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

static exo_status
check_learner(exo_regret *r, exo_config *map, const exo_learner *learner, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(exo_learner_model(learner));
    r->beta = exo_learner_beta(learner);
    if (spec->vocabulary != r->task.vocabulary)
        return exo_config_fail(map, err,
                               "exact: the model's vocabulary is %zu, the task's %llu: set "
                               "model.vocabulary",
                               spec->vocabulary, (unsigned long long)r->task.vocabulary);
    if (spec->context < r->task.length)
        return exo_config_fail(map, err,
                               "exact: the model's context is %zu: set model.context, at least "
                               "%llu",
                               spec->context, (unsigned long long)r->task.length + 1);
    if (exo_learner_moves_beta(learner))
        return exo_config_fail(map, err,
                               "exact: kl_target moves kl_coef, so each update has another best "
                               "policy: leave kl_target out");
    if (!(r->beta > 0))
        return exo_config_fail(map, err,
                               "exact: the best policy is known for a KL penalty only: set "
                               "algorithm.kl_coef");
    return EXO_OK;
}

static exo_status
make_room(exo_regret *r, exo_err *err)
{
    size_t tokens = PIECE * (size_t)r->task.length;
    exo_experience *a = &r->answers;
    r->policy = exo_calloc(r->task.count, sizeof *r->policy);
    r->reference = exo_calloc(r->task.count, sizeof *r->reference);
    r->log_probs = exo_calloc(tokens, sizeof *r->log_probs);
    a->prompt_tokens = exo_calloc(1, sizeof *a->prompt_tokens);
    a->lengths = exo_calloc(PIECE, sizeof *a->lengths);
    a->tokens = exo_calloc(tokens, sizeof *a->tokens);
    a->log_probs = exo_calloc(tokens, sizeof *a->log_probs);
    if (!r->policy || !r->reference || !r->log_probs || !a->prompt_tokens || !a->lengths ||
        !a->tokens || !a->log_probs)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu sequences", r->task.count);
    a->prompt_length = 1;
    a->prompt_tokens[0] = (int32_t)r->task.prompt;
    a->temperature = 1;
    for (size_t i = 0; i < PIECE; i++)
        a->lengths[i] = (int32_t)r->task.length;
    return EXO_OK;
}

exo_status
exo_regret_read(exo_regret **out, exo_config *config, const exo_learner *learner, exo_err *err)
{
    exo_config *map = NULL;
    *out = NULL;
    exo_status st = exo_config_map(config, "exact", &map, err);
    if (st != EXO_OK || !map)
        return st;
    exo_regret *r = exo_calloc(1, sizeof *r);
    if (!r)
        return exo_fail(err, EXO_NOMEM, "no memory for an exact task");
    st = read_map(r, map, err);
    if (st == EXO_OK)
        st = check_learner(r, map, learner, err);
    if (st == EXO_OK)
        st = make_room(r, err);
    if (st == EXO_OK)
        *out = r;
    else
        exo_regret_free(&r);
    return st;
}

void
exo_regret_free(exo_regret **regret)
{
    exo_regret *r = *regret;
    *regret = NULL;
    if (!r)
        return;
    exo_exact_rewards_release(&r->task);
    exo_free(r->policy);
    exo_free(r->reference);
    exo_free(r->log_probs);
    exo_free(r->answers.prompt_tokens);
    exo_free(r->answers.lengths);
    exo_free(r->answers.tokens);
    exo_free(r->answers.log_probs);
    exo_free(r);
}

/* --- Items ------------------------------------------------------------------------------------ */

bool
exo_regret_is_due(const exo_regret *r, uint64_t version)
{
    return r && r->every > 0 && version % r->every == 0;
}

exo_status
exo_regret_check(const exo_regret *r, const exo_experience *e, exo_err *err)
{
    exo_status st = EXO_OK;
    double reward = 0;
    if (!r)
        return EXO_OK;
    if (e->filtered || e->temperature < 1 || e->temperature > 1)
        return exo_fail(err, EXO_INVAL,
                        "exact: item %llu is not drawn from the policy itself: set generate: "
                        "{temperature: 1} without top_k and top_p",
                        (unsigned long long)e->id);
    for (size_t a = 0, at = 0; st == EXO_OK && a < e->answers; at += (size_t)e->lengths[a++]) {
        st = exo_exact_rewards_of(&r->task, e->prompt_tokens, e->prompt_length, e->tokens + at,
                                  (size_t)e->lengths[a], &reward, err);
        if (st == EXO_OK && (e->scores[a] < reward || e->scores[a] > reward))
            st = exo_fail(err, EXO_INVAL,
                          "exact: item %llu has the score %g, but the task gives %g: let the "
                          "makers' reward be the same task",
                          (unsigned long long)e->id, e->scores[a], reward);
    }
    return st;
}

/* --- Measuring -------------------------------------------------------------------------------- */

/* The log-probabilities of all sequences under the policy, or the initial model: their sum of
 * probabilities, which single precision rounds, is made 1. */
static exo_status
enumerate(exo_regret *r, exo_learner *learner, bool initial, const exo_exact_task *task,
          double *out, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_pick picks[PIECE];
    size_t length = task->length;
    double sum = 0;
    for (size_t i = 0, n; st == EXO_OK && i < r->task.count; i += n) {
        n = r->task.count - i < PIECE ? r->task.count - i : PIECE;
        for (size_t k = 0; k < n; k++) {
            exo_exact_tokens(task, i + k, r->answers.tokens + k * length);
            picks[k] = (exo_pick){.from = &r->answers, .answer = k, .first = k * length};
        }
        st = exo_learner_read_answers(learner, initial, picks, n, r->log_probs, err);
        for (size_t k = 0; st == EXO_OK && k < n; k++) {
            out[i + k] = 0;
            for (size_t t = 0; t < length; t++)
                out[i + k] += (double)r->log_probs[k * length + t];
            sum += exp(out[i + k]);
        }
    }
    for (size_t i = 0; st == EXO_OK && i < r->task.count; i++)
        out[i] -= log(sum);
    return st;
}

exo_status
exo_regret_measure(exo_regret *r, exo_learner *learner, exo_regret_figures *out, exo_err *err)
{
    const exo_exact_task task = {.vocabulary = (size_t)r->task.vocabulary,
                                 .length = (size_t)r->task.length,
                                 .rewards = r->task.rewards,
                                 .reference = r->reference,
                                 .beta = r->beta};
    exo_status st = EXO_OK;
    if (!r->started) {
        st = enumerate(r, learner, true, &task, r->reference, err);
        if (st == EXO_OK)
            st = exo_exact_check(&task, err);
        if (st == EXO_OK)
            r->optimum = exo_exact_optimum(&task, NULL);
        r->started = st == EXO_OK;
    }
    if (st == EXO_OK)
        st = enumerate(r, learner, false, &task, r->policy, err);
    if (st != EXO_OK)
        return st;
    double objective = exo_exact_objective(&task, r->policy, &out->reward, &out->kl);
    out->optimum = r->optimum;
    out->regret = r->optimum - objective;
    return EXO_OK;
}
