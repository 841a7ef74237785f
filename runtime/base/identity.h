/* The identity of a connection's other end, as far as the handshake proved it. A message's own
 * statement about its sender is only a claim.
 *
 * References are counted. An identity is written before it is shared and constant from then on. Any
 * thread. The net makes one for each connection (runtime/net/handshake.c), calls over the
 * connection carry it (runtime/actor/hooks.h), and the head binds nodes to it. */
#ifndef EXO_BASE_IDENTITY_H
#define EXO_BASE_IDENTITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EXO_IDENTITY_KEY = 41, /* Z85: 40 characters and a NUL */
    EXO_IDENTITY_NAME = 65,
    EXO_IDENTITY_ADDRESS = 64
};

/* The roles of a peer in a cluster, one bit each. */
typedef enum exo_access {
    EXO_ACCESS_NONE = 0,
    EXO_ACCESS_OBSERVER = 1, /* reads only */
    EXO_ACCESS_DRIVER = 2,   /* has jobs and actors of its own, in a namespace */
    EXO_ACCESS_WORKER = 4,   /* hosts actors, and reports about itself */
    EXO_ACCESS_ADMIN = 8,    /* may do everything */
} exo_access;

typedef struct exo_identity {
    atomic_uint references;
    /* the node of its Hello or Welcome: as reliable as the rest of the identity is proven */
    uint64_t node;
    /* start time of its process, if that is on this host */
    uint64_t start;
    /* process id, from the kernel, of a process of this host; 0: unknown */
    uint32_t pid;
    /* "192.0.2.1"; "local": by ipc; "": this process made the connection */
    char address[EXO_IDENTITY_ADDRESS];
    /* the public key whose secret it has proven; "": none */
    char key[EXO_IDENTITY_KEY];
    exo_access role;
    char space[EXO_IDENTITY_NAME]; /* of a driver: the namespace of its actors */
    /* the key's name in the folder of accepted keys; "": it has none */
    char name[EXO_IDENTITY_NAME];
} exo_identity;

/* Makes a copy with one reference; NULL: no memory. */
exo_identity *exo_identity_new(const exo_identity *from);
/* NULL is allowed. */
exo_identity *exo_identity_hold(const exo_identity *identity);
void exo_identity_drop(exo_identity **identity);
/* Whether each may act for the other: they have the same key or, without keys, are the same
 * process. One without any proof (tcp without keys) may act for each other one without a key: it can
 * run code here anyway, and may be the other end of a second connection of the same process, which
 * is known by its number where it came by ipc. */
bool exo_identity_is_same(const exo_identity *a, const exo_identity *b);
/* Writes a name for people: "w1", "process 42", "somebody". */
void exo_identity_describe(const exo_identity *identity, char *out, size_t size);

#endif
