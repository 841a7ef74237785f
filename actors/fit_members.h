/* The ranks of a run, and which of their nodes are present in an elastic run: see docs/elastic.md.
 *
 * The ranks of a run are fixed. A rank is a member if the cast has its actor. The life of a rank:
 *
 *               it died                    the recruiter has made a node
 *     (member) ----------> (absent) ---------------------------------------> (ready)
 *        ^ |                  ^                                                 |
 *        | | it is silent     | it died                                         |
 *        | +------------> (asleep) -------------------------------------------> |
 *        |                            it has answered                           |
 *        +----------------------------------------------------------------------+
 *          join: it has the state of a member; then all begin a new epoch
 *
 * Owner: the trainer's thread. Read next: fit_elastic.h, whose functions change the members. */
#ifndef EXO_FIT_MEMBERS_H
#define EXO_FIT_MEMBERS_H

#include "actors/fit_impl.h"

/* A rank of the run. */
struct exo_fit_seat {
    /* At its latest join: the step, and the batches of its data that were trained on before. */
    uint64_t step, position;
    uint64_t bytes;      /* sent by the strategy for this rank */
    uint64_t at;         /* steps that the node had done, as it last said */
    uint64_t until;      /* of nodes that are apart: to which the node was told to train */
    uint64_t lives;      /* how often nodes have joined here */
    bool lost;           /* it has just been left out: `position` is not known yet */
    exo_ref ready;       /* a node that can join; id 0: none */
    exo_ref sleeper;     /* the node that was left out for its silence */
    exo_future *asleep;  /* its request, which it has not answered; NULL: none */
    exo_future *recruit; /* request to the recruiter; NULL: none */
    /* request to the node that is `ready`, which takes a state over while the others train; NULL:
     * none */
    exo_future *joining;
    exo_time again;   /* no request to the recruiter before that time */
    bool refused;     /* the reason why no node can be made in its place was logged */
    unsigned put_off; /* how often such requests were put off since a node has joined */
};

struct exo_fit_elastic {
    uint64_t epoch;
    uint32_t home; /* the rank that has the server of the strategy's communicator */
    uint64_t deaths, joins;
    exo_time paused;      /* time in which the members did not train, for a change of the members */
    uint64_t state_bytes; /* that the last node to join has got */
    exo_ref recruiter;
    char last[EXO_ERR_TEXT];     /* the node that left last, and why */
    struct exo_fit_seat seats[]; /* (num_nodes) */
};

/* `grace` or `silence` of the options, of which 0 stands for the default. */
exo_time exo_fit_wait_or_default(exo_time given);

/* The batches of the node's data that were trained on, from the checkpoint; UINT64_MAX: as many as
 * steps. */
uint64_t exo_fit_first_position(const struct run *run, uint32_t rank);
/* The batches of a node's data that were trained on; at `step`, which it has done. */
uint64_t exo_fit_position(const struct run *run, uint32_t rank);
uint64_t exo_fit_position_at(const struct run *run, uint32_t rank, uint64_t step);
/* The rank that has the server of the strategy's communicator. */
uint32_t exo_fit_home(const struct run *run);
/* The samples on which the run's present state was trained. */
uint64_t exo_fit_samples(const struct run *run);
/* Notes the bytes that the strategy has sent for a rank; returns those of all ranks. */
uint64_t exo_fit_note_bytes(struct run *run, uint32_t rank, uint64_t bytes);
/* Whether nodes are absent that may come back. */
bool exo_fit_awaits_nodes(const struct run *run);
/* The number of the members' epoch. */
uint64_t exo_fit_epoch(const struct run *run);
/* Sets the meters of an elastic run. */
void exo_fit_elastic_count(const struct run *run, exo_meter *const meters[EXO_FIT_MEMBER_METERS]);

/* Logs, and writes to members.csv, that a node has left or joined. */
void exo_fit_tell(struct run *run, const char *event, uint32_t rank, const char *why);
/* Leaves a rank out. A node that is only silent keeps its request, whose answer shows that it is
 * awake. */
void exo_fit_leave_out(struct run *run, uint32_t rank, const char *why);
/* Finds a node of an elastic run that has not answered a request for too long; false: none. */
bool exo_fit_find_silent(const struct run *run, uint32_t *rank);

#endif
