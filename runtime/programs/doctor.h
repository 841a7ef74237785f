/* The parts of `exogym doctor`. No state. */
#ifndef EXO_PROGRAMS_DOCTOR_H
#define EXO_PROGRAMS_DOCTOR_H

#include "programs/show.h"

enum {
    EXO_DOCTOR_LINE = 512
};

/* The first line of a small file; "": it cannot be read. */
void exo_doctor_read_line(const char *path, char line[EXO_DOCTOR_LINE]);
/* Adds a finding to the list; mend: what to do, or NULL where nothing is missing. */
void exo_finding_add(json_t *findings, const char *name, const char *value, const char *mend);
/* Adds the GPUs of this machine, and what is missing to use them (doctor_gpus.c). */
void exo_doctor_look_at_gpus(json_t *findings);

#endif
