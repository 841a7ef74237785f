/* Rewards of answers: see exogym/reward.h. The registry, and the built-in class `share`. */
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/registry.h"
#include "experience/builtin.h"

struct exo_reward {
    const exo_reward_class *of;
    void *self;
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

static exo_status
find_class(const exo_reward_class **out, exo_config *config, const char *key, exo_config **map,
           exo_err *err)
{
    const char *name = NULL;
    exo_config *node = exo_config_get(config, key);
    exo_err reason = {0};
    *map = node && exo_config_is_map(node) ? node : NULL;
    if (!node)
        return exo_config_fail(config, err, "the key '%s' is missing: %s: {name: NAME, ...}", key,
                               key);
    exo_status st = exo_config_string(*map ? *map : config, *map ? "name" : key, NULL, &name, err);
    if (st == EXO_OK && !name)
        st = exo_config_fail(node, err, "%s: the key 'name' is missing", key);
    if (st != EXO_OK)
        return st;
    *out = exo_registry_find(&exo_reward_registry, name);
    if (*out)
        return EXO_OK;
    exo_registry_unknown(&exo_reward_registry, name, &reason);
    return exo_config_fail(node, err, "%s: %s", key, reason.text);
}

exo_status
exo_reward_read(exo_reward **out, exo_config *config, const char *key, exo_err *err)
{
    const exo_reward_class *of = NULL;
    exo_config *map = NULL;
    exo_config_doc *empty = NULL;
    *out = NULL;
    exo_status st = find_class(&of, config, key, &map, err);
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

void
exo_reward_free(exo_reward **reward)
{
    exo_reward *r = *reward;
    *reward = NULL;
    if (!r)
        return;
    if (r->self && r->of->release)
        r->of->release(r->self);
    exo_free(r->self);
    exo_free(r);
}

exo_status
exo_reward_score(exo_reward *r, const exo_answer *answer, double *out, exo_err *err)
{
    exo_status st = r->of->score(r->self, answer, out, err);
    if (st == EXO_OK && !isfinite(*out))
        return exo_fail(err, EXO_FAILED, "the reward '%s' gave a score that is not finite: %g",
                        r->of->name, *out);
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
share_score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    const struct share *s = self;
    size_t hits = 0;
    (void)err;
    for (size_t i = 0; i < answer->length; i++)
        hits += (uint64_t)answer->tokens[i] == s->token;
    *out = answer->length ? (double)hits / (double)answer->length : 0;
    return EXO_OK;
}

const exo_reward_class exo_share_reward = {
    .name = "share",
    .help = "the share of an answer's tokens that are `token`",
    .state_size = sizeof(struct share),
    .init = share_init,
    .score = share_score,
};
