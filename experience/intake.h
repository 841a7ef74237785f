/* The intake of a trainer: the items of its makers, checked as they come, and the makers' replies. It
 * says which draws makers may make with a version (their quota), and sends them each version with it.
 *
 * An item is refused, and the run ends, if no maker may have made it: its draw is beyond the quota or the
 * run's end, or its weights are of no version that this trainer has, or too old. One that came before, is
 * of an earlier life of the trainers, or comes after the last update, is dropped. All others go to the stock.
 *
 * Owner: the trainer's thread. Read next: stock.h, publisher.h, trainer.c. */
#ifndef EXO_INTAKE_H
#define EXO_INTAKE_H

#include "experience/learner.h"
#include "experience/publisher.h"
#include "experience/regret.h"
#include "experience/stock.h"

typedef struct exo_intake {
    /* The trainer's. */
    exo_learner *learner;
    exo_publisher *publisher;
    exo_regret *regret;       /* NULL: the makers have no exact task */
    exo_dealer *dealer;       /* NULL: maker i of M makes the draws i, i + M, ... */
    uint64_t update, updates; /* items of an update; updates of the run, 0: until the makers end */
    uint64_t under_way;       /* draws of an update and of later ones that makers may have begun */
    exo_time learns;          /* time of the last update; 0: there was none */
    exo_stock stock;          /* items of this update and of later ones */
    bool closed;              /* no more items come */
    uint64_t repeated;        /* items that came again and were dropped */
} exo_intake;

void exo_intake_release(exo_intake *intake);
/* The most ranges of draws that the stock has. */
size_t exo_intake_ranges(const exo_intake *intake);
/* Sends the newest version to the makers that wait for it. Errors: those of exo_publisher_send. */
exo_status exo_intake_send_version(exo_intake *intake, exo_graph_actor *actor, exo_err *err);
/* Receives until the stock has `batch` items to be taken, or all of the run. INVAL, FAILED: an item, a
 * reply or the end of the makers is at fault; errors of exo_port_receive. Blocks for the edge's
 * deadline. */
exo_status exo_intake_await(exo_intake *intake, exo_graph_actor *actor, size_t batch, exo_err *err);
/* Takes what has come during an update, so that makers have replied before the next version goes out
 * to them. Their quota bounds it. Errors: as above. */
exo_status exo_intake_catch_up(exo_intake *intake, exo_graph_actor *actor, exo_err *err);

#endif
