/* The setting `train.autocast`: see autocast.h. */
#include "actors/autocast.h"

#include <string.h>

exo_status
exo_fit_read_autocast(exo_config *train, exo_autocast *out, exo_err *err)
{
    static const char *const names[] = {"none", "bf16", "fp8", "false", "true", NULL};
    static const exo_autocast casts[] = {EXO_AUTOCAST_NONE, EXO_AUTOCAST_BF16, EXO_AUTOCAST_FP8,
                                         EXO_AUTOCAST_NONE, EXO_AUTOCAST_BF16};
    size_t choice = 0;
    const exo_status st = exo_config_choice(train, "autocast", 0, names, &choice, err);
    *out = st == EXO_OK ? casts[choice] : EXO_AUTOCAST_NONE;
    return st;
}

const char *
exo_fit_autocast_name(exo_autocast autocast)
{
    return autocast == EXO_AUTOCAST_FP8 ? "fp8" : autocast == EXO_AUTOCAST_BF16 ? "bf16" : "none";
}

exo_status
exo_fit_check_autocast(exo_autocast autocast, const char *device, exo_err *err)
{
    if (autocast != EXO_AUTOCAST_FP8 || (device && strcmp(device, "cpu") != 0))
        return EXO_OK;
    return exo_fail(err, EXO_UNSUPPORTED,
                    "train.autocast: fp8 needs a GPU: give device: cuda, or take bf16");
}
