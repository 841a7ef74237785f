/* What was learned from: see learned.h. */
#include "experience/learned.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/file.h"

enum {
    MAX_PATH = 4096,
    MAX_LINE = 512 /* of versions_ACTOR.csv */
};

struct exo_learned {
    exo_table items, versions;
};

static exo_status
path_of(const char *folder, const char *kind, const char *actor, char out[MAX_PATH], exo_err *err)
{
    int size = snprintf(out, MAX_PATH, "%s/%s_%s.csv", folder, kind, actor);
    return size >= 0 && size < MAX_PATH
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", out);
}

static exo_status
open_one(exo_table *out, const char *folder, const char *kind, const char *actor,
         const char *columns, const uint64_t *length, exo_err *err)
{
    char path[MAX_PATH];
    exo_status st = path_of(folder, kind, actor, path, err);
    return st == EXO_OK ? exo_table_open(out, path, columns, length ? *length : 0, err) : st;
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
    exo_table_close(&l->items);
    exo_table_close(&l->versions);
    exo_free(l);
}

exo_status
exo_learned_flush(exo_learned *l, exo_learned_mark *mark, exo_err *err)
{
    exo_status st = exo_table_flush(&l->items, &mark->items, err);
    return st == EXO_OK ? exo_table_flush(&l->versions, &mark->versions, err) : st;
}

const exo_table *
exo_learned_table(const exo_learned *l)
{
    return &l->items;
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
    exo_c_fprintf(file, "%llu,%llu,%llu,%llu,%zu,%zu,%.9g", (unsigned long long)e->id,
                  (unsigned long long)e->prompt, (unsigned long long)e->epoch,
                  (unsigned long long)e->maker, e->answers,
                  exo_experience_actions(e, 0, e->tokens_length), score / (double)e->answers);
    write_runs(file, e, e->versions);
    write_runs(file, e, e->cache_versions);
    exo_c_fprintf(file, ",%.6f,%.6f,%.6f,%llu,", seconds(e->sent), seconds(e->received),
                  seconds(now), (unsigned long long)version);
    write_turns(file, e);
    fprintf(file, "\n");
}

exo_status
exo_learned_write(exo_learned *l, const exo_experience *items, size_t count, exo_time now,
                  const exo_learner *learner, const exo_learner_figures *f, exo_err *err)
{
    char sha256[65];
    uint64_t version = exo_learner_version(learner);
    FILE *lines = l->versions.stream;
    if (!lines)
        return EXO_OK;
    exo_status st = exo_learner_sha256(learner, sha256, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < count; i++)
        write_item(l->items.stream, &items[i], now, version);
    exo_c_fprintf(lines, "%llu,%.6f,%s,", (unsigned long long)version, seconds(now), sha256);
    if (f)
        exo_c_fprintf(lines, "%.0f,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g\n", f->items, f->score,
                      f->loss, f->kl, f->ratio_off, f->kl_makers, f->chi_squared, f->effective);
    else
        fprintf(lines, "0,,,,,,,\n");
    st = exo_table_push(&l->items, err);
    return st == EXO_OK ? exo_table_push(&l->versions, err) : st;
}
