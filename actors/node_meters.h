/* The meters of one training node: those that its strategy declares, and the figures that its model reports in training. They are sent to the
 * conductor with each reply of `train`, and shown there (fit_meters.c).
 *
 * Owner: the node's compute lane; strategies may count from other threads. */
#ifndef EXO_NODE_METERS_H
#define EXO_NODE_METERS_H

#include <exogym/tensor.h>

#include "base/meter.h"
#include "protocol/protocol.h"

/* What a model reports, over several passes. Zero-initialized it is empty; it owns nothing. */
typedef struct exo_pass_figures {
    struct {
        const exo_meter_class *metric;
        double sum;
        size_t count;
    } each[EXO_TAPE_METRICS];
    size_t num;
} exo_pass_figures;

/* Adds those of the pass that is on the tape. */
void exo_pass_figures_add(exo_pass_figures *figures, const exo_tape *tape);
/* Sets the gauges of a scope to the means, and begins anew. One that cannot be declared is left out. "loss" is: it is a figure of the run. */
void exo_pass_figures_set(exo_pass_figures *figures, exo_meters *scope);

typedef struct exo_node_meters {
    exo_meters *tree;             /* NULL: they are in another one */
    exo_meters *strategy, *model; /* its scopes */
    exo_pass_figures figures;     /* of this step */
} exo_node_meters;

/* Within `parent`, or, if that is NULL, as a tree of their own. After an error it is released. NOMEM. */
exo_status exo_node_meters_init(exo_node_meters *meters, exo_meters *parent, exo_err *err);
void exo_node_meters_release(exo_node_meters *meters);

/* A tree as messages that point into it: good until the tree is freed. */
typedef struct exo_meter_list {
    Exo__Train__Meter **messages; /* (num) */
    size_t num;
} exo_meter_list;

/* Of all meters in a tree, those of a gauge that is not set left out. The caller releases it, also after an error. NOMEM. */
exo_status exo_meter_list_init(exo_meter_list *list, const exo_meters *tree, exo_err *err);
void exo_meter_list_release(exo_meter_list *list);

/* A message that has been decoded as a sample, which points into the message and `c`. INVAL: it is none. */
exo_status exo_meter_of_message(const Exo__Train__Meter *message, exo_meter_class *c,
                                exo_meter_sample *out, exo_err *err);

#endif
