/* Members of a collective in processes: see comm_process.h. */
#include "support/comm_process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "actor/hooks.h"
#include "comm/far.h"
#include "support/far_members.h"

enum {
    MEMBERS = 16
};

static void
must(exo_status st, const exo_err *err)
{
    if (st == EXO_OK)
        return;
    fprintf(stderr, "process %d: %s\n", (int)getpid(), err->text);
    _exit(EXIT_FAILURE);
}

static void
join(exo_cluster_role role, const char *name, const char *folder, bool tcp, exo_runtime **runtime,
     exo_cluster **cluster)
{
    static const char *const any[] = {"tcp://127.0.0.1:0"};
    exo_err err = {0};
    const exo_cluster_opts opts = {.role = role,
                                   .name = name,
                                   .cluster = "members",
                                   .folder = folder,
                                   .state = "none",
                                   .listen = any,
                                   .num_listen = tcp,
                                   .insecure = tcp,
                                   .no_ipc = tcp};
    must(exo_runtime_open(runtime, NULL, &err), &err);
    must(exo_cluster_join(cluster, *runtime, &opts, exo_deadline(exo_clock_real(), 60 * EXO_SECOND),
                          &err),
         &err);
}

pid_t
comm_process_head(const char *folder)
{
    exo_runtime *runtime;
    exo_cluster *cluster;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    join(EXO_ROLE_HEAD, "head", folder, false, &runtime, &cluster);
    for (;;)
        pause();
}

void
comm_process_join(comm_process *p)
{
    exo_err err = {0};
    exo_ref members[MEMBERS];
    char name[32];
    snprintf(name, sizeof name, "member-%u-%u", p->channel, p->rank);
    join(EXO_ROLE_DRIVER, name, p->folder, p->tcp, &p->runtime, &p->cluster);
    const exo_comm_edge edge = {
        .name = "members", .way = p->way, .any_bits = true, .figures = p->figures};
    const exo_comm_far_opts opts = {.runtime = p->runtime,
                                    .size = p->size,
                                    .rank = p->rank,
                                    .channel = p->channel,
                                    .method = "collective",
                                    .edge = &edge};
    must(exo_comm_far(&p->comm, &opts, &err), &err);
    const exo_spawn_opts spawn = {.name = name,
                                  .args = exo_payload_borrow(&p->comm, sizeof(exo_comm *))};
    must(exo_spawn(p->runtime, &far_hearer_class, &spawn, &p->self, &err), &err);
    for (uint32_t r = 0; r < p->size; r++) {
        exo_status st;
        snprintf(name, sizeof name, "member-%u-%u", p->channel, r);
        while ((st = exo_get_actor(p->runtime, NULL, name, &members[r], &err)) == EXO_NOT_FOUND)
            usleep(1000);
        must(st, &err);
    }
    must(exo_comm_far_connect(p->comm, members, &err), &err);
    snprintf(name, sizeof name, "node_%u", p->rank);
    must(exo_group_open(&p->group, p->comm, p->rank, name, &err), &err);
}

void
comm_process_leave(comm_process *p)
{
    exo_group_close(&p->group);
    exo_comm_far_disconnect(p->comm);
    exo_cluster_leave(p->cluster);
    exo_runtime_close(&p->runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), NULL);
    exo_cluster_free(&p->cluster);
    exo_comm_drop(&p->comm);
}
