/* Engines move the data of collectives.
 *
 * An engine is a table of functions. comm.h checks arguments, counts bytes and keeps requests; the
 * engine does the rest. The library has the engines `local`, among the threads of a process, and
 * `net`, among actors in processes and on hosts. A plugin registers its own engine with
 * exo_engine_register, and a job selects it: `engine: shm`. examples/22_shm_engine is an engine in
 * less than 100 lines.
 *
 * A group of an engine is the part of a communicator that a process holds. It has places for `size`
 * members, and the members of this process join it. A member begins requests, and ends each one by
 * wait, by a test that says done, or by cancel. An engine that moves data only when it is called,
 * and cannot wake a waiting member, has `advance` in place of begin, test, wait and cancel.
 *
 * Match: the k-th request that a member begins among a set of members meets the k-th request of
 * each other member among the same set. So all members begin the same operations in the same order;
 * they may wait for them in any order.
 *
 * Errors: the first failure of a group is a death, a deadline, a cancelled request, or members that
 * disagree. It ends all later requests and all requests whose data is not complete, with the same
 * status and reason, on all members that the failure reaches. No function waits beyond the deadline
 * of a request, except while data is being moved.
 *
 * Threads: a member is one thread at a time in begin, test, wait, cancel and leave; several members
 * of one process may call at once. Any thread may call fail at any time between open and close.
 */
#ifndef EXOGYM_ENGINE_H
#define EXOGYM_ENGINE_H

#include <exogym/codec.h>
#include <exogym/comm.h>

EXO_DECLS_BEGIN

/* The operations; comm.h defines their results. */
typedef enum exo_collective {
    EXO_ALL_REDUCE,
    EXO_REDUCE_SCATTER,
    EXO_ALL_GATHER,
    EXO_BROADCAST,
    EXO_BARRIER,
    EXO_ALL_TO_ALL,
    EXO_SWAP,  /* of two members */
    EXO_SHIFT, /* `root` is the distance */
} exo_collective;

/* The name, such as "all_reduce": a literal. */
EXO_API const char *exo_collective_name(exo_collective operation);

/* One member's part in one operation. All fields are equal on all members, except `data`, `device`,
 * `codec`, `place` and `waits`; begin checks this where it can (INVAL). The engine owns none of it:
 * `data` and `ranks` stay as they are until the request has ended. */
typedef struct exo_collective_args {
    exo_collective operation;
    void *data;      /* (count), in place; no other request has it */
    size_t count;    /* elements */
    exo_dtype dtype; /* type of the elements */
    /* The device of `data`; NULL: host memory. Devices that the host cannot reach only with
     * EXO_ENGINE_DEVICES. */
    exo_device *device;
    exo_reduce reduce;    /* for reductions */
    uint32_t root;        /* the root's place; of a shift the distance, below `size` */
    uint32_t size, place; /* members that take part; the place of this one among them */
    /* (size) the ranks of these members, ascending; NULL: all members, each at the place of its
     * rank */
    const uint32_t *ranks;
    /* This member's codec, which encodes parts and results on their way (docs/collectives.md).
     * NULL: none. Only with EXO_ENGINE_CODECS. */
    exo_codec *codec;
    bool rehearsal; /* no data: only time passes. Only with EXO_ENGINE_LINKS */
    bool waits;     /* the next call is the wait for this request */
    uint32_t way;   /* for the library's engines: which messages the call consists of; 0: direct */
    const struct exo_comm_ways *ways; /* likewise, what `way` follows; NULL: nothing */
} exo_collective_args;

/* A request. It is the caller's memory, which stays in place from begin until the request has
 * ended. */
typedef struct exo_engine_request {
    exo_collective_args args; /* set by the caller */
    exo_time deadline;        /* set by the caller, on the group's clock */
    exo_time waited;          /* time that the member has waited; set by the library */
    /* The fields below are for the engine, from begin on; zero before. */
    struct exo_engine_request *next; /* for a list of requests */
    void *own;                       /* for a record of the engine's own */
    uint64_t number;                 /* for any use */
    exo_time since;                  /* for any use */
    int state;                       /* for any use */
} exo_engine_request;

/* The promises of an engine:
 *   ORDERED    sums in rank order, rounded as comm.h says: the same bits as every other such engine
 *   DEVICES    `data` may be on a device that the host cannot reach; without this promise the
 *              library copies such data to the host and back
 *   STREAM     wait returns when the remaining work on a device is queued there in order
 *   PROGRESS   requests advance between begin and wait; without it they may need the members' calls
 *   SOME       a subset of the members may call together (exo_group_among)
 *   CODECS     parts and results pass through the edge's codec
 *   PROCESSES  members may be in several processes of one host
 *   HOSTS      members may be on several hosts
 *   LINKS      emulated links and the virtual clock
 *   BLOCKS     all_to_all and swap
 *   SHIFT      shift
 *   POST       it has `hear`, and among processes it needs small messages (exo_engine_post)
 *   SUSPEND    it has `suspend`: it holds memory of devices, which it can give back meanwhile
 *   STAGES     it has `stage`: data in host memory passes a device of the member */
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
    EXO_ENGINE_BLOCKS = 1 << 9,
    EXO_ENGINE_POST = 1 << 10,
    EXO_ENGINE_SUSPEND = 1 << 11,
    EXO_ENGINE_STAGES = 1 << 12,
    EXO_ENGINE_SHIFT = 1 << 13,
};

/* Small messages among the members of a group, for an engine whose own transport cannot carry
 * something, such as its address. The library sends them as it sends those of `net`, and watches the
 * members: it calls `fail` when one dies. */
typedef struct exo_engine_post {
    void *context; /* the first argument of send */
    uint32_t rank; /* the member that is in this process; it has a group of its own */
    /* Sends bytes to member `to`, which hears them after those that were sent before. Call it without
     * locks, after the group's first begin. Any thread. Errors: NOMEM, PEER_LOST. */
    exo_status (*send)(void *context, uint32_t to, const void *data, size_t bytes, exo_err *err);
    /* The run is elastic: after a death the living open another group with the same key. */
    bool goes_on;
    /* Set before a member of such a run leaves: its members change, and those that stay open another
     * group with the same key. */
    bool moves_on;
} exo_engine_post;

/* Options of a group. */
typedef struct exo_engine_opts {
    uint32_t size;          /* members, from 1 */
    const exo_clock *clock; /* the clock of deadlines; outlives the group */
    /* Names the group in all of its processes: equal for all members of the group, and different
     * from the key of every other living group. Letters, digits, '-', '_' and '.', at most 63.
     * Lives as long as the call. */
    const char *key;
    /* Only for an engine with EXO_ENGINE_POST. NULL: all members are in this process, in one group.
     * Lives as long as the group. exo_comm_open takes no post: the library has it. */
    const exo_engine_post *post;
} exo_engine_opts;

/* An engine: read-only, and valid as long as the process. `group` is the pointer that open
 * returned. */
typedef struct exo_engine_class {
    const char *name;  /* the name for a job's `engine` */
    const char *help;  /* one line */
    unsigned promises; /* EXO_ENGINE_... */
    /* Types that it reduces, as bits 1 << EXO_F32 and so on. Other operations take any type. */
    unsigned dtypes;
    /* Makes this process's part of a group, without waiting for other processes. Errors: INVAL,
     * NOMEM, UNSUPPORTED, IO. NULL: only the library makes groups of this engine. */
    exo_status (*open)(void **group, const exo_engine_opts *opts, exo_err *err);
    /* Frees the group, after all of its members have left. */
    void (*close)(void *group);
    /* Takes the place of a member. `name` lives as long as the call, may be NULL, and stands in
     * error texts. EXISTS: the place is taken, or its member has left. May be NULL: nothing to
     * do. */
    exo_status (*join)(void *group, uint32_t rank, const char *name, exo_err *err);
    /* Gives up the place of a member that has no request under way. Members that still wait for
     * this one get PEER_LOST. NULL: the library calls `fail`. */
    void (*leave)(void *group, uint32_t rank);
    /* Member `rank`, of any process, died of `cause`: all requests end with PEER_LOST. Any
     * thread. */
    void (*fail)(void *group, uint32_t rank, const char *cause);
    /* Begins a request of a member, without waiting for other members. After an error there is no
     * request. */
    exo_status (*begin)(void *group, uint32_t rank, exo_engine_request *request, exo_err *err);
    /* Says without waiting whether the request has ended. If it has, or after an error, the request
     * belongs to the caller again. */
    exo_status (*test)(void *group, uint32_t rank, exo_engine_request *request, bool *done,
                       exo_err *err);
    /* Waits until the request has ended, up to its deadline (TIMEOUT; the text names the members
     * that are missing). The request then belongs to the caller again. */
    exo_status (*wait)(void *group, uint32_t rank, exo_engine_request *request, exo_err *err);
    /* Ends the request; if its data is not complete, the group breaks with CANCELLED. The request
     * and its data then belong to the caller again. */
    void (*cancel)(void *group, uint32_t rank, exo_engine_request *request);
    /* In place of begin, test, wait and cancel: advances the oldest request of a member as far as
     * possible without waiting, and says whether it is done. The library queues the requests of a
     * member, and calls this for the first one, repeatedly and with short sleeps while somebody
     * waits. A request that is cancelled, or not done at its deadline, ends by `fail` of its own
     * member. An error ends all requests of the member, which are not advanced again. */
    exo_status (*advance)(void *group, uint32_t rank, exo_engine_request *request, bool *done,
                          exo_err *err);
    /* Only with EXO_ENGINE_POST: takes a message of member `from`, which lives as long as the call.
     * Does not block. Any thread. INVAL: it is no message of this engine. */
    exo_status (*hear)(void *group, uint32_t from, const void *data, size_t bytes, exo_err *err);
    /* Only with EXO_ENGINE_SUSPEND: gives back the memory that it holds for calls of a member among the
     * members of `among` (size, place, ranks), until the next of them. Waits for these members, which all
     * call it, up to the deadline. Errors: those of begin and wait; UNSUPPORTED: it cannot, and the
     * group goes on. */
    exo_status (*suspend)(void *group, uint32_t rank, const exo_collective_args *among,
                          exo_time deadline, exo_err *err);
    /* Only with EXO_ENGINE_SUSPEND: whether `suspend` can do so in this process, for runs that rely on it.
     * UNSUPPORTED: it cannot; the text says what is missing. NULL: it can. Any thread. */
    exo_status (*can_suspend)(exo_err *err);
    /* Only with EXO_ENGINE_STAGES: names the device of a member's arrays before its first call, so that
     * this call can have data in host memory. UNSUPPORTED: the engine does not reach that device, or the
     * member has another one. */
    exo_status (*stage)(void *group, uint32_t rank, exo_device *device, exo_err *err);
} exo_engine_class;

/* The types that exo_collective_take reduces, for `dtypes`. */
#define EXO_ENGINE_ALL_DTYPES                                                                      \
    (1u << EXO_F32 | 1u << EXO_BF16 | 1u << EXO_F16 | 1u << EXO_I32 | 1u << EXO_I8 | 1u << EXO_I64)

/* For engines: the place to which the member at `place` of a shift sends its data, and the one whose
 * data it gets. */
static inline uint32_t
exo_shift_target(const exo_collective_args *args, uint32_t place)
{
    return (place + args->root) % args->size;
}

static inline uint32_t
exo_shift_source(const exo_collective_args *args, uint32_t place)
{
    return (place + args->size - args->root) % args->size;
}

/* For engines: computes the elements [at, at + count) of the result of an operation and writes them
 * to args->data, with the bits of every ordered engine. parts[place] points to these elements as
 * the member at that place contributed them, or of an all_to_all to the elements of that
 * member that come here; elements that the operation does not need may have any
 * value. The parts overlap neither args->data nor each other. Ignores the codec. Any thread. */
EXO_API void exo_collective_take(const exo_collective_args *args, size_t at, size_t count,
                                 void *const *parts);

/* Registers an engine under its name, which must be new. The engine must live as long as the
 * process. Any thread. Errors: EXISTS, INVAL (no name, or a required function is missing), FULL
 * (1024 engines). */
EXO_API exo_status exo_engine_register(const exo_engine_class *engine, exo_err *err);
/* The engine of an index in the order of names; NULL after the last. Any thread. */
EXO_API const exo_engine_class *exo_engine_at(size_t index);
/* Finds the engine of a name. Any thread. NOT_FOUND: the text has the nearest name, or all
 * names. */
EXO_API exo_status exo_engine_find(const exo_engine_class **out, const char *name, exo_err *err);

/* Makes a communicator on an engine that has `open`. Blocks as long as `open` does. Errors:
 * UNSUPPORTED (the engine has no `open`), INVAL, those of the engine. */
EXO_API exo_status exo_comm_open(exo_comm **out, const exo_engine_class *engine,
                                 const exo_engine_opts *opts, exo_err *err);

EXO_DECLS_END

#endif
