/* Names of files in a Hugging Face directory: see paths.h. */
#include "nn/pretrained/paths.h"

#include <stdio.h>

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
