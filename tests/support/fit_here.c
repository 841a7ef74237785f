/* A run whose nodes are in this process: see fit_here.h. No state. */
#include "support/fit_here.h"

#include <stdio.h>
#include <stdlib.h>

#include <exogym/memory.h>

static void
must(exo_status st, const exo_err *err)
{
    if (st == EXO_OK)
        return;
    fprintf(stderr, "fit_here: %s\n", err->text);
    abort();
}

exo_fit *
fit_here(exo_runtime *runtime, const char *run, uint32_t nodes, uint64_t steps)
{
    exo_fit *fit = NULL;
    exo_dataset *train = NULL;
    exo_config_doc *options = NULL;
    exo_err err = {0};
    must(exo_fit_new(&fit, nodes, &err), &err);
    must(exo_config_parse(&options, "options", "{count: 64}", &err), &err);
    must(exo_model_new_named(&fit->model, "mlp", NULL, &err), &err);
    must(exo_dataset_named("synthetic", exo_config_root(options), &train, &fit->val, &err), &err);
    exo_config_free(&options);
    fit->train = exo_calloc(nodes, sizeof(exo_dataset *));
    if (!fit->train)
        abort();
    for (uint32_t r = 0; r < nodes; r++)
        fit->train[r] = exo_dataset_hold(train);
    exo_dataset_drop(&train);
    fit->shared_data = true;
    fit->max_steps = steps;
    fit->batch_size = fit->minibatch_size = 2;
    fit->timeout = 60 * EXO_SECOND;
    must(exo_fit_plan_evaluation(fit, 2, &err), &err);
    must(exo_comm_local(&fit->comm, nodes, exo_clock_real(), &err), &err);
    must(exo_comm_local(&fit->side, nodes, exo_clock_real(), &err), &err);
    must(exo_fit_put(fit, runtime, run, &err), &err);
    return fit;
}
