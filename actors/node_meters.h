/* The meters of one training node: those that its strategy declares, and the figures that its model
 * reports in training. Each reply of `train` sends them to the trainer, which shows them
 * (fit_meters.c).
 *
 * Owner: the node's compute lane; strategies may count from other threads. */
#ifndef EXO_NODE_METERS_H
#define EXO_NODE_METERS_H

#include <exogym/tensor.h>

#include "base/meter.h"
#include "protocol/protocol.h"

/* The figures that a model reports, over several passes. A zero-initialized struct is empty. It
 * owns nothing. */
typedef struct exo_pass_figures {
    struct {
        const exo_meter_class *metric;
        double sum;
        size_t count;
    } each[EXO_TAPE_METRICS];
    size_t num;
} exo_pass_figures;

/* Adds the figures of the pass on the tape, except "loss", which is a figure of the run. */
void exo_pass_figures_add(exo_pass_figures *figures, const exo_tape *tape);
/* Adds one figure, which is a mean over `count`, unless it is "loss". */
void exo_pass_figures_count(exo_pass_figures *figures, const exo_meter_class *metric, double mean,
                            size_t count);
/* Sets the gauges of a scope to the means, and empties *figures. Gauges that cannot be declared are
 * left out. */
void exo_pass_figures_set(exo_pass_figures *figures, exo_meters *scope);

typedef struct exo_node_meters {
    exo_meters *tree;             /* NULL: the scopes belong to another tree */
    exo_meters *strategy, *model; /* scopes */
    exo_pass_figures figures;     /* of the current step */
} exo_node_meters;

/* Makes the scopes within `parent`, or in a tree of their own if that is NULL. After an error
 * *meters is released. NOMEM, or an error of `parent`. */
exo_status exo_node_meters_init(exo_node_meters *meters, exo_meters *parent, exo_err *err);
void exo_node_meters_release(exo_node_meters *meters);

/* The meters of a tree as messages. They point into the tree and are valid until it is freed. */
typedef struct exo_meter_list {
    Exo__Train__Meter **messages; /* (num) */
    size_t num;
} exo_meter_list;

/* Makes messages of all meters in a tree, except gauges that are not set. The caller releases
 * *list, also after an error. NOMEM. */
exo_status exo_meter_list_init(exo_meter_list *list, const exo_meters *tree, exo_err *err);
void exo_meter_list_release(exo_meter_list *list);

/* Reads a decoded message as a sample, which points into the message and `c`. INVAL: the message is
 * inconsistent. */
exo_status exo_meter_of_message(const Exo__Train__Meter *message, exo_meter_class *c,
                                exo_meter_sample *out, exo_err *err);

#endif
