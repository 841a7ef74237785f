/* The named classes of this layer, which builtins/ registers. */
#ifndef EXO_EXPERIENCE_BUILTIN_H
#define EXO_EXPERIENCE_BUILTIN_H

#include <exogym/graph.h>
#include <exogym/reward.h>
#include <exogym/tool.h>

#include "base/registry.h"
#include "graph/builtin.h"

extern exo_registry exo_reward_registry;
extern const exo_reward_class exo_share_reward, exo_function_reward;
extern const exo_reward_class exo_model_reward, exo_expression_reward, exo_calculation_reward,
    exo_exact_reward;

extern exo_registry exo_tool_registry;
extern const exo_tool_class exo_calculator_tool;

extern const exo_graph_class exo_experience_maker_class;
extern const exo_graph_class exo_ppo_trainer_class;
extern const exo_graph_class exo_replay_buffer_class;
extern const exo_graph_class exo_sft_trainer_class, exo_reward_trainer_class, exo_dpo_trainer_class;
extern const exo_graph_rule exo_experience_rule, exo_experience_options_rule;

#endif
