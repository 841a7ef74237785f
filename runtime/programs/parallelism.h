/* Compositions of parallelism: the ways in which a number of nodes can train a model with the
 * gradients of ddp. A composition is a value on each of a few axes (parallelism.c has their table); a
 * new kind of parallelism is a further axis. No state. Read next: planner.h, which compares them. */
#ifndef EXO_PROGRAMS_PARALLELISM_H
#define EXO_PROGRAMS_PARALLELISM_H

#include <exogym/config.h>

typedef struct exo_parallelism {
    const char *sharding; /* sharding_strategy of fsdp, a literal; NULL: ddp */
    uint32_t group_size;  /* copies that have all parameters together; 1 under ddp */
    /* Nodes that share a copy of the model: stages of a pipeline, parts of layers (with
     * `sequence`, and of the rows between them), and tokens. Their product shares a copy. */
    uint32_t stages, tensor, context;
    bool sequence;
    bool overlap;    /* messages pass during backward: buckets of ddp, prefetch of fsdp */
    bool checkpoint; /* the model recomputes its blocks in backward */
} exo_parallelism;

/* What the axes may vary. */
typedef struct exo_parallelism_scope {
    uint32_t nodes;
    uint32_t apart; /* nodes of a group, if groups follow a strategy of their own; else 0 */
    bool shards;    /* nodes may keep shards or share copies */
    /* The forms of sharing a copy that the model and its sequences admit; owned by the caller. */
    const struct exo_parallelism *forms;
    size_t num_forms;
    bool checkpoints; /* the model can recompute its blocks */
    bool checkpoint;  /* it does, in the job */
} exo_parallelism_scope;

enum {
    EXO_PARALLELISM_TEXT = 128
};

/* Lists all compositions. The caller frees *out with exo_free. NOMEM. */
exo_status exo_parallelisms(const exo_parallelism_scope *scope, exo_parallelism **out,
                            size_t *count, exo_err *err);

/* The nodes that share a copy of the model and of its batch. */
uint32_t exo_parallelism_sharing(const exo_parallelism *c);
/* Whether they share it in several ways. */
bool exo_parallelism_is_product(const exo_parallelism *c);
/* Whether units of fsdp stay open until their gradients are reduced. */
bool exo_parallelism_keeps_open(const exo_parallelism *c);
/* The name of its strategy, a literal. */
const char *exo_parallelism_strategy(const exo_parallelism *c);
/* Makes the strategy's mapping, with what the job's own mapping `given` says beside the keys of
 * compositions, such as the optimizer. given: a mapping, or NULL. The caller frees *out. */
exo_status exo_parallelism_options(const exo_parallelism *c, exo_config *given,
                                   exo_config_doc **out, exo_err *err);
/* Describes it for people: "fsdp hybrid_shard of 4, prefetch". Returns `out`. */
const char *exo_parallelism_text(const exo_parallelism *c, char out[EXO_PARALLELISM_TEXT]);

#endif
