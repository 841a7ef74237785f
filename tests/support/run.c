/* Runs of training: see run.h. */
#include "support/run.h"

#include <criterion/criterion.h>

#include <string.h>

#include "support/temp.h"

static void
note(void *context, const exo_progress *p)
{
    struct run *r = context;
    if (p->step >= 1 && p->step <= RUN_STEPS)
        r->loss[p->step] = p->train_loss;
}

void
run_init(struct run *r, const char *model, const char *options, exo_dataset *train,
         exo_dataset *val)
{
    exo_config_doc *doc = NULL;
    *r = (struct run){.train = train, .val = val, .opts = exo_fit_opts_init()};
    cr_assert_eq(exo_config_parse(&doc, "model", options, &r->err), EXO_OK, "%s", r->err.text);
    cr_assert_eq(exo_model_new_named(&r->model, model, exo_config_root(doc), &r->err), EXO_OK, "%s",
                 r->err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_trainer_new(&r->trainer, r->model, train, val, &r->err), EXO_OK, "%s",
                 r->err.text);
    r->opts.save_dir = NULL;
    r->opts.progress = note;
    r->opts.context = r;
}

void
run_release(struct run *r)
{
    exo_params_free(&r->result.params);
    exo_trainer_free(&r->trainer);
    exo_dataset_drop(&r->train);
    exo_dataset_drop(&r->val);
    exo_model_drop(&r->model);
}

exo_status
run_fit(struct run *r, const char *strategy, const char *options)
{
    exo_params_free(&r->result.params);
    return exo_trainer_fit_text(r->trainer, strategy, options, &r->opts, &r->result, &r->err);
}

void
run_must_fit(struct run *r, const char *strategy, const char *options)
{
    exo_status st = run_fit(r, strategy, options);
    cr_assert_eq(st, EXO_OK, "%u nodes, tensor %u, pipeline %u, context %u, %s %s: %s",
                 r->opts.num_nodes, r->opts.tensor, r->opts.pipeline, r->opts.context_parallel,
                 strategy, options, r->err.text);
}

void
run_expect_resume(struct run *r, const char *strategy, const char *options, uint64_t stop,
                  uint32_t *count)
{
    const uint64_t steps = r->opts.max_steps;
    char folder[64], whole[sizeof r->result.sha256];
    run_must_fit(r, strategy, options);
    memcpy(whole, r->result.sha256, sizeof whole);
    const uint64_t bytes = r->result.bytes_sent;
    temp_folder(folder, sizeof folder);
    r->opts.save_dir = folder;
    r->opts.run_name = "run";
    r->opts.max_steps = stop;
    run_must_fit(r, strategy, options);
    r->opts.resume = true;
    r->opts.max_steps = steps;
    if (count) {
        const uint32_t own = *count;
        *count = 1;
        cr_expect_neq(run_fit(r, strategy, options), EXO_OK, "a checkpoint has %u", own);
        *count = own;
    }
    run_must_fit(r, strategy, options);
    cr_expect_str_eq(r->result.sha256, whole, "%s %s", strategy, options);
    cr_expect_eq(r->result.bytes_sent, bytes, "%s %s", strategy, options);
    temp_remove(folder);
}
