/* A head and a worker that has joined it, in this process: over tcp with keys, in the folder of
 * key_folder.h, or over ipc. For tests with Criterion; one per process. Owner: the test's
 * thread. */
#ifndef EXO_TEST_KEY_WORLD_H
#define EXO_TEST_KEY_WORLD_H

#include <exogym/cluster.h>

#include "support/key_folder.h"
#include "support/stranger.h"

/* The program defines it, and also key_folder. */
extern struct key_world {
    exo_runtime *head_runtime, *runtime; /* `runtime` is the worker's */
    exo_cluster *head, *worker;
    exo_keys evil; /* an admin's key that no process of the test uses */
    /* Options, to be set before key_world_open. local: with keys, use ipc sockets that require them
     * instead of tcp. audited: write audit logs, NAME.audit in the folder. */
    bool local, audited;
    char head_public[EXO_KEY_TEXT];
} key_world;

exo_time key_world_soon(void);
void key_world_open(bool with_keys);
void key_world_close(void);
/* Makes and saves a pair of keys, and authorizes it with that grant. */
exo_keys key_world_make_keys(const char *name, const exo_grant *grant);
void key_world_join(exo_cluster_role role, const char *name, bool with_keys, exo_runtime **runtime,
                    exo_cluster **cluster);
void key_world_leave(exo_runtime **runtime, exo_cluster **cluster);
/* A raw peer of the head, with the key of that name. */
stranger key_world_stranger(const char *key);

#endif
