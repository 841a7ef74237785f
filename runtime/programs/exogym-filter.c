/* The head's filter of system calls: see exogym-filter.h.
 *
 * A call that is not allowed is refused in one of two ways:
 *
 * - `attacks` are calls that the head never makes, but that an attacker who runs code in it needs
 *   next: to start a program, to trace a process, to load code into the kernel. The process names
 *   the call in its log and ends. Its cluster goes on, and the next head finds its state.
 * - All other calls fail as on a kernel that does not have them: ENOSYS, or EAFNOSUPPORT for a
 *   family of sockets. Libraries try newer calls first and fall back (glibc does for clone3, whose
 *   flags no filter can read), so that a newer libc does not break the head.
 *
 * A filter cannot read paths: the head's user and its unit (packaging/systemd) decide which files
 * it may write to. Read next: allowed. */
#include "programs/exogym-filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef EXO_UNFILTERED
/* the libraries of sanitizers and of coverage make other calls */
static const bool unfiltered = true;
#else
static const bool unfiltered = false;
#endif

/* --- Allowed calls ---------------------------------------------------------------------------- */

/* Allowed with any arguments. libseccomp leaves out calls that the architecture does not have. */
static const int allowed[] = {
    /* messages */
    SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(close),
    SCMP_SYS(bind), SCMP_SYS(listen), SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(connect),
    SCMP_SYS(shutdown), SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt), SCMP_SYS(sendto), SCMP_SYS(recvfrom), SCMP_SYS(sendmsg),
    SCMP_SYS(recvmsg), SCMP_SYS(sendmmsg), SCMP_SYS(recvmmsg), SCMP_SYS(poll), SCMP_SYS(ppoll),
    SCMP_SYS(select), SCMP_SYS(pselect6), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(eventfd2), SCMP_SYS(pipe2),
    /* rings: memory shared with a peer, and a watch on the peer's process */
    SCMP_SYS(memfd_create), SCMP_SYS(pidfd_open),
    /* memory, and keys that must not be swapped out; mmap and mprotect are below */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(mlock),
    SCMP_SYS(munlock),
    /* threads (ZeroMQ sets the scheduling policy of its threads to the current one); clone is
     * below */
    SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_getparam), SCMP_SYS(sched_getscheduler),
    SCMP_SYS(sched_setscheduler), SCMP_SYS(getcpu), SCMP_SYS(membarrier), SCMP_SYS(gettid),
    SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(restart_syscall),
    /* signals */
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait), SCMP_SYS(sigaltstack),
    /* time and random numbers */
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(getrandom),
    /* files: state (SQLite), lock, socket, keys of peers, /proc/PID/stat, names of hosts */
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(fstat),
    SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(statfs), SCMP_SYS(fstatfs), SCMP_SYS(access),
    SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat),
    SCMP_SYS(getcwd), SCMP_SYS(getdents64), SCMP_SYS(lseek), SCMP_SYS(pread64), SCMP_SYS(pwrite64),
    SCMP_SYS(ftruncate), SCMP_SYS(fallocate), SCMP_SYS(fsync), SCMP_SYS(fdatasync), SCMP_SYS(flock),
    SCMP_SYS(fcntl), SCMP_SYS(dup), SCMP_SYS(fchmod), SCMP_SYS(fchown), SCMP_SYS(umask),
    SCMP_SYS(unlink), SCMP_SYS(unlinkat), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2),
    SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir),
    /* identity of the process and the host */
    SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
    SCMP_SYS(getegid), SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getrlimit)};

/* --- Calls that end the process --------------------------------------------------------------- */

/* clone without CLONE_THREAD also ends it. */
static const int attacks[] = {
    /* start another program or process */
    SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(fork), SCMP_SYS(vfork),
    /* access the memory and files of other processes */
    SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
    SCMP_SYS(process_madvise), SCMP_SYS(pidfd_getfd), SCMP_SYS(kcmp), SCMP_SYS(open_by_handle_at),
    SCMP_SYS(userfaultfd),
    /* send signals to other processes */
    SCMP_SYS(kill), SCMP_SYS(tkill), SCMP_SYS(pidfd_send_signal), SCMP_SYS(rt_sigqueueinfo),
    /* change the kernel */
    SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(io_uring_setup), SCMP_SYS(init_module),
    SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load), SCMP_SYS(reboot), SCMP_SYS(add_key), SCMP_SYS(request_key),
    SCMP_SYS(keyctl), SCMP_SYS(personality), SCMP_SYS(syslog), SCMP_SYS(iopl), SCMP_SYS(ioperm),
    /* change the view of the machine */
    SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(setns),
    SCMP_SYS(unshare), SCMP_SYS(fsopen), SCMP_SYS(open_tree), SCMP_SYS(move_mount),
    SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(mknod), SCMP_SYS(mknodat),
    /* become another user */
    SCMP_SYS(setuid), SCMP_SYS(setgid), SCMP_SYS(setreuid), SCMP_SYS(setregid), SCMP_SYS(setresuid),
    SCMP_SYS(setresgid), SCMP_SYS(setgroups), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid),
    SCMP_SYS(capset)};

enum {
    NUM_NAMES = 512, /* the numbers of calls are smaller */
    BY_FILTER = 1    /* si_code: the kernel's SYS_SECCOMP, which libc's headers lack */
};

/* The calls' names. Filled before the filter is installed, because the signal handler that reads
 * them must not allocate. */
static const char *names[NUM_NAMES];

static size_t
append(char *line, size_t at, size_t size, const char *text)
{
    while (*text && at < size)
        line[at++] = *text++;
    return at;
}

static size_t
append_number(char *line, size_t at, size_t size, unsigned number)
{
    char digits[16];
    size_t first = sizeof digits;
    digits[--first] = 0;
    do
        digits[--first] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    return append(line, at, size, digits + first);
}

/* Handles SIGSYS: writes the head's last log line. It does not use printf, because another thread
 * may hold its lock. */
static void
refused(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    char line[256];
    int number = info->si_code == BY_FILTER ? info->si_syscall : -1;
    size_t size =
        append(line, 0, sizeof line, "level=error subsystem=HEAD event=forbidden_call call=");
    size = append(line, size, sizeof line,
                  number >= 0 && number < NUM_NAMES && names[number] ? names[number] : "?");
    size = append(line, size, sizeof line, " number=");
    size = append_number(line, size, sizeof line, number < 0 ? 0 : (unsigned)number);
    size = append(line, size, sizeof line,
                  " text=\"a head never does that: somebody may run code in it; it ends "
                  "(docs/security.md)\"\n");
    if (write(STDERR_FILENO, line, size) < 0)
        size = 0;
    signal(signal_number, SIG_DFL);
    raise(signal_number); /* delivered when this function returns */
}

/* --- Installation ----------------------------------------------------------------------------- */

#define IS(number, value)                                                                          \
    {                                                                                              \
        .arg = (number), .op = SCMP_CMP_EQ, .datum_a = (value)                                     \
    }
#define MASKED(number, mask, value)                                                                \
    {                                                                                              \
        .arg = (number), .op = SCMP_CMP_MASKED_EQ, .datum_a = (mask), .datum_b = (value)           \
    }

/* Allowed with these arguments only. */
static const struct {
    int call;
    unsigned count;
    struct scmp_arg_cmp arguments[2];
} restricted[] = {
    {SCMP_SYS(socket), 1, {IS(0, AF_UNIX)}},
    {SCMP_SYS(socket), 1, {IS(0, AF_INET)}},
    {SCMP_SYS(socket), 1, {IS(0, AF_INET6)}},
    /* libc queries the host's addresses */
    {SCMP_SYS(socket), 2, {IS(0, AF_NETLINK), IS(2, NETLINK_ROUTE)}},
    /* Executable memory must be a mapped file (libc's modules for names of hosts), and never memory
     * that was written. */
    {SCMP_SYS(mmap), 1, {MASKED(2, PROT_EXEC, 0)}},
    {SCMP_SYS(mmap),
     2,
     {MASKED(2, PROT_EXEC | PROT_WRITE, PROT_EXEC), MASKED(3, MAP_ANONYMOUS, 0)}},
    {SCMP_SYS(mprotect), 1, {MASKED(2, PROT_EXEC, 0)}},
    {SCMP_SYS(clone), 1, {MASKED(0, CLONE_THREAD, CLONE_THREAD)}},
    {SCMP_SYS(prctl), 1, {IS(0, PR_SET_NAME)}},
    {SCMP_SYS(prlimit64), 1, {IS(0, 0)}},  /* the process itself */
    {SCMP_SYS(ioctl), 1, {IS(1, TCGETS)}}, /* isatty */
    {SCMP_SYS(ioctl), 1, {IS(1, FIONREAD)}},
    {SCMP_SYS(ioctl), 1, {IS(1, FIONBIO)}},
};

static int
allow_restricted(scmp_filter_ctx filter)
{
    const struct scmp_arg_cmp own = IS(0, (scmp_datum_t)getpid());
    /* raise and abort send signals to the process itself */
    int failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, &own);
    for (size_t i = 0; failed == 0 && i < sizeof restricted / sizeof *restricted; i++)
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, restricted[i].call,
                                        restricted[i].count, restricted[i].arguments);
    return failed;
}

static int
refuse(scmp_filter_ctx filter)
{
    const struct scmp_arg_cmp process = MASKED(0, CLONE_THREAD, 0);
    int failed = seccomp_rule_add_array(filter, SCMP_ACT_TRAP, SCMP_SYS(clone), 1, &process);
    for (size_t i = 0; failed == 0 && i < sizeof attacks / sizeof *attacks; i++)
        failed = seccomp_rule_add_array(filter, SCMP_ACT_TRAP, attacks[i], 0, NULL);
    for (int family = 0; failed == 0 && family < AF_MAX; family++) {
        const struct scmp_arg_cmp that = IS(0, (scmp_datum_t)family);
        if (family != AF_UNIX && family != AF_INET && family != AF_INET6 && family != AF_NETLINK)
            failed = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket),
                                            1, &that);
    }
    return failed;
}

static int
build(scmp_filter_ctx filter)
{
    int failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    for (size_t i = 0; failed == 0 && i < sizeof allowed / sizeof *allowed; i++)
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, allowed[i], 0, NULL);
    if (failed == 0)
        failed = allow_restricted(filter);
    return failed == 0 ? refuse(filter) : failed;
}

exo_status
exo_filter_install(exo_err *err)
{
    if (unfiltered)
        return EXO_OK;
    struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    for (int i = 0; i < NUM_NAMES; i++)
        if (!names[i])
            names[i] = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, i); /* never freed */
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    int failed = filter ? build(filter) : -ENOMEM;
    if (failed == 0 && sigaction(SIGSYS, &action, NULL) != 0)
        failed = -errno;
    if (failed == 0)
        failed = seccomp_load(filter);
    seccomp_release(filter);
    if (failed != 0)
        return exo_fail(
            err, EXO_FAILED,
            "the kernel takes no filter of system calls: %s; --no-seccomp starts without one",
            strerror(-failed));
    return EXO_OK;
}
