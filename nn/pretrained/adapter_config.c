/* adapter_config.json of PEFT: see adapter_config.h. The tensors say which modules an adapter has,
 * so the keys that choose modules are not read. */
#include "nn/pretrained/adapter_config.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/pretrained/hf_config.h"
#include "nn/pretrained/save_json.h"

/* Keys that do not change the function of base, A and B. */
static const char *const harmless[] = {
    /* names, versions and tasks */
    "base_model_name_or_path", "peft_version", "revision", "task_type", "inference_mode",
    "auto_mapping", /* the base's class, which peft writes without a task_type */
    /* the choice of modules; how the base's files lie */
    "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out",
    "ensure_weight_tying",
    /* training; groups of an option that is off */
    "lora_dropout", "loftq_config", "eva_config", "corda_config", "megatron_config",
    "megatron_core", "qalora_group_size", NULL};

/* Options that change the computation. */
static const char *const off[] = {
    "use_dora",         "use_qalora",        "use_bdlora",
    "lora_bias",        "rank_pattern",      "alpha_pattern",
    "modules_to_save",  "layer_replication", "trainable_token_indices",
    "target_parameters"};

/* Some initializations replace the base's weights by what A and B leave of them (PiSSA, OLoRA, LoftQ,
 * CorDA), and peft does so again when it opens the adapter. */
static void
read_initialization(exo_hf_config *c)
{
    static const char *const kept[] = {"gaussian", "orthogonal", "eva", "mica", "lora_ga"};
    const json_t *value = exo_hf_get(c, "init_lora_weights");
    const char *name = json_string_value(value);
    bool good = !value || json_is_null(value) || json_is_boolean(value);
    for (size_t i = 0; name && i < sizeof kept / sizeof *kept; i++)
        good = good || strcasecmp(name, kept[i]) == 0;
    if (!good)
        exo_hf_refuse(c, "init_lora_weights",
                      "it changes the base's weights; save the adapter as plain LoRA, by peft's "
                      "save_pretrained(..., path_initial_model_for_weight_conversion=...)");
}

static void
read_kind(exo_hf_config *c)
{
    const char *type = json_string_value(exo_hf_get(c, "peft_type"));
    const char *bias = json_string_value(exo_hf_get(c, "bias"));
    if (!type || strcmp(type, "LORA") != 0)
        exo_hf_refuse(c, "peft_type", "expected LORA");
    if (bias && strcmp(bias, "none") != 0)
        exo_hf_refuse(c, "bias", "expected none");
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        exo_hf_must_be_off(c, off[i], "only A and B of linear layers are applied");
    read_initialization(c);
}

exo_status
exo_adapter_config_read(const char *folder, exo_adapter *out, exo_err *err)
{
    exo_hf_config c;
    exo_status st = exo_hf_config_open_file(&c, folder, EXO_ADAPTER_CONFIG, err);
    if (st == EXO_OK) {
        read_kind(&c);
        out->rank = exo_hf_size(&c, "r", 8);
        out->alpha = exo_hf_float(&c, "lora_alpha", 8);
        if (!(out->alpha > 0))
            exo_hf_wrong(&c, "lora_alpha", "expected a number above 0");
        if (exo_hf_bool(&c, "use_rslora", false))
            out->alpha *= sqrtf((float)out->rank);
        st = exo_hf_config_finish(&c, harmless, err);
    }
    exo_hf_config_close(&c);
    return st;
}

exo_status
exo_adapter_config_write(const char *folder, const exo_decoder_spec *spec, size_t rank,
                         json_t *targets, const char *base, exo_err *err)
{
    float alpha = spec->lora_scale * (float)rank;
    bool whole = alpha == floorf(alpha) && alpha < 1e6f;
    json_t *config = json_pack(
        "{s:s, s:s, s:s?, s:I, s:o, s:f, s:O, s:b, s:s, s:b, s:b, s:b, s:b, s:n, s:{}, s:{}, s:n}",
        "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r",
        (json_int_t)rank, "lora_alpha",
        whole ? json_integer((json_int_t)alpha) : exo_hf_real(alpha), "lora_dropout", 0.0,
        "target_modules", targets, "fan_in_fan_out", strcmp(spec->family, "gpt2") == 0, "bias",
        "none", "inference_mode", 1, "use_rslora", 0, "use_dora", 0, "init_lora_weights", 1,
        "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform");
    exo_status st = exo_pretrained_write_json(folder, EXO_ADAPTER_CONFIG, config, err);
    json_decref(config);
    return st;
}
