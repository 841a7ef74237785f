/* Key files and the list of accepted keys.
 *
 * A key file is text: comment lines begin with '#', every other line is a word and a value, so that a secret key in the
 * wrong file is told from a public one. What held a secret is wiped. Read next: zap.c. */
#include "net/auth.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <zmq.h>

#include "base/file.h"

enum {
    KEY_CHARS = EXO_KEY_TEXT - 1,
    FILE_LIMIT = 4096,
    PATH_LIMIT = 4096
};

static exo_status
fail_errno(const char *path, int number, exo_err *err)
{
    exo_status code = number == ENOENT ? EXO_NOT_FOUND : number == EEXIST ? EXO_EXISTS : EXO_IO;
    return exo_fail(err, code, "%s: %s", path, strerror(number));
}

static bool
is_z85(const char *text)
{
    uint8_t bytes[EXO_KEY_BYTES];
    bool good = strlen(text) == KEY_CHARS && zmq_z85_decode(bytes, text) != NULL;
    explicit_bzero(bytes, sizeof bytes);
    return good;
}

/* --- Keys ------------------------------------------------------------------------------------------------------------- */

bool
exo_key_name_is_valid(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= EXO_KEY_NAME)
        return false;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        bool plain = c < 128 && isalnum(c);
        if (!plain && (i == 0 || !strchr("._-", c)))
            return false;
    }
    return true;
}

exo_status
exo_keys_generate(exo_keys *keys, exo_err *err)
{
    *keys = (exo_keys){0};
    if (zmq_curve_keypair(keys->public_key, keys->secret_key) == 0)
        return EXO_OK;
    exo_keys_release(keys);
    return exo_fail(err, EXO_UNSUPPORTED, "cannot make keys: %s", zmq_strerror(zmq_errno()));
}

void
exo_keys_release(exo_keys *keys)
{
    if (keys)
        explicit_bzero(keys, sizeof *keys);
}

/* --- Writing ---------------------------------------------------------------------------------------------------------- */

/* A new file of exactly this mode, on the disk when this returns. After an error there is none, unless it was there. */
static exo_status
write_new(const char *path, mode_t mode, const char *text, exo_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST)
        return exo_fail(err, EXO_EXISTS, "%s: exists already; a key is never overwritten", path);
    if (fd < 0)
        return fail_errno(path, errno, err);
    size_t length = strlen(text), done = 0;
    int number = fchmod(fd, mode) == 0 ? 0 : errno;
    while (number == 0 && done < length) {
        ssize_t n = write(fd, text + done, length - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            number = n == 0 ? EIO : errno;
    }
    if (number == 0 && fsync(fd) != 0)
        number = errno;
    if (close(fd) != 0 && number == 0)
        number = errno;
    if (number == 0)
        return EXO_OK;
    unlink(path);
    return fail_errno(path, number, err);
}

static void
flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* some file systems cannot */
        close(fd);
    }
}

exo_status
exo_keys_save(const exo_keys *keys, const exo_grant *grant, const char *folder, const char *name, exo_err *err)
{
    char secret_path[PATH_LIMIT], public_path[PATH_LIMIT], text[512] = {0};
    struct stat info;
    if (!exo_key_name_is_valid(name))
        return exo_fail(err, EXO_INVAL,
                        "'%s' cannot name a key: 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
                        name);
    if (strlen(folder) + EXO_KEY_NAME + 16 > PATH_LIMIT)
        return exo_fail(err, EXO_INVAL, "the folder's path is too long");
    exo_status st = exo_folder_make(folder, err);
    if (st != EXO_OK)
        return st;
    snprintf(secret_path, sizeof secret_path, "%s/%s.secret", folder, name);
    snprintf(public_path, sizeof public_path, "%s/%s.key", folder, name);
    /* Told before anything is written; the exclusive creation below decides. */
    if (lstat(public_path, &info) == 0)
        return exo_fail(err, EXO_EXISTS, "%s: exists already; a key is never overwritten", public_path);

    snprintf(
        text, sizeof text,
        "# exogym secret key '%s'. Whoever has this file is this node: keep it here, mode 0600, and send it nowhere.\n"
        "public %s\nsecret %s\n",
        name, keys->public_key, keys->secret_key);
    st = write_new(secret_path, 0600, text, err);
    explicit_bzero(text, sizeof text);
    if (st != EXO_OK)
        return st;
    char date[EXO_GRANT_DATE] = "";
    if (grant->expires)
        exo_grant_write_date(grant->expires, date);
    snprintf(
        text, sizeof text,
        "# exogym public key '%s'. Not secret: copy it into the authorized folder of each node that shall accept it.\n"
        "public %s\nrole %s\n%s%s%s%s%s%s",
        name, keys->public_key, exo_access_name(grant->role), grant->space[0] ? "namespace " : "", grant->space,
        grant->space[0] ? "\n" : "", date[0] ? "expires " : "", date, date[0] ? "\n" : "");
    st = write_new(public_path, 0644, text, err);
    if (st != EXO_OK)
        unlink(secret_path);
    else
        flush_folder(folder);
    return st;
}

/* --- Reading ---------------------------------------------------------------------------------------------------------- */

/* Reads a small plain file into `text`, ended by a 0. `forbidden`: permission bits that it must not have. Never waits for a
 * pipe's other end. The caller wipes `text`, also after an error. */
static exo_status
read_key_file(const char *path, mode_t forbidden, const char *advice, char text[FILE_LIMIT], exo_err *err)
{
    exo_status st = EXO_OK;
    struct stat info;
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(path, errno, err);
    if (fstat(fd, &info) != 0) {
        st = fail_errno(path, errno, err);
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = exo_fail(err, EXO_INVAL, "%s: is not a plain file", path);
        goto done;
    }
    if (info.st_mode & forbidden) {
        st = exo_fail(err, EXO_INVAL, "%s: has mode %04o: %s %s", path, (unsigned)(info.st_mode & 07777), advice, path);
        goto done;
    }
    for (;;) {
        ssize_t n = read(fd, text + length, FILE_LIMIT - length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            st = fail_errno(path, errno, err);
            goto done;
        }
        if (n == 0)
            break;
        length += (size_t)n;
        if (length >= FILE_LIMIT) {
            st = exo_fail(err, EXO_INVAL, "%s: is too long for a key file", path);
            goto done;
        }
    }
    text[length] = '\0';
    if (memchr(text, 0, length))
        st = exo_fail(err, EXO_INVAL, "%s: is not a text file", path);
done:
    close(fd);
    return st;
}

/* One line, without its newline: a comment, or "public KEY" or "secret KEY". */
static exo_status
read_line(const char *path, int number, char *line, exo_keys *keys, exo_grant *grant, exo_err *err)
{
    bool secret_allowed = !grant;
    size_t length = strlen(line);
    while (length > 0 && isspace((unsigned char)line[length - 1]))
        line[--length] = '\0';
    if (length == 0 || line[0] == '#')
        return EXO_OK;
    size_t word = strcspn(line, " \t");
    bool is_public = word == 6 && memcmp(line, "public", 6) == 0;
    bool is_secret = word == 6 && memcmp(line, "secret", 6) == 0;
    if (grant && !is_public && !is_secret && line[word]) {
        char where[PATH_LIMIT + 16];
        line[word] = '\0';
        snprintf(where, sizeof where, "%s:%d", path, number);
        exo_status st = exo_grant_read_line(grant, where, line, line + word + 1 + strspn(line + word + 1, " \t"), err);
        if (st != EXO_NOT_FOUND)
            return st;
    }
    /* The line itself is never shown: it may be a secret in the wrong place. */
    if (!is_public && !is_secret)
        return exo_fail(err, EXO_INVAL, "%s:%d: expected `public KEY`%s or a comment", path, number,
                        secret_allowed ? ", `secret KEY`" : "");
    if (is_secret && !secret_allowed)
        return exo_fail(err, EXO_INVAL, "%s:%d: holds a secret key, which does not belong into a .key file", path,
                        number);
    const char *what = is_public ? "public" : "secret", *value = line + word + strspn(line + word, " \t");
    char *target = is_public ? keys->public_key : keys->secret_key;
    if (target[0])
        return exo_fail(err, EXO_INVAL, "%s:%d: a second %s key", path, number, what);
    if (strlen(value) != KEY_CHARS)
        return exo_fail(err, EXO_INVAL, "%s:%d: the %s key has %zu characters instead of %d", path, number, what,
                        strlen(value), KEY_CHARS);
    if (!is_z85(value))
        return exo_fail(err, EXO_INVAL, "%s:%d: the %s key is not Z85", path, number, what);
    memcpy(target, value, EXO_KEY_TEXT);
    return EXO_OK;
}

/* Reads the lines of `text`, which it changes. */
static exo_status
read_keys(const char *path, char *text, exo_keys *keys, exo_grant *grant, exo_err *err)
{
    bool with_secret = !grant;
    int number = 1;
    for (char *line = text, *next = NULL; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        exo_status st = read_line(path, number, line, keys, grant, err);
        if (st != EXO_OK)
            return st;
    }
    if (!keys->public_key[0])
        return exo_fail(err, EXO_INVAL, "%s: has no line `public KEY`", path);
    if (with_secret && !keys->secret_key[0])
        return exo_fail(err, EXO_INVAL, "%s: has no line `secret KEY`", path);
    return EXO_OK;
}

/* Is there a line `public`, and none that is `secret`? Changes nothing. */
static bool
is_public_only(const char *text)
{
    bool is_public = false;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "secret", 6) == 0)
            return false;
        is_public = is_public || strncmp(line, "public", 6) == 0;
    }
    return is_public;
}

exo_status
exo_keys_load(const char *path, exo_keys *keys, exo_err *err)
{
    char text[FILE_LIMIT] = {0}, derived[EXO_KEY_TEXT] = {0};
    *keys = (exo_keys){0};
    if (is_z85(path) && access(path, F_OK) != 0) /* it may be the secret one: it is not shown */
        return exo_fail(err, EXO_INVAL,
                        "this is a key itself; the path of a NAME.secret is wanted, which keeps it from others");
    exo_status st = read_key_file(path, 0, "", text, err);
    if (st == EXO_OK && is_public_only(text)) /* before its mode, which is right for a public key */
        st = exo_fail(err, EXO_INVAL, "%s: is a public key, and a secret one is wanted: the NAME.secret beside it",
                      path);
    else if (st == EXO_OK)
        st = read_key_file(path, 077, "others must not read a secret key; run chmod 600", text, err);
    if (st == EXO_OK)
        st = read_keys(path, text, keys, NULL, err);
    if (st == EXO_OK && zmq_curve_public(derived, keys->secret_key) != 0)
        st = exo_fail(err, EXO_UNSUPPORTED, "%s: cannot check the keys: %s", path, zmq_strerror(zmq_errno()));
    if (st == EXO_OK && strcmp(derived, keys->public_key) != 0)
        st = exo_fail(err, EXO_INVAL, "%s: its public and its secret key are not a pair", path);
    explicit_bzero(text, sizeof text);
    if (st != EXO_OK)
        exo_keys_release(keys);
    return st;
}

/* --- Allow-list ------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    uint8_t key[EXO_KEY_BYTES];
    char name[EXO_KEY_NAME];
    exo_grant grant;
} entry;

typedef struct entries {
    entry *items;
    size_t length, size;
} entries;

struct exo_allow_list {
    char *folder; /* never changes */
    pthread_mutex_t lock;
    entries entries;            /* guarded by lock, as all below                             */
    uint64_t seen;              /* fingerprint of what was read; 0: it is read again */
    char doubted[EXO_ERR_TEXT]; /* the mistake that was logged last */
    exo_audit *audit;
};

static exo_status
append(entries *all, const entry *new, const char *folder, exo_err *err)
{
    if (all->length == all->size) {
        size_t size = all->size ? 2 * all->size : 16;
        entry *grown = exo_realloc(all->items, size, sizeof *grown);
        if (!grown)
            return exo_fail(err, EXO_NOMEM, "%s: no memory for %zu keys", folder, size);
        all->items = grown;
        all->size = size;
    }
    all->items[all->length++] = *new;
    return EXO_OK;
}

static exo_status
add_entry(entries *all, const char *folder, const char *file, exo_err *err)
{
    char path[PATH_LIMIT], text[FILE_LIMIT];
    exo_keys keys = {0};
    entry new = {0};
    size_t stem = strlen(file) - strlen(".key");
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return exo_fail(err, EXO_INVAL, "%s: the path is too long", folder);
    memcpy(new.name, file, stem < EXO_KEY_NAME ? stem : EXO_KEY_NAME - 1);
    if (stem >= EXO_KEY_NAME || !exo_key_name_is_valid(new.name))
        return exo_fail(
            err, EXO_INVAL,
            "%s: a key's name is 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit, before .key",
            path);

    exo_status st = read_key_file(path, 002, "everybody may change whom this node accepts; run chmod o-w", text, err);
    if (st == EXO_OK)
        st = read_keys(path, text, &keys, &new.grant, err);
    if (st == EXO_OK)
        st = exo_grant_check(&new.grant, path, err);
    explicit_bzero(text, sizeof text); /* it may have been a secret */
    if (st != EXO_OK)
        return st;
    zmq_z85_decode(new.key, keys.public_key);
    memcpy(new.grant.name, new.name, sizeof new.grant.name);
    for (size_t i = 0; i < all->length; i++)
        if (memcmp(all->items[i].key, new.key, sizeof new.key) == 0)
            return exo_fail(err, EXO_INVAL, "%s: holds the same key as %s.key", path, all->items[i].name);
    return append(all, &new, folder, err);
}
/* What was known of a file that has a mistake by now. */
static exo_status
keep_entry(entries *all, const entries *before, const char *file, const char *folder, exo_err *err)
{
    size_t stem = strlen(file) - strlen(".key");
    for (size_t i = 0; i < before->length; i++) {
        const entry *old = &before->items[i];
        bool taken = false;
        if (strlen(old->name) != stem || memcmp(old->name, file, stem) != 0)
            continue;
        for (size_t j = 0; j < all->length; j++)
            taken = taken || memcmp(all->items[j].key, old->key, sizeof old->key) == 0;
        return taken ? EXO_OK : append(all, old, folder, err);
    }
    return EXO_OK;
}

/* On error *all stays empty. before: NULL, or what was known: then a file's mistake is in *err, and is no error. */
static exo_status
read_folder(const char *folder, entries *all, const entries *before, exo_err *err)
{
    exo_status st = EXO_OK;
    struct stat info;
    *all = (entries){0};
    DIR *dir = opendir(folder);
    if (!dir)
        return fail_errno(folder, errno, err);
    if (fstat(dirfd(dir), &info) != 0)
        st = fail_errno(folder, errno, err);
    else if (info.st_mode & 002)
        st =
            exo_fail(err, EXO_INVAL, "%s: has mode %04o: everybody may change whom this node accepts; run chmod o-w %s",
                     folder, (unsigned)(info.st_mode & 07777), folder);
    while (st == EXO_OK) {
        errno = 0;
        const struct dirent *file = readdir(dir);
        if (!file) {
            if (errno)
                st = fail_errno(folder, errno, err);
            break;
        }
        size_t length = strlen(file->d_name);
        if (length >= 4 && strcmp(file->d_name + length - 4, ".key") == 0)
            st = add_entry(all, folder, file->d_name, err);
        if (before && st == EXO_NOT_FOUND) /* it went meanwhile */
            st = EXO_OK;
        else if (before && (st == EXO_INVAL || st == EXO_IO))
            st = keep_entry(all, before, file->d_name, folder, err);
    }
    closedir(dir);
    if (st != EXO_OK) {
        exo_free(all->items);
        *all = (entries){0};
    }
    return st;
}

exo_status
exo_allow_list_load(exo_allow_list **out, const char *folder, exo_err *err)
{
    exo_allow_list *list = exo_calloc(1, sizeof *list);
    if (!list)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of keys");
    pthread_mutex_init(&list->lock, NULL);
    exo_status st = EXO_OK;
    list->folder = exo_strdup(folder);
    if (!list->folder)
        st = exo_fail(err, EXO_NOMEM, "no memory for a list of keys");
    if (st == EXO_OK)
        st = exo_allow_list_reload(list, err);
    if (st == EXO_OK) {
        *out = list;
        list = NULL;
    }
    exo_allow_list_free(&list);
    return st;
}

/* Of the names, numbers, times and sizes of the folder's keys: another one when anything of them is. 0: something changed just now, and may
 * change again within the same tick of the file system's clock. */
static uint64_t
fingerprint(const char *folder)
{
    uint64_t sum = 1;
    struct timespec now = {0};
    bool settled = clock_gettime(CLOCK_REALTIME, &now) == 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return errno == ENOENT ? 2 : 3;
    for (const struct dirent *file; (file = readdir(dir));) {
        struct stat info;
        size_t length = strlen(file->d_name);
        if (length < 4 || strcmp(file->d_name + length - 4, ".key") != 0 ||
            fstatat(dirfd(dir), file->d_name, &info, 0) != 0)
            continue;
        const uint64_t parts[] = {(uint64_t)info.st_ino, (uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec,
                                  (uint64_t)info.st_size, (uint64_t)info.st_mode};
        uint64_t h = UINT64_C(14695981039346656037);
        for (size_t i = 0; i < length; i++)
            h = (h ^ (uint8_t)file->d_name[i]) * UINT64_C(1099511628211);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            h = (h ^ parts[i]) * UINT64_C(1099511628211);
        sum += h; /* in whatever order they come */
        settled = settled && now.tv_sec - info.st_mtim.tv_sec > 1;
    }
    closedir(dir);
    return settled ? sum : 0;
}

static const entry *
find_entry(const entries *all, const uint8_t key[EXO_KEY_BYTES])
{
    for (size_t i = 0; i < all->length; i++)
        if (memcmp(all->items[i].key, key, EXO_KEY_BYTES) == 0)
            return &all->items[i];
    return NULL;
}

/* That a key is (`now`) or was (`before`) let in; either may be NULL. */
static void
record_key(exo_audit *audit, const entry *before, const entry *now)
{
    char text[EXO_KEY_TEXT], detail[256], date[EXO_GRANT_DATE] = "never";
    const entry *e = now ? now : before;
    zmq_z85_encode(text, e->key, EXO_KEY_BYTES);
    if (e->grant.expires)
        exo_grant_write_date(e->grant.expires, date);
    snprintf(detail, sizeof detail, "%s: key %s, role %s%s%s, expires %s",
             !before ? "added"
             : !now  ? "removed"
                     : "changed",
             text, exo_access_name(e->grant.role), e->grant.space[0] ? ", namespace " : "", e->grant.space, date);
    exo_audit_add(audit, &(exo_audit_record){.event = EXO_AUDIT_KEY, .subject = e->name, .detail = detail});
}

static bool
is_same_grant(const exo_grant *a, const exo_grant *b)
{
    return a->role == b->role && a->expires == b->expires && strcmp(a->space, b->space) == 0 &&
           strcmp(a->name, b->name) == 0;
}

static void
record_changes(exo_audit *audit, const entries *before, const entries *now)
{
    if (!audit)
        return;
    for (size_t i = 0; i < before->length; i++)
        if (!find_entry(now, before->items[i].key))
            record_key(audit, &before->items[i], NULL);
    for (size_t i = 0; i < now->length; i++) {
        const entry *was = find_entry(before, now->items[i].key);
        if (!was || !is_same_grant(&was->grant, &now->items[i].grant))
            record_key(audit, was, &now->items[i]);
    }
}

void
exo_allow_list_audit(exo_allow_list *list, exo_audit *audit)
{
    pthread_mutex_lock(&list->lock);
    list->audit = audit;
    pthread_mutex_unlock(&list->lock);
}

static void
replace_entries(exo_allow_list *list, entries *new, uint64_t seen)
{
    pthread_mutex_lock(&list->lock);
    entries old = list->entries;
    record_changes(list->audit, &old, new);
    list->entries = *new;
    list->seen = seen;
    pthread_mutex_unlock(&list->lock);
    exo_free(old.items);
}

exo_status
exo_allow_list_reload(exo_allow_list *list, exo_err *err)
{
    entries new;
    uint64_t seen = fingerprint(list->folder); /* before it is read */
    exo_status st = read_folder(list->folder, &new, NULL, err);
    if (st == EXO_OK)
        replace_entries(list, &new, seen);
    return st;
}

void
exo_allow_list_refresh(exo_allow_list *list)
{
    exo_err err = {0};
    entries new, before = {0};
    uint64_t seen = fingerprint(list->folder);
    pthread_mutex_lock(&list->lock);
    bool known = seen && list->seen == seen;
    exo_status st = EXO_OK;
    for (size_t i = 0; !known && st == EXO_OK && i < list->entries.length; i++)
        st = append(&before, &list->entries.items[i], list->folder, &err);
    pthread_mutex_unlock(&list->lock);
    if (known || st != EXO_OK) {
        exo_free(before.items);
        return;
    }
    st = read_folder(list->folder, &new, &before, &err);
    if (st == EXO_OK || st == EXO_NOT_FOUND) /* a folder that is gone lets nobody in */
        replace_entries(list, &new, seen);
    exo_free(before.items);
    pthread_mutex_lock(&list->lock);
    bool told = !err.text[0] || strcmp(list->doubted, err.text) == 0;
    snprintf(list->doubted, sizeof list->doubted, "%s", err.text);
    pthread_mutex_unlock(&list->lock);
    if (!told)
        EXO_LOG(WARN, NET, "event=keys_not_read reason=\"%s\": what was known of it stays", err.text);
}

bool
exo_allow_list_find(exo_allow_list *list, const uint8_t key[EXO_KEY_BYTES], int64_t now, exo_grant *out, bool *expired)
{
    exo_grant found = {0};
    pthread_mutex_lock(&list->lock);
    for (size_t i = 0; i < list->entries.length; i++) {
        const entry *e = &list->entries.items[i];
        unsigned differs = 0;
        for (size_t b = 0; b < EXO_KEY_BYTES; b++)
            differs |= (unsigned)(e->key[b] ^ key[b]);
        if (differs == 0)
            found = e->grant;
    }
    pthread_mutex_unlock(&list->lock);
    bool late = found.role && found.expires && now >= found.expires;
    if (expired)
        *expired = late;
    *out = found;
    return found.role && !late;
}

bool
exo_allow_list_names(exo_allow_list *list, const char *name)
{
    bool found = false;
    pthread_mutex_lock(&list->lock);
    for (size_t i = 0; i < list->entries.length && !found; i++)
        found = strcmp(list->entries.items[i].name, name) == 0;
    pthread_mutex_unlock(&list->lock);
    return found;
}

bool
exo_allow_list_contains(exo_allow_list *list, const uint8_t key[EXO_KEY_BYTES], char name[EXO_KEY_NAME])
{
    uint8_t found = 0, text[EXO_KEY_NAME] = {0};
    pthread_mutex_lock(&list->lock);
    for (size_t i = 0; i < list->entries.length; i++) {
        const entry *e = &list->entries.items[i];
        unsigned differs = 0;
        for (size_t b = 0; b < EXO_KEY_BYTES; b++)
            differs |= (unsigned)(e->key[b] ^ key[b]);
        uint8_t mask = (uint8_t)((differs - 1) >> 8); /* 0xff if nothing differs, else 0 */
        found |= mask;
        for (size_t c = 0; c < EXO_KEY_NAME; c++)
            text[c] |= (uint8_t)(mask & (uint8_t)e->name[c]);
    }
    pthread_mutex_unlock(&list->lock);
    if (name)
        memcpy(name, text, EXO_KEY_NAME);
    return found != 0;
}

size_t
exo_allow_list_count(exo_allow_list *list)
{
    pthread_mutex_lock(&list->lock);
    size_t count = list->entries.length;
    pthread_mutex_unlock(&list->lock);
    return count;
}

void
exo_allow_list_free(exo_allow_list **list)
{
    if (!list || !*list)
        return;
    pthread_mutex_destroy(&(*list)->lock);
    exo_free((*list)->entries.items);
    exo_free((*list)->folder);
    exo_free(*list);
    *list = NULL;
}

/* --- Sockets ---------------------------------------------------------------------------------------------------------- */

/* A frame says how long it is before anything is proven, and libzmq allocates what it says. */
static const int64_t MAX_MESSAGE = INT64_C(1) << 30;

enum {
    HANDSHAKE_MS = 10000,
    /* ZMQ_ZAP_ENFORCE_DOMAIN. zmq.h hides the name among the drafts; the library has had the option since 4.3. Whether it
     * took is read back. */
    ENFORCE_DOMAIN = 93
};

static exo_status
set(void *socket, int option, const void *value, size_t size, const char *what, exo_err *err)
{
    if (zmq_setsockopt(socket, option, value, size) == 0)
        return EXO_OK;
    return exo_fail(err, EXO_FAILED, "cannot set a socket's %s: %s", what, zmq_strerror(zmq_errno()));
}

static exo_status
set_limits(void *socket, exo_err *err)
{
    int handshake = HANDSHAKE_MS;
    exo_status st = set(socket, ZMQ_HANDSHAKE_IVL, &handshake, sizeof handshake, "handshake time", err);
    if (st == EXO_OK)
        st = set(socket, ZMQ_MAXMSGSIZE, &MAX_MESSAGE, sizeof MAX_MESSAGE, "largest message", err);
    return st;
}

/* Without ENFORCE_DOMAIN, libzmq accepts everybody while there is no handler. */
static exo_status
set_domain(void *socket, const char *domain, exo_err *err)
{
    int one = 1, enforced = 0;
    size_t size = sizeof enforced;
    if (zmq_setsockopt(socket, ENFORCE_DOMAIN, &one, sizeof one) != 0 ||
        zmq_getsockopt(socket, ENFORCE_DOMAIN, &enforced, &size) != 0 || enforced != 1)
        return exo_fail(err, EXO_UNSUPPORTED, "this libzmq cannot be told to refuse everybody while nobody is asked");
    exo_status st = set(socket, ZMQ_ZAP_DOMAIN, domain, strlen(domain), "ZAP domain", err);
    if (st == EXO_OK)
        st = set_limits(socket, err);
    return st;
}

static exo_status
set_keys(void *socket, const exo_keys *keys, exo_err *err)
{
    if (!is_z85(keys->public_key) || !is_z85(keys->secret_key))
        return exo_fail(err, EXO_INVAL, "a socket's own keys are not two keys of 40 characters");
    if (!zmq_has("curve"))
        return exo_fail(err, EXO_UNSUPPORTED, "this libzmq was built without CURVE");
    exo_status st = set(socket, ZMQ_CURVE_PUBLICKEY, keys->public_key, EXO_KEY_TEXT, "public key", err);
    if (st == EXO_OK)
        st = set(socket, ZMQ_CURVE_SECRETKEY, keys->secret_key, EXO_KEY_TEXT, "secret key", err);
    return st;
}

exo_status
exo_curve_server(void *socket, const exo_keys *keys, exo_err *err)
{
    int one = 1;
    exo_status st = set_keys(socket, keys, err);
    if (st == EXO_OK)
        st = set(socket, ZMQ_CURVE_SERVER, &one, sizeof one, "CURVE role", err);
    if (st == EXO_OK)
        st = set_domain(socket, "exogym", err);
    return st;
}

exo_status
exo_curve_client(void *socket, const exo_keys *keys, const char *server_public, exo_err *err)
{
    if (!is_z85(server_public))
        return exo_fail(err, EXO_INVAL, "the server's public key is not a key of 40 characters");
    exo_status st = set_keys(socket, keys, err);
    if (st == EXO_OK)
        st = set(socket, ZMQ_CURVE_SERVERKEY, server_public, EXO_KEY_TEXT, "server's key", err);
    if (st == EXO_OK)
        st = set_limits(socket, err);
    return st;
}

exo_status
exo_null_server(void *socket, const char *domain, exo_err *err)
{
    if (!domain[0])
        return exo_fail(err, EXO_INVAL, "a socket without keys needs a domain");
    return set_domain(socket, domain, err);
}
