/* Processes of this host; process.h has the contracts. */
#include "net/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exogym/clock.h>

void
exo_boot_id(char out[EXO_BOOT_ID])
{
    struct stat space = {0};
    char kernel[40] = "";
    const char *given = getenv("EXOGYM_HOST_ID");
    if (given && *given) {
        snprintf(out, EXO_BOOT_ID, "%s", given);
        return;
    }
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (!fgets(kernel, sizeof kernel, file))
            kernel[0] = 0;
        fclose(file);
    }
    kernel[strcspn(kernel, "\n")] = 0;
    stat("/proc/self/ns/pid", &space);
    if (!kernel[0] || !space.st_ino) /* unknown: no other process counts as being on this host */
        snprintf(kernel, sizeof kernel, "%d-%" PRId64, (int)getpid(), exo_now(exo_clock_real()));
    snprintf(out, EXO_BOOT_ID, "%.36s/%" PRIx64, kernel, (uint64_t)space.st_ino);
}

/* Reads a field of /proc/PID/stat; 0: there is no such process. */
static uint64_t
stat_field(uint32_t pid, int wanted)
{
    char path[32], line[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    char *got = fgets(line, sizeof line, file);
    fclose(file);
    /* Field 2 is the program's name in brackets, which may contain anything. */
    char *at = got ? strrchr(line, ')') : NULL;
    for (int field = 2; at && field < wanted; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

uint64_t
exo_process_start(uint32_t pid)
{
    return stat_field(pid, 22);
}

uint32_t
exo_process_parent(uint32_t pid)
{
    return (uint32_t)stat_field(pid, 4);
}

int
exo_process_watch(uint32_t pid, uint64_t start)
{
    int fd = (int)syscall(SYS_pidfd_open, (long)pid, 0L);
    /* Checked after the descriptor is open: from then on it cannot become another process's. */
    if (fd >= 0 && exo_process_start(pid) != start) {
        close(fd);
        fd = -1;
    }
    return fd;
}
