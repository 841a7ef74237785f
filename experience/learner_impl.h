/* The inside of a learner: see learner.h. Owner: the learner's caller. */
#ifndef EXO_LEARNER_IMPL_H
#define EXO_LEARNER_IMPL_H

#include <exogym/optim.h>
#include <exogym/strategy.h>

#include "experience/learner.h"
#include "experience/named_device.h"
#include "experience/objective.h"
#include "experience/ptx.h"
#include "experience/rows.h"

/* A model that learns, with its optimizer. */
typedef struct exo_student {
    exo_model *model; /* held */
    exo_optim_spec spec;
    exo_params *params;
    exo_optim *optim;
    exo_array sum; /* of the gradients of this learner's slices; no elements: it has one slice */
    exo_strategy *strategy; /* takes the steps, with an optimizer of its own; NULL: none */
    exo_node node;          /* this model, for the strategy */
} exo_student;

/* The answers of an update by slice, in the order of the items' ids, and what is known of each
 * token. Token arrays have the tokens of one answer after the other, in the same order. */
typedef struct exo_learner_batch {
    exo_pick *picks;   /* (count) */
    size_t *tokens;    /* (count + 1) the first token of each answer in the arrays below */
    size_t *bounds;    /* (local slices + 1) the first answer of each slice */
    uint32_t *order;   /* (count) of the answers of each slice in an epoch */
    float *scores;     /* (count) of the reward */
    uint64_t *groups;  /* (count) the item of each answer */
    float *by_answer;  /* (count) rewards, then advantages, of whole answers */
    float *by_answer2; /* (count) */
    size_t *actions;   /* (count) tokens of each answer that the policy wrote */
    float *ends;       /* (count) the part of the score that is not of turns */
    float *mask;       /* (tokens) 1: the policy wrote it; 0: a tool */
    float *turns;      /* (tokens) rewards of turns */
    float *behaviour;  /* (tokens) log-probabilities that the makers gave */
    float *reference;  /* (tokens) under version 0; 0 if not needed */
    float *proximal;   /* (tokens) under the version before the update; 0 if not needed */
    float *values;     /* (tokens) of the critic before the update; 0 without one */
    float *rewards;    /* (tokens) */
    float *advantages; /* (tokens) */
    float *returns;    /* (tokens) targets of the critic */
    size_t count, room, token_room;
    uint64_t number; /* of the batches of its update */
} exo_learner_batch;

struct exo_learner {
    exo_objective_opts objective;
    double max_norm;
    uint64_t epochs, minibatches, slices, rows_a_pass;
    uint64_t seed, version;
    uint32_t rank, size;
    exo_student actor, critic; /* critic.model NULL: the actor gives values, or nobody */
    exo_named_device device;   /* of the models, the optimizers and the passes */
    char *folder;              /* from which the actor begins, or NULL. Freed by (free) */
    exo_model *initial;        /* NULL: the actor's version 0 is the initial model */
    exo_params *reference;     /* the initial model's values; NULL: not needed */
    exo_ptx *ptx;              /* NULL: none */
    exo_tape *tape;
    exo_rows rows;
    /* Numbers of the rows of the present pass, (rows.room) each, and where its answers begin. */
    float *row_log_probs, *row_advantages, *row_returns, *row_old_values, *row_reference,
        *row_proximal, *row_old, *row_importance, *row_weights;
    uint64_t *row_versions;
    size_t *row_offsets; /* (rows_a_pass + 1) */
    size_t row_room;
    exo_learner_batch batch;
    /* Batches of the present update, for its later epochs: (stored_room), of which (num_stored) are
     * in use. None: an update has one batch. */
    exo_learner_batch *stored;
    size_t num_stored, stored_room;
    exo_learner_callbacks callbacks;
};

/* True: advantages come from values. */
static inline bool
exo_learner_has_critic(const exo_learner *l)
{
    return l->objective.values;
}

/* The temperature of the distribution to which an item's behaviour log-probabilities belong. */
static inline float
exo_learner_temperature(const exo_experience *e)
{
    return exo_experience_is_plain(e) ? 1 : e->temperature;
}

/* The model that gives values. */
static inline exo_student *
exo_learner_critic(exo_learner *l)
{
    return l->critic.model ? &l->critic : &l->actor;
}

/* The gradient of a student's step, of all slices of the learner. */
static inline exo_array
exo_student_gradient(const exo_student *s)
{
    return s->sum.count ? s->sum : exo_params_grads_array(s->params);
}

/* learner.c */

/* Adds up data of all learners; a NULL group: there is one. */
exo_status exo_learner_add_up(exo_group *group, exo_array data, exo_err *err);
/* A step of the optimizers on minibatch `m` of the batch, if some learner has answers in it. */
exo_status exo_learner_step(exo_learner *l, exo_group *group, uint64_t m, exo_learner_figures *f,
                            exo_err *err);

/* learner_strategy.c */

/* Reads `strategy`, after the models and their optimizers. INVAL with the place. */
exo_status exo_learner_read_strategy(exo_learner *l, exo_config *config, exo_err *err);
void exo_student_release_strategy(exo_student *s);
/* A step of the strategy. *norm: of the gradient, before it was clipped. */
exo_status exo_student_step_strategy(exo_student *s, double *norm, exo_err *err);
/* Takes part in the exchanges of so many steps, without a gradient. */
exo_status exo_learner_idle(exo_learner *l, uint64_t steps, exo_err *err);

/* learner_batch.c */

void exo_learner_batch_release(exo_learner_batch *batch);
/* Lists the answers of items (count), which it sorts. INVAL: an item belongs to another learner;
 * NOMEM. */
exo_status exo_learner_list(exo_learner *l, exo_experience *items, size_t count, exo_err *err);
/* The answers of a slice, of `slices` that this learner has; NULL mask: none. */
exo_token_batch exo_learner_slice(const exo_learner *l, size_t slice);
/* FAILED: `what` ("the loss") of the next version is not finite; names the answers of the batch with the
 * largest score and with the lowest log-probability. why: more words, "": none. */
exo_status exo_learner_not_finite(const exo_learner *l, const char *what, const char *why,
                                  exo_err *err);
/* The same of a sum over the learners of `group` (NULL: there is no sum), to which this one has added
 * something finite. */
exo_status exo_learner_sum_not_finite(const exo_learner *l, const exo_group *group,
                                      const char *what, exo_err *err);
/* Computes advantages and returns from scores and log-probabilities. */
void exo_learner_judge(exo_learner *l);
/* The order of the answers of each slice in an epoch: that of the list in the first, then drawn. */
void exo_learner_shuffle(exo_learner *l, uint64_t epoch);
/* The answers of minibatch `m` of a slice are order[*begin .. *end). */
void exo_learner_cut(const exo_learner *l, size_t slice, uint64_t m, size_t *begin, size_t *end);

/* learner_pass.c */

void exo_learner_release_rows(exo_learner *l);
/* Writes reference, proximal and values of the batch. */
exo_status exo_learner_look(exo_learner *l, exo_err *err);

/* The sums of a step that learners add up. */
enum {
    EXO_STEP_LOSS, /* of the policy, as a part of the mean */
    EXO_STEP_VALUE_LOSS,
    EXO_STEP_PTX,
    EXO_STEP_TOKENS, /* of the figures below */
    EXO_STEP_CLIPPED,
    EXO_STEP_KL,
    EXO_STEP_CHI,
    EXO_STEP_RATIOS, /* sums of ratios and of their squares */
    EXO_STEP_SQUARES,
    EXO_STEP_SUMS
};
/* Adds the gradients of minibatch `m` of a slice to those of the models, and to the sums. Of the
 * minibatch, all learners together have so many tokens and answers. *off: the largest |ratio - 1|. */
exo_status exo_learner_add_slice(exo_learner *l, size_t slice, uint64_t m, double tokens,
                                 double answers, float *sums, double *off, exo_err *err);

#endif
