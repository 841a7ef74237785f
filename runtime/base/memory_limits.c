/* Memory's limits, read from the kernel's files; memory_limits.h has the contracts. No state. */
#include "base/memory_limits.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* smaller allocations are not checked */
#define LITTLE (UINT64_C(64) << 20)

/* --- Control groups --------------------------------------------------------------------------- */

/* The files of a version of control groups, and the keys in them. */
struct version {
    const char *limit, *used;
    const char *events;   /* has a line "oom_kill N" */
    const char *files[2]; /* keys of memory.stat: bytes of files that the kernel can drop */
};

static const struct version first = {"memory.limit_in_bytes",
                                     "memory.usage_in_bytes",
                                     "memory.oom_control",
                                     {"total_inactive_file", "total_active_file"}};
static const struct version second = {
    "memory.max", "memory.current", "memory.events", {"inactive_file", "active_file"}};

/* Reads the number in a file of `folder`: the first if `key` is NULL, else the one behind the key.
 * UINT64_MAX: there is none, or it says "max". */
static uint64_t
number_in(const char *folder, const char *name, const char *key)
{
    char path[2 * PATH_MAX], line[256], word[64];
    unsigned long long value = 0;
    bool found = false;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "re");
    while (stream && !found && fgets(line, sizeof line, stream))
        found = key ? sscanf(line, "%63s %llu", word, &value) == 2 && strcmp(word, key) == 0
                    : sscanf(line, "%llu", &value) == 1;
    if (stream)
        fclose(stream);
    return found ? value : UINT64_MAX;
}

/* The bytes that are left of `limit` in the group of `folder`. */
static uint64_t
room_in(const char *folder, const struct version *version, uint64_t limit)
{
    uint64_t used = number_in(folder, version->used, NULL);
    if (used == UINT64_MAX)
        return limit;
    for (int i = 0; i < 2; i++) {
        uint64_t files = number_in(folder, "memory.stat", version->files[i]);
        if (files != UINT64_MAX)
            used -= files < used ? files : used;
    }
    return limit - (used < limit ? used : limit);
}

/* Reads the group `path` under `mount` and the groups above it. In a container that sees its own
 * group as the root, `path` does not exist; then the root's files have what there is. */
static void
read_groups(exo_memory_group *out, const struct version *version, const char *mount, char *path)
{
    char folder[2 * PATH_MAX];
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", mount, path);
        uint64_t limit = number_in(folder, version->limit, NULL);
        uint64_t room = limit == UINT64_MAX ? limit : room_in(folder, version, limit);
        uint64_t kills = number_in(folder, version->events, "oom_kill");
        if (limit < out->limit)
            out->limit = limit;
        if (room < out->room)
            out->room = room;
        if (out->oom_kills < 0 && kills <= LLONG_MAX)
            out->oom_kills = (long long)kills;
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

exo_memory_group
exo_memory_group_read_in(const char *groups, const char *root)
{
    exo_memory_group out = {.limit = UINT64_MAX, .room = UINT64_MAX, .oom_kills = -1};
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
        if (*controllers == '\0') {
            read_groups(&out, &second, root, path);
        } else if (strcmp(controllers, "memory") == 0) {
            snprintf(mount, sizeof mount, "%s/memory", root);
            read_groups(&out, &first, mount, path);
        }
    }
    if (stream)
        fclose(stream);
    return out;
}

exo_memory_group
exo_memory_group_read(void)
{
    return exo_memory_group_read_in("/proc/self/cgroup", "/sys/fs/cgroup");
}

/* --- This process ----------------------------------------------------------------------------- */

uint64_t
exo_memory_limit(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t machine = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    uint64_t limit = exo_memory_group_read().limit;
    if (machine && machine < limit)
        limit = machine;
    return limit == UINT64_MAX ? 0 : limit;
}

uint64_t
exo_free_memory(void)
{
    uint64_t bytes = UINT64_MAX, room = exo_memory_group_read().room;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long kib = 0;
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = (uint64_t)kib << 10;
    }
    if (file)
        fclose(file);
    if (room < bytes)
        bytes = room > 0 ? room : 1; /* 0 means unknown */
    return bytes == UINT64_MAX ? 0 : bytes;
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
