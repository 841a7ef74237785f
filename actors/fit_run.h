/* One fit from beginning to end. */
#ifndef EXO_FIT_RUN_H
#define EXO_FIT_RUN_H

#include <exogym/trainer.h>

/* exo_trainer_fit's work. `train` and `val` may be NULL if opts->factory makes them. */
exo_status exo_fit_run(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy,
                       exo_config *options, const exo_fit_opts *opts, exo_fit_result *result, exo_err *err);

#endif
