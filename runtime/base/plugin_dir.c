/* What is checked before a plugin runs: see plugin_dir.h. */
#include "base/plugin_dir.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static const char *dir; /* written before there are other threads */
static _Thread_local bool is_restricted;

void
exo_plugin_set_dir(const char *folder)
{
    dir = folder;
}

void
exo_plugin_restrict(bool restricted)
{
    is_restricted = restricted;
}

exo_status
exo_plugin_check_file(const char *path, exo_err *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return exo_fail(err, EXO_NOT_FOUND, "plugin '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return exo_fail(err, EXO_INVAL, "plugin '%s': not a file", path);
    int descriptor = -1;
    ElfW(Ehdr) header = {0};
    const unsigned char class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    exo_status st = exo_file_open(path, &descriptor, err);
    if (st != EXO_OK)
        return st;
    bool whole = pread(descriptor, &header, sizeof header, 0) == (ssize_t)sizeof header;
    close(descriptor);
    if (!whole || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != class || header.e_type != ET_DYN)
        return exo_fail(err, EXO_INVAL,
                        "cannot load plugin '%s': it is no shared object of this system: build it "
                        "with cc -shared -fPIC",
                        path);
    return EXO_OK;
}

exo_status
exo_plugin_check_dir(const char *path, exo_err *err)
{
    char wanted[PATH_MAX], allowed[PATH_MAX];
    if (!is_restricted)
        return EXO_OK;
    if (!dir)
        return exo_fail(
            err, EXO_DENIED,
            "plugin '%s': drivers may load none here: the worker was started without --plugin-dir",
            path);
    size_t length = realpath(dir, allowed) ? strlen(allowed) : 0;
    if (length > 0 && realpath(path, wanted) && strncmp(wanted, allowed, length) == 0 &&
        wanted[length] == '/')
        return EXO_OK;
    return exo_fail(err, EXO_DENIED,
                    "plugin '%s': is not in the folder of plugins that drivers may load, '%s'",
                    path, dir);
}
