/* Status codes and errors.
 *
 * Every function that can fail returns an exo_status. Where a person needs the reason, the function
 * also takes an exo_err, which the caller owns (usually on the stack) and which may be NULL. The
 * table below defines codes, numbers and texts. The numbers cross process boundaries and never
 * change their meaning.
 */
#ifndef EXOGYM_STATUS_H
#define EXOGYM_STATUS_H

#include <exogym/export.h>

EXO_DECLS_BEGIN

/*  name            number  text */
#define EXO_STATUS_TABLE(X)                                                                        \
    X(OK, 0, "ok")                                                                                 \
    X(INVAL, 1, "invalid argument or input")                                                       \
    X(NOMEM, 2, "out of memory")                                                                   \
    X(IO, 3, "input/output error")                                                                 \
    X(NOT_FOUND, 4, "not found")                                                                   \
    X(EXISTS, 5, "exists already")                                                                 \
    X(TIMEOUT, 6, "deadline passed")                                                               \
    X(CANCELLED, 7, "cancelled")                                                                   \
    X(PEER_LOST, 8, "peer lost")                                                                   \
    X(CLOSED, 9, "closed")                                                                         \
    X(FULL, 10, "full")                                                                            \
    X(UNSUPPORTED, 11, "not supported here")                                                       \
    X(FAILED, 12, "failed")                                                                        \
    X(DAMAGED, 13, "a file is damaged, or is not what it should be")                               \
    X(DENIED, 14, "not allowed")

/* The codes of the table: EXO_OK, EXO_INVAL and so on. */
typedef enum exo_status {
#define EXO_STATUS_ENUM(name, number, text) EXO_##name = (number),
    EXO_STATUS_TABLE(EXO_STATUS_ENUM)
#undef EXO_STATUS_ENUM
} exo_status;

/* Bytes of a reason, its NUL included. */
enum {
    EXO_ERR_TEXT = 512
};

/* A code and its reason: one line of UTF-8 without a final newline. Zeroed: no error. */
typedef struct exo_err {
    exo_status code;         /* EXO_OK: no error */
    char text[EXO_ERR_TEXT]; /* the reason */
} exo_err;

/* The text of a code; never NULL, also for an unknown number. Any thread. */
EXO_API const char *exo_status_text(exo_status status);

/* Writes code and reason to `err` (may be NULL) and returns `code`, for the caller to return.
 * Control characters and bytes that are not UTF-8 are escaped as \n, \x1b, \xff, so text from a
 * foreign file or another process stays on one line. A reason that is too long is cut. Any
 * thread. */
EXO_API exo_status exo_fail(exo_err *err, exo_status code, const char *format, ...)
    EXO_PRINTF(3, 4);

/* Puts the formatted text and ": " before the reason in `err`, and returns the code of `err`. If
 * `err` is NULL, returns `code`. Any thread. */
EXO_API exo_status exo_fail_in(exo_err *err, exo_status code, const char *format, ...)
    EXO_PRINTF(3, 4);

EXO_DECLS_END

#endif
