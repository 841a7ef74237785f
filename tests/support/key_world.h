/* A head, and a worker that has joined it, in this process: over tcp with keys, in the folder of
 * key_folder.h, or over ipc. For tests with Criterion; one a process, and its one thread owns
 * it. */
#ifndef EXO_TEST_KEY_WORLD_H
#define EXO_TEST_KEY_WORLD_H

#include <exogym/cluster.h>

#include "support/key_folder.h"
#include "support/stranger.h"

/* The program defines it, and key_folder. */
extern struct key_world {
    exo_runtime *head_runtime, *runtime; /* the latter is the worker's */
    exo_cluster *head, *worker;
    exo_keys evil; /* an admin's key of nobody's */
    /* To be set before key_world_open: with keys, by ipc sockets that want them instead of tcp; and
     * with audit logs, NAME.audit in the folder. */
    bool local, audited;
    char head_public[EXO_KEY_TEXT];
} key_world;

exo_time key_world_soon(void);
void key_world_open(bool with_keys);
void key_world_close(void);
/* A pair, saved, and let in with that grant. */
exo_keys key_world_make_keys(const char *name, const exo_grant *grant);
void key_world_join(exo_cluster_role role, const char *name, bool with_keys, exo_runtime **runtime,
                    exo_cluster **cluster);
void key_world_leave(exo_runtime **runtime, exo_cluster **cluster);
/* A raw peer of the head's, with the key of that name. */
stranger key_world_stranger(const char *key);

#endif
