/* The cuBLASLt of the tests: see cublasLt.h. Products of fp32 are plain loops, whose order depends on
 * the shape, as cuBLASLt's does: passes that need one order must not use them. Those of fp8 and bf16 are
 * the kernel of nn/cuda/matmul_tile.cu, and those with an epilogue are loops again. Owner of an object:
 * its caller; of the counts: the process. */
#include <cublasLt.h>

#include <atomic>

#include "cuda/emulator.h"
#include "cuda/outside.h"
#include "nn/cuda/activations.h"
#include "nn/cuda/fp8.h"
#include "nn/cuda/grid.h"
#include "nn/cuda/matmul.h"

static std::atomic<uint64_t> fp8_products, epilogues[1024];
static std::atomic<bool> no_epilogues, invalid_epilogues, poor_sums;

uint64_t
cuda_emulator_epilogues(cuda_epilogue epilogue)
{
    return epilogues[epilogue];
}

void
cuda_emulator_refuse_epilogues(bool wanted)
{
    no_epilogues = wanted;
}

void
cuda_emulator_invalid_epilogues(bool wanted)
{
    invalid_epilogues = wanted;
}

void
cuda_emulator_poor_sums(bool wanted)
{
    poor_sums = wanted;
}

uint64_t
cuda_emulator_fp8_products(void)
{
    return fp8_products;
}

struct cublaslt_test_handle {
    int gpu;
};

struct cublaslt_test_operation {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    cudaDataType_t bias_type; /* here it has to be said */
    bool bias_type_set;
    int64_t aux_ld;
    const float *scale_a, *scale_b;
    int8_t fast;
};

struct cublaslt_test_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld, stride;
    int32_t batch;
};

struct cublaslt_test_preference {
    uint64_t values[CUBLASLT_TEST_PREFERENCES];
};

/* --- Objects ---------------------------------------------------------------------------------- */

size_t
cublasLtGetVersion(void)
{
    return 0;
}

const char *
cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown";
}

cublasStatus_t
cublasLtCreate(cublasLtHandle_t *out)
{
    *out = new cublaslt_test_handle();
    return cudaGetDevice(&(*out)->gpu) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                      : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t
cublasLtDestroy(cublasLtHandle_t handle)
{
    cuda_emulated_locked([&]() { cuda_emulated_await_gpu(handle->gpu); });
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                         cudaDataType_t scale)
{
    *out = new cublaslt_test_operation();
    (*out)->compute = compute;
    (*out)->scale = scale;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}

/* Copies a value of exactly its size. */
template <typename T>
static cublasStatus_t
set(T *to, const void *value, size_t size)
{
    if (size != sizeof *to)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o, cublasLtMatmulDescAttributes_t which,
                               const void *value, size_t size)
{
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&o->transpose_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&o->transpose_b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&o->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&o->bias, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        o->bias_type_set = true;
        return set(&o->bias_type, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&o->aux, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&o->aux_ld, value, size);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return set(&o->scale_a, value, size);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return set(&o->scale_b, value, size);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return set(&o->fast, value, size);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t
cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    delete operation;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                           uint64_t columns, int64_t ld)
{
    if (ld < static_cast<int64_t>(rows))
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = new cublaslt_test_layout{type, rows, columns, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                 cublasLtMatrixLayoutAttribute_t which, const void *value,
                                 size_t size)
{
    return which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(&layout->batch, value, size)
                                                       : set(&layout->stride, value, size);
}

cublasStatus_t
cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = new cublaslt_test_preference();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                     size_t size)
{
    const bool wide = which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    uint32_t small = 0;
    if (wide)
        return set(&preference->values[which], value, size);
    const cublasStatus_t status = set(&small, value, size);
    preference->values[which] = small;
    return status;
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- Rules ------------------------------------------------------------------------------------ */

static bool
is_fp8(cudaDataType_t type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/* fp8: on the GPUs that have it, A transposed and B not, sides of multiples of 16, no E5M2 with E5M2,
 * the sums and the scale in fp32. */
static bool
has_fp8(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
        cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d)
{
    cudaDeviceProp gpu;
    if (cudaGetDeviceProperties(&gpu, handle->gpu) != cudaSuccess ||
        gpu.major * 10 + gpu.minor < 89)
        return false;
    const uint64_t sides =
        a->rows | a->columns | b->columns | d->rows | static_cast<uint64_t>(a->ld | b->ld | d->ld);
    return is_fp8(a->type) && is_fp8(b->type) &&
           (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) &&
           o->transpose_a == CUBLAS_OP_T && o->transpose_b == CUBLAS_OP_N &&
           o->compute == CUBLAS_COMPUTE_32F && sides % 16 == 0 && !is_fp8(d->type);
}

/* The type that the table of cublasLtMatmul has for a bias, or for the sums of an operand. */
static cudaDataType_t
bias_type_for(cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t d)
{
    return is_fp8(a->type) ? CUDA_R_16BF : d->type;
}

static bool
takes_bias(cublasLtMatmulDesc_t o)
{
    return o->epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADB);
}

static bool
has_fp32_bias(cublasLtMatmulDesc_t o)
{
    return o->epilogue == CUBLASLT_EPILOGUE_BIAS && o->bias_type == CUDA_R_32F;
}

static bool
takes_aux(cublasLtMatmulDesc_t o)
{
    return o->epilogue & 128;
}

/* Epilogues: a bias of the type that the table has; aux with its leading dimension, a multiple of 8; of
 * products of fp8, no sums of operands, which no document promises. Batches would need strides of
 * both. */
static cublasStatus_t
check_epilogue(cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t d)
{
    if ((takes_bias(o) && !o->bias) ||
        (takes_aux(o) &&
         (!o->aux || o->aux_ld % 8 != 0 || o->aux_ld < static_cast<int64_t>(d->rows))))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((takes_bias(o) && (!o->bias_type_set || o->bias_type != bias_type_for(a, d))) ||
        (o->epilogue == CUBLASLT_EPILOGUE_BGRADB && is_fp8(a->type)) ||
        (o->epilogue != CUBLASLT_EPILOGUE_DEFAULT && o->epilogue != CUBLASLT_EPILOGUE_BIAS &&
         d->batch > 1))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

/* The largest power of two, up to 16, that divides the addresses of the bias and aux. */
static uint64_t
alignment_of(cublasLtMatmulDesc_t o)
{
    const uintptr_t all = (takes_bias(o) ? reinterpret_cast<uintptr_t>(o->bias) : 0) |
                          (takes_aux(o) ? reinterpret_cast<uintptr_t>(o->aux) : 0) | 16;
    return all & (~all + 1);
}

static cublasStatus_t
check(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    const bool fp8 = is_fp8(a->type) || is_fp8(b->type);
    const uint64_t m = o->transpose_a == CUBLAS_OP_T ? a->columns : a->rows,
                   k = o->transpose_a == CUBLAS_OP_T ? a->rows : a->columns,
                   n = o->transpose_b == CUBLAS_OP_T ? b->rows : b->columns,
                   also_k = o->transpose_b == CUBLAS_OP_T ? b->columns : b->rows;
    if (m != d->rows || n != d->columns || k != also_k || k == 0 || c->rows != m ||
        c->columns != n || a->batch != b->batch || a->batch != d->batch)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!fp8 && (o->scale_a || o->scale_b))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (o->scale != CUDA_R_32F || c->type != d->type || (fp8 && !has_fp8(handle, o, a, b, d)) ||
        (!fp8 && a->type != b->type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return check_epilogue(o, a, d);
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t preference, int most,
                               cublasLtMatmulHeuristicResult_t *results, int *found)
{
    const cublasStatus_t status = check(handle, operation, a, b, c, d);
    *found = 0;
    if (status != CUBLAS_STATUS_SUCCESS || most < 1)
        return status;
    for (int p = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; p < CUBLASLT_TEST_PREFERENCES; p++)
        if (is_fp8(a->type) && preference->values[p] < 16)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool fused =
        operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !has_fp32_bias(operation);
    if (fused && invalid_epilogues)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (fused && no_epilogues)
        return CUBLAS_STATUS_SUCCESS; /* with none found */
    results->algo.chosen_for = a->rows * 31 + b->columns;
    results->algo.aligned = alignment_of(operation);
    for (size_t i = 0; i < 4; i++)
        results->algo.least[i] = preference->values[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i];
    results->wavesCount =
        poor_sums && operation->epilogue == CUBLASLT_EPILOGUE_BGRADB ? 0.25f : 0.5f;
    results->state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- Products --------------------------------------------------------------------------------- */

/* The nearest number of tf32, which has 10 bits behind the point. */
static float
rounded(float x)
{
    const uint32_t bits = exo_cuda_bits(x);
    return isfinite(x) ? exo_cuda_float((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu) : x;
}

/* A sum begins at an element of k that the number of rows says. */
static float
sum_of(const exo_cuda_product &p, bool tf32, size_t matrix, size_t row, size_t column)
{
    const float *a = static_cast<const float *>(p.a) + matrix * p.stride_a,
                *b = static_cast<const float *>(p.b) + matrix * p.stride_b;
    float sum = 0;
    for (size_t i = 0; i < p.k; i++) {
        const size_t k = (i + p.m * 7) % p.k;
        const float x = a[p.transpose_a ? k * p.lda + row : row * p.lda + k],
                    y = b[p.transpose_b ? column * p.ldb + k : k * p.ldb + column];
        sum = tf32 ? fmaf(rounded(x), rounded(y), sum) : fmaf(x, y, sum);
    }
    return sum;
}

static void
multiply_each(exo_cuda_product p, bool tf32)
{
    const float *added = static_cast<const float *>(p.added ? p.added : p.c);
    for (EXO_CUDA_EACH(i, p.batch * p.m * p.n)) {
        const size_t column = i % p.n, row = i / p.n % p.m, matrix = i / p.n / p.m;
        const size_t at = matrix * p.stride_c + row * p.ldc + column;
        float value = p.alpha * sum_of(p, tf32, matrix, row, column);
        if (p.beta != 0)
            value = value + p.beta * added[at];
        static_cast<float *>(p.c)[at] = p.bias ? value + p.bias[column] : value;
        cuda_emulated_wrote(static_cast<float *>(p.c) + at, sizeof(float));
    }
}

static exo_cuda_operand
codes_of(const cublaslt_test_layout *layout)
{
    return layout->type == CUDA_R_8F_E4M3   ? EXO_CUDA_E4M3
           : layout->type == CUDA_R_8F_E5M2 ? EXO_CUDA_E5M2
                                            : EXO_CUDA_NUMBERS;
}

/* Element i of an array of the type. */
static float
number(const void *x, cudaDataType_t type, size_t i)
{
    return type == CUDA_R_8F_E4M3   ? exo_cuda_get(static_cast<const exo_cuda_e4m3 *>(x), i)
           : type == CUDA_R_8F_E5M2 ? exo_cuda_get(static_cast<const exo_cuda_e5m2 *>(x), i)
           : type == CUDA_R_16BF    ? exo_cuda_get(static_cast<const exo_cuda_bf16 *>(x), i)
                                    : static_cast<const float *>(x)[i];
}

static void
put(void *y, cudaDataType_t type, size_t i, float value)
{
    const size_t bytes = type == CUDA_R_16BF ? sizeof(exo_cuda_bf16) : sizeof(float);
    if (type == CUDA_R_16BF)
        exo_cuda_set(static_cast<exo_cuda_bf16 *>(y), i, value);
    else
        static_cast<float *>(y)[i] = value;
    cuda_emulated_wrote(static_cast<char *>(y) + i * bytes, bytes);
}

/* A product with an epilogue. */
struct fused {
    exo_cuda_product p;
    cublasLtEpilogue_t epilogue;
    cudaDataType_t a, b, c, bias;
    size_t aux_ld;
};

/* op(a) at (row, k). */
static float
a_at(const fused &f, size_t row, size_t k)
{
    return number(f.p.a, f.a, f.p.transpose_a ? k * f.p.lda + row : row * f.p.lda + k);
}

static float
fused_element(const fused &f, size_t row, size_t column)
{
    const exo_cuda_product &p = f.p;
    float sum = 0;
    for (size_t k = 0; k < p.k; k++)
        sum = fmaf(a_at(f, row, k),
                   number(p.b, f.b, p.transpose_b ? column * p.ldb + k : k * p.ldb + column), sum);
    if (p.scale_a)
        sum = sum * (*p.scale_a * *p.scale_b);
    sum = p.alpha * sum;
    if (p.beta != 0)
        sum = sum + p.beta * number(p.added, f.c, row * p.ldc + column);
    return sum;
}

static void
multiply_fused_each(fused f)
{
    const exo_cuda_product &p = f.p;
    for (EXO_CUDA_EACH(i, p.m * p.n)) {
        const size_t row = i / p.n, column = i % p.n, at = row * f.aux_ld + column;
        float value = fused_element(f, row, column), sum = 0;
        if (f.epilogue & CUBLASLT_EPILOGUE_BIAS)
            value = value + number(p.vector, f.bias, column);
        if (f.epilogue == CUBLASLT_EPILOGUE_DGELU)
            value = value * exo_cuda_activation_slope(EXO_GELU_TANH, number(p.aux, f.c, at));
        else if (f.epilogue & 128)
            put(p.aux, f.c, at, value);
        if (f.epilogue & CUBLASLT_EPILOGUE_GELU)
            value = exo_cuda_activation(EXO_GELU_TANH, value);
        put(p.c, f.c, row * p.ldc + column, value);
        if (f.epilogue != CUBLASLT_EPILOGUE_BGRADB || column > 0)
            continue;
        for (size_t k = 0; k < p.k; k++)
            sum = sum + a_at(f, row, k);
        put(p.vector, f.bias, row, sum);
    }
}

/* The product of the matrices as they lie in memory, row by row: b is the first operand. */
static exo_cuda_product
product_of(cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
           cublasLtMatrixLayout_t d)
{
    exo_cuda_product p = {};
    p.m = d->columns;
    p.n = d->rows;
    p.k = o->transpose_a == CUBLAS_OP_T ? a->rows : a->columns;
    p.batch = static_cast<size_t>(d->batch);
    p.transpose_a = o->transpose_b == CUBLAS_OP_T;
    p.transpose_b = o->transpose_a == CUBLAS_OP_T;
    p.dtype = a->type == CUDA_R_16BF ? EXO_BF16 : EXO_F32;
    p.out_dtype = d->type == CUDA_R_16BF ? EXO_BF16 : EXO_F32;
    p.codes_a = codes_of(b);
    p.codes_b = codes_of(a);
    p.scale_a = o->scale_b;
    p.scale_b = o->scale_a;
    p.lda = static_cast<size_t>(b->ld);
    p.ldb = static_cast<size_t>(a->ld);
    p.ldc = static_cast<size_t>(d->ld);
    p.stride_a = static_cast<size_t>(b->stride);
    p.stride_b = static_cast<size_t>(a->stride);
    p.stride_c = static_cast<size_t>(d->stride);
    p.vector = takes_bias(o) ? o->bias : NULL;
    p.aux = takes_aux(o) ? o->aux : NULL;
    return p;
}

/* Whether addresses are multiples of what the algorithm was chosen for. */
static bool
is_aligned(const cublasLtMatmulAlgo_t *algo, const void *a, const void *b, const void *c,
           const void *d)
{
    const void *const all[] = {a, b, c, d};
    bool aligned = true;
    for (size_t i = 0; i < 4; i++)
        aligned = aligned && algo->least[i] > 0 &&
                  reinterpret_cast<uintptr_t>(all[i]) % algo->least[i] == 0;
    return aligned;
}

/* Whether scales are on the device and addresses are aligned. The real one takes a scale that is missing
 * as 1; here it is forgotten. */
static bool
fits_fp8(cublasLtMatmulDesc_t o, const void *a, const void *b, const void *c, const void *d)
{
    const uintptr_t all = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                          reinterpret_cast<uintptr_t>(c) | reinterpret_cast<uintptr_t>(d);
    bool there = false;
    cuda_emulated_locked([&]() {
        there = cuda_emulated_holds(o->scale_a, sizeof(float)) &&
                cuda_emulated_holds(o->scale_b, sizeof(float));
    });
    return there && all % 16 == 0;
}

/* Each shape has a kernel of its own here, which is loaded by the first product. */
static bool
load_kernel(cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
            cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo)
{
    const uint64_t all[] = {static_cast<uint64_t>(o->compute),
                            static_cast<uint64_t>(o->epilogue),
                            static_cast<uint64_t>(o->transpose_a),
                            static_cast<uint64_t>(o->transpose_b),
                            static_cast<uint64_t>(a->type),
                            static_cast<uint64_t>(b->type),
                            static_cast<uint64_t>(d->type),
                            a->rows,
                            a->columns,
                            b->columns,
                            static_cast<uint64_t>(d->batch),
                            algo->aligned};
    uint64_t kernel = UINT64_C(14695981039346656037); /* FNV-1a */
    bool loads = false;
    for (uint64_t x : all)
        kernel = (kernel ^ x) * UINT64_C(1099511628211);
    cuda_emulated_locked([&]() { loads = cuda_emulated_load(kernel); });
    return loads;
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha,
               const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
               cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
               cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
               const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
               cudaStream_t stream)
{
    const cublasStatus_t status = check(handle, operation, a_layout, b_layout, c_layout, d_layout);
    exo_cuda_product p = product_of(operation, a_layout, b_layout, d_layout);
    (void)workspace;
    (void)workspace_bytes;
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (algo->chosen_for != a_layout->rows * 31 + b_layout->columns ||
        alignment_of(operation) < algo->aligned || !is_aligned(algo, a, b, c, d) ||
        (is_fp8(a_layout->type) && !fits_fp8(operation, a, b, c, d)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!load_kernel(operation, a_layout, b_layout, d_layout, algo))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    p.alpha = *static_cast<const float *>(alpha);
    p.beta = *static_cast<const float *>(beta);
    p.a = b;
    p.b = a;
    p.added = c;
    p.c = d;
    fp8_products += is_fp8(a_layout->type);
    if (operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !has_fp32_bias(operation)) {
        const fused f = {p,
                         operation->epilogue,
                         b_layout->type,
                         a_layout->type,
                         d_layout->type,
                         operation->bias_type,
                         static_cast<size_t>(operation->aux_ld)};
        epilogues[operation->epilogue]++;
        exo_cuda_launch_each(multiply_fused_each, exo_cuda_blocks(p.m * p.n, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, f);
        return CUBLAS_STATUS_SUCCESS;
    }
    p.bias = static_cast<const float *>(p.vector);
    if (a_layout->type == CUDA_R_32F && p.out_dtype == EXO_F32) {
        exo_cuda_launch_each(multiply_each, exo_cuda_blocks(p.batch * p.m * p.n, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, p,
                             operation->compute == CUBLAS_COMPUTE_32F_FAST_TF32);
        return CUBLAS_STATUS_SUCCESS;
    }
    exo_cuda_device on = {};
    on.stream = stream;
    return exo_cuda_multiply_invariant(&on, &p, NULL) == EXO_OK ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_INVALID_VALUE;
}
