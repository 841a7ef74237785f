/* exogym-head: the process that keeps a cluster's names, nodes and jobs. Read next: exogym-node.c,
 * runtime/cluster/head.h. */
#include "programs/exogym-node.h"

#include <malloc.h>
#include <sys/prctl.h>

#include "base/environment.h"
#include "programs/exogym-filter.h"

static int
head_program(const exo_command_line *line)
{
    exo_err err = {0};
    static exo_node_options node;
    const struct exo_node_args *args = line->args;
    /* the threads rarely contend for the allocator, and separate arenas would keep freed memory */
    mallopt(M_ARENA_MAX, 1);
    /* no core dumps and no tracing, from before the first key is read */
    if (!exo_environment("EXOGYM_DUMPABLE"))
        prctl(PR_SET_DUMPABLE, 0);
    if (exo_node_read(&node, args, EXO_ROLE_HEAD, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    node.confine = args->no_seccomp ? NULL : exo_filter_install;
    return exo_node_stay(&node, stdout, NULL, NULL, &err) == EXO_OK ? EXO_EXIT_OK
                                                                    : exo_report(&err);
}

static const exo_arg table[] = {
    EXO_NODE_ROWS,
    {"--state", "FILE",
     "Where it keeps names, detached actors and jobs, for a head that is started again; none: "
     "nowhere. $XDG_STATE_HOME/exogym/CLUSTER.db, else ~/.local/state/exogym/CLUSTER.db.",
     EXO_INTO(struct exo_node_args, state), .word = EXO_WORD_FILE},
    {"--temporary", NULL,
     "Removes the folder, which --folder must name, with all that is in it when it ends.",
     EXO_INTO(struct exo_node_args, temporary)},
    {"--no-seccomp", NULL,
     "Starts without the filter of system calls: for kernels that take none, and for those who "
     "trace a head.",
     EXO_INTO(struct exo_node_args, no_seccomp)},
    {0},
};

static const exo_note examples[] = {
    {"exogym-head", "Starts a cluster for the processes of one user on this host."},
    {"exogym-head --listen tcp://0.0.0.0:7070 --keys head.secret",
     "For those of other hosts, too."},
    {0},
};

static const exo_note files[] = {
    {"FOLDER/CLUSTER/head", "Its socket, by which processes of this host find it."},
    {0},
};

static const exo_command program = {
    .name = "exogym-head",
    .summary = "The head of a cluster: knows names, nodes and jobs",
    .description = "Prints a line when it is ready. SIGTERM or ctrl-C ends it; its workers and "
                   "their actors go on, and wait for it to come back. `exogym stop` ends all of "
                   "them.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct exo_node_args),
    .run = head_program,
};

int
main(int argc, char **argv)
{
    return exo_program_main(&program, argc, argv);
}
