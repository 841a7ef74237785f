/* Cases of the kernels of generation: see kernel_cases.h. A decoder's parameters are numbers of the
 * arrays. Two sequences are computed in three passes, and logits are read from each. */
#include "support/kernel_cases.h"

#include <string.h>

#include "nn/device/device_impl.h"

#define CASE(NAME, KIND, FORMAT)                                                                   \
    static exo_status NAME(const exo_array *x, double *sum, exo_err *err)                          \
    {                                                                                              \
        (void)sum;                                                                                 \
        return x->count < LEAST ? EXO_OK : decoder_of(x, KIND, FORMAT, err);                       \
    }

#define ASK(kernel_name, ...)                                                                      \
    device->device_class->kernels->kernel_name(                                                    \
        device, &(const exo_##kernel_name##_args){__VA_ARGS__}, err)

enum {
    LEAST = 32000, /* elements that suffice for parameters and logits */
    CONTEXT = 21,
    ROWS = 16, /* of a pass */
    VOCABULARY = 45,
    PITCH = 64,
    WANTED = 5 /* rows whose logits are read in a pass */
};

/* The rows of a pass: tokens, positions, sequences, and the rows with logits. */
struct rows {
    size_t count;
    int32_t numbers[4][ROWS];
};

static const struct rows passes[] = {
    /* 6 tokens of sequence 1, and 10 of sequence 0: more than share a sweep over keys */
    {16,
     {{1, 2, 3, 44, 5, 6, 7, 7, 7, 7, 1, 20, 30, 40, 4, 0},
      {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
      {1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
      {0, 5, 6, 14, 15}}},
    {2, {{9, 8}, {10, 6}, {0, 1}, {0, 1, 1, 0, 1}}},
    {11,
     {{11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21},
      {11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 7},
      {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
      {10, 9, 0, 7, 8}}},
};

enum {
    PASSES = sizeof passes / sizeof *passes
};

enum kind {
    LEARNED,
    ROTARY,
    HEAD_NORMS,
    SCALED,
    ALIBI
};

static exo_decoder_spec
spec_of(enum kind kind)
{
    exo_decoder_spec s = {.family = "gpt2",
                          .vocabulary = VOCABULARY,
                          .context = CONTEXT + 2,
                          .layers = 2,
                          .heads = 2,
                          .kv_heads = 2,
                          .width = 24,
                          .head_width = 12,
                          .inner = 40,
                          .position = EXO_POSITION_LEARNED,
                          .position_offset = 2,
                          .norm = EXO_NORM_LAYER,
                          .norm_eps = 1e-5f,
                          .activation = EXO_GELU_TANH,
                          .attention_qkv_bias = true,
                          .attention_out_bias = true,
                          .mlp_bias = true,
                          .tied = true,
                          .rope_theta = 100.0f};
    if (kind == ALIBI) {
        s.position = EXO_POSITION_ALIBI;
        s.position_offset = 0;
        s.embedding_norm = true;
        s.heads = s.kv_heads = 3;
        s.activation = EXO_RELU;
    } else if (kind != LEARNED) {
        s.position = EXO_POSITION_ROTARY;
        s.position_offset = 0;
        s.norm = EXO_NORM_RMS;
        s.activation = EXO_SILU;
        s.gated = true;
        s.attention_qkv_bias = s.attention_out_bias = s.mlp_bias = s.tied = false;
        s.heads = 4;
        s.kv_heads = 2;
    }
    if (kind == HEAD_NORMS) {
        strcpy(s.family, "qwen3");
        s.heads = 6;
        s.head_width = 28; /* wider than a row */
    }
    if (kind == SCALED) {
        s.inner = 140; /* more than a group */
        s.mlp_bias = true;
        s.rope_scaling = (exo_rope_scaling){
            .factor = 4, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 12};
    }
    return s;
}

/* What the kernels of a case work with. */
struct decoder {
    exo_decoder_shape shape;
    exo_plan *plan;
    exo_array weights, caches, scratch, logits, numbers[4];
};

static exo_status
decoder_init(struct decoder *d, exo_device *device, exo_err *err)
{
    const exo_device_class *c = device->device_class;
    exo_status st = exo_plan_new(&d->plan, device, EXO_SHAPE_DECODER, &d->shape, err);
    if (st != EXO_OK)
        return st;
    size_t weights = c->scratch(device, EXO_SHAPE_DECODER, &d->shape, EXO_SCRATCH_WEIGHTS),
           cache = c->scratch(device, EXO_SHAPE_DECODER, &d->shape, EXO_SCRATCH_CACHE),
           scratch = c->scratch(device, EXO_SHAPE_DECODER, &d->shape, EXO_SCRATCH_FORWARD);
    st = exo_array_init(&d->weights, device, EXO_U8, weights, err);
    if (st == EXO_OK)
        st = exo_array_init(&d->caches, device, EXO_U8, 2 * cache, err);
    if (st == EXO_OK)
        st = exo_array_init(&d->scratch, device, EXO_U8, scratch, err);
    if (st == EXO_OK)
        st = exo_array_init(&d->logits, device, EXO_F32, WANTED * PITCH, err);
    for (size_t i = 0; st == EXO_OK && i < 4; i++)
        st = exo_array_init(&d->numbers[i], device, EXO_I32, ROWS, err);
    return st;
}

static void
decoder_release(struct decoder *d)
{
    exo_plan_free(&d->plan);
    exo_array_release(&d->weights);
    exo_array_release(&d->caches);
    exo_array_release(&d->scratch);
    exo_array_release(&d->logits);
    for (size_t i = 0; i < 4; i++)
        exo_array_release(&d->numbers[i]);
}

/* Packs the numbers of x[1], one parameter after the other. */
static exo_status
pack(const struct decoder *d, const exo_array *x, exo_err *err)
{
    exo_device *device = x->device;
    exo_decoder_entry p;
    exo_status st = EXO_OK;
    size_t first = 0;
    exo_vec_scale(x[1], 0.3f);
    for (size_t i = 0; st == EXO_OK && exo_decoder_entry_at(&d->shape.spec, i, &p); i++) {
        size_t count = p.dims[0] * (p.num_dims > 1 ? p.dims[1] : 1);
        st = ASK(decoder_pack, .plan = d->plan, .parameter = i,
                 .values = exo_array_part(x[1], first, count).data, .weights = d->weights.data);
        first += count;
    }
    return st;
}

/* Runs a pass, and copies its logits to y, WANTED rows of the vocabulary. */
static exo_status
run_pass(const struct decoder *d, const struct rows *rows, exo_array y, exo_err *err)
{
    exo_device *device = y.device;
    for (size_t i = 0; i < 4; i++)
        exo_array_send(d->numbers[i], rows->numbers[i]);
    exo_status st =
        ASK(decoder_pass, .plan = d->plan, .rows = rows->count, .tokens = d->numbers[0].data,
            .positions = d->numbers[1].data, .sequences = d->numbers[2].data,
            .weights = d->weights.data, .caches = d->caches.data, .scratch = d->scratch.data);
    if (st == EXO_OK)
        st = ASK(decoder_logits, .plan = d->plan, .rows = WANTED, .which = d->numbers[3].data,
                 .logits = d->logits.data, .weights = d->weights.data, .scratch = d->scratch.data);
    for (size_t r = 0; r < WANTED; r++)
        exo_vec_copy(exo_array_part(y, r * VOCABULARY, VOCABULARY),
                     exo_array_part(d->logits, r * PITCH, VOCABULARY));
    return st;
}

static exo_status
decoder_of(const exo_array *x, enum kind kind, exo_weight_format format, exo_err *err)
{
    struct decoder d = {0};
    d.shape = (exo_decoder_shape){
        .spec = spec_of(kind), .format = format, .context = CONTEXT, .rows = ROWS};
    exo_status st = decoder_init(&d, x->device, err);
    if (st == EXO_OK)
        st = pack(&d, x, err);
    for (size_t i = 0; st == EXO_OK && i < PASSES; i++)
        st = run_pass(&d, &passes[i],
                      exo_array_part(x[0], i * WANTED * VOCABULARY, WANTED * VOCABULARY), err);
    if (st == EXO_OK)
        st = exo_device_synchronize(x->device, err);
    decoder_release(&d);
    return st;
}

CASE(learned, LEARNED, EXO_WEIGHTS_F32)
CASE(learned_int8, LEARNED, EXO_WEIGHTS_INT8)
CASE(rotary, ROTARY, EXO_WEIGHTS_F32)
CASE(head_norms, HEAD_NORMS, EXO_WEIGHTS_F32)
CASE(head_norms_int4, HEAD_NORMS, EXO_WEIGHTS_INT4)
CASE(scaled, SCALED, EXO_WEIGHTS_F32)
CASE(scaled_int8, SCALED, EXO_WEIGHTS_INT8)
CASE(scaled_int4, SCALED, EXO_WEIGHTS_INT4)
CASE(alibi, ALIBI, EXO_WEIGHTS_F32)
CASE(alibi_int4, ALIBI, EXO_WEIGHTS_INT4)

const kernel_case decoder_cases[] = {
    {"decoder_pass", "decoder, learned positions", 1e-5, 2, learned},
    {"decoder_pass", "decoder, rotary, gated", 1e-5, 2, rotary},
    {"decoder_pass", "decoder, rotary, norms of heads", 1e-5, 2, head_norms},
    {"decoder_pass", "decoder, scaled rotary, gated", 1e-5, 2, scaled},
    {"decoder_logits", "decoder, alibi, norm of the embedding", 1e-5, 2, alibi},
    {"decoder_pack", "decoder, learned positions, int8", 1e-3, 2, learned_int8},
    {"decoder_pack", "decoder, scaled rotary, gated, int8", 1e-3, 2, scaled_int8},
    {"decoder_pack", "decoder, scaled rotary, gated, int4", 1e-3, 2, scaled_int4},
    {"decoder_pack", "decoder, rotary, norms of heads, int4", 1e-3, 2, head_norms_int4},
    {"decoder_pack", "decoder, alibi, norm of the embedding, int4", 1e-3, 2, alibi_int4},
};

const size_t num_decoder_cases = sizeof decoder_cases / sizeof *decoder_cases;
