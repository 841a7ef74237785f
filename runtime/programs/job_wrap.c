/* Data parallelism under the key `parallel` of a job: use_fsdp and what belongs to it. The job is then
 * as if its strategy had said so. No state. Read next: exogym/data_parallel.h, job_parallel.c. */
#include <string.h>

#include "base/config_edit.h"
#include "base/config_tree.h"
#include "programs/job.h"

static const char *const keys[] = {"use_fsdp", "sharding_strategy", "cpu_offload",
                                   "sync_module_states"};

enum {
    KEYS = sizeof keys / sizeof *keys
};

void
exo_job_know_wrapping(exo_config *parallel)
{
    for (size_t i = 0; i < KEYS; i++)
        exo_config_get(parallel, keys[i]);
}

/* Checks the values. *name: the strategy that they mean; NULL: any. */
static exo_status
read_keys(exo_config *map, const char **name, exo_err *err)
{
    static const char *const shardings[] = {"hybrid_shard", "full_shard",         "shard_grad_op",
                                            "no_shard",     "hybrid_shard_zero2", NULL};
    bool fsdp = false, offload = false, syncs = true;
    size_t sharding = 0;
    exo_status st = exo_config_bool(map, "use_fsdp", false, &fsdp, err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "sharding_strategy", 0, shardings, &sharding, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "cpu_offload", false, &offload, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "sync_module_states", true, &syncs, err);
    *name = fsdp ? "fsdp" : exo_config_has(map, "use_fsdp") ? "ddp" : NULL;
    if (st != EXO_OK || fsdp || (sharding == 0 && !offload))
        return st;
    const char *key = sharding > 0 ? "sharding_strategy" : "cpu_offload";
    return exo_config_fail(exo_config_get(map, key), err,
                           "parallel: %s belongs to fsdp: add use_fsdp: true", key);
}

/* Makes `strategy` a mapping with this name. */
static exo_status
name_strategy(exo_config_doc *doc, const char *name, exo_config **out, exo_err *err)
{
    exo_config *root = exo_config_root(doc), *strategy = exo_config_get(root, "strategy");
    if (strategy && exo_config_is_null(strategy)) {
        exo_config_remove(root, "strategy");
        strategy = NULL;
    }
    const char *word = exo_config_scalar(strategy);
    exo_config *given = word ? strategy : exo_config_get(strategy, "name");
    const char *is = exo_config_scalar(given);
    exo_status st = EXO_OK;
    if (name && exo_config_has(root, "compare"))
        return exo_config_fail(exo_config_get(root, "compare"), err,
                               "parallel: use_fsdp names the only strategy: leave compare out");
    if (name && is && strcmp(is, name) != 0)
        return exo_config_fail(given, err,
                               "the strategy '%.60s' and parallel: use_fsdp, which means '%s', "
                               "differ: leave one of the two out",
                               is, name);
    if (!strategy || word) {
        exo_config_remove(root, "strategy");
        st = exo_config_new_map(given ? given : exo_config_get(root, "parallel"), &strategy, err);
        if (st == EXO_OK)
            st = exo_config_adopt(root, "strategy", strategy, err);
    }
    if (st == EXO_OK && (name || word) && !exo_config_has(strategy, "name"))
        st = exo_config_graft_string(strategy, "name", name ? name : word, err);
    *out = strategy;
    return st;
}

exo_status
exo_job_take_wrapping(exo_config_doc *doc, exo_err *err)
{
    exo_config *root = exo_config_root(doc), *strategy = NULL;
    exo_config *map = exo_config_get(root, "parallel"), *value = NULL;
    const char *name = NULL;
    bool asks = false;
    for (size_t i = 0; i < KEYS; i++)
        asks = asks || exo_config_has(map, keys[i]);
    if (!asks || exo_config_has(map, "auto")) /* auto allows no other key (exo_job_asks_plan) */
        return EXO_OK;
    exo_status st = read_keys(map, &name, err);
    if (st == EXO_OK)
        st = name_strategy(doc, name, &strategy, err);
    for (size_t i = 0; st == EXO_OK && i < KEYS; i++) {
        const bool of_fsdp = i == 1 || i == 2;
        value = exo_config_get(map, keys[i]);
        if (value && exo_config_has(strategy, keys[i]))
            st = exo_config_fail(value, err, "%s is given twice, also under strategy", keys[i]);
        else if (value && i > 0 && (!of_fsdp || (name && strcmp(name, "fsdp") == 0)))
            st = exo_config_graft(strategy, keys[i], value, err);
        if (st == EXO_OK)
            exo_config_remove(map, keys[i]);
    }
    if (st == EXO_OK && !exo_config_key(map, 0, &value))
        exo_config_remove(root, "parallel");
    return st;
}
