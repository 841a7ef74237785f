/* Lines of the audit log: see audit_line.h.
 *
 * Peers choose the texts. Each is written as a JSON string of printable ASCII characters, so that
 * none can end a line or a string, or control a terminal. A text that is too long is cut and ends
 * with "...". */
#include "base/audit_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum {
    TEXT = 256, /* longest written text, in bytes */
    REASON = 512
};

struct line {
    char *out;
    size_t at;
};

static void
put(struct line *l, const char *text)
{
    size_t length = strlen(text);
    memcpy(l->out + l->at, text, length);
    l->at += length;
}

/* Writes one character as it appears in a JSON string; returns its length. */
static size_t
escape(uint32_t code, char out[16])
{
    if (code == EXO_UTF8_INVALID)
        code = 0xfffd;
    if (code == '"' || code == '\\')
        return (size_t)snprintf(out, 16, "\\%c", (char)code);
    if (code >= ' ' && code < 127)
        return (size_t)snprintf(out, 16, "%c", (char)code);
    if (code < 0x10000)
        return (size_t)snprintf(out, 16, "\\u%04" PRIx32, code);
    code -= 0x10000;
    return (size_t)snprintf(out, 16, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + (code >> 10),
                            0xdc00 + (code & 0x3ff));
}

static void
put_text(struct line *l, const char *text, size_t most)
{
    char one[16];
    size_t size = strlen(text), used = 0;
    put(l, "\"");
    for (size_t at = 0; at < size;) {
        uint32_t code;
        at += exo_utf8_next(text + at, size - at, &code);
        size_t length = escape(code, one);
        if (used + length > most - 3) {
            put(l, "...");
            break;
        }
        put(l, one);
        used += length;
    }
    put(l, "\"");
}

static void
put_field(struct line *l, const char *key, const char *text, size_t most)
{
    if (!text || !text[0])
        return;
    put(l, ",\"");
    put(l, key);
    put(l, "\":");
    put_text(l, text, most);
}

/* Writes the number, the time (RFC 3339, in UTC) and the event. A time out of range becomes the
 * nearest one with a year of four digits. */
static void
put_head(struct line *l, uint64_t number, struct timespec when, const char *event)
{
    static const time_t last = 253402300799; /* 9999-12-31T23:59:59Z */
    char text[128];
    struct tm at = {.tm_year = 70, .tm_mday = 1};
    time_t seconds = when.tv_sec < 0 ? 0 : when.tv_sec > last ? last : when.tv_sec;
    gmtime_r(&seconds, &at);
    snprintf(text, sizeof text,
             "{\"seq\":%" PRIu64 ",\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ\",\"event\":\"",
             number, at.tm_year + 1900, at.tm_mon + 1, at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec,
             when.tv_nsec / 1000 % 1000000);
    put(l, text);
    put(l, event);
    put(l, "\"");
}

const char *
exo_audit_event_name(exo_audit_event event)
{
    static const char *const names[EXO_AUDIT_EVENTS] = {
        [EXO_AUDIT_PROCESS] = "process", [EXO_AUDIT_ADMITTED] = "admitted",
        [EXO_AUDIT_REFUSED] = "refused", [EXO_AUDIT_REVOKED] = "revoked",
        [EXO_AUDIT_EXPIRED] = "expired", [EXO_AUDIT_KEY] = "key",
        [EXO_AUDIT_NODE] = "node",       [EXO_AUDIT_JOB] = "job",
        [EXO_AUDIT_SPAWN] = "spawn",     [EXO_AUDIT_KILL] = "kill",
        [EXO_AUDIT_STOP] = "stop",       [EXO_AUDIT_DENIED] = "denied",
        [EXO_AUDIT_QUOTA] = "quota"};
    return names[event];
}

/* Writes the sender: its proven identity, or the claims of a sender without one. */
static void
put_who(struct line *l, const exo_audit_record *r)
{
    static const char *const roles[] = {[EXO_ACCESS_OBSERVER] = "observer",
                                        [EXO_ACCESS_DRIVER] = "driver",
                                        [EXO_ACCESS_WORKER] = "worker",
                                        [EXO_ACCESS_ADMIN] = "admin"};
    const exo_identity *who = r->who;
    char text[64];
    put_field(l, "who", who ? who->name : r->name, TEXT);
    put_field(l, "key", who ? who->key : r->key, TEXT);
    put_field(l, "role", who ? (who->role <= EXO_ACCESS_ADMIN ? roles[who->role] : NULL) : NULL,
              TEXT);
    put_field(l, "address", who ? who->address : r->address, TEXT);
    if (who && who->pid) {
        snprintf(text, sizeof text, ",\"pid\":%" PRIu32, who->pid);
        put(l, text);
    }
    if (who && who->node) {
        snprintf(text, sizeof text, "%016" PRIx64, who->node);
        put_field(l, "node", text, TEXT);
    }
}

size_t
exo_audit_write_line(char out[EXO_AUDIT_LINE], const exo_audit_record *r, uint64_t number,
                     struct timespec when)
{
    struct line l = {.out = out};
    put_head(&l, number, when, exo_audit_event_name(r->event));
    put_field(&l, "outcome",
              r->status == EXO_OK       ? "allowed"
              : r->status == EXO_DENIED ? "refused"
                                        : "failed",
              TEXT);
    put_who(&l, r);
    put_field(&l, "object", r->object, TEXT);
    put_field(&l, "method", r->method, TEXT);
    put_field(&l, "subject", r->subject, TEXT);
    put_field(&l, "detail", r->detail, REASON);
    put_field(&l, "reason", r->status == EXO_OK ? NULL : r->reason, REASON);
    put(&l, "}\n");
    return l.at;
}

size_t
exo_audit_write_count(char out[EXO_AUDIT_LINE], const char *event, const char *of, const char *who,
                      const char *key, uint64_t count, const char *reason, uint64_t number,
                      struct timespec when)
{
    struct line l = {.out = out};
    char text[64];
    put_head(&l, number, when, event);
    snprintf(text, sizeof text, ",\"count\":%" PRIu64, count);
    put(&l, text);
    put_field(&l, "of", of, TEXT);
    put_field(&l, "who", who, TEXT);
    put_field(&l, "key", key, TEXT);
    put_field(&l, "reason", reason, REASON);
    put(&l, "}\n");
    return l.at;
}
