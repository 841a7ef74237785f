/* Engines: what moves the data of collectives.
 *
 * An engine is a table of functions. comm.h checks arguments, counts bytes and keeps requests; the
 * engine does the rest. The library brings `local`, among the threads of a process, and `net`,
 * among actors in processes and on hosts. A plugin registers one of its own with
 * exo_engine_register, and a job names it: `engine: shm`. examples/22_shm_engine has one in less
 * than 100 lines.
 *
 * A group of an engine is what a process knows of a communicator: it has places for `size` members,
 * those of this process join it. A member begins requests, and ends each by wait, by a test that
 * says done, or by cancel. An engine that only moves data when it is called, and has nothing to
 * wake a member with, brings `advance` in place of these four.
 *
 * Match: the k-th request that a member begins among a set of members meets the k-th of each other
 * one among the same set. So all begin the same operations in the same order; they may wait for
 * them in any.
 *
 * Errors: the first failure of a group (a death, a deadline, a cancelled request, members that
 * disagree) ends all requests whose data is not complete, and all later ones, with the same status
 * and reason, on all members that hear of it. No function waits beyond the deadline of a request,
 * but for data that the machine is just moving.
 *
 * Threads: a member is one thread at a time, in begin, test, wait, cancel and leave; members in one
 * process are several at once. fail may come from any thread at any time between open and close.
 */
#ifndef EXOGYM_ENGINE_H
#define EXOGYM_ENGINE_H

#include <exogym/codec.h>
#include <exogym/comm.h>

EXO_DECLS_BEGIN

/* The operations: comm.h says what each does to the data. */
typedef enum exo_collective {
    EXO_ALL_REDUCE,
    EXO_REDUCE_SCATTER,
    EXO_ALL_GATHER,
    EXO_BROADCAST,
    EXO_BARRIER,
} exo_collective;

/* "all_reduce": a literal. */
EXO_API const char *exo_collective_name(exo_collective operation);

/* One member's part in one operation. All but `data`, `device`, `codec`, `place` and `waits` is
 * equal on all members; begin finds out where it can (INVAL). Nothing of it is the engine's: `data`
 * and `ranks` stay as they are until the request has ended. */
typedef struct exo_collective_args {
    exo_collective operation;
    void *data;      /* (count), in place; of no other request */
    size_t count;    /* elements */
    exo_dtype dtype; /* of each */
    /* where data is; NULL: the host's memory. Others only with EXO_ENGINE_DEVICES */
    exo_device *device;
    exo_reduce reduce;    /* of a reduction */
    uint32_t root;        /* a place, as below */
    uint32_t size, place; /* how many members take part, and which of them this is */
    /* (size) theirs, ascending; NULL: all, whose places are their ranks */
    const uint32_t *ranks;
    /* What parts and results pass through on their way (docs/collectives.md); this member's. NULL:
     * none. Only with EXO_ENGINE_CODECS. */
    exo_codec *codec;
    bool rehearsal; /* there is no data: only the time is taken. Only with EXO_ENGINE_LINKS */
    bool waits;     /* the next call is the wait for this request */
} exo_collective_args;

/* A request: the caller's memory, which stays where it is from begin until the request has
 * ended. */
typedef struct exo_engine_request {
    exo_collective_args args; /* set by the caller */
    exo_time deadline;        /* likewise: on the group's clock */
    exo_time waited;          /* the library's: what the member has waited */
    /* The engine's, from begin on; zero before. */
    struct exo_engine_request *next; /* for a list */
    void *own;                       /* for a record of its own */
    uint64_t number;                 /* for whatever it likes, as what follows */
    exo_time since;                  /* likewise */
    int state;                       /* likewise */
} exo_engine_request;

/* What an engine promises:
 *   ORDERED    sums in the order of ranks, rounded as comm.h says: the bits of every other such engine
 *   DEVICES    `data` may be on a device that the host cannot reach; without it such data is copied to the host and back
 *   STREAM     of data on a device, wait returns when the rest is in the device's order of work
 *   PROGRESS   requests go on between begin and wait; without it they may wait for the members' calls
 *   SOME       some members may call together (exo_group_among)
 *   CODECS     parts and results pass through the edge's codec
 *   PROCESSES  members may be in several processes of one host
 *   HOSTS      members may be on several hosts
 *   LINKS      emulated links and the virtual clock */
enum {
    EXO_ENGINE_ORDERED = 1 << 0,
    EXO_ENGINE_DEVICES = 1 << 1,
    EXO_ENGINE_STREAM = 1 << 2,
    EXO_ENGINE_PROGRESS = 1 << 3,
    EXO_ENGINE_SOME = 1 << 4,
    EXO_ENGINE_CODECS = 1 << 5,
    EXO_ENGINE_PROCESSES = 1 << 6,
    EXO_ENGINE_HOSTS = 1 << 7,
    EXO_ENGINE_LINKS = 1 << 8,
};

/* A group that is opened. */
typedef struct exo_engine_opts {
    uint32_t size;          /* members, from 1 */
    const exo_clock *clock; /* of deadlines; outlives the group */
    /* Names the group to the engine in other processes: the same for all members of the group, and
     * for no other group that lives; letters, digits, '-', '_' and '.', at most 63. Lives as long
     * as the call. */
    const char *key;
} exo_engine_opts;

/* An engine: read-only, and alive as long as the process. `group` is what open gave. */
typedef struct exo_engine_class {
    const char *name;  /* what a job names under `engine` */
    const char *help;  /* one line */
    unsigned promises; /* EXO_ENGINE_... */
    /* 1 << EXO_F32 and so on: what can be reduced. Other operations take any type */
    unsigned dtypes;
    /* Makes this process's part of a group; it waits for nobody. Errors: INVAL, NOMEM, UNSUPPORTED,
     * IO. NULL: the engine's groups are made inside the library only. */
    exo_status (*open)(void **group, const exo_engine_opts *opts, exo_err *err);
    /* Frees it, when all of its members have left. */
    void (*close)(void *group);
    /* Takes the place of a member; `name` (of the call's length, may be NULL) is how errors call
     * it. EXISTS: it is taken or was left. May be NULL: there is nothing to do. */
    exo_status (*join)(void *group, uint32_t rank, const char *name, exo_err *err);
    /* Leaves it, when none of its requests is under way: who waits for this member hears PEER_LOST.
     * NULL: by `fail`. */
    void (*leave)(void *group, uint32_t rank);
    /* Member `rank` (of any process) died of `cause`: all ends with PEER_LOST. Any thread. */
    void (*fail)(void *group, uint32_t rank, const char *cause);
    /* Begins a request of a member, without waiting for others. After an error there is no
     * request. */
    exo_status (*begin)(void *group, uint32_t rank, exo_engine_request *request, exo_err *err);
    /* Says without waiting whether the request has ended; if so, or with an error, it is the
     * caller's again. */
    exo_status (*test)(void *group, uint32_t rank, exo_engine_request *request, bool *done,
                       exo_err *err);
    /* Waits until it has ended, to its deadline at most (TIMEOUT, with the name of who is missing);
     * then it is the caller's again. */
    exo_status (*wait)(void *group, uint32_t rank, exo_engine_request *request, exo_err *err);
    /* Ends it: if its data is not complete, the group breaks with CANCELLED. Then it and its data
     * are the caller's again. */
    void (*cancel)(void *group, uint32_t rank, exo_engine_request *request);
    /* In place of the last four: goes on with the oldest request of a member as far as it can
     * without waiting, and says whether it is over. The library keeps the requests of a member in
     * their order and calls this for the first of them, again and again while somebody waits, with
     * short sleeps. A request that is cancelled, or not over at its deadline, ends by `fail` of its
     * own member. An error ends all requests of the member, which are not gone on with. */
    exo_status (*advance)(void *group, uint32_t rank, exo_engine_request *request, bool *done,
                          exo_err *err);
} exo_engine_class;

/* What exo_collective_take reduces, for `dtypes`. */
#define EXO_ENGINE_ALL_DTYPES                                                                      \
    (1u << EXO_F32 | 1u << EXO_BF16 | 1u << EXO_F16 | 1u << EXO_I32 | 1u << EXO_I8 | 1u << EXO_I64)

/* For engines: elements [at, at + count) of the result of an operation, written to args->data, as
 * every ordered engine has them to the bit. parts[place] are these elements as the member at that
 * place brought them, of which those that the operation does not need may be anything; they overlap
 * neither args->data nor each other. No codec. Any thread. */
EXO_API void exo_collective_take(const exo_collective_args *args, size_t at, size_t count,
                                 void *const *parts);

/* Registers an engine under its name, which must be new; it must live as long as the process. Any
 * thread. Errors: EXISTS, INVAL (no name, or a function that it must have is missing), FULL (1024
 * of them). */
EXO_API exo_status exo_engine_register(const exo_engine_class *engine, exo_err *err);
/* The i-th engine in the order of names, or NULL after the last. Any thread. */
EXO_API const exo_engine_class *exo_engine_at(size_t index);
/* The engine of that name. Any thread. Errors: NOT_FOUND names the nearest one, or all. */
EXO_API exo_status exo_engine_find(const exo_engine_class **out, const char *name, exo_err *err);

/* A communicator on an engine that has `open`. Blocks: as that does. Errors: UNSUPPORTED (the
 * engine has no `open`), INVAL, or the engine's. */
EXO_API exo_status exo_comm_open(exo_comm **out, const exo_engine_class *engine,
                                 const exo_engine_opts *opts, exo_err *err);

EXO_DECLS_END

#endif
