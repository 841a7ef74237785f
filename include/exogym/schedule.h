/* Learning-rate schedules: a factor on the optimizer's rate, a pure function of the step.
 *
 * A schedule is read from `lr_scheduler`, a name or a mapping:
 *
 *     lr_scheduler: {name: wsd, warmup_steps: 100, decay_steps: 500, max_steps: 5000}
 *
 * Every schedule has warmup_steps (the factor is t / warmup_steps while t < warmup_steps) and
 * max_steps (where its curve ends: of the run, unless given; with a number of its own the curve
 * stays as it is when a run is made longer). A class reads its other options and gives the factor
 * after the warm-up.
 */
#ifndef EXOGYM_SCHEDULE_H
#define EXOGYM_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/config.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

/* A kind of schedule. */
typedef struct exo_schedule_class {
    const char *name;  /* what `lr_scheduler` names */
    const char *help;  /* one line, for `exogym list schedules` */
    size_t state_size; /* bytes of the zeroed `self` below */
    /* Reads its options; unknown keys are refused by the caller. Strings live as long as the call.
     * May be NULL: no options. */
    exo_status (*init)(void *self, exo_config *config, exo_err *err);
    /* The factor at step t, from warmup on, of a curve that ends at `end`; t may be beyond, and
     * `end` less than `warmup`. Finite, from 0. Any thread; the same for the same arguments. */
    double (*factor)(const void *self, uint64_t t, uint64_t warmup, uint64_t end);
    /* Frees what init allocated. May be NULL. */
    void (*release)(void *self);
} exo_schedule_class;

/* Read-only once it is made. */
typedef struct exo_schedule exo_schedule;

/* Reads `key` of `map`, a name or a mapping; constant if it is missing. Of a schedule that is given
 * by name alone, the options are read from `map` itself, beside the key (lr_scheduler:
 * lambda_cosine, warmup_steps: 100). Strict. INVAL, with its place: an unknown name is answered
 * with the nearest one, or all. NOMEM. */
EXO_API exo_status exo_schedule_read(exo_schedule **out, exo_config *map, const char *key,
                                     exo_err *err);
/* Frees it and sets *schedule to NULL; accepts NULL in it. */
EXO_API void exo_schedule_free(exo_schedule **schedule);
/* The factor on the learning rate at step t of a run of max_steps. NULL: constant, 1. */
EXO_API float exo_schedule_factor(const exo_schedule *schedule, uint64_t t, uint64_t max_steps);

/* Registers a class under its name, which must be new; it must live as long as the process. Any
 * thread. Errors: EXISTS, INVAL (no name, no factor), FULL (1024 of them). */
EXO_API exo_status exo_schedule_register(const exo_schedule_class *schedule_class, exo_err *err);
/* The i-th class in the order of names, or NULL after the last. Any thread. */
EXO_API const exo_schedule_class *exo_schedule_class_at(size_t index);

EXO_DECLS_END

#endif
