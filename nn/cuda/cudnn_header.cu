/* Compares cudnn_library.h with cuDNN's own header, where there is one. Nothing here runs. */
#if defined(__CUDACC__) && __has_include(<cudnn.h>)
#include <cudnn.h>
#include <stddef.h>

#include "nn/cuda/cudnn_library.h"

#define EQUAL(own, its) static_assert(static_cast<int>(own) == static_cast<int>(its), "")
EQUAL(EXO_CUDNN_SUCCESS, CUDNN_STATUS_SUCCESS);
EQUAL(EXO_CUDNN_NOT_SUPPORTED, CUDNN_STATUS_NOT_SUPPORTED);
EQUAL(EXO_CUDNN_F32, CUDNN_DATA_FLOAT);
EQUAL(EXO_CUDNN_BF16, CUDNN_DATA_BFLOAT16);
EQUAL(EXO_CUDNN_DEFAULT_MATH, CUDNN_DEFAULT_MATH);
EQUAL(EXO_CUDNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH);
EQUAL(EXO_CUDNN_FMA_MATH, CUDNN_FMA_MATH);
EQUAL(EXO_CUDNN_NHWC, CUDNN_TENSOR_NHWC);
EQUAL(EXO_CUDNN_CROSS_CORRELATION, CUDNN_CROSS_CORRELATION);
EQUAL(EXO_CUDNN_DETERMINISTIC, CUDNN_DETERMINISTIC);
#if CUDNN_MAJOR >= 9
EQUAL(EXO_CUDNN_NO_HOST_MEMORY, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
EQUAL(EXO_CUDNN_NO_DEVICE_MEMORY, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
#endif

#define SAME(struct_name, own, its)                                                                \
    static_assert(offsetof(exo_cudnn_advice, own) == offsetof(struct_name, its), "")
#define SAME_ADVICE(struct_name)                                                                   \
    static_assert(sizeof(exo_cudnn_advice) == sizeof(struct_name), "");                            \
    SAME(struct_name, algorithm, algo);                                                            \
    SAME(struct_name, status, status);                                                             \
    SAME(struct_name, time, time);                                                                 \
    SAME(struct_name, memory, memory);                                                             \
    SAME(struct_name, determinism, determinism);                                                   \
    SAME(struct_name, math, mathType)
SAME_ADVICE(cudnnConvolutionFwdAlgoPerf_t);
SAME_ADVICE(cudnnConvolutionBwdDataAlgoPerf_t);
SAME_ADVICE(cudnnConvolutionBwdFilterAlgoPerf_t);

/* Where the table has ints and pointers, the header has enums and pointers of the same size. */
static_assert(sizeof(cudnnStatus_t) == sizeof(int) && sizeof(cudnnDataType_t) == sizeof(int), "");
static_assert(sizeof(cudnnHandle_t) == sizeof(exo_cudnn_handle), "");

/* How many parameters of which sizes and kinds a function has: the header's types, with enums and
 * pointers as the table has them. */
template <typename T, bool is_enum = __is_enum(T)> struct own_type {
    typedef T type;
};
template <typename T> struct own_type<T, true> {
    typedef int type;
};
template <typename T> struct own_type<T *, false> {
    typedef void *type;
};
template <typename F> struct own_function;
template <typename R, typename... P> struct own_function<R(P...)> {
    typedef typename own_type<R>::type type(typename own_type<P>::type...);
};
template <typename A, typename B> struct equal_types {
    static const bool value = false;
};
template <typename A> struct equal_types<A, A> {
    static const bool value = true;
};
#define COMPARE(result, name, parameters)                                                          \
    static_assert(equal_types<typename own_function<result parameters>::type,                      \
                              typename own_function<decltype(cudnn##name)>::type>::value,          \
                  #name);
EXO_CUDNN_FUNCTIONS(COMPARE)
#endif
