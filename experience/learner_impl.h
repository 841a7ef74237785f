/* The inside of a learner: see learner.h. Owner: the learner's caller. */
#ifndef EXO_LEARNER_IMPL_H
#define EXO_LEARNER_IMPL_H

#include <exogym/optim.h>

#include "experience/learner.h"
#include "experience/rows.h"

typedef enum exo_algorithm {
    EXO_GRPO,
    EXO_RLOO,
    EXO_REINFORCE,
    EXO_PPO,
} exo_algorithm;

/* A model that learns, with its optimizer. */
typedef struct exo_student {
    exo_model *model; /* held */
    exo_optim_spec spec;
    exo_params *params;
    exo_optim *optim;
    exo_array sum; /* of the gradients of this learner's slices; no elements: it has one slice */
} exo_student;

/* The answers of an update by slice, in the order of the items' ids, and what is known of each
 * token. Token arrays have the tokens of one answer after the other, in the same order. */
typedef struct exo_learner_batch {
    exo_pick *picks;   /* (count) */
    size_t *tokens;    /* (count + 1) the first token of each answer in the arrays below */
    size_t *bounds;    /* (local slices + 1) the first answer of each slice */
    uint32_t *order;   /* (count) of the answers of each slice in an epoch */
    double *scores;    /* (count) of the reward */
    float *kl;         /* (tokens) log p_maker - log p_0; 0 without a reference */
    float *values;     /* (tokens) of the critic before the update; 0 without one */
    float *advantages; /* (tokens) */
    float *returns;    /* (tokens) targets of the critic */
    size_t count, room, token_room;
} exo_learner_batch;

struct exo_learner {
    exo_algorithm algorithm;
    double clip, kl_coef, max_norm;
    double gamma, lambda, value_coef, value_clip, entropy; /* PPO */
    uint64_t epochs, minibatches, slices, rows_a_pass;
    uint64_t seed, version;
    uint32_t rank, size;
    exo_student actor, critic; /* critic.model NULL: the actor gives values, or nobody */
    exo_params *reference;     /* the actor's version 0; NULL: not needed */
    exo_tape *tape;
    exo_rows rows;
    /* rows of the present pass, (rows.room) each */
    float *row_values, *row_advantages, *row_returns, *row_old_values;
    size_t row_room;
    exo_learner_batch batch;
};

/* True: the algorithm takes values. */
static inline bool
exo_learner_has_critic(const exo_learner *l)
{
    return l->algorithm == EXO_PPO;
}

/* The model that gives values. */
static inline exo_student *
exo_learner_critic(exo_learner *l)
{
    return l->critic.model ? &l->critic : &l->actor;
}

/* learner_batch.c */

void exo_learner_batch_release(exo_learner_batch *batch);
/* Lists the answers of items (count), which it sorts. INVAL: an item belongs to another learner;
 * NOMEM. */
exo_status exo_learner_list(exo_learner *l, exo_experience *items, size_t count, exo_err *err);
/* Computes advantages and returns from scores, kl and values. */
void exo_learner_judge(exo_learner *l);
/* The order of the answers of each slice in an epoch: that of the list in the first, then drawn. */
void exo_learner_shuffle(exo_learner *l, uint64_t epoch);

/* learner_pass.c */

/* Lays out answers (count) and computes the log-probabilities of their tokens under `params`, which
 * l->row_values gets, in a pass of the actor. `values` gets the values if the actor gives them; it
 * may be NULL. */
exo_status exo_learner_forward(exo_learner *l, exo_params *params, const exo_pick *picks,
                               size_t count, bool grad, exo_tensor **log_probs, exo_logits *logits,
                               exo_tensor **values, exo_err *err);
/* Writes kl and values of the batch. *kl: the sum over its tokens. */
exo_status exo_learner_look(exo_learner *l, double *kl, exo_err *err);

/* The sums of a step that learners add up. */
enum {
    EXO_STEP_WEIGHT, /* tokens */
    EXO_STEP_LOSS,
    EXO_STEP_VALUE_LOSS,
    EXO_STEP_CLIPPED,
    EXO_STEP_SUMS
};
/* Adds the gradients of the loss, summed over the tokens of minibatch `m` of a slice, to those of
 * the models, and to the sums. *off: the largest |ratio - 1|. */
exo_status exo_learner_add_slice(exo_learner *l, size_t slice, uint64_t m, float *sums, double *off,
                                 exo_err *err);

#endif
