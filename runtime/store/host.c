/* Limits, read from the kernel's files; host.h has the contracts. No state. */
#include "store/host.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Reads the number in a file; UINT64_MAX: there is no such file, or it says "max". */
static uint64_t
number_in(const char *path)
{
    FILE *stream = fopen(path, "re");
    unsigned long long value = 0;
    int found = stream ? fscanf(stream, "%llu", &value) : 0;
    if (stream)
        fclose(stream);
    return found == 1 ? value : UINT64_MAX;
}

/* The least limit of the group `path` under `mount` and of the groups above it. In a container that
 * sees its own group as the root, `path` does not exist; then the root's file has the limit. */
static uint64_t
least_limit(const char *mount, const char *path, const char *file)
{
    uint64_t least = UINT64_MAX;
    char group[PATH_MAX], name[2 * PATH_MAX];
    snprintf(group, sizeof group, "%s", path);
    for (;;) {
        snprintf(name, sizeof name, "%s%s/%s", mount, group, file);
        uint64_t limit = number_in(name);
        if (limit < least)
            least = limit;
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

uint64_t
exo_memory_limit_in(const char *groups, const char *root, uint64_t machine)
{
    uint64_t least = machine ? machine : UINT64_MAX;
    char line[PATH_MAX], mount[PATH_MAX];
    FILE *stream = fopen(groups, "re");
    /* "4:memory:/a/b", or for version 2 "0::/a/b" */
    while (stream && fgets(line, sizeof line, stream)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        controllers++;
        uint64_t limit = UINT64_MAX;
        if (*controllers == '\0') {
            limit = least_limit(root, path, "memory.max");
        } else if (strcmp(controllers, "memory") == 0) {
            snprintf(mount, sizeof mount, "%s/memory", root);
            limit = least_limit(mount, path, "memory.limit_in_bytes");
        }
        if (limit < least)
            least = limit;
    }
    if (stream)
        fclose(stream);
    return least == UINT64_MAX ? 0 : least;
}

uint64_t
exo_memory_limit(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t machine = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    return exo_memory_limit_in("/proc/self/cgroup", "/sys/fs/cgroup", machine);
}

void
exo_raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* if this fails, the lower limit shows as FULL */
}
