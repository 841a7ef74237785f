/* `parallel: auto` of a job: takes the first composition of the job's plan. The rest of the job is
 * read as if it had named that composition itself, and so is its config.json. Read next: planner.h. */
#include <inttypes.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/figures.h"
#include "base/memory_limits.h"
#include "programs/job.h"
#include "programs/planner.h"

#define LABEL "auto" /* of the run, so that its folder does not depend on the choice */

/* map: that of `auto`, or NULL. */
static exo_status
read_auto(exo_config *map, exo_job_plan_opts *out, exo_err *err)
{
    *out = (exo_job_plan_opts){.step_time = -1, .subject = "parallel"};
    if (!map)
        return EXO_OK;
    exo_status st = exo_config_bytes(map, "memory", 0, 1, UINT64_MAX, &out->memory, err);
    if (st == EXO_OK)
        st = exo_config_time(map, "step_time", -1, 0, INT64_MAX, &out->step_time, err);
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

/* Copies the job without the key. Values keep their places, so that messages name them. */
static exo_status
copy_job(exo_config_doc *doc, exo_config_doc **out, exo_err *err)
{
    exo_config *root = exo_config_root(doc), *value = NULL;
    const char *key;
    exo_status st = exo_config_parse(out, exo_config_source(root), "{}", err);
    for (size_t i = 0; st == EXO_OK && (key = exo_config_key(root, i, &value)); i++)
        if (strcmp(key, "parallel") != 0)
            st = exo_config_graft(exo_config_root(*out), key, value, err);
    if (st == EXO_OK)
        exo_config_keep_out_as(*out, doc);
    return st;
}

/* Puts the composition into the job. */
static exo_status
take(exo_config_doc *doc, const exo_job_plan *plan, exo_err *err)
{
    char *sets[EXO_JOB_PLAN_SETS] = {NULL}, *label = NULL;
    size_t count = 0;
    exo_config *root = exo_config_root(doc), *strategy = exo_config_get(root, "strategy");
    const char *own =
        exo_config_is_map(strategy) ? exo_config_scalar(exo_config_get(strategy, "label")) : NULL;
    exo_status st = EXO_OK;
    exo_config_remove(root, "parallel");
    if (!(label = exo_strdup(own ? own : LABEL)))
        st = exo_fail(err, EXO_NOMEM, "out of memory");
    if (st == EXO_OK)
        st = exo_job_plan_assignments(plan, &plan->entries[0], sets, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (st == EXO_OK)
            st = exo_config_set(doc, sets[i], err);
        exo_free(sets[i]);
    }
    if (st == EXO_OK)
        st = exo_config_graft_string(exo_config_get(root, "strategy"), "label", label, err);
    exo_free(label);
    return st;
}

/* Says what was chosen and why. */
static exo_status
note(const exo_job_plan *plan, char **out, exo_err *err)
{
    static const char *const costs[] = {"declared", "given", "measured"};
    const exo_job_plan_entry *e = &plan->entries[0];
    char text[EXO_PARALLELISM_TEXT], memory[EXO_FIGURE], step[EXO_UNIT_TEXT], cost[EXO_UNIT_TEXT];
    *out =
        exo_text_make(err,
                      "parallel: %s, in minibatches of %zu: %s a step (%s of it computation, %s) "
                      "and %s a node are predicted",
                      exo_parallelism_text(&e->composition, text), e->minibatch_size,
                      exo_job_plan_seconds(e->seconds, step),
                      exo_job_plan_seconds((double)plan->step_cost * 1e-9, cost), costs[plan->cost],
                      exo_text_bytes((double)e->memory, memory));
    return *out ? EXO_OK : EXO_NOMEM;
}

exo_status
exo_job_choose_parallel(exo_job *job, exo_err *err)
{
    exo_config *root = exo_config_root(job->doc), *how = NULL;
    exo_config_doc *copy = NULL;
    exo_job_plan plan = {0};
    exo_job_plan_opts opts;
    uint64_t nodes = 1;
    bool asks = false;
    exo_status st = exo_job_asks_plan(root, &asks, &how, err);
    if (st != EXO_OK || !asks)
        return st;
    st = read_auto(how, &opts, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "nodes", 1, 1, UINT32_MAX, &nodes, err);
    const char *device = exo_config_scalar(exo_config_get(root, "device"));
    if (opts.memory == 0 && (!device || strcmp(device, "cpu") == 0)) /* they share this machine */
        opts.memory = exo_free_memory() / nodes;
    if (st == EXO_OK)
        st = copy_job(job->doc, &copy, err);
    if (st == EXO_OK)
        st = exo_job_plan_make(&plan, &copy, &opts, err);
    if (st == EXO_OK && plan.num_fitting == 0) {
        exo_job_plan_fail_none(&plan, "parallel", err);
        st = exo_config_add_place(exo_config_get(root, "parallel"), err);
    }
    if (st == EXO_OK)
        st = take(job->doc, &plan, err);
    if (st == EXO_OK)
        st = note(&plan, &job->chosen, err);
    exo_job_plan_release(&plan);
    exo_config_free(&copy);
    return st;
}
