/* Remains of crashed processes: core files and reports of the sanitizers. For tests that start
 * programs.
 *
 * Each process runs in its own folder FOLDER/NAME.cwd, to which the kernel writes its core file. */
#ifndef EXO_TEST_REMAINS_H
#define EXO_TEST_REMAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Enables core files, and reports in FOLDER, for all processes that are started afterwards.
 * Sanitizers do not handle segmentation faults, so that these leave core files, too. */
void remains_begin(const char *folder);
/* Makes the folder of process `name` and writes its path to `out`. `program`: the path that gdb
 * needs to read the core file. */
void remains_folder_of(const char *folder, const char *name, const char *program, char *out,
                       size_t size);
/* Disables the core file of process `pid`, which the test is going to end with a signal that leaves
 * one. */
void remains_none_of(pid_t pid);
/* Shows reports, and backtraces of core files if gdb is installed. False: there were none. */
bool remains_show(const char *folder);
/* Prints where the kernel writes core files, if that is elsewhere. */
void remains_show_pattern(void);

#endif
