/* A node's state as checkpoints have it: see node_state.h. No state. */
#include "actors/node_state.h"

void
exo_node_show_params(exo_node *node, exo_params *params)
{
    const size_t statistics = exo_params_buffer_numel(params) - exo_params_frozen_numel(params);
    node->numel = exo_params_numel(params);
    node->params = exo_params_values_array(params);
    node->grads = exo_params_grads_array(params);
    node->buffers = exo_array_part(exo_params_buffers_array(params), 0, statistics);
    node->buffer_numel = statistics;
    node->model = params;
    node->infos = exo_params_info(params, 0);
    node->num_infos = exo_params_count(params);
    node->units = exo_params_units(params);
    node->num_units = exo_params_num_units(params);
}

/* The position in the data and every random stream follow from the step. */
void
exo_node_list_state(exo_node *node, exo_strategy *strategy, uint64_t *elapsed, uint64_t *bytes,
                    exo_state *state)
{
    exo_params *params = node->model;
    const bool by_units = exo_params_by_units(params);
    exo_state_prefix(state, "model");
    for (size_t i = 0; i < exo_params_count(params); i++) {
        const exo_param_info *info = exo_params_info(params, i);
        if (by_units && !info->is_buffer)
            continue;
        const exo_array flat =
            info->is_buffer ? exo_params_buffers_array(params) : exo_params_values_array(params);
        exo_state_add_shaped_array(state, info->name,
                                   exo_array_part(flat, info->offset, info->numel), info->num_dims,
                                   info->dims);
    }
    exo_state_prefix(state, NULL);
    exo_strategy_state(strategy, node, state);
    exo_state_prefix(state, "run");
    exo_state_add_u64(state, "step", &node->step);
    exo_state_add_u64(state, "elapsed_ns", elapsed);
    exo_state_add_u64(state, "bytes_sent", bytes);
    exo_state_prefix(state, NULL);
}
