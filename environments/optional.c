/* Environments in plugins of the library's own: see optional.h. No state. */
#include "environments/optional.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/plugin.h>

enum {
    MAX_PATH = 4096
};

static const struct {
    const char *name, *plugin, *needs, *package;
} optional[] = {
    {"lunar_lander", "exogym-box2d.so", "Box2D", "libbox2d-dev"},
};

const char *
exo_environment_optional_at(size_t index)
{
    return index < sizeof optional / sizeof *optional ? optional[index].name : NULL;
}

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

/* The program's folder has plugins in the tree of a build; the library's ../lib/exogym, or exogym/
 * beside libexogym.so, in an installation. */
static bool
find_plugin(char path[MAX_PATH], const char *file)
{
    static const char here = 0; /* in the program, or in libexogym.so */
    char program[MAX_PATH];
    Dl_info library;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    if (find_in(path, program, "", file) ||
        find_in(path, program, "../" EXO_LIBRARY_FOLDER "/exogym/", file))
        return true;
    return dladdr(&here, &library) && library.dli_fname &&
           (find_in(path, library.dli_fname, "", file) ||
            find_in(path, library.dli_fname, "exogym/", file));
}

exo_status
exo_environment_optional_load(const char *name, exo_err *err)
{
    size_t i = 0;
    while (exo_environment_optional_at(i) && strcmp(optional[i].name, name) != 0)
        i++;
    if (!exo_environment_optional_at(i))
        return EXO_NOT_FOUND;
    char path[MAX_PATH];
    if (!find_plugin(path, optional[i].plugin))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "environment '%s' needs %s: there is no %s; install %s and build exogym "
                        "again, or install its package",
                        name, optional[i].needs, optional[i].plugin, optional[i].package);
    return exo_plugin_load(path, err);
}
