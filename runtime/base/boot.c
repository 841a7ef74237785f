/* The name of this start of the machine: see boot.h. */
#include "base/boot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
