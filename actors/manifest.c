/* Writes and checks the manifest of a checkpoint: see manifest.h. */
#include "actors/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/grow_text.h"
#include "base/parallel.h"

enum {
    DIGITS = 64,
    MAX_BYTES = 16 << 20
};

static const char format[] = "# exogym checkpoint ", first_line[] = "# exogym checkpoint 1: step ";

exo_status
exo_manifest_write(const char *folder, uint64_t step, const exo_manifest_line *lines, size_t count,
                   exo_err *err)
{
    exo_text text = {0};
    char sha256[DIGITS + 1], *path = exo_text_make(NULL, "%s/" EXO_MANIFEST, folder);
    exo_text_add(&text, "%s%" PRIu64 "\n", first_line, step);
    for (size_t i = 0; i < count; i++)
        exo_text_add(&text, "%s  %s\n", lines[i].sha256, lines[i].name);
    if (!text.failed)
        exo_sha256(text.data, text.length, sha256);
    exo_text_add(&text, "# %s\n", text.failed ? "" : sha256);
    exo_status st = text.failed || !path ? exo_fail(err, EXO_NOMEM, "no memory for a manifest")
                                         : exo_file_write_atomic(path, text.data, text.length, err);
    exo_free(text.data);
    exo_free(path);
    return st;
}

/* --- Checking --------------------------------------------------------------------------------- */

struct line {
    const char *name; /* points into the manifest's text, as does sha256 */
    const char *sha256;
    exo_status status; /* of its file */
    exo_err error;
};

struct check {
    const char *folder;
    char *text;
    size_t size;
    uint64_t step;
    struct line *lines;
    size_t count;
};

static bool
is_digest(const char *text)
{
    return strspn(text, "0123456789abcdef") >= DIGITS;
}

/* Whether the last line is the SHA-256 of all bytes before it. If so, they are as written, and the
 * parser may rely on their form. */
static bool
is_whole(const struct check *c)
{
    enum {
        LAST = 2 + DIGITS + 1 /* "# ", digits, end of line */
    };
    char sha256[DIGITS + 1];
    if (c->size <= LAST || memchr(c->text, '\0', c->size))
        return false;
    const char *last = c->text + c->size - LAST;
    exo_sha256(c->text, c->size - LAST, sha256);
    return last[-1] == '\n' && last[LAST - 1] == '\n' && strncmp(last, "# ", 2) == 0 &&
           strncmp(last + 2, sha256, DIGITS) == 0;
}

/* Splits the text into lines; false: exo_manifest_write did not write it. */
static bool
parse(struct check *c)
{
    char *at = c->text, *end = NULL;
    if (strncmp(at, first_line, sizeof first_line - 1) != 0)
        return false;
    errno = 0;
    c->step = strtoull(at + sizeof first_line - 1, &end, 10);
    if (errno || *end != '\n')
        return false;
    for (at = end + 1; *at != '#'; at = end + 1) {
        end = strchr(at, '\n');
        if (!end || end - at < DIGITS + 3 || !is_digest(at) || strncmp(at + DIGITS, "  ", 2) != 0)
            return false;
        *end = at[DIGITS] = '\0';
        c->lines[c->count++] = (struct line){.sha256 = at, .name = at + DIGITS + 2};
    }
    return true;
}

/* A folder, a socket or a file of an impossible size (DAMAGED) is damage of the checkpoint, which
 * is INVAL here. */
static exo_status
of_checkpoint(exo_status st, exo_err *err)
{
    if (st != EXO_DAMAGED)
        return st;
    if (err)
        err->code = EXO_INVAL;
    return EXO_INVAL;
}

static exo_status
read_manifest(struct check *c, exo_err *err)
{
    char *path = exo_text_make(NULL, "%s/" EXO_MANIFEST, c->folder);
    size_t rows = 1;
    if (!path)
        return exo_fail(err, EXO_NOMEM, "no memory for a path");
    exo_status st = exo_file_read(path, MAX_BYTES, &c->text, &c->size, err);
    if (st == EXO_NOT_FOUND)
        st = exo_fail(err, EXO_INVAL,
                      "%s: is missing: it was removed, or an older exogym wrote the checkpoint",
                      path);
    st = of_checkpoint(st, err);
    for (size_t i = 0; st == EXO_OK && i < c->size; i++)
        rows += c->text[i] == '\n';
    if (st == EXO_OK && !(c->lines = exo_calloc(rows, sizeof *c->lines)))
        st = exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    const bool whole = st == EXO_OK && is_whole(c);
    if (whole && strncmp(c->text, format, sizeof format - 1) == 0 &&
        strncmp(c->text, first_line, sizeof first_line - 1) != 0)
        st = exo_fail(err, EXO_INVAL,
                      "%s: another version of exogym wrote the checkpoint: use that one", path);
    if (st == EXO_OK && (!whole || !parse(c)))
        st = exo_fail(err, EXO_INVAL, "%s: is damaged", path);
    exo_free(path);
    return st;
}

/* ".nfs...": a file that was removed while another host had it open. */
static bool
is_listed(const struct check *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->lines[i].name, name) == 0)
            return true;
    return strcmp(name, EXO_MANIFEST) == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
           strncmp(name, ".nfs", 4) == 0;
}

static exo_status
find_strangers(const struct check *c, exo_err *err)
{
    exo_status st = EXO_OK;
    DIR *folder = exo_dir_list(c->folder);
    if (!folder)
        return exo_fail(err, EXO_IO, "%s: %s", c->folder, exo_dir_reason(errno));
    for (struct dirent *entry; st == EXO_OK && (entry = readdir(folder));)
        if (!is_listed(c, entry->d_name))
            st = exo_fail(err, EXO_INVAL, "%s/%s: is not a file of this checkpoint", c->folder,
                          entry->d_name);
    closedir(folder);
    return st;
}

static void
check_file(void *context, size_t index)
{
    struct check *c = context;
    struct line *line = &c->lines[index];
    char sha256[DIGITS + 1], *path = exo_text_make(NULL, "%s/%s", c->folder, line->name);
    line->status = path ? exo_sha256_file(path, sha256, &line->error)
                        : exo_fail(&line->error, EXO_NOMEM, "no memory for a path");
    if (line->status == EXO_NOT_FOUND)
        line->status = exo_fail(&line->error, EXO_INVAL, "%s: is missing", path);
    else if (line->status == EXO_OK && strcmp(sha256, line->sha256) != 0)
        line->status =
            exo_fail(&line->error, EXO_INVAL,
                     "%s: is damaged: its SHA-256 is not the one in " EXO_MANIFEST, path);
    line->status = of_checkpoint(line->status, &line->error);
    exo_free(path);
}

exo_status
exo_manifest_check(const char *folder, uint64_t *step, exo_err *err)
{
    struct check c = {.folder = folder};
    exo_status st = read_manifest(&c, err);
    if (st == EXO_OK)
        exo_parallel_for(c.count, check_file, &c);
    for (size_t i = 0; st == EXO_OK && i < c.count; i++)
        if (c.lines[i].status != EXO_OK)
            st = exo_fail(err, c.lines[i].status, "%s", c.lines[i].error.text);
    if (st == EXO_OK)
        st = find_strangers(&c, err);
    if (st == EXO_OK)
        *step = c.step;
    exo_free(c.lines);
    exo_free(c.text);
    return st;
}
