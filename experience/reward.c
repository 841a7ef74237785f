/* Rewards of answers: see exogym/reward.h. The registry, and the built-in class `share`. */
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/registry.h"
#include "experience/builtin.h"
#include "experience/named_class.h"
#include "experience/reward_task.h"

/* A class with its options, or a weighted sum of such rewards. */
struct exo_reward {
    const exo_reward_class *of; /* NULL: a sum */
    void *self;
    exo_reward **parts; /* (count) */
    double *weights;    /* (count) */
    size_t count;
};

exo_registry exo_reward_registry = EXO_REGISTRY("reward");

exo_status
exo_reward_class_register(const exo_reward_class *reward_class, exo_err *err)
{
    if (!reward_class || !reward_class->score)
        return exo_fail(err, EXO_INVAL, "a reward class needs the function score");
    return exo_registry_add(&exo_reward_registry, reward_class, err);
}

const exo_reward_class *
exo_reward_class_at(size_t index)
{
    return exo_registry_at(&exo_reward_registry, index);
}

/* --- Rewards ---------------------------------------------------------------------------------- */

/* Makes the reward of `node`; `weight` is NULL, or gets the key `weight`. */
static exo_status
read_one(exo_reward **out, exo_config *node, const char *key, double *weight, exo_err *err)
{
    const void *found = NULL;
    exo_config *map = NULL;
    exo_config_doc *empty = NULL;
    exo_status st = exo_named_class_find(&found, &exo_reward_registry, node, key, &map, err);
    const exo_reward_class *of = found;
    if (st == EXO_OK && !map) {
        st = exo_config_parse(&empty, key, "{}", err);
        map = st == EXO_OK ? exo_config_root(empty) : NULL;
    }
    exo_reward *r = st == EXO_OK ? exo_calloc(1, sizeof *r) : NULL;
    if (r) {
        r->of = of;
        r->self = exo_calloc(1, of->state_size ? of->state_size : 1);
    }
    if (st == EXO_OK && (!r || !r->self))
        st = exo_fail(err, EXO_NOMEM, "no memory for a reward");
    if (st == EXO_OK && weight)
        st = exo_config_double(map, "weight", 1, -1e9, 1e9, weight, err);
    if (st == EXO_OK && of->init)
        st = of->init(r->self, map, err);
    if (st == EXO_OK)
        st = exo_config_finish(map, err);
    exo_config_free(&empty);
    if (st == EXO_OK)
        *out = r;
    else
        exo_reward_free(&r);
    return st;
}

/* Makes the weighted sum of a list. */
static exo_status
read_sum(exo_reward **out, exo_config *list, const char *key, exo_err *err)
{
    size_t count = exo_config_length(list);
    if (count == 0)
        return exo_config_fail(list, err, "%s: the list is empty", key);
    exo_reward *r = exo_calloc(1, sizeof *r);
    if (r) {
        r->parts = exo_calloc(count, sizeof *r->parts);
        r->weights = exo_calloc(count, sizeof *r->weights);
    }
    exo_status st = r && r->parts && r->weights
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "no memory for %zu rewards", count);
    for (; st == EXO_OK && r->count < count; r->count += st == EXO_OK) {
        r->weights[r->count] = 1;
        st = read_one(&r->parts[r->count], exo_config_item(list, r->count), key,
                      &r->weights[r->count], err);
    }
    if (st == EXO_OK)
        *out = r;
    else
        exo_reward_free(&r);
    return st;
}

exo_status
exo_reward_read(exo_reward **out, exo_config *config, const char *key, exo_err *err)
{
    exo_config *node = exo_config_get(config, key);
    *out = NULL;
    if (!node)
        return exo_config_fail(config, err, "the key '%s' is missing: %s: {name: NAME, ...}", key,
                               key);
    return exo_config_is_list(node) ? read_sum(out, node, key, err)
                                    : read_one(out, node, key, NULL, err);
}

void
exo_reward_free(exo_reward **reward)
{
    exo_reward *r = *reward;
    *reward = NULL;
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++)
        exo_reward_free(&r->parts[i]);
    exo_free(r->parts);
    exo_free(r->weights);
    if (r->self && r->of->release)
        r->of->release(r->self);
    exo_free(r->self);
    exo_free(r);
}

exo_status
exo_reward_start(exo_reward *r, uint32_t place, exo_err *err)
{
    exo_status st = r->of && r->of->start ? r->of->start(r->self, place, err) : EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < r->count; i++)
        st = exo_reward_start(r->parts[i], place, err);
    return st;
}

/* The weighted sums of the parts' scores. */
static exo_status
score_parts(exo_reward *r, const exo_answer *answers, size_t count, double *out, exo_err *err)
{
    exo_status st = EXO_OK;
    double *of_part = exo_calloc(count, sizeof *of_part);
    if (!of_part)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu scores", count);
    memset(out, 0, count * sizeof *out);
    for (size_t i = 0; st == EXO_OK && i < r->count; i++) {
        st = exo_reward_score_many(r->parts[i], answers, count, of_part, err);
        for (size_t n = 0; st == EXO_OK && n < count; n++)
            out[n] += r->weights[i] * of_part[n];
    }
    exo_free(of_part);
    return st;
}

exo_status
exo_reward_score_many(exo_reward *r, const exo_answer *answers, size_t count, double *out,
                      exo_err *err)
{
    exo_status st = EXO_OK;
    if (count == 0)
        return EXO_OK;
    if (!r->of)
        return score_parts(r, answers, count, out, err);
    if (r->of->score_many)
        st = r->of->score_many(r->self, answers, count, out, err);
    else
        for (size_t n = 0; st == EXO_OK && n < count; n++)
            st = r->of->score(r->self, &answers[n], &out[n], err);
    if (st == EXO_CLOSED) /* would be the end of a maker's work */
        return exo_fail(err, EXO_FAILED, "the reward '%s' failed with the status 'closed'",
                        r->of->name);
    for (size_t n = 0; st == EXO_OK && n < count; n++)
        if (!isfinite(out[n]))
            st = exo_fail(err, EXO_FAILED, "the reward '%s' gave a score that is not finite: %g",
                          r->of->name, out[n]);
    return st;
}

exo_status
exo_reward_score(exo_reward *r, const exo_answer *answer, double *out, exo_err *err)
{
    return exo_reward_score_many(r, answer, 1, out, err);
}

bool
exo_reward_batches(const exo_reward *r)
{
    bool batches = r->of && r->of->score_many;
    for (size_t i = 0; i < r->count; i++)
        batches = batches || exo_reward_batches(r->parts[i]);
    return batches;
}

/* --- The check ---------------------------------------------------------------------------------- */

static exo_status share_check(const void *self, const exo_reward_task *task, exo_err *err);

exo_status
exo_reward_check(const exo_reward *r, const exo_reward_task *task, exo_err *err)
{
    static const struct {
        const exo_reward_class *of;
        exo_status (*check)(const void *self, const exo_reward_task *task, exo_err *err);
    } checks[] = {{&exo_share_reward, share_check},
                  {&exo_exact_reward, exo_exact_reward_check},
                  {&exo_calculation_reward, exo_calculation_reward_check},
                  {&exo_expression_reward, exo_expression_reward_check},
                  {&exo_model_reward, exo_model_reward_check}};
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof checks / sizeof *checks; i++)
        if (r->of == checks[i].of)
            st = checks[i].check(r->self, task, err);
    for (size_t i = 0; st == EXO_OK && i < r->count; i++)
        st = exo_reward_check(r->parts[i], task, err);
    return st;
}

/* --- The class "share" ------------------------------------------------------------------------ */

struct share {
    uint64_t token;
};

static exo_status
share_init(void *self, exo_config *config, exo_err *err)
{
    struct share *s = self;
    if (!exo_config_has(config, "token"))
        return exo_config_fail(config, err, "share: the key 'token' is missing: its number");
    return exo_config_u64(config, "token", 0, 0, INT32_MAX, &s->token, err);
}

static exo_status
share_check(const void *self, const exo_reward_task *task, exo_err *err)
{
    const struct share *s = self;
    return s->token < task->vocabulary
               ? EXO_OK
               : exo_fail(err, EXO_INVAL,
                          "share: no answer has the token %llu: the model's vocabulary is %zu",
                          (unsigned long long)s->token, task->vocabulary);
}

static exo_status
share_score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    const struct share *s = self;
    size_t hits = 0, written = 0;
    (void)err;
    for (size_t i = 0; i < answer->length; i++) {
        bool is_written = !answer->mask || answer->mask[i];
        written += is_written;
        hits += is_written && (uint64_t)answer->tokens[i] == s->token;
    }
    *out = written ? (double)hits / (double)written : 0;
    return EXO_OK;
}

const exo_reward_class exo_share_reward = {
    .name = "share",
    .help = "the share of an answer's tokens that are `token`; a tool's do not count",
    .state_size = sizeof(struct share),
    .init = share_init,
    .score = share_score,
};
