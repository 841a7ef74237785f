/* Invalid Hugging Face directories: each mistake in config.json, in the tensors or in the files is
 * an error that names it, and no option that changes a model's results is ignored. Each test owns
 * its folder. Read next: nn/pretrained/safetensors.h; pretrained.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/state.h>

#include "nn/pretrained/safetensors.h"
#include "support/decoders.h"
#include "support/temp.h"

static char folder[64];

static void
setup(void)
{
    temp_folder(folder, sizeof folder);
}

static void
teardown(void)
{
    temp_remove(folder);
}

TestSuite(pretrained_errors, .init = setup, .fini = teardown);

static exo_status
try_load(exo_err *err)
{
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_status st = exo_decoder_load(folder, &model, &params, err);
    exo_params_free(&params);
    exo_model_drop(&model);
    return st;
}

static void
expect_error(exo_status status, const char *text)
{
    exo_err err = {0};
    exo_status st = try_load(&err);
    cr_expect_eq(st, status, "%s instead of '%s': %s", exo_status_text(st), text, err.text);
    cr_expect(strstr(err.text, text) != NULL, "'%s' is not in: %s", text, err.text);
}

/* --- config.json ------------------------------------------------------------------------------ */

static const struct {
    const char *name, *from, *to;
    exo_status status; /* OK: the change is harmless */
    const char *text;
} configs[] = {
    /* options of a different computation */
    {"gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false", EXO_UNSUPPORTED,
     "\"scale_attn_weights\": false"},
    {"gpt2", "\"scale_attn_by_inverse_layer_idx\": false",
     "\"scale_attn_by_inverse_layer_idx\": true", EXO_UNSUPPORTED,
     "\"scale_attn_by_inverse_layer_idx\": true"},
    {"gpt2", "\"add_cross_attention\": false", "\"add_cross_attention\": true", EXO_UNSUPPORTED,
     "\"add_cross_attention\": true"},
    {"gpt2", "gelu_new", "quick_gelu", EXO_UNSUPPORTED, "\"activation_function\": \"quick_gelu\""},
    {"gpt2", "\"model_type\": \"gpt2\"", "\"model_type\": \"t5\"", EXO_UNSUPPORTED,
     "gpt2, opt, bloom, llama, mistral, qwen2 and qwen3"},
    {"gpt2", "\"use_cache\": true", "\"use_rotary\": true", EXO_UNSUPPORTED,
     "\"use_rotary\": true"},
    {"gpt2", "\"use_cache\": true", "\"quantization_config\": {\"bits\": 4}", EXO_UNSUPPORTED,
     "\"quantization_config\""},
    {"gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": null", EXO_UNSUPPORTED,
     "\"scale_attn_weights\": null"},
    {"opt", "\"do_layer_norm_before\": true", "\"do_layer_norm_before\": false", EXO_UNSUPPORTED,
     "opt-350m"},
    {"opt", "\"word_embed_proj_dim\": 32", "\"word_embed_proj_dim\": 16", EXO_UNSUPPORTED,
     "opt-350m"},
    {"opt", "\"_remove_final_layer_norm\": false", "\"_remove_final_layer_norm\": true",
     EXO_UNSUPPORTED, "_remove_final_layer_norm"},
    {"opt", "\"layer_norm_elementwise_affine\": true", "\"layer_norm_elementwise_affine\": false",
     EXO_UNSUPPORTED, "layer_norm_elementwise_affine"},
    {"bloom", "\"apply_residual_connection_post_layernorm\": false",
     "\"apply_residual_connection_post_layernorm\": true", EXO_UNSUPPORTED,
     "apply_residual_connection_post_layernorm"},
    {"bloom", "\"pretraining_tp\": 1,\n  \"slow_but_exact\": false",
     "\"pretraining_tp\": 2, \"slow_but_exact\": true", EXO_UNSUPPORTED,
     "\"slow_but_exact\": true"},
    {"bloom", "\"use_cache\": true", "\"n_inner\": 20", EXO_UNSUPPORTED, "\"n_inner\": 20"},
    {"llama3", "\"rope_type\": \"llama3\"", "\"rope_type\": \"yarn\"", EXO_UNSUPPORTED,
     "linear or llama3"},
    {"llama3", "\"factor\": 4.0", "\"attention_factor\": 2.0, \"factor\": 4.0", EXO_UNSUPPORTED,
     "attention_factor"},
    {"llama", "\"use_cache\": true", "\"partial_rotary_factor\": 0.5", EXO_UNSUPPORTED,
     "partial_rotary_factor"},
    {"llama", "\"use_cache\": true", "\"rope_interleaved\": true", EXO_UNSUPPORTED,
     "rope_interleaved"},
    {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}",
     EXO_UNSUPPORTED, "rope_parameters"},
    {"llama", "\"use_cache\": true", "\"rope_theta\": 500.0", EXO_UNSUPPORTED,
     "the rope_theta beside it is another"},
    {"llama", "\"use_cache\": true", "\"sliding_window\": 16", EXO_UNSUPPORTED,
     "\"sliding_window\": 16"},
    {"mistral", "\"sliding_window\": 32", "\"sliding_window\": 31", EXO_UNSUPPORTED,
     "\"sliding_window\": 31"},
    {"mistral", "\"max_position_embeddings\": 32", "\"max_position_embeddings\": 33",
     EXO_UNSUPPORTED, "at least max_position_embeddings"},
    {"mistral", "\"max_position_embeddings\": 32",
     "\"max_position_embeddings\": 32, \"attention_bias\": true", EXO_UNSUPPORTED,
     "\"attention_bias\": true"},
    {"qwen2", "\"use_sliding_window\": false", "\"use_sliding_window\": true", EXO_UNSUPPORTED,
     "\"use_sliding_window\": true"},
    {"qwen2", "\"full_attention\"\n  ]", "\"sliding_attention\"\n  ]", EXO_UNSUPPORTED,
     "full_attention for each layer"},
    {"qwen2", "\"use_sliding_window\": false", "\"use_mrope\": true", EXO_UNSUPPORTED,
     "\"use_mrope\": true"},
    {"qwen3", "\"model_type\": \"qwen3\"", "\"model_type\": \"qwen3_moe\"", EXO_UNSUPPORTED,
     "\"model_type\": \"qwen3_moe\""},
    {"qwen3", "\"use_sliding_window\": false", "\"use_sliding_window\": true", EXO_UNSUPPORTED,
     "\"use_sliding_window\": true"},
    {"qwen3", "\"full_attention\"\n  ]", "\"sliding_attention\"\n  ]", EXO_UNSUPPORTED,
     "full_attention for each layer"},
    {"qwen3", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"factor\": 4.0",
     EXO_UNSUPPORTED, "\"rope_parameters.rope_type\": \"yarn\""},
    {"qwen3", "\"use_cache\": true", "\"num_experts\": 8", EXO_UNSUPPORTED, "\"num_experts\": 8"},
    {"qwen3", "\"use_cache\": true", "\"mlp_bias\": true", EXO_UNSUPPORTED, "\"mlp_bias\": true"},
    /* invalid values */
    {"gpt2", "\"n_head\": 4", "\"n_head\": 5", EXO_DAMAGED, "\"n_embd\": 32"},
    {"gpt2", "\"n_head\": 4", "\"n_head\": 0", EXO_DAMAGED, "\"n_head\": 0"},
    {"gpt2", "\"n_head\": 4", "\"n_head\": -1", EXO_DAMAGED, "\"n_head\": -1"},
    {"gpt2", "\"n_head\": 4", "\"n_head\": \"4\"", EXO_DAMAGED, "\"n_head\": \"4\""},
    {"gpt2", "\"n_layer\": 2", "\"n_layer\": 100000", EXO_DAMAGED, "layers"},
    {"gpt2", "\"vocab_size\": 101", "\"vocab_size\": 9000000000", EXO_DAMAGED, "\"vocab_size\""},
    {"gpt2", "\"n_embd\": 32", "\"n_embd\": 16777216", EXO_DAMAGED, "width"},
    {"gpt2", "1e-05", "-1", EXO_DAMAGED, "norm_eps"},
    {"gpt2", "1e-05", "1e39", EXO_DAMAGED, "\"layer_norm_epsilon\""},
    {"gpt2", "1e-05", "\"small\"", EXO_DAMAGED, "layer_norm_epsilon"},
    {"gpt2", "\"n_head\"", "\"n_embd\"", EXO_DAMAGED, "config.json:"}, /* a key twice */
    {"llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", EXO_DAMAGED, "kv_heads"},
    {"llama", "\"head_dim\": 8", "\"head_dim\": 7", EXO_DAMAGED, "even"},
    {"qwen3", "\"head_dim\": 16", "\"head_dim\": null", EXO_DAMAGED, "\"head_dim\": null"},
    {"qwen3", "\"head_dim\": 16", "\"head_dim\": 15", EXO_DAMAGED, "even"},
    {"llama", "\"rope_type\": \"default\"", "\"rope_type\": 3", EXO_DAMAGED, "rope_type"},
    {"llama3", "\"factor\": 4.0", "\"factor\": 0.5", EXO_DAMAGED, "a factor from 1"},
    {"llama3", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 4.0", EXO_DAMAGED,
     "low_freq_factor"},
    {"llama3", "\"original_max_position_embeddings\": 16",
     "\"original_max_position_embeddings\": -16", EXO_DAMAGED, "original_max_position_embeddings"},
    {"qwen2", "[\n    \"full_attention\",\n    \"full_attention\"\n  ]", "\"full_attention\"",
     EXO_DAMAGED, "\"layer_types\""},
    {"qwen2", "\"full_attention\"\n  ]", "1\n  ]", EXO_UNSUPPORTED,
     "full_attention for each layer"},
    /* options that contradict the tensors */
    {"gpt2", "\"n_layer\": 2", "\"n_layer\": 1", EXO_DAMAGED, "'transformer.h.1."},
    {"gpt2", "\"n_layer\": 2", "\"n_layer\": 3", EXO_DAMAGED,
     "no tensor 'transformer.h.2.ln_1.weight'"},
    {"gpt2", "\"n_inner\": 48", "\"n_inner\": null", EXO_DAMAGED,
     "has the shape (32, 48); expected (32, 128)"},
    {"gpt2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", EXO_DAMAGED,
     "no tensor 'lm_head.weight'"},
    {"llama", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", EXO_DAMAGED,
     "differs from the embedding"},
    {"qwen2", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": null", EXO_DAMAGED,
     "k_proj.weight' has the shape (16, 32); expected (32, 32)"},
    {"qwen3", "\"num_key_value_heads\": 1", "\"num_key_value_heads\": null", EXO_DAMAGED,
     "k_proj.weight' has the shape (16, 24); expected (32, 24)"},
    {"qwen3", "\"head_dim\": 16,", "", EXO_DAMAGED,
     "q_proj.weight' has the shape (32, 24); expected (256, 24)"},
    {"qwen3", "\"attention_bias\": false", "\"attention_bias\": true", EXO_DAMAGED,
     "no tensor 'model.layers.0.self_attn.q_proj.bias'"},
    {"qwen3_bias", "\"attention_bias\": true", "\"attention_bias\": false", EXO_DAMAGED,
     "has no place in a qwen3"},
    {"llama", "\"attention_bias\": false", "\"attention_bias\": true", EXO_DAMAGED,
     "no tensor 'model.layers.0.self_attn.q_proj.bias'"},
    {"opt", "\"enable_bias\": true", "\"enable_bias\": false", EXO_DAMAGED,
     "has no place in a opt"},
    /* options without an effect */
    {"gpt2", "\"use_cache\": true",
     "\"n_ctx\": 32, \"gradient_checkpointing\": false, \"pruned_heads\": {}, "
     "\"tf_legacy_loss\": false",
     EXO_OK, ""},
    {"gpt2", "\"use_cache\": true", "\"quantization_config\": null, \"sliding_window\": null",
     EXO_OK, ""},
    {"gpt2", "gelu_new", "gelu_pytorch_tanh", EXO_OK, ""},
    {"opt", "\"layerdrop\": 0.0", "\"layerdrop\": 0.1, \"prefix\": \"</s>\"", EXO_OK, ""},
    {"bloom", "\"use_cache\": true",
     "\"n_inner\": null, \"offset_alibi\": 100, \"skip_bias_add\": true, \"seq_length\": 64",
     EXO_OK, ""},
    {"bloom", "\"n_head\": 6", "\"num_attention_heads\": 6", EXO_OK, ""},
    {"bloom", "\"slow_but_exact\": false", "\"slow_but_exact\": true", EXO_OK, ""},
    {"llama", "\"use_cache\": true", "\"rope_theta\": 10000.0, \"rope_scaling\": null", EXO_OK, ""},
    {"qwen3", "\"sliding_window\": null", "\"sliding_window\": 4096", EXO_OK, ""},
    {"qwen3", "\"attention_bias\": false,", "", EXO_OK, ""},
};

Test(pretrained_errors, what_a_config_says_counts)
{
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        exo_err err = {0};
        decoders_copy(configs[i].name, folder);
        decoders_edit(folder, "config.json", configs[i].from, configs[i].to);
        exo_status st = try_load(&err);
        cr_expect_eq(st, configs[i].status, "%s, %s: %s: %s", configs[i].name, configs[i].to,
                     exo_status_text(st), err.text);
        cr_expect(strstr(err.text, configs[i].text) != NULL, "%s, %s: %s", configs[i].name,
                  configs[i].to, err.text);
        if (st != EXO_OK)
            cr_expect(strstr(err.text, folder) || strstr(err.text, "model"), "%s", err.text);
    }
}

/* Older files have in rope_scaling and rope_theta what newer ones have in rope_parameters. */
Test(pretrained_errors, old_and_new_names_mean_the_same)
{
    exo_decoder_spec older, newer;
    exo_err err = {0};
    decoders_copy("llama3", folder);
    cr_assert_eq(exo_decoder_load_spec(folder, &newer, &err), EXO_OK, "%s", err.text);
    decoders_edit(folder, "config.json", "\"rope_parameters\"", "\"rope_scaling\"");
    cr_assert_eq(exo_decoder_load_spec(folder, &older, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(memcmp(&older, &newer, sizeof older), 0);
    decoders_edit(folder, "config.json", "\"rope_scaling\"",
                  "\"rope_theta\": 500.0, \"rope_scaling\"");
    decoders_edit(folder, "config.json", "\"rope_theta\": 500.0,\n    \"rope_type\"", "\"type\"");
    cr_assert_eq(exo_decoder_load_spec(folder, &older, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(memcmp(&older, &newer, sizeof older), 0);
    decoders_edit(folder, "config.json", "\"llama3\"", "\"linear\"");
    cr_assert_eq(exo_decoder_load_spec(folder, &older, &err), EXO_OK, "%s", err.text);
    cr_expect(older.rope_scaling.linear && older.rope_scaling.factor == 4.0f);
}

Test(pretrained_errors, a_folder_without_weights_says_what_to_do)
{
    expect_error(EXO_NOT_FOUND,
                 "config.json: there is no such file; a Hugging Face directory has one");
    decoders_copy("gpt2", folder);
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    expect_error(EXO_NOT_FOUND, "has neither model.safetensors nor model.safetensors.index.json");
    decoders_write(folder, "pytorch_model.bin", "x", 1);
    expect_error(EXO_UNSUPPORTED, "pytorch_model.bin: is not read");
    decoders_write(folder, "model.safetensors",
                   "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", 58);
    expect_error(EXO_DAMAGED, "model.safetensors: is a Git LFS pointer, not the file");
}

/* --- Tensors ---------------------------------------------------------------------------------- */

/* Writes model.safetensors again: a tensor whose name begins with `strip` loses that prefix, `drop`
 * is left out, `more` is added. */
struct change {
    const char *strip, *drop;
    struct {
        const char *name;
        exo_dtype dtype;
        size_t num_dims, dims[4];
    } more[4];
};

static void
rewrite(const struct change *change)
{
    static char zeros[1 << 16];
    char path[128], other[128];
    exo_safetensors *file = NULL;
    exo_state *state = NULL;
    exo_err err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    cr_assert_eq(exo_safetensors_open(&file, path, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_state_new(&state, NULL), EXO_OK);
    for (size_t i = 0; i < exo_safetensors_count(file); i++) {
        const exo_safetensor *t = exo_safetensors_at(file, i);
        size_t strip = change->strip && strncmp(t->name, change->strip, strlen(change->strip)) == 0
                           ? strlen(change->strip)
                           : 0;
        if (!change->drop || strcmp(t->name, change->drop) != 0)
            exo_state_add_shaped(state, t->name + strip, EXO_F32, (void *)(uintptr_t)t->data,
                                 t->num_dims, t->dims);
    }
    for (size_t i = 0; i < 4 && change->more[i].name; i++)
        exo_state_add_shaped(state, change->more[i].name, change->more[i].dtype, zeros,
                             change->more[i].num_dims, change->more[i].dims);
    cr_assert_eq(exo_state_save(state, other, &err), EXO_OK, "%s", err.text);
    exo_state_free(&state);
    exo_safetensors_close(&file);
    cr_assert_eq(rename(other, path), 0);
}

Test(pretrained_errors, names_with_and_without_prefix_and_buffers_are_read)
{
    exo_err err = {0};
    decoders_copy("gpt2", folder);
    rewrite(&(struct change){.strip = "transformer.",
                             .more = {{"h.0.attn.bias", EXO_U8, 4, {1, 1, 32, 32}},
                                      {"h.1.attn.masked_bias", EXO_F32, 0, {0}}}});
    cr_expect_eq(try_load(&err), EXO_OK, "%s", err.text);
    decoders_copy("llama", folder);
    rewrite(&(struct change){
        .strip = "model.", .more = {{"layers.1.self_attn.rotary_emb.inv_freq", EXO_F32, 1, {4}}}});
    cr_expect_eq(try_load(&err), EXO_OK, "%s", err.text);
}

Test(pretrained_errors, every_tensor_has_its_place_and_every_parameter_its_tensor)
{
    static const struct {
        struct change change;
        exo_status status;
        const char *text;
    } cases[] = {
        {{.drop = "transformer.ln_f.bias"},
         EXO_DAMAGED,
         "has no tensor 'transformer.ln_f.bias', which holds 'norm.bias' according to"},
        {{.more = {{"transformer.h.0.attn.c_extra", EXO_F32, 1, {3}}}},
         EXO_DAMAGED,
         "'transformer.h.0.attn.c_extra' has no place in a gpt2"},
        {{.more = {{"transformer.h.x.attn.bias", EXO_F32, 1, {3}}}},
         EXO_DAMAGED,
         "'transformer.h.x.attn.bias' has no place"},
        {{.more = {{"transformer.h.0.attn.bias.more", EXO_F32, 1, {3}}}},
         EXO_DAMAGED,
         "'transformer.h.0.attn.bias.more' has no place"},
        {{.more = {{"lm_head.weight", EXO_F32, 2, {101, 32}}}},
         EXO_DAMAGED,
         "'lm_head.weight' differs from the embedding"},
        {{.drop = "transformer.ln_f.bias", .more = {{"transformer.ln_f.bias", EXO_F32, 1, {31}}}},
         EXO_DAMAGED,
         "'transformer.ln_f.bias' has the shape (31); expected (32)"},
        {{.drop = "transformer.ln_f.bias",
          .more = {{"transformer.ln_f.bias", EXO_F32, 2, {1, 32}}}},
         EXO_DAMAGED,
         "has the shape (1, 32); expected (32)"},
        {{.drop = "transformer.ln_f.bias", .more = {{"transformer.ln_f.bias", EXO_I32, 1, {32}}}},
         EXO_UNSUPPORTED,
         "has the type I32; expected F32, F16 or BF16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        decoders_copy("gpt2", folder);
        rewrite(&cases[i].change);
        expect_error(cases[i].status, cases[i].text);
        expect_error(cases[i].status, "/model.safetensors: ");
    }
}

Test(pretrained_errors, a_tied_head_may_be_there_as_well)
{
    size_t size = 0;
    exo_err err = {0};
    decoders_copy("gpt2", folder);
    rewrite(&(struct change){.drop = "transformer.wte.weight",
                             .more = {{"transformer.wte.weight", EXO_F32, 2, {101, 32}},
                                      {"lm_head.weight", EXO_F32, 2, {101, 32}}}});
    cr_expect_eq(try_load(&err), EXO_OK, "%s", err.text);
    exo_free(decoders_read(folder, "model.safetensors", &size));
    cr_expect_gt(size, 2 * 101 * 32 * sizeof(float));
}

Test(pretrained_errors, an_index_and_its_files_agree)
{
    static const struct {
        const char *from, *to, *text;
    } cases[] = {
        {"model-00002-of-00003.safetensors", "../model-00002-of-00003.safetensors",
         "is in no file of this folder"},
        {"\"model-00002-of-00003.safetensors\"", "7", "is in no file of this folder"},
        {"\"weight_map\"", "\"weights\"", "has no weight_map"},
        {"\"weight_map\": {", "\"weight_map\": {\"more\": \"model-00002-of-00003.safetensors\",",
         "tensor 'more' is not in"},
        {"model.decoder.layers.0.fc1.bias", "model.decoder.layers.0.fc1.else",
         "model.decoder.layers.0.fc1"},
        {"{", "{{", "model.safetensors.index.json:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        decoders_copy("opt", folder);
        decoders_edit(folder, "model.safetensors.index.json", cases[i].from, cases[i].to);
        expect_error(EXO_DAMAGED, cases[i].text);
        expect_error(EXO_DAMAGED, "/model.safetensors.index.json");
    }
    decoders_copy("opt", folder);
    char path[128];
    snprintf(path, sizeof path, "%s/model-00002-of-00003.safetensors", folder);
    unlink(path);
    expect_error(EXO_NOT_FOUND, "model.safetensors.index.json names it");
    decoders_copy("opt", folder);
    size_t size = 0;
    char *data = decoders_read(folder, "model-00001-of-00003.safetensors", &size);
    decoders_write(folder, "model-00002-of-00003.safetensors", data, size);
    expect_error(EXO_DAMAGED, "is in");
    exo_free(data);
}

/* --- Bytes ------------------------------------------------------------------------------------ */

/* Writes a file with this header and `data` zeros after it. */
static void
write_file(const char *header, uint64_t length, size_t data)
{
    char bytes[1024] = {0};
    size_t text = strlen(header);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(length >> (8 * i));
    cr_assert_leq(8 + text + data, sizeof bytes);
    memcpy(bytes + 8, header, text);
    decoders_write(folder, "x.safetensors", bytes, 8 + text + data);
}

static exo_status
open_file(exo_err *err)
{
    char path[128];
    exo_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    exo_status st = exo_safetensors_open(&file, path, err);
    exo_safetensors_close(&file);
    return st;
}

Test(pretrained_errors, headers_that_do_not_fit_their_file_are_refused)
{
    static const struct {
        const char *header;
        size_t data;
        const char *text;
    } cases[] = {
        {"[]", 0, "is not a JSON object"},
        {"{", 0, "is not a JSON object"},
        {"{\"a\": 1}", 0, "unknown type"},
        {"{\"a\": {\"dtype\": \"F31\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4,
         "unknown type 'F31'"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": 1, \"data_offsets\": [0, 4]}}", 4, "no shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,1], \"data_offsets\": [0, 4]}}",
         4, "no shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [-1], \"data_offsets\": [0, 4]}}", 4,
         "impossible shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1.0], \"data_offsets\": [0, 4]}}", 4,
         "impossible shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [4294967296, 4294967296], \"data_offsets\": [0, "
         "0]}}",
         0, "impossible shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904], \"data_offsets\": [0, "
         "0]}}",
         0, "impossible shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1]}}", 4, "no data_offsets"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0]}}", 4,
         "no data_offsets"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, \"4\"]}}", 4,
         "no data_offsets"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [-4, 0]}}", 4,
         "outside the file"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 0]}}", 4,
         "outside the file"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 4,
         "outside the file"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 4]}}", 4,
         "has 4 bytes, not 8"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 8]}}", 8,
         "after a gap"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 8,
         "last 4 bytes belong to no tensor"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]},"
         " \"b\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [2, 6]}}",
         6, "overlaps another"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]},"
         " \"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 8]}}",
         8, "is not a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        write_file(cases[i].header, strlen(cases[i].header), cases[i].data);
        cr_expect_eq(open_file(&err), EXO_DAMAGED, "%s", cases[i].header);
        cr_expect(strstr(err.text, cases[i].text) && strstr(err.text, "x.safetensors"), "%s: %s",
                  cases[i].header, err.text);
    }
    exo_err err = {0};
    write_file("{}", UINT64_MAX, 0);
    cr_expect_eq(open_file(&err), EXO_DAMAGED);
    write_file("{}", 3, 0);
    cr_expect_eq(open_file(&err), EXO_DAMAGED);
    write_file("{}", 2, 0); /* a file without tensors is valid */
    cr_expect_eq(open_file(&err), EXO_OK, "%s", err.text);
}

Test(pretrained_errors, a_file_cut_at_any_byte_is_refused)
{
    size_t size = 0;
    exo_err err = {0};
    decoders_copy("gpt2", folder);
    char *data = decoders_read(folder, "model.safetensors", &size);
    decoders_write(folder, "x.safetensors", data, size);
    cr_expect_eq(open_file(&err), EXO_OK, "%s", err.text);
    for (size_t cut = 0; cut < size; cut += cut < 4096 ? 7 : 997) {
        decoders_write(folder, "x.safetensors", data, cut);
        cr_expect_eq(open_file(&err), EXO_DAMAGED, "cut at %zu", cut);
    }
    exo_free(data);
}
