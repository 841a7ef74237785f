/* The registry of schedules, and the built-in classes (schedules.c). Read next: schedule.c. */
#ifndef EXO_SCHEDULES_H
#define EXO_SCHEDULES_H

#include <exogym/schedule.h>

#include "base/registry.h"

extern exo_registry exo_schedule_registry; /* of exo_schedule_class; schedule.c */

enum {
    EXO_NUM_SCHEDULES = 7
};

/* Pointers to exo_schedule_class. */
extern const void *const exo_builtin_schedules[EXO_NUM_SCHEDULES];

#endif
