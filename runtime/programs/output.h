/* Standard output and standard error whose readers lag. Other programs may have made the pipe or the
 * terminal non-blocking: write() then fails while it is full (EAGAIN), and stdio drops the text.
 *
 * exo_output_open gives both streams a function that waits for the reader, so printf and fprintf work
 * as on a blocking pipe. State: stdout and stderr, once per process. */
#ifndef EXO_PROGRAMS_OUTPUT_H
#define EXO_PROGRAMS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <exogym/clock.h>

/* The longest wait for a reader that takes nothing. */
#define EXO_OUTPUT_PATIENCE (60 * EXO_SECOND)

/* Replaces stdout and stderr. Without memory they stay as they are. Before anything is printed and
 * before other threads run. */
void exo_output_open(void);
/* The descriptor of a stream, after exo_output_open too. */
int exo_output_descriptor(FILE *out);

/* A descriptor that is written with patience. Owner: the caller. */
typedef struct exo_output_fd {
    int descriptor;
    exo_time patience;
    bool gave_up; /* the reader took nothing for so long: the next write does not wait */
} exo_output_fd;

/* Writes all bytes, and waits for the reader while it takes nothing, for `patience` at most. Returns
 * the number of bytes written; if fewer, errno has the reason, EAGAIN after the wait. */
size_t exo_output_write(exo_output_fd *output, const char *data, size_t size);

#endif
