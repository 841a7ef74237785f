/* The setting `train.autocast`. No state. */
#ifndef EXO_AUTOCAST_H
#define EXO_AUTOCAST_H

#include <exogym/config.h>
#include <exogym/tensor.h>

/* Reads `autocast` of a map: none, bf16, fp8, or a boolean, where true is bf16. */
exo_status exo_fit_read_autocast(exo_config *train, exo_autocast *out, exo_err *err);
/* Whether the device, by its name (NULL: cpu), can have it. UNSUPPORTED. */
exo_status exo_fit_check_autocast(exo_autocast autocast, const char *device, exo_err *err);
/* "none", "bf16", "fp8". */
const char *exo_fit_autocast_name(exo_autocast autocast);

#endif
