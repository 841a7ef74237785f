/* Gives the workers of a test of clusters a plugin with a fault, see tests/plugins/planted_victim.c. */
#ifndef EXO_TEST_PLANTED_WORKER_H
#define EXO_TEST_PLANTED_WORKER_H

#include "support/processes.h"

#undef PROCESSES_PLUGIN
#define PROCESSES_PLUGIN(name) EXO_PROGRAMS_DIR "/tests/plugins/planted_" name ".so"

#endif
