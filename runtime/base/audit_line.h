/* Lines of the audit log: a record as one line of JSON, in ASCII whatever it is of. No state; any
 * thread. */
#ifndef EXO_BASE_AUDIT_LINE_H
#define EXO_BASE_AUDIT_LINE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/audit.h"

enum {
    EXO_AUDIT_LINE = 4096 /* bytes of a line at most, with its newline */
};

const char *exo_audit_event_name(exo_audit_event event);
/* The line, which ends with a newline; gives its length. */
size_t exo_audit_write_line(char out[EXO_AUDIT_LINE], const exo_audit_record *record,
                            uint64_t number, struct timespec when);
/* A line that says how many records there are not: lost, or left out of those of `who`
 * ("strangers", ...) or of a key, of one kind. NULL: it says no such thing. */
size_t exo_audit_write_count(char out[EXO_AUDIT_LINE], const char *event, const char *of,
                             const char *who, const char *key, uint64_t count, const char *reason,
                             uint64_t number, struct timespec when);

#endif
