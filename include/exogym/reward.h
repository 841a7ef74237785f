/* Rewards of answers: classes of functions that score what a language model has generated.
 *
 * An `experience_maker` (docs/ppo.md) names a class in its config, as `reward: NAME` or `reward:
 * {name: NAME, ...}`, or several in a list, whose scores are added by `weight`. A plugin registers one of its own:
 *
 *     static exo_status score(void *self, const exo_answer *answer, double *out, exo_err *err) {
 *         *out = -fabs((double)answer->length - 20);
 *         return EXO_OK;
 *     }
 *     static const exo_reward_class twenty = {.name = "twenty", .help = "answers of 20 tokens", .score = score};
 *     EXO_PLUGIN { return exo_reward_class_register(&twenty, err); }
 *
 * Threads: each maker has a state of its own, which one thread uses at a time. */
#ifndef EXOGYM_REWARD_H
#define EXOGYM_REWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/config.h>
#include <exogym/status.h>
#include <exogym/tokenizer.h>

EXO_DECLS_BEGIN

/* An answer to score. Everything is borrowed for the call. */
typedef struct exo_answer {
    const int32_t *prompt; /* (prompt_length) */
    size_t prompt_length;
    const int32_t *tokens; /* (length) the answer, with the stop token that ended it */
    size_t length;
    /* (length) 1: the policy wrote the token; 0: the reply of a tool (tool.h). NULL: all the
     * policy's. */
    const uint8_t *mask;
    bool stopped;                   /* a stop token ended it, not its length */
    const exo_tokenizer *tokenizer; /* NULL: the prompts are token numbers */
} exo_answer;

/* A class of rewards: read-only, and valid as long as the process. */
typedef struct exo_reward_class {
    const char *name;  /* the name for `reward` in a config */
    const char *help;  /* one line, for `exogym list rewards` */
    size_t state_size; /* bytes of the state `self`, which begins zeroed */
    /* Reads the options. The caller refuses keys that were not read. May be NULL. */
    exo_status (*init)(void *self, exo_config *config, exo_err *err);
    /* Writes the score, which must be finite. An error ends the maker's run. */
    exo_status (*score)(void *self, const exo_answer *answer, double *out, exo_err *err);
    /* Frees what init allocated; called once, also after its failure. May be NULL. */
    void (*release)(void *self);
    /* Writes the scores (count) of many answers, each with the bits that `score` gives it. A maker
     * calls it with all answers that have ended. NULL: it calls `score` for one draw after the other,
     * and sends each before the next. */
    exo_status (*score_many)(void *self, const exo_answer *answers, size_t count, double *out,
                             exo_err *err);
    /* Prepares for scores, before the first one, in the thread of the maker, which begins its work:
     * opens a device, at `place` if its name has no number (exo_device_open_place). An error ends the
     * maker's run. May be NULL. */
    exo_status (*start)(void *self, uint32_t place, exo_err *err);
} exo_reward_class;

/* Registers a class under its name, which must be new. Any thread. Errors: EXISTS, INVAL, FULL. */
EXO_API exo_status exo_reward_class_register(const exo_reward_class *reward_class, exo_err *err);
/* The class of an index in the order of names; NULL after the last. Any thread. */
EXO_API const exo_reward_class *exo_reward_class_at(size_t index);

/* A reward: a class with its options, or a weighted sum of such. */
typedef struct exo_reward exo_reward;

/* Makes the reward that `config` names under `key`, as NAME or {name: NAME, ...}, or as a list of
 * these: the sum of their scores, each times its key `weight` (1). The caller frees it. INVAL (with its place): the key is missing, or names no class; NOMEM; those of the class. */
EXO_API exo_status exo_reward_read(exo_reward **out, exo_config *config, const char *key,
                                   exo_err *err);
/* Frees *reward and sets it to NULL; accepts NULL in it. */
EXO_API void exo_reward_free(exo_reward **reward);
/* Prepares for scores, on the device of `place` if a class computes on one whose name has no number.
 * Once, before the first score, or never: a device is then that of place 0. Errors: those of the class. */
EXO_API exo_status exo_reward_start(exo_reward *reward, uint32_t place, exo_err *err);
/* Scores an answer. FAILED: the score is not finite, or the class failed with CLOSED; else those of
 * the class. */
EXO_API exo_status exo_reward_score(exo_reward *reward, const exo_answer *answer, double *out,
                                    exo_err *err);

/* Scores answers (count): writes what exo_reward_score gives each. NOMEM; as exo_reward_score. */
EXO_API exo_status exo_reward_score_many(exo_reward *reward, const exo_answer *answers,
                                         size_t count, double *out, exo_err *err);
/* True: the class, or one of the sum, has score_many. */
EXO_API bool exo_reward_batches(const exo_reward *reward);

EXO_DECLS_END

#endif
