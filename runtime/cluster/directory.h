/* The head's tables: nodes, actors, jobs. Plain data; whoever has the directory is its only user
 * (the head's lane). */
#ifndef EXO_CLUSTER_DIRECTORY_H
#define EXO_CLUSTER_DIRECTORY_H

#include <uthash.h>

#include "base/identity.h"
#include "cluster/messages.h"
#include "cluster/quota.h"

enum {
    EXO_NAME = 256 /* longest name or namespace, with its 0 */
};

/* A call that is answered later. */
struct exo_wish {
    exo_future *future; /* held */
    uint64_t after;     /* of one that waits for lines of the log */
    /* of one that looks for an actor: when it is told that this does not live yet */
    exo_time until;
    uint64_t peer; /* whose it is, and the quota that it takes; EXO_QUOTAS: none */
    exo_quota quota;
    struct exo_wish *next;
};

/* Actors that are made together: one answer for all, when all of them live at the same time. */
typedef struct exo_spawn_batch {
    exo_future *future; /* held */
    size_t count, alive;
    uint64_t keys[];
} exo_spawn_batch;

/* What `kill` of a worker gets. */
struct exo_head_kill {
    uint64_t id; /* 0: the one of that key and incarnation, if it is there */
    uint64_t key, incarnation;
    /* stops it instead; a number, since it comes from elsewhere: a bool may not be 2 */
    uint8_t clean;
    char cause[200];
};

typedef struct exo_amount {
    char name[64];
    double total, free;
} exo_amount;

/* A process. */
typedef struct exo_cluster_node {
    uint64_t id;
    char *name, *endpoint, *key, *host, *job;
    uint32_t pid;
    bool alive, left, is_driver; /* left: it ended well */
    /* held: who registered it, and may do so again; NULL: this process, in tests */
    exo_identity *owner;
    uint32_t watcher;             /* of a process of this host: its parent */
    char *cause, *running, *log;  /* of its end; may be NULL */
    Exo__Cluster__Holdings *held; /* what others hold of it, as it said last; NULL: nothing */
    exo_amount *amounts;
    size_t num_amounts;
    size_t num_actors;
    struct exo_entry *entries; /* whose `node` this is */
    uint64_t *casualties; /* keys of those that it ended with, until it is known why it ended */
    size_t num_casualties;
    uint64_t holder; /* the process that it is counted for, while it is alive */
    int64_t since;
    UT_hash_handle hh;
} exo_cluster_node;

typedef enum exo_entry_state {
    EXO_ENTRY_STARTING,
    EXO_ENTRY_ALIVE,
    EXO_ENTRY_RESTARTING, /* waits for its next life                             */
    EXO_ENTRY_UNKNOWN,    /* of a head that was restarted: its node may come back */
    EXO_ENTRY_DEAD,
} exo_entry_state;

/* A supervision group: those of its members that are not dead. */
typedef struct exo_supervision_group {
    struct exo_entry *members; /* the oldest first */
    size_t count, key_size;
    UT_hash_handle hh;
    char key[]; /* space and group, with a 0 between */
} exo_supervision_group;

/* What ends with a job: those of its actors that are neither dead nor detached. */
typedef struct exo_crew {
    struct exo_entry *members;
    size_t count;
    UT_hash_handle hh;
    char job[];
} exo_crew;

/* An actor. */
typedef struct exo_entry {
    uint64_t key;
    Exo__Cluster__Spawn *spec; /* owned */
    /* Where it lives, or starts; NULL: nowhere. The node is alive, or has ended just now
     * (head_work.c); directory_lists.c writes it. */
    exo_cluster_node *node;
    bool placed; /* holds resources of `node`                */
    uint64_t id; /* there; 0: not known (yet)                */
    uint64_t last_node;
    char last_key[EXO_IDENTITY_KEY]; /* of that node; "": it had none */
    uint64_t lost_with; /* the node with which its latest life was lost; 0: it ended otherwise */
    uint64_t incarnation;
    exo_entry_state state;
    bool unbegun; /* of a batch, and nobody has been asked for it yet */
    bool first_life, died_early, failed, indexed, listed, ended;
    char *cause, *waits; /* why it died; why there is no place for its next life (NULL: there is) */
    char idempotent[512]; /* names of methods, each with a 0 */
    size_t idempotent_size;
    int64_t since;
    uint64_t num_deaths;
    uint64_t num_quick; /* deaths one after the other, each of a life that was short */
    exo_time first_death, restart_at, alive_since;
    exo_time name_taken_since; /* its node has had a life of that name for so long; 0: it has not */
    struct exo_wish *spawn_wishes, *find_wishes;
    uint64_t holder;        /* the process that it is counted for... */
    unsigned holds;         /* ...and in which quotas, a bit each      */
    exo_spawn_batch *batch; /* until all of it live, or one has died for good */
    struct {
        uint64_t node, id;
    } where;
    /* Lists (directory_lists.c): of its node; of the group and the job of its spec, until it is
     * dead; of those that are not left alone; of the dead. */
    exo_supervision_group *group; /* NULL: none, as `crew` */
    exo_crew *crew;
    bool restless, buried;
    struct exo_entry *prev_there, *next_there, *prev_member, *next_member, *prev_mate, *next_mate,
        *prev_restless, *next_restless, *prev_dead, *next_dead;
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
    exo_cluster_node *nodes;
    exo_entry *actors; /* by key */
    exo_entry *where, *names;
    exo_job_entry *jobs;
    exo_supervision_group *groups;
    exo_crew *crews;
    /* that are looked at as time passes: they wait for a place, or somebody waits for them */
    exo_entry *restless;
    size_t num_restless;
    exo_entry *dead; /* the longest dead first */
    size_t num_dead;
    exo_accounts accounts; /* of the processes that hold any of it */
    size_t trim_jobs_at;   /* number of jobs at which those that ended are forgotten */
} exo_directory;

const char *exo_entry_state_text(exo_entry_state state);
const char *exo_node_state(const exo_cluster_node *node);
void exo_directory_release(exo_directory *directory);

/* --- Actors. NULL: there is none, or (add) no memory ------------------------------------------ */

/* `spec` is copied. The name must be free. */
exo_entry *exo_directory_add(exo_directory *directory, uint64_t key,
                             const Exo__Cluster__Spawn *spec);
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
/* Counts an entry for `peer`. FULL, NOMEM. It is counted until exo_entry_give, or until it is
 * removed. */
exo_status exo_entry_take(exo_directory *directory, exo_entry *entry, uint64_t peer,
                          exo_quota quota, exo_err *err);
void exo_entry_give(exo_directory *directory, exo_entry *entry, exo_quota quota);
/* Forgets the oldest of the dead beyond `most`, `at_once` of them at most, after `forget` was
 * called with each one's key. */
void exo_directory_trim(exo_directory *directory, size_t most, size_t at_once,
                        void (*forget)(void *context, uint64_t key), void *context);

/* --- Lists of actors (directory_lists.c) ------------------------------------------------------ */

/* Where it lives or starts from now on; NULL: nowhere. */
void exo_entry_set_node(exo_entry *entry, exo_cluster_node *node);
/* NULL: no member of it is alive. */
const exo_supervision_group *exo_directory_group(exo_directory *directory, const char *space,
                                                 const char *group);
/* NULL: nothing of the job would end with it. */
const exo_crew *exo_directory_crew(exo_directory *directory, const char *job);
/* Enters it into the group and the job of its spec. False: no memory, or a name that is too long;
 * then it is in neither. */
bool exo_directory_enlist(exo_directory *directory, exo_entry *entry);
/* It is dead: it is of no group and job, and will be forgotten in time. */
void exo_directory_bury(exo_directory *directory, exo_entry *entry);
/* It has to be looked at as time passes. */
void exo_directory_stir(exo_directory *directory, exo_entry *entry);
/* It has not. */
void exo_directory_calm(exo_directory *directory, exo_entry *entry);
/* Out of every list. */
void exo_directory_unlist(exo_directory *directory, exo_entry *entry);

/* Gives it the place that its spec asks for. FULL: no node has room; NOT_FOUND: no such node. */
exo_status exo_directory_place(exo_directory *directory, exo_entry *entry, exo_err *err);
/* It has its resources there, asked for or not. */
void exo_entry_take_place(exo_entry *entry, exo_cluster_node *node);
void exo_entry_set_last(exo_entry *entry, uint64_t node, const char *key);
/* Was it there that it lived last, as far as is known of an earlier head's actors? */
bool exo_entry_was_at(const exo_entry *entry, const exo_cluster_node *node);
void exo_entry_unplace(exo_entry *entry);

/* --- Nodes and jobs --------------------------------------------------------------------------- */

/* New, or what was known of it brought up to date. A name that another living node has gets a
 * number; who has none is called by its kind. */
exo_cluster_node *exo_directory_add_node(exo_directory *directory,
                                         const Exo__Cluster__Register *from);
exo_cluster_node *exo_directory_node(exo_directory *directory, uint64_t id);
exo_cluster_node *exo_directory_node_by_name(exo_directory *directory, const char *name);
/* Made with `key` if there is none; key 0: only looked for. */
exo_job_entry *exo_directory_job(exo_directory *directory, const char *name, uint64_t key);
/* It begins anew, as the latest. */
void exo_directory_renew_job(exo_directory *directory, exo_job_entry *job);
/* The same for jobs that have ended. Not each time, as it looks at all of them: there may be twice
 * as many for a while. */
void exo_directory_trim_jobs(exo_directory *directory, size_t most,
                             void (*forget)(void *context, uint64_t key), void *context);
void exo_job_describe(const exo_job_entry *job, Exo__Cluster__Job *out);

/* Nodes and jobs, for a reply; its texts are the directory's. Released also after an error, and
 * with it what else the listing has. */
exo_status exo_directory_list(exo_directory *directory, Exo__Cluster__Listing *out);
void exo_directory_list_release(Exo__Cluster__Listing *listing);
/* One of its nodes. */
void exo_directory_free_node_info(Exo__Cluster__NodeInfo *info);

#endif
