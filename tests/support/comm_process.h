/* Members of a collective in processes of their own: a head, and drivers of its cluster, each with
 * an actor that takes the messages of its communicator. For tests and benchmarks; no Criterion. */
#ifndef EXO_TEST_COMM_PROCESS_H
#define EXO_TEST_COMM_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include <exogym/cluster.h>
#include <exogym/comm.h>

typedef struct comm_process {
    /* set by the caller */
    const char *folder; /* of the cluster's sockets; exists */
    uint32_t size, rank;
    uint32_t channel;                      /* distinguishes communicators of one cluster */
    bool tcp;                              /* members connect by tcp, over the loopback interface */
    const char *way;                       /* of messages (comm/ways.h); NULL: direct */
    const struct exo_link_figure *figures; /* (size, size) what `way` follows; NULL: nothing */
    /* set by comm_process_join */
    exo_runtime *runtime;
    exo_cluster *cluster;
    exo_comm *comm;
    exo_group *group;
    exo_ref self;
} comm_process;

/* Forks the head, from a process with one thread. It ends with this process. */
pid_t comm_process_head(const char *folder);
/* Joins the cluster and connects to the other members, which do the same. In a process of its own;
 * ends the process with an error text if it fails. */
void comm_process_join(comm_process *process);
/* Leaves it. */
void comm_process_leave(comm_process *process);

#endif
