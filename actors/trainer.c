/* The trainer, the public interface to fits. It admits one fit at a time. Read next: fit_run.c,
 * which runs a fit. */
#include <exogym/trainer.h>

#include <fenv.h>
#include <stdatomic.h>

#include <exogym/memory.h>

#include "actors/fit_run.h"

struct exo_trainer {
    exo_model *model;
    exo_dataset *train, *val; /* `train` is NULL if every fit has a factory */
    atomic_flag busy;         /* a fit is running */
};

exo_status
exo_trainer_new(exo_trainer **out, exo_model *model, exo_dataset *train, exo_dataset *val,
                exo_err *err)
{
    if (!model)
        return exo_fail(err, EXO_INVAL, "a trainer needs a model");
    if (!exo_model_objective(model))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "the model '%s' has no objective that a trainer could train it for",
                        exo_model_name(model));
    exo_trainer *t = exo_calloc(1, sizeof *t);
    if (!t)
        return exo_fail(err, EXO_NOMEM, "no memory for a trainer");
    t->model = exo_model_hold(model);
    t->train = train ? exo_dataset_hold(train) : NULL;
    t->val = val ? exo_dataset_hold(val) : NULL;
    atomic_flag_clear(&t->busy);
    *out = t;
    return EXO_OK;
}

void
exo_trainer_free(exo_trainer **trainer)
{
    exo_trainer *t = *trainer;
    if (!t)
        return;
    exo_model_drop(&t->model);
    exo_dataset_drop(&t->train);
    exo_dataset_drop(&t->val);
    exo_free(t);
    *trainer = NULL;
}

exo_status
exo_trainer_fit(exo_trainer *trainer, const char *strategy, exo_config *options,
                const exo_fit_opts *opts, exo_fit_result *result, exo_err *err)
{
    *result = (exo_fit_result){0};
    if (atomic_flag_test_and_set(&trainer->busy))
        return exo_fail(err, EXO_EXISTS,
                        "the trainer fits a run already: one at a time, or another trainer");
    /* what the caller's thread computes has the bits of any other program's run */
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    exo_status st = exo_fit_run(trainer->model, trainer->train, trainer->val, strategy, options,
                                opts, NULL, NULL, NULL, result, err);
    fesetenv(&before);
    atomic_flag_clear(&trainer->busy);
    return st;
}

exo_status
exo_trainer_fit_text(exo_trainer *trainer, const char *strategy, const char *options,
                     const exo_fit_opts *opts, exo_fit_result *result, exo_err *err)
{
    *result = (exo_fit_result){0};
    exo_config_doc *doc = NULL;
    fenv_t before; /* numbers of the text are rounded, too */
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    exo_status st = exo_config_parse(&doc, "options", options && *options ? options : "{}", err);
    if (st == EXO_OK)
        st = exo_trainer_fit(trainer, strategy, exo_config_root(doc), opts, result, err);
    exo_config_free(&doc);
    fesetenv(&before);
    return st;
}
