/* Inside of a model copy's parameters. */
#ifndef EXO_PARAMS_IMPL_H
#define EXO_PARAMS_IMPL_H

#include <exogym/model.h>

struct exo_params {
    const exo_param_info *infos; /* (count), the model's */
    size_t count;
    size_t numel, buffer_numel;
    size_t frozen_numel;             /* of the buffers, at their end */
    exo_device *device;              /* NULL: the CPU */
    float *values, *grads, *buffers; /* on the device; grads may be NULL: of a copy that does not learn */
    bool phantom;                    /* all three are (phantom.h)                         */
};

#endif
