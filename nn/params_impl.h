/* Inside of a model copy's parameters. */
#ifndef EXO_PARAMS_IMPL_H
#define EXO_PARAMS_IMPL_H

#include <exogym/units.h>

/* A unit of a copy by units: addresses for the life of the copy, memory while it is open. */
typedef struct exo_unit_pages {
    void *values, *grads; /* (count) fp32 */
    bool open, grads_open;
} exo_unit_pages;

struct exo_params {
    const exo_param_info *infos; /* (count), the model's */
    size_t count;
    size_t numel, buffer_numel;
    size_t frozen_numel; /* of the buffers, at their end */
    exo_device *device;  /* NULL: the CPU */
    float *values, *grads,
        *buffers; /* on the device; grads may be NULL: of a copy that does not learn */
    bool phantom; /* all three are (phantom.h)                         */
    const exo_unit_info *units; /* (num_units), the model's */
    size_t num_units;
    exo_unit_pages *pages; /* (num_units); NULL: a flat copy. Then values and grads are NULL */
    size_t open_bytes, most_open_bytes;
};

/* units.c: addresses for all units, whose ranges *params has. NOMEM. */
exo_status exo_params_reserve(exo_params *params, exo_err *err);
void exo_params_unreserve(exo_params *params);
/* Where a parameter or buffer is, or will be when its unit is open; and its gradient, NULL: it
 * never has one. */
float *exo_params_address(const exo_params *params, size_t index);
float *exo_params_grad_address(const exo_params *params, size_t index);

#endif
