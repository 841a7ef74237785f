/* The inside of a copy of a model's numbers. The copy belongs to its user. Read next: params.c. */
#ifndef EXO_PARAMS_IMPL_H
#define EXO_PARAMS_IMPL_H

#include <exogym/units.h>

/* A unit of a copy by units, on the copy's device. It has addresses for the life of the copy, and memory while it is
 * open. */
typedef struct exo_unit_pages {
    void *values, *grads; /* (count) fp32 */
    bool open, grads_open;
} exo_unit_pages;

struct exo_params {
    const exo_param_info *infos; /* (count), the model's */
    size_t count;
    size_t numel, buffer_numel;
    size_t frozen_numel; /* the last ones of the buffers */
    exo_device *device;  /* NULL: the CPU */
    /* On the device. grads is NULL in a copy that does not learn. */
    float *values, *grads, *buffers;
    bool phantom;               /* all three are phantoms (phantom.h) */
    const exo_unit_info *units; /* (num_units), the model's */
    size_t num_units;
    /* (num_units). NULL: a flat copy. Otherwise values and grads are NULL. */
    exo_unit_pages *pages;
    size_t open_bytes, most_open_bytes;
};

/* Reserves addresses for all units of *params, which has their ranges (units.c). Errors: NOMEM. */
exo_status exo_params_reserve(exo_params *params, exo_err *err);
void exo_params_unreserve(exo_params *params);
/* The address of a parameter or buffer, also while its unit is closed; and the address of its
 * gradient, NULL if it never has one. */
float *exo_params_address(const exo_params *params, size_t index);
float *exo_params_grad_address(const exo_params *params, size_t index);

#endif
