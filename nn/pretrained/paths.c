/* Names of files in a Hugging Face directory: see paths.h. */
#include "nn/pretrained/paths.h"

#include <stdio.h>
#include <unistd.h>

exo_status
exo_pretrained_path(char out[EXO_PRETRAINED_PATH], const char *folder, const char *name,
                    exo_err *err)
{
    int length = snprintf(out, EXO_PRETRAINED_PATH, "%s/%s", folder, name);
    if (length < 0 || length >= EXO_PRETRAINED_PATH)
        return exo_fail(err, EXO_INVAL, "the path '%.200s...' is longer than %d bytes", out,
                        EXO_PRETRAINED_PATH - 1);
    return EXO_OK;
}

exo_status
exo_pretrained_check_adapter(const char *folder, exo_status code, const char *why, exo_err *err)
{
    char path[EXO_PRETRAINED_PATH];
    exo_status st = exo_pretrained_path(path, folder, EXO_ADAPTER_CONFIG, err);
    if (st == EXO_OK && access(path, F_OK) == 0)
        st = exo_fail(err, code, "%s: %s", path, why);
    return st;
}
