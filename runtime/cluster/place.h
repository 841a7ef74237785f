/* The place of a process in a cluster: its folder, endpoints, keys and resources. */
#ifndef EXO_CLUSTER_PLACE_H
#define EXO_CLUSTER_PLACE_H

#include <exogym/cluster.h>

#include "net/auth.h"

enum {
    EXO_CLUSTER_PLACE_PATH = 108 - 8, /* fits into a socket's address */
    EXO_CLUSTER_PLACE_ADDRESSES = 1024,
    EXO_CLUSTER_PLACE_RESOURCES = 32
};

typedef struct exo_cluster_place {
    char cluster[64];
    bool any_cluster;                     /* no name was given: any cluster's head will do */
    char folder[EXO_CLUSTER_PLACE_PATH];  /* private, for the sockets of the cluster */
    char socket[EXO_CLUSTER_PLACE_PATH];  /* this process's; "": none */
    char ipc[EXO_CLUSTER_PLACE_PATH + 8]; /* its endpoint */
    char head[256], head_key[EXO_KEY_TEXT];
    /* the other socket at which the head of this host may listen, which requires keys; "": none */
    char head_keyed[256];
    /* its own ipc socket requires keys, and it connects only to such sockets */
    bool keys_for_local;
    const char *endpoints[17];
    size_t num_endpoints;
    exo_keys keys;
    bool has_keys;
    exo_allow_list *allowed;
    int lock; /* of a head, or -1 */
    exo_resource resources[EXO_CLUSTER_PLACE_RESOURCES];
    size_t num_resources;
} exo_cluster_place;

/* Finds all of it, makes the folder, and takes a head's lock. INVAL, EXISTS, IO, NOT_FOUND, and the
 * errors of loading keys. The caller releases it, also after an error. */
exo_status exo_cluster_place_init(exo_cluster_place *place, const exo_cluster_opts *opts,
                                  exo_err *err);
/* Also removes this process's socket and gives the lock back. */
void exo_cluster_place_release(exo_cluster_place *place);
/* The head's address at this moment. */
const char *exo_cluster_place_head(const exo_cluster_place *place);
/* The address of an endpoint for other processes: the one of opts->advertise for tcp. If the
 * endpoint is bound to all addresses of this host: the local address of the route to the head, else
 * the first address that is not loopback. Blocks while the head's name is resolved. */
void exo_cluster_place_public(const exo_cluster_place *place, const exo_cluster_opts *opts,
                              const char *bound, char *out, size_t length);
/* Whether no process of another host can reach this one, which listens on loopback alone, or nowhere by
 * tcp, and whose head is on another host. False with opts->advertise, as for the end of a tunnel. Blocks
 * while the head's name is resolved. */
bool exo_cluster_place_is_hidden(const exo_cluster_place *place, const exo_cluster_opts *opts);
/* Whether the host of a tcp address has an IPv4 address, or is an address in brackets. If not, *reason
 * is the system's text, or the advice for a host that has IPv6 addresses only. Blocks. */
bool exo_cluster_place_resolves(const char *address, const char **reason);
/* Sets the cluster's name and folder only. INVAL, IO. */
exo_status exo_cluster_place_folder(exo_cluster_place *place, const exo_cluster_opts *opts,
                                    exo_err *err);
/* Whether a living process of this host has the socket. Its listener does not notice. */
bool exo_cluster_place_has_owner(const char *path);
/* Removes sockets of ended processes from the cluster's folder. */
void exo_cluster_place_sweep(const exo_cluster_place *place);

/* The GPUs that a process sees of those that are present. list: CUDA_VISIBLE_DEVICES, numbers or UUIDs
 * with commas between. It ends before the first that no GPU can have; one that is there twice leaves no
 * GPU. NULL: all. */
int exo_cluster_visible_gpus(const char *list, int present);

#endif
