/* Products of matrices by cuBLASLt. Its matrices are column by column, so it computes the transposed
 * product c^T = op(b)^T op(a)^T of the same memory.
 *
 * The algorithm of a shape is chosen once, by cuBLASLt's heuristic, among those whose bits are the
 * same in each run: parts of a sum are added in the workspace in their order. fp32 is computed as
 * fp32, and as tf32 only if EXOGYM_CUDA_TF32 asks for it.
 *
 * fp8 has rules of its own (cuBLAS's manual, cublasLtMatmul): the first operand is transposed and the
 * second is not, on Ada and Hopper; sides and addresses are multiples of 16; E5M2 meets E4M3; a bias
 * is bf16. As in Transformer Engine, sums of forward are accumulated as fast as the tensor cores do,
 * and those of gradients go on in fp32 every few products.
 *
 * So have epilogues (cublasLtEpilogue_t, cublasLtMatmulDescAttributes_t): c is column by column, as
 * here; a bias of bf16 results is bf16; aux has the type of c, and rows of a multiple of 8; GELU is
 * the one by tanh; sums of an operand have the type of c, and are not promised for fp8. That GELU has
 * no stated error, so it is not asked for with fp32 results.
 *
 * State: exo_cuda_matmul, of one device. Read next: matmul.h. */
#include "nn/cuda/grid.h"
#include "nn/cuda/matmul.h"
#include "nn/cuda/memory.h"
#include "nn/cuda/own_bytes.h"
#include "nn/cuda/quiet.h"

#include <cublasLt.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#ifndef EXO_CUDA_MATMUL_WORKSPACE            /* the tests need none */
#define EXO_CUDA_MATMUL_WORKSPACE (32 << 20) /* bytes, what NVIDIA advises for Hopper */
#endif

enum {
    WORKSPACE = EXO_CUDA_MATMUL_WORKSPACE,
    BUCKETS = 256,
    MOST_ALIGNMENT = 16, /* more changes no kernel, and would change bits with an address */
    AUX_STEP = 8         /* elements that divide a row of aux */
};

static const float FULLER = 1.5f; /* a plain product that fills as much more takes a sweep along */

/* All that the choice of an algorithm depends on. Compared byte by byte. */
struct shape {
    size_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
    size_t transpose_a, transpose_b, dtype, out_dtype, epilogue, with_added, in_place;
    size_t codes_a, codes_b;
    size_t align_a, align_b, align_c, align_added; /* of the addresses */
};

/* A shape with its descriptors: a and b are those of exogym, the second and the first of
 * cuBLASLt. */
struct known {
    struct shape shape;
    struct known *next; /* in the bucket */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    float waves; /* blocks of the algorithm, beside those that the GPU has room for */
    bool none;   /* cuBLASLt has no algorithm for it, or a poor one */
    bool weighed;
};

struct exo_cuda_matmul {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    exo_cuda_device *cuda;
    void *workspace;
    bool has_refused; /* an epilogue that its manual allows, and the log says so */
    struct known *buckets[BUCKETS];
};

static exo_status
check(cublasStatus_t status, const char *what, exo_err *err)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return EXO_OK;
    return exo_fail(err, status == CUBLAS_STATUS_ALLOC_FAILED ? EXO_NOMEM : EXO_FAILED,
                    "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

/* --- Life ------------------------------------------------------------------------------------- */

static cublasStatus_t
set_preference(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t which,
               uint64_t value, size_t size)
{
    const uint32_t small = static_cast<uint32_t>(value);
    return cublasLtMatmulPreferenceSetAttribute(
        p, which, size == sizeof small ? static_cast<const void *>(&small) : &value, size);
}

static exo_status
open_matmul(exo_cuda_matmul *m, exo_err *err)
{
    /* in place and in the output's type, parts of a sum would be rounded as they come */
    const uint64_t schemes =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const cudaError_t error =
        WORKSPACE > 0 ? cudaMallocAsync(&m->workspace, WORKSPACE, m->cuda->stream) : cudaSuccess;
    exo_status st = error == cudaErrorMemoryAllocation
                        ? exo_cuda_say_full(m->cuda, "the workspace of products", WORKSPACE, err)
                        : exo_cuda_status(error, "the workspace of products", err);
    if (st == EXO_OK)
        exo_cuda_took(m->cuda, EXO_CUDA_WORKSPACES, WORKSPACE);
    if (st == EXO_OK)
        st = check(cublasLtCreate(&m->handle), "the start", err);
    if (st == EXO_OK)
        st = check(cublasLtMatmulPreferenceCreate(&m->preference), "a preference", err);
    if (st == EXO_OK)
        st = check(set_preference(m->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                  WORKSPACE, sizeof(uint64_t)),
                   "a preference", err);
    if (st == EXO_OK)
        st = check(set_preference(m->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                  schemes, sizeof(uint32_t)),
                   "a preference", err);
    return st;
}

exo_status
exo_cuda_matmul_new(exo_cuda_matmul **out, exo_cuda_device *cuda, exo_err *err)
{
    exo_cuda_matmul *m = static_cast<exo_cuda_matmul *>(exo_calloc(1, sizeof *m));
    if (!m)
        return exo_fail(err, EXO_NOMEM, "no memory for products");
    m->cuda = cuda;
    const exo_status st = open_matmul(m, err);
    if (st == EXO_OK)
        *out = m;
    else
        exo_cuda_matmul_free(m);
    return st;
}

size_t
exo_cuda_matmul_bytes(void)
{
    return WORKSPACE;
}

static void
known_free(struct known *known)
{
    if (known->operation)
        (void)cublasLtMatmulDescDestroy(known->operation);
    if (known->a)
        (void)cublasLtMatrixLayoutDestroy(known->a);
    if (known->b)
        (void)cublasLtMatrixLayoutDestroy(known->b);
    if (known->c)
        (void)cublasLtMatrixLayoutDestroy(known->c);
    exo_free(known);
}

static void
destroy_handle(void *handle)
{
    (void)cublasLtDestroy(static_cast<cublasLtHandle_t>(handle));
}

/* cuBLASLt waits for the GPU at its end. */
void
exo_cuda_matmul_free(exo_cuda_matmul *m)
{
    if (!m)
        return;
    for (struct known *&bucket : m->buckets)
        while (bucket) {
            struct known *next = bucket->next;
            known_free(bucket);
            bucket = next;
        }
    if (m->preference)
        (void)cublasLtMatmulPreferenceDestroy(m->preference);
    if (m->handle)
        exo_cuda_when_quiet(m->cuda->ordinal, destroy_handle, m->handle);
    if (m->workspace) {
        (void)cudaFreeAsync(m->workspace, m->cuda->stream);
        exo_cuda_gave(m->cuda, EXO_CUDA_WORKSPACES, WORKSPACE);
    }
    exo_free(m);
}

/* --- Shapes ----------------------------------------------------------------------------------- */

/* The largest power of two that divides the address, up to what cuBLASLt can use. */
static size_t
alignment(const void *address)
{
    const uintptr_t bits = reinterpret_cast<uintptr_t>(address);
    size_t align = 1;
    while (align < MOST_ALIGNMENT && bits % (2 * align) == 0)
        align *= 2;
    return align;
}

static cublasLtEpilogue_t
epilogue_of(const exo_cuda_product *p)
{
    switch (p->epilogue) {
    case EXO_CUDA_PLAIN:
        return p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case EXO_CUDA_ADD_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case EXO_CUDA_GELU:
        if (!p->aux)
            return p->vector ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
        return p->vector ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case EXO_CUDA_GELU_SLOPE:
        return CUBLASLT_EPILOGUE_DGELU;
    case EXO_CUDA_SUM_A: /* a is cuBLASLt's second operand */
        return CUBLASLT_EPILOGUE_BGRADB;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static struct shape
shape_of(const exo_cuda_product *p)
{
    struct shape s;
    memset(&s, 0, sizeof s);
    s.m = p->m;
    s.n = p->n;
    s.k = p->k;
    s.batch = p->batch;
    s.lda = p->lda;
    s.ldb = p->ldb;
    s.ldc = p->ldc;
    s.stride_a = p->stride_a;
    s.stride_b = p->stride_b;
    s.stride_c = p->stride_c;
    s.transpose_a = p->transpose_a;
    s.transpose_b = p->transpose_b;
    s.dtype = static_cast<size_t>(p->dtype);
    s.out_dtype = static_cast<size_t>(p->out_dtype);
    s.codes_a = static_cast<size_t>(p->codes_a);
    s.codes_b = static_cast<size_t>(p->codes_b);
    s.epilogue = static_cast<size_t>(epilogue_of(p));
    s.with_added = p->beta != 0;
    s.in_place = !p->added || p->added == p->c;
    s.align_a = alignment(p->a);
    s.align_b = alignment(p->b);
    s.align_c = alignment(p->c);
    s.align_added = s.in_place ? s.align_c : alignment(p->added);
    return s;
}

static cudaDataType_t
type_of(size_t dtype)
{
    return dtype == static_cast<size_t>(EXO_BF16) ? CUDA_R_16BF : CUDA_R_32F;
}

/* Of an operand. */
static cudaDataType_t
type_of_operand(size_t codes, size_t dtype)
{
    return codes == EXO_CUDA_E4M3   ? CUDA_R_8F_E4M3
           : codes == EXO_CUDA_E5M2 ? CUDA_R_8F_E5M2
                                    : type_of(dtype);
}

/* The layout of a matrix whose rows of `columns` elements begin every ld elements: to cuBLASLt, a
 * matrix of `columns` rows. */
static cublasStatus_t
make_layout(cublasLtMatrixLayout_t *out, cudaDataType_t type, size_t rows, size_t columns,
            size_t ld, size_t batch, size_t stride)
{
    const int32_t count = static_cast<int32_t>(batch);
    const int64_t step = static_cast<int64_t>(stride);
    cublasStatus_t status =
        cublasLtMatrixLayoutCreate(out, type, columns, rows, static_cast<int64_t>(ld));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof count);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &step, sizeof step);
    return status;
}

/* Sets an attribute, unless one before has failed. */
template <typename T>
static void
set(cublasStatus_t *status, cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which,
    const T &value)
{
    if (*status == CUBLAS_STATUS_SUCCESS)
        *status = cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value);
}

/* What depends on the arrays of a product and not on its shape. cuBLASLt's first operand is b. */
static cublasStatus_t
set_arrays(cublasLtMatmulDesc_t operation, const exo_cuda_product *p)
{
    const void *vector = p->bias ? p->bias : p->vector;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (vector)
        set(&status, operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
    if (p->aux)
        set(&status, operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->aux);
    if (p->codes_a != EXO_CUDA_NUMBERS) {
        set(&status, operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p->scale_b);
        set(&status, operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p->scale_a);
    }
    return status;
}

/* p: of the shape, with arrays of the alignment that all of the shape have. */
static cublasStatus_t
make_operation(struct known *known, bool tf32, const exo_cuda_product *p)
{
    const struct shape *s = &known->shape;
    const bool rounds = tf32 && s->dtype == static_cast<size_t>(EXO_F32);
    const cublasOperation_t first = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t vector_type =
        p->bias || p->epilogue == EXO_CUDA_SUM_A ? CUDA_R_32F : CUDA_R_16BF;
    const int8_t fast = p->codes_a == EXO_CUDA_E4M3; /* forward */
    cublasStatus_t status = cublasLtMatmulDescCreate(
        &known->operation, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(&status, known->operation, CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(&status, known->operation, CUBLASLT_MATMUL_DESC_TRANSB, second);
    set(&status, known->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    if (p->bias || p->vector)
        set(&status, known->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, vector_type);
    if (p->aux)
        set(&status, known->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
            static_cast<int64_t>(p->ldc));
    if (p->codes_a != EXO_CUDA_NUMBERS)
        set(&status, known->operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    return status == CUBLAS_STATUS_SUCCESS ? set_arrays(known->operation, p) : status;
}

static cublasStatus_t
make_layouts(struct known *known)
{
    const struct shape *s = &known->shape;
    cublasStatus_t status =
        make_layout(&known->a, type_of_operand(s->codes_a, s->dtype), s->transpose_a ? s->k : s->m,
                    s->transpose_a ? s->m : s->k, s->lda, s->batch, s->stride_a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(&known->b, type_of_operand(s->codes_b, s->dtype),
                             s->transpose_b ? s->n : s->k, s->transpose_b ? s->k : s->n, s->ldb,
                             s->batch, s->stride_b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(&known->c, type_of(s->out_dtype), s->m, s->n, s->ldc, s->batch,
                             s->stride_c);
    return status;
}

static cublasStatus_t
choose(exo_cuda_matmul *m, struct known *known)
{
    const struct shape *s = &known->shape;
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        size_t value;
    } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->align_b},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->align_a},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->align_added},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->align_c}};
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (const auto &a : aligned)
        if (status == CUBLAS_STATUS_SUCCESS)
            status = set_preference(m->preference, a.which, a.value, sizeof(uint32_t));
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            cublasLtMatmulAlgoGetHeuristic(m->handle, known->operation, known->b, known->a,
                                           known->c, known->c, m->preference, 1, &result, &found);
    known->none =
        status == CUBLAS_STATUS_NOT_SUPPORTED ||
        (status == CUBLAS_STATUS_SUCCESS && (found == 0 || result.state != CUBLAS_STATUS_SUCCESS));
    if (!known->none) {
        known->algorithm = result.algo;
        known->waves = result.wavesCount;
    }
    return known->none ? CUBLAS_STATUS_SUCCESS : status;
}

/* What cuBLASLt calls invalid, of an epilogue, it does not have: a version may know fewer of them, or
 * fewer types, than its manual. The product is done without. */
static void
do_without(exo_cuda_matmul *m, struct known *known, cublasStatus_t status)
{
    const struct shape *s = &known->shape;
    known->none = true;
    if (!m->has_refused)
        EXO_LOG(WARN, CUDA,
                "event=no_epilogue epilogue=%zu m=%zu n=%zu k=%zu status=%s cublaslt=%zu "
                "msg=\"products are done without it, and slower; further ones are not named\"",
                s->epilogue, s->m, s->n, s->k, cublasLtGetStatusString(status),
                cublasLtGetVersion());
    m->has_refused = true;
}

/* Makes the descriptors of a new shape, and keeps them. */
static exo_status
learn(exo_cuda_matmul *m, const struct shape *shape, const exo_cuda_product *p,
      struct known **bucket, exo_err *err)
{
    struct known *known = static_cast<struct known *>(exo_calloc(1, sizeof *known));
    if (!known)
        return exo_fail(err, EXO_NOMEM, "no memory for a product");
    known->shape = *shape;
    cublasStatus_t status = make_operation(known, m->cuda->tf32, p);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layouts(known);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = choose(m, known);
    if (status == CUBLAS_STATUS_INVALID_VALUE && p->epilogue != EXO_CUDA_PLAIN) {
        do_without(m, known, status);
    } else if (status != CUBLAS_STATUS_SUCCESS) {
        known_free(known);
        return exo_fail(err, status == CUBLAS_STATUS_ALLOC_FAILED ? EXO_NOMEM : EXO_FAILED,
                        "cuBLASLt: a product of (%zu, %zu) and (%zu, %zu): %s", shape->m, shape->k,
                        shape->k, shape->n, cublasLtGetStatusString(status));
    }
    known->next = *bucket;
    *bucket = known;
    return EXO_OK;
}

static exo_status
find(exo_cuda_matmul *m, const struct shape *shape, const exo_cuda_product *p, struct known **out,
     exo_err *err)
{
    const unsigned char *bytes = reinterpret_cast<const unsigned char *>(shape);
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *shape; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    struct known **bucket = &m->buckets[hash % BUCKETS];
    for (*out = *bucket; *out; *out = (*out)->next)
        if (memcmp(&(*out)->shape, shape, sizeof *shape) == 0)
            return EXO_OK;
    const exo_status st = learn(m, shape, p, bucket, err);
    *out = *bucket;
    return st;
}

/* --- Products --------------------------------------------------------------------------------- */

__global__ static void
add_bias_each(exo_cuda_product p)
{
    float *const c = static_cast<float *>(p.c);
    for (EXO_CUDA_EACH(i, p.batch * p.m * p.n)) {
        const size_t column = i % p.n, row = i / p.n % p.m, matrix = i / p.n / p.m;
        c[matrix * p.stride_c + row * p.ldc + column] += p.bias[column];
    }
}

/* cuBLASLt reads a bias 16 bytes at a time, and one in the flat parameters may begin anywhere. That of
 * fp8 is bf16 (EXO_CUDA_ADD_BIAS). */
static exo_status
multiply_then_add(exo_cuda_device *cuda, const exo_cuda_product *p, exo_err *err)
{
    exo_cuda_product alone = *p;
    alone.bias = NULL;
    const exo_status st = exo_cuda_multiply(cuda, &alone, err);
    if (st != EXO_OK)
        return st;
    exo_cuda_launch_each(add_bias_each, exo_cuda_blocks(p->batch * p->m * p->n, EXO_CUDA_BLOCK),
                         EXO_CUDA_BLOCK, cuda->stream, *p);
    return exo_cuda_launched("a bias", err);
}

/* Whether cuBLAS's manual allows the epilogue; of GELU also whether the result is bf16. */
static bool
allows(const exo_cuda_product *p)
{
    if (p->m == 0 || p->n == 0 || p->k == 0 || p->batch > 1 ||
        alignment(p->vector) < MOST_ALIGNMENT || alignment(p->aux) < MOST_ALIGNMENT)
        return false;
    switch (p->epilogue) {
    case EXO_CUDA_PLAIN:
        return true;
    case EXO_CUDA_ADD_BIAS:
        return p->out_dtype == EXO_BF16 || p->codes_a != EXO_CUDA_NUMBERS;
    case EXO_CUDA_GELU:
    case EXO_CUDA_GELU_SLOPE:
        return p->out_dtype == EXO_BF16 && (!p->aux || p->ldc % AUX_STEP == 0);
    case EXO_CUDA_SUM_A:
        return p->out_dtype == EXO_F32 && p->codes_a == EXO_CUDA_NUMBERS;
    }
    return false;
}

/* Gradients of weights have few outputs and long sums, which many blocks share if the algorithm lets
 * them. One that also sums an operand may not (https://github.com/NVIDIA/CUDALibrarySamples/issues/90):
 * if it leaves multiprocessors idle that the plain product has work for, the product is done plain. */
static exo_status
weigh(exo_cuda_matmul *m, const exo_cuda_product *plain, struct known *fused, exo_err *err)
{
    const struct shape shape = shape_of(plain);
    struct known *known = NULL;
    const exo_status st = find(m, &shape, plain, &known, err);
    if (st != EXO_OK)
        return st;
    const float full = known->waves < 1 ? known->waves : 1;
    fused->weighed = true;
    fused->none = !known->none && fused->waves > 0 && full > FULLER * fused->waves;
    if (fused->none)
        EXO_LOG(DEBUG, CUDA, "event=poor_epilogue m=%zu n=%zu k=%zu waves=%.3f plain=%.3f", shape.m,
                shape.n, shape.k, static_cast<double>(fused->waves),
                static_cast<double>(known->waves));
    return EXO_OK;
}

exo_status
exo_cuda_fuse(exo_cuda_device *cuda, exo_cuda_product *p, const exo_cuda_product *with,
              exo_err *err)
{
    if (!cuda->epilogues || !allows(with))
        return EXO_OK;
    const struct shape shape = shape_of(with);
    struct known *known = NULL;
    exo_status st = find(cuda->matmul, &shape, with, &known, err);
    if (st == EXO_OK && !known->none && !known->weighed && with->epilogue == EXO_CUDA_SUM_A)
        st = weigh(cuda->matmul, p, known, err);
    if (st == EXO_OK && !known->none)
        *p = *with;
    return st;
}

exo_status
exo_cuda_multiply(exo_cuda_device *cuda, const exo_cuda_product *p, exo_err *err)
{
    exo_cuda_matmul *m = cuda->matmul;
    if (p->m == 0 || p->n == 0)
        return EXO_OK;
    if (p->k == 0) /* cuBLASLt refuses it */
        return exo_cuda_multiply_invariant(cuda, p, err);
    if (p->bias && (p->codes_a != EXO_CUDA_NUMBERS || alignment(p->bias) < MOST_ALIGNMENT))
        return multiply_then_add(cuda, p, err);
    const struct shape shape = shape_of(p);
    struct known *known = NULL;
    exo_status st = find(m, &shape, p, &known, err);
    if (st == EXO_OK && known->none)
        return exo_cuda_multiply_invariant(cuda, p, err);
    if (st == EXO_OK)
        st = check(set_arrays(known->operation, p), "the arrays of a product", err);
    if (st != EXO_OK)
        return st;
    const void *added = p->added ? p->added : p->c;
    return check(cublasLtMatmul(m->handle, known->operation, &p->alpha, p->b, known->b, p->a,
                                known->a, &p->beta, added, known->c, p->c, known->c,
                                &known->algorithm, m->workspace, WORKSPACE, cuda->stream),
                 "a product", err);
}
