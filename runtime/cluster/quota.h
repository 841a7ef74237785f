/* Quotas: the memory and time of one process that another one may use, with an account for each
 * process.
 *
 * A process is identified by the number that its connection has proven in the handshake, not by the
 * contents of its messages. Number 0 is this process: it is counted, and never refused. A charge
 * ends with the thing that is charged; an account that holds nothing is removed.
 *
 * The accounts of the head belong to its lane. What a connection holds (EXO_QUOTA_WAITING and later
 * ones) is counted in its channel: remote_impl.h. docs/security.md has the table. */
#ifndef EXO_CLUSTER_QUOTA_H
#define EXO_CLUSTER_QUOTA_H

#include <stdint.h>

#include <uthash.h>

#include <exogym/status.h>

typedef enum exo_quota {
    EXO_QUOTA_NODES,  /* nodes that are alive */
    EXO_QUOTA_JOBS,   /* running jobs */
    EXO_QUOTA_ACTORS, /* actors that the head knows and that are not dead */
    EXO_QUOTA_NAMES,  /* names of such actors */
    EXO_QUOTA_SPAWNS, /* actors that were asked for and have not started */
    EXO_QUOTA_FINDS,  /* find and spawn calls that wait for an actor to live */
    EXO_QUOTA_LOGS,   /* calls that wait for lines of the log, or for the end */
    /* The quotas above are the head's; those below are of each process, for one connection. */
    EXO_QUOTA_HEAD,
    /* calls that wait for a turn at a system actor */
    EXO_QUOTA_WAITING = EXO_QUOTA_HEAD,
    EXO_QUOTA_WAITING_BYTES, /* bytes of their arguments */
    EXO_QUOTA_LENT,          /* objects of replies that were not acknowledged */
    EXO_QUOTA_LENT_BYTES,
    /* monitors of actors here by that process, also those of links */
    EXO_QUOTA_MONITORS,
    EXO_QUOTA_REFERENCES, /* references here to actors of that process */
    EXO_QUOTAS,
} exo_quota;

enum {
    EXO_MAX_CONTROL = 1 << 20, /* bytes of arguments of a system actor's method */
    EXO_PART_ACTORS = 256,     /* actors in one `register` */
    EXO_TOGETHER = 2048,       /* actors that are made together */
    EXO_PAGE_ACTORS = 250,    /* actors in one reply to `list`; the caller asks for the next ones */
    EXO_GROUP_MEMBERS = 2048, /* members of a supervision group that is restarted together */
    EXO_HOLDERS = 64,         /* processes whose holdings a node reports to the head */
    /* Turns at a system actor: calls of one connection in its mailbox, and bytes of their arguments
     * if there is more than one; see remote_gate.c. */
    EXO_QUOTA_TURNS = 4,
    EXO_QUOTA_TURN_BYTES = 16 << 10,
    /* As EXO_QUOTA_TURNS, for all askers of one connection together. */
    EXO_QUOTA_ASKED_TURNS = 2 * EXO_QUOTA_TURNS
};

/* The quotas of every process. */
typedef struct exo_quotas {
    uint64_t most[EXO_QUOTAS];
} exo_quotas;

extern const exo_quotas exo_quotas_default;

/* The quota's name, a literal, in errors and listings. */
const char *exo_quota_name(exo_quota quota);
/* FULL: `held` and `count` together exceed the quota. The text names the quota, its limit, and a
 * remedy. */
exo_status exo_quota_check(const exo_quotas *quotas, exo_quota quota, uint64_t held, uint64_t count,
                           exo_err *err);

/* --- Accounts --------------------------------------------------------------------------------- */

typedef struct exo_account {
    uint64_t peer; /* 0: this process */
    /* the number by which workers know it; it does not reveal the process or key */
    uint64_t number;
    char *name; /* name of the key that the account is of; NULL: none is known */
    uint64_t held[EXO_QUOTA_HEAD];
    UT_hash_handle hh;
} exo_account;

/* Zeros: no accounts, and the default quotas. */
typedef struct exo_accounts {
    const exo_quotas *quotas; /* NULL: the defaults */
    exo_account *by_peer;
    uint64_t made; /* number of accounts made so far */
} exo_accounts;

/* Charges `count` to the process. FULL, NOMEM: nothing was charged. */
exo_status exo_account_take(exo_accounts *accounts, uint64_t peer, exo_quota quota, uint64_t count,
                            exo_err *err);
/* Ends charges that exo_account_take has made. */
void exo_account_give(exo_accounts *accounts, uint64_t peer, exo_quota quota, uint64_t count);
/* Names the account of a key. Does nothing if it has a name, or if there is no account. */
void exo_account_name(exo_accounts *accounts, uint64_t peer, const char *name);
/* NULL: the process holds nothing. */
const exo_account *exo_account_of(const exo_accounts *accounts, uint64_t peer);
/* The number of the account; 1: the process holds nothing. */
uint64_t exo_account_number(const exo_accounts *accounts, uint64_t peer);
void exo_accounts_release(exo_accounts *accounts);

#endif
