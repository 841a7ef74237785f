/* What was learned from: see learned.h. */
#include "experience/learned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"

enum {
    MAX_PATH = 4096,
    MAX_LINE = 512 /* of versions_ACTOR.csv */
};

struct exo_learned {
    FILE *items, *versions; /* NULL: no files */
};

static exo_status
path_of(const char *folder, const char *kind, const char *actor, char out[MAX_PATH], exo_err *err)
{
    int size = snprintf(out, MAX_PATH, "%s/%s_%s.csv", folder, kind, actor);
    return size >= 0 && size < MAX_PATH
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", out);
}

/* Opens a file: empty but for its columns, or cut to a length that it had. */
static exo_status
open_one(FILE **out, const char *folder, const char *kind, const char *actor, const char *columns,
         const uint64_t *length, exo_err *err)
{
    char path[MAX_PATH];
    struct stat info;
    exo_status st = path_of(folder, kind, actor, path, err);
    if (st != EXO_OK)
        return st;
    int file = exo_dir_open(path, O_WRONLY | (length ? O_APPEND : O_CREAT | O_TRUNC), 0666);
    if (length && file >= 0 && fstat(file, &info) == 0 && (uint64_t)info.st_size < *length) {
        close(file);
        return exo_fail(err, EXO_DAMAGED, "%s: %lld bytes are left of %llu", path,
                        (long long)info.st_size, (unsigned long long)*length);
    }
    bool cut = file >= 0 && (!length || ftruncate(file, (off_t)*length) == 0);
    *out = cut ? fdopen(file, length ? "a" : "w") : NULL;
    if (!*out || (!length && fprintf(*out, "%s\n", columns) < 0) || fflush(*out) != 0) {
        int reason = errno;
        if (file >= 0 && !*out)
            close(file);
        return exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(reason));
    }
    return EXO_OK;
}

exo_status
exo_learned_open(exo_learned **out, const char *folder, const char *actor,
                 const exo_learned_mark *mark, exo_err *err)
{
    exo_learned *l = exo_calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return exo_fail(err, EXO_NOMEM, "no memory for the list of what was learned");
    exo_status st = EXO_OK;
    if (folder)
        st = open_one(&l->items, folder, "learned", actor,
                      "item,prompt,epoch,maker,answers,tokens,score,versions,caches,sent,received,"
                      "learned,version,turns",
                      mark ? &mark->items : NULL, err);
    if (folder && st == EXO_OK)
        st = open_one(&l->versions, folder, "versions", actor,
                      "version,time,sha256,items,score,loss,kl,ratio_off,kl_makers,chi_squared,"
                      "effective",
                      mark ? &mark->versions : NULL, err);
    if (st == EXO_OK)
        *out = l;
    else
        exo_learned_close(&l);
    return st;
}

/* Reads the line before `end` of a file. DAMAGED: the file is shorter. */
static exo_status
read_line_before(const char *path, uint64_t end, char line[MAX_LINE], exo_err *err)
{
    char text[MAX_LINE];
    struct stat info = {0};
    FILE *file = NULL;
    exo_status st = exo_file_open_stream(path, &file, err);
    if (st != EXO_OK)
        return st;
    size_t length = end < MAX_LINE - 1 ? (size_t)end : MAX_LINE - 1;
    if (fstat(fileno(file), &info) == 0 && (uint64_t)info.st_size < end)
        st = exo_fail(err, EXO_DAMAGED, "%s: %lld bytes are left of %llu", path,
                      (long long)info.st_size, (unsigned long long)end);
    else if (fseeko(file, (off_t)(end - length), SEEK_SET) != 0 ||
             fread(text, 1, length, file) != length)
        st = exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    if (st != EXO_OK)
        return st;
    length -= length > 0 && text[length - 1] == '\n';
    text[length] = '\0';
    const char *last = strrchr(text, '\n');
    snprintf(line, MAX_LINE, "%s", last ? last + 1 : text);
    return EXO_OK;
}

exo_status
exo_learned_check(const char *folder, const char *actor, const exo_learned_mark *mark,
                  const exo_learner *learner, exo_err *err)
{
    char path[MAX_PATH], line[MAX_LINE], sha256[65], begin[32];
    uint64_t version = exo_learner_version(learner);
    exo_status st = exo_learner_sha256(learner, sha256, err);
    snprintf(begin, sizeof begin, "%llu,", (unsigned long long)version);
    if (st == EXO_OK)
        st = path_of(folder, "learned", actor, path, err);
    if (st == EXO_OK)
        st = read_line_before(path, mark->items, line, err);
    if (st == EXO_OK)
        st = path_of(folder, "versions", actor, path, err);
    if (st == EXO_OK)
        st = read_line_before(path, mark->versions, line, err);
    if (st == EXO_OK && (strncmp(line, begin, strlen(begin)) != 0 || !strstr(line, sha256)))
        st = exo_fail(err, EXO_DAMAGED,
                      "%s: it does not have the weights of the checkpoint of version %llu: one of "
                      "the two is of another run",
                      path, (unsigned long long)version);
    return st;
}

void
exo_learned_close(exo_learned **learned)
{
    exo_learned *l = *learned;
    *learned = NULL;
    if (!l)
        return;
    if (l->items)
        fclose(l->items);
    if (l->versions)
        fclose(l->versions);
    exo_free(l);
}

static exo_status
flush_one(FILE *file, uint64_t *length)
{
    off_t at = -1;
    if (file && (fflush(file) != 0 || fsync(fileno(file)) != 0 || (at = ftello(file)) < 0))
        return EXO_IO;
    *length = file ? (uint64_t)at : 0;
    return EXO_OK;
}

exo_status
exo_learned_flush(exo_learned *l, exo_learned_mark *mark, exo_err *err)
{
    if (flush_one(l->items, &mark->items) != EXO_OK ||
        flush_one(l->versions, &mark->versions) != EXO_OK)
        return exo_fail(err, EXO_IO, "the files learned_*.csv in the run's folder: %s",
                        strerror(errno));
    return EXO_OK;
}

static double
seconds(exo_time t)
{
    return (double)t * 1e-9;
}

/* Writes runs of equal versions, of the tokens that the policy wrote. */
static void
write_runs(FILE *file, const exo_experience *e, const int64_t *versions)
{
    size_t count = 0;
    int64_t version = -1;
    fprintf(file, ",");
    for (size_t i = 0; i < e->tokens_length; i++) {
        if (e->mask && !e->mask[i])
            continue;
        if (count > 0 && versions[i] != version) {
            fprintf(file, "%lld:%zu ", (long long)version, count);
            count = 0;
        }
        version = versions[i];
        count++;
    }
    fprintf(file, "%lld:%zu", (long long)version, count);
}

/* Writes the turns of each answer, as TOKENS+TOKENS+..., policy and tool in turns. */
static void
write_turns(FILE *file, const exo_experience *e)
{
    size_t at = 0;
    for (size_t a = 0; e->mask && a < e->answers; a++) {
        size_t end = at + (size_t)e->lengths[a];
        for (size_t next; at < end; at = next) {
            for (next = at; next < end && e->mask[next] == e->mask[at];)
                next++;
            fprintf(file, "%zu%s", next - at, next < end ? "+" : a + 1 < e->answers ? " " : "");
        }
    }
}

static void
write_item(FILE *file, const exo_experience *e, exo_time now, uint64_t version)
{
    double score = 0;
    for (size_t a = 0; a < e->answers; a++)
        score += e->scores[a];
    fprintf(file, "%llu,%llu,%llu,%llu,%zu,%zu,%.9g", (unsigned long long)e->id,
            (unsigned long long)e->prompt, (unsigned long long)e->epoch,
            (unsigned long long)e->maker, e->answers,
            exo_experience_actions(e, 0, e->tokens_length), score / (double)e->answers);
    write_runs(file, e, e->versions);
    write_runs(file, e, e->cache_versions);
    fprintf(file, ",%.6f,%.6f,%.6f,%llu,", seconds(e->sent), seconds(e->received), seconds(now),
            (unsigned long long)version);
    write_turns(file, e);
    fprintf(file, "\n");
}

exo_status
exo_learned_write(exo_learned *l, const exo_experience *items, size_t count, exo_time now,
                  const exo_learner *learner, const exo_learner_figures *f, exo_err *err)
{
    char sha256[65];
    uint64_t version = exo_learner_version(learner);
    if (!l->items)
        return EXO_OK;
    exo_status st = exo_learner_sha256(learner, sha256, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < count; i++)
        write_item(l->items, &items[i], now, version);
    fprintf(l->versions, "%llu,%.6f,%s,", (unsigned long long)version, seconds(now), sha256);
    if (f)
        fprintf(l->versions, "%.0f,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g\n", f->items, f->score,
                f->loss, f->kl, f->ratio_off, f->kl_makers, f->chi_squared, f->effective);
    else
        fprintf(l->versions, "0,,,,,,,\n");
    if (fflush(l->items) != 0 || fflush(l->versions) != 0 || ferror(l->items) ||
        ferror(l->versions))
        return exo_fail(err, EXO_IO, "the files learned_*.csv in the run's folder: %s",
                        strerror(errno));
    return EXO_OK;
}
