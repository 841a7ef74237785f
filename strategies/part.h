/* Parts: a strategy inside another one, which its options name. islands has two, fsdp may have one.
 *
 * A part is a class with a state of its own. The strategy that has it calls the class's functions, with
 * an exo_node that shows the part its own nodes.
 *
 * Owner: the strategy that has the part. Read next: islands.c. */
#ifndef EXO_STRATEGY_PART_H
#define EXO_STRATEGY_PART_H

#include <exogym/strategy.h>

typedef struct exo_strategy_part {
    const exo_strategy_class *strategy; /* NULL: there is no part */
    void *self;                         /* the state of the strategy; owned */
} exo_strategy_part;

/* Reads the part under `key`: the name of a strategy, or a mapping with `name` and its options. Without
 * the key it is `fallback`; NULL: then there is none. The caller releases it, also after an error.
 * INVAL, with the place; NOMEM. */
exo_status exo_part_read(exo_strategy_part *part, exo_config *config, const char *key,
                         const char *fallback, exo_err *err);
/* Refuses a part whose nodes do not meet, or that does not begin with an inner step of the node's own,
 * which the strategy that has it can leave out (exo_node.stepped). INVAL, with the place of `key`. */
exo_status exo_part_check_alone(const exo_strategy_part *part, exo_config *config, const char *key,
                                exo_err *err);
/* The functions of exo_strategy_class of the same names. */
size_t exo_part_edges(const exo_strategy_part *part, const exo_param_info *infos, size_t num_infos,
                      size_t numel, uint32_t num_nodes,
                      exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES]);
exo_status exo_part_check(const exo_strategy_part *part, uint32_t num_nodes, exo_err *err);
exo_status exo_part_check_model(const exo_strategy_part *part, const exo_model *model,
                                exo_err *err);
exo_status exo_part_start(const exo_strategy_part *part, exo_node *node, exo_err *err);
void exo_part_state(const exo_strategy_part *part, exo_state *state);
void exo_part_leave(const exo_strategy_part *part);
/* Frees the part's state; accepts one that is all zero. */
void exo_part_release(exo_strategy_part *part);

#endif
