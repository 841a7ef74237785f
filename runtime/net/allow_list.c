/* The list of accepted keys: a folder of .key files, read again when something in it changes.
 * auth.h has the contracts. Read next: zap.c, which asks the list. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <zmq.h>

#include "net/key_file.h"

enum {
    PATH_LIMIT = 4096
};

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
    entries entries;            /* guarded by lock, as all below */
    uint64_t seen;              /* fingerprint of the folder when it was read; 0: read it again */
    char doubted[EXO_ERR_TEXT]; /* the latest mistake that was logged */
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
    char path[PATH_LIMIT];
    entry new = {0};
    size_t stem = strlen(file) - strlen(".key");
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return exo_fail(err, EXO_INVAL, "%s: the path is too long", folder);
    memcpy(new.name, file, stem < EXO_KEY_NAME ? stem : EXO_KEY_NAME - 1);
    if (stem >= EXO_KEY_NAME || !exo_key_name_is_valid(new.name))
        return exo_fail(err, EXO_INVAL,
                        "%s: a key's name is 1 to 64 letters, digits, '.', '_' or '-', the first a "
                        "letter or digit, before .key",
                        path);

    exo_status st = exo_key_file_read(path, new.key, &new.grant, err);
    if (st != EXO_OK)
        return st;
    memcpy(new.grant.name, new.name, sizeof new.grant.name);
    for (size_t i = 0; i < all->length; i++)
        if (memcmp(all->items[i].key, new.key, sizeof new.key) == 0)
            return exo_fail(err, EXO_INVAL, "%s: holds the same key as %s.key", path,
                            all->items[i].name);
    return append(all, &new, folder, err);
}

/* Keeps the former entry of a file that now has a mistake. */
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

/* Reads the folder; on error *all stays empty. before: NULL, or the former list: then a file's
 * mistake is in *err and the function still succeeds. */
static exo_status
read_folder(const char *folder, entries *all, const entries *before, exo_err *err)
{
    exo_status st = EXO_OK;
    struct stat info;
    *all = (entries){0};
    DIR *dir = opendir(folder);
    if (!dir)
        return exo_key_file_fail(folder, errno, err);
    if (fstat(dirfd(dir), &info) != 0)
        st = exo_key_file_fail(folder, errno, err);
    else if (info.st_mode & 002)
        st = exo_fail(
            err, EXO_INVAL,
            "%s: has mode %04o: everybody may change whom this node accepts; run chmod o-w %s",
            folder, (unsigned)(info.st_mode & 07777), folder);
    while (st == EXO_OK) {
        errno = 0;
        const struct dirent *file = readdir(dir);
        if (!file) {
            if (errno)
                st = exo_key_file_fail(folder, errno, err);
            break;
        }
        size_t length = strlen(file->d_name);
        if (length >= 4 && strcmp(file->d_name + length - 4, ".key") == 0)
            st = add_entry(all, folder, file->d_name, err);
        if (before && st == EXO_NOT_FOUND) /* it was removed meanwhile */
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

/* A hash of the names, inode numbers, times, sizes and modes of the folder's keys; any change gives
 * another value. 0: a file changed just now, and could change again within the same tick of the
 * file system's clock. */
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
        const uint64_t parts[] = {(uint64_t)info.st_ino, (uint64_t)info.st_mtim.tv_sec,
                                  (uint64_t)info.st_mtim.tv_nsec, (uint64_t)info.st_size,
                                  (uint64_t)info.st_mode};
        uint64_t h = UINT64_C(14695981039346656037);
        for (size_t i = 0; i < length; i++)
            h = (h ^ (uint8_t)file->d_name[i]) * UINT64_C(1099511628211);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            h = (h ^ parts[i]) * UINT64_C(1099511628211);
        sum += h; /* the order of directory entries does not matter */
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

/* Records that a key was added (`now` only), removed (`before` only) or changed. */
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
             text, exo_access_name(e->grant.role), e->grant.space[0] ? ", namespace " : "",
             e->grant.space, date);
    exo_audit_add(
        audit, &(exo_audit_record){.event = EXO_AUDIT_KEY, .subject = e->name, .detail = detail});
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
    uint64_t seen = fingerprint(list->folder); /* before the folder is read */
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
    if (st == EXO_OK || st == EXO_NOT_FOUND) /* a missing folder admits nobody */
        replace_entries(list, &new, seen);
    exo_free(before.items);
    pthread_mutex_lock(&list->lock);
    bool told = !err.text[0] || strcmp(list->doubted, err.text) == 0;
    snprintf(list->doubted, sizeof list->doubted, "%s", err.text);
    pthread_mutex_unlock(&list->lock);
    if (!told)
        EXO_LOG(WARN, NET, "event=keys_not_read reason=\"%s\": what was known of it stays",
                err.text);
}

bool
exo_allow_list_find(exo_allow_list *list, const uint8_t key[EXO_KEY_BYTES], int64_t now,
                    exo_grant *out, bool *expired)
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
exo_allow_list_contains(exo_allow_list *list, const uint8_t key[EXO_KEY_BYTES],
                        char name[EXO_KEY_NAME])
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
