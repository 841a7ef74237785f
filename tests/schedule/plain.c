/* Runs the tests of a program of Criterion without Criterion's processes and messages: a library for
 * LD_PRELOAD that has main(), and what a test calls when it begins, fails and ends. The thread
 * sanitizer does not work with Criterion's processes, and under the schedule fuzzer their messages
 * take most of the time.
 *
 *   LD_PRELOAD=build/tsan/tests/plain.so setarch -R build/tsan/tests/test_unit_net [--filter SUITE/NAME]
 *
 * Each test is a process, which runs this program again with EXO_PLAIN_TEST set to the test's number.
 * EXO_PLAIN_SECONDS is the longest that a test may take (300), whatever its own timeout says. A
 * program with a main() of its own runs as without this library.
 *
 * State: the test of this process, set once. Read next: schedule.c, tools/stress.sh. */
#include <elf.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <criterion/stats.h>
#include <criterion/types.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SECONDS = 300,
    SKIPPED = 77
};

extern char **environ;

static const struct criterion_test *test;
static const struct criterion_suite *suite; /* NULL: it is not described */
static atomic_bool failed;

/* --- What tests call -------------------------------------------------------------------------- */

EXPORT void criterion_internal_test_setup(void);
EXPORT void criterion_internal_test_main(void (*run)(void));
EXPORT void criterion_internal_test_teardown(void);
EXPORT void criterion_send_assert(struct criterion_assert_stats *stats);
EXPORT _Noreturn void criterion_abort_test(void);
EXPORT void criterion_continue_test(void);
EXPORT _Noreturn void criterion_skip_test(const char *format, ...);
EXPORT void cri_asserts_passed_incr(void);
EXPORT int main(int argc, char **argv);

void
criterion_internal_test_setup(void)
{
    if (suite && suite->data && suite->data->init)
        suite->data->init();
    if (test->data->init)
        test->data->init();
}

void
criterion_internal_test_main(void (*run)(void))
{
    run();
}

void
criterion_internal_test_teardown(void)
{
    if (test->data->fini)
        test->data->fini();
    if (suite && suite->data && suite->data->fini)
        suite->data->fini();
}

void
criterion_send_assert(struct criterion_assert_stats *stats)
{
    if (stats->passed)
        return;
    atomic_store(&failed, true);
    fprintf(stderr, "%s:%u: %s\n", stats->file, stats->line, stats->message ? stats->message : "");
}

void
criterion_abort_test(void)
{
    _exit(1);
}

void
criterion_continue_test(void)
{
}

void
criterion_skip_test(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format + (*format == 'x'), arguments);
    va_end(arguments);
    fputc('\n', stderr);
    _exit(SKIPPED);
}

void
cri_asserts_passed_incr(void)
{
}

/* --- The program's tests ---------------------------------------------------------------------- */

static int
take_base(struct dl_phdr_info *info, size_t size, void *base)
{
    (void)size;
    *(uintptr_t *)base = info->dlpi_addr;
    return 1; /* the first is the program */
}

/* The pointers in a section of the program, in which Criterion's macros gather them. */
static void *
find_section(const char *name, size_t *count)
{
    struct stat info;
    uintptr_t base = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        abort();
    char *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED)
        abort();
    const Elf64_Ehdr *header = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + header->e_shoff);
    const char *names = file + sections[header->e_shstrndx].sh_offset;
    void *found = NULL;
    *count = 0;
    dl_iterate_phdr(take_base, &base);
    for (unsigned i = 0; i < header->e_shnum; i++)
        if (strcmp(names + sections[i].sh_name, name) == 0) {
            *count = sections[i].sh_size / sizeof(void *);
            found = (void *)(base + sections[i].sh_addr);
        }
    munmap(file, (size_t)info.st_size);
    return found;
}

static int
run_here(struct criterion_test *const *tests, size_t number)
{
    size_t count;
    struct criterion_suite *const *suites = find_section("cr_sts", &count);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* its group is not that of the process that runs all */
    test = tests[number];
    for (size_t i = 0; i < count; i++)
        if (suites[i] && strcmp(suites[i]->name, test->category) == 0)
            suite = suites[i];
    test->test();
    return atomic_load(&failed) ? 1 : 0;
}

/* --- Their processes -------------------------------------------------------------------------- */

/* Waits for a test's process, and ends what is left of its group. False: it took too long. */
static bool
await(pid_t pid, int *status)
{
    const char *text = getenv("EXO_PLAIN_SECONDS");
    long left = (text ? atol(text) : SECONDS) * 100;
    while (left > 0 && waitpid(pid, status, WNOHANG) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        left--;
    }
    kill(-pid, SIGKILL);
    if (left == 0)
        waitpid(pid, status, 0);
    return left > 0;
}

/* Whether the test ended as it should. */
static bool
run_apart(const struct criterion_test *t, size_t number, char *program)
{
    char text[32], *arguments[] = {program, NULL};
    posix_spawnattr_t attributes;
    pid_t pid;
    int status = 0;
    snprintf(text, sizeof text, "%zu", number);
    setenv("EXO_PLAIN_TEST", text, 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, &attributes, arguments, environ) != 0)
        abort();
    posix_spawnattr_destroy(&attributes);
    bool in_time = await(pid, &status);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
        number_of_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    bool good =
        in_time && (code == SKIPPED || (number_of_signal == t->data->signal &&
                                        (t->data->signal != 0 || code == t->data->exit_code)));
    printf("[%s] %s::%s%s\n", good ? "PASS" : "FAIL", t->category, t->name,
           in_time ? "" : ": it took too long");
    fflush(stdout);
    return good;
}

int
main(int argc, char **argv)
{
    size_t count = 0, ran = 0, bad = 0;
    struct criterion_test *const *tests = find_section("cr_tst", &count);
    const char *number = getenv("EXO_PLAIN_TEST"), *filter = "*";
    if (number)
        return run_here(tests, (size_t)atol(number));
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--filter") == 0)
            filter = argv[i + 1];
    for (size_t i = 0; i < count; i++) {
        char name[256];
        if (!tests[i] || tests[i]->data->disabled)
            continue;
        snprintf(name, sizeof name, "%s/%s", tests[i]->category, tests[i]->name);
        if (fnmatch(filter, name, 0) != 0)
            continue;
        ran++;
        bad += !run_apart(tests[i], i, argv[0]);
    }
    printf("%zu tests, %zu failed\n", ran, bad);
    return bad ? 1 : 0;
}
