/* `exogym doctor`: what this machine has of what exogym uses, what limits it, and the command that
 * mends what is missing. It changes nothing. No state. Read next: doctor_gpus.c. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/memory_limits.h"
#include "base/own_plugin.h"
#include "base/parallel.h"
#include "base/version.h"
#include "programs/cluster_folder.h"
#include "programs/commands.h"
#include "programs/doctor.h"

enum {
    ENOUGH_DESCRIPTORS = 16384
};

#define GIBIBYTE ((uint64_t)1 << 30)

/* --- Findings --------------------------------------------------------------------------------- */

void
exo_finding_add(json_t *findings, const char *name, const char *value, const char *mend)
{
    json_t *finding = json_object();
    json_object_set_new(finding, "name", exo_lossy_json(name));
    json_object_set_new(finding, "value", exo_lossy_json(value));
    json_object_set_new(finding, "mend", mend ? exo_lossy_json(mend) : json_null());
    json_array_append_new(findings, finding);
}

static void
print(const json_t *findings)
{
    char shown[EXO_DOCTOR_LINE];
    for (size_t i = 0; i < json_array_size(findings); i++) {
        const json_t *finding = json_array_get(findings, i);
        const char *mend = json_string_value(json_object_get(finding, "mend"));
        printf("%s %-14s ", mend ? "!" : " ", json_string_value(json_object_get(finding, "name")));
        printf("%s\n",
               exo_printable(shown, sizeof shown,
                             json_string_value(json_object_get(finding, "value")), EXO_SHOWN_LINE));
        if (mend)
            printf("  %-14s %s\n", "", exo_printable(shown, sizeof shown, mend, EXO_SHOWN_LINE));
    }
}

/* --- The host --------------------------------------------------------------------------------- */

void
exo_doctor_read_line(const char *path, char line[EXO_DOCTOR_LINE])
{
    FILE *file = fopen(path, "re");
    line[0] = '\0';
    if (!file)
        return;
    if (!fgets(line, EXO_DOCTOR_LINE, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}

static void
look_at_processor(json_t *findings)
{
    char value[EXO_DOCTOR_LINE];
    const char *vectors = "no vectors that exogym knows";
#if defined(__x86_64__)
    vectors = __builtin_cpu_supports("avx512f") ? "AVX-512"
              : __builtin_cpu_supports("avx2")  ? "AVX2"
                                                : "SSE2";
#elif defined(__aarch64__)
    vectors = "NEON";
#endif
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned usable = exo_usable_cores();
    snprintf(value, sizeof value, "%u of %ld, %s", usable, all, vectors);
    exo_finding_add(findings, "cores", value, NULL);
}

static void
look_at_memory(json_t *findings)
{
    char value[EXO_DOCTOR_LINE];
    snprintf(value, sizeof value, "%.1f GiB are free", (double)exo_free_memory() / GIBIBYTE);
    exo_finding_add(findings, "memory", value, NULL);
}

/* Clusters of commands that were killed, with their heads. */
static void
look_at_folders(json_t *findings)
{
    const unsigned left = exo_cluster_folder_sweep(false);
    char value[EXO_DOCTOR_LINE];
    snprintf(value, sizeof value, "%u folder%s exogym-run-* of commands that were killed", left,
             left == 1 ? "" : "s");
    if (left > 0)
        exo_finding_add(findings, "left behind", value,
                        "the next exogym run --workers and exogym status remove them");
}

/* A limit of addresses (RLIMIT_AS) counts stacks of threads and mapped files, which take no memory.
 * Where it is reached, libraries that expect no failure end the process by a signal. */
static void
look_at_addresses(json_t *findings)
{
    struct rlimit limit = {0};
    char value[EXO_DOCTOR_LINE];
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    snprintf(value, sizeof value, "at most %llu MiB", (unsigned long long)limit.rlim_cur >> 20);
    exo_finding_add(findings, "addresses", value,
                    "oneDNN and the C++ library crash where they get no more: ulimit -v unlimited; "
                    "limit memory with a cgroup, such as systemd-run -p MemoryMax=8G");
}

/* Each worker, connection and shared object has descriptors. */
static void
look_at_descriptors(json_t *findings)
{
    struct rlimit limit = {0};
    char value[EXO_DOCTOR_LINE];
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    snprintf(value, sizeof value, "%llu, at most %llu", (unsigned long long)limit.rlim_cur,
             (unsigned long long)limit.rlim_max);
    exo_finding_add(findings, "descriptors", value,
                    limit.rlim_max < ENOUGH_DESCRIPTORS
                        ? "for more than a thousand actors: LimitNOFILE=65536 in the unit of a "
                          "service, or as root: ulimit -n 65536"
                        : NULL);
}

static void
look_at_shared_memory(json_t *findings)
{
    struct statvfs info;
    char value[EXO_DOCTOR_LINE];
    if (statvfs("/dev/shm", &info) != 0) {
        exo_finding_add(findings, "/dev/shm", "there is none",
                        "objects of workers lie there: mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    const double size = (double)info.f_blocks * (double)info.f_frsize,
                 left = (double)info.f_bavail * (double)info.f_frsize;
    snprintf(value, sizeof value, "%.1f GiB, %.1f GiB are free", size / GIBIBYTE, left / GIBIBYTE);
    exo_finding_add(findings, "/dev/shm", value,
                    size < (double)GIBIBYTE
                        ? "mount -o remount,size=8g /dev/shm, or docker run --shm-size=8g"
                        : NULL);
}

static void
look_at_huge_pages(json_t *findings)
{
    char line[EXO_DOCTOR_LINE];
    const char *mend = NULL;
    exo_doctor_read_line("/sys/kernel/mm/transparent_hugepage/enabled", line);
    if (strstr(line, "[never]"))
        mend = "large arrays are slower: echo madvise | sudo tee "
               "/sys/kernel/mm/transparent_hugepage/enabled";
    exo_finding_add(findings, "huge pages", line[0] ? line : "this kernel has none", mend);
}

/* The speed of each network interface that says it. */
static void
look_at_interfaces(json_t *findings)
{
    DIR *folder = opendir("/sys/class/net");
    char path[EXO_DOCTOR_LINE], line[EXO_DOCTOR_LINE], value[EXO_DOCTOR_LINE], name[64];
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "lo") == 0)
            continue;
        snprintf(path, sizeof path, "/sys/class/net/%.200s/speed", entry->d_name);
        exo_doctor_read_line(path, line);
        const long speed = strtol(line, NULL, 10);
        if (speed > 0)
            snprintf(value, sizeof value, "%g Gbit/s", (double)speed / 1000);
        else
            snprintf(value, sizeof value, "does not say its speed");
        snprintf(name, sizeof name, "net %.50s", entry->d_name);
        exo_finding_add(findings, name, value, NULL);
    }
    if (folder)
        closedir(folder);
}

/* --- What exogym was built with --------------------------------------------------------------- */

static void
look_at_plugin(json_t *findings, const char *name, const char *file, const char *mend)
{
    exo_err err = {0};
    exo_status st = exo_own_plugin_load(file, NULL, NULL, &err);
    exo_finding_add(findings, name,
                    st == EXO_OK          ? "is there"
                    : st == EXO_NOT_FOUND ? "is not there"
                                          : err.text,
                    st == EXO_OK ? NULL : mend);
}

static void
look_at_gnuplot(json_t *findings)
{
    const char *path = getenv("PATH");
    char file[4096];
    for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
        snprintf(file, sizeof file, "%.*s/gnuplot", (int)strcspn(path, ":"), path);
        if (access(file, X_OK) == 0) {
            exo_finding_add(findings, "gnuplot", "is there", NULL);
            return;
        }
    }
    exo_finding_add(findings, "gnuplot", "is not there",
                    "for pictures: apt-get install gnuplot-nox");
}

/* --- The command ------------------------------------------------------------------------------ */

struct doctor_args {
    bool json;
};

static int
doctor_command(const exo_command_line *line)
{
    const struct doctor_args *args = line->args;
    json_t *findings = json_array();
    exo_finding_add(findings, "exogym", exo_version, NULL);
    look_at_processor(findings);
    look_at_memory(findings);
    look_at_addresses(findings);
    look_at_descriptors(findings);
    look_at_shared_memory(findings);
    look_at_folders(findings);
    look_at_huge_pages(findings);
    look_at_interfaces(findings);
    exo_doctor_look_at_gpus(findings);
    look_at_plugin(findings, "MPI", "exogym-mpi.so",
                   "for jobs under mpirun or srun: apt-get install libopenmpi-dev, then build "
                   "exogym again");
    look_at_plugin(findings, "Box2D", "exogym-box2d.so",
                   "for the environment lunar_lander: apt-get install libbox2d-dev g++, then build "
                   "exogym again");
    look_at_gnuplot(findings);
    if (args->json) {
        json_dumpf(findings, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        print(findings);
    }
    json_decref(findings);
    return EXO_EXIT_OK;
}

static const exo_arg table[] = {
    {"--json", NULL,
     "Prints a list of {\"name\", \"value\", \"mend\"}; mend is null where nothing is missing.",
     EXO_INTO(struct doctor_args, json)},
    {0},
};

const exo_command exo_command_doctor = {
    .name = "doctor",
    .summary = "Says what this machine has of what exogym uses, and how to get the rest",
    .description =
        "Lists the processor, memory, limits of the system, network interfaces, GPUs with "
        "the versions of CUDA, and the optional parts of this installation. A line with "
        "! is followed by the command that mends it. Nothing is changed.",
    .args = table,
    .args_size = sizeof(struct doctor_args),
    .run = doctor_command,
};
