/* The key `seeds` of a job: each strategy runs once with each seed, each run in its own folder
 * LABEL-seedN. Owner: the job. Read next: job.c. */
#include "programs/job.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "programs/plot_runs.h"

static exo_status
read_seed(exo_config *item, uint64_t *out, exo_err *err)
{
    const char *text = exo_config_plain(item), *shown = exo_config_scalar(item);
    char *end = NULL;
    errno = 0;
    unsigned long long value = text && isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno || value > INT64_MAX)
        return exo_config_fail(item, err,
                               "seeds: expected an integer from 0 to 2^63-1, got %s'%.60s'",
                               text || !shown ? "" : "the string ", shown ? shown : "no scalar");
    *out = value;
    return EXO_OK;
}

static exo_status
read_list(exo_config *list, exo_job *job, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < job->num_seeds; i++) {
        exo_config *item = exo_config_item(list, i);
        st = read_seed(item, &job->seeds[i], err);
        for (size_t k = 0; st == EXO_OK && k < i; k++)
            if (job->seeds[k] == job->seeds[i])
                st = exo_config_fail(item, err, "seeds: %" PRIu64 " is there twice", job->seeds[i]);
    }
    return st;
}

exo_status
exo_job_read_seeds(exo_config *root, exo_job *job, exo_err *err)
{
    exo_config *node = exo_config_get(root, "seeds");
    bool is_list = exo_config_is_list(node);
    uint64_t count = is_list ? exo_config_length(node) : 1;
    exo_status st =
        node && !is_list ? exo_config_u64(root, "seeds", 1, 1, EXO_JOB_SEEDS, &count, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    if (is_list && exo_config_has(root, "seed"))
        return exo_config_fail(
            node, err, "seeds: a list of seeds leaves nothing for 'seed' to say; give one of them");
    if (is_list && (count < 1 || count > EXO_JOB_SEEDS))
        return exo_config_fail(node, err, "seeds: expected 1 to %d seeds, got %" PRIu64,
                               EXO_JOB_SEEDS, count);
    if (!is_list && job->opts.seed > INT64_MAX - (count - 1))
        return exo_config_fail(node, err, "seeds: the last seed would be beyond 2^63-1");
    job->has_seeds = node != NULL;
    job->num_seeds = count;
    job->seeds = exo_calloc(count, sizeof *job->seeds);
    if (!job->seeds)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; i < count; i++)
        job->seeds[i] = job->opts.seed + i;
    st = is_list ? read_list(node, job, err) : EXO_OK;
    job->opts.seed = job->seeds[0];
    return st;
}

exo_status
exo_job_label_seed(const exo_job *job, exo_job_run *run, size_t index, exo_err *err)
{
    run->seed = job->seeds[index];
    run->label = run->group;
    if (!job->has_seeds)
        return EXO_OK;
    run->own_label = exo_text_make(err, "%s" EXO_SEED_SUFFIX "%" PRIu64, run->group, run->seed);
    run->label = run->own_label;
    return run->label ? EXO_OK : EXO_NOMEM;
}
