/* The weights of a maker: it receives weight updates and the quota, replies to the trainer, and
 * exchanges the weights in use when the maker says so.
 *
 * Owner: the maker's thread. Read next: uptake.h (the thread beside it), maker.c. */
#ifndef EXO_MAKER_WEIGHTS_H
#define EXO_MAKER_WEIGHTS_H

#include "experience/source.h"
#include "experience/uptake.h"

typedef struct exo_maker_weights exo_maker_weights;

typedef struct exo_maker_weights_figures {
    uint64_t swaps;
    /* Seconds: the longest exchange, the way of the last update, and the work of its uptake. */
    double pause, transfer, uptake;
} exo_maker_weights_figures;

/* What a maker may do in its first life before an update comes, with its own weights, which count as
 * version 0 of the first life of the trainers. */
typedef struct exo_maker_start {
    uint64_t draws;    /* those below it; 0: it waits for the first update */
    uint32_t trainers; /* their number */
    /* Told to trainers: draws that the maker can hold, that it makes at once, and of the run. */
    uint64_t room, portion, total;
    uint64_t makers, index; /* it makes the draws index, index + makers, ... */
} exo_maker_start;
/* Makes the weights of a source that has started. Without an edge that carries parameters there is
 * no quota. The caller frees it before the source. NOMEM. */
exo_status exo_maker_weights_new(exo_maker_weights **out, exo_experience_source *source,
                                 const exo_maker_start *start, exo_graph_actor *actor,
                                 exo_err *err);
void exo_maker_weights_free(exo_maker_weights **weights);

/* Whether the maker begins again, because it has its first weights, or those of a trainer in another
 * life, or items may have been lost: then it drops what is under way, and continues with the first of
 * its draws from *learned on. True once for each time. */
bool exo_maker_weights_begins_again(exo_maker_weights *weights, uint64_t *learned);
/* Whether a trainer has the draw already, so that it is not made again. A trainer that oversamples says
 * so of draws beyond *learned of exo_maker_weights_begins_again. */
bool exo_maker_weights_has_finished(const exo_maker_weights *weights, uint64_t draw);
/* Whether a trainer deals draws to this maker; then draws are those of exo_maker_weights_next_draw. */
bool exo_maker_weights_is_dealt(const exo_maker_weights *weights);
/* Whether no version has said yet how draws come. */
bool exo_maker_weights_is_unknown(const exo_maker_weights *weights);
/* Whether draws may be dealt to it that it has not begun. */
bool exo_maker_weights_expects(const exo_maker_weights *weights);
/* The least draw that was dealt and may be made with the version in use; take: it is begun. False: none. */
bool exo_maker_weights_next_draw(exo_maker_weights *weights, bool take, uint64_t *draw);
/* The life of the trainers whose weights are in use; -1: there are none. Their number; 0: unknown. */
int64_t exo_maker_weights_life(const exo_maker_weights *weights);
uint32_t exo_maker_weights_trainers(const exo_maker_weights *weights);
/* Whether a draw may be made with the version in use: the quota of a version counts from its exchange
 * on. If trainers are apart, that of the draw's trainer decides. */
bool exo_maker_weights_allows(const exo_maker_weights *weights, uint64_t draw);
/* The draws that are worth waiting for until a batch begins, at most `batch`, which takes `takes` with
 * any number of draws; 0: the next version does not come without `draw`, the maker's next one, or brings
 * no more draws, or it is not known.
 *
 * With a batch time C, updates of time L, K draws that may be under way, and F draws that all makers
 * make at once, a maker that waits for full batches begins one each C + max(0, 2 F / U - K / U) L, where an update
 * has U draws. That makes more draws with larger F if C > L K / U, the time in which the trainers
 * learn from K draws. Otherwise F = K / 2 is enough, so that half of them are made and half are learned from. */
uint64_t exo_maker_weights_aim(const exo_maker_weights *weights, uint64_t draw, uint64_t batch,
                               exo_time takes);
/* The version in use. */
uint64_t exo_maker_weights_version(const exo_maker_weights *weights);

/* Takes updates that have come: replies to those that were taken, and begins the next one. wait: until
 * a version is ready, or nothing is left to take; otherwise an update may still be decoded beside
 * the caller. Does not change the weights in use. */
exo_status exo_maker_weights_pump(exo_maker_weights *weights, exo_graph_actor *actor, bool wait,
                                  exo_err *err);
/* For members of a group, instead of exo_maker_weights_pump. exo_maker_weights_look finds the newest
 * update that has come, and replies to those that are of no use. wait: until there is one that was not
 * taken. *newest: its version, or else that of the one that was taken last; -1: none. CLOSED: none will
 * come. exo_maker_weights_take takes it; every member takes the same. exo_maker_weights_pass leaves it,
 * so that the trainer sends its newest version. Errors: those of exo_uptake_begin and of the ports. */
exo_status exo_maker_weights_look(exo_maker_weights *weights, exo_graph_actor *actor, bool wait,
                                  int64_t *newest, exo_err *err);
exo_status exo_maker_weights_take(exo_maker_weights *weights, exo_graph_actor *actor, exo_err *err);
exo_status exo_maker_weights_pass(exo_maker_weights *weights, exo_graph_actor *actor, exo_err *err);
/* The version of the newest update that was taken; -1: none. */
int64_t exo_maker_weights_newest(const exo_maker_weights *weights);
/* Asks the trainers for the weights, as the first thing that a maker in a further life does. */
exo_status exo_maker_weights_greet(const exo_maker_weights *weights, exo_graph_actor *actor,
                                   exo_err *err);
/* Tells all trainers that the maker has sent all its draws, once its items are on their way. */
exo_status exo_maker_weights_say_sent(const exo_maker_weights *weights, exo_graph_actor *actor,
                                      exo_err *err);
/* Waits for the next update, after exo_maker_weights_pump with `wait`. timeout: as that of
 * exo_port_receive. CLOSED: no more will come; TIMEOUT. */
exo_status exo_maker_weights_wait(exo_maker_weights *weights, exo_graph_actor *actor,
                                  exo_time timeout, exo_err *err);
/* True: a version waits for exo_maker_weights_swap, which makes the generator use it. */
bool exo_maker_weights_is_ready(const exo_maker_weights *weights);
void exo_maker_weights_swap(exo_maker_weights *weights, exo_graph_actor *actor);
const exo_maker_weights_figures *exo_maker_weights_figures_of(const exo_maker_weights *weights);

#endif
