/* Lines of the audit log: a record as one line of JSON, in ASCII only. No state; any thread. */
#ifndef EXO_BASE_AUDIT_LINE_H
#define EXO_BASE_AUDIT_LINE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/audit.h"

enum {
    EXO_AUDIT_LINE = 4096 /* the longest line, in bytes, with its newline */
};

const char *exo_audit_event_name(exo_audit_event event);
/* Writes the line with its newline and returns its length. */
size_t exo_audit_write_line(char out[EXO_AUDIT_LINE], const exo_audit_record *record,
                            uint64_t number, struct timespec when);
/* Writes a line that counts missing records: lost ones, or suppressed ones of the kind `of` from
 * `who` ("strangers", ...) or from a key. A NULL argument leaves its field out. */
size_t exo_audit_write_count(char out[EXO_AUDIT_LINE], const char *event, const char *of,
                             const char *who, const char *key, uint64_t count, const char *reason,
                             uint64_t number, struct timespec when);

#endif
