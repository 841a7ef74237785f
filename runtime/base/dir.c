/* Names below guarded folders: see dir.h. The list of guarded folders is the only state. */
#include "base/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

struct guarded {
    struct guarded *next;
    size_t length;
    char folder[]; /* without a slash at its end */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct guarded *all; /* guarded by lock; grows only */

/* The length of the outermost guarded folder that contains the path; 0: none. */
static size_t
guarded_length(const char *path)
{
    size_t least = 0;
    pthread_mutex_lock(&lock);
    for (const struct guarded *g = all; g; g = g->next)
        if (strncmp(path, g->folder, g->length) == 0 && path[g->length] == '/' &&
            (least == 0 || g->length < least))
            least = g->length;
    pthread_mutex_unlock(&lock);
    return least;
}

exo_status
exo_dir_guard(const char *folder, exo_err *err)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    pthread_mutex_lock(&lock);
    struct guarded *g = all;
    while (g && (g->length != length || strncmp(g->folder, folder, length) != 0))
        g = g->next;
    struct guarded *made = g ? NULL : exo_calloc(1, sizeof *made + length + 1);
    if (made) {
        memcpy(made->folder, folder, length);
        made->length = length;
        made->next = all;
        all = made;
    }
    pthread_mutex_unlock(&lock);
    return g || made ? EXO_OK : exo_fail(err, EXO_NOMEM, "%s: no memory", folder);
}

/* --- Walking ---------------------------------------------------------------------------------- */

/* Opens the folder `name` in `at`, unless it is a link. Closes `at`. */
static int
step_into(int at, const char *name)
{
    struct stat info;
    int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int number = errno;
    if (next < 0 && number == ENOTDIR && fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(info.st_mode))
        number = ELOOP;
    close(at);
    errno = number;
    return next;
}

/* Opens the folder of a path's last name, and copies that name; *below: it lies below a guarded
 * folder. -1, with errno. The caller closes it. */
static int
open_parent(const char *path, char name[NAME_MAX + 1], bool *below)
{
    char part[PATH_MAX];
    size_t from = guarded_length(path), length = strlen(path);
    *below = from > 0;
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t last = length;
    while (last > 0 && path[last - 1] != '/')
        last--;
    if (length == 0 || length >= sizeof part || length - last > NAME_MAX) {
        errno = length ? ENAMETOOLONG : ENOENT;
        return -1;
    }
    snprintf(name, NAME_MAX + 1, "%.*s", (int)(length - last), path + last);
    size_t known = from ? from : last;
    snprintf(part, sizeof part, "%.*s", known ? (int)known : 1, known ? path : ".");
    int at = open(part, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = from; *below && at >= 0 && i < last;) {
        size_t end = i;
        while (path[end] != '/')
            end++;
        snprintf(part, sizeof part, "%.*s", (int)(end - i), path + i);
        i = end + 1;
        if (strcmp(part, "..") == 0) {
            close(at);
            errno = ELOOP;
            return -1;
        }
        if (part[0] && strcmp(part, ".") != 0)
            at = step_into(at, part);
    }
    if (*below && at >= 0 && strcmp(name, "..") == 0) {
        close(at);
        errno = ELOOP;
        return -1;
    }
    return at;
}

static int
done(int at, int result)
{
    int number = errno;
    if (at >= 0)
        close(at);
    errno = number;
    return result;
}

/* --- Calls ------------------------------------------------------------------------------------ */

int
exo_dir_open(const char *path, int flags, mode_t mode)
{
    char name[NAME_MAX + 1];
    struct stat info;
    bool below;
    int at = open_parent(path, name, &below);
    int fd = at >= 0 ? openat(at, name, flags | O_CLOEXEC | (below ? O_NOFOLLOW : 0), mode) : -1;
    if (fd < 0 && at >= 0 && below && errno == ENOTDIR &&
        fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode))
        errno = ELOOP;
    return done(at, fd);
}

int
exo_dir_unlink(const char *path)
{
    char name[NAME_MAX + 1];
    bool below;
    int at = open_parent(path, name, &below);
    return done(at, at >= 0 ? unlinkat(at, name, 0) : -1);
}

int
exo_dir_mkdir(const char *path, mode_t mode)
{
    char name[NAME_MAX + 1];
    bool below;
    int at = open_parent(path, name, &below);
    return done(at, at >= 0 ? mkdirat(at, name, mode) : -1);
}

int
exo_dir_rmdir(const char *path)
{
    char name[NAME_MAX + 1];
    bool below;
    int at = open_parent(path, name, &below);
    return done(at, at >= 0 ? unlinkat(at, name, AT_REMOVEDIR) : -1);
}

int
exo_dir_rename(const char *from, const char *to, unsigned flags)
{
    char old[NAME_MAX + 1], new[NAME_MAX + 1];
    bool below;
    int source = open_parent(from, old, &below);
    int target = source >= 0 ? open_parent(to, new, &below) : -1;
    int result = target < 0   ? -1
                 : flags == 0 ? renameat(source, old, target, new)
                              : renameat2(source, old, target, new, flags);
    return done(source, done(target, result));
}

DIR *
exo_dir_list(const char *path)
{
    int fd = exo_dir_open(path, O_RDONLY | O_DIRECTORY, 0);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        done(fd, -1);
    return dir;
}

/* Draws names for a path that ends in XXXXXX until `make` returns anything but -1 with EEXIST; at
 * most 100. */
static int
draw_name(char *path, int (*make)(const char *path))
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    char *end = path + strlen(path) - 6;
    for (int i = 0; i < 100; i++) {
        uint32_t number = 0;
        if (getrandom(&number, sizeof number, 0) < 0)
            return -1;
        for (int k = 0; k < 6; k++, number >>= 5)
            end[k] = letters[number & 31];
        int result = make(path);
        if (result >= 0 || errno != EEXIST)
            return result;
    }
    return -1;
}

static int
make_file(const char *path)
{
    return exo_dir_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
}

static int
make_folder(const char *path)
{
    return exo_dir_mkdir(path, 0777);
}

int
exo_dir_temporary(char *path)
{
    return draw_name(path, make_file);
}

int
exo_dir_temporary_folder(char *path)
{
    return draw_name(path, make_folder);
}

const char *
exo_dir_reason(int number)
{
    switch (number) {
    case ELOOP:
        return "there is a link on the way, which a run does not follow within its folder";
    case EMFILE:
        return "the process has as many descriptors as it may have: raise its limit "
               "(ulimit -n 65536, or LimitNOFILE of a service)";
    case ENFILE:
        return "the system has as many open files as it may have: raise fs.file-max (sysctl)";
    default:
        return strerror(number);
    }
}
