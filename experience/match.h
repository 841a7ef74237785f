/* Whether the options of makers and trainers match, as far as the check of a graph can tell before a
 * run. A maker takes weights for its own model alone; makers that share a model need updates without a
 * base. Trainers with a strategy need the edge over which it exchanges.
 *
 * No state. Threads: that of the graph's document. Read next: edges.c, which calls these functions. */
#ifndef EXO_EXPERIENCE_MATCH_H
#define EXO_EXPERIENCE_MATCH_H

#include "graph/spec.h"

/* Checks makers that share a model: the codec of their edge, and their restart rule. INVAL, with the
 * place of what to change. */
exo_status exo_match_group(const exo_graph_spec *spec, uint32_t maker, exo_err *err);
/* Checks that trainers with a strategy have the edges that it exchanges over. INVAL, with the place of
 * the strategy; those of the options themselves. */
exo_status exo_match_strategy(const exo_graph_spec *spec, uint32_t trainer, exo_err *err);
/* Checks makers against the trainers whose weights they get: the models, and the form of updates. INVAL,
 * with the place of what to change; those of the options themselves. */
exo_status exo_match_weights(const exo_actor_spec *maker, const exo_actor_spec *trainer,
                             exo_err *err);
/* Checks that the model of a trainer takes the prompts and answers of a maker: their tokens, unless the
 * maker's model has learned which ones it writes, and the longest prompt with its answer. INVAL, with the
 * place of the trainer's model; those of the options themselves. */
exo_status exo_match_answers(const exo_graph_spec *spec, uint32_t maker, uint32_t trainer,
                             exo_err *err);

#endif
