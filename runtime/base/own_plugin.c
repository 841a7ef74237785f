/* Finds and loads the plugins of the library's own: see own_plugin.h. No state. */
#include "base/own_plugin.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/plugin.h>

enum {
    MAX_PATH = 4096
};

/* Writes the path of `file` in `place`, relative to the folder of the program or library `self`.
 * Returns whether it can be read. */
static bool
find_in(char path[MAX_PATH], const char *self, const char *place, const char *file)
{
    const char *slash = strrchr(self, '/');
    int length = slash
                     ? snprintf(path, MAX_PATH, "%.*s/%s%s", (int)(slash - self), self, place, file)
                     : MAX_PATH;
    return length < MAX_PATH && access(path, R_OK) == 0;
}

static bool
find_plugin(char path[MAX_PATH], const char *file)
{
    static const char here = 0; /* in the program, or in libexogym.so */
    char program[MAX_PATH];
    Dl_info library;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    if (find_in(path, program, "", file) ||
        find_in(path, program, "../" EXO_LIBRARY_FOLDER "/exogym/", file) ||
        find_in(path, program, "../", file))
        return true;
    return dladdr(&here, &library) && library.dli_fname &&
           (find_in(path, library.dli_fname, "", file) ||
            find_in(path, library.dli_fname, "exogym/", file));
}

exo_status
exo_own_plugin_load(const char *file, const char *symbol, const void **out, exo_err *err)
{
    char path[MAX_PATH];
    if (!find_plugin(path, file))
        return EXO_NOT_FOUND;
    exo_status st = exo_plugin_load(path, err);
    if (st != EXO_OK || !symbol)
        return st;
    void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *out = handle ? dlsym(handle, symbol) : NULL;
    if (handle)
        dlclose(handle); /* the plugin itself stays */
    return EXO_OK;
}
