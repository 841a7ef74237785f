/* A cluster of real processes: the built exogym-head and exogym-worker, in a temporary folder. For
 * programs without Criterion. Under the thread sanitizer only the drivers are instrumented: the
 * other programs are those of the build EXO_CLUSTER_PROGRAMS.
 *
 * The output of a process goes to FOLDER/NAME.out and FOLDER/NAME.err. processes_close shows the
 * latter after a failed test. */
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
    pid_t head;                       /* 0: not running; also of workers */
    pid_t workers[PROCESSES_WORKERS]; /* the watchers; a worker's host is the watcher's child */
    bool failed;
} processes;

void processes_open(processes *p);
/* Ends all processes with SIGTERM. Returns false if a process, socket or shared memory is left.
 * Workers must be ready. */
bool processes_close(processes *p);

/* Starts a program of the build with the words up to NULL. `ready`: waits until it prints a line.
 * With `network`, it runs in the network namespace of that name. Returns its pid, 0 on failure. */
pid_t processes_start(const processes *p, const char *network, const char *name, bool ready,
                      const char *const *words);
bool processes_start_head(processes *p);
bool processes_start_worker(processes *p, unsigned i, bool ready);
/* Has the latest process of that name printed its line? */
bool processes_is_ready(const processes *p, const char *name);
/* The process that hosts a worker's actors; 0: none. */
pid_t processes_host_of(pid_t watcher);
/* Runs a program of the build to its end and copies its output. False: it failed. */
bool processes_output(const processes *p, const char *network, const char *const *words, char *text,
                      size_t size);
/* Waits for the end of the child `pid` until `deadline`. *status is that of waitpid. */
bool processes_await(pid_t pid, exo_time deadline, int *status);

/* Joins as a driver of the job `job`. */
exo_cluster *processes_join(const processes *p, const char *job, exo_runtime **runtime);
void processes_leave(exo_cluster **cluster, exo_runtime **runtime);
/* The path of a test plugin, as a literal. */
#define PROCESSES_PLUGIN(name) EXO_PROGRAMS_DIR "/tests/plugins/" name ".so"

exo_time processes_now(void);
/* The number of open descriptors of process `pid`; its resident memory in kB. */
unsigned processes_descriptors(pid_t pid);
unsigned long processes_memory(pid_t pid);
/* The number in an environment variable, or `otherwise` if it is not set. */
uint64_t processes_setting(const char *name, uint64_t otherwise);
/* splitmix64. */
uint64_t processes_random(uint64_t *state);

#endif
