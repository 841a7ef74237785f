/* The ledger of a run's trainers: see explain_ledger.h. */
#include "programs/explain_ledger.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/grow_text.h"

enum {
    MAX_FILE = 1 << 30,
    VERSION_COLUMN = 12 /* of learned_*.csv */
};

/* A line of learned_TRAINER.csv. */
struct entry {
    uint64_t item, version;
};

struct entries {
    struct entry *all;
    size_t count, room;
};

static exo_status
add(struct entries *e, uint64_t item, uint64_t version, exo_err *err)
{
    if (e->count == e->room) {
        size_t room = e->room ? 2 * e->room : 1024;
        struct entry *all = exo_realloc(e->all, room, sizeof *all);
        if (!all)
            return exo_fail(err, EXO_NOMEM, "no memory for %zu items", room);
        e->all = all;
        e->room = room;
    }
    e->all[e->count++] = (struct entry){.item = item, .version = version};
    return EXO_OK;
}

/* The column of a line; NULL: it has fewer. */
static const char *
column(const char *line, int index)
{
    for (; line && index > 0; index--) {
        line = strchr(line, ',');
        line = line ? line + 1 : NULL;
    }
    return line;
}

static exo_status
read_items(struct entries *e, const char *path, char *text, exo_err *err)
{
    char *rest = NULL;
    exo_status st = EXO_OK;
    strtok_r(text, "\n", &rest); /* the names of the columns */
    for (char *line; st == EXO_OK && (line = strtok_r(NULL, "\n", &rest));) {
        const char *version = column(line, VERSION_COLUMN);
        st = version ? add(e, strtoull(line, NULL, 10), strtoull(version, NULL, 10), err)
                     : exo_fail(err, EXO_DAMAGED, "%s: this line is cut: %.40s", path, line);
    }
    return st;
}

/* Checks that the versions are 0, 1, 2, ... */
static exo_status
read_versions(exo_ledger_of_items *out, const char *path, char *text, exo_err *err)
{
    char *rest = NULL;
    uint64_t next = 0;
    strtok_r(text, "\n", &rest);
    for (char *line; (line = strtok_r(NULL, "\n", &rest)); next++)
        if (strtoull(line, NULL, 10) != next)
            return exo_fail(err, EXO_FAILED, "%s: version %.*s comes where %llu is due", path,
                            (int)strcspn(line, ","), line, (unsigned long long)next);
    if (next > 0 && next - 1 > out->versions)
        out->versions = next - 1;
    return EXO_OK;
}

static bool
is_named(const char *name, const char *begin)
{
    size_t length = strlen(name);
    return strncmp(name, begin, strlen(begin)) == 0 && length > 4 &&
           strcmp(name + length - 4, ".csv") == 0;
}

static exo_status
read_file(exo_ledger_of_items *out, struct entries *e, const char *folder, const char *name,
          exo_err *err)
{
    char *text = NULL, *path = exo_text_make(err, "%s/%s", folder, name);
    size_t size = 0;
    bool items = is_named(name, "learned_");
    exo_status st = path ? exo_file_read(path, MAX_FILE, &text, &size, err) : EXO_NOMEM;
    out->trainers += items;
    if (st == EXO_OK)
        st = items ? read_items(e, path, text, err) : read_versions(out, path, text, err);
    exo_free(text);
    exo_free(path);
    return st;
}

static int
by_item(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    return (a->item > b->item) - (a->item < b->item);
}

static exo_status
check(exo_ledger_of_items *out, const struct entries *e, exo_err *err)
{
    for (size_t i = 1; i < e->count; i++)
        if (e->all[i].item == e->all[i - 1].item)
            return exo_fail(err, EXO_FAILED,
                            "item %llu was learned from more than once: for version %llu and for "
                            "version %llu",
                            (unsigned long long)e->all[i].item,
                            (unsigned long long)e->all[i - 1].version,
                            (unsigned long long)e->all[i].version);
    out->items = e->count;
    out->missing = e->count ? e->all[e->count - 1].item + 1 - e->count : 0;
    return EXO_OK;
}

exo_status
exo_ledger_of_items_none(const char *folder, exo_err *err)
{
    return exo_fail(err, EXO_NOT_FOUND,
                    "%s has no file learned_*.csv: it is no run of trainers, or they wrote it to "
                    "that folder of their own hosts: copy learned_* and versions_* from there",
                    folder);
}

exo_status
exo_ledger_of_items_check(exo_ledger_of_items *out, const char *folder, exo_err *err)
{
    struct entries e = {0};
    exo_status st = EXO_OK;
    DIR *dir = exo_dir_list(folder);
    *out = (exo_ledger_of_items){0};
    if (!dir)
        return exo_fail(err, EXO_NOT_FOUND, "%s: %s", folder, exo_dir_reason(errno));
    for (struct dirent *d; st == EXO_OK && (d = readdir(dir));)
        if (is_named(d->d_name, "learned_") || is_named(d->d_name, "versions_"))
            st = read_file(out, &e, folder, d->d_name, err);
    closedir(dir);
    if (st == EXO_OK && out->trainers == 0)
        st = exo_ledger_of_items_none(folder, err);
    if (e.count > 0)
        qsort(e.all, e.count, sizeof *e.all, by_item);
    if (st == EXO_OK)
        st = check(out, &e, err);
    exo_free(e.all);
    return st;
}
