/* Who is at the other end of a connection, as far as its handshake proved it. What a message says
 * of its sender is a claim; this is not.
 *
 * Counted references; an identity is written before it is shared, and constant from then on. Any
 * thread. The net makes one for each connection (runtime/net/handshake.c), calls that come over it
 * carry it (runtime/actor/hooks.h), and the head binds nodes to it. */
#ifndef EXO_BASE_IDENTITY_H
#define EXO_BASE_IDENTITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EXO_IDENTITY_KEY = 41, /* Z85: 40 characters and a 0 */
    EXO_IDENTITY_NAME = 65,
    EXO_IDENTITY_ADDRESS = 64
};

/* What somebody may do in a cluster: its role. A bit each. */
typedef enum exo_access {
    EXO_ACCESS_NONE = 0,
    EXO_ACCESS_OBSERVER = 1, /* looks                                          */
    EXO_ACCESS_DRIVER = 2,   /* has jobs and actors of its own, in a namespace */
    EXO_ACCESS_WORKER = 4,   /* hosts actors, and speaks of itself             */
    EXO_ACCESS_ADMIN = 8,    /* everything                                     */
} exo_access;

typedef struct exo_identity {
    atomic_uint references;
    /* that its Hello or Welcome says: as much its own as the rest is proven */
    uint64_t node;
    /* of its process, if it is of this host */
    uint64_t start;
    /* of a process of this host, as the kernel says; 0: not known */
    uint32_t pid;
    char address[EXO_IDENTITY_ADDRESS]; /* "192.0.2.1"; "local": by ipc; "": we came to it */
    /* the public key whose secret it has; "": it showed none */
    char key[EXO_IDENTITY_KEY];
    exo_access role;
    char space[EXO_IDENTITY_NAME]; /* of a driver: the namespace of its actors */
    /* of that key, in the folder of those that are let in; "": it has none */
    char name[EXO_IDENTITY_NAME];
} exo_identity;

/* A copy with one reference; NULL: no memory. */
exo_identity *exo_identity_new(const exo_identity *from);
/* NULL is fine. */
exo_identity *exo_identity_hold(const exo_identity *identity);
void exo_identity_drop(exo_identity **identity);
/* Has the one shown that it may speak for the other: by the same key, or, without keys, by being
 * the same process? Two of which nothing is proven (tcp without keys) may speak for each other. */
bool exo_identity_is_same(const exo_identity *a, const exo_identity *b);
/* "w1", "process 42", "somebody": for people. */
void exo_identity_describe(const exo_identity *identity, char *out, size_t size);

#endif
