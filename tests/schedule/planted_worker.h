/* Gives the workers of a cluster test a plugin with a fault: tests/plugins/planted_victim.c. Read
 * next: tests/schedule/planted.sh. */
#ifndef EXO_TEST_PLANTED_WORKER_H
#define EXO_TEST_PLANTED_WORKER_H

#include "support/processes.h"

#undef PROCESSES_PLUGIN
#define PROCESSES_PLUGIN(name) EXO_PROGRAMS_DIR "/tests/plugins/planted_" name ".so"

#endif
