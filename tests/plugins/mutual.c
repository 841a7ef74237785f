/* A plugin for two files, one.so and two.so in one folder: each loads the other while both are being
 * loaded, by two threads. No state but the files that they wait for. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <exogym/plugin.h>

EXO_PLUGIN
{
    char own[256], other[256], begun[300];
    Dl_info info;
    if (!dladdr((void *)exo_plugin_abi, &info))
        return exo_fail(err, EXO_FAILED, "the plugin does not find itself");
    snprintf(own, sizeof own, "%s", info.dli_fname);
    snprintf(other, sizeof other, "%s", info.dli_fname);
    char *name = strrchr(other, '/') + 1;
    memcpy(name, strcmp(name, "one.so") == 0 ? "two.so" : "one.so", sizeof "one.so");
    snprintf(begun, sizeof begun, "%s.begun", own);
    close(open(begun, O_CREAT | O_WRONLY, 0600));
    snprintf(begun, sizeof begun, "%s.begun", other);
    while (access(begun, F_OK) != 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return exo_plugin_load(other, err);
}
