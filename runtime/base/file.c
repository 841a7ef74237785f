/* Atomic files: temporary name, flush, rename, flush of the folder. No state. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"

/* Ends the name of a file that is being written, with six more characters. */
#define PARTIAL ".partial-"

/* Returns "path: reason" for an errno. */
static exo_status
io_error(const char *path, int number, exo_err *err)
{
    return exo_fail(err, number == ENOENT ? EXO_NOT_FOUND : EXO_IO, "%s: %s", path,
                    exo_dir_reason(number));
}

static void
forget(exo_file *file)
{
    exo_free(file->path);
    exo_free(file->temporary);
    *file = (exo_file){0};
}

exo_status
exo_file_create(exo_file *file, const char *path, exo_err *err)
{
    static const char suffix[] = PARTIAL "XXXXXX";
    *file = (exo_file){.path = exo_strdup(path)};
    size_t length = strlen(path);
    file->temporary = exo_calloc(length + sizeof suffix, 1);
    if (!file->path || !file->temporary) {
        forget(file);
        return exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    }
    memcpy(file->temporary, path, length);
    memcpy(file->temporary + length, suffix, sizeof suffix);
    int fd = exo_dir_temporary(file->temporary);
    file->stream = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!file->stream) {
        int number = errno;
        if (fd >= 0) {
            close(fd);
            exo_dir_unlink(file->temporary);
        }
        forget(file);
        exo_status st = io_error(path, number, err);
        return st == EXO_NOT_FOUND ? exo_fail(err, EXO_IO, "%s: its folder does not exist", path)
                                   : st;
    }
    return EXO_OK;
}

exo_status
exo_file_write(exo_file *file, const void *data, size_t size, exo_err *err)
{
    errno = 0;
    if (size == 0 || fwrite(data, 1, size, file->stream) == size)
        return EXO_OK;
    return io_error(file->path, errno ? errno : EIO, err);
}

void
exo_file_abort(exo_file *file)
{
    if (!file->stream)
        return;
    fclose(file->stream);
    exo_dir_unlink(file->temporary);
    forget(file);
}

/* Flushes the folder of a file: only then a rename survives a crash. */
static void
flush_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? exo_strdup(path) : NULL;
    if (folder)
        folder[slash == path ? 1 : slash - path] = '\0';
    int fd = exo_dir_open(folder ? folder : ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd >= 0) {
        fsync(fd); /* some file systems cannot; the rename is atomic nevertheless */
        close(fd);
    }
    exo_free(folder);
}

exo_status
exo_file_rename(const char *from, const char *to, exo_err *err)
{
    if (exo_dir_rename(from, to, 0) != 0)
        return io_error(to, errno ? errno : EIO, err);
    flush_folder_of(to);
    return EXO_OK;
}

exo_status
exo_file_publish(exo_file *file, FILE **stream, exo_err *err)
{
    errno = 0;
    exo_status st = fflush(file->stream) == 0 && fsync(fileno(file->stream)) == 0
                        ? exo_file_rename(file->temporary, file->path, err)
                        : io_error(file->path, errno ? errno : EIO, err);
    if (st != EXO_OK) {
        exo_file_abort(file);
        return st;
    }
    *stream = file->stream;
    forget(file);
    return EXO_OK;
}

exo_status
exo_file_commit(exo_file *file, exo_err *err)
{
    errno = 0;
    if (fflush(file->stream) != 0 || fsync(fileno(file->stream)) != 0) {
        exo_status st = io_error(file->path, errno ? errno : EIO, err);
        exo_file_abort(file);
        return st;
    }
    int closed = fclose(file->stream);
    file->stream = NULL;
    exo_status st = closed == 0 ? exo_file_rename(file->temporary, file->path, err)
                                : io_error(file->path, errno ? errno : EIO, err);
    if (st != EXO_OK)
        exo_dir_unlink(file->temporary);
    forget(file);
    return st;
}

exo_status
exo_file_write_atomic(const char *path, const void *data, size_t size, exo_err *err)
{
    exo_file file;
    exo_status st = exo_file_create(&file, path, err);
    if (st != EXO_OK)
        return st;
    st = exo_file_write(&file, data, size, err);
    if (st == EXO_OK)
        return exo_file_commit(&file, err);
    exo_file_abort(&file);
    return st;
}

/* A word for anything but a regular file; NULL: it is a regular file. */
static const char *
kind_of(mode_t mode)
{
    if (S_ISREG(mode))
        return NULL;
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

exo_status
exo_file_open(const char *path, int *descriptor, exo_err *err)
{
    struct stat info;
    exo_status st = EXO_OK;
    /* O_NONBLOCK changes nothing for a regular file */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        st = errno == ENXIO
                 ? exo_fail(err, EXO_DAMAGED, "%s: is a socket; a file is expected", path)
                 : io_error(path, errno == ENOTDIR ? ENOENT : errno, err);
    else if (kind_of(info.st_mode))
        st = exo_fail(err, EXO_DAMAGED, "%s: is %s; a file is expected", path,
                      kind_of(info.st_mode));
    if (st == EXO_OK)
        *descriptor = fd;
    else if (fd >= 0)
        close(fd);
    return st;
}

exo_status
exo_file_open_stream(const char *path, FILE **stream, exo_err *err)
{
    int fd = -1;
    exo_status st = exo_file_open(path, &fd, err);
    if (st != EXO_OK)
        return st;
    *stream = fdopen(fd, "rb");
    if (!*stream) {
        st = exo_fail(err, EXO_NOMEM, "%s: no memory to read it", path);
        close(fd);
    }
    return st;
}

exo_status
exo_file_read(const char *path, size_t limit, char **out, size_t *size, exo_err *err)
{
    char *data = NULL;
    FILE *stream = NULL;
    struct stat info;
    exo_status st = exo_file_open_stream(path, &stream, err);
    if (st != EXO_OK)
        return st;
    if (fstat(fileno(stream), &info) != 0) {
        st = io_error(path, errno, err);
        goto done;
    }
    if (info.st_size < 0 || (uint64_t)info.st_size > limit) {
        st = exo_fail(err, EXO_DAMAGED, "%s: has %lld bytes, at most %zu are expected", path,
                      (long long)info.st_size, limit);
        goto done;
    }
    size_t wanted = (size_t)info.st_size;
    data = exo_calloc(wanted + 1, 1);
    if (!data) {
        st = exo_fail(err, EXO_NOMEM, "%s: no memory for %zu bytes", path, wanted);
        goto done;
    }
    *size = fread(data, 1, wanted, stream);
    if (*size != wanted && ferror(stream)) {
        st = io_error(path, errno, err);
        goto done;
    }
    *out = data;
    data = NULL;
done:
    exo_free(data);
    fclose(stream);
    return st;
}

exo_status
exo_folder_make(const char *path, exo_err *err)
{
    char *copy = exo_strdup(path);
    if (!copy)
        return exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    exo_status st = EXO_OK;
    for (char *at = copy + 1; st == EXO_OK && *copy; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char ended = *at;
        *at = '\0';
        bool made = exo_dir_mkdir(copy, 0777) == 0 || errno == EEXIST;
        int fd = made ? exo_dir_open(copy, O_PATH | O_DIRECTORY, 0) : -1;
        if (!made || (fd < 0 && errno != ENOTDIR))
            st = exo_fail(err, EXO_IO, "%s: %s", copy, exo_dir_reason(errno));
        else if (fd < 0)
            st = exo_fail(err, EXO_IO, "%s: is there and is no folder", copy);
        if (fd >= 0)
            close(fd);
        *at = ended;
        if (ended == '\0')
            break;
    }
    exo_free(copy);
    return st;
}

void
exo_file_sweep(const char *folder, const char *but)
{
    DIR *dir = exo_dir_list(folder);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name;
        size_t length = strlen(name), end = strlen(PARTIAL) + strlen("XXXXXX");
        if (length > end && strncmp(name + length - end, PARTIAL, strlen(PARTIAL)) == 0 &&
            !(but && strncmp(name, but, strlen(but)) == 0))
            (void)unlinkat(dirfd(dir), name, 0);
    }
    closedir(dir);
}

bool
exo_file_lock(int descriptor)
{
    for (int look = 0; look < 10; look++) {
        if (flock(descriptor, LOCK_EX | LOCK_NB) == 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return false;
}
