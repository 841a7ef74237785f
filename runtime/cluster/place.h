/* Where a process of a cluster is: its folder, its endpoints, its keys, what it has. */
#ifndef EXO_CLUSTER_PLACE_H
#define EXO_CLUSTER_PLACE_H

#include <exogym/cluster.h>

#include "net/auth.h"

enum {
    EXO_CLUSTER_PLACE_PATH = 108 - 8, /* what fits into a socket's address */
    EXO_CLUSTER_PLACE_ADDRESSES = 1024,
    EXO_CLUSTER_PLACE_RESOURCES = 32
};

typedef struct exo_cluster_place {
    char cluster[64];
    bool any_cluster;                     /* it was not named: whatever the head's is */
    char folder[EXO_CLUSTER_PLACE_PATH];  /* of the cluster's sockets: private */
    char socket[EXO_CLUSTER_PLACE_PATH];  /* this process's; "": none           */
    char ipc[EXO_CLUSTER_PLACE_PATH + 8]; /* its endpoint                       */
    char head[256], head_key[EXO_KEY_TEXT];
    /* another socket by which the head of this host may be met; "": there is none */
    char head_keyed[256];
    bool keys_for_local; /* its own ipc socket wants keys, and it connects to such ones only */
    const char *endpoints[17];
    size_t num_endpoints;
    exo_keys keys;
    bool has_keys;
    exo_allow_list *allowed;
    int lock; /* of a head, or -1 */
    exo_resource resources[EXO_CLUSTER_PLACE_RESOURCES];
    size_t num_resources;
} exo_cluster_place;

/* Finds all of it, makes the folder, takes a head's lock. INVAL, EXISTS, IO. Released also after an
 * error. */
exo_status exo_cluster_place_init(exo_cluster_place *place, const exo_cluster_opts *opts,
                                  exo_err *err);
void exo_cluster_place_release(exo_cluster_place *place);
/* Where the head is to be met, just now. */
const char *exo_cluster_place_head(const exo_cluster_place *place);
/* What others are told of an endpoint that is listened on: what --advertise says for tcp; for all
 * addresses of this host, the one that the way to the head begins with, else the first that is not
 * loopback. Blocks while the head's name is resolved. */
void exo_cluster_place_public(const exo_cluster_place *place, const exo_cluster_opts *opts,
                              const char *bound, char *out, size_t length);
/* Is there an address for the host that a tcp address names? If not, *reason says why, in words of
 * the system's. Blocks. */
bool exo_cluster_place_resolves(const char *address, const char **reason);
/* The cluster's name and folder alone. INVAL, IO. */
exo_status exo_cluster_place_folder(exo_cluster_place *place, const exo_cluster_opts *opts,
                                    exo_err *err);
/* Does a living process of this host have the socket? Nobody who listens on it is disturbed by the
 * question. */
bool exo_cluster_place_has_owner(const char *path);
/* Removes the sockets in the cluster's folder whose processes were killed. */
void exo_cluster_place_sweep(const exo_cluster_place *place);

#endif
