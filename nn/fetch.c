/* Downloads of public files: resumed after a break, and checked before a file gets its name. No
 * state but the files. Read next: fetch.h. */
#include "nn/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <curl/curl.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/dir.h"
#include "base/file.h"

enum {
    MAX_PATH = 4096,
    CONNECT_SECONDS = 20,
    STALL_SECONDS = 30
};

#define MNIST_URLS(name)                                                                           \
    {                                                                                              \
        "https://storage.googleapis.com/cvdf-datasets/mnist/" name,                                \
            "https://ossci-datasets.s3.amazonaws.com/mnist/" name                                  \
    }

static const struct exo_data_file mnist_files[] = {
    {"train-images-idx3-ubyte.gz", MNIST_URLS("train-images-idx3-ubyte.gz"),
     "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422},
    {"train-labels-idx1-ubyte.gz", MNIST_URLS("train-labels-idx1-ubyte.gz"),
     "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881},
    {"t10k-images-idx3-ubyte.gz", MNIST_URLS("t10k-images-idx3-ubyte.gz"),
     "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877},
    {"t10k-labels-idx1-ubyte.gz", MNIST_URLS("t10k-labels-idx1-ubyte.gz"),
     "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542},
};

static const struct exo_data_file shakespeare_files[] = {
    {"tinyshakespeare.txt",
     {"https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"},
     "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
     1115394},
};

static const exo_data_source sources[] = {
    {"mnist", "handwritten digits, 60,000 and 10,000 images of 28x28", 4, mnist_files},
    {"shakespeare", "1.1 MB of Shakespeare's plays, one text", 1, shakespeare_files},
};
enum {
    NUM_SOURCES = sizeof sources / sizeof sources[0]
};

const exo_data_source *
exo_data_source_at(size_t index)
{
    return index < NUM_SOURCES ? &sources[index] : NULL;
}

exo_status
exo_data_folder(const char *name, char **out, exo_err *err)
{
    static const struct {
        const char *variable, *below;
    } roots[] = {
        {"EXOGYM_DATA", ""}, {"XDG_DATA_HOME", "/exogym"}, {"HOME", "/.local/share/exogym"}};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        const char *root = getenv(roots[i].variable);
        if (!root || !*root)
            continue;
        size_t size = strlen(root) + strlen(roots[i].below) + strlen(name) + 2;
        *out = exo_calloc(size, 1);
        if (!*out)
            return exo_fail(err, EXO_NOMEM, "no memory for a path");
        snprintf(*out, size, "%s%s/%s", root, roots[i].below, name);
        return EXO_OK;
    }
    return exo_fail(err, EXO_NOT_FOUND, "there is no home folder for data: set EXOGYM_DATA");
}

/* --- Checksums -------------------------------------------------------------------------------- */

static bool
has_checksum(const char *path, const char *sha256)
{
    char found[65];
    return exo_sha256_file(path, found, NULL) == EXO_OK && strcmp(found, sha256) == 0;
}

/* --- Transfer --------------------------------------------------------------------------------- */

struct transfer {
    const struct exo_data_file *file;
    exo_fetch_progress progress;
    void *context;
    uint64_t already; /* bytes of the part before this transfer */
};

static int
on_progress(void *argument, curl_off_t total, curl_off_t now, curl_off_t up_total,
            curl_off_t up_now)
{
    (void)total;
    (void)up_total;
    (void)up_now;
    const struct transfer *t = argument;
    if (t->progress && now > 0)
        t->progress(t->context, t->file->name, t->already + (uint64_t)now, t->file->bytes);
    return 0;
}

/* Opens the part to append to it. It must be a regular file with one link, so that downloaded bytes
 * go to no other file. *already: its size. NULL: `reason` says why. */
static FILE *
open_part(const char *part, uint64_t *already, char *reason, size_t size)
{
    struct stat info = {0};
    int fd = exo_dir_open(part, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0 || fstat(fd, &info) != 0)
        snprintf(reason, size, "%s: %s", part,
                 errno == ELOOP || errno == ENXIO ? "is not a file: remove it"
                                                  : exo_dir_reason(errno));
    else if (!S_ISREG(info.st_mode) || info.st_nlink != 1)
        snprintf(reason, size, "%s: is not a file with a single name: remove it", part);
    FILE *stream = fd >= 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 ? fdopen(fd, "ab") : NULL;
    if (!stream && fd >= 0)
        close(fd);
    *already = (uint64_t)info.st_size;
    return stream;
}

/* Appends to the part what `url` has beyond it. False: `reason` says why. */
static bool
transfer_from(const char *url, const char *part, struct transfer *t, char *reason, size_t size)
{
    snprintf(reason, size, "%s: no memory", part);
    FILE *stream = open_part(part, &t->already, reason, size);
    CURL *curl = stream ? curl_easy_init() : NULL;
    if (!curl) {
        if (stream)
            fclose(stream);
        return false;
    }
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, stream);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)t->file->bytes);
    curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)t->already);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    bool flushed = fclose(stream) == 0;
    if (code == CURLE_OK && flushed)
        return true;
    snprintf(reason, size, "%s: %s", url,
             code != CURLE_OK ? curl_easy_strerror(code) : strerror(errno));
    /* If the server cannot resume, or offers too many bytes, the next try asks for the whole
     * file. */
    if (code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME ||
        code == CURLE_FILESIZE_EXCEEDED)
        exo_dir_unlink(part);
    return false;
}

exo_status
exo_fetch_file(const struct exo_data_file *file, const char *folder, exo_fetch_progress progress,
               void *context, exo_err *err)
{
    char path[MAX_PATH], part[MAX_PATH + 8], reason[EXO_ERR_TEXT / 2] = "";
    if (snprintf(path, sizeof path, "%s/%s", folder, file->name) >= (int)sizeof path)
        return exo_fail(err, EXO_INVAL, "%s: the path is too long", folder);
    snprintf(part, sizeof part, "%s.part", path);
    if (has_checksum(path, file->sha256))
        return EXO_OK;

    struct transfer t = {.file = file, .progress = progress, .context = context};
    bool damaged = false;
    for (size_t i = 0; i < 3 && file->urls[i]; i++) {
        struct stat info;
        bool whole = lstat(part, &info) == 0 && S_ISREG(info.st_mode) &&
                     (uint64_t)info.st_size == file->bytes;
        if (!whole && !transfer_from(file->urls[i], part, &t, reason, sizeof reason))
            continue;
        if (has_checksum(part, file->sha256)) {
            if (exo_dir_rename(part, path, 0) == 0)
                return EXO_OK;
            return exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(errno));
        }
        exo_dir_unlink(part); /* the content is wrong, so it is of no use */
        snprintf(reason, sizeof reason, "%s: its SHA-256 is not the expected one", file->urls[i]);
        damaged = true;
    }
    return exo_fail(err, damaged ? EXO_INVAL : EXO_IO,
                    "%s; run the command again, or put %s into %s by hand", reason, file->name,
                    folder);
}

exo_status
exo_data_fetch(const char *name, exo_fetch_progress progress, void *context, exo_err *err)
{
    const exo_data_source *source = NULL;
    for (size_t i = 0; i < NUM_SOURCES; i++)
        if (strcmp(sources[i].name, name) == 0)
            source = &sources[i];
    if (!source)
        return exo_fail(err, EXO_NOT_FOUND,
                        "there is no public data set '%s'; there are: mnist, shakespeare", name);
    char *folder = NULL;
    exo_status st = exo_data_folder(name, &folder, err);
    if (st == EXO_OK)
        st = exo_folder_make(folder, err);
    if (st == EXO_OK && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        st = exo_fail(err, EXO_FAILED, "libcurl does not start");
    for (size_t i = 0; st == EXO_OK && i < source->num_files; i++)
        st = exo_fetch_file(&source->files[i], folder, progress, context, err);
    exo_free(folder);
    return st;
}
