/* Processes of this host; process.h has the contracts. */
#include "net/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Reads a field of /proc/PID/stat; *out is 0 if there is no such process. False: the file cannot be
 * read now, for example because no descriptor is left. */
static bool
read_field(uint32_t pid, int wanted, uint64_t *out)
{
    char path[32], line[1024];
    *out = 0;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    const char *got = file ? fgets(line, sizeof line, file) : NULL;
    int number = !file || ferror(file) ? errno : ESRCH;
    if (file)
        fclose(file);
    if (!got) {
        errno = number;
        return number == ENOENT || number == ESRCH;
    }
    /* Field 2 is the program's name in brackets, which may contain anything. */
    char *at = strrchr(line, ')');
    for (int field = 2; at && field < wanted; field++)
        at = strchr(at + 1, ' ');
    *out = at ? strtoull(at + 1, NULL, 10) : 0;
    return true;
}

bool
exo_process_look(uint32_t pid, uint64_t *start)
{
    return read_field(pid, 22, start);
}

uint64_t
exo_process_start(uint32_t pid)
{
    uint64_t start;
    exo_process_look(pid, &start);
    return start;
}

bool
exo_process_has_ended(uint32_t pid, uint64_t start)
{
    uint64_t now;
    return exo_process_look(pid, &now) && now != start;
}

uint32_t
exo_process_parent(uint32_t pid)
{
    uint64_t parent;
    read_field(pid, 4, &parent);
    return (uint32_t)parent;
}

/* By what the process runs as: its folder in /proc is root's if it is not dumpable. */
bool
exo_process_is_own(uint32_t pid)
{
    char path[32], line[256];
    unsigned real, effective;
    bool own = false;
    snprintf(path, sizeof path, "/proc/%u/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Uid: %u %u", &real, &effective) == 2) {
            own = effective == geteuid();
            break;
        }
    if (file)
        fclose(file);
    return own;
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
