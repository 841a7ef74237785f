/* Jobs that mpirun or srun starts: see mpi_job.h.
 *
 *     rank 0: begin, start a head, invite, run the job, dismiss, stop the head, end
 *     others: begin, serve: take the invitation, join, wait for the dismissal, leave, end
 *
 * The processes agree twice: when all have joined, and when all have left. If rank 0 has nothing to
 * run, its invitation is empty. */
#include "programs/mpi_job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/plugin.h>

#include "base/own_plugin.h"
#include "programs/program.h"
#include "programs/text.h"

#define JOIN_TIMEOUT  (30 * EXO_SECOND)
#define CLOSE_TIMEOUT (10 * EXO_SECOND)
#define HEAD_GRACE    (60 * EXO_SECOND)
#define LOOK          (20 * EXO_MS) /* between looks for the dismissal */

/* What rank 0 tells the others. */
struct invitation {
    char address[256]; /* of the head; "": there is nothing to do */
    char folder[64];
    char host[256];     /* of rank 0 */
    char plugins[8192]; /* paths, a line each */
};

/* --- The plugin ------------------------------------------------------------------------------- */

exo_status
exo_mpi_load(const exo_mpi_calls **calls, exo_err *err)
{
    const void *found = NULL;
    exo_status st = exo_own_plugin_load("exogym-mpi.so", EXO_MPI_WORLD_SYMBOL, &found, err);
    if (st == EXO_OK && calls)
        *calls = found;
    return st == EXO_NOT_FOUND
               ? exo_fail(err, EXO_NOT_FOUND,
                          "there is no exogym-mpi.so: exogym was built without MPI (Debian: "
                          "libopenmpi-dev), or its package is not installed")
               : st;
}

static bool
says_several(const char *variable)
{
    const char *value = getenv(variable);
    return value && atoi(value) > 1;
}

/* Has a launcher of MPI started this process: Open MPI's mpirun, MPICH's, or srun with PMI? */
static bool
is_launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("PMIX_RANK");
}

exo_status
exo_mpi_job_begin(exo_mpi_job *job, exo_err *err)
{
    *job = (exo_mpi_job){.size = 1};
    if (!is_launched() && says_several("SLURM_STEP_NUM_TASKS"))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "srun started several tasks without MPI: use srun --mpi=pmix or "
                        "--mpi=pmi2 (srun --mpi=list shows what there is), or --ntasks=1");
    if (!is_launched())
        return EXO_OK;
    const exo_mpi_calls *calls = NULL;
    exo_status st = exo_mpi_load(&calls, err);
    if (st == EXO_OK && !calls)
        st = exo_fail(err, EXO_UNSUPPORTED, "exogym-mpi.so is of another version");
    if (st == EXO_OK)
        st = calls->start(&job->rank, &job->size, err);
    if (st == EXO_OK)
        job->calls = calls;
    return st;
}

/* --- Workers ---------------------------------------------------------------------------------- */

static exo_status
load_plugins(const char *list, exo_err *err)
{
    exo_status st = EXO_OK;
    while (st == EXO_OK && *list) {
        size_t length = strcspn(list, "\n");
        char *path = exo_text_make(err, "%.*s", (int)length, list);
        st = path ? exo_plugin_load(path, err) : EXO_NOMEM;
        exo_free(path);
        list += length + (list[length] == '\n');
    }
    return st;
}

static exo_status
join(exo_mpi_job *job, const struct invitation *to, exo_err *err)
{
    char host[sizeof to->host] = "", name[32];
    gethostname(host, sizeof host - 1);
    if (strcmp(host, to->host) != 0)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "rank %d is on %s, rank 0 on %s: for several hosts start exogym-head and "
                        "exogym-worker on them (docs/cluster.md)",
                        job->rank, host, to->host);
    snprintf(name, sizeof name, "rank_%d", job->rank);
    const exo_cluster_opts opts = {.role = EXO_ROLE_WORKER,
                                   .name = name,
                                   .cluster = "run",
                                   .head = to->address,
                                   .folder = to->folder,
                                   .folder_exists = true};
    exo_status st = load_plugins(to->plugins, err);
    if (st == EXO_OK)
        st = exo_runtime_open(&job->runtime, NULL, err);
    if (st == EXO_OK)
        st = exo_cluster_join(&job->cluster, job->runtime, &opts,
                              exo_deadline(exo_clock_real(), JOIN_TIMEOUT), err);
    return st;
}

static void
leave(exo_mpi_job *job)
{
    if (job->cluster)
        exo_cluster_leave(job->cluster);
    if (job->runtime)
        exo_runtime_close(&job->runtime, exo_deadline(exo_clock_real(), CLOSE_TIMEOUT), NULL);
    exo_cluster_free(&job->cluster);
}

/* Hosts actors until the dismissal. A lost head does not end it: rank 0 learns of the loss, too,
 * and dismisses all. */
static void
wait_for_dismissal(const exo_mpi_job *job)
{
    while (!job->calls->dismissed()) {
        exo_err err = {0};
        exo_time soon = exo_deadline(exo_clock_real(), LOOK);
        if (exo_cluster_wait(job->cluster, HEAD_GRACE, soon, &err) != EXO_TIMEOUT)
            usleep((useconds_t)(LOOK / 1000)); /* it returns at once from now on */
    }
}

int
exo_mpi_job_serve(exo_mpi_job *job)
{
    static struct invitation to;
    exo_err err = {0};
    int status = EXO_EXIT_OK;
    /* rank 0 gets these signals, too, saves its state, and dismisses */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    job->calls->broadcast(&to, sizeof to);
    if (to.address[0]) {
        exo_status st = join(job, &to, &err);
        if (st != EXO_OK)
            status = exo_report(&err);
        if (job->calls->agree(st == EXO_OK))
            wait_for_dismissal(job);
        leave(job);
        job->calls->agree(true);
    }
    job->calls->end();
    return status;
}

/* --- Rank 0 ----------------------------------------------------------------------------------- */

exo_status
exo_mpi_job_invite(exo_mpi_job *job, const char *address, const char *folder,
                   const char *const *plugins, size_t num_plugins, exo_err *err)
{
    static struct invitation to;
    size_t used = 0;
    for (size_t i = 0; i < num_plugins; i++) {
        int more = snprintf(to.plugins + used, sizeof to.plugins - used, "%s\n", plugins[i]);
        used += (size_t)more;
        if (used >= sizeof to.plugins)
            return exo_fail(err, EXO_INVAL, "the paths of the plugins are too long for MPI");
    }
    snprintf(to.address, sizeof to.address, "%s", address);
    snprintf(to.folder, sizeof to.folder, "%s", folder);
    gethostname(to.host, sizeof to.host - 1);
    job->invited = true;
    job->calls->broadcast(&to, sizeof to);
    exo_status st = join(job, &to, err);
    job->joined = job->calls->agree(st == EXO_OK);
    return st == EXO_OK && !job->joined
               ? exo_fail(err, EXO_FAILED, "not all ranks could join: their messages say why")
               : st;
}

void
exo_mpi_job_dismiss(exo_mpi_job *job)
{
    if (!job->calls || !job->invited || job->dismissed)
        return;
    leave(job);
    if (job->joined)
        job->calls->dismiss();
    job->calls->agree(true);
    job->dismissed = true;
}

void
exo_mpi_job_end(exo_mpi_job *job)
{
    static struct invitation nothing;
    if (!job->calls)
        return;
    if (!job->invited)
        job->calls->broadcast(&nothing, sizeof nothing);
    job->calls->end();
    job->calls = NULL;
}
