/* The audit log: see audit.h.
 *
 * Callers append lines to `queue`. The log's thread swaps it with `out`, which the thread owns, and
 * writes `out` to the file. After a partial write, the next write continues the line; if another
 * file has replaced the first, the line begins anew there. Read next: audit_line.c. */
#include "base/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <uthash.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/audit_line.h"
#include "base/dir.h"
#include "base/thread.h"
#include "base/waiting.h"

enum {
    QUEUE = 256 << 10, /* bytes of waiting lines, and as many that are being written */
    SOURCES = 1024,    /* keys with a quota of their own */
    NAME = 48
};

#define RETRY EXO_SECOND
/* time between two counts of suppressed records */
#define SAY_EVERY (10 * EXO_SECOND)
#define PATIENCE  (5 * EXO_SECOND)

/* The quota of one source for one kind of event. A zeroed one is full. */
struct quota {
    exo_time filled;
    uint64_t used, left_out;
};

/* A key, or one of `shared`. */
struct source {
    char name[NAME];
    struct quota quotas[EXO_AUDIT_EVENTS];
    UT_hash_handle hh;
};

/* Peers without a key share quotas; that of this host's processes is large, because they are cheap
 * to make. */
static const struct {
    const char *name;
    uint64_t burst, a_second;
} shared[] = {{"processes of this host", 4096, 16},
              {"strangers", 100, 1},
              {"peers without a key", 100, 1},
              {"other keys", 100, 1}};

enum {
    LOCAL,
    STRANGERS,
    ANYONE,
    OTHERS,
    SHARED,
    BURST = 100, /* of a key, like A_SECOND */
    A_SECOND = 1
};

struct exo_audit {
    char *path; /* constant, like the clock */
    const exo_clock *clock;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, changed;
    char *queue; /* guarded by lock, like all up to `ended` */
    size_t used;
    uint64_t number;       /* of the newest record */
    uint64_t lost;         /* records without room since the last count */
    uint64_t num_left_out; /* suppressed records in all quotas */
    exo_time said_at;      /* time of the last count of them, on `clock` */
    struct source *sources;
    uint64_t asked, served; /* requests of exo_audit_flush */
    uint64_t failures;
    bool hurry, closing, ended;

    /* Owner: the thread; until it starts, the opener. */
    char *out;
    size_t out_size, out_at;
    int fd; /* -1: no file is open */
    bool failing;
};

/* --- The file --------------------------------------------------------------------------------- */

/* Whether the bytes begin like a line, as far as they go. */
static bool
begins_line(const char *bytes, size_t size)
{
    static const char beginning[] = "{\"seq\":";
    size_t length = sizeof beginning - 1;
    return memcmp(bytes, beginning, size < length ? size : length) == 0;
}

static exo_status
check_file(const char *path, int fd, exo_err *err)
{
    struct stat info;
    char first[8];
    if (fstat(fd, &info) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return exo_fail(err, EXO_INVAL, "%s: an audit log must be a plain file", path);
    if (info.st_uid != geteuid() || info.st_nlink != 1)
        return exo_fail(err, EXO_INVAL,
                        "%s: an audit log must be a file of your own, with one name", path);
    if (info.st_mode & 077)
        return exo_fail(err, EXO_INVAL, "%s: others may read or write it: chmod 600", path);
    ssize_t got = pread(fd, first, sizeof first, 0);
    if (got > 0 && !begins_line(first, (size_t)got))
        return exo_fail(err, EXO_INVAL, "%s: it holds something else than an audit log", path);
    return EXO_OK;
}

/* Removes the torn last line that a killed process has left, so that each line is complete or
 * missing. */
static void
end_last_line(int fd)
{
    char last[EXO_AUDIT_LINE];
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size == 0)
        return;
    off_t from = info.st_size > (off_t)sizeof last ? info.st_size - (off_t)sizeof last : 0;
    ssize_t got = pread(fd, last, sizeof last, from);
    if (got <= 0 || last[got - 1] == '\n')
        return;
    const char *end = memrchr(last, '\n', (size_t)got);
    const char *torn = end ? end + 1 : last;
    bool own = (end || from == 0) && begins_line(torn, (size_t)(last + got - torn));
    if (!own || ftruncate(fd, from + (torn - last)) != 0) {
        /* no record's beginning, or an append-only file */
        ssize_t written = write(fd, "\n", 1);
        (void)written;
    }
}

static exo_status
open_file(const char *path, int *out, exo_err *err)
{
    *out =
        exo_dir_open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
    if (*out < 0)
        return exo_fail(err, errno == ELOOP ? EXO_INVAL : EXO_IO, "%s: %s", path,
                        errno == ELOOP ? "an audit log must not be a link" : strerror(errno));
    exo_status st = check_file(path, *out, err);
    if (st == EXO_OK && flock(*out, LOCK_EX | LOCK_NB) != 0)
        st = exo_fail(err, EXO_EXISTS, "%s: another process has it as its audit log", path);
    if (st == EXO_OK) {
        end_last_line(*out);
        return EXO_OK;
    }
    close(*out);
    *out = -1;
    return st;
}

/* Whether the path still names the open file. */
static bool
is_same_file(const exo_audit *a)
{
    struct stat named, open;
    if (lstat(a->path, &named) != 0)
        return errno != ENOENT && errno != ENOTDIR;
    return fstat(a->fd, &open) == 0 && named.st_ino == open.st_ino && named.st_dev == open.st_dev;
}

/* Moves back to the beginning of the line that was written in part. */
static void
begin_line_again(exo_audit *a)
{
    while (a->out_at > 0 && a->out[a->out_at - 1] != '\n')
        a->out_at--;
}

/* Writes `out` to the file, which it opens if necessary. */
static exo_status
write_out(exo_audit *a, exo_err *err)
{
    exo_status st = EXO_OK;
    if (a->fd >= 0 && !is_same_file(a)) {
        close(a->fd);
        a->fd = -1;
        begin_line_again(a);
    }
    if (a->fd < 0)
        st = open_file(a->path, &a->fd, err);
    while (st == EXO_OK && a->out_at < a->out_size) {
        ssize_t got = write(a->fd, a->out + a->out_at, a->out_size - a->out_at);
        if (got > 0)
            a->out_at += (size_t)got;
        else if (got == 0 || errno != EINTR)
            st = exo_fail(err, EXO_IO, "%s: %s", a->path,
                          got < 0 ? strerror(errno) : "nothing can be written");
    }
    return st;
}

/* --- Quotas ----------------------------------------------------------------------------------- */

static struct source *
find_locked(exo_audit *a, const char *name)
{
    struct source *s = NULL;
    HASH_FIND_STR(a->sources, name, s);
    return s;
}

static bool
is_shared(const char *name)
{
    for (size_t i = 0; i < SHARED; i++)
        if (strcmp(shared[i].name, name) == 0)
            return true;
    return false;
}

static void
quota_limits(const char *name, uint64_t *burst, uint64_t *a_second)
{
    *burst = BURST;
    *a_second = A_SECOND;
    for (size_t i = 0; i < SHARED; i++) {
        if (strcmp(shared[i].name, name) == 0) {
            *burst = shared[i].burst;
            *a_second = shared[i].a_second;
        }
    }
}

static void
refill(struct quota *q, exo_time now, uint64_t a_second)
{
    uint64_t more =
        now > q->filled ? (uint64_t)((now - q->filled) / (EXO_SECOND / (exo_time)a_second)) : 0;
    q->used = more < q->used ? q->used - more : 0;
    q->filled += (exo_time)more * (EXO_SECOND / (exo_time)a_second);
    if (q->used == 0)
        q->filled = now;
}

/* Forgets keys whose quotas are full again, to make room for others. */
static void
forget_quiet_locked(exo_audit *a, exo_time now)
{
    struct source *s, *next;
    HASH_ITER (hh, a->sources, s, next) {
        bool quiet = true;
        for (size_t i = 0; i < EXO_AUDIT_EVENTS; i++) {
            refill(&s->quotas[i], now, A_SECOND);
            quiet = quiet && s->quotas[i].used == 0 && s->quotas[i].left_out == 0;
        }
        if (!quiet)
            continue;
        HASH_DEL(a->sources, s);
        exo_free(s);
    }
}

static struct source *
source_of_locked(exo_audit *a, const char *name, exo_time now)
{
    struct source *s = find_locked(a, name);
    if (s)
        return s;
    if (HASH_COUNT(a->sources) >= SOURCES)
        forget_quiet_locked(a, now);
    if (HASH_COUNT(a->sources) >= SOURCES) {
        name = shared[OTHERS].name;
        s = find_locked(a, name);
    }
    if (s || !(s = exo_calloc(1, sizeof *s)))
        return s;
    snprintf(s->name, sizeof s->name, "%s", name);
    HASH_ADD_STR(a->sources, name, s);
    return s;
}

/* The source whose quota a record uses; NULL: this process, which is not limited. */
static const char *
source_name(const exo_audit_record *r)
{
    if (r->who)
        return r->who->key[0] ? r->who->key
               : r->who->pid  ? shared[LOCAL].name
                              : shared[ANYONE].name;
    return (r->key && r->key[0]) || (r->address && r->address[0]) ? shared[STRANGERS].name : NULL;
}

static bool
may_add_locked(exo_audit *a, const exo_audit_record *r)
{
    uint64_t burst, a_second;
    const char *name = source_name(r);
    exo_time now = exo_now(a->clock);
    struct source *s = name ? source_of_locked(a, name, now) : NULL;
    a->lost += name && !s; /* no memory for a quota */
    if (!s)
        return !name;
    struct quota *q = &s->quotas[r->event];
    quota_limits(s->name, &burst, &a_second);
    refill(q, now, a_second);
    if (q->used < burst) {
        q->used++;
        return true;
    }
    a->said_at = a->num_left_out ? a->said_at : now;
    q->left_out++;
    a->num_left_out++;
    return false;
}

/* --- Adding ----------------------------------------------------------------------------------- */

static struct timespec
wall_time(void)
{
    struct timespec when = {0};
    clock_gettime(CLOCK_REALTIME, &when);
    return when;
}

static bool
append_locked(exo_audit *a, const char *line, size_t size)
{
    if (size > QUEUE - a->used)
        return false;
    memcpy(a->queue + a->used, line, size);
    a->used += size;
    return true;
}

/* Adds the count of lost records once there is room. */
static void
tell_lost_locked(exo_audit *a)
{
    char line[EXO_AUDIT_LINE];
    if (a->lost == 0 || QUEUE - a->used < 2 * sizeof line)
        return;
    size_t size = exo_audit_write_count(line, "lost", NULL, NULL, NULL, a->lost,
                                        "they could not be written", a->number + 1, wall_time());
    a->number++; /* there is room for it */
    a->lost = 0;
    append_locked(a, line, size);
}

static void
tell_left_out_locked(exo_audit *a)
{
    char line[EXO_AUDIT_LINE];
    a->said_at = exo_now(a->clock);
    for (struct source *s = a->sources; s && a->num_left_out > 0; s = s->hh.next) {
        for (int i = 0; i < EXO_AUDIT_EVENTS; i++) {
            struct quota *q = &s->quotas[i];
            if (q->left_out == 0)
                continue;
            size_t size = exo_audit_write_count(
                line, "suppressed", exo_audit_event_name((exo_audit_event)i),
                is_shared(s->name) ? s->name : NULL, is_shared(s->name) ? NULL : s->name,
                q->left_out, NULL, a->number + 1, wall_time());
            if (!append_locked(a, line, size))
                return; /* the next count tells the rest */
            a->number++;
            a->num_left_out -= q->left_out;
            q->left_out = 0;
        }
    }
}

void
exo_audit_add(exo_audit *audit, const exo_audit_record *record)
{
    char line[EXO_AUDIT_LINE];
    if (!audit)
        return;
    pthread_mutex_lock(&audit->lock);
    if (may_add_locked(audit, record)) {
        tell_lost_locked(audit);
        size_t size = exo_audit_write_line(line, record, audit->number + 1, wall_time());
        bool kept = append_locked(audit, line, size);
        /* a lost record takes no number, so a gap means a removed line */
        audit->number += kept;
        audit->lost += !kept;
        pthread_cond_signal(&audit->wake);
    }
    pthread_mutex_unlock(&audit->lock);
}

/* --- The thread ------------------------------------------------------------------------------- */

/* Fills `out`, which is empty, or waits for records. False: nothing is left, and the thread
 * ends. */
static bool
fill_out_locked(exo_audit *a)
{
    tell_lost_locked(a);
    bool due = a->num_left_out > 0 && exo_now(a->clock) - a->said_at >= SAY_EVERY;
    if (due || a->asked != a->served || a->closing)
        tell_left_out_locked(a);
    if (a->used > 0) {
        char *empty = a->out;
        a->out = a->queue;
        a->out_size = a->used;
        a->out_at = 0;
        a->queue = empty;
        a->used = 0;
        return true;
    }
    a->served = a->asked;
    pthread_cond_broadcast(&a->changed);
    if (a->closing)
        return false;
    exo_condition_wait_until(&a->wake, &a->lock,
                             exo_now(exo_clock_real()) + (a->num_left_out ? RETRY : SAY_EVERY));
    return true;
}

/* Waits until the next attempt is due. */
static void
wait_for_retry_locked(exo_audit *a)
{
    exo_time until = exo_now(exo_clock_real()) + RETRY;
    while (!a->hurry && !a->closing && exo_now(exo_clock_real()) < until)
        exo_condition_wait_until(&a->wake, &a->lock, until);
}

static void
tell_log(const exo_audit *a, exo_status st, const exo_err *err)
{
    if (st != EXO_OK && !a->failing)
        EXO_LOG(ERROR, AUDIT,
                "event=audit_fails reason=\"%s\": records are kept while there is room, and "
                "counted then",
                err->text);
    else if (st == EXO_OK && a->failing)
        EXO_LOG(WARN, AUDIT, "event=audit_writes_again file=%s", a->path);
}

static void *
run(void *argument)
{
    exo_audit *a = argument;
    bool going = true;
    pthread_mutex_lock(&a->lock);
    while (going) {
        exo_err err = {0};
        if (a->out_at == a->out_size) {
            going = fill_out_locked(a);
            continue;
        }
        a->hurry = false;
        pthread_mutex_unlock(&a->lock);
        exo_status st = write_out(a, &err);
        tell_log(a, st, &err);
        a->failing = st != EXO_OK;
        pthread_mutex_lock(&a->lock);
        a->failures += st != EXO_OK;
        pthread_cond_broadcast(&a->changed);
        if (a->failing && a->closing)
            break;
        if (a->failing)
            wait_for_retry_locked(a);
    }
    a->ended = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static void
release(exo_audit *a)
{
    struct source *s, *next;
    HASH_ITER (hh, a->sources, s, next) {
        HASH_DEL(a->sources, s);
        exo_free(s);
    }
    if (a->fd >= 0)
        close(a->fd);
    pthread_cond_destroy(&a->wake);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    exo_free(a->queue);
    exo_free(a->out);
    exo_free(a->path);
    exo_free(a);
}

/* Blocks all signals in the thread: the program's own threads handle them. */
static exo_status
start_thread(exo_audit *a, exo_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    exo_status st = exo_thread_start(&a->thread, run, a, "the audit log", err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

exo_status
exo_audit_open(exo_audit **out, const char *path, const exo_clock *clock, exo_err *err)
{
    exo_audit *a = exo_calloc(1, sizeof *a);
    if (!a)
        return exo_fail(err, EXO_NOMEM, "no memory for an audit log");
    a->fd = -1;
    a->clock = clock ? clock : exo_clock_real();
    pthread_mutex_init(&a->lock, NULL);
    exo_condition_init(&a->wake);
    exo_condition_init(&a->changed);
    a->path = exo_strdup(path);
    a->queue = exo_calloc(1, QUEUE);
    a->out = exo_calloc(1, QUEUE);
    exo_status st = a->path && a->queue && a->out
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "no memory for an audit log");
    if (st == EXO_OK)
        st = open_file(path, &a->fd, err);
    if (st == EXO_OK)
        st = start_thread(a, err);
    if (st == EXO_OK)
        *out = a;
    else
        release(a);
    return st;
}

bool
exo_audit_flush(exo_audit *a)
{
    exo_time until = exo_now(exo_clock_real()) + PATIENCE;
    pthread_mutex_lock(&a->lock);
    uint64_t mine = ++a->asked, failures = a->failures;
    a->hurry = true;
    pthread_cond_signal(&a->wake);
    while (a->served < mine && a->failures == failures && exo_now(exo_clock_real()) < until)
        exo_condition_wait_until(&a->changed, &a->lock, until);
    bool served = a->served >= mine;
    pthread_mutex_unlock(&a->lock);
    return served;
}

void
exo_audit_close(exo_audit **audit)
{
    exo_audit *a = *audit;
    *audit = NULL;
    if (!a)
        return;
    exo_time until = exo_now(exo_clock_real()) + PATIENCE;
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    pthread_cond_signal(&a->wake);
    while (!a->ended && exo_now(exo_clock_real()) < until)
        exo_condition_wait_until(&a->changed, &a->lock, until);
    bool ended = a->ended;
    pthread_mutex_unlock(&a->lock);
    if (!ended) { /* the disk hangs, and the thread still uses the memory: it is never freed */
        pthread_detach(a->thread);
        return;
    }
    pthread_join(a->thread, NULL);
    if (a->out_at < a->out_size || a->lost > 0)
        EXO_LOG(ERROR, AUDIT,
                "event=audit_lost bytes=%zu records=%" PRIu64 ": the file cannot be written",
                a->out_size - a->out_at + a->used, a->lost);
    release(a);
}
