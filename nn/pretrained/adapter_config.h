/* adapter_config.json of PEFT. No state. Read next: adapter_config.c, adapter.c. */
#ifndef EXO_PRETRAINED_ADAPTER_CONFIG_H
#define EXO_PRETRAINED_ADAPTER_CONFIG_H

#include <jansson.h>

#include "nn/pretrained/pretrained.h"

/* Reads rank and alpha; an adapter that is scaled by alpha / sqrt(rank) gets an alpha that is
 * divided by the rank. Errors: NOT_FOUND, IO, NOMEM; DAMAGED; UNSUPPORTED: a key selects another
 * computation, or is unknown. */
exo_status exo_adapter_config_read(const char *folder, exo_adapter *out, exo_err *err);
/* Writes the file, of an adapter of the spec for the modules in `targets`, an array of names. */
exo_status exo_adapter_config_write(const char *folder, const exo_decoder_spec *spec, size_t rank,
                                    json_t *targets, const char *base, exo_err *err);

#endif
