/* Evaluations of a policy while it learns: see evaluator.h. */
#include "actors/evaluator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "actors/policy_file.h"
#include "base/c_locale.h"
#include "base/table.h"

enum {
    MAX_PATH = 4096
};

struct exo_evaluator {
    exo_evaluator_opts opts;
    exo_policy best; /* its values are owned */
    exo_table list;
    /* Episodes of 0: there is none yet. */
    exo_evaluated newest_look, best_look, reached;
};

static exo_status
open_list(exo_evaluator *e, exo_err *err)
{
    char path[MAX_PATH];
    if (!e->opts.folder)
        return EXO_OK;
    if ((size_t)snprintf(path, sizeof path, "%s/evaluations_%s.csv", e->opts.folder,
                         e->opts.actor) >= sizeof path)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", path);
    return exo_table_open(&e->list, path, "update,samples,mean,deviation", 0, err);
}

exo_status
exo_evaluator_new(exo_evaluator **out, const exo_evaluator_opts *opts,
                  const exo_policy_shape *shape, exo_err *err)
{
    exo_evaluator *e = exo_calloc(1, sizeof *e);
    float *values = exo_calloc(exo_policy_numel(shape), sizeof *values);
    if (!e || !values) {
        exo_free(e);
        exo_free(values);
        return exo_fail(err, EXO_NOMEM, "no memory for the best policy");
    }
    e->opts = *opts;
    e->best = exo_policy_view(shape, values);
    exo_status st = open_list(e, err);
    if (st != EXO_OK)
        exo_evaluator_free(&e);
    *out = e;
    return st;
}

void
exo_evaluator_free(exo_evaluator **evaluator)
{
    if (!*evaluator)
        return;
    exo_table_close(&(*evaluator)->list);
    exo_free((*evaluator)->best.values);
    exo_free(*evaluator);
    *evaluator = NULL;
}

static exo_status
write_line(exo_evaluator *e, exo_err *err)
{
    const exo_evaluated *look = &e->newest_look;
    if (!e->list.stream)
        return EXO_OK;
    exo_c_fprintf(e->list.stream, "%llu,%llu,%.9g,%.9g\n", (unsigned long long)look->update,
                  (unsigned long long)look->samples, look->evaluation.mean,
                  look->evaluation.deviation);
    return exo_table_push(&e->list, err);
}

/* Keeps the policy of the newest look, which is the best so far. */
static exo_status
keep(exo_evaluator *e, const exo_policy *policy, exo_err *err)
{
    memcpy(e->best.values, policy->values, exo_policy_numel(&e->best.shape) * sizeof(float));
    e->best_look = e->newest_look;
    exo_status st = exo_table_check(&e->list, err);
    return st == EXO_OK && e->opts.folder
               ? exo_policy_save(&e->best, exo_environment_spec_name(e->opts.spec),
                                 e->best_look.update, e->opts.folder, "best", e->opts.actor, err)
               : st;
}

exo_status
exo_evaluator_look(exo_evaluator *e, const exo_policy *policy, uint64_t update, uint64_t samples,
                   exo_err *err)
{
    exo_evaluated look = {.update = update, .samples = samples};
    const exo_evaluated *newest = exo_evaluator_newest(e);
    if (newest && newest->update == update)
        return EXO_OK;
    exo_status st = exo_evaluate(&look.evaluation, e->opts.spec, policy, e->opts.episodes,
                                 e->opts.likeliest, e->opts.seed, err);
    if (st != EXO_OK)
        return st;
    e->newest_look = look;
    if (isfinite(e->opts.threshold) && !exo_evaluator_reached(e) &&
        look.evaluation.mean >= e->opts.threshold)
        e->reached = look;
    const exo_evaluated *best = exo_evaluator_best(e);
    if (!best || look.evaluation.mean > best->evaluation.mean || isnan(best->evaluation.mean))
        st = keep(e, policy, err);
    return st == EXO_OK ? write_line(e, err) : st;
}

static const exo_evaluated *
existing(const exo_evaluated *look)
{
    return look->evaluation.episodes > 0 ? look : NULL;
}

const exo_evaluated *
exo_evaluator_newest(const exo_evaluator *e)
{
    return existing(&e->newest_look);
}

const exo_evaluated *
exo_evaluator_best(const exo_evaluator *e)
{
    return existing(&e->best_look);
}

const exo_evaluated *
exo_evaluator_reached(const exo_evaluator *e)
{
    return existing(&e->reached);
}

const exo_policy *
exo_evaluator_policy(const exo_evaluator *e)
{
    return &e->best;
}
