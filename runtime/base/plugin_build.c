/* Builds of plugins: see plugin_build.h. */
#include "base/plugin_build.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/plugin_dir.h"

/* written before there are other threads */
static exo_status (*hash_file)(const char *path, char out[65], exo_err *err);

void
exo_build_set_hash(exo_status (*hash)(const char *path, char out[65], exo_err *err))
{
    hash_file = hash;
}

static bool
look(const char *path, exo_build_state *out)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return false;
    *out = (exo_build_state){
        .device = info.st_dev, .inode = info.st_ino, .size = info.st_size, .changed = info.st_ctim};
    return true;
}

bool
exo_build_is_unchanged(const char *path, const exo_build_state *state)
{
    exo_build_state now;
    return look(path, &now) && now.device == state->device && now.inode == state->inode &&
           now.size == state->size && now.changed.tv_sec == state->changed.tv_sec &&
           now.changed.tv_nsec == state->changed.tv_nsec;
}

exo_status
exo_build_read(const char *path, char out[EXO_BUILD], exo_build_state *state, exo_err *err)
{
    ElfW(Ehdr) header = {0};
    char sha256[65];
    int descriptor = -1;
    out[0] = '\0';
    exo_status st = exo_plugin_check_file(path, err);
    if (st == EXO_OK && state && !look(path, state))
        st = exo_fail(err, EXO_NOT_FOUND, "plugin '%s' is gone", path);
    if (st != EXO_OK || !hash_file)
        return st;
    st = hash_file(path, sha256, err);
    if (st == EXO_OK)
        st = exo_file_open(path, &descriptor, err);
    if (st != EXO_OK)
        return st;
    bool whole = pread(descriptor, &header, sizeof header, 0) == (ssize_t)sizeof header;
    close(descriptor);
    if (!whole)
        return exo_fail(err, EXO_IO, "plugin '%s' cannot be read", path);
    snprintf(out, EXO_BUILD, "%u:%s", header.e_machine, sha256);
    return EXO_OK;
}

bool
exo_build_is_other(const char *a, const char *b)
{
    const char *end = a ? strchr(a, ':') : NULL;
    return end && b && strncmp(a, b, (size_t)(end - a) + 1) == 0 && strcmp(a, b) != 0;
}

const char *
exo_build_short(const char *build, char out[16])
{
    const char *end = strchr(build, ':');
    snprintf(out, 16, "%.12s", end ? end + 1 : build);
    return out;
}
