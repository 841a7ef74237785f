/* The built-in strategies, models, data sets and other named classes. This is the top layer: it
 * knows every other layer, and no other layer knows it.
 *
 * A registry (runtime/base/registry.h) belongs to the layer that searches it. The registries are
 * filled before main and before any plugin is loaded, so a program finds "ddp" without a call.
 * Programs that link the static library request this file by its symbol (cmake/layers.cmake).
 * exogym-head, which links six layers, does without it. */
#include <stdlib.h>

#include <exogym/log.h>
#include <exogym/state.h>

#include "actor/classes.h"
#include "actors/builtin_classes.h"
#include "actors/train_node.h"
#include "base/plugin_build.h"
#include "codec/codec_impl.h"
#include "comm/engines.h"
#include "environments/builtin.h"
#include "experience/builtin.h"
#include "graph/builtin.h"
#include "graph/files.h"
#include "graph/host.h"
#include "nn/builtin_models.h"
#include "nn/corpus/named.h"
#include "nn/cpu/cpu_kind.h"
#include "nn/dataset_impl.h"
#include "nn/device/gpu_kinds.h"
#include "nn/hash.h"
#include "nn/schedules.h"
#include "protocol/protocol.h"
#include "strategies/builtin.h"

static const void *const strategies[] = {
    &exo_async_diloco_class,  &exo_compose_class,
    &exo_ddp_class,           &exo_decoupled_diloco_class,
    &exo_demo_class,          &exo_diloco_class,
    &exo_eager_diloco_class,  &exo_fedavg_class,
    &exo_fsdp_class,          &exo_islands_class,
    &exo_local_sgd_class,     &exo_muloco_class,
    &exo_noloco_class,        &exo_onebit_adam_class,
    &exo_powersgd_class,      &exo_quantized_class,
    &exo_sparseloco_class,    &exo_sparta_class,
    &exo_sparta_diloco_class, &exo_streaming_diloco_class,
};

static const void *const environments[] = {
    &exo_acrobot_class,      &exo_cartpole_class, &exo_kuhn_poker_class,
    &exo_mountain_car_class, &exo_pendulum_class,
};

static const void *const engines[] = {
    &exo_local_engine,
    &exo_net_engine,
};

static const void *const models[] = {
    &exo_gpt,
    &exo_mlp,
    &exo_mnist_cnn,
};

static const void *const data_sets[] = {
    /* fashion_mnist, mnist, synthetic */
    &exo_image_sets[0],
    &exo_image_sets[1],
    &exo_image_sets[2],
    /* shakespeare, text, tokens */
    &exo_text_sets[0],
    &exo_text_sets[1],
    &exo_text_sets[2],
};
_Static_assert(sizeof data_sets / sizeof *data_sets == EXO_NUM_IMAGE_SETS + EXO_NUM_TEXT_SETS,
               "all are named");

static const void *const graph_classes[] = {
    &exo_dpo_trainer_class,      &exo_experience_maker_class, &exo_policy_trainer_class,
    &exo_ppo_trainer_class,      &exo_replay_buffer_class,    &exo_reward_trainer_class,
    &exo_rollout_maker_class,    &exo_sft_trainer_class,      &exo_stand_in_class,
    &exo_train_node_graph_class,
};

static const void *const graph_rules[] = {&exo_experience_rule, &exo_experience_options_rule,
                                          &exo_rollout_options_rule, &exo_train_node_rule};

static const void *const actor_classes[] = {
    &exo_graph_far_actor_class,
    &exo_train_node_class,
};

/* The arguments of the actors' methods. */
static const void *const protocols[] = {
    &exo_graph_actor_protocol,
    &exo_train_node_protocol,
};

static const void *const rewards[] = {&exo_calculation_reward, &exo_exact_reward,
                                      &exo_expression_reward,  &exo_function_reward,
                                      &exo_model_reward,       &exo_share_reward};
static const void *const tools[] = {&exo_calculator_tool};

static const void *const devices[] = {&exo_auto_device_kind, &exo_cpu_device_kind,
                                      &exo_cuda_device_kind, &exo_mps_device_kind};

/* A duplicate name or a full registry is an error in the tables above. */
static void
add(exo_registry *registry, const void *class_of)
{
    exo_err err = {0};
    if (exo_registry_add(registry, class_of, &err) != EXO_OK) {
        EXO_LOG(ERROR, BUILTINS, "reason=%s", err.text);
        abort();
    }
}

__attribute__((constructor)) void exo_builtins_register(void);

void
exo_builtins_register(void)
{
    const struct {
        exo_registry *registry;
        const void *const *classes;
        size_t count;
    } all[] = {
        {&exo_strategy_registry, strategies, sizeof strategies / sizeof *strategies},
        {&exo_environment_registry, environments, sizeof environments / sizeof *environments},
        {&exo_engine_registry, engines, sizeof engines / sizeof *engines},
        {&exo_model_registry, models, sizeof models / sizeof *models},
        {&exo_schedule_registry, exo_builtin_schedules, EXO_NUM_SCHEDULES},
        {&exo_dataset_registry, data_sets, sizeof data_sets / sizeof *data_sets},
        {&exo_graph_class_registry, graph_classes, sizeof graph_classes / sizeof *graph_classes},
        {&exo_graph_rule_registry, graph_rules, sizeof graph_rules / sizeof *graph_rules},
        {&exo_actor_class_registry, actor_classes, sizeof actor_classes / sizeof *actor_classes},
        {&exo_protocol_registry, protocols, sizeof protocols / sizeof *protocols},
        {&exo_reward_registry, rewards, sizeof rewards / sizeof *rewards},
        {&exo_tool_registry, tools, sizeof tools / sizeof *tools},
        {&exo_device_registry, devices, sizeof devices / sizeof *devices},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t k = 0; k < all[i].count; k++)
            add(all[i].registry, all[i].classes[k]);
    for (size_t i = 0; i < EXO_CODEC_KINDS; i++)
        add(&exo_codec_registry, &exo_codec_entries[i]);
    exo_build_set_hash(exo_sha256_file);
    exo_graph_files_set_hash(exo_sha256_sample);
}
