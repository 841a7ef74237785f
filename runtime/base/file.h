/* Files and folders: a file is written completely or not at all. Any thread. Read next: dir.h. */
#ifndef EXO_BASE_FILE_H
#define EXO_BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include <exogym/status.h>

/* A file that is being written under a temporary name in its folder. */
typedef struct exo_file {
    FILE *stream;
    char *path, *temporary;
} exo_file;

/* Opens the temporary file. Errors: IO with the path and the reason, NOMEM. */
exo_status exo_file_create(exo_file *file, const char *path, exo_err *err);
/* Commit flushes the file to the disk and renames it to its path; if that fails, nothing is left.
 * Abort removes the file. Both release the struct. Publish is commit, but keeps the file open, for
 * further writing; the caller closes *stream. */
exo_status exo_file_commit(exo_file *file, exo_err *err);
exo_status exo_file_publish(exo_file *file, FILE **stream, exo_err *err);
void exo_file_abort(exo_file *file);
/* fwrite; an error names the file. Errors: IO. */
exo_status exo_file_write(exo_file *file, const void *data, size_t size, exo_err *err);

/* Renames a file, which replaces that at `to`, so that it survives a crash. IO, NOT_FOUND. */
exo_status exo_file_rename(const char *from, const char *to, exo_err *err);

/* Creates, writes and commits a file. */
exo_status exo_file_write_atomic(const char *path, const void *data, size_t size, exo_err *err);

/* Removes the temporary files of killed writers from a folder, except for those whose names begin
 * with `but` (NULL: no exception). Only the folder's owner may call it, before it writes. Files
 * that cannot be removed do no harm and stay. */
void exo_file_sweep(const char *folder, const char *but);

/* Locks an open file for this process. False: another process has the lock. Retries for 50 ms,
 * because other processes may take the lock for a moment to test it. */
bool exo_file_lock(int descriptor);

/* Opens a regular file for reading, so that the reader may seek in it, map it and rely on its size.
 * Never waits for the other end of a pipe. Errors: DAMAGED if it is a folder, a pipe, a socket or a
 * device; NOT_FOUND, IO, NOMEM. The caller closes the descriptor or the stream. */
exo_status exo_file_open(const char *path, int *descriptor, exo_err *err);
exo_status exo_file_open_stream(const char *path, FILE **stream, exo_err *err);

/* Reads a regular file of at most `limit` bytes and appends a NUL; the caller frees *out with
 * exo_free. Errors: NOT_FOUND, IO, DAMAGED (larger, or no regular file), NOMEM. */
exo_status exo_file_read(const char *path, size_t limit, char **out, size_t *size, exo_err *err);

/* mkdir -p. Errors: IO with the path and the reason, NOMEM. */
exo_status exo_folder_make(const char *path, exo_err *err);

#endif
