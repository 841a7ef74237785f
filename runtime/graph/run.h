/* Runs a graph: makes its actors, connects them, lets them run, and gathers what they report. */
#ifndef EXO_GRAPH_RUN_H
#define EXO_GRAPH_RUN_H

#include <exogym/actor.h>
#include <exogym/meter.h>

#include "graph/spec.h"
#include "graph/stall.h"
#include "report/ledger.h"

/* How a running graph goes; pointers are valid during the call. */
typedef struct exo_graph_progress {
    exo_time time;              /* on the run's clock */
    const exo_meters *meters;   /* each actor's under its name; NULL: none */
    const exo_ledger *ledger;   /* so far */
    const exo_slow_wait *waits; /* of a second and more, the longest first; on the real clock */
    size_t num_waits;
} exo_graph_progress;

enum {
    EXO_GRAPH_PHASES = 24,
    EXO_GRAPH_WAITS = 8 /* that progress tells of */
};

/* Where the time of one actor went. */
typedef struct exo_graph_part {
    char actor[96];
    const char *host;
    exo_time time; /* when it ended */
    exo_time compute, send_blocked, recv_blocked;
    struct {
        /* compute, send_blocked, recv_blocked: then the name is the edge's */
        char name[64], kind[16];
        exo_time time;
        uint64_t count;
    } phases[EXO_GRAPH_PHASES];
    size_t num_phases;
} exo_graph_part;

/* What an emulated host sent and received. */
typedef struct exo_graph_host {
    const char *name;
    uint64_t up_bytes, down_bytes;
    exo_time up_busy, down_busy;
} exo_graph_host;

/* How a run ended. */
typedef enum exo_graph_end {
    EXO_GRAPH_NEVER_BEGAN, /* an error came before its actors ran */
    EXO_GRAPH_FINISHED,    /* all actors have ended */
    EXO_GRAPH_UNTIL,       /* at the time that the graph gives itself */
    EXO_GRAPH_STOPPED,     /* it was told to */
    EXO_GRAPH_FAILED,
} exo_graph_end;

typedef struct exo_graph_result {
    exo_graph_end end;
    exo_time time;         /* on the run's clock: on the virtual one, the prediction */
    double seconds;        /* that it took here */
    exo_meters *meters;    /* each actor's under its name; NULL: none */
    exo_graph_part *parts; /* one for each actor that ended and could say so */
    size_t num_parts;
    exo_graph_host *hosts; /* of an emulated network, where all actors are in this process */
    size_t num_hosts;
    exo_ledger ledger;
} exo_graph_result;

typedef struct exo_graph_run_opts {
    /* joined to a cluster, on whose workers the actors go; NULL: all in this process */
    exo_runtime *runtime;
    const char *text;     /* of the graph, for workers: with paths that are good there */
    const char *space;    /* namespace of the actors: one that no other run has */
    const char *folder;   /* for the actors' files; NULL: none */
    const char *timeline; /* path; NULL: none. Where all actors are in this process */
    uint64_t tie_seed;    /* of the virtual clock; 0: ties go by order */
    exo_time interval;    /* of progress; 0: 1 s */
    /* so long the end of actors that were told to end is waited for; 0: 30 s */
    exo_time grace;
    /* on the caller's thread; may be NULL */
    void (*progress)(void *context, const exo_graph_progress *progress);
    /* Asked now and then: a graph to go over to (checked by exo_graph_check_change against `now`;
     * it lives until the run is over; text: the same for workers), or false. What came of it is
     * told to `changed`, with when it was on the run's clock. Both may be NULL. */
    bool (*next)(void *context, const exo_graph_spec *now, const exo_graph_spec **graph,
                 const char **text);
    void (*changed)(void *context, exo_time at, exo_status status, const char *reason);
    /* The graph stalls, and the run ends with it; `at` on its clock. May be NULL. */
    void (*stalled)(void *context, const exo_stall *stall, exo_time at);
    /* Writes why the actor of that name is dead, "" if that is not known; may be NULL. */
    void (*explain)(void *context, const char *space, const char *name, char *out, size_t size);
    void *context, *explain_context; /* of progress, of explain */
    /* set to non-zero from anywhere: ends with CANCELLED; may be NULL */
    const _Atomic int *stop;
} exo_graph_run_opts;

/* Blocks until the graph has ended. Errors: the first actor's own, with its name; PEER_LOST who
 * died and why; CANCELLED after `stop`. Actors that do not end though they were told to are named
 * after it; TIMEOUT if there is no other error. The caller releases the result. However the run
 * ended, also after an error, it holds what the actors had done until then: meters, ledger, and
 * where their time went; of an actor that died what it said last, at most `interval` before.
 * FAILED: the graph stalls, with the cycle of waits (stall.h). */
exo_status exo_graph_run(const exo_graph_spec *spec, const exo_graph_run_opts *opts,
                         exo_graph_result *result, exo_err *err);
void exo_graph_result_release(exo_graph_result *result);

#endif
