/* Key files are text. A comment line begins with '#'; every other line is a word and a value, which
 * distinguishes a secret key in the wrong file from a public one. Memory that held a secret is
 * wiped. No state. Read next: grant.c, allow_list.c. */
#include "net/key_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <zmq.h>

#include "base/file.h"

enum {
    KEY_CHARS = EXO_KEY_TEXT - 1,
    FILE_LIMIT = 4096,
    PATH_LIMIT = 4096
};

exo_status
exo_key_file_fail(const char *path, int number, exo_err *err)
{
    exo_status code = number == ENOENT ? EXO_NOT_FOUND : number == EEXIST ? EXO_EXISTS : EXO_IO;
    return exo_fail(err, code, "%s: %s", path, strerror(number));
}

bool
exo_key_is_z85(const char *text)
{
    uint8_t bytes[EXO_KEY_BYTES];
    bool good = strlen(text) == KEY_CHARS && zmq_z85_decode(bytes, text) != NULL;
    explicit_bzero(bytes, sizeof bytes);
    return good;
}

/* --- Keys ------------------------------------------------------------------------------------- */

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

/* --- Writing ---------------------------------------------------------------------------------- */

/* Writes a new file with exactly this mode; it is on the disk when this returns. After an error the
 * file does not exist, unless it existed before. */
static exo_status
write_new(const char *path, mode_t mode, const char *text, exo_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST)
        return exo_fail(err, EXO_EXISTS, "%s: exists already; a key is never overwritten", path);
    if (fd < 0)
        return exo_key_file_fail(path, errno, err);
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
    return exo_key_file_fail(path, number, err);
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
exo_keys_save(const exo_keys *keys, const exo_grant *grant, const char *folder, const char *name,
              exo_err *err)
{
    char secret_path[PATH_LIMIT], public_path[PATH_LIMIT], text[512] = {0};
    struct stat info;
    if (!exo_key_name_is_valid(name))
        return exo_fail(err, EXO_INVAL,
                        "'%s' cannot name a key: 1 to 64 letters, digits, '.', '_' or '-', the "
                        "first a letter or digit",
                        name);
    if (strlen(folder) + EXO_KEY_NAME + 16 > PATH_LIMIT)
        return exo_fail(err, EXO_INVAL, "the folder's path is too long");
    exo_status st = exo_folder_make(folder, err);
    if (st != EXO_OK)
        return st;
    snprintf(secret_path, sizeof secret_path, "%s/%s.secret", folder, name);
    snprintf(public_path, sizeof public_path, "%s/%s.key", folder, name);
    /* Fails before anything is written; the exclusive creation below decides. */
    if (lstat(public_path, &info) == 0)
        return exo_fail(err, EXO_EXISTS, "%s: exists already; a key is never overwritten",
                        public_path);

    snprintf(text, sizeof text,
             "# exogym secret key '%s'. Whoever has this file is this node: keep it here, mode "
             "0600, and send it nowhere.\n"
             "public %s\nsecret %s\n",
             name, keys->public_key, keys->secret_key);
    st = write_new(secret_path, 0600, text, err);
    explicit_bzero(text, sizeof text);
    if (st != EXO_OK)
        return st;
    char date[EXO_GRANT_DATE] = "";
    if (grant->expires)
        exo_grant_write_date(grant->expires, date);
    snprintf(text, sizeof text,
             "# exogym public key '%s'. Not secret: copy it into the authorized folder of each "
             "node that should accept it.\n"
             "public %s\nrole %s\n%s%s%s%s%s%s",
             name, keys->public_key, exo_access_name(grant->role),
             grant->space[0] ? "namespace " : "", grant->space, grant->space[0] ? "\n" : "",
             date[0] ? "expires " : "", date, date[0] ? "\n" : "");
    st = write_new(public_path, 0644, text, err);
    if (st != EXO_OK)
        unlink(secret_path);
    else
        flush_folder(folder);
    return st;
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* Reads a small plain file into `text` and ends it with a 0. `forbidden`: permission bits that the
 * file must not have. Does not wait for the other end of a pipe. The caller wipes `text`, also
 * after an error. */
static exo_status
read_key_file(const char *path, mode_t forbidden, const char *advice, char text[FILE_LIMIT],
              exo_err *err)
{
    exo_status st = EXO_OK;
    struct stat info;
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return exo_key_file_fail(path, errno, err);
    if (fstat(fd, &info) != 0) {
        st = exo_key_file_fail(path, errno, err);
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = exo_fail(err, EXO_INVAL, "%s: is not a plain file", path);
        goto done;
    }
    if (info.st_mode & forbidden) {
        st = exo_fail(err, EXO_INVAL, "%s: has mode %04o: %s %s", path,
                      (unsigned)(info.st_mode & 07777), advice, path);
        goto done;
    }
    for (;;) {
        ssize_t n = read(fd, text + length, FILE_LIMIT - length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            st = exo_key_file_fail(path, errno, err);
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

/* Reads one line without its newline: a comment, a line of a grant, "public KEY" or "secret
 * KEY". */
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
        exo_status st = exo_grant_read_line(grant, where, line,
                                            line + word + 1 + strspn(line + word + 1, " \t"), err);
        if (st != EXO_NOT_FOUND)
            return st;
    }
    /* The message never shows the line: it may be a secret in the wrong place. */
    if (!is_public && !is_secret)
        return exo_fail(err, EXO_INVAL, "%s:%d: expected `public KEY`%s or a comment", path, number,
                        secret_allowed ? ", `secret KEY`" : "");
    if (is_secret && !secret_allowed)
        return exo_fail(err, EXO_INVAL,
                        "%s:%d: holds a secret key, which does not belong into a .key file", path,
                        number);
    const char *what = is_public ? "public" : "secret",
               *value = line + word + strspn(line + word, " \t");
    char *target = is_public ? keys->public_key : keys->secret_key;
    if (target[0])
        return exo_fail(err, EXO_INVAL, "%s:%d: a second %s key", path, number, what);
    if (strlen(value) != KEY_CHARS)
        return exo_fail(err, EXO_INVAL, "%s:%d: the %s key has %zu characters instead of %d", path,
                        number, what, strlen(value), KEY_CHARS);
    if (!exo_key_is_z85(value))
        return exo_fail(err, EXO_INVAL, "%s:%d: the %s key is not Z85", path, number, what);
    memcpy(target, value, EXO_KEY_TEXT);
    return EXO_OK;
}

/* Reads the lines of `text`, and changes it. */
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

/* Whether `text` has a line `public` and no line `secret`. Does not change it. */
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
    /* The message does not show the key: it may be a secret one. */
    if (exo_key_is_z85(path) && access(path, F_OK) != 0)
        return exo_fail(err, EXO_INVAL,
                        "this is a key itself; the path of a NAME.secret is wanted, which keeps it "
                        "from others");
    exo_status st = read_key_file(path, 0, "", text, err);
    /* checked before the mode, which is right for a public key */
    if (st == EXO_OK && is_public_only(text))
        st = exo_fail(err, EXO_INVAL,
                      "%s: is a public key, and a secret one is wanted: the NAME.secret beside it",
                      path);
    else if (st == EXO_OK)
        st =
            read_key_file(path, 077, "others must not read a secret key; run chmod 600", text, err);
    if (st == EXO_OK)
        st = read_keys(path, text, keys, NULL, err);
    if (st == EXO_OK && zmq_curve_public(derived, keys->secret_key) != 0)
        st = exo_fail(err, EXO_UNSUPPORTED, "%s: cannot check the keys: %s", path,
                      zmq_strerror(zmq_errno()));
    if (st == EXO_OK && strcmp(derived, keys->public_key) != 0)
        st = exo_fail(err, EXO_INVAL, "%s: its public and its secret key are not a pair", path);
    explicit_bzero(text, sizeof text);
    if (st != EXO_OK)
        exo_keys_release(keys);
    return st;
}

exo_status
exo_key_file_read(const char *path, uint8_t key[EXO_KEY_BYTES], exo_grant *grant, exo_err *err)
{
    char text[FILE_LIMIT];
    exo_keys keys = {0};
    exo_status st = read_key_file(
        path, 002, "everybody may change whom this node accepts; run chmod o-w", text, err);
    if (st == EXO_OK)
        st = read_keys(path, text, &keys, grant, err);
    if (st == EXO_OK)
        st = exo_grant_check(grant, path, err);
    explicit_bzero(text, sizeof text); /* it may have had a secret */
    if (st == EXO_OK)
        zmq_z85_decode(key, keys.public_key);
    return st;
}
