/* A fault that the schedule fuzzer and the sanitizers must find: a path in one static buffer, which
 * every call overwrites. The fault once was in tests/support: while one thread packed the path into
 * a message, another thread wrote it, and the packing overflowed its block. This header is included
 * first into the cluster test of which test_planted_driver is made. Read next:
 * tests/schedule/planted.sh. */
#ifndef EXO_TEST_PLANTED_DRIVER_H
#define EXO_TEST_PLANTED_DRIVER_H

#include <stdio.h>

#include "support/processes.h"

static inline const char *
planted_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/tests/plugins/%s.so", EXO_PROGRAMS_DIR, name);
    return path;
}

#undef PROCESSES_PLUGIN
#define PROCESSES_PLUGIN(name) planted_path(name)

#endif
