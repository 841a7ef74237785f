/* The processes of an MPI job: see world.h. */
#include "mpi/world_impl.h"

enum {
    TAG_DISMISSAL = 1
};

extern EXO_API const exo_mpi_calls exo_mpi_world; /* found by its name: world.h */

exo_mpi_state exo_mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

exo_status
exo_mpi_start(exo_err *err)
{
    int there = 0, level = 0;
    if (exo_mpi.started)
        return EXO_OK;
    MPI_Initialized(&there);
    if (!there)
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    else
        MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED)
        return exo_fail(err, EXO_UNSUPPORTED, "this MPI does not allow calls by several threads");
    MPI_Comm_dup(MPI_COMM_WORLD, &exo_mpi.messages);
    MPI_Comm_dup(MPI_COMM_WORLD, &exo_mpi.control);
    MPI_Comm_rank(exo_mpi.control, &exo_mpi.rank);
    MPI_Comm_size(exo_mpi.control, &exo_mpi.size);
    exo_mpi.started = true;
    return EXO_OK;
}

static exo_status
start_world(int *rank, int *size, exo_err *err)
{
    pthread_mutex_lock(&exo_mpi.lock);
    exo_status st = exo_mpi_start(err);
    *rank = exo_mpi.rank;
    *size = exo_mpi.size;
    pthread_mutex_unlock(&exo_mpi.lock);
    return st;
}

static void
broadcast(void *data, size_t bytes)
{
    pthread_mutex_lock(&exo_mpi.lock);
    MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, exo_mpi.control);
    pthread_mutex_unlock(&exo_mpi.lock);
}

static bool
agree(bool value)
{
    int mine = value, all = 0;
    pthread_mutex_lock(&exo_mpi.lock);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, exo_mpi.control);
    pthread_mutex_unlock(&exo_mpi.lock);
    return all != 0;
}

static void
dismiss(void)
{
    pthread_mutex_lock(&exo_mpi.lock);
    for (int i = 1; i < exo_mpi.size; i++)
        MPI_Send(NULL, 0, MPI_BYTE, i, TAG_DISMISSAL, exo_mpi.control);
    pthread_mutex_unlock(&exo_mpi.lock);
}

static bool
dismissed(void)
{
    int there = 0;
    pthread_mutex_lock(&exo_mpi.lock);
    exo_mpi_move();
    MPI_Iprobe(0, TAG_DISMISSAL, exo_mpi.control, &there, MPI_STATUS_IGNORE);
    if (there)
        MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG_DISMISSAL, exo_mpi.control, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&exo_mpi.lock);
    return there != 0;
}

/* MPI must be finalized before the process ends, or mpirun takes the end for a failure. */
static void
end_world(void)
{
    pthread_mutex_lock(&exo_mpi.lock);
    exo_mpi_move();
    MPI_Finalize();
    exo_mpi.started = false;
    pthread_mutex_unlock(&exo_mpi.lock);
}

const exo_mpi_calls exo_mpi_world = {.start = start_world,
                                     .broadcast = broadcast,
                                     .agree = agree,
                                     .dismiss = dismiss,
                                     .dismissed = dismissed,
                                     .end = end_world};
