/* Parameters that the host reads, wherever they are. Owner: the caller, one thread at a time. Read
 * next: params_device.c. */
#ifndef EXO_HOST_PARAMS_H
#define EXO_HOST_PARAMS_H

#include <exogym/model.h>

/* Parameters of a model in host memory: `params` themselves, or a copy without gradients if they are on
 * a device that the host does not reach. The caller gives them back. NOMEM, or the device's. */
exo_status exo_host_params_take(exo_params **out, exo_model *model, exo_params *params,
                                exo_err *err);
void exo_host_params_give_back(exo_params **host, const exo_params *params);

#endif
