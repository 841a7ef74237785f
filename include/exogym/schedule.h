/* Learning-rate schedules: a factor on the optimizer's rate, a pure function of the step.
 *
 * A job gives a schedule under `lr_scheduler`, as a name or a mapping:
 *
 *     lr_scheduler: {name: wsd, warmup_steps: 100, decay_steps: 500, max_steps: 5000}
 *
 * Every schedule has warmup_steps and max_steps. While t < warmup_steps the factor is t /
 * warmup_steps. max_steps is the end of the curve and defaults to the run's; with a number of its
 * own the curve stays the same when a run is made longer. A class reads its other options and
 * computes the factor after the warm-up.
 */
#ifndef EXOGYM_SCHEDULE_H
#define EXOGYM_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/config.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

/* A class of schedules. */
typedef struct exo_schedule_class {
    const char *name;  /* the name for `lr_scheduler` */
    const char *help;  /* one line, for `exogym list schedules` */
    size_t state_size; /* bytes of the state `self`, which begins zeroed */
    /* Reads the options of the class; the caller refuses unknown keys. Strings live as long as the
     * call. NULL: no options. */
    exo_status (*init)(void *self, exo_config *config, exo_err *err);
    /* The factor at step t >= warmup of a curve that ends at `end`. t may be beyond `end`, and
     * `end` may be less than `warmup`. The result is finite and at least 0, and depends on the
     * arguments only. Any thread. */
    double (*factor)(const void *self, uint64_t t, uint64_t warmup, uint64_t end);
    /* Frees the memory that init allocated. May be NULL. */
    void (*release)(void *self);
} exo_schedule_class;

/* A schedule with its options; read-only. */
typedef struct exo_schedule exo_schedule;

/* Reads the schedule under `key` of `map`, a name or a mapping; constant if the key is missing. If
 * only a name is given, the options stand beside the key in `map` (lr_scheduler: lambda_cosine,
 * warmup_steps: 100). Unknown keys are refused. The caller frees the schedule. Errors: INVAL (with
 * place; for an unknown name the text has the nearest name, or all names), NOMEM. */
EXO_API exo_status exo_schedule_read(exo_schedule **out, exo_config *map, const char *key,
                                     exo_err *err);
/* Frees *schedule and sets it to NULL; accepts NULL in it. */
EXO_API void exo_schedule_free(exo_schedule **schedule);
/* The factor on the learning rate at step t of a run of max_steps. A NULL schedule is constant:
 * 1. */
EXO_API float exo_schedule_factor(const exo_schedule *schedule, uint64_t t, uint64_t max_steps);

/* Registers a class under its name, which must be new. The class must live as long as the process.
 * Any thread. Errors: EXISTS, INVAL (no name, no factor), FULL (1024 classes). */
EXO_API exo_status exo_schedule_register(const exo_schedule_class *schedule_class, exo_err *err);
/* The class of an index in the order of names; NULL after the last. Any thread. */
EXO_API const exo_schedule_class *exo_schedule_class_at(size_t index);

EXO_DECLS_END

#endif
