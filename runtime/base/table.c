/* Tables in the folder of a run: see table.h. */
#include "base/table.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"

static exo_status
io_error(const char *path, exo_err *err)
{
    return exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(errno ? errno : EIO));
}

/* Copies the first `length` bytes of the file at `path`. */
static exo_status
copy(exo_file *to, const char *path, uint64_t length, exo_err *err)
{
    char bytes[4096];
    struct stat info;
    FILE *from = NULL;
    exo_status st = exo_file_open_stream(path, &from, err);
    if (st != EXO_OK)
        return st;
    if (fstat(fileno(from), &info) != 0)
        st = io_error(path, err);
    else if ((uint64_t)info.st_size < length)
        st = exo_fail(err, EXO_DAMAGED, "%s: %lld bytes are left of %llu", path,
                      (long long)info.st_size, (unsigned long long)length);
    while (st == EXO_OK && length > 0) {
        size_t count = length < sizeof bytes ? (size_t)length : sizeof bytes;
        errno = 0;
        st = fread(bytes, 1, count, from) == count ? exo_file_write(to, bytes, count, err)
                                                   : io_error(path, err);
        length -= count;
    }
    fclose(from);
    return st;
}

exo_status
exo_table_open(exo_table *t, const char *path, const char *columns, uint64_t length, exo_err *err)
{
    exo_file file = {0};
    *t = (exo_table){.path = exo_strdup(path)};
    exo_status st = t->path ? exo_file_create(&file, path, err)
                            : exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    errno = 0;
    if (st == EXO_OK && length > 0)
        st = copy(&file, path, length, err);
    else if (st == EXO_OK && fprintf(file.stream, "%s\n", columns) < 0)
        st = io_error(path, err);
    if (st == EXO_OK)
        st = exo_file_publish(&file, &t->stream, err);
    exo_file_abort(&file);
    if (st != EXO_OK)
        exo_table_close(t);
    return st;
}

void
exo_table_close(exo_table *t)
{
    if (t->stream)
        fclose(t->stream);
    exo_free(t->path);
    *t = (exo_table){0};
}

exo_status
exo_table_push(exo_table *t, exo_err *err)
{
    errno = 0;
    return !t->stream || (fflush(t->stream) == 0 && !ferror(t->stream)) ? EXO_OK
                                                                        : io_error(t->path, err);
}

exo_status
exo_table_flush(exo_table *t, uint64_t *length, exo_err *err)
{
    *length = 0;
    if (!t->stream)
        return EXO_OK;
    errno = 0;
    off_t at = fflush(t->stream) == 0 && fsync(fileno(t->stream)) == 0 ? ftello(t->stream) : -1;
    if (at < 0)
        return io_error(t->path, err);
    *length = (uint64_t)at;
    return EXO_OK;
}

exo_status
exo_table_check(const exo_table *t, exo_err *err)
{
    struct stat mine, named;
    int fd = -1;
    exo_status st = EXO_OK;
    if (!t->stream)
        return EXO_OK;
    if (fstat(fileno(t->stream), &mine) != 0)
        return io_error(t->path, err);
    st = exo_file_open(t->path, &fd, err);
    if (st != EXO_OK)
        return st;
    if (fstat(fd, &named) != 0)
        st = io_error(t->path, err);
    else if (named.st_dev != mine.st_dev || named.st_ino != mine.st_ino)
        st = exo_fail(err, EXO_FAILED,
                      "%s: is not the file of this life any more: another life of the actor has "
                      "begun, and this one was taken for dead",
                      t->path);
    close(fd);
    return st;
}
