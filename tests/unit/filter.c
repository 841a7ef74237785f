/* The head's filter of system calls: the calls that it refuses, and those that it permits. A child
 * process installs the filter and makes each call. Read next: runtime/programs/exogym-filter.h. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/exogym-filter.h"

/* The end of a child process. */
struct ended {
    int status;
    char said[4096];
};

/* Forks a child that installs the filter and calls `act`. The result of `act` is the exit
 * status. */
static struct ended
confined(int (*act)(void))
{
    struct ended ended = {0};
    int ends[2];
    size_t size = 0;
#ifdef EXO_UNFILTERED
    cr_skip_test("the filter is off under sanitizers");
#endif
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        exo_err err = {0};
        prctl(PR_SET_DUMPABLE, 0); /* no core file */
        dup2(ends[1], STDERR_FILENO);
        if (exo_filter_install(&err) != EXO_OK) {
            if (write(STDERR_FILENO, err.text, strlen(err.text)) < 0)
                _exit(101);
            _exit(100);
        }
        _exit(act());
    }
    close(ends[1]);
    for (ssize_t n; size < sizeof ended.said - 1 &&
                    (n = read(ends[0], ended.said + size, sizeof ended.said - 1 - size)) > 0;)
        size += (size_t)n;
    close(ends[0]);
    cr_assert_eq(waitpid(child, &ended.status, 0), child);
    return ended;
}

/* Expects that SIGSYS ends the process and that its last line names the call. */
static void
ends_at(const char *call, int (*act)(void))
{
    char expected[64];
    struct ended ended = confined(act);
    cr_expect(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGSYS,
              "%s: status %x, said '%s'", call, (unsigned)ended.status, ended.said);
    snprintf(expected, sizeof expected, " event=forbidden_call call=%s number=", call);
    cr_expect(strstr(ended.said, expected), "%s: said '%s'", call, ended.said);
}

static void
returns(int expected, const char *what, int (*act)(void))
{
    struct ended ended = confined(act);
    cr_expect(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == expected,
              "%s: status %x instead of %d, said '%s'", what, (unsigned)ended.status, expected,
              ended.said);
}

/* --- Calls that end the process --------------------------------------------------------------- */

static int
start_program(void)
{
    char *const arguments[] = {"true", NULL};
    return execv("/bin/true", arguments);
}

static int
start_program_of_descriptor(void)
{
    char *const arguments[] = {"true", NULL};
    int fd = open("/bin/true", O_RDONLY);
    return (int)syscall(SYS_execveat, fd, "", arguments, NULL, 0x1000 /* AT_EMPTY_PATH */);
}

static int
start_process(void)
{
    return (int)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L) == 0 ? 0 : 1;
}

static int
spawn_program(void)
{
    char *const arguments[] = {"true", NULL};
    pid_t child = 0;
    return posix_spawn(&child, "/bin/true", NULL, NULL, arguments, NULL);
}

static int
trace(void)
{
    return (int)ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static int
read_other_memory(void)
{
    return (int)syscall(SYS_process_vm_readv, (long)getppid(), 0L, 0L, 0L, 0L, 0L);
}

static int
take_other_descriptor(void)
{
    return (int)syscall(SYS_pidfd_getfd, 0L, 0L, 0L);
}

static int
end_other_process(void)
{
    return kill(getppid(), 0);
}

static int
load_program_into_kernel(void)
{
    return (int)syscall(SYS_bpf, 0L, 0L, 0L);
}

static int
leave_namespace(void)
{
    return unshare(CLONE_NEWUSER);
}

static int
change_user(void)
{
    return (int)syscall(SYS_setuid, 0L);
}

Test(filter, what_only_an_attacker_does_ends_the_process)
{
    ends_at("execve", start_program);
    ends_at("execveat", start_program_of_descriptor);
    ends_at("clone", start_process);
    ends_at("ptrace", trace);
    ends_at("process_vm_readv", read_other_memory);
    ends_at("pidfd_getfd", take_other_descriptor);
    ends_at("kill", end_other_process);
    ends_at("bpf", load_program_into_kernel);
    ends_at("unshare", leave_namespace);
    ends_at("setuid", change_user);
}

/* libc blocks all signals in posix_spawn, so no last line is written. */
Test(filter, programs_are_not_spawned_either)
{
    struct ended ended = confined(spawn_program);
    cr_expect(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGSYS, "status %x",
              (unsigned)ended.status);
}

/* --- Calls that fail -------------------------------------------------------------------------- */

static int
raw_packets(void)
{
    return socket(AF_PACKET, SOCK_RAW, 0) < 0 ? errno : 0;
}

static int
virtual_machine(void)
{
    return socket(AF_VSOCK, SOCK_STREAM, 0) < 0 ? errno : 0;
}

static int
audit(void)
{
    return socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT) < 0 ? errno : 0;
}

static int
written_code(void)
{
    return mmap(NULL, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                   MAP_FAILED
               ? errno
               : 0;
}

static int
memory_made_code(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0 ? errno : 0;
}

static int
dumpable_again(void)
{
    return prctl(PR_SET_DUMPABLE, 1) != 0 ? errno : 0;
}

static int
limits_of_other(void)
{
    struct rlimit limit;
    return prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit) != 0 ? errno : 0;
}

static int
unknown_call(void)
{
    return syscall(1000L) < 0 ? errno : 0;
}

Test(filter, what_is_not_listed_fails_as_if_the_kernel_had_it_not)
{
    returns(EAFNOSUPPORT, "AF_PACKET", raw_packets);
    returns(EAFNOSUPPORT, "AF_VSOCK", virtual_machine);
    returns(ENOSYS, "NETLINK_AUDIT", audit);
    returns(ENOSYS, "writable code", written_code);
    returns(ENOSYS, "memory that becomes code", memory_made_code);
    returns(ENOSYS, "PR_SET_DUMPABLE", dumpable_again);
    returns(ENOSYS, "prlimit of another", limits_of_other);
    returns(ENOSYS, "a call that nobody knows", unknown_call);
}

/* --- Calls that succeed ----------------------------------------------------------------------- */

static void *
thread_main(void *argument)
{
    *(bool *)argument = true;
    return NULL;
}

static int
work(void)
{
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
    bool ran = false;
    pthread_t thread;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        int fd = socket(families[i], SOCK_STREAM, 0);
        if (fd < 0 && errno != EAFNOSUPPORT) /* a kernel without IPv6 */
            return 1;
        close(fd);
    }
    if (pthread_create(&thread, NULL, thread_main, &ran) != 0 || pthread_join(thread, NULL) != 0 ||
        !ran)
        return 2;
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file || fgetc(file) == EOF || fclose(file) != 0)
        return 3;
    int memory = memfd_create("filter", MFD_CLOEXEC);
    if (memory < 0 || ftruncate(memory, 4096) != 0)
        return 4;
    return 0;
}

Test(filter, what_a_head_does_goes_on)
{
    returns(0, "work", work);
}

/* The filter also holds for threads that run already. */
static pthread_barrier_t installed;

static void *
late_main(void *argument)
{
    (void)argument;
    pthread_barrier_wait(&installed);
    start_program();
    return NULL;
}

Test(filter, holds_for_threads_that_run_already)
{
    struct ended ended = {0};
#ifdef EXO_UNFILTERED
    cr_skip_test("the filter is off under sanitizers");
#endif
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        prctl(PR_SET_DUMPABLE, 0);
        pthread_barrier_init(&installed, NULL, 2);
        if (pthread_create(&thread, NULL, late_main, NULL) != 0 ||
            exo_filter_install(NULL) != EXO_OK)
            _exit(100);
        pthread_barrier_wait(&installed);
        pthread_join(thread, NULL);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &ended.status, 0), child);
    cr_expect(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGSYS, "status %x",
              (unsigned)ended.status);
}
