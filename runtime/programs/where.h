/* What the commands that inspect a cluster share: its address, a visit as a guest, and tables of
 * text. Read next: where.c. */
#ifndef EXO_PROGRAMS_WHERE_H
#define EXO_PROGRAMS_WHERE_H

#include <exogym/cluster.h>
#include <jansson.h>

#include "programs/commands.h"
#include "programs/text.h"

/* The first member, `where`, of a command's struct. EXO_WHERE_ROWS(struct) are its rows. */
struct exo_where {
    const char *head, *cluster, *folder, *head_key, *keys, *timeout;
    bool json;
};

#define EXO_WHERE_ROWS(type, json_help)                                                            \
    {"--cluster", "NAME", "Which cluster on this host; default unless given.",                     \
     EXO_INTO(type, where.cluster)},                                                               \
        {"--head", "ADDRESS",                                                                      \
         "Where the head is: tcp://HOST:PORT or ipc://PATH; $EXOGYM_HEAD, else the cluster's "     \
         "head on this host.",                                                                     \
         EXO_INTO(type, where.head)},                                                              \
        {"--head-key", "KEY",                                                                      \
         "The head's public key, or the path of its NAME.key; $EXOGYM_HEAD_KEY unless given.",     \
         EXO_INTO(type, where.head_key), .word = EXO_WORD_FILE},                                   \
        {"--keys", "FILE.secret", "By which the head knows this user, over tcp.",                  \
         EXO_INTO(type, where.keys), .word = EXO_WORD_FILE},                                       \
        {"--folder", "DIR",                                                                        \
         "Where the clusters of this host have their sockets; $XDG_RUNTIME_DIR/exogym, else "      \
         "/tmp/exogym-UID.",                                                                       \
         EXO_INTO(type, where.folder), .word = EXO_WORD_FOLDER},                                   \
        {"--timeout", "TIME", "Gives up after it: 90s, 500ms or 5m; 30s unless given.",            \
         EXO_INTO(type, where.timeout)},                                                           \
    {                                                                                              \
        "--json", NULL, json_help, EXO_INTO(type, where.json)                                      \
    }

/* A visit to a cluster. Zero-initialize it. */
typedef struct exo_visit {
    exo_runtime *runtime;
    exo_cluster *cluster;
    exo_time deadline; /* of all calls of the visit */
} exo_visit;

/* Joins the cluster as a guest. `job`: the owner of what the visit creates, or NULL. Errors: INVAL
 * (a wrong option), TIMEOUT (no head answers). The caller closes the visit, also after an
 * error. */
exo_status exo_visit_open(exo_visit *visit, const struct exo_where *where, const char *job,
                          exo_err *err);
void exo_visit_close(exo_visit *visit);

/* What a command does in a visit. */
typedef exo_status exo_visit_run(exo_visit *visit, const void *args, exo_err *err);

/* Opens a visit, calls `run` in it and prints errors. The command's arguments begin with a struct
 * exo_where. Returns the command's exit status. */
int exo_visit_do(const exo_command_line *line, exo_visit_run *run);

/* Finds an actor by name. Waits until the visit's deadline for an actor that is still starting. */
exo_status exo_visit_find(exo_visit *visit, const char *space, const char *name, exo_ref *out,
                          exo_err *err);
/* Calls the method and waits for the reply. The caller drops *future. */
exo_status exo_visit_call(exo_visit *visit, exo_ref actor, const char *method, exo_payload args,
                          exo_future **future, const exo_payload **reply, exo_err *err);
/* Lists the cluster (exo_cluster_list). The caller drops *out. */
exo_status exo_visit_list(exo_visit *visit, json_t **out, exo_err *err);

/* "@FILE" is the content of FILE; any other word stands for its own bytes. NULL is no argument. */
exo_status exo_read_argument(const char *word, exo_payload *out, exo_err *err);

/* Prints JSON on standard output and drops it. NULL is NOMEM. */
exo_status exo_print_json(json_t *json, exo_err *err);
/* Prints a table of `exogym status` or `exogym list`: "nodes", "actors", "gpus" (of actors), "jobs" or
 * "objects".
 * with_left: also nodes that have left. */
void exo_print_rows(const char *table, const json_t *rows, bool with_left);

#endif
