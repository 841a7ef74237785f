/* What was learned from: see learned.h. */
#include "experience/learned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/dir.h"

enum {
    MAX_PATH = 4096,
    MAX_ITEMS = INT32_MAX /* ids; a bit for each */
};

struct exo_learned {
    FILE *items, *versions; /* NULL: no files */
    uint8_t *claimed;       /* (bytes) a bit for each id */
    size_t bytes;
};

static exo_status
open_one(FILE **out, const char *folder, const char *kind, const char *actor, const char *columns,
         exo_err *err)
{
    char path[MAX_PATH];
    int length = snprintf(path, sizeof path, "%s/%s_%s.csv", folder, kind, actor);
    if (length < 0 || (size_t)length >= sizeof path)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", path);
    int file = exo_dir_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    *out = file >= 0 ? fdopen(file, "w") : NULL;
    if (!*out || fprintf(*out, "%s\n", columns) < 0 || fflush(*out) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(errno));
    return EXO_OK;
}

exo_status
exo_learned_open(exo_learned **out, const char *folder, const char *actor, exo_err *err)
{
    exo_learned *l = exo_calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return exo_fail(err, EXO_NOMEM, "no memory for the list of what was learned");
    exo_status st = EXO_OK;
    if (folder)
        st = open_one(&l->items, folder, "learned", actor,
                      "item,prompt,epoch,maker,answers,tokens,score,versions,caches,sent,received,"
                      "learned,version",
                      err);
    if (folder && st == EXO_OK)
        st = open_one(&l->versions, folder, "versions", actor,
                      "version,time,sha256,items,score,loss,kl,ratio_off", err);
    if (st == EXO_OK)
        *out = l;
    else
        exo_learned_close(&l);
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
    exo_free(l->claimed);
    exo_free(l);
}

exo_status
exo_learned_claim(exo_learned *l, uint64_t item, bool *is_new, exo_err *err)
{
    if (item > MAX_ITEMS)
        return exo_fail(err, EXO_INVAL, "item %llu: the largest number is %d",
                        (unsigned long long)item, MAX_ITEMS);
    if (item / 8 >= l->bytes) {
        size_t bytes = 2 * (size_t)(item / 8) + 64;
        uint8_t *more = exo_realloc(l->claimed, bytes, 1);
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu items", 8 * bytes);
        memset(more + l->bytes, 0, bytes - l->bytes);
        l->claimed = more;
        l->bytes = bytes;
    }
    uint8_t bit = (uint8_t)(1 << item % 8);
    *is_new = !(l->claimed[item / 8] & bit);
    l->claimed[item / 8] |= bit;
    return EXO_OK;
}

static double
seconds(exo_time t)
{
    return (double)t * 1e-9;
}

/* Writes runs of equal versions. */
static void
write_runs(FILE *file, const int64_t *versions, size_t count)
{
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && versions[end] == versions[i];)
            end++;
        fprintf(file, "%s%lld:%zu", i > 0 ? " " : ",", (long long)versions[i], end - i);
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
            (unsigned long long)e->maker, e->answers, e->tokens_length, score / (double)e->answers);
    write_runs(file, e->versions, e->tokens_length);
    write_runs(file, e->cache_versions, e->tokens_length);
    fprintf(file, ",%.6f,%.6f,%.6f,%llu\n", seconds(e->sent), seconds(e->received), seconds(now),
            (unsigned long long)version);
}

exo_status
exo_learned_write(exo_learned *l, const exo_experience *items, size_t count, exo_time now,
                  const exo_learner *learner, const exo_learner_figures *f, exo_err *err)
{
    char sha256[65];
    uint64_t version = exo_learner_version(learner);
    if (!l->items)
        return EXO_OK;
    exo_learner_sha256(learner, sha256);
    for (size_t i = 0; i < count; i++)
        write_item(l->items, &items[i], now, version);
    fprintf(l->versions, "%llu,%.6f,%s,", (unsigned long long)version, seconds(now), sha256);
    if (f)
        fprintf(l->versions, "%.0f,%.9g,%.9g,%.9g,%.9g\n", f->items, f->score, f->loss, f->kl,
                f->ratio_off);
    else
        fprintf(l->versions, "0,,,,\n");
    if (fflush(l->items) != 0 || fflush(l->versions) != 0)
        return exo_fail(err, EXO_IO, "the files learned_*.csv in the run's folder: %s",
                        strerror(errno));
    return EXO_OK;
}
