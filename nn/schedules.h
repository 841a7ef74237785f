/* The built-in schedules; nn/schedule.c has the registry that they are in. */
#ifndef EXO_SCHEDULES_H
#define EXO_SCHEDULES_H

#include <exogym/schedule.h>

enum {
    EXO_NUM_SCHEDULES = 7
};

/* Of exo_schedule_class. */
extern const void *const exo_builtin_schedules[EXO_NUM_SCHEDULES];

#endif
