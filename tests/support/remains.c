/* Core files and reports: see remains.h. */
#include "support/remains.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/check.h"

#ifdef __SANITIZE_THREAD__
/* For the test itself. Processes that it starts get their options from the environment. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *
__tsan_default_options(void)
{
    return "halt_on_error=1:abort_on_error=1:disable_coredump=0:handle_segv=0:second_deadlock_"
           "stack=1";
}
#endif

/* Puts the options `ours` before those in the variable. */
static void
set_options(const char *name, const char *ours, const char *folder)
{
    char options[1024];
    const char *theirs = getenv(name);
    int length = snprintf(options, sizeof options, "%s:log_path=%s/report:%s", ours, folder,
                          theirs ? theirs : "");
    CHECK(length > 0 && (size_t)length < sizeof options);
    CHECK(setenv(name, options, 1) == 0);
}

void
remains_begin(const char *folder)
{
    struct rlimit core;
    CHECK(getrlimit(RLIMIT_CORE, &core) == 0);
    core.rlim_cur = core.rlim_max;
    CHECK(setrlimit(RLIMIT_CORE, &core) == 0);
    CHECK(setenv("EXOGYM_DUMPABLE", "1", 1) == 0); /* otherwise the head writes none */
    /* verify_asan_link_order=0: the schedule fuzzer is loaded before the sanitizer's library */
    set_options("ASAN_OPTIONS",
                "verify_asan_link_order=0:abort_on_error=1:disable_coredump=0:handle_segv=0:allow_"
                "user_segv_handler=1",
                folder);
    set_options("TSAN_OPTIONS", "halt_on_error=1:abort_on_error=1:disable_coredump=0:handle_segv=0",
                folder);
}

void
remains_folder_of(const char *folder, const char *name, const char *program, char *out, size_t size)
{
    char link[256];
    CHECK(snprintf(out, size, "%s/%s.cwd", folder, name) < (int)size);
    CHECK(snprintf(link, sizeof link, "%s/program", out) < (int)sizeof link);
    mkdir(out, 0700);
    unlink(link);
    CHECK(symlink(program, link) == 0);
}

void
remains_none_of(pid_t pid)
{
    struct rlimit before;
    if (prlimit(pid, RLIMIT_CORE, NULL, &before) == 0)
        prlimit(pid, RLIMIT_CORE, &(struct rlimit){.rlim_max = before.rlim_max}, NULL);
}

static void
show_file(const char *path)
{
    char text[4096];
    size_t length;
    FILE *file = fopen(path, "re");
    fprintf(stderr, "--- %s\n", path);
    while (file && (length = fread(text, 1, sizeof text, file)) > 0)
        fwrite(text, 1, length, stderr);
    if (file)
        fclose(file);
}

static void
show_core(const char *folder, const char *core)
{
    char command[1024];
    fprintf(stderr, "--- %s/%s\n", folder, core);
    fflush(stderr);
    snprintf(command, sizeof command,
             "cd '%s' && command -v gdb >&2 && env -u LD_PRELOAD timeout 60 gdb -nx -batch -ex "
             "'thread apply all backtrace' "
             "\"$(readlink program)\" '%s' >&2",
             folder, core);
    if (system(command) != 0)
        fprintf(stderr, "gdb, which shows what it was doing, is not there or failed\n");
}

/* Shows the core files in a process's folder. */
static bool
show_cores(const char *folder)
{
    bool any = false;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (strstr(e->d_name, "core")) {
            show_core(folder, e->d_name);
            any = true;
        }
    }
    if (dir)
        closedir(dir);
    return any;
}

bool
remains_show(const char *folder)
{
    bool any = false;
    char path[600];
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        size_t length = strlen(e->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strncmp(e->d_name, "report", 6) == 0) {
            show_file(path);
            any = true;
        } else if (length > 4 && strcmp(e->d_name + length - 4, ".cwd") == 0) {
            any = show_cores(path) || any;
        }
    }
    if (dir)
        closedir(dir);
    return any;
}

void
remains_show_pattern(void)
{
    char pattern[256] = "";
    FILE *file = fopen("/proc/sys/kernel/core_pattern", "re");
    if (file && fgets(pattern, sizeof pattern, file) && strchr("/|", pattern[0]))
        fprintf(stderr, "core files, if there are any, go to %s", pattern);
    if (file)
        fclose(file);
}
