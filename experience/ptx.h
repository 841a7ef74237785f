/* The ptx loss of a learner: the cross-entropy of texts, which keeps a policy close to them while it
 * learns from rewards (Ouyang et al., 2022, arXiv:2203.02155, eq. 2). Each step of the optimizer draws
 * `batch` texts by the run's seed and the step's number. Text i belongs to slice i mod S.
 *
 * Owner: the learner. Read next: learner_impl.h. */
#ifndef EXO_PTX_H
#define EXO_PTX_H

#include <exogym/model.h>

#include "experience/text_rows.h"

typedef struct exo_ptx exo_ptx;

/* A slice of a step. */
typedef struct exo_ptx_place {
    uint64_t seed, step;
    uint64_t slice, slices;
    uint32_t stream; /* learners with other streams draw other texts */
} exo_ptx_place;

/* Reads `ptx`: {coef, batch, and the keys of exo_texts_read}; *out is NULL if the key is missing. The
 * caller frees it. INVAL (with its place), IO, NOMEM. */
exo_status exo_ptx_read(exo_ptx **out, exo_config *config, const exo_model *model, exo_err *err);
void exo_ptx_free(exo_ptx **ptx);
/* Adds coef times the gradient of the loss to the model's, as far as it comes from a slice. *loss: the
 * slice's part of the mean over all targets of the step. */
exo_status exo_ptx_add(exo_ptx *ptx, const exo_ptx_place *place, const exo_model *model,
                       exo_tape *tape, exo_params *params, float *loss, exo_err *err);

#endif
