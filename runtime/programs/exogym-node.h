/* What exogym-head and exogym-worker share: their options, and a process that stays in a cluster
 * until it is told to end. Read next: exogym-head.c, exogym-worker.c. */
#ifndef EXO_PROGRAMS_NODE_H
#define EXO_PROGRAMS_NODE_H

#include <stdio.h>

#include <exogym/cluster.h>

#include "programs/program.h"

enum {
    EXO_NODE_RESOURCES = 32
};

/* All options. A program's table has the rows of those that it takes. */
struct exo_node_args {
    const char *cluster, *name, *folder, *advertise, *head, *head_key, *keys, *authorized, *state,
        *peer_timeout, *threads, *grace, *parent, *logs, *plugin_dir, *audit;
    exo_words listen, resources, plugins;
    bool no_ipc, insecure, temporary, no_seccomp, keys_for_local;
};

#define EXO_NODE_ROWS                                                                              \
    {"--cluster", "NAME", "Of which cluster it is; default unless given.",                         \
     EXO_INTO(struct exo_node_args, cluster)},                                                     \
        {"--name", "NAME",                                                                         \
         "What the node is called; made of the host's name and the process number unless given.",  \
         EXO_INTO(struct exo_node_args, name)},                                                    \
        {"--listen", "ADDRESS",                                                                    \
         "Listens there too, as tcp://127.0.0.1:7070 or, with any free port, tcp://127.0.0.1:0; "  \
         "can be given again and again. It needs --keys, also on loopback.",                       \
         EXO_INTO(struct exo_node_args, listen)},                                                  \
        {"--no-ipc", NULL, "Listens only where --listen says, and has no socket in the folder.",   \
         EXO_INTO(struct exo_node_args, no_ipc)},                                                  \
        {"--advertise", "ADDRESS",                                                                 \
         "The tcp address that others use, where it is not the one listened on.",                  \
         EXO_INTO(struct exo_node_args, advertise)},                                               \
        {"--keys", "FILE.secret", "This node's keys, as exogym keygen makes them.",                \
         EXO_INTO(struct exo_node_args, keys), .word = EXO_WORD_FILE},                             \
        {"--authorized", "DIR",                                                                    \
         "Folder of the public keys that are let in; authorized beside --keys unless given.",      \
         EXO_INTO(struct exo_node_args, authorized), .word = EXO_WORD_FOLDER},                     \
        {"--keys-for-local", NULL,                                                                 \
         "Processes of this host must show a key, too, and have its role; without it, they need "  \
         "none, as the socket is this user's alone. Needs --keys.",                                \
         EXO_INTO(struct exo_node_args, keys_for_local)},                                          \
        {"--insecure", NULL,                                                                       \
         "Listens, and a worker connects, over tcp without keys: whoever reaches the port, each "  \
         "user of this host among them, can run code here.",                                       \
         EXO_INTO(struct exo_node_args, insecure)},                                                \
        {"--peer-timeout", "TIME",                                                                 \
         "Silence of another host that is taken for its death; 5s unless given.",                  \
         EXO_INTO(struct exo_node_args, peer_timeout)},                                            \
        {"--folder", "DIR",                                                                        \
         "For sockets and logs; $XDG_RUNTIME_DIR/exogym, else /tmp/exogym-UID.",                   \
         EXO_INTO(struct exo_node_args, folder), .word = EXO_WORD_FOLDER},                         \
        {"--audit", "FILE",                                                                        \
         "Records there who was let in or refused, who made and ended what, and what was not "     \
         "allowed: a JSON object a line, mode 0600. Renamed, it begins anew.",                     \
         EXO_INTO(struct exo_node_args, audit), .word = EXO_WORD_FILE},                            \
        {"--parent", "PID", "Ends when this process, which started it, does, however that ends.",  \
         EXO_INTO(struct exo_node_args, parent)},                                                  \
    {                                                                                              \
        "--threads", "N", "Threads that actors share; one for each usable core unless given.",     \
            EXO_INTO(struct exo_node_args, threads)                                                \
    }

/* The options, checked. Keep `resources` and their names until the node has ended. */
typedef struct exo_node_options {
    exo_cluster_opts opts;
    unsigned threads;
    exo_time grace; /* time without a head until the node gives up */
    bool temporary; /* the node's folder is removed at its end */
    int parent;     /* a pidfd of the process of --parent; -1: none was named */
    /* called before any peer can reach the process; NULL: nothing is called */
    exo_status (*confine)(exo_err *err);
    exo_resource resources[EXO_NODE_RESOURCES];
    char names[EXO_NODE_RESOURCES][64];
} exo_node_options;

exo_status exo_node_read(exo_node_options *node, const struct exo_node_args *args,
                         exo_cluster_role role, exo_err *err);

/* Joins the cluster and prints a line on `ready`. Blocks until SIGTERM, SIGINT or SIGHUP, a request
 * to end, or the final loss of the head (PEER_LOST). Leaves the cluster before it returns; if
 * actors do not end in time, the process ends at once instead. If it cannot join, the process ends,
 * too. `joined` may be NULL. */
exo_status exo_node_stay(const exo_node_options *node, FILE *ready,
                         void (*joined)(void *context, const exo_cluster *cluster), void *context,
                         exo_err *err);

#endif
