/* A node with a ZAP handler, and peers that want in: for tests with Criterion. One node a process.
 *
 * Its list of keys is the folder of key_folder.h, and its handler's clock is a manual one, which
 * stands still. The test's thread owns all sockets. Read next: tests/unit/zap.c (peers),
 * tests/unit/zap_requests.c (requests). */
#ifndef EXO_TEST_ZAP_NODE_H
#define EXO_TEST_ZAP_NODE_H

#include <exogym/clock.h>

#include "net/auth.h"

enum {
    ZAP_NODE_WAIT_MS = 10000 /* for what must come */
};

/* The program defines it, `key_folder` of key_folder.h and `logged` of logged.h. */
extern struct zap_node {
    void *context, *client_context, *server;
    exo_allow_list *allow;
    exo_zap *zap;
    exo_clock_manual clock;
    exo_keys keys, honest; /* `honest` is in the list */
    char endpoint[128];
} zap_node;

/* domain: NULL: keys are asked for. The folder must be there; what is logged is kept (logged.h). */
void zap_node_open_at(const char *endpoint, const exo_null_domain *domain);
/* With a folder, on tcp, with keys. */
void zap_node_open(void);
/* Removes the folder, too. */
void zap_node_close(void);

/* A peer, not connected. It has its own context, as another process has. */
void *zap_node_new_peer(void);
void *zap_node_new_curve_peer(const exo_keys *keys, const char *server_public);
/* Whether a message that the peer sends reaches the node; `user` gets the node's name for it. */
bool zap_node_hears(void *peer, long wait_ms, char user[EXO_KEY_NAME]);
void zap_node_expect_honest(void);

#endif
