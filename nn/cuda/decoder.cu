/* Generation (exo_decoder_pass_args): a pass over rows of tokens, and logits of some of its rows.
 *
 * A part of a decoder computes some outputs of every product, to an exchange that its peers complete, so
 * all of them have the bits of the whole decoder (decision 45).
 *
 * The sums of a row have one order, whatever other rows there are: a product shares out the inputs
 * among the warps of a block in the same way for one row and for many, and attention goes over the
 * positions of a sequence in fixed tiles, whether a block has a head of a row or several share it. So a
 * sequence has the same bits in any company. In fp32 the orders are those of the tape's kernels in passes
 * that are `invariant` (matmul_tile.cu, attention.cu, row_norm.h, log_sum.h): training has the same bits
 * as well.
 *
 * A step of generation has many small kernels, whose start takes longer than their work: a pass that
 * comes again is launched as a graph; that of a part as one for the kernels between two calls of its peers.
 *
 * State: that of the arrays, and the plan's graphs. Read next: decoder.h, decoder_attention.h. */
#include "nn/cuda/decoder.h"

#include "nn/cuda/activations.h"
#include "nn/cuda/choose.h"
#include "nn/cuda/decoder_attention.h"
#include "nn/cuda/graphs.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/log_sums.h"
#include "nn/cuda/map.h"
#include "nn/cuda/matmul.h"
#include "nn/cuda/row_norm.h"

enum {
    WARPS = 16, /* of a product's block, which share out the inputs */
    THREADS = WARPS * EXO_CUDA_WARP,
    DEPTH = WARPS * EXO_CUDA_PIECE,
    MOST_ROWS = 8 /* of a product's block */
};
static_assert(EXO_CUDA_PIECE % EXO_CUDA_LINE == 0, "pieces are whole lines");
static_assert(EXO_DECODER_ROWS / MOST_ROWS <= 65535, "a grid has no more blocks in y");

/* --- Sizes ------------------------------------------------------------------------------------ */

/* The activations of a pass, in the scratch. */
struct activations {
    float *x;        /* (rows, W): the residual stream, which stays for the logits */
    float *h;        /* (rows, W): after a norm; of logits, (EXO_DECODER_LOGIT_ROWS, W) */
    float *wide;     /* (rows, the outputs of qkv or up) */
    float *mixed;    /* (rows, the inputs of out or down) */
    float *exchange; /* (members, rows, columns) of a part: what they gather; or (rows, W), a sum */
    exo_cuda_row_sums *sums; /* of logits: (EXO_DECODER_LOGIT_ROWS, exo_cuda_log_sums_room) */
    float *scores;           /* of attention, in few rows: exo_cuda_take_scores */
    size_t bytes;
};

static size_t
larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Columns of each member's block, of `columns` that they share out; the last members may have fewer. */
static size_t
block_columns(const exo_decoder_shape *shape, size_t columns)
{
    return (columns + shape->members - 1) / shape->members;
}

/* Takes the room of the largest exchange. */
static float *
take_exchange(exo_cuda_room *r, const exo_decoder_shape *shape, size_t rows, size_t mixed)
{
    const exo_decoder_spec *s = &shape->spec;
    size_t passes = 0, logits = 0;
    if (__builtin_mul_overflow(rows, larger(s->width, mixed), &passes) ||
        __builtin_mul_overflow(block_columns(shape, s->vocabulary) * shape->members,
                               static_cast<size_t>(EXO_DECODER_LOGIT_ROWS), &logits))
        r->bytes = SIZE_MAX;
    return static_cast<float *>(exo_cuda_take(r, larger(passes, logits), sizeof(float)));
}

static activations
lay_out(const exo_decoder_shape *shape, void *scratch)
{
    size_t first = 0;
    const exo_decoder_spec *s = &shape->spec, mine = exo_decoder_part_spec(shape, &first);
    const size_t heads = mine.heads + 2 * mine.kv_heads, up = mine.inner * (s->gated ? 2 : 1);
    const size_t rows = larger(shape->rows, EXO_DECODER_LOGIT_ROWS);
    const size_t wide = larger(heads * s->head_width, up) * sizeof(float),
                 mixed = larger(s->heads * s->head_width, s->inner) * sizeof(float);
    exo_cuda_room r = {static_cast<char *>(scratch), 0};
    activations a = {};
    a.x = static_cast<float *>(exo_cuda_take(&r, rows, s->width * sizeof(float)));
    a.h = static_cast<float *>(exo_cuda_take(&r, rows, s->width * sizeof(float)));
    a.wide = static_cast<float *>(exo_cuda_take(&r, rows, wide));
    a.mixed = static_cast<float *>(exo_cuda_take(&r, rows, mixed));
    a.sums = static_cast<exo_cuda_row_sums *>(
        exo_cuda_take(&r, exo_cuda_log_sums_room(s->vocabulary),
                      EXO_DECODER_LOGIT_ROWS * sizeof(exo_cuda_row_sums)));
    a.scores = exo_cuda_take_scores(&r, shape, mine.heads);
    if (shape->members > 0)
        a.exchange = take_exchange(&r, shape, rows, mixed / sizeof(float));
    a.bytes = r.bytes;
    return a;
}

/* Floats of a layer in a cache; SIZE_MAX: too many to count. */
static size_t
layer_floats(const exo_decoder_shape *shape)
{
    const size_t members = shape->members > 0 ? shape->members : 1;
    size_t count = 0;
    return __builtin_mul_overflow(shape->context,
                                  2 * (shape->spec.kv_heads / members) * shape->spec.head_width,
                                  &count)
               ? SIZE_MAX
               : count;
}

size_t
exo_cuda_decoder_scratch(const exo_decoder_shape *shape, exo_scratch_use use)
{
    size_t floats = 0, bytes = 0;
    switch (use) {
    case EXO_SCRATCH_FORWARD:
        return lay_out(shape, NULL).bytes;
    case EXO_SCRATCH_WEIGHTS:
        return exo_cuda_decoder_weight_bytes(shape);
    case EXO_SCRATCH_CACHE:
        return __builtin_mul_overflow(layer_floats(shape), shape->spec.layers, &floats) ||
                       __builtin_mul_overflow(floats, sizeof(float), &bytes)
                   ? SIZE_MAX
                   : bytes;
    case EXO_SCRATCH_CHOICE:
        return exo_cuda_choose_scratch(shape->spec.vocabulary);
    case EXO_SCRATCH_BACKWARD:
    case EXO_SCRATCH_ROWS:
    case EXO_SCRATCH_LOGITS:
        break;
    }
    return 0;
}

/* --- A pass under way ------------------------------------------------------------------------- */

struct pass {
    exo_cuda_device *cuda;
    const exo_cuda_plan *plan;
    const void *weights;
    activations a;
    size_t rows;
    exo_decoder_spec mine; /* what a part has, or the whole spec */
    size_t first_token;    /* of the part's vocabulary */
    const exo_decoder_peers *peers;
};

static pass
begin_pass(exo_device *device, const exo_cuda_plan *plan, const void *weights, void *scratch,
           size_t rows, const exo_decoder_peers *peers)
{
    pass p = {};
    p.cuda = exo_cuda_of(device);
    p.plan = plan;
    p.weights = weights;
    p.a = lay_out(&plan->decoder, scratch);
    p.rows = rows;
    p.mine = exo_decoder_part_spec(&plan->decoder, &p.first_token);
    p.peers = peers;
    return p;
}

static bool
is_part(const pass *p)
{
    return p->plan->decoder.members > 0;
}

/* --- The other members ------------------------------------------------------------------------ */

/* y (rows, pitch): `columns` of each row from the members' blocks, which share them out as exo_shard
 * does. */
__global__ static void
join_blocks(size_t rows, size_t columns, size_t members, const float *blocks, float *y,
            size_t pitch)
{
    const size_t each = columns / members, longer = columns % members;
    const size_t most = each + (longer > 0 ? 1 : 0), split = longer * most;
    for (EXO_CUDA_EACH(at, rows * columns)) {
        const size_t r = at / columns, c = at % columns;
        const size_t m = c < split ? c / most : longer + (c - split) / each;
        const size_t first = m * each + (m < longer ? m : longer);
        y[r * pitch + c] = blocks[(m * rows + r) * most + (c - first)];
    }
}

/* Where this member computes its share of y (rows, columns); a whole decoder: y itself. */
static float *
my_share(const pass *p, float *y, size_t columns)
{
    const exo_decoder_shape *shape = &p->plan->decoder;
    return is_part(p) ? p->a.exchange + shape->rank * p->rows * block_columns(shape, columns) : y;
}

/* Lets the peers do a collective with the exchange, behind the kernels so far. */
static void
meet_peers(const pass *p, void (*meet)(void *context, float *data, size_t count), size_t count)
{
    const exo_cuda_meeting meeting = {meet, p->peers->context, p->a.exchange, count};
    exo_cuda_graphs_meet(p->plan->graphs, p->cuda, &meeting);
}

/* Completes y (rows, columns) with the other members' shares. */
static void
join(const pass *p, float *y, size_t columns, size_t pitch)
{
    const exo_decoder_shape *shape = &p->plan->decoder;
    if (!is_part(p))
        return;
    meet_peers(p, p->peers->gather, p->rows * block_columns(shape, columns));
    exo_cuda_launch_each(join_blocks, exo_cuda_blocks(p->rows * columns, EXO_CUDA_BLOCK),
                         EXO_CUDA_BLOCK, p->cuda->stream, p->rows, columns, shape->members,
                         p->a.exchange, y, pitch);
}

/* --- Rows ------------------------------------------------------------------------------------- */

/* x (rows, W) = embedding[token] + position's row. */
__global__ static void
embed(size_t rows, exo_cuda_matrix table, exo_cuda_matrix positions, size_t offset,
      const int32_t *tokens, const int32_t *position, float *x)
{
    const size_t width = table.inputs;
    for (EXO_CUDA_EACH(at, rows * width)) {
        const size_t r = at / width, i = at % width;
        float value = exo_cuda_weight(table, static_cast<size_t>(tokens[r]), i);
        if (positions.words) {
            const size_t row = static_cast<size_t>(position[r]) + offset;
            value = value + exo_cuda_float(positions.words[row * width + i]);
        }
        x[at] = value;
    }
}

/* out (rows, W): the embeddings of a part's vocabulary, and -0 of others, which changes no bits of a
 * sum. */
__global__ static void
embed_mine(size_t rows, exo_cuda_matrix table, size_t first, const int32_t *tokens, float *out)
{
    const size_t width = table.inputs;
    for (EXO_CUDA_EACH(at, rows * width)) {
        const size_t token = static_cast<size_t>(tokens[at / width]) - first; /* wraps below */
        out[at] = token < table.outputs ? exo_cuda_weight(table, token, at % width) : -0.0f;
    }
}

/* x (rows, W) = embedded + position's row. */
__global__ static void
add_positions(size_t rows, size_t width, const float *embedded, exo_cuda_matrix positions,
              size_t offset, const int32_t *position, float *x)
{
    for (EXO_CUDA_EACH(at, rows * width)) {
        float value = embedded[at];
        if (positions.words) {
            const size_t row = static_cast<size_t>(position[at / width]) + offset;
            value = value + exo_cuda_float(positions.words[row * width + at % width]);
        }
        x[at] = value;
    }
}

struct norm_args {
    size_t width;
    bool centered;
    float eps;
    const float *x, *weight, *bias; /* bias may be NULL */
    float *y;
    const int32_t *which; /* row r of y is of row which[r] of x; NULL: r */
    /* Of heads: a row is `together` of them that follow each other; these begin every `pitch` elements.
     * 0: x and y have rows only. */
    size_t together, pitch;
};

/* A block is a row or a head, with the bits of row_norm. x may be y. */
__global__ static void
norm_rows(norm_args k)
{
    const size_t from = k.which ? static_cast<size_t>(k.which[blockIdx.x]) : blockIdx.x;
    const size_t head = k.together > 0 ? blockIdx.x / k.together * k.pitch +
                                             blockIdx.x % k.together * k.width
                                       : 0;
    const float *x = k.x + (k.together > 0 ? head : from * k.width);
    float *y = k.y + (k.together > 0 ? head : blockIdx.x * k.width);
    const exo_cuda_moments m = exo_cuda_row_moments(x, k.width, k.centered, k.eps);
    for (size_t i = threadIdx.x; i < k.width; i += blockDim.x)
        y[i] = exo_cuda_centered(m, x[i]) * m.inverse * k.weight[i] + (k.bias ? k.bias[i] : 0);
}

/* y (rows, inner) = activation(x) or, gated, activation(gate) up of x (rows, 2 inner). */
__global__ static void
activate(size_t rows, size_t inner, bool gated, exo_activation activation, const float *x, float *y)
{
    for (EXO_CUDA_EACH(at, rows * inner)) {
        const size_t first = at / inner * (gated ? 2 * inner : inner) + at % inner;
        const float value = exo_cuda_activation(activation, x[first]);
        y[at] = gated ? value * x[first + inner] : value;
    }
}

/* --- Products --------------------------------------------------------------------------------- */

/* Four weights of output o, from input k on, which is a multiple of 4. */
template <exo_weight_format FORMAT>
__device__ static void
four_weights(const exo_cuda_matrix &m, size_t o, size_t k, float scale, float minimum, float w[4])
{
    EXO_CUDA_UNROLL
    for (unsigned n = 0; n < 4; n++)
        if (FORMAT == EXO_WEIGHTS_F32)
            w[n] = exo_cuda_float(m.words[(k + n) * m.pitch + o]);
        else if (FORMAT == EXO_WEIGHTS_INT8)
            w[n] = scale * static_cast<float>(static_cast<int8_t>(
                               m.words[k / EXO_CUDA_LEVELS8 * m.pitch + o] >> n * 8));
        else
            w[n] = scale * static_cast<float>(m.words[k / EXO_CUDA_LEVELS4 * m.pitch + o] >>
                                                  (k % EXO_CUDA_LEVELS4 + n) * 4 &
                                              15u) +
                   minimum;
}

/* sum[r] += the products of output o with a line of inputs from `first` on; x (line, ROWS), of which
 * four numbers are read at a time: the threads of a warp read the same ones, and each read is one of
 * few that shared memory can do beside the weights' way from memory. */
template <exo_weight_format FORMAT, int ROWS>
__device__ static void
add_line(const exo_cuda_matrix &m, size_t o, size_t first, const float *x, float sum[ROWS])
{
    const size_t group = first / EXO_CUDA_GROUP * m.pitch + o;
    const float scale = FORMAT == EXO_WEIGHTS_F32 ? 1.0f : m.scales[group];
    const float minimum = FORMAT == EXO_WEIGHTS_INT4 ? m.minimums[group] : 0.0f;
    EXO_CUDA_UNROLL
    for (unsigned i = 0; i < EXO_CUDA_LINE; i += 4) {
        float w[4];
        exo_cuda_four<float> xs[ROWS];
        four_weights<FORMAT>(m, o, first + i, scale, minimum, w);
        EXO_CUDA_UNROLL
        for (int r = 0; r < ROWS; r++)
            xs[r] = reinterpret_cast<const exo_cuda_four<float> *>(x + i * ROWS)[r];
        EXO_CUDA_UNROLL
        for (int n = 0; n < 4 * ROWS; n++)
            sum[n % ROWS] = fmaf(w[n / ROWS], xs[n / 4].at[n % 4], sum[n % ROWS]);
    }
}

struct product_args {
    exo_cuda_matrix weight;
    const float *bias;  /* or NULL */
    size_t rows, pitch; /* pitch: of y */
    const float *x;     /* (rows, inputs) */
    float *y;           /* (rows, outputs) */
    const float *base;  /* (rows, outputs) to add to, which may be y; NULL: nothing */
    size_t base_pitch;
};

/* Puts input `at` of the rows from `row` on to xs (ROWS), four rows at a time: one by one, the threads of
 * a warp would meet in few banks of shared memory. */
template <int ROWS>
__device__ static void
put_input(const product_args &k, size_t row, size_t at, float *xs)
{
    const size_t inputs = k.weight.inputs;
    float values[ROWS];
    EXO_CUDA_UNROLL
    for (unsigned r = 0; r < ROWS; r++)
        values[r] = row + r < k.rows && at < inputs ? k.x[(row + r) * inputs + at] : 0.0f;
    if constexpr (ROWS == 1) {
        xs[0] = values[0];
    } else {
        EXO_CUDA_UNROLL
        for (unsigned r = 0; r < ROWS; r += 4)
            exo_cuda_set_four(xs, r, values + r);
    }
}

/* y = (base +) x W^T + bias, for 32 outputs and ROWS rows. The warps have a piece of the inputs each, in
 * turns; the pieces are added up in their order. A row has the same bits with any ROWS, and those of
 * matmul_tile.cu. Two blocks a multiprocessor leave a thread 64 registers, for the weights that it waits
 * for: a product of few outputs has fewer blocks than there are multiprocessors. */
template <exo_weight_format FORMAT, int ROWS>
__global__ static void
__launch_bounds__(THREADS, 2) multiply_rows(product_args k)
{
    __shared__ __align__(16) float xs[DEPTH * ROWS];
    __shared__ float sums[WARPS][ROWS][EXO_CUDA_LINE];
    const unsigned warp = threadIdx.x / EXO_CUDA_WARP, lane = threadIdx.x % EXO_CUDA_WARP;
    const size_t o = static_cast<size_t>(blockIdx.x) * EXO_CUDA_LINE, inputs = k.weight.inputs;
    const size_t row = static_cast<size_t>(blockIdx.y) * ROWS;
    float total = 0; /* of row `warp` */
    for (size_t k0 = 0; k0 < inputs; k0 += DEPTH) {
        const size_t first = k0 + warp * EXO_CUDA_PIECE;
        float sum[ROWS] = {};
        __syncthreads();
        for (unsigned i = threadIdx.x; i < DEPTH; i += THREADS)
            put_input<ROWS>(k, row, k0 + i, xs + i * ROWS);
        __syncthreads();
        for (size_t i = first; i < first + EXO_CUDA_PIECE && i < inputs; i += EXO_CUDA_LINE)
            add_line<FORMAT, ROWS>(k.weight, o + lane, i, xs + (i - k0) * ROWS, sum);
        for (unsigned r = 0; r < ROWS; r++)
            sums[warp][r][lane] = sum[r];
        __syncthreads();
        for (unsigned w = 0; w < WARPS && k0 + w * EXO_CUDA_PIECE < inputs && warp < ROWS; w++)
            total += sums[w][warp][lane];
    }
    if (warp >= ROWS || row + warp >= k.rows || o + lane >= k.weight.outputs)
        return;
    total = k.base ? total + k.base[(row + warp) * k.base_pitch + o + lane] : total;
    k.y[(row + warp) * k.pitch + o + lane] = k.bias ? total + k.bias[o + lane] : total;
}

template <exo_weight_format FORMAT, int ROWS>
static void
launch_rows(exo_cuda_device *cuda, const product_args &k)
{
    const dim3 grid(static_cast<unsigned>(k.weight.pitch / EXO_CUDA_LINE),
                    static_cast<unsigned>((k.rows + ROWS - 1) / ROWS));
    exo_cuda_launch((multiply_rows<FORMAT, ROWS>), grid, THREADS, 0, cuda->stream, k);
}

/* Few rows are not filled up to many. */
template <exo_weight_format FORMAT>
static void
launch_product(exo_cuda_device *cuda, const product_args &k)
{
    if (k.rows == 1)
        launch_rows<FORMAT, 1>(cuda, k);
    else if (k.rows <= 4)
        launch_rows<FORMAT, 4>(cuda, k);
    else
        launch_rows<FORMAT, MOST_ROWS>(cuda, k);
}

static product_args
product_of(const pass *p, exo_decoder_role role, size_t block, const float *x, float *y)
{
    product_args k = {};
    k.weight = exo_cuda_decoder_matrix(p->plan, p->weights, role, block, false);
    k.bias = reinterpret_cast<const float *>(
        exo_cuda_decoder_matrix(p->plan, p->weights, role, block, true).words);
    k.rows = p->rows;
    k.pitch = k.weight.outputs;
    k.x = x;
    k.y = y;
    return k;
}

static void
multiply(const pass *p, const product_args &k)
{
    if (k.weight.format == EXO_WEIGHTS_F32)
        launch_product<EXO_WEIGHTS_F32>(p->cuda, k);
    else if (k.weight.format == EXO_WEIGHTS_INT8)
        launch_product<EXO_WEIGHTS_INT8>(p->cuda, k);
    else
        launch_product<EXO_WEIGHTS_INT4>(p->cuda, k);
}

/* The residual stream x += the product with `from`, of all members. */
static void
add_product(const pass *p, exo_decoder_role role, size_t block, const float *from)
{
    const size_t width = p->mine.width;
    product_args k = product_of(p, role, block, from, my_share(p, p->a.x, width));
    k.base = p->a.x + p->plan->decoder.rank * k.weight.outputs;
    k.base_pitch = width;
    multiply(p, k);
    join(p, p->a.x, width, width);
}

static void
norm(const pass *p, exo_decoder_role role, size_t block, const float *x, float *y,
     const int32_t *which)
{
    const exo_decoder_spec *s = &p->plan->decoder.spec;
    norm_args k = {};
    k.width = s->width;
    k.centered = s->norm == EXO_NORM_LAYER;
    k.eps = s->norm_eps;
    k.x = x;
    k.y = y;
    k.which = which;
    k.weight = reinterpret_cast<const float *>(
        exo_cuda_decoder_matrix(p->plan, p->weights, role, block, false).words);
    k.bias = reinterpret_cast<const float *>(
        exo_cuda_decoder_matrix(p->plan, p->weights, role, block, true).words);
    exo_cuda_launch(norm_rows, static_cast<unsigned>(p->rows), exo_cuda_row_block(s->width), 0,
                    p->cuda->stream, k);
}

/* --- Attention -------------------------------------------------------------------------------- */

/* Normalizes `count` heads of each row of the products, from head `first` on. */
static void
norm_heads(const pass *p, exo_decoder_role role, size_t block, size_t first, size_t count)
{
    const exo_decoder_spec *s = &p->plan->decoder.spec;
    norm_args k = {};
    k.width = s->head_width;
    k.eps = s->norm_eps;
    k.x = k.y = p->a.wide + first * s->head_width;
    k.weight = reinterpret_cast<const float *>(
        exo_cuda_decoder_matrix(p->plan, p->weights, role, block, false).words);
    k.together = count;
    k.pitch = (p->mine.heads + 2 * p->mine.kv_heads) * s->head_width;
    exo_cuda_launch(norm_rows, static_cast<unsigned>(p->rows * count), exo_cuda_row_block(k.width),
                    0, p->cuda->stream, k);
}

static void
attention(const pass *p, const exo_decoder_pass_args *k, size_t block)
{
    const exo_decoder_shape *shape = &p->plan->decoder;
    const exo_decoder_spec *s = &shape->spec;
    const size_t mixed = s->heads * s->head_width;
    if (exo_decoder_has_head_norms(s)) {
        norm_heads(p, EXO_DECODER_Q_NORM, block, 0, p->mine.heads);
        norm_heads(p, EXO_DECODER_K_NORM, block, p->mine.heads, p->mine.kv_heads);
    }
    exo_cuda_decoder_attention a = {};
    a.rows = p->rows;
    a.heads = p->mine.heads;
    a.kv_heads = p->mine.kv_heads;
    a.first_head = shape->rank * p->mine.heads;
    a.width = s->head_width;
    a.context = shape->context;
    a.sequence = layer_floats(shape) * s->layers;
    /* rounded first, as in exo_attention */
    const float scale = static_cast<float>(1 / sqrt(static_cast<double>(s->head_width)));
    a.tape.scale2 = static_cast<float>(static_cast<double>(scale) * 1.4426950408889634);
    a.tape.heads = s->heads;
    a.tape.alibi = s->position == EXO_POSITION_ALIBI;
    a.positions = k->positions;
    a.sequences = k->sequences;
    a.turns = static_cast<const float *>(p->plan->memory);
    a.wide = p->a.wide;
    a.caches = static_cast<float *>(k->caches) + block * layer_floats(shape);
    a.scores = p->a.scores;
    a.mixed = my_share(p, p->a.mixed, mixed);
    exo_cuda_decoder_attend(p->cuda, &a);
    join(p, p->a.mixed, mixed, mixed);
}

/* --- Kernels ---------------------------------------------------------------------------------- */

static void
run_block(const pass *p, const exo_decoder_pass_args *k, size_t block)
{
    const exo_decoder_spec *s = &p->plan->decoder.spec;
    const activations *a = &p->a;
    const size_t inner = p->mine.inner;
    norm(p, EXO_DECODER_NORM1, block, a->x, a->h, NULL);
    multiply(p, product_of(p, EXO_DECODER_QKV, block, a->h, a->wide));
    attention(p, k, block);
    add_product(p, EXO_DECODER_OUT, block, a->mixed);
    norm(p, EXO_DECODER_NORM2, block, a->x, a->h, NULL);
    multiply(p, product_of(p, EXO_DECODER_UP, block, a->h, a->wide));
    exo_cuda_launch_each(activate, exo_cuda_blocks(p->rows * inner, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                         p->cuda->stream, p->rows, inner, s->gated, s->activation, a->wide,
                         my_share(p, a->mixed, s->inner));
    join(p, a->mixed, s->inner, s->inner);
    add_product(p, EXO_DECODER_DOWN, block, a->mixed);
}

/* x = the embeddings of the tokens, of all members. */
static void
embed_rows(const pass *p, const exo_decoder_pass_args *k)
{
    const size_t width = p->mine.width, offset = p->mine.position_offset;
    const exo_cuda_matrix table = exo_cuda_decoder_matrix(p->plan, k->weights,
                                                          EXO_DECODER_EMBEDDING, 0, false),
                          positions = exo_cuda_decoder_matrix(p->plan, k->weights,
                                                              EXO_DECODER_POSITION, 0, false);
    const unsigned blocks = exo_cuda_blocks(p->rows * width, EXO_CUDA_BLOCK);
    if (!is_part(p)) {
        exo_cuda_launch_each(embed, blocks, EXO_CUDA_BLOCK, p->cuda->stream, p->rows, table,
                             positions, offset, k->tokens, k->positions, p->a.x);
        return;
    }
    exo_cuda_launch_each(embed_mine, blocks, EXO_CUDA_BLOCK, p->cuda->stream, p->rows, table,
                         p->first_token, k->tokens, p->a.exchange);
    meet_peers(p, p->peers->add, p->rows * width);
    exo_cuda_launch_each(add_positions, blocks, EXO_CUDA_BLOCK, p->cuda->stream, p->rows, width,
                         p->a.exchange, positions, offset, k->positions, p->a.x);
}

/* Nothing but kernels and meetings, as it is recorded (graphs.h). */
static exo_status
start_pass(exo_device *device, const void *args, exo_err *err)
{
    const exo_decoder_pass_args *k = static_cast<const exo_decoder_pass_args *>(args);
    const exo_cuda_plan *plan = exo_cuda_plan_of(k->plan);
    const exo_decoder_spec *s = &plan->decoder.spec;
    const pass p = begin_pass(device, plan, k->weights, k->scratch, k->rows, k->peers);
    embed_rows(&p, k);
    if (s->embedding_norm)
        norm(&p, EXO_DECODER_EMBEDDING_NORM, 0, p.a.x, p.a.x, NULL);
    for (size_t block = 0; block < s->layers; block++)
        run_block(&p, k, block);
    return exo_cuda_launched("decoder_pass", err);
}

exo_status
exo_cuda_decoder_pass(exo_device *device, const exo_decoder_pass_args *k, exo_err *err)
{
    const exo_cuda_plan *plan = exo_cuda_plan_of(k->plan);
    exo_decoder_pass_args key = *k; /* all that kernels and meetings get */
    if (plan->decoder.members == 0)
        key.peers = NULL;
    static_assert(sizeof key == 9 * sizeof(void *), "a key has no bytes between its parts");
    if (k->rows == 0)
        return EXO_OK;
    return exo_cuda_graphs_run(plan->graphs, exo_cuda_of(device), &key, sizeof key, start_pass, k,
                               err);
}

exo_status
exo_cuda_decoder_logits(exo_device *device, const exo_decoder_logits_args *k, exo_err *err)
{
    const exo_cuda_plan *plan = exo_cuda_plan_of(k->plan);
    const exo_decoder_spec *s = &plan->decoder.spec;
    const size_t line = EXO_DECODER_PITCH, pitch = (s->vocabulary + line - 1) / line * line;
    const pass p = begin_pass(device, plan, k->weights, k->scratch, k->rows, k->peers);
    if (k->rows == 0)
        return EXO_OK;
    norm(&p, EXO_DECODER_NORM, 0, p.a.x, p.a.h, k->which);
    product_args head = product_of(&p, s->tied ? EXO_DECODER_EMBEDDING : EXO_DECODER_HEAD, 0, p.a.h,
                                   my_share(&p, k->logits, s->vocabulary));
    head.pitch = is_part(&p) ? block_columns(&plan->decoder, s->vocabulary) : pitch;
    multiply(&p, head);
    join(&p, k->logits, s->vocabulary, pitch);
    const exo_cuda_log_sums_args sums = {k->rows,   s->vocabulary, pitch,      k->logits,
                                         k->scales, p.a.sums,      k->log_sums};
    if (k->log_sums)
        exo_cuda_log_sums(p.cuda, &sums);
    return exo_cuda_launched("decoder_logits", err);
}
