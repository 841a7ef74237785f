/* Parameters as matrices: see shapes.h. No state. */
#include "strategies/shapes.h"

size_t
exo_shape_count(size_t num_infos)
{
    return num_infos > 0 ? num_infos : 1;
}

exo_shape
exo_shape_at(const exo_param_info *infos, size_t num_infos, size_t numel, size_t index)
{
    if (num_infos == 0)
        return (exo_shape){.rows = numel > 0, .cols = numel};
    const exo_param_info *info = &infos[index];
    if (info->is_buffer || info->numel == 0)
        return (exo_shape){0};
    const size_t rows = info->num_dims > 1 ? info->dims[0] : 1;
    return (exo_shape){.first = info->offset, .rows = rows, .cols = info->numel / rows};
}
