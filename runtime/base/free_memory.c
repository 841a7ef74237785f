/* Free memory: see free_memory.h. */
#include "base/free_memory.h"

#include <stdio.h>

/* smaller allocations are not checked */
#define LITTLE (UINT64_C(64) << 20)

uint64_t
exo_free_memory(void)
{
    uint64_t bytes = 0;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long kib = 0;
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = (uint64_t)kib << 10;
    }
    if (file)
        fclose(file);

    unsigned long long limit = 0, used = 0;
    FILE *max = fopen("/sys/fs/cgroup/memory.max", "re");
    FILE *current = fopen("/sys/fs/cgroup/memory.current", "re");
    if (max && current && fscanf(max, "%llu", &limit) == 1 && fscanf(current, "%llu", &used) == 1 &&
        limit > used && limit - used < bytes)
        bytes = limit - used;
    if (max)
        fclose(max);
    if (current)
        fclose(current);
    return bytes;
}

exo_status
exo_memory_expect(uint64_t bytes, const char *what, exo_err *err)
{
    uint64_t room = bytes > LITTLE ? exo_free_memory() : 0;
    if (room == 0 || bytes <= room)
        return EXO_OK;
    return exo_fail(err, EXO_NOMEM, "%s take %.1f GB, and %.1f GB are free", what,
                    (double)bytes * 1e-9, (double)room * 1e-9);
}
