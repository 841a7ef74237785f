/* What one process may hold of another one's memory and time: the quotas, and an account for each
 * process.
 *
 * A process is counted under the number that its connection has proven in the handshake, not under
 * what its messages say. 0 is the process itself: it is counted, and never refused. What is taken
 * is given back when it ends; an account that holds nothing is forgotten.
 *
 * The accounts of the head belong to its lane. What a connection may hold (EXO_QUOTA_CALLS and on)
 * is counted where the connection is: remote_impl.h. docs/security.md has the table. */
#ifndef EXO_CLUSTER_QUOTA_H
#define EXO_CLUSTER_QUOTA_H

#include <stdint.h>

#include <uthash.h>

#include <exogym/status.h>

typedef enum exo_quota {
    EXO_QUOTA_NODES,  /* alive, at the head                                             */
    EXO_QUOTA_JOBS,   /* that run                                                       */
    EXO_QUOTA_ACTORS, /* that the head knows and that are not dead                      */
    EXO_QUOTA_NAMES,  /* those of them that have one                                    */
    EXO_QUOTA_SPAWNS, /* actors that were asked for and have not started                */
    EXO_QUOTA_FINDS,  /* searches and spawns that wait for an actor to live             */
    EXO_QUOTA_LOGS,   /* calls that wait for a line of the log, or for the end          */
    EXO_QUOTA_HEAD,   /* above: of the head; below: of each process, for a connection   */
    EXO_QUOTA_WAITING = EXO_QUOTA_HEAD, /* calls that wait for a turn at a system actor */
    EXO_QUOTA_WAITING_BYTES,            /* arguments of those                           */
    EXO_QUOTA_LENT,                     /* objects of replies that were not acknowledged */
    EXO_QUOTA_LENT_BYTES,
    EXO_QUOTA_MONITORS,   /* of actors here, by that process: links to them, too */
    EXO_QUOTA_REFERENCES, /* here, to actors of that process                     */
    EXO_QUOTAS,
} exo_quota;

enum {
    EXO_MAX_CONTROL = 1 << 20, /* bytes of arguments of a system actor's method */
    EXO_PART_ACTORS = 256,     /* actors that one `register` tells of */
    EXO_TOGETHER = 2048,       /* actors that are made together */
    EXO_PAGE_ACTORS = 250,     /* of one reply to `list`; the caller asks for the next ones */
    EXO_GROUP_MEMBERS = 2048,  /* of a supervision group that is restarted together */
    EXO_HOLDERS = 64,          /* processes of which a node tells the head what they hold of it */
    /* Calls of one connection in a system actor's mailbox, and bytes of arguments of more than one
     * of them: see remote_gate.c. */
    EXO_QUOTA_TURNS = 4,
    EXO_QUOTA_TURN_BYTES = 16 << 10,
    /* The same of all those together for whom a connection's peer asks. */
    EXO_QUOTA_ASKED_TURNS = 2 * EXO_QUOTA_TURNS
};

/* Quotas of every process; the defaults are what there is. */
typedef struct exo_quotas {
    uint64_t most[EXO_QUOTAS];
} exo_quotas;

extern const exo_quotas exo_quotas_default;

const char *exo_quota_name(exo_quota quota);
/* FULL: `held` and `count` more are more than there may be. The text names the quota, its limit,
 * and what to do. */
exo_status exo_quota_check(const exo_quotas *quotas, exo_quota quota, uint64_t held, uint64_t count,
                           exo_err *err);

/* --- Accounts --------------------------------------------------------------------------------- */

typedef struct exo_account {
    uint64_t peer;   /* 0: this process */
    uint64_t number; /* what workers call it by: says nothing of whose it is */
    char *name;      /* of the key that it stands for; NULL: none is known */
    uint64_t held[EXO_QUOTA_HEAD];
    UT_hash_handle hh;
} exo_account;

/* Zeroed is empty, with the default quotas. */
typedef struct exo_accounts {
    const exo_quotas *quotas; /* NULL: the default ones */
    exo_account *by_peer;
    uint64_t made; /* so many so far */
} exo_accounts;

/* FULL, NOMEM: nothing was taken. */
exo_status exo_account_take(exo_accounts *accounts, uint64_t peer, exo_quota quota, uint64_t count,
                            exo_err *err);
void exo_account_give(exo_accounts *accounts, uint64_t peer, exo_quota quota, uint64_t count);
/* Names the account of a key, unless it has a name or holds nothing. */
void exo_account_name(exo_accounts *accounts, uint64_t peer, const char *name);
/* NULL: it holds nothing. */
const exo_account *exo_account_of(const exo_accounts *accounts, uint64_t peer);
/* Of the account; 1: it holds nothing. */
uint64_t exo_account_number(const exo_accounts *accounts, uint64_t peer);
void exo_accounts_release(exo_accounts *accounts);

#endif
