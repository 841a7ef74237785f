/* The head's tables: nodes, actors, jobs. Plain data, used by one thread at a time: the head's
 * lane. */
#ifndef EXO_CLUSTER_DIRECTORY_H
#define EXO_CLUSTER_DIRECTORY_H

#include <uthash.h>

#include "base/identity.h"
#include "cluster/gpus.h"
#include "cluster/messages.h"
#include "cluster/quota.h"

enum {
    EXO_NAME = 256,     /* longest name or namespace, with its 0 */
    EXO_LOST_STARTS = 3 /* losses of a node in a row, while actors start there, up to an error */
};

/* A call whose reply is deferred. */
struct exo_wish {
    exo_future *future; /* held */
    uint64_t after;     /* number of lines that the caller has, if it waits for lines of the log */
    /* if it looks for an actor: the time to answer that it does not live yet */
    exo_time until;
    uint64_t peer; /* the caller's account, whose `quota` counts the call; EXO_QUOTAS: none does */
    exo_quota quota;
    struct exo_wish *next;
};

/* Actors that are made together. Their caller gets one reply, when all of them are alive or one has
 * failed. */
typedef struct exo_spawn_batch {
    exo_future *future; /* held */
    size_t count, alive;
    uint64_t keys[];
} exo_spawn_batch;

/* The arguments of a worker's `kill`. */
struct exo_head_kill {
    uint64_t id; /* the actor; 0: the one of that key and incarnation, if it exists */
    uint64_t key, incarnation;
    /* not 0: stops the actor instead. A number, because a byte from elsewhere may be no valid
     * bool. */
    uint8_t clean;
    char cause[200];
};

typedef struct exo_amount {
    char name[64];
    double total, free;
} exo_amount;

enum {
    EXO_REFUSALS = 16 /* actors that a node refused last; they are remembered */
};

/* An actor that did not start at a node. */
typedef struct exo_refusal {
    uint32_t actor; /* hash of its namespace and name, without the number of its life in a graph */
    exo_time until; /* others are preferred for actors of that name */
} exo_refusal;

/* A process: a worker or a driver. */
typedef struct exo_cluster_node {
    uint64_t id;
    char *name, *endpoint, *key, *host, *job, *version;
    uint32_t pid;
    bool alive, left, is_driver; /* left: it ended well */
    /* held: the identity that registered it, which alone may do so again; NULL: this process, in
     * tests */
    exo_identity *owner;
    /* process number of the parent, if the process is on this host */
    uint32_t watcher;
    char *cause, *running, *log; /* of its end; may be NULL */
    /* holdings of other processes at this one, by its latest report; NULL: none */
    Exo__Cluster__Holdings *held;
    exo_amount *amounts;
    size_t num_amounts;
    exo_gpus gpus; /* each one's share of the amount `gpus` */
    size_t num_actors;
    struct exo_entry *entries; /* list of the actors whose `node` this is */
    /* keys of the actors that died with it, until the cause of its end is known */
    uint64_t *casualties;
    size_t num_casualties;
    uint64_t holder; /* account that counts it while it is alive */
    int64_t since;
    /* How often in a row it was lost while actors started there; until `shunned_until` others are
     * preferred to it. `last_loss`: the cause of the latest such loss; NULL: none, or no memory. */
    unsigned lost_starts;
    exo_time shunned_until;
    char *last_loss;
    exo_refusal refusals[EXO_REFUSALS]; /* of one actor each, the latest one first */
    UT_hash_handle hh;
} exo_cluster_node;

typedef enum exo_entry_state {
    EXO_ENTRY_STARTING,
    EXO_ENTRY_ALIVE,
    EXO_ENTRY_RESTARTING, /* waits for its next life */
    EXO_ENTRY_UNKNOWN,    /* from a restarted head's file; its node may come back */
    EXO_ENTRY_DEAD,
} exo_entry_state;

/* The members of a supervision group that are not dead. */
typedef struct exo_supervision_group {
    struct exo_entry *members; /* the oldest first */
    size_t count, key_size;
    UT_hash_handle hh;
    char key[]; /* space and group, with a 0 between */
} exo_supervision_group;

/* The actors that end with a job: those that are neither dead nor detached. */
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
    /* The node where it lives or starts; NULL: none. The node is alive, or has ended just now
     * (head_work.c). Only directory_lists.c writes it. */
    exo_cluster_node *node;
    bool placed; /* holds resources of `node` */
    uint64_t id; /* its reference at the node; 0: not known yet */
    uint64_t last_node;
    char last_key[EXO_IDENTITY_KEY]; /* of that node; "": it had none */
    /* the node with which its latest life ended; 0: it ended otherwise */
    uint64_t lost_with;
    uint64_t incarnation;
    exo_entry_state state;
    bool unbegun; /* of a batch; no worker has been asked for it yet */
    bool first_life, died_early, failed, indexed, listed, ended;
    bool given_up; /* it lives, and its node was told to end it for good */
    /* cause of the latest death; why there is no place for its next life (NULL: there is) */
    char *cause, *waits;
    char idempotent[512]; /* names of methods, each with its 0 */
    size_t idempotent_size;
    int64_t since;
    uint64_t num_deaths;
    uint64_t num_quick; /* number of short lives in a row */
    exo_time first_death, restart_at, alive_since;
    /* time since which its node reports that the name is taken; 0: it does not */
    exo_time name_taken_since;
    struct exo_wish *spawn_wishes, *find_wishes;
    uint64_t holder;        /* account that counts it... */
    unsigned holds;         /* ...in these quotas, one bit each */
    exo_spawn_batch *batch; /* until all of it live, or one has died for good */
    struct {
        uint64_t node, id;
    } where;
    /* The lists of directory_lists.c: the node's; the group's and the job's, until the actor is
     * dead; the restless actors; the dead ones. */
    exo_supervision_group *group; /* NULL: none, like `crew` */
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
    /* account that counts the job while it runs; 0: this process's */
    uint64_t holder;
    bool held;
    char *name, *cause;
    /* name of the key that began it; NULL: it had no key */
    char *owner;
    const char *state; /* a literal */
    int64_t began, ended;
    char *report; /* the driver's latest, JSON; NULL: none */
    UT_hash_handle hh;
} exo_job_entry;

typedef struct exo_directory {
    exo_cluster_node *nodes;
    exo_entry *actors; /* by key */
    exo_entry *where, *names;
    exo_job_entry *jobs;
    exo_supervision_group *groups;
    exo_crew *crews;
    /* actors that time may change: they wait for their next life, or calls wait for them */
    exo_entry *restless;
    size_t num_restless;
    exo_entry *dead; /* the longest dead first */
    size_t num_dead;
    exo_accounts accounts; /* accounts of the processes that hold any of it */
    /* number of jobs at which ended ones are forgotten; 0: see exo_directory_trim_jobs */
    size_t trim_jobs_at;
} exo_directory;

/* Names of states, as literals. */
const char *exo_entry_state_text(exo_entry_state state);
const char *exo_node_state(const exo_cluster_node *node);
void exo_directory_release(exo_directory *directory);

/* --- Actors. NULL: there is none, or (add) no memory ------------------------------------------ */

/* Adds an entry for a copy of `spec`, whose name must be free. */
exo_entry *exo_directory_add(exo_directory *directory, uint64_t key,
                             const Exo__Cluster__Spawn *spec);
/* Frees an entry that no call waits for, and gives its quotas and its place back. */
void exo_directory_remove(exo_directory *directory, exo_entry *entry);
exo_entry *exo_directory_by_key(exo_directory *directory, uint64_t key);
exo_entry *exo_directory_by_name(exo_directory *directory, const char *space, const char *name);
exo_entry *exo_directory_by_id(exo_directory *directory, uint64_t node, uint64_t id);
/* Makes the actor known by its node and id, until exo_directory_unindex. */
void exo_directory_index(exo_directory *directory, exo_entry *entry);
void exo_directory_unindex(exo_directory *directory, exo_entry *entry);
void exo_entry_set_cause(exo_entry *entry, const char *cause);
/* Forgets what only a start of the actor needs, above all its arguments, of which each dead actor
 * that is remembered could have a MiB. Pointers into its `spec` are invalid afterwards. Without
 * memory, nothing is forgotten. */
void exo_entry_forget_start(exo_entry *entry);
/* Sets the reason why it has no place; exo_entry_take_place clears it. */
void exo_entry_set_waits(exo_entry *entry, const char *why);
/* Writes the actor's state, as in "the actor 'a' is restarting: CAUSE; it waits: WHY". */
void exo_entry_describe(const exo_entry *entry, char *out, size_t size);
/* Charges an entry to `peer`, until exo_entry_give or the entry's removal. FULL, NOMEM. */
exo_status exo_entry_take(exo_directory *directory, exo_entry *entry, uint64_t peer,
                          exo_quota quota, exo_err *err);
void exo_entry_give(exo_directory *directory, exo_entry *entry, exo_quota quota);
/* Forgets the oldest dead actors beyond `most`, at most `at_once` of them. Calls `forget` with each
 * key first. */
void exo_directory_trim(exo_directory *directory, size_t most, size_t at_once,
                        void (*forget)(void *context, uint64_t key), void *context);

/* --- Lists of actors (directory_lists.c) ------------------------------------------------------ */

/* Sets the node where it lives or starts; NULL: none. */
void exo_entry_set_node(exo_entry *entry, exo_cluster_node *node);
/* NULL: the group has no members that are not dead. */
const exo_supervision_group *exo_directory_group(exo_directory *directory, const char *space,
                                                 const char *group);
/* NULL: nothing would end with the job. */
const exo_crew *exo_directory_crew(exo_directory *directory, const char *job);
/* Enters the actor into the group and the job of its spec. False: no memory, or a name is too long;
 * it is in neither then. */
bool exo_directory_enlist(exo_directory *directory, exo_entry *entry);
/* Moves a dead actor from its group and job to the list of the dead. */
void exo_directory_bury(exo_directory *directory, exo_entry *entry);
/* Adds the actor to the restless ones. */
void exo_directory_stir(exo_directory *directory, exo_entry *entry);
/* Removes the actor from the restless ones. */
void exo_directory_calm(exo_directory *directory, exo_entry *entry);
/* Removes the actor from every list. */
void exo_directory_unlist(exo_directory *directory, exo_entry *entry);

/* Gives the actor a place by its spec. A node that has refused this actor gets it only if no other one
 * has room; one that is shunned at the time `now`, only if none of those has. FULL: no node has room;
 * NOT_FOUND: there is no such node; FAILED: the only one with room was lost EXO_LOST_STARTS times while
 * actors started there, and is still shunned. */
exo_status exo_directory_place(exo_directory *directory, exo_entry *entry, exo_time now,
                               exo_err *err);
/* The node is lost, at the time `now`, because of `cause`. If actors start there it is shunned for a
 * while. */
void exo_node_note_loss(exo_cluster_node *node, const char *cause, exo_time now);
/* The actor did not start at its node, at the time `now`: others are preferred for it for a while. The
 * node stays as good as any other for other actors. Without a name, or a node, this does nothing. */
void exo_entry_note_refusal(const exo_entry *entry, exo_time now);
/* An actor has started there: the node is as good as any other. */
void exo_node_forgive(exo_cluster_node *node);
/* Makes `node` the actor's place and takes its resources there, even if too few are free. gpus: those
 * that it has there already, a bit each; 0: spec->gpus becomes those that are chosen now. */
void exo_entry_take_place(exo_entry *entry, exo_cluster_node *node, uint64_t gpus);
/* Notes where the actor lived last, and the key of that node. */
void exo_entry_set_last(exo_entry *entry, uint64_t node, const char *key);
/* Whether the actor lived last at this node. */
bool exo_entry_was_at(const exo_entry *entry, const exo_cluster_node *node);
/* Gives up the actor's place and resources, if it has any. */
void exo_entry_unplace(exo_entry *entry);

/* --- Nodes and jobs --------------------------------------------------------------------------- */

/* Adds a node, or updates a known one. A name that another living node has gets a number; a node
 * without a name gets its kind as its name. NULL: no memory. */
exo_cluster_node *exo_directory_add_node(exo_directory *directory,
                                         const Exo__Cluster__Register *from);
exo_cluster_node *exo_directory_node(exo_directory *directory, uint64_t id);
exo_cluster_node *exo_directory_node_by_name(exo_directory *directory, const char *name);
/* Finds the job; if there is none and key is not 0, makes it with that key. NULL: none, or no
 * memory. */
exo_job_entry *exo_directory_job(exo_directory *directory, const char *name, uint64_t key);
/* Makes the job the latest one. */
void exo_directory_renew_job(exo_directory *directory, exo_job_entry *job);
/* Forgets the oldest ended jobs beyond `most`, with `forget` as above. Because it looks at every
 * job, it only acts when there are `most` jobs more than after its last work; so up to twice as
 * many may be kept. */
void exo_directory_trim_jobs(exo_directory *directory, size_t most,
                             void (*forget)(void *context, uint64_t key), void *context);
void exo_job_describe(const exo_job_entry *job, Exo__Cluster__Job *out);

/* Fills in nodes and jobs for a reply. Their texts belong to the directory. The caller releases the
 * listing, with everything else in it, also after an error. */
exo_status exo_directory_list(exo_directory *directory, Exo__Cluster__Listing *out);
void exo_directory_list_release(Exo__Cluster__Listing *listing);
/* Frees one of its nodes. */
void exo_directory_free_node_info(Exo__Cluster__NodeInfo *info);

#endif
