/* Runs a command with EXOGYM_HEAD set to a cluster of a head and two workers, processes of their own, which end with it.
 *
 *     on_cluster COMMAND ARGUMENTS... */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/cluster.h>

#include "temp.h"

enum {
    WORKERS = 2
};

/* A process that joins, says so through `ready`, and stays until it is killed. */
static pid_t
start(exo_cluster_role role, const char *folder, const char *head, int ready)
{
    static const exo_resource cpus = {.name = "cpus", .amount = 16};
    exo_err err = {0};
    exo_runtime *runtime = NULL;
    exo_cluster *cluster = NULL;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const exo_cluster_opts opts = {
        .role = role, .folder = folder, .head = head, .state = "none", .resources = &cpus, .num_resources = 1};
    exo_status st = exo_runtime_open(&runtime, NULL, &err);
    if (st == EXO_OK)
        st = exo_cluster_join(&cluster, runtime, &opts, exo_deadline(exo_clock_real(), 20 * EXO_SECOND), &err);
    if (st != EXO_OK || write(ready, "r", 1) != 1) {
        fprintf(stderr, "on_cluster: %s\n", err.text);
        _exit(1);
    }
    for (;;)
        pause();
}

int
main(int argc, char **argv)
{
    char folder[64], head[128], byte;
    int ready[2], status = 1, joined = 0;
    pid_t started[1 + WORKERS], command;
    if (argc < 2 || pipe(ready) != 0)
        return 2;
    temp_folder(folder, sizeof folder);
    snprintf(head, sizeof head, "ipc://%s/default/head", folder);
    for (int i = 0; i <= WORKERS; i++)
        started[i] = start(i == 0 ? EXO_ROLE_HEAD : EXO_ROLE_WORKER, folder, head, ready[1]);
    close(ready[1]);
    while (joined <= WORKERS && read(ready[0], &byte, 1) == 1)
        joined++;
    if (joined > WORKERS) {
        setenv("EXOGYM_HEAD", head, 1);
        setenv("XDG_RUNTIME_DIR", folder, 1);
        command = fork();
        if (command == 0) {
            execvp(argv[1], argv + 1);
            perror(argv[1]);
            _exit(127);
        }
        if (waitpid(command, &status, 0) != command)
            status = 1;
    }
    for (int i = WORKERS; i >= 0; i--) { /* the head last: nobody misses it */
        kill(started[i], SIGKILL);
        waitpid(started[i], NULL, 0);
    }
    temp_remove(folder);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
