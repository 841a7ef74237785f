/* Hugging Face directories: files of transformers are read, written files equal them, and every
 * mismatch in config.json or in the tensors is an error that names it. tests/unit/decoder.c
 * compares the models' results to those of transformers. Each test owns its folder. Read next:
 * nn/pretrained/safetensors.h; docs/models.md. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/memory_fault.h"
#include "nn/pretrained/pretrained.h"
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

TestSuite(pretrained, .init = setup, .fini = teardown);

static void
expect_equal(exo_params *a, exo_params *b, const char *what)
{
    cr_assert_eq(exo_params_numel(a), exo_params_numel(b));
    cr_expect_eq(
        memcmp(exo_params_values(a), exo_params_values(b), exo_params_numel(a) * sizeof(float)), 0,
        "%s", what);
}

static bool
exists(const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return access(path, F_OK) == 0;
}

/* --- Reading ---------------------------------------------------------------------------------- */

Test(pretrained, specs_are_what_the_configs_say)
{
    static const exo_decoder_spec expected[] = {
        {.family = "gpt2",
         .heads = 4,
         .kv_heads = 4,
         .width = 32,
         .head_width = 8,
         .inner = 48,
         .norm_eps = 1e-5f,
         .activation = EXO_GELU_TANH,
         .attention_qkv_bias = true,
         .attention_out_bias = true,
         .mlp_bias = true,
         .tied = true},
        {.family = "opt",
         .heads = 4,
         .kv_heads = 4,
         .width = 32,
         .head_width = 8,
         .inner = 48,
         .position_offset = 2,
         .norm_eps = 1e-5f,
         .activation = EXO_RELU,
         .attention_qkv_bias = true,
         .attention_out_bias = true,
         .mlp_bias = true,
         .tied = true},
        {.family = "bloom",
         .context = 2048,
         .heads = 6,
         .kv_heads = 6,
         .width = 24,
         .head_width = 4,
         .inner = 96,
         .position = EXO_POSITION_ALIBI,
         .norm_eps = 1e-5f,
         .activation = EXO_GELU_TANH,
         .attention_qkv_bias = true,
         .attention_out_bias = true,
         .mlp_bias = true,
         .tied = true,
         .embedding_norm = true},
        {.family = "llama",
         .heads = 4,
         .kv_heads = 2,
         .width = 32,
         .head_width = 8,
         .inner = 44,
         .position = EXO_POSITION_ROTARY,
         .norm = EXO_NORM_RMS,
         .norm_eps = 1e-6f,
         .activation = EXO_SILU,
         .gated = true},
        {.family = "llama",
         .heads = 4,
         .kv_heads = 2,
         .width = 32,
         .head_width = 16,
         .inner = 44,
         .position = EXO_POSITION_ROTARY,
         .norm = EXO_NORM_RMS,
         .norm_eps = 1e-6f,
         .activation = EXO_SILU,
         .gated = true,
         .attention_qkv_bias = true,
         .attention_out_bias = true,
         .mlp_bias = true,
         .tied = true,
         .rope_theta = 500.0f,
         .rope_scaling =
             {.factor = 4, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 16}},
        {.family = "llama",
         .heads = 4,
         .kv_heads = 1,
         .width = 16,
         .head_width = 4,
         .inner = 16,
         .position = EXO_POSITION_ROTARY,
         .norm = EXO_NORM_RMS,
         .norm_eps = 1e-6f,
         .activation = EXO_SILU,
         .gated = true,
         .rope_scaling = {.factor = 3, .linear = true}},
        {.family = "mistral",
         .heads = 4,
         .kv_heads = 2,
         .width = 32,
         .head_width = 6,
         .inner = 44,
         .position = EXO_POSITION_ROTARY,
         .norm = EXO_NORM_RMS,
         .norm_eps = 1e-6f,
         .activation = EXO_SILU,
         .gated = true},
        {.family = "qwen2",
         .heads = 4,
         .kv_heads = 2,
         .width = 32,
         .head_width = 8,
         .inner = 44,
         .position = EXO_POSITION_ROTARY,
         .norm = EXO_NORM_RMS,
         .norm_eps = 1e-6f,
         .activation = EXO_SILU,
         .gated = true,
         .attention_qkv_bias = true,
         .tied = true},
        {.family = "qwen3",
         .heads = 2,
         .kv_heads = 1,
         .width = 24,
         .head_width = 16,
         .inner = 44,
         .position = EXO_POSITION_ROTARY,
         .norm = EXO_NORM_RMS,
         .norm_eps = 1e-6f,
         .activation = EXO_SILU,
         .gated = true,
         .tied = true,
         .rope_theta = 1000000.0f},
        {.family = "qwen3",
         .heads = 6,
         .kv_heads = 3,
         .width = 29,
         .head_width = 10,
         .inner = 37,
         .position = EXO_POSITION_ROTARY,
         .norm = EXO_NORM_RMS,
         .norm_eps = 1e-6f,
         .activation = EXO_SILU,
         .gated = true,
         .attention_qkv_bias = true,
         .attention_out_bias = true},
    };
    for (size_t i = 0; decoders_names[i]; i++) {
        char path[256];
        exo_decoder_spec s, e = expected[i];
        exo_err err = {0};
        cr_assert_eq(exo_decoder_load_spec(decoders_path(decoders_names[i], path), &s, &err),
                     EXO_OK, "%s", err.text);
        cr_expect_str_eq(s.family, e.family);
        cr_expect_eq(s.vocabulary, 101);
        cr_expect_eq(s.context, e.context ? e.context : 32);
        cr_expect_eq(s.layers, 2);
        cr_expect(s.heads == e.heads && s.kv_heads == e.kv_heads && s.head_width == e.head_width,
                  "%s", path);
        cr_expect(s.width == e.width && s.inner == e.inner, "%s", path);
        cr_expect(s.position == e.position && s.position_offset == e.position_offset, "%s", path);
        cr_expect(s.norm == e.norm && s.norm_eps == e.norm_eps &&
                      s.embedding_norm == e.embedding_norm,
                  "%s", path);
        cr_expect(s.activation == e.activation && s.gated == e.gated && s.tied == e.tied, "%s",
                  path);
        cr_expect(s.attention_qkv_bias == e.attention_qkv_bias &&
                      s.attention_out_bias == e.attention_out_bias && s.mlp_bias == e.mlp_bias,
                  "%s", path);
        cr_expect_eq(s.rope_theta, e.rope_theta != 0.0f ? e.rope_theta : 10000.0f);
        cr_expect_eq(memcmp(&s.rope_scaling, &e.rope_scaling, sizeof s.rope_scaling), 0, "%s",
                     path);
    }
}

static const float *
values_of(exo_params *params, const char *name)
{
    for (size_t i = 0; i < exo_params_count(params); i++)
        if (strcmp(exo_params_info(params, i)->name, name) == 0)
            return exo_params_values(params) + exo_params_info(params, i)->offset;
    cr_assert(false, "there is no parameter '%s'", name);
    return NULL;
}

static const exo_safetensor *
tensor_of(const exo_safetensors *file, const char *name)
{
    for (size_t i = 0; i < exo_safetensors_count(file); i++)
        if (strcmp(exo_safetensors_at(file, i)->name, name) == 0)
            return exo_safetensors_at(file, i);
    cr_assert(false, "there is no tensor '%s'", name);
    return NULL;
}

/* Configs with the keys of published files, from several years and versions of transformers. */
static const struct {
    const char *config;
    size_t numel;
} published[] = {
    {"{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"], "
     "\"attn_pdrop\": 0.1, \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": 50256, "
     "\"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", "
     "\"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024, "
     "\"resid_pdrop\": 0.1, \"summary_activation\": null, \"summary_first_dropout\": 0.1, "
     "\"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\", \"summary_use_proj\": "
     "true, \"task_specific_params\": {\"text-generation\": {\"do_sample\": true, \"max_length\": "
     "50}}, \"vocab_size\": 50257}",
     124439808},
    {"{\"_num_labels\": 1, \"activation_function\": \"gelu_new\", \"architectures\": "
     "[\"GPT2LMHeadModel\"], \"attn_pdrop\": 0.1, \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, "
     "\"eos_token_id\": 50256, \"id2label\": {\"0\": \"LABEL_0\"}, \"initializer_range\": 0.02, "
     "\"is_decoder\": true, \"label2id\": {\"LABEL_0\": 0}, \"layer_norm_epsilon\": 1e-05, "
     "\"model_type\": \"gpt2\", \"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12, \"n_layer\": 6, "
     "\"n_positions\": 1024, \"output_past\": true, \"resid_pdrop\": 0.1, \"summary_activation\": "
     "null, \"summary_first_dropout\": 0.1, \"summary_proj_to_labels\": true, \"summary_type\": "
     "\"cls_index\", \"summary_use_proj\": true, \"vocab_size\": 50257}",
     81912576},
    {"{\"_name_or_path\": \"facebook/opt-125m\", \"activation_dropout\": 0.0, "
     "\"activation_function\": \"relu\", \"architectures\": [\"OPTForCausalLM\"], "
     "\"attention_dropout\": 0.0, \"bos_token_id\": 2, \"do_layer_norm_before\": true, "
     "\"dropout\": 0.1, \"eos_token_id\": 2, \"ffn_dim\": 3072, \"hidden_size\": 768, "
     "\"init_std\": 0.02, \"layerdrop\": 0.0, \"max_position_embeddings\": 2048, \"model_type\": "
     "\"opt\", \"num_attention_heads\": 12, \"num_hidden_layers\": 12, \"pad_token_id\": 1, "
     "\"prefix\": \"</s>\", \"torch_dtype\": \"float16\", \"transformers_version\": "
     "\"4.21.0.dev0\", \"use_cache\": true, \"vocab_size\": 50272, \"word_embed_proj_dim\": 768}",
     125239296},
    {"{\"apply_residual_connection_post_layernorm\": false, \"attention_dropout\": 0.0, "
     "\"attention_softmax_in_fp32\": true, \"bias_dropout_fusion\": true, \"bos_token_id\": 1, "
     "\"eos_token_id\": 2, \"hidden_dropout\": 0.0, \"initializer_range\": 0.02, "
     "\"layer_norm_epsilon\": 1e-05, \"masked_softmax_fusion\": true, \"model_type\": \"bloom\", "
     "\"n_embed\": 1024, \"n_inner\": null, \"n_layer\": 24, \"num_attention_heads\": 16, "
     "\"offset_alibi\": 100, \"pad_token_id\": 3, \"pretraining_tp\": 1, \"seq_length\": 2048, "
     "\"skip_bias_add\": true, \"skip_bias_add_qkv\": false, \"unk_token_id\": 0, \"use_cache\": "
     "true, \"vocab_size\": 250880}",
     559214592},
    {"{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, "
     "\"attention_dropout\": 0.0, \"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008, "
     "128009], \"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 2048, "
     "\"initializer_range\": 0.02, \"intermediate_size\": 8192, \"max_position_embeddings\": "
     "131072, \"mlp_bias\": false, \"model_type\": \"llama\", \"num_attention_heads\": 32, "
     "\"num_hidden_layers\": 16, \"num_key_value_heads\": 8, \"pretraining_tp\": 1, "
     "\"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 32.0, \"high_freq_factor\": 4.0, "
     "\"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\": "
     "\"llama3\"}, \"rope_theta\": 500000.0, \"tie_word_embeddings\": true, \"torch_dtype\": "
     "\"bfloat16\", \"transformers_version\": \"4.45.0.dev0\", \"use_cache\": true, "
     "\"vocab_size\": 128256}",
     1235814400},
    {"{\"architectures\": [\"MistralForCausalLM\"], \"attention_dropout\": 0.0, \"bos_token_id\": "
     "1, "
     "\"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 4096, \"initializer_range\": "
     "0.02, \"intermediate_size\": 14336, \"max_position_embeddings\": 32768, \"model_type\": "
     "\"mistral\", \"num_attention_heads\": 32, \"num_hidden_layers\": 32, "
     "\"num_key_value_heads\": "
     "8, \"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000.0, \"sliding_window\": null, "
     "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"transformers_version\": "
     "\"4.42.0.dev0\", \"use_cache\": true, \"vocab_size\": 32768}",
     7248023552},
    {"{\"architectures\": [\"Qwen2ForCausalLM\"], \"attention_dropout\": 0.0, \"bos_token_id\": "
     "151643, \"eos_token_id\": 151643, \"hidden_act\": \"silu\", \"hidden_size\": 896, "
     "\"initializer_range\": 0.02, \"intermediate_size\": 4864, \"max_position_embeddings\": "
     "32768, "
     "\"max_window_layers\": 24, \"model_type\": \"qwen2\", \"num_attention_heads\": 14, "
     "\"num_hidden_layers\": 24, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, "
     "\"rope_theta\": 1000000.0, \"sliding_window\": 32768, \"tie_word_embeddings\": true, "
     "\"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.40.1\", \"use_cache\": true, "
     "\"use_mrope\": false, \"use_sliding_window\": false, \"vocab_size\": 151936}",
     494032768},
    {"{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, "
     "\"attention_dropout\": 0.0, \"bos_token_id\": 151643, \"eos_token_id\": 151645, "
     "\"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": 1024, "
     "\"initializer_range\": 0.02, \"intermediate_size\": 3072, \"max_position_embeddings\": "
     "40960, \"max_window_layers\": 28, \"model_type\": \"qwen3\", \"num_attention_heads\": 16, "
     "\"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "
     "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, "
     "\"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\", \"transformers_version\": "
     "\"4.51.0\", \"use_cache\": true, \"use_sliding_window\": false, \"vocab_size\": 151936}",
     596049920},
    /* what is not said is what transformers has then */
    {"{\"model_type\": \"llama\"}", 6738415616},
    {"{\"model_type\": \"mistral\", \"sliding_window\": null}", 7241732096},
    {"{\"model_type\": \"qwen2\"}", 12049846272},
};

Test(pretrained, configs_as_they_are_published_are_read)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        exo_decoder_spec spec;
        exo_model *model = NULL;
        exo_err err = {0};
        decoders_write(folder, "config.json", published[i].config, strlen(published[i].config));
        cr_assert_eq(exo_decoder_load_spec(folder, &spec, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_model_numel(model), published[i].numel, "%s has %zu parameters",
                     spec.family, exo_model_numel(model));
        exo_model_drop(&model);
    }
}

/* A config of Mistral without the key has a window of 4,096 tokens. */
Test(pretrained, a_window_that_is_not_said_counts)
{
    static const struct {
        const char *config;
        exo_status status;
    } cases[] = {
        {"{\"model_type\": \"mistral\", \"max_position_embeddings\": 4096}", EXO_OK},
        {"{\"model_type\": \"mistral\", \"max_position_embeddings\": 4097}", EXO_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_decoder_spec spec;
        exo_err err = {0};
        decoders_write(folder, "config.json", cases[i].config, strlen(cases[i].config));
        cr_expect_eq(exo_decoder_load_spec(folder, &spec, &err), cases[i].status, "%s", err.text);
        cr_expect(cases[i].status == EXO_OK || strstr(err.text, "\"sliding_window\" is missing"),
                  "%s", err.text);
    }
}

/* GPT-2's weights are transposed; LLaMA's projections are joined. */
Test(pretrained, elements_lie_where_the_header_says)
{
    exo_model *gpt2 = NULL, *llama = NULL;
    exo_params *params = NULL, *others = NULL;
    exo_safetensors *file = NULL;
    char path[256];
    decoders_load(decoders_path("gpt2", path), &gpt2, &params);
    cr_assert_eq(exo_safetensors_open(&file, strcat(path, "/model.safetensors"), NULL), EXO_OK);
    const float *there = tensor_of(file, "transformer.h.1.attn.c_attn.weight")->data;
    const float *here = values_of(params, "blocks.1.attention.qkv.weight");
    for (size_t row = 0; row < 96; row++)
        for (size_t column = 0; column < 32; column++)
            cr_assert_eq(here[row * 32 + column], there[column * 96 + row]);
    exo_safetensors_close(&file);
    decoders_load(decoders_path("llama", path), &llama, &others);
    cr_assert_eq(exo_safetensors_open(&file, strcat(path, "/model.safetensors"), NULL), EXO_OK);
    /* 32 rows of queries, 16 of keys, 16 of values */
    here = values_of(others, "blocks.0.attention.qkv.weight");
    there = tensor_of(file, "model.layers.0.self_attn.v_proj.weight")->data;
    cr_expect_eq(memcmp(here + (size_t)48 * 32, there, (size_t)16 * 32 * sizeof(float)), 0);
    here = values_of(others, "blocks.0.mlp.up.weight"); /* 44 rows of the gate, 44 of the rest */
    there = tensor_of(file, "model.layers.0.mlp.up_proj.weight")->data;
    cr_expect_eq(memcmp(here + (size_t)44 * 32, there, (size_t)44 * 32 * sizeof(float)), 0);
    exo_safetensors_close(&file);
    exo_params_free(&params);
    exo_params_free(&others);
    exo_model_drop(&gpt2);
    exo_model_drop(&llama);
}

Test(pretrained, fp16_is_read_exactly)
{
    /* bit patterns and their values: signed zeros, the smallest and largest numbers, infinity,
     * NaN */
    static const uint16_t bits[] = {0,      0x8000, 1,      0x8001, 0x03FF, 0x0400,
                                    0x3C00, 0xBC01, 0x7BFF, 0xFC00, 0x7E00, 0x3555};
    static const float values[] = {0.0f,       -0.0f,     0x1p-24f, -0x1p-24f,
                                   0x3FFp-24f, 0x1p-14f,  1.0f,     -1.0f - 0x1p-10f,
                                   65504.0f,   -INFINITY, NAN,      0x1.554p-2f};
    exo_model *model = NULL;
    exo_params *params = NULL;
    size_t size = 0;
    decoders_copy("bloom", folder);
    char *data = decoders_read(folder, "model.safetensors", &size);
    uint64_t header = 0;
    memcpy(&header, data, 8);
    memcpy(data + 8 + header, bits, sizeof bits); /* the first tensor */
    decoders_write(folder, "model.safetensors", data, size);
    exo_safetensors *file = NULL;
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    cr_assert_eq(exo_safetensors_open(&file, path, NULL), EXO_OK);
    cr_assert_str_eq(exo_safetensors_at(file, 0)->name, "transformer.h.0.input_layernorm.bias");
    decoders_load(folder, &model, &params);
    const float *got = values_of(params, "blocks.0.norm1.bias");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        cr_expect((isnan(values[i]) && isnan(got[i])) || memcmp(&got[i], &values[i], 4) == 0,
                  "%04x gives %a", (unsigned)bits[i], (double)got[i]);
    exo_safetensors_close(&file);
    exo_free(data);
    exo_params_free(&params);
    exo_model_drop(&model);
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* Compares a written file to transformers' file: every tensor has the same name, type, shape and
 * bytes. */
static void
expect_same_tensors(const char *ours_path, const char *theirs_path)
{
    exo_safetensors *ours = NULL, *theirs = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_safetensors_open(&ours, ours_path, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_safetensors_open(&theirs, theirs_path, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_safetensors_count(ours), exo_safetensors_count(theirs));
    for (size_t i = 0; i < exo_safetensors_count(theirs); i++) {
        const exo_safetensor *t = exo_safetensors_at(theirs, i), *o = NULL;
        for (size_t k = 0; k < exo_safetensors_count(ours) && !o; k++)
            if (strcmp(exo_safetensors_at(ours, k)->name, t->name) == 0)
                o = exo_safetensors_at(ours, k);
        cr_assert_not_null(o, "%s", t->name);
        cr_expect_str_eq(o->dtype, t->dtype);
        cr_expect(o->num_dims == t->num_dims && memcmp(o->dims, t->dims, sizeof o->dims) == 0, "%s",
                  t->name);
        cr_expect(o->bytes == t->bytes && memcmp(o->data, t->data, t->bytes) == 0, "%s", t->name);
    }
    exo_safetensors_close(&ours);
    exo_safetensors_close(&theirs);
}

Test(pretrained, writes_the_tensors_that_transformers_wrote)
{
    static const char *const whole[] = {"gpt2", "llama", "qwen2", "qwen3"};
    for (size_t i = 0; i < 4; i++) {
        exo_model *model = NULL;
        exo_params *params = NULL;
        exo_err err = {0};
        char theirs[256], ours[256];
        decoders_load(decoders_path(whole[i], theirs), &model, &params);
        cr_assert_eq(exo_decoder_save(folder, model, params, EXO_F32, 0, &err), EXO_OK, "%s",
                     err.text);
        snprintf(ours, sizeof ours, "%s/model.safetensors", folder);
        strcat(theirs, "/model.safetensors");
        expect_same_tensors(ours, theirs);
        exo_params_free(&params);
        exo_model_drop(&model);
    }
}

Test(pretrained, a_save_that_is_stopped_leaves_no_file_of_weights)
{
    static const _Atomic int stop = 15;
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_err err = {0};
    char theirs[256];
    decoders_load(decoders_path("gpt2", theirs), &model, &params);
    cr_expect_eq(exo_decoder_save_until(folder, model, params, EXO_F32, 0, &stop, &err),
                 EXO_CANCELLED);
    cr_expect_eq(rmdir(folder), 0, "it is not empty");
    cr_assert_eq(mkdir(folder, 0700), 0);
    exo_params_free(&params);
    exo_model_drop(&model);
}

static void
round_trip(const char *name, exo_dtype dtype, size_t shard_bytes)
{
    exo_model *model = NULL, *again = NULL;
    exo_params *params = NULL, *read = NULL;
    exo_err err = {0};
    char path[256];
    decoders_load(decoders_path(name, path), &model, &params);
    cr_assert_eq(exo_decoder_save(folder, model, params, dtype, shard_bytes, &err), EXO_OK, "%s",
                 err.text);
    decoders_load(folder, &again, &read);
    expect_equal(params, read, name);
    cr_expect_eq(
        memcmp(exo_decoder_spec_of(model), exo_decoder_spec_of(again), sizeof(exo_decoder_spec)), 0,
        "%s", name);
    exo_params_free(&params);
    exo_params_free(&read);
    exo_model_drop(&model);
    exo_model_drop(&again);
}

Test(pretrained, what_is_written_is_read_to_the_bit)
{
    for (size_t i = 0; decoders_names[i]; i++)
        round_trip(decoders_names[i], EXO_F32, 0);
    round_trip("llama3", EXO_BF16, 0); /* the file's tensors are bf16 */
}

Test(pretrained, shards_replace_one_file_and_the_other_way_round)
{
    round_trip("opt", EXO_F32, 0);
    cr_expect(exists("model.safetensors") && !exists("model.safetensors.index.json"));
    round_trip("opt", EXO_F32, 20000);
    cr_expect(exists("model-00001-of-00005.safetensors") && exists("model.safetensors.index.json"));
    cr_expect(!exists("model.safetensors"));
    round_trip("opt", EXO_F32, 30000);
    cr_expect(exists("model-00001-of-00003.safetensors") &&
              !exists("model-00001-of-00005.safetensors"));
    round_trip("opt", EXO_F32, 1); /* every tensor in a file of its own */
    cr_expect(exists("model-00036-of-00036.safetensors"));
    round_trip("opt", EXO_F32, 0);
    cr_expect(exists("model.safetensors") && !exists("model-00036-of-00036.safetensors"));
}

Test(pretrained, a_spec_that_no_family_has_is_not_written)
{
    static const struct {
        const char *size_and_more, *text;
    } cases[] = {
        {"{gated: true, layers: 1, vocabulary: 10, context: 4}", "its MLP is not gated"},
        {"{norm: rms, layers: 1, vocabulary: 10, context: 4}", "it has layer norms"},
        {"{bias: false, layers: 1, vocabulary: 10, context: 4}",
         "all its linear layers have biases"},
        {"{kv_heads: 2, layers: 1, vocabulary: 10, context: 4}", "as many key-value heads"},
        {"{position: rotary, layers: 1, vocabulary: 10, context: 4}", "it has RMS norms"},
        {"{position: rotary, norm: rms, layers: 1, vocabulary: 10, context: 4}",
         "its MLP is gated"},
        {"{qk_norm: true, layers: 1, vocabulary: 10, context: 4}", "of its MLP have no biases"},
        {"{qk_norm: true, bias: false, layers: 1, vocabulary: 10, context: 4}",
         "its positions are rotary"},
        {"{position: alibi, layers: 1, vocabulary: 10, context: 4}", "embedding_norm"},
        {"{position: alibi, embedding_norm: true, activation: relu, layers: 1, vocabulary: 10, "
         "context: 4}",
         "gelu_tanh"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_config_doc *doc = NULL;
        exo_model *model = NULL;
        exo_params *params = NULL;
        exo_err err = {0};
        cr_assert_eq(exo_config_parse(&doc, "test", cases[i].size_and_more, &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(exo_model_new_named(&model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(exo_model_params(model, 1, &params, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_decoder_save(folder, model, params, EXO_F32, 0, &err), EXO_UNSUPPORTED);
        cr_expect(strstr(err.text, cases[i].text), "%s: %s", cases[i].size_and_more, err.text);
        cr_expect(!exists("model.safetensors") && !exists("config.json"));
        exo_params_free(&params);
        exo_model_drop(&model);
        exo_config_free(&doc);
    }
}

/* LLaMA's followers differ from it, and from each other, in biases. */
Test(pretrained, biases_that_a_family_has_not_are_not_written)
{
    static const struct {
        const char *name;
        bool qkv, out, mlp;
    } cases[] = {{"mistral", true, false, false}, {"mistral", false, true, false},
                 {"mistral", false, false, true}, {"qwen2", false, false, false},
                 {"qwen2", true, true, false},    {"qwen2", true, false, true},
                 {"llama", true, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_decoder_spec spec;
        exo_model *model = NULL;
        exo_params *params = NULL;
        exo_err err = {0};
        char path[256];
        cr_assert_eq(exo_decoder_load_spec(decoders_path(cases[i].name, path), &spec, &err),
                     EXO_OK);
        spec.attention_qkv_bias = cases[i].qkv;
        spec.attention_out_bias = cases[i].out;
        spec.mlp_bias = cases[i].mlp;
        cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_model_params(model, 1, &params, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_decoder_save(folder, model, params, EXO_F32, 0, &err), EXO_UNSUPPORTED,
                     "%s, %zu", cases[i].name, i);
        cr_expect(strstr(err.text, "biases"), "%s", err.text);
        exo_params_free(&params);
        exo_model_drop(&model);
    }
}

/* Without the key transformers, and the next reader, would take a window of 4,096 tokens. */
Test(pretrained, a_long_mistral_is_written_without_a_window)
{
    exo_decoder_spec spec, again;
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_err err = {0};
    char path[256];
    cr_assert_eq(exo_decoder_load_spec(decoders_path("mistral", path), &spec, &err), EXO_OK);
    spec.context = 4097;
    cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_params(model, 1, &params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_decoder_save(folder, model, params, EXO_F32, 0, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_decoder_load_spec(folder, &again, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(again.context, 4097);
    exo_params_free(&params);
    exo_model_drop(&model);
}

/* --- Options of a job ------------------------------------------------------------------------- */

static exo_status
build(const char *options, exo_model **model, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "job", options, err);
    if (st == EXO_OK)
        st = exo_model_new_named(model, "gpt", exo_config_root(doc), err);
    exo_config_free(&doc);
    return st;
}

Test(pretrained, a_job_begins_with_the_values_of_a_folder)
{
    exo_model *model = NULL, *loaded = NULL;
    exo_params *params = NULL, *expected = NULL;
    exo_err err = {0};
    char path[256], options[512];
    snprintf(options, sizeof options, "{path: '%s', dropout: 0.25, checkpoint: true}",
             decoders_path("llama", path));
    cr_assert_eq(build(options, &model, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_decoder_spec_of(model)->dropout, 0.25f);
    cr_expect(exo_decoder_spec_of(model)->checkpoint);
    cr_assert_eq(exo_model_params(model, 7, &params, &err), EXO_OK, "%s", err.text);
    decoders_load(path, &loaded, &expected);
    expect_equal(params, expected, "from a job");
    exo_params_free(&params);
    exo_params_free(&expected);
    exo_model_drop(&model);
    exo_model_drop(&loaded);
}

Test(pretrained, a_job_may_not_say_what_the_folder_says)
{
    exo_model *model = NULL;
    exo_err err = {0};
    char path[256], options[512];
    snprintf(options, sizeof options, "{path: '%s', width: 64}", decoders_path("llama", path));
    cr_expect_eq(build(options, &model, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "'width' cannot be set beside 'path'"), "%s", err.text);
    cr_expect_eq(build("{path: /nowhere/at/all}", &model, &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "/nowhere/at/all/config.json"), "%s", err.text);
}

Test(pretrained, values_of_another_model_are_refused)
{
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_err err = {0};
    char path[256];
    decoders_load(decoders_path("llama", path), &model, &params);
    cr_expect_eq(exo_decoder_load_params(decoders_path("llama3", path), model, params, &err),
                 EXO_INVAL);
    cr_expect(strstr(err.text, "is of another model: the heads differs"), "%s", err.text);
    exo_params_free(&params);
    exo_model_drop(&model);
}

/* --- Memory ----------------------------------------------------------------------------------- */

Test(pretrained, any_allocation_may_fail)
{
    exo_err err = {0};
    char path[256];
    decoders_path("llama3", path);
    unsigned failed = 0;
    for (uint64_t n = 1;; n++) {
        exo_model *model = NULL;
        exo_params *params = NULL;
        uint64_t before = exo_memory_allocations();
        exo_memory_fail_at(n);
        exo_status st = exo_decoder_load(path, &model, &params, &err);
        if (st == EXO_OK)
            st = exo_decoder_save(folder, model, params, EXO_F32, 30000, &err);
        bool reached = exo_memory_allocations() - before >= n;
        exo_memory_fail_at(0);
        exo_params_free(&params);
        exo_model_drop(&model);
        if (!reached) {
            cr_expect_eq(st, EXO_OK);
            break;
        }
        /* OK: without memory for its path, a folder is only not flushed */
        cr_assert(st == EXO_NOMEM || st == EXO_OK, "allocation %llu: %s", (unsigned long long)n,
                  err.text);
        failed += st == EXO_NOMEM;
    }
    cr_expect_gt(failed, 0);
}
