/* The head's tables: nodes, actors, jobs. Plain data; whoever has the directory is its only user (the head's lane). */
#ifndef EXO_CLUSTER_DIRECTORY_H
#define EXO_CLUSTER_DIRECTORY_H

#include <uthash.h>

#include "identity.h"
#include "messages.h"
#include "quota.h"

enum {
    EXO_NAME = 256 /* longest name or namespace, with its 0 */
};

/* A call that is answered later. */
struct exo_wish {
    exo_future *future; /* held */
    uint64_t after;     /* of one that waits for lines of the log */
    exo_time until;     /* of one that looks for an actor: when it is told that this does not live yet */
    uint64_t peer;      /* whose it is, and the quota that it takes; EXO_QUOTAS: none */
    exo_quota quota;
    struct exo_wish *next;
};

/* Actors that are made together: one answer for all, when all of them live at the same time. */
typedef struct exo_batch {
    exo_future *future; /* held */
    size_t count, alive;
    uint64_t keys[];
} exo_batch;

/* What `kill` of a worker gets. */
struct exo_head_kill {
    uint64_t id; /* 0: the one of that key and incarnation, if it is there */
    uint64_t key, incarnation;
    uint8_t clean; /* stops it instead; a number, since it comes from elsewhere: a bool may not be 2 */
    char cause[200];
};

typedef struct exo_amount {
    char name[64];
    double total, free;
} exo_amount;

/* A process. */
typedef struct exo_node {
    uint64_t id;
    char *name, *endpoint, *key, *host, *job;
    uint32_t pid;
    bool alive, left, is_driver; /* left: it ended well */
    exo_identity *owner;         /* held: who registered it, and may do so again; NULL: this process, in tests */
    uint32_t watcher;            /* of a process of this host: its parent */
    char *cause, *running, *log; /* of its end; may be NULL */
    exo_amount *amounts;
    size_t num_amounts;
    size_t num_actors;
    uint64_t holder; /* the process that it is counted for, while it is alive */
    int64_t since;
    UT_hash_handle hh;
} exo_node;

typedef enum exo_entry_state {
    EXO_ENTRY_STARTING,
    EXO_ENTRY_ALIVE,
    EXO_ENTRY_RESTARTING, /* waits for its next life                             */
    EXO_ENTRY_UNKNOWN,    /* of a head that was restarted: its node may come back */
    EXO_ENTRY_DEAD,
} exo_entry_state;

/* A supervision group: those of its members that are not dead. */
typedef struct exo_group {
    struct exo_entry *members; /* the oldest first */
    size_t key_size;
    UT_hash_handle hh;
    char key[]; /* space and group, with a 0 between */
} exo_group;

/* An actor. */
typedef struct exo_entry {
    uint64_t key;
    Exo__Cluster__Spawn *spec; /* owned */
    exo_node *node;            /* where it lives, or starts: a node that is alive; NULL: nowhere */
    bool placed;               /* holds resources of `node`                */
    uint64_t id;               /* there; 0: not known (yet)                */
    uint64_t last_node;
    char last_key[EXO_IDENTITY_KEY]; /* of that node; "": it had none */
    uint64_t lost_with;              /* the node with which its latest life was lost; 0: it ended otherwise */
    uint64_t incarnation;
    exo_entry_state state;
    bool unbegun; /* of a batch, and nobody has been asked for it yet */
    bool first_life, died_early, failed, indexed, listed, ended;
    char *cause, *waits;  /* why it died; why there is no place for its next life (NULL: there is) */
    char idempotent[512]; /* names of methods, each with a 0 */
    size_t idempotent_size;
    int64_t since;
    uint64_t num_deaths;
    uint64_t num_quick; /* deaths one after the other, each of a life that was short */
    exo_time first_death, restart_at, alive_since;
    exo_time name_taken_since; /* its node has had a life of that name for so long; 0: it has not */
    struct exo_wish *spawn_wishes, *find_wishes;
    uint64_t holder;  /* the process that it is counted for... */
    unsigned holds;   /* ...and in which quotas, a bit each      */
    exo_batch *batch; /* until all of it live, or one has died for good */
    struct {
        uint64_t node, id;
    } where;
    exo_group *group; /* of its spec, until it is dead; NULL: none */
    struct exo_entry *prev_member, *next_member;
    char *full_name; /* space and name, with a 0 between; NULL: anonymous */
    size_t full_size;
    UT_hash_handle by_key, by_where, by_name;
} exo_entry;

typedef struct exo_job_entry {
    uint64_t key, driver;
    uint64_t holder; /* the process that it is counted for, while it runs; 0: this one */
    bool held;
    char *name, *cause;
    char *owner;       /* name of the key of who began it; NULL: without key */
    const char *state; /* a literal */
    int64_t began, ended;
    char *report; /* JSON, the driver's latest; NULL: none */
    UT_hash_handle hh;
} exo_job_entry;

typedef struct exo_directory {
    exo_node *nodes;
    exo_entry *actors; /* by key */
    exo_entry *where, *names;
    exo_job_entry *jobs;
    exo_group *groups;
    exo_accounts accounts;        /* of the processes that hold any of it */
    size_t trim_at, trim_jobs_at; /* numbers of actors and jobs at which the dead are forgotten */
} exo_directory;

const char *exo_entry_state_text(exo_entry_state state);
const char *exo_node_state(const exo_node *node);
void exo_directory_release(exo_directory *directory);

/* --- Actors. NULL: there is none, or (add) no memory ------------------------------------------------------------------- */

/* `spec` is copied. The name must be free. */
exo_entry *exo_directory_add(exo_directory *directory, uint64_t key, const Exo__Cluster__Spawn *spec);
void exo_directory_remove(exo_directory *directory, exo_entry *entry);
exo_entry *exo_directory_by_key(exo_directory *directory, uint64_t key);
exo_entry *exo_directory_by_name(exo_directory *directory, const char *space, const char *name);
exo_entry *exo_directory_by_id(exo_directory *directory, uint64_t node, uint64_t id);
/* From now on it is found by its node and id; until unindex. */
void exo_directory_index(exo_directory *directory, exo_entry *entry);
void exo_directory_unindex(exo_directory *directory, exo_entry *entry);
void exo_entry_set_cause(exo_entry *entry, const char *cause);
/* Until it has a place. */
void exo_entry_set_waits(exo_entry *entry, const char *why);
/* "the actor 'a' is restarting: CAUSE; it waits: WHY" */
void exo_entry_describe(const exo_entry *entry, char *out, size_t size);
/* The oldest of a supervision group that is not dead; NULL: there is none. The others: next_member. */
exo_entry *exo_directory_member(exo_directory *directory, const char *space, const char *group);
/* It is dead. */
void exo_directory_leave_group(exo_directory *directory, exo_entry *entry);
/* Counts an entry for `peer`. FULL, NOMEM. It is counted until exo_entry_give, or until it is removed. */
exo_status exo_entry_take(exo_directory *directory, exo_entry *entry, uint64_t peer, exo_quota quota, exo_err *err);
void exo_entry_give(exo_directory *directory, exo_entry *entry, exo_quota quota);
/* Forgets the oldest of the dead beyond `most`, after `forget` was called with each one's key. Not each time, as it looks at all of them:
 * there may be twice as many for a while. */
void exo_directory_trim(exo_directory *directory, size_t most, void (*forget)(void *context, uint64_t key),
                        void *context);

/* Gives it the place that its spec asks for. FULL: no node has room; NOT_FOUND: no such node. */
exo_status exo_directory_place(exo_directory *directory, exo_entry *entry, exo_err *err);
/* It has its resources there, asked for or not. */
void exo_entry_take_place(exo_entry *entry, exo_node *node);
void exo_entry_set_last(exo_entry *entry, uint64_t node, const char *key);
/* Was it there that it lived last, as far as is known of an earlier head's actors? */
bool exo_entry_was_at(const exo_entry *entry, const exo_node *node);
void exo_entry_unplace(exo_entry *entry);

/* --- Nodes and jobs -------------------------------------------------------------------------------------------------------- */

/* New, or what was known of it brought up to date. A name that another living node has gets a number; who has none is called by its
 * kind. */
exo_node *exo_directory_add_node(exo_directory *directory, const Exo__Cluster__Register *from);
exo_node *exo_directory_node(exo_directory *directory, uint64_t id);
exo_node *exo_directory_node_by_name(exo_directory *directory, const char *name);
/* Made with `key` if there is none; key 0: only looked for. */
exo_job_entry *exo_directory_job(exo_directory *directory, const char *name, uint64_t key);
/* It begins anew, as the latest. */
void exo_directory_renew_job(exo_directory *directory, exo_job_entry *job);
/* As exo_directory_trim, of jobs that have ended. */
void exo_directory_trim_jobs(exo_directory *directory, size_t most, void (*forget)(void *context, uint64_t key),
                             void *context);
void exo_job_describe(const exo_job_entry *job, Exo__Cluster__Job *out);

/* Everything, for a reply; its texts are the directory's. Released also after an error. */
exo_status exo_directory_list(exo_directory *directory, Exo__Cluster__Listing *out,
                              void (*describe)(const exo_entry *entry, Exo__Cluster__Actor *out));
void exo_directory_list_release(Exo__Cluster__Listing *listing);
/* One of its nodes. */
void exo_directory_free_node_info(Exo__Cluster__NodeInfo *info);

#endif
