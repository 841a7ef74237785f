/* A tuner: it trains a language model on texts, by one of three losses. It is independent of actors;
 * text_trainer.c is the actor that tunes.
 *
 *   answers      the mean of -log p(token) over the tokens of the answers (supervised fine-tuning)
 *   ranking      -log sigmoid(r(chosen) - r(rejected)), where r is the model's value at the last
 *                token (reward models: Ouyang et al., 2022, arXiv:2203.02155, eq. 1)
 *   dpo          the same of beta (log p / p_0) of whole answers, where p_0 is the model at the start
 *                (Rafailov et al., 2023, arXiv:2305.18290, eq. 7)
 *
 * A step takes `batch` samples for each of N tuners. Sample i of a step belongs to tuner i mod N, and
 * an all_reduce adds up their gradients, so N tuners take the step of one with N times the batch.
 * The order of the samples depends on the seed and the epoch only.
 *
 * Owner: the caller, one thread at a time. Read next: text_rows.h. */
#ifndef EXO_TUNER_H
#define EXO_TUNER_H

#include <exogym/comm.h>
#include <exogym/model.h>
#include <exogym/state.h>

#include "experience/texts.h"

typedef enum exo_tuner_kind {
    EXO_TUNER_ANSWERS,
    EXO_TUNER_RANKING,
    EXO_TUNER_DPO,
} exo_tuner_kind;

/* Means over samples, of all tuners. */
typedef struct exo_tuner_figures {
    double loss;
    double accuracy; /* share of comparisons whose chosen answer has the larger score */
    double margin;   /* mean of the score of the chosen answer less that of the rejected one */
    /* of `ranking`: of the scores of the reference answers, or of all answers if there are none */
    double mean, deviation;
    double norm; /* of a step's gradient, before it is clipped */
    uint64_t samples;
    uint64_t own_answers, own_tokens; /* of a step: this tuner's part */
} exo_tuner_figures;

typedef struct exo_tuner exo_tuner;

/* Reads a tuner from the keys model, data, validation, batch, rows, epochs, steps, optimizer, max_norm,
 * lr_scheduler, device and those of its loss (smoothing, beta). Without `data`, texts must be added. The caller frees it.
 * INVAL (with its place), IO, NOMEM. */
exo_status exo_tuner_read(exo_tuner **out, exo_config *config, exo_tuner_kind kind, exo_err *err);
void exo_tuner_free(exo_tuner **tuner);
/* Operations to learn from a token: of a forward and a backward pass, and of dpo the pass of the model
 * at the start. */
double exo_tuner_flop_a_token(const exo_tuner *tuner);
/* True: the config has `data`. */
bool exo_tuner_has_data(const exo_tuner *tuner);
/* Adds the next comparison or answer, one text after the other. INVAL: the model does not take it;
 * NOMEM. */
exo_status exo_tuner_add(exo_tuner *tuner, const int32_t *prompt_tokens, size_t prompt,
                         const int32_t *answer_tokens, size_t answer, exo_err *err);
/* Adds a reference answer, whose score counts in `mean` and `deviation` of evaluations. Errors: as
 * above. */
exo_status exo_tuner_add_reference(exo_tuner *tuner, const int32_t *prompt_tokens, size_t prompt,
                                   const int32_t *answer_tokens, size_t answer, exo_err *err);
/* The share of the samples that is held out. */
double exo_tuner_validation(const exo_tuner *tuner);

/* The device's name in the options; the device, after exo_tuner_start. */
const char *exo_tuner_device_name(const exo_tuner *tuner);
exo_device *exo_tuner_device(const exo_tuner *tuner);

/* Opens the device, at `place` if its name has no number, draws or reads the weights there, and divides
 * the samples: the last ones, `validation` of them, are held out. INVAL: there are too few; NOMEM; those
 * of exo_device_open_place, and the device's. */
exo_status exo_tuner_start(exo_tuner *tuner, uint64_t seed, uint32_t rank, uint32_t size,
                           uint32_t place, exo_err *err);
/* The number of steps of the run, of those that pass once over the samples, and of held-out samples. */
uint64_t exo_tuner_steps(const exo_tuner *tuner);
uint64_t exo_tuner_epoch_steps(const exo_tuner *tuner);
size_t exo_tuner_held_out(const exo_tuner *tuner);

/* Takes step `step`, which counts from 0. All tuners call this together; `group` is NULL if there is
 * one. FAILED: the loss is not finite; NOMEM; those of the group, and the device's. */
exo_status exo_tuner_step(exo_tuner *tuner, exo_group *group, uint64_t step,
                          exo_tuner_figures *figures, exo_err *err);
/* Figures of the held-out samples, or of those that are trained on if none are held out. Errors: as
 * above. */
exo_status exo_tuner_evaluate(exo_tuner *tuner, exo_group *group, exo_tuner_figures *figures,
                              exo_err *err);

/* Lists the weights, the optimizer's state and a hash of the texts for a checkpoint between two steps.
 * `texts` (64) is the caller's memory: the hash, and after a load that of the texts that the
 * checkpoint was made with. NOMEM. */
exo_status exo_tuner_state(exo_tuner *tuner, exo_state *state, char texts[64], exo_err *err);
/* Writes the model as a Hugging Face directory, with the tokenizer of its texts, or, if they have none,
 * that of the directory from which it began. IO, NOMEM, the device's; UNSUPPORTED. */
exo_status exo_tuner_save(const exo_tuner *tuner, const char *folder, exo_err *err);
/* Writes the LoRA of a model with `path`, its base, as an adapter of PEFT; of others nothing. IO,
 * NOMEM, the device's; UNSUPPORTED. */
exo_status exo_tuner_save_adapter(const exo_tuner *tuner, const char *folder, exo_err *err);
/* The SHA-256 of the parameters. NOMEM, the device's. */
exo_status exo_tuner_sha256(const exo_tuner *tuner, char out[65], exo_err *err);

#endif
