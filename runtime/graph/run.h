/* Runs a graph: makes its actors, connects them, starts them, and gathers their reports. Read next:
 * run.c, host.h. */
#ifndef EXO_GRAPH_RUN_H
#define EXO_GRAPH_RUN_H

#include <exogym/actor.h>
#include <exogym/meter.h>

#include "graph/spec.h"
#include "graph/stall.h"
#include "report/ledger.h"

/* The progress of a running graph; its pointers are valid during the call. */
typedef struct exo_graph_progress {
    exo_time time;            /* on the run's clock */
    const exo_meters *meters; /* each actor's under its name; NULL: none */
    const exo_ledger *ledger; /* traffic so far */
    /* waits of at least a second, the longest first; on the real clock only */
    const exo_slow_wait *waits;
    size_t num_waits;
} exo_graph_progress;

enum {
    EXO_GRAPH_PHASES = 24,
    EXO_GRAPH_WAITS = 8 /* the most waits in a progress */
};

/* The use of one actor's time. */
typedef struct exo_graph_part {
    char actor[96];
    const char *host;
    exo_time time; /* when the actor ended */
    exo_time compute, send_blocked, recv_blocked;
    struct {
        /* kind: compute, send_blocked or recv_blocked; the name of the last two is the edge's */
        char name[64], kind[16];
        exo_time time;
        uint64_t count;
    } phases[EXO_GRAPH_PHASES];
    size_t num_phases;
} exo_graph_part;

/* The traffic of an emulated host. */
typedef struct exo_graph_host {
    const char *name;
    uint64_t up_bytes, down_bytes;
    exo_time up_busy, down_busy;
} exo_graph_host;

/* How a run ended. */
typedef enum exo_graph_end {
    EXO_GRAPH_NEVER_BEGAN, /* an error came before the actors ran */
    EXO_GRAPH_FINISHED,    /* all actors have ended */
    EXO_GRAPH_UNTIL,       /* the graph's `until` was reached */
    EXO_GRAPH_STOPPED,     /* `stop` was set */
    EXO_GRAPH_FAILED,
} exo_graph_end;

typedef struct exo_graph_result {
    exo_graph_end end;
    exo_time time;         /* on the run's clock; on the virtual clock, the predicted time */
    double seconds;        /* real time that the run took */
    exo_meters *meters;    /* each actor's under its name; NULL: none */
    exo_graph_part *parts; /* an entry for each actor that ended and reported */
    size_t num_parts;
    exo_graph_host *hosts; /* the emulated network; only if all actors were in this process */
    size_t num_hosts;
    exo_ledger ledger;
} exo_graph_result;

typedef struct exo_graph_run_opts {
    /* a runtime in a cluster, whose workers get the actors; NULL: all actors in this process */
    exo_runtime *runtime;
    const char *text;     /* the graph's text for workers, with paths that are valid there */
    const char *space;    /* namespace of the actors, unique to this run */
    const char *folder;   /* for the actors' files; NULL: none */
    const char *timeline; /* path; NULL: none. Requires all actors in this process */
    /* virtual clock: selects an order of simultaneous events; 0: the order of the actors */
    uint64_t tie_seed;
    bool resume; /* actors may continue from their files of an earlier run (exo_graph_resumes) */
    uint64_t number;   /* exo_graph_run_number */
    exo_time interval; /* between calls of `progress`; 0: 1 s */
    /* limit of the wait for actors that were told to end; 0: 30 s */
    exo_time grace;
    /* called on the caller's thread; may be NULL */
    void (*progress)(void *context, const exo_graph_progress *progress);
    /* Called several times a second. Returns true with a graph to change to: *graph passed
     * exo_graph_check_change against `now` and lives until the run is over; *text is the same graph
     * for workers. `changed` receives the outcome, and its time on the run's clock. Both may be
     * NULL. */
    bool (*next)(void *context, const exo_graph_spec *now, const exo_graph_spec **graph,
                 const char **text);
    void (*changed)(void *context, exo_time at, exo_status status, const char *reason);
    /* Called when the graph has stalled, which ends the run; `at` is on the run's clock. May be
     * NULL. */
    void (*stalled)(void *context, const exo_stall *stall, exo_time at);
    /* Called when an actor of a worker has failed for the reason `why`, and gets the life of that
     * number. May be NULL. */
    void (*failed)(void *context, const char *why, uint32_t life);
    /* Writes why the actor of that name died, "" if the cause is not known; may be NULL. */
    void (*explain)(void *context, const char *space, const char *name, char *out, size_t size);
    /* Writes which worker has the actor of that name, "" if that is not known; may be NULL. */
    void (*where)(void *context, const char *space, const char *name, char *out, size_t size);
    /* Asks for the end of the actor of that name, wherever it is: exo_cluster_end_actor. May be
     * NULL. */
    exo_status (*end)(void *context, const char *space, const char *name, const char *cause,
                      bool is_lost, exo_time deadline, exo_future **out, exo_err *err);
    /* Says why no worker will ever take an actor any more; NULL: one may. May be NULL. */
    const char *(*forlorn)(const void *workers);
    /* `context`: first argument of the calls above; `explain_context`: of `explain`,
     * `where` and `end` */
    void *context, *explain_context;
    const void *workers; /* the argument of `forlorn` */
    /* a non-zero value, set by any thread, ends the run with CANCELLED; may be NULL */
    const _Atomic int *stop;
} exo_graph_run_opts;

/* Runs the graph; blocks until it has ended. Errors: the first actor's own, with its name;
 * PEER_LOST with the actor that died, and the cause; CANCELLED after `stop`; FAILED if the graph
 * stalls, with the cycle of waits (stall.h). Actors that were told to end and have not are named
 * after that error, the first one with its worker; without another error, or after `stop` alone, the
 * status is TIMEOUT. The caller releases the result. The result is valid after an error, too: meters,
 * ledger and use of time up to the end. Of an actor that died it has the last report, at most
 * `interval` old. */
exo_status exo_graph_run(const exo_graph_spec *spec, const exo_graph_run_opts *opts,
                         exo_graph_result *result, exo_err *err);
void exo_graph_result_release(exo_graph_result *result);

#endif
