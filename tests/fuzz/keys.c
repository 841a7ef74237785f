/* Key files: the first byte chooses between a secret key, and a public key in a folder of
 * authorized keys. One thread; the input is written to a file in a temporary folder. Read next:
 * runtime/net/auth.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/auth.h"

static char folder[64], secret[96], authorized[96], public_key[128];

static void
clean(void)
{
    unlink(secret);
    unlink(public_key);
    rmdir(authorized);
    rmdir(folder);
}

static void
make_folder(void)
{
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/exogym-fuzz-XXXXXX"
                                                 : "/tmp/exogym-fuzz-XXXXXX");
    if (!mkdtemp(folder))
        abort();
    snprintf(secret, sizeof secret, "%s/n.secret", folder);
    snprintf(authorized, sizeof authorized, "%s/authorized", folder);
    snprintf(public_key, sizeof public_key, "%s/n.key", authorized);
    if (mkdir(authorized, 0700) != 0)
        abort();
    atexit(clean);
}

static void
put(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "w");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0 || chmod(path, 0600) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const exo_keys zero;
    exo_err err = {0};
    if (!folder[0])
        make_folder();
    if (size == 0)
        return 0;
    if (data[0] & 1) {
        exo_keys keys;
        memset(&keys, 'x', sizeof keys);
        put(secret, data + 1, size - 1);
        exo_status st = exo_keys_load(secret, &keys, &err);
        if (st != EXO_OK && (memcmp(&keys, &zero, sizeof keys) != 0 || !err.text[0]))
            abort();
        exo_keys_release(&keys);
    } else {
        exo_allow_list *list = NULL;
        put(public_key, data + 1, size - 1);
        exo_status st = exo_allow_list_load(&list, authorized, &err);
        if ((st == EXO_OK) != (list != NULL))
            abort();
        exo_allow_list_free(&list);
    }
    return 0;
}
