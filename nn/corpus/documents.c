/* Text files as documents: see documents.h. */
#include "nn/corpus/documents.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/json_line.h"

/* Files whose lines are documents. */
#define LINES ".jsonl"

/* --- Lists of files --------------------------------------------------------------------------- */

static exo_status
fail_file(const char *path, int number, exo_err *err)
{
    return exo_fail(err, number == ENOENT || number == ENOTDIR ? EXO_NOT_FOUND : EXO_IO, "%s: %s",
                    path, strerror(number));
}

/* Appends "folder/name", or `name` alone if the folder is NULL. */
static exo_status
append(exo_file_list *list, const char *folder, const char *name, exo_err *err)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        char **paths = exo_realloc(list->paths, room, sizeof *paths);
        if (!paths)
            return exo_fail(err, EXO_NOMEM, "no memory for a list of files");
        list->paths = paths;
        list->room = room;
    }
    size_t size = (folder ? strlen(folder) + 1 : 0) + strlen(name) + 1;
    char *path = exo_calloc(size, 1);
    if (!path)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of files");
    if (folder)
        snprintf(path, size, "%s/%s", folder, name);
    else
        memcpy(path, name, size);
    list->paths[list->count++] = path;
    return EXO_OK;
}

static int
by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool
ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), tail = strlen(ending);
    return length > tail && strcmp(name + length - tail, ending) == 0;
}

static exo_status
append_folder(exo_file_list *list, const char *folder, const char *ending, exo_err *err)
{
    size_t before = list->count;
    DIR *dir = opendir(folder);
    if (!dir)
        return fail_file(folder, errno, err);
    exo_status st = EXO_OK;
    bool jsonl = false;
    const struct dirent *entry = NULL;
    while (st == EXO_OK && (errno = 0, entry = readdir(dir))) {
        if (entry->d_name[0] != '.' && ends_with(entry->d_name, ending))
            st = append(list, folder, entry->d_name, err);
        jsonl = jsonl || (strcmp(ending, ".txt") == 0 && ends_with(entry->d_name, LINES));
    }
    if (st == EXO_OK && errno != 0)
        st = fail_file(folder, errno, err);
    closedir(dir);
    if (st == EXO_OK && list->count == before)
        return exo_fail(err, EXO_NOT_FOUND, "%s: there is no *%s in this folder%s", folder, ending,
                        jsonl ? "; for its *.jsonl give the path of each" : "");
    if (st == EXO_OK)
        qsort(list->paths + before, list->count - before, sizeof *list->paths, by_bytes);
    return st;
}

exo_status
exo_file_list_add(exo_file_list *list, const char *input, const char *ending, exo_err *err)
{
    struct stat info;
    if (stat(input, &info) != 0)
        return fail_file(input, errno, err);
    return S_ISDIR(info.st_mode) ? append_folder(list, input, ending, err)
                                 : append(list, NULL, input, err);
}

void
exo_file_list_release(exo_file_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        exo_free(list->paths[i]);
    exo_free(list->paths);
    *list = (exo_file_list){0};
}

uint64_t
exo_file_list_bytes(const exo_file_list *list)
{
    struct stat info;
    uint64_t bytes = 0;
    for (size_t i = 0; i < list->count; i++)
        bytes += stat(list->paths[i], &info) == 0 ? (uint64_t)info.st_size : 0;
    return bytes;
}

exo_status
exo_folder_of(const char *path, char **out, exo_err *err)
{
    struct stat info;
    const char *slash = strrchr(path, '/');
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        *out = exo_strdup(path);
    else if (!slash)
        *out = exo_strdup(".");
    else if ((*out = exo_strdup(path)))
        (*out)[slash == path ? 1 : slash - path] = '\0';
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a path");
}

/* --- Reading in pieces ------------------------------------------------------------------------ */

static bool
is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The place to cut `size` bytes of a longer text. It is in their second half: before a newline (or
 * CR LF) that follows a letter, else before any newline. If there is none, it is between the last
 * characters. */
static size_t
find_cut(const char *text, size_t size)
{
    size_t newline = 0;
    for (size_t at = size - 1; at > size / 2; at--) {
        if (text[at] != '\n')
            continue;
        size_t end = at - (text[at - 1] == '\r'); /* the end of the line */
        if (is_letter(text[end - 1]))
            return end;
        newline = newline ? newline : end;
    }
    if (newline)
        return newline;
    size_t cut = size;
    while (cut > size - 4 && ((unsigned char)text[cut] & 0xC0) == 0x80)
        cut--;
    return cut;
}

static exo_status
give_piece(const char *path, size_t index, const char *text, size_t size, uint64_t offset,
           exo_document_piece piece, void *context, exo_err *err)
{
    exo_status st = piece(context, index, text, size, offset, err);
    if (st == EXO_OK)
        return EXO_OK;
    return offset ? exo_fail_in(err, st, "%s: from byte %" PRIu64 " on", path, offset)
                  : exo_fail_in(err, st, "%s", path);
}

/* Whether the readers of the files are to end. */
static exo_status
check_stop(const exo_file_list *files, exo_err *err)
{
    return files->stop && *files->stop ? exo_fail(err, EXO_CANCELLED, "stopped") : EXO_OK;
}

/* Reads file `index` of the list, the document `document`. `buffer` has room for limit + 1 bytes.
 * The byte beyond a piece shows that the file goes on. */
static exo_status
read_file(const exo_file_list *files, size_t index, size_t document, char *buffer, size_t limit,
          exo_document_piece piece, void *context, uint64_t *read, exo_err *err)
{
    FILE *file = NULL;
    const char *path = files->paths[index];
    exo_status st = exo_file_open_stream(path, &file, err);
    if (st != EXO_OK)
        return st;
    uint64_t offset = 0;
    size_t have = 0;
    for (bool more = true; st == EXO_OK && more && (st = check_stop(files, err)) == EXO_OK;) {
        errno = 0;
        have += fread(buffer + have, 1, limit + 1 - have, file);
        if (ferror(file)) {
            st = fail_file(path, errno ? errno : EIO, err);
            break;
        }
        more = have > limit;
        size_t size = more ? find_cut(buffer, limit) : have;
        *read += size;
        if (size > 0)
            st = give_piece(path, document, buffer, size, offset, piece, context, err);
        memmove(buffer, buffer + size, have - size);
        have -= size;
        offset += size;
    }
    fclose(file);
    return st;
}

/* --- Lines of JSON ---------------------------------------------------------------------------- */

/* A file of such lines, while it is read. */
struct lines {
    const exo_file_list *files;
    const char *path;
    size_t line;     /* the present one, from 1 */
    size_t document; /* the index of the next one */
    exo_document_piece piece;
    void *context;
    uint64_t *read; /* as of exo_documents_read */
};

/* Gives the text of the line text (size), which is a document. Lines of spaces are none. */
static exo_status
give_line(struct lines *l, const char *text, size_t size, exo_err *err)
{
    json_t *line = NULL;
    *l->read += size;
    exo_status st = exo_json_line(&line, l->path, ++l->line, text, size, err);
    if (!line)
        return st;
    const json_t *value = json_object_get(line, "text");
    if (!json_is_string(value))
        st = exo_fail(err, EXO_INVAL, "%s:%zu: an object with the key 'text', a string, is needed",
                      l->path, l->line);
    else if (json_string_length(value) > 0 &&
             (st = l->piece(l->context, l->document++, json_string_value(value),
                            json_string_length(value), 0, err)) != EXO_OK)
        exo_fail_in(err, st, "%s:%zu", l->path, l->line);
    json_decref(line);
    return st;
}

/* As read_file, of a file with a document in each line: the text under the key "text". */
static exo_status
read_lines(struct lines *l, char *buffer, size_t limit, exo_err *err)
{
    FILE *file = NULL;
    exo_status st = exo_file_open_stream(l->path, &file, err);
    if (st != EXO_OK)
        return st;
    size_t have = 0;
    for (bool more = true; st == EXO_OK && more;) {
        size_t used = 0;
        errno = 0;
        have += fread(buffer + have, 1, limit + 1 - have, file);
        if (ferror(file)) {
            st = fail_file(l->path, errno ? errno : EIO, err);
            break;
        }
        more = have > limit;
        const char *end = NULL;
        while (st == EXO_OK && (end = memchr(buffer + used, '\n', have - used))) {
            ++*l->read; /* the end of the line */
            st = check_stop(l->files, err);
            if (st == EXO_OK)
                st = give_line(l, buffer + used, (size_t)(end - buffer) - used, err);
            used = (size_t)(end - buffer) + 1;
        }
        if (st == EXO_OK && !more && used < have)
            st = give_line(l, buffer + used, have - used, err); /* a last line without its end */
        else if (st == EXO_OK && more && used == 0)
            st = exo_fail(err, EXO_INVAL, "%s:%zu: the line has more than %zu bytes", l->path,
                          l->line + 1, limit);
        memmove(buffer, buffer + used, have - used);
        have -= used;
    }
    fclose(file);
    return st;
}

exo_status
exo_documents_read(const exo_file_list *files, size_t limit, exo_document_piece piece,
                   void *context, uint64_t *read, exo_err *err)
{
    exo_status st = EXO_OK;
    uint64_t unused = 0;
    char *buffer = exo_calloc(limit + 1, 1);
    if (!buffer)
        return exo_fail(err, EXO_NOMEM, "no memory to read text");
    read = read ? read : &unused;
    *read = 0;
    struct lines lines = {.files = files, .piece = piece, .context = context, .read = read};
    for (size_t i = 0; st == EXO_OK && i < files->count; i++) {
        lines.path = files->paths[i];
        lines.line = 0;
        st = ends_with(lines.path, LINES)
                 ? read_lines(&lines, buffer, limit, err)
                 : read_file(files, i, lines.document++, buffer, limit, piece, context, read, err);
    }
    exo_free(buffer);
    return st;
}

/* --- Encoding --------------------------------------------------------------------------------- */

struct encoder {
    const exo_encoding *encoding;
    size_t document;       /* the last piece's document; SIZE_MAX: there was no piece */
    uint64_t bytes, total; /* read so far; of all files */
};

static exo_status
encode_piece(void *context, size_t index, const char *text, size_t size, uint64_t offset,
             exo_err *err)
{
    (void)offset;
    struct encoder *e = context;
    const exo_encoding *c = e->encoding;
    int32_t *tokens = NULL;
    size_t count = 0;
    bool begins = index != e->document, first = e->document == SIZE_MAX;
    exo_status st = exo_tokenizer_encode(c->tokenizer, text, size, false, &tokens, &count, err);
    if (st == EXO_OK && begins && !first && c->end >= 0)
        st = c->sink(c->context, &c->end, 1, false, err);
    if (st == EXO_OK && count > 0)
        st = c->sink(c->context, tokens, count, begins, err);
    exo_free(tokens);
    e->document = index;
    if (st == EXO_OK && c->progress)
        c->progress(c->progress_context, e->bytes, e->total);
    return st;
}

exo_status
exo_documents_encode(const exo_file_list *files, const exo_encoding *encoding, exo_err *err)
{
    struct encoder e = {
        .encoding = encoding, .document = SIZE_MAX, .total = exo_file_list_bytes(files)};
    exo_status st = exo_documents_read(files, encoding->limit, encode_piece, &e, &e.bytes, err);
    if (st == EXO_OK && encoding->progress) /* the last bytes may be those of blank lines */
        encoding->progress(encoding->progress_context, e.bytes, e.total);
    return st;
}
