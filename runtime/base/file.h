/* Files and folders: written whole or not at all. Any thread. */
#ifndef EXO_BASE_FILE_H
#define EXO_BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include <exogym/status.h>

/* A file that is being written under another name in the same folder. */
typedef struct exo_file {
    FILE *stream;
    char *path, *temporary;
} exo_file;

/* Opens the temporary file. Errors: IO with the path and the reason. */
exo_status exo_file_create(exo_file *file, const char *path, exo_err *err);
/* Flushes it to the disk and gives it its name. On failure, as on abort, nothing is left. Either
 * ends the struct's life. */
exo_status exo_file_commit(exo_file *file, exo_err *err);
void exo_file_abort(exo_file *file);
/* fwrite with an error that names the file. */
exo_status exo_file_write(exo_file *file, const void *data, size_t size, exo_err *err);

/* All of the above for bytes in memory. */
exo_status exo_file_write_atomic(const char *path, const void *data, size_t size, exo_err *err);

/* Removes from a folder what writers that were killed left of files that have no name yet, but of
 * those that begin with `but` (NULL: of all). For the folder's owner, before it writes. What cannot
 * be removed stays: it does no harm. */
void exo_file_sweep(const char *folder, const char *but);

/* Takes the lock of an open file for this process alone; false: somebody else has it. Waits a
 * moment for whoever only looks whether it is taken. */
bool exo_file_lock(int descriptor);

/* Opens a file to read, which must be a regular one: who reads it may go back in it, map it, and
 * know its size. Never waits for a pipe's other end. DAMAGED: it is a folder, a pipe, a socket or a
 * device; NOT_FOUND, IO. The caller closes the descriptor, or the stream. */
exo_status exo_file_open(const char *path, int *descriptor, exo_err *err);
exo_status exo_file_open_stream(const char *path, FILE **stream, exo_err *err);

/* Reads a regular file of at most `limit` bytes, with a 0 after the last; the caller frees *out
 * with exo_free. NOT_FOUND, IO, DAMAGED (larger, or no file), NOMEM. */
exo_status exo_file_read(const char *path, size_t limit, char **out, size_t *size, exo_err *err);

/* mkdir -p. IO with the path and the reason. */
exo_status exo_folder_make(const char *path, exo_err *err);

#endif
