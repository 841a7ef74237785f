/* Makers and trainers of language models, from C and without a YAML file.
 *
 *     exo_detached *run = NULL;
 *     exo_detached_new(&run, &(exo_detached_opts){.seed = 42}, err);
 *     exo_detached_makers(run, "maker", 2, &maker_opts, err);       maker_0, maker_1
 *     exo_detached_trainers(run, "trainer", 1, &trainer_opts, err); trainer_0
 *     exo_detached_workingloop(run, "maker", prompts, NULL, 1, experience_steps, err);
 *     exo_detached_fit(run, "trainer", total_steps, update_steps, train_epochs, err);
 *     exo_detached_wait(run, err);
 *
 * A run is a graph (docs/graph.md) of the classes `experience_maker` and `ppo_trainer`
 * (docs/ppo.md), or of makers and a trainer of texts, `sft_trainer`, `reward_trainer` or `dpo_trainer`
 * (docs/rlhf.md). exo_detached_wait writes and runs it; exo_detached_text gives its YAML. What a
 * program gives as functions (models, prompts, texts, rewards, callbacks) is of its process, so all
 * actors of such a run are threads of it.
 *
 * Threads: one at a time calls these functions. Each actor has a thread of its own, which calls the
 * functions that were given for it. */
#ifndef EXOGYM_EXPERIENCE_H
#define EXOGYM_EXPERIENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/model.h>
#include <exogym/reward.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

/* --- Callbacks -------------------------------------------------------------------------------- */

/* What an actor does, from its start to its end. */
typedef enum exo_experience_stage {
    EXO_MAKER_LOOP,       /* the whole run of a maker */
    EXO_MAKER_BATCH,      /* a batch: making and sending */
    EXO_MAKER_MAKE,       /* answers are generated and scored */
    EXO_MAKER_SEND,       /* an item is sent, which waits if there is no room */
    EXO_TRAINER_FIT,      /* the whole run of a trainer */
    EXO_TRAINER_EPISODE,  /* PPO: from the first item of an update until its version is sent */
    EXO_TRAINER_EPOCH,    /* an epoch of an update; of a trainer of texts a pass over the samples */
    EXO_TRAINER_BATCH,    /* a step of the optimizer */
    EXO_TRAINER_UPDATE,   /* PPO: a version is sent to the makers */
    EXO_TRAINER_EVALUATE, /* texts: the loss of the held-out samples is computed */
    EXO_EXPERIENCE_STAGES
} exo_experience_stage;

/* What a callback is told; valid during the call. */
typedef struct exo_experience_event {
    const char *actor; /* its name, such as "maker_0" */
    exo_experience_stage stage;
    uint64_t number;  /* of the stage in this run, from 0; PPO: of an epoch or step in its update */
    uint64_t version; /* of the weights that the actor has; texts: the steps so far */
    exo_time time;    /* since the start of the run, on its clock */
    uint64_t samples; /* answers that the actor has made or learned from so far */
} exo_experience_event;

/* Functions that an actor calls on its own thread, by stage; each may be NULL. */
typedef struct exo_experience_callbacks {
    /* when the stage starts */
    void (*start[EXO_EXPERIENCE_STAGES])(void *context, const exo_experience_event *event);
    /* when the stage has ended */
    void (*end[EXO_EXPERIENCE_STAGES])(void *context, const exo_experience_event *event);
    void *context; /* the first argument */
} exo_experience_callbacks;

/* --- Actors ----------------------------------------------------------------------------------- */

/* The models of an actor; those that it does not use are dropped. */
typedef struct exo_experience_models {
    exo_model *actor;  /* a language model: exo_model_new_named("gpt", ...) */
    exo_model *critic; /* with values; NULL: none */
    /* Makers: with values; its value at the last token scores an answer. NULL: `reward` or reward_fn */
    exo_model *reward_model;
    /* What the KL penalty keeps the policy to. Trainers compute with it; if they give none, it is that
     * of the makers' model_fn; NULL in both: version 0 of the policy. */
    exo_model *initial_model;
} exo_experience_models;

/* A maker's options. Zeroed members have their defaults. */
typedef struct exo_maker_opts {
    /* The model in YAML, such as "{name: gpt, size: small, context: 256, vocabulary: 256}"; NULL:
     * model_fn gives it, and maybe a reward model and an initial model. */
    const char *model;
    exo_status (*model_fn)(void *context, exo_experience_models *out, exo_err *err);
    /* The reward in YAML, such as "{name: share, token: 3}"; NULL: reward_fn scores answers, or, if
     * that is NULL, too, the reward model of model_fn. */
    const char *reward;
    exo_status (*reward_fn)(void *context, const exo_answer *answer, double *score, exo_err *err);
    /* The trainers that makers send experience to, by name, in YAML: "[trainer_0, trainer_1]" for all
     * makers, or a list for each: "{maker_0: [trainer_0], maker_1: [trainer_1]}"; NULL: the rule of
     * exo_detached_wait. Maker i of M makes the draws i, i + M, ..., and draw d is of trainer d mod T,
     * so a list needs the trainers j with j mod g = i mod g, g the greatest common divisor of M and T.
     * A replay buffer takes no lists. */
    const char *trainers;
    /* sync_models_from_trainers: false. Makers begin at once with their own weights, and make the draws
     * of the first update before version 0 has come; the default is to wait for it. In both cases
     * version 0 should be what the makers' models have, or the first ratios are not 1. */
    bool starts_at_once;
    /* Further keys of the class (docs/ppo.md): "answers: 4, generate: {max_new_tokens: 32}" */
    const char *options;
    exo_experience_callbacks callbacks; /* called by each maker on its own thread */
    void *context;                      /* the first argument of model_fn and reward_fn */
} exo_maker_opts;

/* A trainer's options. Zeroed members have their defaults. */
typedef struct exo_ppo_trainer_opts {
    const char *model, *critic; /* in YAML; model NULL: model_fn gives all */
    exo_status (*model_fn)(void *context, exo_experience_models *out, exo_err *err);
    uint64_t train_batch_size; /* items of a batch; 0 counts as 8 */
    /* Batches that wait in a replay buffer between makers and trainers, all trainers together; 0:
     * there is no such buffer. */
    uint64_t buffer_limit;
    /* The makers that trainers send versions to, as `trainers` of exo_maker_opts: "[maker_0]", or
     * "{trainer_0: [maker_0, maker_1]}"; NULL: the rule. Each maker needs a trainer that sends to it,
     * and, without a replay buffer, must send experience to each of these, with which it replies. */
    const char *makers;
    /* Further keys of the class: "algorithm: {name: grpo, kl_coef: 0.1}, staleness: 1" */
    const char *options;
    exo_experience_callbacks callbacks; /* called by each trainer on its own thread */
    void *context;                      /* the first argument of model_fn */
} exo_ppo_trainer_opts;

/* What a trainer learns from a text_fn: an answer to a prompt, or a comparison of two, as tokens. */
typedef struct exo_text_sample {
    const int32_t *prompt, *answer; /* answer: of a comparison the chosen one */
    const int32_t *rejected;        /* of a comparison */
    size_t prompt_length, answer_length, rejected_length; /* each at least 1 */
} exo_text_sample;

/* Options of trainers of texts. Zeroed members have their defaults. */
typedef struct exo_text_trainer_opts {
    /* The model in YAML, such as "{name: gpt, path: DIR, values: true}"; NULL: model_fn gives it, as
     * `actor`, or to trainers of reward models as `reward_model`. */
    const char *model;
    exo_status (*model_fn)(void *context, exo_experience_models *out, exo_err *err);
    /* The texts in YAML, such as "{path: answers.jsonl}"; NULL: text_fn gives them, or, if that is
     * NULL, too, trainers of reward models and of DPO compare the answers of the run's makers. */
    const char *data;
    /* Writes sample `index`, whose tokens are copied. Returns false after the last one. It is called
     * several times from 0 on, by one thread at a time: when the graph is checked, and when a trainer
     * begins, also a further life of it. */
    bool (*text_fn)(void *context, size_t index, exo_text_sample *out);
    uint64_t train_batch_size; /* samples of a step, for each trainer; 0 counts as 16 */
    /* Further keys of the class (docs/rlhf.md): "optimizer: {name: adamw, lr: 1e-3}" */
    const char *options;
    exo_experience_callbacks callbacks; /* called by each trainer on its own thread */
    void *context;                      /* the first argument of model_fn and text_fn */
} exo_text_trainer_opts;

/* --- Runs ------------------------------------------------------------------------------------- */

/* A run of detached makers and trainers. Owner: the caller, one thread at a time. */
typedef struct exo_detached exo_detached;

/* Options of a run; their texts are copied. */
typedef struct exo_detached_opts {
    uint64_t seed;      /* decides every random number */
    bool virtual_clock; /* predicts times instead of waiting */
    /* Further top-level keys in YAML, one a line, such as "links: {default: {latency: 5 ms}}"; may be
     * NULL */
    const char *network;
    const char *folder; /* an existing folder for the trainers' files; NULL: none */
} exo_detached_opts;

/* Makes a run without actors. The caller frees it. NOMEM. */
EXO_API exo_status exo_detached_new(exo_detached **out, const exo_detached_opts *opts,
                                    exo_err *err);
/* Frees *run and sets it to NULL; accepts NULL in it. */
EXO_API void exo_detached_free(exo_detached **run);

/* Adds makers NAME_0, NAME_1, ... or trainers. A run has one call for makers and one for trainers, of
 * PPO or of texts (below). Texts are copied. After an error the run is as before. EXISTS: it has such
 * already, or it has begun (exo_detached_wait); INVAL: the name, or neither a model nor a function;
 * NOMEM; those of model_fn. */
EXO_API exo_status exo_detached_makers(exo_detached *run, const char *name, uint32_t count,
                                       const exo_maker_opts *opts, exo_err *err);
EXO_API exo_status exo_detached_trainers(exo_detached *run, const char *name, uint32_t count,
                                         const exo_ppo_trainer_opts *opts, exo_err *err);

/* Adds trainers of texts: supervised fine-tuning, reward models from comparisons, DPO. Those of
 * fine-tuning have no makers. Of the others one can learn from makers; several, or one without makers,
 * learn from `data` or text_fn. In the run's folder NAME_0 writes its model to model_NAME_0, which
 * `model: {name: gpt, path: ...}` of another run begins with. Errors: as above; INVAL also without
 * texts. */
EXO_API exo_status exo_detached_sft_trainers(exo_detached *run, const char *name, uint32_t count,
                                             const exo_text_trainer_opts *opts, exo_err *err);
EXO_API exo_status exo_detached_reward_trainers(exo_detached *run, const char *name, uint32_t count,
                                                const exo_text_trainer_opts *opts, exo_err *err);
EXO_API exo_status exo_detached_dpo_trainers(exo_detached *run, const char *name, uint32_t count,
                                             const exo_text_trainer_opts *opts, exo_err *err);

/* A data loader of prompts: writes the tokens (*length) of prompt `index`, which are copied. Returns
 * false after the last one. It is called when the makers begin, once for each prompt and maker. */
typedef bool (*exo_dataloader_fn)(void *context, size_t index, const int32_t **tokens,
                                  size_t *length);

/* What the makers of `name` do: they pass num_epochs times over the prompts; with num_steps > 0 each
 * makes so many batches instead, and begins again when the prompts are used up. The default is 1
 * epoch. INVAL: num_epochs and num_steps are 0; NOT_FOUND: there are no such makers; EXISTS: the run has
 * begun. */
EXO_API exo_status exo_detached_workingloop(exo_detached *run, const char *name,
                                            exo_dataloader_fn dataloader, void *context,
                                            uint64_t num_epochs, uint64_t num_steps, exo_err *err);
/* What the trainers of `name` do: total_steps / update_steps episodes. In epoch 0 of an episode a
 * trainer takes update_steps batches and learns from each as it comes; in the epochs 1 to
 * train_epochs - 1 it learns from these batches again, in a drawn order. Then it sends one version to
 * the makers. INVAL: update_steps is 0 or does not divide total_steps, or train_epochs is 0;
 * NOT_FOUND: there are no such trainers; EXISTS: the run has begun.
 *
 * Trainers of texts pass train_epochs times over their samples; with total_steps > 0 they make so many
 * steps of the optimizer instead. They evaluate the held-out samples after every update_steps steps, and
 * after the last one; 0: only then. The default is 1 epoch, and an evaluation every 50 steps. INVAL:
 * total_steps and train_epochs are 0. */
EXO_API exo_status exo_detached_fit(exo_detached *run, const char *name, uint64_t total_steps,
                                    uint64_t update_steps, uint64_t train_epochs, exo_err *err);

/* The run as a graph in YAML. The caller frees it (exo_free). Actors for which functions were given
 * name these by a number, which is valid in this process until the run is freed. */
EXO_API exo_status exo_detached_text(const exo_detached *run, char **out, exo_err *err);
/* Runs the makers and trainers, and waits until all have ended. Once for each run. Of M makers and T
 * trainers without lists of targets, maker i sends to each trainer j with j mod M = i if M <= T, else
 * to trainer i mod T; a replay buffer sends item i to trainer i mod T. Trainer j sends versions to
 * each maker i with i mod T = j, so with more trainers than makers the last ones send none. Errors:
 * those of the options, with their place in the YAML; the first actor's own, with its name; EXISTS: the
 * run has begun, also if it has failed. */
EXO_API exo_status exo_detached_wait(exo_detached *run, exo_err *err);
/* A meter of an actor after the run, such as "score" of "trainer_0" (docs/meters.md). NOT_FOUND. */
EXO_API exo_status exo_detached_figure(const exo_detached *run, const char *actor,
                                       const char *meter, double *out, exo_err *err);

EXO_DECLS_END

#endif
