/* A group of the engine `nccl`: the members of a communicator that this process holds, and what the
 * members tell each other beside NCCL.
 *
 * Each set of members that calls together has an NCCL communicator, which every member of it makes at
 * its first call. The first of them decides how, and tells the others: by an id that it makes, or from
 * what an earlier group of the run has left. Members also tell each other that they have come to a barrier,
 * that the group is broken, and that they leave. Among processes these are messages (exo_engine_post);
 * among threads they are notes in the group.
 *
 * The life of a communicator (make.c, set.c):
 *
 *            it is told how          NCCL has connected all members
 *     NEW ------------------> MAKING ------------------------------> READY
 *      |                         |                                     |
 *      |                         |                                     | ^
 *      |                         |             exo_group_suspend       v | the next call: RESUMING
 *      |                         |                                  SUSPENDED
 *      |                         |                                     |
 *      +-------------------------+-------------------------------------+--> (none)
 *          the group is broken: revoked or aborted; the member leaves: resumed and finalized, or
 *          left to the next group of the run
 *
 * 1. All calls of NCCL for a member are made by that member's thread, and none of them blocks.
 * 2. Calls are given to NCCL in the order of their begins, on one stream, one after the other.
 * 3. When the members of an elastic run change, each keeps what it has (estate.c): revoked if a member
 *    died, else whole. In the next group it offers that to the first of the new set. If all have one of
 *    more members, they shrink it; if it is whole and all of its members are there, they grow it by the
 *    newcomers, or use it as it is; else they make a new one by an id. NCCL numbers newcomers behind the
 *    others, so its ranks may differ from the members' places (exo_nccl_rank_of).
 * 4. After the group is broken a member gives NCCL no call, and takes its communicators back from it
 *    before it returns an error: from then on nothing touches the data of its requests. If the GPU
 *    does not stop, the engine's own memory of these requests is kept until the process ends.
 *
 * Owners: the lock guards what says so; the rest is a member's, and of its thread. The lock is not
 * held during calls into other layers. Read next: engine.c. */
#ifndef EXO_NCCL_GROUP_H
#define EXO_NCCL_GROUP_H

#include <pthread.h>

#include <exogym/engine.h>

#include "nccl/library.h"
#include "nn/cuda/quiet.h"
#include "nn/cuda/side.h"

enum {
    EXO_NCCL_NAME = 64,
    EXO_NCCL_BODY = EXO_ERR_TEXT,
    EXO_NCCL_SETS = 4096,                                   /* of which a member may tell */
    EXO_NCCL_GROWN_MOST = EXO_NCCL_BODY / sizeof(uint16_t), /* members of what is grown */
    EXO_NCCL_DIGESTS = 64                                   /* of the latest calls among a set */
};

typedef enum exo_nccl_kind {
    EXO_NCCL_TELLS_OFFER, /* to the first of a set; body: an exo_nccl_offer */
    EXO_NCCL_TELLS_PLAN,  /* from the first; value: the way; body: what goes with it */
    EXO_NCCL_TELLS_ID, /* from that of rank 0 in NCCL, which is grown. body: the id; value: 0, if NCCL
                             * cannot grow it: the id is for one anew */
    EXO_NCCL_TELLS_BARRIER, /* value: how many barriers the member has begun */
    EXO_NCCL_TELLS_CALLS,   /* value: how many calls the member has begun, which now leaves */
    EXO_NCCL_TELLS_END,     /* it has left; its calls were told before */
    EXO_NCCL_TELLS_BROKEN,  /* value: the status; body: the text */
} exo_nccl_kind;

/* What a member tells the others; also the bytes of a message, of processes of one build. */
typedef struct exo_nccl_message {
    uint32_t kind, zero;
    uint64_t set, value; /* set: the key of a set of members */
    char body[EXO_NCCL_BODY];
} exo_nccl_message;

/* How a set gets its communicator. */
typedef enum exo_nccl_way {
    EXO_NCCL_ANEW,   /* by an id */
    EXO_NCCL_SHRUNK, /* from one of more members */
    EXO_NCCL_GROWN,  /* from one of fewer members, by an id for the newcomers */
    EXO_NCCL_KEPT    /* it is one of the same members */
} exo_nccl_way;

/* The communicator that a member has from an earlier group. */
typedef struct exo_nccl_offer {
    uint64_t lineage;    /* 0: none */
    uint32_t size, rank; /* its members; NCCL's rank of this one */
    uint32_t fate;       /* exo_nccl_fate */
} exo_nccl_offer;

/* What the first of a set has decided. */
typedef struct exo_nccl_plan {
    exo_nccl_way way;
    exo_nccl_id id;                      /* ANEW */
    uint16_t order[EXO_NCCL_GROWN_MOST]; /* GROWN: NCCL's rank of each place */
} exo_nccl_plan;

/* What is known of a member of a set. */
typedef struct exo_nccl_note {
    struct exo_nccl_note *next;
    uint64_t set;
    uint32_t from;
    const exo_nccl_plan *plan; /* told as the first, once; NULL: not yet */
    bool has_offer, has_id;
    exo_nccl_offer offer;
    bool grows;               /* it has told the id below to grow by; false: to make one anew */
    exo_nccl_id id;           /* as that of rank 0 in NCCL */
    uint64_t barriers, calls; /* calls: of a member that has left */
} exo_nccl_note;

/* The calls of a set among threads, which must agree. */
typedef struct exo_nccl_digests {
    struct exo_nccl_digests *next;
    uint64_t set;
    uint64_t number[EXO_NCCL_DIGESTS]; /* 1 plus the number of the call; 0: none */
    uint64_t digest[EXO_NCCL_DIGESTS];
    uint32_t from[EXO_NCCL_DIGESTS];
} exo_nccl_digests;

typedef enum exo_nccl_phase {
    EXO_NCCL_NEW,
    EXO_NCCL_MAKING,
    EXO_NCCL_READY,
    EXO_NCCL_SUSPENDED, /* its memory is given back, or will be at once */
    EXO_NCCL_RESUMING
} exo_nccl_phase;

/* How the end of a communicator goes on. */
typedef enum exo_nccl_end {
    EXO_NCCL_IS_BUSY, /* NCCL was asked to end it, and is at work */
    EXO_NCCL_IS_QUIET,
    EXO_NCCL_IS_STUCK /* it is to be aborted */
} exo_nccl_end;

/* A member's communicator among a set. */
typedef struct exo_nccl_set {
    struct exo_nccl_set *next;
    uint64_t key;
    uint32_t size, place;
    uint32_t *ranks; /* (size); NULL: all */
    exo_nccl_phase phase;
    exo_nccl_comm comm; /* NULL: none yet. MAKING: a thread of NCCL may write it */
    bool claimed;       /* this member has taken what it can offer */
    bool decided;       /* and, as the first, has told the way */
    bool invited;       /* and, as that of rank 0 in NCCL, has told the id to grow by */
    exo_nccl_way way;   /* from MAKING on */
    uint32_t *order;    /* (size) NCCL's rank of each place; NULL: the place itself */
    uint64_t lineage;   /* names the communicator, the same for all of its members */
    /* until the communicator is made: what it is made from. MAKING: it is shrunk or grown */
    struct exo_nccl_remains *parent;
    exo_nccl_end end; /* of exo_nccl_retire */
    bool lost;        /* its abort was late: NCCL may still write `comm` */
    int gpu;          /* lost: the ordinal */
    unsigned holders; /* atomic: the member, and an abort that is under way */
    uint64_t calls, barriers;
} exo_nccl_set;

typedef enum exo_nccl_fate {
    EXO_NCCL_IS_REVOKED, /* a death has broken it, and it is quiet */
    EXO_NCCL_IS_WHOLE,   /* its members were sent into another group */
    EXO_NCCL_ENDS /* NCCL was asked to end it, which takes as long as another member needs it */
} exo_nccl_fate;

/* A communicator that a member has left. */
typedef struct exo_nccl_remains {
    struct exo_nccl_remains *next;
    char key[EXO_NCCL_NAME]; /* of the group */
    uint32_t rank;           /* of the member that had it */
    uint32_t size, *ranks;   /* (size) its members, in the order of NCCL's ranks */
    int gpu;                 /* the ordinal */
    exo_time since;          /* on the real clock */
    exo_nccl_comm comm;
    uint64_t lineage;
    exo_nccl_fate fate;
    exo_time deadline; /* ENDS: for that */
    bool resumes;      /* ENDS: first it is resumed: NCCL frees nothing that is suspended */
    bool ending;       /* a thread makes NCCL's calls for that; guarded by estate.c's lock */
} exo_nccl_remains;

/* What a request has beside its arguments. */
typedef struct exo_nccl_call {
    struct exo_nccl_call *next; /* of those that are not in use */
    exo_nccl_set *set;
    exo_cuda_mark *end;
    exo_array stage; /* host data on the GPU */
    exo_array copy;  /* what the member sends, where the data is replaced meanwhile */
    bool counted;    /* as a call on the member's GPU (quiet.h) */
} exo_nccl_call;

/* The states of a request. */
enum {
    EXO_NCCL_WAITS,   /* for its communicator, or its turn */
    EXO_NCCL_STARTED, /* NCCL has it, and has not put it on the stream yet */
    EXO_NCCL_RUNS,    /* its end is marked on the stream */
    EXO_NCCL_MEETS,   /* a barrier */
    EXO_NCCL_DONE
};

typedef struct exo_nccl_member {
    bool here, left; /* guarded by the lock, like name; left: also of members in other processes */
    char name[EXO_NCCL_NAME];
    bool retired;     /* its communicators were taken back from NCCL */
    bool runs_on;     /* and the GPU has not stopped */
    bool has_ending;  /* NCCL ends one that was grown */
    exo_time timeout; /* the longest of its requests */
    uint32_t told;    /* of how many sets it has told; guarded by the lock */
    exo_device *device;
    exo_cuda_side *side;       /* of the device; NULL: no array has come */
    exo_nccl_set *sets;        /* the lock guards the list, which its thread alone changes */
    exo_engine_request *first; /* in the order of their begins */
    exo_nccl_call *unused;
} exo_nccl_member;

typedef struct exo_nccl_group {
    char key[EXO_NCCL_NAME];
    const exo_nccl_table *nccl;
    uint32_t size;
    const exo_clock *clock;
    const exo_engine_post *post; /* NULL: all members are here */
    pthread_mutex_t lock;
    exo_err broken; /* guarded by the lock, as the next two; code OK: it is not */
    exo_nccl_note *notes;
    exo_nccl_digests *digests;
    exo_nccl_member members[];
} exo_nccl_group;

static inline uint32_t
exo_nccl_rank_at(const exo_nccl_set *set, uint32_t place)
{
    return set->ranks ? set->ranks[place] : place;
}

/* NCCL's rank of a place. */
static inline int
exo_nccl_rank_of(const exo_nccl_set *set, uint32_t place)
{
    return (int)(set->order ? set->order[place] : place);
}

/* group.c. The reason of a broken group, or OK. */
exo_status exo_nccl_broken(exo_nccl_group *group, exo_err *err);
/* Breaks the group and tells all members, unless it is broken. */
void exo_nccl_break(exo_nccl_group *group, exo_status status, const char *text);
/* Writes "node_1 (rank 1)", with the name that the member gave. */
void exo_nccl_describe(exo_nccl_group *group, uint32_t rank, char *out, size_t size);
/* Tells the other members of a set (NULL: of the group) what member `from` says. */
exo_status exo_nccl_tell(exo_nccl_group *group, uint32_t from, const exo_nccl_set *set,
                         const exo_nccl_message *message, exo_err *err);
/* What is known of a member of a set; all zero: nothing. */
exo_nccl_note exo_nccl_note_of(exo_nccl_group *group, uint64_t set, uint32_t from);
/* exo_engine_class.hear. */
exo_status exo_nccl_hear(void *group, uint32_t from, const void *data, size_t bytes, exo_err *err);
/* Compares a call with those of the other threads; INVAL: they disagree. */
exo_status exo_nccl_agree(exo_nccl_group *group, uint32_t rank, const exo_nccl_set *set,
                          const exo_collective_args *args, exo_err *err);

/* make.c. Finds or makes the record of the members of a call. Errors: NOMEM, UNSUPPORTED (another set
 * has the same key). */
exo_status exo_nccl_set_of(exo_nccl_set **out, exo_nccl_group *group, exo_nccl_member *member,
                           const exo_collective_args *args, exo_err *err);
/* Makes its communicator as far as that is possible without waiting. */
exo_status exo_nccl_set_make(exo_nccl_group *group, uint32_t rank, exo_nccl_set *set, bool *ready,
                             exo_err *err);
/* Asks NCCL for the memory of a communicator that is ready. UNSUPPORTED: NCCL refuses. */
exo_status exo_nccl_set_suspend(exo_nccl_group *group, uint32_t rank, exo_nccl_set *set,
                                exo_err *err);
/* Whether the making waits for what the member at this place has to tell. */
bool exo_nccl_set_misses(exo_nccl_group *group, const exo_nccl_set *set, uint32_t place);

/* engine.c. The member's calls have ended on its GPU. */
void exo_nccl_uncount(const exo_nccl_member *member);

/* set.c. The communicator; NULL: there is none yet. */
exo_nccl_comm exo_nccl_set_comm(const exo_nccl_set *set);
/* Gives up one hold of a set, whose last one frees it; accepts NULL. Any thread. */
void exo_nccl_set_drop(const exo_nccl_table *nccl, exo_nccl_set *set);
/* Whether NCCL is still at work on the communicator beside the stream. */
exo_status exo_nccl_set_poll(exo_nccl_group *group, exo_nccl_set *set, bool *busy, exo_err *err);
/* OK, also for a call that goes on by itself; else the status with NCCL's reason. */
exo_status exo_nccl_status(const exo_nccl_group *group, exo_nccl_comm comm, int result,
                           const char *what, exo_err *err);
/* Takes the member's communicators back from NCCL. Broken ones are ended within seconds. Of others NCCL is
 * asked for the end, for which exo_nccl_await_ends waits. */
void exo_nccl_retire(exo_nccl_group *group, uint32_t rank, bool broken);
/* Waits until NCCL has ended what members of the group's run have left in this process, at the latest
 * until seconds after the others have left, or until the timeout of these members' requests has passed. */
void exo_nccl_await_ends(exo_nccl_group *group, uint32_t rank);
/* For tests: how long NCCL may take to end what is broken. */
void exo_nccl_set_patience(exo_time patience);

/* estate.c. Takes what this member can shrink or grow to that set on its GPU. The caller buries it when the
 * set's communicator is made, or has it ended. NULL: nothing. */
exo_nccl_remains *exo_nccl_take(const exo_nccl_group *group, uint32_t rank,
                                const exo_nccl_set *set);
/* Frees it with its communicator, which no member uses again, as exo_nccl_end_comm; accepts NULL. */
void exo_nccl_bury(const exo_nccl_table *nccl, exo_nccl_remains *remains);
/* Destroys a communicator that is quiet, or aborts it. NCCL waits for the GPU there, so this is put off to the
 * end of the calls on it. */
void exo_nccl_end_comm(const exo_nccl_table *nccl, exo_nccl_comm comm, int gpu, bool aborts);
/* Asks NCCL for the end of one that was whole, for which exo_nccl_reap looks. */
void exo_nccl_finish(const exo_nccl_table *nccl, exo_nccl_remains *remains, exo_time deadline);
/* Writes the places of those who are not in the set to `places` (size of the remains). Returns their
 * number. */
int exo_nccl_excluded(const exo_nccl_remains *remains, const exo_nccl_set *set, int *places);
/* Keeps the communicator of a set. deadline: of its end. False: no memory. */
bool exo_nccl_keep(const exo_nccl_group *group, uint32_t rank, const exo_nccl_set *set,
                   exo_nccl_fate fate, exo_time deadline);
/* Gives back what NCCL has ended among the communicators that members of the key's run have left, and
 * what it has not ended in time. Returns whether others are left. latest: the last deadline. */
bool exo_nccl_reap(const exo_nccl_table *nccl, const char *key, exo_time latest);
/* Counts the members of a run that are in this process. enter: false: no memory. leave: returns whether
 * it was the last one. */
bool exo_nccl_enter(const char *key);
bool exo_nccl_exit(const char *key);
/* Ends what is kept of a member of the group's run, and for any run what no group has taken in time. */
void exo_nccl_forget(const exo_nccl_group *group, uint32_t rank);
/* Only the latter. */
void exo_nccl_forget_old(const exo_nccl_table *nccl);
/* For tests: how long something is kept. */
void exo_nccl_set_keeping(exo_time keeping);

/* abort.c. Aborts a communicator on a thread of its own. *aborts: those that are awaited together; NULL at
 * first. shrinks: the set that the communicator was being shrunk to, which stays as long as the abort goes on;
 * or NULL. */
typedef struct exo_nccl_aborts exo_nccl_aborts;
void exo_nccl_abort(exo_nccl_aborts **aborts, const exo_nccl_table *nccl, exo_nccl_comm comm,
                    exo_nccl_set *shrinks);
/* Waits for them and sets *aborts to NULL; accepts NULL in it. False: some go on beyond the deadline. */
bool exo_nccl_await_aborts(exo_nccl_aborts **aborts, exo_time deadline);

/* move.c. Gives a call to NCCL. */
exo_status exo_nccl_move(exo_nccl_group *group, exo_nccl_member *member,
                         const exo_engine_request *request, exo_err *err);

#endif
