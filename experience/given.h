/* What a C program gives to makers and trainers as functions (exogym/experience.h). A config names it
 * by a number, under `given`, which is of this process and valid until it is withdrawn.
 *
 * Any thread; the list has a lock. What a number names is read-only. Read next: detached.c. */
#ifndef EXO_GIVEN_H
#define EXO_GIVEN_H

#include <exogym/experience.h>

typedef struct exo_given {
    exo_status (*model)(void *context, exo_experience_models *out, exo_err *err);
    exo_status (*reward)(void *context, const exo_answer *answer, double *score, exo_err *err);
    exo_dataloader_fn dataloader;
    bool (*text)(void *context, size_t index, exo_text_sample *out);
    exo_experience_callbacks callbacks;
    void *context;            /* of model, reward and text */
    void *dataloader_context; /* of dataloader */
} exo_given;

/* Drops the models, and sets them to NULL. */
void exo_experience_models_drop(exo_experience_models *models);
/* Lists `given`, which the caller keeps until it withdraws it. NOMEM. */
exo_status exo_given_add(const exo_given *given, uint64_t *number, exo_err *err);
void exo_given_withdraw(uint64_t number);
/* Reads the key `given` of a mapping; *out is NULL without it. INVAL: nothing has the number. */
exo_status exo_given_read(const exo_given **out, exo_config *map, exo_err *err);
/* The model of a mapping with `given` and `role`: actor, critic, reward or initial; the caller drops
 * it. INVAL. */
exo_status exo_given_model(exo_model **out, exo_config *map, exo_err *err);

#endif
