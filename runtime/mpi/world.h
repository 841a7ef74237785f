/* What the program needs from MPI besides the engine: who the processes of a job are, and how they
 * find each other. The functions are in the plugin exogym-mpi.so, because only it links MPI: the
 * program finds the table by its symbol (programs/mpi_job.c). mpi.h is included by this folder
 * alone.
 *
 * State: MPI's, one for the process. Threads: any; one lock inside. Read next: world.c, engine.c. */
#ifndef EXO_MPI_WORLD_H
#define EXO_MPI_WORLD_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

#define EXO_MPI_WORLD_SYMBOL "exo_mpi_world"

typedef struct exo_mpi_calls {
    /* Initializes MPI unless that has been done; *rank and *size become those of this process.
     * Waits for the other processes. Errors: UNSUPPORTED. */
    exo_status (*start)(int *rank, int *size, exo_err *err);
    /* Gives the bytes of rank 0 to all. Waits for rank 0. */
    void (*broadcast)(void *data, size_t bytes);
    /* True if all processes say true. Waits for all. */
    bool (*agree)(bool value);
    /* Of rank 0: makes `dismissed` true in all other processes. */
    void (*dismiss)(void);
    /* Does not wait. Also moves messages of the engine. */
    bool (*dismissed)(void);
    /* Ends MPI in this process. Waits for all. */
    void (*end)(void);
} exo_mpi_calls;

#endif
