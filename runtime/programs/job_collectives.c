/* The key `collectives` of a job: the name of a way, or {way: NAME, links: measured or a path}. Owner:
 * the job. Read next: job.c. */
#include "programs/job.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "actors/fit_engine.h"
#include "actors/fit_links.h"
#include "base/config_edit.h"

/* A path is relative to the job's file; it becomes absolute, because config.json has it. */
static exo_status
read_links(exo_config *map, exo_job *job, exo_err *err)
{
    char real[PATH_MAX];
    const char *links = NULL;
    exo_config *node = exo_config_get(map, "links");
    exo_status st = exo_config_string(map, "links", NULL, &links, err);
    if (st != EXO_OK || !links || exo_fit_measures(links)) {
        job->opts.links = links;
        return st;
    }
    char *full = exo_config_relative(node, links);
    const char *found = full && realpath(full, real) ? real : full;
    if (found)
        job->opts.links = exo_config_copy_text(job->doc, found, strlen(found));
    exo_free(full);
    return job->opts.links ? EXO_OK : exo_fail(err, EXO_NOMEM, "out of memory");
}

exo_status
exo_job_read_collectives(exo_config *root, exo_job *job, exo_err *err)
{
    exo_config *map = exo_config_get(root, "collectives");
    if (!exo_config_is_map(map))
        return exo_config_string(root, "collectives", "direct", &job->opts.collectives, err);
    exo_status st = exo_config_string(map, "way", "auto", &job->opts.collectives, err);
    if (st == EXO_OK)
        st = read_links(map, job, err);
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

exo_status
exo_job_check_collectives(exo_config *root, const exo_job *job, const exo_engine_class *engine,
                          exo_err *err)
{
    const exo_fit_opts *o = &job->opts;
    const char *clock = exo_config_scalar(exo_config_get(root, "clock"));
    exo_way way;
    exo_status st = exo_fit_find_way(&way, o->collectives, engine, !o->any_bits, err);
    if (st == EXO_OK)
        st = exo_fit_check_links(o->links, way, o->num_nodes,
                                 clock && strcmp(clock, "virtual") == 0, err);
    if (st != EXO_OK && err)
        err->code = EXO_INVAL;
    return st == EXO_OK ? EXO_OK : exo_config_add_place(exo_config_get(root, "collectives"), err);
}

void
exo_job_write_collectives(exo_config_maker *m, exo_config *root, const exo_job *job)
{
    const exo_fit_opts *o = &job->opts;
    if (o->links) {
        exo_config *map = exo_make_map(m, root, "collectives");
        exo_make_string(m, map, "way", o->collectives);
        exo_make_string(m, map, "links", o->links);
    } else if (strcmp(o->collectives, "direct") != 0) {
        exo_make_string(m, root, "collectives", o->collectives);
    }
}
