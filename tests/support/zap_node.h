/* A node with a ZAP handler, and peers that try to connect. For tests with Criterion. One node per
 * process.
 *
 * The node's list of keys is the folder of key_folder.h. The handler's clock is a manual one that
 * does not advance. The test's thread owns all sockets. Read next: tests/unit/zap.c (peers),
 * tests/unit/zap_requests.c (requests). */
#ifndef EXO_TEST_ZAP_NODE_H
#define EXO_TEST_ZAP_NODE_H

#include <exogym/clock.h>

#include "net/auth.h"

enum {
    ZAP_NODE_WAIT_MS = 60000 /* for messages that must come */
};

/* The program defines it, and also `key_folder` of key_folder.h and `logged` of logged.h. */
extern struct zap_node {
    void *context, *client_context, *server;
    exo_allow_list *allow;
    exo_zap *zap;
    exo_clock_manual clock;
    exo_keys keys, honest; /* `honest` is in the list */
    char endpoint[128];
} zap_node;

/* domain: NULL: keys are required. The folder must exist. The log is recorded (logged.h). */
void zap_node_open_at(const char *endpoint, const exo_null_domain *domain);
/* Makes the folder, and a node on tcp that requires keys. */
void zap_node_open(void);
/* Also removes the folder. */
void zap_node_close(void);

/* Makes a peer that is not connected. Peers have a context of their own, as other processes
 * have. */
void *zap_node_new_peer(void);
void *zap_node_new_curve_peer(const exo_keys *keys, const char *server_public);
/* Does a message of the peer reach the node? `user` gets the node's name for the peer. */
bool zap_node_hears(void *peer, long wait_ms, char user[EXO_KEY_NAME]);
void zap_node_expect_honest(void);

#endif
