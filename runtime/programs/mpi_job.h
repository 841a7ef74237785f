/* Jobs that mpirun or srun starts: every process of the MPI job is a worker of a cluster for this
 * run. Rank 0 also starts the head, and drives. Read next: mpi/world.h, local_cluster.h. */
#ifndef EXO_PROGRAMS_MPI_JOB_H
#define EXO_PROGRAMS_MPI_JOB_H

#include <exogym/cluster.h>

#include "mpi/world.h"

/* One for a process. Owner: the command; one thread. */
typedef struct exo_mpi_job {
    const exo_mpi_calls *calls; /* NULL: not started by MPI */
    int rank, size;
    /* of rank 0: all ranks know the head's address; all have joined it; all have left */
    bool invited, joined, dismissed;
    exo_runtime *runtime;
    exo_cluster *cluster; /* of this process as a worker */
} exo_mpi_job;

/* Loads exogym-mpi.so, with the engine `mpi`, from the program's folder or its ../lib/exogym.
 * *calls may be NULL. NOT_FOUND: this installation has no MPI. */
exo_status exo_mpi_load(const exo_mpi_calls **calls, exo_err *err);

/* Starts MPI if the environment says that MPI started this process; else job->calls stays NULL.
 * Waits for the other ranks. Errors: NOT_FOUND, UNSUPPORTED. */
exo_status exo_mpi_job_begin(exo_mpi_job *job, exo_err *err);
/* Of the other ranks: hosts actors until rank 0 ends the job. Returns the exit status. */
int exo_mpi_job_serve(exo_mpi_job *job);
/* Of rank 0, whose head is at `address` with its sockets in `folder`: makes all ranks workers of
 * it, which load the plugins. Returns when all have joined. Errors: FAILED (one could not). */
exo_status exo_mpi_job_invite(exo_mpi_job *job, const char *address, const char *folder,
                              const char *const *plugins, size_t num_plugins, exo_err *err);
/* Of rank 0, before the head is stopped: all ranks leave the cluster. Without an invitation it does
 * nothing. */
void exo_mpi_job_dismiss(exo_mpi_job *job);
/* Ends MPI. Without an invitation the other ranks end, too. Accepts a job without MPI. */
void exo_mpi_job_end(exo_mpi_job *job);

#endif
