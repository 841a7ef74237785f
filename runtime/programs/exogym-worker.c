/* exogym-worker: a process that hosts actors of a cluster, under a watcher that reports its end to
 * the head. Read next: exogym-watcher.h, exogym-node.c, runtime/cluster/worker.h. */
#include <exogym/plugin.h>

#include "base/plugin_dir.h"
#include "programs/exogym-node.h"
#include "programs/exogym-watcher.h"

static int
worker_program(const exo_command_line *line)
{
    exo_err err = {0};
    static exo_node_options node;
    const struct exo_node_args *args = line->args;
    exo_watched watched = {0};
    int status = 0;
    exo_status st = exo_node_read(&node, args, EXO_ROLE_WORKER, &err);
    if (st != EXO_OK)
        return exo_report_usage(line->command, &err);
    st = exo_watch(&node.opts, args->logs, &watched, &status, &err);
    if (st != EXO_OK)
        return exo_report(&err);
    if (!watched.page)
        return status; /* this is the watcher, and the worker has ended */
    node.opts.name = watched.name;
    node.opts.log = watched.log;
    exo_plugin_set_dir(args->plugin_dir);
    for (size_t i = 0; st == EXO_OK && i < args->plugins.length; i++)
        st = exo_plugin_load(args->plugins.items[i], &err);
    if (st == EXO_OK)
        st = exo_node_stay(&node, watched.out, exo_watched_joined, &watched, &err);
    exo_watched_left(&watched);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    EXO_NODE_ROWS,
    {"--head", "ADDRESS", "Where the head is; $EXOGYM_HEAD, else the cluster's head on this host.",
     EXO_INTO(struct exo_node_args, head)},
    {"--head-key", "KEY",
     "The head's public key, or the path of its NAME.key; $EXOGYM_HEAD_KEY unless given.",
     EXO_INTO(struct exo_node_args, head_key), .word = EXO_WORD_FILE},
    {"--resource", "NAME=AMOUNT",
     "What actors can take of it: cpus, gpus, memory (in bytes, or as 16GiB) or a name of your "
     "own; can be given again and again. The first three are found unless given.",
     EXO_INTO(struct exo_node_args, resources)},
    {"--plugin", "FILE.so", "Loads a plugin first; can be given again and again.",
     EXO_INTO(struct exo_node_args, plugins), .word = EXO_WORD_FILE},
    {"--plugin-dir", "DIR",
     "Whence drivers, by the role of their keys, may have plugins loaded; from nowhere unless "
     "given.",
     EXO_INTO(struct exo_node_args, plugin_dir), .word = EXO_WORD_FOLDER},
    {"--logs", "DIR",
     "Where its log goes, NAME.log; FOLDER/CLUSTER unless given. The folder must be there.",
     EXO_INTO(struct exo_node_args, logs), .word = EXO_WORD_FOLDER},
    {"--grace", "TIME",
     "How long it waits for a head that is away before it ends; 60s unless given.",
     EXO_INTO(struct exo_node_args, grace)},
    {0},
};

static const exo_note examples[] = {
    {"exogym-worker --name w1", "Joins the cluster on this host."},
    {"exogym-worker --resource gpus=0 --resource memory=8GiB", "Offers less than there is."},
    {0},
};

static const exo_note files[] = {
    {"FOLDER/CLUSTER/NAME.log",
     "What it and its actors print, unless --logs names another folder; goes when it ends well."},
    {0},
};

static const exo_command program = {
    .name = "exogym-worker",
    .summary = "A worker of a cluster: hosts actors",
    .description = "Prints a line when it is ready. It is two processes: one that hosts actors, "
                   "and one that watches it, and tells the head why it ended if it did not end "
                   "well. SIGTERM or ctrl-C, to either, ends both: running methods are told to "
                   "stop, and have ten seconds.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct exo_node_args),
    .run = worker_program,
};

int
main(int argc, char **argv)
{
    return exo_program_main(&program, argc, argv);
}
