/* What processes leave that end by themselves: core files, and reports of the sanitizers. For tests
 * that start programs.
 *
 * Each process gets a folder of its own to run in, FOLDER/NAME.cwd, where the kernel puts its core
 * file. */
#ifndef EXO_TEST_REMAINS_H
#define EXO_TEST_REMAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Lets processes that are started from now on leave core files, and reports in FOLDER. A
 * segmentation fault stays one. */
void remains_begin(const char *folder);
/* The folder for process `name` to run in, which is made; `program` is what gdb reads its core file
 * with. */
void remains_folder_of(const char *folder, const char *name, const char *program, char *out,
                       size_t size);
/* The test itself is about to end process `pid` with a signal that leaves core files: this one
 * shall not. */
void remains_none_of(pid_t pid);
/* Shows reports, and backtraces of core files where there is gdb. False: there are none. */
bool remains_show(const char *folder);
/* Says where the kernel puts core files if that is elsewhere. */
void remains_show_pattern(void);

#endif
