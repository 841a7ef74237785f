/* A cluster of real processes: the built exogym-head and exogym-worker, in a folder of its own. For
 * programs without Criterion. With the thread sanitizer only drivers have it: the other programs
 * are those of the build EXO_CLUSTER_PROGRAMS.
 *
 * What a process prints goes to FOLDER/NAME.out, and to FOLDER/NAME.err, which processes_close
 * shows when the test has failed. */
#ifndef EXO_TEST_PROCESSES_H
#define EXO_TEST_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <exogym/cluster.h>

enum {
    PROCESSES_WORKERS = 4
};

typedef struct processes {
    char folder[64];
    pid_t head;                       /* 0: it does not run, as below              */
    pid_t workers[PROCESSES_WORKERS]; /* their watchers; the host is its child     */
    bool failed;
} processes;

void processes_open(processes *p);
/* Ends what runs with SIGTERM; then nothing may be left: process, socket, shared memory. False if
 * something is. Workers must be ready. */
bool processes_close(processes *p);

/* Starts a program of the build with words up to NULL; `ready`: waits for its line. Gives its pid,
 * 0 on failure. With `network`, in the network namespace of that name. */
pid_t processes_start(const processes *p, const char *network, const char *name, bool ready,
                      const char *const *words);
bool processes_start_head(processes *p);
bool processes_start_worker(processes *p, unsigned i, bool ready);
/* Has the latest process of that name said its line? */
bool processes_is_ready(const processes *p, const char *name);
/* The process that hosts a worker's actors; 0: there is none. */
pid_t processes_host_of(pid_t watcher);
/* Runs a program of the build to its end; gives what it printed. False: it failed. */
bool processes_output(const processes *p, const char *network, const char *const *words, char *text,
                      size_t size);
/* Waits until the child `pid` has ended, or `deadline`; *status as of waitpid. */
bool processes_await(pid_t pid, exo_time deadline, int *status);

/* Joins as a driver of job `job`. */
exo_cluster *processes_join(const processes *p, const char *job, exo_runtime **runtime);
void processes_leave(exo_cluster **cluster, exo_runtime **runtime);
/* Path of a plugin of the tests, a literal. */
#define PROCESSES_PLUGIN(name) EXO_PROGRAMS_DIR "/tests/plugins/" name ".so"

exo_time processes_now(void);
/* Descriptors that process `pid` has open; kB of memory that it has. */
unsigned processes_descriptors(pid_t pid);
unsigned long processes_memory(pid_t pid);
/* The number of an environment variable, or `otherwise`. */
uint64_t processes_setting(const char *name, uint64_t otherwise);
/* splitmix64. */
uint64_t processes_random(uint64_t *state);

#endif
