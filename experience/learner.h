/* A learner: from items of experience to the next version of a model's weights. It is independent
 * of actors; trainer.c is the actor that learns.
 *
 * An update passes over its items `epochs` times, in `minibatches` steps of the optimizer each
 * time. Its items are divided into *slices* by their ids: item i belongs to slice i mod S. The
 * gradient of a step is the sum over the slices, in their order, over the sum of all weights. With
 * N learners, learner t has the slices j with j mod N = t, and an all_reduce adds up the learners'
 * sums. So one learner with two slices and two learners with one slice each have the same bits.
 *
 * All learners begin with the same weights, which `seed` draws, and keep them equal; or they are kept
 * together by a *strategy* (strategy.h), and are *apart*: each learns from its own items, and gives
 * figures of these.
 *
 * Owner: the caller, one thread at a time. Read next: rows.h. */
#ifndef EXO_LEARNER_H
#define EXO_LEARNER_H

#include <exogym/comm.h>
#include <exogym/meter.h>
#include <exogym/model.h>
#include <exogym/state.h>

#include "experience/experience.h"
#include "experience/rows.h"

typedef struct exo_learner exo_learner;

/* Figures of an update, over all learners. */
typedef struct exo_learner_figures {
    double items, answers, tokens;
    double score;      /* mean over the answers */
    double kl;         /* mean over the answers of log p_maker - log p_0; 0 without a reference */
    double kl_coef;    /* coefficient of the penalty in this update */
    double loss;       /* of the policy, the mean over the steps */
    double value_loss; /* the same of the critic */
    double ptx_loss;   /* the same of the texts, without their coefficient */
    double norm;       /* of the last step's gradient of the actor, before it is clipped */
    double clipped;    /* share of tokens whose ratio is beyond the clip, the mean over the steps */
    uint64_t steps;    /* of the optimizer */
    /* Of the first step, before it: how far the policy is from that of the makers. */
    double ratio_off;   /* largest |p / p_maker - 1|; this learner's */
    double kl_makers;   /* mean over the tokens of KL(p_maker || p), by k3 */
    double chi_squared; /* chi^2(p || p_maker) a token */
    double effective;   /* effective sample size as a share of the tokens */
    double last_kl;     /* kl_makers of the last step */
} exo_learner_figures;

/* Reads a learner from the keys model, critic, algorithm, optimizer, critic_optimizer, epochs,
 * minibatches, strategy, slices, rows, max_norm, device and ptx of a config. The caller frees it. INVAL
 * (with its place), NOMEM. */
exo_status exo_learner_read(exo_learner **out, exo_config *config, exo_err *err);
void exo_learner_free(exo_learner **learner);
/* Opens the device, at `place` if its name has no number, and draws the weights of version 0 there, as
 * learner `rank` of `size`. INVAL: `slices` is no multiple of size; NOMEM; those of
 * exo_device_open_place, and the device's. */
exo_status exo_learner_start(exo_learner *learner, uint64_t seed, uint32_t rank, uint32_t size,
                             uint32_t place, exo_err *err);

/* The device's name in the options; the device, after exo_learner_start. */
const char *exo_learner_device_name(const exo_learner *learner);
exo_device *exo_learner_device(const exo_learner *learner);

/* Where a learner is among the others. */
typedef struct exo_learner_place {
    uint64_t updates;   /* batches of all updates of the run; with a strategy at least 1 */
    exo_meters *meters; /* for the strategies' scopes; may be NULL */
    /* Gives the group of all learners for what a strategy exchanges (exo_strategy_edge.carries);
     * NULL: there is none. The groups outlive exo_learner_leave. */
    exo_group *(*group)(void *context, const char *carries);
    void *context; /* the first argument of group */
} exo_learner_place;
/* Starts the strategies, after exo_learner_start; does nothing for learners that are not apart.
 * INVAL: there is no such group; UNSUPPORTED; NOMEM. */
exo_status exo_learner_join(exo_learner *learner, const exo_learner_place *place, exo_err *err);
/* Checks what the strategy's class declares of the exchanges of `size` learners, before the function
 * below. INVAL: as exo_strategy_check_edges. */
exo_status exo_learner_check_exchanges(const exo_learner *learner, uint32_t size, exo_err *err);
/* What the strategy of `size` learners exchanges over its index-th edge, as `group` gets it; NULL: it has
 * no such edge, or the learners are not apart. Before exo_learner_start. */
const char *exo_learner_exchanges(const exo_learner *learner, uint32_t size, size_t index);
/* Ends what the strategies have begun, before their groups are closed. */
void exo_learner_leave(exo_learner *learner);
/* Whether a strategy keeps the learners together. Then `group` of exo_learner_update is not used, and
 * all learners make the same number of updates, also without items. */
bool exo_learner_is_apart(const exo_learner *learner);

/* Calls within an update; each may be NULL. Their thread is that of the update. */
typedef struct exo_learner_callbacks {
    /* An epoch, or a step of the optimizer, numbered within its update, begins or has ended. */
    void (*epoch)(void *context, uint64_t epoch, bool end);
    void (*step)(void *context, uint64_t step, bool end);
    void *context;
} exo_learner_callbacks;
void exo_learner_call_back(exo_learner *learner, const exo_learner_callbacks *callbacks);

/* Whether an item's tokens are in the model's vocabulary, and its answers in the context. INVAL. */
exo_status exo_learner_check(const exo_learner *learner, const exo_experience *item, exo_err *err);
/* An update from several batches: take for each, then end. exo_learner_update is both, for one batch.
 *
 * Take learns from the items as the first epoch does, so a batch is of use before the others are
 * there. End learns from all batches again, in an order that it draws for each further epoch, and
 * makes the next version. The items live until then. *figures begins zeroed. All learners call these
 * functions together. Errors: as exo_learner_update. */
exo_status exo_learner_take(exo_learner *learner, exo_group *group, exo_experience *items,
                            size_t count, exo_learner_figures *figures, exo_err *err);
/* batches: how many an update has, if none is missing; learners that are apart idle for the missing
 * ones. */
exo_status exo_learner_end(exo_learner *learner, exo_group *group, uint64_t batches,
                           exo_learner_figures *figures, exo_err *err);
/* Learns from items (count, which may be 0), and makes the next version. All learners call this
 * together; `group` is NULL if there is one. Without an item on any learner nothing changes, and
 * figures->items is 0. Learners that are apart make a version nevertheless. INVAL: an item does not fit
 * the model or its slice; FAILED: the loss or a gradient is not finite, and the version is the one
 * before; those of the group. */
exo_status exo_learner_update(exo_learner *learner, exo_group *group, exo_experience *items,
                              size_t count, exo_learner_figures *figures, exo_err *err);

/* The learned parameters (numel), which nobody else changes, of a learner on the CPU; their version;
 * their SHA-256 (errors: NOMEM, or the device's). */
const float *exo_learner_values(const exo_learner *learner);
size_t exo_learner_numel(const exo_learner *learner);
/* The model, held by the learner, and its parameters, which nobody else changes. */
exo_model *exo_learner_model(const exo_learner *learner);
exo_params *exo_learner_params(const exo_learner *learner);
/* The parameters that it trains, the critic's included; the epochs of an update. */
size_t exo_learner_trained(const exo_learner *learner);
uint64_t exo_learner_epochs(const exo_learner *learner);
uint64_t exo_learner_version(const exo_learner *learner);
exo_status exo_learner_sha256(const exo_learner *learner, char out[65], exo_err *err);
/* The coefficient of the KL penalty, in the reward and in the loss together, as it is in the options. */
double exo_learner_beta(const exo_learner *learner);
/* Whether kl_target moves it. */
bool exo_learner_moves_beta(const exo_learner *learner);
/* Writes the log-probabilities of the tokens of answers (count), one answer after the other,
 * under the present policy; `initial`: under the initial model, of a learner with a KL penalty.
 * Between two updates. NOMEM; INVAL: an answer does not fit the model. */
exo_status exo_learner_read_answers(exo_learner *learner, bool initial, const exo_pick *picks,
                                    size_t count, float *log_probs, exo_err *err);
/* Adds weights, optimizers or strategies, the version and the coefficient of the KL penalty to a
 * checkpoint. After exo_learner_join, between two updates. learner_state.c */
void exo_learner_state(exo_learner *learner, exo_state *state);
/* Writes the model as a Hugging Face directory, which `model.path` can name, with the tokenizer of the
 * directory from which it began, and the LoRA of a model with `path`, its base, as an adapter of PEFT
 * to the directory `adapter`. IO, NOMEM, the device's; UNSUPPORTED: no family has this model. */
exo_status exo_learner_save(const exo_learner *learner, const char *folder, const char *adapter,
                            exo_err *err);

#endif
