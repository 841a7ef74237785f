/* The state of MPI in this process. Read next: world.c. */
#ifndef EXO_MPI_WORLD_IMPL_H
#define EXO_MPI_WORLD_IMPL_H

#include <mpi.h>
#include <pthread.h>

#include "mpi/world.h"

typedef struct exo_mpi_state {
    pthread_mutex_t lock;       /* held during every call of MPI (MPI_THREAD_SERIALIZED) */
    bool started;               /* guarded by lock, as all below */
    MPI_Comm messages, control; /* copies of MPI_COMM_WORLD, for the engine and for world.c */
    int rank, size;
} exo_mpi_state;

extern exo_mpi_state exo_mpi;

/* Initializes MPI. With the lock held. */
exo_status exo_mpi_start(exo_err *err);
/* Sends and receives what is ready (engine.c). With the lock held. */
void exo_mpi_move(void);

#endif
