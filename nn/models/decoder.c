/* The class "gpt": declares the parameters of a decoder, in the order that exogym/decoder.h gives.
 * State: an exo_decoder, read-only once built. Read next: decoder_forward.c. */
#include <math.h>
#include <stdio.h>

#include <exogym/memory.h>

#include "nn/builtin_models.h"
#include "nn/device/device_impl.h"
#include "nn/model_impl.h"
#include "nn/models/decoder.h"
#include "nn/pretrained/pretrained.h"

enum {
    MAX_NAME = 64
};

/* Shared by the functions below while they declare a decoder. */
struct building {
    exo_builder *b;
    const exo_decoder_spec *spec;
    const exo_decoder_part *part;
    bool from_files; /* initial values come from files, so none are drawn */
    bool absent;     /* another stage has what is declared now */
    char prefix[MAX_NAME / 2];
};

static exo_param
declare(struct building *g, const char *part, size_t num_dims, const size_t *dims, exo_init init)
{
    char name[MAX_NAME];
    snprintf(name, sizeof name, "%s%s", g->prefix, part);
    if (g->absent) {
        exo_build_absent(g->b);
        return (exo_param){.index = UINT32_MAX};
    }
    return exo_build_param(g->b, name, num_dims, dims,
                           g->from_files ? exo_init_constant(0.0f) : init);
}

static exo_decoder_param
declare_bias(struct building *g, const char *part, size_t length, bool there)
{
    char name[MAX_NAME];
    exo_decoder_param bias = {.there = there};
    snprintf(name, sizeof name, "%s.bias", part);
    if (there)
        bias.param = declare(g, name, 1, &length, exo_init_constant(0.0f));
    return bias;
}

static exo_decoder_norm
declare_norm(struct building *g, const char *part)
{
    char name[MAX_NAME];
    exo_decoder_norm norm;
    snprintf(name, sizeof name, "%s.weight", part);
    norm.weight = declare(g, name, 1, &g->spec->width, exo_init_constant(1.0f));
    norm.bias = declare_bias(g, part, g->spec->width, g->spec->norm == EXO_NORM_LAYER);
    return norm;
}

/* The weight of a norm over heads, which every part has whole. */
static exo_decoder_param
declare_head_norm(struct building *g, const char *name)
{
    exo_decoder_param weight = {.there = exo_decoder_has_head_norms(g->spec)};
    if (weight.there)
        weight.param = declare(g, name, 1, &g->spec->head_width, exo_init_constant(1.0f));
    return weight;
}

/* The length of a part's slice. */
static size_t
slice_of(const exo_param_cut *cut)
{
    size_t length = 0;
    for (size_t b = 0; b < cut->num_bands; b++)
        length += cut->bands[b].count;
    return length;
}

/* A layer (out, in), the sizes of the whole one. A bias is cut with the rows. */
static exo_decoder_linear
declare_linear(struct building *g, const char *part, const size_t *dims, bool bias, float deviation,
               exo_decoder_cut how)
{
    char name[MAX_NAME];
    const exo_param_cut cut = exo_decoder_part_cut(g->part, &how);
    size_t here[2] = {dims[0], dims[1]};
    exo_decoder_linear linear = {.num_lora = 0};
    if (cut.num_bands > 0)
        here[cut.dim] = slice_of(&cut);
    snprintf(name, sizeof name, "%s.weight", part);
    linear.weight = declare(g, name, 2, here, exo_init_normal(deviation));
    exo_build_cut(g->b, linear.weight, &cut);
    linear.bias = declare_bias(g, part, here[0], bias);
    if (bias && cut.dim == 0)
        exo_build_cut(g->b, linear.bias.param, &cut);
    return linear;
}

/* A table with a row for each element of the vocabulary. */
static exo_param
declare_table(struct building *g, const char *name)
{
    size_t dims[2] = {g->spec->vocabulary, g->spec->width}, first = 0;
    exo_param_cut cut = {.whole = dims[0]};
    if (g->part->members > 0) {
        exo_shard(cut.whole, g->part->members, g->part->rank, &first, &dims[0]);
        cut.num_bands = 1;
        cut.bands[0] = (exo_band){.first = first, .count = dims[0]};
    }
    exo_param table = declare(g, name, 2, dims, exo_init_normal(0.02f));
    exo_build_boundary(g->b, table);
    exo_build_cut(g->b, table, &cut);
    return table;
}

static void
declare_block(struct building *g, exo_decoder_block *block, size_t index)
{
    const exo_decoder_spec *s = g->spec;
    const float deviation = 0.02f, ends = deviation / sqrtf(2.0f * (float)s->layers);
    const size_t heads = s->heads * s->head_width, groups = s->kv_heads * s->head_width;
    const size_t up = s->gated ? 2 * s->inner : s->inner, width = s->width;
    const bool by_outputs = g->part->by_outputs;
    const exo_decoder_cut rows = {.num = 1, .pieces = {width}};
    const exo_decoder_cut mixed = {.dim = 1, .num = 1, .pieces = {heads}};
    const exo_decoder_cut inner = {.dim = 1, .num = 1, .pieces = {s->inner}};
    snprintf(g->prefix, sizeof g->prefix, "block.%zu", index);
    exo_build_unit(g->b, g->prefix);
    snprintf(g->prefix, sizeof g->prefix, "blocks.%zu.", index);
    block->norm1 = declare_norm(g, "norm1");
    block->qkv = declare_linear(g, "attention.qkv", (size_t[]){heads + 2 * groups, width},
                                s->attention_qkv_bias, deviation,
                                (exo_decoder_cut){.num = 3, .pieces = {heads, groups, groups}});
    block->q_norm = declare_head_norm(g, "attention.q_norm.weight");
    block->k_norm = declare_head_norm(g, "attention.k_norm.weight");
    block->out = declare_linear(g, "attention.out", (size_t[]){width, heads}, s->attention_out_bias,
                                ends, by_outputs ? rows : mixed);
    block->norm2 = declare_norm(g, "norm2");
    block->up =
        declare_linear(g, "mlp.up", (size_t[]){up, width}, s->mlp_bias, deviation,
                       (exo_decoder_cut){.num = s->gated ? 2 : 1, .pieces = {s->inner, s->inner}});
    block->down = declare_linear(g, "mlp.down", (size_t[]){width, s->inner}, s->mlp_bias, ends,
                                 by_outputs ? rows : inner);
    g->prefix[0] = '\0';
}

static exo_status
prepare_rotary(exo_decoder *d, exo_err *err)
{
    const exo_decoder_spec *s = &d->spec;
    if (s->position != EXO_POSITION_ROTARY)
        return EXO_OK;
    d->rotary = (exo_rotary_opts){.theta = s->rope_theta, .width = s->head_width};
    if (s->rope_scaling.factor == 0.0f)
        return EXO_OK;
    d->scaled = exo_calloc(s->head_width / 2, sizeof *d->scaled);
    if (!d->scaled)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu rotary frequencies", s->head_width / 2);
    exo_rope_factors(s, d->scaled);
    d->rotary.scaled = d->scaled;
    return EXO_OK;
}

/* The value head, the last parameters; a directory may have one in a file of its own. N(0, 1 / (W +
 * 1)) as in Stiennon et al., 2020, arXiv:2009.01325. */
static void
declare_values(exo_decoder *d, struct building *g)
{
    size_t width = g->spec->width;
    d->value_weight = exo_build_param(g->b, "value.weight", 2, (size_t[]){1, width},
                                      exo_init_normal(1.0f / sqrtf((float)width + 1.0f)));
    d->value_bias = exo_build_param(g->b, "value.bias", 1, (size_t[]){1}, exo_init_constant(0.0f));
}

/* The blocks of this stage, and the places of the others. */
static void
declare_blocks(exo_decoder *d, struct building *g)
{
    size_t first, count;
    exo_decoder_blocks(d, &first, &count);
    for (size_t i = 0; i < d->spec.layers; i++) {
        g->absent = i < first || i >= first + count;
        declare_block(g, &d->blocks[i], i);
    }
}

/* The last stage has a copy of an embedding that is its head. */
static void
declare_all(exo_decoder *d, struct building *g)
{
    const exo_decoder_spec *s = &d->spec;
    const bool first = exo_decoder_has_first(d), last = exo_decoder_has_last(d);
    exo_build_unit(g->b, "embedding");
    g->absent = !first && !(last && s->tied);
    d->embedding = declare_table(g, "embedding.weight");
    g->absent = !first;
    if (s->position == EXO_POSITION_LEARNED) {
        d->position =
            declare(g, "position.weight", 2, (size_t[]){s->context + s->position_offset, s->width},
                    exo_init_normal(0.02f));
        exo_build_boundary(g->b, d->position);
    }
    if (s->embedding_norm)
        d->embedding_norm = declare_norm(g, "embedding_norm");
    declare_blocks(d, g);
    exo_build_unit(g->b, "head");
    g->absent = !last;
    d->norm = declare_norm(g, "norm");
    d->head.there = !s->tied;
    if (!s->tied)
        d->head.param = declare_table(g, "head.weight");
    if (d->values && last)
        declare_values(d, g);
    exo_decoder_declare_lora(d, g->b);
}

exo_status
exo_decoder_build(void *self, exo_builder *b, exo_config *config, exo_err *err)
{
    exo_decoder *d = self;
    exo_status st =
        config ? exo_decoder_read_options(d, config, err) : exo_decoder_check(&d->spec, err);
    if (st == EXO_OK)
        st = prepare_rotary(d, err);
    if (st != EXO_OK)
        return st;
    d->blocks = exo_calloc(d->spec.layers, sizeof *d->blocks);
    if (!d->blocks)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu blocks", d->spec.layers);
    if (d->part.stages > 0)
        exo_build_stage(b, d->spec.width,
                        (d->part.sequence ? d->part.members : 1) *
                            (d->part.context ? d->part.context : 1),
                        !exo_decoder_has_first(d));
    declare_all(d,
                &(struct building){
                    .b = b, .spec = &d->spec, .part = &d->part, .from_files = d->folder != NULL});
    return exo_build_status(b, err);
}

static exo_status
decoder_fill(const void *self, exo_params *params, exo_err *err)
{
    const exo_decoder *d = self;
    exo_status st = d->folder ? exo_pretrained_read(d->folder, &d->spec, params, err) : EXO_OK;
    if (st == EXO_OK && d->lora.folder)
        st = exo_adapter_read(d->lora.folder, &d->spec, params, err);
    return st;
}

void
exo_decoder_release(void *self)
{
    exo_decoder *d = self;
    exo_free(d->blocks);
    exo_free(d->scaled);
    exo_free(d->folder);
    exo_decoder_lora_release(&d->lora);
}

const exo_model_class exo_gpt = {
    .name = "gpt",
    .help = "a decoder for language: GPT-2 by size, or with options OPT, BLOOM, LLaMA, or from a "
            "Hugging Face directory, also Mistral, Qwen2 and Qwen3",
    .state_size = sizeof(exo_decoder),
    .build = exo_decoder_build,
    .outputs = (const char *const[]){"hidden", "logits", "values", NULL},
    .forward = exo_decoder_forward,
    .objective = &exo_next_token,
    .release = exo_decoder_release,
    .fill = decoder_fill,
    .takes_vocabulary = true,
};

exo_status
exo_decoder_new(exo_model **out, const exo_decoder_spec *spec, exo_err *err)
{
    if (spec->lora_scale != 0.0f)
        return exo_fail(err, EXO_INVAL,
                        "a decoder with LoRA is made from options: exo_model_new_named(\"gpt\", "
                        "{lora: ...})");
    return exo_model_new_from(out, &exo_gpt, &(exo_decoder){.spec = *spec}, err);
}

const exo_decoder_spec *
exo_decoder_spec_of(const exo_model *model)
{
    const exo_decoder *d = exo_model_state_of(model, &exo_gpt);
    return d ? &d->spec : NULL;
}
