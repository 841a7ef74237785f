/* A source of experience: it generates answers to prompts with a version of a model's weights, scores them, and
 * makes items of experience. It is independent of actors; maker.c is the actor that samples.
 *
 * The answers to a draw depend on the run's seed, the draw and the weights, to the bit: not on the
 * maker, the batch, or the answers before. Answer a of draw d is sequence d A + a of the generator,
 * whose random numbers have the key (seed, TOKEN, sequence, position).
 *
 * Owner: the caller, one thread at a time. Read next: experience.h. */
#ifndef EXO_EXPERIENCE_SOURCE_H
#define EXO_EXPERIENCE_SOURCE_H

#include <exogym/comm.h>
#include <exogym/model.h>

#include "experience/experience.h"
#include "experience/prompts.h"

typedef struct exo_experience_source exo_experience_source;

/* Reads a source from the keys model, prompts, reward, answers, batch, generate, tool, weights, device
 * and parallel of a config. Draws the weights of version 0 only in exo_experience_source_start. The
 * caller frees it. INVAL (with its place), IO, NOMEM. */
exo_status exo_experience_source_read(exo_experience_source **out, exo_config *config,
                                      exo_err *err);
/* Frees the generator of a group's member, so that the group can be closed. Nothing is generated any
 * more. */
void exo_experience_source_end(exo_experience_source *source);
void exo_experience_source_free(exo_experience_source **source);

/* Opens the device, the place-th if its name has no number, and prepares the generator there with the
 * weights that `seed` draws, which are version 0. From now on the source belongs to this thread unless
 * the device is the CPU. group: NULL, or the
 * members that share each generation (exo_generator_opts.group); each has its part, begins the same
 * draws and calls the same functions, up to exo_experience_source_take. NOMEM; those of
 * exo_device_open_place, and the device's. */
exo_status exo_experience_source_start(exo_experience_source *source, uint64_t seed, uint32_t place,
                                       exo_group *group, exo_err *err);
/* The members that share a generation: `parallel: {tensor: T}`, else 1. */
uint32_t exo_experience_source_tensor(const exo_experience_source *source);

/* The device's name in the options. */
const char *exo_experience_source_device_name(const exo_experience_source *source);

/* The number of prompts; the most draws at once; the most tokens of an answer; the number of learned
 * parameters. */
size_t exo_experience_source_prompts(const exo_experience_source *source);
size_t exo_experience_source_batch(const exo_experience_source *source);
size_t exo_experience_source_length(const exo_experience_source *source);
size_t exo_experience_source_numel(const exo_experience_source *source);

/* --- Weights ---------------------------------------------------------------------------------- */

/* The model, its parameters of version 0, the generator and its format: the source's. */
exo_model *exo_experience_source_model(exo_experience_source *source);
exo_params *exo_experience_source_params(exo_experience_source *source);
/* The part of a member of a group, which the parameters above are of; else NULL. */
exo_model *exo_experience_source_part(exo_experience_source *source);
exo_generator *exo_experience_source_generator(exo_experience_source *source);
exo_weight_format exo_experience_source_format(const exo_experience_source *source);
uint64_t exo_experience_source_version(const exo_experience_source *source);

/* What becomes of answers under way when the weights change. */
typedef enum exo_kv {
    EXO_KV_RECOMPUTE, /* the cache of their tokens is computed anew, and they go on */
    EXO_KV_KEEP,      /* they go on with the cache that the old weights computed */
    EXO_KV_RESET,     /* they begin again after their prompts */
} exo_kv;
/* The generator has the weights of a version now. Errors: those of exo_generator_submit. */
exo_status exo_experience_source_renew(exo_experience_source *source, uint64_t version, exo_kv kv,
                                       exo_err *err);

/* Drops all draws under way. Errors: those of exo_generator_cancel. */
exo_status exo_experience_source_abandon(exo_experience_source *source, exo_err *err);

/* --- Draws ------------------------------------------------------------------------------------ */

/* How many draws can be begun now. */
size_t exo_experience_source_room(const exo_experience_source *source);
/* The number of draws that were begun and not taken. */
size_t exo_experience_source_active(const exo_experience_source *source);
/* Whether a draw is under way. */
bool exo_experience_source_has(const exo_experience_source *source, uint64_t draw);
/* The number of answers under way that have had no token since the weights changed. */
size_t exo_experience_source_waiting(const exo_experience_source *source);
/* The number of answers under way that have not ended. */
size_t exo_experience_source_unfinished(const exo_experience_source *source);
/* Begins the answers to a draw that is not under way. NOMEM; FULL: there is no room. */
exo_status exo_experience_source_begin(exo_experience_source *source, uint64_t draw, exo_err *err);
/* Gives every answer under way one more token, after its prompt. FAILED: the weights give logits that
 * are not finite; the device's. */
exo_status exo_experience_source_step(exo_experience_source *source, exo_err *err);
/* Takes the least draw of which all answers have ended, as an item, which the caller drops; *item
 * is NULL if there is none. NOMEM; the reward's. */
exo_status exo_experience_source_take(exo_experience_source *source, uint64_t maker,
                                      exo_item **item, exo_err *err);

#endif
